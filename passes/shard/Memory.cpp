//===- Memory.cpp - what ways to run ops keep in a rank's memory ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Memory.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace lathe::shard {

namespace {
constexpr double kImpossible = std::numeric_limits<double>::infinity();
/// Constants below it are left out: they do not decide what fits.
constexpr double kSmallBytes = 4096;
/// Layouts of a constant of which sets are made; one with more, which several read, counts once for each of them.
constexpr size_t kMostLayouts = 6;
} // namespace

double UsualSizes::bytesOf(Type type) const {
  auto tensor = dyn_cast<TensorType>(type);
  std::optional<DType> dtype = tensor ? dtypeOf(tensor.getElementType()) : std::nullopt;
  if (!dtype)
    return 0;
  auto count = numElements(type).evaluate(optima);
  return count.ok() ? double(std::max<int64_t>(0, *count)) * bitWidth(*dtype) / 8 : 0;
}

double UsualSizes::shareOf(Value value, const Layout &layout) const {
  return layout.isSplit() ? double(layout.parts.localSize(ranks)) / double(layout.parts.size()) : 1;
}

bool fusesWithNeighbours(OpClass kind) {
  return kind == OpClass::Pointwise || kind == OpClass::Movement || kind == OpClass::Pairwise || kind == OpClass::Source;
}

RankMemory::RankMemory(const UsualSizes &sizes, ArrayRef<Operation *> ops, const std::vector<std::vector<Strategy>> &ways,
                       ArrayRef<SharedValue> shared, analysis::StrategyProblem &problem, int64_t limit)
    : sizes(sizes), ops(ops), ways(ways), problem(problem) {
  for (auto [i, op] : llvm::enumerate(ops))
    number[op] = i;
  limits.limit = limit;
  addResults();
  addShared(shared);
  addWeights();
  addStates();
}

void RankMemory::add(size_t at, analysis::StrategyMemory::Lifetime life, std::vector<int64_t> bytes) {
  if (limits.bytes.size() <= at) {
    limits.bytes.resize(at + 1);
    limits.lifetimes.resize(at + 1);
  }
  limits.bytes[at] = std::move(bytes);
  limits.lifetimes[at] = life;
}

analysis::StrategyMemory::Lifetime RankMemory::lifeOf(Value value) const {
  const auto first = int64_t(number.lookup(value.getDefiningOp()));
  int64_t last = first + 1;
  for (Operation *user : value.getUsers()) {
    auto reader = number.find(user);
    last = std::max(last, reader == number.end() ? int64_t(ops.size()) : int64_t(reader->second) + 1);
  }
  return {first, last};
}

void RankMemory::addResults() {
  for (auto [i, op] : llvm::enumerate(ops)) {
    analysis::StrategyMemory::Lifetime life{int64_t(i), int64_t(i)};
    std::vector<int64_t> bytes(ways[i].size());
    auto structured = dyn_cast<StructuredOpInterface>(op);
    for (OpResult result : op->getResults()) {
      const bool isFused = result.hasOneUse() && number.count(*result.user_begin()) && structured &&
                           fusesWithNeighbours(structured.getOpClass());
      if (isFused || !stateOf(op).empty())
        continue;
      life.last = std::max(life.last, lifeOf(result).last);
      for (size_t w = 0; w < bytes.size(); ++w)
        bytes[w] += int64_t(sizes.bytesOf(result.getType()) *
                            sizes.shareOf(result, ways[i][w].results[result.getResultNumber()]));
    }
    add(i, life, std::move(bytes));
  }
}

void RankMemory::addShared(ArrayRef<SharedValue> shared) {
  for (const SharedValue &one : shared) {
    std::vector<int64_t> bytes;
    for (bool whole : one.whole)
      bytes.push_back(whole ? int64_t(sizes.bytesOf(one.value.getType())) : 0);
    add(one.form, lifeOf(one.value), std::move(bytes));
  }
}

void RankMemory::tie(size_t op, size_t to, size_t choices, llvm::function_ref<bool(size_t, size_t)> fits) {
  analysis::StrategyProblem::Pair pair{int(op), int(to), {}};
  for (size_t w = 0; w < ways[op].size(); ++w)
    for (size_t choice = 0; choice < choices; ++choice)
      pair.costs.push_back(fits(w, choice) ? 0 : kImpossible);
  problem.pairs.push_back(std::move(pair));
}

void RankMemory::addWeights() {
  llvm::MapVector<Value, std::vector<std::pair<size_t, size_t>>> readers;
  for (auto [i, op] : llvm::enumerate(ops))
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get().getDefiningOp<ConstantOp>() && sizes.bytesOf(operand.get().getType()) >= kSmallBytes)
        readers[operand.get()].push_back({i, operand.getOperandNumber()});
  auto addOne = [&](Value value, std::vector<std::pair<size_t, size_t>> reading) {
    Weight weight;
    weight.number = problem.costs.size();
    weight.readers = std::move(reading);
    for (auto [op, operand] : weight.readers)
      for (const Strategy &way : ways[op])
        if (!llvm::is_contained(weight.layouts, way.operands[operand].withZeros(false)))
          weight.layouts.push_back(way.operands[operand].withZeros(false));
    const size_t layouts = weight.layouts.size();
    for (unsigned members = 1; weight.readers.size() > 1 && members < 1u << layouts; ++members) {
      weight.sets.emplace_back(layouts);
      for (size_t i = 0; i < layouts; ++i)
        if (members >> i & 1)
          weight.sets.back().set(i);
    }
    for (size_t i = 0; weight.readers.size() == 1 && i < layouts; ++i)
      weight.sets.emplace_back(layouts).set(i);
    std::vector<int64_t> bytes;
    for (const llvm::SmallBitVector &set : weight.sets) {
      double sum = 0;
      for (unsigned i : set.set_bits())
        sum += sizes.bytesOf(value.getType()) * sizes.shareOf(value, weight.layouts[i]);
      bytes.push_back(int64_t(sum));
    }
    problem.costs.emplace_back(weight.sets.size());
    add(weight.number, {0, int64_t(ops.size())}, std::move(bytes));
    for (auto [op, operand] : weight.readers)
      tie(op, weight.number, weight.sets.size(), [&, operand = operand, op = op](size_t w, size_t choice) {
        const auto layout = llvm::find(weight.layouts, ways[op][w].operands[operand].withZeros(false));
        return weight.sets[choice].test(layout - weight.layouts.begin());
      });
    weights.push_back(std::move(weight));
  };
  for (auto &[value, reading] : readers) {
    std::vector<Layout> layouts;
    for (auto [op, operand] : reading)
      for (const Strategy &way : ways[op])
        if (!llvm::is_contained(layouts, way.operands[operand].withZeros(false)))
          layouts.push_back(way.operands[operand].withZeros(false));
    if (reading.size() == 1 || layouts.size() <= kMostLayouts)
      addOne(value, std::move(reading));
    else
      for (const std::pair<size_t, size_t> &one : reading)
        addOne(value, {one});
  }
}

/// A state once, with the ways of the first op that reads or extends it: all have it alike.
void RankMemory::addStates() {
  std::set<std::string> seen;
  for (auto [i, op] : llvm::enumerate(ops)) {
    const std::string name = stateOf(op).str();
    if (name.empty() || !seen.insert(name).second)
      continue;
    auto declared = SymbolTable::lookupNearestSymbolFrom<StateOp>(op, StringAttr::get(op->getContext(), name));
    const Type type = declared ? declared.getType() : op->getResult(0).getType();
    const size_t at = problem.costs.size();
    problem.costs.emplace_back(ways[i].size());
    std::vector<int64_t> bytes;
    for (const Strategy &way : ways[i])
      bytes.push_back(int64_t(sizes.bytesOf(type) * sizes.shareOf(op->getResult(0), way.results[0])));
    add(at, {0, int64_t(ops.size())}, std::move(bytes));
    tie(i, at, ways[i].size(), [](size_t w, size_t choice) { return w == choice; });
    states.push_back({at, i});
  }
}

int64_t RankMemory::peak(std::vector<int> choices) const {
  choices.resize(limits.bytes.size());
  for (const Weight &weight : weights) {
    llvm::SmallBitVector wanted(weight.layouts.size());
    for (auto [op, operand] : weight.readers)
      wanted.set(llvm::find(weight.layouts, ways[op][choices[op]].operands[operand].withZeros(false)) -
                 weight.layouts.begin());
    choices[weight.number] = int(llvm::find(weight.sets, wanted) - weight.sets.begin());
  }
  for (auto [state, op] : states)
    choices[state] = choices[op];
  std::vector<int64_t> change(ops.size() + 2);
  for (size_t i = 0; i < choices.size(); ++i) {
    change[size_t(limits.lifetimes[i].first)] += limits.bytes[i][size_t(choices[i])];
    change[size_t(limits.lifetimes[i].last)] -= limits.bytes[i][size_t(choices[i])];
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return *std::max_element(change.begin(), change.end());
}

} // namespace lathe::shard
