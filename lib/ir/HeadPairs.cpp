//===- HeadPairs.cpp - columns of a product that meet inside heads --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/HeadPairs.h"

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

std::optional<HeadPairs> headPairs(MatmulOp product) {
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
  if (auto turned = dyn_cast_or_null<TransposeOp>(onlyUser(found.split.getY())))
    if (turned.getPerm().back() + 1 == int64_t(to.size()))
      found.turned = turned;
  bool sliced = llvm::any_of(found.result().getUsers(), [](Operation *user) { return isa<SliceOp>(user); });
  return sliced ? std::optional(found) : std::nullopt;
}

/// The ops from the split columns to a result that tell where a head goes: all but the last dimension
/// follow from them.
static SmallVector<Operation *> wayOf(Value result, Value split) {
  Operation *op = result.getDefiningOp();
  if (!op || result == split)
    return {};
  for (Value operand : op->getOperands()) {
    SmallVector<Operation *> way = wayOf(operand, split);
    if (way.empty() && operand != split)
      continue;
    way.push_back(op);
    return way;
  }
  return {};
}

std::optional<HeadPlace> headPlace(Value result, HeadPairs &heads) {
  HeadPlace place;
  std::vector<DimExpr> dims = dimsOf(result);
  for (size_t d = 0; d < dimsOf(heads.split.getY()).size(); ++d)
    place.dims.push_back(d);
  size_t axis = heads.axis;
  for (Operation *step : wayOf(result, heads.split.getY())) {
    if (auto turn = dyn_cast<TransposeOp>(step)) {
      SmallVector<int64_t> turned;
      for (int64_t d : turn.getPerm())
        turned.push_back(place.dims[d]);
      place.dims = turned;
      axis = llvm::find(turned, heads.axis) - turned.begin();
    } else if (auto slice = dyn_cast<SliceOp>(step)) {
      place.first += cast<DimAttr>(slice.getStarts()[axis]).expr().constant().value_or(0);
    }
  }
  if (dims.size() != place.dims.size() || place.dims.back() + 1 != int64_t(dims.size()) ||
      dims.back() != DimExpr(heads.size) || !dims[axis].constant())
    return std::nullopt;
  place.count = *dims[axis].constant();
  return place;
}

} // namespace lathe
