//===- attention_ragged.cuh - tokens of many sequences over their keys -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, split, mma, attention_tile
//
// A batch of tokens of several sequences, prompts and answers together: neighbours of one sequence have the same keys
// and values, in pages of sixteen, and each sees them up to an end of its own. A kernel ahead cuts the batch into tiles
// of neighbours with the same keys (attentionRaggedTiles); blocks take tiles and heads off that list until none is left,
// so that one launch serves any lengths. The rows of a tile are its tokens times the query heads that share a key head,
// 16 a warp. Keys and values come in tiles of KEYS, several ahead:
//
//   S[16 rows x KEYS] = Q K'
//   O[16 rows x DV] += P V
//
// Of few tokens behind many keys, as of a prompt that comes in pieces beside others that generate, a tile is several units of
// work, each with a part of the keys: all but one leave what they have in the workspace, and the one with the first keys, which
// is taken last, adds it to its own. A tile of one warp's rows, as that of a sequence that generates, is everybody's: each warp
// takes sixteen keys of each tile of keys, and the warps' parts are added in their order. Where each sequence has one token, and
// they are few, there is no list, and warps are blocks that share a tile (attention_ragged_cluster.cuh). Holes: attention_tile.cuh,
// of one token a batch whose queries are the heads that share, and
//
//   i64 keysOf(i64 b);                 neighbours with the same number have the same keys and values
//   const Element *sixteenK(i64 b, i64 h, i64 n);   the keys from 16 n on
//   i64 strideK();                     elements from one of them to the next; the same of V
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_RAGGED
#define LATHE_DEVICE_ATTENTION_RAGGED

/// ROWS of tiles that are everybody's.
constexpr int kRowsOfOneOrder = 16;

/// HEADS: those that share a key head. ROWS: of a tile at most, 16 a warp, or 16 alone: then all tiles are everybody's,
/// and the bits of a row depend on nothing but its own keys. BLOCKS that share such a tile, WARPS each: the same bits as of
/// one block with all their warps.
template <int WARPS_, int ROWS_, int HEADS_, int STAGES_, int HEAD_QK, int HEAD_V, int BLOCKS_ = 1> struct AttentionRaggedTile {
  static constexpr int WARPS = WARPS_, THREADS = 32 * WARPS, KEYS = 16 * WARPS, ROWS = ROWS_, HEADS = HEADS_, STAGES = STAGES_, TOKENS = ROWS / HEADS;
  static constexpr int BLOCKS = BLOCKS_;
  static_assert((ROWS == 16 || (ROWS == 16 * WARPS && BLOCKS == 1)) && TOKENS > 0, "rows of one warp or of all");
  static constexpr int DQ = roundedUp(HEAD_QK, 16), DV = roundedUp(HEAD_V, 16);
  typedef SwizzledTile<powerFrom(DQ)> LayoutQK;
  typedef SwizzledTile<powerFrom(DV)> LayoutV;
  static constexpr int K_BYTES = KEYS * powerFrom(DQ) * 2, STEP_BYTES = K_BYTES + KEYS * powerFrom(DV) * 2;
  static constexpr int STRIDE = DV + 4; // f32 of a row of results, padded against bank conflicts
  static constexpr int LEFT = BLOCKS > 1 ? HEADS : 16;  // rows of which warps leave something: several blocks take one token
  static constexpr int PART = LEFT * STRIDE + 2 * LEFT; // a warp's results, largest scores and sums
  static constexpr int PART_BYTES = BLOCKS * WARPS * PART * 4;
  /// Parts take the place of the ring, unless other blocks send them while it is read.
  static constexpr int PARTS_AT = BLOCKS > 1 ? STAGES * STEP_BYTES : 0;
  static constexpr int RING_BYTES = PARTS_AT + PART_BYTES > STAGES * STEP_BYTES ? PARTS_AT + PART_BYTES : STAGES * STEP_BYTES;
  static constexpr int SHARED_BYTES = RING_BYTES + 16; // and the number of the next tile
};

/// A block that reads all keys of a tile. Of several that share them the last joins what all of them `give`.
struct RaggedBlock {
  static LATHE_METHOD u32 rank() { return 0; }
  static LATHE_METHOD f32 *parts(f32 *own) { return own; } ///< where the last block finds them
  static LATHE_METHOD void give(f32 *place, f32 value) { *place = value; }
  static LATHE_METHOD void begin() {}                      ///< to be called before anything is given
  static LATHE_METHOD void meet() {}                       ///< until all blocks have begun
  static LATHE_METHOD void given() { __syncthreads(); }    ///< until the last block has what all give
};

/// Tokens first .. first + count - 1, and which of `parts` of their keys. What parts 1 .. parts - 1 leave has places from
/// `place` on. No tokens: there is nothing to do.
struct RaggedTile {
  u32 first;
  u8 count, place, part, parts;
};
/// Of steps of so many tokens at most are keys split, into so many parts at most of so many keys at least; what all tiles'
/// parts leave has so many places.
constexpr int RAGGED_FEW = 512, RAGGED_PARTS = 8, RAGGED_KEYS = 1024, RAGGED_PLACES = 128;
/// How many tiles there are, and which unit of work is the first that no block has taken.
struct RaggedList {
  u32 count, next;
  RaggedTile tiles[1];
};

/// Where parts of keys leave results, largest scores and sums, as the threads hold them: behind the list, words, then f32.
template <class Tile> struct RaggedParts {
  static constexpr int EACH = Tile::DV / 2 + 4, SIZE = EACH * Tile::THREADS;
  u64 *there;
  f32 *data;
  LATHE_METHOD RaggedParts(RaggedList *list, i64 batch, i64 heads, u32 place, i64 head) {
    u64 *const words = (u64 *)((u8 *)list + 16 + 8 * RAGGED_PARTS * batch);
    there = words + place * heads + head;
    data = (f32 *)(words + RAGGED_PLACES * heads) + (place * heads + head) * SIZE + threadIdx.x;
  }
  LATHE_METHOD f32 &at(int i) const { return data[i * Tile::THREADS]; }
};

/// The holes of a tile: its rows are tokens times heads.
template <class H, int HEADS> struct RaggedRows : H {
  static constexpr bool kCausal = true; // rows have ends of their own
  i64 first;
  LATHE_METHOD RaggedRows(const H &h, i64 first) : H(h), first(first) {}
  LATHE_METHOD i64 token(i64 row) const { return first + row / HEADS; }
  LATHE_METHOD i64 keyEnd(i64, i64 h, i64 row) const { return H::keyEnd(token(row), h, row % HEADS); }
  LATHE_METHOD i64 keyBegin(i64, i64 h, i64 row) const { return H::keyBegin(token(row), h, row % HEADS); }
  LATHE_METHOD auto rowQ(i64, i64 h, i64 row) const { return H::rowQ(token(row), h, row % HEADS); }
  LATHE_METHOD auto elementQ(i64, i64 h, i64 row, i64 d) const { return H::elementQ(token(row), h, row % HEADS, d); }
  LATHE_METHOD f32 sink(i64, i64 h, i64 row) const { return H::sink(token(row), h, row % HEADS); }
  LATHE_METHOD bool seen(i64, i64 h, i64 row, i64 k) const { return H::seen(token(row), h, row % HEADS, k); }
  LATHE_METHOD f32 score(i64, i64 h, i64 row, i64 k, f32 dot) const { return H::score(token(row), h, row % HEADS, k, dot); }
  LATHE_METHOD Vec<bool, 2> seenPair(i64, i64 h, i64 row, i64 pair) const { return H::seenPair(token(row), h, row % HEADS, pair); }
  LATHE_METHOD Vec<f32, 2> scorePair(i64, i64 h, i64 row, i64 pair, const Vec<f32, 2> &dots) const { return H::scorePair(token(row), h, row % HEADS, pair, dots); }
  template <class V> LATHE_METHOD void store(i64, i64 h, i64 row, i64 d, const V &v) const { H::store(token(row), h, row % HEADS, d, v); }
  LATHE_METHOD void storeLogSumExp(i64, i64 h, i64 row, f32 value) const { H::storeLogSumExp(token(row), h, row % HEADS, value); }
};

/// Lists the tiles of so many tokens, those of later tokens first: of a prompt they see more keys. One block.
template <class Tile, int THREADS, class H> LATHE_DEV void attentionRaggedTiles(const H &h, i64 batch, RaggedList *list) {
  constexpr int TOKENS = Tile::TOKENS;
  __shared__ u32 starts[THREADS / 32], counts[THREADS / 32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // The greatest number up to this lane, or their sum.
  auto upTo = [&](u32 v, bool sum) {
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
      const u32 other = shuffleFrom32(v, lane >= d ? lane - d : 0);
      if (lane >= d) v = sum ? v + other : v > other ? v : other;
    }
    return v;
  };
  // Tiles are counted in the low bits, parts beyond the first of each in the high ones.
  constexpr u32 BITS = 20, LOW = (1u << BITS) - 1;
  u32 start = 0, tiles = 0; // of the sequence of the tokens before, and how many tiles are theirs
  for (i64 from = 0; from < batch; from += THREADS) {
    const i64 t = from + threadIdx.x;
    const bool inside = t < batch;
    const i64 number = inside ? h.keysOf(t) : 0;
    const bool begins = inside && (t == 0 || h.keysOf(t - 1) != number);
    u32 mine = upTo(begins ? (u32)t : 0, false);
    if (lane == 31) starts[warp] = mine;
    __syncthreads();
    for (u32 w = 0; w < warp; ++w) mine = starts[w] > mine ? starts[w] : mine;
    mine = mine > start ? mine : start;
    u32 most = start;
    for (u32 w = 0; w < THREADS / 32; ++w) most = starts[w] > most ? starts[w] : most;
    start = most;
    const bool first = inside && ((u32)t - mine) % TOKENS == 0;
    u32 count = 0, parts = 1;
    if (first) {
      for (count = 1; count < TOKENS && t + count < batch && h.keysOf(t + count) == number;) ++count;
      if (batch <= RAGGED_FEW && count * Tile::HEADS > kRowsOfOneOrder) {
        const i64 keys = (h.keyEnd(t + count - 1, 0, 0) - maxIndex(0, h.keyBegin(t, 0, 0))) / RAGGED_KEYS;
        parts = keys < 1 ? 1 : keys < RAGGED_PARTS ? (u32)keys : RAGGED_PARTS;
      }
    }
    u32 place = upTo(first ? (parts - 1) << BITS | 1 : 0, true);
    if (lane == 31) counts[warp] = place;
    __syncthreads();
    u32 all = 0;
    for (u32 w = 0; w < THREADS / 32; ++w) {
      if (w < warp) place += counts[w];
      all += counts[w];
    }
    if (first) {
      const u32 before = tiles + place - ((parts - 1) << BITS | 1), at = (before & LOW) + (before >> BITS);
      const bool room = (before >> BITS) + parts - 1 <= RAGGED_PLACES;
      for (u32 p = 0; p < parts; ++p)
        list->tiles[at + p] = RaggedTile{(u32)t, (u8)(room || p == 0 ? count : 0), (u8)(before >> BITS), (u8)p, (u8)(room ? parts : 1)};
    }
    tiles += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) *(u64 *)list = (tiles & LOW) + (tiles >> BITS); // none is taken
}

/// One tile of queries and one head. SHARED: its rows are one warp's, and warps share the keys; else each warp has 16
/// rows of its own, and may be one of `parts` of the keys; `left(p)`: where part p leaves what it has.
template <class Tile, bool SHARED, class Peers = RaggedBlock, class R, class Left>
LATHE_DEV void raggedTile(const R &h, i64 head, i32 count, i64 keys, u8 *ring, u32 part, u32 parts, Left left) {
  typedef typename R::Element T;
  typedef typename Tile::LayoutQK LayoutQK;
  typedef typename Tile::LayoutV LayoutV;
  constexpr int DQ = Tile::DQ, DV = Tile::DV, KEYS = Tile::KEYS, WARPS = Tile::WARPS, THREADS = Tile::THREADS, STAGES = Tile::STAGES;
  constexpr int STEP = KEYS * Tile::BLOCKS;         // keys of a tile of all blocks
  constexpr int OWN = SHARED ? KEYS / WARPS : KEYS; // those of it that a warp takes
  constexpr bool HELD = DQ <= 128;                  // queries stay in registers
  const f32 hidden = bitsToF32(0xff800000u), factor = scoreFactor<R>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int own = SHARED ? warp * OWN : 0, block0 = Tile::BLOCKS > 1 ? (int)Peers::rank() * KEYS : 0; // first keys of a tile
  const i32 row0 = SHARED ? 0 : warp * 16;
  const AttentionPlace at{0, (i32)head, row0 + g, count};
  const bool busy = row0 < count;
  // What any row sees, and what all rows of this warp do.
  i32 begin = 0x7fffffff, end = 0, full = 0x7fffffff;
  for (i32 row = lane; row < count; row += 32) {
    const i32 from = (i32)maxIndex(0, h.keyBegin(0, head, row)), to = (i32)minIndex(keys, h.keyEnd(0, head, row));
    begin = from < begin ? from : begin;
    end = to > end ? to : end;
    if (SHARED || row / 16 == warp) full = to < full ? to : full;
  }
  begin = warpReduce<MinOp>(begin);
  end = warpReduce<MaxOp>(end);
  full = warpReduce<MinOp>(full);
  i32 from = (begin < end ? begin : end) / STEP, to = (end + STEP - 1) / STEP;
  const i32 lastSixteen = (end + 15) / 16 - 1;
  if constexpr (!SHARED) {
    const i32 steps = to - from;
    to = from + steps * (i32)(part + 1) / (i32)parts;
    from += steps * (i32)part / (i32)parts;
  }

  // Where keys and values lie: each lane knows of the sixteen number `known` + lane.
  i32 known = 0;
  const T *knownK = nullptr, *knownV = nullptr;
  const i64 strideK = h.strideK(), strideV = h.strideV();
  auto lookedUp = [&](const T *mine, i32 sixteen) {
    const u64 word = (u64)mine;
    const u32 low = shuffleFrom32((u32)word, sixteen - known), high = shuffleFrom32((u32)(word >> 32), sixteen - known);
    return (const T *)((u64)high << 32 | low);
  };
  auto copy = [&](i32 n) {
    if (n < to) {
      if (n == from || (n + 1) * (STEP / 16) > known + 32) {
        known = n * (STEP / 16);
        const i32 mine = known + lane < lastSixteen ? known + lane : lastSixteen;
        knownK = h.R::sixteenK(h.first, head, mine);
        knownV = h.R::sixteenV(h.first, head, mine);
      }
      const i32 sixteen0 = n * (STEP / 16) + block0 / 16, inside = end - n * STEP - block0; // keys of this block's
      const SharedAddr slot = sharedAddr(ring) + (u32)(n - from) % STAGES * Tile::STEP_BYTES;
      // Known to be below THREADS: which rows and columns are a thread's is then computed once.
      const u32 thread = threadIdx.x % THREADS;
      constexpr u32 PIECES_K = DQ / 8, PIECES_V = DV / 8;
#pragma unroll
      for (u32 i = 0; i < KEYS * PIECES_K / THREADS; ++i) {
        const u32 p = i * THREADS + thread, row = p / PIECES_K, d = p % PIECES_K * 8;
        const bool there = (i32)row < inside && (DQ == R::kHeadQK || d < R::kHeadQK); // what is not there is zero
        const T *rows = lookedUp(knownK, sixteen0 + row / 16);
        cpAsync16(slot + LayoutQK::offset(row, d), rows + (there ? row % 16 * strideK + d : 0), there ? 16 : 0);
      }
#pragma unroll
      for (u32 i = 0; i < KEYS * PIECES_V / THREADS; ++i) {
        const u32 p = i * THREADS + thread, row = p / PIECES_V, d = p % PIECES_V * 8;
        const bool there = (i32)row < inside && (DV == R::kHeadV || d < R::kHeadV);
        const T *rows = lookedUp(knownV, sixteen0 + row / 16);
        cpAsync16(slot + Tile::K_BYTES + LayoutV::offset(row, d), rows + (there ? row % 16 * strideV + d : 0), there ? 16 : 0);
      }
    }
    cpAsyncCommit(); // one group a tile, whatever it holds
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) copy(from + s);

  auto fragmentQ = [&](u32 (&a)[4], int k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + g + (i & 1) * 8, d = k + 2 * t + (i >> 1) * 8;
      a[i] = 0;
      if (row < count && d < R::kHeadQK) {
        if constexpr (R::kRowsQ) {
          a[i] = *(const u32 *)(h.rowQ(0, head, row) + d);
        } else {
          const Vec<T, 2> two{{h.elementQ(0, head, row, d), h.elementQ(0, head, row, d + 1)}};
          memcpy(&a[i], &two, 4);
        }
      }
    }
  };
  u32 heldQ[HELD ? DQ / 16 : 1][4];
  if constexpr (HELD)
#pragma unroll
    for (int k = 0; k < DQ; k += 16) fragmentQ(heldQ[k / 16], k);
  SoftmaxState state{{hidden, hidden}, {0.0f, 0.0f}};
  if (SHARED ? warp == 0 && block0 == 0 : part == 0) state = softmaxStart(h, at); // a sink counts once
  f32 o[DV / 2];
#pragma unroll
  for (int i = 0; i < DV / 2; ++i) o[i] = 0.0f;

#pragma unroll 1
  for (i32 n = from; n < to; ++n) {
    cpAsyncWait<STAGES - 2>();
    __syncthreads(); // the tile is there, and nobody reads the one before any more
    copy(n + STAGES - 1);
    if (!busy) continue;
    const SharedAddr keysAt = sharedAddr(ring) + (u32)(n - from) % STAGES * Tile::STEP_BYTES, valuesAt = keysAt + Tile::K_BYTES;
    const i32 k0 = n * STEP + block0 + own;
    f32 s[OWN / 2];
#pragma unroll
    for (int i = 0; i < OWN / 2; ++i) s[i] = 0.0f;
#pragma unroll(HELD ? DQ / 16 : 2)
    for (int k = 0; k < DQ; k += 16) {
      u32 a[4];
      if (!HELD) fragmentQ(a, k);
#pragma unroll
      for (int j = 0; j < OWN; j += 16) {
        u32 two[4];
        loadMatrix4(two, keysAt + LayoutQK::offset(own + j + (lane & 7) + (lane >> 4) * 8, k + ((lane >> 3) & 1) * 8));
#pragma unroll
        for (int n8 = 0; n8 < 2; ++n8) {
          const u32 pair[2] = {two[2 * n8], two[2 * n8 + 1]};
          mma(*(f32(*)[4])(s + j / 2 + 4 * n8), HELD ? heldQ[HELD ? k / 16 : 0] : a, pair, T{});
        }
      }
    }
    keepScores(h, at, s, k0, (i32)keys, k0 + OWN <= full, false);
    f32 keep[2];
    // In tiles of one order of sums a step may hide all keys from a row, because others of its tile see more: then what was
    // summed must be multiplied by exactly 1, which the safe form does.
    softmaxStep<0, !KeepsProducts<R>::value || Tile::ROWS == kRowsOfOneOrder>(state, s, factor, keep);
    u32 p[OWN / 16][4];
    packWeights<T>(s, p);
#pragma unroll
    for (int i = 0; i < DV / 2; ++i) o[i] *= keep[i >> 1 & 1];
#pragma unroll
    for (int k = 0; k < OWN; k += 16)
#pragma unroll
      for (int d = 0; d < DV; d += 16) {
        u32 two[4];
        loadMatrix4Transposed(two, valuesAt + LayoutV::offset(own + k + (lane & 7) + ((lane >> 3) & 1) * 8, d + (lane >> 4) * 8));
#pragma unroll
        for (int n8 = 0; n8 < 2; ++n8) {
          const u32 pair[2] = {two[2 * n8], two[2 * n8 + 1]};
          mma(*(f32(*)[4])(o + d / 2 + 4 * n8), p[k / 16], pair, T{});
        }
      }
  }
  cpAsyncWait<0>();
  __syncthreads(); // nobody reads the ring any more

  if constexpr (!SHARED) {
    if (part > 0) {
      const RaggedParts<Tile> mine = left(part);
#pragma unroll
      for (int i = 0; i < DV / 2; ++i) mine.at(i) = o[i];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        mine.at(DV / 2 + r) = state.most[r];
        mine.at(DV / 2 + 2 + r) = state.total[r];
      }
      __syncthreads();
      if (threadIdx.x == 0) publishShare(mine.there);
      return;
    }
#pragma unroll 1
    for (u32 p = 1; p < parts; ++p) {
      const RaggedParts<Tile> other = left(p);
      if (threadIdx.x == 0) awaitShare(other.there);
      __syncthreads();
      f32 keep[2], add[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const f32 theirs = other.at(DV / 2 + r), most = fmaxf(state.most[r], theirs), base = most == hidden ? 0.0f : most;
        keep[r] = fastExp2((state.most[r] - base) * factor);
        add[r] = fastExp2((theirs - base) * factor);
        state.most[r] = most;
        state.total[r] = fmaf(add[r], other.at(DV / 2 + 2 + r), keep[r] * state.total[r]);
      }
#pragma unroll
      for (int i = 0; i < DV / 2; ++i) o[i] = fmaf(add[i >> 1 & 1], other.at(i), keep[i >> 1 & 1] * o[i]);
    }
    if (!busy) return;
    f32 inverse[2];
    softmaxEnd<R>(state, inverse);
    storeLogSums(h, at, state);
    storeResults(h, at, o, inverse);
  } else {
    constexpr int D = R::kHeadV, LEFT = Tile::LEFT, MOST = LEFT * Tile::STRIDE, TOTAL = MOST + LEFT;
    f32 *const parts = Peers::parts((f32 *)(ring + Tile::PARTS_AT)), *const leaves = parts + (block0 / 16 + warp) * Tile::PART;
    Peers::meet();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = g + 8 * r;
      const f32 total = quadSum(state.total[r]);
      if (row >= LEFT) continue;
      if (t == 0) {
        Peers::give(leaves + MOST + row, state.most[r]);
        Peers::give(leaves + TOTAL + row, total);
      }
#pragma unroll
      for (int i = 0; i < DV / 8; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) Peers::give(leaves + row * Tile::STRIDE + 8 * i + 2 * t + e, o[4 * i + 2 * r + e]);
    }
    Peers::given();
    if (Tile::BLOCKS > 1 && Peers::rank() != Tile::BLOCKS - 1) return;
    for (int i = threadIdx.x; i < count * (D / 8); i += THREADS) {
      const int row = i / (D / 8), d = i % (D / 8) * 8;
      f32 sum[8], largest, all;
      joinParts<Tile::BLOCKS * WARPS>(sum, largest, all, factor, [&](int p) { return parts[p * Tile::PART + MOST + row]; },
                       [&](int p) { return parts[p * Tile::PART + TOTAL + row]; },
                       [&](int p, int e) { return parts[p * Tile::PART + row * Tile::STRIDE + d + e]; });
      const f32 inverse = R::kZeroMasked && all == 0.0f ? 0.0f : 1.0f / all;
      Vec<f32, 8> out;
#pragma unroll
      for (int e = 0; e < 8; ++e) out.v[e] = sum[e] * inverse;
      h.store(0, head, row, d, convert<T>(out));
      if (R::kLogSumExp && d == 0) h.storeLogSumExp(0, head, row, logSumExp<R>(largest, all));
    }
    __syncthreads(); // the parts are read
  }
}

/// Blocks take the tiles of `list` and the key heads, all heads of a tile one after another, as they become free.
template <class Tile, class H> LATHE_DEV void attentionRagged(const H &h, i64 batch, i64 heads, i64 keys, RaggedList *list) {
  static_assert(H::kHeadQK % 8 == 0 && H::kHeadV % 8 == 0, "whole pieces of keys and values");
  LATHE_DYNAMIC_SHARED(shared);
  u32 &next = *(u32 *)(shared + Tile::RING_BYTES);
  const u32 units = list->count * (u32)heads;
  // Units are taken in their order by blocks that run: who waits for parts waits for lower numbers, and never for ever.
  if (threadIdx.x == 0) next = atomicAdd(&list->next, 1u);
  __syncthreads();
  u32 unit = next;
  __syncthreads();
  while (unit < units) {
    if (threadIdx.x == 0) next = atomicAdd(&list->next, 1u);
    const u32 tile = unit / (u32)heads;
    const RaggedTile work = list->tiles[list->count - 1 - tile];
    const i64 head = unit - tile * (u32)heads;
    const i32 count = (i32)work.count * Tile::HEADS;
    const RaggedRows<H, Tile::HEADS> rows(h, work.first);
    auto left = [&](u32 part) { return RaggedParts<Tile>(list, batch, heads, work.place + part - 1, head); };
    if (count == 0) {
      __syncthreads();
    } else if constexpr (Tile::ROWS == kRowsOfOneOrder) {
      raggedTile<Tile, true>(rows, head, count, keys, shared, 0, 1, left);
    } else {
      if (count <= kRowsOfOneOrder) raggedTile<Tile, true>(rows, head, count, keys, shared, 0, 1, left);
      else raggedTile<Tile, false>(rows, head, count, keys, shared, work.part, work.parts, left);
    }
    unit = next; // written before a barrier that all have passed, read before all have left the next one
    __syncthreads();
  }
}

/// The same of one token a sequence, of blocks for each token and key head, which share its keys: no list, and the same bits.
template <class Tile, class Peers, class H> LATHE_DEV void attentionRaggedAlone(const H &h, i64 heads, i64 keys) {
  static_assert(Tile::ROWS == kRowsOfOneOrder, "tiles that are everybody's");
  LATHE_DYNAMIC_SHARED(shared);
  Peers::begin();
  const u32 pair = blockIdx.x / Tile::BLOCKS, token = pair / (u32)heads;
  const RaggedRows<H, Tile::HEADS> rows(h, token);
  auto left = [](u32) { return 0; }; // there are no parts of keys
  raggedTile<Tile, true, Peers>(rows, (i64)(pair - token * (u32)heads), Tile::HEADS, keys, shared, 0, 1, left);
}

#endif // LATHE_DEVICE_ATTENTION_RAGGED
