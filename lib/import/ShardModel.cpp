//===- ShardModel.cpp - sharding specs written into ONNX models -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/ShardModel.h"

#include "EditModel.h"

#include "onnx/shape_inference/implementation.h"

#include <algorithm>

namespace lathe {
namespace {

using namespace edit;

constexpr int64_t kFirstIrVersion = 11; ///< that has device configurations

/// The sizes that the model itself gives its tensors, -1 where it names or leaves them open.
std::map<std::string, std::vector<int64_t>> sizesOf(const onnx::ModelProto &proto) {
  onnx::ModelProto copy = proto;
  try {
    onnx::shape_inference::InferShapes(copy);
  } catch (const std::exception &) { // what the file states remains
  }
  std::map<std::string, std::vector<int64_t>> found;
  auto add = [&](const auto &values) {
    for (const auto &value : values) {
      if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape())
        continue;
      std::vector<int64_t> dims;
      for (const auto &dim : value.type().tensor_type().shape().dim())
        dims.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
      found[value.name()] = std::move(dims);
    }
  };
  add(copy.graph().value_info());
  add(copy.graph().output());
  for (const auto &tensor : proto.graph().initializer())
    found[tensor.name()] = {tensor.dims().begin(), tensor.dims().end()};
  return found;
}

bool agree(const std::vector<int64_t> &a, const std::vector<int64_t> &b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](int64_t x, int64_t y) { return x == y || x < 0 || y < 0; });
}

class Annotator {
public:
  Annotator(Loaded &model, int64_t ranks)
      : model(model), graph(*model.proto.mutable_graph()), ranks(ranks), name("lathe-tp" + std::to_string(ranks)),
        sizes(sizesOf(model.proto)) {}

  ShardedModel run(const std::vector<FoundSharding> &found) {
    std::map<std::string, std::string> tensors; // by the name of an initializer, or of a node that no other has
    std::map<std::string, int> times;
    for (const auto &node : graph.node())
      ++times[node.name()];
    for (const auto &node : graph.node())
      if (!node.name().empty() && times[node.name()] == 1 && node.output_size())
        tensors[node.name()] = node.output(0);
    for (const auto &tensor : graph.initializer())
      tensors[tensor.name()] = tensor.name();
    for (const FoundSharding &one : found) {
      auto tensor = tensors.find(one.name);
      if (tensor == tensors.end())
        continue; // of an op that no node of the file is by itself
      auto known = sizes.find(tensor->second);
      std::string why = one.cannot;
      if (known == sizes.end() || !agree(known->second, one.dims))
        why = "the file does not say that it has the sizes by which it is divided";
      else if (one.dim && known->second[size_t(*one.dim)] < 0)
        why = "it is divided along a dimension whose size the file does not say";
      if (!why.empty())
        made.notes.push_back("'" + one.name + "' has no spec: " + why);
      else
        wanted[tensor->second] = one.dim;
    }
    declare();
    for (auto &node : *graph.mutable_node())
      annotate(node);
    made.tensors = int64_t(wanted.size());
    return std::move(made);
  }

private:
  void declare() {
    model.proto.set_ir_version(std::max<int64_t>(model.proto.ir_version(), kFirstIrVersion));
    auto &list = *model.proto.mutable_configuration();
    onnx::DeviceConfigurationProto *own = nullptr;
    for (auto &configuration : list)
      if (configuration.name() == name)
        own = &configuration;
    if (!own)
      own = list.Add();
    own->Clear();
    own->set_name(name);
    own->set_num_devices(int(ranks));
  }

  void annotate(onnx::NodeProto &node) {
    auto &list = *node.mutable_device_configurations();
    for (int i = list.size(); i-- > 0;)
      if (list.Get(i).configuration_id() == name)
        list.DeleteSubrange(i, 1);
    onnx::NodeDeviceConfigurationProto configuration;
    std::set<std::string> seen;
    auto add = [&](const std::string &tensor) {
      auto layout = wanted.find(tensor);
      if (layout == wanted.end() || !seen.insert(tensor).second)
        return;
      auto *spec = configuration.add_sharding_spec();
      spec->set_tensor_name(tensor);
      for (int64_t rank = 0; rank < ranks; ++rank)
        spec->add_device(rank);
      if (!layout->second)
        return;
      auto *dim = spec->add_sharded_dim();
      dim->set_axis(*layout->second);
      auto *simple = dim->add_simple_sharding();
      simple->set_dim_value(sizes.at(tensor)[size_t(*layout->second)]);
      simple->set_num_shards(ranks);
    };
    for (const std::string &input : node.input())
      add(input);
    for (const std::string &output : node.output())
      add(output);
    if (!configuration.sharding_spec_size())
      return;
    configuration.set_configuration_id(name);
    list.Add()->Swap(&configuration);
  }

  Loaded &model;
  onnx::GraphProto &graph;
  const int64_t ranks;
  const std::string name;
  const std::map<std::string, std::vector<int64_t>> sizes;
  std::map<std::string, std::optional<int64_t>> wanted; ///< by tensor
  ShardedModel made;
};

} // namespace

Result<ShardedModel> shardedModel(const std::string &path, int64_t ranks, const std::vector<FoundSharding> &found) {
  return guarded<ShardedModel>(path, [&]() -> Result<ShardedModel> {
    Loaded model(path);
    ShardedModel made = Annotator(model, ranks).run(found);
    Result<std::string> bytes = bytesOf(model, path);
    if (!bytes)
      return bytes.status();
    made.bytes = std::move(*bytes);
    return made;
  });
}

} // namespace lathe
