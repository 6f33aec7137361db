//===- PlannerRandomTest.cpp - the planner on random problems --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans of seeded random problems: valid by definition, the same on a second run,
// never below the least height of any plan, equal to it where that is claimed.
// LATHE_RANDOM_PROBLEMS sets how many there are.
//
//===----------------------------------------------------------------------===//
#include "RandomProblems.h"

#include "lathe/analysis/PlanValidator.h"

#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>

using namespace lathe;
using namespace lathe::analysis;
using namespace lathe::test;

namespace {

int64_t problemCount() {
  const char *text = std::getenv("LATHE_RANDOM_PROBLEMS");
  return text ? std::atoll(text) : 5'000;
}

PlanOptions small() {
  PlanOptions options;
  options.work = 2000;
  options.nodes = 3000;
  return options;
}

TEST(PlannerRandom, LeastHeights) {
  Random random(11);
  int64_t count = problemCount(), proved = 0, least = 0;
  for (int64_t i = 0; i < count; ++i) {
    Problem p = random.problem(8, false);
    Result<Solution> s = planMemory(p, small());
    ASSERT_TRUE(s.ok()) << i << ": " << s.status().str();
    ASSERT_TRUE(naivelyValid(p, *s)) << i;
    int64_t height = LeastHeight(p).run(s->height);
    ASSERT_LE(s->lowerBound, height) << i;
    proved += s->optimal();
    least += s->height == height;
    Result<Solution> again = planMemory(p, small());
    ASSERT_EQ(again->offsets, s->offsets) << i;
  }
  RecordProperty("proved", std::to_string(proved));
  RecordProperty("least", std::to_string(least));
  EXPECT_GE(least, count * 999 / 1000);
  EXPECT_GE(proved, count * 97 / 100);
}

TEST(PlannerRandom, LargerOnes) {
  Random random(12);
  int64_t count = problemCount() / 20, proved = 0;
  for (int64_t i = 0; i < count; ++i) {
    Problem p = random.problem(60, i % 2 == 0);
    PlanOptions options = small();
    Result<Solution> s = planMemory(p, options);
    ASSERT_TRUE(s.ok()) << i << ": " << s.status().str();
    ASSERT_TRUE(naivelyValid(p, *s)) << i;
    ASSERT_GE(s->height, s->lowerBound);
    proved += s->optimal();
    if (i % 16 == 0) {
      options.threads = 2;
      Result<Solution> threaded = planMemory(p, options);
      ASSERT_EQ(threaded->offsets, s->offsets) << i;
      ASSERT_EQ(threaded->nodes, s->nodes) << i;
    }
  }
  RecordProperty("proved", std::to_string(proved));
  EXPECT_GE(proved, count / 3); // others have slices, or end their nodes
}

/// Problems that are packed in windows: long, with few buffers alive together.
TEST(PlannerRandom, LongOnes) {
  Random random(15);
  int64_t count = std::max<int64_t>(problemCount() / 500, 1), lower = 0;
  for (int64_t i = 0; i < count; ++i) {
    Problem p;
    int n = 256 + static_cast<int>(random.below(400));
    for (int k = 0; k < n; ++k) {
      int64_t begin = k + random.below(4), length = 1 + random.below(k % 10 == 0 ? 40 : 8);
      p.buffers.push_back(buffer(1 + random.below(100), begin, begin + length,
                                 i % 3 == 0 ? int64_t(1) << random.below(5) : 1));
      Buffer &b = p.buffers.back();
      if (length > 3 && random.below(6) == 0)
        b.gaps.push_back({begin + 1, begin + 1 + random.below(length - 2)});
      if (k > 0 && random.below(12) == 0) {
        b.aliasGroup = k / 12;
        b.aliasOffset = b.alignment * random.below(3);
      }
    }
    PlanOptions options = small();
    Result<Solution> s = planMemory(p, options);
    ASSERT_TRUE(s.ok()) << i << ": " << s.status().str();
    ASSERT_TRUE(naivelyValid(p, *s)) << i;
    ASSERT_EQ(planMemory(p, options)->offsets, s->offsets) << i;
    options.nodes = 0;
    Result<Solution> greedy = planMemory(p, options);
    ASSERT_LE(s->height, greedy->height) << i;
    lower += s->method.find("windows") != std::string::npos;
  }
  RecordProperty("lower", std::to_string(lower));
  EXPECT_GT(lower, count / 4);
}

/// A set does not fit, and does without any of its buffers.
TEST(PlannerRandom, ConflictingSets) {
  Random random(14);
  int64_t count = problemCount() / 20, named = 0, small = 0, open = 0;
  for (int64_t i = 0; i < count; ++i) {
    Problem p = random.problem(12, false);
    Result<Solution> lowest = planMemory(p);
    ASSERT_TRUE(lowest.ok());
    if (!lowest->optimal() || lowest->height == 0 || spaceCount(p) > 1)
      continue;
    Result<std::optional<ConflictingSet>> none = findConflictingSet(p);
    ASSERT_TRUE(none.ok() && !*none) << i;
    p.capacity = lowest->height - 1;
    Result<std::optional<ConflictingSet>> set = findConflictingSet(p);
    ASSERT_TRUE(set.ok()) << i;
    if (!*set || !(*set)->minimal) {
      ++open; // the nodes ended
      continue;
    }
    for (size_t leave = 0; leave <= (*set)->buffers.size(); ++leave) {
      Problem part;
      part.capacity = p.capacity;
      std::vector<int> indexOf(p.buffers.size(), -1);
      for (size_t k = 0; k < (*set)->buffers.size(); ++k)
        if (k != leave) {
          indexOf[(*set)->buffers[k]] = static_cast<int>(part.buffers.size());
          part.buffers.push_back(p.buffers[(*set)->buffers[k]]);
        }
      if (p.conflicts) {
        part.conflicts.emplace();
        for (auto [a, b] : *p.conflicts)
          if (indexOf[a] >= 0 && indexOf[b] >= 0)
            part.conflicts->emplace_back(indexOf[a], indexOf[b]);
      }
      ASSERT_EQ(planMemory(part).ok(), leave < (*set)->buffers.size()) << i << " " << leave;
    }
    ++named;
    small += (*set)->buffers.size() < p.buffers.size();
  }
  EXPECT_GT(named, count / 3);
  EXPECT_GT(small, named / 2);
  EXPECT_LE(open, count / 100);
}

/// Endpoints of intervals in every order: up to six buffers need no more than what is alive
/// together, which smallest conflicting sets rely on.
TEST(PlannerRandom, SixLifetimesNeedWhatIsAliveTogether) {
  Random random(17);
  std::vector<std::pair<int, int>> steps;
  int64_t problems = 0;
  std::function<void(std::vector<int>)> pairUp = [&](std::vector<int> free) {
    if (!free.empty()) {
      for (size_t k = 1; k < free.size(); ++k) {
        std::vector<int> rest(free.begin() + 1, free.end());
        rest.erase(rest.begin() + static_cast<int64_t>(k) - 1);
        steps.emplace_back(free[0], free[k]);
        pairUp(rest);
        steps.pop_back();
      }
      return;
    }
    Problem p;
    for (auto [begin, end] : steps)
      p.buffers.push_back(buffer(1 + random.below(40), begin, end));
    Result<Solution> s = planMemory(p);
    ASSERT_TRUE(s.ok());
    ASSERT_EQ(s->height, heightLowerBound(p));
    ++problems;
  };
  for (int n = 1; n <= 6; ++n) {
    std::vector<int> ends(2 * n);
    std::iota(ends.begin(), ends.end(), 0);
    pairUp(ends);
  }
  EXPECT_EQ(problems, 1 + 3 + 15 + 105 + 945 + 10395);
}

/// A smallest set against all sets of fewer buffers.
TEST(PlannerRandom, SmallestConflictingSets) {
  Random random(16);
  int64_t count = std::clamp<int64_t>(problemCount() / 50, 1, 2000), compared = 0, several = 0, open = 0;
  for (int64_t i = 0; i < count; ++i) {
    Problem p = random.problem(8, false);
    if (i % 2 == 0) { // lifetimes alone
      p.conflicts.reset();
      for (Buffer &b : p.buffers)
        b = buffer(b.size, b.begin, b.end);
    }
    int64_t height = LeastHeight(p).run(INT64_MAX);
    if (height < 2)
      continue;
    p.capacity = height - 1 - random.below(height / 2);
    Result<std::optional<ConflictingSet>> set = findConflictingSet(p);
    ASSERT_TRUE(set.ok()) << i;
    size_t n = p.buffers.size(), least = n + 1;
    for (unsigned mask = 0; mask < 1u << n; ++mask) {
      size_t members = static_cast<size_t>(__builtin_popcount(mask));
      if (members >= least)
        continue;
      Problem part = p;
      for (size_t b = 0; b < n; ++b)
        if (!(mask >> b & 1))
          part.buffers[b].size = 0, part.buffers[b].offset.reset();
      bool fits = true;
      for (int space = 0; space < spaceCount(p) && fits; ++space) {
        Problem own = part;
        for (Buffer &b : own.buffers)
          if (b.space != space)
            b.size = 0, b.offset.reset();
        fits = LeastHeight(own).run(INT64_MAX) <= p.capacity;
      }
      if (!fits)
        least = members;
    }
    if (!*set) {
      ASSERT_EQ(least, n + 1) << i;
      continue;
    }
    ASSERT_LE(least, (*set)->buffers.size()) << i;
    if ((*set)->smallest)
      ASSERT_EQ((*set)->buffers.size(), least) << i;
    open += !(*set)->smallest;
    ++compared;
    several += least > 2;
  }
  RecordProperty("compared", std::to_string(compared));
  EXPECT_GT(compared, count / 2);
  EXPECT_GT(several, count / 20);
  EXPECT_LE(open, count / 100);
}

/// Each rule cuts nothing that decides: proved heights agree.
TEST(PlannerRandom, RulesDoNotChangeTheOptimum) {
  using Rule = bool SearchRules::*;
  const Rule rules[] = {&SearchRules::sections,   &SearchRules::decomposition,
                        &SearchRules::propagation, &SearchRules::stackBound,
                        &SearchRules::dominance,  &SearchRules::hatless,
                        &SearchRules::symmetry,   &SearchRules::memo,
                        &SearchRules::restarts,   &SearchRules::learning,
                        &SearchRules::windows};
  Random random(13);
  int64_t count = problemCount() / 20, compared = 0;
  for (int64_t i = 0; i < count; ++i) {
    Problem p = random.problem(16);
    Result<Solution> s = planMemory(p, small());
    ASSERT_TRUE(s.ok());
    PlanOptions options = small();
    options.rules.*rules[i % std::size(rules)] = false;
    Result<Solution> without = planMemory(p, options);
    ASSERT_TRUE(without.ok());
    ASSERT_TRUE(naivelyValid(p, *without)) << i;
    ASSERT_LE(without->lowerBound, s->height) << i;
    ASSERT_LE(s->lowerBound, without->height) << i;
    compared += s->optimal() && without->optimal() && s->nodes > 0;
  }
  EXPECT_GT(compared, count / 20);
}

} // namespace
