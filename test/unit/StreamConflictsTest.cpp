//===- StreamConflictsTest.cpp - conflicts of buffers that streams share --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One stream gives lifetimes; two give what waits order; random schedules against
// reachability step by step; each mistake with its step.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/PlanValidator.h"
#include "lathe/analysis/StreamConflicts.h"

#include <gtest/gtest.h>
#include <random>

using namespace lathe;
using namespace lathe::analysis;

namespace {

ConflictList conflicts(const std::vector<StreamStep> &steps, int buffers) {
  Result<ConflictList> result = conflictsOfStreams(steps, buffers);
  EXPECT_TRUE(result.ok()) << result.status().str();
  return result ? *result : ConflictList();
}

TEST(StreamConflicts, OneStreamIsLifetimes) {
  // 0 -> 1 -> 2: each step reads one buffer and writes the next.
  std::vector<StreamStep> chain = {{0, {}, {0}}, {0, {}, {0, 1}}, {0, {}, {1, 2}}, {0, {}, {2}}};
  EXPECT_EQ(conflicts(chain, 4), (ConflictList{{0, 1}, {1, 2}}));
}

TEST(StreamConflicts, WaitsOrderStreams) {
  // Stream 1 works on buffer 1 beside stream 0, which goes on with buffer 2.
  std::vector<StreamStep> steps = {{0, {}, {0}}, {1, {}, {1}}, {0, {}, {2}}};
  EXPECT_EQ(conflicts(steps, 3), (ConflictList{{0, 1}, {1, 2}}));
  steps[2].waits = {1};
  EXPECT_EQ(conflicts(steps, 3), (ConflictList{{0, 1}}));
  steps[1].waits = {0};
  EXPECT_EQ(conflicts(steps, 3), (ConflictList{}));
}

TEST(StreamConflicts, PlansFromThemHold) {
  std::vector<StreamStep> steps = {{0, {}, {0}}, {7, {0}, {0, 1}}, {0, {}, {2}}, {0, {1}, {1, 3}}};
  Problem problem;
  problem.buffers.resize(4);
  for (Buffer &b : problem.buffers)
    b.size = 64;
  problem.conflicts = conflicts(steps, 4);
  EXPECT_EQ(*problem.conflicts, (ConflictList{{0, 1}, {0, 2}, {1, 2}, {1, 3}}));
  Result<Solution> plan = planMemory(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().str();
  EXPECT_EQ(plan->height, 192);
  EXPECT_TRUE(validatePlan(problem, *plan).ok());
}

TEST(StreamConflicts, RandomSchedulesAgainstReachability) {
  std::mt19937 random(7);
  auto below = [&](int n) { return int(random() % n); };
  for (int trial = 0; trial < 300; ++trial) {
    int count = 1 + below(12), buffers = 1 + below(6), streams = 1 + below(3);
    std::vector<StreamStep> steps(count);
    std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
    for (int i = 0; i < count; ++i) {
      steps[i].stream = below(streams);
      while (i && below(2))
        steps[i].waits.push_back(below(i));
      while (below(2))
        steps[i].touches.push_back(below(buffers));
      for (int j = 0; j < i; ++j)
        if (steps[j].stream == steps[i].stream ||
            std::count(steps[i].waits.begin(), steps[i].waits.end(), j))
          for (int k = 0; k <= j; ++k)
            before[k][i] = before[k][i] || k == j || before[k][j];
    }
    auto touches = [&](int step, int buffer) {
      const std::vector<int> &t = steps[step].touches;
      return std::count(t.begin(), t.end(), buffer) > 0;
    };
    ConflictList want;
    for (int a = 0; a < buffers; ++a)
      for (int b = a + 1; b < buffers; ++b) {
        bool first = true, second = true;
        for (int i = 0; i < count; ++i)
          for (int j = 0; j < count; ++j)
            if (touches(i, a) && touches(j, b)) {
              first = first && before[i][j];
              second = second && before[j][i];
            }
        if (!first && !second)
          want.push_back({a, b});
      }
    EXPECT_EQ(conflicts(steps, buffers), want) << "trial " << trial;
  }
}

TEST(StreamConflicts, MistakesNameTheStep) {
  auto error = [](std::vector<StreamStep> steps) {
    return conflictsOfStreams(steps, 2).status().str();
  };
  EXPECT_EQ(error({{0, {}, {0}}, {-1, {}, {}}}), "invalid input: step 1: stream -1 is negative");
  EXPECT_EQ(error({{0, {0}, {}}}), "invalid input: step 0: waits for step 0, which is not earlier");
  EXPECT_EQ(error({{0, {}, {2}}}), "invalid input: step 0: touches buffer 2 of 2");
}

} // namespace
