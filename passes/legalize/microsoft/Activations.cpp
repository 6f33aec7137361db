//===- Activations.cpp - activations with what is added first ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Families.h"

using namespace mlir;

namespace lathe::legal::microsoft {
namespace {

/// The first operand and, where present, the second added to it.
Value biased(Node &n) { return n.has(1) ? n.e.add(n.in(0), n.in(1)) : n.in(0); }

LogicalResult gelu(Node &n) { return n.done(geluOf(n.e, biased(n))); }
LogicalResult fastGelu(Node &n) { return n.done(geluOf(n.e, biased(n), /*byTanh=*/true)); }

/// The left half of the biased columns times the Gelu of the right half.
LogicalResult biasSplitGelu(Node &n) {
  Emitter &e = n.e;
  Value x = biased(n);
  if (!x || rankOf(x) < 1)
    return failure();
  int64_t last = rankOf(x) - 1;
  std::optional<DimExpr> half = dimOf(x, last).exactDiv(2);
  if (!half)
    return n.invalid("shape", "the last dimension has two halves");
  return n.done(
      e.mul(e.sliceAxis(x, last, 0, *half), geluOf(e, e.sliceAxis(x, last, *half, *half))));
}

/// x + bias + skip, of which the bias is one a channel, the last dimension.
LogicalResult biasAdd(Node &n) { return n.done(n.e.add(biased(n), n.in(2))); }

// Ops of ai.onnx's first opsets that onnxruntime keeps.
LogicalResult affine(Node &n) {
  return n.done(
      activationOf(n.e, "affine", n.in(0), n.floatAttr("alpha", 1), n.floatAttr("beta", 0)));
}
LogicalResult scaledTanh(Node &n) {
  return n.done(
      activationOf(n.e, "scaledtanh", n.in(0), n.floatAttr("alpha", 1), n.floatAttr("beta", 1)));
}
/// alpha * ln(1 + e^(beta x))
LogicalResult parametricSoftplus(Node &n) {
  Emitter &e = n.e;
  Value x = e.mul(n.in(0), n.floatAttr("beta", 1));
  return n.done(e.mul(softplusOf(e, x), n.floatAttr("alpha", 1)));
}

} // namespace

void addActivations(Handlers &h) {
  h["com.microsoft.Affine"] = affine;
  h["com.microsoft.BiasAdd"] = biasAdd;
  h["com.microsoft.BiasGelu"] = gelu;
  h["com.microsoft.BiasSplitGelu"] = biasSplitGelu;
  h["com.microsoft.FastGelu"] = fastGelu;
  h["com.microsoft.Gelu"] = gelu;
  h["com.microsoft.ParametricSoftplus"] = parametricSoftplus;
  h["com.microsoft.ScaledTanh"] = scaledTanh;
}

} // namespace lathe::legal::microsoft
