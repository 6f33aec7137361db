//===- ContractionRules.cpp - matmul, conv, attention by element -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The general form of contractions: a loop over the contracted elements for
// one result element, or for the lanes of one. It takes any operands, layouts
// and types; the skeletons are the fast forms of the usual cases.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "lathe/ir/AttentionOperands.h"

using namespace mlir;

namespace lathe::codegen {

Value widen(Evaluator &e, Value v, Type from, Type accumulator) {
  if (isa<FloatType>(accumulator) || e.scalarType(v) == accumulator)
    return v;
  Type like = e.like(v, accumulator);
  return from.isUnsignedInteger() ? e.make<arith::ExtUIOp>(like, v)
                                  : e.make<arith::ExtSIOp>(like, v);
}

namespace {

Value product(Evaluator &e, Value x, Value y) {
  e.unify(x, y);
  return isa<FloatType>(e.scalarType(x)) ? e.make<arith::MulFOp>(x, y)
                                         : e.make<arith::MulIOp>(x, y);
}

Value matmulRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<MatmulOp>(r.getOwner());
  std::vector<DimExpr> ad = dimsOf(op.getA()), bd = dimsOf(op.getB()), yd = dimsOf(r);
  auto batch = [](std::vector<DimExpr> d) {
    d.resize(d.size() - 2);
    return d;
  };
  ArrayRef<Index> outer(idx.data(), idx.size() - 2);
  Indices ab = batchIndex(e, batch(ad), batch(yd), outer);
  Indices bb = batchIndex(e, batch(bd), batch(yd), outer);
  Index m = idx[idx.size() - 2], n = idx[idx.size() - 1];
  DimExpr k = op.getTransposeA() ? ad[ad.size() - 2] : ad.back();
  Type acc = Evaluator::computeType(elementTypeOf(r));
  Evaluator::Accumulator sum{ReduceKind::Sum, acc, false};
  return reduceOver(e, !uniform(idx), k, sum, [&](const Index &at) {
    Indices ai = ab, bi = bb;
    ai.push_back(op.getTransposeA() ? at : m);
    ai.push_back(op.getTransposeA() ? m : at);
    bi.push_back(op.getTransposeB() ? n : at);
    bi.push_back(op.getTransposeB() ? at : n);
    Value x = widen(e, e.eval(op.getA(), ai), elementTypeOf(op.getA()), acc);
    Value y = widen(e, e.eval(op.getB(), bi), elementTypeOf(op.getB()), acc);
    return SmallVector<Value>{product(e, x, y)};
  })[0];
}

Value convRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<ConvOp>(r.getOwner());
  IndexMath &ix = e.ix;
  bool last = op.getLayout() == ConvLayout::ChannelsLast;
  std::vector<DimExpr> wd = dimsOf(op.getW()), yd = dimsOf(r);
  int64_t spatial = op.getStrides().size(), rank = spatial + 2;
  int64_t channelDim = last ? rank - 1 : 1, firstDim = last ? 1 : 2;
  Type acc = Evaluator::computeType(elementTypeOf(r));
  Index group(ix.cst(0));
  if (op.getGroup() != 1) {
    DimExpr perGroup = DimExpr::floorDiv(yd[channelDim], DimExpr(op.getGroup()));
    group = ix.divRem(idx[channelDim], perGroup).first;
  }
  std::vector<DimExpr> inner(wd.begin() + 2, wd.end());
  bool lanes = !uniform(idx);
  Evaluator::Accumulator sum{ReduceKind::Sum, acc, false};
  Index firstChannel = ix.mul(group, wd[1]);
  Value zero = e.constant(Evaluator::computeType(elementTypeOf(op.getX())), 0);

  auto channels = [&](const Index &at) {
    Indices tap = delinearize(e, at, inner);
    return reduceOver(e, lanes, wd[1], sum, [&](const Index &c) {
      Indices xi(rank), wi{idx[channelDim], c};
      xi[0] = idx[0];
      xi[channelDim] = ix.add(firstChannel, c);
      for (int64_t d = 0; d < spatial; ++d) {
        Index i = ix.mul(idx[firstDim + d], op.getStrides()[d]);
        i = ix.add(i, ix.mul(tap[d], op.getDilations()[d]));
        xi[firstDim + d] = ix.add(i, Index(ix.cst(-op.getPads()[d])));
        wi.push_back(tap[d]);
      }
      Value x = widen(e, evalInside(e, op.getX(), xi, zero), elementTypeOf(op.getX()), acc);
      Value w = widen(e, e.eval(op.getW(), wi), elementTypeOf(op.getW()), acc);
      return SmallVector<Value>{product(e, x, w)};
    })[0];
  };
  Value start = e.constant(acc, 0);
  if (lanes)
    start = e.splat(start);
  // Taps outside, channels inside.
  return e.loop(ix.cst(0), ix.dim(lathe::product(inner)), ix.cst(1), ValueRange{start},
                [&](Value iv, ValueRange args) {
                  return SmallVector<Value>{
                      e.combine(ReduceKind::Sum, args[0], channels(Index(iv)), false)};
                })[0];
}

//===- Attention --------------------------------------------------------------===//

} // namespace

static Value maskColumn(Evaluator &e, AttentionOp op, Value mask, bool withSink, const Indices &at) {
  std::vector<DimExpr> full = dimsOf(op.getY());
  full[3] = dimOf(op.getK(), 2);
  if (withSink)
    full[3] = full[3] + DimExpr(1);
  return e.eval(mask, batchIndex(e, dimsOf(mask), full, at));
}

Value attentionMask(Evaluator &e, AttentionOp op, const Indices &at) {
  MaskParts parts = maskParts(op);
  return parts.mask ? maskColumn(e, op, parts.mask, parts.sinkInMask, at) : Value();
}

Value attentionSink(Evaluator &e, AttentionOp op, const Index &b, const Index &h, const Index &s) {
  MaskParts parts = maskParts(op);
  if (!parts.sink && !parts.sinkInMask)
    return {};
  if (parts.sinkInMask)
    return maskColumn(e, op, parts.mask, true, {b, h, s, Index(e.ix.dim(dimOf(op.getK(), 2)))});
  std::vector<DimExpr> full = dimsOf(op.getY());
  full[3] = 1;
  return e.eval(parts.sink,
                batchIndex(e, dimsOf(parts.sink), full, Indices{b, h, s, Index(e.ix.cst(0))}));
}

namespace {

/// One score: scale * q.k, soft cap, mask; -inf where nothing may be seen.
Value score(Evaluator &e, AttentionOp op, const Index &b, const Index &h, const Index &g,
            const Index &s, const Index &t) {
  Type f = Evaluator::computeType(elementTypeOf(op.getQ()));
  Evaluator::Accumulator sum{ReduceKind::Sum, f, false};
  Value v = e.reduceRow(dimOf(op.getQ(), 3), sum, [&](const Index &d) {
    return SmallVector<Value>{
        product(e, e.eval(op.getQ(), {b, h, s, d}), e.eval(op.getK(), {b, g, t, d}))};
  })[0];
  v = e.make<arith::MulFOp>(v, e.constant(f, op.getScale().convertToDouble()));
  if (op.getSoftcap()) {
    Value cap = e.constant(f, op.getSoftcap()->convertToDouble());
    v = e.make<arith::MulFOp>(e.make<math::TanhOp>(e.make<arith::DivFOp>(v, cap)), cap);
  }
  if (Value m = attentionMask(e, op, {b, h, s, t})) {
    if (e.scalarType(m).isInteger(1))
      v = e.select(m, v, e.constant(f, -std::numeric_limits<double>::infinity()));
    else
      v = e.make<arith::AddFOp>(v, m);
  }
  return v;
}

/// Online softmax: running maximum, running sum, and running result unless only the log-sum-exp
/// is asked for.
Value attentionRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<AttentionOp>(r.getOwner());
  IndexMath &ix = e.ix;
  const bool sums = r == op.getLse();
  Type f = Evaluator::computeType(elementTypeOf(op.getY()));
  if (sums && !uniform(idx))
    return e.lanewise(f, idx, [&](const Indices &one) { return attentionRule(e, r, one); });
  for (int d = 0; d < 3; ++d)
    if (!idx[d].uniform())
      return e.fail(op, "is vectorised along its last dimension only");
  DimExpr heads = dimOf(r, 1), keyHeads = dimOf(op.getK(), 1);
  Index group = idx[1];
  if (!(heads == keyHeads))
    group = ix.divRem(idx[1], DimExpr::floorDiv(heads, keyHeads)).first;
  Value length = ix.dim(dimOf(op.getK(), 2)), end = length;
  if (op.getCausal()) {
    Value seen = ix.add(ix.add(idx[2].base, ix.sub(length, ix.dim(dimOf(op.getQ(), 2)))), ix.cst(1));
    end = ix.max(ix.min(length, seen), ix.cst(0));
  }
  double inf = std::numeric_limits<double>::infinity();
  Value lowest = e.constant(f, -inf), zero = e.constant(f, 0);
  SmallVector<Value> starts;
  if (!sums)
    starts.push_back(idx[3].uniform() ? zero : e.splat(zero));
  // A sink is a score that was seen before all others.
  Value sink = attentionSink(e, op, idx[0], idx[1], idx[2]);
  Value first = sink ? sink : lowest, one = sink ? e.constant(f, 1) : zero;
  bool outer = e.cooperative;
  e.cooperative = false;
  starts.insert(starts.begin(), {first, one});
  auto out = e.loop(
      ix.cst(0), end, ix.cst(1), starts, [&](Value t, ValueRange args) {
        Value s = score(e, op, idx[0], idx[1], group, idx[2], Index(t));
        Value m = e.make<arith::MaximumFOp>(args[0], s);
        // Nothing seen yet: any finite reference will do.
        Value ref = e.select(e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, m, lowest), zero, m);
        Value keep = e.make<math::ExpOp>(e.make<arith::SubFOp>(args[0], ref));
        Value p = e.make<math::ExpOp>(e.make<arith::SubFOp>(s, ref));
        Value sum = e.make<arith::AddFOp>(e.make<arith::MulFOp>(args[1], keep), p);
        if (sums)
          return SmallVector<Value>{m, sum};
        Value v = e.eval(op.getV(), {idx[0], group, Index(t), idx[3]});
        Value scaled = product(e, args[2], keep), add = product(e, v, p);
        e.unify(scaled, add);
        return SmallVector<Value>{m, sum, e.make<arith::AddFOp>(scaled, add)};
      });
  e.cooperative = outer;
  Value sum = out[1];
  if (sums) // of nothing: -inf + log(0)
    return e.make<arith::AddFOp>(out[0], e.make<math::LogOp>(sum));
  Value y = out[2];
  if (op.getZeroMaskedRows()) {
    Value empty = e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, sum, zero);
    sum = e.select(empty, e.constant(f, 1), sum);
  }
  e.unify(y, sum);
  return e.make<arith::DivFOp>(y, sum);
}

} // namespace

void addContractionRules(RuleTable &t) {
  t["lathe.matmul"] = matmulRule;
  t["lathe.conv"] = convRule;
  t["lathe.attention"] = attentionRule;
}

const Rule *findRule(Operation *op) {
  static const RuleTable table = [] {
    RuleTable t;
    addElementwiseRules(t);
    addMovementRules(t);
    addGatherRules(t);
    addReductionRules(t);
    addWindowRules(t);
    addContractionRules(t);
    return t;
  }();
  auto it = table.find(op->getName().getStringRef());
  return it == table.end() ? nullptr : &it->second;
}

} // namespace lathe::codegen
