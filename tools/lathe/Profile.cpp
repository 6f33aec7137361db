//===- Profile.cpp - engines side by side, and times of their kernels -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Profile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace lathe::cli {

Result<OpenEngine> OpenEngine::open(const std::string &path, const CompileOptions &compile, const SessionOptions &options) {
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
  OpenEngine made{std::move(*model), std::move(*session), nullptr};
  made.plan = *made.model.plan(entry, made.session.target());
  return made;
}

Result<std::vector<HostTensor>> OpenEngine::run(const std::vector<HostTensor> &inputs) const {
  std::map<std::string, int64_t> starts = session.stateLengths(*plan);
  std::vector<lathe_tensor> outputs;
  LATHE_RETURN_IF_ERROR(session.run(*plan, inputs, outputs));
  LATHE_RETURN_IF_ERROR(session.truncateStates(starts));
  std::vector<HostTensor> copies;
  for (const lathe_tensor &output : outputs)
    copies.push_back(copyOf(output));
  return copies;
}

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

static double pick(const std::vector<double> &values, Profile::Of of) {
  return of == Profile::Of::Least && !values.empty() ? *std::min_element(values.begin(), values.end()) : median(values);
}

/// Names of kernels end in a number, which says where they stand in an engine.
static std::string wordOf(const lathe_profile_row &row, size_t runs) {
  std::string name = row.kernel ? row.kernel : "";
  const size_t end = name.find_last_not_of("0123456789");
  if (end != std::string::npos && name[end] == '_')
    name.resize(end);
  std::replace(name.begin(), name.end(), ' ', '_');
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, ":%.0f:%.0f:%llu", row.flops, row.bytes,
                static_cast<unsigned long long>(runs ? row.calls / runs : row.calls));
  return name + ":" + (row.config ? row.config : "") + numbers;
}

Status Profile::runOnce(const std::vector<HostTensor> &inputs) {
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

std::vector<KernelTime> Profile::kernels(Of of) const {
  size_t count = 0;
  const lathe_profile_row *rows = lathe_context_profile_rows(engine.session.context(), &count);
  std::vector<KernelTime> kernels;
  for (size_t i = 0; i < count; ++i) {
    KernelTime kernel{{}, rows[i].config ? rows[i].config : "", {}, pick(each[i], of), each[i]};
    kernel.what = wordOf(rows[i], runs.size());
    const std::string_view list = rows[i].nodes ? rows[i].nodes : "";
    for (size_t at = 0; at < list.size();) {
      const size_t comma = std::min(list.find(',', at), list.size());
      std::string_view name = list.substr(at, comma - at);
      name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
      kernel.nodes.emplace(name);
      at = comma + 1;
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

double Profile::latency(Of of) const {
  if (of == Of::Median)
    return pick(runs, of);
  double sum = 0;
  std::vector<double> beside; // kernels, in runs behind the first, whose rows may hold those of another profile
  for (const std::vector<double> &times : each)
    sum += pick(times, of);
  for (size_t i = 1; i < runs.size(); ++i) {
    double left = runs[i];
    for (const std::vector<double> &times : each)
      left -= i < times.size() ? times[i] : 0;
    beside.push_back(std::max(0.0, left));
  }
  return sum + pick(std::move(beside), of);
}

Status measureInTurn(Profile &a, Profile &b, const std::vector<HostTensor> &inputs, double seconds) {
  auto begin = std::chrono::steady_clock::now();
  auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  while (a.rounds() < 7 || spent() < seconds) {
    LATHE_RETURN_IF_ERROR(a.runOnce(inputs));
    LATHE_RETURN_IF_ERROR(b.runOnce(inputs));
  }
  return okStatus();
}

} // namespace lathe::cli
