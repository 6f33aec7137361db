//===- Tune.cpp - lathe tune ----------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a model with each configuration that its kernels could take, on a GPU the tiles
// of its products, and writes down which was the fastest for each (Lock.h).
//
//===----------------------------------------------------------------------===//
#include "Inputs.h"
#include "Verbs.h"

#include "lathe/codegen/CpuConfigs.h"
#include "lathe/codegen/Skeleton.h"
#include "lathe/codegen/Target.h"
#include "lathe/compiler/Lock.h"
#include "lathe/support/Files.h"
#include "lathe/support/Parallel.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

namespace lathe::cli {
namespace {

struct TuneOptions {
  CompileOptions compile;
  InputOptions inputs;
  SessionOptions session;
  std::string output, entry;
  double seconds = 0.2;
};

/// Microseconds and configuration of each kernel of a run, by name.
struct Measured {
  std::string config;
  double microseconds = 0;
};

using Times = std::map<std::string, Measured>;

/// Names of configurations that a kernel of this one could have as well; empty: there are none.
std::vector<std::string> tilesFor(const std::string &config, const Target &target) {
  Result<KernelConfig> parsed = KernelConfig::parse(config);
  if (parsed && !target.isCuda())
    return cpuConfigsBeside(*parsed);
  return parsed && parsed->form->tiles ? parsed->form->tiles() : std::vector<std::string>();
}

/// Compiles on all cores, in order, no more ahead than there are cores: engines of large models
/// take memory.
class Compiler {
public:
  Compiler(const std::string &path, std::vector<CompileOptions> wanted)
      : path(path), wanted(std::move(wanted)), ready(this->wanted.size()) {
    ahead = std::max<size_t>(2, usableCores());
    for (size_t t = 0; t < std::min(ahead, this->wanted.size()); ++t)
      threads.emplace_back([this] { work(); });
  }
  ~Compiler() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      next = wanted.size();
    }
    changed.notify_all();
    for (std::thread &thread : threads)
      thread.join();
  }
  /// Waits for the one of this number; each once, in order.
  Result<std::string> take(size_t i) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return ready[i].has_value(); });
    Result<std::string> bytes = std::move(*ready[i]);
    ready[i] = Result<std::string>(std::string());
    taken = i + 1;
    lock.unlock();
    changed.notify_all();
    return bytes;
  }

private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return next >= wanted.size() || next < taken + ahead; });
      if (next >= wanted.size())
        return;
      size_t i = next++;
      lock.unlock();
      Result<CompileResult> made = compileModel(path, wanted[i]);
      lock.lock();
      ready[i] = made ? Result<std::string>(std::move(made->bytes)) : made.status();
      changed.notify_all();
    }
  }

  std::string path;
  std::vector<CompileOptions> wanted;
  std::vector<std::optional<Result<std::string>>> ready;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0, taken = 0, ahead = 2;
};

/// One run after another for some time, with a row a kernel.
Result<Times> measure(const TuneOptions &options, const Model &model, const Session &session) {
  std::vector<std::string> wanted;
  if (!options.entry.empty())
    wanted.push_back(options.entry);
  Result<std::vector<std::string>> entries = expandEntries(wanted, model);
  if (!entries)
    return entries.status();
  Result<EntryRun> run = prepareRun(options.inputs, model, session, entries->front(), 0);
  if (!run)
    return run.status();
  std::map<std::string, int64_t> starts = session.stateLengths(*run->plan);
  auto once = [&]() -> Status {
    std::vector<lathe_tensor> outputs;
    LATHE_RETURN_IF_ERROR(session.run(*run->plan, run->inputs, outputs));
    return session.truncateStates(starts);
  };
  for (int i = 0; i < 3; ++i)
    LATHE_RETURN_IF_ERROR(once());
  lathe_context_profile(session.context(), 1);
  // The least of several parts: another program on the device slows some of them down.
  constexpr int kParts = 5, kRuns = 4;
  Times times;
  std::map<std::string, std::pair<double, uint64_t>> before;
  for (int part = 0; part < kParts; ++part) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns || std::chrono::steady_clock::now() - begin <
                                     std::chrono::duration<double>(options.seconds / kParts);
         ++i)
      LATHE_RETURN_IF_ERROR(once());
    size_t count = 0;
    const lathe_profile_row *rows = lathe_context_profile_rows(session.context(), &count);
    std::map<std::string, std::pair<double, uint64_t>> now; // seconds and calls since the beginning
    std::map<std::string, std::string> configs;
    for (size_t i = 0; i < count; ++i)
      if (rows[i].calls && rows[i].kernel && rows[i].config) {
        now[rows[i].kernel].first += rows[i].seconds;
        now[rows[i].kernel].second += rows[i].calls;
        configs[rows[i].kernel] = rows[i].config;
      }
    for (const auto &[name, sum] : now) {
      auto &[seconds, calls] = before[name];
      double mean = (sum.first - seconds) / double(sum.second - calls) * 1e6;
      auto [it, isNew] = times.try_emplace(name, Measured{configs[name], mean});
      it->second.microseconds = std::min(it->second.microseconds, mean);
    }
    before = std::move(now);
  }
  lathe_context_profile(session.context(), 0);
  return times;
}

Status write(Lock &lock, const TuneOptions &options, const Times &plain, const Times &best) {
  lock.kernels.clear();
  for (const auto &[name, measured] : best) {
    const Measured &before = plain.at(name);
    lock.kernels.push_back(
        {name, measured.config, measured.microseconds, before.config, before.microseconds});
  }
  return writeFileAtomically(options.output, lock.str());
}

/// The fastest of all tiles by one measurement each are measured once more, in turn with the first
/// choices: the least of many is partly luck.
Status confirm(const TuneOptions &options, const std::string &path, const Model &model,
               const Session &session, const Times &plain, Times &best) {
  CompileOptions compile = options.compile;
  for (const auto &[name, measured] : best)
    compile.configs.push_back(name + "=" + measured.config);
  compile.cache = false;
  Result<CompileResult> compiled = compileModel(path, compile);
  if (!compiled)
    return compiled.status();
  Result<Model> tried = Model::fromBytes(path, std::move(compiled->bytes));
  if (!tried)
    return tried.status();
  Result<Session> other = Session::open(*tried, options.session);
  if (!other)
    return other.status();
  for (int round = 0; round < 2; ++round) {
    Result<Times> before = measure(options, model, session);
    if (!before)
      return before.status();
    Result<Times> after = measure(options, *tried, *other);
    if (!after)
      return after.status();
    for (auto &[name, measured] : best) {
      auto was = before->find(name), is = after->find(name);
      if (was != before->end() && is != after->end() &&
          is->second.microseconds >= was->second.microseconds)
        measured = plain.at(name);
    }
  }
  return okStatus();
}

Status tune(TuneOptions options, const std::string &path) {
  auto begin = std::chrono::steady_clock::now();
  auto say = [&](const std::string &text) {
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::fprintf(stderr, "%6.1f s  %s\n", seconds, text.c_str());
  };
  options.compile = options.inputs.fixing(options.compile, path);
  LATHE_RETURN_IF_ERROR(completeTarget(options.compile, options.session.device));
  if (options.compile.targets.size() != 1)
    return usageError("measures for one target at a time", "--target");
  Lock lock;
  Result<Target> target = Target::parse(options.compile.targets[0]);
  if (!target)
    return Status(ErrorCode::Usage, target.status().message(), "--target");
  if (target->isCuda() == (options.session.device == "cpu"))
    return usageError("cannot measure for " + target->name + " on " + options.session.device, "--device");
  lock.target = target->name; // of `native` what it stands for
  lock.device = options.session.device;
  Result<std::string> key = lockKey(path, options.compile);
  if (!key)
    return key.status();
  lock.model = *key;
  Result<Model> model = Model::open(path, options.compile, options.session.device);
  if (!model)
    return model.status();
  // Open until the end, so that the device is.
  Result<Session> session = Session::open(*model, options.session);
  if (!session)
    return session.status();
  Result<Times> plain = measure(options, *model, *session);
  if (!plain)
    return plain.status();
  Times best;
  std::map<std::string, std::vector<std::string>> tiles;
  size_t count = 0;
  for (const auto &[name, measured] : *plain)
    if (std::vector<std::string> names = tilesFor(measured.config, *target); !names.empty()) {
      best[name] = measured;
      count = std::max(count, names.size());
      tiles[name] = std::move(names);
    }
  LATHE_RETURN_IF_ERROR(write(lock, options, *plain, best));
  say(std::to_string(best.size()) + " of " + std::to_string(plain->size()) +
      " kernels have configurations to choose from, " + std::to_string(count) + " at most");
  std::vector<CompileOptions> wanted;
  for (size_t i = 0; i < count; ++i) {
    CompileOptions compile = options.compile;
    compile.cache = false;
    compile.onPhase = nullptr;
    // One that cannot run so stays as it is.
    for (const auto &[name, names] : tiles)
      compile.configs.push_back(name + "=" + (i < names.size() ? names[i] + "," : "") +
                                best[name].config);
    wanted.push_back(std::move(compile));
  }
  Compiler compiler(path, std::move(wanted));
  for (size_t i = 0; i < count; ++i) {
    Result<std::string> bytes = compiler.take(i);
    if (!bytes)
      return bytes.status();
    Result<Model> tried = Model::fromBytes(path, std::move(*bytes));
    if (!tried)
      return tried.status();
    Result<Session> other = Session::open(*tried, options.session);
    if (!other)
      return other.status();
    Result<Times> times = measure(options, *tried, *other);
    if (!times)
      return times.status();
    std::string news;
    for (auto &[name, measured] : best) {
      auto it = times->find(name);
      if (it == times->end() || it->second.microseconds >= measured.microseconds)
        continue;
      if (it->second.config != measured.config)
        news += " " + name + " " + it->second.config;
      measured = it->second;
    }
    say(std::to_string(i + 1) + " of " + std::to_string(count) +
        (news.empty() ? ": nothing faster" : ": faster:" + news));
    // Who ends it early has what was found so far.
    if (!news.empty())
      LATHE_RETURN_IF_ERROR(write(lock, options, *plain, best));
  }
  if (count)
    LATHE_RETURN_IF_ERROR(confirm(options, path, *model, *session, *plain, best));
  LATHE_RETURN_IF_ERROR(write(lock, options, *plain, best));
  for (const LockedKernel &k : lock.kernels)
    std::printf("%-32s %-44s %9.2f us, by itself %-44s %9.2f us\n", k.name.c_str(),
                k.config.c_str(), k.microseconds, k.otherwise.c_str(), k.otherwiseMicroseconds);
  return okStatus();
}

} // namespace

Status tuneVerb(const std::vector<std::string> &arguments) {
  Parser parser("tune", "MODEL -o FILE.lock [--device cuda:0|cpu] [OPTIONS]",
                "Measures which configuration is the fastest for each kernel of MODEL, on a GPU which tile for "
                "each matrix product, at the sizes of one run, and writes FILE.lock for "
                "`lathe compile --lock`: the same "
                "file gives the same engine everywhere.");
  TuneOptions options;
  options.session.device = "cuda:0";
  parser.add("o", "FILE", "The lockfile", options.output);
  parser.add("entry", "NAME", "The entry to run (default: the first)", options.entry);
  parser.add("device", "cuda:0|cpu", "Where to measure (default: cuda:0)", options.session.device);
  parser.add("seconds", "S", "How long to run with each tile (default: 0.2)", options.seconds);
  options.inputs.addTo(parser);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.example("lathe tune model.onnx -o model.lock");
  parser.example("lathe tune model.onnx -o model.lock --device cpu");
  parser.example("lathe compile model.onnx -o model.lathe --target=sm_90a --lock model.lock");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1 || options.output.empty())
    return usageError("wants one model and a file for the choices: -o FILE", "lathe tune");
  reproducer().files.push_back(positional->front());
  reproduceOnCrash(reproducer());
  return tune(std::move(options), positional->front());
}

} // namespace lathe::cli
