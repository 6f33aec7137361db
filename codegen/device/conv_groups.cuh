//===- conv_groups.cuh - convolutions of many small groups, channels last --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: conv
//
// Groups of 4 to 64 channels are too few for a tile of a product. A block has a tile of TM x TN results of some
// neighbouring groups, CHANNELS of the image together. The pixels that these results need, and the groups' filters,
// are copied into shared memory once; each tap of the window reads the pixels where they lie. A group's products
// take its own channels alone.
//
// Its depth is counted in pieces of eight channels: all of a tap, then those of the next one. An instruction takes
// two of them, the second of the last step may be zeros.
//
// Groups of four channels and filters go two by two: a piece has the channels of both. Each is multiplied with the other
// one's channels made zeros, and of the results of eight filters its own four are kept, so that nothing of a group
// reaches the other, infinities and NaN included.
//
// Holes besides those of conv.cuh:
//   const Element *images();    [batch][height][width][channels], 16-byte aligned
//   const Element *weights();   [filters][taps][channels of a group]
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_CONV_GROUPS
#define LATHE_DEVICE_CONV_GROUPS

template <class Window, int TM_, int TN_, int CHANNELS_, int CHANNELS_OF_GROUP, int FILTERS_OF_GROUP> struct GroupsTile {
  static constexpr bool PAIRS = CHANNELS_OF_GROUP == 4; // of groups, each of which is one in what follows
  static_assert(!PAIRS || FILTERS_OF_GROUP == 4, "halves of eight filters");
  static constexpr int GROUP_CHANNELS = PAIRS ? 8 : CHANNELS_OF_GROUP, GROUP_FILTERS = PAIRS ? 8 : FILTERS_OF_GROUP;
  static constexpr int TM = TM_, TN = TN_, CHANNELS = CHANNELS_, THREADS = 128, WARPS = 4;
  static constexpr int WARP_PIXELS = TM * TN / WARPS, MI = WARP_PIXELS / 16, NI = GROUP_FILTERS / 8;
  static constexpr int GROUPS = CHANNELS / GROUP_CHANNELS, FILTERS = GROUPS * GROUP_FILTERS;
  static constexpr int TAP_PIECES = GROUP_CHANNELS / 8, PIECES = Window::R * Window::S * TAP_PIECES;
  static constexpr int STEPS = (PIECES + 1) / 2;
  // Pixels in shared memory; an odd number of pieces a row keeps neighbours in different banks.
  static constexpr int ROWS = (TM - 1) * Window::STRIDE_Y + (Window::R - 1) * Window::DILATION_Y + 1;
  static constexpr int COLUMNS = (TN - 1) * Window::STRIDE_X + (Window::S - 1) * Window::DILATION_X + 1;
  static constexpr int PIXEL_BYTES = (CHANNELS / 8 | 1) * 16, PIXELS_BYTES = ROWS * COLUMNS * PIXEL_BYTES;
  static constexpr int FILTER_PIECES = (PIECES + 3) / 4 * 4, FILTER_BYTES = (FILTER_PIECES | 1) * 16;
  static constexpr int STAGE_STRIDE = FILTERS + 8; // f32, padded against bank conflicts
  static constexpr int STAGE_BYTES = WARPS * 16 * STAGE_STRIDE * 4;
  static constexpr int FIRST_BYTES = PIXELS_BYTES > STAGE_BYTES ? PIXELS_BYTES : STAGE_BYTES;
  static constexpr int SHARED_BYTES = FIRST_BYTES + FILTERS * FILTER_BYTES + 16; // pixels or results, filters, zeros
  static_assert(WARP_PIXELS % 16 == 0 && CHANNELS % GROUP_CHANNELS == 0 && GROUP_CHANNELS % 8 == 0 &&
                GROUP_FILTERS % 8 == 0, "tile shape");

  /// Byte of a piece of a group's depth behind those of the first pixel of a window.
  static LATHE_METHOD u32 offset(int group, int piece) {
    const int tap = piece / TAP_PIECES;
    const int pixel = tap / Window::S * Window::DILATION_Y * COLUMNS + tap % Window::S * Window::DILATION_X;
    return (u32)(pixel * PIXEL_BYTES + (group * TAP_PIECES + piece % TAP_PIECES) * 16);
  }
};

/// A launch of a block for each tile of some neighbouring groups; those of all groups of a tile are neighbours.
template <class Tile, class Window, class H> LATHE_DEV void convGroups(const H &h, const ConvSizes &z) {
  typedef typename H::Element T;
  constexpr int MI = Tile::MI, NI = Tile::NI, L = H::kLanes, THREADS = Tile::THREADS;
  static_assert(Tile::NI * 8 % L == 0, "vectors of results stay in a group");
  LATHE_DYNAMIC_SHARED(shared);
  u8 *const filters = shared + Tile::FIRST_BYTES, *const zeros = filters + Tile::FILTERS * Tile::FILTER_BYTES;
  const SharedAddr pixelsAt = sharedAddr(shared), filtersAt = sharedAddr(filters), zerosAt = sharedAddr(zeros);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const u32 slabs = (u32)(z.channels / Tile::CHANNELS), slab = blockIdx.x % slabs;
  const u32 across = ((u32)z.outWidth + Tile::TN - 1) / Tile::TN, down = ((u32)z.outHeight + Tile::TM - 1) / Tile::TM;

  // Filters, and zeros for the last pieces of each.
  const T *const weights = h.weights() + (i64)slab * Tile::FILTERS * Tile::PIECES * (Tile::PAIRS ? 4 : 8);
  if constexpr (Tile::PAIRS) {
#pragma unroll 4
    for (int p = thread; p < Tile::FILTERS * Tile::FILTER_PIECES; p += THREADS) {
      const int filter = p / Tile::FILTER_PIECES, piece = p % Tile::FILTER_PIECES, half = filter / 4 % 2;
      u8 *const to = filters + filter * Tile::FILTER_BYTES + piece * 16;
      *(Vec<u32, 2> *)(to + half * 8) =
          piece < Tile::PIECES ? *(const Vec<u32, 2> *)(weights + (filter * Tile::PIECES + piece) * 4) : Vec<u32, 2>{};
      *(Vec<u32, 2> *)(to + (1 - half) * 8) = Vec<u32, 2>{};
    }
  }
#pragma unroll 4
  for (int p = Tile::PAIRS ? Tile::FILTERS * Tile::FILTER_PIECES : thread; p < Tile::FILTERS * Tile::FILTER_PIECES; p += THREADS) {
    const int filter = p / Tile::FILTER_PIECES, piece = p % Tile::FILTER_PIECES;
    const bool is = piece < Tile::PIECES;
    cpAsync16(filtersAt + filter * Tile::FILTER_BYTES + piece * 16,
              weights + (is ? (filter * Tile::PIECES + piece) * 8 : 0), is ? 16 : 0);
  }
  if (thread == 0) *(Vec<u32, 4> *)zeros = Vec<u32, 4>{};

  const i64 tile = blockIdx.x / slabs, n = tile / (across * down);
  const u32 inImage = (u32)(tile - n * (across * down));
  const i64 y0 = (i64)(inImage / across) * Tile::TM, x0 = (i64)(inImage % across) * Tile::TN;
  const i64 top = y0 * Window::STRIDE_Y - z.padTop, left = x0 * Window::STRIDE_X - z.padLeft;
  const T *const image = h.images() + n * z.height * z.width * z.channels + slab * Tile::CHANNELS;
#pragma unroll 4
  for (int p = thread; p < Tile::ROWS * Tile::COLUMNS * (Tile::CHANNELS / 8); p += THREADS) {
    const int pixel = p / (Tile::CHANNELS / 8), piece = p % (Tile::CHANNELS / 8);
    const i64 y = top + pixel / Tile::COLUMNS, x = left + pixel % Tile::COLUMNS;
    const bool inside = y >= 0 && y < z.height && x >= 0 && x < z.width;
    cpAsync16(pixelsAt + pixel * Tile::PIXEL_BYTES + piece * 16,
              image + (inside ? (y * z.width + x) * z.channels + piece * 8 : 0), inside ? 16 : 0);
  }
  cpAsyncCommit();
  cpAsyncWait<0>();
  __syncthreads();

  f32 acc[MI][Tile::GROUPS * NI][4];
  SharedAddr window[MI]; // of this lane's result, its first pixel
#pragma unroll
  for (int i = 0; i < MI; ++i) {
    const int q = warp * Tile::WARP_PIXELS + i * 16 + lane % 16;
    window[i] = pixelsAt + (q / Tile::TN * Window::STRIDE_Y * Tile::COLUMNS + q % Tile::TN * Window::STRIDE_X) *
                               Tile::PIXEL_BYTES;
#pragma unroll
    for (int j = 0; j < Tile::GROUPS * NI; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.0f;
  }
#pragma unroll
  for (int g = 0; g < Tile::GROUPS; ++g) {
    u32 b[NI][4];
    f32 second[MI][4]; // of pairs: sums of the second group
    if constexpr (Tile::PAIRS) {
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) second[i][e] = 0.0f;
    }
#pragma unroll
    for (int s = 0; s < Tile::STEPS; ++s) {
      if (s % 2 == 0) {
#pragma unroll
        for (int j = 0; j < NI; ++j)
          loadMatrix4(b[j], filtersAt + ((g * NI + j) * 8 + lane % 8) * Tile::FILTER_BYTES + (2 * s + lane / 8) * 16);
      }
#pragma unroll
      for (int i = 0; i < MI; ++i) {
        u32 a[4];
        SharedAddr from = window[i] + Tile::offset(g, 2 * s);
        if (lane >= 16) from = 2 * s + 1 < Tile::PIECES ? window[i] + Tile::offset(g, 2 * s + 1) : zerosAt;
        loadMatrix4(a, from);
        if constexpr (Tile::PAIRS) {
          // A thread of each four has two neighbouring channels of the eight.
          u32 other[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            other[e] = lane % 4 < 2 ? 0 : a[e];
            a[e] = lane % 4 < 2 ? a[e] : 0;
          }
          const u32 half[2] = {b[0][s % 2 * 2], b[0][s % 2 * 2 + 1]};
          mma(second[i], other, half, T{});
        }
#pragma unroll
        for (int j = 0; j < NI; ++j) {
          const u32 half[2] = {b[j][s % 2 * 2], b[j][s % 2 * 2 + 1]};
          mma(acc[i][g * NI + j], a, half, T{});
        }
      }
    }
    if constexpr (Tile::PAIRS) {
      // And two neighbouring filters.
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[i][g][e] = lane % 4 < 2 ? acc[i][g][e] : second[i][e];
    }
  }

  // Sums go through shared memory, so that each thread stores neighbouring results.
  __syncthreads();
  f32 *const stage = (f32 *)shared + warp * 16 * Tile::STAGE_STRIDE;
#pragma unroll
  for (int i = 0; i < MI; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::GROUPS * NI; ++j) {
      f32 *const at = stage + lane / 4 * Tile::STAGE_STRIDE + j * 8 + lane % 4 * 2;
      *(Vec<f32, 2> *)at = Vec<f32, 2>{{acc[i][j][0], acc[i][j][1]}};
      *(Vec<f32, 2> *)(at + 8 * Tile::STAGE_STRIDE) = Vec<f32, 2>{{acc[i][j][2], acc[i][j][3]}};
    }
    __syncwarp();
#pragma unroll(L >= 4 ? 2 : 1)
    for (int e = lane; e < 16 * Tile::FILTERS / L; e += 32) {
      const int row = e / (Tile::FILTERS / L), filter = e % (Tile::FILTERS / L) * L;
      const int q = warp * Tile::WARP_PIXELS + i * 16 + row;
      const i64 y = y0 + q / Tile::TN, x = x0 + q % Tile::TN;
      if (y < z.outHeight && x < z.outWidth)
        h.epilogue(n, (i64)slab * Tile::FILTERS + filter, y, x,
                   *(const Vec<f32, L> *)(stage + row * Tile::STAGE_STRIDE + filter));
    }
    __syncwarp();
  }
}

#endif // LATHE_DEVICE_CONV_GROUPS
