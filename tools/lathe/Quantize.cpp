//===- Quantize.cpp - lathe quantize --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plan, observe, apply: what can be quantized; ranges of what products read, factors and codes that fit the data;
// the model with QuantizeLinear and DequantizeLinear. What is observed is summed up in the engine (Calibrate.h).
//
//===----------------------------------------------------------------------===//
#include "Calibrate.h"
#include "QuantizeReport.h"
#include "TemporaryModel.h"
#include "Verbs.h"

#include "lathe/support/Files.h"

#include <charconv>
#include <cstdio>

namespace lathe::cli {
namespace {

using quantize::Recipe;

struct QuantizeOptions {
  std::string output, data, scheme, recipe, recipeOut, report, group, format = "qdq";
  std::string range = "minmax", method = "rtn";
  double damping = 0.01;
  bool dynamic = false;
  std::vector<std::string> keep;
  CompileOptions compile;
  SessionOptions session;
};

/// What the options ask for, before any file is read.
Status check(const QuantizeOptions &options, const quantize::Scheme &scheme) {
  const std::string name = scheme.name;
  if (options.dynamic && !scheme.activations)
    return usageError(name + " leaves activations as they are", "--dynamic");
  if (options.format != "qdq" && options.format != "microsoft")
    return usageError("wants qdq or microsoft, not '" + options.format + "'", "--format");
  if (options.format == "microsoft" && (scheme.weightBits != 4 || scheme.format == quantize::WeightFormat::Mxfp4))
    return usageError(name + " has no op of com.microsoft", "--format=microsoft");
  if (options.method != "rtn" && options.method != "gptq" && options.method != "awq" && options.method != "smoothquant")
    return usageError("wants rtn, gptq, awq or smoothquant, not '" + options.method + "'", "--method");
  if (options.method == "gptq" && scheme.format != quantize::WeightFormat::Integer)
    return usageError("chooses integers, of which " + name + " has none", "--method=gptq");
  if (options.method == "smoothquant" && !scheme.activations)
    return usageError("divides activations that get codes, of which " + name + " has none", "--method=smoothquant");
  if (!(options.damping >= 0 && options.damping <= 100))
    return usageError("wants a number of 0 to 100", "--damping");
  if (options.data.empty() && scheme.activations && !options.dynamic)
    return usageError("quantizes activations: ranges come from --data=DIR|F.npz, never from random numbers", name);
  if (options.data.empty() && options.method != "rtn")
    return usageError("fits weights to data, which come from --data=DIR|F.npz", "--method=" + options.method);
  return okStatus();
}

Result<Recipe> decide(const QuantizeOptions &options, const std::string &path, Calibration &calibration,
                      std::optional<KeptValues> &kept) {
  Result<quantize::Scheme> scheme = quantize::schemeNamed(options.scheme);
  if (!scheme)
    return scheme.status();
  LATHE_RETURN_IF_ERROR(check(options, *scheme));
  Result<quantize::RangeMethod> range = quantize::rangeMethod(options.range);
  if (!range)
    return range.status();
  int64_t group = 0;
  const std::string &text = options.group;
  if (!text.empty() && (std::from_chars(text.data(), text.data() + text.size(), group).ptr != text.data() + text.size() ||
                        group < 16 || group % 16))
    return usageError("wants a multiple of 16, not '" + text + "'", "--group");
  Result<QuantizationPlan> plan =
      planQuantization(path, *scheme, {options.keep, group, options.dynamic, options.format == "microsoft"});
  if (!plan)
    return plan.status();
  if (!plan->converted.empty())
    std::printf("  %s\n", plan->converted.c_str());
  for (const auto &[name, why] : plan->kept)
    std::printf("  keeps f32: '%s': %s\n", name.c_str(), why.c_str());
  if (plan->recipe.products.empty())
    return unsupportedError("has no matrix product or convolution that could be quantized", path);
  Recipe recipe = std::move(plan->recipe);
  recipe.range = range->text();
  recipe.method = options.method;
  kept = std::move(plan->kept);
  if (options.method == "awq" || options.method == "smoothquant")
    LATHE_RETURN_IF_ERROR(chooseFactors(calibration, path, options.method, recipe));
  if (options.method == "gptq")
    LATHE_RETURN_IF_ERROR(chooseCodes(calibration, path, options.damping, recipe));
  if (scheme->activations && !options.dynamic)
    LATHE_RETURN_IF_ERROR(calibration.observeRanges(recipe, *range));
  return recipe;
}

Status execute(const QuantizeOptions &options, const std::string &path) {
  if (!options.report.empty()) {
    if (options.data.empty())
      return usageError("says what is lost on examples, which come from --data=DIR|F.npz", "--report");
    LATHE_RETURN_IF_ERROR(QuantizeReport::check(options.report, {path, options.output, options.recipe, options.recipeOut}));
  }
  Calibration calibration(path, options.data, options.compile, options.session);
  std::optional<KeptValues> kept; // a recipe does not say
  Result<Recipe> recipe =
      options.recipe.empty() ? decide(options, path, calibration, kept) : Recipe::read(options.recipe);
  if (!recipe)
    return recipe.status();
  // What stays outside of the model is found beside it.
  LATHE_RETURN_IF_ERROR(checkBesideWeights(path, options.output));
  Result<std::string> bytes = quantizedModel(path, *recipe, options.recipe.empty() ? "the recipe" : options.recipe);
  if (!bytes)
    return bytes.status();
  if (!options.recipeOut.empty())
    LATHE_RETURN_IF_ERROR(recipe->write(options.recipeOut));
  LATHE_RETURN_IF_ERROR(writeFileAtomically(options.output, *bytes));
  std::printf("%s: %zu products, %zu weights, %zu activations by %s\n", options.output.c_str(), recipe->products.size(),
              recipe->weights.size(), recipe->activations.size(), recipe->scheme.c_str());
  if (options.report.empty())
    return okStatus();
  QuantizeReport report(path, options.output, *recipe, std::move(kept));
  LATHE_RETURN_IF_ERROR(report.measure(calibration, options.data, options.compile, options.session));
  LATHE_RETURN_IF_ERROR(report.write(options.report));
  std::fputs(report.text().c_str(), stdout);
  return okStatus();
}

} // namespace

Status quantizeVerb(const std::vector<std::string> &arguments) {
  Parser parser("quantize", "MODEL -o FILE --scheme=NAME [OPTIONS]",
                "Writes an ONNX model whose matrix products and convolutions read quantized operands (QuantizeLinear and "
                "DequantizeLinear), nothing else of the file changed. What keeps f32 is said, with the reason.");
  QuantizeOptions options;
  parser.add("o", "FILE", "The new model", options.output);
  parser.add("scheme", "NAME",
             "w8a8-int8: weights in 8 bits by column, activations in 8 bits by observed ranges; w8a16, w4a16: weights "
             "alone, of 4 bits in blocks; mxfp4, nf4: weights of 4 bits that are floats with a power of two for each 32, or "
             "choose from 16 numbers", options.scheme);
  parser.add("data", "DIR|F.npz",
             "Examples: a folder like ONNX's test_data_set_0, or a folder of such; an archive of arrays named after the "
             "inputs, whose first dimension counts examples; a folder of archives, each of them one run", options.data);
  parser.add("range", "METHOD",
             "What activations span: minmax (default), moving[:0.1] (a running mean over batches), percentile[:99.99], mse "
             "(least squared error), kl (least divergence); what lies outside is clipped", options.range);
  parser.add("method", "NAME",
             "How weights get codes: rtn (default: the nearest), gptq (by what inputs have in common), awq and smoothquant "
             "(inputs and weights scaled against each other first)", options.method);
  parser.add("damping", "X", "gptq: added to the diagonal of the inputs' products, in means of it (default: 0.01)", options.damping);
  parser.flag("dynamic", "w8a8-int8: each run finds the ranges of activations, without data", options.dynamic);
  parser.add("format", "qdq|microsoft",
             "4 bits: ops of ONNX (default), or MatMulNBits of com.microsoft. nf4 is MatMulBnb4 always", options.format);
  parser.add("keep", "GLOB", "Nodes, their results or weights that keep f32", options.keep);
  parser.add("group", "N", "4 bits: elements that share a scale (default: 128, 64 or 32, as divides the depth)", options.group);
  parser.add("recipe", "FILE", "Apply these decisions in place of --scheme and --data", options.recipe);
  parser.add("recipe-out", "FILE", "Write the decisions as JSON, and codes that were fitted to data beside it as .npz", options.recipeOut);
  parser.add("report", "FILE.html|.json",
             "Write a page with charts, and the same as .json beside it (or that alone): of each layer the range, what is "
             "clipped, signal to noise, what the loss is made of, and microseconds before and after; wants --data",
             options.report);
  parser.add("device", "cpu|cuda:0", "Where the data run (default: cpu)", options.session.device);
  parser.add("threads", "N", "CPU threads (default: all cores)", options.session.threads);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.example("lathe quantize model.onnx -o q.onnx --scheme w8a8-int8 --data examples.npz --recipe-out q.json");
  parser.example("lathe quantize model.onnx -o q.onnx --recipe q.json --data examples.npz --report report.html");
  parser.example("lathe quantize model.onnx -o q.onnx --scheme w4a16 --method gptq --data examples.npz");
  parser.example("lathe quantize model.onnx -o q.onnx --scheme w4a16 --keep '*lm_head*'");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1 || options.output.empty() || options.scheme.empty() == options.recipe.empty())
    return usageError("wants one model, -o FILE, and --scheme or --recipe; `lathe quantize --help` has examples",
                      "lathe quantize");
  reproducer().files.push_back(positional->front());
  reproduceOnCrash(reproducer());
  return execute(options, positional->front());
}

} // namespace lathe::cli
