//===- Yield.cpp - give up tokens or blocks ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Truncation (rejected drafts), preemption (to be computed again, or to the host), and dropping of
// tokens that a policy such as H2O (Zhang et al., 2023) found unimportant.
//
//===----------------------------------------------------------------------===//

#include "Core.h"

#include <algorithm>

namespace lathe::kv {

/// Stored tokens of a sequence before a position.
uint32_t Core::storedBefore(uint32_t s, uint32_t before) const {
  if (!(hot[s].flags & kCompacted))
    return std::min(before, hot[s].stored);
  uint32_t low = 0, high = hot[s].stored;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (position(row(s), stores[0], middle) < before)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Outcome Core::truncate(SeqId sequence, uint32_t to) {
  uint32_t s = find(sequence);
  if (s == config.maxSequences || hot[s].flags & (kSwapped | kDoomed))
    return refuse(Code::BadSequence, sequence);
  if (isBusy(s))
    return refuse(Code::Busy, sequence);
  if (to > length(s))
    return refuse(Code::BadArgument, sequence);
  for (const Group &g : stores) {
    if (g.isState() && to != length(s))
      return refuse(Code::OutOfWindow, sequence);
    if (g.isWindow() && std::max(g.firstSeen(to, blockTokens), g.sinkBlocks) < first(s, g))
      return refuse(Code::OutOfWindow, sequence);
  }

  account(s, false);
  uint32_t kept = storedBefore(s, to), rest = indexed[s], node = tails[s];
  // The tail may end inside an indexed block: the tokens of that part count as recent again.
  for (; rest > to / blockTokens; --rest, node = tree.parent(node))
    if (rest == to / blockTokens + 1)
      std::copy_n(tree.tokens(node), blockTokens, recent(s, (rest - 1) * blockTokens));
  for (const Group &g : stores) {
    if (g.isState() || planted(Fault::TruncationKeepsBlocks))
      continue;
    uint32_t blocks = ((g.isFull() ? kept : to) + blockTokens - 1) / blockTokens;
    while (count(s, g) > blocks) {
      uint32_t b = --count(s, g);
      if (b >= first(s, g) || b < g.sinkBlocks)
        pool.release(std::exchange(entry(s, g, b), kNoBlock));
    }
  }
  if (rest != indexed[s] && !planted(Fault::TruncationKeepsChain))
    setTail(s, node, rest);
  if (to < length(s))
    hot[s].flags &= ~uint32_t(kEndsUnknown);
  hot[s].stored = kept;
  dropped[s] = to - kept;
  hot[s].draft = hot[s].room = 0;
  if (!planted(Fault::WasteMiscounted))
    account(s, true);
  ++tick;
  rewrite(s, kept / blockTokens);
  if (!stepIsOpen)
    index(s);
  publish();
  return {};
}

uint32_t Core::heldBlocks(uint32_t s) const {
  uint32_t n = 0;
  forHeld(s, [&](const Group &, uint32_t, BlockId) { ++n; });
  return n;
}

Outcome Core::preempt(SeqId sequence, Preempt how) {
  uint32_t s = find(sequence);
  uint32_t never = how == Preempt::Swap ? kSwapped | kDoomed : kDoomed;
  if (s == config.maxSequences || hot[s].flags & never)
    return refuse(Code::BadSequence, sequence);
  if (isBusy(s))
    return refuse(Code::Busy, sequence);
  if (how == Preempt::Recompute) {
    forget(s);
    hot[s].flags |= kPreempted;
  } else {
    // A copy to a host block must not overtake one from it: the lists have an order, their calls
    // have not, once a step is over.
    if (!stepIsOpen && done.swapIns < swapIns.size())
      return refuse(Code::TransfersPending, sequence);
    uint32_t n = heldBlocks(s);
    if (n > hostPool.availableBlocks())
      return refuse(Code::NoHostBlocks, sequence, n, hostPool.availableBlocks());
    if (n > swapOuts.capacity() - swapOuts.size())
      return refuse(Code::TransfersPending, sequence);
    account(s, false);
    uint32_t left = planted(Fault::SwapForgetsBlock) ? 1 : 0;
    forHeld(s, [&](const Group &g, uint32_t, BlockId &b) {
      BlockId host = allocateHost();
      if (left)
        --left;
      else
        swapOuts.push_back({b, host, g.number});
      transfersPending = true;
      std::copy_n(&positions[size_t(b) * blockTokens], blockTokens,
                  &hostPositions[size_t(host) * blockTokens]);
      pool.release(std::exchange(b, host));
    });
    hot[s].flags |= kSwapped;
    hot[s].room = 0;
  }
  ++total.preemptions;
  ++tick;
  rewrite(s, 0);
  publish();
  return {};
}

//===--- Dropping tokens --------------------------------------------------===//

Outcome Core::drop(SeqId sequence, std::span<const uint32_t> kept) {
  if (!stepIsOpen)
    return refuse(Code::NoStep);
  uint32_t s = find(sequence);
  if (s == config.maxSequences || hot[s].flags & (kSwapped | kDoomed))
    return refuse(Code::BadSequence, sequence);
  if (isBusy(s))
    return refuse(Code::Busy, sequence);
  for (const Group &g : stores)
    if (!g.isFull())
      return refuse(Code::Unsupported, sequence);
  uint32_t stored = hot[s].stored, n = uint32_t(kept.size());
  if (kept.empty() || hot[s].draft || kept.back() >= stored)
    return refuse(Code::BadArgument, sequence);
  for (uint32_t i = 1; i < n; ++i)
    if (kept[i - 1] >= kept[i])
      return refuse(Code::BadArgument, sequence);
  uint32_t blocks = (n + blockTokens - 1) / blockTokens, all = blocks * uint32_t(stores.size());
  if (all > pool.availableBlocks())
    return refuse(Code::NoBlocks, sequence, all, pool.availableBlocks());

  const Mark start = mark();
  const BlockId *old = row(s);
  account(s, false);
  log({Entry::Drop, 0, 0, s, stored, hot[s].flags, 0, 0});
  side[s] = !side[s];
  bool failed = false;
  for (const Group &g : stores) {
    if (stored % blockTokens)
      hold(old[g.at(stored / blockTokens)], stored % blockTokens);
    count(s, g) = 0;
    for (uint32_t b = 0; b < blocks && !failed; ++b) {
      BlockId fresh = allocate();
      failed = fresh == kNoBlock;
      if (!failed)
        entry(s, g, count(s, g)++) = fresh;
    }
  }
  dropped[s] += stored - n;
  hot[s].stored = n;
  hot[s].room = 0;
  bool compacted = hot[s].flags & kCompacted;
  hot[s].flags |= kCompacted | kTouched;
  if (!planted(Fault::DropKeepsIndexed))
    hot[s].flags &= ~uint32_t(kCaches | kEndsUnknown);
  account(s, true);
  rewrite(s, 0);
  if (failed) {
    undoTo(start);
    return refuse(Code::Injected, sequence);
  }
  for (const Group &g : stores)
    for (uint32_t i = 0; i < n; ++i)
      moves.push_back({old[g.at(kept[i] / blockTokens)] * blockTokens + kept[i] % blockTokens,
                       entry(s, g, i / blockTokens) * blockTokens + i % blockTokens, g.number});
  for (uint32_t i = 0; i < n; ++i)
    position(row(s), stores[0], i) =
        (compacted ? position(old, stores[0], kept[i]) : kept[i]) +
        (planted(Fault::DropShiftsPositions) ? 1 : 0);
  transfersPending = true;
  return {};
}

uint32_t Core::writePositions(uint32_t s, std::span<uint32_t> out) const {
  uint32_t n = hot[s].stored + hot[s].pending;
  for (uint32_t i = 0; i < std::min<size_t>(n, out.size()); ++i)
    out[i] = hot[s].flags & kCompacted ? position(row(s), stores[0], i) : i;
  return n;
}

uint32_t selectTokens(std::span<const float> scores, uint32_t budget, uint32_t sinks,
                      uint32_t recent, std::span<uint32_t> scratch, std::span<uint32_t> out) {
  uint32_t n = uint32_t(scores.size()), take = std::min(budget, n);
  recent = std::min(recent, take);
  sinks = std::min(sinks, take - recent);
  uint32_t from = sinks, to = n - recent, middle = take - sinks - recent;
  for (uint32_t i = from; i < to; ++i)
    scratch[i - from] = i;
  auto better = [&](uint32_t a, uint32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
  };
  uint32_t *begin = scratch.data(), *end = begin + (to - from);
  std::nth_element(begin, begin + middle, end, better);
  std::sort(begin, begin + middle);
  uint32_t at = 0;
  for (uint32_t i = 0; i < sinks; ++i)
    out[at++] = i;
  for (uint32_t i = 0; i < middle; ++i)
    out[at++] = begin[i];
  for (uint32_t i = to; i < n; ++i)
    out[at++] = i;
  return take;
}

} // namespace lathe::kv
