//===- AttentionMasks.cpp - masks that do not depend on the query ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exporters widen a mask of padded keys to all queries, or join it with a test
// that every query passes. Attention broadcasts by itself, and reads a mask that
// is the same for all queries once.
//
//   %i = reshape (iota) : 1x1xSx1
//   %a = and (compare ge %i, 0), %keys : 1x1xSx1, Bx1x1xT -> Bx1xSxT
//   %m = select %a, 0, -65504 : Bx1xSxT                      =>  select %keys, 0, -65504 : Bx1x1xT
//   attention %q, %k, %v, %m
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/AttentionOperands.h"

using namespace mlir;

namespace lathe {
namespace {

/// Whether the dimension ahead of the last counts queries; else there is one element for all.
bool hasQueries(Value v) {
  std::vector<DimExpr> dims = dimsOf(v);
  return dims.size() >= 2 && dims[dims.size() - 2] != DimExpr(1);
}

/// A comparison of positions, which begin at 0, with a number that all of them pass.
bool isAlwaysTrue(CompareOp compare) {
  Value position = compare.getOperand(0);
  while (auto reshape = position.getDefiningOp<ReshapeOp>())
    position = reshape.getX();
  std::optional<double> number = numberOf(compare.getOperand(1));
  if (!position.getDefiningOp<IotaOp>() || !number)
    return false;
  return (compare.getPredicate() == Predicate::Ge && *number <= 0) ||
         (compare.getPredicate() == Predicate::Gt && *number < 0);
}

/// `v` with one element for all queries where each has the same, maybe of fewer dimensions; null
/// where that is not seen. Nothing is made unless `builder` is given.
Value forOneQuery(Value v, OpBuilder *builder) {
  if (!hasQueries(v))
    return v;
  Operation *op = v.getDefiningOp();
  if (!op)
    return {};
  if (auto broadcast = dyn_cast<BroadcastToOp>(op))
    return forOneQuery(broadcast.getX(), builder);
  if (auto compare = dyn_cast<CompareOp>(op); compare && isAlwaysTrue(compare)) {
    if (!builder)
      return v;
    auto one = DenseElementsAttr::get(tensorType(elementTypeOf(v), ArrayRef<int64_t>()), true);
    return ConstantOp::create(*builder, op->getLoc(), one);
  }
  if (!isClass(op, OpClass::Pointwise) || op->getNumResults() != 1 || op->getNumRegions() != 0)
    return {};
  SmallVector<Value> operands;
  std::vector<std::vector<DimExpr>> shapes;
  for (Value operand : op->getOperands()) {
    operands.push_back(forOneQuery(operand, builder));
    if (!operands.back())
      return {};
    shapes.push_back(dimsOf(operands.back()));
  }
  if (!builder)
    return v;
  OperationState state(op->getLoc(), op->getName(), operands,
                       tensorType(elementTypeOf(v), *broadcastDims(shapes)), op->getAttrs());
  return builder->create(state)->getResult(0);
}

struct MaskForOneQuery : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    if (!op.getMask() || hasSink(op) || !hasQueries(op.getMask()) ||
        !forOneQuery(op.getMask(), nullptr))
      return rewriter.notifyMatchFailure(op, "the mask differs between queries");
    Value mask = forOneQuery(op.getMask(), &rewriter);
    std::vector<DimExpr> dims = dimsOf(mask);
    const DimExpr keys = dimsOf(op.getMask()).back();
    if (dims.empty() || dims.back() != keys) { // the same for all keys too
      dims.resize(std::max<size_t>(dims.size(), 1), keys);
      dims.back() = keys;
      mask =
          BroadcastToOp::create(rewriter, op.getLoc(), tensorType(elementTypeOf(mask), dims), mask);
    }
    rewriter.modifyOpInPlace(op, [&] { op.getMaskMutable().assign(mask); });
    passedRemark(op.getLoc(), "Attention") << "the mask is the same for all queries";
    return success();
  }
};

} // namespace

void populateMaskPatterns(RewritePatternSet &patterns) {
  patterns.add<MaskForOneQuery>(patterns.getContext());
}

} // namespace lathe
