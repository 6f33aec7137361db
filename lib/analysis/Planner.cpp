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
constexpr size_t kManyItems = 256;           ///< windows first

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

/// Exact search: in windows of a long problem, of the whole, of its peaks. What gives
/// a lower plan is named in it.
void improve(const Problem &problem, const std::vector<Item> &items, PlanOptions options,
             int64_t enough, ItemPlan &plan) {
  const int64_t greedy = plan.height;
  auto wanted = [&] { return plan.height > std::max(enough, plan.lowerBound); };
  const bool many = items.size() >= kManyItems;
  auto named = [&](int64_t before, const char *name) {
    if (plan.height < before)
      plan.method += std::string(", ") + name;
  };
  if (wanted() && options.rules.windows && many) {
    int64_t before = plan.height;
    if (improveWindows(problem, items, options, plan))
      options.nodes = (options.nodes + 1) / 2;
    named(before, "windows");
  }
  // A plan takes a node an item.
  if (wanted() && items.size() <= std::min<size_t>(kMaxItems, options.nodes)) {
    int64_t before = plan.height;
    improveExactly(problem, items, options, plan);
    if (plan.height < before)
      plan.method = "exact";
    options.nodes = (options.nodes + 1) / 2;
  }
  if (wanted())
    improvePeaks(problem, items, options, plan);
  if (wanted() && options.rules.windows && !many) {
    int64_t before = plan.height;
    improveWindows(problem, items, options, plan);
    named(before, "windows");
  }
  if (wanted() && plan.height == greedy) {
    ItemPlan moved = planGreedily(items, enough, options.work);
    plan.height = moved.height;
    plan.offsets = std::move(moved.offsets);
    plan.method = std::move(moved.method);
  }
}

} // namespace

int64_t quickNodes(const Problem &problem) {
  // Measured: 2 microseconds, and 1 more for 1,500 conflicts.
  return 150'000'000 / (3000 + countConflicts(problem));
}

Result<Solution> planSpace(const Problem &problem, PlanOptions options) {
  if (options.nodes < 0)
    options.nodes = (options.firstFit ? 30 : 1) * quickNodes(problem);
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
  if (listed && options.nodes > 0)
    improve(problem, items, options, enough, plan);
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
