//===- SelectionOps.cpp - which elements, by their values -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Selection.h"

#include "lathe/support/FlagMarks.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheSelectionOps.cpp.inc"

namespace lathe {

void registerSelectionOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheSelectionOps.cpp.inc"
      >();
}

using Maps = SmallVector<AffineMap>;
using Iterators = SmallVector<utils::IteratorType>;

static AffineMap identityOf(Value v) {
  return AffineMap::getMultiDimIdentityMap(dimsOf(v).size(), v.getContext());
}

//===----------------------------------------------------------------------===//
// TopK
//===----------------------------------------------------------------------===//

LogicalResult TopKOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getX());
  auto axis = static_cast<int64_t>(adaptor.getAxis());
  if (axis < 0 || axis >= static_cast<int64_t>(dims.size()))
    return emitOptionalError(loc, "topk_c1: axis is outside the rank");
  DimExpr k = adaptor.getK().expr();
  auto number = k.constant(), size = dims[axis].constant();
  if (number && (*number < 0 || (size && *number > *size)))
    return emitOptionalError(loc, "topk_c2: k is ", *number, ", of ", dims[axis].str(), " elements");
  if (!elementTypeOf(adaptor.getX()).isIntOrFloat())
    return emitOptionalError(loc, "topk_c3: elements are no numbers");
  dims[axis] = k;
  types.push_back(tensorType(IntegerType::get(context, 64), dims));
  return success();
}
OpClass TopKOp::getOpClass() { return OpClass::Scan; }
Iterators TopKOp::getIterators() { return parallelIterators(*this); }
Maps TopKOp::getAccessMaps() { return {AffineMap(), identityOf(getY())}; }
OperandAccess TopKOp::getAccess(unsigned) { return OperandAccess::rows({int64_t(getAxis())}); }
void TopKOp::getSizeRules(SmallVectorImpl<SizeRule> &rules) {
  DimExpr size = dimOf(getX(), getAxis());
  rules.push_back({SizeRule::Kind::LessEqual, getK().expr(), size,
                   "k is more than the " + size.str() + " elements along the axis"});
}
DimExpr TopKOp::rows() {
  std::vector<DimExpr> dims = dimsOf(getX());
  dims.erase(dims.begin() + getAxis());
  return product(dims);
}

//===----------------------------------------------------------------------===//
// Nonzero
//===----------------------------------------------------------------------===//

LogicalResult NonzeroOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getFlags());
  if (dims.size() != 1 || !elementTypeOf(adaptor.getFlags()).isInteger(1))
    return emitOptionalError(loc, "nonzero_c1: flags are no vector of i1");
  Type whole = IntegerType::get(context, 64);
  types.push_back(tensorType(whole, dims));
  types.push_back(tensorType(whole, ArrayRef<int64_t>{}));
  return success();
}
OpClass NonzeroOp::getOpClass() { return OpClass::Scan; }
Iterators NonzeroOp::getIterators() { return {utils::IteratorType::parallel}; }
Maps NonzeroOp::getAccessMaps() {
  AffineMap each = identityOf(getPlaces()); // a flag is asked for once
  return {each, each, AffineMap()};
}
OperandAccess NonzeroOp::getAccess(unsigned) { return OperandAccess::rows({0}); }

//===----------------------------------------------------------------------===//
// MarkFlags, MarkedPlaces
//===----------------------------------------------------------------------===//

LogicalResult MarkFlagsOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getFlags());
  if (dims.size() != 1 || !elementTypeOf(adaptor.getFlags()).isInteger(1))
    return emitOptionalError(loc, "mark_flags_c1: flags are no vector of i1");
  Type whole = IntegerType::get(context, 64);
  types.push_back(tensorType(whole, {flagMarks(dims[0])}));
  types.push_back(tensorType(whole, ArrayRef<int64_t>{}));
  return success();
}
OpClass MarkFlagsOp::getOpClass() { return OpClass::Scan; }
Iterators MarkFlagsOp::getIterators() { return {utils::IteratorType::parallel}; }
Maps MarkFlagsOp::getAccessMaps() { return {identityOf(getFlags()), AffineMap(), AffineMap()}; } // a flag is asked for once
OperandAccess MarkFlagsOp::getAccess(unsigned) { return OperandAccess::rows({0}); }

LogicalResult MarkedPlacesOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                               Adaptor adaptor, SmallVectorImpl<Type> &types) {
  const DimExpr length = adaptor.getLength().expr();
  Type whole = IntegerType::get(context, 64);
  if (elementTypeOf(adaptor.getMarks()) != whole || dimsOf(adaptor.getMarks()) != std::vector{flagMarks(length)})
    return emitOptionalError(loc, "marked_places_c1: marks of ", length.str(), " flags are ", flagMarks(length).str(), " of i64");
  types.push_back(tensorType(whole, {length}));
  return success();
}
OpClass MarkedPlacesOp::getOpClass() { return OpClass::Scan; }
Iterators MarkedPlacesOp::getIterators() { return {utils::IteratorType::parallel}; }
Maps MarkedPlacesOp::getAccessMaps() { return {AffineMap(), identityOf(getPlaces())}; }
OperandAccess MarkedPlacesOp::getAccess(unsigned) { return {}; }

//===----------------------------------------------------------------------===//
// Nms
//===----------------------------------------------------------------------===//

LogicalResult NmsOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, Adaptor adaptor,
                                      SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> boxes = dimsOf(adaptor.getBoxes()), order = dimsOf(adaptor.getOrder()),
                       candidates = dimsOf(adaptor.getCandidates());
  auto whole = [](Value v) { return elementTypeOf(v).isSignlessInteger(64); };
  bool sized = boxes.size() == 3 && boxes[2] == DimExpr(4) && order.size() == 3 && order[0] == boxes[0] &&
               order[2] == boxes[1] && candidates.size() == 2 && candidates[0] == order[0] &&
               candidates[1] == order[1] && dimsOf(adaptor.getMost()).empty() &&
               dimsOf(adaptor.getOverlap()).empty();
  if (!sized || !isa<FloatType>(elementTypeOf(adaptor.getBoxes())) || !whole(adaptor.getOrder()) ||
      !whole(adaptor.getCandidates()) || !whole(adaptor.getMost()) ||
      elementTypeOf(adaptor.getOverlap()) != elementTypeOf(adaptor.getBoxes()))
    return emitOptionalError(loc, "nms_c1: boxes are [B, S, 4], their order [B, C, S], candidates [B, C], "
                                  "the other operands numbers");
  Type places = IntegerType::get(context, 64);
  types.push_back(tensorType(places, order));
  types.push_back(tensorType(places, candidates));
  return success();
}
OpClass NmsOp::getOpClass() { return OpClass::Scan; }
Iterators NmsOp::getIterators() { return SmallVector<utils::IteratorType>(3, utils::IteratorType::parallel); }
Maps NmsOp::getAccessMaps() {
  Maps maps(getNumOperands() + 2, AffineMap());
  maps[getNumOperands()] = identityOf(getPlaces());
  return maps;
}
OperandAccess NmsOp::getAccess(unsigned) { return {}; }

std::optional<SelectionSizes> selectionOf(Block &body) {
  for (TopKOp op : body.getOps<TopKOp>()) {
    bool wide = elementTypeOf(op.getX()).getIntOrFloatBitWidth() > 32;
    return SelectionSizes{SelectionSizes::Kind::TopK, op.rows(), dimOf(op.getX(), op.getAxis()), op.getK().expr(), wide ? 64 : 32};
  }
  for (NonzeroOp op : body.getOps<NonzeroOp>()) {
    DimExpr length = dimOf(op.getFlags(), 0), count = length;
    for (Value result : body.getTerminator()->getOperands())
      if (result != op.getCount())
        count = dimOf(result, 0); // of a slice of them, maybe
    return SelectionSizes{SelectionSizes::Kind::Nonzero, DimExpr(1), length, count, 32};
  }
  for (MarkFlagsOp op : body.getOps<MarkFlagsOp>()) {
    DimExpr length = dimOf(op.getFlags(), 0);
    return SelectionSizes{SelectionSizes::Kind::Mark, DimExpr(1), length, length, 32};
  }
  for (MarkedPlacesOp op : body.getOps<MarkedPlacesOp>()) {
    Value places = body.getTerminator()->getOperand(0); // a slice of them, maybe
    return SelectionSizes{SelectionSizes::Kind::MarkedPlaces, DimExpr(1), op.getLength().expr(), dimOf(places, 0), 32};
  }
  for (NmsOp op : body.getOps<NmsOp>()) {
    std::vector<DimExpr> dims = dimsOf(op.getOrder());
    return SelectionSizes{SelectionSizes::Kind::Nms, dims[0] * dims[1], dims[2], dims[2], 32};
  }
  return std::nullopt;
}

} // namespace lathe
