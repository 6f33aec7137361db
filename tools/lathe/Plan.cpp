//===- Plan.cpp - lathe plan ----------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a memory problem, plans, checks the plan and writes it. Nothing is written
// before all of it has worked.
//
//===----------------------------------------------------------------------===//
#include "Results.h"
#include "Verbs.h"

#include "lathe/analysis/MemoryDrawing.h"
#include "lathe/analysis/PlanValidator.h"
#include "lathe/analysis/ProblemCsv.h"
#include "lathe/support/Files.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace lathe::cli {
namespace {

namespace json = llvm::json;

struct PlanVerbOptions {
  std::string svg;
  int64_t capacity = INT64_MAX;
  analysis::PlanOptions plan;
  bool asJson = false;
};

/// The planner's error, with the names of buffers that do not fit together.
Status explain(const Status &status, const analysis::CsvProblem &source,
               const analysis::PlanOptions &options) {
  if (status.code() != ErrorCode::Unsupported)
    return status;
  Result<std::optional<analysis::ConflictingSet>> set =
      analysis::findConflictingSet(source.problem, options);
  if (!set || !*set)
    return status;
  std::vector<std::string> names;
  int64_t sum = 0;
  for (int b : (*set)->buffers) {
    names.push_back(source.ids[size_t(b)]);
    sum += source.problem.buffers[size_t(b)].size;
  }
  return Status(status.code(),
                status.message() + "; these " + std::to_string(names.size()) + " buffers of " +
                    std::to_string(sum) + " bytes do not fit together" +
                    ((*set)->smallest  ? ", and no fewer do not"
                     : (*set)->minimal ? " (any of them left out, the others do; whether there "
                                         "is a set of fewer is open)"
                                       : "") +
                    ": " + joined(names, 200),
                status.location());
}

std::string asJson(const std::string &path, const analysis::CsvProblem &source,
                   const analysis::Solution &solution, double milliseconds,
                   double cpuMilliseconds) {
  json::Array buffers;
  for (size_t i = 0; i < source.ids.size(); ++i)
    buffers.push_back(json::Object{{"id", json::fixUTF8(source.ids[i])},
                                   {"size", source.problem.buffers[i].size},
                                   {"offset", solution.offsets[i]}});
  json::Object result{{"file", json::fixUTF8(path)},
                      {"height", solution.height},
                      {"lower_bound", solution.lowerBound},
                      {"optimal", solution.optimal()},
                      {"method", solution.method},
                      {"nodes", solution.nodes},
                      {"milliseconds", milliseconds},
                      {"cpu_milliseconds", cpuMilliseconds},
                      {"buffers", std::move(buffers)}};
  return llvm::formatv("{0:2}\n", json::Value(std::move(result))).str();
}

std::string asSvg(const std::string &path, const analysis::CsvProblem &source,
                  const analysis::Solution &solution) {
  analysis::Drawing drawing;
  drawing.title = path + ": " + std::to_string(source.ids.size()) + " buffers in " +
                  std::to_string(solution.height) + " bytes, at least " +
                  std::to_string(solution.lowerBound);
  drawing.height = solution.height;
  for (size_t i = 0; i < source.ids.size(); ++i) {
    const analysis::Buffer &b = source.problem.buffers[i];
    drawing.buffers.push_back({source.ids[i], b.begin, b.end, solution.offsets[i], b.size});
  }
  return analysis::drawSvg(drawing);
}

Status execute(PlanVerbOptions options, const std::string &path) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  Result<analysis::CsvProblem> source = analysis::parseProblemCsv(*text, path);
  if (!source)
    return source.status();
  source->problem.capacity = options.capacity;
  std::clock_t cpuBegin = std::clock();
  auto begin = std::chrono::steady_clock::now();
  Result<analysis::Solution> solution = analysis::planMemory(source->problem, options.plan);
  double milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  double cpuMilliseconds = 1e3 * double(std::clock() - cpuBegin) / CLOCKS_PER_SEC;
  if (!solution)
    return explain(solution.status(), *source, options.plan);
  if (Status valid = analysis::validatePlan(source->problem, *solution); !valid.ok())
    return internalError("the plan is wrong: " + valid.message(), valid.location());
  if (!options.svg.empty())
    LATHE_RETURN_IF_ERROR(writeFileAtomically(options.svg, asSvg(path, *source, *solution)));
  std::string out = options.asJson ? asJson(path, *source, *solution, milliseconds,
                                            cpuMilliseconds)
                                   : analysis::solutionCsv(*source, *solution);
  std::fwrite(out.data(), 1, out.size(), stdout);
  if (std::fflush(stdout) != 0)
    return runtimeError("the result cannot be written", "standard output");
  if (!options.asJson)
    std::fprintf(stderr, "%s: %zu buffers in %lld bytes, %s %lld; %s, %.1f ms\n", path.c_str(),
                 source->ids.size(), static_cast<long long>(solution->height),
                 solution->optimal() ? "the optimum, as the lower bound is" : "lower bound",
                 static_cast<long long>(solution->lowerBound), solution->method.c_str(),
                 milliseconds);
  return okStatus();
}

Parser::Setter number(int64_t &into, int64_t least) {
  return [&into, least](const std::string &text) {
    const char *end = text.data() + text.size();
    auto [stop, code] = std::from_chars(text.data(), end, into);
    if (code != std::errc() || stop != end || into < least)
      return usageError("wants a number from " + std::to_string(least) + " on", "'" + text + "'");
    return okStatus();
  };
}

} // namespace

Status planVerb(const std::vector<std::string> &arguments) {
  Parser parser("plan", "PROBLEM.csv [OPTIONS]",
                "Packs buffers with known lifetimes into the smallest arena. The problem is CSV as "
                "minimalloc reads it (id,lower,upper,size, and alignment, gaps, alias, space, "
                "offset if there are any); the same lines with a column offset go to standard "
                "output. `lathe compile --dump-dir` writes the problems of a model.");
  PlanVerbOptions options;
  parser.add("capacity", "BYTES", "Fail when the arena is larger, and name buffers that do not fit",
             number(options.capacity, 0));
  parser.add("nodes", "N",
             "Work of the exact search, in nodes (0: none; default: a tenth of a second, more for "
             "long problems and for a capacity)",
             number(options.plan.nodes, 0));
  parser.add("threads", "N", "Threads of the exact search; the plan is the same", options.plan.threads);
  parser.add("svg", "FILE", "Draw the buffers over time", options.svg);
  parser.flag("json", "Print JSON instead of CSV: height, lower bound, method, offsets",
              options.asJson);
  parser.example("lathe plan problem.csv > planned.csv");
  parser.example("lathe plan problem.csv --capacity=1048576 --svg=plan.svg");
  parser.example("lathe compile model.onnx -o model.lathe --dump-dir=dump; "
                 "lathe plan dump/memory/x86-64-v3.main.csv");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1)
    return usageError("wants one problem; `lathe plan --help` has examples", "lathe plan");
  if (options.plan.threads < 1)
    return usageError("wants at least one thread", "--threads");
  reproducer().files.push_back(positional->front());
  return execute(options, positional->front());
}

} // namespace lathe::cli
