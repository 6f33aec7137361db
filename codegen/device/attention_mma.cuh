//===- attention_mma.cuh - attention by mma.sync -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, mma, attention_tile
//
// Online softmax on the tensor cores of sm_80 and later, 16-bit operands of any head size up
// to 256. A warp has 16 queries, a block 16 WARPS; keys come in tiles of KEYS. Values are copied
// while scores are made, the next keys while values are summed. Holes: attention_tile.cuh.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_MMA
#define LATHE_DEVICE_ATTENTION_MMA

template <int WARPS_, int KEYS_, int HEAD_QK, int HEAD_V> struct AttentionMmaTile {
  static constexpr int WARPS = WARPS_, KEYS = KEYS_, QUERIES = 16 * WARPS, THREADS = 32 * WARPS;
  static constexpr int DQ = roundedUp(HEAD_QK, 16), DV = roundedUp(HEAD_V, 16);
  typedef SwizzledTile<powerFrom(DQ)> LayoutQK;
  typedef SwizzledTile<powerFrom(DV)> LayoutV;
  static constexpr int Q_BYTES = QUERIES * powerFrom(DQ) * 2, K_BYTES = KEYS * powerFrom(DQ) * 2;
  static constexpr int V_BYTES = KEYS * powerFrom(DV) * 2, SHARED_BYTES = Q_BYTES + K_BYTES + V_BYTES;
};

/// Starts the copy of ROWS rows of HEAD elements, padded with zeros to WIDTH columns and behind
/// `rows`: `row(i)` is where row i begins, `element(i, d)` computes what does not lie in memory.
template <class T, class Layout, int ROWS, int HEAD, int WIDTH, int THREADS, bool IN_MEMORY, class Row, class Element>
LATHE_DEV void copyRows(u8 *to, i64 rows, Row row, Element element) {
  constexpr int PIECES = ROWS * WIDTH / 8, EACH = (PIECES + THREADS - 1) / THREADS;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int p = i * THREADS + threadIdx.x, r = p / (WIDTH / 8), d = p % (WIDTH / 8) * 8;
    if (PIECES % THREADS && p >= PIECES) break;
    if constexpr (IN_MEMORY) {
      const bool inside = r < rows && d < HEAD;
      cpAsync16(sharedAddr(to) + Layout::offset(r, d), row(inside ? r : 0) + (inside ? d : 0), inside ? 16 : 0);
    } else {
      Vec<T, 8> v;
#pragma unroll
      for (int e = 0; e < 8; ++e) v.v[e] = r < rows && d + e < HEAD ? element(r, d + e) : T{};
      *(Vec<T, 8> *)(to + Layout::offset(r, d)) = v;
    }
  }
}

/// The grid is ceil(queries / Tile::QUERIES), heads, batch.
template <class Tile, class H> LATHE_DEV void attentionMma(const H &h, i64 queries, i64 keys) {
  typedef typename H::Element T;
  typedef typename Tile::LayoutQK LayoutQK;
  typedef typename Tile::LayoutV LayoutV;
  constexpr int DQ = Tile::DQ, DV = Tile::DV, KEYS = Tile::KEYS, THREADS = Tile::THREADS;
  constexpr bool HELD = DQ <= 128; // queries stay in registers
  LATHE_DYNAMIC_SHARED(shared);
  u8 *const sharedQ = shared, *const sharedK = shared + Tile::Q_BYTES, *const sharedV = sharedK + Tile::K_BYTES;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 b = blockIdx.z, head = blockIdx.y;
  // Where later queries see more keys, they begin first.
  const i64 tile = H::kCausal ? gridDim.x - 1 - blockIdx.x : blockIdx.x, q0 = tile * Tile::QUERIES;
  const AttentionPlace at{(i32)b, (i32)head, (i32)q0 + warp * 16 + lane / 4, (i32)queries};
  const i64 end = minIndex(keys, h.keyEnd(b, head, minIndex(q0 + Tile::QUERIES, queries) - 1));
  const i64 full = minIndex(keys, h.keyEnd(b, head, q0)); // keys that all queries of the block see

  auto loadKeys = [&](i64 k0) {
    copyRows<T, LayoutQK, KEYS, H::kHeadQK, DQ, THREADS, H::kRowsK>(
        sharedK, keys - k0, [&](int i) { return h.rowK(b, head, k0 + i); },
        [&](int i, int d) { return h.elementK(b, head, k0 + i, d); });
  };
  auto loadValues = [&](i64 k0) {
    copyRows<T, LayoutV, KEYS, H::kHeadV, DV, THREADS, H::kRowsV>(
        sharedV, keys - k0, [&](int i) { return h.rowV(b, head, k0 + i); },
        [&](int i, int d) { return h.elementV(b, head, k0 + i, d); });
  };
  auto fragmentQ = [&](u32 (&a)[4], int k) {
    loadMatrix4(a, sharedAddr(sharedQ) + LayoutQK::offset(warp * 16 + (lane & 15), k + (lane >> 4) * 8));
  };
  copyRows<T, LayoutQK, Tile::QUERIES, H::kHeadQK, DQ, THREADS, H::kRowsQ>(
      sharedQ, queries - q0, [&](int i) { return h.rowQ(b, head, q0 + i); },
      [&](int i, int d) { return h.elementQ(b, head, q0 + i, d); });
  if (end > 0) loadKeys(0);
  cpAsyncCommit();

  SoftmaxState state = softmaxStart(h, at);
  const f32 factor = scoreFactor<H>();
  f32 o[DV / 2];
#pragma unroll
  for (int i = 0; i < DV / 2; ++i) o[i] = 0.0f;
  u32 heldQ[HELD ? DQ / 16 : 1][4];
#pragma unroll 1
  for (i64 k0 = 0; k0 < end; k0 += KEYS) {
    cpAsyncWait<0>();
    __syncthreads(); // keys are there, and nobody reads the values before any more
    loadValues(k0);
    cpAsyncCommit();
    if (HELD && k0 == 0)
#pragma unroll
      for (int k = 0; k < DQ; k += 16) fragmentQ(heldQ[HELD ? k / 16 : 0], k);
    f32 s[KEYS / 2];
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) s[i] = 0.0f;
#pragma unroll(HELD ? DQ / 16 : 2)
    for (int k = 0; k < DQ; k += 16) {
      u32 a[4];
      if (!HELD) fragmentQ(a, k);
#pragma unroll
      for (int j = 0; j < KEYS; j += 16) {
        u32 two[4];
        loadMatrix4(two, sharedAddr(sharedK) + LayoutQK::offset(j + (lane & 7) + (lane >> 4) * 8, k + ((lane >> 3) & 1) * 8));
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const u32 pair[2] = {two[2 * n], two[2 * n + 1]};
          mma(*(f32(*)[4])(s + j / 2 + 4 * n), HELD ? heldQ[HELD ? k / 16 : 0] : a, pair, T{});
        }
      }
    }
    keepScores(h, at, s, (i32)k0, (i32)keys, k0 + KEYS <= full, false);
    f32 keep[2];
    softmaxStep<0, !KeepsProducts<H>::value>(state, s, factor, keep);
    u32 p[KEYS / 16][4];
    packWeights<T>(s, p);
#pragma unroll
    for (int i = 0; i < DV / 2; ++i) o[i] *= keep[i >> 1 & 1];
    cpAsyncWait<0>();
    __syncthreads(); // values are there, and nobody reads the keys any more
    if (k0 + KEYS < end) loadKeys(k0 + KEYS);
    cpAsyncCommit();
#pragma unroll
    for (int k = 0; k < KEYS; k += 16)
#pragma unroll
      for (int d = 0; d < DV; d += 16) {
        u32 two[4];
        loadMatrix4Transposed(two, sharedAddr(sharedV) + LayoutV::offset(k + (lane & 7) + ((lane >> 3) & 1) * 8, d + (lane >> 4) * 8));
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const u32 pair[2] = {two[2 * n], two[2 * n + 1]};
          mma(*(f32(*)[4])(o + d / 2 + 4 * n), p[k / 16], pair, T{});
        }
      }
  }
  cpAsyncWait<0>();
  f32 inverse[2];
  softmaxEnd<H>(state, inverse);
  storeLogSums(h, at, state);
  storeResults(h, at, o, inverse);
}

#endif // LATHE_DEVICE_ATTENTION_MMA
