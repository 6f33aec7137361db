//===- Random.h - numbers that follow from a seed alone ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The distributions of <random> differ between libraries: these do not.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_FUZZ_RANDOM_H
#define LATHE_TEST_FUZZ_RANDOM_H

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace lathe::fuzz {

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}

  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  /// From 0 to n - 1.
  int64_t below(int64_t n) { return n <= 1 ? 0 : int64_t(next() % uint64_t(n)); }
  /// From low to high, both included.
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  /// From 0, included, to 1, excluded.
  double unit() { return double(next() >> 11) * 0x1p-53; }

  template <typename T> T of(std::initializer_list<T> choices) {
    return choices.begin()[below(int64_t(choices.size()))];
  }
  template <typename T> const T &of(const std::vector<T> &choices) {
    return choices[size_t(below(int64_t(choices.size())))];
  }
  template <typename T> void shuffle(std::vector<T> &items) {
    for (size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[size_t(below(int64_t(i)))]);
  }

private:
  uint64_t state;
};

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_RANDOM_H
