//===- BlockSteps.cpp - the blocks of a block-sparse matrix --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/BlockSteps.h"

#include <algorithm>

namespace lathe {
namespace {

int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t pairsOf(int64_t columns) { return over(columns, kPairedPanels * kBlockSide); }

} // namespace

std::pair<int64_t, int64_t> BlockSteps::most(int64_t depth, int64_t columns) {
  const int64_t steps = pairsOf(columns) * over(depth, kBlockSide);
  return {kPairedPanels * steps, steps};
}

BlockSteps BlockSteps::of(const MatrixBytes &matrix) { return of(nonzeroRows(matrix), matrix.depth, matrix.columns); }

BlockSteps BlockSteps::of(std::span<const uint8_t> nonzeroRows, int64_t depth, int64_t columns) {
  constexpr int64_t kNarrow = kBlockSide / kBlockColumns; // panels of nonzeroRows in one of 64 columns
  const int64_t numbers = over(depth, kBlockSide), narrow = over(columns, kBlockColumns);
  BlockSteps found;
  found.begins.push_back(0);
  for (int64_t pair = 0; pair < pairsOf(columns); ++pair) {
    std::vector<uint8_t> has[kPairedPanels];
    for (int64_t i = 0; i < kPairedPanels; ++i) {
      has[i].resize(numbers);
      const int64_t first = (pair * kPairedPanels + i) * kNarrow;
      for (int64_t p = first; p < std::min(narrow, first + kNarrow); ++p)
        for (int64_t k = 0; k < depth; ++k)
          has[i][k / kBlockSide] |= nonzeroRows[p * depth + k];
      if (numbers > 0 && std::find(has[i].begin(), has[i].end(), 1) == has[i].end())
        has[i][0] = 1;
    }
    for (int64_t n = 0; n < numbers; ++n) {
      if (!has[0][n] && !has[1][n])
        continue;
      found.steps.push_back({uint32_t(n), uint32_t(found.blocks), {has[0][n] != 0, has[1][n] != 0}});
      found.blocks += has[0][n] + has[1][n];
    }
    found.begins.push_back(uint32_t(found.steps.size()));
  }
  return found;
}

} // namespace lathe
