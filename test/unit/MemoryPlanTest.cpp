//===- MemoryPlanTest.cpp - planner and validator --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small problems by hand, ten thousand random ones against a naive check, planted
// faults for the validator, and symbolic plans evaluated at random sizes.
//
//===----------------------------------------------------------------------===//
#include "RandomProblems.h"

#include "lathe/analysis/PlanValidator.h"

#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::analysis;
using namespace lathe::test;

namespace {

TEST(MemoryPlan, ReusesMemoryOfTheDead) {
  Problem p;
  p.buffers = {buffer(100, 0, 2), buffer(50, 1, 3), buffer(100, 2, 4)};
  Result<Solution> s = planMemory(p);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->height, 150);
  EXPECT_EQ(s->lowerBound, 150);
  EXPECT_TRUE(validatePlan(p, *s).ok());
}

TEST(MemoryPlan, Empty) {
  Problem p;
  Result<Solution> s = planMemory(p);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->height, 0);
  EXPECT_TRUE(validatePlan(p, *s).ok());
}

TEST(MemoryPlan, FixedOffsetsAndGroups) {
  Problem p;
  p.buffers = {buffer(64, 0, 4), buffer(64, 0, 4), buffer(32, 0, 2), buffer(96, 2, 4)};
  p.buffers[1].offset = 64;
  p.buffers[2].aliasGroup = p.buffers[3].aliasGroup = 7;
  Result<Solution> s = planMemory(p);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->offsets[1], 64);
  EXPECT_EQ(s->offsets[2], s->offsets[3]);
  EXPECT_EQ(s->height, 224);
  EXPECT_TRUE(validatePlan(p, *s).ok());
}

TEST(MemoryPlan, MalformedProblemsAreErrors) {
  auto code = [](Problem p) { return planMemory(p).status().code(); };
  Problem p;
  p.buffers = {buffer(8, 0, 2), buffer(8, 0, 2)};
  Problem q = p;
  q.buffers[0].size = -1;
  EXPECT_EQ(code(q), ErrorCode::Invalid);
  q = p;
  q.buffers[0].alignment = 0;
  EXPECT_EQ(code(q), ErrorCode::Invalid);
  q = p;
  q.buffers[0].begin = 3;
  EXPECT_EQ(code(q), ErrorCode::Invalid);
  q = p;
  q.buffers[0].offset = 0;
  q.buffers[1].offset = 4;
  EXPECT_EQ(code(q), ErrorCode::Invalid);
  q = p;
  q.buffers[0].offset = 4;
  q.buffers[0].alignment = 8;
  EXPECT_EQ(code(q), ErrorCode::Invalid);
  q = p;
  q.buffers[0].size = q.buffers[1].size = INT64_MAX / 2;
  EXPECT_EQ(code(q), ErrorCode::Invalid);
  q = p;
  q.conflicts = ConflictList{{0, 2}};
  EXPECT_EQ(code(q), ErrorCode::Invalid);
  q = p;
  q.capacity = 15;
  EXPECT_EQ(code(q), ErrorCode::Unsupported);
}

TEST(MemoryPlan, RandomProblems) {
  Random random(1);
  PlanOptions options;
  options.work = 2000;
  int optimal = 0, planted = 0;
  for (int i = 0; i < 10000; ++i) {
    Problem p = random.problem();
    Result<Solution> s = planMemory(p, options);
    ASSERT_TRUE(s.ok()) << s.status().str();
    ASSERT_TRUE(naivelyValid(p, *s)) << i;
    ASSERT_TRUE(validatePlan(p, *s).ok()) << i << validatePlan(p, *s).str();
    ASSERT_GE(s->height, s->lowerBound);
    optimal += s->height == s->lowerBound;
    Result<Solution> again = planMemory(p, options);
    ASSERT_EQ(again->offsets, s->offsets);

    // Another place for one buffer: both checks must agree on what that means.
    if (p.buffers.empty())
      continue;
    Solution moved = *s;
    int victim = static_cast<int>(random.below(p.buffers.size()));
    moved.offsets[victim] = random.below(s->height + 1);
    moved.height = 0;
    for (int space = 0; space < spaceCount(p); ++space)
      moved.height += spaceHeight(p, moved.offsets, space);
    bool groupsMoved = p.buffers[victim].aliasGroup >= 0 || p.buffers[victim].offset;
    if (groupsMoved && moved.offsets[victim] != s->offsets[victim])
      continue; // judged by other tests
    ASSERT_EQ(validatePlan(p, moved).ok(), naivelyValid(p, moved)) << i;
    planted += !naivelyValid(p, moved);
  }
  EXPECT_GT(optimal, 4500); // the bound knows nothing of alignment
  EXPECT_GT(planted, 1000);
}

TEST(MemoryPlan, ReachesTheBoundOfAStaircase) {
  // Interval packing where first-fit by time wastes memory.
  Problem p;
  for (int i = 0; i < 200; ++i)
    p.buffers.push_back(buffer(64 * (1 + (i * 7) % 5), i, i + 2 + i % 3, 64));
  Result<Solution> s = planMemory(p);
  ASSERT_TRUE(s.ok());
  EXPECT_TRUE(validatePlan(p, *s).ok());
  EXPECT_LE(s->height, s->lowerBound * 12 / 10);
}

TEST(PlanValidator, NamesWhatIsWrong) {
  Problem p;
  p.buffers = {buffer(10, 0, 2), buffer(10, 1, 3), buffer(8, 2, 4, 8), buffer(4, 0, 1)};
  p.buffers[0].aliasGroup = p.buffers[3].aliasGroup = 1;
  Solution good;
  good.offsets = {0, 10, 0, 0};
  good.height = 20;
  ASSERT_TRUE(validatePlan(p, good).ok()) << validatePlan(p, good).str();
  auto broken = [&](auto change) {
    Solution s = good;
    change(s);
    return validatePlan(p, s).str();
  };
  EXPECT_NE(broken([](Solution &s) { s.offsets[1] = 9, s.height = 19; }).find("overlaps buffer 0"),
            std::string::npos);
  EXPECT_NE(broken([](Solution &s) { s.offsets[2] = 4; }).find("multiple of 8"),
            std::string::npos);
  EXPECT_NE(broken([](Solution &s) { s.offsets[3] = 1; }).find("alias group"), std::string::npos);
  EXPECT_NE(broken([](Solution &s) { s.height = 21; }).find("height"), std::string::npos);
  EXPECT_NE(broken([](Solution &s) { s.offsets[1] = -1; }).find("out of range"),
            std::string::npos);
  EXPECT_NE(broken([](Solution &s) { s.offsets.pop_back(); }).find("offsets"), std::string::npos);
  EXPECT_NE(broken([](Solution &s) { s.offsets[1] = INT64_MAX; }).find("out of range"),
            std::string::npos);
  Problem small = p;
  small.capacity = 19;
  EXPECT_FALSE(validatePlan(small, good).ok());
  Problem pinned = p;
  pinned.buffers[1].offset = 12;
  EXPECT_FALSE(validatePlan(pinned, good).ok());
}

DimExpr parse(const char *text) { return *DimExpr::parse(text); }

TEST(SymbolicPlan, ChainOfActivations) {
  SymbolicProblem p;
  p.point = {{"B", 4}, {"S", 128}};
  const char *sizes[] = {"3072*B*S", "9216*B*S", "48*B*S*S", "3072*B*S", "12288*B*S"};
  for (int i = 0; i < 5; ++i)
    p.buffers.push_back({parse(sizes[i]), 64, i, i + 2, -1});
  Result<SymbolicSolution> s = planSymbolic(p);
  ASSERT_TRUE(s.ok()) << s.status().str();
  EXPECT_EQ(s->method, "chains");
  for (const DimExpr &offset : s->offsets)
    EXPECT_LT(offset.str().size(), 120u) << offset.str();
}

TEST(SymbolicPlan, ComparesRoundedSizes) {
  // One buffer above two that share the place below it: the larger decides.
  SymbolicProblem p;
  p.point = {{"N", 100}};
  p.buffers = {{parse("4*N"), 64, 0, 1, -1}, {parse("12*N"), 64, 1, 2, -1},
               {parse("4*N"), 64, 0, 2, -1}};
  p.buffers[2].size = parse("4*N + 100000");
  Result<SymbolicSolution> s = planSymbolic(p);
  ASSERT_TRUE(s.ok());
  for (const DimExpr &offset : s->offsets)
    EXPECT_EQ(offset.str().find("max"), std::string::npos) << offset.str();
}

TEST(SymbolicPlan, ValidAtEverySize) {
  Random random(3);
  PlanOptions options;
  options.work = 500;
  int shelves = 0;
  for (int i = 0; i < 200; ++i) {
    SymbolicProblem p;
    p.point = {{"B", 1 + random.below(8)}, {"S", random.below(200)}, {"P", random.below(3)}};
    int n = 1 + static_cast<int>(random.below(i % 8 == 0 ? 60 : 20));
    static const char *forms[] = {"4*B*S",   "B*S*S",      "64*B + 4*S", "2*P*B",
                                  "100",     "4*max(B, S)", "12*B*S",     "floordiv(S + 1, 2)*8",
                                  "4*S + 4", "0"};
    for (int k = 0; k < n; ++k) {
      int64_t begin = random.below(20);
      p.buffers.push_back({parse(forms[random.below(std::size(forms))]) *
                               DimExpr(1 + random.below(3)),
                           int64_t(1) << random.below(8), begin, begin + random.below(7),
                           random.below(5) == 0 ? static_cast<int>(random.below(3)) : -1});
    }
    Result<SymbolicSolution> s = planSymbolic(p, options);
    ASSERT_TRUE(s.ok()) << s.status().str();
    shelves += s->method == "shelves";
    for (int k = 0; k < 12; ++k) {
      std::map<std::string, int64_t> values{
          {"B", random.below(9)}, {"S", random.below(300)}, {"P", random.below(50)}};
      Result<Problem> numeric = evaluateProblem(p, values);
      ASSERT_TRUE(numeric.ok());
      Solution at;
      for (const DimExpr &offset : s->offsets)
        at.offsets.push_back(*offset.evaluate(values));
      int64_t top = 0;
      for (size_t b = 0; b < at.offsets.size(); ++b)
        top = std::max(top, at.offsets[b] + numeric->buffers[b].size);
      EXPECT_LE(top, *s->height.evaluate(values));
      at.height = top;
      Status valid = validatePlan(*numeric, at);
      ASSERT_TRUE(valid.ok()) << i << ": " << valid.str();
    }
    // At the point the formulas reach the numeric plan, unless they are shelves or a
    // buffer is empty there.
    if (s->method == "chains")
      EXPECT_LE(*s->height.evaluate(p.point), s->atPoint.height + 128 * n);
  }
  EXPECT_GT(shelves, 0);
  EXPECT_LT(shelves, 40);
}

TEST(SymbolicPlan, NegativeSizesAreErrors) {
  SymbolicProblem p;
  p.point = {{"B", 1}};
  p.buffers = {{parse("B - 2"), 64, 0, 1, -1}};
  EXPECT_FALSE(planSymbolic(p).ok());
  p.buffers[0].size = parse("Q");
  EXPECT_FALSE(planSymbolic(p).ok());
}

} // namespace
