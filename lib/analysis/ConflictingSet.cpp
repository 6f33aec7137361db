//===- ConflictingSet.cpp - why a problem does not fit ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts from buffers that cannot fit together, those that their sizes alone forbid if
// there are any, and leaves out as many as it can, in ever smaller groups, the smallest
// buffers first. What stays is needed.
//
//===----------------------------------------------------------------------===//
#include "Planners.h"

#include <algorithm>
#include <numeric>

namespace lathe::analysis {
namespace {

/// Questions about parts of one space, on a common budget of nodes.
class Shrinker {
public:
  Shrinker(const Problem &problem, const PlanOptions &options)
      : problem(problem), options(options), nodesLeft(8 * options.nodes) {
    this->options.firstFit = true;
    this->options.work = std::min<int64_t>(options.work, 100'000);
  }

  /// Nothing when the space fits, or when nobody knows.
  Result<std::optional<ConflictingSet>> run() {
    std::vector<int> bySize(problem.buffers.size());
    std::iota(bySize.begin(), bySize.end(), 0);
    std::sort(bySize.begin(), bySize.end(), [&](int a, int b) {
      int64_t x = problem.buffers[a].size, y = problem.buffers[b].size;
      return x != y ? x > y : a < b;
    });
    std::vector<int> set = bySize;
    if (heightLowerBound(problem) > problem.capacity) {
      // The fewest of the largest that are too many.
      size_t low = 0, high = bySize.size();
      while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        set.assign(bySize.begin(), bySize.begin() + static_cast<int64_t>(middle));
        (heightLowerBound(selectBuffers(problem, set)) > problem.capacity ? high : low) = middle;
      }
      set.assign(bySize.begin(), bySize.begin() + static_cast<int64_t>(high));
    } else {
      Result<bool> stuck = isImpossible(set);
      if (!stuck)
        return stuck.status();
      if (!*stuck)
        return std::optional<ConflictingSet>();
    }
    ConflictingSet result;
    for (size_t group = std::max<size_t>(set.size() / 2, 1);; group = (group + 1) / 2) {
      unanswered = false;
      for (size_t end = set.size(); end > 0;) {
        size_t begin = end - std::min(group, end);
        std::vector<int> rest(set.begin(), set.begin() + static_cast<int64_t>(begin));
        rest.insert(rest.end(), set.begin() + static_cast<int64_t>(end), set.end());
        Result<bool> stuck = isImpossible(rest);
        if (!stuck)
          return stuck.status();
        if (*stuck)
          set = std::move(rest);
        end = begin;
      }
      if (group == 1)
        break;
    }
    result.minimal = !unanswered;
    result.buffers = std::move(set);
    return std::optional<ConflictingSet>(std::move(result));
  }

private:
  /// Whether it is proved that these do not fit together.
  Result<bool> isImpossible(const std::vector<int> &chosen) {
    Problem part = selectBuffers(problem, chosen);
    if (heightLowerBound(part) > part.capacity)
      return true;
    PlanOptions now = options;
    now.nodes = std::clamp<int64_t>(nodesLeft, 0, options.nodes);
    Result<Solution> plan = planSpace(part, now);
    if (!plan)
      return plan.status();
    nodesLeft -= plan->nodes;
    bool impossible = plan->lowerBound > part.capacity;
    unanswered |= !impossible && plan->height > part.capacity;
    return impossible;
  }

  const Problem &problem;
  PlanOptions options;
  int64_t nodesLeft;
  bool unanswered = false; ///< in the last round: neither a plan nor a proof
};

} // namespace

Result<std::optional<ConflictingSet>> findConflictingSet(const Problem &problem,
                                                         const PlanOptions &options) {
  LATHE_RETURN_IF_ERROR(checkProblem(problem));
  for (int space = 0; space < spaceCount(problem); ++space) {
    std::vector<int> members;
    Problem own = extractSpace(problem, space, members);
    Result<std::optional<ConflictingSet>> found = Shrinker(own, options).run();
    if (!found)
      return found;
    if (!*found)
      continue;
    for (int &b : (*found)->buffers)
      b = members[b];
    std::sort((*found)->buffers.begin(), (*found)->buffers.end());
    return found;
  }
  return std::optional<ConflictingSet>();
}

} // namespace lathe::analysis
