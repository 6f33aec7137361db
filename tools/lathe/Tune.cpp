//===- Tune.cpp - lathe tune ----------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a model with each tile that its matrix products could take on a GPU and
// writes down which was the fastest for each (Lock.h).
//
//===----------------------------------------------------------------------===//
#include "Inputs.h"
#include "Verbs.h"

#include "lathe/codegen/Config.h"
#include "lathe/compiler/Lock.h"
#include "lathe/support/Files.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

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

/// Families whose tiles are interchangeable.
bool isTile(const std::string &config) {
  for (const char *family : {"gemm.pingpong.", "gemm.cooperative.", "gemm.split."})
    if (config.starts_with(family) && config.find("promoted") == std::string::npos)
      return true;
  return false;
}

std::vector<std::string> candidates() {
  std::vector<std::string> names;
  auto add = [&](const std::string &family, int rows, std::initializer_list<int> columns,
                 const std::string &more = "") {
    for (int n : columns)
      names.push_back("gemm." + family + ".m" + std::to_string(rows) + ".n" + std::to_string(n) +
                      more);
  };
  add("pingpong", 128, {64, 96, 112, 128, 160, 192});
  add("cooperative", 128, {64, 96, 112, 128, 192, 224, 256});
  add("pingpong", 64, {32, 48, 64, 96, 128, 192, 224});
  add("split", 64, {32, 64, 96, 128, 224});
  for (const char *cluster : {".c2", ".c4", ".c8"})
    add("split", 64, {32, 48, 64, 96, 128, 224}, cluster);
  return names;
}

/// One run after another for some time, with a row a kernel.
Result<std::map<std::string, Measured>> measure(const TuneOptions &options, const Model &model) {
  Result<Session> session = Session::open(model, options.session);
  if (!session)
    return session.status();
  std::vector<std::string> wanted;
  if (!options.entry.empty())
    wanted.push_back(options.entry);
  Result<std::vector<std::string>> entries = expandEntries(wanted, model);
  if (!entries)
    return entries.status();
  Result<EntryRun> run = prepareRun(options.inputs, model, *session, entries->front(), 0);
  if (!run)
    return run.status();
  std::map<std::string, int64_t> starts = session->stateLengths(*run->plan);
  auto once = [&]() -> Status {
    std::vector<lathe_tensor> outputs;
    LATHE_RETURN_IF_ERROR(session->run(*run->plan, run->inputs, outputs));
    for (const auto &[name, length] : starts)
      LATHE_RETURN_IF_ERROR(
          toStatus(lathe_state_truncate(session->context(), name.c_str(), length)));
    return okStatus();
  };
  for (int i = 0; i < 3; ++i)
    LATHE_RETURN_IF_ERROR(once());
  lathe_context_profile(session->context(), 1);
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10 || std::chrono::steady_clock::now() - begin <
                                std::chrono::duration<double>(options.seconds);
       ++i)
    LATHE_RETURN_IF_ERROR(once());
  size_t count = 0;
  const lathe_profile_row *rows = lathe_context_profile_rows(session->context(), &count);
  std::map<std::string, Measured> times;
  for (size_t i = 0; i < count; ++i)
    if (rows[i].calls && rows[i].kernel && rows[i].config)
      times[rows[i].kernel] = {rows[i].config, rows[i].seconds / double(rows[i].calls) * 1e6};
  return times;
}

Status tune(TuneOptions options, const std::string &path) {
  LATHE_RETURN_IF_ERROR(completeTarget(options.compile, options.session.device));
  if (options.compile.targets.size() != 1)
    return usageError("measures for one target at a time", "--target");
  Lock lock;
  lock.target = options.compile.targets[0];
  lock.device = options.session.device;
  Result<std::string> key = lockKey(path, options.compile);
  if (!key)
    return key.status();
  lock.model = *key;
  Result<Model> model = Model::open(path, options.compile, options.session.device);
  if (!model)
    return model.status();
  Result<std::map<std::string, Measured>> plain = measure(options, *model);
  if (!plain)
    return plain.status();
  std::map<std::string, Measured> best;
  for (const auto &[name, measured] : *plain)
    if (isTile(measured.config))
      best[name] = measured;
  std::fprintf(stderr, "%zu of %zu kernels have tiles to choose from\n", best.size(),
               plain->size());
  for (const std::string &candidate : best.empty() ? std::vector<std::string>() : candidates()) {
    CompileOptions compile = options.compile;
    for (const auto &[name, measured] : best)
      compile.configs.push_back(name + "=" + candidate);
    Result<Model> tried = Model::open(path, compile, options.session.device);
    if (!tried)
      continue; // some kernel cannot run so
    Result<std::map<std::string, Measured>> times = measure(options, *tried);
    if (!times)
      return times.status();
    for (auto &[name, measured] : best) {
      auto it = times->find(name);
      if (it != times->end() && it->second.microseconds < measured.microseconds)
        measured = it->second;
    }
  }
  for (const auto &[name, measured] : best) {
    const Measured &before = plain->at(name);
    lock.kernels.push_back({name, measured.config, measured.microseconds, before.config,
                            before.microseconds});
    std::printf("%-32s %-44s %9.2f us, by itself %-44s %9.2f us\n", name.c_str(),
                measured.config.c_str(), measured.microseconds, before.config.c_str(),
                before.microseconds);
  }
  return writeFileAtomically(options.output, lock.str());
}

} // namespace

Status tuneVerb(const std::vector<std::string> &arguments) {
  Parser parser("tune", "MODEL -o FILE.lock --device cuda:0 [OPTIONS]",
                "Measures on a GPU which tile is the fastest for each matrix product of MODEL, at "
                "the sizes of one run, and writes FILE.lock for `lathe compile --lock`: the same "
                "file gives the same engine everywhere.");
  TuneOptions options;
  options.session.device = "cuda:0";
  parser.add("o", "FILE", "The lockfile", options.output);
  parser.add("entry", "NAME", "The entry to run (default: the first)", options.entry);
  parser.add("device", "cuda:0", "Where to measure (default: cuda:0)", options.session.device);
  parser.add("seconds", "S", "How long to run with each tile (default: 0.2)", options.seconds);
  options.inputs.addTo(parser);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.example("lathe tune model.onnx -o model.lock");
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
