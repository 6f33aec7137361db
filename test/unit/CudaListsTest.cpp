//===- CudaListsTest.cpp - lists of the tiles that a mask lets through -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The launch ahead of attention on sm_90a (codegen/device/attention_blocks.cuh) by itself, emulated: what it tells of boxes
// of queries and keys must give the lists that a look at every score gives.
//
//===----------------------------------------------------------------------===//

#include "CudaKernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <regex>

using namespace lathe;
using namespace lathe::test;

namespace {

constexpr int64_t kQueries = 270, kKeys = 330, kTile = 128, kHeads = 4, kBatch = 2;

struct Mask {
  std::string name, arguments, body, operands, attributes, types;
};

const std::vector<Mask> masks() {
  const std::string places = R"(
    %t = lathe.iota {axis = 0 : i64} : () -> tensor<330xi64>
    %i = lathe.iota {axis = 0 : i64} : () -> tensor<270xi64>
    %s = lathe.reshape %i : (tensor<270xi64>) -> tensor<270x1xi64>
    %d = lathe.sub %s, %t : (tensor<270x1xi64>, tensor<330xi64>) -> tensor<270x330xi64>)";
  return {
      {"window", "", places + R"(
    %a = lathe.abs %d : (tensor<270x330xi64>) -> tensor<270x330xi64>
    %w = lathe.constant dense<40> : tensor<i64>
    %g = lathe.constant dense<20> : tensor<i64>
    %near = lathe.compare %a, %w {predicate = #lathe.predicate<le>} : (tensor<270x330xi64>, tensor<i64>) -> tensor<270x330xi1>
    %first = lathe.compare %t, %g {predicate = #lathe.predicate<lt>} : (tensor<330xi64>, tensor<i64>) -> tensor<330xi1>
    %m = lathe.or %near, %first : (tensor<270x330xi1>, tensor<330xi1>) -> tensor<270x330xi1>)",
       "mask %m", "", ", tensor<270x330xi1>"},
      // Every third block, which numbers in memory tell.
      {"dilated", ", %b: tensor<270x1xi64>, %c: tensor<330xi64>", R"(
    %d = lathe.sub %b, %c : (tensor<270x1xi64>, tensor<330xi64>) -> tensor<270x330xi64>
    %three = lathe.constant dense<3> : tensor<i64>
    %zero = lathe.constant dense<0> : tensor<i64>
    %r = lathe.mod %d, %three : (tensor<270x330xi64>, tensor<i64>) -> tensor<270x330xi64>
    %m = lathe.compare %r, %zero {predicate = #lathe.predicate<eq>} : (tensor<270x330xi64>, tensor<i64>) -> tensor<270x330xi1>)",
       "mask %m", "", ", tensor<270x330xi1>"},
      // A table of blocks for each head, repeated.
      {"table", ", %x: tensor<4x9x11xi1>", R"(
    %a = lathe.reshape %x : (tensor<4x9x11xi1>) -> tensor<4x9x1x11x1xi1>
    %b = lathe.broadcast_to %a : (tensor<4x9x1x11x1xi1>) -> tensor<4x9x30x11x30xi1>
    %m = lathe.reshape %b : (tensor<4x9x30x11x30xi1>) -> tensor<4x270x330xi1>)",
       "mask %m", "", ", tensor<4x270x330xi1>"},
      {"gathered", ", %x: tensor<9x11xi1>, %b: tensor<270xi64>, %c: tensor<330xi64>", R"(
    %r = lathe.gather %x, %b {axis = 0 : i64} : (tensor<9x11xi1>, tensor<270xi64>) -> tensor<270x11xi1>
    %m = lathe.gather %r, %c {axis = 1 : i64} : (tensor<270x11xi1>, tensor<330xi64>) -> tensor<270x330xi1>)",
       "mask %m", "", ", tensor<270x330xi1>"},
      {"documents", ", %x: tensor<2x270xi32>, %y: tensor<2x330xi32>", "", "documents %x, %y", ", causal",
       ", tensor<2x270xi32>, tensor<2x330xi32>"},
      {"starts", ", %x: tensor<2xi64>", "", "starts %x", ", causal, window_left = 50 : i64", ", tensor<2xi64>"},
      // Nothing is known of boxes of these that takes less than to look.
      {"stored", ", %m: tensor<270x330xi1>", "", "mask %m", "", ", tensor<270x330xi1>"},
      {"bias", ", %m: tensor<270x330xbf16>", "", "bias %m", "", ", tensor<270x330xbf16>"},
  };
}

/// Of attention: elements of a head, and keys of a tile that fit beside them.
struct Tile {
  int64_t head = 64, keys = 128;
  std::string suffix() const { return "_" + std::to_string(head); }
};

/// The launch that makes the lists, which it writes to the result; `boxes`: as it is, else it looks at every score.
CudaKernel listing(CudaBatch &batch, const Mask &mask, bool boxes, Tile tile = {}) {
  const std::string d = std::to_string(tile.head), q = "tensor<2x4x270x" + d + "xbf16>", k = "tensor<2x2x330x" + d + "xbf16>";
  CudaCase c{fn(mask.name, "(%q: " + q + ", %k: " + k + ", %v: " + k + mask.arguments + ") -> " + q,
                mask.body + "\n  %0 = lathe.attention %q, %k, %v " + mask.operands + " {scale = 0.125 : f64" + mask.attributes + "} : (" + q +
                    ", " + k + ", " + k + mask.types + ") -> " + q + "\n  return %0 : " + q),
             "attention.wgmma.t384.n" + std::to_string(tile.keys)};
  c.maps = 3;
  c.ahead = {"1", "1"};
  c.workspace = "65536";
  CudaKernel kernel = batch.generate(c);
  if (!kernel.error.empty())
    return kernel;
  LaunchSpec launch = kernel.spec.launches[0];
  const std::string name = mask.name + tile.suffix() + (boxes ? "_boxes" : "_scores");
  // Without the products of tensor cores, and with the first kernel alone.
  std::string text = kernel.source.substr(kernel.source.find("\n// Kernel "));
  text = text.substr(0, text.find("\n}\n", text.find("__global__")) + 3);
  for (const char *method : {"  static LATHE_METHOD void product", "  static LATHE_METHOD void chunk"})
    for (size_t at; (at = text.find(method)) != std::string::npos;)
      text.erase(at, text.find("\n  }\n", at) + 5 - at);
  text = std::regex_replace(text, std::regex("const __grid_constant__ TensorMap map\\d, "), "");
  text = std::regex_replace(text, std::regex("\\(u16 \\*\\)h\\.list\\(0, 0, 0, 0, 0, 1\\)"), "(u16 *)out0");
  text = std::regex_replace(text, std::regex(launch.function), name);
  if (!boxes)
    text = std::regex_replace(text, std::regex("kBoxLanes = \\d"), "kBoxLanes = 0");
  kernel.source = text;
  launch.function = name;
  const bool perHead = mask.name == "table", perBatch = mask.name == "documents" || mask.name == "starts";
  launch.grid[0] = (kQueries + kTile - 1) / kTile;
  launch.grid[1] = perHead ? kHeads : 1;
  launch.grid[2] = perBatch ? kBatch : 1;
  launch.sharedBytes = (kKeys + tile.keys - 1) / tile.keys;
  kernel.spec.launches = {launch};
  kernel.spec.tensorMaps.clear();
  return kernel;
}

/// Numbers of blocks of 50, a quarter of the flags, some scores that are hidden.
Bytes inputOf(const BufferArg &arg) {
  const int64_t n = *product(arg.dims).constant(), bytes = bitWidth(arg.dtype) / 8;
  const int64_t row = std::max(*arg.dims.back().constant(), *arg.dims.front().constant()); // of positions
  Bytes out(n * bytes);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t number = bytes == 1 ? i * 7 % 4 == 0 : bytes == 2 ? (i % row / 64 % 2 ? 0xff80 : 0x3f80) : i % row / 50;
    std::memcpy(&out[i * bytes], &number, bytes);
  }
  return out;
}

TEST(CudaLists, BoxesTellWhatScoresDo) {
  CudaBatch batch;
  std::vector<std::pair<Mask, Tile>> cases;
  for (const Mask &mask : masks())
    cases.push_back({mask, {}});
  for (Tile tile : {Tile{192, 112}, Tile{256, 80}}) // quarters of these are no multiples of eight keys
    cases.push_back({masks().front(), tile});
  for (const auto &[mask, tile] : cases)
    for (bool boxes : {true, false}) {
      CudaKernel kernel = listing(batch, mask, boxes, tile);
      ASSERT_EQ(kernel.error, "") << mask.name;
      if (boxes)
        EXPECT_EQ(kernel.source.find("kBoxLanes = 0") != std::string::npos, mask.name == "bias") << mask.name;
      batch.addKernel(std::move(kernel));
    }
  ASSERT_EQ(batch.build(), "");
  for (const auto &[mask, tile] : cases) {
    const std::string name = mask.name + tile.suffix();
    std::vector<Bytes> inputs;
    const KernelSpec &spec = batch.find(name + "_boxes")->spec;
    for (int i = 0; i < spec.numInputs; ++i)
      inputs.push_back(inputOf(spec.buffers[i]));
    const std::vector<Bytes> told = batch.run(name + "_boxes", inputs);
    ASSERT_EQ(batch.error, "") << name;
    const std::vector<Bytes> looked = batch.run(name + "_scores", inputs);
    ASSERT_EQ(batch.error, "") << name;
    EXPECT_EQ(told, looked) << name;
    // Each list begins with its length; of a tile of queries not all tiles of keys are seen everywhere.
    uint16_t length = 0;
    std::memcpy(&length, told[0].data(), sizeof length);
    EXPECT_TRUE(length >= 1 && length <= (kKeys + tile.keys - 1) / tile.keys) << name << ": " << length;
  }
}

} // namespace
