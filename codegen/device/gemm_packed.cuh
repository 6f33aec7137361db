//===- gemm_packed.cuh - products of few rows with packed weights of 4 or 8 bits --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math, mma, hopper, gemm, widen
//
// C[m,n] for M up to 16, bound by the bytes of the weights, which the compiler has packed as fragments
// (`fragments4`, `fragments8` of lathe/codegen/Packing.h): the 16 bytes of a lane are its operand of two or
// four products, so that nothing is moved between lanes and codes are widened two at a time. As in stream.cuh
// one persistent block a multiprocessor walks over tiles of 16 columns, its warps split K, and a warp keeps its
// part of A in registers from the first tile to the last. Each lane has a ring of its own in shared memory. K of
// a large depth is split over the blocks of a cluster as well, which exchange the sums of a tile while they
// multiply the next one.
//
// Codes less their zero points are multiplied, which is exact in 16 bits; sums over the elements that share a
// scale take it in f32. Holes as in skinny.cuh (Element, kLanes, baseA, strideA, start, wait, epilogue) and
//
//   static constexpr int kBits;       of a code
//   static constexpr bool kSigned;    two's complement
//   static constexpr int kGroup;      elements of K that share a scale and a zero point; 0: sums take the scale
//   static constexpr bool kZeros;     zero points differ; only with 4 bits and kGroup
//   static constexpr int kZero;       what they are where they do not, -8 to 15
//   const u8 *packed() const;         the weights
//   typedef .. Scale; Scale scaleAt(i64 n, i64 group) const; f32 zeroAt(i64 n, i64 group) const;   with kGroup
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_PACKED
#define LATHE_DEVICE_GEMM_PACKED

/// Shared memory: STAGES pieces of 16 bytes of each lane, the sums of two tiles, of clusters those of blocks.
template <int WARPS, int NT, int STAGES, int SPLIT> struct PackedTile {
  static constexpr u32 RING = WARPS * STAGES * 512;
  typedef f32 Parts[WARPS][NT * 4][33];
  static constexpr u32 BLOCK_AT = RING + 2 * sizeof(Parts);
  static constexpr u32 SHARED_BYTES = BLOCK_AT + (SPLIT > 1 ? 2 * NT * 128 * 4 : 0);
};

/// 8 NT rows; a warp has STEPS units of K, 64 (4 bits) or 32 of it each; SPLIT blocks of a cluster have a tile.
/// EXACT: K is just that.
template <int WARPS, int NT, int STEPS, int STAGES, int SPLIT, bool EXACT, class H>
LATHE_DEV void gemmPacked(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Element T;
  typedef PackedTile<WARPS, NT, STAGES, SPLIT> Tile;
  constexpr int PARTS = 16 / H::kBits, UNIT = 16 * PARTS, SPAN = STEPS * UNIT, GROUP = H::kGroup, L = H::kLanes;
  static_assert(GROUP == 0 || GROUP % UNIT == 0 || UNIT % GROUP == 0, "groups and units begin together");
  // Scales that a warp needs of a column: one for each group in its part of K; where groups do not begin with it,
  // one for each unit.
  constexpr int EACH = GROUP == 0 ? SPAN : GROUP < UNIT || SPAN % GROUP == 0 ? GROUP : UNIT, SLOTS = SPAN / EACH;
  LATHE_DYNAMIC_SHARED(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  u8 *ring = shared + (warp * 32 + lane) * 16;
  auto *parts = (typename Tile::Parts *)(shared + Tile::RING);
  f32 *blockSums = (f32 *)(shared + Tile::BLOCK_AT);
  const int units = (int)(K / UNIT);
  u32 rank = 0;
#ifndef LATHE_EMULATE
  if constexpr (SPLIT > 1) rank = clusterRank();
#endif
  const int begin = ((int)rank * WARPS + warp) * STEPS;
  const i64 tiles = (N + 15) / 16, first = blockIdx.x / SPLIT, stride = gridDim.x / SPLIT;
  const u8 *mine = h.packed() + lane * 16;
  H::start();

  i64 coming = first;
  int step = 0;
  u32 to = 0;
  auto copy = [&] {
    if (coming < tiles) {
      const bool inside = EXACT || begin + step < units;
      cpAsync16Streaming(sharedAddr(ring + to * (WARPS * 512)), inside ? mine + (coming * units + begin + step) * 512 : mine,
                         inside ? 16 : 0);
      if (++step == STEPS) { step = 0; coming += stride; }
      if (++to == STAGES) to = 0;
    }
    cpAsyncCommit();
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) copy();

  // Columns g and g + 8 of a tile: scales, and what widened codes have too much.
  typedef typename H::Scale Scale;
  Scale scales[2][SLOTS];
  u32 over[2][SLOTS];
  auto loadParameters = [&](i64 tile) {
    if constexpr (GROUP > 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const i64 n = tile * 16 + i * 8 + g, column = n < N ? n : N - 1;
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
          const int k = begin * UNIT + s * EACH;
          const int group = (EXACT || k < (int)K ? k : 0) / GROUP;
          scales[i][s] = h.scaleAt(column, group);
          if constexpr (H::kZeros) over[i][s] = widenedZero<T, H::kSigned>(h.zeroAt(column, group));
        }
      }
    }
  };
  if constexpr (!H::kZeros) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int s = 0; s < SLOTS; ++s) over[i][s] = widenedZero<T, H::kSigned>((f32)H::kZero);
  }
  if (first < tiles) loadParameters(first);
  H::wait();
  u32 x[NT][STEPS][PARTS][2];
#pragma unroll
  for (int b = 0; b < NT; ++b) {
    const T *row = h.baseA(0) + (b * 8 + g < M ? b * 8 + g : 0) * h.strideA() + begin * UNIT + 2 * t;
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int j = 0; j < PARTS; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          x[b][s][j][i] = 0;
          if (EXACT || begin + s < units) x[b][s][j][i] = *(const u32 *)(row + s * UNIT + j * 16 + i * 8);
        }
  }

  // Results of a tile whose sums over the blocks, or in `parts`, are there.
  auto store = [&](i64 tile, u32 turn) {
    constexpr int SHARE = NT * 128 / SPLIT;
    for (int i = (int)rank * SHARE + threadIdx.x * L; i < ((int)rank + 1) * SHARE; i += 32 * WARPS * L) { // neighbours along n
      const int column = i % 16, m = i / 16;
      const i64 n = tile * 16 + column;
      if (m >= M || n >= N) continue;
      Vec<f32, L> sums;
      if constexpr (SPLIT > 1) {
#ifndef LATHE_EMULATE
        sums = addOverCluster<SPLIT, f32, L>(sharedAddr(blockSums + turn * NT * 128 + i));
#endif
      } else {
#pragma unroll
        for (int l = 0; l < L; ++l) sums.v[l] = sumOfWarps<WARPS>(parts[turn], column + l, m);
      }
      h.epilogue(0, m, n, sums);
    }
  };
  u32 slot = 0, turn = 0;
#pragma unroll 1
  for (i64 tile = first; tile < tiles; tile += stride, turn ^= 1) {
    f32 acc[NT][4], part[NT][4];
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[b][e] = part[b][e] = 0.0f;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      cpAsyncWait<STAGES - 2>();
      const Vec<u32, 4> w = *(const Vec<u32, 4> *)(ring + slot * (WARPS * 512));
      copy(); // into the stage before, which this lane has read
#pragma unroll
      for (int j = 0; j < PARTS; ++j) {
        const int at = (s * UNIT + j * 16) / EACH;
        u32 left[4];
        if constexpr (H::kBits == 4) widenFragment<T, H::kSigned>(left, w.v[j], over[0][at], over[1][at]);
        else widenFragment<T, H::kSigned>(left, w.v[2 * j], w.v[2 * j + 1]);
#pragma unroll
        for (int b = 0; b < NT; ++b) mma(GROUP > 0 ? part[b] : acc[b], left, x[b][s][j], T{});
        if (GROUP > 0 && (s * UNIT + (j + 1) * 16) % EACH == 0) {
          const f32 by[2] = {toF32(scales[0][at]), toF32(scales[1][at])};
#pragma unroll
          for (int b = 0; b < NT; ++b)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              acc[b][e] = fmaf(part[b][e], by[e / 2], acc[b][e]);
              part[b][e] = 0.0f;
            }
        }
      }
      if (++slot == STAGES) slot = 0;
    }
    // Those of the next tile have all of this one's end to come.
    if (GROUP > 0 && tile + stride < tiles) loadParameters(tile + stride);
#ifndef LATHE_EMULATE
    if constexpr (SPLIT > 1)
      if (tile != first) {
        clusterWait();
        store(tile - stride, turn ^ 1);
      }
#endif
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) parts[turn][warp][b * 4 + e][lane] = acc[b][e];
    __syncthreads(); // the sums of the tile before have been read, too
    if constexpr (SPLIT > 1) {
      for (int i = threadIdx.x; i < NT * 128; i += 32 * WARPS)
        blockSums[turn * NT * 128 + i] = sumOfWarps<WARPS>(parts[turn], i % 16, i / 16);
#ifndef LATHE_EMULATE
      __syncwarp();
      clusterArrive();
#endif
    } else {
      store(tile, turn);
    }
  }
#ifndef LATHE_EMULATE
  if constexpr (SPLIT > 1) {
    if (first < tiles) {
      clusterWait();
      const i64 last = first + (tiles - 1 - first) / stride * stride;
      store(last, turn ^ 1);
    }
    __syncwarp();
    clusterSync(); // nobody leaves while others read its sums
  }
#endif
}

#endif // LATHE_DEVICE_GEMM_PACKED
