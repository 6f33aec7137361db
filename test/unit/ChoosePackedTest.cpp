//===- ChoosePackedTest.cpp - which products read packed weights --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"

#include <gtest/gtest.h>

#include <tuple>

using namespace lathe;

namespace {

/// x [M, K] by codes of 4 bits [N, K] whose groups share scales.
KernelDesc product(int64_t m, int64_t k, int64_t group, int64_t n = 4096) {
  KernelDesc d;
  d.name = "k";
  d.kind = KernelDesc::Kind::Gemm;
  d.parallel = {m, n};
  d.reduction = {k};
  d.numInputs = 2;
  d.numOutputs = 1;
  d.buffers.resize(3);
  auto buffer = [&](int i, DType type, std::vector<DimExpr> dims) {
    d.buffers[i].dtype = type;
    d.buffers[i].dims = d.buffers[i].physical = dims;
  };
  buffer(0, DType::BF16, {m, k});
  buffer(1, DType::I4, {n, k});
  buffer(2, DType::BF16, d.parallel);
  d.operands.resize(2);
  d.operands[0].buffer = 0;
  d.operands[1].codes = 1;
  d.operands[1].codeGroup = group;
  d.operands[1].isWeight = d.operands[1].transposed = true;
  d.operands[0].dtype = d.operands[1].dtype = DType::BF16;
  return d;
}

std::string familyOf(const KernelDesc &d, const char *target) {
  auto all = chooseVariants(d, *Target::parse(target));
  if (!all.ok())
    return all.status().str();
  const KernelSpec &spec = all->front().spec;
  std::string family(KernelConfig::parse(spec.config)->family());
  const bool fragments = family == "gemm.packed" || family == "gemm.fragments" || family == "gemm.widened";
  EXPECT_EQ(spec.buffers[1].packing, fragments ? "fragments4" : "");
  EXPECT_LE(*spec.launches[0].sharedBytes.constant(), 227 << 10);
  return family;
}

TEST(Choose, WeightsOfFourBitsArePacked) {
  for (int64_t group : {0, 16, 32, 64, 128, 4096})
    for (auto [m, family] : {std::pair<int64_t, const char *>{1, "gemm.packed"}, {8, "gemm.packed"}, {16, "gemm.packed"},
                             {17, "gemm.widened"}, {64, "gemm.widened"}, {512, "gemm.widened"}})
      EXPECT_EQ(familyOf(product(m, 4096, group), "sm_90a"), family) << m << " rows, groups of " << group;
  EXPECT_EQ(familyOf(product(8, 14336, 128), "sm_90a"), "gemm.packed"); // a cluster splits K
  EXPECT_EQ(familyOf(product(16, 14336, 128), "sm_90a"), "gemm.packed");
  // Groups that no piece divides, depths that are no pieces, parameters of another kind, codes that come later.
  EXPECT_EQ(familyOf(product(1, 4096, 96), "sm_90a"), "gemv.row");
  EXPECT_EQ(familyOf(product(1, 4128, 32), "sm_90a"), "gemv.row");
  EXPECT_EQ(familyOf(product(1, 4096, -1), "sm_90a"), "gemv.row");
  EXPECT_EQ(familyOf(product(1, 4096, 128), "sm_80"), "gemv.row");
  KernelDesc later = product(1, 4096, 128);
  later.operands[1].isWeight = false;
  EXPECT_EQ(familyOf(later, "sm_90a"), "gemv.row");
}

// Blocks share a multiprocessor as far as registers reach, and its memory with as many as there are; clusters split K where
// tiles are few.
TEST(Choose, TilesOfPackedWeightsGoByRows) {
  for (auto [m, n, k, config] : {std::tuple<int64_t, int64_t, int64_t, const char *>{32, 6144, 4096, "gemm.widened.t288.v4.m32.n128.k128.s6.c4"},
                                 {64, 28672, 4096, "gemm.widened.t160.v4.m64.n64.k128.s3.c2"},
                                 {64, 4096, 4096, "gemm.widened.t160.v4.m64.n64.k128.s3.c4"},
                                 {128, 4096, 4096, "gemm.widened.t160.v4.m128.n64.k128.s6.c2"},
                                 {128, 6144, 4096, "gemm.widened.t288.v4.m128.n128.k128.s5.c2"},
                                 {256, 28672, 4096, "gemm.widened.t384.v4.m256.n128.k64.s6"}}) {
    auto all = chooseVariants(product(m, k, 128, n), *Target::parse("sm_90a"));
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(all->front().spec.config, config);
  }
}

// Few warps hold much of A each; more blocks of a cluster where it is long for the registers of two.
TEST(Choose, WarpsOfPackedWeightsOfFewRows) {
  for (auto [m, n, k, config] : {std::tuple<int64_t, int64_t, int64_t, const char *>{1, 28672, 4096, "gemm.packed.t512.r8.n112.k4.s2"},
                                 {1, 6144, 4096, "gemm.packed.t256.r8.n48.k8.s2"},
                                 {1, 4096, 14336, "gemm.packed.t256.r8.n64.k14.s2.c2"},
                                 {16, 28672, 4096, "gemm.packed.t256.r16.n48.k8.s2"},
                                 {16, 6144, 4096, "gemm.packed.t256.r16.n48.k8.s2"},
                                 {16, 4096, 4096, "gemm.packed.t256.r16.n32.k8.s2"},
                                 {16, 4096, 14336, "gemm.packed.t448.r16.n48.k4.s3.c4"}}) {
    auto all = chooseVariants(product(m, k, 128, n), *Target::parse("sm_90a"));
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(all->front().spec.config, config);
  }
  auto shortGroups = chooseVariants(product(1, 4096, 32, 28672), *Target::parse("sm_90a"));
  ASSERT_TRUE(shortGroups.ok());
  EXPECT_EQ(shortGroups->front().spec.config, "gemm.packed.t512.r8.n112.k4.s2");
}

// A stage is loaded ahead of the two that are held, of weights of 8 bits as well.
TEST(Choose, TilesOfPackedBytesLoadAhead) {
  for (auto [n, k, config] : {std::tuple<int64_t, int64_t, const char *>{4096, 4096, "gemm.widened.t160.v8.m128.n64.k128.s5.c2"},
                              {4096, 14336, "gemm.widened.t160.v8.m128.n64.k128.s5.c2"},
                              {28672, 4096, "gemm.widened.t288.v8.m128.n128.k128.s4"}}) {
    KernelDesc d = product(128, k, 0, n);
    d.buffers[1].dtype = DType::I8;
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(all->front().spec.config, config);
  }
}

// Tiles of a variant go by the most rows that it takes, not by the most of the product.
TEST(Choose, TilesOfPackedWeightsOfEachVariantGoByItsRows) {
  KernelDesc d = product(1, 4096, 128);
  DimExpr rows = DimExpr::symbol("M");
  d.parallel[0] = d.buffers[0].dims[0] = d.buffers[0].physical[0] = d.buffers[2].dims[0] = d.buffers[2].physical[0] = rows;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  for (int64_t upTo : {32, 64, 128}) {
    auto alone = chooseVariants(product(upTo, 4096, 128), *Target::parse("sm_90a"));
    ASSERT_TRUE(alone.ok());
    bool found = false;
    for (const KernelVariant &v : *all)
      found |= v.spec.config == alone->front().spec.config;
    EXPECT_TRUE(found) << alone->front().spec.config;
  }
}

TEST(Choose, WeightsOfEightBitsArePackedForMoreRows) {
  for (auto [m, family] : {std::pair<int64_t, const char *>{16, "gemm.skinny"}, {17, "gemm.widened"}, {512, "gemm.widened"}}) {
    KernelDesc d = product(m, 4096, 0);
    d.buffers[1].dtype = DType::I8;
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(KernelConfig::parse(all->front().spec.config)->family(), family) << m;
  }
}

// All variants read the same packing: none that never runs brings the weights a second time.
TEST(Choose, WeightsOfFourBitsAreInAnEngineOnce) {
  KernelDesc d = product(1, 4096, 128);
  DimExpr rows = DimExpr::symbol("M");
  d.parallel[0] = d.buffers[0].dims[0] = d.buffers[0].physical[0] = d.buffers[2].dims[0] = d.buffers[2].physical[0] = rows;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 6u);
  for (const KernelVariant &v : *all)
    EXPECT_EQ(v.spec.buffers[1].packing, "fragments4") << v.spec.config;
}

} // namespace
