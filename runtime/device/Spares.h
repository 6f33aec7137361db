//===- Spares.h - memory of results that callers gave back ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_SPARES_H
#define LATHE_RUNTIME_DEVICE_SPARES_H

#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lathe::runtime {

/// Which blocks callers have, and a bounded number of those that they gave back. From any thread; it owns no memory.
class Spares {
public:
  /// Up to so much is kept.
  static constexpr size_t kMost = 16, kMostBytes = size_t(256) << 20;

  /// A caller has this fresh block now.
  void added(void *memory, size_t bytes);
  /// A block of at least `bytes`, and not more than twice as many, for a caller; null where there is none.
  void *take(size_t bytes);
  /// A caller gives a block back; those that are to be freed for it, the oldest.
  std::vector<void *> give(void *memory);
  /// All that nobody has, to be freed.
  std::vector<void *> giveUp();

private:
  std::mutex mutex;
  std::unordered_map<void *, size_t> taken;
  std::vector<std::pair<void *, size_t>> spares; ///< the oldest first
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_SPARES_H
