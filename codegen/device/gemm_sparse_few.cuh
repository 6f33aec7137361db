//===- gemm_sparse_few.cuh - products of few rows with 2:4 sparse weights ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_packed
//
// C[m,n] for M up to 16, bound by the bytes of the weights, of which at most two of four neighbours along k are not
// zero: they are packed as `sparse24` (lathe/support/Packing.h), 0.56 of the bytes, and multiplied by
// mma.sp. As in gemm_packed.cuh one persistent block a multiprocessor walks over tiles of 16 columns, its warps split K, a
// warp keeps its part of A in registers and has a ring of its own, and the warps meet after several tiles to add up; K of
// a large depth is split over the blocks of a cluster as well. Holes as in skinny.cuh (Element, kLanes, baseA, strideA,
// start, wait, epilogue) and
//
//   const u8 *packed() const;         the weights
//
// An element of A that meets a zero of B which is left out is no factor: where it is infinite or NaN, the sum does not
// become NaN.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_SPARSE_FEW
#define LATHE_DEVICE_GEMM_SPARSE_FEW

/// A unit of the weights, 16 columns by 64 of K: bytes of its elements, and with its words.
static constexpr int kSparseValues = 1024, kSparseUnit = kSparseValues + 128, kSparseDepth = 64;

/// Shared memory: of each warp SLOTS times PART units, the sums of twice BATCH tiles, of clusters those of blocks, and a
/// barrier for each slot of a ring.
template <int WARPS, int NT, int PARTS, int PART, int SLOTS, int BATCH, int SPLIT> struct SparseFewTile {
  static constexpr u32 RING = WARPS * SLOTS * PART * kSparseUnit;
  typedef f32 Parts[BATCH][WARPS][NT * 4][33];
  static constexpr u32 BLOCK_AT = RING + 2 * sizeof(Parts);
  static constexpr u32 BARRIERS_AT = BLOCK_AT + (SPLIT > 1 ? 2 * BATCH * NT * 128 * 4 : 0);
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + WARPS * SLOTS * 8;
};

/// 8 NT rows; a warp has PARTS times PART units of K and a ring of SLOTS parts, whichever tiles they are of; it meets the
/// others after BATCH tiles. SPLIT blocks of a cluster have a tile. EXACT: K is just that.
template <int WARPS, int NT, int PARTS, int PART, int SLOTS, int BATCH, int SPLIT, bool EXACT, class H>
LATHE_DEV void gemmSparseFew(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Element T;
  typedef SparseFewTile<WARPS, NT, PARTS, PART, SLOTS, BATCH, SPLIT> Tile;
  constexpr int L = H::kLanes, STEPS = PARTS * PART;
  constexpr u32 SLOT = PART * kSparseUnit;
  LATHE_DYNAMIC_SHARED(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  auto *parts = (typename Tile::Parts *)(shared + Tile::RING);
  f32 *blockSums = (f32 *)(shared + Tile::BLOCK_AT);
  const int units = (int)((K + kSparseDepth - 1) / kSparseDepth);
  u32 rank = 0;
#ifndef LATHE_EMULATE
  if constexpr (SPLIT > 1) rank = clusterRank();
#endif
  const int begin = ((int)rank * WARPS + warp) * STEPS;
  const i64 first = blockIdx.x / SPLIT, stride = gridDim.x / SPLIT, tiles = (N + 15) / 16;
  const int mine = first < tiles ? (int)((tiles - 1 - first) / stride) + 1 : 0; // tiles
  H::start();

  // A tile's units lie behind each other: one copy brings the elements of a part, another their words.
  const int own = EXACT ? STEPS : units - begin < 0 ? 0 : units - begin < STEPS ? units - begin : STEPS;
  const u8 *values = h.packed(), *places = values + tiles * units * kSparseValues;
  u8 *pieces = shared + warp * (SLOTS * SLOT);
  const SharedAddr ring = sharedAddr(pieces), full = sharedAddr(shared + Tile::BARRIERS_AT + warp * (SLOTS * 8));
  int copied = 0, part = 0; // tiles, and parts of the next one, that are under way or there
  auto copy = [&](int slot) { // by one lane: the next part
    const int count = EXACT ? PART : own - part * PART < PART ? own - part * PART : PART;
    const i64 unit = (first + copied * stride) * units + begin + part * PART;
    barrierExpect(full + 8 * slot, count * kSparseUnit);
    bulkLoadStreaming(ring + slot * SLOT, values + unit * kSparseValues, count * kSparseValues, full + 8 * slot);
    bulkLoadStreaming(ring + slot * SLOT + PART * kSparseValues, places + unit * 128, count * 128, full + 8 * slot);
    if (++part * PART >= own) { part = 0; ++copied; }
  };
  if (lane == 0 && own > 0) {
    for (int i = 0; i < SLOTS; ++i) barrierInit(full + 8 * i, 1);
    barrierInitFence();
    for (int i = 0; i < SLOTS && copied < mine; ++i) copy(i);
  }
  __syncwarp();
  H::wait();

  // A lane reads 16 bytes of a row, a quad 32 elements, and turns them as products want them.
  u32 x[NT][STEPS][2][4];
#pragma unroll
  for (int b = 0; b < NT; ++b) {
    const T *row = h.baseA(0) + (b * 8 + g < M ? b * 8 + g : 0) * h.strideA();
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const i64 k = (begin + s) * kSparseDepth + j * 32 + 8 * t;
        Bits16 piece{};
        if (EXACT || k < K) piece = loadGlobal16(row + k); // K is a multiple of 8
        memcpy(x[b][s][j], &piece, 16);
      }
  }
#pragma unroll
  for (int b = 0; b < NT; ++b)
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int j = 0; j < 2; ++j) turnQuad(x[b][s][j]);

  // Results of `count` tiles from `turn` on, whose sums over the blocks, or in `parts`, are there.
  auto store = [&](int turn, int count, u32 half) {
    const int each = (int)(M < 8 * NT ? M : 8 * NT) * 16, share = (each * count / L + SPLIT - 1) / SPLIT * L;
    const int end = ((int)rank + 1) * share < each * count ? ((int)rank + 1) * share : each * count;
    for (int i = (int)rank * share + threadIdx.x * L; i < end; i += 32 * WARPS * L) { // neighbours along n
      const int column = i % 16, m = i % each / 16, at = i / each;
      const i64 n = (first + (turn + at) * stride) * 16 + column;
      if (n >= N) continue;
      Vec<f32, L> sums;
      if constexpr (SPLIT > 1) {
#ifndef LATHE_EMULATE
        sums = addOverCluster<SPLIT, f32, L>(sharedAddr(blockSums + half * (BATCH * NT * 128) + i));
#endif
      } else {
#pragma unroll
        for (int l = 0; l < L; ++l) sums.v[l] = sumOfWarps<WARPS>(parts[half][at], column + l, m);
      }
      h.epilogue(0, m, n, sums);
    }
  };
  const u32 row = lane / 8 % 2 * 512 + lane / 16 * 128 + lane % 8 * 16; // whose address this lane gives
  u32 half = 0;
  int slot = 0, parity = 0, stored = 0, at = 0; // the part's place in the ring; tiles stored; the tile's place in its batch
#pragma unroll 1
  for (int turn = 0; turn < mine; ++turn) {
    f32 acc[NT][4];
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[b][e] = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      if (!EXACT && p * PART >= own) break;
      barrierWait(full + 8 * slot, parity);
#pragma unroll
      for (int i = 0; i < PART; ++i) {
        const int s = p * PART + i;
        if (!EXACT && s >= own) break; // what was not copied may be no numbers
        const u32 word = *(const u32 *)(pieces + slot * SLOT + PART * kSparseValues + i * 128 + lane * 4);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          u32 v[4]; // columns and the 8 further at 16 of K, then both at the next 16
          loadMatrix4(v, ring + slot * SLOT + i * kSparseValues + row + j * 256);
#pragma unroll
          for (int b = 0; b < NT; ++b) {
            if (j == 0) mmaSparse<0>(acc[b], v, x[b][s][j], word, T{});
            else mmaSparse<1>(acc[b], v, x[b][s][j], word, T{});
          }
        }
      }
      __syncwarp(); // all lanes have read their pieces
      if (lane == 0 && copied < mine) copy(slot);
      if (++slot == SLOTS) { slot = 0; parity ^= 1; }
    }
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) parts[half][at][warp][b * 4 + e][lane] = acc[b][e];
    if (++at < BATCH && turn + 1 < mine) continue;
    __syncthreads(); // the sums of the batch before have been read, too
    if constexpr (SPLIT > 1) {
#ifndef LATHE_EMULATE
      if (stored > 0) {
        __syncwarp();
        clusterWait();
        store(stored - BATCH, BATCH, half ^ 1);
      }
      const int each = (int)(M < 8 * NT ? M : 8 * NT) * 16;
      for (int i = threadIdx.x; i < at * each; i += 32 * WARPS)
        blockSums[half * (BATCH * NT * 128) + i] = sumOfWarps<WARPS>(parts[half][i / each], i % 16, i % each / 16);
      __syncwarp();
      clusterArrive();
#endif
    } else {
      store(stored, at, half);
    }
    stored += at;
    if (turn + 1 < mine) at = 0;
    half ^= 1;
  }
#ifndef LATHE_EMULATE
  if constexpr (SPLIT > 1) {
    if (mine > 0) {
      clusterWait();
      store(stored - at, at, half ^ 1);
    }
    __syncwarp();
    clusterLeave(); // nobody leaves while others read its sums
  }
#endif
}

#endif // LATHE_DEVICE_GEMM_SPARSE_FEW
