//===- PruneData.cpp - what lathe prune asks data about -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The inputs of products are observed in the engine, as `lathe quantize` does: their norms for Wanda, their
// products with each other for SparseGPT, which changes the weights that stay, too.
//
//===----------------------------------------------------------------------===//
#include "Calibrate.h"
#include "Progress.h"
#include "PruneMeasure.h"

#include <cmath>
#include <cstdio>
#include <set>

namespace lathe::cli {
namespace {

using Weights = std::vector<PrunableWeight>;

class DataScores {
public:
  DataScores(const PruneRequest &request, const std::string &path, PruneOptions &options)
      : path(path), options(options), damping(request.damping),
        calibration(path, request.data, request.inputs.fixing(request.compile, path), request.session) {
    recipe.scheme = "w8a16"; // quantizes nothing without weights; says which opset observing wants
  }

  Status norms(const Weights &weights) {
    Result<std::map<std::string, quantize::Channels>> seen = calibration.observeChannels(recipe, layersOf(weights));
    if (!seen)
      return seen.status();
    for (const PrunableWeight &weight : weights) {
      std::vector<double> squares(size_t(weight.depth));
      for (const std::string &input : weight.inputs)
        for (size_t k = 0; k < squares.size(); ++k)
          squares[k] += seen->at(input).squares[k];
      for (double &value : squares)
        value = std::sqrt(value);
      options.norms[weight.name] = std::move(squares);
    }
    return okStatus();
  }

  /// As many weights at once as Gram matrices fit into memory.
  Status solve(const Weights &weights) {
    constexpr int64_t kGramBytes = int64_t(1) << 30;
    for (size_t begin = 0, end = 0; begin < weights.size(); begin = end) {
      std::set<std::string> inputs;
      for (int64_t bytes = 0; end < weights.size(); ++end) {
        for (const std::string &input : weights[end].inputs)
          if (inputs.insert(input).second)
            bytes += weights[end].depth * weights[end].depth * int64_t(sizeof(float) + sizeof(double));
        if (end > begin && bytes > kGramBytes)
          break;
      }
      const Weights now(weights.begin() + int64_t(begin), weights.begin() + int64_t(end));
      Result<std::map<std::string, quantize::Gram>> grams = calibration.observeGrams(recipe, layersOf(now));
      if (!grams)
        return grams.status();
      Progress progress;
      for (size_t i = 0; i < now.size(); ++i) {
        progress.show("SparseGPT of " + now[i].name, int(begin + i), int(weights.size()));
        LATHE_RETURN_IF_ERROR(solveOne(now[i], *grams));
      }
    }
    return okStatus();
  }

private:
  static std::vector<QuantizedLayer> layersOf(const Weights &weights) {
    std::vector<QuantizedLayer> layers;
    for (const PrunableWeight &weight : weights)
      for (size_t i = 0; i < weight.nodes.size(); ++i) {
        QuantizedLayer layer;
        layer.node = weight.nodes[i];
        layer.activation = weight.inputs[i];
        layer.weight = weight.name;
        layer.depth = weight.depth;
        layers.push_back(std::move(layer));
      }
    return layers;
  }

  Status solveOne(const PrunableWeight &weight, const std::map<std::string, quantize::Gram> &grams) {
    std::vector<double> sums(size_t(weight.depth * weight.depth));
    for (const std::string &input : weight.inputs)
      for (size_t e = 0; e < sums.size(); ++e)
        sums[e] += grams.at(input).sums[e];
    Result<sparsify::Weights> values = weightOf(path, weight);
    if (!values)
      return values.status();
    const std::string where = path + ": weight '" + weight.name + "'";
    Result<sparsify::SparseGptResult> solved =
        sparsify::sparseGpt(*values, options.scheme, options.ratio, sums, damping, where);
    if (!solved && solved.status().code() == ErrorCode::Unsupported) {
      std::printf("  stays: '%s': %s\n", weight.name.c_str(), solved.status().message().c_str());
      return okStatus();
    }
    if (!solved)
      return solved.status();
    if (solved->damping > damping)
      std::printf("  '%s': its inputs' products are singular: damping %g of their mean square\n", weight.name.c_str(), solved->damping);
    if (solved->unseen)
      std::printf("  '%s': %lld of its %lld inputs were zero in all data\n", weight.name.c_str(),
                  static_cast<long long>(solved->unseen), static_cast<long long>(weight.depth));
    options.solved[weight.name] = std::move(values->tensor);
    return okStatus();
  }

  const std::string &path;
  PruneOptions &options;
  const double damping;
  Calibration calibration;
  quantize::Recipe recipe;
};

} // namespace

Status observeInputs(const PruneRequest &request, const std::string &path, PruneOptions &options) {
  const bool wanda = options.score == sparsify::Score::Wanda;
  if (!wanda && options.score != sparsify::Score::SparseGpt) {
    if (!request.data.empty())
      return usageError("is for --score=wanda and sparsegpt: others look at weights alone", "--data");
    return okStatus();
  }
  if (request.data.empty())
    return usageError("wants examples, which come from --data=DIR|F.npz", "--score=" + request.score);
  if (!wanda && options.overAll)
    return usageError("compares the weights of one matrix, in spans of its inputs, without --over-all", "--score=sparsegpt");
  if (!(request.damping >= 0 && request.damping <= 100))
    return usageError("wants a number of 0 to 100", "--damping");
  Result<Weights> weights = prunableWeights(path, options);
  if (!weights)
    return weights.status();
  std::erase_if(*weights, [&](const PrunableWeight &weight) {
    for (const std::string &input : weight.inputs)
      if (input.empty()) {
        options.keep.push_back(weight.name);
        std::printf("  stays: '%s' multiplies a transposed value, whose inputs are not observed\n", weight.name.c_str());
        return true;
      }
    return false;
  });
  if (weights->empty())
    return okStatus(); // prunedModel says it
  DataScores scores(request, path, options);
  return wanda ? scores.norms(*weights) : scores.solve(*weights);
}

} // namespace lathe::cli
