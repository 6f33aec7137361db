//===- AttentionOperands.cpp - what attention can read as it lies ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/AttentionOperands.h"

using namespace mlir;

namespace lathe {

static DimExpr behind(const std::vector<DimExpr> &dims, size_t d) {
  DimExpr product = 1;
  for (size_t i = d + 1; i < dims.size(); ++i)
    product = product * dims[i];
  return product;
}

std::optional<RowsInMemory> rowsInMemory(Value rows) {
  RowsInMemory found;
  Value v = rows;
  size_t dim = dimsOf(v).size() - 2;
  for (Operation *op = v.getDefiningOp(); op; op = v.getDefiningOp()) {
    std::vector<DimExpr> to = dimsOf(v);
    Value x = op->getNumOperands() > 0 ? op->getOperand(0) : Value();
    if (isa<ReshapeOp>(op)) {
      std::vector<DimExpr> from = dimsOf(x);
      if (from.size() < 2 || from.back() != to.back())
        return std::nullopt;
      // The dimension whose last part is the last part of this one.
      DimExpr after = behind(to, dim);
      std::optional<size_t> place;
      for (size_t d = 0; d + 1 < from.size(); ++d)
        if (from[d] != DimExpr(1) && behind(from, d) == after)
          place = d;
      if (!place)
        return std::nullopt;
      dim = *place;
    } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
      ArrayRef<int64_t> perm = transpose.getPerm();
      if (perm.back() != int64_t(perm.size()) - 1)
        return std::nullopt;
      dim = perm[dim];
    } else if (auto gather = dyn_cast<GatherOp>(op)) {
      size_t axis = gather.getAxis(), rank = dimsOf(gather.getIndices()).size();
      if (axis + 1 == dimsOf(x).size() || (dim >= axis && dim < axis + rank))
        return std::nullopt;
      if (dim >= axis + rank)
        dim = dim - rank + 1;
      found.gathered = true;
    } else if (auto slice = dyn_cast<SliceOp>(op)) {
      std::vector<DimExpr> from = dimsOf(x);
      if (from[dim] != to[dim] || from.back() != to.back() ||
          llvm::any_of(slice.getSteps(), [](int64_t step) { return step != 1; }))
        return std::nullopt;
    } else {
      break;
    }
    if (!dimsOf(x)[dim].exactDiv(DimExpr(16)))
      return std::nullopt;
    v = x;
  }
  found.memory = v;
  found.dim = dim;
  return found;
}

Value tokensFirst(Value operand) {
  auto turn = operand.getDefiningOp<TransposeOp>();
  return turn && turn.getPerm() == ArrayRef<int64_t>(kTokensFirst) ? turn.getX() : Value();
}

} // namespace lathe
