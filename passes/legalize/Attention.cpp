//===- Attention.cpp - scaled dot product attention -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention keeps its own op. Past keys and values are concatenated in front;
// windows, lengths and unaligned causal masks become one boolean mask.
// RotaryEmbedding turns heads before tokens, as attention takes them; what is not of known sizes is
// left to its function body, which turns tokens before heads.
//
//===----------------------------------------------------------------------===//
#include "Node.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace lathe::legal {
namespace {

/// [B, S, H*D] -> [B, H, S, D]
Value splitHeads(Node &n, Value x, int64_t heads) {
  if (!x || rankOf(x) != 3)
    return n.e.fail("operands have rank 3 or 4");
  Dims d = dimsOf(x);
  std::optional<DimExpr> size = d[2].exactDiv(heads);
  if (heads < 1 || !size)
    return n.e.fail("the width " + llvm::Twine(d[2].str()) + " is not a multiple of " +
                    llvm::Twine(heads) + " heads");
  return n.e.transpose(n.e.reshape(x, {d[0], d[1], heads, *size}), {0, 2, 1, 3});
}

/// Which keys a query may see beyond what attn_mask says, as i1 that broadcasts
/// to [B, H, S, T]; null when all.
Value visible(Node &n, const DimExpr &s, const DimExpr &t, const DimExpr &past, bool causal) {
  Emitter &e = n.e;
  Type index = e.b.getI64Type();
  int64_t left = n.intAttr("left_window_size", -1), right = n.intAttr("right_window_size", -1);
  bool lengths = n.has(6);
  if (!causal && !lengths && left < 0 && right < 0)
    return {};
  Value key = e.iota({1, t}, 1, index), query = e.iota({s, 1}, 0, index), all;
  Value offset = e.dimScalar(past, index);
  auto also = [&](Value more) { all = all ? e.infer<AndOp>(all, more) : more; };
  if (lengths) {
    Value valid = e.unsqueeze(e.cast(n.in(6), index), {1, 2, 3}); // [B, 1, 1, 1]
    also(e.compare(key, valid, Predicate::Lt));
    offset = e.sub(valid, e.dimScalar(s, index));
  }
  Value place = e.add(query, offset);
  if (causal)
    also(e.compare(key, place, Predicate::Le));
  if (left >= 0)
    also(e.compare(e.add(key, double(left)), place, Predicate::Ge));
  if (right >= 0)
    also(e.compare(key, e.add(place, double(right)), Predicate::Le));
  return all;
}

LogicalResult attention(Node &n) {
  Emitter &e = n.e;
  Value q = n.in(0), k = n.in(1), v = n.in(2);
  if (!q || !k || !v)
    return failure();
  if (n.wants(3)) {
    n.useBody = true;
    return failure();
  }
  bool flat = rankOf(q) == 3;
  if (flat) {
    q = splitHeads(n, q, n.intAttr("q_num_heads", 0));
    k = splitHeads(n, k, n.intAttr("kv_num_heads", 0));
    v = splitHeads(n, v, n.intAttr("kv_num_heads", 0));
  }
  if (!q || !k || !v)
    return failure();
  if (rankOf(q) != 4 || rankOf(k) != 4 || rankOf(v) != 4)
    return n.invalid("shape", "Q, K and V have rank 3 or 4");
  v = e.cast(v, elementTypeOf(k));
  n.unify(dimOf(v, 2), dimOf(k, 2));
  DimExpr past = 0;
  if (n.has(4) && n.has(5)) {
    Value pastKey = n.in(4), pastValue = n.in(5);
    if (!pastKey || !pastValue || rankOf(pastKey) != 4 || rankOf(pastValue) != 4)
      return n.invalid("shape", "past_key and past_value have rank 4");
    n.unify(dimOf(pastValue, 2), dimOf(pastKey, 2));
    past = dimOf(pastKey, 2);
    k = e.concat({pastKey, k}, 2);
    v = e.concat({pastValue, v}, 2);
  }
  if (!k || !v)
    return failure();
  if (failed(n.set(1, k)) || failed(n.set(2, v)))
    return failure();
  DimExpr s = dimOf(q, 2), t = dimOf(k, 2);
  bool causal = n.intAttr("is_causal", 0);
  // The op's own causal mask ends at the last key; that is so here when as many
  // keys as queries are new.
  bool aligned = causal && !n.has(6) && t - s == past;
  Value mask;
  if (n.has(3)) {
    mask = n.in(3);
    if (!mask || rankOf(mask) < 1)
      return n.invalid("shape", "attn_mask is a scalar");
    DimExpr width = dimOf(mask, rankOf(mask) - 1);
    if (width != t && width != DimExpr(1)) {
      if (!width.isConstant() || !t.isConstant())
        n.unify(width, t);
      width = dimOf(mask, rankOf(mask) - 1);
      t = dimOf(k, 2);
      s = dimOf(q, 2);
    }
    if (width != t && width != DimExpr(1)) {
      // A shorter mask hides the keys behind it.
      Dims low(rankOf(mask), DimExpr(0)), high = low;
      high.back() = t - width;
      Value hidden = e.like(
          mask, elementTypeOf(mask).isInteger(1) ? 0 : -std::numeric_limits<double>::infinity());
      mask = e.pad(mask, hidden, low, high, PadMode::Constant);
    }
  }
  if (Value seen = visible(n, s, t, past, causal && !aligned)) {
    if (!mask)
      mask = seen;
    else if (elementTypeOf(mask).isInteger(1))
      mask = e.infer<AndOp>(mask, seen);
    else
      mask = e.select(seen, mask, e.like(mask, -std::numeric_limits<double>::infinity()));
    if (!mask)
      return failure();
  }
  if (mask && !elementTypeOf(mask).isInteger(1))
    mask = e.cast(mask, elementTypeOf(q));
  std::optional<int64_t> depth = dimOf(q, 3).constant();
  double scale = n.floatAttr("scale", 0);
  if (scale == 0 && !n.hasAttr("scale")) {
    if (!depth)
      return n.fail("shape", "a symbolic head size without scale", "a constant head size");
    scale = 1 / std::sqrt(double(*depth));
  }
  double softcap = n.floatAttr("softcap", 0);
  OperationState state(e.loc, AttentionOp::getOperationName());
  AttentionOp::build(e.b, state, q.getType(), /*lse=*/Type(), q, k, v, mask, llvm::APFloat(scale), aligned,
                     /*zero_masked_rows=*/true,
                     softcap != 0 ? e.b.getF64FloatAttr(softcap) : FloatAttr());
  Value y = e.create<AttentionOp>(state);
  if (y && flat) {
    Dims d = dimsOf(y);
    y = e.reshape(e.transpose(y, {0, 2, 1, 3}), {d[0], d[2], d[1] * d[3]});
  }
  return n.done(y);
}

LogicalResult rotaryEmbedding(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), cos = n.in(1), sin = n.in(2), positions = n.has(3) ? n.in(3) : Value();
  if (!x || !cos || !sin || (n.has(3) && !positions))
    return failure();
  const int64_t heads = n.intAttr("num_heads", 0), angles = positions ? 2 : 3;
  const bool flat = rankOf(x) == 3, neighbours = n.intAttr("interleaved", 0);
  std::optional<DimExpr> width = flat && heads > 0 ? dimOf(x, 2).exactDiv(heads)
                                 : rankOf(x) == 4  ? std::optional(dimOf(x, 3))
                                                   : std::nullopt;
  std::optional<int64_t> size = width ? width->constant() : std::nullopt;
  const int64_t turned = n.intAttr("rotary_embedding_dim", 0) > 0
                             ? n.intAttr("rotary_embedding_dim", 0)
                             : size.value_or(0);
  auto fits = [&](Value v) {
    return rankOf(v) == angles && dimOf(v, angles - 1) == DimExpr(turned / 2);
  };
  if (!size || turned < 2 || turned % 2 || turned > *size || !fits(cos) || !fits(sin) ||
      (positions && rankOf(positions) != 2)) {
    n.useBody = true;
    return failure();
  }
  if (flat)
    x = splitHeads(n, x, heads);
  auto angle = [&](Value v) {
    return e.unsqueeze(positions ? e.infer<GatherOp>(v, positions, uint64_t(0)) : v, {1});
  };
  cos = angle(cos);
  sin = angle(sin);
  Value part = turned < *size ? e.sliceAxis(x, 3, 0, turned) : x;
  if (!part)
    return failure();
  Dims whole = dimsOf(part), half = whole;
  half.back() = turned / 2;
  auto take = [&](int64_t which) {
    return neighbours ? e.slice(part, {0, 0, 0, which}, half, {1, 1, 1, 2})
                      : e.sliceAxis(part, 3, which * (turned / 2), turned / 2);
  };
  Value a = take(0), b = take(1);
  Value first = e.sub(e.mul(cos, a), e.mul(sin, b)), second = e.add(e.mul(sin, a), e.mul(cos, b));
  Value y = neighbours ? e.reshape(e.concat({e.unsqueeze(first, {4}), e.unsqueeze(second, {4})}, 4), whole)
                       : e.concat({first, second}, 3);
  if (turned < *size)
    y = e.concat({y, e.sliceAxis(x, 3, turned, *size - turned)}, 3);
  if (y && flat) {
    Dims d = dimsOf(y);
    y = e.reshape(e.transpose(y, {0, 2, 1, 3}), {d[0], d[2], d[1] * d[3]});
  }
  return n.done(y);
}

} // namespace

void addAttention(Handlers &h) {
  h["Attention"] = attention;
  h["RotaryEmbedding"] = rotaryEmbedding;
}

} // namespace lathe::legal
