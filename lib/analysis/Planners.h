//===- Planners.h - what planMemory is made of -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans of the items of one space. Private to the planners.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_PLANNERS_H
#define LATHE_LIB_ANALYSIS_PLANNERS_H

#include "Conflicts.h"

namespace lathe::analysis {

/// A plan of items, bytes.
struct ItemPlan {
  std::vector<int64_t> offsets;
  int64_t height = 0;
  int64_t lowerBound = 0; ///< proved
  int64_t nodes = 0;      ///< of exact search
  std::string method;
};

/// The plan of one space; above its capacity when nothing lower was found. Its lower
/// bound is above the capacity when that is proved.
Result<Solution> planSpace(const Problem &problem, PlanOptions options);

/// Greedy placement in several orders, stopping at a plan that is low enough; then
/// `moves` steps (placed items times neighbours) that change the best order.
ItemPlan planGreedily(const std::vector<Item> &items, int64_t enough, int64_t moves);

/// For problems with too many conflicts to list, without fixed offsets: each item goes on
/// top of what its lifetime has, without looking into gaps. O(n log n) an order.
ItemPlan planSkyline(const std::vector<Item> &items, int64_t enough);

/// Lowers a plan of lifetimes by exact search on the buffers alone that are alive when
/// most bytes are; the others go where they leave room. Proves nothing; does nothing when offsets are
/// fixed.
void improvePeaks(const Problem &problem, const std::vector<Item> &items,
                  const PlanOptions &options, ItemPlan &plan);

/// Lowers a plan of lifetimes, few of which are alive together, by exact search in windows of
/// time. Proves nothing. False when it is no such problem.
bool improveWindows(const Problem &problem, const std::vector<Item> &items,
                    const PlanOptions &options, ItemPlan &plan);

/// Lowers a plan towards its lower bound, and raises the bound where the search
/// closes, by at most options.nodes nodes. With options.firstFit it only looks for a
/// plan within the problem's capacity. False when the problem is too large.
bool improveExactly(const Problem &problem, const std::vector<Item> &items,
                    const PlanOptions &options, ItemPlan &plan);

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_PLANNERS_H
