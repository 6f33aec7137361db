//===- Sampling.cpp - reference of reads at places that values name -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Call.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lathe::reference {
namespace {

void argPool(Call &call) {
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  size_t rank = x.dims.size() < 2 ? 0 : x.dims.size() - 2;
  std::vector<int64_t> kernel = call.integers("kernel", rank), strides = call.integers("strides", rank),
                       pads = call.integers("pads", 2 * rank), dilations = call.integers("dilations", rank);
  bool columnMajor = call.integerOr("column_major", 0);
  if (!call.ok() || !call.require(rank >= 1 && y.rank() == x.rank() && y.dtype == DType::I64 &&
                                      !isComplex(x.dtype) && y.dims[0] == x.dims[0] && y.dims[1] == x.dims[1],
                                  "result type does not fit"))
    return;
  constexpr int64_t limit = int64_t(1) << 31;
  for (size_t d = 0; d < rank; ++d)
    if (!call.require(kernel[d] > 0 && kernel[d] < limit && strides[d] > 0 && strides[d] < limit &&
                          dilations[d] > 0 && dilations[d] < limit && std::abs(pads[d]) < limit,
                      "window is out of range"))
      return;
  std::vector<int64_t> image(x.dims.begin() + 2, x.dims.end());
  int64_t pixels = countBetween(image, 0, rank);
  forEachIndex(y.dims, [&](const Index &index, int64_t at) {
    int64_t channel = index[0] * x.dims[1] + index[1], best = -1, place = 0;
    forEachIndex(kernel, [&](const Index &tap, int64_t) {
      int64_t row = 0, column = 0;
      for (size_t d = 0; d < rank; ++d) {
        int64_t i = index[2 + d] * strides[d] - pads[d] + tap[d] * dilations[d];
        if (i < 0 || i >= image[d])
          return;
        row = row * image[d] + i;
      }
      for (size_t d = rank, rest = size_t(row); d-- > 0; rest /= size_t(image[d]))
        column += int64_t(rest % size_t(image[d])) * countBetween(image, 0, d);
      int64_t here = channel * pixels + row;
      bool greater = best < 0;
      if (!greater && isFloat(x.dtype))
        greater = x.real(here) > x.real(best) || (std::isnan(x.real(here)) && !std::isnan(x.real(best)));
      else if (!greater)
        greater = x.integer(here) != x.integer(best) &&
                  combine(Combine::Max, x.dtype, x.integer(here), x.integer(best)) == x.integer(here);
      if (greater) {
        best = here;
        place = channel * pixels + (columnMajor ? column : row);
      }
    });
    y.setInteger(at, place);
  });
}

/// In the precision T of the model: how many places a bin has depends on it.
template <typename T> void roiAlignIn(Call &call) {
  const Tensor &x = call.in(0), &rois = call.in(1), &batch = call.in(2);
  Tensor &y = call.out();
  T scale = T(call.real("scale"));
  int64_t samples = call.integer("samples");
  bool half = call.integerOr("half_pixel", 0), maximum = call.integerOr("maximum", 0);
  const bool last = call.integerOr("channels_last", 0);
  const size_t rows = last ? 1 : 2, columns = rows + 1, channel = last ? 3 : 1;
  int64_t height = x.dims[rows], width = x.dims[columns], channels = x.dims[channel];
  if (!call.ok())
    return;
  /// Where a coordinate lies between two pixels; false outside.
  struct Between {
    int64_t low, high;
    T rest;
  };
  auto between = [](T v, int64_t size, Between &b) {
    if (!(v >= -1 && v <= T(size)) || size == 0)
      return false;
    v = std::max(v, T(0));
    b.low = std::min(int64_t(v), size - 1);
    b.high = std::min(b.low + 1, size - 1);
    b.rest = b.high == b.low ? T(0) : v - T(b.low);
    return true;
  };
  forEachIndex(y.dims, [&](const Index &index, int64_t at) {
    int64_t image = batch.integer(index[0]);
    if (image < 0)
      image += x.dims[0];
    if (image < 0 || image >= x.dims[0])
      return call.fail(runtimeError("index " + std::to_string(batch.integer(index[0])) +
                                        " is out of range for size " + std::to_string(x.dims[0]),
                                    "lathe.roi_align"));
    auto corner = [&](int k) { return T(rois.real(index[0] * 4 + k)) * scale - (half ? T(0.5) : T(0)); };
    T left = corner(0), top = corner(1), w = corner(2) - left, h = corner(3) - top;
    if (!half) {
      w = std::max(w, T(1));
      h = std::max(h, T(1));
    }
    T binH = h / T(y.dims[rows]), binW = w / T(y.dims[columns]);
    auto grid = [&](T bin) {
      return samples ? samples : bin > 0 && bin < T(1 << 30) ? int64_t(std::ceil(bin)) : 0;
    };
    int64_t gridH = grid(binH), gridW = grid(binW);
    double sum = 0;
    bool any = false;
    for (int64_t i = 0; i < gridH; ++i)
      for (int64_t j = 0; j < gridW; ++j) {
        T row = top + T(index[rows]) * binH + (T(i) + T(0.5)) * binH / T(gridH);
        T column = left + T(index[columns]) * binW + (T(j) + T(0.5)) * binW / T(gridW);
        Between r{}, c{};
        bool inside = between(row, height, r) && between(column, width, c);
        auto part = [&](int64_t a, int64_t b, T weight) {
          int64_t place = last ? ((image * height + a) * width + b) * channels + index[channel]
                               : ((image * channels + index[channel]) * height + a) * width + b;
          return inside ? double(weight) * x.real(place) : 0.0;
        };
        double parts[4] = {part(r.low, c.low, (1 - r.rest) * (1 - c.rest)),
                           part(r.low, c.high, (1 - r.rest) * c.rest),
                           part(r.high, c.low, r.rest * (1 - c.rest)), part(r.high, c.high, r.rest * c.rest)};
        if (maximum) {
          double most = std::max({parts[0], parts[1], parts[2], parts[3]});
          sum = any ? std::max(sum, most) : most;
        } else {
          sum += parts[0] + parts[1] + parts[2] + parts[3];
        }
        any = true;
      }
    y.setReal(at, maximum ? sum : sum / double(std::max<int64_t>(gridH * gridW, 1)));
  });
}

void roiAlign(Call &call) {
  if (!call.expectInputs(3, 3))
    return;
  const Tensor &x = call.in(0), &rois = call.in(1), &batch = call.in(2);
  Tensor &y = call.out();
  if (!call.require(x.rank() == 4 && rois.rank() == 2 && batch.rank() == 1 && y.rank() == 4 &&
                        isFloat(x.dtype) && rois.dtype == x.dtype && y.dtype == x.dtype &&
                        isInteger(batch.dtype) && rois.dims[1] == 4 && rois.dims[0] == y.dims[0] &&
                        batch.dims[0] == y.dims[0],
                    "result type does not fit"))
    return;
  const size_t channel = call.integerOr("channels_last", 0) ? 3 : 1;
  if (!call.require(y.dims[channel] == x.dims[channel], "result type does not fit"))
    return;
  x.dtype == DType::F64 ? roiAlignIn<double>(call) : roiAlignIn<float>(call);
}

void treeWalk(Call &call) {
  int64_t depth = call.integer("depth");
  if (!call.expectInputs(3, 4))
    return;
  const Tensor &x = call.in(0), &nodes = call.in(1), &roots = call.in(2);
  const bool whole = x.dtype == DType::I32, atNodes = call.integerOr("ends_at_nodes", 0);
  const Tensor *splits = whole || x.dtype == DType::F32 ? nullptr : &call.in(call.inputs.size() - 1);
  Tensor &y = call.out();
  if (!call.require(x.rank() == 2 && nodes.rank() == 2 && roots.rank() == 1 && call.inputs.size() == (splits ? 4 : 3) &&
                        y.rank() == 2 && nodes.dims[1] == 4 && (!splits || std::vector{nodes.dims[0]} == splits->dims) &&
                        y.dims[0] == x.dims[0] && y.dims[1] == roots.dims[0] && (whole || isFloat(x.dtype)) &&
                        isInteger(nodes.dtype) && isInteger(roots.dtype) && isInteger(y.dtype),
                    "result type does not fit"))
    return;
  forEachIndex(y.dims, [&](const Index &index, int64_t at) {
    int64_t node = roots.integer(index[1]);
    for (int64_t step = 0; step < depth && node >= 0; ++step) {
      const bool known = node < nodes.dims[0], nanLeft = known && nodes.integer(node * 4) < 0;
      const int64_t feature = !known ? -1 : nanLeft ? -1 - nodes.integer(node * 4) : nodes.integer(node * 4);
      if (!call.require(feature >= 0 && feature < x.dims[1], "a node or feature is out of range"))
        return;
      const double v = x.real(index[0] * x.dims[1] + feature);
      const auto bits = int32_t(nodes.integer(node * 4 + 1));
      const double split = splits ? splits->real(node) : whole ? double(bits) : std::bit_cast<float>(bits);
      bool left = std::isnan(v) ? nanLeft : v <= split;
      node = nodes.integer(node * 4 + (left ? 2 : 3));
    }
    y.setInteger(at, atNodes ? node : -1 - node);
  });
}

constexpr Entry kOps[] = {{"arg_pool", argPool}, {"roi_align", roiAlign}, {"tree_walk", treeWalk}};

} // namespace

std::span<const Entry> samplingOps() { return kOps; }

} // namespace lathe::reference
