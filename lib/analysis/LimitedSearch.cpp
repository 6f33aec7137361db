//===- LimitedSearch.cpp - choices of least cost within memory ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/analysis/LimitedSearch.h"

#include "Elimination.h"
#include "MessagePassing.h"
#include "StrategyGraph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lathe::analysis {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Bytes at each step under changes of ranges, and the most of them.
class PeakTree {
public:
  explicit PeakTree(const std::vector<int64_t> &load) {
    while (size < load.size())
      size *= 2;
    most.resize(2 * size), added.resize(2 * size);
    std::copy(load.begin(), load.end(), most.begin() + long(size));
    for (size_t node = size; node-- > 1;)
      most[node] = std::max(most[2 * node], most[2 * node + 1]);
  }
  void add(int first, int last, int64_t bytes) { add(1, 0, size, size_t(first), size_t(last), bytes); }
  int64_t peak() const { return most[1]; }

private:
  void add(size_t node, size_t low, size_t high, size_t first, size_t last, int64_t bytes) {
    if (first >= high || last <= low)
      return;
    if (first <= low && high <= last) {
      most[node] += bytes, added[node] += bytes;
      return;
    }
    const size_t middle = (low + high) / 2;
    add(2 * node, low, middle, first, last, bytes);
    add(2 * node + 1, middle, high, first, last, bytes);
    most[node] = std::max(most[2 * node], most[2 * node + 1]) + added[node];
  }

  size_t size = 1;
  std::vector<int64_t> most, added;
};

class Search {
public:
  Search(const StrategyGraph &graph, int64_t limit, const LimitedOptions &options)
      : graph(graph), limit(limit), options(options), random(options.seed), prices(graph.steps()),
        priceSums(graph.steps() + 1), chosen(graph.ops()) {}

  Result<LimitedSolution> run() {
    raisePrices();
    if (best.empty())
      pressDown();
    if (best.empty())
      return unsupportedError("no choices were found that are possible and within " + std::to_string(limit) +
                              " bytes; the least peak of possible ones was " +
                              (leastPeak < 0 ? "not found" : std::to_string(leastPeak)));
    if (!graph.open().empty())
      settle();
    LimitedSolution solution;
    solution.choices = graph.original(best);
    solution.bound = bound / graph.scale();
    solution.peak = mostOf(graph.load(best));
    return solution;
  }

private:
  double used() const { return options.used ? options.used() : passes / std::max(options.passes, 1); }
  static int64_t mostOf(const std::vector<int64_t> &load) {
    return load.empty() ? 0 : *std::max_element(load.begin(), load.end());
  }
  void sumPrices() { std::partial_sum(prices.begin(), prices.end(), priceSums.begin() + 1); }

  /// Remembers what is possible, within the limit and cheaper than before; returns the load.
  std::vector<int64_t> judge() {
    std::vector<int64_t> load = graph.load(chosen);
    const double cost = graph.cost(chosen);
    const int64_t peak = mostOf(load);
    if (cost < kImpossible) {
      leastPeak = leastPeak < 0 ? peak : std::min(leastPeak, peak);
      if (peak <= limit && cost < bestCost) {
        bestCost = cost, best = chosen;
        cap = std::min(cap, cost);
      }
    }
    return load;
  }

  /// Prices by their subgradient, until half of the time is used or long steps from the best prices, too, end where they began:
  /// with more patience, steps get away from where the bound stands still.
  void raisePrices() {
    constexpr int kWarmUp = 60;        // passes before prices rise: a bound that still grows by itself says little
    constexpr int kRepair = 20;        // passes between two repairs of what was chosen
    constexpr double kLongest = 0.1, kShorter = 0.7, kShortest = 1e-4, kSmooth = 0.3;
    MessagePassing messages(graph);
    for (int op = 0; op < graph.ops(); ++op) {
      cap += *std::min_element(graph.costs(op), graph.costs(op) + graph.choices(op));
      for (int choice = 0; choice < graph.choices(op); ++choice)
        if (graph.costs(op)[choice] < kImpossible)
          cap = std::max(cap, graph.costs(op)[choice]);
    }
    for (int e = 0; e < graph.edgeCount(); ++e) {
      const StrategyGraph::Edge &edge = graph.edge(e);
      const double *table = graph.table(edge);
      for (size_t i = 0; i < size_t(graph.choices(edge.a)) * graph.choices(edge.b); ++i)
        if (table[i] < kImpossible)
          cap = std::max(cap, 2 * table[i]);
    }
    std::vector<double> excess(graph.steps()), bestPrices = prices;
    int patience = 30; // passes without a better bound, after which steps become shorter
    double length = kLongest, boundBefore = bound;
    for (int pass = 0, without = 0; used() < 0.5; ++pass, ++passes) {
      if (length < kShortest) {
        if (bound <= boundBefore + 1e-3 * std::fabs(bound))
          break;
        length = kLongest, patience *= 2, boundBefore = bound, prices = bestPrices;
        std::fill(excess.begin(), excess.end(), 0.0);
      }
      sumPrices();
      const double now = messages.pass(priceSums, cap, chosen) - priceSums.back() * double(limit);
      if (now > bound + 1e-6 * std::fabs(bound))
        bound = now, bestPrices = prices, without = 0;
      else if (++without > patience)
        length *= kShorter, without = 0;
      const std::vector<int64_t> load = judge();
      if (pass >= kWarmUp - kRepair && pass % kRepair == kRepair - 1) {
        std::vector<int> asPassed = chosen;
        improveFreely();
        judge();
        chosen = std::move(asPassed);
      }
      if (pass < kWarmUp)
        continue;
      double norm = 0;
      for (size_t s = 0; s < prices.size(); ++s) {
        excess[s] += kSmooth * (double(load[s]) / double(limit) - 1 - excess[s]);
        if (excess[s] > 0 || prices[s] > 0)
          norm += excess[s] * excess[s];
      }
      if (norm == 0)
        break; // nothing passes the limit
      const double target = bestCost < kInfinite ? bestCost : std::max(2 * bound, 1.0);
      const double step = length * std::max(target - now, 1e-3 * std::fabs(target)) / norm / double(limit);
      for (size_t s = 0; s < prices.size(); ++s)
        prices[s] = std::max(0.0, prices[s] + step * excess[s]);
    }
    prices = std::move(bestPrices);
    // Messages of the last passes are near enough to those at the best prices.
    sumPrices();
    for (int op = 0; op < graph.ops(); ++op)
      ranked.push_back(messages.ranking(op, priceSums, cap));
  }

  void changeFreely(const std::vector<int> &ops, double maxTable) {
    for (const ChangedPart &part : eliminate(graph, ops, chosen, priceSums, {maxTable, 0}, random).parts)
      for (auto [op, choice] : part)
        chosen[op] = choice;
  }

  /// A few eliminations without regard to the limit, at today's prices; then around each pair of choices that is impossible, in
  /// regions that double.
  void improveFreely() {
    constexpr int kDoublings = 7;
    constexpr size_t kSmallest = 30;
    sumPrices();
    for (int i = 0; i < 4; ++i)
      changeFreely(graph.open(), i % 2 ? 20000 : 3000);
    for (int i = 0; i < kDoublings; ++i) {
      bool found = false;
      for (int e = 0; e < graph.edgeCount() && used() < 1; ++e) {
        const StrategyGraph::Edge &edge = graph.edge(e);
        if (graph.table(edge)[size_t(chosen[edge.a]) * graph.choices(edge.b) + chosen[edge.b]] < kImpossible)
          continue;
        found = true;
        changeFreely(someOps(kSmallest << i, edge.a), 200000);
      }
      if (!found)
        return;
    }
  }

  /// Prices that only grow where the limit is passed, until something is within it.
  void pressDown() {
    constexpr double kGrow = 1.3;
    while (best.empty() && used() < 0.9) {
      improveFreely();
      ++passes;
      const std::vector<int64_t> load = judge();
      const auto over = std::count_if(load.begin(), load.end(), [&](int64_t bytes) { return bytes > limit; });
      const double start = 1e-3 * std::max(bound, 1.0) / double(limit) / double(std::max<long>(over, 1));
      for (size_t s = 0; s < prices.size(); ++s)
        if (load[s] > limit)
          prices[s] = std::max(prices[s] * kGrow, start);
    }
  }

  /// Ops that hang together, some `size` of them around one.
  std::vector<int> someOps(size_t size, int around) {
    if (size >= graph.open().size())
      return graph.open();
    std::vector<int> ops{around};
    seen.resize(graph.ops());
    ++now;
    seen[ops[0]] = now;
    for (size_t i = 0; i < ops.size() && ops.size() < size; ++i) {
      std::swap(ops[i], ops[i + random() % std::min<size_t>(ops.size() - i, 8)]);
      const auto edges = graph.edgesOf(ops[i]);
      const size_t start = edges.empty() ? 0 : random() % edges.size();
      for (size_t e = 0; e < edges.size() && ops.size() < size; ++e) {
        const StrategyGraph::Edge &edge = graph.edge(edges[(e + start) % edges.size()]);
        const int other = edge.a == ops[i] ? edge.b : edge.a;
        if (seen[other] != now)
          seen[other] = now, ops.push_back(other);
      }
    }
    return ops;
  }

  /// From ten ops to all of them, each size twice the one before and as often.
  size_t drawSize() {
    constexpr size_t kSmallest = 10;
    const size_t all = graph.open().size();
    int doublings = 0;
    while ((kSmallest << doublings) < all)
      ++doublings;
    return std::min(all, kSmallest << (random() % unsigned(doublings + 1)));
  }
  int anyOp() { return graph.open()[random() % graph.open().size()]; }

  using Choices = std::vector<std::vector<int>>; ///< of each op

  /// How to eliminate such a region. Of many choices few matter: mostly only those that rank best are looked at beside the one that
  /// an op has, which makes tables small, and regions exact that are large. They are written to `among`.
  EliminationOptions drawOptions(const std::vector<int> &ops, Choices &among, double noise = 0) {
    EliminationOptions result{ops.size() < 2000 ? 200000.0 : 20000.0, noise};
    if (random() % 4 == 0)
      return result;
    const size_t most = 2 << random() % 4;
    const bool isThin = random() % 2;
    among.resize(graph.ops());
    for (int op : ops) {
      std::vector<int> &some = among[op];
      some = {chosen[op]};
      for (size_t i = 0; i < std::min(most, ranked[op].size()); ++i)
        if (!isThin || random() % 4)
          some.push_back(ranked[op][i]);
      std::sort(some.begin(), some.end());
      some.erase(std::unique(some.begin(), some.end()), some.end());
    }
    result.among = &among;
    return result;
  }

  /// Eliminations that together look at about half of the ops; a part whose change passes the limit stays as it was.
  void move(double noise) {
    ++passes;
    sumPrices();
    const size_t all = graph.open().size(), size = drawSize(), times = std::max<size_t>(1, all / size / 2);
    for (size_t i = 0; i < times && used() < 1; ++i) {
      const std::vector<int> ops = someOps(size, anyOp());
      for (const ChangedPart &part : eliminate(graph, ops, chosen, priceSums, drawOptions(ops, looked, noise), random).parts)
        take(part);
    }
  }

  /// Changes the region as eliminated at today's prices, whatever memory that takes.
  ChangedPart change(const std::vector<int> &ops, const EliminationOptions &elimination) {
    passes += double(ops.size()) / double(graph.open().size());
    sumPrices();
    ChangedPart all;
    for (const ChangedPart &part : eliminate(graph, ops, chosen, priceSums, elimination, random).parts)
      all.insert(all.end(), part.begin(), part.end());
    for (auto [op, choice] : all)
      chosen[op] = choice;
    return all;
  }

  /// Raises the prices of steps above the limit; the steps.
  std::vector<int> raiseWhereOver(const std::vector<int64_t> &load, double factor, double least) {
    std::vector<int> over;
    for (size_t s = 0; s < prices.size(); ++s)
      if (load[s] > limit)
        over.push_back(int(s)), prices[s] = std::max(prices[s] * factor, least / double(limit));
    return over;
  }

  /// The best choices of a region at prices that rise until they are within the limit, or so little above it that changes of other
  /// ops may make room. As it was where all of that saves nothing.
  void improveRegion() {
    constexpr int kRises = 16;
    const std::vector<int> ops = someOps(drawSize(), anyOp()), before = chosen;
    const EliminationOptions elimination = drawOptions(ops, looked);
    const std::vector<double> pricesBefore = prices;
    const double cost = graph.cost(before), slack = std::ldexp(0.125, -int(random() % 5));
    const double factor = 1.3 + double(random() % 100) / 60;
    if (random() % 2)
      std::fill(prices.begin(), prices.end(), 0.0);
    bool saves = false;
    for (int i = 0; i < kRises && !saves && used() < 1; ++i) {
      const ChangedPart changes = change(ops, elimination);
      const std::vector<int64_t> load = judge();
      if (changes.empty() || graph.cost(chosen) >= cost)
        break;
      const int64_t most = mostOf(load);
      saves = most <= limit || (double(most) <= (1 + slack) * double(limit) && makeRoom(changes, load, cost));
      if (!saves)
        chosen = before, raiseWhereOver(load, factor, 0.05 * cost);
    }
    if (!saves)
      chosen = before;
    else
      peak = PeakTree(graph.load(chosen));
    prices = pricesBefore;
  }

  /// Ops but those of `changes` that are alive at one of the steps, and some around them.
  std::vector<int> opsAt(const std::vector<int> &steps, const ChangedPart &changes, size_t around) {
    std::vector<int> ops;
    seen.resize(graph.ops());
    ++now;
    for (auto [op, choice] : changes)
      seen[op] = now;
    for (int op : graph.open()) {
      const auto at = std::lower_bound(steps.begin(), steps.end(), graph.first(op));
      if (seen[op] != now && at != steps.end() && *at < graph.last(op))
        seen[op] = now, ops.push_back(op);
    }
    const size_t most = ops.size() + around;
    for (size_t i = 0; i < ops.size() && ops.size() < most; ++i)
      for (int e : graph.edgesOf(ops[i])) {
        const StrategyGraph::Edge &edge = graph.edge(e);
        const int other = edge.a == ops[i] ? edge.b : edge.a;
        if (seen[other] != now && graph.choices(other) > 1)
          seen[other] = now, ops.push_back(other);
      }
    return ops;
  }

  /// Below the limit again by changes of other ops, and still cheaper than `cost`; else false, with some of them changed.
  bool makeRoom(const ChangedPart &changes, std::vector<int64_t> load, double cost) {
    constexpr int kRises = 30;
    constexpr double kRise = 1.4;
    const std::vector<double> pricesBefore = prices;
    const size_t around = size_t(30) << random() % 6;
    bool isWithin = false;
    for (int i = 0; i < kRises && graph.cost(chosen) < cost && used() < 1; ++i) {
      const std::vector<int> over = raiseWhereOver(load, kRise, 1e-3 * cost);
      if (isWithin = over.empty(); isWithin)
        break;
      const std::vector<int> ops = opsAt(over, changes, around);
      change(ops, drawOptions(ops, lookedForRoom));
      load = judge();
    }
    prices = pricesBefore;
    return isWithin;
  }

  void take(const ChangedPart &part) {
    auto shift = [&](int sign) {
      for (auto [op, choice] : part)
        peak.add(graph.first(op), graph.last(op), sign * (graph.bytes(op)[choice] - graph.bytes(op)[chosen[op]]));
    };
    shift(1);
    if (peak.peak() > limit) {
      shift(-1);
      refused = true;
      return;
    }
    for (auto [op, choice] : part)
      chosen[op] = choice;
  }

  /// From what is best: shaken by noise that falls, then improved within the limit, region by region, too, once moves alone bring
  /// little. A result that is a little worse is gone on from, too, at most so often in a row.
  void settle() {
    constexpr int kShakes = 6, kMoves = 10, kAstray = 30, kRegions = 4;
    constexpr double kLittle = 1e-3; // of the cost, in a round
    chosen = best;
    std::vector<int> base = chosen;
    double baseCost = bestCost;
    int astray = 0; // rounds since something was the best
    bool takesRegions = false;
    for (int round = 0; used() < 1 && bestCost > bound + 1e-9 * std::fabs(bound); ++round) {
      peak = PeakTree(graph.load(chosen));
      const double scale = std::max(bestCost, 1e-300) / double(graph.open().size()) * std::ldexp(1.0, -int(random() % 8));
      for (int i = 0; round > 0 && i < kShakes && used() < 1; ++i)
        move(scale * (kShakes - i) / kShakes);
      const double bestBefore = bestCost;
      double before = kInfinite, cost = graph.cost(chosen);
      for (int i = 0; i < (round ? kMoves : 4 * kMoves) && used() < 1; ++i) {
        refused = false;
        move(0);
        for (int region = 0; takesRegions && region < kRegions && used() < 1; ++region)
          improveRegion();
        const std::vector<int64_t> load = judge();
        cost = graph.cost(chosen);
        for (size_t s = 0; s < prices.size(); ++s)
          prices[s] *= refused && double(load[s]) > 0.99 * double(limit) ? 1.05 : 0.93;
        if (i > 4 && cost > before * (1 - 1e-6))
          break;
        before = cost;
      }
      takesRegions = round > 0 && (takesRegions || bestCost > bestBefore * (1 - kLittle));
      astray = bestCost < bestBefore ? 0 : astray + 1;
      if (astray > kAstray)
        base = best, baseCost = bestCost, astray = 0;
      else if (cost <= baseCost * (1 + std::ldexp(0.1, -int(random() % 16))))
        base = chosen, baseCost = cost;
      chosen = base;
    }
  }

  const StrategyGraph &graph;
  const int64_t limit;
  const LimitedOptions &options;
  std::mt19937_64 random;
  std::vector<double> prices, priceSums; ///< of a byte at each step; sums of those before each step
  std::vector<int> chosen, best;
  double bestCost = kInfinite, bound = -1e29, cap = 0;
  int64_t leastPeak = -1;
  PeakTree peak{{}};
  bool refused = false;
  double passes = 0;
  Choices ranked;                ///< best first
  Choices looked, lookedForRoom; ///< at in a region, and elsewhere meanwhile
  std::vector<int> seen;
  int now = 0;
};

} // namespace

Result<LimitedSolution> searchWithinMemory(const StrategyProblem &problem, const StrategyMemory &memory,
                                           const LimitedOptions &options) {
  LATHE_RETURN_IF_ERROR(checkProblem(problem));
  const size_t count = problem.costs.size();
  if (memory.lifetimes.size() != count || memory.bytes.size() != count || memory.limit <= 0)
    return invalidError("memory of other ops than the problem's, or no limit");
  for (size_t op = 0; op < count; ++op)
    if (memory.bytes[op].size() != problem.costs[op].size() || memory.lifetimes[op].first > memory.lifetimes[op].last ||
        std::any_of(memory.bytes[op].begin(), memory.bytes[op].end(), [](int64_t bytes) { return bytes < 0; }))
      return invalidError("op " + std::to_string(op) + " has other bytes than choices, negative ones, or ends before it begins");
  if (!count)
    return LimitedSolution{};
  Result<StrategyGraph> graph = StrategyGraph::build(problem, memory);
  if (!graph)
    return graph.status();
  Result<LimitedSolution> solution = Search(*graph, memory.limit, options).run();
  if (solution) {
    solution->cost = strategyCost(problem, solution->choices);
    solution->bound = std::min(solution->bound, solution->cost);
  }
  return solution;
}

} // namespace lathe::analysis
