//===- ChooseTest.cpp - configurations for kernels ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Config.h"
#include "lathe/codegen/KernelDesc.h"

#include <gtest/gtest.h>

using namespace lathe;

namespace {

DimExpr dim(const char *text) { return *DimExpr::parse(text); }

KernelDesc desc(KernelDesc::Kind kind, DType type, std::vector<DimExpr> parallel,
                std::vector<DimExpr> reduction = {}) {
  KernelDesc d;
  d.name = "k";
  d.kind = kind;
  d.parallel = parallel;
  d.reduction = reduction;
  d.numInputs = d.numOutputs = 1;
  BufferArg b;
  b.dtype = type;
  b.dims = b.physical = parallel;
  d.buffers = {b, b};
  for (const DimExpr &e : parallel) {
    std::set<std::string> names;
    e.collectSymbols(names);
    for (const std::string &n : names)
      d.symbols[n] = DimRange{0, 4096};
  }
  return d;
}

KernelDesc gemm(DType type, const char *m, int64_t n, int64_t k) {
  KernelDesc d = desc(KernelDesc::Kind::Gemm, type, {dim(m), n}, {k});
  ContractionOperand a, b;
  a.buffer = 0;
  a.dtype = b.dtype = type;
  b.buffer = 0;
  b.isWeight = true;
  d.operands = {a, b};
  return d;
}

/// The variant that a run with these sizes takes.
const KernelVariant &pick(const std::vector<KernelVariant> &all, std::map<std::string, int64_t> sizes) {
  for (const KernelVariant &v : all) {
    bool holds = true;
    for (const DimCondition &c : v.guard) {
      int64_t l = *c.lhs.evaluate(sizes), r = *c.rhs.evaluate(sizes);
      holds &= c.kind == DimCondition::Kind::LessEqual ? l <= r
               : c.kind == DimCondition::Kind::Equal   ? l == r
                                                       : l % r == 0;
    }
    if (holds)
      return v;
  }
  ADD_FAILURE() << "no variant holds";
  return all.back();
}

std::string familyOf(const KernelVariant &v) { return KernelConfig::parse(v.spec.config)->family; }

TEST(Config, RoundTrips) {
  for (const char *name : {"pointwise.t128.v8", "gemm.mma.t128.m64.n64.k32.s4", "scatter", "row.t160.v8"}) {
    Result<KernelConfig> c = KernelConfig::parse(name);
    ASSERT_TRUE(c.ok()) << name;
    EXPECT_EQ(c->str(), name);
  }
  EXPECT_FALSE(KernelConfig::parse("row.q7").ok());
  EXPECT_FALSE(KernelConfig::parse("").ok());
}

TEST(Config, MmaWarpsDivideTheTile) {
  KernelConfig c = *KernelConfig::parse("gemm.mma.t256.m128.n128.k32.s4");
  MmaWarps w = mmaWarps(c);
  EXPECT_EQ(w.m, 2);
  EXPECT_EQ(w.n, 4);
  EXPECT_EQ(mmaSharedBytes(c), 128 * 136 * 4);
}

TEST(Choose, FewAndManyRowsTakeDifferentKernels) {
  for (const char *target : {"sm_80", "sm_90a"})
    for (DType type : {DType::F32, DType::BF16}) {
      auto all = chooseVariants(gemm(type, "M", 4096, 4096), *Target::parse(target));
      ASSERT_TRUE(all.ok());
      EXPECT_TRUE(all->back().guard.empty());
      EXPECT_EQ(familyOf(pick(*all, {{"M", 1}})), "gemv.across");
      EXPECT_EQ(familyOf(pick(*all, {{"M", 512}})), type == DType::F32 ? "gemm.simt" : "gemm.mma");
      EXPECT_NE(pick(*all, {{"M", 64}}).spec.config, pick(*all, {{"M", 4096}}).spec.config);
      std::set<std::string> functions;
      for (const KernelVariant &v : *all)
        EXPECT_TRUE(functions.insert(v.spec.launches[0].function).second);
    }
}

TEST(Choose, GridCoversTheOutput) {
  auto all = chooseVariants(gemm(DType::BF16, "M", 100, 64), *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  const KernelSpec &s = pick(*all, {{"M", 65}}).spec;
  EXPECT_EQ(*s.launches[0].grid[0].evaluate({{"M", 65}}), 2 * 2);
  auto flat = chooseVariants(desc(KernelDesc::Kind::Pointwise, DType::BF16, {dim("M"), 768}),
                             *Target::parse("sm_90a"));
  ASSERT_TRUE(flat.ok());
  EXPECT_EQ(flat->size(), 1u);
  EXPECT_EQ(flat->front().spec.config, "pointwise.t128.v8");
  EXPECT_EQ(*flat->front().spec.launches[0].grid[0].evaluate({{"M", 3}}), 3);
}

TEST(Choose, UnknownRowLengthHasNoLanes) {
  auto all = chooseVariants(desc(KernelDesc::Kind::Reduction, DType::F32, {dim("M")}, {dim("N")}),
                            *Target::parse("sm_80"));
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 1u);
  EXPECT_EQ(KernelConfig::parse(all->front().spec.config)->lanes, 1);
}

TEST(Choose, TransposesInTiles) {
  KernelDesc d = desc(KernelDesc::Kind::Pointwise, DType::BF16, {8, 96, 100});
  d.inputContiguous = 1;
  d.inputContiguousType = DType::BF16;
  auto all = chooseVariants(d, *Target::parse("sm_80"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->front().spec.config, "transpose.t256.m32");
  EXPECT_EQ(all->front().spec.launches[0].grid[0], DimExpr(8 * 3 * 4));
  d.parallel[2] = 104;
  all = chooseVariants(d, *Target::parse("sm_80"));
  EXPECT_EQ(all->front().spec.config, "transpose.t256.v8.m128");
}

TEST(Choose, AttentionBySizes) {
  KernelDesc d = desc(KernelDesc::Kind::Attention, DType::F32, {dim("B"), 8, dim("S"), 64}, {dim("S + P"), 64});
  d.operands.resize(3);
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(familyOf(pick(*all, {{"B", 1}, {"S", 1}})), "attention.decode");
  EXPECT_EQ(familyOf(pick(*all, {{"B", 1}, {"S", 100}})), "attention.stream");
  d.reduction[1] = dim("D");
  all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(familyOf(all->back()), "pointwise");
}

TEST(Choose, RowsOfAllBatchesAreOneMatrix) {
  KernelDesc d = gemm(DType::F32, "S", 4096, 4096);
  d.parallel.insert(d.parallel.begin(), dim("B"));
  d.symbols["B"] = DimRange{0, 64};
  d.buffers[0].dims = {4096, 4096};
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(str(all->front().guard), "B*S <= 4");
}

TEST(Choose, SerialIsOneBlock) {
  KernelDesc d = desc(KernelDesc::Kind::Pointwise, DType::F32, {4});
  d.serial = d.dataIndices = true;
  for (const char *target : {"sm_80", "x86-64-v3"}) {
    auto all = chooseVariants(d, *Target::parse(target));
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(familyOf(all->front()), "scatter");
    EXPECT_EQ(all->front().spec.launches[0].grid[0], DimExpr(1));
    EXPECT_TRUE(all->front().spec.status);
  }
}

TEST(Choose, CpuPacksConstantWeights) {
  KernelDesc d = gemm(DType::F32, "M", 100, 64);
  d.buffers[0].dims = d.buffers[0].physical = {64, 100};
  auto all = chooseVariants(d, *Target::parse("x86-64-v4"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->back().spec.buffers[0].packing, "panels32");
  // Panels need sizes that are known.
  d.buffers[0].dims = d.buffers[0].physical = {64, dim("N")};
  all = chooseVariants(d, *Target::parse("x86-64-v4"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->back().spec.buffers[0].packing, "");
}

} // namespace
