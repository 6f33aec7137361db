//===- ThresholdInputs.cpp - products of inputs that are large enough -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/ThresholdInputs.h"

#include "EditModel.h"

#include <algorithm>

namespace lathe {
namespace {

using namespace edit;

class Thresholds : public Editor {
public:
  Thresholds(Loaded &model, const std::vector<PrunableWeight> &weights, const std::map<std::string, double> &thresholds)
      : Editor(model), weights(weights), thresholds(thresholds) {}

  std::map<std::string, std::vector<std::string>> run() {
    std::map<std::string, DType> readers; ///< products by name, with the type of their weights
    for (const PrunableWeight &weight : weights)
      for (const std::string &node : weight.nodes)
        readers[node] = model.read(*model.constants.at(weight.name)).dtype;
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    for (onnx::NodeProto &node : nodes) {
      auto reader = readers.find(nameOf(node));
      // Ahead of the first that reads it, so that nodes stay in order.
      if (reader != readers.end() && thresholds.count(node.input(0)))
        node.set_input(0, thresholded(node.input(0), reader->second));
      graph.add_node()->Swap(&node);
    }
    return std::move(added);
  }

private:
  std::string thresholded(const std::string &value, DType type) {
    auto [made, isNew] = results.try_emplace(value);
    if (!isNew)
      return made->second;
    auto number = [&](const char *name, double x) {
      HostTensor scalar(type, {});
      scalar.setReal(0, x);
      return constant(value + name, scalar);
    };
    const int before = graph.node_size();
    std::string magnitude = add("Abs", value, value + "_magnitude", {value});
    std::string small = add("Less", value, value + "_inactive", {magnitude, number("_threshold", thresholds.at(value))});
    made->second = add("Where", value, value + "_active", {small, number("_zero", 0), value});
    for (int i = before; i < graph.node_size(); ++i)
      added[value].push_back(graph.node(i).name());
    return made->second;
  }

  const std::vector<PrunableWeight> &weights;
  const std::map<std::string, double> &thresholds;
  std::map<std::string, std::string> results;
  std::map<std::string, std::vector<std::string>> added;
};

} // namespace

Result<ThresholdedModel> thresholdedModel(const std::string &path, const std::vector<PrunableWeight> &weights,
                                          const std::map<std::string, double> &thresholds, bool inside) {
  return guarded<ThresholdedModel>(path, [&]() -> Result<ThresholdedModel> {
    Loaded model(path);
    constexpr int64_t kWhere = 9, kWhereOfBf16 = 16;
    const bool anyBf16 = std::any_of(weights.begin(), weights.end(), [&](const PrunableWeight &weight) {
      return typeOf(*model.constants.at(weight.name)) == DType::BF16;
    });
    const int64_t least = anyBf16 ? kWhereOfBf16 : kWhere;
    if (model.opset() < least)
      return unsupportedError("is of opset " + std::to_string(model.opset()) + ": thresholds want " + std::to_string(least) +
                              " or later", path);
    ThresholdedModel result;
    result.nodes = Thresholds(model, weights, thresholds).run();
    Result<std::string> bytes = bytesOf(model, path, inside);
    if (!bytes)
      return bytes.status();
    result.bytes = std::move(*bytes);
    return result;
  });
}

} // namespace lathe
