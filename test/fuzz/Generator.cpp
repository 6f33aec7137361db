//===- Generator.cpp - a random model -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The border of protobuf and the ONNX library, which throw: nothing leaves these functions but a
// Status.
//
//===----------------------------------------------------------------------===//
#include "Generator.h"
#include "Makers.h"

#include "onnx/checker.h"
#include "onnx/shape_inference/implementation.h"

namespace lathe::fuzz {
namespace {

/// Throws what the checker and the inference of types and sizes throw.
void check(const std::string &bytes) {
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes))
    throw std::runtime_error("is no ModelProto");
  onnx::checker::check_model(model);
  onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(),
                                     onnx::ShapeInferenceOptions{/*check_type=*/true, /*strict_mode=*/1,
                                                                 /*data_prop=*/true});
}

} // namespace

bool makeOne(GraphBuilder &b) {
  static const std::vector<Maker> makers = [] {
    std::vector<Maker> all;
    addElementwise(all);
    addReductions(all);
    addMovement(all);
    addIndexing(all);
    addProducts(all);
    addWindows(all);
    addNorms(all);
    addQuantization(all);
    addControlFlow(all);
    return all;
  }();
  int64_t total = 0;
  for (const Maker &maker : makers)
    total += maker.weight;
  for (int attempt = 0; attempt < 20; ++attempt) {
    int64_t place = b.random.below(total);
    for (const Maker &maker : makers)
      if ((place -= maker.weight) < 0) {
        if (b.attempt([&] { return maker.make(b); }))
          return true;
        break;
      }
  }
  return false;
}

Result<TestModel> generate(uint64_t seed) {
  TestModel result;
  try {
    // The seed's bits are spread: neighbours have nothing in common.
    Random spread(seed);
    int64_t opset = spread.of<int64_t>({18, 20, 21, 22, 23});
    GraphBuilder b(spread.next(), opset);
    b.special = b.random.chance(10);
    int64_t wanted = b.random.chance(60) ? b.random.between(1, 8) : b.random.chance(85) ? b.random.between(8, 20) : b.random.between(20, 50);
    while (b.nodeCount() < wanted)
      if (!makeOne(b))
        break;
    result.bytes = b.finish(/*symbolic=*/false);
    result.symbolic = b.finish(/*symbolic=*/true);
    result.inputs = b.inputs();
    result.nodes = b.nodeCount();
    check(result.bytes);
  } catch (const std::exception &e) {
    return runtimeError(e.what(), "generator");
  }
  return result;
}

} // namespace lathe::fuzz
