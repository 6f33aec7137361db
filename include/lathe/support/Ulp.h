//===- Ulp.h - how far results are from what was expected ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Distances in units in the last place, and the worst errors of a buffer.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_ULP_H
#define LATHE_SUPPORT_ULP_H

#include "lathe/support/HostTensor.h"

#include <cstdint>
#include <span>
#include <string>

namespace lathe {

/// How many values of the floating-point type lie between two, given as bits: 0
/// for the same value (+0 and -0, any two NaN), 1 for neighbours, and for one NaN
/// UINT64_MAX. The largest finite value and infinity are neighbours.
uint64_t ulpDistance(DType type, uint64_t a, uint64_t b);

/// |got - truth| in units of the spacing of `type` at `truth`: fractional, for
/// judging a narrow result by a wider truth. 0 for equal values and two NaN;
/// infinity when exactly one is NaN, or infinite in a way that rounding `truth`
/// to the type does not explain.
double ulpError(DType type, double got, double truth);

/// The worst errors of one buffer against another. Indices count elements (for
/// complex types, the element that holds the part) and are -1 without elements.
struct ErrorStats {
  int64_t count = 0;
  int64_t different = 0;     ///< elements that are not the same value
  int64_t specialMismatch = 0; ///< NaN or infinity on one side only, or of other sign
  double maxAbs = 0, maxRel = 0, maxUlp = 0; ///< infinite when specialMismatch > 0
  int64_t worstAbs = -1, worstRel = -1, worstUlp = -1;
  /// maxAbs in units of the spacing at the largest finite expected value: what tells how good a sum
  /// is whose terms cancel, where the elements' own ULP tell nothing.
  double scaledUlp = 0;
  /// "3 of 12 differ, worst 2 ULP at 5, abs 1e-7 at 5, rel 1e-6 at 0"
  std::string str() const;
};

/// Compares `got` with `expected`, both of `type` (any but string). Relative
/// errors are |got - expected| / |expected|, or the absolute error where expected
/// is 0. Integers count their difference as ULP. Usage error when the sizes
/// differ or are no whole number of elements.
Result<ErrorStats> compareBuffers(DType type, std::span<const std::byte> got,
                                  std::span<const std::byte> expected);

/// The same against a truth in f64, through ulpError: `expected` has one double an
/// element (two for complex types).
Result<ErrorStats> compareToTruth(DType type, std::span<const std::byte> got,
                                  std::span<const double> expected);

} // namespace lathe

#endif // LATHE_SUPPORT_ULP_H
