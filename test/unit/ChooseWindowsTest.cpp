//===- ChooseWindowsTest.cpp - convolutions by im2col maps --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"

#include <gtest/gtest.h>

#include <tuple>

using namespace lathe;

namespace {

DimExpr dim(const char *text) { return *DimExpr::parse(text); }
std::string familyOf(const KernelVariant &v) { return std::string(KernelConfig::parse(v.spec.config)->family()); }

/// y[N, P, Q, K] of x[N, 15, 12, C] by windows of 3 x 3.
KernelDesc windows(int64_t channels, int64_t filters, int64_t group, std::vector<int64_t> strides,
                   std::vector<int64_t> pads, std::vector<int64_t> dilations) {
  KernelDesc d;
  d.kind = KernelDesc::Kind::Conv;
  d.name = "conv";
  d.window = {3, 3};
  d.strides = strides;
  d.pads = pads;
  d.dilations = dilations;
  d.group = group;
  d.groupChannels = channels / group;
  d.channelsLast = true;
  d.resultInPlace = true;
  d.numInputs = 2;
  d.numOutputs = 1;
  auto size = [&](int i, int64_t from) {
    return (from + pads[i] + pads[2 + i] - 2 * dilations[i] - 1) / strides[i] + 1;
  };
  d.parallel = {dim("N"), size(0, 15), size(1, 12), filters};
  d.reduction = {3, 3, channels / group};
  d.buffers.resize(3);
  for (BufferArg &b : d.buffers)
    b.dtype = DType::F16;
  d.buffers[0].dims = {dim("N"), 15, 12, channels};
  d.buffers[1].dims = {filters, channels / group, 3, 3};
  d.buffers[2].dims = d.parallel;
  for (BufferArg &b : d.buffers)
    b.physical = b.dims;
  d.operands.resize(2);
  for (int i = 0; i < 2; ++i) {
    d.operands[i].buffer = i;
    d.operands[i].dtype = DType::F16;
  }
  d.operands[1].isWeight = true;
  d.symbols["N"] = DimRange{0, 64};
  return d;
}

TEST(Choose, MapsOfImagesBeginAWindowForEachResult) {
  Target hopper = *Target::parse("sm_90a");
  for (auto [strides, pads, dilations] :
       {std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>>{{1, 1}, {1, 1, 1, 1}, {1, 1}},
        {{2, 2}, {1, 1, 1, 1}, {1, 1}},
        {{2, 1}, {0, 2, 1, 0}, {1, 2}},
        {{3, 5}, {2, 0, 0, 2}, {2, 1}}}) {
    KernelDesc d = windows(128, 64, 1, strides, pads, dilations);
    auto all = chooseVariants(d, hopper);
    ASSERT_TRUE(all.ok());
    for (const KernelVariant &v : *all) {
      EXPECT_EQ(v.spec.buffers[1].packing, "rows64");
      const TensorMapArg &map = v.spec.tensorMaps[0];
      ASSERT_TRUE(map.im2col);
      EXPECT_EQ(map.dims, (std::vector<DimExpr>{128, 12, 15, dim("N")}));
      EXPECT_EQ(map.strides[1], DimExpr(12 * 128 * 2));
      EXPECT_LE(*v.spec.launches[0].sharedBytes.constant(), 227 << 10);
      // Corners are those of x, then y. The engine walks from the lower one in steps up to the upper.
      for (int axis = 0; axis < 2; ++axis) {
        int64_t size = *map.dims[1 + axis].constant(), at = map.lowerCorner[axis], count = 0;
        int64_t pad = d.pads[1 - axis], stride = d.strides[1 - axis];
        for (; at < size + map.upperCorner[axis]; at += map.steps[1 + axis], ++count)
          EXPECT_EQ(at, count * stride - pad);
        EXPECT_EQ(DimExpr(count), d.parallel[2 - axis]);
      }
    }
    EXPECT_TRUE(all->back().guard.empty());
  }
}

// Of codes a stage has twice the channels; results of bytes are stored by TMA as those of 16 bits are.
TEST(Choose, WindowsOfCodesHaveTwiceTheChannels) {
  KernelDesc d = windows(144, 64, 1, {1, 1}, {1, 1, 1, 1}, {1, 1});
  d.buffers[0].dtype = d.operands[0].dtype = DType::UI8;
  d.buffers[1].dtype = d.operands[1].dtype = DType::I8;
  d.buffers[2].dtype = DType::UI8;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  for (const KernelVariant &v : *all) {
    EXPECT_EQ(v.spec.buffers[1].packing, "rows128");
    ASSERT_TRUE(v.spec.tensorMaps[0].im2col);
    EXPECT_EQ(v.spec.tensorMaps[0].box[0], DimExpr(128));
    EXPECT_EQ(v.spec.tensorMaps[0].strides[0], DimExpr(144));
    EXPECT_EQ(v.spec.tensorMaps[1].dims[0], DimExpr(9 * 256));
  }
  EXPECT_EQ(all->back().spec.tensorMaps.back().role, TensorMapArg::Role::Result);
  // Pixels of at most 64 bytes: two taps a stage, each with a swizzle of its own.
  KernelDesc few = windows(48, 64, 1, {1, 1}, {1, 1, 1, 1}, {1, 1});
  few.buffers[0].dtype = few.operands[0].dtype = DType::UI8;
  few.buffers[1].dtype = few.operands[1].dtype = DType::I8;
  few.buffers[2].dtype = DType::UI8;
  auto narrow = chooseVariants(few, *Target::parse("sm_90a"));
  ASSERT_TRUE(narrow.ok());
  for (const KernelVariant &v : *narrow) {
    EXPECT_FALSE(isSplit(*KernelConfig::parse(v.spec.config)));
    EXPECT_EQ(v.spec.buffers[1].packing, "rows64");
    for (size_t i : {0, 1}) {
      EXPECT_EQ(v.spec.tensorMaps[i].box[0], 64);
      EXPECT_EQ(v.spec.tensorMaps[i].swizzleBytes, 64);
    }
    EXPECT_EQ(v.spec.tensorMaps[1].dims[0], DimExpr(9 * 64));
  }
  d.buffers[0].dims[3] = d.buffers[0].physical[3] = 72; // no whole pieces of 16 bytes
  EXPECT_NE(familyOf(chooseVariants(d, *Target::parse("sm_90a"))->back()).substr(0, 13), "conv.pingpong");
}

// Blocks that share K gain nothing where the bytes take longer; 128 columns of bytes are stored together.
TEST(Choose, WindowsThatMemoryBoundsHaveWholeTiles) {
  KernelDesc d = windows(512, 128, 1, {1, 1}, {0, 0, 0, 0}, {1, 1});
  d.window = {1, 1};
  d.reduction = {1, 1, 512};
  d.parallel = {64, 28, 28, 128};
  d.buffers[0].dims = d.buffers[0].physical = {64, 28, 28, 512};
  d.buffers[1].dims = d.buffers[1].physical = {128, 512, 1, 1};
  d.buffers[2].dims = d.buffers[2].physical = d.parallel;
  d.buffers[0].dtype = d.operands[0].dtype = d.buffers[2].dtype = DType::UI8;
  d.buffers[1].dtype = d.operands[1].dtype = DType::I8;
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(familyOf(all->front()), "conv.pingpong");
  const TensorMapArg &result = all->front().spec.tensorMaps.back();
  EXPECT_EQ(result.role, TensorMapArg::Role::Result);
  EXPECT_EQ(result.box[0], DimExpr(128));
  EXPECT_EQ(result.swizzleBytes, 128);
}

TEST(Choose, WindowsThatMapsRefuseTakeThePortableForm) {
  Target hopper = *Target::parse("sm_90a");
  auto family = [&](const KernelDesc &d) { return familyOf(chooseVariants(d, hopper)->back()); };
  KernelDesc plain = windows(128, 64, 1, {1, 1}, {1, 1, 1, 1}, {1, 1});
  EXPECT_EQ(family(plain).substr(0, 5), "conv.");
  EXPECT_NE(family(plain), "conv.mma");
  EXPECT_EQ(family(windows(12, 64, 1, {1, 1}, {1, 1, 1, 1}, {1, 1})), "conv.mma");      // 24 bytes a pixel
  EXPECT_EQ(family(windows(64, 64, 2, {1, 1}, {1, 1, 1, 1}, {1, 1})), "conv.groups");   // half a step
  EXPECT_EQ(family(windows(128, 64, 1, {9, 1}, {1, 1, 1, 1}, {1, 1})), "conv.mma");     // beyond 8
  EXPECT_EQ(family(windows(128, 64, 1, {1, 1}, {200, 1, 0, 1}, {1, 1})), "conv.mma");   // beyond a byte
  EXPECT_EQ(family(windows(64, 64, 64, {1, 1}, {1, 1, 1, 1}, {1, 1})), "conv.depthwise");
  KernelDesc input = plain;
  input.operands[1].isWeight = false;
  EXPECT_EQ(family(input), "conv.mma");
  EXPECT_EQ(familyOf(chooseVariants(plain, *Target::parse("sm_80"))->back()), "conv.mma");
  KernelDesc groups = windows(128, 64, 2, {1, 1}, {1, 1, 1, 1}, {1, 1});
  const KernelSpec s = chooseVariants(groups, hopper)->back().spec;
  EXPECT_EQ(s.tensorMaps[1].dims, (std::vector<DimExpr>{9 * 64, 32, 2}));
}

TEST(Choose, SmallGroupsShareABlock) {
  auto chosen = [](int64_t channels, int64_t filters, int64_t group, int64_t stride = 1, const char *target = "sm_90a") {
    auto all = chooseVariants(windows(channels, filters, group, {stride, stride}, {1, 1, 1, 1}, {1, 1}), *Target::parse(target));
    return all.ok() ? all->back().spec : KernelSpec{};
  };
  const KernelSpec pairs = chosen(64, 64, 2);
  EXPECT_EQ(pairs.config, "conv.groups.t128.m8.n16.k64");
  EXPECT_EQ(pairs.launches[0].sharedBytes, DimExpr(63824)); // GroupsTile::SHARED_BYTES
  EXPECT_EQ(pairs.launches[0].grid[0], dim("2*N"));
  EXPECT_EQ(pairs.buffers[1].packing, "rows8");
  EXPECT_EQ(chosen(128, 128, 16).config, "conv.groups.t128.m8.n16.k64"); // 8 groups of 8, twice
  EXPECT_EQ(chosen(128, 128, 16).launches[0].grid[0], dim("4*N"));
  EXPECT_EQ(chosen(72, 72, 9).config, "conv.groups.t128.m8.n16.k24");    // 9 are no 2, 4 or 8 times
  EXPECT_EQ(chosen(96, 96, 2).config, "conv.groups.t128.m8.n16.k48");
  EXPECT_EQ(chosen(64, 64, 2, 2).config, "conv.groups.t128.m8.n8.k32"); // a stride of 2 needs four times the pixels
  EXPECT_EQ(chosen(64, 64, 2, 1, "sm_80").config, "conv.groups.t128.m8.n16.k64");
  EXPECT_EQ(chosen(128, 128, 32).config, "conv.groups.t128.m8.n16.k32"); // 32 groups of 4, two by two
  EXPECT_EQ(chosen(128, 128, 32).launches[0].grid[0], dim("8*N"));
  EXPECT_EQ(chosen(128, 128, 32).buffers[1].packing, "rows4");
  EXPECT_EQ(chosen(12, 12, 3).config.substr(0, 11), "conv.direct");      // no pairs
  EXPECT_EQ(chosen(64, 24, 8).config.substr(0, 11), "conv.direct");      // 3 filters
  EXPECT_EQ(chosen(24, 64, 2).config.substr(0, 8), "conv.mma");          // 12 channels

  KernelDesc d = windows(64, 64, 2, {1, 1}, {1, 1, 1, 1}, {1, 1});
  d.wanted = "conv.groups.t128.m8.n16.k64";
  EXPECT_EQ(chooseVariants(d, *Target::parse("sm_90a"))->back().spec.config, d.wanted);
  d.wanted = "conv.groups.t128.m4.n32.k64";
  EXPECT_EQ(chooseVariants(d, *Target::parse("sm_90a")).status().code(), ErrorCode::Usage);
}

/// y[N, L, K] of x[N, L, C], channels last, or y[N, K, L] of x[N, C, L].
KernelDesc line(int64_t channels, int64_t group, int64_t window, int64_t length, bool channelsLast) {
  KernelDesc d = windows(channels, channels, group, {1, 1}, {1, 1, 1, 1}, {1, 1});
  d.window = {window};
  d.strides = d.dilations = {1};
  d.pads = {window / 2, window - 1 - window / 2};
  d.channelsLast = channelsLast;
  d.parallel = {dim("N"), length, channels};
  d.reduction = {window, channels / group};
  d.buffers[0].dims = channelsLast ? d.parallel : std::vector<DimExpr>{dim("N"), channels, length};
  d.buffers[1].dims = {channels, channels / group, window};
  d.buffers[2].dims = d.buffers[0].dims;
  for (BufferArg &b : d.buffers)
    b.physical = b.dims;
  return d;
}

TEST(Choose, LongWindowsOfGroupsComeInStages) {
  auto chosen = [](const KernelDesc &d) {
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    return all.ok() ? all->back().spec : KernelSpec{};
  };
  const KernelSpec spec = chosen(line(768, 16, 128, 149, true)); // wav2vec2's positions
  EXPECT_EQ(spec.config, "conv.groups.line.t128.m8.n128.k48.s2");
  EXPECT_EQ(spec.launches[0].sharedBytes, DimExpr(255 * 7 * 16 + 2 * 48 * 49 * 16 + 16)); // GroupLineTile::SHARED_BYTES
  EXPECT_EQ(spec.launches[0].grid[0], dim("32*N"));
  EXPECT_EQ(chosen(line(768, 16, 126, 50, true)).config, "conv.groups.line.t128.m2.n64.k48.s2");
  EXPECT_EQ(chosen(line(768, 16, 8, 149, true)).config, "conv.groups.t128.m1.n128.k48");
}

TEST(Choose, DepthwiseChannelsFirstReadRows) {
  auto chosen = [](const KernelDesc &d) {
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    return all.ok() ? all->back().spec : KernelSpec{};
  };
  const KernelSpec spec = chosen(line(160, 160, 31, 25907, false));
  EXPECT_EQ(spec.config, "conv.planes.t128.v8");
  EXPECT_EQ(spec.launches[0].grid[0], dim("ceildiv(518400*N, 128)"));
  EXPECT_EQ(chosen(line(160, 160, 129, 25907, false)).config.substr(0, 11), "conv.direct"); // beyond its registers
}

} // namespace
