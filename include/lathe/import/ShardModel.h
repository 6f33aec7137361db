//===- ShardModel.h - sharding specs written into ONNX models ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a model is divided among ranks, as ONNX says it (IR 11): a configuration of as many devices, and for each node
// what of its operands and its result is where.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_SHARDMODEL_H
#define LATHE_IMPORT_SHARDMODEL_H

#include "lathe/support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// How an initializer, or the first result of a node, lies on the ranks.
struct FoundSharding {
  std::string name;          ///< of the initializer or the node
  std::vector<int64_t> dims; ///< as lathe has it; -1: symbolic
  std::optional<int64_t> dim; ///< divided evenly along it; none: all ranks have all of it
  std::string cannot;        ///< not empty: ONNX has no words for how it lies, which this says
};

struct ShardedModel {
  std::string bytes;
  int64_t tensors = 0;            ///< that have a spec
  std::vector<std::string> notes; ///< what was left out, and why
};

/// The model with a configuration "lathe-tp2" of `ranks` devices, instead of one that it has of that name, and specs of
/// `found` at all nodes of the main graph that read or make these tensors. All else stays as it is, but for an IR
/// version below 11. Invalid for what is no model, Unsupported above 2 GB.
Result<ShardedModel> shardedModel(const std::string &path, int64_t ranks, const std::vector<FoundSharding> &found);

} // namespace lathe

#endif // LATHE_IMPORT_SHARDMODEL_H
