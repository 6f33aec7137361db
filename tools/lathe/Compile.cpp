//===- Compile.cpp - lathe compile ----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Limits.h"
#include "Progress.h"
#include "TemporaryModel.h"
#include "Verbs.h"

#include "llvm/ADT/StringRef.h"

#include <cstdio>
#include <filesystem>

namespace fs = std::filesystem;

namespace lathe::cli {

Result<std::vector<std::string>> parseOrHelp(const Parser &parser,
                                             const std::vector<std::string> &arguments,
                                             bool &done) {
  Parser own = parser;
  Limits limits;
  limits.addTo(own);
  bool helpWanted = false;
  Result<std::vector<std::string>> positional = own.parse(arguments, helpWanted);
  done = positional.ok() && helpWanted;
  if (done)
    std::fputs(own.help().c_str(), stdout);
  else if (positional)
    LATHE_RETURN_IF_ERROR(goOnWithin(limits, own.name()));
  return positional;
}

Reproducer &reproducer() {
  static Reproducer what;
  return what;
}

Status compileVerb(const std::vector<std::string> &arguments) {
  Parser parser("compile", "MODEL -o ENGINE [OPTIONS]",
                "Compiles MODEL into an engine. MODEL is an ONNX file (.onnx or ONNX text) or the "
                "MLIR text of any phase (.mlir, with its weights.bin beside it).");
  CompileOptions options;
  std::string output, recipe;
  bool noCache = false, paged = false, batchInvariant = false;
  parser.add("o", "FILE", "The engine, or with --stop-after the text (default: standard output)",
             output);
  addCompileOptions(parser, options, /*withEntries=*/true);
  parser.add("recipe", "FILE", "Quantize as this recipe says, which `lathe quantize --recipe-out` wrote: the engine is "
                               "that of the model which `lathe quantize --recipe` writes", recipe);
  auto pass = [&](const char *name) {
    return [&options, name](const std::string &value) {
      return addCompileOption(options, name, value);
    };
  };
  std::string phases;
  for (std::string_view phase : kPhaseNames)
    phases += (phases.empty() ? "" : ", ") + std::string(phase);
  parser.add("stop-after", "PHASE", "Write the IR after this phase: " + phases, pass("stop-after"));
  parser.add("dump-dir", "DIR",
             "Write the IR of every phase, weights.bin and the source of every kernel to DIR",
             pass("dump-dir"));
  parser.add("remarks", "FILE", "Write what was done, and what was not and why, as JSON",
             pass("remarks"));
  parser.add("threads", "N", "Compile kernels on N threads (default: all cores)", pass("threads"));
  parser.flag("paged",
              "A decoder becomes an engine for `lathe generate`: tokens of many sequences in one step, their "
              "keys and values in pages",
              paged);
  parser.add("kv", "int8|int4",
             "With --paged: keep keys and values as codes of 8 or 4 bits, with a scale for each head of each token",
             pass("kv"));
  parser.add("kv-window", "W[:S]",
             "With --paged: a token sees the last W tokens and the first S, whatever the model says, so that a sequence "
             "needs no more pages however long it gets (StreamingLLM). Positions go on",
             pass("kv-window"));
  parser.flag("batch-invariant",
              "With --paged: products sum in one order whatever the number of rows, so that the bits of an answer "
              "do not depend on who shares its steps",
              batchInvariant);
  parser.flag("no-cache", "Do not look for a finished engine in the cache", noCache);
  parser.example("lathe compile model.onnx -o model.lathe");
  parser.example("lathe compile model.onnx -o model.lathe --target=native,sm_90a --dim B=1:8:64");
  parser.example("lathe compile llama.onnx -o llama.lathe --entry prefill:P=0 --entry decode:S=1 "
                 "--donate k0=pk0 --dim P=0:128:511");
  parser.example("lathe compile model.onnx --stop-after=fuse | less");
  parser.example("lathe compile model.onnx -o model.lathe --dump-dir=dump --remarks=remarks.json");
  parser.example("lathe compile dump/08-fuse.mlir -o model.lathe");
  parser.example("lathe compile model.onnx -o model.lathe --recipe model.json");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1)
    return usageError("wants one model; `lathe compile --help` has examples", "lathe compile");
  bool toText = options.stopAfter && *options.stopAfter != Phase::Engine;
  if (output.empty() && !toText)
    return usageError("wants a file for the engine: -o ENGINE", "lathe compile");
  options.cache = !noCache;
  options.paged = paged;
  options.batchInvariant = batchInvariant;
  const std::string &model = positional->front();
  reproducer().files.push_back(model);
  if (llvm::StringRef(model).ends_with(".mlir"))
    reproducer().files.push_back((fs::path(model).parent_path() / "weights.bin").string());
  if (!recipe.empty())
    reproducer().files.push_back(recipe);
  reproduceOnCrash(reproducer());

  std::unique_ptr<TemporaryModel> quantized;
  if (!recipe.empty()) {
    if (llvm::StringRef(model).ends_with(".mlir"))
      return usageError("is applied to an ONNX file", "--recipe");
    Result<std::unique_ptr<TemporaryModel>> made = quantizedByRecipe(model, recipe);
    if (!made)
      return made.status();
    quantized = std::move(*made);
  }
  Progress progress;
  options.onPhase = [&](Phase phase) { progress.show(std::string(toString(phase)), int(phase), 12); };
  Result<CompileResult> result = compileToFile(quantized ? quantized->path : model, options, output.empty() ? "-" : output);
  progress.finish();
  if (!result)
    return result.status();
  for (const std::string &warning : result->warnings)
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (result->isEngine)
    std::fprintf(stderr, "%s: %.1f MB, compiled in %.2f s%s\n", output.c_str(),
                 double(result->size) / 1e6, result->seconds,
                 result->fromCache ? " (from the cache)" : "");
  return okStatus();
}

} // namespace lathe::cli
