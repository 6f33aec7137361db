//===- Movement.cpp - reference of ops that move values --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each result element is one operand element at an index that follows from the
// result's index, or is generated from it.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <algorithm>

namespace lathe::reference {
namespace {

void iota(Call &call) {
  int64_t axis = call.integer("axis");
  if (!call.expectInputs(0, 0))
    return;
  Tensor &y = call.out();
  if (!call.require(axis >= 0 && axis < y.rank(), "axis is out of range"))
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) { y.setInteger(i, index[axis]); });
}

void dimValue(Call &call) {
  std::vector<int64_t> dims = call.integers("dims");
  if (!call.expectInputs(0, 0) ||
      !call.require(static_cast<int64_t>(dims.size()) == call.out().count(),
                    "as many sizes as elements are needed"))
    return;
  for (size_t i = 0; i < dims.size(); ++i)
    call.out().setInteger(static_cast<int64_t>(i), dims[i]);
}

void identity(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  call.require(call.in(0).dtype == call.out().dtype, "element types differ");
  if (call.in(0).dims != call.out().dims)
    call.fail(runtimeError("sizes are not the bound ones", "lathe." + std::string(call.op)));
  if (call.ok())
    call.out().data = call.in(0).data;
}

void transpose(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  std::vector<int64_t> perm = call.integers("perm", x.dims.size());
  std::vector<int64_t> sorted = perm, expected;
  std::sort(sorted.begin(), sorted.end());
  bool valid = true;
  for (size_t d = 0; d < perm.size(); ++d)
    valid &= sorted[d] == static_cast<int64_t>(d);
  if (!call.require(valid, "perm is no permutation"))
    return;
  for (int64_t d : perm)
    expected.push_back(x.dims[d]);
  if (!call.require(expected == y.dims && x.dtype == y.dtype, "result type does not fit"))
    return;
  Index from(perm.size());
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    for (size_t d = 0; d < perm.size(); ++d)
      from[perm[d]] = index[d];
    copyElement(x, position(x.dims, from), y, i);
  });
}

void reshape(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  call.require(call.in(0).dtype == call.out().dtype, "element types differ");
  if (call.require(call.in(0).count() == call.out().count(), "numbers of elements differ"))
    call.out().data = call.in(0).data;
}

void broadcastTo(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  call.require(x.dtype == y.dtype, "element types differ");
  if (!call.require(broadcastsTo(x.dims, y.dims), "operand does not broadcast to result"))
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    copyElement(x, broadcastPosition(x.dims, index), y, i);
  });
}

void slice(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  std::vector<int64_t> starts = call.integers("starts", x.dims.size());
  std::vector<int64_t> steps = call.integers("steps", x.dims.size());
  if (!call.require(x.rank() == y.rank() && x.dtype == y.dtype, "result type does not fit"))
    return;
  if (y.count() == 0)
    return;
  for (size_t d = 0; d < starts.size(); ++d) {
    int64_t reach, last;
    bool inside = !__builtin_mul_overflow(steps[d], y.dims[d] - 1, &reach) &&
                  !__builtin_add_overflow(starts[d], reach, &last) && last >= 0 &&
                  last < x.dims[d];
    call.require(starts[d] >= 0 && starts[d] < x.dims[d] && inside, "slice leaves its operand");
  }
  if (!call.ok())
    return;
  Index from(starts.size());
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    for (size_t d = 0; d < from.size(); ++d)
      from[d] = starts[d] + steps[d] * index[d];
    copyElement(x, position(x.dims, from), y, i);
  });
}

void concat(Call &call) {
  int64_t axis = call.integer("axis");
  if (!call.expectInputs(1, SIZE_MAX))
    return;
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, y.rank());
  if (!call.ok())
    return;
  int64_t total = 0;
  for (const Tensor &x : call.inputs) {
    if (!call.require(x.rank() == y.rank() && x.dtype == y.dtype, "operand types do not fit"))
      return;
    for (int64_t d = 0; d < y.rank(); ++d)
      call.require(d == axis || x.dims[d] == y.dims[d], "sizes differ beside the axis");
    total += x.dims[axis];
  }
  if (!call.require(total == y.dims[axis], "result size does not fit"))
    return;
  int64_t shift = 0;
  for (const Tensor &x : call.inputs) {
    forEachIndex(x.dims, [&](const Index &index, int64_t i) {
      Index to = index;
      to[axis] += shift;
      copyElement(x, i, y, position(y.dims, to));
    });
    shift += x.dims[axis];
  }
}

int64_t floorMod(int64_t a, int64_t b) { return (a % b + b) % b; }

/// Index in [0, n) of the element that stands at `at`, or -1 for the constant.
int64_t padSource(const std::string &mode, int64_t at, int64_t n) {
  if (at >= 0 && at < n)
    return at;
  if (mode == "constant" || n == 0)
    return -1;
  if (mode == "edge")
    return at < 0 ? 0 : n - 1;
  if (mode == "wrap")
    return floorMod(at, n);
  // reflect: the border element is not repeated
  if (n == 1)
    return 0;
  int64_t period = 2 * (n - 1), r = floorMod(at, period);
  return r < n ? r : period - r;
}

void pad(Call &call) {
  if (!call.expectInputs(1, 2))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  std::string mode = call.text("mode");
  std::vector<int64_t> low = call.integers("low", x.dims.size());
  std::vector<int64_t> high = call.integers("high", x.dims.size());
  call.require(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap",
               "unknown mode '" + mode + "'");
  if (!call.require(x.rank() == y.rank() && x.dtype == y.dtype, "result type does not fit"))
    return;
  for (size_t d = 0; d < low.size(); ++d) {
    int64_t size;
    bool fits = !__builtin_add_overflow(low[d], high[d], &size) &&
                !__builtin_add_overflow(size, x.dims[d], &size);
    call.require(fits && size == y.dims[d], "result size is not low + size + high");
  }
  Tensor zero(x.dtype, {});
  const Tensor &value = call.hasInput(1) ? call.in(1) : zero;
  if (!call.require(value.dtype == x.dtype && value.count() == 1, "value is not one element"))
    return;
  Index from(x.dims.size());
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    bool outside = false;
    for (size_t d = 0; d < from.size(); ++d) {
      from[d] = padSource(mode, index[d] - low[d], x.dims[d]);
      outside |= from[d] < 0;
    }
    if (outside)
      copyElement(value, 0, y, i);
    else
      copyElement(x, position(x.dims, from), y, i);
  });
}

constexpr Entry kOps[] = {
    {"iota", iota},           {"dim_value", dimValue}, {"dim_from", identity},
    {"bind_dims", identity},  {"transpose", transpose}, {"reshape", reshape},
    {"broadcast_to", broadcastTo}, {"slice", slice},   {"concat", concat},
    {"pad", pad},
};

} // namespace

std::span<const Entry> movementOps() { return kOps; }

} // namespace lathe::reference
