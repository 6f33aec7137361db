//===- Planner.cpp - planMemory --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each space on its own: greedy orders, then exact search while the height is above
// the lower bound. Every plan is validated before it leaves.
//
//===----------------------------------------------------------------------===//
#include "Planners.h"

#include "lathe/analysis/PlanValidator.h"

#include <algorithm>

namespace lathe::analysis {
namespace {

constexpr int64_t kMaxConflicts = 4'000'000; ///< that are listed one by one
constexpr size_t kMaxItems = 5000;           ///< that are searched exactly as a whole

/// Fixed items are nobody's choice, so their overlaps are the problem's fault.
Status checkFixed(const std::vector<Item> &items) {
  for (const Item &item : items)
    for (const Edge &e : item.edges) {
      const Item &other = items[e.otherItem];
      if (item.offset && other.offset && *item.offset + e.ownLow < *other.offset + e.otherHigh &&
          *other.offset + e.otherLow < *item.offset + e.ownHigh)
        return invalidError("fixed offsets of conflicting buffers overlap",
                            "buffers " + std::to_string(item.buffers[0]) + " and " +
                                std::to_string(other.buffers[0]));
    }
  return okStatus();
}

} // namespace

Result<Solution> planSpace(const Problem &problem, const PlanOptions &options) {
  auto isFixed = [](const Buffer &b) { return b.offset.has_value(); };
  bool listed = problem.conflicts || countConflicts(problem) <= kMaxConflicts ||
                std::any_of(problem.buffers.begin(), problem.buffers.end(), isFixed);
  std::vector<Item> items = makeItems(problem, listed);
  LATHE_RETURN_IF_ERROR(checkFixed(items));
  int64_t bound = heightLowerBound(problem);
  int64_t enough = options.firstFit ? std::max(bound, problem.capacity) : bound;
  ItemPlan plan = listed ? planGreedily(items, enough, options.nodes > 0 ? 0 : options.work)
                         : planSkyline(items, enough);
  plan.lowerBound = bound;
  if (listed && plan.height > enough && options.nodes > 0) {
    int64_t greedy = plan.height;
    if (items.size() <= kMaxItems)
      improveExactly(problem, items, options, plan);
    if (plan.height < greedy)
      plan.method = "exact";
    else if (plan.height > plan.lowerBound)
      improvePeaks(problem, items, options, plan);
    if (plan.height == greedy && plan.height > plan.lowerBound && plan.height > enough) {
      ItemPlan moved = planGreedily(items, enough, options.work);
      plan.height = moved.height;
      plan.offsets = std::move(moved.offsets);
      plan.method = std::move(moved.method);
    }
  }
  Solution solution;
  solution.height = plan.height;
  solution.lowerBound = plan.lowerBound;
  solution.nodes = plan.nodes;
  solution.method = plan.method;
  solution.offsets.resize(problem.buffers.size());
  for (size_t i = 0; i < items.size(); ++i)
    for (int b : items[i].buffers)
      solution.offsets[b] = plan.offsets[i] + problem.buffers[b].aliasOffset;
  return solution;
}

Result<Solution> planMemory(const Problem &problem, const PlanOptions &options) {
  LATHE_RETURN_IF_ERROR(checkProblem(problem));
  Solution solution;
  solution.offsets.resize(problem.buffers.size());
  for (int space = 0; space < spaceCount(problem); ++space) {
    std::vector<int> members;
    Problem own = extractSpace(problem, space, members);
    if (members.empty())
      continue;
    Result<Solution> part = planSpace(own, options);
    if (!part)
      return part.status();
    if (part->height > own.capacity && part->lowerBound <= own.capacity && !options.firstFit) {
      // All nodes for the height that is asked, none for lower ones.
      PlanOptions fitting = options;
      fitting.firstFit = true;
      part = planSpace(own, fitting);
      if (!part)
        return part.status();
    }
    if (part->height > own.capacity)
      return unsupportedError("buffers need " + std::to_string(part->height) +
                                  " bytes (at least " + std::to_string(part->lowerBound) +
                                  "), the arena has " + std::to_string(own.capacity),
                              space == 0 ? "" : "space " + std::to_string(space));
    for (size_t i = 0; i < members.size(); ++i)
      solution.offsets[members[i]] = part->offsets[i];
    solution.height += part->height;
    solution.lowerBound += part->lowerBound;
    solution.nodes += part->nodes;
    solution.method += (solution.method.empty() ? "" : ", ") + part->method;
  }
  if (Status valid = validatePlan(problem, solution); !valid.ok())
    return internalError("memory planner: " + valid.message(), valid.location());
  return solution;
}

} // namespace lathe::analysis
