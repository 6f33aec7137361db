//===- marks.cuh - places of flags that are set, counted before they are stored -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: ahead, hopper
//
// Two kernels, between which the host may learn how many flags are set: markShares reads the flags once and leaves them
// as bits, with how many are set ahead of each share of FLAGS_OF_SHARE of them; storePlaces goes through the bits. A block
// has a share. The last block of markShares adds up what all have counted: it waits only for blocks of lower numbers, which
// have started before it and wait for none. Marks are words of 64 bits: one a share, then one for each 64 flags.
//
// Holes of markShares:
//
//   bool flag(i64 place);
//   void mark(i64 at, i64 word);
//   void finish(i64 unused, i64 count);
//   u8 *work() const;                    a u64 for each block
//
// Holes of storePlaces, which stores zeros behind the last place that is found, up to `wanted`:
//
//   i64 marked(i64 at);
//   void store(i64 rank, i64 place);
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_MARKS
#define LATHE_DEVICE_MARKS

constexpr i64 FLAGS_OF_SHARE = 16384;

/// A share's count, below bits that say that it is there. Whatever the word was before, it had other ones: who has seen
/// them clears it.
constexpr u64 SHARE_IS_COUNTED = 0x7c39e5d1a6480000ull;
LATHE_DEV u32 countOfShare(u64 *told) {
  u64 said = loadAcquire(told);
#ifdef LATHE_EMULATE // blocks run one after another: a share that is not there never comes
  if (said >> 16 != SHARE_IS_COUNTED >> 16) __builtin_trap();
#else
  while (said >> 16 != SHARE_IS_COUNTED >> 16) said = loadAcquire(told);
#endif
  *told = 0;
  return (u32)(said & 0xffff);
}

template <int THREADS, class H> LATHE_DEV void markShares(const H &h, i64 length) {
  constexpr int EACH = 8, WARPS = THREADS / 32, STEP = EACH * 32; // loads under way
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 shares = (length + FLAGS_OF_SHARE - 1) / FLAGS_OF_SHARE;
  const i64 begin = blockIdx.x * FLAGS_OF_SHARE, end = begin + FLAGS_OF_SHARE < length ? begin + FLAGS_OF_SHARE : length;
  i32 set = 0;
#pragma unroll 1
  for (i64 base = begin + warp * STEP; base < end; base += WARPS * STEP) {
    bool is[EACH];
    if (base + STEP <= end) {
#pragma unroll
      for (int e = 0; e < EACH; ++e) is[e] = h.flag(base + e * 32 + lane);
    } else {
#pragma unroll
      for (int e = 0; e < EACH; ++e) is[e] = base + e * 32 + lane < end && h.flag(base + e * 32 + lane);
    }
    u64 mine = 0; // a lane has a word
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const u32 bits = warpBits(is[e]);
      set += countBits(bits);
      if (lane == e / 2) mine |= (u64)bits << (e % 2 * 32);
    }
    if (lane < EACH / 2 && base + lane * 64 < end) h.mark(shares + base / 64 + lane, (i64)mine);
  }
  set = blockReduce<SumOp, THREADS>(lane == 0 ? set : 0);
  u64 *const told = (u64 *)h.work();
  if (blockIdx.x + 1 < gridDim.x) {
    if (threadIdx.x == 0) storeRelease(told + blockIdx.x, SHARE_IS_COUNTED | (u64)set);
    return;
  }
  i64 ahead = 0;
#pragma unroll 1
  for (u32 first = 0; first < gridDim.x; first += THREADS) {
    const u32 share = first + threadIdx.x;
    const u32 mine = share + 1 < gridDim.x ? countOfShare(told + share) : share + 1 == gridDim.x ? (u32)set : 0;
    u32 total;
    const u32 before = sumAhead<THREADS>(mine, total);
    if (share < shares) h.mark(share, ahead + before);
    ahead += total;
  }
  if (threadIdx.x == 0) h.finish(0, ahead);
}

template <int THREADS, class H> LATHE_DEV void storePlaces(const H &h, i64 length, i64 wanted) {
  constexpr i64 WORDS = FLAGS_OF_SHARE / 32;
  const int lane = threadIdx.x % 32;
  const i64 shares = (length + FLAGS_OF_SHARE - 1) / FLAGS_OF_SHARE, all = (length + 31) / 32;
  const i64 begin = blockIdx.x * WORDS, end = begin + WORDS < all ? begin + WORDS : all;
  i64 ahead = begin < end ? h.marked(blockIdx.x) : 0;
  // A word a thread; the lanes of a warp then go through its 32 words together, so that neighbours are stored
  // by neighbours.
#pragma unroll 1
  for (i64 base = begin; base < end; base += THREADS) {
    const i64 w = base + threadIdx.x;
    const u32 word = w < end ? (u32)((u64)h.marked(shares + w / 2) >> (w % 2 * 32)) : 0;
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
  if (blockIdx.x + 1 < gridDim.x) return;
  for (i64 i = ahead + threadIdx.x; i < wanted; i += THREADS) h.store(i, 0);
}

#endif // LATHE_DEVICE_MARKS
