//===- TwoOfFour.h - 2:4 sparsity of a matrix -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A constant matrix [K, N] of a product is 2:4 sparse where of each four neighbours
// along K at most two are not zero. Tensor cores multiply such a matrix from its
// nonzero halves and two bits an element that say where they were. Who looks for such
// matrices (passes/sparsify) and who packs them (support/Packing) ask here, so that
// both mean the same. -0 is a zero.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_TWOOFFOUR_H
#define LATHE_SUPPORT_TWOOFFOUR_H

#include "lathe/support/ZeroBlocks.h"

#include <array>
#include <optional>

namespace lathe {

/// Neighbours along K that belong together, and how many of them may be other than zero.
inline constexpr int64_t kGroupOfFour = 4, kKeptOfFour = 2;

/// A group of four whose third nonzero element is at [k, n].
struct TwoOfFourOffence {
  int64_t k = 0, n = 0;
};

/// What a matrix lacks to be 2:4 sparse: its first offending element, column after column; nothing where it is
/// 2:4. A depth that is no multiple of four has a shorter last group.
std::optional<TwoOfFourOffence> firstOffence(const MatrixBytes &matrix);

/// Shares of groups of four among at most `samples` of them, evenly spread: what is worth knowing before all of a large file
/// is read. All are 0 of no groups.
struct TwoOfFourSample {
  double good = 0; ///< with at most two nonzero elements
  double full = 0; ///< with just two: of dense weights none, of weights that somebody made 2:4 nearly all
};
TwoOfFourSample sampledTwoOfFour(const MatrixBytes &matrix, int64_t samples = 1024);

/// Places in its group, ascending, of the two elements that are kept; where fewer are other than zero, zeros of the group
/// are kept with them, so that the two always differ. Elements beyond the depth count as zeros.
std::array<int, kKeptOfFour> keptOfFour(const MatrixBytes &matrix, int64_t group, int64_t n);

} // namespace lathe

#endif // LATHE_SUPPORT_TWOOFFOUR_H
