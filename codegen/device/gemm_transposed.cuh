//===- gemm_transposed.cuh - results of products that were computed transposed ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_hopper
//
// How kernels whose weights are the A of wgmma (gemm_mixed.cuh, gemm_widened.cuh) store a tile: sums go to
// shared memory in the order of C, over the stages that nobody reads any more; the blocks of a cluster add
// theirs up there. `Tile`: BM x BN results, rows of PITCH sums, SPLIT blocks of THREADS.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_TRANSPOSED
#define LATHE_DEVICE_GEMM_TRANSPOSED
#ifndef LATHE_EMULATE

/// A warpgroup's sums to shared memory; `row`: the first column of C that the lane has.
template <class Tile, class Acc> LATHE_DEV void keepTransposed(Acc *sums, const Acc (&acc)[Tile::BM / 2], u32 row) {
#pragma unroll
  for (int j = 0; j < Tile::BM / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[(j * 8 + 2 * (threadIdx.x % 4) + e % 2) * Tile::PITCH + row + e / 2 * 8] = acc[4 * j + e];
}

/// Stores this block's share of a tile whose sums are at `base` in each block of the cluster. All threads call it.
template <class Tile, class H> LATHE_DEV void storeTransposed(const H &h, SharedAddr base, TilePlace t, u32 rank, u32 M, u32 N) {
  if constexpr (Tile::SPLIT > 1) clusterSync();
  else __syncthreads();
  dependenciesWait(); // over long since, but by this thread, which may read what they wrote
  constexpr u32 L = H::kLanes, ACROSS = Tile::BN / L;
  const u32 rows = M - t.m < (u32)Tile::BM ? M - t.m : (u32)Tile::BM;
#pragma unroll 2
  for (u32 i = rank * Tile::THREADS + threadIdx.x; i < rows * ACROSS; i += Tile::SPLIT * Tile::THREADS) {
    const u32 r = i / ACROSS, column = i % ACROSS * L;
    if (t.n + column >= N) continue;
    const auto sums = addOverCluster<Tile::SPLIT, typename H::Acc, L>(base + (r * Tile::PITCH + column) * 4);
    h.epilogue(0, (i64)t.m + r, (i64)t.n + column, sums);
  }
  __syncwarp();
  if constexpr (Tile::SPLIT > 1) clusterLeave(); // nobody leaves while others read its sums
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_TRANSPOSED
