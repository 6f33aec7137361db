//===- ChooseTest.cpp - configurations for kernels -------------- -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ChooseFixture.h"

#include <cmath>

using namespace lathe;
using namespace lathe::test;

namespace {

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
  EXPECT_EQ(c.form->sharedBytes(c, {}), 128 * 136 * 4);
}

TEST(Choose, FewAndManyRowsTakeDifferentKernels) {
  for (const char *target : {"sm_80", "sm_90a"})
    for (DType type : {DType::F32, DType::BF16}) {
      auto all = chooseVariants(gemm(type, "M", 4096, 4096), *Target::parse(target));
      ASSERT_TRUE(all.ok());
      EXPECT_TRUE(all->back().guard.empty());
      bool hopper = std::string(target) == "sm_90a" && type == DType::BF16;
      EXPECT_EQ(familyOf(pick(*all, {{"M", 1}})), hopper ? "gemv.columns" : "gemv.across");
      EXPECT_EQ(familyOf(pick(*all, {{"M", 1024}})), hopper               ? "gemm.pingpong"
                                                    : type == DType::F32 ? "gemm.simt"
                                                                         : "gemm.mma");
      EXPECT_NE(pick(*all, {{"M", 64}}).spec.config, pick(*all, {{"M", 4096}}).spec.config);
      std::set<std::string> functions;
      for (const KernelVariant &v : *all)
        EXPECT_TRUE(functions.insert(v.spec.launches[0].function).second);
    }
}

/// x [M, K] by weights [N, K], as they lie in memory.
KernelDesc linear(const char *m, const char *n, const char *k) {
  KernelDesc d = gemm(DType::BF16, m, 8, 8);
  d.parallel = {dim(m), dim(n)};
  d.reduction = {dim(k)};
  d.buffers.resize(3, d.buffers[0]);
  d.numInputs = 2;
  d.buffers[0].dims = d.buffers[0].physical = {dim(m), dim(k)};
  d.buffers[1].dims = d.buffers[1].physical = {dim(n), dim(k)};
  d.buffers[2].dims = d.buffers[2].physical = d.parallel;
  d.operands[1].buffer = 1;
  d.operands[1].transposed = true;
  d.resultInPlace = d.resultBare = true;
  for (const char *text : {m, n, k}) {
    std::set<std::string> names;
    dim(text).collectSymbols(names);
    for (const std::string &name : names)
      d.symbols[name] = DimRange{0, 8192};
  }
  return d;
}

TEST(Choose, WeightsOfEightBitsAreReadAsTheyLie) {
  KernelDesc d = linear("M", "4096", "4096");
  d.operands[1].buffer = -1;
  d.operands[1].codes = 1;
  d.buffers[1].dtype = DType::I8;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(familyOf(pick(*all, {{"M", 1}})), "gemv.row");
  EXPECT_EQ(familyOf(pick(*all, {{"M", 16}})), "gemm.skinny");
  for (int64_t m : {17, 96, 128, 200, 5000}) {
    const KernelSpec &s = pick(*all, {{"M", m}}).spec;
    KernelConfig c = *KernelConfig::parse(s.config);
    ASSERT_EQ(c.family(), "gemm.mixed") << m;
    EXPECT_EQ(s.tensorMaps[0].box, (std::vector<int64_t>{64, c.tileM}));
    EXPECT_EQ(s.tensorMaps[1].box, (std::vector<int64_t>{64, c.tileN}));
    EXPECT_EQ(s.tensorMaps[1].swizzleBytes, 64);
    EXPECT_EQ(*s.launches[0].grid[0].evaluate({{"M", m}}),
              (m + c.tileM - 1) / c.tileM * (4096 / c.tileN) * c.cluster);
    EXPECT_LE(*s.launches[0].sharedBytes.constant(), 227 << 10);
  }
  all = chooseVariants(d, *Target::parse("sm_80")); // any number of rows, if slowly
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(familyOf(pick(*all, {{"M", 16}})), "gemm.skinny");
  EXPECT_EQ(familyOf(pick(*all, {{"M", 500}})), "gemm.mma");
}

TEST(Choose, FewRowsOfManyColumnsStreamTheirWeights) {
  Target hopper = *Target::parse("sm_90a");
  auto familyAt = [&](const KernelDesc &d, int64_t m) {
    auto all = chooseVariants(d, hopper);
    return all.ok() ? familyOf(pick(*all, {{"M", m}})) : "none";
  };
  KernelDesc wide = linear("M", "28672", "4096");
  auto all = chooseVariants(wide, hopper);
  ASSERT_TRUE(all.ok());
  for (int64_t m : {2, 8, 9, 16}) {
    const KernelSpec &s = pick(*all, {{"M", m}}).spec;
    KernelConfig c = *KernelConfig::parse(s.config);
    ASSERT_EQ(c.family(), "gemm.stream") << m;
    EXPECT_EQ(c.rows, m <= 8 ? 8 : 16);
    EXPECT_EQ(*s.launches[0].grid[0].evaluate({{"M", m}}), hopper.smCount);
    EXPECT_LE(*s.launches[0].sharedBytes.constant(), 227 << 10);
  }
  EXPECT_EQ(familyAt(wide, 17), "gemm.split");
  // One row streams weights of long rows; of many columns or short rows it does not keep anything.
  EXPECT_EQ(familyAt(wide, 1), "gemm.stream");
  EXPECT_EQ(familyAt(linear("M", "128256", "4096"), 1), "gemv.row");
  EXPECT_EQ(familyAt(linear("M", "8192", "1024"), 1), "gemv.row");
  // Registers hold what weights are multiplied with, and warps split the depth.
  EXPECT_EQ(familyAt(linear("M", "28672", "8192"), 8), "gemm.stream");
  EXPECT_NE(familyAt(linear("M", "28672", "8192"), 16), "gemm.stream");
  EXPECT_NE(familyAt(linear("M", "28672", "14336"), 8), "gemm.stream");
  EXPECT_NE(familyAt(linear("M", "28672", "512"), 8), "gemm.stream");
  EXPECT_NE(familyAt(linear("M", "2048", "4096"), 8), "gemm.stream");
  // A configuration that was asked for.
  KernelDesc d = linear("13", "776", "1032");
  d.wanted = "gemm.stream.t128.s3";
  auto wanted = chooseVariants(d, hopper);
  ASSERT_FALSE(wanted.ok()); // too deep for four warps
  d.wanted = "gemm.stream.t256.s3";
  wanted = chooseVariants(d, *Target::parse("sm_80"));
  ASSERT_TRUE(wanted.ok());
  EXPECT_EQ(wanted->front().spec.config, "gemm.stream.t256.r16.n16.s3");
}

/// Tiles of rows that only a run knows fill the rounds of sizes that are whole tiles: 32 x 16 of 128 x 128 are 3.9 rounds of
/// 132 blocks, 26 x 16 of 128 x 160 take as many and leave most of the last one empty.
TEST(Choose, ManyUnknownRowsAreWholeTiles) {
  const Target hopper = *Target::parse("sm_90a");
  auto all = chooseVariants(linear("M", "4096", "14336"), hopper);
  ASSERT_TRUE(all.ok()) << all.status().str();
  for (int64_t m : {1024, 2048, 4096}) {
    const Result<int64_t> blocks = pick(*all, {{"M", m}}).spec.launches[0].grid[0].evaluate({{"M", m}});
    const Result<KernelConfig> c = KernelConfig::parse(pick(*all, {{"M", m}}).spec.config);
    ASSERT_TRUE(blocks.ok() && c.ok());
    const double rounds = double((m + c->tileM - 1) / c->tileM * ((4096 + c->tileN - 1) / c->tileN)) / double(hopper.smCount);
    EXPECT_GT(rounds / std::ceil(rounds), 0.95) << m << " " << c->str();
  }
}

TEST(Choose, HopperProductsHaveTensorMaps) {
  auto all = chooseVariants(linear("M", "4096", "4096"), *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(familyOf(pick(*all, {{"M", 1}})), "gemm.stream");
  EXPECT_EQ(familyOf(pick(*all, {{"M", 8}})), "gemm.stream");
  const KernelSpec &s = pick(*all, {{"M", 2048}}).spec;
  KernelConfig tile = *KernelConfig::parse(s.config);
  EXPECT_EQ(tile.family(), "gemm.pingpong");
  EXPECT_EQ(tile.tileM, 128);
  ASSERT_EQ(s.tensorMaps.size(), 3u);
  EXPECT_EQ(s.tensorMaps[0].dims, (std::vector<DimExpr>{4096, dim("M")}));
  EXPECT_EQ(s.tensorMaps[1].box, (std::vector<int64_t>{64, tile.tileN}));
  EXPECT_EQ(s.tensorMaps[2].buffer, 2);
  // Weights are fetched early where few rows wait for them; long products start before those ahead
  // are over, too, but not those that share their last tiles.
  EXPECT_TRUE(wgmmaStartsLate(tile, 4096));
  EXPECT_TRUE(s.launches[0].programmaticDependent);
  EXPECT_TRUE(pick(*all, {{"M", 32}}).spec.launches[0].programmaticDependent);
  tile.form = &kGemmPingpongStreamK;
  EXPECT_FALSE(wgmmaStartsLate(tile, 4096));
  EXPECT_EQ(*s.launches[0].grid[0].evaluate({{"M", 128}}), (4096 + tile.tileN - 1) / tile.tileN);
  EXPECT_EQ(*s.launches[0].grid[0].evaluate({{"M", 8192}}), 132);
  EXPECT_LE(*s.launches[0].sharedBytes.constant(), 227 << 10);
  // Rows of A that are loaded are never fewer than M.
  for (int64_t m = 1; m <= 300; ++m) {
    KernelConfig c = *KernelConfig::parse(pick(*all, {{"M", m}}).spec.config);
    if (c.tileM && c.rows > 1)
      EXPECT_GE(c.rows, m);
  }
}

TEST(Choose, RowsBetweenLinesTakePairsOfBlocks) {
  auto all = chooseVariants(linear("M", "1152", "5896"), *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  const KernelSpec &s = pick(*all, {{"M", 5484}}).spec;
  KernelConfig tile = *KernelConfig::parse(s.config);
  EXPECT_EQ(tile.cluster, 2);
  EXPECT_EQ(s.launches[0].cluster[0], 2);
  EXPECT_EQ(s.tensorMaps[0].box[1], tile.tileM);
  EXPECT_EQ(s.tensorMaps[1].box[1], tile.tileN / 2); // each block loads half of the columns
  EXPECT_EQ(*s.launches[0].grid[0].evaluate({{"M", 5484}}) % 2, 0);
  EXPECT_EQ(*s.launches[0].grid[0].evaluate({{"M", 129}}) % 2, 0);
  // Rows that begin with lines of the cache gain nothing.
  all = chooseVariants(linear("M", "1152", "5888"), *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(KernelConfig::parse(pick(*all, {{"M", 5484}}).spec.config)->cluster, 1);
}

TEST(Choose, FewTilesSplitTheDepth) {
  auto all = chooseVariants(linear("M", "4096", "14336"), *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  const KernelSpec &s = pick(*all, {{"M", 32}}).spec;
  KernelConfig tile = *KernelConfig::parse(s.config);
  EXPECT_EQ(tile.family(), "gemm.split");
  EXPECT_GT(tile.cluster, 1);
  EXPECT_EQ(s.launches[0].cluster[0], tile.cluster);
  EXPECT_EQ(s.tensorMaps.size(), 2u); // results are added up in shared memory
  EXPECT_EQ(*s.launches[0].grid[0].evaluate({{"M", 32}}),
            (4096 + tile.tileN - 1) / tile.tileN * tile.cluster);
  EXPECT_LE(*s.launches[0].sharedBytes.constant(), 227 << 10);
  EXPECT_EQ(KernelConfig::parse(pick(*all, {{"M", 4096}}).spec.config)->cluster, 1);
}

TEST(Choose, PairsOfColumnsAreOneProduct) {
  KernelDesc d = linear("M", "28672", "4096");
  d.resultPair = true;
  d.parallel[1] = 14336;
  d.buffers[2].dims = d.buffers[2].physical = d.parallel;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  const KernelSpec &s = pick(*all, {{"M", 4096}}).spec;
  KernelConfig tile = *KernelConfig::parse(s.config);
  ASSERT_EQ(s.tensorMaps.size(), 3u);
  EXPECT_EQ(s.tensorMaps[1].box[1], tile.tileN / 2); // a half tile of each matrix
  EXPECT_EQ(s.tensorMaps[1].dims[1], DimExpr(28672));
  EXPECT_EQ(s.tensorMaps[2].dims[0], DimExpr(14336));
  for (int64_t m : {1, 7, 16}) {
    KernelConfig few = *KernelConfig::parse(pick(*all, {{"M", m}}).spec.config);
    EXPECT_EQ(few.family(), "gemm.stream");
    EXPECT_EQ(few.tileN, 8); // of each matrix
  }
  for (int64_t m : {17, 300})
    EXPECT_NE(pick(*all, {{"M", m}}).spec.tensorMaps.size(), 0u);
  EXPECT_FALSE(chooseVariants(d, *Target::parse("sm_89")).ok());
}

TEST(Choose, HeadsOfTokensAreStoredByAMap) {
  KernelDesc d = linear("B*128", "2304", "768");
  d.parallel = {dim("B"), 128, 2304};
  d.buffers[0].dims = d.buffers[0].physical = {dim("B"), 128, 768};
  d.buffers[2].dims = d.buffers[2].physical = {dim("B"), 36, 128, 64};
  d.operands[1].isWeight = true;
  d.resultInPlace = false;
  d.resultHeads = {128, 36, 64};
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  const KernelSpec &s = pick(*all, {{"B", 64}}).spec;
  ASSERT_EQ(s.tensorMaps.size(), 3u);
  EXPECT_EQ(s.tensorMaps[2].dims, (std::vector<DimExpr>{64, 128, 36, dim("B")}));
  EXPECT_EQ(s.tensorMaps[2].strides,
            (std::vector<DimExpr>{128, 16384, 589824}));
  EXPECT_EQ(s.tensorMaps[2].box.size(), 4u);
  // Pieces of 64 columns would belong to two heads, or of 64 rows to two batches.
  for (std::vector<DimExpr> heads : {std::vector<DimExpr>{128, 48, 48}, {197, 36, 64}}) {
    d.parallel[1] = d.buffers[0].dims[1] = d.buffers[0].physical[1] = heads[0];
    d.buffers[2].dims = d.buffers[2].physical = {dim("B"), heads[1], heads[0], heads[2]};
    d.resultHeads = heads;
    all = chooseVariants(d, *Target::parse("sm_90a"));
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(pick(*all, {{"B", 64}}).spec.tensorMaps.size(), 2u);
  }
}

TEST(Choose, GeneratedKernelsStartEarly) {
  KernelDesc d;
  d.kind = KernelDesc::Kind::Pointwise;
  d.name = "add";
  d.numInputs = d.numOutputs = 1;
  d.buffers.resize(2);
  for (BufferArg &b : d.buffers) {
    b.dtype = DType::F16;
    b.dims = b.physical = {64, 1024};
  }
  d.parallel = {64, 1024};
  auto early = [&](const char *target) {
    auto all = chooseVariants(d, *Target::parse(target));
    return all.ok() && all->back().spec.launches[0].programmaticDependent;
  };
  EXPECT_TRUE(early("sm_90a"));
  EXPECT_FALSE(early("sm_80"));
  for (BufferArg &b : d.buffers)
    b.dims = b.physical = {65536, 1024}; // long enough to be worth the cache of constants
  d.parallel = {65536, 1024};
  EXPECT_FALSE(early("sm_90a"));
  d.kind = KernelDesc::Kind::Reduction; // rows: few blocks, and registers for what is loaded ahead
  for (auto [rows, length, expected] : {std::tuple<int64_t, int64_t, bool>{4096, 8192, true},
                                        {16384, 2048, false}, {1024, 65536, false}}) {
    for (BufferArg &b : d.buffers)
      b.dims = b.physical = {rows, length};
    d.parallel = {rows};
    d.reduction = {length};
    EXPECT_EQ(early("sm_90a"), expected) << rows;
  }
}

TEST(Choose, AResidualComesByAMap) {
  KernelDesc d = linear("M", "4096", "4096");
  d.buffers.insert(d.buffers.begin() + 2, d.buffers[2]);
  d.numInputs = 3;
  d.residual = 2;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  const KernelSpec &s = pick(*all, {{"M", 4096}}).spec;
  ASSERT_EQ(s.tensorMaps.size(), 4u);
  const TensorMapArg *result = s.mapOf(TensorMapArg::Role::Result), *residual = s.mapOf(TensorMapArg::Role::Residual);
  ASSERT_TRUE(result && residual);
  EXPECT_EQ(result->buffer, 3);
  EXPECT_EQ(residual->buffer, 2);
  EXPECT_EQ(residual->box, result->box);
  d.buffers[2].dtype = DType::F32; // another width than the result: read from memory
  auto wide = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(wide.ok());
  EXPECT_EQ(pick(*wide, {{"M", 4096}}).spec.tensorMaps.size(), 3u);
}

/// The same product of other types.
KernelDesc linearOf(DType a, DType b, DType result) {
  KernelDesc d = linear("M", "4096", "4096");
  d.operands[0].dtype = d.buffers[0].dtype = a;
  d.operands[1].dtype = d.buffers[1].dtype = b;
  d.buffers[2].dtype = result;
  return d;
}

TEST(Choose, OperandsOfEightBitsOnHopper) {
  Target hopper = *Target::parse("sm_90a");
  auto chosen = [&](const KernelDesc &d, int64_t m) {
    auto all = chooseVariants(d, hopper);
    EXPECT_TRUE(all.ok());
    return pick(*all, {{"M", m}}).spec;
  };
  KernelDesc bytes = linearOf(DType::UI8, DType::I8, DType::I32);
  KernelSpec s = chosen(bytes, 2048);
  KernelConfig tile = *KernelConfig::parse(s.config);
  EXPECT_EQ(tile.family(), "gemm.pingpong");
  EXPECT_EQ(tile.tileK, 128);
  ASSERT_EQ(s.tensorMaps.size(), 3u);
  EXPECT_EQ(s.tensorMaps[1].box, (std::vector<int64_t>{128, tile.tileN}));
  EXPECT_EQ(s.tensorMaps[2].box, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(s.tensorMaps[2].swizzleBytes, 128);
  EXPECT_LE(*s.launches[0].sharedBytes.constant(), 227 << 10);
  EXPECT_NE(chosen(bytes, 1).tensorMaps.size(), 0u); // few rows take the same form

  KernelDesc floats = linearOf(DType::F8E4M3FN, DType::F8E5M2, DType::BF16);
  for (int64_t m : {1, 64, 300, 4096})
    EXPECT_TRUE(KernelConfig::parse(chosen(floats, m).config)->family().ends_with("promoted"));
  floats.wanted = "gemm.pingpong.m128.n128"; // sums would lose digits
  EXPECT_FALSE(chooseVariants(floats, hopper).ok());
  floats.wanted.clear();
  floats.allowReducedSums = true;
  EXPECT_EQ(KernelConfig::parse(chosen(floats, 4096).config)->family(), "gemm.pingpong");

  KernelDesc single = linearOf(DType::F32, DType::F32, DType::F32);
  EXPECT_EQ(KernelConfig::parse(chosen(single, 4096).config)->family(), "gemm.simt");
  single.allowTf32 = true;
  EXPECT_EQ(KernelConfig::parse(chosen(single, 4096).config)->tileK, 32);
  // Only 16-bit operands may lie across k; integers and floats do not mix.
  single.operands[1].transposed = false;
  EXPECT_EQ(KernelConfig::parse(chosen(single, 4096).config)->family(), "gemm.simt");
  KernelDesc mixed = linearOf(DType::I8, DType::F8E4M3FN, DType::F32);
  EXPECT_EQ(KernelConfig::parse(chosen(mixed, 4096).config)->family(), "gemm.simt");
}

/// Codes whose sums are scaled by blocks of k: by tiles that add up such sums, whatever is allowed besides.
TEST(Choose, SumsScaledByBlocksArePromoted) {
  Target hopper = *Target::parse("sm_90a");
  KernelDesc d = linearOf(DType::F8E4M3FN, DType::F8E4M3FN, DType::BF16);
  d.blockScales = true;
  for (bool reduced : {false, true})
    for (int64_t m : {1, 16, 64, 300, 4096}) {
      d.allowReducedSums = reduced;
      auto all = chooseVariants(d, hopper);
      ASSERT_TRUE(all.ok());
      KernelConfig c = *KernelConfig::parse(pick(*all, {{"M", m}}).spec.config);
      EXPECT_TRUE(c.family().ends_with("promoted")) << m;
      EXPECT_TRUE(isSplit(c) || 128 % c.tileN == 0) << m; // within a block of columns
    }
  for (const char *other : {"gemm.pingpong.m128.n128", "gemm.split.m64.n64", "gemm.skinny"}) {
    d.wanted = other;
    EXPECT_FALSE(chooseVariants(d, hopper).ok()) << other;
  }
  d.wanted = "gemm.promoted.m128.n192";
  EXPECT_TRUE(chooseVariants(d, hopper).ok());
  d.wanted.clear();
  d.buffers[0].alignment = 8; // no tensor map: element by element
  auto all = chooseVariants(d, hopper);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(familyOf(pick(*all, {{"M", 64}})), "gemm.simt");
}

TEST(Choose, WhatTensorMapsRefuseTakesThePortableForm) {
  Target hopper = *Target::parse("sm_90a");
  // Rows of 16-byte pieces: never, or only for some sizes.
  auto odd = chooseVariants(linear("512", "4096", "4095"), hopper);
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(familyOf(pick(*odd, {})), "gemm.mma");
  auto some = chooseVariants(linear("512", "4096", "K"), hopper);
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(pick(*some, {{"K", 64}}).spec.tensorMaps.size(), 3u);
  EXPECT_EQ(familyOf(pick(*some, {{"K", 63}})), "gemm.mma");
  EXPECT_EQ(familyOf(pick(*some, {{"K", 0}})), "gemm.mma");
  // Results of an odd number of columns are stored without a map.
  auto columns = chooseVariants(linear("512", "4095", "4096"), hopper);
  ASSERT_TRUE(columns.ok());
  EXPECT_EQ(pick(*columns, {}).spec.tensorMaps.size(), 2u);
  KernelDesc computed = linear("512", "4096", "4096");
  computed.operands[0].buffer = -1;
  auto prologue = chooseVariants(computed, hopper);
  ASSERT_TRUE(prologue.ok());
  EXPECT_EQ(familyOf(pick(*prologue, {})), "gemm.mma");
  for (const char *target : {"sm_80", "sm_100a"}) {
    auto other = chooseVariants(linear("512", "4096", "4096"), *Target::parse(target));
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(familyOf(pick(*other, {})), "gemm.mma");
  }
}

TEST(Choose, AsksForAConfiguration) {
  KernelDesc d = linear("512", "4096", "4096");
  d.wanted = "gemm.cooperative.m128.n256";
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->front().spec.config, "gemm.cooperative.t384.m128.n256.k64.s4");
  EXPECT_FALSE(chooseVariants(d, *Target::parse("sm_80")).ok());
  // As many blocks as there are multiprocessors, which need memory for sums.
  d.wanted = "gemm.pingpong.streamk.m128.n128";
  auto shared = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(shared.ok());
  const KernelSpec &spec = shared->front().spec;
  EXPECT_EQ(spec.launches[0].grid[0], DimExpr(132));
  EXPECT_EQ(spec.workspaceBytes, DimExpr(132 * (16 + 128 * 128 * 4)));
  EXPECT_EQ(spec.buffers.size(), 4u);
  EXPECT_EQ(spec.buffers.back().access, BufferArg::Access::ReadWrite);
  d.wanted = "gemm.pingpong.other.m128.n128";
  EXPECT_FALSE(chooseVariants(d, *Target::parse("sm_90a")).ok());
}

/// Tiles of a multiple of 16 rows fill the card where those of 64 or 128 do not: the columns of the
/// weights are the instruction's rows.
TEST(Choose, SwapsOperands) {
  KernelDesc d = linear("3136", "512", "2048");
  auto swaps = [&] {
    return familyOf(chooseVariants(d, *Target::parse("sm_90a"))->front()).ends_with(".swapped");
  };
  EXPECT_FALSE(swaps());
  d.resultBare = false; // a bias, say
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  const KernelSpec &s = all->front().spec;
  EXPECT_EQ(s.config, "gemm.cooperative.swapped.t384.m96.n128.k64.s7");
  EXPECT_EQ(s.launches[0].grid[0], DimExpr(132));
  ASSERT_EQ(s.tensorMaps.size(), 3u);
  EXPECT_EQ(s.tensorMaps[0].box, (std::vector<int64_t>{64, 96}));
  EXPECT_EQ(s.tensorMaps[1].box, (std::vector<int64_t>{64, 128}));
  EXPECT_EQ(s.tensorMaps[2].box, (std::vector<int64_t>{64, 48}));
  EXPECT_EQ(s.tensorMaps[2].swizzleBytes, 128);
  // Results of 32 bits, or of columns that are no whole pieces, go another way.
  d.buffers[2].dtype = DType::F32;
  EXPECT_FALSE(swaps());
  d.wanted = "gemm.cooperative.swapped.m96.n128";
  EXPECT_FALSE(chooseVariants(d, *Target::parse("sm_90a")).ok());
}

TEST(Choose, GridCoversTheOutput) {
  auto all = chooseVariants(gemm(DType::BF16, "M", 100, 64), *Target::parse("sm_80"));
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

TEST(Choose, ChainedReadsOnACpuTakeTwoVectors) {
  for (KernelDesc::Kind kind : {KernelDesc::Kind::Pointwise, KernelDesc::Kind::Reduction})
    for (bool chained : {false, true}) {
      KernelDesc d = desc(kind, DType::F32, {dim("M")}, {500});
      d.chainedReads = chained;
      auto all = chooseVariants(d, *Target::parse("x86-64-v3"));
      ASSERT_TRUE(all.ok());
      EXPECT_EQ(KernelConfig::parse(all->front().spec.config)->lanes, chained ? 16 : 8);
    }
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

// On a CPU, keys that a mask hides are left out where there are many.
TEST(Choose, CpuAttentionListsManyKeysThatAMaskHides) {
  KernelDesc d = desc(KernelDesc::Kind::Attention, DType::F32, {1, 8, dim("S"), 64}, {dim("S"), 64});
  d.operands.resize(4);
  auto familyAt = [&](int64_t keys) {
    auto all = chooseVariants(d, *Target::parse("x86-64-v3"));
    EXPECT_TRUE(all.ok());
    return all.ok() ? std::string(familyOf(pick(*all, {{"S", keys}}))) : std::string();
  };
  EXPECT_EQ(familyAt(4000), "attention");
  d.maskHides = true;
  EXPECT_EQ(familyAt(4000), "attention.listed");
  EXPECT_EQ(familyAt(1024), "attention.listed");
  EXPECT_EQ(familyAt(1023), "attention");
  d.sharesKeys = true, d.parallel[2] = 1; // tokens of sequences in pages
  EXPECT_EQ(familyAt(4000), "attention");
}

TEST(Choose, HalfAttentionTakesTheMatrixUnits) {
  KernelDesc d = desc(KernelDesc::Kind::Attention, DType::BF16, {dim("B"), 8, dim("S"), 64}, {dim("S + 1"), 64});
  d.operands.resize(3);
  for (ContractionOperand &o : d.operands) {
    o.dtype = DType::BF16;
    o.buffer = 0;
  }
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  const KernelVariant &hopper = pick(*all, {{"B", 1}, {"S", 100}});
  EXPECT_EQ(hopper.spec.config, "attention.wgmma.t384.n128.s2");
  ASSERT_EQ(hopper.spec.tensorMaps.size(), 3u);
  EXPECT_EQ(hopper.spec.tensorMaps[1].box, (std::vector<int64_t>{64, 128, 1, 1}));
  EXPECT_EQ(hopper.spec.tensorMaps[0].strides[1], dim("S") * DimExpr(128));
  EXPECT_EQ(*hopper.spec.launches[0].grid[0].evaluate({{"B", 1}, {"S", 300}}), 24);
  d.operands[1].buffer = -1; // computed in the kernel: no map
  all = chooseVariants(d, *Target::parse("sm_90a"));
  EXPECT_EQ(familyOf(pick(*all, {{"B", 1}, {"S", 100}})), "attention.mma");
  all = chooseVariants(d, *Target::parse("sm_80"));
  EXPECT_EQ(familyOf(pick(*all, {{"B", 1}, {"S", 100}})), "attention.mma");
}

/// A mask in memory comes by tiles where its rows are whole pieces of 16 bytes of the operands' type.
TEST(Choose, MasksOfAttentionComeByTiles) {
  KernelDesc d = desc(KernelDesc::Kind::Attention, DType::BF16, {dim("B"), 8, dim("S"), 128}, {1008, 128});
  d.operands.resize(4);
  for (ContractionOperand &o : d.operands) {
    o.dtype = DType::BF16;
    o.buffer = 0;
  }
  BufferArg mask = d.buffers[0];
  mask.dims = mask.physical = {dim("S"), 1008};
  d.buffers.insert(d.buffers.begin() + 1, mask);
  d.numInputs = 2;
  d.operands[3].buffer = 1;
  d.maskDims = {1, 1, dim("S"), 1008};
  d.biasAlone = true;
  auto specOf = [&] {
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    EXPECT_TRUE(all.ok());
    return pick(*all, {{"B", 1}, {"S", 100}}).spec;
  };
  KernelSpec spec = specOf();
  EXPECT_EQ(spec.config, "attention.wgmma.t384.n128");
  ASSERT_EQ(spec.tensorMaps.size(), 4u);
  const TensorMapArg &map = spec.tensorMaps[3];
  EXPECT_EQ(map.buffer, 1);
  EXPECT_EQ(map.dims, (std::vector<DimExpr>{1008, dim("S"), 1, 1}));
  EXPECT_EQ(map.strides[0], DimExpr(2016));
  EXPECT_EQ(map.box, (std::vector<int64_t>{64, 64, 1, 1}));
  d.buffers[1].dtype = DType::Bool; // read one by one
  EXPECT_EQ(specOf().tensorMaps.size(), 3u);
  d.buffers[1].dtype = DType::BF16;
  d.buffers[1].dims = d.buffers[1].physical = {1, 1008}; // the same for all queries
  d.maskDims[2] = 1;
  EXPECT_EQ(specOf().tensorMaps.size(), 3u);
  d.keyMask = true; // a row for all of them
  EXPECT_EQ(specOf().tensorMaps.size(), 3u);
  EXPECT_EQ(specOf().config, "attention.wgmma.keymask.t384.n128");
  d.reduction[0] = 1024; // from there on lists say what is seen, and flags say nothing more where all is
  d.maskHides = d.maskFlags = true;
  EXPECT_EQ(specOf().config, "attention.wgmma.t384.n128.s2");
  d.maskFlags = false;
  EXPECT_EQ(specOf().config, "attention.wgmma.keymask.t384.n128");
  EXPECT_EQ(specOf().launches.size(), 3u); // lists, the order of tiles, attention
}

/// Shared memory of Hopper's attention: queries, two stages of keys and values, what the mask takes, results and
/// barriers; the next queries too where there is room.
TEST(Choose, SharedMemoryOfAttention) {
  auto bytes = [](const char *config, int64_t qk, int64_t v, bool mask) {
    KernelConfig c = *KernelConfig::parse(config);
    return c.form->sharedBytes(c, {.headQK = qk, .headV = v, .mask = mask});
  };
  const int64_t q = 128 * 256, kv = 4 * 128 * 256, results = 128 * 272;
  EXPECT_EQ(bytes("attention.wgmma.t384.n128.s2", 128, 128, false), 2 * q + kv + results + 16 * 8);
  EXPECT_EQ(bytes("attention.wgmma.keymask.t384.n128", 128, 128, false), q + kv + results + 2 * 512 + 16 * 8);
  EXPECT_EQ(bytes("attention.wgmma.t384.n128", 128, 128, true), q + kv + 2 * 2 * 8192 + results + 16 * 8);
  EXPECT_EQ(bytes("attention.wgmma.t512.n128", 64, 64, false), 192 * 128 + kv / 2 + 192 * 144 + 16 * 7);
}

TEST(Choose, ThreeWarpgroupsNeedQueriesThatFillThem) {
  KernelDesc d = desc(KernelDesc::Kind::Attention, DType::BF16, {dim("B"), 12, dim("S"), 64}, {dim("S + 1"), 64});
  d.operands.resize(3);
  d.plainScores = true;
  for (ContractionOperand &o : d.operands) {
    o.dtype = DType::BF16;
    o.buffer = 0;
  }
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  auto config = [&](int64_t batch, int64_t queries) {
    return pick(*all, {{"B", batch}, {"S", queries}}).spec.config;
  };
  EXPECT_EQ(config(8, 1024), "attention.wgmma.t512.n128");
  EXPECT_EQ(config(1, 1024), "attention.wgmma.t384.n128.s2"); // too few tiles
  EXPECT_EQ(config(64, 197), "attention.wgmma.t384.n128.s2"); // 5 queries in every second tile
}

TEST(Choose, SumsDownColumnsSplitTheRows) {
  KernelDesc d = desc(KernelDesc::Kind::Reduction, DType::BF16, {8192}, {8192});
  d.rowsContiguous = false;
  d.columnDims = 1;
  d.numReductions = 1;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->front().spec.config, "columns.t256.v4.r8");
  EXPECT_EQ(all->front().spec.launches[0].cluster[0], 8);
  EXPECT_EQ(all->front().spec.launches[0].grid[0], DimExpr(64 * 8));
  all = chooseVariants(d, *Target::parse("sm_80"));
  EXPECT_EQ(all->front().spec.launches[0].cluster[0], 1);
  d.columnDims = 0;
  all = chooseVariants(d, *Target::parse("sm_90a"));
  EXPECT_EQ(familyOf(all->front()), "row");
}

TEST(Choose, LongRowsAreHeldInRegisters) {
  auto chosen = [](DType type, int64_t length, int inputs, const char *target) {
    KernelDesc d = desc(KernelDesc::Kind::Reduction, type, {1024}, {length});
    BufferArg whole = d.buffers[0];
    whole.dims = whole.physical = {1024, length};
    d.buffers.assign(inputs + 1, whole);
    d.numInputs = inputs;
    KernelSpec spec = chooseVariants(d, *Target::parse(target))->front().spec;
    return spec.config + " x " + std::to_string(spec.launches[0].cluster[0]);
  };
  EXPECT_EQ(chosen(DType::BF16, 8192, 1, "sm_90a"), "row.t128.v8 x 1");
  EXPECT_EQ(chosen(DType::BF16, 32768, 1, "sm_90a"), "row.t512.v8.s2 x 1");
  EXPECT_EQ(chosen(DType::BF16, 32768, 2, "sm_90a"), "row.t512.v8 x 1"); // a thread keeps two of each
  EXPECT_EQ(chosen(DType::F32, 32768, 1, "sm_90a"), "row.t512.v4.s1 x 1");
  EXPECT_EQ(chosen(DType::BF16, 65536, 1, "sm_90a"), "row.t256.v8.s4 x 4");
  EXPECT_EQ(chosen(DType::F32, 262144, 1, "sm_90a"), "row.t512.v4 x 8");
  EXPECT_EQ(chosen(DType::BF16, 65536, 1, "sm_80"), "row.t512.v8 x 1");
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
