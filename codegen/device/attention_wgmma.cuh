//===- attention_wgmma.cuh - attention on Hopper -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streaming softmax of sm_90a. One thread copies tiles of queries, keys and values by tensor maps;
// two or three teams of four warps each own 64 of a block's queries. A team issues the product with
// the next keys, then the one with these values, and makes the softmax of the next while the second
// runs; named barriers give the next team the matrix units meanwhile. Keys are walked from last to
// first, so that the ones that not all queries see come first; where attention_blocks.cuh has listed
// what is seen, only those. The block takes one tile of queries after another; the first scores of
// the next are under way while the results of this one are stored. Where later queries see more keys
// the long ones come first, and every other round goes back through the blocks, which evens out what
// they have to do.
//
// Holes beside those of attention_tile.cuh:
//
//   static constexpr bool kListed;     there are lists, u16 of:
//   const u16 *list(i32 head, i32 batch, u32 row, u32 rows, i64 keys, int tile);   of tile `row` of queries
//   static void productQK(f32 (&s)[KEYS / 2], u64 q, u64 k, u32 add);            wgmmaMethod, of
//   static void productPV(f32 (&o)[kHeadV / 2], const u32 (&p)[KEYS / 16][4], u64 v, u32 add);   all steps
//   static constexpr int kGroup;       query heads of a key head
//   i32 keyHead(i32 h);
//   static constexpr bool kPages;      keys and values lie in pages of sixteen rows:
//   i64 sixteenPlaceK(i64 b, i64 h, i64 n);   the first element of keys 16 n on; the same of V
//   i64 strideK();                     elements from a row to the next
//   static constexpr bool kRowsO;      rows of results lie in memory in whole pieces of 16 bytes:
//   Element *rowO(i64 b, i64 h, i64 q);
//
// Tensor maps: [head size, length, heads, batch], boxes of 64 x (64 queries or KEYS) x 1 x 1, of pages
// [stride, rows], boxes of 64 x 16; with the 128-byte swizzle.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_WGMMA
#define LATHE_DEVICE_ATTENTION_WGMMA
#ifndef LATHE_EMULATE

/// SHARE: of softmaxStep.
template <int KEYS_, int HEAD_QK, int HEAD_V, int TEAMS_ = 2, int SHARE_ = 0> struct AttentionWgmmaTile {
  static constexpr int KEYS = KEYS_, TEAMS = TEAMS_, QUERIES = 64 * TEAMS, STAGES = 2, THREADS = 128 * (TEAMS + 1), SHARE = SHARE_;
  static constexpr int LOADING = TEAMS == 2 ? 24 : 32, COMPUTING = TEAMS == 2 ? 240 : 160; // registers
  static constexpr int CHUNKS_QK = (HEAD_QK + 63) / 64, CHUNKS_V = (HEAD_V + 63) / 64; // of 64 columns
  static constexpr u32 Q_CHUNK = 64 * 128, KV_CHUNK = KEYS * 128;
  /// Of a team's queries; of a tile's keys and values.
  static constexpr u32 Q_BYTES = CHUNKS_QK * Q_CHUNK, K_BYTES = CHUNKS_QK * KV_CHUNK, V_BYTES = CHUNKS_V * KV_CHUNK;
  static constexpr u32 K_AT = TEAMS * Q_BYTES, V_AT = K_AT + STAGES * K_BYTES, O_AT = V_AT + STAGES * V_BYTES;
  /// Where there is room for a warp's results, with rows apart by 16 bytes more than they are long,
  /// the copy engine stores them.
  static constexpr u32 O_ROW = HEAD_V * 2 + 16, BARRIER_BYTES = 8 * (2 * TEAMS + 4 * STAGES), MOST = 232448;
  static constexpr bool STAGED = 1024 + O_AT + QUERIES * O_ROW + BARRIER_BYTES <= MOST;
  static constexpr u32 BARRIERS_AT = O_AT + (STAGED ? QUERIES * O_ROW : 0);
  static constexpr u32 SHARED_BYTES = 1024 + BARRIERS_AT + BARRIER_BYTES;
};

/// A ring of tiles: which slot is next, and the parity of its barriers.
struct AttentionRing {
  u32 slot, parity;
  template <int STAGES> LATHE_METHOD void advance() {
    if (++slot == STAGES) { slot = 0; parity ^= 1; }
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

/// The tile of queries that this block takes in a round.
template <class H> LATHE_DEV u32 attentionTile(u32 round) {
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
    if (tile >= p.tiles) return w;
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

/// A box of 64 x 16 of a tile of keys or values in pages of sixteen rows, one for each lane: where it
/// lies in their memory, whose map has rows of `stride` elements.
struct AttentionPage { i32 column, row; };
template <class Tile, int CHUNKS, class Place>
LATHE_DEV AttentionPage pageOf(i32 k0, i32 last, i64 stride, Place place) {
  static_assert(Tile::KEYS / 16 * CHUNKS <= 32, "a lane for each box");
  const i32 lane = threadIdx.x, n = k0 / 16 + lane / CHUNKS;
  const i64 at = place(n < last ? n : last);
  const i32 row = (i32)(at / stride);
  return AttentionPage{(i32)(at - row * stride) + lane % CHUNKS * 64, row};
}
template <class Tile, int CHUNKS> LATHE_DEV void loadPage(SharedAddr to, const TensorMap &map, SharedAddr bar, const AttentionPage &page) {
  const i32 lane = threadIdx.x;
  if (lane < Tile::KEYS / 16 * CHUNKS)
    tensorLoad(to + lane % CHUNKS * Tile::KV_CHUNK + lane / CHUNKS * 16 * 128, map, bar, page.column, page.row);
}

/// A number that all lanes of a warp have, told so to the compiler: loops over it keep what names
/// operands of products in registers that a warp has once, instead of moving it there for each.
template <class N> LATHE_DEV N sameInWarp(N n) { return (N)shuffleFrom32((u32)n, 0); }

/// Stores a warp's 16 rows through its `stage` in shared memory. The stores before must have read it
/// (the lanes that issued them have waited), and still read it when this returns.
template <class Tile, class H, int N>
LATHE_DEV void stageResults(const H &h, const AttentionWork &w, i32 q0, i32 queries, SharedAddr stage, const f32 (&o)[N], const f32 (&inverse)[2]) {
  typedef typename H::Element T;
  const int lane = threadIdx.x % 32;
  const SharedAddr at = stage + ((lane & 7) + (lane >> 3 & 1) * 8) * Tile::O_ROW + (lane >> 4) * 16;
#pragma unroll
  for (int k = 0; k < N; k += 8) { // 16 columns; the last 8 of them may be the room between rows
    u32 r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int e = k + 2 * i < N ? k + 2 * i : 0;
      r[i] = packPair<T>(o[e] * inverse[i & 1], o[e + 1] * inverse[i & 1]);
    }
    storeMatrix4(at + 4 * k, r);
  }
  asyncFence();
  __syncwarp();
  if (lane < 16 && q0 + lane < queries) rowStore(h.rowO(w.batch, w.head, q0 + lane), stage + lane * Tile::O_ROW, H::kHeadV * 2);
  storeCommit();
}

template <class Tile, class H>
LATHE_DEV void attentionWgmma(const H &h, const TensorMap &mapQ, const TensorMap &mapK, const TensorMap &mapV, i64 heads, i64 batches, i64 queries, i64 keys) {
  typedef typename H::Element T;
  constexpr int KEYS = Tile::KEYS, STAGES = Tile::STAGES, TEAMS = Tile::TEAMS;
  LATHE_DYNAMIC_SHARED(raw);
  const SharedAddr base = (sharedAddr(raw) + 1023) & ~1023u, bars = base + Tile::BARRIERS_AT;
  const SharedAddr fullQ = bars, emptyQ = fullQ + 8 * TEAMS, fullK = emptyQ + 8 * TEAMS, emptyK = fullK + 8 * STAGES;
  const SharedAddr fullV = emptyK + 8 * STAGES, emptyV = fullV + 8 * STAGES;
  // A loop of its own for tiles that all queries see; not for the largest heads, whose text would
  // take too long to compile.
  constexpr bool UNMASKED = H::kPlainScore && !H::kListed && H::kHeadV <= 192;
  constexpr bool SKIPS = TEAMS > 2 && H::kCausal && !H::kListed;
  const u32 team = sameInWarp(threadIdx.x / 128);
  const AttentionPlan plan = attentionPlan<Tile, H>(heads, batches, queries, keys);
  const u32 tiles = plan.tiles;
  if (threadIdx.x == 0) {
    tensorMapPrefetch(mapQ);
    tensorMapPrefetch(mapK);
    tensorMapPrefetch(mapV);
    for (int t = 0; t < TEAMS; ++t) {
      barrierInit(fullQ + 8 * t, 1);
      barrierInit(emptyQ + 8 * t, 4); // a lane of each consuming warp
    }
    for (int s = 0; s < STAGES; ++s) {
      barrierInit(fullK + 8 * s, 1);
      barrierInit(emptyK + 8 * s, 4 * TEAMS);
      barrierInit(fullV + 8 * s, 1);
      barrierInit(emptyV + 8 * s, 4 * TEAMS);
    }
    barrierInitFence();
  }
  __syncthreads();

  if (team == 0) {
    registersLower<Tile::LOADING>();
    // One lane copies; a lane for each page where there are any.
    if (threadIdx.x >= (H::kPages ? 32 : 1)) return;
    const bool one = threadIdx.x == 0;
    AttentionRing k{0, 1}, v{0, 1}, q{0, 1};
    AttentionWork next = attentionWork<Tile>(h, blockIdx.x, plan, queries, keys);
    for (u32 round = 0, tile = blockIdx.x; tile < tiles;) {
      const AttentionWork w = next;
      const u32 nextTile = attentionTile<H>(++round);
      tile = nextTile;
      const i32 keyHead = h.keyHead(w.head);
      // Pages behind the last key that a query sees may be named by no table.
      const i32 last = H::kPages ? (i32)((maxIndex(1, minIndex(keys, h.keyEnd(w.batch, w.head, minIndex(w.q0 + Tile::QUERIES, queries) - 1))) + 15) / 16) - 1 : 0;
      i32 before = 0;
      AttentionPage pageK{}, pageV{}, pageBefore{};
      for (i32 n = w.blocks - 1; n >= -1; --n) { // values follow their keys one tile later
        const i32 k0 = n >= 0 ? (i32)(w.entry<H>(n) >> 1) * KEYS : 0;
        if constexpr (H::kPages) { // looked up before the room for them is there
          pageK = pageOf<Tile, Tile::CHUNKS_QK>(k0, last, h.strideK(), [&](i32 i) { return h.sixteenPlaceK(w.batch, w.head, i); });
          pageV = pageOf<Tile, Tile::CHUNKS_V>(k0, last, h.strideV(), [&](i32 i) { return h.sixteenPlaceV(w.batch, w.head, i); });
        }
        if (n >= 0) {
          barrierWait(emptyK + 8 * k.slot, k.parity);
          if (one) barrierExpect(fullK + 8 * k.slot, Tile::K_BYTES);
          const SharedAddr to = base + Tile::K_AT + k.slot * Tile::K_BYTES;
          if constexpr (H::kPages) {
            loadPage<Tile, Tile::CHUNKS_QK>(to, mapK, fullK + 8 * k.slot, pageK);
          } else {
            for (int c = 0; c < Tile::CHUNKS_QK; ++c) tensorLoad(to + c * Tile::KV_CHUNK, mapK, fullK + 8 * k.slot, 64 * c, k0, keyHead, w.batch);
          }
          k.advance<STAGES>();
        }
        if (n == w.blocks - 1) {
          for (int t = 0; t < TEAMS; ++t) {
            barrierWait(emptyQ + 8 * t, q.parity);
            if (!one) continue;
            barrierExpect(fullQ + 8 * t, Tile::Q_BYTES);
            for (int c = 0; c < Tile::CHUNKS_QK; ++c)
              tensorLoad(base + t * Tile::Q_BYTES + c * Tile::Q_CHUNK, mapQ, fullQ + 8 * t, 64 * c, w.q0 + 64 * t, w.head, w.batch);
          }
          q.advance<1>();
          next = attentionWork<Tile>(h, nextTile, plan, queries, keys); // meanwhile
        }
        if (n < w.blocks - 1) {
          barrierWait(emptyV + 8 * v.slot, v.parity);
          if (one) barrierExpect(fullV + 8 * v.slot, Tile::V_BYTES);
          const SharedAddr to = base + Tile::V_AT + v.slot * Tile::V_BYTES;
          if constexpr (H::kPages) {
            loadPage<Tile, Tile::CHUNKS_V>(to, mapV, fullV + 8 * v.slot, pageBefore);
          } else {
            for (int c = 0; c < Tile::CHUNKS_V; ++c) tensorLoad(to + c * Tile::KV_CHUNK, mapV, fullV + 8 * v.slot, 64 * c, before, keyHead, w.batch);
          }
          v.advance<STAGES>();
        }
        before = k0;
        pageBefore = pageV;
      }
    }
    return;
  }

  registersRaise<Tile::COMPUTING>();
  const u32 mine = team - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const u32 myTurn = 1 + mine, otherTurn = mine == TEAMS - 1 ? 1 : 2 + mine; // named barriers
  const f32 factor = scoreFactor<H>();
  const u64 descQ = wgmmaAlongK(base + mine * Tile::Q_BYTES);
  AttentionRing k{0, 0}, v{0, 0}, q{0, 0};
  f32 s[KEYS / 2], o[H::kHeadV / 2], keep[2], inverse[2];
  u32 p[KEYS / 16][4];
  if (mine == TEAMS - 1) namedBarrierArrive(otherTurn, 256); // the first team has the first turn

  auto issueScores = [&] {
    H::productQK(s, descQ, wgmmaAlongK(base + Tile::K_AT + k.slot * Tile::K_BYTES), 0);
    wgmmaCommit();
  };
  auto issueResults = [&] {
    H::productPV(o, p, wgmmaAcrossK(base + Tile::V_AT + v.slot * Tile::V_BYTES, Tile::KV_CHUNK), 1);
    wgmmaCommit();
  };
  auto release = [&](SharedAddr empty, AttentionRing &ring) {
    if (lane == 0) barrierArrive(empty + 8 * ring.slot);
    ring.advance<STAGES>();
  };

  auto releaseQ = [&] {
    if (lane == 0) barrierArrive(emptyQ + 8 * mine);
  };
  // This team's queries of a tile, and its first keys.
  auto waitForFirst = [&] {
    barrierWait(fullQ + 8 * mine, q.parity);
    q.advance<1>();
    barrierWait(fullK + 8 * k.slot, k.parity);
    namedBarrierSync(myTurn, 256);
  };
  // Keys from here on no query of this team sees.
  auto endOf = [&](const AttentionWork &w) {
    const i32 last = w.q0 + (i32)mine * 64 + 63;
    return sameInWarp((i32)h.keyEnd(w.batch, w.head, last < (i32)queries ? last : (i32)queries - 1));
  };
  // The scores of the next keys, then the results of these are under way; the scores are awaited.
  auto issueNext = [&] {
    barrierWait(fullK + 8 * k.slot, k.parity);
    namedBarrierSync(myTurn, 256);
    wgmmaFence();
    issueScores();
    barrierWait(fullV + 8 * v.slot, v.parity);
    wgmmaFence();
    issueResults();
    namedBarrierArrive(otherTurn, 256);
    wgmmaWait<1>();
    release(emptyK, k);
  };
  // Scores become weights, while the results of the keys before them, if any, are awaited.
  SoftmaxState state;
  auto weigh = [&](bool first) {
    softmaxStep<Tile::SHARE, !KeepsProducts<H>::value>(state, s, factor, keep);
    wgmmaWait<0>();
    if (!first) release(emptyV, v);
#pragma unroll
    for (int i = 0; i < H::kHeadV / 2; ++i) o[i] *= keep[i >> 1 & 1];
    packWeights<T>(s, p);
  };

  auto workOf = [&](u32 tile) {
    AttentionWork w = attentionWork<Tile>(h, tile, plan, queries, keys);
    w.blocks = sameInWarp(w.blocks);
    return w;
  };
  AttentionWork next = workOf(blockIdx.x);
  bool begun = false; // the scores of the first tile of keys are there
  for (u32 round = 0, tile = blockIdx.x; tile < tiles;) {
    const AttentionWork w = next;
    const i32 q0 = w.q0 + mine * 64;
    const AttentionPlace at{w.batch, w.head, (i32)(q0 + warp * 16 + lane / 4), (i32)queries};
    // Keys before the ends of all queries of this team.
    const i32 full = sameInWarp((i32)minIndex(keys, h.keyEnd(w.batch, w.head, minIndex(q0, queries - 1))));
    state = softmaxStart(h, at);
    tile = attentionTile<H>(++round);
    auto storeAll = [&] {
      softmaxEnd<H>(state, inverse);
      if constexpr (Tile::STAGED && H::kRowsO) {
        storeWaitRead<0>();
        __syncwarp();
        stageResults<Tile>(h, w, q0 + warp * 16, (i32)queries, base + Tile::O_AT + (mine * 4 + warp) * 16 * Tile::O_ROW, o, inverse);
      } else {
        storeResults(h, at, o, inverse);
      }
    };
#pragma unroll
    for (int i = 0; i < H::kHeadV / 2; ++i) o[i] = 0.0f;
    i32 n = w.blocks - 1;
    if (!begun) {
      // Tiles behind the ends of all queries of this team, but not of the others: only the turns.
      if constexpr (SKIPS) {
        const i32 end = endOf(w);
#pragma unroll 1
        for (; n > 0 && n * KEYS >= end; --n) {
          barrierWait(fullK + 8 * k.slot, k.parity);
          namedBarrierSync(myTurn, 256);
          namedBarrierArrive(otherTurn, 256);
          release(emptyK, k);
          barrierWait(fullV + 8 * v.slot, v.parity);
          release(emptyV, v);
        }
      }
      waitForFirst();
      wgmmaFence();
      issueScores();
      namedBarrierArrive(otherTurn, 256);
      wgmmaWait<0>();
      release(emptyK, k);
    }
    // Tiles that not all queries see, the first among them, then those without a mask.
    bool first = true;
#pragma unroll 1
    for (;;) {
      if (n == 0) releaseQ();
      const u32 entry = w.entry<H>(n);
      const i32 k0 = (i32)(entry >> 1) * KEYS;
      keepScores(h, at, s, k0, (i32)keys, k0 + KEYS <= full, H::kListed && entry % 2 == 0);
      weigh(first);
      first = false;
      if (--n < 0) break;
      issueNext();
      if (UNMASKED && (n + 1) * KEYS <= full) break;
    }
    if constexpr (UNMASKED)
      if (n >= 0) {
#pragma unroll 1
        for (;;) {
          if (n == 0) releaseQ();
          weigh(false);
          if (--n < 0) break;
          issueNext();
        }
      }
    next = workOf(tile);
    begun = tile < tiles;
    if constexpr (SKIPS) begun = begun && (next.blocks == 1 || (next.blocks - 1) * KEYS < endOf(next));
    barrierWait(fullV + 8 * v.slot, v.parity);
    if (SKIPS && !begun) {
      wgmmaFence();
      issueResults();
      wgmmaWait<0>();
      release(emptyV, v);
      storeAll();
      continue;
    }
    // Behind the last tile the scores are of no use; an end of its own would double the text.
    if (begun) waitForFirst();
    wgmmaFence();
    issueResults();
    issueScores();
    if (begun) namedBarrierArrive(otherTurn, 256);
    wgmmaWait<1>();
    release(emptyV, v);
    storeAll();
    wgmmaWait<0>();
    if (begun) release(emptyK, k);
  }
  if (Tile::STAGED && H::kRowsO) storeWaitAll();
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_ATTENTION_WGMMA
