//===- Ranks.cpp - many pools that follow one decision ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A decision is 32-bit words, little-endian: magic, version, step (two words), the counts of the
// lists, the lists, for each group its changes and its slots, and a checksum of all words before.
//
//===----------------------------------------------------------------------===//

#include "lathe/runtime/KvRanks.h"

#include <algorithm>

namespace lathe::kv {
namespace {

constexpr uint32_t kMagic = 0x444b564c, kVersion = 1; // "LVKD"

class Words {
public:
  explicit Words(std::vector<uint8_t> &bytes) : bytes(bytes) {}
  void put(uint32_t word) {
    for (int i = 0; i < 4; ++i)
      bytes.push_back(uint8_t(word >> 8 * i));
  }

private:
  std::vector<uint8_t> &bytes;
};

uint32_t checksum(std::span<const uint8_t> bytes) { // FNV-1a
  uint32_t h = 2166136261;
  for (uint8_t b : bytes)
    h = (h ^ b) * 16777619;
  return h;
}

/// Reads words; past the end it reads 0 and remembers.
class Reader {
public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes(bytes) {}
  uint32_t word() {
    if (bytes.size() - at < 4) {
      ended = true;
      return 0;
    }
    uint32_t w = 0;
    for (int i = 0; i < 4; ++i)
      w |= uint32_t(bytes[at++]) << 8 * i;
    return w;
  }
  /// A count of things of `words` words each, no more than there are left.
  uint32_t count(uint32_t words) {
    uint32_t n = word();
    if (uint64_t(n) * words * 4 > bytes.size() - at)
      ended = true;
    return ended ? 0 : n;
  }
  bool isAtEnd() const { return !ended && at == bytes.size(); }

private:
  std::span<const uint8_t> bytes;
  size_t at = 0;
  bool ended = false;
};

bool hasSlots(engine::KvGroupKind kind) {
  return kind == engine::KvGroupKind::Full || kind == engine::KvGroupKind::Window;
}

} // namespace

uint32_t commonBlocks(std::span<const engine::KvCapacity> ranks) {
  uint32_t blocks = ranks.empty() ? 0 : ~0u;
  for (const engine::KvCapacity &c : ranks)
    blocks = std::min(blocks, c.blocks);
  return blocks;
}

//===--- The rank that decides --------------------------------------------===//

DecisionWriter::DecisionWriter(const Cache &cache, uint32_t rows, uint32_t tokens) : cache(cache) {
  const Config &c = cache.config();
  tables.resize(c.groups.size());
  size_t most = 0;
  for (uint32_t g = 0; g < c.groups.size(); ++g) {
    uint32_t width = cache.tableWidth(g);
    tables[g].assign(size_t(rows) * width, int32_t(kNoBlock));
    writers.emplace_back(cache, g, tables[g].data(), rows, width);
    most = std::max(most, size_t(rows) * width);
  }
  changes.reserve(most);
  bytes.reserve(4 * (16 + most + size_t(tokens) * c.groups.size()));
}

std::span<const uint8_t> DecisionWriter::write(std::span<const SeqId> batch, const Slots &slots,
                                               uint32_t tokens) {
  const Config &c = cache.config();
  bytes.clear();
  Words out(bytes);
  for (uint32_t word : {kMagic, kVersion, uint32_t(step), uint32_t(step >> 32)})
    out.put(word);
  ++step;
  Transfers t = cache.transfers();
  for (std::span<const SwapCopy> list : {t.swapOuts, t.swapIns}) {
    out.put(uint32_t(list.size()));
    for (const SwapCopy &s : list)
      for (uint32_t word : {s.device, s.host, s.group})
        out.put(word);
  }
  out.put(uint32_t(t.copies.size()));
  for (const BlockCopy &b : t.copies)
    for (uint32_t word : {b.from, b.to, b.group, b.tokens})
      out.put(word);
  out.put(uint32_t(t.moves.size()));
  for (const SlotCopy &s : t.moves)
    for (uint32_t word : {s.from, s.to, s.group})
      out.put(word);
  for (uint32_t g = 0; g < c.groups.size(); ++g) {
    changes.clear();
    writers[g].update(batch, &changes);
    out.put(uint32_t(changes.size()));
    for (const TableEntry &e : changes)
      for (uint32_t word : {e.row, e.entry, uint32_t(e.block)})
        out.put(word);
    uint32_t n = hasSlots(c.groups[g].kind) && slots.slots[g] ? tokens : 0;
    out.put(n);
    for (uint32_t i = 0; i < n; ++i)
      out.put(uint32_t(slots.slots[g][i]));
  }
  out.put(checksum(bytes));
  return bytes;
}

//===--- The ranks that follow --------------------------------------------===//

RankFollower::RankFollower(const Config &config, uint32_t rows, BlockMover &mover)
    : config(config), mover(mover), rows(rows), slotsOf(config.groups.size()) {
  for (const engine::KvGroup &group : config.groups) {
    const engine::KvGroup &g = group.kind == engine::KvGroupKind::Shared
                                   ? config.groups[group.sharesWith]
                                   : group;
    uint32_t blockTokens = g.layout.blockTokens;
    uint32_t width = g.kind == engine::KvGroupKind::State ? 2
                     : g.kind == engine::KvGroupKind::Full
                         ? (config.maxSequenceTokens + blockTokens - 1) / blockTokens
                         : (g.sinks + blockTokens - 1) / blockTokens +
                               engine::kvRingBlocks(g, std::min(config.maxStepTokens,
                                                                config.maxSequenceTokens));
    widths.push_back(width);
    tables.emplace_back(size_t(rows) * width, int32_t(kNoBlock));
  }
}

std::span<const int32_t> RankFollower::table(uint32_t group, uint32_t row) const {
  return std::span(tables[group]).subspan(size_t(row) * widths[group], widths[group]);
}

Status RankFollower::apply(std::span<const uint8_t> decision) {
  auto wrong = [&](const char *what) {
    return invalidError(what, "KV decision " + std::to_string(step));
  };
  if (decision.size() < 8 || decision.size() % 4)
    return wrong("not a decision");
  std::span<const uint8_t> body = decision.first(decision.size() - 4);
  if (Reader(decision.last(4)).word() != checksum(body))
    return wrong("damaged");
  uint32_t groups = uint32_t(config.groups.size());
  uint32_t blockTokens = config.groups[0].layout.blockTokens;
  uint32_t slotCount = config.blocks * blockTokens;
  // Twice through the same words: the first time only looks.
  for (bool perform : {false, true}) {
    Reader in(body);
    if (in.word() != kMagic || in.word() != kVersion)
      return wrong("not a decision of this version");
    uint64_t number = in.word();
    number |= uint64_t(in.word()) << 32;
    if (number != step)
      return wrong(number < step ? "was applied before" : "one before it is missing");
    bool valid = true;
    for (bool out : {true, false})
      for (uint32_t n = in.count(3); n-- > 0;) {
        SwapCopy s;
        s.device = in.word();
        s.host = in.word();
        s.group = in.word();
        valid &= s.device < config.blocks && s.host < config.hostBlocks && s.group < groups;
        if (perform)
          LATHE_RETURN_IF_ERROR(out ? mover.swapOut(s) : mover.swapIn(s));
      }
    for (uint32_t n = in.count(4); n-- > 0;) {
      BlockCopy b;
      b.from = in.word();
      b.to = in.word();
      b.group = in.word();
      b.tokens = in.word();
      valid &= b.from < config.blocks && b.to < config.blocks && b.group < groups &&
               b.tokens <= blockTokens;
      if (perform)
        LATHE_RETURN_IF_ERROR(mover.copy(b));
    }
    for (uint32_t n = in.count(3); n-- > 0;) {
      SlotCopy s;
      s.from = in.word();
      s.to = in.word();
      s.group = in.word();
      valid &= s.from < slotCount && s.to < slotCount && s.group < groups;
      if (perform)
        LATHE_RETURN_IF_ERROR(mover.move(s));
    }
    for (uint32_t g = 0; g < groups; ++g) {
      for (uint32_t n = in.count(3); n-- > 0;) {
        uint32_t row = in.word(), entry = in.word(), block = in.word();
        valid &= row < rows && entry < widths[g] && (block < config.blocks || block == kNoBlock);
        if (perform)
          tables[g][size_t(row) * widths[g] + entry] = int32_t(block);
      }
      uint32_t n = in.count(1);
      if (perform)
        slotsOf[g].resize(n);
      for (uint32_t i = 0; i < n; ++i) {
        uint32_t slot = in.word();
        valid &= slot < slotCount;
        if (perform)
          slotsOf[g][i] = int32_t(slot);
      }
    }
    if (!in.isAtEnd())
      return wrong("has another length than its lists");
    if (!valid)
      return wrong("names blocks, slots or rows that this rank does not have");
  }
  ++step;
  return okStatus();
}

} // namespace lathe::kv
