//===- BlockSteps.h - the blocks of a block-sparse matrix -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A constant matrix [K, N] of a product is cut into panels of 64 columns, and a panel
// into blocks of 64 rows. A GPU multiplies the blocks that are not all zero, for two
// panels at a time: a step is 64 of K in which either of them has a block. The fewer the
// steps, the fewer rows of the other operand are read, so panels that have many of their
// steps in common are paired.
// Who counts them (passes/sparsify) and who packs them (support/Packing) ask here, so
// that both mean the same.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_BLOCKSTEPS_H
#define LATHE_SUPPORT_BLOCKSTEPS_H

#include "lathe/support/ZeroBlocks.h"

#include <utility>

namespace lathe {

/// Columns of a panel, and rows of a block; and panels that are multiplied together.
inline constexpr int64_t kBlockSide = 64, kPairedPanels = 2;

struct BlockSteps {
  struct Step {
    uint32_t number;    ///< of its 64 of K
    uint32_t first;     ///< the number of its first block among all
    bool has[2];        ///< whether a panel has a block; one of them does
  };
  std::vector<uint32_t> panels; ///< of each pair its two, the lower one first; pairs with the most steps come first
  std::vector<uint32_t> begins; ///< the first step of each pair of panels, and of the end
  std::vector<Step> steps;      ///< of a pair by rising numbers
  int64_t blocks = 0;           ///< of all steps, in their order, of the first panel before the second

  /// A panel without a block, and one that fills up the last pair, has its first block nevertheless: whoever multiplies
  /// has a sum for each column.
  static BlockSteps of(const MatrixBytes &matrix);
  /// The same from what nonzeroRows says of it.
  static BlockSteps of(std::span<const uint8_t> nonzeroRows, int64_t depth, int64_t columns);
  /// How many blocks and steps a matrix has whose blocks are all other than zero.
  static std::pair<int64_t, int64_t> most(int64_t depth, int64_t columns);
};

} // namespace lathe

#endif // LATHE_SUPPORT_BLOCKSTEPS_H
