//===- BlockExtremes.h - greatest elements of a product's result -*- C++ -*-===//
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
#ifndef LATHE_IR_BLOCKEXTREMES_H
#define LATHE_IR_BLOCKEXTREMES_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// Of a block: what a warp of a Hopper tile stages at a time.
inline constexpr int64_t kExtremeRows = 16, kExtremeColumns = 64;

/// Whether an op takes the greatest or the least of all elements of floats.
bool isExtreme(mlir::Operation *op);

/// The reduction to blocks that makes a value; null where it is none.
ReduceOp blockExtremes(mlir::Value value);

/// The value whose blocks `extremes` (blockExtremes) reduces: %v above.
mlir::Value blockedValue(ReduceOp extremes);

/// Puts a reduction to blocks ahead of `extreme` (isExtreme), whose operand has M and N that whole blocks
/// make up, and returns it. `extreme` is erased.
ReduceOp splitExtreme(ReduceOp extreme);

} // namespace lathe

#endif // LATHE_IR_BLOCKEXTREMES_H
