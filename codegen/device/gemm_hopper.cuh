//===- gemm_hopper.cuh - matrix products of sm_90a --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// C[b,m,n] = sum over k of A[b,m,k] * B[b,k,n] for 16-bit operands that tensor maps can
// describe: rows of a multiple of 16 bytes. One block a multiprocessor walks over tiles. Of
// its three groups of four warps the first lets the copy engine fill a ring of stages, the
// other two multiply:
//
//   together   (cooperative) each has half of the rows of the same tile
//   in turns   (ping-pong) each has every second tile: one's epilogue runs while the other
//              multiplies
//
// The holes, a struct H made by the compiler:
//
//   typedef ... Element;  static constexpr Operand kA, kB;   AlongK or AcrossK
//   static constexpr bool kBatchA, kBatchB;   the operand's map has a dimension of batches
//   static constexpr bool kProgrammatic; launched while the kernel before still runs; B is constant
//   static void multiply(f32 (&d)[BN / 2], u64 a, u64 b, u32 add);   the instruction
//   static constexpr bool kStaged;       results go through shared memory and map C: there is
//   Vec<T, 2> value(i64 b, i64 m, i64 pair, Vec<f32, 2> sums);   two results of 16 bits, N even
//   static constexpr bool kBatched;      map C has a dimension of batches
//   static constexpr int kLanes;         else: 2 or 1, divides N
//   void epilogue(i64 b, i64 m, i64 n, Vec<f32, kLanes> sums);   stores the results
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_HOPPER
#define LATHE_DEVICE_GEMM_HOPPER
#ifndef LATHE_EMULATE

/// BM x BN a tile; ROWS of A are loaded, fewer than BM where M is small: rows beyond a tensor
/// are slow to load, and what is left unloaded spoils only rows that are not stored.
template <int BM_, int BN_, int STAGES_, int ROWS_, bool TURNS_, class H> struct WgmmaTile {
  static constexpr int BM = BM_, BN = BN_, BK = 64, STAGES = STAGES_, ROWS = ROWS_;
  static constexpr bool TURNS = TURNS_;
  static constexpr bool A_ALONG = H::kA == Operand::AlongK, B_ALONG = H::kB == Operand::AlongK;
  static constexpr int MI = TURNS ? BM / 64 : BM / 128; // products of 64 rows by a group
  // With k across, chunks of m or n that lie together: as many elements as a swizzle spans.
  static constexpr int A_WIDE = 64, B_WIDE = BN % 64 == 0 ? 64 : 32;
  static constexpr u32 A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;
  static constexpr u32 LOADED = (A_ALONG ? ROWS * BK * 2 : A_BYTES) + B_BYTES; // of a stage
  // Results of 64 rows are staged in two buffers a group.
  static constexpr int STAGED = BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : 16; // columns
  static constexpr u32 C_BYTES = H::kStaged ? 64 * STAGED * 2 : 0;
  static constexpr u32 B_AT = STAGES * A_BYTES, C_AT = B_AT + STAGES * B_BYTES, BARRIERS_AT = C_AT + 4 * C_BYTES;
  static constexpr int SUMS = MI * BN / 2;
  static constexpr int LOADER_REGISTERS = SUMS > 160 ? 24 : 40, REGISTERS = SUMS > 160 ? 240 : 232;
  static_assert(BM % (TURNS ? 64 : 128) == 0 && BN % (B_ALONG ? 16 : 32) == 0 && (A_ALONG || ROWS == BM), "tile shape");
};

struct TilePlace { u32 batch, m, n; };
/// Groups of 8 tile rows: tiles that run at a time share rows and columns in the cache.
template <class Tile> LATHE_DEV TilePlace placeOfTile(u32 id, u32 tilesM, u32 tilesN) {
  constexpr u32 group = 8;
  const u32 perBatch = tilesM * tilesN, batch = id / perBatch;
  id -= batch * perBatch;
  const u32 first = id / (group * tilesN) * group, inside = id - first * tilesN;
  const u32 rows = tilesM - first < group ? tilesM - first : group;
  return {batch, (first + inside % rows) * Tile::BM, inside / rows * Tile::BN};
}

// ---- Loading ---------------------------------------------------------------------------

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

// ---- Results ---------------------------------------------------------------------------
// A thread's sums of 64 rows: of each 8 columns two neighbours in row lane / 4 of its warp's 16
// rows, and two in the row 8 below.

template <class Tile, class H>
LATHE_DEV void storeStaged(const H &h, const TensorMap &mapC, const f32 (&acc)[Tile::BN / 2], u32 batch, u32 row0,
                           u32 column0, u32 M, u32 N, SharedAddr buffers, u32 &stored, u32 group) {
  constexpr int COLS = Tile::STAGED;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0;
  // Outside of the tensor the last row and columns are asked for again.
  i64 rows[2];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const u32 m = row0 + warp * 16 + lane / 4 + 8 * i;
    rows[i] = m < M ? m : M - 1;
  }
#pragma unroll
  for (int c = 0; c < Tile::BN / COLS; ++c) {
    const SharedAddr buffer = buffers + (stored++ & 1) * Tile::C_BYTES;
    // What the values need of memory is asked for before the first store, all at a time.
    u32 words[COLS / 16][4];
#pragma unroll
    for (int j = 0; j < COLS / 16; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) { // rows 0 and 8 of 8 columns, then of the next 8
        const int at = (c * (COLS / 8) + 2 * j + q / 2) * 4 + 2 * (q & 1);
        u32 n = column0 + c * COLS + (2 * j + q / 2) * 8 + 2 * (lane % 4);
        n = n < N ? n : N - 2;
        words[j][q] = bitCast<u32>(h.value((i64)batch, rows[q & 1], (i64)(n / 2), Vec<f32, 2>{{acc[at], acc[at + 1]}}));
      }
    if (leader) storeWaitRead<1>();
    namedBarrierSync(1 + group, 128);
#pragma unroll
    for (int j = 0; j < COLS / 16; ++j) {
      const u32 row = warp * 16 + (lane & 15), piece = 2 * j + (lane >> 4);
      const u32 turned = COLS == 64 ? piece ^ (row & 7) : COLS == 32 ? piece ^ (row >> 1 & 3) : piece ^ (row >> 2 & 1);
      storeMatrix4(buffer + row * (COLS * 2) + turned * 16, words[j]);
    }
    asyncFence();
    namedBarrierSync(1 + group, 128);
    if (leader) {
      if constexpr (H::kBatched) tensorStore(mapC, buffer, column0 + c * COLS, row0, batch);
      else tensorStore(mapC, buffer, column0 + c * COLS, row0);
      storeCommit();
    }
  }
}

template <class Tile, class H>
LATHE_DEV void storeDirect(const H &h, const f32 (&acc)[Tile::BN / 2], u32 batch, u32 row0, u32 column0, u32 M, u32 N) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const u32 m = row0 + warp * 16 + lane / 4 + 8 * i;
    if (m >= M) continue;
#pragma unroll
    for (int j = 0; j < Tile::BN / 8; ++j) {
      const u32 n = column0 + j * 8 + 2 * (lane % 4);
      const int at = 4 * j + 2 * i;
      if constexpr (H::kLanes == 2) {
        if (n < N) h.epilogue((i64)batch, (i64)m, (i64)n, Vec<f32, 2>{{acc[at], acc[at + 1]}});
      } else {
        if (n < N) h.epilogue((i64)batch, (i64)m, (i64)n, Vec<f32, 1>{{acc[at]}});
        if (n + 1 < N) h.epilogue((i64)batch, (i64)m, (i64)n + 1, Vec<f32, 1>{{acc[at + 1]}});
      }
    }
  }
}

// ---- The kernel ------------------------------------------------------------------------

template <class Tile, class H>
LATHE_DEV void gemmWgmma(const H &h, const TensorMap &mapA, const TensorMap &mapB, const TensorMap &mapC, i64 batches,
                         i64 M64, i64 N64, i64 K64) {
  constexpr int BM = Tile::BM, BN = Tile::BN, BK = Tile::BK, STAGES = Tile::STAGES, MI = Tile::MI;
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u; // the swizzle counts from there
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES;
  const u32 M = (u32)M64, N = (u32)N64, K = (u32)K64, group = threadIdx.x / 128;
  const u32 tilesM = (M + BM - 1) / BM, tilesN = (N + BN - 1) / BN, tiles = (u32)batches * tilesM * tilesN;
  const u32 steps = (K + BK - 1) / BK;
  if (threadIdx.x == 0) {
    tensorMapPrefetch(mapA);
    tensorMapPrefetch(mapB);
    if constexpr (H::kStaged) tensorMapPrefetch(mapC);
    for (int s = 0; s < STAGES; ++s) {
      barrierInit(full + 8 * s, 1);
      barrierInit(empty + 8 * s, Tile::TURNS ? 4 : 8); // a warp each
    }
    barrierInitFence();
  }
  __syncthreads();
  dependentsMayStart();

  if (group == 0) {
    registersLower<Tile::LOADER_REGISTERS>();
    if (threadIdx.x == 0) {
      u32 slot = 0, parity = 1; // waiting for a slot that was never used passes at once
      u32 early = 0;            // stages of the first tile whose weights are under way
      if constexpr (H::kProgrammatic) {
        const TilePlace t = placeOfTile<Tile>(blockIdx.x, tilesM, tilesN);
        for (; early < STAGES && early < steps; ++early) {
          barrierExpect(full + 8 * early, Tile::LOADED);
          loadStage<Tile::B_ALONG, H::kBatchB, BN, Tile::B_WIDE>(base + Tile::B_AT + early * Tile::B_BYTES, mapB,
                                                                 full + 8 * early, t.batch, t.n, early * BK);
        }
      }
      dependenciesWait();
      for (u32 id = blockIdx.x; id < tiles; id += gridDim.x) {
        const TilePlace t = placeOfTile<Tile>(id, tilesM, tilesN);
        for (u32 step = 0; step < steps; ++step) {
          const SharedAddr bar = full + 8 * slot;
          const bool begun = id == blockIdx.x && step < early;
          barrierWait(empty + 8 * slot, parity);
          if (!begun) barrierExpect(bar, Tile::LOADED);
          loadStage<Tile::A_ALONG, H::kBatchA, BM, Tile::A_WIDE>(base + slot * Tile::A_BYTES, mapA, bar, t.batch, t.m,
                                                                 step * BK);
          if (!begun)
            loadStage<Tile::B_ALONG, H::kBatchB, BN, Tile::B_WIDE>(base + Tile::B_AT + slot * Tile::B_BYTES, mapB, bar,
                                                                   t.batch, t.n, step * BK);
          if (++slot == STAGES) { slot = 0; parity ^= 1; }
        }
      }
    }
  } else {
    registersRaise<Tile::REGISTERS>();
    const u32 me = group - 1, lane = threadIdx.x % 32;
    const u32 firstRow = Tile::TURNS ? 0 : me * (BM / 2);
    // Bytes to this group's rows, to the next 64 rows, to the next 16 of k (in 16 bytes).
    constexpr u32 A_ROWS64 = 64 * 128;
    constexpr u64 A_K16 = Tile::A_ALONG ? 2 : 128, B_K16 = Tile::B_ALONG ? 2 : Tile::B_WIDE * 2;
    constexpr u32 B_NEXT = Tile::B_WIDE * BK * 2;
    const SharedAddr mine = base + firstRow / 64 * A_ROWS64, buffers = base + Tile::C_AT + me * 2 * Tile::C_BYTES;
    f32 acc[MI][BN / 2];
    u32 round = 0, stored = 0;
    // The order barriers (4 and 5) let one group at a time multiply. They are more than a
    // matter of speed: a group two rounds ahead would take an old phase for the one it needs.
    if (Tile::TURNS && me == 1) namedBarrierArrive(4, 256);
    for (u32 id = blockIdx.x; id < tiles; id += gridDim.x, ++round) {
      if (Tile::TURNS && (round & 1) != me) continue;
      const TilePlace t = placeOfTile<Tile>(id, tilesM, tilesN);
      const u32 before = round * steps;
      u32 slot = before % STAGES, parity = before / STAGES & 1, last = 0;
      if (Tile::TURNS) namedBarrierSync(4 + me, 256);
      for (u32 step = 0; step < steps; ++step) {
        barrierWait(full + 8 * slot, parity);
        const SharedAddr tileA = mine + slot * Tile::A_BYTES, tileB = base + Tile::B_AT + slot * Tile::B_BYTES;
        const u64 a = Tile::A_ALONG ? wgmmaAlongK(tileA) : wgmmaAcrossK(tileA, A_ROWS64);
        const u64 b = Tile::B_ALONG         ? wgmmaAlongK(tileB)
                      : Tile::B_WIDE == 64 ? wgmmaAcrossK(tileB, B_NEXT)
                                            : wgmmaAcrossK32(tileB, B_NEXT);
        wgmmaFence();
#pragma unroll
        for (int k = 0; k < BK / 16; ++k)
#pragma unroll
          for (int i = 0; i < MI; ++i)
            H::multiply(acc[i], a + i * (A_ROWS64 >> 4) + k * A_K16, b + k * B_K16, k > 0 ? 1u : (u32)(step > 0));
        wgmmaCommit();
        if (step > 0) { // the products of the step before are done: its slot is free
          wgmmaWait<1>();
          if (lane == 0) barrierArrive(empty + 8 * last);
        }
        last = slot;
        if (++slot == STAGES) { slot = 0; parity ^= 1; }
      }
      if (Tile::TURNS) namedBarrierArrive(4 + (me ^ 1), 256);
      wgmmaWait<0>();
      if (lane == 0) barrierArrive(empty + 8 * last);
      dependenciesWait(); // over long since, but by this thread, which may read what they wrote
#pragma unroll
      for (int i = 0; i < MI; ++i) {
        if constexpr (H::kStaged)
          storeStaged<Tile>(h, mapC, acc[i], t.batch, t.m + firstRow + i * 64, t.n, M, N, buffers, stored, me);
        else
          storeDirect<Tile>(h, acc[i], t.batch, t.m + firstRow + i * 64, t.n, M, N);
      }
    }
    if (H::kStaged && threadIdx.x % 128 == 0) storeWaitAll();
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_HOPPER
