//===- Norms.cpp - norms with what is added first ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "Simplified" is onnxruntime's word for the norm by the root of the mean square.
//
//===----------------------------------------------------------------------===//
#include "Families.h"

using namespace mlir;

namespace lathe::legal::microsoft {
namespace {

/// 1 / sqrt(mean of squares + epsilon) over the dimensions from axis on, in f32.
Value inverseRoot(Emitter &e, Value x, int64_t axis, double epsilon) {
  x = e.cast(x, e.b.getF32Type());
  return x ? e.unary<RsqrtOp>(
                 e.add(e.mean(e.mul(x, x), axesFrom(axis, rankOf(x))), epsilon))
           : Value();
}

LogicalResult simplifiedNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1);
  std::optional<int64_t> axis =
      x && scale ? n.axis(n.intAttr("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  double epsilon = n.floatAttr("epsilon", 1e-5);
  if (n.wants(1) && failed(n.set(1, inverseRoot(e, x, *axis, epsilon))))
    return failure();
  return n.done(rmsNormOf(e, x, e.cast(scale, elementTypeOf(x)), *axis, epsilon));
}

/// The norm of input + skip + bias over the last dimension; the sum is a result, too.
template <bool Simplified> LogicalResult skipNorm(Node &n) {
  Emitter &e = n.e;
  constexpr unsigned kBeta = 3, kBias = Simplified ? 3 : 4;
  Value x = n.in(0), skip = n.in(1), gamma = n.in(2);
  if (!x || !skip || !gamma || rankOf(x) < 1)
    return failure();
  Value sum = e.add(x, skip);
  if (n.has(kBias))
    sum = e.add(sum, n.in(kBias));
  if (!sum || rankOf(sum) != rankOf(x))
    return n.invalid("shape", "skip has more dimensions than the input");
  double epsilon = n.floatAttr("epsilon", 1e-12);
  int64_t axis = rankOf(x) - 1;
  if (n.numOutputs() > 3 && failed(n.set(3, sum)))
    return failure();
  if (Simplified) {
    if (n.wants(1))
      return n.fail("attribute", "the output mean of a norm that has none", "the other outputs");
    if (n.wants(2) && failed(n.set(2, inverseRoot(e, sum, axis, epsilon))))
      return failure();
    return n.done(rmsNormOf(e, sum, gamma, axis, epsilon));
  }
  if (n.wants(1) || n.wants(2)) {
    Normalized r = normalize(e, e.cast(sum, e.b.getF32Type()), axesFrom(axis, rankOf(x)), epsilon);
    if (failed(n.set(1, r.mean)) || failed(n.set(2, r.inverse)))
      return failure();
  }
  Value beta = n.has(kBeta) ? n.in(kBeta) : Value();
  if (n.has(kBeta) && !beta)
    return failure();
  return n.done(layerNormOf(e, sum, gamma, beta, axis, epsilon));
}

/// The layer norm of the embeddings of word, place and segment, added; and how many ones the mask has.
LogicalResult embedLayerNorm(Node &n) {
  Emitter &e = n.e;
  Value ids = n.in(0), words = n.in(2), places = n.in(3), gamma = n.in(5), beta = n.in(6);
  if (!ids || !words || !places || !gamma || !beta || rankOf(ids) != 2 || rankOf(places) != 2)
    return n.invalid("shape", "input_ids and tables of embeddings are matrices");
  auto look = [&](Value table, Value at) { return e.infer<GatherOp>(table, at, uint64_t(0)); };
  Value place = n.has(8) ? look(places, n.in(8))
                         : e.unsqueeze(e.sliceAxis(places, 0, 0, dimOf(ids, 1)), {0});
  Value sum = e.add(look(words, ids), place);
  if (n.has(1) && n.has(4))
    sum = e.add(sum, look(n.in(4), n.in(1)));
  if (!sum)
    return failure();
  Type i32 = e.b.getI32Type();
  if (n.wants(1)) {
    Value count =
        n.has(7) ? e.reduce(e.cast(e.compare(n.in(7), 1.0, Predicate::Eq), i32), ReduceKind::Sum,
                            {1}, /*keepdims=*/false)
                 : e.broadcastTo(e.scalar(0, i32), {dimOf(ids, 0)});
    if (failed(n.set(1, count)))
      return failure();
  }
  if (n.numOutputs() > 2 && failed(n.set(2, sum)))
    return failure();
  return n.done(
      layerNormOf(e, sum, gamma, beta, rankOf(sum) - 1, n.floatAttr("epsilon", 1e-12)));
}

/// The group norm of x, or of x + skip + bias, whose channels come last by default; maybe x sigmoid(x)
/// behind. Statistics are kept in f32.
template <bool Skip> LogicalResult groupNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), gamma = n.in(1), beta = n.in(2);
  int64_t groups = n.intAttr("groups", 0);
  if (!x || !gamma || !beta || rankOf(x) < 3 || groups < 1)
    return n.invalid("shape", "an image and a number of groups are needed");
  int64_t rank = rankOf(x);
  const bool last = n.intAttr("channels_last", 1);
  const int64_t axis = last ? rank - 1 : 1;
  Type element = elementTypeOf(x);
  auto perChannel = [&](Value v) -> Value {
    if (!v || rankOf(v) != 1)
      return e.fail("one value a channel is needed");
    Dims dims(rank, DimExpr(1));
    dims[axis] = dimOf(v, 0);
    return e.reshape(v, dims);
  };
  if (Skip) {
    Value skip = n.in(3);
    if (skip && rankOf(skip) == 2) {
      Dims dims(rank, DimExpr(1));
      dims[0] = dimOf(skip, 0);
      dims[axis] = dimOf(skip, 1);
      skip = e.reshape(skip, dims);
    }
    x = e.add(x, skip);
    if (n.has(4))
      x = e.add(x, perChannel(n.in(4)));
    if (!x || (n.numOutputs() > 1 && failed(n.set(1, x))))
      return failure();
  }
  Dims dims = dimsOf(x), split = dims;
  std::optional<DimExpr> each = dims[axis].exactDiv(groups);
  if (!each)
    return n.invalid("shape", "the channels do not fall into " + llvm::Twine(groups) + " groups");
  split[axis] = groups;
  split.insert(split.begin() + axis + 1, *each);
  Ints axes;
  for (int64_t d = 1; d <= rank; ++d)
    if (d != axis)
      axes.push_back(d);
  Value wide = e.reshape(e.cast(x, e.b.getF32Type()), split);
  Value y = normalize(e, wide, axes, n.floatAttr("epsilon", 1e-5)).y;
  auto factor = [&](Value v) { return perChannel(e.cast(v, e.b.getF32Type())); };
  y = e.add(e.mul(e.reshape(y, dims), factor(gamma)), factor(beta));
  if (n.intAttr("activation", 0))
    y = e.mul(y, e.unary<SigmoidOp>(y));
  return n.done(e.cast(y, element));
}

} // namespace

void addNorms(Handlers &h) {
  h["com.microsoft.EmbedLayerNormalization"] = embedLayerNorm;
  h["com.microsoft.GroupNorm"] = groupNorm<false>;
  h["com.microsoft.SimplifiedLayerNormalization"] = simplifiedNorm;
  h["com.microsoft.SkipGroupNorm"] = groupNorm<true>;
  h["com.microsoft.SkipLayerNormalization"] = skipNorm<false>;
  h["com.microsoft.SkipSimplifiedLayerNormalization"] = skipNorm<true>;
}

} // namespace lathe::legal::microsoft
