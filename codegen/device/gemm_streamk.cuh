//===- gemm_streamk.cuh - what blocks do of a product's tiles ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: hopper
//
// When the tiles do not fill a last round, some blocks would idle. With Tile::STREAM_K the steps along k
// of those tiles are laid end to end and cut into equal shares, one a block (stream-K, Osama et al. 2023,
// for the last tiles only). A share is shorter than a tile, so it touches at most two: the block first
// sums the beginning of the later tile and hands that over, then the end of the earlier one, to which it
// adds what blocks before it handed over. The order of all sums depends on sizes alone. A block waits
// only for blocks of lower numbers, which have started before it and hand over before they wait: there is
// no deadlock, however few blocks run at a time.
//
//   u8 *work() const;   hole: 16 bytes a block, then the sums of a tile a block
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_STREAMK
#define LATHE_DEVICE_GEMM_STREAMK
#ifndef LATHE_EMULATE

/// Steps [begin, end) of a tile.
struct Share { u32 tile, begin, end; };

/// What a block of a cluster of SPLIT does of a tile: where nothing is left for it, a step beyond the
/// last one, of zeros.
template <int SPLIT> LATHE_DEV Share shareOfRank(u32 tile, u32 rank, u32 steps) {
  Share s{tile, rank * steps / SPLIT, (rank + 1) * steps / SPLIT};
  if (SPLIT > 1 && s.begin == s.end) s = {tile, steps, steps + 1};
  return s;
}

/// How blocks share `left` tiles, the last ones.
template <class Tile> struct Shares {
  u32 first, left, steps, workers;
  LATHE_METHOD Shares(u32 tiles, u32 steps) : first(tiles / gridDim.x * gridDim.x), left(tiles - first), steps(steps) {
    // Taking many parts takes longer than it saves; and who had no step would be waited for.
    const u32 most = left * (MOST < steps ? MOST : steps);
    workers = most < gridDim.x ? most : gridDim.x;
  }
  static constexpr u32 MOST = 4;
  /// Where the share of a block begins, in steps of all tiles that are left.
  LATHE_METHOD u32 from(u32 block) const { return (u32)((u64)(left * steps) * block / workers); }
};

/// The block's piece of work of a number; false when there are fewer.
template <class Tile> LATHE_DEV bool shareOf(u32 index, u32 tiles, u32 steps, Share &s) {
  s = {blockIdx.x / Tile::PAIR + index * (gridDim.x / Tile::PAIR), 0, steps};
  bool some = s.tile < tiles;
  if constexpr (Tile::STREAM_K) {
    const u32 rounds = tiles / gridDim.x;
    if (index >= rounds) {
      const Shares<Tile> all(tiles, steps);
      some = index <= rounds + 1 && blockIdx.x < all.workers;
      if (some) {
        const u32 from = all.from(blockIdx.x), to = all.from(blockIdx.x + 1), early = from / steps, late = (to - 1) / steps;
        some = from < to && (index == rounds || early != late);
        const u32 mine = index == rounds ? late : early;
        s = {all.first + mine, from > mine * steps ? from - mine * steps : 0, to < (mine + 1) * steps ? to - mine * steps : steps};
      }
    }
    // One loop of products is enough for pieces of all kinds.
    s = {(u32)unknownNumber(s.tile), (u32)unknownNumber(s.begin), (u32)unknownNumber(s.end)};
  }
  return some;
}

/// What a block gives away: its sums, as the threads hold them, and a word that says that they are
/// there. Whatever the words were before, they were not this one: who has seen one clears it.
constexpr u64 PART_IS_THERE = 0x7fe5a1b4ffc3d297ull;
template <class Tile, class H> struct Parts {
  u64 *there;
  Vec<u32, 4> *sums;
  LATHE_METHOD Parts(const H &h, u32 block, u32 group)
      : there((u64 *)h.work() + block * 2 + group),
        sums((Vec<u32, 4> *)(h.work() + 16 * gridDim.x) + ((block * (Tile::PINGPONG ? 1 : 2) + group) * (Tile::MI * Tile::BN / 8) * 128 +
             threadIdx.x % 128)) {}
};

template <class Tile, class H>
LATHE_DEV void givePart(const H &h, const typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], u32 me) {
  const Parts<Tile, H> to(h, blockIdx.x, Tile::PINGPONG ? 0 : me);
#pragma unroll
  for (int i = 0; i < Tile::MI; ++i)
#pragma unroll
    for (int j = 0; j < Tile::BN / 8; ++j)
      to.sums[(i * (Tile::BN / 8) + j) * 128] = Vec<u32, 4>{{bitCast<u32>(acc[i][4 * j]), bitCast<u32>(acc[i][4 * j + 1]),
                                                             bitCast<u32>(acc[i][4 * j + 2]), bitCast<u32>(acc[i][4 * j + 3])}};
  namedBarrierSync(1 + me, 128);
  if (threadIdx.x % 128 == 0) storeRelease(to.there, PART_IS_THERE);
}

template <class Tile, class H>
LATHE_DEV void takeParts(const H &h, typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], const Share &s, u32 tiles, u32 steps,
                         u32 me) {
  const Shares<Tile> all(tiles, steps);
  const u32 begin = (s.tile - all.first) * steps;
  for (u32 block = blockIdx.x; all.from(block) > begin;) {
    const Parts<Tile, H> from(h, --block, Tile::PINGPONG ? 0 : me);
    if (threadIdx.x % 128 == 0) {
      while (loadAcquire(from.there) != PART_IS_THERE) {}
      *from.there = 0;
    }
    namedBarrierSync(1 + me, 128);
#pragma unroll
    for (int i = 0; i < Tile::MI; ++i)
#pragma unroll
      for (int j = 0; j < Tile::BN / 8; ++j) {
        const Vec<u32, 4> part = from.sums[(i * (Tile::BN / 8) + j) * 128];
#pragma unroll
        for (int l = 0; l < 4; ++l) acc[i][4 * j + l] += bitCast<typename H::Acc>(part.v[l]);
      }
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_STREAMK
