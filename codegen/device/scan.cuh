//===- scan.cuh - running reductions along rows, by several blocks ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce
//
// Two launches. In the first a block reduces its share of a row and leaves the total in the workspace; in the second it
// combines the totals ahead of its share with what its threads have, a tile at a time: runs of neighbouring elements,
// warps, the block. Where a row has one block, the second launch is all. The order of combination depends on the
// sizes of grid and block alone. Holes:
//
//   typedef T Acc;                        as `element` gives it
//   Acc element(i64 row, i64 place) const;
//   Acc neutral() const;
//   Acc combine(Acc a, Acc b) const;
//   void store(i64 row, i64 place, Acc running);
//   u8 *work() const;                     an Acc for each block
//   static constexpr bool EXCLUSIVE;      `running` leaves out the element itself
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_SCAN
#define LATHE_DEVICE_SCAN

template <class T> LATHE_DEV T shuffleFrom(T v, int lane) {
  u32 w[2] = {0, 0};
  memcpy(w, &v, sizeof(T));
  w[0] = shuffleFrom32(w[0], lane);
  if constexpr (sizeof(T) == 8) w[1] = shuffleFrom32(w[1], lane);
  memcpy(&v, w, sizeof(T));
  return v;
}

/// Combines what the threads of the block ahead of this one have; `total`: of the whole block. All threads take part.
template <int THREADS, class H> LATHE_DEV typename H::Acc combineAhead(const H &h, typename H::Acc value, typename H::Acc &total) {
  typedef typename H::Acc T;
  constexpr int WARPS = THREADS / 32;
  __shared__ T part[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  T sum = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const T other = shuffleFrom(sum, lane < d ? lane : lane - d);
    if (lane >= d) sum = h.combine(other, sum);
  }
  if (lane == 31) part[warp] = sum;
  __syncthreads();
  T before = h.neutral(), all = h.neutral();
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    if (w == warp) before = all;
    all = w == 0 ? part[0] : h.combine(all, part[w]);
  }
  __syncthreads(); // part is free for the next tile
  total = all;
  const T ahead = shuffleFrom(sum, lane == 0 ? 0 : lane - 1);
  return lane == 0 ? before : warp == 0 ? ahead : h.combine(before, ahead);
}

/// The share of a row that this block has, in places.
struct ScanShare {
  i64 row, part, begin, end;
  LATHE_METHOD ScanShare(i64 length, i64 parts)
      : row(blockIdx.x / parts), part(blockIdx.x % parts), begin(part * length / parts), end((part + 1) * length / parts) {}
};

/// Elements that a thread has of a tile.
constexpr int SCAN_EACH = 8;

template <int THREADS, class H> LATHE_DEV void scanTotals(const H &h, i64 length, i64 parts) {
  typedef typename H::Acc T;
  const ScanShare share(length, parts);
  T sum = h.neutral();
  for (i64 base = share.begin; base < share.end; base += THREADS * SCAN_EACH) {
    T mine[SCAN_EACH];
#pragma unroll
    for (int e = 0; e < SCAN_EACH; ++e) {
      const i64 i = base + e * THREADS + threadIdx.x;
      mine[e] = i < share.end ? h.element(share.row, i) : h.neutral();
    }
#pragma unroll
    for (int e = 0; e < SCAN_EACH; ++e) sum = h.combine(sum, mine[e]);
  }
  T total;
  combineAhead<THREADS>(h, sum, total);
  if (threadIdx.x == 0) ((T *)h.work())[blockIdx.x] = total;
}

template <int THREADS, class H> LATHE_DEV void scanShares(const H &h, i64 length, i64 parts) {
  typedef typename H::Acc T;
  const ScanShare share(length, parts);
  T ahead = h.neutral(), total;
  if (share.part > 0) {
    const T *const totals = (const T *)h.work() + share.row * parts;
    for (i64 p = threadIdx.x; p < share.part; p += THREADS) ahead = h.combine(ahead, totals[p]);
    combineAhead<THREADS>(h, ahead, total);
    ahead = total;
  }
#pragma unroll 1
  for (i64 base = share.begin; base < share.end; base += THREADS * SCAN_EACH) {
    const i64 first = base + threadIdx.x * SCAN_EACH;
    T mine[SCAN_EACH];
#pragma unroll
    for (int e = 0; e < SCAN_EACH; ++e) mine[e] = first + e < share.end ? h.element(share.row, first + e) : h.neutral();
    T sum = mine[0];
#pragma unroll
    for (int e = 1; e < SCAN_EACH; ++e) sum = h.combine(sum, mine[e]);
    const T before = combineAhead<THREADS>(h, sum, total);
    T running = h.combine(ahead, before);
#pragma unroll
    for (int e = 0; e < SCAN_EACH; ++e) {
      const T with = h.combine(running, mine[e]);
      if (first + e < share.end) h.store(share.row, first + e, H::EXCLUSIVE ? running : with);
      running = with;
    }
    ahead = h.combine(ahead, total);
  }
}

#endif // LATHE_DEVICE_SCAN
