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
    bool transposed = false, both = false, wanted = false;
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
      found.transposed = depth == 1;
      found.weight.depth = tensor.dims(int(depth));
      found.weight.columns = tensor.dims(int(1 - depth));
      at = weights.insert(weights.end(), found);
    }
    at->wanted |= isAsked;
    at->both |= at->transposed != (depth == 1);
    at->weight.nodes.push_back(nameOf(node));
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

Result<PrunedModel> prunedModel(const std::string &path, const PruneOptions &options, const std::set<std::string> &only) {
  return guarded<PrunedModel>(path, [&]() -> Result<PrunedModel> {
    Loaded model(path);
    Candidates candidates(model, options.keep, options.only);
    LATHE_RETURN_IF_ERROR(candidates.checkPatterns());
    LATHE_RETURN_IF_ERROR(candidates.checkOnly(path));
    LATHE_RETURN_IF_ERROR(checkMasks(model, candidates, options, path));
    PrunedModel result;
    result.kept = candidates.kept;
    uint64_t number = 0;
    for (Candidates::Found &found : candidates.weights) {
      ++number; // of all, so that what is drawn for one does not depend on others
      if (!only.empty() && !only.count(found.weight.name))
        continue;
      Weights weights{model.read(*model.constants.at(found.weight.name)), found.transposed};
      const HostTensor before = weights.tensor;
      Status pruned;
      if (options.masks.empty()) {
        pruned = sparsify::prune(weights, options.scheme, options.ratio, options.score, options.seed + number);
      } else if (auto mask = options.masks.find(found.weight.name); mask == options.masks.end()) {
        pruned = unsupportedError("has no mask");
      } else {
        for (int64_t i = 0; i < before.count(); ++i)
          if (mask->second.real(i) == 0)
            weights.tensor.setReal(i, 0);
      }
      if (!pruned.ok()) {
        for (const std::string &node : found.weight.nodes)
          result.kept.push_back({node, "its right operand '" + found.weight.name + "': " + pruned.message()});
        continue;
      }
      found.weight.zerosBefore = sparsify::zeroShare(before);
      found.weight.zeros = sparsify::zeroShare(weights.tensor);
      found.weight.change = sparsify::relativeChange(before, weights.tensor);
      Loaded::store(*model.constants.at(found.weight.name), weights.tensor);
      result.weights.push_back(found.weight);
    }
    for (auto &tensor : *model.proto.mutable_graph()->mutable_initializer())
      if (options.inside && tensor.data_location() == onnx::TensorProto::EXTERNAL)
        Loaded::store(tensor, model.read(tensor));
    Result<std::string> bytes = bytesOf(model, path);
    if (!bytes)
      return bytes.status();
    result.bytes = std::move(*bytes);
    return result;
  });
}

Result<size_t> checkScheme(const std::string &path, const sparsify::Scheme &scheme, const std::vector<std::string> &keep) {
  return guarded<size_t>(path, [&]() -> Result<size_t> {
    Loaded model(path);
    Candidates candidates(model, keep);
    LATHE_RETURN_IF_ERROR(candidates.checkPatterns());
    for (const Candidates::Found &found : candidates.weights) {
      Weights weights{model.read(*model.constants.at(found.weight.name)), found.transposed};
      std::string where = path + ": weight '" + found.weight.name + "' of node '" + found.weight.nodes[0] + "'";
      Result<std::optional<sparsify::Offence>> offence = sparsify::firstOffence(weights, scheme);
      if (!offence)
        return Status(offence.status().code(), offence.status().message(), where);
      if (!*offence)
        continue;
      const sparsify::Offence &first = **offence;
      std::string at = found.transposed ? std::to_string(first.n) + ", " + std::to_string(first.k)
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
