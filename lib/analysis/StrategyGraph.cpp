//===- StrategyGraph.cpp - a problem of choices, made small ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StrategyGraph.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lathe::analysis {

/// An entry of a pair by the choices of `op` and of the other.
static double entry(const StrategyProblem &problem, const StrategyProblem::Pair &pair, int op, int own, int other) {
  const size_t columns = problem.costs[pair.b].size();
  return pair.a == op ? pair.costs[own * columns + other] : pair.costs[other * columns + own];
}

/// A power of two that brings the largest finite cost below kLargest; 1 where it is.
static double factorOf(const StrategyProblem &problem) {
  double largest = 0;
  auto look = [&](const std::vector<double> &costs) {
    for (double cost : costs)
      if (std::isfinite(cost))
        largest = std::max(largest, std::fabs(cost));
  };
  for (const std::vector<double> &costs : problem.costs)
    look(costs);
  for (const StrategyProblem::Pair &pair : problem.pairs)
    look(pair.costs);
  return largest > kLargest ? std::ldexp(1.0, std::ilogb(kLargest) - std::ilogb(largest) - 1) : 1;
}

/// A choice goes when all of a neighbour's choices are impossible beside it (arc consistency: A. Mackworth, 1977).
void StrategyGraph::removeImpossible(const StrategyProblem &problem) {
  const int count = int(problem.costs.size());
  std::vector<std::vector<int>> pairsOf(count);
  for (size_t p = 0; p < problem.pairs.size(); ++p)
    for (int op : {problem.pairs[p].a, problem.pairs[p].b})
      pairsOf[op].push_back(int(p));
  kept.resize(count);
  for (int op = 0; op < count; ++op)
    for (size_t choice = 0; choice < problem.costs[op].size(); ++choice)
      if (std::isfinite(problem.costs[op][choice]))
        kept[op].push_back(int(choice));
  std::vector<int> changed(count);
  std::iota(changed.begin(), changed.end(), 0);
  std::vector<char> waits(count, 1);
  while (!changed.empty()) {
    const int op = changed.back();
    changed.pop_back();
    waits[op] = 0;
    for (int p : pairsOf[op]) {
      const StrategyProblem::Pair &pair = problem.pairs[p];
      const int other = pair.a == op ? pair.b : pair.a;
      const size_t removed = std::erase_if(kept[other], [&](int choice) {
        return std::none_of(kept[op].begin(), kept[op].end(),
                            [&](int beside) { return std::isfinite(entry(problem, pair, other, choice, beside)); });
      });
      if (removed && !waits[other]) {
        waits[other] = 1;
        changed.push_back(other);
      }
    }
  }
}

void StrategyGraph::joinPairs(const StrategyProblem &problem) {
  std::vector<const StrategyProblem::Pair *> sorted;
  for (const StrategyProblem::Pair &pair : problem.pairs)
    sorted.push_back(&pair);
  auto ends = [](const StrategyProblem::Pair *pair) { return std::minmax({pair->a, pair->b}); };
  std::stable_sort(sorted.begin(), sorted.end(), [&](auto *x, auto *y) { return ends(x) < ends(y); });
  for (size_t i = 0; i < sorted.size();) {
    const auto [a, b] = ends(sorted[i]);
    const int rows = choices(a), columns = choices(b);
    std::vector<double> table(size_t(rows) * columns);
    for (const auto same = ends(sorted[i]); i < sorted.size() && ends(sorted[i]) == same; ++i)
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c)
          table[size_t(r) * columns + c] += std::min(factor * entry(problem, *sorted[i], a, kept[a][r], kept[b][c]), kImpossible);
    if (rows == 1 || columns == 1) {
      double *costs = &ownCosts[offsets[rows == 1 ? b : a]];
      for (size_t c = 0; c < table.size(); ++c)
        costs[c] += table[c];
    } else if (std::any_of(table.begin(), table.end(), [](double cost) { return cost != 0; })) {
      edges.push_back({a, b, tables.size()});
      tables.insert(tables.end(), table.begin(), table.end());
    }
  }
  firstEdge.assign(ops() + 1, 0);
  for (const Edge &e : edges)
    ++firstEdge[e.a + 1], ++firstEdge[e.b + 1];
  std::partial_sum(firstEdge.begin(), firstEdge.end(), firstEdge.begin());
  incident.resize(2 * edges.size());
  std::vector<int> next(firstEdge.begin(), firstEdge.end() - 1);
  for (int e = 0; e < edgeCount(); ++e)
    incident[next[edges[e].a]++] = incident[next[edges[e].b]++] = e;
}

void StrategyGraph::cutSteps(const StrategyMemory &memory) {
  std::vector<int64_t> cuts;
  for (const StrategyMemory::Lifetime &life : memory.lifetimes)
    cuts.insert(cuts.end(), {life.first, life.last});
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  auto at = [&](int64_t step) { return int(std::lower_bound(cuts.begin(), cuts.end(), step) - cuts.begin()); };
  for (const StrategyMemory::Lifetime &life : memory.lifetimes) {
    firstStep.push_back(at(life.first));
    lastStep.push_back(at(life.last));
  }
  stepCount = int(cuts.size());
}

Result<StrategyGraph> StrategyGraph::build(const StrategyProblem &problem, const StrategyMemory &memory) {
  StrategyGraph graph;
  graph.factor = factorOf(problem);
  graph.removeImpossible(problem);
  for (size_t op = 0; op < graph.kept.size(); ++op) {
    if (graph.kept[op].empty())
      return unsupportedError("op " + std::to_string(op) + " has no choice that is possible beside its neighbours'");
    for (int choice : graph.kept[op]) {
      graph.ownCosts.push_back(graph.factor * problem.costs[op][choice]);
      graph.ownBytes.push_back(memory.bytes[op][choice]);
    }
    graph.offsets.push_back(int(graph.ownCosts.size()));
    if (graph.kept[op].size() > 1)
      graph.openOps.push_back(int(op));
  }
  graph.joinPairs(problem);
  graph.cutSteps(memory);
  return graph;
}

double StrategyGraph::cost(const std::vector<int> &chosen) const {
  double sum = 0;
  for (int op = 0; op < ops(); ++op)
    sum += costs(op)[chosen[op]];
  for (const Edge &e : edges)
    sum += table(e)[size_t(chosen[e.a]) * choices(e.b) + chosen[e.b]];
  return sum;
}

std::vector<int64_t> StrategyGraph::load(const std::vector<int> &chosen) const {
  std::vector<int64_t> sums(stepCount + 1);
  for (int op = 0; op < ops(); ++op)
    if (first(op) < last(op)) {
      sums[first(op)] += bytes(op)[chosen[op]];
      sums[last(op)] -= bytes(op)[chosen[op]];
    }
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  sums.pop_back();
  return sums;
}

std::vector<int> StrategyGraph::original(const std::vector<int> &chosen) const {
  std::vector<int> result(chosen.size());
  for (size_t op = 0; op < chosen.size(); ++op)
    result[op] = kept[op][chosen[op]];
  return result;
}

} // namespace lathe::analysis
