//===- Sampler.h - the next token from logits -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_SERVE_SAMPLER_H
#define LATHE_RUNTIME_SERVE_SAMPLER_H

#include <cstdint>
#include <span>
#include <vector>

namespace lathe::serve {

struct Sampling {
  float temperature = 0; ///< 0: the most likely token
  uint32_t topK = 0;     ///< of so many likeliest tokens; 0: all
  float topP = 1;        ///< of the likeliest tokens until they have this share of the probability
  uint64_t seed = 0;
};

/// Takes the most likely token, whatever the seed.
inline bool isGreedy(const Sampling &sampling) { return !(sampling.temperature > 0) || sampling.topK == 1; }

/// The greatest logit, ties to the lower token; NaN never wins against a number.
uint32_t argmax(std::span<const float> logits);

/// Draws a token; `index` is its number in the answer. The draw depends on logits, sampling and index
/// alone, so that neither a batch nor a preemption changes it. `scratch` is reused. Tokens that are equally
/// likely are in order of their numbers.
uint32_t sample(std::span<const float> logits, const Sampling &sampling, uint64_t index,
                std::vector<uint32_t> &scratch);

/// A number of [0, 1) by Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
/// with the key `seed` and the counter `index`.
double uniform(uint64_t seed, uint64_t index);

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_SAMPLER_H
