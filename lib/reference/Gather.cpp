//===- Gather.cpp - reference of gathers and scatters ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops whose indices are data. Negative indices count from the end; an index out of
// range is an error of the run, not of the model.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

namespace lathe::reference {
namespace {

/// The index counted from the start; 0 and an error when it is out of range.
int64_t checkedIndex(Call &call, int64_t index, int64_t size) {
  if (index >= -size && index < size)
    return index < 0 ? index + size : index;
  call.fail(runtimeError("index " + std::to_string(index) + " is out of range for size " +
                             std::to_string(size),
                         "lathe." + std::string(call.op)));
  return 0;
}

bool integerIndices(Call &call, const Tensor &indices) {
  return call.require(isInteger(indices.dtype), "indices are not integers");
}

void gather(Call &call) {
  int64_t axis = call.integer("axis");
  if (!call.expectInputs(2, 2))
    return;
  const Tensor &x = call.in(0), &indices = call.in(1);
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, x.rank());
  integerIndices(call, indices);
  if (!call.ok())
    return;
  std::vector<int64_t> expected(x.dims.begin(), x.dims.begin() + axis);
  expected.insert(expected.end(), indices.dims.begin(), indices.dims.end());
  expected.insert(expected.end(), x.dims.begin() + axis + 1, x.dims.end());
  if (!call.require(expected == y.dims && x.dtype == y.dtype, "result type does not fit"))
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    Index which(index.begin() + axis, index.begin() + axis + indices.rank());
    Index from(index.begin(), index.begin() + axis);
    from.push_back(
        checkedIndex(call, indices.integer(position(indices.dims, which)), x.dims[axis]));
    from.insert(from.end(), index.begin() + axis + indices.rank(), index.end());
    if (call.ok())
      copyElement(x, position(x.dims, from), y, i);
  });
}

void gatherElements(Call &call) {
  int64_t axis = call.integer("axis");
  if (!call.expectInputs(2, 2))
    return;
  const Tensor &x = call.in(0), &indices = call.in(1);
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, x.rank());
  integerIndices(call, indices);
  call.require(indices.rank() == x.rank() && indices.dims == y.dims && x.dtype == y.dtype,
               "result type does not fit");
  for (int64_t d = 0; call.ok() && d < x.rank(); ++d)
    call.require(d == axis || indices.dims[d] <= x.dims[d], "indices are larger than the operand");
  if (!call.ok())
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    Index from = index;
    from[axis] = checkedIndex(call, indices.integer(i), x.dims[axis]);
    if (call.ok())
      copyElement(x, position(x.dims, from), y, i);
  });
}

void gatherNd(Call &call) {
  int64_t batch = call.integer("batch_dims");
  if (!call.expectInputs(2, 2))
    return;
  const Tensor &x = call.in(0), &indices = call.in(1);
  Tensor &y = call.out();
  integerIndices(call, indices);
  if (!call.require(indices.rank() >= 1 && batch >= 0 && batch < indices.rank(),
                    "batch_dims is out of range"))
    return;
  int64_t depth = indices.dims.back();
  if (!call.require(depth <= x.rank() && batch <= x.rank() - depth,
                    "indices are longer than the operand's rank"))
    return;
  std::vector<int64_t> expected(indices.dims.begin(), indices.dims.end() - 1);
  for (int64_t d = 0; d < batch; ++d)
    call.require(indices.dims[d] == x.dims[d], "batch sizes differ");
  expected.insert(expected.end(), x.dims.begin() + batch + depth, x.dims.end());
  if (!call.require(expected == y.dims && x.dtype == y.dtype, "result type does not fit"))
    return;
  int64_t lead = indices.rank() - 1;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    Index which(index.begin(), index.begin() + lead);
    Index from(index.begin(), index.begin() + batch);
    which.push_back(0);
    for (int64_t k = 0; k < depth; ++k) {
      which.back() = k;
      from.push_back(checkedIndex(call, indices.integer(position(indices.dims, which)),
                                  x.dims[batch + k]));
    }
    from.insert(from.end(), index.begin() + lead, index.end());
    if (call.ok())
      copyElement(x, position(x.dims, from), y, i);
  });
}

/// y[to] = update, or its reduction with what is there.
class Update {
public:
  Update(Call &call, const Tensor &updates) : call(call), updates(updates) {
    reduces = call.has("reduction");
    if (reduces)
      kind = parseCombine(call, call.text("reduction"));
    call.require(!reduces || !isComplex(updates.dtype), "complex numbers cannot be reduced");
  }
  void apply(int64_t from, int64_t to) {
    Tensor &y = call.out();
    if (!reduces)
      copyElement(updates, from, y, to);
    else if (isFloat(y.dtype))
      y.setReal(to, combine(kind, y.real(to), updates.real(from)));
    else
      y.setInteger(to, combine(kind, y.dtype, y.integer(to), updates.integer(from)));
  }

private:
  Call &call;
  const Tensor &updates;
  bool reduces = false;
  Combine kind = Combine::Sum;
};

void scatterElements(Call &call) {
  int64_t axis = call.integer("axis");
  if (!call.expectInputs(3, 3))
    return;
  const Tensor &x = call.in(0), &indices = call.in(1), &updates = call.in(2);
  Tensor &y = call.out();
  axis = normalizeAxis(call, axis, x.rank());
  integerIndices(call, indices);
  call.require(x.dims == y.dims && x.dtype == y.dtype && updates.dtype == y.dtype,
               "result type does not fit");
  call.require(indices.rank() == x.rank() && indices.dims == updates.dims,
               "indices and updates differ in size");
  for (int64_t d = 0; call.ok() && d < x.rank(); ++d)
    call.require(d == axis || indices.dims[d] <= x.dims[d], "indices are larger than the operand");
  Update update(call, updates);
  if (!call.ok())
    return;
  y.data = x.data;
  forEachIndex(indices.dims, [&](const Index &index, int64_t i) {
    Index to = index;
    to[axis] = checkedIndex(call, indices.integer(i), x.dims[axis]);
    if (call.ok())
      update.apply(i, position(y.dims, to));
  });
}

void scatterNd(Call &call) {
  if (!call.expectInputs(3, 3))
    return;
  const Tensor &x = call.in(0), &indices = call.in(1), &updates = call.in(2);
  Tensor &y = call.out();
  integerIndices(call, indices);
  call.require(x.dims == y.dims && x.dtype == y.dtype && updates.dtype == y.dtype,
               "result type does not fit");
  if (!call.require(indices.rank() >= 1 && indices.dims.back() <= x.rank(),
                    "indices are longer than the operand's rank"))
    return;
  int64_t depth = indices.dims.back(), lead = indices.rank() - 1;
  std::vector<int64_t> expected(indices.dims.begin(), indices.dims.end() - 1);
  expected.insert(expected.end(), x.dims.begin() + depth, x.dims.end());
  call.require(expected == updates.dims, "sizes of updates do not fit");
  Update update(call, updates);
  if (!call.ok())
    return;
  y.data = x.data;
  forEachIndex(updates.dims, [&](const Index &index, int64_t i) {
    Index which(index.begin(), index.begin() + lead), to;
    which.push_back(0);
    for (int64_t k = 0; k < depth; ++k) {
      which.back() = k;
      to.push_back(
          checkedIndex(call, indices.integer(position(indices.dims, which)), x.dims[k]));
    }
    to.insert(to.end(), index.begin() + lead, index.end());
    if (call.ok())
      update.apply(i, position(y.dims, to));
  });
}

constexpr Entry kOps[] = {
    {"gather", gather},
    {"gather_elements", gatherElements},
    {"gather_nd", gatherNd},
    {"scatter_elements", scatterElements},
    {"scatter_nd", scatterNd},
};

} // namespace

std::span<const Entry> gatherOps() { return kOps; }

} // namespace lathe::reference
