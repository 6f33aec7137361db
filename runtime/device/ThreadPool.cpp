//===- ThreadPool.cpp - the CPU's workers -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ThreadPool.h"

#include "Spin.h"

#include <algorithm>
#include <pthread.h>
#include <sched.h>
#include <system_error>

namespace lathe::runtime {
namespace {

constexpr int kSpins = 4000;            // some 50 microseconds
constexpr uint64_t kLoop = uint64_t(1) << 32;

bool isOpen(uint64_t gate) { return gate & kLoop; }

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

void Shares::deal(int64_t count) {
  total = count;
  grain = (count >> 31) + 1;
  auto grains = static_cast<uint64_t>((count + grain - 1) / grain), workers = uint64_t(shares.size());
  uint64_t each = grains / workers, more = grains % workers, begin = 0;
  for (Share &share : shares) {
    uint64_t end = begin + each + (more > 0 ? 1 : 0);
    more -= more > 0 ? 1 : 0;
    share.ends.store(end << 32 | begin, std::memory_order_relaxed);
    begin = end;
  }
}

bool Shares::claim(int worker, int64_t &begin, int64_t &end) {
  auto left = [](uint64_t ends) { return (ends >> 32) - (ends & UINT32_MAX); };
  auto take = [&](uint64_t first, uint64_t last) {
    begin = static_cast<int64_t>(first) * grain;
    end = std::min(total, static_cast<int64_t>(last) * grain);
    return true;
  };
  // Most of what is left: a kernel prepares much once a claim.
  std::atomic<uint64_t> &own = shares[static_cast<size_t>(worker)].ends;
  uint64_t ends = own.load(std::memory_order_relaxed);
  while (left(ends) > 0) {
    uint64_t first = ends & UINT32_MAX, last = first + (3 * left(ends) + 3) / 4;
    if (own.compare_exchange_weak(ends, (ends & ~uint64_t(UINT32_MAX)) | last,
                                  std::memory_order_relaxed))
      return take(first, last);
  }
  while (true) {
    Share *most = nullptr;
    for (Share &share : shares)
      if (uint64_t now = share.ends.load(std::memory_order_relaxed);
          left(now) > 0 && (!most || left(now) > left(ends)))
        most = &share, ends = now;
    if (!most)
      return false;
    uint64_t last = ends >> 32, first = last - (left(ends) + 1) / 2;
    if (most->ends.compare_exchange_weak(ends, first << 32 | (ends & UINT32_MAX),
                                         std::memory_order_relaxed))
      return take(first, last);
  }
}

int numberOfWorkers(int threads) {
  return threads > 0 ? threads : std::max<int>(1, static_cast<int>(allowedCores().size()));
}

ThreadPool::ThreadPool(int threads, bool pin) : shares(numberOfWorkers(threads)) {
  std::vector<int> allowed = allowedCores();
  threads = numberOfWorkers(threads);
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
  for (int64_t begin, end; shares.claim(worker, begin, end);)
    body(context, worker, begin, end);
}

void ThreadPool::run(int64_t count, Body function, void *data) {
  if (count <= 0)
    return;
  if (workers.empty() || count == 1)
    return function(data, 0, 0, count);
  makeRoom();
  body = function;
  context = data;
  shares.deal(count);
  gate.fetch_add(kLoop, std::memory_order_release); // opens
  wake.fetch_add(1, std::memory_order_release);
  wake.notify_all();
  claim(0);
  gate.fetch_add(kLoop, std::memory_order_relaxed); // closes: nobody joins from here on
  for (int spins = 0; static_cast<uint32_t>(gate.load(std::memory_order_acquire)) != 0; ++spins)
    if (spins < kSpins)
      spinOnce();
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
      spinOnce();
    } else {
      // The counter was read before the gate, so a loop opened since is not missed.
      if (!stop.load())
        wake.wait(calls, std::memory_order_acquire);
      spins = 0;
    }
  }
}

} // namespace lathe::runtime
