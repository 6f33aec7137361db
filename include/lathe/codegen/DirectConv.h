//===- DirectConv.h - the geometry of a direct convolution ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What select and the schedule of direct convolutions must agree on: how a
// convolution over lines, images or volumes is one over layers of rows and
// columns, and how much scratch memory a block of padded rows takes.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_DIRECTCONV_H
#define LATHE_CODEGEN_DIRECTCONV_H

#include "lathe/support/DimExpr.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

namespace lathe {

/// Sizes along rows (0) and columns (1). The columns of a window are neighbours.
struct ConvGeometry {
  std::array<DimExpr, 2> size, out; ///< of the image, of the result
  std::array<int64_t, 2> window, stride, pad, dilation; ///< pad: before the image
  /// The dimension before these, in a volume; one layer in an image.
  struct {
    DimExpr size = 1, out = 1;
    int64_t window = 1, stride = 1, pad = 0, dilation = 1;
  } layer;
  int64_t channels = 0;
  bool padsAnything = false;

  /// None for more than three dimensions and for windows whose columns lie apart. A line is an
  /// image of one row.
  static std::optional<ConvGeometry>
  of(std::span<const DimExpr> size, std::span<const DimExpr> out, std::span<const int64_t> window,
     std::span<const int64_t> stride, std::span<const int64_t> pads,
     std::span<const int64_t> dilation, int64_t channels) {
    size_t rank = window.size();
    if (rank < 1 || rank > 3 || channels < 1)
      return std::nullopt;
    ConvGeometry g;
    g.channels = channels;
    for (int64_t p : pads)
      g.padsAnything |= p != 0;
    g.size = g.out = {DimExpr(1), DimExpr(1)};
    g.window = g.stride = g.dilation = {1, 1};
    g.pad = {0, 0};
    if (rank == 3)
      g.layer = {size[0], out[0], window[0], stride[0], pads[0], dilation[0]};
    for (size_t d = rank - std::min<size_t>(rank, 2); d < rank; ++d) {
      size_t to = d + 2 - rank;
      g.size[to] = size[d];
      g.out[to] = out[d];
      g.window[to] = window[d];
      g.stride[to] = stride[d];
      g.pad[to] = pads[d];
      g.dilation[to] = dilation[d];
    }
    if (g.dilation[1] != 1 && g.window[1] != 1)
      return std::nullopt;
    return g;
  }

  bool unpadded() const { return !padsAnything; }
  /// Whether result and image pixels are the same.
  bool everyPixel() const {
    return unpadded() && window == std::array<int64_t, 2>{1, 1} &&
           stride == std::array<int64_t, 2>{1, 1} && layer.window == 1 && layer.stride == 1;
  }
  /// Pixels from the first to behind the last of a window.
  int64_t reach(size_t d) const { return (window[d] - 1) * dilation[d] + 1; }
  /// Pixels of a row that windows of a row of results meet.
  DimExpr paddedWidth() const {
    return (out[1] - DimExpr(1)) * DimExpr(stride[1]) + DimExpr(reach(1));
  }
  /// Rows of a layer of the image that windows of `rows` rows of results meet.
  int64_t rowsOfLayer(int64_t rows) const { return (rows - 1) * stride[0] + reach(0); }
  /// Elements of a block of `rows` rows of results.
  DimExpr scratchElements(int64_t rows) const {
    return paddedWidth() * DimExpr(rowsOfLayer(rows) * layer.window * channels);
  }
};

} // namespace lathe

#endif // LATHE_CODEGEN_DIRECTCONV_H
