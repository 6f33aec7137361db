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

static constexpr uint32_t kSlow = 1u << 31; ///< in `reserved`: not of the fast path

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
  for (size_t i = 0; i < requests.size(); ++i) {
    const Append &r = requests[i];
    if (size_t(last - next) < r.tokens) {
      o = refuse(Code::BadArgument, r.sequence);
      break;
    }
    uint32_t s = r.sequence & 0xffff;
    // The tail has room for one token, and nobody else looks at it.
    if (s < config.maxSequences && hot[s].id == r.sequence && hot[s].room != 0 &&
        hot[s].pending == 0 && r.tokens == 1 && r.draft == 0) [[likely]] {
      Hot &h = hot[s];
      if (out)
        out[next - flat.data()] = int32_t(h.slot);
      *recent(s, h.stored) = *next++;
      ++h.slot;
      --h.room;
      h.pending = 1;
      reserved[reservations++] = s;
      continue;
    }
    if (!checked) {
      // Before anything is evicted: is all that is left valid, and is there enough for it?
      checked = true;
      o = plan(requests.subspan(i), size_t(last - next));
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
Outcome Core::plan(std::span<const Append> requests, size_t given) {
  ++planNumber;
  size_t taken = 0;
  for (const Append &r : requests) {
    uint32_t s = find(r.sequence);
    if (s == config.maxSequences || hot[s].flags & (kSwapped | kDoomed))
      return refuse(Code::BadSequence, r.sequence);
    if (hot[s].pending || std::exchange(plannedIn[s], planNumber) == planNumber)
      return refuse(Code::Busy, r.sequence);
    if (r.tokens == 0 || r.draft > r.tokens)
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
  uint32_t need = neededBlocks(requests);
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
    for (uint32_t i = 0; i < r.tokens; ++i)
      *recent(s, length(s) + i) = t[i];
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
    BlockId b = allocate();
    if (b == kNoBlock)
      return false;
    entry(s, g, have++) = b;
    log({Entry::NewBlock, uint8_t(g.number), 0, s, b, 0, 0, 0});
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
  uint64_t ones = 0;
  for (uint32_t i = 0; i < reservations; ++i) {
    uint32_t s = reserved[i];
    if (s & kSlow) {
      commitOne(s & ~kSlow);
      continue;
    }
    Hot &h = hot[s];
    ++h.stored;
    h.pending = 0;
    ++ones;
    if (h.room == 0)
      index(s);
  }
  total.sequenceTokens += ones;
  total.appendedTokens += ones;
  ++total.steps;
  endStep();
  return {};
}

void Core::commitOne(uint32_t s) {
  Hot &h = hot[s];
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
    BlockId *old = rows.get() + (2 * size_t(e.s) + !side[e.s]) * rowWidth;
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
    if (planted(Fault::RollbackForgetsOne) && steps[logged].kind == Entry::NewBlock && logged == 0) {
      --count(steps[0].s, stores[0]);
      continue;
    }
    undo(steps[logged]);
  }
  while (reservations > m.touched) {
    Hot &h = hot[reserved[--reservations] & ~kSlow];
    if (planted(Fault::RollbackKeepsLength))
      h.stored += h.pending;
    h.pending = h.room = h.nextDraft = 0;
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
    uint32_t b = --count(s, g);
    entry(s, g, b) = kNoBlock;
    pool.release(e.a);
    rewrite(s, b);
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
