//===- Selection.cpp - elements that are chosen by their values ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An op finds places, gathers bring what is there. How many places there are may be known only when they
// are found: the count is then a size of what follows.
//
//   %v, %i = "onnx.TopK"(%x, %k)   =>   %i = lathe.topk %x
//                                       %v = lathe.gather_elements %x, %i
//
//   %i = "onnx.NonZero"(%x)        =>   %p, %n = lathe.nonzero %x != 0
//                                       lathe.dim_from %n {symbols = ["n"]}
//                                       %i = lathe.slice %p : (tensor<Nxi64>) -> tensor<nxi64>
//
//   %i = "onnx.NonZero"(ones)      =>   %i = indices of all places: exporters write an assignment to a slice so
//
//===----------------------------------------------------------------------===//
#include "Selection.h"

#include "Strings.h"

#include "lathe/ir/Selection.h"

#include <array>
#include <limits>

using namespace mlir;

namespace lathe::legal {

Places placesOf(Node &n, Value flags) {
  Emitter &e = n.e;
  DimExpr length = dimOf(flags, 0);
  Type whole = e.b.getI64Type();
  auto op = NonzeroOp::create(e.b, e.loc, tensorType(whole, {length}), tensorType(whole, ArrayRef<int64_t>{}), flags);
  DimExpr count = n.sizeOf(op.getCount(), length);
  return {e.sliceAxis(op.getPlaces(), 0, 0, count), op.getPlaces(), count};
}

namespace {

/// How many elements are wanted: an attribute before opset 10, then a tensor of one element, which
/// may arrive with the run.
std::optional<DimExpr> wantedOf(Node &n) {
  if (n.numInputs() < 2)
    return DimExpr(n.intAttr("k", -1));
  std::optional<HostValue> k = n.bound(1, 0);
  return k && k->values.size() == 1 ? std::optional(k->values[0]) : std::nullopt;
}

LogicalResult topK(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  std::optional<DimExpr> k = wantedOf(n);
  if (!k)
    return n.unknown({1}, "k");
  DimExpr size = dimOf(x, *axis);
  auto wanted = k->constant(), most = size.constant();
  if (wanted && (*wanted < 0 || (most && *wanted > *most)))
    return n.invalid("shape", "k is " + llvm::Twine(*wanted) + ", but axis " + llvm::Twine(*axis) + " has " +
                                  size.str() + " elements");
  Value places = n.e.infer<TopKOp>(x, uint64_t(*axis), DimAttr::get(n.op->getContext(), *k),
                                   !n.intAttr("largest", 1));
  if (n.wants(0) && failed(n.set(0, n.e.infer<GatherElementsOp>(x, places, uint64_t(*axis)))))
    return failure();
  return n.wants(1) ? n.set(1, places) : success(bool(places));
}

/// The index along each dimension of places in row-major order.
std::vector<Value> indicesOf(Emitter &e, Value places, const Dims &dims) {
  Type whole = e.b.getI64Type();
  std::vector<Value> result(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    Value size = e.dimScalar(dims[d], whole);
    result[d] = d ? e.infer<ModOp>(places, size) : places;
    places = e.div(places, size);
  }
  return result;
}

/// Whether no element is 0, whatever the sizes: one constant, repeated.
bool isFull(Value x) {
  while (Operation *op = x.getDefiningOp()) {
    if (!isa<BroadcastToOp, ReshapeOp>(op)) {
      DenseElementsAttr value;
      if (!matchPattern(op, m_Constant(&value)) || !value.isSplat())
        return false;
      if (isa<FloatType>(value.getElementType()))
        return !value.getSplatValue<APFloat>().isZero();
      return isa<IntegerType>(value.getElementType()) && !value.getSplatValue<APInt>().isZero();
    }
    x = op->getOperand(0);
  }
  return false;
}

LogicalResult nonzero(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  Dims dims = dimsOf(x);
  if (dims.empty())
    dims.push_back(1);
  if (isFull(x)) {
    std::vector<Value> rows;
    for (size_t d = 0; d < dims.size(); ++d)
      rows.push_back(e.reshape(e.iota(dims, d, e.b.getI64Type()), {1, product(dims)}));
    return n.done(e.concat(rows, 0));
  }
  Value set = elementTypeOf(x).isInteger(1) ? x : e.compare(x, 0.0, Predicate::Ne);
  Value flags = e.reshape(set, {numElements(x.getType())});
  if (!flags)
    return failure();
  Places found = placesOf(n, flags);
  std::vector<Value> rows;
  for (Value index : indicesOf(e, found.places, dims))
    rows.push_back(e.unsqueeze(index, {0}));
  return n.done(e.concat(rows, 0));
}

/// The order in which slices along the first axis are sorted, as a stable sort by their last element,
/// then by the one before it, and so on.
Value sortedOrder(Node &n, Value rows) {
  Emitter &e = n.e;
  auto ascending = [&](Value keys) {
    return e.infer<TopKOp>(keys, uint64_t(0), DimAttr::get(n.op->getContext(), dimOf(rows, 0)), true);
  };
  if (rankOf(rows) == 1)
    return ascending(rows);
  Value order;
  for (int64_t column = *dimOf(rows, 1).constant(); column-- > 0;) {
    Value keys = e.reshape(e.sliceAxis(rows, 1, column, 1), {dimOf(rows, 0)});
    Value next = ascending(order ? e.infer<GatherOp>(keys, order, uint64_t(0)) : keys);
    order = order ? e.infer<GatherOp>(order, next, uint64_t(0)) : next;
  }
  return order;
}

/// Sorted, equal neighbours are one; without `sorted` the first of each bring the order back in which
/// they stood.
LogicalResult unique(Node &n) {
  constexpr int64_t kMostColumns = 64; // each is a sort of its own
  Emitter &e = n.e;
  Type whole = e.b.getI64Type();
  Value x = n.in(0);
  if (!x)
    return failure();
  const bool areStrings = n.isStrings(0);
  Value keys = x;
  if (areStrings && n.intAttr("sorted", 1)) { // their numbers say which are equal, not how they are ordered
    auto ranks = hostCall(n, "string.rank", {x.getType()}, {x});
    if (!ranks)
      return failure();
    keys = ranks->front();
  }
  std::optional<int64_t> axis;
  Value rows = keys;
  SmallVector<int64_t> toFront;
  if (n.hasAttr("axis")) {
    axis = n.axis(n.intAttr("axis", 0), rankOf(x));
    if (!axis)
      return failure();
    toFront.push_back(*axis);
    DimExpr rest = 1;
    for (int64_t d = 0; d < rankOf(x); ++d)
      if (d != *axis) {
        toFront.push_back(d);
        rest = rest * dimOf(x, d);
      }
    auto columns = rest.constant();
    if (!columns || *columns < 1 || *columns > kMostColumns)
      return n.fail("shape", "Unique of slices of " + rest.str() + " elements",
                    "slices of a known size, at most " + llvm::Twine(kMostColumns));
    rows = e.reshape(e.transpose(keys, toFront), {dimOf(x, *axis), rest});
    if (rest == DimExpr(1))
      rows = e.reshape(rows, {dimOf(x, *axis)});
  } else {
    rows = e.reshape(keys, {numElements(x.getType())});
  }
  DimExpr size = dimOf(rows, 0);
  Value order = sortedOrder(n, rows);
  Value sorted = e.infer<GatherOp>(rows, order, uint64_t(0));
  Value place = e.iota({size}, 0, whole);
  Value before = e.infer<GatherOp>(sorted, e.max(e.add(place, -1.0), 0.0), uint64_t(0));
  Value differs = e.compare(sorted, before, Predicate::Ne);
  if (isa<FloatType>(elementTypeOf(x))) // NaN are one value
    differs = e.infer<AndOp>(differs, e.unary<NotOp>(e.infer<AndOp>(e.infer<IsNanOp>(sorted), e.infer<IsNanOp>(before))));
  if (differs && rankOf(differs) == 2) {
    Value any = e.reduce(e.cast(differs, e.b.getI32Type()), ReduceKind::Max, {1}, false);
    differs = e.compare(any, 0.0, Predicate::Ne);
  }
  Value starts = e.infer<OrOp>(e.compare(place, 0.0, Predicate::Eq), differs);
  Value group = e.infer<ScanOp>(e.cast(starts, whole), ReduceKind::Sum, uint64_t(0), false, false);
  if (!group)
    return failure();
  group = e.add(group, -1.0);
  Places found = placesOf(n, starts);
  Value index = e.iota({found.count}, 0, whole), last = e.dimScalar(found.count - DimExpr(1), whole);
  Value next = e.infer<GatherOp>(found.all, e.min(e.add(index, 1.0), e.dimScalar(size - DimExpr(1), whole)), uint64_t(0));
  Value ends = e.select(e.compare(index, last, Predicate::Lt), next, e.dimScalar(size, whole));
  Value counts = e.sub(ends, found.places);
  Value firsts = e.infer<GatherOp>(order, found.places, uint64_t(0));
  // Every place is written: what was there does not matter, and memory that is at hand can be written in any order.
  Value inverse = e.infer<ScatterElementsOp>(found.all, order, group, uint64_t(0), ReduceKindAttr());
  if (!n.intAttr("sorted", 1)) {
    Value stood = e.infer<TopKOp>(firsts, uint64_t(0), DimAttr::get(n.op->getContext(), found.count), true);
    Value now = e.infer<ScatterElementsOp>(found.places, stood, index, uint64_t(0), ReduceKindAttr());
    firsts = e.infer<GatherOp>(firsts, stood, uint64_t(0));
    counts = e.infer<GatherOp>(counts, stood, uint64_t(0));
    inverse = e.infer<GatherOp>(now, inverse, uint64_t(0));
  }
  Value values = e.infer<GatherOp>(axis ? x : e.reshape(x, {numElements(x.getType())}), firsts, uint64_t(axis.value_or(0)));
  for (auto [i, result] : llvm::enumerate(std::array{values, firsts, inverse, counts}))
    if (n.wants(i) && failed(i == 0 && areStrings ? n.setStrings(i, result) : n.set(i, result)))
      return failure();
  return success();
}

/// Boxes are ordered by score for each class; those that are kept are counted for each class, and the
/// classes' stand behind each other.
LogicalResult nonMaxSuppression(Node &n) {
  Emitter &e = n.e;
  Type whole = e.b.getI64Type();
  Value boxes = n.in(0), scores = n.in(1);
  if (!boxes || !scores)
    return failure();
  if (rankOf(boxes) != 3 || rankOf(scores) != 3 || elementTypeOf(boxes) != elementTypeOf(scores))
    return n.invalid("shape", "boxes are [batches, boxes, 4], scores [batches, classes, boxes]");
  if (!n.unify(dimOf(boxes, 0), dimOf(scores, 0)) || !n.unify(dimOf(boxes, 1), dimOf(scores, 2)) ||
      !n.unify(dimOf(boxes, 2), 4))
    return n.invalid("shape", "boxes and scores do not fit: boxes are [batches, boxes, 4], scores [batches, classes, boxes]");
  Dims dims = dimsOf(scores);
  auto number = [&](unsigned i, Type type) {
    Value given = n.has(i) ? n.in(i) : e.scalar(0, type);
    return given ? e.cast(e.reshape(given, {}), type) : given;
  };
  Value most = number(2, whole), overlap = number(3, elementTypeOf(boxes));
  Value candidates = e.broadcastTo(e.dimScalar(dims[2], whole), {dims[0], dims[1]}), ranked = scores;
  if (n.has(4)) {
    Value above = e.compare(scores, number(4, elementTypeOf(scores)), Predicate::Gt);
    ranked = e.select(above, scores, e.like(scores, -std::numeric_limits<double>::infinity()));
    candidates = e.reduce(e.cast(above, whole), ReduceKind::Sum, {2}, false);
  }
  Value order = e.infer<TopKOp>(ranked, uint64_t(2), DimAttr::get(n.op->getContext(), dims[2]), false);
  if (!order || !candidates || !most || !overlap)
    return failure();
  auto kept = NmsOp::create(e.b, e.loc, tensorType(whole, dims), tensorType(whole, {dims[0], dims[1]}), boxes, order,
                            candidates, most, overlap, n.intAttr("center_point_box", 0) != 0);
  Value rank = e.iota(dims, 2, whole);
  Value taken = e.compare(rank, e.unsqueeze(kept.getCounts(), {2}), Predicate::Lt);
  DimExpr all = product(dims);
  Value flags = e.reshape(taken, {all});
  if (!flags)
    return failure();
  Places found = placesOf(n, flags);
  std::vector<Value> columns = indicesOf(e, found.places, dims);
  columns[2] = e.infer<GatherOp>(e.reshape(kept.getPlaces(), {all}), found.places, uint64_t(0));
  for (Value &column : columns)
    column = e.unsqueeze(column, {1});
  return n.done(e.concat(columns, 1));
}

} // namespace

void addSelections(Handlers &h) {
  h["TopK"] = topK;
  h["NonZero"] = nonzero;
  h["Unique"] = unique;
  h["NonMaxSuppression"] = nonMaxSuppression;
}

} // namespace lathe::legal
