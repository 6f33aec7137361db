//===- Normalization.cpp - softmax and the norms ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Formulas.h"
#include "Windows.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {
namespace {

template <bool Log> LogicalResult softmax(Node &n) {
  return n.done(softmaxOf(n, n.in(0), n.intAttr("axis", n.opset >= 13 ? -1 : 1), Log));
}

/// 1 at the first maximum along the axis, 0 elsewhere.
LogicalResult hardmax(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<int64_t> axis =
      x ? n.axis(n.intAttr("axis", n.opset >= 13 ? -1 : 1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  Dims dims = dimsOf(x);
  Value rows = x;
  int64_t along = *axis;
  if (n.opset < 13) {
    rows = e.reshape(x, {product(Dims(dims.begin(), dims.begin() + along)),
                         product(Dims(dims.begin() + along, dims.end()))});
    along = 1;
  }
  Value best = e.infer<ArgReduceOp>(rows, ReduceKind::Max, uint64_t(along), true, false);
  Dims line(rankOf(rows), DimExpr(1));
  line[along] = dimOf(rows, along);
  Value hit = e.compare(best, e.iota(line, along, e.b.getI64Type()), Predicate::Eq);
  return n.done(e.reshape(e.cast(hit, elementTypeOf(x)), dims));
}

/// The parameter with the sizes of x from axis on.
Value overRows(Emitter &e, Value parameter, Value x, int64_t axis) {
  if (!parameter || !x)
    return {};
  Dims dims = dimsOf(x);
  return e.broadcastTo(parameter, Dims(dims.begin() + axis, dims.end()));
}

LogicalResult layerNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  double epsilon = n.floatAttr("epsilon", 1e-5);
  if (n.wants(1) || n.wants(2)) {
    Type element = elementTypeOf(x);
    Type inner = elementFor(n.op->getContext(), n.intAttr("stash_type", 1));
    if (!inner || !isFloat(inner))
      return n.fail("attribute", "this stash_type", "floats");
    Normalized r = normalize(e, e.cast(x, inner), axesFrom(*axis, rankOf(x)), epsilon);
    Value y = e.mul(e.cast(r.y, element), scale);
    if (n.has(2))
      y = e.add(y, n.in(2));
    if (failed(n.set(0, y)) || failed(n.set(1, r.mean)))
      return failure();
    return n.numOutputs() > 2 ? n.set(2, r.inverse) : success();
  }
  Value bias = n.has(2) ? n.in(2) : Value();
  if (n.has(2) && !bias)
    return failure();
  return n.done(layerNormOf(e, x, scale, bias, *axis, epsilon));
}

LogicalResult rmsNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  return n.done(rmsNormOf(e, x, n.in(1), *axis, n.floatAttr("epsilon", 1e-5)));
}

/// Inference: x * factor + shift, where both follow from the parameters alone,
/// so that they fold. Training computes the statistics of this batch.
LogicalResult batchNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1), bias = n.in(2), mean = n.in(3), variance = n.in(4);
  if (!x || !scale || !bias || !mean || !variance)
    return failure();
  int64_t rank = rankOf(x);
  double epsilon = n.floatAttr("epsilon", 1e-5);
  Type element = elementTypeOf(x), inner = elementTypeOf(variance);
  auto channels = [&](Value v) { return perChannel(e, v, rank); };
  if (n.intAttr("training_mode", 0)) {
    Ints axes = {0};
    for (int64_t d = 2; d < rank; ++d)
      axes.push_back(d);
    Normalized r = normalize(e, x, axes, epsilon);
    double momentum = n.floatAttr("momentum", 0.9);
    Value centred = e.sub(x, r.mean);
    Value batchVariance = e.mean(e.mul(centred, centred), axes, false),
          batchMean = e.mean(x, axes, false);
    Value y = e.add(e.mul(r.y, channels(scale)), channels(bias));
    Value newMean = e.add(e.mul(mean, momentum), e.mul(e.cast(batchMean, inner), 1 - momentum));
    Value newVariance =
        e.add(e.mul(variance, momentum), e.mul(e.cast(batchVariance, inner), 1 - momentum));
    if (failed(n.set(0, y)) || failed(n.set(1, newMean)))
      return failure();
    return n.set(2, newVariance);
  }
  if (n.wants(1))
    return n.fail("attribute", "more than one output outside of training", "the output Y");
  // In the type of the statistics, which may be wider than x.
  Value factor = e.div(e.cast(scale, inner), e.unary<SqrtOp>(e.add(variance, epsilon)));
  Value shift = e.sub(e.cast(bias, inner), e.mul(mean, factor));
  if (n.intAttr("spatial", 1) == 0) { // until opset 9: statistics of each element of a batch, [C, spatial...]
    if (!shift || rankOf(shift) != rank - 1)
      return n.invalid("shape", "with spatial = 0 the statistics have the sizes of an element of the batch");
    return n.done(e.add(e.mul(x, e.cast(factor, element)), e.cast(shift, element)));
  }
  return n.done(
      e.add(e.mul(x, channels(e.cast(factor, element))), channels(e.cast(shift, element))));
}

LogicalResult instanceNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 3)
    return n.invalid("shape", "rank 3 or more is needed");
  Normalized r = normalize(e, x, axesFrom(2, rankOf(x)), n.floatAttr("epsilon", 1e-5));
  Value y = e.mul(r.y, perChannel(e, n.in(1), rankOf(x)));
  return n.done(e.add(y, perChannel(e, n.in(2), rankOf(x))));
}

/// Norm over groups of channels; parameters are one a channel from opset 21, one
/// a group before.
LogicalResult groupNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1), bias = n.in(2);
  int64_t groups = n.intAttr("num_groups", 0);
  if (!x || !scale || !bias || rankOf(x) < 2 || groups < 1)
    return n.invalid("shape", "rank 2 or more and num_groups are needed");
  Dims dims = dimsOf(x), grouped = {dims[0], groups, DimExpr::floorDiv(dims[1], groups)};
  grouped.insert(grouped.end(), dims.begin() + 2, dims.end());
  Type element = elementTypeOf(x),
       inner = elementFor(n.op->getContext(), n.intAttr("stash_type", 1));
  if (!inner || !isFloat(inner))
    return n.fail("attribute", "this stash_type", "floats");
  Value split = e.cast(e.reshape(x, grouped), inner);
  Value y = normalize(e, split, axesFrom(2, grouped.size()), n.floatAttr("epsilon", 1e-5)).y;
  auto parameter = [&](Value v) -> Value {
    v = e.cast(v, inner);
    if (!v || rankOf(v) != 1)
      return e.fail("one value a channel or a group is needed");
    Dims shape(grouped.size(), DimExpr(1));
    shape[1] = groups;
    if (dimOf(v, 0) != DimExpr(groups) || n.opset >= 21)
      shape[2] = grouped[2];
    return e.reshape(v, shape);
  };
  y = e.add(e.mul(y, parameter(scale)), parameter(bias));
  return n.done(e.cast(e.reshape(y, dims), element));
}

LogicalResult lpNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  Type element = elementTypeOf(x);
  if (isNarrow(element))
    x = e.cast(x, e.b.getF32Type());
  Value norm = n.intAttr("p", 2) == 1
                   ? e.reduce(e.unary<AbsOp>(x), ReduceKind::Sum, {*axis})
                   : e.unary<SqrtOp>(e.reduce(e.mul(x, x), ReduceKind::Sum, {*axis}));
  // A zero vector stays one.
  Value zero = e.compare(norm, 0.0, Predicate::Eq);
  return n.done(e.cast(e.select(zero, e.like(x, 0), e.div(x, norm)), element));
}

/// x / (bias + alpha / size * sum of squares over `size` channels) ^ beta.
LogicalResult lrn(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t size = n.intAttr("size", 1);
  if (!x || rankOf(x) < 2 || size < 1)
    return n.invalid("shape", "rank 2 or more and a positive size are needed");
  Value sum = e.infer<WindowSquaresOp>(x, 1, size, (size - 1) / 2);
  Value base =
      e.add(e.mul(sum, n.floatAttr("alpha", 1e-4) / double(size)), n.floatAttr("bias", 1.0));
  double beta = n.floatAttr("beta", 0.75);
  Value root = beta == 0.75 ? e.unary<SqrtOp>(base) : Value(); // as nearly all models have it
  return n.done(e.div(x, root ? e.mul(root, e.unary<SqrtOp>(root)) : e.infer<PowOp>(base, e.like(x, beta))));
}

LogicalResult meanVariance(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<Ints> axes =
      x ? n.axes(n.intsAttr("axes").value_or(Ints{0, 2, 3}), rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  Type element = elementTypeOf(x);
  if (isNarrow(element))
    x = e.cast(x, e.b.getF32Type());
  Value centred = e.sub(x, e.mean(x, *axes));
  Value deviation = e.unary<SqrtOp>(e.mean(e.mul(centred, centred), *axes));
  return n.done(e.cast(e.div(centred, e.add(deviation, 1e-9)), element));
}

} // namespace

Value softmaxOf(Node &n, Value x, int64_t given, bool log) {
  Emitter &e = n.e;
  if (!x)
    return {};
  int64_t rank = rankOf(x);
  if (rank == 0)
    return e.like(x, log ? 0 : 1);
  std::optional<int64_t> axis = n.axis(given, rank + (n.opset < 13 ? 1 : 0));
  if (!axis)
    return {};
  if (n.opset >= 13 || *axis == rank - 1)
    return e.infer<SoftmaxOp>(x, uint64_t(*axis), log);
  Dims dims = dimsOf(x);
  Value rows = e.reshape(x, {product(Dims(dims.begin(), dims.begin() + *axis)),
                             product(Dims(dims.begin() + *axis, dims.end()))});
  return e.reshape(e.infer<SoftmaxOp>(rows, uint64_t(1), log), dims);
}

Ints axesFrom(int64_t first, int64_t rank) {
  Ints axes;
  for (int64_t d = first; d < rank; ++d)
    axes.push_back(d);
  return axes;
}

Normalized normalize(Emitter &e, Value x, ArrayRef<int64_t> axes, double epsilon) {
  if (Type element = x ? elementTypeOf(x) : Type(); element && isNarrow(element)) {
    Normalized wide = normalize(e, e.cast(x, e.b.getF32Type()), axes, epsilon);
    return {e.cast(wide.y, element), e.cast(wide.mean, element), e.cast(wide.inverse, element)};
  }
  Value mean = e.mean(x, axes);
  Value centred = e.sub(x, mean);
  Value variance = e.mean(e.mul(centred, centred), axes);
  Value inverse = e.unary<RsqrtOp>(e.add(variance, epsilon));
  return {e.mul(centred, inverse), mean, inverse};
}

Value layerNormOf(Emitter &e, Value x, Value scale, Value bias, int64_t axis, double epsilon) {
  bool hasBias = bool(bias);
  scale = overRows(e, scale, x, axis);
  bias = overRows(e, bias, x, axis);
  if (!x || !scale || bool(bias) != hasBias)
    return {};
  return LayerNormOp::create(e.b, e.loc, x.getType(), x, scale, bias, uint64_t(axis),
                             llvm::APFloat(epsilon));
}

Value rmsNormOf(Emitter &e, Value x, Value scale, int64_t axis, double epsilon) {
  return e.infer<RmsNormOp>(x, overRows(e, scale, x, axis), uint64_t(axis), llvm::APFloat(epsilon));
}

void addNormalizations(Handlers &h) {
  h["Softmax"] = softmax<false>;
  h["LogSoftmax"] = softmax<true>;
  h["Hardmax"] = hardmax;
  h["LayerNormalization"] = layerNorm;
  h["RMSNormalization"] = rmsNorm;
  h["BatchNormalization"] = batchNorm;
  h["InstanceNormalization"] = instanceNorm;
  h["GroupNormalization"] = groupNorm;
  h["com.microsoft.GroupNormalization"] = groupNorm; // of opsets 18 to 20, which import renames
  h["LpNormalization"] = lpNorm;
  h["LRN"] = lrn;
  h["MeanVarianceNormalization"] = meanVariance;
}

} // namespace lathe::legal
