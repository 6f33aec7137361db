//===- Step.cpp - reserve, then commit or roll back -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step changes at once goes into a log: commit() walks it forwards and makes each entry
// final, rollback() walks it backwards and undoes it. Blocks that a commit gives back are held until
// then. The usual decoding step, a token into the tail of each sequence, logs nothing.
//
//===----------------------------------------------------------------------===//

#include "Core.h"

#include <algorithm>

namespace lathe::kv {

// In `reserved`, above the number of the sequence: not of the fast path; with a block of its own.
static constexpr uint32_t kSlow = 1u << 31, kBegun = 1u << 30, kNumber = 0xffff;
static constexpr uint64_t kNoRoom = 0xffffffff; ///< pending above room - 1, where that is too much

Outcome Core::begin() {
  if (stepIsOpen)
    return refuse(Code::StepOpen);
  if (transfersPending)
    return refuse(Code::TransfersPending);
  clearTransfers();
  stepIsOpen = true;
  ++tick;
  return {};
}

void Core::clearTransfers() {
  transfersPending = false;
  done = {swapOuts.size(), swapIns.size(), copies.size(), moves.size()};
  if (stepIsOpen)
    return; // the step may still take its own entries back
  swapOuts.clear();
  swapIns.clear();
  copies.clear();
  moves.clear();
  done = {};
}

Transfers Core::transfers() const {
  auto rest = [](const auto &list, size_t from) {
    return std::span(list).subspan(std::min(from, list.size()));
  };
  return {rest(swapOuts, done.swapOuts), rest(swapIns, done.swapIns), rest(copies, done.copies),
          rest(moves, done.moves)};
}

//===--- Reserve ----------------------------------------------------------===//

Outcome Core::reserve(std::span<const Append> requests, std::span<const Token> flat,
                      const Slots &slots) {
  if (!stepIsOpen)
    return refuse(Code::NoStep);
  const Mark start = mark();
  const Token *next = flat.data(), *const last = next + flat.size();
  int32_t *const out = oneFull ? slots.slots[stores[0].number] : nullptr;
  bool checked = false;
  Outcome o;
  for (size_t i = 0;; ++i) {
    size_t usual =
        reserveUsual(requests.subspan(i, std::min(requests.size() - i, size_t(last - next))), next,
                     out ? out + (next - flat.data()) : nullptr, 0);
    next += usual;
    i += usual;
    if (i == requests.size())
      break;
    const Append &r = requests[i];
    if (size_t(last - next) < r.tokens) {
      o = refuse(Code::BadArgument, r.sequence);
      break;
    }
    if (r.tokens == 1 && r.draft == 0 && mayBegin(r.sequence)) {
      if (!beginBlock(r.sequence & kNumber)) {
        o = refuse(Code::Injected, r.sequence);
        break;
      }
      reserveUsual(requests.subspan(i, 1), next, out ? out + (next - flat.data()) : nullptr,
                   kBegun);
      ++next;
      continue;
    }
    if (!checked) {
      // Before anything is evicted: is all that is left valid, and is there enough for it?
      checked = true;
      o = plan(requests.subspan(i), {next, last});
      if (!o.ok())
        break;
    }
    o = reserveOne(r, next, slots, size_t(next - flat.data()));
    if (!o.ok())
      break;
    next += r.tokens;
  }
  if (o.ok() && next != last)
    o = refuse(Code::BadArgument);
  if (!o.ok() && !planted(Fault::FailureKeepsReservations))
    undoTo(start);
  return o;
}

/// The leading requests that are for one token into a tail that has room and that nobody else looks
/// at; returns how many that were.
size_t Core::reserveUsual(std::span<const Append> requests, const Token *next, int32_t *out,
                          uint32_t mark) {
  // Locals, as the compiler must think that the stores below reach the members.
  Hot *const all = hot.get();
  Token *const rings = tokens.get();
  const size_t stride = tokenStride;
  const uint32_t ringMask = tokenRing - 1;
  const uint32_t sequences = config.maxSequences;
  uint32_t *const list = reserved.get() + reservations;
  size_t i = 0;
  for (; i < requests.size(); ++i) {
    const Append &r = requests[i];
    uint32_t s = r.sequence & kNumber;
    if (s >= sequences)
      break;
    Hot &h = all[s];
    uint32_t room = h.room, slot = h.slot, at = h.stored & ringMask;
    // One look at two fields each: any other value of them breaks. What is not known has nothing behind it.
    if (h.id != r.sequence || h.flags & kEndsUnknown || (uint64_t(h.pending) << 32 | (room - 1)) >= kNoRoom ||
        (uint64_t(r.draft) << 32 | r.tokens) != 1)
      break;
    h.slot = slot + 1;
    h.room = room - 1;
    h.pending = 1;
    rings[s * stride + at] = next[i];
    if (next[i] == kUnknownToken && h.flags & kCaches)
      h.flags |= kEndsUnknown;
    list[i] = s | mark;
    if (out)
      out[i] = int32_t(slot);
  }
  reservations += uint32_t(i);
  return i;
}

/// Whether the next token of a sequence begins a block, and one is free.
bool Core::mayBegin(SeqId sequence) const {
  uint32_t s = find(sequence);
  if (s == config.maxSequences)
    return false;
  const Hot &h = hot[s];
  return oneFull && h.pending == 0 && pool.freeBlocks() &&
         !(h.flags & (kSwapped | kDoomed | kCompacted | kEndsUnknown)) && h.draft == 0 && h.stored % blockTokens == 0 && h.stored < config.maxSequenceTokens &&
         h.stored - indexed[s] * blockTokens < tokenRing;
}

bool Core::beginBlock(uint32_t s) {
  Hot &h = hot[s];
  const Group &g = stores[0];
  BlockId b = allocate();
  if (b == kNoBlock)
    return false;
  uint32_t &have = count(s, g);
  log({Entry::NewBlock, uint8_t(g.number), 0, s, have, 1, 0, 0});
  entry(s, g, have++) = b;
  h.room = std::min(blockTokens, config.maxSequenceTokens - h.stored);
  h.slot = b * blockTokens;
  return true;
}

/// Blocks that a request takes; counts copies of tails that requests before it leave alone.
uint32_t Core::needed(const Append &r) const {
  uint32_t s = find(r.sequence);
  if (s == config.maxSequences || hot[s].flags & (kSwapped | kDoomed) || hot[s].pending)
    return 0;
  if (r.tokens <= hot[s].room)
    return 0;
  uint32_t n = 0;
  for (const Group &g : stores) {
    if (g.isState()) {
      ++n;
      continue;
    }
    uint32_t base = g.isFull() ? hot[s].stored : length(s), have = count(s, g);
    uint32_t want = (base + r.tokens + blockTokens - 1) / blockTokens;
    n += want > have ? want - have : 0;
    if (uint32_t used = base % blockTokens) {
      BlockId tail = entry(s, g, have - 1);
      const Held left = planned[tail].references ? planned[tail] : heldByStep[tail];
      if (!isWritable(tail, used, left)) {
        ++n;
        plannedBlocks.push_back(tail);
        planned[tail] = {left.references + 1, std::max(left.used, used)};
      }
    }
  }
  return n;
}

uint32_t Core::neededBlocks(std::span<const Append> requests) const {
  uint32_t n = 0;
  for (const Append &r : requests)
    n += needed(r);
  for (BlockId b : plannedBlocks)
    planned[b] = {};
  plannedBlocks.clear();
  return n;
}

/// Whether all requests are valid and there are blocks for them; changes nothing.
Outcome Core::plan(std::span<const Append> requests, std::span<const Token> flat) {
  const size_t given = flat.size();
  ++planNumber;
  size_t taken = 0;
  for (const Append &r : requests) {
    uint32_t s = find(r.sequence);
    if (s == config.maxSequences || hot[s].flags & (kSwapped | kDoomed))
      return refuse(Code::BadSequence, r.sequence);
    if (hot[s].pending || std::exchange(plannedIn[s], planNumber) == planNumber)
      return refuse(Code::Busy, r.sequence);
    if (r.tokens == 0 || r.draft > r.tokens || r.tokens > given - taken)
      return refuse(Code::BadArgument, r.sequence);
    const auto inner = flat.subspan(taken, r.tokens - 1);
    if (std::find(inner.begin(), inner.end(), kUnknownToken) != inner.end() ||
        hot[s].flags & kEndsUnknown)
      return refuse(Code::BadArgument, r.sequence);
    if (r.tokens > config.maxStepTokens)
      return refuse(Code::TooLong, r.sequence, r.tokens, config.maxStepTokens);
    if (r.tokens > config.maxSequenceTokens - length(s))
      return refuse(Code::TooLong, r.sequence, length(s) + r.tokens, config.maxSequenceTokens);
    if (r.draft && hasStates)
      return refuse(Code::Unsupported, r.sequence);
    taken += r.tokens;
  }
  if (taken != given)
    return refuse(Code::BadArgument);
  // Each request takes a copy of its tail and a block begun, beside the full ones, at most.
  size_t most = (2 * requests.size() + given / blockTokens) * stores.size();
  uint32_t need = most > pool.availableBlocks() ? neededBlocks(requests) : 0;
  if (need > pool.availableBlocks())
    return refuse(Code::NoBlocks, requests[0].sequence, need, pool.availableBlocks());
  return {};
}

Outcome Core::reserveOne(const Append &r, const Token *t, const Slots &slots, size_t at) {
  uint32_t s = r.sequence & 0xffff;
  Hot &h = hot[s];
  // Listed before anything changes: a failure below is undone like a rollback.
  h.pending = r.tokens;
  h.nextDraft = r.draft;
  reserved[reservations++] = s | kSlow;
  for (const Group &g : stores) {
    if (!extend(s, g, r.tokens))
      return refuse(pool.availableBlocks() ? Code::Injected : Code::NoBlocks, r.sequence, 1,
                    pool.availableBlocks());
    if (int32_t *out = slots.slots[g.number]; out && !g.isState())
      writeSlots(s, g, r.tokens, out + at);
  }
  for (const Group &g : groups)
    if (targets[g.number] != g.number && slots.slots[g.number] && !storage(g.number).isState())
      writeSlots(s, storage(g.number), r.tokens, slots.slots[g.number] + at);
  if (length(s) + r.tokens - indexed[s] * blockTokens > tokenRing)
    h.flags &= ~kCaches; // waited too long for a free node: its tokens are overwritten
  if (h.flags & kCaches)
    for (uint32_t i = 0, run; i < r.tokens; i += run) {
      uint32_t from = (length(s) + i) & (tokenRing - 1);
      run = std::min(r.tokens - i, tokenRing - from);
      std::copy_n(t + i, run, recent(s, from));
    }
  if (h.flags & kCaches && t[r.tokens - 1] == kUnknownToken)
    h.flags |= kEndsUnknown;
  if (h.flags & kCompacted) {
    const Group &g = stores[0];
    for (uint32_t i = 0; i < r.tokens; ++i)
      position(row(s), g, h.stored + i) = length(s) + i;
  }
  h.room = 0;
  if (oneFull && r.draft == 0 && !(h.flags & kCompacted)) {
    // What is left of the tail, for the fast path of the next step.
    const Group &g = stores[0];
    uint32_t end = h.stored + r.tokens, limit = config.maxSequenceTokens;
    h.room = std::min(count(s, g) * blockTokens, limit) - end;
    if (h.room)
      h.slot = entry(s, g, count(s, g) - 1) * blockTokens + end % blockTokens;
  }
  return {};
}

/// Makes room for `n` tokens in a group; false when there is no block.
bool Core::extend(uint32_t s, const Group &g, uint32_t n) {
  BlockId *r = row(s);
  if (g.isState()) {
    BlockId b = planted(Fault::StateOverwritten) && r[g.offset] != kNoBlock ? r[g.offset]
                                                                           : allocate();
    if (b == kNoBlock)
      return false;
    if (b == r[g.offset])
      pool.acquire(b);
    r[g.offset + 1] = b;
    log({Entry::NewState, uint8_t(g.number), 0, s, b, 0, 0, 0});
    return true;
  }
  uint32_t base = g.isFull() ? hot[s].stored : length(s);
  uint32_t &have = count(s, g);
  if (uint32_t used = base % blockTokens) {
    BlockId &tail = entry(s, g, have - 1);
    bool writable = isWritable(tail, used, heldByStep[tail]);
    if (planted(Fault::SharedTailWritten) && pool.nodeOf(tail) == kNoNode)
      writable = true;
    if (planted(Fault::StaleHashAfterTruncation) && pool.references(tail) == 1)
      writable = true;
    if (!writable) {
      BlockId b = allocate();
      if (b == kNoBlock)
        return false;
      if (!planted(Fault::CopyForgotten))
        copies.push_back({tail, b, g.number, used});
      transfersPending = true;
      if (hot[s].flags & kCompacted)
        std::copy_n(&positions[size_t(tail) * blockTokens], used,
                    &positions[size_t(b) * blockTokens]);
      // The step keeps the old reference: the copy reads the block.
      log({Entry::Cow, uint8_t(g.number), 0, s, tail, b, have - 1, heldByStep[tail].used});
      hold(tail, used);
      tail = b;
      rewrite(s, have - 1);
    }
  }
  for (uint32_t want = (base + n + blockTokens - 1) / blockTokens; have < want;) {
    // Of a row without gaps all that are free at once, else each for another that goes.
    uint32_t run = g.isFull() ? allocateFree(&entry(s, g, have), want - have) : 0;
    if (run == 0) {
      BlockId b = allocate();
      if (b == kNoBlock)
        return false;
      entry(s, g, have) = b;
      run = 1;
    }
    Entry *before = logged ? &steps[logged - 1] : nullptr;
    if (before && before->kind == Entry::NewBlock && before->s == s && before->group == g.number)
      before->b += run;
    else
      log({Entry::NewBlock, uint8_t(g.number), 0, s, have, run, 0, 0});
    have += run;
  }
  return true;
}

void Core::writeSlots(uint32_t s, const Group &g, uint32_t n, int32_t *out) const {
  uint32_t at = g.isFull() ? hot[s].stored : length(s);
  for (uint32_t end = at + n; at < end;) {
    uint32_t stop = std::min(end, (at / blockTokens + 1) * blockTokens);
    int32_t slot = int32_t(entry(s, g, at / blockTokens) * blockTokens + at % blockTokens);
    while (at++ < stop)
      *out++ = slot++;
    at = stop;
  }
}

//===--- Commit -----------------------------------------------------------===//

Outcome Core::commit() {
  if (!stepIsOpen)
    return refuse(Code::NoStep);
  ++tick;
  for (uint32_t i = 0; i < logged; ++i)
    keep(steps[i]);
  uint64_t ones = 0, begun = 0;
  Hot *const all = hot.get();
  uint32_t *const list = reserved.get();
  uint32_t filled = 0; // sequences whose tail is full now, in the front of the list
  for (uint32_t i = 0, n = reservations; i < n; ++i) {
    uint32_t s = list[i] & kNumber;
    if (list[i] > kNumber) [[unlikely]] {
      if (list[i] & kSlow) {
        commitOne(s);
        continue;
      }
      ++begun;
    }
    Hot &h = all[s];
    ++h.stored;
    h.pending = 0;
    ++ones;
    if (h.room == 0 && (h.flags & (kCaches | kEndsUnknown)) == kCaches) {
      list[filled++] = s;
      tree.prefetchNode(tails[s]);
    }
  }
  // What one needs of the tree comes nearer while others are at work.
  for (uint32_t i = 0; i < filled; ++i)
    fullHashes[i] = tree.prefetch(hashOf(tree.hash(tails[list[i]]), list[i], indexed[list[i]]));
  for (uint32_t i = 0; i < filled; ++i)
    index(list[i], &fullHashes[i]);
  total.sequenceSlots += begun * blockTokens;
  total.sequenceTokens += ones;
  total.appendedTokens += ones;
  ++total.steps;
  endStep();
  return {};
}

void Core::commitOne(uint32_t s) {
  Hot &h = hot[s];
  if (oneFull) {
    uint32_t before = (h.stored + blockTokens - 1) / blockTokens;
    uint32_t after = (h.stored + h.pending + blockTokens - 1) / blockTokens;
    total.sequenceSlots += uint64_t(after - before) * blockTokens;
    total.sequenceTokens += h.pending;
    h.stored += h.pending;
    total.appendedTokens += h.pending;
    h.pending = 0;
    h.draft = h.nextDraft;
    index(s);
    return;
  }
  account(s, false);
  h.stored += h.pending;
  total.appendedTokens += h.pending;
  h.pending = 0;
  h.draft = h.nextDraft;
  for (const Group &g : stores)
    if (g.isState()) {
      BlockId *state = row(s) + g.offset;
      BlockId old = std::exchange(state[0], std::exchange(state[1], kNoBlock));
      if (old != kNoBlock)
        pool.release(old);
    }
  index(s);
  slideWindows(s);
  account(s, true);
}

/// Gives up the blocks that no later query sees.
void Core::slideWindows(uint32_t s) {
  for (const Group &g : stores) {
    if (!g.isWindow() || planted(Fault::WindowNeverFrees))
      continue;
    uint32_t seen = g.firstSeen(length(s) - std::min(length(s), g.slack), blockTokens);
    if (planted(Fault::WindowFreesEarly) && seen && seen < count(s, g))
      ++seen;
    uint32_t sinks = planted(Fault::SinksFreed) ? 0 : g.sinkBlocks;
    if (seen <= sinks || seen <= first(s, g))
      continue;
    for (uint32_t b = std::max(first(s, g), sinks); b < seen; ++b)
      pool.release(std::exchange(entry(s, g, b), kNoBlock));
    first(s, g) = seen;
  }
}

/// Makes one entry of the log final.
void Core::keep(const Entry &e) {
  switch (e.kind) {
  case Entry::NewBlock:
    if (planted(Fault::CommitForgetsState))
      break;
    if (const Group &g = groups[e.group]; g.isFull())
      pool.commit(&entry(e.s, g, e.a), e.b);
    else
      for (uint32_t b = e.a; b < e.a + e.b; ++b)
        pool.commit(entry(e.s, g, b));
    break;
  case Entry::NewState:
    if (!planted(Fault::CommitForgetsState))
      pool.commit(e.a);
    break;
  case Entry::Cow:
    pool.commit(e.b);
    heldByStep[e.a] = {};
    pool.release(e.a);
    ++total.copiedBlocks;
    break;
  case Entry::Restore:
    pool.commit(e.b);
    hostPool.release(e.a);
    ++total.restoredBlocks;
    events.append(EventKind::Restored, e.group, tree.depth(e.s) * blockTokens, tree.hash(e.s),
                  tree.hash(tree.parent(e.s)));
    break;
  case Entry::Offload:
    hostPool.release(e.a);
    break;
  case Entry::Attach:
    countHit(e);
    break;
  case Entry::Resume:
    if (e.flags & kResumed)
      break;
    if (e.flags & kCameBack)
      pool.commit(e.b);
    if (e.flags & kAdopted) {
      ++total.restoredBlocks;
      events.append(EventKind::Restored, e.group, tree.depth(e.d) * blockTokens, tree.hash(e.d),
                    tree.hash(tree.parent(e.d)));
    }
    hostPool.release(e.a);
    break;
  case Entry::Drop: {
    BlockId *old = rows.get() + (2 * size_t(e.s) + !side[e.s]) * rowStride;
    for (const Group &g : stores) {
      for (uint32_t b = (e.a + blockTokens - 1) / blockTokens; b-- > 0;) {
        heldByStep[old[g.at(b)]] = {};
        pool.release(old[g.at(b)]);
      }
      for (uint32_t b = 0; b < count(e.s, g); ++b)
        pool.commit(entry(e.s, g, b));
    }
    total.droppedTokens += e.a - hot[e.s].stored;
    setTail(e.s, spaceOf[e.s], 0);
    break;
  }
  }
  if (e.kind != Entry::Restore && e.kind != Entry::Offload)
    hot[e.s].flags &= ~kTouched;
}

//===--- Roll back --------------------------------------------------------===//

Outcome Core::rollback() {
  if (!stepIsOpen)
    return refuse(Code::NoStep);
  undoTo({0, 0, 0, 0, 0});
  ++total.rollbacks;
  endStep();
  return {};
}

void Core::undoTo(const Mark &m) {
  ++tick;
  while (logged > m.log) {
    --logged;
    undo(steps[logged]);
  }
  while (reservations > m.touched) {
    Hot &h = hot[reserved[--reservations] & kNumber];
    if (planted(Fault::RollbackKeepsLength))
      h.stored += h.pending;
    h.pending = h.room = h.nextDraft = 0;
    h.flags &= ~uint32_t(kEndsUnknown); // before it none was unknown
  }
  copies.resize(m.copies);
  swapIns.resize(m.swapIns);
  moves.resize(m.moves);
}

void Core::undo(const Entry &e) {
  uint32_t s = e.s;
  switch (e.kind) {
  case Entry::NewBlock: {
    const Group &g = groups[e.group];
    for (uint32_t n = e.b; n-- > 0;) {
      BlockId b = std::exchange(entry(s, g, --count(s, g)), kNoBlock);
      if (!planted(Fault::RollbackForgetsOne) || logged || n)
        pool.release(b);
    }
    rewrite(s, count(s, g));
    break;
  }
  case Entry::NewState:
    row(s)[groups[e.group].offset + 1] = kNoBlock;
    pool.release(e.a);
    break;
  case Entry::Cow:
    if (!planted(Fault::RollbackKeepsTail)) {
      entry(s, groups[e.group], e.c) = e.a;
      --heldByStep[e.a].references;
      heldByStep[e.a].used = e.d;
      pool.release(e.b);
      rewrite(s, e.c);
    }
    break;
  case Entry::Restore: // nobody has the block any more: its sequence was undone before
    tree.block(s, e.group) = kNoBlock;
    pool.clearContent(e.b);
    hostPool.release(e.a);
    tree.unlink(s);
    break;
  case Entry::Offload: {
    // Nobody knows whether the copy was made.
    for (size_t i = swapOuts.size(); i-- > 0;)
      if (swapOuts[i].host == e.a) {
        swapOuts.erase(swapOuts.begin() + ptrdiff_t(i));
        done.swapOuts -= i < done.swapOuts;
      }
    if (planted(Fault::OffloadOfUnwrittenKept)) {
      hostPool.release(e.a);
      break;
    }
    events.append(EventKind::HostEvicted, e.group, tree.depth(s) * blockTokens, tree.hash(s),
                  tree.hash(tree.parent(s)));
    tree.host(s, e.group) = kNoBlock;
    hostPool.clearContent(e.a);
    hostPool.release(e.a);
    tree.unlink(s);
    break;
  }
  case Entry::Attach: {
    account(s, false);
    releaseBlocks(s);
    setTail(s, spaceOf[s], 0);
    hot[s].stored = 0;
    hot[s].flags &= ~kTouched;
    for (const Group &g : stores) {
      first(s, g) = count(s, g) = 0;
      if (!g.isFull())
        std::fill_n(row(s) + g.offset, g.width, kNoBlock);
    }
    rewrite(s, 0);
    break;
  }
  case Entry::Resume: {
    if (e.flags & kResumed) {
      account(s, false);
      hot[s].flags |= kSwapped;
      hot[s].flags &= ~kTouched;
      break;
    }
    row(s)[e.c] = e.a;
    if (e.flags & kAdopted) {
      tree.block(e.d, e.group) = kNoBlock;
      pool.clearContent(e.b);
      tree.unlink(e.d);
    }
    pool.release(e.b);
    break;
  }
  case Entry::Drop: {
    account(s, false);
    for (const Group &g : stores)
      for (uint32_t b = count(s, g); b-- > 0;)
        pool.release(entry(s, g, b));
    side[s] = !side[s];
    dropped[s] = length(s) - e.a;
    hot[s].stored = e.a;
    hot[s].flags = e.b;
    for (const Group &g : stores) {
      count(s, g) = (e.a + blockTokens - 1) / blockTokens;
      if (e.a % blockTokens) {
        Held &held = heldByStep[entry(s, g, count(s, g) - 1)];
        if (--held.references == 0)
          held.used = 0;
      }
    }
    account(s, true);
    rewrite(s, 0);
    break;
  }
  }
}

void Core::hold(BlockId b, uint32_t used) {
  heldByStep[b] = {heldByStep[b].references + 1, std::max(heldByStep[b].used, used)};
}

void Core::endStep() {
  logged = reservations = 0;
  stepIsOpen = false;
  for (uint32_t s : doomed)
    if (!planted(Fault::DoomedForgotten))
      end(s);
  doomed.clear();
  ++tick;
  publish();
}

} // namespace lathe::kv
