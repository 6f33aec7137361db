//===- FreeSizes.cpp - sizes that a model states and a user frees ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FreeSizes.h"
#include "Proto.h"

#include <algorithm>

namespace lathe::onnxmodel {
namespace {

using Sizes = std::vector<int64_t>;

/// The type of a tensor, or of the tensors in an optional or a sequence; null: there are none.
onnx::TypeProto_Tensor *tensorIn(onnx::TypeProto &type) {
  if (type.has_optional_type())
    return tensorIn(*type.mutable_optional_type()->mutable_elem_type());
  if (type.has_sequence_type())
    return tensorIn(*type.mutable_sequence_type()->mutable_elem_type());
  return type.has_tensor_type() ? type.mutable_tensor_type() : nullptr;
}

void forget(onnx::ValueInfoProto &value) {
  onnx::TypeProto_Tensor *tensor = value.has_type() ? tensorIn(*value.mutable_type()) : nullptr;
  if (tensor && tensor->has_shape())
    for (auto &dim : *tensor->mutable_shape()->mutable_dim())
      dim.clear_dim_value();
}

/// What is stated of values that nodes compute, here and in the graphs of nodes.
void forgetComputed(onnx::GraphProto &graph, bool isBody) {
  graph.clear_value_info();
  for (auto &output : *graph.mutable_output())
    forget(output);
  if (isBody)
    for (auto &input : *graph.mutable_input())
      forget(input);
  for (auto &node : *graph.mutable_node())
    for (auto &attribute : *node.mutable_attribute()) {
      if (attribute.has_g())
        forgetComputed(*attribute.mutable_g(), true);
      for (auto &body : *attribute.mutable_graphs())
        forgetComputed(body, true);
    }
}

} // namespace

void freeSizes(onnx::GraphProto &graph, const std::map<std::string, Sizes> &shapes) {
  auto isFree = [](int64_t size) { return size < 0; };
  bool any = false;
  for (const auto &[name, sizes] : shapes) {
    if (std::ranges::none_of(sizes, isFree))
      continue;
    const std::string tensorsOf = name.substr(0, name.ends_with(']') ? name.rfind('[') : std::string::npos);
    for (auto &input : *graph.mutable_input()) {
      if (input.name() != name && input.name() != tensorsOf)
        continue;
      onnx::TypeProto_Tensor *tensor = tensorIn(*input.mutable_type());
      if (!tensor)
        continue;
      if (!tensor->has_shape())
        for (size_t axis = 0; axis < sizes.size(); ++axis)
          tensor->mutable_shape()->add_dim();
      onnx::TensorShapeProto *shape = tensor->mutable_shape();
      if (shape->dim_size() != int(sizes.size()))
        throw ImportError{usageError("the input has rank " + std::to_string(shape->dim_size()) + ", the shape has " +
                                         std::to_string(sizes.size()) + " sizes",
                                     "--shape " + name)};
      for (int axis = 0; axis < shape->dim_size(); ++axis)
        if (isFree(sizes[axis]))
          shape->mutable_dim(axis)->clear_dim_value();
      any = true;
    }
  }
  if (any)
    forgetComputed(graph, false);
}

} // namespace lathe::onnxmodel
