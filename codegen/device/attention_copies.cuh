//===- attention_copies.cuh - what attention on Hopper copies ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, hopper, attention_tile, attention_order
//
// The producer side of attention_wgmma.cuh, and what producers and consumers agree on: the order of
// tiles of queries, the tiles of keys that each of them sees, and the barriers. One warp loads queries
// and keys by TMA, one values, and one what a mask adds: tiles by TMA, or a row that it computes.
//
// Keys are walked from last to first, so that tiles that only some queries see come first. Where
// attention_blocks.cuh has listed the tiles that are seen, only those are walked. A block takes one tile
// of queries after another. With a causal mask the tiles with most keys come first, and every other round
// goes through the blocks in reverse, which balances their work.
//
// Holes beside those of attention_tile.cuh:
//
//   static constexpr bool kListed;     there are lists, u16 of:
//   const u16 *list(i32 head, i32 batch, u32 row, u32 rows, i64 keys, int tile);   of tile `row` of queries
//   const u32 *order();                and the order of attention_order.cuh
//   static constexpr int kGroup;       query heads of a key head
//   i32 keyHead(i32 h);
//   static constexpr bool kPages;      keys and values lie in pages of sixteen rows:
//   i64 sixteenPlaceK(i64 b, i64 h, i64 n);   the first element of keys 16 n on; the same of V
//   i64 strideK();                     elements from a row to the next
//   i32 maskHead(i32 h), maskBatch(i32 b);    with tiles of a mask: which of them
//
// Tensor maps of queries, keys, values and a mask: [head size, length, heads, batch], boxes of 64 x (64
// queries or KEYS) x 1 x 1; of pages [stride, rows], boxes of 64 x 16; of masks [keys, queries, heads,
// batch], boxes of 64 x 64 x 1 x 1. With the 128-byte swizzle.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_COPIES
#define LATHE_DEVICE_ATTENTION_COPIES
#ifndef LATHE_EMULATE

/// What comes to the scores from memory: nothing, tiles of 64 queries, or a row for all queries.
enum AttentionMask { NO_MASK, MASK_TILES, MASK_ROW };

/// A ring of tiles: which slot is next, and the parity of its barriers.
struct AttentionRing {
  u32 slot, parity;
  template <int STAGES> LATHE_METHOD void advance() {
    if (++slot == STAGES) { slot = 0; parity ^= 1; }
  }
  /// Only if so; without a branch.
  template <int STAGES> LATHE_METHOD void advance(bool so) {
    const u32 next = slot + so, wrap = next == STAGES;
    slot = wrap ? 0 : next;
    parity ^= wrap;
  }
};

/// Barriers in shared memory: of the queries of each warpgroup, of keys, values, and what comes to the scores.
template <class Tile> struct AttentionBarriers {
  static constexpr u32 Q = Tile::WARPGROUPS * Tile::Q_STAGES, M = Tile::MASKS;
  SharedAddr first;
  LATHE_METHOD SharedAddr fullQ() const { return first; }
  LATHE_METHOD SharedAddr emptyQ() const { return first + 8 * Q; }
  LATHE_METHOD SharedAddr fullK() const { return first + 16 * Q; }
  LATHE_METHOD SharedAddr emptyK() const { return fullK() + 8 * Tile::STAGES; }
  LATHE_METHOD SharedAddr fullV() const { return fullK() + 16 * Tile::STAGES; }
  LATHE_METHOD SharedAddr emptyV() const { return fullK() + 24 * Tile::STAGES; }
  LATHE_METHOD SharedAddr fullM() const { return fullK() + 32 * Tile::STAGES; }
  LATHE_METHOD SharedAddr emptyM() const { return fullM() + 8 * M; }
  /// By one thread. What is copied has one arrival, or one of each lane that writes a row of a mask; what
  /// is emptied has a lane of each warp that reads it, or each thread that does so by itself.
  LATHE_METHOD void init() const {
    auto each = [](SharedAddr bar, u32 count, u32 arrivals) {
      for (u32 i = 0; i < count; ++i) barrierInit(bar + 8 * i, arrivals);
    };
    each(fullQ(), Q, 1);
    each(emptyQ(), Q, 4);
    each(fullK(), Tile::STAGES, 1);
    each(emptyK(), Tile::STAGES, 4 * Tile::WARPGROUPS);
    each(fullV(), Tile::STAGES, 1);
    each(emptyV(), Tile::STAGES, 4 * Tile::WARPGROUPS);
    each(fullM(), M, Tile::MASK == MASK_ROW ? 32 : 1);
    each(emptyM(), M, Tile::MASK == MASK_ROW ? 128 * Tile::WARPGROUPS : 4);
    barrierInitFence();
  }
};

/// All tiles: rows of them, and heads of all batches (`pairs`), so many together as their keys and
/// values fit into the second-level cache.
struct AttentionPlan { u32 rows, heads, pairs, together, tiles; };
template <class Tile, class H> LATHE_DEV AttentionPlan attentionPlan(i64 heads, i64 batches, i64 queries, i64 keys) {
  AttentionPlan p;
  p.rows = ((u32)queries + Tile::QUERIES - 1) / Tile::QUERIES;
  p.heads = (u32)heads;
  p.pairs = (u32)(heads * batches);
  p.tiles = p.rows * p.pairs;
  // Where the cache is too small for a few times as much, sections of equal size.
  const u32 bytes = (u32)keys * (u32)(2 * (H::kHeadQK + H::kHeadV)), fit = bytes < (32u << 20) ? (32u << 20) / (bytes + 1) : 1;
  const u32 most = fit * H::kGroup, sections = p.pairs <= 4 * most ? 1 : (p.pairs + most - 1) / most;
  p.together = (p.pairs + sections * H::kGroup - 1) / (sections * H::kGroup) * H::kGroup;
  return p;
}

/// The tile of queries that this block takes in a round; no tile where it is through.
template <class H> LATHE_DEV u32 attentionTile(const H &h, const AttentionPlan &p, u32 round) {
  if constexpr (H::kListed) return h.order()[blockIdx.x * attentionPlaces(p.tiles, gridDim.x) + round];
  const bool back = H::kCausal && (round & 1);
  return round * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/// One tile of queries: where it begins, and how many tiles of keys it sees; one where it sees
/// nothing. An entry is twice the number of a tile, plus one where not all is seen.
struct AttentionWork {
  i32 q0, head, batch, blocks;
  const u16 *entries;
  template <class H> LATHE_METHOD u32 entry(i32 n) const {
    if constexpr (H::kListed) return entries[n];
    else return 2 * n;
  }
};
template <class Tile, class H>
LATHE_DEV AttentionWork attentionWork(const H &h, u32 tile, const AttentionPlan &p, i64 queries, i64 keys) {
  // The next entry is looked up ahead, even behind the last. Both orders are right: kernels that copy masks are up to
  // 20 % faster with the first, those that compute theirs 6 % with the second.
  if constexpr (Tile::MASK == MASK_TILES) {
    if (tile >= p.tiles) return AttentionWork{(i32)queries, 0, 0, 1, nullptr};
  } else {
    tile = tile < p.tiles ? tile : p.tiles - 1;
  }
  u32 row, pair;
  if constexpr (H::kCausal) { // of the heads together the long rows first
    if (p.pairs <= p.together) {
      row = p.rows - 1 - tile / p.pairs;
      pair = tile % p.pairs;
    } else {
      const u32 first = tile / (p.rows * p.together) * p.together, rest = tile - first * p.rows;
      const u32 here = p.pairs - first < p.together ? p.pairs - first : p.together;
      row = p.rows - 1 - rest / here;
      pair = first + rest % here;
    }
  } else {
    row = tile % p.rows;
    pair = tile / p.rows;
  }
  AttentionWork w{(i32)(row * Tile::QUERIES), (i32)(pair % p.heads), (i32)(pair / p.heads), 0, nullptr};
  if constexpr (H::kListed) {
    const u16 *list = h.list(w.head, w.batch, row, p.rows, keys, Tile::KEYS);
    w.blocks = unknownNumber(list[0]);
    w.entries = list + 1;
    return w;
  }
  const i64 end = minIndex(keys, h.keyEnd(w.batch, w.head, minIndex(w.q0 + Tile::QUERIES, queries) - 1));
  // One or two blocks that are known would be a text of their own, with spills.
  w.blocks = unknownNumber(end <= 0 ? 1 : (i32)(((u32)end + Tile::KEYS - 1) / Tile::KEYS));
  return w;
}

/// A launch ahead, of one block: the order of the tiles for so many blocks, and behind it memory to work in.
template <class Tile, int THREADS, class H>
LATHE_DEV void attentionOrders(const H &h, i64 heads, i64 batches, i64 queries, i64 keys, u32 blocks, u32 *order) {
  const AttentionPlan p = attentionPlan<Tile, H>(heads, batches, queries, keys);
  attentionOrder<THREADS>(p.tiles, p.tiles < blocks ? p.tiles : blocks, order, order + 2 * p.tiles + 3 * blocks,
                          [&](u32 t) {
                            const AttentionWork w = attentionWork<Tile>(h, t, p, queries, keys);
                            return (u32)w.entries[attentionListSize(keys, Tile::KEYS) - 2]; // which begin behind the length
                          });
}

/// A ring of tiles of keys, or of values, and the warp that fills it: one lane of it, or one for each box
/// where they lie in pages of sixteen rows.
template <class Tile, class H, bool VALUES> struct AttentionCopies {
  static constexpr i32 CHUNKS = VALUES ? Tile::CHUNKS_V : Tile::CHUNKS_QK, PAGES = Tile::KEYS / 16;
  static constexpr u32 BYTES = VALUES ? Tile::V_BYTES : Tile::K_BYTES;
  SharedAddr tiles, full; ///< the empty ones' barriers lie behind the full ones'
  AttentionRing ring;
  i32 known, column, row; ///< each lane: where the sixteen rows number `known` + lane lie, if known >= 0
  i32 last;               ///< the last sixteen that a query sees, behind which no page may be named

  /// Keys or values from k0 on. `begins`: they are the first of a tile of queries.
  LATHE_METHOD void copy(const H &h, const TensorMap &map, const AttentionWork &w, i32 k0, bool begins, i64 queries, i64 keys) {
    if constexpr (H::kPages)
      if (begins) {
        known = -1;
        last = (i32)((maxIndex(1, minIndex(keys, h.keyEnd(w.batch, w.head, minIndex(w.q0 + Tile::QUERIES, queries) - 1))) + 15) / 16) - 1;
      }
    const i32 lane = threadIdx.x % 32, first = k0 / 16;
    if constexpr (H::kPages) { // looked up before the room for them is there, as many as there are lanes
      static_assert(PAGES * CHUNKS <= 32, "a lane for each box");
      if (known < 0 || first < known) {
        known = first + PAGES > 32 ? first + PAGES - 32 : 0;
        const i32 n = known + lane < last ? known + lane : last;
        const i64 at = VALUES ? h.sixteenPlaceV(w.batch, w.head, n) : h.sixteenPlaceK(w.batch, w.head, n);
        const i64 stride = VALUES ? h.strideV() : h.strideK();
        row = (i32)(at / stride);
        column = (i32)(at - row * stride);
      }
    }
    const SharedAddr to = tiles + ring.slot * BYTES, bar = full + 8 * ring.slot;
    barrierWait(bar + 8 * Tile::STAGES, ring.parity);
    if (lane == 0) barrierExpect(bar, BYTES);
    if constexpr (H::kPages) {
      const i32 from = (first - known + lane / CHUNKS) & 31, x = shuffleFrom32(column, from), y = shuffleFrom32(row, from);
      if (lane < PAGES * CHUNKS)
        tensorLoad(to + lane % CHUNKS * Tile::KV_CHUNK + lane / CHUNKS * 16 * 128, map, bar, x + lane % CHUNKS * 64, y);
    } else {
      for (i32 c = 0; c < CHUNKS; ++c) tensorLoad(to + c * Tile::KV_CHUNK, map, bar, 64 * c, k0, h.keyHead(w.head), w.batch);
    }
    ring.template advance<Tile::STAGES>();
  }
};

/// All tiles of keys of all tiles of queries that this block takes, in order: `copy(w, k0, first)`; `first`
/// of their tile of queries. Where registers allow it the next of those is known ahead.
template <class Tile, class H, class Copy>
LATHE_DEV void overAttentionTiles(const H &h, const AttentionPlan &plan, i64 queries, i64 keys, Copy copy) {
  constexpr bool AHEAD = !H::kPages && !H::kListed && H::kHeadV <= 192;
  auto workOf = [&](u32 tile) { return attentionWork<Tile>(h, tile, plan, queries, keys); };
  AttentionWork next{};
  if constexpr (AHEAD) next = workOf(attentionTile(h, plan, 0));
  for (u32 round = 0, tile = attentionTile(h, plan, 0); tile < plan.tiles;) {
    const AttentionWork w = AHEAD ? next : workOf(tile);
    tile = attentionTile(h, plan, ++round);
    for (i32 n = w.blocks - 1; n >= 0; --n) {
      copy(w, (i32)(w.entry<H>(n) >> 1) * Tile::KEYS, n == w.blocks - 1);
      if (AHEAD && n == w.blocks - 1) next = workOf(tile);
    }
  }
}

/// The warps that copy: one keys and queries, one values, one what comes to the scores.
template <class Tile, class H>
LATHE_DEV void copyAttention(const H &h, const TensorMap &mapQ, const TensorMap &mapK, const TensorMap &mapV, const TensorMap &mapM, SharedAddr base, const AttentionPlan &plan, i64 queries, i64 keys) {
  typedef AttentionBarriers<Tile> Bars;
  constexpr u32 WARPGROUPS = Tile::WARPGROUPS;
  const Bars bars{base + Tile::BARRIERS_AT};
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool whole = warp < 2 ? H::kPages : warp == 2 && Tile::MASK == MASK_ROW;
  if (warp > (Tile::MASK != NO_MASK ? 2 : 1) || (lane > 0 && !whole)) return;
  AttentionRing ring{0, 1}; // of what comes beside keys and values
  if (warp == 0) {
    AttentionCopies<Tile, H, false> copies{base + Tile::K_AT, bars.fullK(), AttentionRing{0, 1}, -1, 0, 0, 0};
    auto copyQueries = [&](const AttentionWork &w) {
      for (u32 t = 0; t < WARPGROUPS; ++t) {
        const u32 n = t * Tile::Q_STAGES + ring.slot;
        const SharedAddr bar = bars.fullQ() + 8 * n;
        barrierWait(bars.emptyQ() + 8 * n, ring.parity);
        if (lane != 0) continue;
        barrierExpect(bar, Tile::Q_BYTES);
        for (u32 c = 0; c < Tile::CHUNKS_QK; ++c)
          tensorLoad(base + n * Tile::Q_BYTES + c * Tile::Q_CHUNK, mapQ, bar, 64 * c, w.q0 + 64 * t, w.head, w.batch);
      }
      ring.template advance<Tile::Q_STAGES>();
    };
    bool begins = true;
    overAttentionTiles<Tile>(h, plan, queries, keys, [&](const AttentionWork &w, i32 k0, bool first) {
      // The queries are needed together with these keys, but their slot may still be read for the tile before.
      const bool ahead = Tile::Q_STAGES > 1 && !begins;
      if (first && ahead) copyQueries(w);
      copies.copy(h, mapK, w, k0, first, queries, keys);
      if (first && !ahead) copyQueries(w);
      begins = false;
    });
  } else if (warp == 1) {
    AttentionCopies<Tile, H, true> copies{base + Tile::V_AT, bars.fullV(), AttentionRing{0, 1}, -1, 0, 0, 0};
    overAttentionTiles<Tile>(h, plan, queries, keys, [&](const AttentionWork &w, i32 k0, bool first) { copies.copy(h, mapV, w, k0, first, queries, keys); });
  } else if constexpr (Tile::MASK == MASK_TILES) {
    overAttentionTiles<Tile>(h, plan, queries, keys, [&](const AttentionWork &w, i32 k0, bool) {
      for (u32 t = 0; t < WARPGROUPS; ++t) {
        const SharedAddr bar = bars.fullM() + 8 * t;
        barrierWait(bars.emptyM() + 8 * t, ring.parity);
        barrierExpect(bar, Tile::M_BYTES);
        for (u32 c = 0; c < Tile::M_BYTES / Tile::M_CHUNK; ++c)
          tensorLoad(base + Tile::M_AT + t * Tile::M_BYTES + c * Tile::M_CHUNK, mapM, bar, k0 + 64 * c, w.q0 + 64 * t, h.maskHead(w.head), h.maskBatch(w.batch));
      }
      ring.template advance<1>();
    });
  } else if constexpr (Tile::MASK == MASK_ROW) {
    overAttentionTiles<Tile>(h, plan, queries, keys, [&](const AttentionWork &w, i32 k0, bool) {
      // Keys behind the last are hidden; what they would read may not be there.
      const i32 end = (i32)minIndex(keys, h.keyEnd(w.batch, w.head, queries - 1));
      f32 row[(Tile::KEYS + 31) / 32];
#pragma unroll
      for (int i = 0; i < (Tile::KEYS + 31) / 32; ++i) {
        const i32 k = k0 + i * 32 + (i32)lane;
        row[i] = keyExponent(h.keyMask(w.batch, w.head, k < (i32)keys ? k : (i32)keys - 1));
        if (k >= end) row[i] = bitsToF32(0xff800000u);
      }
      barrierWait(bars.emptyM() + 8 * ring.slot, ring.parity);
#pragma unroll
      for (int i = 0; i < (Tile::KEYS + 31) / 32; ++i)
        if (i * 32 + (int)lane < Tile::KEYS) storeShared4(base + Tile::M_AT + ring.slot * Tile::M_BYTES + 4 * (i * 32 + lane), row[i]);
      barrierArrive(bars.fullM() + 8 * ring.slot);
      ring.template advance<Tile::STAGES>();
    });
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_ATTENTION_COPIES
