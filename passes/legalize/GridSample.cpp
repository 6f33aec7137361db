//===- GridSample.cpp - interpolation at given places -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each place reads a few neighbours: gathers from the flattened image, weighted by
// the distance along each axis.
//
//===----------------------------------------------------------------------===//
#include "Node.h"

using namespace mlir;

namespace lathe::legal {
namespace {

struct Sampler {
  Node &n;
  Emitter &e;
  Value image;                ///< [N, C, sizes...]
  std::vector<DimExpr> sizes; ///< spatial
  DimExpr points;             ///< places of one image
  std::string padding;
  bool corners;

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

  /// The pixels at whole places, one coordinate [N, P] an axis: [N, C, P].
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
    Dims flat = {dimOf(image, 0), dimOf(image, 1), product(sizes)},
         read = {flat[0], flat[1], points};
    Value indices = e.broadcastTo(e.unsqueeze(linear, {1}), read);
    Value pixels = e.infer<GatherElementsOp>(e.reshape(image, flat), indices, uint64_t(2));
    if (padding != "zeros")
      return pixels;
    return e.select(e.unsqueeze(inside, {1}), pixels, e.like(pixels, 0));
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
        part = e.mul(part, e.cast(e.unsqueeze(weight, {1}), elementTypeOf(part)));
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
  if (dimOf(grid, spatial + 1) != DimExpr(spatial))
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

} // namespace

void addGridSample(Handlers &h) { h["GridSample"] = gridSample; }

} // namespace lathe::legal
