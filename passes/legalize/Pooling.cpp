//===- Pooling.cpp - windows and whole images -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Windows.h"

#include "lathe/ir/Sampling.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace lathe::legal {
namespace {

template <PoolKind K> LogicalResult pool(Node &n) {
  Value y = poolOf(n, n.in(0), K);
  if (y && K == PoolKind::Max && n.wants(1)) {
    auto op = y.getDefiningOp<PoolOp>();
    if (!op || op.getX() != n.in(0)) // the places would be those of a padded image
      return n.fail("attribute", "the output Indices of this MaxPool", "MaxPool with one output, or with explicit pads");
    Value places = ArgPoolOp::create(n.e.b, n.e.loc, withElementType(y.getType(), n.e.b.getI64Type()), op.getX(),
                                     op.getKernel(), op.getStrides(), op.getPads(), op.getDilations(),
                                     n.intAttr("storage_order", 0) != 0);
    if (failed(n.set(1, places)))
      return failure();
  }
  return n.done(y);
}

Ints spatialAxes(Value x) {
  Ints axes;
  for (int64_t d = 2; d < rankOf(x); ++d)
    axes.push_back(d);
  return axes;
}

LogicalResult globalAverage(Node &n) {
  Value x = n.in(0);
  return x ? n.done(n.e.mean(x, spatialAxes(x))) : failure();
}
LogicalResult globalMax(Node &n) {
  Value x = n.in(0);
  return x ? n.done(n.e.reduce(x, ReduceKind::Max, spatialAxes(x))) : failure();
}
LogicalResult globalLp(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  double p = double(n.intAttr("p", 2));
  Value power = e.infer<PowOp>(e.unary<AbsOp>(x), e.like(x, p));
  Value sum = e.reduce(power, ReduceKind::Sum, spatialAxes(x));
  return n.done(e.infer<PowOp>(sum, e.like(x, 1.0 / p)));
}

/// Attributes of a Col2Im, which the rank of its image fills up.
struct Block {
  Ints strides, pads, dilations;
  Block(Node &n, size_t rank)
      : strides(n.intsAttr("strides").value_or(Ints(rank, 1))), pads(n.intsAttr("pads").value_or(Ints(2 * rank, 0))),
        dilations(n.intsAttr("dilations").value_or(Ints(rank, 1))) {}
  bool fits(size_t rank) const {
    return strides.size() == rank && pads.size() == 2 * rank && dilations.size() == rank &&
           llvm::all_of(strides, [](int64_t v) { return v > 0; }) && llvm::all_of(pads, [](int64_t v) { return v >= 0; }) &&
           llvm::all_of(dilations, [](int64_t v) { return v > 0; });
  }
};

/// Col2Im of blocks whose sizes arrive with the run: each pixel sums, over the taps of the block, the column whose place
/// lays the tap over it. A pixel that no place of a tap reaches takes the zero behind the columns.
LogicalResult columnsOfRun(Node &n, Value x, const Dims &block, const Dims &image, const Block &at) {
  Emitter &e = n.e;
  const size_t rank = image.size();
  Type index = e.b.getI64Type();
  DimExpr taps = product(block), pixels = product(image), columns = 1;
  Value column, inside; // of each tap and pixel: [block..., image...]
  for (size_t d = 0; d < rank; ++d) {
    DimExpr room = image[d] + DimExpr(at.pads[d] + at.pads[rank + d] - 1) - (block[d] - DimExpr(1)) * DimExpr(at.dilations[d]);
    DimExpr places = n.derive("places" + llvm::Twine(d), e.clampAtZero(DimExpr::floorDiv(room, at.strides[d]) + DimExpr(1)),
                              {0, DimRange::kUnbounded});
    Dims alongTaps(2 * rank, DimExpr(1)), alongPixels = alongTaps;
    alongTaps[d] = block[d];
    alongPixels[rank + d] = image[d];
    Value way = e.sub(e.add(e.iota(alongPixels, int64_t(rank + d), index), e.scalar(double(at.pads[d]), index)),
                      e.mul(e.iota(alongTaps, int64_t(d), index), double(at.dilations[d])));
    Value place = e.div(way, double(at.strides[d])); // rounds towards 0: what is negative is outside all the same
    Value count = e.dimScalar(places, index);
    Value here = e.infer<AndOp>(e.compare(way, 0.0, Predicate::Ge), e.compare(place, count, Predicate::Lt));
    if (at.strides[d] != 1)
      here = e.infer<AndOp>(here, e.compare(e.mul(place, double(at.strides[d])), way, Predicate::Eq));
    inside = d ? e.infer<AndOp>(inside, here) : here;
    column = d ? e.add(e.mul(column, count), place) : place;
    columns = columns * places;
  }
  if (columns != dimOf(x, 2))
    n.demandZero("columns", columns - dimOf(x, 2));
  DimExpr channels = n.derive("channels", DimExpr::floorDiv(dimOf(x, 1), taps), {0, DimRange::kUnbounded});
  if (channels * taps != dimOf(x, 1))
    n.demandZero("rows", channels * taps - dimOf(x, 1));
  Type element = elementTypeOf(x);
  DimExpr cells = taps * columns; // of one channel
  Value rows = e.reshape(x, {dimOf(x, 0), channels, cells});
  rows = e.pad(rows, e.like(rows, 0), {0, 0, 0}, {0, 0, 1}, PadMode::Constant);
  Value first = e.mul(e.reshape(e.iota({taps}, 0, index), {taps, 1}), e.dimScalar(columns, index));
  Value cell = e.add(e.reshape(column, {taps, pixels}), first);
  cell = e.select(e.reshape(inside, {taps, pixels}), cell, e.dimScalar(cells, index));
  Value parts = e.infer<GatherOp>(rows, cell, uint64_t(2)); // [N, C, taps, pixels]
  if (isNarrow(element))
    parts = e.cast(parts, e.b.getF32Type());
  Value sum = e.cast(e.reduce(parts, ReduceKind::Sum, {2}, /*keepdims=*/false), element);
  Dims dims = {dimOf(x, 0), channels};
  llvm::append_range(dims, image);
  return n.done(e.reshape(sum, dims));
}

LogicalResult columnsToImage(Node &n) {
  Value x = n.in(0);
  if (!x || rankOf(x) != 3)
    return n.invalid("shape", "Col2Im wants columns of rank 3, [N, C * block, L]");
  std::optional<HostValue> image = n.bound(1, 0);
  if (!image)
    return n.unknown({1}, "image_shape");
  size_t rank = image->values.size();
  const Block block(n, rank);
  std::optional<Ints> window = n.ints(2);
  if (!window) {
    std::optional<HostValue> sizes = n.bound(2, 1);
    if (!sizes)
      return n.unknown({2}, "block_shape");
    if (sizes->values.size() != rank || !block.fits(rank))
      return n.invalid("attribute", "block_shape, strides and dilations have a positive number for each dimension of the "
                                    "image, pads two that are not negative");
    return columnsOfRun(n, x, sizes->values, image->values, block);
  }
  int64_t taps = 1;
  for (int64_t size : *window)
    taps *= std::max<int64_t>(size, 1);
  if (DimExpr rows = dimOf(x, 1); !rows.isConstant() && !rows.exactDiv(taps)) // whole channels, which the run checks
    x = n.e.reshape(x, {dimOf(x, 0), DimExpr::floorDiv(rows, taps) * DimExpr(taps), dimOf(x, 2)});
  Value y = n.e.infer<OverlapAddOp>(x, n.e.dimArray(image->values), *window, block.strides, block.pads, block.dilations);
  if (!y)
    return failure();
  DimExpr columns = product(OverlapAddOp::places(image->values, *window, block.strides, block.pads, block.dilations));
  if (columns != dimOf(x, 2))
    n.demandZero("columns", columns - dimOf(x, 2));
  return n.done(y);
}

LogicalResult roiAlign(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), rois = n.in(1), batch = n.in(2);
  if (!x || !rois || !batch || rankOf(x) != 4 || rankOf(rois) != 2 || rankOf(batch) != 1)
    return n.invalid("shape", "RoiAlign wants images [N, C, H, W], regions [R, 4] and a batch index for each");
  if (!n.unify(dimOf(batch, 0), dimOf(rois, 0)) || !n.unify(dimOf(rois, 1), 4))
    return n.invalid("shape", "regions have four corners and a batch index each");
  Type element = elementTypeOf(x);
  if (!isFloat(element))
    return n.fail("dtype", "RoiAlign of what are no floats", "floats");
  std::string mode = n.strAttr("mode", "avg"),
              pixels = n.strAttr("coordinate_transformation_mode", n.opset >= 16 ? "half_pixel" : "output_half_pixel");
  int64_t rows = n.intAttr("output_height", 1), columns = n.intAttr("output_width", 1),
          samples = n.intAttr("sampling_ratio", 0);
  if ((mode != "avg" && mode != "max") || (pixels != "half_pixel" && pixels != "output_half_pixel") || rows < 1 ||
      columns < 1 || samples < 0 || samples > 1024)
    return n.invalid("attribute", "mode is avg or max, coordinates half_pixel or output_half_pixel, output sizes "
                                  "positive, sampling_ratio from 0 to 1024");
  return n.done(RoiAlignOp::create(e.b, e.loc,
                                   tensorType(element, {dimOf(rois, 0), dimOf(x, 1), DimExpr(rows), DimExpr(columns)}),
                                   x, e.cast(rois, element), batch,
                                   llvm::APFloat(n.floatAttr("spatial_scale", 1)), uint64_t(samples),
                                   pixels == "half_pixel", mode == "max", /*channels_last=*/false));
}

/// The greatest element of each bin of a region [image, x1, y1, x2, y2], corners included; 0 of a bin without elements.
/// Bins may share rows and columns, so that first each column of bins, then each row takes what its mask leaves.
LogicalResult maxRoiPool(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), rois = n.in(1);
  if (!x || !rois || rankOf(x) != 4 || rankOf(rois) != 2 || !n.unify(dimOf(rois, 1), 5))
    return n.invalid("shape", "MaxRoiPool wants images [N, C, H, W] and regions [R, 5]");
  Ints pooled = n.intsAttr("pooled_shape").value_or(Ints());
  if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1)
    return n.invalid("attribute", "pooled_shape is two positive sizes");
  Type element = elementTypeOf(x), f = element.isF64() ? element : Type(e.b.getF32Type());
  rois = e.cast(rois, f);
  DimExpr regions = dimOf(rois, 0);
  auto column = [&](int64_t i) { return e.sliceAxis(rois, 1, i, 1); };
  auto corner = [&](int64_t i) { // the nearest pixel, halves away from 0
    Value v = e.mul(column(i), n.floatAttr("spatial_scale", 1)), whole = e.unary<TruncOp>(v);
    Value up = e.cast(e.compare(e.unary<AbsOp>(e.sub(v, whole)), 0.5, Predicate::Ge), f);
    return e.add(whole, e.mul(e.unary<SignOp>(v), up));
  };
  struct Bins {
    Value mask;   ///< [R, bins, size]
    Value filled; ///< [R, bins]
  };
  auto bins = [&](int64_t count, int64_t from, int64_t axis) {
    Value start = corner(from), length = e.max(e.add(e.sub(corner(from + 2), start), 1.0), 1.0);
    Value step = e.div(length, double(count)), size = e.dimScalar(dimOf(x, axis), f);
    Value bin = e.iota({DimExpr(1), DimExpr(count)}, 1, f), place = e.iota({dimOf(x, axis)}, 0, f);
    auto inside = [&](Value at) { return e.min(e.max(e.add(at, start), 0.0), size); };
    Value begin = inside(e.unary<FloorOp>(e.mul(bin, step))),
          end = inside(e.unary<CeilOp>(e.mul(e.add(bin, 1.0), step)));
    Value behind = e.compare(place, e.unsqueeze(begin, {2}), Predicate::Ge),
          ahead = e.compare(place, e.unsqueeze(end, {2}), Predicate::Lt);
    return Bins{e.infer<AndOp>(behind, ahead), e.compare(begin, end, Predicate::Lt)};
  };
  Bins rows = bins(pooled[0], 2, 2), columns = bins(pooled[1], 1, 3);
  Value batch = e.reshape(e.cast(column(0), e.b.getI64Type()), {regions});
  Value y = e.infer<GatherOp>(x, batch, uint64_t(0)); // [R, C, H, W]
  Value none = e.like(y, -std::numeric_limits<double>::infinity());
  y = e.select(e.unsqueeze(columns.mask, {1, 2}), e.unsqueeze(y, {3}), none); // [R, C, H, bins, W]
  y = e.reduce(y, ReduceKind::Max, {4}, false);
  y = e.select(e.unsqueeze(rows.mask, {1, 4}), e.unsqueeze(y, {2}), none); // [R, C, bins, H, bins]
  y = e.reduce(y, ReduceKind::Max, {3}, false);
  Value filled = e.infer<AndOp>(e.unsqueeze(rows.filled, {1, 3}), e.unsqueeze(columns.filled, {1, 2}));
  return n.done(e.select(filled, y, e.like(y, 0)));
}

/// Each value at its index in an image of zeros, whose sizes the window's places give; behind them more
/// zeros up to a stated shape.
LogicalResult maxUnpool(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), indices = n.in(1);
  bool fits = x && indices && rankOf(x) >= 3 && rankOf(indices) == rankOf(x);
  for (int64_t d = 0; fits && d < rankOf(x); ++d)
    fits = n.unify(dimOf(indices, d), dimOf(x, d));
  if (!fits)
    return n.invalid("shape", "MaxUnpool wants values [N, C, places...] and an index for each");
  indices = e.bind(indices, dimsOf(x));
  std::optional<Ints> kernel = n.intsAttr("kernel_shape");
  if (!kernel)
    return n.invalid("attribute", "kernel_shape is missing");
  std::optional<Window> w = windowOf(n, x, *kernel);
  if (!w)
    return failure();
  Dims image = {dimOf(x, 0), dimOf(x, 1)};
  for (size_t d = 0; d < kernel->size(); ++d)
    image.push_back(e.clampAtZero((dimOf(x, 2 + d) - DimExpr(1)) * DimExpr(w->strides[d]) +
                                  DimExpr((*kernel)[d] - w->pads[d] - w->pads[kernel->size() + d])));
  Value zero = e.like(x, 0), zeros = e.broadcastTo(zero, {product(image)});
  DimExpr count = numElements(x.getType());
  Value y = e.reshape(e.infer<ScatterElementsOp>(zeros, e.reshape(indices, {count}), e.reshape(x, {count}),
                                                 uint64_t(0), ReduceKindAttr()),
                      image);
  if (!n.has(2))
    return n.done(y);
  std::optional<HostValue> shape = n.bound(2, 0);
  if (!shape)
    return n.unknown({2}, "an output_shape");
  if (shape->values.size() != image.size())
    return n.invalid("shape", "output_shape has another rank than the values");
  Dims low(image.size(), DimExpr(0)), high;
  for (auto [to, from] : llvm::zip(shape->values, image))
    high.push_back(to - from);
  return n.done(e.bind(e.pad(y, zero, low, high, PadMode::Constant), shape->values));
}

} // namespace

Value poolOf(Node &n, Value x, PoolKind kind) {
  if (!x || rankOf(x) < 3)
    return n.e.fail("pooling needs rank 3 or more");
  std::optional<Ints> kernel = n.intsAttr("kernel_shape");
  if (!kernel) {
    (void)n.invalid("attribute", "kernel_shape is missing");
    return {};
  }
  std::optional<Window> w = windowOf(n, x, *kernel);
  if (!w)
    return {};
  Emitter &e = n.e;
  auto pooled = [&](Value image, bool isWhole) {
    bool countPads = isWhole || n.intAttr("count_include_pad", 0);
    auto with = [&](const Ints &kernel) {
      return e.infer<PoolOp>(image, kind, kernel, w->strides, w->pads, w->dilations,
                             !isWhole && bool(n.intAttr("ceil_mode", 0)), countPads, uint64_t(n.intAttr("p", 2)),
                             ConvLayout::ChannelsFirst);
    };
    // Taps that no window has in the image would be walked through: exporters write a window of thousands for
    // "all that there is".
    Ints reached = w->kernel;
    constexpr int64_t kFar = int64_t(1) << 40; // sums of sizes below it do not overflow
    for (size_t d = 0, count = reached.size(); d < count; ++d) {
      int64_t size = dimOf(image, 2 + d).constant().value_or(kFar), low = w->pads[d], high = w->pads[count + d];
      if (size < kFar && std::abs(low) < kFar && std::abs(high) < kFar) {
        int64_t extent = std::max<int64_t>(1, size + low + (countPads ? high : 0));
        reached[d] = std::min(reached[d], (extent - 1) / w->dilations[d] + 1);
      }
    }
    Value y = with(w->kernel);
    if (!y || reached == w->kernel)
      return y;
    Value shorter = with(reached);
    return shorter && shorter.getType() == y.getType() ? shorter : y; // the other one is dropped
  };
  if (w->low.empty())
    return pooled(x, false);
  Value zero = e.like(x, 0), outside = zero;
  if (kind == PoolKind::Max) {
    auto whole = dyn_cast<IntegerType>(elementTypeOf(x));
    outside = e.like(x, !whole               ? -std::numeric_limits<double>::infinity()
                        : whole.isUnsigned() ? 0
                                             : -std::ldexp(1.0, int(whole.getWidth()) - 1));
  }
  Value y = pooled(padded(e, x, *w, outside), true);
  if (kind != PoolKind::Average || n.intAttr("count_include_pad", 0))
    return y;
  // The mean of what is no padding: both means are over whole windows.
  Dims one = dimsOf(x);
  one[0] = one[1] = 1;
  return e.div(y, pooled(padded(e, e.broadcastTo(e.like(x, 1), one), *w, zero), true));
}

void addPooling(Handlers &h) {
  h["MaxPool"] = pool<PoolKind::Max>;
  h["AveragePool"] = pool<PoolKind::Average>;
  h["LpPool"] = pool<PoolKind::Lp>;
  h["RoiAlign"] = roiAlign;
  h["MaxRoiPool"] = maxRoiPool;
  h["MaxUnpool"] = maxUnpool;
  h["Col2Im"] = columnsToImage;
  h["GlobalAveragePool"] = globalAverage;
  h["GlobalMaxPool"] = globalMax;
  h["GlobalLpPool"] = globalLp;
}

} // namespace lathe::legal
