//===- Draws.h - what a device is asked to draw -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The draws of a step as the kernels of include/lathe/engine/SampleAbi.h read them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_SERVE_DRAWS_H
#define LATHE_RUNTIME_SERVE_DRAWS_H

#include "Sampler.h"
#include "lathe/engine/SampleAbi.h"

namespace lathe::serve {

/// A token that is to come from a row of logits.
struct Draw {
  uint32_t row;
  const Sampling *sampling;
  const TokenCounts *counts;
  std::span<const uint32_t> stopTokens;
  uint64_t index;  ///< of the token in its answer
  bool ranked;     ///< whether its logprobs are wanted, and
  uint32_t top;    ///< so many likeliest ones
};

/// Kept from step to step. May throw std::bad_alloc.
class DrawList {
public:
  void clear();
  void add(const Draw &draw);
  /// A token that is known, whose logprobs are wanted.
  void addRanked(uint32_t row, uint32_t token, uint32_t top);

  std::span<const engine::SampleDraw> draws() const { return drawn; }
  /// In the order of the calls that asked for them.
  std::span<const engine::RankDraw> ranks() const { return ranked; }
  std::span<const uint32_t> words() const { return lists; }

private:
  std::vector<engine::SampleDraw> drawn;
  std::vector<engine::RankDraw> ranked;
  std::vector<uint32_t> lists;
  std::vector<TokenBias> sorted;
};

Logprobs logprobsOf(const engine::RankResult &ranked);

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_DRAWS_H
