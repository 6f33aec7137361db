//===- DecomposeComposites.cpp - softmax and norms to reductions ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Until here softmax and the norms are ops of their own, so that patterns can
// find them. Fusion sees them as reductions and pointwise ops over the same
// rows, and gathers their neighbours with them. 16-bit types compute in f32.
//
//   %y = softmax %x      =>   %m = reduce max %x; %e = exp (sub %x, %m)
//                             %s = reduce sum %e; %y = div %e, %s
//
// On a GPU attention whose heads no kernel of it holds becomes two products around a softmax. Whether any, or all, of the elements of a tensor meet a condition is asked of numbers: the
// greatest element of a result is what its product finds on the way (lathe/ir/BlockAmax.h). Where the extreme of
// few long rows lies is two reductions that all blocks can share: the extreme, then the least place that has it. Places
// whose number a run waits for are marked and counted by a kernel of its own.
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/codegen/Target.h"
#include "lathe/ir/Selection.h"
#include "lathe/support/FlagMarks.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_DECOMPOSECOMPOSITESPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// Builds in the type that accumulates, f32 for narrower floats.
struct RowBuilder {
  RowBuilder(PatternRewriter &rewriter, Location loc, Value x, SmallVector<int64_t> axes)
      : b(rewriter), loc(loc), axes(std::move(axes)), original(elementTypeOf(x)) {
    wide = original.isF64() ? original : Type(b.getF32Type());
  }

  Value widen(Value v) {
    return elementTypeOf(v) == wide
               ? v
               : CastOp::create(b, loc, withElementType(v.getType(), wide), v, true).getY();
  }
  Value narrow(Value v) {
    return elementTypeOf(v) == original
               ? v
               : CastOp::create(b, loc, withElementType(v.getType(), original), v, true).getY();
  }
  Value reduce(ReduceKind kind, Value v) {
    return ReduceOp::create(b, loc, v, kind, axes, /*keepdims=*/true);
  }
  Value number(double value) {
    auto type = tensorType(wide, ArrayRef<int64_t>{});
    return ConstantOp::create(b, loc, DenseElementsAttr::get(type, b.getFloatAttr(wide, value)));
  }
  /// Number of elements of a row as data.
  Value rowLength(Value x) {
    DimExpr length = 1;
    for (int64_t axis : axes)
      length = length * dimOf(x, axis);
    if (auto constant = length.constant())
      return number(double(*constant));
    auto type = tensorType(b.getI64Type(), ArrayRef<int64_t>{});
    Attribute dims[] = {DimAttr::get(b.getContext(), length)};
    Value count = DimValueOp::create(b, loc, type, b.getArrayAttr(dims));
    return CastOp::create(b, loc, tensorType(wide, ArrayRef<int64_t>{}), count, true);
  }

  PatternRewriter &b;
  Location loc;
  SmallVector<int64_t> axes;
  Type original, wide;
};

SmallVector<int64_t> axesFrom(int64_t axis, Value x) {
  SmallVector<int64_t> axes(cast<TensorType>(x.getType()).getRank() - axis);
  std::iota(axes.begin(), axes.end(), axis);
  return axes;
}

struct DecomposeSoftmax : OpRewritePattern<SoftmaxOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SoftmaxOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    RowBuilder row(rewriter, loc, op.getX(), {int64_t(op.getAxis())});
    Value x = row.widen(op.getX());
    Value shifted = SubOp::create(rewriter, loc, x, row.reduce(ReduceKind::Max, x));
    Value e = ExpOp::create(rewriter, loc, shifted);
    Value sum = row.reduce(ReduceKind::Sum, e);
    Value y = op.getLog()
                  ? SubOp::create(rewriter, loc, shifted, LogOp::create(rewriter, loc, sum)).getY()
                  : DivOp::create(rewriter, loc, e, sum).getY();
    rewriter.replaceOp(op, row.narrow(y));
    return success();
  }
};

struct DecomposeLayerNorm : OpRewritePattern<LayerNormOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(LayerNormOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    RowBuilder row(rewriter, loc, op.getX(), axesFrom(op.getAxis(), op.getX()));
    Value x = row.widen(op.getX()), n = row.rowLength(op.getX());
    Value mean = DivOp::create(rewriter, loc, row.reduce(ReduceKind::Sum, x), n);
    Value centred = SubOp::create(rewriter, loc, x, mean);
    Value squares = MulOp::create(rewriter, loc, centred, centred);
    Value variance = DivOp::create(rewriter, loc, row.reduce(ReduceKind::Sum, squares), n);
    Value shifted =
        AddOp::create(rewriter, loc, variance, row.number(op.getEpsilon().convertToDouble()));
    Value y = MulOp::create(rewriter, loc, centred, RsqrtOp::create(rewriter, loc, shifted));
    y = MulOp::create(rewriter, loc, y, row.widen(op.getScale()));
    if (op.getBias())
      y = AddOp::create(rewriter, loc, y, row.widen(op.getBias()));
    rewriter.replaceOp(op, row.narrow(y));
    return success();
  }
};

struct DecomposeRmsNorm : OpRewritePattern<RmsNormOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(RmsNormOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    RowBuilder row(rewriter, loc, op.getX(), axesFrom(op.getAxis(), op.getX()));
    Value x = row.widen(op.getX()), n = row.rowLength(op.getX());
    Value squares = MulOp::create(rewriter, loc, x, x);
    Value mean = DivOp::create(rewriter, loc, row.reduce(ReduceKind::Sum, squares), n);
    Value shifted = AddOp::create(rewriter, loc, mean, row.number(op.getEpsilon().convertToDouble()));
    Value y = MulOp::create(rewriter, loc, x, RsqrtOp::create(rewriter, loc, shifted));
    y = MulOp::create(rewriter, loc, y, row.widen(op.getScale()));
    rewriter.replaceOp(op, row.narrow(y));
    return success();
  }
};

struct AnyAsAmax : OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op, PatternRewriter &rewriter) const override {
    bool extreme = op.getKind() == ReduceKind::Max || op.getKind() == ReduceKind::Min;
    if (!extreme || !elementTypeOf(op.getX()).isInteger(1) || op.getAxes().size() != dimsOf(op.getX()).size() ||
        op.getAxes().empty() || !op.getX().getDefiningOp())
      return rewriter.notifyMatchFailure(op, "does not ask all elements for a condition that is computed");
    Location loc = op.getLoc();
    Type f32 = rewriter.getF32Type();
    Value numbers = CastOp::create(rewriter, loc, withElementType(op.getX().getType(), f32), op.getX(), true);
    Value found = ReduceOp::create(rewriter, loc, numbers, op.getKind(), op.getAxes(), op.getKeepdims());
    auto scalar = tensorType(f32, ArrayRef<int64_t>{});
    Value zero = ConstantOp::create(rewriter, loc, DenseElementsAttr::get(scalar, rewriter.getFloatAttr(f32, 0)));
    rewriter.replaceOpWithNewOp<CompareOp>(op, found, zero, Predicate::Gt);
    return success();
  }
};

/// %y = attention %q, %k, %v bias %b  =>  %s = matmul %q, %k^T; %p = softmax (%s * scale + %b); %y = matmul %p, %v
/// with the softmax in the type that accumulates. The scores go through memory, but both products run on tensor
/// cores; a kernel of its own would take a thread for each query.
struct DecomposeLargeHeads : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    std::optional<int64_t> headQK = dimOf(op.getQ(), 3).constant(), headV = dimOf(op.getV(), 3).constant();
    if (!headQK || !headV || std::max(*headQK, *headV) <= kLargestAttentionHead)
      return rewriter.notifyMatchFailure(op, "a kernel of attention holds its heads");
    const bool hides = op.getMask() || op.getStarts() || op.getLengths() || op.getOffset() || op.getQueryDocuments() ||
                       op.endsPerQuery() || op.getWindowLeft() || (op.getZeroMaskedRows() && op.getBias());
    if (hides || op.getSink() || op.getSoftcap() || op.getLse() || dimOf(op.getQ(), 1) != dimOf(op.getK(), 1)) {
      missedRemark(op.getLoc(), "DecomposeComposites")
          << "heads of " + std::to_string(std::max(*headQK, *headV)) + " elements are too large for a kernel of attention, and it is "
          << "more than a scale, a bias and a softmax: one thread computes a query";
      return failure();
    }
    Location loc = op.getLoc();
    RowBuilder row(rewriter, loc, op.getQ(), {3});
    Value scores = MatmulOp::create(rewriter, loc, op.getQ(), op.getK(), /*transpose_a=*/false, /*transpose_b=*/true);
    scores = row.widen(scores);
    if (double scale = op.getScale().convertToDouble(); scale != 1)
      scores = MulOp::create(rewriter, loc, scores, row.number(scale));
    if (op.getBias())
      scores = AddOp::create(rewriter, loc, scores, row.widen(op.getBias()));
    Value shares = SoftmaxOp::create(rewriter, loc, scores, /*axis=*/3, /*log=*/false);
    auto narrow = withElementType(shares.getType(), elementTypeOf(op.getV()));
    if (narrow != shares.getType())
      shares = CastOp::create(rewriter, loc, narrow, shares, true);
    rewriter.replaceOpWithNewOp<MatmulOp>(op, shares, op.getV(), /*transpose_a=*/false, /*transpose_b=*/false);
    return success();
  }
};

/// An element that lies in memory: what two kernels read of it is the same.
bool isRead(Value x) {
  while (x.getDefiningOp() && isView(x.getDefiningOp()))
    x = x.getDefiningOp()->getOperand(0);
  return !x.getDefiningOp() || isClass(x.getDefiningOp(), OpClass::Gemm);
}

struct LongArgReduce : OpRewritePattern<ArgReduceOp> {
  LongArgReduce(MLIRContext *context, std::map<std::string, int64_t> optima)
      : OpRewritePattern(context), optima(std::move(optima)) {}
  std::map<std::string, int64_t> optima;

  LogicalResult matchAndRewrite(ArgReduceOp op, PatternRewriter &rewriter) const override {
    // Of a row in one piece a block has all; of one whose elements lie apart, a thread.
    constexpr int64_t kFewRows = 64, kLongRow = 32768, kFewColumns = 16384, kLongColumn = 512;
    Value x = op.getX();
    Type element = elementTypeOf(x);
    const int64_t axis = op.getAxis();
    auto usual = [&](const DimExpr &e) {
      auto value = e.evaluate(optima);
      return value.ok() ? *value : int64_t(0);
    };
    DimExpr rows = 1, behind = 1;
    for (auto [d, size] : llvm::enumerate(dimsOf(x))) {
      if (int64_t(d) != axis)
        rows = rows * size;
      if (int64_t(d) > axis)
        behind = behind * size;
    }
    const bool apart = usual(behind) > 1;
    if (usual(rows) > (apart ? kFewColumns : kFewRows) || usual(dimOf(x, axis)) < (apart ? kLongColumn : kLongRow) || element.isUnsignedInteger() ||
        element.getIntOrFloatBitWidth() < 16 || !isRead(x))
      return rewriter.notifyMatchFailure(op, "not of few long rows in memory");
    Location loc = op.getLoc();
    Type i64 = rewriter.getI64Type(), flag = rewriter.getI1Type();
    Type flags = withElementType(x.getType(), flag), places = withElementType(x.getType(), i64);
    Value extreme = ReduceOp::create(rewriter, loc, x, op.getKind(), ArrayRef<int64_t>{axis}, /*keepdims=*/true);
    Value has = CompareOp::create(rewriter, loc, flags, x, extreme, Predicate::Eq);
    if (isa<FloatType>(element)) // then so is the extreme, which equals none
      has = OrOp::create(rewriter, loc, has, IsNanOp::create(rewriter, loc, flags, x));
    const bool last = op.getLast();
    int64_t none = last ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
    auto scalar = tensorType(i64, ArrayRef<int64_t>{});
    Value never = ConstantOp::create(rewriter, loc, DenseElementsAttr::get(scalar, rewriter.getI64IntegerAttr(none)));
    Value place = IotaOp::create(rewriter, loc, places, rewriter.getI64IntegerAttr(axis));
    place = SelectOp::create(rewriter, loc, places, has, place, never);
    rewriter.replaceOpWithNewOp<ReduceOp>(op, place, last ? ReduceKind::Max : ReduceKind::Min, ArrayRef<int64_t>{axis},
                                          op.getKeepdims());
    return success();
  }
};

/// Where all that is wanted of the places are as many as there are, flags are marked and counted first: what finds the places
/// then stores them where they stay.
struct CountApart : OpRewritePattern<NonzeroOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(NonzeroOp op, PatternRewriter &rewriter) const override {
    if (op.getCount().use_empty() || !op.getPlaces().hasOneUse())
      return rewriter.notifyMatchFailure(op, "the count, or all places, are not wanted");
    std::optional<Box> box = boxOf(*op.getPlaces().user_begin());
    if (!box || box->starts[0] != 0 || box->steps[0] != 1)
      return rewriter.notifyMatchFailure(op, "the places are not taken from the first one on");
    const DimExpr length = dimOf(op.getFlags(), 0);
    Type whole = rewriter.getI64Type();
    auto mark = MarkFlagsOp::create(rewriter, op.getLoc(), tensorType(whole, {flagMarks(length)}),
                                    tensorType(whole, ArrayRef<int64_t>{}), op.getFlags());
    Value places = MarkedPlacesOp::create(rewriter, op.getLoc(), op.getPlaces().getType(), mark.getMarks(),
                                          DimAttr::get(rewriter.getContext(), length));
    rewriter.replaceOp(op, {places, mark.getCount()});
    return success();
  }
};

struct DecomposeCompositesPass : impl::DecomposeCompositesPassBase<DecomposeCompositesPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<DecomposeSoftmax, DecomposeLayerNorm, DecomposeRmsNorm>(&getContext());
    FrozenRewritePatternSet frozen(std::move(patterns));
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (target->isCuda()) {
        // Ahead of the rest: it leaves a softmax behind.
        RewritePatternSet attention(&getContext());
        attention.add<DecomposeLargeHeads>(&getContext());
        walkAndApplyPatterns(module, std::move(attention));
      }
      walkAndApplyPatterns(module, frozen);
      if (!target->isCuda())
        continue;
      RewritePatternSet onGpus(&getContext());
      onGpus.add<AnyAsAmax, CountApart>(&getContext());
      onGpus.add<LongArgReduce>(&getContext(), symbolOptima(module));
      walkAndApplyPatterns(module, std::move(onGpus));
    }
  }
};

} // namespace

} // namespace lathe
