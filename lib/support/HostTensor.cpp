//===- HostTensor.cpp - an array in host memory ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element access by bit pattern: one path for whole-byte and packed types.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/HostTensor.h"

#include "lathe/support/Integers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lathe {
namespace {

uint64_t loadBits(unsigned bits, const std::byte *data, int64_t index) {
  if (bits < 8) {
    unsigned perByte = 8 / bits;
    unsigned shift = static_cast<unsigned>(index % perByte) * bits;
    return std::to_integer<uint64_t>(data[index / perByte]) >> shift & ((1u << bits) - 1);
  }
  uint64_t value = 0;
  std::memcpy(&value, data + index * (bits / 8), bits / 8);
  return value;
}

void storeBits(unsigned bits, std::byte *data, int64_t index, uint64_t value) {
  if (bits < 8) {
    unsigned perByte = 8 / bits;
    unsigned shift = static_cast<unsigned>(index % perByte) * bits;
    auto mask = static_cast<std::byte>(((1u << bits) - 1) << shift);
    std::byte &target = data[index / perByte];
    target = (target & ~mask) | (static_cast<std::byte>(value << shift) & mask);
    return;
  }
  std::memcpy(data + index * (bits / 8), &value, bits / 8);
}

int64_t extend(DType type, uint64_t value) {
  unsigned bits = bitWidth(type);
  if (isUnsigned(type) || type == DType::Bool || bits == 64)
    return static_cast<int64_t>(value);
  return static_cast<int64_t>(value << (64 - bits)) >> (64 - bits);
}

} // namespace

bool isComplex(DType type) { return type == DType::C64 || type == DType::C128; }

bool isUnsigned(DType type) {
  switch (type) {
  case DType::UI2:
  case DType::UI4:
  case DType::UI8:
  case DType::UI16:
  case DType::UI32:
  case DType::UI64:
    return true;
  default:
    return false;
  }
}

Result<int64_t> checkedElementCount(std::span<const int64_t> dims) {
  for (int64_t d : dims)
    if (d < 0)
      return invalidError("negative dimension " + std::to_string(d));
  if (std::ranges::find(dims, 0) != dims.end())
    return 0; // however large the other dimensions are
  int64_t count = 1;
  for (int64_t d : dims)
    if (__builtin_mul_overflow(count, d, &count) || count > INT64_MAX / 16)
      return invalidError("too many elements");
  return count;
}

int64_t loadInteger(DType type, const std::byte *data, int64_t index) {
  if (isFloat(type) || isComplex(type)) {
    return truncateToInteger(DType::I64, loadReal(type, data, index));
  }
  return extend(type, loadBits(bitWidth(type), data, index));
}

double loadReal(DType type, const std::byte *data, int64_t index) {
  if (isFloat(type))
    return decodeFloat(type, loadBits(bitWidth(type), data, index));
  if (type == DType::C64)
    return loadReal(DType::F32, data, 2 * index);
  if (type == DType::C128)
    return loadReal(DType::F64, data, 2 * index);
  int64_t value = loadInteger(type, data, index);
  return type == DType::UI64 ? static_cast<double>(static_cast<uint64_t>(value))
                             : static_cast<double>(value);
}

void storeInteger(DType type, std::byte *data, int64_t index, int64_t value) {
  if (isFloat(type) || isComplex(type))
    storeReal(type, data, index, static_cast<double>(value));
  else if (type == DType::Bool)
    data[index] = std::byte{value != 0};
  else if (type != DType::String)
    storeBits(bitWidth(type), data, index, static_cast<uint64_t>(value));
}

void storeReal(DType type, std::byte *data, int64_t index, double value, Overflow overflow) {
  if (isFloat(type))
    return storeBits(bitWidth(type), data, index, encodeFloat(type, value, overflow));
  if (isComplex(type)) {
    DType part = type == DType::C64 ? DType::F32 : DType::F64;
    storeReal(part, data, 2 * index, value);
    return storeReal(part, data, 2 * index + 1, 0);
  }
  if (type == DType::Bool)
    return storeInteger(type, data, index, value != 0);
  if (type == DType::String)
    return;
  storeInteger(type, data, index, truncateToInteger(type, value));
}

void copyElement(const HostTensor &from, int64_t i, HostTensor &to, int64_t j) {
  unsigned bits = bitWidth(from.dtype);
  if (bits < 8)
    storeBits(bits, to.data.data(), j, loadBits(bits, from.data.data(), i));
  else
    std::memcpy(to.data.data() + j * (bits / 8), from.data.data() + i * (bits / 8), bits / 8);
}

HostTensor::HostTensor(DType dtype, std::vector<int64_t> d) : dtype(dtype), dims(std::move(d)) {
  data.resize(dtype == DType::String ? static_cast<size_t>(count() + 1) * sizeof(int64_t)
                                     : static_cast<size_t>(byteSize(dtype, count())));
}

int64_t HostTensor::count() const {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  return n;
}

double HostTensor::real(int64_t i) const { return loadReal(dtype, data.data(), i); }
int64_t HostTensor::integer(int64_t i) const { return loadInteger(dtype, data.data(), i); }

std::complex<double> HostTensor::complexAt(int64_t i) const {
  if (!isComplex(dtype))
    return real(i);
  DType part = dtype == DType::C64 ? DType::F32 : DType::F64;
  return {loadReal(part, data.data(), 2 * i), loadReal(part, data.data(), 2 * i + 1)};
}

void HostTensor::setReal(int64_t i, double v, Overflow overflow) {
  storeReal(dtype, data.data(), i, v, overflow);
}
void HostTensor::setInteger(int64_t i, int64_t v) { storeInteger(dtype, data.data(), i, v); }

void HostTensor::setComplex(int64_t i, std::complex<double> v) {
  if (!isComplex(dtype))
    return setReal(i, v.real());
  DType part = dtype == DType::C64 ? DType::F32 : DType::F64;
  storeReal(part, data.data(), 2 * i, v.real());
  storeReal(part, data.data(), 2 * i + 1, v.imag());
}

} // namespace lathe
