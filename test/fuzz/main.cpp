//===- main.cpp - lathe-fuzz: random graphs in several ways ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   lathe-fuzz --seeds=FIRST:COUNT [--reduce=FOLDER]
//   lathe-fuzz FOLDER...
//
// test/fuzz/README.md says what is compared and how to go on from a failure.
//
//===----------------------------------------------------------------------===//
#include "ModelFolder.h"
#include "Reduce.h"
#include "Worker.h"

#include "Options.h"

#include "lathe/support/Files.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <unistd.h>

using namespace lathe;
using namespace lathe::fuzz;
namespace fs = std::filesystem;

namespace {

struct Options {
  WorkOptions work;
  uint64_t first = 1, count = 0;
  std::string log, reduced, known, save;
  bool verbose = false;
};

/// Failures that are known: seed, kind, reason.
struct Known {
  std::string kind, reason;
};

Result<std::map<uint64_t, Known>> readKnown(const std::string &path) {
  std::map<uint64_t, Known> known;
  if (path.empty())
    return known;
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    size_t a = line.find('\t'), b = a == std::string::npos ? a : line.find('\t', a + 1);
    if (line.empty() || line[0] == '#')
      continue;
    if (b == std::string::npos)
      return invalidError("is no row of seed, kind and reason", path + ": " + line);
    known[std::strtoull(line.c_str(), nullptr, 10)] = {line.substr(a + 1, b - a - 1), line.substr(b + 1)};
  }
  return known;
}

/// Results of all nodes as the reference has them; none where it crashes.
std::vector<std::pair<std::string, HostTensor>> evaluateAll(const TestModel &model, const WorkOptions &options) {
  std::vector<std::string> names;
  TestModel all = withAllResults(model, names);
  std::string folder = (fs::temp_directory_path() / ("lathe-fuzz-values-" + std::to_string(getpid()))).string();
  std::vector<std::pair<std::string, HostTensor>> values;
  std::string answer = inChild(options.deadline, [&]() -> std::string {
    if (!save(all, folder).ok())
      return "";
    auto results = referenceResults(folder + "/model.onnx", all.inputs);
    if (!results)
      return "";
    // Results come back as the inputs of a model without nodes.
    TestModel carrier;
    carrier.bytes = all.bytes;
    carrier.inputs = std::move(*results);
    return save(carrier, folder).ok() ? "saved" : "";
  });
  if (answer == "saved")
    for (size_t i = 0; i < names.size(); ++i)
      if (auto tensor = loadTensor(folder, i))
        values.emplace_back(names[i], std::move(*tensor));
  std::error_code error;
  fs::remove_all(folder, error);
  return values;
}

Status reduceSeed(uint64_t seed, const Verdict &verdict, const Options &options) {
  constexpr int kTries = 150;
  Result<TestModel> model = generate(seed);
  if (!model)
    return model.status();
  WorkOptions work = options.work;
  work.deadline = std::min(work.deadline, 20);
  work.check.meshSeed = seed;
  auto fails = [&](const TestModel &candidate) { return checkAside(candidate, work).kind() == verdict.kind(); };
  TestModel small = reduce(*model, fails, [&](const TestModel &m) { return evaluateAll(m, work); }, kTries);
  std::string folder = options.reduced + "/seed-" + std::to_string(seed);
  LATHE_RETURN_IF_ERROR(save(small, folder));
  Verdict left = checkAside(small, work);
  std::string text = "seed " + std::to_string(seed) + ", " + std::to_string(model->nodes) + " nodes, of which " +
                     std::to_string(small.nodes) + " are left\n" + left.kind() + "\n" + left.detail +
                     "\nrepeat: build/bin/lathe-fuzz --seeds=" + std::to_string(seed) + ":1\n        build/bin/lathe-fuzz " +
                     folder + "\n";
  LATHE_RETURN_IF_ERROR(writeFileAtomically(folder + "/failure.txt", text));
  std::printf("  reduced to %lld nodes: %s\n", static_cast<long long>(small.nodes), folder.c_str());
  return okStatus();
}

std::string oneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

Result<bool> runSeeds(const Options &options) {
  auto known = readKnown(options.known);
  if (!known)
    return known.status();
  auto begin = std::chrono::steady_clock::now();
  std::map<uint64_t, Verdict> failed;
  std::map<std::string, int> refusals;
  int64_t passed = 0, nodes = 0, elements = 0, open = 0, symbolic = 0, divided = 0;
  std::string log;
  checkSeeds(options.first, options.count, options.work, [&](const SeedResult &result) {
    const Verdict &v = result.verdict;
    nodes += result.nodes;
    elements += v.elements;
    open += v.open;
    if (!v.refused.empty())
      ++refusals[v.refused];
    auto listed = known->find(result.seed);
    bool expected = listed != known->end() && listed->second.kind == v.kind();
    if (v.passed()) {
      symbolic += v.refused.empty();
      divided += v.collectives > 0;
      ++passed;
    } else {
      failed[result.seed] = v;
    }
    if (options.verbose || (!v.passed() && !expected)) {
      std::printf("seed %llu: %s%s  (%lld nodes, %.1f s)\n", static_cast<unsigned long long>(result.seed),
                  v.passed() ? "passed" : (v.kind() + "\n  ").c_str(), oneLine(v.detail).c_str(),
                  static_cast<long long>(result.nodes), result.seconds);
      std::fflush(stdout);
    }
    if (!v.passed())
      log += std::to_string(result.seed) + "\t" + oneLine(v.kind()) + "\t" + oneLine(v.detail) + "\n";
  });
  int64_t wrong = 0, expected = 0;
  for (const auto &[seed, verdict] : failed) {
    auto listed = known->find(seed);
    if (listed != known->end() && listed->second.kind == verdict.kind()) {
      ++expected;
      continue;
    }
    ++wrong;
    if (!options.reduced.empty())
      if (Status status = reduceSeed(seed, verdict, options); !status.ok())
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), status.str().c_str());
  }
  for (const auto &[seed, what] : *known)
    if (seed >= options.first && seed < options.first + options.count && !failed.count(seed)) {
      std::printf("seed %llu passes: take it out of %s (%s)\n", static_cast<unsigned long long>(seed),
                  options.known.c_str(), what.reason.c_str());
      ++wrong, --passed;
    }
  const bool isMesh = options.work.check.mesh != CheckOptions::Mesh::None;
  for (const auto &[text, count] : refusals)
    std::printf("no %s of %d: %s\n", isMesh ? "mesh" : "symbolic engine", count, text.c_str());
  if (!options.log.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.log, log));
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("seeds %llu to %llu in %.0f s: %lld nodes, %lld results, of which rounding decides %.1f %%; %lld %s, "
              "%lld known to fail\n",
              static_cast<unsigned long long>(options.first),
              static_cast<unsigned long long>(options.first + options.count - 1), seconds,
              static_cast<long long>(nodes), static_cast<long long>(elements),
              elements ? 100.0 * double(open) / double(elements) : 0.0, static_cast<long long>(isMesh ? divided : symbolic),
              isMesh ? "with collectives" : "in all four ways", static_cast<long long>(expected));
  std::printf("%lld passed, %lld failed\n", static_cast<long long>(passed + expected), static_cast<long long>(wrong));
  return wrong == 0;
}

Result<bool> runFolders(const std::vector<std::string> &folders, const Options &options) {
  int passed = 0, wrong = 0;
  for (const std::string &folder : folders) {
    Result<TestModel> model = load(folder);
    if (!model)
      return model.status();
    Verdict v = checkAside(*model, options.work);
    ++(v.passed() ? passed : wrong);
    std::printf("%s: %s\n", folder.c_str(), v.passed() ? "passed" : (v.kind() + "\n  " + v.detail).c_str());
    if (!v.refused.empty())
      std::printf("  no symbolic engine: %s\n", v.refused.c_str());
  }
  std::printf("%d passed, %d failed\n", passed, wrong);
  return wrong == 0;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  options.work.jobs = int(std::max(1u, std::thread::hardware_concurrency()));
  cli::Parser parser("-fuzz", "[--seeds=FIRST:COUNT | FOLDER...] [OPTIONS]",
                     "Compares random models: an optimized engine, one without optimization and one with symbolic "
                     "sizes against the reference. FOLDER: a model with its inputs, as --reduce writes it.");
  parser.add("seeds", "FIRST:COUNT", "Consecutive seeds", [&](const std::string &value) {
    size_t colon = value.find(':');
    options.first = std::strtoull(value.c_str(), nullptr, 10);
    options.count = colon == std::string::npos ? 1 : std::strtoull(value.c_str() + colon + 1, nullptr, 10);
    return options.count ? okStatus() : usageError("wants FIRST:COUNT, not '" + value + "'", "--seeds");
  });
  parser.add("reduce", "FOLDER", "Make failing models small and save them here", options.reduced);
  parser.add("save", "FOLDER", "Only save the models of the seeds here", options.save);
  parser.add("known", "FILE", "Failures that are known: seed, kind, reason; others fail, and so do those that pass",
             options.known);
  parser.add("o", "FILE", "Write the failures here: seed, kind, detail", options.log);
  parser.add("target", "NAME", "Compile for this (default: x86-64-v3)", options.work.check.target);
  parser.add("mesh", "reference|compiled",
             "Instead divide each model among 2, 3, 4 or 8 ranks, its ops in ways drawn at random, and run it op by op "
             "through the reference or as an engine",
             [&](const std::string &value) {
               options.work.check.mesh = value == "compiled" ? CheckOptions::Mesh::Compiled : CheckOptions::Mesh::Reference;
               return value == "reference" || value == "compiled"
                          ? okStatus()
                          : usageError("wants reference or compiled, not '" + value + "'", "--mesh");
             });
  parser.add("mesh-seed", "N", "Of folders: the seed that decides how their ops are divided (default: 0)",
             [&](const std::string &value) {
               options.work.check.meshSeed = std::strtoull(value.c_str(), nullptr, 10);
               return okStatus();
             });
  parser.add("jobs", "N", "Processes (default: all cores)", options.work.jobs);
  parser.add("deadline", "SECONDS", "What one model may take (default: 60)", options.work.deadline);
  parser.flag("verbose", "Print each seed", options.verbose);
  parser.example("lathe-fuzz --seeds=1:300");
  parser.example("lathe-fuzz --seeds=1:100000 --mesh=reference");
  parser.example("lathe-fuzz --seeds=17:1 --reduce=build/fuzz");
  parser.example("lathe-fuzz build/fuzz/seed-17");
  bool helpWanted = false;
  Result<std::vector<std::string>> folders = parser.parse({argv + 1, argv + argc}, helpWanted);
  if (folders && helpWanted) {
    std::fputs(parser.help().c_str(), stdout);
    return 0;
  }
  Status status = folders.status();
  bool good = true;
  if (status.ok() && folders->empty() == (options.count == 0))
    status = usageError("wants --seeds=FIRST:COUNT or folders", "lathe-fuzz");
  if (status.ok() && !options.save.empty()) {
    for (uint64_t seed = options.first; status.ok() && seed < options.first + options.count; ++seed) {
      Result<TestModel> model = generate(seed);
      status = model ? save(*model, options.save + "/seed-" + std::to_string(seed)) : model.status();
    }
  } else if (status.ok()) {
    Result<bool> result = options.count ? runSeeds(options) : runFolders(*folders, options);
    status = result.status();
    good = result && *result;
  }
  if (!status.ok()) {
    std::fprintf(stderr, "lathe-fuzz: %s\n", status.str().c_str());
    return int(status.code());
  }
  return good ? 0 : 1;
}
