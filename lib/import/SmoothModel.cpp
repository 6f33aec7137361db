//===- SmoothModel.cpp - values and the weights that read them, scaled ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EditModel.h"

#include "lathe/import/QuantizeModel.h"
#include "lathe/quantize/Weights.h"

#include "onnx/onnx_pb.h"

#include <algorithm>
#include <cmath>

namespace lathe {
namespace edit {

void Smoother::foreign(const std::string &what, const std::string &name) {
  raise(ErrorCode::Invalid, what + ": the recipe is of another model", recipePath + ": '" + name + "'");
}

/// f(x / s) = f(x) / s for s > 0, channel by channel: of any value, and of images alone.
static bool isHomogeneous(const onnx::NodeProto &node, bool image) {
  const std::string &type = node.op_type();
  return isDefault(node) && node.output_size() == 1 &&
         (type == "Relu" || type == "LeakyRelu" || type == "Identity" ||
          (image && (type == "MaxPool" || type == "AveragePool" || type == "GlobalAveragePool" || type == "GlobalMaxPool")));
}

std::optional<Smoother::Fold> Smoother::foldOf(const std::string &value, int64_t channels, bool image) {
  onnx::NodeProto *producer = nullptr;
  for (auto &node : *graph.mutable_node())
    if (node.output_size() && node.output(0) == value)
      producer = &node;
  if (!producer)
    return std::nullopt;
  /// A constant of f32 that nothing else reads and that has the channels along `axis`.
  auto constant = [&](const std::string &name, int axis) -> onnx::TensorProto * {
    auto found = model.constants.find(name);
    if (found == model.constants.end() || found->second->data_type() != onnx::TensorProto::FLOAT || model.uses[name] != 1 ||
        found->second->dims_size() <= axis || found->second->dims(axis) != channels)
      return nullptr;
    return found->second;
  };
  /// One that is broadcast over all but the channels, and where these are.
  auto broadcast = [&](const std::string &name) -> std::pair<onnx::TensorProto *, int> {
    auto found = model.constants.find(name);
    if (found == model.constants.end())
      return {nullptr, 0};
    const onnx::TensorProto &tensor = *found->second;
    int axis = -1;
    for (int d = 0; d < tensor.dims_size(); ++d)
      if (tensor.dims(d) != 1 || (tensor.dims(d) == channels && axis < 0 && d + 1 == tensor.dims_size()))
        axis = axis < 0 ? d : tensor.dims_size();
    const int64_t behind = tensor.dims_size() - 1 - axis;
    if (axis < 0 || behind < 0 || (image ? behind < 1 : behind != 0))
      return {nullptr, 0};
    return {constant(name, axis), axis};
  };
  Fold fold;
  auto add = [&](onnx::TensorProto *tensor, int axis) {
    fold.constants.push_back({tensor, axis});
    return tensor != nullptr;
  };
  const bool norm = (isDefault(*producer) && (producer->op_type() == "LayerNormalization" ||
                                              producer->op_type() == "RMSNormalization")) ||
                    producer->op_type() == "SimplifiedLayerNormalization";
  if (norm && !image) {
    for (int i = 1; i < producer->input_size(); ++i)
      if (!producer->input(i).empty() && !add(constant(producer->input(i), 0), 0))
        return std::nullopt;
    return fold.constants.empty() ? std::nullopt : std::optional(fold);
  }
  const bool conv = isConv(*producer);
  if ((conv && image) || (depthOf(*producer) && !image)) {
    const int axis = int(*scaleAxisOf(*producer));
    auto weight = model.constants.find(producer->input(1));
    if (weight == model.constants.end() || (!conv && weight->second->dims_size() != 2) || !add(constant(producer->input(1), axis), axis))
      return std::nullopt;
    if (producer->input_size() > 2 && !producer->input(2).empty() && !add(constant(producer->input(2), 0), 0))
      return std::nullopt;
    fold.layer = producer;
    return fold;
  }
  const bool sum = isDefault(*producer) && producer->op_type() == "Add" && producer->input_size() == 2;
  const bool product = isDefault(*producer) && producer->op_type() == "Mul" && producer->input_size() == 2;
  if (sum || product)
    for (int i = 0; i < 2; ++i)
      if (auto [tensor, axis] = broadcast(producer->input(i)); tensor) {
        const std::string &other = producer->input(1 - i);
        if (product)
          return add(tensor, axis) ? std::optional(fold) : std::nullopt;
        std::optional<Fold> ahead = model.uses[other] == 1 ? foldOf(other, channels, image) : std::nullopt;
        if (ahead)
          ahead->constants.push_back({tensor, axis});
        return ahead;
      }
  if (isHomogeneous(*producer, image) && producer->input_size() && model.uses[producer->input(0)] == 1)
    return foldOf(producer->input(0), channels, image);
  return std::nullopt;
}

/// Whether a node reads its first input as a value that can have factors.
static bool canSmooth(const onnx::NodeProto &node) {
  return isConv(node) || (depthOf(node) && !attribute(node, "transA"));
}

/// Filters [outputs, inputs of a group, ...] as the matrix of what they make of each input.
static int64_t groupsOf(const onnx::NodeProto &node) { return isConv(node) ? std::max<int64_t>(1, attribute(node, "group")) : 1; }

std::map<std::string, std::string> Smoother::run() {
  std::map<std::string, std::string> smoothed;
  if (recipe.factors.empty())
    return smoothed;
  struct Reader {
    int64_t groups;
    bool image;
  };
  std::map<std::string, int> readers;                          // layers of the recipe, by what they read
  std::map<std::string, std::map<std::string, Reader>> weights; // of the same
  std::map<std::string, int> products;                         // by weight
  for (const auto &node : graph.node()) {
    if (!scaleAxisOf(node) || !canSmooth(node) || !recipe.products.count(node.output(0)) || !recipe.factors.count(node.input(0)))
      continue;
    const std::string &weight = node.input(1);
    auto how = recipe.weights.find(weight);
    auto found = model.constants.find(weight);
    const bool image = isConv(node);
    if (how == recipe.weights.end() || found == model.constants.end() || (image ? found->second->dims_size() < 3 : found->second->dims_size() != 2) ||
        found->second->dims(image ? 1 : int(*depthOf(node))) * groupsOf(node) != recipe.factors.at(node.input(0)).dims[0])
      foreign("its factors do not fit '" + weight + "'", node.input(0));
    if (const DType type = typeOf(*found->second); type != DType::F32)
      raise(ErrorCode::Unsupported, "factors divide activations of f32, '" + weight + "' is of " + std::string(name(type)), recipePath);
    ++readers[node.input(0)];
    ++products[weight];
    for (const auto &[other, known] : weights)
      if (other != node.input(0) && known.count(weight))
        foreign("'" + weight + "' would be scaled twice", node.input(0));
    weights[node.input(0)][weight] = {groupsOf(node), image};
  }
  for (const auto &[value, factors] : recipe.factors) {
    if (!readers.count(value))
      foreign("no product of the recipe reads this value", value);
    bool image = false;
    for (const auto &[weight, reader] : weights[value]) {
      if (products[weight] != model.uses[weight])
        foreign("'" + weight + "' has other readers", value);
      image = reader.image;
      onnx::TensorProto &tensor = *model.constants[weight];
      const int64_t axis = image ? 1 : quantize::depthAxisOf(recipe.weights.at(weight));
      Loaded::store(tensor, quantize::scaleInputs(model.read(tensor), axis, factors, reader.groups));
    }
    std::optional<Fold> fold = readers[value] == model.uses[value] ? foldOf(value, factors.dims[0], image) : std::nullopt;
    if (!fold) {
      if (recipe.shared.count(value))
        foreign("a value that others read as codes has no factors", value);
      smoothed[value] = fresh(value + "_smoothed");
      continue;
    }
    for (auto [tensor, axis] : fold->constants)
      Loaded::store(*tensor, quantize::divideChannels(model.read(*tensor), axis, factors));
  }
  // The divisions, each ahead of the first layer that reads it.
  std::vector<onnx::NodeProto> nodes(graph.node().begin(), graph.node().end());
  graph.clear_node();
  std::set<std::string> made;
  for (auto &node : nodes) {
    auto found = node.input_size() ? smoothed.find(node.input(0)) : smoothed.end();
    if (found != smoothed.end() && scaleAxisOf(node) && canSmooth(node) && recipe.products.count(node.output(0))) {
      const auto &[value, name] = *found;
      if (made.insert(value).second) {
        HostTensor inverse = recipe.factors.at(value);
        for (int64_t e = 0; e < inverse.count(); ++e)
          inverse.setReal(e, 1 / inverse.real(e));
        if (isConv(node))
          inverse.dims.resize(size_t(model.constants.at(node.input(1))->dims_size() - 1), 1);
        onnx::NodeProto &division = *graph.add_node();
        division.set_op_type("Mul");
        division.set_name(fresh(value + "_Mul"));
        division.add_input(value);
        division.add_input(constant(value + "_factors", inverse));
        division.add_output(name);
      }
      node.set_input(0, name);
    }
    graph.add_node()->Swap(&node);
  }
  model.index();
  return smoothed;
}

namespace {

/// Finds pairs of layers whose shared channels can be scaled, and by how much.
class Equalizer : public Smoother {
public:
  Equalizer(Loaded &model, const quantize::Recipe &recipe, const std::string &recipePath)
      : Smoother(model, recipe, recipePath), recipe(recipe) {}

  std::map<std::string, HostTensor> run() {
    std::vector<std::string> values;
    std::vector<quantize::LayerMagnitudes> layers;
    std::map<std::string, size_t> numbers; // by weight
    std::vector<quantize::EqualizedPair> pairs;
    auto numberOf = [&](const onnx::NodeProto &node) {
      auto [known, added] = numbers.try_emplace(node.input(1), layers.size());
      if (added)
        layers.push_back(quantize::magnitudesOf(model.read(*model.constants.at(node.input(1))), isConv(node) ? 0 : *scaleAxisOf(node),
                                                groupsOf(node)));
      return known->second;
    };
    for (const auto &node : graph.node()) {
      if (!scaleAxisOf(node) || !canSmooth(node) || !recipe.products.count(node.output(0)) || model.uses[node.input(0)] != 1 ||
          model.uses[node.input(1)] != 1)
        continue;
      const onnx::TensorProto &weight = *model.constants.at(node.input(1));
      const bool image = isConv(node);
      const int64_t channels = weight.dims(image ? 1 : int(*depthOf(node))) * groupsOf(node);
      std::optional<Fold> fold = foldOf(node.input(0), channels, image);
      if (!fold || !fold->layer || !recipe.products.count(fold->layer->output(0)))
        continue;
      values.push_back(node.input(0));
      const size_t first = numberOf(*fold->layer), second = numberOf(node);
      pairs.push_back({first, second});
    }
    std::vector<std::vector<double>> factors = quantize::equalize(std::move(layers), pairs);
    std::map<std::string, HostTensor> made;
    for (size_t p = 0; p < pairs.size(); ++p) {
      HostTensor into(DType::F32, {int64_t(factors[p].size())});
      for (size_t c = 0; c < factors[p].size(); ++c)
        into.setReal(int64_t(c), factors[p][c]);
      made[values[p]] = std::move(into);
    }
    return made;
  }

private:
  const quantize::Recipe &recipe;
};

} // namespace
} // namespace edit

Result<std::map<std::string, HostTensor>> equalizingFactors(const std::string &path, const quantize::Recipe &recipe) {
  return edit::guarded<std::map<std::string, HostTensor>>(path, [&]() -> Result<std::map<std::string, HostTensor>> {
    edit::Loaded model(path);
    edit::convertFor(model, recipe, path);
    const std::string recipePath = "the recipe";
    return edit::Equalizer(model, recipe, recipePath).run();
  });
}

} // namespace lathe
