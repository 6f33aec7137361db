//===- CpuActiveTest.cpp - one row of inputs that are often zero --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// gemm.active against plain loops: rows read from memory and computed, weights stored either way and of 16 bits, edges
// of panels, lists that are empty and whole, infinities and NaN; that weights of zeros are not read; where it is chosen.
//
//===----------------------------------------------------------------------===//

#include "ChooseFixture.h"
#include "CpuSkeleton.h"

#include "lathe/codegen/Config.h"
#include "lathe/codegen/KernelDesc.h"
#include "lathe/support/Half.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace lathe;
using namespace lathe::test;

namespace {

struct Case {
  int64_t n, k;
  double zeros; ///< share of inputs
  bool transposed = false, computed = false, half = false;
};
class CpuActive : public testing::TestWithParam<Case> {};

std::string textOf(const Case &c) {
  auto s = [](int64_t v) { return std::to_string(v); };
  std::string a = "tensor<1x" + s(c.k) + "xf32>", y = "tensor<1x" + s(c.n) + "xf32>";
  std::string shape = c.transposed ? s(c.n) + "x" + s(c.k) : s(c.k) + "x" + s(c.n);
  std::string w = "tensor<" + shape + "xf32>", stored = "tensor<" + shape + (c.half ? "xf16>" : "xf32>");
  std::string text = "func.func @gemm(%a: " + a + ", %s: " + stored + ") -> " + y + " {\n";
  text += c.computed ? " %x = lathe.neg %a : (" + a + ") -> " + a + "\n" : "";
  text += c.half ? " %w = lathe.cast %s : (" + stored + ") -> " + w + "\n" : "";
  text += " %0 = lathe.matmul " + std::string(c.computed ? "%x" : "%a") + ", " + (c.half ? "%w" : "%s") + " {" +
          (c.transposed ? "transpose_b" : "") + "} : (" + a + ", " + w + ") -> " + y + "\n";
  return text + " return %0 : " + y + "\n}";
}

/// The product, by panels of so many vectors.
std::vector<float> run(const Case &c, const Machine &machine, int64_t vectors, const std::vector<float> &a,
                       const std::vector<float> &w) {
  std::vector<float> stored = w;
  if (c.transposed)
    for (int64_t k = 0; k < c.k; ++k)
      for (int64_t n = 0; n < c.n; ++n)
        stored[n * c.k + k] = w[k * c.n + n];
  std::vector<uint16_t> bits;
  for (float x : c.half ? stored : std::vector<float>())
    bits.push_back(floatToF16(x));
  const Bytes raw = c.half ? bytesOf(bits) : bytesOf(stored);
  const int64_t width = vectors * machine.lanes;
  const std::string recipe = "panels" + std::to_string(width) + (c.transposed ? "t" : "");
  CpuKernel kernel(textOf(c), "gemm.active.v" + std::to_string(machine.lanes) + ".r1.m1.n" + std::to_string(width) + ".k2",
                   machine.target, "3", [&](KernelSpec &spec) {
                     spec.buffers[1].packing = recipe;
                     spec.scratchBytes = DimExpr(4 * (c.k * (c.computed ? 3 : 2) + width));
                   });
  EXPECT_EQ(kernel.error, "");
  if (!kernel.error.empty())
    return {};
  auto out = kernel.run({bytesOf(a), packed(recipe, raw, c.half ? DType::F16 : DType::F32,
                                            c.transposed ? std::vector<int64_t>{c.n, c.k} : std::vector<int64_t>{c.k, c.n})});
  EXPECT_EQ(kernel.error, "");
  return valuesOf<float>(out[0]);
}

/// A row with so many zeros, some of them -0.
std::vector<float> inputs(const Case &c) {
  std::vector<float> a = noise(c.k);
  std::mt19937 gen(3);
  std::uniform_real_distribution<double> share(0, 1);
  for (int64_t k = 0; k < c.k; ++k)
    if (share(gen) < c.zeros)
      a[k] = k % 3 ? 0.0f : -0.0f;
  return a;
}

TEST_P(CpuActive, AsPlainLoops) {
  const Case c = GetParam();
  std::vector<float> a = inputs(c), w = noise(c.k * c.n, 2), want(c.n);
  for (float &x : w)
    x = c.half ? f16ToFloat(floatToF16(x)) : x;
  for (int64_t j = 0; j < c.n; ++j) {
    double sum = 0;
    for (int64_t k = 0; k < c.k; ++k)
      sum += double(c.computed ? -a[k] : a[k]) * w[k * c.n + j];
    want[j] = float(sum);
  }
  for (const Machine &machine : machines())
    for (int64_t vectors : {2, 5})
      expectNear(run(c, machine, vectors, a, w), want, 2e-6f * std::sqrt(float(c.k)), machine.target);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CpuActive,
                         testing::Values(Case{48, 64, 0.5}, Case{37, 40, 0.5, true}, Case{500, 1030, 0.5}, Case{7, 5, 0.3},
                                         Case{1, 19, 0.5}, Case{130, 257, 0.9, true, true}, Case{64, 513, 0.2, false, true},
                                         Case{96, 64, 0.5, false, false, true}, Case{44, 24, 0.5, true, true, true},
                                         Case{32, 32, 1}, Case{32, 300, 0}));

TEST(CpuActiveExact, WeightsOfZerosAreNotRead) {
  const Case c{80, 90, 0.5};
  std::vector<float> a = inputs(c), w = noise(c.k * c.n, 2), unread = w;
  for (int64_t k = 0; k < c.k; ++k)
    for (int64_t n = 0; n < c.n && a[k] == 0; ++n)
      unread[k * c.n + n] = NAN;
  for (const Machine &machine : machines())
    EXPECT_EQ(run(c, machine, 2, a, unread), run(c, machine, 2, a, w)) << machine.target;
}

TEST(CpuActiveExact, InfinitiesAndNaN) {
  const Case c{40, 70, 0.5};
  std::vector<float> a = inputs(c), w = noise(c.k * c.n, 2);
  for (const Machine &machine : machines())
    for (float special : {INFINITY, -INFINITY, float(NAN)}) {
      a[69] = special;
      for (float y : run(c, machine, 2, a, w))
        EXPECT_FALSE(std::isfinite(y));
    }
}

/// What is chosen for M rows whose inputs are often zero by weights [K, N].
std::string chosen(DimExpr m, bool inactive, int64_t n = 768, bool batchInvariant = false, const std::string &wanted = "") {
  KernelDesc d = productByWeights(m, n, 512);
  d.operands[0].inactive = inactive;
  d.batchInvariant = batchInvariant;
  d.wanted = wanted;
  auto variants = chooseVariants(d, *Target::parse("x86-64-v3"));
  EXPECT_TRUE(variants.ok());
  std::string text;
  for (const KernelVariant &v : *variants)
    text += v.spec.buffers[1].packing + " " + std::string(KernelConfig::parse(v.spec.config)->family()) + ";";
  return text;
}

TEST(ChooseActive, OneRow) {
  EXPECT_EQ(chosen(1, true), "panels192 gemm.active;");
  EXPECT_EQ(chosen(1, true, 8192), "panels1024 gemm.active;");
  EXPECT_EQ(chosen(1, true, 5), "panels64 gemm.active;");
  EXPECT_EQ(chosen(1, false), "panels16 gemm;");
  EXPECT_EQ(chosen(2, true), "panels16 gemm;");
  // Weights are stored once, for several rows.
  EXPECT_EQ(chosen(DimExpr::symbol("M"), true), "panels16 gemm;panels16 gemm;");
  EXPECT_EQ(chosen(1, true, 768, true), "panels16 gemm;");
  EXPECT_EQ(chosen(1, true, 768, false, "gemm.active.v8.r1.m1.n192.k1"), "panels192 gemm.active;");
  EXPECT_EQ(chosen(1, true, 768, false, "gemm.v8.r48.m6.n16.k1"), "panels16 gemm;");
}

} // namespace
