//===- AlgebraPatterns.cpp - identities of arithmetic ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rewrites of single pointwise ops that keep every bit, or replace a function
// by the products that define it; and one formula that loses its digits by the one
// that does not.
//
//   %y = pow %x, 2          =>   %y = mul %x, %x
//   %z = and %c, true       =>   %c
//   mean(x^2) - mean(x)^2   =>   mean((x - mean(x))^2)
//   sum(cast %c) > 0        =>   reduce max %c
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

/// sum(x) / n over some axes.
struct Mean {
  ReduceOp sum;
  Value n;
};
std::optional<Mean> meanOf(Value value) {
  auto quotient = value.getDefiningOp<DivOp>();
  auto sum = quotient ? quotient.getA().getDefiningOp<ReduceOp>() : ReduceOp();
  if (!sum || sum.getKind() != ReduceKind::Sum || quotient.getY().getType() != sum.getY().getType())
    return std::nullopt;
  return Mean{sum, quotient.getB()};
}

bool isSquareOf(Value value, Value of) {
  auto product = value.getDefiningOp<MulOp>();
  return product && product.getA() == of && product.getB() == of;
}

/// The variance of rows that are nearly constant is a difference of two large numbers in the first form:
/// of values around 10^4 an f32 has no digit of it left, and often it is negative.
struct VarianceOfDifferences : OpRewritePattern<SubOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SubOp op, PatternRewriter &rewriter) const override {
    auto square = op.getB().getDefiningOp<MulOp>();
    if (!square || !isSquareOf(square, square.getA()))
      return rewriter.notifyMatchFailure(op, "subtracts no square");
    std::optional<Mean> mean = meanOf(square.getA()), squares = meanOf(op.getA());
    if (!mean || !squares)
      return rewriter.notifyMatchFailure(op, "not of two means");
    Value x = mean->sum.getX();
    bool sameNumber =
        mean->n == squares->n || (numberOf(mean->n) && numberOf(mean->n) == numberOf(squares->n));
    if (!isSquareOf(squares->sum.getX(), x) || !llvm::isa<FloatType>(elementTypeOf(x)) || !sameNumber ||
        mean->sum.getAxes() != squares->sum.getAxes() ||
        mean->sum.getKeepdims() != squares->sum.getKeepdims())
      return rewriter.notifyMatchFailure(op, "not of a value and of its square over the same axes");
    // n must be how many there are, or no formula for the variance is left.
    DimExpr count = 1;
    std::vector<DimExpr> dims = dimsOf(x), kept = dims;
    for (int64_t axis : mean->sum.getAxes()) {
      count = count * dims[axis];
      kept[axis] = 1;
    }
    auto sizes = mean->n.getDefiningOp<DimValueOp>();
    bool counts = sizes ? sizes.getDims().size() == 1 && cast<DimAttr>(sizes.getDims()[0]).expr() == count
                        : count.constant() && numberOf(mean->n) == double(*count.constant());
    if (!counts)
      return rewriter.notifyMatchFailure(op, "divides by another number than that of the elements");
    Location loc = op.getLoc();
    Value middle = square.getA();
    if (!mean->sum.getKeepdims())
      middle = ReshapeOp::create(rewriter, loc, tensorType(elementTypeOf(x), kept), middle);
    Value centred = SubOp::create(rewriter, loc, x, middle);
    Value sum = ReduceOp::create(rewriter, loc, MulOp::create(rewriter, loc, centred, centred), ReduceKind::Sum,
                                 mean->sum.getAxes(), mean->sum.getKeepdims());
    passedRemark(loc, "Variance") << "the mean of squares less the square of the mean is computed as the mean of "
                                     "squared differences from it";
    rewriter.replaceOpWithNewOp<DivOp>(op, sum, mean->n);
    return success();
  }
};

/// A wider type of floats holds an infinity where the narrower one does.
struct IsInfOfWider : OpRewritePattern<IsInfOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(IsInfOp op, PatternRewriter &rewriter) const override {
    auto cast = op.getX().getDefiningOp<CastOp>();
    if (!cast)
      return rewriter.notifyMatchFailure(op, "not of a conversion");
    Type from = elementTypeOf(cast.getX()), to = elementTypeOf(cast.getY());
    auto holds = [](Type type) { return type.isF16() || type.isBF16() || type.isF32() || type.isF64(); };
    bool wider = holds(from) && holds(to) && cast.getX().getType() != cast.getY().getType() &&
                 (to.isF64() || (to.isF32() && from.getIntOrFloatBitWidth() == 16));
    if (!wider)
      return rewriter.notifyMatchFailure(op, "not of a wider type of floats");
    rewriter.modifyOpInPlace(op, [&] { op.getXMutable().assign(cast.getX()); });
    return success();
  }
};

/// Whether any of some conditions holds, as exporters count them: how many there are is of no interest.
struct AnyFromCount : OpRewritePattern<CompareOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(CompareOp op, PatternRewriter &rewriter) const override {
    auto count = op.getA().getDefiningOp<ReduceOp>();
    bool positive = op.getPredicate() == Predicate::Gt || op.getPredicate() == Predicate::Ne;
    if (!count || count.getKind() != ReduceKind::Sum || !positive || numberOf(op.getB()) != 0.0)
      return rewriter.notifyMatchFailure(op, "asks no sum whether it is positive");
    auto cast = count.getX().getDefiningOp<CastOp>();
    Type type = elementTypeOf(count.getX());
    // An i64 counts whatever fits into memory; an i32 might wrap.
    if (!cast || !elementTypeOf(cast.getX()).isInteger(1) || !type.isInteger(64) || type.isUnsignedInteger() ||
        dimsOf(op.getY()) != dimsOf(count.getY()))
      return rewriter.notifyMatchFailure(op, "not a sum of conditions in 64 bits");
    rewriter.replaceOpWithNewOp<ReduceOp>(op, cast.getX(), ReduceKind::Max, count.getAxes(), count.getKeepdims());
    return success();
  }
};

} // namespace

void populateAlgebraPatterns(RewritePatternSet &patterns) {
  patterns.add<PowToMul, VarianceOfDifferences, IsInfOfWider, AnyFromCount, DropNeutral<AndOp, true>, DropNeutral<OrOp, false>,
               DropNeutral<XorOp, false>>(patterns.getContext());
}

} // namespace lathe
