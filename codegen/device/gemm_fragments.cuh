//===- gemm_fragments.cuh - products of up to 64 rows with packed weights of 4 or 8 bits --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math, mma, hopper, gemm, widen
//
// C[m,n] for M up to 64 with weights that are packed as fragments, as gemm_packed.cuh, whose registers hold A: here A
// passes through shared memory beside the weights, so that a block needs only its own part of K and neither the
// rows nor the depth are bounded by registers. C is computed transposed: the weights are the operand of 16 x 16, 16
// columns of C, and eight rows of A are the one of 16 x 8, so that a few rows waste nothing and a code is widened once
// for all of them.
//
// A block has a tile of columns and all rows; the blocks of a cluster split K. In a step WN x WK warps multiply WK units (64
// of K with 4 bits, 32 with 8), those of one unit side by side, while later stages are copied: of the weights each lane
// copies what it reads, of A all threads a part. (With one cp.async.bulk a row, products of 32 and 64 rows took 1.4 to 1.6 times as long.)
// The sums of the WK warps are added in their order, then those of the cluster's blocks in theirs.
//
// Codes become 128 + code in bf16 (1024 + code in f16) by one instruction, and less what they have too much, zero
// points included, by another: both are exact. Holes as in gemm_packed.cuh; kGroup is 0 or a multiple of 32.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_FRAGMENTS
#define LATHE_DEVICE_GEMM_FRAGMENTS

/// 8 NT rows; WN warps side by side with TW times 16 columns each, WK of them along K; SPLIT blocks have a tile. A unit is
/// 512 bytes of each 16 columns and UNIT elements of a row.
template <int NT_, int TW_, int WN_, int WK_, int STAGES_, int SPLIT_, int UNIT_> struct FragmentTile {
  static constexpr int NT = NT_, TW = TW_, WN = WN_, WK = WK_, STAGES = STAGES_, SPLIT = SPLIT_, UNIT = UNIT_;
  static constexpr int TILES = WN * TW, BN = 16 * TILES, ROWS = 8 * NT, THREADS = 32 * WN * WK;
  static constexpr u32 W_BYTES = TILES * WK * 512, PITCH = WK * UNIT * 2 + 16; // rows begin in different banks
  static constexpr u32 LOADED = W_BYTES + ROWS * PITCH, RING = STAGES * LOADED;
  // Of a warp: scales of its columns, then what their codes have too much, of two groups in a unit.
  static constexpr u32 COLUMNS = 16 * TW, PARAMETERS = 4 * COLUMNS * 4, PARAMETERS_AT = RING;
  // The sums take the place of all that.
  static constexpr u32 ACROSS = BN + 4, SUMS = WK * ROWS * ACROSS * 4, READ = RING + WN * WK * PARAMETERS;
  static constexpr u32 SHARED_BYTES = READ > SUMS ? READ : SUMS;
  static_assert(STAGES >= 2, "copied beside what is read");
};

template <class Tile, class H> LATHE_DEV void gemmFragments(const H &h, i64 M64, i64 N64, i64 K64) {
  typedef typename H::Element T;
  typedef typename H::Scale Scale;
  typedef typename H::Zero Zero;
  constexpr int NT = Tile::NT, TW = Tile::TW, WN = Tile::WN, WK = Tile::WK, STAGES = Tile::STAGES, SPLIT = Tile::SPLIT;
  constexpr int PARTS = 16 / H::kBits, UNIT = Tile::UNIT, GROUP = H::kGroup, L = H::kLanes;
  static_assert(UNIT == 16 * PARTS && GROUP % 32 == 0, "pieces of 32 of K have one scale");
  constexpr int SLOTS = GROUP > 0 && GROUP < UNIT ? UNIT / GROUP : 1; // scales of a column in a unit
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = sharedAddr(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, M = (int)M64, N = (int)N64, units = (int)(K64 / UNIT);
  u32 rank = 0;
#ifndef LATHE_EMULATE
  if constexpr (SPLIT > 1) rank = clusterRank();
#endif
  const int firstTile = blockIdx.x / SPLIT * Tile::TILES, n0 = firstTile * 16;
  const int begin = (int)rank * units / SPLIT, end = ((int)rank + 1) * units / SPLIT, steps = (end - begin + WK - 1) / WK;
  const int wn = warp % WN, wk = warp / WN, g = lane / 4;
  const int mine = wn * TW; // the warp's first 16 columns of the tile
  const int tiles = (N + 15) / 16 - firstTile - mine; // as many of the warp's have columns
  H::start();
  const u8 *from = h.packed() + ((i64)(firstTile + mine) * units + begin + wk) * 512 + lane * 16;
  auto copyStage = [&](int step) {
    const SharedAddr to = base + step % STAGES * Tile::LOADED;
    const int count = end - begin - step * WK; // units that are left
#pragma unroll
    for (int c = 0; c < TW; ++c)
      if (c < tiles && wk < count)
        cpAsync16Streaming(to + ((mine + c) * WK + wk) * 512 + lane * 16, from + ((i64)c * units + step * WK) * 512, 16);
    constexpr int PIECES = WK * UNIT / 8; // of a row
#pragma unroll
    for (int at = 0; at < Tile::ROWS * PIECES; at += Tile::THREADS) {
      const int i = at + (int)threadIdx.x, row = i / PIECES, piece = i % PIECES;
      if (row < M && piece * 8 < count * UNIT && (Tile::ROWS * PIECES % Tile::THREADS == 0 || row < Tile::ROWS))
        cpAsync16(to + Tile::W_BYTES + row * Tile::PITCH + piece * 16,
                  h.baseA(0) + row * h.strideA() + (begin + step * WK) * UNIT + piece * 8, 16);
    }
  };
  f32 acc[TW][NT][4];
#pragma unroll
  for (int c = 0; c < TW; ++c)
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[c][b][e] = 0.0f;
  // A step ahead, lanes read the parameters of a column each; they lie in shared memory as g and g + 8 of each 16.
  constexpr int OWN = (Tile::COLUMNS + 31) / 32; // columns of a lane
  Scale scales[OWN][SLOTS];
  Zero zeros[OWN][SLOTS];
  u32 *parameters = (u32 *)(shared + Tile::PARAMETERS_AT + warp * Tile::PARAMETERS);
  auto columnOf = [&](int q) {
    const int n = n0 + mine * 16 + q * 32 + lane;
    return (u32)(n < N ? n : N - 1);
  };
  auto groupOf = [&](int unit, int s) {
    return (u32)((unit < end ? unit : end - 1) * UNIT + s * (UNIT / SLOTS)) / (u32)(GROUP > 0 ? GROUP : 1);
  };
  auto loadParameters = [&](int unit) {
    if constexpr (GROUP > 0) {
#pragma unroll
      for (int q = 0; q < OWN; ++q)
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
          scales[q][s] = h.scaleAt(columnOf(q), groupOf(unit, s));
          if constexpr (H::kZeros) zeros[q][s] = h.zeroAt(columnOf(q), groupOf(unit, s));
        }
    }
  };
  constexpr f32 TOO_MUCH = (IsSame<T, bf16>::value ? 128.0f : 1024.0f) + (H::kSigned ? 8.0f : 0.0f);
  auto keepParameters = [&](int unit) {
    if constexpr (GROUP > 0) {
#pragma unroll
      for (int q = 0; q < OWN; ++q) {
        const int column = q * 32 + lane, at = column / 16 * 16 + column % 8 * 2 + column / 8 % 2;
        if (column >= Tile::COLUMNS) continue;
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
          parameters[s * Tile::COLUMNS + at] = f32ToBits(toF32(scales[q][s]));
          if constexpr (H::kZeros)
            parameters[(2 + s) * Tile::COLUMNS + at] = twice<T>(TOO_MUCH + h.zeroOf(zeros[q][s], columnOf(q), groupOf(unit, s)));
        }
      }
    }
  };
  const u32 nibble = inRegister(0x000f000fu);
  const u8 *weights = shared + (mine * WK + wk) * 512 + lane * 16;
  const SharedAddr rows = base + Tile::W_BYTES + lane % 8 * Tile::PITCH + wk * (UNIT * 2) + lane / 8 * 16;
  loadParameters(begin + wk);
  if (wk == 0 && lane < tiles && lane < TW) // while the kernels ahead may still run
    prefetchToL2(from - lane * 16 + (i64)lane * units * 512, (u32)(end - begin < (STAGES - 1) * WK ? end - begin : (STAGES - 1) * WK) * 512);
  H::wait();
#pragma unroll
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) copyStage(step);
    cpAsyncCommit();
  }
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int unit = begin + step * WK + wk, slot = step % STAGES;
    __syncwarp(); // the parameters of the step before have been read
    keepParameters(unit);
    if (step + 1 < steps) loadParameters(unit + WK);
    cpAsyncWait<STAGES - 2>();
    __syncthreads(); // this stage is there, and the one before has been read
    if (step + STAGES - 1 < steps) copyStage(step + STAGES - 1);
    cpAsyncCommit();
    if (unit < end) {
      // With many rows a loop that stays one: unrolled, it takes more registers than there are.
#pragma unroll(NT >= 4 ? 1 : PARTS / 2)
      for (int p = 0; p < PARTS / 2; ++p) { // 32 of K
        Vec<u32, H::kBits / 2> w[TW];
#pragma unroll
        for (int c = 0; c < TW; ++c) memcpy(&w[c], weights + slot * Tile::LOADED + c * (WK * 512) + p * (2 * H::kBits), sizeof w[c]);
        u32 x[NT][4];
#pragma unroll
        for (int b = 0; b < NT; ++b) loadMatrix4(x[b], rows + slot * Tile::LOADED + b * 8 * Tile::PITCH + p * 64);
#pragma unroll
        for (int c = 0; c < TW; ++c) {
          const int s = p * SLOTS / (PARTS / 2);
          u32 left[2][4];
          Vec<f32, 2> scale{{1.0f, 1.0f}};
          Vec<u32, 2> over{{twice<T>(TOO_MUCH + (f32)H::kZero), twice<T>(TOO_MUCH + (f32)H::kZero)}};
          const u32 *of = parameters + s * Tile::COLUMNS + c * 16 + 2 * g;
          if constexpr (GROUP > 0) memcpy(&scale, of, 8);
          if constexpr (H::kZeros) memcpy(&over, of + 2 * Tile::COLUMNS, 8);
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if constexpr (H::kBits == 4) widenFragment<T, H::kSigned>(left[j], w[c].v[j], nibble, over.v[0], over.v[1]);
            else widenFragment<T, H::kSigned>(left[j], w[c].v[2 * j], w[c].v[2 * j + 1]);
          }
#pragma unroll
          for (int b = 0; b < NT; ++b) {
            f32 part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            auto &sum = *(GROUP > 0 ? &part : &acc[c][b]);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const u32 right[2] = {x[b][2 * j], x[b][2 * j + 1]};
              mma(sum, left[j], right, T{});
            }
            if constexpr (GROUP > 0)
#pragma unroll
              for (int e = 0; e < 4; ++e) acc[c][b][e] = fmaf(part[e], scale.v[e / 2], acc[c][b][e]);
          }
        }
      }
    }
  }
  cpAsyncWait<0>();
  __syncthreads(); // nobody reads the stages any more
  f32 *sums = (f32 *)shared;
#pragma unroll
  for (int c = 0; c < TW; ++c)
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[((wk * NT + b) * 8 + 2 * (lane % 4) + e % 2) * Tile::ACROSS + (mine + c) * 16 + g + e / 2 * 8] = acc[c][b][e];
  __syncthreads();
  // Sums of WK warps in their order, `L` neighbours along n.
  constexpr int EACH = Tile::BN / L;
  auto ofBlock = [&](int at) {
    Vec<f32, L> r = *(const Vec<f32, L> *)(sums + at);
#pragma unroll
    for (int k = 1; k < WK; ++k)
#pragma unroll
      for (int l = 0; l < L; ++l) r.v[l] += sums[k * (Tile::ROWS * Tile::ACROSS) + at + l];
    return r;
  };
  if constexpr (SPLIT > 1 && WK > 1) {
    for (int i = threadIdx.x; i < M * EACH; i += Tile::THREADS) {
      const int at = i / EACH * Tile::ACROSS + i % EACH * L;
      *(Vec<f32, L> *)(sums + at) = ofBlock(at);
    }
  }
#ifndef LATHE_EMULATE
  if constexpr (SPLIT > 1) {
    __syncwarp();
    clusterSync();
  }
#endif
  for (int i = (int)rank * Tile::THREADS + threadIdx.x; i < M * EACH; i += SPLIT * Tile::THREADS) {
    const int m = i / EACH, column = i % EACH * L, at = m * Tile::ACROSS + column;
    if (n0 + column >= N) continue;
    Vec<f32, L> r;
    if constexpr (SPLIT > 1) {
#ifndef LATHE_EMULATE
      r = addOverCluster<SPLIT, f32, L>(base + at * 4);
#endif
    } else {
      r = ofBlock(at);
    }
    h.epilogue(0, m, n0 + column, r);
  }
#ifndef LATHE_EMULATE
  if constexpr (SPLIT > 1) {
    __syncwarp();
    clusterLeave(); // nobody leaves while others read its sums
  }
#endif
}

#endif // LATHE_DEVICE_GEMM_FRAGMENTS
