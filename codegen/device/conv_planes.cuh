//===- conv_planes.cuh - depthwise convolutions, channels first ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: conv
//
// A thread has a vector of neighbouring results of one row of a plane (a channel of an image), which begins where a
// vector of 16 bytes of the images' type begins in memory: at the ends of a row a part of it is another row's. What these
// results read of a row of the image is a few whole vectors, wherever it begins: they are read as they lie, and shifted.
// Neighbouring threads find most of them in the first-level cache.
//
// Holes besides `loadW` of conv.cuh:
//   const Element *images();    [batch][channels][height][width], 16-byte aligned
//   typedef ... Result;
//   Result result(i64 n, i64 k, i64 y, i64 x, Acc sum);     what is stored
//   static constexpr bool kPlainResults;  results lie as [batch][channels][outHeight][outWidth], 16-byte aligned, at
//   Result *results();                    results(); and not `epilogue`, whose kLanes is 1
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_CONV_PLANES
#define LATHE_DEVICE_CONV_PLANES

/// The vector at element `at` of `count`, of which those of a row are elements [begin, end): nothing outside of it is read
/// beyond whole vectors.
template <class T, int L> LATHE_DEV Vec<T, L> loadInRow(const T *p, i64 at, i64 begin, i64 end, i64 count) {
  if (at + L <= begin || at >= end) return splat<L>(convert<T>(0.0f));
  if (at >= 0 && at + L <= count) return loadVecConst<T, L>(p + at);
  Vec<T, L> r;
#pragma unroll
  for (int i = 0; i < L; ++i) r.v[i] = at + i >= begin && at + i < end ? p[at + i] : convert<T>(0.0f);
  return r;
}

/// Elements move D places towards the front, if they shall. With D known all of them stay in registers.
template <int D, class T, int N> LATHE_DEV void moveForward(T (&v)[N], bool is) {
#pragma unroll
  for (int i = 0; i + D < N; ++i) v[i] = is ? v[i + D] : v[i];
}

/// A launch of a thread for each of (outWidth + 2 L - 2) / L vectors of each row of results, fewer than 2^32.
template <class Window, int L, class H> LATHE_DEV void convPlanes(const H &h, const ConvSizes &z) {
  typedef typename H::Element T;
  typedef typename H::Acc Acc;
  static_assert(sizeof(T) * L == 16 && L <= 8, "a vector of images");
  constexpr int SPAN = (L - 1) * Window::STRIDE_X + (Window::S - 1) * Window::DILATION_X + 1; // that L results read
  constexpr int PIECES = (SPAN + 2 * L - 2) / L; // vectors that hold them wherever they begin
  const u32 pieces = ((u32)z.outWidth + 2 * L - 2) / L;
  const u32 id = blockIdx.x * blockDim.x + threadIdx.x, row = id / pieces;
  const u32 plane = row / (u32)z.outHeight;
  const i64 n = plane / (u32)z.channels, k = plane % (u32)z.channels, y0 = row % (u32)z.outHeight;
  if (n >= z.batch) return;
  const i64 first = (i64)row * z.outWidth;                            // result of the row, among all
  const i64 x0 = (i64)(id - row * pieces) * L - (i64)((u64)first % L);
  if (x0 >= z.outWidth) return;
  const i64 left = x0 * Window::STRIDE_X - z.padLeft, count = z.batch * z.channels * z.height * z.width;
  Acc sums[L];
#pragma unroll
  for (int i = 0; i < L; ++i) sums[i] = (Acc)0;
#pragma unroll 1
  for (int r = 0; r < Window::R; ++r) {
    const i64 y = y0 * Window::STRIDE_Y - z.padTop + r * Window::DILATION_Y;
    if (y < 0 || y >= z.height) continue;
    const i64 begin = ((i64)plane * z.height + y) * z.width, end = begin + z.width, at = floorDiv(begin + left, L) * L;
    Acc pixels[PIECES * L];
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const Vec<T, L> piece = loadInRow<T, L>(h.images(), at + p * L, begin, end, count);
#pragma unroll
      for (int i = 0; i < L; ++i) pixels[p * L + i] = convert<Acc>(piece.v[i]);
    }
    const int shift = (int)(begin + left - at);
    if constexpr (L > 4) moveForward<4>(pixels, (shift & 4) != 0);
    moveForward<2>(pixels, (shift & 2) != 0);
    moveForward<1>(pixels, (shift & 1) != 0);
    if (left < 0 || left + SPAN > z.width) {
#pragma unroll
      for (int i = 0; i < SPAN; ++i)
        if (left + i < 0 || left + i >= z.width) pixels[i] = (Acc)0;
    }
#pragma unroll
    for (int s = 0; s < Window::S; ++s) {
      const Acc tap = convert<Acc>(h.loadW(k, 0, r, s));
#pragma unroll
      for (int i = 0; i < L; ++i)
        sums[i] = multiplyAdd(pixels[i * Window::STRIDE_X + s * Window::DILATION_X], tap, sums[i]);
    }
  }
  if constexpr (H::kPlainResults) {
    Vec<typename H::Result, L> made;
#pragma unroll
    for (int i = 0; i < L; ++i)
      if (x0 + i >= 0 && x0 + i < z.outWidth) made.v[i] = h.result(n, k, y0, x0 + i, sums[i]);
    if (x0 >= 0 && x0 + L <= z.outWidth) {
      storeVec(h.results() + first + x0, made);
    } else {
#pragma unroll
      for (int i = 0; i < L; ++i)
        if (x0 + i >= 0 && x0 + i < z.outWidth) h.results()[first + x0 + i] = made.v[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < L; ++i)
      if (x0 + i >= 0 && x0 + i < z.outWidth) h.epilogue(n, k, y0, x0 + i, Vec<Acc, 1>{{sums[i]}});
  }
}

#endif // LATHE_DEVICE_CONV_PLANES
