//===- gemv.cuh - products with few rows -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, mma, gemm
//
// C[b,m,n] for M <= ROWS (1 to 8): the weights B are read once and streamed, so
// the time is that of their bytes. Holes as in gemm.cuh (Element, Acc, kA, kB,
// kLanes, loads, epilogue); A is read through `loadA(b, m, k)` always.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMV
#define LATHE_DEVICE_GEMV

/// V consecutive elements of k from column n of B; zeros beyond K.
template <class H, int V>
LATHE_DEV void gemvPiece(const H &h, i64 b, i64 n, i64 k, i64 K, typename H::Acc (&w)[V]) {
  typedef typename H::Element T;
  if constexpr (H::kB == Operand::AlongK) {
    const T *p = h.baseB(b) + n * h.strideB() + k;
    if (k + V <= K) {
      constexpr int parts = (sizeof(T) * V + 15) / 16;
      Vec<T, V> v;
      if constexpr (sizeof(T) * V % 16 == 0) {
        Bits16 raw[parts];
#pragma unroll
        for (int i = 0; i < parts; ++i) raw[i] = loadGlobal16Streaming((const u8 *)p + 16 * i);
        memcpy(&v, raw, sizeof v);
      } else {
        v = loadVecUnaligned<T, V>(p);
      }
#pragma unroll
      for (int i = 0; i < V; ++i) w[i] = convert<typename H::Acc>(v.v[i]);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    T e{};
    if (k + i < K) {
      if constexpr (H::kB == Operand::AlongK) e = h.baseB(b)[n * h.strideB() + k + i];
      else if constexpr (H::kB == Operand::AcrossK) e = h.baseB(b)[(k + i) * h.strideB() + n];
      else e = h.loadB(b, k + i, n);
    }
    w[i] = convert<typename H::Acc>(e);
  }
}

/// B with contiguous k: WARPS warps share one column n and split K; the grid is
/// batch * N blocks of 32 * WARPS threads.
template <int ROWS, int WARPS, class H> LATHE_DEV void gemvAlongK(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Acc Acc;
  constexpr int V = 16 / sizeof(typename H::Element), THREADS = 32 * WARPS;
  const i64 b = blockIdx.x / (u32)N, n = blockIdx.x % (u32)N;
  Acc sums[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; ++m) sums[m] = (Acc)0;
#pragma unroll 2
  for (i64 k = (i64)threadIdx.x * V; k < K; k += THREADS * V) {
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
    sums[m] = blockReduce<SumOp, THREADS>(sums[m]);
    if (m < M && threadIdx.x == 0) h.epilogue(b, m, n, Vec<Acc, 1>{{sums[m]}});
  }
}

/// B with contiguous n: a block takes 32 * V columns, its WARPS warps split K and
/// add up in shared memory, warp by warp. V divides N.
template <int ROWS, int WARPS, int V, class H>
LATHE_DEV void gemvAcrossK(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Element T;
  typedef typename H::Acc Acc;
  __shared__ __align__(16) Acc part[WARPS][32 * V];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 blocks = (u32)((N + 32 * V - 1) / (32 * V));
  const i64 b = blockIdx.x / blocks, n = (i64)(blockIdx.x % blocks) * 32 * V + lane * V;
  Acc sums[ROWS][V];
#pragma unroll
  for (int m = 0; m < ROWS; ++m)
#pragma unroll
    for (int i = 0; i < V; ++i) sums[m][i] = (Acc)0;
  if (n < N) {
#pragma unroll 8
    for (i64 k = warp; k < K; k += WARPS) {
      Vec<T, V> w;
      if constexpr (H::kB == Operand::AcrossK) {
        w = loadVec<T, V>(h.baseB(b) + k * h.strideB() + n);
      } else {
#pragma unroll
        for (int i = 0; i < V; ++i) w.v[i] = h.loadB(b, k, n + i);
      }
#pragma unroll
      for (int m = 0; m < ROWS; ++m) {
        if (m >= M) break;
        Acc a = convert<Acc>(h.loadA(b, m, k));
#pragma unroll
        for (int i = 0; i < V; ++i) sums[m][i] = multiplyAdd(a, convert<Acc>(w.v[i]), sums[m][i]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < ROWS; ++m) {
    if (m >= M) break;
#pragma unroll
    for (int i = 0; i < V; ++i) part[warp][lane * V + i] = sums[m][i];
    __syncthreads();
    constexpr int L = H::kLanes;
    for (int c = threadIdx.x * L; c < 32 * V; c += 32 * WARPS * L) {
      Vec<Acc, L> r;
#pragma unroll
      for (int i = 0; i < L; ++i) {
        r.v[i] = part[0][c + i];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) r.v[i] += part[w][c + i];
      }
      i64 at = n - lane * V + c;
      if (at < N) h.epilogue(b, m, at, r);
    }
    __syncthreads();
  }
}

#endif // LATHE_DEVICE_GEMV
