//===- ScheduleTest.cpp - order, in place, recomputing ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small graphs by hand, and random ones against every topological order there is.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/PlanValidator.h"
#include "lathe/analysis/Schedule.h"

#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace lathe;
using namespace lathe::analysis;

namespace {

struct Builder {
  ScheduleGraph graph;
  Builder() { graph.alignment = 1; }
  int value(int64_t bytes, bool kept = false) {
    graph.values.push_back({bytes, kept});
    return static_cast<int>(graph.values.size()) - 1;
  }
  ScheduleStep &step(std::vector<int> reads, std::vector<int> writes) {
    ScheduleStep s;
    s.reads = std::move(reads);
    s.writes = std::move(writes);
    for (const std::vector<int> *list : {&s.reads, &s.writes})
      for (int v : *list)
        s.traffic += graph.values[v].bytes;
    graph.steps.push_back(std::move(s));
    return graph.steps.back();
  }
};

bool topological(const ScheduleGraph &graph, const std::vector<int> &order) {
  std::vector<int> at(graph.steps.size(), -1), writer(graph.values.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    if (at[order[i]] >= 0)
      return false;
    at[order[i]] = static_cast<int>(i);
  }
  for (size_t s = 0; s < graph.steps.size(); ++s)
    for (int v : graph.steps[s].writes)
      writer[v] = static_cast<int>(s);
  for (size_t s = 0; s < graph.steps.size(); ++s) {
    if (at[s] < 0)
      return false;
    for (int v : graph.steps[s].reads)
      if (writer[v] >= 0 && at[writer[v]] >= at[s])
        return false;
    for (int a : graph.steps[s].after)
      if (at[a] >= at[s])
        return false;
  }
  return true;
}

/// What the plan says, checked from the graph alone.
void check(const ScheduleGraph &graph, const SchedulePlan &plan) {
  ScheduleGraph all = extendedGraph(graph, plan.recomputes);
  ASSERT_TRUE(topological(all, plan.order));
  Problem problem = scheduleProblem(all, plan.order, plan.memoryOf);
  Result<Solution> solution = planMemory(problem, {200'000});
  ASSERT_TRUE(solution.ok()) << solution.status().str();
  EXPECT_TRUE(validatePlan(problem, *solution).ok());
  EXPECT_EQ(solution->height, plan.stages.back().height);
  EXPECT_EQ(schedulePeak(all, plan.order, plan.memoryOf), plan.stages.back().peak);
  for (size_t i = 1; i < plan.stages.size(); ++i)
    EXPECT_LT(plan.stages[i].height, plan.stages[i - 1].height);
  // A value that takes another's memory is written by the step that reads that for the last time.
  std::vector<int> at(all.steps.size());
  for (size_t i = 0; i < plan.order.size(); ++i)
    at[plan.order[i]] = static_cast<int>(i);
  for (size_t s = 0; s < all.steps.size(); ++s)
    for (int w : all.steps[s].writes) {
      if (plan.memoryOf[w] == w)
        continue;
      EXPECT_FALSE(all.values[plan.memoryOf[w]].kept);
      for (size_t t = 0; t < all.steps.size(); ++t)
        for (int r : all.steps[t].reads)
          if (r != w && plan.memoryOf[r] == plan.memoryOf[w] && at[t] > at[s]) {
            // Only values that were written into that memory later may be read later.
            bool later = false;
            for (size_t u = 0; u < all.steps.size(); ++u)
              for (int x : all.steps[u].writes)
                later |= x == r && at[u] > at[s];
            EXPECT_TRUE(later) << "value " << r << " is read after " << w << " took its memory";
          }
    }
}

TEST(Schedule, BranchesOneAfterAnother) {
  Builder b;
  int big0 = b.value(100), big1 = b.value(100), small0 = b.value(1), small1 = b.value(1);
  b.step({}, {big0});
  b.step({}, {big1});
  b.step({big0}, {small0});
  b.step({big1}, {small1});
  b.step({small0, small1}, {});
  Result<SchedulePlan> plan = planSchedule(b.graph);
  ASSERT_TRUE(plan.ok());
  check(b.graph, *plan);
  EXPECT_EQ(plan->stages[0].height, 201);
  EXPECT_EQ(plan->stages.back().name, "order");
  EXPECT_EQ(plan->stages.back().height, 102);
  EXPECT_TRUE(plan->exact);
}

TEST(Schedule, KeepsTheOrderThatNothingBeats) {
  Builder b;
  int x = b.value(10), y = b.value(20), z = b.value(10);
  b.step({}, {x});
  b.step({x}, {y});
  b.step({y}, {z});
  Result<SchedulePlan> plan = planSchedule(b.graph);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->order, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(plan->stages.size(), 1u);
  EXPECT_EQ(plan->stages[0].height, 30);
}

TEST(Schedule, OrderOfOtherReasonsHolds) {
  Builder b;
  int big0 = b.value(100), big1 = b.value(100), small0 = b.value(1), small1 = b.value(1);
  b.step({}, {big0});
  b.step({}, {big1});
  b.step({big0}, {small0}).after = {1};
  b.step({big1}, {small1}).after = {2};
  Result<SchedulePlan> plan = planSchedule(b.graph);
  ASSERT_TRUE(plan.ok());
  check(b.graph, *plan);
  EXPECT_EQ(plan->stages.back().height, 201);
}

TEST(Schedule, TakesTheMemoryOfTheDying) {
  Builder b;
  int x = b.value(64), y = b.value(64), z = b.value(64), r = b.value(64);
  b.step({}, {x});
  b.step({x}, {y});
  b.step({x, y}, {z}).inPlace = {{z, x}, {z, y}};
  b.step({z}, {r}).inPlace = {{r, z}};
  Result<SchedulePlan> plan = planSchedule(b.graph);
  ASSERT_TRUE(plan.ok());
  check(b.graph, *plan);
  EXPECT_EQ(plan->stages[0].height, 192);
  EXPECT_EQ(plan->stages.back().height, 128);
  EXPECT_EQ(plan->memoryOf, (std::vector<int>{0, 1, 0, 0}));
}

TEST(Schedule, WhatIsReadLaterOrKeptIsNotTaken) {
  for (int kept = 0; kept < 2; ++kept) {
    Builder b;
    int x = b.value(64, kept == 1), y = b.value(64), z = b.value(64);
    b.step({}, {x});
    b.step({x}, {y}).inPlace = {{y, x}};
    b.step(kept ? std::vector<int>{y} : std::vector<int>{x, y}, {z});
    EXPECT_EQ(takeMemory(b.graph, {0, 1, 2}), (std::vector<int>{x, y, z}));
  }
}

TEST(Schedule, ValuesFromOutsideAreNotTaken) {
  Builder b;
  int input = b.value(64), y = b.value(64), z = b.value(64);
  b.step({input}, {y}).inPlace = {{y, input}};
  b.step({y}, {z}).inPlace = {{z, y}};
  EXPECT_EQ(takeMemory(b.graph, {0, 1}), (std::vector<int>{input, y, y}));
}

/// A mask that every layer reads, and layers that are larger inside.
TEST(Schedule, MakesACheapMaskAgain) {
  Builder b;
  int mask = b.value(40);
  b.step({}, {mask}).cheap = true;
  int x = b.value(10);
  b.step({}, {x});
  for (int layer = 0; layer < 3; ++layer) {
    int y = b.value(10), wide = b.value(100), next = b.value(10);
    b.step({x, mask}, {y});
    b.step({y}, {wide});
    b.step({wide}, {next});
    x = next;
  }
  ScheduleOptions options;
  options.recomputeBytes = 0;
  options.recompute = 0.2;
  Result<SchedulePlan> plan = planSchedule(b.graph, options);
  ASSERT_TRUE(plan.ok());
  check(b.graph, *plan);
  EXPECT_EQ(plan->stages[0].height, 150);
  EXPECT_EQ(plan->stages.back().name, "recompute");
  EXPECT_EQ(plan->stages.back().height, 110);
  EXPECT_EQ(plan->recomputes.size(), 2u);
  // Not when that costs too much, and not when the mask is dear.
  options.recompute = 0.05;
  EXPECT_TRUE(planSchedule(b.graph, options)->recomputes.empty());
  options.recompute = 0.2;
  b.graph.steps[0].cheap = false;
  EXPECT_TRUE(planSchedule(b.graph, options)->recomputes.empty());
}

TEST(Schedule, MalformedGraphsAreErrors) {
  Builder b;
  int x = b.value(1);
  b.step({}, {x});
  b.step({x}, {});
  auto code = [](const ScheduleGraph &g) { return planSchedule(g).status().code(); };
  EXPECT_EQ(code(b.graph), ErrorCode::Ok);
  ScheduleGraph g = b.graph;
  g.steps[1].reads = {1};
  EXPECT_EQ(code(g), ErrorCode::Invalid);
  g = b.graph;
  g.steps[1].writes = {0};
  EXPECT_EQ(code(g), ErrorCode::Invalid);
  g = b.graph;
  g.steps[0].after = {1};
  EXPECT_EQ(code(g), ErrorCode::Invalid);
  g = b.graph;
  std::swap(g.steps[0], g.steps[1]);
  EXPECT_EQ(code(g), ErrorCode::Invalid);
  g = b.graph;
  g.steps[1].inPlace = {{0, 0}};
  EXPECT_EQ(code(g), ErrorCode::Invalid);
}

ScheduleGraph randomGraph(std::mt19937 &random, int steps) {
  Builder b;
  auto draw = [&](int n) { return static_cast<int>(random() % n); };
  for (int s = 0; s < steps; ++s) {
    std::vector<int> reads, writes;
    for (int v = 0; v < static_cast<int>(b.graph.values.size()); ++v)
      if (draw(3) == 0)
        reads.push_back(v);
    for (int w = 0; w < (draw(5) == 0 ? 2 : 1); ++w)
      writes.push_back(b.value(draw(4) == 0 ? 16 : draw(16), draw(8) == 0));
    ScheduleStep &step = b.step(reads, writes);
    step.workspace = draw(4) == 0 ? draw(12) : 0;
    step.cheap = draw(2) == 0;
    if (s > 0 && draw(6) == 0)
      step.after = {draw(s)};
    for (int r : reads)
      for (int w : writes)
        if (b.graph.values[r].bytes == b.graph.values[w].bytes && draw(2))
          step.inPlace.push_back({w, r});
  }
  return b.graph;
}

/// The lowest peak of all topological orders.
int64_t lowestPeak(const ScheduleGraph &graph, bool inPlace) {
  std::vector<int> order(graph.steps.size()), own(graph.values.size());
  std::iota(order.begin(), order.end(), 0);
  std::iota(own.begin(), own.end(), 0);
  int64_t best = INT64_MAX;
  do {
    if (topological(graph, order))
      best = std::min(best, schedulePeak(graph, order, inPlace ? takeMemory(graph, order) : own));
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(Schedule, NoTopologicalOrderIsBetter) {
  std::mt19937 random(7);
  int closed = 0;
  for (int round = 0; round < 400; ++round) {
    ScheduleGraph graph = randomGraph(random, 2 + round % 6);
    for (ScheduleStep &step : graph.steps)
      step.inPlace.clear();
    ScheduleOptions options;
    options.inPlace = options.rematerialise = false;
    Result<SchedulePlan> plan = planSchedule(graph, options);
    ASSERT_TRUE(plan.ok()) << plan.status().str();
    check(graph, *plan);
    int64_t best = lowestPeak(graph, false);
    // The order of the lowest peak is left when the arena of another is as low.
    EXPECT_GE(plan->stages.back().peak, best);
    if (plan->exact && plan->stages.back().peak > best) {
      EXPECT_GE(plan->stages.back().height, best);
    }
    closed += plan->stages.back().peak == best;
  }
  EXPECT_GT(closed, 390);
}

TEST(Schedule, RandomGraphsHoldTogether) {
  std::mt19937 random(11);
  for (int round = 0; round < 800; ++round) {
    ScheduleGraph graph = randomGraph(random, 1 + round % 24);
    ScheduleOptions options;
    options.recompute = 0.5;
    options.recomputeBytes = 0;
    options.beam = 1 + round % 5;
    Result<SchedulePlan> plan = planSchedule(graph, options);
    ASSERT_TRUE(plan.ok()) << plan.status().str();
    check(graph, *plan);
    Result<SchedulePlan> again = planSchedule(graph, options);
    EXPECT_EQ(plan->order, again->order);
    EXPECT_EQ(plan->memoryOf, again->memoryOf);
    if (HasFailure()) {
      ADD_FAILURE() << "round " << round;
      return;
    }
  }
}

} // namespace
