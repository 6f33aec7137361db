//===- attention_blocks.cuh - which keys a tile of queries sees ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, attention_order
//
// A kernel that runs before attention: of each tile of queries it lists the tiles of keys in which
// the mask lets anything through, in order, so that the others are neither read nor computed.
// A list is its length and then, for each tile, twice its number, plus one where some query does
// not see some key. Where nothing is seen, the first tile stands for that. The last entry of a list is how long its tiles take,
// in half tiles that all queries see. Masks that are the same for all heads are looked at once. Holes:
//
//   static constexpr int kMaskLanes;   1, or a number of keys that the mask is read for at once
//   Vec<bool, kMaskLanes> through(i64 b, i64 h, i64 q, i64 piece);   of keys piece * kMaskLanes on
//   i64 keyEnd(i64 b, i64 h, i64 q);   keys from here on are not seen
//   static constexpr int kBoxLanes;    0, or what the first queries and keys of boxes are multiples of:
//   i32 seenInBox(i64 b, i64 h, i64 q, i64 lastQ, i64 k, i64 lastK);   queries q * kBoxLanes to lastQ, likewise keys
//
// seenInBox tells what the mask lets through as an AttentionFound. Four threads ask it for the quarters of a tile first, a warp
// then for smaller parts where those do not tell; the mask itself is looked at where they do not either.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_BLOCKS
#define LATHE_DEVICE_ATTENTION_BLOCKS

/// Bits: a key is seen, one is not, of some keys it cannot be told.
enum AttentionFound { FOUND_SEEN = 1, FOUND_HIDDEN = 2, FOUND_UNTOLD = 4 }; // as Attention::boxHole has them
LATHE_DEV bool isUntold(u32 found) { return found & FOUND_UNTOLD && (found & 3) != 3; }

/// What is found in queries [q0, q1) and keys [k0, k1); keys may be fewer.
template <class H> LATHE_DEV u32 attentionFound(const H &h, i64 b, i64 head, i64 q0, i64 q1, i64 k0, i64 k1, i64 keys) {
  // Later queries see as many keys at least.
  const i64 most = minIndex(keys, h.keyEnd(b, head, q1 - 1)), fewest = minIndex(keys, h.keyEnd(b, head, q0));
  if (k0 >= most) return FOUND_HIDDEN;
  const u32 found = (u32)h.seenInBox(b, head, q0 / H::kBoxLanes, q1 - 1, k0 / H::kBoxLanes, minIndex(k1, keys) - 1);
  return found == FOUND_SEEN && k1 > fewest ? FOUND_SEEN | FOUND_HIDDEN : found;
}

/// The same in part number `part` of a tile, which has DOWN parts of queries, each of ACROSS parts of keys. Keys behind the last
/// count as hidden.
template <int QUERIES, int KEYS, int DOWN, int ACROSS, class H>
LATHE_DEV u32 attentionFoundInPart(const H &h, i64 b, i64 head, i64 q0, int rows, i64 k0, i64 keys, int part) {
  constexpr int HIGH = QUERIES / DOWN, WIDE = KEYS / ACROSS;
  static_assert(HIGH % H::kBoxLanes == 0 && WIDE % H::kBoxLanes == 0, "parts begin at multiples of lanes");
  const int top = part / ACROSS * HIGH, below = top + HIGH < rows ? top + HIGH : rows;
  const i64 left = k0 + part % ACROSS * WIDE;
  if (top >= rows) return 0;
  return left < keys ? attentionFound(h, b, head, q0 + top, q0 + below, left, left + WIDE, keys) : FOUND_HIDDEN;
}

/// The grid is tiles of queries, heads and batches of the mask; shared memory: a byte for each tile
/// of keys.
template <int QUERIES, int KEYS, int THREADS, class H>
LATHE_DEV void attentionBlocks(const H &h, i64 queries, i64 keys, u16 *lists) {
  constexpr int LANES = H::kMaskLanes, ACROSS = KEYS / LANES; // pieces of a row
  // Lanes stand side by side, and below that in as many rows as there is room for; each goes down a column of pieces, so that
  // what the mask takes from the place of keys is computed once for all queries.
  constexpr int WIDE = ACROSS < 32 ? ACROSS : 32, DOWN = 32 / WIDE, AHEAD = 8;
  static_assert(KEYS % LANES == 0, "whole pieces of the mask");
  LATHE_DYNAMIC_SHARED(shared);
  u8 *const kinds = shared; // AttentionFound
  const i64 q0 = (i64)blockIdx.x * QUERIES, head = blockIdx.y, b = blockIdx.z;
  const int rows = (int)minIndex(queries - q0, QUERIES), lane = threadIdx.x % 32;
  const i64 end = maxIndex(0, minIndex(keys, h.keyEnd(b, head, q0 + rows - 1)));
  const int tiles = (int)((end + KEYS - 1) / KEYS);
  if constexpr (H::kBoxLanes > 0) {
    for (int first = 0; first < tiles; first += THREADS / 4) {
      const int tile = first + threadIdx.x / 4;
      u32 found = tile < tiles ? attentionFoundInPart<QUERIES, KEYS, 2, 2>(h, b, head, q0, rows, (i64)tile * KEYS, keys, lane % 4) : 0;
      found = warpReduce<OrOp, 4>(found);
      if (lane % 4 == 0 && tile < tiles) kinds[tile] = (u8)(isUntold(found) ? FOUND_UNTOLD : found & 3);
    }
    __syncthreads();
  }
  for (int tile = threadIdx.x / 32; tile < tiles; tile += THREADS / 32) {
    const i64 k0 = (i64)tile * KEYS;
    u32 found = 0;
    bool told = false;
    if constexpr (H::kBoxLanes > 0) {
      if (!isUntold(kinds[tile])) continue;
      found = attentionFoundInPart<QUERIES, KEYS, 8, 4>(h, b, head, q0, rows, k0, keys, lane);
      found = warpReduce<OrOp>(found);
      told = !isUntold(found);
      found &= FOUND_SEEN | FOUND_HIDDEN;
    }
    for (int first = 0; first < ACROSS && found != 3 && !told; first += WIDE) {
      // Rows and pieces behind the last are looked at as those, so that all is read at once.
      const int piece = first + lane % WIDE < ACROSS ? first + lane % WIDE : ACROSS - 1, column = piece * LANES;
      const i64 mine = minIndex(k0 + column, keys - 1) / LANES;
      for (int top = 0; top < rows && found != 3; top += AHEAD * DOWN) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
          const int row = (int)minIndex(top + i * DOWN + lane / WIDE, rows - 1);
          const int left = (int)(minIndex(keys, h.keyEnd(b, head, q0 + row)) - k0) - column;
          const Vec<bool, LANES> seen = h.through(b, head, q0 + row, mine);
          bool some = false, all = true;
#pragma unroll
          for (int e = 0; e < LANES; ++e) {
            const bool one = seen.v[e] && e < left;
            some |= one;
            all &= one;
          }
          found |= (some ? FOUND_SEEN : 0) | (all ? 0 : FOUND_HIDDEN);
        }
        found = warpReduce<OrOp>(found);
      }
    }
    __syncwarp(); // all lanes have read what was known
    if (lane == 0) kinds[tile] = (u8)found;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const i64 size = attentionListSize(keys, KEYS);
  u16 *const list = lists + (((i64)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * size;
  u32 count = 0, partial = 0;
  for (int first = 0; first < tiles; first += 32) {
    const int tile = first + lane, kind = tile < tiles ? kinds[tile] : FOUND_HIDDEN;
    u32 place = kind & FOUND_SEEN; // of this lane and those before it
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const u32 before = shuffleFrom32(place, lane >= d ? lane - d : 0);
      place += lane >= d ? before : 0;
    }
    if (kind & FOUND_SEEN) list[count + place] = (u16)(2 * tile + (kind == 3));
    count += shuffleFrom32(place, 31);
    partial += (u32)countBits(warpBits(kind == 3));
  }
  if (lane != 0) return;
  list[0] = (u16)(count > 0 ? count : 1);
  if (count == 0) list[1] = 1;
  // Where scores are looked at one by one, a tile takes half as long again.
  const u32 halves = count > 0 ? 2 * count + partial : 3;
  list[size - 1] = (u16)(halves < 0xffff ? halves : 0xffff);
}

#endif // LATHE_DEVICE_ATTENTION_BLOCKS
