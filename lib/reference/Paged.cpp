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

/// Sizes of a pool, and where its elements lie. With scales it has codes of 8 (I8) or 4 bits (UI8, two a byte).
struct Pool {
  int64_t pages = 0, layers = 0, tokens = 0, heads = 0, depth = 0;
  bool coded = false, halves = false;

  Pool(Call &call, const Tensor &t, const Tensor *scales) : coded(scales), halves(t.dtype == DType::UI8) {
    if (!call.require(t.rank() == 6 && t.dims[2] == 2 && t.dims[3] > 0 &&
                          (coded ? t.dtype == DType::I8 || halves : isFloat(t.dtype)),
                      "needs a pool [pages, layers, 2, tokens, heads, size] of floats, or codes and scales"))
      return;
    pages = t.dims[0], layers = t.dims[1], tokens = t.dims[3], heads = t.dims[4], depth = t.dims[5];
    int64_t layer = call.integer("layer");
    call.require(layer >= 0 && layer < layers, "the pool has no such layer");
    if (coded)
      call.require(scales->dtype == DType::F32 && scales->dims == std::vector<int64_t>{pages, layers, 2, heads, tokens},
                   "scales are not [pages, layers, 2, heads, tokens]");
  }
  /// Numbers of a head, which codes may share bytes for.
  int64_t numbers() const { return halves ? 2 * depth : depth; }
  int64_t scaleAt(int64_t page, int64_t layer, int64_t part, int64_t token, int64_t head) const {
    return (((page * layers + layer) * 2 + part) * heads + head) * tokens + token;
  }
  /// The number d of a head that begins at `first`, without its scale.
  double code(const Tensor &t, int64_t first, int64_t d) const {
    if (!halves)
      return t.real(first + d);
    const int64_t byte = t.integer(first + d % depth);
    return double((d < depth ? byte : byte >> 4) & 15) - 8;
  }
  /// The first element of a head of a token, `part` 0 of its key and 1 of its value.
  int64_t at(int64_t page, int64_t layer, int64_t part, int64_t token, int64_t head) const {
    return ((((page * layers + layer) * 2 + part) * tokens + token) * heads + head) * depth;
  }
};

/// A head's codes and their scale.
void storeCodes(const Pool &p, const Tensor &from, int64_t row, Tensor &codes, int64_t first, Tensor &scales,
                int64_t scaleAt) {
  const double most = p.halves ? 7 : 127;
  const int64_t count = p.numbers();
  double largest = 0;
  for (int64_t d = 0; d < count; ++d)
    largest = std::max(largest, std::abs(from.real(row + d)));
  const float scale = float(largest / most);
  scales.setReal(scaleAt, scale);
  auto code = [&](int64_t d) {
    return scale == 0 ? int64_t(0)
                      : int64_t(std::clamp(std::nearbyint(from.real(row + d) / double(scale)), -most, most));
  };
  for (int64_t d = 0; d < p.depth; ++d)
    codes.setInteger(first + d, p.halves ? (code(d) + 8) | (code(d + p.depth) + 8) << 4 : code(d));
}

void kvAppend(Call &call) {
  if (!call.expectInputs(4, 5, 2))
    return;
  const Tensor &pool = call.in(0), &slots = call.in(1), &k = call.in(2), &v = call.in(3);
  const bool coded = call.hasInput(4);
  Pool p(call, pool, coded ? &call.in(4) : nullptr);
  Tensor &y = call.out();
  call.require(slots.rank() == 1 && k.rank() == 3 && k.dims == v.dims && k.dims[0] == slots.dims[0] &&
                   k.dims[1] == p.heads && k.dims[2] == p.numbers() && y.dims == pool.dims && y.dtype == pool.dtype &&
                   call.results.size() == (coded ? 2 : 1) && (!coded || call.results[1].dims == call.in(4).dims),
               "sizes do not fit");
  if (!call.ok())
    return;
  y.data = pool.data;
  if (coded)
    call.results[1].data = call.in(4).data;
  int64_t layer = call.integer("layer");
  for (int64_t t = 0; t < slots.dims[0]; ++t) {
    int64_t slot = slots.integer(t);
    if (!call.require(slot >= 0 && slot < p.pages * p.tokens, "a slot is in no page"))
      return;
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t part : {0, 1})
        if (coded) {
          storeCodes(p, part ? v : k, (t * p.heads + h) * p.numbers(), y,
                     p.at(slot / p.tokens, layer, part, slot % p.tokens, h), call.results[1],
                     p.scaleAt(slot / p.tokens, layer, part, slot % p.tokens, h));
        } else {
          for (int64_t d = 0; d < p.depth; ++d)
            copyElement(part ? v : k, (t * p.heads + h) * p.depth + d, y,
                        p.at(slot / p.tokens, layer, part, slot % p.tokens, h) + d);
        }
  }
}

void pagedAttention(Call &call) {
  double scale = call.real("scale"), softcap = call.has("softcap") ? call.real("softcap") : 0;
  constexpr int64_t none = -1;
  const int64_t beside = call.integerOr("first_keys", 0);
  int64_t window = call.integerOr("window_left", none), layer = call.integer("layer");
  const std::vector<int64_t> segments =
      call.has("operandSegmentSizes") ? call.integers("operandSegmentSizes") : std::vector<int64_t>{1, 1, 1, 1, 1, 0, 0, 0};
  const bool known = segments.size() == 8, sinks = known && segments[5], sloped = known && segments[6],
             coded = known && segments[7];
  const size_t count = 5 + sinks + sloped + coded;
  if (!call.expectInputs(count, count))
    return;
  const Tensor &q = call.in(0), &pool = call.in(1), &tables = call.in(2), &requests = call.in(3),
               &positions = call.in(4);
  const Tensor *scales = coded ? &call.in(count - 1) : nullptr;
  Pool p(call, pool, scales);
  Tensor &y = call.out();
  call.require(q.rank() == 3 && q.dims[2] == p.numbers() && p.heads > 0 && q.dims[1] % p.heads == 0 &&
                   y.dims == q.dims && isFloat(q.dtype) && isFloat(y.dtype) && tables.rank() == 2 &&
                   requests.dims == std::vector<int64_t>{q.dims[0]} && positions.dims == requests.dims,
               "sizes do not fit");
  if (!call.ok())
    return;
  std::vector<double> scores, totals(p.numbers());
  Tensor numbers(coded ? q.dtype : pool.dtype, {p.numbers()}); // of one head of a token
  forEachIndex({q.dims[0], q.dims[1]}, [&](const Index &index, int64_t row) {
    int64_t t = index[0], head = index[1] / (q.dims[1] / p.heads);
    int64_t request = requests.integer(t), position = positions.integer(t);
    if (!call.require(request >= 0 && request < tables.dims[0] && position >= 0 &&
                          position < tables.dims[1] * p.tokens,
                      "a token is in no row of the tables"))
      return;
    auto of = [&](int64_t key, int64_t part) {
      int64_t page = tables.integer(request * tables.dims[1] + key / p.tokens);
      if (!call.require(page >= 0 && page < p.pages, "a table names no page"))
        return false;
      const int64_t at = p.at(page, layer, part, key % p.tokens, head);
      const double scale = coded ? scales->real(p.scaleAt(page, layer, part, key % p.tokens, head)) : 1;
      for (int64_t d = 0; d < p.numbers(); ++d)
        numbers.setReal(d, (coded ? p.code(pool, at, d) : pool.real(at + d)) * scale);
      return true;
    };
    std::vector<int64_t> seen;
    for (int64_t key = 0; key <= position; ++key)
      if (window == none || key >= position - window || key < beside)
        seen.push_back(key);
    double sink = sinks ? call.in(5).real(index[1]) : 0;
    double max = sinks ? sink : -std::numeric_limits<double>::infinity(), sum = 0;
    scores.clear();
    for (int64_t key : seen) {
      if (!of(key, 0))
        return;
      double s = 0;
      for (int64_t d = 0; d < p.numbers(); ++d)
        s += q.real(row * p.numbers() + d) * numbers.real(d);
      s *= scale;
      s = softcap != 0 ? softcap * std::tanh(s / softcap) : s;
      scores.push_back(sloped ? s + call.in(5 + sinks).real(index[1]) * double(key - position) : s);
      max = combine(Combine::Max, max, scores.back());
    }
    for (double &s : scores)
      sum += s = std::exp(s - max);
    if (sinks)
      sum += std::exp(sink - max);
    totals.assign(totals.size(), 0);
    for (size_t i = 0; i < seen.size(); ++i) {
      of(seen[i], 1);
      for (int64_t d = 0; d < p.numbers(); ++d)
        totals[d] += scores[i] / sum * numbers.real(d);
    }
    for (int64_t d = 0; d < p.numbers(); ++d)
      y.setReal(row * p.numbers() + d, totals[d]);
  });
}

constexpr Entry kOps[] = {{"kv_append", kvAppend}, {"paged_attention", pagedAttention}};

} // namespace

std::span<const Entry> pagedOps() { return kOps; }

} // namespace lathe::reference
