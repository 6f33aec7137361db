//===- ChooseReductionTest.cpp - configurations of reductions on GPUs -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"
#include "lathe/codegen/TargetRates.h"

#include <gtest/gtest.h>

using namespace lathe;

namespace {

std::string familyOf(const KernelVariant &v) { return std::string(KernelConfig::parse(v.spec.config)->family()); }

TEST(Choose, FewResultsOfManyTermsAreShared) {
  Target hopper = *Target::parse("sm_90a");
  auto chosen = [&](std::vector<DimExpr> kept, std::vector<DimExpr> terms, int64_t columnDims, bool neighbours = true) {
    KernelDesc d;
    d.name = "k";
    d.kind = KernelDesc::Kind::Reduction;
    d.parallel = kept;
    d.reduction = terms;
    d.numInputs = d.numOutputs = 1;
    d.buffers.resize(2);
    d.buffers[0].dtype = d.buffers[1].dtype = DType::F16;
    d.buffers[1].dims = d.buffers[1].physical = kept;
    kept.insert(kept.end(), terms.begin(), terms.end());
    d.buffers[0].dims = d.buffers[0].physical = kept;
    for (const DimExpr &e : kept) {
      std::set<std::string> names;
      e.collectSymbols(names);
      for (const std::string &n : names)
        d.symbols[n] = DimRange{1, 1 << 24};
    }
    d.reducesAlone = true;
    d.columnDims = columnDims;
    d.rowsContiguous = columnDims == 0 && neighbours;
    d.reducesNeighbours = neighbours;
    d.numReductions = 1;
    return *chooseVariants(d, hopper);
  };
  // A block of 256 threads reads at least 16 KB, and there are four a multiprocessor at most.
  auto whole = chosen({}, {1536, 1024}, 0);
  EXPECT_EQ(whole.front().spec.config, "split.rows.t256.v8");
  EXPECT_EQ(whole.front().spec.launches[0].grid[0], DimExpr(192));
  EXPECT_EQ(whole.front().spec.workspaceBytes, DimExpr(192 * 8 + 192 * 8));
  EXPECT_TRUE(whole.front().spec.launches[0].programmaticDependent);
  EXPECT_EQ(chosen({4}, {1 << 24}, 0).front().spec.launches[0].grid[0], DimExpr(528));
  // Enough rows, or short ones, have a block each.
  EXPECT_EQ(familyOf(chosen({4096}, {65536}, 0).front()), "row");
  EXPECT_EQ(familyOf(chosen({16}, {4096}, 0).front()), "row");
  EXPECT_EQ(chosen({128}, {36864}, 1).front().spec.config, "split.columns.t256.v8.n128");
  EXPECT_EQ(familyOf(chosen({8192}, {8192}, 1).front()), "columns");
  EXPECT_EQ(chosen({16}, {1 << 20}, 1).front().spec.config, "split.columns.t256.v8.n16"); // two lanes a row
  EXPECT_EQ(chosen({3}, {1 << 20}, 1).front().spec.config, "split.columns.t256.n4");
  // Dimensions that are no neighbours.
  EXPECT_EQ(familyOf(chosen({256}, {64, 3136}, 0, false).front()), "split.rows");
  EXPECT_EQ(familyOf(chosen({64, 16}, {32, 2048}, 1, false).front()), "split.columns");
  // Sizes that the run has: both kernels, by their number.
  auto any = chosen({*DimExpr::parse("M")}, {*DimExpr::parse("N")}, 0);
  ASSERT_EQ(any.size(), 2u);
  EXPECT_EQ(str(any[0].guard), "M <= 264 && 16384 <= N");
  EXPECT_EQ(*any[0].spec.launches[0].grid[0].evaluate({{"M", 3}, {"N", 100000}}), 3 * 13);
  EXPECT_EQ(familyOf(any[1]), "row");
  EXPECT_TRUE(any[1].guard.empty());
}

TEST(PeakFlops, TensorCoresHaveARoofOfTheirOwn) {
  Target hopper = *Target::parse("sm_90a");
  const TargetRates rates = ratesOf(hopper);
  EXPECT_EQ(peakFlops(hopper, "row.t512.v8"), rates.fmaFlops);
  EXPECT_EQ(peakFlops(hopper, "gemm.simt.t256.m64.n64.k16"), rates.fmaFlops);
  EXPECT_EQ(peakFlops(hopper, "no such configuration"), rates.fmaFlops);
  for (const char *config : {"gemm.mma.t128.m64.n64.k32.s4", "gemm.pingpong.t384.m128.n128.k64.s6", "attention.wgmma.t384.n128",
                             "conv.mma.t128.m64.n64.k32.s4", "conv.pingpong.t384.m128.n128.k64.s6"})
    EXPECT_EQ(peakFlops(hopper, config), rates.tensorCoreFlops) << config;
  EXPECT_EQ(peakFlops(hopper, "gemm.pingpong.t384.m128.n128.k128.s6"), 2 * rates.tensorCoreFlops);
  EXPECT_EQ(peakFlops(hopper, "gemm.pingpong.t384.m128.n128.k32.s6"), rates.tensorCoreFlops / 2);
}

TEST(Choose, LanesOfAWarpShareShortRows) {
  auto chosen = [](DType type, int64_t length, int64_t rows = 1 << 19, bool contiguous = true, bool last = true) {
    KernelDesc d;
    d.name = "k";
    d.kind = KernelDesc::Kind::Reduction;
    d.parallel = {rows};
    d.reduction = {length};
    d.rowsContiguous = contiguous;
    d.reducesLast = last;
    d.numInputs = d.numOutputs = 1;
    d.buffers.resize(2);
    for (BufferArg &b : d.buffers) {
      b.dtype = type;
      b.dims = b.physical = {rows, length};
    }
    return chooseVariants(d, *Target::parse("sm_90a"))->front().spec.config;
  };
  EXPECT_EQ(chosen(DType::F16, 32), "row.t128.v8.r64");
  EXPECT_EQ(chosen(DType::F16, 96), "row.t128.v8.r32");
  EXPECT_EQ(chosen(DType::F16, 160), "row.t128.v8.r16");
  EXPECT_EQ(chosen(DType::F32, 96), "row.t128.v4.r16");
  EXPECT_EQ(chosen(DType::F16, 49), "row.t128.r16"); // seven single elements a lane
  EXPECT_EQ(chosen(DType::F16, 768), "row.t128.v8.r4");
  EXPECT_EQ(chosen(DType::F32, 117), "row.t128.r4"); // single elements, too
  // Axes apart: lanes share a row where the last axis is reduced, else each walks a row of its own.
  EXPECT_EQ(chosen(DType::F16, 14, 1 << 22, false), "row.t128.r64");
  EXPECT_EQ(chosen(DType::F16, 14, 1 << 22, false, false), "row.t128");
  EXPECT_EQ(chosen(DType::F16, 32, 1000), "row.t32.v8"); // blocks for all multiprocessors
}

} // namespace
