//===- Sampler.cpp - the next token from logits -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Sampler.h"

#include "lathe/support/Philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lathe::serve {

uint32_t argmax(std::span<const float> logits) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i])))
      best = i;
  return best;
}

double uniform(uint64_t seed, uint64_t index) {
  auto words = philox({uint32_t(index), uint32_t(index >> 32), 0, 0}, {uint32_t(seed), uint32_t(seed >> 32)});
  uint64_t bits = (uint64_t(words[0]) << 32 | words[1]) >> 11;
  return double(bits) * 0x1p-53;
}

uint32_t sample(std::span<const float> logits, const Sampling &sampling, uint64_t index,
                std::vector<uint32_t> &scratch) {
  const uint32_t best = argmax(logits);
  if (isGreedy(sampling))
    return best;
  scratch.resize(logits.size());
  std::iota(scratch.begin(), scratch.end(), 0u);
  const bool all = (sampling.topK == 0 || sampling.topK >= logits.size()) && !(sampling.topP > 0 && sampling.topP < 1);
  auto likelier = [&](uint32_t a, uint32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  if (!all) {
    size_t count = sampling.topK ? std::min<size_t>(sampling.topK, scratch.size()) : scratch.size();
    std::erase_if(scratch, [&](uint32_t i) { return std::isnan(logits[i]); });
    count = std::min(count, scratch.size());
    std::partial_sort(scratch.begin(), scratch.begin() + count, scratch.end(), likelier);
    scratch.resize(count);
  }
  // Probabilities in double, relative to the greatest.
  auto weight = [&](uint32_t i) {
    double w = std::exp((double(logits[i]) - double(logits[best])) / double(sampling.temperature));
    return std::isnan(w) ? 0 : w;
  };
  double total = 0;
  for (uint32_t i : scratch)
    total += weight(i);
  if (sampling.topP > 0 && sampling.topP < 1) {
    double share = 0;
    size_t kept = 0;
    while (kept < scratch.size() && share < double(sampling.topP) * total)
      share += weight(scratch[kept++]);
    scratch.resize(std::max<size_t>(kept, 1));
    total = share;
  }
  double left = uniform(sampling.seed, index) * total;
  for (uint32_t i : scratch)
    if ((left -= weight(i)) < 0)
      return i;
  return best; // rounding: nothing was left
}

} // namespace lathe::serve
