//===- Replay.h - a trace through the KV cache ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Drives kv::Cache over a trace as a server would, one step an event, and keeps
// books of its own: hits, lengths and blocks of every live request are known
// here without asking the cache, and each disagreement is an Internal error.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_PERF_KV_REPLAY_H
#define LATHE_TEST_PERF_KV_REPLAY_H

#include "Trace.h"
#include "lathe/runtime/KvCache.h"

namespace lathe::kvperf {

struct ReplayOptions {
  uint32_t blockTokens = 16;
  uint32_t blocks = 0; ///< of the pool
  uint32_t hostBlocks = 0;
  kv::Eviction eviction = kv::Eviction::Lru;
  kv::HashKind hash = kv::HashKind::Keyed128;
  /// Events between two recounts of the counters and comparisons of the event log; 0: at the end
  /// alone.
  uint32_t recountEvery = 0;
  /// Also run the library's validator over a snapshot at each recount.
  bool validate = false;
  /// Gets the whole event log as bytes if not null.
  std::vector<uint8_t> *events = nullptr;
};

struct ReplayOutcome {
  uint64_t queryTokens = 0;
  uint64_t hitTokens = 0;   ///< host hits included
  uint64_t wastedSlots = 0; ///< summed over the events of the middle half of the trace
  uint64_t slots = 0;       ///< likewise
  uint32_t recounts = 0;
  double seconds = 0; ///< in the library
  kv::Counters counters;

  double hitRate() const { return queryTokens ? double(hitTokens) / double(queryTokens) : 0; }
  double waste() const { return slots ? double(wastedSlots) / double(slots) : 0; }
};

/// Errors: Usage for a configuration that the library refuses, RuntimeFailure for a step that it
/// refuses (the pool is smaller than what is live), Internal for a count that differs.
///
/// With Eviction::Priority the shared tokens of each prompt are stored first, by a sequence of
/// priority 80 of their own; the rest has the default.
Result<ReplayOutcome> replay(const Trace &trace, const ReplayOptions &options);

/// The same trace through NanoAllocator; it has no counters to compare.
Result<ReplayOutcome> replayNano(const Trace &trace, uint32_t blocks, uint32_t blockTokens);

} // namespace lathe::kvperf

#endif // LATHE_TEST_PERF_KV_REPLAY_H
