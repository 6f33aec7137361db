//===- Attention.cpp - reference of attention and rope ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Score by score and column by column, in double.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <cmath>
#include <limits>

namespace lathe::reference {
namespace {

void rope(Call &call) {
  int64_t rotary = call.integer("rotary");
  bool interleaved = call.integerOr("interleaved", 0);
  if (!call.expectInputs(2, 3))
    return;
  const Tensor &x = call.in(0), &cos = call.in(1);
  const Tensor *sin = call.hasInput(2) ? &call.in(2) : nullptr;
  Tensor &y = call.out();
  if (!call.require(x.rank() >= 1 && isFloat(x.dtype) && y.dims == x.dims && cos.rank() >= 1,
                    "needs floats of the result's sizes"))
    return;
  int64_t columns = x.dims.back(), angles = cos.dims.back();
  call.require(rotary >= 2 && rotary % 2 == 0 && rotary <= columns, "rotates other columns than there are");
  call.require(angles == rotary || angles == rotary / 2, "has other angles than pairs or columns");
  call.require(!sin || sin->dims == cos.dims, "cos and sin differ in sizes");
  std::vector<int64_t> whole = x.dims;
  whole.back() = angles;
  call.require(broadcastsTo(cos.dims, whole), "angles do not broadcast");
  if (!call.ok())
    return;
  forEachIndex(x.dims, [&](const Index &index, int64_t at) {
    int64_t j = index.back();
    if (j >= rotary) {
      y.setReal(at, x.real(at));
      return;
    }
    bool first = interleaved ? j % 2 == 0 : j < rotary / 2;
    int64_t pair = interleaved ? j / 2 : j % (rotary / 2), distance = interleaved ? 1 : rotary / 2;
    Index angle = index;
    angle.back() = angles == rotary ? j : pair;
    int64_t place = broadcastPosition(cos.dims, angle);
    double c = sin ? cos.real(place) : std::cos(cos.real(place));
    double s = sin ? sin->real(place) : std::sin(cos.real(place));
    double other = x.real(first ? at + distance : at - distance);
    y.setReal(at, x.real(at) * c + (first ? -other : other) * s);
  });
}

/// The operands of attention by name.
struct Operands {
  const Tensor *q, *k, *v, *bias, *mask, *starts, *lengths, *offset, *queryDocuments, *keyDocuments,
      *sink;

  explicit Operands(Call &call) {
    const Tensor **all[] = {&q,       &k,      &v,      &bias,           &mask,         &starts,
                            &lengths, &offset, &queryDocuments, &keyDocuments, &sink};
    constexpr size_t count = std::size(all);
    std::vector<int64_t> sizes(count, 0);
    if (call.has("operandSegmentSizes"))
      sizes = call.integers("operandSegmentSizes", count);
    else // as many of the first ones as there are
      for (size_t i = 0; i < count; ++i)
        sizes[i] = i < call.inputs.size();
    size_t at = 0;
    for (size_t i = 0; i < count; ++i)
      *all[i] = call.ok() && sizes[i] && call.hasInput(at) ? &call.in(at++) : nullptr;
    call.require(q && k && v && at == call.inputs.size(), "operands are not those of attention");
  }
};

void attention(Call &call) {
  double scale = call.real("scale"), softcap = call.has("softcap") ? call.real("softcap") : 0;
  bool causal = call.integerOr("causal", 0), zeroMasked = call.integerOr("zero_masked_rows", 0);
  constexpr int64_t none = -1;
  int64_t left = call.integerOr("window_left", none), right = call.integerOr("window_right", none);
  if (!call.expectInputs(3, 11, 2))
    return;
  Operands in(call);
  if (!call.ok())
    return;
  const Tensor &q = *in.q, &k = *in.k, &v = *in.v;
  Tensor &y = call.out();
  for (const Tensor *t : {&q, &k, &v, static_cast<const Tensor *>(&y)})
    call.require(t->rank() == 4 && isFloat(t->dtype), "needs floats of rank 4");
  if (!call.ok())
    return;
  int64_t batch = q.dims[0], heads = q.dims[1], queries = q.dims[2], depth = q.dims[3];
  int64_t groups = k.dims[1], keys = k.dims[2], width = v.dims[3];
  call.require(k.dims == std::vector<int64_t>{batch, groups, keys, depth} &&
                   v.dims == std::vector<int64_t>{batch, groups, keys, width} &&
                   y.dims == std::vector<int64_t>{batch, heads, queries, width},
               "sizes do not fit");
  Tensor *sums = call.results.size() > 1 ? &call.results[1] : nullptr;
  if (sums)
    call.require(sums->dims == std::vector<int64_t>{batch, heads, queries} && isFloat(sums->dtype),
                 "log-sum-exp has other sizes");
  call.require(groups > 0 ? heads % groups == 0 : heads == 0, "heads are not divisible");
  auto fits = [&](const Tensor *t, const std::vector<int64_t> &dims) {
    call.require(!t || broadcastsTo(t->dims, dims), "an operand does not broadcast");
  };
  fits(in.bias, {batch, heads, queries, keys});
  fits(in.mask, {batch, heads, queries, keys});
  for (const Tensor *t : {in.starts, in.lengths, in.offset})
    fits(t, {batch});
  fits(in.queryDocuments, {batch, queries});
  fits(in.keyDocuments, {batch, keys});
  fits(in.sink, {batch, heads, queries, 1});
  call.require(!in.queryDocuments == !in.keyDocuments, "documents of queries and keys go together");
  if (!call.ok())
    return;

  constexpr double hidden = -std::numeric_limits<double>::infinity();
  std::vector<double> rq = reals(q), rk = reals(k), rv = reals(v);
  std::vector<double> scores(static_cast<size_t>(keys));
  auto number = [](const Tensor *t, const Index &at, int64_t otherwise) {
    return t ? t->integer(broadcastPosition(t->dims, at)) : otherwise;
  };
  forEachIndex({batch, heads, queries}, [&](const Index &index, int64_t row) {
    int64_t b = index[0], h = index[1], i = index[2], group = h / (heads / groups);
    const double *query = rq.data() + row * depth;
    const double *key = rk.data() + (b * groups + group) * keys * depth;
    const double *value = rv.data() + (b * groups + group) * keys * width;
    int64_t start = number(in.starts, {b}, 0), length = number(in.lengths, {b}, keys);
    int64_t place = i + number(in.offset, {b}, length - queries);
    double max = hidden, sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double s = 0;
      for (int64_t d = 0; d < depth; ++d)
        s += query[d] * key[j * depth + d];
      s *= scale;
      if (softcap != 0)
        s = softcap * std::tanh(s / softcap);
      if (in.bias)
        s += in.bias->real(broadcastPosition(in.bias->dims, {b, h, i, j}));
      bool seen = j >= start && j < length && (!causal || j <= place) &&
                  (left == none || j >= place - left) && (right == none || j <= place + right) &&
                  number(in.queryDocuments, {b, i}, 0) == number(in.keyDocuments, {b, j}, 0) &&
                  number(in.mask, {b, h, i, j}, 1);
      if (!seen)
        s = hidden;
      scores[j] = s;
      max = combine(Combine::Max, max, s);
    }
    double sinkScore = hidden;
    if (in.sink)
      sinkScore = in.sink->real(broadcastPosition(in.sink->dims, {b, h, i, 0}));
    max = combine(Combine::Max, max, sinkScore);
    if (sums && max == hidden)
      sums->setReal(row, hidden);
    if (zeroMasked && max == hidden)
      return; // results start as zeros
    for (double &s : scores) {
      s = std::exp(s - max);
      sum += s;
    }
    if (in.sink)
      sum += std::exp(sinkScore - max);
    if (sums && max != hidden)
      sums->setReal(row, max + std::log(sum));
    for (int64_t e = 0; e < width; ++e) {
      double total = 0;
      for (int64_t j = 0; j < keys; ++j)
        total += scores[j] / sum * value[j * width + e];
      y.setReal(row * width + e, total);
    }
  });
}

constexpr Entry kOps[] = {{"attention", attention}, {"rope", rope}};

} // namespace

std::span<const Entry> attentionOps() { return kOps; }

} // namespace lathe::reference
