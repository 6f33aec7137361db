//===- Philox.h - random words from a counter -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_SUPPORT_PHILOX_H
#define LATHE_SUPPORT_PHILOX_H

#include <array>
#include <cstdint>

namespace lathe {

/// Four random words, a pure function of a counter and a key, low words first: Philox4x32-10
/// (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                         std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53) * counter[0], b = uint64_t(0xCD9E8D57) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
               uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

/// Of a counter of two numbers of 64 bits, and a key of one: the first two words.
constexpr uint64_t philox(uint64_t low, uint64_t high, uint64_t key) {
  auto words = philox({uint32_t(low), uint32_t(low >> 32), uint32_t(high), uint32_t(high >> 32)},
                      {uint32_t(key), uint32_t(key >> 32)});
  return uint64_t(words[1]) << 32 | words[0];
}

/// The input of an entry that draws, i64 [2], behind those of its callers: the context's seed and
/// the number of the run. No input of a model may have this name.
inline constexpr const char *kDrawsInput = "lathe.random";

} // namespace lathe

#endif // LATHE_SUPPORT_PHILOX_H
