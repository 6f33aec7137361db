//===- stream.cuh - products of few rows with weights through a ring ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math, mma, hopper, gemm
//
// C[m,n] for M up to 16, weights of 16 bits with contiguous k. One persistent block a multiprocessor
// walks over tiles of 16 columns; its warps split K. A warp keeps its part of A in registers from the
// first tile to the last. Weights come through a ring in shared memory of the warp's own, whole cache
// lines at a time, and the loads of the next tile run while the sums of this one are added up, in the
// order of the warps. Pieces of weights are multiplied as in skinny.cuh: k is in the order in which
// lanes read it, the same for both operands.
//
// Holes as in skinny.cuh (Element, kLanes, baseA, strideA, baseB, strideB, start, wait), and
//
//   static constexpr bool kPair;   a result is made of two columns, kPairHead as in gemm_hopper.cuh
//   void epilogue(i64 b, i64 m, i64 n, Vec<f32, kLanes> sums);   stores the results
//     with kPair               (..., Vec<f32, kLanes> sums, Vec<f32, kLanes> seconds)
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_STREAM
#define LATHE_DEVICE_STREAM

/// Shared memory: STAGES steps of each warp, then the sums of two tiles.
template <int WARPS, int NT, int STAGES> struct StreamTile {
  static constexpr int COLUMNS = 16, STEP = 64;
  static constexpr u32 STAGE_BYTES = COLUMNS * STEP * 2, SUMS_AT = WARPS * STAGES * STAGE_BYTES;
  typedef f32 Parts[WARPS][NT * 4][33];
  static constexpr u32 SHARED_BYTES = SUMS_AT + 2 * sizeof(Parts);
};

/// 8 NT rows; of k a warp has STEPS times 64. EXACT: K is just that.
template <int WARPS, int NT, int STEPS, int STAGES, bool EXACT, class H>
LATHE_DEV void gemmStream(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Element T;
  typedef StreamTile<WARPS, NT, STAGES> Tile;
  constexpr int OUT = H::kPair ? 8 : 16, STEP = Tile::STEP;
  constexpr u32 STAGE = Tile::STAGE_BYTES;
  LATHE_DYNAMIC_SHARED(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
  const u8 *ring = shared + warp * STAGES * STAGE;
  auto *parts = (typename Tile::Parts *)(shared + Tile::SUMS_AT);
  const i64 tiles = (N + OUT - 1) / OUT, begin = (i64)warp * STEPS * STEP;
  H::start();

  // A lane copies a piece of four rows: neighbouring lanes neighbouring pieces of a line.
  const int r = lane / 8, piece = lane % 8;
  const T *rows[4];
  i64 coming = blockIdx.x;
  int step = 0;
  u32 to = 0;
  auto copy = [&] {
    if (coming < tiles) {
      if (step == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = r + 4 * i;
          i64 n = coming * OUT + row % OUT;
          n = n < N ? n : N - 1;
          if constexpr (H::kPair) n = pairColumn<H::kPairHead>(n, row / OUT, N);
          rows[i] = h.baseB(0) + n * h.strideB() + begin + piece * 8;
        }
      }
      const bool inside = EXACT || begin + step * STEP + piece * 8 < K;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        cpAsync16Streaming(sharedAddr(ring + to * STAGE) + (r + 4 * i) * 128 + ((piece ^ (r & 1) << 2) << 4),
                           inside ? rows[i] + step * STEP : h.baseB(0), inside ? 16 : 0);
      if (++step == STEPS) { step = 0; coming += gridDim.x; }
      if (++to == STAGES) to = 0;
    }
    cpAsyncCommit();
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) copy();
  H::wait();
  Bits16 x[NT][STEPS][2];
#pragma unroll
  for (int s = 0; s < STEPS; ++s)
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const i64 k = begin + s * STEP + i * 32 + lane % 4 * 8;
        x[b][s][i] = Bits16{};
        if (EXACT || k < K) x[b][s][i] = loadGlobal16(h.baseA(0) + (b * 8 + g < M ? b * 8 + g : 0) * h.strideA() + k);
      }
  // Rows g and g + 8 of a stage: the lane's pieces lane % 4 and 4 more, at places that even and odd rows
  // have exchanged.
  const u32 mine = g * 128 + ((lane % 4 ^ (g & 1) << 2) << 4);
  u32 slot = 0, turn = 0;
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn ^= 1) {
    f32 acc[NT][4];
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[b][e] = 0.0f;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      cpAsyncWait<STAGES - 2>();
      __syncwarp();
      Vec<u32, 4> w[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) w[i][j] = *(const Vec<u32, 4> *)(ring + slot * STAGE + (mine ^ i * 64) + j * 1024);
      copy(); // into the stage before, which the warp has read
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int q = 0; q < 4; q += 2) {
          const u32 left[4] = {w[i][0].v[q], w[i][1].v[q], w[i][0].v[q + 1], w[i][1].v[q + 1]};
#pragma unroll
          for (int b = 0; b < NT; ++b) {
            const u32 right[2] = {x[b][s][i].w[q], x[b][s][i].w[q + 1]};
            mma(acc[b], left, right, T{});
          }
        }
      if (++slot == STAGES) slot = 0;
    }
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) parts[turn][warp][b * 4 + e][lane] = acc[b][e];
    __syncthreads(); // the sums of the tile before have been read, too
    constexpr int L = H::kLanes;
    auto total = [&](int column, int m) {
      Vec<f32, L> sums;
#pragma unroll
      for (int l = 0; l < L; ++l) {
        const int c = column + l, at = m / 8 * 4 + c / 8 * 2 + m % 2, place = c % 8 * 4 + m % 8 / 2;
        sums.v[l] = parts[turn][0][at][place];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) sums.v[l] += parts[turn][w][at][place];
      }
      return sums;
    };
    for (int i = threadIdx.x * L; i < NT * 8 * OUT; i += 32 * WARPS * L) { // neighbours along n
      const int column = i % OUT, m = i / OUT;
      const i64 n = tile * OUT + column;
      if (m >= M || n >= N) continue;
      if constexpr (H::kPair) h.epilogue(0, m, n, total(column, m), total(column + OUT, m));
      else h.epilogue(0, m, n, total(column, m));
    }
  }
}

#endif // LATHE_DEVICE_STREAM
