//===- OutlineCustom.cpp - a user's CUDA text as a kernel -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A custom call that brings CUDA text runs on a GPU like any other kernel: in the
// order of the stream, in a graph. Elsewhere it stays a call of the host's function.
// Its parameters: the inputs, the outputs, the sizes that occur in their types in
// alphabetical order (long long), and a pointer that it may ignore.
//
//   %y = custom_call "f"(%x) {config =        %y = lathe.kernel "f" custom (%a = %x) {
//          {cuda_source = "..."}}        =>     %0 = custom_call "f"(%a) ...; yield %0 }
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_OUTLINECUSTOMPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct OutlineCustomPass : impl::OutlineCustomPassBase<OutlineCustomPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (!target->isCuda())
        continue;
      SmallVector<CustomCallOp> calls;
      for (func::FuncOp func : module.getOps<func::FuncOp>())
        for (CustomCallOp call : func.getOps<CustomCallOp>())
          if (call.getConfig().getAs<StringAttr>("cuda_source") && call->getNumResults())
            calls.push_back(call);
      for (CustomCallOp call : calls)
        outline(call);
    }
  }

  static void outline(CustomCallOp call) {
    OpBuilder builder(call);
    SmallVector<Attribute> nodes;
    for (StringRef node : nodeNames(call.getLoc()))
      nodes.push_back(builder.getStringAttr(node));
    auto kernel = KernelOp::create(builder, call.getLoc(), call.getResultTypes(), call.getInputs(),
                                   call.getTargetAttr(),
                                   RegionKindAttr::get(call.getContext(), RegionKind::Custom),
                                   nodes.empty() ? ArrayAttr() : builder.getArrayAttr(nodes),
                                   /*variants=*/ArrayAttr(), /*roles=*/RolesAttr());
    SmallVector<Location> locations(call.getInputs().size(), call.getLoc());
    Block *body =
        builder.createBlock(&kernel.getBody(), {}, call.getInputs().getTypes(), locations);
    IRMapping mapping;
    mapping.map(call.getInputs(), body->getArguments());
    Operation *inside = builder.clone(*call, mapping);
    YieldOp::create(builder, call.getLoc(), inside->getResults());
    call->replaceAllUsesWith(kernel->getResults());
    call.erase();
  }
};

} // namespace

} // namespace lathe
