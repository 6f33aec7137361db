//===- Optimum.h - the best hit rate any policy can reach -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A trace in blocks, and an idealised cache that replays it under one of a few
// rules, among them the clairvoyant one.
//
// The model. A request holds ceil(tokens / B) blocks while it lives; a full
// block is known by all tokens up to its end, and equal ones are held once. A
// block that nobody holds may stay as long as held and staying blocks are
// together at most the capacity. When a prompt of P tokens begins, the hit is
// its longest run of leading blocks that are present, at most (P - 1) / B of
// them. Nothing is fetched ahead and there is no second tier.
//
// Why `Clairvoyant` is the exact optimum of this model and so an upper bound for
// every policy that the library has. Between two uses of a block lies a gap in
// which it stays (the later use is a hit) or does not. The held blocks depend on
// the trace alone, so at each moment at most capacity - held gaps can be kept:
// choosing gaps is packing intervals of equal worth under a limit that varies
// with time. If too many gaps cover a moment, one of them has to go, and the one
// that ends last can be dropped without loss: all of them have fitted so far,
// and from here on it covers whatever another one covers (Belady 1966; for
// varying limits by the same exchange). Leading runs cost nothing extra: whoever
// uses a block uses all blocks before it, so these have earlier or equal next
// uses; with ties broken from the leaf, a block never outlives its parent. A
// block at the end of a prompt that is never part of a hit has no worth there.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_PERF_KV_OPTIMUM_H
#define LATHE_TEST_PERF_KV_OPTIMUM_H

#include "Trace.h"

namespace lathe::kvperf {

/// A trace in blocks. A node is a full block together with all tokens before it; nodes are told
/// apart by a 64-bit chained hash (measuring code: the trace is no adversary).
struct BlockTrace {
  BlockTrace(const Trace &trace, uint32_t blockTokens);

  const Trace &trace;
  uint32_t blockTokens;
  uint32_t nodeCount = 0;                   ///< distinct full blocks: the footprint
  std::vector<std::vector<uint32_t>> nodes; ///< of each request, prompt and output
  std::vector<uint32_t> depth;              ///< of each node, from 0
  uint64_t queriedTokens = 0;               ///< the sum of all prompts
  uint32_t peakHeld = 0;                    ///< most blocks that live requests hold together
};

/// Who leaves first among the blocks that nobody holds.
enum class Rule {
  Clairvoyant, ///< the one whose next use is furthest; the deeper one of two equals
  Lru,         ///< the one released first; the deeper one of two equals
  Random,      ///< any
};

struct Score {
  bool feasible = false; ///< false if the live requests alone exceed the capacity at some moment
  uint64_t hitTokens = 0;
};

/// Replays `trace` in the model above with room for `capacity` blocks.
Score idealScore(const BlockTrace &trace, uint32_t capacity, Rule rule);

/// The most hit tokens that any choice of victims gives, by trying all of them: for tiny traces.
uint64_t exhaustiveHitTokens(const BlockTrace &trace, uint32_t capacity);

} // namespace lathe::kvperf

#endif // LATHE_TEST_PERF_KV_OPTIMUM_H
