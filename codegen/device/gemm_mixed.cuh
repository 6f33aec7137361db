//===- gemm_mixed.cuh - products with weights of 8 bits on sm_90a -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_transposed, widen
//
// Mixed-input GEMM: activations of 16 bits, weights of 8 that are dequantized in registers. They have
// 8 bits in global and in shared memory; the warps that multiply convert them. wgmma takes one operand
// from registers, A: so the weights are A, the activations B, and C is computed transposed. A cluster
// has one tile, whose blocks split K and add up as in gemm_split.cuh; a warpgroup has 64 columns.
//
// While the products of one step run, the weights of the next are converted. Holes as in gemm_split.cuh
// (Element, Acc, kLanes, kProgrammatic, epilogue) and
//
//   typedef .. Weight;     8 bits
//   Vec<Element, 16> widened(i64 n, i64 piece, Vec<Weight, 16> codes);   as in skinny.cuh; an
//                          element depends on n, the piece and its code alone
//   static void multiply(f32 (&d)[BM / 2], const u32 (&a)[4][4], u64 b, u32 add);   64 of k
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_MIXED
#define LATHE_DEVICE_GEMM_MIXED
#ifndef LATHE_EMULATE

/// BM rows x BN columns of results a tile; SPLIT blocks.
template <int BM_, int BN_, int STAGES_, int SPLIT_> struct MixedTile {
  static constexpr int BM = BM_, BN = BN_, OUT = BN, STAGES = STAGES_, SPLIT = SPLIT_, BK = 64;
  static constexpr int THREADS = BN * 2 + 32; // the last warp loads
  static constexpr u32 X_BYTES = BM * 128, W_BYTES = BN * 64, LOADED = X_BYTES + W_BYTES;
  static constexpr u32 W_AT = STAGES * X_BYTES;
  // The sums take the place of the stages; rows are spread over the banks.
  static constexpr int PITCH = BN + 4;
  static constexpr u32 RING = STAGES * LOADED, SUMS = BM * PITCH * 4, BARRIERS_AT = RING > SUMS ? RING : SUMS;
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + 16 * STAGES + 1024; // barriers; where the swizzle begins
  static_assert(BM % 8 == 0 && BM <= 256 && BN % 64 == 0, "tile shape");
};

/// A step's weights of two rows of the instruction's operand, 8 apart, from a stage whose rows of 64
/// bytes TMA has swizzled. `columns`: of the weights; `step` counts 64 of k.
template <class H>
LATHE_DEV void widenStep(const H &h, u32 (&a)[4][4], SharedAddr tile, u32 row, const i64 (&columns)[2], u32 step, u32 pieces) {
  typedef typename H::Weight W;
  const u32 c = threadIdx.x % 4;
#pragma unroll
  for (u32 j = 0; j < 4; ++j)
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 r = row + 8 * i;
      const SharedAddr at = tile + r * 64 + ((j ^ (r >> 1 & 3)) << 4) + 2 * c;
      const u16 low = loadShared2(at), high = loadShared2(at + 8);
      Vec<W, 16> codes{};
      memcpy(codes.v, &low, 2);
      memcpy(codes.v + 2, &high, 2);
      const u32 piece = step * 4 + j;
      const auto wide = h.widened(columns[i], piece < pieces ? piece : 0, codes); // beyond K times zero
      u32 words[8];
      memcpy(words, &wide, sizeof words);
      a[j][i] = words[0];
      a[j][2 + i] = words[1];
    }
}

template <class Tile, class H>
LATHE_DEV void gemmMixed(const H &h, const TensorMap &mapX, const TensorMap &mapW, i64 M64, i64 N64, i64 K64) {
  typedef typename H::Acc Acc;
  constexpr int BM = Tile::BM, BN = Tile::BN, STAGES = Tile::STAGES, SPLIT = Tile::SPLIT;
  constexpr u32 CONSUMERS = 2 * BN;
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u; // the swizzle counts from there
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, toW = base + Tile::W_AT;
  const u32 M = (u32)M64, N = (u32)N64, K = (u32)K64;
  const u32 rank = SPLIT > 1 ? clusterRank() : 0;
  const u32 steps = (K + 63) / 64;
  const Share mine = shareOfRank<SPLIT>(blockIdx.x / SPLIT, rank, steps);
  const u32 begin = mine.begin, end = mine.end;
  const TilePlace t = placeOfTile<Tile>(mine.tile, (M + BM - 1) / BM, (N + BN - 1) / BN);
  if (threadIdx.x == 0) ringInit<STAGES>(full, empty, CONSUMERS / 32); // a warp each
  if (threadIdx.x == CONSUMERS) {
    tensorMapPrefetch(mapX);
    tensorMapPrefetch(mapW);
  }
  __syncthreads();
  dependentsMayStart();

  if (threadIdx.x >= CONSUMERS) {
    if (threadIdx.x == CONSUMERS) {
      auto loadW = [&](u32 slot, u32 step) {
        barrierExpect(full + 8 * slot, Tile::LOADED);
        tensorLoad(toW + slot * Tile::W_BYTES, mapW, full + 8 * slot, step * 64, t.n);
      };
      u32 early = begin; // steps whose weights are under way
      if constexpr (H::kProgrammatic)
        for (; early < begin + STAGES && early < end; ++early) loadW(early - begin, early);
      dependenciesWait();
      u32 slot = 0, parity = 1;
      for (u32 step = begin; step < end; ++step) {
        barrierWait(empty + 8 * slot, parity);
        if (step >= early) loadW(slot, step);
        tensorLoad(base + slot * Tile::X_BYTES, mapX, full + 8 * slot, step * 64, t.m);
        if (++slot == STAGES) { slot = 0; parity ^= 1; }
      }
    }
    __syncwarp();
  } else {
    const u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    i64 columns[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) columns[i] = t.n + row + 8 * i < N ? t.n + row + 8 * i : N - 1;
    Acc acc[BM / 2];
    u32 slot = 0, parity = 0, step = begin;
    const u32 pieces = K / 16;
    // The products of `now` run while `next` is converted.
    auto turn = [&](u32(&now)[4][4], u32(&next)[4][4]) {
      wgmmaFence();
      H::multiply(acc, now, wgmmaAlongK(base + slot * Tile::X_BYTES), (u32)(step > begin));
      wgmmaCommit();
      const u32 busy = slot;
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
      if (++step < end) {
        barrierWait(full + 8 * slot, parity);
        widenStep(h, next, toW + slot * Tile::W_BYTES, row, columns, step, pieces);
      }
      wgmmaWait<0>();
      if (lane == 0) barrierArrive(empty + 8 * busy);
      return step < end;
    };
    u32 even[4][4], odd[4][4];
    barrierWait(full, 0);
    widenStep(h, even, toW, row, columns, step, pieces);
    while (turn(even, odd) && turn(odd, even)) {}
    namedBarrierSync(1, CONSUMERS); // nobody reads the stages any more
    Acc *sums = (Acc *)(shared + (base - sharedAddr(shared)));
    keepTransposed<Tile>(sums, acc, row);
  }
  storeTransposed<Tile>(h, base, t, rank, M, N);
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_MIXED
