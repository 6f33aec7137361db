//===- Attention.cpp - attention with its projections and caches -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All become one lathe.attention between what they state beside it: the projection of queries, keys and
// values as one product, biases, rotations, keys and values of before. A mask of integers adds
// `mask_filter_value` where it is 0, as onnxruntime does, and hides nothing for good.
//
//===----------------------------------------------------------------------===//
#include "Families.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal::microsoft {
namespace {

/// Queries [B, H, S, D], keys [B, G, T, D] and values [B, G, T, E] of one node, and what scores are given.
struct Heads {
  Value q, k, v;
  Value bias;              ///< of floats, broadcasts to [B, H, S, T]
  Value lengths, offset;   ///< as lathe.attention has them
  Value sink;
  DimExpr past = 0;        ///< keys of before, at the front
  bool causal = false;
  int64_t window = -1;
  double softcap = 0;
};

/// [B, S, H * D] of the attention, or null.
Value attend(Node &n, Heads h) {
  Emitter &e = n.e;
  if (!h.q || !h.k || !h.v)
    return {};
  double scale = n.floatAttr("scale", 0);
  if (scale == 0) {
    std::optional<int64_t> depth = dimOf(h.q, 3).constant();
    if (!depth) {
      (void)n.fail("shape", "a symbolic head size without scale", "a constant head size");
      return {};
    }
    scale = 1 / std::sqrt(double(*depth));
  }
  if (h.causal && !h.offset && dimOf(h.k, 2) - dimOf(h.q, 2) != h.past)
    h.offset = e.dimScalar(h.past, e.b.getI64Type());
  OperationState state(e.loc, AttentionOp::getOperationName());
  AttentionOp::build(e.b, state, h.q.getType(), /*lse=*/Type(), h.q, h.k, h.v, h.bias,
                     /*mask=*/Value(), /*starts=*/Value(), h.lengths, h.offset,
                     /*query_documents=*/Value(), /*key_documents=*/Value(), h.sink,
                     llvm::APFloat(scale),
                     h.softcap > 0 ? e.b.getF64FloatAttr(h.softcap) : FloatAttr(), h.causal,
                     h.window >= 0 ? e.b.getI64IntegerAttr(h.window) : IntegerAttr(),
                     /*window_right=*/IntegerAttr(), /*zero_masked_rows=*/false);
  return joinHeads(e, e.create<AttentionOp>(state));
}

/// a + b where either may be absent.
Value plus(Emitter &e, Value a, Value b) { return !a ? b : !b ? a : e.add(a, b); }

/// What a mask operand adds to the scores of keys [B, H, S, T]: sizes [B] of keys that count, [2 B] of ends
/// and then starts, or integers by batch and key, [B, T] or [B, S, T]. Null with e.error for others.
Value maskBias(Node &n, Value mask, const DimExpr &batch, const DimExpr &keys, Type element) {
  Emitter &e = n.e;
  Type index = e.b.getI64Type();
  Value seen;
  if (rankOf(mask) == 1) {
    Value t = e.iota({DimExpr(1), keys}, 1, index);
    auto rows = [&](const DimExpr &from) {
      return e.unsqueeze(e.cast(e.sliceAxis(mask, 0, from, batch), index), {1});
    };
    bool both = dimOf(mask, 0) == batch + batch;
    if (!both && dimOf(mask, 0) != batch && !dimOf(mask, 0).isConstant())
      n.unify(dimOf(mask, 0), batch);
    if (!both && dimOf(mask, 0) != batch)
      return e.fail("a mask of " + llvm::Twine(dimOf(mask, 0).str()) + " numbers");
    seen = e.compare(t, rows(0), Predicate::Lt);
    if (both)
      seen = e.infer<AndOp>(seen, e.compare(t, rows(batch), Predicate::Ge));
    seen = e.unsqueeze(seen, {1, 2});
  } else if (rankOf(mask) == 2 || rankOf(mask) == 3) {
    n.unify(dimOf(mask, rankOf(mask) - 1), keys);
    seen = e.unsqueeze(e.compare(mask, 0.0, Predicate::Ne),
                       rankOf(mask) == 2 ? Ints{1, 2} : Ints{1});
  } else {
    return e.fail("a mask of rank " + llvm::Twine(rankOf(mask)));
  }
  return e.select(seen, e.scalar(0, element),
                  e.scalar(n.floatAttr("mask_filter_value", -10000.0), element));
}

/// Attention on queries, keys and values that one product gave, [B, S, H D + H D + H E].
LogicalResult selfAttention(Node &n, Value projected, unsigned maskAt, unsigned pastAt,
                            unsigned biasAt) {
  Emitter &e = n.e;
  int64_t heads = n.intAttr("num_heads", 0);
  if (n.intAttr("do_rotary", 0) || n.intAttr("past_present_share_buffer", 0))
    return n.fail("attribute", "do_rotary or past_present_share_buffer", "neither",
                  "export without these fusions");
  if (!projected || rankOf(projected) != 3)
    return failure();
  DimExpr width = dimOf(projected, 2), third = DimExpr::floorDiv(width, 3), batch = dimOf(projected, 0);
  Dims sizes = {third, third, third};
  if (std::optional<Ints> given = n.intsAttr("qkv_hidden_sizes"); given && given->size() == 3)
    sizes.assign(given->begin(), given->end());
  auto part = [&](const DimExpr &from, const DimExpr &size) {
    return splitHeads(e, e.sliceAxis(projected, 2, from, size), heads);
  };
  Heads h;
  h.q = part(0, sizes[0]);
  h.k = part(sizes[0], sizes[1]);
  h.v = part(sizes[0] + sizes[1], sizes[2]);
  h.causal = n.intAttr("unidirectional", 0);
  if (n.has(pastAt)) {
    Value past = n.in(pastAt);
    if (!past || rankOf(past) != 5)
      return n.invalid("shape", "past has rank 5: keys and values, then [B, H, P, D]");
    h.past = dimOf(past, 3);
    auto of = [&](int64_t i) {
      Dims dims = dimsOf(past);
      dims.erase(dims.begin());
      return e.reshape(e.sliceAxis(past, 0, i, 1), dims);
    };
    h.k = e.concat({of(0), h.k}, 2);
    h.v = e.concat({of(1), h.v}, 2);
  }
  if (!h.q || !h.k || !h.v)
    return failure();
  if (n.wants(1)) {
    Value present = e.concat({e.unsqueeze(h.k, {0}), e.unsqueeze(h.v, {0})}, 0);
    if (failed(n.set(1, present)))
      return failure();
  }
  if (n.has(maskAt)) {
    h.bias = maskBias(n, n.in(maskAt), batch, dimOf(h.k, 2), elementTypeOf(h.q));
    if (!h.bias)
      return failure();
  }
  if (biasAt && n.has(biasAt))
    h.bias = plus(e, h.bias, n.in(biasAt));
  return n.done(attend(n, h));
}

LogicalResult attention(Node &n) {
  Value y = n.e.matmul(n.in(0), n.in(1));
  return selfAttention(n, n.has(2) ? n.e.add(y, n.in(2)) : y, 3, 4, 5);
}

/// Attention whose input and weights are codes: their product in i32, by both scales.
LogicalResult qAttention(Node &n) {
  Emitter &e = n.e;
  Type i32 = e.b.getI32Type();
  auto centred = [&](unsigned i, unsigned z) {
    Value zero = n.has(z) ? e.cast(n.in(z), i32) : Value();
    if (zero && rankOf(zero) == 1 && dimOf(zero, 0) == DimExpr(1))
      zero = e.reshape(zero, {});
    return e.dequantize(n.in(i), {}, zero, i32);
  };
  Value a = n.in(3), b = n.in(4), y = e.matmul(centred(0, 6), centred(1, 7));
  if (!a || !b || !y)
    return failure();
  if (rankOf(a) == 1)
    a = e.reshape(a, {});
  y = e.add(e.mul(e.cast(y, elementTypeOf(b)), e.mul(a, b)), n.in(2));
  return selfAttention(n, y, 5, 8, 0);
}

LogicalResult multiHeadAttention(Node &n) {
  Emitter &e = n.e;
  const int64_t heads = n.intAttr("num_heads", 0);
  Value query = n.in(0), key = n.has(1) ? n.in(1) : Value(), value = n.has(2) ? n.in(2) : Value();
  if (!query || (n.has(1) && !key) || (n.has(2) && !value))
    return failure();
  if (n.has(8) || n.has(9) || n.wants(3))
    return n.fail("attribute", "shared buffers, cache_indirection or the output qk", "none of them");
  // [B, S, H, parts, D], part i.
  auto packed = [&](Value v, int64_t i) {
    Dims d = dimsOf(v);
    return e.transpose(e.reshape(e.sliceAxis(v, 3, i, 1), {d[0], d[1], d[2], d[4]}), {0, 2, 1, 3});
  };
  Value bias = n.has(3) ? n.in(3) : Value();
  Heads h;
  DimExpr at = 0;
  auto split = [&](Value v) -> Value {
    if (v && rankOf(v) == 4) // keys of another sequence, in heads already
      return v;
    if (v && bias) {
      DimExpr size = dimOf(v, 2);
      v = e.add(v, e.sliceAxis(bias, 0, at, size));
      at = at + size;
    }
    return splitHeads(e, v, heads);
  };
  // Of packed operands the bias is one a head and column, too.
  auto withBias = [&](Value v) -> Value {
    if (!v || !bias)
      return v;
    DimExpr size = dimOf(v, 1) * dimOf(v, 3);
    Value part = e.reshape(e.sliceAxis(bias, 0, at, size), {1, dimOf(v, 1), 1, dimOf(v, 3)});
    at = at + size;
    return e.add(v, part);
  };
  if (rankOf(query) == 5) {
    h.q = withBias(packed(query, 0));
    h.k = withBias(packed(query, 1));
    h.v = withBias(packed(query, 2));
  } else {
    h.q = split(query);
    if (key && rankOf(key) == 5) {
      h.k = withBias(packed(key, 0));
      h.v = withBias(packed(key, 1));
    } else {
      h.k = split(key);
      h.v = split(value);
    }
  }
  if (!h.q || !h.k || !h.v)
    return failure();
  if (n.has(6) && n.has(7)) {
    h.past = n.in(6) ? dimOf(n.in(6), 2) : DimExpr(0);
    h.k = e.concat({n.in(6), h.k}, 2);
    h.v = e.concat({n.in(7), h.v}, 2);
  }
  if (!h.k || !h.v || failed(n.set(1, h.k)) || failed(n.set(2, h.v)))
    return failure();
  h.causal = n.intAttr("unidirectional", 0);
  if (n.has(4)) {
    h.bias = maskBias(n, n.in(4), dimOf(h.q, 0), dimOf(h.k, 2), elementTypeOf(h.q));
    if (!h.bias)
      return failure();
  }
  if (n.has(5))
    h.bias = plus(e, h.bias, n.in(5));
  return n.done(attend(n, h));
}

/// x in heads, [B, H, S, D], rotated by the angles of rows `positions`, [B, S], of both tables.
Value rotate(Node &n, Value x, Value positions, Value cos, Value sin, bool interleaved) {
  Emitter &e = n.e;
  std::optional<int64_t> half = cos ? dimOf(cos, 1).constant() : std::nullopt;
  if (!half)
    return e.fail("tables of angles have a constant width");
  auto angles = [&](Value table) {
    return e.unsqueeze(e.infer<GatherOp>(table, positions, uint64_t(0)), {1});
  };
  return e.infer<RopeOp>(x, angles(cos), angles(sin), uint64_t(2 * *half), interleaved);
}

LogicalResult rotaryEmbedding(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), positions = n.in(1), cos = n.in(2), sin = n.in(3);
  if (!x || !positions || !cos || !sin || rankOf(cos) != 2)
    return failure();
  if (n.intAttr("is_packed_batching", 0) || n.floatAttr("scale", 1) != 1)
    return n.fail("attribute", "is_packed_batching or scale", "neither");
  bool flat = rankOf(x) == 3;
  int64_t heads = n.intAttr("num_heads", 0);
  if (flat && heads == 0) {
    std::optional<DimExpr> count = dimOf(x, 2).exactDiv(dimOf(cos, 1) * DimExpr(2));
    heads = count ? count->constant().value_or(0) : 0;
  }
  if (flat)
    x = splitHeads(e, x, heads);
  if (!x || rankOf(x) != 4)
    return failure();
  if (rankOf(positions) == 1) // where the first token stands
    positions = e.broadcastTo(e.add(e.reshape(positions, {1, 1}),
                                    e.iota({DimExpr(1), dimOf(x, 2)}, 1, elementTypeOf(positions))),
                              {dimOf(x, 0), dimOf(x, 2)});
  Value y = rotate(n, x, positions, cos, sin, n.intAttr("interleaved", 0));
  return n.done(flat ? joinHeads(e, y) : y);
}

/// Keys or values with the new ones, [B, G, S, D], written from `start`, [B], on: [B, G, T, D].
Value written(Emitter &e, Value past, Value fresh, Value start, const DimExpr &total) {
  if (!fresh || !start)
    return {};
  Dims d = dimsOf(fresh), whole = {d[0], d[1], total, d[3]};
  Type index = e.b.getI64Type();
  if (past && dimOf(past, 2) != total) {
    Dims none(4, DimExpr(0)), high = none;
    high[2] = total - dimOf(past, 2);
    past = e.pad(past, e.like(past, 0), none, high, PadMode::Constant);
  }
  Value behind = e.sub(e.iota({1, 1, total, 1}, 2, index), e.reshape(start, {d[0], 1, 1, 1}));
  Value inside = e.infer<AndOp>(e.compare(behind, 0.0, Predicate::Ge),
                                e.compare(behind, e.dimScalar(d[2], index), Predicate::Lt));
  if (!inside)
    return {};
  Value source = e.broadcastTo(e.select(inside, behind, e.like(behind, 0)), whole);
  Value picked = e.infer<GatherElementsOp>(fresh, source, uint64_t(2));
  return picked ? e.select(inside, picked, past ? past : e.like(picked, 0)) : Value();
}

/// Attention of grouped heads over a cache. Token i of sequence b stands at seqlens_k[b] + 1 - S + i, or at i
/// where all tokens are new; keys and values are written there.
LogicalResult groupQueryAttention(Node &n) {
  Emitter &e = n.e;
  const int64_t heads = n.intAttr("num_heads", 0), groups = n.intAttr("kv_num_heads", 0);
  if (n.strAttr("k_quant_type", "NONE") != "NONE" || n.strAttr("v_quant_type", "NONE") != "NONE" ||
      n.intAttr("sliding_window_cache", 0) || n.intAttr("qk_output", 0) || n.wants(3))
    return n.fail("attribute", "a quantized or sliding cache, or qk_output", "a cache of floats");
  if (n.has(14) || n.has(15))
    return n.fail("attribute", "norms of queries and keys inside", "SimplifiedLayerNormalization before");
  Value query = n.in(0), lengths = n.in(5);
  std::optional<DimExpr> total = n.whole(6);
  if (!query || !lengths || rankOf(query) != 3 || heads < 1 || groups < 1)
    return n.invalid("shape", "the query has rank 3, and heads are positive");
  if (!total)
    return n.unknown({6}, "a total sequence length");
  Value key = n.has(1) ? n.in(1) : Value(), value = n.has(2) ? n.in(2) : Value();
  if (!key) { // packed
    std::optional<DimExpr> size = dimOf(query, 2).exactDiv(heads + 2 * groups);
    if (!size)
      return n.invalid("shape", "the packed width does not fall into heads");
    DimExpr q = *size * DimExpr(heads), kv = *size * DimExpr(groups);
    key = e.sliceAxis(query, 2, q, kv);
    value = e.sliceAxis(query, 2, q + kv, kv);
    query = e.sliceAxis(query, 2, 0, q);
  }
  Heads h;
  h.q = splitHeads(e, query, heads);
  h.k = splitHeads(e, key, groups);
  h.v = splitHeads(e, value, groups);
  if (!h.q || !h.k || !h.v)
    return failure();
  Type index = e.b.getI64Type();
  DimExpr batch = dimOf(h.q, 0), count = dimOf(h.q, 2);
  Value ends = e.add(e.reshape(e.cast(lengths, index), {batch}), 1.0);
  Value start = e.sub(ends, e.dimScalar(count, index));
  // All tokens are new: they stand from 0 on, also where a sequence is shorter.
  Value first = e.compare(e.dimScalar(count, index), e.dimScalar(*total, index), Predicate::Eq);
  start = *total == count ? e.broadcastTo(e.scalar(0, index), {batch})
                          : e.select(first, e.scalar(0, index), start);
  if (!start)
    return failure();
  if (n.intAttr("do_rotary", 0)) {
    Value positions = n.has(9) ? n.in(9)
                               : e.add(e.unsqueeze(start, {1}),
                                       e.iota({DimExpr(1), count}, 1, index));
    bool interleaved = n.intAttr("rotary_interleaved", 0);
    h.q = rotate(n, h.q, positions, n.in(7), n.in(8), interleaved);
    h.k = rotate(n, h.k, positions, n.in(7), n.in(8), interleaved);
  }
  Value pastKey = n.has(3) ? n.in(3) : Value(), pastValue = n.has(4) ? n.in(4) : Value();
  DimExpr capacity = pastKey ? dimOf(pastKey, 2) : DimExpr(0);
  DimExpr present = n.derive("present", DimExpr::max(capacity, *total), {0, DimRange::kUnbounded});
  h.k = written(e, pastKey, h.k, start, present);
  h.v = written(e, pastValue, h.v, start, present);
  if (!h.k || !h.v || failed(n.set(1, h.k)) || failed(n.set(2, h.v)))
    return failure();
  h.causal = n.intAttr("causal", 1);
  h.offset = start;
  if (!h.causal)
    h.lengths = ends;
  if (int64_t window = n.intAttr("local_window_size", -1); window > 0)
    h.window = window - 1; // itself is one of them
  h.softcap = n.floatAttr("softcap", 0);
  if (n.has(10))
    h.bias = n.in(10);
  if (n.has(11))
    h.sink = e.reshape(n.in(11), {1, heads, 1, 1});
  else if (n.intAttr("smooth_softmax", -1) == 1)
    h.sink = e.like(h.q, 0);
  return n.done(attend(n, h));
}

} // namespace

void addAttention(Handlers &h) {
  h["com.microsoft.Attention"] = attention;
  h["com.microsoft.GroupQueryAttention"] = groupQueryAttention;
  h["com.microsoft.MultiHeadAttention"] = multiHeadAttention;
  h["com.microsoft.QAttention"] = qAttention;
  h["com.microsoft.RotaryEmbedding"] = rotaryEmbedding;
}

} // namespace lathe::legal::microsoft
