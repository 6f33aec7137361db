//===- Shardings.h - how a model says that it is divided --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ONNX's device configurations of nodes (IR 11).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_SHARDINGS_H
#define LATHE_IMPORT_SHARDINGS_H

#include <string>
#include <vector>

namespace onnx {
class ModelProto;
}

namespace lathe::onnxmodel {

/// Sharding specs of the main graph as `--shard` names and writes what they say, each tensor once: "W=dim:1/2" for an
/// initializer W, "node=dim:1/2" for the result of a node, in 2 equal parts; "W=all" for a tensor that is on each device. What
/// lathe cannot follow is told in `notes`: several divided axes, groups of devices, and tensors without a name of a node.
std::vector<std::string> shardingsOf(const onnx::ModelProto &model, std::vector<std::string> &notes);

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_SHARDINGS_H
