//===- TwoOfFour.cpp - 2:4 sparsity of a matrix --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/TwoOfFour.h"

#include <algorithm>

namespace lathe {
namespace {

int64_t groupsOf(const MatrixBytes &m) { return (m.depth + kGroupOfFour - 1) / kGroupOfFour; }

/// Nonzero elements of a group, and the place of the third of them; -1 where there is none.
struct Group {
  int64_t nonzero = 0, third = -1;
};
Group groupAt(const MatrixBytes &m, int64_t group, int64_t n) {
  Group found;
  for (int64_t k = group * kGroupOfFour, end = std::min(m.depth, k + kGroupOfFour); k < end; ++k)
    if (!m.isZero(k, n) && ++found.nonzero == kKeptOfFour + 1)
      found.third = k;
  return found;
}

} // namespace

std::optional<TwoOfFourOffence> firstOffence(const MatrixBytes &m) {
  for (int64_t n = 0; n < m.columns; ++n)
    for (int64_t g = 0; g < groupsOf(m); ++g)
      if (int64_t k = groupAt(m, g, n).third; k >= 0)
        return TwoOfFourOffence{k, n};
  return std::nullopt;
}

TwoOfFourSample sampledTwoOfFour(const MatrixBytes &m, int64_t samples) {
  const int64_t groups = groupsOf(m), all = groups * m.columns, seen = std::min(samples, all);
  int64_t good = 0, full = 0;
  for (int64_t s = 0; s < seen; ++s) {
    const int64_t at = all <= samples ? s : int64_t(double(all) * (double(s) + 0.5) / double(samples));
    const int64_t nonzero = groupAt(m, at % groups, at / groups).nonzero;
    good += nonzero <= kKeptOfFour;
    full += nonzero == kKeptOfFour;
  }
  if (seen == 0)
    return {};
  return {double(good) / double(seen), double(full) / double(seen)};
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
