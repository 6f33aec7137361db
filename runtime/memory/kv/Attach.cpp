//===- Attach.cpp - take over what is cached --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A prefix is a hit up to the end of a block when every group has there what the next token needs:
// Full groups all blocks, Window groups those that it sees, State groups the state of just that
// place.
//
//===----------------------------------------------------------------------===//

#include "Core.h"

#include <algorithm>

namespace lathe::kv {

uint32_t Core::match(SpaceId space, std::span<const Token> prompt, bool withHost) const {
  size_t usableTokens = planted(Fault::HitNotCapped) ? prompt.size() : prompt.size() - 1;
  uint32_t limit = uint32_t(usableTokens) / blockTokens, node = space, best = 0;
  uint32_t runs[kMaxGroups] = {}, sinks[kMaxGroups] = {};
  const Token *t = prompt.data();
  Hash128 next = tree.hash(space);
  if (limit)
    next = hasher.block(next, t, spaces->contents());
  for (uint32_t b = 0; b < limit; ++b, t += blockTokens) {
    Hash128 hash = next;
    if (b + 1 < limit) // its place comes nearer during this lookup
      next = tree.prefetch(hasher.block(hash, t + blockTokens, spaces->contents()));
    node = tree.find(node, hash, t);
    if (node == kNoNode)
      break;
    path[b] = node;
    if (oneFull) {
      if (tree.block(node, stores[0].number) == kNoBlock &&
          (!withHost || tree.host(node, stores[0].number) == kNoBlock))
        break;
      usable[b + 1] = true;
      best = b + 1;
      continue;
    }
    bool hit = true;
    for (const Group &g : stores) {
      bool here = tree.block(node, g.number) != kNoBlock ||
                  (withHost && tree.host(node, g.number) != kNoBlock);
      if (g.isFull() && !here)
        return best;
      if (g.isState()) {
        hit &= here;
      } else if (g.isWindow()) {
        uint32_t &run = runs[g.number], blocks = b + 1;
        run = here ? run + 1 : 0;
        if (run == blocks)
          sinks[g.number] = blocks;
        uint32_t seen = g.firstSeen(blocks * blockTokens, blockTokens);
        hit &= run >= blocks - seen && sinks[g.number] >= std::min(g.sinkBlocks, seen);
      }
    }
    usable[b + 1] = hit;
    if (hit)
      best = b + 1;
  }
  return best;
}

uint32_t Core::peek(SpaceId space, std::span<const Token> prompt) const {
  if (space >= spaces->count() || prompt.empty() || prompt.size() > config.maxSequenceTokens ||
      !mayReuse)
    return 0;
  return match(space, prompt, true) * blockTokens;
}

template <typename Fn> void Core::forHit(uint32_t blocks, Fn fn) const {
  for (const Group &g : stores) {
    if (g.isState()) {
      fn(blocks - 1, g);
      continue;
    }
    uint32_t seen = g.isFull() ? 0 : g.firstSeen(blocks * blockTokens, blockTokens);
    for (uint32_t b = 0; b < std::min(g.sinkBlocks, seen); ++b)
      fn(b, g);
    for (uint32_t b = seen <= g.sinkBlocks ? std::min(g.sinkBlocks, seen) : seen; b < blocks; ++b)
      fn(b, g);
  }
}

Outcome Core::attach(SeqId sequence, std::span<const Token> prompt, uint32_t &hit) {
  hit = 0;
  if (!stepIsOpen)
    return refuse(Code::NoStep);
  uint32_t s = find(sequence);
  if (s == config.maxSequences || hot[s].flags & (kSwapped | kDoomed))
    return refuse(Code::BadSequence, sequence);
  if (isBusy(s))
    return refuse(Code::Busy, sequence);
  if (prompt.empty() || length(s))
    return refuse(Code::BadArgument, sequence);
  if (prompt.size() > config.maxSequenceTokens)
    return refuse(Code::TooLong, sequence, uint32_t(prompt.size()), config.maxSequenceTokens);

  uint32_t blocks = 0, restored = 0;
  if (hot[s].flags & kCaches) {
    blocks = match(spaceOf[s], prompt, hostPool.size() != 0);
    // Blocks on the host need blocks of the device; those on the eviction list do not count twice.
    while (blocks && hostPool.size()) {
      uint32_t listed = 0;
      restored = 0;
      forHit(blocks, [&](uint32_t b, const Group &g) {
        BlockId at = tree.block(path[b], g.number);
        (at == kNoBlock ? restored : listed) += at == kNoBlock || pool.references(at) == 0;
      });
      uint32_t available = pool.availableBlocks();
      if (restored + listed <= available || restored == 0)
        break;
      uint32_t excess = restored + listed - available, each = uint32_t(stores.size());
      blocks -= std::min(blocks, (excess + each - 1) / each);
      while (blocks && !usable[blocks])
        --blocks;
    }
  }
  if (blocks == 0) {
    log({Entry::Attach, 0, uint8_t(hot[s].flags & kPreempted ? 1 : 0), s, uint32_t(prompt.size()),
         0, 0, kNoNode});
    hot[s].flags |= kTouched;
    return {};
  }

  // First everything that is there, so that nothing of it is evicted for the rest.
  const Mark start = mark();
  uint8_t rank = config.eviction == Eviction::Priority ? priority[s] : 0;
  forHit(blocks, [&](uint32_t b, const Group &g) {
    BlockId at = tree.block(path[b], g.number);
    if (at == kNoBlock) {
      hostPool.acquire(tree.host(path[b], g.number));
    } else if (!planted(Fault::HitNotReferenced)) {
      pool.acquire(at);
      if (rank > pool.rankOf(at))
        pool.setRank(at, rank);
    }
    row(s)[g.isState() ? g.offset : g.at(b)] = at;
  });
  for (const Group &g : stores) {
    if (g.isState())
      continue;
    count(s, g) = blocks;
    uint32_t seen = g.isFull() ? 0 : g.firstSeen(blocks * blockTokens, blockTokens);
    first(s, g) = seen <= g.sinkBlocks ? 0 : seen;
  }
  bool failed = false;
  if (restored)
    forHit(blocks, [&](uint32_t b, const Group &g) {
      BlockId &at = row(s)[g.isState() ? g.offset : g.at(b)];
      uint32_t node = path[b];
      if (at != kNoBlock)
        return;
      if (!failed)
        at = allocate();
      if (at == kNoBlock) {
        failed = true;
        hostPool.release(tree.host(node, g.number));
        return;
      }
      tree.block(node, g.number) = at;
      tree.link(node);
      pool.setContent(at, node, g.number, std::max(rank, rankFor(s, node)));
      BlockId host = tree.host(node, g.number);
      swapIns.push_back({at, host, g.number});
      transfersPending = true;
      log({Entry::Restore, uint8_t(g.number), 0, node, host, at, 0, 0});
    });
  setTail(s, path[blocks - 1], blocks);
  hot[s].stored = hit = blocks * blockTokens;
  account(s, true);
  rewrite(s, 0);
  log({Entry::Attach, 0, uint8_t(hot[s].flags & kPreempted ? 1 : 0), s, uint32_t(prompt.size()),
       hit, restored * blockTokens, path[blocks - 1]});
  hot[s].flags |= kTouched;
  if (failed) {
    hit = 0;
    undoTo(start);
    return refuse(Code::Injected, sequence);
  }
  return {};
}

/// Counters, hits of nodes and the event, once the step is committed.
void Core::countHit(const Entry &e) {
  uint32_t prompt = e.a, hit = e.b;
  if (e.flags && !planted(Fault::HitsOfPreemptedCounted)) {
    total.rehitQueryTokens += prompt;
    total.rehitTokens += hit;
  } else {
    total.queryTokens += prompt;
    total.hitTokens += hit;
  }
  hot[e.s].flags &= ~kPreempted;
  total.hostHitTokens += e.c;
  if (!hit)
    return;
  events.append(EventKind::Hit, 0, hit, tree.hash(e.d), tree.hash(tree.parent(e.d)));
  if (config.eviction != Eviction::Lfu)
    return;
  for (uint32_t n = e.d; tree.depth(n); n = tree.parent(n)) {
    tree.hits(n) = uint8_t(std::min<uint32_t>(tree.hits(n) + 1, BlockPool::kRanks - 1));
    for (const Group &g : stores) {
      BlockId b = tree.block(n, g.number);
      if (b != kNoBlock && pool.references(b))
        pool.setRank(b, tree.hits(n));
    }
  }
}

//===--- Back from the host -----------------------------------------------===//

Outcome Core::resume(SeqId sequence) {
  if (!stepIsOpen)
    return refuse(Code::NoStep);
  uint32_t s = find(sequence);
  if (s == config.maxSequences || !(hot[s].flags & kSwapped) || hot[s].flags & kDoomed)
    return refuse(Code::BadSequence, sequence);
  for (uint32_t b = indexed[s], n = tails[s]; b-- > 0; n = tree.parent(n))
    path[b] = n;
  // What the tree has on the device is taken from there.
  auto inTree = [&](const Group &g, uint32_t b) {
    return g.isState() || b >= indexed[s] ? kNoBlock : tree.block(path[b], g.number);
  };
  uint32_t fresh = 0, listed = 0;
  forHeld(s, [&](const Group &g, uint32_t b, BlockId) {
    BlockId known = inTree(g, b);
    fresh += known == kNoBlock;
    listed += known != kNoBlock && pool.references(known) == 0;
  });
  if (fresh + listed > pool.availableBlocks())
    return refuse(Code::NoBlocks, sequence, fresh + listed, pool.availableBlocks());

  const Mark start = mark();
  hot[s].flags = (hot[s].flags & ~kSwapped) | kTouched;
  account(s, true);
  log({Entry::Resume, 0, kResumed, s, 0, 0, 0, 0});
  for (bool found : {true, false})
    for (const Group &g : stores) {
      uint32_t end = g.isState() ? row(s)[g.offset] != kNoBlock : count(s, g);
      for (uint32_t b = 0; b < end; ++b) {
        if (!g.isState() && b < first(s, g) && b >= g.sinkBlocks)
          continue;
        uint32_t at = g.isState() ? g.offset : g.at(b);
        BlockId host = row(s)[at], known = inTree(g, b);
        if (found) {
          if (known == kNoBlock)
            continue;
          pool.acquire(known);
          row(s)[at] = known;
          log({Entry::Resume, uint8_t(g.number), 0, s, host, known, at, 0});
          continue;
        }
        if (known != kNoBlock)
          continue;
        BlockId fresh = allocate();
        if (fresh == kNoBlock) {
          undoTo(start);
          return refuse(Code::Injected, sequence);
        }
        row(s)[at] = fresh;
        if (!planted(Fault::ResumeSkipsCopy))
          swapIns.push_back({fresh, host, g.number});
        transfersPending = true;
        std::copy_n(&hostPositions[size_t(host) * blockTokens], blockTokens,
                    &positions[size_t(fresh) * blockTokens]);
        uint8_t flags = kCameBack;
        if (!g.isState() && b < indexed[s]) {
          flags |= kAdopted;
          tree.block(path[b], g.number) = fresh;
          tree.link(path[b]);
          pool.setContent(fresh, path[b], g.number, rankFor(s, path[b]));
          if (config.eviction == Eviction::Priority && g.isFull())
            raise(tree.parent(path[b]), g.number, priority[s]);
        }
        log({Entry::Resume, uint8_t(g.number), flags, s, host, fresh, at,
             flags & kAdopted ? path[b] : kNoNode});
      }
    }
  rewrite(s, 0);
  return {};
}

//===--- Pins -------------------------------------------------------------===//

Outcome Core::pin(SpaceId space, std::span<const Token> prompt, PinId &pin, uint32_t &pinned) {
  pinned = 0;
  if (stepIsOpen)
    return refuse(Code::StepOpen);
  if (space >= spaces->count() || prompt.empty())
    return refuse(Code::BadArgument);
  if (prompt.size() > config.maxSequenceTokens)
    return refuse(Code::TooLong, kNoSequence, uint32_t(prompt.size()), config.maxSequenceTokens);
  uint32_t blocks = mayReuse ? match(space, prompt, false) : 0;
  if (blocks == 0)
    return {};
  auto free = std::find_if(pins.begin(), pins.end(), [](const auto &p) { return p.empty(); });
  if (free == pins.end()) {
    if (pins.size() == config.maxSpaces)
      return refuse(Code::NoSpaces);
    free = pins.emplace(pins.end());
  }
  forHit(blocks, [&](uint32_t b, const Group &g) {
    BlockId at = tree.block(path[b], g.number);
    if (!planted(Fault::PinnedIsEvictable))
      pool.acquire(at);
    free->push_back(at);
  });
  pin = PinId(free - pins.begin());
  pinned = blocks * blockTokens;
  publish();
  return {};
}

Outcome Core::unpin(PinId pin) {
  if (pin >= pins.size() || pins[pin].empty())
    return refuse(Code::BadArgument);
  std::vector<BlockId> &blocks = pins[pin];
  // Last ones first: a block is given up before the one that it follows.
  for (size_t i = blocks.size(); i-- > 0;)
    if (!planted(Fault::PinnedIsEvictable) &&
        !(planted(Fault::UnpinForgetsOne) && i + 1 == blocks.size()))
      pool.release(blocks[i]);
  blocks.clear();
  publish();
  return {};
}

} // namespace lathe::kv
