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
// 16 bits. A tile is as wide as there are warpgroups for, up to 256 columns: each reads all of its rows of the activations,
// and of few columns that is more than the weights are. Holes as in gemm_mixed.cuh (Element, Acc, kLanes, kProgrammatic,
// epilogue), of the weights as in gemm_packed.cuh (kGroup is 0 or a multiple of 16 that divides 64 or is a multiple of it) and
//
//   static void multiply(f32 (&d)[BM / 2], const u32 (&a)[4], u64 b, u32 add);   16 of k
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_WIDENED
#define LATHE_DEVICE_GEMM_WIDENED
#ifndef LATHE_EMULATE

/// BM rows x BN columns of results a tile; SPLIT blocks; BITS of a code. A stage has both halves of a step, 128 of K, or, of
/// many rows, one.
template <int BM_, int BN_, int STAGES_, int SPLIT_, int BITS_, int BK_> struct WidenedTile {
  static constexpr int BM = BM_, BN = BN_, OUT = BN, STAGES = STAGES_, SPLIT = SPLIT_, BITS = BITS_, BK = BK_;
  static constexpr int CONSUMERS = BN * 2;
  // Sums of two warpgroups need more registers than each thread has of its own: those who load give theirs.
  static constexpr bool GIVES = BN > 64 && BM > 128;
  static constexpr int THREADS = CONSUMERS + (GIVES ? 128 : 32); // the last ones load
  static constexpr u32 HALVES = BK / 64, HALF = BITS * 128, PIECE = HALVES * HALF; // of 16 columns and 64 of K, and of a stage
  static constexpr u32 X_HALF = BM * 128, X_BYTES = HALVES * X_HALF, W_BYTES = BN / 16 * PIECE, LOADED = X_BYTES + W_BYTES;
  static constexpr u32 W_AT = STAGES * X_BYTES;
  // The sums take the place of the stages; rows are spread over the banks.
  static constexpr int PITCH = BN + 4;
  static constexpr u32 RING = STAGES * LOADED, SUMS = BM * PITCH * 4, BARRIERS_AT = RING > SUMS ? RING : SUMS;
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + 16 * STAGES + 1024; // barriers; where the swizzle begins
  static_assert(BM % 8 == 0 && BM <= 256 && BN % 64 == 0 && (BK == 64 || BK == 128), "tile shape");
};

/// Scales and zero points of a warp's columns g and g + 8 in a step.
template <class H> struct WidenedParameters {
  static constexpr int SLOTS = H::kGroup % 128 == 0 ? 1 : H::kGroup % 64 == 0 ? 2 : 128 / H::kGroup;
  typename H::Scale scales[2][SLOTS];
  typename H::Zero zeros[2][SLOTS];
  LATHE_METHOD static u32 group(u32 step, int s, u32 K) {
    const u32 k = step * 128 + s * (128 / SLOTS);
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

/// A lane's codes of half a step, 64 of K, and what becomes of them: less what they have too much, times the scale.
template <class H> struct WidenedCodes {
  typedef typename H::Element T;
  static constexpr int ALL = WidenedParameters<H>::SLOTS, SLOTS = ALL > 1 ? ALL / 2 : 1;
  Vec<u32, 4> w[H::kBits / 4];
  u32 over[2][SLOTS], scales[2][SLOTS];

  /// `piece`: the lane's place in those of its warp.
  LATHE_METHOD void load(SharedAddr piece) {
#pragma unroll
    for (int q = 0; q < H::kBits / 4; ++q) w[q] = loadShared16(piece + q * 512);
  }
  LATHE_METHOD void convert(const H &h, const WidenedParameters<H> &p, const u32 (&columns)[2], u32 step, int half, u32 K) {
    constexpr f32 TOO_MUCH = (IsSame<T, bf16>::value ? 128.0f : 1024.0f) + (H::kSigned ? 8.0f : 0.0f);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int s = 0; s < SLOTS; ++s) {
        const int at = ALL > 1 ? half * SLOTS + s : 0;
        if constexpr (H::kZeros) over[i][s] = twice<T>(TOO_MUCH + h.zeroOf(p.zeros[i][at], columns[i], p.group(step, at, K)));
        else over[i][s] = twice<T>(TOO_MUCH + (f32)H::kZero);
        if constexpr (H::kGroup > 0) scales[i][s] = twice<T>(toF32(p.scales[i][at]));
      }
  }
  /// As wgmma takes them: 16 of K, the half's j-th.
  LATHE_METHOD void widen(u32 (&a)[4], int j, u32 nibble) const {
    const int s = j * SLOTS / 4;
    if constexpr (H::kBits == 4) widenFragment<T, H::kSigned>(a, w[0].v[j], nibble, over[0][s], over[1][s]);
    else widenFragment<T, H::kSigned>(a, w[j / 2].v[j % 2 * 2], w[j / 2].v[j % 2 * 2 + 1]);
    if constexpr (H::kGroup > 0) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[r] = pairProduct<T>(a[r], scales[r % 2][s]);
    }
  }
};

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
  const u32 steps = (K + 127) / 128;
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
      constexpr u32 EACH = 2 / Tile::HALVES; // stages of a step
      const u32 from = begin * EACH, to = end * EACH;
      auto loadW = [&](u32 slot, u32 stage) { // rows of 16 columns, in words of 8 bytes; zeros where there are none
        barrierExpect(full + 8 * slot, Tile::LOADED);
        tensorLoad(toW + slot * Tile::W_BYTES, mapW, full + 8 * slot, stage * (Tile::PIECE / 8), t.n / 16);
      };
      u32 early = from; // stages whose weights are under way
      if constexpr (H::kProgrammatic)
        for (; early < from + STAGES && early < to; ++early) loadW(early - from, early);
      dependenciesWait();
      u32 slot = 0, parity = 1;
      for (u32 stage = from; stage < to; ++stage) {
        barrierWait(empty + 8 * slot, parity);
        if (stage >= early) loadW(slot, stage);
#pragma unroll
        for (u32 half = 0; half < Tile::HALVES; ++half)
          tensorLoad(base + slot * Tile::X_BYTES + half * Tile::X_HALF, mapX, full + 8 * slot, stage * Tile::BK + half * 64, t.m);
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
    constexpr int APART = WidenedCodes<H>::ALL > 1 ? 2 : 1; // halves that have parameters of their own
    WidenedParameters<H> parameters; // of the next that are converted
    WidenedCodes<H> codes;           // of the half that is widened next
    u32 slot = 0, parity = 0, step = begin; // slot: of what is widened next
    auto convert = [&](int half) { // and asks for the parameters of the step behind
      codes.convert(h, parameters, columns, step, half, K);
      if (half == APART - 1) parameters.load(h, columns, step + 1, K);
    };
    auto further = [&] {
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
    };
    // A product that reads registers is issued when the one before it begins: products of `now` and what widens `next`
    // take turns, so that neither waits for all of the other.
    auto multiply = [&](u64 x, u32(&now)[4][4], u32(&next)[4][4], bool adds) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        wgmmaFence();
        H::multiply(acc, now[j], x + 2 * j, j > 0 ? 1u : (u32)adds);
        if (j == 3) wgmmaCommit();
        codes.widen(next[j], j, nibble);
      }
    };
    u32 first[4][4], second[4][4]; // halves of a step
    parameters.load(h, columns, step, K);
    barrierWait(full, 0);
    codes.load(pieces);
    convert(0);
#pragma unroll
    for (int j = 0; j < 4; ++j) codes.widen(first[j], j, nibble);
    for (bool more = true; more;) {
      const u32 one = slot;
      if constexpr (Tile::HALVES == 1) {
        further();
        barrierWait(full + 8 * slot, parity);
      }
      codes.load(pieces + slot * Tile::W_BYTES + (Tile::HALVES - 1) * Tile::HALF);
      if constexpr (APART > 1) convert(1);
      multiply(wgmmaAlongK(base + one * Tile::X_BYTES), first, second, step > begin);
      const u32 other = slot;
      further();
      more = ++step < end;
      if (more) {
        barrierWait(full + 8 * slot, parity);
        codes.load(pieces + slot * Tile::W_BYTES);
        convert(0);
      }
      wgmmaWait<0>();
      if (Tile::HALVES == 1 && lane == 0) barrierArrive(empty + 8 * one);
      // Behind the last step, what is widened is for nobody.
      multiply(wgmmaAlongK(base + other * Tile::X_BYTES + (Tile::HALVES - 1) * Tile::X_HALF), second, first, true);
      wgmmaWait<0>();
      if (lane == 0) barrierArrive(empty + 8 * other);
    }
    namedBarrierSync(1, CONSUMERS); // nobody reads the stages any more
    Acc *sums = (Acc *)(shared + (base - sharedAddr(shared)));
    keepTransposed<Tile>(sums, acc, row);
    if constexpr (Tile::GIVES) registersLower<168>();
  }
  storeTransposed<Tile>(h, base, t, rank, M, N);
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_WIDENED
