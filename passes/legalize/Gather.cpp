//===- Gather.cpp - elements by their index ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers and scatters take indices as data. ReverseSequence and TensorScatter compute them from
// positions and a length or start of each batch; Compress knows them from its condition.
//
//===----------------------------------------------------------------------===//
#include "Selection.h"

using namespace mlir;

namespace lathe::legal {
namespace {

LogicalResult gather(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  // One known index is a slice, which fuses.
  std::optional<HostValue> known = n.host(1);
  if (known && known->values.size() == 1) {
    DimExpr at = known->values[0], size = dimOf(x, *axis);
    if (at.isConstant() && *at.constant() < 0)
      at = at + size;
    bool inside = n.e.provablyNonNegative(at) && (n.e.provablyNonNegative(size - at - DimExpr(1)));
    if (inside) {
      Dims dims = dimsOf(x);
      dims.erase(dims.begin() + *axis);
      dims.insert(dims.begin() + *axis, known->shape.begin(), known->shape.end());
      return n.done(n.e.reshape(n.e.sliceAxis(x, *axis, at, 1), dims));
    }
  }
  return n.done(n.e.infer<GatherOp>(x, n.in(1), uint64_t(*axis)));
}

LogicalResult gatherElements(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  return axis ? n.done(n.e.infer<GatherElementsOp>(x, n.in(1), uint64_t(*axis))) : failure();
}

/// Coordinates of a place, the last size of `indices`, where it is symbolic: what the ranks of data and of what is
/// gathered or scattered leave.
void settleDepth(Node &n, Value x, Value indices, int64_t batch, int64_t rank) {
  if (!x || !indices || rankOf(indices) < 1)
    return;
  const int64_t depth = rankOf(indices) - 1 + rankOf(x) - batch - rank;
  if (depth >= 0)
    n.unify(dimOf(indices, rankOf(indices) - 1), depth);
}

LogicalResult gatherNd(Node &n) {
  // The model may state a rank of the result, which alone tells that of a gather by symbolic coordinates.
  if (auto stated = dyn_cast<RankedTensorType>(n.op->getResult(0).getType()))
    settleDepth(n, n.in(0), n.in(1), n.intAttr("batch_dims", 0), stated.getRank());
  return n.done(n.e.infer<GatherNdOp>(n.in(0), n.in(1), uint64_t(n.intAttr("batch_dims", 0))));
}

/// The reduction of a scatter: null for plain assignment.
std::optional<ReduceKindAttr> reductionOf(Node &n) {
  std::string name = n.strAttr("reduction", "none");
  std::optional<ReduceKind> kind = name == "add"   ? std::optional(ReduceKind::Sum)
                                   : name == "mul" ? std::optional(ReduceKind::Prod)
                                   : name == "max" ? std::optional(ReduceKind::Max)
                                   : name == "min" ? std::optional(ReduceKind::Min)
                                                   : std::nullopt;
  if (!kind && name != "none") {
    (void)n.fail("attribute", "reduction '" + llvm::Twine(name) + "'", "none, add, mul, max, min");
    return std::nullopt;
  }
  return kind ? ReduceKindAttr::get(n.op->getContext(), *kind) : ReduceKindAttr();
}

LogicalResult scatterElements(Node &n) {
  Value x = n.in(0), indices = n.in(1), updates = n.in(2);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  std::optional<ReduceKindAttr> reduction = reductionOf(n);
  if (!axis || !reduction || !indices || !updates)
    return failure();
  if (rankOf(indices) != rankOf(x) || rankOf(updates) != rankOf(x))
    return n.invalid("shape", "data, indices and updates differ in rank");
  for (int64_t d = 0; d < rankOf(x); ++d) // where a formula has a size that the other states, the run compares them
    if (!n.unify(dimOf(updates, d), dimOf(indices, d)) && dimOf(updates, d).isConstant() && dimOf(indices, d).isConstant())
      return n.invalid("shape", "updates of " + llvm::Twine(dimOf(updates, d).str()) + " for indices of " +
                                    llvm::Twine(dimOf(indices, d).str()) + " along axis " + llvm::Twine(d));
  updates = n.e.bind(updates, dimsOf(indices));
  return n.done(n.e.infer<ScatterElementsOp>(x, indices, updates, uint64_t(*axis), *reduction));
}

LogicalResult scatterNd(Node &n) {
  std::optional<ReduceKindAttr> reduction = reductionOf(n);
  if (!reduction)
    return failure();
  if (Value updates = n.in(2))
    settleDepth(n, n.in(0), n.in(1), 0, rankOf(updates));
  return n.done(n.e.infer<ScatterNdOp>(n.in(0), n.in(1), n.in(2), *reduction));
}

/// on where the index (counted from the end when negative) is this position.
LogicalResult oneHot(Node &n) {
  Emitter &e = n.e;
  Value indices = n.in(0), values = n.in(2);
  if (!indices || !values)
    return failure();
  DimExpr depth;
  if (std::optional<HostValue> known = n.bound(1, 0); known && known->values.size() == 1)
    depth = known->values[0];
  else if (std::optional<double> number = n.number(1))
    depth = int64_t(*number);
  else if (Value given = n.in(1); given && numElements(given.getType()) == DimExpr(1))
    depth = n.sizeOf(e.reshape(e.cast(given, e.b.getI64Type()), {}), std::nullopt);
  else
    return n.invalid("shape", "a depth is one number");
  int64_t rank = rankOf(indices);
  std::optional<int64_t> axis = n.axis(n.intAttr("axis", -1), rank + 1);
  if (!axis)
    return failure();
  Type index = e.b.getI64Type();
  Value at = e.unsqueeze(e.cast(indices, index), {*axis});
  at = e.select(e.compare(at, 0.0, Predicate::Lt), e.add(at, e.dimScalar(depth, index)), at);
  Dims line(rank + 1, DimExpr(1));
  line[*axis] = depth;
  Value hit = e.compare(at, e.iota(line, *axis, index), Predicate::Eq);
  Value off = e.reshape(e.sliceAxis(values, 0, 0, 1), {}),
        on = e.reshape(e.sliceAxis(values, 0, 1, 1), {});
  return n.done(e.select(hit, on, off));
}

/// Values [size of batch] shaped to broadcast over x along dimension `batch`.
Value along(Emitter &e, Value v, Value x, int64_t batch) {
  if (!v || !x || rankOf(v) != 1)
    return e.fail("one value a batch is needed");
  Dims dims(rankOf(x), DimExpr(1));
  dims[batch] = dimOf(v, 0);
  return e.reshape(v, dims);
}

Value position(Emitter &e, Value x, int64_t axis) {
  Dims dims(rankOf(x), DimExpr(1));
  dims[axis] = dimOf(x, axis);
  return e.iota(dims, axis, e.b.getI64Type());
}

/// The first `length` elements in reverse.
LogicalResult reverseSequence(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t batch = n.intAttr("batch_axis", 1), time = n.intAttr("time_axis", 0);
  if (!x || rankOf(x) < 2 || batch == time || batch < 0 || time < 0 || batch > 1 || time > 1)
    return n.invalid("attribute", "batch_axis and time_axis are 0 and 1, or 1 and 0");
  Value length = along(e, e.cast(n.in(1), e.b.getI64Type()), x, batch), t = position(e, x, time);
  if (!length)
    return failure();
  Value back = e.sub(e.add(length, -1.0), t);
  Value source = e.select(e.compare(t, length, Predicate::Lt), back, t);
  return n.done(e.infer<GatherElementsOp>(x, e.broadcastTo(source, dimsOf(x)), uint64_t(time)));
}

/// past with `update` written from write_indices on, one start a batch.
LogicalResult tensorScatter(Node &n) {
  Emitter &e = n.e;
  Value past = n.in(0), update = n.in(1);
  std::optional<int64_t> axis = past ? n.axis(n.intAttr("axis", -2), rankOf(past)) : std::nullopt;
  if (!axis || !update || rankOf(update) != rankOf(past))
    return failure();
  Type index = e.b.getI64Type();
  Value t = position(e, past, *axis);
  Value start = n.has(2) ? along(e, e.cast(n.in(2), index), past, 0) : e.scalar(0, index);
  Value size = e.dimScalar(dimOf(past, *axis), index),
        count = e.dimScalar(dimOf(update, *axis), index);
  // Distance behind the start; a circular buffer goes on at its beginning.
  Value behind = e.sub(t, start);
  if (n.strAttr("mode", "linear") == "circular")
    behind = e.infer<ModOp>(e.add(behind, size), size);
  Value fresh = e.infer<AndOp>(e.compare(behind, 0.0, Predicate::Ge),
                               e.compare(behind, count, Predicate::Lt));
  if (!fresh)
    return failure();
  Value source = e.broadcastTo(e.select(fresh, behind, e.like(behind, 0)), dimsOf(past));
  Value picked = e.infer<GatherElementsOp>(update, source, uint64_t(*axis));
  return n.done(e.select(fresh, picked, past));
}

LogicalResult compress(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  std::optional<Ints> keep = n.ints(1);
  int64_t axis = 0;
  if (n.hasAttr("axis")) {
    std::optional<int64_t> one = n.axis(n.intAttr("axis", 0), rankOf(x));
    if (!one)
      return failure();
    axis = *one;
  } else {
    x = e.reshape(x, {numElements(x.getType())});
  }
  if (!keep) {
    Value flags = n.in(1);
    if (!flags || rankOf(flags) != 1 || !elementTypeOf(flags).isInteger(1))
      return n.invalid("dtype", "the condition is no vector of bool");
    return n.done(e.infer<GatherOp>(x, placesOf(n, flags).places, uint64_t(axis)));
  }
  Ints indices;
  for (auto [i, flag] : llvm::enumerate(*keep))
    if (flag)
      indices.push_back(i);
  return n.done(e.infer<GatherOp>(x, e.ints(indices, {int64_t(indices.size())}, e.b.getI64Type()),
                                  uint64_t(axis)));
}

} // namespace

void addGathers(Handlers &h) {
  h["Gather"] = gather;
  h["GatherElements"] = gatherElements;
  h["GatherND"] = gatherNd;
  h["ScatterElements"] = scatterElements;
  h["Scatter"] = scatterElements;
  h["ScatterND"] = scatterNd;
  h["OneHot"] = oneHot;
  h["ReverseSequence"] = reverseSequence;
  h["TensorScatter"] = tensorScatter;
  h["Compress"] = compress;
}

} // namespace lathe::legal
