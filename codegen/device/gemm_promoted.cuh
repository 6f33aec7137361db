//===- gemm_promoted.cuh - sums of 8-bit floats promoted to f32 ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_hopper, block_scales
//
// Tensor cores add products of 8-bit floats with about 14 bits: long sums lose digits, most of all
// where all terms have the same sign. gemmPromoted lets them add at most 128 of k and adds those
// sums in f32 registers (promotion). The two warpgroups that multiply do so in turn, because left
// alone they would run in step and the tensor cores idle while both add. In each turn a warpgroup
// issues two products and adds up the first while the second runs: two steps of k, or, where there
// are no registers for the sums of two, the two halves of the columns.
//
// Operands may have scales of blocks of k (block_scales.cuh), which cost next to nothing here.
//
// Holes as in gemm_hopper.cuh and block_scales.cuh; `multiply` is of WIDTH columns.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_PROMOTED
#define LATHE_DEVICE_GEMM_PROMOTED
#ifndef LATHE_EMULATE

template <class Tile> struct Promotion {
  static constexpr bool DEEP = Tile::BN <= 128; // two steps of k a turn
  static constexpr int WIDTH = DEEP ? Tile::BN : Tile::BN / 2;
  static constexpr bool MANY = Tile::BN > 160 || (DEEP && Tile::BN > 96); // sums a thread
  static constexpr int LOADER_REGISTERS = MANY ? 24 : 40, REGISTERS = MANY ? 240 : 232;
  static_assert(Tile::BM == 128 && !Tile::PINGPONG && Tile::BK == 128, "two groups, 64 rows each");
};

/// The four products of a step.
template <class H, int N> LATHE_DEV void multiplyStep(f32 (&part)[N], u64 a, u64 b) {
#pragma unroll
  for (int k = 0; k < 4; ++k) H::multiply(part, a + 2 * k, b + 2 * k, k > 0);
  wgmmaCommit();
}

template <class Tile, class H>
LATHE_DEV void gemmPromoted(const H &h, const TensorMap &mapA, const TensorMap &mapB, const TensorMap &mapC,
                            const TensorMap &mapD, i64 batches, i64 M64, i64 N64, i64 K64) {
  typedef Promotion<Tile> P;
  constexpr int BM = Tile::BM, BN = Tile::BN, BK = Tile::BK, STAGES = Tile::STAGES, PART = P::WIDTH / 2;
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u;
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES;
  const u32 M = (u32)M64, N = (u32)N64, K = (u32)K64, group = threadIdx.x / 128;
  const u32 tilesM = (M + BM - 1) / BM, tilesN = (N + BN - 1) / BN, tiles = (u32)batches * tilesM * tilesN;
  // Whole turns: what lies beyond K is loaded as zeros.
  const u32 steps = P::DEEP ? (K + 2 * BK - 1) / (2 * BK) * 2 : (K + BK - 1) / BK;
  startRing<Tile, H>(mapA, mapB, mapC, mapD, base);
  if (group == 0) {
    registersLower<P::LOADER_REGISTERS>();
    if (threadIdx.x == 0) loadTiles<Tile>(h, mapA, mapB, base, tiles, tilesM, tilesN, steps, N);
  } else {
    registersRaise<P::REGISTERS>();
    const u32 me = group - 1, lane = threadIdx.x % 32;
    const SharedAddr mine = base + me * 64 * 128;
    Staging staging{base + Tile::C_AT + me * 2 * Tile::C_BYTES, empty + 8 * STAGES + me * 16, me, 0};
    f32 sums[1][BN / 2], part[2][PART];
    constexpr bool SCALED = H::kBlockScales;
    constexpr u32 TURN = P::DEEP ? 2 : 1; // steps
    typename ScalesOf<SCALED, BN>::Type scales[TURN], next[TURN];
    const u32 row = threadIdx.x / 32 % 4 * 16 + lane / 4, scaled = (K + BK - 1) / BK;
    if constexpr (SCALED) dependenciesWait();
    u32 slot = 0, parity = 0;
    if (me == 1) namedBarrierArrive(4, 256);
    for (u32 id = blockIdx.x; id < tiles; id += gridDim.x) {
      TilePlace t = placeOfTile<Tile>(id, tilesM, tilesN);
      t.m += me * 64;
      if constexpr (H::kBeside)
        if (threadIdx.x % 128 == 0) {
          dependenciesWait();
          loadFirstBeside<Tile, H>(mapD, staging, t);
        }
#pragma unroll
      for (int j = 0; j < BN / 2; ++j) sums[0][j] = 0.0f;
      const u32 edge = 128 - t.n % 128;
#pragma unroll
      for (u32 i = 0; i < TURN; ++i) scales[i].load(h, t.batch, t.m + row, t.n, i, M, N, scaled);
      for (u32 step = 0; step < steps; step += TURN) {
        u32 first = slot;
        barrierWait(full + 8 * slot, parity);
        u64 a = wgmmaAlongK(mine + slot * Tile::A_BYTES), b = wgmmaAlongK(base + Tile::B_AT + slot * Tile::B_BYTES);
        namedBarrierSync(4 + me, 256);
        wgmmaFence();
        multiplyStep<H>(part[0], a, b);
        if constexpr (P::DEEP) {
          if (++slot == STAGES) { slot = 0; parity ^= 1; }
          barrierWait(full + 8 * slot, parity);
          a = wgmmaAlongK(mine + slot * Tile::A_BYTES);
          b = wgmmaAlongK(base + Tile::B_AT + slot * Tile::B_BYTES);
        } else {
          b += P::WIDTH * 128 >> 4;
        }
        multiplyStep<H>(part[1], a, b);
#pragma unroll
        for (u32 i = 0; i < TURN; ++i) next[i].load(h, t.batch, t.m + row, t.n, step + TURN + i, M, N, scaled);
        wgmmaWait<1>();
        if (P::DEEP && lane == 0) barrierArrive(empty + 8 * first);
        namedBarrierArrive(4 + (me ^ 1), 256);
        promote<SCALED, 0>(sums[0], part[0], scales[0], edge);
        wgmmaWait<0>();
        if (lane == 0) barrierArrive(empty + 8 * slot);
        // A step beyond K adds nothing: its sums are 0, but the scale might be infinite.
        if (!SCALED || !P::DEEP || step + 1 < scaled)
          promote<SCALED, P::DEEP ? 0 : PART>(sums[0], part[1], scales[TURN - 1], edge);
#pragma unroll
        for (u32 i = 0; i < TURN; ++i) scales[i] = next[i];
        if (++slot == STAGES) { slot = 0; parity ^= 1; }
      }
      dependenciesWait();
      storeTile<Tile>(h, mapC, mapD, sums, t, M, N, staging);
    }
    if (H::kStaged && threadIdx.x % 128 == 0) storeWaitAll();
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_PROMOTED
