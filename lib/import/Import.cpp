//===- Import.cpp - from an ONNX file to a module ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/Import.h"

#include "Importer.h"
#include "OnnxLoad.h"
#include "RandomSpread.h"

#include "lathe/ir/Collective.h"
#include "lathe/ir/Onnx.h"
#include "lathe/support/Strings.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;

namespace lathe {

using namespace onnxmodel;

namespace {

bool isIdentifier(StringRef text) {
  return !text.empty() && (llvm::isAlpha(text[0]) || text[0] == '_') &&
         llvm::all_of(text, [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

/// Gives every unknown dimension of an input its symbol.
class Symbols {
public:
  Symbols(OpBuilder &builder, Location loc) : b(builder), loc(loc) {}

  /// Names that identifiers of the model take; fresh ones avoid them.
  void reserve(const ValueInfo &input) {
    for (const Dim &dim : input.dims)
      if (dim.value < 0 && isNamed(dim))
        taken.insert(dim.param);
  }

  DimExpr dimension(const ValueInfo &input, size_t axis) {
    const Dim &dim = input.dims[axis];
    if (dim.value >= 0)
      return dim.value;
    std::string origin = input.name + "[" + std::to_string(axis) + "]";
    std::string name = isNamed(dim) ? dim.param : fresh(input.name, axis);
    if (made.insert(name).second)
      SymbolOp::create(b, loc, name, 0, -1, axis == 0 ? 1 : 128, 1, origin, DimAttr());
    return DimExpr::symbol(name);
  }

private:
  /// `main` is the entry's name in the same symbol table; `_` means unknown.
  static bool isNamed(const Dim &dim) {
    return isIdentifier(dim.param) && dim.param != "main" && dim.param != "_";
  }
  std::string fresh(StringRef input, size_t axis) {
    std::string base;
    for (char c : input)
      base.push_back(llvm::isAlnum(c) ? c : '_');
    if (base.empty() || llvm::isDigit(base[0]))
      base.insert(0, "d");
    base += "_" + std::to_string(axis);
    std::string name = base;
    for (int i = 1; !taken.insert(name).second; ++i)
      name = base + "_" + std::to_string(i);
    return name;
  }

  OpBuilder &b;
  Location loc;
  std::set<std::string> taken, made;
};

/// "B", "S + P" or "512" for each dimension the model states of an output.
ArrayAttr statedDims(OpBuilder &b, const ValueInfo &info) {
  SmallVector<Attribute> dims;
  for (const Dim &dim : info.dims)
    dims.push_back(b.getStringAttr(dim.value >= 0 ? std::to_string(dim.value) : dim.param));
  return b.getArrayAttr(dims);
}

/// A given value in place of an input of this type.
Result<Tensor> constantFor(const ValueInfo &input, const HostTensor &value) {
  std::string place = "constant " + input.name;
  bool fits = input.other.empty() && input.dtype == value.dtype &&
              (!input.ranked || input.dims.size() == value.dims.size());
  for (size_t d = 0; fits && input.ranked && d < value.dims.size(); ++d)
    fits = input.dims[d].value < 0 || input.dims[d].value == value.dims[d];
  if (!fits)
    return usageError("the value has another type or shape than the input", place);
  auto owner = std::make_shared<std::vector<std::byte>>(value.data);
  Tensor tensor;
  tensor.name = input.name;
  tensor.dtype = value.dtype;
  tensor.dims = value.dims;
  tensor.bytes = *owner;
  tensor.owner = owner;
  if (value.dtype == DType::String) {
    Result<std::vector<std::string_view>> texts = stringsOf(value);
    if (!texts)
      return Status(texts.status().code(), texts.status().message(), place);
    tensor.strings.assign(texts->begin(), texts->end());
  }
  return tensor;
}

/// The name of the sequence that x[2] is a tensor of; the name itself where it is of none.
std::string sequenceOf(const std::string &name) {
  size_t bracket = name.ends_with(']') ? name.rfind('[') : std::string::npos;
  return name.substr(0, bracket);
}

/// Moves inputs with given values to the initializers. Those of tensors in a sequence or an optional stay for buildModule.
Status applyConstants(Graph &graph, const ImportOptions &options) {
  for (const auto &[name, value] : options.constants) {
    auto input =
        llvm::find_if(graph.inputs, [&](const ValueInfo &info) { return info.name == name; });
    if (input == graph.inputs.end() || (input->other == "optional" && options.shapes.count(name))) {
      // The tensors that a sequence has are told by its length.
      bool isInside = llvm::any_of(graph.inputs, [&](const ValueInfo &info) {
        return info.name == sequenceOf(name) && (info.other == "sequence" || info.other == "optional");
      });
      if (isInside)
        continue;
      return usageError("the model has no input of this name", "constant " + name);
    }
    Result<Tensor> tensor = constantFor(*input, value);
    if (!tensor)
      return tensor.status();
    graph.initializers.push_back(std::move(*tensor));
    graph.inputs.erase(input);
  }
  return okStatus();
}

/// A graph input as inputs of the entry: itself, or the tensors of a sequence, an optional or a map, which
/// `op` makes of them.
struct EntryInputs {
  std::vector<ValueInfo> tensors;
  StringRef op;
  /// Of a list: sizes of each of its tensors that the model states, -1 of those that it does not; and whether it is an
  /// optional of one tensor.
  std::optional<std::vector<int64_t>> dims;
  bool isSingle = false;
};

/// x.keys and x.values: vectors of as many elements as the map has entries.
EntryInputs mapInputs(const ValueInfo &input) {
  EntryInputs result{{input, *input.inside}, "onnx.MapConstruct"};
  result.tensors[0].name = input.name + ".keys";
  result.tensors[1].name = input.name + ".values";
  for (ValueInfo &tensor : result.tensors) {
    tensor.other.clear();
    tensor.inside.reset();
    tensor.ranked = true;
    tensor.dims.assign(1, Dim());
    tensor.dims[0].param = input.name + "_entries";
  }
  return result;
}

/// x[] and x[].shapes, and of an optional sequence x[].present: a list of any length.
EntryInputs listInputs(const ValueInfo &input, const ValueInfo &element, bool isOptional) {
  auto tensor = [&](const char *part, DType dtype, size_t rank) {
    ValueInfo info;
    info.name = input.name + "[]" + part;
    info.dtype = dtype;
    info.ranked = true;
    info.dims.assign(rank, Dim());
    for (Dim &dim : info.dims)
      dim.value = -1;
    return info;
  };
  EntryInputs result{{tensor("", element.dtype, 1), tensor(".shapes", DType::I64, 2)}, "onnx.ListConstruct"};
  result.isSingle = isOptional && &element == input.inside.get();
  if (isOptional && !result.isSingle)
    result.tensors.push_back(tensor(".present", DType::Bool, 0));
  if (element.ranked) {
    result.dims.emplace();
    for (const Dim &dim : element.dims)
      result.dims->push_back(std::max<int64_t>(dim.value, -1));
  }
  return result;
}

Result<EntryInputs> entryInputs(const ValueInfo &input, const ImportOptions &options) {
  if (input.other == "map" && input.inside && input.inside->other.empty())
    return mapInputs(input);
  const ValueInfo *type = &input;
  bool isOptional = input.other == "optional" && input.inside;
  if (isOptional)
    type = input.inside.get();
  bool isSequence = type->other == "sequence" && type->inside;
  auto length = options.lengths.find(input.name);
  if (length == options.lengths.end()) {
    if (isOptional && !isSequence && options.shapes.count(input.name))
      return EntryInputs{{*type}, "onnx.Optional"};
    const ValueInfo *element = isSequence ? type->inside.get() : isOptional ? type : nullptr;
    if (element && element->other.empty())
      return listInputs(input, *element, isOptional);
    return EntryInputs{{input}, ""};
  }
  if (!length->second) {
    if (!isOptional)
      return usageError("the input is no optional", "--shape " + input.name);
    return EntryInputs{{}, "onnx.Optional"};
  }
  if (!isSequence)
    return usageError("the input is no sequence", "--shape " + input.name);
  EntryInputs result{{}, "onnx.SequenceConstruct"};
  for (int64_t i = 0; i < *length->second; ++i) {
    result.tensors.push_back(*type->inside);
    result.tensors.back().name = input.name + "[" + std::to_string(i) + "]";
    // One name for a size of all elements says nothing: each has its own.
    for (Dim &dim : result.tensors.back().dims)
      dim.param.clear();
  }
  return result;
}

/// Whether a tensor of a sequence or an optional has a given value.
bool isInsideConstant(const EntryInputs &input, const ValueInfo &tensor, const ImportOptions &options) {
  return !input.op.empty() && options.constants.count(tensor.name);
}

Status buildModule(ModuleOp module, const Model &model, const ImportOptions &options) {
  MLIRContext *context = module.getContext();
  OpBuilder b(context);
  b.setInsertionPointToEnd(module.getBody());
  WeightStore &weights = context->getOrLoadDialect<LatheDialect>()->weights();
  const Graph &graph = model.graph;
  auto opset = model.opsets.find("");
  int64_t version = opset == model.opsets.end() ? kImportOpset : opset->second;
  module->setAttr("onnx.opset", b.getI64IntegerAttr(version));
  if (model.sourceOpset != version && model.sourceOpset)
    module->setAttr("onnx.source_opset", b.getI64IntegerAttr(model.sourceOpset));
  NamedAttrList domains;
  for (const auto &[domain, imported] : model.opsets)
    if (!domain.empty())
      domains.set(domain, b.getI64IntegerAttr(imported));
  if (!domains.empty())
    module->setAttr("onnx.domain_opsets", domains.getDictionary(context));
  if (!model.notes.empty())
    module->setAttr("onnx.notes", b.getStrArrayAttr(SmallVector<StringRef>(model.notes.begin(),
                                                                           model.notes.end())));

  if (!model.shardings.empty())
    module->setAttr(kShardingsAttr, b.getStrArrayAttr(SmallVector<StringRef>(model.shardings.begin(),
                                                                            model.shardings.end())));

  Symbols symbols(b, module.getLoc());
  std::vector<EntryInputs> given;
  std::vector<ValueInfo> inputs;
  for (const ValueInfo &input : graph.inputs) {
    symbols.reserve(input);
    Result<EntryInputs> one = entryInputs(input, options);
    if (!one)
      return one.status();
    for (const ValueInfo &tensor : one->tensors)
      if (!isInsideConstant(*one, tensor, options))
        inputs.push_back(tensor);
    given.push_back(std::move(*one));
  }
  for (const auto &constant : options.constants) {
    const std::string &name = constant.first;
    if (sequenceOf(name) != name && llvm::none_of(given, [&](const EntryInputs &one) {
          return llvm::any_of(one.tensors, [&](const ValueInfo &tensor) { return tensor.name == name; });
        }))
      return usageError("the sequence has no such tensor; --shape says how many it has", "constant " + name);
  }
  for (const auto &[name, length] : options.lengths)
    if (llvm::none_of(graph.inputs, [&](const ValueInfo &input) { return input.name == name; }))
      return usageError("the model has no input of this name", "--shape " + name);
  SmallVector<Type> arguments;
  SmallVector<DictionaryAttr> argumentAttrs;
  for (const ValueInfo &input : inputs) {
    Type element = elementType(context, input);
    NamedAttrList attrs;
    attrs.set("lathe.name", b.getStringAttr(input.name));
    if (!element) {
      // Legalize reports what uses it; the argument says what it was.
      attrs.set("lathe.onnx_type", b.getStringAttr(input.other));
      arguments.push_back(unknownTensor(context));
    } else if (!input.ranked) {
      arguments.push_back(UnrankedTensorType::get(element));
    } else {
      std::vector<DimExpr> dims;
      for (size_t axis = 0; axis < input.dims.size(); ++axis)
        dims.push_back(symbols.dimension(input, axis));
      arguments.push_back(tensorType(element, dims));
    }
    argumentAttrs.push_back(attrs.getDictionary(context));
  }

  auto func = func::FuncOp::create(
      b, module.getLoc(), "main", b.getFunctionType(arguments, {}),
      ArrayRef<NamedAttribute>(b.getNamedAttr("lathe.entry", b.getUnitAttr())), argumentAttrs);
  Block *entry = func.addEntryBlock();
  b.setInsertionPointToStart(entry);
  Importer importer(b, weights);
  importer.opset = version;
  ImportScope scope;
  importer.declareTypes(graph, scope);
  unsigned next = 0;
  for (auto [input, one] : llvm::zip(graph.inputs, given)) {
    SmallVector<Value> tensors;
    for (const ValueInfo &tensor : one.tensors) {
      if (!isInsideConstant(one, tensor, options)) {
        tensors.push_back(entry->getArgument(next++));
        continue;
      }
      Result<Tensor> constant = constantFor(tensor, options.constants.at(tensor.name));
      if (!constant)
        return constant.status();
      tensors.push_back(importer.constant(*constant, importer.nameLoc(tensor.name)));
    }
    Value value;
    if (one.op.empty()) {
      value = tensors.front();
    } else {
      OperationState state(importer.nameLoc(input.name), one.op);
      state.addOperands(tensors);
      state.addTypes(unknownTensor(context));
      if (one.dims)
        state.addAttribute("dims", b.getDenseI64ArrayAttr(*one.dims));
      if (one.isSingle)
        state.addAttribute("single", b.getI64IntegerAttr(1));
      value = b.create(state)->getResult(0);
    }
    if (!scope.values.try_emplace(input.name, value).second)
      return invalidError("two inputs have this name", "input '" + input.name + "'");
  }
  std::set<std::string> used;
  std::function<void(const Graph &)> collect = [&](const Graph &g) {
    for (const Node &node : g.nodes) {
      used.insert(node.inputs.begin(), node.inputs.end());
      for (const onnxmodel::NodeAttr &attr : node.attributes)
        if (attr.graph)
          collect(*attr.graph);
    }
    for (const ValueInfo &output : g.outputs)
      used.insert(output.name);
  };
  collect(graph);
  for (const Tensor &tensor : graph.initializers)
    if (used.count(tensor.name))
      scope.values[tensor.name] = importer.constant(tensor, importer.nameLoc(tensor.name));
  LATHE_RETURN_IF_ERROR(importer.nodes(graph.nodes, scope));

  SmallVector<Value> results;
  SmallVector<Attribute> resultAttrs;
  for (const ValueInfo &output : graph.outputs) {
    Value value = scope.lookup(output.name);
    if (!value)
      return invalidError("the output has no value", "output '" + output.name + "'");
    results.push_back(value);
    NamedAttrList attrs;
    attrs.set("lathe.name", b.getStringAttr(output.name));
    if (output.ranked)
      attrs.set("lathe.stated", statedDims(b, output));
    resultAttrs.push_back(attrs.getDictionary(context));
  }
  func::ReturnOp::create(b, module.getLoc(), results);
  func.setFunctionType(b.getFunctionType(arguments, ValueRange(results).getTypes()));
  func.setResAttrsAttr(b.getArrayAttr(resultAttrs));
  return okStatus();
}

} // namespace

Result<OwningOpRef<ModuleOp>> importOnnx(MLIRContext &context, StringRef path,
                                         const ImportOptions &options) {
  context.loadDialect<LatheDialect, onnxir::OnnxDialect, func::FuncDialect>();
  Result<Model> model =
      loadModel(path.str(), options.convert ? kImportOpset : 0, options.maxFileBytes,
                options.randomWeights.has_value(), options.shapes);
  if (!model)
    return model.status();
  uint64_t randomBytes =
      options.randomWeights ? spreadAbsentWeights(model->graph, *options.randomWeights) : 0;
  if (Status applied = applyConstants(model->graph, options); !applied.ok())
    return applied;
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  std::string file = llvm::StringRef(path).rsplit('/').second.str();
  if (file.empty())
    file = path.str();
  if (randomBytes)
    mlir::emitWarning(NameLoc::get(StringAttr::get(&context, file)))
        << randomBytes << " bytes of weights are absent and made from seed "
        << *options.randomWeights;
  if (Status built = buildModule(*module, *model, options); !built.ok())
    return Status(built.code(), built.message(), file + ": " + built.location());
  LATHE_RETURN_IF_ERROR(bindDims(*module, options));
  if (failed(verify(*module)))
    return internalError("the imported module does not verify", file);
  return std::move(module);
}

Result<std::optional<std::vector<Value>>>
expandFunctionBody(Operation *op, ArrayRef<Type> operandTypes, OpBuilder &builder) {
  using Values = std::optional<std::vector<Value>>;
  if (op->getNumRegions() != 0)
    return Values(); // graphs as attributes are not carried back
  auto module = op->getParentOfType<ModuleOp>();
  int64_t opset = onnxOpset(op, module), moduleOpset = onnxOpset(module, "");
  Node node;
  node.opType = op->getName().stripDialect().str();
  if (auto domain = op->getAttrOfType<StringAttr>("onnx_domain"))
    node.domain = domain.str();
  ImportScope scope;
  std::vector<ValueInfo> types;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    auto tensor = llvm::dyn_cast_or_null<RankedTensorType>(operandTypes[i]);
    ValueInfo info;
    if (std::optional<DType> dtype = tensor ? dtypeOf(tensor.getElementType()) : std::nullopt) {
      info.name = "i" + std::to_string(i);
      info.dtype = *dtype;
      info.ranked = true;
      for (int64_t size : tensor.getShape())
        info.dims.push_back({ShapedType::isDynamic(size) ? -1 : size, ""});
      scope.values[info.name] = operand;
    }
    node.inputs.push_back(info.name);
    types.push_back(std::move(info));
  }
  for (size_t i = 0; i < op->getNumResults(); ++i)
    node.outputs.push_back("o" + std::to_string(i));
  auto &weights = builder.getContext()->getOrLoadDialect<LatheDialect>()->weights();
  using A = onnxmodel::NodeAttr;
  for (NamedAttribute named : op->getAttrs()) {
    if (named.getName() == "onnx_domain" || named.getName() == "onnx_opset")
      continue;
    A attr;
    attr.name = named.getName().str();
    mlir::Attribute value = named.getValue();
    if (auto i = llvm::dyn_cast<IntegerAttr>(value)) {
      attr.kind = A::Int;
      attr.ints = {i.getInt()};
    } else if (auto f = llvm::dyn_cast<FloatAttr>(value)) {
      attr.kind = A::Float;
      attr.floats = {float(f.getValueAsDouble())};
    } else if (auto s = llvm::dyn_cast<StringAttr>(value)) {
      attr.kind = A::String;
      attr.strings = {s.str()};
    } else if (auto ints = llvm::dyn_cast<DenseI64ArrayAttr>(value)) {
      attr.kind = A::Ints;
      attr.ints = ints.asArrayRef().vec();
    } else if (auto floats = llvm::dyn_cast<DenseF32ArrayAttr>(value)) {
      attr.kind = A::Floats;
      attr.floats = floats.asArrayRef().vec();
    } else if (auto typed = llvm::dyn_cast<TypedAttr>(value);
               typed && llvm::isa<RankedTensorType>(typed.getType())) {
      attr.kind = A::TensorValue;
      auto type = llvm::cast<RankedTensorType>(typed.getType());
      Result<std::vector<std::byte>> bytes = constantBytes(value, weights);
      std::optional<DType> dtype = dtypeOf(type.getElementType());
      if (!bytes || !dtype)
        return Values();
      auto owner = std::make_shared<std::vector<std::byte>>(std::move(*bytes));
      attr.tensor = std::make_shared<Tensor>();
      attr.tensor->dtype = *dtype;
      attr.tensor->dims = type.getShape().vec();
      attr.tensor->bytes = *owner;
      attr.tensor->owner = owner;
    } else if (auto array = llvm::dyn_cast<ArrayAttr>(value)) {
      attr.kind = A::Strings;
      for (mlir::Attribute element : array)
        if (auto s = llvm::dyn_cast<StringAttr>(element))
          attr.strings.push_back(s.str());
    } else {
      return Values();
    }
    node.attributes.push_back(std::move(attr));
  }
  Result<std::optional<std::vector<Node>>> body = functionBody(node, opset, types);
  if (!body)
    return body.status();
  if (!*body)
    return Values();
  Importer importer(builder, weights);
  importer.fixedLoc = op->getLoc();
  importer.opset = moduleOpset;
  LATHE_RETURN_IF_ERROR(importer.nodes(**body, scope));
  std::vector<Value> results;
  for (const std::string &output : node.outputs)
    results.push_back(scope.lookup(output));
  return Values(std::move(results));
}

int64_t onnxOpset(ModuleOp module, StringRef domain) {
  IntegerAttr opset;
  if (module && domain.empty())
    opset = module->getAttrOfType<IntegerAttr>("onnx.opset");
  else if (auto domains =
               module ? module->getAttrOfType<DictionaryAttr>("onnx.domain_opsets") : nullptr)
    opset = domains.getAs<IntegerAttr>(domain);
  return opset ? opset.getInt() : kImportOpset;
}

int64_t onnxOpset(Operation *op, ModuleOp module) {
  if (auto own = op->getAttrOfType<IntegerAttr>("onnx_opset"))
    return own.getInt();
  auto domain = op->getAttrOfType<StringAttr>("onnx_domain");
  return onnxOpset(module, domain ? domain.getValue() : StringRef());
}

std::optional<int64_t> onnxSchemaVersion(StringRef opType, StringRef domain, int64_t opset) {
  return schemaVersion(opType.str(), domain.str(), opset);
}

} // namespace lathe
