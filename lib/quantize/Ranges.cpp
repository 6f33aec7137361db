//===- Ranges.cpp - histograms, and the ranges that they suggest ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Ranges.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace lathe::quantize {

namespace {

struct KnownMethod {
  const char *name;
  RangeKind kind;
  double parameter; ///< unless one is given; 0: takes none
};
constexpr KnownMethod kMethods[] = {{"minmax", RangeKind::MinMax, 0},
                                    {"moving", RangeKind::Moving, 0.1},
                                    {"percentile", RangeKind::Percentile, 99.99},
                                    {"mse", RangeKind::Mse, 0},
                                    {"kl", RangeKind::Kl, 0}};

} // namespace

std::string RangeMethod::text() const {
  for (const KnownMethod &known : kMethods)
    if (known.kind == kind) {
      std::string text = known.name;
      if (known.parameter) {
        char number[32];
        text += ":" + std::string(number, std::to_chars(number, number + sizeof number, parameter).ptr);
      }
      return text;
    }
  return {};
}

Result<RangeMethod> rangeMethod(std::string_view text) {
  std::string_view name = text.substr(0, text.find(':'));
  for (const KnownMethod &known : kMethods) {
    if (name != known.name)
      continue;
    RangeMethod method{known.kind, known.parameter};
    if (name.size() == text.size())
      return method;
    std::string_view number = text.substr(name.size() + 1);
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), method.parameter);
    bool fits = method.kind == RangeKind::Percentile ? method.parameter > 99 && method.parameter <= 100
                                                     : method.parameter > 0 && method.parameter <= 1;
    if (!known.parameter || error != std::errc() || end != number.data() + number.size() || !fits)
      return usageError("'" + std::string(text) + "': " +
                            (known.parameter ? "wants a number in (" +
                                                   std::string(known.kind == RangeKind::Percentile ? "99, 100]" : "0, 1]")
                                             : "takes no number"),
                        "--range");
    return method;
  }
  return usageError("wants minmax, moving[:m], percentile[:p], mse or kl, not '" + std::string(text) + "'", "--range");
}

void moveRange(Range &range, Range batch, double m, bool first) {
  if (first) {
    range = batch;
    return;
  }
  range.min += m * (batch.min - range.min);
  range.max += m * (batch.max - range.max);
}

std::optional<Range> minMaxOf(std::span<const float> elements) {
  constexpr size_t kLanes = 16; // of vectors: a minimum of floats in order is one at a time
  float low[kLanes], high[kLanes], odd[kLanes] = {};
  std::fill_n(low, kLanes, elements[0]);
  std::fill_n(high, kLanes, elements[0]);
  auto see = [&](size_t lane, float v) {
    low[lane] = v < low[lane] ? v : low[lane];
    high[lane] = v > high[lane] ? v : high[lane];
    odd[lane] += v * 0; // NaN from there on where v is NaN or infinite
  };
  size_t i = 0;
  for (; i + kLanes <= elements.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      see(lane, elements[i + lane]);
  for (; i < elements.size(); ++i)
    see(0, elements[i]);
  Range range{double(low[0]), double(high[0])};
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (std::isnan(odd[lane]))
      return std::nullopt;
    range = {std::min(range.min, double(low[lane])), std::max(range.max, double(high[lane]))};
  }
  return range;
}

void Histogram::add(std::span<const float> elements, Range minMax) {
  lowest = sum ? std::min(lowest, minMax.min) : minMax.min;
  highest = sum ? std::max(highest, minMax.max) : minMax.max;
  sum += elements.size();
  const double largest = std::max(std::fabs(minMax.min), std::fabs(minMax.max));
  if (largest == 0) {
    counts[kSide] += elements.size();
    return;
  }
  widen(largest);
  // A product by a power of two is exact. Places are found in vectors, then counted one by one.
  const auto inverse = float(1 / binWidth);
  constexpr size_t kLanes = 64;
  int32_t bins[kLanes];
  for (size_t i = 0; i < elements.size(); i += kLanes) {
    const size_t count = std::min(kLanes, elements.size() - i);
    for (size_t lane = 0; lane < count; ++lane) {
      const float place = elements[i + lane] * inverse;
      auto bin = int32_t(place); // rounded up where it is negative
      bins[lane] = bin - (float(bin) > place);
    }
    for (size_t lane = 0; lane < count; ++lane)
      ++counts[size_t(bins[lane] + kSide)];
  }
}

void Histogram::appendTo(std::vector<double> &state) const {
  state.insert(state.end(), counts.begin(), counts.end());
  state.insert(state.end(), {binWidth, lowest, highest, double(sum)});
}

Histogram Histogram::of(std::span<const double> state) {
  Histogram made;
  for (size_t i = 0; i < made.counts.size(); ++i)
    made.counts[i] = uint64_t(state[i]);
  const std::span<const double> rest = state.subspan(made.counts.size());
  made.binWidth = rest[0], made.lowest = rest[1], made.highest = rest[2], made.sum = uint64_t(rest[3]);
  return made;
}

void Histogram::widen(double largest) {
  if (binWidth == 0) {
    int exponent;
    std::frexp(largest, &exponent);        // largest < 2^exponent
    exponent = std::max(exponent, -100);   // the inverse of the width is a normal f32
    binWidth = std::ldexp(1.0, exponent) / kSide;
    return;
  }
  for (; largest >= binWidth * kSide; binWidth *= 2) {
    std::vector<uint64_t> joined(counts.size());
    for (int64_t bin = -kSide; bin < kSide; ++bin)
      joined[size_t((bin >> 1) + kSide)] += at(bin);
    counts.swap(joined);
  }
}

uint64_t Histogram::outside(Range range) const {
  uint64_t count = 0;
  for (int64_t bin = -kSide; bin < kSide && binWidth > 0; ++bin) {
    double centre = (double(bin) + 0.5) * binWidth;
    if (centre < range.min || centre > range.max)
      count += at(bin);
  }
  return count;
}

double magnitudeBelow(const Histogram &histogram, double share) {
  const double wanted = share * double(histogram.total());
  double below = 0;
  for (int64_t bin = 0; bin < Histogram::kSide && wanted > 0; ++bin) {
    const double here = double(histogram.at(bin) + histogram.at(-bin - 1));
    if (here > 0 && below + here >= wanted)
      return (double(bin) + (wanted - below) / here) * histogram.width();
    below += here;
  }
  return 0;
}

double energyBelow(const Histogram &histogram, double magnitude) {
  double below = 0, all = 0;
  for (int64_t bin = 0; bin < Histogram::kSide; ++bin) {
    const double centre = (double(bin) + 0.5) * histogram.width();
    const double energy = double(histogram.at(bin) + histogram.at(-bin - 1)) * centre * centre;
    all += energy;
    below += centre < magnitude ? energy : 0;
  }
  return all > 0 ? below / all : 0;
}

namespace {

/// Bins that hold anything, from the lowest.
struct Filled {
  double centre;
  double count;
};

std::vector<Filled> filledBins(const Histogram &histogram) {
  std::vector<Filled> bins;
  for (int64_t bin = -Histogram::kSide; bin < Histogram::kSide; ++bin)
    if (uint64_t count = histogram.at(bin))
      bins.push_back({(double(bin) + 0.5) * histogram.width(), double(count)});
  return bins;
}

double codeOf(double v, const CodesOfRange &codes) {
  return std::clamp(std::nearbyint(v / double(codes.scale)) + codes.zero, 0.0, 255.0);
}

double squaredError(const std::vector<Filled> &bins, const CodesOfRange &codes) {
  double sum = 0;
  for (const Filled &bin : bins) {
    double error = bin.centre - (codeOf(bin.centre, codes) - codes.zero) * double(codes.scale);
    sum += bin.count * error * error;
  }
  return sum;
}

/// Of the distribution over the bins inside, with what is outside in the outermost of them, from one in which all
/// bins of a code are alike.
double divergence(const std::vector<Filled> &bins, const CodesOfRange &codes, Range range) {
  size_t first = 0, last = bins.size();
  while (first < last && bins[first].centre < range.min)
    ++first;
  while (last > first && bins[last - 1].centre > range.max)
    --last;
  if (first == last)
    return INFINITY;
  std::array<double, 256> mass{}, used{};
  double all = 0, inside = 0;
  for (size_t i = 0; i < bins.size(); ++i) {
    all += bins[i].count;
    if (i < first || i >= last)
      continue;
    size_t code = size_t(codeOf(bins[i].centre, codes));
    mass[code] += bins[i].count;
    used[code] += 1;
    inside += bins[i].count;
  }
  double below = 0, above = 0, sum = 0;
  for (size_t i = 0; i < first; ++i)
    below += bins[i].count;
  for (size_t i = last; i < bins.size(); ++i)
    above += bins[i].count;
  for (size_t i = first; i < last; ++i) {
    double p = (bins[i].count + (i == first ? below : 0) + (i + 1 == last ? above : 0)) / all;
    size_t code = size_t(codeOf(bins[i].centre, codes));
    sum += p * std::log(p / (mass[code] / used[code] / inside));
  }
  return sum;
}

Range percentile(const Histogram &histogram, double percent) {
  Range minMax = histogram.minMax();
  const double out = double(histogram.total()) * (100 - percent) / 200;
  int64_t low = -Histogram::kSide, high = Histogram::kSide - 1;
  for (double seen = 0; low < high && (seen += double(histogram.at(low))) <= out;)
    ++low;
  for (double seen = 0; high > low && (seen += double(histogram.at(high))) <= out;)
    --high;
  return {std::max(minMax.min, double(low) * histogram.width()),
          std::min(minMax.max, double(high + 1) * histogram.width())};
}

} // namespace

Range solveRange(const Histogram &histogram, const RangeMethod &method, DType type) {
  const Range minMax = histogram.minMax();
  if (histogram.width() == 0)
    return minMax;
  if (method.kind == RangeKind::Percentile)
    return percentile(histogram, method.parameter);
  const std::vector<Filled> bins = filledBins(histogram);
  Range best = minMax;
  double least = INFINITY;
  auto attempt = [&](Range range) {
    std::optional<CodesOfRange> codes = codesOf(range, type);
    if (!codes)
      return;
    double loss = method.kind == RangeKind::Mse ? squaredError(bins, *codes) : divergence(bins, *codes, range);
    if (loss < least) {
      least = loss;
      best = range;
    }
  };
  constexpr int kParts = 128;
  for (int i = kParts; i > 0; --i)
    attempt({minMax.min * i / kParts, minMax.max * i / kParts});
  const Range joint = best;
  for (int i = kParts; i > 0 && minMax.max > 0; --i)
    attempt({joint.min, minMax.max * i / kParts});
  const double upper = best.max;
  for (int i = kParts; i > 0 && minMax.min < 0; --i)
    attempt({minMax.min * i / kParts, upper});
  return best;
}

} // namespace lathe::quantize
