//===- Gather.cpp - elements by their index ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

using namespace mlir;

namespace lathe::legal::aten {
namespace {

LogicalResult embedding(Node &n) {
  return n.done(onnx(n, "Gather", {n.in(0), n.in(1)}, {attr(n, "axis", 0)}));
}

LogicalResult indexSelect(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  return axis ? n.done(n.e.reshape(onnx(n, "Gather", {x, n.in(1)}, {attr(n, "axis", *axis)}),
                                   resultDims(n)))
              : failure();
}

LogicalResult gather(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  return axis ? n.done(n.e.infer<GatherElementsOp>(x, n.in(1), uint64_t(*axis))) : failure();
}

/// The index may be smaller than the source: its sizes count.
Value cutTo(Node &n, Value source, Value index) {
  if (!source || !index || rankOf(source) != rankOf(index))
    return source;
  return n.e.slice(source, Dims(rankOf(index), DimExpr(0)), dimsOf(index), Ints(rankOf(index), 1));
}

LogicalResult scatter(Node &n) {
  Value x = n.in(0), index = n.in(1);
  std::optional<int64_t> axis = x && index ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  if (!axis)
    return failure();
  Value source = n.has(2) ? cutTo(n, n.in(2), index)
                          : n.e.broadcastTo(scalar(n, "value", elementTypeOf(x)), dimsOf(index));
  std::string how = n.type.starts_with("scatter_add") ? "sum" : n.strAttr("reduce", "");
  StringRef reduction = how.empty()                          ? "none"
                        : how == "sum" || how == "add"       ? "add"
                        : how == "prod" || how == "multiply" ? "mul"
                        : how == "amax"                      ? "max"
                        : how == "amin"                      ? "min"
                                                             : "";
  if (reduction.empty() || !flag(n, "include_self", true))
    return n.fail("attribute", "scatter that reduces by '" + llvm::Twine(how) + "'",
                  "sum, prod, amax, amin over self");
  return n.done(onnx(n, "ScatterElements", {x, index, source},
                     {attr(n, "axis", *axis), text(n, "reduction", reduction)}));
}

/// x[:, i, :, j]: the tensors that index, of one broadcast shape, with their axes in front.
struct Indexed {
  Ints perm;     ///< of x: the axes that are indexed, then the others
  Value places;  ///< [shape..., axes]
  Dims shape;    ///< of each index
  int64_t ahead; ///< axes in front of those that the shape takes the place of
};
std::optional<Indexed> indices(Node &n, Value x, unsigned argument) {
  Emitter &e = n.e;
  auto [begin, count] = segment(n, argument);
  Indexed r{{}, {}, {}, 0};
  std::vector<Value> tensors;
  std::vector<Dims> shapes;
  bool together = true;
  for (unsigned i = 0; i < count; ++i) {
    if (!n.has(begin + i))
      continue;
    Value index = n.in(begin + i);
    if (!index)
      return std::nullopt;
    if (elementTypeOf(index).isInteger(1)) {
      (void)n.fail("dtype", "an index by a mask, of a size that the run counts",
                   "where() over the whole tensor");
      return std::nullopt;
    }
    together &= r.perm.empty() || r.perm.back() + 1 == int64_t(i);
    r.perm.push_back(i);
    tensors.push_back(e.cast(index, e.b.getI64Type()));
    shapes.push_back(dimsOf(index));
  }
  std::optional<Dims> shape = broadcastDims(shapes);
  if (!shape || tensors.empty() || r.perm.back() >= rankOf(x)) {
    (void)n.invalid("shape", "the indices do not broadcast, or are too many");
    return std::nullopt;
  }
  r.shape = *shape;
  r.ahead = together ? r.perm.front() : 0;
  for (int64_t d = 0; d < rankOf(x); ++d)
    if (!llvm::is_contained(r.perm, d))
      r.perm.push_back(d);
  for (Value &tensor : tensors)
    tensor = e.unsqueeze(e.broadcastTo(tensor, r.shape), {int64_t(r.shape.size())});
  r.places = e.concat(tensors, r.shape.size());
  return r;
}
unsigned indexCount(Node &n, unsigned argument, unsigned &at) {
  auto [begin, count] = segment(n, argument);
  unsigned found = 0;
  for (unsigned i = 0; i < count; ++i)
    if (n.has(begin + i)) {
      at = i;
      ++found;
    }
  return found;
}

LogicalResult index(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  unsigned axis = 0, begin = segment(n, 1).first;
  if (indexCount(n, 1, axis) == 1 && !n.element(begin + axis).isInteger(1))
    return n.done(onnx(n, "Gather", {x, n.in(begin + axis)}, {attr(n, "axis", int64_t(axis))}));
  std::optional<Indexed> r = indices(n, x, 1);
  if (!r)
    return failure();
  Value y = onnx(n, "GatherND", {n.e.transpose(x, r->perm), r->places});
  // [shape, others] -> [ahead, shape, behind]
  int64_t width = r->shape.size();
  Ints perm;
  for (int64_t i = 0; i < r->ahead; ++i)
    perm.push_back(width + i);
  for (int64_t i = 0; i < width; ++i)
    perm.push_back(i);
  for (int64_t i = width + r->ahead; y && i < rankOf(y); ++i)
    perm.push_back(i);
  return n.done(n.e.transpose(y, perm));
}

LogicalResult indexPut(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto [begin, count] = segment(n, 1);
  unsigned axis = 0, at = begin + count;
  if (!x)
    return failure();
  Value values = castTo(e, n.in(at), elementTypeOf(x));
  if (indexCount(n, 1, axis) == 1 && axis == 0 && n.element(begin).isInteger(1) && values &&
      numElements(values.getType()) == DimExpr(1) && !flag(n, "accumulate")) {
    // One value where the mask holds.
    Value mask = n.in(begin);
    Dims dims = dimsOf(mask);
    dims.resize(rankOf(x), DimExpr(1));
    return n.done(e.select(e.reshape(mask, dims), e.reshape(values, {}), x));
  }
  std::optional<Indexed> r = indices(n, x, 1);
  if (!r || !values)
    return failure();
  if (r->ahead)
    return n.fail("shape", "index_put behind a whole dimension", "indices of the first dimensions");
  Dims to = r->shape, dims = dimsOf(x);
  size_t indexed = *dimOf(r->places, rankOf(r->places) - 1).constant();
  for (size_t i = indexed; i < r->perm.size(); ++i)
    to.push_back(dims[r->perm[i]]);
  Ints back(r->perm.size());
  for (size_t i = 0; i < r->perm.size(); ++i)
    back[r->perm[i]] = i;
  Value y = onnx(n, "ScatterND", {e.transpose(x, r->perm), r->places, e.broadcastTo(values, to)},
                 {text(n, "reduction", flag(n, "accumulate") ? "add" : "none")});
  return n.done(e.transpose(y, back));
}

/// index_add, index_copy and index_fill: whole slices.
template <bool Add> LogicalResult indexSlices(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), at = n.in(1);
  std::optional<int64_t> axis = x && at ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  if (!axis)
    return failure();
  Dims dims = dimsOf(x), line(rankOf(x), DimExpr(1));
  line[*axis] = numElements(at.getType());
  dims[*axis] = line[*axis];
  Value source =
      n.has(2) ? castTo(e, n.in(2), elementTypeOf(x)) : scalar(n, "value", elementTypeOf(x));
  if (Add && number(n, "alpha", 1) != 1)
    source = e.mul(source, number(n, "alpha", 1));
  return n.done(onnx(n, "ScatterElements",
                     {x, e.broadcastTo(e.reshape(at, line), dims), e.broadcastTo(source, dims)},
                     {attr(n, "axis", *axis), text(n, "reduction", Add ? "add" : "none")}));
}

/// select_scatter and slice_scatter: x with a part replaced.
LogicalResult replacePart(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), source = n.in(1);
  std::optional<int64_t> axis = x && source ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  if (!axis)
    return failure();
  if (integer(n, "step").value_or(1) != 1)
    return n.fail("attribute", "a part with steps", "step = 1");
  DimExpr size_ = dimOf(x, *axis);
  DimExpr start = size(n, n.hasAttr("index") ? "index" : "start").value_or(DimExpr(0));
  if (start.isConstant() && *start.constant() < 0)
    start = start + size_;
  if (n.hasAttr("index"))
    source = e.unsqueeze(source, {*axis});
  DimExpr width = dimOf(source, *axis);
  std::vector<Value> parts;
  if (start != DimExpr(0))
    parts.push_back(e.sliceAxis(x, *axis, 0, start));
  parts.push_back(castTo(e, source, elementTypeOf(x)));
  if (start + width != size_)
    parts.push_back(e.sliceAxis(x, *axis, start + width, size_ - start - width));
  return n.done(e.concat(parts, *axis));
}

LogicalResult oneHot(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  Dims to = resultDims(n), line(to.size(), DimExpr(1));
  if (!x || to.empty())
    return failure();
  line.back() = to.back();
  Value hit = e.compare(e.unsqueeze(x, {rankOf(x)}), e.iota(line, to.size() - 1, elementTypeOf(x)),
                        Predicate::Eq);
  return n.done(e.cast(hit, resultElement(n)));
}

/// Windows of `size` elements, a `step` apart along an axis; the places in a window are the last axis.
LogicalResult unfold(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dimension", rankOf(x), 0) : std::nullopt;
  std::optional<DimExpr> step = size(n, "step");
  if (!axis || !step)
    return failure();
  if (rankOf(x) == 0)
    x = e.reshape(x, {1});
  Dims to = resultDims(n);
  Type index = e.b.getI64Type();
  Value place = e.add(e.mul(e.iota({to[*axis], 1}, 0, index), e.dimScalar(*step, index)),
                      e.iota({1, to.back()}, 1, index));
  Value y = e.infer<GatherOp>(x, place, uint64_t(*axis)); // [..., windows, size, ...]
  Ints perm = axesFrom(0, rankOf(x) + 1);
  perm.erase(perm.begin() + *axis + 1);
  perm.push_back(*axis + 1);
  return n.done(e.reshape(e.transpose(y, perm), to));
}

} // namespace

void addGathers(Handlers &h) {
  h["aten.embedding"] = embedding;
  h["aten.index_select"] = indexSelect;
  h["aten.gather"] = h["aten.take_along_dim"] = gather;
  h["aten.scatter"] = h["aten.scatter_add"] = h["aten.scatter_reduce"] = scatter;
  h["aten.index"] = index;
  h["aten.index_put"] = h["aten._unsafe_index_put"] = indexPut;
  h["aten._unsafe_index"] = index;
  h["aten.index_add"] = indexSlices<true>;
  h["aten.index_copy"] = h["aten.index_fill"] = indexSlices<false>;
  h["aten.select_scatter"] = h["aten.slice_scatter"] = replacePart;
  h["aten.one_hot"] = oneHot;
  h["aten.unfold"] = unfold;
}

} // namespace lathe::legal::aten
