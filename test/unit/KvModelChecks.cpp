//===- KvModelChecks.cpp - what the naive model expects ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "../../runtime/memory/kv/Faults.h"
#include "KvModel.h"

#include <algorithm>
#include <functional>
#include <map>

namespace lathe::kv {

using engine::KvGroupKind;

/// Blocks that requests take, one after another: new ones, and copies of tails that others have.
uint32_t Model::neededBlocks(const Snapshot &s, const std::vector<Append> &requests) {
  std::map<BlockId, std::vector<uint32_t>> left; // tokens of those who left the block
  for (const Snapshot::Held &h : s.heldByStep)
    if (h.isTail)
      left[h.block].push_back(h.used);
  uint32_t need = 0;
  for (const Append &r : requests) {
    const Snapshot::Sequence &q = s.sequences[r.sequence & 0xffff];
    for (uint32_t g = 0; g < config.groups.size(); ++g) {
      KvGroupKind kind = config.groups[g].kind;
      if (kind == KvGroupKind::Shared)
        continue;
      if (kind == KvGroupKind::State) {
        ++need;
        continue;
      }
      uint32_t have = kind == KvGroupKind::Full ? q.stored : q.length;
      for (uint32_t i = 0; i < r.tokens; ++i)
        need += (have + i) % blockTokens == 0;
      if (have % blockTokens == 0)
        continue;
      uint32_t b = have / blockTokens, sinks = s.sinkBlocks[g];
      bool direct = kind == KvGroupKind::Full || b < sinks;
      BlockId tail = q.groups[g].table[direct ? b : sinks + (b - sinks) % s.ringBlocks[g]];
      std::vector<uint32_t> &gone = left[tail];
      bool more = std::any_of(gone.begin(), gone.end(),
                              [&](uint32_t used) { return used > have % blockTokens; });
      if (s.blocks[tail].references - gone.size() != 1 || more || s.blocks[tail].node != kNoNode) {
        ++need;
        gone.push_back(have % blockTokens);
      }
    }
  }
  return need;
}

/// The longest hit, by its definition.
uint32_t Model::expectedHit(const Snapshot &s, const Sequence &q,
                            const std::vector<Token> &prompt) {
  if (!config.prefixCache)
    return 0;
  std::vector<uint32_t> chain;
  uint32_t at = spaces[size_t(q.space)];
  for (uint32_t b = 0; (b + 1) * blockTokens < prompt.size(); ++b) {
    std::vector<Token> want = blockOf(prompt, b);
    uint32_t found = kNoNode;
    for (uint32_t n = 0; n < s.nodes.size(); ++n)
      if (s.nodes[n].live && !s.nodes[n].root && s.nodes[n].parent == at &&
          std::equal(want.begin(), want.end(), s.tokensOf(n).begin()))
        found = n;
    if (found == kNoNode)
      break;
    chain.push_back(at = found);
  }
  for (uint32_t k = uint32_t(chain.size()); k > 0; --k) {
    bool usable = true;
    uint32_t fromHost = 0, listed = 0;
    for (uint32_t g = 0; g < config.groups.size(); ++g) {
      const engine::KvGroup &group = config.groups[g];
      for (uint32_t b = 0; b < k; ++b) {
        bool wanted = group.kind == KvGroupKind::Full;
        if (group.kind == KvGroupKind::State)
          wanted = b + 1 == k;
        // The next query is at k * blockTokens, and sees window-1 tokens before itself.
        if (group.kind == KvGroupKind::Window)
          wanted = (b + 1) * blockTokens + group.window > k * blockTokens + 1 ||
                   b * blockTokens < group.sinks;
        if (!wanted)
          continue;
        BlockId block = s.nodes[chain[b]].blocks[g];
        if (block != kNoBlock)
          listed += s.blocks[block].references == 0;
        else if (s.nodes[chain[b]].host[g] != kNoBlock)
          ++fromHost;
        else
          usable = false;
      }
      if (group.kind == KvGroupKind::State && group.checkpoint == 0)
        usable = false;
    }
    if (usable && (fromHost == 0 || fromHost + listed <= s.freeList.size() + s.evictable.size()))
      return k * blockTokens;
  }
  return 0;
}

/// A refused call has changed nothing, apart from what an injected failure had evicted before.
void Model::refused(const char *call, const Outcome &o, const Snapshot &before) {
  Snapshot now = cache->snapshot();
  std::string name = std::string(call) + " refused (" + toString(o.code) + ")";
  if (now.sequences.size() != before.sequences.size())
    return fail(name + ": sequences");
  for (size_t i = 0; i < now.sequences.size(); ++i) {
    const Snapshot::Sequence &a = now.sequences[i], &b = before.sequences[i];
    bool same = a.id == b.id && a.swapped == b.swapped && a.doomed == b.doomed &&
                a.compacted == b.compacted && a.cache == b.cache && a.length == b.length &&
                a.stored == b.stored && a.pending == b.pending && a.draft == b.draft &&
                a.tail == b.tail && a.indexed == b.indexed && a.hostBlocks == b.hostBlocks &&
                a.positions == b.positions && a.groups.size() == b.groups.size();
    for (size_t g = 0; same && g < a.groups.size(); ++g)
      same = a.groups[g].first == b.groups[g].first && a.groups[g].count == b.groups[g].count &&
             a.groups[g].table == b.groups[g].table;
    if (!same)
      return fail(name + " changed sequence " + std::to_string(i));
  }
  for (size_t b = 0; b < now.blocks.size(); ++b)
    if (now.blocks[b].references != before.blocks[b].references ||
        now.blocks[b].state != before.blocks[b].state)
      return fail(name + " changed block " + std::to_string(b));
  if (o.code != Code::Injected &&
      (now.blocks != before.blocks || now.hostBlocks != before.hostBlocks ||
       now.freeList != before.freeList || now.evictable != before.evictable ||
       now.hostFreeList != before.hostFreeList || now.hostEvictable != before.hostEvictable))
    fail(name + " changed what is cached");
}

/// Whatever a call evicted went first on the list.
void Model::checkEvictions(const Snapshot &before) {
  Snapshot now = cache->snapshot();
  size_t gone = 0;
  auto evicted = [&](BlockId b) {
    const Snapshot::Block &was = before.blocks[b];
    const Snapshot::Node &node = now.nodes[was.node];
    return !node.live || node.blocks[was.group] != b;
  };
  for (size_t i = 0; i < before.evictable.size(); ++i)
    if (evicted(before.evictable[i]))
      gone = i + 1;
  for (size_t i = 0; i < gone; ++i) {
    BlockId b = before.evictable[i];
    if (!evicted(b) && now.blocks[b].references == 0)
      return fail("block " + std::to_string(b) + " was passed over by eviction");
  }
}

//===--- The whole state --------------------------------------------------===//

void Model::check(bool thorough) {
  Snapshot s = cache->snapshot();
  for (const Violation &v : validate(s))
    return fail("invariant " + std::to_string(v.invariant) + ": " + v.what);
  for (const auto &q : sequences) {
    uint32_t length = uint32_t(q->tokens.size() + q->pending.size());
    if (fails("length", cache->length(q->id), length) ||
        fails("stored", cache->storedTokens(q->id), q->kept.size() + q->pending.size()) ||
        fails("swapped", cache->isSwapped(q->id), q->swapped) ||
        fails("draft", s.sequences[q->id & 0xffff].draft, q->draft))
      return;
  }
  checkTables();
  if (stepIsOpen || !thorough)
    return;
  checkContent(s);
  checkTree(s);
  checkEvents(s);
  for (const Pin &p : pins) {
    std::vector<Token> longer = p.prompt;
    longer.push_back(0);
    if (cache->peek(spaces[size_t(p.space)], longer) < p.pinned)
      fail("a pinned prefix is gone");
  }
  Counters c = cache->counters();
  fails("queryTokens", c.queryTokens, queries);
  fails("hitTokens", c.hitTokens, hits);
  fails("rehitQueryTokens", c.rehitQueryTokens, requeries);
  fails("rehitTokens", c.rehitTokens, rehits);
  fails("appendedTokens", c.appendedTokens, appended);
  if (sequences.empty() && pins.empty())
    fails("committed blocks of nobody", c.committedBlocks + c.reservedBlocks, 0);
}

/// Each token that the next query of a sequence sees has the keys and values of its prefix.
void Model::checkContent(const Snapshot &s) {
  for (const auto &q : sequences) {
    if (q->swapped)
      continue;
    uint32_t length = uint32_t(q->tokens.size());
    std::vector<uint32_t> positions(q->kept.size());
    cache->writePositions(q->id, positions);
    if (positions != q->kept)
      return fail("positions of a sequence");
    for (uint32_t g = 0; g < config.groups.size(); ++g) {
      const engine::KvGroup &group = config.groups[g];
      std::span<const BlockId> row = cache->table(q->id, g);
      auto holds = [&](uint32_t entry, uint32_t offset, uint32_t position) {
        if (entry >= row.size() || row[entry] >= config.blocks ||
            memory[row[entry] * blockTokens + offset] != print(*q, g, position))
          fail("sequence " + std::to_string(q->id & 0xffff) + ", group " + std::to_string(g) +
               ": wrong content at position " + std::to_string(position));
      };
      if (group.kind == KvGroupKind::Full)
        for (uint32_t i = 0; i < q->kept.size(); ++i)
          holds(i / blockTokens, i % blockTokens, q->kept[i]);
      if (group.kind == KvGroupKind::State && length)
        holds(0, 0, length - 1);
      if (group.kind == KvGroupKind::Window)
        for (uint32_t p = 0; p < length; ++p)
          if (p < group.sinks || p + group.window > length) {
            uint32_t b = p / blockTokens, sinks = s.sinkBlocks[g];
            holds(b < sinks ? b : sinks + (b - sinks) % s.ringBlocks[g], p % blockTokens, p);
          }
    }
  }
}

/// Each cached block has the content that its chain of nodes says, on both tiers.
void Model::checkTree(const Snapshot &s) {
  std::vector<std::vector<uint64_t>> prints(s.nodes.size());
  std::function<const std::vector<uint64_t> &(uint32_t)> of =
      [&](uint32_t n) -> const std::vector<uint64_t> & {
    if (prints[n].empty()) {
      uint64_t p = s.nodes[n].depth > 1
                       ? of(s.nodes[n].parent).back()
                       : uint64_t(std::find(spaces.begin(), spaces.end(), s.nodes[n].parent) -
                                  spaces.begin()) + 1;
      for (Token t : s.tokensOf(n))
        prints[n].push_back(p = next(p, t));
    }
    return prints[n];
  };
  for (uint32_t n = 0; n < s.nodes.size(); ++n) {
    if (!s.nodes[n].live || s.nodes[n].root)
      continue;
    for (uint32_t g = 0; g < config.groups.size(); ++g)
      for (bool host : {false, true}) {
        BlockId b = (host ? s.nodes[n].host : s.nodes[n].blocks)[g];
        if (b == kNoBlock)
          continue;
        const uint64_t *content = &(host ? hostMemory : memory)[b * blockTokens];
        uint64_t group = 0x1000003 * (g + 1);
        bool right = true;
        if (config.groups[g].kind == KvGroupKind::State)
          right = content[0] == of(n).back() + group;
        else
          for (uint32_t i = 0; i < blockTokens; ++i)
            right &= content[i] == of(n)[i] + group;
        if (!right)
          return fail(std::string(host ? "host " : "") + "block " + std::to_string(b) +
                      " does not hold what it is cached as");
      }
  }
}

/// A reader of the log knows what is cached.
void Model::checkEvents(const Snapshot &s) {
  std::vector<Event> events(size_t(cache->events().end() - seen));
  uint64_t lost = 0;
  events.resize(cache->events().read(seen, events, lost));
  seen = cache->events().end();
  if (hashBits < 128) // blocks share their names
    return;
  if (Status status = view.apply(events); lost || !status.ok())
    return fail("events: " + status.str());
  size_t known = 0;
  for (const Snapshot::Node &n : s.nodes) {
    if (!n.live || n.root)
      continue;
    bool any = false;
    for (uint32_t g = 0; g < config.groups.size(); ++g) {
      any |= n.blocks[g] != kNoBlock || n.host[g] != kNoBlock;
      if (view.onDevice(n.hash, g) != (n.blocks[g] != kNoBlock) ||
          view.onHost(n.hash, g) != (n.host[g] != kNoBlock))
        return fail("the events say something else than the tree");
    }
    known += any;
  }
  fails("blocks known from events", view.size(), known);
}

/// What the writers have written is what the rows are.
void Model::checkTables() {
  for (size_t i = 0; i < tableRows.size(); ++i)
    if (tableRows[i] == kNoSequence || chance(15))
      tableRows[i] = sequences.empty() ? kNoSequence
                                       : sequences[below(uint32_t(sequences.size()))]->id;
  for (uint32_t g = 0; g < config.groups.size(); ++g) {
    if (chance(30))
      continue; // this writer falls behind
    writers[g].update(tableRows);
    uint32_t stride = cache->tableWidth(g) + 1;
    for (size_t i = 0; i < tableRows.size(); ++i) {
      std::span<const BlockId> row = cache->table(tableRows[i], g);
      for (size_t e = 0; e < row.size(); ++e)
        if (row[e] != kNoBlock && tableMemory[g][i * stride + e] != int32_t(row[e]))
          return fail("entry " + std::to_string(e) + " of a table was not written");
      if (tableMemory[g][i * stride + stride - 1] != -7)
        return fail("a table was written beyond its width");
    }
  }
}

} // namespace lathe::kv
