//===- Proto.h - protobuf messages to plain structs and back ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Seen only by the two files that are compiled with exceptions.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_PROTO_H
#define LATHE_IMPORT_PROTO_H

#include "ModelFile.h"
#include "OnnxModel.h"

#include "onnx/onnx_pb.h"

namespace lathe::onnxmodel {

/// Where the bytes of a model's tensors are.
struct DataSource {
  std::shared_ptr<const MappedFile> file;
  const std::vector<std::span<const std::byte>> *pieces = nullptr;
  ExternalFiles *external = nullptr;
  bool randomWeights = false; ///< tensors whose file is not there are absent, not wrong
};

/// Thrown inside lib/import only, and caught at its border.
struct ImportError {
  Status status;
};

/// Converters; they throw ImportError.
Tensor toTensor(const onnx::TensorProto &proto, const DataSource &source);
Graph toGraph(const onnx::GraphProto &proto, const DataSource &source);
Node toNode(const onnx::NodeProto &proto, const DataSource &source);
ValueInfo toValueInfo(const onnx::ValueInfoProto &proto);
onnx::NodeProto fromNode(const Node &node);
/// The bytes of an EXTERNAL tensor (a piece of the model file or a file beside it).
std::span<const std::byte> externalBytes(const onnx::TensorProto &proto, const DataSource &source,
                                         std::shared_ptr<const void> &owner);
std::optional<DType> toDType(int onnxType);
int fromDType(DType type);

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_PROTO_H
