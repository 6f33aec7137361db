//===- DType.h - element types ----------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types outside MLIR: engine files, runtime, reference, KernelSpec.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_DTYPE_H
#define LATHE_SUPPORT_DTYPE_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace lathe {

/// The numbers are part of the engine format: append only.
enum class DType : uint8_t {
  Bool = 0, I8, I16, I32, I64, UI8, UI16, UI32, UI64,
  F16, BF16, F32, F64, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0,
  I4, UI4, F4E2M1, I2, UI2, C64, C128, String,
};

/// Bits of one element in memory: bool 8, i4 4 (packed, low nibble first),
/// string 0 (not storable in a buffer).
unsigned bitWidth(DType type);
/// Whole bytes of `count` densely packed elements.
int64_t byteSize(DType type, int64_t count);
/// "f32", "bf16", "i64", "ui8", "bool", "f8E4M3FN", "complex<f32>": as `lathe`
/// prints types, except that i1 is "bool".
std::string_view name(DType type);
/// Reverse of name(); "i1" is Bool too.
std::optional<DType> parseDType(std::string_view name);
bool isFloat(DType type);
bool isInteger(DType type); ///< signed or unsigned, not bool

} // namespace lathe

#endif // LATHE_SUPPORT_DTYPE_H
