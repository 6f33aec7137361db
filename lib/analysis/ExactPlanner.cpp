//===- ExactPlanner.cpp - lower a plan by exact search ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bisection of the height between the lower bound and the best plan, counted in nodes.
//
//===----------------------------------------------------------------------===//
#include "FitSearch.h"

#include <algorithm>

namespace lathe::analysis {
namespace {

constexpr int64_t kMaxCells = 20'000'000; ///< of a problem that is searched

/// Heights that end in less than `units`, rounded up, are impossible: the least one that is
/// left. Tops are the sizes of items above multiples of the alignment.
int64_t boundOf(const std::vector<Item> &items, const PackProblem &pack, int64_t units) {
  int64_t least = pack.alignment;
  for (const Item &item : items)
    if (item.size > 0)
      least = std::min(least, (item.size - 1) % pack.alignment + 1);
  return units * pack.unit - pack.alignment + least;
}

} // namespace

bool improveExactly(const Problem &problem, const std::vector<Item> &items,
                    const PlanOptions &options, ItemPlan &plan) {
  std::optional<PackProblem> pack =
      makePackProblem(problem, items, options.rules.sections, kMaxCells);
  if (!pack)
    return false;
  FitSearch search(*pack, options);
  auto unitsUp = [&](int64_t bytes) { return (bytes + pack->unit - 1) / pack->unit; };
  auto alignUp = [&](int64_t bytes) {
    return (bytes + pack->alignment - 1) / pack->alignment * pack->alignment;
  };
  // Heights in units are of items whose sizes are rounded up to the alignment.
  int64_t known = unitsUp(alignUp(plan.lowerBound)); ///< no plan of the pack is below
  int64_t best = unitsUp(alignUp(plan.height));
  auto attempt = [&](int64_t target, int64_t nodes) {
    Outcome outcome = search.run(static_cast<int32_t>(target), nodes);
    plan.nodes = search.nodesUsed();
    if (outcome == Outcome::Found) {
      int64_t units = 0;
      plan.height = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        plan.offsets[i] = search.offsets()[i] * pack->unit;
        plan.height = std::max(plan.height, plan.offsets[i] + items[i].size);
        units = std::max<int64_t>(units, search.offsets()[i] + pack->items[i].height);
      }
      best = std::max(units, known);
    } else if (outcome == Outcome::None) {
      known = std::max(known, target + 1);
    }
    return outcome;
  };

  if (options.firstFit) {
    int64_t target = std::min(best - 1, alignUp(problem.capacity) / pack->unit);
    if (plan.height > problem.capacity && known <= target)
      attempt(target, options.nodes);
  } else {
    // Each round bisects between what is known and the best plan, giving up on a
    // height after its share of nodes; then shares grow.
    int64_t share = std::max<int64_t>(options.nodes / 16, 1);
    bool start = true;
    while (known < best && search.nodesUsed() < options.nodes) {
      int64_t low = known;
      while (low < best && search.nodesUsed() < options.nodes) {
        int64_t target = start ? low : low + (best - low) / 2;
        start = false;
        int64_t left = options.nodes - search.nodesUsed();
        if (attempt(target, std::min(share, left)) != Outcome::Found)
          low = target + 1;
      }
      share *= 2;
      start = true;
    }
  }
  if (pack->complete)
    plan.lowerBound = std::max(plan.lowerBound,
                               std::min(boundOf(items, *pack, known), plan.height));
  return true;
}

} // namespace lathe::analysis
