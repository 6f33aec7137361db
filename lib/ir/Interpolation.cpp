//===- Interpolation.cpp - weighted sums of neighbours along two axes -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/ir/Interpolation.h"

using namespace mlir;

namespace lathe {

std::vector<DimExpr> Interpolation::sizesOf(ArrayRef<int64_t> dims) const {
  const std::vector<DimExpr> all = dimsOf(sum);
  std::vector<DimExpr> sizes;
  for (int64_t d : dims)
    sizes.push_back(all[d]);
  return sizes;
}

/// Terms of a sum in the order in which they are added; none where they are too many.
static SmallVector<Value> termsOf(Value sum) {
  constexpr size_t kMost = 8;
  SmallVector<Value> terms;
  auto add = sum.getDefiningOp<AddOp>();
  for (; add && terms.size() < kMost; add = sum.getDefiningOp<AddOp>()) {
    terms.push_back(add.getB());
    sum = add.getA();
  }
  terms.push_back(sum);
  std::reverse(terms.begin(), terms.end());
  return add ? SmallVector<Value>() : terms;
}

/// Whether a value differs along one dimension of `dims` alone.
static bool variesAlong(Value value, ArrayRef<DimExpr> dims, int64_t axis) {
  const std::vector<DimExpr> own = dimsOf(value);
  for (size_t d = 0; d < own.size(); ++d)
    if (int64_t(dims.size() - own.size() + d) != axis && own[d] != DimExpr(1))
      return false;
  return own.size() <= dims.size();
}

static bool isNarrowFloat(Type type) { return isa<FloatType>(type) && type.getIntOrFloatBitWidth() <= 32; }

/// The neighbours that a value is a sum of, and what they are of.
static std::optional<std::pair<WeightedNeighbours, Value>> neighboursOf(Value sum) {
  WeightedNeighbours found;
  Value source;
  const std::vector<DimExpr> dims = dimsOf(sum);
  for (Value term : termsOf(sum)) {
    auto product = term.getDefiningOp<MulOp>();
    if (!product)
      return {};
    GatherOp gather;
    Value weight;
    for (bool swapped : {false, true}) {
      Value part = swapped ? product.getB() : product.getA();
      // The kernel reads elements as f32.
      if (auto cast = part.getDefiningOp<CastOp>(); cast && isNarrowFloat(elementTypeOf(cast.getX())))
        part = cast.getX();
      if (auto op = part.getDefiningOp<GatherOp>(); op && !gather) {
        gather = op;
        weight = swapped ? product.getA() : product.getB();
      }
    }
    if (!gather || dimsOf(gather.getIndices()).size() != 1 || dimsOf(gather.getResult()) != dims || (source && source != gather.getX()))
      return {};
    const int64_t axis = gather.getAxis();
    if (!variesAlong(weight, dims, axis) || (source && axis != found.axis))
      return {};
    source = gather.getX();
    found.axis = axis;
    found.places.push_back(gather.getIndices());
    found.weights.push_back(weight);
  }
  if (!source || found.taps() < 2)
    return {};
  return std::pair(found, source);
}

/// The dimensions of a value in the order in which the kernel's result has them in memory.
static SmallVector<int64_t> orderInMemory(Value value, Value result) {
  const std::vector<DimExpr> dims = dimsOf(value);
  auto transpose = result.getDefiningOp<TransposeOp>();
  if (transpose && dimsOf(transpose.getX()) == dims)
    return SmallVector<int64_t>(transpose.getPerm());
  return llvm::to_vector(llvm::seq<int64_t>(0, dims.size()));
}

/// Whether a kernel's result has the elements of a value of `dims`, moved by transposes and reshapes alone.
static bool keepsSizes(Value result, ArrayRef<DimExpr> dims) {
  while (ArrayRef<DimExpr>(dimsOf(result)) != dims) {
    Operation *op = result.getDefiningOp();
    if (!isa_and_nonnull<TransposeOp, ReshapeOp>(op))
      return false;
    result = op->getOperand(0);
  }
  return true;
}

std::optional<Interpolation> interpolationOf(Block &body) {
  Operation *yield = body.getTerminator();
  if (yield->getNumOperands() != 1)
    return {};
  for (Operation &op : llvm::reverse(body)) {
    auto add = dyn_cast<AddOp>(op);
    if (!add || !elementTypeOf(add.getResult()).isF32())
      continue;
    auto first = neighboursOf(add.getResult());
    if (!first || !elementTypeOf(first->second).isF32())
      continue;
    auto second = neighboursOf(first->second);
    if (!second || first->first.axis == second->first.axis || !isNarrowFloat(elementTypeOf(second->second)))
      continue;
    Interpolation found;
    found.sum = add.getResult();
    found.source = second->second;
    const std::vector<DimExpr> dims = dimsOf(found.sum);
    if (!keepsSizes(yield->getOperand(0), dims))
      return {};
    const SmallVector<int64_t> order = orderInMemory(found.sum, yield->getOperand(0));
    auto placeOf = [&](const WeightedNeighbours &n) { return llvm::find(order, n.axis) - order.begin(); };
    found.rows = placeOf(first->first) < placeOf(second->first) ? first->first : second->first;
    found.columns = placeOf(first->first) < placeOf(second->first) ? second->first : first->first;
    for (auto [place, d] : llvm::enumerate(order)) {
      if (d == found.rows.axis || d == found.columns.axis)
        continue;
      const bool behind = int64_t(place) > placeOf(found.columns);
      if (!behind && int64_t(place) > placeOf(found.rows) && dims[d] != DimExpr(1))
        return {};
      (behind ? found.inner : found.outer).push_back(d);
    }
    return found;
  }
  return {};
}

} // namespace lathe
