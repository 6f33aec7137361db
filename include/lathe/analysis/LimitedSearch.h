//===- LimitedSearch.h - choices of least cost within memory ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops have choices as in StrategySearch.h, and a choice occupies memory while the op's result is alive. Looked for
// are the choices of least cost that stay within a limit of memory at every step. (The ASPLOS 2025 contest on
// intra-operator parallelism asks the same.)
//
// A price for the memory of each step turns the limit into costs. Prices rise where the limit is passed (a
// subgradient step by B. T. Polyak's rule, 1969); for given prices, sequential tree-reweighted message passing
// (V. Kolmogorov, 2006) gives a bound and choices close to it. What it finds is then improved part by part:
// variable elimination gives the best choices of some ops beside which all others stay.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_LIMITEDSEARCH_H
#define LATHE_ANALYSIS_LIMITEDSEARCH_H

#include "lathe/analysis/StrategySearch.h"

#include <cstdint>
#include <functional>

namespace lathe::analysis {

struct StrategyMemory {
  struct Lifetime {
    int64_t first = 0, last = 0; ///< alive at steps first to last - 1
  };
  std::vector<Lifetime> lifetimes;         ///< of each op
  std::vector<std::vector<int64_t>> bytes; ///< of each op and choice, not negative
  int64_t limit = 0;                       ///< bytes at any step
};

struct LimitedOptions {
  uint64_t seed = 1;
  int passes = 400; ///< over the whole problem, half of them for the prices
  /// The part that is used of the time a caller has, 0 to 1; without it `passes` are counted, which makes a
  /// search the same on every machine.
  std::function<double()> used;
};

struct LimitedSolution {
  std::vector<int> choices; ///< of each op
  double cost = 0;
  double bound = 0; ///< no choices within the limit cost less, but for rounding
  int64_t peak = 0; ///< bytes
};

/// Invalid as searchStrategies(), and for lifetimes or bytes that do not fit; Unsupported where nothing that was tried
/// is within the limit and of finite cost.
Result<LimitedSolution> searchWithinMemory(const StrategyProblem &problem, const StrategyMemory &memory,
                                           const LimitedOptions &options = {});

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_LIMITEDSEARCH_H
