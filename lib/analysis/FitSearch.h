//===- FitSearch.h - asking whether items fit below a height -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Private to the planners.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_FITSEARCH_H
#define LATHE_LIB_ANALYSIS_FITSEARCH_H

#include "PackSearch.h"
#include "Planners.h"

#include <memory>

namespace lathe::analysis {

/// Asks again and again whether items fit below a height. Two searches take turns, or
/// run side by side when there are two threads; the answer is that of the first run, in
/// the order of their numbers, that has one. So threads do not change it.
class FitSearch {
public:
  /// `firstOrder`, of those in the portfolio, is tried first.
  FitSearch(const PackProblem &problem, const PlanOptions &options, int firstOrder = 0)
      : problem(problem), options(options), firstOrder(firstOrder) {}

  /// `capacity` in units. Continues where an earlier call for it ran out of nodes.
  Outcome run(int32_t capacity, int64_t nodes);

  const std::vector<int32_t> &offsets() const { return found; } ///< units; after Found
  int64_t nodesUsed() const { return used; }                    ///< by all calls

  int orderOfFound() const { return lastOrder; } ///< after Found

private:
  const PackProblem &problem;
  const PlanOptions &options;
  const int firstOrder;
  int lastOrder = 0;
  std::unique_ptr<PackSearch> lanes[2];
  int32_t current = -1; ///< capacity of the lanes
  std::map<int32_t, int> runs; ///< how many there were for a capacity
  std::vector<double> weights; ///< of items, learned so far
  std::vector<int32_t> found;
  int64_t used = 0;
};

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_FITSEARCH_H
