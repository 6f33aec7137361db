//===- Norms.cpp - softmax and normalizations -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

#include <algorithm>

namespace lathe::fuzz {
namespace {

bool hasElements(const Value &v) { return isKnown(v) && v.count() > 0; }

bool makeSoftmax(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return isFloatValue(v) && hasElements(v) && v.rank() >= 1 && v.most < 1000; },
                     [&] { return b.fresh(b.floatType(), {b.random.between(1, 9), b.random.between(1, 40)}); });
  std::string op = b.random.of({"Softmax", "Softmax", "LogSoftmax", "Hardmax"});
  b.node(op, {x}, x.dtype, x.dims, op == "LogSoftmax" ? 2 * x.most + 10 : 1, {{"axis", axisOf(b, x)}}, op != "LogSoftmax");
  return true;
}

bool makeLayerNorm(GraphBuilder &b) {
  if (b.special)
    return false;
  bool rms = b.opset >= 23 && b.random.chance(40);
  Value x = b.pickOr([](const Value &v) { return isFloatValue(v) && hasElements(v) && v.rank() >= 1 && v.rank() <= 4; },
                     [&] { return b.fresh(b.floatType(), {b.random.between(1, 5), b.random.between(1, 5), b.random.between(2, 40)}); });
  int64_t axis = b.random.chance(60) ? x.rank() - 1 : b.random.below(x.rank());
  Dims normalized(x.dims.begin() + axis, x.dims.end());
  Value scale = b.fresh(x.dtype, normalized, 2, b.random.chance(60) ? Source::Constant : Source::Input);
  Value bias = !rms && b.random.chance(60) ? b.fresh(x.dtype, normalized, 1) : Value();
  b.node(rms ? "RMSNormalization" : "LayerNormalization", {x, scale, bias}, x.dtype, x.dims, 100,
         {{"axis", b.random.chance(40) ? axis - x.rank() : axis}, {"epsilon", b.random.of({1e-5, 1e-2})}});
  return true;
}

/// Images: a batch, channels, pixels.
Value image(GraphBuilder &b) {
  return b.pickOr([](const Value &v) { return (v.dtype == DType::F32 || v.dtype == DType::F16) && hasElements(v) && v.rank() >= 3 && v.rank() <= 5 && v.most < 500; },
                  [&] { return b.fresh(DType::F32, {b.random.between(1, 3), b.random.of<int64_t>({1, 2, 3, 4, 6, 8}), b.random.between(1, 7), b.random.between(1, 7)}); });
}

bool makeChannelNorm(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = image(b);
  int64_t c = x.dims[1];
  auto number = [&](double most, bool positive = false) { return b.fresh(x.dtype, {c}, most, Source::Constant, positive); };
  switch (b.random.below(4)) {
  case 0: {
    HostTensor variance(x.dtype, {c});
    for (int64_t i = 0; i < c; ++i)
      variance.setReal(i, 0.25 + b.random.unit());
    Value scale = number(2), bias = number(1), mean = number(1);
    b.node("BatchNormalization", {x, scale, bias, mean, b.constant(variance)}, x.dtype, x.dims, 5 * (x.most + 2), {{"epsilon", 1e-3}});
    return true;
  }
  case 1: {
    Value scale = number(2), bias = number(1);
    b.node("InstanceNormalization", {x, scale, bias}, x.dtype, x.dims, 100, {{"epsilon", 1e-2}});
    return true;
  }
  case 2: {
    if (b.opset < 21)
      return false;
    std::vector<int64_t> divisors;
    for (int64_t d = 1; d <= c; ++d)
      if (c % d == 0)
        divisors.push_back(d);
    Value scale = number(2), bias = number(1);
    b.node("GroupNormalization", {x, scale, bias}, x.dtype, x.dims, 100, {{"num_groups", b.random.of(divisors)}, {"epsilon", 1e-2}});
    return true;
  }
  default:
    b.node("LRN", {x}, x.dtype, x.dims, x.most,
           {{"size", b.random.of<int64_t>({1, 2, 3, 5})}, {"alpha", 0.5}, {"beta", 0.75}, {"bias", 1.0}}, x.positive);
    return true;
  }
}

bool makeLpNorm(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pick([](const Value &v) { return (v.dtype == DType::F32 || v.dtype == DType::F64) && hasElements(v) && v.rank() >= 1; });
  if (!x)
    return false;
  Value away = b.node("Add", {x, b.scalar(x.dtype, x.most + 1)}, x.dtype, x.dims, 2 * x.most + 1, {}, true);
  b.node("LpNormalization", {away}, x.dtype, x.dims, 1, {{"axis", axisOf(b, x)}, {"p", b.random.between(1, 2)}}, true);
  return true;
}

} // namespace

void addNorms(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"softmax", 5, makeSoftmax}, {"layer norm", 3, makeLayerNorm}, {"channel norm", 3, makeChannelNorm}, {"lp norm", 1, makeLpNorm}});
}

} // namespace lathe::fuzz
