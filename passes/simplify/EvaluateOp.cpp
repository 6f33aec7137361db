//===- EvaluateOp.cpp - a lathe op through the reference ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/passes/EvaluateOp.h"

#include "lathe/ir/Collective.h"
#include "lathe/ir/WeightStore.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lathe {

namespace {

using Symbols = std::map<std::string, int64_t>;

Result<reference::Attribute> convert(Attribute attr, const Symbols &symbols) {
  if (auto flag = dyn_cast<BoolAttr>(attr))
    return reference::Attribute(int64_t(flag.getValue()));
  if (auto integer = dyn_cast<IntegerAttr>(attr))
    return reference::Attribute(integer.getInt());
  if (isa<UnitAttr>(attr))
    return reference::Attribute(int64_t(1));
  if (auto real = dyn_cast<FloatAttr>(attr))
    return reference::Attribute(real.getValueAsDouble());
  if (auto text = dyn_cast<StringAttr>(attr))
    return reference::Attribute(text.str());
  if (auto list = dyn_cast<DenseI64ArrayAttr>(attr))
    return reference::Attribute(std::vector<int64_t>(list.asArrayRef()));
  if (auto segments = dyn_cast<DenseI32ArrayAttr>(attr))
    return reference::Attribute(
        std::vector<int64_t>(segments.asArrayRef().begin(), segments.asArrayRef().end()));
  if (auto kind = dyn_cast<ReduceKindAttr>(attr))
    return reference::Attribute(stringifyReduceKind(kind.getValue()).str());
  if (auto predicate = dyn_cast<PredicateAttr>(attr))
    return reference::Attribute(stringifyPredicate(predicate.getValue()).str());
  if (auto kind = dyn_cast<PoolKindAttr>(attr))
    return reference::Attribute(stringifyPoolKind(kind.getValue()).str());
  if (auto mode = dyn_cast<PadModeAttr>(attr))
    return reference::Attribute(stringifyPadMode(mode.getValue()).str());
  if (auto layout = dyn_cast<ConvLayoutAttr>(attr))
    return reference::Attribute(stringifyConvLayout(layout.getValue()).str());
  if (auto dim = dyn_cast<DimAttr>(attr)) {
    auto value = dim.expr().evaluate(symbols);
    return value.ok() ? Result<reference::Attribute>(reference::Attribute(*value)) : value.status();
  }
  if (auto list = dyn_cast<ArrayAttr>(attr)) {
    std::vector<int64_t> values;
    for (Attribute item : list) {
      auto dim = dyn_cast<DimAttr>(item);
      if (!dim)
        return unsupportedError("an attribute that is no list of sizes");
      auto value = dim.expr().evaluate(symbols);
      if (!value.ok())
        return value.status();
      values.push_back(*value);
    }
    return reference::Attribute(std::move(values));
  }
  return unsupportedError("an attribute that the reference has no form for");
}

Result<std::vector<int64_t>> sizesOf(Type type, const Symbols &symbols) {
  std::vector<int64_t> sizes;
  for (const DimExpr &dim : dimsOf(type)) {
    auto value = dim.evaluate(symbols);
    if (!value.ok())
      return value.status();
    sizes.push_back(*value);
  }
  return sizes;
}

} // namespace

Result<HostTensor> hostTensorOf(Attribute value, Type type, MLIRContext *context,
                                std::optional<int64_t> rank) {
  auto tensor = cast<TensorType>(type);
  std::optional<DType> dtype = dtypeOf(tensor.getElementType());
  if (!dtype || !tensor.hasStaticShape())
    return unsupportedError("a constant without a storable element type");
  WeightStore &store = context->getLoadedDialect<LatheDialect>()->weights();
  auto sharded = dyn_cast<ShardedAttr>(value);
  auto bytes = sharded && rank ? shardBytes(sharded, *rank, store) : constantBytes(value, store);
  if (!bytes.ok())
    return bytes.status();
  HostTensor host(*dtype, std::vector<int64_t>(tensor.getShape()));
  if (bytes->size() != host.data.size())
    return invalidError("a constant of " + std::to_string(bytes->size()) + " bytes where " +
                        std::to_string(host.data.size()) + " are needed");
  host.data = std::move(*bytes);
  return host;
}

Result<std::vector<HostTensor>> evaluateOp(Operation *op, std::span<const HostTensor> inputs,
                                           const Symbols &symbols) {
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    auto value = hostTensorOf(constant.getValue(), constant.getType(), op->getContext());
    if (!value.ok())
      return value.status();
    return std::vector<HostTensor>{std::move(*value)};
  }
  reference::Attributes attributes;
  for (NamedAttribute attr : op->getAttrs()) {
    auto converted = convert(attr.getValue(), symbols);
    if (!converted.ok())
      return converted.status();
    attributes.emplace(attr.getName().str(), std::move(*converted));
  }
  std::vector<reference::TensorType> results;
  for (Type type : op->getResultTypes()) {
    auto dtype = dtypeOf(cast<TensorType>(type).getElementType());
    auto sizes = sizesOf(type, symbols);
    if (!dtype || !sizes.ok())
      return sizes.ok() ? unsupportedError("a result type that the reference does not know")
                        : sizes.status();
    results.push_back({*dtype, *sizes});
  }
  return reference::evaluate(std::string_view(op->getName().stripDialect()), attributes, inputs,
                             results);
}

Result<std::vector<HostTensor>> evaluateRegion(Block &body, std::span<const HostTensor> inputs,
                                               const Symbols &symbols) {
  if (inputs.size() != body.getNumArguments())
    return usageError("as many tensors as block arguments are needed");
  llvm::DenseMap<Value, HostTensor> values;
  for (auto [argument, input] : llvm::zip(body.getArguments(), inputs))
    values[argument] = input;
  auto operandsOf = [&](Operation *op) {
    std::vector<HostTensor> operands;
    for (Value operand : op->getOperands())
      operands.push_back(values.at(operand));
    return operands;
  };
  for (Operation &op : body.without_terminator()) {
    auto results = evaluateOp(&op, operandsOf(&op), symbols);
    if (!results.ok())
      return results.status();
    for (auto [result, value] : llvm::zip(op.getResults(), *results))
      values[result] = std::move(value);
  }
  return operandsOf(body.getTerminator());
}

} // namespace lathe
