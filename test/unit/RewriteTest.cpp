//===- RewriteTest.cpp - rewrites come to an end, or to an error ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/passes/Rewrite.h"

#include "lathe/ir/Lathe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace lathe;
using namespace mlir;

namespace {

/// x + y => y + x, which is its own opposite.
struct TurnAround : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AddOp op, PatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<AddOp>(op, op.getType(), op->getOperand(1), op->getOperand(0));
    return success();
  }
};

/// x + x => x
struct Halve : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AddOp op, PatternRewriter &rewriter) const override {
    if (op->getOperand(0) != op->getOperand(1))
      return failure();
    rewriter.replaceOp(op, op->getOperand(0));
    return success();
  }
};

class RewriteTest : public testing::Test {
protected:
  template <typename P> bool rewrite(bool *changed = nullptr) {
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &d) {
      llvm::raw_string_ostream(message) << d.getLocation() << ": " << d;
      return success();
    });
    RewritePatternSet patterns(&context);
    patterns.add<P>(&context);
    ModuleOp target = *module->getOps<ModuleOp>().begin();
    return succeeded(rewriteToTheEnd(target, std::move(patterns), changed));
  }

  MLIRContext context;
  bool loaded = (context.loadDialect<LatheDialect, func::FuncDialect>(), true);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(R"(module { module @target {
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = lathe.add %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("Add_7")
      return %0 : tensor<4xf32>
    }
  }})", ParserConfig(&context));
  std::string message;
};

TEST_F(RewriteTest, ComesToAnEnd) {
  bool changed = false;
  EXPECT_TRUE(rewrite<Halve>(&changed)) << message;
  EXPECT_TRUE(changed);
  EXPECT_TRUE(rewrite<Halve>(&changed));
  EXPECT_FALSE(changed);
}

TEST_F(RewriteTest, EndlessRewritesAreAnInternalError) {
  EXPECT_FALSE(rewrite<TurnAround>());
  EXPECT_NE(message.find("Add_7"), std::string::npos) << message;
  EXPECT_NE(message.find("internal: "), std::string::npos) << message;
  EXPECT_NE(message.find("did not come to an end"), std::string::npos) << message;
  EXPECT_NE(message.find("TurnAround"), std::string::npos) << message;
}

} // namespace
