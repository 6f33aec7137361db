//===- ZeroBlocks.h - blocks of zeros in a matrix ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A constant matrix [K, N] of a product is cut into panels of 16 columns, and a panel
// into blocks of some rows. Blocks that hold nothing but zeros need neither memory nor
// time: who counts them (passes/sparsify, lathe prune) and who packs the others
// (codegen/select/Packing.h) ask here, so that both mean the same.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_ZEROBLOCKS_H
#define LATHE_SUPPORT_ZEROBLOCKS_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lathe {

/// Columns of a panel, and so of a block.
inline constexpr int64_t kBlockColumns = 16;

/// A dense matrix [K, N] of floats or integers of 8 to 64 bits, aligned in no way; `transposed`: memory has [N, K].
struct MatrixBytes {
  std::span<const std::byte> bytes; ///< depth * columns elements
  unsigned bits = 32;
  int64_t depth = 0, columns = 0;
  bool transposed = false;
  bool integers = false; ///< which have no -0

  int64_t panels() const { return (columns + kBlockColumns - 1) / kBlockColumns; }
  /// Whether the element is 0 or -0.
  bool isZero(int64_t k, int64_t n) const;
};

/// [panels][depth]: 1 where one of the 16 columns has an element other than zero. Reads the matrix once.
std::vector<uint8_t> nonzeroRows(const MatrixBytes &matrix);

/// The share of zeros among at most `samples` of these rows of panels, evenly spread: what is worth knowing
/// before all of a large file is read.
double sampledZeroRows(const MatrixBytes &matrix, int64_t samples = 4096);

/// The first row of each block of `rows` rows in one panel (`depth` flags of nonzeroRows) that is not all zero.
std::vector<uint32_t> nonzeroBlocks(std::span<const uint8_t> panel, int64_t rows);
/// How many there are in all panels.
int64_t countNonzeroBlocks(std::span<const uint8_t> flags, int64_t depth, int64_t rows);

} // namespace lathe

#endif // LATHE_SUPPORT_ZEROBLOCKS_H
