//===- Index.cpp - full blocks enter and leave the tree ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block enters when its sequence has committed and accepted all of its tokens. A node found means
// that somebody computed the same before: then the sequence takes over that block and gives its own
// back. A block leaves when it is evicted, to the host if there is room.
//
//===----------------------------------------------------------------------===//

#include "Core.h"

#include <algorithm>

namespace lathe::kv {

uint8_t Core::rankFor(uint32_t s, uint32_t node) const {
  switch (config.eviction) {
  case Eviction::Lru:
    return 0;
  case Eviction::Lfu:
    return std::min<uint8_t>(tree.hits(node), BlockPool::kRanks - 1);
  case Eviction::Priority:
    return priority[s];
  }
  return 0;
}

/// With priorities: the blocks of the chain up to `node` are worth `rank` at least. The sequence at
/// hand holds all of them, so that none is in a list.
void Core::raise(uint32_t node, uint32_t group, uint8_t rank) {
  for (; tree.depth(node); node = tree.parent(node)) {
    BlockId b = tree.block(node, group);
    if (b == kNoBlock || pool.rankOf(b) >= rank)
      return;
    pool.setRank(b, rank);
  }
}

/// The content of block `b` of the sequence is `node`'s: it is indexed, or merged.
void Core::adopt(uint32_t s, const Group &g, uint32_t node, BlockId &entry, uint32_t b) {
  BlockId &known = tree.block(node, g.number);
  if (known == kNoBlock) {
    known = entry;
    tree.link(node);
    pool.setContent(entry, node, g.number, rankFor(s, node));
    events.append(EventKind::Stored, g.number, tree.depth(node) * blockTokens, tree.hash(node),
                  tree.hash(tree.parent(node)));
    ++total.storedBlocks;
    if (config.eviction == Eviction::Priority && g.isFull())
      raise(tree.parent(node), g.number, priority[s]);
  } else if (known != entry) {
    if (!planted(Fault::MergeForgetsReference))
      pool.acquire(known);
    if (!planted(Fault::MergeForgetsOwn))
      pool.release(entry);
    entry = known;
    ++total.mergedBlocks;
    if (!planted(Fault::TableNotRewritten))
      rewrite(s, b);
    if (config.eviction == Eviction::Priority) {
      if (g.isFull())
        raise(node, g.number, priority[s]);
      else
        pool.setRank(known, std::max(pool.rankOf(known), priority[s]));
    }
  }
}

void Core::index(uint32_t s, const Hash128 *known) {
  if (!(hot[s].flags & kCaches))
    return;
  uint32_t accepted = length(s) - (planted(Fault::DraftsIndexed) ? 0 : hot[s].draft);
  if (accepted == length(s) && hot[s].flags & kEndsUnknown)
    --accepted;
  uint32_t b = indexed[s], end = accepted / blockTokens, node = tails[s];
  if (b < end) {
    Hash128 next = known ? *known : hashOf(tree.hash(node), s, b);
    for (; b < end; ++b) {
      Hash128 hash = next;
      if (b + 1 < end) {
        // The place of the next one comes nearer during this one.
        next = tree.prefetch(hashOf(hash, s, b + 1));
      }
      const Token *t = recent(s, b * blockTokens);
      uint32_t child = tree.find(node, hash, t);
      if (child == kNoNode)
        child = tree.insert(node, hash, t);
      if (child == kNoNode)
        break; // all nodes are in use; the next commit tries again
      for (const Group &g : stores)
        if (!g.isState() && b < count(s, g) && (b >= first(s, g) || b < g.sinkBlocks))
          adopt(s, g, child, entry(s, g, b), b);
      node = child;
    }
    setTail(s, node, b);
    if (b < end)
      return;
  }
  if (indexed[s] == 0 || accepted != length(s) || indexed[s] * blockTokens != length(s))
    return;
  for (const Group &g : stores) {
    BlockId &state = row(s)[g.offset];
    if (g.isState() && length(s) % g.checkpoint == 0 && state != kNoBlock &&
        (pool.nodeOf(state) == kNoNode || pool.nodeOf(state) == tails[s]))
      adopt(s, g, tails[s], state, 0);
  }
}

Outcome Core::provide(SeqId sequence, Token token) {
  uint32_t s = find(sequence);
  if (s == config.maxSequences || hot[s].flags & (kSwapped | kDoomed))
    return refuse(Code::BadSequence, sequence);
  if (stepIsOpen)
    return refuse(Code::StepOpen, sequence);
  if (!(hot[s].flags & kCaches))
    return {}; // what nobody looks up is not kept
  if (!(hot[s].flags & kEndsUnknown) || token == kUnknownToken)
    return refuse(Code::BadArgument, sequence);
  *recent(s, length(s) - 1) = token;
  hot[s].flags &= ~uint32_t(kEndsUnknown);
  if (length(s) % blockTokens == 0) {
    index(s);
    publish();
  }
  return {};
}

//===--- Eviction ---------------------------------------------------------===//

BlockId Core::allocate() {
  if (injectedFailure())
    return kNoBlock;
  if (pool.freeBlocks() == 0) {
    if (pool.evictableBlocks() == 0)
      return kNoBlock;
    BlockId b = pool.victim();
    evict(b, true);
    return b;
  }
  return pool.take();
}

uint32_t Core::allocateFree(BlockId *out, uint32_t n) {
  n = std::min(n, pool.freeBlocks());
  for (uint32_t i = 0; i < n; ++i)
    if (injectedFailure())
      n = i;
  pool.take(out, n);
  return n;
}

/// Takes an evictable block out of the tree; it is reserved afterwards.
void Core::evict(BlockId b, bool toHost) {
  uint32_t node = pool.nodeOf(b), g = pool.groupOf(b);
  // While this one leaves, what the next ones are looked up by comes nearer.
  if (BlockId next = pool.behind(b); next != kNoBlock) {
    tree.prefetch(tree.hash(pool.nodeOf(next)));
    if (BlockId second = pool.behind(next); second != kNoBlock)
      tree.prefetchNode(pool.nodeOf(second));
  }
  pool.claim(b);
  if (!planted(Fault::EvictedStaysIndexed))
    tree.block(node, g) = kNoBlock;
  ++total.evictedBlocks;
  events.append(EventKind::Evicted, g, tree.depth(node) * blockTokens, tree.hash(node),
                tree.hash(tree.parent(node)));
  if (toHost && hostPool.size())
    offload(node, g, b);
  tree.unlink(node);
}

void Core::offload(uint32_t node, uint32_t g, BlockId b) {
  BlockId h = tree.host(node, g);
  if (h != kNoBlock) {
    if (hostPool.references(h) == 0)
      hostPool.touch(h);
    return;
  }
  // The step holds it until it ends, so that no other content goes to the same place.
  tree.link(node);
  h = allocateHost();
  if (h == kNoBlock || swapOuts.size() == swapOuts.capacity()) {
    if (h != kNoBlock)
      hostPool.release(h);
    tree.unlink(node);
    return;
  }
  hostPool.setContent(h, node, g, 0);
  tree.host(node, g) = h;
  swapOuts.push_back({b, h, g});
  transfersPending = true;
  ++total.offloadedBlocks;
  events.append(EventKind::Offloaded, g, tree.depth(node) * blockTokens, tree.hash(node),
                tree.hash(tree.parent(node)));
  log({Entry::Offload, uint8_t(g), 0, node, h, 0, 0, 0});
}

/// A committed host block, evicting one when none is free; kNoBlock when there is none.
BlockId Core::allocateHost() {
  BlockId h;
  if (hostPool.freeBlocks()) {
    h = hostPool.take();
  } else if (hostPool.evictableBlocks()) {
    h = hostPool.victim();
    uint32_t node = hostPool.nodeOf(h), g = hostPool.groupOf(h);
    hostPool.claim(h);
    tree.host(node, g) = kNoBlock;
    ++total.hostEvictedBlocks;
    events.append(EventKind::HostEvicted, g, tree.depth(node) * blockTokens, tree.hash(node),
                  tree.hash(tree.parent(node)));
    tree.unlink(node);
  } else {
    return kNoBlock;
  }
  hostPool.commit(h);
  return h;
}

void Core::clearCache() {
  while (pool.evictableBlocks()) {
    BlockId b = pool.victim();
    evict(b, false);
    pool.release(b);
  }
  while (hostPool.evictableBlocks()) {
    BlockId h = hostPool.victim();
    uint32_t node = hostPool.nodeOf(h), g = hostPool.groupOf(h);
    hostPool.clearContent(h);
    tree.host(node, g) = kNoBlock;
    ++total.hostEvictedBlocks;
    events.append(EventKind::HostEvicted, g, tree.depth(node) * blockTokens, tree.hash(node),
                  tree.hash(tree.parent(node)));
    tree.unlink(node);
  }
  publish();
}

} // namespace lathe::kv
