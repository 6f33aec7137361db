//===- Movement.cpp - views, joins and tensors of one value -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

using namespace mlir;

namespace lathe::legal::aten {
namespace {

/// Anything that leaves elements in order: the result's sizes say it all.
LogicalResult toShape(Node &n) { return n.done(n.e.reshape(n.in(0), resultDims(n))); }
LogicalResult viewed(Node &n) {
  if (!n.op->getAttr("dtype"))
    return toShape(n);
  return n.fail("attribute", "a view of the same bytes as another type",
                "to(dtype), which converts");
}
LogicalResult expand(Node &n) { return n.done(n.e.broadcastTo(n.in(0), resultDims(n))); }
/// Copies and conversions.
LogicalResult convert(Node &n) {
  Value y = castTo(n.e, n.in(0), resultElement(n));
  if (!y || rankOf(y) == int64_t(resultDims(n).size()))
    return n.done(y);
  // From real to complex, which is a pair.
  y = n.e.unsqueeze(y, {rankOf(y)});
  return n.done(n.e.concat({y, n.e.broadcastTo(n.e.like(y, 0), dimsOf(y))}, rankOf(y) - 1));
}
LogicalResult dropout(Node &n) {
  if (flag(n, "train", flag(n, "training")) && number(n, "p", 0) != 0)
    return n.fail("attribute", "dropout that drops", "a module in eval()",
                  "module.eval() before exporting");
  return convert(n);
}
/// copy(self, src): src in self's place.
LogicalResult copy(Node &n) {
  return n.done(n.e.broadcastTo(castTo(n.e, n.in(1), resultElement(n)), resultDims(n)));
}

LogicalResult permute(Node &n) {
  Value x = n.in(0);
  Ints perm = integers(n, "dims");
  if (!x || perm.size() != size_t(rankOf(x)))
    return failure();
  for (int64_t &axis : perm)
    axis += axis < 0 ? rankOf(x) : 0;
  return n.done(n.e.transpose(x, perm));
}

LogicalResult swap(Node &n, StringRef first, StringRef second, int64_t a, int64_t b) {
  Value x = n.in(0);
  if (!x)
    return failure();
  if (rankOf(x) < 2)
    return n.done(x);
  std::optional<int64_t> from = axisOf(n, first, rankOf(x), a),
                         to = axisOf(n, second, rankOf(x), b);
  if (!from || !to)
    return failure();
  Ints perm = axesFrom(0, rankOf(x));
  std::swap(perm[*from], perm[*to]);
  return n.done(n.e.transpose(x, perm));
}
LogicalResult transpose(Node &n) {
  return n.hasAttr("axis0") ? swap(n, "axis0", "axis1", 0, 1) : swap(n, "dim0", "dim1", -2, -1);
}

LogicalResult movedim(Node &n) {
  Value x = n.in(0);
  Ints from = integers(n, "source"), to = integers(n, "destination");
  if (!x || from.size() != to.size())
    return failure();
  int64_t rank = rankOf(x);
  Ints perm(rank, -1);
  for (size_t i = 0; i < from.size(); ++i)
    perm[to[i] < 0 ? to[i] + rank : to[i]] = from[i] < 0 ? from[i] + rank : from[i];
  int64_t next = 0;
  for (int64_t &axis : perm) {
    if (axis >= 0)
      continue;
    while (llvm::is_contained(perm, next))
      ++next;
    axis = next;
  }
  return n.done(n.e.transpose(x, perm));
}

/// A position that may count from the end, no further than the ends.
DimExpr position(Node &n, const DimExpr &at, const DimExpr &size) {
  if (std::optional<int64_t> constant = at.constant())
    return *constant < 0 ? n.e.clampAtZero(size + at) : n.e.minOf(at, size);
  return n.e.provablyNonNegative(at) ? n.e.minOf(at, size) : at;
}

LogicalResult slice(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  if (!axis)
    return failure();
  Dims starts(rankOf(x), DimExpr(0)), to = resultDims(n);
  Ints steps(rankOf(x), 1);
  starts[*axis] = position(n, size(n, "start").value_or(DimExpr(0)), dimOf(x, *axis));
  steps[*axis] = integer(n, "step").value_or(1);
  return n.done(n.e.slice(x, starts, to, steps));
}

LogicalResult select(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  std::optional<DimExpr> index = size(n, "index");
  if (!axis || !index)
    return failure();
  DimExpr at = position(n, *index, dimOf(x, *axis));
  return n.done(n.e.reshape(n.e.sliceAxis(x, *axis, at, 1), resultDims(n)));
}

/// All results lie behind each other along the axis.
LogicalResult split(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  if (!axis)
    return failure();
  DimExpr at = 0;
  for (unsigned i = 0; i < n.numOutputs(); ++i) {
    DimExpr width = resultDims(n, i)[*axis];
    if (failed(n.set(i, n.e.sliceAxis(x, *axis, at, width))))
      return failure();
    at = at + width;
  }
  return success();
}
LogicalResult unbind(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), 0) : std::nullopt;
  if (!axis)
    return failure();
  for (unsigned i = 0; i < n.numOutputs(); ++i)
    if (failed(n.set(i, n.e.reshape(n.e.sliceAxis(x, *axis, i, 1), resultDims(n, i)))))
      return failure();
  return success();
}

LogicalResult cat(Node &n) {
  Dims to = resultDims(n);
  std::optional<int64_t> axis = axisOf(n, "dim", to.size(), 0);
  if (!axis)
    return failure();
  std::vector<Value> parts;
  for (unsigned i = 0; i < n.numInputs(); ++i) {
    Value part = n.in(i);
    // An empty vector joins anything.
    if (part && rankOf(part) == 1 && dimOf(part, 0) == DimExpr(0) && to.size() != 1)
      continue;
    parts.push_back(castTo(n.e, part, resultElement(n)));
  }
  return n.done(n.e.concat(parts, *axis));
}
LogicalResult stack(Node &n) {
  std::optional<int64_t> axis = axisOf(n, "dim", resultDims(n).size(), 0);
  if (!axis)
    return failure();
  std::vector<Value> parts;
  for (unsigned i = 0; i < n.numInputs(); ++i)
    parts.push_back(n.e.unsqueeze(castTo(n.e, n.in(i), resultElement(n)), {*axis}));
  return n.done(n.e.concat(parts, *axis));
}

/// [a, b] r times each is [1, a, 1, b] as [r, a, r, b].
LogicalResult repeat(Node &n) {
  Value x = n.in(0);
  std::optional<Dims> times = sizes(n, n.hasAttr("repeats") ? "repeats" : "dims");
  if (!x || !times)
    return failure();
  Dims dims = dimsOf(x), apart, wide;
  while (times->size() < dims.size())
    times->insert(times->begin(), DimExpr(1));
  dims.insert(dims.begin(), times->size() - dims.size(), DimExpr(1));
  for (auto [size, count] : llvm::zip(dims, *times)) {
    apart.insert(apart.end(), {DimExpr(1), size});
    wide.insert(wide.end(), {count, size});
  }
  return n.done(n.e.reshape(n.e.broadcastTo(n.e.reshape(x, apart), wide), resultDims(n)));
}
LogicalResult repeatInterleave(Node &n) {
  Value x = n.in(0);
  std::optional<DimExpr> times = size(n, "repeats");
  if (!x || !times)
    return n.fail("op", "repeats that are a tensor", "one number of repeats");
  if (!n.hasAttr("dim"))
    x = n.e.reshape(x, {numElements(x.getType())});
  std::optional<int64_t> axis = axisOf(n, "dim", rankOf(x), 0);
  if (!axis)
    return failure();
  Dims apart = dimsOf(x);
  apart.insert(apart.begin() + *axis + 1, DimExpr(1));
  Dims wide = apart;
  wide[*axis + 1] = *times;
  return n.done(n.e.reshape(n.e.broadcastTo(n.e.reshape(x, apart), wide), resultDims(n)));
}

LogicalResult flip(Node &n) {
  Value x = n.in(0);
  std::optional<Ints> axes = x ? n.axes(integers(n, "dims"), rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  Dims starts(rankOf(x), DimExpr(0));
  Ints steps(rankOf(x), 1);
  for (int64_t axis : *axes) {
    starts[axis] = dimOf(x, axis) - DimExpr(1);
    steps[axis] = -1;
  }
  return n.done(n.e.slice(x, starts, dimsOf(x), steps));
}
LogicalResult roll(Node &n) {
  Value x = n.in(0);
  Ints shifts = integers(n, "shifts"), axes = integers(n, "dims");
  Dims whole = x ? dimsOf(x) : Dims();
  if (x && axes.empty()) {
    x = n.e.reshape(x, {numElements(x.getType())});
    axes = {0};
  }
  if (!x || shifts.size() != axes.size())
    return failure();
  for (auto [shift, given] : llvm::zip(shifts, axes)) {
    std::optional<int64_t> axis = n.axis(given, rankOf(x));
    if (!axis)
      return failure();
    DimExpr size = dimOf(x, *axis), by = shift;
    if (size.isConstant() && *size.constant() > 0)
      by = ((shift % *size.constant()) + *size.constant()) % *size.constant();
    else if (shift < 0)
      by = size + by;
    x = n.e.concat({n.e.sliceAxis(x, *axis, size - by, by), n.e.sliceAxis(x, *axis, 0, size - by)},
                   *axis);
  }
  return n.done(n.e.reshape(x, whole));
}

template <bool Upper> LogicalResult triangle(Node &n) {
  Value k = n.e.scalar(double(integer(n, "diagonal").value_or(0)), n.e.b.getI64Type());
  return n.done(onnx(n, "Trilu", {n.in(0), k}, {attr(n, "upper", Upper)}));
}

/// Pads are pairs from the last dimension on.
LogicalResult pad(Node &n) {
  Value x = n.in(0);
  std::optional<Dims> pads = sizes(n, n.hasAttr("pad") ? "pad" : "padding");
  std::string mode =
      n.strAttr("mode", n.type == "reflection_pad1d" || n.type == "reflection_pad2d" ? "reflect"
                        : n.type.starts_with("replication")                          ? "replicate"
                                                                                     : "constant");
  if (!x || !pads || pads->size() % 2 || int64_t(pads->size()) > 2 * rankOf(x))
    return failure();
  std::optional<PadMode> kind = mode == "constant"    ? std::optional(PadMode::Constant)
                                : mode == "reflect"   ? std::optional(PadMode::Reflect)
                                : mode == "replicate" ? std::optional(PadMode::Edge)
                                : mode == "circular"  ? std::optional(PadMode::Wrap)
                                                      : std::nullopt;
  if (!kind)
    return n.fail("attribute", "pad mode " + llvm::Twine(mode));
  Dims low(rankOf(x), DimExpr(0)), high = low;
  for (size_t i = 0; i < pads->size() / 2; ++i) {
    low[rankOf(x) - 1 - i] = (*pads)[2 * i];
    high[rankOf(x) - 1 - i] = (*pads)[2 * i + 1];
  }
  return n.done(n.e.pad(x, n.e.like(x, number(n, "value", 0)), low, high, *kind));
}

/// start + i * step
LogicalResult arange(Node &n) {
  Type element = resultElement(n);
  if (!element)
    return failure();
  Type inner = isFloat(element) ? element : n.e.b.getI64Type();
  Value y = n.e.cast(n.e.iota(resultDims(n), 0, n.e.b.getI64Type()), inner);
  if (n.hasAttr("step") && number(n, "step", 1) != 1)
    y = n.e.mul(y, scalar(n, "step", inner));
  if (n.hasAttr("start") && (number(n, "start", 0) != 0 || !integer(n, "start")))
    y = n.e.add(y, scalar(n, "start", inner));
  return n.done(n.e.cast(y, element));
}

/// Each element less the one ahead of it; of bools whether they differ.
LogicalResult diff(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), -1) : std::nullopt;
  if (!axis)
    return failure();
  std::vector<Value> parts = {x};
  if (n.has(1))
    parts.insert(parts.begin(), n.in(1));
  if (n.has(2))
    parts.push_back(n.in(2));
  x = e.concat(parts, *axis);
  for (int64_t i = integer(n, "n").value_or(1); x && i > 0; --i) {
    DimExpr size = dimOf(x, *axis) - DimExpr(1);
    Value next = e.sliceAxis(x, *axis, 1, size), last = e.sliceAxis(x, *axis, 0, size);
    x = elementTypeOf(x).isInteger(1) ? e.infer<XorOp>(next, last) : e.sub(next, last);
  }
  return n.done(x);
}

/// Vectors as grids of all their pairs.
LogicalResult meshgrid(Node &n) {
  bool swapped = n.strAttr("indexing", "ij") == "xy";
  for (unsigned i = 0; i < n.numOutputs(); ++i) {
    Dims to = resultDims(n, i), line(to.size(), DimExpr(1));
    unsigned axis = swapped && i < 2 ? 1 - i : i;
    if (axis >= line.size())
      return failure();
    line[axis] = to[axis];
    if (failed(n.set(i, n.e.broadcastTo(n.e.reshape(n.in(i), line), to))))
      return failure();
  }
  return success();
}

LogicalResult filled(Node &n, Value value) { return n.done(n.e.broadcastTo(value, resultDims(n))); }
template <int Number> LogicalResult constant(Node &n) {
  return filled(n, n.e.scalar(Number, resultElement(n)));
}
LogicalResult full(Node &n) {
  StringRef name = n.hasAttr("fill_value") ? "fill_value" : n.hasAttr("s") ? "s" : "value";
  // fill.Tensor has the value as its second tensor.
  Value value =
      n.has(1) ? castTo(n.e, n.in(1), resultElement(n)) : scalar(n, name, resultElement(n));
  return filled(n, value);
}

/// x[n, c * r * r, h, w] -> [n, c, h * r, w * r]
LogicalResult pixelShuffle(Node &n) {
  return n.done(onnx(
      n, "DepthToSpace", {n.in(0)},
      {attr(n, "blocksize", integer(n, "upscale_factor").value_or(1)), text(n, "mode", "CRD")}));
}
LogicalResult pixelUnshuffle(Node &n) {
  Value x = n.in(0);
  int64_t r = integer(n, "downscale_factor").value_or(1);
  if (!x || rankOf(x) != 4)
    return n.fail("shape", "pixel_unshuffle of a rank other than 4", "images [N, C, H, W]");
  Dims d = dimsOf(x), to = resultDims(n);
  Value apart = n.e.reshape(x, {d[0], d[1], to[2], r, to[3], r});
  return n.done(n.e.reshape(n.e.transpose(apart, {0, 1, 3, 5, 2, 4}), to));
}

/// The diagonal of two axes becomes the last axis: elements i and i + offset.
LogicalResult diagonal(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> a = x ? axisOf(n, "dim1", rankOf(x), 0) : std::nullopt,
                         b = x ? axisOf(n, "dim2", rankOf(x), 1) : std::nullopt;
  if (!a || !b)
    return failure();
  Ints perm;
  for (int64_t d = 0; d < rankOf(x); ++d)
    if (d != *a && d != *b)
      perm.push_back(d);
  perm.insert(perm.end(), {*a, *b});
  x = n.e.transpose(x, perm);
  int64_t offset = integer(n, "offset").value_or(0), rank = perm.size();
  Dims to = resultDims(n), line(rank, DimExpr(1)), square = to;
  if (!x)
    return failure();
  x = n.e.sliceAxis(x, rank - 2, std::max<int64_t>(0, -offset), to.back());
  square.push_back(1);
  line[rank - 2] = to.back();
  Value at =
      n.e.add(n.e.iota(line, rank - 2, n.e.b.getI64Type()), double(std::max<int64_t>(0, offset)));
  return n.done(n.e.reshape(
      n.e.infer<GatherElementsOp>(x, n.e.broadcastTo(at, square), uint64_t(rank - 1)), to));
}

} // namespace

void addMovement(Handlers &h) {
  for (StringRef name : {"reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze",
                         "view_as", "ravel", "_reshape_alias", "atleast_1d"})
    h[("aten." + name).str()] = toShape;
  h["aten.view"] = viewed;
  h["aten.expand"] = h["aten.expand_as"] = h["aten.broadcast_to"] = expand;
  for (StringRef name :
       {"clone",      "contiguous",   "alias",       "detach",         "detach_", "lift_fresh_copy",
        "lift_fresh", "lift",         "to",          "_to_copy",       "type_as", "float",
        "half",       "bfloat16",     "double",      "long",           "int",     "bool",
        "positive",   "resolve_conj", "resolve_neg", "requires_grad_", "conj"})
    h[("aten." + name).str()] = convert;
  h["aten.dropout"] = h["aten.native_dropout"] = h["aten.feature_dropout"] =
      h["aten.alpha_dropout"] = dropout;
  h["aten.copy"] = copy;
  h["aten.permute"] = permute;
  for (StringRef name : {"transpose", "t", "numpy_T", "mT", "swapaxes", "swapdims", "adjoint"})
    h[("aten." + name).str()] = transpose;
  h["aten.movedim"] = h["aten.moveaxis"] = movedim;
  h["aten.slice"] = h["aten.narrow"] = slice;
  h["aten.select"] = select;
  h["aten.split"] = h["aten.split_with_sizes"] = h["aten.chunk"] = h["aten.tensor_split"] = split;
  h["aten.unsafe_split"] = h["aten.unsafe_chunk"] = split;
  h["aten.unbind"] = unbind;
  h["aten.cat"] = h["aten.concat"] = h["aten.concatenate"] = cat;
  h["aten.stack"] = stack;
  h["aten.repeat"] = h["aten.tile"] = repeat;
  h["aten.repeat_interleave"] = repeatInterleave;
  h["aten.flip"] = flip;
  h["aten.roll"] = roll;
  h["aten.tril"] = triangle<false>;
  h["aten.triu"] = triangle<true>;
  for (StringRef name : {"pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d",
                         "replication_pad1d", "replication_pad2d", "replication_pad3d"})
    h[("aten." + name).str()] = pad;
  h["aten.arange"] = arange;
  for (StringRef name :
       {"zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "zero"})
    h[("aten." + name).str()] = constant<0>;
  h["aten.ones"] = h["aten.ones_like"] = h["aten.new_ones"] = constant<1>;
  h["aten.full"] = h["aten.full_like"] = h["aten.new_full"] = h["aten.fill"] =
      h["aten.scalar_tensor"] = full;
  h["aten.diff"] = diff;
  h["aten.meshgrid"] = meshgrid;
  h["aten.pixel_shuffle"] = pixelShuffle;
  h["aten.pixel_unshuffle"] = pixelUnshuffle;
  h["aten.diagonal"] = diagonal;
}

} // namespace lathe::legal::aten
