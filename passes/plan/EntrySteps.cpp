//===- EntrySteps.cpp - an entry as the steps of a program ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes and guards first, then buffers (EntryMemory.h), then a step for each op that does something
// when the program runs: launches, copies, calls, binds of sizes, branches and loops. Views do nothing.
//
//===----------------------------------------------------------------------===//
#include "EntryMemory.h"

#include "lathe/ir/Collective.h"
#include "lathe/ir/HostOps.h"
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/States.h"
#include "lathe/ir/WeightStore.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;

namespace lathe::plan {
namespace {

using exec::BufferKind;

class EntrySteps {
public:
  EntrySteps(func::FuncOp func, const Target &target, bool taps)
      : func(func), target(target), taps(taps), builder(func), steps(func.getContext()),
        places(func, builder, target.isCuda()) {}

  LogicalResult run() {
    auto module = func->getParentOfType<ModuleOp>();
    collectStates(module);
    for (BlockArgument argument : func.getArguments())
      if (func.getArgAttr(argument.getArgNumber(), kStateAttr) && llvm::any_of(argument.getUses(), isHostOperand))
        return func.emitError("unsupported: elements of state '")
               << inputName(func, argument.getArgNumber()) << "' are sizes, which the host reads";
    FailureOr<Homes> found = findBranches(func);
    if (failed(found))
      return failure();
    homes = std::move(*found);
    // Steps of branches and loops stay in the order in which they are written.
    if (homes.owners.empty()) {
      places.updates = findUpdates(func);
      if (failed(orderForMemory(func, places.updates, planningPoint(module), alignmentOf(target),
                                places.inPlace)))
        return failure();
    }
    auto program = exec::ProgramOp::create(builder, func.getLoc(), func.getSymName());
    builder.createBlock(&program.getBody());
    if (failed(emitSizes(func, places.states, symbols(), builder)))
      return failure();
    late = lateSymbols(func);
    emitGuards(func, places.states, late, known, homes, {}, guarded, builder);
    for (StateOp state : places.states)
      exec::StateOp::create(builder, state.getLoc(), state.getSymName());
    places.declare();
    return emitSteps();
  }

private:
  void collectStates(ModuleOp module) {
    std::set<StringRef> used;
    func.walk([&](Operation *op) {
      if (auto read = dyn_cast<StateReadOp>(op))
        used.insert(read.getState());
      else if (auto append = dyn_cast<StateAppendOp>(op))
        used.insert(append.getState());
    });
    for (BlockArgument argument : func.getArguments())
      if (auto state = func.getArgAttrOfType<FlatSymbolRefAttr>(argument.getArgNumber(), kStateAttr))
        used.insert(state.getValue());
    for (StateOp state : module.getOps<StateOp>())
      if (used.count(state.getSymName()))
        places.states.push_back(state);
  }

  std::set<std::string> symbols() {
    std::set<std::string> names = symbolsOf(func.getBody().front(), {});
    func.walk([&](KernelOp kernel) {
      names.merge(symbolsOf(kernel.getBodyBlock(), kernel.getResultTypes()));
    });
    for (StateOp state : places.states) {
      names.insert(state.getLength().str());
      for (const DimExpr &dim : dimsOf(state.getType()))
        dim.collectSymbols(names);
    }
    return names;
  }

  /// Sizes that are elements of inputs, then what is claimed of them: before all other steps.
  void emitBinds() {
    for (auto from : func.getBody().front().getOps<DimFromOp>())
      if (isa<BlockArgument>(from.getX())) {
        Value host = places.hostInputs.lookup(from.getX());
        emitBind(from, host ? host : places.buffers.lookup(from.getX()));
      }
    guardKnown();
    for (BlockArgument argument : func.getArguments())
      if (Value host = places.hostInputs.lookup(argument))
        exec::CopyOp::create(steps, argument.getLoc(), host, places.buffers[argument]);
  }

  void emitBind(DimFromOp from, Value buffer) {
    for (auto [i, name] : llvm::enumerate(from.getSymbols())) {
      exec::BindOp::create(steps, from.getLoc(), cast<StringAttr>(name), buffer,
                           steps.getI64IntegerAttr(i), DimAttr());
      known.insert(cast<StringAttr>(name).str());
    }
  }

  /// Symbols have got values: what follows from them is known, and what is claimed of them is checked.
  void guardKnown() {
    if (late.empty())
      return;
    for (SymbolOp symbol : func->getParentOfType<ModuleOp>().getOps<SymbolOp>())
      if (auto value = symbol.getValue(); value && late.count(symbol.getSymName().str())) {
        std::set<std::string> names;
        value->expr().collectSymbols(names);
        if (llvm::all_of(names, [&](auto &name) { return !late.count(name) || known.count(name); }))
          known.insert(symbol.getSymName().str());
      }
    emitGuards(func, places.states, late, known, homes, branch, guarded, steps);
  }

  LogicalResult emitSteps() {
    // Buffers stand before all steps; steps are collected in a block of their own.
    Block *body = builder.getInsertionBlock();
    Block collected;
    steps.setInsertionPointToEnd(&collected);
    emitBinds();
    if (failed(emitBlock({}))) {
      collected.dropAllReferences();
      return failure();
    }
    for (auto [value, output] : places.copies)
      exec::CopyOp::create(steps, value.getLoc(), places.buffers.lookup(value), output);
    emitOverwrites();
    for (StateAppendOp append : func.getBody().front().getOps<StateAppendOp>()) {
      StateOp state = places.stateOf(append.getState());
      exec::AdvanceOp::create(
          steps, append.getLoc(), append.getState(),
          DimAttr::get(builder.getContext(), dimOf(append.getX(), state.getAxis())));
    }
    body->getOperations().splice(body->end(), collected.getOperations());
    return success();
  }

  /// States become what they are behind the run. One may become what another was: such values are saved first.
  void emitOverwrites() {
    SmallVector<std::pair<Value, Value>> moves;
    for (auto [value, state] : places.overwrites) {
      Value from = places.buffers.lookup(value);
      auto old = dyn_cast<BlockArgument>(memoryOf(value));
      if (EntryMemory::placeOf(from) == state)
        continue;
      if (old && func.getArgAttr(old.getArgNumber(), kStateAttr)) {
        Value saved = places.buffer(value.getLoc(), value.getType(), EntryMemory::nameOf(value), BufferKind::Arena, 0);
        exec::CopyOp::create(steps, value.getLoc(), from, saved);
        from = saved;
      }
      moves.push_back({from, state});
    }
    for (auto [from, state] : moves)
      exec::CopyOp::create(steps, from.getLoc(), from, state);
  }

  /// The ops that have this home, in order.
  LogicalResult emitBlock(const Home &home) {
    for (Operation &op : func.getBody().front().without_terminator())
      if (homes.of(&op) == home && failed(emitStep(op)))
        return failure();
    return success();
  }

  /// Memory that the host reads a condition, a number of trips or sizes from.
  Value onHost(Value value) {
    Value line = places.hostLine(value);
    exec::CopyOp::create(steps, value.getLoc(), places.buffers.lookup(value), line);
    return line;
  }

  /// A branch for each side, which leaves its values in the memory of the results.
  LogicalResult emitChoose(ChooseOp choose) {
    Location loc = choose.getLoc();
    for (OpResult y : choose->getResults())
      places.buffers[y] = places.resultBuffer(y);
    Value condition = onHost(choose.getCondition());
    exec::IfOp::create(steps, loc, condition);
    for (bool then : {true, false}) {
      Home side = homes.of(choose);
      side.push_back({choose, then});
      OperandRange values = then ? choose.getThens() : choose.getElses();
      for (auto [value, y] : llvm::zip(values, choose->getResults()))
        if (value.hasOneUse() && value.getType() == y.getType() &&
            isa_and_nonnull<KernelOp, ChooseOp>(value.getDefiningOp()) &&
            homes.of(value.getDefiningOp()) == side && !places.buffers.count(value) &&
            !value.getDefiningOp()->hasAttr(kPlacedAttr))
          places.buffers[value] = places.buffers[y];
      if (!then)
        exec::ElseOp::create(steps, loc);
      // What is checked in a branch, is not for what runs outside of it.
      llvm::SaveAndRestore inBranch(branch, side);
      llvm::SaveAndRestore checked(guarded, guarded);
      emitGuards(func, places.states, late, known, homes, branch, guarded, steps);
      if (failed(emitBlock(side)))
        return failure();
      ArrayAttr symbols = choose.getSymbolsAttr(), sizes = then ? choose.getThenSizesAttr() : choose.getElseSizesAttr();
      if (symbols)
        for (auto [name, size] : llvm::zip(symbols, sizes))
          exec::BindOp::create(steps, loc, cast<StringAttr>(name), Value(), IntegerAttr(), cast<DimAttr>(size));
      for (auto [value, y] : llvm::zip(values, choose->getResults()))
        if (places.buffers.lookup(value) != places.buffers[y])
          exec::CopyOp::create(steps, loc, places.buffers.lookup(value), places.buffers[y]);
    }
    exec::EndIfOp::create(steps, loc);
    if (ArrayAttr symbols = choose.getSymbolsAttr()) {
      for (Attribute name : symbols)
        known.insert(cast<StringAttr>(name).str());
      guardKnown();
    }
    return success();
  }

  /// What the loop carries lies in the memory of its results: it is brought there before the
  /// first iteration, and at the end of each.
  LogicalResult emitLoop(LoopEndOp end) {
    Location loc = end.getLoc();
    LoopBeginOp begin = end.getBegin();
    size_t count = begin.getCarried().size();
    ResultRange ys = end->getResults();
    for (Value y : ys)
      places.buffers[y] = places.resultBuffer(cast<OpResult>(y));
    for (auto [init, carried, y] : llvm::zip(begin.getInits(), begin.getCarried(), ys)) {
      places.buffers[carried] = places.buffers[y];
      if (places.buffers.lookup(init) != places.buffers[y])
        exec::CopyOp::create(steps, loc, places.buffers.lookup(init), places.buffers[y]);
    }
    Value trips = end.getTrips() ? onHost(end.getTrips()) : Value(),
          condition = end.getCondition() ? onHost(end.getCondition()) : Value();
    exec::LoopOp::create(steps, loc, trips, condition, end.getIterationAttr());
    Home body = homes.of(end);
    body.push_back({end, true});
    if (failed(emitBlock(body)))
      return failure();
    for (auto [row, y] : llvm::zip(end.getRows(), ys.drop_front(count))) {
      DimExpr at = DimExpr::symbol(end.getIteration()->str()) * bytesOf(row.getType());
      Value place = places.buffer(loc, row.getType(), EntryMemory::nameOf(y), BufferKind::View, 0, places.buffers[y], at);
      exec::CopyOp::create(steps, loc, places.buffers.lookup(row), place);
    }
    // A value that is carried on may be another that was carried: these are saved first.
    SmallVector<std::pair<Value, Value>> moves;
    for (auto [next, y] : llvm::zip(end.getNexts(), ys)) {
      Value from = places.buffers.lookup(next);
      if (from == places.buffers[y])
        continue;
      if (llvm::is_contained(begin.getCarried(), rootValue(next))) {
        Value saved = places.buffer(loc, next.getType(), EntryMemory::nameOf(next), BufferKind::Arena, 0);
        exec::CopyOp::create(steps, loc, from, saved);
        from = saved;
      }
      moves.push_back({from, places.buffers[y]});
    }
    for (auto [from, to] : moves)
      exec::CopyOp::create(steps, loc, from, to);
    if (end.getAgain())
      exec::CopyOp::create(steps, loc, places.buffers.lookup(end.getAgain()), condition);
    exec::EndLoopOp::create(steps, loc);
    return success();
  }

  /// The value whose memory a view is of.
  static Value rootValue(Value value) {
    while (value.getDefiningOp() && isView(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    return value;
  }

  LogicalResult emitStep(Operation &op) {
    if (auto kernel = dyn_cast<KernelOp>(op))
      return emitLaunch(kernel);
    if (auto end = dyn_cast<LoopEndOp>(op))
      return emitLoop(end);
    if (isa<LoopBeginOp>(op))
      return success(); // its end does all
    if (auto choose = dyn_cast<ChooseOp>(op))
      return emitChoose(choose);
    if (auto constant = dyn_cast<ConstantOp>(op)) {
      if (WeightStore::parameterOf(constant.getValue())) {
        if (Value input = places.parameter(constant))
          places.buffers[constant] = input;
        return success();
      }
      auto memory = exec::BufferOp::create(
          builder, op.getLoc(), constant.getType(), Value(), builder.getStringAttr(EntryMemory::nameOf(constant)),
          exec::BufferKindAttr::get(op.getContext(), BufferKind::Weight),
          builder.getI64IntegerAttr(0), DimAttr(), constant.getValue(), StringAttr(),
          DenseI64ArrayAttr(), UnitAttr());
      places.buffers[constant] = memory.getMemory();
      return success();
    }
    if (auto bind = dyn_cast<BindDimsOp>(op)) {
      places.buffers[bind.getY()] = places.buffer(op.getLoc(), bind.getY().getType(), EntryMemory::nameOf(bind.getY()),
                                    BufferKind::View, 0, places.buffers.lookup(bind.getX()));
      return success();
    }
    if (isView(&op)) {
      Value from = op.getOperand(0), to = op.getResult(0);
      if (!places.buffers.count(to))
        places.buffers[to] = places.buffer(op.getLoc(), to.getType(), EntryMemory::nameOf(to), BufferKind::View, 0,
                             places.buffers.lookup(from), EntryMemory::startOf(&op));
      return success();
    }
    if (auto read = dyn_cast<StateReadOp>(op)) {
      places.buffers[read.getY()] = places.buffer(op.getLoc(), read.getY().getType(), read.getState(),
                                    BufferKind::View, 0, places.stateBuffers.lookup(read.getState()));
      return success();
    }
    if (auto append = dyn_cast<StateAppendOp>(op)) {
      places.buffers[append.getY()] = places.buffer(op.getLoc(), append.getY().getType(), append.getState(),
                                      BufferKind::View, 0, places.stateBuffers.lookup(append.getState()));
      return success();
    }
    if (auto call = dyn_cast<CustomCallOp>(op))
      return emitCall(call);
    if (auto collective = collectiveOf(&op)) {
      places.buffers[op.getResult(0)] = places.resultBuffer(op.getResult(0));
      exec::CollectiveOp::create(steps, op.getLoc(), collective->name, places.buffers.lookup(op.getOperand(0)),
                                 places.buffers[op.getResult(0)], collective->kind, collective->dim);
      return success();
    }
    if (auto from = dyn_cast<DimFromOp>(op)) {
      places.buffers[from.getY()] = places.buffers.lookup(from.getX());
      if (!isa<BlockArgument>(from.getX())) {
        emitBind(from, onHost(from.getX()));
        guardKnown();
      }
      return success();
    }
    return op.emitError("no step of a plan does this: fuse left it outside kernels");
  }

  LogicalResult emitLaunch(KernelOp kernel) {
    if (kernel->hasAttr(kPlacedAttr)) {
      places.buffers[kernel->getResult(0)] = places.resultBuffer(kernel->getResult(0));
      return success();
    }
    if (!kernel.getVariantsAttr())
      return kernel.emitError("has no variants: select has not run");
    std::set<std::string> names = symbolsOf(kernel.getBodyBlock(), kernel.getResultTypes());
    DimExpr workspace = 0;
    FailureOr<std::vector<KernelVariant>> variants = variantsOf(kernel);
    if (failed(variants))
      return failure();
    for (const KernelVariant &variant : *variants)
      if (const DimExpr &bytes = variant.spec.workspaceBytes; bytes != DimExpr(0))
        workspace = workspace == DimExpr(0) ? bytes : DimExpr::max(workspace, bytes);
    SmallVector<Value> operands;
    for (auto [i, input] : llvm::enumerate(kernel.getInputs())) {
      Value memory = places.buffers.lookup(input);
      if (failed(places.pack(kernel, i, variants->front().spec.buffers[i].packing, memory)))
        return failure();
      operands.push_back(memory);
    }
    for (OpResult result : kernel->getResults()) {
      places.buffers[result] = places.resultBuffer(result);
      operands.push_back(places.buffers[result]);
      if (auto input = updatedInput(result)) {
        if (EntryMemory::placeOf(operands[*input]) != EntryMemory::placeOf(places.buffers[result]))
          exec::CopyOp::create(steps, kernel.getLoc(), operands[*input], places.buffers[result]);
        operands[*input] = places.buffers[result];
      }
    }
    if (workspace != DimExpr(0))
      operands.push_back(places.buffer(kernel.getLoc(), tensorType(builder.getI8Type(), {workspace}),
                                (kernel.getName() + ".workspace").str(), BufferKind::Workspace, 0));

    for (const OwnPacking &own : ownPackings(*variants)) {
      Value memory = places.buffers.lookup(kernel.getInputs()[own.input]);
      if (failed(places.pack(kernel, own.input, own.packing, memory)))
        return failure();
      operands.push_back(memory);
    }

    SmallVector<NamedAttribute> values;
    for (const std::string &name : names)
      values.push_back(builder.getNamedAttr(
          name, DimAttr::get(builder.getContext(), DimExpr::symbol(name))));
    exec::LaunchOp::create(steps, kernel.getLoc(), kernel.getName(), operands,
                           builder.getDictionaryAttr(values), kernel.getNodesAttr());
    if (taps)
      for (auto [i, result] : llvm::enumerate(kernel->getResults()))
        exec::TapOp::create(steps, kernel.getLoc(), places.buffers[result],
                            EntryMemory::nameOf(result) + "#" + std::to_string(i));
    return success();
  }

  LogicalResult emitCall(CustomCallOp call) {
    SmallVector<Value> operands;
    for (Value input : call.getInputs())
      operands.push_back(places.buffers.lookup(input));
    for (OpResult result : call->getResults()) {
      places.buffers[result] = places.resultBuffer(result);
      operands.push_back(places.buffers[result]);
    }
    exec::CallOp::create(steps, call.getLoc(), call.getTarget(), operands,
                         call.getInputs().size(), call.getConfig(), /*custom=*/!call->hasAttr(kHostOpAttr));
    return success();
  }

  func::FuncOp func;
  const Target &target;
  bool taps;
  OpBuilder builder; ///< of sizes, guards and buffers
  OpBuilder steps;   ///< of what is done, in order
  EntryMemory places; ///< of values
  /// Symbols that get values in a run, those that have them where steps are emitted, and what is checked.
  Home branch; ///< that steps are emitted of
  std::set<std::string> late, known, guarded;
  Homes homes;
};

} // namespace

LogicalResult planEntry(func::FuncOp func, const Target &target, bool taps) {
  return EntrySteps(func, target, taps).run();
}

} // namespace lathe::plan
