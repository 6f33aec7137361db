//===- Sizes.cpp - symbols, their origins, and guards ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ProgramBuilder.h"

#include "lathe/codegen/KernelSpec.h"
#include "lathe/ir/States.h"

#include <set>

using namespace mlir;

namespace lathe::plan {

/// Symbols that dim_from gives the values of elements, and those of choices between different sizes.
static std::set<std::string> boundSymbols(func::FuncOp func) {
  std::set<std::string> bound;
  auto add = [&](ArrayAttr names) {
    for (Attribute name : names)
      bound.insert(cast<StringAttr>(name).str());
  };
  func.walk([&](DimFromOp op) { add(op.getSymbols()); });
  func.walk([&](ChooseOp op) {
    if (op.getSymbols())
      add(op.getSymbolsAttr());
  });
  return bound;
}

static std::set<std::string> symbolsIn(const DimExpr &expr) {
  std::set<std::string> names;
  expr.collectSymbols(names);
  return names;
}

std::set<std::string> lateSymbols(func::FuncOp func) {
  std::set<std::string> late = boundSymbols(func);
  for (SymbolOp symbol : func->getParentOfType<ModuleOp>().getOps<SymbolOp>())
    if (auto value = symbol.getValue())
      if (llvm::any_of(symbolsIn(value->expr()), [&](auto &name) { return late.count(name); }))
        late.insert(symbol.getSymName().str());
  return late;
}

int64_t inputPort(BlockArgument argument) {
  auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  int64_t port = -1;
  for (unsigned i = 0; i <= argument.getArgNumber(); ++i) {
    if (!func.getArgAttr(i, kStateAttr))
      ++port;
    else if (i == argument.getArgNumber())
      return -1;
  }
  return port;
}

LogicalResult emitSizes(func::FuncOp func, ArrayRef<StateOp> states,
                        const std::set<std::string> &symbols, OpBuilder &builder) {
  auto module = func->getParentOfType<ModuleOp>();
  std::map<std::string, std::pair<int64_t, int64_t>> inputs; // symbol -> input, axis
  for (BlockArgument argument : func.getArguments())
    for (auto [axis, dim] : llvm::enumerate(dimsOf(argument)))
      if (auto name = dim.symbolName())
        inputs.try_emplace(*name, inputPort(argument), int64_t(axis));
  std::set<std::string> bound = boundSymbols(func), used = symbols, counts;
  used.insert(bound.begin(), bound.end());
  func.walk([&](LoopEndOp loop) {
    if (auto name = loop.getIteration())
      counts.insert(name->str());
  });
  used.insert(counts.begin(), counts.end());
  // A derived size is there when a step needs it, or what it is made of is known: its bounds
  // may be a check. Those that it is made of stand before it.
  SmallVector<SymbolOp> all(module.getOps<SymbolOp>());
  std::set<std::string> known = bound;
  for (const auto &input : inputs)
    known.insert(input.first);
  for (SymbolOp symbol : all)
    if (auto value = symbol.getValue();
        value && llvm::all_of(symbolsIn(value->expr()), [&](auto &n) { return known.count(n); })) {
      known.insert(symbol.getSymName().str());
      used.insert(symbol.getSymName().str());
    }
  for (SymbolOp symbol : llvm::reverse(all))
    if (auto value = symbol.getValue(); value && used.count(symbol.getSymName().str()))
      used.merge(symbolsIn(value->expr()));

  for (SymbolOp symbol : module.getOps<SymbolOp>()) {
    std::string name = symbol.getSymName().str();
    if (!used.count(name))
      continue;
    exec::Origin origin = exec::Origin::Constant;
    int64_t index = -1, axis = -1;
    auto state = llvm::find_if(states, [&](StateOp s) { return s.getLength() == name; });
    if (auto input = inputs.find(name); input != inputs.end()) {
      origin = exec::Origin::InputDim;
      std::tie(index, axis) = input->second;
    } else if (state != states.end()) {
      origin = exec::Origin::StateLength;
      index = state - states.begin();
    } else if (bound.count(name)) {
      origin = exec::Origin::Bound;
    } else if (counts.count(name)) {
      origin = exec::Origin::Iteration;
    } else if (symbol.getValue()) {
      origin = exec::Origin::Derived;
    } else if (symbol.getMin() != symbol.getMax()) {
      return symbol.emitError("the size '")
             << name << "' is used by entry '" << func.getSymName()
             << "' and follows from none of its inputs: no input has exactly this size";
    }
    exec::SizeOp::create(builder, symbol.getLoc(), name, symbol.getMin(), symbol.getMax(),
                         symbol.getOpt(), symbol.getMultipleOf(), origin, index, axis,
                         symbol.getValueAttr());
  }
  return success();
}

namespace {

/// Collects each guard once: those over late symbols, or the others.
class Guards {
public:
  Guards(OpBuilder &builder, const std::set<std::string> &late, const std::set<std::string> &known,
         std::set<std::string> &emitted)
      : builder(builder), late(late), known(known), emitted(emitted) {}

  void require(Location loc, DimCondition::Kind kind, const DimExpr &lhs, const DimExpr &rhs,
               const std::string &message) {
    if (kind != DimCondition::Kind::Divisible && lhs == rhs)
      return;
    std::set<std::string> names = symbolsIn(lhs);
    names.merge(symbolsIn(rhs));
    if (llvm::any_of(names, [&](auto &name) { return late.count(name) && !known.count(name); }))
      return;
    std::string text = str(std::vector<DimCondition>{{kind, lhs, rhs}});
    if (!emitted.insert(text).second)
      return;
    SmallVector<StringRef> nodes = nodeNames(loc);
    exec::GuardOp::create(builder, loc, text, message, nodes.empty() ? StringRef() : nodes.front());
  }

private:
  OpBuilder &builder;
  const std::set<std::string> &late, &known;
  std::set<std::string> &emitted;
};

/// Sizes that an op reads along one iterator must agree, or broadcast.
void guardIterators(Operation *op, Guards &guards) {
  auto structured = dyn_cast<StructuredOpInterface>(op);
  if (!structured || op->getNumResults() != 1)
    return;
  OpClass kind = structured.getOpClass();
  if (kind == OpClass::Gather || kind == OpClass::Scatter || kind == OpClass::Scan ||
      !structured.coversOperands())
    return;
  SmallVector<AffineMap> maps = structured.getAccessMaps();
  std::vector<std::optional<DimExpr>> extents(structured.getIterators().size());
  bool broadcasts = kind != OpClass::Conv && kind != OpClass::Window;
  auto visit = [&](Value value, AffineMap map, bool isResult) {
    if (!map)
      return;
    std::vector<DimExpr> dims = dimsOf(value);
    for (auto [d, expr] : llvm::enumerate(map.getResults())) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (!dim)
        continue;
      std::optional<DimExpr> &extent = extents[dim.getPosition()];
      if (!extent) {
        extent = dims[d];
        continue;
      }
      if (dims[d] == *extent)
        continue;
      const bool mayBeOne = broadcasts && !isResult;
      const std::string message = "sizes " + dims[d].str() + " and " + extent->str() + " do not fit in " +
                                  op->getName().stripDialect().str();
      // A broadcast to a constant is that constant, whatever the size: only 1 and the constant itself fit.
      if (mayBeOne && extent->isConstant() && !dims[d].isConstant())
        guards.require(op->getLoc(), DimCondition::Kind::Equal, (dims[d] - DimExpr(1)) * (dims[d] - *extent), 0, message);
      else
        guards.require(op->getLoc(), DimCondition::Kind::Equal, mayBeOne ? DimExpr::bcast(dims[d], *extent) : dims[d],
                       *extent, message);
    }
  };
  visit(op->getResult(0), maps[op->getNumOperands()], true);
  for (auto [value, map] : llvm::zip(op->getOperands(), maps))
    visit(value, map, false);
}

/// What ops want beside that, if the sizes do not have it anyway.
void guardRules(StructuredOpInterface op, const std::map<std::string, DimRange> &ranges, Guards &guards) {
  SmallVector<SizeRule> rules;
  op.getSizeRules(rules);
  for (const SizeRule &rule : rules) {
    bool equal = rule.kind == SizeRule::Kind::Equal;
    std::optional<int64_t> least = rule.lhs.constant();
    if (equal || !least || rule.rhs.range(ranges).lo < *least)
      guards.require(op.getLoc(), equal ? DimCondition::Kind::Equal : DimCondition::Kind::LessEqual,
                     rule.lhs, rule.rhs, rule.message);
  }
}

/// The state has room, and the length that the entry was made for.
void guardAppend(StateAppendOp append, StateOp state, Guards &guards) {
  std::string name = state.getSymName().str();
  DimExpr added = dimOf(append.getX(), state.getAxis()), after = dimOf(append.getY(), state.getAxis());
  guards.require(append.getLoc(), DimCondition::Kind::LessEqual, after,
                 dimsOf(state.getType())[state.getAxis()], "state '" + name + "' is full");
  guards.require(append.getLoc(), DimCondition::Kind::Equal,
                 DimExpr::symbol(state.getLength().str()), after - added,
                 "state '" + name + "' does not have the length that this entry is for");
}

} // namespace

/// Whether an op runs wherever `home` does: the other sides of choices assume what need not be.
static bool runsIn(Operation *op, const Homes &homes, const Home &home) {
  while (op && !isa_and_nonnull<func::FuncOp>(op->getParentOp()))
    op = op->getParentOp();
  return !op || llvm::all_of(homes.of(op), [&](auto &part) {
    return isa<LoopEndOp>(part.first) || llvm::is_contained(home, part);
  });
}

void emitGuards(func::FuncOp func, ArrayRef<StateOp> states, const std::set<std::string> &late,
                const std::set<std::string> &known, const Homes &homes, const Home &home,
                std::set<std::string> &emitted, OpBuilder &builder) {
  Guards guards(builder, late, known, emitted);
  std::map<std::string, DimRange> ranges = symbolRanges(func->getParentOfType<ModuleOp>());
  func.walk([&](Operation *op) {
    if (!runsIn(op, homes, home))
      return;
    guardIterators(op, guards);
    if (auto structured = dyn_cast<StructuredOpInterface>(op))
      guardRules(structured, ranges, guards);
    if (auto bind = dyn_cast<BindDimsOp>(op))
      for (auto [from, to] : llvm::zip(dimsOf(bind.getX()), dimsOf(bind.getY())))
        guards.require(op->getLoc(), DimCondition::Kind::Equal, from, to,
                       "the model claims the size " + to.str());
    if (auto append = dyn_cast<StateAppendOp>(op))
      for (StateOp state : states)
        if (state.getSymName() == append.getState())
          guardAppend(append, state, guards);
  });
}

} // namespace lathe::plan
