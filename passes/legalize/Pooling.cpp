//===- Pooling.cpp - windows and whole images -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Windows.h"

using namespace mlir;

namespace lathe::legal {
namespace {

template <PoolKind K> LogicalResult pool(Node &n) {
  Value x = n.in(0);
  if (!x || rankOf(x) < 3)
    return n.invalid("shape", "pooling needs rank 3 or more");
  if (n.wants(1))
    return n.fail("attribute", "the output Indices", "MaxPool with one output");
  std::optional<Ints> kernel = n.intsAttr("kernel_shape");
  if (!kernel)
    return n.invalid("attribute", "kernel_shape is missing");
  std::optional<Window> w = windowOf(n, x, *kernel);
  if (!w)
    return failure();
  return n.done(n.e.infer<PoolOp>(x, K, w->kernel, w->strides, w->pads, w->dilations,
                                  bool(n.intAttr("ceil_mode", 0)),
                                  bool(n.intAttr("count_include_pad", 0)),
                                  uint64_t(n.intAttr("p", 2)), ConvLayout::ChannelsFirst));
}

Ints spatialAxes(Value x) {
  Ints axes;
  for (int64_t d = 2; d < rankOf(x); ++d)
    axes.push_back(d);
  return axes;
}

LogicalResult globalAverage(Node &n) {
  Value x = n.in(0);
  return x ? n.done(n.e.mean(x, spatialAxes(x))) : failure();
}
LogicalResult globalMax(Node &n) {
  Value x = n.in(0);
  return x ? n.done(n.e.reduce(x, ReduceKind::Max, spatialAxes(x))) : failure();
}
LogicalResult globalLp(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  double p = double(n.intAttr("p", 2));
  Value power = e.infer<PowOp>(e.unary<AbsOp>(x), e.like(x, p));
  Value sum = e.reduce(power, ReduceKind::Sum, spatialAxes(x));
  return n.done(e.infer<PowOp>(sum, e.like(x, 1.0 / p)));
}

} // namespace

void addPooling(Handlers &h) {
  h["MaxPool"] = pool<PoolKind::Max>;
  h["AveragePool"] = pool<PoolKind::Average>;
  h["LpPool"] = pool<PoolKind::Lp>;
  h["GlobalAveragePool"] = globalAverage;
  h["GlobalMaxPool"] = globalMax;
  h["GlobalLpPool"] = globalLp;
}

} // namespace lathe::legal
