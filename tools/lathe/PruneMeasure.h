//===- PruneMeasure.h - a model and its pruned form side by side -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_PRUNEMEASURE_H
#define LATHE_TOOLS_LATHE_PRUNEMEASURE_H

#include "Inputs.h"
#include "Profile.h"
#include "TemporaryModel.h"

#include "PruneReport.h"

#include "lathe/import/PruneModel.h"
#include "lathe/sparsify/Coupling.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lathe::cli {

/// What `lathe prune` was asked for.
struct PruneRequest {
  std::string output, scheme, masks, ratio, score = "l1", gradients, report, json, masked, apply = "winning", seed = "1";
  std::string multiple = "8", data, budget;
  bool check = false, overAll = false;
  bool measuresData = false; ///< the first example of `data`, not the inputs that `inputs` says
  double seconds = 2, damping = 0.01;
  std::vector<std::string> keep, only;
  CompileOptions compile;
  SessionOptions session;
  InputOptions inputs;
};

/// --ratio, between 0 and 1 without these; --seed. Usage errors.
Result<double> parseRatio(const std::string &text);
Result<uint64_t> parseSeed(const std::string &text);

/// What a layer must take of the dense one's time at most.
constexpr double kWins = 0.97;

/// The median seconds of the kernels that compute one of these nodes; whether one of them leaves out zeros of weights or
/// the weights of inputs that are zero.
std::pair<double, bool> timesOf(const Profile &profile, const std::vector<std::string> &nodes);

/// The relative change of each float output.
std::vector<std::pair<std::string, double>> losses(const OpenEngine &engine, const std::vector<HostTensor> &before,
                                                   const std::vector<HostTensor> &after);

/// The model as it is and pruned, on the same inputs.
struct BothForms {
  OpenEngine dense;
  std::unique_ptr<TemporaryModel> file; ///< of `pruned`
  OpenEngine pruned;
  std::vector<HostTensor> inputs;

  static Result<BothForms> open(const PruneRequest &request, const std::string &path, const std::string &bytes);
  /// The same with the names that namedModel gives nodes, by which kernels are found.
  static Result<BothForms> openNamed(const PruneRequest &request, const std::string &path, const std::string &bytes);
};

/// Measures both forms in turn and says of each weight whether its products win, a row of the report each; `unused`: why
/// one stays dense whose kernels leave out nothing.
Status measureWeights(const PruneRequest &options, const std::string &path, const PrunedModel &all, const std::string &unused,
                      PruneReport &report);
/// Loss and latency of what is written, against the model as it was, into the report.
Status judgeWritten(const PruneRequest &options, const std::string &path, const std::string &bytes, PruneReport &report);

/// What the schemes that make a model smaller are asked for beside their units. Usage errors, and those of the files.
struct SurgeryOptions {
  double ratio = 0;
  sparsify::Score score = sparsify::Score::L1;
  uint64_t seed = 0;
  std::map<std::string, HostTensor> gradients; ///< by initializer, of --score=taylor
  static Result<SurgeryOptions> parse(const PruneRequest &request, const std::string &path);
};

/// Whether the smaller model gives what the model with zeros in the place of what went gives, within rounding; into the
/// report, with losses and times. Internal error where it does not.
Status compareWithMasked(const PruneRequest &request, const std::string &path, const BothForms &both,
                         const std::string &masked, PruneReport &report);

/// The coupling of a model, whose nodes have the names that namedModel gives them.
Result<sparsify::Coupling> couplingOf(const PruneRequest &request, const std::string &path);

/// Writes what was asked for, each file whole or not at all, the model last; prints the report and `summary`.
Status writePruned(const PruneRequest &request, const PruneReport &report, const std::string &model,
                   const std::string &masked, const std::string &summary);

/// What a score needs of data, into the options: norms for Wanda, weights for SparseGPT (PruneData.cpp). Usage errors where
/// data and score do not go together; those of the data.
Status observeInputs(const PruneRequest &request, const std::string &path, PruneOptions &options);

/// Takes residual branches out: --scheme blocks (PruneBlocks.cpp).
Status pruneBlocks(const PruneRequest &request, const std::string &path);
/// Gives inputs of products thresholds: --scheme activations (PruneActivations.cpp).
Status pruneActivations(const PruneRequest &request, const std::string &path);
/// Makes layers narrower: --scheme channels, heads or ffn (PruneWidths.cpp).
Status pruneWidths(const PruneRequest &request, const std::string &path);
/// Gives each group of layers the width that loses least within --budget latency= (PruneSearch.cpp).
Status pruneByBudget(const PruneRequest &request, const std::string &path);
/// Which units a scheme makes narrower: channels, heads or ffn.
std::optional<sparsify::UnitKind> kindOf(const std::string &scheme);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_PRUNEMEASURE_H
