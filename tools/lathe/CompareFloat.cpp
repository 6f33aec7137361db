//===- CompareFloat.cpp - lathe compare --float ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What quantizing loses at a model's outputs, and which layers lose it. These are found by quantizing some of the layers
// and leaving the others: each build is the model that is asked about, fused as it will be, with a part of the recipe.
// Kernels that two builds have in common come from the cache.
//
//===----------------------------------------------------------------------===//
#include "CompareFloat.h"

#include "FloatTruth.h"
#include "Results.h"
#include "TemporaryModel.h"

#include "lathe/quantize/Culprits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

namespace lathe::cli {
namespace {

bool isRecipe(const std::string &path) { return path.ends_with(".json"); }

/// Builds models by parts of a recipe.
class Bisection {
public:
  static Result<Bisection> open(const FloatComparison &options, const std::string &path) {
    Result<quantize::Recipe> recipe = quantize::Recipe::read(path);
    if (!recipe)
      return recipe.status();
    Result<bool> external = hasExternalWeights(options.model);
    if (!external)
      return external.status();
    if (*external)
      return unsupportedError("has weights in other files, which models made of a part of the recipe would not find",
                              options.model);
    // The whole recipe first: it may be of another model.
    if (Result<std::string> whole = quantizedModel(options.model, *recipe, path); !whole)
      return whole.status();
    Result<std::vector<QuantizedLayer>> layers = quantizedLayers(options.model, *recipe);
    if (!layers)
      return layers.status();
    return Bisection(options, path, std::move(*recipe), std::move(*layers));
  }

  Status run() {
    Result<FloatTruth> truth = FloatTruth::find(options.model, options.inputs, options.compile, options.session);
    if (!truth)
      return truth.status();
    ++builds;
    std::printf("build 1: '%s' as it is, the truth\n", options.model.c_str());
    auto isWrong = [&](const std::vector<bool> &quantized) -> Result<bool> {
      Result<double> loss = lossWith(*truth, quantized);
      if (!loss)
        return loss.status();
      std::printf("build %d: %lld of %zu weights quantized: loss %.3g%s\n", ++builds,
                  static_cast<long long>(std::count(quantized.begin(), quantized.end(), true)), weights.size(), *loss,
                  *loss > options.loss ? ", too much" : "");
      std::fflush(stdout);
      return *loss > options.loss;
    };
    Result<std::vector<size_t>> culprits = quantize::findCulprits(weights.size(), isWrong);
    if (!culprits)
      return culprits.status();
    for (size_t culprit : *culprits)
      std::printf("culprit: %s, weight '%s'\n", nodesOf(culprit).c_str(), weights[culprit].c_str());
    std::printf("%zu culprits of %zu weights in %d builds\n%s\n", culprits->size(), weights.size(), builds,
                culprits->empty() ? "PASSED" : "FAILED");
    return culprits->empty() ? okStatus() : Status(ErrorCode::Mismatch, "");
  }

private:
  Bisection(const FloatComparison &options, const std::string &path, quantize::Recipe recipe,
            std::vector<QuantizedLayer> layers)
      : options(options), path(path), recipe(std::move(recipe)), layers(std::move(layers)) {
    // Layers of one weight are quantized together: factors multiply it for all of them.
    for (const QuantizedLayer &layer : this->layers)
      if (std::find(weights.begin(), weights.end(), layer.weight) == weights.end())
        weights.push_back(layer.weight);
  }

  Result<double> lossWith(const FloatTruth &truth, const std::vector<bool> &quantized) const {
    std::set<std::string> products;
    for (const QuantizedLayer &layer : layers)
      if (quantized[size_t(std::find(weights.begin(), weights.end(), layer.weight) - weights.begin())])
        products.insert(layer.result);
    Result<std::string> bytes = quantizedModel(options.model, partOf(recipe, layers, products), path);
    if (!bytes)
      return bytes.status();
    Result<std::unique_ptr<TemporaryModel>> file =
        TemporaryModel::write(std::filesystem::path(options.model).filename().string(), *bytes);
    if (!file)
      return file.status();
    Result<OpenEngine> engine =
        OpenEngine::open((*file)->path, options.inputs.fixing(options.compile, options.model), options.session);
    if (!engine)
      return engine.status();
    Result<std::vector<std::pair<std::string, Loss>>> losses = truth.lossesOf(*engine, path);
    if (!losses)
      return losses.status();
    return worstOf(*losses);
  }

  std::string nodesOf(size_t weight) const {
    std::vector<std::string> nodes;
    for (const QuantizedLayer &layer : layers)
      if (layer.weight == weights[weight])
        nodes.push_back("'" + layer.node + "'");
    return joined(nodes, 4);
  }

  const FloatComparison &options;
  const std::string &path;
  const quantize::Recipe recipe;
  const std::vector<QuantizedLayer> layers;
  std::vector<std::string> weights; ///< in the order of the graph
  int builds = 0;
};

} // namespace

Status compareWithFloat(const FloatComparison &options, const std::string &quantized) {
  if (options.bisect) {
    if (!isRecipe(quantized))
      return usageError("wants the recipe (.json), which `lathe quantize --recipe-out` wrote beside the model: builds have a "
                        "part of it", "--bisect: '" + quantized + "'");
    Result<Bisection> bisection = Bisection::open(options, quantized);
    return bisection ? bisection->run() : bisection.status();
  }
  std::unique_ptr<TemporaryModel> written;
  if (isRecipe(quantized)) {
    Result<std::unique_ptr<TemporaryModel>> made = quantizedByRecipe(options.model, quantized);
    if (!made)
      return made.status();
    written = std::move(*made);
  }
  Result<FloatTruth> truth = FloatTruth::find(options.model, options.inputs, options.compile, options.session);
  if (!truth)
    return truth.status();
  const std::string path = written ? written->path : quantized;
  Result<OpenEngine> engine = OpenEngine::open(
      path, isEngine(path) ? CompileOptions() : options.inputs.fixing(options.compile, path), options.session);
  if (!engine)
    return engine.status();
  Result<std::vector<std::pair<std::string, Loss>>> losses = truth->lossesOf(*engine, quantized);
  if (!losses)
    return losses.status();
  for (const auto &[output, loss] : *losses)
    std::printf("output '%s': loss %.3g, signal to quantization noise %s\n", output.c_str(),
                loss.share(loss.error).value_or(INFINITY), describeDecibels(loss.decibels()).c_str());
  const bool wrong = worstOf(*losses) > options.loss;
  std::printf("%s\n", wrong ? "FAILED" : "PASSED");
  return wrong ? Status(ErrorCode::Mismatch, "") : okStatus();
}

} // namespace lathe::cli
