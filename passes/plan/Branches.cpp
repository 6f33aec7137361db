//===- Branches.cpp - what only one side of a choice, or a loop, needs ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An op whose value is read by one side of a lathe.choose alone runs in that
// branch. What both sides read, or something else too, runs before it. What
// depends on what a loop carries runs in the loop, all else before it.
//
//===----------------------------------------------------------------------===//
#include "ProgramBuilder.h"

#include "lathe/ir/SizeSources.h"

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

FailureOr<Homes> findBranches(func::FuncOp func) {
  Homes homes;
  Block &block = func.getBody().front();
  llvm::DenseMap<Operation *, Operation *> ends; // of loops, by their beginning
  for (Operation &op : block)
    if (isa<ChooseOp, LoopEndOp>(op)) {
      homes.owners.push_back(&op);
      if (auto end = dyn_cast<LoopEndOp>(op))
        ends[end.getBegin()] = end;
    }
  if (homes.owners.empty())
    return homes;
  auto loops = loopsAround(block);
  SizeSources sizes(block);
  for (Operation &op : llvm::reverse(block.without_terminator())) {
    if (isa<LoopBeginOp>(op) && ends.count(&op)) {
      homes.inside[&op] = homes.of(ends[&op]);
      continue;
    }
    // States and sizes of inputs are for the whole run.
    bool late = isa<DimFromOp>(op) && op.getOperand(0).getDefiningOp();
    if (!isa<KernelOp, CustomCallOp, ChooseOp, LoopEndOp, ConstantOp, BindDimsOp>(op) && !isView(&op) && !late)
      continue;
    llvm::SetVector<Operation *> around = loops.lookup(&op);
    std::optional<Home> home;
    for (OpOperand &use : op.getUses()) {
      Home reader = homes.of(use.getOwner());
      if (auto choose = dyn_cast<ChooseOp>(use.getOwner()); choose && use.getOperandNumber() > 0)
        reader.push_back({choose, use.getOperandNumber() <= choose.getThens().size()});
      if (auto end = dyn_cast<LoopEndOp>(use.getOwner()); end && around.contains(end.getBegin()))
        reader.push_back({end, true});
      home = home ? commonPart(*home, reader) : reader;
    }
    for (Operation *reader : sizes.readersOf(&op)) {
      home = home ? commonPart(*home, homes.of(reader)) : homes.of(reader);
    }
    if (!home)
      home.emplace();
    // What a loop does not change runs before it.
    unsigned within = 0;
    for (auto [i, part] : llvm::enumerate(*home)) {
      auto end = dyn_cast<LoopEndOp>(part.first);
      if (end && !around.contains(end.getBegin())) {
        home->truncate(i);
        break;
      }
      within += bool(end);
    }
    if (within != around.size() && !op.use_empty())
      return op.emitError("unsupported: is needed within a loop and behind it");
    if (!home->empty())
      homes.inside[&op] = *home;
  }
  return homes;
}

} // namespace lathe::plan
