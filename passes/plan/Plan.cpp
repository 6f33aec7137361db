//===- Plan.cpp - the host program of each entry --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each entry into an exec.program: buffers for its values, launches in
// order, guards on sizes, offsets in one arena. Views cost nothing, outputs are
// written where the caller wants them, and states where they live. Equal
// kernels become one exec.kernel.
//
//   func @main(%x) {                      exec.kernel @relu_0 {...}
//     %y = lathe.kernel "relu_0" (%x)  =>  exec.program @main {
//     return %y }                            size, buffers, input, output
//                                            exec.launch @relu_0(%x, %y) }
//
//===----------------------------------------------------------------------===//
#include "ProgramBuilder.h"

#include "lathe/codegen/KernelSpec.h"

#include "llvm/Support/JSON.h"

using namespace mlir;

namespace lathe {
namespace {

using exec::BufferKind;

class EntryPlanner {
public:
  EntryPlanner(func::FuncOp func, bool taps) : func(func), taps(taps), builder(func) {}

  LogicalResult run() {
    module = func->getParentOfType<ModuleOp>();
    collectStates();
    auto target = targetOf(module);
    if (failed(target))
      return failure();
    cuda = target->isCuda();
    int64_t alignment = cuda ? 256 : 64;
    FailureOr<plan::Homes> found = plan::findBranches(func);
    if (failed(found))
      return failure();
    homes = std::move(*found);
    if (cuda && !homes.owners.empty()) {
      noteDeciders();
      return homes.owners.front()->emitError(
          "unsupported: a GPU runs no If or Loop whose condition or trips only the run knows; give "
          "the input that decides it with --const");
    }
    // Steps of branches and loops stay in the order in which they are written.
    if (homes.owners.empty()) {
      updates = plan::findUpdates(func);
      if (failed(plan::orderForMemory(func, updates, plan::planningPoint(module), alignment,
                                      inPlace)))
        return failure();
    }
    auto program = exec::ProgramOp::create(builder, func.getLoc(), func.getSymName());
    builder.createBlock(&program.getBody());
    if (failed(plan::emitSizes(func, states, symbols(), builder)))
      return failure();
    plan::emitGuards(func, states, /*late=*/false, builder);
    for (StateOp state : states)
      exec::StateOp::create(builder, state.getLoc(), state.getSymName());
    if (failed(declareBuffers()) || failed(emitSteps()))
      return failure();
    if (failed(plan::assignOffsets(program, module, alignment)))
      return failure();
    placeConditions(program);
    return success();
  }

private:
  /// Says in the module which inputs the conditions follow from, as the report of legalize does.
  void noteDeciders() {
    llvm::SetVector<Value> work;
    for (Operation *owner : homes.owners)
      if (auto choose = dyn_cast<ChooseOp>(owner))
        work.insert(choose.getCondition());
    llvm::json::Array names;
    for (size_t i = 0; i < work.size(); ++i) {
      auto argument = dyn_cast<BlockArgument>(work[i]);
      if (argument && argument.getOwner() == &func.getBody().front())
        names.push_back(inputName(func, argument.getArgNumber()));
      else if (Operation *producer = work[i].getDefiningOp())
        work.insert(producer->operand_begin(), producer->operand_end());
    }
    std::string report;
    llvm::raw_string_ostream(report)
        << llvm::json::Value(llvm::json::Array{llvm::json::Object{{"needs", std::move(names)}}});
    if (auto top = module->getParentOfType<ModuleOp>())
      top->setAttr("lathe.unsupported", StringAttr::get(func.getContext(), report));
  }

  void collectStates() {
    std::set<StringRef> used;
    func.walk([&](Operation *op) {
      if (auto read = dyn_cast<StateReadOp>(op))
        used.insert(read.getState());
      else if (auto append = dyn_cast<StateAppendOp>(op))
        used.insert(append.getState());
    });
    for (StateOp state : module.getOps<StateOp>())
      if (used.count(state.getSymName()))
        states.push_back(state);
  }

  std::set<std::string> symbols() {
    std::set<std::string> names = symbolsOf(func.getBody().front(), {});
    func.walk([&](KernelOp kernel) {
      names.merge(symbolsOf(kernel.getBodyBlock(), kernel.getResultTypes()));
    });
    for (StateOp state : states) {
      names.insert(state.getLength().str());
      for (const DimExpr &dim : dimsOf(state.getType()))
        dim.collectSymbols(names);
    }
    return names;
  }

  Value buffer(Location loc, Type type, StringRef name, BufferKind kind, int64_t index,
               Value base = {}, DimExpr offset = 0) {
    auto at = offset == DimExpr(0) ? DimAttr() : DimAttr::get(builder.getContext(), offset);
    return exec::BufferOp::create(builder, loc, type, base, builder.getStringAttr(name),
                                  exec::BufferKindAttr::get(builder.getContext(), kind),
                                  builder.getI64IntegerAttr(index), at, TypedAttr(), StringAttr(),
                                  DenseI64ArrayAttr(), UnitAttr())
        .getMemory();
  }

  static std::string nameOf(Value value) {
    SmallVector<StringRef> nodes = nodeNames(value.getLoc());
    return nodes.empty() ? std::string() : nodes.back().str();
  }

  LogicalResult declareBuffers() {
    for (BlockArgument argument : func.getArguments()) {
      std::string name = inputName(func, argument.getArgNumber());
      Value input = buffer(argument.getLoc(), argument.getType(), name, BufferKind::Input,
                           argument.getArgNumber());
      auto donated = updates.donated.find(argument);
      exec::InputOp::create(builder, argument.getLoc(), name, input,
                            donated == updates.donated.end() ? -1 : int64_t(donated->second));
      buffers[argument] = input;
      if (llvm::any_of(argument.getUsers(), llvm::IsaPred<DimFromOp>))
        placeOnHost(argument);
    }
    for (StateOp state : states)
      stateBuffers[state.getSymName()] =
          buffer(state.getLoc(), state.getType(), state.getSymName(), BufferKind::State,
                 stateBuffers.size());
    llvm::DenseMap<unsigned, Value> outputs;
    for (auto [argument, output] : updates.donated)
      outputs[output] = buffers[argument];
    // Outputs: the kernel that makes a value writes it into the caller's memory.
    Operation *end = func.getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(end->getOperands())) {
      std::string name = outputName(func, i);
      Value input = outputs.lookup(i);
      Value output = input ? buffer(value.getLoc(), value.getType(), name, BufferKind::View, 0,
                                    input)
                           : buffer(value.getLoc(), value.getType(), name, BufferKind::Output, i);
      outputs[i] = output;
      exec::OutputOp::create(builder, value.getLoc(), name, output);
      Value made = value;
      while (made.getDefiningOp() && isView(made.getDefiningOp()))
        made = made.getDefiningOp()->getOperand(0);
      if (isa_and_nonnull<KernelOp, ChooseOp, LoopEndOp>(made.getDefiningOp()) &&
          !buffers.count(made))
        buffers[made] = made.getType() == value.getType()
                            ? output
                            : buffer(made.getLoc(), made.getType(), nameOf(made), BufferKind::View,
                                     0, output);
      else
        copies.push_back({value, output});
    }
    for (auto [value, output] : updates.memory)
      buffers[value] = buffer(value.getLoc(), value.getType(), nameOf(value), BufferKind::View, 0,
                              outputs[output]);
    return success();
  }

  /// An input whose elements are sizes is wanted by the host. Kernels of a GPU read a copy.
  void placeOnHost(BlockArgument argument) {
    Value input = buffers[argument];
    input.getDefiningOp<exec::BufferOp>().setOnHost(true);
    bool onlySizes = llvm::all_of(argument.getUsers(), llvm::IsaPred<DimFromOp>);
    if (onlySizes || !cuda)
      return;
    Value copy = buffer(argument.getLoc(), argument.getType(), nameOf(argument),
                        BufferKind::Arena, 0);
    hostInputs[argument] = input;
    buffers[argument] = copy;
  }

  /// Sizes that are elements of inputs, then what is claimed of them: before all other steps.
  void emitBinds() {
    for (auto from : func.getBody().front().getOps<DimFromOp>())
      if (isa<BlockArgument>(from.getX())) {
        Value host = hostInputs.lookup(from.getX());
        emitBind(from, host ? host : buffers.lookup(from.getX()));
      }
    plan::emitGuards(func, states, /*late=*/true, *stepBuilder);
    for (BlockArgument argument : func.getArguments())
      if (Value host = hostInputs.lookup(argument))
        exec::CopyOp::create(*stepBuilder, argument.getLoc(), host, buffers[argument]);
  }

  void emitBind(DimFromOp from, Value buffer) {
    for (auto [i, name] : llvm::enumerate(from.getSymbols()))
      exec::BindOp::create(*stepBuilder, from.getLoc(), cast<StringAttr>(name).getValue(), buffer,
                           i);
  }

  LogicalResult emitSteps() {
    SmallVector<StateAppendOp> appended;
    // Buffers stand before all steps; steps are collected in a block of their own.
    Block *body = builder.getInsertionBlock();
    Block steps;
    stepBuilder.emplace(builder.getContext());
    stepBuilder->setInsertionPointToEnd(&steps);
    emitBinds();
    if (failed(emitBlock({}))) {
      steps.dropAllReferences();
      return failure();
    }
    llvm::append_range(appended, func.getBody().front().getOps<StateAppendOp>());
    for (auto [value, output] : copies)
      exec::CopyOp::create(*stepBuilder, value.getLoc(), buffers.lookup(value), output);
    for (StateAppendOp append : appended) {
      StateOp state = stateOf(append.getState());
      exec::AdvanceOp::create(*stepBuilder, append.getLoc(), append.getState(),
                              DimAttr::get(builder.getContext(),
                                           dimOf(append.getX(), state.getAxis())));
    }
    body->getOperations().splice(body->end(), steps.getOperations());
    return success();
  }

  /// The ops that have this home, in order.
  LogicalResult emitBlock(const plan::Home &home) {
    for (Operation &op : func.getBody().front().without_terminator())
      if (homes.of(&op) == home && failed(emitStep(op)))
        return failure();
    return success();
  }

  /// Memory that the host reads a condition or a number of trips from, a line each in an arena of
  /// its own.
  Value onHost(Value value) {
    Value memory = exec::BufferOp::create(
                       builder, value.getLoc(), value.getType(), Value(),
                       builder.getStringAttr(nameOf(value)),
                       exec::BufferKindAttr::get(builder.getContext(), BufferKind::Host),
                       builder.getI64IntegerAttr(0),
                       DimAttr::get(builder.getContext(), DimExpr(64 * int64_t(conditions.size()))),
                       TypedAttr(), StringAttr(), DenseI64ArrayAttr(), builder.getUnitAttr())
                       .getMemory();
    conditions.push_back(memory);
    exec::CopyOp::create(*stepBuilder, value.getLoc(), buffers.lookup(value), memory);
    return memory;
  }

  void placeConditions(exec::ProgramOp program) {
    if (conditions.empty())
      return;
    SmallVector<exec::ArenaOp> arenas(program.getBody().front().getOps<exec::ArenaOp>());
    for (Value condition : conditions)
      condition.getDefiningOp<exec::BufferOp>().setIndex(arenas.size());
    OpBuilder before(*program.getBody().front().getOps<exec::BufferOp>().begin());
    auto bytes = DimAttr::get(builder.getContext(), DimExpr(64 * int64_t(conditions.size())));
    exec::ArenaOp::create(before, program.getLoc(), bytes, /*on_host=*/true);
  }

  /// A branch for each side, which leaves its values in the memory of the results.
  LogicalResult emitChoose(ChooseOp choose) {
    Location loc = choose.getLoc();
    for (OpResult y : choose->getResults())
      buffers[y] = resultBuffer(y);
    Value condition = onHost(choose.getCondition());
    exec::IfOp::create(*stepBuilder, loc, condition);
    for (bool then : {true, false}) {
      plan::Home side = homes.of(choose);
      side.push_back({choose, then});
      OperandRange values = then ? choose.getThens() : choose.getElses();
      for (auto [value, y] : llvm::zip(values, choose->getResults()))
        if (value.hasOneUse() && isa_and_nonnull<KernelOp, ChooseOp>(value.getDefiningOp()) &&
            homes.of(value.getDefiningOp()) == side && !buffers.count(value) &&
            !value.getDefiningOp()->hasAttr(kPlacedAttr))
          buffers[value] = buffers[y];
      if (!then)
        exec::ElseOp::create(*stepBuilder, loc);
      if (failed(emitBlock(side)))
        return failure();
      for (auto [value, y] : llvm::zip(values, choose->getResults()))
        if (buffers.lookup(value) != buffers[y])
          exec::CopyOp::create(*stepBuilder, loc, buffers.lookup(value), buffers[y]);
    }
    exec::EndIfOp::create(*stepBuilder, loc);
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
      buffers[y] = resultBuffer(cast<OpResult>(y));
    for (auto [init, carried, y] : llvm::zip(begin.getInits(), begin.getCarried(), ys)) {
      buffers[carried] = buffers[y];
      if (buffers.lookup(init) != buffers[y])
        exec::CopyOp::create(*stepBuilder, loc, buffers.lookup(init), buffers[y]);
    }
    Value trips = end.getTrips() ? onHost(end.getTrips()) : Value(),
          condition = end.getCondition() ? onHost(end.getCondition()) : Value();
    exec::LoopOp::create(*stepBuilder, loc, trips, condition, end.getIterationAttr());
    plan::Home body = homes.of(end);
    body.push_back({end, true});
    if (failed(emitBlock(body)))
      return failure();
    for (auto [row, y] : llvm::zip(end.getRows(), ys.drop_front(count))) {
      DimExpr at = DimExpr::symbol(end.getIteration()->str()) * plan::bytesOf(row.getType());
      Value place = buffer(loc, row.getType(), nameOf(y), BufferKind::View, 0, buffers[y], at);
      exec::CopyOp::create(*stepBuilder, loc, buffers.lookup(row), place);
    }
    // A value that is carried on may be another that was carried: these are saved first.
    SmallVector<std::pair<Value, Value>> moves;
    for (auto [next, y] : llvm::zip(end.getNexts(), ys)) {
      Value from = buffers.lookup(next);
      if (from == buffers[y])
        continue;
      if (llvm::is_contained(begin.getCarried(), rootValue(next))) {
        Value saved = buffer(loc, next.getType(), nameOf(next), BufferKind::Arena, 0);
        exec::CopyOp::create(*stepBuilder, loc, from, saved);
        from = saved;
      }
      moves.push_back({from, buffers[y]});
    }
    for (auto [from, to] : moves)
      exec::CopyOp::create(*stepBuilder, loc, from, to);
    if (end.getAgain())
      exec::CopyOp::create(*stepBuilder, loc, buffers.lookup(end.getAgain()), condition);
    exec::EndLoopOp::create(*stepBuilder, loc);
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
      auto memory = exec::BufferOp::create(
          builder, op.getLoc(), constant.getType(), Value(), builder.getStringAttr(nameOf(constant)),
          exec::BufferKindAttr::get(op.getContext(), BufferKind::Weight),
          builder.getI64IntegerAttr(0), DimAttr(), constant.getValue(), StringAttr(),
          DenseI64ArrayAttr(), UnitAttr());
      buffers[constant] = memory.getMemory();
      return success();
    }
    if (auto bind = dyn_cast<BindDimsOp>(op)) {
      buffers[bind.getY()] = buffer(op.getLoc(), bind.getY().getType(), nameOf(bind.getY()),
                                    BufferKind::View, 0, buffers.lookup(bind.getX()));
      return success();
    }
    if (isView(&op)) {
      Value from = op.getOperand(0), to = op.getResult(0);
      if (!buffers.count(to))
        buffers[to] = buffer(op.getLoc(), to.getType(), nameOf(to), BufferKind::View, 0,
                             buffers.lookup(from), startOf(&op));
      return success();
    }
    if (auto read = dyn_cast<StateReadOp>(op)) {
      buffers[read.getY()] = buffer(op.getLoc(), read.getY().getType(), read.getState(),
                                    BufferKind::View, 0, stateBuffers.lookup(read.getState()));
      return success();
    }
    if (auto append = dyn_cast<StateAppendOp>(op)) {
      buffers[append.getY()] = buffer(op.getLoc(), append.getY().getType(), append.getState(),
                                      BufferKind::View, 0, stateBuffers.lookup(append.getState()));
      return success();
    }
    if (auto call = dyn_cast<CustomCallOp>(op))
      return emitCall(call);
    if (auto from = dyn_cast<DimFromOp>(op)) {
      buffers[from.getY()] = buffers.lookup(from.getX());
      if (!isa<BlockArgument>(from.getX()))
        emitBind(from, buffers.lookup(from.getX()));
      return success();
    }
    return op.emitError("no step of a plan does this: fuse left it outside kernels");
  }

  /// Bytes before a view in the memory of its operand.
  static DimExpr startOf(Operation *view) {
    auto slice = dyn_cast<SliceOp>(view);
    if (!slice)
      return 0;
    std::vector<DimExpr> physical = physicalDimsOf(slice.getX().getType());
    DimExpr stride = int64_t(bitWidth(*dtypeOf(elementTypeOf(slice.getX()))) / 8), start = 0;
    for (size_t d = physical.size(); d-- > 0; stride = stride * physical[d])
      start = start + stride * cast<DimAttr>(slice.getStarts()[d]).expr();
    return start;
  }

  StateOp stateOf(StringRef name) {
    return *llvm::find_if(states, [&](StateOp state) { return state.getSymName() == name; });
  }

  /// Memory of a kernel's result: the state it is appended to, an output, an operand's that
  /// dies, or the arena.
  Value resultBuffer(OpResult result) {
    if (Value known = buffers.lookup(result))
      return known;
    if (Value taken = inPlace.lookup(result))
      return buffer(result.getLoc(), result.getType(), nameOf(result), BufferKind::View, 0,
                    buffers.lookup(taken));
    if (result.hasOneUse())
      if (auto whole = dyn_cast<KernelOp>(*result.user_begin());
          whole && whole->hasAttr(kPlacedAttr))
        return sliceOf(whole, result);
    if (result.hasOneUse())
      if (auto append = dyn_cast<StateAppendOp>(*result.user_begin())) {
        StateOp state = stateOf(append.getState());
        std::vector<DimExpr> physical = dimsOf(state.getType());
        DimExpr stride = int64_t(bitWidth(*dtypeOf(elementTypeOf(result))) / 8);
        for (size_t d = state.getAxis() + 1; d < physical.size(); ++d)
          stride = stride * physical[d];
        return buffer(result.getLoc(), result.getType(), nameOf(result), BufferKind::View, 0,
                      stateBuffers.lookup(append.getState()),
                      DimExpr::symbol(state.getLength().str()) * stride);
      }
    return buffer(result.getLoc(), result.getType(), nameOf(result), BufferKind::Arena, 0);
  }

  /// The buffer that a view from its beginning is of.
  static Value placeOf(Value memory) {
    auto op = memory.getDefiningOp<exec::BufferOp>();
    while (op.getBase() && (!op.getOffset() || op.getOffset()->expr() == DimExpr(0)))
      op = op.getBase().getDefiningOp<exec::BufferOp>();
    return op.getMemory();
  }

  /// The place of one input in the memory of a placed kernel's result.
  Value sliceOf(KernelOp whole, OpResult input) {
    Value memory = resultBuffer(whole->getResult(0));
    buffers[whole->getResult(0)] = memory;
    int64_t axis = whole->getAttrOfType<IntegerAttr>(kPlacedAttr).getInt();
    DimExpr before = 0;
    for (Value other : whole.getInputs()) {
      if (other == input)
        break;
      before = before + dimOf(other, axis);
    }
    std::vector<DimExpr> dims = dimsOf(whole->getResult(0));
    DimExpr stride = int64_t(bitWidth(*dtypeOf(elementTypeOf(input))) / 8);
    for (size_t d = axis + 1; d < dims.size(); ++d)
      stride = stride * dims[d];
    return buffer(input.getLoc(), input.getType(), nameOf(input), BufferKind::View, 0, memory,
                  before * stride);
  }

  LogicalResult emitLaunch(KernelOp kernel) {
    if (kernel->hasAttr(kPlacedAttr)) {
      buffers[kernel->getResult(0)] = resultBuffer(kernel->getResult(0));
      return success();
    }
    ArrayAttr variants = kernel.getVariantsAttr();
    if (!variants)
      return kernel.emitError("has no variants: select has not run");
    std::set<std::string> names = symbolsOf(kernel.getBodyBlock(), kernel.getResultTypes());
    DimExpr workspace = 0;
    SmallVector<KernelSpec> specs;
    for (Attribute attr : variants) {
      auto spec = KernelSpec::parse(
          cast<DictionaryAttr>(attr).getAs<StringAttr>("spec").getValue().str());
      if (!spec.ok())
        return kernel.emitError(spec.status().message());
      if (spec->workspaceBytes != DimExpr(0))
        workspace = workspace == DimExpr(0) ? spec->workspaceBytes
                                            : DimExpr::max(workspace, spec->workspaceBytes);
      specs.push_back(std::move(*spec));
    }
    SmallVector<Value> operands;
    for (auto [i, input] : llvm::enumerate(kernel.getInputs())) {
      Value memory = buffers.lookup(input);
      if (!memory)
        return kernel.emitError("input ") << i << " has no memory";
      if (failed(pack(kernel, specs, i, memory)))
        return failure();
      operands.push_back(memory);
    }
    for (OpResult result : kernel->getResults()) {
      buffers[result] = resultBuffer(result);
      operands.push_back(buffers[result]);
      if (auto input = plan::updatedInput(result)) {
        if (placeOf(operands[*input]) != placeOf(buffers[result]))
          exec::CopyOp::create(*stepBuilder, kernel.getLoc(), operands[*input], buffers[result]);
        operands[*input] = buffers[result];
      }
    }
    if (workspace != DimExpr(0))
      operands.push_back(buffer(kernel.getLoc(), tensorType(builder.getI8Type(), {workspace}),
                                (kernel.getName() + ".workspace").str(), BufferKind::Workspace, 0));

    SmallVector<NamedAttribute> values;
    for (const std::string &name : names)
      values.push_back(builder.getNamedAttr(
          name, DimAttr::get(builder.getContext(), DimExpr::symbol(name))));
    exec::LaunchOp::create(*stepBuilder, kernel.getLoc(), kernel.getName(), operands,
                           builder.getDictionaryAttr(values), kernel.getNodesAttr());
    if (taps)
      for (auto [i, result] : llvm::enumerate(kernel->getResults()))
        exec::TapOp::create(*stepBuilder, kernel.getLoc(), buffers[result],
                            nameOf(result) + "#" + std::to_string(i));
    return success();
  }

  /// A weight that variants read packed becomes a buffer of its own.
  LogicalResult pack(KernelOp kernel, ArrayRef<KernelSpec> specs, size_t i, Value &memory) {
    const std::string &packing = specs.front().buffers[i].packing;
    for (const KernelSpec &spec : specs)
      if (spec.buffers[i].packing != packing)
        return kernel.emitError("variants want input ") << i << " packed in different ways";
    if (packing.empty())
      return success();
    auto weight = memory.getDefiningOp<exec::BufferOp>();
    if (!weight || weight.getKind() != BufferKind::Weight)
      return kernel.emitError("input ") << i << " is packed but no weight";
    Value &packed = packedWeights[{weight.getOperation(), packing}];
    if (!packed) {
      auto clone = cast<exec::BufferOp>(builder.clone(*weight));
      clone.setPacking(packing);
      packed = clone.getMemory();
    }
    memory = packed;
    return success();
  }

  LogicalResult emitCall(CustomCallOp call) {
    SmallVector<Value> operands;
    for (Value input : call.getInputs())
      operands.push_back(buffers.lookup(input));
    for (OpResult result : call->getResults()) {
      buffers[result] = resultBuffer(result);
      operands.push_back(buffers[result]);
    }
    exec::CallOp::create(*stepBuilder, call.getLoc(), call.getTarget(), operands,
                         call.getInputs().size(), call.getConfig(), /*custom=*/true);
    return success();
  }

  func::FuncOp func;
  bool taps, cuda = false;
  OpBuilder builder;
  std::optional<OpBuilder> stepBuilder;
  ModuleOp module;
  SmallVector<StateOp> states;
  plan::Homes homes;
  plan::Updates updates;
  SmallVector<Value> conditions;
  llvm::DenseMap<Value, Value> buffers, inPlace;
  llvm::DenseMap<Value, Value> hostInputs; ///< inputs on the host that kernels read a copy of
  llvm::StringMap<Value> stateBuffers;
  std::map<std::pair<Operation *, std::string>, Value> packedWeights;
  SmallVector<std::pair<Value, Value>> copies;
};

/// One exec.kernel for all lathe.kernel ops of a name.
void emitKernels(ModuleOp module) {
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  for (Operation &op : *module.getBody())
    if (isa<SymbolOp, StateOp>(op))
      builder.setInsertionPointAfter(&op);
  std::set<std::string> done;
  module.walk([&](KernelOp kernel) {
    if (kernel->hasAttr(kPlacedAttr) || !done.insert(kernel.getName().str()).second)
      return;
    DimExpr flops = 0, bytes = 0;
    for (Operation &op : kernel.getBodyBlock())
      if (auto structured = dyn_cast<StructuredOpInterface>(op))
        flops = flops + structured.getFlops();
    auto add = [&](Type type) {
      bytes = bytes + plan::bytesOf(tensorType(cast<TensorType>(type).getElementType(), dimsOf(type)));
    };
    for (Value input : kernel.getInputs())
      add(input.getType());
    for (Type type : kernel.getResultTypes())
      add(type);
    auto made = exec::KernelOp::create(builder, kernel.getLoc(), kernel.getName(), kernel.getKind(),
                                       kernel.getVariantsAttr(),
                                       DimAttr::get(builder.getContext(), flops),
                                       DimAttr::get(builder.getContext(), bytes));
    IRMapping mapping;
    kernel.getBody().cloneInto(&made.getBody(), mapping);
  });
}

struct PlanPass : ModulePass<PlanPass> {
  static constexpr llvm::StringLiteral kName = "lathe-plan";
  static constexpr llvm::StringLiteral kSummary = "Turn entries into host programs";

  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<exec::ExecDialect>();
  }

  void runOnOperation() override {
    auto options = getOperation()->getAttrOfType<DictionaryAttr>(kOptionsAttr);
    bool taps = options && options.contains("taps");
    for (ModuleOp module : targetModules(getOperation())) {
      SmallVector<func::FuncOp> entries(module.getOps<func::FuncOp>());
      bool unselected = module.walk([](KernelOp kernel) {
                                if (kernel.getVariantsAttr())
                                  return WalkResult::advance();
                                kernel.emitError("has no variants: select has not run");
                                return WalkResult::interrupt();
                              }).wasInterrupted();
      if (unselected)
        return signalPassFailure();
      emitKernels(module);
      for (func::FuncOp func : entries) {
        if (failed(EntryPlanner(func, taps).run()))
          return signalPassFailure();
        func.erase();
      }
    }
  }
};

} // namespace

std::unique_ptr<Pass> createPlanPass() { return std::make_unique<PlanPass>(); }

} // namespace lathe
