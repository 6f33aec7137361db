//===- RandomWeights.cpp - weights made from a number -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/RandomWeights.h"

#include "lathe/support/Half.h"

#include <charconv>
#include <cstdio>
#include <cstring>

namespace lathe {
namespace {

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

float element(const RandomSpread &spread, uint64_t index) {
  uint64_t bits = mix(spread.stream + (index + 1) * 0x9e3779b97f4a7c15);
  double u = static_cast<double>(static_cast<int64_t>(bits >> 40) - (1 << 23)) * 0x1p-23;
  return static_cast<float>(static_cast<double>(spread.center) +
                            static_cast<double>(spread.reach) * u);
}

} // namespace

std::string RandomSpread::text() const {
  char out[65];
  std::snprintf(out, sizeof out, "%016llx%08x%08x%032x", static_cast<unsigned long long>(stream),
                std::bit_cast<uint32_t>(center), std::bit_cast<uint32_t>(reach), 0);
  return out;
}

std::optional<RandomSpread> RandomSpread::parse(std::string_view text) {
  RandomSpread spread;
  uint32_t center = 0, reach = 0;
  auto number = [&](size_t from, size_t count, auto &value) {
    const char *begin = text.data() + from, *end = begin + count;
    auto [at, error] = std::from_chars(begin, end, value, 16);
    return error == std::errc() && at == end;
  };
  if (text.size() != 64 || !number(0, 16, spread.stream) || !number(16, 8, center) ||
      !number(24, 8, reach) || text.substr(32).find_first_not_of('0') != text.npos)
    return std::nullopt;
  spread.center = std::bit_cast<float>(center);
  spread.reach = std::bit_cast<float>(reach);
  return spread;
}

uint64_t randomStream(uint64_t seed, std::string_view name) {
  uint64_t stream = mix(seed + 0x9e3779b97f4a7c15);
  for (char c : name)
    stream = mix(stream ^ static_cast<unsigned char>(c));
  return stream;
}

bool isRandomType(DType type) {
  return type == DType::F64 || type == DType::F32 || type == DType::F16 || type == DType::BF16;
}

void fillRandom(std::byte *memory, DType type, const RandomPart &part, uint64_t begin,
                uint64_t end) {
  size_t size = bitWidth(type) / 8;
  for (uint64_t i = begin; i < end; ++i) {
    const uint64_t row = i / part.columns, column = i % part.columns;
    float value = element(part.spread, part.from + row * part.numberPitch() + column);
    std::byte *at = memory + (part.first + row * part.pitch + column) * size;
    switch (type) {
    case DType::F16: {
      uint16_t bits = floatToF16(value);
      std::memcpy(at, &bits, sizeof bits);
      break;
    }
    case DType::BF16: {
      uint16_t bits = floatToBf16(value);
      std::memcpy(at, &bits, sizeof bits);
      break;
    }
    case DType::F64: {
      double wide = value;
      std::memcpy(at, &wide, sizeof wide);
      break;
    }
    default:
      std::memcpy(at, &value, sizeof value);
    }
  }
}

} // namespace lathe
