//===- PruneWidths.cpp - lathe prune, where models become smaller ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A share of the units of each family goes, both engines are measured, and what gains too little stays after all. The
// results are compared with those of the model that has zeros in their place.
//
//===----------------------------------------------------------------------===//
#include "PruneSurgery.h"
#include "PruneReport.h"

#include "lathe/import/SliceModel.h"
#include "lathe/support/Files.h"

#include <algorithm>
#include <optional>

namespace lathe::cli {
namespace {

using sparsify::Coupling;
using sparsify::Family;

class Narrower : public Surgery {
public:
  Narrower(const PruneRequest &request, const std::string &path) : Surgery(request, path, {*kindOf(request.scheme)}) {}

  Status run() {
    LATHE_RETURN_IF_ERROR(open());
    LATHE_RETURN_IF_ERROR(choose([&](const Family &family) { return staying(family, options.ratio); }));
    return families.empty() ? nothing() : finish();
  }

private:
  Status finish() {
    PruneReport report{path, request.scheme, request.score, options.ratio};
    const std::set<int64_t> wanted = all(gone);
    Result<std::string> bytes = slicedModel(path, coupling, wanted, true);
    if (!bytes)
      return bytes.status();
    std::optional<BothForms> both;
    LATHE_RETURN_IF_ERROR(measure(*bytes, both, report));
    for (size_t i = 0; i < families.size(); ++i)
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
    for (size_t i = 0; i < families.size(); ++i) {
      const Family &family = families[i];
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
};

} // namespace

Status pruneWidths(const PruneRequest &request, const std::string &path) {
  return Narrower(request, path).run();
}

} // namespace lathe::cli
