//===- ObserveModel.cpp - models that show their values -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/ObserveModel.h"

#include "EditModel.h"

#include "lathe/quantize/Weights.h"

#include "onnx/onnx_pb.h"

namespace lathe {

using namespace edit;

namespace {

class Observer : public Editor {
public:
  Observer(Loaded &model, const quantize::Recipe &recipe, const std::map<std::string, std::string> &smoothed)
      : Editor(model), recipe(recipe), smoothed(smoothed) {}

  void run(const std::vector<Observation> &observations) {
    bringInside(model);
    graph.clear_output();
    std::multimap<std::string, size_t> wanted; // by value
    for (size_t i = 0; i < observations.size(); ++i) {
      auto found = observations[i].summary == Summary::Losses || observations[i].summary == Summary::Shift
                       ? smoothed.end() : smoothed.find(observations[i].value);
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
      maker = graph.add_node();
      maker->Swap(&node);
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
      result(node("ReduceMin", {inFloat(value)}, {{"keepdims", 0}}), onnx::TensorProto::FLOAT, {});
      result(node("ReduceMax", {inFloat(value)}, {{"keepdims", 0}}), onnx::TensorProto::FLOAT, {});
      return;
    case Summary::Elements: {
      import("lathe.custom");
      std::string done = node(kObserveCall, {asStored(inFloat(value), value)}, {{"number", int64_t(at)}});
      graph.mutable_node(graph.node_size() - 1)->set_domain("lathe.custom");
      result(done, onnx::TensorProto::UINT8, {1});
      return;
    }
    case Summary::Channels: {
      std::string rows = rowsOf(inFloat(value), what.depth), magnitude = node("Abs", {rows});
      for (const auto &[type, of] : std::vector<std::pair<const char *, std::string>>{
               {"ReduceMin", rows}, {"ReduceMax", rows}, {"ReduceMean", magnitude}, {"ReduceMean", node("Mul", {rows, rows})}})
        result(overRows(type, of), onnx::TensorProto::FLOAT, {what.depth});
      result(node("Size", {value}), onnx::TensorProto::INT64, {});
      return;
    }
    case Summary::Gram: {
      std::string rows = rowsOf(inFloat(value), what.depth);
      result(node("MatMul", {node("Transpose", {rows}), rows}), onnx::TensorProto::FLOAT, {what.depth, what.depth});
      return;
    }
    case Summary::Shift:
      showShift();
      return;
    case Summary::Losses:
      showLosses();
      return;
    }
  }

  /// What codes change in what `maker` makes, which is linear: each part is the product of a difference, so that none is the
  /// small difference of two large results, and what is not clipped loses exactly nothing.
  struct Changes {
    std::string byWeight, byClipping, byRounding, all, clipped;
  };
  Changes changes() {
    const std::string x = maker->input(0), w = maker->input(1);
    const quantize::WeightRecipe &how = recipe.weights.at(w);
    HostTensor weight = model.read(*model.constants.at(w));
    auto given = recipe.codes.find(w);
    Result<quantize::QuantizedWeight> codes =
        given == recipe.codes.end() ? quantize::quantizeWeight(weight, how, w) : given->second;
    if (!codes)
      throw ImportError{codes.status()};
    if (codes->codes.dims != weight.dims)
      raise(ErrorCode::Invalid, "its codes are of other sizes than the weight: the recipe is of another model",
            "weight '" + w + "'");
    HostTensor difference = quantize::dequantizeWeight(*codes, how);
    for (int64_t e = 0; e < weight.count(); ++e)
      difference.setReal(e, difference.real(e) - weight.real(e));
    const std::string change = constant("lathe.observed.change", difference), wide = inFloat(x);

    const std::string byWeight = product(wide, change);
    std::string byClipping = scalar(0), byRounding = scalar(0), all = byWeight, clipped = scalar(0);
    if (std::string rounded = throughCodes(x, clipped, byClipping); !rounded.empty()) {
      byRounding = product(node("Sub", {rounded, bounded}), inFloat(w));
      all = node("Add", {node("Add", {byClipping, byRounding}), product(rounded, change)});
    }
    return {byWeight, byClipping, byRounding, all, clipped};
  }

  void showShift() {
    const std::string all = changes().all;
    const bool image = isConv(*maker);
    const onnx::TensorProto &weight = *model.constants.at(maker->input(1));
    const int64_t channels = weight.dims(int(*scaleAxisOf(*maker)));
    result(overRows("ReduceMean", rowsOf(image ? node("GlobalAveragePool", {all}) : all, channels)), onnx::TensorProto::FLOAT, {channels});
    result(node("Size", {all}), onnx::TensorProto::INT64, {});
  }

  void showLosses() {
    const std::string x = maker->input(0);
    auto [byWeight, byClipping, byRounding, all, clipped] = changes();
    if (auto bias = recipe.biases.find(maker->output(0)); bias != recipe.biases.end()) {
      HostTensor corrected = bias->second;
      if (isConv(*maker))
        corrected.dims.resize(size_t(model.constants.at(maker->input(1))->dims_size() - 1), 1);
      all = node("Add", {all, constant("lathe.observed.bias", corrected)});
    }
    for (const std::string &of : {inFloat(maker->output(0)), byWeight, byClipping, byRounding, all})
      result(node("ReduceSumSquare", {of}, {{"keepdims", 0}}), onnx::TensorProto::FLOAT, {});
    result(node("ReduceSum", {clipped}, {{"keepdims", 0}}), onnx::TensorProto::FLOAT, {});
    result(node("Size", {x}), onnx::TensorProto::INT64, {});
    result(node("ReduceMin", {inFloat(x)}, {{"keepdims", 0}}), onnx::TensorProto::FLOAT, {});
    result(node("ReduceMax", {inFloat(x)}, {{"keepdims", 0}}), onnx::TensorProto::FLOAT, {});
  }

  /// What codes of `x` stand for; none where it has no codes. Sets `bounded`, x within its range, and of a range
  /// that is known ahead 1 where an element is `clipped`, and what the product loses `byClipping`.
  std::string throughCodes(const std::string &x, std::string &clipped, std::string &byClipping) {
    const std::string wide = inFloat(x);
    bounded = wide;
    if (recipe.dynamic) {
      std::string s = fresh("lathe.observed.scale"), z = fresh("lathe.observed.zero_point");
      std::string q = add("DynamicQuantizeLinear", "lathe.observed", "lathe.observed", {x}, {}, {s, z});
      return node("DequantizeLinear", {q, s, z});
    }
    const quantize::WeightRecipe &how = recipe.weights.at(maker->input(1));
    if (isHalf(how.format))
      return node("Cast", {node("Cast", {x}, {{"to", how.format == quantize::WeightFormat::F16 ? onnx::TensorProto::FLOAT16
                                                                                               : onnx::TensorProto::BFLOAT16}})},
                  {{"to", onnx::TensorProto::FLOAT}});
    if (how.weightOnly)
      return {};
    std::string value = x; // as the recipe calls it
    for (const auto &[original, name] : smoothed)
      if (name == x)
        value = original;
    auto range = recipe.activations.find(value);
    const DType type = typeOf(*model.constants.at(maker->input(1))); // which scales have too
    std::optional<quantize::CodesOfRange> codes;
    if (range != recipe.activations.end())
      codes = quantize::codesOf(range->second, type);
    if (!codes)
      return {};
    const bool floats = how.format == quantize::WeightFormat::F8E4M3;
    HostTensor zero(floats ? DType::F8E4M3FN : DType::UI8, {});
    if (!floats)
      zero.setInteger(0, codes->zero);
    constexpr double kHalf = 0.5 + 1e-3; // of a step, and what f32 rounds
    double step = codes->scale, lowest = (0 - codes->zero - kHalf) * step, highest = (255 - codes->zero + kHalf) * step;
    if (floats) {
      step = double(quantize::floatScaleOf(range->second, type).value_or(1));
      highest = (448 + 32 * kHalf) * step; // the last step of e4m3 is 32
      lowest = -highest;
    }
    const std::string s = scalar(step), z = constant("lathe.observed.zero_point", zero);
    const std::string least = scalar(lowest), greatest = scalar(highest);
    bounded = node("Min", {node("Max", {wide, least}), greatest});
    clipped = node("Cast", {node("Or", {node("Less", {wide, least}), node("Greater", {wide, greatest})})},
                   {{"to", onnx::TensorProto::FLOAT}});
    byClipping = product(node("Sub", {bounded, wide}), inFloat(maker->input(1)));
    return node("DequantizeLinear", {node("QuantizeLinear", {wide, s, z}), s, z});
  }

  /// A value in f32, in which what is seen of it is computed.
  std::string inFloat(const std::string &value) {
    return model.hasHalf() ? node("Cast", {value}, {{"to", onnx::TensorProto::FLOAT}}) : value;
  }
  /// `maker` of other operands, without its bias.
  std::string product(const std::string &x, const std::string &w) {
    std::string made = node(maker->op_type().c_str(), {x, w});
    *graph.mutable_node(graph.node_size() - 1)->mutable_attribute() = maker->attribute();
    return made;
  }
  std::string scalar(double value) {
    HostTensor tensor(DType::F32, {});
    tensor.setReal(0, value);
    return constant("lathe.observed.number", tensor);
  }

  std::string node(const char *type, const std::vector<std::string> &inputs, const Attributes &attributes = {}) {
    const std::string name = "lathe.observed." + std::to_string(number);
    return add(type, name, name, inputs, attributes);
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

  /// An image that the model calls `name` with its channels last, as engines keep those that they make.
  std::string asStored(const std::string &value, const std::string &name) {
    auto rank = images.find(name);
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

  const quantize::Recipe &recipe;
  const std::map<std::string, std::string> &smoothed;
  onnx::NodeProto *maker = nullptr; ///< of the value that is shown; not of one that nothing makes
  std::string bounded;   ///< of showLosses
  std::map<std::string, int> images; ///< what convolutions read, and how many dimensions it has
  std::vector<std::vector<onnx::ValueInfoProto>> results; ///< of each observation
  size_t number = 0; ///< of the observation that nodes are added for
};

} // namespace

Result<std::string> observedModel(const std::string &path, const quantize::Recipe &recipe,
                                  const std::vector<Observation> &observations) {
  return guarded<std::string>(path, [&]() -> Result<std::string> {
    Loaded model(path);
    convertFor(model, recipe, path);
    const std::string recipePath = "the recipe";
    const std::map<std::string, std::string> smoothed = Smoother(model, recipe, recipePath).run();
    Observer(model, recipe, smoothed).run(observations);
    return bytesOf(model, path);
  });
}

Result<std::string> namedModel(const std::string &path) {
  return guarded<std::string>(path, [&]() -> Result<std::string> {
    Loaded model(path);
    giveNames(*model.proto.mutable_graph());
    bringInside(model);
    return bytesOf(model, path);
  });
}

} // namespace lathe
