//===- PlaceStates.cpp - producers write into states and outputs ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is appended to a state is stored by its producer at once: the kernel's
// result gets the state's sizes as its physical layout, and plan gives it the
// state's memory. Where no kernel makes the value for the state alone, a copy
// kernel does. The same for strided values that an entry returns.
//
//   %k = kernel ... -> tensor<2x1x32>           %k = kernel ... -> tensor<2x1x32, phys [2, 512, 32]>
//   %p = state_append @k, %k              =>    %p = state_append @k, %k
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_PLACESTATESPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct PlaceStatesPass : impl::PlaceStatesPassBase<PlaceStatesPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      SymbolTable symbols(module);
      module.walk([&](StateAppendOp append) {
        auto state = symbols.lookup<StateOp>(append.getState());
        if (!state) {
          append.emitOpError("names a state that does not exist");
          return signalPassFailure();
        }
        place(append, state);
      });
      for (func::FuncOp func : module.getOps<func::FuncOp>())
        if (!func.isExternal())
          densifyOutputs(func);
    }
  }

  static void place(StateAppendOp append, StateOp state) {
    Value x = append.getX();
    auto kernel = x.getDefiningOp<KernelOp>();
    if (!kernel || !x.hasOneUse()) {
      missedRemark(append.getLoc(), "PlaceStates")
          << (kernel ? "copied into the state: others read the value too"
                     : "copied into the state: no kernel makes it");
      OpBuilder builder(append);
      x = copyKernel(builder, append.getLoc(), x);
      append.getXMutable().assign(x);
    } else {
      passedRemark(append.getLoc(), "PlaceStates") << "written into the state by its producer";
    }
    SmallVector<DimAttr> dims;
    for (const DimExpr &dim : dimsOf(state.getType()))
      dims.push_back(DimAttr::get(append.getContext(), dim));
    x.setType(tensorType(elementTypeOf(x), dimsOf(x), PhysAttr::get(append.getContext(), dims)));
  }

  static Value copyKernel(OpBuilder &builder, Location loc, Value x) {
    auto type = tensorType(elementTypeOf(x), dimsOf(x));
    auto kernel = KernelOp::create(builder, loc, TypeRange(type), x, builder.getStringAttr("copy"),
                                   RegionKindAttr::get(builder.getContext(), RegionKind::Copy),
                                   ArrayAttr(), ArrayAttr(), RolesAttr());
    Block *body = builder.createBlock(&kernel.getBody(), {}, TypeRange(x.getType()), loc);
    YieldOp::create(builder, loc, body->getArguments());
    builder.setInsertionPointAfter(kernel);
    return kernel.getResult(0);
  }

  /// Outputs are dense memory of the caller.
  static void densifyOutputs(func::FuncOp func) {
    Operation *end = func.getBody().front().getTerminator();
    for (OpOperand &operand : end->getOpOperands()) {
      Value value = operand.get();
      if (physicalDimsOf(value.getType()) == dimsOf(value))
        continue;
      OpBuilder builder(end);
      operand.set(copyKernel(builder, end->getLoc(), value));
    }
  }
};

} // namespace

} // namespace lathe
