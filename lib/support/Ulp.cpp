//===- Ulp.cpp - how far results are from what was expected ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bits of floating-point types map to integers in the order of their values.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Ulp.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace lathe {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Monotone in the value; both zeros are 0.
int64_t ordered(DType type, uint64_t bits) {
  unsigned width = bitWidth(type);
  if (type == DType::F8E8M0)
    return static_cast<int64_t>(bits & 0xff);
  uint64_t sign = uint64_t(1) << (width - 1);
  int64_t magnitude = static_cast<int64_t>(bits & (sign - 1));
  return bits & sign ? -magnitude : magnitude;
}

/// Explicit mantissa bits and smallest normal exponent.
void precision(DType type, int &mantissa, int &minExponent) {
  switch (type) {
  case DType::F64:
    mantissa = 52, minExponent = -1022;
    return;
  case DType::F32:
    mantissa = 23, minExponent = -126;
    return;
  case DType::F16:
    mantissa = 10, minExponent = -14;
    return;
  case DType::BF16:
    mantissa = 7, minExponent = -126;
    return;
  case DType::F8E4M3FN:
    mantissa = 3, minExponent = -6;
    return;
  case DType::F8E4M3FNUZ:
    mantissa = 3, minExponent = -7;
    return;
  case DType::F8E5M2:
    mantissa = 2, minExponent = -14;
    return;
  case DType::F8E5M2FNUZ:
    mantissa = 2, minExponent = -15;
    return;
  case DType::F4E2M1:
    mantissa = 1, minExponent = 0;
    return;
  default: // f8E8M0
    mantissa = 0, minExponent = -127;
    return;
  }
}

/// The exponent of the distance between neighbours at a finite value.
int spacingExponent(DType type, double value) {
  int mantissa, minExponent, exponent = 0;
  precision(type, mantissa, minExponent);
  if (value != 0)
    std::frexp(value, &exponent);
  return std::max(value == 0 ? minExponent : exponent - 1, minExponent) - mantissa;
}

/// One part (a real element, or half a complex one) of the comparison.
class Accumulator {
public:
  explicit Accumulator(ErrorStats &stats) : stats(stats) {}

  void add(int64_t index, double got, double expected, double difference, double ulp) {
    bool same = got == expected || (std::isnan(got) && std::isnan(expected));
    bool special = !same && !(std::isfinite(got) && std::isfinite(expected));
    if (same && ulp == 0)
      difference = 0;
    else
      ++stats.different;
    if (special) {
      ++stats.specialMismatch;
      difference = ulp = kInfinity;
    }
    double relative = difference == 0 || expected == 0 ? difference
                      : special                        ? kInfinity
                                                       : difference / std::fabs(expected);
    update(stats.maxAbs, stats.worstAbs, difference, index);
    update(stats.maxRel, stats.worstRel, relative, index);
    update(stats.maxUlp, stats.worstUlp, ulp, index);
    if (std::isfinite(expected))
      largest = std::max(largest, std::fabs(expected));
  }

  void finish(DType part) {
    stats.scaledUlp = !isFloat(part) || !std::isfinite(stats.maxAbs)
                          ? stats.maxAbs
                          : std::ldexp(stats.maxAbs, -spacingExponent(part, largest));
  }

private:
  static void update(double &worst, int64_t &at, double value, int64_t index) {
    if (at < 0 || value > worst) {
      worst = value;
      at = index;
    }
  }
  ErrorStats &stats;
  double largest = 0;
};

/// The type that is compared: complex buffers are buffers of their parts.
DType partOf(DType type) {
  return type == DType::C64 ? DType::F32 : type == DType::C128 ? DType::F64 : type;
}

/// Parts in a buffer; an error when it holds no whole number of them.
Result<int64_t> partCount(DType type, std::span<const std::byte> buffer) {
  unsigned bits = bitWidth(type);
  if (bits == 0)
    return usageError("strings cannot be compared by distance");
  if (bits < 8)
    return static_cast<int64_t>(buffer.size()) * (8 / bits);
  if (buffer.size() % (bits / 8) != 0)
    return usageError("buffer of " + std::to_string(buffer.size()) + " bytes is no array of " +
                      std::string(name(type)));
  int64_t elements = static_cast<int64_t>(buffer.size() / (bits / 8));
  return isComplex(type) ? 2 * elements : elements;
}

double integerDistance(DType type, int64_t a, int64_t b) {
  uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  bool less = isUnsigned(type) ? x < y : a < b;
  return static_cast<double>(less ? y - x : x - y);
}

} // namespace

uint64_t ulpDistance(DType type, uint64_t a, uint64_t b) {
  bool nanA = std::isnan(decodeFloat(type, a)), nanB = std::isnan(decodeFloat(type, b));
  if (nanA || nanB)
    return nanA && nanB ? 0 : UINT64_MAX;
  int64_t x = ordered(type, a), y = ordered(type, b);
  return x < y ? static_cast<uint64_t>(y) - static_cast<uint64_t>(x)
               : static_cast<uint64_t>(x) - static_cast<uint64_t>(y);
}

double ulpError(DType type, double got, double truth) {
  if (got == truth || (std::isnan(got) && std::isnan(truth)))
    return 0;
  if (std::isnan(got) || std::isnan(truth))
    return kInfinity;
  double rounded = decodeFloat(type, encodeFloat(type, truth));
  if (got == rounded && std::isinf(got))
    return 0;
  if (std::isinf(got) || std::isinf(truth))
    return kInfinity;
  return std::ldexp(std::fabs(got - truth), -spacingExponent(type, truth));
}

std::string ErrorStats::str() const {
  char text[256];
  std::snprintf(text, sizeof text,
                "%lld of %lld differ, worst %.6g ULP at %lld, abs %.6g at %lld, rel %.6g at %lld",
                static_cast<long long>(different), static_cast<long long>(count), maxUlp,
                static_cast<long long>(worstUlp), maxAbs, static_cast<long long>(worstAbs), maxRel,
                static_cast<long long>(worstRel));
  return text;
}

Result<ErrorStats> compareBuffers(DType type, std::span<const std::byte> got,
                                  std::span<const std::byte> expected) {
  if (got.size() != expected.size())
    return usageError("buffers of " + std::to_string(got.size()) + " and " +
                      std::to_string(expected.size()) + " bytes cannot be compared");
  Result<int64_t> parts = partCount(type, got);
  if (!parts)
    return parts.status();
  int perElement = isComplex(type) ? 2 : 1;
  DType part = partOf(type);
  ErrorStats stats;
  stats.count = *parts / perElement;
  Accumulator accumulator(stats);
  for (int64_t i = 0; i < *parts; ++i) {
    double x = loadReal(part, got.data(), i), y = loadReal(part, expected.data(), i);
    double difference, ulp;
    if (isFloat(part)) {
      difference = std::fabs(x - y);
      uint64_t distance = ulpDistance(part, encodeFloat(part, x), encodeFloat(part, y));
      ulp = static_cast<double>(distance);
    } else {
      difference = ulp = integerDistance(part, loadInteger(part, got.data(), i),
                                         loadInteger(part, expected.data(), i));
    }
    accumulator.add(i / perElement, x, y, difference, ulp);
  }
  accumulator.finish(part);
  return stats;
}

Result<ErrorStats> compareToTruth(DType type, std::span<const std::byte> got,
                                  std::span<const double> expected) {
  Result<int64_t> parts = partCount(type, got);
  if (!parts)
    return parts.status();
  // A last byte of a packed type may hold fewer elements than it has room for.
  int64_t slack = bitWidth(type) < 8 ? 8 / bitWidth(type) - 1 : 0;
  int64_t given = static_cast<int64_t>(expected.size());
  if (given > *parts || given < *parts - slack)
    return usageError("a buffer of " + std::to_string(*parts) + " values cannot be compared with " +
                      std::to_string(given));
  int perElement = isComplex(type) ? 2 : 1;
  DType part = partOf(type);
  ErrorStats stats;
  stats.count = given / perElement;
  Accumulator accumulator(stats);
  for (int64_t i = 0; i < given; ++i) {
    double x = loadReal(part, got.data(), i), y = expected[i];
    if (isFloat(part)) {
      double ulp = ulpError(part, x, y);
      // An infinity that rounding the truth explains is no mismatch.
      if (ulp == 0 && x != y && !std::isnan(y))
        y = x;
      accumulator.add(i / perElement, x, y, std::fabs(x - y), ulp);
    } else {
      accumulator.add(i / perElement, x, y, std::fabs(x - y), std::fabs(x - y));
    }
  }
  accumulator.finish(part);
  return stats;
}

} // namespace lathe
