//===- reduce.cuh - warp and block reductions ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math
//
// Reductions over the threads of a block. The order of combination depends on
// the block shape alone, so results are the same in every run. All threads of
// the block take part and all get the result.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_REDUCE
#define LATHE_DEVICE_REDUCE

template <class T> LATHE_DEV T shuffleXor(T v, int mask) {
  if constexpr (sizeof(T) == 8) {
    u32 w[2];
    memcpy(w, &v, 8);
    w[0] = shuffleXor32(w[0], mask);
    w[1] = shuffleXor32(w[1], mask);
    memcpy(&v, w, 8);
  } else {
    u32 w = 0;
    memcpy(&w, &v, sizeof(T));
    w = shuffleXor32(w, mask);
    memcpy(&v, &w, sizeof(T));
  }
  return v;
}

// Integers wrap, which C++ has for unsigned ones only.
struct SumOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return (T)(asUnsigned(a) + asUnsigned(b)); } };
struct ProdOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return (T)(asUnsigned(a) * asUnsigned(b)); } };
struct MaxOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return maximum(a, b); } };
struct MinOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return minimum(a, b); } };
struct MaxNumOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return maxNum(a, b); } };
struct MinNumOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return minNum(a, b); } };
struct AndOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return (T)(a & b); } };
struct OrOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return (T)(a | b); } };
struct XorOp { template <class T> static LATHE_METHOD T apply(T a, T b) { return (T)(a ^ b); } };

/// Combines LANES consecutive lanes (a power of two, at most 32).
template <class Op, int LANES = 32, class T> LATHE_DEV T warpReduce(T v) {
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask >>= 1) v = Op::apply(v, shuffleXor(v, mask));
  return v;
}

/// Combines all THREADS threads of a one-dimensional block; THREADS is a power
/// of two below 32 or a multiple of 32.
template <class Op, int THREADS, class T> LATHE_DEV T blockReduce(T v) {
  if constexpr (THREADS <= 32) {
    return warpReduce<Op, THREADS>(v);
  } else {
    constexpr int warps = THREADS / 32;
    __shared__ T part[warps];
    v = warpReduce<Op>(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    T r = part[0];
#pragma unroll
    for (int i = 1; i < warps; ++i) r = Op::apply(r, part[i]);
    __syncthreads(); // part is free for the next reduction
    return r;
  }
}

/// Combines the elements of a register vector, first to last.
template <class Op, class T, int N> LATHE_DEV T vecReduce(const Vec<T, N> &x) {
  T r = x.v[0];
#pragma unroll
  for (int i = 1; i < N; ++i) r = Op::apply(r, x.v[i]);
  return r;
}

/// A value and where it was found, for argmax and argmin: the first of equal ones.
template <class T> struct Indexed { T value; i64 index; };
template <bool MAX, bool LAST, class T>
LATHE_DEV Indexed<T> betterOf(Indexed<T> a, Indexed<T> b) {
  bool tie = a.value == b.value || (isNan(a.value) && isNan(b.value));
  bool before = LAST ? b.index > a.index : b.index < a.index;
  bool beats = isNan(a.value) ? false : isNan(b.value) ? true : MAX ? b.value > a.value : b.value < a.value;
  return (tie ? before : beats) ? b : a;
}
template <bool MAX, bool LAST, int THREADS, class T> LATHE_DEV Indexed<T> blockArg(Indexed<T> v) {
#pragma unroll
  for (int mask = (THREADS < 32 ? THREADS : 32) / 2; mask > 0; mask >>= 1)
    v = betterOf<MAX, LAST>(v, Indexed<T>{shuffleXor(v.value, mask), shuffleXor(v.index, mask)});
  if constexpr (THREADS > 32) {
    constexpr int warps = THREADS / 32;
    __shared__ Indexed<T> part[warps];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int i = 1; i < warps; ++i) v = betterOf<MAX, LAST>(v, part[i]);
    __syncthreads();
  }
  return v;
}

#endif // LATHE_DEVICE_REDUCE
