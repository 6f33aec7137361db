//===- Elimination.cpp - the best choices of some ops ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Elimination.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>

namespace lathe::analysis {
namespace {

/// Entries that all tables of one call may have together (240 MB).
constexpr size_t kMostEntries = 30'000'000;

/// Costs over the choices of some ops; a view of a graph's table or of one that was made.
struct View {
  std::vector<int> ops; ///< places in the region
  std::vector<size_t> strides;
  const double *costs = nullptr;
};

class Region {
public:
  Region(const StrategyGraph &graph, const std::vector<int> &ops, const std::vector<int> &chosen,
         const EliminationOptions &options, std::mt19937_64 &random)
      : graph(graph), ops(ops), chosen(chosen), options(options), random(random) {}

  EliminationResult run(const std::vector<double> &priceSums) {
    gather(priceSums);
    for (int op = 0; op < count(); ++op)
      parts.push_back(op), weights.push_back(1 + 0.5 * unit()), sizes.push_back(-1), enqueue(op);
    while (!queue.empty()) {
      const auto [size, op] = queue.top();
      queue.pop();
      if (gone[op] || size != sizes[op])
        continue;
      if (size <= options.maxTable && entries <= kMostEntries) {
        eliminate(op);
        continue;
      }
      const int kept = widest(op);
      keep(kept);
      exact = false;
      if (kept != op)
        queue.push({size, op});
    }
    return {changes(), exact};
  }

private:
  int count() const { return int(ops.size()); }
  int choices(int op) const {
    return options.among ? int((*options.among)[ops[op]].size()) : graph.choices(ops[op]);
  }
  /// The graph's number of a choice, of which those here are the places in `among`.
  int choiceOf(int op, int choice) const { return options.among ? (*options.among)[ops[op]][choice] : choice; }
  int had(int op) const {
    if (!options.among)
      return chosen[ops[op]];
    const std::vector<int> &some = (*options.among)[ops[op]];
    return int(std::lower_bound(some.begin(), some.end(), chosen[ops[op]]) - some.begin());
  }
  double unit() { return std::uniform_real_distribution<double>(0, 1)(random); }

  int partOf(int op) {
    while (parts[op] != op)
      op = parts[op] = parts[parts[op]];
    return op;
  }

  /// The costs of each op by itself, beside the choices of those outside, and the tables inside.
  void gather(const std::vector<double> &priceSums) {
    std::vector<int> placeOf(graph.ops(), -1);
    for (int op = 0; op < count(); ++op)
      placeOf[ops[op]] = op;
    own.resize(ops.size()), neighbours.resize(ops.size()), viewsOf.resize(ops.size()), gone.resize(ops.size());
    for (int op = 0; op < count(); ++op) {
      const int global = ops[op], options_ = choices(op);
      const double price = priceSums[graph.last(global)] - priceSums[graph.first(global)];
      own[op].resize(options_);
      for (int choice = 0; choice < options_; ++choice) {
        const int of = choiceOf(op, choice);
        own[op][choice] = graph.costs(global)[of] + price * double(graph.bytes(global)[of]);
        if (options.noise > 0)
          own[op][choice] += options.noise * unit();
      }
      for (int e : graph.edgesOf(global)) {
        const StrategyGraph::Edge &edge = graph.edge(e);
        const bool isRow = edge.a == global;
        const int other = isRow ? edge.b : edge.a, place = placeOf[other];
        const size_t columns = size_t(graph.choices(edge.b));
        const double *table = graph.table(edge);
        if (place < 0) {
          table += isRow ? size_t(chosen[other]) : size_t(chosen[other]) * columns;
          for (int choice = 0; choice < options_; ++choice)
            own[op][choice] += table[choiceOf(op, choice) * (isRow ? columns : 1)];
          continue;
        }
        neighbours[op].push_back(place);
        if (isRow)
          addTable(op, place, table, columns);
      }
      std::sort(neighbours[op].begin(), neighbours[op].end());
    }
  }

  /// The table of two ops of the region, as far as choices are looked at.
  void addTable(int row, int column, const double *table, size_t columns) {
    if (!options.among) {
      addView({{row, column}, {columns, 1}, table});
      return;
    }
    std::vector<double> &some = storage.emplace_back();
    for (int a = 0; a < choices(row); ++a)
      for (int b = 0; b < choices(column); ++b)
        some.push_back(table[size_t(choiceOf(row, a)) * columns + size_t(choiceOf(column, b))]);
    addView({{row, column}, {size_t(choices(column)), 1}, some.data()});
  }

  void addView(View view) {
    for (int op : view.ops)
      viewsOf[op].push_back(int(views.size()));
    views.push_back(std::move(view));
  }

  /// Combinations that eliminating an op tries, with a factor that lets the order differ from call to call.
  void enqueue(int op) {
    double size = choices(op) * weights[op];
    for (int other : neighbours[op])
      size *= choices(other);
    if (size != sizes[op])
      queue.push({sizes[op] = size, op});
  }

  /// Some op with many neighbours: those that stay hold the others apart.
  int widest(int op) {
    int best = op;
    double most = -1;
    for (int i = 0; i < 5; ++i) {
      const int candidate = int(random() % ops.size());
      const double width = double(neighbours[candidate].size()) * (0.3 + unit());
      if (!gone[candidate] && width > most)
        most = width, best = candidate;
    }
    return best;
  }

  /// The op keeps its choice.
  void keep(int op) {
    gone[op] = 1;
    for (int v : viewsOf[op]) {
      View &view = views[v];
      const size_t at = std::find(view.ops.begin(), view.ops.end(), op) - view.ops.begin();
      view.costs += view.strides[at] * size_t(had(op));
      view.ops.erase(view.ops.begin() + at);
      view.strides.erase(view.strides.begin() + at);
    }
    for (int other : neighbours[op]) {
      std::erase(neighbours[other], op);
      enqueue(other);
    }
  }

  /// Replaces an op by a table of its best cost for each combination of its neighbours' choices.
  void eliminate(int op) {
    gone[op] = 1;
    Eliminated step{op, {}};
    for (int v : viewsOf[op])
      step.views.push_back(views[v]);
    const std::vector<int> &others = neighbours[op];
    if (!others.empty()) {
      View made{others, std::vector<size_t>(others.size()), nullptr};
      size_t size = 1;
      for (size_t i = others.size(); i-- > 0; size *= size_t(choices(others[i])))
        made.strides[i] = size;
      std::vector<double> costs = leastCosts(step, others, size);
      for (int v : viewsOf[op])
        for (int other : views[v].ops)
          if (other != op)
            std::erase(viewsOf[other], v);
      if (others.size() == 1) {
        for (size_t choice = 0; choice < size; ++choice)
          own[others[0]][choice] += costs[choice];
      } else {
        entries += size;
        made.costs = storage.emplace_back(std::move(costs)).data();
        addView(std::move(made));
      }
      for (int other : others) {
        parts[partOf(op)] = partOf(other);
        std::vector<int> &around = neighbours[other], joined;
        std::set_union(around.begin(), around.end(), others.begin(), others.end(), std::back_inserter(joined));
        std::erase_if(joined, [&](int o) { return o == op || o == other; });
        around = std::move(joined);
      }
      for (int other : others)
        enqueue(other);
    }
    eliminated.push_back(std::move(step));
  }

  struct Eliminated {
    int op = 0;
    std::vector<View> views;
  };

  std::vector<double> leastCosts(const Eliminated &step, const std::vector<int> &others, size_t size) {
    struct Cursor {
      const double *at;
      size_t own;
      std::vector<size_t> strides; ///< by place in `others`
    };
    std::vector<Cursor> cursors;
    for (const View &view : step.views) {
      Cursor cursor{view.costs, 0, std::vector<size_t>(others.size())};
      for (size_t i = 0; i < view.ops.size(); ++i)
        if (view.ops[i] == step.op)
          cursor.own = view.strides[i];
        else
          cursor.strides[std::lower_bound(others.begin(), others.end(), view.ops[i]) - others.begin()] = view.strides[i];
      cursors.push_back(std::move(cursor));
    }
    const int own_ = choices(step.op);
    std::vector<double> least(size), sums(own_);
    std::vector<int> index(others.size());
    for (double &result : least) {
      sums = own[step.op];
      for (const Cursor &cursor : cursors)
        for (int choice = 0; choice < own_; ++choice)
          sums[choice] += cursor.at[choice * cursor.own];
      result = *std::min_element(sums.begin(), sums.end());
      for (size_t d = others.size(); d-- > 0;) {
        for (Cursor &cursor : cursors)
          cursor.at += cursor.strides[d];
        if (++index[d] < choices(others[d]))
          break;
        for (Cursor &cursor : cursors)
          cursor.at -= cursor.strides[d] * size_t(index[d]);
        index[d] = 0;
      }
    }
    return least;
  }

  /// The last op that went is the first whose best choice is known.
  std::vector<ChangedPart> changes() {
    std::vector<int> now(count());
    for (int op = 0; op < count(); ++op)
      now[op] = had(op);
    for (size_t i = eliminated.size(); i-- > 0;) {
      const auto &[op, around] = eliminated[i];
      std::vector<double> sums = own[op];
      for (const View &view : around) {
        const double *at = view.costs;
        size_t stride = 0;
        for (size_t o = 0; o < view.ops.size(); ++o)
          if (view.ops[o] == op)
            stride = view.strides[o];
          else
            at += view.strides[o] * size_t(now[view.ops[o]]);
        for (size_t choice = 0; choice < sums.size(); ++choice)
          sums[choice] += at[choice * stride];
      }
      for (size_t choice = 0; choice < sums.size(); ++choice)
        if (sums[choice] < sums[now[op]])
          now[op] = int(choice);
    }
    std::vector<int> partAt(count(), -1);
    std::vector<ChangedPart> result;
    for (int op = 0; op < count(); ++op) {
      if (now[op] == had(op))
        continue;
      int &part = partAt[partOf(op)];
      if (part < 0)
        part = int(result.size()), result.emplace_back();
      result[part].push_back({ops[op], choiceOf(op, now[op])});
    }
    return result;
  }

  const StrategyGraph &graph;
  const std::vector<int> &ops, &chosen;
  const EliminationOptions &options;
  std::mt19937_64 &random;
  std::vector<std::vector<double>> own; ///< costs of each op's choices by themselves
  std::vector<std::vector<int>> neighbours, viewsOf;
  std::vector<char> gone; ///< eliminated or kept
  std::vector<View> views;
  std::vector<std::vector<double>> storage;
  std::vector<Eliminated> eliminated;
  std::vector<int> parts;             ///< union-find
  std::vector<double> weights, sizes; ///< of the order
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>> queue;
  size_t entries = 0;
  bool exact = true;
};

} // namespace

EliminationResult eliminate(const StrategyGraph &graph, const std::vector<int> &ops, const std::vector<int> &chosen,
                            const std::vector<double> &priceSums, const EliminationOptions &options,
                            std::mt19937_64 &random) {
  return Region(graph, ops, chosen, options, random).run(priceSums);
}

} // namespace lathe::analysis
