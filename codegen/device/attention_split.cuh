//===- attention_split.cuh - few queries over many keys ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One to a few query tokens, 16-bit operands: reading keys and values is all the time there is.
// They go from global memory to registers, each once for all query heads that share them. The
// queries of a key head, 8 TILES of them at most, are the columns of two transposed products:
//
//   S'[16 keys x 8] = K Q'     a lane's 16 bytes of a key are two steps of the product; the
//                              elements of the queries are permuted alike
//   O'[16 x 8] += V' P'        a lane has 8 neighbouring columns of four keys; pairs of keys are
//                              joined in registers, P' is turned by movmatrix
//
// Keys are split among the warps of a block and the blocks of a cluster, which add their parts in
// order of rank. Holes: attention_tile.cuh, keys and values in memory, and
//
//   static constexpr int kGroup;       query heads of a key head
//
// The grid is CLUSTER, key heads, batch.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_SPLIT
#define LATHE_DEVICE_ATTENTION_SPLIT

template <int WARPS_, int CLUSTER_, int TILES_, int HEAD> struct AttentionSplitTile {
  static constexpr int WARPS = WARPS_, CLUSTER = CLUSTER_, TILES = TILES_, COLUMNS = 8 * TILES;
  static constexpr int STRIDE = HEAD + 4; // f32 of a column of results, padded against bank conflicts
  static constexpr int PART = COLUMNS * STRIDE + 2 * COLUMNS; // results, largest scores, sums
  static constexpr int SHARED_BYTES = (WARPS + 1) * PART * 4;
};

/// Over the lanes that share a column of a transposed product.
LATHE_DEV f32 columnMax(f32 v) { v = fmaxf(v, shuffleXor(v, 4)); v = fmaxf(v, shuffleXor(v, 8)); return fmaxf(v, shuffleXor(v, 16)); }
LATHE_DEV f32 columnSum(f32 v) { v += shuffleXor(v, 4); v += shuffleXor(v, 8); return v + shuffleXor(v, 16); }

/// Joins COUNT parts, `read(part, i)` being value i of one, for eight results of a column.
template <class Tile, int COUNT, class Read>
LATHE_DEV void joinParts(f32 (&sum)[8], f32 &most, f32 &total, int column, int d, f32 factor, Read read) {
  const f32 hidden = bitsToF32(0xff800000u);
  constexpr int MOST = Tile::COLUMNS * Tile::STRIDE, TOTAL = MOST + Tile::COLUMNS;
  f32 largest[COUNT];
  most = hidden;
#pragma unroll
  for (int p = 0; p < COUNT; ++p) most = fmaxf(most, largest[p] = read(p, MOST + column));
  const f32 base = most == hidden ? 0.0f : most * factor;
  total = 0.0f;
#pragma unroll
  for (int e = 0; e < 8; ++e) sum[e] = 0.0f;
#pragma unroll
  for (int p = 0; p < COUNT; ++p) {
    const f32 keep = fastExp2(fmaf(largest[p], factor, -base));
    total = fmaf(keep, read(p, TOTAL + column), total);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[e] = fmaf(keep, read(p, column * Tile::STRIDE + d + e), sum[e]);
  }
}

template <class Tile, class H> LATHE_DEV void attentionSplit(const H &h, i64 queries, i64 keys) {
  typedef typename H::Element T;
  constexpr int D = H::kHeadV, TILES = Tile::TILES, WARPS = Tile::WARPS, G = H::kGroup;
  static_assert(H::kHeadQK == D && D % 64 == 0 && H::kLanes == 8, "whole pieces of keys and values");
  constexpr int KEY_PIECES = D / 32, VALUE_PIECES = D / 64, UNITS = D / 16;
  LATHE_DYNAMIC_SHARED(raw);
  f32 *const parts = (f32 *)raw, *const joined = parts + WARPS * Tile::PART;
  const f32 hidden = bitsToF32(0xff800000u), factor = scoreFactor<H>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const i64 b = blockIdx.z, head0 = (i64)blockIdx.y * G;
  const int columns = (int)queries * G; // column = query * G + head of the group
  const i64 end = maxIndex(minIndex(keys, h.keyEnd(b, head0, queries - 1)), 0), steps = (end + 15) / 16;
  // This block's share of the keys, sixteen at a time.
  const i64 first = steps * blockIdx.x / Tile::CLUSTER, last = steps * (blockIdx.x + 1) / Tile::CLUSTER;

  Bits16 q[TILES][KEY_PIECES];
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int i = 0; i < KEY_PIECES; ++i) {
      const int column = n * 8 + g;
      q[n][i] = Bits16{{0, 0, 0, 0}};
      if (column < columns) {
        if constexpr (H::kRowsQ) {
          q[n][i] = loadGlobal16(h.rowQ(b, head0 + column % G, column / G) + t * 8 + 32 * i);
        } else {
          Vec<T, 8> v;
#pragma unroll
          for (int e = 0; e < 8; ++e) v.v[e] = h.elementQ(b, head0 + column % G, column / G, t * 8 + 32 * i + e);
          memcpy(&q[n][i], &v, 16);
        }
      }
    }
  f32 o[TILES][UNITS][4], most[TILES][2], total[TILES][2];
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
    most[n][0] = most[n][1] = hidden;
    total[n][0] = total[n][1] = 0.0f;
#pragma unroll
    for (int m = 0; m < UNITS; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[n][m][e] = 0.0f;
  }
#pragma unroll 1
  for (i64 step = first + warp; step < last; step += WARPS) {
    const i64 k0 = step * 16;
    const int inside = (int)minIndex(end - k0, 16) - 1; // rows behind the last repeat it
    Bits16 key[2][KEY_PIECES], value[4][VALUE_PIECES];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = g + 8 * r;
      const T *at = h.rowK(b, head0, k0 + (row < inside ? row : inside)) + t * 8;
#pragma unroll
      for (int i = 0; i < KEY_PIECES; ++i) key[r][i] = loadGlobal16Streaming(at + 32 * i);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = 2 * t + (r & 1) + (r >> 1) * 8;
      const T *at = h.rowV(b, head0, k0 + (row < inside ? row : inside)) + g * 8;
#pragma unroll
      for (int i = 0; i < VALUE_PIECES; ++i) value[r][i] = loadGlobal16Streaming(at + 64 * i);
    }
    pinLoads();
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      f32 s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int i = 0; i < KEY_PIECES; ++i)
#pragma unroll
        for (int half = 0; half < 4; half += 2) {
          const u32 a[4] = {key[0][i].w[half], key[1][i].w[half], key[0][i].w[half + 1], key[1][i].w[half + 1]};
          const u32 x[2] = {q[n][i].w[half], q[n][i].w[half + 1]};
          mma(s, a, x, T{});
        }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = n * 8 + 2 * t + (e & 1), row = g + (e >> 1) * 8;
        const i64 query = column / G, head = head0 + column % G, k = k0 + row;
        const bool seen = row <= inside && column < columns && (!H::kCausal || k < h.keyEnd(b, head, query));
        if constexpr (H::kPlainScore) s[e] = seen ? s[e] : hidden;
        else s[e] = seen ? scoreExponent(h.score(b, head, query, k, s[e])) : hidden;
      }
      f32 keep[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const f32 larger = fmaxf(most[n][c], columnMax(fmaxf(s[c], s[c + 2])));
        const f32 base = larger == hidden ? 0.0f : larger * factor;
        keep[c] = fastExp2(fmaf(most[n][c], factor, -base));
        most[n][c] = larger;
        s[c] = fastExp2(fmaf(s[c], factor, -base));
        s[c + 2] = fastExp2(fmaf(s[c + 2], factor, -base));
        total[n][c] = fmaf(total[n][c], keep[c], s[c] + s[c + 2]);
      }
      const u32 p[2] = {turnMatrix(packPair<T>(s[0], s[1])), turnMatrix(packPair<T>(s[2], s[3]))};
#pragma unroll
      for (int m = 0; m < UNITS; ++m) {
        // Rows g of this product are column 8 g + 2 m of the values, rows g + 8 the one behind it.
        const int i = m / 4, w = m % 4;
        const u32 even0 = value[0][i].w[w], odd0 = value[1][i].w[w], even1 = value[2][i].w[w], odd1 = value[3][i].w[w];
        const u32 a[4] = {(even0 & 0xffff) | odd0 << 16, even0 >> 16 | (odd0 & 0xffff0000u),
                          (even1 & 0xffff) | odd1 << 16, even1 >> 16 | (odd1 & 0xffff0000u)};
#pragma unroll
        for (int e = 0; e < 4; ++e) o[n][m][e] *= keep[e & 1];
        mma(o[n][m], a, p, T{});
      }
    }
  }

  // Each warp's part, then the block's.
  f32 *const mine = parts + warp * Tile::PART;
  constexpr int MOST = Tile::COLUMNS * Tile::STRIDE, TOTAL = MOST + Tile::COLUMNS;
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = n * 8 + 2 * t + c;
      const f32 sum = columnSum(total[n][c]);
      if (g == 0) {
        mine[MOST + column] = most[n][c];
        mine[TOTAL + column] = sum;
      }
#pragma unroll
      for (int m = 0; m < UNITS; ++m)
        *(Vec<f32, 2> *)(mine + column * Tile::STRIDE + m / 4 * 64 + g * 8 + m % 4 * 2) = Vec<f32, 2>{{o[n][m][c], o[n][m][c + 2]}};
    }
  __syncthreads();
  auto finish = [&](int column, int d, const f32 (&sum)[8], f32 all) {
    const f32 inverse = H::kZeroMasked && all == 0.0f ? 0.0f : 1.0f / all;
    Vec<f32, 8> out;
#pragma unroll
    for (int e = 0; e < 8; ++e) out.v[e] = sum[e] * inverse;
    h.store(b, head0 + column % G, column / G, d, convert<T>(out));
  };
  f32 sum[8], largest, all;
  for (int i = threadIdx.x; i < columns * (D / 8); i += 32 * WARPS) {
    const int column = i / (D / 8), d = i % (D / 8) * 8;
    joinParts<Tile, WARPS>(sum, largest, all, column, d, factor, [&](int p, int at) { return parts[p * Tile::PART + at]; });
    if constexpr (Tile::CLUSTER == 1) {
      finish(column, d, sum, all);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) joined[column * Tile::STRIDE + d + e] = sum[e];
      if (d == 0) { joined[MOST + column] = largest; joined[TOTAL + column] = all; }
    }
  }
#ifndef LATHE_EMULATE
  if constexpr (Tile::CLUSTER > 1) {
    clusterSync();
    const SharedAddr base = sharedAddr(joined);
    for (int i = clusterRank() * 32 * WARPS + threadIdx.x; i < columns * (D / 8); i += Tile::CLUSTER * 32 * WARPS) {
      const int column = i / (D / 8), d = i % (D / 8) * 8;
      joinParts<Tile, Tile::CLUSTER>(sum, largest, all, column, d, factor, [&](int p, int at) { return loadFromCluster<f32>(base + 4 * at, p); });
      finish(column, d, sum, all);
    }
    clusterSync(); // nobody leaves while others read its memory
  }
#endif
}

#endif // LATHE_DEVICE_ATTENTION_SPLIT
