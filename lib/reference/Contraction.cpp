//===- Contraction.cpp - reference of matmul and attention -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products summed over an inner dimension, in double; integers exactly.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <cmath>
#include <limits>

namespace lathe::reference {
namespace {

void matmul(Call &call) {
  bool transposeA = call.integerOr("transpose_a", 0), transposeB = call.integerOr("transpose_b", 0);
  if (!call.expectInputs(2, 2))
    return;
  const Tensor &a = call.in(0), &b = call.in(1);
  Tensor &y = call.out();
  call.require(!isComplex(a.dtype) && !isComplex(b.dtype), "needs real numbers");
  if (!call.require(a.rank() >= 2 && b.rank() >= 2 && y.rank() >= 2, "ranks are below 2"))
    return;
  int64_t rowsA = a.dims[a.rank() - 2], colsA = a.dims.back();
  int64_t rowsB = b.dims[b.rank() - 2], colsB = b.dims.back();
  int64_t m = transposeA ? colsA : rowsA, depth = transposeA ? rowsA : colsA;
  int64_t n = transposeB ? rowsB : colsB, depthB = transposeB ? colsB : rowsB;
  std::vector<int64_t> batchA(a.dims.begin(), a.dims.end() - 2);
  std::vector<int64_t> batchB(b.dims.begin(), b.dims.end() - 2);
  std::vector<int64_t> batch(y.dims.begin(), y.dims.end() - 2);
  call.require(depth == depthB, "depths differ");
  call.require(y.dims[y.rank() - 2] == m && y.dims.back() == n, "result sizes do not fit");
  call.require(broadcastsTo(batchA, batch) && broadcastsTo(batchB, batch),
               "batch dimensions do not broadcast");
  if (!call.ok())
    return;
  bool real = isFloat(a.dtype) || isFloat(b.dtype);
  std::vector<double> x, w;
  if (real) {
    x = reals(a);
    w = reals(b);
  }
  forEachIndex(batch, [&](const Index &index, int64_t p) {
    int64_t baseA = broadcastPosition(batchA, index) * m * depth;
    int64_t baseB = broadcastPosition(batchB, index) * n * depth;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        uint64_t integerSum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          int64_t atA = baseA + (transposeA ? k * m + i : i * depth + k);
          int64_t atB = baseB + (transposeB ? j * depth + k : k * n + j);
          if (real)
            sum += x[atA] * w[atB];
          else
            integerSum += static_cast<uint64_t>(a.integer(atA)) *
                          static_cast<uint64_t>(b.integer(atB));
        }
        int64_t to = (p * m + i) * n + j;
        if (real)
          y.setReal(to, sum);
        else
          y.setInteger(to, static_cast<int64_t>(integerSum));
      }
  });
}

void attention(Call &call) {
  double scale = call.real("scale"), softcap = call.has("softcap") ? call.real("softcap") : 0;
  bool causal = call.integerOr("causal", 0), zeroMasked = call.integerOr("zero_masked_rows", 0);
  if (!call.expectInputs(3, 4, 2))
    return;
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2);
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
  // A mask of one column more has the sink there, a score without a key and a value.
  bool sink = call.hasInput(3) && call.in(3).rank() > 0 && keys > 0 &&
              call.in(3).dims.back() == keys + 1;
  std::vector<int64_t> scoreDims{batch, heads, queries, keys + sink};
  if (call.hasInput(3))
    call.require(broadcastsTo(call.in(3).dims, scoreDims), "mask does not broadcast");
  if (!call.ok())
    return;

  constexpr double hidden = -std::numeric_limits<double>::infinity();
  std::vector<double> rq = reals(q), rk = reals(k), rv = reals(v);
  std::vector<double> scores(static_cast<size_t>(keys));
  forEachIndex({batch, heads, queries}, [&](const Index &index, int64_t row) {
    int64_t group = index[1] / (heads / groups), i = index[2];
    const double *query = rq.data() + row * depth;
    const double *key = rk.data() + (index[0] * groups + group) * keys * depth;
    const double *value = rv.data() + (index[0] * groups + group) * keys * width;
    double max = hidden, sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double s = 0;
      for (int64_t d = 0; d < depth; ++d)
        s += query[d] * key[j * depth + d];
      s *= scale;
      if (softcap != 0)
        s = softcap * std::tanh(s / softcap);
      if (call.hasInput(3)) {
        const Tensor &mask = call.in(3);
        int64_t at = broadcastPosition(mask.dims, {index[0], index[1], i, j});
        if (mask.dtype == DType::Bool)
          s = mask.integer(at) ? s : hidden;
        else
          s += mask.real(at);
      }
      if (causal && j > i + keys - queries)
        s = hidden;
      scores[j] = s;
      max = combine(Combine::Max, max, s);
    }
    double sinkScore = hidden;
    if (sink)
      sinkScore = call.in(3).real(
          broadcastPosition(call.in(3).dims, {index[0], index[1], i, keys}));
    max = combine(Combine::Max, max, sinkScore);
    if (sums && max == hidden)
      sums->setReal(row, hidden);
    if (zeroMasked && max == hidden)
      return; // results start as zeros
    for (double &s : scores) {
      s = std::exp(s - max);
      sum += s;
    }
    if (sink)
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

constexpr Entry kOps[] = {{"matmul", matmul}, {"attention", attention}};

} // namespace

std::span<const Entry> contractionOps() { return kOps; }

} // namespace lathe::reference
