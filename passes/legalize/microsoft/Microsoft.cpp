//===- Microsoft.cpp - the ops of onnxruntime's own domain ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// com.microsoft has no schemas in the ONNX library. What an op means is what onnxruntime's schema of it
// says and, where that is silent, what onnxruntime computes; test/models/test_microsoft*.py compares.
//
//===----------------------------------------------------------------------===//
#include "Families.h"

#include "lathe/import/Import.h"

using namespace mlir;

namespace lathe::legal {
namespace microsoft {
namespace {

/// A dimension of size 1 at `axis`, counted among those of the result.
LogicalResult expandDims(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> given = n.ints(1);
  if (!x)
    return failure();
  if (!given || given->size() != 1)
    return n.unknown({1}, "an axis");
  std::optional<int64_t> axis = n.axis((*given)[0], rankOf(x) + 1);
  return axis ? n.done(n.e.unsqueeze(x, {*axis})) : failure();
}

LogicalResult refuseSearch(Node &n) {
  return n.fail("op", "a whole search over calls of a decoder that it holds as a graph", "",
                "export the decoder alone and search outside of it");
}
LogicalResult refuseContext(Node &n) {
  return n.fail("op", "a program compiled for another accelerator, which only it can run", "",
                "use the model before it was compiled for that accelerator");
}

void addAliases(Handlers &h) {
  h["com.microsoft.ExpandDims"] = expandDims;
  h["com.microsoft.GatherND"] = sameAsOnnx;
  h["com.microsoft.GridSample"] = sameAsOnnx;
  h["com.microsoft.LayerNormalization"] = sameAsOnnx;
  h["com.microsoft.Pad"] = sameAsOnnx;
  h["com.microsoft.Range"] = sameAsOnnx;
  h["com.microsoft.ThresholdedRelu"] = sameAsOnnx;
  h["com.microsoft.Trilu"] = sameAsOnnx;
}

void addRefusals(Handlers &h) {
  h["com.microsoft.BeamSearch"] = refuseSearch;
  h["com.microsoft.EPContext"] = refuseContext;
  h["com.microsoft.GreedySearch"] = refuseSearch;
  h["com.microsoft.Sampling"] = refuseSearch;
  h["com.microsoft.WhisperBeamSearch"] = refuseSearch;
}

} // namespace

LogicalResult sameAsOnnx(Node &n) {
  auto handler = handlers().find(n.type);
  if (handler == handlers().end())
    return failure();
  n.opset = kImportOpset;
  return handler->second(n);
}

} // namespace microsoft

void addMicrosoft(Handlers &h) {
  microsoft::addAliases(h);
  microsoft::addRefusals(h);
  microsoft::addActivations(h);
  microsoft::addProducts(h);
  microsoft::addNorms(h);
  microsoft::addCodes(h);
  microsoft::addWeights(h);
  microsoft::addAttention(h);
}

} // namespace lathe::legal
