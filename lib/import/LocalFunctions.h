//===- LocalFunctions.h - functions that a model brings along ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IMPORT_LOCALFUNCTIONS_H
#define LATHE_IMPORT_LOCALFUNCTIONS_H

#include "onnx/onnx_pb.h"

#include <string>
#include <vector>

namespace lathe::onnxmodel {

/// Metadata of a node out of a function: the version of its operator set, where that says something else of its op
/// than the version that the model imports.
inline constexpr const char *kOpsetMetadata = "lathe.opset";

/// Checks the model and puts the bodies of its functions in the place of their calls. A function has the operator sets
/// that it imports itself: nodes that mean something else in those of the model keep their version (kOpsetMetadata).
/// True where there are such: the graph has no one opset then that ONNX's checker, converter and inference could go
/// by; a note says so. Throws what the ONNX library throws.
bool inlineLocalFunctions(onnx::ModelProto &model, std::vector<std::string> &notes);

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_LOCALFUNCTIONS_H
