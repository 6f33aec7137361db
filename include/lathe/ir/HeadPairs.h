//===- HeadPairs.h - columns of a product that meet inside heads -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fusion, select and code generation must agree on about products whose columns are heads,
// and slices of heads go to places of their own (queries, and keys and values of a state), some of
// them rotated by their positions: a result follows from a column and the one half a head further, or
// from two neighbours.
//
//   %y = matmul %x, %w                    [.., S, H * D]
//   %h = transpose (reshape %y)           [.., H, S, D]
//   %q = rope (slice %h heads 0..)
//   %v = slice %h heads h..               as it is
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_HEADPAIRS_H
#define LATHE_IR_HEADPAIRS_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// The columns of a product as heads.
struct HeadPairs {
  mlir::Value columns;  ///< [.., heads * size]: the product, or with a bias
  ReshapeOp split;      ///< [.., heads, size], or of a single row heads among sizes of 1
  TransposeOp transposed; ///< of those, sizes last; null without
  int64_t axis = 0;     ///< of the heads in the split columns
  int64_t heads = 0, size = 0;
  bool neighbours = false; ///< results follow from two neighbours; of a kernel

  mlir::Value result() { return transposed ? transposed.getY() : split.getY(); }
};

/// The dimension of heads where columns [.., heads * size] become [.., heads, size]; of a single row
/// the heads may stand anywhere among sizes of 1.
std::optional<int64_t> headsAxis(const std::vector<DimExpr> &columns, const std::vector<DimExpr> &split);

/// Nothing else reads the product's columns, and slices read the heads. `inKernel`: what follows
/// from them stands in the product's block.
std::optional<HeadPairs> headPairs(MatmulOp product, bool inKernel = false);

/// Some of those heads as a result of their kernel.
struct HeadPlace {
  int64_t first = 0, count = 0;      ///< which ones
  llvm::SmallVector<int64_t>
      dims; ///< of each dimension of the result the one of the split columns, or -1 of size 1
};

/// Nothing where the result is not made of slices of heads whose sizes stay last.
std::optional<HeadPlace> headPlace(mlir::Value result, HeadPairs &heads);

} // namespace lathe

#endif // LATHE_IR_HEADPAIRS_H
