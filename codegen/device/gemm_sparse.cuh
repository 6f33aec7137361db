//===- gemm_sparse.cuh - products with 2:4 sparse weights on sm_90a ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_hopper
//
// C[m,n] = sum over k of A[m,k] * B[k,n] for 2:4 sparse weights B: of four neighbours along k at most two are not zero.
// B is packed as `sparse24` (lathe/support/Packing.h). wgmma.sp takes the sparse operand first, so C is computed
// transposed, as with kSwapped of gemm_hopper.cuh: the instruction's rows are columns of the weights. One instruction
// covers twice the k of a dense one in the same time. It reads half of the weights' bytes, and from each thread a word
// of metadata that says which elements were kept: one word for both products of a step, or one for each product where
// elements have 8 bits. Steps are unrolled in pairs: a word stays in its register until its product has ended, and
// two steps are in flight. Persistent blocks, the ring of stages and the epilogues are gemm_hopper.cuh's; a stage is
// 128 bytes of k. Holes as there with kSwapped, and
//
//   static void multiply(Acc (&d)[BN / 2], u64 values, u64 rows, const u32 (&places)[WORDS], u32 add);   a step
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
/// STREAM_K: as in gemm_streamk.cuh. PROMOTED: 8-bit floats, whose sums tensor cores keep with about 14 bits; what a pair of
/// steps gives, 128 of k that are not left out, is added up in f32 registers, as in gemm_promoted.cuh.
template <int BM_, int BN_, int STAGES_, bool PINGPONG_, class H, bool STREAM_K_ = false, int PAIR_ = 1, bool PROMOTED_ = false>
struct SparseTile {
  static constexpr int BM = BM_, BN = BN_, OUT = BN, STAGES = STAGES_, BK = 128 / sizeof(typename H::Element); // of a step
  static constexpr bool PINGPONG = PINGPONG_, STREAM_K = STREAM_K_, B_ALONG = true, HALVES = false, PROMOTED = PROMOTED_;
  static constexpr u32 PAIR = PAIR_;
  static constexpr int MI = PINGPONG ? BM / 64 : BM / 128; // products of 64 columns by a group
  static constexpr int B_WIDE = 64;
  // Of a stage; of 64 columns of the weights VALUES and PLACES.
  static constexpr int WORDS = 2 / sizeof(typename H::Element); // of a thread and a step
  static constexpr u32 VALUES = 4096, PLACES = 512 * WORDS, A_BYTES = BM / 64 * VALUES, B_BYTES = BN * 128;
  static constexpr u32 E_BYTES = BM / 64 * PLACES, LOADED = A_BYTES + B_BYTES + E_BYTES;
  // Rows of results that are stored together: of wide tiles few, so that there is room for another stage.
  static constexpr int STAGED = OUT % 64 == 0 && OUT < 256 ? 64 : OUT % 48 == 0 ? 48 : OUT % 32 == 0 ? 32 : 16;
  static constexpr u32 C_BYTES = 64 * STAGED * 2;
  static constexpr u32 B_AT = STAGES * A_BYTES, C_AT = B_AT + STAGES * B_BYTES, E_AT = C_AT + 4 * C_BYTES;
  static constexpr u32 BARRIERS_AT = E_AT + STAGES * E_BYTES;
  /// A barrier for each stage that is full or empty, and for each buffer; 1024: where the swizzle of B and C begins.
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + 16 * STAGES + 4 * 8 + 1024;
  static constexpr int SUMS = MI * BN / 2 * (PROMOTED ? 2 : 1);
  static constexpr int LOADER_REGISTERS = SUMS > 160 ? 24 : 40, REGISTERS = SUMS > 160 ? 240 : 232;
  static_assert(BM % (PINGPONG ? 64 : 128) == 0 && BM <= 256 && BN % 16 == 0 && BN <= 256, "tile shape");
  static_assert(PAIR == 1 || (!STREAM_K && BN % (8 * PAIR) == 0), "pairs of blocks");
  static_assert(!PROMOTED || (!PINGPONG && !STREAM_K), "groups take turns at one tile");
  static_assert(H::kSwapped && H::kStaged && sizeof(typename H::Element) <= 2, "8 or 16 bits, stored by TMA");
};

/// Core matrices of 8 columns by 16 bytes, one behind the other along k, those of the next 8 columns 512 bytes on. 32 bytes
/// of k more: + 16.
LATHE_DEV u64 wgmmaCores(SharedAddr tile) {
  return (u64)((tile & 0x3ffff) >> 4) | (u64)(128 >> 4) << 16 | (u64)(512 >> 4) << 32;
}

/// What a block has in a stage of the weights: the elements, and where they were. `panels`: of 16 columns; their words
/// lie behind the elements, which take so many times as many bytes.
template <class Tile>
LATHE_DEV void loadSparse(const TensorMap &values, const TensorMap &places, SharedAddr base, u32 slot, SharedAddr bar,
                          TilePlace t, u32 step, u32 panels) {
  barrierExpect(bar, Tile::LOADED);
  tensorLoad(base + slot * Tile::A_BYTES, values, bar, 0, step, t.m / 16);
  tensorLoad(base + Tile::E_AT + slot * Tile::E_BYTES, places, bar, 0, step, Tile::VALUES / Tile::PLACES * panels + t.m / 16);
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
template <u32 MI, u32 WORDS> LATHE_DEV void keepRegisters(const u32 (&places)[MI][WORDS]) {
#pragma unroll
  for (u32 i = 0; i < MI * WORDS; ++i) asm volatile("" ::"r"(places[i / WORDS][i % WORDS]) : "memory");
}

/// The ring as a group reads it, whose columns are the tile's from `first` on. Words of the steps that are under way are the
/// caller's, two sets by turns.
template <class Tile, class H> struct SparseSteps {
  static constexpr u32 STAGES = Tile::STAGES, MI = Tile::MI, WORDS = Tile::WORDS;
  const SharedAddr base, empty, mine, words;
  u32 slot, parity, last = 0;

  LATHE_METHOD SparseSteps(SharedAddr base, u32 first, u32 before)
      : base(base), empty(base + Tile::BARRIERS_AT + 8 * STAGES), mine(base + first / 64 * Tile::VALUES),
        words(base + Tile::E_AT + first / 64 * Tile::PLACES + threadIdx.x % 128 * 4 * WORDS), slot(before % STAGES),
        parity(before / STAGES & 1) {}
  /// Begins the products of the next step.
  LATHE_METHOD void multiply(typename H::Acc (&acc)[MI][Tile::BN / 2], u32 (&places)[MI][WORDS], u32 add) {
    barrierSleep(base + Tile::BARRIERS_AT + 8 * slot, parity);
    const u64 a = wgmmaCores(mine + slot * Tile::A_BYTES), b = wgmmaAlongK(base + Tile::B_AT + slot * Tile::B_BYTES);
#pragma unroll
    for (u32 i = 0; i < MI; ++i) {
      const SharedAddr at = words + slot * Tile::E_BYTES + i * Tile::PLACES;
      if constexpr (WORDS == 1) {
        places[i][0] = loadShared4(at);
      } else {
        const Vec<f32, 2> both = loadShared8(at);
        places[i][0] = bitCast<u32>(both.v[0]);
        places[i][1] = bitCast<u32>(both.v[1]);
      }
    }
    wgmmaFence();
#pragma unroll
    for (u32 i = 0; i < MI; ++i) H::multiply(acc[i], a + i * (Tile::VALUES >> 4), b, places[i], add);
    wgmmaCommit();
  }
  /// All products are done but those of the N steps begun last: the slot of the step before them is free, and so are its words.
  template <int N> LATHE_METHOD void release(const u32 (&places)[MI][WORDS]) {
    wgmmaWait<N>();
    keepRegisters(places);
    slotIsFree<Tile>(empty + 8 * last);
  }
  LATHE_METHOD void advance() {
    last = slot;
    if (++slot == STAGES) { slot = 0; parity ^= 1; }
  }
};

/// By a group: `count` pairs of steps of the ring, whose first step is `before`.
template <class Tile, class H>
LATHE_DEV void multiplySparse(typename H::Acc (&acc)[Tile::MI][Tile::BN / 2], SharedAddr base, u32 first, u32 before,
                              u32 count, u32 next) {
  SparseSteps<Tile, H> steps(base, first, before);
  u32 even[Tile::MI][Tile::WORDS], odd[Tile::MI][Tile::WORDS] = {}, pair = 0;
  do {
    steps.multiply(acc, even, (u32)(pair > 0));
    if (pair > 0) steps.template release<1>(odd);
    steps.advance();
    steps.multiply(acc, odd, 1u);
    steps.template release<1>(even);
    steps.advance();
  } while (++pair < count);
  if (Tile::PINGPONG) namedBarrierArrive(next, 256);
  steps.template release<0>(odd);
}

/// The same with the sums of each pair of steps added up in registers. Groups take turns (barriers 4 and 5): one adds while
/// the other multiplies.
template <class Tile, class H>
LATHE_DEV void multiplyPromoted(f32 (&sums)[Tile::MI][Tile::BN / 2], SharedAddr base, u32 first, u32 before, u32 count, u32 me) {
  SparseSteps<Tile, H> steps(base, first, before);
  u32 even[Tile::MI][Tile::WORDS], odd[Tile::MI][Tile::WORDS], pair = 0;
  f32 part[Tile::MI][Tile::BN / 2];
#pragma unroll
  for (int i = 0; i < Tile::MI * Tile::BN / 2; ++i) sums[i / (Tile::BN / 2)][i % (Tile::BN / 2)] = 0.0f;
  do {
    namedBarrierSync(4 + me, 256);
    steps.multiply(part, even, 0u);
    steps.advance();
    steps.multiply(part, odd, 1u);
    steps.template release<1>(even);
    steps.advance();
    namedBarrierArrive(4 + (me ^ 1), 256);
    steps.template release<0>(odd);
#pragma unroll
    for (int i = 0; i < Tile::MI; ++i)
#pragma unroll
      for (int j = 0; j < Tile::BN / 2; ++j) sums[i][j] += part[i][j];
  } while (++pair < count);
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
    if ((Tile::PINGPONG || Tile::PROMOTED) && me == 1) namedBarrierArrive(4, 256);
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
      if constexpr (Tile::PROMOTED) multiplyPromoted<Tile, H>(acc, base, first, before, s.end - s.begin, me);
      else multiplySparse<Tile, H>(acc, base, first, before, s.end - s.begin, 4 + (me ^ 1));
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
