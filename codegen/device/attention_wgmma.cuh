//===- attention_wgmma.cuh - attention on Hopper -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: attention_copies
//
// Attention with an online softmax on sm_90a, warp-specialized: producer warps load (attention_copies.cuh),
// and two or three warpgroups each compute 64 of a block's queries. A warpgroup issues the product of its
// queries with the next tile of keys, then that of its weights with the current tile of values, and
// computes the softmax of the former while the latter runs; named barriers let another warpgroup use the
// tensor cores meanwhile. This pipeline also runs across the end of a tile of queries.
//
// Holes beside those of attention_tile.cuh and attention_copies.cuh:
//
//   static void productQK(f32 (&s)[KEYS / 2], u64 q, u64 k, u32 add);            wgmmaMethod, of
//   static void productPV(f32 (&o)[kHeadV / 2], const u32 (&p)[KEYS / 16][4], u64 v, u32 add);   all steps
//   f32 scoreWith(f32 added, f32 dot); with tiles of a mask: instead of the score of attention_tile.cuh
//   static constexpr bool kRowsO;      rows of results lie in memory in whole pieces of 16 bytes:
//   Element *rowO(i64 b, i64 h, i64 q);
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_WGMMA
#define LATHE_DEVICE_ATTENTION_WGMMA
#ifndef LATHE_EMULATE

/// SHARE: of softmaxStep. Q_STAGES: 2 where the next queries are copied ahead.
template <int KEYS_, int HEAD_QK, int HEAD_V, int WARPGROUPS_ = 2, int SHARE_ = 0, AttentionMask MASK_ = NO_MASK, int Q_STAGES_ = 1> struct AttentionWgmmaTile {
  static constexpr int KEYS = KEYS_, WARPGROUPS = WARPGROUPS_, QUERIES = 64 * WARPGROUPS, STAGES = 2, THREADS = 128 * (WARPGROUPS + 1), SHARE = SHARE_;
  static constexpr int CHUNKS_QK = (HEAD_QK + 63) / 64, CHUNKS_V = (HEAD_V + 63) / 64; // of 64 columns
  static constexpr u32 Q_CHUNK = 64 * 128, KV_CHUNK = KEYS * 128;
  /// Of a warpgroup's queries; of a tile's keys and values.
  static constexpr u32 Q_BYTES = CHUNKS_QK * Q_CHUNK, K_BYTES = CHUNKS_QK * KV_CHUNK, V_BYTES = CHUNKS_V * KV_CHUNK;
  /// Of a warpgroup's mask: 64 rows, 64 columns a chunk. Of a row for all: a number for each key.
  static constexpr AttentionMask MASK = MASK_;
  static constexpr u32 M_CHUNK = 64 * 128, M_BYTES = MASK == MASK_TILES ? (KEYS + 63) / 64 * M_CHUNK : KEYS * 4;
  static constexpr int MASKS = MASK == MASK_TILES ? WARPGROUPS : MASK == MASK_ROW ? STAGES : 0;
  /// Where there is room for a warp's results, with rows apart by 16 bytes more than they are long,
  /// TMA stores them.
  static constexpr u32 O_ROW = HEAD_V * 2 + 16, MOST = 232448;
  static constexpr u32 barrierBytes(int qStages) { return 8 * 2 * (qStages * WARPGROUPS + MASKS + 2 * STAGES); }
  static constexpr u32 tileBytes(int qStages) { return qStages * WARPGROUPS * Q_BYTES + STAGES * (K_BYTES + V_BYTES) + MASKS * M_BYTES; }
  static constexpr bool STAGED = tileBytes(1) + QUERIES * O_ROW + barrierBytes(1) <= MOST;
  static constexpr u32 O_BYTES = STAGED ? QUERIES * O_ROW : 0;
  static constexpr int Q_STAGES = Q_STAGES_;
  static constexpr u32 K_AT = Q_STAGES * WARPGROUPS * Q_BYTES, V_AT = K_AT + STAGES * K_BYTES, M_AT = V_AT + STAGES * V_BYTES;
  static constexpr u32 O_AT = M_AT + MASKS * M_BYTES, BARRIERS_AT = O_AT + O_BYTES;
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + barrierBytes(Q_STAGES);
};

/// Tells the compiler that a number is the same in all lanes of a warp. Loops over it then keep the
/// descriptors of products in uniform registers, instead of moving them there for each product.
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

/// Turns a warpgroup's products with a tile of keys into kept scores, with what its tile of the mask adds.
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

/// Turns products with a tile of keys into kept scores, exponents of two, with what a row of the mask adds.
/// Keys of the tile from `last` of a query on are not seen.
template <class H, bool ENDS, int N>
LATHE_DEV void addRow(f32 (&s)[N], SharedAddr row, const i32 (&last)[2]) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int k = 0; k < N; k += 4) {
    const Vec<f32, 2> two = loadShared8(row + 4 * (2 * k + column));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const f32 kept = fmaf(s[k + i], H::kScale * kLog2e, two.v[i & 1]);
      s[k + i] = !ENDS || 2 * k + column + (i & 1) < last[i >> 1] ? kept : bitsToF32(0xff800000u);
    }
  }
}

template <class Tile, class H>
LATHE_DEV void attentionWgmma(const H &h, const TensorMap &mapQ, const TensorMap &mapK, const TensorMap &mapV, const TensorMap &mapM, i64 heads, i64 batches, i64 queries, i64 keys) {
  typedef typename H::Element T;
  constexpr int KEYS = Tile::KEYS, STAGES = Tile::STAGES, WARPGROUPS = Tile::WARPGROUPS;
  // The swizzle wants tiles at multiples of 1024 bytes, and there is no room to look for one.
  extern __shared__ __align__(1024) u8 attentionTiles[];
  const SharedAddr base = sharedAddr(attentionTiles);
  const AttentionBarriers<Tile> bars{base + Tile::BARRIERS_AT};
  // Which cases are compiled separately: where that is faster, and as far as compile time allows
  // (test/perf/gpu/compile_cost.py). A second loop for tiles that all queries see: heads of 128 are as fast
  // without it, heads of 192 lose 2 %.
  constexpr bool UNMASKED = H::kPlainScore && !H::kListed && H::kHeadQK + H::kHeadV < 256;
  // Whether the pipeline runs across the end of a tile of queries: its last results are computed behind the
  // first scores of the next tile, and stored behind their softmax. With three warpgroups, or masks, there are
  // no registers for that.
  constexpr bool LATER = WARPGROUPS <= 2 && H::kPlainScore;
  // Whether the first tile of keys is compiled separately; long masks gain at most 3 % from it.
  constexpr bool APART = LATER || Tile::MASK == MASK_ROW;
  // Whether a tile of keys behind the first can have ends: where all queries have the same one, only the first.
  // The largest heads are faster when it is looked for nevertheless.
  constexpr bool ENDS = !APART || !H::kPlainScore || H::kCausal || H::kHeadV > 192;
  // The last results of a block are computed in the loop too, beside scores of stale shared memory that nobody
  // uses: compiled separately, the largest heads, and masks with lists, would take too long to compile.
  constexpr bool ONE_TEXT = H::kHeadQK > 128 || H::kHeadV > 128 || H::kListed;
  // How many groups of four weights are computed before waiting for the results of the previous keys. With -1
  // the compiler places the wait, earlier. Values as measured.
  constexpr bool STEPS = H::kHeadV == 64 || H::kHeadV == 128 || (H::kHeadV == 192 && H::kCausal);
  constexpr int STEP = STEPS && (APART || H::kPlainScore) ? KEYS / 16 : -1;
  constexpr bool SKIPS = WARPGROUPS > 2 && H::kCausal && !H::kListed;
  static_assert(!SKIPS || Tile::MASK == NO_MASK, "a warpgroup that skips a tile leaves its mask");
  // Registers of a thread that copies, and of one that computes: 168 or 128 are there for each.
  constexpr int LOADING = WARPGROUPS > 2 ? 32 : H::kHeadV > 192 && !H::kPages ? 24 : 40;
  constexpr int COMPUTING = ((WARPGROUPS > 2 ? 128 : 168) * (WARPGROUPS + 1) - LOADING) / WARPGROUPS;
  const u32 warpgroup = sameInWarp(threadIdx.x / 128);
  const AttentionPlan plan = attentionPlan<Tile, H>(heads, batches, queries, keys);
  if (threadIdx.x == 0) {
    tensorMapPrefetch(mapQ);
    tensorMapPrefetch(mapK);
    tensorMapPrefetch(mapV);
    if constexpr (Tile::MASK == MASK_TILES) tensorMapPrefetch(mapM);
    bars.init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    registersLower<LOADING>();
    copyAttention<Tile>(h, mapQ, mapK, mapV, mapM, base, plan, queries, keys);
    return;
  }

  registersRaise<COMPUTING>();
  const u32 mine = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const u32 myTurn = 1 + mine, otherTurn = mine == WARPGROUPS - 1 ? 1 : 2 + mine; // named barriers
  const f32 factor = scoreFactor<H>();
  AttentionRing k{0, 0}, v{0, 0}, m{0, 0};
  f32 s[KEYS / 2], o[H::kHeadV / 2] = {}, keep[2];
  u32 p[KEYS / 16][4] = {};
  if (mine == WARPGROUPS - 1) namedBarrierArrive(otherTurn, 256); // the first warpgroup has the first turn

  u32 round = 0; // of tiles of queries
  auto issueScores = [&] {
    H::productQK(s, wgmmaAlongK(base + (mine * Tile::Q_STAGES + round % Tile::Q_STAGES) * Tile::Q_BYTES), wgmmaAlongK(base + Tile::K_AT + k.slot * Tile::K_BYTES), 0);
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
    if (lane == 0) barrierArrive(bars.emptyQ() + 8 * (mine * Tile::Q_STAGES + round % Tile::Q_STAGES));
  };

  // Products with the tile of keys from k0 on become scores. `full`: keys that all queries of the warpgroup see;
  // `open`: a boolean mask hides none of the tile.
  auto toScores = [&](const AttentionPlace &at, i32 k0, i32 full, bool open) {
    if constexpr (Tile::MASK == NO_MASK) {
      keepScores<true>(h, at, s, k0, (i32)keys, k0 + KEYS <= full, open);
    } else {
      i32 last[2] = {KEYS, KEYS};
      const bool ends = k0 + KEYS > full;
      if (ends)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const i32 q = at.q + 8 * r < at.queries ? at.q + 8 * r : at.queries - 1;
          last[r] = (i32)minIndex(keys, h.keyEnd(at.b, at.head, q)) - k0;
        }
      if constexpr (Tile::MASK == MASK_TILES) {
        barrierWait(bars.fullM() + 8 * mine, m.parity);
        addMask<Tile>(h, s, base + Tile::M_AT + mine * Tile::M_BYTES, last);
        if (lane == 0) barrierArrive(bars.emptyM() + 8 * mine);
        m.advance<1>();
      } else {
        barrierWait(bars.fullM() + 8 * m.slot, m.parity);
        const SharedAddr row = base + Tile::M_AT + m.slot * Tile::M_BYTES;
        if (H::kCausal && ends) addRow<H, true>(s, row, last);
        else addRow<H, false>(s, row, last);
        barrierArrive(bars.emptyM() + 8 * m.slot);
        m.advance<STAGES>();
      }
    }
  };
  // This warpgroup's queries of a tile, and its first keys.
  auto waitForFirst = [&] {
    barrierWait(bars.fullQ() + 8 * (mine * Tile::Q_STAGES + round % Tile::Q_STAGES), round / Tile::Q_STAGES % 2);
    barrierWait(bars.fullK() + 8 * k.slot, k.parity);
    namedBarrierSync(myTurn, 256);
  };
  // Keys from here on no query of this warpgroup sees.
  auto endOf = [&](const AttentionWork &w) {
    const i32 last = w.q0 + (i32)mine * 64 + 63;
    return sameInWarp((i32)h.keyEnd(w.batch, w.head, last < (i32)queries ? last : (i32)queries - 1));
  };
  auto workOf = [&](u32 tile) {
    AttentionWork w = attentionWork<Tile>(h, tile, plan, queries, keys);
    w.blocks = sameInWarp(w.blocks);
    return w;
  };
  auto storeAll = [&](const AttentionWork &w, SoftmaxState &state) {
    const i32 q0 = w.q0 + mine * 64 + warp * 16;
    const AttentionPlace at{w.batch, w.head, (i32)(q0 + lane / 4), (i32)queries};
    f32 inverse[2];
    softmaxEnd<H>(state, inverse);
    storeLogSums(h, at, state);
    if constexpr (Tile::STAGED && H::kRowsO) {
      storeWaitRead<0>();
      __syncwarp();
      stageResults<Tile>(h, w, q0, (i32)queries, base + Tile::O_AT + (mine * 4 + warp) * 16 * Tile::O_ROW, o, inverse);
    } else {
      storeResults(h, at, o, inverse);
    }
  };
  // Behind the last keys of a tile, when no others are at hand.
  auto finish = [&](const AttentionWork &w, SoftmaxState &state) {
    barrierWait(bars.fullV() + 8 * v.slot, v.parity);
    wgmmaFence();
    issueResults();
    wgmmaWait<0>();
    release(bars.emptyV(), v);
    storeAll(w, state);
  };

  // Over at once: the phase that was waited for. The compiler moves no instruction across it.
  auto pause = [&] { barrierWait(bars.fullV() + 8 * v.slot, v.parity); };

  SoftmaxState state;
  AttentionWork w{(i32)queries, 0, 0, 0, nullptr}, next = workOf(attentionTile(h, plan, 0));
  bool ends = false; // the last weights of a tile `w` are in p, their products with values still to be made
  for (u32 tile = attentionTile(h, plan, 0); ONE_TEXT || tile < plan.tiles;) {
    const bool more = !ONE_TEXT || tile < plan.tiles; // else this is the last turn, which ends with the results
    if constexpr (ONE_TEXT && !SKIPS) ends = round > 0;
    i32 n = next.blocks - 1;
    // Tiles behind the ends of all queries of this warpgroup, but not of the others: only the turns.
    if constexpr (SKIPS) {
      const i32 end = endOf(next);
      if (more && n > 0 && n * KEYS >= end) {
        if (ends) finish(w, state);
        ends = false;
#pragma unroll 1
        for (; n > 0 && n * KEYS >= end; --n) {
          barrierWait(bars.fullK() + 8 * k.slot, k.parity);
          namedBarrierSync(myTurn, 256);
          namedBarrierArrive(otherTurn, 256);
          release(bars.emptyK(), k);
          barrierWait(bars.fullV() + 8 * v.slot, v.parity);
          release(bars.emptyV(), v);
        }
      }
    }
    // The first scores of a tile of queries, while the last results of the one before are made.
    const i32 q0 = next.q0 + mine * 64;
    const AttentionPlace at{next.batch, next.head, (i32)(q0 + warp * 16 + lane / 4), (i32)queries};
    if (more) waitForFirst();
    auto awaitValues = [&] {
      if (ends) barrierWait(bars.fullV() + 8 * v.slot, v.parity);
      wgmmaFence();
    };
    auto releaseLast = [&] {
      if (lane == 0 && ends) barrierArrive(bars.emptyV() + 8 * v.slot);
      v.advance<STAGES>(ends);
    };
    // In the first step there are no previous results: the product is computed nevertheless, because a branch
    // around it would double the code.
    if constexpr (LATER) {
      wgmmaFence();
      issueScores();
      awaitValues();
      issueResults();
    } else {
      awaitValues();
      issueResults();
      issueScores();
    }
    if (more) namedBarrierArrive(otherTurn, 256);
    wgmmaWait<1>();
    if constexpr (!LATER) {
      if (ends) {
        release(bars.emptyV(), v);
        storeAll(w, state);
      }
      wgmmaWait<0>();
      if (!more) break;
    }
    if (more) release(bars.emptyK(), k);
    // Keys before the ends of all queries of this warpgroup.
    const i32 full = sameInWarp((i32)minIndex(keys, h.keyEnd(next.batch, next.head, minIndex(q0, queries - 1))));
    auto scoresOf = [&](const AttentionWork &work) {
      const u32 entry = work.entry<H>(n);
      toScores(at, (i32)(entry >> 1) * KEYS, full, H::kListed && entry % 2 == 0);
    };
    // The scores of the next keys, then the results of these are under way; the scores are awaited.
    auto issueNext = [&] {
      --n;
      barrierWait(bars.fullK() + 8 * k.slot, k.parity);
      namedBarrierSync(myTurn, 256);
      wgmmaFence();
      issueScores();
      barrierWait(bars.fullV() + 8 * v.slot, v.parity);
      wgmmaFence();
      issueResults();
      namedBarrierArrive(otherTurn, 256);
      wgmmaWait<1>();
      release(bars.emptyK(), k);
    };
    // Scores become weights, while the results of the keys before them, if any, are made.
    auto weigh = [&](bool first) {
      softmaxStep<Tile::SHARE, !KeepsProducts<H>::value>(state, s, factor, keep, STEP, [&] {
        if constexpr (STEP >= 0) pause();
        wgmmaWait<0>();
        if (!first) release(bars.emptyV(), v);
      });
#pragma unroll
      for (int i = 0; i < H::kHeadV / 2; ++i) o[i] *= keep[i >> 1 & 1];
      packWeights<T>(s, p);
    };
    SoftmaxState begun = softmaxStart(h, at);
    if constexpr (APART) {
      if (more && n == 0) releaseQ();
      scoresOf(next);
      softmaxStep<Tile::SHARE, !KeepsProducts<H>::value>(begun, s, factor, keep, -1, [&] {
        if constexpr (LATER) {
          if constexpr (STEP >= 0) pause();
          wgmmaWait<0>();
          releaseLast();
        }
      });
      packWeights<T>(s, p);
      if constexpr (LATER) {
        storeAll(w, state);
        if (!more) break;
      }
    }
#pragma unroll
    for (int i = 0; i < H::kHeadV / 2; ++i) o[i] = 0.0f;
    ends = true;
    state = begun;
    w = next;

    // Tiles that not all queries see, the first among them if it is still to be weighed, then those
    // without a mask.
    if constexpr (!APART) {
      for (bool first = true;; first = false) {
        if (n == 0) releaseQ();
        scoresOf(w);
        weigh(first);
        if (n == 0 || (UNMASKED && n * KEYS <= full)) break;
        issueNext();
      }
    } else if constexpr (ENDS) {
#pragma unroll 1
      while (n > 0 && !(UNMASKED && n * KEYS <= full)) {
        issueNext();
        if (n == 0) releaseQ();
        scoresOf(w);
        weigh(false);
      }
    }
    if constexpr (UNMASKED || !ENDS) {
#pragma unroll 1
      while (n > 0) {
        issueNext();
        if (n == 0) releaseQ();
        weigh(false);
      }
    }
    tile = attentionTile(h, plan, ++round);
    next = workOf(tile);
  }
  if (!ONE_TEXT && ends) finish(w, state);
  if (Tile::STAGED && H::kRowsO) storeWaitAll();
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_ATTENTION_WGMMA
