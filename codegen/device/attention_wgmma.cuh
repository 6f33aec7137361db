//===- attention_wgmma.cuh - attention on Hopper -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streaming softmax of sm_90a. A warp copies tiles of queries and keys by tensor maps, one those of
// values, one those of a mask; two or three teams of four warps each own 64 of a block's queries. A team issues the product with
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
//   static constexpr bool kMaskTiles;  what comes to the scores lies in memory, in rows of keys, as Element:
//   i32 maskHead(i32 h), maskBatch(i32 b);
//   f32 scoreWith(f32 added, f32 dot); instead of the score of attention_tile.cuh
//   static constexpr bool kRowsO;      rows of results lie in memory in whole pieces of 16 bytes:
//   Element *rowO(i64 b, i64 h, i64 q);
//
// Tensor maps of queries, keys, values and a mask: [head size, length, heads, batch], boxes of 64 x (64
// queries or KEYS) x 1 x 1; of pages [stride, rows], boxes of 64 x 16; of masks [keys, queries, heads,
// batch], boxes of 64 x 64 x 1 x 1. With the 128-byte swizzle.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_WGMMA
#define LATHE_DEVICE_ATTENTION_WGMMA
#ifndef LATHE_EMULATE

/// SHARE: of softmaxStep. MASK: tiles of a mask are copied too.
template <int KEYS_, int HEAD_QK, int HEAD_V, int TEAMS_ = 2, int SHARE_ = 0, bool MASK_ = false> struct AttentionWgmmaTile {
  static constexpr int KEYS = KEYS_, TEAMS = TEAMS_, QUERIES = 64 * TEAMS, STAGES = 2, THREADS = 128 * (TEAMS + 1), SHARE = SHARE_;
  static constexpr int CHUNKS_QK = (HEAD_QK + 63) / 64, CHUNKS_V = (HEAD_V + 63) / 64; // of 64 columns
  static constexpr u32 Q_CHUNK = 64 * 128, KV_CHUNK = KEYS * 128;
  /// Of a team's queries; of a tile's keys and values.
  static constexpr u32 Q_BYTES = CHUNKS_QK * Q_CHUNK, K_BYTES = CHUNKS_QK * KV_CHUNK, V_BYTES = CHUNKS_V * KV_CHUNK;
  /// Of a team's mask: 64 rows, 64 columns a chunk.
  static constexpr bool MASK = MASK_;
  static constexpr u32 M_CHUNK = 64 * 128, M_BYTES = MASK ? (KEYS + 63) / 64 * M_CHUNK : 0;
  static constexpr u32 K_AT = TEAMS * Q_BYTES, V_AT = K_AT + STAGES * K_BYTES, M_AT = V_AT + STAGES * V_BYTES;
  static constexpr u32 O_AT = M_AT + TEAMS * M_BYTES;
  /// Where there is room for a warp's results, with rows apart by 16 bytes more than they are long,
  /// the copy engine stores them.
  static constexpr u32 O_ROW = HEAD_V * 2 + 16, BARRIER_BYTES = 8 * ((MASK ? 4 : 2) * TEAMS + 4 * STAGES), MOST = 232448;
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

/// A ring of tiles of keys, or of values, and the warp that fills it: one lane of it, or one for each box
/// where they lie in pages of sixteen rows.
template <class Tile, class H, bool VALUES> struct AttentionCopies {
  static constexpr i32 CHUNKS = VALUES ? Tile::CHUNKS_V : Tile::CHUNKS_QK, PAGES = Tile::KEYS / 16;
  static constexpr u32 BYTES = VALUES ? Tile::V_BYTES : Tile::K_BYTES;
  SharedAddr tiles, full; ///< the empty ones' barriers lie behind the full ones'
  AttentionRing ring;
  i32 known, column, row; ///< each lane: where the sixteen rows number `known` + lane lie, if known >= 0

  /// Keys or values from k0 on. `last`: the last sixteen of them that a query sees, behind which no page
  /// may be named.
  LATHE_METHOD void copy(const H &h, const TensorMap &map, const AttentionWork &w, i32 k0, i32 last) {
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
  if constexpr (AHEAD) next = workOf(blockIdx.x);
  for (u32 round = 0, tile = blockIdx.x; tile < plan.tiles;) {
    const AttentionWork w = AHEAD ? next : workOf(tile);
    tile = attentionTile<H>(++round);
    for (i32 n = w.blocks - 1; n >= 0; --n) {
      copy(w, (i32)(w.entry<H>(n) >> 1) * Tile::KEYS, n == w.blocks - 1);
      if (AHEAD && n == w.blocks - 1) next = workOf(tile);
    }
  }
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

/// Turns a team's products with a tile of keys into kept scores, with what its tile of the mask adds.
/// Keys of the tile from `last` of a row on are not seen.
template <class Tile, class H, int N>
LATHE_DEV void addMask(const H &h, f32 (&s)[N], SharedAddr tile, const i32 (&last)[2]) {
  typedef typename H::Element T;
  const int lane = threadIdx.x % 32, column = lane % 4 * 2, row = threadIdx.x / 32 % 4 * 16 + (lane & 15);
#pragma unroll
  for (int k = 0; k < 2 * N; k += 16) { // each lane tells the address of a row of one of four matrices
    const int piece = k % 64 / 8 + (lane >> 4);
    u32 words[4];
    loadMatrix4(words, tile + k / 64 * Tile::M_CHUNK + row * 128 + ((piece ^ (row & 7)) << 4));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Vec<T, 2> two;
      memcpy(&two, &words[i], 4);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        f32 &score = s[k / 2 + i * 2 + e];
        const f32 kept = h.scoreWith(toF32(two.v[e]), score);
        score = k + i / 2 * 8 + column + e < last[i & 1] ? kept : bitsToF32(0xff800000u);
      }
    }
  }
}

template <class Tile, class H>
LATHE_DEV void attentionWgmma(const H &h, const TensorMap &mapQ, const TensorMap &mapK, const TensorMap &mapV, const TensorMap &mapM, i64 heads, i64 batches, i64 queries, i64 keys) {
  typedef typename H::Element T;
  constexpr int KEYS = Tile::KEYS, STAGES = Tile::STAGES, TEAMS = Tile::TEAMS;
  LATHE_DYNAMIC_SHARED(raw);
  const SharedAddr base = (sharedAddr(raw) + 1023) & ~1023u, bars = base + Tile::BARRIERS_AT;
  const SharedAddr fullQ = bars, emptyQ = fullQ + 8 * TEAMS, fullK = emptyQ + 8 * TEAMS, emptyK = fullK + 8 * STAGES;
  const SharedAddr fullV = emptyK + 8 * STAGES, emptyV = fullV + 8 * STAGES;
  const SharedAddr fullM = emptyV + 8 * STAGES, emptyM = fullM + 8 * TEAMS;
  // A loop of its own for tiles that all queries see; not for the largest heads, whose text would
  // take too long to compile.
  constexpr bool UNMASKED = H::kPlainScore && !H::kListed && H::kHeadV <= 192;
  constexpr bool SKIPS = TEAMS > 2 && H::kCausal && !H::kListed;
  static_assert(!SKIPS || !Tile::MASK, "a team that skips a tile leaves its mask");
  // Registers of a thread that copies, and of one that computes: 168 or 128 are there for each.
  constexpr int LOADING = TEAMS > 2 ? 32 : H::kHeadV > 192 && !H::kPages ? 24 : 40;
  constexpr int COMPUTING = ((TEAMS > 2 ? 128 : 168) * (TEAMS + 1) - LOADING) / TEAMS;
  const u32 team = sameInWarp(threadIdx.x / 128);
  const AttentionPlan plan = attentionPlan<Tile, H>(heads, batches, queries, keys);
  const u32 tiles = plan.tiles;
  if (threadIdx.x == 0) {
    tensorMapPrefetch(mapQ);
    tensorMapPrefetch(mapK);
    tensorMapPrefetch(mapV);
    if constexpr (Tile::MASK) tensorMapPrefetch(mapM);
    for (int t = 0; t < TEAMS; ++t) {
      barrierInit(fullQ + 8 * t, 1);
      barrierInit(emptyQ + 8 * t, 4); // a lane of each consuming warp
      if constexpr (Tile::MASK) {
        barrierInit(fullM + 8 * t, 1);
        barrierInit(emptyM + 8 * t, 4);
      }
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
    registersLower<LOADING>();
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp > (Tile::MASK ? 2 : 1) || lane >= (H::kPages && warp < 2 ? 32 : 1)) return;
    // The last sixteen rows that a query of the tile sees, behind which no page may be named.
    i32 last = 0;
    auto lastOf = [&](const AttentionWork &w) {
      if constexpr (H::kPages)
        last = (i32)((maxIndex(1, minIndex(keys, h.keyEnd(w.batch, w.head, minIndex(w.q0 + Tile::QUERIES, queries) - 1))) + 15) / 16) - 1;
    };
    u32 parity = 1; // of what each tile of queries or of the mask waits for
    if (warp == 0) {
      AttentionCopies<Tile, H, false> copies{base + Tile::K_AT, fullK, AttentionRing{0, 1}, -1, 0, 0};
      overAttentionTiles<Tile>(h, plan, queries, keys, [&](const AttentionWork &w, i32 k0, bool first) {
        if (first) {
          lastOf(w);
          copies.known = -1;
        }
        copies.copy(h, mapK, w, k0, last);
        if (!first) return;
        for (u32 t = 0; t < TEAMS; ++t) {
          barrierWait(emptyQ + 8 * t, parity);
          if (lane != 0) continue;
          barrierExpect(fullQ + 8 * t, Tile::Q_BYTES);
          for (u32 c = 0; c < Tile::CHUNKS_QK; ++c)
            tensorLoad(base + t * Tile::Q_BYTES + c * Tile::Q_CHUNK, mapQ, fullQ + 8 * t, 64 * c, w.q0 + 64 * t, w.head, w.batch);
        }
        parity ^= 1;
      });
    } else if (warp == 1) {
      AttentionCopies<Tile, H, true> copies{base + Tile::V_AT, fullV, AttentionRing{0, 1}, -1, 0, 0};
      overAttentionTiles<Tile>(h, plan, queries, keys, [&](const AttentionWork &w, i32 k0, bool first) {
        if (first) {
          lastOf(w);
          copies.known = -1;
        }
        copies.copy(h, mapV, w, k0, last);
      });
    } else if constexpr (Tile::MASK) {
      overAttentionTiles<Tile>(h, plan, queries, keys, [&](const AttentionWork &w, i32 k0, bool) {
        for (u32 t = 0; t < TEAMS; ++t) {
          const SharedAddr bar = fullM + 8 * t;
          barrierWait(emptyM + 8 * t, parity);
          barrierExpect(bar, Tile::M_BYTES);
          for (u32 c = 0; c < Tile::M_BYTES / Tile::M_CHUNK; ++c)
            tensorLoad(base + Tile::M_AT + t * Tile::M_BYTES + c * Tile::M_CHUNK, mapM, bar, k0 + 64 * c, w.q0 + 64 * t, h.maskHead(w.head), h.maskBatch(w.batch));
        }
        parity ^= 1;
      });
    }
    return;
  }

  registersRaise<COMPUTING>();
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

  // Products with the tile of keys from k0 on become scores. `full`: keys that all queries of the team see;
  // `open`: a boolean mask hides none of the tile.
  u32 parityM = 0;
  auto toScores = [&](const AttentionPlace &at, i32 k0, i32 full, bool open) {
    if constexpr (Tile::MASK) {
      i32 last[2] = {KEYS, KEYS};
      if (k0 + KEYS > full)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const i32 q = at.q + 8 * r < at.queries ? at.q + 8 * r : at.queries - 1;
          last[r] = (i32)minIndex(keys, h.keyEnd(at.b, at.head, q)) - k0;
        }
      barrierWait(fullM + 8 * mine, parityM);
      parityM ^= 1;
      addMask<Tile>(h, s, base + Tile::M_AT + mine * Tile::M_BYTES, last);
      if (lane == 0) barrierArrive(emptyM + 8 * mine);
    } else {
      keepScores(h, at, s, k0, (i32)keys, k0 + KEYS <= full, open);
    }
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
      storeLogSums(h, at, state);
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
      toScores(at, k0, full, H::kListed && entry % 2 == 0);
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
