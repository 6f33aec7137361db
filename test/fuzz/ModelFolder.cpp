//===- ModelFolder.cpp - a test model as files ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ModelFolder.h"
#include "GraphBuilder.h"

#include "lathe/import/TensorFile.h"
#include "lathe/support/Files.h"

#include <filesystem>

namespace fs = std::filesystem;

namespace lathe::fuzz {

Status save(const TestModel &model, const std::string &folder) {
  std::string data = folder + "/test_data_set_0";
  std::error_code error;
  fs::remove_all(data, error);
  fs::create_directories(data, error);
  if (error)
    return runtimeError("the folder cannot be made: " + error.message(), folder);
  LATHE_RETURN_IF_ERROR(writeFileAtomically(folder + "/model.onnx", model.bytes));
  try {
    for (size_t i = 0; i < model.inputs.size(); ++i) {
      const HostTensor &tensor = model.inputs[i];
      onnx::TensorProto proto;
      proto.set_data_type(onnxType(tensor.dtype));
      for (int64_t size : tensor.dims)
        proto.add_dims(size);
      proto.set_raw_data(tensor.data.data(), tensor.data.size());
      LATHE_RETURN_IF_ERROR(
          writeFileAtomically(data + "/input_" + std::to_string(i) + ".pb", proto.SerializeAsString()));
    }
  } catch (const std::exception &e) {
    return runtimeError(e.what(), folder);
  }
  return okStatus();
}

Result<HostTensor> loadTensor(const std::string &folder, size_t input) {
  Result<NamedTensor> tensor = readTensorProto(folder + "/test_data_set_0/input_" + std::to_string(input) + ".pb");
  if (!tensor)
    return tensor.status();
  return std::move(tensor->tensor);
}

Result<TestModel> load(const std::string &folder) {
  TestModel model;
  Result<std::string> bytes = readFile(folder + "/model.onnx");
  if (!bytes)
    return bytes.status();
  model.bytes = std::move(*bytes);
  try {
    onnx::ModelProto proto;
    if (!proto.ParseFromString(model.bytes))
      return invalidError("is no ONNX model", folder + "/model.onnx");
    model.nodes = proto.graph().node_size();
    makeSymbolic(proto);
    model.symbolic = proto.SerializeAsString();
    for (int i = 0; i < proto.graph().input_size(); ++i) {
      Result<HostTensor> tensor = loadTensor(folder, size_t(i));
      if (!tensor)
        return tensor.status();
      model.inputs.push_back(std::move(*tensor));
    }
  } catch (const std::exception &e) {
    return runtimeError(e.what(), folder);
  }
  return model;
}

} // namespace lathe::fuzz
