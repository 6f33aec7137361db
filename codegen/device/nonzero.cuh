//===- nonzero.cuh - places of flags that are set, in order ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: ahead
//
// Of `wanted` places those behind the last that is found are zeros. Two ways:
//
// - findPlaces reads each flag once: a block has a tile of flags, tells the number of those that are set, learns how
//   many the tiles before it have (decoupled look-back, Merrill and Garland 2016), and stores its places. A block
//   waits only for blocks of lower numbers, which have started before it. startTiles is a launch ahead of it. The last
//   block stores the zeros: it is meant for as many places as flags are set.
// - markFlags and collectPlaces, by one block or as two launches, each with a share of the flags for every block: the
//   first leaves the flags in the workspace as bits, with the number of those that are set for each block; in the second
//   a block adds up those ahead of it and stores the places of its own.
//
// Holes:
//
//   bool flag(i64 place);
//   void store(i64 rank, i64 place);
//   void finish(i64 unused, i64 count);
//   u8 *work() const;      a u32 for each block, then one for each 32 flags; of findPlaces: a u32 for each block
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

/// What a tile tells: how many flags of it are set, or of it and of all tiles before it. Less than 2^30.
constexpr u32 TILE_SETS = 1u << 30, ALL_SET = 2u << 30, SET_COUNT = TILE_SETS - 1;

/// A launch of a thread for each of `tiles`: nothing is told yet.
template <int THREADS, class H> LATHE_DEV void startTiles(const H &h, i64 tiles) {
  const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
  if (i < tiles) ((u32 *)h.work())[i] = 0;
}

/// How many flags are set in the tiles before this one, which has `have`. For one warp, all of whose lanes learn it; each
/// lane asks a tile of its own.
LATHE_DEV u32 setBefore(u32 *told, i64 tile, u32 have) {
  const int lane = threadIdx.x % 32;
  if (lane == 0) storeRelaxed(told + tile, (tile == 0 ? ALL_SET : TILE_SETS) | have);
  if (tile == 0) return 0;
  u32 before = 0;
#pragma unroll 1
  for (i64 last = tile - 1;; last -= 32) {
    const i64 other = last - lane;
    u32 said = ALL_SET;
    if (other >= 0) {
      said = loadRelaxed(told + other);
      while (said < TILE_SETS) said = loadRelaxed(told + other);
    }
    __syncwarp();
    // The nearest that knows of all before it ends the search; of lanes behind it nothing counts.
    const u32 knowing = warpBits(said >= ALL_SET), ends = knowing & (~knowing + 1);
    const bool counts = ends == 0 || (1u << lane) <= ends;
    before += warpReduce<SumOp>(counts ? said & SET_COUNT : 0u);
    if (ends != 0) break;
  }
  if (lane == 0) storeRelaxed(told + tile, ALL_SET | (before + have));
  return before;
}

/// Words of 32 flags that a warp has of a tile.
constexpr int FLAG_WORDS = 16;

/// A launch of a block for each tile of THREADS * FLAG_WORDS flags, one at least; less than 2^30 flags.
template <int THREADS, class H> LATHE_DEV void findPlaces(const H &h, i64 length, i64 wanted) {
  constexpr int WARPS = THREADS / 32;
  __shared__ u32 sets[WARPS];
  __shared__ u32 ahead;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 tile = blockIdx.x, first = (tile * WARPS + warp) * FLAG_WORDS * 32;
  bool is[FLAG_WORDS];
#pragma unroll
  for (int w = 0; w < FLAG_WORDS; ++w) {
    const i64 i = first + w * 32 + lane;
    is[w] = i < length && h.flag(i);
  }
  u32 word[FLAG_WORDS], set = 0;
#pragma unroll
  for (int w = 0; w < FLAG_WORDS; ++w) {
    word[w] = warpBits(is[w]);
    set += countBits(word[w]);
  }
  if (lane == 0) sets[warp] = set;
  __syncthreads();
  u32 rank = 0, have = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    if (w < warp) rank += sets[w];
    have += sets[w];
  }
  if (warp == 0) {
    const u32 before = setBefore((u32 *)h.work(), tile, have);
    if (lane == 0) ahead = before;
  }
  __syncthreads();
  rank += ahead;
#pragma unroll
  for (int w = 0; w < FLAG_WORDS; ++w) {
    const i64 mine = rank + countBits(word[w] & ((1u << lane) - 1));
    if ((word[w] >> lane & 1) != 0 && mine < wanted) h.store(mine, first + w * 32 + lane);
    rank += countBits(word[w]);
  }
  if (blockIdx.x + 1 != gridDim.x) return;
  const i64 all = (i64)ahead + have;
#pragma unroll 1
  for (i64 i = all + threadIdx.x; i < wanted; i += THREADS) h.store(i, 0);
  if (threadIdx.x == 0) h.finish(0, all);
}

#endif // LATHE_DEVICE_NONZERO
