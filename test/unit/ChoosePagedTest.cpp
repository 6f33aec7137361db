//===- ChoosePagedTest.cpp - kernels of steps over pages --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace lathe;

namespace {

DimExpr dim(const char *text) { return *DimExpr::parse(text); }

BufferArg matrix(std::vector<DimExpr> dims) {
  BufferArg b;
  b.dtype = DType::BF16;
  b.dims = b.physical = std::move(dims);
  return b;
}

/// Of T tokens of R sequences, whose tables name M of N pages.
KernelDesc desc(KernelDesc::Kind kind, std::vector<DimExpr> parallel, std::vector<DimExpr> reduction) {
  KernelDesc d;
  d.name = "k";
  d.kind = kind;
  d.numInputs = d.numOutputs = 1;
  d.buffers = {matrix(parallel), matrix(parallel)};
  d.parallel = std::move(parallel);
  d.reduction = std::move(reduction);
  for (const char *symbol : {"M", "N", "R", "T"})
    d.symbols[symbol] = DimRange{1, 4096};
  return d;
}

/// The first variant that holds for these sizes.
const KernelVariant &pick(const std::vector<KernelVariant> &all, const std::map<std::string, int64_t> &sizes) {
  for (const KernelVariant &v : all)
    if (std::all_of(v.guard.begin(), v.guard.end(),
                    [&](const DimCondition &c) { return *c.lhs.evaluate(sizes) <= *c.rhs.evaluate(sizes); }))
      return v;
  ADD_FAILURE() << "no variant holds";
  return all.back();
}

std::string familyOf(const KernelVariant &v) { return std::string(KernelConfig::parse(v.spec.config)->family()); }

/// Tokens of sequences in pages: one token each, or several; of one order of sums, the same kernel for both.
TEST(ChoosePaged, TokensOfManySequencesShareKeys) {
  KernelDesc d = desc(KernelDesc::Kind::Attention, {dim("T"), 8, 4, 128}, {dim("16*M"), 128});
  ContractionOperand q{.buffer = 0, .dtype = DType::BF16}, k{.sixteens = true, .pages = 0, .pageStride = 1024, .pageRows = dim("64*N"), .dtype = DType::BF16};
  d.operands = {q, k, k};
  d.plainScores = d.sharesKeys = true;
  d.sequences = dim("R");
  for (const char *target : {"sm_80", "sm_90a"}) {
    auto all = chooseVariants(d, *Target::parse(target));
    ASSERT_TRUE(all.ok()) << all.status().str();
    const KernelSpec &prompt = pick(*all, {{"T", 70}, {"R", 3}, {"M", 9}, {"N", 99}}).spec;
    EXPECT_EQ(prompt.launches.size(), 2u);
    EXPECT_EQ(*prompt.launches[1].grid[0].evaluate({{"T", 2}}), 16);
    EXPECT_EQ(*prompt.workspaceBytes.evaluate({{"T", 70}}), 64 * 70 + 16 + 128 * 8 * (8 + 4 * 128 * (64 + 4)));
    EXPECT_EQ(prompt.config, std::string("attention.ragged.t128.m64.n4.s") + (target == std::string("sm_80") ? "2" : "3"));
    const bool clusters = Target::parse(target)->hasClusters();
    EXPECT_EQ(familyOf(pick(*all, {{"T", 70}, {"R", 70}, {"M", 9}, {"N", 99}})), clusters ? "attention.streamk" : "attention.ragged");
    if (!clusters)
      continue;
    // Equal shares of the keys: lines of as many blocks for any number of sequences, and what each of a line hands over.
    EXPECT_EQ(familyOf(pick(*all, {{"T", 2}, {"R", 2}, {"M", 9}, {"N", 99}})), "attention.split");
    const KernelVariant &answers = pick(*all, {{"T", 70}, {"R", 70}, {"M", 9}, {"N", 99}});
    EXPECT_EQ(familyOf(answers), "attention.streamk");
    const int64_t blocks = 2 * Target::parse(target)->smCount;
    EXPECT_EQ(answers.spec.launches[0].grid[0].constant(), blocks);
    EXPECT_EQ(*answers.spec.launches[0].grid[1].evaluate({{"T", 70}}), (8 * 70 + blocks - 1) / blocks);
    EXPECT_EQ(answers.spec.workspaceBytes.constant(), (8 * blocks + 15) / 16 * 16 + blocks * 4 * 8 * (128 + 2));
    d.wanted = "attention.split"; // a block a head is asked for
    all = chooseVariants(d, *Target::parse(target));
    d.wanted.clear();
    ASSERT_TRUE(all.ok()) << all.status().str();
    EXPECT_EQ(familyOf(pick(*all, {{"T", 70}, {"R", 70}, {"M", 9}, {"N", 99}})), "attention.split");
  }
  d.batchInvariant = true;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok()) << all.status().str();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->back().spec.config, "attention.ragged.t256.m16.n4.s3");
  // Of few sequences that have one token each, no list is made, and clusters share their keys.
  const KernelSpec &few = pick(*all, {{"T", 3}, {"R", 3}, {"M", 9}, {"N", 99}}).spec;
  EXPECT_EQ(few.config, "attention.ragged.t32.r8.m16.n4.s8");
  ASSERT_EQ(few.launches.size(), 1u);
  EXPECT_EQ(*few.launches[0].grid[0].evaluate({{"T", 3}}), 3 * 8 * 8);
  EXPECT_EQ(few.launches[0].cluster[0], 8);
  for (auto [tokens, sequences] : {std::pair<int64_t, int64_t>{4, 3}, {5, 5}, {70, 70}})
    EXPECT_EQ(pick(*all, {{"T", tokens}, {"R", sequences}, {"M", 9}, {"N", 99}}).spec.launches.size(), 2u);
}

/// Tiles are copied as numbers of 16 bits: codes are read token by token.
TEST(ChoosePaged, PagesOfCodesAreReadTokenByToken) {
  KernelDesc d = desc(KernelDesc::Kind::Attention, {dim("T"), 8, 4, 128}, {dim("16*M"), 128});
  ContractionOperand q{.buffer = 0, .dtype = DType::BF16}, k{.sixteens = true, .pages = 0, .pageStride = 1024, .pageRows = dim("64*N"), .dtype = DType::BF16};
  k.codeBits = 8;
  d.operands = {q, k, k};
  d.plainScores = d.sharesKeys = true;
  d.sequences = dim("R");
  for (bool batchInvariant : {false, true}) {
    d.batchInvariant = batchInvariant;
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    ASSERT_TRUE(all.ok()) << all.status().str();
    for (const KernelVariant &v : *all)
      EXPECT_EQ(familyOf(v), "attention.split");
  }
}

/// The parts of K and their order are the same for any number of rows, the shapes of tiles are not.
TEST(ChoosePaged, BatchInvariantProductsHaveOneOrderOfSums) {
  for (auto [n, k] : {std::pair<int64_t, int64_t>{4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}}) {
    KernelDesc d = desc(KernelDesc::Kind::Gemm, {dim("T"), n}, {k});
    d.buffers = {matrix({dim("T"), k}), matrix({n, k}), matrix({dim("T"), n})};
    d.numInputs = 2;
    d.operands = {{.buffer = 0, .dtype = DType::BF16}, {.buffer = 1, .isWeight = true, .transposed = true, .dtype = DType::BF16}};
    d.batchInvariant = true;
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    ASSERT_TRUE(all.ok()) << all.status().str();
    EXPECT_TRUE(all->back().guard.empty());
    std::set<int64_t> parts;
    for (const KernelVariant &v : *all) {
      KernelConfig c = *KernelConfig::parse(v.spec.config);
      EXPECT_TRUE(c.family() == "gemm.split" || c.family() == "gemm.cooperative.parts" ||
                  (c.cluster == 1 && (c.family() == "gemm.cooperative" || c.family() == "gemm.pingpong")))
          << v.spec.config;
      EXPECT_EQ(v.spec.launches[0].cluster[0], c.family() == "gemm.split" ? c.cluster : 1);
      EXPECT_TRUE(v.otherwise.empty());
      parts.insert(c.cluster);
    }
    EXPECT_EQ(parts.size(), 1u) << n;
    for (int64_t few : {1, 9, 33, 64})
      EXPECT_EQ(familyOf(pick(*all, {{"T", few}})), "gemm.split") << n;
    EXPECT_NE(familyOf(pick(*all, {{"T", 2048}})), "gemm.split") << n;
    // Blocks of a cluster run together: those of a step of answers all at a time.
    const int64_t blocks = *pick(*all, {{"T", 1}}).spec.launches[0].grid[0].evaluate({{"T", 1}});
    EXPECT_TRUE(*parts.begin() == 1 || blocks <= (*parts.begin() == 4 ? 112 : 132)) << n;
  }
}

} // namespace
