//===- ConstantPatterns.cpp - ops on constants ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What depends on constants alone is computed by the reference, up to 64 K elements a value (larger ones:
// ConstantChains.cpp). Reshaping a weight renames it, and cutting one into pieces of neighbouring bytes
// names these; they stay in the model.
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

constexpr int64_t kMaxFoldedElements = 64 << 10;
constexpr int64_t kMaxFoldedFlops = 64 << 20; // a tenth of a second of the reference's

/// A matrix of codes that becomes numbers for a product, or scales that become those of others.
bool dequantizesForProduct(Operation *op) {
  constexpr int64_t kMinElements = 256;
  if (!isa<CastOp, DequantizeOp>(op))
    return false;
  auto type = cast<TensorType>(op->getOperand(0).getType());
  bool scales = isa<DequantizeOp>(op) && llvm::any_of(op->getUsers(), [&](Operation *user) {
    auto codes = dyn_cast<DequantizeOp>(user);
    return codes && codes.getScale() == op->getResult(0) && reachesProduct(codes.getY());
  });
  return scales || (type.getRank() >= 2 && type.getElementType().isIntOrFloat() &&
                    type.getElementTypeBitWidth() <= 8 && !type.getElementType().isInteger(1) &&
                    type.getNumElements() >= kMinElements && reachesProduct(op->getResult(0)));
}

/// Codes that become the filters of convolutions, and nothing else.
bool dequantizesFilters(Operation *op) {
  return isa<DequantizeOp>(op) && !op->use_empty() && llvm::all_of(op->getUses(), [](OpOperand &use) {
           auto conv = dyn_cast<ConvOp>(use.getOwner());
           return conv && conv.getW() == use.get() && conv.getX() != use.get();
         });
}

struct FoldThroughReference : RewritePattern {
  FoldThroughReference(MLIRContext *context, bool keepCodes, bool keepFilters)
      : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/1, context), keepCodes(keepCodes), keepFilters(keepFilters) {}

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isa<StructuredOpInterface>(op) || op->getNumResults() != 1 || op->getNumRegions())
      return rewriter.notifyMatchFailure(op, "no op of tensors with one result");
    auto type = cast<TensorType>(op->getResult(0).getType());
    if (!type.hasStaticShape() || type.getNumElements() > kMaxFoldedElements)
      return rewriter.notifyMatchFailure(op, "symbolic or large result");
    // Large weights may be read here for a small result, as of an embedding whose places are constant.
    std::optional<int64_t> flops = cast<StructuredOpInterface>(op).getFlops().constant();
    if (!flops || *flops > kMaxFoldedFlops)
      return rewriter.notifyMatchFailure(op, "as much work as a run shall do");
    if ((keepCodes && dequantizesForProduct(op)) || (keepFilters && dequantizesFilters(op)))
      return rewriter.notifyMatchFailure(op, "a product may take the codes as they are");
    auto mayBeRead = [](Value operand) {
      auto constant = operand.getDefiningOp<ConstantOp>();
      return constant && cast<TensorType>(constant.getType()).getNumElements() <= kMostFolded;
    };
    if (!llvm::all_of(op->getOperands(), mayBeRead)) // before any is copied
      return rewriter.notifyMatchFailure(op, "an operand is no constant, or a large one");
    std::vector<HostTensor> inputs;
    for (Value operand : op->getOperands()) {
      auto constant = operand.getDefiningOp<ConstantOp>();
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

  const bool keepCodes, keepFilters;
};

/// What a constant has in a file of weights; null for other values.
WeightAttr weightOf(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  return constant ? dyn_cast<WeightAttr>(constant.getValue()) : WeightAttr();
}

/// reshape(weight) is the weight under another type.
struct RetypeWeight : OpRewritePattern<ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReshapeOp op, PatternRewriter &rewriter) const override {
    WeightAttr weight = weightOf(op.getX());
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

/// Where the elements of a slice begin in a tensor that has them one after another; none where
/// others lie between them.
std::optional<int64_t> placeOfPiece(SliceOp op) {
  auto from = cast<TensorType>(op.getX().getType()), to = cast<TensorType>(op.getY().getType());
  if (!from.hasStaticShape() || !to.hasStaticShape())
    return std::nullopt;
  int64_t at = 0;
  bool several = false; // rows of what is cut next lie apart
  for (int64_t d = 0; d < from.getRank(); ++d) {
    int64_t size = from.getDimSize(d), kept = to.getDimSize(d);
    auto start = cast<DimAttr>(op.getStarts()[d]).expr().constant();
    bool strided = kept > 1 && op.getSteps()[d] != 1;
    if (!start || strided || (several && kept != size))
      return std::nullopt;
    at = at * size + *start;
    several |= kept > 1;
  }
  return at;
}

/// slice(weight) is a piece of the weight, where nothing uses the whole: the weights of each
/// direction of an LSTM.
struct SliceWeight : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op, PatternRewriter &rewriter) const override {
    WeightAttr weight = weightOf(op.getX());
    auto type = cast<TensorType>(op.getY().getType());
    if (!weight || WeightStore::spreadOf(weight))
      return rewriter.notifyMatchFailure(op, "no weight with bytes");
    if (!llvm::all_of(op.getX().getUsers(), [](Operation *user) { return isa<SliceOp>(user); }))
      return rewriter.notifyMatchFailure(op, "the whole weight is used, too");
    std::optional<int64_t> place = placeOfPiece(op);
    auto dtype = dtypeOf(type.getElementType());
    if (!place || !dtype || bitWidth(*dtype) < 8)
      return rewriter.notifyMatchFailure(op, "no piece of whole bytes");
    auto &weights = getContext()->getLoadedDialect<LatheDialect>()->weights();
    auto bytes = weights.get(weight);
    uint64_t begin = byteSize(*dtype, *place), size = byteSize(*dtype, type.getNumElements());
    if (!bytes.ok() || begin > bytes->size() || size > bytes->size() - begin)
      return rewriter.notifyMatchFailure(op, "the archive lacks the weight's bytes");
    auto piece = bytes->subspan(begin, size);
    // The store holds the whole weight's bytes as long as it lives.
    rewriter.replaceOpWithNewOp<ConstantOp>(
        op, type.getNumElements() <= kMaxFoldedElements
                ? constantAttr(type, piece, weights)
                : cast<TypedAttr>(Attribute(weights.add(type, piece, nullptr))));
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

bool isTable(GatherOp op) { return dimsOf(op.getX()).size() == 1 && op.getAxis() == 0; }

bool reachesProduct(Value value, int depth) {
  constexpr int kMaxDepth = 12;
  return depth < kMaxDepth && llvm::any_of(value.getUsers(), [&](Operation *user) {
    auto gather = dyn_cast<GatherOp>(user);
    bool goesOn = isa<CastOp, SubOp, MulOp, ReshapeOp, TransposeOp, ConcatOp, DequantizeOp>(user) ||
                  (gather && gather.getIndices() == value && isTable(gather));
    return isa<MatmulOp>(user) || (goesOn && reachesProduct(user->getResult(0), depth + 1));
  });
}

void populateConstantPatterns(RewritePatternSet &patterns, bool keepCodes, bool keepFilters) {
  patterns.add<FoldThroughReference>(patterns.getContext(), keepCodes, keepFilters);
  populateFilterPatterns(patterns, keepFilters);
  patterns.add<RetypeWeight, SliceWeight, FoldDimValue>(patterns.getContext());
}

} // namespace lathe
