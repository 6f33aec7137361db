//===- gemm_widened.cuh - products of many rows with packed weights on sm_90a -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_transposed, widen
//
// Mixed-input GEMM as gemm_mixed.cuh, whose weights of 4 or 8 bits are packed as fragments (`fragments4`, `fragments8` of
// lathe/codegen/Packing.h): what a lane reads in one piece of 16 bytes is its share of wgmma's operand A for 64 (4 bits)
// or 32 of K. A warpgroup has 64 columns, the activations are B, and C is computed transposed. A cluster has one
// tile, whose blocks split K and add up as in gemm_split.cuh.
//
// While the products of one step run, the weights of the next are widened: codes become 128 + code in bf16 (1024 + code in
// f16), less what they have too much, which is exact, and times the scale of their group, if they have one, rounded to
// 16 bits. Holes as in gemm_mixed.cuh (Element, Acc, kLanes, kProgrammatic, epilogue, multiply) and of the weights as in
// gemm_packed.cuh; kGroup is 0 or a multiple of 16 that divides 64 or is a multiple of it.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_WIDENED
#define LATHE_DEVICE_GEMM_WIDENED
#ifndef LATHE_EMULATE

/// BM rows x BN columns of results a tile; SPLIT blocks; BITS of a code.
template <int BM_, int BN_, int STAGES_, int SPLIT_, int BITS_> struct WidenedTile {
  static constexpr int BM = BM_, BN = BN_, OUT = BN, STAGES = STAGES_, SPLIT = SPLIT_, BITS = BITS_, BK = 64;
  static constexpr int CONSUMERS = BN * 2;
  // Sums of two warpgroups need more registers than each thread has of its own: those who load give theirs.
  static constexpr bool GIVES = BN > 64 && BM > 128;
  static constexpr int THREADS = CONSUMERS + (GIVES ? 128 : 32); // the last ones load
  static constexpr u32 PIECE = BITS * 128; // of 16 columns and 64 of K
  static constexpr u32 X_BYTES = BM * 128, W_BYTES = BN / 16 * PIECE, LOADED = X_BYTES + W_BYTES;
  static constexpr u32 W_AT = STAGES * X_BYTES;
  // The sums take the place of the stages; rows are spread over the banks.
  static constexpr int PITCH = BN + 4;
  static constexpr u32 RING = STAGES * LOADED, SUMS = BM * PITCH * 4, BARRIERS_AT = RING > SUMS ? RING : SUMS;
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + 16 * STAGES + 1024; // barriers; where the swizzle begins
  static_assert(BM % 8 == 0 && BM <= 256 && BN % 64 == 0, "tile shape");
};

/// Scales and zero points of a warp's columns g and g + 8 in 64 of K.
template <class H> struct WidenedParameters {
  static constexpr int SLOTS = H::kGroup > 0 && H::kGroup < 64 ? 64 / H::kGroup : 1;
  typename H::Scale scales[2][SLOTS];
  typename H::Zero zeros[2][SLOTS];
  LATHE_METHOD static u32 group(u32 step, int s, u32 K) {
    const u32 k = step * 64 + s * (64 / SLOTS);
    return (k < K ? k : 0) / (u32)(H::kGroup > 0 ? H::kGroup : 1);
  }
  LATHE_METHOD void load(const H &h, const u32 (&columns)[2], u32 step, u32 K) {
    if constexpr (H::kGroup > 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
          scales[i][s] = h.scaleAt(columns[i], group(step, s, K));
          if constexpr (H::kZeros) zeros[i][s] = h.zeroAt(columns[i], group(step, s, K));
        }
    }
  }
};

/// A step's weights as wgmma takes them; `piece`: the lane's place in those of its warp.
template <class H>
LATHE_DEV void widenPieces(const H &h, u32 (&a)[4][4], SharedAddr piece, const WidenedParameters<H> &p, const u32 (&columns)[2],
                           u32 step, u32 K, u32 nibble) {
  typedef typename H::Element T;
  constexpr f32 TOO_MUCH = (IsSame<T, bf16>::value ? 128.0f : 1024.0f) + (H::kSigned ? 8.0f : 0.0f);
  constexpr int SLOTS = WidenedParameters<H>::SLOTS;
  Vec<u32, 4> w[H::kBits / 4];
#pragma unroll
  for (int q = 0; q < H::kBits / 4; ++q) w[q] = loadShared16(piece + q * 512);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int s = j * SLOTS / 4;
    if constexpr (H::kBits == 4) {
      u32 over[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (H::kZeros) over[i] = twice<T>(TOO_MUCH + h.zeroOf(p.zeros[i][s], columns[i], p.group(step, s, K)));
        else over[i] = twice<T>(TOO_MUCH + (f32)H::kZero);
      }
      widenFragment<T, H::kSigned>(a[j], w[0].v[j], nibble, over[0], over[1]);
    } else {
      widenFragment<T, H::kSigned>(a[j], w[j / 2].v[j % 2 * 2], w[j / 2].v[j % 2 * 2 + 1]);
    }
    if constexpr (H::kGroup > 0) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[j][r] = pairProduct<T>(a[j][r], twice<T>(toF32(p.scales[r % 2][s])));
    }
  }
}

template <class Tile, class H>
LATHE_DEV void gemmWidened(const H &h, const TensorMap &mapX, const TensorMap &mapW, i64 M64, i64 N64, i64 K64) {
  typedef typename H::Acc Acc;
  constexpr int BM = Tile::BM, BN = Tile::BN, STAGES = Tile::STAGES, SPLIT = Tile::SPLIT;
  constexpr u32 CONSUMERS = Tile::CONSUMERS;
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u; // the swizzle counts from there
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, toW = base + Tile::W_AT;
  const u32 M = (u32)M64, N = (u32)N64, K = (u32)K64, lane = threadIdx.x % 32;
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
    if constexpr (Tile::GIVES) registersLower<40>();
    if (threadIdx.x == CONSUMERS) {
      auto loadW = [&](u32 slot, u32 step) { // rows of 16 columns, in words of 8 bytes; zeros where there are none
        barrierExpect(full + 8 * slot, Tile::LOADED);
        tensorLoad(toW + slot * Tile::W_BYTES, mapW, full + 8 * slot, step * (Tile::PIECE / 8), t.n / 16);
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
    if constexpr (Tile::GIVES) registersRaise<168>();
  } else {
    if constexpr (Tile::GIVES) registersRaise<232>();
    const u32 row = threadIdx.x / 32 * 16 + lane / 4, nibble = inRegister(0x000f000fu);
    const SharedAddr pieces = toW + threadIdx.x / 32 * Tile::PIECE + lane * 16;
    u32 columns[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) columns[i] = t.n + row + 8 * i < N ? t.n + row + 8 * i : N - 1;
    Acc acc[BM / 2];
    u32 slot = 0, parity = 0, step = begin;
    WidenedParameters<H> parameters; // of the step that is widened next
    // The products of `now` run while `next` is widened.
    auto turn = [&](u32(&now)[4][4], u32(&next)[4][4]) {
      wgmmaFence();
      H::multiply(acc, now, wgmmaAlongK(base + slot * Tile::X_BYTES), (u32)(step > begin));
      wgmmaCommit();
      const u32 busy = slot;
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
      if (++step < end) {
        barrierWait(full + 8 * slot, parity);
        widenPieces(h, next, pieces + slot * Tile::W_BYTES, parameters, columns, step, K, nibble);
        parameters.load(h, columns, step + 1, K);
      }
      wgmmaWait<0>();
      if (lane == 0) barrierArrive(empty + 8 * busy);
      return step < end;
    };
    u32 even[4][4], odd[4][4];
    parameters.load(h, columns, step, K);
    barrierWait(full, 0);
    widenPieces(h, even, pieces, parameters, columns, step, K, nibble);
    parameters.load(h, columns, step + 1, K);
    while (turn(even, odd) && turn(odd, even)) {}
    namedBarrierSync(1, CONSUMERS); // nobody reads the stages any more
    Acc *sums = (Acc *)(shared + (base - sharedAddr(shared)));
    keepTransposed<Tile>(sums, acc, row);
    if constexpr (Tile::GIVES) registersLower<168>();
  }
  storeTransposed<Tile>(h, base, t, rank, M, N);
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_WIDENED
