//===- PruneActivations.cpp - lathe prune, where inputs of products go ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What products multiply is counted over examples; of each value the share of --ratio that is least by magnitude gets
// a threshold below which it counts as zero. One row then reads the weights of the other inputs alone. A threshold
// stays where the products that read the value become faster on the first example.
//
//===----------------------------------------------------------------------===//
#include "Calibrate.h"
#include "PruneMeasure.h"

#include "lathe/import/ThresholdInputs.h"
#include "lathe/support/Files.h"

#include <cmath>
#include <cstdio>
#include <set>

namespace lathe::cli {
namespace {

using Weights = std::vector<PrunableWeight>;

/// What other schemes are asked for.
Status checkRequest(const PruneRequest &request) {
  if (request.check || !request.masks.empty() || !request.masked.empty() || !request.gradients.empty() || request.overAll)
    return usageError("takes no --check, --masks, --masked, --gradients and --over-all", "--scheme=activations");
  if (request.score != "l1")
    return usageError("has one: magnitudes of inputs", "--scheme=activations --score=" + request.score);
  if (request.data.empty())
    return usageError("wants examples, which come from --data=DIR|F.npz", "--scheme=activations");
  if (request.apply != "winning" && request.apply != "all")
    return usageError("wants winning or all, not '" + request.apply + "'", "--apply");
  return okStatus();
}

/// A model whose products by these weights have thresholds, as weights whose zeros are those of their inputs.
Result<PrunedModel> formOf(const std::string &path, const Weights &weights, const std::map<std::string, double> &thresholds,
                           const std::map<std::string, quantize::Histogram> &histograms, double ratio) {
  Result<ThresholdedModel> model = thresholdedModel(path, weights, thresholds, /*inside=*/true);
  if (!model)
    return model.status();
  PrunedModel form;
  form.bytes = std::move(model->bytes);
  form.weights = weights;
  for (PrunableWeight &weight : form.weights) {
    std::set<std::string> inputs(weight.inputs.begin(), weight.inputs.end());
    double lost = 0;
    for (const std::string &input : inputs) {
      lost += quantize::energyBelow(histograms.at(input), thresholds.at(input)) / double(inputs.size());
      const std::vector<std::string> &added = model->nodes.at(input);
      weight.nodes.insert(weight.nodes.end(), added.begin(), added.end()); // comparing takes time, too
    }
    weight.zeros = ratio;
    weight.change = std::sqrt(lost);
  }
  return form;
}

} // namespace

Status pruneActivations(const PruneRequest &given, const std::string &path) {
  LATHE_RETURN_IF_ERROR(checkRequest(given));
  PruneRequest request = given;
  request.measuresData = true;
  Result<double> ratio = parseRatio(request.ratio);
  if (!ratio)
    return ratio.status();
  LATHE_RETURN_IF_ERROR(checkBesideWeights(path, request.output));
  PruneOptions options;
  options.keep = request.keep, options.only = request.only;
  Result<Weights> weights = prunableWeights(path, options);
  if (!weights)
    return weights.status();
  PruneReport report{path, request.scheme, "magnitude", *ratio};
  std::erase_if(*weights, [&](const PrunableWeight &weight) {
    const bool isTransposed = std::count(weight.inputs.begin(), weight.inputs.end(), "") > 0;
    for (const std::string &node : isTransposed ? weight.nodes : std::vector<std::string>())
      report.kept.push_back({node, "it multiplies a transposed value, whose inputs are not observed"});
    return isTransposed;
  });
  if (weights->empty())
    return unsupportedError("has no product by constant weights whose inputs could have thresholds", path);

  std::set<std::string> inputs;
  for (const PrunableWeight &weight : *weights)
    inputs.insert(weight.inputs.begin(), weight.inputs.end());
  quantize::Recipe recipe;
  recipe.scheme = "w8a16"; // quantizes nothing without weights; says which opset observing wants
  Calibration calibration(path, request.data, request.inputs.fixing(request.compile, path), request.session);
  Result<std::map<std::string, quantize::Histogram>> histograms =
      calibration.observeHistograms(recipe, {inputs.begin(), inputs.end()});
  if (!histograms)
    return histograms.status();
  std::map<std::string, double> thresholds;
  for (const auto &[input, histogram] : *histograms)
    thresholds[input] = quantize::magnitudeBelow(histogram, *ratio);

  Result<PrunedModel> all = formOf(path, *weights, thresholds, *histograms, *ratio);
  if (!all)
    return all.status();
  LATHE_RETURN_IF_ERROR(measureWeights(request, path, *all,
                                       "no kernel leaves out weights of inputs that are zero: that takes products that always have one row, by "
                                       "finite weights of 32 or 16 bits",
                                       report));
  Weights chosen;
  for (size_t i = 0; i < report.rows.size(); ++i) {
    PruneReport::Row &row = report.rows[i];
    row.applied = row.wins || request.apply == "all";
    row.weight.nodes = (*weights)[i].nodes;
    if (row.applied)
      chosen.push_back((*weights)[i]);
  }
  Result<std::string> bytes = readFile(path);
  if (!chosen.empty()) {
    Result<ThresholdedModel> inside = thresholdedModel(path, chosen, thresholds, true),
                             written = thresholdedModel(path, chosen, thresholds, false);
    if (!inside || !written)
      return inside ? written.status() : inside.status();
    LATHE_RETURN_IF_ERROR(judgeWritten(request, path, inside->bytes, report));
    bytes = std::move(written->bytes);
  }
  if (!bytes)
    return bytes.status();
  return writePruned(request, report, *bytes, {},
                     std::to_string(chosen.size()) + " of " + std::to_string(report.rows.size()) +
                         " weights are multiplied by inputs with thresholds");
}

} // namespace lathe::cli
