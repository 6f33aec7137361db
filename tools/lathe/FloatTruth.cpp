//===- FloatTruth.cpp - what a model makes of its inputs before it is changed -===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FloatTruth.h"

#include <algorithm>
#include <cmath>

namespace lathe::cli {

Result<FloatTruth> FloatTruth::find(const std::string &model, const InputOptions &inputs, const CompileOptions &compile,
                                    const SessionOptions &session) {
  Result<OpenEngine> engine = OpenEngine::open(model, inputs.fixing(compile, model), session);
  if (!engine)
    return engine.status();
  FloatTruth truth;
  const engine::Plan &plan = *engine->plan;
  truth.inputs = plan.inputs;
  truth.outputs = plan.outputs;
  if (!inputs.dataFolder.empty()) {
    Result<std::vector<Example>> read = readExamples(inputs.dataFolder, plan);
    if (!read)
      return read.status();
    truth.examples = std::move(*read);
  } else {
    Result<EntryRun> run = prepareRun(inputs, engine->model, engine->session, plan.entry, 0);
    if (!run)
      return run.status();
    truth.examples.push_back(std::move(run->inputs));
  }
  for (const Example &example : truth.examples) {
    Result<std::vector<HostTensor>> results = engine->run(example);
    if (!results)
      return results.status();
    truth.results.push_back(std::move(*results));
  }
  return truth;
}

Status FloatTruth::checkSame(const OpenEngine &engine, const std::string &path) const {
  auto check = [&](const std::vector<engine::Port> &want, const std::vector<engine::Port> &got, const char *what) -> Status {
    auto same = [](const engine::Port &a, const engine::Port &b) { return a.name == b.name && a.dtype == b.dtype; };
    if (!std::equal(want.begin(), want.end(), got.begin(), got.end(), same))
      return usageError("has other " + std::string(what) + " than the float model", path);
    return okStatus();
  };
  LATHE_RETURN_IF_ERROR(check(inputs, engine.plan->inputs, "inputs"));
  return check(outputs, engine.plan->outputs, "outputs");
}

Result<std::vector<std::pair<std::string, Loss>>> FloatTruth::lossesOf(const OpenEngine &engine, const std::string &path) const {
  LATHE_RETURN_IF_ERROR(checkSame(engine, path));
  std::vector<std::pair<std::string, Loss>> losses;
  for (const engine::Port &port : outputs)
    losses.push_back({port.name, {}});
  for (size_t i = 0; i < examples.size(); ++i) {
    Result<std::vector<HostTensor>> got = engine.run(examples[i]);
    if (!got)
      return got.status();
    for (size_t o = 0; o < losses.size(); ++o)
      losses[o].second.add(results[i][o], (*got)[o]);
  }
  return losses;
}

Result<double> FloatTruth::lossOf(const OpenEngine &engine, const std::string &path, const Metric &metric) const {
  if (metric.kind() == Metric::Kind::Mse) {
    Result<std::vector<std::pair<std::string, Loss>>> losses = lossesOf(engine, path);
    if (!losses)
      return losses.status();
    return worstOf(*losses);
  }
  LATHE_RETURN_IF_ERROR(checkSame(engine, path));
  std::vector<std::string> names;
  for (const engine::Port &port : outputs)
    names.push_back(port.name);
  std::vector<std::vector<HostTensor>> all;
  for (const Example &example : examples) {
    Result<std::vector<HostTensor>> got = engine.run(example);
    if (!got)
      return got.status();
    all.push_back(std::move(*got));
  }
  return metric.of(names, results, all);
}

double worstOf(const std::vector<std::pair<std::string, Loss>> &losses) {
  double worst = 0;
  for (const auto &[name, loss] : losses) {
    const double share = loss.share(loss.error).value_or(INFINITY);
    worst = std::max(worst, std::isfinite(share) ? share : INFINITY);
  }
  return worst;
}

} // namespace lathe::cli
