//===- Simplify.cpp - folding and algebra ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folders, the algebra of movement ops, constants folded by the reference, and
// common subexpressions, until nothing changes. Knows no target.
//
//   %a = transpose {perm = [1, 0]} %x
//   %b = transpose {perm = [1, 0]} %a      =>   %c = mul %x, %y
//   %c = mul %b, %y
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/passes/Rewrite.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_SIMPLIFYPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct SimplifyPass : impl::SimplifyPassBase<SimplifyPass> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    RewritePatternSet patterns(context);
    for (RegisteredOperationName op : context->getRegisteredOperations())
      if (op.getDialectNamespace() == "lathe")
        op.getCanonicalizationPatterns(patterns, context);
    populateMovementPatterns(patterns);
    populateRepeatPatterns(patterns);
    populateAlgebraPatterns(patterns);
    populateConstantPatterns(patterns, /*keepCodes=*/true);
    populateDearConstantPatterns(patterns);
    FrozenRewritePatternSet frozen(std::move(patterns));
    OpPassManager cse(ModuleOp::getOperationName());
    cse.addPass(createCSEPass());
    for (int round = 0; round < 4; ++round) {
      bool changed = false;
      if (failed(rewriteToTheEnd(getOperation(), frozen, &changed)))
        return signalPassFailure();
      if (failed(runPipeline(cse, getOperation())))
        return signalPassFailure();
      if (!changed)
        break;
    }
  }
};

} // namespace

} // namespace lathe
