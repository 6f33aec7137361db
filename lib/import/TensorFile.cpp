//===- TensorFile.cpp - tensors from ONNX's .pb files -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/TensorFile.h"

#include "Proto.h"

#include "lathe/support/Files.h"
#include "lathe/support/Strings.h"

#include "onnx/onnx-data.pb.h"

#include <cstring>
#include <set>
#include <utility>

namespace lathe {

/// Runs `read` on a file that is parsed as a message of some type.
template <typename Proto, typename Read>
static auto readProto(const std::string &path, const char *what, Read read)
    -> decltype(read(std::declval<const Proto &>())) try {
  Result<std::string> bytes = readFile(path);
  if (!bytes)
    return bytes.status();
  Proto proto;
  if (bytes->size() > INT32_MAX || !proto.ParseFromString(*bytes))
    return invalidError(std::string("is no serialized ") + what, path);
  return read(proto);
} catch (const onnxmodel::ImportError &error) {
  return Status(error.status.code(), error.status.message(), path + ": " + error.status.location());
} catch (const std::exception &error) {
  return invalidError(error.what(), path);
}

static Result<HostTensor> toHost(const onnx::TensorProto &proto, const std::string &path) {
  // A sequence or an optional parses as a tensor of unknown fields.
  if (proto.data_type() == onnx::TensorProto::UNDEFINED)
    return unsupportedError("holds no plain tensor (a sequence, a map or an optional)", path);
  onnxmodel::Tensor tensor = onnxmodel::toTensor(proto, {});
  if (Result<int64_t> count = checkedElementCount(tensor.dims); !count)
    return Status(ErrorCode::Invalid, count.status().message(), path);
  if (tensor.dtype == DType::String)
    return stringTensor(tensor.dims, tensor.strings);
  HostTensor result(tensor.dtype, tensor.dims);
  if (result.data.size() != tensor.bytes.size())
    return invalidError("has " + std::to_string(tensor.bytes.size()) + " bytes of data, its shape " +
                            "needs " + std::to_string(result.data.size()),
                        path);
  if (!tensor.bytes.empty())
    std::memcpy(result.data.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

Result<NamedTensor> readTensorProto(const std::string &path) {
  return readProto<onnx::TensorProto>(
      path, "TensorProto", [&](const onnx::TensorProto &proto) -> Result<NamedTensor> {
        Result<HostTensor> tensor = toHost(proto, path);
        if (!tensor)
          return tensor.status();
        return NamedTensor{proto.name(), std::move(*tensor)};
      });
}

using Tensors = std::optional<std::vector<HostTensor>>;

static Result<Tensors> toHost(const onnx::SequenceProto &proto, const std::string &path) {
  if (proto.tensor_values_size() == 0 && proto.elem_type() > onnx::SequenceProto::TENSOR)
    return unsupportedError("holds a sequence of what are no tensors", path);
  std::vector<HostTensor> tensors;
  for (const onnx::TensorProto &one : proto.tensor_values()) {
    Result<HostTensor> tensor = toHost(one, path);
    if (!tensor)
      return tensor.status();
    tensors.push_back(std::move(*tensor));
  }
  return Tensors(std::move(tensors));
}

Result<Tensors> readValueProto(const std::string &path, ValueKind kind) {
  auto one = [&](const onnx::TensorProto &proto) -> Result<Tensors> {
    Result<HostTensor> tensor = toHost(proto, path);
    if (!tensor)
      return tensor.status();
    std::vector<HostTensor> tensors;
    tensors.push_back(std::move(*tensor));
    return Tensors(std::move(tensors));
  };
  if (kind == ValueKind::Tensor)
    return readProto<onnx::TensorProto>(path, "TensorProto", one);
  if (kind == ValueKind::Sequence)
    return readProto<onnx::SequenceProto>(
        path, "SequenceProto", [&](const onnx::SequenceProto &proto) { return toHost(proto, path); });
  return readProto<onnx::OptionalProto>(
      path, "OptionalProto", [&](const onnx::OptionalProto &proto) -> Result<Tensors> {
        if (proto.has_tensor_value())
          return one(proto.tensor_value());
        return proto.has_sequence_value() ? toHost(proto.sequence_value(), path) : Result<Tensors>(Tensors());
      });
}

Result<ModelPorts> readModelPorts(const std::string &path) {
  return readProto<onnx::ModelProto>(
      path, "ModelProto", [&](const onnx::ModelProto &proto) -> Result<ModelPorts> {
        std::set<std::string> constants;
        for (const auto &initializer : proto.graph().initializer())
          constants.insert(initializer.name());
        auto port = [](const onnx::ValueInfoProto &info) {
          const onnx::TypeProto &type = info.type();
          bool inOptional = type.has_optional_type() && type.optional_type().elem_type().has_sequence_type();
          return ModelPort{info.name(), inOptional                 ? ValueKind::OptionalSequence
                                        : type.has_optional_type() ? ValueKind::Optional
                                        : type.has_sequence_type() ? ValueKind::Sequence
                                                                   : ValueKind::Tensor};
        };
        ModelPorts ports;
        for (const auto &input : proto.graph().input())
          if (!constants.count(input.name()))
            ports.inputs.push_back(port(input));
        for (const auto &output : proto.graph().output())
          ports.outputs.push_back(port(output));
        return ports;
      });
}

} // namespace lathe
