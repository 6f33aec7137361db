//===- SharedPlaces.cpp - gathers of many rows at the same places ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/ir/SharedPlaces.h"

using namespace mlir;

namespace lathe {

int64_t rowsThatSharePlaces(Block &body) {
  Operation *yield = body.getTerminator();
  if (yield->getNumOperands() != 1)
    return 0;
  const std::vector<DimExpr> dims = dimsOf(yield->getOperand(0));
  const int64_t rank = dims.size();
  bool any = false;
  for (Operation &op : body) {
    auto structured = dyn_cast<StructuredOpInterface>(op);
    if (structured && structured.getOpClass() == OpClass::Scatter)
      return 0;
    if (!structured || structured.getOpClass() != OpClass::Gather)
      continue;
    auto gather = dyn_cast<GatherElementsOp>(op);
    auto spread = gather ? gather.getIndices().getDefiningOp<BroadcastToOp>() : BroadcastToOp();
    if (!spread || rank < 2 || dimsOf(gather.getResult()) != dims || int64_t(gather.getAxis()) == rank - 2)
      return 0;
    const std::vector<DimExpr> own = dimsOf(spread.getX());
    if (own.size() >= 2 && own[own.size() - 2] != DimExpr(1))
      return 0;
    any = true;
  }
  return any ? dims[rank - 2].constant().value_or(0) : 0;
}

} // namespace lathe
