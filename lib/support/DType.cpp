//===- DType.cpp - element types --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One table describes every element type.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/DType.h"

namespace lathe {
namespace {

enum class Class : uint8_t { Bool, Integer, Float, Complex, String };

struct Info {
  std::string_view name;
  unsigned bits;
  Class kind;
};

/// In the order of DType.
constexpr Info kInfo[] = {
    {"bool", 8, Class::Bool},          {"i8", 8, Class::Integer},
    {"i16", 16, Class::Integer},       {"i32", 32, Class::Integer},
    {"i64", 64, Class::Integer},       {"ui8", 8, Class::Integer},
    {"ui16", 16, Class::Integer},      {"ui32", 32, Class::Integer},
    {"ui64", 64, Class::Integer},      {"f16", 16, Class::Float},
    {"bf16", 16, Class::Float},        {"f32", 32, Class::Float},
    {"f64", 64, Class::Float},         {"f8E4M3FN", 8, Class::Float},
    {"f8E4M3FNUZ", 8, Class::Float},   {"f8E5M2", 8, Class::Float},
    {"f8E5M2FNUZ", 8, Class::Float},   {"f8E8M0FNU", 8, Class::Float},
    {"i4", 4, Class::Integer},         {"ui4", 4, Class::Integer},
    {"f4E2M1FN", 4, Class::Float},     {"i2", 2, Class::Integer},
    {"ui2", 2, Class::Integer},        {"complex<f32>", 64, Class::Complex},
    {"complex<f64>", 128, Class::Complex}, {"string", 0, Class::String},
};
constexpr size_t kCount = sizeof(kInfo) / sizeof(kInfo[0]);
static_assert(kCount == static_cast<size_t>(DType::String) + 1);

const Info &info(DType type) { return kInfo[static_cast<size_t>(type) % kCount]; }

} // namespace

unsigned bitWidth(DType type) { return info(type).bits; }

int64_t byteSize(DType type, int64_t count) {
  unsigned bits = bitWidth(type);
  // Whole-byte types avoid the intermediate bit count, which overflows sooner.
  return bits % 8 == 0 ? count * (bits / 8) : (count * bits + 7) / 8;
}

std::string_view name(DType type) { return info(type).name; }

std::optional<DType> parseDType(std::string_view name) {
  for (size_t i = 0; i < kCount; ++i)
    if (kInfo[i].name == name)
      return static_cast<DType>(i);
  if (name == "i1")
    return DType::Bool;
  return std::nullopt;
}

bool isFloat(DType type) { return info(type).kind == Class::Float; }
bool isInteger(DType type) { return info(type).kind == Class::Integer; }

} // namespace lathe
