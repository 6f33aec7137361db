//===- ElementwiseOps.cpp - verifiers, inference and folds ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"
#include "lathe/ir/WeightStore.h"

#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheElementwiseOps.cpp.inc"

namespace lathe {

void registerElementwiseOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheElementwiseOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Shared by pointwise ops
//===----------------------------------------------------------------------===//

SmallVector<utils::IteratorType> parallelIterators(Operation *op) {
  auto type = llvm::cast<TensorType>(op->getResult(0).getType());
  return SmallVector<utils::IteratorType>(type.getRank(), utils::IteratorType::parallel);
}

SmallVector<AffineMap> broadcastMaps(Operation *op) {
  MLIRContext *context = op->getContext();
  unsigned rank = llvm::cast<TensorType>(op->getResult(0).getType()).getRank();
  SmallVector<AffineMap> maps;
  for (Value operand : op->getOperands()) {
    auto type = llvm::cast<TensorType>(operand.getType());
    SmallVector<AffineExpr> index;
    unsigned pad = rank - type.getRank();
    for (unsigned i = 0; i < type.getRank(); ++i)
      index.push_back(type.getDimSize(i) == 1 ? getAffineConstantExpr(0, context)
                                              : getAffineDimExpr(pad + i, context));
    maps.push_back(AffineMap::get(rank, 0, index, context));
  }
  maps.push_back(AffineMap::getMultiDimIdentityMap(rank, context));
  return maps;
}

LogicalResult inferBroadcast(std::optional<Location> loc, ValueRange operands, bool sameElement,
                             SmallVectorImpl<Type> &types) {
  std::vector<std::vector<DimExpr>> shapes;
  Type element = elementTypeOf(operands.front());
  for (Value operand : operands) {
    shapes.push_back(dimsOf(operand));
    if (sameElement && elementTypeOf(operand) != element)
      return emitOptionalError(loc, "broadcast_c2: element types ", element, " and ",
                               elementTypeOf(operand), " differ");
  }
  std::optional<std::vector<DimExpr>> dims = broadcastDims(shapes);
  if (!dims)
    return emitOptionalError(loc, "broadcast_c1: shapes of ", operands.front().getType(), " and ",
                             operands.back().getType(), " do not broadcast");
  types.push_back(tensorType(element, *dims));
  return success();
}

bool compatibleTypes(TypeRange a, TypeRange b) {
  if (a.size() != b.size())
    return false;
  for (auto [left, right] : llvm::zip(a, b)) {
    auto x = llvm::dyn_cast<TensorType>(left), y = llvm::dyn_cast<TensorType>(right);
    if (!x || !y || x.getElementType() != y.getElementType() || x.getRank() != y.getRank())
      return false;
    if (x == y)
      continue;
    for (auto [p, q] : llvm::zip(dimsOf(x), dimsOf(y))) {
      std::set<std::string> symbols;
      p.collectSymbols(symbols);
      q.collectSymbols(symbols);
      if (p != q && !symbols.count("_"))
        return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Inference of the ops with a rule of their own
//===----------------------------------------------------------------------===//

LogicalResult PowOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                      SmallVectorImpl<Type> &types) {
  return inferBroadcast(loc, adaptor.getOperands(), /*sameElement=*/false, types);
}

LogicalResult CompareOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (failed(inferBroadcast(loc, adaptor.getOperands(), /*sameElement=*/true, types)))
    return failure();
  types[0] = withElementType(types[0], IntegerType::get(context, 1));
  return success();
}

LogicalResult SelectOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  Type element = elementTypeOf(adaptor.getA());
  if (element != elementTypeOf(adaptor.getB()))
    return emitOptionalError(loc, "broadcast_c2: element types ", element, " and ",
                             elementTypeOf(adaptor.getB()), " differ");
  if (!elementTypeOf(adaptor.getCondition()).isInteger(1))
    return emitOptionalError(loc, "select_c1: the condition's elements are not i1");
  if (failed(inferBroadcast(loc, adaptor.getOperands(), /*sameElement=*/false, types)))
    return failure();
  types[0] = withElementType(types[0], element);
  return success();
}

LogicalResult RandomBitsOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                             SmallVectorImpl<Type> &types) {
  return inferBroadcast(loc, adaptor.getOperands(), /*sameElement=*/true, types);
}

LogicalResult RandomBitsOp::verify() {
  if (!elementTypeOf(getElement()).isUnsignedInteger(64))
    return emitOpError("random_bits_c1: operands are not ui64");
  if (int64_t(getStream()) < 0 || int64_t(getStream()) > int64_t(UINT32_MAX))
    return emitOpError("random_bits_c2: the stream is not in [0, 2^32)");
  return success();
}

LogicalResult CastOp::verify() {
  if (dimsOf(getX()) != dimsOf(getY()))
    return emitOpError("cast_c1: sizes of ") << getX().getType() << " and " << getY().getType()
                                             << " differ";
  return success();
}

LogicalResult BitcastOp::verify() {
  std::optional<DType> from = dtypeOf(elementTypeOf(getX())), to = dtypeOf(elementTypeOf(getY()));
  if (!from || !to || bitWidth(*from) != bitWidth(*to))
    return emitOpError("bitcast_c1: element widths differ");
  if (dimsOf(getX()) != dimsOf(getY()))
    return emitOpError("bitcast_c2: sizes differ");
  return success();
}

//===----------------------------------------------------------------------===//
// Folds: the algebra that holds for every element type
//===----------------------------------------------------------------------===//

/// Whether `value` is a constant with all elements equal to `number`.
static bool isSplat(Value value, double number) {
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || !elements.isSplat())
    return false;
  if (llvm::isa<FloatType>(elements.getElementType()))
    return elements.getSplatValue<APFloat>().convertToDouble() == number;
  if (llvm::isa<IntegerType>(elements.getElementType()))
    return elements.getSplatValue<APInt>().getSExtValue() == static_cast<int64_t>(number);
  return false;
}

/// `kept` if it already has the result's type.
static OpFoldResult keep(Value kept, Operation *op) {
  return kept.getType() == op->getResult(0).getType() ? OpFoldResult(kept) : OpFoldResult();
}

OpFoldResult AddOp::fold(FoldAdaptor) {
  // x + 0 is not x for x = -0.0, whose sum is +0.0; integers alone are exact.
  if (!llvm::isa<IntegerType>(elementTypeOf(getA())))
    return {};
  if (isSplat(getB(), 0))
    return keep(getA(), *this);
  return isSplat(getA(), 0) ? keep(getB(), *this) : OpFoldResult();
}

OpFoldResult SubOp::fold(FoldAdaptor) {
  // -0.0 less -0.0 is +0.0; less +0.0 everything is itself.
  DenseElementsAttr elements;
  if (matchPattern(getB(), m_Constant(&elements)) && elements.isSplat() &&
      llvm::isa<FloatType>(elements.getElementType()) && elements.getSplatValue<APFloat>().isNegZero())
    return {};
  return isSplat(getB(), 0) ? keep(getA(), *this) : OpFoldResult();
}

OpFoldResult MulOp::fold(FoldAdaptor) {
  if (isSplat(getB(), 1))
    return keep(getA(), *this);
  return isSplat(getA(), 1) ? keep(getB(), *this) : OpFoldResult();
}

OpFoldResult DivOp::fold(FoldAdaptor) {
  return isSplat(getB(), 1) ? keep(getA(), *this) : OpFoldResult();
}

OpFoldResult SelectOp::fold(FoldAdaptor) {
  if (getA() == getB())
    return keep(getA(), *this);
  if (isSplat(getCondition(), 0))
    return keep(getB(), *this);
  DenseElementsAttr elements;
  if (matchPattern(getCondition(), m_Constant(&elements)) && elements.isSplat())
    return keep(getA(), *this);
  return {};
}

OpFoldResult CastOp::fold(FoldAdaptor) { return keep(getX(), *this); }

} // namespace lathe
