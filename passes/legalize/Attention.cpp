//===- Attention.cpp - scaled dot product attention -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention and RotaryEmbedding keep ops of their own, with what ONNX states as operands: lengths,
// windows, masks, tables of angles. Past keys and values are concatenated in front. A rotation of
// heads whose sizes are not known is left to its function body.
//
//===----------------------------------------------------------------------===//
#include "Formulas.h"
#include "Legalizer.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace lathe::legal {
namespace {

/// Whether numbers or sizes of heads, which lathe.attention wants as constants, are known to a run alone.
bool isOpenHeads(Node &n, Value q, Value k, Value v) {
  if (rankOf(q) == 4)
    return rankOf(k) == 4 && (!dimOf(q, 1).isConstant() || !dimOf(k, 1).isConstant() ||
                              (!dimOf(q, 3).isConstant() && !n.hasAttr("scale")));
  auto isOpen = [](Value x, int64_t heads) { return heads > 0 && rankOf(x) == 3 && !dimOf(x, 2).isConstant(); };
  return isOpen(q, n.intAttr("q_num_heads", 0)) || isOpen(k, n.intAttr("kv_num_heads", 0)) ||
         isOpen(v, n.intAttr("kv_num_heads", 0));
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
  if (isOpenHeads(n, q, k, v)) {
    emitRemark(n.op->getLoc(), "attention is computed by its function body: only a run knows the numbers or sizes of its "
                               "heads");
    n.useBody = true;
    return failure();
  }
  if (flat) {
    q = splitHeads(e, q, n.intAttr("q_num_heads", 0));
    k = splitHeads(e, k, n.intAttr("kv_num_heads", 0));
    v = splitHeads(e, v, n.intAttr("kv_num_heads", 0));
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
  Value bias, mask, lengths, offset;
  if (n.has(3)) {
    mask = n.in(3);
    if (!mask || rankOf(mask) < 1)
      return n.invalid("shape", "attn_mask is a scalar");
    DimExpr width = dimOf(mask, rankOf(mask) - 1), t = dimOf(k, 2);
    if (width != t && width != DimExpr(1)) {
      if (!width.isConstant() || !t.isConstant())
        n.unify(width, t);
      width = dimOf(mask, rankOf(mask) - 1);
      t = dimOf(k, 2);
    }
    if (width != t && width != DimExpr(1)) {
      // A shorter mask hides the keys behind it.
      Dims low(rankOf(mask), DimExpr(0)), high = low;
      high.back() = t - width;
      Value hidden = e.like(
          mask, elementTypeOf(mask).isInteger(1) ? 0 : -std::numeric_limits<double>::infinity());
      mask = e.pad(mask, hidden, low, high, PadMode::Constant);
    }
    if (mask && !elementTypeOf(mask).isInteger(1)) {
      bias = e.cast(mask, elementTypeOf(q));
      mask = {};
    }
  }
  const bool causal = n.intAttr("is_causal", 0);
  const int64_t left = n.intAttr("left_window_size", -1), right = n.intAttr("right_window_size", -1);
  if (n.has(6)) {
    lengths = n.in(6);
    if (!lengths)
      return failure();
  } else if ((causal || left >= 0 || right >= 0) && dimOf(k, 2) - dimOf(q, 2) != past) {
    // The op's own places end at the last key, which is so when as many keys as queries are new.
    offset = e.dimScalar(past, e.b.getI64Type());
  }
  double scale = n.floatAttr("scale", 0);
  if (scale == 0 && !n.hasAttr("scale"))
    scale = 1 / std::sqrt(double(*dimOf(q, 3).constant()));
  double softcap = n.floatAttr("softcap", 0);
  auto window = [&](int64_t size) { return size >= 0 ? e.b.getI64IntegerAttr(size) : IntegerAttr(); };
  if (DimExpr keys = dimOf(k, 2), values = dimOf(v, 2); keys != values && !(keys.isConstant() && values.isConstant()))
    return n.fail("shape", "keys and values whose symbolic lengths, " + keys.str() + " and " + values.str() +
                               ", cannot be shown to be equal", "one symbol for both, or constant lengths");
  OperationState state(e.loc, AttentionOp::getOperationName());
  AttentionOp::build(e.b, state, q.getType(), /*lse=*/Type(), q, k, v, bias, mask,
                     /*starts=*/Value(), lengths, offset, /*query_documents=*/Value(),
                     /*key_documents=*/Value(), /*sink=*/Value(), llvm::APFloat(scale),
                     softcap != 0 ? e.b.getF64FloatAttr(softcap) : FloatAttr(), causal, window(left),
                     window(right), /*zero_masked_rows=*/true);
  Value y = e.create<AttentionOp>(state);
  if (flat)
    y = joinHeads(e, y);
  return n.done(y);
}

LogicalResult rotaryEmbedding(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), cos = n.in(1), sin = n.in(2), positions = n.has(3) ? n.in(3) : Value();
  if (!x || !cos || !sin || (n.has(3) && !positions))
    return failure();
  const int64_t heads = n.intAttr("num_heads", 0), angles = positions ? 2 : 3;
  const bool flat = rankOf(x) == 3;
  std::optional<DimExpr> width = flat && heads > 0 ? dimOf(x, 2).exactDiv(heads)
                                 : rankOf(x) == 4  ? std::optional(dimOf(x, 3))
                                                   : std::nullopt;
  std::optional<int64_t> size = width ? width->constant() : std::nullopt;
  const int64_t rotary = n.intAttr("rotary_embedding_dim", 0) > 0
                             ? n.intAttr("rotary_embedding_dim", 0)
                             : size.value_or(0);
  auto fits = [&](Value v) {
    return rankOf(v) == angles && dimOf(v, angles - 1) == DimExpr(rotary / 2);
  };
  if (!size || rotary < 2 || rotary % 2 || rotary > *size || !fits(cos) || !fits(sin) ||
      (positions && rankOf(positions) != 2)) {
    n.useBody = true;
    return failure();
  }
  if (flat)
    x = splitHeads(e, x, heads);
  auto angle = [&](Value v) {
    return e.unsqueeze(positions ? e.infer<GatherOp>(v, positions, uint64_t(0)) : v, {1});
  };
  Value y = e.infer<RopeOp>(x, angle(cos), angle(sin), uint64_t(rotary),
                            bool(n.intAttr("interleaved", 0)));
  if (flat)
    y = joinHeads(e, y);
  return n.done(y);
}

/// A graph of the node over scores or probabilities, if it has one of this name; null after a report.
Value modified(Node &n, StringRef name, Value x) {
  auto names = n.op->getAttrOfType<ArrayAttr>("onnx_regions");
  if (!names || !x)
    return x;
  for (auto [attr, region] : llvm::zip(names, n.op->getRegions())) {
    if (cast<StringAttr>(attr).getValue() != name)
      continue;
    Tracked argument;
    argument.data = x;
    std::optional<std::vector<Tracked>> results = n.legalizer.inlineBody(n, region, {argument});
    n.reported |= !results;
    Value y = results && results->size() == 1 ? n.legalizer.dataOf(results->front()) : Value();
    if (!y || y.getType() != x.getType()) {
      (void)n.invalid("shape", llvm::Twine(name) + " gives something of another type than it takes");
      return {};
    }
    return y;
  }
  return x;
}

/// Attention with graphs of the model's own over scores and probabilities. Groups of heads of queries
/// share a head of keys and values.
LogicalResult flexAttention(Node &n) {
  Emitter &e = n.e;
  Value q = n.in(0), k = n.in(1), v = n.in(2);
  if (!q || !k || !v || rankOf(q) != 4 || rankOf(k) != 4 || rankOf(v) != 4)
    return n.invalid("shape", "Q, K and V have rank 4");
  const DimExpr heads = dimOf(q, 1), shared = dimOf(k, 1);
  std::optional<int64_t> known = heads.constant(), knownShared = shared.constant();
  if ((known && knownShared && (*knownShared < 1 || *known % *knownShared)) || !n.unify(dimOf(v, 1), dimOf(k, 1)) ||
      !n.unify(dimOf(v, 2), dimOf(k, 2)) || !n.unify(dimOf(q, 3), dimOf(k, 3)) ||
      !n.unify(dimOf(q, 0), dimOf(k, 0)))
    return n.invalid("shape", "Q, K and V do not fit together");
  Type element = elementTypeOf(q), result = elementTypeOf(v), f32 = e.b.getF32Type(),
       wide = element.isF64() ? element : f32;
  if (n.hasAttr("softmax_precision"))
    wide = elementFor(n.op->getContext(), n.intAttr("softmax_precision", 1));
  if (!isFloat(element) || !wide || !isFloat(wide))
    return n.fail("dtype", "attention of what are no floats", "floats");
  DimExpr group = heads == shared ? DimExpr(1) : DimExpr::floorDiv(heads, shared);
  if (group != DimExpr(1)) {
    auto repeat = [&](Value x) {
      Dims d = dimsOf(x);
      Value all = e.broadcastTo(e.unsqueeze(x, {2}), {d[0], d[1], group, d[2], d[3]});
      return e.reshape(all, {d[0], heads, d[2], d[3]});
    };
    k = repeat(k);
    v = repeat(v);
  }
  Value scale = n.hasAttr("scale") ? e.scalar(n.floatAttr("scale", 1), f32)
                                   : e.unary<RsqrtOp>(e.dimScalar(dimOf(q, 3), f32));
  // The root of it to either side: products of 16 bits stay in range.
  Value root = e.cast(e.unary<SqrtOp>(scale), element);
  Value scores = e.cast(e.matmul(e.mul(q, root), e.mul(k, root), false, true), wide);
  scores = modified(n, "score_mod", scores);
  if (!scores)
    return failure();
  Value probabilities = modified(n, "prob_mod", e.infer<SoftmaxOp>(scores, int64_t(3), false));
  return n.done(e.cast(e.matmul(probabilities, e.cast(v, wide)), result));
}

} // namespace

Value splitHeads(Emitter &e, Value x, int64_t heads) {
  if (!x || rankOf(x) != 3)
    return e.fail("operands have rank 3 or 4");
  Dims d = dimsOf(x);
  std::optional<DimExpr> size = heads < 1 ? std::nullopt : d[2].exactDiv(heads);
  if (!size)
    return e.fail("the width " + llvm::Twine(d[2].str()) + " is not a multiple of " +
                  llvm::Twine(heads) + " heads");
  return e.transpose(e.reshape(x, {d[0], d[1], heads, *size}), {0, 2, 1, 3});
}

Value joinHeads(Emitter &e, Value x) {
  if (!x)
    return {};
  Dims d = dimsOf(x);
  return e.reshape(e.transpose(x, {0, 2, 1, 3}), {d[0], d[2], d[1] * d[3]});
}

void addAttention(Handlers &h) {
  h["ai.onnx.preview.FlexAttention"] = flexAttention;
  h["Attention"] = attention;
  h["RotaryEmbedding"] = rotaryEmbedding;
}

} // namespace lathe::legal
