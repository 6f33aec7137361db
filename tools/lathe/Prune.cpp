//===- Prune.cpp - lathe prune --------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Zeros for all weights that can have them, both engines side by side, and then zeros for those alone whose
// products became faster: what does not pay is left dense, and said. Schemes that make models smaller
// have files of their own (PruneWidths.cpp, PruneBlocks.cpp, PruneSearch.cpp), as have thresholds of inputs
// (PruneActivations.cpp).
//
//===----------------------------------------------------------------------===//
#include "PruneMeasure.h"
#include "PruneReport.h"
#include "Verbs.h"

#include "lathe/support/Files.h"
#include "lathe/support/Npz.h"

#include <algorithm>
#include <cstdio>

namespace lathe::cli {
namespace {

Result<double> ratioOf(const PruneRequest &options, const sparsify::Scheme &scheme) {
  const bool groups = scheme.kind == sparsify::Scheme::Kind::Groups;
  const double own = 1 - double(scheme.columns) / double(scheme.rows);
  if (groups && options.ratio.empty())
    return own;
  Result<double> ratio = parseRatio(options.ratio);
  if (ratio && groups && *ratio != own)
    return usageError(scheme.name + " has a ratio of its own, not '" + options.ratio + "'", "--ratio");
  return ratio;
}

Status execute(const PruneRequest &options, const std::string &path) {
  if (!options.budget.empty())
    return pruneByBudget(options, path);
  if (kindOf(options.scheme))
    return pruneWidths(options, path);
  if (options.scheme == "blocks")
    return pruneBlocks(options, path);
  if (options.scheme == "activations")
    return pruneActivations(options, path);
  const bool masked = !options.masks.empty();
  Result<sparsify::Scheme> scheme = sparsify::Scheme();
  if (!masked)
    scheme = sparsify::Scheme::parse(options.scheme);
  else if (!options.scheme.empty() || !options.ratio.empty() || options.check)
    return usageError("say where zeros are, without --scheme, --ratio and --check", "--masks");
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
  PruneOptions prune;
  prune.scheme = *scheme, prune.keep = options.keep, prune.only = options.only, prune.overAll = options.overAll;
  if (masked) {
    scheme->name = "masks";
    Result<std::map<std::string, HostTensor>> masks = readNpz(options.masks);
    if (!masks)
      return masks.status();
    if (masks->empty())
      return invalidError("has no arrays", options.masks);
    prune.masks = std::move(*masks), prune.maskPath = options.masks;
  }
  Result<double> ratio = masked ? Result<double>(0) : ratioOf(options, *scheme);
  Result<sparsify::Score> score = sparsify::parseScore(options.score);
  if (!ratio || !score)
    return ratio ? score.status() : ratio.status();
  if (options.overAll && (masked || scheme->kind == sparsify::Scheme::Kind::Groups))
    return usageError("is for block and unstructured: masks and groups have ratios of their own", "--over-all");
  if (*score == sparsify::Score::Taylor || !options.gradients.empty())
    return usageError("gradients are for channels, heads and ffn", "--score");
  if (!options.masked.empty())
    return usageError("is for channels, heads and ffn: zeros are what the other schemes write", "--masked");
  prune.ratio = *ratio, prune.score = *score;
  Result<uint64_t> seed = parseSeed(options.seed);
  if (!seed)
    return seed.status();
  prune.seed = *seed;
  // What stays outside of the model is found beside it.
  LATHE_RETURN_IF_ERROR(checkBesideWeights(path, options.output));

  LATHE_RETURN_IF_ERROR(observeInputs(options, path, prune));

  prune.inside = true;
  Result<PrunedModel> all = prunedModel(path, prune);
  if (!all)
    return all.status();
  if (all->weights.empty()) {
    std::string why = all->kept.empty() ? "" : ", as '" + all->kept[0].first + "': " + all->kept[0].second;
    return unsupportedError("has no product whose weights could have zeros" + why, path);
  }
  PruneReport report{path, scheme->name, options.score, *ratio};
  LATHE_RETURN_IF_ERROR(measureWeights(options, path, *all,
                                       "no kernel is expected to gain 3 % from these zeros: CPUs leave out blocks of 1x16 and 4x16 that "
                                       "are all zero, sm_90a two of four (2:4) in weights of 8 or 16 bits and blocks of 64x64 in 16-bit "
                                       "weights",
                                       report));
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
    LATHE_RETURN_IF_ERROR(judgeWritten(options, path, inside->bytes, report));
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
                "Writes an ONNX model whose weights of matrix products have zeros, nothing else of the file changed, or one "
                "with narrower layers. Both forms are measured; what gains less than 3 % stays, and the reason is said.");
  PruneRequest options;
  parser.add("o", "FILE", "The new model", options.output);
  parser.add("scheme", "NAME",
             "What becomes zero together: block:1x16 or block:4x16 (neighbours along the depth x columns; for GPUs block:64x64 "
             "or blocks of several of these), unstructured (single weights), 2:4 or 4:8 (of neighbours along the depth). With "
             "--device=cuda:0 zeros are measured as compiled with --sparse-weights=always, which such models then want. Or "
             "what is taken out, and the model becomes smaller: channels of convolutions, heads of attention, ffn (columns "
             "between two products), blocks (whole residual branches). Or activations: the inputs of products that are least by "
             "magnitude count as zero, by thresholds from --data; of one row the weights of other inputs are then read alone",
             options.scheme);
  parser.add("ratio", "R", "The share of blocks, weights, channels, heads, columns or inputs that goes, between 0 and 1", options.ratio);
  parser.add("budget", "latency=60%|latency=2.5ms", "In place of --ratio: each group of layers gets the width of its own, or goes "
             "with its residual branch, that changes results least while a run takes no longer; --scheme=channels,heads,ffn,blocks "
             "says what may go", options.budget);
  parser.add("score", "NAME", "What is least goes first: l1, the sum of magnitudes (default); l2, the root of the sum of "
             "squares; random, what a seed draws; taylor, the sum of weight x gradient (--gradients); wanda, magnitudes times "
             "norms of inputs, and sparsegpt, what results lose where other weights make up for it (both: --data)", options.score);
  parser.add("data", "DIR|F.npz", "Examples for wanda, sparsegpt and activations, and for --budget, which looks at the first batch: a folder "
             "like ONNX's test_data_set_0, or a folder of such; an archive of arrays named after the inputs, whose first dimension "
             "counts examples", options.data);
  parser.add("damping", "X", "sparsegpt: added to the diagonal of the inputs' products, in means of it (default: 0.01)", options.damping);
  parser.flag("over-all", "Of block and unstructured: compare the units of all weights, not of each for itself", options.overAll);
  parser.add("gradients", "FILE.npz", "Gradients of the loss by initializer, for --score=taylor", options.gradients);
  parser.add("multiple", "N", "Channels and columns that stay are a multiple of N where there are 2 N of them: widths that "
             "kernels are fast for (default: 8)", options.multiple);
  parser.add("masked", "FILE", "Of channels, heads and ffn: write also the model of the old size with zeros in their place, "
             "to train on", options.masked);
  parser.add("seed", "N", "Of --score=random and of inputs that no file gives (default: 1)", options.seed);
  parser.add("keep", "GLOB", "Nodes, their results or weights that stay as they are", options.keep);
  parser.add("only", "GLOB", "Nodes, their results or weights that change, and no others; one that has to stay is an error",
             options.only);
  parser.add("masks", "FILE.npz", "In place of --scheme: by weight an array of its sizes, with 0 where it becomes zero",
             options.masks);
  parser.add("apply", "winning|all", "Where zeros go: where they gain at least 3 % (default), or everywhere", options.apply);
  parser.flag("check", "Write nothing; say whether the weights have the form of the scheme (2:4) already", options.check);
  parser.add("report", "FILE.html", "Write what was measured as a page", options.report);
  parser.add("json", "FILE", "Write the same as JSON", options.json);
  parser.add("seconds", "S", "How long to measure (default: 2); 0, with channels, heads and ffn: nothing is measured or compared", options.seconds);
  parser.add("device", "cpu|cuda:0", "Where to measure (default: cpu)", options.session.device);
  parser.add("threads", "N", "CPU threads (default: all cores)", options.session.threads);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.example("lathe prune model.onnx -o p.onnx --scheme block:1x16 --ratio 0.8 --report p.html");
  parser.example("lathe prune model.onnx -o p.onnx --scheme 2:4 --score sparsegpt --data examples.npz --apply all");
  parser.example("lathe prune model.onnx -o p.onnx --scheme channels --ratio 0.25");
  parser.example("lathe prune model.onnx -o p.onnx --scheme heads,ffn,blocks --budget latency=60%");
  parser.example("lathe prune model.onnx -o p.onnx --scheme activations --ratio 0.5 --data examples.npz");
  parser.example("lathe prune model.onnx --scheme 2:4 --check");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1 || (options.scheme.empty() && options.masks.empty()) || options.output.empty() != options.check)
    return usageError("wants one model, --scheme or --masks, and -o FILE or --check; `lathe prune --help` has examples", "lathe prune");
  reproducer().files.push_back(positional->front());
  reproduceOnCrash(reproducer());
  return execute(options, positional->front());
}

} // namespace lathe::cli
