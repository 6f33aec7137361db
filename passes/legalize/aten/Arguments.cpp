//===- Arguments.cpp - what torch's operators are given ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

#include "../Legalizer.h"

using namespace mlir;

namespace lathe::legal::aten {

Type resultElement(Node &n, unsigned i) {
  auto type = i < n.numOutputs() ? dyn_cast<RankedTensorType>(n.op->getResult(i).getType())
                                 : RankedTensorType();
  return type ? type.getElementType() : Type();
}

Dims resultDims(Node &n, unsigned i) {
  auto type = i < n.numOutputs() ? dyn_cast<RankedTensorType>(n.op->getResult(i).getType())
                                 : RankedTensorType();
  return type ? dimsOf(type) : Dims();
}

Type computeType(Node &n) {
  if (auto promoted = n.op->getAttrOfType<TypeAttr>("promoted"))
    return promoted.getValue();
  for (unsigned i = 0; i < n.numInputs(); ++i)
    if (n.has(i))
      return n.element(i);
  return resultElement(n);
}

static std::optional<DimExpr> sizeOf(Attribute attr) {
  if (auto dim = dyn_cast_or_null<DimAttr>(attr))
    return dim.expr();
  if (auto flag = dyn_cast_or_null<BoolAttr>(attr))
    return DimExpr(flag.getValue());
  if (auto number = dyn_cast_or_null<IntegerAttr>(attr))
    return DimExpr(number.getInt());
  return std::nullopt;
}

std::optional<DimExpr> size(Node &n, StringRef name) { return sizeOf(n.op->getAttr(name)); }

std::optional<int64_t> integer(Node &n, StringRef name) {
  std::optional<DimExpr> value = size(n, name);
  return value ? value->constant() : std::nullopt;
}

double number(Node &n, StringRef name, double otherwise) {
  if (auto real = n.op->getAttrOfType<FloatAttr>(name))
    return real.getValueAsDouble();
  std::optional<int64_t> whole = integer(n, name);
  return whole ? double(*whole) : otherwise;
}

bool flag(Node &n, StringRef name, bool otherwise) {
  return integer(n, name).value_or(otherwise) != 0;
}

std::optional<Dims> sizes(Node &n, StringRef name) {
  if (auto ints = n.op->getAttrOfType<DenseI64ArrayAttr>(name))
    return Dims(ints.asArrayRef().begin(), ints.asArrayRef().end());
  if (std::optional<DimExpr> one = size(n, name))
    return Dims{*one};
  auto array = n.op->getAttrOfType<ArrayAttr>(name);
  if (!array)
    return std::nullopt;
  Dims dims;
  for (Attribute element : array) {
    std::optional<DimExpr> dim = sizeOf(element);
    if (!dim)
      return std::nullopt;
    dims.push_back(*dim);
  }
  return dims;
}

Ints integers(Node &n, StringRef name) {
  Ints values;
  for (const DimExpr &dim : sizes(n, name).value_or(Dims()))
    values.push_back(dim.constant().value_or(0));
  return values;
}

Ints perDimension(Node &n, StringRef name, size_t count, int64_t otherwise) {
  Ints values = integers(n, name);
  if (values.size() == 1)
    return Ints(count, values[0]);
  return values.size() == count ? values : Ints(count, otherwise);
}

std::optional<int64_t> axisOf(Node &n, StringRef name, int64_t rank, int64_t otherwise) {
  return n.axis(integer(n, name).value_or(otherwise), std::max<int64_t>(rank, 1));
}

std::optional<Ints> axesOf(Node &n, StringRef name, int64_t rank) {
  Ints axes = integers(n, name);
  if (rank == 0)
    return Ints();
  return axes.empty() ? axesFrom(0, rank) : n.axes(axes, rank);
}

Value scalar(Node &n, StringRef name, Type element) {
  if (auto real = n.op->getAttrOfType<FloatAttr>(name))
    return n.e.scalar(
        isFloat(element) ? real.getValueAsDouble() : std::trunc(real.getValueAsDouble()), element);
  if (std::optional<DimExpr> whole = size(n, name)) {
    if (isFloat(element) && !whole->isConstant())
      return n.e.cast(n.e.dimScalar(*whole, n.e.b.getI64Type()), element);
    if (std::optional<int64_t> constant = whole->constant(); constant && isFloat(element))
      return n.e.scalar(double(*constant), element);
    return element.isInteger(1) ? n.e.scalar(whole->constant() != 0, element)
                                : n.e.dimScalar(*whole, element);
  }
  return n.e.fail("the argument '" + name + "' is missing");
}

Value castTo(Emitter &e, Value x, Type element) {
  if (x && element.isInteger(1) && !elementTypeOf(x).isInteger(1))
    return e.compare(x, 0.0, Predicate::Ne);
  return e.cast(x, element);
}

Value operand(Node &n, unsigned i, StringRef name, Type element) {
  if (!n.has(i))
    return scalar(n, name, element);
  return castTo(n.e, n.in(i), element);
}

std::pair<unsigned, unsigned> segment(Node &n, unsigned i) {
  Ints counts = integers(n, "segments");
  unsigned first = 0;
  for (unsigned k = 0; k < i && k < counts.size(); ++k)
    first += unsigned(counts[k]);
  return {first, i < counts.size() ? unsigned(counts[i]) : 0};
}

std::vector<Value> onnxResults(Node &n, StringRef type, ArrayRef<Operand> operands,
                               ArrayRef<NamedAttribute> attributes, unsigned results) {
  std::vector<Value> values;
  for (const Operand &operand : operands) {
    if (!operand.value && !operand.isAbsent)
      return std::vector<Value>(results);
    values.push_back(operand.value);
  }
  while (!values.empty() && !values.back())
    values.pop_back();
  return n.legalizer.compose(n, type, values, attributes, results);
}

Value onnx(Node &n, StringRef type, ArrayRef<Operand> operands,
           ArrayRef<NamedAttribute> attributes) {
  return onnxResults(n, type, operands, attributes, 1)[0];
}

NamedAttribute attr(Node &n, StringRef name, int64_t value) {
  return n.e.b.getNamedAttr(name, n.e.b.getI64IntegerAttr(value));
}
NamedAttribute attr(Node &n, StringRef name, const Ints &values) {
  return n.e.b.getNamedAttr(name, n.e.b.getDenseI64ArrayAttr(values));
}
NamedAttribute real(Node &n, StringRef name, double value) {
  return n.e.b.getNamedAttr(name, n.e.b.getF32FloatAttr(float(value)));
}
NamedAttribute text(Node &n, StringRef name, StringRef value) {
  return n.e.b.getNamedAttr(name, n.e.b.getStringAttr(value));
}

} // namespace lathe::legal::aten
