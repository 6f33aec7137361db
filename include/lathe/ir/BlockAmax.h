//===- BlockAmax.h - greatest elements of a product's result -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fusion, select and code generation must agree on about the greatest (or least) element of a
// product's result, or of what follows from it point by point: a kernel that has tiles of it in registers
// gives those of blocks, as one more output, and a small reduction behind it has the rest to do.
//
//   %v = ..                                         [.., N]: M rows in all
//   %b = reshape %v                                 [M / 16, 16, N / 64, 64]
//   %e = reduce max %b {axes = [1, 3]}              [M / 16, N / 64]
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_BLOCKAMAX_H
#define LATHE_IR_BLOCKAMAX_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// Of a block: what a warp of a Hopper tile stages at a time.
inline constexpr int64_t kAmaxRows = 16, kAmaxColumns = 64;

/// Whether an op takes the greatest or the least of all elements of floats.
bool isAmax(mlir::Operation *op);

/// The reduction to blocks that makes a value; null where it is none.
ReduceOp blockAmax(mlir::Value value);

/// The value whose blocks `amax` (blockAmax) reduces: %v above.
mlir::Value blockedValue(ReduceOp amax);

/// Puts a reduction to blocks ahead of `amax` (isAmax), whose operand has M and N that whole blocks
/// make up, and returns it. `amax` is erased.
ReduceOp splitAmax(mlir::Operation *amax);

} // namespace lathe

#endif // LATHE_IR_BLOCKAMAX_H
