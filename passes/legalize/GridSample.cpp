//===- GridSample.cpp - interpolation at given places -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each place reads a few neighbours: gathers from the flattened image, weighted by
// the distance along each axis. DeformConv reads its windows so, too.
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"

using namespace mlir;

namespace lathe::legal {
namespace {

struct Sampler {
  Node &n;
  Emitter &e;
  Value image;                ///< [N, C, sizes...], or [N, sizes..., C] with `channelsLast`
  std::vector<DimExpr> sizes; ///< spatial
  DimExpr points;             ///< places of one image
  std::string padding;
  bool corners;
  bool channelsLast = false;

  /// One value a place as one a pixel that is read there.
  Value forChannels(Value ofPlaces) { return e.unsqueeze(ofPlaces, {channelsLast ? 2 : 1}); }

  Value size(size_t axis, double plus = 0) {
    Value s = e.dimScalar(sizes[axis], e.b.getF32Type());
    return plus == 0 ? s : e.add(s, plus);
  }

  /// [-1, 1] to the index of a pixel.
  Value denormalize(Value g, size_t axis) {
    if (corners)
      return e.mul(e.mul(e.add(g, 1.0), 0.5), size(axis, -1));
    return e.mul(e.add(e.mul(e.add(g, 1.0), size(axis)), -1.0), 0.5);
  }

  /// Mirrors a place at the borders until it lies inside.
  Value reflect(Value x, size_t axis) {
    Value low = e.like(x, corners ? 0 : -0.5), span = corners ? size(axis, -1) : size(axis);
    // One pixel alone mirrors onto itself.
    span = e.max(span, 1e-30);
    Value from = e.unary<AbsOp>(e.sub(x, low));
    Value turns = e.unary<FloorOp>(e.div(from, span));
    Value rest = e.sub(from, e.mul(turns, span));
    Value odd = e.compare(e.infer<ModOp>(turns, e.like(turns, 2), true), 1.0, Predicate::Eq);
    return e.select(odd, e.sub(e.add(low, span), rest), e.add(low, rest));
  }

  /// The pixels at whole places, one coordinate [N, P] an axis: [N, C, P], or [N, P, C] with `channelsLast`.
  Value read(ArrayRef<Value> at) {
    Value linear, inside;
    Type index = e.b.getI64Type();
    for (auto [axis, place] : llvm::enumerate(at)) {
      Value x = place;
      if (padding == "reflection")
        x = e.unary<RoundOp>(reflect(x, axis));
      Value held = e.min(e.max(x, 0.0), size(axis, -1));
      Value ok = e.compare(held, x, Predicate::Eq);
      inside = inside ? e.infer<AndOp>(inside, ok) : ok;
      Value i = e.cast(held, index);
      linear = linear ? e.add(e.mul(linear, e.dimScalar(sizes[axis], index)), i) : i;
    }
    if (!linear || !inside)
      return {};
    DimExpr images = dimOf(image, 0), area = product(sizes);
    Value pixels;
    if (channelsLast) { // all channels of a pixel at once
      if (images != DimExpr(1))
        linear = e.add(linear, e.mul(e.iota({images, DimExpr(1)}, 0, index), e.dimScalar(area, index)));
      pixels = e.infer<GatherOp>(e.reshape(image, {images * area, dimOf(image, rankOf(image) - 1)}), linear, uint64_t(0));
    } else {
      DimExpr channels = dimOf(image, 1);
      Value indices = e.broadcastTo(e.unsqueeze(linear, {1}), {images, channels, points});
      pixels = e.infer<GatherElementsOp>(e.reshape(image, {images, channels, area}), indices, uint64_t(2));
    }
    return padding == "zeros" ? e.select(forChannels(inside), pixels, e.like(pixels, 0)) : pixels;
  }

  /// Sum over all combinations of neighbours, one offset and weight an axis.
  Value blend(ArrayRef<std::vector<std::pair<Value, Value>>> neighbours) {
    Value sum;
    std::vector<size_t> pick(neighbours.size(), 0);
    while (true) {
      std::vector<Value> at;
      Value weight;
      for (size_t axis = 0; axis < pick.size(); ++axis) {
        auto [place, w] = neighbours[axis][pick[axis]];
        at.push_back(place);
        weight = !weight ? w : w ? e.mul(weight, w) : weight;
      }
      Value part = read(at);
      if (weight && part)
        part = e.mul(part, e.cast(forChannels(weight), elementTypeOf(part)));
      sum = sum ? e.add(sum, part) : part;
      size_t axis = 0;
      while (axis < pick.size() && ++pick[axis] == neighbours[axis].size())
        pick[axis++] = 0;
      if (axis == pick.size() || !sum)
        return sum;
    }
  }
};

/// Keys' cubic with a = -0.75, at distance d from the place.
Value cubicWeight(Emitter &e, Value d, bool near) {
  constexpr double a = -0.75;
  if (near) // ((a + 2) d - (a + 3)) d^2 + 1
    return e.add(e.mul(e.mul(e.add(e.mul(d, a + 2), -(a + 3)), d), d), 1.0);
  // ((a d - 5a) d + 8a) d - 4a
  return e.add(e.mul(e.add(e.mul(e.add(e.mul(d, a), -5 * a), d), 8 * a), d), -4 * a);
}

LogicalResult gridSample(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), grid = n.in(1);
  if (!x || !grid || rankOf(x) < 3 || rankOf(grid) != rankOf(x))
    return n.invalid("shape", "input and grid have one rank of 3 or more");
  int64_t spatial = rankOf(x) - 2;
  if (!n.unify(dimOf(grid, spatial + 1), spatial))
    return n.invalid("shape", "the grid has one coordinate a spatial dimension");
  Dims image = dimsOf(x), places = dimsOf(grid);
  Sampler s{n,
            e,
            x,
            Dims(image.begin() + 2, image.end()),
            product(Dims(places.begin() + 1, places.end() - 1)),
            n.strAttr("padding_mode", "zeros"),
            bool(n.intAttr("align_corners", 0))};
  std::string mode = n.strAttr("mode", "linear");
  mode = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
  Value flat = e.cast(e.reshape(grid, {places[0], s.points, DimExpr(spatial)}), e.b.getF32Type());
  std::vector<std::vector<std::pair<Value, Value>>> neighbours;
  for (int64_t axis = 0; axis < spatial; ++axis) {
    // The last coordinate belongs to the first spatial dimension.
    Value g = e.reshape(e.sliceAxis(flat, 2, spatial - 1 - axis, 1), {places[0], s.points});
    Value at = s.denormalize(g, axis);
    if (mode != "cubic" && s.padding == "border")
      at = e.min(e.max(at, 0.0), s.size(axis, -1));
    if (mode != "cubic" && s.padding == "reflection")
      at = e.min(e.max(s.reflect(at, axis), 0.0), s.size(axis, -1));
    if (!at)
      return failure();
    if (mode == "nearest") {
      neighbours.push_back({{e.unary<RoundOp>(at), Value()}});
      continue;
    }
    Value left = e.unary<FloorOp>(at), d = e.sub(at, left);
    Value rest = e.sub(e.like(d, 1), d);
    if (mode == "linear")
      neighbours.push_back({{left, rest}, {e.add(left, 1.0), d}});
    else
      neighbours.push_back({{e.add(left, -1.0), cubicWeight(e, e.add(d, 1.0), false)},
                            {left, cubicWeight(e, d, true)},
                            {e.add(left, 1.0), cubicWeight(e, rest, true)},
                            {e.add(left, 2.0), cubicWeight(e, e.add(rest, 1.0), false)}});
  }
  Value y = s.blend(neighbours);
  Dims result = {image[0], image[1]};
  result.insert(result.end(), places.begin() + 1, places.end() - 1);
  return n.done(e.reshape(y, result));
}

/// [N, a, b...] as [N, b..., a].
Value secondLast(Emitter &e, Value x) {
  Ints order = {0};
  for (int64_t d = 2; x && d < rankOf(x); ++d)
    order.push_back(d);
  order.push_back(1);
  return x ? e.transpose(x, order) : x;
}

/// Channels that fill the vectors of a CPU: pixels are read channels last from so many on.
constexpr int64_t kVectorOfChannels = 8;

/// A convolution whose window elements lie where offsets put them: columns of interpolated pixels, as
/// im2col cuts them, times the weights. On a CPU a column is all channels of its pixels, read and weighted in vectors.
LogicalResult deformConv(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), w = n.in(1), offset = n.in(2);
  if (!x || !w || !offset || rankOf(x) < 3 || rankOf(w) != rankOf(x) || rankOf(offset) != rankOf(x))
    return n.invalid("shape", "input, weights and offsets have one rank of 3 or more");
  int64_t spatial = rankOf(x) - 2, group = n.intAttr("group", 1), offsetGroup = n.intAttr("offset_group", 1);
  Ints kernel, strides = n.intsAttr("strides").value_or(Ints(spatial, 1)),
               pads = n.intsAttr("pads").value_or(Ints(2 * spatial, 0)),
               dilations = n.intsAttr("dilations").value_or(Ints(spatial, 1));
  int64_t taps = 1;
  for (int64_t d = 0; d < spatial; ++d) {
    std::optional<int64_t> size = dimOf(w, 2 + d).constant();
    if (!size)
      return n.fail("shape", "a window of a symbolic size", "weights of constant sizes");
    kernel.push_back(*size);
    taps *= *size;
  }
  if (std::optional<Ints> stated = n.intsAttr("kernel_shape"); stated && *stated != kernel)
    return n.invalid("attribute", "kernel_shape is not that of the weights");
  std::optional<DimExpr> inputs = group > 0 ? dimOf(x, 1).exactDiv(group) : std::nullopt,
                         outputs = group > 0 ? dimOf(w, 0).exactDiv(group) : std::nullopt,
                         shared = offsetGroup > 0 ? dimOf(x, 1).exactDiv(offsetGroup) : std::nullopt;
  if (int64_t(strides.size()) != spatial || int64_t(pads.size()) != 2 * spatial ||
      int64_t(dilations.size()) != spatial || !inputs || !outputs || !shared || taps < 1)
    return n.invalid("attribute", "attributes do not match the spatial dimensions, or groups the channels");
  if (!n.unify(dimOf(w, 1), *inputs) || !n.unify(dimOf(offset, 1), offsetGroup * taps * spatial) ||
      !n.unify(dimOf(offset, 0), dimOf(x, 0)))
    return n.invalid("shape", "channels of weights or offsets do not fit those of the input");
  DimExpr batch = dimOf(x, 0), rows = batch * DimExpr(offsetGroup);
  auto spatialDims = [](Value v) {
    Dims dims = dimsOf(v);
    dims.erase(dims.begin(), dims.begin() + 2);
    return dims;
  };
  Dims places = spatialDims(offset), image = spatialDims(x);
  for (int64_t d = 0; d < spatial; ++d) {
    if (strides[d] < 1 || dilations[d] < 1)
      return n.invalid("attribute", "strides and dilations are positive");
    DimExpr room = image[d] + DimExpr(pads[d] + pads[spatial + d] - dilations[d] * (kernel[d] - 1) - 1);
    DimExpr count = DimExpr::floorDiv(room, strides[d]) + DimExpr(1);
    if (!n.unify(places[d], count))
      return n.invalid("shape", "offsets for " + llvm::Twine(places[d].str()) + " places, the window has " +
                                    count.str());
    if (dimOf(offset, 2 + d) != count)
      n.demandZero("places" + llvm::Twine(d), dimOf(offset, 2 + d) - count);
  }
  places = spatialDims(offset); // some may be expressed by others now
  Dims sampled = {rows, *shared};
  sampled.insert(sampled.end(), image.begin(), image.end());
  const bool channelsLast = !n.legalizer.forGpu() && shared->constant().value_or(0) >= kVectorOfChannels;
  Value pixels = e.reshape(x, sampled);
  Sampler s{n, e, channelsLast ? secondLast(e, pixels) : pixels, image, DimExpr(taps) * product(places), "zeros", true, channelsLast};
  // Offsets [rows, taps, spatial, places...].
  Type f32 = e.b.getF32Type();
  Dims split = {rows, DimExpr(taps), DimExpr(spatial)};
  split.insert(split.end(), places.begin(), places.end());
  Value moved = e.cast(e.reshape(offset, split), f32);
  std::vector<std::vector<std::pair<Value, Value>>> neighbours;
  for (int64_t d = 0, below = taps; d < spatial; ++d) {
    below /= kernel[d];
    Dims here = split, line(spatial + 1, DimExpr(1));
    here.erase(here.begin() + 2);
    line[1 + d] = places[d];
    Value place = e.mul(e.iota(line, 1 + d, f32), double(strides[d]));
    std::vector<double> shifts;
    for (int64_t tap = 0; tap < taps; ++tap)
      shifts.push_back(double(tap / below % kernel[d] * dilations[d] - pads[d]));
    Ints column(spatial + 1, 1);
    column[0] = taps;
    Value at = e.add(e.add(place, e.floats(shifts, column, f32)), e.reshape(e.sliceAxis(moved, 2, d, 1), here));
    at = e.reshape(channelsLast ? secondLast(e, at) : at, {rows, s.points});
    Value left = e.unary<FloorOp>(at), rest = e.sub(at, left);
    if (!rest)
      return failure();
    neighbours.push_back({{left, e.sub(e.like(rest, 1), rest)}, {e.add(left, 1.0), rest}});
  }
  Value columns = s.blend(neighbours); // [rows, channels of an offset group, taps * places]; or [rows, places * taps, channels]
  DimExpr depth = *inputs * DimExpr(taps), count = product(places);
  if (n.has(4)) {
    Value mask = n.in(4);
    if (!mask || !n.unify(numElements(mask.getType()), rows * s.points))
      return n.invalid("shape", "the mask has an element for each window element and place");
    if (channelsLast)
      mask = secondLast(e, e.reshape(mask, {rows, DimExpr(taps), count}));
    columns = e.mul(columns, s.forChannels(e.reshape(mask, {rows, s.points})));
  }
  Value y;
  if (channelsLast) {
    if (offsetGroup != 1)
      columns = e.transpose(e.reshape(columns, {batch, DimExpr(offsetGroup), s.points, *shared}), {0, 2, 1, 3});
    if (group != 1)
      columns = e.transpose(e.reshape(columns, {batch, s.points, DimExpr(group), *inputs}), {0, 2, 1, 3});
    Value weights = e.transpose(e.reshape(w, {DimExpr(group), *outputs, *inputs, DimExpr(taps)}), {0, 3, 2, 1});
    y = e.matmul(e.reshape(columns, {batch, DimExpr(group), count, depth}),
                 e.reshape(weights, {DimExpr(1), DimExpr(group), depth, *outputs}));
    y = y ? e.transpose(y, {0, 1, 3, 2}) : y;
  } else {
    columns = e.reshape(columns, {batch, DimExpr(group), depth, count});
    y = e.matmul(e.reshape(w, {DimExpr(1), DimExpr(group), *outputs, depth}), columns);
  }
  Dims result = {batch, dimOf(w, 0)};
  result.insert(result.end(), places.begin(), places.end());
  y = e.reshape(y, result);
  if (n.has(3)) {
    Value bias = n.in(3);
    if (!bias || rankOf(bias) != 1)
      return n.invalid("shape", "the bias has one value an output channel");
    Dims channel(rankOf(x), DimExpr(1));
    channel[1] = dimOf(bias, 0);
    y = e.add(y, e.reshape(bias, channel));
  }
  return n.done(y);
}

/// Where each place of a grid from -1 to 1 goes by an affine map of its batch: [N, (D,) H, W, 2 or 3], with x first.
LogicalResult affineGrid(Node &n) {
  Emitter &e = n.e;
  Value theta = n.in(0);
  std::optional<HostValue> size = n.bound(1, 0);
  if (!size)
    return n.unknown({1}, "a size");
  const int64_t spatial = int64_t(size->values.size()) - 2;
  if (!theta || rankOf(theta) != 3 || spatial < 2 || spatial > 3 || !n.unify(dimOf(theta, 1), spatial) ||
      !n.unify(dimOf(theta, 2), spatial + 1))
    return n.invalid("shape", "theta is [N, 2, 3] for a size of 4, or [N, 3, 4] for one of 5");
  Type element = elementTypeOf(theta), f64 = e.b.getF64Type();
  if (!isa<FloatType>(element))
    return n.invalid("dtype", "theta is of floats");
  DimExpr batch = dimOf(theta, 0), rows = size->values[0];
  if (batch.isConstant() && rows.isConstant() && batch != rows)
    return n.invalid("shape", "a size of " + llvm::Twine(rows.str()) + " maps for a theta of " + batch.str());
  if (batch != rows)
    n.demandZero("batch", rows - batch);
  Type wide = element.isF64() ? f64 : Type(e.b.getF32Type());
  theta = e.cast(theta, wide);
  auto column = [&](int64_t i) { // [N, 1, 1, (1,) 2 or 3]
    Dims dims(spatial + 2, DimExpr(1));
    dims.front() = batch;
    dims.back() = spatial;
    return e.reshape(e.sliceAxis(theta, 2, i, 1), dims);
  };
  const bool corners = n.intAttr("align_corners", 0);
  Value y = column(spatial);
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t axis = spatial - i; // x lies along the last dimension of the image
    const DimExpr count = size->values[axis + 1];
    Value at = e.iota({count}, 0, f64), whole = e.dimScalar(count, f64);
    at = corners ? e.div(e.mul(at, 2.0), e.max(e.add(whole, -1.0), 1.0))
                 : e.div(e.add(e.mul(at, 2.0), 1.0), whole);
    Dims line(spatial + 2, DimExpr(1));
    line[axis] = count;
    y = e.add(y, e.mul(column(i), e.reshape(e.cast(e.add(at, -1.0), wide), line)));
  }
  return n.done(e.cast(y, element));
}

} // namespace

void addGridSample(Handlers &h) {
  h["AffineGrid"] = affineGrid;
  h["DeformConv"] = deformConv;
  h["GridSample"] = gridSample;
}

} // namespace lathe::legal
