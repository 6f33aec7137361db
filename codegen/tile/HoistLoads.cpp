//===- HoistLoads.cpp - operands of results ahead of reductions --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights and biases that a row's results need do not depend on the row's reductions. In a kernel
// that starts before the previous one has ended (programmatic launch), loads are volatile and keep
// their order with the stores: left where they are used, each would wait for the store before it, and
// their latencies would add up. They move ahead of the first reduction, where their latencies overlap.
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace lathe::codegen {

/// Registers of 32 bits that may be held over the reductions.
static constexpr int64_t kMostWords = 64;

static int64_t wordsOf(Type type) {
  int64_t lanes = 1;
  if (auto vector = dyn_cast<VectorType>(type))
    lanes = vector.getNumElements();
  return (lanes * getElementTypeOrSelf(type).getIntOrFloatBitWidth() + 31) / 32;
}

/// Moves `op` and what it needs ahead of `place` in the same block; false, with nothing moved, when
/// something among it must stay.
static bool moveAhead(Operation *op, Operation *place) {
  llvm::SetVector<Operation *> needed;
  SmallVector<Operation *> open{op};
  while (!open.empty()) {
    Operation *next = open.pop_back_val();
    if (next != op && (!isPure(next) || next->getNumRegions() > 0 || isa<tile::BlockReduceOp>(next)))
      return false;
    if (!needed.insert(next))
      continue;
    for (Value v : next->getOperands())
      if (Operation *def = v.getDefiningOp();
          def && def->getBlock() == place->getBlock() && !def->isBeforeInBlock(place))
        open.push_back(def);
  }
  SmallVector<Operation *> order(needed.begin(), needed.end());
  llvm::sort(order, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  for (Operation *each : order)
    each->moveBefore(place);
  return true;
}

void hoistLoads(func::FuncOp fn) {
  llvm::DenseSet<Value> written;
  llvm::SetVector<Operation *> firsts;
  llvm::DenseSet<Block *> seen;
  fn.walk([&](Operation *op) {
    if (auto store = dyn_cast<tile::StoreOp>(op))
      written.insert(store.getBuffer());
    if (isa<tile::BlockReduceOp>(op) && seen.insert(op->getBlock()).second)
      firsts.insert(op);
  });
  for (Operation *first : firsts) {
    int64_t words = 0;
    for (auto load : llvm::make_early_inc_range(first->getBlock()->getOps<tile::LoadOp>())) {
      if (load->isBeforeInBlock(first) || written.contains(load.getBuffer()))
        continue;
      words += wordsOf(load.getType());
      if (words > kMostWords)
        break;
      moveAhead(load, first);
    }
  }
}

} // namespace lathe::codegen
