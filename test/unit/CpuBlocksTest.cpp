//===- CpuBlocksTest.cpp - products by weights with blocks of zeros -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// gemm.bsr against plain loops and against the dense kernel: every edge of tiles and panels, rows read from
// memory and computed, weights of 16 bits, lists that are empty and whole, infinities and NaN that meet zeros.
//
//===----------------------------------------------------------------------===//

#include "ChooseFixture.h"
#include "CpuSkeleton.h"

#include "lathe/codegen/Config.h"
#include "lathe/codegen/KernelDesc.h"
#include "lathe/support/Half.h"
#include "lathe/support/ZeroBlocks.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace lathe;
using namespace lathe::test;

namespace {

struct Case {
  int64_t m, n, k, rows; ///< rows: of a block
  double zeros;          ///< share of blocks
  bool transposed = false, computed = false, half = false;
};
class CpuBlocks : public testing::TestWithParam<Case> {};

/// [K, N] with so many blocks of zeros, some of them -0.
std::vector<float> weights(const Case &c) {
  std::vector<float> w = noise(c.k * c.n, 2);
  std::mt19937 gen(3);
  std::uniform_real_distribution<double> share(0, 1);
  for (int64_t k = 0; k < c.k; k += c.rows)
    for (int64_t n = 0; n < c.n; n += kBlockColumns)
      if (share(gen) < c.zeros)
        for (int64_t i = k; i < std::min(c.k, k + c.rows); ++i)
          for (int64_t j = n; j < std::min(c.n, n + kBlockColumns); ++j)
            w[i * c.n + j] = (i + j) % 5 ? 0.0f : -0.0f;
  if (c.half)
    for (float &x : w)
      x = f16ToFloat(floatToF16(x));
  return w;
}

Bytes asStored(const Case &c, const std::vector<float> &w) {
  std::vector<float> stored = w;
  if (c.transposed)
    for (int64_t k = 0; k < c.k; ++k)
      for (int64_t n = 0; n < c.n; ++n)
        stored[n * c.k + k] = w[k * c.n + n];
  if (!c.half)
    return bytesOf(stored);
  std::vector<uint16_t> bits;
  for (float x : stored)
    bits.push_back(floatToF16(x));
  return bytesOf(bits);
}

std::string textOf(const Case &c) {
  auto s = [](int64_t v) { return std::to_string(v); };
  std::string a = "tensor<?x" + s(c.k) + "xf32, #lathe.t<[M, " + s(c.k) + "]>>";
  std::string shape = c.transposed ? s(c.n) + "x" + s(c.k) : s(c.k) + "x" + s(c.n);
  std::string w = "tensor<" + shape + "xf32>", stored = "tensor<" + shape + (c.half ? "xf16>" : "xf32>");
  std::string y = "tensor<?x" + s(c.n) + "xf32, #lathe.t<[M, " + s(c.n) + "]>>", v = "tensor<" + s(c.n) + "xf32>";
  std::string text = "func.func @gemm(%a: " + a + ", %s: " + stored + ", %bias: " + v + ") -> " + y + " {\n";
  text += c.computed ? " %x = lathe.max %a, %a : (" + a + ", " + a + ") -> " + a + "\n" : "";
  text += c.half ? " %w = lathe.cast %s : (" + stored + ") -> " + w + "\n" : "";
  text += " %0 = lathe.matmul " + std::string(c.computed ? "%x" : "%a") + ", " + (c.half ? "%w" : "%s") + " {" +
          (c.transposed ? "transpose_b" : "") + "} : (" + a + ", " + w + ") -> " + y + "\n";
  return text + " %1 = lathe.add %0, %bias : (" + y + ", " + v + ") -> " + y + "\n return %1 : " + y + "\n}";
}

int64_t nonzeroBlocksOf(const Case &c, const Bytes &stored) {
  MatrixBytes matrix{stored, c.half ? 16u : 32u, c.k, c.n, c.transposed};
  return countNonzeroBlocks(nonzeroRows(matrix), c.k, c.rows);
}

/// The product plus bias by gemm.bsr, or by the dense kernel.
std::vector<float> run(const Case &c, const Machine &machine, bool sparse, const std::vector<float> &a,
                       const std::vector<float> &w, const std::vector<float> &bias) {
  const int64_t rows = machine.lanes == 16 ? 12 : machine.rows;
  Bytes stored = asStored(c, w);
  std::string config = sparse ? "gemm.bsr.v" + std::to_string(machine.lanes) + ".r" + std::to_string(3 * rows) + ".m" +
                                    std::to_string(rows) + ".n16.k2"
                              : tileConfig("gemm", machine);
  std::string recipe = sparse ? blocksRecipe(c.rows, nonzeroBlocksOf(c, stored), c.transposed)
                              : "panels" + std::to_string(2 * machine.lanes) + (c.transposed ? "t" : "");
  CpuKernel kernel(textOf(c), config, machine.target, "3", [&](KernelSpec &spec) {
    spec.buffers[1].packing = recipe;
    spec.scratchBytes = DimExpr(4 * 64 * (c.k + 1));
  });
  EXPECT_EQ(kernel.error, "");
  if (!kernel.error.empty())
    return {};
  Bytes weight = packed(recipe, stored, c.half ? DType::F16 : DType::F32,
                        c.transposed ? std::vector<int64_t>{c.n, c.k} : std::vector<int64_t>{c.k, c.n});
  auto out = kernel.run({bytesOf(a), weight, bytesOf(bias)}, {{"M", c.m}});
  EXPECT_EQ(kernel.error, "");
  return valuesOf<float>(out[0]);
}

TEST_P(CpuBlocks, AsPlainLoops) {
  const Case c = GetParam();
  std::vector<float> a = noise(c.m * c.k), w = weights(c), bias = noise(c.n, 4), want(c.m * c.n);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = bias[j];
      for (int64_t q = 0; q < c.k; ++q)
        sum += double(a[i * c.k + q]) * w[q * c.n + j];
      want[i * c.n + j] = float(sum);
    }
  for (const Machine &machine : machines())
    expectNear(run(c, machine, true, a, w, bias), want, 2e-6f * std::sqrt(float(c.k)), machine.target);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CpuBlocks,
                         testing::Values(Case{1, 64, 48, 1, 0.8}, Case{13, 40, 37, 1, 0.5, true},
                                         Case{131, 72, 520, 4, 0.8}, Case{7, 5, 7, 1, 0.3},
                                         Case{3, 19, 1, 1, 0.5}, Case{0, 32, 16, 1, 0.5},
                                         Case{50, 33, 64, 4, 0.7, true, true}, Case{1, 48, 1030, 1, 0.9},
                                         Case{9, 48, 33, 1, 0.6, false, true}, Case{20, 48, 1028, 4, 0.9, false, true},
                                         Case{18, 64, 96, 1, 0.7, false, false, true},
                                         Case{5, 24, 44, 4, 0.7, true, false, true},
                                         Case{6, 32, 32, 1, 1}, Case{6, 32, 32, 4, 0}));

// Zeros add nothing: the same sums in the same order as the dense kernel's, to the bit.
TEST(CpuBlocksExact, AsTheDenseKernel) {
  for (int64_t rows : {1, 4}) {
    const Case c{48, 64, 500, rows, 0.8}; // whole tiles, sums in one chain
    std::vector<float> a = noise(c.m * c.k), w = weights(c), bias(c.n);
    for (const Machine &machine : machines())
      EXPECT_EQ(run(c, machine, true, a, w, bias), run(c, machine, false, a, w, bias)) << machine.target;
  }
}

// 0 times infinity is NaN also where the zero is not stored, and rows without infinities keep their sums.
TEST(CpuBlocksExact, InfinitiesMeetZeros) {
  for (bool computed : {false, true})
    for (int64_t rows : {1, 4}) {
      Case c{37, 40, 64, rows, 0.8, false, computed};
      std::vector<float> a = noise(c.m * c.k), w = weights(c), bias = noise(c.n, 4);
      a[3 * c.k + 5] = INFINITY;
      a[20 * c.k + 63] = -INFINITY;
      a[20 * c.k + 0] = 1;
      a[36 * c.k + 17] = NAN;
      for (const Machine &machine : machines()) {
        std::vector<float> got = run(c, machine, true, a, w, bias), want = run(c, machine, false, a, w, bias);
        int64_t nans = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          if (std::isfinite(want[i]))
            ASSERT_NEAR(got[i], want[i], 1e-5f) << i;
          else
            ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) << i << ": " << got[i];
          nans += std::isnan(want[i]);
        }
        EXPECT_GT(nans, 2 * c.n); // of the infinities, those that met zeros
      }
    }
}

TEST(PackedBlocks, Layout) {
  std::vector<int64_t> dims = {4, 18};
  std::vector<float> w(4 * 18);
  w[1 * 18 + 2] = 5; // row 1 of panel 0
  w[3 * 18 + 17] = 7; // row 3 of panel 1
  Result<PanelLayout> layout = PanelLayout::of("blocks16x1c3", dims);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->rowsAt(32), 3);
  EXPECT_EQ(layout->valuesAt(32), 16);
  EXPECT_EQ(layout->valuesAt(16), 32);
  std::vector<float> got = valuesOf<float>(packed("blocks16x1c3", bytesOf(w), DType::F32, dims));
  std::vector<uint32_t> words = valuesOf<uint32_t>(bytesOf(got));
  ASSERT_EQ(got.size(), 16u + 3 * 16);
  EXPECT_EQ(std::vector<uint32_t>(words.begin(), words.begin() + 5), (std::vector<uint32_t>{0, 1, 2, 1, 3}));
  EXPECT_EQ(got[16 + 2], 5);
  EXPECT_EQ(got[16 + 16 + 1], 7);
  EXPECT_EQ(std::count(got.begin() + 16, got.end(), 0.0f), 3 * 16 - 2);

  for (const char *recipe : {"blocks16x2c3", "blocks16x1", "blocks16x1c9", "blocks16x1c3x", "blocks16x4c3t", "blocks16x1c-1"})
    EXPECT_FALSE(PanelLayout::of(recipe, dims).ok()) << recipe;
  EXPECT_TRUE(PanelLayout::of("blocks16x1c3", {1, 4, 18}).ok());
  EXPECT_FALSE(PanelLayout::of("blocks16x1c3", {2, 4, 18}).ok());
  EXPECT_FALSE(WeightPacker::of("blocks16x1c3", DType::I8, dims).ok());
  // A recipe that was made for other data.
  Result<WeightPacker> few = WeightPacker::of("blocks16x1c1", DType::F32, dims);
  ASSERT_TRUE(few.ok());
  EXPECT_FALSE(few->prepare(bytesOf(w)).ok());
}

/// A product of M rows by constant weights [K, N], so many blocks of which are not all zero.
KernelDesc product(DimExpr m, int64_t n, int64_t k, int64_t blocks1, int64_t blocks4) {
  KernelDesc d = productByWeights(m, n, k);
  d.operands[1].nonzeroBlocks1 = blocks1;
  d.operands[1].nonzeroBlocks4 = blocks4;
  return d;
}

TEST(ChooseBlocks, WhereItPays) {
  const int64_t n = 768, k = 512, panels = n / 16;
  const Target v3 = *Target::parse("x86-64-v3");
  auto packing = [&](DimExpr m, double kept1, double kept4, bool always = false) {
    KernelDesc d = product(m, n, k, int64_t(kept1 * k * panels), int64_t(kept4 * k / 4 * panels));
    d.alwaysSparse = always;
    auto variants = chooseVariants(d, v3);
    EXPECT_TRUE(variants.ok());
    std::string text;
    for (const KernelVariant &v : *variants)
      text += v.spec.buffers[1].packing.substr(0, 9) + " " + std::string(KernelConfig::parse(v.spec.config)->family()) + ";";
    return text;
  };
  EXPECT_EQ(packing(128, 0.2, 0.9), "blocks16x gemm.bsr;");
  EXPECT_EQ(packing(128, 0.99, 0.99), "panels16 gemm;");
  EXPECT_EQ(packing(128, 0.99, 0.99, true), "blocks16x gemm.bsr;");
  EXPECT_EQ(packing(DimExpr::symbol("M"), 0.2, 0.2), "blocks16x gemm.bsr;blocks16x gemm.bsr;");
  // Blocks of four rows take less time where they have the same zeros.
  KernelDesc same = product(128, n, k, k / 4 * panels, k / 16 * panels);
  EXPECT_EQ(blockGain(same, v3)->rows, 4);
  EXPECT_EQ(blockGain(product(128, n, k, k / 4 * panels, k / 4 * panels), v3)->rows, 1);
  // Nothing is known; not f32.
  EXPECT_FALSE(blockGain(product(128, n, k, -1, -1), v3));
  same.operands[1].dtype = DType::F64;
  EXPECT_NE(blockGain(same, v3)->why, "");
}

} // namespace
