//===- StreamChoiceTest.cpp - which steps run beside each other -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chains by hand with times that can be worked out on paper; random graphs, whose waits must order
// all that depends, by reachability; mistakes with their steps.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/StreamChoice.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

using namespace lathe;
using namespace lathe::analysis;

namespace {

StreamChoice choose(const std::vector<TimedStep> &steps, const StreamCosts &costs) {
  Result<StreamChoice> choice = chooseStreams(steps, costs);
  EXPECT_TRUE(choice.ok()) << choice.status().str();
  return choice ? *choice : StreamChoice();
}

/// A step, two chains of three behind it that fill `share` each, and a step behind both.
std::vector<TimedStep> chains(double seconds, double share) {
  return {{1, 1, {}},
          {seconds, share, {0}}, {seconds, share, {1}}, {seconds, share, {2}},
          {seconds, share, {0}}, {seconds, share, {4}}, {seconds, share, {5}},
          {1, 1, {3, 6}}};
}

TEST(StreamChoice, ChainsThatFillAQuarterGetTwoStreams) {
  StreamChoice choice = choose(chains(10, 0.25), {1});
  EXPECT_EQ(choice.streams, (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 0}));
  std::vector<std::vector<int>> waits(8);
  waits[4] = {0};
  waits[7] = {6};
  EXPECT_EQ(choice.waits, waits);
  ASSERT_EQ(choice.regions.size(), 1u);
  const StreamRegion &region = choice.regions[0];
  EXPECT_EQ(region.first, 1);
  EXPECT_EQ(region.end, 7);
  EXPECT_TRUE(region.used);
  EXPECT_EQ(region.streams, 2);
  EXPECT_DOUBLE_EQ(region.before, 60);
  EXPECT_DOUBLE_EQ(region.after, 1 + 30 + 1) << "an event to begin and one to end";
}

TEST(StreamChoice, SharesBeyondTheDeviceSlowDown) {
  // Three quarters each: both run at two thirds of their speed where they meet.
  StreamRegion region = choose(chains(10, 0.75), {0.5}).regions.at(0);
  EXPECT_TRUE(region.used);
  EXPECT_NEAR(region.after, 45 + 0.5 + 0.25, 0.5);
  // What fills the device gains nothing.
  region = choose(chains(10, 1), {0.5}).regions.at(0);
  EXPECT_FALSE(region.used);
  EXPECT_EQ(region.streams, 1);
}

TEST(StreamChoice, EventsMustBeWorthIt) {
  StreamRegion region = choose(chains(1, 0.25), {1.3}).regions.at(0);
  EXPECT_DOUBLE_EQ(region.before, 6);
  EXPECT_DOUBLE_EQ(region.after, 3 + 2.6);
  EXPECT_EQ(region.streams, 2);
  EXPECT_FALSE(region.used) << "1.07 is below 1.1";
  EXPECT_TRUE(choose(chains(1, 0.25), {1.3, 4, 1.05}).regions.at(0).used);
  EXPECT_EQ(choose(chains(1, 0.25), {1.3}).streams, std::vector<int>(8, 0));
  StreamChoice one = choose(chains(10, 0.25), {1, 1});
  EXPECT_TRUE(one.regions.empty());
  EXPECT_EQ(one.streams, std::vector<int>(8, 0));
}

TEST(StreamChoice, OrdersStreamsThatAreGiven) {
  // Two halves, each with a step between its two that is on a stream for both.
  std::vector<TimedStep> steps = {{1, 1, {}}, {1, 1, {0}}, {1, 1, {}}, {1, 1, {2}}, {1, 1, {1}}, {1, 1, {3}}, {1, 1, {4, 5}}};
  std::vector<std::vector<int>> waits(7);
  waits[1] = {0};
  waits[3] = {2};
  waits[4] = {1};
  waits[5] = {3};
  waits[6] = {5};
  EXPECT_EQ(waitsOf(steps, {0, 2, 1, 2, 0, 1, 0}), waits);
  EXPECT_EQ(waitsOf(steps, std::vector<int>(7)), std::vector<std::vector<int>>(7));
}

TEST(StreamChoice, RegionsFollowEachOther) {
  // The second region's step 5 reads nothing: it begins behind the first all the same.
  std::vector<TimedStep> steps = {{9, 0.2, {}},  {9, 0.2, {}},  {1, 1, {0, 1}},
                                  {9, 0.2, {2}}, {9, 0.2, {2}}, {9, 0.2, {}}, {1, 1, {3, 4, 5}}};
  StreamChoice choice = choose(steps, {1});
  ASSERT_EQ(choice.regions.size(), 1u) << "step 5 may run at any time";
  steps[5].seconds = 0.5;
  choice = choose(steps, {1});
  ASSERT_EQ(choice.regions.size(), 2u) << "too short to be worth it";
  EXPECT_EQ(choice.regions[0].end, 2);
  EXPECT_EQ(choice.regions[1].first, 3);
  for (int i = 3; i < 6; ++i)
    if (choice.streams[i])
      EXPECT_EQ(choice.waits[i].empty() ? choice.streams[i - 1] : choice.waits[i][0],
                choice.waits[i].empty() ? choice.streams[i] : 2);
}

/// Whether `a` ends before `b` begins, by streams and waits alone.
std::vector<std::vector<bool>> reachability(const StreamChoice &choice) {
  size_t n = choice.streams.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  for (size_t b = 0; b < n; ++b) {
    auto join = [&](size_t a) {
      before[a][b] = true;
      for (size_t c = 0; c < n; ++c)
        if (before[c][a])
          before[c][b] = true;
    };
    for (size_t a = b; a-- > 0;)
      if (choice.streams[a] == choice.streams[b]) {
        join(a);
        break;
      }
    for (int a : choice.waits[b])
      join(static_cast<size_t>(a));
  }
  return before;
}

TEST(StreamChoice, RandomGraphsKeepTheirOrder) {
  std::mt19937 random(3);
  auto below = [&](int n) { return int(random() % unsigned(n)); };
  int spread = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<TimedStep> steps(1 + below(30));
    for (size_t i = 0; i < steps.size(); ++i) {
      steps[i].seconds = below(20) * 0.5;
      steps[i].share = (1 + below(8)) / 8.0;
      for (int k = below(3); k-- > 0 && i > 0;)
        steps[i].after.push_back(below(int(i)));
    }
    StreamChoice choice = choose(steps, {0.25 * below(5), 1 + below(5), 1.01});
    auto before = reachability(choice);
    for (size_t i = 0; i < steps.size(); ++i) {
      for (int ahead : steps[i].after)
        ASSERT_TRUE(before[size_t(ahead)][i]) << trial << ": " << ahead << " before " << i;
      for (int ahead : choice.waits[i])
        ASSERT_NE(choice.streams[size_t(ahead)], choice.streams[i]);
    }
    for (const StreamRegion &region : choice.regions) {
      double longest = 0;
      for (int i = region.first; i < region.end; ++i) {
        longest = std::max(longest, steps[size_t(i)].seconds);
        spread += choice.streams[size_t(i)] > 0;
      }
      ASSERT_GE(region.after, longest);
      ASSERT_LE(region.after, region.before);
    }
  }
  EXPECT_GT(spread, 200);
}

TEST(StreamChoice, RefusesMistakesWithTheirSteps) {
  auto refused = [](std::vector<TimedStep> steps) {
    Result<StreamChoice> choice = chooseStreams(steps, {1});
    EXPECT_FALSE(choice.ok());
    return choice.ok() ? "" : choice.status().location();
  };
  EXPECT_EQ(refused({{1, 1, {}}, {1, 1, {1}}}), "step 1");
  EXPECT_EQ(refused({{-1, 1, {}}}), "step 0");
  EXPECT_EQ(refused({{1, 0, {}}}), "step 0");
  EXPECT_EQ(refused({{1, 1.5, {}}}), "step 0");
}

} // namespace
