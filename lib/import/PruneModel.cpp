//===- PruneModel.cpp - zeros in the weights of ONNX models ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   y = MatMul(x, w)    =>    y = MatMul(x, w), where w has the zeros of a scheme
//
// The file's own message is edited: names, metadata and all other tensors stay as they are.
//
//===----------------------------------------------------------------------===//
#include "lathe/import/PruneModel.h"

#include "EditModel.h"

#include <fnmatch.h>

namespace lathe {
namespace {

using namespace edit;
using sparsify::Weights;

/// The right operands of products that can have zeros.
class Candidates {
public:
  Candidates(const Loaded &model, const std::vector<std::string> &keep, const std::vector<std::string> &only = {})
      : model(model), keep(keep), only(only), fits(keep.size()), fitsOnly(only.size()) {
    for (const auto &output : model.proto.graph().output())
      outputs.insert(output.name());
    for (const auto &node : model.proto.graph().node())
      if (std::optional<int64_t> depth = depthOf(node))
        add(node, *depth);
    // A weight that one of several products is asked for is.
    std::erase_if(weights, [&](const Found &found) { return !only.empty() && !found.wanted; });
    // What others read too has other uses than the products'.
    std::erase_if(weights, [&](const Found &found) {
      auto uses = model.uses.find(found.weight.name);
      int others = (uses == model.uses.end() ? 0 : uses->second) - int(found.weight.nodes.size());
      std::string why = outputs.count(found.weight.name) ? "is a result of the model"
                        : others > 0                     ? "is tied to other nodes, which read it too"
                        : found.both                     ? "is summed over in both directions"
                                                         : "";
      if (!why.empty())
        for (const std::string &node : found.weight.nodes)
          kept.push_back({node, "its right operand '" + found.weight.name + "' " + why});
      return !why.empty();
    });
  }

  struct Found {
    PrunableWeight weight;
    bool both = false, wanted = false;
  };
  std::vector<Found> weights;
  KeptValues kept;

  Status checkPatterns() const {
    for (size_t i = 0; i < keep.size(); ++i)
      if (!fits[i])
        return usageError("fits no product, weight or result of one", "--keep '" + keep[i] + "'");
    for (size_t i = 0; i < only.size(); ++i)
      if (!fitsOnly[i])
        return usageError("fits no product, weight or result of one", "--only '" + only[i] + "'");
    return okStatus();
  }

  /// Unsupported where a product that `only` names has to stay.
  Status checkOnly(const std::string &path) const {
    for (const auto &[node, why] : kept)
      if (!only.empty() && wanted.count(node))
        return unsupportedError("has to stay: " + why, path + ": node '" + node + "'");
    return okStatus();
  }

private:
  bool isKept(const std::string &name) {
    bool any = false;
    for (size_t i = 0; i < keep.size(); ++i)
      if (fnmatch(keep[i].c_str(), name.c_str(), 0) == 0)
        fits[i] = any = true;
    return any;
  }

  bool isWanted(const std::vector<std::string> &names) {
    bool any = only.empty();
    for (size_t i = 0; i < only.size(); ++i)
      for (const std::string &name : names)
        if (fnmatch(only[i].c_str(), name.c_str(), 0) == 0)
          fitsOnly[i] = any = true;
    return any;
  }

  std::string reasonToKeep(const std::string &weight) const {
    auto found = model.constants.find(weight);
    if (found == model.constants.end())
      return "its right operand '" + weight + "' is no constant of the graph";
    int type = found->second->data_type();
    bool known = type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::FLOAT16 || type == onnx::TensorProto::BFLOAT16;
    if (!known || found->second->dims_size() != 2)
      return "its right operand '" + weight + "' is no matrix of f32, f16 or bf16";
    if (found->second->dims(0) < 1 || found->second->dims(1) < 1)
      return "its right operand '" + weight + "' is empty";
    return {};
  }

  void add(const onnx::NodeProto &node, int64_t depth) {
    const std::string &name = node.input(1);
    bool asked = isKept(nameOf(node)), askedToo = isKept(node.output(0)), askedWeight = isKept(name);
    const bool isAsked = isWanted({nameOf(node), node.output(0), name});
    if (isAsked)
      wanted.insert(nameOf(node));
    std::string why = asked || askedToo || askedWeight ? "asked for by --keep" : reasonToKeep(name);
    if (!why.empty()) {
      if (isAsked)
        kept.push_back({nameOf(node), why});
      return;
    }
    auto at = std::find_if(weights.begin(), weights.end(), [&](const Found &f) { return f.weight.name == name; });
    if (at == weights.end()) {
      const onnx::TensorProto &tensor = *model.constants.at(name);
      Found found;
      found.weight.name = name;
      found.weight.transposed = depth == 1;
      found.weight.depth = tensor.dims(int(depth));
      found.weight.columns = tensor.dims(int(1 - depth));
      at = weights.insert(weights.end(), found);
    }
    at->wanted |= isAsked;
    at->both |= at->weight.transposed != (depth == 1);
    at->weight.nodes.push_back(nameOf(node));
    at->weight.inputs.push_back(attribute(node, "transA") ? "" : node.input(0));
  }

  const Loaded &model;
  const std::vector<std::string> &keep;
  const std::vector<std::string> only;
  std::vector<bool> fits, fitsOnly;
  std::set<std::string> outputs, wanted;
};

/// Each mask is of a weight that can have zeros, has its sizes and leaves something of it.
Status checkMasks(const Loaded &model, const Candidates &candidates, const PruneOptions &options, const std::string &path) {
  for (const auto &[name, mask] : options.masks) {
    const std::string where = options.maskPath + ": '" + name + "'";
    auto constant = model.constants.find(name);
    if (constant == model.constants.end())
      return invalidError("is no weight of '" + path + "': the masks are of another model", where);
    std::vector<int64_t> dims(constant->second->dims().begin(), constant->second->dims().end());
    if (mask.dims != dims)
      return invalidError("has other sizes than the weight in '" + path + "': the masks are of another model", where);
    if (std::none_of(candidates.weights.begin(), candidates.weights.end(),
                     [&](const auto &found) { return found.weight.name == name; })) {
      std::string why = "no product multiplies by it";
      for (const auto &[node, reason] : candidates.kept)
        if (reason.find("'" + name + "'") != std::string::npos)
          why = "node '" + node + "': " + reason;
      return unsupportedError("is of a weight that has to stay: " + why, where);
    }
    bool any = false;
    for (int64_t i = 0; i < mask.count() && !any; ++i)
      any = mask.real(i) != 0;
    if (!any)
      return invalidError("would leave nothing of the weight", where);
  }
  return okStatus();
}

} // namespace

namespace {

/// The weights of a model that may change. Throws what is wrong with the options.
Candidates candidatesOf(const Loaded &model, const std::string &path, const PruneOptions &options) {
  Candidates candidates(model, options.keep, options.only);
  for (const Status &status : {candidates.checkPatterns(), candidates.checkOnly(path), checkMasks(model, candidates, options, path)})
    if (!status.ok())
      throw ImportError{status};
  return candidates;
}

class Pruner {
public:
  Pruner(Loaded &model, const PruneOptions &options) : model(model), options(options) {}

  Weights valuesOf(const PrunableWeight &weight) { return {model.read(*model.constants.at(weight.name)), weight.transposed}; }

  /// The ratio of each weight by its number, where all are compared with each other.
  Result<std::vector<double>> ratios(const std::vector<Candidates::Found> &list) {
    if (!options.overAll)
      return std::vector<double>(list.size(), options.ratio);
    std::vector<std::vector<double>> scores;
    for (size_t i = 0; i < list.size(); ++i) {
      Result<std::vector<double>> found =
          sparsify::meanScores(valuesOf(list[i].weight), options.scheme, scoringOf(list[i].weight.name, i));
      if (!found)
        return found.status();
      scores.push_back(std::move(*found));
    }
    return sparsify::ratiosOverAll(scores, options.ratio);
  }

  /// Makes zeros in the weight of a number, in memory.
  Status prune(Weights &weights, const std::string &name, size_t number, double ratio) {
    if (!options.masks.empty()) {
      auto mask = options.masks.find(name);
      if (mask == options.masks.end())
        return unsupportedError("has no mask");
      for (int64_t i = 0; i < weights.tensor.count(); ++i)
        if (mask->second.real(i) == 0)
          weights.tensor.setReal(i, 0);
      return okStatus();
    }
    if (options.score != sparsify::Score::SparseGpt)
      return sparsify::prune(weights, options.scheme, ratio, scoringOf(name, number));
    auto solved = options.solved.find(name);
    if (solved == options.solved.end())
      return unsupportedError("no data were observed of what it multiplies");
    weights.tensor = solved->second;
    return okStatus();
  }

private:
  /// The number is that among all, so that what is drawn for one does not depend on others.
  sparsify::Scoring scoringOf(const std::string &name, size_t number) const {
    auto norms = options.norms.find(name);
    return {options.score, options.seed + number + 1, norms == options.norms.end() ? std::vector<double>() : norms->second};
  }
  Loaded &model;
  const PruneOptions &options;
};

} // namespace

Result<PrunedModel> prunedModel(const std::string &path, const PruneOptions &options, const std::set<std::string> &only) {
  return guarded<PrunedModel>(path, [&]() -> Result<PrunedModel> {
    Loaded model(path);
    Candidates candidates = candidatesOf(model, path, options);
    PrunedModel result;
    result.kept = candidates.kept;
    Pruner pruner(model, options);
    Result<std::vector<double>> ratios = pruner.ratios(candidates.weights);
    if (!ratios)
      return ratios.status();
    for (size_t i = 0; i < candidates.weights.size(); ++i) {
      PrunableWeight &weight = candidates.weights[i].weight;
      if (!only.empty() && !only.count(weight.name))
        continue;
      Weights weights = pruner.valuesOf(weight);
      const HostTensor before = weights.tensor;
      if (Status pruned = pruner.prune(weights, weight.name, i, (*ratios)[i]); !pruned.ok()) {
        for (const std::string &node : weight.nodes)
          result.kept.push_back({node, "its right operand '" + weight.name + "': " + pruned.message()});
        continue;
      }
      weight.zerosBefore = sparsify::zeroShare(before);
      weight.zeros = sparsify::zeroShare(weights.tensor);
      weight.change = sparsify::relativeChange(before, weights.tensor);
      Loaded::store(*model.constants.at(weight.name), weights.tensor);
      result.weights.push_back(weight);
    }
    Result<std::string> bytes = bytesOf(model, path, options.inside);
    if (!bytes)
      return bytes.status();
    result.bytes = std::move(*bytes);
    return result;
  });
}

Result<std::vector<PrunableWeight>> prunableWeights(const std::string &path, const PruneOptions &options) {
  using List = std::vector<PrunableWeight>;
  return guarded<List>(path, [&]() -> Result<List> {
    Loaded model(path);
    List list;
    for (const Candidates::Found &found : candidatesOf(model, path, options).weights)
      list.push_back(found.weight);
    return list;
  });
}

Result<Weights> weightOf(const std::string &path, const PrunableWeight &weight) {
  return guarded<Weights>(path, [&]() -> Result<Weights> {
    Loaded model(path);
    PruneOptions options;
    return Pruner(model, options).valuesOf(weight);
  });
}

Result<size_t> checkScheme(const std::string &path, const sparsify::Scheme &scheme, const std::vector<std::string> &keep) {
  return guarded<size_t>(path, [&]() -> Result<size_t> {
    Loaded model(path);
    Candidates candidates(model, keep);
    LATHE_RETURN_IF_ERROR(candidates.checkPatterns());
    for (const Candidates::Found &found : candidates.weights) {
      Weights weights{model.read(*model.constants.at(found.weight.name)), found.weight.transposed};
      std::string where = path + ": weight '" + found.weight.name + "' of node '" + found.weight.nodes[0] + "'";
      Result<std::optional<sparsify::Offence>> offence = sparsify::firstOffence(weights, scheme);
      if (!offence)
        return Status(offence.status().code(), offence.status().message(), where);
      if (!*offence)
        continue;
      const sparsify::Offence &first = **offence;
      std::string at = found.weight.transposed ? std::to_string(first.n) + ", " + std::to_string(first.k)
                                        : std::to_string(first.k) + ", " + std::to_string(first.n);
      return invalidError((first.almost() ? "is almost " : "is not ") + scheme.name + ": element [" + at + "] is the first with more than " +
                              std::to_string(scheme.columns) + " of " + std::to_string(scheme.rows) +
                              " neighbours other than zero, in " + std::to_string(first.offending) + " of " +
                              std::to_string(first.groups) + " groups",
                          where);
    }
    return candidates.weights.size();
  });
}

} // namespace lathe
