//===- Fuse.cpp - from graph ops to kernels -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers the ops of every entry into lathe.kernel regions. Nothing here knows
// an op by name: classes and access maps decide (StructuredOpInterface). What
// was fused and what was not, and why, are remarks.
//
//   %m = lathe.matmul %x, %w            %r = lathe.kernel "matmul_add_relu" gemm (...) {
//   %a = lathe.add %m, %b           =>    matmul, add, relu
//   %r = lathe.max %a, %zero            }
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_FUSEPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct FusePass : impl::FusePassBase<FusePass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      for (func::FuncOp func : module.getOps<func::FuncOp>()) {
        if (func.isExternal())
          continue;
        IRRewriter rewriter(&getContext());
        if (target->isCuda())
          fuse::restorePositions(func);
        (void)runRegionDCE(rewriter, func->getRegions());
        fuse::FusionGraph graph(func, symbolOptima(module));
        fuse::growContractions(graph, *target);
        fuse::growReductions(graph, *target);
        fuse::growWindows(graph, *target);
        fuse::Resolution resolution = fuse::resolveFreeOps(graph, *target, module);
        fuse::outline(func, graph, resolution);
      }
    }
  }
};

} // namespace

} // namespace lathe
