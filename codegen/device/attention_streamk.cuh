//===- attention_streamk.cuh - few queries over keys of many lengths --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: scan, split, attention_split
//
// Decoding of many sequences, some of them long: what attention_split.cuh does of a key head and a batch takes as long as
// it has keys, and the longest would be left alone at the end. Here the steps of sixteen keys of all key heads and batches
// are laid end to end and cut into equal shares, one a block (stream-K). A share begins and ends anywhere: a block
//
//   1. hands over what it has of its last head, where that has more keys: results, largest scores and sums, not normalized;
//   2. finishes the heads that are its own, and
//   3. the first one, to which it adds what the blocks before it have handed over, in their order.
//
// Heads of nearly the same length gain nothing by that: they are taken whole, a block each, of as many lines of blocks as it
// takes; lines behind the first have nothing to do otherwise.
//
// How the keys are cut follows from lengths and grid alone, and so do the bits. A block waits only for blocks of lower
// numbers, which have started before it and hand over before they wait: there is no deadlock, however few blocks run at a
// time. One launch and one graph serve any lengths. Holes: those of attention_split.cuh, of which keyEnd and keyBegin are
// the same for all heads of a batch.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_STREAMK
#define LATHE_DEVICE_ATTENTION_STREAMK

/// How all steps are shared: place p is one of `places`, of which block i has from(i) .. from(i + 1) - 1.
struct StepShares {
  u32 workers; ///< blocks that have a share
  u32 rest;    ///< of which so many have one place more
  u64 each;
  /// A block has `least` steps at least, or all of them: so that no share is empty, and waiting is worth it.
  LATHE_METHOD StepShares(u64 places, u32 least) {
    const u64 most = places / least;
    workers = most < 1 ? 1 : most < gridDim.x ? (u32)most : gridDim.x;
    each = places / workers;
    rest = (u32)(places - each * workers);
  }
  LATHE_METHOD u64 from(u32 block) const { return each * block + (block < rest ? block : rest); }
};

/// A head takes as long as so many steps beyond those of its keys: they are its first places. Without them a block might have a
/// great many heads of one step each, as those of tokens that pad a batch are.
constexpr u32 HEAD_COST = 8;

/// So many steps of all blocks take as long as finding shares, and handing over and beginning anew in their midst, cost.
constexpr u32 SHARES_COST = 10;

/// How many places, and the most of a head.
struct Places { u32 count, most; };
struct PlacesOfMany {
  typedef Places Acc;
  LATHE_METHOD Acc neutral() const { return {0, 0}; }
  LATHE_METHOD Acc combine(Acc a, Acc b) const { return {a.count + b.count, a.most > b.most ? a.most : b.most}; }
};

/// What a block hands over: of each column the results, then the largest scores, then the sums.
template <class Tile, int HEAD_V> struct HandedOver {
  static constexpr int MOST = Tile::COLUMNS * HEAD_V, TOTAL = MOST + Tile::COLUMNS, SIZE = TOTAL + Tile::COLUMNS;
};

/// Bytes that the blocks of a grid take of `work`: a word each, then what each hands over.
template <class Tile, int HEAD_V> LATHE_DEV f32 *handedOver(u8 *work, u32 block) {
  return (f32 *)(work + (8 * gridDim.x + 15) / 16 * 16) + (i64)block * HandedOver<Tile, HEAD_V>::SIZE;
}

/// Eight results of a column: its own part, and those that blocks first .. blockIdx.x - 1 have handed over.
template <class Tile, class H>
LATHE_DEV void addHandedOver(u8 *work, u32 first, int column, int d, f32 factor, f32 (&sum)[8], f32 &most, f32 &all) {
  typedef HandedOver<Tile, H::kHeadV> Part;
  const f32 hidden = bitsToF32(0xff800000u), own = most, ownAll = all;
  for (u32 j = first; j < blockIdx.x; ++j) most = fmaxf(most, handedOver<Tile, H::kHeadV>(work, j)[Part::MOST + column]);
  const f32 base = most == hidden ? 0.0f : most;
  f32 joined[8];
  all = 0.0f;
#pragma unroll
  for (int e = 0; e < 8; ++e) joined[e] = 0.0f;
  for (u32 j = first; j < blockIdx.x; ++j) {
    const f32 *const part = handedOver<Tile, H::kHeadV>(work, j);
    const f32 keep = fastExp2((part[Part::MOST + column] - base) * factor);
    all = fmaf(keep, part[Part::TOTAL + column], all);
#pragma unroll
    for (int e = 0; e < 8; ++e) joined[e] = fmaf(keep, part[column * H::kHeadV + d + e], joined[e]);
  }
  const f32 keep = fastExp2((own - base) * factor);
  all = fmaf(keep, ownAll, all);
#pragma unroll
  for (int e = 0; e < 8; ++e) sum[e] = fmaf(keep, sum[e], joined[e]);
}

/// `work`: 16-byte aligned, 8 bytes a block of a line, then a HandedOver each. The grid is lines of any number of blocks, with as
/// many blocks as there are key heads and sequences at least.
template <class Tile, class H> LATHE_DEV void attentionStreamK(const H &h, i64 batch, i64 heads, i64 queries, i64 keys, u8 *work) {
  static_assert(Tile::CLUSTER == 1 && !H::kEarly && H::kCodeBits == 16, "blocks by themselves, behind the kernels that write keys");
  constexpr int G = H::kGroup, THREADS = 32 * Tile::WARPS, D = H::kHeadV;
  typedef HandedOver<Tile, D> Part;
  LATHE_DYNAMIC_SHARED(raw);
  const u64 keyHeads = (u64)heads / G;
  const int columns = (int)queries * G;
  dependenciesWait();
  auto placesOf = [&](i64 b) {
    const KeySteps of(h, b, 0, queries, keys);
    return (u32)(of.steps - of.from) + HEAD_COST;
  };

  // Each thread counts the places of some neighbours in the batch.
  const i64 each = (batch + THREADS - 1) / THREADS, from = threadIdx.x * each < batch ? threadIdx.x * each : batch;
  const i64 to = from + each < batch ? from + each : batch;
  Places mine{0, 0}, all;
  for (i64 b = from; b < to; ++b) {
    const u32 places = placesOf(b);
    mine = PlacesOfMany().combine(mine, {places, places});
  }
  const u32 ahead = combineAhead<THREADS>(PlacesOfMany(), mine, all).count;
  const StepShares shares(all.count * keyHeads, 2 * Tile::WARPS);

  struct Found { i64 b; u64 start; } at; // a batch, and the first of its places
  u64 low, high;                         // the places of this block
  if ((u64)gridDim.y * all.most <= shares.each + SHARES_COST) {
    const u32 head = blockIdx.y * gridDim.x + blockIdx.x, b = head / (u32)keyHeads;
    if (b >= batch) return;
    at = {b, 0}; // nobody else's places matter
    const u32 places = placesOf(b);
    low = (u64)(head - b * (u32)keyHeads) * places;
    high = low + places;
  } else {
    if (blockIdx.y > 0 || blockIdx.x >= shares.workers) return;
    low = shares.from(blockIdx.x);
    high = shares.from(blockIdx.x + 1);
    // Who has the last place of this block looks for its batch.
    Found *const found = (Found *)raw;
    if (u64 start = ahead * keyHeads; start < high && high <= start + mine.count * keyHeads) {
      i64 b = from;
      for (u64 next; (next = start + placesOf(b) * keyHeads) < high; ++b) start = next;
      *found = {b, start};
    }
    __syncthreads();
    at = *found;
    __syncthreads(); // it is read: rings take its place
  }

  u64 *const there = (u64 *)work;
  const SplitParts<Tile> parts{(const f32 *)raw, scoreFactor<H>()};
#pragma unroll 1
  for (u64 end = high; end > low;) {
    const u32 places = placesOf(at.b);
    const u64 head = (u32)(end - 1 - at.start) / places, first = at.start + head * places, begin = first > low ? first : low;
    const KeySteps of(h, at.b, 0, queries, keys);
    const i64 head0 = (i64)head * G;
    auto stepOf = [&](u64 place) { return of.from + maxIndex((i64)(place - first) - HEAD_COST, 0); };
    splitKeys<Tile>(h, raw, at.b, head0, queries, of.end, stepOf(begin), stepOf(end), begin == first, begin == low);
    const bool finishes = end == first + places;
    u32 before = blockIdx.x; // the first of the blocks that have parts of this head
    if (finishes && begin > first) {
      while (shares.from(before) > first) --before;
      for (u32 j = before + threadIdx.x; j < blockIdx.x; j += THREADS) awaitShare(there + j);
      __syncthreads();
    }
    f32 *const to = handedOver<Tile, D>(work, blockIdx.x);
    for (int i = threadIdx.x; i < columns * (D / 8); i += THREADS) {
      const int column = i / (D / 8), d = i % (D / 8) * 8;
      f32 sum[8], most, total;
      parts.join(column, d, sum, most, total);
      if (finishes) {
        if (before < blockIdx.x) addHandedOver<Tile, H>(work, before, column, d, parts.factor, sum, most, total);
        finishPiece(h, at.b, head0, column, d, sum, most, total);
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) to[column * D + d + e] = sum[e];
        if (d == 0) {
          to[Part::MOST + column] = most;
          to[Part::TOTAL + column] = total;
        }
      }
    }
    __syncthreads(); // parts are read, and what is handed over is written
    if (!finishes && threadIdx.x == 0) publishShare(there + blockIdx.x);
    end = begin;
    if (end == at.start && end > low) {
      --at.b;
      at.start -= placesOf(at.b) * keyHeads;
    }
  }
}

#endif // LATHE_DEVICE_ATTENTION_STREAMK
