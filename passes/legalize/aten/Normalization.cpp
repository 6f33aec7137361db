//===- Normalization.cpp - norms and softmax --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

#include <limits>

using namespace mlir;

namespace lathe::legal::aten {
namespace {

/// A parameter, or `value` for all where it is not given.
Value parameter(Node &n, unsigned i, double value, const Dims &dims, Type element) {
  return n.has(i) ? n.in(i) : n.e.broadcastTo(n.e.scalar(value, element), dims);
}

/// Over the dimensions of normalized_shape, which are the last.
LogicalResult layerNorm(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  int64_t axis = rankOf(x) - int64_t(sizes(n, "normalized_shape").value_or(Dims()).size());
  Dims dims = dimsOf(x);
  if (axis < 0 || axis == rankOf(x))
    return n.invalid("attribute", "normalized_shape does not fit the rank");
  Dims over(dims.begin() + axis, dims.end());
  return n.done(onnx(n, "LayerNormalization",
                     {x, parameter(n, 1, 1, over, elementTypeOf(x)),
                      n.has(2) ? Operand(n.in(2)) : Operand::absent()},
                     {attr(n, "axis", axis), real(n, "epsilon", number(n, "eps", 1e-5))}));
}

/// Without eps the spacing of the type's numbers at 1.
LogicalResult rmsNorm(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  int64_t axis = rankOf(x) - int64_t(sizes(n, "normalized_shape").value_or(Dims()).size());
  Dims dims = dimsOf(x);
  if (axis < 0 || axis == rankOf(x))
    return n.invalid("attribute", "normalized_shape does not fit the rank");
  Type element = elementTypeOf(x);
  double spacing = element.isF64() ? std::numeric_limits<double>::epsilon()
                                   : std::numeric_limits<float>::epsilon();
  Value scale = parameter(n, 1, 1, Dims(dims.begin() + axis, dims.end()), element);
  return n.done(rmsNormOf(n.e, x, scale, axis, number(n, "eps", spacing)));
}

/// native_batch_norm of inference too; both have input, weight, bias, mean and variance.
LogicalResult batchNorm(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  if (flag(n, "training") || !n.has(3) || !n.has(4))
    return n.fail("attribute", "batch norm of a batch's own statistics",
                  "a module in eval() with running statistics", "module.eval() before exporting");
  Dims channels = {dimOf(x, 1)};
  Type element = elementTypeOf(n.in(3));
  return n.done(onnx(n, "BatchNormalization",
                     {x, parameter(n, 1, 1, channels, element),
                      parameter(n, 2, 0, channels, element), n.in(3), n.in(4)},
                     {real(n, "epsilon", number(n, "eps", 1e-5))}));
}

LogicalResult groupNorm(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> groups = integer(n, n.hasAttr("group") ? "group" : "num_groups");
  if (!x || !groups)
    return failure();
  Dims channels = {dimOf(x, 1)};
  Type element = elementTypeOf(x);
  return n.done(
      onnx(n, "GroupNormalization",
           {x, parameter(n, 1, 1, channels, element), parameter(n, 2, 0, channels, element)},
           {attr(n, "num_groups", *groups), real(n, "epsilon", number(n, "eps", 1e-5))}));
}

LogicalResult instanceNorm(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  if (!flag(n, "use_input_stats", true))
    return batchNorm(n);
  Dims channels = {dimOf(x, 1)};
  Type element = elementTypeOf(x);
  return n.done(
      onnx(n, "InstanceNormalization",
           {x, parameter(n, 1, 1, channels, element), parameter(n, 2, 0, channels, element)},
           {real(n, "epsilon", number(n, "eps", 1e-5))}));
}

/// v scaled to length g along all axes but one; and the lengths of v.
LogicalResult weightNorm(Node &n) {
  Emitter &e = n.e;
  Value v = n.in(0), g = n.in(1);
  std::optional<int64_t> kept = v ? axisOf(n, "dim", rankOf(v), 0) : std::nullopt;
  if (!kept)
    return failure();
  Ints axes;
  for (int64_t d = 0; d < rankOf(v); ++d)
    if (d != *kept)
      axes.push_back(d);
  Value length = e.unary<SqrtOp>(e.reduce(e.mul(v, v), ReduceKind::Sum, axes));
  if (n.numOutputs() > 1 && failed(n.set(1, length)))
    return failure();
  return n.done(e.mul(v, e.div(g, length)));
}

template <bool Log> LogicalResult softmax(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  x = n.e.cast(x, resultElement(n));
  if (rankOf(x) == 0)
    return n.done(n.e.like(x, Log ? 0 : 1));
  std::optional<int64_t> axis = axisOf(n, "dim", rankOf(x), -1);
  return axis ? n.done(onnx(n, Log ? "LogSoftmax" : "Softmax", {x}, {attr(n, "axis", *axis)}))
              : failure();
}

} // namespace

void addNormalizations(Handlers &h) {
  h["aten.layer_norm"] = h["aten.native_layer_norm"] = layerNorm;
  h["aten.rms_norm"] = h["aten._fused_rms_norm"] = rmsNorm;
  h["aten.batch_norm"] = h["aten._native_batch_norm_legit_no_training"] = batchNorm;
  h["aten.group_norm"] = h["aten.native_group_norm"] = groupNorm;
  h["aten.instance_norm"] = instanceNorm;
  h["aten._weight_norm"] = h["aten._weight_norm_interface"] = weightNorm;
  h["aten.softmax"] = h["aten._softmax"] = h["aten._safe_softmax"] = softmax<false>;
  h["aten.log_softmax"] = h["aten._log_softmax"] = softmax<true>;
}

} // namespace lathe::legal::aten
