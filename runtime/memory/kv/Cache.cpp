//===- Cache.cpp - the public face of the KV cache --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Core.h"

#include <algorithm>

namespace lathe::kv {

const char *toString(Code code) {
  switch (code) {
  case Code::Ok: return "ok";
  case Code::NoBlocks: return "too few blocks are free";
  case Code::NoHostBlocks: return "too few blocks of the host tier are free";
  case Code::NoSequences: return "the maximal count of sequences is open";
  case Code::NoSpaces: return "the maximal count of spaces, keys or pins is in use";
  case Code::BadSequence: return "no such sequence, or it is not in the pool now";
  case Code::BadArgument: return "an argument is out of range";
  case Code::TooLong: return "longer than the maximum";
  case Code::Busy: return "the sequence takes part in the open step";
  case Code::StepOpen: return "a step is open";
  case Code::NoStep: return "no step is open";
  case Code::TransfersPending: return "transfers wait to be performed and cleared";
  case Code::OutOfWindow: return "the tokens before were given up";
  case Code::Unsupported: return "the groups of this model do not allow it";
  case Code::Injected: return "a failure was injected";
  }
  return "unknown";
}

Status toStatus(const Outcome &o) {
  if (o.ok())
    return okStatus();
  std::string text = toString(o.code);
  if (o.needed)
    text += ": " + std::to_string(o.needed) + " needed, " + std::to_string(o.available) +
            " available";
  ErrorCode code = o.code == Code::Unsupported ? ErrorCode::Unsupported
                   : o.code == Code::NoBlocks || o.code == Code::NoHostBlocks ||
                           o.code == Code::Injected
                       ? ErrorCode::RuntimeFailure
                       : ErrorCode::Usage;
  std::string at = o.sequence == kNoSequence ? "" : "sequence " + std::to_string(o.sequence & 0xffff);
  return {code, std::move(text), std::move(at)};
}

Result<std::unique_ptr<Cache>> Cache::create(const Config &c) {
  LATHE_RETURN_IF_ERROR(engine::validate(c.groups));
  uint32_t blockTokens = c.groups[0].layout.blockTokens;
  auto within = [](uint32_t n, uint32_t low, uint32_t high) { return n >= low && n <= high; };
  if (!within(c.maxSequences, 1, 65535) || !within(c.maxSpaces, 1, 1 << 20) ||
      !within(c.maxKeys, 1, 1 << 24))
    return usageError("a KV cache has 1 to 65535 sequences, 1 to 2^20 spaces, 1 to 2^24 keys");
  if (!within(c.maxSequenceTokens, 1, 1 << 28) || !within(c.maxStepTokens, 1, 1 << 20))
    return usageError("a sequence has 1 to 2^28 tokens, and a step 1 to 2^20 of one sequence");
  if (c.eventCapacity & (c.eventCapacity - 1) || c.eventCapacity > 1u << 28)
    return usageError("the capacity of the event log is a power of two, or 0");
  if (uint64_t(c.blocks) * blockTokens >> 31 || uint64_t(c.hostBlocks) * blockTokens >> 31)
    return usageError("slots are numbered with 31 bits: " + std::to_string(c.blocks) +
                      " blocks of " + std::to_string(blockTokens) + " tokens are too many");
  uint64_t needed = 0;
  for (const engine::KvGroup &g : c.groups)
    needed += engine::kvBlocksPerSequence(g, c.maxSequenceTokens, c.maxStepTokens);
  if (needed > c.blocks)
    return unsupportedError("one sequence of maxSequenceTokens = " +
                            std::to_string(c.maxSequenceTokens) + " needs " +
                            std::to_string(needed) + " blocks of " + std::to_string(blockTokens) +
                            " tokens; the pool has " + std::to_string(c.blocks) +
                            ": give it more memory, or a smaller maximal length");
  return std::unique_ptr<Cache>(new Cache(std::make_unique<Core>(c)));
}

Cache::Cache(std::unique_ptr<Core> c) : core(std::move(c)) {}
Cache::~Cache() = default;

const Config &Cache::config() const { return core->config; }

Outcome Cache::openSpace(std::span<const std::string_view> parts, SpaceId &space) {
  return core->openSpace(parts, space);
}
Outcome Cache::internKey(std::string_view content, Token &token) {
  return core->spaces->intern(content, token) ? Outcome{} : Outcome{Code::NoSpaces};
}

Outcome Cache::open(const SequenceOptions &o, SeqId &s) { return core->open(o, s); }
Outcome Cache::fork(SeqId parent, SeqId &child) { return core->fork(parent, child); }
Outcome Cache::truncate(SeqId s, uint32_t length) { return core->truncate(s, length); }
Outcome Cache::provide(SeqId s, Token token) { return core->provide(s, token); }
Outcome Cache::close(SeqId s) { return core->close(s); }
Outcome Cache::preempt(SeqId s, Preempt how) { return core->preempt(s, how); }
Outcome Cache::begin() { return core->begin(); }
Outcome Cache::attach(SeqId s, std::span<const Token> prompt, uint32_t &hit) {
  return core->attach(s, prompt, hit);
}
Outcome Cache::resume(SeqId s) { return core->resume(s); }
Outcome Cache::reserve(std::span<const Append> requests, std::span<const Token> tokens,
                       const Slots &slots) {
  return core->reserve(requests, tokens, slots);
}
Outcome Cache::drop(SeqId s, std::span<const uint32_t> kept) { return core->drop(s, kept); }
Outcome Cache::commit() { return core->commit(); }
Outcome Cache::rollback() { return core->rollback(); }
bool Cache::stepIsOpen() const { return core->stepIsOpen; }
Transfers Cache::transfers() const { return core->transfers(); }
void Cache::clearTransfers() { core->clearTransfers(); }

uint32_t Cache::peek(SpaceId space, std::span<const Token> prompt) const {
  return core->peek(space, prompt);
}
uint32_t Cache::length(SeqId id) const {
  uint32_t s = core->find(id);
  return s == core->config.maxSequences ? 0 : core->length(s) + core->hot[s].pending;
}
uint32_t Cache::committedLength(SeqId id) const {
  uint32_t s = core->find(id);
  return s == core->config.maxSequences ? 0 : core->length(s);
}
uint32_t Cache::storedTokens(SeqId id) const {
  uint32_t s = core->find(id);
  return s == core->config.maxSequences ? 0 : core->hot[s].stored + core->hot[s].pending;
}
uint32_t Cache::writePositions(SeqId id, std::span<uint32_t> out) const {
  uint32_t s = core->find(id);
  if (s == core->config.maxSequences || core->hot[s].flags & Core::kSwapped)
    return 0;
  return core->writePositions(s, out);
}
bool Cache::isSwapped(SeqId id) const {
  uint32_t s = core->find(id);
  return s != core->config.maxSequences && core->hot[s].flags & Core::kSwapped;
}
uint32_t Cache::availableBlocks() const { return core->pool.availableBlocks(); }
uint32_t Cache::neededBlocks(std::span<const Append> requests) const {
  return core->neededBlocks(requests);
}

uint32_t Cache::tableWidth(uint32_t group) const {
  return group < core->groups.size() ? core->storage(group).width : 0;
}
uint32_t Cache::tableEntries(SeqId id, uint32_t group) const {
  return uint32_t(table(id, group).size());
}
std::span<const BlockId> Cache::table(SeqId id, uint32_t group) const {
  uint32_t s = core->find(id);
  if (s == core->config.maxSequences || group >= core->groups.size() ||
      core->hot[s].flags & Core::kSwapped)
    return {};
  const Group &g = core->storage(group);
  return {core->row(s) + g.offset, core->entries(s, g)};
}

Outcome Cache::pin(SpaceId space, std::span<const Token> prompt, PinId &pin, uint32_t &pinned) {
  return core->pin(space, prompt, pin, pinned);
}
Outcome Cache::unpin(PinId pin) { return core->unpin(pin); }
void Cache::clearCache() { core->clearCache(); }
Counters Cache::counters() const { return core->published.read(); }
const EventLog &Cache::events() const { return core->events; }
Fragmentation Cache::fragmentation() const { return core->fragmentation(); }
Snapshot Cache::snapshot() const { return core->snapshot(); }

//===--- Tables in the caller's memory ------------------------------------===//

TableWriter::TableWriter(const Cache &cache, uint32_t group, int32_t *memory, uint32_t rows,
                         uint32_t stride)
    : core(cache.core.get()), group(core->targets[group]), memory(memory), stride(stride),
      rows(rows) {}

void TableWriter::reset() { std::fill(rows.begin(), rows.end(), Row{}); }

uint64_t TableWriter::update(std::span<const SeqId> batch, std::vector<TableEntry> *changes) {
  const Group &g = core->groups[group];
  uint64_t entries = 0;
  ++core->tick; // what is replaced from now on, this writer has not seen
  for (size_t i = 0; i < std::min(batch.size(), rows.size()); ++i) {
    uint32_t s = core->find(batch[i]);
    if (s == core->config.maxSequences || core->hot[s].flags & Core::kSwapped)
      continue;
    Row &row = rows[i];
    const Core::Rewrite &change = core->rewrites[s];
    const BlockId *from = core->row(s);
    auto write = [&](uint32_t at) {
      uint32_t entry = at - g.offset;
      memory[i * stride + entry] = int32_t(from[at]);
      if (changes)
        changes->push_back({uint32_t(i), entry, int32_t(from[at])});
      ++entries;
    };
    if (g.isState()) {
      write(g.offset);
      write(g.offset + 1);
      continue;
    }
    uint32_t count = core->count(s, g), start = row.written;
    if (row.sequence != batch[i] || (row.epoch != change.epoch && row.epoch != change.before))
      start = 0;
    else if (row.epoch != change.epoch)
      start = std::min(start, change.from);
    // Of a ring, what is in it.
    for (uint32_t b = std::min(start, g.sinkBlocks); b < std::min(count, g.sinkBlocks); ++b)
      write(g.at(b));
    for (uint32_t b = std::max(std::max(start, g.sinkBlocks), core->first(s, g)); b < count; ++b)
      write(g.at(b));
    row = {batch[i], count, change.epoch};
  }
  return entries;
}

} // namespace lathe::kv
