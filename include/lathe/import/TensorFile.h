//===- TensorFile.h - tensors from ONNX's .pb files -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files of `test_data_set_N` folders: one serialized TensorProto each.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_TENSORFILE_H
#define LATHE_IMPORT_TENSORFILE_H

#include "lathe/support/HostTensor.h"

#include <optional>
#include <string>
#include <vector>

namespace lathe {

struct NamedTensor {
  std::string name; ///< as in the file; often empty
  HostTensor tensor;
};

/// What a value of a model is.
enum class ValueKind { Tensor, Sequence, Optional, OptionalSequence };
struct ModelPort {
  std::string name;
  ValueKind kind = ValueKind::Tensor;
};
struct ModelPorts {
  std::vector<ModelPort> inputs, outputs; ///< initializers are no inputs
};
/// Of a serialized ModelProto. Usage error when it cannot be read, Invalid when it is none.
Result<ModelPorts> readModelPorts(const std::string &path);

/// The tensors of a value of some kind, whose file does not say which; none where an optional has no
/// value. Errors as of readTensorProto.
Result<std::optional<std::vector<HostTensor>>> readValueProto(const std::string &path, ValueKind kind);

/// Usage error when the file cannot be read, Invalid when it is no tensor,
/// Unsupported for sequences, maps and optionals.
Result<NamedTensor> readTensorProto(const std::string &path);

} // namespace lathe

#endif // LATHE_IMPORT_TENSORFILE_H
