//===- Winograd.h - what a Winograd kernel keeps where ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// F(2x2, 3x3) and F(4x4, 3x3) of Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2016): a tile of 2x2 results is 16 products of
// transformed inputs and filters instead of 36, one of 4x4 results 36 instead of
// 144. In f32 the rounding error of F(2,3) is no larger than that of the direct
// sum: the transforms only add, and halve filters. F(4,3) evaluates polynomials
// at 0, +-3/4, +-3/2 and infinity. Its error is half of that at the usual points
// 0, +-1, +-2 (near and far points should be about each other's inverses: Alam et
// al., "Winograd Convolution for Deep Neural Networks: Efficient Point
// Selection", 2022), and what multiplies inputs and results is exact.
//
// With stride 2 a side of the window is one of two taps over the even inputs and one
// of one tap over the odd: two results are three products (F(2,2), points 0, 1 and
// infinity, whose transforms only add) and two, 25 for a tile of 2x2 results instead of
// 36. The two products over odd inputs share their filter.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_WINOGRAD_H
#define LATHE_SUPPORT_WINOGRAD_H

#include <array>
#include <cmath>
#include <cstdint>

namespace lathe::winograd {

constexpr int64_t kMaxIn = 6;
constexpr double kNear = 0.75, kFar = 1.5; ///< points of F(4,3)

/// Elements from one tile's transformed channels to the next one's: not a power
/// of two, so that the rows of a register tile lie in different cache sets.
inline int64_t rowStride(int64_t channels) { return (channels + 15) / 16 * 16 + 16; }

struct Form {
  int64_t out = 2;    ///< results along a side of a tile: 2 or 4
  int64_t stride = 1; ///< 1, or 2 with tiles of 2

  constexpr int64_t in() const { return stride * (out - 1) + 3; } ///< inputs, and points, along a side
  constexpr int64_t points() const { return in() * in(); }
  constexpr int64_t filterSide() const { return stride == 1 ? in() : 4; }
  constexpr int64_t filters() const { return filterSide() * filterSide(); } ///< transformed ones

  /// Points are numbered so that those of one filter follow each other.
  constexpr int64_t point(int64_t i, int64_t j) const {
    if (stride == 1)
      return i * in() + j;
    if (i < 3 && j < 3)
      return i * 3 + j;
    return i < 3 ? 9 + i * 2 + j - 3 : j < 3 ? 15 + j * 2 + i - 3 : 21 + (i - 3) * 2 + j - 3;
  }
  constexpr int64_t filter(int64_t i, int64_t j) const {
    if (stride == 1)
      return i * in() + j;
    return i < 3 && j < 3 ? i * 3 + j : i < 3 ? 9 + i : j < 3 ? 12 + j : 15;
  }
  /// Whether no result but a side's last ones (of F(4,3): the last) needs this point of it: tiles
  /// that reach beyond the image go without.
  constexpr bool isForLast(int64_t i) const {
    return i + 1 == in() || (stride == 2 && i == 2);
  }

  /// Scratch memory of a worker in bytes: transformed inputs [point][tile][channel]
  /// and products [point][tile][column] of so many columns.
  int64_t scratchBytes(int64_t tiles, int64_t channels, int64_t columns) const {
    return 4 * points() * tiles * (rowStride(channels) + productStride(columns));
  }
  static int64_t productStride(int64_t columns) { return columns + 16; }
  /// Row of the matrix that transforms filters: it gives point i of three taps.
  std::array<double, 3> filterRow(int64_t i) const {
    constexpr double a = kNear * kNear, b = kFar * kFar;
    if (stride == 2)
      return {i < 2 ? 1. : 0., i == 3 ? 1. : 0., i == 1 || i == 2 ? 1. : 0.};
    if (i + 1 == in())
      return {0, 0, 1};
    if (out == 2)
      return i == 0 ? std::array<double, 3>{1, 0, 0} : std::array<double, 3>{.5, i == 1 ? .5 : -.5, .5};
    if (i == 0)
      return {1 / (a * b), 0, 0};
    double point = (i <= 2 ? kNear : kFar) * (i % 2 ? 1 : -1);
    double scale = i <= 2 ? 1 / (2 * a * (a - b)) : 1 / (2 * b * (b - a));
    return {scale, scale * point, scale * point * point};
  }
};

/// What to expect of F(4,3) in f32, relative to the result, root mean square. Fitted to
/// noise; the error of the direct sum is about half of it.
inline double expectedError(int64_t channels) {
  return std::sqrt(2e-13 + 5.6e-15 * static_cast<double>(channels));
}

} // namespace lathe::winograd

#endif // LATHE_SUPPORT_WINOGRAD_H
