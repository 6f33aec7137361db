//===- main.cpp - one meaning on every way to compute -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//
// Every case (Cases.h) by the reference, by the folder, by engines for x86-64-v3 and, where this machine
// has it, x86-64-v4, and by the text of sm_90a under host emulation; or, with --device, by an engine on
// that GPU. Results have the reference's bits, or are as near as test/tolerances.tsv says; any NaN is
// NaN. What may differ is listed with its reason in exceptions.tsv, and what is listed must differ.
//
//===----------------------------------------------------------------------===//
#include "Paths.h"

#include "../unit/EmulatedKernels.h"
#include "lathe/support/Files.h"
#include "lathe/support/Parallel.h"
#include "lathe/support/Ulp.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <sstream>
#include <unistd.h>

using namespace lathe;
using namespace lathe::special;
namespace fs = std::filesystem;

namespace {

struct Options {
  std::string device, filter;
};

constexpr const char *kHostOptions = "-O0", *kDeviceLibrary = "device.pch"; ///< of emulated kernels

struct Bound {
  bool scaled = false;
  double ulp = 0;
};

const char *tableName(DType type) {
  switch (type) {
  case DType::F32:
    return "float";
  case DType::F64:
    return "double";
  case DType::F16:
    return "float16";
  case DType::BF16:
    return "bfloat16";
  default:
    return "";
  }
}

/// Rows of tab-separated columns without comments.
std::vector<std::vector<std::string>> readTable(const std::string &path) {
  Result<std::string> text = readFile(path);
  if (!text) {
    std::fprintf(stderr, "%s\n", text.status().str().c_str());
    std::exit(2);
  }
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    rows.emplace_back();
    std::istringstream columns(line);
    for (std::string column; std::getline(columns, column, '\t');)
      rows.back().push_back(column);
  }
  return rows;
}

std::map<std::pair<std::string, std::string>, Bound> readBounds() {
  std::map<std::pair<std::string, std::string>, Bound> bounds;
  for (const auto &row : readTable(LATHE_SOURCE_DIR "/test/tolerances.tsv"))
    bounds[{row.at(0), row.at(1)}] = {row.at(2) == "scaled", std::atof(row.at(3).c_str())};
  return bounds;
}

/// Path and case -> by how many ULP it may differ.
std::map<std::pair<std::string, std::string>, double> readExceptions() {
  std::map<std::pair<std::string, std::string>, double> exceptions;
  for (const auto &row : readTable(LATHE_SOURCE_DIR "/test/special/exceptions.tsv"))
    exceptions[{row.at(0), row.at(1)}] = std::atof(row.at(2).c_str());
  return exceptions;
}

std::string textOf(const HostTensor &t, int64_t i) {
  char text[64];
  if (isFloat(t.dtype))
    std::snprintf(text, sizeof text, "%.9g", t.real(i));
  else if (isUnsigned(t.dtype))
    std::snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(t.integer(i)));
  else
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(t.integer(i)));
  return text;
}

struct Judgement {
  std::string wrong; ///< "" where nothing is
  double ulp = 0;    ///< the worst, beyond the bound
};

Judgement judge(const Group &group, const Case &c, const HostTensor &got, const HostTensor &want, Bound bound) {
  if (got.dims == std::vector<int64_t>{0} && want.count() > 0)
    return {"is not folded", INFINITY};
  if (got.dtype != want.dtype || got.dims != want.dims)
    return {"has another type", INFINITY};
  double spacing = 0;
  if (bound.scaled) {
    double largest = 0;
    for (int64_t i = 0; i < want.count(); ++i)
      if (std::isfinite(want.real(i)))
        largest = std::max(largest, std::fabs(want.real(i)));
    uint64_t bits = encodeFloat(want.dtype, largest);
    double next = decodeFloat(want.dtype, bits + 1);
    spacing = std::isfinite(next) ? next - largest : largest - decodeFloat(want.dtype, bits - 1);
  }
  int64_t wrong = 0, first = -1;
  double worst = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    double off = 0;
    if (!isFloat(want.dtype)) {
      off = got.integer(i) != want.integer(i) ? INFINITY : 0;
    } else {
      double g = got.real(i), w = want.real(i);
      if (std::isnan(g) && std::isnan(w))
        continue;
      if (g == w)
        off = std::signbit(g) != std::signbit(w) && !c.eitherZero ? INFINITY : 0;
      else if (bound.scaled && std::isfinite(g) && std::isfinite(w))
        off = std::fabs(g - w) / spacing;
      else
        off = static_cast<double>(ulpDistance(want.dtype, encodeFloat(want.dtype, g), encodeFloat(want.dtype, w)));
    }
    if (off > bound.ulp) {
      ++wrong;
      if (first < 0 || off > worst)
        first = i;
      worst = std::max(worst, off);
    }
  }
  if (!wrong)
    return {};
  std::string operands;
  for (const HostTensor &input : group.inputs)
    if (input.dims == want.dims)
      operands += " " + textOf(input, first);
  char text[256];
  std::snprintf(text, sizeof text, "%lld of %lld, worst %.3g ULP at %lld (%s ): %s, the reference has %s",
                static_cast<long long>(wrong), static_cast<long long>(want.count()), worst,
                static_cast<long long>(first), operands.c_str(), textOf(got, first).c_str(),
                textOf(want, first).c_str());
  return {text, worst};
}

struct Sweep {
  Options options;
  const std::map<std::pair<std::string, std::string>, Bound> bounds = readBounds();
  const std::map<std::pair<std::string, std::string>, double> exceptions = readExceptions();
  fs::path folder;
  std::mutex gpu, printing;
  std::map<std::string, int> passed; ///< by path
  int failed = 0;
  std::set<std::pair<std::string, std::string>> excepted, seen;

  void fail(const std::string &path, const std::string &what, const std::string &why) {
    ++failed;
    std::printf("  %s, %s: %s\n", path.c_str(), what.c_str(), why.c_str());
    std::fflush(stdout);
  }

  void judgeAll(const Group &group, const std::string &device, const Result<Results> &got, const Results &want) {
    std::lock_guard<std::mutex> lock(printing);
    const std::string path = device.substr(0, device.find(':'));
    if (!got || got->size() != group.cases.size()) {
      for (const Case &c : group.cases)
        seen.insert({path, c.name});
      failed += static_cast<int>(group.cases.size()) - 1;
      return fail(path, group.name, got ? "another number of results" : got.status().str());
    }
    for (size_t i = 0; i < group.cases.size(); ++i) {
      const Case &c = group.cases[i];
      auto bound = bounds.find({c.op, tableName(c.dtype)});
      Judgement found = judge(group, c, (*got)[i], want[i], bound == bounds.end() ? Bound() : bound->second);
      seen.insert({path, c.name});
      auto exception = exceptions.find({path, c.name});
      if (exception != exceptions.end() && !found.wrong.empty() && found.ulp <= exception->second)
        excepted.insert({path, c.name});
      else if (exception != exceptions.end() && found.wrong.empty())
        fail(path, c.name, "is listed in exceptions.tsv, but has the reference's result");
      else if (!found.wrong.empty())
        fail(path, c.name, found.wrong);
      else
        ++passed[path];
    }
  }

  void run(const Group &group) {
    Result<Results> want = byReference(group);
    if (!want) {
      std::lock_guard<std::mutex> lock(printing);
      return fail("reference", group.name, want.status().str());
    }
    if (!options.device.empty())
      return onDevice(group, *want);
    judgeAll(group, "folder", byFolder(group), *want);
    std::vector<std::string> targets = {"x86-64-v3"};
    if (__builtin_cpu_supports("x86-64-v4"))
      targets.push_back("x86-64-v4");
    Result<std::string> cpu = compile(group, targets, folder, false);
    for (const std::string &target : targets)
      judgeAll(group, target, cpu ? byEngine(group, *cpu, "cpu", target) : Result<Results>(cpu.status()), *want);
    judgeAll(group, "sm_90a", emulated(group), *want);
  }

  void onDevice(const Group &group, const Results &want) {
    Result<std::string> engine = compile(group, {"sm_80", "sm_90a"}, folder, false);
    if (!engine)
      return judgeAll(group, options.device, engine.status(), want);
    std::lock_guard<std::mutex> lock(gpu);
    judgeAll(group, options.device, byEngine(group, *engine, options.device, ""), want);
  }

  Result<Results> emulated(const Group &group) {
    Result<std::string> engine = compile(group, {"sm_90a"}, folder, true);
    if (!engine)
      return engine.status();
    fs::path own = folder / group.name;
    fs::create_directories(own);
    test::EmulatedKernels kernels;
    if (std::string why = kernels.build(folder / (group.name + ".dump"), own, kHostOptions, folder / kDeviceLibrary);
        !why.empty())
      return internalError(why, group.name);
    std::lock_guard<std::mutex> lock(gpu);
    std::string failure;
    std::string why = kernels.install(
        [&](const std::string &name, const std::string &message) { failure += name + ": " + message + "\n"; });
    Result<Results> got = why.empty() ? byEngine(group, *engine, "fake:0", "sm_90a")
                                      : Result<Results>(internalError(why, group.name));
    return failure.empty() ? std::move(got) : Result<Results>(runtimeError(failure, group.name));
  }

  int finish(double seconds) {
    // Cases of paths that this run has.
    std::set<std::string> paths;
    for (const auto &[path, name] : seen)
      paths.insert(path);
    if (options.filter.empty())
      for (const auto &[key, ulp] : exceptions)
        if (paths.count(key.first) && !seen.count(key))
          fail(key.first, key.second, "is listed in exceptions.tsv, but there is no such case");
    int all = 0;
    for (const auto &[path, count] : passed) {
      std::printf("%-10s %5d cases as the reference has them\n", path.c_str(), count);
      all += count;
    }
    if (options.device.empty() && !__builtin_cpu_supports("x86-64-v4"))
      std::printf("x86-64-v4: this processor has no AVX-512\n");
    std::printf("%zu differ as exceptions.tsv explains\n", excepted.size());
    std::printf("%.1f s\n%d passed, %d failed\n", seconds, all, failed);
    return failed ? 1 : 0;
  }
};

} // namespace

int main(int argc, char **argv) {
  Sweep sweep;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.starts_with("--device="))
      sweep.options.device = argument.substr(9);
    else if (argument.starts_with("--filter="))
      sweep.options.filter = argument.substr(9);
    else {
      std::fprintf(stderr, "usage: %s [--device=cuda:0] [--filter=TEXT of a group's name]\n", argv[0]);
      return 2;
    }
  }
  // Emulated kernels need no code for a GPU: a stand-in makes none, in no time.
  auto begin = std::chrono::steady_clock::now();
  char name[] = "/tmp/lathe-special-XXXXXX";
  sweep.folder = mkdtemp(name);
  if (sweep.options.device.empty()) {
    setenv("LATHE_NVRTC", LATHE_FAKE_NVRTC, 1);
    if (std::string why = test::EmulatedKernels::precompile(sweep.folder / kDeviceLibrary, kHostOptions);
        !why.empty()) {
      std::printf("%s\n0 passed, 1 failed\n", why.c_str());
      return 1;
    }
  }
  std::vector<Group> groups;
  for (Group &group : makeGroups())
    if (group.name.find(sweep.options.filter) != std::string::npos)
      groups.push_back(std::move(group));
  inParallel(groups.size(), [&](size_t i) { sweep.run(groups[i]); });
  fs::remove_all(sweep.folder);
  return sweep.finish(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}
