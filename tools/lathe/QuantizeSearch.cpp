//===- QuantizeSearch.cpp - a format for each layer, by a budget ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "QuantizeSearch.h"

#include "Progress.h"
#include "PruneMeasure.h"
#include "Results.h"
#include "TemporaryModel.h"

#include "lathe/compiler/Lock.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

namespace fs = std::filesystem;
namespace json = llvm::json;

namespace lathe::cli {

using quantize::Assignment;
using quantize::Recipe;

static std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

Result<Budget> Budget::parse(const std::string &text) {
  auto wrong = [&] {
    return usageError("wants loss=NUMBER, latency=NUMBER with us, ms or %, or size=NUMBER with K, M, G or %, not '" + text + "'",
                      "--budget");
  };
  Budget budget;
  budget.text = text;
  const size_t equals = text.find('=');
  const std::string kind = text.substr(0, equals);
  if (equals == std::string::npos)
    return wrong();
  const char *end = text.data() + text.size();
  auto [unitBegin, error] = std::from_chars(text.data() + equals + 1, end, budget.value);
  const std::string unit(unitBegin, end);
  if (error != std::errc() || !(budget.value >= 0) || !std::isfinite(budget.value))
    return wrong();
  std::map<std::string, double> units;
  if (kind == "loss")
    budget.kind = Kind::Loss, units = {{"", 1}};
  else if (kind == "latency")
    budget.kind = Kind::Latency, units = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"%", 0.01}};
  else if (kind == "size")
    budget.kind = Kind::Size, units = {{"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"%", 0.01}};
  if (!units.count(unit))
    return wrong();
  budget.value *= units[unit];
  budget.share = unit == "%";
  return budget;
}

Status QuantizeSearch::findUnits() {
  std::map<std::string, size_t> numbers;
  // In the order of the graph, which all candidates share: a layer that only a later one has goes behind the last one
  // that is known ahead of it.
  for (size_t c = 0; c < candidates.size(); ++c) {
    Result<std::vector<QuantizedLayer>> layers = quantizedLayers(request.model, candidates[c]);
    if (!layers)
      return layers.status();
    size_t behind = 0;
    std::set<std::string> seen;
    for (const QuantizedLayer &layer : *layers) {
      if (!seen.insert(layer.weight).second)
        continue;
      auto known = std::find_if(units.begin(), units.end(), [&](const Unit &u) { return u.weight == layer.weight; });
      if (known == units.end())
        known = units.insert(units.begin() + int64_t(behind), Unit{layer.weight, {}});
      known->candidates.push_back(c);
      behind = size_t(known - units.begin()) + 1;
    }
    layersOf.push_back(std::move(*layers));
  }
  for (size_t u = 0; u < units.size(); ++u)
    numbers[units[u].weight] = u;
  std::set<std::pair<size_t, size_t>> found;
  for (size_t c = 0; c < candidates.size(); ++c) {
    Result<std::vector<std::pair<size_t, size_t>>> near = neighbouringLayers(request.model, candidates[c], layersOf[c]);
    if (!near)
      return near.status();
    for (auto [first, second] : *near) {
      const size_t a = numbers[layersOf[c][first].weight], b = numbers[layersOf[c][second].weight];
      if (a != b)
        found.emplace(std::min(a, b), std::max(a, b));
    }
  }
  neighbours.assign(found.begin(), found.end());
  return okStatus();
}

const char *QuantizeSearch::schemeOf(size_t unit, size_t choice) const {
  return choice ? candidates[units[unit].candidates[choice - 1]].scheme.c_str() : "float";
}

Result<Recipe> QuantizeSearch::recipeOf(const Choices &choices) const {
  std::vector<Recipe> parts;
  for (size_t c = 0; c < candidates.size(); ++c) {
    std::set<std::string> results;
    for (const QuantizedLayer &layer : layersOf[c])
      for (size_t u = 0; u < units.size(); ++u)
        if (units[u].weight == layer.weight && choices[u] && units[u].candidates[choices[u] - 1] == c)
          results.insert(layer.result);
    parts.push_back(partOf(candidates[c], layersOf[c], results));
  }
  return mixedRecipe(parts);
}

Result<OpenEngine> QuantizeSearch::open(const Choices &choices, double &bytes) const {
  Result<Recipe> recipe = recipeOf(choices);
  if (!recipe)
    return recipe.status();
  Result<std::string> model = quantizedModel(request.model, *recipe, "the recipe");
  if (!model)
    return model.status();
  bytes = double(model->size());
  Result<std::unique_ptr<TemporaryModel>> file =
      TemporaryModel::write(fs::path(request.model).filename().string(), *model);
  if (!file)
    return file.status();
  return OpenEngine::open((*file)->path, request.compile, request.session);
}

Result<QuantizeSearch::Built> QuantizeSearch::build(const Choices &choices, bool wantLoss, bool wantSeconds, ResumeFolder &resume) {
  std::string name = "build";
  for (size_t u = 0; u < choices.size(); ++u)
    if (choices[u])
      name += "-" + std::to_string(u) + "." + std::to_string(choices[u]);
  ++builds;
  Built built;
  if (std::optional<std::string> kept = resume.find(name)) {
    double loss = 0, seconds = 0;
    if (std::sscanf(kept->c_str(), "%la %la %la", &loss, &seconds, &built.bytes) == 3) {
      if (wantLoss)
        built.loss = loss;
      if (wantSeconds)
        built.seconds = seconds;
      return built;
    }
  }
  Result<OpenEngine> engine = open(choices, built.bytes);
  if (!engine)
    return engine.status();
  if (wantLoss) {
    Result<double> loss = truth->lossOf(*engine, request.model, request.metric);
    if (!loss)
      return loss.status();
    built.loss = *loss;
  }
  if (wantSeconds) {
    Result<double> seconds = times.secondsOf(*engine, truth->firstExample());
    if (!seconds)
      return seconds.status();
    built.seconds = *seconds;
  }
  char text[128];
  std::snprintf(text, sizeof text, "%a %a %a", built.loss.value_or(0), built.seconds.value_or(0), built.bytes);
  LATHE_RETURN_IF_ERROR(resume.keep(name, text));
  return built;
}

QuantizeSearch::Choices QuantizeSearch::uniformOf(size_t candidate) const {
  Choices uniform(units.size());
  for (size_t u = 0; u < units.size(); ++u)
    for (size_t i = 0; i < units[u].candidates.size(); ++i)
      if (units[u].candidates[i] == candidate && (choices.empty() || std::isfinite(choices[u][i + 1].loss)))
        uniform[u] = i + 1;
  return uniform;
}

Status QuantizeSearch::measureUniform() {
  if (bySize())
    return okStatus();
  for (size_t c = 0; c < candidates.size(); ++c) {
    double bytes = 0;
    Result<OpenEngine> engine = open(uniformOf(c), bytes);
    if (!engine && engine.status().code() == ErrorCode::Unsupported)
      continue; // measureAlone() says which layer it is
    if (!engine)
      return engine.status();
    ++builds;
    LATHE_RETURN_IF_ERROR(times.learn(*engine, truth->firstExample()));
  }
  return okStatus();
}

Status QuantizeSearch::measureAlone(ResumeFolder &resume) {
  Progress progress;
  size_t all = 0, done = 0;
  for (const Unit &unit : units)
    all += unit.candidates.size();
  for (size_t u = 0; u < units.size(); ++u) {
    choices.push_back({{0, 0}});
    alone.emplace_back();
    for (size_t c = 1; c <= units[u].candidates.size(); ++c) {
      progress.show("layers alone", int(done++), int(all));
      Choices one(units.size());
      one[u] = c;
      Result<Built> built = build(one, /*wantLoss=*/true, /*wantSeconds=*/!bySize(), resume);
      if (!built && built.status().code() == ErrorCode::Unsupported) {
        refused[std::string(schemeOf(u, c)) + " of '" + units[u].weight + "'"] = built.status().message();
        built = Built{INFINITY, baseSeconds, baseBytes};
      }
      if (!built)
        return built.status();
      choices[u].push_back({*built->loss, bySize() ? built->bytes - baseBytes : *built->seconds - baseSeconds});
      alone[u].push_back(*built);
    }
  }
  progress.finish();
  for (const auto &[what, why] : refused)
    std::printf("  cannot be built: %s: %s\n", what.c_str(), why.c_str());
  return okStatus();
}

Status QuantizeSearch::measurePairs(ResumeFolder &resume) {
  if (bySize())
    return okStatus();
  Progress progress;
  size_t done = 0;
  for (auto [a, b] : neighbours) {
    progress.show("neighbours", int(done++), int(neighbours.size()));
    quantize::PairCost pair{a, b, std::vector<std::vector<double>>(choices[a].size(), std::vector<double>(choices[b].size()))};
    for (size_t i = 1; i < choices[a].size(); ++i)
      for (size_t j = 1; j < choices[b].size(); ++j) {
        // What is passed on or read together is of one format, and weights alone have no codes of values.
        const size_t scheme = units[a].candidates[i - 1];
        Result<quantize::Scheme> known = quantize::schemeNamed(candidates[scheme].scheme);
        if (units[b].candidates[j - 1] != scheme || !known || !(known->activations || isHalf(known->format)) ||
            !std::isfinite(choices[a][i].loss) || !std::isfinite(choices[b][j].loss))
          continue;
        Choices both(units.size());
        both[a] = i;
        both[b] = j;
        Result<Built> built = build(both, /*wantLoss=*/false, /*wantSeconds=*/true, resume);
        if (!built && built.status().code() == ErrorCode::Unsupported)
          continue;
        if (!built)
          return built.status();
        pair.cost[i][j] = *built->seconds - baseSeconds - choices[a][i].cost - choices[b][j].cost;
      }
    pairs.push_back(std::move(pair));
  }
  return okStatus();
}

std::pair<double, double> QuantizeSearch::predicted(const Choices &chosen) const {
  double loss = 0, cost = bySize() ? baseBytes : baseSeconds;
  for (size_t u = 0; u < units.size(); ++u) {
    loss += choices[u][chosen[u]].loss;
    cost += choices[u][chosen[u]].cost;
  }
  for (const quantize::PairCost &pair : pairs)
    cost += pair.cost[chosen[pair.first]][chosen[pair.second]];
  return {loss, cost};
}

Result<QuantizeSearch::Measured> QuantizeSearch::measure(std::string name, const Choices &choices) {
  Measured made;
  const auto [predictedLoss, predictedCost] = predicted(choices);
  made.predictedLoss = predictedLoss;
  if (!bySize())
    made.predictedSeconds = predictedCost;
  made.name = std::move(name);
  made.choices = choices;
  Result<OpenEngine> engine = open(choices, made.bytes);
  if (!engine)
    return engine.status();
  ++builds;
  Result<double> loss = truth->lossOf(*engine, request.model, request.metric);
  if (!loss)
    return loss.status();
  made.loss = *loss;
  Profile whole(*base), coded(*engine);
  LATHE_RETURN_IF_ERROR(measureInTurn(whole, coded, truth->firstExample(), 0.5));
  made.seconds = coded.latency();
  made.floatSeconds = whole.latency();
  return made;
}

double QuantizeSearch::limit() const {
  const Budget &budget = request.budget;
  if (!budget.share)
    return budget.value;
  return budget.value * (bySize() ? baseBytes : baseSeconds);
}

std::string QuantizeSearch::broken(const Measured &one) const {
  switch (request.budget.kind) {
  case Budget::Kind::Size:
    return one.bytes > limit() ? "is too large" : "";
  case Budget::Kind::Loss:
    if (!(one.loss <= limit()))
      return "loses too much";
    break;
  case Budget::Kind::Latency:
    // Seconds of another moment are judged by what the float model took then.
    if (request.budget.share ? one.ratio() > request.budget.value : one.ratio() * baseSeconds > limit())
      return "takes too long";
    break;
  }
  return one.ratio() > 1 ? "is slower than the float model" : "";
}

std::string QuantizeSearch::describe(const Measured &one) const {
  std::string out = one.name + ": loss " + number(one.loss);
  if (!bySize())
    out += ", " + number(one.ratio() * baseSeconds * 1e3) + " ms";
  return out + llvm::formatv(" ({0:f3} of float's time), {1}", one.ratio(), describeBytes(one.bytes)).str();
}

Result<Recipe> QuantizeSearch::decide() {
  Result<std::vector<Assignment>> found = quantize::paretoFront(choices, pairs);
  if (!found)
    return found.status();
  front = std::move(*found);
  // What each scheme alone makes, so that the search is never worse.
  for (size_t c = 0; c < candidates.size(); ++c) {
    Result<Measured> one = measure("all of " + candidates[c].scheme, uniformOf(c));
    if (!one)
      return one.status();
    measured.push_back(std::move(*one));
  }
  // Sums are a prediction: where the measured one breaks the budget, sums are held to a smaller one.
  constexpr int kAttempts = 8;
  const bool byLoss = request.budget.kind == Budget::Kind::Loss;
  double bound = limit();
  std::set<Choices> tried;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Assignment *best = nullptr;
    for (const Assignment &one : front) { // by growing cost and falling loss
      const double cost = one.cost + (bySize() ? baseBytes : baseSeconds);
      if (byLoss ? one.loss <= bound : cost <= bound)
        if (!best || !byLoss)
          best = &one;
    }
    if (!best || !tried.insert(best->choices).second)
      break;
    const bool floats = std::all_of(best->choices.begin(), best->choices.end(), [](size_t c) { return c == 0; });
    if (floats)
      break;
    // The same layers twice would be two measurements, the luckier of which is chosen.
    auto one = std::find_if(measured.begin(), measured.end(), [&](const Measured &m) { return m.choices == best->choices; });
    if (one == measured.end()) {
      Result<Measured> made = measure("search " + std::to_string(attempt + 1), best->choices);
      if (!made)
        return made.status();
      one = measured.insert(measured.end(), std::move(*made));
    }
    if (broken(*one).empty())
      break;
    const double is = byLoss ? one->loss : bySize() ? one->bytes : one->ratio() * baseSeconds;
    const double meant = byLoss ? best->loss : best->cost + (bySize() ? baseBytes : baseSeconds);
    bound = std::min(bound, meant) * (is > limit() ? std::max(0.1, 0.98 * limit() / is) : 0.98);
  }
  // The best measured one: of those within the budget the fastest, or the one that loses least.
  auto better = [&](const Measured &a, const Measured &b) {
    if (broken(a).empty() != broken(b).empty())
      return broken(a).empty();
    if (broken(a).empty() && byLoss)
      return a.ratio() < b.ratio();
    if (broken(a).empty())
      return a.loss < b.loss;
    return byLoss ? a.loss < b.loss : bySize() ? a.bytes < b.bytes : a.ratio() < b.ratio();
  };
  auto best = std::min_element(measured.begin(), measured.end(), better);
  const std::string why = broken(*best);
  if (!why.empty())
    return Status(ErrorCode::Mismatch, "nothing keeps it: the best point " + why + ": " + describe(*best) +
                                           "; the float model " + (bySize() ? "is " + describeBytes(baseBytes) + " large"
                                                                           : "takes " + number(baseSeconds * 1e3) + " ms"),
                  "--budget " + request.budget.text);
  best->chosen = true;
  return recipeOf(best->choices);
}

Result<Recipe> QuantizeSearch::run(ResumeFolder &resume) {
  Result<bool> external = hasExternalWeights(request.model);
  if (!external)
    return external.status();
  if (*external)
    return unsupportedError("has weights in other files, which models that are made of parts of a recipe would not find",
                            request.model);
  LATHE_RETURN_IF_ERROR(findUnits());
  InputOptions inputs;
  inputs.dataFolder = request.data;
  Result<FloatTruth> found = FloatTruth::find(request.model, inputs, request.compile, request.session);
  if (!found)
    return found.status();
  truth = std::move(*found);
  Result<OpenEngine> whole = OpenEngine::open(request.model, request.compile, request.session);
  if (!whole)
    return whole.status();
  base.emplace(std::move(*whole));
  std::error_code error;
  baseBytes = double(fs::file_size(request.model, error));
  const std::string device = request.session.device + ", threads " + std::to_string(request.session.threads);
  Result<std::string> key = lockKey(request.model, request.compile);
  if (!key)
    return key.status();
  if (!bySize()) {
    Result<KernelTimes> known = KernelTimes::read(request.lock, *key, base->session.target(), device);
    if (!known)
      return known.status();
    times = std::move(*known);
    LATHE_RETURN_IF_ERROR(times.measureBase(*base, truth->firstExample()));
    Result<double> seconds = times.secondsOf(*base, truth->firstExample());
    if (!seconds)
      return seconds.status();
    baseSeconds = *seconds;
    // Kept ones are of the same speed of the machine.
    if (std::optional<std::string> kept = resume.find("base"))
      std::sscanf(kept->c_str(), "%la", &baseSeconds);
    char text[32];
    std::snprintf(text, sizeof text, "%a", baseSeconds);
    LATHE_RETURN_IF_ERROR(resume.keep("base", text));
  }
  LATHE_RETURN_IF_ERROR(measureUniform());
  LATHE_RETURN_IF_ERROR(measureAlone(resume));
  LATHE_RETURN_IF_ERROR(measurePairs(resume));
  if (!request.lock.empty() && !bySize())
    LATHE_RETURN_IF_ERROR(times.write(request.lock, *key, base->session.target(), device));
  return decide();
}

std::string QuantizeSearch::text() const {
  std::string out;
  for (const Measured &one : measured) {
    out += "  " + describe(one);
    if (one.predictedLoss)
      out += "; predicted loss " + number(*one.predictedLoss);
    if (one.predictedSeconds)
      out += llvm::formatv(", {0:f3} of its time", *one.predictedSeconds / baseSeconds);
    const std::string why = broken(one);
    out += one.chosen ? "; chosen\n" : why.empty() ? "\n" : "; " + why + "\n";
  }
  for (const Measured &one : measured)
    if (one.chosen) {
      std::vector<std::string> floats;
      std::map<std::string, int> counts;
      for (size_t u = 0; u < units.size(); ++u) {
        ++counts[schemeOf(u, one.choices[u])];
        if (!one.choices[u])
          floats.push_back("'" + units[u].weight + "'");
      }
      out += "  layers:";
      for (const auto &[scheme, count] : counts)
        out += " " + std::to_string(count) + " " + scheme;
      out += floats.empty() ? "\n" : "; float: " + joined(floats, 8) + "\n";
    }
  return out + "  " + std::to_string(builds) + " builds\n";
}

namespace {
/// JSON has no infinity.
json::Value orNull(std::optional<double> number) {
  return number && std::isfinite(*number) ? json::Value(*number) : json::Value(nullptr);
}
} // namespace

json::Object QuantizeSearch::object() const {
  json::Array layers, points, results;
  const Measured *chosen = nullptr;
  for (const Measured &one : measured) {
    if (one.chosen)
      chosen = &one;
    results.push_back(json::Object{{"name", one.name},
                                   {"loss", orNull(one.loss)},
                                   {"ms", one.seconds * 1e3},
                                   {"float_ms", one.floatSeconds * 1e3},
                                   {"bytes", int64_t(one.bytes)},
                                   {"predicted_loss", orNull(one.predictedLoss)},
                                   {"predicted_ratio", one.predictedSeconds ? orNull(*one.predictedSeconds / baseSeconds) : nullptr},
                                   {"broken", broken(one)},
                                   {"chosen", one.chosen}});
  }
  for (size_t u = 0; u < units.size(); ++u) {
    json::Array nodes, formats;
    std::set<std::string> known;
    for (const std::vector<QuantizedLayer> &list : layersOf)
      for (const QuantizedLayer &layer : list)
        if (layer.weight == units[u].weight && known.insert(layer.node).second)
          nodes.push_back(json::fixUTF8(layer.node));
    for (size_t c = 1; c < choices[u].size(); ++c)
      formats.push_back(json::Object{{"scheme", schemeOf(u, c)},
                                     {"loss", orNull(alone[u][c - 1].loss)},
                                     {"us", alone[u][c - 1].seconds ? orNull((*alone[u][c - 1].seconds - baseSeconds) * 1e6) : nullptr},
                                     {"bytes", int64_t(alone[u][c - 1].bytes - baseBytes)}});
    layers.push_back(json::Object{{"weight", json::fixUTF8(units[u].weight)},
                                  {"nodes", std::move(nodes)},
                                  {"choices", std::move(formats)},
                                  {"chosen", chosen ? json::Value(schemeOf(u, chosen->choices[u])) : json::Value(nullptr)}});
  }
  // A curve, not each of thousands of points.
  constexpr size_t kPoints = 200;
  for (size_t i = 0; i < front.size(); ++i)
    if (front.size() <= kPoints || i * kPoints / front.size() != (i + 1) * kPoints / front.size())
      points.push_back(json::Object{{"loss", front[i].loss},
                                    {bySize() ? "bytes" : "ms", bySize() ? front[i].cost + baseBytes : (front[i].cost + baseSeconds) * 1e3}});
  json::Array pairList;
  for (const quantize::PairCost &pair : pairs)
    for (size_t i = 1; i < pair.cost.size(); ++i)
      for (size_t j = 1; j < pair.cost[i].size(); ++j)
        if (pair.cost[i][j] != 0)
          pairList.push_back(json::Object{{"first", json::fixUTF8(units[pair.first].weight)},
                                          {"second", json::fixUTF8(units[pair.second].weight)},
                                          {"scheme", schemeOf(pair.first, i)},
                                          {"us", pair.cost[i][j] * 1e6}});
  return json::Object{{"budget", request.budget.text},
                      {"metric", request.metric.text()},
                      {"builds", int64_t(builds)},
                      {"float_ms", bySize() ? json::Value(nullptr) : json::Value(baseSeconds * 1e3)},
                      {"float_bytes", int64_t(baseBytes)},
                      {"layers", std::move(layers)},
                      {"neighbours", std::move(pairList)},
                      {"front", std::move(points)},
                      {"measured", std::move(results)}};
}

} // namespace lathe::cli
