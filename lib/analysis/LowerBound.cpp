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
#include <set>

namespace lathe::analysis {
namespace {

/// Largest sum over time of live sizes; of an alias group its largest live member.
int64_t peakLiveBytes(const Problem &problem) {
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
  int64_t live = 0, peak = 0;
  for (const Event &e : events) {
    const Buffer &b = problem.buffers[e.buffer];
    if (b.aliasGroup < 0) {
      live += e.starts ? b.size : -b.size;
    } else {
      std::multiset<int64_t> &sizes = groups[b.aliasGroup];
      live -= sizes.empty() ? 0 : *sizes.rbegin();
      if (e.starts)
        sizes.insert(b.size);
      else
        sizes.erase(sizes.find(b.size));
      live += sizes.empty() ? 0 : *sizes.rbegin();
    }
    peak = std::max(peak, live);
  }
  return peak;
}

/// Cliques among buffers, grown from each of the largest by size.
int64_t heaviestGreedyClique(const Problem &problem) {
  constexpr size_t kSeeds = 64;
  std::vector<std::vector<int>> neighbours(problem.buffers.size());
  for (auto [a, b] : conflictPairs(problem)) {
    neighbours[a].push_back(b);
    neighbours[b].push_back(a);
  }
  auto larger = [&](int a, int b) {
    int64_t x = problem.buffers[a].size, y = problem.buffers[b].size;
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
    int64_t weight = problem.buffers[seed].size;
    for (int i : neighbours[seed])
      ++hits[i];
    for (int i : neighbours[seed]) {
      if (hits[i] != members)
        continue;
      ++members;
      weight += problem.buffers[i].size;
      for (int j : neighbours[i])
        ++hits[j];
    }
    best = std::max(best, weight);
  }
  return best;
}

} // namespace

int64_t heightLowerBound(const Problem &problem) {
  int64_t total = 0;
  for (int space = 0; space < spaceCount(problem); ++space) {
    std::vector<int> members;
    Problem part = extractSpace(problem, space, members);
    int64_t bound = part.conflicts ? heaviestGreedyClique(part) : peakLiveBytes(part);
    for (const Buffer &b : part.buffers)
      bound = std::max(bound, b.offset.value_or(b.aliasOffset) + b.size);
    total += bound;
  }
  return total;
}

} // namespace lathe::analysis
