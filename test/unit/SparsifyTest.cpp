//===- SparsifyTest.cpp - what goes of matrices and of models -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/sparsify/Coupling.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace lathe;
using namespace lathe::sparsify;

namespace {

HostTensor tensor(std::vector<int64_t> dims, const std::vector<double> &values) {
  HostTensor t(DType::F32, std::move(dims));
  for (size_t i = 0; i < values.size(); ++i)
    t.setReal(int64_t(i), values[i]);
  return t;
}

std::vector<double> valuesOf(const HostTensor &t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.count(); ++i)
    values.push_back(t.real(i));
  return values;
}

std::vector<double> pruned(Weights w, const char *scheme, double ratio, Score score = Score::L1) {
  EXPECT_TRUE(prune(w, *Scheme::parse(scheme), ratio, {score, 1, {}}).ok());
  return valuesOf(w.tensor);
}

TEST(Scheme, Texts) {
  for (const char *good : {"block:1x16", "block:4096x4096", "unstructured", "2:4", "1:64"})
    EXPECT_TRUE(Scheme::parse(good).ok()) << good;
  for (const char *bad : {"", "block:", "block:0x16", "block:1x", "block:1x16 ", "block:1x4097", "4:2", "2:2", "0:4", "2:65",
                          "-1:4", "2:4:8", "99999999999999999999:4"})
    EXPECT_FALSE(Scheme::parse(bad).ok()) << bad;
}

TEST(Prune, LeastElementsGoAndTheFirstAmongEqualOnes) {
  EXPECT_EQ(pruned({tensor({2, 4}, {4, -1, 3, 1, 2, 5, -6, 1}), false}, "unstructured", 0.25),
            (std::vector<double>{4, 0, 3, 0, 2, 5, -6, 1}));
}

TEST(Prune, BlocksAtTheEdgeAreSmaller) {
  // Blocks of 1 x 2 in 1 x 5: sums 3, 3, 0.5.
  EXPECT_EQ(pruned({tensor({1, 5}, {1, 2, 2, 1, 0.5}), false}, "block:1x2", 0.34), (std::vector<double>{1, 2, 2, 1, 0}));
}

TEST(Prune, ScoresDiffer) {
  // 2 + 2 has the larger sum, 3 + 0 the larger sum of squares.
  HostTensor t = tensor({1, 4}, {2, 2, 3, 0});
  EXPECT_EQ(pruned({t, false}, "block:1x2", 0.5, Score::L1), (std::vector<double>{2, 2, 0, 0}));
  EXPECT_EQ(pruned({t, false}, "block:1x2", 0.5, Score::L2), (std::vector<double>{0, 0, 3, 0}));
}

TEST(Prune, GroupsRunAlongTheDepth) {
  const std::vector<double> want = {0, 4, 2, 0, 3, 3, 0, 0};
  EXPECT_EQ(pruned({tensor({4, 2}, {1, 4, 2, 1, 3, 3, 0, 2}), false}, "2:4", 0), want);
  // The same matrix as [N, K].
  EXPECT_EQ(pruned({tensor({2, 4}, {1, 2, 3, 0, 4, 1, 3, 2}), true}, "2:4", 0),
            (std::vector<double>{0, 2, 3, 0, 4, 0, 3, 0}));
  Weights odd{tensor({3, 1}, {1, 2, 3}), false};
  EXPECT_EQ(prune(odd, *Scheme::parse("2:4"), 0, {Score::L1, 1, {}}).code(), ErrorCode::Unsupported);
}

TEST(Prune, WandaWeighsByInputsInEachColumn) {
  // By magnitude both elements of the first row would go.
  Weights w{tensor({2, 2}, {1, 2, 3, 4}), false};
  ASSERT_TRUE(prune(w, *Scheme::parse("unstructured"), 0.5, {Score::Wanda, 0, {5, 1}}).ok());
  EXPECT_EQ(valuesOf(w.tensor), (std::vector<double>{1, 2, 0, 0}));
  EXPECT_EQ(prune(w, *Scheme::parse("unstructured"), 0.5, {Score::Wanda, 0, {5}}).code(), ErrorCode::Invalid);
}

TEST(Prune, UnitsOfAllMatricesAreCompared) {
  EXPECT_EQ(ratiosOverAll({{1, 2, 3, 9}, {4, 5, 6, 7}}, 0.5), (std::vector<double>{0.75, 0.25})); // one stays of the first
  EXPECT_EQ(ratiosOverAll({{8, 9}, {1, 2}, {}}, 0.25), (std::vector<double>{0, 0.5, 0}));
  auto means = meanScores({tensor({1, 3}, {1, 3, 4}), false}, *Scheme::parse("block:1x2"), {});
  ASSERT_TRUE(means.ok());
  EXPECT_EQ(*means, (std::vector<double>{2, 4}));
}

TEST(SparseGpt, OtherWeightsMakeUpForWhatGoes) {
  // Both inputs are the same in all data: what one loses the other gains.
  Weights w{tensor({2, 1}, {1, 2}), false};
  auto solved = sparseGpt(w, *Scheme::parse("unstructured"), 0.5, {4, 4, 4, 4}, 1e-9, "w");
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(valuesOf(w.tensor)[0], 0);
  EXPECT_NEAR(valuesOf(w.tensor)[1], 3, 1e-6);
}

TEST(SparseGpt, InputsThatHaveNothingInCommonChangeNothing) {
  Weights w{tensor({4, 1}, {1, 4, 3, 2}), false};
  auto solved = sparseGpt(w, *Scheme::parse("2:4"), 0, {9, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}, 0, "w");
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->unseen, 1);
  // Costs w^2 times the diagonal: 9, 16, 9, and nothing of what was never seen.
  EXPECT_EQ(valuesOf(w.tensor), (std::vector<double>{0, 4, 3, 0}));
}

TEST(SparseGpt, Refusals) {
  Weights w{tensor({2, 1}, {1, INFINITY}), false};
  const Scheme scheme = *Scheme::parse("unstructured");
  EXPECT_EQ(sparseGpt(w, scheme, 0.5, {1, 0, 0, 1}, 0.01, "w").status().code(), ErrorCode::Unsupported);
  EXPECT_EQ(sparseGpt(w, *Scheme::parse("2:4"), 0.5, {1, 0, 0, 1}, 0.01, "w").status().code(), ErrorCode::Unsupported);
  Weights good{tensor({2, 1}, {1, 2}), false};
  EXPECT_EQ(sparseGpt(good, scheme, 0.5, {1, 0, 0}, 0.01, "w").status().code(), ErrorCode::Invalid);
  EXPECT_EQ(sparseGpt(good, scheme, 0.5, {1, 0, 0, NAN}, 0.01, "w").status().code(), ErrorCode::Invalid);
  EXPECT_EQ(valuesOf(good.tensor), (std::vector<double>{1, 2}));
}

TEST(Prune, InfinitiesAndNaNStay) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> got = pruned({tensor({1, 4}, {inf, NAN, 1, 2}), false}, "unstructured", 0.75);
  EXPECT_EQ(got[0], inf);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2] + got[3], 0);
}

TEST(Check, FirstOffenceIsTheElementThatIsOneTooMany) {
  Weights w{tensor({8, 1}, {1, 1, 0, 0, 1, 0, 1, 1}), false};
  auto offence = firstOffence(w, *Scheme::parse("2:4"));
  ASSERT_TRUE(offence.ok() && offence->has_value());
  EXPECT_EQ((*offence)->k, 7);
  EXPECT_EQ((*offence)->n, 0);
  EXPECT_EQ((*offence)->offending, 1);
  EXPECT_EQ((*offence)->groups, 2);
  w.tensor.setReal(7, 0);
  EXPECT_FALSE(firstOffence(w, *Scheme::parse("2:4"))->has_value());
  EXPECT_FALSE(firstOffence(w, *Scheme::parse("unstructured")).ok());
}

TEST(Loss, RelativeChange) {
  EXPECT_DOUBLE_EQ(relativeChange(tensor({2}, {3, 4}), tensor({2}, {3, 0})), 0.8);
  EXPECT_EQ(relativeChange(tensor({2}, {0, 0}), tensor({2}, {0, 0})), 0);
  EXPECT_DOUBLE_EQ(zeroShare(tensor({4}, {0, 1, 0, 0})), 0.75);
}

/// Two products: 4 columns of w1 that w2 sums over; `tie` couples more.
struct TwoProducts {
  Coupling coupling;
  Coupling::Dim in = coupling.add(3), columns = coupling.add(4), rows = coupling.add(4), out = coupling.add(2);
  TwoProducts() {
    for (int64_t i = 0; i < 4; ++i)
      coupling.tie(columns.at(i), rows.at(i));
    coupling.tensors = {{"w1", "", true, {in, columns}, {}}, {"w2", "", true, {rows, out}, {}}};
    coupling.layers = {{"first", columns}, {"second", out}};
    coupling.keep(in, "an input");
    coupling.keep(out, "a result");
  }
};

TEST(Coupling, ColumnsBetweenProductsAreAFamily) {
  TwoProducts two;
  std::vector<Family> found = families(two.coupling, two.coupling.kept());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].layers, std::vector<std::string>{"first"});
  EXPECT_EQ(found[0].units.size(), 4u);
  EXPECT_EQ(found[0].wide, 1);
  EXPECT_EQ(found[0].kind, UnitKind::Columns);
}

TEST(Coupling, WhatStaysKeepsItsUnitsAlone) {
  TwoProducts two;
  two.coupling.keep({two.rows.at(1), 1}, "this one");
  std::map<int64_t, std::string> kept = two.coupling.kept();
  EXPECT_EQ(kept.at(two.coupling.unitOf(two.columns.at(1))), "this one");
  EXPECT_EQ(families(two.coupling, kept)[0].units.size(), 3u);
  EXPECT_TRUE(families(two.coupling, two.coupling.kept({}, {{"w2", "a constant"}})).empty());
}

TEST(Coupling, HeadsAreUnitsOfSeveralElements) {
  TwoProducts two;
  Coupling::Dim heads = two.coupling.add(2);
  for (int64_t i = 0; i < 4; ++i)
    two.coupling.tie(heads.at(i / 2), two.columns.at(i));
  two.coupling.mark(heads, UnitKind::Heads);
  two.coupling.mark(two.columns, UnitKind::Channels); // heads they are all the same
  std::vector<Family> found = families(two.coupling, two.coupling.kept());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].units.size(), 2u);
  EXPECT_EQ(found[0].wide, 2);
  EXPECT_EQ(found[0].kind, UnitKind::Heads);
}

TEST(Coupling, PartsOfAConcatAreFamiliesOfTheirOwn) {
  TwoProducts two;
  Coupling::Dim other = two.coupling.add(4), both = two.coupling.add(8);
  for (int64_t i = 0; i < 4; ++i) {
    two.coupling.tie(two.columns.at(i), both.at(i));
    two.coupling.tie(other.at(i), both.at(4 + i));
  }
  two.coupling.tensors.push_back({"w3", "", true, {two.in, other}, {}});
  two.coupling.tensors.push_back({"c", "concat", false, {both}, {}});
  two.coupling.layers.push_back({"third", other});
  EXPECT_EQ(families(two.coupling, two.coupling.kept()).size(), 2u);
}

TEST(Coupling, UnitsThatStay) {
  EXPECT_EQ(unitsThatStay(12, 0.5, 1), 6);
  EXPECT_EQ(unitsThatStay(12, 0.99, 1), 1);
  EXPECT_EQ(unitsThatStay(12, 0.01, 1), 12);
  EXPECT_EQ(unitsThatStay(64, 0.3, 8), 48); // 45, up to a multiple
  EXPECT_EQ(unitsThatStay(15, 0.5, 8), 7);  // fewer than two of them: as it is
  EXPECT_EQ(unitsThatStay(20, 0.05, 8), 20);
}

TEST(Coupling, LeastUnits) {
  Family family;
  family.units = {3, 5, 7, 9};
  EXPECT_EQ(leastUnits(family, {{3, 2.0}, {5, 1.0}, {7, NAN}, {9, 1.0}}, 2), (std::set<int64_t>{5, 9}));
  EXPECT_EQ(leastUnits(family, {{3, 1.0}, {5, 1.0}, {7, 1.0}, {9, 1.0}}, 3), (std::set<int64_t>{3}));
  EXPECT_TRUE(leastUnits(family, {}, 4).empty());
}

TEST(Coupling, SlicesAndZeros) {
  HostTensor t = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(valuesOf(without(t, {{}, {1}})), (std::vector<double>{1, 3, 4, 6}));
  EXPECT_EQ(valuesOf(without(t, {{0}, {0, 2}})), (std::vector<double>{5}));
  clear(t, {{1}, {0}});
  EXPECT_EQ(valuesOf(t), (std::vector<double>{0, 2, 3, 0, 0, 0}));
}

TEST(Coupling, AxisScores) {
  HostTensor t = tensor({2, 3}, {1, -2, 3, -4, 5, 6}), g = tensor({2, 3}, {1, 1, 1, 1, -1, 0});
  EXPECT_EQ(axisScores(t, 0, Score::L1), (std::vector<double>{6, 15}));
  EXPECT_EQ(axisScores(t, 1, Score::L2), (std::vector<double>{17, 29, 45}));
  EXPECT_EQ(axisDots(t, g, 1), (std::vector<double>{-3, -7, 3}));
}

} // namespace
