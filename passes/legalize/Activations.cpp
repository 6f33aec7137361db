//===- Activations.cpp - activation functions as formulas -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each is a short formula of elementwise ops: fusion makes one expression of it,
// and the optimizer sees nothing it does not know.
//
//===----------------------------------------------------------------------===//
#include "Formulas.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {
namespace {

LogicalResult relu(Node &n) { return n.done(n.e.max(n.in(0), 0.0)); }

Value leakyReluOf(Emitter &e, Value x, double alpha) {
  return e.select(e.compare(x, 0.0, Predicate::Lt), e.mul(x, alpha), x);
}
LogicalResult leakyRelu(Node &n) {
  return n.done(leakyReluOf(n.e, n.in(0), n.floatAttr("alpha", 0.01)));
}

LogicalResult pRelu(Node &n) {
  Value x = n.in(0), slope = n.in(1);
  Emitter &e = n.e;
  // Before opset 7 a vector of slopes was one a channel, whatever the rank.
  if (x && slope && n.opset < 7 && rankOf(slope) == 1 && rankOf(x) > 2 && dimOf(slope, 0) != DimExpr(1)) {
    Dims dims(rankOf(x), DimExpr(1));
    dims[1] = dimOf(slope, 0);
    slope = e.reshape(slope, dims);
  }
  return n.done(e.select(e.compare(x, 0.0, Predicate::Lt), e.mul(x, slope), x));
}

/// alpha * (e^x - 1) for x < 0, x otherwise; scaled by gamma.
Value eluOf(Emitter &e, Value x, double alpha, double gamma) {
  Value negative = e.mul(e.unary<Expm1Op>(x), alpha * gamma);
  Value positive = gamma == 1 ? x : e.mul(x, gamma);
  return e.select(e.compare(x, 0.0, Predicate::Lt), negative, positive);
}
LogicalResult elu(Node &n) { return n.done(eluOf(n.e, n.in(0), n.floatAttr("alpha", 1.0), 1.0)); }
LogicalResult selu(Node &n) {
  return n.done(eluOf(n.e, n.in(0), n.floatAttr("alpha", 1.67326319217681884765625),
                      n.floatAttr("gamma", 1.05070102214813232421875)));
}
LogicalResult celu(Node &n) {
  Emitter &e = n.e;
  double alpha = n.floatAttr("alpha", 1.0);
  Value x = n.in(0);
  Value negative = e.mul(e.unary<Expm1Op>(e.div(x, alpha)), alpha);
  return n.done(e.add(e.max(x, 0.0), e.min(negative, 0.0)));
}

Value thresholdedReluOf(Emitter &e, Value x, double alpha) {
  return e.select(e.compare(x, alpha, Predicate::Gt), x, e.like(x, 0));
}
LogicalResult thresholdedRelu(Node &n) {
  return n.done(thresholdedReluOf(n.e, n.in(0), n.floatAttr("alpha", 1.0)));
}

Value hardSigmoidOf(Emitter &e, Value x, double alpha, double beta) {
  return e.min(e.max(e.add(e.mul(x, alpha), beta), 0.0), 1.0);
}
LogicalResult hardSigmoid(Node &n) {
  return n.done(hardSigmoidOf(n.e, n.in(0), n.floatAttr("alpha", 0.2), n.floatAttr("beta", 0.5)));
}
LogicalResult hardSwish(Node &n) {
  Value x = n.in(0);
  return n.done(n.e.mul(x, hardSigmoidOf(n.e, x, 1.0 / 6.0, 0.5)));
}

LogicalResult softplus(Node &n) { return n.done(softplusOf(n.e, n.in(0))); }
Value softsignOf(Emitter &e, Value x) { return e.div(x, e.add(e.unary<AbsOp>(x), 1.0)); }
LogicalResult softsign(Node &n) { return n.done(softsignOf(n.e, n.in(0))); }
LogicalResult mish(Node &n) { return n.done(n.e.unary<MishOp>(n.in(0))); }
LogicalResult swish(Node &n) {
  Value x = n.in(0);
  double alpha = n.floatAttr("alpha", 1.0);
  Value inner = alpha == 1 ? x : n.e.mul(x, alpha);
  return n.done(n.e.mul(x, n.e.unary<SigmoidOp>(inner)));
}

LogicalResult gelu(Node &n) {
  return n.done(geluOf(n.e, n.in(0), n.strAttr("approximate", "none") == "tanh"));
}

LogicalResult shrink(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  double lambda = n.floatAttr("lambd", 0.5), bias = n.floatAttr("bias", 0.0);
  Value high = e.sub(x, e.like(x, bias)), low = e.add(x, bias);
  Value inner = e.select(e.compare(x, -lambda, Predicate::Lt), low, e.like(x, 0));
  return n.done(e.select(e.compare(x, lambda, Predicate::Gt), high, inner));
}

/// min(max(x, low), high); bounds are operands from opset 11, attributes before.
LogicalResult clip(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (n.has(1))
    x = e.max(x, n.in(1));
  else if (n.hasAttr("min"))
    x = e.max(x, n.floatAttr("min", 0));
  if (n.has(2))
    x = e.min(x, n.in(2));
  else if (n.hasAttr("max"))
    x = e.min(x, n.floatAttr("max", 0));
  return n.done(x);
}

} // namespace

Value softplusOf(Emitter &e, Value x) {
  Value decay = e.unary<ExpOp>(e.unary<NegOp>(e.unary<AbsOp>(x)));
  return e.add(e.max(x, 0.0), e.unary<Log1pOp>(decay));
}

Value geluOf(Emitter &e, Value x, bool byTanh) {
  Value inner;
  if (byTanh) {
    Value cubic = e.mul(e.mul(e.mul(x, x), x), 0.044715);
    inner = e.unary<TanhOp>(e.mul(e.add(x, cubic), std::sqrt(2.0 / M_PI)));
  } else {
    inner = e.unary<ErfOp>(e.mul(x, M_SQRT1_2));
  }
  return e.mul(e.mul(x, 0.5), e.add(inner, 1.0));
}

Value activationOf(Emitter &e, StringRef name, Value x, std::optional<double> alpha,
                   std::optional<double> beta) {
  std::string key = name.lower();
  if (key == "sigmoid")
    return e.unary<SigmoidOp>(x);
  if (key == "tanh")
    return e.unary<TanhOp>(x);
  if (key == "relu")
    return e.max(x, 0.0);
  if (key == "affine")
    return e.add(e.mul(x, alpha.value_or(1.0)), beta.value_or(0.0));
  if (key == "leakyrelu")
    return leakyReluOf(e, x, alpha.value_or(0.01));
  if (key == "thresholdedrelu")
    return thresholdedReluOf(e, x, alpha.value_or(1.0));
  if (key == "scaledtanh")
    return e.mul(e.unary<TanhOp>(e.mul(x, beta.value_or(1.0))), alpha.value_or(1.0));
  if (key == "hardsigmoid")
    return hardSigmoidOf(e, x, alpha.value_or(0.2), beta.value_or(0.5));
  if (key == "elu")
    return eluOf(e, x, alpha.value_or(1.0), 1.0);
  if (key == "softsign")
    return softsignOf(e, x);
  if (key == "softplus")
    return softplusOf(e, x);
  if (key == "clip") {
    x = alpha ? e.max(x, *alpha) : x;
    return beta ? e.min(x, *beta) : x;
  }
  return e.fail("activation '" + llvm::Twine(name) + "'");
}

void addActivations(Handlers &h) {
  h["Relu"] = relu;
  h["LeakyRelu"] = leakyRelu;
  h["PRelu"] = pRelu;
  h["Elu"] = elu;
  h["Selu"] = selu;
  h["Celu"] = celu;
  h["ThresholdedRelu"] = thresholdedRelu;
  h["HardSigmoid"] = hardSigmoid;
  h["HardSwish"] = hardSwish;
  h["Softplus"] = softplus;
  h["Softsign"] = softsign;
  h["Mish"] = mish;
  h["Swish"] = swish;
  h["Gelu"] = gelu;
  h["Shrink"] = shrink;
  h["Clip"] = clip;
}

} // namespace lathe::legal
