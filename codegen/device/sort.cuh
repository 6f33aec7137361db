//===- sort.cuh - places of the elements of rows, sorted -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: ahead
//
// A stable radix sort by bytes, from the lowest, that reads and writes everything once for each byte
// ("Onesweep", Adinolfi and Merrill 2022). The first launch counts all bytes of the keys, the second makes
// starts of them; then each byte is a launch, in which a block has a tile of a row: it ranks its elements by
// their byte, learns how many of the tiles before it have each byte (decoupled look-back), sorts the
// tile in shared memory and moves runs of equal bytes to their places. A block waits only for
// blocks of lower numbers, which have started before it: there is no deadlock, however few run at a time.
// The greatest element comes first, of equal ones the lower place. Holes:
//
//   typedef i32 or i64 Key;              signed, ordered as the elements are
//   Key key(i64 row, i64 place);
//   void storeKey(i64 row, i64 rank, i64 place, Key key);
//   u8 *work() const;                    16-byte aligned; SortMemory says what lies there
//
// Rows of less than 2^30 elements. The blocks of the first launch are `parts` a row, of the second one a
// byte and row, of the others one a tile and row. 256 threads.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_SORT
#define LATHE_DEVICE_SORT

template <class K> struct SortWord { typedef u32 Type; };
template <> struct SortWord<i64> { typedef u64 Type; };

/// The workspace: keys and places twice, counts of bytes by part and row, their starts, and what tiles tell
/// each other, twice.
template <class H> struct SortMemory {
  typedef typename SortWord<typename H::Key>::Type U;
  static constexpr int BYTES = sizeof(U), THREADS = 256, EACH = 64 / sizeof(U), TILE = THREADS * EACH;
  i64 rows, length, tiles;
  U *keys[2];
  u32 *places[2], *counts, *starts, *told[2];
  LATHE_METHOD SortMemory(const H &h, i64 rows, i64 length, i64 parts)
      : rows(rows), length(length), tiles((length + TILE - 1) / TILE) {
    u8 *at = h.work();
    const i64 n = rows * length;
    auto take = [&](i64 bytes) {
      u8 *const here = at;
      at += (bytes + 15) / 16 * 16;
      return here;
    };
    for (int i = 0; i < 2; ++i) keys[i] = (U *)take(n * (i64)sizeof(U));
    for (int i = 0; i < 2; ++i) places[i] = (u32 *)take(n * 4);
    counts = (u32 *)take(rows * parts * BYTES * 1024);
    starts = (u32 *)take(rows * BYTES * 1024);
    for (int i = 0; i < 2; ++i) told[i] = (u32 *)take(rows * tiles * 1024);
  }
  /// What ascends where the elements descend.
  static LATHE_METHOD U descending(const H &h, i64 row, i64 place) {
    return ~((U)h.key(row, place) ^ (U)1 << (8 * sizeof(U) - 1));
  }
};

/// The first launch.
template <class H> LATHE_DEV void countBytes(const H &h, i64 rows, i64 length, i64 parts) {
  typedef SortMemory<H> M;
  constexpr int BYTES = M::BYTES, THREADS = M::THREADS, EACH = 8; // loads under way
  __shared__ u32 counts[BYTES][256];
  const M m(h, rows, length, parts);
  const i64 row = blockIdx.x / parts, part = blockIdx.x % parts;
  const i64 begin = part * length / parts, end = (part + 1) * length / parts;
  for (int b = 0; b < BYTES; ++b) counts[b][threadIdx.x] = 0;
  for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < rows * m.tiles * 256; i += (i64)gridDim.x * THREADS)
    m.told[0][i] = 0;
  __syncthreads();
#pragma unroll 1
  for (i64 base = begin; base < end; base += THREADS * EACH) {
    typename M::U key[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const i64 i = base + e * THREADS + threadIdx.x;
      key[e] = i < end ? M::descending(h, row, i) : 0;
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (base + e * THREADS + threadIdx.x < end)
#pragma unroll
        for (int b = 0; b < BYTES; ++b) atomicAdd(&counts[b][(u32)(key[e] >> (8 * b)) & 255], 1u);
  }
  __syncthreads();
  for (int b = 0; b < BYTES; ++b) m.counts[((i64)blockIdx.x * BYTES + b) * 256 + threadIdx.x] = counts[b][threadIdx.x];
}

/// The second launch.
template <class H> LATHE_DEV void startBytes(const H &h, i64 rows, i64 length, i64 parts) {
  typedef SortMemory<H> M;
  const M m(h, rows, length, parts);
  const i64 row = blockIdx.x / M::BYTES, byte = blockIdx.x % M::BYTES;
  u32 have = 0, total;
#pragma unroll 4
  for (i64 part = 0; part < parts; ++part) have += m.counts[((row * parts + part) * M::BYTES + byte) * 256 + threadIdx.x];
  m.starts[(i64)blockIdx.x * 256 + threadIdx.x] = sumAhead<M::THREADS>(have, total);
}

/// Which lanes of the warp have the same byte.
LATHE_DEV u32 lanesAlike(u32 byte) {
  u32 alike = ~0u;
#pragma unroll
  for (int bit = 0; bit < 8; ++bit) {
    const bool set = (byte >> bit & 1) != 0;
    const u32 those = warpBits(set);
    alike &= set ? those : ~those;
  }
  return alike;
}

/// What a tile tells of a byte: how many it has, or how many it and all tiles before it have.
constexpr u32 TILE_HAS = 1u << 30, ALL_HAVE = 2u << 30, TOLD_COUNT = TILE_HAS - 1;

/// Says that this tile has `have` elements with the byte `threadIdx.x`.
LATHE_DEV void tellOthers(u32 *told, i64 tile, u32 have) {
  storeRelaxed(told + tile * 256 + threadIdx.x, (tile == 0 ? ALL_HAVE : TILE_HAS) | have);
}
/// How many the tiles before this one have. Those just before it are asked together: an answer takes as long as the way to
/// the cache and back.
LATHE_DEV u32 lookBack(u32 *told, i64 tile, u32 have) {
  constexpr int TOGETHER = 4;
  if (tile == 0) return 0;
  told += threadIdx.x;
  u32 before = 0;
  bool found = false; // what all before have
  for (i64 next = tile - 1; !found; next -= TOGETHER) {
    u32 said[TOGETHER];
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) said[k] = next >= k ? loadRelaxed(told + (next - k) * 256) : ALL_HAVE;
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) {
      if (found) break;
      while (said[k] < TILE_HAS) said[k] = loadRelaxed(told + (next - k) * 256);
      before += said[k] & TOLD_COUNT;
      found = said[k] >= ALL_HAVE;
    }
  }
  storeRelaxed(told + tile * 256, ALL_HAVE | (before + have));
  return before;
}

/// A launch for each byte, the lowest first. Of the last one the first `count` places are stored.
template <int BYTE, class H> LATHE_DEV void sortByte(const H &h, i64 rows, i64 length, i64 count, i64 parts) {
  typedef SortMemory<H> M;
  typedef typename M::U U;
  constexpr int THREADS = M::THREADS, WARPS = THREADS / 32, EACH = M::EACH, TILE = M::TILE;
  constexpr bool FIRST = BYTE == 0, LAST = BYTE + 1 == M::BYTES;
  __shared__ u32 before[WARPS][256]; // of the tile's elements with this byte, those of warps ahead
  __shared__ i64 moveBy[256];        // from a place in the tile to one in the row
  __shared__ U keys[TILE];
  __shared__ u32 places[TILE];
  const M m(h, rows, length, parts);
  const i64 row = blockIdx.x / m.tiles, tile = blockIdx.x % m.tiles;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 first = tile * TILE;
  const int size = (int)(length - first < TILE ? length - first : TILE);
  const int own = warp * EACH * 32 + lane; // in the tile, then every 32nd
  const U *const fromKeys = m.keys[BYTE % 2] + row * length + first;
  const u32 *const fromPlaces = m.places[BYTE % 2] + row * length + first;
  if (!LAST) m.told[(BYTE + 1) % 2][(i64)blockIdx.x * 256 + threadIdx.x] = 0;
  U key[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = own + e * 32;
    key[e] = i >= size ? ~(U)0 : FIRST ? M::descending(h, row, first + i) : fromKeys[i];
  }
#pragma unroll
  for (int w = 0; w < WARPS; ++w) before[w][threadIdx.x] = 0;
  __syncthreads();
  u32 rank[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const u32 byte = (u32)(key[e] >> (8 * BYTE)) & 255;
    const bool is = own + e * 32 < size;
    const u32 alike = lanesAlike(byte) & warpBits(is), lower = alike & ((1u << lane) - 1);
    const u32 ahead = before[warp][byte];
    __syncwarp();
    if (is && lower == 0) before[warp][byte] = ahead + countBits(alike);
    __syncwarp();
    rank[e] = ahead + countBits(lower);
  }
  __syncthreads();
  u32 have = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    const u32 of = before[w][threadIdx.x];
    before[w][threadIdx.x] = have;
    have += of;
  }
  tellOthers(m.told[BYTE % 2] + row * m.tiles * 256, tile, have);
  u32 total;
  const u32 start = sumAhead<THREADS>(have, total);
#pragma unroll
  for (int w = 0; w < WARPS; ++w) before[w][threadIdx.x] += start;
  __syncthreads();
#pragma unroll
  for (int e = 0; e < EACH; ++e)
    if (own + e * 32 < size) {
      rank[e] += before[warp][(u32)(key[e] >> (8 * BYTE)) & 255]; // in the tile
      keys[rank[e]] = key[e];
    }
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = own + e * 32;
    if (i < size) places[rank[e]] = FIRST ? (u32)(first + i) : fromPlaces[i];
  }
  const u32 others = lookBack(m.told[BYTE % 2] + row * m.tiles * 256, tile, have);
  moveBy[threadIdx.x] = (i64)m.starts[(row * M::BYTES + BYTE) * 256 + threadIdx.x] + others - start;
  __syncthreads();
  U *const toKeys = m.keys[(BYTE + 1) % 2] + row * length;
  u32 *const toPlaces = m.places[(BYTE + 1) % 2] + row * length;
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = e * THREADS + threadIdx.x;
    if (i < size) {
      const U moved = keys[i];
      const i64 to = moveBy[(u32)(moved >> (8 * BYTE)) & 255] + i;
      if (LAST) {
        if (to < count)
          h.storeKey(row, to, (i64)places[i], (typename H::Key)(~moved ^ (U)1 << (8 * sizeof(U) - 1)));
      } else {
        toKeys[to] = moved;
        toPlaces[to] = places[i];
      }
    }
  }
}

#endif // LATHE_DEVICE_SORT
