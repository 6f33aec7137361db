//===- attention.cuh - softmax(score(q k)) v in one pass --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce
//
// Online softmax over tiles of 32 keys: a lane has one key while scores are computed
// and HEAD / 32 columns of the result while values are summed. Sums and exponentials
// are f32. The holes map query heads to key heads:
//
//   f32 loadQ(i64 b, i64 h, i64 q, i64 d);          d < H::kHeadQK
//   f32 loadK(i64 b, i64 h, i64 k, i64 d);          h is the query head
//   f32 loadV(i64 b, i64 h, i64 k, i64 d);          d < H::kHeadV
//   f32 score(i64 b, i64 h, i64 q, i64 k, f32 dot); scale, mask, bias, soft cap; -inf: not seen
//   i64 keyEnd(i64 b, i64 h, i64 q);                keys from here on are not seen; grows with q
//   i64 keyBegin(i64 b, i64 h, i64 q);              keys before are not seen; grows with q
//   void store(i64 b, i64 h, i64 q, i64 d, f32 value);
//   static constexpr bool kZeroMasked;              a query that sees no key gives zeros;
//                                                   else NaN, as softmax of -inf does
//   static constexpr bool kSink;                    a score without a key takes part in the sum:
//   f32 sink(i64 b, i64 h, i64 q);
//   static constexpr bool kLogSumExp;               the logarithm of a row's sum of exponentials is a
//   void storeLogSumExp(i64 b, i64 h, i64 q, f32 value);   result too; -inf where nothing is seen
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION
#define LATHE_DEVICE_ATTENTION

/// QUERIES of a block (WARPS times those of a warp).
template <int WARPS_, int QUERIES_PER_WARP_> struct AttentionTile {
  static constexpr int WARPS = WARPS_, PER_WARP = QUERIES_PER_WARP_;
  static constexpr int QUERIES = WARPS * PER_WARP, THREADS = 32 * WARPS, KEYS = 32;
};

/// Bytes of dynamic shared memory: one tile of keys or values (they take turns),
/// the queries, the weights of a tile.
template <class Tile, int HEAD_QK, int HEAD_V> struct AttentionShared {
  static constexpr int COLUMNS = HEAD_QK > HEAD_V ? HEAD_QK : HEAD_V;
  static constexpr int KV_STRIDE = COLUMNS + 1; // odd: lanes of one column hit different banks
  static constexpr int KV = Tile::KEYS * KV_STRIDE, Q = Tile::QUERIES * HEAD_QK;
  static constexpr int P = Tile::QUERIES * Tile::KEYS;
  static constexpr int SHARED_BYTES = (2 * KV + Q + P) * 4;
};

/// The grid is ceil(queries / Tile::QUERIES), heads, batch.
template <class Tile, class H> LATHE_DEV void attentionSimt(const H &h, i64 queries, i64 keys) {
  constexpr int DQ = H::kHeadQK, DV = H::kHeadV, PER_WARP = Tile::PER_WARP, KEYS = Tile::KEYS;
  constexpr int COLS = (DV + 31) / 32; // result columns of a lane
  typedef AttentionShared<Tile, DQ, DV> Shared;
  LATHE_DYNAMIC_SHARED(raw);
  f32 *sharedK = (f32 *)raw, *sharedV = sharedK + Shared::KV, *sharedQ = sharedV + Shared::KV;
  f32 *weights = sharedQ + Shared::Q;
  const f32 infinity = bitsToF32(0x7f800000u);
  const i64 b = blockIdx.z, head = blockIdx.y, q0 = (i64)blockIdx.x * Tile::QUERIES;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, myQ = warp * PER_WARP;

  for (int e = threadIdx.x; e < Tile::QUERIES * DQ; e += Tile::THREADS) {
    i64 q = q0 + e / DQ;
    sharedQ[e] = q < queries ? h.loadQ(b, head, q, e % DQ) : 0.0f;
  }
  f32 largest[PER_WARP], total[PER_WARP], out[PER_WARP][COLS];
#pragma unroll
  for (int i = 0; i < PER_WARP; ++i) {
    const i64 q = minIndex(q0 + myQ + i, queries - 1);
    largest[i] = H::kSink ? h.sink(b, head, q) : -infinity;
    total[i] = H::kSink ? 1.0f : 0.0f;
#pragma unroll
    for (int c = 0; c < COLS; ++c) out[i][c] = 0.0f;
  }
  const i64 end = minIndex(keys, h.keyEnd(b, head, minIndex(q0 + Tile::QUERIES, queries) - 1));
#pragma unroll 1
  for (i64 k0 = 0; k0 < end; k0 += KEYS) {
    __syncthreads();
    for (int e = threadIdx.x; e < KEYS * DQ; e += Tile::THREADS)
      sharedK[e / DQ * Shared::KV_STRIDE + e % DQ] = k0 + e / DQ < end ? h.loadK(b, head, k0 + e / DQ, e % DQ) : 0.0f;
    for (int e = threadIdx.x; e < KEYS * DV; e += Tile::THREADS)
      sharedV[e / DV * Shared::KV_STRIDE + e % DV] = k0 + e / DV < end ? h.loadV(b, head, k0 + e / DV, e % DV) : 0.0f;
    __syncthreads();
    f32 dot[PER_WARP];
#pragma unroll
    for (int i = 0; i < PER_WARP; ++i) dot[i] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < DQ; ++d) {
      f32 kd = sharedK[lane * Shared::KV_STRIDE + d];
#pragma unroll
      for (int i = 0; i < PER_WARP; ++i) dot[i] = fmaf(sharedQ[(myQ + i) * DQ + d], kd, dot[i]);
    }
#pragma unroll
    for (int i = 0; i < PER_WARP; ++i) {
      const i64 q = q0 + myQ + i, k = k0 + lane;
      f32 s = -infinity;
      if (q < queries && k < end && k < h.keyEnd(b, head, q)) s = h.score(b, head, q, k, dot[i]);
      f32 most = maximum(largest[i], warpReduce<MaxOp>(s));
      // Nothing seen so far: keep zeros, and do not subtract infinity from itself.
      f32 base = most == -infinity ? 0.0f : most;
      f32 p = expf(s - base), keep = expf(largest[i] - base);
      largest[i] = most;
      total[i] = total[i] * keep + warpReduce<SumOp>(p);
      weights[(myQ + i) * KEYS + lane] = p;
#pragma unroll
      for (int c = 0; c < COLS; ++c) out[i][c] *= keep;
    }
    __syncwarp();
#pragma unroll 4
    for (int k = 0; k < KEYS; ++k) {
      f32 v[COLS];
#pragma unroll
      for (int c = 0; c < COLS; ++c) v[c] = c * 32 + lane < DV ? sharedV[k * Shared::KV_STRIDE + c * 32 + lane] : 0.0f;
#pragma unroll
      for (int i = 0; i < PER_WARP; ++i) {
        f32 p = weights[(myQ + i) * KEYS + k];
#pragma unroll
        for (int c = 0; c < COLS; ++c) out[i][c] = fmaf(p, v[c], out[i][c]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < PER_WARP; ++i) {
    const i64 q = q0 + myQ + i;
    if (H::kLogSumExp && q < queries && lane == 0) h.storeLogSumExp(b, head, q, largest[i] + logf(total[i]));
    if (q < queries)
#pragma unroll
      for (int c = 0; c < COLS; ++c)
        if (c * 32 + lane < DV) h.store(b, head, q, c * 32 + lane, H::kZeroMasked && total[i] == 0.0f ? 0.0f : out[i][c] / total[i]);
  }
}

/// One or few query tokens: a block per (query, head, batch) whose warps take keys
/// in turn, each with a streaming softmax of its own, joined at the end.
/// The grid is queries, heads, batch; no dynamic shared memory.
template <int WARPS, class H> LATHE_DEV void attentionDecode(const H &h, i64 keys) {
  constexpr int DQ = H::kHeadQK, DV = H::kHeadV, QCOLS = (DQ + 31) / 32, VCOLS = (DV + 31) / 32;
  __shared__ f32 sharedOut[WARPS][DV], sharedMost[WARPS], sharedTotal[WARPS];
  const f32 infinity = bitsToF32(0x7f800000u);
  const i64 q = blockIdx.x, head = blockIdx.y, b = blockIdx.z;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  f32 qv[QCOLS], out[VCOLS], largest = -infinity, total = 0.0f;
  if (H::kSink && warp == 0) {
    largest = h.sink(b, head, q);
    total = 1.0f;
  }
#pragma unroll
  for (int c = 0; c < QCOLS; ++c) qv[c] = c * 32 + lane < DQ ? h.loadQ(b, head, q, c * 32 + lane) : 0.0f;
#pragma unroll
  for (int c = 0; c < VCOLS; ++c) out[c] = 0.0f;
  const i64 end = minIndex(keys, h.keyEnd(b, head, q));
#pragma unroll 2
  for (i64 k = h.keyBegin(b, head, q) / WARPS * WARPS + warp; k < end; k += WARPS) {
    f32 dot = 0.0f, v[VCOLS];
#pragma unroll
    for (int c = 0; c < QCOLS; ++c)
      if (c * 32 + lane < DQ) dot = fmaf(qv[c], h.loadK(b, head, k, c * 32 + lane), dot);
#pragma unroll
    for (int c = 0; c < VCOLS; ++c) v[c] = c * 32 + lane < DV ? h.loadV(b, head, k, c * 32 + lane) : 0.0f;
    f32 s = h.score(b, head, q, k, warpReduce<SumOp>(dot));
    f32 most = maximum(largest, s), base = most == -infinity ? 0.0f : most;
    f32 p = expf(s - base), keep = expf(largest - base);
    largest = most;
    total = fmaf(total, keep, p);
#pragma unroll
    for (int c = 0; c < VCOLS; ++c) out[c] = fmaf(p, v[c], out[c] * keep);
  }
#pragma unroll
  for (int c = 0; c < VCOLS; ++c)
    if (c * 32 + lane < DV) sharedOut[warp][c * 32 + lane] = out[c];
  if (lane == 0) { sharedMost[warp] = largest; sharedTotal[warp] = total; }
  __syncthreads();
  f32 most = sharedMost[0];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) most = maximum(most, sharedMost[w]);
  const f32 base = most == -infinity ? 0.0f : most;
  for (int d = threadIdx.x; d < DV; d += 32 * WARPS) {
    f32 sum = 0.0f, all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      f32 keep = expf(sharedMost[w] - base);
      sum = fmaf(sharedOut[w][d], keep, sum);
      all = fmaf(sharedTotal[w], keep, all);
    }
    h.store(b, head, q, d, H::kZeroMasked && all == 0.0f ? 0.0f : sum / all);
    if (H::kLogSumExp && d == 0) h.storeLogSumExp(b, head, q, most + logf(all));
  }
}

#endif // LATHE_DEVICE_ATTENTION
