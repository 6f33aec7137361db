//===- gemm_split.cuh - products of few tiles on sm_90a -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_hopper, block_scales
//
// Split-K within a cluster, for products with too few tiles to fill the GPU: a cluster has one tile,
// its blocks split K and add their sums through distributed shared memory, in the order of their ranks,
// so that results are the same bits every time. One warpgroup multiplies the tile's 64 rows, a fifth
// warp loads. The ring may be small: then several blocks share a multiprocessor, and one's loads run
// while another adds up.
//
// Holes as in gemm_hopper.cuh, of the results only
//
//   static constexpr int kLanes;         4, 2 or 1, divides N
//   void epilogue(i64 b, i64 m, i64 n, Vec<Acc, kLanes> sums);   stores the results
//     with kPair                  (..., Vec<Acc, kLanes> sums, Vec<Acc, kLanes> seconds)
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_SPLIT
#define LATHE_DEVICE_GEMM_SPLIT
#ifndef LATHE_EMULATE

/// 64 x BN a tile; ROWS of A are loaded, fewer where M is small. SPLIT blocks.
template <int BN_, int STAGES_, int ROWS_, int SPLIT_, class H> struct SplitTile {
  static constexpr int BM = 64, BN = BN_, STAGES = STAGES_, ROWS = ROWS_, SPLIT = SPLIT_;
  static constexpr int BK = 128 / sizeof(typename H::Element), OUT = H::kPair ? BN / 2 : BN;
  static constexpr bool A_ALONG = H::kA == Operand::AlongK, B_ALONG = H::kB == Operand::AlongK;
  static constexpr int A_WIDE = 64, B_WIDE = OUT % 64 == 0 ? 64 : 32;
  // A product reads 64 rows: behind those of a stage lie others, which spoil rows that are not stored.
  static constexpr u32 A_BYTES = ROWS * 128, B_BYTES = BN * 128, LOADED = A_BYTES + B_BYTES;
  static constexpr u32 B_AT = STAGES * A_BYTES;
  // The sums take the place of the stages; rows are spread over the banks.
  static constexpr int PITCH = BN + 8;
  static constexpr u32 RING = STAGES * LOADED, SUMS = ROWS * PITCH * 4, BARRIERS_AT = RING > SUMS ? RING : SUMS;
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + 16 * STAGES + 1024; // barriers; where the swizzle begins
  static_assert(OUT % (B_ALONG ? 16 : 32) == 0 && (A_ALONG || ROWS == BM) && ROWS % 8 == 0, "tile shape");
  static_assert(STAGES * B_BYTES >= (u32)(BM - ROWS) * 128, "the last stage is read beyond its rows");
};

/// PROMOTED: sums of 8-bit floats over more than 128 of k in registers, as in gemm_promoted.cuh, with its
/// holes; two steps at a time.
template <class Tile, bool PROMOTED = false, class H>
LATHE_DEV void gemmSplit(const H &h, const TensorMap &mapA, const TensorMap &mapB, i64 M64, i64 N64, i64 K64) {
  typedef typename H::Acc Acc;
  constexpr int BM = Tile::BM, BN = Tile::BN, BK = Tile::BK, STAGES = Tile::STAGES, SPLIT = Tile::SPLIT;
  constexpr int THREADS = 160, TURN = PROMOTED ? 2 : 1; // steps
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u; // the swizzle counts from there
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, toB = base + Tile::B_AT;
  const u32 M = (u32)M64, N = (u32)N64, K = (u32)K64;
  const u32 rank = SPLIT > 1 ? clusterRank() : 0;
  const u32 steps = (K + BK - 1) / BK;
  const Share mine = shareOfRank<SPLIT>(blockIdx.x / SPLIT, rank, steps);
  const u32 begin = mine.begin, end = mine.end;
  const TilePlace t = placeOfTile<Tile>(mine.tile, (M + BM - 1) / BM, (N + Tile::OUT - 1) / Tile::OUT);
  if (threadIdx.x == 0) ringInit<STAGES>(full, empty, 4); // a warp each
  if (threadIdx.x == 128) {
    tensorMapPrefetch(mapA);
    tensorMapPrefetch(mapB);
  }
  __syncthreads();
  dependentsMayStart();

  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128) {
      u32 early = begin; // steps whose weights are under way
      if constexpr (H::kProgrammatic)
        for (; early < begin + STAGES && early < end; ++early) {
          const u32 slot = early - begin;
          barrierExpect(full + 8 * slot, Tile::LOADED);
          loadStageB<Tile>(h, toB + slot * Tile::B_BYTES, mapB, full + 8 * slot, t, early, N);
        }
      dependenciesWait();
      u32 slot = 0, parity = 1;
      const u32 last = begin + (end - begin + TURN - 1) / TURN * TURN;
      for (u32 step = begin; step < last; ++step) {
        barrierWait(empty + 8 * slot, parity);
        loadStages<Tile>(h, mapA, mapB, base + slot * Tile::A_BYTES, toB + slot * Tile::B_BYTES, full + 8 * slot, t,
                         step < end ? step : steps, N, step < early); // beyond K there are zeros
        if (++slot == STAGES) { slot = 0; parity ^= 1; }
      }
    }
    __syncwarp();
  } else {
    constexpr u64 A_NEXT = Tile::A_ALONG ? 2 : 128, B_NEXT = Tile::B_ALONG ? 2 : Tile::B_WIDE * 2;
    const u32 lane = threadIdx.x % 32;
    Acc acc[BN / 2];
    u32 slot = 0, parity = 0, last = 0, step = begin;
    if constexpr (PROMOTED) {
      constexpr bool SCALED = H::kBlockScales;
      Acc part[TURN][BN / 2];
      typename ScalesOf<SCALED, BN>::Type scales[TURN], next[TURN];
      const u32 row = t.m + threadIdx.x / 32 * 16 + lane / 4, edge = 128 - t.n % 128;
      if constexpr (SCALED) dependenciesWait();
#pragma unroll
      for (u32 i = 0; i < TURN; ++i) scales[i].load(h, t.batch, row, t.n, step + i, M, N, end);
#pragma unroll
      for (int j = 0; j < BN / 2; ++j) acc[j] = 0;
      do {
        u32 slots[TURN];
#pragma unroll
        for (int i = 0; i < TURN; ++i) {
          slots[i] = slot;
          barrierWait(full + 8 * slot, parity);
          wgmmaFence();
          const u64 a = wgmmaAlongK(base + slot * Tile::A_BYTES), b = wgmmaAlongK(toB + slot * Tile::B_BYTES);
#pragma unroll
          for (int k = 0; k < 4; ++k) H::multiply(part[i], a + 2 * k, b + 2 * k, k > 0);
          wgmmaCommit();
          if (++slot == STAGES) { slot = 0; parity ^= 1; }
        }
#pragma unroll
        for (u32 i = 0; i < TURN; ++i) next[i].load(h, t.batch, row, t.n, step + TURN + i, M, N, end);
        wgmmaWait<1>();
        if (lane == 0) barrierArrive(empty + 8 * slots[0]);
        promote<SCALED, 0>(acc, part[0], scales[0], edge);
        wgmmaWait<0>();
        if (lane == 0) barrierArrive(empty + 8 * slots[1]);
        // A step beyond K adds nothing: its sums are 0, but the scale might be infinite.
        if (!SCALED || step + 1 < end) promote<SCALED, 0>(acc, part[1], scales[1], edge);
#pragma unroll
        for (int i = 0; i < TURN; ++i) scales[i] = next[i];
      } while ((step += TURN) < end);
    } else do {
      barrierWait(full + 8 * slot, parity);
      const SharedAddr tileA = base + slot * Tile::A_BYTES, tileB = toB + slot * Tile::B_BYTES;
      const u64 a = Tile::A_ALONG ? wgmmaAlongK(tileA) : wgmmaAcrossK(tileA, 64 * 128);
      const u64 b = descriptorB<Tile>(tileB);
      wgmmaFence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        H::multiply(acc, a + k * A_NEXT, b + k * B_NEXT, k > 0 ? 1u : (u32)(step > begin));
      wgmmaCommit();
      if (step > begin) { // the products of the step before are done: its slot is free
        wgmmaWait<1>();
        if (lane == 0) barrierArrive(empty + 8 * last);
      }
      last = slot;
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
    } while (++step < end);
    wgmmaWait<0>();
    namedBarrierSync(1, 128); // nobody reads the stages any more
    const u32 row0 = threadIdx.x / 32 * 16 + lane / 4;
    Acc *sums = (Acc *)(shared + (base - sharedAddr(shared)));
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 row = row0 + 8 * i;
      if (row >= (u32)Tile::ROWS) continue;
#pragma unroll
      for (int j = 0; j < BN / 8; ++j)
        *(Vec<Acc, 2> *)(sums + row * Tile::PITCH + j * 8 + 2 * (lane % 4)) =
            Vec<Acc, 2>{{acc[4 * j + 2 * i], acc[4 * j + 2 * i + 1]}};
    }
  }
  if constexpr (SPLIT > 1) clusterSync();
  else __syncthreads();
  dependenciesWait(); // over long since, but by this thread, which may read what they wrote
  constexpr u32 L = H::kLanes, ACROSS = Tile::OUT / L;
  auto total = [&](u32 row, u32 column) {
    return addOverCluster<SPLIT, Acc, L>(base + (row * Tile::PITCH + column) * 4);
  };
  const u32 rows = M - t.m < (u32)Tile::ROWS ? M - t.m : (u32)Tile::ROWS;
#pragma unroll 2
  for (u32 i = rank * THREADS + threadIdx.x; i < rows * ACROSS; i += SPLIT * THREADS) {
    const u32 row = i / ACROSS, column = i % ACROSS * L;
    if (t.n + column < N) {
      const i64 m = t.m + row, n = t.n + column;
      if constexpr (H::kPair) h.epilogue((i64)t.batch, m, n, total(row, column), total(row, column + Tile::OUT));
      else h.epilogue((i64)t.batch, m, n, total(row, column));
    }
  }
  __syncwarp();
  if constexpr (SPLIT > 1) clusterLeave(); // nobody leaves while others read its sums
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_SPLIT
