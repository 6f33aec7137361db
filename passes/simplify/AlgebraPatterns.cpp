//===- AlgebraPatterns.cpp - identities of arithmetic ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rewrites of single pointwise ops that keep every bit, or replace a function
// by the products that define it.
//
//   %y = pow %x, 2          =>   %y = mul %x, %x
//   %z = and %c, true       =>   %c
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

using namespace mlir;

namespace lathe {
namespace {

/// Whole small exponents are products.
struct PowToMul : OpRewritePattern<PowOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(PowOp op, PatternRewriter &rewriter) const override {
    std::optional<double> exponent = numberOf(op.getB());
    Value x = op.getA();
    if (!exponent || x.getType() != op.getY().getType())
      return rewriter.notifyMatchFailure(op, "no number as exponent");
    if (*exponent == 1)
      rewriter.replaceOp(op, x);
    else if (*exponent == 2)
      rewriter.replaceOpWithNewOp<MulOp>(op, x, x);
    else if (*exponent == 3)
      rewriter.replaceOpWithNewOp<MulOp>(op, MulOp::create(rewriter, op.getLoc(), x, x), x);
    else
      return rewriter.notifyMatchFailure(op, "not 1, 2 or 3");
    return success();
  }
};

/// x and true, x or false, x xor false.
template <typename OpTy, bool neutral> struct DropNeutral : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    if (!elementTypeOf(op.getA()).isInteger(1))
      return rewriter.notifyMatchFailure(op, "elements are not i1");
    for (auto [number, kept] : {std::pair(op.getB(), op.getA()), std::pair(op.getA(), op.getB())})
      if (numberOf(number) == double(neutral) && kept.getType() == op.getY().getType()) {
        rewriter.replaceOp(op, kept);
        return success();
      }
    return rewriter.notifyMatchFailure(op, "no operand is neutral");
  }
};

} // namespace

void populateAlgebraPatterns(RewritePatternSet &patterns) {
  patterns.add<PowToMul, DropNeutral<AndOp, true>, DropNeutral<OrOp, false>,
               DropNeutral<XorOp, false>>(patterns.getContext());
}

} // namespace lathe
