//===- ChooseSparseTest.cpp - which products leave out zeros on GPUs --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"
#include "lathe/support/BlockSteps.h"

#include <gtest/gtest.h>

#include <tuple>

using namespace lathe;

namespace {

/// x [M, K] by 2:4 sparse weights [N, K].
KernelDesc product(DimExpr m, int64_t n = 4096, int64_t k = 4096, DType type = DType::BF16) {
  KernelDesc d;
  d.name = "k";
  d.kind = KernelDesc::Kind::Gemm;
  d.parallel = {m, n};
  d.reduction = {k};
  d.numInputs = 2;
  d.numOutputs = 1;
  d.resultInPlace = d.resultBare = true;
  d.buffers.resize(3);
  auto buffer = [&](int i, std::vector<DimExpr> dims) {
    d.buffers[i].dtype = type;
    d.buffers[i].dims = d.buffers[i].physical = dims;
  };
  buffer(0, {m, k});
  buffer(1, {n, k});
  buffer(2, d.parallel);
  d.operands.resize(2);
  d.operands[0].buffer = 0;
  d.operands[1].buffer = 1;
  d.operands[1].isWeight = d.operands[1].transposed = d.operands[1].twoOfFour = true;
  d.operands[0].dtype = d.operands[1].dtype = type;
  d.alwaysSparse = true;
  return d;
}

std::vector<KernelVariant> variantsOf(const KernelDesc &d, const char *target = "sm_90a") {
  auto all = chooseVariants(d, *Target::parse(target));
  EXPECT_TRUE(all.ok()) << all.status().str();
  return all.ok() ? *all : std::vector<KernelVariant>();
}

/// Codes of 8 bits with results of bf16.
KernelDesc productOfBytes(DimExpr m, DType type, bool reducedSums) {
  KernelDesc d = product(m, 4096, 4096, type);
  d.buffers[2].dtype = DType::BF16;
  d.resultBare = false;
  d.allowReducedSums = reducedSums;
  return d;
}

bool isSparse(const KernelVariant &v) { return KernelConfig::parse(v.spec.config)->form->product.sparse; }

TEST(ChooseSparse, ZerosAreLeftOutWhereThatIsAskedFor) {
  for (int64_t m : {1, 8, 16, 17, 64, 200, 2048, 8192})
    for (int64_t n : {64, 1000, 4096, 28672}) {
      for (const KernelVariant &v : variantsOf(product(m, n))) {
        EXPECT_TRUE(isSparse(v)) << v.spec.config;
        EXPECT_EQ(v.spec.buffers[1].packing, "sparse24t");
        EXPECT_LE(*v.spec.launches[0].sharedBytes.constant(), 227 << 10);
        EXPECT_EQ(KernelConfig::parse(v.spec.config)->form->product.fewRows, false);
        EXPECT_EQ(v.spec.tensorMaps.size(), m <= 16 ? 0u : 4u) << v.spec.config;
      }
    }
  for (KernelDesc d : {product(64, 4096, 4096, DType::F16), product(4, 4096, 14336)})
    EXPECT_TRUE(isSparse(variantsOf(d).front()));
}

TEST(ChooseSparse, ElementsOfEightBits) {
  for (auto [type, reduced, promoted] : {std::tuple(DType::F8E4M3FN, false, true), {DType::F8E4M3FN, true, false},
                                         {DType::F8E5M2, false, true}, {DType::I8, false, false}, {DType::UI8, true, false}})
    for (int64_t m : {1, 16, 200, 8192})
      for (const KernelVariant &v : variantsOf(productOfBytes(m, type, reduced))) {
        const KernelConfig c = *KernelConfig::parse(v.spec.config);
        EXPECT_TRUE(c.form->product.sparse) << v.spec.config;
        EXPECT_EQ(c.form->wgmma.promoted, promoted) << v.spec.config;
        EXPECT_EQ(c.tileK, 128);
        EXPECT_EQ(v.spec.buffers[1].packing, "sparse24x8t");
        EXPECT_LE(*v.spec.launches[0].sharedBytes.constant(), 227 << 10);
      }
  // Results that TMA does not store transposed, sums scaled by blocks.
  KernelDesc wide = productOfBytes(200, DType::I8, false), scaled = productOfBytes(200, DType::F8E4M3FN, false);
  wide.buffers[2].dtype = DType::I32;
  scaled.blockScales = true;
  for (const KernelDesc &d : {wide, scaled})
    for (const KernelVariant &v : variantsOf(d))
      EXPECT_FALSE(isSparse(v)) << v.spec.config;
}

// test/perf/gpu/results/sparse-h100.log.
TEST(ChooseSparse, TilesThatWereTheFastest) {
  for (auto [m, n, k, config] : {std::tuple<int64_t, int64_t, int64_t, const char *>{8192, 8192, 8192, "gemm.sparse.cooperative.t384.m192.n256.k64.s4"},
                                 {4096, 4096, 4096, "gemm.sparse.cooperative.t384.m256.n128.k64.s5"},
                                 {2048, 4096, 14336, "gemm.sparse.cooperative.t384.m256.n128.k64.s5"},
                                 {64, 28672, 4096, "gemm.sparse.cooperative.t384.m64.n256.k64.s7"},
                                 {8, 4096, 4096, "gemm.sparse.few.t256.v8.r8.n32.k8.s2"},
                                 {1, 4096, 14336, "gemm.sparse.few.t256.v7.r8.n64.k14.s3.c2"}})
    EXPECT_EQ(variantsOf(product(m, n, k)).front().spec.config, config) << m << " x " << n << " x " << k;
}

TEST(ChooseSparse, AnyNumberOfRows) {
  KernelDesc d = product(DimExpr::symbol("M"));
  d.symbols["M"] = {0, DimRange::kUnbounded};
  std::vector<KernelVariant> all = variantsOf(d);
  ASSERT_GE(all.size(), 3u);
  EXPECT_TRUE(all.back().guard.empty());
  for (const KernelVariant &v : all) // one form of the weights
    EXPECT_EQ(v.spec.buffers[1].packing, "sparse24t") << v.spec.config;
}

TEST(ChooseSparse, OtherwiseTheProductIsDense) {
  auto dense = [](KernelDesc d, const char *target = "sm_90a") {
    for (const KernelVariant &v : variantsOf(d, target)) {
      EXPECT_FALSE(isSparse(v)) << v.spec.config;
      EXPECT_EQ(v.spec.buffers[1].packing, "");
    }
  };
  for (int64_t m : {1, 2048}) {
    KernelDesc automatic = product(m), unknown = product(m), input = product(m), batches = product(m);
    automatic.alwaysSparse = false;
    unknown.operands[1].twoOfFour = false;
    input.operands[1].isWeight = false;
    dense(automatic);
    dense(unknown);
    dense(input);
    dense(product(m), "sm_80");
    KernelDesc packed = product(m, 4096, 4096, DType::F32);
    dense(packed);
  }
}

TEST(ChooseSparse, ConfigurationsCanBeAskedFor) {
  KernelDesc d = product(2048);
  d.alwaysSparse = false;
  for (const char *config : {"gemm.sparse.cooperative.m128.n256", "gemm.sparse.cooperative.m128.n256.c2", "gemm.sparse.pingpong.m96.n128",
                             "gemm.sparse.pingpong.m128.n192.c2", "gemm.sparse.cooperative.streamk.m256.n128"}) {
    d.wanted = config;
    std::vector<KernelVariant> all = variantsOf(d);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.front().spec.config.find(std::string(config).substr(0, 20)), 0u) << all.front().spec.config;
  }
  d.wanted = "gemm.sparse.few";
  EXPECT_FALSE(chooseVariants(d, *Target::parse("sm_90a")).ok());
  d = product(3);
  d.wanted = "gemm.sparse.few.t256.v2.n64.c2";
  EXPECT_EQ(variantsOf(d).front().spec.config.find("gemm.sparse.few.t256.v2.r8.n64.k4."), 0u) << variantsOf(d).front().spec.config;
}

// ---- Rows of which many elements are zero in a run ----

KernelDesc inactive(int64_t n, int64_t k, DType type = DType::BF16) {
  KernelDesc d = product(1, n, k, type);
  d.operands[1].twoOfFour = false;
  d.operands[0].inactive = true;
  return d;
}

bool isActive(const KernelVariant &v) { return KernelConfig::parse(v.spec.config)->form->product.leavesOutInputs; }

TEST(ChooseActive, WeightsOfZerosAreNotRead) {
  for (const char *target : {"sm_90a", "sm_80"})
    for (DType type : {DType::BF16, DType::F16, DType::F32})
      for (auto [n, k] : {std::pair<int64_t, int64_t>{28672, 4096}, {4096, 14336}, {100, 33}, {1, 70}}) {
        std::vector<KernelVariant> all = variantsOf(inactive(n, k, type), target);
        ASSERT_EQ(all.size(), 1u);
        EXPECT_TRUE(isActive(all[0])) << all[0].spec.config;
        const KernelConfig c = *KernelConfig::parse(all[0].spec.config);
        EXPECT_EQ(all[0].spec.buffers[1].packing, "panels" + std::to_string(c.tileN) + "t");
        const int64_t blocks = (n + c.tileN - 1) / c.tileN * c.tileK;
        EXPECT_EQ(all[0].spec.launches[0].grid[0], DimExpr(blocks));
        EXPECT_EQ(all[0].spec.launches[0].cluster[0], c.tileK);
        if (target == std::string("sm_80"))
          EXPECT_EQ(c.tileK, 1);
      }
}

TEST(ChooseActive, OtherwiseTheProductIsDense) {
  KernelDesc several = inactive(4096, 4096), unknown = several, input = several, invariant = several, automatic = inactive(512, 512);
  several.parallel.front() = 2;
  several.buffers[0].dims[0] = several.buffers[0].physical[0] = 2;
  unknown.operands[0].inactive = false;
  input.operands[1].isWeight = false;
  automatic.alwaysSparse = false; // too few weights
  invariant.batchInvariant = true;
  for (const KernelDesc &d : {several, unknown, input, automatic, invariant})
    for (const KernelVariant &v : variantsOf(d))
      EXPECT_FALSE(isActive(v)) << v.spec.config;
}

TEST(ChooseActive, ConfigurationsCanBeAskedFor) {
  KernelDesc d = inactive(28672, 4096);
  for (const char *config : {"gemv.active.t512.n256.k2.s4", "gemv.active.t256.n128.k1.s8"}) {
    d.wanted = config;
    EXPECT_EQ(variantsOf(d).front().spec.config, config);
  }
  for (const char *config : {"gemv.active.t128", "gemv.active.n64", "gemv.active.k3", "gemv.active.k16", "gemv.active.s17"}) {
    d.wanted = config;
    EXPECT_FALSE(chooseVariants(d, *Target::parse("sm_90a")).ok()) << config;
  }
}

// ---- Blocks of zeros ---------------------------------------------------------------------

/// Of 64 x 64 blocks of the weights a share is zero.
KernelDesc blocks(KernelDesc d, double zeros) {
  ContractionOperand &b = d.operands[1];
  const int64_t columns = d.buffers[1].dims[b.transposed ? 0 : 1].constant().value(), depth = d.reduction[0].constant().value();
  auto [most, steps] = BlockSteps::most(depth, columns);
  b.twoOfFour = false;
  b.blocks64 = int64_t(double(most) * (1 - zeros));
  b.blockSteps = int64_t(double(steps) * (1 - zeros * zeros));
  return d;
}

bool isBlockSparse(const KernelVariant &v) { return KernelConfig::parse(v.spec.config)->form->product.blockSparse; }

TEST(ChooseBlocks, ZerosAreLeftOutWhereThatIsAskedFor) {
  for (int64_t m : {1, 16, 17, 200, 2048, 8192})
    for (int64_t n : {64, 1000, 4096})
      for (const KernelVariant &v : variantsOf(blocks(product(m, n), 0.75))) {
        EXPECT_TRUE(isBlockSparse(v)) << v.spec.config;
        EXPECT_EQ(v.spec.buffers[1].packing.substr(0, 6), "bsr64c");
        EXPECT_EQ(v.spec.buffers[1].packing.back(), 't');
        EXPECT_LE(*v.spec.launches[0].sharedBytes.constant(), 227 << 10);
        EXPECT_EQ(v.spec.tensorMaps.size(), 2u); // A, results
      }
  // Kernels know nothing of how many blocks there are but what their room is.
  const std::string packing = variantsOf(blocks(product(2048), 0.75)).front().spec.buffers[1].packing;
  EXPECT_EQ(packing, "bsr64c1024t");
}

TEST(ChooseBlocks, AnyNumberOfRows) {
  KernelDesc d = product(DimExpr::symbol("M"));
  d.symbols["M"] = {0, DimRange::kUnbounded};
  std::vector<KernelVariant> all = variantsOf(blocks(d, 0.9));
  ASSERT_GE(all.size(), 3u);
  EXPECT_TRUE(all.back().guard.empty());
  for (const KernelVariant &v : all) // one form of the weights
    EXPECT_EQ(v.spec.buffers[1].packing, all.front().spec.buffers[1].packing) << v.spec.config;
}

TEST(ChooseBlocks, OtherwiseTheProductIsDense) {
  for (int64_t m : {1, 2048}) {
    KernelDesc automatic = blocks(product(m), m == 1 ? 0.75 : 0.02), input = blocks(product(m), 0.75),
               wide = blocks(product(m, 4096, 4096, DType::F32), 0.75);
    automatic.alwaysSparse = false;
    input.operands[1].isWeight = false;
    for (const KernelDesc &d : {automatic, input, wide})
      for (const KernelVariant &v : variantsOf(d))
        EXPECT_FALSE(isBlockSparse(v)) << v.spec.config;
    for (const KernelVariant &v : variantsOf(blocks(product(m), 0.75), "sm_80"))
      EXPECT_FALSE(isBlockSparse(v)) << v.spec.config;
  }
}

// Results stay what they are, infinities and all: a launch ahead finds the rows that have some.
TEST(ChooseBlocks, RowsAreLookedThroughWhereThatPays) {
  for (DimExpr m : {DimExpr(2048), DimExpr::symbol("M")}) {
    KernelDesc d = blocks(product(m, 4096, 4096), 0.75);
    d.symbols["M"] = {17, DimRange::kUnbounded};
    d.alwaysSparse = false;
    std::vector<KernelVariant> all = variantsOf(d);
    ASSERT_FALSE(all.empty());
    for (const KernelVariant &v : all) {
      EXPECT_TRUE(isBlockSparse(v)) << v.spec.config;
      EXPECT_NE(v.spec.config.find(".checked"), std::string::npos) << v.spec.config;
      ASSERT_EQ(v.spec.launches.size(), 2u);
      EXPECT_EQ(v.spec.launches[0].block[0], DimExpr(256));
      EXPECT_EQ(v.spec.workspaceBytes, m * DimExpr(2 * 4)); // a bit for each 64 of 4096
      EXPECT_EQ(v.spec.buffers.back().dims[0], v.spec.workspaceBytes);
    }
  }
}

// A launch ahead costs more than what is left out of a step of a decoder.
TEST(ChooseBlocks, ProductsThatMayHaveFewRowsStayDense) {
  KernelDesc d = blocks(product(DimExpr::symbol("M"), 4096, 4096), 0.75);
  d.symbols["M"] = {1, DimRange::kUnbounded};
  d.alwaysSparse = false;
  for (const KernelVariant &v : variantsOf(d))
    EXPECT_FALSE(isBlockSparse(v)) << v.spec.config;
}

TEST(ChooseBlocks, FewerOperationsWinOverTwoOfFour) {
  for (double zeros : {0.2, 0.75}) {
    KernelDesc d = blocks(product(2048), zeros);
    d.operands[1].twoOfFour = true;
    EXPECT_EQ(isBlockSparse(variantsOf(d).front()), zeros > 0.5);
  }
}

} // namespace
