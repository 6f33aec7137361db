//===- Rewrite.cpp - patterns to the end, within a limit ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/passes/Rewrite.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace lathe {
namespace {

constexpr int64_t kRewritesPerOp = 64, kRounds = 10;

/// Remembers where the driver is.
struct LastRewrite : RewriterBase::Listener {
  void notifyPatternBegin(const Pattern &pattern, Operation *op) override {
    name = pattern.getDebugName();
    where = op->getLoc();
  }
  StringRef name;
  std::optional<Location> where;
};

} // namespace

LogicalResult rewriteToTheEnd(ModuleOp module, const FrozenRewritePatternSet &patterns,
                              bool *changed) {
  int64_t ops = 0;
  module.walk([&](Operation *) { ++ops; });
  int64_t limit = kRewritesPerOp * ops;
  LastRewrite last;
  GreedyRewriteConfig config;
  config.enableConstantCSE(true);
  config.setListener(&last);
  config.setMaxNumRewrites(limit);
  config.setMaxIterations(kRounds);
  if (succeeded(applyPatternsGreedily(module, patterns, config, changed)))
    return success();
  return mlir::emitError(last.where.value_or(module.getLoc()))
         << "internal: rewriting did not come to an end in " << kRounds << " rounds of at most " << limit
         << " steps; the last was " << last.name;
}

} // namespace lathe
