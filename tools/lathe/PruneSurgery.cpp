//===- PruneSurgery.cpp - which units of a model can go -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Units that the coupling of the model allows go by their scores. Then the new model is read again:
// all its values must have the sizes that the coupling tells, else the node where they first do not
// states a size of its own, its units stay, and the rest is tried again.
//
//===----------------------------------------------------------------------===//
#include "PruneSurgery.h"

#include "lathe/import/SliceModel.h"

#include <algorithm>
#include <charconv>
#include <fnmatch.h>

namespace lathe::cli {

using sparsify::Coupling;
using sparsify::Family;

Status Surgery::open() {
  Result<SurgeryOptions> parsed = SurgeryOptions::parse(request, path);
  if (!parsed)
    return parsed.status();
  options = std::move(*parsed);
  const std::string &text = request.multiple;
  auto read = std::from_chars(text.data(), text.data() + text.size(), multiple);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || multiple < 1 || multiple > 4096)
    return usageError("wants a number from 1 to 4096, not '" + text + "'", "--multiple");
  return couple();
}

int64_t Surgery::staying(const Family &family, double ratio) const {
  return sparsify::unitsThatStay(int64_t(family.units.size()), ratio, family.wide == 1 ? multiple : 1);
}

std::set<int64_t> Surgery::all(const std::vector<std::set<int64_t>> &parts) {
  std::set<int64_t> units;
  for (const std::set<int64_t> &part : parts)
    units.insert(part.begin(), part.end());
  return units;
}

Status Surgery::couple() {
  Result<Coupling> found = couplingOf(request, path);
  if (!found)
    return found.status();
  coupling = std::move(*found);
  Result<std::map<std::string, std::string>> unsliced = unslicedConstants(path, coupling);
  if (!unsliced)
    return unsliced.status();
  constants = std::move(*unsliced);
  for (const std::string &pattern : request.keep) {
    bool fits = false;
    for (const Coupling::Tensor &tensor : coupling.tensors)
      if (fnmatch(pattern.c_str(), tensor.node.c_str(), 0) == 0)
        fits = true, (tensor.op.empty() ? constants : keeps).insert({tensor.node, "asked for by --keep"});
    if (!fits)
      return usageError("fits no node or initializer", "--keep '" + pattern + "'");
  }
  for (const std::string &pattern : request.only)
    if (std::none_of(coupling.layers.begin(), coupling.layers.end(),
                     [&](const Coupling::Layer &layer) { return fnmatch(pattern.c_str(), layer.node.c_str(), 0) == 0; }))
      return usageError("fits no product by a constant", "--only '" + pattern + "'");
  return okStatus();
}

bool Surgery::isWanted(const std::string &node) const {
  return request.only.empty() || std::any_of(request.only.begin(), request.only.end(), [&](const std::string &pattern) {
           return fnmatch(pattern.c_str(), node.c_str(), 0) == 0;
         });
}

Status Surgery::choose(const Stay &stay) {
  while (true) {
    kept = coupling.kept(keeps, constants);
    families = sparsify::families(coupling, kept);
    std::erase_if(families, [&](const Family &family) {
      return !kinds.count(family.kind) || family.units.size() < 2 ||
             std::none_of(family.layers.begin(), family.layers.end(), [&](const auto &node) { return isWanted(node); });
    });
    for (const Coupling::Layer &layer : coupling.layers)
      if (!request.only.empty() && isWanted(layer.node))
        if (std::string why = reasonOf(layer); !why.empty())
          return unsupportedError("cannot become narrower: " + why, path + ": node '" + layer.node + "'");
    gone.clear();
    if (families.empty())
      return okStatus();
    Result<std::map<int64_t, double>> found = unitScores(path, coupling, families, options.score, options.seed, options.gradients);
    if (!found)
      return found.status();
    scores = std::move(*found);
    for (const Family &family : families)
      gone.push_back(leastUnits(family, scores, stay(family)));
    Result<Misfit> wrong = misfit(all(gone));
    if (!wrong)
      return wrong.status();
    if (wrong->node.empty())
      return okStatus();
    // The reason is noted at the node, so that this ends: each round keeps more units.
    if (!keeps.insert({wrong->node, wrong->why}).second)
      return internalError("sizes of '" + wrong->node + "' do not follow", path);
  }
}

static Surgery::Misfit unedited(const std::string &node, const std::string &blamed) {
  return {node, "'" + blamed + "' states its size in a way that is not edited"};
}

/// The first node of the new model whose sizes are not those that should be left.
Result<Surgery::Misfit> Surgery::misfit(const std::set<int64_t> &units) {
  Result<std::string> bytes = slicedModel(path, coupling, units, /*inside=*/true);
  if (!bytes)
    return bytes.status().code() == ErrorCode::Unsupported ? offenderOf(bytes.status(), units) : Result<Misfit>(bytes.status());
  Result<std::unique_ptr<TemporaryModel>> file = TemporaryModel::write("pruned.onnx", *bytes);
  if (!file)
    return file.status();
  Result<Coupling> now = couplingOf(request, (*file)->path);
  if (!now) // the message is located at a node, where it is about one
    return offenderOf(now.status(), units);
  auto computed = [](const Coupling &coupling) {
    std::vector<const Coupling::Tensor *> tensors;
    for (const Coupling::Tensor &tensor : coupling.tensors)
      if (!tensor.op.empty())
        tensors.push_back(&tensor);
    return tensors;
  };
  std::vector<const Coupling::Tensor *> want = computed(coupling), got = computed(*now);
  for (size_t i = 0; i < want.size(); ++i) {
    if (i >= got.size() || want[i]->node != got[i]->node || want[i]->op != got[i]->op ||
        want[i]->dims.size() != got[i]->dims.size()) {
      // A node that did nothing before does now what it says.
      const bool isNew = i < got.size() && std::none_of(want.begin(), want.end(), [&](const Coupling::Tensor *tensor) {
                           return tensor->node == got[i]->node;
                         });
      return unedited(want[i]->node, isNew ? got[i]->node : want[i]->node);
    }
    for (size_t d = 0; d < want[i]->dims.size(); ++d) {
      int64_t left = 0;
      for (int64_t e = 0; e < want[i]->dims[d].size; ++e)
        left += !units.count(coupling.unitOf(want[i]->dims[d].at(e)));
      if (left != got[i]->dims[d].size)
        return unedited(want[i]->node, want[i]->node);
    }
  }
  return Misfit();
}

/// The node that an error of the new model names; where that one is kept already, the nearest one ahead of it that
/// still becomes narrower.
Result<Surgery::Misfit> Surgery::offenderOf(const Status &status, const std::set<int64_t> &units) const {
  const std::string text = status.location() + " " + status.message();
  auto named = coupling.tensors.end();
  for (auto tensor = coupling.tensors.begin(); tensor != coupling.tensors.end(); ++tensor)
    if (!tensor->op.empty() && text.find(tensor->node) != std::string::npos &&
        (named == coupling.tensors.end() || tensor->node.size() > named->node.size()))
      named = tensor;
  auto found = named;
  while (found != coupling.tensors.end() &&
         (found->op.empty() || keeps.count(found->node) || (found != named && !touches(*found, units))))
    found = found == coupling.tensors.begin() ? coupling.tensors.end() : found - 1;
  if (found == coupling.tensors.end())
    return unsupportedError("the narrower model is refused: " + status.message(), path + ": " + status.location());
  return Misfit{found->node, "'" + found->node + "' or one ahead of it states a size that is not edited: " + status.message()};
}

Status Surgery::nothing() const {
  std::string why;
  for (const Coupling::Layer &layer : coupling.layers)
    if (std::string reason = reasonOf(layer); why.empty() && !reason.empty())
      why = ", as '" + layer.node + "': " + reason;
  return unsupportedError("has no " + (request.scheme == "ffn" ? "columns between products" : request.scheme) +
                              " that can be taken out" + why, path);
}

std::string Surgery::reasonOf(const Coupling::Layer &layer) const {
  for (int64_t i = 0; i < layer.columns.size; ++i)
    if (auto found = kept.find(coupling.unitOf(layer.columns.at(i))); found != kept.end())
      return "its width stays: " + found->second;
  return {};
}

bool Surgery::touches(const Coupling::Tensor &tensor, const std::set<int64_t> &units) const {
  for (const std::vector<Coupling::Dim> *dims : {&tensor.dims, &tensor.read})
    for (const Coupling::Dim &dim : *dims)
      for (int64_t i = 0; i < dim.size; ++i)
        if (units.count(coupling.unitOf(dim.at(i))))
          return true;
  return false;
}

std::vector<std::string> Surgery::nodesOf(const std::set<int64_t> &units) const {
  std::set<std::string> nodes;
  for (const Coupling::Tensor &tensor : coupling.tensors)
    if (!tensor.op.empty() && touches(tensor, units))
      nodes.insert(tensor.node);
  return {nodes.begin(), nodes.end()};
}

} // namespace lathe::cli
