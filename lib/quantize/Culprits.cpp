//===- Culprits.cpp - which of many changes make a result wrong -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Culprits.h"

#include <algorithm>
#include <bit>

namespace lathe::quantize {

/// How many of n > 1 candidates the next question is about: the first part of a binary tree of n leaves and least
/// height, whose higher leaves lie ahead.
static size_t firstPart(size_t n) {
  const size_t power = std::bit_floor(n);
  return std::max(power / 2, n - power);
}

Result<std::vector<size_t>> findCulprits(size_t count, const IsWrong &isWrong) {
  std::vector<size_t> culprits;
  std::vector<bool> innocent(count); // with these the result is right
  auto with = [&](size_t begin, size_t end) {
    std::vector<bool> changes = innocent;
    std::fill(changes.begin() + int64_t(begin), changes.begin() + int64_t(end), true);
    return changes;
  };
  for (size_t begin = 0; begin < count;) {
    Result<bool> wrong = isWrong(with(begin, count));
    if (!wrong)
      return wrong.status();
    if (!*wrong)
      break;
    size_t right = begin, end = count; // right with those before, wrong with those before `end`
    while (end - right > 1) {
      const size_t middle = right + firstPart(end - right);
      wrong = isWrong(with(begin, middle));
      if (!wrong)
        return wrong.status();
      (*wrong ? end : right) = middle;
    }
    innocent = with(begin, right);
    culprits.push_back(right);
    begin = end;
  }
  return culprits;
}

} // namespace lathe::quantize
