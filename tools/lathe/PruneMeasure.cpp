//===- PruneMeasure.cpp - a model and its pruned form side by side --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PruneMeasure.h"

#include "lathe/codegen/Skeleton.h"
#include "lathe/sparsify/Prune.h"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace lathe::cli {

Result<double> parseRatio(const std::string &text) {
  double ratio = 0;
  const char *end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, ratio);
  if (text.empty())
    return usageError("is missing: the share of weights or units that goes", "--ratio");
  if (read.ec != std::errc() || read.ptr != end || !(ratio > 0 && ratio < 1))
    return usageError("wants a number between 0 and 1, without these: 1 would leave no weight; not '" + text + "'",
                      "--ratio");
  return ratio;
}

Result<uint64_t> parseSeed(const std::string &text) {
  uint64_t seed = 0;
  if (text.empty() || std::from_chars(text.data(), text.data() + text.size(), seed).ptr != text.data() + text.size())
    return usageError("wants a number, not '" + text + "'", "--seed");
  return seed;
}

static double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  auto middle = values.begin() + int64_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Result<MeasuredEngine> MeasuredEngine::open(const std::string &path, CompileOptions compile, const char *sparse,
                                            const SessionOptions &options) {
  compile.sparseWeights = sparse;
  Result<Model> model = Model::open(path, compile, options.device);
  if (!model)
    return model.status();
  Result<Session> session = Session::open(*model, options);
  if (!session)
    return session.status();
  Result<const engine::Plan *> plan = model->plan("", session->target());
  if (!plan)
    return plan.status();
  const std::string entry = (*plan)->entry;
  MeasuredEngine made{std::move(*model), std::move(*session), nullptr};
  made.plan = *made.model.plan(entry, made.session.target());
  return made;
}

Result<std::vector<HostTensor>> MeasuredEngine::run(const std::vector<HostTensor> &inputs) const {
  std::map<std::string, int64_t> starts = session.stateLengths(*plan);
  std::vector<lathe_tensor> outputs;
  LATHE_RETURN_IF_ERROR(session.run(*plan, inputs, outputs));
  LATHE_RETURN_IF_ERROR(session.truncateStates(starts));
  std::vector<HostTensor> copies;
  for (const lathe_tensor &output : outputs)
    copies.push_back(copyOf(output));
  return copies;
}

KernelTimes::KernelTimes(const MeasuredEngine &engine) : engine(engine) {
  lathe_context_profile(engine.session.context(), 1);
}

Status KernelTimes::runOnce(const std::vector<HostTensor> &inputs) {
  auto begin = std::chrono::steady_clock::now();
  Result<std::vector<HostTensor>> results = engine.run(inputs);
  if (!results)
    return results.status();
  runs.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  size_t count = 0;
  const lathe_profile_row *rows = lathe_context_profile_rows(engine.session.context(), &count);
  sums.resize(count), each.resize(count);
  for (size_t i = 0; i < count; ++i) {
    each[i].push_back(rows[i].seconds - sums[i]);
    sums[i] = rows[i].seconds;
  }
  return okStatus();
}

std::pair<double, bool> KernelTimes::of(const std::vector<std::string> &nodes) {
  size_t count = 0;
  const lathe_profile_row *rows = lathe_context_profile_rows(engine.session.context(), &count);
  std::pair<double, bool> result{0, false};
  for (size_t i = 0; i < count; ++i) {
    std::string list = "," + std::string(rows[i].nodes ? rows[i].nodes : "") + ",";
    std::erase(list, ' ');
    if (std::none_of(nodes.begin(), nodes.end(), [&](const std::string &n) { return list.find("," + n + ",") != std::string::npos; }))
      continue;
    result.first += median(each[i]);
    Result<KernelConfig> config = KernelConfig::parse(rows[i].config ? rows[i].config : "");
    result.second |= config.ok() && config->form && config->form->product.leavesOutZeros;
  }
  return result;
}

double KernelTimes::latency() { return median(runs); }

Status measureInTurn(KernelTimes &a, KernelTimes &b, const std::vector<HostTensor> &inputs, double seconds) {
  auto begin = std::chrono::steady_clock::now();
  auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  while (a.rounds() < 7 || spent() < seconds) {
    LATHE_RETURN_IF_ERROR(a.runOnce(inputs));
    LATHE_RETURN_IF_ERROR(b.runOnce(inputs));
  }
  return okStatus();
}

std::vector<std::pair<std::string, double>> losses(const MeasuredEngine &engine, const std::vector<HostTensor> &before,
                                                   const std::vector<HostTensor> &after) {
  std::vector<std::pair<std::string, double>> list;
  for (size_t i = 0; i < before.size() && i < after.size(); ++i)
    if (isFloat(before[i].dtype) && before[i].dims == after[i].dims)
      list.push_back({engine.plan->outputs[i].name, sparsify::relativeChange(before[i], after[i])});
  return list;
}

Result<BothForms> BothForms::open(const PruneRequest &options, const std::string &path, const std::string &bytes) {
  CompileOptions compile = options.inputs.fixing(options.compile, path);
  Result<MeasuredEngine> dense = MeasuredEngine::open(path, compile, "never", options.session);
  if (!dense)
    return dense.status();
  Result<std::unique_ptr<TemporaryModel>> written = TemporaryModel::write("pruned.onnx", bytes);
  if (!written)
    return written.status();
  compile.cache = false;
  Result<MeasuredEngine> pruned = MeasuredEngine::open((*written)->path, compile, "auto", options.session);
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

} // namespace lathe::cli
