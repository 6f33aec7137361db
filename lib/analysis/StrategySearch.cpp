//===- StrategySearch.cpp - one choice for each op, at least cost ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/analysis/StrategySearch.h"

#include "StrategyGraph.h"

#include <algorithm>
#include <limits>
#include <set>

namespace lathe::analysis {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Costs over the choices of some ops, the last varying fastest.
struct Table {
  std::vector<int> ops; ///< rising
  std::vector<double> costs;
};

/// How an op was eliminated: its best choice for each combination of the others.
struct Elimination {
  int op = 0;
  std::vector<int> others;
  std::vector<int> best;
};

class Search {
public:
  Search(const StrategyProblem &problem, size_t maxTable) : problem(problem), maxTable(maxTable) {}

  StrategySolution run() {
    const size_t count = problem.costs.size();
    neighbours.resize(count);
    tablesOf.resize(count);
    for (size_t op = 0; op < count; ++op)
      addTable({{int(op)}, problem.costs[op]});
    for (const StrategyProblem::Pair &pair : problem.pairs)
      addPair(pair);
    // The op with the smallest table is eliminated first.
    std::vector<double> sizes(count);
    std::set<std::pair<double, int>> order;
    for (size_t op = 0; op < count; ++op)
      order.insert({sizes[op] = sizeWithout(int(op)), int(op)});
    StrategySolution solution;
    while (!order.empty()) {
      const auto [smallest, next] = *order.begin();
      order.erase(order.begin());
      const std::set<int> around = neighbours[next];
      if (smallest > double(maxTable)) {
        // What is left has no narrow order: keep the choice that is best by itself.
        solution.exact = false;
        fix(next);
      } else {
        eliminate(next);
      }
      for (int op : around) {
        order.erase({sizes[op], op});
        order.insert({sizes[op] = sizeWithout(op), op});
      }
    }
    solution.choices.assign(count, 0);
    for (size_t i = eliminated.size(); i-- > 0;) {
      const Elimination &e = eliminated[i];
      size_t at = 0;
      for (int other : e.others)
        at = at * choices(other) + solution.choices[other];
      solution.choices[e.op] = e.best[at];
    }
    if (!solution.exact)
      improve(solution.choices);
    solution.cost = strategyCost(problem, solution.choices);
    return solution;
  }

private:
  size_t choices(int op) const { return problem.costs[op].size(); }

  void addTable(Table table) {
    for (int a : table.ops) {
      tablesOf[a].push_back(tables.size());
      for (int b : table.ops)
        if (a != b)
          neighbours[a].insert(b);
    }
    tables.push_back(std::move(table));
  }

  void addPair(const StrategyProblem::Pair &pair) {
    if (pair.a < pair.b)
      return addTable({{pair.a, pair.b}, pair.costs});
    Table turned{{pair.b, pair.a}, std::vector<double>(pair.costs.size())};
    for (size_t a = 0; a < choices(pair.a); ++a)
      for (size_t b = 0; b < choices(pair.b); ++b)
        turned.costs[b * choices(pair.a) + a] = pair.costs[a * choices(pair.b) + b];
    addTable(std::move(turned));
  }

  /// Entries of the table that eliminating an op makes, its own choices included.
  double sizeWithout(int op) const {
    double size = double(choices(op));
    for (int other : neighbours[op])
      size *= double(choices(other));
    return size;
  }

  /// Sums the tables of an op for every combination of its neighbours and keeps the least.
  void eliminate(int op) {
    Elimination e;
    e.op = op;
    e.others.assign(neighbours[op].begin(), neighbours[op].end());
    Table made{e.others, {}};
    size_t combinations = 1;
    for (int other : e.others)
      combinations *= choices(other);
    made.costs.assign(combinations, kInfinite);
    e.best.assign(combinations, 0);
    // For each table how far a step of each op moves in it.
    struct View {
      const Table *table;
      std::vector<size_t> strides; ///< by position in `others`
      size_t own = 0, at = 0;
    };
    std::vector<View> views;
    for (size_t t : tablesOf[op]) {
      View view{&tables[t], std::vector<size_t>(e.others.size()), 0, 0};
      size_t stride = 1;
      for (size_t i = tables[t].ops.size(); i-- > 0; stride *= choices(tables[t].ops[i])) {
        int other = tables[t].ops[i];
        if (other == op)
          view.own = stride;
        else
          view.strides[std::lower_bound(e.others.begin(), e.others.end(), other) - e.others.begin()] = stride;
      }
      views.push_back(std::move(view));
    }
    std::vector<size_t> index(e.others.size());
    for (size_t at = 0; at < combinations; ++at) {
      for (size_t choice = 0; choice < choices(op); ++choice) {
        double sum = 0;
        for (const View &view : views)
          sum += view.table->costs[view.at + choice * view.own];
        if (sum < made.costs[at]) {
          made.costs[at] = sum;
          e.best[at] = int(choice);
        }
      }
      for (size_t d = e.others.size(); d-- > 0;) {
        ++index[d];
        for (View &view : views)
          view.at += view.strides[d];
        if (index[d] < choices(e.others[d]))
          break;
        for (View &view : views)
          view.at -= view.strides[d] * index[d];
        index[d] = 0;
      }
    }
    detach(op);
    if (!e.others.empty())
      addTable(std::move(made));
    eliminated.push_back(std::move(e));
  }

  /// Gives an op its cheapest choice, whatever the others do; their tables shrink to it.
  void fix(int op) {
    const std::vector<double> &own = problem.costs[op];
    int choice = int(std::min_element(own.begin(), own.end()) - own.begin());
    std::vector<size_t> mine = tablesOf[op];
    std::vector<Table> cut;
    for (size_t t : mine) {
      const Table &table = tables[t];
      if (table.ops.size() == 1)
        continue;
      Table made;
      size_t inner = 1, place = 0;
      for (size_t i = 0; i < table.ops.size(); ++i)
        if (table.ops[i] == op)
          place = i;
        else
          made.ops.push_back(table.ops[i]);
      for (size_t i = place + 1; i < table.ops.size(); ++i)
        inner *= choices(table.ops[i]);
      size_t outer = table.costs.size() / inner / choices(op);
      for (size_t o = 0; o < outer; ++o)
        for (size_t i = 0; i < inner; ++i)
          made.costs.push_back(table.costs[(o * choices(op) + choice) * inner + i]);
      cut.push_back(std::move(made));
    }
    detach(op);
    for (Table &table : cut)
      addTable(std::move(table));
    eliminated.push_back({op, {}, {choice}});
  }

  void detach(int op) {
    for (size_t t : std::vector<size_t>(tablesOf[op])) {
      for (int other : tables[t].ops)
        std::erase(tablesOf[other], t);
      tables[t] = {};
    }
    for (int other : neighbours[op])
      neighbours[other].erase(op);
  }

  /// One op at a time, until none gets better.
  void improve(std::vector<int> &chosen) const {
    double cost = strategyCost(problem, chosen);
    for (bool better = true; better;) {
      better = false;
      for (size_t op = 0; op < chosen.size(); ++op)
        for (size_t choice = 0, old = chosen[op]; choice < choices(int(op)); ++choice) {
          chosen[op] = int(choice);
          if (double now = strategyCost(problem, chosen); now < cost) {
            cost = now;
            old = choice;
            better = true;
          }
          chosen[op] = int(old);
        }
    }
  }

  const StrategyProblem &problem;
  const size_t maxTable;
  std::vector<Table> tables;
  std::vector<std::vector<size_t>> tablesOf;
  std::vector<std::set<int>> neighbours;
  std::vector<Elimination> eliminated;
};

} // namespace

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

Result<StrategySolution> searchStrategies(const StrategyProblem &problem, size_t maxTable) {
  LATHE_RETURN_IF_ERROR(checkProblem(problem));
  StrategySolution solution = Search(problem, maxTable).run();
  if (solution.cost == kInfinite)
    return unsupportedError("no combination of choices is possible");
  return solution;
}

} // namespace lathe::analysis
