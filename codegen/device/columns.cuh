//===- columns.cuh - reductions down columns ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, hopper
//
// y[outer, column] = the combination of x[outer, row, column] over all rows, where columns are
// contiguous in memory. A warp takes 32 * kLanes columns of every n-th row, several rows at a time;
// warps combine through shared memory, the blocks of a cluster through distributed shared memory,
// always in the same order. Holes:
//
//   typedef ... Acc; typedef SumOp Op;  what is combined, and how
//   typedef ... Element;                what is loaded: what lies in memory, or Acc
//   static constexpr int kLanes;       divides the columns
//   Vec<Element, kLanes> load(i64 outer, i64 row, i64 column);
//   Acc neutral();
//   void store(i64 outer, i64 column, Acc value);
//
// The grid is outer x strips of 32 * kLanes columns x CLUSTER.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_COLUMNS
#define LATHE_DEVICE_COLUMNS

#ifndef LATHE_EMULATE
/// The sum of `mine` over the blocks of a cluster; block r stores the columns of its share.
template <int WIDTH, int CLUSTER, class H>
LATHE_DEV void joinCluster(const H &h, typename H::Acc *mine, i64 outer, i64 first, i64 columns) {
  typedef typename H::Acc Acc;
  constexpr int SHARE = (WIDTH + CLUSTER - 1) / CLUSTER;
  clusterSync();
  for (int c = (int)clusterRank() * SHARE + threadIdx.x; c < WIDTH && c < ((int)clusterRank() + 1) * SHARE; c += blockDim.x) {
    if (first + c >= columns) continue;
    Acc part[CLUSTER];
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) part[i] = loadFromCluster<Acc>(sharedAddr(mine + c), i);
#pragma unroll
    for (int i = 1; i < CLUSTER; ++i) part[0] = H::Op::apply(part[0], part[i]);
    h.store(outer, first + c, part[0]);
  }
  clusterLeave(); // nobody leaves while others read its memory
}
#endif // LATHE_EMULATE

template <int WARPS, int CLUSTER, class H> LATHE_DEV void reduceColumns(const H &h, i64 rows, i64 columns) {
  typedef typename H::Acc Acc;
  typedef typename H::Op Op;
  constexpr int L = H::kLanes, WIDTH = 32 * L, STEP = CLUSTER * WARPS;
  constexpr int AHEAD = L >= 8 ? 4 : L >= 4 ? 8 : 16; // loads under way
  __shared__ __align__(16) Vec<Acc, L> parts[WARPS][32];
  __shared__ Acc total[WIDTH];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 strips = (u32)((columns + WIDTH - 1) / WIDTH), unit = blockIdx.x / CLUSTER;
  const i64 outer = unit / strips, first = (i64)(unit % strips) * WIDTH, column = first + lane * L;
  Vec<Acc, L> acc = splat<L>(h.neutral());
  auto combine = [&](const Vec<typename H::Element, L> &v) {
    const Vec<Acc, L> x = convert<Acc>(v);
#pragma unroll
    for (int j = 0; j < L; ++j) acc.v[j] = Op::apply(acc.v[j], x.v[j]);
  };
  if (column < columns) {
    i64 r = (i64)(blockIdx.x % CLUSTER) * WARPS + warp;
#pragma unroll 1
    for (; r + (AHEAD - 1) * STEP < rows; r += AHEAD * STEP) {
      Vec<typename H::Element, L> v[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) v[i] = h.load(outer, r + i * STEP, column);
      pinLoads();
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) combine(v[i]);
    }
    if (r < rows) { // fewer than AHEAD rows are left, and all of them are under way together too
      Vec<typename H::Element, L> v[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (r + i * STEP < rows) v[i] = h.load(outer, r + i * STEP, column);
      pinLoads();
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (r + i * STEP < rows) combine(v[i]);
    }
  }
  parts[warp][lane] = acc;
  __syncthreads();
  for (int c = threadIdx.x; c < WIDTH; c += 32 * WARPS) {
    Acc sum = parts[0][c / L].v[c % L];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) sum = Op::apply(sum, parts[w][c / L].v[c % L]);
    if constexpr (CLUSTER > 1) total[c] = sum;
    else if (first + c < columns) h.store(outer, first + c, sum);
  }
#ifndef LATHE_EMULATE
  if constexpr (CLUSTER > 1) joinCluster<WIDTH, CLUSTER>(h, total, outer, first, columns);
#endif
}

#endif // LATHE_DEVICE_COLUMNS
