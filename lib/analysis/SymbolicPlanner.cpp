//===- SymbolicPlanner.cpp - offsets as formulas ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A numeric plan at one point decides who stands on whom; the formulas keep that
// order at every size:
//
//   offset(i) = align(max over neighbours j below i of offset(j) + size(j))
//
// Neighbours that stand below another neighbour, and those whose top is provably
// not the highest, drop out of the maximum, so that most formulas are polynomials.
//
//===----------------------------------------------------------------------===//
#include "Conflicts.h"

#include <algorithm>
#include <numeric>

namespace lathe::analysis {
namespace {

/// Longer formulas are replaced: they would be slow to evaluate and tell nobody anything.
constexpr size_t kMaxFormula = 1500;

using Bounds = std::map<std::string, DimRange>;

/// Whether a <= b for all values in bounds; false when it cannot be shown.
bool provablyAtMost(const DimExpr &a, const DimExpr &b, const Bounds &bounds) {
  DimExpr difference = b - a;
  if (difference.range(bounds).lo >= 0)
    return true;
  // Rounded sizes: c*floordiv(e, d) lies between (c/d)*(e - d + 1) and (c/d)*e. A
  // difference of multiples of g that is above -g is not negative.
  int64_t granule = 0;
  DimExpr low;
  for (const DimExpr::Term &term : difference.terms()) {
    int64_t c = term.coefficient;
    if (c == INT64_MIN)
      return false;
    granule = std::gcd(granule, c);
    bool rounded = term.atoms.size() == 1 && term.atoms[0].kind() == DimExpr::Kind::FloorDiv;
    if (rounded) {
      std::vector<DimExpr> operands = term.atoms[0].operands();
      std::optional<int64_t> d = operands[1].constant();
      if (d && *d > 0 && c % *d == 0) {
        DimExpr e = c > 0 ? operands[0] - DimExpr(*d - 1) : operands[0];
        low = low + DimExpr(c / *d) * e;
        continue;
      }
    }
    DimExpr product = c;
    for (const DimExpr &atom : term.atoms)
      product = product * atom;
    low = low + product;
  }
  return low.range(bounds).lo > -granule;
}

/// The maximum of candidates, without those that provably do not decide it.
DimExpr maximum(std::vector<DimExpr> candidates, const Bounds &bounds) {
  std::vector<DimExpr> kept;
  for (const DimExpr &c : candidates) {
    auto covers = [&](const DimExpr &k) { return provablyAtMost(c, k, bounds); };
    if (std::any_of(kept.begin(), kept.end(), covers))
      continue;
    std::erase_if(kept, [&](const DimExpr &k) { return provablyAtMost(k, c, bounds); });
    kept.push_back(c);
  }
  DimExpr result = kept.empty() ? DimExpr(0) : kept[0];
  for (size_t i = 1; i < kept.size(); ++i)
    result = DimExpr::max(result, kept[i]);
  return result;
}

DimExpr alignUp(const DimExpr &e, int64_t alignment) {
  return DimExpr::ceilDiv(e, alignment) * DimExpr(alignment);
}

/// A neighbour that stands below, and its conflicting part's size.
struct Support {
  int item;
  DimExpr size;
  bool operator==(const Support &) const = default;
};

class Formulas {
public:
  Formulas(const SymbolicProblem &problem, const Problem &shape, const Solution &plan)
      : problem(problem), items(makeItems(shape)), supports(items.size()) {
    itemOf.resize(problem.buffers.size());
    for (size_t i = 0; i < items.size(); ++i)
      for (int b : items[i].buffers)
        itemOf[b] = static_cast<int>(i);
    for (auto [a, b] : conflictPairs(shape)) {
      if (plan.offsets[a] > plan.offsets[b])
        std::swap(a, b);
      supports[itemOf[b]].push_back({itemOf[a], problem.buffers[a].size});
    }
    order.resize(items.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return std::pair(plan.offsets[items[a].buffers[0]], a) <
             std::pair(plan.offsets[items[b].buffers[0]], b);
    });
    for (const Item &item : items) {
      std::vector<DimExpr> sizes;
      for (int b : item.buffers)
        sizes.push_back(problem.buffers[b].size);
      sizeOf.push_back(maximum(std::move(sizes), problem.bounds));
    }
  }

  /// False when a formula grows too long.
  bool chains() {
    offsets.assign(items.size(), 0);
    for (int i : order) {
      std::vector<DimExpr> tops;
      for (const Support &s : supports[i])
        if (!standsBelowAnother(i, s))
          tops.push_back(offsets[s.item] + s.size);
      offsets[i] = alignUp(maximum(std::move(tops), problem.bounds), items[i].alignment);
      if (offsets[i].str().size() > kMaxFormula)
        return false;
    }
    std::vector<DimExpr> tops;
    for (size_t i = 0; i < items.size(); ++i)
      tops.push_back(offsets[i] + sizeOf[i]);
    height = maximum(std::move(tops), problem.bounds);
    return height.str().size() <= kMaxFormula;
  }

  void shelves() {
    int64_t alignment = 1;
    for (const Item &item : items)
      alignment = std::lcm(alignment, item.alignment);
    std::vector<size_t> shelfOf(items.size(), 0);
    std::vector<std::vector<DimExpr>> sizes;
    for (int i : order) {
      for (const Support &s : supports[i])
        shelfOf[i] = std::max(shelfOf[i], shelfOf[s.item] + 1);
      if (sizes.size() <= shelfOf[i])
        sizes.resize(shelfOf[i] + 1);
      sizes[shelfOf[i]].push_back(alignUp(sizeOf[i], alignment));
    }
    std::vector<DimExpr> base{0};
    for (std::vector<DimExpr> &shelf : sizes)
      base.push_back(base.back() + maximum(std::move(shelf), problem.bounds));
    offsets.resize(items.size());
    for (size_t i = 0; i < items.size(); ++i)
      offsets[i] = base[shelfOf[i]];
    height = base.back();
  }

  void store(SymbolicSolution &solution) const {
    solution.height = height;
    for (int item : itemOf)
      solution.offsets.push_back(offsets[item]);
  }

private:
  /// Then the other's offset is already behind s.
  bool standsBelowAnother(int i, const Support &s) const {
    for (const Support &other : supports[i]) {
      if (other.item == s.item)
        continue;
      const std::vector<Support> &below = supports[other.item];
      if (std::find(below.begin(), below.end(), s) != below.end())
        return true;
    }
    return false;
  }

  const SymbolicProblem &problem;
  std::vector<Item> items;
  std::vector<std::vector<Support>> supports;
  std::vector<int> itemOf, order;
  std::vector<DimExpr> sizeOf, offsets;
  DimExpr height;
};

} // namespace

Result<Problem> evaluateProblem(const SymbolicProblem &problem,
                                const std::map<std::string, int64_t> &values) {
  Problem result;
  result.conflicts = problem.conflicts;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const SymbolicBuffer &b = problem.buffers[i];
    Result<int64_t> size = b.size.evaluate(values);
    if (!size)
      return size.status();
    if (*size < 0)
      return invalidError("size " + b.size.str() + " is negative", "buffer " + std::to_string(i));
    Buffer &numeric = result.buffers.emplace_back();
    numeric.size = *size;
    numeric.alignment = b.alignment;
    numeric.begin = b.begin;
    numeric.end = b.end;
    numeric.aliasGroup = b.aliasGroup;
  }
  return result;
}

Result<SymbolicSolution> planSymbolic(const SymbolicProblem &problem, const PlanOptions &options) {
  Result<Problem> shape = evaluateProblem(problem, problem.point);
  if (!shape)
    return shape.status();
  // A buffer that happens to be empty at the point still takes part in the order.
  for (size_t i = 0; i < problem.buffers.size(); ++i)
    if (shape->buffers[i].size == 0 && problem.buffers[i].size.constant() != 0)
      shape->buffers[i].size = 1;
  Result<Solution> plan = planMemory(*shape, options);
  if (!plan)
    return plan.status();

  SymbolicSolution solution;
  Formulas formulas(problem, *shape, *plan);
  solution.method = "chains";
  if (!formulas.chains()) {
    formulas.shelves();
    solution.method = "shelves";
  }
  formulas.store(solution);
  solution.atPoint = std::move(*plan);
  return solution;
}

} // namespace lathe::analysis
