//===- ThreadPool.cpp - the CPU's workers -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ThreadPool.h"

#include <algorithm>
#include <pthread.h>
#include <sched.h>
#include <system_error>

namespace lathe::runtime {
namespace {

constexpr int kSpins = 4000;            // some 50 microseconds
constexpr uint64_t kLoop = uint64_t(1) << 32;

bool isOpen(uint64_t gate) { return gate & kLoop; }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::vector<int> allowedCores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set))
        cores.push_back(i);
  return cores;
}

} // namespace

ThreadPool::ThreadPool(int threads, bool pin) {
  std::vector<int> allowed = allowedCores();
  if (threads <= 0)
    threads = std::max<int>(1, static_cast<int>(allowed.size()));
  // More workers than cores share freely.
  if (pin && static_cast<size_t>(threads) <= allowed.size()) {
    auto here = std::find(allowed.begin(), allowed.end(), sched_getcpu());
    if (here != allowed.end())
      std::iter_swap(allowed.begin(), here);
    cores = std::move(allowed);
  }
  for (int i = 1; i < threads; ++i) {
    // The one call here that can throw; fewer workers are enough.
    try {
      workers.emplace_back([this, i] { workerMain(i); });
    } catch (const std::system_error &) {
      break;
    }
    if (!cores.empty())
      bind(static_cast<size_t>(i));
  }
  cores.resize(std::min(cores.size(), workers.size() + 1));
}

void ThreadPool::bind(size_t worker) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[worker], &set);
  pthread_setaffinity_np(workers[worker - 1].native_handle(), sizeof set, &set);
}

/// The caller's own thread is not ours to bind. Where the system has moved it to a worker's core, both
/// would take turns: the worker goes to the core that the caller has left.
void ThreadPool::makeRoom() {
  int here = sched_getcpu();
  if (cores.empty() || here == cores.front())
    return;
  auto taken = std::find(cores.begin(), cores.end(), here);
  if (taken == cores.end())
    return;
  std::iter_swap(cores.begin(), taken);
  bind(static_cast<size_t>(taken - cores.begin()));
}

ThreadPool::~ThreadPool() {
  stop.store(true);
  wake.fetch_add(1);
  wake.notify_all();
  for (std::thread &t : workers)
    t.join();
}

void ThreadPool::claim(int worker) {
  // Claims shrink towards the end, so that all workers finish together.
  int64_t begin = next.load(std::memory_order_relaxed);
  while (begin < total) {
    int64_t end = begin + claimOf(total - begin, size());
    if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed))
      continue;
    body(context, worker, begin, end);
    begin = next.load(std::memory_order_relaxed);
  }
}

void ThreadPool::run(int64_t count, Body function, void *data) {
  if (count <= 0)
    return;
  if (workers.empty() || count == 1)
    return function(data, 0, 0, count);
  makeRoom();
  body = function;
  context = data;
  total = count;
  next.store(0, std::memory_order_relaxed);
  gate.fetch_add(kLoop, std::memory_order_release); // opens
  wake.fetch_add(1, std::memory_order_release);
  wake.notify_all();
  claim(0);
  gate.fetch_add(kLoop, std::memory_order_relaxed); // closes: nobody joins from here on
  for (int spins = 0; static_cast<uint32_t>(gate.load(std::memory_order_acquire)) != 0; ++spins)
    if (spins < kSpins)
      relax();
    else
      std::this_thread::yield();
}

void ThreadPool::workerMain(int index) {
  uint64_t joined = 0; // number of the last loop
  int spins = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    uint32_t calls = wake.load(std::memory_order_acquire);
    uint64_t g = gate.load(std::memory_order_acquire);
    if (isOpen(g) && g / kLoop != joined) {
      // Fails when the loop closes or another worker moves: look again.
      if (gate.compare_exchange_weak(g, g + 1, std::memory_order_acquire)) {
        joined = g / kLoop;
        claim(index);
        gate.fetch_sub(1, std::memory_order_release);
        spins = 0;
      }
    } else if (++spins < kSpins) {
      relax();
    } else {
      // The counter was read before the gate, so a loop opened since is not missed.
      if (!stop.load())
        wake.wait(calls, std::memory_order_acquire);
      spins = 0;
    }
  }
}

} // namespace lathe::runtime
