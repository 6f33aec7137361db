//===- TensorFile.h - tensors from ONNX's .pb files -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files of `test_data_set_N` folders: one serialized TensorProto each.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_TENSORFILE_H
#define LATHE_IMPORT_TENSORFILE_H

#include "lathe/support/HostTensor.h"

#include <string>

namespace lathe {

struct NamedTensor {
  std::string name; ///< as in the file; often empty
  HostTensor tensor;
};

/// Usage error when the file cannot be read, Invalid when it is no tensor,
/// Unsupported for strings, sequences, maps and optionals.
Result<NamedTensor> readTensorProto(const std::string &path);

} // namespace lathe

#endif // LATHE_IMPORT_TENSORFILE_H
