//===- gemv_short.cuh - products with few rows and little depth ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemv
//
// C[b,m,n] for M <= ROWS where K is so short that 16 bytes for each of some lanes of
// a warp are all of it: they share a column of B, and a block has many columns. Sums
// are those of gemv.cuh, in its order. Holes as there.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMV_SHORT
#define LATHE_DEVICE_GEMV_SHORT

/// GROUP lanes, a power of two, have 16 bytes each of one column's K; the grid has a block for every
/// THREADS / GROUP columns of all batches.
template <int ROWS, int THREADS, int GROUP, class H>
LATHE_DEV void gemvShort(const H &h, i64 batches, i64 M, i64 N, i64 K) {
  typedef typename H::Acc Acc;
  constexpr int V = 16 / sizeof(typename H::Element), COLUMNS = THREADS / GROUP;
  const i64 column = (i64)blockIdx.x * COLUMNS + threadIdx.x / GROUP;
  const int part = threadIdx.x % GROUP;
  const bool inside = column < batches * N;
  const i64 b = inside ? (u32)column / (u32)N : 0, n = inside ? (u32)column % (u32)N : 0, k = part * V;
  Acc sums[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; ++m) sums[m] = (Acc)0;
  if (inside && k < K) {
    Acc w[V];
    gemvPiece<H, V>(h, b, n, k, K, w);
#pragma unroll
    for (int m = 0; m < ROWS; ++m)
      if (m < M)
#pragma unroll
        for (int i = 0; i < V; ++i)
          if (k + i < K) sums[m] = multiplyAdd(convert<Acc>(h.loadA(b, m, k + i)), w[i], sums[m]);
  }
#pragma unroll
  for (int m = 0; m < ROWS; ++m) {
    sums[m] = warpReduce<SumOp, GROUP>(sums[m]);
    if (m < M && inside && part == 0) h.epilogue(b, m, n, Vec<Acc, 1>{{sums[m]}});
  }
}

#endif // LATHE_DEVICE_GEMV_SHORT
