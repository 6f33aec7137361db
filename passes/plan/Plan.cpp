//===- Plan.cpp - the host program of each entry --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each entry into an exec.program: buffers for its values, launches in
// order, guards on sizes. Views cost nothing, outputs are written where the
// caller wants them, and states where they live; buffers of the arena get their
// offsets later (Offsets.cpp). Equal kernels become one exec.kernel.
//
//   func @main(%x) {                      exec.kernel @relu_0 {...}
//     %y = lathe.kernel "relu_0" (%x)  =>  exec.program @main {
//     return %y }                            size, buffers, input, output
//                                            exec.launch @relu_0(%x, %y) }
//
//===----------------------------------------------------------------------===//
#include "ProgramBuilder.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_PLANPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// Of an input of a kernel: all of it, or what gathers take of it where nothing else reads it.
DimExpr bytesRead(BlockArgument input, const DimExpr &all) {
  DimExpr taken = 0;
  for (OpOperand &use : input.getUses()) {
    auto op = dyn_cast<StructuredOpInterface>(use.getOwner());
    if (!op || op.getOpClass() != OpClass::Gather || op->getNumResults() != 1 ||
        op.getAccess(use.getOperandNumber()).kind != OperandAccess::Kind::Data)
      return all;
    taken = taken + plan::bytesOf(tensorType(elementTypeOf(op->getResult(0)), dimsOf(op->getResult(0))));
  }
  return DimExpr::min(all, taken);
}

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
    auto bytesOf = [](Type type) {
      return plan::bytesOf(tensorType(cast<TensorType>(type).getElementType(), dimsOf(type)));
    };
    for (auto [input, inside] : llvm::zip(kernel.getInputs(), kernel.getBodyBlock().getArguments()))
      bytes = bytes + bytesRead(inside, bytesOf(input.getType()));
    for (Type type : kernel.getResultTypes())
      bytes = bytes + bytesOf(type);
    auto made = exec::KernelOp::create(builder, kernel.getLoc(), kernel.getName(), kernel.getKind(),
                                       kernel.getVariantsAttr(),
                                       DimAttr::get(builder.getContext(), flops),
                                       DimAttr::get(builder.getContext(), bytes),
                                       kernel.getRolesAttr());
    IRMapping mapping;
    kernel.getBody().cloneInto(&made.getBody(), mapping);
  });
}

struct PlanPass : impl::PlanPassBase<PlanPass> {
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
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      for (func::FuncOp func : entries) {
        if (failed(plan::planEntry(func, *target, taps)))
          return signalPassFailure();
        func.erase();
      }
    }
  }
};

} // namespace

} // namespace lathe
