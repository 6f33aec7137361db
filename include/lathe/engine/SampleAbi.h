//===- SampleAbi.h - what the sampling kernels read and write ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An engine of a paged decoder has for each CUDA target an image `lathe.sample`, or `lathe.sample.clusters`, with three
// functions, of codegen/device/sample.cuh, over the logits [R, vocabulary] that a step leaves on the device:
//
//   sampleRows(logits, draws, words, powers, spare, tokens, vocabulary, inShared, status)
//   rankRows(logits, rows, powers, spare, tokens, results, vocabulary, inShared, status)
//   feedTokens(next, best, tokens, count, status)
//
// The last one puts tokens of a step into the inputs of the one behind it: of the `count` numbers i64 in `next`, ~i
// becomes best[i], ~(2^32 + i) becomes tokens[i], or 0 where that is below 0, and what is not below 0 stays.
//
// `powers` are the 128 numbers 2^(i/128) of f64, `tokens` i64 a draw, -1 where no logit is a number above -infinity. The
// blocks of a row share it. Each keeps its part, 4 bytes a logit, behind kSampleFixedBytes of dynamic shared memory
// where `inShared` is 1, and otherwise in `spare` [draws, vocabulary] of 32 bits. A vocabulary has less than
// kMostSampled tokens.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_SAMPLEABI_H
#define LATHE_ENGINE_SAMPLEABI_H

#include <cstdint>

namespace lathe::engine {

inline constexpr const char *kSampleKernel = "lathe.sample"; ///< a block a row
inline constexpr const char *kSampleClusterKernel = "lathe.sample.clusters"; ///< kSampleBlocks a row
inline constexpr int64_t kSampleBlocks = 8;
inline constexpr int64_t kSampleThreads = 512; ///< of a block
inline constexpr int64_t kSampleFixedBytes = 16384;
inline constexpr int64_t kMostSampled = 1 << 22;
/// Places of a row that one of its blocks takes, at most.
constexpr int64_t samplePart(int64_t vocabulary, int64_t blocks) {
  return (vocabulary + blocks * 32 - 1) / (blocks * 32) * 32;
}

/// One draw. Lists are places in `words`, which holds those of all draws.
struct SampleDraw {
  uint64_t row;                 ///< of the logits
  uint64_t seed, index, sample; ///< of Philox
  double scale;                 ///< log2(e) / temperature; 0: the greatest is the token
  double topP;                  ///< 1: all
  uint64_t topK;                ///< 0: all
  uint64_t leastWeight;         ///< in units of 2^-40; 0: all
  float repetition, presence, frequency;
  uint32_t bias, biasCount;     ///< {token, bits of the f32 that is added}, in the order of tokens
  uint32_t counts, countsCount; ///< {token, times in the answer}, in the order of tokens, each once
  uint32_t out, outCount;       ///< tokens that may not come
  uint32_t mask, maskWords, masked; ///< bits of the tokens that may come; masked is 0 where all may
};

/// A row whose likeliest tokens are wanted.
struct RankDraw {
  uint32_t row;
  uint32_t token, draw; ///< the token to be ranked: `token`, or what draw number `draw` - 1 gave
  uint32_t top;         ///< so many of the likeliest, at most 20
};
struct RankedToken {
  uint32_t token;
  float logit;
};
struct RankResult {
  uint64_t sum;   ///< of exp(logit - greatest), in units of 2^-40
  float greatest; ///< logit
  float logit;    ///< of the token
  uint32_t rank;  ///< 1: the likeliest
  uint32_t topCount;
  RankedToken top[20]; ///< the likeliest first
};
static_assert(sizeof(SampleDraw) == 112 && sizeof(RankDraw) == 16 && sizeof(RankResult) == 184, "as kernels have them");

} // namespace lathe::engine

#endif // LATHE_ENGINE_SAMPLEABI_H
