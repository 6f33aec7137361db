//===- Core.cpp - sequences of a KV cache -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Core.h"

#include <algorithm>

namespace lathe::kv {
namespace {

uint32_t nodesFor(const Config &c) {
  if (!c.prefixCache)
    return 16;
  // A node of a Full group has a block, on the device or on the host, or is on the way of a
  // sequence to one; without Full groups nodes outlive the blocks that left the window.
  bool full = std::any_of(c.groups.begin(), c.groups.end(), [](const engine::KvGroup &g) {
    return g.kind == engine::KvGroupKind::Full;
  });
  return (c.blocks + c.hostBlocks) * (full ? 1 : 3) + c.maxSequences;
}

} // namespace

Core::Core(const Config &c)
    : config(c), blockTokens(c.groups[0].layout.blockTokens), pool(c.blocks),
      hostPool(c.hostBlocks), events(c.eventCapacity),
      hasher(c.hash, c.hashKey, blockTokens), hot(std::make_unique<Hot[]>(c.maxSequences)),
      rewrites(std::make_unique<Rewrite[]>(c.maxSequences)),
      tree(c.maxSpaces, nodesFor(c), blockTokens, uint32_t(c.groups.size())) {
  spaces = std::make_unique<Spaces>(hasher, c.maxSpaces, c.maxKeys);
  tree.makeRoot(0, spaces->hash(0));
  mayReuse = c.prefixCache;
  uint32_t maxBlocks = (c.maxSequenceTokens + blockTokens - 1) / blockTokens;
  for (uint32_t i = 0; i < c.groups.size(); ++i) {
    const engine::KvGroup &from = c.groups[i];
    Group g{i, from.kind};
    targets[i] = i;
    g.offset = rowWidth;
    switch (from.kind) {
    case engine::KvGroupKind::Full:
      g.width = maxBlocks;
      break;
    case engine::KvGroupKind::Window:
      g.window = from.window;
      g.slack = from.slack;
      g.sinkBlocks = (from.sinks + blockTokens - 1) / blockTokens;
      g.ringBlocks = engine::kvRingBlocks(from, std::min(c.maxStepTokens, c.maxSequenceTokens));
      g.width = g.sinkBlocks + g.ringBlocks;
      break;
    case engine::KvGroupKind::State:
      g.width = 2;
      g.checkpoint = from.checkpoint;
      hasStates = true;
      mayReuse &= from.checkpoint != 0;
      break;
    case engine::KvGroupKind::Shared:
      targets[i] = from.sharesWith;
      break;
    }
    rowWidth += g.width;
    groups.push_back(g);
    if (g.width)
      stores.push_back(g);
  }
  oneFull = stores.size() == 1 && stores[0].isFull();
  tokenRing = std::bit_ceil(2 * std::min(c.maxStepTokens, c.maxSequenceTokens) + 2 * blockTokens);

  size_t n = c.maxSequences;
  firsts = std::make_unique<uint32_t[]>(n * kMaxGroups);
  counts = std::make_unique<uint32_t[]>(n * kMaxGroups);
  dropped = std::make_unique<uint32_t[]>(n);
  tails = makeArray<uint32_t>(n);
  indexed = std::make_unique<uint32_t[]>(n);
  spaceOf = std::make_unique<SpaceId[]>(n);
  priority = std::make_unique<uint8_t[]>(n);
  side = std::make_unique<uint8_t[]>(n);
  generation = std::make_unique<uint16_t[]>(n);
  freeSequences = makeArray<uint32_t>(n);
  freeSequenceCount = c.maxSequences;
  for (uint32_t i = 0; i < n; ++i)
    freeSequences[i] = c.maxSequences - 1 - i;
  auto lines = [](uint32_t words) { return (((words + 15) / 16) | 1) * 16; };
  rowStride = lines(rowWidth);
  tokenStride = lines(tokenRing);
  rows = makeArray<BlockId>(2 * n * rowStride);
  tokens = makeArray<Token>(n * tokenStride);
  positions = makeArray<uint32_t>(size_t(c.blocks) * blockTokens);
  hostPositions = makeArray<uint32_t>(size_t(c.hostBlocks) * blockTokens);
  heldByStep = std::make_unique<Held[]>(c.blocks);
  planned = std::make_unique<Held[]>(c.blocks);
  plannedBlocks.reserve(c.blocks);
  plannedIn = std::make_unique<uint64_t[]>(n);
  path = makeArray<uint32_t>(maxBlocks + 1);
  usable = makeArray<uint8_t>(maxBlocks + 1);
  // Each block, host block and sequence can enter the log of a step this often at most.
  steps = makeArray<Entry>(4 * size_t(c.blocks) + 3 * size_t(c.hostBlocks) + 4 * n);
  reserved = makeArray<uint32_t>(n);
  fullHashes = makeArray<Hash128>(n);
  doomed.reserve(n);
  swapOuts.reserve(4 * size_t(c.hostBlocks));
  swapIns.reserve(c.blocks);
  copies.reserve(c.blocks);
  moves.reserve(size_t(c.blocks) * blockTokens);
  publish();
}

Outcome Core::refuse(Code code, SeqId id, uint32_t needed, uint32_t available) {
  ++total.refusals;
  return {code, id, needed, available};
}

uint32_t Core::entries(uint32_t s, const Group &g) const {
  return g.isState() ? 2 : std::min(count(s, g), g.width);
}

void Core::rewrite(uint32_t s, uint32_t from) {
  Rewrite &r = rewrites[s];
  if (r.epoch == tick) {
    r.from = std::min(r.from, from);
  } else {
    r = {tick, r.epoch, from};
  }
}

void Core::account(uint32_t s, bool add) {
  if (hot[s].flags & kSwapped)
    return;
  uint64_t slots = 0, used = 0;
  for (const Group &g : stores) {
    if (g.isState())
      continue;
    uint32_t n = g.isFull() ? hot[s].stored : length(s);
    uint32_t blocks = (n + blockTokens - 1) / blockTokens;
    uint32_t gone = first(s, g) - std::min(first(s, g), g.sinkBlocks);
    slots += uint64_t(blocks - gone) * blockTokens;
    used += n - uint64_t(gone) * blockTokens;
  }
  total.sequenceSlots += add ? slots : -slots;
  total.sequenceTokens += add ? used : -used;
}

void Core::publish() {
  total.events = events.end();
  total.freeBlocks = pool.freeBlocks();
  total.evictableBlocks = pool.evictableBlocks();
  total.reservedBlocks = pool.reservedBlocks();
  total.committedBlocks =
      pool.size() - total.freeBlocks - total.evictableBlocks - total.reservedBlocks;
  total.freeHostBlocks = hostPool.freeBlocks();
  total.cachedHostBlocks = hostPool.evictableBlocks();
  total.swappedHostBlocks = hostPool.size() - total.freeHostBlocks - total.cachedHostBlocks;
  total.sequences = config.maxSequences - freeSequenceCount;
  total.cachedNodes = tree.liveNodes();
  published.write(total);
}

Outcome Core::openSpace(std::span<const std::string_view> parts, SpaceId &space) {
  uint32_t before = spaces->count();
  SpaceId opened = spaces->open(parts);
  if (opened == config.maxSpaces)
    return refuse(Code::NoSpaces);
  if (spaces->count() != before)
    tree.makeRoot(opened, spaces->hash(opened));
  space = opened;
  return {};
}

//===--- Open, fork, close ------------------------------------------------===//

Outcome Core::open(const SequenceOptions &options, SeqId &sequence) {
  if (options.space >= spaces->count() || options.priority > 100)
    return refuse(Code::BadArgument);
  if (freeSequenceCount == 0)
    return refuse(Code::NoSequences);
  uint32_t s = freeSequences[--freeSequenceCount];
  if (++generation[s] == 0)
    generation[s] = 1;
  hot[s] = {};
  sequence = hot[s].id = uint32_t(generation[s]) << 16 | s;
  if (options.cache && mayReuse)
    hot[s].flags = kCaches | kMayCache;
  dropped[s] = indexed[s] = 0;
  tails[s] = options.space; // a root is never counted as a tail
  spaceOf[s] = options.space;
  priority[s] = options.priority;
  side[s] = 0;
  for (const Group &g : stores) {
    first(s, g) = count(s, g) = 0;
    if (!g.isFull())
      std::fill_n(row(s) + g.offset, g.width, kNoBlock);
  }
  ++tick;
  rewrite(s, 0);
  publish();
  return {};
}

Outcome Core::fork(SeqId parent, SeqId &child) {
  uint32_t p = find(parent);
  if (p == config.maxSequences || hot[p].flags & (kSwapped | kDoomed))
    return refuse(Code::BadSequence, parent);
  // Full blocks that are not in the tree yet could be merged for one of the two alone: the other
  // would hold a chain of blocks with a gap.
  if (isBusy(p) || (hot[p].flags & kCaches && (indexed[p] + 1) * blockTokens <= length(p)))
    return refuse(Code::Busy, parent);
  SeqId opened;
  Outcome o = open({spaceOf[p], priority[p], bool(hot[p].flags & kMayCache)}, opened);
  if (!o.ok())
    return o;
  child = opened;
  uint32_t c = find(child);
  // Neither may write into a shared tail.
  hot[p].room = 0;
  hot[c].stored = hot[p].stored;
  hot[c].draft = hot[p].draft;
  hot[c].flags = hot[p].flags;
  dropped[c] = dropped[p];
  for (const Group &g : stores) {
    first(c, g) = first(p, g);
    count(c, g) = count(p, g);
    std::copy_n(row(p) + g.offset, g.isFull() ? count(p, g) : g.width, row(c) + g.offset);
  }
  bool forgotten = false;
  forHeld(c, [&](const Group &, uint32_t, BlockId b) {
    if (planted(Fault::ForkForgetsReference) && !std::exchange(forgotten, true))
      return;
    pool.acquire(b);
  });
  setTail(c, tails[p], indexed[p]);
  if (hot[c].flags & kCaches) {
    uint32_t oldest = length(p) - std::min(length(p), tokenRing);
    for (uint32_t at = std::max(indexed[p] * blockTokens, oldest); at < length(p); ++at)
      *recent(c, at) = *recent(p, at);
  }
  account(c, true);
  publish();
  return {};
}

void Core::setTail(uint32_t s, uint32_t node, uint32_t blocks) {
  uint32_t old = tails[s], before = indexed[s];
  if (blocks)
    tree.link(node);
  tails[s] = node;
  indexed[s] = blocks;
  if (before)
    tree.unlink(old);
}

void Core::releaseBlocks(uint32_t s) {
  uint32_t skip = planted(Fault::CloseForgetsTail) ? 1 : 0;
  forHeld(s, [&](const Group &, uint32_t, BlockId b) {
    if (b == kNoBlock || skip) { // kNoBlock: of a hit that failed halfway
      skip = 0;
      return;
    }
    pool.release(b);
    if (planted(Fault::CloseReleasesTwice) && pool.references(b))
      pool.release(b);
  });
}

/// Everything that a sequence has, on the device or on the host; it is empty afterwards.
void Core::forget(uint32_t s) {
  account(s, false);
  if (hot[s].flags & kSwapped)
    forHeld(s, [&](const Group &, uint32_t, BlockId b) { hostPool.release(b); });
  else
    releaseBlocks(s);
  setTail(s, spaceOf[s], 0);
  hot[s].stored = hot[s].draft = hot[s].room = 0;
  hot[s].flags &= kMayCache;
  if (hot[s].flags & kMayCache)
    hot[s].flags |= kCaches;
  dropped[s] = 0;
  for (const Group &g : stores) {
    first(s, g) = count(s, g) = 0;
    if (!g.isFull())
      std::fill_n(row(s) + g.offset, g.width, kNoBlock);
  }
}

void Core::end(uint32_t s) {
  forget(s);
  hot[s].id = kNoSequence;
  freeSequences[freeSequenceCount++] = s;
}

Outcome Core::close(SeqId sequence) {
  uint32_t s = find(sequence);
  if (s == config.maxSequences || hot[s].flags & kDoomed)
    return refuse(Code::BadSequence, sequence);
  if (isBusy(s)) {
    hot[s].flags |= kDoomed;
    hot[s].room = 0;
    doomed.push_back(s);
  } else {
    end(s);
  }
  publish();
  return {};
}

} // namespace lathe::kv
