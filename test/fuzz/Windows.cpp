//===- Windows.cpp - convolutions, pooling, resizing ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

#include <algorithm>
#include <cmath>

namespace lathe::fuzz {
namespace {

/// A batch of images with 1 to 3 dimensions of pixels.
Value pickImage(GraphBuilder &b) {
  return b.pickOr(
      [](const Value &v) {
        return isFloatValue(v) && v.dtype != DType::BF16 && isKnown(v) && v.rank() >= 3 && v.rank() <= 5 && v.count() > 0 && v.dims[1] <= 32;
      },
      [&] {
        int64_t spatial = b.random.chance(70) ? 2 : b.random.of<int64_t>({1, 3});
        Dims dims = {b.random.between(1, 2), b.random.of<int64_t>({1, 2, 3, 4, 6, 8, 9, 16})};
        for (int64_t i = 0; i < spatial; ++i)
          dims.push_back(b.random.between(1, spatial == 3 ? 5 : 12));
        return b.fresh(b.random.chance(80) ? DType::F32 : b.random.chance(50) ? DType::F16 : DType::F64, dims);
      });
}

/// Sizes, steps and borders of windows, one a dimension of pixels.
struct Geometry {
  Dims kernel, strides, dilations, low, high, result;
  bool ceil = false; ///< a last window may reach over the border
  Attrs attrs() const {
    Dims pads = low;
    pads.insert(pads.end(), high.begin(), high.end());
    Attrs all = {{"kernel_shape", kernel}, {"strides", strides}, {"dilations", dilations}, {"pads", pads}};
    if (ceil)
      all.push_back({"ceil_mode", int64_t(1)});
    return all;
  }
};

/// None where a window does not fit. `same`: odd windows, whose results have the image's sizes.
bool chooseGeometry(GraphBuilder &b, const Value &x, Geometry &g, bool wideBorders, bool same = false) {
  for (size_t i = 2; i < x.dims.size(); ++i) {
    if (same) {
      int64_t side = b.random.between(0, 1);
      g.kernel.push_back(2 * side + 1);
      g.strides.push_back(1);
      g.dilations.push_back(1);
      g.low.push_back(side);
      g.high.push_back(side);
      g.result.push_back(x.dims[i]);
      continue;
    }
    int64_t size = x.dims[i], k = b.random.between(1, std::min<int64_t>(4, size + 1)), s = b.random.between(1, 3), d = b.random.chance(70) ? 1 : 2;
    int64_t reach = d * (k - 1) + 1, most = wideBorders ? 3 : k - 1;
    int64_t low = b.random.between(0, most), high = b.random.between(0, most);
    if (size + low + high < reach)
      return false;
    g.kernel.push_back(k);
    g.strides.push_back(s);
    g.dilations.push_back(d);
    g.low.push_back(low);
    g.high.push_back(high);
    int64_t steps = size + low + high - reach;
    g.result.push_back((g.ceil ? (steps + s - 1) / s : steps / s) + 1);
    // Versions of ONNX differ on windows that begin behind the image.
    if (g.ceil && (g.result.back() - 1) * s >= size + low)
      return false;
  }
  return true;
}

bool makeConv(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = pickImage(b);
  if (b.random.chance(15)) { // as TensorFlow's "same" is exported
    std::vector<int64_t> pads(2 * x.dims.size(), 0);
    Dims dims = x.dims;
    for (size_t i = 2; i < dims.size(); ++i) {
      pads[i] = b.random.between(0, 2);
      pads[i + dims.size()] = b.random.between(0, 2);
      dims[i] += pads[i] + pads[i + dims.size()];
    }
    x = b.node("Pad", {x, b.vector(pads)}, x.dtype, dims, x.most, {}, x.positive);
  }
  int64_t channels = x.dims[1];
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= channels; ++d)
    if (channels % d == 0)
      divisors.push_back(d);
  int64_t groups = b.random.chance(55) ? 1 : b.random.chance(50) ? channels : b.random.of(divisors);
  int64_t outputs = groups * (b.random.chance(60) ? b.random.between(1, 4) : b.random.of<int64_t>({1, 8, 5}));
  Geometry g;
  const bool same = b.random.chance(25); // as in the blocks of residual networks
  if (same)
    outputs = channels;
  if (!chooseGeometry(b, x, g, true, same))
    return false;
  int64_t taps = channels / groups * product(g.kernel);
  Dims dims = {x.dims[0], outputs};
  dims.insert(dims.end(), g.result.begin(), g.result.end());
  double most = x.most * double(taps) + 2;
  if (product(dims) > kMaxElements || product(dims) * taps > 200000 || most > limitOf(x.dtype))
    return false;
  Dims filter = {outputs, channels / groups};
  filter.insert(filter.end(), g.kernel.begin(), g.kernel.end());
  Value w = b.fresh(x.dtype, filter, 1, b.random.chance(80) ? Source::Constant : Source::Input);
  Value bias = b.random.chance(60) ? b.fresh(x.dtype, {outputs}, 2) : Value();
  Attrs attrs = g.attrs();
  attrs.push_back({"group", groups});
  b.node("Conv", {x, w, bias}, x.dtype, dims, most, attrs);
  return true;
}

bool makeConvTranspose(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = pickImage(b);
  int64_t channels = x.dims[1], groups = b.random.chance(70) ? 1 : channels, each = b.random.between(1, 3);
  Dims kernel, strides, dilations, low, high, extra, dims = {x.dims[0], groups * each};
  for (size_t i = 2; i < x.dims.size(); ++i) {
    int64_t k = b.random.between(1, 4), s = b.random.between(1, 3), d = b.random.chance(75) ? 1 : 2, reach = d * (k - 1) + 1;
    int64_t l = b.random.between(0, std::min<int64_t>(2, reach - 1)), h = b.random.between(0, std::min<int64_t>(2, reach - 1));
    int64_t e = s > 1 && b.random.chance(30) ? b.random.below(s) : 0;
    int64_t size = s * (x.dims[i] - 1) + e + reach - l - h;
    if (size <= 0)
      return false;
    kernel.push_back(k), strides.push_back(s), dilations.push_back(d), low.push_back(l), high.push_back(h), extra.push_back(e);
    dims.push_back(size);
  }
  int64_t taps = channels / groups * product(kernel);
  double most = x.most * double(taps) + 2;
  if (product(dims) > kMaxElements || product(dims) * taps > 200000 || most > limitOf(x.dtype))
    return false;
  Dims filter = {channels, each}, pads = low;
  filter.insert(filter.end(), kernel.begin(), kernel.end());
  pads.insert(pads.end(), high.begin(), high.end());
  Value w = b.fresh(x.dtype, filter, 1, b.random.chance(80) ? Source::Constant : Source::Input);
  Value bias = b.random.chance(60) ? b.fresh(x.dtype, {groups * each}, 2) : Value();
  b.node("ConvTranspose", {x, w, bias}, x.dtype, dims, most,
         {{"kernel_shape", kernel}, {"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", groups}, {"output_padding", extra}});
  return true;
}

bool makePool(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = pickImage(b);
  int kind = int(b.random.below(10));
  if (kind < 2) {
    Dims dims = x.dims;
    std::fill(dims.begin() + 2, dims.end(), 1);
    b.node(kind ? "GlobalAveragePool" : "GlobalMaxPool", {x}, x.dtype, dims, x.most, {}, x.positive);
    return true;
  }
  Geometry g;
  g.ceil = b.random.chance(35);
  if (!chooseGeometry(b, x, g, false))
    return false;
  Attrs attrs = g.attrs();
  bool average = kind < 6;
  if (average && b.opset < 19) {
    attrs.erase(attrs.begin() + 2);
    for (size_t i = 0; i < g.kernel.size(); ++i)
      if (g.dilations[i] != 1)
        return false;
  }
  // A window that lies in the border alone has no largest.
  for (size_t i = 0; i < g.kernel.size(); ++i)
    if (g.dilations[i] > 1 && (g.low[i] || g.high[i]))
      return false;
  Dims dims = {x.dims[0], x.dims[1]};
  dims.insert(dims.end(), g.result.begin(), g.result.end());
  if (product(dims) > kMaxElements)
    return false;
  if (average)
    attrs.push_back({"count_include_pad", b.random.below(2)});
  b.node(average ? "AveragePool" : "MaxPool", {x}, x.dtype, dims, x.most, attrs, x.positive);
  return true;
}

bool makeResize(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return v.dtype == DType::F32 && isKnown(v) && v.rank() >= 3 && v.rank() <= 4 && v.count() > 0; },
                     [&] { return b.fresh(DType::F32, {1, b.random.between(1, 3), b.random.between(1, 7), b.random.between(1, 7)}); });
  Dims dims = x.dims;
  for (size_t i = 2; i < dims.size(); ++i)
    dims[i] = b.random.between(1, 12);
  if (product(dims) > kMaxElements)
    return false;
  std::string mode = b.random.of({"nearest", "nearest", "linear", "linear", "cubic"});
  if (mode == "cubic" && x.rank() != 4)
    return false;
  Attrs attrs = {{"mode", mode},
                 {"coordinate_transformation_mode", std::string(b.random.of({"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"}))}};
  if (mode == "nearest")
    attrs.push_back({"nearest_mode", std::string(b.random.of({"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}))});
  Value none;
  b.node("Resize", {x, none, none, b.vector(dims)}, x.dtype, dims, 2 * x.most, attrs);
  return true;
}

} // namespace

void addWindows(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"conv", 5, makeConv}, {"conv transpose", 2, makeConvTranspose}, {"pool", 4, makePool}, {"resize", 2, makeResize}});
}

} // namespace lathe::fuzz
