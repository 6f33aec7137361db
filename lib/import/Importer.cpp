//===- Importer.cpp - plain structs to onnx ops -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Importer.h"

#include "lathe/ir/Onnx.h"

using namespace mlir;

namespace lathe {

using namespace onnxmodel;

Value ImportScope::lookup(StringRef name) const {
  for (const ImportScope *scope = this; scope; scope = scope->parent)
    if (auto it = scope->values.find(name); it != scope->values.end())
      return it->second;
  return {};
}

Type unknownTensor(MLIRContext *context) {
  return UnrankedTensorType::get(Float32Type::get(context));
}

Location Importer::nameLoc(StringRef name) {
  if (fixedLoc)
    return *fixedLoc;
  return NameLoc::get(b.getStringAttr(name));
}

Type elementType(MLIRContext *context, const ValueInfo &info) {
  if (!info.other.empty())
    return {};
  return info.dtype == DType::String ? onnxir::StringType::get(context) : typeOf(context, info.dtype);
}

/// A type for dumps: unknown sizes are `?` without an expression.
static Type plainType(MLIRContext *context, const ValueInfo &info) {
  Type element = elementType(context, info);
  if (!element)
    return unknownTensor(context);
  if (!info.ranked)
    return UnrankedTensorType::get(element);
  SmallVector<int64_t> shape;
  for (const Dim &dim : info.dims)
    shape.push_back(dim.value >= 0 ? dim.value : ShapedType::kDynamic);
  return RankedTensorType::get(shape, element);
}

void Importer::declareTypes(const Graph &graph, ImportScope &scope) {
  for (const auto *infos : {&graph.values, &graph.outputs})
    for (const ValueInfo &info : *infos)
      scope.types[info.name] = plainType(b.getContext(), info);
}

Value Importer::noValue() {
  OperationState state(fixedLoc ? *fixedLoc : b.getUnknownLoc(), "onnx.NoValue");
  state.addTypes(b.getNoneType());
  return b.create(state)->getResult(0);
}

/// Complex numbers and strings stay outside of lathe's constants.
static bool isStorable(DType dtype) {
  return dtype != DType::String && dtype != DType::C64 && dtype != DType::C128;
}

Attribute Importer::tensorAttribute(const Tensor &tensor) {
  if (!isStorable(tensor.dtype)) {
    SmallVector<Attribute> strings;
    for (const std::string &s : tensor.strings)
      strings.push_back(b.getStringAttr(s));
    return b.getDictionaryAttr({b.getNamedAttr("dtype", b.getStringAttr(name(tensor.dtype))),
                                b.getNamedAttr("shape", b.getDenseI64ArrayAttr(tensor.dims)),
                                b.getNamedAttr("strings", b.getArrayAttr(strings))});
  }
  auto type = RankedTensorType::get(tensor.dims, typeOf(b.getContext(), tensor.dtype));
  if (tensor.absent)
    return WeightStore::random(type, tensor.spread);
  if (tensor.bytes.size() <= 256)
    return constantAttr(type, tensor.bytes, weights);
  return weights.add(type, tensor.bytes, tensor.owner);
}

Value Importer::constant(const Tensor &tensor, Location loc) {
  Attribute attr = tensorAttribute(tensor);
  if (auto typed = llvm::dyn_cast<TypedAttr>(attr))
    return ConstantOp::create(b, loc, typed);
  OperationState state(loc, "onnx.Constant");
  state.addAttribute("value", attr);
  state.addTypes(tensor.dtype == DType::String
                     ? RankedTensorType::get(tensor.dims, onnxir::StringType::get(b.getContext()))
                     : unknownTensor(b.getContext()));
  return b.create(state)->getResult(0);
}

Attribute Importer::attribute(const onnxmodel::NodeAttr &attr) {
  using A = onnxmodel::NodeAttr;
  switch (attr.kind) {
  case A::Int:
    return b.getI64IntegerAttr(attr.ints.at(0));
  case A::Float:
    return b.getF32FloatAttr(attr.floats.at(0));
  case A::String:
    return b.getStringAttr(attr.strings.at(0));
  case A::Ints:
    return b.getDenseI64ArrayAttr(attr.ints);
  case A::Floats:
    return b.getDenseF32ArrayAttr(attr.floats);
  case A::Strings: {
    SmallVector<StringRef> strings(attr.strings.begin(), attr.strings.end());
    return b.getStrArrayAttr(strings);
  }
  case A::TensorValue:
    return tensorAttribute(*attr.tensor);
  default:
    return b.getDictionaryAttr(b.getNamedAttr("unreadable", b.getStringAttr(attr.strings.at(0))));
  }
}

Status Importer::nodes(const std::vector<Node> &nodes, ImportScope &scope) {
  for (size_t i = 0; i < nodes.size(); ++i)
    LATHE_RETURN_IF_ERROR(node(nodes[i], i, scope));
  return okStatus();
}

/// The tensor that a Gradient node differentiates, which an attribute names alone; null for other nodes,
/// and where its operands are not the tensors that xs and zs name.
static Value differentiated(const Node &node, const ImportScope &scope) {
  if (node.opType != "Gradient" || node.domain != "ai.onnx.preview.training")
    return {};
  std::string y;
  std::vector<std::string> at, fixed;
  for (const onnxmodel::NodeAttr &attr : node.attributes) {
    if (attr.name == "y" && !attr.strings.empty())
      y = attr.strings.front();
    else if (attr.name == "xs")
      at = attr.strings;
    else if (attr.name == "zs")
      fixed = attr.strings;
  }
  at.insert(at.end(), fixed.begin(), fixed.end());
  return at == node.inputs ? scope.lookup(y) : Value();
}

/// For each input of a graph that is a sequence or an optional of tensors, which its type here does not tell, what the model
/// states of it; of the others nothing. Null where there is none.
static ArrayAttr listArguments(Builder &b, const Graph &graph) {
  SmallVector<Attribute> arguments;
  bool hasAny = false;
  for (const ValueInfo &input : graph.inputs) {
    NamedAttrList stated;
    const ValueInfo *inside = &input;
    for (const char *kind : {"optional", "sequence"})
      if (inside->other == kind && inside->inside) {
        stated.set(kind, b.getUnitAttr());
        inside = inside->inside.get();
      }
    if (stated.empty()) {
      arguments.push_back(b.getDictionaryAttr({}));
      continue;
    }
    hasAny = true;
    if (inside->other.empty())
      stated.set("tensors", TypeAttr::get(plainType(b.getContext(), *inside)));
    arguments.push_back(stated.getDictionary(b.getContext()));
  }
  return hasAny ? b.getArrayAttr(arguments) : ArrayAttr();
}

Status Importer::node(const Node &node, size_t index, ImportScope &scope) {
  std::string label = node.name.empty() ? node.opType + "_" + std::to_string(index) : node.name;
  OperationState state(nameLoc(label), "onnx." + node.opType);
  for (const std::string &input : node.inputs) {
    Value value = input.empty() ? noValue() : scope.lookup(input);
    if (!value)
      return invalidError("the input '" + input + "' has no value", "node '" + label + "'");
    state.addOperands(value);
  }
  if (Value y = differentiated(node, scope))
    state.addOperands(y);
  for (const std::string &output : node.outputs) {
    auto known = scope.types.find(output);
    state.addTypes(!output.empty() && known != scope.types.end() ? known->second
                                                                 : unknownTensor(b.getContext()));
  }
  if (!node.domain.empty())
    state.addAttribute("onnx_domain", b.getStringAttr(node.domain));
  if (node.opset && node.opset != opset)
    state.addAttribute("onnx_opset", b.getI64IntegerAttr(node.opset));
  SmallVector<StringRef> regionNames;
  for (const onnxmodel::NodeAttr &attr : node.attributes) {
    if (attr.name.empty())
      return invalidError("an attribute has no name", "node '" + label + "'");
    if (attr.kind == onnxmodel::NodeAttr::GraphValue) {
      regionNames.push_back(attr.name);
      LATHE_RETURN_IF_ERROR(region(*attr.graph, *state.addRegion(), scope));
      if (ArrayAttr lists = listArguments(b, *attr.graph))
        state.addAttribute("onnx_list_arguments", lists);
    } else {
      state.addAttribute(attr.name, attribute(attr));
    }
  }
  if (!regionNames.empty())
    state.addAttribute("onnx_regions", b.getStrArrayAttr(regionNames));
  Operation *op = b.create(state);
  for (auto [name, result] : llvm::zip(node.outputs, op->getResults()))
    if (!name.empty() && !scope.values.try_emplace(name, result).second)
      return invalidError("the value '" + name + "' is defined twice", "node '" + label + "'");
  return okStatus();
}

Status Importer::region(const Graph &graph, Region &region, const ImportScope &outer) {
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&region);
  ImportScope scope;
  scope.parent = &outer;
  declareTypes(graph, scope);
  for (const ValueInfo &input : graph.inputs)
    scope.values[input.name] =
        block->addArgument(plainType(b.getContext(), input), nameLoc(input.name));
  for (const Tensor &tensor : graph.initializers)
    scope.values[tensor.name] = constant(tensor, nameLoc(tensor.name));
  LATHE_RETURN_IF_ERROR(nodes(graph.nodes, scope));
  OperationState yield(b.getUnknownLoc(), "onnx.Yield");
  for (const ValueInfo &output : graph.outputs) {
    Value value = scope.lookup(output.name);
    if (!value)
      return invalidError("the output '" + output.name + "' has no value",
                          "graph '" + graph.name + "'");
    yield.addOperands(value);
  }
  b.create(yield);
  return okStatus();
}

} // namespace lathe
