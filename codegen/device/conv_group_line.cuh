//===- conv_group_line.cuh - groups of a line with long windows, channels last ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: conv_groups
//
// A block has TN neighbouring results of one group of a line (an image of one row). The pixels that they need are copied
// into shared memory once, as in conv_groups.cuh; the group's filters follow TAPS taps at a time, some such stages ahead.
// A stage is a few instructions for each result, whose pixels lie the same way in each stage.
//
// Holes: those of conv_groups.cuh.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_CONV_GROUP_LINE
#define LATHE_DEVICE_CONV_GROUP_LINE

template <class Window, int TN_, int TAPS_, int STAGES_, int CHANNELS_, int FILTERS_> struct GroupLineTile {
  static constexpr int TN = TN_, TAPS = TAPS_, STAGES = STAGES_, CHANNELS = CHANNELS_, FILTERS = FILTERS_;
  static constexpr int THREADS = 128, WARPS = 4, MI = TN / WARPS / 16, NI = FILTERS / 8;
  static constexpr int TAP_PIECES = CHANNELS / 8, PIECES = TAPS * TAP_PIECES, STEPS = (PIECES + 1) / 2; // of a stage
  static constexpr int COUNT = Window::S / TAPS; // of stages
  // An odd number of pieces a row keeps neighbours in different banks.
  static constexpr int COLUMNS = (TN - 1) * Window::STRIDE_X + (Window::S - 1) * Window::DILATION_X + 1;
  static constexpr int PIXEL_BYTES = (TAP_PIECES | 1) * 16, PIXELS_BYTES = COLUMNS * PIXEL_BYTES;
  static constexpr int FILTER_PIECES = (PIECES + 3) / 4 * 4, FILTER_BYTES = (FILTER_PIECES | 1) * 16;
  static constexpr int STAGE_BYTES = FILTERS * FILTER_BYTES;
  static constexpr int SUMS_STRIDE = FILTERS + 8, SUMS_BYTES = WARPS * 16 * SUMS_STRIDE * 4; // f32, padded as well
  static constexpr int FIRST_BYTES = PIXELS_BYTES > SUMS_BYTES ? PIXELS_BYTES : SUMS_BYTES;
  static constexpr int SHARED_BYTES = FIRST_BYTES + STAGES * STAGE_BYTES + 16; // pixels or sums, filters, zeros
  static_assert(Window::R == 1 && Window::S % TAPS == 0 && TN % 64 == 0 && CHANNELS % 8 == 0 && FILTERS % 8 == 0, "tile shape");

  /// Byte of a piece of a stage behind those of its first pixel.
  static LATHE_METHOD u32 offset(int piece) {
    return (u32)(piece / TAP_PIECES * Window::DILATION_X * PIXEL_BYTES + piece % TAP_PIECES * 16);
  }
};

/// A launch of a block for each TN results of each group; the groups of a tile are neighbours.
template <class Tile, class Window, class H> LATHE_DEV void convGroupLine(const H &h, const ConvSizes &z) {
  typedef typename H::Element T;
  constexpr int MI = Tile::MI, NI = Tile::NI, L = H::kLanes, THREADS = Tile::THREADS;
  static_assert(Tile::FILTERS % L == 0, "vectors of results stay in a group");
  LATHE_DYNAMIC_SHARED(shared);
  u8 *const zeros = shared + Tile::FIRST_BYTES + Tile::STAGES * Tile::STAGE_BYTES;
  const SharedAddr pixelsAt = sharedAddr(shared), filtersAt = sharedAddr(shared + Tile::FIRST_BYTES), zerosAt = sharedAddr(zeros);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const u32 group = blockIdx.x % (u32)z.groups, tile = blockIdx.x / (u32)z.groups;
  const u32 across = ((u32)z.outWidth + Tile::TN - 1) / Tile::TN;
  const i64 n = tile / across, x0 = (i64)(tile % across) * Tile::TN, left = x0 * Window::STRIDE_X - z.padLeft;

  const T *const weights = h.weights() + (i64)group * Tile::FILTERS * (Tile::COUNT * Tile::PIECES * 8);
  auto copyFilters = [&](int stage) {
    const SharedAddr to = filtersAt + stage % Tile::STAGES * Tile::STAGE_BYTES;
#pragma unroll 4
    for (int p = thread; p < Tile::FILTERS * Tile::FILTER_PIECES; p += THREADS) {
      const int filter = p / Tile::FILTER_PIECES, piece = p % Tile::FILTER_PIECES;
      const bool is = piece < Tile::PIECES;
      cpAsync16(to + filter * Tile::FILTER_BYTES + piece * 16,
                weights + (is ? ((filter * Tile::COUNT + stage) * Tile::PIECES + piece) * 8 : 0), is ? 16 : 0);
    }
  };
  if (thread == 0) *(Vec<u32, 4> *)zeros = Vec<u32, 4>{};
  const T *const image = h.images() + n * z.width * z.channels + group * Tile::CHANNELS;
#pragma unroll 4
  for (int p = thread; p < Tile::COLUMNS * Tile::TAP_PIECES; p += THREADS) {
    const int pixel = p / Tile::TAP_PIECES, piece = p % Tile::TAP_PIECES;
    const i64 x = left + pixel;
    const bool inside = x >= 0 && x < z.width;
    cpAsync16(pixelsAt + pixel * Tile::PIXEL_BYTES + piece * 16, image + (inside ? x * z.channels + piece * 8 : 0), inside ? 16 : 0);
  }
#pragma unroll
  for (int s = 0; s < Tile::STAGES - 1; ++s) { // the first with the pixels
    if (s < Tile::COUNT) copyFilters(s);
    cpAsyncCommit();
  }

  f32 acc[MI][NI][4];
  SharedAddr window[MI]; // of this lane's result, its first pixel
#pragma unroll
  for (int i = 0; i < MI; ++i) {
    window[i] = pixelsAt + (warp * MI * 16 + i * 16 + lane % 16) * Window::STRIDE_X * Tile::PIXEL_BYTES;
#pragma unroll
    for (int j = 0; j < NI; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.0f;
  }
#pragma unroll 1
  for (int stage = 0; stage < Tile::COUNT; ++stage) {
    cpAsyncWait<Tile::STAGES - 2>();
    __syncthreads();
    if (stage + Tile::STAGES - 1 < Tile::COUNT) copyFilters(stage + Tile::STAGES - 1);
    cpAsyncCommit();
    const SharedAddr filters = filtersAt + stage % Tile::STAGES * Tile::STAGE_BYTES;
    u32 b[NI][4];
#pragma unroll
    for (int s = 0; s < Tile::STEPS; ++s) {
      if (s % 2 == 0) {
#pragma unroll
        for (int j = 0; j < NI; ++j)
          loadMatrix4(b[j], filters + (j * 8 + lane % 8) * Tile::FILTER_BYTES + (2 * s + lane / 8) * 16);
      }
#pragma unroll
      for (int i = 0; i < MI; ++i) {
        u32 a[4];
        SharedAddr from = window[i] + Tile::offset(2 * s);
        if (lane >= 16) from = 2 * s + 1 < Tile::PIECES ? window[i] + Tile::offset(2 * s + 1) : zerosAt;
        loadMatrix4(a, from);
#pragma unroll
        for (int j = 0; j < NI; ++j) {
          const u32 half[2] = {b[j][s % 2 * 2], b[j][s % 2 * 2 + 1]};
          mma(acc[i][j], a, half, T{});
        }
      }
    }
#pragma unroll
    for (int i = 0; i < MI; ++i) window[i] += Tile::TAPS * Window::DILATION_X * Tile::PIXEL_BYTES;
  }
  cpAsyncWait<0>();

  // Sums go through shared memory, so that each thread stores neighbouring results.
  __syncthreads();
  f32 *const sums = (f32 *)shared + warp * 16 * Tile::SUMS_STRIDE;
#pragma unroll
  for (int i = 0; i < MI; ++i) {
#pragma unroll
    for (int j = 0; j < NI; ++j) {
      f32 *const at = sums + lane / 4 * Tile::SUMS_STRIDE + j * 8 + lane % 4 * 2;
      *(Vec<f32, 2> *)at = Vec<f32, 2>{{acc[i][j][0], acc[i][j][1]}};
      *(Vec<f32, 2> *)(at + 8 * Tile::SUMS_STRIDE) = Vec<f32, 2>{{acc[i][j][2], acc[i][j][3]}};
    }
    __syncwarp();
#pragma unroll(L >= 4 ? 2 : 1)
    for (int e = lane; e < 16 * Tile::FILTERS / L; e += 32) {
      const int row = e / (Tile::FILTERS / L), filter = e % (Tile::FILTERS / L) * L;
      const i64 x = x0 + (warp * MI + i) * 16 + row;
      if (x < z.outWidth)
        h.epilogue(n, (i64)group * Tile::FILTERS + filter, 0, x, *(const Vec<f32, L> *)(sums + row * Tile::SUMS_STRIDE + filter));
    }
    __syncwarp();
  }
}

#endif // LATHE_DEVICE_CONV_GROUP_LINE
