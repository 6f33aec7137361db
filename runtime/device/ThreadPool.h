//===- ThreadPool.h - the CPU's workers -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_THREADPOOL_H
#define LATHE_RUNTIME_DEVICE_THREADPOOL_H

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace lathe::runtime {

/// What is left of a loop's range, dealt out to workers: each has a share of neighbours, the same
/// one in each loop of that length, so that it meets its own data again, and claims it in ever
/// smaller pieces from the front. Whose share is used up takes half of the largest that is left,
/// from its end: a worker whose core is busy elsewhere keeps less.
class Shares {
public:
  explicit Shares(int workers) : shares(static_cast<size_t>(workers)) {}
  /// Nobody may claim meanwhile.
  void deal(int64_t total);
  /// False when nothing is left for `worker`.
  bool claim(int worker, int64_t &begin, int64_t &end);

private:
  /// Both ends in grains, the first in the low half.
  struct alignas(64) Share {
    std::atomic<uint64_t> ends{0};
  };
  std::vector<Share> shares;
  int64_t total = 0, grain = 1;
};

/// Workers that a pool of `threads` has: 0 is one per core this process may use.
int numberOfWorkers(int threads);

/// Workers that run one parallel loop at a time. The caller waits only for workers that have joined
/// the loop, not for sleepers. Between loops workers spin for some microseconds, then sleep.
class ThreadPool {
public:
  /// The caller is worker 0; `threads` - 1 threads are started (fewer when the system
  /// refuses). 0: one per core this process may use.
  ThreadPool(int threads, bool pin);
  ~ThreadPool();

  int size() const { return static_cast<int>(workers.size()) + 1; }

  using Body = void (*)(void *context, int worker, int64_t begin, int64_t end);
  /// Calls `body` for disjoint ranges that cover [0, total), and waits for all.
  void run(int64_t total, Body body, void *context);

private:
  void workerMain(int index);
  void claim(int worker);
  void makeRoom();
  void bind(size_t worker);

  std::vector<std::thread> workers;
  /// Of pinned workers, by number; the first is the one that is left to the caller. Empty: none is
  /// pinned.
  std::vector<int> cores;
  /// High half: number of the loop, odd while it is open. Low half: workers inside.
  alignas(64) std::atomic<uint64_t> gate{0};
  std::atomic<uint32_t> wake{0}; ///< raised for each loop and for the end; sleepers wait on it
  std::atomic<bool> stop{false};
  // The open loop; written while it is closed and nobody is inside.
  Body body = nullptr;
  void *context = nullptr;
  Shares shares;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_THREADPOOL_H
