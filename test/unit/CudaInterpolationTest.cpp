//===- CudaInterpolationTest.cpp - sums of neighbours along two axes -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CudaKernel.h"

#include "lathe/support/Half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace lathe;
using namespace lathe::test;

namespace {

struct Sizes {
  std::string name, config, grid;
  int64_t planes, channels, height, width, toHeight, toWidth; ///< of images [planes, channels, height, width]
  int tapsY, tapsX;
  bool last = false; ///< channels lie behind the pixels, in the input and in the result
  int64_t spread = 1; ///< how far neighbours lie apart
};

/// Sums along the rows, then along the columns, of places that are inputs as well.
std::string textOf(const Sizes &c) {
  auto type = [&](int64_t h, int64_t w, const char *element, bool last = false) {
    std::string n = std::to_string(c.planes) + "x", k = std::to_string(c.channels) + "x", p = std::to_string(h) + "x" + std::to_string(w) + "x";
    return "tensor<" + n + (last ? p + k : k + p) + element + ">";
  };
  std::string inputs = "(%x: " + type(c.height, c.width, "f16", c.last), body;
  std::string now = "%x";
  if (c.last) {
    body += "  %t = lathe.transpose %x {perm = array<i64: 0, 3, 1, 2>} : (" + type(c.height, c.width, "f16", true) + ") -> " + type(c.height, c.width, "f16") + "\n";
    now = "%t";
  }
  auto along = [&](bool rows, int taps, std::string from, std::string to, const char *element, const std::string &places, const std::string &weights) {
    const std::string name = rows ? "r" : "c", wide = to.substr(0, to.rfind('x')) + "xf32>";
    std::string sum;
    for (int t = 0; t < taps; ++t) {
      const std::string i = name + std::to_string(t);
      inputs += ", %p" + i + ": " + places + ", %w" + i + ": " + weights;
      body += "  %g" + i + " = lathe.gather " + now + ", %p" + i + " {axis = " + (rows ? "2" : "3") + " : i64} : (" + from + ", " + places + ") -> " + to + "\n";
      std::string part = "%g" + i;
      if (std::string(element) != "f32") {
        body += "  %f" + i + " = lathe.cast " + part + " : (" + to + ") -> " + wide + "\n";
        part = "%f" + i;
      }
      body += "  %m" + i + " = lathe.mul " + part + ", %w" + i + " : (" + wide + ", " + weights + ") -> " + wide + "\n";
      if (t > 0)
        body += "  %s" + i + " = lathe.add " + sum + ", %m" + i + " : (" + wide + ", " + wide + ") -> " + wide + "\n";
      sum = (t > 0 ? "%s" : "%m") + i;
    }
    now = sum;
  };
  const std::string h = std::to_string(c.toHeight), w = std::to_string(c.toWidth);
  along(true, c.tapsY, type(c.height, c.width, "f16"), type(c.toHeight, c.width, "f16"), "f16", "tensor<" + h + "xi64>", "tensor<1x1x" + h + "x1xf32>");
  along(false, c.tapsX, type(c.toHeight, c.width, "f32"), type(c.toHeight, c.toWidth, "f32"), "f32", "tensor<" + w + "xi64>", "tensor<1x1x1x" + w + "xf32>");
  const std::string sums = type(c.toHeight, c.toWidth, "f32"), result = type(c.toHeight, c.toWidth, "f32", c.last);
  body += "  %n = lathe.neg " + now + " : (" + sums + ") -> " + sums + "\n";
  if (c.last)
    body += "  %y = lathe.transpose %n {perm = array<i64: 0, 2, 3, 1>} : (" + sums + ") -> " + result + "\n";
  return fn(c.name, inputs + ") -> " + result, body + "  return " + (c.last ? "%y" : "%n") + " : " + result);
}

TEST(CudaInterpolation, SumsAlongBothAxes) {
  const std::vector<Sizes> cases = {
      {"larger", "interpolate.t256.m16.n64", "12", 2, 3, 9, 14, 18, 28, 4, 4},
      {"channels_behind", "interpolate.t256.m16.n128", "4", 1, 5, 21, 17, 31, 30, 2, 3, true},
      {"smaller", "interpolate.t256.m16.n32", "2", 1, 2, 35, 20, 13, 11, 2, 2},
      {"far_apart", "interpolate.t256.m16.n32", "4", 1, 2, 150, 6, 17, 9, 3, 2, false, 70},
  };
  CudaBatch batch;
  for (const Sizes &c : cases)
    ASSERT_EQ(batch.add({textOf(c), c.config, {c.grid}}), "") << c.name;
  ASSERT_EQ(batch.build(), "");
  std::mt19937 gen(3);
  for (const Sizes &c : cases) {
    std::vector<float> x(size_t(c.planes * c.channels * c.height * c.width));
    std::vector<uint16_t> halves;
    for (float &v : x) {
      v = f16ToFloat(floatToF16(float(int(gen() % 2001) - 1000) / 256));
      halves.push_back(floatToF16(v));
    }
    std::vector<Bytes> inputs = {bytesOf(halves)};
    struct Axis {
      std::vector<std::vector<int64_t>> places;
      std::vector<std::vector<float>> weights;
    };
    auto axis = [&](int taps, int64_t from, int64_t to) {
      Axis made;
      for (int t = 0; t < taps; ++t) {
        std::vector<int64_t> places, given;
        std::vector<float> weights;
        for (int64_t i = 0; i < to; ++i) {
          int64_t at = std::clamp<int64_t>(i * from / to + (t - 1) * c.spread, 0, from - 1);
          places.push_back(at);
          given.push_back(i % 3 == 0 ? at - from : at); // from the end
          weights.push_back(float(int(gen() % 200) - 60) / 128);
        }
        inputs.push_back(bytesOf(given));
        inputs.push_back(bytesOf(weights));
        made.places.push_back(places);
        made.weights.push_back(weights);
      }
      return made;
    };
    const Axis rows = axis(c.tapsY, c.height, c.toHeight), columns = axis(c.tapsX, c.width, c.toWidth);
    auto at = [&](int64_t n, int64_t k, int64_t y, int64_t x, int64_t h, int64_t w) {
      return size_t(c.last ? ((n * h + y) * w + x) * c.channels + k : ((n * c.channels + k) * h + y) * w + x);
    };
    const std::vector<Bytes> got = batch.run(c.name, inputs);
    ASSERT_EQ(batch.error, "") << c.name;
    EXPECT_EQ(batch.status[0], 0u) << c.name;
    const std::vector<float> made = valuesOf<float>(got[0]);
    for (int64_t n = 0; n < c.planes; ++n)
      for (int64_t k = 0; k < c.channels; ++k)
        for (int64_t y = 0; y < c.toHeight; ++y)
          for (int64_t z = 0; z < c.toWidth; ++z) {
            double want = 0;
            for (int t = 0; t < c.tapsY; ++t)
              for (int s = 0; s < c.tapsX; ++s)
                want -= double(rows.weights[t][y]) * columns.weights[s][z] * x[at(n, k, rows.places[t][y], columns.places[s][z], c.height, c.width)];
            ASSERT_NEAR(made[at(n, k, y, z, c.toHeight, c.toWidth)], want, 1e-4) << c.name << " " << y << " " << z;
          }
  }
  // A place outside is reported.
  std::vector<Bytes> inputs;
  const KernelSpec &spec = batch.find("smaller")->spec;
  for (int i = 0; i < spec.numInputs; ++i)
    inputs.push_back(Bytes(size_t(*product(spec.buffers[i].dims).constant() * bitWidth(spec.buffers[i].dtype) / 8)));
  const int64_t beyond = 35;
  std::memcpy(&inputs[1][0], &beyond, sizeof beyond);
  (void)batch.run("smaller", inputs);
  EXPECT_NE(batch.status[0], 0u);
}

/// Places and weights that all channels have are asked for once for several of them.
TEST(CudaInterpolation, ChannelsShareTheirPlaces) {
  CudaBatch batch;
  const std::string body = R"(
  %a = lathe.reshape %i : (tensor<2x13xi64>) -> tensor<2x1x13xi64>
  %b = lathe.broadcast_to %a : (tensor<2x1x13xi64>) -> tensor<2x8x13xi64>
  %g = lathe.gather_elements %x, %b {axis = 2 : i64} : (tensor<2x8x30xf32>, tensor<2x8x13xi64>) -> tensor<2x8x13xf32>
  %v = lathe.reshape %w : (tensor<2x13xf32>) -> tensor<2x1x13xf32>
  %y = lathe.mul %g, %v : (tensor<2x8x13xf32>, tensor<2x1x13xf32>) -> tensor<2x8x13xf32>
  return %y : tensor<2x8x13xf32>)";
  const std::string signature = "(%x: tensor<2x8x30xf32>, %i: tensor<2x13xi64>, %w: tensor<2x13xf32>) -> tensor<2x8x13xf32>";
  ASSERT_EQ(batch.add({fn("apart", signature, body), "pointwise.t128", {"2"}}), "");
  ASSERT_EQ(batch.add({fn("together", signature, body), "pointwise.t128.v2.r4", {"1"}}), "");
  EXPECT_NE(batch.add({fn("uneven", signature, body), "pointwise.t128.r3", {"1"}}).find("rows that share their places"), std::string::npos);
  ASSERT_EQ(batch.build(), "");
  std::mt19937 gen(9);
  std::vector<float> x(2 * 8 * 30), w(2 * 13);
  std::vector<int64_t> places(2 * 13);
  for (std::vector<float> *values : {&x, &w})
    for (float &v : *values)
      v = float(int(gen() % 2001) - 1000) / 256;
  for (int64_t &p : places)
    p = int64_t(gen() % 60) - 30;
  std::vector<float> want;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t c = 0; c < 8; ++c)
      for (int64_t p = 0; p < 13; ++p)
        want.push_back(x[size_t((n * 8 + c) * 30 + (places[size_t(n * 13 + p)] + 30) % 30)] * w[size_t(n * 13 + p)]);
  for (const char *name : {"apart", "together"}) {
    const std::vector<Bytes> got = batch.run(name, {bytesOf(x), bytesOf(places), bytesOf(w)});
    ASSERT_EQ(batch.error, "") << name;
    EXPECT_EQ(valuesOf<float>(got[0]), want) << name;
  }
}

} // namespace
