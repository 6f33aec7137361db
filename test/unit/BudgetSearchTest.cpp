//===- BudgetSearchTest.cpp - the least loss within a budget --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Against all combinations, on small problems.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/BudgetSearch.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace lathe;
using namespace lathe::analysis;

namespace {

/// The least loss within the budget, and the least cost of all.
std::pair<double, double> leastOf(const BudgetProblem &problem) {
  std::pair<double, double> least(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity());
  std::vector<int> choices(problem.costs.costs.size());
  for (;;) {
    const double cost = strategyCost(problem.costs, choices);
    least.second = std::min(least.second, cost);
    if (cost <= problem.budget)
      least.first = std::min(least.first, strategyCost(problem.losses, choices));
    size_t item = 0;
    for (; item < choices.size(); ++item) {
      if (size_t(++choices[item]) < problem.costs.costs[item].size())
        break;
      choices[item] = 0;
    }
    if (item == choices.size())
      return least;
  }
}

/// Layers whose widths lose and cost monotonously, neighbours costing something together, as products do.
BudgetProblem randomProblem(std::mt19937 &random, int items, int pairs, double share) {
  auto upTo = [&](int n) { return int(random() % unsigned(n)); };
  BudgetProblem problem;
  double whole = 0;
  for (int item = 0; item < items; ++item) {
    const int choices = 1 + upTo(5);
    auto &cost = problem.costs.costs.emplace_back(), &loss = problem.losses.costs.emplace_back();
    const double unit = 1 + upTo(50), worth = 1 + upTo(50);
    for (int c = 0; c < choices; ++c) {
      cost.push_back(unit * (choices - c) + upTo(5));
      loss.push_back(worth * c * c);
    }
    whole += cost[0];
  }
  for (int i = 0; i < pairs; ++i) {
    const int a = upTo(items), b = upTo(items);
    if (a == b)
      continue;
    StrategyProblem::Pair pair{a, b, {}};
    const int rows = int(problem.costs.costs[a].size()), columns = int(problem.costs.costs[b].size());
    const double unit = 1 + upTo(9);
    for (int x = 0; x < rows; ++x)
      for (int y = 0; y < columns; ++y)
        pair.costs.push_back(unit * (rows - x) * (columns - y));
    whole += pair.costs[0];
    (i % 4 == 3 ? problem.losses : problem.costs).pairs.push_back(std::move(pair));
  }
  problem.budget = share * whole;
  return problem;
}

TEST(BudgetSearch, IsNearTheLeastOfAll) {
  std::mt19937 random(1);
  int found = 0, least = 0, refused = 0;
  double excess = 0;
  for (int round = 0; round < 2000; ++round) {
    BudgetProblem problem = randomProblem(random, 1 + round % 6, round % 9, 0.3 + 0.1 * (round % 7));
    const auto [want, cheapest] = leastOf(problem);
    auto got = searchWithinBudget(problem);
    if (cheapest > problem.budget) {
      EXPECT_EQ(got.status().code(), ErrorCode::Unsupported);
      ++refused;
      continue;
    }
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_LE(got->cost, problem.budget);
    EXPECT_NEAR(got->cost, strategyCost(problem.costs, got->choices), 1e-9);
    EXPECT_NEAR(got->loss, strategyCost(problem.losses, got->choices), 1e-9);
    ASSERT_TRUE(got->exact);
    EXPECT_LE(got->bound, want + 1e-6);
    ++found;
    least += got->loss <= want + 1e-9;
    excess += want > 0 ? got->loss / want - 1 : 0;
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(refused, 100);
  EXPECT_GT(least, found * 95 / 100);
  EXPECT_LT(excess / found, 0.005);
}

TEST(BudgetSearch, LosesNothingWhereAllFits) {
  BudgetProblem problem{{{{3, 1}, {5, 2}}, {}}, {{{0, 1}, {0, 1}}, {}}, 8};
  auto got = searchWithinBudget(problem);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->choices, (std::vector<int>{0, 0}));
  problem.budget = 2.5;
  got = searchWithinBudget(problem);
  EXPECT_EQ(got.status().code(), ErrorCode::Unsupported);
  EXPECT_NE(got.status().message().find("nothing costs less than 3."), std::string::npos);
}

TEST(BudgetSearch, RefusesWhatIsNoProblem) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const BudgetProblem &bad : {BudgetProblem{{{{1}}, {}}, {{{1}, {1}}, {}}, 1}, BudgetProblem{{{{1}}, {}}, {{{1, 2}}, {}}, 1},
                                   BudgetProblem{{{{}}, {}}, {{{}}, {}}, 1}, BudgetProblem{{{{inf}}, {}}, {{{1}}, {}}, 1},
                                   BudgetProblem{{{{1}, {1}}, {{0, 2, {1}}}}, {{{1}, {1}}, {}}, 1},
                                   BudgetProblem{{{{1}, {1}}, {}}, {{{1}, {1}}, {{0, 1, {1, 2}}}}, 1}})
    EXPECT_EQ(searchWithinBudget(bad).status().code(), ErrorCode::Invalid);
}

} // namespace
