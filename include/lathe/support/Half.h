//===- Half.h - narrow floating-point formats ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions between float or double and the 16-, 8- and 4-bit formats. All
// round to nearest even, once: a double is never rounded through float first.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_HALF_H
#define LATHE_SUPPORT_HALF_H

#include "lathe/support/DType.h"

#include <bit>
#include <cstdint>

namespace lathe {

/// What a value beyond the largest finite one becomes.
enum class Overflow {
  Special, ///< infinity, or NaN in formats without infinity (f4E2M1FN has neither: saturates)
  Saturate ///< the largest finite value; infinities too; NaN stays NaN
};

/// The bits of `value` in any floating-point type (f32 and f64 included). NaN
/// becomes the format's quiet NaN with its sign; f4E2M1FN has none and takes -0.
/// f8E8M0FNU has neither sign nor zero: both become NaN.
uint64_t encodeFloat(DType type, double value, Overflow overflow = Overflow::Special);

/// The exact value of the low bits of `bits`.
double decodeFloat(DType type, uint64_t bits);

inline float bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7fc0);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float f16ToFloat(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  // Multiplying by 2^112 moves the exponent's bias and normalizes subnormals exactly.
  float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

inline uint16_t floatToF16(float value) {
  return static_cast<uint16_t>(encodeFloat(DType::F16, value));
}

} // namespace lathe

#endif // LATHE_SUPPORT_HALF_H
