//===- PruneWidths.cpp - lathe prune, where models become smaller ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Units that the coupling of the model allows go by their scores. Then the new model is read again:
// all its values must have the sizes that the coupling tells, else the node where they first do not
// states a size of its own, its units stay, and the rest is tried again. Its results are compared
// with those of the model that has zeros in their place.
//
//===----------------------------------------------------------------------===//
#include "PruneMeasure.h"
#include "PruneReport.h"

#include "lathe/import/SliceModel.h"
#include "lathe/support/Files.h"

#include <algorithm>
#include <charconv>
#include <fnmatch.h>
#include <optional>

namespace lathe::cli {
namespace {

using sparsify::Coupling;
using sparsify::Family;
using sparsify::UnitKind;

std::optional<UnitKind> kindOf(const std::string &scheme) {
  if (scheme == "channels")
    return UnitKind::Channels;
  if (scheme == "heads")
    return UnitKind::Heads;
  if (scheme == "ffn")
    return UnitKind::Columns;
  return std::nullopt;
}

class Narrower {
public:
  Narrower(const PruneRequest &request, const std::string &path) : request(request), path(path) {}

  Status run() {
    Result<SurgeryOptions> parsed = SurgeryOptions::parse(request, path);
    if (!parsed)
      return parsed.status();
    options = std::move(*parsed);
    const std::string &text = request.multiple;
    auto read = std::from_chars(text.data(), text.data() + text.size(), multiple);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || multiple < 1 || multiple > 4096)
      return usageError("wants a number from 1 to 4096, not '" + text + "'", "--multiple");
    LATHE_RETURN_IF_ERROR(couple());
    LATHE_RETURN_IF_ERROR(choose());
    return finish();
  }

private:
  Status couple() {
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
          fits = true, (tensor.op.empty() ? constants : stay).insert({tensor.node, "asked for by --keep"});
      if (!fits)
        return usageError("fits no node or initializer", "--keep '" + pattern + "'");
    }
    for (const std::string &pattern : request.only)
      if (std::none_of(coupling.layers.begin(), coupling.layers.end(),
                       [&](const Coupling::Layer &layer) { return fnmatch(pattern.c_str(), layer.node.c_str(), 0) == 0; }))
        return usageError("fits no product by a constant", "--only '" + pattern + "'");
    return okStatus();
  }

  bool isWanted(const std::string &node) const {
    return request.only.empty() || std::any_of(request.only.begin(), request.only.end(), [&](const std::string &pattern) {
             return fnmatch(pattern.c_str(), node.c_str(), 0) == 0;
           });
  }

  /// The families of the scheme, their scores and the units that go, where the new model has the sizes that it should.
  Status choose() {
    const UnitKind kind = *kindOf(request.scheme);
    while (true) {
      kept = coupling.kept(stay, constants);
      chosen = sparsify::families(coupling, kept);
      std::erase_if(chosen, [&](const Family &family) {
        return family.kind != kind || family.units.size() < 2 ||
               std::none_of(family.layers.begin(), family.layers.end(), [&](const auto &node) { return isWanted(node); });
      });
      for (const Coupling::Layer &layer : coupling.layers)
        if (!request.only.empty() && isWanted(layer.node))
          if (std::string why = reasonOf(layer); !why.empty())
            return unsupportedError("cannot become narrower: " + why, path + ": node '" + layer.node + "'");
      if (chosen.empty())
        return nothing();
      Result<std::map<int64_t, double>> found = unitScores(path, coupling, chosen, options.score, options.seed, options.gradients);
      if (!found)
        return found.status();
      scores = std::move(*found);
      gone.clear();
      for (const Family &family : chosen)
        gone.push_back(leastUnits(family, scores, staying(family)));
      Result<Misfit> wrong = misfit(all(gone));
      if (!wrong)
        return wrong.status();
      if (wrong->node.empty())
        return okStatus();
      // The reason is noted at the node, so that this ends: each round keeps more units.
      if (!stay.insert({wrong->node, wrong->why}).second)
        return internalError("sizes of '" + wrong->node + "' do not follow", path);
    }
  }

  int64_t staying(const Family &family) const {
    return sparsify::unitsThatStay(int64_t(family.units.size()), options.ratio, family.wide == 1 ? multiple : 1);
  }

  static std::set<int64_t> all(const std::vector<std::set<int64_t>> &parts) {
    std::set<int64_t> units;
    for (const std::set<int64_t> &part : parts)
      units.insert(part.begin(), part.end());
    return units;
  }

  /// A node whose operands and results must stay, and the reason; "" where there is none.
  struct Misfit {
    std::string node, why;
  };
  static Misfit unedited(const std::string &node, const std::string &blamed) {
    return {node, "'" + blamed + "' states its size in a way that is not edited"};
  }

  /// The first node of the new model whose sizes are not those that should be left.
  Result<Misfit> misfit(const std::set<int64_t> &units) {
    Result<std::string> bytes = slicedModel(path, coupling, units, /*inside=*/true);
    if (!bytes)
      return bytes.status();
    Result<std::unique_ptr<TemporaryModel>> file = TemporaryModel::write("pruned.onnx", *bytes);
    if (!file)
      return file.status();
    Result<Coupling> now = couplingOf(request, (*file)->path);
    if (!now) // the message is located at a node, where it is about one
      return offenderOf(now.status());
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

  /// The node that an error of the new model names.
  Result<Misfit> offenderOf(const Status &status) const {
    const std::string text = status.location() + " " + status.message();
    std::string longest;
    for (const Coupling::Tensor &tensor : coupling.tensors)
      if (tensor.node.size() > longest.size() && !stay.count(tensor.node) &&
          text.find(tensor.node) != std::string::npos)
        longest = tensor.node;
    if (longest.empty())
      return unsupportedError("the narrower model is refused: " + status.message(), path + ": " + status.location());
    return Misfit{longest, "'" + longest + "' or one ahead of it states a size that is not edited: " + status.message()};
  }

  /// Why nothing can go.
  Status nothing() const {
    std::string why;
    for (const Coupling::Layer &layer : coupling.layers)
      if (std::string reason = reasonOf(layer); why.empty() && !reason.empty())
        why = ", as '" + layer.node + "': " + reason;
    return unsupportedError("has no " + (request.scheme == "ffn" ? "columns between products" : request.scheme) +
                                " that can be taken out" + why, path);
  }

  /// Why columns of a layer stay; "" where they may go.
  std::string reasonOf(const Coupling::Layer &layer) const {
    for (int64_t i = 0; i < layer.columns.size; ++i)
      if (auto found = kept.find(coupling.unitOf(layer.columns.at(i))); found != kept.end())
        return "its width stays: " + found->second;
    return {};
  }

  /// The nodes that have one of these units.
  std::vector<std::string> nodesOf(const std::set<int64_t> &units) const {
    std::set<std::string> nodes;
    for (const Coupling::Tensor &tensor : coupling.tensors)
      for (const Coupling::Dim &dim : tensor.dims)
        for (int64_t i = 0; i < dim.size && !tensor.op.empty(); ++i)
          if (units.count(coupling.unitOf(dim.at(i)))) {
            nodes.insert(tensor.node);
            break;
          }
    return {nodes.begin(), nodes.end()};
  }

  Status finish() {
    PruneReport report{path, request.scheme, request.score, options.ratio};
    const std::set<int64_t> wanted = all(gone);
    Result<std::string> bytes = slicedModel(path, coupling, wanted, true);
    if (!bytes)
      return bytes.status();
    std::optional<BothForms> both;
    LATHE_RETURN_IF_ERROR(measure(*bytes, both, report));
    for (size_t i = 0; i < chosen.size(); ++i)
      if (!report.widths[i].applied)
        gone[i].clear();
    const std::set<int64_t> units = all(gone);
    for (const Coupling::Layer &layer : coupling.layers)
      if (std::string why = isWanted(layer.node) ? reasonOf(layer) : ""; !why.empty())
        report.kept.push_back({layer.node, why});
    if (request.seconds > 0) {
      bytes = slicedModel(path, coupling, units, true);
      Result<std::string> masked = maskedModel(path, coupling, units, true);
      if (!bytes || !masked)
        return bytes ? masked.status() : bytes.status();
      if (units != wanted) {
        Result<BothForms> again = BothForms::openNamed(request, path, *bytes);
        if (!again)
          return again.status();
        both.emplace(std::move(*again));
      }
      LATHE_RETURN_IF_ERROR(compareWithMasked(request, path, *both, *masked, report));
    }
    Result<std::string> written = units.empty() ? readFile(path) : slicedModel(path, coupling, units, false);
    Result<std::string> zeros = units.empty() ? readFile(path) : maskedModel(path, coupling, units, false);
    if (!written || !zeros)
      return written ? zeros.status() : written.status();
    return writePruned(request, report, *written, *zeros,
                       std::to_string(units.size()) + " of " + std::to_string(scores.size()) + " units are left out (" +
                           request.scheme + ")");
  }

  /// Both forms in turn, unless nothing is to be measured; which families win.
  Status measure(const std::string &bytes, std::optional<BothForms> &both, PruneReport &report) {
    std::optional<Profile> before, after;
    if (request.seconds > 0) {
      Result<BothForms> opened = BothForms::openNamed(request, path, bytes);
      if (!opened)
        return opened.status();
      both.emplace(std::move(*opened));
      before.emplace(both->dense), after.emplace(both->pruned);
      LATHE_RETURN_IF_ERROR(measureInTurn(*before, *after, both->inputs, request.seconds));
      report.target = both->dense.session.target();
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
      const Family &family = chosen[i];
      PruneReport::Width width;
      width.layers = family.layers;
      width.units = int64_t(family.units.size());
      width.stay = width.units - int64_t(gone[i].size());
      width.wide = family.wide;
      double whole = 0, lost = 0;
      for (int64_t unit : family.units)
        whole += scores.at(unit), lost += gone[i].count(unit) ? scores.at(unit) : 0;
      width.score = whole > 0 ? lost / whole : 0;
      const std::vector<std::string> nodes = nodesOf({family.units.begin(), family.units.end()});
      if (before) {
        width.denseMicroseconds = timesOf(*before, nodes).first * 1e6;
        width.prunedMicroseconds = timesOf(*after, nodes).first * 1e6;
      }
      if (gone[i].empty())
        width.why = "no unit goes at this ratio and multiple";
      else if (before && width.denseMicroseconds <= 0)
        width.why = "none of its kernels was seen in the profile";
      else if (before && width.prunedMicroseconds > kWins * width.denseMicroseconds)
        width.why = "measured gain below 3 %";
      width.applied = !gone[i].empty() && (width.why.empty() || request.apply == "all");
      if (!width.applied)
        width.stay = width.units;
      report.widths.push_back(std::move(width));
    }
    return okStatus();
  }

  const PruneRequest &request;
  const std::string &path;
  SurgeryOptions options;
  int64_t multiple = 8;
  Coupling coupling;
  std::map<std::string, std::string> stay, constants; ///< nodes and constants whose units stay, and why
  std::map<int64_t, std::string> kept;     ///< units
  std::vector<Family> chosen;
  std::vector<std::set<int64_t>> gone; ///< by family
  std::map<int64_t, double> scores;
};

} // namespace

bool isWidthScheme(const std::string &scheme) { return kindOf(scheme).has_value(); }

Status pruneWidths(const PruneRequest &request, const std::string &path) {
  return Narrower(request, path).run();
}

} // namespace lathe::cli
