//===- QuantizeModel.cpp - QDQ in an ONNX model by a recipe -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   y = MatMul(x, w)   =>   q = QuantizeLinear(x, s, z)    d = DequantizeLinear(q, s, z)
//                           e = DequantizeLinear<axis>(w_quantized, w_scale)
//                           y = MatMul(d, e)
//
// The file's own message is edited: names, metadata and what is not quantized stay as they are.
//
//===----------------------------------------------------------------------===//
#include "lathe/import/QuantizeModel.h"

#include "Proto.h"

#include "lathe/support/Files.h"

#include "onnx/checker.h"
#include "onnx/onnx_pb.h"
#include "onnx/version_converter/convert.h"

#include <cstring>
#include <fnmatch.h>

namespace lathe {
namespace {

using onnxmodel::ImportError;
using quantize::Recipe;
using quantize::WeightRecipe;

/// Elements of a weight by which products of 128 rows took 0.93 of f32's speed, quantization included (one thread of
/// a Zen 4, x86-64-v3); 64 x 4096 by 4 rows 1.2 x, 768 x 768 by 8 rows 1.35 x.
constexpr int64_t kSmall = 64 * 64;

[[noreturn]] void raise(ErrorCode code, std::string what, std::string where) {
  throw ImportError{Status(code, std::move(what), std::move(where))};
}

struct Loaded {
  onnx::ModelProto proto;
  std::unique_ptr<onnxmodel::ExternalFiles> external;
  std::map<std::string, const onnx::TensorProto *> constants; ///< without those that an input may replace
  std::map<std::string, int> uses; ///< of values, in nodes of all graphs, and as results

  explicit Loaded(const std::string &path) {
    Result<std::string> bytes = readFile(path);
    if (!bytes)
      throw ImportError{bytes.status()};
    if (bytes->size() > INT32_MAX)
      raise(ErrorCode::Unsupported, "has more than 2 GB in one file", path);
    if (!proto.ParseFromString(*bytes) || !proto.has_graph())
      raise(ErrorCode::Invalid, "is no ONNX model", path);
    size_t slash = path.rfind('/');
    external = std::make_unique<onnxmodel::ExternalFiles>(
        slash == std::string::npos ? "." : path.substr(0, slash + 1), uint64_t(1) << 40);
    index();
  }

  /// What the members below `proto` say of it.
  void index() {
    constants.clear();
    uses.clear();
    std::set<std::string> inputs;
    for (const auto &input : proto.graph().input())
      inputs.insert(input.name());
    for (const auto &tensor : proto.graph().initializer())
      if (!inputs.count(tensor.name()))
        constants[tensor.name()] = &tensor;
    for (const auto &node : proto.graph().node())
      for (const auto &a : node.attribute())
        if (isConstant(node) && a.name() == "value" && a.has_t())
          constants[node.output(0)] = &a.t();
    count(proto.graph());
  }

  static bool isConstant(const onnx::NodeProto &node) {
    return node.op_type() == "Constant" && node.domain().empty() && node.output_size() == 1;
  }

  void count(const onnx::GraphProto &graph) {
    for (const auto &node : graph.node()) {
      for (const std::string &input : node.input())
        ++uses[input];
      for (const auto &attribute : node.attribute()) {
        if (attribute.has_g())
          count(attribute.g());
        for (const auto &inner : attribute.graphs())
          count(inner);
      }
    }
    for (const auto &output : graph.output())
      ++uses[output.name()];
  }

  HostTensor read(const onnx::TensorProto &proto) {
    onnxmodel::DataSource source;
    source.external = external.get();
    onnxmodel::Tensor tensor = onnxmodel::toTensor(proto, source);
    HostTensor result(tensor.dtype, tensor.dims);
    if (!tensor.bytes.empty())
      std::memcpy(result.data.data(), tensor.bytes.data(), tensor.bytes.size());
    return result;
  }

  int64_t opset() const {
    for (const auto &import : proto.opset_import())
      if (import.domain().empty() || import.domain() == "ai.onnx")
        return import.version();
    return 1;
  }
};

/// Converts a model of an older opset, by ONNX's own converter; the sentence that says so, or none. What describes the
/// model is kept. Throws where that cannot be done.
std::string convertFor(Loaded &model, int weightBits, const std::string &path) {
  const int64_t from = model.opset(), target = weightBits == 4 ? 21 : 13;
  onnx::ModelProto &proto = model.proto;
  if (from >= target) {
    if (weightBits == 4 && proto.ir_version() < 10)
      proto.set_ir_version(10); // the first with 4 bits
    return {};
  }
  std::string why = "needs opset " + std::to_string(target) + ", the model has " + std::to_string(from) + ", and ";
  for (const auto &tensor : proto.graph().initializer())
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
      raise(ErrorCode::Unsupported, why + "models with external weights are not converted", path);
  if (proto.functions_size())
    raise(ErrorCode::Unsupported, why + "models with functions are not converted", path);
  onnx::ModelProto converted;
  try {
    converted = onnx::version_conversion::ConvertVersion(proto, int(target));
    onnx::checker::check_model(converted);
  } catch (const std::exception &error) {
    raise(ErrorCode::Unsupported, why + "conversion failed: " + error.what(), path);
  }
  *converted.mutable_graph()->mutable_input() = proto.graph().input();
  *converted.mutable_graph()->mutable_output() = proto.graph().output();
  converted.mutable_graph()->set_doc_string(proto.graph().doc_string());
  proto.mutable_graph()->Swap(converted.mutable_graph());
  proto.mutable_opset_import()->Swap(converted.mutable_opset_import());
  proto.set_ir_version(std::max<int64_t>(proto.ir_version(), weightBits == 4 ? 10 : 7));
  model.index();
  return "converted from opset " + std::to_string(from) + " to " + std::to_string(target) + ", whose names the recipe has";
}

/// Runs `body`, whose exceptions become its Status.
template <typename T, typename Body> Result<T> guarded(const std::string &path, Body body) try {
  return body();
} catch (const ImportError &error) {
  return error.status;
} catch (const std::exception &error) {
  return invalidError(error.what(), path);
}

std::string nameOf(const onnx::NodeProto &node) {
  return node.name().empty() && node.output_size() ? node.output(0) : node.name();
}

bool isDefault(const onnx::NodeProto &node) { return node.domain().empty() || node.domain() == "ai.onnx"; }

int64_t attribute(const onnx::NodeProto &node, const std::string &name) {
  for (const auto &a : node.attribute())
    if (a.name() == name)
      return a.i();
  return 0;
}

/// Which dimension of the right operand of a product is summed over; none for other nodes.
std::optional<int64_t> depthOf(const onnx::NodeProto &node) {
  if (!isDefault(node) || node.input_size() < 2 || node.output_size() < 1)
    return std::nullopt;
  if (node.op_type() == "MatMul")
    return 0;
  if (node.op_type() == "Gemm")
    return attribute(node, "transB") ? 1 : 0;
  return std::nullopt;
}

/// A convolution; transposed ones are another op.
bool isConv(const onnx::NodeProto &node) {
  return isDefault(node) && node.op_type() == "Conv" && node.input_size() >= 2 && node.output_size() >= 1;
}

/// The dimension of scales of the right operand of a product, or of filters; none for other nodes.
std::optional<int64_t> scaleAxisOf(const onnx::NodeProto &node) {
  if (isConv(node))
    return 0;
  std::optional<int64_t> depth = depthOf(node);
  return depth ? std::optional(1 - *depth) : std::nullopt;
}

/// Why a convolution by this value keeps its form; empty where it need not.
std::string reasonToKeepConv(const Loaded &model, const onnx::NodeProto &node) {
  const std::string &weight = node.input(1);
  auto found = model.constants.find(weight);
  if (found == model.constants.end())
    return "its filters '" + weight + "' are no constant of the graph";
  const onnx::TensorProto &tensor = *found->second;
  if (tensor.data_type() != onnx::TensorProto::FLOAT || tensor.dims_size() < 3)
    return "its filters '" + weight + "' are not of f32";
  for (int64_t d : tensor.dims())
    if (d < 1)
      return "its filters '" + weight + "' are empty";
  constexpr int64_t kFewChannels = 8; // of a group: images are then read as codes, whatever becomes of products
  for (const auto &a : node.attribute())
    if (a.name() == "group" && a.i() != 1 && tensor.dims(1) > kFewChannels)
      return "convolutions of codes in groups have no kernel that is faster than f32";
  return {};
}

/// Why a product by this value keeps its form; empty where it need not.
std::string reasonToKeep(const Loaded &model, const std::string &weight) {
  auto found = model.constants.find(weight);
  if (found == model.constants.end())
    return "its right operand '" + weight + "' is no constant of the graph";
  const onnx::TensorProto &tensor = *found->second;
  if (tensor.data_type() != onnx::TensorProto::FLOAT || tensor.dims_size() != 2)
    return "its right operand '" + weight + "' is no matrix of f32";
  if (tensor.dims(0) < 1 || tensor.dims(1) < 1)
    return "its right operand '" + weight + "' is empty";
  return {};
}

/// Adds nodes and constants, with names that nothing has.
class Editor {
public:
  Editor(Loaded &model, const Recipe &recipe, const std::string &recipePath)
      : model(model), recipe(recipe), recipePath(recipePath), graph(*model.proto.mutable_graph()) {
    names(graph);
  }

  void run() {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    std::set<std::string> left = recipe.products;
    for (auto &node : nodes) {
      if (scaleAxisOf(node) && recipe.products.count(node.output(0))) {
        left.erase(node.output(0));
        rewrite(node);
      }
      for (auto &input : *node.mutable_input())
        if (auto range = recipe.activations.find(input); recipe.shared.count(input) && range != recipe.activations.end())
          input = throughCodes(range->first, range->second);
      graph.add_node()->Swap(&node);
    }
    if (!left.empty())
      foreign("the model has no product or convolution of this result", *left.begin());
    for (const auto &[name, weight] : recipe.weights)
      if (!weights.count(name))
        foreign("no product of the recipe has this weight", name);
    for (const auto &[name, range] : recipe.activations)
      if (!activations.count(name))
        foreign("no product of the recipe reads this value", name);
    auto *made = graph.mutable_node();
    for (int i = made->size() - 1; i >= 0; --i)
      if (Loaded::isConstant(made->Get(i)) && weights.count(made->Get(i).output(0)) && model.uses[made->Get(i).output(0)] == 0)
        made->DeleteSubrange(i, 1);
    auto *constants = graph.mutable_initializer();
    for (int i = constants->size() - 1; i >= 0; --i)
      if (weights.count(constants->Get(i).name()) && model.uses[constants->Get(i).name()] == 0)
        constants->DeleteSubrange(i, 1);
  }

private:
  [[noreturn]] void foreign(const std::string &what, const std::string &name) {
    raise(ErrorCode::Invalid, what + ": the recipe is of another model", recipePath + ": '" + name + "'");
  }

  void names(const onnx::GraphProto &g) {
    for (const auto &v : g.input())
      taken.insert(v.name());
    for (const auto &v : g.initializer())
      taken.insert(v.name());
    for (const auto &node : g.node()) {
      taken.insert(node.name());
      taken.insert(node.output().begin(), node.output().end());
      for (const auto &a : node.attribute())
        if (a.has_g())
          names(a.g());
    }
  }
  std::string fresh(const std::string &wanted) {
    std::string name = wanted;
    for (int i = 1; !taken.insert(name).second; ++i)
      name = wanted + "_" + std::to_string(i);
    return name;
  }

  std::string constant(const std::string &name, const HostTensor &value) {
    onnx::TensorProto &tensor = *graph.add_initializer();
    tensor.set_name(fresh(name));
    tensor.set_data_type(onnxmodel::fromDType(value.dtype));
    for (int64_t d : value.dims)
      tensor.add_dims(d);
    tensor.set_raw_data(value.data.data(), value.data.size());
    return tensor.name();
  }
  std::string add(const char *type, const std::string &of, const std::string &result,
                  const std::vector<std::string> &inputs, const std::vector<std::pair<const char *, int64_t>> &attributes) {
    onnx::NodeProto &node = *graph.add_node();
    node.set_op_type(type);
    node.set_name(fresh(of + "_" + type));
    for (const std::string &input : inputs)
      node.add_input(input);
    node.add_output(fresh(result));
    for (auto [name, value] : attributes) {
      auto *a = node.add_attribute();
      a->set_name(name);
      a->set_type(onnx::AttributeProto::INT);
      a->set_i(value);
    }
    return node.output(0);
  }

  void rewrite(onnx::NodeProto &node) {
    std::string weight = node.input(1);
    if (recipe.weights.count(weight)) {
      --model.uses[weight];
      node.set_input(1, dequantized(weight, node));
    } else {
      foreign("the recipe has no weight '" + weight + "'", node.output(0));
    }
    if (auto range = recipe.activations.find(node.input(0)); range != recipe.activations.end())
      node.set_input(0, throughCodes(range->first, range->second));
  }

  const std::string &dequantized(const std::string &name, const onnx::NodeProto &node) {
    std::string &result = weights[name];
    if (!result.empty())
      return result;
    const WeightRecipe &how = recipe.weights.at(name);
    const int64_t scales = *scaleAxisOf(node);
    std::string why = isConv(node) ? reasonToKeepConv(model, node) : reasonToKeep(model, name);
    if (isConv(node) && how.block)
      foreign("filters have no blocks", name);
    if (!why.empty() || how.axis != (how.block ? 1 - scales : scales))
      foreign(why.empty() ? "its scales lie along the other dimension" : why, name);
    Result<quantize::QuantizedWeight> made = quantize::quantizeWeight(model.read(*model.constants.at(name)), how, name);
    if (!made)
      throw ImportError{made.status()};
    std::string codes = constant(name + "_quantized", made->codes), scale = constant(name + "_scale", made->scales);
    std::vector<std::pair<const char *, int64_t>> attributes{{"axis", how.axis}};
    if (how.block)
      attributes.push_back({"block_size", how.block});
    return result = add("DequantizeLinear", name, name + "_dequantized", {codes, scale}, attributes);
  }

  const std::string &throughCodes(const std::string &name, quantize::Range range) {
    std::string &result = activations[name];
    if (!result.empty())
      return result;
    std::optional<quantize::CodesOfRange> codes = quantize::codesOf(range);
    if (!codes)
      foreign("the range has no normal scale", name);
    HostTensor scale(DType::F32, {}), zero(DType::UI8, {});
    scale.setReal(0, codes->scale);
    zero.setInteger(0, codes->zero);
    std::string s = constant(name + "_scale", scale), z = constant(name + "_zero_point", zero);
    std::string q = add("QuantizeLinear", name, name + "_quantized", {name, s, z}, {});
    return result = add("DequantizeLinear", name, name + "_dequantized", {q, s, z}, {});
  }

  Loaded &model;
  const Recipe &recipe;
  const std::string &recipePath;
  onnx::GraphProto &graph;
  std::set<std::string> taken;
  std::map<std::string, std::string> weights, activations; ///< what takes their places
};

Result<std::string> bytesOf(const onnx::ModelProto &proto, const std::string &path) {
  if (proto.ByteSizeLong() > INT32_MAX)
    return unsupportedError("would be a file of more than 2 GB", path);
  return proto.SerializeAsString();
}

} // namespace

Result<QuantizationPlan> planQuantization(const std::string &path, const quantize::Scheme &scheme,
                                          const std::vector<std::string> &keep, int64_t block) {
  return guarded<QuantizationPlan>(path, [&]() -> Result<QuantizationPlan> {
    Loaded model(path);
    QuantizationPlan plan;
    plan.recipe.scheme = scheme.name;
    plan.converted = convertFor(model, scheme.weightBits, path);
    std::vector<bool> fits(keep.size());
    auto kept = [&](const std::string &name) {
      bool any = false;
      for (size_t i = 0; i < keep.size(); ++i)
        if (fnmatch(keep[i].c_str(), name.c_str(), 0) == 0)
          fits[i] = any = true;
      return any;
    };
    for (const auto &node : model.proto.graph().node()) {
      const std::string &type = node.op_type();
      if (type == "QuantizeLinear" || type == "DequantizeLinear" || type == "DynamicQuantizeLinear" ||
          type.starts_with("QLinear") || type == "MatMulInteger" || type == "ConvInteger")
        return invalidError("the model is quantized already, by this " + type, "node '" + nameOf(node) + "'");
      const bool conv = isConv(node), turned = isDefault(node) && type == "ConvTranspose";
      std::optional<int64_t> depth = depthOf(node);
      if (!depth && !conv && !turned)
        continue;
      std::string weight = node.input_size() > 1 ? node.input(1) : "", why;
      bool asked = kept(nameOf(node)), askedToo = kept(node.output(0)), askedWeight = kept(weight);
      if (asked || askedToo || askedWeight)
        why = "asked for by --keep";
      else if (turned)
        why = "transposed convolutions of codes have no kernel that is faster than f32";
      else if (conv && !scheme.activations)
        why = "convolutions read filters of f32 where images are of f32";
      else
        why = conv ? reasonToKeepConv(model, node) : reasonToKeep(model, weight);
      if (why.empty() && scheme.activations && !conv) {
        const onnx::TensorProto &matrix = *model.constants.at(weight);
        if (matrix.dims(0) <= kSmall / matrix.dims(1))
          why = "its right operand has " + std::to_string(matrix.dims(0) * matrix.dims(1)) +
                " elements, so few that quantizing the left one takes longer than is gained";
      }
      WeightRecipe how{scheme.weightBits, depth ? 1 - *depth : 0, 0};
      if (why.empty() && scheme.weightBits == 4) {
        int64_t size = model.constants.at(weight)->dims(int(*depth));
        how = {4, *depth, block};
        for (int64_t b : {128, 64, 32})
          if (!how.block && size % b == 0)
            how.block = b;
        if (!how.block || size % how.block)
          why = "its depth of " + std::to_string(size) + " is no multiple of " +
                (block ? "the block of " + std::to_string(block) : "blocks of 32");
      }
      // One matrix that is summed over in both directions has two forms; the second product keeps f32.
      if (auto other = plan.recipe.weights.find(weight); why.empty() && other != plan.recipe.weights.end() &&
                                                         other->second.axis != how.axis)
        why = "its right operand '" + weight + "' has scales along the other dimension";
      if (!why.empty()) {
        plan.kept.push_back({nameOf(node), why});
        continue;
      }
      plan.recipe.weights[weight] = how;
      plan.recipe.products.insert(node.output(0));
      if (scheme.activations)
        plan.recipe.activations[node.input(0)] = {};
      // What stands beside convolutions (residuals, pools) reads bytes too: a kernel stores one form of a value.
      if (conv)
        plan.recipe.shared.insert(node.input(0));
    }
    for (const auto &output : model.proto.graph().output())
      plan.recipe.shared.erase(output.name());
    for (size_t i = 0; i < keep.size(); ++i)
      if (!fits[i])
        return usageError("fits no contraction, weight or result of one", "--keep '" + keep[i] + "'");
    return plan;
  });
}

Result<std::string> observedModel(const std::string &path, const Recipe &recipe, const std::vector<std::string> &values) {
  return guarded<std::string>(path, [&]() -> Result<std::string> {
    Loaded model(path);
    Result<quantize::Scheme> scheme = quantize::schemeNamed(recipe.scheme);
    if (!scheme)
      return scheme.status();
    convertFor(model, scheme->weightBits, path);
    onnx::GraphProto &graph = *model.proto.mutable_graph();
    for (auto &tensor : *graph.mutable_initializer())
      if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
        HostTensor data = model.read(tensor);
        tensor.clear_external_data();
        tensor.clear_data_location();
        tensor.set_raw_data(data.data.data(), data.data.size());
      }
    graph.clear_output();
    for (const std::string &value : values)
      for (const char *type : {"ReduceMin", "ReduceMax"}) {
        std::string name = "lathe.observed." + std::to_string(graph.output_size());
        onnx::NodeProto &node = *graph.add_node();
        node.set_op_type(type);
        node.add_input(value);
        node.add_output(name);
        auto *a = node.add_attribute();
        a->set_name("keepdims");
        a->set_type(onnx::AttributeProto::INT);
        a->set_i(0);
        onnx::ValueInfoProto &output = *graph.add_output();
        output.set_name(name);
        output.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
        output.mutable_type()->mutable_tensor_type()->mutable_shape();
      }
    return bytesOf(model.proto, path);
  });
}

Result<std::string> quantizedModel(const std::string &path, const Recipe &recipe, const std::string &recipePath) {
  return guarded<std::string>(path, [&]() -> Result<std::string> {
    Loaded model(path);
    Result<quantize::Scheme> scheme = quantize::schemeNamed(recipe.scheme);
    if (!scheme)
      return scheme.status();
    convertFor(model, scheme->weightBits, path);
    Editor(model, recipe, recipePath).run();
    return bytesOf(model.proto, path);
  });
}

Result<bool> hasExternalWeights(const std::string &path) {
  return guarded<bool>(path, [&]() -> Result<bool> {
    Loaded model(path);
    for (const auto &tensor : model.proto.graph().initializer())
      if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
        return true;
    return false;
  });
}

} // namespace lathe
