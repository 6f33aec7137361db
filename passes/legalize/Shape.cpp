//===- Shape.cpp - sizes, constants and ranges as data ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shape and Size never get here: evaluateOnHost has an answer for every ranked
// operand.
//
//===----------------------------------------------------------------------===//
#include "Node.h"

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
  return n.fail("dtype", "a constant of strings, complex numbers or sparse form",
                "dense numbers and bool");
}

LogicalResult constantOfShape(Node &n) {
  std::optional<HostValue> shape = n.host(0);
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

LogicalResult range(Node &n) {
  Emitter &e = n.e;
  Type element = n.element(0);
  if (!element)
    return failure();
  std::optional<HostValue> from = n.host(0), to = n.host(1), step = n.host(2);
  if (from && to && step && from->values.size() == 1 && to->values.size() == 1 &&
      step->values.size() == 1) {
    std::optional<int64_t> by = step->values[0].constant();
    if (!by || *by == 0)
      return n.fail("shape", "a step that is not a constant", "constant steps other than 0");
    DimExpr span = *by > 0 ? to->values[0] - from->values[0] : from->values[0] - to->values[0];
    DimExpr size = e.clampAtZero(DimExpr::ceilDiv(span, *by > 0 ? *by : -*by));
    Value y = e.iota({size}, 0, element);
    if (*by != 1)
      y = e.mul(y, double(*by));
    if (from->values[0] != DimExpr(0))
      y = e.add(y, e.dimScalar(from->values[0], element));
    return n.done(y);
  }
  std::optional<double> start = n.number(0), limit = n.number(1), delta = n.number(2);
  if (!start || !limit || !delta || *delta == 0)
    return n.unknown({0, 1, 2}, "limits");
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
