//===- KvEvents.h - what the prefix cache stored and lost -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A log for a router, which learns from it what a replica holds, and for replay. One thread writes
// (the owner of the Cache), any number read at the same time without locks.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_KVEVENTS_H
#define LATHE_RUNTIME_KVEVENTS_H

#include "lathe/support/Status.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace lathe::kv {

/// Of the chain of all tokens up to and including a block, with space and keys.
struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128 &) const = default;
};

enum class EventKind : uint8_t {
  Stored = 0,      ///< a full block became reusable
  Evicted = 1,     ///< a block left the device tier
  Offloaded = 2,   ///< it went to the host tier (after its Evicted)
  Restored = 3,    ///< it came back from the host tier (a Stored without computation)
  HostEvicted = 4, ///< it left the host tier
  Hit = 5,         ///< `tokens` of a prompt were found; the hash is of the last block
};

struct Event {
  uint64_t number = 0; ///< 0, 1, 2, ... without gaps
  EventKind kind = EventKind::Stored;
  uint8_t group = 0;
  uint32_t tokens = 0; ///< Hit: of the hit; otherwise up to the end of the block
  Hash128 hash, parent; ///< parent: of the block before, or of the space
  bool operator==(const Event &) const = default;
};

/// A ring of the last `capacity` events.
class EventLog {
public:
  explicit EventLog(uint32_t capacity);

  /// Writer only.
  void append(EventKind kind, uint32_t group, uint32_t tokens, const Hash128 &hash,
              const Hash128 &parent);

  /// Number of the next event. Any thread.
  uint64_t end() const { return next.load(std::memory_order_acquire); }
  /// Copies events from number `from` on into `out`; returns how many. `lost` is set to the count
  /// that had been overwritten before the first one returned: then the reader must start afresh
  /// from a snapshot. Any thread.
  size_t read(uint64_t from, std::span<Event> out, uint64_t &lost) const;

private:
  struct Slot {
    std::atomic<uint64_t> number; ///< of the event inside, or ~0 while it is written
    std::atomic<uint64_t> words[5];
  };
  std::unique_ptr<Slot[]> ring;
  uint64_t mask = 0;
  std::atomic<uint64_t> next{0};
};

/// Events as bytes: little-endian, with magic and version.
void serialize(std::span<const Event> events, std::vector<uint8_t> &out);
/// Invalid error for anything that serialize() does not write.
Result<std::vector<Event>> parseEvents(std::span<const uint8_t> bytes);

/// What a reader of the log knows about a replica: which blocks lie in which tier.
class EventView {
public:
  /// Invalid error when the events do not follow one another, or a block that is not there leaves.
  Status apply(std::span<const Event> events);
  bool onDevice(const Hash128 &hash, uint32_t group) const { return tiers(hash, group) & 1; }
  bool onHost(const Hash128 &hash, uint32_t group) const { return tiers(hash, group) & 2; }
  size_t size() const { return blocks.size(); }
  uint64_t hitTokens() const { return hits; }

private:
  struct Hasher {
    size_t operator()(const Hash128 &h) const { return h.low; }
  };
  uint32_t tiers(const Hash128 &hash, uint32_t group) const {
    auto it = blocks.find(hash);
    return it == blocks.end() ? 0 : it->second >> (2 * group) & 3;
  }
  std::unordered_map<Hash128, uint32_t, Hasher> blocks; ///< two bits a group
  uint64_t nextNumber = 0, hits = 0;
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_KVEVENTS_H
