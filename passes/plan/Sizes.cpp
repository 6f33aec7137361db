//===- Sizes.cpp - symbols, their origins, and guards ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ProgramBuilder.h"

#include "lathe/codegen/KernelSpec.h"

#include <set>

using namespace mlir;

namespace lathe::plan {

/// Symbols that dim_from gives the values of elements.
static std::set<std::string> boundSymbols(func::FuncOp func) {
  std::set<std::string> bound;
  func.walk([&](DimFromOp op) {
    for (Attribute name : op.getSymbols())
      bound.insert(cast<StringAttr>(name).str());
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

LogicalResult emitSizes(func::FuncOp func, ArrayRef<StateOp> states,
                        const std::set<std::string> &symbols, OpBuilder &builder) {
  auto module = func->getParentOfType<ModuleOp>();
  std::map<std::string, std::pair<int64_t, int64_t>> inputs; // symbol -> input, axis
  for (BlockArgument argument : func.getArguments())
    for (auto [axis, dim] : llvm::enumerate(dimsOf(argument)))
      if (auto name = dim.symbolName())
        inputs.try_emplace(*name, argument.getArgNumber(), int64_t(axis));
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
  Guards(OpBuilder &builder, const std::set<std::string> &late, bool wantLate)
      : builder(builder), late(late), wantLate(wantLate) {}

  void require(Location loc, DimCondition::Kind kind, const DimExpr &lhs, const DimExpr &rhs,
               const std::string &message) {
    if (kind != DimCondition::Kind::Divisible && lhs == rhs)
      return;
    std::set<std::string> names = symbolsIn(lhs);
    names.merge(symbolsIn(rhs));
    if (llvm::any_of(names, [&](auto &name) { return late.count(name); }) != wantLate)
      return;
    std::string text = str(std::vector<DimCondition>{{kind, lhs, rhs}});
    if (!seen.insert(text).second)
      return;
    SmallVector<StringRef> nodes = nodeNames(loc);
    exec::GuardOp::create(builder, loc, text, message, nodes.empty() ? StringRef() : nodes.front());
  }

private:
  OpBuilder &builder;
  const std::set<std::string> &late;
  bool wantLate;
  std::set<std::string> seen;
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
      DimExpr seen = broadcasts && !isResult ? DimExpr::bcast(dims[d], *extent) : dims[d];
      guards.require(op->getLoc(), DimCondition::Kind::Equal, seen, *extent,
                     "sizes " + dims[d].str() + " and " + extent->str() + " do not fit in " +
                         op->getName().stripDialect().str());
    }
  };
  // Other movements read a part of their operand, or beside it: their verifiers know more.
  if (kind == OpClass::Movement && !isa<BroadcastToOp>(op))
    return;
  visit(op->getResult(0), maps[op->getNumOperands()], true);
  for (auto [value, map] : llvm::zip(op->getOperands(), maps))
    visit(value, map, false);
}

/// The window of a convolution lies inside the padded image, and a pooled image is not
/// empty: onnxruntime runs neither otherwise.
template <typename WindowOp>
void guardWindow(WindowOp op, ArrayRef<int64_t> kernel,
                 const std::map<std::string, DimRange> &ranges, Guards &guards) {
  constexpr bool pooled = std::is_same_v<WindowOp, PoolOp>;
  size_t first = op.getLayout() == ConvLayout::ChannelsLast ? 1 : 2;
  for (auto [i, size] : llvm::enumerate(kernel)) {
    int64_t needed = (size - 1) * op.getDilations()[i] + 1 - op.getPads()[i] -
                     op.getPads()[kernel.size() + i];
    DimExpr image = dimOf(op.getX(), first + i);
    // A window of one element may slide over an empty image.
    if (needed <= 1 || image.range(ranges).lo >= (pooled ? 1 : needed))
      continue;
    guards.require(op.getLoc(), DimCondition::Kind::LessEqual, pooled ? 1 : needed, image,
                   pooled ? "the pooled image is empty" : "the window is larger than the image");
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

void emitGuards(func::FuncOp func, ArrayRef<StateOp> states, bool wantLate, OpBuilder &builder) {
  std::set<std::string> late = lateSymbols(func);
  if (wantLate && late.empty())
    return;
  Guards guards(builder, late, wantLate);
  std::map<std::string, DimRange> ranges = symbolRanges(func->getParentOfType<ModuleOp>());
  func.walk([&](Operation *op) {
    guardIterators(op, guards);
    if (auto reshape = dyn_cast<ReshapeOp>(op))
      guards.require(op->getLoc(), DimCondition::Kind::Equal,
                     numElements(reshape.getX().getType()), numElements(reshape.getY().getType()),
                     "reshape changes the number of elements");
    if (auto conv = dyn_cast<ConvOp>(op))
      guardWindow(conv, cast<TensorType>(conv.getW().getType()).getShape().drop_front(2), ranges,
                  guards);
    if (auto pool = dyn_cast<PoolOp>(op))
      guardWindow(pool, pool.getKernel(), ranges, guards);
    if (auto bind = dyn_cast<BindDimsOp>(op))
      for (auto [from, to] : llvm::zip(dimsOf(bind.getX()), dimsOf(bind.getY())))
        guards.require(op->getLoc(), DimCondition::Kind::Equal, from, to,
                       "the model claims the size " + to.str());
    if (auto concat = dyn_cast<ConcatOp>(op))
      for (Value input : concat.getInputs())
        for (auto [d, dim] : llvm::enumerate(dimsOf(input)))
          if (int64_t(d) != int64_t(concat.getAxis()))
            guards.require(op->getLoc(), DimCondition::Kind::Equal, dim,
                           dimOf(concat.getY(), d), "concatenated sizes differ");
    if (auto append = dyn_cast<StateAppendOp>(op))
      for (StateOp state : states)
        if (state.getSymName() == append.getState())
          guardAppend(append, state, guards);
  });
}

} // namespace lathe::plan
