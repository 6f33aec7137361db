//===- StrategyGraph.h - a problem of choices, made small -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A StrategyProblem and its memory as searches read them: choices that no finite combination has are gone, pairs
// of the same ops are one table, an op with one choice is part of its neighbours' costs, and steps between
// which nothing is born or dies are one. Costs of any size are brought below kLargest by a power of two.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_STRATEGYGRAPH_H
#define LATHE_LIB_ANALYSIS_STRATEGYGRAPH_H

#include "lathe/analysis/LimitedSearch.h"

#include <span>

namespace lathe::analysis {

/// Stands for an infinite cost: some of it can be added up, and no finite cost comes near.
constexpr double kImpossible = 1e30;
constexpr double kLargest = 1e20;

/// Invalid for an op without a choice and tables of other sizes than the choices.
Status checkProblem(const StrategyProblem &problem);

class StrategyGraph {
public:
  struct Edge {
    int a = 0, b = 0; ///< a < b
    size_t at = 0;    ///< of its table: choices of a rows, choices of b columns
  };

  /// Unsupported where an op has no choice that is possible beside its neighbours'. The problem must be valid.
  static Result<StrategyGraph> build(const StrategyProblem &problem, const StrategyMemory &memory);

  int ops() const { return int(offsets.size()) - 1; }
  int choices(int op) const { return offsets[op + 1] - offsets[op]; }
  const double *costs(int op) const { return &ownCosts[offsets[op]]; }
  const int64_t *bytes(int op) const { return &ownBytes[offsets[op]]; }
  const Edge &edge(int index) const { return edges[index]; }
  int edgeCount() const { return int(edges.size()); }
  const double *table(const Edge &edge) const { return &tables[edge.at]; }
  std::span<const int> edgesOf(int op) const { return {incident.data() + firstEdge[op], size_t(firstEdge[op + 1] - firstEdge[op])}; }
  /// Ops that have more than one choice.
  const std::vector<int> &open() const { return openOps; }

  int steps() const { return stepCount; }
  int first(int op) const { return firstStep[op]; }
  int last(int op) const { return lastStep[op]; }

  /// Costs of the graph are those of the problem times this power of two.
  double scale() const { return factor; }
  double cost(const std::vector<int> &chosen) const;
  /// Bytes at each step.
  std::vector<int64_t> load(const std::vector<int> &chosen) const;
  /// The choices by the problem's own numbers.
  std::vector<int> original(const std::vector<int> &chosen) const;

private:
  void removeImpossible(const StrategyProblem &problem);
  void joinPairs(const StrategyProblem &problem);
  void cutSteps(const StrategyMemory &memory);

  std::vector<std::vector<int>> kept; ///< by op: choices of the problem
  std::vector<int> offsets{0};
  std::vector<double> ownCosts, tables;
  std::vector<int64_t> ownBytes;
  std::vector<Edge> edges;
  std::vector<int> firstEdge, incident, openOps, firstStep, lastStep;
  int stepCount = 0;
  double factor = 1;
};

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_STRATEGYGRAPH_H
