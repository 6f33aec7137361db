//===- Calibrate.cpp - examples, and what is seen of values ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Calibrate.h"

#include "Inputs.h"
#include "Progress.h"
#include "Results.h"
#include "TemporaryModel.h"

#include "lathe/support/Npy.h"
#include "lathe/support/Npz.h"
#include "lathe/support/Sha256.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

namespace fs = std::filesystem;

namespace lathe::cli {

using quantize::Histogram;
using quantize::Range;
using quantize::RangeMethod;
using quantize::Recipe;

namespace {

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

/// Arrays of an archive, one for each input, of its type and its sizes; the first one may be any where it `countsRows`.
Result<std::map<std::string, HostTensor>> readArrays(const std::string &path, const engine::Plan &plan, bool countsRows) {
  Result<std::map<std::string, HostTensor>> arrays = readNpz(path);
  if (!arrays)
    return arrays.status();
  for (const auto &[name, array] : *arrays)
    if (std::none_of(plan.inputs.begin(), plan.inputs.end(), [&](const engine::Port &p) { return p.name == name; }))
      return usageError("the model has no such input", path + ": '" + name + "'");
  for (const engine::Port &port : plan.inputs) {
    std::string where = path + ": '" + port.name + "'";
    auto found = arrays->find(port.name);
    if (found == arrays->end())
      return usageError("there is no array for this input", where);
    const HostTensor &array = found->second;
    if (array.dtype != port.dtype)
      return usageError("holds " + std::string(name(array.dtype)) + ", the input is " + std::string(name(port.dtype)), where);
    if (array.dims.size() != port.dims.size() || (countsRows && array.dims.empty()))
      return usageError("has " + std::to_string(array.dims.size()) + " dimensions, the input " +
                            std::to_string(port.dims.size()) + (countsRows ? " (the first one counts examples)" : ""), where);
    for (size_t d = countsRows; d < array.dims.size(); ++d)
      if (auto size = port.dims[d].constant(); size && *size != array.dims[d])
        return usageError("dimension " + std::to_string(d) + " is " + std::to_string(array.dims[d]) + ", the input's " +
                              std::to_string(*size), where);
  }
  return arrays;
}

/// Rows of the arrays: as many as the model's batch, or 16 where that is free.
Result<std::vector<Example>> sliceArchive(const std::string &path, const engine::Plan &plan) {
  Result<std::map<std::string, HostTensor>> arrays = readArrays(path, plan, /*countsRows=*/true);
  if (!arrays)
    return arrays.status();
  int64_t rows = -1, batch = 16;
  for (const engine::Port &port : plan.inputs) {
    std::string where = path + ": '" + port.name + "'";
    const HostTensor &array = arrays->at(port.name);
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

/// Archives of a folder, by name, each of them one example.
Result<std::vector<Example>> readArchives(const std::vector<std::string> &paths, const engine::Plan &plan) {
  std::vector<Example> examples;
  for (const std::string &path : paths) {
    Result<std::map<std::string, HostTensor>> arrays = readArrays(path, plan, /*countsRows=*/false);
    if (!arrays)
      return arrays.status();
    Example &example = examples.emplace_back();
    for (const engine::Port &port : plan.inputs)
      example.push_back(std::move(arrays->at(port.name)));
  }
  return examples;
}

/// A folder of input_N.pb, or one of such folders, or one of archives.
Result<std::vector<Example>> readFolders(const std::string &path, const engine::Plan &plan) {
  std::error_code error;
  std::vector<std::string> folders;
  if (fs::exists(fs::path(path) / "input_0.pb", error))
    folders.push_back(path);
  for (const auto &entry : fs::directory_iterator(path, error))
    if (folders.empty() || folders[0] != path)
      if (fs::exists(entry.path() / "input_0.pb", error))
        folders.push_back(entry.path().string());
  std::vector<std::string> archives;
  for (const auto &entry : fs::directory_iterator(path, error))
    if (folders.empty() && entry.path().extension() == ".npz")
      archives.push_back(entry.path().string());
  std::sort(archives.begin(), archives.end());
  if (!archives.empty())
    return readArchives(archives, plan);
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

} // namespace

Result<std::vector<Example>> readExamples(const std::string &data, const engine::Plan &plan) {
  std::error_code error;
  const bool archive = !fs::is_directory(data, error);
  Result<std::vector<Example>> examples = archive ? sliceArchive(data, plan) : readFolders(data, plan);
  if (!examples)
    return examples.status();
  if (examples->empty())
    return usageError(archive ? "holds no whole batch of examples"
                              : "has no input_0.pb, nor folders with one, nor archives (.npz)", data);
  bool spread = false, floats = false;
  for (const engine::Port &port : plan.inputs)
    floats |= isFloat(port.dtype);
  for (size_t i = 0; i < examples->size(); ++i)
    LATHE_RETURN_IF_ERROR(checkExample((*examples)[i], plan, data + ": batch " + std::to_string(i), spread));
  if (floats && !spread)
    return invalidError("each input is the same number everywhere: that says nothing of ranges", data);
  return examples;
}

namespace {

std::vector<std::vector<int64_t>> sizesOf(const Example &example) {
  std::vector<std::vector<int64_t>> sizes;
  for (const HostTensor &tensor : example)
    sizes.push_back(tensor.dims);
  return sizes;
}

std::vector<std::string> namesOf(const engine::Plan &plan) {
  std::vector<std::string> names;
  for (const engine::Port &port : plan.inputs)
    names.push_back(port.name);
  return names;
}

/// Whether engines for the sizes of examples are worth it, of a model whose sizes are open: memory is packed by numbers, which
/// formulas of sizes are packed less tightly than. Two: of all batches, and of a last one that is not full.
bool haveFewSizes(const std::vector<Example> &examples, const engine::Plan &plan) {
  std::set<std::vector<std::vector<int64_t>>> all;
  bool isOpen = false;
  for (const engine::Port &port : plan.inputs) {
    if (port.name.find('=') != std::string::npos)
      return false;
    for (const DimExpr &size : port.dims)
      isOpen |= !size.isConstant();
  }
  for (const Example &example : examples) {
    for (const HostTensor &tensor : example)
      if (tensor.count() == 0)
        return false;
    all.insert(sizesOf(example));
  }
  constexpr size_t kFew = 2;
  return isOpen && all.size() <= kFew;
}

CompileOptions forSizes(CompileOptions options, const std::vector<std::string> &names,
                        const std::vector<std::vector<int64_t>> &sizes) {
  for (size_t i = 0; i < names.size(); ++i) {
    std::string text;
    for (int64_t size : sizes[i])
      text += (text.empty() ? "" : "x") + std::to_string(size);
    if (!text.empty())
      options.shapes.push_back(names[i] + "=" + text);
  }
  return options;
}

} // namespace

Status Calibration::run(const Recipe &recipe, const std::vector<Observation> &observations, const std::string &what,
                        lathe_call_function call, void *user, const Batch &seen, const Sums &sums) {
  Result<std::string> said = recipe.text();
  if (!said)
    return said.status();
  Sha256 sha;
  sha.field(*said);
  for (const Observation &one : observations)
    sha.field(one.value);
  constexpr size_t kDigits = 16;
  const std::string stage = what.substr(0, what.find(' ')) + "-" + sha.hex().substr(0, kDigits);
  size_t first = 0;
  if (std::optional<std::string> kept = resume ? resume->find(stage) : std::nullopt) {
    Result<HostTensor> state = parseNpy(*kept, DType::F64, stage);
    std::vector<double> numbers(state ? size_t(state->count()) : 0);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = state->real(int64_t(i));
    if (numbers.size() >= 2) { // batches, and whether these were all
      const std::vector<double> rest(numbers.begin() + 2, numbers.end());
      if (sums.restore(rest))
        first = size_t(numbers[0]);
      if (first && numbers[1] != 0)
        return okStatus();
    }
  }
  Result<std::string> bytes = observedModel(path, recipe, observations);
  if (!bytes)
    return bytes.status();
  Result<std::unique_ptr<TemporaryModel>> written = TemporaryModel::write("observed.onnx", *bytes);
  if (!written)
    return written.status();
  std::optional<OpenEngine> engine;
  auto open = [&](const CompileOptions &options) -> Status {
    Result<OpenEngine> made = OpenEngine::open((*written)->path, options, session);
    if (!made)
      return made.status();
    engine.emplace(std::move(*made));
    for (size_t rank = 0; call && rank < engine->session.ranks(); ++rank)
      LATHE_RETURN_IF_ERROR(toStatus(lathe_context_register_call(engine->session.rank(rank), kObserveCall, call, user)));
    return okStatus();
  };
  if (examples.empty()) {
    LATHE_RETURN_IF_ERROR(open(compile));
    Result<std::vector<Example>> read = readExamples(data, *engine->plan);
    if (!read)
      return read.status();
    examples = std::move(*read);
    fixesSizes = compile.dims.empty() && compile.shapes.empty() && haveFewSizes(examples, *engine->plan);
    if (fixesSizes)
      names = namesOf(*engine->plan);
  } else if (!fixesSizes) {
    LATHE_RETURN_IF_ERROR(open(compile));
  }
  std::vector<std::vector<int64_t>> sizes; // that the engine is for; none: for all
  uint64_t memory = 0;
  auto fit = [&](const Example &example) -> Status {
    if (!fixesSizes || (engine && sizes == sizesOf(example)))
      return okStatus();
    engine.reset(); // its memory first
    sizes = sizesOf(example);
    return open(forSizes(compile, names, sizes));
  };
  Progress progress;
  // Keeping takes a tenth of the time at most.
  auto last = std::chrono::steady_clock::now();
  std::chrono::duration<double> taken{0}, running{0};
  for (size_t i = first; i < examples.size(); ++i) {
    progress.show(what, int(i), int(examples.size()));
    LATHE_RETURN_IF_ERROR(fit(examples[i]));
    const auto begin = std::chrono::steady_clock::now();
    std::vector<lathe_tensor> results;
    LATHE_RETURN_IF_ERROR(engine->session.run(*engine->plan, examples[i], results));
    lathe_counters counters{};
    lathe_context_counters(engine->session.context(), &counters);
    memory = std::max<uint64_t>(memory, counters.arena_bytes);
    LATHE_RETURN_IF_ERROR(seen(i, data + ": batch " + std::to_string(i), results));
    const auto now = std::chrono::steady_clock::now();
    running += now - begin;
    const bool all = i + 1 == examples.size();
    if (!resume || (!all && now - last < 10 * taken))
      continue;
    const std::vector<double> numbers = sums.save();
    HostTensor state(DType::F64, {int64_t(numbers.size()) + 2});
    state.setReal(0, double(i + 1));
    state.setReal(1, all);
    for (size_t e = 0; e < numbers.size(); ++e)
      state.setReal(int64_t(e) + 2, numbers[e]);
    Result<std::string> file = formatNpy(state);
    if (!file)
      return file.status();
    LATHE_RETURN_IF_ERROR(resume->keep(stage, *file));
    last = std::chrono::steady_clock::now();
    taken = last - now;
  }
  progress.finish();
  std::printf("%s observed at %zu places over %zu batches: %.3g s, %s beside the weights\n", what.c_str(), observations.size(),
              examples.size(), running.count(), describeBytes(double(memory)).c_str());
  return okStatus();
}

namespace {

/// What the engine hands over of values where they lie.
struct Elements {
  bool counting;                      ///< or minimum and maximum alone
  std::vector<Range> batch;           ///< minimum and maximum of the present one; NaN where an element is not finite
  std::vector<Histogram> histograms;

  /// What the engine calls with a value and its number.
  static const char *see(void *self, const lathe_call *call) {
    auto &all = *static_cast<Elements *>(self);
    const lathe_tensor &value = call->inputs[0];
    if (value.dtype != LATHE_F32)
      return "wants a value of f32";
    size_t number = all.batch.size(), count = 1;
    for (size_t i = 0; i < call->attribute_count; ++i)
      if (call->attributes[i].int_count == 1 && std::string_view(call->attributes[i].name) == "number")
        number = size_t(call->attributes[i].ints[0]);
    if (number >= all.batch.size())
      return "has no such number";
    for (int32_t d = 0; d < value.rank; ++d)
      count *= size_t(value.dims[d]);
    if (count) {
      std::span<const float> elements(static_cast<const float *>(value.data), count);
      std::optional<Range> range = quantize::minMaxOf(elements);
      all.batch[number] = range.value_or(Range{NAN, NAN});
      if (range && all.counting)
        all.histograms[number].add(elements, *range);
    }
    *static_cast<uint8_t *>(call->outputs[0].data) = 0;
    return nullptr;
  }
};

std::vector<double> numbersOf(const lathe_tensor &tensor) {
  HostTensor values = copyOf(tensor);
  std::vector<double> numbers(size_t(values.count()));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = isFloat(values.dtype) ? values.real(int64_t(i)) : double(values.integer(int64_t(i)));
  return numbers;
}

} // namespace

std::vector<std::vector<QuantizedLayer>> partsOf(const std::vector<QuantizedLayer> &layers) {
  constexpr int64_t kBytes = int64_t(256) << 20;
  std::vector<std::vector<QuantizedLayer>> parts;
  int64_t bytes = kBytes;
  for (const QuantizedLayer &layer : layers) {
    if (bytes >= kBytes) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(layer);
    bytes += layer.weightElements * int64_t(sizeof(float));
  }
  return parts;
}

Result<Calibration::Seen> Calibration::observeElements(const Recipe &recipe, const std::vector<std::string> &values,
                                                       const RangeMethod &method) {
  const bool host = session.device == "cpu"; // where the engine's memory can be looked at
  if (method.needsHistogram() && !host)
    return unsupportedError(method.text() + " counts elements on the CPU, not on " + session.device, "--range");
  std::vector<Observation> observations;
  for (const std::string &name : values)
    observations.push_back({name, host ? Summary::Elements : Summary::MinMax});
  Elements elements{method.needsHistogram(), std::vector<Range>(values.size()),
                    std::vector<Histogram>(method.needsHistogram() ? values.size() : 0)};
  std::vector<Range> ranges(values.size());
  Status ran = run(recipe, observations, "ranges", host ? Elements::see : nullptr, &elements,
                   [&](size_t batch, const std::string &where, const std::vector<lathe_tensor> &results) -> Status {
    for (size_t v = 0; v < values.size(); ++v) {
      Range seen = host ? elements.batch[v] : Range{numbersOf(results[2 * v])[0], numbersOf(results[2 * v + 1])[0]};
      if (!std::isfinite(seen.min) || !std::isfinite(seen.max))
        return invalidError("value '" + values[v] + "' is not finite", where);
      if (method.kind == quantize::RangeKind::Moving)
        quantize::moveRange(ranges[v], seen, method.parameter, batch == 0);
      else
        ranges[v] = batch ? Range{std::min(seen.min, ranges[v].min), std::max(seen.max, ranges[v].max)} : seen;
    }
    return okStatus();
  }, {[&] {
    std::vector<double> state;
    for (const Range &range : ranges)
      state.insert(state.end(), {range.min, range.max});
    for (const Histogram &histogram : elements.histograms)
      histogram.appendTo(state);
    return state;
  }, [&](const std::vector<double> &state) {
    if (state.size() != 2 * ranges.size() + Histogram::kState * elements.histograms.size())
      return false;
    for (size_t v = 0; v < ranges.size(); ++v)
      ranges[v] = {state[2 * v], state[2 * v + 1]};
    for (size_t v = 0; v < elements.histograms.size(); ++v)
      elements.histograms[v] = Histogram::of(std::span(state).subspan(2 * ranges.size() + v * Histogram::kState, Histogram::kState));
    return true;
  }});
  if (!ran.ok())
    return ran;
  return Seen{std::move(ranges), std::move(elements.histograms)};
}

Result<std::map<std::string, Histogram>> Calibration::observeHistograms(const Recipe &recipe, const std::vector<std::string> &values) {
  if (session.device != "cpu")
    return unsupportedError("counts elements on the CPU, not on " + session.device, "--device");
  Result<Seen> seen = observeElements(recipe, values, {quantize::RangeKind::Percentile, 100});
  if (!seen)
    return seen.status();
  std::map<std::string, Histogram> histograms;
  for (size_t v = 0; v < values.size(); ++v)
    histograms.emplace(values[v], std::move(seen->histograms[v]));
  return histograms;
}

Status Calibration::observeRanges(Recipe &recipe, const RangeMethod &method) {
  std::vector<std::string> values;
  for (const auto &[name, range] : recipe.activations)
    values.push_back(name);
  Result<Seen> seen = observeElements(recipe, values, method);
  if (!seen)
    return seen.status();
  std::vector<Range> &ranges = seen->ranges;
  Result<std::vector<QuantizedLayer>> layers = quantizedLayers(path, recipe);
  if (!layers)
    return layers.status();
  std::map<std::string, DType> types; // which scales have as well
  for (const QuantizedLayer &layer : *layers)
    types[layer.activation] = types[layer.result] = layer.type;
  for (size_t v = 0; v < values.size(); ++v) {
    auto known = types.find(values[v]);
    const DType type = known == types.end() ? DType::F32 : known->second;
    if (method.needsHistogram())
      ranges[v] = quantize::solveRange(seen->histograms[v], method, type);
    if (quantize::codesOf(ranges[v], type)) {
      recipe.activations[values[v]] = ranges[v];
      continue;
    }
    recipe.activations.erase(values[v]);
    recipe.shared.erase(values[v]);
    std::printf("  keeps its type: '%s' has no range that could be quantized\n", values[v].c_str());
  }
  return okStatus();
}

Result<std::map<std::string, quantize::Channels>> Calibration::observeChannels(const Recipe &recipe,
                                                                               const std::vector<QuantizedLayer> &layers) {
  std::map<std::string, quantize::Channels> all;
  std::vector<Observation> observations;
  for (const QuantizedLayer &layer : layers)
    if (layer.depth && all.try_emplace(layer.activation).second)
      observations.push_back({layer.activation, Summary::Channels, layer.depth});
  Status ran = run(recipe, observations, "channels", nullptr, nullptr,
                   [&](size_t batch, const std::string &where, const std::vector<lathe_tensor> &results) -> Status {
    for (size_t i = 0; i < observations.size(); ++i) {
      quantize::Channels &into = all[observations[i].value];
      const auto depth = size_t(observations[i].depth);
      std::vector<double> lowest = numbersOf(results[5 * i]), highest = numbersOf(results[5 * i + 1]),
                          magnitudes = numbersOf(results[5 * i + 2]), squares = numbersOf(results[5 * i + 3]);
      const auto rows = int64_t(numbersOf(results[5 * i + 4])[0]) / int64_t(depth);
      if (batch == 0) {
        into.lowest = lowest;
        into.highest = highest;
        into.magnitudes.assign(depth, 0);
        into.squares.assign(depth, 0);
      }
      into.rows += rows;
      for (size_t k = 0; k < depth; ++k) {
        if (!std::isfinite(squares[k]))
          return invalidError("value '" + observations[i].value + "' or its square is not finite", where);
        into.lowest[k] = std::min(into.lowest[k], lowest[k]);
        into.highest[k] = std::max(into.highest[k], highest[k]);
        into.magnitudes[k] += magnitudes[k] * double(rows);
        into.squares[k] += squares[k] * double(rows);
      }
    }
    return okStatus();
  }, {[&] {
    std::vector<double> state;
    for (const Observation &of : observations) {
      const quantize::Channels &one = all[of.value];
      state.push_back(double(one.rows));
      for (const auto *list : {&one.lowest, &one.highest, &one.magnitudes, &one.squares})
        state.insert(state.end(), list->begin(), list->end());
    }
    return state;
  }, [&](const std::vector<double> &state) {
    size_t size = 0, at = 0;
    for (const Observation &of : observations)
      size += 1 + 4 * size_t(of.depth);
    if (state.size() != size)
      return false;
    for (const Observation &of : observations) {
      quantize::Channels &one = all[of.value];
      one.rows = int64_t(state[at++]);
      for (auto *list : {&one.lowest, &one.highest, &one.magnitudes, &one.squares}) {
        list->assign(state.begin() + int64_t(at), state.begin() + int64_t(at) + of.depth);
        at += size_t(of.depth);
      }
    }
    return true;
  }});
  if (!ran.ok())
    return ran;
  return all;
}

Result<std::map<std::string, quantize::Gram>> Calibration::observeGrams(const Recipe &recipe,
                                                                        const std::vector<QuantizedLayer> &layers) {
  std::map<std::string, quantize::Gram> all;
  std::vector<Observation> observations;
  for (const QuantizedLayer &layer : layers)
    if (all.try_emplace(layer.activation).second)
      observations.push_back({layer.activation, Summary::Gram, layer.depth});
  Status ran = run(recipe, observations, "products of inputs", nullptr, nullptr,
                   [&](size_t, const std::string &, const std::vector<lathe_tensor> &results) -> Status {
    for (size_t i = 0; i < observations.size(); ++i) {
      quantize::Gram &into = all[observations[i].value];
      into.depth = observations[i].depth;
      into.sums.resize(size_t(into.depth * into.depth));
      const auto *seen = static_cast<const float *>(results[i].data);
      for (size_t e = 0; e < into.sums.size(); ++e)
        into.sums[e] += double(seen[e]);
    }
    return okStatus();
  }, {[&] {
    std::vector<double> state;
    for (const Observation &of : observations)
      state.insert(state.end(), all[of.value].sums.begin(), all[of.value].sums.end());
    return state;
  }, [&](const std::vector<double> &state) {
    size_t size = 0, at = 0;
    for (const Observation &of : observations)
      size += size_t(of.depth * of.depth);
    if (state.size() != size)
      return false;
    for (const Observation &of : observations) {
      all[of.value] = {of.depth, {state.begin() + int64_t(at), state.begin() + int64_t(at) + of.depth * of.depth}};
      at += size_t(of.depth * of.depth);
    }
    return true;
  }});
  if (!ran.ok())
    return ran;
  return all;
}

Result<std::map<std::string, HostTensor>> Calibration::observeBiases(const Recipe &recipe, const std::vector<QuantizedLayer> &layers) {
  std::vector<Observation> observations;
  for (const QuantizedLayer &layer : layers)
    observations.push_back({layer.result, Summary::Shift});
  std::vector<std::vector<double>> sums(layers.size()); // by channel, and behind them the rows
  Status ran = run(recipe, observations, "shifts of means", nullptr, nullptr,
                   [&](size_t, const std::string &where, const std::vector<lathe_tensor> &results) -> Status {
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::vector<double> means = numbersOf(results[2 * i]);
      const double rows = numbersOf(results[2 * i + 1])[0] / double(means.size());
      sums[i].resize(means.size() + 1);
      for (size_t c = 0; c < means.size(); ++c) {
        if (!std::isfinite(means[c]))
          return invalidError("value '" + layers[i].result + "' is not finite", where);
        sums[i][c] += means[c] * rows;
      }
      sums[i].back() += rows;
    }
    return okStatus();
  }, {[&] {
    std::vector<double> state;
    for (const std::vector<double> &of : sums) {
      state.push_back(double(of.size()));
      state.insert(state.end(), of.begin(), of.end());
    }
    return state;
  }, [&](const std::vector<double> &state) {
    size_t at = 0;
    for (std::vector<double> &of : sums) {
      const size_t count = at < state.size() ? size_t(state[at]) : 0;
      if (!count || count > state.size() - at - 1)
        return false;
      of.assign(state.begin() + int64_t(at) + 1, state.begin() + int64_t(at + 1 + count));
      at += 1 + count;
    }
    return at == state.size();
  }});
  if (!ran.ok())
    return ran;
  std::map<std::string, HostTensor> biases;
  for (size_t i = 0; i < layers.size(); ++i) {
    HostTensor bias(DType::F32, {int64_t(sums[i].size()) - 1});
    for (int64_t c = 0; c < bias.count(); ++c)
      bias.setReal(c, -sums[i][size_t(c)] / sums[i].back());
    biases[layers[i].result] = std::move(bias);
  }
  return biases;
}

Result<std::map<std::string, LayerLosses>> Calibration::observeLosses(const Recipe &recipe,
                                                                      const std::vector<QuantizedLayer> &layers) {
  std::map<std::string, LayerLosses> all;
  std::vector<Observation> observations;
  for (const QuantizedLayer &layer : layers)
    observations.push_back({layer.result, Summary::Losses});
  Status ran = run(recipe, observations, "losses", nullptr, nullptr,
                   [&](size_t batch, const std::string &where, const std::vector<lathe_tensor> &results) -> Status {
    for (size_t i = 0; i < layers.size(); ++i) {
      LayerLosses &into = all[layers[i].result];
      auto part = [&](LossPart p) { return numbersOf(results[kLossParts * i + size_t(p)])[0]; };
      into.signal += part(LossPart::Signal);
      into.weight += part(LossPart::Weight);
      into.clipping += part(LossPart::Clipping);
      into.rounding += part(LossPart::Rounding);
      into.all += part(LossPart::All);
      into.clipped += part(LossPart::Clipped);
      into.elements += part(LossPart::Elements);
      const Range seen{part(LossPart::Least), part(LossPart::Greatest)};
      into.seen = batch ? Range{std::min(into.seen.min, seen.min), std::max(into.seen.max, seen.max)} : seen;
      if (!std::isfinite(into.signal) || !std::isfinite(into.all) || !std::isfinite(seen.min) || !std::isfinite(seen.max))
        return invalidError("value '" + layers[i].result + "' or its square is not finite", where);
    }
    return okStatus();
  }, {[] { return std::vector<double>(); }, [](const std::vector<double> &) { return false; }});
  if (!ran.ok())
    return ran;
  return all;
}

} // namespace lathe::cli
