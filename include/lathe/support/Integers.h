//===- Integers.h - what integer arithmetic gives at its edges --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules that the reference, the folder, host ops and all kernels follow where C++
// leaves the result open: floats that no integer holds, divisors of 0, shifts by more
// bits than there are. lib/reference/README.md lists them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_INTEGERS_H
#define LATHE_SUPPORT_INTEGERS_H

#include "lathe/support/HostTensor.h"

#include <cmath>

namespace lathe {

/// `value` truncated to an integer of `type` (no float, no bool), extended to 64 bits by its sign or by
/// zeros. First it becomes an i32, or an i64 for types of 64 bits and u32: NaN and what that does not hold
/// give its least number. Then it wraps to the width of `type`. A u64 holds up to 2^64.
inline int64_t truncateToInteger(DType type, double value) {
  const unsigned bits = bitWidth(type);
  const bool isSigned = !isUnsigned(type);
  const bool wide = bits == 64 || (bits == 32 && !isSigned);
  const double end = wide ? 0x1p63 : 0x1p31;
  int64_t whole = wide ? INT64_MIN : INT32_MIN;
  if (std::fabs(value) < end)
    whole = static_cast<int64_t>(value);
  else if (bits == 64 && !isSigned && value >= end && value < 0x1p64)
    whole = static_cast<int64_t>(static_cast<uint64_t>(value));
  if (bits == 64)
    return whole;
  const uint64_t high = static_cast<uint64_t>(whole) << (64 - bits);
  return isSigned ? static_cast<int64_t>(high) >> (64 - bits)
                  : static_cast<int64_t>(high >> (64 - bits));
}

/// Towards zero; by 0 the result is 0, and the least number by -1 is itself.
inline int64_t divideIntegers(int64_t a, int64_t b, bool isSigned) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  if (b == 0)
    return 0;
  if (!isSigned)
    return static_cast<int64_t>(x / y);
  return b == -1 ? static_cast<int64_t>(0 - x) : a / b;
}

/// What that division leaves, with the sign of `a`; by 0 it is 0.
inline int64_t remainderOfIntegers(int64_t a, int64_t b, bool isSigned) {
  if (b == 0 || (isSigned && b == -1))
    return 0;
  return isSigned ? a % b
                  : static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
}

} // namespace lathe

#endif // LATHE_SUPPORT_INTEGERS_H
