//===- OnnxLoad.cpp - read, check, inline and convert a model ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights never pass through the ONNX library: before checking and converting,
// large initializers become graph inputs of the same name and type, and are put
// back afterwards.
//
//===----------------------------------------------------------------------===//
#include "OnnxLoad.h"
#include "DefaultDomain.h"
#include "FreeSizes.h"
#include "LocalFunctions.h"
#include "Proto.h"
#include "Shardings.h"

#include "onnx/checker.h"
#include "onnx/defs/function.h"
#include "onnx/defs/parser.h"
#include "onnx/defs/schema.h"
#include "onnx/shape_inference/implementation.h"
#include "onnx/version_converter/convert.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <map>
#include <set>

namespace lathe::onnxmodel {
namespace {

constexpr int kMaxNesting = 64;
constexpr uint64_t kMaxTextBytes = uint64_t(256) << 20;
constexpr uint64_t kMaxProtoBytes = (uint64_t(1) << 31) - 1;
/// Nodes of the graph when the bodies of all function calls are in it.
constexpr uint64_t kMaxExpandedNodes = uint64_t(1) << 20;

[[noreturn]] void raise(std::string message, std::string where) {
  throw ImportError{invalidError(std::move(message), std::move(where))};
}

/// One line of the library's message.
std::string oneLine(std::string text) {
  std::string out;
  for (char c : text)
    if (c != '\n' && c != '\r')
      out.push_back(c);
    else if (!out.empty() && out.back() != ' ')
      out.push_back(' ');
  while (!out.empty() && out.back() == ' ')
    out.pop_back();
  return out;
}

/// Text that nests without end would exhaust the recursive parser's stack.
void checkTextNesting(std::string_view text) {
  int depth = 0, line = 1;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    line += c == '\n';
    if (quote) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
      continue;
    }
    if (c == '"') {
      quote = c;
    } else if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n')
        ++i;
    } else if (c == '{' || c == '(' || c == '[') {
      if (++depth > kMaxNesting)
        raise("nested deeper than " + std::to_string(kMaxNesting), "line " + std::to_string(line));
    } else if (c == '}' || c == ')' || c == ']') {
      --depth;
    }
  }
}

bool isText(std::span<const std::byte> bytes) {
  for (std::byte b : bytes) {
    char c = char(b);
    if (c == '<' || c == '#')
      return true;
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
      return false;
  }
  return false;
}

/// Tensors below `graph` (attributes, subgraphs) get their bytes inline: they
/// are small or rare, and the checker wants to see them.
void inlineBytes(onnx::TensorProto &tensor, const DataSource &source) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL)
    return;
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes = externalBytes(tensor, source, owner);
  tensor.set_raw_data(bytes.data(), bytes.size());
  tensor.clear_external_data();
  tensor.clear_data_location();
}
void inlineBytes(onnx::GraphProto &graph, const DataSource &source, bool nested);
void inlineBytes(onnx::NodeProto &node, const DataSource &source) {
  for (auto &attr : *node.mutable_attribute()) {
    if (attr.has_t())
      inlineBytes(*attr.mutable_t(), source);
    for (auto &tensor : *attr.mutable_tensors())
      inlineBytes(tensor, source);
    if (attr.has_g())
      inlineBytes(*attr.mutable_g(), source, true);
    for (auto &graph : *attr.mutable_graphs())
      inlineBytes(graph, source, true);
  }
}
void inlineBytes(onnx::GraphProto &graph, const DataSource &source, bool nested) {
  for (auto &node : *graph.mutable_node())
    inlineBytes(node, source);
  if (nested)
    for (auto &tensor : *graph.mutable_initializer())
      inlineBytes(tensor, source);
}

/// Takes large initializers (and Constant nodes holding such) out of the graph.
std::vector<Tensor> takeWeights(onnx::GraphProto &graph, const DataSource &source) {
  std::vector<Tensor> weights;
  std::set<std::string> inputs, taken;
  for (const auto &input : graph.input())
    inputs.insert(input.name());
  auto take = [&](const onnx::TensorProto &proto) {
    Tensor tensor = toTensor(proto, source);
    if (!taken.insert(tensor.name).second || tensor.name.empty())
      raise("two initializers have this name, or it is empty", "initializer '" + tensor.name + "'");
    if (inputs.insert(tensor.name).second) {
      auto *input = graph.add_input();
      input->set_name(tensor.name);
      auto *type = input->mutable_type()->mutable_tensor_type();
      type->set_elem_type(proto.data_type());
      auto *shape = type->mutable_shape();
      for (int64_t dim : proto.dims())
        shape->add_dim()->set_dim_value(dim);
    }
    weights.push_back(std::move(tensor));
  };
  auto *tensors = graph.mutable_initializer();
  auto isExternal = [](const onnx::TensorProto &t) {
    return t.data_location() == onnx::TensorProto::EXTERNAL;
  };
  for (const auto &tensor : *tensors)
    if (isExternal(tensor))
      take(tensor);
  tensors->erase(std::remove_if(tensors->begin(), tensors->end(), isExternal), tensors->end());

  auto *nodes = graph.mutable_node();
  auto isWeight = [&](const onnx::NodeProto &node) {
    return node.op_type() == "Constant" && (node.domain().empty() || node.domain() == "ai.onnx") &&
           node.attribute_size() == 1 && node.attribute(0).name() == "value" &&
           node.attribute(0).has_t() && node.output_size() == 1 &&
           isExternal(node.attribute(0).t());
  };
  for (auto &node : *nodes)
    if (isWeight(node)) {
      node.mutable_attribute(0)->mutable_t()->set_name(node.output(0));
      take(node.attribute(0).t());
    }
  nodes->erase(std::remove_if(nodes->begin(), nodes->end(), isWeight), nodes->end());
  return weights;
}

int64_t opsetOf(const onnx::ModelProto &model, std::string_view domain) {
  for (const auto &import : model.opset_import())
    if (import.domain() == domain || (domain.empty() && import.domain() == "ai.onnx"))
      return import.version();
  return 0;
}

/// Counts the nodes that inlining would make, before it does: forty functions of two calls each are
/// three kilobytes of model and 2^39 nodes. Also finds functions that call themselves.
class ExpansionCount {
public:
  explicit ExpansionCount(const onnx::ModelProto &model) {
    for (const auto &function : model.functions())
      functions[key(function.domain(), function.name(), function.overload())] = {&function};
  }

  /// Raises at the first node of the graph that takes the sum beyond kMaxExpandedNodes.
  void check(const onnx::GraphProto &graph) {
    uint64_t total = 0;
    for (const auto &node : graph.node()) {
      total = sum(total, count(node));
      if (total > kMaxExpandedNodes)
        raise("function bodies expand to more than " + std::to_string(kMaxExpandedNodes) +
                  " nodes here; functions that call functions multiply: inline the model, or write "
                  "the repetition as a Loop",
              "node '" + node.name() + "' (" + node.op_type() + ")");
    }
  }

private:
  struct Entry {
    const onnx::FunctionProto *function = nullptr;
    std::optional<uint64_t> nodes = {};
    bool isOpen = false; ///< being counted: a call of it is a cycle
  };
  static std::string key(const std::string &domain, const std::string &name,
                         const std::string &overload) {
    return (domain == "ai.onnx" ? "" : domain) + "\n" + name + "\n" + overload;
  }
  /// Stops growing far beyond the limit.
  static uint64_t sum(uint64_t a, uint64_t b) { return std::min(a + b, 2 * kMaxExpandedNodes); }

  uint64_t count(const onnx::NodeProto &node) {
    uint64_t nodes = 1;
    for (const auto &attribute : node.attribute()) {
      if (attribute.has_g())
        nodes = sum(nodes, count(attribute.g()));
      for (const auto &graph : attribute.graphs())
        nodes = sum(nodes, count(graph));
    }
    auto callee = functions.find(key(node.domain(), node.op_type(), node.overload()));
    return callee == functions.end() ? nodes : sum(nodes, count(callee->second));
  }
  uint64_t count(const onnx::GraphProto &graph) {
    uint64_t nodes = 0;
    for (const auto &node : graph.node())
      nodes = sum(nodes, count(node));
    return nodes;
  }
  uint64_t count(Entry &entry) {
    if (entry.nodes)
      return *entry.nodes;
    std::string where = "function '" + entry.function->name() + "'";
    if (entry.isOpen)
      raise("calls itself", where);
    if (depth == kMaxCalls)
      raise("functions call one another deeper than " + std::to_string(kMaxCalls), where);
    entry.isOpen = true;
    ++depth;
    uint64_t nodes = 0;
    for (const auto &node : entry.function->node())
      nodes = sum(nodes, count(node));
    --depth;
    entry.isOpen = false;
    entry.nodes = nodes;
    return nodes;
  }

  static constexpr int kMaxCalls = 256; ///< the inliner's recursion is as deep
  std::map<std::string, Entry> functions;
  int depth = 0;
};

/// The checker wants a shape of each input and output, which ONNX leaves to the model. Those without one
/// claim rank 0 until they have been checked and converted.
std::set<std::string> claimShapes(onnx::GraphProto &graph) {
  std::set<std::string> names;
  for (auto *values : {graph.mutable_input(), graph.mutable_output()})
    for (auto &value : *values)
      if (value.type().has_tensor_type() && !value.type().tensor_type().has_shape()) {
        value.mutable_type()->mutable_tensor_type()->mutable_shape();
        names.insert(value.name());
      }
  return names;
}
void dropShapes(onnx::GraphProto &graph, const std::set<std::string> &names) {
  for (auto *values : {graph.mutable_input(), graph.mutable_output()})
    for (auto &value : *values)
      if (names.count(value.name()))
        value.mutable_type()->mutable_tensor_type()->clear_shape();
}

/// What the checker lets pass, or refuses without naming the place.
void checkHeader(const onnx::ModelProto &model) {
  for (const auto *values : {&model.graph().input(), &model.graph().output()})
    for (const auto &value : *values)
      if (!value.has_type())
        raise("has no type",
              (values == &model.graph().input() ? "input '" : "output '") + value.name() + "'");
  const auto &ranges = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  for (const auto &import : model.opset_import()) {
    auto range = ranges.find(import.domain() == "ai.onnx" ? "" : import.domain());
    if (range != ranges.end() && import.version() > range->second.second)
      throw ImportError{unsupportedError("opset " + std::to_string(import.version()) +
                                             " is newer than the newest known, " +
                                             std::to_string(range->second.second),
                                         "opset_import '" + import.domain() + "'")};
  }
}

/// The converter asserts by throwing, and may leave a model that does not check.
void convert(onnx::ModelProto &model, int64_t target, std::vector<std::string> &notes) {
  int64_t from = opsetOf(model, "");
  if (target == 0 || from == 0 || from == target)
    return;
  // Scan of opset 8 has a batch dimension, which the converter drops.
  for (const auto &node : model.graph().node())
    if (from < 9 && node.op_type() == "Scan") {
      notes.push_back("kept opset " + std::to_string(from) + ": Scan cannot be converted from it");
      return;
    }
  try {
    onnx::ModelProto converted = onnx::version_conversion::ConvertVersion(model, int(target));
    onnx::checker::check_model(converted);
    if (converted.graph().output_size() != model.graph().output_size() ||
        converted.graph().input_size() != model.graph().input_size())
      throw std::runtime_error("the number of inputs or outputs changed");
    for (int i = 0; i < model.graph().output_size(); ++i)
      if (converted.graph().output(i).name() != model.graph().output(i).name())
        throw std::runtime_error("an output was renamed");
    // The declared types keep names of dimensions and element types that the
    // converter's own IR does not hold.
    *converted.mutable_graph()->mutable_input() = model.graph().input();
    *converted.mutable_graph()->mutable_output() = model.graph().output();
    model = std::move(converted);
  } catch (const std::exception &e) {
    notes.push_back("kept opset " + std::to_string(from) + ": conversion to " +
                    std::to_string(target) + " failed: " + oneLine(e.what()));
  }
}

/// Gives nodes back their own version that the converter turns into others: Hardmax took all dimensions from axis on
/// as one row before opset 13; the slopes of PRelu were one a channel before 7; Resize, and Upsample before it, had no roi and other coordinates before 11.
void keepVersions(Graph &graph, int64_t from) {
  for (Node &node : graph.nodes) {
    if (node.domain.empty() && node.opType == "Hardmax" && from < 13)
      node.opset = from;
    if (node.domain.empty() && node.opType == "PRelu" && from < 7)
      node.opset = from;
    if (node.domain.empty() && node.opType == "Resize" && from < 11 && node.inputs.size() == 3) {
      node.opset = 10;
      node.inputs.erase(node.inputs.begin() + 1);
    }
    for (const NodeAttr &attribute : node.attributes)
      if (attribute.graph)
        keepVersions(*attribute.graph, from);
  }
}

/// Types of values in between, for dumps; a model without them is no worse.
void inferTypes(onnx::ModelProto &model) {
  try {
    onnx::shape_inference::InferShapes(model);
  } catch (const std::exception &) {
  }
}

onnx::ModelProto parseModel(const MappedFile &file, StrippedModel &stripped) {
  onnx::ModelProto model;
  if (isText(file.bytes)) {
    if (file.bytes.size() > kMaxTextBytes)
      raise("ONNX text of more than 256 MiB", "byte 0");
    std::string text(reinterpret_cast<const char *>(file.bytes.data()), file.bytes.size());
    checkTextNesting(text);
    onnx::OnnxParser parser(text);
    if (auto status = parser.Parse(model); !status.IsOK())
      raise("not valid ONNX text: " + oneLine(status.ErrorMessage()), "");
    if (!parser.EndOfInput())
      raise("ONNX text continues after the model", "");
    return model;
  }
  Result<StrippedModel> result = stripRawData(file.bytes);
  if (!result)
    throw ImportError{result.status()};
  stripped = std::move(*result);
  if (stripped.proto.size() > kMaxProtoBytes)
    raise("more than 2 GiB besides its weights", "byte 0");
  google::protobuf::io::ArrayInputStream stream(stripped.proto.data(), int(stripped.proto.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(int(kMaxProtoBytes));
  coded.SetRecursionLimit(kMaxNesting * 4);
  if (!model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
    raise("not a valid ONNX protobuf message", "");
  if (!model.has_graph())
    raise("the model has no graph", "");
  return model;
}

Model load(const std::string &path, int64_t targetOpset, uint64_t maxBytes, bool randomWeights,
           const std::map<std::string, std::vector<int64_t>> &shapes) {
  Result<std::shared_ptr<const MappedFile>> file = mapFile(path, maxBytes);
  if (!file)
    throw ImportError{file.status()};
  StrippedModel stripped;
  onnx::ModelProto proto = parseModel(**file, stripped);
  size_t slash = path.rfind('/');
  ExternalFiles external(slash == std::string::npos ? "." : path.substr(0, slash + 1), maxBytes);
  DataSource source{*file, &stripped.pieces, &external, randomWeights};

  // The checker does not say which one.
  for (const auto &input : proto.graph().input())
    if (!input.has_type())
      raise("it has no type", "input '" + input.name() + "'");
  for (const auto &output : proto.graph().output())
    if (!output.has_type())
      raise("it has no type", "output '" + output.name() + "'");

  Model model;
  freeSizes(*proto.mutable_graph(), shapes);
  model.shardings = shardingsOf(proto, model.notes);
  std::vector<Tensor> weights = takeWeights(*proto.mutable_graph(), source);
  inlineBytes(*proto.mutable_graph(), source, false);
  for (auto &function : *proto.mutable_functions())
    for (auto &node : *function.mutable_node())
      inlineBytes(node, source);
  checkHeader(proto);
  nameMicrosoftOps(proto, model.notes);
  ExpansionCount(proto).check(proto.graph());
  std::set<std::string> unranked = claimShapes(*proto.mutable_graph());
  const bool isMixed = inlineLocalFunctions(proto, model.notes);
  model.sourceOpset = opsetOf(proto, "");
  if (!isMixed)
    convert(proto, targetOpset, model.notes);
  dropShapes(*proto.mutable_graph(), unranked);
  for (const auto &import : proto.opset_import())
    model.opsets[import.domain() == "ai.onnx" ? "" : import.domain()] = import.version();
  if (!isMixed)
    inferTypes(proto);
  model.graph = toGraph(proto.graph(), source);
  if (opsetOf(proto, "") != model.sourceOpset)
    keepVersions(model.graph, model.sourceOpset);

  // Initializers are constants; only what is left is an input.
  std::set<std::string> known;
  for (const Tensor &tensor : model.graph.initializers)
    known.insert(tensor.name);
  for (Tensor &tensor : weights) {
    if (!known.insert(tensor.name).second)
      raise("two initializers have this name", "initializer '" + tensor.name + "'");
    model.graph.initializers.push_back(std::move(tensor));
  }
  std::erase_if(model.graph.inputs,
                [&](const ValueInfo &info) { return known.count(info.name) != 0; });
  return model;
}

/// Nodes of a function body with the call's names and attributes put in, also
/// inside subgraphs. Names of the body get a prefix.
class BodyExpander {
public:
  BodyExpander(const onnx::NodeProto &call, const onnx::FunctionProto &function)
      : call(call), function(function) {
    for (int i = 0; i < function.input_size(); ++i)
      names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
    for (int i = 0; i < function.output_size(); ++i)
      if (i < call.output_size() && !call.output(i).empty())
        names[function.output(i)] = call.output(i);
    for (const auto &node : function.node())
      for (const std::string &output : node.output())
        if (!output.empty())
          names.try_emplace(output, "body/" + output);
  }
  onnx::NodeProto expand(onnx::NodeProto node) const {
    rename(node, names);
    return node;
  }

private:
  using Names = std::map<std::string, std::string>;

  void rename(onnx::NodeProto &node, const Names &visible) const {
    auto replace = [&](std::string &name) {
      if (auto it = visible.find(name); it != visible.end())
        name = it->second;
    };
    for (std::string &input : *node.mutable_input())
      replace(input);
    for (std::string &output : *node.mutable_output())
      replace(output);
    auto *attributes = node.mutable_attribute();
    for (int i = attributes->size(); i-- > 0;) {
      auto &attr = *attributes->Mutable(i);
      if (!attr.ref_attr_name().empty() && !resolve(attr)) {
        attributes->DeleteSubrange(i, 1);
        continue;
      }
      if (attr.has_g())
        rename(*attr.mutable_g(), visible);
    }
  }
  void rename(onnx::GraphProto &graph, Names visible) const {
    // A graph's own names hide those around it.
    for (const auto &input : graph.input())
      visible.erase(input.name());
    for (const auto &tensor : graph.initializer())
      visible.erase(tensor.name());
    for (const auto &node : graph.node())
      for (const std::string &output : node.output())
        visible.erase(output);
    for (auto &node : *graph.mutable_node())
      rename(node, visible);
    for (auto &output : *graph.mutable_output())
      if (auto it = visible.find(output.name()); it != visible.end())
        output.set_name(it->second);
  }
  /// Replaces a reference by the call's attribute or the function's default.
  bool resolve(onnx::AttributeProto &attr) const {
    std::string name = attr.name(), wanted = attr.ref_attr_name();
    for (const auto *list : {&call.attribute(), &function.attribute_proto()})
      for (const auto &given : *list)
        if (given.name() == wanted) {
          attr = given;
          attr.set_name(name);
          return true;
        }
    return false;
  }

  const onnx::NodeProto &call;
  const onnx::FunctionProto &function;
  Names names;
};

/// Runs `body`, turning everything thrown into a Status that names `path`.
template <typename T, typename F> Result<T> guarded(const std::string &path, F &&body) {
  google::protobuf::LogSilencer silence;
  auto place = [&](const std::string &inner) {
    return inner.empty() || inner == path ? path : path.empty() ? inner : path + ": " + inner;
  };
  try {
    return Result<T>(body());
  } catch (const ImportError &e) {
    return Status(e.status.code(), e.status.message(), place(e.status.location()));
  } catch (const std::bad_alloc &) {
    return invalidError("needs more memory than there is", place(""));
  } catch (const std::exception &e) {
    return invalidError(oneLine(e.what()), place(""));
  } catch (...) {
    return invalidError("the ONNX library refused it", place(""));
  }
}

onnx::TypeProto typeProto(const ValueInfo &info) {
  onnx::TypeProto type;
  if (info.name.empty())
    return type;
  auto *tensor = type.mutable_tensor_type();
  tensor->set_elem_type(fromDType(info.dtype));
  if (info.ranked) {
    auto *shape = tensor->mutable_shape();
    for (const Dim &dim : info.dims) {
      auto *out = shape->add_dim();
      if (dim.value >= 0)
        out->set_dim_value(dim.value);
    }
  }
  return type;
}

} // namespace

Result<Model> loadModel(const std::string &path, int64_t targetOpset, uint64_t maxBytes,
                        bool randomWeights, const std::map<std::string, std::vector<int64_t>> &shapes) {
  return guarded<Model>(path, [&] { return load(path, targetOpset, maxBytes, randomWeights, shapes); });
}

Result<std::optional<std::vector<Node>>> functionBody(const Node &node, int64_t opset,
                                                      const std::vector<ValueInfo> &types) {
  using Body = std::optional<std::vector<Node>>;
  return guarded<Body>("", [&]() -> Body {
    const onnx::OpSchema *schema =
        onnx::OpSchemaRegistry::Schema(node.opType, int(opset), node.domain);
    if (!schema || (!schema->HasFunction() && !schema->HasContextDependentFunction()))
      return std::nullopt;
    onnx::NodeProto proto = fromNode(node);
    onnx::FunctionProto function;
    if (schema->HasContextDependentFunction()) {
      std::vector<onnx::TypeProto> inputTypes;
      for (const ValueInfo &type : types)
        inputTypes.push_back(typeProto(type));
      onnx::FunctionBodyBuildContextImpl context(proto, inputTypes);
      if (!schema->BuildContextDependentFunction(context, function, int(opset)))
        return std::nullopt;
    } else {
      const onnx::FunctionProto *body = schema->GetFunction(int(opset));
      if (!body)
        return std::nullopt;
      function = *body;
    }
    // The body refers to attributes that the node may leave to their defaults.
    for (const auto &[name, attribute] : schema->attributes())
      if (attribute.default_value.has_type() && attribute.default_value.name() == name)
        *function.add_attribute_proto() = attribute.default_value;
    BodyExpander expander(proto, function);
    int64_t bodyOpset = 0;
    for (const auto &import : function.opset_import())
      if (import.domain().empty() || import.domain() == "ai.onnx")
        bodyOpset = import.version();
    std::vector<Node> nodes;
    for (const auto &inner : function.node()) {
      nodes.push_back(toNode(expander.expand(inner), DataSource()));
      if (nodes.back().domain.empty())
        nodes.back().opset = bodyOpset;
    }
    return nodes;
  });
}

std::optional<int64_t> schemaVersion(const std::string &opType, const std::string &domain,
                                     int64_t opset) {
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(opType, int(opset), domain);
  if (!schema)
    return std::nullopt;
  return schema->since_version();
}

} // namespace lathe::onnxmodel
