//===- CpuCodegenTest.cpp - kernels against plain loops -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small kernel regions, compiled and run, compared with loops written here.
// Sizes are odd, zero and one as well as round; every case runs for both CPU
// levels that this machine has.
//
//===----------------------------------------------------------------------===//

#include "CpuKernel.h"

#include "lathe/support/Half.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace lathe;
using namespace lathe::test;

namespace {

std::vector<std::string> targets() {
  std::vector<std::string> all;
  for (const char *name : {"x86-64-v3", "x86-64-v4"})
    if (Target::parse(name)->supportedByHostCpu().ok())
      all.push_back(name);
  return all;
}
std::string lanes(const std::string &target) {
  return std::to_string(Target::parse(target)->lanes(DType::F32));
}

std::vector<float> noise(size_t n, float lo = -2, float hi = 2, unsigned seed = 1) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<float> d(lo, hi);
  std::vector<float> v(n);
  for (float &x : v)
    x = d(gen);
  return v;
}

void expectNear(const std::vector<float> &got, const std::vector<float> &want, float relative,
                const std::string &what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << what << " at " << i;
      continue;
    }
    if (got[i] == want[i])
      continue;
    ASSERT_LE(std::fabs(got[i] - want[i]), relative * std::max(1.0f, std::fabs(want[i])))
        << what << " at " << i << ": " << got[i] << " for " << want[i];
  }
}

/// f32 in, f32 out, on all targets and several numbers of blocks.
void check(const std::string &text, const std::string &family,
           const std::vector<std::vector<float>> &inputs, const std::vector<float> &want,
           const std::map<std::string, int64_t> &symbols = {}, float relative = 1e-6f,
           const std::vector<std::string> &grids = {"1", "3"}) {
  for (const std::string &target : targets())
    for (const std::string &grid : grids) {
      CpuKernel kernel(text, family + ".v" + lanes(target), target, grid);
      ASSERT_EQ(kernel.error, "") << text;
      std::vector<Bytes> in;
      for (const auto &x : inputs)
        in.push_back(bytesOf(x));
      auto out = kernel.run(in, symbols);
      ASSERT_EQ(kernel.error, "");
      ASSERT_EQ(out.size(), 1u);
      expectNear(valuesOf<float>(out[0]), want, relative, family + " " + target + " grid " + grid);
    }
}

//===- Pointwise --------------------------------------------------------------===//

TEST(CpuPointwise, AddOfAnyLength) {
  const char *text = R"(
!x = tensor<?xf32, #lathe.t<[N]>>
func.func @add(%a: !x, %b: !x) -> !x {
  %0 = lathe.add %a, %b : (!x, !x) -> !x
  return %0 : !x
})";
  for (int64_t n : {0, 1, 7, 16, 17, 100, 1000}) {
    auto a = noise(n, -2, 2, 1), b = noise(n, -2, 2, 2);
    std::vector<float> want(n);
    for (int64_t i = 0; i < n; ++i)
      want[i] = a[i] + b[i];
    check(text, "pointwise", {a, b}, want, {{"N", n}});
  }
}

TEST(CpuPointwise, BroadcastsRowsColumnsAndScalars) {
  const char *text = R"(
func.func @bias(%a: tensor<5x19xf32>, %row: tensor<19xf32>, %col: tensor<5x1xf32>, %s: tensor<f32>) -> tensor<5x19xf32> {
  %0 = lathe.mul %a, %row : (tensor<5x19xf32>, tensor<19xf32>) -> tensor<5x19xf32>
  %1 = lathe.add %0, %col : (tensor<5x19xf32>, tensor<5x1xf32>) -> tensor<5x19xf32>
  %2 = lathe.sub %1, %s : (tensor<5x19xf32>, tensor<f32>) -> tensor<5x19xf32>
  return %2 : tensor<5x19xf32>
})";
  auto a = noise(95), row = noise(19, -1, 1, 2), col = noise(5, -1, 1, 3);
  std::vector<float> want(95);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 19; ++j)
      want[i * 19 + j] = std::fma(a[i * 19 + j], row[j], col[i]) - 0.5f;
  check(text, "pointwise", {a, row, col, {0.5f}}, want);
}

TEST(CpuPointwise, BroadcastDecidedAtRunTime) {
  const char *text = R"(
func.func @f(%a: tensor<?xf32, #lathe.t<[N]>>, %b: tensor<?xf32, #lathe.t<[M]>>) -> tensor<?xf32, #lathe.t<[bcast(M, N)]>> {
  %0 = lathe.add %a, %b : (tensor<?xf32, #lathe.t<[N]>>, tensor<?xf32, #lathe.t<[M]>>) -> tensor<?xf32, #lathe.t<[bcast(M, N)]>>
  return %0 : tensor<?xf32, #lathe.t<[bcast(M, N)]>>
})";
  for (auto [n, m] : std::vector<std::pair<int64_t, int64_t>>{{37, 37}, {1, 37}, {37, 1}, {1, 0}}) {
    auto a = noise(n, -2, 2, 1), b = noise(m, -2, 2, 2);
    int64_t size = n == 1 ? m : n;
    std::vector<float> want(size);
    for (int64_t i = 0; i < size; ++i)
      want[i] = a[n == 1 ? 0 : i] + b[m == 1 ? 0 : i];
    check(text, "pointwise", {a, b}, want, {{"N", n}, {"M", m}});
  }
}

/// Units in the last place between a result and the true value.
double ulpError(float got, double want) {
  if (std::isnan(want) || std::isinf(static_cast<float>(want)))
    return (std::isnan(want) ? std::isnan(got) : got == static_cast<float>(want)) ? 0 : 1e9;
  int exponent = want == 0 ? -126 : std::max(-126, std::ilogb(want));
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

struct UnaryCase {
  const char *op;
  double (*truth)(double);
  float lo, hi, ulp;
};
void PrintTo(const UnaryCase &c, std::ostream *os) { *os << c.op << " on " << c.lo << ".." << c.hi; }
class CpuUnary : public testing::TestWithParam<UnaryCase> {};
TEST_P(CpuUnary, IsWithinItsBound) {
  const UnaryCase &c = GetParam();
  const int n = 4003;
  std::string t = "tensor<4003xf32>";
  std::string text = "func.func @u(%x: " + t + ") -> " + t + " {\n  %0 = lathe." + c.op + " %x : (" + t + ") -> " + t +
                     "\n  return %0 : " + t + "\n}";
  auto x = noise(n, c.lo, c.hi);
  x[0] = c.lo, x[1] = c.hi, x[2] = 0.0f, x[3] = NAN, x[n - 1] = c.lo; // the last ones are a partial vector
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "pointwise.v" + lanes(target), target, "2");
    ASSERT_EQ(kernel.error, "");
    auto got = valuesOf<float>(kernel.run({bytesOf(x)})[0]);
    double worst = 0;
    int at = 0;
    for (int i = 0; i < n; ++i)
      if (double e = ulpError(got[i], c.truth(x[i])); e > worst)
        worst = e, at = i;
    EXPECT_LE(worst, c.ulp) << c.op << "(" << x[at] << ") = " << got[at] << " for " << c.truth(x[at]);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Functions, CpuUnary,
    testing::Values(UnaryCase{"exp", std::exp, -20, 20, 2}, UnaryCase{"exp", std::exp, -110, 89.5f, 2},
                    UnaryCase{"log", std::log, 0.01f, 90, 2}, UnaryCase{"log", std::log, 1e-40f, 1e-37f, 2},
                    UnaryCase{"tanh", std::tanh, -12, 12, 5}, UnaryCase{"erf", std::erf, -5, 5, 5},
                    UnaryCase{"sin", std::sin, -100, 100, 0.51f}, UnaryCase{"cos", std::cos, -1e6f, 1e6f, 0.51f},
                    UnaryCase{"sin", std::sin, -1e-6f, 1e-6f, 0.51f}, UnaryCase{"cos", std::cos, -3, 3, 0.51f},
                    UnaryCase{"sin", std::sin, -3e12f, 3e12f, 0.51f}, UnaryCase{"cos", std::cos, -3e38f, 1e38f, 0.51f},
                    UnaryCase{"atan", std::atan, -9, 9, 1}, UnaryCase{"log1p", std::log1p, -1, 3, 0.51f},
                    UnaryCase{"log1p", std::log1p, -1e-6f, 1e-6f, 0.51f}, UnaryCase{"log1p", std::log1p, -1.1f, 3e38f, 0.51f},
                    UnaryCase{"expm1", std::expm1, -2, 2, 0.51f}, UnaryCase{"expm1", std::expm1, -40, 89.5f, 0.51f},
                    UnaryCase{"expm1", std::expm1, -1e-6f, 1e-6f, 0.51f}, UnaryCase{"sqrt", std::sqrt, 0, 9, 0.51f},
                    UnaryCase{"floor", std::floor, -9, 9, 0}, UnaryCase{"ceil", std::ceil, -9, 9, 0},
                    UnaryCase{"round", std::nearbyint, -9, 9, 0}, UnaryCase{"trunc", std::trunc, -9, 9, 0},
                    UnaryCase{"neg", [](double x) { return -x; }, -9, 9, 0},
                    UnaryCase{"abs", [](double x) { return std::fabs(x); }, -9, 9, 0},
                    UnaryCase{"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -100, 20, 4},
                    UnaryCase{"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1f, 9, 2}));

/// Where a result is exact, its bits: signs of zero, infinities, the ends of ranges, beside lanes that the library serves.
TEST(CpuPointwise, FunctionsInDoublesKeepSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kTiny = 0x1p-149f, kHuge = 0x1p100f;
  struct Case {
    const char *op;
    double (*truth)(double);
  };
  for (Case c : {Case{"sin", std::sin}, Case{"cos", std::cos}, Case{"expm1", std::expm1}, Case{"log1p", std::log1p}}) {
    std::vector<float> x{0.0f, -0.0f, kTiny, -kTiny, kInf, -kInf, NAN, -1, std::nextafter(-1.0f, 0.0f), -2, 200, -200, 1, kHuge, -kHuge, 0.5f, -0.5f};
    std::string t = "tensor<" + std::to_string(x.size()) + "xf32>";
    std::string text = std::string("func.func @u(%x: ") + t + ") -> " + t + " {\n  %0 = lathe." + c.op + " %x : (" + t + ") -> " + t +
                       "\n  return %0 : " + t + "\n}";
    for (const std::string &target : targets()) {
      CpuKernel kernel(text, "pointwise.v" + lanes(target), target, "2");
      ASSERT_EQ(kernel.error, "");
      auto got = valuesOf<float>(kernel.run({bytesOf(x)})[0]);
      for (size_t i = 0; i < x.size(); ++i) {
        float want = static_cast<float>(c.truth(x[i]));
        EXPECT_LE(ulpError(got[i], c.truth(x[i])), 0.51) << target << " " << c.op << "(" << x[i] << ") = " << got[i];
        EXPECT_TRUE(std::isnan(want) || std::signbit(got[i]) == std::signbit(want)) << target << " " << c.op << "(" << x[i] << ") = " << got[i];
      }
    }
  }
}

TEST(CpuPointwise, MaxKeepsNaN) {
  const char *text = R"(
func.func @relu(%x: tensor<35xf32>) -> tensor<35xf32> {
  %z = lathe.constant dense<0.0> : tensor<f32>
  %0 = lathe.max %x, %z : (tensor<35xf32>, tensor<f32>) -> tensor<35xf32>
  return %0 : tensor<35xf32>
})";
  auto x = noise(35);
  x[3] = x[34] = NAN;
  std::vector<float> want(35);
  for (int i = 0; i < 35; ++i)
    want[i] = std::isnan(x[i]) ? x[i] : std::max(x[i], 0.0f);
  check(text, "pointwise", {x}, want);
}

TEST(CpuPointwise, IntegerDivisionNeverTraps) {
  const char *text = R"(
func.func @div(%a: tensor<18xi32>, %b: tensor<18xi32>) -> tensor<18xi32> {
  %0 = lathe.div %a, %b : (tensor<18xi32>, tensor<18xi32>) -> tensor<18xi32>
  return %0 : tensor<18xi32>
})";
  std::vector<int32_t> a(18, INT32_MIN), b(18, -1), want(18, INT32_MIN);
  a[1] = 7, b[1] = -2, want[1] = -3;
  a[2] = 7, b[2] = 0, want[2] = 0;
  a[17] = -9, b[17] = 4, want[17] = -2;
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "pointwise.v" + lanes(target), target);
    ASSERT_EQ(kernel.error, "");
    EXPECT_EQ(valuesOf<int32_t>(kernel.run({bytesOf(a), bytesOf(b)})[0]), want);
  }
}

TEST(CpuPointwise, ComparesAndSelectsWithBoolsInBytes) {
  const char *text = R"(
func.func @f(%a: tensor<21xui8>, %b: tensor<21xui8>, %c: tensor<21xi1>) -> (tensor<21xi1>, tensor<21xui8>) {
  %0 = lathe.compare %a, %b {predicate = #lathe.predicate<lt>} : (tensor<21xui8>, tensor<21xui8>) -> tensor<21xi1>
  %1 = lathe.and %0, %c : (tensor<21xi1>, tensor<21xi1>) -> tensor<21xi1>
  %2 = lathe.select %1, %a, %b : (tensor<21xi1>, tensor<21xui8>, tensor<21xui8>) -> tensor<21xui8>
  return %1, %2 : tensor<21xi1>, tensor<21xui8>
})";
  std::vector<uint8_t> a(21), b(21), c(21), flags(21), picked(21);
  for (int i = 0; i < 21; ++i) {
    a[i] = i * 37, b[i] = 255 - i * 11, c[i] = i % 3 != 0;
    flags[i] = a[i] < b[i] && c[i];
    picked[i] = flags[i] ? a[i] : b[i];
  }
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "pointwise.v" + lanes(target), target);
    ASSERT_EQ(kernel.error, "");
    auto out = kernel.run({bytesOf(a), bytesOf(b), bytesOf(c)});
    EXPECT_EQ(valuesOf<uint8_t>(out[0]), flags);
    EXPECT_EQ(valuesOf<uint8_t>(out[1]), picked);
  }
}

TEST(CpuPointwise, DoublesThroughHelpers) {
  const char *text = R"(
func.func @f(%a: tensor<19xf64>, %b: tensor<19xf64>) -> tensor<19xf64> {
  %0 = lathe.pow %a, %b : (tensor<19xf64>, tensor<19xf64>) -> tensor<19xf64>
  %1 = lathe.exp %0 : (tensor<19xf64>) -> tensor<19xf64>
  %2 = lathe.mod %1, %b {fmod} : (tensor<19xf64>, tensor<19xf64>) -> tensor<19xf64>
  return %2 : tensor<19xf64>
})";
  std::vector<double> a(19), b(19), want(19);
  for (int i = 0; i < 19; ++i) {
    a[i] = 0.1 * (i + 1), b[i] = 2 - 0.05 * i;
    want[i] = std::fmod(std::exp(std::pow(a[i], b[i])), b[i]);
  }
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "pointwise.v" + lanes(target), target);
    ASSERT_EQ(kernel.error, "");
    EXPECT_EQ(valuesOf<double>(kernel.run({bytesOf(a), bytesOf(b)})[0]), want);
  }
}

//===- Small floats -----------------------------------------------------------===//

TEST(CpuTypes, HalfPrecisionRoundsOnceAtTheStore) {
  for (const char *type : {"f16", "bf16"}) {
    std::string t = std::string("tensor<43x") + type + ">";
    std::string text = "func.func @f(%a: " + t + ", %b: " + t + ") -> " + t +
                       " {\n %0 = lathe.mul %a, %b : (" + t + ", " + t + ") -> " + t +
                       "\n return %0 : " + t + "\n}";
    bool half = std::string(type) == "f16";
    auto to = [&](float x) { return half ? floatToF16(x) : floatToBf16(x); };
    auto from = [&](uint16_t x) { return half ? f16ToFloat(x) : bf16ToFloat(x); };
    auto x = noise(43, -300, 300), y = noise(43, -300, 300, 2);
    std::vector<uint16_t> a(43), b(43), want(43);
    for (int i = 0; i < 43; ++i) {
      a[i] = to(x[i]), b[i] = to(y[i]);
      want[i] = to(from(a[i]) * from(b[i]));
    }
    for (const std::string &target : targets()) {
      CpuKernel kernel(text, "pointwise.v" + lanes(target), target);
      ASSERT_EQ(kernel.error, "");
      EXPECT_EQ(valuesOf<uint16_t>(kernel.run({bytesOf(a), bytesOf(b)})[0]), want) << type;
    }
  }
}

/// By way of f32, whose nearest number lies half-way between two narrower ones, each of these would be the next one.
TEST(CpuTypes, WideNumbersRoundOnceToHalfPrecision) {
  auto kernelText = [](const std::string &from, const std::string &to) {
    std::string x = "tensor<11x" + from + ">", y = "tensor<11x" + to + ">";
    return "func.func @f(%x: " + x + ") -> " + y + " {\n %0 = lathe.cast %x : (" + x + ") -> " + y + "\n return %0 : " + y + "\n}";
  };
  const double tiny = 0x1p-40, inf = std::numeric_limits<double>::infinity();
  std::vector<double> x = {1 + 0x1p-11 + tiny, 1 + 0x1p-11 - tiny, -1 - 0x1p-11 - tiny, 1 + 0x1p-8 + tiny, 1 + 0x1p-8 - tiny, -1 - 0x1p-8 - tiny,
                           0x1p-25 * (1 + tiny), 0x1p-300, -inf, 1e300, 1 + 0x1p-11};
  std::vector<uint16_t> half = {0x3c01, 0x3c00, 0xbc01, 0x3c04, 0x3c04, 0xbc04, 0x0001, 0, 0xfc00, 0x7c00, 0x3c00};
  std::vector<uint16_t> brain = {0x3f80, 0x3f80, 0xbf80, 0x3f81, 0x3f80, 0xbf81, 0x3300, 0, 0xff80, 0x7f80, 0x3f80};
  const int64_t tie = (int64_t(1) << 62) + (int64_t(1) << 54);
  std::vector<int64_t> n = {tie, tie + 1, tie - 1, -tie - 1, -tie + 1, (int64_t(1) << 53) + 1, 257, -1, INT64_MAX, INT64_MIN,
                            (1 << 30) + (1 << 22) + 1};
  std::vector<uint16_t> whole = {0x5e80, 0x5e81, 0x5e80, 0xde81, 0xde80, 0x5a00, 0x4380, 0xbf80, 0x5f00, 0xdf00, 0x4e81};
  for (const std::string &target : targets()) {
    auto run = [&](const char *from, const char *to, const Bytes &in) {
      CpuKernel kernel(kernelText(from, to), "pointwise.v" + lanes(target), target);
      EXPECT_EQ(kernel.error, "");
      return kernel.error.empty() ? valuesOf<uint16_t>(kernel.run({in})[0]) : std::vector<uint16_t>();
    };
    EXPECT_EQ(run("f64", "f16", bytesOf(x)), half);
    EXPECT_EQ(run("f64", "bf16", bytesOf(x)), brain);
    EXPECT_EQ(run("i64", "bf16", bytesOf(n)), whole);
  }
}

TEST(CpuTypes, NegatedBFloat16NeedsNoLibrary) {
  const char *text = R"(
func.func @f(%x: tensor<2x32xbf16>) -> tensor<2x32xbf16> {
  %0 = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<16>], steps = array<i64: 1, 1>} : (tensor<2x32xbf16>) -> tensor<2x16xbf16>
  %1 = lathe.neg %0 : (tensor<2x16xbf16>) -> tensor<2x16xbf16>
  %2 = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<0>], steps = array<i64: 1, 1>} : (tensor<2x32xbf16>) -> tensor<2x16xbf16>
  %3 = lathe.concat %1, %2 {axis = 1 : i64} : (tensor<2x16xbf16>, tensor<2x16xbf16>) -> tensor<2x32xbf16>
  return %3 : tensor<2x32xbf16>
})";
  std::vector<uint16_t> x(64), want(64);
  for (int i = 0; i < 64; ++i)
    x[i] = floatToBf16(0.37f * (i - 20));
  for (int r = 0; r < 2; ++r)
    for (int j = 0; j < 32; ++j)
      want[r * 32 + j] = j < 16 ? x[r * 32 + j + 16] ^ 0x8000 : x[r * 32 + j - 16];
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "pointwise.v" + lanes(target), target);
    ASSERT_EQ(kernel.error, "");
    EXPECT_EQ(valuesOf<uint16_t>(kernel.run({bytesOf(x)})[0]), want);
  }
}

TEST(CpuTypes, EightBitFloatsConvertBothWays) {
  for (auto [type, dtype] : std::vector<std::pair<std::string, DType>>{
           {"f8E4M3FN", DType::F8E4M3FN}, {"f8E5M2", DType::F8E5M2},
           {"f8E4M3FNUZ", DType::F8E4M3FNUZ}, {"f8E5M2FNUZ", DType::F8E5M2FNUZ}})
    for (bool saturate : {false, true}) {
      std::string t = "tensor<256x" + type + ">", f = "tensor<256xf32>";
      std::string text = "func.func @f(%a: " + t + ", %b: " + f + ") -> (" + f + ", " + t +
                         ") {\n %0 = lathe.cast %a : (" + t + ") -> " + f +
                         "\n %1 = lathe.cast %b {saturate = " + (saturate ? "true" : "false") +
                         "} : (" + f + ") -> " + t + "\n return %0, %1 : " + f + ", " + t + "\n}";
      std::vector<uint8_t> codes(256);
      auto values = noise(256, -1, 1, 3);
      for (int i = 0; i < 256; ++i) {
        codes[i] = i;
        values[i] = std::ldexp(values[i], i / 6 - 20); // small ones, ordinary ones, too large ones
      }
      values[0] = 0, values[1] = -0.0f;
      for (const std::string &target : targets()) {
        CpuKernel kernel(text, "pointwise.v" + lanes(target), target);
        ASSERT_EQ(kernel.error, "");
        auto out = kernel.run({bytesOf(codes), bytesOf(values)});
        auto wide = valuesOf<float>(out[0]);
        auto narrow = valuesOf<uint8_t>(out[1]);
        for (int i = 0; i < 256; ++i) {
          double want = decodeFloat(dtype, i);
          EXPECT_TRUE(wide[i] == want || (std::isnan(wide[i]) && std::isnan(want)))
              << type << " code " << i << ": " << wide[i] << " for " << want;
          auto code = encodeFloat(dtype, values[i], saturate ? Overflow::Saturate : Overflow::Special);
          bool bothNan = std::isnan(decodeFloat(dtype, code)) && std::isnan(decodeFloat(dtype, narrow[i]));
          EXPECT_TRUE(bothNan || narrow[i] == code)
              << type << " of " << values[i] << ": " << int(narrow[i]) << " for " << code;
        }
      }
    }
}

TEST(CpuTypes, ElementsBelowAByteArePackedAndUnpacked) {
  for (auto [type, dtype] : std::vector<std::pair<std::string, DType>>{
           {"i4", DType::I4}, {"ui4", DType::UI4}, {"i2", DType::I2}, {"ui2", DType::UI2}, {"f4E2M1FN", DType::F4E2M1}}) {
    std::string t = "tensor<3x7x" + type + ">", f = "tensor<3x7xf32>";
    std::string text = "func.func @f(%a: " + t + ", %b: " + f + ") -> (" + f + ", " + t +
                       ") {\n %0 = lathe.cast %a : (" + t + ") -> " + f + "\n %1 = lathe.cast %b : (" + f +
                       ") -> " + t + "\n return %0, %1 : " + f + ", " + t + "\n}";
    int bits = bitWidth(dtype), each = 8 / bits;
    bool isSigned = dtype == DType::I4 || dtype == DType::I2, real = dtype == DType::F4E2M1;
    auto value = [&](int code) -> float {
      if (real)
        return static_cast<float>(decodeFloat(dtype, code));
      return isSigned && code >> (bits - 1) ? code - (1 << bits) : code;
    };
    std::vector<uint8_t> in((21 + each - 1) / each), want(in.size());
    std::vector<float> values(21), wide(21);
    for (int i = 0; i < 21; ++i) {
      int code = (i * 5 + 3) & ((1 << bits) - 1);
      in[i / each] |= code << (i % each * bits);
      wide[i] = value(code);
      values[i] = real ? 0.25f * (i - 10) : value((i * 3) & ((1 << bits) - 1));
      int out = real ? static_cast<int>(encodeFloat(dtype, values[i])) : (i * 3) & ((1 << bits) - 1);
      want[i / each] |= out << (i % each * bits);
    }
    for (const std::string &target : targets())
      for (const char *grid : {"1", "3"}) {
        CpuKernel kernel(text, "pointwise.v" + lanes(target), target, grid);
        ASSERT_EQ(kernel.error, "");
        auto out = kernel.run({bytesOf(in), bytesOf(values)});
        ASSERT_EQ(kernel.error, "");
        EXPECT_EQ(valuesOf<float>(out[0]), wide) << type;
        EXPECT_EQ(valuesOf<uint8_t>(out[1]), want) << type;
      }
  }
}

//===- Movement -----------------------------------------------------------------===//

TEST(CpuMovement, TransposeSliceReshape) {
  const char *text = R"(
func.func @f(%x: tensor<4x6x33xf32>) -> tensor<33x12xf32> {
  %0 = lathe.slice %x {starts = [#lathe.dim<0>, #lathe.dim<1>, #lathe.dim<0>], steps = array<i64: 1, 2, 1>} : (tensor<4x6x33xf32>) -> tensor<4x3x33xf32>
  %1 = lathe.transpose %0 {perm = array<i64: 2, 1, 0>} : (tensor<4x3x33xf32>) -> tensor<33x3x4xf32>
  %2 = lathe.reshape %1 : (tensor<33x3x4xf32>) -> tensor<33x12xf32>
  return %2 : tensor<33x12xf32>
})";
  auto x = noise(4 * 6 * 33);
  std::vector<float> want(33 * 12);
  for (int i = 0; i < 33; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k)
        want[i * 12 + j * 4 + k] = x[(k * 6 + 1 + 2 * j) * 33 + i];
  check(text, "pointwise", {x}, want);
}

TEST(CpuMovement, ConcatAlongTheLastDimension) {
  const char *text = R"(
func.func @f(%a: tensor<3x?xf32, #lathe.t<[3, P]>>, %b: tensor<3x?xf32, #lathe.t<[3, S]>>) -> tensor<3x?xf32, #lathe.t<[3, P + S]>> {
  %0 = lathe.concat %a, %b {axis = 1 : i64} : (tensor<3x?xf32, #lathe.t<[3, P]>>, tensor<3x?xf32, #lathe.t<[3, S]>>) -> tensor<3x?xf32, #lathe.t<[3, P + S]>>
  return %0 : tensor<3x?xf32, #lathe.t<[3, P + S]>>
})";
  for (auto [p, s] : std::vector<std::pair<int64_t, int64_t>>{{5, 20}, {0, 17}, {40, 1}, {16, 0}}) {
    auto a = noise(3 * p, -1, 1, 1), b = noise(3 * s, -1, 1, 2);
    std::vector<float> want;
    for (int r = 0; r < 3; ++r) {
      want.insert(want.end(), a.begin() + r * p, a.begin() + (r + 1) * p);
      want.insert(want.end(), b.begin() + r * s, b.begin() + (r + 1) * s);
    }
    check(text, "pointwise", {a, b}, want, {{"P", p}, {"S", s}});
  }
}

TEST(CpuMovement, PadsInEveryMode) {
  for (const char *mode : {"constant", "edge", "reflect", "wrap"}) {
    std::string text = std::string(R"(
func.func @f(%x: tensor<2x21xf32>, %v: tensor<f32>) -> tensor<2x28xf32> {
  %0 = lathe.pad %x, %v {low = [#lathe.dim<0>, #lathe.dim<3>], high = [#lathe.dim<0>, #lathe.dim<4>], mode = #lathe.pad_mode<)") +
                       mode + R"(>} : (tensor<2x21xf32>, tensor<f32>) -> tensor<2x28xf32>
  return %0 : tensor<2x28xf32>
})";
    auto x = noise(42);
    std::vector<float> want(56);
    for (int r = 0; r < 2; ++r)
      for (int j = 0; j < 28; ++j) {
        int i = j - 3;
        bool inside = i >= 0 && i < 21;
        std::string m = mode;
        if (m == "edge")
          i = std::min(std::max(i, 0), 20);
        if (m == "wrap")
          i = (i + 21) % 21;
        if (m == "reflect")
          i = i < 0 ? -i : i > 20 ? 40 - i : i;
        want[r * 28 + j] = m == "constant" && !inside ? 9.0f : x[r * 21 + i];
      }
    check(text, "pointwise", {x, {9.0f}}, want);
  }
}

TEST(CpuMovement, GatherChecksItsIndices) {
  const char *text = R"(
func.func @f(%x: tensor<10x37xf32>, %i: tensor<4xi64>) -> tensor<4x37xf32> {
  %0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<10x37xf32>, tensor<4xi64>) -> tensor<4x37xf32>
  return %0 : tensor<4x37xf32>
})";
  auto x = noise(370);
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "pointwise.v" + lanes(target), target);
    ASSERT_EQ(kernel.error, "");
    std::vector<int64_t> rows{3, -1, 0, 9};
    auto out = valuesOf<float>(kernel.run({bytesOf(x), bytesOf(rows)})[0]);
    for (int r = 0; r < 4; ++r)
      for (int j = 0; j < 37; ++j)
        ASSERT_EQ(out[r * 37 + j], x[(rows[r] < 0 ? rows[r] + 10 : rows[r]) * 37 + j]);
    EXPECT_EQ(kernel.status.code, 0u);
    rows[2] = 10;
    kernel.run({bytesOf(x), bytesOf(rows)});
    EXPECT_EQ(kernel.status.code, 1u);
    EXPECT_EQ(kernel.status.detail, (uint64_t(10) << 32) + 7);
  }
}

TEST(CpuMovement, GatherAlongTheVectorisedDimension) {
  const char *text = R"(
func.func @f(%x: tensor<3x50xf32>, %i: tensor<19xi32>) -> tensor<3x19xf32> {
  %0 = lathe.gather %x, %i {axis = 1 : i64} : (tensor<3x50xf32>, tensor<19xi32>) -> tensor<3x19xf32>
  return %0 : tensor<3x19xf32>
})";
  auto x = noise(150);
  std::vector<int32_t> at(19);
  for (int i = 0; i < 19; ++i)
    at[i] = (i * 17) % 50 - (i % 2 ? 50 : 0);
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "pointwise.v" + lanes(target), target);
    ASSERT_EQ(kernel.error, "");
    auto out = valuesOf<float>(kernel.run({bytesOf(x), bytesOf(at)})[0]);
    for (int r = 0; r < 3; ++r)
      for (int j = 0; j < 19; ++j)
        ASSERT_EQ(out[r * 19 + j], x[r * 50 + (at[j] + 50) % 50]);
  }
}

TEST(CpuMovement, ScatterAddsInOrder) {
  const char *text = R"(
func.func @f(%x: tensor<6x5xf32>, %i: tensor<4x1xi64>, %u: tensor<4x5xf32>) -> tensor<6x5xf32> {
  %0 = lathe.scatter_nd %x, %i, %u {reduction = #lathe.reduce_kind<sum>} : (tensor<6x5xf32>, tensor<4x1xi64>, tensor<4x5xf32>) -> tensor<6x5xf32>
  return %0 : tensor<6x5xf32>
})";
  auto x = noise(30), u = noise(20, -1, 1, 2);
  std::vector<int64_t> rows{4, 0, 4, -1};
  auto want = x;
  for (int r = 0; r < 4; ++r)
    for (int j = 0; j < 5; ++j)
      want[((rows[r] + 6) % 6) * 5 + j] += u[r * 5 + j];
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "scatter.v" + lanes(target), target);
    ASSERT_EQ(kernel.error, "");
    expectNear(valuesOf<float>(kernel.run({bytesOf(x), bytesOf(rows), bytesOf(u)})[0]), want, 1e-6f,
               "scatter");
  }
}

//===- Reductions -----------------------------------------------------------------===//

TEST(CpuReduction, SoftmaxOverRowsOfAnyLength) {
  const char *text = R"(
!x = tensor<?x?xf32, #lathe.t<[B, N]>>
!r = tensor<?x1xf32, #lathe.t<[B, 1]>>
func.func @softmax(%x: !x) -> !x {
  %m = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = true} : (!x) -> !r
  %d = lathe.sub %x, %m : (!x, !r) -> !x
  %e = lathe.exp %d : (!x) -> !x
  %s = lathe.reduce %e {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (!x) -> !r
  %y = lathe.div %e, %s : (!x, !r) -> !x
  return %y : !x
})";
  // Vectors, pieces of four behind them, single elements: each kind alone and with the others.
  for (int64_t n : {1, 3, 4, 5, 7, 8, 12, 15, 16, 20, 31, 33, 300}) {
    int64_t rows = 5;
    auto x = noise(rows * n, -8, 8);
    std::vector<float> want(rows * n);
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0, m = -1e30;
      for (int64_t j = 0; j < n; ++j)
        m = std::max<double>(m, x[r * n + j]);
      for (int64_t j = 0; j < n; ++j)
        sum += std::exp(x[r * n + j] - m);
      for (int64_t j = 0; j < n; ++j)
        want[r * n + j] = static_cast<float>(std::exp(x[r * n + j] - m) / sum);
    }
    check(text, "row", {x}, want, {{"B", rows}, {"N", n}}, 1e-6f);
  }
}

TEST(CpuReduction, MeanOfImagesInBothLayouts) {
  const char *planar = R"(
func.func @f(%x: tensor<2x5x7x7xf32>) -> tensor<2x5xf32> {
  %s = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 2, 3>, keepdims = false} : (tensor<2x5x7x7xf32>) -> tensor<2x5xf32>
  %n = lathe.constant dense<49.0> : tensor<f32>
  %y = lathe.div %s, %n : (tensor<2x5xf32>, tensor<f32>) -> tensor<2x5xf32>
  return %y : tensor<2x5xf32>
})";
  const char *last = R"(
func.func @f(%x: tensor<2x7x7x21xf32>) -> tensor<2x1x1x21xf32> {
  %s = lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1, 2>, keepdims = true} : (tensor<2x7x7x21xf32>) -> tensor<2x1x1x21xf32>
  return %s : tensor<2x1x1x21xf32>
})";
  auto x = noise(490);
  std::vector<float> want(10);
  for (int c = 0; c < 10; ++c) {
    double sum = 0;
    for (int i = 0; i < 49; ++i)
      sum += x[c * 49 + i];
    want[c] = static_cast<float>(sum / 49);
  }
  check(planar, "row", {x}, want, {}, 1e-5f);
  auto y = noise(2 * 49 * 21);
  std::vector<float> sums(42);
  for (int n = 0; n < 2; ++n)
    for (int c = 0; c < 21; ++c) {
      double sum = 0;
      for (int i = 0; i < 49; ++i)
        sum += y[(n * 49 + i) * 21 + c];
      sums[n * 21 + c] = static_cast<float>(sum);
    }
  check(last, "row", {y}, sums, {}, 1e-5f);
  check(last, "pointwise", {y}, sums, {}, 1e-5f);
}

TEST(CpuReduction, SoftmaxOverTheMiddle) {
  const char *text = R"(
!x = tensor<2x9x19xf32>
!r = tensor<2x1x19xf32>
func.func @f(%x: !x) -> !x {
  %m = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = true} : (!x) -> !r
  %d = lathe.sub %x, %m : (!x, !r) -> !x
  %e = lathe.exp %d : (!x) -> !x
  %s = lathe.reduce %e {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true} : (!x) -> !r
  %y = lathe.div %e, %s : (!x, !r) -> !x
  return %y : !x
})";
  auto x = noise(2 * 9 * 19, -3, 3);
  std::vector<float> want(x.size());
  for (int n = 0; n < 2; ++n)
    for (int j = 0; j < 19; ++j) {
      double sum = 0;
      for (int i = 0; i < 9; ++i)
        sum += std::exp(x[(n * 9 + i) * 19 + j]);
      for (int i = 0; i < 9; ++i)
        want[(n * 9 + i) * 19 + j] = static_cast<float>(std::exp(x[(n * 9 + i) * 19 + j]) / sum);
    }
  check(text, "row", {x}, want, {}, 1e-6f);
}

TEST(CpuReduction, ArgMaxTakesTheFirstOrLast) {
  for (bool last : {false, true}) {
    std::string text = std::string(R"(
func.func @f(%x: tensor<3x40xf32>) -> tensor<3xi64> {
  %0 = lathe.arg_reduce %x {kind = #lathe.reduce_kind<max>, axis = 1 : i64, keepdims = false)") +
                       (last ? ", last" : "") + R"(} : (tensor<3x40xf32>) -> tensor<3xi64>
  return %0 : tensor<3xi64>
})";
    std::vector<float> x(120, 0.0f);
    x[5] = x[33] = 4;
    x[40 + 39] = 1;
    std::vector<int64_t> want = last ? std::vector<int64_t>{33, 39, 39} : std::vector<int64_t>{5, 39, 0};
    for (const std::string &target : targets()) {
      CpuKernel kernel(text, "row.v" + lanes(target), target);
      ASSERT_EQ(kernel.error, "");
      EXPECT_EQ(valuesOf<int64_t>(kernel.run({bytesOf(x)})[0]), want);
    }
  }
}

TEST(CpuReduction, ArgMaxOverRowsOfAnyLength) {
  const char *text = R"(
func.func @f(%x: tensor<?x?xf32, #lathe.t<[B, N]>>) -> tensor<?xi64, #lathe.t<[B]>> {
  %0 = lathe.arg_reduce %x {kind = #lathe.reduce_kind<max>, axis = 1 : i64, keepdims = false}
      : (tensor<?x?xf32, #lathe.t<[B, N]>>) -> tensor<?xi64, #lathe.t<[B]>>
  return %0 : tensor<?xi64, #lathe.t<[B]>>
})";
  for (const std::string &target : targets()) {
    CpuKernel kernel(text, "row.v" + lanes(target), target);
    ASSERT_EQ(kernel.error, "");
    for (int64_t n : {1, 4, 7, 12, 16, 23, 39}) {
      // A row for each place of the greatest, which stands once more at the end.
      std::vector<float> x(n * n, -1.0f);
      std::vector<int64_t> want(n);
      for (int64_t r = 0; r < n; ++r)
        x[r * n + r] = x[r * n + n - 1] = 2, want[r] = r;
      EXPECT_EQ(valuesOf<int64_t>(kernel.run({bytesOf(x)}, {{"B", n}, {"N", n}})[0]), want) << n;
    }
  }
}

TEST(CpuReduction, ScansForwardsAndBackwards) {
  for (bool reverse : {false, true})
    for (bool exclusive : {false, true}) {
      std::string text = std::string(R"(
func.func @f(%x: tensor<3x11x18xf32>) -> tensor<3x11x18xf32> {
  %0 = lathe.scan %x {kind = #lathe.reduce_kind<sum>, axis = 1 : i64)") +
                         (exclusive ? ", exclusive" : "") + (reverse ? ", reverse" : "") +
                         R"(} : (tensor<3x11x18xf32>) -> tensor<3x11x18xf32>
  return %0 : tensor<3x11x18xf32>
})";
      auto x = noise(3 * 11 * 18);
      std::vector<float> want(x.size());
      for (int n = 0; n < 3; ++n)
        for (int j = 0; j < 18; ++j) {
          float sum = 0;
          for (int k = 0; k < 11; ++k) {
            int at = (n * 11 + (reverse ? 10 - k : k)) * 18 + j;
            if (exclusive)
              want[at] = sum;
            sum += x[at];
            if (!exclusive)
              want[at] = sum;
          }
        }
      check(text, "scan", {x}, want, {}, 1e-5f);
    }
}

TEST(CpuReduction, PoolsWithPaddingInBothLayouts) {
  auto x = noise(2 * 3 * 9 * 10);
  auto pool = [&](bool average, bool includePad, bool lastLayout) {
    std::vector<float> want(2 * 3 * 5 * 5);
    for (int n = 0; n < 2; ++n)
      for (int c = 0; c < 3; ++c)
        for (int p = 0; p < 5; ++p)
          for (int q = 0; q < 5; ++q) {
            float acc = average ? 0 : -INFINITY;
            int count = 0;
            for (int r = 0; r < 3; ++r)
              for (int s = 0; s < 3; ++s) {
                int i = 2 * p + r - 1, j = 2 * q + s - 1;
                if (i < 0 || i >= 9 || j < 0 || j >= 10)
                  continue;
                ++count;
                float v = x[lastLayout ? ((n * 9 + i) * 10 + j) * 3 + c : ((n * 3 + c) * 9 + i) * 10 + j];
                acc = average ? acc + v : std::max(acc, v);
              }
            if (average)
              acc /= includePad ? 9 : count;
            want[lastLayout ? ((n * 5 + p) * 5 + q) * 3 + c : ((n * 3 + c) * 5 + p) * 5 + q] = acc;
          }
    return want;
  };
  for (bool lastLayout : {false, true})
    for (bool average : {false, true})
      for (bool includePad : {false, true}) {
        std::string in = lastLayout ? "tensor<2x9x10x3xf32>" : "tensor<2x3x9x10xf32>";
        std::string out = lastLayout ? "tensor<2x5x5x3xf32>" : "tensor<2x3x5x5xf32>";
        std::string text = "func.func @f(%x: " + in + ") -> " + out + " {\n %0 = lathe.pool %x {kind = #lathe.pool_kind<" +
            (average ? "average" : "max") + ">, kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, "
            "pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, ceil_mode = false, count_include_pad = " +
            (includePad ? "true" : "false") + ", layout = #lathe.conv_layout<" + (lastLayout ? "nhwc" : "nchw") +
            ">} : (" + in + ") -> " + out + "\n return %0 : " + out + "\n}";
        check(text, "pointwise", {x}, pool(average, includePad, lastLayout), {}, 1e-6f);
      }
}

} // namespace
