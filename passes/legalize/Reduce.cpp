//===- Reduce.cpp - reductions, arg-reductions, scans -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Node.h"

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

/// Booleans are compared as bytes.
template <ReduceKind K> Value reduceExtreme(Emitter &e, Value x, const Axes &a) {
  Type element = elementTypeOf(x);
  if (!element.isInteger(1))
    return e.reduce(x, K, a.axes, a.keepdims);
  Value bytes = e.cast(x, e.b.getIntegerType(8, /*isSigned=*/false));
  return e.cast(e.reduce(bytes, K, a.axes, a.keepdims), element);
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

template <Value (*F)(Emitter &, Value, const Axes &)> LogicalResult reduction(Node &n) {
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
  std::optional<Ints> given = n.ints(1);
  if (!x)
    return failure();
  if (!given || given->size() != 1)
    return n.unknown({1}, "an axis");
  std::optional<int64_t> axis = n.axis((*given)[0], rankOf(x));
  if (!axis)
    return failure();
  return n.done(n.e.infer<ScanOp>(x, K, uint64_t(*axis), bool(n.intAttr("exclusive", 0)),
                                  bool(n.intAttr("reverse", 0))));
}

} // namespace

void addReductions(Handlers &h) {
  h["ReduceSum"] = reduction<reduceSum>;
  h["ReduceProd"] = reduction<reduceProd>;
  h["ReduceMean"] = reduction<reduceMean>;
  h["ReduceMax"] = reduction<reduceExtreme<ReduceKind::Max>>;
  h["ReduceMin"] = reduction<reduceExtreme<ReduceKind::Min>>;
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
