//===- Reduce.cpp - a failing model made small ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Reduce.h"
#include "GraphBuilder.h"

#include "onnx/shape_inference/implementation.h"

#include <map>
#include <set>

namespace lathe::fuzz {
namespace {

/// Names that a node reads, those of graphs inside included.
void collectReads(const onnx::NodeProto &node, std::set<std::string> &reads) {
  reads.insert(node.input().begin(), node.input().end());
  for (const auto &attr : node.attribute())
    if (attr.has_g()) {
      for (const auto &inner : attr.g().node())
        collectReads(inner, reads);
      for (const auto &output : attr.g().output())
        reads.insert(output.name());
    }
}

/// A model that can be taken apart.
struct Parts {
  onnx::ModelProto model;
  std::map<std::string, HostTensor> inputs;

  explicit Parts(const TestModel &from) {
    if (!model.ParseFromString(from.bytes))
      throw std::runtime_error("is no model");
    for (int i = 0; i < model.graph().input_size(); ++i)
      inputs[model.graph().input(i).name()] = from.inputs[size_t(i)];
  }

  onnx::GraphProto &graph() { return *model.mutable_graph(); }

  /// Drops nodes, inputs and initializers that no output needs.
  void prune() {
    std::set<std::string> needed;
    for (const auto &output : graph().output())
      needed.insert(output.name());
    std::vector<onnx::NodeProto> kept;
    for (int i = graph().node_size(); i-- > 0;) {
      const onnx::NodeProto &node = graph().node(i);
      bool isNeeded = false;
      for (const std::string &output : node.output())
        isNeeded |= needed.count(output) > 0;
      if (!isNeeded)
        continue;
      collectReads(node, needed);
      kept.push_back(node);
    }
    graph().clear_node();
    for (size_t i = kept.size(); i-- > 0;)
      *graph().add_node() = kept[i];
    auto drop = [&](auto *items) {
      for (int i = items->size(); i-- > 0;)
        if (!needed.count(items->Get(i).name()))
          items->DeleteSubrange(i, 1);
    };
    drop(graph().mutable_input());
    drop(graph().mutable_initializer());
  }

  TestModel finish() {
    prune();
    TestModel result;
    result.bytes = model.SerializeAsString();
    for (const auto &input : graph().input())
      result.inputs.push_back(inputs.at(input.name()));
    result.nodes = graph().node_size();
    onnx::ModelProto symbolic = model;
    makeSymbolic(symbolic);
    result.symbolic = symbolic.SerializeAsString();
    return result;
  }

  /// A value's type as shape inference has it.
  std::map<std::string, onnx::ValueInfoProto> types() const {
    onnx::ModelProto inferred = model;
    onnx::shape_inference::InferShapes(inferred);
    std::map<std::string, onnx::ValueInfoProto> result;
    for (const auto &value : inferred.graph().value_info())
      result[value.name()] = value;
    for (const auto &value : inferred.graph().output())
      result[value.name()] = value;
    return result;
  }
};

void describe(onnx::ValueInfoProto &info, const std::string &name, const HostTensor &tensor) {
  info.set_name(name);
  auto *type = info.mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnxType(tensor.dtype));
  auto *shape = type->mutable_shape();
  for (int64_t size : tensor.dims)
    shape->add_dim()->set_dim_value(size);
}

} // namespace

TestModel withAllResults(const TestModel &model, std::vector<std::string> &names) {
  try {
    Parts parts(model);
    auto types = parts.types();
    parts.graph().clear_output();
    for (const auto &node : parts.graph().node())
      for (const std::string &output : node.output())
        if (types.count(output)) {
          *parts.graph().add_output() = types[output];
          names.push_back(output);
        }
    return parts.finish();
  } catch (const std::exception &) {
    names.clear();
    return model;
  }
}

TestModel reduce(const TestModel &model, const std::function<bool(const TestModel &)> &fails, const Evaluate &evaluate,
                 int tries) {
  TestModel best = model;
  auto take = [&](const TestModel &candidate) {
    if (tries-- <= 0 || !fails(candidate))
      return false;
    best = candidate;
    return true;
  };
  try {
    // The first result that fails by itself.
    {
      Parts parts(best);
      auto types = parts.types();
      bool found = false;
      for (int i = 0; i < parts.graph().node_size() && !found; ++i)
        for (const std::string &output : parts.graph().node(i).output()) {
          if (output.empty() || !types.count(output))
            continue;
          Parts one(best);
          one.graph().clear_output();
          *one.graph().add_output() = types[output];
          if ((found = take(one.finish())))
            break;
        }
    }
    // Several results together: one less at a time.
    for (int i = Parts(best).graph().output_size(); i-- > 0;) {
      Parts fewer(best);
      if (fewer.graph().output_size() < 2)
        break;
      fewer.graph().mutable_output()->DeleteSubrange(i, 1);
      take(fewer.finish());
    }
    // Results as inputs, first of all nodes.
    std::map<std::string, HostTensor> values;
    for (auto &[name, tensor] : evaluate(best))
      values[name] = std::move(tensor);
    for (int i = Parts(best).graph().node_size(); i-- > 0 && tries > 0;) {
      Parts cut(best);
      if (i >= cut.graph().node_size())
        continue;
      bool known = true;
      std::set<std::string> results;
      for (const auto &output : cut.graph().output())
        results.insert(output.name());
      onnx::NodeProto node = cut.graph().node(i);
      for (const std::string &output : node.output())
        known &= values.count(output) && !results.count(output);
      if (!known)
        continue;
      cut.graph().mutable_node()->DeleteSubrange(i, 1);
      for (const std::string &output : node.output()) {
        describe(*cut.graph().add_input(), output, values[output]);
        cut.inputs[output] = values[output];
      }
      take(cut.finish());
    }
    // A node of one operand's type and sizes gives way to that operand.
    for (int i = 0; i < Parts(best).graph().node_size() && tries > 0;) {
      Parts parts(best);
      const onnx::NodeProto node = parts.graph().node(i);
      bool shorter = false;
      if (node.output_size() == 1 && values.count(node.output(0)))
        for (const std::string &input : node.input()) {
          const HostTensor *operand = values.count(input) ? &values[input] : parts.inputs.count(input) ? &parts.inputs[input] : nullptr;
          if (!operand || operand->dims != values[node.output(0)].dims || operand->dtype != values[node.output(0)].dtype)
            continue;
          Parts without(best);
          without.graph().mutable_node()->DeleteSubrange(i, 1);
          auto rename = [&](onnx::GraphProto &graph, auto &self) -> void {
            for (auto &other : *graph.mutable_node()) {
              for (auto &name : *other.mutable_input())
                if (name == node.output(0))
                  name = input;
              for (auto &attr : *other.mutable_attribute())
                if (attr.has_g())
                  self(*attr.mutable_g(), self);
            }
          };
          rename(without.graph(), rename);
          bool isOutput = false;
          for (const auto &output : parts.graph().output())
            isOutput |= output.name() == node.output(0);
          if (!isOutput && (shorter = take(without.finish())))
            break;
        }
      if (!shorter)
        ++i;
    }
  } catch (const std::exception &) {
    // What was found until here is as good.
  }
  return best;
}

} // namespace lathe::fuzz
