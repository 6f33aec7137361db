//===- nonzero.cuh - places of flags that are set, in order ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: ahead
//
// Of `wanted` places those behind the last that is found are zeros. One block does it all, or two launches do, in which each
// block has a share of the flags: markFlags leaves the flags in the workspace as bits, with the number of those that are set
// for each block; in collectPlaces a block adds up those ahead of it and stores the places of its own.
//
// Holes:
//
//   bool flag(i64 place);
//   void store(i64 rank, i64 place);
//   void finish(i64 unused, i64 count);
//   u8 *work() const;      a u32 for each block, then one for each 32 flags
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_NONZERO
#define LATHE_DEVICE_NONZERO

/// Words of 32 flags that a block has.
struct FlagShare {
  i64 begin, end;
  LATHE_METHOD explicit FlagShare(i64 length) {
    const i64 words = (length + 31) / 32, each = (words + gridDim.x - 1) / gridDim.x;
    begin = blockIdx.x * each;
    end = begin + each < words ? begin + each : words;
  }
};

template <int THREADS, class H> LATHE_DEV void markFlags(const H &h, i64 length) {
  constexpr int EACH = 8, WARPS = THREADS / 32; // loads under way
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const FlagShare share(length);
  u32 *const words = (u32 *)h.work() + gridDim.x;
  i32 set = 0;
#pragma unroll 1
  for (i64 base = share.begin + warp * EACH; base < share.end; base += WARPS * EACH) {
    bool is[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const i64 i = (base + e) * 32 + lane;
      is[e] = i < length && base + e < share.end && h.flag(i);
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const u32 word = warpBits(is[e]);
      if (lane == 0 && base + e < share.end) words[base + e] = word;
      set += countBits(word);
    }
  }
  set = blockReduce<SumOp, THREADS>(lane == 0 ? set : 0);
  if (threadIdx.x == 0) ((u32 *)h.work())[blockIdx.x] = (u32)set;
}

template <int THREADS, class H> LATHE_DEV void collectPlaces(const H &h, i64 length, i64 wanted) {
  const int lane = threadIdx.x % 32;
  const FlagShare share(length);
  const u32 *const counts = (const u32 *)h.work(), *const words = counts + gridDim.x;
  i64 ahead = 0, all = 0;
  for (u32 b = threadIdx.x; b < gridDim.x; b += THREADS) {
    const u32 count = counts[b];
    all += count;
    if (b < blockIdx.x) ahead += count;
  }
  ahead = blockReduce<SumOp, THREADS>(ahead);
  all = blockReduce<SumOp, THREADS>(all);
  // A word a thread; the lanes of a warp then go through its 32 words together, so that neighbours are stored
  // by neighbours.
#pragma unroll 1
  for (i64 base = share.begin; base < share.end; base += THREADS) {
    const i64 w = base + threadIdx.x;
    const u32 word = w < share.end ? words[w] : 0;
    u32 total;
    const u32 mine = sumAhead<THREADS>((u32)countBits(word), total);
#pragma unroll 4
    for (int other = 0; other < 32; ++other) {
      const u32 bits = shuffleFrom32(word, other), before = shuffleFrom32(mine, other);
      const i64 rank = ahead + before + countBits(bits & ((1u << lane) - 1));
      if ((bits >> lane & 1) != 0 && rank < wanted) h.store(rank, (base + threadIdx.x - lane + other) * 32 + lane);
    }
    ahead += total;
  }
  for (i64 i = all + (i64)blockIdx.x * THREADS + threadIdx.x; i < wanted; i += (i64)gridDim.x * THREADS) h.store(i, 0);
  if (blockIdx.x == 0 && threadIdx.x == 0) h.finish(0, all);
}

#endif // LATHE_DEVICE_NONZERO
