//===- collective.cuh - all-reduce, all-gather and reduce-scatter of GPUs -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: peers, reduce
//
// N ranks reduce and gather through each other's memory. What the parameters are stands in
// include/lathe/engine/CollectiveAbi.h. Reductions go from rank 0 on, whoever computes them: all ranks have the same bits.
// A kernel has waited for those ahead of it in its stream before it calls one of these.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_COLLECTIVE
#define LATHE_DEVICE_COLLECTIVE

namespace collective { // kernels have the names of these

/// What a reduction of T is computed in.
template <class T> struct SumType { typedef T Type; };
template <> struct SumType<f16> { typedef f32 Type; };
template <> struct SumType<bf16> { typedef f32 Type; };

/// 16 bytes of T.
template <class T> struct Vector16 {
  static constexpr int COUNT = 16 / (int)sizeof(T);
  typedef Vec<T, COUNT> Type;
};

/// Vector `v` of `count` elements; zeros beyond the end.
template <class T> LATHE_DEV Bits16 loadVector(const T *p, i64 v, i64 count) {
  constexpr int E = Vector16<T>::COUNT;
  if ((v + 1) * E <= count) return loadGlobal16(p + v * E);
  const typename Vector16<T>::Type x = loadVecPartial<T, E>(p + v * E, count - v * E);
  Bits16 bits;
  memcpy(&bits, &x, 16);
  return bits;
}
template <class T> LATHE_DEV void storeVector(T *p, i64 v, i64 count, const Bits16 &bits) {
  constexpr int E = Vector16<T>::COUNT;
  if ((v + 1) * E <= count) {
    storeGlobal16(p + v * E, bits);
  } else {
    typename Vector16<T>::Type x;
    memcpy(&x, &bits, 16);
    storeVecPartial<T, E>(p + v * E, x, count - v * E);
  }
}

/// From rank 0 on.
template <class T, class Op, int N>
LATHE_DEV Vec<typename SumType<T>::Type, Vector16<T>::COUNT> total(const Bits16 (&all)[N]) {
  typedef typename SumType<T>::Type Sum;
  constexpr int E = Vector16<T>::COUNT;
  Vec<Sum, E> sum;
#pragma unroll
  for (int r = 0; r < N; ++r) {
    typename Vector16<T>::Type x;
    memcpy(&x, &all[r], 16);
    const Vec<Sum, E> more = convert<Sum>(x);
#pragma unroll
    for (int i = 0; i < E; ++i) sum.v[i] = r == 0 ? more.v[i] : Op::apply(sum.v[i], more.v[i]);
  }
  return sum;
}
template <class T, class Op, int N> LATHE_DEV Bits16 combine(const Bits16 (&all)[N]) {
  const typename Vector16<T>::Type y = convert<T>(total<T, Op>(all));
  Bits16 bits;
  memcpy(&bits, &y, 16);
  return bits;
}

// ---- All-reduce through slots ----------------------------------------------------
// Vectors go round the blocks; what a thread sends, threads of its number receive.

/// Everything is sent to everyone at once.
template <int N, class T, class Op> LATHE_DEV void allReduceOneShot(const T *in, T *out, i64 count, const Peers<N> &peers) {
  const i64 vectors = ceilDiv(count, Vector16<T>::COUNT), stride = (i64)gridDim.x * blockDim.x;
  const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  const int place = threadIdx.x * 16, turn = blockDim.x * 16;
  const u32 epoch = peers.epoch();
  Bits16 own;
  if (first < vectors) {
    own = neverEmpty(loadVector(in, first, count));
    putIntoSlots(peers, epoch, place, own);
  }
  int at = place + turn;
  for (i64 v = first + stride; v < vectors; v += stride, at += turn)
    putIntoSlots(peers, epoch, at, neverEmpty(loadVector(in, v, count)));
  at = place;
  for (i64 v = first; v < vectors; v += stride, at += turn) {
    Bits16 all[N];
    takeFromSlots(peers, epoch, at, v == first ? own : neverEmpty(loadVector(in, v, count)), all);
    storeVector(out, v, count, combine<T, Op>(all));
  }
  peers.endEpoch(epoch);
}

/// A rank reduces its part of what all have, and sends it to everyone. The second half of a slot is for that.
template <int N, class T, class Op> LATHE_DEV void allReduceTwoShot(const T *in, T *out, i64 count, const Peers<N> &peers) {
  const i64 vectors = ceilDiv(count, Vector16<T>::COUNT), part = ceilDiv(vectors, N);
  const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, stride = (i64)gridDim.x * blockDim.x;
  const int place = threadIdx.x * 16, turn = blockDim.x * 16, rank = peers.rank;
  const u32 epoch = peers.epoch();
  int at = place;
  for (i64 j = first; j < part; j += stride, at += turn) {
    Bits16 mine[N];
#pragma unroll
    for (int r = 0; r < N; ++r)
      if (r != rank && r * part + j < vectors) mine[r] = loadVector(in, r * part + j, count);
#pragma unroll
    for (int r = 0; r < N; ++r)
      if (r != rank && r * part + j < vectors) storeSystem16(peers.slot(r, rank, epoch) + at, neverEmpty(mine[r]));
  }
  at = place;
  for (i64 j = first; j < part; j += stride, at += turn) {
    const i64 v = rank * part + j;
    if (v >= vectors) break;
    Bits16 all[N];
    takeFromSlots(peers, epoch, at, neverEmpty(loadVector(in, v, count)), all);
    const Bits16 sum = neverEmpty(combine<T, Op>(all));
    putIntoSlots(peers, epoch, at + kSlotBytes / 2, sum);
    storeVector(out, v, count, sum);
  }
  at = place;
  for (i64 j = first; j < part; j += stride, at += turn) {
    u8 *here = peers.slot(rank, 0, epoch) + kSlotBytes / 2 + at;
    Bits16 all[N];
    u32 from = 0;
#pragma unroll
    for (int r = 0; r < N; ++r)
      if (r != rank && r * part + j < vectors) {
        all[r] = loadSystem16(here + r * kSlotBytes);
        from |= 1u << r;
      }
    waitForSlots(peers, here, from, all);
#pragma unroll
    for (int r = 0; r < N; ++r)
      if (from >> r & 1) {
        emptySlot(here + r * kSlotBytes);
        storeVector(out, r * part + j, count, all[r]);
      }
  }
  peers.endEpoch(epoch);
}

// ---- On the operands themselves ----------------------------------------------------

/// Vectors that a thread has on the way at a time, from each rank.
template <int N> struct Ahead { static constexpr int COUNT = N <= 2 ? 8 : N <= 4 ? 2 : 1; };

/// A rank reduces its part of what all have, and writes it to everyone; nobody else reads or writes that part.
template <int N, class T, class Op> LATHE_DEV void allReduceDirect(const T *in, T *out, i64 count, const Peers<N> &peers) {
  constexpr int AHEAD = Ahead<N>::COUNT;
  const i64 vectors = ceilDiv(count, Vector16<T>::COUNT), part = ceilDiv(vectors, N);
  const i64 begin = peers.rank * part, end = minIndex(begin + part, vectors);
  const i64 stride = (i64)gridDim.x * blockDim.x;
  const u32 epoch = peers.epoch();
  peers.template meet<false>(epoch);
  for (i64 v = begin + (i64)blockIdx.x * blockDim.x + threadIdx.x; v < end; v += AHEAD * stride) {
    Bits16 all[AHEAD][N];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a)
      if (v + a * stride < end)
#pragma unroll
        for (int r = 0; r < N; ++r) all[a][r] = loadVector(peers.at(in, r), v + a * stride, count);
#pragma unroll
    for (int a = 0; a < AHEAD; ++a)
      if (v + a * stride < end) {
        const Bits16 sum = combine<T, Op>(all[a]);
#pragma unroll
        for (int r = 0; r < N; ++r) storeVector(peers.at(out, r), v + a * stride, count, sum);
      }
  }
  peers.template meet<true>(epoch);
  peers.endEpoch(epoch);
}

/// Vector `i` of a part of rows of `run` vectors is this one of the whole.
template <int N> LATHE_DEV i64 placeInWhole(i64 i, i64 run, int rank) {
  const i64 row = divIndex(i, run);
  return (row * N + rank) * run + (i - row * run);
}

/// Part [rows][run] to whole [rows][N][run], `run` in bytes.
template <int N> LATHE_DEV void allGather(const u8 *in, u8 *out, i64 rows, i64 run, const Peers<N> &peers) {
  const i64 wide = run / 16, vectors = rows * wide, stride = (i64)gridDim.x * blockDim.x;
  const u32 epoch = peers.epoch();
  peers.template meet<false>(epoch); // nobody uses the memory of `out` any more
  for (i64 v = (i64)blockIdx.x * blockDim.x + threadIdx.x; v < vectors; v += stride) {
    const Bits16 x = loadGlobal16(in + v * 16);
    u8 *to = out + placeInWhole<N>(v, wide, peers.rank) * 16;
#pragma unroll
    for (int r = 0; r < N; ++r) storeGlobal16(peers.at(to, r), x);
  }
  peers.template meet<true>(epoch);
  peers.endEpoch(epoch);
}

/// Whole [rows][N][run] to the reduction of a part [rows][run], `run` in elements.
template <int N, class T, class Op>
LATHE_DEV void reduceScatter(const T *in, T *out, i64 rows, i64 run, const Peers<N> &peers) {
  const i64 wide = run / Vector16<T>::COUNT, vectors = rows * wide, stride = (i64)gridDim.x * blockDim.x;
  const u32 epoch = peers.epoch();
  peers.template meet<false>(epoch);
  for (i64 v = (i64)blockIdx.x * blockDim.x + threadIdx.x; v < vectors; v += stride) {
    const T *from = in + placeInWhole<N>(v, wide, peers.rank) * Vector16<T>::COUNT;
    Bits16 all[N];
#pragma unroll
    for (int r = 0; r < N; ++r) all[r] = loadGlobal16(peers.at(from, r));
    storeGlobal16(out + v * Vector16<T>::COUNT, combine<T, Op>(all));
  }
  peers.template meet<true>(epoch); // nobody reads `in` any more
  peers.endEpoch(epoch);
}

// ---- With a residual and a norm ------------------------------------------------------

constexpr int kNormWarps = 16; // of a block, at most

/// The sum over a block of whole warps, in a fixed order; calls in turn have memory of their own.
LATHE_DEV f32 sumOverBlock(f32 v, int turn) {
  __shared__ __align__(16) f32 parts[2][kNormWarps];
  f32 *mine = parts[turn % 2];
  v = warpReduce<SumOp>(v);
  if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = v;
  if (threadIdx.x < kNormWarps && threadIdx.x >= blockDim.x / 32) mine[threadIdx.x] = 0;
  __syncthreads();
  Vec<f32, 4> sum = loadShared<f32, 4>(mine);
#pragma unroll
  for (int i = 4; i < kNormWarps; i += 4) sum = sum + loadShared<f32, 4>(mine + i);
  return (sum.v[0] + sum.v[1]) + (sum.v[2] + sum.v[3]);
}

/// One-shot; a block a row, whose vectors its threads have in registers, in f32 until they are results.
template <int N, class T>
LATHE_DEV void allReduceNorm(const T *in, const T *residual, const T *weight, T *sums, T *normed, i64 rows, i64 columns,
                             f32 epsilon, const Peers<N> &peers) {
  typedef typename Vector16<T>::Type Vector;
  constexpr int E = Vector16<T>::COUNT, MOST = 2;
  const int wide = (int)columns / E, rowBytes = wide * 16;
  const u32 epoch = peers.epoch();
  Bits16 own[MOST]; // of the block's first row
  for (int turn = 0; blockIdx.x + turn * gridDim.x < rows; ++turn)
#pragma unroll
    for (int k = 0; k < MOST; ++k)
      if (const int c = threadIdx.x + k * blockDim.x; c < wide) {
        const i64 row = blockIdx.x + turn * gridDim.x;
        const Bits16 x = neverEmpty(loadGlobal16(in + row * columns + c * E));
        putIntoSlots(peers, epoch, turn * rowBytes + c * 16, x);
        if (turn == 0) own[k] = x;
      }
  for (int turn = 0; blockIdx.x + turn * gridDim.x < rows; ++turn) {
    const i64 row = blockIdx.x + turn * gridDim.x;
    Vec<f32, E> x[MOST];
    Vector more[MOST], scale[MOST];
#pragma unroll
    for (int k = 0; k < MOST; ++k)
      if (const int c = threadIdx.x + k * blockDim.x; c < wide) {
        more[k] = residual ? loadVec<T, E>(residual + row * columns + c * E) : Vector{};
        scale[k] = loadVecConst<T, E>(weight + c * E);
        if (turn > 0) own[k] = neverEmpty(loadGlobal16(in + row * columns + c * E));
      }
    f32 squares = 0;
#pragma unroll
    for (int k = 0; k < MOST; ++k)
      if (const int c = threadIdx.x + k * blockDim.x; c < wide) {
        Bits16 all[N];
        takeFromSlots(peers, epoch, turn * rowBytes + c * 16, own[k], all);
        x[k] = total<T, SumOp>(all);
        if (residual) x[k] = x[k] + convert<f32>(more[k]);
#pragma unroll
        for (int i = 0; i < E; ++i) squares += x[k].v[i] * x[k].v[i];
        storeVec<T, E>(sums + row * columns + c * E, convert<T>(x[k])); // on its way while the block adds up
      }
    squares = sumOverBlock(squares, turn);
    f32 factor;
    if constexpr (IsHalf<T>::value) factor = fastDivide(1.0f, mathSqrt(fastDivide(squares, (f32)columns) + epsilon));
    else factor = mathRsqrt(squares / (f32)columns + epsilon);
#pragma unroll
    for (int k = 0; k < MOST; ++k)
      if (const int c = threadIdx.x + k * blockDim.x; c < wide) {
        const i64 place = row * columns + c * E;
        storeVec<T, E>(normed + place, convert<T>(x[k] * splat<E>(factor) * convert<f32>(scale[k])));
      }
  }
  peers.endEpoch(epoch);
}

} // namespace collective

#endif // LATHE_DEVICE_COLLECTIVE
