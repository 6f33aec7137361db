//===- ProgramBuilder.h - one entry to exec.program -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_PLAN_PROGRAMBUILDER_H
#define LATHE_PASSES_PLAN_PROGRAMBUILDER_H

#include "../Common.h"

#include "lathe/ir/Loops.h"

#include "llvm/ADT/MapVector.h"

namespace lathe::plan {

/// An `exec.program` for the entry, ahead of it: sizes, guards, buffers without offsets, and steps.
/// `taps`: results of kernels are shown to who asks for them. Errors are diagnostics.
mlir::LogicalResult planEntry(mlir::func::FuncOp func, const Target &target, bool taps);

/// The number of an argument among the inputs of the engine's entry; -1 for one that is a state (lathe/ir/States.h).
int64_t inputPort(mlir::BlockArgument argument);

/// Sizes and where they come from: `exec.size` ops for every symbol that the entry
/// uses. An error names a symbol that follows from nothing.
mlir::LogicalResult emitSizes(mlir::func::FuncOp func, llvm::ArrayRef<StateOp> states,
                              const std::set<std::string> &symbols, mlir::OpBuilder &builder);

/// Symbols that dim_from or a choice gives values, and what is derived of them.
std::set<std::string> lateSymbols(mlir::func::FuncOp func);

/// The value whose memory this is.
mlir::Value memoryOf(mlir::Value value);

/// The input of its kernel that a result is, but for what the kernel changes.
std::optional<unsigned> updatedInput(mlir::OpResult result);

/// Results that lie in an output's memory because the output is an update of them, and inputs whose
/// memory an output has.
struct Updates {
  llvm::MapVector<mlir::Value, unsigned> memory;          ///< result of a kernel: output
  llvm::MapVector<mlir::BlockArgument, unsigned> donated; ///< input: output
  /// What must run before an op beyond what it reads: the readers of what it overwrites.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Operation *>> before;
};
/// Reorders the entry's ops where an update has to wait for readers.
Updates findUpdates(mlir::func::FuncOp func);

/// Reorders the entry's ops, and clones cheap kernels, where that lowers the arena at these
/// sizes. `inPlace`: results that take the memory of another kernel's result.
mlir::LogicalResult orderForMemory(mlir::func::FuncOp func, const Updates &updates,
                                   const std::map<std::string, int64_t> &point, int64_t alignment,
                                   llvm::DenseMap<mlir::Value, mlir::Value> &inPlace);

/// The blocks that an op is in, the outermost first: a choice, and whether its then-side; or the
/// end of a loop, and true.
using Home = llvm::SmallVector<std::pair<mlir::Operation *, bool>, 1>;
struct Homes {
  llvm::SmallVector<mlir::Operation *> owners; ///< all choices and ends of loops
  llvm::DenseMap<mlir::Operation *, Home> inside; ///< of ops that are not always run once
  Home of(mlir::Operation *op) const { return inside.lookup(op); }
};
/// Which side of which choice alone needs the value of each kernel, call and choice, and which of
/// them run in a loop. An error names a kernel that is needed within a loop and behind it.
mlir::FailureOr<Homes> findBranches(mlir::func::FuncOp func);

/// `exec.guard` ops for what the ops of the entry that run where `home` does assume of sizes that are not
/// equal as formulas, and for the capacities of states, unless they are among `emitted` already or
/// need one of the `late` symbols, which get values in a run, that is not `known`.
void emitGuards(mlir::func::FuncOp func, llvm::ArrayRef<StateOp> states, const std::set<std::string> &late,
                const std::set<std::string> &known, const Homes &homes, const Home &home,
                std::set<std::string> &emitted, mlir::OpBuilder &builder);

/// Values of all symbols that memory is planned for: upper bounds, or the optimum.
std::map<std::string, int64_t> planningPoint(mlir::ModuleOp module);

/// Bytes to whose multiples buffers of the arena are aligned.
inline int64_t alignmentOf(const Target &target) { return target.isCuda() ? 256 : 64; }
/// Bytes apart in which values that the host reads lie.
inline constexpr int64_t kHostLine = 64;

/// Bytes of a tensor type's memory.
DimExpr bytesOf(mlir::Type type);

/// Steps of a program that have memory, or mark a block: the ops that happen at run time, in order.
bool isStep(mlir::Operation *op);

/// The buffer whose memory this is.
exec::BufferOp rootOf(mlir::Value buffer);

} // namespace lathe::plan

#endif // LATHE_PASSES_PLAN_PROGRAMBUILDER_H
