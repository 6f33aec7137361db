//===- HostTensor.h - an array in host memory ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A dense row-major array that owns its bytes, and access to single elements of
// any type. For files, comparison and the reference; never for speed.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_HOSTTENSOR_H
#define LATHE_SUPPORT_HOSTTENSOR_H

#include "lathe/support/DType.h"
#include "lathe/support/Half.h"
#include "lathe/support/Status.h"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lathe {

/// Number of elements; an error for a negative dimension or when the bytes of
/// that many elements (16 each at most) would not fit 63 bits.
Result<int64_t> checkedElementCount(std::span<const int64_t> dims);

struct HostTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> dims;
  std::vector<std::byte> data; ///< byteSize(dtype, count()) bytes; of strings, packed (Strings.h)

  HostTensor() = default;
  /// Zeros, or strings without characters. `dims` must have passed checkedElementCount.
  HostTensor(DType dtype, std::vector<int64_t> dims);

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t count() const;
  bool operator==(const HostTensor &) const = default;

  /// Element by linear index, converted exactly where the target can hold it.
  double real(int64_t index) const;
  int64_t integer(int64_t index) const;
  std::complex<double> complexAt(int64_t index) const;
  /// Stores with the type's rounding. Integers: setReal truncates toward zero, and what does not fit
  /// becomes what Integers.h says; setInteger wraps. Bool: nonzero is 1.
  void setReal(int64_t index, double value, Overflow overflow = Overflow::Special);
  void setInteger(int64_t index, int64_t value);
  void setComplex(int64_t index, std::complex<double> value);
};

/// Reads or writes one element of a packed buffer; `index` counts elements.
double loadReal(DType type, const std::byte *data, int64_t index);
int64_t loadInteger(DType type, const std::byte *data, int64_t index);
void storeReal(DType type, std::byte *data, int64_t index, double value,
               Overflow overflow = Overflow::Special);
void storeInteger(DType type, std::byte *data, int64_t index, int64_t value);

/// Copies one element's bits between tensors of one type.
void copyElement(const HostTensor &from, int64_t fromIndex, HostTensor &to, int64_t toIndex);

bool isComplex(DType type);
bool isUnsigned(DType type); ///< an unsigned integer

} // namespace lathe

#endif // LATHE_SUPPORT_HOSTTENSOR_H
