//===- StrategySearchTest.cpp - the least sum of choices ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Against all combinations, on small problems of every shape.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/StrategySearch.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace lathe;
using namespace lathe::analysis;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double leastOf(const StrategyProblem &problem) {
  double least = kInfinite;
  std::vector<int> choices(problem.costs.size());
  for (;;) {
    least = std::min(least, strategyCost(problem, choices));
    size_t op = 0;
    for (; op < choices.size(); ++op) {
      if (size_t(++choices[op]) < problem.costs[op].size())
        break;
      choices[op] = 0;
    }
    if (op == choices.size())
      return least;
  }
}

StrategyProblem randomProblem(std::mt19937 &random, int ops, int pairs, bool impossible) {
  auto upTo = [&](int n) { return int(random() % unsigned(n)); };
  StrategyProblem problem;
  for (int op = 0; op < ops; ++op) {
    problem.costs.emplace_back(1 + upTo(4));
    for (double &cost : problem.costs.back())
      cost = impossible && !upTo(6) ? kInfinite : upTo(100);
  }
  for (int i = 0; i < pairs; ++i) {
    StrategyProblem::Pair pair{upTo(ops), upTo(ops), {}};
    if (pair.a == pair.b)
      continue;
    pair.costs.resize(problem.costs[pair.a].size() * problem.costs[pair.b].size());
    for (double &cost : pair.costs)
      cost = impossible && !upTo(8) ? kInfinite : upTo(100);
    problem.pairs.push_back(std::move(pair));
  }
  return problem;
}

TEST(StrategySearch, IsTheLeastOfAll) {
  std::mt19937 random(1);
  int impossible = 0;
  for (int round = 0; round < 3000; ++round) {
    StrategyProblem problem = randomProblem(random, 1 + round % 7, round % 15, round % 2);
    double least = leastOf(problem);
    Result<StrategySolution> found = searchStrategies(problem);
    if (least == kInfinite) {
      EXPECT_EQ(found.status().code(), ErrorCode::Unsupported);
      ++impossible;
      continue;
    }
    ASSERT_TRUE(found.ok()) << found.status().str();
    EXPECT_TRUE(found->exact);
    EXPECT_EQ(found->cost, least) << "round " << round;
    EXPECT_EQ(strategyCost(problem, found->choices), found->cost);
  }
  EXPECT_GT(impossible, 20);
}

TEST(StrategySearch, SearchesNearbyWhereTablesWouldBeTooLarge) {
  std::mt19937 random(2);
  int least = 0;
  for (int round = 0; round < 200; ++round) {
    StrategyProblem problem = randomProblem(random, 7, 30, false);
    Result<StrategySolution> exact = searchStrategies(problem), small = searchStrategies(problem, 16);
    ASSERT_TRUE(exact.ok() && small.ok());
    EXPECT_GE(small->cost, exact->cost);
    EXPECT_EQ(strategyCost(problem, small->choices), small->cost);
    least += small->cost == exact->cost;
  }
  EXPECT_GE(least, 195);
}

/// Every op beside every other: tables of all of them would have 3^40 entries.
TEST(StrategySearch, ComesNearItsBoundOnWideGraphs) {
  std::mt19937 random(4);
  StrategyProblem problem;
  for (int op = 0; op < 40; ++op) {
    problem.costs.push_back({double(random() % 100), double(random() % 100), double(random() % 100)});
    for (int other = 0; other < op; ++other) {
      StrategyProblem::Pair pair{other, op, std::vector<double>(9)};
      for (int i = 0; i < 9; ++i)
        pair.costs[i] = i % 4 == 0 ? 0 : double(random() % 10);
      problem.pairs.push_back(std::move(pair));
    }
  }
  Result<StrategySolution> found = searchStrategies(problem), again = searchStrategies(problem);
  ASSERT_TRUE(found && again);
  EXPECT_EQ(found->choices, again->choices);
  // No single change makes it better, nor does a change of two.
  for (size_t a = 0; a < 40; ++a)
    for (size_t b = 0; b < a; ++b)
      for (int i = 0; i < 9; ++i) {
        std::vector<int> changed = found->choices;
        changed[a] = i % 3, changed[b] = i / 3;
        EXPECT_GE(strategyCost(problem, changed), found->cost);
      }
}

/// Costs beyond what stands for impossible inside: multipliers of budgets get there.
TEST(StrategySearch, CostsMayBeOfAnySize) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    StrategyProblem problem = randomProblem(random, 6, 8, round % 2);
    Result<StrategySolution> found = searchStrategies(problem);
    StrategyProblem huge = problem;
    for (std::vector<double> &costs : huge.costs)
      for (double &cost : costs)
        cost *= 0x1p130;
    for (StrategyProblem::Pair &pair : huge.pairs)
      for (double &cost : pair.costs)
        cost *= 0x1p130;
    Result<StrategySolution> same = searchStrategies(huge);
    ASSERT_EQ(found.ok(), same.ok());
    if (found) {
      EXPECT_EQ(same->cost, found->cost * 0x1p130);
    }
  }
}

/// As many layers as large models have, with one value that all read.
TEST(StrategySearch, IsQuickOnLongNarrowGraphs) {
  std::mt19937 random(3);
  StrategyProblem problem = randomProblem(random, 4000, 0, false);
  problem.costs[0] = {1, 2, 3};
  for (int op = 1; op < 4000; ++op)
    for (int other : {0, op - 1, op - 7})
      if (other >= 0 && other != op) {
        StrategyProblem::Pair pair{other, op, {}};
        pair.costs.resize(problem.costs[other].size() * problem.costs[op].size());
        for (double &cost : pair.costs)
          cost = random() % 100;
        problem.pairs.push_back(std::move(pair));
      }
  Result<StrategySolution> found = searchStrategies(problem);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->exact);
}

TEST(StrategySearch, RefusesWhatIsNoProblem) {
  EXPECT_EQ(searchStrategies({{{}}, {}}).status().code(), ErrorCode::Invalid);
  EXPECT_EQ(searchStrategies({{{1, 2}, {1}}, {{0, 1, {1}}}}).status().code(), ErrorCode::Invalid);
  EXPECT_EQ(searchStrategies({{{1}}, {{0, 0, {1}}}}).status().code(), ErrorCode::Invalid);
  EXPECT_EQ(searchStrategies({{{1}}, {{0, 3, {1}}}}).status().code(), ErrorCode::Invalid);
  EXPECT_TRUE(searchStrategies({}).ok());
}

} // namespace
