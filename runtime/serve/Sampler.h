//===- Sampler.h - the next token from logits -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a request asks of its answer is applied in this order:
//
//   1. bias               added to the logits of its tokens
//   2. repetition         logits of tokens of prompt and answer: divided by it where positive, else multiplied
//                         (Keskar et al., "CTRL", 2019)
//   3. frequency,         less frequencyPenalty for each time that a token is in the answer, and
//      presence           less presencePenalty where it is there at all
//   4. allowed            tokens outside the mask are out, and so are stop tokens while the answer has fewer than
//                         minTokens
//   5. temperature        0: the greatest logit is the token, and no draw
//   6. topK               the K greatest logits
//   7. topP               of those, the likeliest until they have this share of the probability (Holtzman et al.,
//                         "The Curious Case of Neural Text Degeneration", 2019)
//   8. minP               of those, the ones that are at least minP times as likely as the likeliest
//   9. the draw
//
// Of equal logits the lower token counts as greater, everywhere. NaN is never taken.
//
// Probabilities are integers: exp(logit - greatest) in units of 2^-40. Sums of integers do not depend on their
// order, so a kernel, a CPU and shards of a vocabulary come to the same token; a token that is 2^40 times less
// likely than the likeliest is never drawn.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_SERVE_SAMPLER_H
#define LATHE_RUNTIME_SERVE_SAMPLER_H

#include "lathe/support/Status.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lathe::serve {

struct TokenBias {
  uint32_t token;
  float bias;
};

struct Sampling {
  float temperature = 0;
  uint32_t topK = 0; ///< 0: all
  float topP = 1;    ///< 1: all
  float minP = 0;    ///< 0: all
  uint64_t seed = 0;
  uint32_t sample = 0; ///< number among the answers to one prompt: each draws other numbers
  float repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0;
  uint32_t minTokens = 0;
  std::vector<TokenBias> bias;
  std::vector<uint32_t> allowed; ///< bit t % 32 of word t / 32; what is lacking is 0; empty: all
};

/// The first thing about `sampling` that has no meaning, with the figure.
Status checkSampling(const Sampling &sampling, uint32_t vocabulary);

/// How often each token is in prompt and answer.
class TokenCounts {
public:
  struct Entry {
    uint32_t token, answered;
  };
  /// Makes room for `more` tokens of the answer.
  void addPrompt(std::span<const uint32_t> tokens, uint32_t more);
  void addAnswer(uint32_t token) { ++at(token).answered; }
  /// In the order of their tokens.
  std::span<const Entry> all() const { return entries; }

private:
  Entry &at(uint32_t token);
  std::vector<Entry> entries;
};

/// Reused from token to token.
struct SampleScratch {
  std::vector<uint64_t> weights;
  std::vector<uint32_t> counts; ///< [2048]
  std::vector<uint64_t> sums;   ///< [2048]
};

/// Whether counts of tokens are read.
bool penalizes(const Sampling &sampling);
/// Whether token `index` of the answer is the greatest of the logits as the model gives them.
bool takesGreatest(const Sampling &sampling, uint64_t index);

/// The greatest logit, ties to the lower token; NaN never wins against a number.
uint32_t argmax(std::span<const float> logits);

/// Steps 1 to 4, in place.
void processLogits(std::span<float> logits, const Sampling &sampling, const TokenCounts &counts,
                   std::span<const uint32_t> stopTokens, uint64_t index);

/// Steps 5 to 9; `index` is the token's number in the answer. The draw depends on logits, sampling and index alone,
/// so that neither a batch nor a preemption changes it. None where no logit is a number above -infinity.
std::optional<uint32_t> sampleToken(std::span<const float> logits, const Sampling &sampling, uint64_t index,
                                    SampleScratch &scratch);

struct TokenLogprob {
  uint32_t token;
  float logprob;
};
/// Natural logarithms of probabilities at temperature 1, of the logits as the model gives them.
struct Logprobs {
  float logprob = 0;             ///< of the token that is there
  uint32_t rank = 1;             ///< 1: it is the likeliest
  std::vector<TokenLogprob> top; ///< the likeliest, at most vocabulary; the likeliest first
};
inline constexpr uint32_t kMostLogprobs = 20; ///< that a request may ask for
Logprobs logprobsOf(std::span<const float> logits, uint32_t token, uint32_t top);

/// What logits less the greatest are multiplied with: log2(e) / temperature, 0 at 0.
double scaleOf(float temperature);
/// Of a token that minP keeps, in units of 2^-40.
uint64_t leastWeightOf(float minP);
/// 2^y in units of 2^-40 for y <= 0, rounded down; the same bits on every machine.
uint64_t fixedExp2(double y);
/// From the greatest logit, and the sum of all probabilities as fixedExp2 has them.
float logprobOf(float logit, float greatest, uint64_t sum);
inline constexpr size_t kSamplePowers = 128;
/// 2^(i/128), from which fixedExp2 comes; kernels get them from here.
const std::array<double, kSamplePowers> &powersOfTwo();

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_SAMPLER_H
