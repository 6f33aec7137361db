//===- BudgetSearch.cpp - choices of least loss within a budget -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/analysis/BudgetSearch.h"

#include <algorithm>
#include <cmath>

namespace lathe::analysis {
namespace {

/// The sum of a problem, and how it changes with one choice.
class Sum {
public:
  explicit Sum(const StrategyProblem &problem) : problem(problem), pairsOf(problem.costs.size()) {
    for (const StrategyProblem::Pair &pair : problem.pairs)
      pairsOf[pair.a].push_back(&pair), pairsOf[pair.b].push_back(&pair);
  }
  double difference(const std::vector<int> &choices, int item, int to) const {
    const int from = choices[item];
    double sum = problem.costs[item][to] - problem.costs[item][from];
    for (const StrategyProblem::Pair *pair : pairsOf[item]) {
      const size_t columns = problem.costs[pair->b].size();
      auto at = [&](int own) {
        return pair->a == item ? pair->costs[own * columns + choices[pair->b]] : pair->costs[choices[pair->a] * columns + own];
      };
      sum += at(to) - at(from);
    }
    return sum;
  }

private:
  const StrategyProblem &problem;
  std::vector<std::vector<const StrategyProblem::Pair *>> pairsOf;
};

class Search {
public:
  explicit Search(const BudgetProblem &problem) : problem(problem), costs(problem.costs), losses(problem.losses) {}

  Result<BudgetSolution> run() {
    Result<BudgetSolution> cheapest = at(0, 1);
    if (!cheapest)
      return cheapest.status();
    if (cheapest->cost > problem.budget)
      return unsupportedError("nothing costs less than " + std::to_string(cheapest->cost) + ", the budget is " +
                              std::to_string(problem.budget));
    BudgetSolution best = *cheapest;
    bool exact = true;
    double bound = 0, low = 0, high = 1;
    auto attempt = [&](double multiplier) {
      Result<BudgetSolution> found = at(1, multiplier);
      if (!found)
        return false;
      exact &= found->exact;
      // Of all choices within the budget none has less than this.
      bound = std::max(bound, found->loss + multiplier * (found->cost - problem.budget));
      const bool fits = found->cost <= problem.budget;
      if (fits && found->loss < best.loss)
        best = *found;
      return fits;
    };
    // A multiplier at which the budget is kept; one of infinity is the cheapest choice of all.
    for (int i = 0; i < kDoublings && !attempt(high); ++i)
      low = high, high *= 4;
    for (int i = 0; i < kBisections; ++i) {
      const double middle = low > 0 ? std::sqrt(low * high) : high / 64;
      (attempt(middle) ? high : low) = middle;
    }
    attempt(0);
    improve(best);
    best.exact = exact, best.bound = std::min(bound, best.loss);
    return best;
  }

private:
  static constexpr int kDoublings = 60, kBisections = 48;
  /// What improves by no more than rounding could go around in circles.
  static constexpr double kGain = 1e-9;

  /// The choices of the least lossFactor * loss + multiplier * cost.
  Result<BudgetSolution> at(double lossFactor, double multiplier) const {
    StrategyProblem weighed;
    for (const auto &[part, factor] : {std::pair(&problem.losses, lossFactor), std::pair(&problem.costs, multiplier)}) {
      weighed.costs.resize(part->costs.size());
      for (size_t i = 0; i < part->costs.size(); ++i) {
        weighed.costs[i].resize(part->costs[i].size());
        for (size_t c = 0; c < part->costs[i].size(); ++c)
          weighed.costs[i][c] += factor * part->costs[i][c];
      }
      for (StrategyProblem::Pair pair : part->pairs) {
        for (double &cost : pair.costs)
          cost *= factor;
        weighed.pairs.push_back(std::move(pair));
      }
    }
    Result<StrategySolution> found = searchStrategies(weighed);
    if (!found)
      return found.status();
    BudgetSolution solution;
    solution.choices = std::move(found->choices);
    solution.exact = found->exact;
    solution.cost = strategyCost(problem.costs, solution.choices);
    solution.loss = strategyCost(problem.losses, solution.choices);
    return solution;
  }

  void improve(BudgetSolution &best) const {
    auto set = [&](size_t item, int to) {
      best.cost += costs.difference(best.choices, int(item), to);
      best.loss += losses.difference(best.choices, int(item), to);
      best.choices[item] = to;
    };
    auto choicesOf = [&](size_t item) { return int(problem.losses.costs[item].size()); };
    double scale = 1e-300; // of the losses, by which differences round
    auto widen = [&](const std::vector<double> &values) {
      for (double value : values)
        scale = std::max(scale, std::fabs(value));
    };
    for (const std::vector<double> &values : problem.losses.costs)
      widen(values);
    for (const StrategyProblem::Pair &pair : problem.losses.pairs)
      widen(pair.costs);
    auto isBetter = [&](const BudgetSolution &before) {
      return best.cost <= problem.budget && best.loss < before.loss - kGain * scale;
    };
    // One item pays what another gains.
    auto changeAnother = [&](const BudgetSolution &before, size_t a) {
      for (size_t b = 0; b < best.choices.size(); ++b)
        for (int was = best.choices[b], to = 0; b != a && to < choicesOf(b); ++to) {
          set(b, to);
          if (isBetter(before))
            return true;
          set(b, was);
        }
      return false;
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t a = 0; a < best.choices.size(); ++a)
        for (int to = 0; to < choicesOf(a); ++to) {
          const BudgetSolution before = best;
          set(a, to);
          if (isBetter(before) || changeAnother(before, a))
            changed = true;
          else
            best = before;
        }
    }
    best.cost = strategyCost(problem.costs, best.choices);
    best.loss = strategyCost(problem.losses, best.choices);
  }

  const BudgetProblem &problem;
  const Sum costs, losses;
};

} // namespace

Result<BudgetSolution> searchWithinBudget(const BudgetProblem &problem) {
  const auto &choices = problem.costs.costs;
  if (problem.losses.costs.size() != choices.size())
    return invalidError("has losses of " + std::to_string(problem.losses.costs.size()) + " items, costs of " + std::to_string(choices.size()));
  auto finite = [](const std::vector<double> &values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  };
  for (size_t i = 0; i < choices.size(); ++i)
    if (choices[i].empty() || choices[i].size() != problem.losses.costs[i].size() || !finite(choices[i]) ||
        !finite(problem.losses.costs[i]))
      return invalidError("item " + std::to_string(i) + " has no choice, others that lose than that cost, or one that is not finite");
  for (const StrategyProblem *part : {&problem.costs, &problem.losses})
    for (const StrategyProblem::Pair &pair : part->pairs)
      if (pair.a < 0 || pair.b < 0 || pair.a == pair.b || size_t(std::max(pair.a, pair.b)) >= choices.size() ||
          pair.costs.size() != choices[pair.a].size() * choices[pair.b].size() || !finite(pair.costs))
        return invalidError("items " + std::to_string(pair.a) + " and " + std::to_string(pair.b) + " have a table that does not fit");
  return Search(problem).run();
}

} // namespace lathe::analysis
