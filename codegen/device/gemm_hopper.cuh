//===- gemm_hopper.cuh - matrix products of sm_90a --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math, mma, hopper, gemm, gemm_streamk
//
// C[b,m,n] = sum over k of A[b,m,k] * B[b,k,n] for operands that tensor maps can describe:
// their rows are multiples of 16 bytes, and k is the contiguous dimension unless elements have 16
// bits, the only ones that wgmma reads either way. One persistent block a multiprocessor walks over
// tiles. The first of its three warpgroups issues the TMA loads of a ring of stages; the other two
// multiply:
//
//   cooperative   each has half of the rows of the same tile
//   ping-pong     each has every second tile: the epilogue of one runs while the other multiplies
//
// The holes, a struct H made by the compiler:
//
//   typedef ... Element, Acc, Result;  static constexpr Operand kA, kB;   AlongK or AcrossK
//   static constexpr bool kBatchA, kBatchB;   the operand's map has a dimension of batches
//   static constexpr bool kImages;       A is loaded by h.loadImages (conv_hopper.cuh)
//   static constexpr bool kSwapped;      A and B are exchanged, so that C is computed transposed: rows m
//                                        below are columns of the results, which are of 16 bits and staged
//   f32 value(i64 b, i64 m, i64 n, f32 sum);   then: one result, m its row, n its column, not yet rounded
//   static constexpr bool kProgrammatic; launched while the kernel before still runs; B is constant
//   static constexpr bool kLate;         the next kernel may start only when the last loads have been issued
//   static constexpr bool kPair;         B holds two matrices of N columns, side by side, and each result is made
//                                        of a sum of both (a gate pair): a tile has half its columns of each
//   static constexpr int kPairHead;      0, or the size of the heads that the columns are; with kPair the two matrices
//                                        are the halves of the heads
//   static void multiply(Acc (&d)[BN / 2], u64 a, u64 b, u32 add);   the instruction
//   static constexpr bool kStaged;       results go through shared memory and map C: there is
//   Vec<Result, 2> value(i64 b, i64 m, i64 pair, Vec<Acc, 2> sums);  two neighbours, N even
//     with kPair                  (..., Vec<Acc, 2> sums, Vec<Acc, 2> seconds)
//     with kPair and kPairHead, instead: of each of kOutputs outputs S whether it has the head of a pair, two
//     results and the two half a head further; how a part of 64 rows and 32 columns of each half is stored
//   bool isIn<S>(u32 pair);
//   Vec<Result, 4> pairs<S>(i64 b, i64 m, i64 pair, Vec<Acc, 2> sums, Vec<Acc, 2> seconds);
//   void storePairs(SharedAddr one, SharedAddr other, u32 row, u32 pair);
//     with kPairHead alone: the same of columns, two neighbours, and a part of 64 rows in one head
//   bool isIn<S>(u32 column);
//   Vec<Result, 2> pairs<S>(i64 b, i64 m, i64 pair, Vec<Acc, 2> sums);
//   void storeHead(SharedAddr part, u32 row, u32 column);
//   static constexpr bool kBeside;       `value` takes Vec<Result, 2> before the sums: two elements at
//                                        the result's place of a tensor that map D brings
//   static constexpr bool kAmax;         with kStaged: the maximum (or minimum) of `amax`, which is called as `value` is,
//                                        over each block of 16 rows and 64 columns is stored
//   f32 amax(..);  static f32 further(f32, f32);  void storeAmax(i64 row, i64 column, f32);   of blocks
//   static constexpr bool kBatched;      maps C and D have a dimension of batches
//   static constexpr bool kHeadRows;     map C is {size of a head, tokens, heads, batches}: rows are the tokens of
//                                        all batches, columns the heads, of
//   static constexpr u32 kHead;          elements, a multiple of 64
//   u32 tokens() const;                  of a batch
//   static constexpr int kLanes;         else: 2 or 1, divides N
//   void epilogue(i64 b, i64 m, i64 n, Vec<Acc, kLanes> sums);   stores the results
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_HOPPER
#define LATHE_DEVICE_GEMM_HOPPER
#ifndef LATHE_EMULATE

/// Tiles that a stage has one after another, each with its part of k: two taps of windows of few channels, else one.
template <class H> LATHE_DEV constexpr int slicesOf() {
  if constexpr (H::kImages) return H::Window::SLICES;
  else return 1;
}
/// How many of them are loaded and multiplied.
template <class H> LATHE_DEV constexpr int slicesUsedOf() {
  if constexpr (H::kImages) return H::Window::USED;
  else return 1;
}

/// A tile has BM x BN results. ROWS of A are loaded: fewer than BM where M is small, because rows beyond
/// the end of a tensor are slow to load, and rows that are not loaded give only results that are not
/// stored. STREAM_K: the tiles left after whole rounds are cut along k into equal shares for all blocks.
/// PAIR: 2 where the blocks of a cluster have tiles one below the other and each loads half of the
/// columns of B for both; it pays where rows do not begin at a cache line, which doubles the requests. PARTS: K is cut
/// as among so many blocks of gemm_split.cuh, and their sums are added in that order, so that results are the same bits.
template <int BM_, int BN_, int STAGES_, int ROWS_, bool PINGPONG_, class H, bool STREAM_K_ = false, int PAIR_ = 1,
          int PARTS_ = 1>
struct WgmmaTile {
  static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_, ROWS = ROWS_;
  static constexpr int BK = 128 / sizeof(typename H::Element); // rows of 128 bytes
  static constexpr bool PINGPONG = PINGPONG_, STREAM_K = STREAM_K_;
  static constexpr u32 PAIR = PAIR_, PARTS = PARTS_;
  static constexpr bool A_ALONG = H::kA == Operand::AlongK, B_ALONG = H::kB == Operand::AlongK;
  static constexpr int SLICES = slicesOf<H>(), USED = slicesUsedOf<H>();
  static constexpr int MI = PINGPONG ? BM / 64 : BM / 128; // products of 64 rows by a group
  static constexpr int OUT = H::kPair ? BN / 2 : BN;    // columns of results
  static constexpr bool HALVES = H::kPair && H::kPairHead > 0; // of heads
  // Where m or n is contiguous, it is loaded in chunks of as many elements as the swizzle spans.
  static constexpr int A_WIDE = 64, B_WIDE = OUT % 64 == 0 ? 64 : 32;
  static constexpr u32 A_BYTES = BM * 128, B_BYTES = BN * 128;
  static constexpr u32 LOADED = ((A_ALONG ? ROWS * 128 : A_BYTES) + B_BYTES) / SLICES * USED; // of a stage
  // Results of 64 rows are staged in two buffers a group.
  static constexpr int RESULT = sizeof(typename H::Result);
  static constexpr int STAGED = H::kPairHead > 0 ? 32 : H::kImages && RESULT == 1 && OUT == 128 ? 128
                                : OUT % 64 == 0 && RESULT <= 2         ? 64
                                : H::kSwapped && OUT % 48 == 0 ? 48
                                : OUT % 32 == 0                        ? 32
                                                                       : 16; // columns
  static constexpr u32 C_BYTES = H::kStaged ? 64 * STAGED * RESULT * (HALVES ? 2 : 1) : 0;
  static constexpr u32 B_AT = STAGES * A_BYTES, C_AT = B_AT + STAGES * B_BYTES, BARRIERS_AT = C_AT + 4 * C_BYTES;
  /// A barrier for each stage that is full or empty, and for each buffer; 1024: where the swizzle begins.
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + 16 * STAGES + 4 * 8 + 1024;
  static constexpr int SUMS = MI * BN / 2 * (PARTS > 1 ? 2 : 1);
  static constexpr int LOADER_REGISTERS = SUMS > 160 ? 24 : 40, REGISTERS = SUMS > 160 ? 240 : 232;
  static_assert(BM % (PINGPONG ? 64 : 128) == 0 && OUT % (B_ALONG ? 16 : 32) == 0 && (A_ALONG || ROWS == BM), "tile shape");
  static_assert(PAIR == 1 || (PAIR == 2 && !STREAM_K && B_ALONG && !H::kPair && !H::kImages && !H::kSwapped), "pairs of blocks");
  static_assert(PARTS == 1 || (!PINGPONG && !STREAM_K), "each group sums all parts of its tile");
};

struct TilePlace { u32 batch, m, n; };
/// Tiles are walked in groups of tile rows, so that tiles that run at the same time share rows and columns
/// in the cache. With tiles of 128 columns, groups of 12 read a third less from memory, but take as long:
/// each further group reads all columns again.
template <class Tile> LATHE_DEV TilePlace placeOfTile(u32 id, u32 tilesM, u32 tilesN) {
  constexpr u32 group = Tile::OUT < 128 ? 8 : 16;
  const u32 perBatch = tilesM * tilesN, batch = id / perBatch;
  id -= batch * perBatch;
  const u32 first = id / (group * tilesN) * group, inside = id - first * tilesN;
  const u32 rows = tilesM - first < group ? tilesM - first : group;
  return {batch, (first + inside % rows) * Tile::BM, inside / rows * Tile::OUT};
}

/// Of what a cluster has under the number `id`, this block's.
template <class Tile> LATHE_DEV TilePlace placeOfBlock(u32 id, u32 tilesM, u32 tilesN) {
  if constexpr (Tile::PAIR == 1) return placeOfTile<Tile>(id, tilesM, tilesN);
  TilePlace t = placeOfTile<Tile>(id, (tilesM + 1) / 2, tilesN);
  t.m = t.m * 2 + clusterRank() * Tile::BM;
  return t;
}

// ---- Loading ---------------------------------------------------------------------------

/// Of a stage's B, for its products; with k across, chunks of B_WIDE lie one after another.
template <class Tile> LATHE_DEV u64 descriptorB(SharedAddr tile) {
  constexpr u32 CHUNK = Tile::B_WIDE * Tile::BK * 2;
  return Tile::B_ALONG ? wgmmaAlongK(tile) : Tile::B_WIDE == 64 ? wgmmaAcrossK(tile, CHUNK) : wgmmaAcrossK32(tile, CHUNK);
}

/// A stage's tile of an operand: ROWS of m or n from `row` on, k from `k` on.
template <bool ALONG, bool BATCHED, int ROWS, int WIDE>
LATHE_DEV void loadStage(SharedAddr to, const TensorMap &map, SharedAddr bar, u32 batch, u32 row, u32 k) {
  if constexpr (ALONG) {
    if constexpr (BATCHED) tensorLoad(to, map, bar, k, row, batch);
    else tensorLoad(to, map, bar, k, row);
  } else {
#pragma unroll
    for (int at = 0; at < ROWS; at += WIDE) {
      if constexpr (BATCHED) tensorLoad(to + at * 64 * 2, map, bar, row + at, k, batch);
      else tensorLoad(to + at * 64 * 2, map, bar, row + at, k);
    }
  }
}

template <class Tile, class H>
LATHE_DEV void loadStageA(const H &h, SharedAddr to, const TensorMap &map, SharedAddr bar, TilePlace t, u32 step) {
  if constexpr (H::kImages && !H::kSwapped) h.loadImages(to, map, bar, t.batch, t.m, step);
  else loadStage<Tile::A_ALONG, H::kBatchA, Tile::BM, Tile::A_WIDE>(to, map, bar, t.batch, t.m, step * Tile::BK);
}
/// The same of B; of a pair its two halves. Columns of a second half lie N behind the first. With
/// PAIR blocks each loads its part of the columns for all.
template <class Tile, u32 PAIR = 1, class H>
LATHE_DEV void loadStageB(const H &h, SharedAddr to, const TensorMap &map, SharedAddr bar, TilePlace t, u32 step, u32 N) {
  if constexpr (H::kImages && H::kSwapped) {
    h.loadImages(to, map, bar, t.batch, t.n, step);
  } else if constexpr (PAIR > 1) {
    const u32 first = clusterRank() * (Tile::OUT / PAIR), k = step * Tile::BK;
    if constexpr (H::kBatchB) tensorLoadCluster(to + first * 128, map, bar, (1 << PAIR) - 1, k, t.n + first, t.batch);
    else tensorLoadCluster(to + first * 128, map, bar, (1 << PAIR) - 1, k, t.n + first);
  } else {
    if constexpr (H::kPair && H::kPairHead > 0) {
      constexpr u32 CHUNK = 32;
#pragma unroll
      for (u32 at = 0; at < 2 * Tile::OUT; at += CHUNK)
        loadStage<Tile::B_ALONG, H::kBatchB, CHUNK, Tile::B_WIDE>(
            to + at * 128, map, bar, t.batch, (u32)pairColumn<H::kPairHead>(t.n + at % Tile::OUT, at / Tile::OUT, N),
            step * Tile::BK);
      return;
    }
    constexpr u32 SLICES = slicesOf<H>();
    if constexpr (SLICES > 1) {
#pragma unroll
      for (u32 s = 0; s < slicesUsedOf<H>(); ++s)
        loadStage<true, H::kBatchB, Tile::OUT, Tile::B_WIDE>(to + s * (Tile::B_BYTES / SLICES), map, bar, t.batch, t.n,
                                                             step * Tile::BK + s * (Tile::BK / SLICES));
      return;
    }
#pragma unroll
    for (u32 half = 0; half < (H::kPair ? 2 : 1); ++half)
      loadStage<Tile::B_ALONG, H::kBatchB, Tile::OUT, Tile::B_WIDE>(to + half * Tile::OUT * 128, map, bar, t.batch,
                                                                    t.n + half * N, step * Tile::BK);
  }
}

/// Of a stage the operand that is constant.
template <class Tile, u32 PAIR = 1, class H>
LATHE_DEV void loadStageEarly(const H &h, const TensorMap &mapA, const TensorMap &mapB, SharedAddr toA, SharedAddr toB,
                              SharedAddr bar, TilePlace t, u32 step, u32 N) {
  barrierExpect(bar, Tile::LOADED);
  if constexpr (H::kSwapped) loadStageA<Tile>(h, toA, mapA, bar, t, step);
  else loadStageB<Tile, PAIR>(h, toB, mapB, bar, t, step, N);
}
/// A stage's A and B; with `begun` the constant one is under way.
template <class Tile, u32 PAIR = 1, class H>
LATHE_DEV void loadStages(const H &h, const TensorMap &mapA, const TensorMap &mapB, SharedAddr toA, SharedAddr toB,
                          SharedAddr bar, TilePlace t, u32 step, u32 N, bool begun) {
  if (!begun) barrierExpect(bar, Tile::LOADED);
  if (!H::kSwapped || !begun) loadStageA<Tile>(h, toA, mapA, bar, t, step);
  if (H::kSwapped || !begun) loadStageB<Tile, PAIR>(h, toB, mapB, bar, t, step, N);
}

// ---- Results ---------------------------------------------------------------------------
// A thread's sums of 64 rows: of each 8 columns two neighbours in row lane / 4 of its warp's 16
// rows, and two in the row 8 below.

/// The place in a staged tile of COLS columns of T where the swizzle of map C looks for an element.
template <int COLS, class T> LATHE_DEV SharedAddr pairPlace(SharedAddr buffer, u32 row, u32 column) {
  constexpr u32 BYTES = COLS * sizeof(T);
  const u32 byte = column * (u32)sizeof(T);
  const u32 turn = BYTES == 128 ? row & 7 : BYTES == 64 ? row >> 1 & 3 : BYTES == 32 ? row >> 2 & 1 : 0;
  return buffer + row * BYTES + ((byte >> 4 ^ turn) << 4) + (byte & 15);
}

/// Two neighbouring results of 32 or 8 bits into a staged tile of COLS columns.
template <int COLS, class T> LATHE_DEV void stagePair(SharedAddr buffer, u32 row, u32 column, const Vec<T, 2> &pair) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 1, "results of 16 bits take stmatrix");
  const SharedAddr at = pairPlace<COLS, T>(buffer, row, column);
  if constexpr (sizeof(T) == 4) storeShared8(at, bitCast<u32>(pair.v[0]), bitCast<u32>(pair.v[1]));
  else storeShared2(at, bitCast<u16>(pair));
}

/// What TMA has brought to where stagePair puts two results of 8 bits.
template <int COLS, class T> LATHE_DEV Vec<T, 2> stagedPair(SharedAddr buffer, u32 row, u32 column) {
  static_assert(sizeof(T) == 1, "what lies beside results of 16 bits takes ldmatrix");
  return bitCast<Vec<T, 2>>(loadShared2(pairPlace<COLS, T>(buffer, row, column)));
}

/// Where a group keeps its two buffers, and the barriers on which what lies beside the results
/// arrives in them. `stored` counts the pieces of all tiles, which take the buffers in turn.
struct Staging {
  SharedAddr buffers, arrived;
  u32 group, stored;
};

/// The piece of 64 rows and STAGED columns of a tile, as stores and loads see it.
template <class Tile, class H>
LATHE_DEV void loadBeside(const TensorMap &mapD, const Staging &s, TilePlace t, int piece, u32 ahead) {
  constexpr int PIECES = Tile::OUT / Tile::STAGED;
  const u32 buffer = s.stored + ahead & 1;
  const SharedAddr bar = s.arrived + 8 * buffer;
  barrierExpect(bar, Tile::C_BYTES);
  u32 n = t.n + piece % PIECES * Tile::STAGED, m = t.m + piece / PIECES * 64;
  if constexpr (H::kSwapped) {
    const u32 column = m;
    m = n;
    n = column;
  }
  if constexpr (H::kBatched) tensorLoad(s.buffers + buffer * Tile::C_BYTES, mapD, bar, n, m, t.batch);
  else tensorLoad(s.buffers + buffer * Tile::C_BYTES, mapD, bar, n, m);
}

/// Both buffers: while the products of a tile are under way.
template <class Tile, class H> LATHE_DEV void loadFirstBeside(const TensorMap &mapD, const Staging &s, TilePlace t) {
  storeWaitRead<0>();
  loadBeside<Tile, H>(mapD, s, t, 0, 0);
  if constexpr (Tile::MI * Tile::OUT / Tile::STAGED > 1) loadBeside<Tile, H>(mapD, s, t, 1, 1);
}

/// The further of what was found `before` and one more value; of none before it, that value.
template <class H> LATHE_DEV f32 furtherOf(const H &, int before, f32 amax, f32 value) {
  return before == 0 ? value : H::further(amax, value);
}

/// All results of a group's tile, whose first row is t.m.
template <class Tile, class H>
LATHE_DEV void storeStaged(const H &h, const TensorMap &mapC, const TensorMap &mapD,
                           const typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], TilePlace t, u32 M, u32 N, Staging &s) {
  typedef Vec<typename H::Acc, 2> Sums;
  typedef Vec<typename H::Result, 2> Pair;
  constexpr int COLS = Tile::STAGED, PIECES = Tile::OUT / COLS;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
  for (int piece = 0; piece < Tile::MI * PIECES; ++piece, ++s.stored) {
    const int i = piece / PIECES, c = piece % PIECES;
    const SharedAddr buffer = s.buffers + (s.stored & 1) * Tile::C_BYTES;
    const u32 row0 = t.m + i * 64, column0 = t.n + c * COLS;
    const u32 r = warp * 16 + (lane & 15); // whose address this lane gives
    i64 rows[2];
#pragma unroll
    for (u32 k = 0; k < 2; ++k) {
      u32 m = row0 + warp * 16 + lane / 4 + 8 * k;
      // Outside of the tensor the last row and columns are asked for again.
      if (M % Tile::BM != 0 && m >= M) m = M - 1;
      rows[k] = m;
    }
    if constexpr (H::kBeside) barrierWait(s.arrived + 8 * (s.stored & 1), s.stored >> 1 & 1);
    // What the values need of memory is asked for before the first store, all at a time.
    Pair pairs[COLS / 16][4];
    u32 places[COLS / 16];
    f32 amax = 0.0f;
#pragma unroll
    for (int j = 0; j < COLS / 16; ++j) {
      const u32 at = 2 * j + (lane >> 4);
      const u32 swizzled = COLS == 64 ? at ^ (r & 7) : COLS == 32 ? at ^ (r >> 1 & 3) : at ^ (r >> 2 & 1);
      places[j] = buffer + r * (COLS * 2) + swizzled * 16;
      u32 beside[4] = {0, 0, 0, 0};
      if constexpr (H::kBeside && sizeof(Pair) == 4) loadMatrix4(beside, places[j]);
#pragma unroll
      for (int q = 0; q < 4; ++q) { // rows 0 and 8 of 8 columns, then of the next 8
        Pair other;
        if constexpr (sizeof(Pair) == 4) other = bitCast<Pair>(beside[q]);
        else if constexpr (H::kBeside)
          other = stagedPair<COLS, typename H::Result>(buffer, warp * 16 + lane / 4 + 8 * (q & 1), (2 * j + q / 2) * 8 + 2 * (lane % 4));
        const int sum = (c * (COLS / 8) + 2 * j + q / 2) * 4 + 2 * (q & 1);
        u32 n = column0 + (2 * j + q / 2) * 8 + 2 * (lane % 4);
        if (N % Tile::OUT != 0 && n >= N) n = N - 2;
        const i64 b = t.batch, pair = n / 2;
        const Sums sums{{acc[i][sum], acc[i][sum + 1]}};
        if constexpr (H::kPair) {
          const Sums seconds{{acc[i][sum + Tile::OUT / 2], acc[i][sum + Tile::OUT / 2 + 1]}};
          pairs[j][q] = h.value(b, rows[q & 1], pair, sums, seconds);
          if constexpr (H::kAmax) amax = furtherOf(h, j + q, amax, h.amax(b, rows[q & 1], pair, sums, seconds));
        } else if constexpr (H::kBeside) {
          pairs[j][q] = h.value(b, rows[q & 1], pair, other, sums);
          if constexpr (H::kAmax) amax = furtherOf(h, j + q, amax, h.amax(b, rows[q & 1], pair, other, sums));
        } else {
          pairs[j][q] = h.value(b, rows[q & 1], pair, sums);
          if constexpr (H::kAmax) amax = furtherOf(h, j + q, amax, h.amax(b, rows[q & 1], pair, sums));
        }
      }
    }
    if constexpr (H::kAmax) { // the warp's rows of this piece are a block
      static_assert(COLS == 64, "columns of a block");
#pragma unroll
      for (int d = 16; d > 0; d /= 2) amax = H::further(amax, bitsToF32(shuffleXor32(f32ToBits(amax), d)));
      const u32 row = row0 + warp * 16;
      if (lane == 0 && row < M && column0 < N) h.storeAmax((i64)(row / 16), (i64)(column0 / 64), amax);
    }
    if constexpr (!H::kBeside) {
      if (leader) storeWaitRead<1>();
      namedBarrierSync(1 + s.group, 128);
    }
#pragma unroll
    for (int j = 0; j < COLS / 16; ++j) {
      if constexpr (sizeof(Pair) == 4) {
        u32 words[4];
        memcpy(words, pairs[j], sizeof words);
        storeMatrix4(places[j], words);
      } else {
#pragma unroll
        for (int q = 0; q < 4; ++q)
          stagePair<COLS>(buffer, warp * 16 + lane / 4 + 8 * (q & 1), (2 * j + q / 2) * 8 + 2 * (lane % 4), pairs[j][q]);
      }
    }
    asyncFence();
    namedBarrierSync(1 + s.group, 128);
    if (leader) {
      if constexpr (H::kHeadRows) { // of each batch that the rows touch, what is outside is clipped
        const u32 tokens = h.tokens(), end = row0 + 64 < M ? row0 + 64 : M;
        for (u32 b = row0 / tokens; b * tokens < end; ++b)
          tensorStore(mapC, buffer, (i32)(column0 % H::kHead), (i32)row0 - (i32)(b * tokens), (i32)(column0 / H::kHead), (i32)b);
      } else if constexpr (H::kBatched) {
        tensorStore(mapC, buffer, column0, row0, t.batch);
      } else {
        tensorStore(mapC, buffer, column0, row0);
      }
      storeCommit();
      if constexpr (H::kBeside)
        if (piece > 0 && piece + 1 < Tile::MI * PIECES) { // into the buffer of the piece before
          storeWaitRead<1>();
          loadBeside<Tile, H>(mapD, s, t, piece + 1, 1);
        }
    }
  }
}

/// The same of products whose operands have changed places: t.m is the first column of the results,
/// t.n their first row. A thread's sums of 64 columns: of each 8 rows two neighbours in column lane / 4
/// of its warp's 16 columns, and two in the column 8 further.
template <class Tile, class H>
LATHE_DEV void storeSwapped(const H &h, const TensorMap &mapC, const TensorMap &mapD,
                            const typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], TilePlace t, u32 columns, u32 rows,
                            Staging &s) {
  typedef typename H::Result Result;
  static_assert(H::kStaged && sizeof(Result) == 2 && !H::kPair && !H::kHeadRows, "results of 16 bits by TMA");
  constexpr int ROWS = Tile::STAGED, PIECES = Tile::OUT / ROWS;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
  for (int piece = 0; piece < Tile::MI * PIECES; ++piece, ++s.stored) {
    const int i = piece / PIECES, c = piece % PIECES;
    const SharedAddr buffer = s.buffers + (s.stored & 1) * Tile::C_BYTES;
    const u32 column0 = t.m + i * 64, row0 = t.n + c * ROWS;
    i64 column[2];
#pragma unroll
    for (u32 k = 0; k < 2; ++k) {
      const u32 n = column0 + warp * 16 + lane / 4 + 8 * k;
      // Outside of the tensor the last column and rows are asked for again.
      column[k] = columns % Tile::BM != 0 && n >= columns ? columns - 1 : n;
    }
    if constexpr (H::kBeside) barrierWait(s.arrived + 8 * (s.stored & 1), s.stored >> 1 & 1);
    u32 words[ROWS / 16][4];
    SharedAddr places[ROWS / 16];
#pragma unroll
    for (int j = 0; j < ROWS / 16; ++j) {
      const u32 r = j * 16 + (lane >> 4) * 8 + (lane & 7), at = warp * 2 + (lane >> 3 & 1); // whose address this lane gives
      places[j] = buffer + r * 128 + ((at ^ (r & 7)) << 4);
      u32 beside[4] = {0, 0, 0, 0};
      if constexpr (H::kBeside) loadMatrix4Transposed(beside, places[j]);
#pragma unroll
      for (int q = 0; q < 4; ++q) { // columns 0 and 8 of 8 rows, then of the next 8
        const int sum = (c * (ROWS / 8) + 2 * j + q / 2) * 4 + 2 * (q & 1);
        const u32 first = row0 + (2 * j + q / 2) * 8 + 2 * (lane % 4);
        const Vec<Result, 2> other = bitCast<Vec<Result, 2>>(beside[q]);
        Vec<f32, 2> pair;
#pragma unroll
        for (u32 e = 0; e < 2; ++e) {
          const i64 row = rows % Tile::BN != 0 && first + e >= rows ? rows - 1 : first + e, b = t.batch;
          if constexpr (H::kBeside) pair.v[e] = h.value(b, row, column[q & 1], other.v[e], acc[i][sum + e]);
          else pair.v[e] = h.value(b, row, column[q & 1], acc[i][sum + e]);
        }
        words[j][q] = bitCast<u32>(convert<Result>(pair));
      }
    }
    if constexpr (!H::kBeside) {
      if (leader) storeWaitRead<1>();
      namedBarrierSync(1 + s.group, 128);
    }
#pragma unroll
    for (int j = 0; j < ROWS / 16; ++j) storeMatrix4Transposed(places[j], words[j]);
    asyncFence();
    namedBarrierSync(1 + s.group, 128);
    if (leader) {
      if constexpr (H::kBatched) tensorStore(mapC, buffer, column0, row0, t.batch);
      else tensorStore(mapC, buffer, column0, row0);
      storeCommit();
      if constexpr (H::kBeside)
        if (piece > 0 && piece + 1 < Tile::MI * PIECES) { // into the buffer of the piece before
          storeWaitRead<1>();
          loadBeside<Tile, H>(mapD, s, t, piece + 1, 1);
        }
    }
  }
}

/// Results of the heads of output S: of rows[0] and rows[1], the piece's columns from `column0` on, or the same of
/// both halves. All that they need of memory is asked for at once, which a choice of the output inside would prevent.
template <int S, class Tile, class H>
LATHE_DEV void headPairs(const H &h, const typename H::Acc (&acc)[Tile::BN / 2], int c, u32 batch, const i64 (&rows)[2],
                         u32 column0, u32 N, u32 (&words)[Tile::HALVES ? 2 : 1][Tile::STAGED / 16][4]) {
  typedef Vec<typename H::Acc, 2> Sums;
  constexpr int COLS = Tile::STAGED, OTHER = Tile::OUT / 2;
  if constexpr (S + 1 < H::kOutputs)
    if (!h.template isIn<S>(column0)) return headPairs<S + 1, Tile>(h, acc, c, batch, rows, column0, N, words);
#pragma unroll
  for (int j = 0; j < COLS / 16; ++j)
#pragma unroll
    for (int q = 0; q < 4; ++q) { // rows 0 and 8 of 8 columns, then of the next 8
      const int sum = (c * (COLS / 8) + 2 * j + q / 2) * 4 + 2 * (q & 1);
      u32 n = column0 + (2 * j + q / 2) * 8 + 2 * (threadIdx.x % 4);
      if (N % Tile::OUT != 0 && n >= N) n = N - 2;
      const Sums sums{{acc[sum], acc[sum + 1]}};
      if constexpr (Tile::HALVES) {
        const auto both = h.template pairs<S>((i64)batch, rows[q & 1], (i64)(n / 2), sums,
                                              Sums{{acc[sum + OTHER], acc[sum + OTHER + 1]}});
        u32 halves[2];
        memcpy(halves, &both, sizeof halves);
        words[0][j][q] = halves[0];
        words[1][j][q] = halves[1];
      } else {
        words[0][j][q] = bitCast<u32>(h.template pairs<S>((i64)batch, rows[q & 1], (i64)(n / 2), sums));
      }
    }
}

/// The same as storeStaged of heads that go to several outputs; where their halves meet, results of both are staged
/// together.
template <class Tile, class H>
LATHE_DEV void storeHeads(const H &h, const typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], TilePlace t, u32 M, u32 N,
                          Staging &s) {
  constexpr int COLS = Tile::STAGED, PIECES = Tile::OUT / COLS;
  constexpr u32 PART = Tile::C_BYTES / 2;
  static_assert(sizeof(typename H::Result) == 2, "results of 16 bits");
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
  for (int piece = 0; piece < Tile::MI * PIECES; ++piece, ++s.stored) {
    const int i = piece / PIECES, c = piece % PIECES;
    const SharedAddr buffer = s.buffers + (s.stored & 1) * Tile::C_BYTES;
    const u32 row0 = t.m + i * 64, column0 = t.n + c * COLS, r = warp * 16 + (lane & 15);
    i64 rows[2];
#pragma unroll
    for (u32 k = 0; k < 2; ++k) {
      const u32 m = row0 + warp * 16 + lane / 4 + 8 * k;
      rows[k] = M % Tile::BM != 0 && m >= M ? M - 1 : m; // outside of the tensor the last row again
    }
    u32 words[Tile::HALVES ? 2 : 1][COLS / 16][4];
    headPairs<0, Tile>(h, acc[i], c, t.batch, rows, column0, N, words);
    if (leader) storeWaitRead<1>();
    namedBarrierSync(1 + s.group, 128);
#pragma unroll
    for (int j = 0; j < COLS / 16; ++j) {
      const u32 turn = COLS == 64 ? r & 7 : COLS == 32 ? r >> 1 & 3 : r >> 2 & 1;
      const SharedAddr place = buffer + r * (COLS * 2) + ((2 * j + (lane >> 4) ^ turn) << 4);
      storeMatrix4(place, words[0][j]);
      if constexpr (Tile::HALVES) storeMatrix4(place + PART, words[1][j]);
    }
    asyncFence();
    namedBarrierSync(1 + s.group, 128);
    if (leader) {
      if constexpr (Tile::HALVES) h.storePairs(buffer, buffer + PART, row0, column0);
      else h.storeHead(buffer, row0, column0);
      storeCommit();
    }
  }
}

template <class Tile, class H>
LATHE_DEV void storeDirect(const H &h, const typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], TilePlace t, u32 M, u32 N) {
  typedef typename H::Acc Acc;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (u32 i = 0; i < 2 * Tile::MI; ++i) {
    const u32 m = t.m + warp * 16 + lane / 4 + 8 * (i % 2) + 64 * (i / 2);
    if (m >= M) continue;
#pragma unroll
    for (int j = 0; j < Tile::OUT / 8; ++j) {
      const u32 n = t.n + j * 8 + 2 * (lane % 4), sum = 4 * j + 2 * (i % 2);
      const Acc first = acc[i / 2][sum], second = acc[i / 2][sum + 1];
      if constexpr (H::kPair) {
        static_assert(H::kLanes == 2, "neighbouring pairs");
        const Vec<Acc, 2> seconds{{acc[i / 2][sum + Tile::OUT / 2], acc[i / 2][sum + Tile::OUT / 2 + 1]}};
        if (n < N) h.epilogue((i64)t.batch, (i64)m, (i64)n, Vec<Acc, 2>{{first, second}}, seconds);
      } else if constexpr (H::kLanes == 2) {
        if (n < N) h.epilogue((i64)t.batch, (i64)m, (i64)n, Vec<Acc, 2>{{first, second}});
      } else {
        if (n < N) h.epilogue((i64)t.batch, (i64)m, (i64)n, Vec<Acc, 1>{{first}});
        if (n + 1 < N) h.epilogue((i64)t.batch, (i64)m, (i64)n + 1, Vec<Acc, 1>{{second}});
      }
    }
  }
}

/// All results of a group's tile, whose first row is t.m.
template <class Tile, class H>
LATHE_DEV void storeTile(const H &h, const TensorMap &mapC, const TensorMap &mapD,
                         const typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], TilePlace t, u32 M, u32 N, Staging &s) {
  if constexpr (H::kSwapped) storeSwapped<Tile>(h, mapC, mapD, acc, t, M, N, s);
  else if constexpr (H::kStaged && H::kPairHead > 0) storeHeads<Tile>(h, acc, t, M, N, s);
  else if constexpr (H::kStaged) storeStaged<Tile>(h, mapC, mapD, acc, t, M, N, s);
  else storeDirect<Tile>(h, acc, t, M, N);
}

// ---- The kernel ------------------------------------------------------------------------

/// By all threads, before they part.
template <class Tile, class H>
LATHE_DEV void startRing(const TensorMap &mapA, const TensorMap &mapB, const TensorMap &mapC, const TensorMap &mapD,
                         SharedAddr base) {
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * Tile::STAGES, arrived = empty + 8 * Tile::STAGES;
  if (threadIdx.x == 0) {
    tensorMapPrefetch(mapA);
    tensorMapPrefetch(mapB);
    if constexpr (H::kStaged) tensorMapPrefetch(mapC);
    if constexpr (H::kBeside) {
      tensorMapPrefetch(mapD);
      for (int i = 0; i < 4; ++i) barrierInit(arrived + 8 * i, 1);
    }
    for (int s = 0; s < Tile::STAGES; ++s) {
      barrierInit(full + 8 * s, 1);
      barrierInit(empty + 8 * s, (Tile::PINGPONG ? 4 : 8) * Tile::PAIR); // a warp each
    }
    barrierInitFence();
  }
  if constexpr (Tile::PAIR > 1) clusterSync();
  else __syncthreads();
  if constexpr (!H::kLate) dependentsMayStart();
}

/// By a warp that has read a slot: blocks whose loads come there may use it.
template <class Tile> LATHE_DEV void slotIsFree(SharedAddr bar) {
  const u32 lane = threadIdx.x % 32;
  if constexpr (Tile::PAIR == 1) {
    if (lane == 0) barrierArrive(bar);
  } else {
    if (lane < Tile::PAIR) barrierArriveRemote(bar, lane);
  }
}

/// By one thread: fills the ring with the stages of all tiles of this block.
template <class Tile, class H>
LATHE_DEV void loadTiles(const H &h, const TensorMap &mapA, const TensorMap &mapB, SharedAddr base, u32 tiles, u32 tilesM,
                         u32 tilesN, u32 steps, u32 N) {
  constexpr u32 STAGES = Tile::STAGES;
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, toB = base + Tile::B_AT;
  u32 slot = 0, parity = 1; // waiting for a slot that was never used passes at once
  u32 early = 0;            // stages of the first tile whose weights are under way
  Share s;
  if constexpr (H::kProgrammatic)
    if (shareOf<Tile>(0, tiles, steps, s)) {
      const TilePlace t = placeOfBlock<Tile>(s.tile, tilesM, tilesN);
      for (; early < STAGES && early < s.end - s.begin; ++early)
        loadStageEarly<Tile, Tile::PAIR>(h, mapA, mapB, base + early * Tile::A_BYTES, toB + early * Tile::B_BYTES, full + 8 * early, t,
                             s.begin + early, N);
    }
  dependenciesWait();
  for (u32 index = 0; shareOf<Tile>(index, tiles, steps, s); ++index) {
    const TilePlace t = placeOfBlock<Tile>(s.tile, tilesM, tilesN);
    for (u32 step = s.begin; step < s.end; ++step) {
      barrierSleep(empty + 8 * slot, parity);
      loadStages<Tile, Tile::PAIR>(h, mapA, mapB, base + slot * Tile::A_BYTES, toB + slot * Tile::B_BYTES, full + 8 * slot, t, step,
                       N, index == 0 && step < s.begin + early);
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
    }
  }
  if constexpr (H::kLate) dependentsMayStart();
}

/// By a group: `count` steps of the ring, whose first is `before`. Its rows begin at `mine`.
template <class Tile, class H>
LATHE_DEV void multiplySteps(typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], SharedAddr base, SharedAddr mine, u32 before,
                             u32 count, u32 next) {
  constexpr u32 STAGES = Tile::STAGES;
  // Bytes to the next 64 rows, to the next 32 bytes of k (in 16 bytes).
  constexpr u32 A_ROWS64 = 64 * 128 / Tile::SLICES;
  constexpr u64 A_NEXT = Tile::A_ALONG ? 2 : 128, B_NEXT = Tile::B_ALONG ? 2 : Tile::B_WIDE * 2;
  constexpr int EACH = 4 / Tile::SLICES, ALL = EACH * Tile::USED; // products of a slice, of a stage
  constexpr u64 A_SLICE = Tile::A_BYTES / Tile::SLICES >> 4, B_SLICE = Tile::B_BYTES / Tile::SLICES >> 4;
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES;
  u32 slot = before % STAGES, parity = before / STAGES & 1, last = 0;
  u32 step = 0;
  do {
    barrierSleep(full + 8 * slot, parity);
    const SharedAddr tileA = mine + slot * Tile::A_BYTES, tileB = base + Tile::B_AT + slot * Tile::B_BYTES;
    const u64 a = Tile::SLICES > 1 ? wgmmaAlongK64(tileA) : Tile::A_ALONG ? wgmmaAlongK(tileA) : wgmmaAcrossK(tileA, A_ROWS64);
    const u64 b = Tile::SLICES > 1 ? wgmmaAlongK64(tileB) : descriptorB<Tile>(tileB);
    wgmmaFence();
#pragma unroll
    for (int k = 0; k < ALL; ++k)
#pragma unroll
      for (int i = 0; i < Tile::MI; ++i)
        H::multiply(acc[i], a + i * (A_ROWS64 >> 4) + k / EACH * A_SLICE + k % EACH * A_NEXT,
                    b + k / EACH * B_SLICE + k % EACH * B_NEXT, k > 0 ? 1u : (u32)(step > 0));
    wgmmaCommit();
    if (step > 0) { // the products of the step before are done: its slot is free
      wgmmaWait<1>();
      slotIsFree<Tile>(empty + 8 * last);
    }
    last = slot;
    if (++slot == STAGES) { slot = 0; parity ^= 1; }
  } while (++step < count);
  if (Tile::PINGPONG) namedBarrierArrive(next, 256);
  wgmmaWait<0>();
  slotIsFree<Tile>(empty + 8 * last);
}

/// The same of all steps of a tile, PARTS of them at a time.
template <class Tile, class H>
LATHE_DEV void multiplyParts(typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], SharedAddr base, SharedAddr mine, u32 before,
                             u32 steps) {
  typename H::Acc part[Tile::MI][Tile::BN / 2];
  u32 begin = steps / Tile::PARTS;
  multiplySteps<Tile, H>(acc, base, mine, before, begin, 0);
#pragma unroll 1
  for (u32 p = 2; p <= Tile::PARTS; ++p) {
    const u32 end = p * steps / Tile::PARTS;
    multiplySteps<Tile, H>(part, base, mine, before + begin, end - begin, 0);
#pragma unroll
    for (int i = 0; i < Tile::MI; ++i)
#pragma unroll
      for (int j = 0; j < Tile::BN / 2; ++j) acc[i][j] += part[i][j];
    begin = end;
  }
}

template <class Tile, class H>
LATHE_DEV void gemmWgmma(const H &h, const TensorMap &mapA, const TensorMap &mapB, const TensorMap &mapC,
                         const TensorMap &mapD, i64 batches, i64 M64, i64 N64, i64 K64) {
  constexpr int BM = Tile::BM, BN = Tile::BN, BK = Tile::BK, STAGES = Tile::STAGES, MI = Tile::MI;
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u; // the swizzle counts from there
  const SharedAddr arrived = base + Tile::BARRIERS_AT + 16 * STAGES;
  const u32 M = (u32)M64, N = (u32)N64, K = (u32)K64, group = threadIdx.x / 128;
  const u32 tilesM = (M + BM - 1) / BM, tilesN = (N + Tile::OUT - 1) / Tile::OUT;
  const u32 tiles = (u32)batches * ((tilesM + Tile::PAIR - 1) / Tile::PAIR) * tilesN, steps = (K + BK - 1) / BK;
  startRing<Tile, H>(mapA, mapB, mapC, mapD, base);

  if (group == 0) {
    registersLower<Tile::LOADER_REGISTERS>();
    if (threadIdx.x == 0) loadTiles<Tile>(h, mapA, mapB, base, tiles, tilesM, tilesN, steps, N);
  } else {
    registersRaise<Tile::REGISTERS>();
    const u32 me = group - 1;
    const u32 firstRow = Tile::PINGPONG ? 0 : me * (BM / 2);
    const SharedAddr mine = base + firstRow * (128 / Tile::SLICES);
    Staging staging{base + Tile::C_AT + me * 2 * Tile::C_BYTES, arrived + me * 16, me, 0};
    typename H::Acc acc[MI][BN / 2];
    // The order barriers (4 and 5) let one group at a time multiply. They are more than a
    // matter of speed: a group two rounds ahead would take an old phase for the one it needs.
    if (Tile::PINGPONG && me == 1) namedBarrierArrive(4, 256);
    Share s;
    u32 before = 0;
    for (u32 index = 0; shareOf<Tile>(index, tiles, steps, s); before += s.end - s.begin, ++index) {
      if (Tile::PINGPONG && (index & 1) != me) continue;
      TilePlace t = placeOfBlock<Tile>(s.tile, tilesM, tilesN);
      t.m += firstRow;
      const bool gives = Tile::STREAM_K && s.end < steps;
      if constexpr (H::kBeside)
        if (threadIdx.x % 128 == 0 && !gives) {
          dependenciesWait();
          loadFirstBeside<Tile, H>(mapD, staging, t);
        }
      if (Tile::PINGPONG) namedBarrierSync(4 + me, 256);
      if constexpr (Tile::PARTS > 1) multiplyParts<Tile, H>(acc, base, mine, before, steps);
      else multiplySteps<Tile, H>(acc, base, mine, before, s.end - s.begin, 4 + (me ^ 1));
      dependenciesWait(); // over long since, but by this thread, which may read what they wrote
      if constexpr (Tile::STREAM_K) {
        if (gives) givePart<Tile>(h, acc, me);
        else if (s.begin > 0) takeParts<Tile>(h, acc, s, tiles, steps, me);
      }
      if (!gives) storeTile<Tile>(h, mapC, mapD, acc, t, M, N, staging);
    }
    if (H::kStaged && threadIdx.x % 128 == 0) storeWaitAll();
  }
  if constexpr (Tile::PAIR > 1) { // the other block may still write here
    __syncwarp();
    clusterSync();
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_HOPPER
