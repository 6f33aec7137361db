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

} // namespace

bool improveExactly(const Problem &problem, const std::vector<Item> &items,
                    const PlanOptions &options, ItemPlan &plan) {
  std::optional<PackProblem> pack =
      makePackProblem(problem, items, options.rules.sections, kMaxCells);
  if (!pack)
    return false;
  FitSearch search(*pack, options);
  auto unitsUp = [&](int64_t bytes) { return (bytes + pack->unit - 1) / pack->unit; };
  int64_t known = unitsUp(plan.lowerBound); ///< no plan of the pack is below
  int64_t best = unitsUp(plan.height);
  auto attempt = [&](int64_t target, int64_t nodes) {
    Outcome outcome = search.run(static_cast<int32_t>(target), nodes);
    plan.nodes = search.nodesUsed();
    if (outcome == Outcome::Found) {
      plan.height = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        plan.offsets[i] = search.offsets()[i] * pack->unit;
        plan.height = std::max(plan.height, plan.offsets[i] + items[i].size);
      }
      best = unitsUp(plan.height);
    } else if (outcome == Outcome::None) {
      known = std::max(known, target + 1);
    }
    return outcome;
  };

  if (options.firstFit) {
    int64_t target = std::min(best - 1, problem.capacity / pack->unit);
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
                               std::min(known * pack->unit, plan.height));
  return true;
}

} // namespace lathe::analysis
