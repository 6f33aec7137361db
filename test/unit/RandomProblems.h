//===- RandomProblems.h - memory problems and judging by definition -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Seeded random memory problems, and what planners are held against: conflicts step
// by step, validity pair by pair, and the least height by trying every order.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_RANDOMPROBLEMS_H
#define LATHE_TEST_UNIT_RANDOMPROBLEMS_H

#include "lathe/analysis/MemoryPlan.h"

#include <algorithm>
#include <random>

namespace lathe::test {

using analysis::Buffer;
using analysis::Interval;
using analysis::Problem;
using analysis::Solution;

inline Buffer buffer(int64_t size, int64_t begin, int64_t end, int64_t alignment = 1) {
  Buffer b;
  b.size = size;
  b.alignment = alignment;
  b.begin = begin;
  b.end = end;
  return b;
}

/// Conflicts by definition, in quadratic time.
inline bool conflicts(const Problem &p, int a, int b) {
  const Buffer &x = p.buffers[a], &y = p.buffers[b];
  if (x.space != y.space || (x.aliasGroup >= 0 && x.aliasGroup == y.aliasGroup))
    return false;
  if (p.conflicts) {
    for (auto [i, j] : *p.conflicts)
      if ((i == a && j == b) || (i == b && j == a))
        return true;
    return false;
  }
  auto alive = [](const Buffer &c, int64_t step) {
    for (Interval gap : c.gaps)
      if (gap.begin <= step && step < gap.end)
        return false;
    return c.begin <= step && step < c.end;
  };
  for (int64_t step = x.begin; step < x.end; ++step)
    if (alive(x, step) && alive(y, step))
      return true;
  return false;
}

inline bool naivelyValid(const Problem &p, const Solution &s) {
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    if (s.offsets[i] < 0 || s.offsets[i] % p.buffers[i].alignment)
      return false;
    for (size_t j = 0; j < i; ++j)
      if (conflicts(p, i, j) && p.buffers[i].size && p.buffers[j].size &&
          s.offsets[i] < s.offsets[j] + p.buffers[j].size &&
          s.offsets[j] < s.offsets[i] + p.buffers[i].size)
        return false;
  }
  return true;
}

/// The least height of a problem without slices of groups, for a few buffers: placing
/// by rising offset of a best plan, each as low as possible, gives a best plan; so some
/// order gives one.
class LeastHeight {
public:
  explicit LeastHeight(const Problem &p) : p(p), offsets(p.buffers.size(), -1) {
    for (size_t i = 0; i < p.buffers.size(); ++i) {
      const Buffer &b = p.buffers[i];
      size_t first = i;
      for (size_t j = 0; j < i && first == i; ++j)
        if (b.aliasGroup >= 0 && p.buffers[j].aliasGroup == b.aliasGroup)
          first = j;
      if (first == i)
        groups.emplace_back();
      groupOf.push_back(first == i ? groups.size() - 1 : groupOf[first]);
      groups[groupOf[i]].push_back(i);
    }
    for (size_t i = 0; i < p.buffers.size(); ++i)
      for (size_t j = 0; j < p.buffers.size(); ++j)
        clash.push_back(i != j && conflicts(p, static_cast<int>(i), static_cast<int>(j)) &&
                        p.buffers[i].size > 0 && p.buffers[j].size > 0);
  }

  /// Groups that are placed one by one.
  size_t size() const { return groups.size(); }

  /// Or `most` when there is none below it.
  int64_t run(int64_t most) {
    std::vector<int64_t> heights(static_cast<size_t>(spaceCount(p)), 0);
    std::vector<char> used(groups.size(), 0);
    for (size_t g = 0; g < groups.size(); ++g)
      for (size_t i : groups[g])
        if (p.buffers[i].offset) {
          used[g] = 1;
          put(g, *p.buffers[i].offset, heights);
        }
    best = most;
    extend(used, heights);
    return best;
  }

private:
  void put(size_t g, int64_t at, std::vector<int64_t> &heights) {
    for (size_t i : groups[g]) {
      offsets[i] = at;
      int64_t &height = heights[p.buffers[i].space];
      height = std::max(height, at + p.buffers[i].size);
    }
  }

  /// When not, `next` is the first place that is worth a try.
  bool free(size_t g, int64_t at, int64_t &next) const {
    for (size_t i : groups[g]) {
      next = at + 1;
      if (at % p.buffers[i].alignment != 0)
        return false;
      for (size_t j = 0; j < offsets.size(); ++j)
        if (offsets[j] >= 0 && clash[i * offsets.size() + j] &&
            at < offsets[j] + p.buffers[j].size && offsets[j] < at + p.buffers[i].size) {
          next = offsets[j] + p.buffers[j].size;
          return false;
        }
    }
    return true;
  }

  void extend(std::vector<char> &used, const std::vector<int64_t> &heights) {
    int64_t height = 0;
    for (int64_t h : heights)
      height += h;
    if (height >= best)
      return;
    bool last = true;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (used[g])
        continue;
      last = false;
      int64_t at = 0;
      for (int64_t next = 0; !free(g, at, next);)
        at = next;
      std::vector<int64_t> grown = heights;
      put(g, at, grown);
      used[g] = 1;
      extend(used, grown);
      used[g] = 0;
      for (size_t i : groups[g])
        offsets[i] = -1;
    }
    if (last)
      best = height;
  }

  const Problem &p;
  std::vector<int64_t> offsets;
  std::vector<size_t> groupOf;
  std::vector<std::vector<size_t>> groups;
  std::vector<char> clash;
  int64_t best = 0;
};

class Random {
public:
  explicit Random(unsigned seed) : rng(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(rng() % n); }

  /// Fewer than `most` buffers; slices of groups only if asked for.
  Problem problem(int64_t most = 14, bool slices = true) {
    Problem p;
    int n = static_cast<int>(below(most));
    for (int i = 0; i < n; ++i) {
      int64_t begin = below(12);
      p.buffers.push_back(buffer(below(8) == 0 ? 0 : 1 + below(100), begin, begin + below(8),
                                 int64_t(1) << below(5)));
      Buffer &b = p.buffers.back();
      if (below(4) == 0) {
        b.aliasGroup = static_cast<int>(below(3));
        b.space = b.aliasGroup == 2 ? 1 : 0;
        b.aliasOffset = slices && below(2) == 0 ? b.alignment * below(4) : 0;
      } else if (below(6) == 0) {
        b.space = static_cast<int>(below(3));
      }
      if (b.end > b.begin && below(5) == 0) {
        int64_t from = begin + below(b.end - begin);
        b.gaps.push_back({from, from + below(b.end - from + 1)});
      }
    }
    if (n > 0 && below(5) == 0 && p.buffers[0].aliasGroup < 0)
      p.buffers[0].offset = p.buffers[0].alignment * below(10);
    if (n > 1 && below(3) == 0) {
      p.conflicts.emplace();
      for (int k = 0; k < 2 * n; ++k)
        p.conflicts->emplace_back(below(n), below(n));
    }
    return p;
  }

private:
  std::mt19937 rng;
};

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_RANDOMPROBLEMS_H
