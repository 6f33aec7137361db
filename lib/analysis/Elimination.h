//===- Elimination.h - the best choices of some ops -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Variable elimination over some ops of a graph, beside which all others keep their choices: the ops with small
// tables go first, and where no table is small any more, an op chosen at random keeps its choice, too.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_ELIMINATION_H
#define LATHE_LIB_ANALYSIS_ELIMINATION_H

#include "StrategyGraph.h"

#include <random>

namespace lathe::analysis {

struct EliminationOptions {
  double maxTable = 20000; ///< combinations that are tried for one op
  double noise = 0;        ///< each cost by itself gets 0 to this more: a draw near the best
  /// Of each op of the region, by its number in the graph, the choices that are looked at: rising, and among them the one that it
  /// has. Null: all.
  const std::vector<std::vector<int>> *among = nullptr;
};

/// Choices that change together: ops of different parts have no table in common.
using ChangedPart = std::vector<std::pair<int, int>>; ///< op, its new choice

struct EliminationResult {
  std::vector<ChangedPart> parts; ///< what to change
  bool exact = true;              ///< no op kept its choice because tables were too large
};

/// What to change in `chosen` for the least cost of `ops` with priced memory: `priceSums[s]` is the sum of the prices of a byte
/// at the steps before s. Never worse than `chosen` without noise. Of equal sums the choice that is there stays, else the
/// lowest wins.
EliminationResult eliminate(const StrategyGraph &graph, const std::vector<int> &ops, const std::vector<int> &chosen,
                            const std::vector<double> &priceSums, const EliminationOptions &options,
                            std::mt19937_64 &random);

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_ELIMINATION_H
