//===- AttentionRules.cpp - attention and its positions by element -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rotary embedding, and attention in its general form: a loop over the keys that a query sees, with
// an online softmax. What the operands of attention say about a score is written here once, for this
// form and for the skeletons.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "lathe/codegen/Uncontracted.h"

using namespace mlir;

namespace lathe::codegen {

//===- Rope ---------------------------------------------------------------------===//

namespace {

/// cos and sin of the angle at an index.
std::pair<Value, Value> angleAt(Evaluator &e, RopeOp op, const Indices &at) {
  Value cos = e.eval(op.getCos(), at);
  if (op.getSin())
    return {cos, e.eval(op.getSin(), at)};
  return {e.make<math::CosOp>(cos), e.make<math::SinOp>(cos)};
}

/// Where cos and sin are read for a column of theirs; the other indices are those of `idx`.
Indices angleIndex(Evaluator &e, RopeOp op, const Indices &idx, const Index &column) {
  std::vector<DimExpr> from = dimsOf(op.getCos()), to = dimsOf(op.getY());
  from.pop_back();
  to.pop_back();
  Indices at = batchIndex(e, from, to, ArrayRef(idx).drop_back());
  at.push_back(column);
  return at;
}

/// a p + b q, both products rounded as ONNX's definition has them. Where terms cancel, a fused
/// multiply-add would leave the rounding error of one product alone, and which one it is would depend on
/// how the kernel was fused.
Value sumOfProducts(Evaluator &e, Value a, Value p, Value b, Value q) {
  auto alone = [&](Value v) {
    v.getDefiningOp()->setDiscardableAttr(kUncontracted, e.b.getUnitAttr());
    return v;
  };
  e.unify(a, p);
  Value first = alone(e.make<arith::MulFOp>(a, p));
  e.unify(b, q);
  Value second = alone(e.make<arith::MulFOp>(b, q));
  e.unify(first, second);
  return alone(e.make<arith::AddFOp>(first, second));
}

/// A column x, the other one of its pair and their angle: of the first x cos - other sin, of the second
/// other sin + x cos.
Value rotated(Evaluator &e, bool isFirst, Value x, Value other, std::pair<Value, Value> angle) {
  if (isFirst)
    return sumOfProducts(e, x, angle.first, e.make<arith::NegFOp>(other), angle.second);
  return sumOfProducts(e, other, angle.second, x, angle.first);
}

/// Whether each column has angles of its own.
bool hasAngleOfColumn(RopeOp op) { return dimsOf(op.getCos()).back() == DimExpr(op.getRotary()); }

/// One column, or lanes of columns that are all the first or all the second of their pairs. `pair`: where
/// their angle is in tables of one for each pair.
Value pairRule(Evaluator &e, RopeOp op, const Indices &idx, Value isFirst, Value distance,
               function_ref<Index()> pair) {
  IndexMath &ix = e.ix;
  const Index &column = idx.back();
  Indices other = idx;
  other.back().base = ix.add(column.base, distance);
  Value x = e.eval(op.getX(), idx), y = e.eval(op.getX(), other);
  if (hasAngleOfColumn(op)) {
    auto known = IndexMath::constantOf(isFirst);
    auto negated = [&]() -> Value { return e.make<arith::NegFOp>(y); };
    Value across = known ? (*known ? negated() : y) : e.select(isFirst, negated(), y);
    auto [cos, sin] = angleAt(e, op, angleIndex(e, op, idx, column));
    return sumOfProducts(e, x, cos, across, sin);
  }
  std::pair<Value, Value> angle = angleAt(e, op, angleIndex(e, op, idx, pair()));
  return e.ifElse(
      isFirst, [&] { return rotated(e, true, x, y, angle); },
      [&] { return rotated(e, false, x, y, angle); });
}

Value halvesRule(Evaluator &e, RopeOp op, const Indices &idx) {
  IndexMath &ix = e.ix;
  const int64_t half = op.getRotary() / 2;
  const Index &column = idx.back();
  Value isFirst = ix.cmp(arith::CmpIPredicate::slt, column.base, ix.cst(half));
  Value distance = ix.select(isFirst, ix.cst(half), ix.cst(-half));
  return pairRule(e, op, idx, isFirst, distance, [&] {
    Index pair = column;
    pair.base = ix.select(isFirst, column.base, ix.add(column.base, ix.cst(-half)));
    return pair;
  });
}

/// One column of pairs of neighbours.
Value neighbourRule(Evaluator &e, RopeOp op, const Indices &idx) {
  IndexMath &ix = e.ix;
  Value column = idx.back().base;
  Value isFirst = ix.cmp(arith::CmpIPredicate::eq, ix.rem(column, ix.cst(2)), ix.cst(0));
  return pairRule(e, op, idx, isFirst, ix.select(isFirst, ix.cst(1), ix.cst(-1)),
                  [&] { return Index(ix.div(column, ix.cst(2))); });
}

/// Lanes of whole pairs of neighbours, the first of them at an even column.
Value neighboursRule(Evaluator &e, RopeOp op, const Indices &idx) {
  IndexMath &ix = e.ix;
  const Index &column = idx.back();
  Value x = e.splat(e.eval(op.getX(), idx));
  auto lanes = [&](function_ref<std::pair<Value, Value>(int64_t)> ofPair) {
    SmallVector<Value> all;
    for (int64_t pair = 0; pair < e.width / 2; ++pair) {
      auto [first, second] = ofPair(pair);
      all.append({first, second});
    }
    return e.fromLanes(all);
  };
  auto a = [&](int64_t pair) { return e.lane(x, 2 * pair); };
  auto b = [&](int64_t pair) { return e.lane(x, 2 * pair + 1); };
  auto minusB = [&](int64_t pair) -> Value { return e.make<arith::NegFOp>(b(pair)); };
  if (hasAngleOfColumn(op)) {
    Value across = lanes([&](int64_t pair) { return std::pair(minusB(pair), a(pair)); });
    auto [cos, sin] = angleAt(e, op, angleIndex(e, op, idx, column));
    return sumOfProducts(e, x, cos, across, sin);
  }
  // a cos - b sin, a sin + b cos.
  Value first = ix.div(column.base, ix.cst(2));
  SmallVector<std::pair<Value, Value>> angles;
  for (int64_t pair = 0; pair < e.width / 2; ++pair) {
    // One number for the pair, also where a table that the kernel computes comes in lanes that are all equal.
    auto [cos, sin] = angleAt(e, op, angleIndex(e, op, idx, Index(ix.add(first, 2 * pair < e.active ? pair : 0))));
    angles.push_back({e.lane(cos, 0), e.lane(sin, 0)});
  }
  Value as = lanes([&](int64_t pair) { return std::pair(a(pair), a(pair)); });
  Value bs = lanes([&](int64_t pair) { return std::pair(minusB(pair), b(pair)); });
  Value p = lanes([&](int64_t pair) { return angles[pair]; });
  Value q = lanes([&](int64_t pair) { return std::pair(angles[pair].second, angles[pair].first); });
  return sumOfProducts(e, as, p, bs, q);
}

Value ropeRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<RopeOp>(r.getOwner());
  IndexMath &ix = e.ix;
  const int64_t rotary = op.getRotary();
  const bool part = dimsOf(r).back() != DimExpr(rotary), neighbours = op.getInterleaved();
  const Index &column = idx.back();
  // Columns behind those that are rotated stay.
  auto rotatedOr = [&](const Indices &at, function_ref<Value()> rotate) {
    if (!part)
      return rotate();
    auto shaped = [&](Value v) { return uniform(at) ? v : e.splat(v); };
    return e.ifElse(
        ix.cmp(arith::CmpIPredicate::slt, at.back().base, ix.cst(rotary)),
        [&] { return shaped(rotate()); }, [&] { return shaped(e.eval(op.getX(), at)); });
  };
  auto single = [&](const Indices &at) {
    return rotatedOr(
        at, [&] { return neighbours ? neighbourRule(e, op, at) : halvesRule(e, op, at); });
  };
  if (column.uniform())
    return single(idx);
  auto aligned = [&](int64_t to) {
    return ix.divisor(column.base) % to == 0 && e.active % to == 0 && e.width % 2 == 0;
  };
  bool whole = !column.lanes && column.stride == 1 &&
               (neighbours ? aligned(2) && (!part || (rotary % e.width == 0 && aligned(e.width)))
                           : rotary / 2 % e.width == 0 && ix.divisor(column.base) % e.width == 0);
  if (!whole)
    return e.lanewise(Evaluator::computeType(elementTypeOf(r)), idx, single);
  return rotatedOr(idx, [&] {
    return neighbours ? neighboursRule(e, op, idx) : halvesRule(e, op, idx);
  });
}

} // namespace

//===- What the operands of attention say about a score -----------------------------===//

/// The value of an operand that broadcasts to `full`, at an index of that.
static Value operandAt(Evaluator &e, Value operand, ArrayRef<DimExpr> full, ArrayRef<Index> at) {
  return e.eval(operand, batchIndex(e, dimsOf(operand), full, at));
}

static std::vector<DimExpr> scoreSpace(AttentionOp op) {
  std::vector<DimExpr> full = dimsOf(op.getY());
  full[3] = dimOf(op.getK(), 2);
  return full;
}

/// A number of keys or queries for each batch, as an index.
static Value placeOf(Evaluator &e, AttentionOp op, Value operand, const Index &b) {
  return e.toIndex(operandAt(e, operand, {dimOf(op.getQ(), 0)}, {b}), Evaluator::isUnsigned(operand));
}

/// The place of the first query among the keys.
static Value offsetOf(Evaluator &e, AttentionOp op, const Index &b) {
  if (op.getOffset())
    return placeOf(e, op, op.getOffset(), b);
  Value length = op.getLengths() ? placeOf(e, op, op.getLengths(), b) : e.ix.dim(dimOf(op.getK(), 2));
  return e.ix.sub(length, e.ix.dim(dimOf(op.getQ(), 2)));
}

Value attentionEnd(Evaluator &e, AttentionOp op, const Index &b, Value s) {
  IndexMath &ix = e.ix;
  Value keys = ix.dim(dimOf(op.getK(), 2)), end = keys;
  if (op.getLengths())
    end = ix.min(end, placeOf(e, op, op.getLengths(), b));
  if (op.endsPerQuery()) {
    Value behind = ix.add(offsetOf(e, op, b), ix.add(s, ix.cst(1)));
    int64_t right = op.getCausal() ? 0 : int64_t(*op.getWindowRight());
    end = ix.min(end, ix.add(behind, ix.cst(right)));
  }
  return end == keys ? keys : ix.max(end, ix.cst(0));
}

Value attentionBegin(Evaluator &e, AttentionOp op, const Index &b, Value s) {
  IndexMath &ix = e.ix;
  Value begin = ix.cst(0);
  if (op.getStarts())
    begin = ix.max(begin, placeOf(e, op, op.getStarts(), b));
  if (std::optional<uint64_t> left = op.getWindowLeft())
    begin = ix.max(begin, ix.sub(ix.add(offsetOf(e, op, b), s), ix.cst(int64_t(*left))));
  return begin;
}

Value attentionBias(Evaluator &e, AttentionOp op, const Indices &at) {
  return op.getBias() ? operandAt(e, op.getBias(), scoreSpace(op), at) : Value();
}

Value attentionSeen(Evaluator &e, AttentionOp op, const Indices &at) {
  IndexMath &ix = e.ix;
  Value all;
  auto also = [&](Value more) {
    if (all)
      e.unify(all, more);
    all = all ? Value(e.make<arith::AndIOp>(all, more)) : more;
  };
  if (op.getMask())
    also(operandAt(e, op.getMask(), scoreSpace(op), at));
  if (Value mine = op.getQueryDocuments()) {
    Value theirs = op.getKeyDocuments();
    Value a = operandAt(e, mine, {dimOf(op.getQ(), 0), dimOf(op.getQ(), 2)}, {at[0], at[2]});
    Value b = operandAt(e, theirs, {dimOf(op.getQ(), 0), dimOf(op.getK(), 2)}, {at[0], at[3]});
    e.unify(a, b);
    also(e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, a, b));
  }
  if (op.getStarts())
    also(ix.cmp(arith::CmpIPredicate::sge, at[3], placeOf(e, op, op.getStarts(), at[0])));
  if (op.getWindowLeft()) {
    Value place = ix.add(offsetOf(e, op, at[0]), at[2].base);
    also(ix.cmp(arith::CmpIPredicate::sge, at[3],
                ix.add(place, ix.cst(-int64_t(*op.getWindowLeft())))));
  }
  return all;
}

Value attentionSink(Evaluator &e, AttentionOp op, const Index &b, const Index &h, const Index &s) {
  if (!op.getSink())
    return {};
  std::vector<DimExpr> full = dimsOf(op.getY());
  full[3] = 1;
  return operandAt(e, op.getSink(), full, {b, h, s, Index(e.ix.cst(0))});
}

Value biasedScore(Evaluator &e, AttentionOp op, const Indices &at, Value score) {
  if (Value bias = attentionBias(e, op, at)) {
    e.unify(score, bias);
    score = e.make<arith::AddFOp>(score, bias);
  }
  if (Value seen = attentionSeen(e, op, at)) {
    Value hidden = e.constant(e.scalarType(score), -std::numeric_limits<double>::infinity());
    score = e.select(seen, score, e.isVector(score) ? e.splat(hidden) : hidden);
  }
  return score;
}

//===- Attention --------------------------------------------------------------===//

namespace {

Value product(Evaluator &e, Value x, Value y) {
  e.unify(x, y);
  return e.make<arith::MulFOp>(x, y);
}

/// One score: scale * q.k, soft cap, bias; -inf where nothing may be seen.
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
  return biasedScore(e, op, {b, h, s, t}, v);
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
  Value end = attentionEnd(e, op, idx[0], idx[2].base);
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

void addAttentionRules(RuleTable &t) {
  t["lathe.rope"] = ropeRule;
  t["lathe.attention"] = attentionRule;
}

} // namespace lathe::codegen
