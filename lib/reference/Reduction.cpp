//===- Reduction.cpp - reference of reductions and norms -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions, scans, softmax and the norms. Sums are taken in double, in the order
// of the elements.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <cmath>

namespace lathe::reference {
namespace {

/// An array seen along one axis: `outer` x `length` x `inner`.
struct Lines {
  int64_t outer, length, inner;
  Lines(const std::vector<int64_t> &dims, int64_t axis)
      : outer(countBetween(dims, 0, axis)), length(dims[axis]),
        inner(countBetween(dims, axis + 1, dims.size())) {}
  int64_t at(int64_t o, int64_t k, int64_t i) const { return (o * length + k) * inner + i; }
};

bool computable(Call &call) {
  for (const Tensor &input : call.inputs)
    if (isComplex(input.dtype))
      call.fail(unsupportedError("the reference computes no complex numbers",
                                 "lathe." + std::string(call.op)));
  return call.ok();
}

void reduce(Call &call) {
  Combine kind = parseCombine(call, call.text("kind"));
  std::vector<int64_t> axes = call.integers("axes");
  bool keep = call.integer("keepdims");
  if (!call.expectInputs(1, 1) || !computable(call))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  std::vector<bool> reduced(x.dims.size(), false);
  for (int64_t axis : axes) {
    axis = normalizeAxis(call, axis, x.rank());
    if (!call.ok() || !call.require(!reduced[axis], "axes repeat"))
      return;
    reduced[axis] = true;
  }
  std::vector<int64_t> kept, expected; // with and without dimensions of size 1
  for (size_t d = 0; d < x.dims.size(); ++d) {
    kept.push_back(reduced[d] ? 1 : x.dims[d]);
    if (keep || !reduced[d])
      expected.push_back(kept.back());
  }
  if (!call.require(expected == y.dims && x.dtype == y.dtype, "result type does not fit"))
    return;
  bool real = isFloat(x.dtype);
  size_t count = static_cast<size_t>(y.count());
  std::vector<double> sums(real ? count : 0, neutralReal(kind));
  std::vector<int64_t> integers(real ? 0 : count, neutralInteger(kind, x.dtype));
  forEachIndex(x.dims, [&](const Index &index, int64_t i) {
    int64_t to = broadcastPosition(kept, index);
    if (real)
      sums[to] = combine(kind, sums[to], x.real(i));
    else
      integers[to] = combine(kind, x.dtype, integers[to], x.integer(i));
  });
  // An empty maximum is the least value, also where there is no infinity.
  Overflow overflow = x.count() == 0 ? Overflow::Saturate : Overflow::Special;
  bool hasInfinity = x.dtype == DType::F16 || x.dtype == DType::BF16 || x.dtype == DType::F32 ||
                     x.dtype == DType::F64 || x.dtype == DType::F8E5M2;
  for (size_t i = 0; i < count; ++i) {
    if (real)
      y.setReal(i, sums[i], hasInfinity ? Overflow::Special : overflow);
    else
      y.setInteger(i, integers[i]);
  }
}

void argReduce(Call &call) {
  Combine kind = parseCombine(call, call.text("kind"));
  int64_t axis = call.integer("axis");
  bool keep = call.integer("keepdims"), last = call.integerOr("last", 0);
  if (!call.expectInputs(1, 1) || !computable(call))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, x.rank());
  call.require(kind == Combine::Max || kind == Combine::Min, "needs kind max or min");
  if (!call.ok())
    return;
  std::vector<int64_t> expected = x.dims;
  if (keep)
    expected[axis] = 1;
  else
    expected.erase(expected.begin() + axis);
  call.require(expected == y.dims && isInteger(y.dtype), "result type does not fit");
  call.require(x.dims[axis] > 0 || y.count() == 0, "axis is empty");
  if (!call.ok())
    return;
  Lines lines(x.dims, axis);
  auto better = [&](int64_t a, int64_t b) { // a beats b
    if (isFloat(x.dtype)) {
      double p = x.real(a), q = x.real(b);
      if (std::isnan(p) || std::isnan(q))
        return std::isnan(p) && !std::isnan(q); // the first NaN wins
      return kind == Combine::Max ? p > q : p < q;
    }
    int64_t p = x.integer(a), q = x.integer(b);
    return p != q && combine(kind, x.dtype, p, q) == p;
  };
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t i = 0; i < lines.inner; ++i) {
      int64_t best = 0;
      for (int64_t k = 1; k < lines.length; ++k) {
        bool wins = better(lines.at(o, k, i), lines.at(o, best, i));
        bool ties = !wins && !better(lines.at(o, best, i), lines.at(o, k, i));
        if (wins || (last && ties))
          best = k;
      }
      y.setInteger(o * lines.inner + i, best);
    }
}

void scan(Call &call) {
  Combine kind = parseCombine(call, call.text("kind"));
  int64_t axis = call.integer("axis");
  bool exclusive = call.integerOr("exclusive", 0), reverse = call.integerOr("reverse", 0);
  if (!call.expectInputs(1, 1) || !computable(call))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, x.rank());
  if (!call.require(x.dims == y.dims && x.dtype == y.dtype, "result type does not fit"))
    return;
  Lines lines(x.dims, axis);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t i = 0; i < lines.inner; ++i) {
      double real = neutralReal(kind);
      int64_t integer = neutralInteger(kind, x.dtype);
      for (int64_t step = 0; step < lines.length; ++step) {
        int64_t at = lines.at(o, reverse ? lines.length - 1 - step : step, i);
        double realBefore = real;
        int64_t integerBefore = integer;
        if (isFloat(x.dtype)) {
          real = combine(kind, real, x.real(at));
          y.setReal(at, exclusive ? realBefore : real);
        } else {
          integer = combine(kind, x.dtype, integer, x.integer(at));
          y.setInteger(at, exclusive ? integerBefore : integer);
        }
      }
    }
}

void softmax(Call &call) {
  int64_t axis = call.integer("axis");
  bool log = call.integerOr("log", 0);
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, x.rank());
  call.require(isFloat(x.dtype), "needs floats");
  if (!call.require(x.dims == y.dims && x.dtype == y.dtype, "result type does not fit"))
    return;
  Lines lines(x.dims, axis);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t i = 0; i < lines.inner; ++i) {
      double max = neutralReal(Combine::Max), sum = 0;
      for (int64_t k = 0; k < lines.length; ++k)
        max = combine(Combine::Max, max, x.real(lines.at(o, k, i)));
      for (int64_t k = 0; k < lines.length; ++k)
        sum += std::exp(x.real(lines.at(o, k, i)) - max);
      for (int64_t k = 0; k < lines.length; ++k) {
        double shifted = x.real(lines.at(o, k, i)) - max;
        y.setReal(lines.at(o, k, i), log ? shifted - std::log(sum) : std::exp(shifted) / sum);
      }
    }
}

/// layer_norm and rms_norm.
void norm(Call &call) {
  bool layer = call.op == "layer_norm";
  int64_t axis = call.integer("axis");
  double epsilon = call.real("epsilon");
  if (!call.expectInputs(2, layer ? 3 : 2))
    return;
  const Tensor &x = call.in(0), &scale = call.in(1);
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, x.rank());
  call.require(isFloat(x.dtype) && x.dims == y.dims && x.dtype == y.dtype,
               "result type does not fit");
  call.require(broadcastsTo(scale.dims, x.dims), "scale does not broadcast");
  if (call.hasInput(2))
    call.require(broadcastsTo(call.in(2).dims, x.dims), "bias does not broadcast");
  if (!call.ok())
    return;
  int64_t rows = countBetween(x.dims, 0, axis), width = countBetween(x.dims, axis, x.dims.size());
  std::vector<double> mean(rows, 0), power(rows, 0);
  for (int64_t r = 0; r < rows; ++r) {
    double n = static_cast<double>(width);
    if (layer) {
      for (int64_t k = 0; k < width; ++k)
        mean[r] += x.real(r * width + k);
      mean[r] /= n;
      // What the sum lost, so that the mean of equal numbers is that number: f64 has no wider type to sum in.
      double rest = 0;
      for (int64_t k = 0; k < width; ++k)
        rest += x.real(r * width + k) - mean[r];
      mean[r] += rest / n;
    }
    for (int64_t k = 0; k < width; ++k) {
      double d = x.real(r * width + k) - mean[r];
      power[r] += d * d / n;
    }
  }
  forEachIndex(x.dims, [&](const Index &index, int64_t i) {
    int64_t r = i / width;
    double value = (x.real(i) - mean[r]) / std::sqrt(power[r] + epsilon) *
                   scale.real(broadcastPosition(scale.dims, index));
    if (call.hasInput(2))
      value += call.in(2).real(broadcastPosition(call.in(2).dims, index));
    y.setReal(i, value);
  });
}

constexpr Entry kOps[] = {
    {"reduce", reduce},   {"arg_reduce", argReduce}, {"scan", scan},
    {"softmax", softmax}, {"layer_norm", norm},      {"rms_norm", norm},
};

} // namespace

std::span<const Entry> reductionOps() { return kOps; }

} // namespace lathe::reference
