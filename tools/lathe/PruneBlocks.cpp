//===- PruneBlocks.cpp - lathe prune, where residual branches go ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole residual branches go by the weights that end them, where what they took is 3 % of a run at least.
//
//===----------------------------------------------------------------------===//
#include "PruneMeasure.h"
#include "PruneReport.h"

#include "lathe/import/DropBranches.h"
#include "lathe/support/Files.h"

#include <algorithm>
#include <cmath>
#include <fnmatch.h>
#include <optional>

namespace lathe::cli {

static bool fitsAny(const std::vector<std::string> &patterns, const std::string &name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string &pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

/// Takes out of the list what --keep and --only say. Usage where a pattern fits nothing; Unsupported where --only names
/// what has to stay.
static Status select(const PruneRequest &request, const std::string &path, ResidualBranches &found) {
  for (const auto &[option, patterns] : {std::pair("--keep", &request.keep), std::pair("--only", &request.only)})
    for (const std::string &pattern : *patterns) {
      auto fits = [&](const auto &list, auto nameOf) {
        return std::any_of(list.begin(), list.end(), [&](const auto &one) { return fitsAny({pattern}, nameOf(one)); });
      };
      if (!fits(found.branches, [](const auto &one) { return one.add; }) &&
          !fits(found.kept, [](const auto &one) { return one.first; }))
        return usageError("fits no addition of a branch to what it is computed of", std::string(option) + " '" + pattern + "'");
    }
  for (const auto &[node, why] : found.kept)
    if (fitsAny(request.only, node))
      return unsupportedError("has to stay: " + why, path + ": node '" + node + "'");
  std::erase_if(found.branches, [&](const ResidualBranch &branch) {
    if (fitsAny(request.keep, branch.add)) {
      found.kept.push_back({branch.add, "asked for by --keep"});
      return true;
    }
    return !request.only.empty() && !fitsAny(request.only, branch.add);
  });
  return okStatus();
}

/// The branches of the least scores, in their order; one stays at least.
static std::vector<size_t> leastBranches(const ResidualBranches &found, double ratio) {
  std::vector<size_t> order(found.branches.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(found.branches[a].score, a) < std::pair(found.branches[b].score, b);
  });
  order.resize(std::min<size_t>(size_t(std::llround(ratio * double(order.size()))), order.size() - 1));
  std::sort(order.begin(), order.end());
  return order;
}

Status pruneBlocks(const PruneRequest &request, const std::string &path) {
  Result<SurgeryOptions> options = SurgeryOptions::parse(request, path);
  if (!options)
    return options.status();
  Result<sparsify::Coupling> coupling = couplingOf(request, path);
  if (!coupling)
    return coupling.status();
  Result<ResidualBranches> found = residualBranches(path, *coupling, options->score, options->seed, options->gradients);
  if (!found)
    return found.status();
  LATHE_RETURN_IF_ERROR(select(request, path, *found));
  if (found->branches.size() < 2)
    return unsupportedError("has no two residual branches of which one can go" +
                                (found->kept.empty() ? std::string() : ", as '" + found->kept[0].first + "': " + found->kept[0].second),
                            path);
  const std::vector<size_t> least = leastBranches(*found, options->ratio);
  std::set<std::string> adds, wanted;
  for (size_t i : least)
    wanted.insert(found->branches[i].add);
  adds = wanted;

  PruneReport report{path, request.scheme, request.score, options->ratio};
  std::optional<BothForms> both;
  std::optional<Profile> before;
  auto open = [&]() -> Status {
    Result<std::string> bytes = modelWithoutBranches(path, adds, true);
    if (!bytes)
      return bytes.status();
    Result<BothForms> opened = BothForms::openNamed(request, path, *bytes);
    if (!opened)
      return opened.status();
    both.emplace(std::move(*opened));
    return okStatus();
  };
  if (request.seconds > 0) {
    LATHE_RETURN_IF_ERROR(open());
    before.emplace(both->dense);
    Profile after(both->pruned);
    LATHE_RETURN_IF_ERROR(measureInTurn(*before, after, both->inputs, request.seconds));
    report.target = both->dense.session.target();
  }
  double scores = 0;
  for (const ResidualBranch &branch : found->branches)
    scores += branch.score;
  for (const ResidualBranch &branch : found->branches) {
    PruneReport::Width row;
    row.layers = {branch.add};
    row.units = row.stay = 1;
    row.score = scores > 0 ? branch.score / scores : 0;
    if (before) { // what its nodes take goes whole
      row.denseMicroseconds = timesOf(*before, branch.nodes).first * 1e6;
      row.prunedMicroseconds = wanted.count(branch.add) ? 0 : row.denseMicroseconds;
    }
    if (!wanted.count(branch.add))
      row.why = "other branches are worth less";
    else if (before && row.denseMicroseconds < (1 - kWins) * before->latency() * 1e6)
      row.why = "takes less than 3 % of a run";
    row.applied = wanted.count(branch.add) && (row.why.empty() || request.apply == "all");
    if (row.applied)
      row.stay = 0;
    else
      adds.erase(branch.add);
    report.widths.push_back(std::move(row));
  }
  report.kept = found->kept;
  if (request.seconds > 0) {
    Result<std::string> zeros = modelWithZeroBranches(path, adds, true);
    if (!zeros)
      return zeros.status();
    if (adds != wanted)
      LATHE_RETURN_IF_ERROR(open());
    LATHE_RETURN_IF_ERROR(compareWithMasked(request, path, *both, *zeros, report));
  }
  Result<std::string> written = adds.empty() ? readFile(path) : modelWithoutBranches(path, adds, false);
  Result<std::string> zeros = adds.empty() ? readFile(path) : modelWithZeroBranches(path, adds, false);
  if (!written || !zeros)
    return written ? zeros.status() : written.status();
  return writePruned(request, report, *written, *zeros,
                     std::to_string(adds.size()) + " of " + std::to_string(found->branches.size()) + " residual branches are left out");
}

} // namespace lathe::cli
