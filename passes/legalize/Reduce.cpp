//===- Reduce.cpp - reductions, arg-reductions, scans -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Formulas.h"

using namespace mlir;

namespace lathe::legal {
namespace {

struct Axes {
  Ints axes;
  bool keepdims;
};

/// Axes are an attribute or operand 1; none given means all, or nothing where
/// `noop_with_empty_axes` says so.
std::optional<Axes> axesOf(Node &n) {
  Value x = n.in(0);
  if (!x)
    return std::nullopt;
  std::optional<Ints> given = n.intsAttr("axes");
  if (n.numInputs() > 1 && n.has(1)) {
    given = n.ints(1);
    if (!given) {
      (void)n.unknown({1}, "axes");
      return std::nullopt;
    }
  }
  int64_t rank = rankOf(x);
  Axes result{{}, bool(n.intAttr("keepdims", 1))};
  if (given && !given->empty()) {
    std::optional<Ints> checked = n.axes(*given, rank);
    if (!checked)
      return std::nullopt;
    result.axes = *checked;
  } else if (!n.intAttr("noop_with_empty_axes", 0)) {
    for (int64_t d = 0; d < rank; ++d)
      result.axes.push_back(d);
  }
  return result;
}

Value reduceSum(Emitter &e, Value x, const Axes &a) {
  return e.reduce(x, ReduceKind::Sum, a.axes, a.keepdims);
}
Value reduceProd(Emitter &e, Value x, const Axes &a) {
  return e.reduce(x, ReduceKind::Prod, a.axes, a.keepdims);
}
Value reduceMean(Emitter &e, Value x, const Axes &a) { return e.mean(x, a.axes, a.keepdims); }

template <ReduceKind K> Value reduceMinOrMax(Emitter &e, Value x, const Axes &a) {
  return minOrMax(e, x, K, a.axes, a.keepdims);
}

Value reduceL1(Emitter &e, Value x, const Axes &a) { return reduceSum(e, e.unary<AbsOp>(x), a); }
Value reduceSumSquare(Emitter &e, Value x, const Axes &a) { return reduceSum(e, e.mul(x, x), a); }

/// Integers go through f64, as the root is no integer op; narrow floats through
/// f32, so that what is summed neither overflows nor rounds.
Value viaFloat(Emitter &e, Value x, llvm::function_ref<Value(Value)> formula) {
  Type element = elementTypeOf(x);
  if (isFloat(element) && !isNarrow(element))
    return formula(x);
  Type wide = isFloat(element) ? Type(e.b.getF32Type()) : Type(e.b.getF64Type());
  return e.cast(formula(e.cast(x, wide)), element);
}
Value reduceL2(Emitter &e, Value x, const Axes &a) {
  return viaFloat(e, x, [&](Value v) { return e.unary<SqrtOp>(reduceSumSquare(e, v, a)); });
}
Value reduceLogSum(Emitter &e, Value x, const Axes &a) {
  return viaFloat(e, x, [&](Value v) { return e.unary<LogOp>(reduceSum(e, v, a)); });
}
/// max + ln(sum(e^(x - max))); an infinite maximum is left out of the shift.
Value reduceLogSumExp(Emitter &e, Value x, const Axes &a) {
  return viaFloat(e, x, [&](Value v) -> Value {
    Value top = e.reduce(v, ReduceKind::Max, a.axes, true);
    if (!top)
      return {};
    Value shift = e.select(e.infer<IsInfOp>(top, true, true), e.like(top, 0), top);
    Value sum = e.reduce(e.unary<ExpOp>(e.sub(v, shift)), ReduceKind::Sum, a.axes, true);
    Value y = e.add(e.unary<LogOp>(sum), shift);
    if (!y || a.keepdims)
      return y;
    Dims dims;
    for (auto [d, dim] : llvm::enumerate(dimsOf(v)))
      if (!llvm::is_contained(a.axes, int64_t(d)))
        dims.push_back(dim);
    return e.reshape(y, dims);
  });
}

/// Axes that arrive with the run: dimension d becomes two, of which one is 1, and the second of
/// each pair is reduced.
///   [A, B], axis 1  =>  [A, 1, 1, B]  =>  [A, 1]
template <Value (*F)(Emitter &, Value, const Axes &)>
LogicalResult reduceNamed(Node &n, ArrayRef<DimExpr> axes) {
  Dims dims = n.dims(0), named = n.named(axes, dims.size()), pairs, whole, left;
  Axes second{{}, false};
  for (auto [d, dim] : llvm::enumerate(dims)) {
    DimRange size = {0, DimRange::kUnbounded};
    whole.push_back(n.derive("kept" + llvm::Twine(d), dim - named[d] * (dim - DimExpr(1)), size));
    pairs.push_back(whole.back());
    second.axes.push_back(pairs.size());
    pairs.push_back(n.derive("gone" + llvm::Twine(d), named[d] * (dim - DimExpr(1)) + DimExpr(1),
                             size));
  }
  Value y = F(n.e, n.e.reshape(n.in(0), pairs), second);
  if (n.intAttr("keepdims", 1))
    return n.done(y);
  for (size_t i = 0; i + axes.size() < dims.size(); ++i)
    left.push_back(n.kept(dims, named, i));
  return n.done(n.e.reshape(y, left));
}

/// Axes in operand 1 that are no constants; none otherwise.
std::optional<Dims> runTimeAxes(Node &n) {
  if (!n.in(0) || n.ints(1))
    return std::nullopt;
  std::optional<HostValue> given = n.bound(1, std::nullopt);
  if (!given || given->constants() || given->values.size() > n.dims(0).size())
    return std::nullopt;
  return given->values;
}

template <Value (*F)(Emitter &, Value, const Axes &)> LogicalResult reduction(Node &n) {
  if (std::optional<Dims> atRunTime = runTimeAxes(n))
    return reduceNamed<F>(n, *atRunTime);
  std::optional<Axes> axes = axesOf(n);
  return axes ? n.done(F(n.e, n.in(0), *axes)) : failure();
}

template <ReduceKind K> LogicalResult argReduce(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  return n.done(n.e.infer<ArgReduceOp>(x, K, uint64_t(*axis), bool(n.intAttr("keepdims", 1)),
                                       bool(n.intAttr("select_last_index", 0))));
}

template <ReduceKind K> LogicalResult scan(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  if (std::optional<Dims> atRunTime = runTimeAxes(n); atRunTime && atRunTime->size() == 1) {
    Dims dims = n.dims(0);
    RunTimeAxis at = runTimeAxis(n, atRunTime->front(), dims);
    Value y = n.e.infer<ScanOp>(n.e.reshape(x, {at.before, at.along, at.after}), K, uint64_t(1),
                                bool(n.intAttr("exclusive", 0)), bool(n.intAttr("reverse", 0)));
    return n.done(n.e.reshape(y, dims));
  }
  std::optional<Ints> given = n.ints(1);
  if (!given || given->size() != 1)
    return n.unknown({1}, "an axis");
  std::optional<int64_t> axis = n.axis((*given)[0], rankOf(x));
  if (!axis)
    return failure();
  return n.done(n.e.infer<ScanOp>(x, K, uint64_t(*axis), bool(n.intAttr("exclusive", 0)),
                                  bool(n.intAttr("reverse", 0))));
}

} // namespace

RunTimeAxis runTimeAxis(Node &n, const DimExpr &axis, const Dims &dims, size_t apart) {
  RunTimeAxis at{1, 0, 1, n.named(axis, int64_t(dims.size()))};
  DimExpr passed = 0;
  for (auto [d, dim] : llvm::enumerate(dims)) {
    const DimExpr &named = at.named[d];
    if (d + apart >= dims.size()) {
      n.demandZero("axis" + llvm::Twine(d) + "_named", named);
      continue;
    }
    at.along = at.along + named * dim;
    at.before = at.before * (DimExpr(1) + (DimExpr(1) - passed - named) * (dim - DimExpr(1)));
    at.after = at.after * (DimExpr(1) + passed * (dim - DimExpr(1)));
    passed = passed + named;
  }
  DimRange size = {0, DimRange::kUnbounded};
  at.before = n.derive("before", at.before, size);
  at.along = n.derive("along", at.along, size);
  at.after = n.derive("after", at.after, size);
  return at;
}

Value minOrMax(Emitter &e, Value x, ReduceKind kind, ArrayRef<int64_t> axes, bool keepdims) {
  if (!x || !elementTypeOf(x).isInteger(1))
    return e.reduce(x, kind, axes, keepdims);
  Value bytes = e.cast(x, e.b.getIntegerType(8, /*isSigned=*/false));
  return e.cast(e.reduce(bytes, kind, axes, keepdims), e.b.getI1Type());
}

void addReductions(Handlers &h) {
  h["ReduceSum"] = reduction<reduceSum>;
  h["ReduceProd"] = reduction<reduceProd>;
  h["ReduceMean"] = reduction<reduceMean>;
  h["ReduceMax"] = reduction<reduceMinOrMax<ReduceKind::Max>>;
  h["ReduceMin"] = reduction<reduceMinOrMax<ReduceKind::Min>>;
  h["ReduceL1"] = reduction<reduceL1>;
  h["ReduceL2"] = reduction<reduceL2>;
  h["ReduceSumSquare"] = reduction<reduceSumSquare>;
  h["ReduceLogSum"] = reduction<reduceLogSum>;
  h["ReduceLogSumExp"] = reduction<reduceLogSumExp>;
  h["ArgMax"] = argReduce<ReduceKind::Max>;
  h["ArgMin"] = argReduce<ReduceKind::Min>;
  h["CumSum"] = scan<ReduceKind::Sum>;
  h["CumProd"] = scan<ReduceKind::Prod>;
}

} // namespace lathe::legal
