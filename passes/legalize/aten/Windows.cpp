//===- Windows.cpp - convolution, pooling, resizing -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

#include "../Windows.h"

using namespace mlir;

namespace lathe::legal::aten {
namespace {

Ints twice(const Ints &pads) {
  Ints both = pads;
  both.insert(both.end(), pads.begin(), pads.end());
  return both;
}

/// An image without a batch is a batch of one.
Value batched(Node &n, Value x, int64_t rank) {
  return x && rankOf(x) + 1 == rank ? n.e.unsqueeze(x, {0}) : x;
}

LogicalResult convolve(Node &n, bool transposed) {
  Value w = n.in(1), x = w ? batched(n, n.in(0), rankOf(w)) : Value();
  if (!x || rankOf(w) < 3 || rankOf(x) != rankOf(w))
    return failure();
  size_t count = rankOf(w) - 2;
  Ints dilations = perDimension(n, "dilation", count, 1), pads;
  if (std::string named = n.strAttr("padding", ""); !named.empty()) {
    Ints high;
    for (size_t i = 0; i < count; ++i) {
      std::optional<int64_t> taps = dimOf(w, 2 + i).constant();
      int64_t total = named == "same" && taps ? dilations[i] * (*taps - 1) : 0;
      pads.push_back(total / 2);
      high.push_back(total - total / 2);
    }
    pads.insert(pads.end(), high.begin(), high.end());
  } else {
    pads = twice(perDimension(n, "padding", count, 0));
  }
  SmallVector<NamedAttribute> attributes = {attr(n, "strides", perDimension(n, "stride", count, 1)),
                                            attr(n, "pads", pads), attr(n, "dilations", dilations),
                                            attr(n, "group", integer(n, "groups").value_or(1))};
  if (transposed)
    attributes.push_back(attr(n, "output_padding", perDimension(n, "output_padding", count, 0)));
  Value y = onnx(n, transposed ? "ConvTranspose" : "Conv",
                 {x, w, n.has(2) ? Operand(n.in(2)) : Operand::absent()}, attributes);
  return n.done(n.e.reshape(y, resultDims(n)));
}
LogicalResult conv(Node &n) { return convolve(n, flag(n, "transposed")); }
LogicalResult convTranspose(Node &n) { return convolve(n, true); }

/// Attributes of a window; the stride is the window's size where it is not given.
SmallVector<NamedAttribute> window(Node &n, size_t count) {
  Ints kernel = perDimension(n, "kernel_size", count, 1);
  Ints strides = integers(n, "stride").empty() ? kernel : perDimension(n, "stride", count, 1);
  return {attr(n, "kernel_shape", kernel), attr(n, "strides", strides),
          attr(n, "pads", twice(perDimension(n, "padding", count, 0))),
          attr(n, "ceil_mode", flag(n, "ceil_mode"))};
}

template <int Count> LogicalResult maxPool(Node &n) {
  Value x = batched(n, n.in(0), Count + 2);
  SmallVector<NamedAttribute> attributes = window(n, Count);
  attributes.push_back(attr(n, "dilations", perDimension(n, "dilation", Count, 1)));
  bool places = n.wants(1);
  if (places && n.in(0) && rankOf(n.in(0)) > 3)
    return n.fail("op", "the places of the largest elements", "max_pool without return_indices");
  return n.done(n.e.reshape(onnx(n, "MaxPool", {x}, attributes), resultDims(n)));
}

template <int Count> LogicalResult averagePool(Node &n) {
  if (n.hasAttr("divisor_override"))
    return n.fail("attribute", "divisor_override", "the size of the window as divisor");
  SmallVector<NamedAttribute> attributes = window(n, Count);
  attributes.push_back(attr(n, "count_include_pad", flag(n, "count_include_pad", true)));
  return n.done(n.e.reshape(onnx(n, "AveragePool", {batched(n, n.in(0), Count + 2)}, attributes),
                            resultDims(n)));
}

/// One axis at a time: result i is what [floor(i * in / out), ceil((i + 1) * in / out)) gives.
template <int Count>
LogicalResult adaptivePool(Node &n, llvm::function_ref<Value(Value, int64_t)> over) {
  Value x = n.in(0);
  if (!x || rankOf(x) < Count)
    return failure();
  Dims to = resultDims(n);
  for (int64_t axis = rankOf(x) - Count; axis < int64_t(to.size()); ++axis) {
    DimExpr from = dimOf(x, axis);
    std::optional<int64_t> in = from.constant(), out = to[axis].constant();
    if (from == to[axis])
      continue;
    if (out == 1) {
      x = over(x, axis);
    } else if (!in || !out) {
      return n.fail("shape",
                    "adaptive pooling of size " + llvm::Twine(from.str()) + " to " + to[axis].str(),
                    "sizes that are known, or one result");
    } else {
      std::vector<Value> parts;
      for (int64_t i = 0; i < *out; ++i) {
        int64_t begin = i * *in / *out, end = ((i + 1) * *in + *out - 1) / *out;
        parts.push_back(over(n.e.sliceAxis(x, axis, begin, end - begin), axis));
      }
      x = n.e.concat(parts, axis);
    }
    if (!x)
      return failure();
  }
  return n.done(x);
}
template <int Count> LogicalResult adaptiveAverage(Node &n) {
  // Images that become one pixel are one mean.
  Value x = n.in(0);
  Dims to = resultDims(n);
  if (x && llvm::all_of(axesFrom(rankOf(x) - Count, rankOf(x)),
                        [&](int64_t d) { return to[d] == DimExpr(1); }))
    return n.done(n.e.mean(x, axesFrom(rankOf(x) - Count, rankOf(x))));
  return adaptivePool<Count>(n, [&](Value v, int64_t axis) { return n.e.mean(v, {axis}); });
}
template <int Count> LogicalResult adaptiveMax(Node &n) {
  if (n.wants(1))
    return n.fail("op", "the places of the largest elements",
                  "adaptive_max_pool without return_indices");
  return adaptivePool<Count>(
      n, [&](Value v, int64_t axis) { return n.e.reduce(v, ReduceKind::Max, {axis}); });
}

/// Upsampling; by the scales that are given, or by the sizes.
LogicalResult resize(Node &n, StringRef mode, StringRef coordinates, StringRef nearest = "") {
  Value x = n.in(0);
  if (!x)
    return failure();
  Dims from = dimsOf(x), to = resultDims(n);
  std::vector<double> scales(2, 1.0);
  if (auto given = n.op->getAttrOfType<DenseF64ArrayAttr>("scale_factors"))
    scales.insert(scales.end(), given.asArrayRef().begin(), given.asArrayRef().end());
  SmallVector<NamedAttribute> attributes = {text(n, "mode", mode),
                                            text(n, "coordinate_transformation_mode", coordinates)};
  if (!nearest.empty())
    attributes.push_back(text(n, "nearest_mode", nearest));
  if (mode == "cubic")
    attributes.push_back(real(n, "cubic_coeff_a", -0.75));
  if (scales.size() == from.size())
    return n.done(onnx(
        n, "Resize",
        {x, Operand::absent(), n.e.floats(scales, {int64_t(scales.size())}, n.e.b.getF32Type())},
        attributes));
  Ints known;
  for (const DimExpr &dim : to)
    if (std::optional<int64_t> constant = dim.constant())
      known.push_back(*constant);
  // Of what stays as it is the size need not be known.
  for (size_t d = known.size() == to.size() ? to.size() : 0; d < to.size(); ++d)
    if (from[d] != to[d] && (!from[d].isConstant() || !to[d].isConstant()))
      return n.fail("shape", "resizing " + llvm::Twine(from[d].str()) + " to " + to[d].str(),
                    "scale factors, or sizes that are known");
  if (known.size() != to.size()) {
    std::vector<double> ratios;
    for (size_t d = 0; d < to.size(); ++d)
      ratios.push_back(from[d] == to[d] ? 1.0
                                        : double(*to[d].constant()) / double(*from[d].constant()));
    return n.done(onnx(
        n, "Resize",
        {x, Operand::absent(), n.e.floats(ratios, {int64_t(ratios.size())}, n.e.b.getF32Type())},
        attributes));
  }
  return n.done(onnx(n, "Resize",
                     {x, Operand::absent(), Operand::absent(),
                      n.e.ints(known, {int64_t(known.size())}, n.e.b.getI64Type())},
                     attributes));
}
LogicalResult nearest(Node &n) { return resize(n, "nearest", "asymmetric", "floor"); }
LogicalResult nearestExact(Node &n) {
  return resize(n, "nearest", "half_pixel", "round_prefer_ceil");
}
LogicalResult linear(Node &n) {
  return resize(n, "linear", flag(n, "align_corners") ? "align_corners" : "half_pixel");
}
LogicalResult cubic(Node &n) {
  return resize(n, "cubic", flag(n, "align_corners") ? "align_corners" : "half_pixel");
}

LogicalResult gridSample(Node &n) {
  constexpr StringRef modes[] = {"linear", "nearest", "cubic"},
                      pads[] = {"zeros", "border", "reflection"};
  int64_t mode = integer(n, "interpolation_mode").value_or(0),
          pad = integer(n, "padding_mode").value_or(0);
  if (mode < 0 || mode > 2 || pad < 0 || pad > 2)
    return n.invalid("attribute", "interpolation_mode and padding_mode are 0, 1 or 2");
  return n.done(onnx(n, "GridSample", {n.in(0), n.in(1)},
                     {text(n, "mode", modes[mode]), text(n, "padding_mode", pads[pad]),
                      attr(n, "align_corners", flag(n, "align_corners"))}));
}

} // namespace

void addWindows(Handlers &h) {
  h["aten.conv1d"] = h["aten.conv2d"] = h["aten.conv3d"] = h["aten.convolution"] = conv;
  h["aten.conv_transpose1d"] = h["aten.conv_transpose2d"] = h["aten.conv_transpose3d"] =
      convTranspose;
  h["aten.max_pool1d"] = maxPool<1>;
  h["aten.max_pool2d"] = h["aten.max_pool2d_with_indices"] = maxPool<2>;
  h["aten.max_pool3d"] = maxPool<3>;
  h["aten.avg_pool1d"] = averagePool<1>;
  h["aten.avg_pool2d"] = averagePool<2>;
  h["aten.avg_pool3d"] = averagePool<3>;
  h["aten.adaptive_avg_pool1d"] = adaptiveAverage<1>;
  h["aten.adaptive_avg_pool2d"] = h["aten._adaptive_avg_pool2d"] = adaptiveAverage<2>;
  h["aten.adaptive_avg_pool3d"] = adaptiveAverage<3>;
  h["aten.adaptive_max_pool1d"] = adaptiveMax<1>;
  h["aten.adaptive_max_pool2d"] = adaptiveMax<2>;
  h["aten.upsample_nearest1d"] = h["aten.upsample_nearest2d"] = h["aten.upsample_nearest3d"] =
      nearest;
  h["aten._upsample_nearest_exact1d"] = h["aten._upsample_nearest_exact2d"] = nearestExact;
  h["aten.upsample_linear1d"] = h["aten.upsample_bilinear2d"] = h["aten.upsample_trilinear3d"] =
      linear;
  h["aten.upsample_bicubic2d"] = cubic;
  h["aten.grid_sampler"] = h["aten.grid_sampler_2d"] = h["aten.grid_sampler_3d"] = gridSample;
}

} // namespace lathe::legal::aten
