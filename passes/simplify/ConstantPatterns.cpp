//===- ConstantPatterns.cpp - ops on constants ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What depends on constants alone is computed by the reference, up to 64 K
// elements a value; filters that are turned for a transposed convolution, which packs
// what is constant only, up to 16 M. Reshaping a weight renames it; its bytes stay in the model.
//
//   %c = constant, %d = constant
//   %e = mul %c, %d               =>   %e = constant
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"

using namespace mlir;

namespace lathe {
namespace {

constexpr int64_t kMaxFoldedElements = 64 << 10, kMaxFilterElements = 16 << 20;

/// Whether a matmul reads the value, perhaps scaled, moved or transposed before.
bool reachesProduct(Value value, int depth = 0) {
  constexpr int kMaxDepth = 8;
  return depth < kMaxDepth && llvm::any_of(value.getUsers(), [&](Operation *user) {
    return isa<MatmulOp>(user) || (isa<CastOp, SubOp, MulOp, ReshapeOp, TransposeOp>(user) &&
                                   reachesProduct(user->getResult(0), depth + 1));
  });
}

/// Whether an op turns or cuts filters, on their way to convolutions alone.
bool movesFilters(Operation *op) {
  if (!isa<TransposeOp, SliceOp, ReshapeOp>(op) || op->getResult(0).use_empty())
    return false;
  return llvm::all_of(op->getResult(0).getUses(), [](OpOperand &use) {
    auto conv = dyn_cast<ConvOp>(use.getOwner());
    return conv ? conv.getW() == use.get() && conv.getX() != use.get()
                : movesFilters(use.getOwner());
  });
}

/// A matrix of 8-bit elements that is widened for a product.
bool widensForProduct(Operation *op) {
  constexpr int64_t kMinElements = 256;
  auto cast = dyn_cast<CastOp>(op);
  auto type = cast ? llvm::cast<TensorType>(cast.getX().getType()) : TensorType();
  return type && type.getRank() >= 2 && type.getElementType().isIntOrFloat() &&
         type.getElementTypeBitWidth() == 8 &&
         type.getNumElements() >= kMinElements && reachesProduct(cast.getY());
}

struct FoldThroughReference : RewritePattern {
  FoldThroughReference(MLIRContext *context, bool keepNarrow)
      : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/1, context), keepNarrow(keepNarrow) {}

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isa<StructuredOpInterface>(op) || op->getNumResults() != 1 || op->getNumRegions())
      return rewriter.notifyMatchFailure(op, "no op of tensors with one result");
    auto type = cast<TensorType>(op->getResult(0).getType());
    int64_t most = movesFilters(op) ? kMaxFilterElements : kMaxFoldedElements;
    if (!type.hasStaticShape() || type.getNumElements() > most)
      return rewriter.notifyMatchFailure(op, "symbolic or large result");
    if (keepNarrow && widensForProduct(op))
      return rewriter.notifyMatchFailure(op, "a product may take the 8-bit matrix as it is");
    std::vector<HostTensor> inputs;
    for (Value operand : op->getOperands()) {
      auto constant = operand.getDefiningOp<ConstantOp>();
      if (!constant || cast<TensorType>(constant.getType()).getNumElements() > most)
        return rewriter.notifyMatchFailure(op, "an operand is no small constant");
      auto value = hostTensorOf(constant.getValue(), constant.getType(), getContext());
      if (!value.ok())
        return rewriter.notifyMatchFailure(op, value.status().message());
      inputs.push_back(std::move(*value));
    }
    auto results = evaluateOp(op, inputs);
    if (!results.ok())
      return rewriter.notifyMatchFailure(op, results.status().message());
    auto &weights = getContext()->getLoadedDialect<LatheDialect>()->weights();
    TypedAttr value = constantAttr(type, results->front().data, weights);
    rewriter.replaceOpWithNewOp<ConstantOp>(op, value);
    return success();
  }

  const bool keepNarrow;
};

/// reshape(weight) is the weight under another type.
struct RetypeWeight : OpRewritePattern<ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReshapeOp op, PatternRewriter &rewriter) const override {
    auto constant = op.getX().getDefiningOp<ConstantOp>();
    auto weight = constant ? dyn_cast<WeightAttr>(constant.getValue()) : WeightAttr();
    auto type = cast<TensorType>(op.getY().getType());
    if (!weight || !type.hasStaticShape())
      return rewriter.notifyMatchFailure(op, "no weight of static sizes");
    rewriter.replaceOpWithNewOp<ConstantOp>(
        op, cast<TypedAttr>(Attribute(WeightAttr::get(getContext(), weight.getKey(),
                                                      weight.getOffset(), weight.getBytes(),
                                                      weight.getHash(), type))));
    return success();
  }
};

/// Sizes that have become numbers are constants.
struct FoldDimValue : OpRewritePattern<DimValueOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DimValueOp op, PatternRewriter &rewriter) const override {
    if (!llvm::all_of(op.getDims(),
                      [](Attribute dim) { return cast<DimAttr>(dim).expr().isConstant(); }))
      return rewriter.notifyMatchFailure(op, "a size is symbolic");
    auto type = cast<TensorType>(op.getY().getType());
    auto dtype = dtypeOf(type.getElementType());
    if (!dtype)
      return rewriter.notifyMatchFailure(op, "element type");
    HostTensor host(*dtype, std::vector<int64_t>(type.getShape()));
    for (auto [i, dim] : llvm::enumerate(op.getDims())) {
      int64_t value = *cast<DimAttr>(dim).expr().constant();
      if (isFloat(*dtype))
        host.setReal(i, double(value));
      else
        host.setInteger(i, value);
    }
    auto &weights = getContext()->getLoadedDialect<LatheDialect>()->weights();
    rewriter.replaceOpWithNewOp<ConstantOp>(op, constantAttr(type, host.data, weights));
    return success();
  }
};

} // namespace

void populateConstantPatterns(RewritePatternSet &patterns, bool keepNarrow) {
  patterns.add<FoldThroughReference>(patterns.getContext(), keepNarrow);
  patterns.add<RetypeWeight, FoldDimValue>(patterns.getContext());
}

} // namespace lathe
