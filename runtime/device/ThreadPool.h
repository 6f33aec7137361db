//===- ThreadPool.h - the CPU's workers -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_THREADPOOL_H
#define LATHE_RUNTIME_DEVICE_THREADPOOL_H

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace lathe::runtime {

/// Workers that run one parallel loop at a time. Ranges are claimed from a counter, so
/// that a worker whose core is busy elsewhere takes fewer, and the caller waits only for
/// workers that have joined the loop, not for sleepers. Between loops workers spin for
/// some microseconds, then sleep.
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

  /// What a worker of so many claims of what is left: half its part, at least 1.
  static int64_t claimOf(int64_t left, int workers) {
    return left / (2 * int64_t(workers)) > 0 ? left / (2 * int64_t(workers)) : 1;
  }

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
  int64_t total = 0;
  alignas(64) std::atomic<int64_t> next{0};
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_THREADPOOL_H
