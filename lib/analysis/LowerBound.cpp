//===- LowerBound.cpp - heights no plan can beat ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffers that pairwise conflict stand side by side, so their sizes add up. For
// lifetimes the heaviest such set is found exactly (buffers alive at one time); for
// explicit conflicts greedy cliques from the largest buffers give a bound.
//
//===----------------------------------------------------------------------===//
#include "Conflicts.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace lathe::analysis {
namespace {

/// Largest sum over time of rounded sizes, of an alias group its largest live member;
/// the one on top counts without its padding.
int64_t peakLiveBytes(const Problem &problem, const std::vector<int64_t> &sizes) {
  struct Event {
    int64_t time;
    bool starts;
    int buffer;
  };
  std::vector<Event> events;
  for (int i = 0; i < static_cast<int>(problem.buffers.size()); ++i) {
    if (!occupiesMemory(problem, i))
      continue;
    for (Interval steps : liveParts(problem.buffers[i])) {
      events.push_back({steps.begin, true, i});
      events.push_back({steps.end, false, i});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event &a, const Event &b) {
    return std::tuple(a.time, a.starts, a.buffer) < std::tuple(b.time, b.starts, b.buffer);
  });
  std::map<int, std::multiset<int64_t>> groups;
  std::multiset<int64_t> padding;
  int64_t live = 0, peak = 0;
  for (const Event &e : events) {
    const Buffer &b = problem.buffers[e.buffer];
    if (b.aliasGroup < 0) {
      live += e.starts ? sizes[e.buffer] : -sizes[e.buffer];
    } else {
      std::multiset<int64_t> &members = groups[b.aliasGroup];
      live -= members.empty() ? 0 : *members.rbegin();
      if (e.starts)
        members.insert(sizes[e.buffer]);
      else
        members.erase(members.find(sizes[e.buffer]));
      live += members.empty() ? 0 : *members.rbegin();
    }
    int64_t pad = sizes[e.buffer] - b.size;
    if (e.starts)
      padding.insert(pad);
    else
      padding.erase(padding.find(pad));
    if (!padding.empty())
      peak = std::max(peak, live - *padding.rbegin());
  }
  return peak;
}

/// Cliques among buffers, grown from each of the largest by size.
int64_t heaviestGreedyClique(const Problem &problem, const std::vector<int64_t> &sizes) {
  constexpr size_t kSeeds = 64;
  std::vector<std::vector<int>> neighbours(problem.buffers.size());
  for (auto [a, b] : conflictPairs(problem)) {
    neighbours[a].push_back(b);
    neighbours[b].push_back(a);
  }
  auto larger = [&](int a, int b) {
    int64_t x = sizes[a], y = sizes[b];
    return x != y ? x > y : a < b;
  };
  std::vector<int> seeds(problem.buffers.size());
  for (size_t i = 0; i < seeds.size(); ++i) {
    seeds[i] = static_cast<int>(i);
    std::sort(neighbours[i].begin(), neighbours[i].end(), larger);
  }
  std::sort(seeds.begin(), seeds.end(), larger);
  seeds.resize(std::min(seeds.size(), kSeeds));
  int64_t best = 0;
  for (int seed : seeds) {
    // How many members of the clique each buffer conflicts with.
    std::vector<int> hits(problem.buffers.size(), 0);
    int members = 1;
    int64_t weight = sizes[seed], padding = sizes[seed] - problem.buffers[seed].size;
    for (int i : neighbours[seed])
      ++hits[i];
    for (int i : neighbours[seed]) {
      if (hits[i] != members)
        continue;
      ++members;
      weight += sizes[i];
      padding = std::max(padding, sizes[i] - problem.buffers[i].size);
      for (int j : neighbours[i])
        ++hits[j];
    }
    best = std::max(best, weight - padding);
  }
  return best;
}

/// The bound of one space. All offsets are multiples of what the alignments have in
/// common, so sizes are rounded up to it, but for the one on top.
int64_t boundOfSpace(const Problem &problem) {
  int64_t common = 0;
  for (const Buffer &b : problem.buffers)
    common = std::gcd(common, b.alignment);
  common = std::max<int64_t>(common, 1);
  std::vector<int64_t> sizes;
  for (const Buffer &b : problem.buffers)
    sizes.push_back((b.size + common - 1) / common * common);
  int64_t bound = problem.conflicts ? heaviestGreedyClique(problem, sizes)
                                    : peakLiveBytes(problem, sizes);
  for (const Buffer &b : problem.buffers)
    bound = std::max(bound, b.offset.value_or(b.aliasOffset) + b.size);
  return bound;
}

} // namespace

int64_t heightLowerBound(const Problem &problem) {
  int64_t total = 0;
  for (int space = 0; space < spaceCount(problem); ++space) {
    std::vector<int> members;
    Problem part = extractSpace(problem, space, members);
    total += boundOfSpace(part);
  }
  return total;
}

} // namespace lathe::analysis
