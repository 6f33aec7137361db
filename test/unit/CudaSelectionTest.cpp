//===- CudaSelectionTest.cpp - places by values, without a GPU ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that select elements are emulated and compared with the standard library
// exactly; and they compile with NVRTC.
//
//===----------------------------------------------------------------------===//

#include "CudaKernel.h"

#include "lathe/support/Half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

using namespace lathe;
using namespace lathe::test;

namespace {

struct TopKCase {
  std::string name, dtype, config;
  int64_t rows, length, count;
  bool smallest = false;
  int64_t blocks = 2;
  const char *workspace = "0";
  std::vector<std::string> ahead = {};
};

/// Few different values, so that many are equal, and all that compares in its own way.
std::vector<double> numbers(int64_t n, bool floats, unsigned seed) {
  std::mt19937 gen(seed);
  std::vector<double> out(n);
  for (double &v : out) {
    v = double(int(gen() % 200)) - 100;
    if (floats && gen() % 50 == 0)
      v = gen() % 3 == 0 ? std::nan("") : gen() % 2 ? -0.0 : -INFINITY;
  }
  return out;
}

/// As bf16, which has all of these numbers.
Bytes upperHalves(const std::vector<double> &values) {
  std::vector<uint16_t> out;
  for (double v : values)
    out.push_back(floatToBf16(float(v)));
  return bytesOf(out);
}

bool comesBefore(double a, double b, bool smallest) {
  if (std::isnan(a) || std::isnan(b))
    return smallest ? std::isnan(b) && !std::isnan(a) : std::isnan(a) && !std::isnan(b);
  return smallest ? a < b : a > b;
}

void expectNvrtc(CudaBatch &batch, const std::vector<std::string> &names) {
  Result<std::shared_ptr<nvrtc::Compiler>> compiler = nvrtc::Compiler::open();
  if (!compiler)
    GTEST_SKIP() << compiler.status().str();
  std::vector<nvrtc::CompileJob> jobs;
  for (const std::string &name : names)
    for (const char *target : {"sm_80", "sm_90a"}) {
      nvrtc::CompileJob job;
      job.name = name + ".cu";
      job.source = batch.find(name)->source;
      job.target = target;
      jobs.push_back(job);
    }
  expectCompiles(**compiler, jobs);
}

TEST(CudaSelection, TopKAgreesWithAStableSort) {
  const std::vector<TopKCase> cases = {
      {"whole", "f32", "topk.t256.n256", 3, 200, 7},
      {"one", "f32", "topk.t256.n256", 5, 1, 1},
      {"sorted", "f32", "topk.t256.n256", 2, 256, 256, true},
      {"searched", "f32", "topk.t256.n256", 3, 3000, 200},
      {"searched_least", "f32", "topk.t512.n1024", 1, 5000, 50, true},
      {"wide", "i64", "topk.t256.n256", 2, 1000, 33},
      {"wide_floats", "f64", "topk.t256.n256", 2, 1000, 33, true},
      {"spare", "i32", "topk.t256.n256", 3, 2000, 700, false, 2, "16800"},
      {"spare_all", "i64", "topk.t256.n256", 2, 601, 601, true, 1, "9616"},
      {"short_rows", "f32", "topk.short.t128.r4", 7, 128, 8, false, 2},
      {"short_least", "f32", "topk.short.t128", 6, 30, 30, true, 2},
      {"short_wide", "i64", "topk.short.t128.r8", 5, 250, 32, false, 2},
      {"short_halves", "bf16", "topk.short.t128.r2", 9, 33, 1, false, 3},
      {"row", "f32", "topk.row.t256.n2048", 3, 9000, 50, false, 2},
      {"row_least", "f32", "topk.row.t256.n2048", 2, 4097, 300, true, 2},
      {"row_most", "i32", "topk.row.t256.n2048", 1, 7000, 1024, false, 1},
      {"row_wide", "f64", "topk.row.t256.n2048", 2, 6000, 100, false, 2},
      {"row_all", "i64", "topk.row.t256.n2048", 1, 700, 700, true, 1},
      {"parts", "f32", "topk.parts.t256.n2048", 2, 20001, 50, false, 2, "3200", {"8"}},
      {"parts_least", "f64", "topk.parts.t256.n2048", 1, 9000, 1000, true, 1, "48000", {"3"}},
      {"radix", "f32", "topk.sort.t256.s4", 2, 9000, 9000, true, 6, "333056", {"6", "8", "6", "6", "6"}},
      {"radix_part", "i64", "topk.sort.t256.s8", 1, 5000, 3000, false, 3, "158912",
       {"3", "8", "3", "3", "3", "3", "3", "3", "3"}},
  };
  CudaBatch batch;
  for (const TopKCase &c : cases) {
    auto type = [&](int64_t n, const std::string &element) {
      return "tensor<" + std::to_string(c.rows) + "x" + std::to_string(n) + "x" + element + ">";
    };
    std::string x = type(c.length, c.dtype), y = type(c.count, "i64");
    CudaCase kernel{fn(c.name, "(%x: " + x + ") -> " + y,
                       "  %0 = lathe.topk %x {axis = 1 : i64, k = #lathe.dim<" + std::to_string(c.count) + ">" +
                           (c.smallest ? ", smallest" : "") + "} : (" + x + ") -> " + y + "\n  return %0 : " + y),
                    c.config, {std::to_string(c.blocks)}};
    kernel.workspace = c.workspace;
    kernel.ahead = c.ahead;
    ASSERT_EQ(batch.add(kernel), "") << c.name;
  }
  ASSERT_EQ(batch.build(), "");
  for (const TopKCase &c : cases) {
    std::vector<double> values = numbers(c.rows * c.length, c.dtype.find('f') != std::string::npos, 1);
    Bytes bytes = c.dtype == "f32"   ? bytesOf(std::vector<float>(values.begin(), values.end()))
                  : c.dtype == "bf16" ? upperHalves(values)
                  : c.dtype == "f64" ? bytesOf(values)
                  : c.dtype == "i64" ? bytesOf(std::vector<int64_t>(values.begin(), values.end()))
                                     : bytesOf(std::vector<int32_t>(values.begin(), values.end()));
    std::vector<Bytes> got = batch.run(c.name, {bytes});
    ASSERT_EQ(batch.error, "") << c.name;
    std::vector<int64_t> places = valuesOf<int64_t>(got[0]), order(c.length);
    for (int64_t row = 0; row < c.rows; ++row) {
      std::iota(order.begin(), order.end(), 0);
      const double *of = &values[row * c.length];
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        bool before = comesBefore(of[a], of[b], c.smallest);
        return before || (!comesBefore(of[b], of[a], c.smallest) && a < b);
      });
      for (int64_t i = 0; i < c.count; ++i)
        ASSERT_EQ(places[row * c.count + i], order[i]) << c.name << ", row " << row << ", place " << i;
    }
  }
  // Each form once.
  expectNvrtc(batch, {"searched", "wide_floats", "spare", "short_rows", "short_wide", "row", "row_wide", "parts", "parts_least",
                      "radix", "radix_part"});
}

TEST(CudaSelection, NonzeroCountsWhatItCollects) {
  struct NonzeroCase {
    const char *name, *config, *blocks;
    std::vector<std::string> ahead;
  };
  const std::vector<NonzeroCase> cases = {
      {"flags_256", "nonzero.block.t256", "1", {}},
      {"flags_1024", "nonzero.block.t1024", "1", {}},
      {"flags_shared", "nonzero.t256", "7", {"7"}},
  };
  CudaBatch batch;
  std::vector<std::string> names;
  for (const NonzeroCase &c : cases) {
    CudaCase kernel{fn(c.name, "(%f: tensor<?xi1, #lathe.t<[N]>>) -> (tensor<?xi64, #lathe.t<[N]>>, tensor<i64>)",
                       "  %0, %1 = lathe.nonzero %f : (tensor<?xi1, #lathe.t<[N]>>) -> (tensor<?xi64, #lathe.t<[N]>>, tensor<i64>)\n"
                       "  return %0, %1 : tensor<?xi64, #lathe.t<[N]>>, tensor<i64>"),
                    c.config, {c.blocks}};
    kernel.workspace = "4 * (" + std::string(c.blocks) + " + ceildiv(N, 32))";
    kernel.ahead = c.ahead;
    ASSERT_EQ(batch.add(kernel), "");
    names.push_back(c.name);
  }
  ASSERT_EQ(batch.build(), "");
  for (const std::string &name : names)
    for (int64_t n : {0, 1, 33, 256, 3000, 20000}) {
      std::mt19937 gen(n);
      std::vector<uint8_t> flags(n);
      std::vector<int64_t> want(n);
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i)
        if ((flags[i] = gen() % 3 == 0))
          want[count++] = i;
      std::vector<Bytes> got = batch.run(name, {bytesOf(flags)}, {{"N", n}});
      ASSERT_EQ(batch.error, "");
      EXPECT_EQ(valuesOf<int64_t>(got[0]), want) << name << " " << n;
      EXPECT_EQ(valuesOf<int64_t>(got[1]), std::vector<int64_t>{count});
    }
  expectNvrtc(batch, names);
}

/// Boxes of one size in a row: each overlaps its neighbours by more than the limit, and no others.
TEST(CudaSelection, NmsKeepsWhatOverlapsNothingKept) {
  constexpr int64_t kBoxes = 200, kCandidates = 190;
  CudaBatch batch;
  ASSERT_EQ(batch.add({fn("nms", "(%b: tensor<1x200x4xf32>, %o: tensor<1x2x200xi64>, %c: tensor<1x2xi64>, %m: tensor<i64>, %t: tensor<f32>)"
                                 " -> (tensor<1x2x200xi64>, tensor<1x2xi64>)",
                          "  %0, %1 = lathe.nms %b, %o, %c, %m, %t : (tensor<1x200x4xf32>, tensor<1x2x200xi64>, tensor<1x2xi64>, tensor<i64>, "
                          "tensor<f32>) -> (tensor<1x2x200xi64>, tensor<1x2xi64>)\n"
                          "  return %0, %1 : tensor<1x2x200xi64>, tensor<1x2xi64>"),
                       "nms.t128", {"2"}}),
            "");
  ASSERT_EQ(batch.build(), "");
  std::vector<float> boxes;
  for (int64_t i = 0; i < kBoxes; ++i)
    boxes.insert(boxes.end(), {0, float(i), 1, float(i + 2)});
  std::vector<int64_t> order(2 * kBoxes);
  std::mt19937 gen(1);
  for (int64_t row : {0, 1}) {
    std::iota(order.begin() + row * kBoxes, order.begin() + (row + 1) * kBoxes, 0);
    std::shuffle(order.begin() + row * kBoxes, order.begin() + (row + 1) * kBoxes, gen);
  }
  for (int64_t most : {1000, 7, 0}) {
    std::vector<Bytes> got = batch.run("nms", {bytesOf(boxes), bytesOf(order), bytesOf(std::vector<int64_t>{kCandidates, 3}),
                                               bytesOf(std::vector<int64_t>{most}), bytesOf(std::vector<float>{0.3f})});
    ASSERT_EQ(batch.error, "");
    std::vector<int64_t> places = valuesOf<int64_t>(got[0]), counts = valuesOf<int64_t>(got[1]);
    for (int64_t row : {0, 1}) {
      std::vector<int64_t> kept;
      for (int64_t i = 0; i < (row ? 3 : kCandidates) && int64_t(kept.size()) < most; ++i) {
        int64_t place = order[row * kBoxes + i];
        if (std::none_of(kept.begin(), kept.end(), [&](int64_t other) { return std::abs(other - place) == 1; }))
          kept.push_back(place);
      }
      EXPECT_EQ(counts[row], int64_t(kept.size())) << most;
      kept.resize(kBoxes);
      EXPECT_EQ(std::vector<int64_t>(places.begin() + row * kBoxes, places.begin() + (row + 1) * kBoxes), kept) << most;
    }
  }
  expectNvrtc(batch, {"nms"});
}

} // namespace
