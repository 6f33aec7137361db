//===- Order.cpp - the order of steps, and whose memory they take ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes an entry to lib/analysis (Schedule.h) at the sizes that memory is planned
// for, and brings its ops into the order that comes back. A kernel that runs again is
// cloned. The remark says what the arena needs at each stage.
//
//   %a = k1 (big)                   %a = k1
//   %b = k2 (big)            =>     %s = k3 %a   (a dies, s is small)
//   %s = k3 %a, %t = k4 %b          %b = k2
//                                   %t = k4 %b
//
//===----------------------------------------------------------------------===//
#include "ProgramBuilder.h"

#include "lathe/ir/Collective.h"
#include "lathe/ir/SizeSources.h"

#include "lathe/analysis/Schedule.h"
#include "lathe/ir/KernelVariants.h"

using namespace mlir;

namespace lathe::plan {

namespace {

/// Ops that take no time: they stand where their first reader does.
bool isAttached(Operation *op) {
  return isView(op) || isa<ConstantOp, BindDimsOp, StateReadOp, StateAppendOp>(op) ||
         op->hasAttr(kPlacedAttr);
}

/// What an op waits for: its operands and, through attached ops, theirs.
void collectReads(Operation *op, llvm::SetVector<Value> &reads) {
  for (Value operand : op->getOperands()) {
    Operation *def = operand.getDefiningOp();
    if (!def || !isAttached(def))
      reads.insert(operand);
    if (def && (isAttached(def) || isa<DimFromOp>(def))) // the result of dim_from is its operand
      collectReads(def, reads);
  }
}

std::set<std::string> symbolsIn(Operation *op) {
  if (auto kernel = dyn_cast<KernelOp>(op))
    return symbolsOf(kernel.getBodyBlock(), kernel.getResultTypes());
  std::set<std::string> names;
  for (TypeRange types : {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types)
      for (const DimExpr &dim : dimsOf(type))
        dim.collectSymbols(names);
  return names;
}

class EntryGraph {
public:
  EntryGraph(func::FuncOp func, const Updates &updates, const std::map<std::string, int64_t> &point,
             int64_t alignment)
      : func(func), block(func.getBody().front()), updates(updates), point(point) {
    graph.alignment = alignment;
    for (const auto &[op, readers] : updates.before)
      overwritten.insert(readers.begin(), readers.end());
    for (const auto &[value, output] : updates.memory)
      writtenElsewhere.insert(value);
  }

  LogicalResult build() {
    findOutputs();
    std::map<std::string, int> bound; // symbols that a step gives a value
    SizeSources sizes(block);
    int lastCall = -1;
    for (Operation &op : block.without_terminator()) {
      if (isAttached(&op))
        continue;
      int number = steps.size();
      steps.push_back(&op);
      graph.steps.emplace_back();
      analysis::ScheduleStep &step = graph.steps.back();
      llvm::SetVector<Value> reads;
      collectReads(&op, reads);
      for (Value value : reads)
        if (value.getDefiningOp())
          step.reads.push_back(values.lookup(value));
      for (OpResult result : op.getResults()) {
        values[result] = graph.values.size();
        step.writes.push_back(graph.values.size());
        valueOf.push_back(result);
        bool elsewhere = writtenElsewhere.contains(result) || (!isa<KernelOp, CustomCallOp>(op) && !collectiveOf(&op));
        graph.values.push_back({elsewhere ? 0 : bytesAt(bytesOf(result.getType())),
                                returned.contains(result)});
      }
      numbers[&op] = number;
      if (auto it = updates.before.find(&op); it != updates.before.end())
        for (Operation *reader : it->second)
          step.after.push_back(numbers.lookup(reader));
      for (const std::string &name : symbolsIn(&op))
        if (auto it = bound.find(name); it != bound.end())
          step.after.push_back(it->second);
      for (Operation *source : sizes.of(&op))
        step.after.push_back(numbers.lookup(source));
      if (auto from = dyn_cast<DimFromOp>(op))
        for (Attribute name : from.getSymbols())
          bound[cast<StringAttr>(name).str()] = number;
      if (isa<CustomCallOp>(op)) { // functions of the application run in the model's order
        if (lastCall >= 0)
          step.after.push_back(lastCall);
        lastCall = number;
      }
      if (auto kernel = dyn_cast<KernelOp>(op))
        if (failed(describe(kernel, step)))
          return failure();
    }
    return success();
  }

  /// Brings the ops into the planned order; fills `inPlace`.
  void apply(const analysis::SchedulePlan &plan, llvm::DenseMap<Value, Value> &inPlace) {
    for (const analysis::Recompute &again : plan.recomputes) {
      Operation *clone = steps[again.step]->clone();
      block.getOperations().insert(block.getTerminator()->getIterator(), clone);
      steps.push_back(clone);
      Value old = steps[again.step]->getResult(0), made = clone->getResult(0);
      valueOf.push_back(made);
      for (int reader : again.readers)
        replaceRead(steps[reader], old, made);
    }
    placed.clear();
    for (int step : plan.order)
      place(steps[step]);
    SmallVector<Operation *> left; // placing one moves others, the next among them
    for (Operation &op : block.without_terminator())
      if (!placed.contains(&op))
        left.push_back(&op);
    llvm::for_each(left, [&](Operation *op) { placeLast(op); });
    for (auto [value, memory] : llvm::enumerate(plan.memoryOf))
      if (memory != int(value))
        inPlace[valueOf[value]] = valueOf[memory];
  }

  analysis::ScheduleGraph graph;

private:
  int64_t bytesAt(const DimExpr &expr) const {
    auto value = expr.evaluate(point);
    return value.ok() ? std::max<int64_t>(0, *value) : 0;
  }

  /// What the caller's memory or a state takes, and what is copied there at the end.
  void findOutputs() {
    for (Value value : block.getTerminator()->getOperands()) {
      Value made = value;
      while (made.getDefiningOp() && isView(made.getDefiningOp()))
        made = made.getDefiningOp()->getOperand(0);
      Operation *maker = made.getDefiningOp<KernelOp>();
      bool copied = !maker || !writtenElsewhere.insert(made).second;
      if (copied)
        returned.insert(memoryOf(value));
      if (maker && maker->hasAttr(kPlacedAttr)) // its inputs lie in the same memory
        (copied ? returned : writtenElsewhere).insert(maker->operand_begin(), maker->operand_end());
    }
    for (StateAppendOp append : block.getOps<StateAppendOp>())
      if (append.getX().hasOneUse() && append.getX().getDefiningOp<KernelOp>())
        writtenElsewhere.insert(append.getX());
  }

  LogicalResult describe(KernelOp kernel, analysis::ScheduleStep &step) {
    step.cheap = (kernel.getKind() == RegionKind::Pointwise || kernel.getKind() == RegionKind::Copy) &&
                 kernel.getNumResults() == 1 && !isPlaced(kernel->getResult(0)) &&
                 !updatedInput(kernel->getResult(0)) && !overwritten.contains(kernel);
    for (TypeRange types : {TypeRange(kernel.getInputs().getTypes()), TypeRange(kernel.getResultTypes())})
      for (Type type : types)
        step.traffic += bytesAt(bytesOf(type));
    SmallVector<int> shared(kernel.getNumResults(), -2); // -2: no variant was asked yet
    FailureOr<std::vector<KernelVariant>> variants = variantsOf(kernel);
    if (failed(variants))
      return failure();
    for (const auto &[guard, spec, otherwise] : *variants) {
      step.workspace = std::max(step.workspace, bytesAt(spec.workspaceBytes));
      for (auto [i, from] : llvm::enumerate(shared)) {
        int aliases = spec.buffers[spec.numInputs + i].aliases;
        from = from == -2 || from == aliases ? aliases : -1;
      }
    }
    for (auto [i, from] : llvm::enumerate(shared))
      if (from >= 0 && mayShare(kernel, i, from))
        step.inPlace.push_back({values.lookup(kernel->getResult(i)),
                                values.lookup(memoryOf(kernel.getInputs()[from]))});
    return success();
  }

  /// Whether a value is written into a slice of another.
  static bool isPlaced(Value value) {
    return value.hasOneUse() && (*value.user_begin())->hasAttr(kPlacedAttr);
  }

  /// All variants read each element of the input before they write it; here: the memory is a
  /// kernel's result of the same size for all sizes, and no other input is in it.
  bool mayShare(KernelOp kernel, unsigned result, unsigned input) {
    Value made = kernel->getResult(result), root = memoryOf(kernel.getInputs()[input]);
    if (!root.getDefiningOp<KernelOp>() || !values.count(root) || isPlaced(root) ||
        isPlaced(made) || graph.values[values.lookup(root)].bytes == 0 ||
        graph.values[values.lookup(made)].bytes == 0 ||
        !(bytesOf(root.getType()) == bytesOf(made.getType())))
      return false;
    for (auto [i, other] : llvm::enumerate(kernel.getInputs()))
      if (i != input && memoryOf(other) == root)
        return false;
    return true;
  }

  /// Lets a step read another value, with copies of the attached ops between them.
  void replaceRead(Operation *reader, Value old, Value made) {
    for (OpOperand &operand : reader->getOpOperands()) {
      if (operand.get() == old) {
        operand.set(made);
        continue;
      }
      Operation *def = operand.get().getDefiningOp();
      if (!def || !isAttached(def))
        continue;
      llvm::SetVector<Value> reads;
      collectReads(def, reads);
      if (!reads.contains(old))
        continue;
      Operation *clone = def->clone();
      block.getOperations().insert(block.getTerminator()->getIterator(), clone);
      replaceRead(clone, old, made);
      operand.set(clone->getResult(cast<OpResult>(operand.get()).getResultNumber()));
    }
  }

  /// Moves an op to the end of those placed, after the attached ops that it needs.
  void place(Operation *op) {
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp(); def && isAttached(def) && !placed.contains(def))
        place(def);
    placed.insert(op);
    op->moveBefore(block.getTerminator());
  }
  void placeLast(Operation *op) {
    if (!placed.contains(op))
      place(op);
  }

  func::FuncOp func;
  Block &block;
  const Updates &updates;
  const std::map<std::string, int64_t> &point;
  SmallVector<Operation *> steps;
  SmallVector<Value> valueOf;
  llvm::DenseMap<Value, int> values;
  llvm::DenseMap<Operation *, int> numbers; ///< of steps
  llvm::DenseSet<Value> writtenElsewhere, returned;
  llvm::DenseSet<Operation *> overwritten; ///< readers of what is overwritten later
  llvm::DenseSet<Operation *> placed;
};

} // namespace

LogicalResult orderForMemory(func::FuncOp func, const Updates &updates,
                             const std::map<std::string, int64_t> &point, int64_t alignment,
                             llvm::DenseMap<Value, Value> &inPlace) {
  EntryGraph entry(func, updates, point, alignment);
  if (failed(entry.build()))
    return failure();
  auto plan = analysis::planSchedule(entry.graph);
  if (!plan.ok())
    return func.emitError("internal: memory planning: ") << plan.status().str();
  if (plan->stages.size() == 1)
    return success();
  std::string text = "arena:";
  for (const analysis::ScheduleStage &stage : plan->stages)
    text += (&stage == plan->stages.data() ? " " : ", ") + stage.name + " " +
            std::to_string(stage.height) + " bytes";
  if (size_t again = plan->recomputes.size())
    text += again == 1 ? ", one kernel runs again"
                       : ", " + std::to_string(again) + " kernels run again";
  passedRemark(func.getLoc(), "Order") << text;
  entry.apply(*plan, inPlace);
  return success();
}

} // namespace lathe::plan
