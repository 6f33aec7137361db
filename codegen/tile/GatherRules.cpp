//===- GatherRules.cpp - indices from data -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers: the index of the operand is a value itself, checked against the
// dimension's size on the status channel.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

/// The checked index into dimension `dim` of x that `indices` holds at `at`.
Index gathered(Evaluator &e, Value indices, const Indices &at, Value x, int64_t dim) {
  Value v = e.eval(indices, at);
  // check_index takes signed numbers; widen what is unsigned or narrow.
  v = e.cast(v, elementTypeOf(indices), e.b.getI64Type(), false);
  return e.checkedIndex(v, e.ix.dim(dimOf(x, dim)));
}

Value gatherRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<GatherOp>(r.getOwner());
  int64_t axis = op.getAxis();
  int64_t count = cast<RankedTensorType>(op.getIndices().getType()).getRank();
  Indices inner(idx.begin() + axis, idx.begin() + axis + count);
  Indices at(idx.begin(), idx.begin() + axis);
  at.push_back(gathered(e, op.getIndices(), inner, op.getX(), axis));
  at.append(idx.begin() + axis + count, idx.end());
  return e.eval(op.getX(), at);
}

Value gatherElementsRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<GatherElementsOp>(r.getOwner());
  Indices at = idx;
  at[op.getAxis()] = gathered(e, op.getIndices(), idx, op.getX(), op.getAxis());
  return e.eval(op.getX(), at);
}

Value gatherNdRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<GatherNdOp>(r.getOwner());
  int64_t batch = op.getBatchDims();
  auto type = cast<RankedTensorType>(op.getIndices().getType());
  int64_t outer = type.getRank() - 1;
  if (type.isDynamicDim(outer))
    return e.fail(op, "needs a static depth of its indices");
  int64_t depth = type.getDimSize(outer);
  Indices at(idx.begin(), idx.begin() + batch);
  Indices inner(idx.begin(), idx.begin() + outer);
  for (int64_t k = 0; k < depth; ++k) {
    Indices one = inner;
    one.push_back(Index(e.ix.cst(k)));
    at.push_back(gathered(e, op.getIndices(), one, op.getX(), batch + k));
  }
  at.append(idx.begin() + outer, idx.end());
  return e.eval(op.getX(), at);
}

} // namespace

void addGatherRules(RuleTable &t) {
  t["lathe.gather"] = gatherRule;
  t["lathe.gather_elements"] = gatherElementsRule;
  t["lathe.gather_nd"] = gatherNdRule;
}

} // namespace lathe::codegen
