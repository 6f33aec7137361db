//===- FastTransform.h - fast Fourier transforms by a block -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What codegen/device/fourier.cuh transforms, and in how much memory: passes and codegen agree on it here.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_FASTTRANSFORM_H
#define LATHE_SUPPORT_FASTTRANSFORM_H

#include <cstdint>
#include <initializer_list>

namespace lathe {

/// Complex elements that a row of `length` becomes: real rows, and halves of spectra, of an even length are taken
/// two elements as one.
constexpr int64_t pointsOfTransform(int64_t length, bool complexRows) { return !complexRows && length % 2 == 0 ? length / 2 : length; }

/// Bytes of shared memory of a block that transforms so many rows of `points` complex elements: two copies, one place in
/// seventeen left out. `realBytes`: of a real number.
constexpr int64_t transformBytes(int64_t points, int64_t rows, int64_t realBytes) { return 4 * rows * (points + points / 16) * realBytes; }

/// Whether stages of 2 to 13 elements make a transform of `length`, of which a row fits `mostBytes`.
constexpr bool hasFastTransform(int64_t length, bool complexRows, int64_t realBytes, int64_t mostBytes) {
  int64_t rest = length;
  for (int64_t prime : {2, 3, 5, 7, 11, 13})
    while (rest > 1 && rest % prime == 0)
      rest /= prime;
  return rest == 1 && transformBytes(pointsOfTransform(length, complexRows), 1, realBytes) <= mostBytes;
}

} // namespace lathe

#endif // LATHE_SUPPORT_FASTTRANSFORM_H
