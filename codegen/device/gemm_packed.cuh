//===- gemm_packed.cuh - products of few rows with packed weights of 4 or 8 bits --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math, mma, hopper, gemm, widen
//
// C[m,n] for M up to 16, bound by the bytes of the weights, which the compiler has packed as fragments
// (`fragments4`, `fragments8` of lathe/codegen/Packing.h): the 16 bytes of a lane are its operand of two or
// four products, so that nothing is moved between lanes and codes are widened two at a time. As in stream.cuh
// one persistent block a multiprocessor walks over tiles of 16 columns, its warps split K, and a warp keeps its
// part of A in registers from the first tile to the last. Each warp has a ring of its own in shared memory, and
// the warps meet after several tiles to add up. K of a large depth is split over the blocks of a cluster as well,
// which exchange their sums while they multiply the next tiles.
//
// A code of 4 bits becomes 128 + code in bf16 by one instruction. What all codes of a group have too much is
// taken away once, times the sum of the group's A, which stands in registers: zero points cost nothing. (In f32
// this loses less than 2^-10 of an error of bf16; f16, where it would be 1024 + code, and short groups subtract
// each pair instead, which is exact.) Sums over the elements that share a scale take it in f32. Holes as in
// skinny.cuh (Element, kLanes, baseA, strideA, start, wait, epilogue) and
//
//   static constexpr int kBits;       of a code
//   static constexpr bool kSigned;    two's complement
//   static constexpr int kGroup;      elements of K that share a scale and a zero point; 0: sums take the scale
//   static constexpr bool kZeros;     zero points differ; only with 4 bits and kGroup
//   static constexpr int kZero;       what they are where they do not, -8 to 15
//   const u8 *packed() const;         the weights
//   with kGroup                       as they are stored; loads alone, what they give is used a tile later
//     typedef .. Scale; Scale scaleAt(u32 n, u32 group) const;
//     typedef .. Zero; Zero zeroAt(u32 n, u32 group) const; f32 zeroOf(Zero stored, u32 n, u32 group) const;
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_PACKED
#define LATHE_DEVICE_GEMM_PACKED

/// Shared memory: of each warp TURNS times STEPS pieces of 16 bytes a lane, the sums of twice BATCH tiles, of clusters
/// those of blocks, and a barrier for each place of a ring.
template <int WARPS, int NT, int STEPS, int TURNS, int BATCH, int SPLIT> struct PackedTile {
  static constexpr u32 RING = WARPS * TURNS * STEPS * 512;
  typedef f32 Parts[BATCH][WARPS][NT * 4][33];
  static constexpr u32 BLOCK_AT = RING + 2 * sizeof(Parts);
  static constexpr u32 BARRIERS_AT = BLOCK_AT + (SPLIT > 1 ? 2 * BATCH * NT * 128 * 4 : 0);
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + WARPS * TURNS * 8;
};

/// The words of four lanes that have four each, exchanged: word i of lane t becomes word t of lane i.
LATHE_DEV void turnQuad(u32 (&w)[4]) {
  const bool odd = threadIdx.x % 2, upper = threadIdx.x / 2 % 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 got = shuffleXor32(odd ? w[i] : w[i + 1], 1);
    w[i + 1] = odd ? w[i + 1] : got;
    w[i] = odd ? got : w[i];
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 got = shuffleXor32(upper ? w[i] : w[i + 2], 2);
    w[i + 2] = upper ? w[i + 2] : got;
    w[i] = upper ? got : w[i];
  }
}

/// 8 NT rows; a warp has STEPS units of K, 64 (4 bits) or 32 of it each, and a ring of TURNS tiles of them; it meets
/// the others after BATCH tiles. SPLIT blocks of a cluster have a tile. EXACT: K is just that.
template <int WARPS, int NT, int STEPS, int TURNS, int BATCH, int SPLIT, bool EXACT, class H>
LATHE_DEV void gemmPacked(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Element T;
  typedef PackedTile<WARPS, NT, STEPS, TURNS, BATCH, SPLIT> Tile;
  constexpr int PARTS = 16 / H::kBits, UNIT = 16 * PARTS, SPAN = STEPS * UNIT, GROUP = H::kGroup, L = H::kLanes;
  static_assert(GROUP == 0 || GROUP % UNIT == 0 || UNIT % GROUP == 0, "groups and units begin together");
  // Scales that a warp needs of a column: one for each group in its part of K; where groups do not begin with it,
  // one for each unit.
  constexpr int EACH = GROUP == 0 ? SPAN : GROUP < UNIT || SPAN % GROUP == 0 ? GROUP : UNIT, SLOTS = SPAN / EACH;
  constexpr bool FOLDS = H::kBits == 4 && IsSame<T, bf16>::value && EACH >= UNIT;
  LATHE_DYNAMIC_SHARED(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  auto *parts = (typename Tile::Parts *)(shared + Tile::RING);
  f32 *blockSums = (f32 *)(shared + Tile::BLOCK_AT);
  const int units = (int)(K / UNIT);
  u32 rank = 0;
#ifndef LATHE_EMULATE
  if constexpr (SPLIT > 1) rank = clusterRank();
#endif
  const int begin = ((int)rank * WARPS + warp) * STEPS;
  const i64 first = blockIdx.x / SPLIT, stride = gridDim.x / SPLIT, tiles = (N + 15) / 16;
  const int mine = first < tiles ? (int)((tiles - 1 - first) / stride) + 1 : 0; // tiles
  H::start();

  // A tile's units lie behind each other: one copy brings those of a warp. What no unit fills is multiplied by zero.
  const int own = EXACT ? STEPS : units - begin < 0 ? 0 : units - begin < STEPS ? units - begin : STEPS;
  const u8 *from = h.packed() + (first * units + begin) * 512;
  const i64 further = stride * units * 512;
  const SharedAddr ring = sharedAddr(shared + warp * (TURNS * STEPS * 512)), full = sharedAddr(shared + Tile::BARRIERS_AT + warp * (TURNS * 8));
  const u8 *pieces = shared + warp * (TURNS * STEPS * 512) + lane * 16;
  auto copy = [&](int slot) { // by one lane
    barrierExpect(full + 8 * slot, own * 512);
    bulkLoadStreaming(ring + slot * (STEPS * 512), from, own * 512, full + 8 * slot);
    from += further;
  };
  if (lane == 0 && own > 0) {
    for (int i = 0; i < TURNS; ++i) barrierInit(full + 8 * i, 1);
    barrierInitFence();
    for (int i = 0; i < TURNS && i < mine; ++i) copy(i);
  }
  __syncwarp();

  // Of columns g and g + 8 of a tile, this one and the next.
  typedef typename H::Scale Scale;
  typedef typename H::Zero Zero;
  Scale scales[2][SLOTS], nextScales[2][SLOTS];
  Zero zeros[2][SLOTS], nextZeros[2][SLOTS];
  auto columnOf = [&](int turn, int i) {
    const u32 n = ((u32)first + turn * (u32)stride) * 16 + i * 8 + g;
    return n < (u32)N ? n : (u32)N - 1;
  };
  auto groupOf = [&](int s) {
    const int k = begin * UNIT + s * EACH;
    return (u32)(EXACT || k < (int)K ? k : 0) / (u32)(GROUP > 0 ? GROUP : 1);
  };
  auto loadParameters = [&](int turn) {
    if constexpr (GROUP > 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
          nextScales[i][s] = h.scaleAt(columnOf(turn, i), groupOf(s));
          if constexpr (H::kZeros) nextZeros[i][s] = h.zeroAt(columnOf(turn, i), groupOf(s));
        }
    }
  };
  if (mine > 0) loadParameters(0);
  H::wait();
  // A lane reads 16 bytes of a row, a quad 32 elements, and turns them as products want them.
  u32 x[NT][STEPS][PARTS][2];
#pragma unroll
  for (int b = 0; b < NT; ++b) {
    const T *row = h.baseA(0) + (b * 8 + g < M ? b * 8 + g : 0) * h.strideA() + begin * UNIT + 8 * t;
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int j = 0; j < PARTS; j += 2) {
        Bits16 piece{};
        if (EXACT || begin + s < units) piece = loadGlobal16(row + s * UNIT + j * 16);
        memcpy(&x[b][s][j][0], &piece, 16);
      }
  }
#pragma unroll
  for (int b = 0; b < NT; ++b)
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int j = 0; j < PARTS; j += 2) {
        u32 w[4] = {x[b][s][j][0], x[b][s][j][1], x[b][s][j + 1][0], x[b][s][j + 1][1]};
        turnQuad(w);
        x[b][s][j][0] = w[0]; x[b][s][j][1] = w[1]; x[b][s][j + 1][0] = w[2]; x[b][s][j + 1][1] = w[3];
      }
  // Sums of rows 2 t and 2 t + 1 over each slot: a product with ones.
  f32 rowSums[NT][SLOTS][2];
  if constexpr (FOLDS) {
    const u32 ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int i = 0; i < SLOTS; ++i) {
        f32 sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < EACH / 16; ++j) {
          const int at = i * (EACH / 16) + j;
          mma(sum, ones, x[b][at / PARTS][at % PARTS], T{});
        }
        rowSums[b][i][0] = sum[0];
        rowSums[b][i][1] = sum[1];
      }
  }

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
  constexpr f32 TOO_MUCH = (IsSame<T, bf16>::value ? 128.0f : 1024.0f) + (H::kSigned ? 8.0f : 0.0f);
  u32 half = 0;
  int slot = 0, parity = 0, stored = 0, at = 0; // the tile's place in the ring; tiles stored; the tile's place in its batch
  const u32 nibble = inRegister(0x000f000fu);
#pragma unroll 1
  for (int turn = 0; turn < mine; ++turn) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int s = 0; s < SLOTS; ++s) {
        scales[i][s] = nextScales[i][s];
        zeros[i][s] = nextZeros[i][s];
      }
    if (turn + 1 < mine) loadParameters(turn + 1);
    f32 acc[NT][4], part[NT][4];
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[b][e] = part[b][e] = 0.0f;
    if (own > 0) barrierWait(full + 8 * slot, parity);
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const Vec<u32, 4> w = *(const Vec<u32, 4> *)(pieces + (slot * STEPS + s) * 512);
#pragma unroll
      for (int j = 0; j < PARTS; ++j) {
        const int i = (s * UNIT + j * 16) / EACH;
        u32 left[4];
        f32 over[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          over[c] = TOO_MUCH + (f32)H::kZero;
          if constexpr (H::kZeros) over[c] = TOO_MUCH + h.zeroOf(zeros[c][i], columnOf(turn, c), groupOf(i));
        }
        if constexpr (FOLDS) exponentFragment<T, H::kSigned>(left, w.v[j], nibble);
        else if constexpr (H::kBits == 4) widenFragment<T, H::kSigned>(left, w.v[j], nibble, twice<T>(over[0]), twice<T>(over[1]));
        else widenFragment<T, H::kSigned>(left, w.v[2 * j], w.v[2 * j + 1]);
#pragma unroll
        for (int b = 0; b < NT; ++b) mma(part[b], left, x[b][s][j], T{});
        if ((s * UNIT + (j + 1) * 16) % EACH == 0) {
#pragma unroll
          for (int b = 0; b < NT; ++b)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              if constexpr (FOLDS) part[b][e] = fmaf(-over[e / 2], rowSums[b][i][e % 2], part[b][e]);
              if constexpr (GROUP > 0) acc[b][e] = fmaf(part[b][e], toF32(scales[e / 2][i]), acc[b][e]);
              else acc[b][e] += part[b][e];
              part[b][e] = 0.0f;
            }
        }
      }
    }
    __syncwarp(); // all lanes have read their pieces
    if (lane == 0 && own > 0 && turn + TURNS < mine) copy(slot);
    if (++slot == TURNS) { slot = 0; parity ^= 1; }
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

#endif // LATHE_DEVICE_GEMM_PACKED
