//===- CalibrateMethods.cpp - factors, codes and biases that fit examples -===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Calibrate.h"

#include "Progress.h"

#include "lathe/support/Npz.h"

#include <algorithm>
#include <cstdio>

namespace lathe::cli {

using quantize::Recipe;

Status chooseFactors(Calibration &calibration, const std::string &path, const std::string &method, Recipe &recipe) {
  Result<std::vector<QuantizedLayer>> layers = quantizedLayers(path, recipe);
  if (!layers)
    return layers.status();
  if (std::all_of(layers->begin(), layers->end(), [](const QuantizedLayer &layer) { return layer.type != DType::F32; }))
    return unsupportedError("divides activations of f32, and no layer reads any: '" + layers->front().weight + "' is of " +
                                std::string(name(layers->front().type)), "--method=" + method);
  std::map<std::string, std::set<std::string>> weights; // by activation
  std::map<std::string, int> uses;                      // of a weight, by products of the same activation
  std::map<std::string, std::string> refused;
  for (const QuantizedLayer &layer : *layers) {
    weights[layer.activation].insert(layer.weight);
    ++uses[layer.activation + '\n' + layer.weight];
  }
  for (const QuantizedLayer &layer : *layers)
    if (layer.type != DType::F32)
      refused[layer.activation] = "'" + layer.weight + "' is of " + std::string(name(layer.type)) + ", and factors divide activations of f32";
    else if (!layer.depth)
      refused[layer.activation] = "convolutions and products of transposed values have no factors";
    else if (layer.otherReaders + 1 != uses[layer.activation + '\n' + layer.weight])
      refused[layer.activation] = "'" + layer.weight + "' has other readers";
    else if (recipe.shared.count(layer.activation))
      refused[layer.activation] = "others read it as codes";
  for (const auto &[name, why] : refused)
    std::printf("  no factors for '%s': %s\n", name.c_str(), why.c_str());
  std::erase_if(*layers, [&](const QuantizedLayer &layer) { return refused.count(layer.activation); });
  if (layers->empty())
    return okStatus();
  Result<std::map<std::string, quantize::Channels>> channels = calibration.observeChannels(recipe, *layers);
  if (!channels)
    return channels.status();
  for (const auto &[activation, seen] : *channels) {
    Result<std::map<std::string, HostTensor>> matrices = weightsOf(path, recipe, weights[activation]);
    if (!matrices)
      return matrices.status();
    std::vector<quantize::SmoothedWeight> readers;
    for (const auto &[name, matrix] : *matrices)
      readers.push_back({&matrix, recipe.weights.at(name)});
    HostTensor factors;
    if (method == "awq") {
      Result<quantize::AwqResult> chosen = quantize::awqFactors(seen, readers, *weights[activation].begin());
      if (!chosen)
        return chosen.status();
      factors = std::move(chosen->factors);
    } else {
      constexpr double kAlpha = 0.5; // of the paper
      factors = quantize::smoothFactors(seen, readers, kAlpha);
    }
    bool any = false;
    for (int64_t k = 0; k < factors.count(); ++k)
      any |= factors.real(k) != 1;
    if (any)
      recipe.factors[activation] = std::move(factors);
  }
  std::printf("%zu activations get factors by %s\n", recipe.factors.size(), method.c_str());
  return okStatus();
}

Status equalizeLayers(const std::string &path, Recipe &recipe) {
  Result<std::map<std::string, HostTensor>> factors = equalizingFactors(path, recipe);
  if (!factors)
    return factors.status();
  std::printf("%zu activations get factors by cle\n", factors->size());
  recipe.factors = std::move(*factors);
  return okStatus();
}

Status correctBiases(Calibration &calibration, const std::string &path, Recipe &recipe) {
  Result<std::vector<QuantizedLayer>> layers = quantizedLayers(path, recipe);
  if (!layers)
    return layers.status();
  for (const std::vector<QuantizedLayer> &part : partsOf(*layers)) {
    Result<std::map<std::string, HostTensor>> biases = calibration.observeBiases(recipe, part);
    if (!biases)
      return biases.status();
    recipe.biases.merge(*biases);
  }
  std::printf("%zu results get biases by bias-correction\n", recipe.biases.size());
  return okStatus();
}

/// Codes by GPTQ of a stopped run, of a weight of these sizes.
static std::optional<quantize::QuantizedWeight> keptCodes(const ResumeFolder *resume, const std::string &name,
                                                          const quantize::WeightRecipe &how) {
  std::optional<std::string> bytes = resume ? resume->find(name) : std::nullopt;
  Result<std::map<std::string, HostTensor>> arrays = bytes ? parseNpz(*bytes, name) : Status(ErrorCode::Invalid, "", name);
  if (!arrays || !arrays->count("codes") || !arrays->count("scales"))
    return std::nullopt;
  const HostTensor &codes = arrays->at("codes");
  quantize::QuantizedWeight made{HostTensor(how.bits == 4 ? DType::I4 : DType::I8, codes.dims), arrays->at("scales")};
  for (int64_t i = 0, n = codes.count(); i < n; ++i)
    made.codes.setInteger(i, codes.integer(i));
  return made;
}

static Status keepCodes(const ResumeFolder *resume, const std::string &name, const quantize::QuantizedWeight &made) {
  if (!resume)
    return okStatus();
  HostTensor codes(DType::I8, made.codes.dims); // .npy has no type of 4 bits
  for (int64_t i = 0, n = codes.count(); i < n; ++i)
    codes.setInteger(i, made.codes.integer(i));
  Result<std::string> bytes = formatNpz({{"codes", std::move(codes)}, {"scales", made.scales}});
  return bytes ? resume->keep(name, *bytes) : bytes.status();
}

Status chooseCodes(Calibration &calibration, const std::string &path, double damping, Recipe &recipe) {
  Result<std::vector<QuantizedLayer>> layers = quantizedLayers(path, recipe);
  if (!layers)
    return layers.status();
  std::vector<QuantizedLayer> left;
  std::map<std::string, size_t> numbers; // of weights
  std::set<std::string> known; // a weight that two products read gets codes for the first one's inputs
  for (const QuantizedLayer &layer : *layers)
    if (!layer.depth)
      std::printf("  rounded to the nearest: '%s' is a convolution, or reads a transposed value\n", layer.node.c_str());
    else if (known.insert(layer.weight).second) {
      if (auto made = keptCodes(calibration.kept(), "codes-" + std::to_string(known.size()), recipe.weights.at(layer.weight)))
        recipe.codes[layer.weight] = std::move(*made);
      else
        left.push_back(layer);
      numbers[layer.weight] = known.size();
    }
  constexpr int64_t kGramBytes = int64_t(1) << 30; // of Gram matrices at once: those of all layers may be too many
  while (!left.empty()) {
    std::vector<QuantizedLayer> now, later;
    std::set<std::string> activations;
    int64_t bytes = 0;
    for (QuantizedLayer &layer : left) {
      int64_t more = activations.count(layer.activation) ? 0 : layer.depth * layer.depth * int64_t(sizeof(float) + sizeof(double));
      if (!now.empty() && bytes + more > kGramBytes) {
        later.push_back(std::move(layer));
        continue;
      }
      bytes += more;
      activations.insert(layer.activation);
      now.push_back(std::move(layer));
    }
    Result<std::map<std::string, quantize::Gram>> grams = calibration.observeGrams(recipe, now);
    if (!grams)
      return grams.status();
    Progress progress;
    for (size_t i = 0; i < now.size(); ++i) {
      const QuantizedLayer &layer = now[i];
      progress.show("codes of " + layer.node, int(i), int(now.size()));
      Result<std::map<std::string, HostTensor>> matrices = weightsOf(path, recipe, {layer.weight});
      if (!matrices)
        return matrices.status();
      Result<quantize::GptqResult> made = quantize::gptq(matrices->at(layer.weight), recipe.weights.at(layer.weight),
                                                         grams->at(layer.activation), damping, layer.weight);
      if (!made)
        return made.status();
      if (made->damping > damping)
        std::printf("  '%s': its inputs' products are singular: damping %g of their mean square\n", layer.node.c_str(), made->damping);
      if (made->unseen)
        std::printf("  '%s': %lld of its %lld inputs were always zero: rounded to the nearest\n", layer.node.c_str(),
                    static_cast<long long>(made->unseen), static_cast<long long>(layer.depth));
      LATHE_RETURN_IF_ERROR(keepCodes(calibration.kept(), "codes-" + std::to_string(numbers[layer.weight]), made->weight));
      recipe.codes[layer.weight] = std::move(made->weight);
    }
    left = std::move(later);
  }
  std::printf("%zu weights get codes by gptq, damping %g\n", recipe.codes.size(), damping);
  return okStatus();
}

} // namespace lathe::cli
