//===- Movement.cpp - reshape, transpose, concat, expand --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Legalizer.h"

#include <numeric>

using namespace mlir;

namespace lathe::legal {
namespace {

/// A shape that arrives with the run: which element is 0 or -1 is decided then.
LogicalResult reshapeAtRunTime(Node &n, Value x, Dims wanted) {
  Dims from = dimsOf(x), open;
  DimExpr known = 1, opens = 0;
  for (auto [d, size] : llvm::enumerate(wanted)) {
    open.push_back(n.e.provablyNonNegative(size)
                       ? DimExpr(0)
                       : n.derive("open" + llvm::Twine(d), DimExpr::max(0, DimExpr(0) - size), {0, 1}));
    DimExpr copied = 0;
    if (!n.intAttr("allowzero", 0) && d < from.size())
      copied = n.derive("copied" + llvm::Twine(d),
                        DimExpr::max(0, DimExpr(1) - DimExpr::max(size, DimExpr(0) - size)),
                        {0, 1}) *
               from[d];
    // 0 where it is open.
    size = n.derive("known" + llvm::Twine(d), size + open[d] + copied, {0, DimRange::kUnbounded});
    known = known * (size + open[d]);
    opens = opens + open[d];
  }
  n.derive("opens", opens, {0, 1});
  known = n.derive("known", DimExpr::max(known, 1), {0, DimRange::kUnbounded});
  DimExpr rest = n.derive("rest", DimExpr::floorDiv(product(from), known), {0, DimRange::kUnbounded});
  for (auto [size, isOpen] : llvm::zip(wanted, open))
    size = size + isOpen * rest;
  return n.done(n.e.reshape(x, wanted));
}

/// Whether an element of a shape is the size of dimension d whatever the run brings: never -1, and 0 only where that
/// means no elements or where the dimension that 0 copies has the same size, as a count that goes through Shape.
bool isPlainSize(Node &n, const DimExpr &size, size_t d, const Dims &from) {
  return n.e.provablyNonNegative(size) &&
         (n.intAttr("allowzero", 0) || size.range(n.e.ranges).lo > 0 || (d < from.size() && size == from[d]));
}

LogicalResult reshape(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  Dims from = dimsOf(x), wanted;
  if (n.numInputs() > 1) {
    std::optional<HostValue> shape = n.bound(1, -1);
    if (!shape)
      return n.unknown({1}, "a shape");
    wanted = shape->values;
    for (auto [d, size] : llvm::enumerate(wanted))
      if (n.legalizer.isRunTimeValue(size) && !isPlainSize(n, size, d, from))
        return reshapeAtRunTime(n, x, wanted);
  } else if (std::optional<Ints> shape = n.intsAttr("shape")) {
    wanted.assign(shape->begin(), shape->end());
  }
  DimExpr known = 1;
  int open = -1;
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (wanted[d] == DimExpr(0) && !n.intAttr("allowzero", 0)) {
      if (d >= from.size())
        return n.invalid("shape",
                         "size 0 copies dimension " + llvm::Twine(d) + ", which the input lacks");
      wanted[d] = from[d];
    }
    std::optional<int64_t> constant = wanted[d].constant();
    if (constant && *constant < 0) {
      if (*constant != -1 || open >= 0)
        return n.invalid("shape", "the shape has more than one open size or a negative one");
      open = d;
    } else {
      known = known * wanted[d];
    }
  }
  if (open >= 0) {
    DimExpr total = product(from);
    std::optional<DimExpr> rest = total.exactDiv(known);
    if (!rest && known.isConstant() && total.isConstant() && *known.constant() != 0)
      return n.invalid("shape",
                       llvm::Twine(total.str()) + " elements are not a multiple of " + known.str());
    wanted[open] = rest                  ? *rest
                   : known == DimExpr(0) ? DimExpr(0)
                                         : DimExpr::floorDiv(total, known);
  }
  return n.done(n.e.reshape(x, wanted));
}

LogicalResult flatten(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  Dims dims = dimsOf(x);
  int64_t axis = n.intAttr("axis", 1), rank = dims.size();
  axis = axis < 0 ? axis + rank : axis;
  if (axis < 0 || axis > rank)
    return n.invalid("attribute", "axis is outside the rank");
  return n.done(n.e.reshape(x, {product(Dims(dims.begin(), dims.begin() + axis)),
                                product(Dims(dims.begin() + axis, dims.end()))}));
}

/// Axes of Squeeze and Unsqueeze; none when they are not known.
std::optional<Ints> axesOperand(Node &n) {
  return n.numInputs() > 1 && n.has(1) ? n.ints(1) : n.intsAttr("axes");
}

LogicalResult squeeze(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  Dims dims = dimsOf(x), kept;
  std::optional<Ints> given = axesOperand(n);
  if (!given && n.numInputs() > 1 && n.has(1)) {
    std::optional<HostValue> atRunTime = n.bound(1, std::nullopt);
    if (!atRunTime || atRunTime->values.size() > dims.size())
      return n.unknown({1}, "axes");
    Dims named = n.named(atRunTime->values, dims.size());
    for (size_t i = 0; i + atRunTime->values.size() < dims.size(); ++i)
      kept.push_back(n.kept(dims, named, i));
    return n.done(n.e.reshape(x, kept)); // a guard: what is dropped is 1
  }
  std::optional<Ints> axes = given ? n.axes(*given, dims.size()) : Ints();
  if (!axes)
    return failure();
  for (size_t d = 0; d < dims.size(); ++d) {
    bool named = llvm::is_contained(*axes, int64_t(d));
    DimRange range = dims[d].range(n.e.ranges);
    if (!given && !dims[d].isConstant() && range.lo <= 1 && range.hi >= 1) {
      // No --dim can bind a value: a run that would give another rank fails.
      if (n.legalizer.isRunTimeValue(dims[d]) && !n.legalizer.isConditional()) {
        n.demandZero("squeezed" + llvm::Twine(d), equalDims(dims[d], 1));
        emitRemark(n.op->getLoc()) << "Squeeze without axes keeps dimension " << d << " of size " << dims[d].str()
                                   << ", which arrives with the run; a run where it is 1 fails";
        kept.push_back(dims[d]);
        continue;
      }
      return n.fail("shape",
                    "Squeeze without axes of dimension " + llvm::Twine(d) + " of size " + dims[d].str() +
                        ", which may be 1: the rank of the result would follow from the run",
                    "axes, or sizes that are never 1",
                    "name the axes in the model, or bind the size with --dim, to one value or from 2 on");
    }
    if (named && dims[d].isConstant() && dims[d] != DimExpr(1))
      return n.invalid("shape", "dimension " + llvm::Twine(d) + " of size " + dims[d].str() +
                                    " is squeezed");
    if (given ? !named : dims[d] != DimExpr(1))
      kept.push_back(dims[d]);
  }
  return n.done(n.e.reshape(x, kept));
}

/// Size 1 where an axis is named, else the next size of x.
Value unsqueezeAtRunTime(Node &n, Value x, ArrayRef<DimExpr> axes) {
  Dims from = dimsOf(x), named = n.named(axes, from.size() + axes.size()), dims;
  DimExpr taken = 0;
  for (const DimExpr &isNew : named) {
    DimExpr size = isNew;
    for (auto [i, dim] : llvm::enumerate(from))
      size = size + (DimExpr(1) - isNew) * dim *
                        n.derive("at" + llvm::Twine(dims.size()) + "_" + llvm::Twine(i),
                                 equalDims(taken, int64_t(i)), {0, 1});
    taken = taken + DimExpr(1) - isNew;
    dims.push_back(n.derive("dim" + llvm::Twine(dims.size()), size, {0, DimRange::kUnbounded}));
  }
  return n.e.reshape(x, dims);
}

LogicalResult unsqueeze(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> given = axesOperand(n);
  if (!x)
    return failure();
  if (!given) {
    std::optional<HostValue> atRunTime = n.bound(1, std::nullopt);
    if (!atRunTime)
      return n.unknown({1}, "axes");
    return n.done(unsqueezeAtRunTime(n, x, atRunTime->values));
  }
  std::optional<Ints> axes = n.axes(*given, rankOf(x) + given->size());
  return axes ? n.done(n.e.unsqueeze(x, *axes)) : failure();
}

LogicalResult transpose(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  Ints perm(rankOf(x));
  std::iota(perm.rbegin(), perm.rend(), 0);
  return n.done(n.e.transpose(x, n.intsAttr("perm").value_or(perm)));
}

LogicalResult concat(Node &n) {
  std::vector<Value> parts;
  for (unsigned i = 0; i < n.numInputs(); ++i) {
    Value part = n.in(i);
    if (!part)
      return failure();
    parts.push_back(part);
  }
  if (parts.empty())
    return failure();
  std::optional<int64_t> axis = n.axis(n.intAttr("axis", n.opset < 4 ? 1 : 0), rankOf(parts[0]));
  if (!axis)
    return failure();
  for (Value part : parts)
    for (int64_t d = 0; d < rankOf(parts[0]) && d < rankOf(part); ++d)
      if (d != *axis)
        n.unify(dimOf(part, d), dimOf(parts[0], d));
  return n.done(n.e.concat(parts, *axis));
}

LogicalResult expand(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  std::optional<HostValue> shape = n.bound(1, 0);
  if (!shape)
    return n.unknown({1}, "a shape");
  std::optional<Dims> dims = broadcastDims({dimsOf(x), shape->values});
  if (!dims)
    return n.invalid("shape", "the shape does not broadcast with the input");
  // Beside a constant a size that arrives with the run is it or 1.
  for (size_t i = 0; i < shape->values.size() && i < size_t(rankOf(x)); ++i) {
    const DimExpr &wanted = shape->values[shape->values.size() - 1 - i];
    DimExpr own = dimsOf(x)[rankOf(x) - 1 - i];
    if (n.legalizer.isRunTimeValue(wanted) && own.isConstant() && own != DimExpr(1))
      n.demandZero("shape", (wanted - DimExpr(1)) * (wanted - own));
  }
  return n.done(n.e.broadcastTo(x, *dims));
}

LogicalResult tile(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  std::optional<HostValue> repeats = n.bound(1, 0);
  if (!repeats)
    return n.unknown({1}, "repeats");
  Dims dims = dimsOf(x), split, repeated, merged;
  if (repeats->values.size() != dims.size())
    return n.invalid("shape", "one repeat a dimension is needed");
  for (size_t d = 0; d < dims.size(); ++d) {
    const DimExpr &r = repeats->values[d];
    if (r != DimExpr(1)) {
      split.push_back(1);
      repeated.push_back(r);
    }
    split.push_back(dims[d]);
    repeated.push_back(dims[d]);
    merged.push_back(dims[d] * r);
  }
  return n.done(n.e.reshape(n.e.broadcastTo(n.e.reshape(x, split), repeated), merged));
}

LogicalResult depthToSpace(Node &n) {
  Value x = n.in(0);
  int64_t block = n.intAttr("blocksize", 1);
  if (!x || rankOf(x) != 4 || block < 1)
    return n.invalid("shape", "DepthToSpace needs rank 4 and a positive blocksize");
  Dims d = dimsOf(x);
  DimExpr b = block, c = DimExpr::floorDiv(d[1], b * b);
  bool columnFirst = n.strAttr("mode", "DCR") == "CRD";
  Value split = columnFirst ? n.e.reshape(x, {d[0], c, b, b, d[2], d[3]})
                            : n.e.reshape(x, {d[0], b, b, c, d[2], d[3]});
  Value moved = n.e.transpose(split, columnFirst ? Ints{0, 1, 4, 2, 5, 3} : Ints{0, 3, 4, 1, 5, 2});
  return n.done(n.e.reshape(moved, {d[0], c, d[2] * b, d[3] * b}));
}

LogicalResult spaceToDepth(Node &n) {
  Value x = n.in(0);
  int64_t block = n.intAttr("blocksize", 1);
  if (!x || rankOf(x) != 4 || block < 1)
    return n.invalid("shape", "SpaceToDepth needs rank 4 and a positive blocksize");
  Dims d = dimsOf(x);
  DimExpr b = block, h = DimExpr::floorDiv(d[2], b), w = DimExpr::floorDiv(d[3], b);
  Value split = n.e.reshape(x, {d[0], d[1], h, b, w, b});
  Value moved = n.strAttr("mode", "DCR") == "CRD" ? n.e.transpose(split, {0, 1, 3, 5, 2, 4})
                                                  : n.e.transpose(split, {0, 3, 5, 1, 2, 4});
  return n.done(n.e.reshape(moved, {d[0], d[1] * b * b, h, w}));
}

/// Rows and columns of a matrix as two tensors of indices that broadcast.
std::pair<Value, Value> rowsAndColumns(Emitter &e, const DimExpr &rows, const DimExpr &columns,
                                       Type element) {
  return {e.iota({rows, 1}, 0, element), e.iota({1, columns}, 1, element)};
}

LogicalResult eyeLike(Node &n) {
  Value x = n.in(0);
  if (!x || rankOf(x) != 2)
    return n.invalid("shape", "EyeLike needs rank 2");
  Type element =
      n.hasAttr("dtype") ? elementFor(n.op->getContext(), n.intAttr("dtype", 1)) : elementTypeOf(x);
  if (!element)
    return n.fail("dtype", "this element type", "numbers and bool");
  auto [row, column] = rowsAndColumns(n.e, dimOf(x, 0), dimOf(x, 1), n.e.b.getI64Type());
  Value on = n.e.compare(n.e.add(row, double(n.intAttr("k", 0))), column, Predicate::Eq);
  return n.done(n.e.cast(on, element));
}

LogicalResult trilu(Node &n) {
  Value x = n.in(0);
  Emitter &e = n.e;
  if (!x || rankOf(x) < 2)
    return n.invalid("shape", "Trilu needs rank 2 or more");
  Type index = e.b.getI64Type();
  Value shift = n.has(1) ? e.reshape(n.in(1), {}) : e.scalar(0, index);
  auto [row, column] = rowsAndColumns(e, dimOf(x, rankOf(x) - 2), dimOf(x, rankOf(x) - 1), index);
  Value edge = e.add(row, shift);
  Value keep = e.compare(edge, column, n.intAttr("upper", 1) ? Predicate::Le : Predicate::Ge);
  return n.done(e.select(keep, x, e.like(x, 0)));
}

} // namespace

void addMovement(Handlers &h) {
  h["Reshape"] = reshape;
  h["Flatten"] = flatten;
  h["Squeeze"] = squeeze;
  h["Unsqueeze"] = unsqueeze;
  h["Transpose"] = transpose;
  h["Concat"] = concat;
  h["Expand"] = expand;
  h["Tile"] = tile;
  h["DepthToSpace"] = depthToSpace;
  h["SpaceToDepth"] = spaceToDepth;
  h["EyeLike"] = eyeLike;
  h["Trilu"] = trilu;
}

} // namespace lathe::legal
