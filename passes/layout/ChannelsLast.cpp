//===- ChannelsLast.cpp - images as NHWC ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CPU's convolution kernels read all channels of a pixel in one go, so
// images are stored channels last. Every convolution, pool and roi_align changes its layout, and
// the transposes around it move through pointwise ops, reductions, slices and concats
// until they meet their opposites. What is left is paid for at the borders. The
// same holds for images of 16 bits and of 8-bit codes on sm_90a, whose TMA loads whole pixels.
//
//   %y = conv %x {nchw}              %t = transpose {0, 2, 3, 1} %x
//   %r = max %y, %zero         =>    %y = conv %t {nhwc}
//   %z = conv %r {nchw}              %r = max %y, %zero
//                                    %z = transpose {0, 3, 1, 2} (conv %r {nhwc})
//
//===----------------------------------------------------------------------===//
#include "../Common.h"
#include "../simplify/Patterns.h"
#include "ConvProducts.h"
#include "GroupedNorms.h"
#include "PadGroups.h"
#include "SpreadConvs.h"

#include "lathe/ir/Sampling.h"
#include "lathe/passes/Rewrite.h"

#include "mlir/IR/PatternMatch.h"

#include <numeric>

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_CHANNELSLASTPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// Dimension d of the result is dimension perm[d] of the operand.
using Perm = SmallVector<int64_t>;

Perm toLast(int64_t rank) { return channelsToLast(rank); }
Perm inverse(ArrayRef<int64_t> perm) { return inversePermutation(perm); }
int64_t rankOf(Value value) { return cast<TensorType>(value.getType()).getRank(); }

Value transpose(PatternRewriter &b, Location loc, Value x, ArrayRef<int64_t> perm) {
  return TransposeOp::create(b, loc, x, perm);
}

/// conv and pool to channels last between two transposes.
template <typename OpTy> struct TurnWindowOp : OpRewritePattern<OpTy> {
  TurnWindowOp(MLIRContext *context, bool cuda) : OpRewritePattern<OpTy>(context), cuda(cuda) {}
  bool cuda;
  LogicalResult matchAndRewrite(OpTy op, PatternRewriter &rewriter) const override {
    if (op.getLayout() == ConvLayout::ChannelsLast)
      return rewriter.notifyMatchFailure(op, "channels are last already");
    if (cuda && !wantsChannelsLast(op))
      return rewriter.notifyMatchFailure(op, "this GPU gains nothing by channels last");
    Perm perm = toLast(rankOf(op.getX()));
    Value x = transpose(rewriter, op.getLoc(), op.getX(), perm);
    IRMapping mapping;
    mapping.map(op.getX(), x);
    Operation *clone = rewriter.clone(*op.getOperation(), mapping);
    auto nhwc = cast<OpTy>(clone);
    nhwc.setLayout(ConvLayout::ChannelsLast);
    std::vector<DimExpr> dims;
    std::vector<DimExpr> old = dimsOf(op.getY());
    for (int64_t d : perm)
      dims.push_back(old[d]);
    nhwc.getY().setType(tensorType(elementTypeOf(op.getY()), dims));
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), nhwc.getY(), inverse(perm)));
    return success();
  }
};

/// roi_align of a CPU, which reads the channels of a place together, where they fill a vector.
struct TurnRoiAlign : OpRewritePattern<RoiAlignOp> {
  TurnRoiAlign(MLIRContext *context, int64_t lanes) : OpRewritePattern(context), lanes(lanes) {}
  int64_t lanes;
  LogicalResult matchAndRewrite(RoiAlignOp op, PatternRewriter &rewriter) const override {
    if (op.getChannelsLast())
      return rewriter.notifyMatchFailure(op, "channels are last already");
    std::vector<DimExpr> dims = dimsOf(op.getY());
    if (auto channels = dims[1].constant(); channels && *channels < lanes)
      return rewriter.notifyMatchFailure(op, "its channels fill no vector");
    Perm perm = toLast(4);
    Type type = tensorType(elementTypeOf(op.getY()), {dims[0], dims[2], dims[3], dims[1]});
    Value nhwc = RoiAlignOp::create(rewriter, op.getLoc(), type, transpose(rewriter, op.getLoc(), op.getX(), perm), op.getRois(),
                                    op.getBatch(), op.getScale(), op.getSamples(), op.getHalfPixel(), op.getMaximum(),
                                    /*channels_last=*/true);
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), nhwc, inverse(perm)));
    return success();
  }
};

/// Whether the operand under the permutation costs nothing: it is a transpose the other way round, or only
/// dimensions of size 1 would change places.
bool isFree(Value operand, ArrayRef<int64_t> perm, int64_t rank) {
  if (auto before = operand.getDefiningOp<TransposeOp>())
    if (Perm(before.getPerm()) == inverse(perm))
      return true;
  std::vector<DimExpr> dims = dimsOf(operand);
  dims.insert(dims.begin(), rank - int64_t(dims.size()), DimExpr(1));
  int64_t last = -1;
  for (int64_t d : perm) {
    if (dims[d] == DimExpr(1))
      continue;
    if (d < last)
      return false;
    last = d;
  }
  return true;
}

/// The operand, which is free, under the permutation.
Value permuted(PatternRewriter &b, Value operand, ArrayRef<int64_t> perm, int64_t rank) {
  if (auto before = operand.getDefiningOp<TransposeOp>())
    if (Perm(before.getPerm()) == inverse(perm))
      return before.getX();
  std::vector<DimExpr> dims = dimsOf(operand), to;
  if (llvm::all_of(dims, [](const DimExpr &d) { return d == DimExpr(1); }))
    return operand;
  dims.insert(dims.begin(), rank - int64_t(dims.size()), DimExpr(1));
  for (int64_t d : perm)
    to.push_back(dims[d]);
  return ReshapeOp::create(b, operand.getLoc(), tensorType(elementTypeOf(operand), to), operand);
}

/// Pointwise ops below a transpose: pointwise first, transpose behind.
struct SinkThroughPointwise : RewritePattern {
  SinkThroughPointwise(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isClass(op, OpClass::Pointwise) || op->getNumResults() != 1)
      return rewriter.notifyMatchFailure(op, "is not pointwise");
    int64_t rank = rankOf(op->getResult(0));
    TransposeOp above;
    for (Value operand : op->getOperands())
      if (auto candidate = operand.getDefiningOp<TransposeOp>())
        if (rankOf(candidate.getY()) == rank &&
            candidate.getX().getDefiningOp<TransposeOp>() == nullptr)
          above = candidate;
    if (!above)
      return rewriter.notifyMatchFailure(op, "no transpose above");
    // The result is transpose(op(.., x, ..)) with the same permutation.
    Perm perm(above.getPerm()), back = inverse(perm);
    if (!llvm::all_of(op->getOperands(), [&](Value operand) { return isFree(operand, back, rank); }))
      return rewriter.notifyMatchFailure(op, "an operand would need a transpose of its own");
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(permuted(rewriter, operand, back, rank));
    std::vector<DimExpr> dims = dimsOf(op->getResult(0)), to;
    for (int64_t d : back)
      to.push_back(dims[d]);
    Operation *below = rewriter.clone(*op);
    below->setOperands(operands);
    below->getResult(0).setType(tensorType(elementTypeOf(op->getResult(0)), to));
    rewriter.replaceOp(op, transpose(rewriter, op->getLoc(), below->getResult(0), perm));
    return success();
  }
};

/// reshape(transpose(x)) that drops dimensions of 1: they are dropped first.
struct SqueezeAboveTranspose : OpRewritePattern<ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReshapeOp op, PatternRewriter &rewriter) const override {
    auto above = op.getX().getDefiningOp<TransposeOp>();
    if (!above)
      return rewriter.notifyMatchFailure(op, "no transpose above");
    std::vector<DimExpr> from = dimsOf(above.getY()), to = dimsOf(op.getY()), below;
    Perm kept; // dimensions of the transposed value that stay
    for (size_t d = 0, t = 0; d < from.size(); ++d) {
      if (t < to.size() && from[d] == to[t]) {
        kept.push_back(above.getPerm()[d]);
        ++t;
      } else if (from[d] != DimExpr(1)) {
        return rewriter.notifyMatchFailure(op, "moves data");
      }
    }
    if (kept.size() != to.size() || to.size() >= from.size())
      return rewriter.notifyMatchFailure(op, "does not only drop dimensions");
    std::vector<DimExpr> x = dimsOf(above.getX());
    for (size_t d = 0; d < x.size(); ++d)
      if (llvm::is_contained(kept, int64_t(d)))
        below.push_back(x[d]);
    Perm perm;
    for (int64_t d : kept)
      perm.push_back(llvm::count_if(kept, [&](int64_t other) { return other < d; }));
    Value squeezed = ReshapeOp::create(rewriter, op.getLoc(),
                                       tensorType(elementTypeOf(op.getY()), below), above.getX());
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), squeezed, perm));
    return success();
  }
};

/// reshape(transpose(x)) whose dimensions split and merge inside groups that lie together below
/// too: reshaped first.
struct SinkThroughReshape : OpRewritePattern<ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReshapeOp op, PatternRewriter &rewriter) const override {
    auto above = op.getX().getDefiningOp<TransposeOp>();
    if (!above)
      return rewriter.notifyMatchFailure(op, "no transpose above");
    std::vector<DimExpr> from = dimsOf(above.getY()), to = dimsOf(op.getY());
    ArrayRef<int64_t> perm = above.getPerm();
    // Shortest runs of dimensions of equal products on both sides.
    struct Run {
      int64_t from, fromEnd, to, toEnd;
    };
    SmallVector<Run> runs;
    int64_t f = 0, t = 0, fs = from.size(), ts = to.size();
    while (f < fs) {
      Run run{f, f + 1, t, t};
      DimExpr left = from[f], right = 1;
      auto constant = [](const DimExpr &d) { return d.constant().value_or(0); };
      while (left != right || run.to == run.toEnd) {
        bool more = run.toEnd < ts, less = run.fromEnd < fs;
        if (more && (run.to == run.toEnd || !less || constant(right) < constant(left)))
          right = right * to[run.toEnd++];
        else if (less)
          left = left * from[run.fromEnd++];
        else
          return rewriter.notifyMatchFailure(op, "dimensions do not fall into groups");
      }
      f = run.fromEnd, t = run.toEnd;
      while (f == fs && t < ts && to[t] == DimExpr(1))
        run.toEnd = ++t;
      runs.push_back(run);
    }
    if (t != ts || runs.size() < 2)
      return rewriter.notifyMatchFailure(op, "dimensions do not fall into groups");
    for (const Run &run : runs)
      for (int64_t d = run.from + 1; d < run.fromEnd; ++d)
        if (perm[d] != perm[d - 1] + 1)
          return rewriter.notifyMatchFailure(op, "a group does not lie together below");
    SmallVector<Run> order(runs);
    llvm::sort(order, [&](const Run &a, const Run &b) { return perm[a.from] < perm[b.from]; });
    std::vector<DimExpr> below;
    Perm place(ts);
    for (const Run &run : order)
      for (int64_t d = run.to; d < run.toEnd; ++d) {
        place[d] = below.size();
        below.push_back(to[d]);
      }
    Value reshaped = ReshapeOp::create(rewriter, op.getLoc(),
                                       tensorType(elementTypeOf(op.getY()), below), above.getX());
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), reshaped, place));
    return success();
  }
};

/// broadcast_to(transpose(x)) over the same rank: broadcast where it lies.
struct SinkThroughBroadcast : OpRewritePattern<BroadcastToOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(BroadcastToOp op, PatternRewriter &rewriter) const override {
    auto above = op.getX().getDefiningOp<TransposeOp>();
    if (!above || rankOf(op.getX()) != rankOf(op.getY()))
      return rewriter.notifyMatchFailure(op, "no transpose of this rank above");
    Perm perm(above.getPerm());
    std::vector<DimExpr> dims = dimsOf(op.getY()), below;
    for (int64_t d : inverse(perm))
      below.push_back(dims[d]);
    Value wide = BroadcastToOp::create(rewriter, op.getLoc(),
                                       tensorType(elementTypeOf(op.getY()), below), above.getX());
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), wide, perm));
    return success();
  }
};

/// reduce(transpose(x)) reduces the dimensions where they lie.
struct SinkThroughReduce : OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op, PatternRewriter &rewriter) const override {
    auto above = op.getX().getDefiningOp<TransposeOp>();
    if (!above)
      return rewriter.notifyMatchFailure(op, "no transpose above");
    ArrayRef<int64_t> perm = above.getPerm();
    SmallVector<int64_t> axes;
    for (int64_t axis : op.getAxes())
      axes.push_back(perm[axis]);
    llvm::sort(axes);
    Value below = ReduceOp::create(rewriter, op.getLoc(), above.getX(), op.getKind(), axes,
                                   op.getKeepdims());
    if (op.getKeepdims()) {
      rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), below, perm));
      return success();
    }
    // Kept dimensions of the result in the order of the operand below.
    Perm kept, order;
    for (int64_t d : perm)
      if (!llvm::is_contained(axes, d))
        kept.push_back(d);
    for (int64_t d : kept)
      order.push_back(llvm::count_if(kept, [&](int64_t other) { return other < d; }));
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), below, order));
    return success();
  }
};

/// gather(transpose(x)) along one axis by a list of places: gathered where it lies.
struct SinkThroughGather : OpRewritePattern<GatherOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(GatherOp op, PatternRewriter &rewriter) const override {
    auto above = op.getX().getDefiningOp<TransposeOp>();
    if (!above || rankOf(op.getIndices()) != 1)
      return rewriter.notifyMatchFailure(op, "no list of places in a transpose");
    ArrayRef<int64_t> perm = above.getPerm();
    Value below = GatherOp::create(rewriter, op.getLoc(), above.getX(), op.getIndices(), uint64_t(perm[op.getAxis()]));
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), below, perm));
    return success();
  }
};

/// concat(transpose(x), transpose(y)): concat where they lie.
struct SinkThroughConcat : OpRewritePattern<ConcatOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConcatOp op, PatternRewriter &rewriter) const override {
    SmallVector<Value> operands;
    Perm perm;
    for (Value input : op.getInputs()) {
      auto above = input.getDefiningOp<TransposeOp>();
      if (!above || (!perm.empty() && Perm(above.getPerm()) != perm))
        return rewriter.notifyMatchFailure(op, "inputs are not transposed alike");
      perm = Perm(above.getPerm());
      operands.push_back(above.getX());
    }
    Value below = ConcatOp::create(rewriter, op.getLoc(), operands, perm[op.getAxis()]);
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), below, perm));
    return success();
  }
};

/// slice(transpose(x)): cut where it lies. Halves of the channels, as gates and shuffles take them.
struct SinkThroughSlice : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op, PatternRewriter &rewriter) const override {
    auto above = op.getX().getDefiningOp<TransposeOp>();
    if (!above)
      return rewriter.notifyMatchFailure(op, "no transpose above");
    Perm perm(above.getPerm()), steps;
    std::vector<DimExpr> dims = dimsOf(op.getY()), below;
    SmallVector<Attribute> starts;
    for (int64_t d : inverse(perm)) {
      below.push_back(dims[d]);
      starts.push_back(op.getStarts()[d]);
      steps.push_back(op.getSteps()[d]);
    }
    Value cut = SliceOp::create(rewriter, op.getLoc(), tensorType(elementTypeOf(op.getY()), below), above.getX(),
                                rewriter.getArrayAttr(starts), steps);
    rewriter.replaceOp(op, transpose(rewriter, op.getLoc(), cut, perm));
    return success();
  }
};

struct ChannelsLastPass : impl::ChannelsLastPassBase<ChannelsLastPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      bool hopper = target->hasWgmma(), images = false;
      module.walk([&](Operation *op) { images |= isa<ConvOp, PoolOp>(op); });
      if (target->isCuda() && !(hopper && images))
        continue;
      if (!target->isCuda()) {
        rewriteSpreadConvs(module, target->lanes(DType::F32) / 2);
        padGroups(module, target->lanes(DType::F32));
      }
      if (hopper)
        splitGroupedRows(module);
      RewritePatternSet patterns(&getContext());
      patterns.add<TurnWindowOp<ConvOp>, TurnWindowOp<PoolOp>>(&getContext(), hopper);
      patterns.add<SinkThroughPointwise, SqueezeAboveTranspose, SinkThroughReshape,
                   SinkThroughBroadcast, SinkThroughReduce, SinkThroughGather, SinkThroughConcat>(&getContext());
      if (hopper)
        populateConvProductPatterns(patterns);
      else
        patterns.add<SinkThroughSlice>(&getContext()).add<TurnRoiAlign>(&getContext(), target->lanes(DType::F32));
      populateMovementPatterns(patterns);
      populateConstantPatterns(patterns, /*keepCodes=*/true);
      if (failed(rewriteToTheEnd(module, std::move(patterns))))
        return signalPassFailure();
    }
  }
};

} // namespace

} // namespace lathe
