//===- CpuContractionTest.cpp - products against plain loops ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products, convolutions and attention, by the skeletons and by the
// general form, over sizes that meet every edge of the register tiles.
//
//===----------------------------------------------------------------------===//

#include "CpuSkeleton.h"

#include "lathe/codegen/Config.h"
#include "lathe/codegen/DirectConv.h"
#include "lathe/support/ConvGroups.h"
#include "lathe/support/Packing.h"
#include "lathe/support/Winograd.h"
#include "lathe/support/Half.h"

#include "gtest/gtest.h"

#include <cmath>
#include <map>
#include <random>

using namespace lathe;
using namespace lathe::test;

namespace {

//===- Matrix products --------------------------------------------------------===//

struct Gemm {
  int64_t m, n, k;
  bool packing, transposed;
};
void PrintTo(const Gemm &g, std::ostream *os) {
  *os << g.m << "x" << g.n << "x" << g.k << (g.packing ? " packed" : "") << (g.transposed ? " transposed" : "");
}
class CpuGemm : public testing::TestWithParam<Gemm> {};

TEST_P(CpuGemm, WithBiasResidualAndRelu) {
  auto [m, n, k, packing, transposed] = GetParam();
  auto s = [](int64_t v) { return std::to_string(v); };
  std::string a = "tensor<?x" + s(k) + "xf32, #lathe.t<[M, " + s(k) + "]>>";
  std::string w = "tensor<" + (transposed ? s(n) + "x" + s(k) : s(k) + "x" + s(n)) + "xf32>";
  std::string y = "tensor<?x" + s(n) + "xf32, #lathe.t<[M, " + s(n) + "]>>";
  std::string v = "tensor<" + s(n) + "xf32>";
  std::string text = "func.func @gemm(%a: " + a + ", %w: " + w + ", %bias: " + v + ", %r: " + y + ") -> " + y +
                     " {\n %z = lathe.constant dense<0.0> : tensor<f32>\n %0 = lathe.matmul %a, %w" +
                     (transposed ? " {transpose_b}" : "") + " : (" + a + ", " + w + ") -> " + y +
                     "\n %1 = lathe.add %0, %bias : (" + y + ", " + v + ") -> " + y +
                     "\n %2 = lathe.add %1, %r : (" + y + ", " + y + ") -> " + y +
                     "\n %3 = lathe.max %2, %z : (" + y + ", tensor<f32>) -> " + y + "\n return %3 : " + y + "\n}";
  auto av = noise(m * k, 1), wv = noise(k * n, 2), bias = noise(n, 3), res = noise(m * n, 4);
  std::vector<float> want(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = bias[j] + res[i * n + j];
      for (int64_t q = 0; q < k; ++q)
        sum += double(av[i * k + q]) * wv[transposed ? j * k + q : q * n + j];
      want[i * n + j] = static_cast<float>(std::max(sum, 0.0));
    }
  for (const Machine &machine : machines())
    for (const char *grid : {"1", "5"}) {
      std::string recipe = "panels" + s(2 * machine.lanes) + (transposed ? "t" : "");
      CpuKernel kernel(text, tileConfig("gemm", machine), machine.target, grid, [&](KernelSpec &spec) {
        if (packing)
          spec.buffers[1].packing = recipe;
        spec.scratchBytes = DimExpr(4 * k * (2 * machine.lanes + machine.rows));
      });
      ASSERT_EQ(kernel.error, "");
      Bytes weight = packing ? packed(recipe, wv, transposed ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n})
                             : bytesOf(wv);
      auto out = kernel.run({bytesOf(av), weight, bytesOf(bias), bytesOf(res)}, {{"M", m}});
      ASSERT_EQ(kernel.error, "");
      expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target);
    }
}
INSTANTIATE_TEST_SUITE_P(Sizes, CpuGemm,
                         testing::Values(Gemm{1, 64, 48, true, false}, Gemm{8, 32, 16, true, false},
                                         Gemm{13, 40, 37, true, false}, Gemm{131, 72, 24, true, true},
                                         Gemm{3, 5, 7, true, false}, Gemm{0, 32, 16, true, false},
                                         Gemm{9, 48, 20, false, false}, Gemm{17, 37, 33, false, true},
                                         Gemm{1, 37, 33, false, false}, Gemm{1, 19, 64, false, true},
                                         Gemm{70, 33, 1, true, true}, Gemm{2, 100, 300, true, false}));

/// A product of this depth on each machine, with panels in scratch memory.
void expectProduct(const std::string &text, int64_t depth, const std::vector<Bytes> &inputs, const std::map<std::string, int64_t> &sizes,
                   const std::vector<float> &want) {
  for (const Machine &machine : machines()) {
    CpuKernel kernel(text, tileConfig("gemm", machine), machine.target, "3", [&](KernelSpec &spec) {
      spec.scratchBytes = DimExpr(4 * std::max<int64_t>(depth, 1) * (2 * machine.lanes + machine.rows));
    });
    ASSERT_EQ(kernel.error, "");
    auto out = kernel.run(inputs, sizes);
    ASSERT_EQ(kernel.error, "");
    expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target + ", depth " + std::to_string(depth));
  }
}

TEST(CpuProduct, BatchesWithSymbolicSizes) {
  const char *text = R"(
!a = tensor<2x?x?xf32, #lathe.t<[2, S, K]>>
!b = tensor<2x?x?xf32, #lathe.t<[2, K, T]>>
!y = tensor<2x?x?xf32, #lathe.t<[2, S, T]>>
func.func @f(%a: !a, %b: !b) -> !y {
  %0 = lathe.matmul %a, %b : (!a, !b) -> !y
  return %0 : !y
})";
  for (auto [m, n, k] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 50, 9}, {9, 1, 16}, {20, 33, 5}, {7, 64, 70}, {4, 4, 0}}) {
    auto a = noise(2 * m * k, 1), b = noise(2 * k * n, 2);
    std::vector<float> want(2 * m * n);
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t q = 0; q < k; ++q)
            sum += double(a[(h * m + i) * k + q]) * b[(h * k + q) * n + j];
          want[(h * m + i) * n + j] = static_cast<float>(sum);
        }
    expectProduct(text, k, {bytesOf(a), bytesOf(b)}, {{"S", m}, {"T", n}, {"K", k}}, want);
  }
}

/// Left operands that lie transposed go through scratch memory by squares of vectors: every rest of rows and of a depth that is
/// known or not; with batches of one right operand, whose rows are one number, and of two.
TEST(CpuProduct, TransposedLeft) {
  for (auto [m, n, k, known, shared] : std::vector<std::tuple<int64_t, int64_t, int64_t, bool, bool>>{
           {64, 33, 48, true, false}, {37, 20, 37, true, true}, {37, 20, 37, false, true}, {80, 64, 5, true, false},
           {16, 9, 70, false, false}, {5, 7, 3, true, true}}) {
    const std::string depth = known ? std::to_string(k) : "K", size = known ? depth : "?", two = shared ? "" : "2x";
    const std::string a = "tensor<2x" + size + "x?xf32, #lathe.t<[2, " + depth + ", S]>>";
    const std::string b = "tensor<" + two + size + "x?xf32, #lathe.t<[" + (shared ? "" : "2, ") + depth + ", T]>>";
    const std::string y = "tensor<2x?x?xf32, #lathe.t<[2, S, T]>>";
    // A function before the product: it is evaluated in the squares.
    const std::string text = "func.func @f(%a: " + a + ", %b: " + b + ") -> " + y + " {\n  %0 = lathe.abs %a : (" + a + ") -> " + a +
                             "\n  %1 = lathe.matmul %0, %b {transpose_a} : (" + a + ", " + b + ") -> " + y + "\n  return %1 : " + y + "\n}";
    auto left = noise(2 * m * k, 1), right = noise((shared ? 1 : 2) * k * n, 2);
    std::vector<float> want(2 * m * n);
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t q = 0; q < k; ++q)
            sum += std::fabs(double(left[(h * k + q) * m + i])) * right[((shared ? 0 : h) * k + q) * n + j];
          want[(h * m + i) * n + j] = static_cast<float>(sum);
        }
    std::map<std::string, int64_t> sizes{{"S", m}, {"T", n}};
    if (!known)
      sizes["K"] = k;
    expectProduct(text, k, {bytesOf(left), bytesOf(right)}, sizes, want);
  }
}

TEST(CpuProduct, BytesGiveIntegers) {
  const char *text = R"(
func.func @f(%a: tensor<5x19xui8>, %b: tensor<19x21xi8>) -> tensor<5x21xi32> {
  %0 = "lathe.matmul"(%a, %b) : (tensor<5x19xui8>, tensor<19x21xi8>) -> tensor<5x21xi32>
  return %0 : tensor<5x21xi32>
})";
  std::vector<uint8_t> a(95);
  std::vector<int8_t> b(19 * 21);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = i * 77;
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = i * 91;
  std::vector<int32_t> want(105);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 21; ++j)
      for (int q = 0; q < 19; ++q)
        want[i * 21 + j] += a[i * 19 + q] * b[q * 21 + j];
  for (const Machine &machine : machines()) {
    CpuKernel kernel(text, tileConfig("gemm", machine), machine.target, "1", [&](KernelSpec &spec) {
      spec.scratchBytes = DimExpr(4 * 19 * (2 * machine.lanes + machine.rows));
    });
    ASSERT_EQ(kernel.error, "");
    EXPECT_EQ(valuesOf<int32_t>(kernel.run({bytesOf(a), bytesOf(b)})[0]), want);
  }
}

TEST(CpuProduct, ComputedRowsAndTransposedHeads) {
  // The left operand is computed (a scaled sum), the result leaves as [B, H, S, D].
  const char *text = R"(
!x = tensor<2x?x24xf32, #lathe.t<[2, S, 24]>>
!p = tensor<2x?x64xf32, #lathe.t<[2, S, 64]>>
!h = tensor<2x?x4x16xf32, #lathe.t<[2, S, 4, 16]>>
!y = tensor<2x4x?x16xf32, #lathe.t<[2, 4, S, 16]>>
func.func @f(%x: !x, %g: tensor<24xf32>, %w: tensor<24x64xf32>) -> !y {
  %0 = lathe.mul %x, %g : (!x, tensor<24xf32>) -> !x
  %1 = lathe.matmul %0, %w : (!x, tensor<24x64xf32>) -> !p
  %2 = lathe.reshape %1 : (!p) -> !h
  %3 = lathe.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (!h) -> !y
  return %3 : !y
})";
  for (int64_t s : {1, 9}) {
    auto x = noise(2 * s * 24, 1), g = noise(24, 2), w = noise(24 * 64, 3);
    std::vector<float> want(2 * s * 64);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < s; ++i)
        for (int64_t n = 0; n < 64; ++n) {
          double sum = 0;
          for (int64_t q = 0; q < 24; ++q)
            sum += double(x[(b * s + i) * 24 + q] * g[q]) * w[q * 64 + n];
          want[((b * 4 + n / 16) * s + i) * 16 + n % 16] = static_cast<float>(sum);
        }
    for (const Machine &machine : machines()) {
      std::string recipe = "panels" + std::to_string(2 * machine.lanes);
      CpuKernel kernel(text, tileConfig("gemm", machine), machine.target, "3", [&](KernelSpec &spec) {
        spec.buffers[2].packing = recipe;
        spec.scratchBytes = DimExpr(4 * 24 * (2 * machine.lanes + 8 * machine.rows));
      });
      ASSERT_EQ(kernel.error, "");
      auto out = kernel.run({bytesOf(x), bytesOf(g), packed(recipe, w, {24, 64})}, {{"S", s}});
      ASSERT_EQ(kernel.error, "");
      expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target);
    }
  }
}

//===- Convolutions -------------------------------------------------------------===//

struct Conv {
  int64_t n, h, w, c, o, k, stride, pad, group;
  bool channelsLast;
};
void PrintTo(const Conv &c, std::ostream *os) {
  *os << c.n << "x" << c.h << "x" << c.w << "x" << c.c << " -> " << c.o << " k" << c.k << " s" << c.stride << " p"
      << c.pad << " g" << c.group << (c.channelsLast ? " nhwc" : " nchw");
}
class CpuConv : public testing::TestWithParam<Conv> {};

TEST_P(CpuConv, WithBiasAndRelu) {
  Conv c = GetParam();
  auto s = [](int64_t v) { return std::to_string(v); };
  int64_t oh = (c.h + 2 * c.pad - c.k) / c.stride + 1, ow = (c.w + 2 * c.pad - c.k) / c.stride + 1;
  auto image = [&](int64_t n, int64_t h, int64_t w, int64_t ch) {
    return "tensor<" + (c.channelsLast ? s(n) + "x" + s(h) + "x" + s(w) + "x" + s(ch)
                                       : s(n) + "x" + s(ch) + "x" + s(h) + "x" + s(w)) + "xf32>";
  };
  std::string x = image(c.n, c.h, c.w, c.c), y = image(c.n, oh, ow, c.o), b = image(1, 1, 1, c.o);
  int64_t cg = c.c / c.group;
  std::string w = "tensor<" + s(c.o) + "x" + s(cg) + "x" + s(c.k) + "x" + s(c.k) + "xf32>";
  std::string text = "func.func @conv(%x: " + x + ", %w: " + w + ", %b: " + b + ") -> " + y +
                     " {\n %z = lathe.constant dense<0.0> : tensor<f32>\n %0 = lathe.conv %x, %w {strides = array<i64: " +
                     s(c.stride) + ", " + s(c.stride) + ">, pads = array<i64: " + s(c.pad) + ", " + s(c.pad) + ", " +
                     s(c.pad) + ", " + s(c.pad) + ">, dilations = array<i64: 1, 1>, group = " + s(c.group) +
                     " : i64, layout = #lathe.conv_layout<" + (c.channelsLast ? "nhwc" : "nchw") + ">} : (" + x + ", " +
                     w + ") -> " + y + "\n %1 = lathe.add %0, %b : (" + y + ", " + b + ") -> " + y +
                     "\n %2 = lathe.max %1, %z : (" + y + ", tensor<f32>) -> " + y + "\n return %2 : " + y + "\n}";
  auto xv = noise(c.n * c.h * c.w * c.c, 1), wv = noise(c.o * cg * c.k * c.k, 2), bias = noise(c.o, 3);
  std::vector<float> want(c.n * oh * ow * c.o);
  for (int64_t n = 0; n < c.n; ++n)
    for (int64_t p = 0; p < oh; ++p)
      for (int64_t q = 0; q < ow; ++q)
        for (int64_t o = 0; o < c.o; ++o) {
          double sum = bias[o];
          int64_t g = o / (c.o / c.group);
          for (int64_t r = 0; r < c.k; ++r)
            for (int64_t t = 0; t < c.k; ++t)
              for (int64_t i = 0; i < cg; ++i) {
                int64_t hi = p * c.stride + r - c.pad, wi = q * c.stride + t - c.pad, ch = g * cg + i;
                if (hi < 0 || hi >= c.h || wi < 0 || wi >= c.w)
                  continue;
                double v = xv[c.channelsLast ? ((n * c.h + hi) * c.w + wi) * c.c + ch
                                             : ((n * c.c + ch) * c.h + hi) * c.w + wi];
                sum += v * wv[((o * cg + i) * c.k + r) * c.k + t];
              }
          want[c.channelsLast ? ((n * oh + p) * ow + q) * c.o + o : ((n * c.o + o) * oh + p) * ow + q] =
              static_cast<float>(std::max(sum, 0.0));
        }
  for (const Machine &machine : machines())
    for (const char *grid : {"1", "4"}) {
      bool taps = cg == 1 || groupsFitLanes(cg, c.o / c.group, machine.lanes);
      std::string recipe = c.group == 1 ? "filters" + s(2 * machine.lanes) : taps ? "taps" : "";
      CpuKernel kernel(text, tileConfig("conv", machine), machine.target, grid,
                       [&](KernelSpec &spec) {
                         spec.buffers[1].packing = recipe;
                         spec.scratchBytes = DimExpr(4 * cg * c.k * c.k * 8 * machine.rows);
                       });
      ASSERT_EQ(kernel.error, "");
      Bytes weight = recipe.empty() ? bytesOf(wv) : packed(recipe, wv, {c.o, cg, c.k, c.k});
      auto out = kernel.run({bytesOf(xv), weight, bytesOf(bias)});
      ASSERT_EQ(kernel.error, "");
      expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target);
    }
  if (c.group != 1 && c.channelsLast)
    for (const Machine &machine : machines())
      for (int64_t width : {2 * machine.lanes, machine.lanes}) {
        std::string recipe = "groups" + s(width) + "x" + s(c.group);
        auto layout = PanelLayout::of(recipe, {c.o, cg, c.k, c.k});
        if (!layout.ok())
          continue;
        std::string config = "conv.v" + s(machine.lanes) + ".r" + s(2 * machine.rows + 1) + ".m" +
                             s(machine.rows) + ".n" + s(width) + ".k1";
        CpuKernel kernel(text, config, machine.target, "3", [&](KernelSpec &spec) {
          spec.buffers[1].packing = recipe;
          spec.scratchBytes = DimExpr(4 * layout->depth * (2 * machine.rows + 1));
        });
        ASSERT_EQ(kernel.error, "");
        auto out = kernel.run({bytesOf(xv), packed(recipe, wv, {c.o, cg, c.k, c.k}), bytesOf(bias)});
        ASSERT_EQ(kernel.error, "");
        expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target + " in " + recipe);
        if (layout->channels != cg)
          continue;
        // The same in blocks of two rows, of each group its channels.
        std::vector<DimExpr> size{c.h, c.w}, rows{oh, ow};
        std::vector<int64_t> window(2, c.k), stride(2, c.stride), pads(4, c.pad), dilation(2, 1);
        auto geometry = ConvGeometry::of(size, rows, window, stride, pads, dilation, cg);
        ASSERT_TRUE(geometry);
        CpuKernel blocks(text, "conv.v" + s(machine.lanes) + ".m" + s(machine.rows) + ".n" + s(width) +
                                   ".k" + s(layout->panels() / c.group) + ".s2",
                         machine.target, "3", [&](KernelSpec &spec) {
                           spec.buffers[1].packing = recipe;
                           spec.scratchBytes = geometry->scratchElements(2) * DimExpr(4);
                         });
        ASSERT_EQ(blocks.error, "");
        out = blocks.run({bytesOf(xv), packed(recipe, wv, {c.o, cg, c.k, c.k}), bytesOf(bias)});
        ASSERT_EQ(blocks.error, "");
        expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target + " in blocks and " + recipe);
      }
  if (c.group != 1 || !c.channelsLast)
    return;
  // Blocks of two rows, copied with zeros around them.
  std::vector<DimExpr> size{c.h, c.w}, rows{oh, ow};
  std::vector<int64_t> window(2, c.k), stride(2, c.stride), pads(4, c.pad), dilation(2, 1);
  auto geometry = ConvGeometry::of(size, rows, window, stride, pads, dilation, c.c);
  ASSERT_TRUE(geometry);
  for (const Machine &machine : machines()) {
    std::string recipe = "filters" + s(2 * machine.lanes);
    std::string config = "conv.v" + s(machine.lanes) + ".m" + s(machine.rows) + ".n" +
                         s(2 * machine.lanes) + ".k2.s2";
    CpuKernel kernel(text, config, machine.target, "5", [&](KernelSpec &spec) {
      spec.buffers[1].packing = recipe;
      spec.scratchBytes = geometry->scratchElements(2) * DimExpr(4);
    });
    ASSERT_EQ(kernel.error, "");
    auto out = kernel.run({bytesOf(xv), packed(recipe, wv, {c.o, c.c, c.k, c.k}), bytesOf(bias)});
    ASSERT_EQ(kernel.error, "");
    expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target + " in blocks");
  }
  if (c.k != 3)
    return;
  for (const Machine &machine : machines())
    for (winograd::Form form : {winograd::Form{2, c.stride}, winograd::Form{4}}) {
      if (form.stride != c.stride || (form.out == 4 && machine.lanes != machines().front().lanes))
        continue; // the wider one is ErrorOfWinogradIsAsExpected's
      // Panels one by one with stride 1, else two together.
      int64_t panel = 2 * machine.lanes, tiles = machine.rows + 3, together = c.stride;
      std::string recipe =
          "winograd" + s(panel) + (form.out == 4 ? "f4" : form.stride == 2 ? "s2" : "");
      std::string config = "conv.winograd" + s(form.out) + ".v" + s(machine.lanes) + ".r" + s(tiles) +
                           ".m" + s(machine.rows) + ".n" + s(panel) + ".k" + s(together) +
                           (together > 1 ? ".s" + s(together) : "");
      CpuKernel kernel(text, config, machine.target, "3", [&](KernelSpec &spec) {
        spec.buffers[1].packing = recipe;
        spec.scratchBytes = DimExpr(form.scratchBytes(tiles, c.c, together * panel));
      });
      ASSERT_EQ(kernel.error, "");
      auto out = kernel.run({bytesOf(xv), packed(recipe, wv, {c.o, c.c, 3, 3}), bytesOf(bias)});
      ASSERT_EQ(kernel.error, "");
      expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target + " by " + config);
    }
}
INSTANTIATE_TEST_SUITE_P(
    Sizes, CpuConv,
    testing::Values(Conv{1, 7, 9, 24, 40, 1, 1, 0, 1, true}, Conv{2, 9, 11, 16, 32, 3, 1, 1, 1, true},
                    Conv{1, 12, 10, 20, 72, 3, 2, 1, 1, true}, Conv{1, 16, 18, 3, 32, 3, 2, 1, 1, true},
                    Conv{1, 9, 20, 40, 40, 3, 1, 1, 40, true}, Conv{2, 11, 13, 24, 24, 5, 2, 2, 24, true},
                    Conv{1, 6, 6, 8, 12, 3, 1, 1, 2, true}, Conv{1, 7, 9, 32, 32, 3, 1, 1, 8, true},
                    Conv{2, 6, 5, 48, 96, 3, 2, 1, 3, true}, Conv{1, 5, 6, 8, 32, 3, 1, 1, 8, true},
                    Conv{1, 7, 11, 20, 20, 3, 1, 1, 10, true}, Conv{2, 5, 13, 12, 24, 3, 2, 1, 6, true}, Conv{1, 8, 19, 3, 5, 3, 1, 1, 1, false},
                    Conv{1, 5, 5, 64, 16, 1, 2, 0, 1, true}, Conv{1, 3, 2, 8, 8, 3, 1, 1, 1, true},
                    Conv{1, 1, 1, 16, 32, 1, 1, 0, 1, true}, Conv{1, 6, 8, 4, 4, 3, 1, 1, 4, false},
                    Conv{1, 20, 40, 1, 24, 9, 2, 1, 1, true}, Conv{3, 14, 13, 19, 70, 3, 1, 1, 1, true},
                    Conv{1, 12, 12, 32, 64, 3, 1, 0, 1, true}, Conv{2, 13, 14, 16, 72, 3, 2, 1, 1, true}, Conv{1, 1, 33, 16, 20, 3, 1, 1, 1, true}));

// The bound of --winograd-tolerance is what F(4,3) does on noise, and F(2,3) is better than it.
TEST(CpuConvolution, ErrorOfWinogradIsAsExpected) {
  std::vector<Machine> all = machines();
  if (all.empty())
    GTEST_SKIP() << "no vector extensions";
  const Machine &machine = all.back();
  auto s = [](int64_t v) { return std::to_string(v); };
  constexpr int64_t size = 8, filters = 64;
  for (int64_t channels : {16, 64, 256}) {
    std::string x = "tensor<1x8x8x" + s(channels) + "xf32>", y = "tensor<1x8x8x64xf32>";
    std::string w = "tensor<64x" + s(channels) + "x3x3xf32>";
    std::string text = "func.func @conv(%x: " + x + ", %w: " + w + ") -> " + y +
                       " {\n %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, "
                       "1>, dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (" +
                       x + ", " + w + ") -> " + y + "\n return %0 : " + y + "\n}";
    auto xv = noise(size * size * channels, 1), wv = noise(filters * channels * 9, 2);
    for (float &v : xv)
      v = std::max(v, 0.0f);
    std::vector<double> want(size * size * filters);
    double square = 0;
    for (int64_t p = 0; p < size; ++p)
      for (int64_t q = 0; q < size; ++q)
        for (int64_t o = 0; o < filters; ++o) {
          double sum = 0;
          for (int64_t r = std::max<int64_t>(0, 1 - p); r < std::min<int64_t>(3, size + 1 - p); ++r)
            for (int64_t t = std::max<int64_t>(0, 1 - q); t < std::min<int64_t>(3, size + 1 - q); ++t)
              for (int64_t c = 0; c < channels; ++c)
                sum += double(xv[((p + r - 1) * size + q + t - 1) * channels + c]) *
                       wv[((o * channels + c) * 3 + r) * 3 + t];
          want[(p * size + q) * filters + o] = sum;
          square += sum * sum;
        }
    std::map<int64_t, double> error;
    for (winograd::Form form : {winograd::Form{2}, winograd::Form{4}}) {
      int64_t panel = 2 * machine.lanes, tiles = 16;
      std::string recipe = "winograd" + s(panel) + (form.out == 4 ? "f4" : "");
      CpuKernel kernel(text, "conv.winograd" + s(form.out) + ".v" + s(machine.lanes) + ".r16.m" +
                                 s(machine.rows) + ".n" + s(panel) + ".k1",
                       machine.target, "1", [&](KernelSpec &spec) {
                         spec.buffers[1].packing = recipe;
                         spec.scratchBytes = DimExpr(form.scratchBytes(tiles, channels, panel));
                       });
      ASSERT_EQ(kernel.error, "");
      auto out = valuesOf<float>(kernel.run({bytesOf(xv), packed(recipe, wv, {filters, channels, 3, 3})})[0]);
      double wrong = 0;
      for (size_t i = 0; i < want.size(); ++i)
        wrong += (out[i] - want[i]) * (out[i] - want[i]);
      error[form.out] = std::sqrt(wrong / square);
    }
    double expected = winograd::expectedError(channels);
    EXPECT_LE(error[4], expected) << channels << " channels";
    EXPECT_GE(error[4], expected / 3) << channels << " channels";
    EXPECT_LE(error[2], error[4] / 2) << channels << " channels";
  }
}

// Planes of a picture are turned into pixels on their way into a block, sixteen pixels at once.
TEST(CpuConvolution, TurnsPlanesOfFewChannels) {
  auto s = [](int64_t v) { return std::to_string(v); };
  constexpr int64_t h = 5, width = 37, o = 24;
  for (int64_t c : {2, 3, 4}) {
    std::string planes = "tensor<2x" + s(c) + "x5x37xf32>", x = "tensor<2x5x37x" + s(c) + "xf32>";
    std::string w = "tensor<24x" + s(c) + "x3x3xf32>", y = "tensor<2x5x37x24xf32>";
    std::string text = "func.func @conv(%p: " + planes + ", %w: " + w + ") -> " + y +
                       " {\n %x = lathe.transpose %p {perm = array<i64: 0, 2, 3, 1>} : (" + planes + ") -> " + x +
                       "\n %0 = lathe.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, " +
                       "dilations = array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (" + x +
                       ", " + w + ") -> " + y + "\n return %0 : " + y + "\n}";
    auto xv = noise(2 * c * h * width, 1), wv = noise(o * c * 9, 2);
    std::vector<float> want;
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t p = 0; p < h; ++p)
        for (int64_t q = 0; q < width; ++q)
          for (int64_t f = 0; f < o; ++f) {
            double sum = 0;
            for (int64_t i = 0; i < c; ++i)
              for (int64_t r = std::max<int64_t>(0, 1 - p); r < std::min<int64_t>(3, h + 1 - p); ++r)
                for (int64_t t = std::max<int64_t>(0, 1 - q); t < std::min<int64_t>(3, width + 1 - q); ++t)
                  sum += double(xv[((n * c + i) * h + p + r - 1) * width + q + t - 1]) *
                         wv[((f * c + i) * 3 + r) * 3 + t];
            want.push_back(static_cast<float>(sum));
          }
    std::vector<DimExpr> size{h, width};
    std::vector<int64_t> threes{3, 3}, ones{1, 1}, pads(4, 1);
    auto geometry = ConvGeometry::of(size, size, threes, ones, pads, ones, c);
    for (const Machine &machine : machines()) {
      std::string recipe = "filters" + s(2 * machine.lanes);
      CpuKernel kernel(text, tileConfig("conv", machine) + ".s2", machine.target, "3", [&](KernelSpec &spec) {
        spec.buffers[1].packing = recipe;
        spec.scratchBytes = geometry->scratchElements(2) * DimExpr(4);
      });
      ASSERT_EQ(kernel.error, "");
      auto out = kernel.run({bytesOf(xv), packed(recipe, wv, {o, c, 3, 3})});
      ASSERT_EQ(kernel.error, "");
      expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target + " of planes " + s(c));
    }
  }
}

TEST(CpuConvolution, DilatedWithUnevenPadsAndSymbolicImages) {
  // 3x2 windows, strides 1 and 2, dilations 2 and 3, pads 2 1 | 0 3, dense and depthwise.
  // The same with columns side by side, in blocks of rows.
  for (auto [depthwise, spread] : {std::pair(false, 3), {true, 3}, {false, 1}}) {
    const int64_t c = 20, o = 20, cg = depthwise ? 1 : c, kh = 3, kw = 2, dw = spread;
    bool blocks = spread == 1;
    std::string columns = blocks ? "floordiv(W + 4, 2)" : "floordiv(W + 2, 2)";
    std::string x = "tensor<?x?x?x20xf32, #lathe.t<[N, H, W, 20]>>";
    std::string y = "tensor<?x?x?x20xf32, #lathe.t<[N, H - 2, " + columns + ", 20]>>";
    std::string w = "tensor<20x" + std::to_string(cg) + "x3x2xf32>";
    std::string text = "func.func @conv(%x: " + x + ", %w: " + w + ") -> " + y +
        " {\n %0 = lathe.conv %x, %w {strides = array<i64: 1, 2>, pads = array<i64: 2, 1, 0, 3>, dilations = "
        "array<i64: 2, " + std::to_string(dw) + ">, group = " + std::to_string(depthwise ? 20 : 1) +
        " : i64, layout = #lathe.conv_layout<nhwc>} : (" + x + ", " + w + ") -> " + y + "\n return %0 : " + y + "\n}";
    for (auto [n, h, width] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 5, 9}, {2, 4, 41}, {1, 3, 2}}) {
      int64_t oh = h - 2, ow = (width + (blocks ? 4 : 2)) / 2;
      auto xv = noise(n * h * width * c, 1), wv = noise(o * cg * kh * kw, 2);
      std::vector<float> want(n * oh * ow * o);
      for (int64_t b = 0; b < n; ++b)
        for (int64_t p = 0; p < oh; ++p)
          for (int64_t q = 0; q < ow; ++q)
            for (int64_t f = 0; f < o; ++f) {
              double sum = 0;
              for (int64_t r = 0; r < kh; ++r)
                for (int64_t t = 0; t < kw; ++t)
                  for (int64_t i = 0; i < cg; ++i) {
                    int64_t hi = p + 2 * r - 2, wi = 2 * q + dw * t - 1, ch = depthwise ? f : i;
                    if (hi >= 0 && hi < h && wi >= 0 && wi < width)
                      sum += double(xv[((b * h + hi) * width + wi) * c + ch]) * wv[((f * cg + i) * kh + r) * kw + t];
                  }
              want[((b * oh + p) * ow + q) * o + f] = static_cast<float>(sum);
            }
      for (const Machine &machine : machines()) {
        std::string recipe = depthwise ? "taps" : "filters" + std::to_string(2 * machine.lanes);
        std::string config = tileConfig("conv", machine) + (blocks ? ".s3" : "");
        CpuKernel kernel(text, config, machine.target, "3", [&](KernelSpec &spec) {
          spec.buffers[1].packing = recipe;
          spec.scratchBytes = DimExpr(4 * cg * kh * kw * 8 * machine.rows);
          if (!blocks)
            return;
          std::vector<DimExpr> out{DimExpr::symbol("H") - DimExpr(2), *DimExpr::parse(columns)};
          std::vector<int64_t> window{kh, kw}, stride{1, 2}, pads{2, 1, 0, 3}, dilation{2, dw};
          auto g = ConvGeometry::of(out, out, window, stride, pads, dilation, c);
          spec.scratchBytes = g->scratchElements(3) * DimExpr(4);
        });
        ASSERT_EQ(kernel.error, "");
        auto out = kernel.run({bytesOf(xv), packed(recipe, wv, {o, cg, kh, kw})}, {{"N", n}, {"H", h}, {"W", width}});
        ASSERT_EQ(kernel.error, "");
        expectNear(valuesOf<float>(out[0]), want, 1e-4f, machine.target + " of width " + std::to_string(width));
      }
    }
  }
}

TEST(CpuConvolution, WindowsThatEndBeforeTheImageBegins) {
  // One column behind three pads, and windows of two columns: none of them meets the image.
  const int64_t h = 4, c = 9, o = 3, kh = 4, kw = 2, rows = 5;
  const std::string x = "tensor<2x4x?x9xf32, #lathe.t<[2, 4, W, 9]>>", w = "tensor<3x9x4x2xf32>",
                    y = "tensor<2x5x?x3xf32, #lathe.t<[2, 5, floordiv(W + 4, 3), 3]>>";
  const std::string text = "func.func @conv(%x: " + x + ", %w: " + w + ") -> " + y +
      " {\n %0 = lathe.conv %x, %w {strides = array<i64: 1, 3>, pads = array<i64: 2, 3, 2, 0>, dilations = "
      "array<i64: 1, 1>, group = 1 : i64, layout = #lathe.conv_layout<nhwc>} : (" + x + ", " + w + ") -> " + y +
      "\n return %0 : " + y + "\n}";
  auto xv = noise(2 * h * c, 1), wv = noise(o * c * kh * kw, 2);
  const std::vector<float> want(2 * rows * o, 0.0f);
  for (const Machine &machine : machines()) {
    const std::string recipe = "filters" + std::to_string(2 * machine.lanes);
    CpuKernel kernel(text, tileConfig("conv", machine) + ".s" + std::to_string(rows), machine.target, "2", [&](KernelSpec &spec) {
      spec.buffers[1].packing = recipe;
      const std::vector<DimExpr> size{DimExpr(h), DimExpr::symbol("W")}, out{DimExpr(rows), *DimExpr::parse("floordiv(W + 4, 3)")};
      const std::vector<int64_t> window{kh, kw}, stride{1, 3}, pads{2, 3, 2, 0}, dilation{1, 1};
      spec.scratchBytes = ConvGeometry::of(size, out, window, stride, pads, dilation, c)->scratchElements(rows) * DimExpr(4);
    });
    ASSERT_EQ(kernel.error, "");
    auto out = kernel.run({bytesOf(xv), packed(recipe, wv, {o, c, kh, kw})}, {{"W", 1}});
    ASSERT_EQ(kernel.error, "");
    expectNear(valuesOf<float>(out[0]), want, 0.0f, machine.target);
  }
}

TEST(CpuProduct, HalfPrecisionAccumulatesInSingle) {
  for (bool half : {true, false}) {
    std::string t = half ? "f16" : "bf16";
    std::string text = "func.func @f(%a: tensor<11x70x" + t + ">, %w: tensor<70x24x" + t + ">) -> tensor<11x24x" + t +
                       "> {\n %0 = lathe.matmul %a, %w : (tensor<11x70x" + t + ">, tensor<70x24x" + t +
                       ">) -> tensor<11x24x" + t + ">\n return %0 : tensor<11x24x" + t + ">\n}";
    auto to = [&](float v) { return half ? floatToF16(v) : floatToBf16(v); };
    auto from = [&](uint16_t v) { return half ? f16ToFloat(v) : bf16ToFloat(v); };
    std::vector<uint16_t> a, w;
    for (float v : noise(11 * 70, 1))
      a.push_back(to(v));
    for (float v : noise(70 * 24, 2))
      w.push_back(to(v));
    for (const Machine &machine : machines()) {
      std::string recipe = "panels" + std::to_string(2 * machine.lanes);
      CpuKernel kernel(text, tileConfig("gemm", machine), machine.target, "2", [&](KernelSpec &spec) {
        spec.buffers[1].packing = recipe;
        spec.scratchBytes = DimExpr(4 * 70 * 8 * machine.rows);
      });
      ASSERT_EQ(kernel.error, "");
      Bytes weight = packed(recipe, bytesOf(w), half ? DType::F16 : DType::BF16, {70, 24});
      auto got = valuesOf<uint16_t>(kernel.run({bytesOf(a), weight})[0]);
      ASSERT_EQ(kernel.error, "");
      for (int i = 0; i < 11; ++i)
        for (int j = 0; j < 24; ++j) {
          double sum = 0;
          for (int q = 0; q < 70; ++q)
            sum += double(from(a[i * 70 + q])) * from(w[q * 24 + j]);
          // Half a unit in the last place of the result's type, and a little for the sum.
          double unit = std::ldexp(1.0, std::ilogb(sum) - (half ? 10 : 7));
          ASSERT_NEAR(from(got[i * 24 + j]), sum, 0.51 * unit + 1e-5) << t << " at " << i << ", " << j;
        }
    }
  }
}

TEST(CpuProduct, BroadcastsBatchesOfEitherSide) {
  const char *text = R"(
func.func @f(%a: tensor<3x1x5x17xf32>, %b: tensor<1x2x17x21xf32>) -> tensor<3x2x5x21xf32> {
  %0 = lathe.matmul %a, %b : (tensor<3x1x5x17xf32>, tensor<1x2x17x21xf32>) -> tensor<3x2x5x21xf32>
  return %0 : tensor<3x2x5x21xf32>
})";
  auto a = noise(3 * 5 * 17, 1), b = noise(2 * 17 * 21, 2);
  std::vector<float> want(3 * 2 * 5 * 21);
  for (int p = 0; p < 3; ++p)
    for (int q = 0; q < 2; ++q)
      for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 21; ++j) {
          double sum = 0;
          for (int k = 0; k < 17; ++k)
            sum += double(a[(p * 5 + i) * 17 + k]) * b[(q * 17 + k) * 21 + j];
          want[((p * 2 + q) * 5 + i) * 21 + j] = static_cast<float>(sum);
        }
  for (const Machine &machine : machines()) {
    CpuKernel kernel(text, tileConfig("gemm", machine), machine.target, "4");
    ASSERT_EQ(kernel.error, "");
    expectNear(valuesOf<float>(kernel.run({bytesOf(a), bytesOf(b)})[0]), want, 1e-4f, machine.target);
    ASSERT_EQ(kernel.error, "");
  }
}

//===- Attention ------------------------------------------------------------------===//

TEST(CpuAttention, CausalWithGroupsMasksAndLongKeys) {
  for (auto [s, t, mask] : std::vector<std::tuple<int64_t, int64_t, bool>>{
           {1, 1, false}, {5, 5, false}, {1, 40, false}, {4, 70, true}, {17, 17, true}})
    for (bool sink : {false, true}) { // for each row
    if (sink && !mask)
      continue;
    const int64_t heads = 4, keyHeads = 2, d = 24;
    const bool sums = sink || t > 17; // the log-sum-exp too, the first of the results
    std::string text = std::string(R"(
!q = tensor<2x4x?x24xf32, #lathe.t<[2, 4, S, 24]>>
!l = tensor<2x4x?xf32, #lathe.t<[2, 4, S]>>
!k = tensor<2x2x?x24xf32, #lathe.t<[2, 2, T, 24]>>
!m = tensor<2x1x?x?xf32, #lathe.t<[2, 1, S, T]>>
!s = tensor<2x1x?x1xf32, #lathe.t<[2, 1, S, 1]>>
func.func @f(%q: !q, %k: !k, %v: !k, %m: !m, %s: !s) -> )") + (sums ? "(!l, !q)" : "!q") + " {\n  " +
                       (sums ? "%0, %1" : "%0") + " = lathe.attention %q, %k, %v" + (mask ? " bias %m" : "") + (sink ? " sink %s" : "") +
                       " {scale = 0.2 : f64, causal" + (sums ? ", log_sum_exp" : "") + "} : (!q, !k, !k" +
                       (mask ? ", !m" : "") + (sink ? ", !s" : "") + ") -> " + (sums ? "(!q, !l)\n  return %1, %0 : !l, !q\n}" : "!q\n  return %0 : !q\n}");
    auto q = noise(2 * heads * s * d, 1), k = noise(2 * keyHeads * t * d, 2), v = noise(2 * keyHeads * t * d, 3),
         m = noise(2 * s * t, 4),
         sinks = noise(2 * s, 5);
    std::vector<float> want(q.size()), logSums;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < s; ++i) {
          int64_t g = h / 2;
          std::vector<double> p(t, 0);
          const float *row = mask ? m.data() + (b * s + i) * t : nullptr;
          double sum = sink ? std::exp(sinks[b * s + i]) : 0;
          for (int64_t j = 0; j <= i + t - s; ++j) {
            double dot = 0;
            for (int64_t e = 0; e < d; ++e)
              dot += double(q[((b * heads + h) * s + i) * d + e]) * k[((b * keyHeads + g) * t + j) * d + e];
            p[j] = std::exp(0.2 * dot + (mask ? row[j] : 0));
            sum += p[j];
          }
          logSums.push_back(static_cast<float>(std::log(sum)));
          for (int64_t e = 0; e < d; ++e) {
            double y = 0;
            for (int64_t j = 0; j < t; ++j)
              y += p[j] * v[((b * keyHeads + g) * t + j) * d + e];
            want[((b * heads + h) * s + i) * d + e] = static_cast<float>(y / sum);
          }
        }
    for (const Machine &machine : machines()) {
      std::string config = tileConfig("attention", machine);
      CpuKernel kernel(text, config, machine.target, "3", [&](KernelSpec &spec) {
        spec.scratchBytes = attentionScratchBytes(*KernelConfig::parse(config), DimExpr::symbol("T"), DimExpr(d));
      });
      ASSERT_EQ(kernel.error, "");
      auto out = kernel.run({bytesOf(q), bytesOf(k), bytesOf(v), bytesOf(m), bytesOf(sinks)}, {{"S", s}, {"T", t}});
      ASSERT_EQ(kernel.error, "");
      expectNear(valuesOf<float>(out[sums]), want, 1e-5f, machine.target);
      if (sums)
        expectNear(valuesOf<float>(out[0]), logSums, 1e-5f, machine.target);
    }
  }
}

} // namespace
