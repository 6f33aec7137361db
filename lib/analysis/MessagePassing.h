//===- MessagePassing.h - a bound of least cost, and choices ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sequential tree-reweighted message passing (TRW-S: V. Kolmogorov, 2006). Each pass moves costs along the pairs so that the
// sum of what each op and pair costs at least, a lower bound, never falls; choices made in the same order
// by what messages say come close to it.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_MESSAGEPASSING_H
#define LATHE_LIB_ANALYSIS_MESSAGEPASSING_H

#include "StrategyGraph.h"

namespace lathe::analysis {

class MessagePassing {
public:
  explicit MessagePassing(const StrategyGraph &graph);

  /// A pass forwards, which writes `chosen`, and one backwards. Returns the bound for these prices (`eliminate` says of what
  /// `priceSums` are) without what the limit itself takes off. A cost above `cap` counts as `cap`, which takes nothing from a
  /// bound below it.
  double pass(const std::vector<double> &priceSums, double cap, std::vector<int> &chosen);

  /// The choices of an op, best first by what each costs with the messages of the last pass.
  std::vector<int> ranking(int op, const std::vector<double> &priceSums, double cap) const;

private:
  double visit(int op, bool forwards, const std::vector<double> &priceSums, double cap, std::vector<int> &chosen);
  size_t place(int edge, bool toA) const { return starts[edge] + size_t(toA ? 0 : graph.choices(graph.edge(edge).a)); }
  double *message(int edge, bool toA) { return &messages[place(edge, toA)]; }

  const StrategyGraph &graph;
  std::vector<size_t> starts;
  std::vector<double> messages;           ///< of each edge: to a, to b
  std::vector<double> costs, sums, rest; ///< of one op, kept between visits
};

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_MESSAGEPASSING_H
