//===- gemm_bsr.cuh - products with block-sparse weights on sm_90a ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_hopper, finite_rows
//
// C[m,n] = sum over k of A[m,k] * B[k,n] for weights B whose blocks of 64 x 64 are mostly zero, packed as `bsr64`
// (lathe/support/BlockSteps.h): the blocks that are not, and for each pair of panels of 64 columns, which need not be
// neighbours, the steps of 64 of k in which either panel has one. As with kSwapped of gemm_hopper.cuh rows of the
// instruction are columns of the weights: one warpgroup has one panel of a pair, the other the other one, for the same BN
// rows of A. A stage has the rows of A of one step, which both read, and the blocks that there are; a warpgroup without a
// block leaves the stage at once, while the tensor cores multiply the other's. (Rings of their own for rows and blocks,
// with more of them under way, are no faster with many rows, for which the second-level cache sets the pace, and slower
// with few.) Persistent blocks, the ring of stages and the epilogues are gemm_hopper.cuh's. Holes as there with kSwapped,
// and
//
//   const u8 *packed() const;                                        the weights
//   static void multiply(f32 (&d)[BN / 2], u64 a, u64 b, u32 add);   64 of k
//   static constexpr bool kChecked;   a launch ahead has found the elements of A that are infinite or NaN:
//   const u32 *nonfinite() const;     what finiteRows wrote
//
// An element of A that meets a block which is left out is no factor. Where it is infinite or NaN, the sum becomes NaN
// nevertheless with kChecked, and else does not.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_BSR
#define LATHE_DEVICE_GEMM_BSR
#ifndef LATHE_EMULATE

/// A tile has two panels of the weights x BN rows. PAIR: 2 where the blocks of a cluster have the same panels for
/// neighbouring rows, and each loads half of the blocks of a step for both.
template <int BN_, int STAGES_, int PAIR_, class H> struct BsrTile {
  static constexpr int BM = 128, BN = BN_, OUT = BN, STAGES = STAGES_, BK = 64;
  static constexpr bool PINGPONG = false, STREAM_K = false, B_ALONG = true, HALVES = false;
  static constexpr u32 PAIR = PAIR_;
  static constexpr int MI = 1; // products of 64 columns by a group
  static constexpr int B_WIDE = 64;
  static constexpr u32 BLOCK = 64 * 128, A_BYTES = 2 * BLOCK, B_BYTES = BN * 128; // of a stage
  static constexpr int STAGED = OUT % 64 == 0 ? 64 : OUT % 48 == 0 ? 48 : OUT % 32 == 0 ? 32 : 16; // rows stored together
  static constexpr u32 C_BYTES = 64 * STAGED * 2;
  static constexpr u32 B_AT = STAGES * A_BYTES, C_AT = B_AT + STAGES * B_BYTES, BARRIERS_AT = C_AT + 4 * C_BYTES;
  /// A barrier for each stage that is full or empty, and for each buffer; a bit for each row of a group.
  static constexpr u32 ROWS_AT = BARRIERS_AT + 16 * STAGES + 4 * 8;
  static constexpr u32 SHARED_BYTES = ROWS_AT + 2 * 32 + 1024; // 1024: where the swizzle begins
  static constexpr int LOADER_REGISTERS = 40, REGISTERS = 232;
  static_assert(BN % 16 == 0 && BN <= 256, "tile shape");
  static_assert(H::kSwapped && H::kStaged && sizeof(typename H::Element) == 2, "16 bits, stored by TMA");
};

/// What a packed weight says of itself.
struct BsrWeights {
  const u32 *begins;    ///< the first step of each pair of panels, and of the end
  const u32 *panels;    ///< which panels of 64 columns a pair has, two words each
  const u32 *kept;      ///< of each panel of a pair a bit for each 64 of k in which it has a block, in words of 32
  const u64 *steps;     ///< 64 of k by number; in the upper word four times the first block, and a bit for each panel that has one
  const u8 *blocks;     ///< 8192 bytes each, [64 columns][64 of k], spread as the 128-byte swizzle does
};
LATHE_DEV BsrWeights bsrWeights(const u8 *packed) {
  const u32 *header = (const u32 *)packed; // bytes to the bits of panels, the steps, the blocks, the panels of pairs
  return {header + 4, (const u32 *)(packed + header[3]), (const u32 *)(packed + header[0]), (const u64 *)(packed + header[1]),
          packed + header[2]};
}

/// The tile that this block, or its cluster, has in a round; beyond the tiles: none, nor in later rounds. Pairs with many steps
/// come first, and every second round deals its tiles out backwards, so that no block has the longest of each.
template <class Tile> LATHE_DEV u32 tileOfRound(u32 round) {
  const u32 all = gridDim.x / Tile::PAIR, me = blockIdx.x / Tile::PAIR;
  return round * all + (round & 1 ? all - 1 - me : me);
}
/// Its place, and of a cluster's blocks this one's.
template <class Tile> LATHE_DEV TilePlace placeOfBsr(u32 id, u32 tilesM, u32 tilesN) {
  TilePlace t = placeOfTile<Tile>(id, tilesM, (tilesN + Tile::PAIR - 1) / Tile::PAIR);
  if constexpr (Tile::PAIR > 1) t.n = t.n * Tile::PAIR + clusterRank() * Tile::BN;
  return t;
}

/// By one thread: the blocks of a step.
template <class Tile> LATHE_DEV void loadBlocks(const BsrWeights &w, SharedAddr to, SharedAddr bar, u64 step) {
  const u32 word = (u32)(step >> 32), count = (word & 1) + (word >> 1 & 1);
  barrierExpect(bar, count * Tile::BLOCK + Tile::B_BYTES);
  const u32 part = count * Tile::BLOCK / Tile::PAIR;
  const u8 *from = w.blocks + (u64)(word >> 2) * Tile::BLOCK;
  to += word & 1 ? 0 : Tile::BLOCK;
  if constexpr (Tile::PAIR == 1) bulkLoad(to, from, part, bar);
  else bulkLoadCluster(to + clusterRank() * part, from + clusterRank() * part, part, bar, (1 << Tile::PAIR) - 1);
}

/// By one thread: fills the ring with the stages of all tiles of this block.
template <class Tile, class H>
LATHE_DEV void loadBsrTiles(const H &h, const BsrWeights &w, const TensorMap &rows, SharedAddr base, u32 tiles, u32 tilesM,
                            u32 tilesN) {
  constexpr u32 STAGES = Tile::STAGES;
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, toB = base + Tile::B_AT;
  u32 slot = 0, parity = 1; // waiting for a slot that was never used passes at once
  u32 early = 0;            // stages of the first tile whose weights are under way
  if constexpr (H::kProgrammatic)
    if (tileOfRound<Tile>(0) < tiles) {
      const u32 pair = placeOfBsr<Tile>(tileOfRound<Tile>(0), tilesM, tilesN).m / Tile::BM, begin = w.begins[pair];
      for (; early < STAGES && begin + early < w.begins[pair + 1]; ++early)
        loadBlocks<Tile>(w, base + early * Tile::A_BYTES, full + 8 * early, w.steps[begin + early]);
    }
  dependenciesWait();
  for (u32 round = 0, tile; (tile = tileOfRound<Tile>(round)) < tiles; ++round) {
    const TilePlace t = placeOfBsr<Tile>(tile, tilesM, tilesN);
    const u32 end = w.begins[t.m / Tile::BM + 1];
    u32 at = w.begins[t.m / Tile::BM];
    for (u64 step = w.steps[at]; at < end;) {
      const u64 next = w.steps[at + 1 < end ? at + 1 : at]; // under way while a slot is awaited
      barrierSleep(empty + 8 * slot, parity);
      if (early > 0) --early;
      else loadBlocks<Tile>(w, base + slot * Tile::A_BYTES, full + 8 * slot, step);
      loadStageB<Tile>(h, toB + slot * Tile::B_BYTES, rows, full + 8 * slot, t, (u32)step, 0);
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
      step = next;
      ++at;
    }
  }
  if constexpr (H::kLate) dependentsMayStart();
}

/// A ring of stages as a group reads it.
struct BsrRing { u32 slot, parity; };

/// By a group: the steps of a tile in the ring. Its panel is number `me` of the pair, and has a block in one step at least.
template <class Tile, class H>
LATHE_DEV void multiplyBsr(typename H::Acc (&acc)[Tile::BN / 2], SharedAddr base, const BsrWeights &w, u32 pair, u32 me,
                           BsrRing &ring) {
  constexpr u32 STAGES = Tile::STAGES;
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, mine = base + me * Tile::BLOCK;
  const u32 *words = (const u32 *)w.steps + 1;
  const u32 end = w.begins[pair + 1];
  u32 at = w.begins[pair], last = STAGES; // the slot of the products that are under way; none
  u32 word = words[2 * at], add = 0;
  do {
    const u32 next = words[2 * (at + 1 < end ? at + 1 : at)];
    barrierSleep(full + 8 * ring.slot, ring.parity);
    const bool has = word >> me & 1;
    if (has) {
      wgmmaFence();
      H::multiply(acc, wgmmaAlongK(mine + ring.slot * Tile::A_BYTES), wgmmaAlongK(base + Tile::B_AT + ring.slot * Tile::B_BYTES), add);
      wgmmaCommit();
      add = 1;
    }
    // The products before are done: their slot is free. So is this one, where it has nothing for this group.
    if (last < STAGES) {
      if (has) wgmmaWait<1>();
      else wgmmaWait<0>();
      slotIsFree<Tile>(empty + 8 * last);
    }
    if (!has) slotIsFree<Tile>(empty + 8 * ring.slot);
    last = has ? ring.slot : STAGES;
    if (++ring.slot == STAGES) { ring.slot = 0; ring.parity ^= 1; }
    word = next;
  } while (++at < end);
  wgmmaWait<0>();
  if (last < STAGES) slotIsFree<Tile>(empty + 8 * last);
}

/// By a group: sums of rows from row0 on in which an infinity or NaN meets a block that its panel leaves out become NaN.
template <class Tile, class H>
LATHE_DEV void spoilRows(const H &h, typename H::Acc (&acc)[Tile::BN / 2], const BsrWeights &w, u32 panel, u32 row0, u32 M,
                         u32 words, SharedAddr rows, u32 barrier) {
  const u32 thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  bool any = false;
#pragma unroll
  for (u32 first = 0; first < Tile::BN; first += 128) {
    const u32 r = first + thread;
    bool bad = false;
    if (r < Tile::BN && row0 + r < M)
      for (u32 n = 0; n < words; ++n) bad |= (h.nonfinite()[(u64)(row0 + r) * words + n] & ~w.kept[panel * words + n]) != 0;
    any |= bad;
    const u32 word = warpBits(bad);
    if (lane == 0 && r < Tile::BN) storeShared4(rows + r / 8, bitsToF32(word));
  }
  if (!namedBarrierAny(barrier, 128, any)) return;
#pragma unroll
  for (u32 i = 0; i < Tile::BN / 2; ++i) {
    const u32 r = i / 4 * 8 + 2 * (lane % 4) + (i & 1);
    if (loadShared4(rows + r / 32 * 4) >> r % 32 & 1) acc[i] = bitsToF32(0x7fc00000u);
  }
}

/// Maps: A, C, what comes to C at its own places.
template <class Tile, class H>
LATHE_DEV void gemmBsr(const H &h, const TensorMap &rows, const TensorMap &mapC, const TensorMap &mapD, i64 M64, i64 N64,
                       i64 K) {
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u; // the swizzle counts from there
  const SharedAddr arrived = base + Tile::BARRIERS_AT + 16 * Tile::STAGES;
  const u32 M = (u32)M64, N = (u32)N64, group = threadIdx.x / 128;
  const u32 tilesM = (N + Tile::BM - 1) / Tile::BM, tilesN = (M + Tile::BN - 1) / Tile::BN;
  const u32 tiles = tilesM * ((tilesN + Tile::PAIR - 1) / Tile::PAIR);
  const BsrWeights w = bsrWeights(h.packed());
  startRing<Tile, H>(rows, rows, mapC, mapD, base);

  if (group == 0) {
    registersLower<Tile::LOADER_REGISTERS>();
    if (threadIdx.x == 0) loadBsrTiles<Tile>(h, w, rows, base, tiles, tilesM, tilesN);
  } else {
    registersRaise<Tile::REGISTERS>();
    const u32 me = group - 1;
    Staging staging{base + Tile::C_AT + me * 2 * Tile::C_BYTES, arrived + me * 16, me, 0};
    typename H::Acc acc[1][Tile::BN / 2];
    BsrRing ring{0, 0};
    for (u32 round = 0, tile; (tile = tileOfRound<Tile>(round)) < tiles; ++round) {
      TilePlace t = placeOfBsr<Tile>(tile, tilesM, tilesN);
      const u32 pair = t.m / Tile::BM;
      t.m = w.panels[2 * pair + me] * 64;
      const bool inside = Tile::PAIR == 1 || t.n < M; // one block of the last cluster may have no rows
      if constexpr (H::kBeside)
        if (threadIdx.x % 128 == 0 && inside) {
          dependenciesWait();
          loadFirstBeside<Tile, H>(mapD, staging, t);
        }
      multiplyBsr<Tile, H>(acc[0], base, w, pair, me, ring);
      dependenciesWait(); // over long since, but by this thread, which may read what they wrote
      if (!inside) continue;
      if constexpr (H::kChecked)
        spoilRows<Tile, H>(h, acc[0], w, 2 * pair + me, t.n, M, finiteWords(K), base + Tile::ROWS_AT + me * 32, 1 + me);
      storeSwapped<Tile>(h, mapC, mapD, acc, t, N, M, staging);
    }
    if (threadIdx.x % 128 == 0) storeWaitAll();
  }
  if constexpr (Tile::PAIR > 1) { // the other block may still write here
    __syncwarp();
    clusterSync();
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_BSR
