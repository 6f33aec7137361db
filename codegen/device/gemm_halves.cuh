//===- gemm_halves.cuh - products of half as many tiles as blocks ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where tiles that fill the card would be small ones, which load more than they multiply: two blocks of a
// cluster have half of K each of the same tile, exchange sums through distributed shared memory, and
// store half of its rows each. One tile a cluster; holes as in gemm_hopper.cuh.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_HALVES
#define LATHE_DEVICE_GEMM_HALVES
#ifndef LATHE_EMULATE

template <class Tile, class H>
LATHE_DEV void gemmHalves(const H &h, const TensorMap &mapA, const TensorMap &mapB, const TensorMap &mapC,
                          const TensorMap &mapD, i64 batches, i64 M64, i64 N64, i64 K64) {
  constexpr int BM = Tile::BM, BN = Tile::BN, BK = Tile::BK, STAGES = Tile::STAGES, MI = Tile::MI;
  static_assert(!Tile::TURNS && MI * 64 * BN * 4 <= Tile::C_AT, "sums take the place of the stages");
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u; // the swizzle counts from there
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, arrived = empty + 8 * STAGES;
  const u32 M = (u32)M64, N = (u32)N64, K = (u32)K64, group = threadIdx.x / 128, rank = clusterRank();
  const u32 tilesM = (M + BM - 1) / BM, tilesN = (N + Tile::OUT - 1) / Tile::OUT, steps = (K + BK - 1) / BK;
  TilePlace t = placeOfTile<Tile>(blockIdx.x / 2, tilesM, tilesN);
  const u32 begin = rank * (steps / 2), count = rank == 0 ? steps / 2 : steps - steps / 2;
  startRing<Tile, H>(mapA, mapB, mapC, mapD, base);

  if (group == 0) {
    registersLower<Tile::LOADER_REGISTERS>();
    if (threadIdx.x == 0) {
      u32 early = 0, slot = 0, parity = 1;
      if constexpr (H::kProgrammatic)
        for (; early < STAGES && early < count; ++early) {
          barrierExpect(full + 8 * early, Tile::LOADED);
          loadStageB<Tile, H>(base + Tile::B_AT + early * Tile::B_BYTES, mapB, full + 8 * early, t, (begin + early) * BK, N);
        }
      dependenciesWait();
      for (u32 step = 0; step < count; ++step) {
        barrierWait(empty + 8 * slot, parity);
        loadStages<Tile>(h, mapA, mapB, base + slot * Tile::A_BYTES, base + Tile::B_AT + slot * Tile::B_BYTES,
                         full + 8 * slot, t, begin + step, N, step < early);
        if (++slot == STAGES) { slot = 0; parity ^= 1; }
      }
    }
    __syncwarp();
    clusterSync();
    clusterSync();
  } else {
    registersRaise<Tile::REGISTERS>();
    const u32 me = group - 1;
    Staging staging{base + Tile::C_AT + me * 2 * Tile::C_BYTES, arrived + me * 16, me, 0};
    typename H::Acc acc[MI][BN / 2];
    t.m += me * (BM / 2);
    if constexpr (H::kBeside)
      if (threadIdx.x % 128 == 0 && me == rank) {
        dependenciesWait();
        loadFirstBeside<Tile, H>(mapD, staging, t);
      }
    multiplySteps<Tile, H>(acc, base, base + me * (BM / 2) * 128, 0, count, 0);
    dependenciesWait(); // over long since, but by this thread, which may read what they wrote
    clusterSync();      // nobody reads the stages any more
    const SharedAddr sums = base + threadIdx.x % 128 * 16;
    if (me != rank) {
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int j = 0; j < BN / 8; ++j)
          storeToCluster4(sums + (i * (BN / 8) + j) * 2048, rank ^ 1, bitCast<u32>(acc[i][4 * j]), bitCast<u32>(acc[i][4 * j + 1]),
                          bitCast<u32>(acc[i][4 * j + 2]), bitCast<u32>(acc[i][4 * j + 3]));
    }
    clusterSync();
    if (me == rank) {
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
          const Vec<u32, 4> part = loadShared16(sums + (i * (BN / 8) + j) * 2048);
#pragma unroll
          for (int l = 0; l < 4; ++l) acc[i][4 * j + l] += bitCast<typename H::Acc>(part.v[l]);
        }
      storeTile<Tile>(h, mapC, mapD, acc, t, M, N, staging);
      if (H::kStaged && threadIdx.x % 128 == 0) storeWaitAll();
    }
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_HALVES
