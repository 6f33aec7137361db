//===- PruneMeasure.cpp - a model and its pruned form side by side --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Calibrate.h"
#include "PruneMeasure.h"

#include "lathe/codegen/Skeleton.h"
#include "lathe/compiler/CoupledDims.h"
#include "lathe/import/ObserveModel.h"
#include "lathe/import/SliceModel.h"
#include "lathe/sparsify/Prune.h"
#include "lathe/support/Files.h"
#include "lathe/support/Npz.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace lathe::cli {

Result<double> parseRatio(const std::string &text) {
  double ratio = 0;
  const char *end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, ratio);
  if (text.empty())
    return usageError("is missing: the share of weights or units that goes", "--ratio");
  if (read.ec != std::errc() || read.ptr != end || !(ratio > 0 && ratio < 1))
    return usageError("wants a number between 0 and 1, without these: 1 would leave no weight; not '" + text + "'",
                      "--ratio");
  return ratio;
}

Result<uint64_t> parseSeed(const std::string &text) {
  uint64_t seed = 0;
  if (text.empty() || std::from_chars(text.data(), text.data() + text.size(), seed).ptr != text.data() + text.size())
    return usageError("wants a number, not '" + text + "'", "--seed");
  return seed;
}

std::pair<double, bool> timesOf(const Profile &profile, const std::vector<std::string> &nodes) {
  std::pair<double, bool> result{0, false};
  for (const KernelTime &kernel : profile.kernels()) {
    if (std::none_of(nodes.begin(), nodes.end(), [&](const std::string &n) { return kernel.computes(n); }))
      continue;
    result.first += kernel.seconds;
    Result<KernelConfig> config = KernelConfig::parse(kernel.config);
    result.second |= config.ok() && config->form && (config->form->product.leavesOutZeros || config->form->product.packsZerosAway() ||
                                                       config->form->product.leavesOutInputs);
  }
  return result;
}

std::vector<std::pair<std::string, double>> losses(const OpenEngine &engine, const std::vector<HostTensor> &before,
                                                   const std::vector<HostTensor> &after) {
  std::vector<std::pair<std::string, double>> list;
  for (size_t i = 0; i < before.size() && i < after.size(); ++i)
    if (isFloat(before[i].dtype) && before[i].dims == after[i].dims)
      list.push_back({engine.plan->outputs[i].name, sparsify::relativeChange(before[i], after[i])});
  return list;
}

Result<BothForms> BothForms::open(const PruneRequest &options, const std::string &path, const std::string &bytes) {
  CompileOptions compile = options.inputs.fixing(options.compile, path);
  compile.sparseWeights = "never";
  Result<OpenEngine> dense = OpenEngine::open(path, compile, options.session);
  if (!dense)
    return dense.status();
  Result<std::unique_ptr<TemporaryModel>> written = TemporaryModel::write("pruned.onnx", bytes);
  if (!written)
    return written.status();
  compile.cache = false;
  // GPUs leave zeros out where they are told to; whether it pays is what is measured.
  compile.sparseWeights = options.session.device.starts_with("cuda") ? "always" : "auto";
  Result<OpenEngine> pruned = OpenEngine::open((*written)->path, compile, options.session);
  if (!pruned)
    return pruned.status();
  if (options.measuresData) {
    Result<std::vector<Example>> examples = readExamples(options.data, *dense->plan);
    if (!examples)
      return examples.status();
    return BothForms{std::move(*dense), std::move(*written), std::move(*pruned), std::move(examples->front())};
  }
  Result<InputFiles> files = readInputs(options.inputs, *dense->plan);
  if (!files)
    return files.status();
  Result<std::vector<HostTensor>> inputs =
      makeInputs(options.inputs, *files, *dense->plan, dense->session.stateLengths(*dense->plan), 0);
  if (!inputs)
    return inputs.status();
  return BothForms{std::move(*dense), std::move(*written), std::move(*pruned), std::move(*inputs)};
}

Result<BothForms> BothForms::openNamed(const PruneRequest &request, const std::string &path, const std::string &bytes) {
  Result<std::unique_ptr<TemporaryModel>> file = TemporaryModel::write("pruned.onnx", bytes);
  if (!file)
    return file.status();
  Result<std::string> dense = namedModel(path), pruned = namedModel((*file)->path);
  if (!dense || !pruned)
    return dense ? pruned.status() : dense.status();
  Result<std::unique_ptr<TemporaryModel>> named = TemporaryModel::write("dense.onnx", *dense);
  if (!named)
    return named.status();
  return open(request, (*named)->path, *pruned);
}

std::optional<sparsify::UnitKind> kindOf(const std::string &scheme) {
  if (scheme == "channels")
    return sparsify::UnitKind::Channels;
  if (scheme == "heads")
    return sparsify::UnitKind::Heads;
  if (scheme == "ffn")
    return sparsify::UnitKind::Columns;
  return std::nullopt;
}

Result<SurgeryOptions> SurgeryOptions::parse(const PruneRequest &request, const std::string &path) {
  SurgeryOptions options;
  if (!request.budget.empty() && !request.ratio.empty())
    return usageError("is what a budget decides", "--ratio");
  Result<double> ratio = request.budget.empty() ? parseRatio(request.ratio) : Result<double>(0);
  Result<sparsify::Score> score = sparsify::parseScore(request.score);
  Result<uint64_t> seed = parseSeed(request.seed);
  for (const Status &status : {ratio.status(), score.status(), seed.status()})
    LATHE_RETURN_IF_ERROR(status);
  options.ratio = *ratio, options.score = *score, options.seed = *seed;
  if (!request.masks.empty())
    return usageError("say where zeros are, without --scheme, --ratio and --check", "--masks");
  if (request.check)
    return usageError("only groups as 2:4 can be checked for", "--check");
  if (request.apply != "winning" && request.apply != "all")
    return usageError("wants winning or all, not '" + request.apply + "'", "--apply");
  if (request.seconds <= 0 && request.apply != "all")
    return usageError("of 0 measures nothing, so that nothing can win: --apply=all", "--seconds");
  if (*score == sparsify::Score::Wanda || *score == sparsify::Score::SparseGpt || (!request.data.empty() && request.budget.empty()))
    return usageError("wanda and sparsegpt, which ask data, are for zeros in weights", "--score");
  if (request.overAll)
    return usageError("is for block and unstructured", "--over-all");
  if ((*score == sparsify::Score::Taylor) != !request.gradients.empty())
    return usageError("--score=taylor and --gradients=FILE.npz go together", "--score");
  if (!request.gradients.empty()) {
    Result<std::map<std::string, HostTensor>> arrays = readNpz(request.gradients);
    if (!arrays)
      return arrays.status();
    options.gradients = std::move(*arrays);
  }
  for (const std::string &file : {request.output, request.masked})
    if (!file.empty())
      LATHE_RETURN_IF_ERROR(checkBesideWeights(path, file));
  return options;
}

/// The density of blocks at which the time is the dense one's, if what does not depend on it is a share of 0.05.
static double breakEven(double kept, double share) {
  constexpr double kFixed = 0.05;
  return share > kFixed ? std::clamp((1 - kFixed) * kept / (share - kFixed), 0.0, 1.0) : 1;
}

Status measureWeights(const PruneRequest &options, const std::string &path, const PrunedModel &all, const std::string &unused,
                      PruneReport &report) {
  Result<BothForms> both = BothForms::open(options, path, all.bytes);
  if (!both)
    return both.status();
  const OpenEngine &dense = both->dense, &pruned = both->pruned;
  Profile before(dense), after(pruned);
  LATHE_RETURN_IF_ERROR(measureInTurn(before, after, both->inputs, options.seconds));
  report.target = dense.session.target();
  for (const PrunableWeight &weight : all.weights) {
    PruneReport::Row row;
    row.weight = weight;
    row.denseMicroseconds = timesOf(before, weight.nodes).first * 1e6;
    auto [seconds, leavesOut] = timesOf(after, weight.nodes);
    row.sparseMicroseconds = seconds * 1e6;
    double share = row.denseMicroseconds > 0 ? row.sparseMicroseconds / row.denseMicroseconds : 1;
    if (leavesOut)
      row.breakEven = breakEven(1 - weight.zeros, share);
    row.wins = leavesOut && share <= kWins;
    if (!leavesOut)
      row.why = unused;
    else if (!row.wins)
      row.why = "measured gain below 3 %";
    report.rows.push_back(std::move(row));
  }
  for (const auto &[node, why] : all.kept)
    report.kept.push_back({node, why});
  return okStatus();
}

Status judgeWritten(const PruneRequest &options, const std::string &path, const std::string &bytes, PruneReport &report) {
  Result<BothForms> both = BothForms::open(options, path, bytes);
  if (!both)
    return both.status();
  const OpenEngine &dense = both->dense, &pruned = both->pruned;
  Result<std::vector<HostTensor>> want = dense.run(both->inputs), got = pruned.run(both->inputs);
  if (!want || !got)
    return want ? got.status() : want.status();
  report.losses = losses(dense, *want, *got);
  Profile before(dense), after(pruned);
  LATHE_RETURN_IF_ERROR(measureInTurn(before, after, both->inputs, 0));
  report.denseMs = before.latency() * 1e3;
  report.prunedMs = after.latency() * 1e3;
  return okStatus();
}

/// Results of the smaller model differ from the masked one's by rounding alone.
constexpr double kMaskedTolerance = 1e-3;

Status compareWithMasked(const PruneRequest &request, const std::string &path, const BothForms &both,
                         const std::string &masked, PruneReport &report) {
  Result<std::unique_ptr<TemporaryModel>> file = TemporaryModel::write("masked.onnx", masked);
  if (!file)
    return file.status();
  CompileOptions compile = request.inputs.fixing(request.compile, path);
  compile.cache = false;
  compile.sparseWeights = "never";
  Result<OpenEngine> zeros = OpenEngine::open((*file)->path, compile, request.session);
  if (!zeros)
    return zeros.status();
  Result<std::vector<HostTensor>> want = both.dense.run(both.inputs), got = both.pruned.run(both.inputs),
                                  same = zeros->run(both.inputs);
  for (const auto *results : {&want, &got, &same})
    if (!*results)
      return results->status();
  report.losses = losses(both.dense, *want, *got);
  for (size_t i = 0; i < got->size(); ++i) {
    const HostTensor &a = (*same)[i], &b = (*got)[i];
    if (a.dims != b.dims || a.dtype != b.dtype)
      return internalError("the smaller model gives '" + both.dense.plan->outputs[i].name + "' other sizes", path);
    if (!isFloat(a.dtype))
      continue;
    const double difference = sparsify::relativeChange(a, b);
    report.masked = std::max(report.masked.value_or(0), difference);
    // A float of 16 bits rounds at each step.
    if (!(difference <= (bitWidth(a.dtype) < 32 ? 30 : 1) * kMaskedTolerance))
      return internalError("the smaller model gives another '" + both.dense.plan->outputs[i].name +
                               "' than zeros in the place of what was taken out: " + std::to_string(difference), path);
  }
  Profile before(both.dense), after(both.pruned);
  LATHE_RETURN_IF_ERROR(measureInTurn(before, after, both.inputs, 0));
  report.denseMs = before.latency() * 1e3;
  report.prunedMs = after.latency() * 1e3;
  return okStatus();
}

Result<sparsify::Coupling> couplingOf(const PruneRequest &request, const std::string &path) {
  Result<std::string> bytes = namedModel(path);
  if (!bytes)
    return bytes.status();
  Result<std::unique_ptr<TemporaryModel>> named = TemporaryModel::write("model.onnx", *bytes);
  if (!named)
    return named.status();
  CompileOptions compile = request.inputs.fixing(request.compile, path);
  Result<sparsify::Coupling> coupling = coupledDims((*named)->path, compile);
  if (!coupling) // the file that the caller knows
    return Status(coupling.status().code(), coupling.status().message(), path + ": " + coupling.status().location());
  return coupling;
}

Status writePruned(const PruneRequest &request, const PruneReport &report, const std::string &model,
                   const std::string &masked, const std::string &summary) {
  if (!request.report.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(request.report, report.html()));
  if (!request.json.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(request.json, report.json()));
  if (!request.masked.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(request.masked, masked));
  LATHE_RETURN_IF_ERROR(writeFileAtomically(request.output, model));
  std::fputs(report.text().c_str(), stdout);
  std::printf("%s: %s\n", request.output.c_str(), summary.c_str());
  return okStatus();
}

} // namespace lathe::cli
