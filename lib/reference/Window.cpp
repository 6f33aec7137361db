//===- Window.cpp - reference of convolution and pooling -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops over windows that move across the spatial dimensions.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <algorithm>
#include <cmath>

namespace lathe::reference {
namespace {

/// An image tensor [n, c, spatial...] or [n, spatial..., c].
struct Image {
  int64_t batch, channels;
  std::vector<int64_t> spatial;
  bool channelsLast;

  Image(const std::vector<int64_t> &dims, bool channelsLast)
      : batch(dims[0]), channels(channelsLast ? dims.back() : dims[1]),
        spatial(dims.begin() + (channelsLast ? 1 : 2), dims.end() - (channelsLast ? 1 : 0)),
        channelsLast(channelsLast) {}

  int64_t at(int64_t n, int64_t c, const Index &p) const {
    int64_t pixels = countBetween(spatial, 0, spatial.size()), pixel = position(spatial, p);
    return channelsLast ? (n * pixels + pixel) * channels + c : (n * channels + c) * pixels + pixel;
  }
};

/// Where windows lie.
struct Windows {
  std::vector<int64_t> size, strides, pads, dilations;

  /// Position of window element `r` of window `p` in dimension d; may lie outside.
  int64_t at(size_t d, int64_t p, int64_t r) const {
    return p * strides[d] - pads[d] + r * dilations[d];
  }
  /// False when the element is outside the image.
  bool locate(const Index &p, const Index &r, const std::vector<int64_t> &spatial,
              Index &where) const {
    for (size_t d = 0; d < spatial.size(); ++d) {
      where[d] = at(d, p[d], r[d]);
      if (where[d] < 0 || where[d] >= spatial[d])
        return false;
    }
    return true;
  }
};

bool channelsLast(Call &call) {
  std::string layout = call.text("layout");
  call.require(layout == "nchw" || layout == "nhwc", "unknown layout '" + layout + "'");
  return layout == "nhwc";
}

Windows readWindows(Call &call, std::vector<int64_t> size) {
  size_t rank = size.size();
  Windows w{std::move(size), call.integers("strides", rank), call.integers("pads", 2 * rank),
            call.integers("dilations", rank)};
  constexpr int64_t limit = int64_t(1) << 31;
  for (size_t d = 0; d < rank; ++d)
    call.require(w.size[d] > 0 && w.size[d] < limit && w.strides[d] > 0 && w.strides[d] < limit &&
                     w.dilations[d] > 0 && w.dilations[d] < limit &&
                     std::abs(w.pads[d]) < limit && std::abs(w.pads[rank + d]) < limit,
                 "window is out of range");
  return w;
}

void conv(Call &call) {
  int64_t group = call.integer("group");
  bool last = channelsLast(call);
  if (!call.expectInputs(2, 2))
    return;
  const Tensor &x = call.in(0), &w = call.in(1);
  Tensor &y = call.out();
  call.require(x.rank() >= 3 && w.rank() == x.rank() && y.rank() == x.rank(), "ranks differ");
  call.require(!isComplex(x.dtype), "needs real numbers");
  if (!call.ok())
    return;
  Image from(x.dims, last), to(y.dims, last);
  Windows windows = readWindows(call, {w.dims.begin() + 2, w.dims.end()});
  int64_t perGroup = w.dims[1];
  call.require(group > 0 && from.channels == perGroup * group && to.channels == w.dims[0] &&
                   to.channels % group == 0 && from.batch == to.batch,
               "channels do not fit");
  if (!call.ok())
    return;
  bool real = isFloat(x.dtype);
  std::vector<double> image = real ? reals(x) : std::vector<double>();
  std::vector<double> weights = real ? reals(w) : std::vector<double>();
  int64_t taps = countBetween(windows.size, 0, windows.size.size());
  int64_t outputsPerGroup = to.channels / group;
  Index where(from.spatial.size());
  for (int64_t n = 0; n < to.batch; ++n)
    for (int64_t o = 0; o < to.channels; ++o)
      forEachIndex(to.spatial, [&](const Index &p, int64_t) {
        double sum = 0;
        uint64_t integerSum = 0;
        forEachIndex(windows.size, [&](const Index &r, int64_t tap) {
          if (!windows.locate(p, r, from.spatial, where))
            return;
          for (int64_t c = 0; c < perGroup; ++c) {
            int64_t source = from.at(n, o / outputsPerGroup * perGroup + c, where);
            int64_t weight = (o * perGroup + c) * taps + tap;
            if (real)
              sum += image[source] * weights[weight];
            else
              integerSum += static_cast<uint64_t>(x.integer(source)) *
                            static_cast<uint64_t>(w.integer(weight));
          }
        });
        if (real)
          y.setReal(to.at(n, o, p), sum);
        else
          y.setInteger(to.at(n, o, p), static_cast<int64_t>(integerSum));
      });
}

void pool(Call &call) {
  std::string kind = call.text("kind");
  bool last = channelsLast(call), countPad = call.integer("count_include_pad");
  double power = static_cast<double>(call.integerOr("p", 2));
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  call.require(kind == "max" || kind == "average" || kind == "lp", "unknown kind '" + kind + "'");
  call.require(x.rank() >= 3 && y.rank() == x.rank() && x.dtype == y.dtype && !isComplex(x.dtype),
               "result type does not fit");
  if (!call.ok())
    return;
  Image from(x.dims, last), to(y.dims, last);
  size_t rank = from.spatial.size();
  Windows windows = readWindows(call, call.integers("kernel", rank));
  if (!call.require(from.batch == to.batch && from.channels == to.channels,
                    "result sizes do not fit"))
    return;
  bool real = isFloat(x.dtype);
  Index where(rank);
  for (int64_t n = 0; n < to.batch; ++n)
    for (int64_t c = 0; c < to.channels; ++c)
      forEachIndex(to.spatial, [&](const Index &p, int64_t) {
        double max = neutralReal(Combine::Max), sum = 0, powers = 0;
        int64_t integerMax = neutralInteger(Combine::Max, x.dtype), inside = 0, padded = 0;
        forEachIndex(windows.size, [&](const Index &r, int64_t) {
          // What rounding up the number of windows adds behind the padding never counts.
          bool inPadded = true;
          for (size_t d = 0; d < rank; ++d)
            inPadded &= windows.at(d, p[d], r[d]) < from.spatial[d] + windows.pads[rank + d];
          padded += inPadded;
          if (!windows.locate(p, r, from.spatial, where))
            return;
          ++inside;
          int64_t source = from.at(n, c, where);
          double value = x.real(source);
          max = combine(Combine::Max, max, value);
          sum += value;
          powers += std::pow(std::fabs(value), power);
          if (!real)
            integerMax = combine(Combine::Max, x.dtype, integerMax, x.integer(source));
        });
        int64_t i = to.at(n, c, p);
        if (kind == "average")
          y.setReal(i, sum / static_cast<double>(std::max<int64_t>(countPad ? padded : inside, 1)));
        else if (kind == "lp")
          y.setReal(i, std::pow(powers, 1 / power));
        else if (real)
          y.setReal(i, max);
        else
          y.setInteger(i, integerMax);
      });
}

void overlapAdd(Call &call) {
  std::vector<int64_t> image = call.integers("image"), window = call.integers("window", image.size());
  if (!call.expectInputs(1, 1))
    return;
  Windows windows = readWindows(call, window);
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  call.require(x.rank() == 3 && y.rank() == int64_t(image.size()) + 2 && x.dtype == y.dtype && !isComplex(x.dtype),
               "result type does not fit");
  if (!call.ok())
    return;
  size_t rank = image.size();
  int64_t taps = countBetween(window, 0, rank), batch = y.dims[0], channels = y.dims[1];
  std::vector<int64_t> places(rank);
  for (size_t d = 0; d < rank; ++d) {
    int64_t room = image[d] + windows.pads[d] + windows.pads[rank + d] -
                   windows.dilations[d] * (window[d] - 1) - 1;
    places[d] = room < 0 ? 0 : room / windows.strides[d] + 1;
  }
  int64_t columns = countBetween(places, 0, rank), pixels = countBetween(image, 0, rank);
  if (!call.require(x.dims[0] == batch && x.dims[1] == channels * taps && x.dims[2] == columns,
                    "columns do not fit the image"))
    return;
  std::vector<double> sums(y.count());
  std::vector<uint64_t> integerSums(y.count());
  Index where(rank);
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t c = 0; c < channels; ++c)
      forEachIndex(window, [&](const Index &tap, int64_t t) {
        forEachIndex(places, [&](const Index &place, int64_t column) {
          if (!windows.locate(place, tap, image, where))
            return;
          int64_t from = (n * channels * taps + c * taps + t) * columns + column;
          int64_t to = (n * channels + c) * pixels + position(image, where);
          if (isFloat(x.dtype))
            sums[to] += x.real(from);
          else
            integerSums[to] += static_cast<uint64_t>(x.integer(from));
        });
      });
  for (int64_t i = 0; i < y.count(); ++i)
    if (isFloat(x.dtype))
      y.setReal(i, sums[i]);
    else
      y.setInteger(i, static_cast<int64_t>(integerSums[i]));
}

void windowSquares(Call &call) {
  int64_t axis = call.integer("axis"), size = call.integer("size"), before = call.integer("before");
  if (!call.expectInputs(1, 1))
    return;
  const Tensor &x = call.in(0);
  Tensor &y = call.out();
  call.require(axis >= 0 && axis < x.rank() && size > 0 && before >= 0 && before < size,
               "axis, size or before is out of range");
  call.require(x.dims == y.dims && x.dtype == y.dtype && isFloat(x.dtype), "result type does not fit");
  if (!call.ok())
    return;
  Index from(x.dims.size());
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    double sum = 0;
    std::copy(index.begin(), index.end(), from.begin());
    int64_t begin = std::max<int64_t>(0, index[axis] - before);
    int64_t end = std::min(x.dims[axis], index[axis] - before + size);
    for (from[axis] = begin; from[axis] < end; ++from[axis]) {
      double value = x.real(position(x.dims, from));
      sum += value * value;
    }
    y.setReal(i, sum);
  });
}

constexpr Entry kOps[] = {{"conv", conv}, {"pool", pool}, {"overlap_add", overlapAdd},
                          {"window_squares", windowSquares}};

} // namespace

std::span<const Entry> windowOps() { return kOps; }

} // namespace lathe::reference
