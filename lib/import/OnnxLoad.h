//===- OnnxLoad.h - an ONNX file as plain structs ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The border of the ONNX library and protobuf, which throw: nothing leaves
// these functions but a Status.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_ONNXLOAD_H
#define LATHE_IMPORT_ONNXLOAD_H

#include "OnnxModel.h"

#include <optional>

namespace lathe::onnxmodel {

/// Reads, checks, inlines and (where `targetOpset` is not 0) converts. With `randomWeights`,
/// external weights without a file are `absent` instead of an error. Sizes of inputs that are -1 in `shapes` are
/// unknown, whatever the file states.
Result<Model> loadModel(const std::string &path, int64_t targetOpset, uint64_t maxBytes,
                        bool randomWeights, const std::map<std::string, std::vector<int64_t>> &shapes);

/// Nodes of the schema's function body for `node`, whose inputs and outputs
/// have been given names. `types` are those of the inputs; an entry with an
/// empty name is absent. None when there is no body.
Result<std::optional<std::vector<Node>>> functionBody(const Node &node, int64_t opset,
                                                      const std::vector<ValueInfo> &types);

/// The version that introduced the schema in force at `opset`; none for ops that
/// ONNX does not know.
std::optional<int64_t> schemaVersion(const std::string &opType, const std::string &domain,
                                     int64_t opset);

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_ONNXLOAD_H
