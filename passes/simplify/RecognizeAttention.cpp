//===- RecognizeAttention.cpp - attention from its parts ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exporters write attention as matmul, scale, mask, softmax, matmul, with the
// scale on the queries, the keys, both or the scores, a guard against rows of
// NaN, and keys and values repeated for grouped heads. One op says it all, and
// one kernel computes it without storing the scores.
//
//   %s = matmul %q, %k^T
//   %m = add (mul %s, %c), %mask
//   %p = softmax %m                      =>   %y = attention %q, %k, %v, %mask {scale = c}
//   %y = matmul %p, %v
//
// A sink, a score that is joined to those of the keys and cut off behind the softmax, becomes the
// last column of the mask (lathe/ir/AttentionOperands.h). What the graph makes of log(sum(e^score))
// beside the softmax, or instead of it, is the attention's second result:
//
//   %l = max %m + log(sum(exp(%m - max %m)))
//   %p = softmax %m, or exp(%m - %l)     =>   %y, %l = attention ... {log_sum_exp}
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

using namespace mlir;

namespace lathe {
namespace {

/// The operand beside a number in a product, and the number.
std::optional<std::pair<Value, double>> scaled(Value value) {
  if (auto mul = value.getDefiningOp<MulOp>()) {
    if (auto c = numberOf(mul.getB()))
      return std::make_pair(mul.getA(), *c);
    if (auto c = numberOf(mul.getA()))
      return std::make_pair(mul.getB(), *c);
  }
  if (auto div = value.getDefiningOp<DivOp>())
    if (auto c = numberOf(div.getB()))
      return std::make_pair(div.getA(), 1.0 / *c);
  return std::nullopt;
}

/// Takes scaling off; the sizes must stay.
Value stripScale(Value value, double &scale) {
  while (auto inner = scaled(value)) {
    if (dimsOf(inner->first) != dimsOf(value))
      break;
    value = inner->first;
    scale *= inner->second;
  }
  return value;
}

/// Key or value heads that were repeated: [B, G, T, D] -> [B, G, n, T, D] -> [B, G*n, T, D], wherever
/// sizes of 1 stand beside.
Value stripRepeat(Value value) {
  auto merge = value.getDefiningOp<ReshapeOp>();
  auto repeat = merge ? merge.getX().getDefiningOp<BroadcastToOp>() : BroadcastToOp();
  auto split = repeat ? repeat.getX().getDefiningOp<ReshapeOp>() : ReshapeOp();
  if (!split)
    return value;
  std::vector<DimExpr> out = dimsOf(value), wide = dimsOf(repeat.getY()),
                       narrow = dimsOf(repeat.getX()), in = dimsOf(split.getX());
  if (out.size() != 4 || in.size() != 4 || wide.size() != narrow.size())
    return value;
  size_t at = 0; // of the one dimension that is repeated
  while (at < wide.size() && wide[at] == narrow[at])
    ++at;
  if (at == wide.size() || narrow[at] != DimExpr(1))
    return value;
  auto same = [](ArrayRef<DimExpr> x, ArrayRef<DimExpr> y) {
    auto large = [](const DimExpr &d) { return d != DimExpr(1); };
    return llvm::equal(llvm::make_filter_range(x, large), llvm::make_filter_range(y, large));
  };
  ArrayRef<DimExpr> sizes(wide), heads(in);
  bool isRepeat = same(sizes.take_front(at), heads.take_front(2)) &&
                  same(sizes.drop_front(at + 1), heads.drop_front(2)) &&
                  same(ArrayRef(narrow).drop_front(at + 1), heads.drop_front(2)) &&
                  out[0] == in[0] && out[1] == in[1] * wide[at] && out[2] == in[2] && out[3] == in[3];
  return isRepeat ? split.getX() : value;
}

/// The strided memory behind a dense view of it.
Value stripDense(Value value) {
  auto view = value.getDefiningOp<ReshapeOp>();
  return view && dimsOf(view.getX()) == dimsOf(value) ? view.getX() : value;
}

/// Keys as [B, G, T, D] from the operand of q k^T, scaling taken off.
Value keysOf(MatmulOp scores, double &scale, PatternRewriter &rewriter) {
  Value k = scores.getB();
  bool transposed = scores.getTransposeB();
  k = stripScale(k, scale);
  if (auto transpose = k.getDefiningOp<TransposeOp>()) {
    SmallVector<int64_t> swap = {0, 1, 3, 2};
    if (transpose.getPerm() == ArrayRef<int64_t>(swap)) {
      k = stripScale(transpose.getX(), scale);
      transposed = !transposed;
    }
  }
  if (transposed)
    return stripDense(stripRepeat(k));
  return TransposeOp::create(rewriter, k.getLoc(), stripRepeat(k), ArrayRef<int64_t>{0, 1, 3, 2});
}

/// Casts between floats around the softmax change nothing: attention accumulates in f32 anyway.
Value stripCasts(Value value) {
  while (auto cast = value.getDefiningOp<CastOp>()) {
    if (!isa<FloatType>(elementTypeOf(cast.getX())) || !isa<FloatType>(elementTypeOf(cast.getY())))
      break;
    value = cast.getX();
  }
  return value;
}
/// A number for each row, however it is widened.
Value stripShape(Value value) {
  while (isa_and_nonnull<ReshapeOp, BroadcastToOp, CastOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}
/// Who reads the value, through reshapes and casts between floats.
SmallVector<Operation *> readersOf(Value value) {
  SmallVector<Operation *> readers;
  for (Operation *user : value.getUsers()) {
    bool same = isa<ReshapeOp>(user) || (isa<CastOp>(user) && stripCasts(user->getResult(0)) !=
                                                                  user->getResult(0));
    if (same)
      llvm::append_range(readers, readersOf(user->getResult(0)));
    else
      readers.push_back(user);
  }
  return readers;
}
bool reducesKeys(ReduceOp op, ReduceKind kind) {
  return op && op.getKind() == kind && op.getAxes() == ArrayRef<int64_t>{3};
}
/// The largest score of each row, or 0 where that is infinite.
bool isLargest(Value value, Value scores) {
  value = stripShape(value);
  if (auto select = value.getDefiningOp<SelectOp>()) {
    auto test = select.getCondition().getDefiningOp<IsInfOp>();
    return test && stripShape(test.getX()) == stripShape(select.getB()) &&
           numberOf(select.getA()) == 0.0 && isLargest(select.getB(), scores);
  }
  auto reduce = value.getDefiningOp<ReduceOp>();
  return reducesKeys(reduce, ReduceKind::Max) && stripCasts(reduce.getX()) == scores;
}
/// Values of the graph that are log(sum(e^score)) of each row, [B, H, S] or [B, H, S, 1].
SmallVector<Value> logSumsOf(Value scores) {
  SmallVector<Value> found;
  std::vector<DimExpr> rows = dimsOf(scores);
  rows.pop_back();
  auto add = [&](Operation *op) {
    std::vector<DimExpr> dims = dimsOf(op->getResult(0));
    if (dims.size() == 4 && dims[3] == DimExpr(1))
      dims.pop_back();
    if (dims == rows)
      found.push_back(op->getResult(0));
  };
  auto ofSums = [&](Operation *exp, Value shift) {
    for (Operation *sum : readersOf(exp->getResult(0))) {
      if (!reducesKeys(dyn_cast<ReduceOp>(sum), ReduceKind::Sum))
        continue;
      for (Operation *log : readersOf(sum->getResult(0))) {
        if (!isa<LogOp>(log))
          continue;
        if (!shift)
          add(log);
        else
          for (Operation *back : readersOf(log->getResult(0)))
            if (isa<AddOp>(back) && (stripShape(back->getOperand(0)) == stripShape(shift) ||
                                     stripShape(back->getOperand(1)) == stripShape(shift)))
              add(back);
      }
    }
  };
  for (Operation *user : readersOf(scores)) {
    if (isa<ExpOp>(user))
      ofSums(user, {});
    auto less = dyn_cast<SubOp>(user);
    if (less && stripCasts(less.getA()) == scores && isLargest(less.getB(), scores))
      for (Operation *exp : readersOf(less.getResult()))
        if (isa<ExpOp>(exp))
          ofSums(exp, less.getB());
  }
  return found;
}
/// Whether the value follows from `source`.
bool followsFrom(Value value, Value source) {
  SmallVector<Value> work{value};
  llvm::DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (v == source)
      return true;
    if (Operation *op = v.getDefiningOp(); op && seen.insert(v).second)
      llvm::append_range(work, op->getOperands());
  }
  return false;
}

struct FormAttention : OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MatmulOp op, PatternRewriter &rewriter) const override {
    if (op.getTransposeA() || op.getTransposeB() || dimsOf(op.getY()).size() != 4)
      return rewriter.notifyMatchFailure(op, "is no product of weights and values of rank 4");
    Value p = stripCasts(op.getA());
    bool zeroMaskedRows = false;
    auto cut = p.getDefiningOp<SliceOp>();
    if (cut)
      p = stripCasts(cut.getX());
    // select(isnan(p), 0, p): rows with nothing to see give zeros.
    if (auto select = p.getDefiningOp<SelectOp>()) {
      auto test = select.getCondition().getDefiningOp<IsNanOp>();
      if (!test || test.getX() != select.getB() || numberOf(select.getA()) != 0.0)
        return rewriter.notifyMatchFailure(op, "a select that is no guard against NaN");
      p = select.getB();
      zeroMaskedRows = true;
    }
    Operation *weigh = stripCasts(p).getDefiningOp();
    Value scores = weighedBy(weigh), mask, sink;
    if (!scores)
      return rewriter.notifyMatchFailure(op, "the weights are no softmax over keys");
    const SmallVector<Value> sums = logSumsOf(scores);
    if (cut) {
      sink = sinkOf(scores, cut);
      if (!sink)
        return missed(op, "a part of the weights that is not all but a sink", rewriter);
      scores = stripCasts(scores.getDefiningOp<ConcatOp>().getInputs()[0]);
    }
    double scale = 1;
    auto matmul = scores.getDefiningOp<MatmulOp>();
    if (!matmul) {
      scores = stripCasts(stripScale(scores, scale));
      if (auto add = scores.getDefiningOp<AddOp>(); add && scale == 1) {
        for (bool swap : {false, true}) {
          Value inner = swap ? add.getB() : add.getA(), other = swap ? add.getA() : add.getB();
          double innerScale = 1;
          Value product = stripCasts(stripScale(stripCasts(inner), innerScale));
          if (product.getDefiningOp<MatmulOp>() && dimsOf(inner) == dimsOf(scores)) {
            matmul = product.getDefiningOp<MatmulOp>();
            scale = innerScale;
            mask = other;
            break;
          }
        }
      } else {
        matmul = scores.getDefiningOp<MatmulOp>();
      }
    }
    if (!matmul || matmul.getTransposeA())
      return missed(op, "the scores are no product of queries and keys", rewriter);
    Value q = stripScale(matmul.getA(), scale);
    Value k = keysOf(matmul, scale, rewriter);
    Value v = stripDense(stripRepeat(op.getB()));
    std::vector<DimExpr> qd = dimsOf(q), kd = dimsOf(k), vd = dimsOf(v);
    if (qd.size() != 4 || kd.size() != 4 || vd.size() != 4)
      return missed(op, "queries, keys and values do not have rank 4", rewriter);
    auto heads = qd[1].constant(), groups = kd[1].constant();
    if (!heads || !groups || *groups < 1 || *heads % *groups || kd[1] != vd[1] || kd[2] != vd[2] ||
        qd[0] != kd[0] || qd[0] != vd[0])
      return missed(op, "heads or lengths of queries, keys and values do not fit", rewriter);
    Type element = elementTypeOf(op.getY());
    if (elementTypeOf(q) != element || elementTypeOf(k) != element || elementTypeOf(v) != element)
      return missed(op, "queries, keys, values and result differ in type", rewriter);
    auto asQueries = [&](Value v) -> Value {
      if (!v || elementTypeOf(v) == element)
        return v;
      return CastOp::create(rewriter, op.getLoc(), withElementType(v.getType(), element), v, true);
    };
    mask = asQueries(mask);
    if (sink)
      mask = withSink(mask, asQueries(sink), kd[2], rewriter);
    if (sink && !mask)
      return missed(op, "the sink does not fit the scores", rewriter);
    Location loc = rewriter.getFusedLoc({matmul.getLoc(), weigh->getLoc(), op.getLoc()});
    auto flag = [&](bool set) { return set ? rewriter.getUnitAttr() : UnitAttr(); };
    SmallVector<Value> wanted;
    for (Value sum : sums)
      if (sum.getParentBlock() == op->getBlock() && !sum.use_empty() && !followsFrom(v, sum))
        wanted.push_back(sum);
    Type wide = element.isF64() ? element : rewriter.getF32Type(), lse;
    if (!wanted.empty())
      lse = tensorType(wide, {qd[0], qd[1], qd[2]});
    auto attention = AttentionOp::create(rewriter, loc, op.getY().getType(), lse, q, k, v, mask,
                                         rewriter.getF64FloatAttr(scale), UnitAttr(),
                                         flag(zeroMaskedRows), FloatAttr(), flag(!wanted.empty()));
    rewriter.replaceOp(op, attention.getY());
    for (Value sum : wanted) {
      Value is = attention.getLse();
      if (dimsOf(sum) != dimsOf(is))
        is = ReshapeOp::create(rewriter, loc, tensorType(wide, dimsOf(sum)), is);
      if (elementTypeOf(sum) != wide)
        is = CastOp::create(rewriter, loc, sum.getType(), is, true);
      rewriter.replaceAllUsesWith(sum, is);
    }
    passedRemark(loc, "Attention")
        << (lse ? "matmul, softmax, log-sum-exp and matmul are one attention"
                : "matmul, softmax and matmul are one attention");
    return success();
  }

private:
  /// The scores whose softmax over keys the weights are; null when they are none.
  static Value weighedBy(Operation *weigh) {
    if (auto softmax = dyn_cast_or_null<SoftmaxOp>(weigh)) {
      bool overKeys = !softmax.getLog() && softmax.getAxis() == 3;
      return overKeys ? stripCasts(stripLargest(stripCasts(softmax.getX()))) : Value();
    }
    // e^(score - log(sum(e^score)))
    auto exp = dyn_cast_or_null<ExpOp>(weigh);
    auto less = exp ? stripCasts(exp.getX()).getDefiningOp<SubOp>() : SubOp();
    if (!less || dimsOf(less.getA()).size() != 4 || dimsOf(less.getB()).size() != 4)
      return {};
    Value scores = stripCasts(less.getA()), sum = less.getB();
    for (Value known : logSumsOf(scores))
      if (stripShape(sum) == stripShape(known))
        return scores;
    return {};
  }
  /// x less its largest element along the last dimension, which a softmax does by itself.
  static Value stripLargest(Value x) {
    auto sub = x.getDefiningOp<SubOp>();
    if (!sub)
      return x;
    Value most = sub.getB();
    while (isa_and_nonnull<ReshapeOp, BroadcastToOp>(most.getDefiningOp()))
      most = most.getDefiningOp()->getOperand(0);
    auto reduce = most.getDefiningOp<ReduceOp>();
    bool row = reduce && reduce.getKind() == ReduceKind::Max && reduce.getX() == sub.getA() &&
               reduce.getAxes() == ArrayRef<int64_t>{3};
    return row ? sub.getA() : x;
  }
  /// What is joined to the scores as one column that `cut` leaves out; null when that is not so.
  static Value sinkOf(Value scores, SliceOp cut) {
    auto joined = scores.getDefiningOp<ConcatOp>();
    if (!joined || joined.getAxis() != 3 || joined.getInputs().size() != 2)
      return {};
    std::vector<DimExpr> all = dimsOf(scores), keys = dimsOf(joined.getInputs()[0]);
    bool starts = llvm::all_of(cut.getStarts(), [](Attribute start) {
      return cast<DimAttr>(start).expr() == DimExpr(0);
    });
    bool steps = llvm::all_of(cut.getSteps(), [](int64_t step) { return step == 1; });
    bool one = dimsOf(joined.getInputs()[1]).back() == DimExpr(1);
    return starts && steps && one && dimsOf(cut.getY()) == keys && dimsOf(cut.getX()) == all
               ? joined.getInputs()[1]
               : Value();
  }
  /// The mask with the sink as its last column; null where one is wider than the other.
  static Value withSink(Value mask, Value sink, const DimExpr &keys, PatternRewriter &rewriter) {
    Location loc = sink.getLoc();
    while (auto broadcast = sink.getDefiningOp<BroadcastToOp>())
      sink = broadcast.getX();
    std::vector<DimExpr> dims(4, DimExpr(1)), mine = dimsOf(sink);
    if (mine.size() > 4 || mine.empty() || mine.back() != DimExpr(1))
      return {};
    if (!mask) {
      Type element = elementTypeOf(sink);
      auto zero = DenseElementsAttr::get(RankedTensorType::get({}, element),
                                         rewriter.getFloatAttr(element, 0));
      mask = ConstantOp::create(rewriter, loc, zero);
    } else if (dimsOf(mask).empty() || dimsOf(mask).back() != keys) {
      return {};
    }
    for (Value v : {mask, sink}) {
      std::vector<DimExpr> d = dimsOf(v);
      for (size_t i = 0; i + 1 < d.size() && !d.empty(); ++i) {
        DimExpr &wide = dims[4 - d.size() + i];
        if (wide != DimExpr(1) && d[i] != DimExpr(1) && wide != d[i])
          return {};
        wide = wide == DimExpr(1) ? d[i] : wide;
      }
    }
    auto widened = [&](Value v, const DimExpr &last) -> Value {
      std::vector<DimExpr> to = dims;
      to[3] = last;
      return BroadcastToOp::create(rewriter, loc, tensorType(elementTypeOf(v), to), v);
    };
    return ConcatOp::create(rewriter, loc, ValueRange{widened(mask, keys), widened(sink, 1)}, 3);
  }
  static LogicalResult missed(Operation *op, StringRef reason, PatternRewriter &rewriter) {
    missedRemark(op->getLoc(), "Attention") << ("not recognised as attention: " + reason).str();
    return rewriter.notifyMatchFailure(op, reason);
  }
};

/// attention of repeated heads reads each key head for its group of query heads.
struct DropRepeatedHeads : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    Value k = stripDense(stripRepeat(op.getK())), v = stripDense(stripRepeat(op.getV()));
    if (k == op.getK() || v == op.getV() || dimOf(k, 1) != dimOf(v, 1))
      return rewriter.notifyMatchFailure(op, "keys and values are not repeated alike");
    rewriter.modifyOpInPlace(op, [&] {
      op.getKMutable().assign(k);
      op.getVMutable().assign(v);
    });
    passedRemark(op.getLoc(), "Attention") << "keys and values are not repeated in memory";
    return success();
  }
};

struct RecognizeAttentionPass : ModulePass<RecognizeAttentionPass> {
  static constexpr llvm::StringLiteral kName = "lathe-recognize-attention";
  static constexpr llvm::StringLiteral kSummary = "Form attention from matmuls and softmax";

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<FormAttention, DropRepeatedHeads>(&getContext());
    walkAndApplyPatterns(getOperation(), FrozenRewritePatternSet(std::move(patterns)));
    RewritePatternSet masks(&getContext());
    populateMaskPatterns(masks);
    walkAndApplyPatterns(getOperation(), FrozenRewritePatternSet(std::move(masks)));
    // The log-sum-exp may have been read before the product with the values.
    getOperation().walk([](AttentionOp op) {
      if (op.getLse())
        sortTopologically(op->getBlock());
    });
  }
};

} // namespace

std::unique_ptr<Pass> createRecognizeAttentionPass() {
  return std::make_unique<RecognizeAttentionPass>();
}

} // namespace lathe
