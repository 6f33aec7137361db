//===- RandomSpread.cpp - how absent weights are spread ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RandomSpread.h"

#include <algorithm>
#include <cmath>

namespace lathe::onnxmodel {
namespace {

/// Uniform values of variance 1 / `count`, the number of terms of the sums that they weigh.
RandomSpread terms(int64_t count) {
  return {0, 0.0f, std::sqrt(3.0f / static_cast<float>(std::max<int64_t>(count, 1)))};
}

constexpr RandomSpread kScale = {0, 1.0f, 0.25f}, kBias = {0, 0.0f, 0.1f};

int64_t intOf(const Node &node, const char *name) {
  for (const NodeAttr &attr : node.attributes)
    if (attr.name == name && attr.kind == NodeAttr::Int)
      return attr.ints.front();
  return 0;
}

/// The spread of operand `index` of `node`.
RandomSpread spreadFor(const Node &node, size_t index, const std::vector<int64_t> &dims) {
  const std::string &op = node.opType;
  auto dim = [&](size_t fromEnd) {
    return fromEnd <= dims.size() ? dims[dims.size() - fromEnd] : int64_t(1);
  };
  if (op.find("Norm") != std::string::npos) // scale, bias; a batch norm's mean, variance
    return index == 1 || index == 4 ? kScale : kBias;
  if (dims.size() < 2)
    return op == "Mul" || op == "Div" ? kScale : kBias;
  if (op == "Conv" || op == "ConvTranspose") {
    int64_t count = 1;
    for (size_t d = op == "Conv" ? 1 : 0; d < dims.size(); ++d)
      count *= op == "Conv" || d != 1 ? dims[d] : 1;
    return terms(count);
  }
  if (op == "Gemm")
    return terms(index == 2 ? 100 : intOf(node, index == 1 ? "transB" : "transA") == (index == 1)
                                        ? dim(1)
                                        : dim(2));
  if (op == "MatMul")
    return terms(index == 1 ? dim(2) : dim(1));
  if (op == "Gather") // rows of an embedding
    return {0, 0.0f, 1.0f};
  if (op == "Mul" || op == "Div")
    return kScale;
  if (op == "Add" || op == "Sub")
    return kBias;
  return terms(dim(1)); // Transpose and the like: rows are the terms of a product
}

} // namespace

uint64_t spreadAbsentWeights(Graph &graph, uint64_t seed) {
  uint64_t bytes = 0;
  std::map<std::string, std::pair<const Node *, size_t>> readers;
  for (const Node &node : graph.nodes)
    for (size_t i = 0; i < node.inputs.size(); ++i)
      readers.try_emplace(node.inputs[i], &node, i);
  for (Tensor &tensor : graph.initializers) {
    if (!tensor.absent)
      continue;
    int64_t count = 1;
    for (int64_t dim : tensor.dims)
      count *= dim;
    bytes += byteSize(tensor.dtype, count);
    auto reader = readers.find(tensor.name);
    tensor.spread = reader == readers.end()
                        ? terms(tensor.dims.empty() ? 1 : tensor.dims.back())
                        : spreadFor(*reader->second.first, reader->second.second, tensor.dims);
    tensor.spread.stream = randomStream(seed, tensor.name);
  }
  return bytes;
}

} // namespace lathe::onnxmodel
