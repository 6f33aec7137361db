//===- Parallel.h - independent work on all cores ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For compiling and loading. What runs an engine has a pool of its own.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_PARALLEL_H
#define LATHE_SUPPORT_PARALLEL_H

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace lathe {

/// How many cores this process may run on, at least one. std::thread::hardware_concurrency counts the machine's, though a
/// batch system or `taskset` leaves a process two of sixty-four.
unsigned usableCores();

/// Runs `work(i)` for all i below `count`, begun in rising order, on as many threads as there are
/// usable cores. `work` must not throw.
template <typename Work> void inParallel(size_t count, const Work &work) {
  std::atomic<size_t> next = 0;
  auto run = [&] {
    for (size_t i = next++; i < count; i = next++)
      work(i);
  };
  std::vector<std::thread> helpers;
  size_t threads = std::min<size_t>(count, usableCores());
  for (size_t t = 1; t < threads; ++t)
    helpers.emplace_back(run);
  run();
  for (std::thread &helper : helpers)
    helper.join();
}

/// Buffers that a few threads use by turns: fresh memory for each piece of a large file would cost
/// more than the work on it.
class BufferPool {
public:
  /// At least `bytes` long; what it holds is left from before.
  std::vector<std::byte> take(size_t bytes) {
    std::vector<std::byte> buffer;
    {
      std::lock_guard lock(mutex);
      if (!free.empty()) {
        buffer = std::move(free.back());
        free.pop_back();
      }
    }
    if (buffer.size() < bytes)
      buffer.resize(bytes);
    return buffer;
  }
  void give(std::vector<std::byte> buffer) {
    std::lock_guard lock(mutex);
    free.push_back(std::move(buffer));
  }

private:
  std::mutex mutex;
  std::vector<std::vector<std::byte>> free;
};

} // namespace lathe

#endif // LATHE_SUPPORT_PARALLEL_H
