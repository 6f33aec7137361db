//===- MovementOps.cpp - verifiers, inference and folds -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"
#include "lathe/ir/WeightStore.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

#include <numeric>

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheMovementOps.cpp.inc"

namespace lathe {

void registerMovementOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheMovementOps.cpp.inc"
      >();
}

using Maps = SmallVector<AffineMap>;
using Iterators = SmallVector<utils::IteratorType>;

static unsigned rankOf(Value value) { return llvm::cast<TensorType>(value.getType()).getRank(); }

static AffineMap identityMap(Value value) {
  return AffineMap::getMultiDimIdentityMap(rankOf(value), value.getContext());
}

//===----------------------------------------------------------------------===//
// Sources
//===----------------------------------------------------------------------===//

OpFoldResult ConstantOp::fold(FoldAdaptor) {
  // A constant-like op always folds. A weight is no ElementsAttr, so that upstream folders
  // never see its bytes.
  return getValue();
}

LogicalResult ConstantOp::verify() {
  if (!llvm::isa<DenseElementsAttr, WeightAttr, JoinedAttr, ShardedAttr>(getValue()))
    return emitOpError("constant_c1: the value is neither dense elements nor a #lathe.weight");
  return success();
}

LogicalResult IotaOp::verify() {
  if (getAxis() < 0 || getAxis() >= rankOf(getY()))
    return emitOpError("iota_c1: axis is outside the rank");
  return success();
}
OpClass IotaOp::getOpClass() { return OpClass::Source; }
Iterators IotaOp::getIterators() { return parallelIterators(*this); }
Maps IotaOp::getAccessMaps() { return {identityMap(getY())}; }

LogicalResult DimValueOp::verify() {
  auto type = llvm::cast<TensorType>(getY().getType());
  if (!type.hasStaticShape() || type.getNumElements() != static_cast<int64_t>(getDims().size()))
    return emitOpError("dim_value_c1: ") << getDims().size() << " expressions for " << type;
  return success();
}
OpClass DimValueOp::getOpClass() { return OpClass::Source; }
Iterators DimValueOp::getIterators() { return parallelIterators(*this); }
Maps DimValueOp::getAccessMaps() { return {identityMap(getY())}; }

LogicalResult DimFromOp::verify() {
  auto type = llvm::cast<TensorType>(getX().getType());
  if (!type.hasStaticShape() || type.getNumElements() != static_cast<int64_t>(getSymbols().size()))
    return emitOpError("dim_from_c1: ") << getSymbols().size() << " symbols for " << type;
  if (!type.getElementType().isInteger())
    return emitOpError("dim_from_c2: elements are not integers");
  return success();
}

LogicalResult BindDimsOp::verify() {
  if (rankOf(getX()) != rankOf(getY()) || elementTypeOf(getX()) != elementTypeOf(getY()))
    return emitOpError("bind_dims_c1: rank or element type differ");
  return success();
}

//===----------------------------------------------------------------------===//
// Index by formula
//===----------------------------------------------------------------------===//

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getX());
  ArrayRef<int64_t> perm = adaptor.getPerm();
  std::vector<bool> seen(dims.size());
  if (perm.size() != dims.size())
    return emitOptionalError(loc, "transpose_c1: perm has ", perm.size(), " entries for rank ",
                             dims.size());
  std::vector<DimExpr> result;
  for (int64_t d : perm) {
    if (d < 0 || d >= static_cast<int64_t>(dims.size()) || seen[d])
      return emitOptionalError(loc, "transpose_c1: perm is not a permutation");
    seen[d] = true;
    result.push_back(dims[d]);
  }
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), result));
  return success();
}
OpFoldResult TransposeOp::fold(FoldAdaptor) {
  SmallVector<int64_t> identity(getPerm().size());
  std::iota(identity.begin(), identity.end(), 0);
  if (getPerm() == ArrayRef<int64_t>(identity) && getX().getType() == getY().getType())
    return getX();
  return {};
}
OpClass TransposeOp::getOpClass() { return OpClass::Movement; }
Iterators TransposeOp::getIterators() { return parallelIterators(*this); }
Maps TransposeOp::getAccessMaps() {
  SmallVector<AffineExpr> index(getPerm().size());
  for (auto [d, source] : llvm::enumerate(getPerm()))
    index[source] = getAffineDimExpr(d, getContext());
  return {AffineMap::get(index.size(), 0, index, getContext()), identityMap(getY())};
}

LogicalResult ReshapeOp::verify() {
  if (elementTypeOf(getX()) != elementTypeOf(getY()))
    return emitOpError("reshape_c2: element types differ");
  DimExpr from = numElements(getX().getType()), to = numElements(getY().getType());
  std::optional<int64_t> a = from.constant(), b = to.constant();
  if (a && b && *a != *b)
    return emitOpError("reshape_c1: ") << *a << " elements into " << *b;
  return success();
}
OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  if (auto inner = getX().getDefiningOp<ReshapeOp>()) {
    setOperand(inner.getX());
    return getY();
  }
  if (auto elements = llvm::dyn_cast_or_null<DenseElementsAttr>(adaptor.getX()))
    if (llvm::cast<TensorType>(getY().getType()).hasStaticShape())
      return elements.reshape(llvm::cast<ShapedType>(getY().getType()));
  return {};
}
OpClass ReshapeOp::getOpClass() { return OpClass::Movement; }
Iterators ReshapeOp::getIterators() { return parallelIterators(*this); }
Maps ReshapeOp::getAccessMaps() { return {AffineMap(), identityMap(getY())}; }
OperandAccess ReshapeOp::getAccess(unsigned) {
  OperandAccess access;
  access.kind = OperandAccess::Kind::InOrder;
  return access;
}
void ReshapeOp::getSizeRules(SmallVectorImpl<SizeRule> &rules) {
  rules.push_back({SizeRule::Kind::Equal, numElements(getX().getType()), numElements(getY().getType()),
                   "reshape changes the number of elements"});
}

LogicalResult BroadcastToOp::verify() {
  std::vector<DimExpr> from = dimsOf(getX()), to = dimsOf(getY());
  if (from.size() > to.size() || elementTypeOf(getX()) != elementTypeOf(getY()))
    return emitOpError("broadcast_to_c2: rank grows and the element type stays");
  for (size_t i = 0; i < from.size(); ++i) {
    const DimExpr &target = to[to.size() - from.size() + i];
    std::optional<int64_t> a = from[i].constant(), b = target.constant();
    if (a && *a != 1 && from[i] != target && b)
      return emitOpError("broadcast_to_c1: size ") << from[i].str() << " into " << target.str();
  }
  return success();
}
OpFoldResult BroadcastToOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  auto type = llvm::cast<TensorType>(getY().getType());
  if (auto elements = llvm::dyn_cast_or_null<DenseElementsAttr>(adaptor.getX()))
    if (elements.isSplat() && type.hasStaticShape())
      return elements.resizeSplat(type);
  return {};
}
OpClass BroadcastToOp::getOpClass() { return OpClass::Movement; }
Iterators BroadcastToOp::getIterators() { return parallelIterators(*this); }
Maps BroadcastToOp::getAccessMaps() { return broadcastMaps(*this); }

LogicalResult SliceOp::verify() {
  size_t rank = rankOf(getX());
  if (getStarts().size() != rank || getSteps().size() != rank || rankOf(getY()) != rank)
    return emitOpError("slice_c1: one start, step and size for each of ") << rank << " dimensions";
  if (llvm::is_contained(getSteps(), 0))
    return emitOpError("slice_c2: a step is 0");
  return success();
}
OpFoldResult SliceOp::fold(FoldAdaptor) {
  bool whole = llvm::all_of(getSteps(), [](int64_t s) { return s == 1; }) &&
               llvm::all_of(getStarts(), [](Attribute a) {
                 return llvm::cast<DimAttr>(a).expr() == DimExpr(0);
               });
  return whole && getX().getType() == getY().getType() ? OpFoldResult(getX()) : OpFoldResult();
}
OpClass SliceOp::getOpClass() { return OpClass::Movement; }
Iterators SliceOp::getIterators() { return parallelIterators(*this); }
Maps SliceOp::getAccessMaps() {
  SmallVector<AffineExpr> index;
  for (auto [d, start] : llvm::enumerate(getStarts())) {
    std::optional<int64_t> constant = llvm::cast<DimAttr>(start).expr().constant();
    if (!constant)
      return {AffineMap(), identityMap(getY())};
    index.push_back(getAffineDimExpr(d, getContext()) * getSteps()[d] + *constant);
  }
  return {AffineMap::get(index.size(), 0, index, getContext()), identityMap(getY())};
}

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (adaptor.getInputs().empty())
    return emitOptionalError(loc, "concat_c1: no inputs");
  Value first = adaptor.getInputs().front();
  std::vector<DimExpr> dims = dimsOf(first);
  int64_t axis = adaptor.getAxis();
  if (axis < 0 || axis >= static_cast<int64_t>(dims.size()))
    return emitOptionalError(loc, "concat_c3: axis is outside the rank");
  for (Value input : adaptor.getInputs().drop_front()) {
    std::vector<DimExpr> other = dimsOf(input);
    if (other.size() != dims.size() || elementTypeOf(input) != elementTypeOf(first))
      return emitOptionalError(loc, "concat_c1: ranks or element types differ");
    for (size_t d = 0; d < dims.size(); ++d) {
      if (static_cast<int64_t>(d) == axis)
        dims[d] = dims[d] + other[d];
      else if (dims[d].isConstant() && other[d].isConstant() && dims[d] != other[d])
        return emitOptionalError(loc, "concat_c2: sizes ", dims[d].str(), " and ", other[d].str(),
                                 " of dimension ", d, " differ");
      else if (other[d].isConstant())
        dims[d] = other[d];
    }
  }
  types.push_back(tensorType(elementTypeOf(first), dims));
  return success();
}
OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getInputs().size() == 1 && getInputs().front().getType() == getY().getType())
    return getInputs().front();
  return {};
}
OpClass ConcatOp::getOpClass() { return OpClass::Movement; }
Iterators ConcatOp::getIterators() { return parallelIterators(*this); }
Maps ConcatOp::getAccessMaps() {
  Maps maps(getInputs().size(), AffineMap());
  maps.push_back(identityMap(getY()));
  return maps;
}

OperandAccess ConcatOp::getAccess(unsigned operand) {
  OperandAccess access;
  access.kind = OperandAccess::Kind::Piece;
  access.starts.assign(rankOf(getY()), DimExpr(0));
  for (Value before : getInputs().take_front(operand))
    access.starts[getAxis()] = access.starts[getAxis()] + dimOf(before, getAxis());
  return access;
}
void ConcatOp::getSizeRules(SmallVectorImpl<SizeRule> &rules) {
  for (Value input : getInputs())
    for (auto [d, dim] : llvm::enumerate(dimsOf(input)))
      if (int64_t(d) != int64_t(getAxis()))
        rules.push_back({SizeRule::Kind::Equal, dim, dimOf(getY(), d), "concatenated sizes differ"});
}

LogicalResult PadOp::verify() {
  std::vector<DimExpr> from = dimsOf(getX()), to = dimsOf(getY());
  if (getLow().size() != from.size() || getHigh().size() != from.size() ||
      to.size() != from.size())
    return emitOpError("pad_c1: one low and one high amount for each of ")
           << from.size() << " dimensions";
  for (size_t d = 0; d < from.size(); ++d) {
    DimExpr want = llvm::cast<DimAttr>(getLow()[d]).expr() + from[d] +
                   llvm::cast<DimAttr>(getHigh()[d]).expr();
    if (want.isConstant() && to[d].isConstant() && want != to[d])
      return emitOpError("pad_c2: size ") << to[d].str() << " of dimension " << d << " is not "
                                          << want.str();
  }
  return success();
}
OpClass PadOp::getOpClass() { return OpClass::Movement; }
Iterators PadOp::getIterators() { return parallelIterators(*this); }
Maps PadOp::getAccessMaps() {
  Maps maps(getOperation()->getNumOperands(), AffineMap());
  if (getValue())
    maps[1] = AffineMap::get(rankOf(getY()), 0,
                             SmallVector<AffineExpr>(rankOf(getValue()),
                                                     getAffineConstantExpr(0, getContext())),
                             getContext());
  maps.push_back(identityMap(getY()));
  return maps;
}

OperandAccess PadOp::getAccess(unsigned operand) {
  OperandAccess access = defaultAccess(*this, operand);
  if (operand > 0 || getMode() != PadMode::Constant)
    return access; // other modes read the border's elements again
  access.kind = OperandAccess::Kind::Piece;
  for (Attribute low : getLow())
    access.starts.push_back(llvm::cast<DimAttr>(low).expr());
  return access;
}

//===----------------------------------------------------------------------===//
// Index from data
//===----------------------------------------------------------------------===//

LogicalResult GatherOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> x = dimsOf(adaptor.getX()), indices = dimsOf(adaptor.getIndices()), dims;
  int64_t axis = adaptor.getAxis();
  if (axis < 0 || axis >= static_cast<int64_t>(x.size()))
    return emitOptionalError(loc, "gather_c1: axis is outside the rank");
  dims.insert(dims.end(), x.begin(), x.begin() + axis);
  dims.insert(dims.end(), indices.begin(), indices.end());
  dims.insert(dims.end(), x.begin() + axis + 1, x.end());
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dims));
  return success();
}
OpClass GatherOp::getOpClass() { return OpClass::Gather; }
Iterators GatherOp::getIterators() { return parallelIterators(*this); }
Maps GatherOp::getAccessMaps() {
  unsigned rank = rankOf(getY());
  SmallVector<AffineExpr> index;
  for (unsigned d = 0; d < rankOf(getIndices()); ++d)
    index.push_back(getAffineDimExpr(getAxis() + d, getContext()));
  return {AffineMap(), AffineMap::get(rank, 0, index, getContext()), identityMap(getY())};
}

LogicalResult GatherElementsOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                 Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (rankOf(adaptor.getX()) != rankOf(adaptor.getIndices()) || adaptor.getAxis() >= rankOf(adaptor.getX()))
    return emitOptionalError(loc, "gather_elements_c1: ranks are equal and axis is inside");
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dimsOf(adaptor.getIndices())));
  return success();
}
OpClass GatherElementsOp::getOpClass() { return OpClass::Gather; }
Iterators GatherElementsOp::getIterators() { return parallelIterators(*this); }
Maps GatherElementsOp::getAccessMaps() {
  return {AffineMap(), identityMap(getIndices()), identityMap(getY())};
}

LogicalResult GatherNdOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                           Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> x = dimsOf(adaptor.getX()), indices = dimsOf(adaptor.getIndices());
  size_t batch = adaptor.getBatchDims();
  std::optional<int64_t> depth = indices.empty() ? std::nullopt : indices.back().constant();
  if (!depth || batch >= indices.size() || batch + *depth > x.size())
    return emitOptionalError(loc, "gather_nd_c1: the last size of indices is a constant that fits");
  std::vector<DimExpr> dims(indices.begin(), indices.end() - 1);
  dims.insert(dims.end(), x.begin() + batch + *depth, x.end());
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dims));
  return success();
}
OpClass GatherNdOp::getOpClass() { return OpClass::Gather; }
Iterators GatherNdOp::getIterators() { return parallelIterators(*this); }
Maps GatherNdOp::getAccessMaps() { return {AffineMap(), AffineMap(), identityMap(getY())}; }

LogicalResult ScatterElementsOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                  Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (rankOf(adaptor.getX()) != rankOf(adaptor.getIndices()) ||
      dimsOf(adaptor.getIndices()) != dimsOf(adaptor.getUpdates()))
    return emitOptionalError(loc, "scatter_elements_c1: ranks are equal, indices and updates alike");
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dimsOf(adaptor.getX())));
  return success();
}
OpClass ScatterElementsOp::getOpClass() { return OpClass::Scatter; }
Iterators ScatterElementsOp::getIterators() { return parallelIterators(*this); }
Maps ScatterElementsOp::getAccessMaps() {
  return {identityMap(getY()), AffineMap(), AffineMap(), identityMap(getY())};
}

LogicalResult ScatterNdOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> indices = dimsOf(adaptor.getIndices());
  std::optional<int64_t> depth = indices.empty() ? std::nullopt : indices.back().constant();
  if (!depth || *depth > static_cast<int64_t>(rankOf(adaptor.getX())))
    return emitOptionalError(loc, "scatter_nd_c1: the last size of indices is a constant that fits");
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dimsOf(adaptor.getX())));
  return success();
}
OpClass ScatterNdOp::getOpClass() { return OpClass::Scatter; }
Iterators ScatterNdOp::getIterators() { return parallelIterators(*this); }
Maps ScatterNdOp::getAccessMaps() {
  return {identityMap(getY()), AffineMap(), AffineMap(), identityMap(getY())};
}

} // namespace lathe
