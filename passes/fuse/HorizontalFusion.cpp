//===- HorizontalFusion.cpp - small kernels over one value in one launch --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rotating queries, rotating keys into their state and copying values into theirs
// are three launches over one product, each shorter than what it takes to start
// it. On a GPU they become one kernel of several results, each with blocks of
// its own.
//
//   %q = kernel pointwise (%y)               %q, %k = kernel pointwise (%y)
//   %k = kernel pointwise (%y)         =>
//
// So do a rotation of queries and what puts keys and values into a pool of pages: a scatter in place writes its
// updates as others write results.
//
//===----------------------------------------------------------------------===//
#include "../Common.h"
#include "../InPlaceUpdates.h"

#include "lathe/ir/SizeSources.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_HORIZONTALFUSIONPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct HorizontalFusionPass : impl::HorizontalFusionPassBase<HorizontalFusionPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      optima = symbolOptima(module);
      if (target->isCuda())
        for (func::FuncOp func : module.getOps<func::FuncOp>())
          if (!func.isExternal())
            run(func.getBody().front());
    }
  }

private:
  void run(Block &block) {
    llvm::MapVector<Value, SmallVector<KernelOp>> byRoot;
    for (KernelOp kernel : block.getOps<KernelOp>())
      if (Value root = isSmall(kernel) ? rootOf(kernel) : Value())
        byRoot[root].push_back(kernel);
    bool any = false;
    for (auto &[root, kernels] : byRoot) {
      SmallVector<KernelOp> group;
      SizeSources sizes(block);
      for (KernelOp kernel : kernels)
        if (llvm::none_of(group, [&](KernelOp other) { return dependsOn(kernel, other, sizes); }))
          group.push_back(kernel);
      if (group.size() < 2)
        continue;
      fuse(group);
      any = true;
    }
    if (any)
      sortBlock(block);
  }

  double count(Value value) const {
    double elements = 1;
    for (const DimExpr &dim : dimsOf(value)) {
      auto size = dim.evaluate(optima);
      elements *= size.ok() ? double(*size) : 128.0;
    }
    return elements;
  }

  /// One result, made point by point in its order, in less time than a launch takes.
  bool isSmall(KernelOp kernel) const {
    constexpr double kFew = 1 << 22;
    if ((kernel.getKind() != RegionKind::Pointwise && kernel.getKind() != RegionKind::Copy) ||
        kernel.getNumResults() != 1 || elementTypeOf(kernel.getResult(0)).getIntOrFloatBitWidth() < 8)
      return false;
    Operation *update = updateIn(kernel);
    if (count(update ? update->getOperand(2) : kernel.getResult(0)) > kFew)
      return false;
    return llvm::all_of(kernel.getBodyBlock().without_terminator(), [&](Operation &op) {
      auto permutation = permutationOf(&op);
      if (permutation && !keepsLastDim(*permutation))
        return false; // tiles of their own
      std::optional<OpClass> kind = classOf(&op);
      return &op == update || kind == OpClass::Pointwise || kind == OpClass::Pairwise ||
             kind == OpClass::Movement || kind == OpClass::Source;
    });
  }

  /// The largest value that the kernel reads, whatever view of it; not what it changes in place.
  Value rootOf(KernelOp kernel) const {
    Value largest;
    Operation *update = updateIn(kernel);
    for (auto [input, argument] : llvm::zip(kernel.getInputs(), kernel.getBodyBlock().getArguments())) {
      if (update && update->getOperand(0) == argument)
        continue;
      while (input.getDefiningOp() && isView(input.getDefiningOp()))
        input = input.getDefiningOp()->getOperand(0);
      if (!input.getDefiningOp<ConstantOp>() && (!largest || count(input) > count(largest)))
        largest = input;
    }
    return largest;
  }

  /// The scatter that a kernel is, where it writes rows of updates in place in any order; else null.
  static Operation *updateIn(KernelOp kernel) {
    Operation *scatter = inPlaceUpdate(kernel, 0);
    return scatter && hasRowsOfUpdates(scatter) ? scatter : nullptr;
  }

  /// Whether what `later` reads, or a size of it, needs `earlier`, which stands before it.
  static bool dependsOn(Operation *later, Operation *earlier, const SizeSources &sizes) {
    SmallVector<Operation *> todo{later};
    llvm::DenseSet<Operation *> seen;
    while (!todo.empty()) {
      Operation *op = todo.pop_back_val();
      SmallVector<Operation *> producers(sizes.of(op));
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          producers.push_back(producer);
      for (Operation *producer : producers) {
        if (producer == earlier)
          return true;
        if (earlier->isBeforeInBlock(producer) && seen.insert(producer).second)
          todo.push_back(producer);
      }
    }
    return false;
  }

  static void fuse(ArrayRef<KernelOp> group) {
    KernelOp last = group.back();
    OpBuilder builder(last);
    SmallVector<Location> places;
    SmallVector<Type> types;
    SmallVector<Attribute> nodes;
    llvm::SetVector<Value> inputs;
    for (KernelOp kernel : group) {
      places.push_back(kernel.getLoc());
      types.push_back(kernel.getResult(0).getType());
      inputs.insert(kernel.getInputs().begin(), kernel.getInputs().end());
      if (kernel.getNodes())
        llvm::append_range(nodes, kernel.getNodesAttr());
    }
    Location loc = builder.getFusedLoc(places);
    KernelOp front = group.front();
    auto fused = KernelOp::create(builder, loc, types, inputs.getArrayRef(), front.getNameAttr(),
                                  RegionKindAttr::get(builder.getContext(), RegionKind::Pointwise),
                                  nodes.empty() ? ArrayAttr() : builder.getArrayAttr(nodes),
                                  /*variants=*/ArrayAttr(), /*roles=*/RolesAttr());
    Block *body = builder.createBlock(&fused.getBody());
    IRMapping mapping;
    for (Value input : inputs)
      body->addArgument(input.getType(), input.getLoc());
    SmallVector<Value> results;
    for (KernelOp kernel : group) {
      for (auto [argument, input] :
           llvm::zip(kernel.getBodyBlock().getArguments(), kernel.getInputs()))
        mapping.map(argument, body->getArgument(llvm::find(inputs, input) - inputs.begin()));
      for (Operation &op : kernel.getBodyBlock().without_terminator())
        builder.clone(op, mapping);
      results.push_back(mapping.lookup(kernel.getBodyBlock().getTerminator()->getOperand(0)));
    }
    YieldOp::create(builder, loc, results);
    for (auto [kernel, result] : llvm::zip(group, fused.getResults())) {
      KernelOp old = kernel;
      old.getResult(0).replaceAllUsesWith(result);
      old.erase();
    }
    passedRemark(loc, "HorizontalFusion") << std::to_string(group.size()) + " small kernels are one launch";
  }

  std::map<std::string, int64_t> optima;
};

} // namespace

} // namespace lathe
