//===- ZeroBlocks.cpp - blocks of zeros in a matrix ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/ZeroBlocks.h"

#include <algorithm>
#include <cstring>

namespace lathe {
namespace {

/// Whether one of `count` neighbours is not 0, nor -0 where they are floats.
template <typename Word> bool anyNonzero(const std::byte *at, int64_t count, bool integers) {
  Word all = 0;
  for (int64_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, at + i * int64_t(sizeof word), sizeof word);
    all |= word;
  }
  return (integers ? all : Word(all << 1)) != 0; // of floats without the sign: -0 is zero, too
}

bool anyNonzero(const MatrixBytes &m, int64_t element, int64_t count) {
  const std::byte *at = m.bytes.data() + element * int64_t(m.bits / 8);
  return m.bits == 8    ? anyNonzero<uint8_t>(at, count, m.integers)
         : m.bits == 16 ? anyNonzero<uint16_t>(at, count, m.integers)
         : m.bits == 32 ? anyNonzero<uint32_t>(at, count, m.integers)
                        : anyNonzero<uint64_t>(at, count, m.integers);
}

int64_t widthOf(const MatrixBytes &m, int64_t panel) {
  return std::min(kBlockColumns, m.columns - panel * kBlockColumns);
}

} // namespace

bool MatrixBytes::isZero(int64_t k, int64_t n) const {
  return !anyNonzero(*this, transposed ? n * depth + k : k * columns + n, 1);
}

std::vector<uint8_t> nonzeroRows(const MatrixBytes &m) {
  std::vector<uint8_t> flags(m.panels() * m.depth);
  if (m.transposed) {
    for (int64_t n = 0; n < m.columns; ++n)
      for (int64_t k = 0; k < m.depth; ++k)
        flags[n / kBlockColumns * m.depth + k] |= anyNonzero(m, n * m.depth + k, 1);
    return flags;
  }
  for (int64_t k = 0; k < m.depth; ++k)
    for (int64_t p = 0; p < m.panels(); ++p)
      flags[p * m.depth + k] = anyNonzero(m, k * m.columns + p * kBlockColumns, widthOf(m, p));
  return flags;
}

double sampledZeroRows(const MatrixBytes &m, int64_t samples) {
  const int64_t all = m.panels() * m.depth;
  int64_t zeros = 0, seen = 0;
  for (int64_t s = 0; s < std::min(samples, all); ++s, ++seen) {
    // Evenly spread, and along both dimensions.
    int64_t row = all <= samples ? s : int64_t(double(all) * (double(s) + 0.5) / double(samples));
    int64_t p = row / m.depth, k = row % m.depth;
    bool any = false;
    if (m.transposed)
      for (int64_t n = 0; n < widthOf(m, p) && !any; ++n)
        any = !m.isZero(k, p * kBlockColumns + n);
    else
      any = anyNonzero(m, k * m.columns + p * kBlockColumns, widthOf(m, p));
    zeros += !any;
  }
  return seen ? double(zeros) / double(seen) : 0;
}

std::vector<uint32_t> nonzeroBlocks(std::span<const uint8_t> panel, int64_t rows) {
  std::vector<uint32_t> blocks;
  for (int64_t k = 0, depth = int64_t(panel.size()); k < depth; k += rows)
    if (std::any_of(panel.begin() + k, panel.begin() + std::min(depth, k + rows), [](uint8_t f) { return f; }))
      blocks.push_back(uint32_t(k));
  return blocks;
}

int64_t countNonzeroBlocks(std::span<const uint8_t> flags, int64_t depth, int64_t rows) {
  int64_t count = 0;
  for (int64_t at = 0; at < int64_t(flags.size()); at += depth)
    count += int64_t(nonzeroBlocks(flags.subspan(at, depth), rows).size());
  return count;
}

} // namespace lathe
