//===- QuantizeReport.cpp - what quantizing costs and gains ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "QuantizeReport.h"

#include "Page.h"
#include "Profile.h"
#include "Progress.h"
#include "QuantizePage.h"
#include "Results.h"
#include "TemporaryModel.h"

#include "lathe/support/Files.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

namespace fs = std::filesystem;
namespace json = llvm::json;

namespace lathe::cli {

/// The JSON of a report whose name ends in .html or .json.
static std::string jsonBeside(const std::string &file) { return file.substr(0, file.size() - 5) + ".json"; }

Status QuantizeReport::check(const std::string &file, const std::vector<std::string> &others) {
  if (!file.ends_with(".html") && !file.ends_with(".json"))
    return usageError("wants FILE.html or FILE.json, not '" + file + "'", "--report");
  std::error_code error;
  auto whole = [&](const std::string &path) { return fs::weakly_canonical(fs::absolute(path, error), error); };
  for (const std::string &other : others)
    if (!other.empty() && (whole(other) == whole(file) || whole(other) == whole(jsonBeside(file))))
      return usageError("would be written over '" + other + "'", "--report=" + file);
  return okStatus();
}

Status QuantizeReport::measure(Calibration &calibration, const std::string &data, const CompileOptions &compile,
                               const SessionOptions &session) {
  LATHE_RETURN_IF_ERROR(observe(calibration));
  return compare(data, compile, session);
}

Status QuantizeReport::observe(Calibration &calibration) {
  Result<std::vector<QuantizedLayer>> layers = quantizedLayers(model, recipe);
  if (!layers)
    return layers.status();
  for (const std::vector<QuantizedLayer> &part : partsOf(*layers)) {
    Result<std::map<std::string, LayerLosses>> seen = calibration.observeLosses(recipe, part);
    if (!seen)
      return seen.status();
    for (const QuantizedLayer &layer : part) {
      auto range = recipe.activations.find(layer.activation);
      rows.push_back({layer, range == recipe.activations.end() ? std::nullopt : std::optional(range->second),
                      seen->at(layer.result)});
    }
  }
  return okStatus();
}

namespace {

/// A model under names by which its kernels are told apart.
struct NamedEngine {
  std::unique_ptr<TemporaryModel> file;
  OpenEngine engine;

  static Result<NamedEngine> open(const std::string &path, const CompileOptions &compile, const SessionOptions &session) {
    Result<std::string> bytes = namedModel(path);
    if (!bytes)
      return bytes.status();
    Result<std::unique_ptr<TemporaryModel>> file = TemporaryModel::write("named.onnx", *bytes);
    if (!file)
      return file.status();
    Result<OpenEngine> engine = OpenEngine::open((*file)->path, compile, session);
    if (!engine)
      return engine.status();
    return NamedEngine{std::move(*file), std::move(*engine)};
  }
};

} // namespace

Status QuantizeReport::compare(const std::string &data, CompileOptions compile, const SessionOptions &session) {
  compile.cache = false;
  Result<NamedEngine> both[2] = {NamedEngine::open(model, compile, session), NamedEngine::open(quantized, compile, session)};
  for (const Result<NamedEngine> &one : both)
    if (!one)
      return one.status();
  const OpenEngine &whole = both[0]->engine, &coded = both[1]->engine;
  target = whole.session.target();
  device = session.device;
  Result<std::vector<Example>> examples = readExamples(data, *whole.plan);
  if (!examples)
    return examples.status();
  for (const engine::Port &port : whole.plan->outputs)
    outputs.push_back({port.name, {}});
  Progress progress;
  for (size_t i = 0; i < examples->size(); ++i) {
    progress.show("results of both models", int(i), int(examples->size()));
    Result<std::vector<HostTensor>> want = whole.run((*examples)[i]), got = coded.run((*examples)[i]);
    if (!want || !got)
      return want ? got.status() : want.status();
    for (size_t o = 0; o < want->size(); ++o)
      outputs[o].second.add((*want)[o], (*got)[o]);
  }
  Profile profiles[2] = {Profile(whole), Profile(coded)};
  constexpr double kSeconds = 0.5;
  const auto begin = std::chrono::steady_clock::now();
  auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  while (profiles[0].rounds() < 7 || spent() < kSeconds) {
    progress.show("times of both models", int(profiles[0].rounds()), int(profiles[0].rounds()) + 1);
    for (Profile &profile : profiles)
      LATHE_RETURN_IF_ERROR(profile.runOnce(examples->front()));
  }
  progress.finish();
  before = profiles[0].latency() * 1e3;
  after = profiles[1].latency() * 1e3;
  for (int form = 0; form < 2; ++form)
    for (const KernelTime &kernel : profiles[form].kernels()) {
      std::vector<Row *> computed;
      for (Row &row : rows)
        if (kernel.computes(row.layer.node))
          computed.push_back(&row);
      for (Row *row : computed)
        (form ? row->microsecondsAfter : row->microsecondsBefore) += kernel.seconds * 1e6 / double(computed.size());
      if (computed.empty())
        (form ? otherAfter : otherBefore) += kernel.seconds * 1e6;
    }
  return okStatus();
}

namespace {

/// JSON has no infinity.
json::Value orNull(std::optional<double> number) {
  return number && std::isfinite(*number) ? json::Value(*number) : json::Value(nullptr);
}
json::Value pair(quantize::Range range) { return json::Array{range.min, range.max}; }
int64_t bytesOfFile(const std::string &path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? 0 : int64_t(bytes);
}

} // namespace

json::Object QuantizeReport::object() const {
  json::Array layers, results;
  json::Value stay = nullptr;
  for (const Row &row : rows) {
    const Loss loss = row.loss();
    const LayerLosses &losses = row.losses;
    layers.push_back(json::Object{
        {"node", json::fixUTF8(row.layer.node)},
        {"result", json::fixUTF8(row.layer.result)},
        {"activation", json::fixUTF8(row.layer.activation)},
        {"weight", json::fixUTF8(row.layer.weight)},
        {"range", row.range ? pair(*row.range) : json::Value(nullptr)},
        {"seen", pair(losses.seen)},
        {"clipped", losses.elements > 0 ? losses.clipped / losses.elements : 0},
        {"sqnr_db", orNull(loss.decibels())},
        {"loss", json::Object{{"weight_rounding", orNull(loss.share(losses.weight))},
                              {"clipping", orNull(loss.share(losses.clipping))},
                              {"activation_rounding", orNull(loss.share(losses.rounding))},
                              {"all", orNull(loss.share(losses.all))}}},
        {"us_before", row.microsecondsBefore},
        {"us_after", row.microsecondsAfter}});
  }
  if (kept) {
    json::Array list;
    for (const auto &[node, why] : *kept)
      list.push_back(json::Object{{"node", json::fixUTF8(node)}, {"why", json::fixUTF8(why)}});
    stay = std::move(list);
  }
  for (const auto &[output, loss] : outputs)
    results.push_back(json::Object{{"output", json::fixUTF8(output)},
                                   {"sqnr_db", orNull(loss.decibels())},
                                   {"loss", orNull(loss.share(loss.error))}});
  json::Object all{{"model", json::fixUTF8(fs::path(model).filename().string())},
                      {"quantized", json::fixUTF8(fs::path(quantized).filename().string())},
                      {"scheme", recipe.scheme},
                      {"range", recipe.range},
                      {"method", recipe.method},
                      {"dynamic", recipe.dynamic},
                      {"target", target},
                      {"device", device},
                      {"layers", std::move(layers)},
                      {"kept", std::move(stay)},
                      {"outputs", std::move(results)},
                      {"other_us_before", otherBefore},
                      {"other_us_after", otherAfter},
                      {"ms_before", before},
                      {"ms_after", after},
                      {"bytes_before", bytesOfFile(model)},
                      {"bytes_after", bytesOfFile(quantized)}};
  if (search)
    all["search"] = json::Object(*search);
  return all;
}

std::string QuantizeReport::text() const {
  std::vector<const Row *> order; // by loss, then as they stand in the graph
  for (const Row &row : rows)
    order.push_back(&row);
  auto share = [](const Row *row) { return row->loss().share(row->losses.all).value_or(INFINITY); };
  std::sort(order.begin(), order.end(),
            [&](const Row *a, const Row *b) { return share(a) != share(b) ? share(a) > share(b) : a < b; });
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(order.size(), 3); ++i)
    out += llvm::formatv("  {0} '{1}': {2}, {3:P} of its inputs clipped\n", i ? "then" : "loses most:", order[i]->layer.node,
                         describeDecibels(order[i]->loss().decibels()),
                         order[i]->losses.elements > 0 ? order[i]->losses.clipped / order[i]->losses.elements : 0).str();
  for (const auto &[output, loss] : outputs)
    out += llvm::formatv("  output '{0}': signal to quantization noise {1}\n", output, describeDecibels(loss.decibels())).str();
  return out + llvm::formatv("  a run: {0:f3} ms, before {1:f3} ms\n", after, before).str();
}

Status QuantizeReport::write(const std::string &file) const {
  if (file.ends_with(".html"))
    LATHE_RETURN_IF_ERROR(writeFileAtomically(file, pageOf(kQuantizePageHead, object(), kQuantizePageTail)));
  return writeFileAtomically(jsonBeside(file), llvm::formatv("{0:2}\n", json::Value(object())).str());
}

} // namespace lathe::cli
