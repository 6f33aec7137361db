//===- RandomWeights.h - weights made from a number -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elements of weights whose bytes are absent: a pure function of a stream and the element's index,
// the same on every device and machine. Element i is center + reach * u, where u in [-1, 1) comes
// from the top 24 bits of splitmix64's output for state `stream + (i + 1) * 0x9e3779b97f4a7c15`
// (Steele, Lea, Flood: Fast splittable pseudorandom number generators), computed in double, so that
// products are exact and a fused multiply-add changes nothing, and rounded through float to the
// type. codegen/device/random.cuh is the same on a GPU.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_RANDOMWEIGHTS_H
#define LATHE_SUPPORT_RANDOMWEIGHTS_H

#include "lathe/support/DType.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lathe {

/// How the elements of one absent weight are spread.
struct RandomSpread {
  uint64_t stream = 0;
  float center = 0, reach = 0;
  bool operator==(const RandomSpread &) const = default;

  /// 64 hexadecimal digits, where a `#lathe.weight` has the digest of its bytes.
  std::string text() const;
  static std::optional<RandomSpread> parse(std::string_view text);
};

/// A weight's place inside a stored one: `rows` runs of `columns` elements, the first at element
/// `first`, `pitch` elements apart. Elements are numbered row by row. A part may be a slice of a weight: its numbers
/// begin at `from`, and those of rows are `fromPitch` apart (0: `columns`, one row behind the other).
struct RandomPart {
  RandomSpread spread;
  uint64_t rows = 1, columns = 0, first = 0, pitch = 0;
  uint64_t from = 0, fromPitch = 0;
  int32_t rank = -1; ///< of a mesh, which has this part alone; -1: all
  uint64_t numberPitch() const { return fromPitch ? fromPitch : columns; }
  bool operator==(const RandomPart &) const = default;
};

/// The stream of a weight of this name.
uint64_t randomStream(uint64_t seed, std::string_view name);

/// Whether fillRandom can make elements of this type: f64, f32, f16, bf16.
bool isRandomType(DType type);

/// Elements [begin, end) of the part, counted from its first, into the stored weight at `memory`.
void fillRandom(std::byte *memory, DType type, const RandomPart &part, uint64_t begin, uint64_t end);

} // namespace lathe

#endif // LATHE_SUPPORT_RANDOMWEIGHTS_H
