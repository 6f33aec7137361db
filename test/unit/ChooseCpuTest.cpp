//===- ChooseCpuTest.cpp - configurations for convolutions on CPUs -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ChooseFixture.h"

#include "lathe/codegen/Config.h"
#include "lathe/codegen/CpuConfigs.h"
#include "lathe/codegen/KernelDesc.h"
#include "lathe/support/Winograd.h"

#include <gtest/gtest.h>

using namespace lathe;

namespace {

/// Of stride 1, as many pixels as there were; f32, channels last.
KernelDesc convolution(DimExpr images, int64_t size, int64_t channels, int64_t filters, int64_t window) {
  KernelDesc d;
  d.name = "k";
  d.kind = KernelDesc::Kind::Conv;
  d.parallel = {images, size, size, filters};
  d.reduction = {window, window, channels};
  BufferArg buffer;
  buffer.dtype = DType::F32;
  for (std::vector<DimExpr> dims : {std::vector<DimExpr>{images, size, size, channels},
                                    {filters, channels, window, window}, d.parallel}) {
    buffer.dims = buffer.physical = dims;
    d.buffers.push_back(buffer);
  }
  d.numInputs = 2;
  d.numOutputs = 1;
  std::set<std::string> names;
  images.collectSymbols(names);
  for (const std::string &n : names)
    d.symbols[n] = DimRange{0, 4096};
  ContractionOperand x, w;
  x.buffer = 0;
  w.buffer = 1;
  w.isWeight = true;
  d.operands = {x, w};
  d.window = {window, window};
  d.strides = d.dilations = {1, 1};
  d.pads.assign(4, window / 2);
  d.groupChannels = channels;
  d.channelsLast = true;
  return d;
}

// 3 x 3 filters of stride 1 and 2 run by Winograd's F(2,3), those of stride 1 by F(4,3) where the
// error that is expected of it is allowed and the image has enough tiles to share its filters.
TEST(ChooseCpu, WinogradByTolerance) {
  auto config = [](int64_t size, int64_t channels, double tolerance, int64_t stride = 1) {
    KernelDesc d = convolution(1, size, channels, channels, 3);
    d.strides = {stride, stride};
    d.winogradTolerance = tolerance;
    auto variants = chooseVariants(d, *Target::parse("x86-64-v3"));
    EXPECT_TRUE(variants.ok());
    const KernelSpec &spec = variants->back().spec;
    return std::string(KernelConfig::parse(spec.config)->family()) + " " + spec.buffers[1].packing;
  };
  EXPECT_EQ(config(56, 64, 0), "conv.winograd2 winograd16");
  EXPECT_EQ(config(56, 64, 1e-6), "conv.winograd4 winograd16f4");
  EXPECT_EQ(config(56, 64, 1e-7), "conv.winograd2 winograd16");
  EXPECT_EQ(config(28, 512, 1e-6), "conv.winograd2 winograd16");
  EXPECT_EQ(config(28, 512, 1e-5), "conv.winograd4 winograd16f4");
  // Where few tiles share them, 36 filters come from memory more slowly than 16 are multiplied.
  EXPECT_EQ(config(14, 256, 1e-5), "conv.winograd4 winograd16f4");
  EXPECT_EQ(config(7, 512, 1e-5), "conv.winograd2 winograd16");
  EXPECT_EQ(config(1, 512, 1e-5), "conv filters16");
  // A form of its own has stride 2, no stride more.
  EXPECT_EQ(config(28, 128, 1e-5, 2), "conv.winograd2 winograd16s2");
  EXPECT_EQ(config(28, 128, 0, 3), "conv filters16");
}

// Units of a convolution have the same work, an even number of them; of any number of images all
// chunks have the same pixels or tiles, and one image has some units.
TEST(ChooseCpu, ConvolutionsInEvenUnits) {
  auto spec = [](DimExpr images, int64_t size, int64_t channels, int64_t filters, int64_t window) {
    auto variants =
        chooseVariants(convolution(images, size, channels, filters, window), *Target::parse("x86-64-v4"));
    EXPECT_TRUE(variants.ok());
    return variants->back().spec;
  };
  auto config = [&](auto... sizes) { return *KernelConfig::parse(spec(sizes...).config); };
  DimExpr n = DimExpr::symbol("N");
  for (auto [size, channels, filters] : {std::array{56, 64, 256}, {56, 256, 128}, {28, 128, 512}}) {
    KernelSpec one = spec(1, size, channels, filters, 1);
    EXPECT_EQ(filters / 32 % KernelConfig::parse(one.config)->tileK, 0) << one.config;
    EXPECT_EQ(*one.launches[0].grid[0].constant() % 2, 0) << one.config;
  }
  EXPECT_EQ(config(n, 7, 512, 2048, 1).rows, 49);
  EXPECT_EQ(config(n, 28, 128, 512, 1).rows, 56);
  EXPECT_EQ(config(n, 13, 128, 512, 1).rows, 64); // nothing near it divides 169
  // Several chunks are whole tiles of eight rows.
  EXPECT_EQ(config(1, 14, 128, 512, 1).rows, 56);
  EXPECT_EQ(config(1, 7, 512, 2048, 1).rows, 49); // one chunk
  EXPECT_EQ(config(n, 20, 128, 512, 1).rows, 40); // 50 divides 400 in parts of tiles
  EXPECT_EQ(config(n, 28, 128, 128, 3).rows, 49);
  EXPECT_EQ(config(n, 7, 512, 512, 3).rows, 64); // four images of sixteen tiles
  KernelSpec last = spec(n, 7, 512, 512, 3);
  EXPECT_GE(*last.launches[0].grid[0].evaluate(std::map<std::string, int64_t>{{"N", 1}}), 4);
}

KernelConfig chosen(const KernelDesc &desc, const std::string &target) {
  auto variants = chooseVariants(desc, *Target::parse(target));
  EXPECT_TRUE(variants.ok()) << variants.status().message();
  return *KernelConfig::parse(variants->back().spec.config);
}

// What a unit of Winograd's algorithm works on stays in the cache that the target has, at fixed sizes as at others.
TEST(ChooseCpu, WinogradFitsTheSecondCache) {
  winograd::Form form{2};
  for (auto [target, cache] : {std::pair{"x86-64-v3", 512 << 10},
                               {"x86-64-v3:l2=1M", 1 << 20},
                               {"x86-64-v3:l2=256K", 256 << 10}})
    for (int64_t channels : {64, 96, 128})
      for (bool fixed : {true, false}) {
        KernelDesc d = convolution(1, 0, channels, channels, 3);
        d.parallel[1] = fixed ? DimExpr(900) : DimExpr::symbol("H");
        d.parallel[2] = fixed ? DimExpr(160) : DimExpr::symbol("W");
        d.symbols = {{"H", {0, 4096}}, {"W", {0, 4096}}};
        KernelConfig c = chosen(d, target);
        ASSERT_EQ(c.family(), "conv.winograd2");
        // With several panels at a time, what is read again and again is a point's rows.
        int64_t again = c.stages ? 4 * c.rows * channels : form.scratchBytes(c.rows, channels, c.tileN);
        EXPECT_LE(again, cache) << target << " " << channels << " " << c.str();
        EXPECT_GE(c.rows, 2 * c.tileM) << c.str();
      }
}

// Where stores take the time, few rows are written at a time, in stretches of 2 KB, and blocks of a convolution have results that
// stay in cache from panel to panel; elsewhere nothing changes.
TEST(ChooseCpu, ShallowProductsWriteLongStretches) {
  auto config = [](const KernelDesc &d) {
    auto variants = chooseVariants(d, *Target::parse("x86-64-v4:l1=48K:l2=2M:l3=8M:cores=1"));
    EXPECT_TRUE(variants.ok());
    return *KernelConfig::parse(variants->back().spec.config);
  };
  KernelConfig shallow = config(test::productByWeights(282, 2888, 8));
  EXPECT_EQ(shallow.rows, 32);
  EXPECT_EQ(shallow.tileK * shallow.tileN * 4, 2048);
  for (auto [m, n, k] : {std::tuple{282, 2888, 100}, std::tuple{44, 424, 8}})
    EXPECT_EQ(config(test::productByWeights(m, n, k)).rows, 64) << m << " " << n << " " << k;
  auto bytesOfBlock = [&](int64_t size, int64_t channels, int64_t filters) {
    return config(convolution(1, size, channels, filters, 3)).stages * size * filters * 4;
  };
  EXPECT_LE(bytesOfBlock(80, 7, 293), 256 << 10);
  EXPECT_GT(bytesOfBlock(80, 15, 293), 256 << 10) << "135 steps of K";
  EXPECT_GT(bytesOfBlock(400, 7, 32), 256 << 10) << "one panel goes over its results once";
}

// Blocks of padded rows, panels of products and rows that are streamed for follow the cache; units follow the cores.
TEST(ChooseCpu, FactsOfTheTarget) {
  KernelDesc direct = convolution(1, 112, 64, 64, 5);
  EXPECT_GT(chosen(direct, "x86-64-v3:l2=2M").stages, chosen(direct, "x86-64-v3:l2=256K").stages);
  KernelDesc few = convolution(1, 14, 64, 512, 5);
  auto units = [&](const char *target) {
    return *chooseVariants(few, *Target::parse(target))->back().spec.launches[0].grid[0].constant();
  };
  EXPECT_GT(units("x86-64-v3:cores=16"), units("x86-64-v3"));
  EXPECT_EQ(units("x86-64-v3:cores=1"), units("x86-64-v3"));
}

// A configuration that is asked for is taken where it applies, the first of several; else it is an error.
TEST(ChooseCpu, AskedFor) {
  KernelDesc d = convolution(1, 56, 64, 64, 3);
  auto ask = [&](const std::string &wanted) {
    d.wanted = wanted;
    auto variants = chooseVariants(d, *Target::parse("x86-64-v3"));
    return variants.ok() ? variants->back().spec.config : std::string(toString(variants.status().code()));
  };
  for (const char *name : {"conv.winograd2.v8.r24.m6.n16.k2", "conv.winograd2.v8.r24.m6.n16.k4.s4",
                           "conv.v8.m6.n16.k2.s4", "conv.v8.m6.n16.k1.s7"})
    EXPECT_EQ(ask(name), name);
  EXPECT_EQ(ask("gemm.v8.m6.n16.k1,conv.v8.m6.n16.k1.s7"), "conv.v8.m6.n16.k1.s7");
  // The most wanted first, though the other form is the cheaper one.
  EXPECT_EQ(ask("conv.v8.m6.n16.k1.s7,conv.winograd2.v8.r24.m6.n16.k2"), "conv.v8.m6.n16.k1.s7");
  const std::string usage(toString(ErrorCode::Usage));
  for (const char *name : {"conv.winograd2.v16.r24.m8.n32.k2", "conv.v8.m6.n16.k200.s4", "conv.v8.m6.n16.k1.s99999",
                           "conv.winograd4.v8.r24.m6.n16.k2", "row.v8.r4"})
    EXPECT_EQ(ask(name), usage) << name;
  // All that tuning tries either runs under its own name or is such an error.
  d.wanted.clear();
  size_t applied = 0;
  std::vector<std::string> all = cpuConfigsBeside(chosen(d, "x86-64-v3"));
  for (const std::string &name : all)
    if (std::string got = ask(name); got != usage) {
      EXPECT_EQ(got, name);
      ++applied;
    }
  EXPECT_GE(applied, 19u); // 12 of blocks of rows, the others of tiles by F(2,3)
  EXPECT_GT(all.size(), applied); // F(4,3) is not allowed here
}

} // namespace
