//===- BlockSteps.cpp - the blocks of a block-sparse matrix --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/BlockSteps.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace lathe {
namespace {

int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t pairsOf(int64_t columns) { return over(columns, kPairedPanels * kBlockSide); }

/// Of a panel a bit for each 64 of K in which it has a block.
using Numbers = std::vector<uint64_t>;

bool isIn(const Numbers &set, int64_t n) { return set[n / 64] >> n % 64 & 1; }
void insert(Numbers &set, int64_t n) { set[n / 64] |= uint64_t(1) << n % 64; }
int64_t size(const Numbers &set) {
  return std::accumulate(set.begin(), set.end(), int64_t(0), [](int64_t sum, uint64_t word) { return sum + std::popcount(word); });
}
int64_t common(const Numbers &a, const Numbers &b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i)
    count += std::popcount(a[i] & b[i]);
  return count;
}

/// An even number of panels in pairs with many blocks in common: those with the most blocks choose first, then pairs exchange
/// panels while that gains some.
std::vector<uint32_t> pairUp(const std::vector<Numbers> &has) {
  std::vector<uint32_t> left(has.size()), paired;
  std::iota(left.begin(), left.end(), 0);
  std::stable_sort(left.begin(), left.end(), [&](uint32_t a, uint32_t b) { return size(has[a]) > size(has[b]); });
  while (!left.empty()) {
    const uint32_t first = left.front();
    auto best = left.begin() + 1;
    for (auto other = best; other != left.end(); ++other)
      if (common(has[first], has[*other]) > common(has[first], has[*best]))
        best = other;
    paired.insert(paired.end(), {first, *best});
    left.erase(best);
    left.erase(left.begin());
  }
  constexpr int kRounds = 8;
  bool gained = true;
  for (int round = 0; round < kRounds && gained; ++round) {
    gained = false;
    for (size_t p = 0; p < paired.size(); p += kPairedPanels)
      for (size_t q = p + kPairedPanels; q < paired.size(); q += kPairedPanels)
        for (int i = 0; i < kPairedPanels; ++i) {
          const Numbers &a = has[paired[p]], &b = has[paired[p + 1]], &c = has[paired[q + i]], &d = has[paired[q + 1 - i]];
          if (common(a, c) + common(b, d) > common(a, b) + common(c, d)) {
            std::swap(paired[p + 1], paired[q + i]);
            gained = true;
          }
        }
  }
  return paired;
}

/// The pairs by falling numbers of steps, so that those that end last begin first.
void order(std::vector<uint32_t> &paired, const std::vector<Numbers> &has) {
  struct Pair {
    int64_t steps;
    uint32_t panels[kPairedPanels];
  };
  std::vector<Pair> pairs;
  for (size_t p = 0; p < paired.size(); p += kPairedPanels) {
    const auto [first, second] = std::minmax(paired[p], paired[p + 1]);
    pairs.push_back({size(has[first]) + size(has[second]) - common(has[first], has[second]), {first, second}});
  }
  std::sort(pairs.begin(), pairs.end(), [](const Pair &a, const Pair &b) {
    return a.steps != b.steps ? a.steps > b.steps : a.panels[0] < b.panels[0];
  });
  for (size_t p = 0; p < pairs.size(); ++p)
    std::copy_n(pairs[p].panels, kPairedPanels, paired.begin() + p * kPairedPanels);
}

} // namespace

std::pair<int64_t, int64_t> BlockSteps::most(int64_t depth, int64_t columns) {
  const int64_t steps = pairsOf(columns) * over(depth, kBlockSide);
  return {kPairedPanels * steps, steps};
}

BlockSteps BlockSteps::of(const MatrixBytes &matrix) { return of(nonzeroRows(matrix), matrix.depth, matrix.columns); }

BlockSteps BlockSteps::of(std::span<const uint8_t> nonzeroRows, int64_t depth, int64_t columns) {
  constexpr int64_t kNarrow = kBlockSide / kBlockColumns; // panels of nonzeroRows in one of 64 columns
  const int64_t numbers = over(depth, kBlockSide), narrow = over(columns, kBlockColumns);
  std::vector<Numbers> has(kPairedPanels * pairsOf(columns), Numbers(over(numbers, 64)));
  for (size_t i = 0; i < has.size() && numbers > 0; ++i) {
    const int64_t first = int64_t(i) * kNarrow;
    for (int64_t p = first; p < std::min(narrow, first + kNarrow); ++p)
      for (int64_t k = 0; k < depth; ++k)
        if (nonzeroRows[p * depth + k])
          insert(has[i], k / kBlockSide);
    if (size(has[i]) == 0)
      insert(has[i], 0);
  }
  BlockSteps found;
  found.panels = pairUp(has);
  order(found.panels, has);
  found.begins.push_back(0);
  for (size_t p = 0; p < found.panels.size(); p += kPairedPanels) {
    for (int64_t n = 0; n < numbers; ++n) {
      const bool first = isIn(has[found.panels[p]], n), second = isIn(has[found.panels[p + 1]], n);
      if (!first && !second)
        continue;
      found.steps.push_back({uint32_t(n), uint32_t(found.blocks), {first, second}});
      found.blocks += first + second;
    }
    found.begins.push_back(uint32_t(found.steps.size()));
  }
  return found;
}

} // namespace lathe
