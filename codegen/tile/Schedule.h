//===- Schedule.h - loops around the evaluator ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A schedule distributes the elements of a kernel's outputs over blocks,
// threads and lanes, and asks the evaluator for their values. The spec's grid
// is only a number of blocks to a schedule: it works with any.
//
// Which schedule, and its parameters, is the config (lathe/codegen/Config.h).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TILE_SCHEDULE_H
#define LATHE_CODEGEN_TILE_SCHEDULE_H

#include "Evaluator.h"
#include "Rules.h"

#include "lathe/codegen/Skeleton.h"

namespace lathe::codegen {

using Schedule = void (*)(Evaluator &, const KernelConfig &);
void schedulePointwise(Evaluator &, const KernelConfig &);
void scheduleRow(Evaluator &, const KernelConfig &);
void scheduleTranspose(Evaluator &, const KernelConfig &);
void scheduleScan(Evaluator &, const KernelConfig &);
void scheduleScatter(Evaluator &, const KernelConfig &);
void scheduleUnorderedScatter(Evaluator &, const KernelConfig &);
void scheduleGemm(Evaluator &, const KernelConfig &);
void scheduleConv(Evaluator &, const KernelConfig &);
void scheduleWinograd(Evaluator &, const KernelConfig &);
/// False, with nothing emitted, when the convolution is none that it takes.
bool scheduleDirectConv(Evaluator &, const KernelConfig &);
void scheduleDepthwise(Evaluator &, const KernelConfig &);
void scheduleAttention(Evaluator &, const KernelConfig &);
void scheduleRecurrent(Evaluator &, const KernelConfig &);
void scheduleInsertTopK(Evaluator &, const KernelConfig &);
void scheduleMergeTopK(Evaluator &, const KernelConfig &);
void scheduleRadixTopK(Evaluator &, const KernelConfig &);
void scheduleNonzero(Evaluator &, const KernelConfig &);
void scheduleNms(Evaluator &, const KernelConfig &);

/// Whether an output already shares the memory of the operand that a scatter changes.
bool liesInOperand(Evaluator &e, mlir::Operation *scatter, unsigned output);
/// The scatter that a kernel yields and nothing else; null after an error.
mlir::Operation *yieldedScatter(const KernelSource &kernel);
/// What the update at `from` of a scatter names: indices of dimensions of the operand (ScatterSizes::named), checked.
/// None when code for them cannot be made.
std::optional<Indices> namedBy(Evaluator &e, mlir::Operation *scatter, const Indices &from);
/// Stores the update at `from` of a scatter that makes an output in place, without an order.
void storeUpdate(Evaluator &e, mlir::Operation *scatter, unsigned output, const Indices &from);

/// The element of x at `idx` as a signed integer, i32 or i64, that is greater the earlier the element
/// comes in the order of lathe.topk: of NaN the greatest, or with `smallest` the least.
mlir::Value orderedKey(Evaluator &e, mlir::Value x, const Indices &idx, bool smallest);
/// Of what type it is.
mlir::Type orderedKeyType(mlir::Value x);
/// The element of x, in its compute type, that has this key; `read` gives it where several have one: zeros of both signs,
/// and whatever is NaN.
mlir::Value elementOfKey(Evaluator &e, mlir::Value x, mlir::Value key, bool smallest, llvm::function_ref<mlir::Value()> read);
/// The index of place `at` along `axis` of a row, which counts all other dimensions of `dims`.
Indices rowIndex(Evaluator &e, llvm::ArrayRef<DimExpr> dims, int64_t axis, mlir::Value row, const Index &at);

/// Moves loads that no reduction feeds ahead of the first reduction of their block.
void hoistLoads(mlir::func::FuncOp fn);

/// Number of blocks of the (only) launch, or of its clusters.
DimExpr gridSize(const KernelSource &kernel);
/// Calls `body` for the part of [0, n) that belongs to this block: a contiguous
/// range when the block has one thread, else every grid-size-th element.
void overBlockShare(Evaluator &e, const DimExpr &n, llvm::function_ref<void(mlir::Value)> body);
/// [begin, end) of [0, n) for this block, contiguous.
std::pair<mlir::Value, mlir::Value> blockRange(Evaluator &e, mlir::Value n);
/// Where the blocks that a worker has claimed together begin in [0, n): it has done what lies
/// between there and its block. CPU only.
mlir::Value claimBegin(Evaluator &e, mlir::Value n);
/// Rows of `outer` sizes, cut into chunks of lanes along `inner`: calls `body`
/// with the outer index and the inner one, for the share of this block and
/// thread. Without lanes at the tail.
void overUnits(Evaluator &e, llvm::ArrayRef<DimExpr> outer, const DimExpr &inner,
               llvm::function_ref<void(const Indices &outer, const Index &inner)> body);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_TILE_SCHEDULE_H
