//===- Updates.cpp - results that change what lies in memory --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel that changes some elements of an input and keeps the others (a scatter) writes into
// memory that holds the input. Where a chain of them ends in an output, all of it lies in the
// output's memory; where it begins with the input that is donated to the output, in that one's, and
// nothing is copied. Whoever else reads what is overwritten reads it before.
//
//   func @main(%pool {lathe.donated_to = "next"})     %keys, %next and %pool are one memory;
//     %keys = kernel scatter %pool, %k                %old is made first
//     %next = kernel scatter %keys, %v
//     %old = kernel gather %pool
//     return %next, ...
//
//===----------------------------------------------------------------------===//
#include "ProgramBuilder.h"

#include "lathe/ir/KernelVariants.h"

using namespace mlir;

namespace lathe::plan {

std::optional<unsigned> updatedInput(OpResult result) {
  auto kernel = dyn_cast<KernelOp>(result.getOwner());
  if (!kernel || !kernel.getVariantsAttr())
    return std::nullopt;
  int input = -1;
  for (Attribute attr : kernel.getVariantsAttr()) {
    Result<KernelVariant> variant = parseVariant(attr);
    if (!variant.ok())
      return std::nullopt; // reported where it is launched
    const KernelSpec &spec = variant->spec;
    const BufferArg &out = spec.buffers[spec.numInputs + result.getResultNumber()];
    if (out.access != BufferArg::Access::ReadWrite)
      return std::nullopt;
    input = out.aliases;
  }
  return input >= 0 ? std::optional<unsigned>(input) : std::nullopt;
}

namespace {

class Finder {
public:
  Finder(func::FuncOp func) : func(func), block(func.getBody().front()) {}

  Updates run() {
    // Ops that read sizes made by kernels say so by symbols alone: their order stays.
    bool late = llvm::any_of(block.getOps<DimFromOp>(),
                             [](DimFromOp from) { return !isa<BlockArgument>(from.getX()); });
    Operation *lastCall = nullptr;
    for (Operation &op : block)
      if (isa<CustomCallOp>(op)) { // functions of the application run in the model's order
        if (lastCall)
          updates.before[&op].push_back(lastCall);
        lastCall = &op;
      }
    for (auto [i, value] : llvm::enumerate(block.getTerminator()->getOperands()))
      if (auto made = dyn_cast<OpResult>(memoryOf(value)); made && claimed.insert(made).second)
        follow(made, i, late);
    for (BlockArgument argument : func.getArguments())
      if (auto output = donatedTo(argument); output && !updates.donated.count(argument))
        missedRemark(block.getTerminator()->getOperand(*output).getLoc(), "Donate")
            << "input '" << inputName(func, argument.getArgNumber()) << "' is copied into output '"
            << outputName(func, *output) << "': "
            << (why.count(*output) ? why[*output] : "no update of the input makes it");
    if (!updates.memory.empty() || !updates.donated.empty())
      order();
    return std::move(updates);
  }

private:
  /// The output that an input is donated to.
  std::optional<unsigned> donatedTo(BlockArgument argument) {
    auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kDonatedToAttr);
    for (unsigned i = 0; name && i < func.getNumResults(); ++i)
      if (outputName(func, i) == name.getValue())
        return i;
    return std::nullopt;
  }

  /// From an output backwards, as long as the memory can be one.
  void follow(OpResult made, unsigned output, bool late) {
    while (std::optional<unsigned> input = updatedInput(made)) {
      auto kernel = cast<KernelOp>(made.getOwner());
      Value old = memoryOf(kernel.getInputs()[*input]);
      auto argument = dyn_cast<BlockArgument>(old);
      SmallVector<Operation *> readers;
      if (late) {
        why[output] = "sizes that a kernel makes keep the order of the steps";
      } else if (argument && donatedTo(argument) != output) {
        why[output] = "the input that it updates is another";
      } else if (argument ? llvm::any_of(old.getUses(), isHostOperand)
                          : !old.getDefiningOp<KernelOp>() || claimed.contains(old)) {
        why[output] = "what is updated has a memory of its own";
      } else if (!(bytesOf(old.getType()) == bytesOf(made.getType()))) {
        why[output] = "a part of the input is updated";
      } else if (!readBefore(kernel, *input, old, readers)) {
        why[output] = "what is overwritten is read later";
      } else {
        for (Operation *reader : readers)
          updates.before[kernel].push_back(reader);
        if (argument) {
          passedRemark(kernel.getLoc(), "Donate")
              << "input '" << inputName(func, argument.getArgNumber()) << "' is updated in place";
          updates.donated[argument] = output;
          return;
        }
        claimed.insert(old);
        updates.memory[old] = output;
        made = cast<OpResult>(old);
        continue;
      }
      return;
    }
  }

  /// Whether all other readers of a value can come before the kernel that overwrites it.
  bool readBefore(KernelOp kernel, unsigned input, Value old, SmallVector<Operation *> &readers) {
    for (auto [i, other] : llvm::enumerate(kernel.getInputs()))
      if (i != input && memoryOf(other) == old)
        return false;
    llvm::SetVector<Value> views;
    views.insert(old);
    for (size_t i = 0; i < views.size(); ++i)
      for (Operation *user : views[i].getUsers()) {
        if (user == kernel)
          continue;
        if (isView(user) || isa<BindDimsOp>(user))
          views.insert(user->getResult(0));
        else if (isa<StateAppendOp, DimFromOp>(user) || user->hasTrait<OpTrait::IsTerminator>() ||
                 user->hasAttr(kPlacedAttr) || comesAfter(user, kernel))
          return false;
        else
          readers.push_back(user);
      }
    return true;
  }

  bool comesAfter(Operation *op, Operation *first) {
    llvm::SetVector<Operation *> work;
    work.insert(op);
    for (size_t i = 0; i < work.size(); ++i) {
      if (work[i] == first)
        return true;
      forEachAhead(work[i], [&](Operation *ahead) { work.insert(ahead); });
    }
    return false;
  }

  void forEachAhead(Operation *op, llvm::function_ref<void(Operation *)> visit) {
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp())
        visit(def);
    if (auto it = updates.before.find(op); it != updates.before.end())
      llvm::for_each(it->second, visit);
  }

  /// Brings the ops into an order in which readers stand before what overwrites.
  void order() {
    SmallVector<Operation *> ops; // placing one moves others, the next among them
    for (Operation &op : block.without_terminator())
      ops.push_back(&op);
    llvm::for_each(ops, [&](Operation *op) { place(op); });
  }
  void place(Operation *op) {
    if (!placed.insert(op).second)
      return;
    forEachAhead(op, [&](Operation *ahead) { place(ahead); });
    op->moveBefore(block.getTerminator());
  }

  func::FuncOp func;
  Block &block;
  Updates updates;
  llvm::DenseSet<Value> claimed; ///< by outputs
  llvm::DenseMap<unsigned, StringRef> why; ///< a chain ends before an input
  llvm::DenseSet<Operation *> placed;
};

} // namespace

Value memoryOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op) && !isa<BindDimsOp, DimFromOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

Updates findUpdates(func::FuncOp func) { return Finder(func).run(); }

} // namespace lathe::plan
