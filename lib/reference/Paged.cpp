//===- Paged.cpp - reference of keys and values in pages -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Token by token, each key looked up in its table, in double.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe::reference {
namespace {

/// Sizes of a pool, and where its elements lie.
struct Pool {
  int64_t pages = 0, layers = 0, tokens = 0, heads = 0, depth = 0;

  Pool(Call &call, const Tensor &t) {
    if (!call.require(t.rank() == 6 && t.dims[2] == 2 && t.dims[3] > 0 && isFloat(t.dtype),
                      "needs a pool [pages, layers, 2, tokens, heads, size] of floats"))
      return;
    pages = t.dims[0], layers = t.dims[1], tokens = t.dims[3], heads = t.dims[4], depth = t.dims[5];
    int64_t layer = call.integer("layer");
    call.require(layer >= 0 && layer < layers, "the pool has no such layer");
  }
  /// The first element of a head of a token, `part` 0 of its key and 1 of its value.
  int64_t at(int64_t page, int64_t layer, int64_t part, int64_t token, int64_t head) const {
    return ((((page * layers + layer) * 2 + part) * tokens + token) * heads + head) * depth;
  }
};

void kvAppend(Call &call) {
  if (!call.expectInputs(4, 4))
    return;
  const Tensor &pool = call.in(0), &slots = call.in(1), &k = call.in(2), &v = call.in(3);
  Pool p(call, pool);
  Tensor &y = call.out();
  call.require(slots.rank() == 1 && k.rank() == 3 && k.dims == v.dims && k.dims[0] == slots.dims[0] &&
                   k.dims[1] == p.heads && k.dims[2] == p.depth && y.dims == pool.dims && y.dtype == pool.dtype,
               "sizes do not fit");
  if (!call.ok())
    return;
  y.data = pool.data;
  int64_t layer = call.integer("layer");
  for (int64_t t = 0; t < slots.dims[0]; ++t) {
    int64_t slot = slots.integer(t);
    if (!call.require(slot >= 0 && slot < p.pages * p.tokens, "a slot is in no page"))
      return;
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t part : {0, 1})
        for (int64_t d = 0; d < p.depth; ++d)
          copyElement(part ? v : k, (t * p.heads + h) * p.depth + d, y,
                      p.at(slot / p.tokens, layer, part, slot % p.tokens, h) + d);
  }
}

void pagedAttention(Call &call) {
  double scale = call.real("scale"), softcap = call.has("softcap") ? call.real("softcap") : 0;
  constexpr int64_t none = -1;
  int64_t window = call.integerOr("window_left", none), layer = call.integer("layer");
  const std::vector<int64_t> segments =
      call.has("operandSegmentSizes") ? call.integers("operandSegmentSizes") : std::vector<int64_t>{1, 1, 1, 1, 1, 0, 0};
  const bool sinks = segments.size() == 7 && segments[5], sloped = segments.size() == 7 && segments[6];
  if (!call.expectInputs(5 + sinks + sloped, 5 + sinks + sloped))
    return;
  const Tensor &q = call.in(0), &pool = call.in(1), &tables = call.in(2), &requests = call.in(3),
               &positions = call.in(4);
  Pool p(call, pool);
  Tensor &y = call.out();
  call.require(q.rank() == 3 && q.dims[2] == p.depth && p.heads > 0 && q.dims[1] % p.heads == 0 &&
                   y.dims == q.dims && isFloat(q.dtype) && isFloat(y.dtype) && tables.rank() == 2 &&
                   requests.dims == std::vector<int64_t>{q.dims[0]} && positions.dims == requests.dims,
               "sizes do not fit");
  if (!call.ok())
    return;
  std::vector<double> memory = reals(pool), scores;
  forEachIndex({q.dims[0], q.dims[1]}, [&](const Index &index, int64_t row) {
    int64_t t = index[0], head = index[1] / (q.dims[1] / p.heads);
    int64_t request = requests.integer(t), position = positions.integer(t);
    if (!call.require(request >= 0 && request < tables.dims[0] && position >= 0 &&
                          position < tables.dims[1] * p.tokens,
                      "a token is in no row of the tables"))
      return;
    auto of = [&](int64_t key, int64_t part) {
      int64_t page = tables.integer(request * tables.dims[1] + key / p.tokens);
      call.require(page >= 0 && page < p.pages, "a table names no page");
      return call.ok() ? memory.data() + p.at(page, layer, part, key % p.tokens, head) : nullptr;
    };
    int64_t first = window == none ? 0 : std::max<int64_t>(0, position - window);
    double sink = sinks ? call.in(5).real(index[1]) : 0;
    double max = sinks ? sink : -std::numeric_limits<double>::infinity(), sum = 0;
    scores.clear();
    for (int64_t key = first; key <= position; ++key) {
      const double *at = of(key, 0);
      if (!at)
        return;
      double s = 0;
      for (int64_t d = 0; d < p.depth; ++d)
        s += q.real(row * p.depth + d) * at[d];
      s *= scale;
      s = softcap != 0 ? softcap * std::tanh(s / softcap) : s;
      scores.push_back(sloped ? s + call.in(5 + sinks).real(index[1]) * double(key - position) : s);
      max = combine(Combine::Max, max, scores.back());
    }
    for (double &s : scores)
      sum += s = std::exp(s - max);
    if (sinks)
      sum += std::exp(sink - max);
    for (int64_t d = 0; d < p.depth; ++d) {
      double total = 0;
      for (int64_t key = first; key <= position; ++key)
        total += scores[key - first] / sum * of(key, 1)[d];
      y.setReal(row * p.depth + d, total);
    }
  });
}

constexpr Entry kOps[] = {{"kv_append", kvAppend}, {"paged_attention", pagedAttention}};

} // namespace

std::span<const Entry> pagedOps() { return kOps; }

} // namespace lathe::reference
