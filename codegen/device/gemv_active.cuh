//===- gemv_active.cuh - one row, of which many elements are zero -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: skinny
//
// C[n] = sum over k of A[k] * B[k,n] for one row whose zeros only a run knows, and constant weights B, which are finite, so
// that zeros add nothing. The weights are packed as `panels` (lathe/support/Packing.h) of COLUMNS columns: what one element
// of A is multiplied with lies together. A block lists the elements of its part of A that are not zero and reads those
// weights alone, in the order of k: each part of k has the same sums in each run, and the same zeros give the same bits.
// Holes as in skinny.cuh (Element, kLanes, start, wait, epilogue), A by `loadA(b, m, k)`, and
//
//   const Element *packed() const;   the weights
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMV_ACTIVE
#define LATHE_DEVICE_GEMV_ACTIVE

/// An element of A that is not zero, and where its weights begin in the panel.
struct ActiveInput { u32 at; f32 x; };

/// COLUMNS columns of C a cluster, whose blocks take 32 of k by turns; their WARPS warps UNROLL pieces of 16 bytes a round.
template <int COLUMNS, int WARPS, int CLUSTER, int UNROLL, class H> LATHE_DEV void gemvActive(const H &h, i64 N, i64 K) {
  typedef typename H::Element T;
  constexpr int V = 16 / sizeof(T), LANES = COLUMNS / V, ROWS = 32 * WARPS / LANES; // weights of as many elements at a time
  constexpr int CHUNK = 2048, PIECES = CHUNK / (32 * WARPS); // of A listed at a time; of 32 elements, by a warp
  __shared__ ActiveInput list[CHUNK];
  __shared__ f32 part[ROWS][COLUMNS], total[COLUMNS];
  __shared__ u32 counts[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = threadIdx.x / LANES, column = threadIdx.x % LANES * V;
  const i64 n0 = (i64)(blockIdx.x / CLUSTER) * COLUMNS, first = (i64)(blockIdx.x % CLUSTER) * 32;
  const i64 share = (K + 32 * CLUSTER - 1) / (32 * CLUSTER) * 32;     // of k, of each block
  const u32 width = N - n0 > COLUMNS / 2 ? COLUMNS : COLUMNS / 2;     // the last panel may be half as wide
  const T *from = h.packed() + n0 * K + (column < (int)width ? column : 0);
  f32 sums[V];
#pragma unroll
  for (int i = 0; i < V; ++i) sums[i] = 0.0f;
  H::start();
  H::wait();
#pragma unroll 1
  for (i64 chunk = 0; chunk < share; chunk += CHUNK) {
    auto depthOf = [&](int piece) {
      const i64 j = chunk + (warp * PIECES + piece) * 32;
      return j < share ? j * CLUSTER + first + lane : K;
    };
    f32 x[PIECES];
#pragma unroll
    for (int p = 0; p < PIECES; ++p) x[p] = depthOf(p) < K ? toF32(h.loadA(0, 0, depthOf(p))) : 0.0f;
    u32 active[PIECES], mine = 0;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      active[p] = warpBits(x[p] != 0.0f); // NaN is not
      mine += countBits(active[p]);
    }
    if (chunk > 0) __syncthreads(); // the list before has been read
    if (lane == 0) counts[warp] = mine;
    __syncthreads();
    u32 at = 0, count = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      if (w < warp) at += counts[w];
      count += counts[w];
    }
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      if (active[p] >> lane & 1) list[at + countBits(active[p] & ((1u << lane) - 1))] = {(u32)depthOf(p) * width, x[p]};
      at += countBits(active[p]);
    }
    __syncthreads();
#pragma unroll 1
    for (u32 begin = row; begin < count; begin += ROWS * UNROLL) {
      Bits16 w[UNROLL];
      f32 a[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const u32 i = begin + u * ROWS;
        w[u] = Bits16{};
        a[u] = 0.0f;
        if (i < count) {
          const ActiveInput in = list[i];
          a[u] = in.x;
          w[u] = loadGlobal16Streaming(from + in.at);
        }
      }
      pinLoads();
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        if (begin + u * ROWS >= count) break;
        Vec<T, V> v;
        memcpy(&v, &w[u], 16);
        const Vec<f32, V> wf = convert<f32>(v);
#pragma unroll
        for (int i = 0; i < V; ++i) sums[i] = fmaf(a[u], wf.v[i], sums[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) part[row][column + i] = sums[i];
  __syncthreads();
  for (int c = threadIdx.x; c < COLUMNS; c += 32 * WARPS) {
    f32 sum = part[0][c];
#pragma unroll
    for (int r = 1; r < ROWS; ++r) sum += part[r][c];
    total[c] = sum;
  }
  __syncthreads();
  storeShare<COLUMNS, CLUSTER>(h, total, n0, N);
}

#endif // LATHE_DEVICE_GEMV_ACTIVE
