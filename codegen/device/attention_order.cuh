//===- attention_order.cuh - which block takes which tile of queries ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce
//
// A kernel of one block that runs between the one that lists tiles of keys (attention_blocks.cuh) and attention: it deals
// the tiles of queries out to blocks by how many tiles of keys they see, so that all have about as much to do. A mask with
// global tokens has a few tiles of queries that see all keys, each as long as ten others.
//
// Long tiles come first, then the others, each in their order: tiles that run at the same time are neighbours, and share
// keys in the cache. Round after round each block that has not more to do than the one with the least, by a tile at most, gets the
// next tile. Who gets what changes no result.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_ORDER
#define LATHE_DEVICE_ATTENTION_ORDER

/// Entries of a list of tiles of keys (attention_blocks.cuh), its length and how long it takes among them.
LATHE_DEV i64 attentionListSize(i64 keys, int tile) { return (keys + tile - 1) / tile + 2; }

/// Places of a block in the order: twice its share of the tiles, and one for the end.
LATHE_DEV u32 attentionPlaces(u32 tiles, u32 blocks) { return 2 * ((tiles + blocks - 1) / blocks) + 1; }

/// Writes order[block][place], tiles of queries, and behind the last of a block `tiles` once. `work(tile)` says how many
/// tiles of keys it sees, below 2^16. `far`: memory for a number of each tile, where they are too many for shared memory.
/// There are at most THREADS blocks.
template <int THREADS, class Work> LATHE_DEV void attentionOrder(u32 tiles, u32 blocks, u32 *order, u32 *far, Work work) {
  constexpr u32 NEAR = 4096;
  __shared__ u32 counts[THREADS / 32], nearTiles[NEAR];
  __shared__ u16 nearWork[NEAR];
  const bool isNear = tiles <= NEAR;
  u32 *const kept = isNear ? nearTiles : far;
  auto cost = [&](u32 t) { return isNear ? (u32)nearWork[t] : work(t); };
  const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, places = attentionPlaces(tiles, blocks);
  // How many of the threads before this one say so, and of all.
  u32 all = 0;
  auto before = [&](bool so) {
    const u32 bits = warpBits(so);
    if (lane == 0) counts[warp] = (u32)countBits(bits);
    __syncthreads();
    u32 n = (u32)countBits(bits & ((1u << lane) - 1));
    all = 0;
    for (u32 i = 0; i < THREADS / 32; ++i) {
      n += i < warp ? counts[i] : 0;
      all += counts[i];
    }
    __syncthreads();
    return n;
  };
  u32 total = 0;
#pragma unroll 8
  for (u32 t = thread; t < tiles; t += THREADS) {
    const u32 mine = work(t);
    if (isNear) nearWork[t] = (u16)mine;
    total += mine;
  }
  total = blockReduce<SumOp, THREADS>(total);
  const u32 isLong = 2 * (total / tiles) + 1;
  u32 longs = 0; // behind which the others begin
  for (u32 t = thread; t < tiles; t += THREADS) longs += cost(t) >= isLong;
  longs = blockReduce<SumOp, THREADS>(longs);
  for (u32 first = 0, longBefore = 0; first < tiles; first += THREADS) {
    const u32 t = first + thread;
    const bool mine = t < tiles && cost(t) >= isLong;
    const u32 n = longBefore + before(mine);
    if (t < tiles) kept[mine ? n : longs + t - n] = t;
    longBefore += all;
  }
  __syncthreads();
  u32 load = 0, count = 0;
  const bool isBlock = thread < blocks;
  for (u32 next = 0; next < tiles;) {
    const u32 open = isBlock && count + 1 < places ? load : 0xffffffffu, least = blockReduce<MinOp, THREADS>(open);
    const bool gets = open != 0xffffffffu && open < least + cost(kept[next]);
    const u32 n = before(gets);
    if (gets && next + n < tiles) {
      const u32 t = kept[next + n];
      order[thread * places + count++] = t;
      load += cost(t);
    }
    next += all;
  }
  if (isBlock) order[thread * places + count] = tiles;
}

#endif // LATHE_DEVICE_ATTENTION_ORDER
