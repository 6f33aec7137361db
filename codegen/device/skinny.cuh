//===- skinny.cuh - products of few rows with long rows of weights ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, mma, hopper, gemm, widen
//
// C[m,n] for M up to 16, bound by the bytes of the weights: each goes from global memory into
// registers once, in 16-byte pieces, and all loads of a round are issued before the first use. Warps of a
// block split K and add up in shared memory, in the order of the warps. gemvRow and gemmSkinny
// take weights with contiguous k, gemvColumns those with contiguous n. Holes as in gemm.cuh
// (Element, kA, kB, kLanes, baseA .. epilogue) without batches, and
//
//   typedef .. Weight;     of which baseB is made: Element, or 8 bits; strideB counts them
//   kCodes                 weights in a Weight: 2 where they have 4 bits
//   static void start();   let the next kernel start, in a programmatic launch
//   static void wait();    wait for the kernels before; weights alone are read before it
//   void ahead(i64 n);     with kPairHead: reads what the epilogue of column or pair n will read beside the sums
//   Vec<Element, 16 kCodes> widened(i64 n, i64 piece, Vec<Weight, 16> codes);
//                          elements 16 kCodes piece .. of column n, where weights are codes; for gemvRow f32
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_SKINNY
#define LATHE_DEVICE_SKINNY

/// 16 bytes of the weights of column n, from k on, as the product takes them.
template <class H> LATHE_DEV auto pieceOf(const H &h, i64 n, i64 k, const Bits16 &raw) {
  constexpr int V = 16 / sizeof(typename H::Weight);
  Vec<typename H::Weight, V> codes;
  memcpy(&codes, &raw, 16);
  if constexpr (IsSame<typename H::Weight, typename H::Element>::value) return codes;
  else return h.widened(n, k / (V * H::kCodes), codes);
}

/// One row, COLUMNS columns of C a block; SPLIT warps, UNROLL pieces of each column a round. With
/// H::kPair a result is made of two columns, N apart; with H::kPairHead other than 0 half a head of so many.
/// A thread has kLanes results.
template <int COLUMNS, int SPLIT, int UNROLL, class H> LATHE_DEV void gemvRow(const H &h, i64 N, i64 K) {
  typedef typename H::Element T;
  typedef typename H::Weight W;
  constexpr int V = 16 / sizeof(W) * H::kCodes, STEP = 32 * SPLIT * V, ROWS = COLUMNS * (H::kPair ? 2 : 1), L = H::kLanes;
  __shared__ f32 part[SPLIT][ROWS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 n0 = (i64)blockIdx.x * COLUMNS;
  const W *rows[ROWS];
  f32 sums[ROWS];
  auto columnOf = [&](int r) {
    const i64 n = n0 + r % COLUMNS;
    return pairColumn<H::kPair ? H::kPairHead : 0>(n < N ? n : N - 1, r / COLUMNS, N);
  };
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    rows[r] = h.baseB(0) + columnOf(r) * h.strideB();
    sums[r] = 0.0f;
  }
  H::start();
  bool waited = false;
  // Neighbouring warps take neighbouring pieces; K is whole pieces.
#pragma unroll 1
  for (i64 k0 = (i64)threadIdx.x * V; k0 < K; k0 += UNROLL * STEP) {
    Bits16 weights[UNROLL][ROWS];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (k0 + u * STEP < K) weights[u][r] = loadGlobal16Streaming(rows[r] + (k0 + u * STEP) / H::kCodes);
    pinLoads();
    if (!waited) {
      H::wait();
      waited = true;
      if constexpr (H::kPairHead > 0)
        if (threadIdx.x * L < COLUMNS && n0 + threadIdx.x * L < N) h.ahead(n0 + threadIdx.x * L);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const i64 k = k0 + u * STEP;
      if (k >= K) break;
      Vec<T, V> x;
      if constexpr (inMemory(H::kA)) {
        x = loadVec<T, V>(h.baseA(0) + k);
      } else {
#pragma unroll
        for (int i = 0; i < V; ++i) x.v[i] = h.loadA(0, 0, k + i);
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const Vec<f32, V> wf = convert<f32>(pieceOf(h, columnOf(r), k, weights[u][r])), xf = convert<f32>(x);
#pragma unroll
        for (int i = 0; i < V; ++i) sums[r] = fmaf(wf.v[i], xf.v[i], sums[r]);
      }
    }
  }
  if (!waited) H::wait(); // a short K leaves some threads without a piece
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    sums[r] = warpReduce<SumOp>(sums[r]);
    if (lane == 0) part[warp][r] = sums[r];
  }
  __syncthreads();
  if (threadIdx.x * L < COLUMNS && n0 + threadIdx.x * L < N) {
    auto total = [&](u32 first) {
      Vec<f32, L> sums;
#pragma unroll
      for (u32 l = 0; l < L; ++l) {
        sums.v[l] = part[0][first + l];
#pragma unroll
        for (int w = 1; w < SPLIT; ++w) sums.v[l] += part[w][first + l];
      }
      return sums;
    };
    const u32 mine = threadIdx.x * L;
    if constexpr (H::kPair) h.epilogue(0, 0, n0 + mine, total(mine), total(COLUMNS + mine));
    else h.epilogue(0, 0, n0 + mine, total(mine));
  }
}

/// The sum of `mine[c]` over the blocks of a cluster, for this block's share of COLUMNS.
template <int COLUMNS, int CLUSTER, class H>
LATHE_DEV void storeShare(const H &h, const f32 *mine, i64 n0, i64 N) {
  constexpr int L = H::kLanes, SHARE = COLUMNS / CLUSTER;
  int first = 0;
#ifndef LATHE_EMULATE
  if constexpr (CLUSTER > 1) {
    clusterSync();
    first = (int)clusterRank() * SHARE;
  }
#endif
  for (int c = first + threadIdx.x * L; c < first + SHARE; c += blockDim.x * L) {
    if (n0 + c >= N) continue;
    Vec<f32, L> sums;
#pragma unroll
    for (int l = 0; l < L; ++l) {
      sums.v[l] = CLUSTER > 1 ? 0.0f : mine[c + l];
#ifndef LATHE_EMULATE
      if constexpr (CLUSTER > 1)
        for (int i = 0; i < CLUSTER; ++i) sums.v[l] += loadFromCluster<f32>(sharedAddr(mine + c + l), i);
#endif
    }
    h.epilogue(0, 0, n0 + c, sums);
  }
#ifndef LATHE_EMULATE
  if constexpr (CLUSTER > 1) clusterLeave(); // nobody leaves while others read its memory
#endif
}

/// One row, COLUMNS (64 to 256) columns of C a cluster, whose blocks and their WARPS warps split
/// K; UNROLL pieces a round. N is whole pieces.
template <int COLUMNS, int WARPS, int CLUSTER, int UNROLL, class H> LATHE_DEV void gemvColumns(const H &h, i64 N, i64 K) {
  typedef typename H::Element T;
  constexpr int V = 16 / sizeof(T), LANES = COLUMNS / V, ROWS = 32 * WARPS / LANES; // of k at a time
  constexpr int CHUNK = 2048; // of x in shared memory
  __shared__ f32 xs[CHUNK], part[ROWS][COLUMNS], total[COLUMNS];
  const int row = threadIdx.x / LANES, column = threadIdx.x % LANES * V;
  const i64 n0 = (i64)(blockIdx.x / CLUSTER) * COLUMNS;
  const i64 each = (K + CLUSTER - 1) / CLUSTER, begin = blockIdx.x % CLUSTER * each;
  const i64 end = begin + each < K ? begin + each : K, stride = h.strideB();
  const T *from = h.baseB(0) + (n0 + column < N ? n0 + column : 0);
  f32 sums[V];
#pragma unroll
  for (int i = 0; i < V; ++i) sums[i] = 0.0f;
  H::start();
  bool waited = false;
#pragma unroll 1
  for (i64 chunk = begin; chunk < end; chunk += CHUNK) {
    const i64 last = chunk + CHUNK < end ? chunk + CHUNK : end;
    bool loaded = false;
#pragma unroll 1
    for (i64 k0 = chunk; k0 < last; k0 += ROWS * UNROLL) {
      Bits16 w[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const i64 k = k0 + u * ROWS + row;
        w[u] = Bits16{};
        if (k < last) w[u] = loadGlobal16Streaming(from + k * stride);
      }
      pinLoads();
      if (!loaded) {
        if (!waited) { H::wait(); waited = true; }
        __syncthreads(); // the chunk before has been read
        for (i64 k = chunk + threadIdx.x; k < last; k += 32 * WARPS) xs[k - chunk] = toF32(h.loadA(0, 0, k));
        __syncthreads();
        loaded = true;
      }
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const i64 k = k0 + u * ROWS + row;
        const f32 x = k < last ? xs[k - chunk] : 0.0f;
        Vec<T, V> v;
        memcpy(&v, &w[u], 16);
        const Vec<f32, V> wf = convert<f32>(v);
#pragma unroll
        for (int i = 0; i < V; ++i) sums[i] = fmaf(x, wf.v[i], sums[i]);
      }
    }
  }
  if (!waited) H::wait();
#pragma unroll
  for (int i = 0; i < V; ++i) part[row][column + i] = sums[i];
  __syncthreads();
  for (int c = threadIdx.x; c < COLUMNS; c += 32 * WARPS) {
    f32 sum = part[0][c];
#pragma unroll
    for (int r = 1; r < ROWS; ++r) sum += part[r][c];
    total[c] = sum;
  }
  __syncthreads();
  storeShare<COLUMNS, CLUSTER>(h, total, n0, N);
}

/// Up to 8 NT rows, 16 MT columns of C a block. The weights are the 16-row operand of the
/// product. A piece is 8 or 16 neighbouring k of one row and serves two or four products: k may
/// stand in any order as long as both operands have the same one, so nothing is moved between
/// lanes. EXACT: K is whole rounds of all warps.
template <int MT, int NT, int SPLIT, int UNROLL, bool EXACT, class H>
LATHE_DEV void gemmSkinny(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Element T;
  typedef typename H::Weight W;
  constexpr int V = 16 / sizeof(W) * H::kCodes, STEP = 4 * V, PARTS = V / 8; // of k, by a warp; of x in a piece
  __shared__ f32 part[SPLIT][MT * NT * 4][33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
  const i64 n0 = (i64)blockIdx.x * (16 * MT);
  const i64 each = (K + STEP * SPLIT - 1) / (STEP * SPLIT) * STEP, begin = warp * each + lane % 4 * V;
  const i64 end = EXACT ? K : (warp + 1) * each < K ? (warp + 1) * each : K;
  const W *rows[MT][2];
  const T *xs[NT];
  auto columnOf = [&](int a, int i) {
    const i64 n = n0 + a * 16 + i * 8 + g;
    return n < N ? n : N - 1;
  };
#pragma unroll
  for (int a = 0; a < MT; ++a)
#pragma unroll
    for (int i = 0; i < 2; ++i) rows[a][i] = h.baseB(0) + columnOf(a, i) * h.strideB() + begin / H::kCodes;
#pragma unroll
  for (int b = 0; b < NT; ++b) xs[b] = h.baseA(0) + (b * 8 + g < M ? b * 8 + g : 0) * h.strideA() + begin;
  f32 acc[MT][NT][4];
#pragma unroll
  for (int a = 0; a < MT; ++a)
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[a][b][e] = 0.0f;
  H::start();
  bool waited = false;
#pragma unroll 1
  for (i64 k0 = 0; k0 < each; k0 += UNROLL * STEP) {
    Bits16 w[UNROLL][MT][2], x[UNROLL][NT][PARTS];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const i64 k = k0 + u * STEP;
#pragma unroll
      for (int a = 0; a < MT; ++a)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (EXACT || begin + k < end) w[u][a][i] = loadGlobal16Streaming(rows[a][i] + k / H::kCodes);
          else w[u][a][i] = Bits16{};
        }
    }
    pinLoads();
    if (!waited) { H::wait(); waited = true; }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const i64 k = k0 + u * STEP;
#pragma unroll
      for (int b = 0; b < NT; ++b)
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
          if (EXACT || begin + k < end) x[u][b][p] = loadGlobal16(xs[b] + k + 8 * p);
          else x[u][b][p] = Bits16{};
        }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const i64 k = k0 + u * STEP;
#pragma unroll
      for (int a = 0; a < MT; ++a) {
        u32 words[2][V / 2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          Vec<T, V> piece{};
          if (EXACT || begin + k < end) piece = pieceOf(h, columnOf(a, i), begin + k, w[u][a][i]);
          memcpy(words[i], &piece, sizeof piece);
        }
#pragma unroll
        for (int b = 0; b < NT; ++b)
#pragma unroll
          for (int i = 0; i < V / 2; i += 2) {
            const u32 left[4] = {words[0][i], words[1][i], words[0][i + 1], words[1][i + 1]};
            const u32 right[2] = {x[u][b][i / 4].w[i % 4], x[u][b][i / 4].w[i % 4 + 1]};
            mma(acc[a][b], left, right, T{});
          }
      }
    }
  }
#pragma unroll
  for (int a = 0; a < MT; ++a)
#pragma unroll
    for (int b = 0; b < NT; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) part[warp][(a * NT + b) * 4 + e][lane] = acc[a][b][e];
  __syncthreads();
  constexpr int L = H::kLanes;
#pragma unroll 1
  for (int i = threadIdx.x * L; i < MT * NT * 128; i += 32 * SPLIT * L) { // neighbours along n
    const int column = i % (16 * MT), m = i / (16 * MT);
    Vec<f32, L> sums;
#pragma unroll
    for (int l = 0; l < L; ++l) {
      const int c = column + l, at = (c / 16 * NT + m / 8) * 4 + c / 8 % 2 * 2 + m % 2;
      const int from = c % 8 * 4 + m % 8 / 2;
      sums.v[l] = part[0][at][from];
#pragma unroll
      for (int s = 1; s < SPLIT; ++s) sums.v[l] += part[s][at][from];
    }
    if (m < M && n0 + column < N) h.epilogue(0, m, n0 + column, sums);
  }
}

#endif // LATHE_DEVICE_SKINNY
