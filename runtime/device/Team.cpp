//===- Team.cpp - threads that run together and meet ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Team.h"

#include "Spin.h"

#include <algorithm>

namespace lathe::runtime {
namespace {

/// Waits until `done` or for so many rounds; whether it is done.
template <typename Done> bool spin(int spins, Done done) {
  for (; !done(); --spins) {
    if (spins == 0)
      return false;
    spinOnce();
  }
  return true;
}

/// Costs the others nothing while each thread has a core; where they share one it is soon given up.
template <typename Done> void spinThenYield(Done done) {
  constexpr int kSpins = 1000; // some 10 microseconds
  if (!spin(kSpins, done))
    while (!done())
      std::this_thread::yield();
}

/// A loop of the pool with an item for each worker. None returns from its first item before the
/// seats are given away, so that none takes a second one while it counts.
struct Gathering {
  static constexpr uint32_t kClosed = 1u << 31;
  static constexpr int kPatience = 4000; // spins; what it takes to wake a worker

  TeamBody body;
  void *context;
  uint32_t most; ///< seats beside the caller's
  std::atomic<uint32_t> taken{0};

  bool closed() const { return taken.load(std::memory_order_acquire) & kClosed; }

  void lead() {
    spin(kPatience, [&] { return taken.load(std::memory_order_relaxed) == most; });
    uint32_t others = taken.fetch_or(kClosed, std::memory_order_acq_rel);
    body(context, 0, static_cast<int>(others) + 1);
  }

  void join() {
    uint32_t now = taken.load(std::memory_order_relaxed);
    while (!(now & kClosed) && now < most &&
           !taken.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel))
      ;
    if (now & kClosed)
      return;
    spinThenYield([&] { return closed(); });
    if (now < most) {
      uint32_t others = taken.load(std::memory_order_relaxed) & ~kClosed;
      body(context, static_cast<int>(now) + 1, static_cast<int>(others) + 1);
    }
  }
};

} // namespace

void MeetingPoint::wait(uint64_t members) {
  uint64_t ticket = arrived.fetch_add(1, std::memory_order_acq_rel);
  uint64_t all = ticket - ticket % members + members;
  if (ticket + 1 != all)
    spinThenYield([&] { return arrived.load(std::memory_order_acquire) >= all; });
}

void runTogether(ThreadPool &pool, int most, TeamBody body, void *context) {
  Gathering all{body, context, static_cast<uint32_t>(std::clamp(most, 1, pool.size()) - 1)};
  pool.run(
      pool.size(),
      [](void *gathering, int worker, int64_t, int64_t) {
        auto &all = *static_cast<Gathering *>(gathering);
        if (worker != 0)
          all.join();
        else if (!all.closed())
          all.lead();
      },
      &all);
}

} // namespace lathe::runtime
