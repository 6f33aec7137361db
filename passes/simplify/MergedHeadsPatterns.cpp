//===- MergedHeadsPatterns.cpp - rows and heads as two dimensions ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A batched product of three dimensions (bmm, baddbmm) makes exporters of attention merge rows and heads
// around it. Beside a softmax they come apart again, so that attention is recognised in one form:
//
//   %a = reshape %q : [B, H, S, D] -> [B*H, S, D]
//   %b = reshape %k : [B, H, T, D] -> [B*H, T, D]      %s = matmul %q, %k^T : [B, H, S, T]
//   %s = matmul %a, %b^T : [B*H, S, T]            =>   %m = add %s, (reshape %bias : [B, H, 1, T])
//   %m = add %s, %bias                                 %p = softmax %m
//   %p = softmax %m
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

using namespace mlir;

namespace lathe {

namespace {

/// The value of four dimensions whose first two a reshape merges into the first of `value`.
Value splitOf(Value value) {
  auto merge = value.getDefiningOp<ReshapeOp>();
  if (!merge)
    return {};
  std::vector<DimExpr> wide = dimsOf(merge.getX()), narrow = dimsOf(value);
  bool merges = wide.size() == 4 && narrow.size() == 3 && wide[0] * wide[1] == narrow[0] && wide[2] == narrow[1] &&
                wide[3] == narrow[2];
  return merges ? merge.getX() : Value();
}

/// [B*H, X, Y] as [B, H, X, Y]: the sizes of `value` with the first two of `like`.
std::vector<DimExpr> splitDims(Value value, ArrayRef<DimExpr> like) {
  std::vector<DimExpr> dims = dimsOf(value);
  dims[0] = like[0];
  dims.insert(dims.begin() + 1, like[1]);
  return dims;
}

constexpr int kReach = 12; ///< ops between a product and its softmax

/// Whether a softmax reads what comes of `value`, through elementwise ops, reshapes and one product.
bool feedsSoftmax(Value value, int reach = kReach, bool product = true) {
  return reach > 0 && llvm::any_of(value.getUsers(), [&](Operation *user) {
           if (isa<SoftmaxOp>(user))
             return true;
           const bool on = isa<ReshapeOp>(user) || isClass(user, OpClass::Pointwise) || (product && isa<MatmulOp>(user));
           return on && user->getNumResults() == 1 &&
                  feedsSoftmax(user->getResult(0), reach - 1, product && !isa<MatmulOp>(user));
         });
}
/// Whether `value` comes of a softmax, through elementwise ops and reshapes.
bool isFedBySoftmax(Value value, int reach = kReach) {
  Operation *op = value.getDefiningOp();
  if (!op || reach <= 0 || isa<SoftmaxOp>(op))
    return op && reach > 0;
  return (isa<ReshapeOp>(op) || isClass(op, OpClass::Pointwise)) &&
         llvm::any_of(op->getOperands(), [&](Value operand) { return isFedBySoftmax(operand, reach - 1); });
}

/// The product of merged operands is that of the split ones.
struct SplitProduct : OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MatmulOp op, PatternRewriter &rewriter) const override {
    Value a = splitOf(op.getA()), b = splitOf(op.getB());
    if (!a || !b)
      return rewriter.notifyMatchFailure(op, "an operand does not merge two of four dimensions");
    std::vector<DimExpr> rows = dimsOf(a), others = dimsOf(b);
    if (rows[0] != others[0] || rows[1] != others[1])
      return rewriter.notifyMatchFailure(op, "operands merge different dimensions");
    if (!feedsSoftmax(op.getY()) && !isFedBySoftmax(a))
      return rewriter.notifyMatchFailure(op, "no softmax is near");
    Type type = tensorType(elementTypeOf(op.getY()), splitDims(op.getY(), rows));
    Operation *split = rewriter.clone(*op);
    split->setOperand(0, a);
    split->setOperand(1, b);
    split->getResult(0).setType(type);
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getY().getType(), split->getResult(0));
    return success();
  }
};

/// An elementwise op or softmax of a merged operand: the merge goes behind it.
struct MergeBehind : RewritePattern {
  explicit MergeBehind(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    auto softmax = dyn_cast<SoftmaxOp>(op);
    if ((!softmax && !isClass(op, OpClass::Pointwise)) || op->getNumResults() != 1)
      return rewriter.notifyMatchFailure(op, "is neither elementwise nor a softmax");
    Value result = op->getResult(0);
    std::vector<DimExpr> dims = dimsOf(result);
    if (dims.size() != 3 || (softmax && softmax.getAxis() == 0))
      return rewriter.notifyMatchFailure(op, "has no merged dimension that stays");
    Value split;
    for (Value operand : op->getOperands())
      if (!split && dimsOf(operand).size() == 3 && dimOf(operand, 0) == dims[0])
        split = splitOf(operand);
    if (!split)
      return rewriter.notifyMatchFailure(op, "no operand merges two of four dimensions");
    if (!softmax && !feedsSoftmax(result) && !isFedBySoftmax(split))
      return rewriter.notifyMatchFailure(op, "no softmax is near");
    const std::vector<DimExpr> like = dimsOf(split);
    // What is repeated along the merged dimension broadcasts as before.
    for (Value operand : op->getOperands())
      if (std::vector<DimExpr> own = dimsOf(operand); own.size() == 3 && own[0] != dims[0] && own[0] != DimExpr(1))
        return rewriter.notifyMatchFailure(op, "an operand may be repeated along the merged dimension");
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      const bool merged = dimsOf(operand).size() == 3 && dimOf(operand, 0) == dims[0];
      operands.push_back(merged ? ReshapeOp::create(rewriter, op->getLoc(),
                                                    tensorType(elementTypeOf(operand), splitDims(operand, like)), operand)
                                      .getY()
                                : operand);
    }
    Operation *wide = rewriter.clone(*op);
    wide->setOperands(operands);
    wide->getResult(0).setType(tensorType(elementTypeOf(result), splitDims(result, like)));
    if (auto wideSoftmax = dyn_cast<SoftmaxOp>(wide))
      wideSoftmax.setAxis(softmax.getAxis() + 1);
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, result.getType(), wide->getResult(0));
    return success();
  }
};

} // namespace

void populateMergedHeadsPatterns(RewritePatternSet &patterns) {
  patterns.add<SplitProduct, MergeBehind>(patterns.getContext());
}

} // namespace lathe
