//===- Choose.cpp - a strategy for each op at least cost ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Time is a roofline for what a rank computes of an op, and a latency and bytes for each
// conversion between what a producer leaves and what a reader wants. Constants cost no conversion: each
// rank loads what it wants. lib/analysis finds the least sum, and if that takes more memory of a rank than there is,
// the least that fits.
//
//===----------------------------------------------------------------------===//
#include "Choose.h"

#include "Memory.h"
#include "Queries.h"

#include <limits>
#include <random>

using namespace mlir;

namespace lathe::shard {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

class Chooser {
public:
  Chooser(func::FuncOp func, int64_t ranks, const Costs &costs,
          const std::map<std::string, int64_t> &optima)
      : func(func), block(func.getBody().front()), ranks(ranks), costs(costs), optima(optima), sizes{ranks, optima} {}

  Result<Choice> run(ArrayRef<Hint> hints, std::optional<int64_t> rankBytes, StateLayouts &states) {
    const BlockTable blocks = findBlocks(block, ranks);
    PartialTable partials;
    std::mt19937_64 draw(costs.drawSeed);
    for (Operation &op : block.without_terminator()) {
      if (isa<ConstantOp>(op))
        continue;
      number[&op] = ops.size();
      ops.push_back(&op);
      ways.push_back(strategiesOf(&op, ranks, blocks));
      keepPartial(&op, ways.back(), partials);
      std::vector<double> own;
      for (const Strategy &way : ways.back())
        own.push_back(costOf(&op, way) +
                      (costs.drawnSeconds > 0 ? costs.drawnSeconds * double(draw() >> 11) * 0x1p-53 : 0));
      problem.costs.push_back(std::move(own));
    }
    for (Operation *op : ops)
      for (OpResult result : op->getResults())
        addReaders(result);
    tieStates(states);
    Choice choice;
    bool hasUsers = false;
    for (const Hint &hint : hints) {
      hasUsers |= !hint.isOfModel;
      if (Status applied = apply(hint); !applied.ok()) {
        if (!hint.isOfModel)
          return applied;
        choice.leftOut.push_back(applied.location() + ": " + applied.message());
      }
    }
    Result<analysis::StrategySolution> solution = analysis::searchStrategies(problem);
    if (!solution)
      return Status(ErrorCode::Usage, "the hints do not hold together",
                    hasUsers ? "--shard" : "sharding specs of the model");
    RankMemory memory(sizes, ops, ways, shared, problem, rankBytes.value_or(1));
    choice.bytes = memory.peak(solution->choices);
    if (rankBytes && choice.bytes > *rankBytes) {
      Result<analysis::LimitedSolution> within = analysis::searchWithinMemory(problem, memory.memory());
      if (!within)
        return Status(within.status().code() == ErrorCode::Unsupported ? ErrorCode::Usage : within.status().code(),
                      "a rank has " + std::to_string(*rankBytes) + " bytes, and no division of entry '" +
                          func.getSymName().str() + "' that fits was found (" + within.status().message() +
                          "); the cheapest takes " + std::to_string(choice.bytes),
                      "--rank-memory");
      *solution = {within->choices, within->cost, within->cost <= within->bound * (1 + 1e-12)};
      choice.bytes = memory.peak(solution->choices);
    }
    choice.seconds = solution->cost;
    choice.exact = solution->exact;
    for (auto [i, op] : llvm::enumerate(ops)) {
      choice.ways[op] = ways[i][solution->choices[i]];
      if (StringRef state = stateOf(op); !state.empty())
        states[state.str()] = choice.ways[op].results[0];
    }
    return choice;
  }

private:
  const std::vector<Strategy> &waysOf(Operation *op) const { return ways[number.lookup(op)]; }

  /// Seconds until a value that lies so lies as a reader wants it.
  double conversion(Value value, const Layout &have, const Layout &want) const {
    if (have == want)
      return 0;
    // Zeros in the place of what nobody may read are written by whatever makes the value.
    if (have.isSplit() && have.withZeros() == want)
      return sizes.bytesOf(value.getType()) / double(ranks) / costs.bytes / 10;
    const double bytes = sizes.bytesOf(value.getType()), others = double(ranks - 1) / double(ranks);
    const double cut = bytes / double(ranks) / costs.bytes, exchange = bytes * others / costs.exchangedBytes;
    const double order = have.isSplit() && !have.parts.isInOrder(ranks) ? 2 * bytes / costs.bytes : 0;
    const double gather = costs.meetingSeconds + exchange + order;
    switch (have.kind) {
    case Layout::Kind::Replicated:
      return want.isSplit() ? cut : kImpossible;
    case Layout::Kind::Split:
      return want.isReplicated() ? gather : want.isSplit() ? gather + cut : kImpossible;
    case Layout::Kind::Partial:
      if (want.isReplicated())
        return gather + exchange;
      return want.isSplit() ? gather : kImpossible;
    }
    return kImpossible;
  }

  /// Whether an op reads nothing but constants, as one that prepares weights.
  static bool readsConstants(Operation *op) {
    return op->getNumOperands() && llvm::all_of(op->getOperands(), [](Value operand) {
             return operand.getDefiningOp<ConstantOp>() != nullptr;
           });
  }

  double costOf(Operation *op, const Strategy &way) const {
    double bytes = 0, cost = 0;
    auto structured = dyn_cast<StructuredOpInterface>(op);
    const OpClass kind = structured ? structured.getOpClass() : OpClass::Source;
    const bool weighs = kind == OpClass::Gemm || kind == OpClass::Conv || kind == OpClass::Gather || readsConstants(op);
    for (auto [k, operand, layout] : llvm::enumerate(op->getOperands(), way.operands)) {
      const double all = sizes.bytesOf(operand.getType());
      // Of a gather what it takes from, not where.
      const bool isWeight = weighs && operand.getDefiningOp<ConstantOp>() &&
                            (kind != OpClass::Gather || structured.getAccess(k).kind == OperandAccess::Kind::Data);
      bytes += all * sizes.shareOf(operand, layout);
      if (isWeight && !layout.isSplit() && cast<TensorType>(operand.getType()).getRank() > 1)
        cost += all * costs.replicatedByte;
      if (isa<BlockArgument>(operand))
        cost += conversion(operand, {}, layout);
    }
    for (auto [result, layout] : llvm::zip(op->getResults(), way.results))
      bytes += sizes.bytesOf(result.getType()) * sizes.shareOf(result, layout);
    // Queries of a block are cut out, and their results put together.
    if (auto attention = dyn_cast<AttentionOp>(op); attention && piecesOf(attention, way.operands[0]) > 1)
      cost += 2 * (sizes.bytesOf(attention.getQ().getType()) + sizes.bytesOf(attention.getY().getType())) / double(ranks) / costs.bytes;
    double flops = 0;
    if (structured)
      if (auto value = structured.getFlops().evaluate(optima); value.ok())
        flops = double(std::max<int64_t>(0, *value)) * (way.divided ? shareOf(op, way) : 1);
    return cost + std::max(flops / costs.flops, fusesWithNeighbours(kind) ? 0 : bytes / costs.bytes);
  }

  /// Of the work of an op the share of the rank that has most of it.
  double shareOf(Operation *op, const Strategy &way) const {
    auto attention = dyn_cast<AttentionOp>(op);
    return attention ? largestShare(attention, way.operands[0], ranks) : 1 / double(ranks);
  }

  void addPair(size_t from, size_t to, llvm::function_ref<double(size_t, size_t)> cost) {
    analysis::StrategyProblem::Pair pair{int(from), int(to), {}};
    for (size_t a = 0; a < problem.costs[from].size(); ++a)
      for (size_t b = 0; b < problem.costs[to].size(); ++b)
        pair.costs.push_back(cost(a, b));
    problem.pairs.push_back(std::move(pair));
  }

  /// What it costs that a value reaches its readers. Callers get all of an output.
  void addReaders(OpResult value) {
    const size_t maker = number[value.getOwner()];
    const std::vector<Strategy> &ways = waysOf(value.getOwner());
    auto left = [&](size_t way) -> const Layout & { return ways[way].results[value.getResultNumber()]; };
    auto wanted = [&](OpOperand &use, size_t way) {
      return number.count(use.getOwner()) ? waysOf(use.getOwner())[way].operands[use.getOperandNumber()] : Layout();
    };
    if (value.hasOneUse()) {
      OpOperand &use = *value.use_begin();
      if (auto reader = number.find(use.getOwner()); reader != number.end())
        addPair(maker, reader->second,
                [&](size_t a, size_t b) { return conversion(value, left(a), wanted(use, b)); });
      else
        for (size_t a = 0; a < ways.size(); ++a)
          problem.costs[maker][a] += conversion(value, left(a), {});
      return;
    }
    if (value.use_empty())
      return;
    // Several readers share what is brought together for one: a choice of its own between the value as
    // its maker leaves it, and that with all of it beside.
    SmallVector<std::pair<Layout, bool>> forms;
    for (size_t a = 0; a < ways.size(); ++a)
      for (bool whole : {false, true})
        if (!llvm::is_contained(forms, std::pair(left(a), whole)) && !(whole && left(a).isReplicated()))
          forms.push_back({left(a), whole});
    const size_t form = problem.costs.size();
    problem.costs.emplace_back();
    shared.push_back({value, form, {}});
    for (auto &[layout, whole] : forms) {
      problem.costs.back().push_back(whole ? conversion(value, layout, {}) : 0);
      shared.back().whole.push_back(whole);
    }
    addPair(maker, form, [&](size_t a, size_t f) { return left(a) == forms[f].first ? 0 : kImpossible; });
    for (OpOperand &use : value.getUses()) {
      auto cost = [&](size_t f, size_t b) {
        const Layout want = wanted(use, b);
        return forms[f].second && want != forms[f].first ? conversion(value, {}, want)
               : want.isReplicated() && !forms[f].first.isReplicated()
                   ? kImpossible // where `whole` is a form of its own
                   : conversion(value, forms[f].first, want);
      };
      if (auto reader = number.find(use.getOwner()); reader != number.end())
        addPair(form, reader->second, cost);
      else
        for (size_t f = 0; f < forms.size(); ++f)
          problem.costs[form][f] += cost(f, 0);
    }
  }

  /// All ops on a state have the same layout of it, that of other entries where these come first.
  void tieStates(const StateLayouts &states) {
    std::map<std::string, Operation *> first;
    for (Operation *op : ops) {
      const std::string state = stateOf(op).str();
      if (state.empty())
        continue;
      if (auto known = states.find(state); known != states.end())
        for (auto [w, way] : llvm::enumerate(waysOf(op)))
          if (way.results[0] != known->second)
            problem.costs[number[op]][w] = kImpossible;
      auto [it, isFirst] = first.try_emplace(state, op);
      if (!isFirst)
        addPair(number[it->second], number[op], [&](size_t a, size_t b) {
          return waysOf(it->second)[a].results[0] == waysOf(op)[b].results[0] ? 0 : kImpossible;
        });
    }
  }

  static bool fits(const Hint &hint, const Layout &layout) {
    return hint.dim ? layout.isSplit() && layout.dim == *hint.dim : !layout.isSplit();
  }

  /// Rules out what does not fit.
  Status apply(const Hint &hint) {
    const std::string where = (hint.isOfModel ? "sharding spec " : "--shard ") + hint.text;
    bool known = false;
    auto restrict = [&](Operation *op, llvm::function_ref<bool(const Strategy &)> fitting) -> Status {
      if (llvm::any_of(waysOf(op), fitting)) {
        for (auto [w, way] : llvm::enumerate(waysOf(op)))
          if (!fitting(way))
            problem.costs[number[op]][w] = kImpossible;
        return okStatus();
      }
      SmallVector<StringRef> nodes = nodeNames(op->getLoc());
      return usageError("cannot hold: no way to run " + op->getName().getStringRef().str() + " of node '" +
                            (nodes.empty() ? std::string() : nodes.back().str()) + "' on " +
                            std::to_string(ranks) + " ranks has it so",
                        where);
    };
    auto isNamed = [&](Operation &op) { return llvm::is_contained(nodeNames(op.getLoc()), StringRef(hint.name)); };
    // Constants that a node became as well, as where its queries begin, are no weights of this name.
    const bool isNode =
        llvm::any_of(block.without_terminator(), [&](Operation &op) { return !isa<ConstantOp>(op) && isNamed(op); });
    for (Operation &op : block.without_terminator()) {
      if (!isNamed(op))
        continue;
      if (isa<ConstantOp>(op)) {
        if (isNode)
          continue;
        for (OpOperand &use : op.getUses()) {
          known = true;
          if (number.count(use.getOwner()))
            LATHE_RETURN_IF_ERROR(restrict(use.getOwner(), [&](const Strategy &way) {
              return fits(hint, way.operands[use.getOperandNumber()]);
            }));
        }
        continue;
      }
      // Of the ops of a node the last, whose result is the node's.
      bool isLast = llvm::none_of(op.getUsers(), [&](Operation *user) {
        return number.count(user) && llvm::is_contained(nodeNames(user->getLoc()), StringRef(hint.name));
      });
      known = true;
      if (isLast && op.getNumResults())
        LATHE_RETURN_IF_ERROR(restrict(&op, [&](const Strategy &way) { return fits(hint, way.results[0]); }));
    }
    if (!known)
      return usageError("no weight or node is called '" + hint.name + "'", where);
    return okStatus();
  }

  func::FuncOp func;
  Block &block;
  const int64_t ranks;
  const Costs &costs;
  const std::map<std::string, int64_t> &optima;
  const UsualSizes sizes;
  SmallVector<SharedValue> shared;
  SmallVector<Operation *> ops;
  llvm::DenseMap<Operation *, size_t> number;
  std::vector<std::vector<Strategy>> ways;
  analysis::StrategyProblem problem;
};

} // namespace

Result<Choice> choose(func::FuncOp func, int64_t ranks, const Costs &costs, ArrayRef<Hint> hints,
                      std::optional<int64_t> rankBytes, const std::map<std::string, int64_t> &optima,
                      StateLayouts &states) {
  return Chooser(func, ranks, costs, optima).run(hints, rankBytes, states);
}

} // namespace lathe::shard
