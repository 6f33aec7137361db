//===- TensorFile.cpp - tensors from ONNX's .pb files -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/TensorFile.h"

#include "Proto.h"

#include "lathe/support/Files.h"

#include <cstring>

namespace lathe {

Result<NamedTensor> readTensorProto(const std::string &path) try {
  Result<std::string> bytes = readFile(path);
  if (!bytes)
    return bytes.status();
  onnx::TensorProto proto;
  if (bytes->size() > INT32_MAX || !proto.ParseFromString(*bytes))
    return invalidError("is no serialized TensorProto", path);
  // A sequence or an optional parses as a tensor of unknown fields.
  if (proto.data_type() == onnx::TensorProto::UNDEFINED)
    return unsupportedError("holds no plain tensor (a sequence, a map or an optional)", path);
  if (proto.data_type() == onnx::TensorProto::STRING)
    return unsupportedError("holds strings", path);
  onnxmodel::Tensor tensor = onnxmodel::toTensor(proto, {});
  NamedTensor result;
  result.name = proto.name();
  if (Result<int64_t> count = checkedElementCount(tensor.dims); !count)
    return Status(ErrorCode::Invalid, count.status().message(), path);
  result.tensor = HostTensor(tensor.dtype, tensor.dims);
  if (result.tensor.data.size() != tensor.bytes.size())
    return invalidError("has " + std::to_string(tensor.bytes.size()) + " bytes of data, its shape " +
                            "needs " + std::to_string(result.tensor.data.size()),
                        path);
  if (!tensor.bytes.empty())
    std::memcpy(result.tensor.data.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
} catch (const onnxmodel::ImportError &error) {
  return Status(error.status.code(), error.status.message(), path + ": " + error.status.location());
} catch (const std::exception &error) {
  return invalidError(error.what(), path);
}

} // namespace lathe
