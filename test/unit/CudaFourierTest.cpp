//===- CudaFourierTest.cpp - Fourier transforms, without a GPU ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of lathe.dft are emulated and compared with sums of waves in extended precision: all lengths to 40 whose
// prime factors are 13 at most, and longer ones of one to four stages, real, complex and halves of spectra, cut and filled
// up; and they compile with NVRTC.
//
//===----------------------------------------------------------------------===//

#include "CudaKernel.h"

#include "lathe/codegen/Config.h"
#include "lathe/support/FastTransform.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <random>

using namespace lathe;
using namespace lathe::test;

namespace {

struct DftCase {
  int64_t length, given; ///< elements of a row of x
  int64_t parts;         ///< 1 or 2
  bool inverse, oneSided;
  int64_t rows = 5, threads = 32, rowsOfBlock = 2;
  bool narrow = false; ///< f32

  std::string name() const {
    return "dft_" + std::to_string(length) + "_" + std::to_string(given) + "_" + std::to_string(parts) + (inverse ? "_inverse" : "") +
           (oneSided ? "_half" : "") + (narrow ? "_f32" : "");
  }
  bool fromHalf() const { return inverse && oneSided; }
  int64_t bins() const { return oneSided && !inverse ? length / 2 + 1 : length; }
  int64_t results() const { return fromHalf() ? 1 : 2; }
  CudaCase kernel() const {
    const std::string type = narrow ? "f32" : "f64", rowsText = "tensor<" + std::to_string(rows) + "x";
    const std::string x = rowsText + std::to_string(given) + "x" + std::to_string(parts) + "x" + type + ">",
                      roots = "tensor<" + std::to_string(length) + "x2xf64>",
                      y = rowsText + std::to_string(bins()) + "x" + std::to_string(results()) + "x" + type + ">";
    CudaCase made{fn(name(), "(%x: " + x + ", %r: " + roots + ") -> " + y,
                     "  %0 = lathe.dft %x, %r {length = " + std::to_string(length) + " : i64" + (inverse ? ", inverse" : "") +
                         (oneSided ? ", onesided" : "") + "} : (" + x + ", " + roots + ") -> " + y + "\n  return %0 : " + y),
                  "fourier.t" + std::to_string(threads) + ".r" + std::to_string(rowsOfBlock),
                  {std::to_string((rows + rowsOfBlock - 1) / rowsOfBlock)}};
    const bool complexRows = !fromHalf() && parts == 2;
    made.shared = std::to_string(transformBytes(pointsOfTransform(length, complexRows), rowsOfBlock, narrow ? 4 : 8));
    return made;
  }
};

using Number = std::complex<long double>;

/// What a row gives: one row of x, `parts` numbers an element.
std::vector<Number> wanted(const DftCase &c, const double *x) {
  std::vector<Number> row(c.length), y(c.bins());
  const int64_t needed = c.fromHalf() ? c.length / 2 + 1 : c.length;
  for (int64_t t = 0; t < std::min(needed, c.given); ++t)
    row[t] = {x[t * c.parts], c.parts == 2 ? x[t * c.parts + 1] : 0};
  if (c.fromHalf())
    for (int64_t t = 0; 2 * t <= c.length; ++t) {
      const int64_t mirror = (c.length - t) % c.length;
      if (mirror == t)
        row[t] = row[t].real();
      row[mirror] = std::conj(row[t]);
    }
  for (int64_t k = 0; k < c.bins(); ++k) {
    for (int64_t t = 0; t < c.length; ++t)
      y[k] += row[t] * std::polar<long double>(1, (c.inverse ? 2 : -2) * acosl(-1) * (long double)(t * k % c.length) / c.length);
    if (c.inverse)
      y[k] /= c.length;
  }
  return y;
}

std::vector<DftCase> allCases() {
  std::vector<DftCase> cases;
  for (int64_t length = 1; length <= 40; ++length) {
    if (!hasFastTransform(length, true, 8, 1 << 20))
      continue;
    // Kinds by turns: a kernel takes a third of a second to compile.
    const int64_t turn = length / 2 % 3;
    cases.push_back(turn == 0   ? DftCase{length, length, 1, length % 4 == 1, length % 3 != 0}
                    : turn == 1 ? DftCase{length, length, 2, length % 2 == 0, false}
                                : DftCase{length, length / 2 + 1, 2, true, true});
  }
  // One to four stages; cut and filled up; more rows in a block than there are; one side of complex rows.
  cases.push_back({64, 80, 1, false, true});
  cases.push_back({64, 50, 2, false, false});
  cases.push_back({48, 20, 2, true, true, 3, 64, 4});
  cases.push_back({60, 60, 2, false, true});
  cases.push_back({100, 100, 1, true, false});
  cases.push_back({400, 400, 1, false, true, 7, 128, 5});
  cases.push_back({512, 512, 1, false, true, 9, 128, 4});
  cases.push_back({1001, 1001, 1, false, true, 2, 64, 1});
  cases.push_back({1024, 1024, 1, false, false, 3, 64, 2});
  cases.push_back({4096, 4096, 1, false, true, 1, 256, 1});
  cases.push_back({4096, 4096, 2, true, false, 1, 512, 1});
  DftCase narrow{400, 400, 1, false, true, 7, 128, 5};
  narrow.narrow = true;
  cases.push_back(narrow);
  return cases;
}

TEST(CudaFourier, TransformsAgreeWithSumsOfWaves) {
  CudaBatch batch;
  const std::vector<DftCase> cases = allCases();
  for (const DftCase &c : cases)
    ASSERT_EQ(batch.add(c.kernel()), "") << c.name();
  ASSERT_EQ(batch.build(), "");
  for (const DftCase &c : cases) {
    std::mt19937 gen(static_cast<unsigned>(c.length));
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> x(c.rows * c.given * c.parts), roots;
    for (double &v : x)
      v = c.narrow ? static_cast<float>(uniform(gen)) : uniform(gen);
    for (int64_t j = 0; j < c.length; ++j) {
      const double angle = 2 * M_PI * double(j) / double(c.length);
      roots.insert(roots.end(), {std::cos(angle), -std::sin(angle)});
    }
    std::vector<Bytes> got = batch.run(c.name(), {c.narrow ? bytesOf(std::vector<float>(x.begin(), x.end())) : bytesOf(x), bytesOf(roots)});
    ASSERT_EQ(batch.error, "") << c.name();
    std::vector<double> y;
    if (c.narrow)
      for (float v : valuesOf<float>(got[0]))
        y.push_back(v);
    else
      y = valuesOf<double>(got[0]);
    ASSERT_EQ(int64_t(y.size()), c.rows * c.bins() * c.results()) << c.name();
    for (int64_t row = 0; row < c.rows; ++row) {
      const std::vector<Number> want = wanted(c, x.data() + row * c.given * c.parts);
      long double most = 0, off = 0;
      for (int64_t k = 0; k < c.bins(); ++k) {
        const double *at = y.data() + (row * c.bins() + k) * c.results();
        most = std::max(most, std::abs(want[k]));
        off = std::max(off, std::abs(Number(at[0], c.results() == 2 ? at[1] : want[k].imag()) - want[k]));
      }
      EXPECT_LE(off, most * (c.narrow ? 1e-6L : 2e-15L)) << c.name() << " row " << row;
    }
  }
  expectCompiles(batch, {"dft_400_400_1_half", "dft_4096_4096_2_inverse", "dft_48_20_2_inverse_half", "dft_1001_1001_1_half"});
}

/// What becomes of an element of one row is of no concern to others, and what follows from a result is stored with it.
TEST(CudaFourier, RowsDoNotMeetAndEpiloguesAreFused) {
  CudaBatch batch;
  const std::string x = "tensor<3x16xf32>", wide = "tensor<3x16xf64>", row = "tensor<3x16x1xf64>", y = "tensor<3x9x2xf64>", out = "tensor<3x9x2xf32>";
  CudaCase c{fn("frames", "(%x: " + x + ", %r: tensor<16x2xf64>) -> " + out,
                "  %0 = lathe.cast %x {saturate = true} : (" + x + ") -> " + wide + "\n  %1 = lathe.reshape %0 : (" + wide + ") -> " + row +
                    "\n  %2 = lathe.dft %1, %r {length = 16 : i64, onesided} : (" + row + ", tensor<16x2xf64>) -> " + y +
                    "\n  %3 = lathe.mul %2, %2 : (" + y + ", " + y + ") -> " + y + "\n  %4 = lathe.cast %3 {saturate = true} : (" + y + ") -> " +
                    out + "\n  return %4 : " + out),
             "fourier.t32.r4", {"1"}};
  c.shared = std::to_string(transformBytes(8, 4, 8));
  ASSERT_EQ(batch.add(c), "");
  ASSERT_EQ(batch.build(), "");
  std::vector<float> in(48, 0.0f);
  in[0] = 2;          // the first row: 2 everywhere
  in[17] = INFINITY;  // the second: nothing finite
  in[32] = in[40] = 1; // the third: 2 and 0 by turns
  std::vector<double> roots;
  for (int j = 0; j < 16; ++j)
    roots.insert(roots.end(), {std::cos(M_PI * j / 8), -std::sin(M_PI * j / 8)});
  std::vector<Bytes> got = batch.run("frames", {bytesOf(in), bytesOf(roots)});
  ASSERT_EQ(batch.error, "");
  const std::vector<float> values = valuesOf<float>(got[0]);
  for (int k = 0; k < 9; ++k) {
    EXPECT_EQ(values[2 * k], 4.0f);
    EXPECT_EQ(values[2 * k + 1], 0.0f);
    EXPECT_FALSE(std::isfinite(values[18 + 2 * k]));
    EXPECT_NEAR(values[36 + 2 * k], k % 2 ? 0 : 4, 1e-12);
  }
}

} // namespace
