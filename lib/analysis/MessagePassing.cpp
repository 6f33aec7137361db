//===- MessagePassing.cpp - a bound of least cost, and choices ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "MessagePassing.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace lathe::analysis {

MessagePassing::MessagePassing(const StrategyGraph &graph) : graph(graph) {
  size_t size = 0;
  for (int e = 0; e < graph.edgeCount(); ++e) {
    starts.push_back(size);
    size += size_t(graph.choices(graph.edge(e).a)) + size_t(graph.choices(graph.edge(e).b));
  }
  messages.resize(size);
}

double MessagePassing::pass(const std::vector<double> &priceSums, double cap, std::vector<int> &chosen) {
  for (int op = 0; op < graph.ops(); ++op)
    visit(op, true, priceSums, cap, chosen);
  double bound = 0;
  for (int op = graph.ops(); op-- > 0;)
    bound += visit(op, false, priceSums, cap, chosen);
  return bound;
}

std::vector<int> MessagePassing::ranking(int op, const std::vector<double> &priceSums, double cap) const {
  const double price = priceSums[graph.last(op)] - priceSums[graph.first(op)];
  std::vector<double> sums(graph.choices(op));
  for (size_t choice = 0; choice < sums.size(); ++choice)
    sums[choice] = std::min(graph.costs(op)[choice], cap) + price * double(graph.bytes(op)[choice]);
  for (int e : graph.edgesOf(op))
    for (size_t choice = 0; choice < sums.size(); ++choice)
      sums[choice] += messages[place(e, graph.edge(e).a == op) + choice];
  std::vector<int> result(sums.size());
  std::iota(result.begin(), result.end(), 0);
  std::stable_sort(result.begin(), result.end(), [&](int a, int b) { return sums[a] < sums[b]; });
  return result;
}

/// Sends the messages of an op to those behind it; returns what they and the op itself cost at least.
double MessagePassing::visit(int op, bool forwards, const std::vector<double> &priceSums, double cap,
                             std::vector<int> &chosen) {
  const int count = graph.choices(op);
  const double price = priceSums[graph.last(op)] - priceSums[graph.first(op)];
  costs.resize(count);
  for (int choice = 0; choice < count; ++choice)
    costs[choice] = std::min(graph.costs(op)[choice], cap) + price * double(graph.bytes(op)[choice]);

  // `sums`: the costs with all messages; `rest`: with the tables of those that have chosen in place of their messages.
  sums = rest = costs;
  int ahead = 0, behind = 0;
  for (int e : graph.edgesOf(op)) {
    const StrategyGraph::Edge &edge = graph.edge(e);
    const bool isA = edge.a == op;
    const int other = isA ? edge.b : edge.a;
    const double *in = message(e, isA);
    ++(other > op ? ahead : behind);
    for (int choice = 0; choice < count; ++choice)
      sums[choice] += in[choice];
    if (!forwards)
      continue;
    if (other > op) {
      for (int choice = 0; choice < count; ++choice)
        rest[choice] += in[choice];
    } else {
      const size_t columns = size_t(graph.choices(edge.b));
      const double *table = graph.table(edge) + (isA ? size_t(chosen[other]) : size_t(chosen[other]) * columns);
      for (int choice = 0; choice < count; ++choice)
        rest[choice] += std::min(table[choice * (isA ? columns : 1)], cap);
    }
  }
  if (forwards)
    chosen[op] = int(std::min_element(rest.begin(), rest.end()) - rest.begin());

  const double least = *std::min_element(sums.begin(), sums.end());
  double bound = least;
  const double share = 1.0 / std::max({ahead, behind, 1});
  for (int e : graph.edgesOf(op)) {
    const StrategyGraph::Edge &edge = graph.edge(e);
    const bool isA = edge.a == op;
    const int other = isA ? edge.b : edge.a;
    if ((other > op) != forwards)
      continue;
    const double *in = message(e, isA);
    for (int choice = 0; choice < count; ++choice)
      rest[choice] = share * (sums[choice] - least) - in[choice];
    double *out = message(e, !isA);
    const int others = graph.choices(other);
    const double *table = graph.table(edge);
    if (isA) {
      std::fill(out, out + others, std::numeric_limits<double>::infinity());
      for (int choice = 0; choice < count; ++choice, table += others)
        for (int o = 0; o < others; ++o)
          out[o] = std::min(out[o], rest[choice] + std::min(table[o], cap));
    } else {
      for (int o = 0; o < others; ++o, table += count) {
        double best = std::numeric_limits<double>::infinity();
        for (int choice = 0; choice < count; ++choice)
          best = std::min(best, rest[choice] + std::min(table[choice], cap));
        out[o] = best;
      }
    }
    const double lowest = *std::min_element(out, out + others);
    for (int o = 0; o < others; ++o)
      out[o] -= lowest;
    bound += lowest;
  }
  return bound;
}

} // namespace lathe::analysis
