//===- HeadPairs.cpp - columns of a product that meet inside heads --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/HeadPairs.h"

#include "lathe/ir/UnitDims.h"

using namespace mlir;

namespace lathe {

static Operation *onlyUser(Value value) { return value.hasOneUse() ? *value.user_begin() : nullptr; }

std::optional<int64_t> headsAxis(const std::vector<DimExpr> &columns, const std::vector<DimExpr> &split) {
  auto isOne = [](const DimExpr &dim) { return dim == DimExpr(1); };
  if (split.size() < 2 || columns.empty())
    return std::nullopt;
  if (std::all_of(columns.begin(), columns.end() - 1, isOne)) {
    int64_t axis = std::find_if_not(split.begin(), split.end() - 1, isOne) - split.begin();
    if (axis + 1 >= int64_t(split.size()) ||
        !std::all_of(split.begin() + axis + 1, split.end() - 1, isOne))
      return std::nullopt;
    return axis;
  }
  if (split.size() != columns.size() + 1 ||
      !std::equal(columns.begin(), columns.end() - 1, split.begin()))
    return std::nullopt;
  return int64_t(split.size()) - 2;
}

/// The ops from the split columns to a result that tell where a head goes: all but the columns
/// follow from them. Operands in `seen` do not lead there.
static SmallVector<Operation *> wayOf(Value result, Value split,
                                      llvm::SmallPtrSetImpl<Operation *> &seen) {
  Operation *op = result.getDefiningOp();
  if (!op || result == split || op->getBlock() != split.getParentBlock() ||
      op->isBeforeInBlock(split.getDefiningOp()) || !seen.insert(op).second)
    return {};
  for (Value operand : op->getOperands()) {
    SmallVector<Operation *> way = wayOf(operand, split, seen);
    if (way.empty() && operand != split)
      continue;
    way.push_back(op);
    return way;
  }
  return {};
}

std::optional<HeadPairs> headPairs(MatmulOp product, bool inKernel) {
  HeadPairs found;
  found.columns = product.getResult();
  if (auto add = dyn_cast_or_null<AddOp>(onlyUser(found.columns));
      add && dimsOf(add.getY()) == dimsOf(found.columns))
    found.columns = add.getY();
  found.split = dyn_cast_or_null<ReshapeOp>(onlyUser(found.columns));
  if (!found.split)
    return std::nullopt;
  std::vector<DimExpr> to = dimsOf(found.split.getY());
  std::optional<int64_t> axis = headsAxis(dimsOf(found.columns), to);
  if (!axis)
    return std::nullopt;
  found.axis = *axis;
  std::optional<int64_t> heads = to[found.axis].constant(), size = to.back().constant();
  if (!heads || !size || *size % 2)
    return std::nullopt;
  found.heads = *heads;
  found.size = *size;
  if (auto transposed = dyn_cast_or_null<TransposeOp>(onlyUser(found.split.getY())))
    if (transposed.getPerm().back() + 1 == int64_t(to.size()))
      found.transposed = transposed;
  found.neighbours = inKernel && llvm::any_of(product->getBlock()->getOps<RopeOp>(),
                                              [](RopeOp rope) { return rope.getInterleaved(); });
  bool sliced = llvm::any_of(found.result().getUsers(), [](Operation *user) { return isa<SliceOp>(user); });
  return sliced ? std::optional(found) : std::nullopt;
}

std::optional<HeadPlace> headPlace(Value result, HeadPairs &heads) {
  HeadPlace place;
  std::vector<DimExpr> dims = dimsOf(result);
  // All but the columns.
  const size_t rank = dimsOf(heads.split.getY()).size();
  for (size_t d = 0; d + 1 < rank; ++d)
    place.dims.push_back(d);
  size_t axis = heads.axis;
  llvm::SmallPtrSet<Operation *, 16> seen;
  for (Operation *step : wayOf(result, heads.split.getY(), seen)) {
    if (auto transpose = dyn_cast<TransposeOp>(step)) {
      if (transpose.getPerm().back() + 1 != int64_t(transpose.getPerm().size()))
        return std::nullopt;
      SmallVector<int64_t> permuted;
      for (int64_t d : transpose.getPerm().drop_back())
        permuted.push_back(place.dims[d]);
      place.dims = permuted;
    } else if (auto reshape = dyn_cast<ReshapeOp>(step)) {
      std::vector<DimExpr> from = dimsOf(reshape.getX()), to = dimsOf(reshape.getY());
      if (to.empty() || to.back() != from.back())
        return std::nullopt;
      auto map = unitMap(ArrayRef(from).drop_back(), ArrayRef(to).drop_back());
      if (!map)
        return std::nullopt;
      for (int64_t &d : *map)
        d = d < 0 ? -1 : place.dims[d];
      place.dims = *map;
    } else if (auto slice = dyn_cast<SliceOp>(step)) {
      place.first += cast<DimAttr>(slice.getStarts()[axis]).expr().constant().value_or(0);
    }
    axis = llvm::find(place.dims, heads.axis) - place.dims.begin();
    if (axis == place.dims.size())
      return std::nullopt;
  }
  place.dims.push_back(rank - 1);
  if (dims.size() != place.dims.size() || dims.back() != DimExpr(heads.size) ||
      !dims[axis].constant())
    return std::nullopt;
  place.count = *dims[axis].constant();
  return place;
}

} // namespace lathe
