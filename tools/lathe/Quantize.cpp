//===- Quantize.cpp - lathe quantize --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plan, observe, apply: what can be quantized, the ranges of what products read, the model with
// QuantizeLinear and DequantizeLinear. Ranges are seen in the engine: the model gets a least and a greatest
// element of each value as results, which are fused with what makes the value, and nothing else leaves it.
//
//===----------------------------------------------------------------------===//
#include "Inputs.h"
#include "Npz.h"
#include "TemporaryModel.h"
#include "Verbs.h"

#include "lathe/import/QuantizeModel.h"
#include "lathe/support/Files.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

namespace fs = std::filesystem;

namespace lathe::cli {
namespace {

using quantize::Range;
using quantize::Recipe;

struct QuantizeOptions {
  std::string output, data, scheme, recipe, recipeOut, group;
  std::vector<std::string> keep;
  CompileOptions compile;
  SessionOptions session;
};

using Example = std::vector<HostTensor>; ///< in the order of the entry's inputs

/// All floats must be finite; `spread` becomes true where two of an input differ.
Status checkExample(const Example &example, const engine::Plan &plan, const std::string &where, bool &spread) {
  for (size_t i = 0; i < example.size(); ++i)
    for (int64_t e = 0, n = isFloat(example[i].dtype) ? example[i].count() : 0; e < n; ++e) {
      double v = example[i].real(e);
      if (!std::isfinite(v))
        return invalidError(std::string("holds ") + (std::isnan(v) ? "NaN" : "infinity") + " at element " + std::to_string(e),
                            where + ": input '" + plan.inputs[i].name + "'");
      spread |= v != example[i].real(0);
    }
  return okStatus();
}

/// Rows of the arrays: as many as the model's batch, or 16 where that is free.
Result<std::vector<Example>> sliceArchive(const std::string &path, const engine::Plan &plan) {
  Result<std::map<std::string, HostTensor>> arrays = readNpz(path);
  if (!arrays)
    return arrays.status();
  for (const auto &[name, array] : *arrays)
    if (std::none_of(plan.inputs.begin(), plan.inputs.end(), [&](const engine::Port &p) { return p.name == name; }))
      return usageError("the model has no such input", path + ": '" + name + "'");
  int64_t rows = -1, batch = 16;
  for (const engine::Port &port : plan.inputs) {
    std::string where = path + ": '" + port.name + "'";
    auto found = arrays->find(port.name);
    if (found == arrays->end())
      return usageError("there is no array for this input", where);
    const HostTensor &array = found->second;
    if (array.dtype != port.dtype)
      return usageError("holds " + std::string(name(array.dtype)) + ", the input is " + std::string(name(port.dtype)), where);
    if (array.dims.size() != port.dims.size() || array.dims.empty())
      return usageError("has " + std::to_string(array.dims.size()) + " dimensions, the input " +
                            std::to_string(port.dims.size()) + " (the first one counts examples)", where);
    for (size_t d = 1; d < array.dims.size(); ++d)
      if (auto size = port.dims[d].constant(); size && *size != array.dims[d])
        return usageError("dimension " + std::to_string(d) + " is " + std::to_string(array.dims[d]) + ", the input's " +
                              std::to_string(*size), where);
    if (rows >= 0 && rows != array.dims[0])
      return usageError("has " + std::to_string(array.dims[0]) + " examples, another array " + std::to_string(rows), where);
    rows = array.dims[0];
    if (auto fixed = port.dims[0].constant())
      batch = std::max<int64_t>(1, *fixed);
  }
  bool fixed = std::any_of(plan.inputs.begin(), plan.inputs.end(),
                           [](const engine::Port &p) { return p.dims[0].isConstant(); });
  std::vector<Example> examples;
  for (int64_t row = 0; row < rows; row += batch) {
    int64_t count = std::min(batch, rows - row);
    if (fixed && count < batch)
      break; // a batch that is not full cannot run
    Example example;
    for (const engine::Port &port : plan.inputs) {
      const HostTensor &array = arrays->at(port.name);
      std::vector<int64_t> dims = array.dims;
      dims[0] = count;
      HostTensor part(array.dtype, dims);
      uint64_t each = array.data.size() / uint64_t(rows);
      std::copy_n(array.data.begin() + int64_t(each) * row, part.data.size(), part.data.begin());
      example.push_back(std::move(part));
    }
    examples.push_back(std::move(example));
  }
  return examples;
}

/// A folder of input_N.pb, or one of such folders.
Result<std::vector<Example>> readFolders(const std::string &path, const engine::Plan &plan) {
  std::error_code error;
  std::vector<std::string> folders;
  if (fs::exists(fs::path(path) / "input_0.pb", error))
    folders.push_back(path);
  for (const auto &entry : fs::directory_iterator(path, error))
    if (folders.empty() || folders[0] != path)
      if (fs::exists(entry.path() / "input_0.pb", error))
        folders.push_back(entry.path().string());
  std::sort(folders.begin(), folders.end());
  std::vector<Example> examples;
  for (const std::string &folder : folders) {
    InputOptions options;
    options.dataFolder = folder;
    Result<InputFiles> files = readInputs(options, plan);
    if (!files)
      return files.status();
    if (files->named.size() + files->byPosition.size() < plan.inputs.size())
      return usageError("has files for " + std::to_string(files->named.size() + files->byPosition.size()) + " of " +
                            std::to_string(plan.inputs.size()) + " inputs", folder);
    Result<Example> example = makeInputs(options, *files, plan, {}, 0);
    if (!example)
      return example.status();
    examples.push_back(std::move(*example));
  }
  return examples;
}

/// Runs the model that shows the ranges over all the data.
Status observe(const QuantizeOptions &options, const std::string &path, Recipe &recipe) {
  std::vector<std::string> values;
  for (const auto &[name, range] : recipe.activations)
    values.push_back(name);
  Result<std::string> bytes = observedModel(path, recipe, values);
  if (!bytes)
    return bytes.status();
  std::error_code error;
  Result<std::unique_ptr<TemporaryModel>> written = TemporaryModel::write("observed.onnx", *bytes);
  if (!written)
    return written.status();
  const std::string &observed = (*written)->path;
  CompileOptions compile = options.compile;
  compile.cache = false;
  Result<Model> model = Model::open(observed, compile, options.session.device);
  if (!model)
    return model.status();
  Result<Session> session = Session::open(*model, options.session);
  if (!session)
    return session.status();
  Result<const engine::Plan *> plan = model->plan("", session->target());
  if (!plan)
    return plan.status();
  bool archive = !fs::is_directory(options.data, error);
  Result<std::vector<Example>> examples = archive ? sliceArchive(options.data, **plan) : readFolders(options.data, **plan);
  if (!examples)
    return examples.status();
  if (examples->empty())
    return usageError(archive ? "holds no whole batch of examples" : "has no input_0.pb, nor folders with one", options.data);
  bool spread = false, any = false, floats = false;
  for (const engine::Port &port : (*plan)->inputs)
    floats |= isFloat(port.dtype);
  std::vector<Range> ranges(values.size());
  for (size_t i = 0; i < examples->size(); ++i) {
    std::string where = options.data + ": batch " + std::to_string(i);
    LATHE_RETURN_IF_ERROR(checkExample((*examples)[i], **plan, where, spread));
    std::vector<lathe_tensor> results;
    LATHE_RETURN_IF_ERROR(session->run(**plan, (*examples)[i], results));
    for (size_t v = 0; v < values.size(); ++v) {
      double low = copyOf(results[2 * v]).real(0), high = copyOf(results[2 * v + 1]).real(0);
      if (!std::isfinite(low) || !std::isfinite(high))
        return invalidError("value '" + values[v] + "' is not finite", where);
      ranges[v] = any ? Range{std::min(low, ranges[v].min), std::max(high, ranges[v].max)} : Range{low, high};
    }
    any = true;
  }
  if (floats && !spread)
    return invalidError("each input is the same number everywhere: that says nothing of ranges", options.data);
  for (size_t v = 0; v < values.size(); ++v) {
    if (quantize::codesOf(ranges[v])) {
      recipe.activations[values[v]] = ranges[v];
      continue;
    }
    recipe.activations.erase(values[v]);
    recipe.shared.erase(values[v]);
    std::printf("  keeps f32: '%s' has no range that could be quantized\n", values[v].c_str());
  }
  std::printf("%zu values observed over %zu batches\n", values.size(), examples->size());
  return okStatus();
}

Status execute(const QuantizeOptions &options, const std::string &path) {
  Recipe recipe;
  std::string from = options.recipe;
  if (!options.recipe.empty()) {
    Result<std::string> text = readFile(options.recipe);
    if (!text)
      return text.status();
    Result<Recipe> parsed = Recipe::parse(*text, options.recipe);
    if (!parsed)
      return parsed.status();
    recipe = std::move(*parsed);
  } else {
    Result<quantize::Scheme> scheme = quantize::schemeNamed(options.scheme);
    if (!scheme)
      return scheme.status();
    if (scheme->activations && options.data.empty())
      return usageError("quantizes activations: ranges come from --data=DIR|F.npz, never from random numbers", options.scheme);
    int64_t group = 0;
    const std::string &text = options.group;
    if (!text.empty() && (std::from_chars(text.data(), text.data() + text.size(), group).ptr != text.data() + text.size() ||
                          group < 16 || group % 16))
      return usageError("wants a multiple of 16, not '" + text + "'", "--group");
    Result<QuantizationPlan> plan = planQuantization(path, *scheme, options.keep, group);
    if (!plan)
      return plan.status();
    if (!plan->converted.empty())
      std::printf("  %s\n", plan->converted.c_str());
    for (const auto &[name, why] : plan->kept)
      std::printf("  keeps f32: '%s': %s\n", name.c_str(), why.c_str());
    if (plan->recipe.products.empty())
      return unsupportedError("has no matrix product or convolution that could be quantized", path);
    recipe = std::move(plan->recipe);
    if (scheme->activations)
      LATHE_RETURN_IF_ERROR(observe(options, path, recipe));
    from = "the recipe";
  }
  // What stays outside of the model is found beside it.
  Result<bool> external = hasExternalWeights(path);
  if (!external)
    return external.status();
  std::error_code error;
  auto folderOf = [&](const std::string &file) { return fs::weakly_canonical(fs::absolute(file, error), error).parent_path(); };
  if (*external && folderOf(path) != folderOf(options.output))
    return usageError("the model's external weights lie beside it: the new one must be in the same folder", options.output);
  Result<std::string> bytes = quantizedModel(path, recipe, from);
  if (!bytes)
    return bytes.status();
  if (!options.recipeOut.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.recipeOut, recipe.text()));
  LATHE_RETURN_IF_ERROR(writeFileAtomically(options.output, *bytes));
  std::printf("%s: %zu products, %zu weights, %zu activations by %s\n", options.output.c_str(), recipe.products.size(),
              recipe.weights.size(), recipe.activations.size(), recipe.scheme.c_str());
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
             "alone, of 4 bits in blocks", options.scheme);
  parser.add("data", "DIR|F.npz",
             "Examples: a folder like ONNX's test_data_set_0, or a folder of such; an archive of arrays named after the "
             "inputs, whose first dimension counts examples", options.data);
  parser.add("keep", "GLOB", "Nodes, their results or weights that keep f32", options.keep);
  parser.add("group", "N", "4 bits: elements that share a scale (default: 128, 64 or 32, as divides the depth)", options.group);
  parser.add("recipe", "FILE", "Apply these decisions in place of --scheme and --data", options.recipe);
  parser.add("recipe-out", "FILE", "Write the decisions as JSON", options.recipeOut);
  parser.add("device", "cpu|cuda:0", "Where the data run (default: cpu)", options.session.device);
  parser.add("threads", "N", "CPU threads (default: all cores)", options.session.threads);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.example("lathe quantize model.onnx -o q.onnx --scheme w8a8-int8 --data examples.npz --recipe-out q.json");
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
