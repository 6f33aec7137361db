//===- RandomSpread.h - how absent weights are spread -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IMPORT_RANDOMSPREAD_H
#define LATHE_IMPORT_RANDOMSPREAD_H

#include "OnnxModel.h"

namespace lathe::onnxmodel {

/// Gives each absent initializer a spread under which signals keep their size: by the seed, its
/// name, and the node that reads it. Returns the bytes of all of them.
uint64_t spreadAbsentWeights(Graph &graph, uint64_t seed);

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_RANDOMSPREAD_H
