//===- Deadline.h - waits that end ------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Nothing in the runtime waits without a point in time at which it gives up: a kernel that
// never ends must become an error of its step and not a process that hangs.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_DEVICE_DEADLINE_H
#define LATHE_RUNTIME_DEVICE_DEADLINE_H

#include "lathe/support/Status.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace lathe::runtime {

class Deadline {
public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  /// Negative: never.
  static Deadline in(int64_t nanoseconds) {
    constexpr int64_t kYear = int64_t(365) * 24 * 3600 * 1000000000;
    return nanoseconds < 0 || nanoseconds > kYear
               ? never()
               : Deadline(Clock::now() + std::chrono::nanoseconds(nanoseconds));
  }
  bool passed() const { return at != Clock::time_point::max() && Clock::now() >= at; }
  Clock::time_point time() const { return at; }

private:
  explicit Deadline(Clock::time_point at) : at(at) {}
  Clock::time_point at;
};

/// Calls `reached` (a Result<bool>) until it says true or fails; false when the deadline has
/// passed. Asks all the time for 20 ms, which most steps end in, giving way to other threads; then sleeps in
/// between, so that a wait takes 1 % longer at most.
template <typename F> Result<bool> pollUntil(Deadline deadline, F reached) {
  using namespace std::chrono_literals;
  auto begin = Deadline::Clock::now();
  for (;;) {
    Result<bool> now = reached();
    if (!now || *now)
      return now;
    auto waited = Deadline::Clock::now() - begin;
    if (deadline.passed())
      return false;
    if (waited > 20ms)
      std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(waited / 100, 1ms));
    else if (waited > 50us)
      std::this_thread::yield();
  }
}

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_DEADLINE_H
