//===- ChooseCpuTest.cpp - configurations for convolutions on CPUs -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Config.h"
#include "lathe/codegen/KernelDesc.h"

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
  EXPECT_EQ(config(n, 28, 128, 128, 3).rows, 49);
  EXPECT_EQ(config(n, 7, 512, 512, 3).rows, 64); // four images of sixteen tiles
  KernelSpec last = spec(n, 7, 512, 512, 3);
  EXPECT_GE(*last.launches[0].grid[0].evaluate(std::map<std::string, int64_t>{{"N", 1}}), 4);
}

} // namespace
