//===- Half.cpp - narrow floating-point formats ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One encoder and one decoder, driven by a table of formats.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Half.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe {
namespace {

struct Format {
  int bits;
  int mantissa;       ///< explicit mantissa bits
  int bias;
  uint64_t maxFinite; ///< bits of the largest finite value
  uint64_t infinity;  ///< bits of infinity; 0: none
  uint64_t nan;       ///< bits of the quiet NaN
  bool negativeNanOnly = false; ///< the one NaN is where -0 would be (the UZ formats)
};

Format formatOf(DType type) {
  switch (type) {
  case DType::BF16:
    return {16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0};
  case DType::F8E4M3FN:
    return {8, 3, 7, 0x7e, 0, 0x7f};
  case DType::F8E4M3FNUZ:
    return {8, 3, 8, 0x7f, 0, 0x80, true};
  case DType::F8E5M2:
    return {8, 2, 15, 0x7b, 0x7c, 0x7e};
  case DType::F8E5M2FNUZ:
    return {8, 2, 16, 0x7f, 0, 0x80, true};
  case DType::F4E2M1:
    return {4, 1, 1, 0x7, 0, 0x8};
  default:
    return {16, 10, 15, 0x7bff, 0x7c00, 0x7e00};
  }
}

uint64_t encodeScale(double value, Overflow overflow) {
  if (!(value > 0))
    return 0xff;
  if (std::isinf(value))
    return overflow == Overflow::Saturate ? 0xfe : 0xff;
  int exponent;
  double m = std::frexp(value, &exponent); // [0.5, 1)
  // The tie, 1.5, goes to the even significand 2, that is up.
  int code = exponent - 1 + (m >= 0.75) + 127;
  if (code > 0xfe)
    return overflow == Overflow::Saturate ? 0xfe : 0xff;
  return std::max(code, 0);
}

} // namespace

uint64_t encodeFloat(DType type, double value, Overflow overflow) {
  if (type == DType::F64 || type == DType::F32) {
    if (overflow == Overflow::Saturate && !std::isnan(value)) {
      double limit = type == DType::F64 ? std::numeric_limits<double>::max()
                                        : std::numeric_limits<float>::max();
      value = std::clamp(value, -limit, limit);
    }
    if (type == DType::F64)
      return std::bit_cast<uint64_t>(value);
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  }
  if (type == DType::F8E8M0)
    return encodeScale(value, overflow);

  Format f = formatOf(type);
  uint64_t signBit = uint64_t(1) << (f.bits - 1);
  uint64_t sign = std::signbit(value) ? signBit : 0;
  if (std::isnan(value))
    return f.nan | (f.negativeNanOnly || f.nan == signBit ? 0 : sign);
  double magnitude = std::fabs(value);
  uint64_t bits;
  if (std::isinf(magnitude)) {
    bits = f.maxFinite + 1;
  } else if (magnitude == 0) {
    bits = 0;
  } else {
    int exponent;
    std::frexp(magnitude, &exponent);
    exponent = std::max(exponent - 1, 1 - f.bias);
    // Far beyond the format the bits would not fit the arithmetic below.
    exponent = std::min(exponent, 1200);
    double steps = std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent));
    // The implicit one, when there is one, carries into the exponent field.
    bits = static_cast<uint64_t>(steps) +
           (static_cast<uint64_t>(exponent + f.bias - 1) << f.mantissa);
  }
  if (bits > f.maxFinite) {
    if (overflow == Overflow::Saturate || type == DType::F4E2M1)
      bits = f.maxFinite;
    else if (f.infinity)
      bits = f.infinity;
    else
      return f.nan | (f.negativeNanOnly ? 0 : sign);
  }
  if (f.negativeNanOnly && bits == 0)
    return 0; // these formats have no negative zero
  return bits | sign;
}

double decodeFloat(DType type, uint64_t bits) {
  if (type == DType::F64)
    return std::bit_cast<double>(bits);
  if (type == DType::F32)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (type == DType::F8E8M0) {
    bits &= 0xff;
    return bits == 0xff ? nan : std::ldexp(1.0, static_cast<int>(bits) - 127);
  }
  Format f = formatOf(type);
  uint64_t signBit = uint64_t(1) << (f.bits - 1);
  bits &= (signBit << 1) - 1;
  if (f.negativeNanOnly && bits == f.nan)
    return nan;
  bool negative = bits & signBit;
  uint64_t magnitude = bits & (signBit - 1);
  double value;
  if (magnitude > f.maxFinite) {
    value = f.infinity && magnitude == f.infinity ? std::numeric_limits<double>::infinity() : nan;
  } else {
    int exponent = static_cast<int>(magnitude >> f.mantissa);
    uint64_t fraction = magnitude & ((uint64_t(1) << f.mantissa) - 1);
    if (exponent)
      fraction |= uint64_t(1) << f.mantissa;
    value = std::ldexp(static_cast<double>(fraction),
                       std::max(exponent, 1) - f.bias - f.mantissa);
  }
  return negative ? -value : value;
}

} // namespace lathe
