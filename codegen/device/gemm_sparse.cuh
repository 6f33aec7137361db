//===- gemm_sparse.cuh - products with 2:4 sparse weights on sm_90a ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_hopper
//
// C[m,n] = sum over k of A[m,k] * B[k,n] for weights B of which at most two of four neighbours along k are not
// zero, packed as `sparse24` (lathe/support/Packing.h). wgmma.sp takes the sparse operand first, so that C is
// computed transposed as with kSwapped of gemm_hopper.cuh: rows of the instruction are columns of the weights. It
// multiplies 32 of k in the time of 16, with half of the weights' bytes and a word a thread for both products of a
// step, which says where the elements were. (Steps come in pairs: a word is read when its product begins, so that those of
// two steps that are under way stand in registers of their own.) Persistent blocks, a ring of stages and the epilogues are
// gemm_hopper.cuh's; a stage is 64 of k. Holes as there with kSwapped, and
//
//   static void multiply(f32 (&d)[BN / 2], u64 values, u64 rows, u32 places, u32 add);   64 of k
//
// An element of A that meets a zero of B which is left out is not read as a factor: where it is infinite or NaN, the
// sum does not become NaN.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM_SPARSE
#define LATHE_DEVICE_GEMM_SPARSE
#ifndef LATHE_EMULATE

/// A tile has BM columns of the weights x BN rows. PAIR: 2 where the blocks of a cluster have tiles one beside the
/// other along the weights' columns, and each loads half of the rows for both.
/// STREAM_K: as in gemm_streamk.cuh.
template <int BM_, int BN_, int STAGES_, bool PINGPONG_, class H, bool STREAM_K_ = false, int PAIR_ = 1> struct SparseTile {
  static constexpr int BM = BM_, BN = BN_, OUT = BN, STAGES = STAGES_, BK = 64; // of a step; steps come in pairs
  static constexpr bool PINGPONG = PINGPONG_, STREAM_K = STREAM_K_, B_ALONG = true, HALVES = false;
  static constexpr u32 PAIR = PAIR_;
  static constexpr int MI = PINGPONG ? BM / 64 : BM / 128; // products of 64 columns by a group
  static constexpr int B_WIDE = 64;
  // Of a stage; of 64 columns of the weights VALUES and PLACES.
  static constexpr u32 VALUES = 4096, PLACES = 512, A_BYTES = BM / 64 * VALUES, B_BYTES = BN * 128;
  static constexpr u32 E_BYTES = BM / 64 * PLACES, LOADED = A_BYTES + B_BYTES + E_BYTES;
  // Rows of results that are stored together: of wide tiles few, so that there is room for another stage.
  static constexpr int STAGED = OUT % 64 == 0 && OUT < 256 ? 64 : OUT % 48 == 0 ? 48 : OUT % 32 == 0 ? 32 : 16;
  static constexpr u32 C_BYTES = 64 * STAGED * 2;
  static constexpr u32 B_AT = STAGES * A_BYTES, C_AT = B_AT + STAGES * B_BYTES, E_AT = C_AT + 4 * C_BYTES;
  static constexpr u32 BARRIERS_AT = E_AT + STAGES * E_BYTES;
  /// A barrier for each stage that is full or empty, and for each buffer; 1024: where the swizzle of B and C begins.
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + 16 * STAGES + 4 * 8 + 1024;
  static constexpr int SUMS = MI * BN / 2;
  static constexpr int LOADER_REGISTERS = SUMS > 160 ? 24 : 40, REGISTERS = SUMS > 160 ? 240 : 232;
  static_assert(BM % (PINGPONG ? 64 : 128) == 0 && BM <= 256 && BN % 16 == 0 && BN <= 256, "tile shape");
  static_assert(PAIR == 1 || (!STREAM_K && BN % (8 * PAIR) == 0), "pairs of blocks");
  static_assert(H::kSwapped && H::kStaged && sizeof(typename H::Element) == 2, "16 bits, stored by TMA");
};

/// Core matrices of 8 columns by 16 bytes, one behind the other along k, those of the next 8 columns 512 bytes on. 32 bytes
/// of k more: + 16.
LATHE_DEV u64 wgmmaCores(SharedAddr tile) {
  return (u64)((tile & 0x3ffff) >> 4) | (u64)(128 >> 4) << 16 | (u64)(512 >> 4) << 32;
}

/// What a block has in a stage of the weights: the elements, and where they were. `panels`: of 16 columns; their words
/// lie behind the elements, which take eight times as many bytes.
template <class Tile>
LATHE_DEV void loadSparse(const TensorMap &values, const TensorMap &places, SharedAddr base, u32 slot, SharedAddr bar,
                          TilePlace t, u32 step, u32 panels) {
  barrierExpect(bar, Tile::LOADED);
  tensorLoad(base + slot * Tile::A_BYTES, values, bar, 0, step, t.m / 16);
  tensorLoad(base + Tile::E_AT + slot * Tile::E_BYTES, places, bar, 0, step, 8 * panels + t.m / 16);
}

/// By one thread: fills the ring with the stages of all tiles of this block.
template <class Tile, class H>
LATHE_DEV void loadSparseTiles(const H &h, const TensorMap &values, const TensorMap &places, const TensorMap &rows,
                               SharedAddr base, u32 tiles, u32 tilesM, u32 tilesN, u32 steps, u32 columns) { // steps: pairs
  constexpr u32 STAGES = Tile::STAGES;
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, toB = base + Tile::B_AT;
  const u32 panels = (columns + 15) / 16;
  u32 slot = 0, parity = 1; // waiting for a slot that was never used passes at once
  u32 early = 0;            // stages of the first tile whose weights are under way
  Share s;
  if constexpr (H::kProgrammatic)
    if (shareOf<Tile>(0, tiles, steps, s)) {
      const TilePlace t = placeOfBlock<Tile>(s.tile, tilesM, tilesN);
      for (; early < STAGES && early < 2 * (s.end - s.begin); ++early)
        loadSparse<Tile>(values, places, base, early, full + 8 * early, t, 2 * s.begin + early, panels);
    }
  dependenciesWait();
  for (u32 index = 0; shareOf<Tile>(index, tiles, steps, s); ++index) {
    const TilePlace t = placeOfBlock<Tile>(s.tile, tilesM, tilesN);
    for (u32 step = 2 * s.begin; step < 2 * s.end; ++step) {
      barrierSleep(empty + 8 * slot, parity);
      if (index > 0 || step >= 2 * s.begin + early)
        loadSparse<Tile>(values, places, base, slot, full + 8 * slot, t, step, panels);
      loadStageB<Tile, Tile::PAIR>(h, toB + slot * Tile::B_BYTES, rows, full + 8 * slot, t, step, columns);
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
    }
  }
  if constexpr (H::kLate) dependentsMayStart();
}

/// Keeps what products that are under way read in its registers: their words are read when they begin, not when they are
/// issued, and nothing tells the compiler.
template <u32 MI> LATHE_DEV void keepRegisters(const u32 (&places)[MI]) {
#pragma unroll
  for (u32 i = 0; i < MI; ++i) asm volatile("" ::"r"(places[i]) : "memory");
}

/// By a group: `count` pairs of steps of the ring, whose first step is `before`. Its columns are the tile's from `first` on.
template <class Tile, class H>
LATHE_DEV void multiplySparse(typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], SharedAddr base, u32 first, u32 before,
                              u32 count, u32 next) {
  constexpr u32 STAGES = Tile::STAGES, MI = Tile::MI;
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES;
  const SharedAddr mine = base + first / 64 * Tile::VALUES;
  const SharedAddr words = base + Tile::E_AT + first / 64 * Tile::PLACES + threadIdx.x % 128 * 4;
  u32 slot = before % STAGES, parity = before / STAGES & 1, last = 0, pair = 0;
  auto multiply = [&](u32 (&places)[MI], u32 add) {
    barrierSleep(full + 8 * slot, parity);
    const u64 a = wgmmaCores(mine + slot * Tile::A_BYTES), b = wgmmaAlongK(base + Tile::B_AT + slot * Tile::B_BYTES);
#pragma unroll
    for (u32 i = 0; i < MI; ++i) places[i] = loadShared4(words + slot * Tile::E_BYTES + i * Tile::PLACES);
    wgmmaFence();
#pragma unroll
    for (u32 i = 0; i < MI; ++i) H::multiply(acc[i], a + i * (Tile::VALUES >> 4), b, places[i], add);
    wgmmaCommit();
  };
  // The products of the step before are done: its slot is free, and so are its words.
  auto release = [&](const u32 (&places)[MI]) {
    wgmmaWait<1>();
    keepRegisters(places);
    slotIsFree<Tile>(empty + 8 * last);
  };
  auto advance = [&] {
    last = slot;
    if (++slot == STAGES) { slot = 0; parity ^= 1; }
  };
  u32 even[MI], odd[MI] = {};
  do {
    multiply(even, (u32)(pair > 0));
    if (pair > 0) release(odd);
    advance();
    multiply(odd, 1u);
    release(even);
    advance();
  } while (++pair < count);
  if (Tile::PINGPONG) namedBarrierArrive(next, 256);
  wgmmaWait<0>();
  keepRegisters(odd);
  slotIsFree<Tile>(empty + 8 * last);
}

/// Maps: values and words of the weights, A, C, what comes to C at its own places.
template <class Tile, class H>
LATHE_DEV void gemmSparse(const H &h, const TensorMap &values, const TensorMap &places, const TensorMap &rows,
                          const TensorMap &mapC, const TensorMap &mapD, i64 M64, i64 N64, i64 K64) {
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u; // the swizzle counts from there
  const SharedAddr arrived = base + Tile::BARRIERS_AT + 16 * Tile::STAGES;
  const u32 M = (u32)M64, N = (u32)N64, K = (u32)K64, group = threadIdx.x / 128;
  const u32 tilesM = (N + Tile::BM - 1) / Tile::BM, tilesN = (M + Tile::BN - 1) / Tile::BN;
  const u32 tiles = (tilesM + Tile::PAIR - 1) / Tile::PAIR * tilesN, steps = (K + 2 * Tile::BK - 1) / (2 * Tile::BK);
  if (threadIdx.x == 0) tensorMapPrefetch(places);
  startRing<Tile, H>(values, rows, mapC, mapD, base);

  if (group == 0) {
    registersLower<Tile::LOADER_REGISTERS>();
    if (threadIdx.x == 0) loadSparseTiles<Tile>(h, values, places, rows, base, tiles, tilesM, tilesN, steps, N);
  } else {
    registersRaise<Tile::REGISTERS>();
    const u32 me = group - 1, first = Tile::PINGPONG ? 0 : me * (Tile::BM / 2);
    Staging staging{base + Tile::C_AT + me * 2 * Tile::C_BYTES, arrived + me * 16, me, 0};
    typename H::Acc acc[Tile::MI][Tile::BN / 2];
    // The order barriers (4 and 5) let one group at a time multiply, as in gemmWgmma.
    if (Tile::PINGPONG && me == 1) namedBarrierArrive(4, 256);
    Share s;
    u32 before = 0;
    for (u32 index = 0; shareOf<Tile>(index, tiles, steps, s); before += 2 * (s.end - s.begin), ++index) {
      if (Tile::PINGPONG && (index & 1) != me) continue;
      TilePlace t = placeOfBlock<Tile>(s.tile, tilesM, tilesN);
      t.m += first;
      const bool gives = Tile::STREAM_K && s.end < steps;
      if constexpr (H::kBeside)
        if (threadIdx.x % 128 == 0 && !gives) {
          dependenciesWait();
          loadFirstBeside<Tile, H>(mapD, staging, t);
        }
      if (Tile::PINGPONG) namedBarrierSync(4 + me, 256);
      multiplySparse<Tile, H>(acc, base, first, before, s.end - s.begin, 4 + (me ^ 1));
      dependenciesWait(); // over long since, but by this thread, which may read what they wrote
      if constexpr (Tile::STREAM_K) {
        if (gives) givePart<Tile>(h, acc, me);
        else if (s.begin > 0) takeParts<Tile>(h, acc, s, tiles, steps, me);
      }
      if (!gives) storeSwapped<Tile>(h, mapC, mapD, acc, t, N, M, staging);
    }
    if (threadIdx.x % 128 == 0) storeWaitAll();
  }
  if constexpr (Tile::PAIR > 1) { // the other block may still write here
    __syncwarp();
    clusterSync();
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_GEMM_SPARSE
