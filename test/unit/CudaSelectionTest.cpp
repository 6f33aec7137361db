//===- CudaSelectionTest.cpp - elements in order, without a GPU ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that select elements, and those that combine them from one to the next or scatter them in order, are
// emulated and compared with the standard library exactly; and they compile with NVRTC.
//
//===----------------------------------------------------------------------===//

#include "CudaKernel.h"

#include "lathe/codegen/Config.h"
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
      {"radix_halves", "bf16", "topk.sort.t256.s4", 1, 5000, 4000, true, 2, "160000", {"2", "4", "2", "2", "2"}},
      {"radix_bytes", "ui8", "topk.sort.t256.s4", 1, 5000, 5000, false, 2, "160000", {"2", "4", "2", "2", "2"}},
      {"radix_part", "i64", "topk.sort.t256.s8", 1, 5000, 3000, false, 3, "158912",
       {"3", "8", "3", "3", "3", "3", "3", "3", "3"}},
  };
  auto placesAlone = [](const TopKCase &c) { return c.name == "whole" || c.name == "radix_part"; };
  CudaBatch batch;
  for (const TopKCase &c : cases) {
    auto type = [&](int64_t n, const std::string &element) {
      return "tensor<" + std::to_string(c.rows) + "x" + std::to_string(n) + "x" + element + ">";
    };
    std::string x = type(c.length, c.dtype), y = type(c.count, "i64"), v = type(c.count, c.dtype);
    const std::string found = "  %0 = lathe.topk %x {axis = 1 : i64, k = #lathe.dim<" + std::to_string(c.count) + ">" +
                              (c.smallest ? ", smallest" : "") + "} : (" + x + ") -> " + y + "\n",
                      taken = "  %1 = lathe.gather_elements %x, %0 {axis = 1 : i64} : (" + x + ", " + y + ") -> " + v + "\n";
    CudaCase kernel{placesAlone(c) ? fn(c.name, "(%x: " + x + ") -> " + y, found + "  return %0 : " + y)
                                   : fn(c.name, "(%x: " + x + ") -> (" + v + ", " + y + ")",
                                        found + taken + "  return %1, %0 : " + v + ", " + y),
                    c.config, {std::to_string(c.blocks)}};
    kernel.workspace = c.workspace;
    kernel.ahead = c.ahead;
    ASSERT_EQ(batch.add(kernel), "") << c.name;
  }
  ASSERT_EQ(batch.build(), "");
  for (const TopKCase &c : cases) {
    std::vector<double> values = numbers(c.rows * c.length, c.dtype.find('f') != std::string::npos, 1);
    if (c.dtype == "ui8")
      for (double &v : values)
        v += 100;
    Bytes bytes = c.dtype == "ui8"   ? bytesOf(std::vector<uint8_t>(values.begin(), values.end()))
                  : c.dtype == "f32" ? bytesOf(std::vector<float>(values.begin(), values.end()))
                  : c.dtype == "bf16" ? upperHalves(values)
                  : c.dtype == "f64" ? bytesOf(values)
                  : c.dtype == "i64" ? bytesOf(std::vector<int64_t>(values.begin(), values.end()))
                                     : bytesOf(std::vector<int32_t>(values.begin(), values.end()));
    std::vector<Bytes> got = batch.run(c.name, {bytes});
    ASSERT_EQ(batch.error, "") << c.name;
    std::vector<int64_t> places = valuesOf<int64_t>(got.back()), order(c.length);
    const size_t bytesOfOne = bytes.size() / values.size();
    for (int64_t row = 0; row < c.rows; ++row) {
      std::iota(order.begin(), order.end(), 0);
      const double *of = &values[row * c.length];
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        bool before = comesBefore(of[a], of[b], c.smallest);
        return before || (!comesBefore(of[b], of[a], c.smallest) && a < b);
      });
      for (int64_t i = 0; i < c.count; ++i) {
        ASSERT_EQ(places[row * c.count + i], order[i]) << c.name << ", row " << row << ", place " << i;
        if (!placesAlone(c))
          ASSERT_EQ(std::memcmp(&got[0][bytesOfOne * size_t(row * c.count + i)],
                                &bytes[bytesOfOne * size_t(row * c.length + order[i])], bytesOfOne),
                    0)
              << c.name << ", row " << row << ", place " << i;
      }
    }
  }
  // Each form once.
  expectCompiles(batch, {"searched", "wide_floats", "spare", "short_rows", "short_wide", "row", "row_wide", "parts", "parts_least",
                      "radix", "radix_part"});
}

/// As Unique asks for it: elements of one dimension, in order.
TEST(CudaSelection, SortedElementsOfALine) {
  CudaBatch batch;
  const std::string x = "tensor<5000xi32>", y = "tensor<5000xi64>";
  CudaCase kernel{fn("line", "(%x: " + x + ") -> (" + y + ", " + x + ")",
                     "  %0 = lathe.topk %x {axis = 0 : i64, k = #lathe.dim<5000>, smallest} : (" + x + ") -> " + y + "\n" +
                         "  %1 = lathe.gather %x, %0 {axis = 0 : i64} : (" + x + ", " + y + ") -> " + x + "\n  return %0, %1 : " + y +
                         ", " + x),
                  "topk.sort.t256.s4", {"2"}};
  kernel.workspace = "160000";
  kernel.ahead = {"2", "4", "2", "2", "2"};
  ASSERT_EQ(batch.add(kernel), "");
  ASSERT_EQ(batch.build(), "");
  const std::vector<double> values = numbers(5000, false, 3);
  std::vector<int32_t> elements(values.begin(), values.end());
  std::vector<Bytes> got = batch.run("line", {bytesOf(elements)});
  ASSERT_EQ(batch.error, "");
  std::sort(elements.begin(), elements.end());
  EXPECT_EQ(valuesOf<int32_t>(got[1]), elements);
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
  expectCompiles(batch, names);
}

/// As many places as are wanted; behind those that there are come zeros.
TEST(CudaSelection, NonzeroStoresWhatIsWanted) {
  CudaBatch batch;
  CudaCase kernel{fn("wanted", "(%x: tensor<?xf32, #lathe.t<[N]>>) -> tensor<?xi64, #lathe.t<[M]>>",
                     "  %z = lathe.constant dense<0.0> : tensor<f32>\n"
                     "  %f = lathe.compare %x, %z {predicate = #lathe.predicate<ne>} : (tensor<?xf32, #lathe.t<[N]>>, tensor<f32>) -> "
                     "tensor<?xi1, #lathe.t<[N]>>\n"
                     "  %p, %n = lathe.nonzero %f : (tensor<?xi1, #lathe.t<[N]>>) -> (tensor<?xi64, #lathe.t<[N]>>, tensor<i64>)\n"
                     "  %s = lathe.slice %p {starts = [#lathe.dim<0>], steps = array<i64: 1>} : (tensor<?xi64, #lathe.t<[N]>>) -> "
                     "tensor<?xi64, #lathe.t<[M]>>\n"
                     "  return %s : tensor<?xi64, #lathe.t<[M]>>"),
                  "nonzero.t256", {"3"}};
  kernel.workspace = "12 + 4 * ceildiv(N, 32)";
  kernel.ahead = {"3"};
  ASSERT_EQ(batch.add(kernel), "");
  ASSERT_EQ(batch.build(), "");
  for (int64_t n : {0, 1, 33, 4096, 4097, 30000, 200000}) {
    std::mt19937 gen(n);
    std::vector<float> x(n);
    std::vector<int64_t> places;
    for (int64_t i = 0; i < n; ++i)
      if ((x[i] = gen() % 3 == 0 ? -1.5f : gen() % 2 ? 0.0f : -0.0f) != 0)
        places.push_back(i);
    for (int64_t more : {-1, 0, 300}) { // than there are
      std::vector<int64_t> want = places;
      want.resize(std::max<int64_t>(0, int64_t(places.size()) + more));
      std::vector<Bytes> got = batch.run("wanted", {bytesOf(x)}, {{"N", n}, {"M", int64_t(want.size())}});
      ASSERT_EQ(batch.error, "");
      EXPECT_EQ(valuesOf<int64_t>(got[0]), want) << n << " " << more;
    }
  }
  expectCompiles(batch, {"wanted"});
}

/// The same in two kernels: marks with their count, and the places from them.
TEST(CudaSelection, MarkedFlagsGiveTheirPlaces) {
  CudaBatch batch;
  const std::string length = "ceildiv(N, 16384)", marks = "tensor<?xi64, #lathe.t<[" + length + " + ceildiv(N, 64)]>>";
  CudaCase mark{fn("mark", "(%x: tensor<?xf32, #lathe.t<[N]>>) -> (" + marks + ", tensor<i64>)",
                   "  %z = lathe.constant dense<0.0> : tensor<f32>\n"
                   "  %f = lathe.compare %x, %z {predicate = #lathe.predicate<ne>} : (tensor<?xf32, #lathe.t<[N]>>, tensor<f32>) -> "
                   "tensor<?xi1, #lathe.t<[N]>>\n"
                   "  %m, %n = lathe.mark_flags %f : (tensor<?xi1, #lathe.t<[N]>>) -> (" + marks + ", tensor<i64>)\n"
                   "  return %m, %n : " + marks + ", tensor<i64>"),
                "marks.t256", {"max(1, " + length + ")"}};
  mark.workspace = "8 * max(1, " + length + ")";
  CudaCase places{fn("places", "(%m: " + marks + ") -> tensor<?xi64, #lathe.t<[M]>>",
                     "  %p = lathe.marked_places %m {length = #lathe.dim<N>} : (" + marks + ") -> tensor<?xi64, #lathe.t<[N]>>\n"
                     "  %s = lathe.slice %p {starts = [#lathe.dim<0>], steps = array<i64: 1>} : (tensor<?xi64, #lathe.t<[N]>>) -> "
                     "tensor<?xi64, #lathe.t<[M]>>\n"
                     "  return %s : tensor<?xi64, #lathe.t<[M]>>"),
                  "marks.places.t256", {"max(1, " + length + ")"}};
  ASSERT_EQ(batch.add(mark), "");
  ASSERT_EQ(batch.add(places), "");
  ASSERT_EQ(batch.build(), "");
  for (int64_t n : {0, 1, 33, 256, 16384, 16385, 50000, 300 * 16384 + 77}) {
    std::mt19937 gen(n);
    std::vector<float> x(n);
    std::vector<int64_t> found;
    for (int64_t i = 0; i < n; ++i)
      if ((x[i] = gen() % 3 == 0 ? -1.5f : gen() % 2 ? 0.0f : -0.0f) != 0)
        found.push_back(i);
    std::vector<Bytes> marked = batch.run("mark", {bytesOf(x)}, {{"N", n}});
    ASSERT_EQ(batch.error, "");
    EXPECT_EQ(valuesOf<int64_t>(marked[1]), std::vector<int64_t>{int64_t(found.size())});
    for (int64_t more : {-1, 0, 300}) { // than there are
      std::vector<int64_t> want = found;
      want.resize(std::max<int64_t>(0, int64_t(found.size()) + more));
      std::vector<Bytes> got = batch.run("places", {marked[0]}, {{"N", n}, {"M", int64_t(want.size())}});
      ASSERT_EQ(batch.error, "");
      EXPECT_EQ(valuesOf<int64_t>(got[0]), want) << n << " " << more;
    }
  }
  expectCompiles(batch, {"mark", "places"});
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
  expectCompiles(batch, {"nms"});
}

/// Three trees, one of them a leaf, of integers; and of floats with NaN, whose leaves are numbers below 0.
TEST(CudaSelection, TreesAreWalkedToTheirLeaves) {
  CudaBatch batch;
  for (const char *type : {"i32", "f32"}) {
    const std::string x = std::string("tensor<100x2x") + type + ">", operands = "(" + x + ", tensor<5x4xi32>, tensor<3xi32>) -> tensor<100x3xi32>",
                      atNodes = std::string(type) == "i32" ? ", ends_at_nodes" : "";
    ASSERT_EQ(batch.add({fn(std::string("walk_") + type, "(%x: " + x + ", %n: tensor<5x4xi32>, %r: tensor<3xi32>) -> tensor<100x3xi32>",
                            "  %0 = lathe.tree_walk %x, %n, %r {depth = 2 : i64" + atNodes + "} : " + operands +
                                "\n  return %0 : tensor<100x3xi32>"),
                         "pointwise.t128", {"3"}}),
              "");
  }
  ASSERT_EQ(batch.build(), "");
  auto bits = [](float v) {
    int32_t b;
    std::memcpy(&b, &v, 4);
    return b;
  };
  std::vector<int32_t> whole;
  std::vector<float> floats;
  std::mt19937 gen(1);
  for (int i = 0; i < 200; ++i) {
    whole.push_back(int(gen() % 9) - 4);
    floats.push_back(gen() % 4 == 0 ? NAN : float(whole.back()));
  }
  // Feature 1 <= -1, then feature 0 <= 2; the rest are leaves.
  std::vector<Bytes> got = batch.run("walk_i32", {bytesOf(whole), bytesOf(std::vector<int32_t>{1, -1, 2, 1, 0, 2, 3, 4, 0, 0, 2, 2, 0, 0, 3, 3, 0, 0, 4, 4}),
                                                  bytesOf(std::vector<int32_t>{0, 1, 3})});
  ASSERT_EQ(batch.error, "");
  std::vector<int32_t> ends = valuesOf<int32_t>(got[0]);
  for (int row = 0; row < 100; ++row) {
    const int below = whole[2 * row] <= 2 ? 3 : 4;
    EXPECT_EQ(ends[3 * row], whole[2 * row + 1] <= -1 ? 2 : below) << row;
    EXPECT_EQ(ends[3 * row + 1], below) << row;
    EXPECT_EQ(ends[3 * row + 2], 3) << row;
  }
  // The same, NaN left at the first, right at the second.
  got = batch.run("walk_f32", {bytesOf(floats), bytesOf(std::vector<int32_t>{-2, bits(-1), -3, 1, 0, bits(2), -4, -5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
                               bytesOf(std::vector<int32_t>{0, 1, -4})});
  ASSERT_EQ(batch.error, "");
  ends = valuesOf<int32_t>(got[0]);
  for (int row = 0; row < 100; ++row) {
    const int below = floats[2 * row] <= 2 ? 3 : 4;
    EXPECT_EQ(ends[3 * row], !(floats[2 * row + 1] > -1) ? 2 : below) << row;
    EXPECT_EQ(ends[3 * row + 1], below) << row;
  }
  expectCompiles(batch, {"walk_i32", "walk_f32"});
}

/// Small integers, so that sums are exact in any order.
TEST(CudaSelection, ScansCombineWhatBlocksHaveAheadOfThem) {
  struct ScanCase {
    const char *name, *dtype, *kind, *blocks;
    std::vector<std::string> ahead;
    int64_t outer, length, inner;
    bool exclusive, reverse;
    const char *workspace;
  };
  const std::vector<ScanCase> cases = {
      {"whole", "f32", "sum", "3", {}, 3, 5000, 1, false, false, "0"},
      {"few", "i32", "sum", "4", {}, 4, 7, 1, true, false, "0"},
      {"parts", "i64", "sum", "5", {"5"}, 1, 20001, 1, false, false, "40"},
      {"parts_of_rows", "f32", "sum", "6", {"6"}, 2, 9000, 1, true, false, "48"},
      {"reversed", "f32", "sum", "4", {"4"}, 1, 9001, 1, false, true, "32"},
      {"reversed_exclusive", "i64", "sum", "2", {}, 2, 300, 1, true, true, "0"},
      {"columns", "f32", "sum", "6", {"6"}, 1, 5000, 3, false, false, "48"},
      {"greatest", "f32", "max", "4", {"4"}, 2, 6000, 1, false, false, "32"},
      {"halves", "bf16", "max", "3", {"3"}, 1, 9000, 1, false, false, "24"},
  };
  CudaBatch batch;
  std::vector<std::string> names;
  for (const ScanCase &c : cases) {
    std::string type = "tensor<" + std::to_string(c.outer) + "x" + std::to_string(c.length) + "x" + std::to_string(c.inner) + "x" +
                       c.dtype + ">";
    CudaCase kernel{fn(c.name, "(%x: " + type + ") -> " + type,
                       std::string("  %0 = lathe.scan %x {kind = #lathe.reduce_kind<") + c.kind + ">, axis = 1 : i64" +
                           (c.exclusive ? ", exclusive" : "") + (c.reverse ? ", reverse" : "") + "} : (" + type + ") -> " + type +
                           "\n  return %0 : " + type),
                    "scan.t256.m4096", {c.blocks}};
    kernel.workspace = c.workspace;
    kernel.ahead = c.ahead;
    ASSERT_EQ(batch.add(kernel), "") << c.name;
    names.push_back(c.name);
  }
  ASSERT_EQ(batch.build(), "");
  for (const ScanCase &c : cases) {
    const int64_t n = c.outer * c.length * c.inner;
    std::mt19937 gen(1);
    std::vector<double> x(n), want(n);
    for (double &v : x)
      v = double(int(gen() % 200)) - 100;
    const bool greatest = std::string_view(c.kind) == "max";
    for (int64_t o = 0; o < c.outer; ++o)
      for (int64_t i = 0; i < c.inner; ++i) {
        double running = greatest ? -INFINITY : 0;
        for (int64_t k = 0; k < c.length; ++k) {
          const int64_t at = (o * c.length + (c.reverse ? c.length - 1 - k : k)) * c.inner + i;
          const double with = greatest ? std::max(running, x[at]) : running + x[at];
          want[at] = c.exclusive ? running : with;
          running = with;
        }
      }
    auto as = [&](auto element, const std::vector<double> &values) {
      return bytesOf(std::vector<decltype(element)>(values.begin(), values.end()));
    };
    auto bytes = [&](const std::vector<double> &values) {
      const std::string dtype = c.dtype;
      return dtype == "bf16" ? upperHalves(values) : dtype == "i64" ? as(int64_t(), values) : dtype == "i32" ? as(int32_t(), values) : as(float(), values);
    };
    std::vector<Bytes> got = batch.run(c.name, {bytes(x)});
    ASSERT_EQ(batch.error, "") << c.name;
    EXPECT_EQ(got[0], bytes(want)) << c.name;
  }
  expectCompiles(batch, names);
}

/// Sums whose order shows: of 2^24, 1 and -2^24 the 1 is lost in one order and kept in another.
TEST(CudaSelection, ScattersGoThroughIndicesInOrder) {
  CudaBatch batch;
  const std::string at = "#lathe.reduce_kind<sum>}";
  ASSERT_EQ(batch.add({fn("elements", "(%x: tensor<5x40xf32>, %i: tensor<6x37xi64>, %u: tensor<6x37xf32>) -> tensor<5x40xf32>",
                          "  %0 = lathe.scatter_elements %x, %i, %u {axis = 0 : i64, reduction = " + at +
                              " : (tensor<5x40xf32>, tensor<6x37xi64>, tensor<6x37xf32>) -> tensor<5x40xf32>\n  return %0 : tensor<5x40xf32>"),
                       "scatter.t128", {"2"}}),
            "");
  ASSERT_EQ(batch.add({fn("slices", "(%x: tensor<5x40xf32>, %i: tensor<6x1xi64>, %u: tensor<6x40xf32>) -> tensor<5x40xf32>",
                          "  %0 = lathe.scatter_nd %x, %i, %u {reduction = " + at +
                              " : (tensor<5x40xf32>, tensor<6x1xi64>, tensor<6x40xf32>) -> tensor<5x40xf32>\n  return %0 : tensor<5x40xf32>"),
                       "scatter.t128", {"2"}}),
            "");
  ASSERT_EQ(batch.add({fn("row", "(%x: tensor<40xf32>, %i: tensor<6xi64>, %u: tensor<6xf32>) -> tensor<40xf32>",
                          "  %0 = lathe.scatter_elements %x, %i, %u {axis = 0 : i64, reduction = " + at +
                              " : (tensor<40xf32>, tensor<6xi64>, tensor<6xf32>) -> tensor<40xf32>\n  return %0 : tensor<40xf32>"),
                       "scatter.t128", {"2"}}),
            "");
  ASSERT_EQ(batch.build(), "");
  constexpr int64_t kRows = 5, kColumns = 40;
  const float big = 1 << 24, values[] = {big, 1, -big, 1, 3, big};
  std::vector<float> x(kRows * kColumns, 0.5f);
  for (const auto &[name, columns, one] :
       {std::tuple<const char *, int64_t, bool>{"elements", 37, false}, {"slices", 40, true}, {"row", 1, false}}) {
    const bool isRow = std::string_view(name) == "row";
    std::vector<int64_t> places;
    std::vector<float> updates, want = isRow ? std::vector<float>(kColumns, 0.5f) : x;
    for (int64_t k = 0; k < 6; ++k)
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t place = isRow ? (k % 2 ? 7 : -1) : one ? (k < 4 ? 2 : -1) : (k < 4 ? c % kRows : c % kRows - kRows);
        if (c == 0 || !one)
          places.push_back(place);
        updates.push_back(values[k] + float(c));
        const int64_t sizeOfAxis = isRow ? kColumns : kRows, row = place < 0 ? place + sizeOfAxis : place;
        want[isRow ? row : row * kColumns + c] += values[k] + float(c);
      }
    std::vector<Bytes> got = batch.run(name, {isRow ? bytesOf(std::vector<float>(kColumns, 0.5f)) : bytesOf(x), bytesOf(places), bytesOf(updates)});
    ASSERT_EQ(batch.error, "") << name;
    EXPECT_EQ(valuesOf<float>(got[0]), want) << name;
  }
  expectCompiles(batch, {"elements", "slices", "row"});
}

struct OrderedCase {
  std::string name, dtype, config, shared;
  int64_t places, columns, updates;
  bool slices = false;   ///< scatter_nd: all columns of an update go to one place
  bool lastAxis = false; ///< places lie side by side
  const char *kind = "sum";
};

/// Updates in pieces give what one thread gives that takes them one by one, to the bit: few to a place, many, and all.
TEST(CudaSelection, PiecesOfUpdatesKeepTheirOrder) {
  const std::string small = "14336", large = "28672", wide = "18432";
  const std::vector<OrderedCase> cases = {
      {"spread", "f32", "scatter.ordered.t256.n1", small, 5000, 2, 3000},
      {"crowded", "f32", "scatter.ordered.t256.n8", small, 40, 11, 700},
      {"one_place", "f32", "scatter.ordered.t512.n2", large, 1, 3, 2500},
      {"slices", "f32", "scatter.ordered.t256.n4", small, 90, 6, 900, true},
      {"along_rows", "f32", "scatter.ordered.t256.n1", small, 300, 3, 2100, false, true},
      {"halves", "f16", "scatter.ordered.t256.n2", small, 200, 4, 1500},
      {"longs", "i64", "scatter.ordered.t256.n2", wide, 200, 4, 1500},
      {"greatest", "f32", "scatter.ordered.t256.n2", small, 200, 4, 1500, false, false, "max"},
      {"fewer_than_a_piece", "f32", "scatter.ordered.t256.n8", small, 7, 3, 5},
      {"parts", "f32", "scatter.ordered.t256.m3.n1", small, 1000, 3, 5003},
      {"parts_of_columns", "f16", "scatter.ordered.t256.m2.n4", small, 70, 6, 1501},
      {"parts_along_rows", "f32", "scatter.ordered.t256.m4.n1", small, 90, 5, 2999, false, true},
      {"more_parts_than_places", "f32", "scatter.ordered.t256.m4.n2", small, 3, 3, 2100},
      {"one_part", "i64", "scatter.ordered.t256.m1.n2", wide, 200, 5, 333, true},
  };
  CudaBatch batch;
  std::vector<std::string> names;
  for (const OrderedCase &c : cases) {
    auto type = [&](int64_t rows, int64_t columns, const std::string &dtype) {
      if (c.lastAxis)
        std::swap(rows, columns);
      return "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) + "x" + dtype + ">";
    };
    const std::string x = type(c.places, c.columns, c.dtype), u = type(c.updates, c.columns, c.dtype),
                      i = c.slices ? type(c.updates, 1, "i64") : type(c.updates, c.columns, "i64");
    const KernelConfig config = *KernelConfig::parse(c.config);
    const int64_t blocks = (c.columns + config.tileN - 1) / config.tileN * std::max<int64_t>(1, config.tileM);
    const std::string axis = c.slices ? "" : std::string("axis = ") + (c.lastAxis ? "1" : "0") + " : i64, ";
    CudaCase made{fn(c.name, "(%x: " + x + ", %i: " + i + ", %u: " + u + ") -> " + x,
                     std::string("  %0 = lathe.scatter_") + (c.slices ? "nd" : "elements") + " %x, %i, %u {" + axis +
                         "reduction = #lathe.reduce_kind<" + c.kind + ">} : (" + x + ", " + i + ", " + u + ") -> " + x +
                         "\n  return %0 : " + x),
                  c.config, {std::to_string(blocks)}, c.shared};
    if (config.tileM > 0) {
      made.ahead = {"2"};
      made.workspace = std::to_string(c.columns * ((c.updates + 3) / 4) * 16);
    }
    ASSERT_EQ(batch.add(made), "");
    names.push_back(c.name);
  }
  ASSERT_EQ(batch.build(), "");
  std::mt19937 gen(5);
  for (const OrderedCase &c : cases) {
    auto at = [&](int64_t row, int64_t column, int64_t rows) {
      return size_t(c.lastAxis ? column * rows + row : row * c.columns + column);
    };
    std::vector<int64_t> places(size_t(c.updates * (c.slices ? 1 : c.columns)));
    for (int64_t &p : places)
      p = int64_t(gen() % unsigned(2 * c.places)) - c.places; // from the end as well
    std::vector<float> x(size_t(c.places * c.columns)), updates(size_t(c.updates * c.columns));
    for (std::vector<float> *values : {&x, &updates})
      for (float &v : *values)
        v = f16ToFloat(floatToF16(float(int(gen() % 4001) - 2000) / (gen() % 3 ? 16.f : 4096.f)));
    if (c.dtype == "i64")
      for (std::vector<float> *values : {&x, &updates})
        for (float &v : *values)
          v = std::floor(v);
    std::vector<float> want = x;
    for (int64_t k = 0; k < c.updates; ++k)
      for (int64_t column = 0; column < c.columns; ++column) {
        const int64_t place = places[c.slices ? size_t(k) : at(k, column, c.updates)];
        float &there = want[at(place < 0 ? place + c.places : place, column, c.places)];
        const float update = updates[at(k, column, c.updates)];
        there = std::string_view(c.kind) == "max" ? std::max(there, update) : there + update;
        if (c.dtype == "f16")
          there = f16ToFloat(floatToF16(there));
      }
    auto bytes = [&](const std::vector<float> &values) {
      if (c.dtype == "i64")
        return bytesOf(std::vector<int64_t>(values.begin(), values.end()));
      if (c.dtype == "f32")
        return bytesOf(values);
      std::vector<uint16_t> halves;
      for (float v : values)
        halves.push_back(floatToF16(v));
      return bytesOf(halves);
    };
    std::vector<Bytes> got = batch.run(c.name, {bytes(x), bytesOf(places), bytes(updates)});
    ASSERT_EQ(batch.error, "") << c.name;
    EXPECT_TRUE(got[0] == bytes(want)) << c.name;
  }
  // An index beyond all places is reported, and nothing is written beside the result.
  std::vector<int64_t> beyond(5 * 3, 7);
  batch.run("fewer_than_a_piece", {bytesOf(std::vector<float>(21)), bytesOf(beyond), bytesOf(std::vector<float>(15))});
  EXPECT_NE(batch.status[0], 0u);
  expectCompiles(batch, names);
}

TEST(CudaSelection, PiecesWantUpdatesOfAllThatTheyCopy) {
  CudaBatch batch;
  const std::string signature = "(%x: tensor<5x40xf32>, %i: tensor<6x37xi64>, %u: tensor<6x37xf32>) -> tensor<5x40xf32>";
  EXPECT_NE(batch.add({fn("part", signature,
                          "  %0 = lathe.scatter_elements %x, %i, %u {axis = 0 : i64, reduction = #lathe.reduce_kind<sum>}"
                          " : (tensor<5x40xf32>, tensor<6x37xi64>, tensor<6x37xf32>) -> tensor<5x40xf32>\n  return %0 : tensor<5x40xf32>"),
                       "scatter.ordered.t256.n8", {"5"}, "14336"})
                .find("updates of all columns"),
            std::string::npos);
}

} // namespace
