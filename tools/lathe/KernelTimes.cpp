//===- KernelTimes.cpp - times of kernels that engines share --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KernelTimes.h"

#include "lathe/compiler/Lock.h"
#include "lathe/support/Files.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

namespace lathe::cli {

namespace {

constexpr size_t kRounds = 15;
constexpr double kSeconds = 0.15, kBaseSeconds = 0.5;

/// As a lockfile has it: what is read from it later is the same.
double rounded(double seconds) { return std::round(seconds * 1e9) / 1e9; }

} // namespace

Result<KernelTimes> KernelTimes::read(const std::string &file, const std::string &key, const std::string &target,
                                      const std::string &device) {
  KernelTimes made;
  std::error_code error;
  if (file.empty() || !std::filesystem::exists(file, error))
    return made;
  Result<std::string> text = readFile(file);
  if (!text)
    return text.status();
  Result<Lock> lock = Lock::parse(*text, file);
  if (!lock)
    return lock.status();
  if (lock->target != target || lock->device != device || lock->model != key)
    return usageError("was measured for another model, other sizes, another target or device (" + lock->target + ", " +
                          lock->device + ")", "--lock " + file);
  for (const auto &[kernel, microseconds] : lock->times)
    made.times[kernel] = microseconds / 1e6;
  return made;
}

Status KernelTimes::write(const std::string &file, const std::string &key, const std::string &target,
                          const std::string &device) const {
  Lock lock{target, device, key, {}, {}};
  std::error_code error;
  if (std::filesystem::exists(file, error)) {
    Result<std::string> text = readFile(file);
    if (!text)
      return text.status();
    Result<Lock> known = Lock::parse(*text, file);
    if (!known)
      return known.status();
    lock = std::move(*known);
  }
  for (const auto &[kernel, seconds] : times)
    lock.times[kernel] = seconds * 1e6;
  return writeFileAtomically(file, lock.str());
}

Status KernelTimes::measureBase(const OpenEngine &engine, const std::vector<HostTensor> &inputs) {
  base = &engine;
  Profile profile(engine);
  const auto begin = std::chrono::steady_clock::now();
  while (profile.rounds() < kRounds || std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < kBaseSeconds)
    LATHE_RETURN_IF_ERROR(profile.runOnce(inputs));
  double measured = 0;
  std::map<std::string, std::pair<double, int>> sums;
  const std::vector<KernelTime> kernels = profile.kernels();
  for (const KernelTime &kernel : kernels) {
    measured += kernel.seconds;
    sums[kernel.what].first += kernel.seconds;
    ++sums[kernel.what].second;
  }
  for (const auto &[what, sum] : sums)
    times.try_emplace(what, rounded(sum.first / sum.second));
  launches = double(kernels.size());
  beside = std::max(0.0, profile.latency() - measured);
  perLaunch = kernels.empty() ? 0 : beside / launches;
  return okStatus();
}

Status KernelTimes::measure(const OpenEngine &engine, const std::vector<HostTensor> &inputs, std::vector<KernelTime> &kernels, double &left) {
  Profile ofBase(*base), ofEngine(engine);
  const auto begin = std::chrono::steady_clock::now();
  while (ofBase.rounds() < kRounds || std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < kSeconds) {
    LATHE_RETURN_IF_ERROR(ofBase.runOnce(inputs));
    LATHE_RETURN_IF_ERROR(ofEngine.runOnce(inputs));
  }
  // How much slower the machine is in each round than when the base was measured.
  double meant = 0;
  std::vector<double> slower(ofBase.rounds());
  for (const KernelTime &kernel : ofBase.kernels()) {
    meant += times.at(kernel.what);
    for (size_t r = 0; r < slower.size(); ++r)
      slower[r] += kernel.rounds[r];
  }
  for (double &one : slower)
    one = one > 0 && meant > 0 ? one / meant : 1;
  kernels = ofEngine.kernels();
  left = ofEngine.latency();
  for (const KernelTime &kernel : kernels)
    left -= kernel.seconds;
  left = std::max(0.0, left / median(slower));
  std::map<std::string, std::pair<double, int>> sums;
  for (KernelTime &kernel : kernels)
    if (!times.count(kernel.what)) {
      for (size_t r = 0; r < slower.size(); ++r)
        kernel.rounds[r] /= slower[r];
      sums[kernel.what].first += median(kernel.rounds);
      ++sums[kernel.what].second;
    }
  for (const auto &[what, sum] : sums)
    times[what] = rounded(sum.first / sum.second);
  return okStatus();
}

Status KernelTimes::learn(const OpenEngine &engine, const std::vector<HostTensor> &inputs) {
  std::vector<KernelTime> kernels;
  double left = 0;
  LATHE_RETURN_IF_ERROR(measure(engine, inputs, kernels, left));
  // The line through the base that is nearest to what is beside kernels elsewhere.
  const double more = double(kernels.size()) - launches;
  products += more * (left - beside);
  squares += more * more;
  if (squares > 0)
    perLaunch = std::clamp(products / squares, 0.0, launches > 0 ? beside / launches : 0.0);
  return okStatus();
}

Result<double> KernelTimes::secondsOf(const OpenEngine &engine, const std::vector<HostTensor> &inputs) {
  Profile profile(engine);
  LATHE_RETURN_IF_ERROR(profile.runOnce(inputs));
  std::vector<KernelTime> kernels = profile.kernels();
  double left = 0;
  if (!std::all_of(kernels.begin(), kernels.end(), [&](const KernelTime &kernel) { return times.count(kernel.what) != 0; }))
    LATHE_RETURN_IF_ERROR(measure(engine, inputs, kernels, left));
  double sum = beside + perLaunch * (double(kernels.size()) - launches);
  for (const KernelTime &kernel : kernels)
    sum += times.at(kernel.what);
  return sum;
}

} // namespace lathe::cli
