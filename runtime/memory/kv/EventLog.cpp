//===- EventLog.cpp - what the prefix cache stored and lost -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/runtime/KvEvents.h"

#include <algorithm>
#include <cstring>

namespace lathe::kv {

EventLog::EventLog(uint32_t capacity)
    : ring(capacity ? std::make_unique<Slot[]>(capacity) : nullptr),
      mask(capacity ? capacity - 1 : 0) {
  for (uint32_t i = 0; i < capacity; ++i)
    ring[i].number.store(~uint64_t(0), std::memory_order_relaxed);
}

void EventLog::append(EventKind kind, uint32_t group, uint32_t tokens, const Hash128 &hash,
                      const Hash128 &parent) {
  if (!ring)
    return;
  uint64_t n = next.load(std::memory_order_relaxed);
  Slot &slot = ring[n & mask];
  const uint64_t words[] = {uint64_t(kind) | uint64_t(group) << 8 | uint64_t(tokens) << 32,
                            hash.low, hash.high, parent.low, parent.high};
  slot.number.store(~uint64_t(0), std::memory_order_relaxed);
  // Release: whoever sees one of these words sees that the slot is being written.
  for (int i = 0; i < 5; ++i)
    slot.words[i].store(words[i], std::memory_order_release);
  slot.number.store(n, std::memory_order_release);
  next.store(n + 1, std::memory_order_release);
}

size_t EventLog::read(uint64_t from, std::span<Event> out, uint64_t &lost) const {
  lost = 0;
  uint64_t stop = end(), size = mask + 1, begin = from;
  if (!ring)
    return 0;
  size_t count = 0;
  if (stop > size && begin < stop - size)
    begin = stop - size;
  for (uint64_t n = begin; n < stop && count < out.size(); ++n) {
    const Slot &slot = ring[n & mask];
    uint64_t words[5], number = slot.number.load(std::memory_order_acquire);
    for (int i = 0; i < 5; ++i)
      words[i] = slot.words[i].load(std::memory_order_acquire);
    if (number != n || slot.number.load(std::memory_order_relaxed) != n) {
      count = 0; // overwritten meanwhile, and so are all before
      continue;
    }
    out[count++] = {n,
                    EventKind(words[0] & 0xff),
                    uint8_t(words[0] >> 8),
                    uint32_t(words[0] >> 32),
                    {words[1], words[2]},
                    {words[3], words[4]}};
  }
  if (count)
    lost = out[0].number - std::min(from, out[0].number);
  return count;
}

//===--- Bytes ------------------------------------------------------------===//

namespace {
constexpr char kMagic[8] = {'L', 'T', 'H', 'K', 'V', 'E', 'V', 1}; // the last byte: the version
constexpr size_t kEventBytes = 8 + 1 + 1 + 4 + 4 * 8;

void put(std::vector<uint8_t> &out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out.push_back(uint8_t(value >> 8 * i));
}
uint64_t get(const uint8_t *&p, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= uint64_t(*p++) << 8 * i;
  return value;
}
} // namespace

void serialize(std::span<const Event> events, std::vector<uint8_t> &out) {
  out.insert(out.end(), kMagic, kMagic + sizeof kMagic);
  put(out, events.size(), 8);
  for (const Event &e : events) {
    put(out, e.number, 8);
    put(out, uint64_t(e.kind), 1);
    put(out, e.group, 1);
    put(out, e.tokens, 4);
    for (uint64_t word : {e.hash.low, e.hash.high, e.parent.low, e.parent.high})
      put(out, word, 8);
  }
}

Result<std::vector<Event>> parseEvents(std::span<const uint8_t> bytes) {
  if (bytes.size() < 16 || std::memcmp(bytes.data(), kMagic, 7) != 0)
    return invalidError("not a log of KV events");
  if (bytes[7] != kMagic[7])
    return invalidError("a log of KV events of version " + std::to_string(bytes[7]) +
                        "; this reads version " + std::to_string(kMagic[7]));
  const uint8_t *p = bytes.data() + 8;
  uint64_t count = get(p, 8);
  if (count != (bytes.size() - 16) / kEventBytes || (bytes.size() - 16) % kEventBytes)
    return invalidError("a log of " + std::to_string(count) + " KV events does not have " +
                        std::to_string(bytes.size()) + " bytes");
  std::vector<Event> events(count);
  for (Event &e : events) {
    e.number = get(p, 8);
    uint64_t kind = get(p, 1);
    e.kind = EventKind(kind);
    e.group = uint8_t(get(p, 1));
    e.tokens = uint32_t(get(p, 4));
    e.hash.low = get(p, 8);
    e.hash.high = get(p, 8);
    e.parent.low = get(p, 8);
    e.parent.high = get(p, 8);
    if (kind > uint64_t(EventKind::Hit) || e.group >= 8)
      return invalidError("event " + std::to_string(e.number) + " has kind " +
                          std::to_string(kind) + ", group " + std::to_string(e.group));
  }
  return events;
}

Status EventView::apply(std::span<const Event> events) {
  for (const Event &e : events) {
    std::string at = "event " + std::to_string(e.number);
    if (e.number != nextNumber)
      return invalidError("follows event " + std::to_string(nextNumber) + " - 1", at);
    ++nextNumber;
    if (e.kind == EventKind::Hit) {
      hits += e.tokens;
      continue;
    }
    bool host = e.kind == EventKind::Offloaded || e.kind == EventKind::HostEvicted;
    bool leaves = e.kind == EventKind::Evicted || e.kind == EventKind::HostEvicted;
    uint32_t bit = (host ? 2u : 1u) << 2 * e.group;
    uint32_t &tiersOfBlock = blocks[e.hash];
    if (bool(tiersOfBlock & bit) != leaves)
      return invalidError(leaves ? "a block leaves that is not there"
                                 : "a block comes that is there",
                          at);
    tiersOfBlock ^= bit;
    if (tiersOfBlock == 0)
      blocks.erase(e.hash);
  }
  return okStatus();
}

} // namespace lathe::kv
