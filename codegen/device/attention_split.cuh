//===- attention_split.cuh - few queries over many keys ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, mma, hopper, attention_tile, attention_codes
//
// Decoding: one to a few query tokens, 16-bit operands. The time is that of reading keys and values,
// which are read once for all query heads that share them (grouped-query attention). Each warp copies
// sixteen keys and their values at a time into a ring of its own in shared memory, as far ahead as the
// ring is long. The queries of a key head, at most 8 TILES, are the columns of two transposed products:
//
//   S'[16 keys x 8] = K Q'
//   O'[16 x 8] += V' P'       P' is transposed by movmatrix
//
// Keys are split among the warps of a block and the blocks of a cluster. A block adds the parts of
// its warps and sends each block of the cluster its share of the columns, which that block adds in
// order of rank. Sixteen keys are contiguous, so that keys and values may lie in pages of sixteen
// tokens. Keys and values may be codes with a scale a row (attention_codes.cuh): keys' scales come to the scores,
// values' to the weights. Holes:
// attention_tile.cuh and
//
//   static constexpr int kGroup;       query heads of a key head
//   const Element *sixteenK(i64 b, i64 h, i64 n);   the keys from 16 n on, h the query head
//   i64 strideK();                     elements from one of them to the next; the same of V
//   static constexpr int kCodeBits;    16, or 8 or 4: keys and values are codes, sixteenK and sixteenV give const u8 *,
//   const f32 *scalesK(i64 b, i64 h, i64 n);   and sixteen scales lie together; the same of V
//   static constexpr bool kEarly;      no kernel ahead in the run writes keys, values or what says how many
//   static constexpr bool kPaged;      where they lie is read from memory: each lane looks up one of the
//                                      next 32 of its warp
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_SPLIT
#define LATHE_DEVICE_ATTENTION_SPLIT

template <int WARPS_, int CLUSTER_, int TILES_, int STAGES_, int HEAD_QK, int HEAD_V, int BITS = 16> struct AttentionSplitTile {
  static constexpr int WARPS = WARPS_, CLUSTER = CLUSTER_, TILES = TILES_, STAGES = STAGES_, COLUMNS = 8 * TILES;
  static constexpr int DQ = roundedUp(HEAD_QK, 16), DV = roundedUp(HEAD_V, 16);
  typedef SwizzledTile<powerFrom(DQ)> LayoutQK;
  typedef SwizzledTile<powerFrom(DV)> LayoutV;
  static constexpr int K_BYTES = BITS == 16 ? 16 * powerFrom(DQ) * 2 : 2 * HEAD_QK * BITS;
  static constexpr int V_BYTES = BITS == 16 ? 16 * powerFrom(DV) * 2 : 2 * HEAD_V * BITS;
  static constexpr int STEP_BYTES = K_BYTES + V_BYTES + (BITS == 16 ? 0 : 128); // codes: behind them the scales
  static constexpr int STRIDE = DV + 4; // f32 of a column of results, padded against bank conflicts
  static constexpr int PART = COLUMNS * STRIDE + 2 * COLUMNS; // results, largest scores, sums
  /// A warp's ring, and later its part.
  static constexpr int WARP_BYTES = STAGES * STEP_BYTES > 4 * PART ? STAGES * STEP_BYTES : roundedUp(4 * PART, 128);
  /// Pieces of eight results that a block of the cluster finishes, and what another sends it: those,
  /// and of all columns the largest scores and sums.
  static constexpr int SHARE = (COLUMNS * (HEAD_V / 8) + CLUSTER - 1) / CLUSTER, SENT = SHARE * 8 + 2 * COLUMNS;
  static constexpr int SHARED_BYTES = WARPS * WARP_BYTES + (CLUSTER > 1 ? CLUSTER * SENT * 4 : 0);
};

/// Over the lanes that share a column of a transposed product.
LATHE_DEV f32 columnMax(f32 v) { v = fmaxf(v, shuffleXor(v, 4)); v = fmaxf(v, shuffleXor(v, 8)); return fmaxf(v, shuffleXor(v, 16)); }
LATHE_DEV f32 columnSum(f32 v) { v += shuffleXor(v, 4); v += shuffleXor(v, 8); return v + shuffleXor(v, 16); }

/// Where sixteen keys and values lie.
template <class T, int BITS> struct SplitRows { typedef CodedSixteen Type; };
template <class T> struct SplitRows<T, 16> { typedef struct Sixteen { const T *k, *v; } Type; };

/// The keys that the first query of a batch may see and those behind, sixteen a step: steps from .. steps - 1.
struct KeySteps {
  i64 end, from, steps; ///< end: of the keys
  template <class H> LATHE_METHOD KeySteps(const H &h, i64 b, i64 head, i64 queries, i64 keys)
      : end(maxIndex(minIndex(keys, h.keyEnd(b, head, queries - 1)), 0)) {
    steps = (end + 15) / 16;
    from = minIndex(h.keyBegin(b, head, 0) / 16, steps);
  }
};

/// Results, largest scores and sums that a warp leaves in its ring.
template <class Tile> struct SplitParts {
  static constexpr int NEXT = Tile::WARP_BYTES / 4, MOST = Tile::COLUMNS * Tile::STRIDE, TOTAL = MOST + Tile::COLUMNS;
  const f32 *parts;
  f32 factor;
  /// Of all warps, N results of a column.
  template <int N> LATHE_METHOD void join(int column, int d, f32 (&sum)[N], f32 &largest, f32 &all) const {
    joinParts<Tile::WARPS>(sum, largest, all, factor, [&](int p) { return parts[p * NEXT + MOST + column]; },
                           [&](int p) { return parts[p * NEXT + TOTAL + column]; },
                           [&](int p, int e) { return parts[p * NEXT + column * Tile::STRIDE + d + e]; });
  }
};

/// Eight results of a column, and the logarithm of its sum with the first ones.
template <class H> LATHE_DEV void finishPiece(const H &h, i64 b, i64 head0, int column, int d, const f32 (&sum)[8], f32 most, f32 all) {
  constexpr int G = H::kGroup;
  const f32 inverse = H::kZeroMasked && all == 0.0f ? 0.0f : 1.0f / all;
  Vec<f32, 8> out;
#pragma unroll
  for (int e = 0; e < 8; ++e) out.v[e] = sum[e] * inverse;
  h.store(b, head0 + column % G, column / G, d, convert<typename H::Element>(out));
  if (H::kLogSumExp && d == 0) h.storeLogSumExp(b, head0 + column % G, column / G, logSumExp<H>(most, all));
}

/// The warps' parts of a block over the steps begin .. stop - 1 of the first `end` keys, in their rings, which lie in `raw`;
/// all of them are there when it returns. `leads`: sinks count here. `ends`: kernels behind may start.
template <class Tile, class H>
LATHE_DEV void splitKeys(const H &h, u8 *raw, i64 b, i64 head0, i64 queries, i64 end, i64 begin, i64 stop, bool leads, bool ends) {
  typedef typename H::Element T;
  typedef typename Tile::LayoutQK LayoutQK;
  typedef typename Tile::LayoutV LayoutV;
  constexpr int DQ = Tile::DQ, DV = Tile::DV, TILES = Tile::TILES, WARPS = Tile::WARPS, STAGES = Tile::STAGES, G = H::kGroup;
  static_assert(H::kHeadQK % 8 == 0 && H::kHeadV % 8 == 0, "whole pieces of keys and values");
  constexpr int BITS = H::kCodeBits;
  typedef CodeRows<BITS == 16 ? 8 : BITS, BITS == 16 ? 32 : DQ> CodesK;
  typedef CodeRows<BITS == 16 ? 8 : BITS, BITS == 16 ? 32 : DV> CodesV;
  const f32 hidden = bitsToF32(0xff800000u), factor = scoreFactor<H>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const SharedAddr ring = sharedAddr(raw) + warp * Tile::WARP_BYTES;
  const int columns = (int)queries * G; // column = query * G + head of the group
  const int first = (int)begin + warp, last = (int)stop;

  const int tokens = (int)end;
  const i64 strideK = h.strideK(), strideV = h.strideV();
  typedef typename SplitRows<T, BITS>::Type Rows;
  auto lookUp = [&](int step) {
    Rows r{};
    if (step < last) {
      r.k = h.sixteenK(b, head0, step);
      r.v = h.sixteenV(b, head0, step);
      if constexpr (BITS < 16) {
        r.scaleK = h.scalesK(b, head0, step);
        r.scaleV = h.scalesV(b, head0, step);
      }
    }
    return r;
  };
  Rows found = H::kPaged ? lookUp(first + lane * WARPS) : Rows{};
  // Those of the warp's step number i.
  auto rowsOf = [&](int i) {
    if constexpr (H::kPaged) {
      if (i > 0 && i % 32 == 0) found = lookUp(first + (i + lane) * WARPS);
      u32 words[sizeof(Rows) / 4];
      memcpy(words, &found, sizeof found);
#pragma unroll
      for (int w = 0; w < (int)(sizeof(Rows) / 4); ++w) words[w] = shuffleFrom32(words[w], i % 32);
      Rows r;
      memcpy(&r, words, sizeof r);
      return r;
    } else {
      return lookUp(first + i * WARPS);
    }
  };
  auto copy = [&](const Rows &from, int step, SharedAddr to) {
    if (step < last) {
      if constexpr (BITS < 16) { // of keys that are not there, too
        CodesK::template copy<false>(to, from.k, strideK);
        CodesV::template copy<true>(to + Tile::K_BYTES, from.v, strideV);
        if (lane < 8)
          CodesK::copyPiece(to + Tile::K_BYTES + Tile::V_BYTES + lane * 16, (lane < 4 ? from.scaleK : from.scaleV) + lane % 4 * 4);
      } else {
        const int inside = tokens - step * 16; // what is not there is zero
        constexpr int PIECES_K = DQ / 8, PIECES_V = DV / 8;
#pragma unroll
        for (int i = 0; i < PIECES_K / 2; ++i) {
          const int p = i * 32 + lane, row = p / PIECES_K, d = p % PIECES_K * 8;
          const bool there = row < inside && (DQ == H::kHeadQK || d < H::kHeadQK);
          cpAsync16(to + LayoutQK::offset(row, d), from.k + (there ? row * strideK + d : 0), there ? 16 : 0);
        }
#pragma unroll
        for (int i = 0; i < PIECES_V / 2; ++i) {
          const int p = i * 32 + lane, row = p / PIECES_V, d = p % PIECES_V * 8;
          const bool there = row < inside && (DV == H::kHeadV || d < H::kHeadV);
          cpAsync16(to + Tile::K_BYTES + LayoutV::offset(row, d), from.v + (there ? row * strideV + d : 0), there ? 16 : 0);
        }
      }
    }
    cpAsyncCommit(); // one group a step, whatever it holds
  };
#pragma unroll
  for (int s = 0; s < STAGES; ++s) copy(rowsOf(s), first + s * WARPS, ring + s * Tile::STEP_BYTES);
  int ahead = STAGES; // number of the step of `next`
  Rows next = rowsOf(ahead);

  if constexpr (H::kEarly) dependenciesWait();
  u32 q[TILES][BITS < 16 ? 1 : DQ / 16][2];
  QueryBytes<CodesK, BITS < 16 ? DQ / 32 : 1> bytes[TILES];
  f32 unitQ[TILES][2]; // of columns 2 t and 2 t + 1
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
    const int column = n * 8 + g;
    auto element = [&](int d) { return h.elementQ(b, head0 + column % G, column / G, d); };
    if constexpr (BITS < 16) {
      const f32 unit = bytes[n].take(t, [&](int d) { return column < columns ? toF32(element(d)) : 0.0f; });
#pragma unroll
      for (int c = 0; c < 2; ++c) unitQ[n][c] = bitsToF32(shuffleFrom32(f32ToBits(unit), (2 * t + c) * 4));
    } else {
#pragma unroll
      for (int i = 0; i < DQ / 8; ++i) {
        const int d = 8 * i + 2 * t;
        u32 word = 0;
        if (column < columns && d < H::kHeadQK) {
          if constexpr (H::kRowsQ) {
            word = *(const u32 *)(h.rowQ(b, head0 + column % G, column / G) + d);
          } else {
            const Vec<T, 2> two{{element(d), element(d + 1)}};
            memcpy(&word, &two, 4);
          }
        }
        q[n][i / 2][i % 2] = word;
      }
    }
  }
  f32 o[TILES][DV / 16][4], most[TILES][2], total[TILES][2];
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
    most[n][0] = most[n][1] = hidden;
    total[n][0] = total[n][1] = 0.0f;
    if (H::kSink && warp == 0 && leads) // once for all parts
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int column = n * 8 + 2 * t + c;
        if (column >= columns) continue;
        most[n][c] = keptSink(h, b, head0 + column % G, column / G);
        total[n][c] = g == 0 ? 1.0f : 0.0f;
      }
#pragma unroll
    for (int m = 0; m < DV / 16; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[n][m][e] = 0.0f;
  }
  const u8 *const codes = (const u8 *)raw + warp * Tile::WARP_BYTES; // as `ring`
  u32 maskK = 0, maskV = 0;
  if constexpr (BITS < 16) {
    maskK = inRegister(CodesK::KEY_MASK);
    maskV = inRegister(CodesV::VALUE_MASK);
  }
  // Weights of codes are parts of twice the largest scale so far, so that they stay in the range of f16; their sums.
  f32 unit = 1.17549435e-38f, perUnit = 0x1p126f, weights[TILES][4];
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) weights[n][e] = 0.0f;
  // As long as scores are hardly larger than `most`, they are taken relative to it: sums are seldom scaled anew.
  const f32 slack = 6.0f / factor; // weights up to 2^6
  int slot = 0;
#pragma unroll 1
  for (int step = first; step < last; step += WARPS) {
    const i64 k0 = (i64)step * 16;
    const int inside = tokens - step * 16 - 1;
    const SharedAddr keysAt = ring + slot * Tile::STEP_BYTES, valuesAt = keysAt + Tile::K_BYTES;
    cpAsyncWait<STAGES - 1>();
    __syncwarp();
    f32 s[TILES][4], scaleV[2] = {1.0f, 1.0f}; // of the keys g and g + 8
    if constexpr (BITS < 16) {
      i32 high[TILES][4], low[TILES][4];
#pragma unroll
      for (int n = 0; n < TILES; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) high[n][e] = low[n][e] = 0;
      const u8 *const at = codes + slot * Tile::STEP_BYTES;
      CodesK::keys(at, g, t, maskK, [&](int i, const u32(&a)[4]) {
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
          mmaBytes(high[n], a, bytes[n].high[i]);
          mmaBytes(low[n], a, bytes[n].low[i]);
        }
      });
      const f32 *const scales = (const f32 *)(at + Tile::K_BYTES + Tile::V_BYTES) + g;
#pragma unroll
      for (int r = 0; r < 2; ++r) scaleV[r] = g + 8 * r <= inside ? scales[16 + 8 * r] : 0.0f; // others may be anything
#pragma unroll
      for (int n = 0; n < TILES; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] = (f32)(256 * high[n][e] + low[n][e]) * (scales[e / 2 * 8] * unitQ[n][e % 2]);
    } else {
      // In turn into two sums: half as long a chain of products, each of which waits for the one before.
      f32 odd[TILES][4];
#pragma unroll
      for (int n = 0; n < TILES; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] = odd[n][e] = 0.0f;
#pragma unroll
      for (int i = 0; i < DQ / 16; ++i) {
        u32 a[4];
        loadMatrix4(a, keysAt + LayoutQK::offset(lane & 15, 16 * i + (lane >> 4) * 8));
#pragma unroll
        for (int n = 0; n < TILES; ++n) mma(i % 2 ? odd[n] : s[n], a, q[n][i], T{});
      }
#pragma unroll
      for (int n = 0; n < TILES; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] += odd[n][e];
    }
    bool grows = BITS < 16 && fmaxf(scaleV[0], scaleV[1]) > unit;
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = n * 8 + 2 * t + (e & 1), row = g + (e >> 1) * 8;
        const i64 query = column / G, head = head0 + column % G, k = k0 + row;
        const bool seen = row <= inside && column < columns && (!H::kCausal || k < h.keyEnd(b, head, query));
        s[n][e] = seen ? oneScore(h, b, head, query, k, s[n][e]) : hidden;
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) grows = grows || fmaxf(s[n][c], s[n][c + 2]) > most[n][c] + slack;
    }
    if (warpBits(grows)) {
      f32 shrinks = 1.0f;
      if constexpr (BITS < 16) {
        const f32 largest = 2.0f * columnMax(fmaxf(scaleV[0], scaleV[1]));
        if (largest > unit) {
          perUnit = fastReciprocal(largest);
          shrinks = unit * perUnit;
          unit = largest;
        }
      }
#pragma unroll
      for (int n = 0; n < TILES; ++n) {
        f32 keep[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const f32 larger = fmaxf(most[n][c], columnMax(fmaxf(s[n][c], s[n][c + 2])));
          keep[c] = fastExp2((most[n][c] - (larger == hidden ? 0.0f : larger)) * factor);
          most[n][c] = larger;
          total[n][c] *= keep[c];
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) weights[n][e] *= keep[e & 1] * shrinks;
#pragma unroll
        for (int m = 0; m < DV / 16; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[n][m][e] *= keep[e & 1] * shrinks;
      }
    }
    scaleV[0] *= perUnit;
    scaleV[1] *= perUnit;
    u32 p[TILES][2];
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const f32 base = most[n][c] == hidden ? 0.0f : most[n][c];
        s[n][c] = fastExp2((s[n][c] - base) * factor);
        s[n][c + 2] = fastExp2((s[n][c + 2] - base) * factor);
        total[n][c] += s[n][c] + s[n][c + 2];
      }
#pragma unroll
      for (int r = 0; r < 2; ++r)
        p[n][r] = turnMatrix(BITS < 16 ? packPair<f16>(s[n][2 * r] * scaleV[r], s[n][2 * r + 1] * scaleV[r])
                                       : packPair<T>(s[n][2 * r], s[n][2 * r + 1]));
    }
    if constexpr (BITS < 16) {
      const u32 ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
#pragma unroll
      for (int n = 0; n < TILES; ++n) mmaF16(weights[n], ones, p[n]);
      CodesV::values(codes + slot * Tile::STEP_BYTES + Tile::K_BYTES, g, t, maskV, [&](int m, const u32(&a)[4]) {
#pragma unroll
        for (int n = 0; n < TILES; ++n) mmaF16(o[n][m], a, p[n]);
      });
    } else {
#pragma unroll
      for (int m = 0; m < DV / 16; ++m) {
        u32 a[4];
        loadMatrix4Transposed(a, valuesAt + LayoutV::offset((lane & 7) + (lane >> 4) * 8, 16 * m + (lane >> 3 & 1) * 8));
#pragma unroll
        for (int n = 0; n < TILES; ++n) mma(o[n][m], a, p[n], T{});
      }
    }
    __syncwarp();
    copy(next, step + STAGES * WARPS, keysAt);
    next = rowsOf(++ahead);
    if (++slot == STAGES) slot = 0;
  }
  cpAsyncWait<0>();
  __syncwarp();
  if (ends) dependentsMayStart();

  typedef SplitParts<Tile> Parts;
  f32 *const mine = (f32 *)raw + warp * Parts::NEXT;
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = n * 8 + 2 * t + c;
      const f32 sum = columnSum(total[n][c]);
      if (g == 0) {
        mine[Parts::MOST + column] = most[n][c];
        mine[Parts::TOTAL + column] = sum;
      }
#pragma unroll
      for (int m = 0; m < DV / 16; ++m) {
        const int d0 = BITS < 16 ? CodesV::valueElement(m, 0, g) : 16 * m + g, d1 = BITS < 16 ? CodesV::valueElement(m, 1, g) : d0 + 8;
        auto result = [&](int half) { // without the excess of values
          return BITS == 16 ? o[n][m][c + 2 * half]
                            : fmaf(o[n][m][c + 2 * half], CodesV::valueUnit(half), -CodesV::EXCESS * weights[n][c]) * unit;
        };
        mine[column * Tile::STRIDE + d0] = result(0);
        mine[column * Tile::STRIDE + d1] = result(1);
      }
    }
  __syncthreads();
}

/// The grid is CLUSTER, key heads, batch.
template <class Tile, class H> LATHE_DEV void attentionSplit(const H &h, i64 queries, i64 keys) {
  constexpr int G = H::kGroup, WARPS = Tile::WARPS, D = H::kHeadV;
  static_assert(D >= 2 * Tile::CLUSTER, "a thread of each column for each block that it tells its sums");
  LATHE_DYNAMIC_SHARED(raw);
  const i64 b = blockIdx.z, head0 = (i64)blockIdx.y * G;
  const int columns = (int)queries * G;
  if constexpr (!H::kEarly) dependenciesWait();
#ifndef LATHE_EMULATE
  if constexpr (Tile::CLUSTER > 1) clusterArrive(); // waited for before the first store to another block
#endif
  const KeySteps of(h, b, head0, queries, keys);
  const i64 seen = of.steps - of.from;
  splitKeys<Tile>(h, raw, b, head0, queries, of.end, of.from + seen * blockIdx.x / Tile::CLUSTER, of.from + seen * (blockIdx.x + 1) / Tile::CLUSTER,
                  blockIdx.x == 0, true);
  const SplitParts<Tile> parts{(const f32 *)raw, scoreFactor<H>()};
  f32 largest, all;
  if constexpr (Tile::CLUSTER == 1) {
    for (int i = threadIdx.x; i < columns * (D / 8); i += 32 * WARPS) {
      const int column = i / (D / 8), d = i % (D / 8) * 8;
      f32 sum[8];
      parts.join(column, d, sum, largest, all);
      finishPiece(h, b, head0, column, d, sum, largest, all);
    }
  }
#ifndef LATHE_EMULATE
  if constexpr (Tile::CLUSTER > 1) {
    // Two neighbours a thread, to the block that finishes their piece of eight.
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 rank = clusterRank();
    f32 *const inbox = (f32 *)(raw + WARPS * Tile::WARP_BYTES);
    const SharedAddr mineThere = sharedAddr(inbox) + rank * Tile::SENT * 4;
    clusterWait();
    for (int i = threadIdx.x; i < columns * (D / 2); i += 32 * WARPS) {
      const int column = i / (D / 2), d = i % (D / 2) * 2, piece = i / 4;
      f32 sum[2];
      parts.join(column, d, sum, largest, all);
      const SharedAddr to = mineThere + (piece / Tile::CLUSTER * 8 + d % 8) * 4;
      storeToCluster(to, piece % Tile::CLUSTER, sum[0]);
      storeToCluster(to + 4, piece % Tile::CLUSTER, sum[1]);
      if (d < 2 * Tile::CLUSTER) { // the first of a column tell everybody
        const SharedAddr at = mineThere + (Tile::SHARE * 8 + 2 * column) * 4;
        storeToCluster(at, d / 2, largest);
        storeToCluster(at + 4, d / 2, all);
      }
    }
    clusterSync();
    // An element a thread; eight lanes have a piece.
    const int pieces = columns * (D / 8), share = (pieces + Tile::CLUSTER - 1) / Tile::CLUSTER;
    for (int first = warp * 4; first < share; first += 4 * WARPS) {
      const int local = first + lane / 8, piece = local * Tile::CLUSTER + rank, column = piece / (D / 8);
      f32 sum[1] = {0.0f};
      all = 0.0f;
      if (piece < pieces)
        joinParts<Tile::CLUSTER>(sum, largest, all, parts.factor, [&](int p) { return inbox[p * Tile::SENT + Tile::SHARE * 8 + 2 * column]; },
                                 [&](int p) { return inbox[p * Tile::SENT + Tile::SHARE * 8 + 2 * column + 1]; },
                                 [&](int p, int) { return inbox[p * Tile::SENT + local * 8 + lane % 8]; });
      f32 eight[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) eight[e] = bitsToF32(shuffleFrom32(f32ToBits(sum[0]), (lane & 24) + e));
      if (piece < pieces && lane % 8 == 0) finishPiece(h, b, head0, column, piece % (D / 8) * 8, eight, largest, all);
    }
  }
#endif
}

#endif // LATHE_DEVICE_ATTENTION_SPLIT
