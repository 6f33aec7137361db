//===- PlannerBench.cpp - the memory planner on minimalloc's problems -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   lathe-planner-bench fit     A-K at 1048576 and C at its lower bound: seconds (the
//                               median of five), nodes; exit code 1 above the bars
//   lathe-planner-bench lowest  C, D and J below the heights of `fit`, down to the lowest
//                               that is known to be found (minutes)
//   lathe-planner-bench rules   each search rule switched off: what --nodes still solve;
//                               all but the first row without windows, which hide the others
//   lathe-planner-bench check   `fit` without clocks: nodes alone
//
// Options: --problems=DIR --nodes=N --threads=N. Tables are markdown.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/MemoryPlan.h"
#include "lathe/analysis/ProblemCsv.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

using namespace lathe;
using namespace lathe::analysis;

namespace {

constexpr int64_t kCapacity = 1048576, kLowestC = 1039360;
constexpr int64_t kFitNodes = 4'000'000; ///< before a problem counts as unsolved
/// Bars: seconds on one core; nodes of all eleven, which no machine changes.
constexpr double kMostSeconds = 8, kMostSecondsEach = 3, kMostSecondsC = 0.05;
constexpr int64_t kMostNodes = 100'000;

struct Settings {
  std::string folder = LATHE_PLANNER_PROBLEMS;
  PlanOptions options;
};

struct Run {
  bool solved = false;
  Solution plan;
  double seconds = 0;
};

Problem load(const Settings &settings, char name) {
  std::string path = settings.folder + "/" + name + ".1048576.csv";
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Result<CsvProblem> csv = parseProblemCsv(text, path);
  if (!csv) {
    std::fprintf(stderr, "%s\n", csv.status().str().c_str());
    std::exit(2);
  }
  return std::move(csv->problem);
}

/// planMemory validates what it returns; a plan that does not fit is an error.
Run plan(const Problem &problem, const PlanOptions &options, int times) {
  Run run;
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    auto begin = std::chrono::steady_clock::now();
    Result<Solution> solution = planMemory(problem, options);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    run.solved = solution.ok();
    if (!run.solved && solution.status().code() != ErrorCode::Unsupported) {
      std::fprintf(stderr, "%s\n", solution.status().str().c_str());
      std::exit(2);
    }
    if (run.solved)
      run.plan = *solution;
  }
  std::sort(seconds.begin(), seconds.end());
  run.seconds = seconds[seconds.size() / 2];
  return run;
}

int fit(const Settings &settings, bool clocks) {
  PlanOptions options = settings.options;
  options.firstFit = true;
  options.nodes = kFitNodes;
  double total = 0, worst = 0, secondsC = 0;
  int64_t nodes = 0;
  int solved = 0;
  std::printf("| problem | buffers | capacity | solved | nodes |%s\n|---|---|---|---|---|%s\n",
              clocks ? " seconds |" : "", clocks ? "---|" : "");
  auto row = [&](char name, int64_t capacity) {
    Problem problem = load(settings, name);
    problem.capacity = capacity;
    Run run = plan(problem, options, clocks ? 5 : 1);
    std::printf("| %c | %zu | %lld | %s | %lld |", name, problem.buffers.size(),
                static_cast<long long>(capacity), run.solved ? "yes" : "no",
                static_cast<long long>(run.plan.nodes));
    if (clocks)
      std::printf(" %.4f |", run.seconds);
    std::printf("\n");
    return run;
  };
  for (char name = 'A'; name <= 'K'; ++name) {
    Run run = row(name, kCapacity);
    solved += run.solved;
    nodes += run.plan.nodes;
    total += run.seconds;
    worst = std::max(worst, run.seconds);
  }
  Run lowest = row('C', kLowestC);
  secondsC = lowest.seconds;
  std::printf("| A-K | | %lld | %d of 11 | %lld |", static_cast<long long>(kCapacity), solved,
              static_cast<long long>(nodes));
  if (clocks)
    std::printf(" %.4f |", total);
  std::printf("\n");
  bool good = solved == 11 && lowest.solved && nodes <= kMostNodes;
  if (clocks)
    good &= total <= kMostSeconds && worst <= kMostSecondsEach && secondsC <= kMostSecondsC;
  return good ? 0 : 1;
}

/// Heights that plans were found for, from easy to the lowest; a minute each and more.
int lowest(const Settings &settings) {
  struct Target {
    char name;
    int64_t height;
  };
  const Target targets[] = {{'C', kLowestC}, {'D', 1019904}, {'D', 995328}, {'D', 986112},
                            {'J', 1019904},  {'J', 1004544}, {'J', 998400}};
  std::printf("| problem | lower bound | height asked | found | above the bound | nodes | seconds |\n"
              "|---|---|---|---|---|---|---|\n");
  bool all = true;
  for (const Target &target : targets) {
    Problem problem = load(settings, target.name);
    problem.capacity = target.height;
    PlanOptions options = settings.options;
    options.firstFit = true;
    options.nodes = kFitNodes;
    Run run = plan(problem, options, 1);
    int64_t bound = heightLowerBound(problem);
    all &= run.solved;
    std::printf("| %c | %lld | %lld | %s | %.2f %% | %lld | %.1f |\n", target.name,
                static_cast<long long>(bound), static_cast<long long>(target.height),
                !run.solved                 ? "no"
                : run.plan.height == bound ? "optimum"
                                            : "yes",
                100.0 * double(target.height - bound) / double(bound),
                static_cast<long long>(run.plan.nodes), run.seconds);
    std::fflush(stdout);
  }
  return all ? 0 : 1;
}

int rules(const Settings &settings) {
  struct Rule {
    const char *name;
    bool SearchRules::*rule;
  };
  const Rule all[] = {{"(none)", nullptr},
                      {"windows", &SearchRules::windows},
                      {"sections", &SearchRules::sections},
                      {"decomposition", &SearchRules::decomposition},
                      {"propagation", &SearchRules::propagation},
                      {"stackBound", &SearchRules::stackBound},
                      {"dominance", &SearchRules::dominance},
                      {"hatless", &SearchRules::hatless},
                      {"symmetry", &SearchRules::symmetry},
                      {"memo", &SearchRules::memo},
                      {"learning", &SearchRules::learning},
                      {"restarts", &SearchRules::restarts}};
  std::printf("| off | solved | nodes | seconds | unsolved |\n|---|---|---|---|---|\n");
  for (const Rule &rule : all) {
    PlanOptions options = settings.options;
    options.firstFit = true;
    if (rule.rule)
      options.rules.windows = options.rules.*rule.rule = false;
    int solved = 0;
    int64_t nodes = 0;
    double seconds = 0;
    std::string unsolved;
    for (char name = 'A'; name <= 'K'; ++name) {
      Problem problem = load(settings, name);
      problem.capacity = kCapacity;
      Run run = plan(problem, options, 1);
      solved += run.solved;
      nodes += run.solved ? run.plan.nodes : options.nodes;
      seconds += run.seconds;
      if (!run.solved)
        unsolved += name;
    }
    std::printf("| %s | %d | %lld | %.2f | %s |\n", rule.name, solved,
                static_cast<long long>(nodes), seconds, unsolved.c_str());
    std::fflush(stdout);
  }
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  Settings settings;
  settings.options.nodes = 50'000;
  std::string verb = argc > 1 ? argv[1] : "";
  for (int i = 2; i < argc; ++i) {
    std::string text = argv[i];
    auto value = [&](const char *name) {
      std::string prefix = std::string("--") + name + "=";
      return text.rfind(prefix, 0) == 0 ? text.c_str() + prefix.size() : nullptr;
    };
    if (const char *v = value("problems"))
      settings.folder = v;
    else if (const char *v = value("nodes"))
      settings.options.nodes = std::atoll(v);
    else if (const char *v = value("threads"))
      settings.options.threads = std::atoi(v);
    else
      verb.clear();
  }
  if (verb == "fit" || verb == "check")
    return fit(settings, verb == "fit");
  if (verb == "lowest")
    return lowest(settings);
  if (verb == "rules")
    return rules(settings);
  std::fprintf(stderr, "usage: lathe-planner-bench fit|check|lowest|rules [--problems=DIR] "
                       "[--nodes=N] [--threads=N]\n");
  return 2;
}
