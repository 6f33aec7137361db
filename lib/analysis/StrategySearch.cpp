//===- StrategySearch.cpp - one choice for each op, at least cost ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/analysis/StrategySearch.h"

#include "Elimination.h"

#include <cmath>

namespace lathe::analysis {

/// Passes where tables are too large: what takes longer gains little (test/perf/planner).
constexpr int kPasses = 120;

double strategyCost(const StrategyProblem &problem, const std::vector<int> &choices) {
  double sum = 0;
  for (size_t op = 0; op < choices.size(); ++op)
    sum += problem.costs[op][choices[op]];
  for (const StrategyProblem::Pair &pair : problem.pairs)
    sum += pair.costs[choices[pair.a] * problem.costs[pair.b].size() + choices[pair.b]];
  return sum;
}

Status checkProblem(const StrategyProblem &problem) {
  const int count = int(problem.costs.size());
  for (const std::vector<double> &costs : problem.costs)
    if (costs.empty())
      return invalidError("an op has no choice");
  for (const StrategyProblem::Pair &pair : problem.pairs)
    if (pair.a < 0 || pair.b < 0 || pair.a >= count || pair.b >= count || pair.a == pair.b ||
        pair.costs.size() != problem.costs[pair.a].size() * problem.costs[pair.b].size())
      return invalidError("a pair of ops has a table of another size");
  return okStatus();
}

/// All memory is free.
static StrategyMemory freeMemory(const StrategyProblem &problem) {
  StrategyMemory memory;
  memory.lifetimes.resize(problem.costs.size());
  for (const std::vector<double> &costs : problem.costs)
    memory.bytes.emplace_back(costs.size());
  memory.limit = 1;
  return memory;
}

Result<StrategySolution> searchStrategies(const StrategyProblem &problem, size_t maxTable) {
  LATHE_RETURN_IF_ERROR(checkProblem(problem));
  StrategySolution solution;
  if (problem.costs.empty())
    return solution;
  const StrategyMemory memory = freeMemory(problem);
  Result<StrategyGraph> graph = StrategyGraph::build(problem, memory);
  if (!graph)
    return unsupportedError("no combination of choices is possible: " + graph.status().message());
  std::mt19937_64 random(1);
  std::vector<int> chosen(problem.costs.size());
  const std::vector<double> prices(size_t(graph->steps()) + 1);
  const EliminationResult best = eliminate(*graph, graph->open(), chosen, prices, {double(maxTable), 0}, random);
  for (const ChangedPart &part : best.parts)
    for (auto [op, choice] : part)
      chosen[op] = choice;
  solution.choices = graph->original(chosen);
  solution.cost = strategyCost(problem, solution.choices);
  solution.exact = best.exact;
  if (!best.exact) {
    // What is left has no narrow order.
    Result<LimitedSolution> found = searchWithinMemory(problem, memory, {.passes = kPasses});
    if (found && !(solution.cost <= found->cost)) {
      solution.choices = std::move(found->choices);
      solution.cost = found->cost;
    }
    solution.exact = found && solution.cost <= found->bound * (1 + 1e-12);
  }
  if (std::isinf(solution.cost))
    return unsupportedError(solution.exact ? "no combination of choices is possible"
                                           : "no combination of choices was found that is possible");
  return solution;
}

} // namespace lathe::analysis
