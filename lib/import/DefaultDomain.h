//===- DefaultDomain.h - ops that onnxruntime adds to ai.onnx ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IMPORT_DEFAULTDOMAIN_H
#define LATHE_IMPORT_DEFAULTDOMAIN_H

#include "onnx/onnx_pb.h"

#include <string>
#include <vector>

namespace lathe::onnxmodel {

/// onnxruntime's optimizer writes a few ops of its own without a domain (SimplifiedLayerNormalization,
/// LayerNormalization before opset 17), which ONNX has no schema of; it also runs the GroupNormalization of opsets
/// 18 to 20, which ONNX's checker refuses as deprecated. Such nodes, also those of
/// subgraphs and functions, become nodes of com.microsoft, where onnxruntime keeps the others; a note
/// names each such op.
void nameMicrosoftOps(onnx::ModelProto &model, std::vector<std::string> &notes);

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_DEFAULTDOMAIN_H
