//===- MovementPatterns.cpp - chains of movement ops ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Movement that another movement undoes, that the reader does itself, or that
// moves nothing.
//
//   %b = broadcast_to %x : 1x4 -> 8x4
//   %y = add %b, %z : 8x4               =>   %y = add %x, %z
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/UnitDims.h"

#include <numeric>

using namespace mlir;

namespace lathe {
namespace {

struct ComposeTransposes : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getX().getDefiningOp<TransposeOp>();
    if (!inner)
      return rewriter.notifyMatchFailure(op, "operand is no transpose");
    SmallVector<int64_t> perm;
    for (int64_t d : op.getPerm())
      perm.push_back(inner.getPerm()[d]);
    rewriter.replaceOpWithNewOp<TransposeOp>(op, op.getY().getType(), inner.getX(), perm);
    return success();
  }
};

/// A transpose that moves only dimensions of size 1 keeps the order of elements.
struct TransposeOfOnes : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op, PatternRewriter &rewriter) const override {
    int64_t last = -1;
    auto type = cast<TensorType>(op.getX().getType());
    for (int64_t d : op.getPerm()) {
      if (type.getDimSize(d) == 1)
        continue;
      if (d < last)
        return rewriter.notifyMatchFailure(op, "moves data");
      last = d;
    }
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getY().getType(), op.getX());
    return success();
  }
};

/// reshape(transpose(x)) that swaps the last two dimensions and then splits or merges
/// the others alone: the other way round, so that reshapes meet.
struct ReshapeAboveSwap : OpRewritePattern<ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReshapeOp op, PatternRewriter &rewriter) const override {
    auto swap = op.getX().getDefiningOp<TransposeOp>();
    if (!swap || !swapsLastTwo(swap.getPerm()) || !swap.getX().getDefiningOp<ReshapeOp>())
      return rewriter.notifyMatchFailure(op, "no swap of the last two dimensions of a reshape above");
    std::vector<DimExpr> from = dimsOf(swap.getY()), to = dimsOf(op.getY());
    if (to.size() < 2 || from.size() < 2 || to.back() != from.back() ||
        to[to.size() - 2] != from[from.size() - 2])
      return rewriter.notifyMatchFailure(op, "changes the swapped dimensions");
    std::swap(to[to.size() - 1], to[to.size() - 2]);
    Value above = ReshapeOp::create(rewriter, op.getLoc(),
                                    tensorType(elementTypeOf(op.getY()), to), swap.getX());
    SmallVector<int64_t> perm(to.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    rewriter.replaceOpWithNewOp<TransposeOp>(op, op.getY().getType(), above, perm);
    return success();
  }
  static bool swapsLastTwo(ArrayRef<int64_t> perm) {
    int64_t rank = perm.size();
    for (int64_t d = 0; d < rank - 2; ++d)
      if (perm[d] != d)
        return false;
    return rank >= 2 && perm[rank - 1] == rank - 2;
  }
};

/// A pointwise op behind a contraction whose result only lost or got dimensions of 1: the
/// reshape goes behind it, so that the op can be an epilogue.
struct SinkUnitReshape : RewritePattern {
  SinkUnitReshape(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isClass(op, OpClass::Pointwise))
      return rewriter.notifyMatchFailure(op, "is not pointwise");
    std::vector<DimExpr> dims = dimsOf(op->getResult(0));
    ReshapeOp above;
    for (Value operand : op->getOperands())
      if (auto reshape = operand.getDefiningOp<ReshapeOp>())
        if (!above && dimsOf(operand) == dims && followsContraction(reshape.getX()))
          above = reshape;
    if (!above)
      return rewriter.notifyMatchFailure(op, "no reshape of a contraction above");
    std::vector<DimExpr> target = dimsOf(above.getX());
    auto map = unitMap(target, dims);
    if (!map)
      return rewriter.notifyMatchFailure(op, "the reshape moves data");
    // Another contraction of other sizes would want the reshape back, without end.
    for (Value operand : op->getOperands()) {
      auto reshape = operand.getDefiningOp<ReshapeOp>();
      bool settled = reshape ? dimsOf(reshape.getX()) == target ||
                                   !followsContraction(reshape.getX())
                             : dimsOf(operand) != dims || !followsContraction(operand);
      if (!settled)
        return rewriter.notifyMatchFailure(op, "two contractions of different sizes meet here");
    }
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      Value below = withUnits(rewriter, operand, above, *map, target.size());
      if (!below)
        return rewriter.notifyMatchFailure(op, "an operand does not follow");
      operands.push_back(below);
    }
    Operation *clone = rewriter.clone(*op);
    clone->setOperands(operands);
    clone->getResult(0).setType(tensorType(elementTypeOf(op->getResult(0)), target));
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op->getResult(0).getType(), clone->getResult(0));
    return success();
  }

private:
  /// A value that the kernel of a contraction could hold.
  static bool followsContraction(Value value) {
    constexpr int kMaxSteps = 16;
    std::vector<DimExpr> dims = dimsOf(value);
    Operation *op = value.getDefiningOp();
    for (int step = 0; op && step < kMaxSteps && isClass(op, OpClass::Pointwise); ++step) {
      Operation *next = nullptr;
      for (Value operand : op->getOperands())
        if (operand.getDefiningOp() && dimsOf(operand) == dims)
          next = operand.getDefiningOp();
      op = next;
    }
    return op && (isClass(op, OpClass::Gemm) || isClass(op, OpClass::Conv));
  }

  static Value withUnits(PatternRewriter &rewriter, Value operand, ReshapeOp above,
                         ArrayRef<int64_t> map, size_t rank) {
    if (operand == above.getY())
      return above.getX();
    std::vector<DimExpr> from = dimsOf(operand), to(rank, DimExpr(1));
    if (from.empty())
      return operand;
    size_t pad = map.size() - from.size();
    for (size_t d = 0; d < from.size(); ++d) {
      int64_t at = map[pad + d];
      if (at < 0 && from[d] != DimExpr(1))
        return {};
      if (at >= 0)
        to[at] = from[d];
    }
    return ReshapeOp::create(rewriter, operand.getLoc(), tensorType(elementTypeOf(operand), to),
                             operand);
  }
};

/// matmul(a, transpose(b)) of the last two dimensions is a flag of the matmul.
struct TransposeIntoMatmul : OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MatmulOp op, PatternRewriter &rewriter) const override {
    Value a = op.getA(), b = op.getB();
    bool ta = op.getTransposeA(), tb = op.getTransposeB();
    bool changed = absorb(a, ta) | absorb(b, tb);
    if (!changed)
      return rewriter.notifyMatchFailure(op, "no operand swaps its last two dimensions");
    rewriter.replaceOpWithNewOp<MatmulOp>(op, op.getY().getType(), a, b, ta, tb);
    return success();
  }
  static bool absorb(Value &operand, bool &flag) {
    auto transpose = operand.getDefiningOp<TransposeOp>();
    if (!transpose)
      return false;
    if (!ReshapeAboveSwap::swapsLastTwo(transpose.getPerm()))
      return false;
    operand = transpose.getX();
    flag = !flag;
    return true;
  }
};

/// Readers that broadcast by themselves take the small operand.
struct DropBroadcast : RewritePattern {
  DropBroadcast(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isClass(op, OpClass::Pointwise) || op->getNumOperands() < 2)
      return rewriter.notifyMatchFailure(op, "does not broadcast");
    std::vector<DimExpr> wanted = dimsOf(op->getResult(0));
    for (OpOperand &operand : op->getOpOperands()) {
      auto broadcast = operand.get().getDefiningOp<BroadcastToOp>();
      if (!broadcast)
        continue;
      std::vector<std::vector<DimExpr>> shapes;
      for (OpOperand &other : op->getOpOperands())
        shapes.push_back(dimsOf(&other == &operand ? broadcast.getX() : other.get()));
      if (broadcastDims(shapes) != wanted)
        continue;
      rewriter.modifyOpInPlace(op, [&] { operand.set(broadcast.getX()); });
      return success();
    }
    return rewriter.notifyMatchFailure(op, "no broadcast that the others imply");
  }
};

/// broadcast_to that adds nothing but dimensions of size 1 is a reshape; two in a row are one.
struct SimplifyBroadcast : OpRewritePattern<BroadcastToOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(BroadcastToOp op, PatternRewriter &rewriter) const override {
    if (auto inner = op.getX().getDefiningOp<BroadcastToOp>()) {
      rewriter.replaceOpWithNewOp<BroadcastToOp>(op, op.getY().getType(), inner.getX());
      return success();
    }
    if (numElements(op.getX().getType()) != numElements(op.getY().getType()))
      return rewriter.notifyMatchFailure(op, "repeats elements");
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getY().getType(), op.getX());
    return success();
  }
};

/// Reduction over dimensions of size 1.
struct ReduceOfOnes : OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op, PatternRewriter &rewriter) const override {
    auto type = cast<TensorType>(op.getX().getType());
    for (int64_t axis : op.getAxes())
      if (type.getDimSize(axis) != 1)
        return rewriter.notifyMatchFailure(op, "reduces data");
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getY().getType(), op.getX());
    return success();
  }
};

/// Empty inputs of a concat.
struct DropEmptyInputs : OpRewritePattern<ConcatOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConcatOp op, PatternRewriter &rewriter) const override {
    SmallVector<Value> kept;
    for (Value input : op.getInputs())
      if (dimOf(input, op.getAxis()) != DimExpr(0))
        kept.push_back(input);
    if (kept.empty() || kept.size() == op.getInputs().size())
      return rewriter.notifyMatchFailure(op, "no empty input beside others");
    for (int64_t d = 0, rank = dimsOf(op.getY()).size(); d < rank; ++d)
      if (d != int64_t(op.getAxis()) && llvm::none_of(kept, [&](Value v) { return dimOf(v, d) == dimOf(op.getY(), d); }))
        return rewriter.notifyMatchFailure(op, "an empty input alone says what a size is");
    rewriter.replaceOpWithNewOp<ConcatOp>(op, op.getY().getType(), kept, op.getAxisAttr());
    return success();
  }
};

/// slice(concat(..)) that takes exactly one input.
struct SliceOfConcat : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op, PatternRewriter &rewriter) const override {
    auto concat = op.getX().getDefiningOp<ConcatOp>();
    if (!concat || !llvm::all_of(op.getSteps(), [](int64_t step) { return step == 1; }))
      return rewriter.notifyMatchFailure(op, "no plain slice of a concat");
    int64_t axis = concat.getAxis();
    for (auto [d, start] : llvm::enumerate(op.getStarts()))
      if (int64_t(d) != axis && cast<DimAttr>(start).expr() != DimExpr(0))
        return rewriter.notifyMatchFailure(op, "slices another dimension");
    DimExpr at = 0, start = cast<DimAttr>(op.getStarts()[axis]).expr();
    for (Value input : concat.getInputs()) {
      if (at == start && input.getType() == op.getY().getType()) {
        rewriter.replaceOp(op, input);
        return success();
      }
      at = at + dimOf(input, axis);
    }
    return rewriter.notifyMatchFailure(op, "takes parts of inputs");
  }
};

/// One of each two neighbours that a reshape has put into a dimension of their own: every second
/// one.
struct SliceOfNeighbours : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op, PatternRewriter &rewriter) const override {
    auto split = op.getX().getDefiningOp<ReshapeOp>();
    if (!split)
      return rewriter.notifyMatchFailure(op, "no reshape above");
    std::vector<DimExpr> whole = dimsOf(split.getX()), pairs = dimsOf(split.getY()),
                         one = dimsOf(op.getY());
    if (whole.empty() || pairs.size() != whole.size() + 1 || pairs.back() != DimExpr(2) ||
        one.back() != DimExpr(1) || !std::equal(whole.begin(), whole.end() - 1, pairs.begin()) ||
        !std::equal(one.begin(), one.end() - 1, pairs.begin()))
      return rewriter.notifyMatchFailure(op, "takes no neighbour from each two");
    for (size_t d = 0; d < whole.size(); ++d)
      if (op.getSteps()[d] != 1 || cast<DimAttr>(op.getStarts()[d]).expr() != DimExpr(0))
        return rewriter.notifyMatchFailure(op, "slices another dimension");
    SmallVector<Attribute> starts(op.getStarts().begin(), op.getStarts().end());
    SmallVector<int64_t> steps(whole.size(), 1);
    starts.erase(starts.end() - 2);
    steps.back() = 2;
    whole.back() = pairs[pairs.size() - 2];
    Value every =
        SliceOp::create(rewriter, op.getLoc(), tensorType(elementTypeOf(op.getY()), whole),
                        split.getX(), rewriter.getArrayAttr(starts), steps);
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getY().getType(), every);
    return success();
  }
};

/// cast(cast(x)) back to the type of x where the first loses nothing.
struct CastBack : OpRewritePattern<CastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(CastOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getX().getDefiningOp<CastOp>();
    if (!inner || inner.getX().getType() != op.getY().getType())
      return rewriter.notifyMatchFailure(op, "does not come back");
    auto from = dtypeOf(elementTypeOf(inner.getX())), to = dtypeOf(elementTypeOf(inner.getY()));
    if (!from || !to || !holds(*to, *from))
      return rewriter.notifyMatchFailure(op, "the type between holds less");
    rewriter.replaceOp(op, inner.getX());
    return success();
  }
  static bool holds(DType wide, DType narrow) {
    if (narrow == DType::Bool)
      return isFloat(wide) || isInteger(wide);
    if (isFloat(narrow))
      return wide == DType::F64 || (wide == DType::F32 && bitWidth(narrow) <= 16);
    return isInteger(narrow) && isInteger(wide) && bitWidth(wide) > bitWidth(narrow) &&
           isUnsigned(narrow) == isUnsigned(wide);
  }
  static bool isUnsigned(DType type) { return name(type).starts_with("ui"); }
};

/// Known amounts that a pad adds, none of which is negative.
std::optional<SmallVector<int64_t>> amountsOf(ArrayAttr dims) {
  SmallVector<int64_t> amounts;
  for (Attribute dim : dims) {
    std::optional<int64_t> amount = cast<DimAttr>(dim).expr().constant();
    if (!amount || *amount < 0)
      return std::nullopt;
    amounts.push_back(*amount);
  }
  return amounts;
}

/// Zeros around images are amounts that their convolution has: each side its own, as TensorFlow's "same" wants
/// them. What spreads pixels for a transposed convolution stays, as layout knows it by that.
struct PadIntoConv : OpRewritePattern<ConvOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConvOp op, PatternRewriter &rewriter) const override {
    auto pad = op.getX().getDefiningOp<PadOp>();
    if (!pad || pad.getMode() != PadMode::Constant || (pad.getValue() && numberOf(pad.getValue()) != 0.0) ||
        op.getLayout() != ConvLayout::ChannelsFirst)
      return rewriter.notifyMatchFailure(op, "no zeros around its images");
    auto before = pad.getX().getDefiningOp<ReshapeOp>();
    if (before && before.getX().getDefiningOp<PadOp>())
      return rewriter.notifyMatchFailure(op, "belongs to a transposed convolution");
    auto low = amountsOf(pad.getLow()), high = amountsOf(pad.getHigh());
    if (!low || !high || (*low)[0] || (*low)[1] || (*high)[0] || (*high)[1])
      return rewriter.notifyMatchFailure(op, "pads by unknown amounts, crops, or pads more than pixels");
    SmallVector<int64_t> pads(op.getPads());
    const size_t spatial = pads.size() / 2;
    for (size_t d = 0; d < spatial; ++d) {
      pads[d] += (*low)[d + 2];
      pads[d + spatial] += (*high)[d + 2];
    }
    rewriter.modifyOpInPlace(op, [&] {
      op.getXMutable().assign(pad.getX());
      op.setPads(pads);
    });
    return success();
  }
};

} // namespace

void populateMovementPatterns(RewritePatternSet &patterns) {
  patterns.add<ComposeTransposes, TransposeOfOnes, ReshapeAboveSwap, SinkUnitReshape,
               TransposeIntoMatmul, DropBroadcast, SimplifyBroadcast, ReduceOfOnes, DropEmptyInputs,
               SliceOfConcat, SliceOfNeighbours, CastBack, PadIntoConv>(patterns.getContext());
}

} // namespace lathe
