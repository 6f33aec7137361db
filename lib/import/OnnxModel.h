//===- OnnxModel.h - an ONNX model as plain structs -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What crosses from the code that sees protobuf (and exceptions) to the code
// that sees MLIR. Standard library and support only.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_ONNXMODEL_H
#define LATHE_IMPORT_ONNXMODEL_H

#include "lathe/support/DType.h"
#include "lathe/support/RandomWeights.h"
#include "lathe/support/Status.h"

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lathe::onnxmodel {

/// Elements packed as in ONNX's raw_data. `bytes` are kept alive by `owner`.
struct Tensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> dims;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  std::vector<std::string> strings; ///< for DType::String
  /// The file of the bytes is not there, and they may be random (LoadOptions).
  bool absent = false;
  RandomSpread spread; ///< of an absent tensor
};

struct Graph;

struct NodeAttr {
  enum Kind { Int, Float, String, TensorValue, GraphValue, Ints, Floats, Strings, Other };
  std::string name;
  Kind kind = Other;
  std::vector<int64_t> ints;        ///< Int has one
  std::vector<float> floats;        ///< Float has one
  std::vector<std::string> strings; ///< String has one; Other a description
  std::shared_ptr<Tensor> tensor;
  std::shared_ptr<Graph> graph;
};

struct Node {
  std::string name, opType, domain;
  std::vector<std::string> inputs, outputs; ///< "" where an optional one is absent
  std::vector<NodeAttr> attributes;
  int64_t opset = 0; ///< when it differs from the model's; 0 otherwise
};

struct Dim {
  int64_t value = -1; ///< negative: unknown
  std::string param;  ///< as in the file
};

/// A graph input or output. `other` describes types that are no tensors; of a sequence and an optional
/// `inside` says what they hold.
struct ValueInfo {
  std::string name;
  DType dtype = DType::F32;
  std::string other;
  bool ranked = false;
  std::vector<Dim> dims;
  std::shared_ptr<ValueInfo> inside;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
  std::vector<ValueInfo> inputs, outputs;
  std::vector<ValueInfo> values; ///< inferred types of values in between
};

struct Model {
  std::map<std::string, int64_t> opsets; ///< by domain; "" is ai.onnx
  int64_t sourceOpset = 0;               ///< of "", before conversion
  std::vector<std::string> notes;        ///< what did not go as planned
  std::vector<std::string> shardings;    ///< Shardings.h
  Graph graph;
};

} // namespace lathe::onnxmodel

#endif // LATHE_IMPORT_ONNXMODEL_H
