//===- StrategySearch.h - one choice for each op, at least cost -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops have choices; a choice costs something by itself, and two choices of ops that share a value cost
// something together. The least sum is found by variable elimination (bucket elimination: R. Dechter,
// 1999): an op is replaced by a table of its best cost for each combination of its neighbours' choices. That
// is exact while tables stay small, which they do where graphs are long and narrow, as those of networks are.
// Elsewhere the search of LimitedSearch.h is asked, without a limit.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_STRATEGYSEARCH_H
#define LATHE_ANALYSIS_STRATEGYSEARCH_H

#include "lathe/support/Status.h"

#include <cstddef>
#include <vector>

namespace lathe::analysis {

struct StrategyProblem {
  struct Pair {
    int a = 0, b = 0;          ///< ops, a != b; several pairs of the same ops add up
    std::vector<double> costs; ///< costs[choice of a * choices of b + choice of b]
  };
  std::vector<std::vector<double>> costs; ///< of each op and choice, seconds; infinite: not to be chosen
  std::vector<Pair> pairs;
};

struct StrategySolution {
  std::vector<int> choices; ///< of each op
  double cost = 0;
  bool exact = true; ///< no other choices cost less; false: none are known that do
};

/// Invalid for an op without a choice and tables of other sizes than the choices; Unsupported where each
/// combination has infinite cost. Equal problems have equal solutions; of equal sums low choices win. `maxTable`:
/// combinations that are tried at most for one op.
Result<StrategySolution> searchStrategies(const StrategyProblem &problem, size_t maxTable = 1 << 22);

/// The sum for these choices.
double strategyCost(const StrategyProblem &problem, const std::vector<int> &choices);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_STRATEGYSEARCH_H
