//===- Ranges.h - which range of a value gets codes -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A value is observed batch by batch: its minimum and maximum, and where a method asks for more a histogram, which is all
// that is kept of it. A method then chooses the range that codes span; what lies outside is clipped.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_QUANTIZE_RANGES_H
#define LATHE_QUANTIZE_RANGES_H

#include "lathe/quantize/Recipe.h"

#include <span>

namespace lathe::quantize {

enum class RangeKind { MinMax, Moving, Percentile, Mse, Kl };

struct RangeMethod {
  RangeKind kind = RangeKind::MinMax;
  double parameter = 0; ///< Percentile: 99 < p <= 100; Moving: the weight of a new batch, 0 < m <= 1
  bool needsHistogram() const { return kind >= RangeKind::Percentile; }
  /// "minmax", "moving:0.1", "percentile:99.99", "mse", "kl".
  std::string text() const;
};
/// Such a text, whose number may be left out. Usage error that lists the methods otherwise.
Result<RangeMethod> rangeMethod(std::string_view text);

/// The least and the greatest of elements, of which there is one at least; none where one is not finite.
std::optional<Range> minMaxOf(std::span<const float> elements);

/// Counts of a value's elements in bins [k * width, (k + 1) * width), -kSide <= k < kSide. The width is a power of
/// two, which doubles when an element lies outside: each bin is then joined with its neighbour, exactly. So it does
/// not depend on how elements are spread over batches.
class Histogram {
public:
  static constexpr int64_t kSide = 2048;

  Histogram() : counts(2 * kSide) {}
  /// `minMax`: of the elements.
  void add(std::span<const float> elements, Range minMax);

  double width() const { return binWidth; } ///< 0: only zeros so far
  uint64_t at(int64_t bin) const { return counts[size_t(bin + kSide)]; }
  uint64_t total() const { return sum; }
  Range minMax() const { return {lowest, highest}; }
  /// Elements outside of `range`, to the width of a bin.
  uint64_t outside(Range range) const;

  /// All of it as kState numbers, exactly, and back.
  static constexpr size_t kState = 2 * kSide + 4;
  void appendTo(std::vector<double> &state) const;
  static Histogram of(std::span<const double> state);

private:
  void widen(double largest);
  std::vector<uint64_t> counts;
  double binWidth = 0, lowest = 0, highest = 0;
  uint64_t sum = 0;
};

/// The magnitude below which this share of the elements lies, 0 <= share <= 1; within a bin as if they were spread evenly.
double magnitudeBelow(const Histogram &histogram, double share);
/// The share of the elements' sum of squares that those below a magnitude make, to the width of a bin.
double energyBelow(const Histogram &histogram, double magnitude);

/// A running mean of the minima and maxima of batches: r += m (batch - r), which begins at the first.
void moveRange(Range &range, Range batch, double m, bool first);

/// The range by Percentile, Mse or Kl, within minimum and maximum:
/// - Percentile: as much at each end is left out as (100 - p) / 2 percent of the elements, to the width of a bin.
/// - Mse: least sum of squares of x - dequantize(quantize(x)), clipping included.
/// - Kl: least Kullback-Leibler divergence of the codes' distribution from the clipped one (Migacz, "8-bit
///   inference with TensorRT", 2017, for codes with a zero point).
/// `type`: of the value, which scales have (codesOf). Mse and Kl try 128 parts of minimum and maximum: of both ends together, then of the upper and the lower one alone.
Range solveRange(const Histogram &histogram, const RangeMethod &method, DType type = DType::F32);

} // namespace lathe::quantize

#endif // LATHE_QUANTIZE_RANGES_H
