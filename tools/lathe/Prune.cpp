//===- Prune.cpp - lathe prune --------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Zeros for all weights that can have them, both engines side by side, and then zeros for those alone whose
// products became faster: what does not pay is left dense, and said.
//
//===----------------------------------------------------------------------===//
#include "Inputs.h"
#include "Profile.h"
#include "PruneReport.h"
#include "TemporaryModel.h"
#include "Verbs.h"

#include "lathe/codegen/Skeleton.h"
#include "lathe/import/PruneModel.h"
#include "lathe/support/Files.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace lathe::cli {
namespace {

struct Options {
  std::string output, scheme, ratio, score = "l1", report, json, apply = "winning", seed = "1";
  bool check = false;
  double seconds = 2;
  std::vector<std::string> keep;
  CompileOptions compile;
  SessionOptions session;
  InputOptions inputs;
};

/// What a product must take of the dense one's time at most.
constexpr double kWins = 0.97;

/// The median seconds of the kernels that compute one of these nodes; whether one of them leaves out zeros.
std::pair<double, bool> timesOf(const Profile &profile, const std::vector<std::string> &nodes) {
  std::pair<double, bool> result{0, false};
  for (const KernelTime &kernel : profile.kernels()) {
    if (std::none_of(nodes.begin(), nodes.end(), [&](const std::string &n) { return kernel.computes(n); }))
      continue;
    result.first += kernel.seconds;
    Result<KernelConfig> config = KernelConfig::parse(kernel.config);
    result.second |= config.ok() && config->form && config->form->product.leavesOutZeros;
  }
  return result;
}

/// The relative change of each float output.
std::vector<std::pair<std::string, double>> losses(const OpenEngine &engine, const std::vector<HostTensor> &before,
                                                   const std::vector<HostTensor> &after) {
  std::vector<std::pair<std::string, double>> list;
  for (size_t i = 0; i < before.size() && i < after.size(); ++i)
    if (isFloat(before[i].dtype) && before[i].dims == after[i].dims)
      list.push_back({engine.plan->outputs[i].name, sparsify::relativeChange(before[i], after[i])});
  return list;
}

/// The density of blocks at which the time is the dense one's, if what does not depend on it is a share of 0.05.
double breakEven(double kept, double share) {
  constexpr double kFixed = 0.05;
  return share > kFixed ? std::clamp((1 - kFixed) * kept / (share - kFixed), 0.0, 1.0) : 1;
}

Result<double> parseRatio(const Options &options, const sparsify::Scheme &scheme) {
  const bool groups = scheme.kind == sparsify::Scheme::Kind::Groups;
  const double own = 1 - double(scheme.columns) / double(scheme.rows);
  if (options.ratio.empty())
    return groups ? Result<double>(own) : usageError("is missing: the share of weights that become zero", "--ratio");
  double ratio = 0;
  const char *end = options.ratio.data() + options.ratio.size();
  auto read = std::from_chars(options.ratio.data(), end, ratio);
  if (read.ec != std::errc() || read.ptr != end || !(ratio > 0 && ratio < 1))
    return usageError("wants a number between 0 and 1, without these: 1 would leave no weight; not '" + options.ratio + "'",
                      "--ratio");
  if (groups && ratio != own)
    return usageError(scheme.name + " has a ratio of its own, not '" + options.ratio + "'", "--ratio");
  return ratio;
}

/// The model as it is and with zeros, on the same inputs.
struct BothForms {
  OpenEngine dense;
  std::unique_ptr<TemporaryModel> file; ///< of `pruned`
  OpenEngine pruned;
  std::vector<HostTensor> inputs;

  static Result<BothForms> open(const Options &options, const std::string &path, const std::string &bytes) {
    CompileOptions compile = options.inputs.fixing(options.compile, path);
    compile.sparseWeights = "never";
    Result<OpenEngine> dense = OpenEngine::open(path, compile, options.session);
    if (!dense)
      return dense.status();
    Result<std::unique_ptr<TemporaryModel>> written = TemporaryModel::write("pruned.onnx", bytes);
    if (!written)
      return written.status();
    compile.cache = false;
    compile.sparseWeights = "auto";
    Result<OpenEngine> pruned = OpenEngine::open((*written)->path, compile, options.session);
    if (!pruned)
      return pruned.status();
    Result<InputFiles> files = readInputs(options.inputs, *dense->plan);
    if (!files)
      return files.status();
    Result<std::vector<HostTensor>> inputs =
        makeInputs(options.inputs, *files, *dense->plan, dense->session.stateLengths(*dense->plan), 0);
    if (!inputs)
      return inputs.status();
    return BothForms{std::move(*dense), std::move(*written), std::move(*pruned), std::move(*inputs)};
  }
};

/// Measures both engines in turn and says of each weight whether its products win.
Status measure(const Options &options, const std::string &path, const PrunedModel &all, PruneReport &report) {
  Result<BothForms> both = BothForms::open(options, path, all.bytes);
  if (!both)
    return both.status();
  const OpenEngine &dense = both->dense, &pruned = both->pruned;
  Profile before(dense), after(pruned);
  auto begin = std::chrono::steady_clock::now();
  auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  while (before.rounds() < 7 || spent() < options.seconds) {
    LATHE_RETURN_IF_ERROR(before.runOnce(both->inputs));
    LATHE_RETURN_IF_ERROR(after.runOnce(both->inputs));
  }
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
      row.why = "no kernel is expected to gain 3 % from these zeros: CPUs leave out blocks of 1x16 and 4x16 that are all zero";
    else if (!row.wins)
      row.why = "measured gain below 3 %";
    report.rows.push_back(std::move(row));
  }
  for (const auto &[node, why] : all.kept)
    report.kept.push_back({node, why});
  return okStatus();
}

/// Loss and latency of what is written, against the model as it was.
Status judge(const Options &options, const std::string &path, const std::string &bytes, PruneReport &report) {
  Result<BothForms> both = BothForms::open(options, path, bytes);
  if (!both)
    return both.status();
  const OpenEngine &dense = both->dense, &pruned = both->pruned;
  Result<std::vector<HostTensor>> want = dense.run(both->inputs), got = pruned.run(both->inputs);
  if (!want || !got)
    return want ? got.status() : want.status();
  report.losses = losses(dense, *want, *got);
  Profile before(dense), after(pruned);
  for (int i = 0; i < 7; ++i) {
    LATHE_RETURN_IF_ERROR(before.runOnce(both->inputs));
    LATHE_RETURN_IF_ERROR(after.runOnce(both->inputs));
  }
  report.denseMs = before.latency() * 1e3;
  report.prunedMs = after.latency() * 1e3;
  return okStatus();
}

Status execute(const Options &options, const std::string &path) {
  Result<sparsify::Scheme> scheme = sparsify::Scheme::parse(options.scheme);
  if (!scheme)
    return scheme.status();
  if (options.check) {
    Result<size_t> checked = checkScheme(path, *scheme, options.keep);
    if (!checked)
      return checked.status();
    std::printf("%s: %zu weights, all %s\n", path.c_str(), *checked, scheme->name.c_str());
    return okStatus();
  }
  if (options.apply != "winning" && options.apply != "all")
    return usageError("wants winning or all, not '" + options.apply + "'", "--apply");
  PruneOptions prune{*scheme, 0, sparsify::Score::L1, 0, options.keep};
  Result<double> ratio = parseRatio(options, *scheme);
  Result<sparsify::Score> score = sparsify::parseScore(options.score);
  if (!ratio || !score)
    return ratio ? score.status() : ratio.status();
  prune.ratio = *ratio, prune.score = *score;
  const std::string &seed = options.seed;
  if (std::from_chars(seed.data(), seed.data() + seed.size(), prune.seed).ptr != seed.data() + seed.size() || seed.empty())
    return usageError("wants a number, not '" + seed + "'", "--seed");
  // What stays outside of the model is found beside it.
  LATHE_RETURN_IF_ERROR(checkBesideWeights(path, options.output));

  prune.inside = true;
  Result<PrunedModel> all = prunedModel(path, prune);
  if (!all)
    return all.status();
  if (all->weights.empty()) {
    std::string why = all->kept.empty() ? "" : ", as '" + all->kept[0].first + "': " + all->kept[0].second;
    return unsupportedError("has no product whose weights could have zeros" + why, path);
  }
  PruneReport report{path, scheme->name, options.score, *ratio};
  LATHE_RETURN_IF_ERROR(measure(options, path, *all, report));
  PruneOptions final = prune;
  std::set<std::string> chosen;
  for (PruneReport::Row &row : report.rows) {
    row.applied = row.wins || options.apply == "all";
    if (row.applied)
      chosen.insert(row.weight.name);
  }
  Result<PrunedModel> inside = chosen.empty() ? Result<PrunedModel>(PrunedModel()) : prunedModel(path, final, chosen);
  if (!inside)
    return inside.status();
  if (!chosen.empty())
    LATHE_RETURN_IF_ERROR(judge(options, path, inside->bytes, report));
  final.inside = false;
  Result<std::string> bytes = readFile(path);
  if (!chosen.empty()) {
    Result<PrunedModel> written = prunedModel(path, final, chosen);
    if (!written)
      return written.status();
    bytes = std::move(written->bytes);
  }
  if (!bytes)
    return bytes.status();
  if (!options.report.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.report, report.html()));
  if (!options.json.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.json, report.json()));
  LATHE_RETURN_IF_ERROR(writeFileAtomically(options.output, *bytes));
  std::fputs(report.text().c_str(), stdout);
  std::printf("%s: %zu of %zu weights have zeros by %s\n", options.output.c_str(), chosen.size(), report.rows.size(),
              scheme->name.c_str());
  return okStatus();
}

} // namespace

Status pruneVerb(const std::vector<std::string> &arguments) {
  Parser parser("prune", "MODEL -o FILE --scheme=NAME --ratio=R [OPTIONS]",
                "Writes an ONNX model whose weights of matrix products have zeros, nothing else of the file changed. Both "
                "forms are measured; what gains less than 3 % is left dense, and the reason said.");
  Options options;
  parser.add("o", "FILE", "The new model", options.output);
  parser.add("scheme", "NAME",
             "What becomes zero together: block:1x16 or block:4x16 (neighbours along the depth x columns), unstructured "
             "(single weights), 2:4 or 4:8 (of neighbours along the depth)", options.scheme);
  parser.add("ratio", "R", "The share of blocks, or weights, that become zero, between 0 and 1", options.ratio);
  parser.add("score", "l1|l2|random", "What is least becomes zero first: the sum of magnitudes (default), the root of the "
             "sum of squares, or what a seed draws", options.score);
  parser.add("seed", "N", "Of --score=random and of inputs that no file gives (default: 1)", options.seed);
  parser.add("keep", "GLOB", "Nodes, their results or weights that stay as they are", options.keep);
  parser.add("apply", "winning|all", "Where zeros go: where they gain at least 3 % (default), or everywhere", options.apply);
  parser.flag("check", "Write nothing; say whether the weights have the form of the scheme (2:4) already", options.check);
  parser.add("report", "FILE.html", "Write what was measured as a page", options.report);
  parser.add("json", "FILE", "Write the same as JSON", options.json);
  parser.add("seconds", "S", "How long to measure (default: 2)", options.seconds);
  parser.add("device", "cpu|cuda:0", "Where to measure (default: cpu)", options.session.device);
  parser.add("threads", "N", "CPU threads (default: all cores)", options.session.threads);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.example("lathe prune model.onnx -o p.onnx --scheme block:1x16 --ratio 0.8 --report p.html");
  parser.example("lathe prune model.onnx -o p.onnx --scheme 2:4 --apply all");
  parser.example("lathe prune model.onnx --scheme 2:4 --check");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1 || options.scheme.empty() || options.output.empty() != options.check)
    return usageError("wants one model, --scheme, and -o FILE or --check; `lathe prune --help` has examples", "lathe prune");
  reproducer().files.push_back(positional->front());
  reproduceOnCrash(reproducer());
  return execute(options, positional->front());
}

} // namespace lathe::cli
