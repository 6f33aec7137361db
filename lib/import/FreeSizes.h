//===- FreeSizes.h - sizes that a model states and a user frees -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IMPORT_FREESIZES_H
#define LATHE_IMPORT_FREESIZES_H

#include "onnx/onnx_pb.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lathe::onnxmodel {

/// Makes unknown the sizes of inputs that are -1 in `shapes` (by input; "s[1]" is a tensor of the sequence s), and with
/// them what the model states of all other values, which followed from them. Nothing to do where no size is -1. Of a
/// name that is no input nothing happens; an input without a rank gets that of its sizes, a model that states another one
/// raises.
void freeSizes(onnx::GraphProto &graph, const std::map<std::string, std::vector<int64_t>> &shapes);

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_FREESIZES_H
