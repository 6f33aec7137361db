//===- ChooseMovementTest.cpp - configurations of what moves elements -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ChooseFixture.h"

#include "lathe/codegen/TransposeTile.h"

using namespace lathe;
using namespace lathe::test;

namespace {

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

TEST(Choose, TransposesOfFewRowsMoveBoxes) {
  // [15522, 8, 79, 8] to [8, 15522, 79, 8]: all that one of the outermost has, 5056 bytes that lie together.
  TransposeTile tile = TransposeTile::of({8, 15522, 79, 8}, {3, 0, 2, 1}, 1, 4096);
  EXPECT_EQ(tile.extents, (std::vector<int64_t>{8, 1, 79, 8}));
  EXPECT_EQ(tile.blocks(), 15522);
  EXPECT_EQ(tile.operandOrder(), (std::vector<int64_t>{1, 3, 2, 0}));
  EXPECT_EQ(tile.sharedStrides(1), (std::vector<int64_t>{1, 79 * 8 * 12, 12, 79 * 12})); // rows of 8 bytes, three words apart
  tile = TransposeTile::of({932440, 5}, {1, 0}, 2, 4096);
  EXPECT_EQ(tile.extents, (std::vector<int64_t>{1024, 5}));
  EXPECT_EQ(tile.sharedStrides(2), (std::vector<int64_t>{1, 1026}));
  EXPECT_EQ(tile.sharedElements(2), 5 * 1026 + 8);
  tile = TransposeTile::of({685, 107, 8, 11}, {1, 0, 3, 2}, 4, 4096); // 88 elements stay together: many such
  EXPECT_EQ(tile.extents, (std::vector<int64_t>{63, 1, 8, 11}));
  tile = TransposeTile::of({7, 3}, {1, 0}, 8, 4096); // all of it
  EXPECT_EQ(tile.blocks(), 1);

  auto chosen = [](std::vector<DimExpr> sizes, std::vector<int64_t> from, int64_t contiguous) {
    KernelDesc d = desc(KernelDesc::Kind::Copy, DType::F16, sizes);
    d.inputContiguous = contiguous;
    d.inputContiguousType = DType::F16;
    d.movedSizes = sizes;
    d.movedFrom = from;
    for (size_t i = 0; i < sizes.size(); ++i)
      d.buffers[0].dims[from[i]] = d.buffers[0].physical[from[i]] = sizes[i];
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    return all.ok() ? all->front().spec : KernelSpec{};
  };
  EXPECT_EQ(chosen({932440, 5}, {1, 0}, 0).config, "transpose.box.t256.m4096");
  EXPECT_EQ(chosen({932440, 5}, {1, 0}, 0).launches[0].grid[0], DimExpr(911));
  EXPECT_EQ(chosen({1000, 1000}, {1, 0}, 0).config, "transpose.t256.v8.m128");
  EXPECT_EQ(chosen({DimExpr::symbol("N"), 5}, {1, 0}, 0).config, "transpose.t256.m32");
  EXPECT_EQ(chosen({3, 21, 267}, {1, 0, 2}, -1).config, "pointwise.t128.v8"); // rows stay rows, over whose ends vectors run
  EXPECT_EQ(chosen({3, 21, 264}, {1, 0, 2}, -1).config, "pointwise.t128.v8");
}

TEST(Choose, GathersOfOddRowsRunOverTheirEnds) {
  auto chosen = [](DType type, std::vector<DimExpr> dims) {
    KernelDesc d = desc(KernelDesc::Kind::Copy, type, dims);
    d.buffers[0].dims = d.buffers[0].physical = {1000, 1000};
    d.dataIndices = true;
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    return all.ok() ? all->front().spec : KernelSpec{};
  };
  EXPECT_EQ(chosen(DType::BF16, {14412, 923}).config, "pointwise.t128.v8");
  EXPECT_EQ(chosen(DType::BF16, {14412, 923}).launches[0].grid[0], DimExpr((14412 * 923 + 1023) / 1024));
  EXPECT_EQ(chosen(DType::BF16, {14412, 34}).config, "pointwise.t128.v8");
  EXPECT_EQ(chosen(DType::F32, {14412, 7}).config, "pointwise.t128.v4");
  EXPECT_EQ(chosen(DType::F32, {14412, 42}).config, "pointwise.t128.v2");
  EXPECT_EQ(chosen(DType::F32, {DimExpr::symbol("N"), 7}).config, "pointwise.t128");
}

TEST(Choose, SamplesBetweenElementsAreComputedOneAThread) {
  auto chosen = [](DType places) {
    KernelDesc d = desc(KernelDesc::Kind::Copy, DType::F32, {1000, 256, 7, 7});
    BufferArg given = d.buffers[0];
    given.dtype = places;
    given.dims = given.physical = {1000, 4};
    d.buffers.insert(d.buffers.begin() + 1, given);
    d.numInputs = 2;
    d.dataIndices = true;
    return chooseVariants(d, *Target::parse("sm_90a"))->front().spec.config;
  };
  EXPECT_EQ(chosen(DType::F32), "pointwise.t128");
  EXPECT_EQ(chosen(DType::I32), "pointwise.t128.v4");
}

TEST(Choose, SumsOfNeighboursShareRows) {
  auto chosen = [](int64_t channels, int64_t height, int64_t width, int64_t rowsRead, int64_t taps, bool last, int64_t contiguous = -1) {
    const std::vector<DimExpr> dims = last ? std::vector<DimExpr>{8, height, width, channels} : std::vector<DimExpr>{8, channels, height, width};
    KernelDesc d = desc(KernelDesc::Kind::Pointwise, DType::F16, dims);
    d.dataIndices = true;
    d.inputContiguous = contiguous;
    d.interpolation = {last ? 8 : 8 * channels, height, width, last ? channels : 1, rowsRead, taps, taps};
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    return all.ok() ? all->front().spec : KernelSpec{};
  };
  const KernelSpec spec = chosen(5, 894, 894, 447, 2, false);
  EXPECT_EQ(spec.config, "interpolate.t128.m16.n128");
  EXPECT_EQ(spec.launches[0].grid[0], DimExpr(40 * 7 * 56));
  EXPECT_EQ(chosen(14, 412, 296, 103, 4, true).config, "interpolate.t128.m16.n128");
  EXPECT_EQ(chosen(64, 120, 120, 60, 4, true).config, "interpolate.t128.m16.n128");
  EXPECT_EQ(chosen(64, 120, 120, 60, 2, true).config, "pointwise.t128.v8"); // vectors of channels
  EXPECT_EQ(chosen(3, 30, 30, 120, 2, false).config.substr(0, 9), "pointwise"); // most rows are not needed
  EXPECT_EQ(chosen(64, 120, 120, 60, 2, true, 1).config, "interpolate.t128.m16.n128"); // transposed in the kernel
}

TEST(Choose, ChannelsThatSharePlacesGoTogether) {
  KernelDesc d = desc(KernelDesc::Kind::Pointwise, DType::F32, {4, 128, 28224});
  d.dataIndices = true;
  d.sharedRows = 128;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->front().spec.config, "pointwise.t128.v2.r8");
  EXPECT_EQ(all->front().spec.launches[0].grid[0], DimExpr(4 * 16 * 28224 / 256));
}

TEST(Choose, UpdatesInOrderGoInPieces) {
  auto chosen = [](DimExpr updates, DimExpr columns, bool columnsLast = true, DType type = DType::F32) {
    KernelDesc d = desc(KernelDesc::Kind::Copy, type, {50000, columns});
    d.serial = d.dataIndices = true;
    d.symbols["M"] = DimRange{0, int64_t(1) << 40};
    d.ordered = {updates, 50000, columns, columnsLast};
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    return all.ok() && all->size() == 1 ? all->front().spec : KernelSpec{};
  };
  // A launch ahead notes the places; blocks that share a column have a part of them each.
  KernelSpec few = chosen(18000, 114);
  EXPECT_EQ(few.config, "scatter.ordered.t512.m2.n1");
  ASSERT_EQ(few.launches.size(), 2u);
  EXPECT_EQ(few.launches[0].sharedBytes, DimExpr(0));
  EXPECT_EQ(few.launches[1].grid[0], DimExpr(228));
  EXPECT_EQ(few.launches[1].sharedBytes, DimExpr(28672));
  EXPECT_EQ(few.workspaceBytes, DimExpr(114 * 18000 * 4));
  EXPECT_EQ(chosen(1000000, 3).config, "scatter.ordered.t512.m8.n1");
  EXPECT_EQ(chosen(18000, 1348).config, "scatter.ordered.t512.m1.n2");
  EXPECT_EQ(chosen(300, 6041).config, "scatter.ordered.t512.m1.n8");
  EXPECT_EQ(chosen(300, 6041).launches[1].grid[0], DimExpr(756));
  EXPECT_EQ(chosen(300, 6041, false).config, "scatter.ordered.t512.m1.n1");
  EXPECT_EQ(chosen(300, 1).config, "scatter.ordered.t512.n1"); // not worth a launch ahead
  EXPECT_EQ(chosen(DimExpr::symbol("M"), 6041, true, DType::F64).launches[1].sharedBytes, DimExpr(36864));
  EXPECT_EQ(chosen(DimExpr::symbol("M"), 1).config, "scatter.ordered.t512.m8.n1"); // may be many
  EXPECT_EQ(chosen(20, 6041).config, "scatter.t128");

  // Places and columns of a block are told apart by 32 bits.
  KernelDesc d = desc(KernelDesc::Kind::Copy, DType::F32, {DimExpr::symbol("M")});
  d.serial = d.dataIndices = true;
  d.symbols["M"] = DimRange{0, int64_t(1) << 40};
  d.ordered = {1000, DimExpr::symbol("M"), 1, false};
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->front().spec.config, "scatter.ordered.t512.m1.n1");
  EXPECT_EQ(str(all->front().guard), "M <= 536870911");
  EXPECT_EQ(all->back().spec.config, "scatter.t128");
}

TEST(Choose, UpdatesWithoutAnOrderHaveBlocks) {
  KernelDesc d = desc(KernelDesc::Kind::Copy, DType::F16, {40, 128});
  d.serial = d.dataIndices = d.updatesInRows = true;
  d.updates[0] = {DimExpr::symbol("M"), 8, 128};
  d.symbols["M"] = DimRange{0, 64};
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->front().spec.config, "scatter.unordered.t128.v8");
  EXPECT_EQ(all->front().spec.launches[0].grid[0], DimExpr::symbol("M"));
  EXPECT_TRUE(all->front().spec.launches[0].programmaticDependent);
  d.updatesInRows = false;
  all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->front().spec.config, "scatter.unordered.t128");
  d.updatesInRows = true;
  d.updates[0] = {31, 65}; // a thread has four that are a quarter of all apart
  all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->front().spec.config, "scatter.unordered.t128.v4");
  EXPECT_EQ(all->front().spec.launches[0].grid[0], DimExpr(4));
}

} // namespace
