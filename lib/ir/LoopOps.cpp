//===- LoopOps.cpp - loops of a run, in the graph and in the plan ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Loops.h"
#include "lathe/ir/SizeSources.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheLoopOps.cpp.inc"

#define GET_OP_CLASSES
#include "lathe/ir/ExecLoopOps.cpp.inc"

namespace lathe {

void registerLoopOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheLoopOps.cpp.inc"
      >();
}

void registerLoopOps(exec::ExecDialect &dialect) {
  struct Access : exec::ExecDialect {
    using exec::ExecDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/ExecLoopOps.cpp.inc"
      >();
}

LogicalResult LoopBeginOp::verify() {
  if (getInits().empty() || getInits().getTypes() != getCarried().getTypes())
    return emitOpError("loop_begin_c1: results are not those of the operands' types");
  return success();
}

LogicalResult LoopEndOp::verify() {
  LoopBeginOp begin = getBegin();
  if (!begin || getCounter() != begin->getResult(0))
    return emitOpError("loop_end_c1: the counter is no first result of a lathe.loop_begin");
  if (getNexts().getTypes() != begin.getCarried().getTypes())
    return emitOpError("loop_end_c2: what is carried on has other types than what is carried");
  auto isScalar = [](Value value, unsigned width) {
    auto type = llvm::cast<TensorType>(value.getType());
    return type.getRank() == 0 && type.getElementType().isInteger(width);
  };
  if (!(getTrips() || getCondition()) || (getAgain() && !getCondition()) ||
      (getTrips() && !isScalar(getTrips(), 64)) ||
      (getCondition() && !isScalar(getCondition(), 1)) || (getAgain() && !isScalar(getAgain(), 1)))
    return emitOpError("loop_end_c3: it needs trips (i64) or a condition (i1), without dimensions");
  if (!getRows().empty() && (!getIteration() || !getTrips() || getAgain()))
    return emitOpError("loop_end_c4: rows need a number of trips that is known before the loop");
  if (getYs().size() != getNexts().size() + getRows().size())
    return emitOpError("loop_end_c2: a result for each value carried on and each row");
  return success();
}

DenseMap<Operation *, SetVector<Operation *>> loopsAround(Block &block) {
  DenseMap<Operation *, SetVector<Operation *>> around;
  SizeSources sizes(block);
  for (Operation &op : block) {
    SetVector<Operation *> loops;
    SmallVector<Operation *> producers(sizes.of(&op));
    for (Value operand : op.getOperands())
      if (Operation *producer = operand.getDefiningOp())
        producers.push_back(producer);
    for (Operation *producer : producers) {
      if (auto found = around.find(producer); found != around.end())
        loops.insert(found->second.begin(), found->second.end());
      if (isa<LoopBeginOp>(producer))
        loops.insert(producer);
    }
    if (auto end = dyn_cast<LoopEndOp>(op))
      loops.remove(end.getBegin());
    if (!loops.empty())
      around[&op] = std::move(loops);
  }
  return around;
}

} // namespace lathe
