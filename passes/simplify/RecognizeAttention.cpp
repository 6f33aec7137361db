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
//   %p = softmax %m                      =>   %y = attention %q, %k, %v bias %mask {scale = c}
//   %y = matmul %p, %v
//
// What is added to the scores is the bias, a select of -inf a mask (RecognizeMasks says more of them),
// c * tanh(s / c) a soft cap, a score that is joined to those of the keys and cut off behind the softmax
// the sink. What the graph makes of log(sum(e^score)) beside the softmax, or instead of it, is the
// attention's second result:
//
//   %l = max %m + log(sum(exp(%m - max %m)))
//   %p = softmax %m, or exp(%m - %l)     =>   %y, %l = attention ... {log_sum_exp}
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/SizeSources.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_RECOGNIZEATTENTIONPASS
#include "lathe/passes/Passes.h.inc"

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

Value stripBroadcast(Value value) {
  while (auto broadcast = value.getDefiningOp<BroadcastToOp>())
    value = broadcast.getX();
  return value;
}

/// What comes to the products of queries and keys on their way to the softmax.
struct Scores {
  MatmulOp product;
  double scale = 1;
  std::optional<double> softcap;
  SmallVector<Value> biases;
  SmallVector<std::pair<Value, bool>> masks; ///< of i1, and whether true hides

  /// Why the value is none that attention says; null when it is.
  const char *from(Value value) {
    constexpr const char *kNoProduct = "the scores are no product of queries and keys";
    double factor = 1;
    Value inner = stripCasts(stripScale(stripCasts(value), factor));
    if ((product = inner.getDefiningOp<MatmulOp>())) {
      scale *= factor;
      return nullptr;
    }
    // c * tanh(s / c)
    if (auto tanh = inner.getDefiningOp<TanhOp>(); tanh && factor > 0 && factor != 1) {
      double capped = factor;
      product = stripCasts(stripScale(stripCasts(tanh.getX()), capped)).getDefiningOp<MatmulOp>();
      softcap = factor;
      scale *= capped;
      return product ? nullptr : kNoProduct;
    }
    if (factor != 1)
      return kNoProduct;
    if (auto select = inner.getDefiningOp<SelectOp>()) {
      bool hides = numberOf(select.getA()).has_value();
      std::optional<double> hidden = numberOf(hides ? select.getA() : select.getB());
      Value rest = hides ? select.getB() : select.getA();
      if (!hidden || dimsOf(rest) != dimsOf(inner))
        return kNoProduct;
      if (*hidden != -std::numeric_limits<double>::infinity())
        return "scores are hidden by a finite number, of which a row without keys is an average";
      masks.push_back({select.getCondition(), hides});
      return from(rest);
    }
    auto add = inner.getDefiningOp<AddOp>();
    const char *reason = kNoProduct;
    for (bool swap : {false, true}) {
      Value rest = add ? (swap ? add.getB() : add.getA()) : Value();
      if (!rest || dimsOf(rest) != dimsOf(inner))
        continue;
      Scores way = *this;
      way.biases.push_back(swap ? add.getA() : add.getB());
      reason = way.from(rest);
      if (!reason) {
        *this = way;
        return nullptr;
      }
    }
    return reason;
  }
};

struct FormAttention : OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MatmulOp op, PatternRewriter &rewriter) const override {
    if (op.getTransposeA() || op.getTransposeB() || dimsOf(op.getY()).size() != 4) {
      if (!softmaxOf(op.getA()))
        return rewriter.notifyMatchFailure(op, "is no product of weights and values");
      return missed(op, op.getTransposeA() || op.getTransposeB() ? "weights or values are transposed"
                                                                 : "weights and values do not have rank 4",
                    rewriter);
    }
    Value p = stripCasts(op.getA());
    bool zeroMaskedRows = false;
    auto cut = p.getDefiningOp<SliceOp>();
    if (cut)
      p = stripCasts(cut.getX());
    // select(isnan(p), 0, p): rows with nothing to see give zeros.
    if (auto select = p.getDefiningOp<SelectOp>()) {
      auto test = select.getCondition().getDefiningOp<IsNanOp>();
      if (!test || test.getX() != select.getB() || numberOf(select.getA()) != 0.0) {
        if (!softmaxOf(p))
          return rewriter.notifyMatchFailure(op, "the weights are no softmax over keys");
        return missed(op, "a select behind the softmax is no guard against NaN", rewriter);
      }
      p = select.getB();
      zeroMaskedRows = true;
    }
    Operation *weigh = stripCasts(p).getDefiningOp();
    Value scores = weighedBy(weigh), sink;
    if (!scores) {
      if (!isa_and_nonnull<SoftmaxOp>(weigh))
        return rewriter.notifyMatchFailure(op, "the weights are no softmax over keys");
      return missed(op, "the softmax is not over the keys", rewriter);
    }
    const SmallVector<Value> sums = logSumsOf(scores);
    if (cut) {
      sink = sinkOf(scores, cut);
      if (!sink)
        return missed(op, "a part of the weights that is not all but a sink", rewriter);
      scores = stripCasts(scores.getDefiningOp<ConcatOp>().getInputs()[0]);
    }
    Scores read;
    if (const char *reason = read.from(scores); reason || read.product.getTransposeA())
      return missed(op, reason ? reason : "the scores are no product of queries and keys", rewriter);
    MatmulOp matmul = read.product;
    double scale = read.scale;
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
    if (sink) {
      sink = stripBroadcast(asQueries(sink));
      if (!fitsRows(sink, qd))
        return missed(op, "the sink does not fit the scores", rewriter);
    }
    Value bias;
    for (Value more : read.biases)
      bias = bias ? AddOp::create(rewriter, op.getLoc(), bias, asQueries(more)).getY() : asQueries(more);
    Value mask;
    for (auto [condition, hides] : read.masks) {
      Value seen = hides ? NotOp::create(rewriter, op.getLoc(), condition).getResult() : condition;
      mask = mask ? AndOp::create(rewriter, op.getLoc(), mask, seen).getResult() : seen;
    }
    Location loc = rewriter.getFusedLoc({matmul.getLoc(), weigh->getLoc(), op.getLoc()});
    auto flag = [&](bool set) { return set ? rewriter.getUnitAttr() : UnitAttr(); };
    SmallVector<Value> wanted;
    for (Value sum : sums)
      if (sum.getParentBlock() == op->getBlock() && !sum.use_empty() && !followsFrom(v, sum))
        wanted.push_back(sum);
    Type wide = element.isF64() ? element : rewriter.getF32Type(), lse;
    if (!wanted.empty())
      lse = tensorType(wide, {qd[0], qd[1], qd[2]});
    auto cap = read.softcap ? rewriter.getF64FloatAttr(*read.softcap) : FloatAttr();
    auto attention = AttentionOp::create(
        rewriter, loc, op.getY().getType(), lse, q, k, v, bias, mask, /*starts=*/Value(),
        /*lengths=*/Value(), /*offset=*/Value(), /*query_documents=*/Value(),
        /*key_documents=*/Value(), sink, rewriter.getF64FloatAttr(scale), cap, /*causal=*/UnitAttr(),
        /*window_left=*/IntegerAttr(), /*window_right=*/IntegerAttr(), flag(zeroMaskedRows),
        flag(!wanted.empty()));
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
  /// The softmax that is seen through casts, a slice and a select; what it feeds may be an attention.
  static SoftmaxOp softmaxOf(Value v) {
    v = stripCasts(v);
    if (auto cut = v.getDefiningOp<SliceOp>())
      v = stripCasts(cut.getX());
    if (auto select = v.getDefiningOp<SelectOp>())
      v = stripCasts(stripCasts(select.getA()).getDefiningOp<SoftmaxOp>() ? select.getA() : select.getB());
    return v.getDefiningOp<SoftmaxOp>();
  }
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
  /// Whether a value broadcasts to [B, H, S, 1].
  static bool fitsRows(Value v, std::vector<DimExpr> rows) {
    std::vector<DimExpr> dims = dimsOf(v);
    rows.back() = 1;
    return dims.size() <= 4 && !dims.empty() && dims.back() == DimExpr(1) && broadcastDims({rows, dims}) == rows;
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
    if (k == op.getK() && v == op.getV())
      return rewriter.notifyMatchFailure(op, "nothing is repeated");
    if (k == op.getK() || v == op.getV() || dimOf(k, 1) != dimOf(v, 1)) {
      constexpr const char *kUnlike = "keys and values are repeated in memory: not both are, or not alike";
      missedRemark(op.getLoc(), "Attention") << kUnlike;
      return rewriter.notifyMatchFailure(op, kUnlike);
    }
    rewriter.modifyOpInPlace(op, [&] {
      op.getKMutable().assign(k);
      op.getVMutable().assign(v);
    });
    passedRemark(op.getLoc(), "Attention") << "keys and values are not repeated in memory";
    return success();
  }
};

struct RecognizeAttentionPass : impl::RecognizeAttentionPassBase<RecognizeAttentionPass> {
  void runOnOperation() override {
    RewritePatternSet heads(&getContext());
    populateMergedHeadsPatterns(heads);
    if (failed(applyPatternsGreedily(getOperation(), std::move(heads))))
      return signalPassFailure();
    RewritePatternSet patterns(&getContext());
    patterns.add<FormAttention, DropRepeatedHeads>(&getContext());
    walkAndApplyPatterns(getOperation(), FrozenRewritePatternSet(std::move(patterns)));
    // The log-sum-exp may have been read before the product with the values.
    getOperation().walk([](AttentionOp op) {
      if (op.getLse())
        sortBlock(*op->getBlock());
    });
  }
};

} // namespace

} // namespace lathe
