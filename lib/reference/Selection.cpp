//===- Selection.cpp - reference of ops that select by value ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Call.h"

#include "lathe/support/FlagMarks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lathe::reference {
namespace {

/// Whether element a is greater than element b: NaN than all numbers.
bool greater(const Tensor &x, int64_t a, int64_t b) {
  if (isFloat(x.dtype)) {
    double p = x.real(a), q = x.real(b);
    return std::isnan(p) || std::isnan(q) ? std::isnan(p) && !std::isnan(q) : p > q;
  }
  int64_t p = x.integer(a), q = x.integer(b);
  return p != q && combine(Combine::Max, x.dtype, p, q) == p;
}

void topK(Call &call) {
  int64_t axis = call.integer("axis");
  bool smallest = call.integerOr("smallest", 0);
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, x.rank());
  if (!call.ok() || !call.require(y.rank() == x.rank() && y.dtype == DType::I64 && !isComplex(x.dtype) &&
                                      y.dims[axis] <= x.dims[axis],
                                  "result type does not fit"))
    return;
  std::vector<int64_t> expected = x.dims;
  expected[axis] = y.dims[axis];
  if (!call.require(expected == y.dims, "result sizes do not fit"))
    return;
  int64_t outer = countBetween(x.dims, 0, axis), length = x.dims[axis], k = y.dims[axis],
          inner = countBetween(x.dims, axis + 1, x.dims.size());
  std::vector<int64_t> places(length);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      auto at = [&](int64_t place) { return (o * length + place) * inner + i; };
      std::iota(places.begin(), places.end(), 0);
      std::sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
        bool before = greater(x, at(a), at(b)), behind = greater(x, at(b), at(a));
        return before != behind ? before != smallest : a < b;
      });
      for (int64_t j = 0; j < k; ++j)
        y.setInteger((o * k + j) * inner + i, places[j]);
    }
}

void nonzero(Call &call) {
  if (!call.expectInputs(1, 1, 2))
    return;
  const Tensor &flags = call.in(0);
  call.require(call.results.size() == 2 && flags.rank() == 1 && flags.dtype == DType::Bool &&
                   call.results[0].dims == flags.dims && call.results[1].rank() == 0 &&
                   call.results[0].dtype == DType::I64 && call.results[1].dtype == DType::I64,
               "result types do not fit");
  if (!call.ok())
    return;
  int64_t count = 0;
  for (int64_t i = 0; i < flags.count(); ++i)
    if (flags.integer(i))
      call.results[0].setInteger(count++, i);
  call.results[1].setInteger(0, count);
}

void markFlags(Call &call) {
  if (!call.expectInputs(1, 1, 2))
    return;
  const Tensor &flags = call.in(0);
  const int64_t length = flags.count(), shares = (length + kFlagsOfShare - 1) / kFlagsOfShare;
  call.require(call.results.size() == 2 && flags.rank() == 1 && flags.dtype == DType::Bool &&
                   call.results[0].dims == std::vector<int64_t>{shares + (length + 63) / 64} && call.results[1].rank() == 0 &&
                   call.results[0].dtype == DType::I64 && call.results[1].dtype == DType::I64,
               "result types do not fit");
  if (!call.ok())
    return;
  std::vector<uint64_t> words((length + 63) / 64);
  int64_t count = 0;
  for (int64_t i = 0; i < length; ++i) {
    if (i % kFlagsOfShare == 0)
      call.results[0].setInteger(i / kFlagsOfShare, count);
    if (flags.integer(i)) {
      words[i / 64] |= uint64_t(1) << i % 64;
      ++count;
    }
  }
  for (size_t w = 0; w < words.size(); ++w)
    call.results[0].setInteger(shares + int64_t(w), static_cast<int64_t>(words[w]));
  call.results[1].setInteger(0, count);
}

void markedPlaces(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &marks = call.in(0);
  Tensor &places = call.out();
  const int64_t length = places.count(), shares = (length + kFlagsOfShare - 1) / kFlagsOfShare;
  if (!call.require(places.rank() == 1 && places.dtype == DType::I64 && marks.dtype == DType::I64 &&
                        marks.dims == std::vector<int64_t>{shares + (length + 63) / 64},
                    "types do not fit"))
    return;
  int64_t count = 0;
  for (int64_t i = 0; i < length; ++i)
    if (static_cast<uint64_t>(marks.integer(shares + i / 64)) >> i % 64 & 1)
      places.setInteger(count++, i);
}

/// A box by its sides, in the precision of its type.
struct Box {
  float top, left, bottom, right;
  float area() const { return (bottom - top) * (right - left); }
};

Box boxAt(const Tensor &boxes, int64_t number, bool centers) {
  auto part = [&](int64_t i) { return static_cast<float>(boxes.real(number * 4 + i)); };
  if (centers) {
    float x = part(0), y = part(1), w = part(2) / 2, h = part(3) / 2;
    return {y - h, x - w, y + h, x + w};
  }
  return {std::min(part(0), part(2)), std::min(part(1), part(3)), std::max(part(0), part(2)),
          std::max(part(1), part(3))};
}

bool overlaps(const Box &a, const Box &b, float most) {
  float high = std::min(a.bottom, b.bottom) - std::max(a.top, b.top),
        wide = std::min(a.right, b.right) - std::max(a.left, b.left);
  float common = std::max(high, 0.0f) * std::max(wide, 0.0f), all = a.area() + b.area() - common;
  return all > 0 && common / all > most;
}

void nms(Call &call) {
  bool centers = call.integerOr("center_point_box", 0);
  if (!call.expectInputs(5, 5, 2))
    return;
  const Tensor &boxes = call.in(0), &order = call.in(1), &candidates = call.in(2);
  call.require(call.results.size() == 2 && boxes.rank() == 3 && order.rank() == 3 && candidates.rank() == 2 &&
                   boxes.dims[2] == 4 && call.results[0].dims == order.dims &&
                   call.results[1].dims == candidates.dims,
               "types do not fit");
  if (!call.ok())
    return;
  int64_t most = call.in(3).integer(0), classes = order.dims[1], spacial = order.dims[2];
  auto limit = static_cast<float>(call.in(4).real(0));
  for (int64_t row = 0; row < order.dims[0] * classes; ++row) {
    std::vector<int64_t> kept;
    for (int64_t i = 0; i < candidates.integer(row) && static_cast<int64_t>(kept.size()) < most; ++i) {
      auto boxOf = [&](int64_t place) { return boxAt(boxes, row / classes * spacial + place, centers); };
      int64_t place = order.integer(row * spacial + i);
      Box box = boxOf(place);
      bool hides = std::any_of(kept.begin(), kept.end(), [&](int64_t other) { return overlaps(box, boxOf(other), limit); });
      if (!hides)
        kept.push_back(place);
    }
    for (size_t j = 0; j < kept.size(); ++j)
      call.results[0].setInteger(row * spacial + static_cast<int64_t>(j), kept[j]);
    call.results[1].setInteger(row, static_cast<int64_t>(kept.size()));
  }
}

constexpr Entry kOps[] = {{"topk", topK}, {"nonzero", nonzero}, {"mark_flags", markFlags}, {"marked_places", markedPlaces}, {"nms", nms}};

} // namespace

std::span<const Entry> selectionOps() { return kOps; }

} // namespace lathe::reference
