//===- AttentionOps.cpp - attention and its positions ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheAttentionOps.cpp.inc"

namespace lathe {

void registerAttentionOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheAttentionOps.cpp.inc"
      >();
}

using Maps = SmallVector<AffineMap>;
using Iterators = SmallVector<utils::IteratorType>;

/// Whether `operand` is known not to broadcast to these sizes.
static bool exceeds(Value operand, std::vector<DimExpr> to) {
  std::vector<DimExpr> dims = dimsOf(operand);
  if (dims.size() > to.size())
    return true;
  for (size_t d = 0; d < dims.size(); ++d) {
    const DimExpr &mine = dims[dims.size() - 1 - d], &whole = to[to.size() - 1 - d];
    if (mine != DimExpr(1) && mine.isConstant() && whole.isConstant() && mine != whole)
      return true;
  }
  return false;
}

/// The map of an operand that broadcasts to the iteration space's dimensions `index`.
static AffineMap broadcastMap(Value operand, unsigned space, ArrayRef<AffineExpr> index) {
  auto type = llvm::cast<TensorType>(operand.getType());
  SmallVector<AffineExpr> at;
  for (int64_t d = 0; d < type.getRank(); ++d)
    at.push_back(type.getDimSize(d) == 1 ? getAffineConstantExpr(0, operand.getContext())
                                         : index[index.size() - type.getRank() + d]);
  return AffineMap::get(space, 0, at, operand.getContext());
}

//===----------------------------------------------------------------------===//
// Rope
//===----------------------------------------------------------------------===//

LogicalResult RopeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getX()), cos = dimsOf(adaptor.getCos());
  int64_t rotary = adaptor.getRotary();
  std::optional<int64_t> columns = dims.empty() ? std::nullopt : dims.back().constant();
  if (!columns || rotary < 2 || rotary % 2 || rotary > *columns)
    return emitOptionalError(loc, "rope_c1: ", rotary, " rotated columns of ",
                             dims.empty() ? "none" : dims.back().str());
  if (cos.empty() || (cos.back() != DimExpr(rotary / 2) && cos.back() != DimExpr(rotary)))
    return emitOptionalError(loc, "rope_c2: angles of ", cos.empty() ? "no" : cos.back().str(),
                             " columns for ", rotary, " rotated ones");
  std::vector<DimExpr> whole = dims;
  whole.back() = cos.back();
  if ((adaptor.getSin() && dimsOf(adaptor.getSin()) != cos) || exceeds(adaptor.getCos(), whole))
    return emitOptionalError(loc, "rope_c3: angles do not broadcast to what they rotate");
  Type element = elementTypeOf(adaptor.getX());
  if (!llvm::isa<FloatType>(element) || elementTypeOf(adaptor.getCos()) != element ||
      (adaptor.getSin() && elementTypeOf(adaptor.getSin()) != element))
    return emitOptionalError(loc, "rope_c4: operands are not floats of one type");
  types.push_back(tensorType(element, dims));
  return success();
}
OpClass RopeOp::getOpClass() { return OpClass::Pairwise; }
Iterators RopeOp::getIterators() {
  return Iterators(dimsOf(getY()).size(), utils::IteratorType::parallel);
}
Maps RopeOp::getAccessMaps() {
  // Two columns of x for one of y, and maybe one angle for two: getAccess says rows.
  auto result = AffineMap::getMultiDimIdentityMap(dimsOf(getY()).size(), getContext());
  Maps maps(getOperation()->getNumOperands(), AffineMap());
  maps.push_back(result);
  return maps;
}
OperandAccess RopeOp::getAccess(unsigned operand) {
  return OperandAccess::rows({int64_t(dimsOf(getOperation()->getOperand(operand)).size()) - 1});
}
OpFoldResult RopeOp::fold(FoldAdaptor adaptor) {
  // At position 0 nothing turns.
  auto is = [](Attribute value, double number) {
    auto dense = llvm::dyn_cast_or_null<DenseFPElementsAttr>(value);
    return dense && dense.isSplat() && dense.getSplatValue<llvm::APFloat>().isExactlyValue(number);
  };
  bool still = getSin() ? is(adaptor.getCos(), 1) && is(adaptor.getSin(), 0) : is(adaptor.getCos(), 0);
  return still && getX().getType() == getY().getType() ? OpFoldResult(getX()) : OpFoldResult();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

void AttentionOp::build(OpBuilder &builder, OperationState &state, Value q, Value k, Value v,
                        double scale) {
  build(builder, state,
        tensorType(elementTypeOf(q), {dimOf(q, 0), dimOf(q, 1), dimOf(q, 2), dimOf(v, 3)}),
        /*lse=*/Type(), q, k, v, /*bias=*/Value(), /*mask=*/Value(), /*starts=*/Value(),
        /*lengths=*/Value(), /*offset=*/Value(), /*query_documents=*/Value(),
        /*key_documents=*/Value(), /*sink=*/Value(), llvm::APFloat(scale), /*softcap=*/FloatAttr(),
        /*causal=*/false, /*window_left=*/IntegerAttr(), /*window_right=*/IntegerAttr(),
        /*zero_masked_rows=*/false, /*log_sum_exp=*/false);
}

LogicalResult AttentionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> q = dimsOf(adaptor.getQ()), k = dimsOf(adaptor.getK()),
                       v = dimsOf(adaptor.getV());
  if (q.size() != 4 || k.size() != 4 || v.size() != 4)
    return emitOptionalError(loc, "attention_c1: q, k and v have rank 4");
  std::optional<int64_t> heads = q[1].constant(), groups = k[1].constant();
  if (!heads || !groups || *groups < 1 || *heads % *groups || k[1] != v[1])
    return emitOptionalError(loc, "attention_c2: query heads are not a multiple of key heads");
  if (q[3].isConstant() && k[3].isConstant() && q[3] != k[3])
    return emitOptionalError(loc, "attention_c3: depth ", q[3].str(), " against ", k[3].str());
  if (k[2] != v[2])
    return emitOptionalError(loc, "attention_c4: lengths of k and v differ");
  std::vector<DimExpr> scores = {q[0], q[1], q[2], k[2]}, rows = {q[0], q[1], q[2], 1};
  Value bias = adaptor.getBias(), mask = adaptor.getMask(), sink = adaptor.getSink();
  if ((bias && exceeds(bias, scores)) || (mask && exceeds(mask, scores)) ||
      (sink && exceeds(sink, rows)))
    return emitOptionalError(loc, "attention_c5: bias, mask or sink do not broadcast to the scores");
  for (Value added : {bias, sink})
    if (added && !llvm::isa<FloatType>(elementTypeOf(added)))
      return emitOptionalError(loc, "attention_c6: a bias or sink is not of floats");
  if (mask && !elementTypeOf(mask).isInteger(1))
    return emitOptionalError(loc, "attention_c6: a mask is not of i1");
  auto isInteger = [](Value v) { return llvm::isa<IntegerType>(elementTypeOf(v)); };
  for (Value place : {adaptor.getStarts(), adaptor.getLengths(), adaptor.getOffset()})
    if (place && (!isInteger(place) || exceeds(place, {q[0]})))
      return emitOptionalError(loc, "attention_c7: starts, lengths or offset are no integers for each batch");
  Value mine = adaptor.getQueryDocuments(), theirs = adaptor.getKeyDocuments();
  if (!mine != !theirs || (mine && (!isInteger(mine) || elementTypeOf(mine) != elementTypeOf(theirs) ||
                                    exceeds(mine, {q[0], q[2]}) || exceeds(theirs, {q[0], k[2]}))))
    return emitOptionalError(loc, "attention_c8: documents are no integers of one type for each query and key");
  if (int64_t(adaptor.getWindowLeft().value_or(0)) < 0 ||
      int64_t(adaptor.getWindowRight().value_or(0)) < 0)
    return emitOptionalError(loc, "attention_c9: a window is negative");
  Type element = elementTypeOf(adaptor.getQ());
  types.push_back(tensorType(element, {q[0], q[1], q[2], v[3]}));
  if (adaptor.getLogSumExp()) {
    Type sums = element.isF64() ? element : Float32Type::get(element.getContext());
    types.push_back(tensorType(sums, {q[0], q[1], q[2]}));
  }
  return success();
}
OpClass AttentionOp::getOpClass() { return OpClass::Attention; }
Iterators AttentionOp::getIterators() {
  Iterators result(4, utils::IteratorType::parallel);
  result.append(2, utils::IteratorType::reduction);
  return result;
}
Maps AttentionOp::getAccessMaps() {
  // Iterators: b, h, s, e; t, d. Keys are read at h / (H / G).
  auto dim = [&](unsigned d) { return getAffineDimExpr(d, getContext()); };
  int64_t headGroup =
      llvm::cast<TensorType>(getQ().getType()).getDimSize(1) /
      std::max<int64_t>(1, llvm::cast<TensorType>(getK().getType()).getDimSize(1));
  AffineExpr keyHead = dim(1).floorDiv(std::max<int64_t>(1, headGroup));
  AffineExpr scores[] = {dim(0), dim(1), dim(2), dim(4)}, keys[] = {dim(0), dim(4)};
  AffineExpr one = getAffineConstantExpr(0, getContext()), rows[] = {dim(0), dim(1), dim(2), one};
  auto map = [&](ArrayRef<AffineExpr> index) { return AffineMap::get(6, 0, index, getContext()); };
  Maps maps = {map({dim(0), dim(1), dim(2), dim(5)}), map({dim(0), keyHead, dim(4), dim(5)}),
               map({dim(0), keyHead, dim(4), dim(3)})};
  auto add = [&](Value operand, ArrayRef<AffineExpr> index) {
    if (operand)
      maps.push_back(broadcastMap(operand, 6, index));
  };
  add(getBias(), scores);
  add(getMask(), scores);
  for (Value place : {getStarts(), getLengths(), getOffset()})
    add(place, scores[0]);
  add(getQueryDocuments(), {dim(0), dim(2)});
  add(getKeyDocuments(), keys);
  add(getSink(), rows);
  maps.push_back(map({dim(0), dim(1), dim(2), dim(3)}));
  if (getLse())
    maps.push_back(map({dim(0), dim(1), dim(2)}));
  return maps;
}

std::vector<DimExpr> AttentionOp::scoreDims() {
  std::vector<DimExpr> dims(4, DimExpr(1)), whole = {dimOf(getQ(), 0), dimOf(getQ(), 1),
                                                     dimOf(getQ(), 2), dimOf(getK(), 2)};
  auto add = [&](Value operand, ArrayRef<size_t> places) {
    std::vector<DimExpr> mine = operand ? dimsOf(operand) : std::vector<DimExpr>();
    for (size_t d = 0; d < mine.size(); ++d) {
      size_t at = places[places.size() - mine.size() + d];
      if (mine[d] != DimExpr(1))
        dims[at] = whole[at];
    }
  };
  const size_t scores[] = {0, 1, 2, 3}, queries[] = {0, 2}, keys[] = {0, 3}, batch[] = {0};
  add(getBias(), scores);
  add(getMask(), scores);
  add(getQueryDocuments(), queries);
  add(getKeyDocuments(), keys);
  if (getStarts() || getWindowLeft())
    dims[3] = whole[3];
  add(getStarts(), batch);
  if (getWindowLeft()) {
    dims[2] = whole[2];
    add(getOffset() ? getOffset() : getLengths(), batch);
  }
  return dims;
}

bool AttentionOp::scoresPerQuery() { return scoreDims()[2] != DimExpr(1); }

} // namespace lathe
