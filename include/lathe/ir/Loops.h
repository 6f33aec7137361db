//===- Loops.h - loops of a run, in the graph and in the plan ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loop whose trips only the run knows stands flat among the other ops of an
// entry: lathe.loop_begin gives what it carries, lathe.loop_end ends it, and
// what depends on the former is its body. In a program, exec.loop and
// exec.end_loop stand around the steps.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_LOOPS_H
#define LATHE_IR_LOOPS_H

#include "lathe/ir/Exec.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

#define GET_OP_CLASSES
#include "lathe/ir/LatheLoopOps.h.inc"

#define GET_OP_CLASSES
#include "lathe/ir/ExecLoopOps.h.inc"

namespace lathe {

/// For each op of a block, the lathe.loop_begin ops whose bodies it is in, the outermost first;
/// ops in none have no entry. A begin and its end are outside of their own loop.
llvm::DenseMap<mlir::Operation *, llvm::SetVector<mlir::Operation *>>
loopsAround(mlir::Block &block);

} // namespace lathe

#endif // LATHE_IR_LOOPS_H
