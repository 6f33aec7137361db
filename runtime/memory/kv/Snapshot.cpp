//===- Snapshot.cpp - the state of a KV cache as a plain struct -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Core.h"

namespace lathe::kv {

Snapshot Core::snapshot() const {
  Snapshot out;
  out.config = config;
  out.stepOpen = stepIsOpen;
  for (const Group &g : groups) {
    out.ringBlocks[g.number] = g.ringBlocks;
    out.sinkBlocks[g.number] = g.sinkBlocks;
  }
  pool.snapshot(out.blocks, out.freeList, out.evictable);
  hostPool.snapshot(out.hostBlocks, out.hostFreeList, out.hostEvictable);
  tree.snapshot(out, spaces->count());
  for (uint32_t s = 0; s < config.maxSequences; ++s) {
    const Hot &h = hot[s];
    Snapshot::Sequence seq;
    seq.id = h.id;
    if (h.id != kNoSequence) {
      seq.swapped = h.flags & kSwapped;
      seq.doomed = h.flags & kDoomed;
      seq.compacted = h.flags & kCompacted;
      seq.cache = h.flags & kCaches;
      seq.space = spaceOf[s];
      seq.priority = priority[s];
      seq.length = length(s);
      seq.stored = h.stored;
      seq.pending = h.pending;
      seq.draft = h.draft;
      seq.room = h.room;
      seq.slot = h.slot;
      seq.tail = tails[s];
      seq.indexed = indexed[s];
      for (const Group &g : groups) {
        Snapshot::Sequence::Group group;
        if (g.width) {
          group.first = first(s, g);
          group.count = count(s, g);
          group.table.assign(row(s) + g.offset, row(s) + g.offset + entries(s, g));
        }
        seq.groups.push_back(std::move(group));
      }
      if (seq.swapped) {
        // The row names host blocks.
        forHeld(s, [&](const Group &, uint32_t, BlockId b) { seq.hostBlocks.push_back(b); });
      } else if (seq.compacted) {
        seq.positions.resize(h.stored);
        writePositions(s, seq.positions);
      }
    }
    out.sequences.push_back(std::move(seq));
  }
  out.pins = pins;
  for (uint32_t i = 0; i < logged; ++i) {
    const Entry &e = steps[i];
    switch (e.kind) {
    case Entry::Cow:
      out.heldByStep.push_back({e.a, heldByStep[e.a].used, true});
      break;
    case Entry::Resume:
      if (e.flags & kResumed)
        break;
      [[fallthrough]];
    case Entry::Restore:
    case Entry::Offload:
      out.hostHeldByStep.push_back(e.a);
      break;
    case Entry::Drop: {
      const BlockId *old = rows.get() + (2 * size_t(e.s) + !side[e.s]) * rowStride;
      for (const Group &g : stores)
        for (uint32_t b = 0; b < (e.a + blockTokens - 1) / blockTokens; ++b)
          out.heldByStep.push_back({old[g.at(b)], e.a - std::min(e.a, b * blockTokens),
                                    b == e.a / blockTokens});
      break;
    }
    case Entry::NewState:
      out.newStates.push_back(e.a);
      break;
    case Entry::NewBlock:
    case Entry::Attach:
      break;
    }
  }
  out.counters = published.read();
  return out;
}

Fragmentation Core::fragmentation() const {
  Fragmentation f;
  for (uint32_t s = 0; s < config.maxSequences; ++s) {
    if (hot[s].id == kNoSequence || hot[s].flags & kSwapped)
      continue;
    for (const Group &g : stores) {
      if (g.isState())
        continue;
      for (uint32_t b = first(s, g) + 1; b < count(s, g); ++b) {
        ++f.neighbours;
        f.contiguous += entry(s, g, b) == entry(s, g, b - 1) + 1;
      }
    }
  }
  return f;
}

} // namespace lathe::kv
