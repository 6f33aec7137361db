//===- Team.h - threads that run together and meet --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loop of the pool says nothing of when its parts run: one thread may take
// them all. What waits for other threads inside a kernel needs a team: so many
// threads, each with one seat, at the same time.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_DEVICE_TEAM_H
#define LATHE_RUNTIME_DEVICE_TEAM_H

#include "ThreadPool.h"

namespace lathe::runtime {

/// Where a number of threads wait for each other, again and again.
class MeetingPoint {
public:
  /// Nobody may be waiting.
  void reset() { arrived.store(0, std::memory_order_relaxed); }
  /// Returns when as many as `members` have come, each once; what they wrote before is seen by all.
  /// Spins, then yields: it takes as long as the system keeps one of them from running.
  void wait(uint64_t members);

private:
  alignas(64) std::atomic<uint64_t> arrived{0}; ///< since the reset, over all meetings
};

using TeamBody = void (*)(void *context, int seat, int seats);
/// Calls `body` on 1 <= seats <= `most` threads of the pool at the same time, once on each, and waits
/// for all; the caller has seat 0. Workers that do not come within some fifty microseconds
/// (asleep on a core that is busy elsewhere) are not waited for.
void runTogether(ThreadPool &pool, int most, TeamBody body, void *context);

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_TEAM_H
