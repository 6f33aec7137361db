//===- AssignTest.cpp - assignments of formats against all that there are --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Assign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace lathe;
using namespace lathe::quantize;

namespace {

struct Problem {
  std::vector<std::vector<Choice>> layers;
  std::vector<PairCost> pairs;

  Assignment made(const std::vector<size_t> &choices) const {
    Assignment sum{choices};
    for (size_t l = 0; l < layers.size(); ++l)
      sum.loss += layers[l][choices[l]].loss, sum.cost += layers[l][choices[l]].cost;
    for (const PairCost &pair : pairs)
      sum.cost += pair.cost[choices[pair.first]][choices[pair.second]];
    return sum;
  }
  /// All of them, one after another.
  std::vector<Assignment> front() const {
    std::vector<Assignment> all, best;
    std::vector<size_t> choices(layers.size());
    for (bool more = true; more;) {
      all.push_back(made(choices));
      more = false;
      for (size_t l = 0; l < layers.size() && !more; ++l) {
        more = ++choices[l] < layers[l].size();
        if (!more)
          choices[l] = 0;
      }
    }
    std::sort(all.begin(), all.end(), [](auto &a, auto &b) { return a.cost != b.cost ? a.cost < b.cost : a.loss < b.loss; });
    for (const Assignment &one : all)
      if (std::isfinite(one.loss) && (best.empty() || one.loss < best.back().loss))
        best.push_back(one);
    return best;
  }
};

/// Numbers that sums hold exactly: the same front whatever the order of additions.
Problem random(unsigned seed, size_t layers, size_t reach) {
  std::mt19937 engine(seed);
  auto number = [&](int low, int high) { return double(std::uniform_int_distribution<int>(low * 128, high * 128)(engine)) / 1024; };
  Problem problem;
  for (size_t l = 0; l < layers; ++l) {
    problem.layers.push_back({{0, number(50, 100)}});
    for (size_t more = engine() % 3; more > 0; --more)
      problem.layers.back().push_back({engine() % 10 ? number(0, 400) : INFINITY, number(10, 110)});
  }
  for (size_t l = 1; l < layers; ++l)
    for (size_t distance = 1; distance <= std::min(l, reach); ++distance)
      if (engine() % 2) {
        PairCost pair{l - distance, l, {}};
        for (size_t i = 0; i < problem.layers[pair.first].size(); ++i) {
          pair.cost.emplace_back();
          for (size_t j = 0; j < problem.layers[l].size(); ++j)
            pair.cost.back().push_back(i && i == j ? number(-80, 20) : 0);
        }
        problem.pairs.push_back(std::move(pair));
      }
  return problem;
}

} // namespace

TEST(Assign, IsTheFrontOfAllAssignments) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Problem problem = random(seed, 1 + seed % 8, seed % 4);
    Result<std::vector<Assignment>> got = paretoFront(problem.layers, problem.pairs);
    ASSERT_TRUE(got.ok()) << got.status().message();
    const std::vector<Assignment> want = problem.front();
    ASSERT_EQ(got->size(), want.size()) << "seed " << seed;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ((*got)[i].cost, want[i].cost) << "seed " << seed;
      EXPECT_EQ((*got)[i].loss, want[i].loss) << "seed " << seed;
      const Assignment again = problem.made((*got)[i].choices);
      EXPECT_EQ(again.cost, want[i].cost);
      EXPECT_EQ(again.loss, want[i].loss);
    }
  }
}

TEST(Assign, ThinnedFrontsAreNearTheBest) {
  const Problem problem = random(7, 60, 2);
  Result<std::vector<Assignment>> exact = paretoFront(problem.layers, problem.pairs, 1 << 20),
                                  thin = paretoFront(problem.layers, problem.pairs, 256);
  ASSERT_TRUE(exact.ok() && thin.ok());
  ASSERT_GT(exact->size(), thin->size());
  const double range = exact->back().cost - exact->front().cost;
  for (const Assignment &best : *exact) { // something of no more loss costs little more
    double least = INFINITY;
    for (const Assignment &one : *thin)
      if (one.loss <= best.loss)
        least = std::min(least, one.cost);
    EXPECT_LE(least, best.cost + range * 0.02);
  }
}

TEST(Assign, NoLayersAndTooManyOpenPairs) {
  EXPECT_EQ(paretoFront({}, {})->size(), 1u);
  std::vector<std::vector<Choice>> layers(14, {{0, 2}, {1, 1}});
  std::vector<PairCost> pairs;
  for (size_t l = 0; l < 13; ++l)
    pairs.push_back({l, 13, {{0, 0}, {0, -1}}});
  EXPECT_EQ(paretoFront(layers, pairs).status().code(), ErrorCode::Usage);
}
