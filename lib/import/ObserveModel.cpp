//===- ObserveModel.cpp - models that show their values -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/ObserveModel.h"

#include "EditModel.h"

#include "onnx/onnx_pb.h"

namespace lathe {

using namespace edit;

namespace {

class Observer : public Editor {
public:
  Observer(Loaded &model, const std::map<std::string, std::string> &smoothed) : Editor(model), smoothed(smoothed) {}

  void run(const std::vector<Observation> &observations) {
    // What lies outside is not found from where the model will be.
    for (auto &tensor : *graph.mutable_initializer())
      if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
        Loaded::store(tensor, model.read(tensor));
    graph.clear_output();
    std::multimap<std::string, size_t> wanted; // by value
    for (size_t i = 0; i < observations.size(); ++i) {
      auto found = smoothed.find(observations[i].value);
      wanted.emplace(found == smoothed.end() ? observations[i].value : found->second, i);
    }
    results.resize(observations.size());
    // Each right behind what makes its value, which then need not live longer than in the model.
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    std::set<std::string> made;
    for (auto &node : nodes) {
      made.insert(node.output().begin(), node.output().end());
      if (isConv(node) && made.count(node.input(0)) && model.constants.count(node.input(1)))
        images[node.input(0)] = model.constants[node.input(1)]->dims_size();
    }
    for (auto [value, number] : wanted)
      if (!made.count(value))
        show(observations[number], value, number);
    for (auto &node : nodes) {
      const std::vector<std::string> outputs(node.output().begin(), node.output().end());
      graph.add_node()->Swap(&node);
      for (const std::string &value : outputs)
        for (auto [at, end] = wanted.equal_range(value); at != end; ++at)
          show(observations[at->second], value, at->second);
    }
    for (std::vector<onnx::ValueInfoProto> &shown : results)
      for (onnx::ValueInfoProto &output : shown)
        graph.add_output()->Swap(&output);
  }

private:
  void show(const Observation &what, const std::string &value, size_t at) {
    number = at;
    switch (what.summary) {
    case Summary::MinMax:
      result(node("ReduceMin", {value}, {{"keepdims", 0}}), onnx::TensorProto::FLOAT, {});
      result(node("ReduceMax", {value}, {{"keepdims", 0}}), onnx::TensorProto::FLOAT, {});
      return;
    case Summary::Elements: {
      import("lathe.custom");
      std::string done = node(kObserveCall, {asStored(value)}, {{"number", int64_t(at)}});
      graph.mutable_node(graph.node_size() - 1)->set_domain("lathe.custom");
      result(done, onnx::TensorProto::UINT8, {1});
      return;
    }
    case Summary::Channels: {
      std::string rows = rowsOf(value, what.depth), magnitude = node("Abs", {rows});
      for (const auto &[type, of] : std::vector<std::pair<const char *, std::string>>{
               {"ReduceMin", rows}, {"ReduceMax", rows}, {"ReduceMean", magnitude}, {"ReduceMean", node("Mul", {rows, rows})}})
        result(overRows(type, of), onnx::TensorProto::FLOAT, {what.depth});
      result(node("Size", {value}), onnx::TensorProto::INT64, {});
      return;
    }
    case Summary::Gram: {
      std::string rows = rowsOf(value, what.depth);
      result(node("MatMul", {node("Transpose", {rows}), rows}), onnx::TensorProto::FLOAT, {what.depth, what.depth});
      return;
    }
    }
  }

  std::string node(const char *type, const std::vector<std::string> &inputs, const Attributes &attributes = {}) {
    return add(type, "lathe.observed", "lathe.observed", inputs, attributes);
  }
  /// [rows, depth] of a value of any rank.
  std::string rowsOf(const std::string &value, int64_t depth) {
    HostTensor sizes(DType::I64, {2});
    sizes.setInteger(0, -1);
    sizes.setInteger(1, depth);
    return node("Reshape", {value, constant("lathe.observed.sizes", sizes)});
  }
  /// A reduction over dimension 0, whose form changed in opset 18.
  std::string overRows(const char *type, const std::string &rows) {
    if (model.opset() >= 18)
      return node(type, {rows, constant("lathe.observed.axis", HostTensor(DType::I64, {1}))}, {{"keepdims", 0}});
    std::string reduced = node(type, {rows}, {{"keepdims", 0}});
    auto *axes = graph.mutable_node(graph.node_size() - 1)->add_attribute();
    axes->set_name("axes");
    axes->set_type(onnx::AttributeProto::INTS);
    axes->add_ints(0);
    return reduced;
  }
  void result(const std::string &name, int type, const std::vector<int64_t> &dims) {
    onnx::ValueInfoProto &output = results[number].emplace_back();
    output.set_name(name);
    output.mutable_type()->mutable_tensor_type()->set_elem_type(type);
    auto *shape = output.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int64_t d : dims)
      shape->add_dim()->set_dim_value(d);
  }

  /// An image with its channels last, as engines keep those that they make.
  std::string asStored(const std::string &value) {
    auto rank = images.find(value);
    if (rank == images.end())
      return value;
    std::string turned = node("Transpose", {value});
    auto *perm = graph.mutable_node(graph.node_size() - 1)->add_attribute();
    perm->set_name("perm");
    perm->set_type(onnx::AttributeProto::INTS);
    perm->add_ints(0);
    for (int d = 2; d < rank->second; ++d)
      perm->add_ints(d);
    perm->add_ints(1);
    return turned;
  }

  const std::map<std::string, std::string> &smoothed;
  std::map<std::string, int> images; ///< what convolutions read, and how many dimensions it has
  std::vector<std::vector<onnx::ValueInfoProto>> results; ///< of each observation
  size_t number = 0; ///< of the observation that nodes are added for
};

} // namespace

Result<std::string> observedModel(const std::string &path, const quantize::Recipe &recipe,
                                  const std::vector<Observation> &observations) {
  return guarded<std::string>(path, [&]() -> Result<std::string> {
    Loaded model(path);
    Result<quantize::Scheme> scheme = quantize::schemeNamed(recipe.scheme);
    if (!scheme)
      return scheme.status();
    convertFor(model, *scheme, path);
    const std::string recipePath = "the recipe";
    const std::map<std::string, std::string> smoothed = Smoother(model, recipe, recipePath).run();
    Observer(model, smoothed).run(observations);
    return bytesOf(model, path);
  });
}

} // namespace lathe
