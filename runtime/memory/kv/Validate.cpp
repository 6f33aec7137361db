//===- Validate.cpp - what must hold in a KV cache --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recomputes every invariant of ../README.md from a snapshot, by its number. Plain loops over plain
// structs: nothing of the Cache is used, so that a mistake there is not repeated here.
//
//===----------------------------------------------------------------------===//

#include "lathe/runtime/KvSnapshot.h"

#include <algorithm>
#include <bit>

namespace lathe::kv {
namespace {

using engine::KvGroupKind;

class Validator {
public:
  explicit Validator(const Snapshot &s)
      : s(s), groups(s.config.groups), tokens(groups[0].layout.blockTokens) {}

  std::vector<Violation> run() {
    tree();
    tier(s.blocks, s.freeList, s.evictable, false);
    tier(s.hostBlocks, s.hostFreeList, s.hostEvictable, true);
    index();
    for (size_t i = 0; i < s.sequences.size(); ++i)
      if (s.sequences[i].id != kNoSequence)
        sequence(s.sequences[i], "sequence " + std::to_string(i));
    references();
    evictionOrder();
    pins();
    if (!s.stepOpen) {
      noStep();
      counters();
    }
    return std::move(found);
  }

private:
  void report(int invariant, std::string what) {
    if (found.size() < 100)
      found.push_back({invariant, std::move(what)});
  }
  static std::string text(const char *kind, uint64_t n) { return kind + std::to_string(n); }
  bool live(uint32_t n) const { return n < s.nodes.size() && s.nodes[n].live; }
  uint32_t blocksOf(uint32_t n) const { return (n + tokens - 1) / tokens; }
  /// Entry of block `b` in a row, or ~0 when the ring has given it up.
  uint32_t at(const Snapshot::Sequence::Group &g, uint32_t group, uint32_t b) const {
    if (groups[group].kind == KvGroupKind::Full)
      return b;
    uint32_t sinks = s.sinkBlocks[group];
    if (b < sinks)
      return b;
    return b < g.first ? ~0u : sinks + (b - sinks) % s.ringBlocks[group];
  }

  // 1, 4: each block is in one place. 5: blocks and nodes name each other.
  void tier(const std::vector<Snapshot::Block> &blocks, const std::vector<BlockId> &free,
            const std::vector<BlockId> &evictable, bool host) {
    int number = host ? 4 : 1;
    const char *name = host ? "host block " : "block ";
    std::vector<int> onFree(blocks.size()), onList(blocks.size());
    for (BlockId b : free)
      b < blocks.size() ? void(++onFree[b]) : report(number, text("free list has ", b));
    for (BlockId b : evictable)
      b < blocks.size() ? void(++onList[b]) : report(number, text("eviction list has ", b));
    for (BlockId b = 0; b < blocks.size(); ++b) {
      const Snapshot::Block &x = blocks[b];
      bool isFree = x.state == BlockState::Free, cached = x.node != kNoNode;
      if (isFree != (x.references == 0))
        report(number, text(name, b) + ": state and references disagree");
      if (onFree[b] != (isFree && !cached) || onList[b] != (isFree && cached))
        report(number, text(name, b) + " is " + std::to_string(onFree[b]) +
                           " times on the free list, " + std::to_string(onList[b]) +
                           " times on an eviction list");
      if (cached && (!live(x.node) || x.group >= groups.size() ||
                     (host ? s.nodes[x.node].host : s.nodes[x.node].blocks)[x.group] != b))
        report(5, text(name, b) + text(" names node ", x.node) + ", which does not name it");
    }
    for (uint32_t n = 0; n < s.nodes.size(); ++n)
      for (uint32_t g = 0; live(n) && g < kMaxGroups; ++g) {
        BlockId b = (host ? s.nodes[n].host : s.nodes[n].blocks)[g];
        if (b != kNoBlock &&
            (b >= blocks.size() || blocks[b].node != n || blocks[b].group != g))
          report(5, text("node ", n) + text(" names ", b) + ", which does not name it");
      }
  }

  // 6: the tree hangs together. 8: siblings differ.
  void tree() {
    std::vector<uint32_t> links(s.nodes.size());
    std::vector<uint32_t> children;
    for (uint32_t n = 0; n < s.nodes.size(); ++n) {
      const Snapshot::Node &x = s.nodes[n];
      if (!x.live)
        continue;
      for (uint32_t g = 0; g < kMaxGroups; ++g)
        links[n] += (x.blocks[g] != kNoBlock) + (x.host[g] != kNoBlock);
      if (x.root) {
        if (x.depth != 0)
          report(6, text("root ", n) + " has a depth");
        continue;
      }
      if (!live(x.parent) || s.nodes[x.parent].depth + 1 != x.depth) {
        report(6, text("node ", n) + " hangs in the air");
        continue;
      }
      ++links[x.parent];
      children.push_back(n);
    }
    auto order = [&](uint32_t a, uint32_t b) {
      std::span<const Token> x = s.tokensOf(a), y = s.tokensOf(b);
      if (s.nodes[a].parent != s.nodes[b].parent)
        return s.nodes[a].parent < s.nodes[b].parent;
      return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
    };
    std::sort(children.begin(), children.end(), order);
    for (size_t i = 1; i < children.size(); ++i)
      if (!order(children[i - 1], children[i]))
        report(8, text("node ", children[i]) + " has a sibling with the same tokens");
    for (const Snapshot::Sequence &q : s.sequences)
      if (q.id != kNoSequence && q.indexed && q.tail < links.size())
        ++links[q.tail];
    std::vector<int> onFree(s.nodes.size());
    for (uint32_t n : s.freeNodes)
      n < onFree.size() ? void(++onFree[n]) : report(6, "the free nodes name one that is not");
    for (uint32_t n = 0; n < s.nodes.size(); ++n) {
      const Snapshot::Node &x = s.nodes[n];
      if (x.root)
        continue;
      if (onFree[n] != !x.live)
        report(6, text("node ", n) + " is free and in use, or neither");
      if (x.live && (x.links != links[n] || x.links == 0))
        report(6, text("node ", n) + text(" has links ", x.links) + text(", but ", links[n]));
    }
  }

  // 7: each node is found where its hash says.
  void index() {
    size_t size = s.index.size(), entries = 0, nodes = 0;
    uint32_t bits = uint32_t(std::bit_width(size) - 1);
    std::vector<int> seen(s.nodes.size());
    for (uint32_t n : s.index)
      if (n != kNoNode) {
        ++entries;
        n < seen.size() ? void(++seen[n]) : report(7, "the index names a node that is not");
      }
    for (uint32_t n = 0; n < s.nodes.size(); ++n) {
      const Snapshot::Node &x = s.nodes[n];
      if (!x.live || x.root)
        continue;
      ++nodes;
      if (seen[n] != 1) {
        report(7, text("node ", n) + text(" is in the index ", seen[n]) + " times");
        continue;
      }
      size_t place = x.hash.low >> (64 - bits);
      while (s.index[place] != n && s.index[place] != kNoNode)
        place = (place + 1) % size;
      if (s.index[place] != n)
        report(7, text("node ", n) + " is behind a gap of the index");
    }
    if (entries != nodes)
      report(7, "the index has entries of nodes that are not live");
  }

  // 9: a sequence has the blocks of its length. 10: its chain. 11: where it may write. 15: after
  // dropping tokens. 16: swapped.
  void sequence(const Snapshot::Sequence &q, const std::string &name) {
    if (q.stored > q.length || (!q.compacted && q.stored != q.length) || q.draft > q.stored ||
        q.length + q.pending > s.config.maxSequenceTokens)
      report(9, name + ": lengths disagree");
    std::vector<uint32_t> chain(q.indexed, kNoNode);
    bool whole = true;
    uint32_t node = q.tail;
    for (uint32_t b = q.indexed; b-- > 0 && whole;) {
      whole = live(node) && !s.nodes[node].root && s.nodes[node].depth == b + 1;
      chain[b] = node;
      if (whole)
        node = s.nodes[node].parent;
    }
    if (!whole || node != q.space || q.indexed * tokens > q.length - q.draft)
      report(10, name + ": its chain of nodes does not fit it");
    if (q.compacted) {
      bool ascends = q.positions.size() == (q.swapped ? 0 : q.stored);
      for (size_t i = 0; i < q.positions.size(); ++i)
        ascends &= q.positions[i] < q.length && (i == 0 || q.positions[i - 1] < q.positions[i]);
      if (!ascends)
        report(15, name + ": positions do not ascend below its length");
      if (q.cache || (q.indexed && !s.stepOpen))
        report(15, name + ": dropped tokens and is still indexed");
    }
    for (uint32_t g = 0; g < groups.size(); ++g) {
      const Snapshot::Sequence::Group &x = q.groups[g];
      if (groups[g].kind == KvGroupKind::Shared)
        continue;
      if (groups[g].kind == KvGroupKind::State) {
        if (x.table.size() != 2 || (x.table[0] != kNoBlock) != (q.length > 0) ||
            (x.table[1] != kNoBlock) != (q.pending > 0) || (x.table[1] != kNoBlock &&
            x.table[0] == x.table[1]))
          report(9, name + text(": states of group ", g) + " do not fit its length");
        continue;
      }
      bool full = groups[g].kind == KvGroupKind::Full;
      uint32_t length = full ? q.stored : q.length;
      if (x.count != blocksOf(length + q.pending))
        report(9, name + text(" has blocks ", x.count) + text(" for tokens ", length + q.pending));
      // The next query sees the last window-1 tokens; before them stays the slack, if it was there.
      auto firstSeen = [&](uint32_t from) {
        return full || from < groups[g].window ? 0 : (from - groups[g].window + 1) / tokens;
      };
      uint32_t seen = firstSeen(length - std::min(length, groups[g].slack));
      if (x.first > firstSeen(length) || (x.first && x.first <= s.sinkBlocks[g]) || (full && x.first))
        report(9, name + text(" gave up blocks of its window in group ", g));
      if (!full && !s.stepOpen && !q.swapped && seen > std::max(x.first, s.sinkBlocks[g]))
        report(9, name + text(" keeps blocks behind its window in group ", g));
      if (!full && x.count > std::max(x.first, s.sinkBlocks[g]) + s.ringBlocks[g])
        report(9, name + text(" has more blocks than the ring of group ", g));
      for (uint32_t b = 0; b < x.count; ++b) {
        uint32_t e = at(x, g, b);
        if (e == ~0u)
          continue;
        if (e >= x.table.size() || x.table[e] == kNoBlock) {
          report(9, name + text(" has no block ", b) + text(" in group ", g));
          continue;
        }
        if (b < q.indexed && !q.swapped && !q.compacted && whole &&
            s.nodes[chain[b]].blocks[g] != x.table[e])
          report(10, name + text(": block ", b) + " is not the one of its node");
        if (q.compacted && !q.swapped && x.table[e] < s.blocks.size() &&
            s.blocks[x.table[e]].node != kNoNode)
          report(15, name + ": an indexed block after dropping tokens");
      }
    }
    if (q.room) {
      const Snapshot::Sequence::Group *x = nullptr;
      for (uint32_t g = 0; g < groups.size(); ++g)
        if (groups[g].kind == KvGroupKind::Full)
          x = &q.groups[g];
      uint32_t end = q.stored + q.pending;
      BlockId tail = x && x->count && x->count <= x->table.size() ? x->table[x->count - 1]
                                                                   : kNoBlock;
      size_t held = 0;
      for (const Snapshot::Held &h : s.heldByStep)
        if (h.block == tail && h.isTail && h.used <= q.stored % tokens)
          ++held;
      if (tail >= s.blocks.size() || s.blocks[tail].references - held != 1 ||
          s.blocks[tail].node != kNoNode || q.slot != tail * tokens + end % tokens ||
          q.room > x->count * tokens - end || (q.draft && !q.pending) ||
          q.swapped)
        report(11, name + " would write into a block that is not its own");
    }
  }

  // 2: references are holders. 4: the same on the host.
  void references() {
    std::vector<uint32_t> held(s.blocks.size()), onHost(s.hostBlocks.size());
    auto hold = [](std::vector<uint32_t> &in, BlockId b) {
      if (b < in.size())
        ++in[b];
    };
    for (const Snapshot::Sequence &q : s.sequences) {
      if (q.id == kNoSequence)
        continue;
      for (uint32_t g = 0; g < groups.size(); ++g) {
        const Snapshot::Sequence::Group &x = q.groups[g];
        auto &in = q.swapped ? onHost : held;
        if (groups[g].kind == KvGroupKind::State)
          for (BlockId b : x.table)
            hold(in, b);
        else if (groups[g].kind != KvGroupKind::Shared)
          for (uint32_t b = 0; b < x.count; ++b)
            if (uint32_t e = at(x, g, b); e < x.table.size())
              hold(in, x.table[e]);
      }
    }
    for (const std::vector<BlockId> &pin : s.pins)
      for (BlockId b : pin)
        hold(held, b);
    for (const Snapshot::Held &h : s.heldByStep)
      hold(held, h.block);
    for (BlockId b : s.hostHeldByStep)
      hold(onHost, b);
    for (BlockId b = 0; b < held.size(); ++b)
      if (held[b] != s.blocks[b].references)
        report(2, text("block ", b) + text(" has references ", s.blocks[b].references) +
                      text(", holders ", held[b]));
    for (BlockId b = 0; b < onHost.size(); ++b)
      if (onHost[b] != s.hostBlocks[b].references)
        report(4, text("host block ", b) + text(" has references ", s.hostBlocks[b].references) +
                      text(", holders ", onHost[b]));
  }

  // 12: lower ranks first; in Full groups a block goes before the one that it follows.
  void evictionOrder() {
    std::vector<uint32_t> place(s.blocks.size(), ~0u);
    for (uint32_t i = 0; i < s.evictable.size(); ++i) {
      BlockId b = s.evictable[i];
      if (b >= s.blocks.size())
        continue;
      place[b] = i;
      if (i && s.evictable[i - 1] < s.blocks.size() &&
          s.blocks[s.evictable[i - 1]].rank > s.blocks[b].rank)
        report(12, text("block ", b) + " goes after one of a higher rank");
    }
    for (uint32_t n = 0; n < s.nodes.size(); ++n) {
      const Snapshot::Node &x = s.nodes[n];
      if (!x.live || x.root || x.depth < 2 || !live(x.parent))
        continue;
      for (uint32_t g = 0; g < groups.size(); ++g) {
        if (groups[g].kind != KvGroupKind::Full || x.blocks[g] >= s.blocks.size())
          continue;
        BlockId before = s.nodes[x.parent].blocks[g];
        if (before >= s.blocks.size())
          report(12, text("node ", n) + " has a block, its parent has none");
        else if (place[before] != ~0u && (place[x.blocks[g]] == ~0u ||
                                          place[x.blocks[g]] > place[before]))
          report(12, text("block ", before) + " goes before one that follows it");
      }
    }
  }

  // 13
  void pins() {
    for (const std::vector<BlockId> &pin : s.pins)
      for (BlockId b : pin)
        if (b >= s.blocks.size() || s.blocks[b].state != BlockState::Committed ||
            s.blocks[b].node == kNoNode)
          report(13, text("pinned block ", b) + " is not cached and committed");
  }

  // 3
  void noStep() {
    for (BlockId b = 0; b < s.blocks.size(); ++b)
      if (s.blocks[b].state == BlockState::Reserved)
        report(3, text("block ", b) + " is reserved by no step");
    for (const Snapshot::Sequence &q : s.sequences)
      if (q.id != kNoSequence && (q.pending || q.doomed))
        report(3, "a sequence waits for a step that is over");
    if (!s.heldByStep.empty() || !s.hostHeldByStep.empty())
      report(3, "a step that is over holds blocks");
  }

  // 14: the counters are a recount.
  void counters() {
    Counters c;
    auto tally = [](const std::vector<Snapshot::Block> &blocks, uint64_t &free, uint64_t &cached,
                    uint64_t &held) {
      for (const Snapshot::Block &b : blocks)
        ++(b.references ? held : b.node == kNoNode ? free : cached);
    };
    tally(s.blocks, c.freeBlocks, c.evictableBlocks, c.committedBlocks);
    tally(s.hostBlocks, c.freeHostBlocks, c.cachedHostBlocks, c.swappedHostBlocks);
    for (const Snapshot::Node &n : s.nodes)
      c.cachedNodes += n.live && !n.root;
    for (const Snapshot::Sequence &q : s.sequences) {
      if (q.id == kNoSequence)
        continue;
      ++c.sequences;
      for (uint32_t g = 0; g < groups.size() && !q.swapped; ++g) {
        if (groups[g].kind != KvGroupKind::Full && groups[g].kind != KvGroupKind::Window)
          continue;
        uint32_t length = groups[g].kind == KvGroupKind::Full ? q.stored : q.length;
        const Snapshot::Sequence::Group &x = q.groups[g];
        for (uint32_t b = 0; b < x.count; ++b)
          if (at(x, g, b) != ~0u) {
            c.sequenceSlots += tokens;
            c.sequenceTokens += std::min(tokens, length - std::min(length, b * tokens));
          }
      }
    }
    const Counters &k = s.counters;
    const std::pair<const char *, std::pair<uint64_t, uint64_t>> rows[] = {
        {"freeBlocks", {k.freeBlocks, c.freeBlocks}},
        {"evictableBlocks", {k.evictableBlocks, c.evictableBlocks}},
        {"committedBlocks", {k.committedBlocks, c.committedBlocks}},
        {"reservedBlocks", {k.reservedBlocks, 0}},
        {"freeHostBlocks", {k.freeHostBlocks, c.freeHostBlocks}},
        {"cachedHostBlocks", {k.cachedHostBlocks, c.cachedHostBlocks}},
        {"swappedHostBlocks", {k.swappedHostBlocks, c.swappedHostBlocks}},
        {"sequences", {k.sequences, c.sequences}},
        {"sequenceSlots", {k.sequenceSlots, c.sequenceSlots}},
        {"sequenceTokens", {k.sequenceTokens, c.sequenceTokens}},
        {"cachedNodes", {k.cachedNodes, c.cachedNodes}}};
    for (const auto &[name, pair] : rows)
      if (pair.first != pair.second)
        report(14, std::string(name) + text(" is ", pair.first) + text(", but ", pair.second));
  }

  const Snapshot &s;
  const std::vector<engine::KvGroup> &groups;
  const uint32_t tokens;
  std::vector<Violation> found;
};

} // namespace

std::vector<Violation> validate(const Snapshot &snapshot) { return Validator(snapshot).run(); }

} // namespace lathe::kv
