//===- TwoOfFour.cpp - 2:4 sparsity of a matrix --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/TwoOfFour.h"

#include <algorithm>

namespace lathe {
namespace {

int64_t groupsOf(const MatrixBytes &m) { return (m.depth + kGroupOfFour - 1) / kGroupOfFour; }

/// The place of the third nonzero element of a group; -1 where there is none.
int64_t thirdNonzero(const MatrixBytes &m, int64_t group, int64_t n) {
  int64_t nonzero = 0;
  for (int64_t k = group * kGroupOfFour, end = std::min(m.depth, k + kGroupOfFour); k < end; ++k)
    if (!m.isZero(k, n) && ++nonzero > kKeptOfFour)
      return k;
  return -1;
}

} // namespace

std::optional<TwoOfFourOffence> firstOffence(const MatrixBytes &m) {
  for (int64_t n = 0; n < m.columns; ++n)
    for (int64_t g = 0; g < groupsOf(m); ++g)
      if (int64_t k = thirdNonzero(m, g, n); k >= 0)
        return TwoOfFourOffence{k, n};
  return std::nullopt;
}

double sampledTwoOfFour(const MatrixBytes &m, int64_t samples) {
  const int64_t groups = groupsOf(m), all = groups * m.columns;
  int64_t good = 0, seen = 0;
  for (int64_t s = 0; s < std::min(samples, all); ++s, ++seen) {
    const int64_t at = all <= samples ? s : int64_t(double(all) * (double(s) + 0.5) / double(samples));
    good += thirdNonzero(m, at % groups, at / groups) < 0;
  }
  return seen ? double(good) / double(seen) : 0;
}

std::array<int, kKeptOfFour> keptOfFour(const MatrixBytes &m, int64_t group, int64_t n) {
  std::array<int, kGroupOfFour> order{};
  int kept = 0;
  bool nonzero[kGroupOfFour] = {};
  for (int i = 0; i < kGroupOfFour; ++i) {
    const int64_t k = group * kGroupOfFour + i;
    nonzero[i] = k < m.depth && !m.isZero(k, n);
    if (nonzero[i])
      order[kept++] = i;
  }
  for (int i = 0; i < kGroupOfFour && kept < kKeptOfFour; ++i)
    if (!nonzero[i])
      order[kept++] = i;
  return {std::min(order[0], order[1]), std::max(order[0], order[1])};
}

} // namespace lathe
