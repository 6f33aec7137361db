//===- CpuPairsTest.cpp - products of 8-bit integers --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// gemm.pairs and gemm.bytes (by its general form where the machine lacks the instruction) against plain loops, exactly: all signs, the greatest numbers that there are, odd depths,
// every edge of the register tiles, rows read from memory, transposed, and computed.
//
//===----------------------------------------------------------------------===//

#include "CpuSkeleton.h"

#include "gtest/gtest.h"

using namespace lathe;
using namespace lathe::test;

namespace {

enum class Rows { InMemory, Transposed, Computed };
struct Pairs {
  int64_t m, n, k;
  bool unsignedA, unsignedB, transposed;
  Rows rows;
  bool extremes;
};
class CpuPairs : public testing::TestWithParam<Pairs> {};

std::vector<int8_t> bytes(size_t n, unsigned seed, bool extremes, bool isUnsigned) {
  std::mt19937 gen(seed);
  std::vector<int8_t> v(n);
  for (int8_t &x : v)
    x = extremes ? int8_t(isUnsigned ? 0xff : 0x80) : int8_t(gen());
  return v;
}

TEST_P(CpuPairs, ExactSums) {
  auto [m, n, k, unsignedA, unsignedB, transposed, rows, extremes] = GetParam();
  auto s = [](int64_t v) { return std::to_string(v); };
  std::string at = unsignedA ? "ui8" : "i8", bt = unsignedB ? "ui8" : "i8", ks = s(k);
  bool across = rows == Rows::Transposed;
  std::string a = across ? "tensor<" + ks + "x?x" + at + ", #lathe.t<[" + ks + ", M]>>"
                         : "tensor<?x" + ks + "x" + at + ", #lathe.t<[M, " + ks + "]>>";
  std::string w = "tensor<" + (transposed ? s(n) + "x" + ks : ks + "x" + s(n)) + "x" + bt + ">";
  std::string y = "tensor<?x" + s(n) + "xi32, #lathe.t<[M, " + s(n) + "]>>", v = "tensor<" + s(n) + "xi32>";
  std::string attributes = std::string(across ? "transpose_a" : "") + (across && transposed ? ", " : "") +
                           (transposed ? "transpose_b" : "");
  std::string text = "func.func @gemm(%a: " + a + ", %w: " + w + ", %bias: " + v + ") -> " + y + " {\n";
  if (rows == Rows::Computed)
    text += "%c = lathe.max %a, %a : (" + a + ", " + a + ") -> " + a + "\n";
  text += " %0 = lathe.matmul " + std::string(rows == Rows::Computed ? "%c" : "%a") + ", %w {" + attributes +
          "} : (" + a + ", " + w + ") -> " + y + "\n %1 = lathe.add %0, %bias : (" + y + ", " + v + ") -> " + y +
          "\n return %1 : " + y + "\n}";
  std::vector<int8_t> av = bytes(m * k, 1, extremes, unsignedA), wv = bytes(k * n, 2, extremes, unsignedB);
  std::vector<int32_t> bias(n), want(m * n);
  for (int64_t j = 0; j < n; ++j)
    bias[j] = int32_t(1000 * j - 7);
  auto number = [](int8_t code, bool isUnsigned) { return isUnsigned ? int32_t(uint8_t(code)) : code; };
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int32_t sum = bias[j];
      for (int64_t q = 0; q < k; ++q)
        sum += number(av[across ? q * m + i : i * k + q], unsignedA) *
               number(wv[transposed ? j * k + q : q * n + j], unsignedB);
      want[i * n + j] = sum;
    }
  for (const Machine &machine : machines())
    for (const auto &[family, grid] : {std::pair("gemm.pairs", "1"), {"gemm.pairs", "5"}, {"gemm.bytes", "3"}}) {
      bool quads = family == std::string("gemm.bytes");
      if (quads && (unsignedB || machine.target != std::string("x86-64-v3")))
        continue; // the right ones are signed there; LLVM takes its time for the general form
      std::string recipe = "panels" + s(2 * machine.lanes) + (quads ? "x4" : "x2") + (transposed ? "t" : "");
      CpuKernel kernel(text, tileConfig(family, machine), machine.target, grid, [&](KernelSpec &spec) {
        spec.buffers[1].packing = recipe;
        spec.scratchBytes = DimExpr((k + 1) / 2 * 4 * 8 * machine.rows);
      });
      ASSERT_EQ(kernel.error, "");
      Bytes weight = packed(recipe, bytesOf(wv), unsignedB ? DType::UI8 : DType::I8,
                            transposed ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n});
      auto out = kernel.run({bytesOf(av), weight, bytesOf(bias)}, {{"M", m}});
      ASSERT_EQ(kernel.error, "");
      EXPECT_EQ(valuesOf<int32_t>(out[0]), want) << machine.target;
    }
}
constexpr auto M = Rows::InMemory, T = Rows::Transposed, C = Rows::Computed;
INSTANTIATE_TEST_SUITE_P(Sizes, CpuPairs,
                         testing::Values(Pairs{1, 64, 48, true, false, false, M, false},
                                         Pairs{13, 40, 37, true, false, true, M, false},
                                         Pairs{131, 72, 65, false, false, false, M, false},
                                         Pairs{7, 5, 7, false, true, true, M, false},
                                         Pairs{3, 19, 1, true, true, false, M, false},
                                         Pairs{0, 32, 16, true, false, false, M, false},
                                         Pairs{50, 33, 70, true, false, false, T, false},
                                         Pairs{9, 48, 33, true, true, false, C, false},
                                         Pairs{6, 32, 515, true, false, false, M, true},
                                         Pairs{6, 32, 515, false, false, true, M, true},
                                         Pairs{6, 32, 515, true, true, false, M, true}));

// Neighbours of K lie side by side, and zeros behind the last.
TEST(PackedPairs, Layout) {
  std::vector<int64_t> dims = {3, 5};
  Result<PanelLayout> layout = PanelLayout::of("panels4x2", dims);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->paddedDepth(), 4);
  EXPECT_EQ(layout->elements(), 4 * 6);
  std::vector<int8_t> w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  std::vector<int8_t> want = {1, 6, 2, 7, 3, 8, 4, 9, 11, 0, 12, 0, 13, 0, 14, 0, 5, 10, 0, 0, 15, 0, 0, 0};
  EXPECT_EQ(valuesOf<int8_t>(packed("panels4x2", bytesOf(w), DType::I8, dims)), want);
  for (int64_t k = 0; k < 3; ++k)
    for (int64_t n = 0; n < 5; ++n)
      EXPECT_EQ(want[layout->offset(0, k, n)], w[k * 5 + n]);
  EXPECT_FALSE(PanelLayout::of("panels4x1", dims).ok());
  EXPECT_FALSE(PanelLayout::of("panels4x", dims).ok());
  EXPECT_FALSE(WeightPacker::of("panels4x2", DType::I4, dims).ok());
}

// Of filters, channels lie side by side, tap after tap.
TEST(PackedPairs, Filters) {
  std::vector<int64_t> dims = {3, 3, 2};
  Result<PanelLayout> layout = PanelLayout::of("filters2x2", dims);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->depth, 8);
  EXPECT_EQ(layout->groupChannels, 3);
  std::vector<int8_t> w(18);
  for (int8_t i = 0; i < 18; ++i)
    w[i] = int8_t(i + 1);
  std::vector<int8_t> got = valuesOf<int8_t>(packed("filters2x2", bytesOf(w), DType::I8, dims));
  ASSERT_EQ(int64_t(got.size()), layout->elements());
  int64_t filled = 0;
  for (int64_t n = 0; n < 3; ++n)
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t tap = 0; tap < 2; ++tap)
        EXPECT_EQ(got[layout->offset(0, tap * layout->channels + c, n)], w[(n * 3 + c) * 2 + tap]);
  for (int8_t v : got)
    filled += v != 0;
  EXPECT_EQ(filled, 18);
}

} // namespace
