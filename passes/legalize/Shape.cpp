//===- Shape.cpp - sizes, constants and ranges as data ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shape and Size never get here: evaluateOnHost has an answer for every ranked
// operand.
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"
#include "Strings.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {
namespace {

LogicalResult constant(Node &n) {
  Emitter &e = n.e;
  MLIRContext *context = n.op->getContext();
  if (auto value = dyn_cast_or_null<TypedAttr>(n.op->getAttr("value")))
    if (isa<RankedTensorType>(value.getType()))
      return n.done(ConstantOp::create(e.b, e.loc, value).getResult());
  if (n.hasAttr("value_int"))
    return n.done(e.ints({n.intAttr("value_int", 0)}, {}, e.b.getI64Type()));
  if (std::optional<Ints> list = n.intsAttr("value_ints"))
    return n.done(e.ints(*list, {int64_t(list->size())}, e.b.getI64Type()));
  if (n.hasAttr("value_float"))
    return n.done(e.scalar(n.floatAttr("value_float", 0), Float32Type::get(context)));
  if (std::optional<std::vector<double>> list = n.floatsAttr("value_floats"))
    return n.done(e.floats(*list, {int64_t(list->size())}, Float32Type::get(context)));
  for (StringRef name : {"value", "value_strings", "value_string"}) {
    Attribute attr = n.op->getAttr(name);
    auto tensor = dyn_cast_or_null<DictionaryAttr>(attr);
    auto text = dyn_cast_or_null<StringAttr>(attr);
    std::optional<Ints> numbers = text ? numbersOfStrings(n, {text.str()}) : stringsAttr(n, name);
    if (n.reported)
      return failure();
    if (!numbers)
      continue;
    auto shape = tensor ? tensor.getAs<DenseI64ArrayAttr>("shape") : DenseI64ArrayAttr();
    Ints dims = shape ? shape.asArrayRef().vec() : text ? Ints() : Ints{int64_t(numbers->size())};
    return n.setStrings(0, e.ints(*numbers, dims, e.b.getI64Type()));
  }
  return n.fail("dtype", "a constant of complex numbers or sparse form", "dense numbers, bool and strings");
}

LogicalResult constantOfShape(Node &n) {
  std::optional<HostValue> shape = n.bound(0, 0);
  if (!shape)
    return n.unknown({0}, "a shape");
  Value number = n.e.scalar(0, n.e.b.getF32Type());
  if (auto value = n.op->getAttrOfType<DenseElementsAttr>("value")) {
    if (value.getNumElements() != 1)
      return n.invalid("attribute", "the value has more than one element");
    number = ConstantOp::create(
        n.e.b, n.e.loc,
        cast<TypedAttr>(value.reshape(RankedTensorType::get({}, value.getElementType()))));
  }
  return n.done(n.e.broadcastTo(number, shape->values));
}

/// As many numbers from 0 on does a floating-point type hold all of; any, where it is none.
int64_t wholeNumbers(Type element) {
  auto real = dyn_cast<FloatType>(element);
  return real ? int64_t(1) << real.getFPMantissaWidth() : DimRange::kUnbounded;
}

LogicalResult range(Node &n) {
  Emitter &e = n.e;
  Type element = n.element(0);
  if (!element)
    return failure();
  // Only onnxruntime's own Range may leave the step out.
  std::optional<DimExpr> from = n.whole(0), to = n.whole(1),
                         step = n.has(2) ? n.whole(2) : DimExpr(1);
  if (from && to && step) {
    std::optional<int64_t> by = step->constant();
    if (by && *by == 0)
      return n.invalid("attribute", "a step of 0");
    DimExpr size = e.clampAtZero(by ? DimExpr::ceilDiv(*by > 0 ? *to - *from : *from - *to,
                                                       *by > 0 ? *by : -*by)
                                    : DimExpr::ceilDiv(*to - *from, *step));
    // A value that may be negative: the size gets a name of its own. A step of 0 has no size.
    if (llvm::any_of(ArrayRef{*from, *to, *step},
                     [&](const DimExpr &d) { return n.legalizer.isRunTimeValue(d); }))
      size = n.derive("size", size, {0, wholeNumbers(element)});
    Value y = e.iota({size}, 0, element);
    if (*step != DimExpr(1))
      y = e.mul(y, e.dimScalar(*step, element));
    if (*from != DimExpr(0))
      y = e.add(y, e.dimScalar(*from, element));
    return n.done(y);
  }
  auto number = [&](unsigned i, const std::optional<DimExpr> &whole) {
    std::optional<double> value = n.number(i);
    return !value && whole && whole->constant() ? double(*whole->constant()) : value;
  };
  std::optional<double> start = number(0, from), limit = number(1, to), delta = n.has(2) ? number(2, step) : 1.0;
  if (delta && *delta == 0)
    return n.invalid("attribute", "a step of 0");
  if (start && std::abs(*start) < 1e9 && to && !limit && delta == 1.0) { // as the middles of pixels, from 0.5 on
    DimExpr size = e.clampAtZero(*to - DimExpr(int64_t(std::floor(*start))));
    if (n.legalizer.isRunTimeValue(*to))
      size = n.derive("size", size, {0, wholeNumbers(element)});
    return n.done(e.add(e.iota({size}, 0, element), e.scalar(*start, element)));
  }
  if (!start || !limit || !delta) {
    if (!isa<FloatType>(element))
      return n.unknown({0, 1, 2}, "limits");
    auto scalar = [&](unsigned i) { return n.has(i) ? e.reshape(n.in(i), {}) : e.scalar(1, element); };
    Value first = scalar(0), end = scalar(1), by = scalar(2);
    // What is no number, as of a step of 0, becomes the least integer: no elements.
    Value steps = e.unary<CeilOp>(e.div(e.sub(end, first), by));
    Value count = e.max(e.cast(steps, e.b.getI64Type()), 0.0);
    if (!count)
      return failure();
    DimExpr size = n.sizeOf(count, std::nullopt);
    return n.done(e.add(e.mul(e.iota({size}, 0, element), by), first));
  }
  int64_t size = std::max<int64_t>(0, int64_t(std::ceil((*limit - *start) / *delta)));
  Value y = e.mul(e.iota({size}, 0, element), e.scalar(*delta, element));
  return n.done(e.add(y, e.scalar(*start, element)));
}

} // namespace

void addShapes(Handlers &h) {
  h["Constant"] = constant;
  h["ConstantOfShape"] = constantOfShape;
  h["Range"] = range;
}

} // namespace lathe::legal
