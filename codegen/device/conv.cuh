//===- conv.cuh - convolution skeletons ------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm
//
// Two dimensions; one dimension is a picture of one row. Holes:
//
//   typedef ... Element, Acc;
//   Element loadX(i64 n, i64 c, i64 y, i64 x);      never called in the padding
//   Element loadW(i64 k, i64 c, i64 r, i64 s);      c counts inside the group
//   static constexpr bool kPlainWeights;            channels first: weights() is [filters][c, r, s] in
//   const Element *weights();                       rows of whole 16-byte pieces, and not loadW
//   static constexpr bool kChannelsLast;            layout of the result: epilogues run along the
//                                                   filters, else along x
//   static constexpr int kLanes;                    epilogue width, divides the filters of a group or the width
//   void epilogue(i64 n, i64 k, i64 y, i64 x, Vec<Acc, kLanes> sums);
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_CONV
#define LATHE_DEVICE_CONV

/// Filter sizes and steps are constants of a model; sizes of images are not.
template <int R_, int S_, int STRIDE_Y_, int STRIDE_X_, int DILATION_Y_, int DILATION_X_>
struct ConvWindow {
  static constexpr int R = R_, S = S_, STRIDE_Y = STRIDE_Y_, STRIDE_X = STRIDE_X_;
  static constexpr int DILATION_Y = DILATION_Y_, DILATION_X = DILATION_X_;
};
struct ConvSizes {
  i64 batch, channels, height, width; // of the input
  i64 filters, groups, outHeight, outWidth;
  i64 padTop, padLeft;
};

/// A convolution as a matrix product: m = filter of the group, n = output pixel,
/// k = (channel, r, s), batch = (image, group).
template <class Window, class H> struct ConvAsGemm {
  typedef typename H::Element Element;
  typedef typename H::Acc Acc;
  static constexpr Operand kA = H::kPlainWeights ? Operand::AlongK : Operand::ComputedAlongK;
  static constexpr Operand kB = Operand::ComputedAcrossK;
  static constexpr int kLanes = H::kLanes, AREA = Window::R * Window::S;
  const H &holes;
  ConvSizes z;

  LATHE_METHOD i64 groupChannels() const { return z.channels / z.groups; }
  LATHE_METHOD i64 groupFilters() const { return z.filters / z.groups; }
  LATHE_METHOD const Element *baseA(i64 b) const {
    return holes.weights() + (u32)b % (u32)z.groups * groupFilters() * strideA();
  }
  LATHE_METHOD i64 strideA() const { return groupChannels() * AREA; }
  LATHE_METHOD Element loadA(i64 b, i64 m, i64 k) const {
    u32 group = (u32)b % (u32)z.groups, kk = (u32)k;
    return holes.loadW(group * groupFilters() + m, kk / AREA, kk % AREA / Window::S, kk % Window::S);
  }
  LATHE_METHOD Element loadB(i64 b, i64 k, i64 n) const {
    u32 group = (u32)b % (u32)z.groups, image = (u32)b / (u32)z.groups, kk = (u32)k, p = (u32)n;
    i64 y = (i64)(p / (u32)z.outWidth) * Window::STRIDE_Y - z.padTop + kk % AREA / Window::S * Window::DILATION_Y;
    i64 x = (i64)(p % (u32)z.outWidth) * Window::STRIDE_X - z.padLeft + kk % Window::S * Window::DILATION_X;
    if (y < 0 || y >= z.height || x < 0 || x >= z.width) return Element{};
    return holes.loadX(image, group * groupChannels() + kk / AREA, y, x);
  }
  LATHE_METHOD void epilogue(i64 b, i64 m, i64 n, Vec<Acc, kLanes> sums) const {
    u32 group = (u32)b % (u32)z.groups, image = (u32)b / (u32)z.groups, p = (u32)n;
    holes.epilogue(image, group * groupFilters() + m, p / (u32)z.outWidth, p % (u32)z.outWidth, sums);
  }
};

/// The same with pixels as rows and filters as columns, for results with channels last.
template <class Window, class H> struct ConvAsGemmLast {
  typedef typename H::Element Element;
  typedef typename H::Acc Acc;
  static constexpr Operand kA = Operand::ComputedAlongK, kB = Operand::ComputedAlongK;
  static constexpr int kLanes = H::kLanes, AREA = Window::R * Window::S;
  const H &holes;
  ConvSizes z;

  LATHE_METHOD i64 groupChannels() const { return z.channels / z.groups; }
  LATHE_METHOD i64 groupFilters() const { return z.filters / z.groups; }
  // Channels are the inner part of k: neighbours in memory.
  LATHE_METHOD Element loadA(i64 b, i64 m, i64 k) const {
    u32 group = (u32)b % (u32)z.groups, image = (u32)b / (u32)z.groups, p = (u32)m;
    u32 channels = (u32)groupChannels(), tap = (u32)k / channels, c = (u32)k - tap * channels;
    i64 y = (i64)(p / (u32)z.outWidth) * Window::STRIDE_Y - z.padTop + tap / Window::S * Window::DILATION_Y;
    i64 x = (i64)(p % (u32)z.outWidth) * Window::STRIDE_X - z.padLeft + tap % Window::S * Window::DILATION_X;
    if (y < 0 || y >= z.height || x < 0 || x >= z.width) return Element{};
    return holes.loadX(image, group * channels + c, y, x);
  }
  LATHE_METHOD Element loadB(i64 b, i64 k, i64 n) const {
    u32 group = (u32)b % (u32)z.groups, channels = (u32)groupChannels(), tap = (u32)k / channels;
    return holes.loadW(group * groupFilters() + n, (u32)k - tap * channels, tap / Window::S, tap % Window::S);
  }
  LATHE_METHOD void epilogue(i64 b, i64 m, i64 n, Vec<Acc, kLanes> sums) const {
    u32 group = (u32)b % (u32)z.groups, image = (u32)b / (u32)z.groups, p = (u32)m;
    holes.epilogue(image, group * groupFilters() + n, p / (u32)z.outWidth, p % (u32)z.outWidth, sums);
  }
};

template <class Tile, class Window, class H> LATHE_DEV void convMma(const H &h, const ConvSizes &z) {
  const i64 pixels = z.outHeight * z.outWidth, filters = z.filters / z.groups;
  const i64 depth = z.channels / z.groups * (Window::R * Window::S);
  if constexpr (H::kChannelsLast) gemmMma<Tile>(ConvAsGemmLast<Window, H>{h, z}, pixels, filters, depth);
  else gemmMma<Tile>(ConvAsGemm<Window, H>{h, z}, filters, pixels, depth);
}
template <class Tile, class Window, class H> LATHE_DEV void convSimt(const H &h, const ConvSizes &z) {
  const i64 pixels = z.outHeight * z.outWidth, filters = z.filters / z.groups;
  const i64 depth = z.channels / z.groups * (Window::R * Window::S);
  if constexpr (H::kChannelsLast) gemmSimt<Tile>(ConvAsGemmLast<Window, H>{h, z}, pixels, filters, depth);
  else gemmSimt<Tile>(ConvAsGemm<Window, H>{h, z}, filters, pixels, depth);
}

/// A thread per kLanes neighbouring results: pixels of a row, or with channels last filters of
/// a group. For depthwise convolutions and small groups; the grid covers all results.
template <class Window, class H> LATHE_DEV void convDirect(const H &h, const ConvSizes &z) {
  typedef typename H::Acc Acc;
  constexpr int L = H::kLanes;
  constexpr bool LAST = H::kChannelsLast;
  const u64 id = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u32 inner = (u32)((LAST ? z.filters : z.outWidth) / L);
  const u64 row = id / inner;
  const i64 at = (i64)(id - row * inner) * L;
  const u32 middle = (u32)(LAST ? z.outWidth : z.outHeight), outer = (u32)(LAST ? z.outHeight : z.filters);
  const u64 plane = row / middle;
  const i64 n = plane / outer;
  if (n >= z.batch) return;
  const i64 k = LAST ? at : (i64)(plane % outer);
  const i64 y0 = LAST ? (i64)(plane % outer) : (i64)(row - plane * middle);
  const i64 x0 = LAST ? (i64)(row - plane * middle) : at;
  const i64 groupChannels = z.channels / z.groups, groupFilters = z.filters / z.groups;
  Vec<Acc, L> sums = splat<L>((Acc)0);
#pragma unroll 1
  for (i64 c = 0; c < groupChannels; ++c)
#pragma unroll 1
    for (int r = 0; r < Window::R; ++r) {
      const i64 y = y0 * Window::STRIDE_Y - z.padTop + r * Window::DILATION_Y;
      if (y < 0 || y >= z.height) continue;
#pragma unroll
      for (int s = 0; s < Window::S; ++s)
#pragma unroll
        for (int i = 0; i < L; ++i) {
          const i64 x = (x0 + (LAST ? 0 : i)) * Window::STRIDE_X - z.padLeft + s * Window::DILATION_X;
          const i64 filter = k + (LAST ? i : 0);
          if (x >= 0 && x < z.width)
            sums.v[i] = multiplyAdd(convert<Acc>(h.loadX(n, filter / groupFilters * groupChannels + c, y, x)),
                                    convert<Acc>(h.loadW(filter, c, r, s)), sums.v[i]);
        }
    }
  h.epilogue(n, k, y0, x0, sums);
}

/// One filter a channel, channels last: a thread has kLanes channels of PIXELS neighbouring results,
/// for which it loads each pixel of a row once. Holes besides `epilogue`:
///   Vec<Element, kLanes> loadPixels(i64 n, i64 piece, i64 y, i64 x);   never called in the padding
///   Vec<Element, kLanes> loadTaps(i64 piece, i64 r, i64 s);
template <class Window, int PIXELS, class H> LATHE_DEV void convDepthwise(const H &h, const ConvSizes &z) {
  typedef typename H::Acc Acc;
  constexpr int L = H::kLanes, COLUMNS = (PIXELS - 1) * Window::STRIDE_X + (Window::S - 1) * Window::DILATION_X + 1;
  const u32 pieces = (u32)z.filters / L, blocks = ((u32)z.outWidth + PIXELS - 1) / PIXELS;
  const u64 id = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u32 piece = (u32)(id % pieces), x0 = (u32)(id / pieces % blocks) * PIXELS;
  const u64 row = id / ((u64)pieces * blocks);
  const i64 n = (i64)(row / (u32)z.outHeight), y0 = (i64)(row % (u32)z.outHeight);
  if (n >= z.batch) return;
  const i64 left = (i64)x0 * Window::STRIDE_X - z.padLeft;
  Vec<Acc, L> sums[PIXELS];
#pragma unroll
  for (int p = 0; p < PIXELS; ++p) sums[p] = splat<L>((Acc)0);
#pragma unroll 1
  for (int r = 0; r < Window::R; ++r) {
    const i64 y = y0 * Window::STRIDE_Y - z.padTop + r * Window::DILATION_Y;
    if (y < 0 || y >= z.height) continue;
    Vec<typename H::Element, L> pixels[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
      pixels[c] = left + c >= 0 && left + c < z.width ? h.loadPixels(n, piece, y, left + c)
                                                      : splat<L>(convert<typename H::Element>(0.0f));
#pragma unroll
    for (int s = 0; s < Window::S; ++s) {
      const Vec<typename H::Element, L> taps = h.loadTaps(piece, r, s);
#pragma unroll
      for (int p = 0; p < PIXELS; ++p)
#pragma unroll
        for (int l = 0; l < L; ++l)
          sums[p].v[l] = multiplyAdd(convert<Acc>(pixels[p * Window::STRIDE_X + s * Window::DILATION_X].v[l]),
                                     convert<Acc>(taps.v[l]), sums[p].v[l]);
    }
  }
#pragma unroll
  for (int p = 0; p < PIXELS; ++p)
    if (x0 + p < (u32)z.outWidth) h.epilogue(n, (i64)piece * L, y0, x0 + p, sums[p]);
}

#endif // LATHE_DEVICE_CONV
