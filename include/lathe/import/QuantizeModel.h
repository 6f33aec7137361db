//===- QuantizeModel.h - recipes and ONNX models ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What of an ONNX model can be quantized; the model that shows ranges; the model with quantized
// operands: QuantizeLinear and DequantizeLinear around them, nothing else of the file changed.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_QUANTIZEMODEL_H
#define LATHE_IMPORT_QUANTIZEMODEL_H

#include "lathe/quantize/Recipe.h"

#include <string>
#include <utility>
#include <vector>

namespace lathe {

/// What stays as it is, and why.
using KeptValues = std::vector<std::pair<std::string, std::string>>;

struct QuantizationPlan {
  quantize::Recipe recipe; ///< with ranges from 0 to 0
  std::string converted;   ///< says so where the model was of an older opset than the scheme needs; else empty
  KeptValues kept;         ///< contractions, by the name of the node or its result
};

struct PlanOptions {
  std::vector<std::string> keep; ///< shell patterns of nodes and values that stay; each must fit something
  int64_t block = 0;             ///< elements that share a scale of 4 bits; 0: the largest of 128, 64 and 32 that divides the depth
  bool dynamic = false;          ///< each run finds the ranges of activations
  bool microsoft = false;        ///< ops of com.microsoft; 4 bits
};

/// The matrix products by constant matrices and, of schemes with activations, the convolutions by constant filters, without
/// groups; weights are f32, or f16 or bf16, whose scales are then of that type, of integers, e4m3 and MXFP4 that are no op of
/// com.microsoft and whose ranges are known ahead. A pattern that fits nothing is a Usage error. Invalid for what is no model, and for a model
/// that has quantized values already; Unsupported where its opset has no ops for the scheme and it cannot be converted.
Result<QuantizationPlan> planQuantization(const std::string &path, const quantize::Scheme &scheme,
                                          const PlanOptions &options);

/// A product or convolution that a recipe quantizes, in the order of the graph.
struct QuantizedLayer {
  std::string node, result, activation, weight;
  int64_t depth = 0;    ///< of a product: elements of the activation's last dimension; else 0
  int otherReaders = 0; ///< of a product: uses of its weight beside this one
  int64_t weightElements = 0;
  DType type = DType::F32; ///< of the weight, and so of what is read and of the result: F32, F16 or BF16
};
Result<std::vector<QuantizedLayer>> quantizedLayers(const std::string &path, const quantize::Recipe &recipe);

/// Pairs of these layers, by their numbers, the smaller one first, that may pass codes on or read the same ones: readers
/// of one activation, each with the next, and the layers nearest to an activation with the first that reads it. The
/// recipe says which opset their names are of.
Result<std::vector<std::pair<size_t, size_t>>> neighbouringLayers(const std::string &path, const quantize::Recipe &recipe,
                                                                  const std::vector<QuantizedLayer> &layers);

/// The part of a recipe that quantizes these of its layers, by the names of their results; of `layers`, all of them. The
/// layers that read one weight must be in it together if its activation has factors.
quantize::Recipe partOf(const quantize::Recipe &recipe, const std::vector<QuantizedLayer> &layers,
                        const std::set<std::string> &results);

/// The weights as they are, times the recipe's factors: those of 16 bits in their type, others in f32.
Result<std::map<std::string, HostTensor>> weightsOf(const std::string &path, const quantize::Recipe &recipe,
                                                    const std::set<std::string> &names);

/// Factors of cross-layer equalization (lathe/quantize/Weights.h): of the activations that one layer of the recipe makes, alone or
/// with a Relu or a pool, and one other reads. Of a recipe without factors.
Result<std::map<std::string, HostTensor>> equalizingFactors(const std::string &path, const quantize::Recipe &recipe);

/// The quantized model as bytes. Weights outside of the file stay there. Invalid, located in `recipePath`,
/// where the recipe is of another model.
Result<std::string> quantizedModel(const std::string &path, const quantize::Recipe &recipe,
                                   const std::string &recipePath);

/// One recipe out of parts of several, none of which has a product or weight of another, which all are of one model
/// and one dynamic or not. Invalid where two have factors or ranges of their own for one activation.
Result<quantize::Recipe> mixedRecipe(const std::vector<quantize::Recipe> &parts);

/// The files beside a model that it refers to, by their names there.
Result<std::set<std::string>> filesOfWeights(const std::string &path);
/// Whether there are any.
Result<bool> hasExternalWeights(const std::string &path);

} // namespace lathe

#endif // LATHE_IMPORT_QUANTIZEMODEL_H
