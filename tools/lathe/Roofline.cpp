//===- Roofline.cpp - what a machine could do at best ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Roofline.h"

#include "lathe/codegen/TargetRates.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <sched.h>
#include <thread>
#include <vector>

namespace lathe::cli {
namespace {

using Clock = std::chrono::steady_clock;

template <int Bytes> struct VectorOf {
  typedef float type __attribute__((vector_size(Bytes)));
};

/// Operations of `rounds` rounds of 12 independent multiply-adds.
template <int Bytes> __attribute__((always_inline)) inline double multiplyAdds(int64_t rounds) {
  using Vector = typename VectorOf<Bytes>::type;
  Vector sums[12], x, y;
  for (int i = 0; i < Bytes / 4; ++i) {
    x[i] = 0.999f + float(i) * 1e-6f;
    y[i] = 1e-3f;
  }
  for (Vector &sum : sums)
    sum = y;
  for (int64_t r = 0; r < rounds; ++r) {
#pragma clang loop unroll(full)
    for (Vector &sum : sums)
      sum = sum * x + y;
  }
  volatile float sink = 0;
  for (Vector &sum : sums)
    sink = sink + sum[0];
  return double(rounds) * 12 * (Bytes / 4) * 2;
}

__attribute__((target("avx512f,fma"))) double work512(int64_t rounds) {
  return multiplyAdds<64>(rounds);
}
__attribute__((target("avx2,fma"))) double work256(int64_t rounds) {
  return multiplyAdds<32>(rounds);
}

/// Runs `work` on all threads at once; the sum of what each did a second.
template <typename Work> double onThreads(int threads, Work work) {
  std::vector<double> rates(static_cast<size_t>(threads));
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&, t] { rates[size_t(t)] = work(t); });
  double sum = 0;
  for (int t = 0; t < threads; ++t) {
    pool[size_t(t)].join();
    sum += rates[size_t(t)];
  }
  return sum;
}

double timed(double least, auto &&once) {
  double amount = 0, best = 0;
  auto begin = Clock::now();
  do {
    auto start = Clock::now();
    amount = once();
    best = std::max(best, amount / std::chrono::duration<double>(Clock::now() - start).count());
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < least);
  return best;
}

Roofline measureCpu(int threads) {
  if (threads <= 0) {
    cpu_set_t set;
    threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  }
  Roofline roof;
  constexpr size_t kBytes = size_t(48) << 20;
  roof.gbs = onThreads(threads, [](int) {
               std::vector<char> a(kBytes, 1), b(kBytes, 2);
               return timed(0.15, [&] {
                 std::memcpy(b.data(), a.data(), kBytes);
                 asm volatile("" : : "r"(b.data()) : "memory");
                 return 2.0 * double(kBytes);
               });
             }) /
             1e9;
  bool wide = __builtin_cpu_supports("avx512f");
  roof.gflops = onThreads(threads, [wide](int) {
                  return timed(0.1, [&] { return wide ? work512(200000) : work256(200000); });
                }) /
                1e9;
  roof.origin = "measured on " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  return roof;
}

} // namespace

Roofline rooflineOf(const Target &target, int threads) {
  if (!target.isCuda())
    return measureCpu(threads);
  const TargetRates rates = ratesOf(target);
  std::string origin = std::string(rates.card) + ", on tensor cores " +
                       std::to_string(std::lround(rates.tensorCoreFlops / 1e9)) + " in 16 bits";
  return {rates.bytesPerSecond / 1e9, rates.fmaFlops / 1e9, origin, target};
}

double Roofline::gflopsOf(const std::string &config) const {
  return tensorCores ? peakFlops(*tensorCores, config) / 1e9 : gflops;
}

} // namespace lathe::cli
