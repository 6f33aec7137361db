//===- Random.cpp - reference of random bits and the normal quantile ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Call.h"

#include "lathe/support/Philox.h"

#include <cmath>
#include <limits>

namespace lathe::reference {
namespace {

void randomBits(Call &call) {
  int64_t stream = call.integer("stream");
  if (!call.expectInputs(3, 3))
    return;
  Tensor &y = call.out();
  for (const Tensor &input : call.inputs) {
    call.require(input.dtype == DType::UI64, "operands are not ui64");
    call.require(broadcastsTo(input.dims, y.dims), "operand does not broadcast to result");
  }
  if (!call.require(y.dtype == DType::UI64, "result is not ui64"))
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    auto at = [&](size_t n) {
      const Tensor &t = call.in(n);
      return static_cast<uint64_t>(t.integer(broadcastPosition(t.dims, index)));
    };
    uint64_t key = at(1) ^ static_cast<uint64_t>(stream) << 32;
    y.setInteger(i, static_cast<int64_t>(philox(at(0), at(2), key)));
  });
}

/// Where the normal distribution function is p, by bisection and then Newton's method.
double probit(double p) {
  if (!(p >= 0 && p <= 1))
    return std::nan("");
  if (p == 0 || p == 1)
    return p == 0 ? -std::numeric_limits<double>::infinity()
                  : std::numeric_limits<double>::infinity();
  if (p == 0.5)
    return 0;
  const long double tail = p < 0.5 ? p : 1 - p, root = std::sqrt(2.0L);
  auto below = [&](long double x) { return 0.5L * std::erfc(-x / root); };
  long double low = -40, high = 0;
  for (int i = 0; i < 40; ++i) {
    long double middle = (low + high) / 2;
    (below(middle) < tail ? low : high) = middle;
  }
  long double x = (low + high) / 2;
  for (int i = 0; i < 2; ++i)
    x -= (below(x) - tail) * std::sqrt(2 * 3.14159265358979323846264338327950288L) *
         std::exp(x * x / 2);
  return static_cast<double>(p < 0.5 ? x : -x);
}

void quantile(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  call.require(x.dims == y.dims && x.dtype == y.dtype, "operand and result types differ");
  if (!call.require(isFloat(x.dtype), "needs floating-point numbers"))
    return;
  for (int64_t i = 0, n = y.count(); i < n; ++i)
    y.setReal(i, probit(x.real(i)));
}

constexpr Entry kOps[] = {{"random_bits", randomBits}, {"probit", quantile}};

} // namespace

std::span<const Entry> randomOps() { return kOps; }

} // namespace lathe::reference
