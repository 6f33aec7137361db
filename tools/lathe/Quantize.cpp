//===- Quantize.cpp - lathe quantize --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plan, observe, apply: what can be quantized; ranges of what products read, factors and codes that fit the data;
// the model with QuantizeLinear and DequantizeLinear. What is observed is summed up in the engine (Calibrate.h).
//
//===----------------------------------------------------------------------===//
#include "Calibrate.h"
#include "QuantizeReport.h"
#include "QuantizeSearch.h"
#include "Resume.h"
#include "TemporaryModel.h"
#include "Verbs.h"

#include "lathe/support/Files.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fnmatch.h>
#include <utility>

namespace lathe::cli {
namespace {

using quantize::Recipe;

struct QuantizeOptions {
  std::string output, data, scheme, recipe, recipeOut, report, group, format = "qdq";
  std::string range = "minmax", method = "rtn", budget, metric, lock;
  double damping = 0.01;
  bool dynamic = false;
  std::vector<std::string> keep, layers;
  CompileOptions compile;
  SessionOptions session;
};

/// The parts of "a,b"; of "" none.
std::vector<std::string> listOf(const std::string &text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

/// GLOB=SCHEME.
struct LayerChoice {
  std::string glob;
  quantize::Scheme scheme;
};

/// What --method lists: how weights get codes, and what is done beside it.
struct Methods {
  std::string codes = "rtn";
  bool equalize = false, correct = false;
  bool scalesInputs() const { return codes == "awq" || codes == "smoothquant"; }

  static Result<Methods> parse(const std::string &text) {
    Methods methods;
    int ofCodes = 0;
    for (const std::string &name : listOf(text))
      if (name == "cle")
        methods.equalize = true;
      else if (name == "bias-correction")
        methods.correct = true;
      else if (name == "rtn" || name == "gptq" || name == "awq" || name == "smoothquant")
        methods.codes = name, ++ofCodes;
      else
        return usageError("wants rtn, gptq, awq or smoothquant, cle, bias-correction, not '" + name + "'", "--method");
    if (ofCodes > 1)
      return usageError("wants one of rtn, gptq, awq and smoothquant", "--method=" + text);
    if (methods.equalize && methods.scalesInputs())
      return usageError("scale the same values: cle, or " + methods.codes, "--method=" + text);
    return methods;
  }
};

/// What the options ask for, checked before any file is read.
struct Plan {
  Methods methods;
  std::vector<quantize::Scheme> schemes; ///< several for a search alone
  std::vector<LayerChoice> layers;
  quantize::RangeMethod range;
  int64_t group = 0;
  std::optional<Budget> budget;
  std::optional<Metric> metric;
};

Status checkScheme(const QuantizeOptions &options, const Methods &methods, const quantize::Scheme &scheme) {
  const std::string name = scheme.name;
  if (options.dynamic && (!scheme.activations || scheme.format != quantize::WeightFormat::Integer))
    return usageError(name + (scheme.activations ? " has ranges that are known before the run" : " leaves activations as they are"),
                      "--dynamic");
  if (options.format == "microsoft" && (scheme.weightBits != 4 || scheme.format == quantize::WeightFormat::Mxfp4))
    return usageError(name + " has no op of com.microsoft", "--format=microsoft");
  if (methods.codes == "gptq" && scheme.format != quantize::WeightFormat::Integer)
    return usageError("chooses integers, of which " + name + " has none", "--method=gptq");
  if (methods.codes == "smoothquant" && !scheme.activations)
    return usageError("divides activations that get codes, of which " + name + " has none", "--method=smoothquant");
  if (options.data.empty() && scheme.activations && !options.dynamic)
    return usageError("quantizes activations: ranges come from --data=DIR|F.npz, never from random numbers", name);
  return okStatus();
}

Result<Plan> planOf(const QuantizeOptions &options) {
  Plan plan;
  for (const std::string &name : listOf(options.scheme)) {
    Result<quantize::Scheme> scheme = quantize::schemeNamed(name);
    if (!scheme)
      return scheme.status();
    plan.schemes.push_back(*scheme);
  }
  for (const std::string &text : options.layers) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return usageError("wants GLOB=SCHEME, not '" + text + "'", "--layer");
    Result<quantize::Scheme> scheme = quantize::schemeNamed(text.substr(equals + 1));
    if (!scheme)
      return usageError(scheme.status().message(), "--layer '" + text + "'");
    plan.layers.push_back({text.substr(0, equals), *scheme});
  }
  if (options.format != "qdq" && options.format != "microsoft")
    return usageError("wants qdq or microsoft, not '" + options.format + "'", "--format");
  Result<Methods> methods = Methods::parse(options.method);
  if (!methods)
    return methods.status();
  plan.methods = *methods;
  if (!(options.damping >= 0 && options.damping <= 100))
    return usageError("wants a number of 0 to 100", "--damping");
  for (const quantize::Scheme &scheme : plan.schemes)
    LATHE_RETURN_IF_ERROR(checkScheme(options, *methods, scheme));
  for (const LayerChoice &layer : plan.layers)
    LATHE_RETURN_IF_ERROR(checkScheme(options, *methods, layer.scheme));
  if (options.data.empty() && (methods->codes != "rtn" || methods->correct))
    return usageError("fits weights to data, which come from --data=DIR|F.npz", "--method=" + options.method);
  Result<quantize::RangeMethod> range = quantize::rangeMethod(options.range);
  if (!range)
    return range.status();
  plan.range = *range;
  const std::string &text = options.group;
  if (!text.empty() && (std::from_chars(text.data(), text.data() + text.size(), plan.group).ptr != text.data() + text.size() ||
                        plan.group < 16 || plan.group % 16))
    return usageError("wants a multiple of 16, not '" + text + "'", "--group");
  const bool mixes = plan.schemes.size() > 1 || !plan.layers.empty() || !options.budget.empty();
  if (mixes && (methods->scalesInputs() || methods->equalize))
    return usageError("has factors for all readers of a value, which layers of several schemes do not share",
                      "--method=" + options.method);
  if (mixes && options.format == "microsoft")
    return usageError("layers of several schemes are written as ops of ONNX", "--format=microsoft");
  Result<Metric> metric = Metric::parse(options.metric.empty() ? "mse" : options.metric);
  if (!metric)
    return metric.status();
  plan.metric = std::move(*metric);
  if (options.budget.empty()) {
    if (plan.schemes.size() > 1)
      return usageError("chooses among several schemes: --scheme has " + options.scheme, "--budget");
    if (!options.metric.empty())
      return usageError("says what a --budget is about", "--metric");
    return plan;
  }
  Result<Budget> budget = Budget::parse(options.budget);
  if (!budget)
    return budget.status();
  plan.budget = *budget;
  if (options.data.empty())
    return usageError("is held by what examples lose, which come from --data=DIR|F.npz", "--budget");
  if (!plan.layers.empty())
    return usageError("a budget chooses the scheme of each layer", "--layer");
  return plan;
}

/// The whole recipe of one scheme.
Result<Recipe> decideScheme(const QuantizeOptions &options, const Plan &wanted, const quantize::Scheme &scheme,
                            const std::string &path, Calibration &calibration, KeptValues &kept) {
  Result<QuantizationPlan> plan =
      planQuantization(path, scheme, {options.keep, wanted.group, options.dynamic, options.format == "microsoft"});
  if (!plan)
    return plan.status();
  if (!plan->converted.empty())
    std::printf("  %s\n", plan->converted.c_str());
  const bool several = wanted.schemes.size() + wanted.layers.size() > 1;
  for (const auto &[name, why] : plan->kept)
    std::printf("  %s its type: '%s': %s\n", several ? (std::string(scheme.name) + " keeps").c_str() : "keeps", name.c_str(), why.c_str());
  if (plan->recipe.products.empty())
    return unsupportedError("has no matrix product or convolution that could be quantized", path);
  Recipe recipe = std::move(plan->recipe);
  recipe.range = wanted.range.text();
  recipe.method = options.method;
  kept = std::move(plan->kept);
  if (wanted.methods.equalize)
    LATHE_RETURN_IF_ERROR(equalizeLayers(path, recipe));
  if (wanted.methods.scalesInputs())
    LATHE_RETURN_IF_ERROR(chooseFactors(calibration, path, wanted.methods.codes, recipe));
  if (wanted.methods.codes == "gptq")
    LATHE_RETURN_IF_ERROR(chooseCodes(calibration, path, options.damping, recipe));
  if (scheme.activations && !options.dynamic)
    LATHE_RETURN_IF_ERROR(calibration.observeRanges(recipe, wanted.range));
  if (wanted.methods.correct)
    LATHE_RETURN_IF_ERROR(correctBiases(calibration, path, recipe));
  return recipe;
}

/// Of the layers that a glob fits, its scheme in place of what they have.
Status changeLayers(const QuantizeOptions &options, const Plan &plan, const std::string &path, Calibration &calibration,
                    std::vector<Recipe> &parts) {
  for (const LayerChoice &choice : plan.layers) {
    KeptValues kept;
    Result<Recipe> recipe = decideScheme(options, plan, choice.scheme, path, calibration, kept);
    if (!recipe)
      return recipe.status();
    Result<std::vector<QuantizedLayer>> layers = quantizedLayers(path, *recipe);
    if (!layers)
      return layers.status();
    std::set<std::string> weights, results;
    for (const QuantizedLayer &layer : *layers)
      for (const std::string &name : {layer.node, layer.result, layer.weight})
        if (fnmatch(choice.glob.c_str(), name.c_str(), 0) == 0)
          weights.insert(layer.weight); // layers of one weight have one form
    for (const QuantizedLayer &layer : *layers)
      if (weights.count(layer.weight))
        results.insert(layer.result);
    if (results.empty())
      return usageError("fits no layer that could be " + std::string(choice.scheme.name), "--layer '" + choice.glob + "'");
    for (Recipe &part : parts) {
      Result<std::vector<QuantizedLayer>> before = quantizedLayers(path, part);
      if (!before)
        return before.status();
      std::set<std::string> left = part.products;
      std::erase_if(left, [&](const std::string &result) { return results.count(result); });
      part = partOf(part, *before, left);
    }
    parts.push_back(partOf(*recipe, *layers, results));
  }
  return okStatus();
}

/// The recipe; of a search what it found as well.
Result<Recipe> decide(const QuantizeOptions &options, const Plan &plan, const std::string &path, Calibration &calibration,
                      std::optional<KeptValues> &kept, std::optional<QuantizeSearch> &search, ResumeFolder &resume) {
  std::vector<Recipe> recipes;
  for (const quantize::Scheme &scheme : plan.schemes) {
    KeptValues here;
    Result<Recipe> recipe = decideScheme(options, plan, scheme, path, calibration, here);
    if (!recipe)
      return recipe.status();
    if (recipes.empty())
      kept = std::move(here);
    recipes.push_back(std::move(*recipe));
  }
  if (plan.budget) {
    search.emplace(SearchRequest{path, options.data, options.lock, *plan.budget, *plan.metric, options.compile, options.session},
                   std::move(recipes));
    return search->run(resume);
  }
  LATHE_RETURN_IF_ERROR(changeLayers(options, plan, path, calibration, recipes));
  return plan.layers.empty() ? std::move(recipes.front()) : mixedRecipe(recipes);
}

/// Where a stopped run is continued: beside the output, by all that the recipe follows from.
Result<ResumeFolder> resumeFor(const QuantizeOptions &options, const std::string &path) {
  Result<std::string> model = digestOfData(path), data = digestOfData(options.data);
  if (!model || !data)
    return model ? data.status() : model.status();
  Result<std::set<std::string>> outside = filesOfWeights(path);
  if (!outside)
    return outside.status();
  for (const std::string &file : *outside) {
    Result<std::string> weights = digestOfData((std::filesystem::path(path).parent_path() / file).string());
    if (!weights)
      return weights.status();
    *model += "," + *weights;
  }
  std::string script;
  if (options.metric.ends_with(".py"))
    if (Result<std::string> text = readFile(options.metric); text.ok())
      script = *text;
  std::string all = compilerVersion();
  const CompileOptions &compile = options.compile;
  for (const auto &list : {options.keep, options.layers, compile.targets, compile.dims, compile.shapes, compile.constants, compile.allow})
    for (const std::string &text : list)
      all += "\n" + text;
  for (const std::string &text : {options.scheme, options.group, options.format, options.range, options.method, options.budget,
                                  options.metric, script, options.session.device, compile.winogradTolerance, compile.sparseWeights})
    all += "\n" + text;
  all += "\n" + std::to_string(options.damping) + (options.dynamic ? " dynamic " : " ") + std::to_string(options.session.threads);
  return ResumeFolder::open(options.output + ".resume", *model, *data, all);
}

Status execute(const QuantizeOptions &options, const std::string &path) {
  if (!options.report.empty()) {
    if (options.data.empty())
      return usageError("says what is lost on examples, which come from --data=DIR|F.npz", "--report");
    LATHE_RETURN_IF_ERROR(QuantizeReport::check(options.report, {path, options.output, options.recipe, options.recipeOut}));
  }
  std::optional<Plan> plan;
  if (options.recipe.empty()) {
    Result<Plan> made = planOf(options);
    if (!made)
      return made.status();
    plan = std::move(*made);
  }
  Calibration calibration(path, options.data, options.compile, options.session);
  std::optional<KeptValues> kept; // a recipe does not say
  std::optional<QuantizeSearch> search;
  ResumeFolder resume;
  if (plan && !options.data.empty()) {
    Result<ResumeFolder> folder = resumeFor(options, path);
    if (!folder)
      return folder.status();
    resume = std::move(*folder);
    calibration.keepIn(resume);
  }
  Result<Recipe> recipe =
      plan ? decide(options, *plan, path, calibration, kept, search, resume) : Recipe::read(options.recipe);
  if (!recipe) {
    resume.remove();
    if (search)
      std::fputs(search->text().c_str(), stdout);
    return recipe.status();
  }
  // What stays outside of the model is found beside it.
  LATHE_RETURN_IF_ERROR(checkBesideWeights(path, options.output));
  Result<std::string> bytes = quantizedModel(path, *recipe, options.recipe.empty() ? "the recipe" : options.recipe);
  if (!bytes)
    return bytes.status();
  if (!options.recipeOut.empty())
    LATHE_RETURN_IF_ERROR(recipe->write(options.recipeOut));
  LATHE_RETURN_IF_ERROR(writeFileAtomically(options.output, *bytes));
  resume.remove();
  resume = ResumeFolder(); // a report keeps nothing
  if (search)
    std::fputs(search->text().c_str(), stdout);
  std::printf("%s: %zu products, %zu weights, %zu activations by %s\n", options.output.c_str(), recipe->products.size(),
              recipe->weights.size(), recipe->activations.size(), recipe->scheme.c_str());
  if (options.report.empty())
    return okStatus();
  QuantizeReport report(path, options.output, *recipe, std::move(kept));
  if (search)
    report.setSearch(search->object());
  LATHE_RETURN_IF_ERROR(report.measure(calibration, options.data, options.compile, options.session));
  LATHE_RETURN_IF_ERROR(report.write(options.report));
  std::fputs(report.text().c_str(), stdout);
  return okStatus();
}

} // namespace

Status quantizeVerb(const std::vector<std::string> &arguments) {
  Parser parser("quantize", "MODEL -o FILE --scheme=NAME [OPTIONS]",
                "Writes an ONNX model whose matrix products and convolutions read quantized operands (QuantizeLinear and "
                "DequantizeLinear), nothing else of the file changed. What is not quantized keeps its type, f32, f16 or bf16, and is said, with the "
                "reason.");
  QuantizeOptions options;
  parser.add("o", "FILE", "The new model", options.output);
  parser.add("scheme", "NAME",
             "w8a8-int8: weights in 8 bits by column, activations in 8 bits by observed ranges; w8a16, w4a16: weights "
             "alone, of 4 bits in blocks; mxfp4, nf4: weights of 4 bits that are floats with a power of two for each 32, or "
             "choose from 16 numbers; w8a8-fp8: both in floats of 8 bits (e4m3); f16, bf16: products in 16 bits. Several with "
             "commas for a --budget", options.scheme);
  parser.add("layer", "GLOB=SCHEME", "Nodes, their results or weights that get another scheme", options.layers);
  parser.add("budget", "loss=X|latency=X|size=X",
             "Choose the scheme of each layer: the fastest model that loses at most X (by --metric), or the one that loses least "
             "and takes X (2.5ms, 80%) or is X large (10M, 50%); measured, and never slower than the float model unless it is "
             "about size", options.budget);
  parser.add("metric", "NAME|FILE.py",
             "What a --budget calls loss: mse (default: squared error as a share), kl, cosine, top1, or loss(want, got) of a file, "
             "which get lists of mappings from outputs to arrays", options.metric);
  parser.add("data", "DIR|F.npz",
             "Examples: a folder like ONNX's test_data_set_0, or a folder of such; an archive of arrays named after the "
             "inputs, whose first dimension counts examples; a folder of archives, each of them one run", options.data);
  parser.add("range", "METHOD",
             "What activations span: minmax (default), moving[:0.1] (a running mean over batches), percentile[:99.99], mse "
             "(least squared error), kl (least divergence); what lies outside is clipped", options.range);
  parser.add("method", "NAME[,NAME]",
             "How weights get codes: rtn (default: the nearest), gptq (by what inputs have in common), awq and smoothquant "
             "(inputs and weights scaled against each other first); with a comma also cle (weights of two layers scaled against "
             "each other, without data) and bias-correction (the mean of what codes change is taken back)", options.method);
  parser.add("damping", "X", "gptq: added to the diagonal of the inputs' products, in means of it (default: 0.01)", options.damping);
  parser.flag("dynamic", "w8a8-int8: each run finds the ranges of activations, without data", options.dynamic);
  parser.add("format", "qdq|microsoft",
             "4 bits: ops of ONNX (default), or MatMulNBits of com.microsoft. nf4 is MatMulBnb4 always", options.format);
  parser.add("keep", "GLOB", "Nodes, their results or weights that stay as they are", options.keep);
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
  parser.example("lathe quantize model.onnx -o q.onnx --scheme w8a8-int8,w8a16 --budget loss=0.001 --data examples.npz --report report.html");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1 || options.output.empty() || options.scheme.empty() == options.recipe.empty())
    return usageError("wants one model, -o FILE, and --scheme or --recipe; `lathe quantize --help` has examples",
                      "lathe quantize");
  // Configurations in a lockfile are of one model alone, of which quantized forms are others.
  options.lock = std::exchange(options.compile.lock, {});
  if (!options.lock.empty() && options.budget.empty())
    return usageError("keeps times of kernels for a --budget", "--lock");
  reproducer().files.push_back(positional->front());
  reproduceOnCrash(reproducer());
  return execute(options, positional->front());
}

} // namespace lathe::cli
