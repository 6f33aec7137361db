//===- Reduce.cpp - reductions, scans, orders -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal::aten {
namespace {

template <ReduceKind K> LogicalResult reduction(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> axes = x ? axesOf(n, "dim", rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  // Sums of integers and bools are wider than their terms.
  x = n.e.cast(x, resultElement(n));
  return n.done(axes->empty() ? x : n.e.reduce(x, K, *axes, flag(n, "keepdim")));
}

LogicalResult mean(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> axes = x ? axesOf(n, "dim", rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  x = n.e.cast(x, resultElement(n));
  return n.done(axes->empty() ? x : n.e.mean(x, *axes, flag(n, "keepdim")));
}

/// Without axes there is nothing to reduce.
Value minMaxOf(Node &n, Value x, ReduceKind kind, const Ints &axes, bool keep) {
  return axes.empty() ? x : minOrMax(n.e, x, kind, axes, keep);
}
template <ReduceKind K> LogicalResult minMax(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> axes = x ? axesOf(n, "dim", rankOf(x)) : std::nullopt;
  return axes ? n.done(minMaxOf(n, x, K, *axes, flag(n, "keepdim"))) : failure();
}
template <ReduceKind K> LogicalResult test(Node &n) {
  Value x = castTo(n.e, n.in(0), n.e.b.getI1Type());
  std::optional<Ints> axes = x ? axesOf(n, "dim", rankOf(x)) : std::nullopt;
  return axes ? n.done(minMaxOf(n, x, K, *axes, flag(n, "keepdim"))) : failure();
}

/// One axis, or of the whole tensor as one row.
template <ReduceKind K> LogicalResult place(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  if (!n.hasAttr("dim")) {
    Value flat = n.e.reshape(x, {numElements(x.getType())});
    return n.done(
        n.e.reshape(n.e.infer<ArgReduceOp>(flat, K, uint64_t(0), false, false), resultDims(n)));
  }
  std::optional<int64_t> axis = axisOf(n, "dim", rankOf(x), 0);
  return axis ? n.done(n.e.infer<ArgReduceOp>(x, K, uint64_t(*axis), flag(n, "keepdim"), false))
              : failure();
}
/// max.dim: the values and their places.
template <ReduceKind K> LogicalResult minMaxAndPlace(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  if (!axis)
    return failure();
  bool keep = flag(n, "keepdim");
  if (failed(n.set(0, minMaxOf(n, x, K, {*axis}, keep))))
    return failure();
  return n.wants(1) ? n.set(1, n.e.infer<ArgReduceOp>(x, K, uint64_t(*axis), keep, false))
                    : success();
}

/// The mean of squared distances from the mean, or their sum over count - correction.
Value varianceOf(Node &n, Value x, const Ints &axes, bool keep) {
  Emitter &e = n.e;
  double correction =
      n.hasAttr("unbiased") ? double(flag(n, "unbiased", true)) : number(n, "correction", 1);
  Value centred = e.sub(x, e.mean(x, axes));
  if (!centred)
    return {};
  Value squares = e.reduce(e.mul(centred, centred), ReduceKind::Sum, axes, keep);
  DimExpr count = 1;
  for (int64_t axis : axes)
    count = count * dimOf(x, axis);
  Type element = elementTypeOf(x);
  Value terms = count.isConstant() ? e.scalar(double(*count.constant()) - correction, element)
                                   : e.add(e.dimScalar(count, element), -correction);
  return e.div(squares, terms);
}
template <bool Root> LogicalResult variance(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> axes = x ? axesOf(n, "dim", rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  Type element = elementTypeOf(x), wide = isNarrow(element) ? Type(n.e.b.getF32Type()) : element;
  Value y = varianceOf(n, n.e.cast(x, wide), *axes, flag(n, "keepdim"));
  y = n.e.cast(Root ? n.e.unary<SqrtOp>(y) : y, element);
  // var_mean has both.
  if (n.numOutputs() > 1 && failed(n.set(1, n.e.mean(x, *axes, flag(n, "keepdim")))))
    return failure();
  return n.done(y);
}

LogicalResult norm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<Ints> axes = x ? axesOf(n, "dim", rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  x = e.cast(x, resultElement(n));
  double p = number(n, n.hasAttr("ord") ? "ord" : "p", 2);
  bool keep = flag(n, "keepdim");
  Value size = e.unary<AbsOp>(x);
  if (std::isinf(p))
    return n.done(e.reduce(size, p > 0 ? ReduceKind::Max : ReduceKind::Min, *axes, keep));
  if (p == 1)
    return n.done(e.reduce(size, ReduceKind::Sum, *axes, keep));
  if (p == 2)
    return n.done(e.unary<SqrtOp>(e.reduce(e.mul(x, x), ReduceKind::Sum, *axes, keep)));
  if (p == 0)
    return n.done(e.reduce(e.cast(e.compare(x, 0.0, Predicate::Ne), elementTypeOf(x)),
                           ReduceKind::Sum, *axes, keep));
  Value sum = e.reduce(e.infer<PowOp>(size, e.like(x, p)), ReduceKind::Sum, *axes, keep);
  return n.done(e.infer<PowOp>(sum, e.like(x, 1 / p)));
}

/// The product of both scaled to length 1; shorter ones than eps are divided by that.
LogicalResult cosineSimilarity(Node &n) {
  Emitter &e = n.e;
  Value a = n.in(0), b = n.in(1);
  std::optional<int64_t> axis = a ? axisOf(n, "dim", resultDims(n).size() + 1, 1) : std::nullopt;
  if (!axis)
    return failure();
  double eps = number(n, "eps", 1e-8);
  auto length = [&](Value x) {
    return e.max(e.unary<SqrtOp>(e.reduce(e.mul(x, x), ReduceKind::Sum, {*axis}, true)), eps);
  };
  return n.done(
      e.reduce(e.mul(e.div(a, length(a)), e.div(b, length(b))), ReduceKind::Sum, {*axis}, false));
}

LogicalResult logSumExp(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> axes = x ? axesOf(n, "dim", rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  return n.done(onnx(
      n, "ReduceLogSumExp",
      {n.e.cast(x, resultElement(n)), n.e.ints(*axes, {int64_t(axes->size())}, n.e.b.getI64Type())},
      {attr(n, "keepdims", flag(n, "keepdim"))}));
}

template <ReduceKind K> LogicalResult scan(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  if (!axis)
    return failure();
  x = n.e.cast(x, resultElement(n));
  return n.done(rankOf(x) == 0 ? x : n.e.infer<ScanOp>(x, K, uint64_t(*axis), false, false));
}

LogicalResult countNonzero(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> axes = x ? axesOf(n, "dim", rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  Value flags = n.e.cast(castTo(n.e, x, n.e.b.getI1Type()), n.e.b.getI64Type());
  return n.done(n.e.reduce(flags, ReduceKind::Sum, *axes, false));
}

/// The k first of an order: values and places.
LogicalResult first(Node &n, const DimExpr &count, int64_t axis, bool largest) {
  if (!count.isConstant())
    return n.fail("shape", "an order of " + llvm::Twine(count.str()) + " elements",
                  "a number that is known");
  std::vector<Value> both =
      onnxResults(n, "TopK", {n.in(0), n.e.ints({*count.constant()}, {1}, n.e.b.getI64Type())},
                  {attr(n, "axis", axis), attr(n, "largest", largest), attr(n, "sorted", 1)}, 2);
  if (n.type.starts_with("argsort"))
    return n.set(0, both[1]);
  return failed(n.set(0, both[0])) ? failure() : n.set(1, both[1]);
}
LogicalResult topk(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), -1) : std::nullopt;
  std::optional<DimExpr> count = size(n, "k");
  return axis && count ? first(n, *count, *axis, flag(n, "largest", true)) : failure();
}
LogicalResult sort(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), -1) : std::nullopt;
  return axis ? first(n, dimOf(x, *axis), *axis, flag(n, "descending")) : failure();
}

} // namespace

void addReductions(Handlers &h) {
  h["aten.sum"] = reduction<ReduceKind::Sum>;
  h["aten.prod"] = reduction<ReduceKind::Prod>;
  h["aten.mean"] = mean;
  h["aten.amax"] = h["aten.max"] = minMax<ReduceKind::Max>;
  h["aten.amin"] = h["aten.min"] = minMax<ReduceKind::Min>;
  h["aten.max.dim"] = minMaxAndPlace<ReduceKind::Max>;
  h["aten.min.dim"] = minMaxAndPlace<ReduceKind::Min>;
  h["aten.argmax"] = place<ReduceKind::Max>;
  h["aten.argmin"] = place<ReduceKind::Min>;
  h["aten.any"] = test<ReduceKind::Max>;
  h["aten.all"] = test<ReduceKind::Min>;
  h["aten.var"] = h["aten.var_mean"] = variance<false>;
  h["aten.std"] = h["aten.std_mean"] = variance<true>;
  h["aten.norm"] = h["aten.linalg_vector_norm"] = norm;
  h["aten.cosine_similarity"] = cosineSimilarity;
  h["aten.logsumexp"] = logSumExp;
  h["aten.cumsum"] = scan<ReduceKind::Sum>;
  h["aten.cumprod"] = scan<ReduceKind::Prod>;
  h["aten.count_nonzero"] = countNonzero;
  h["aten.topk"] = topk;
  h["aten.sort"] = h["aten.argsort"] = sort;
}

} // namespace lathe::legal::aten
