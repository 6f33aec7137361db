//===- Published.h - counters that other threads read -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sequence lock: one writer, who never waits, any number of readers, who try again when the
// writer came between. All words are atomic, so that there is no race to excuse.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_MEMORY_KV_PUBLISHED_H
#define LATHE_RUNTIME_MEMORY_KV_PUBLISHED_H

#include "lathe/runtime/KvTypes.h"

#include <atomic>
#include <cstring>

namespace lathe::kv {

class Published {
public:
  void write(const Counters &counters) {
    uint64_t plain[kWords];
    std::memcpy(plain, &counters, sizeof plain);
    uint64_t v = version.load(std::memory_order_relaxed);
    version.store(v + 1, std::memory_order_relaxed);
    // Release: whoever sees one of these words sees the odd version too.
    for (size_t i = 0; i < kWords; ++i)
      words[i].store(plain[i], std::memory_order_release);
    version.store(v + 2, std::memory_order_release);
  }
  Counters read() const {
    uint64_t plain[kWords];
    for (;;) {
      uint64_t v = version.load(std::memory_order_acquire);
      // Acquire: the second look at the version is not earlier.
      for (size_t i = 0; i < kWords; ++i)
        plain[i] = words[i].load(std::memory_order_acquire);
      if (!(v & 1) && version.load(std::memory_order_relaxed) == v)
        break;
    }
    Counters counters;
    std::memcpy(static_cast<void *>(&counters), plain, sizeof plain);
    return counters;
  }

private:
  static constexpr size_t kWords = sizeof(Counters) / sizeof(uint64_t);
  static_assert(sizeof(Counters) % sizeof(uint64_t) == 0);
  std::atomic<uint64_t> version{0};
  std::atomic<uint64_t> words[kWords] = {};
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_MEMORY_KV_PUBLISHED_H
