//===- gemm.cuh - matrix product skeletons ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math, mma
//
// C[b,m,n] = sum over k of A[b,m,k] * B[b,k,n] for any sizes. What is multiplied
// and what becomes of the sums is in the holes, a struct H made by the compiler:
//
//   typedef ... Element;               element type of both operands in the product
//   static constexpr Operand kA, kB;   how an operand is read
//   const Element *baseA(i64 b);       Operand::AlongK, ::AcrossK: 16-byte aligned start
//   i64 strideA();                     ... elements between rows (of k or of m, n)
//   Element loadA(i64 b, i64 m, i64 k);    Operand::Computed*: any expression
//   Element loadB(i64 b, i64 k, i64 n);
//   static constexpr int kLanes;       epilogue width: 1, 2, 4 or 8, divides N
//   void epilogue(i64 b, i64 m, i64 n, Vec<Acc, kLanes> sums);   stores the results
//
// Operands in Along/AcrossK have rows that are multiples of 16 bytes.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_GEMM
#define LATHE_DEVICE_GEMM

enum class Operand {
  AlongK,         ///< in memory, k is the contiguous dimension
  AcrossK,        ///< in memory, m or n is the contiguous dimension
  ComputedAlongK, ///< by a function; neighbouring lanes take neighbouring k
  ComputedAcrossK ///< by a function; neighbouring lanes take neighbouring m or n
};
constexpr bool inMemory(Operand o) { return o == Operand::AlongK || o == Operand::AcrossK; }

/// Which tile a block computes: tiles of one group of rows first, so that blocks
/// that run together share operands in the second-level cache.
struct TileIndex { i64 batch, m, n; };
template <int BM, int BN> LATHE_DEV TileIndex tileOfBlock(i64 M, i64 N) {
  constexpr u32 group = 8; // the grid has less than 2^31 blocks: 32-bit divisions do
  u32 tilesM = (u32)((M + BM - 1) / BM), tilesN = (u32)((N + BN - 1) / BN);
  u32 perBatch = tilesM * tilesN, id = blockIdx.x;
  u32 batch = id / perBatch;
  id -= batch * perBatch;
  u32 first = id / (group * tilesN) * group;
  u32 rows = tilesM - first < group ? tilesM - first : group;
  u32 inside = id - first * tilesN;
  return {(i64)batch, (i64)(first + inside % rows) * BM, (i64)(inside / rows) * BN};
}

// ---- 16-bit operands on the tensor cores -------------------------------------------

template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int STAGES_> struct MmaTile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
  static constexpr int STAGES = STAGES_, THREADS = 32 * WARPS_M * WARPS_N;
  static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N; // of a warp
  static constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, STAGE_BYTES = A_BYTES + B_BYTES;
  static constexpr int EPILOGUE_STRIDE = BN + 8; // f32, padded against bank conflicts
  static constexpr int EPILOGUE_BYTES = BM * EPILOGUE_STRIDE * 4;
  static constexpr int SHARED_BYTES =
      STAGES * STAGE_BYTES > EPILOGUE_BYTES ? STAGES * STAGE_BYTES : EPILOGUE_BYTES;
  static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 16 == 0 && STAGES >= 2, "tile shape");
};

/// One operand's tile: ROWS of m or n by BK. IS_A tells which holes to use.
template <class Tile, class H, bool IS_A> struct MmaOperand {
  typedef typename H::Element T;
  static constexpr Operand kind = IS_A ? H::kA : H::kB;
  static constexpr int ROWS = IS_A ? Tile::BM : Tile::BN, BK = Tile::BK;
  static constexpr int PIECES = ROWS * BK / 8, PER_THREAD = (PIECES + Tile::THREADS - 1) / Tile::THREADS;
  static constexpr bool EXACT = PIECES % Tile::THREADS == 0;
  static constexpr bool kRowsInner = kind == Operand::AcrossK; // m or n contiguous in shared memory
  typedef SwizzledTile<kRowsInner ? ROWS : BK> Layout;

  struct Held { Vec<T, 8> piece[inMemory(kind) ? 1 : PER_THREAD]; };

  static LATHE_METHOD T element(const H &h, i64 b, i64 row, i64 k) {
    if constexpr (IS_A) return h.loadA(b, row, k);
    else return h.loadB(b, k, row);
  }
  /// Where piece i of this thread lies: row of m or n and k inside the tile.
  static LATHE_METHOD void place(int i, int &row, int &k) {
    int p = i * Tile::THREADS + threadIdx.x;
    if constexpr (kRowsInner) { row = p % (ROWS / 8) * 8; k = p / (ROWS / 8); }
    else if constexpr (kind == Operand::ComputedAcrossK) { row = p % ROWS; k = p / ROWS * 8; }
    else { k = p % (BK / 8) * 8; row = p / (BK / 8); }
  }
  /// Starts the copy of a tile that lies in memory.
  static LATHE_METHOD void copy(const H &h, SharedAddr to, i64 b, i64 row0, i64 rows, i64 k0, i64 K) {
    if constexpr (inMemory(kind)) {
      const T *base;
      i64 stride;
      if constexpr (IS_A) { base = h.baseA(b); stride = h.strideA(); }
      else { base = h.baseB(b); stride = h.strideB(); }
#pragma unroll
      for (int i = 0; i < PER_THREAD; ++i) {
        int row, k;
        place(i, row, k);
        if (!EXACT && i * Tile::THREADS + (int)threadIdx.x >= PIECES) break;
        i64 left;
        const T *from = base;
        if constexpr (kRowsInner) {
          left = k0 + k < K ? rows - (row0 + row) : 0;
          if (left > 0) from += (k0 + k) * stride + row0 + row;
          cpAsync16(to + Layout::offset(k, row), from, left <= 0 ? 0 : left >= 8 ? 16 : (int)left * 2);
        } else {
          left = row0 + row < rows ? K - (k0 + k) : 0;
          if (left > 0) from += (row0 + row) * stride + k0 + k;
          cpAsync16(to + Layout::offset(row, k), from, left <= 0 ? 0 : left >= 8 ? 16 : (int)left * 2);
        }
      }
    }
  }
  /// Computes a tile's elements into registers...
  static LATHE_METHOD void compute(const H &h, Held &held, i64 b, i64 row0, i64 rows, i64 k0, i64 K) {
    if constexpr (!inMemory(kind)) {
#pragma unroll
      for (int i = 0; i < PER_THREAD; ++i) {
        int row, k;
        place(i, row, k);
        if (!EXACT && i * Tile::THREADS + (int)threadIdx.x >= PIECES) break;
#pragma unroll
        for (int j = 0; j < 8; ++j)
          held.piece[i].v[j] = row0 + row < rows && k0 + k + j < K ? element(h, b, row0 + row, k0 + k + j) : T{};
      }
    }
  }
  /// ... and puts them into shared memory.
  static LATHE_METHOD void store(const Held &held, u8 *to) {
    if constexpr (!inMemory(kind)) {
#pragma unroll
      for (int i = 0; i < PER_THREAD; ++i) {
        int row, k;
        place(i, row, k);
        if (!EXACT && i * Tile::THREADS + (int)threadIdx.x >= PIECES) break;
        *(Vec<T, 8> *)(to + Layout::offset(row, k)) = held.piece[i];
      }
    }
  }
};

template <class Tile, class H> LATHE_DEV void gemmMma(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Element T;
  typedef MmaOperand<Tile, H, true> A;
  typedef MmaOperand<Tile, H, false> B;
  constexpr int MI = Tile::WM / 16, NI = Tile::WN / 8, STAGES = Tile::STAGES;
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = sharedAddr(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int wm = warp % Tile::WARPS_M * Tile::WM, wn = warp / Tile::WARPS_M * Tile::WN;
  const TileIndex t = tileOfBlock<Tile::BM, Tile::BN>(M, N);
  const int steps = (int)((K + Tile::BK - 1) / Tile::BK);

  f32 acc[MI][NI][4];
#pragma unroll
  for (int i = 0; i < MI; ++i)
#pragma unroll
    for (int j = 0; j < NI; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.0f;

  // The first STAGES - 1 rounds only fill slots; loads stand once in the text that way.
  typename A::Held heldA;
  typename B::Held heldB;
  int slot = 1, nextSlot = 0;
#pragma unroll 1
  for (int step = 1 - STAGES; step < steps; ++step) {
    if (step >= 0) {
      cpAsyncWait<STAGES - 2>();
      __syncthreads();
    }
    // The slot that is filled now was read in the round before; the barrier is between.
    const int next = step + STAGES - 1;
    if (next < steps) {
      i64 k0 = (i64)next * Tile::BK;
      SharedAddr at = base + nextSlot * Tile::STAGE_BYTES;
      A::copy(h, at, t.batch, t.m, M, k0, K);
      B::copy(h, at + Tile::A_BYTES, t.batch, t.n, N, k0, K);
      A::compute(h, heldA, t.batch, t.m, M, k0, K);
      B::compute(h, heldB, t.batch, t.n, N, k0, K);
    }
    cpAsyncCommit();
    if (step >= 0) {
      const SharedAddr tileA = base + slot * Tile::STAGE_BYTES, tileB = tileA + Tile::A_BYTES;
#pragma unroll
      for (int k = 0; k < Tile::BK; k += 16) {
        u32 a[MI][4], b[NI / 2][4];
#pragma unroll
        for (int i = 0; i < MI; ++i) {
          if constexpr (A::kRowsInner)
            loadMatrix4Transposed(a[i], tileA + A::Layout::offset(k + (lane & 7) + (lane >> 4) * 8,
                                                                  wm + i * 16 + ((lane >> 3) & 1) * 8));
          else
            loadMatrix4(a[i], tileA + A::Layout::offset(wm + i * 16 + (lane & 15), k + (lane >> 4) * 8));
        }
#pragma unroll
        for (int j = 0; j < NI / 2; ++j) {
          if constexpr (B::kRowsInner)
            loadMatrix4Transposed(b[j], tileB + B::Layout::offset(k + (lane & 7) + ((lane >> 3) & 1) * 8,
                                                                  wn + j * 16 + (lane >> 4) * 8));
          else
            loadMatrix4(b[j], tileB + B::Layout::offset(wn + j * 16 + (lane & 7) + (lane >> 4) * 8,
                                                        k + ((lane >> 3) & 1) * 8));
        }
#pragma unroll
        for (int i = 0; i < MI; ++i)
#pragma unroll
          for (int j = 0; j < NI; ++j) {
            u32 pair[2] = {b[j / 2][(j & 1) * 2], b[j / 2][(j & 1) * 2 + 1]};
            mma(acc[i][j], a[i], pair, T{});
          }
      }
    }
    if (next < steps) {
      A::store(heldA, shared + nextSlot * Tile::STAGE_BYTES);
      B::store(heldB, shared + nextSlot * Tile::STAGE_BYTES + Tile::A_BYTES);
    }
    slot = slot == STAGES - 1 ? 0 : slot + 1;
    nextSlot = nextSlot == STAGES - 1 ? 0 : nextSlot + 1;
  }

  // The sums go through shared memory, so that each thread holds kLanes neighbours of
  // one row for the epilogue, and neighbouring threads neighbouring columns.
  cpAsyncWait<0>();
  __syncthreads();
  constexpr int L = H::kLanes, STRIDE = Tile::EPILOGUE_STRIDE;
  f32 *stage = (f32 *)shared;
#pragma unroll
  for (int i = 0; i < MI; ++i)
#pragma unroll
    for (int j = 0; j < NI; ++j) {
      f32 *p = stage + (wm + i * 16 + lane / 4) * STRIDE + wn + j * 8 + lane % 4 * 2;
      *(Vec<f32, 2> *)p = Vec<f32, 2>{{acc[i][j][0], acc[i][j][1]}};
      *(Vec<f32, 2> *)(p + 8 * STRIDE) = Vec<f32, 2>{{acc[i][j][2], acc[i][j][3]}};
    }
  __syncthreads();
#pragma unroll(L >= 4 ? 2 : 1)
  for (int e = threadIdx.x; e < Tile::BM * Tile::BN / L; e += Tile::THREADS) {
    const int row = e / (Tile::BN / L), col = e % (Tile::BN / L) * L;
    if (t.m + row < M && t.n + col < N)
      h.epilogue(t.batch, t.m + row, t.n + col, *(const Vec<f32, L> *)(stage + row * STRIDE + col));
  }
}

// ---- Any element type on the ordinary units ----------------------------------------

template <int BM_, int BN_, int BK_, int TM_, int TN_> struct SimtTile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_;
  static constexpr int THREADS_M = BM / TM, THREADS_N = BN / TN, THREADS = THREADS_M * THREADS_N;
  static constexpr int GM = TM < 4 ? TM : 4, GN = TN < 4 ? TN : 4; // rows, columns in one piece
  static_assert(TM % GM == 0 && TN % GN == 0 && THREADS % 32 == 0, "tile shape");
};

template <class Tile, class H, bool IS_A> struct SimtOperand {
  typedef typename H::Element T;
  typedef typename H::Acc Acc;
  static constexpr Operand kind = IS_A ? H::kA : H::kB;
  static constexpr int ROWS = IS_A ? Tile::BM : Tile::BN, BK = Tile::BK, STRIDE = ROWS + 4;
  static constexpr int V = inMemory(kind) ? 16 / sizeof(T) : 1; // elements a load
  static constexpr int PIECES = ROWS * BK / V, PER_THREAD = (PIECES + Tile::THREADS - 1) / Tile::THREADS;
  static constexpr bool EXACT = PIECES % Tile::THREADS == 0;
  static constexpr bool kRowsInner = kind == Operand::AcrossK || kind == Operand::ComputedAcrossK;
  struct Held { Vec<T, V> piece[PER_THREAD]; };

  static LATHE_METHOD void place(int i, int &row, int &k) {
    int p = i * Tile::THREADS + threadIdx.x;
    if constexpr (kRowsInner) { row = p % (ROWS / V) * V; k = p / (ROWS / V); }
    else { k = p % (BK / V) * V; row = p / (BK / V); }
  }
  static LATHE_METHOD void load(const H &h, Held &held, i64 b, i64 row0, i64 rows, i64 k0, i64 K) {
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
      int row, k;
      place(i, row, k);
      if (!EXACT && i * Tile::THREADS + (int)threadIdx.x >= PIECES) break;
      const bool inside = row0 + row < rows && k0 + k < K;
      if constexpr (inMemory(kind)) {
        const T *base;
        i64 stride;
        if constexpr (IS_A) { base = h.baseA(b); stride = h.strideA(); }
        else { base = h.baseB(b); stride = h.strideB(); }
        i64 outer = kRowsInner ? k0 + k : row0 + row, inner = kRowsInner ? row0 + row : k0 + k;
        // Rows are whole pieces, so a piece that starts inside may be read whole; what
        // lies beyond K or rows is masked below or never stored.
        i64 left = (kRowsInner ? rows : K) - inner;
        if (inside && left >= V) held.piece[i] = loadVec<T, V>(base + outer * stride + inner);
        else held.piece[i] = loadVecPartial<T, V>(base + outer * stride + inner, inside ? left : 0);
      } else if constexpr (IS_A) {
        held.piece[i].v[0] = inside ? h.loadA(b, row0 + row, k0 + k) : T{};
      } else {
        held.piece[i].v[0] = inside ? h.loadB(b, k0 + k, row0 + row) : T{};
      }
    }
  }
  static LATHE_METHOD void store(const Held &held, Acc *to) {
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
      int row, k;
      place(i, row, k);
      if (!EXACT && i * Tile::THREADS + (int)threadIdx.x >= PIECES) break;
#pragma unroll
      for (int j = 0; j < V; ++j)
        to[(kRowsInner ? k : k + j) * STRIDE + (kRowsInner ? row + j : row)] = convert<Acc>(held.piece[i].v[j]);
    }
  }
};

template <class Acc> LATHE_DEV Acc multiplyAdd(Acc a, Acc b, Acc c) { return a * b + c; }
LATHE_DEV f32 multiplyAdd(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }

/// H::Acc is the type of products and sums: f32, f64, i32 or i64.
template <class Tile, class H> LATHE_DEV void gemmSimt(const H &h, i64 M, i64 N, i64 K) {
  typedef typename H::Acc Acc;
  typedef SimtOperand<Tile, H, true> A;
  typedef SimtOperand<Tile, H, false> B;
  constexpr int TM = Tile::TM, TN = Tile::TN, GM = Tile::GM, GN = Tile::GN;
  __shared__ __align__(16) Acc memory[2 * Tile::BK * (A::STRIDE + B::STRIDE)];
  Acc *const sharedA[2] = {memory, memory + Tile::BK * A::STRIDE};
  Acc *const sharedB[2] = {memory + 2 * Tile::BK * A::STRIDE, memory + Tile::BK * (2 * A::STRIDE + B::STRIDE)};
  const int tm = threadIdx.x / Tile::THREADS_N, tn = threadIdx.x % Tile::THREADS_N;
  const TileIndex t = tileOfBlock<Tile::BM, Tile::BN>(M, N);

  Acc acc[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) acc[i][j] = (Acc)0;

  typename A::Held heldA;
  typename B::Held heldB;
  int slot = 1;
  // The first round only loads; loads stand once in the text that way.
#pragma unroll 1
  for (i64 k0 = -Tile::BK; k0 < K; k0 += Tile::BK) {
    const bool more = k0 + Tile::BK < K;
    if (more) {
      A::load(h, heldA, t.batch, t.m, M, k0 + Tile::BK, K);
      B::load(h, heldB, t.batch, t.n, N, k0 + Tile::BK, K);
    }
    if (k0 >= 0) {
#pragma unroll
      for (int k = 0; k < Tile::BK; ++k) {
        Acc a[TM], b[TN];
#pragma unroll
        for (int i = 0; i < TM; i += GM) {
          auto v = *(const Vec<Acc, GM> *)&sharedA[slot][k * A::STRIDE + i * Tile::THREADS_M + tm * GM];
#pragma unroll
          for (int e = 0; e < GM; ++e) a[i + e] = v.v[e];
        }
#pragma unroll
        for (int j = 0; j < TN; j += GN) {
          auto v = *(const Vec<Acc, GN> *)&sharedB[slot][k * B::STRIDE + j * Tile::THREADS_N + tn * GN];
#pragma unroll
          for (int e = 0; e < GN; ++e) b[j + e] = v.v[e];
        }
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) acc[i][j] = multiplyAdd(a[i], b[j], acc[i][j]);
      }
    }
    if (more) {
      A::store(heldA, sharedA[slot ^ 1]);
      B::store(heldB, sharedB[slot ^ 1]);
    }
    __syncthreads();
    slot ^= 1;
  }

  // As many rows of sums as the memory holds at a time go through it, so that the epilogue
  // stands once and neighbouring threads take neighbouring columns.
  constexpr int L = H::kLanes, STRIDE = Tile::BN + 4, ROWS = Tile::THREADS_M;
  constexpr int FIT = 2 * Tile::BK * (A::STRIDE + B::STRIDE) / (STRIDE * ROWS);
  constexpr int PASS = FIT >= TM ? TM : FIT >= 4 ? 4 : FIT >= 2 ? 2 : 1;
  static_assert(FIT >= 1 && TM % PASS == 0, "the stage holds whole passes");
#pragma unroll
  for (int i0 = 0; i0 < TM; i0 += PASS) {
#pragma unroll
    for (int i = 0; i < PASS; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j)
        memory[(i * ROWS + tm) * STRIDE + j / GN * GN * Tile::THREADS_N + tn * GN + j % GN] = acc[i0 + i][j];
    __syncthreads();
#pragma unroll 1
    for (int e = threadIdx.x; e < PASS * ROWS * Tile::BN / L; e += Tile::THREADS) {
      const int row = e / (Tile::BN / L), col = e % (Tile::BN / L) * L, i = i0 + row / ROWS;
      const i64 m = t.m + i / GM * GM * ROWS + row % ROWS * GM + i % GM, n = t.n + col;
      if (m < M && n < N) {
        Vec<Acc, L> sums;
#pragma unroll
        for (int x = 0; x < L; ++x) sums.v[x] = memory[row * STRIDE + col + x];
        h.epilogue(t.batch, m, n, sums);
      }
    }
    if (i0 + PASS < TM) __syncthreads();
  }
}

#endif // LATHE_DEVICE_GEMM
