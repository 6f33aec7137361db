//===- Fourier.cpp - reference of Fourier transforms ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Call.h"

#include <cmath>
#include <complex>

namespace lathe::reference {
namespace {

using Number = std::complex<double>;

/// Element k of the transform of a row, not divided by the length. roots[j]: e^(-2 pi i j / length), or of the inverse its
/// mirror image.
Number transformed(const std::vector<Number> &row, const std::vector<Number> &roots, int64_t k) {
  const int64_t length = static_cast<int64_t>(row.size());
  Number sum = 0;
  for (int64_t t = 0; t < length; ++t)
    sum += row[t] * roots[t * k % length];
  return sum;
}

void dft(Call &call) {
  const int64_t length = call.integer("length");
  const bool inverse = call.integerOr("inverse", 0), oneSided = call.integerOr("onesided", 0), fromHalf = inverse && oneSided;
  if (!call.expectInputs(2, 2))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  const size_t rank = x.dims.size();
  call.require(rank >= 2 && y.dims.size() == rank && isFloat(x.dtype) && x.dtype == y.dtype, "the types do not fit");
  call.require(length >= 1, "a length is 1 or more");
  if (!call.ok())
    return;
  const int64_t parts = x.dims[rank - 1], given = x.dims[rank - 2], bins = y.dims[rank - 2], results = y.dims[rank - 1];
  std::vector<int64_t> expected = x.dims;
  expected[rank - 2] = oneSided && !inverse ? length / 2 + 1 : length;
  expected[rank - 1] = fromHalf ? 1 : 2;
  if (!call.require((parts == 1 || parts == 2) && y.dims == expected, "result sizes do not fit"))
    return;
  const int64_t needed = fromHalf ? length / 2 + 1 : length, rows = x.count() / std::max<int64_t>(1, parts * given);
  std::vector<Number> roots(length);
  for (int64_t j = 0; j < length; ++j)
    roots[j] = std::polar(1.0, (inverse ? 2 : -2) * M_PI * static_cast<double>(j) / static_cast<double>(length));
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<Number> row(length);
    for (int64_t t = 0; t < std::min(needed, given); ++t) {
      const int64_t at = (r * given + t) * parts;
      row[t] = {x.real(at), parts == 2 ? x.real(at + 1) : 0};
    }
    if (fromHalf)
      for (int64_t t = 0; 2 * t <= length; ++t) {
        const int64_t mirror = (length - t) % length;
        if (mirror == t)
          row[t] = row[t].real();
        row[mirror] = std::conj(row[t]);
      }
    for (int64_t k = 0; k < bins; ++k) {
      const Number v = transformed(row, roots, k) / (inverse ? static_cast<double>(length) : 1.0);
      y.setReal((r * bins + k) * results, v.real());
      if (results == 2)
        y.setReal((r * bins + k) * results + 1, v.imag());
    }
  }
}

constexpr Entry kOps[] = {{"dft", dft}};

} // namespace

std::span<const Entry> fourierOps() { return kOps; }

} // namespace lathe::reference
