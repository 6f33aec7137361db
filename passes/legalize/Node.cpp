//===- Node.cpp - one ONNX node, as its handler sees it ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Node.h"

#include "Legalizer.h"

#include "lathe/ir/Aten.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace lathe::legal {

std::optional<Ints> HostValue::constants() const {
  Ints out;
  for (const DimExpr &value : values) {
    std::optional<int64_t> constant = value.constant();
    if (!constant)
      return std::nullopt;
    out.push_back(*constant);
  }
  return out;
}

Tracked Tracked::sequence(std::vector<Tracked> elements) {
  Tracked result;
  result.isSequence = true;
  result.elements = std::move(elements);
  return result;
}

Node::Node(Legalizer &l, Operation *operation)
    : op(operation), legalizer(l), e(l.e), type(operation->getName().stripDialect()),
      opset(l.opsetOf(operation)) {
  if (atenir::AtenDialect::isAten(op))
    domain = kAtenDomain;
  else if (auto attr = op->getAttrOfType<StringAttr>("onnx_domain"))
    domain = attr.getValue();
}

bool Node::has(unsigned i) const {
  return i < numInputs() && !isa<NoneType>(op->getOperand(i).getType());
}

Value Node::in(unsigned i) {
  if (!has(i))
    return e.fail("operand " + llvm::Twine(i) + " is missing");
  Value value = legalizer.data(op->getOperand(i));
  if (!value)
    return e.fail("operand " + llvm::Twine(i) +
                  " is not a tensor of a known rank and element type");
  return value;
}

Dims Node::dims(unsigned i) {
  Tracked &tracked = legalizer.track(op->getOperand(i));
  if (tracked.data)
    return dimsOf(tracked.data);
  if (tracked.host)
    return Dims(tracked.host->shape.begin(), tracked.host->shape.end());
  return {};
}

int64_t Node::rank(unsigned i) { return dims(i).size(); }

Type Node::element(unsigned i) {
  Tracked &tracked = legalizer.track(op->getOperand(i));
  return tracked.data ? elementTypeOf(tracked.data) : tracked.host ? tracked.host->element : Type();
}

std::optional<HostValue> Node::host(unsigned i) {
  return has(i) ? legalizer.host(op->getOperand(i)) : std::nullopt;
}

std::optional<Ints> Node::ints(unsigned i) {
  std::optional<HostValue> known = host(i);
  return known ? known->constants() : std::nullopt;
}

std::optional<double> Node::number(unsigned i) {
  if (std::optional<Ints> known = ints(i); known && known->size() == 1)
    return double((*known)[0]);
  if (!has(i))
    return std::nullopt;
  DenseElementsAttr elements;
  Value value = legalizer.track(op->getOperand(i)).data;
  if (!value || !matchPattern(value, m_Constant(&elements)) || elements.getNumElements() != 1 ||
      !isa<FloatType>(elements.getElementType()))
    return std::nullopt;
  APFloat number = *elements.value_begin<APFloat>();
  bool lost;
  number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
  return number.convertToDouble();
}

int64_t Node::intAttr(StringRef name, int64_t otherwise) {
  auto attr = op->getAttrOfType<IntegerAttr>(name);
  return attr ? attr.getInt() : otherwise;
}
double Node::floatAttr(StringRef name, double otherwise) {
  auto attr = op->getAttrOfType<FloatAttr>(name);
  return attr ? attr.getValueAsDouble() : otherwise;
}
std::string Node::strAttr(StringRef name, StringRef otherwise) {
  auto attr = op->getAttrOfType<StringAttr>(name);
  return attr ? attr.str() : otherwise.str();
}
std::optional<Ints> Node::intsAttr(StringRef name) {
  auto attr = op->getAttrOfType<DenseI64ArrayAttr>(name);
  return attr ? std::optional(attr.asArrayRef().vec()) : std::nullopt;
}
std::optional<std::vector<double>> Node::floatsAttr(StringRef name) {
  auto attr = op->getAttrOfType<DenseF32ArrayAttr>(name);
  if (!attr)
    return std::nullopt;
  return std::vector<double>(attr.asArrayRef().begin(), attr.asArrayRef().end());
}

LogicalResult Node::set(unsigned i, Value value) {
  if (!value)
    return failure();
  if (i < numOutputs())
    legalizer.track(op->getResult(i)).data = value;
  return success();
}

LogicalResult Node::setHost(unsigned i, HostValue value) {
  if (i < numOutputs()) {
    Tracked &tracked = legalizer.track(op->getResult(i));
    tracked.host = std::move(value);
    tracked.data = {};
  }
  return success();
}

LogicalResult Node::setTracked(unsigned i, Tracked value) {
  if (i < numOutputs())
    legalizer.track(op->getResult(i)) = std::move(value);
  return success();
}

const Tracked &Node::tracked(unsigned i) { return legalizer.track(op->getOperand(i)); }

std::optional<std::vector<Tracked>> Node::sequence(unsigned i) {
  if (has(i) && tracked(i).isSequence)
    return tracked(i).elements;
  (void)fail("dtype", "operand " + llvm::Twine(i) + " is no sequence whose length is known",
             "sequences that the model makes itself");
  return std::nullopt;
}

std::optional<int64_t> Node::axis(int64_t value, int64_t rank) {
  int64_t result = value < 0 ? value + rank : value;
  if (result >= 0 && result < rank)
    return result;
  (void)invalid("attribute",
                "axis " + llvm::Twine(value) + " is outside rank " + llvm::Twine(rank));
  return std::nullopt;
}

std::optional<Ints> Node::axes(ArrayRef<int64_t> values, int64_t rank) {
  Ints result;
  for (int64_t value : values) {
    std::optional<int64_t> one = axis(value, rank);
    if (!one)
      return std::nullopt;
    result.push_back(*one);
  }
  llvm::sort(result);
  if (std::adjacent_find(result.begin(), result.end()) != result.end()) {
    (void)invalid("attribute", "an axis occurs twice");
    return std::nullopt;
  }
  return result;
}

bool Node::unify(const DimExpr &a, const DimExpr &b) {
  return legalizer.unify(a, b) || !a.isConstant() || !b.isConstant();
}

LogicalResult Node::fail(StringRef cause, llvm::Twine message, llvm::Twine nearest,
                         llvm::Twine remedy) {
  if (!reported)
    legalizer.report(*this, cause, message.str(), nearest.str(), remedy.str(), false);
  reported = true;
  return failure();
}

LogicalResult Node::unknown(ArrayRef<unsigned> operands, llvm::Twine what) {
  if (reported)
    return failure();
  UnsupportedNode &entry =
      legalizer.report(*this, "shape", (what + " known at run time only").str(),
                       "values that follow from sizes of the inputs or from constants",
                       "make it an initializer, or give its value when compiling", false);
  for (unsigned i : operands)
    if (std::optional<HostValue> known = host(i);
        has(i) && (!known || llvm::any_of(known->values, [&](const DimExpr &value) {
          return legalizer.isRunTimeValue(value);
        })))
      legalizer.inputsBehind(op->getOperand(i), entry.needs);
  reported = true;
  return failure();
}

LogicalResult Node::invalid(StringRef cause, llvm::Twine message) {
  if (!reported)
    legalizer.report(*this, cause, message.str(), "", "", true);
  reported = true;
  return failure();
}

} // namespace lathe::legal
