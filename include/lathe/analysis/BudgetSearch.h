//===- BudgetSearch.h - choices of least loss within a budget ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Items have choices, which lose something and cost something, alone or two together. The least loss
// whose costs are within the budget is looked for by a multiplier: loss + multiplier x cost is least for a choice that
// StrategySearch.h finds, and the multiplier is bisected (Everett, 1963). What is then left of the budget is spent by
// changing one or two items at a time.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_BUDGETSEARCH_H
#define LATHE_ANALYSIS_BUDGETSEARCH_H

#include "lathe/analysis/StrategySearch.h"

namespace lathe::analysis {

struct BudgetProblem {
  StrategyProblem costs, losses; ///< of the same items and choices, finite; costs are for instance seconds
  double budget = 0;             ///< of the sum of costs
};

struct BudgetSolution {
  std::vector<int> choices; ///< of each item
  double cost = 0, loss = 0;
  double bound = 0; ///< no choices within the budget lose less, if `exact`
  bool exact = true; ///< false: the problem has no narrow order, and `bound` is none
};

/// Invalid for tables of other sizes than the choices and for what is not finite; Unsupported where nothing that was found
/// is within the budget: the message says what the least cost is.
Result<BudgetSolution> searchWithinBudget(const BudgetProblem &problem);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_BUDGETSEARCH_H
