//===- Branches.cpp - what only one side of a choice needs ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An op whose value is read by one side of a lathe.choose alone runs in that
// branch. What both sides read, or something else too, runs before it.
//
//===----------------------------------------------------------------------===//
#include "ProgramBuilder.h"

using namespace mlir;

namespace lathe::plan {

static Home commonPart(const Home &a, const Home &b) {
  Home common;
  for (auto [x, y] : llvm::zip(a, b)) {
    if (x != y)
      break;
    common.push_back(x);
  }
  return common;
}

Homes findBranches(func::FuncOp func) {
  Homes homes;
  llvm::append_range(homes.chooses, func.getOps<ChooseOp>());
  if (homes.chooses.empty())
    return homes;
  for (Operation &op : llvm::reverse(func.getBody().front().without_terminator())) {
    // Sizes and states are for the whole run.
    if (!isa<KernelOp, CustomCallOp, ChooseOp, ConstantOp>(op) && !isView(&op))
      continue;
    std::optional<Home> home;
    for (OpOperand &use : op.getUses()) {
      Home reader = homes.of(use.getOwner());
      if (auto choose = dyn_cast<ChooseOp>(use.getOwner()); choose && use.getOperandNumber() > 0)
        reader.push_back({choose, use.getOperandNumber() <= choose.getThens().size()});
      home = home ? commonPart(*home, reader) : reader;
    }
    if (home && !home->empty())
      homes.inside[&op] = *home;
  }
  return homes;
}

} // namespace lathe::plan
