//===- conv_hopper.cuh - convolutions of sm_90a -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: gemm_hopper
//
// A convolution is a product (gemm_hopper.cuh): its rows are the pixels of all results, its
// columns the filters, its depth the taps of the window with 128 bytes of the channels of each at a time.
// TMA makes the rows from images with channels last as it loads them; outside of
// an image it loads zeros. Of images of at most 64 bytes a pixel a stage has two taps, each in a tile of rows
// of 64 bytes. What the compiler's H has besides the holes of a product:
//
//   static constexpr bool kImages = true;
//   void loadImages(SharedAddr to, const TensorMap &map, SharedAddr bar, u32 group, u32 pixel, u32 step);
//
// which is loadWindows below. Weights are [filters][taps][channels, filled to 128 bytes].
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_CONV_HOPPER
#define LATHE_DEVICE_CONV_HOPPER

/// One dimension of a window.
template <int EXTENT_, int STRIDE_, int DILATION_, int PAD_> struct ImageAxis {
  static constexpr int EXTENT = EXTENT_, STRIDE = STRIDE_, DILATION = DILATION_, PAD = PAD_;
};
/// CHUNKS times WIDE channels of a group; images of fewer than three dimensions have one plane, one row. SLICE_BYTES:
/// of a stage's rows of one tap, where it has two; else 0.
template <int SPATIAL_, int CHUNKS_, int WIDE_, class Z_, class Y_, class X_, int SLICE_BYTES_ = 0> struct ImageWindow {
  static constexpr int SPATIAL = SPATIAL_, CHUNKS = CHUNKS_, WIDE = WIDE_, SLICE_BYTES = SLICE_BYTES_;
  static constexpr int SLICES = SLICE_BYTES > 0 ? 2 : 1, STEPS = CHUNKS * Z_::EXTENT * Y_::EXTENT * X_::EXTENT;
  static constexpr int USED = STEPS < SLICES ? 1 : SLICES; // a window of one tap has nothing for the second slice
  typedef Z_ Z;
  typedef Y_ Y;
  typedef X_ X;
};
/// Sizes of the results.
struct ImageSizes { u32 z, y, x; };

/// Where the window of a result begins, possibly outside of the image, and which tap of it and
/// chunk of channels a step takes.
struct WindowPlace {
  i32 image, z, y, x;
  u32 chunk, tapZ, tapY, tapX;
};
template <class W> LATHE_DEV WindowPlace placeOfWindow(const ImageSizes &out, u32 pixel, u32 step) {
  WindowPlace p;
  u32 rest = pixel, x = rest % out.x;
  rest /= out.x;
  u32 y = 0, z = 0;
  if constexpr (W::SPATIAL >= 2) {
    y = rest % out.y;
    rest /= out.y;
  }
  if constexpr (W::SPATIAL >= 3) {
    z = rest % out.z;
    rest /= out.z;
  }
  p.image = (i32)rest;
  p.z = (i32)z * W::Z::STRIDE - W::Z::PAD;
  p.y = (i32)y * W::Y::STRIDE - W::Y::PAD;
  p.x = (i32)x * W::X::STRIDE - W::X::PAD;
  const u32 tap = step / W::CHUNKS;
  p.chunk = step % W::CHUNKS;
  p.tapX = tap % W::X::EXTENT * W::X::DILATION;
  p.tapY = tap / W::X::EXTENT % W::Y::EXTENT * W::Y::DILATION;
  p.tapZ = tap / (W::X::EXTENT * W::Y::EXTENT) * W::Z::DILATION;
  return p;
}

#ifndef LATHE_EMULATE

/// Rows of a tap: the pixels from `pixel` on, as many as the box of the map has.
template <class W>
LATHE_DEV void loadTap(SharedAddr to, const TensorMap &map, SharedAddr bar, const ImageSizes &out, u32 group,
                           u32 pixel, u32 step) {
  const WindowPlace p = placeOfWindow<W>(out, pixel, step);
  const i32 channel = (i32)((group * W::CHUNKS + p.chunk) * W::WIDE);
  if constexpr (W::SPATIAL == 1) imageLoad(to, map, bar, channel, p.x, p.image, (u16)p.tapX);
  else if constexpr (W::SPATIAL == 2) imageLoad(to, map, bar, channel, p.x, p.y, p.image, (u16)p.tapX, (u16)p.tapY);
  else imageLoad(to, map, bar, channel, p.x, p.y, p.z, p.image, (u16)p.tapX, (u16)p.tapY, (u16)p.tapZ);
}

/// A stage's rows. Behind the last tap of several it comes again: the weights there are zeros.
template <class W>
LATHE_DEV void loadWindows(SharedAddr to, const TensorMap &map, SharedAddr bar, const ImageSizes &out, u32 group,
                           u32 pixel, u32 step) {
#pragma unroll
  for (u32 s = 0; s < W::USED; ++s) {
    const u32 tap = step * W::SLICES + s, last = W::STEPS - 1;
    loadTap<W>(to + s * W::SLICE_BYTES, map, bar, out, group, pixel, W::SLICES > 1 && tap > last ? last : tap);
  }
}

// ---- The first layer ---------------------------------------------------------------------
// Up to four channels, given as planes, every second pixel of a row. Each pixel becomes 8
// bytes of shared memory, so that the window of a result begins 16 bytes behind that of the
// result before: eight windows are a matrix of 8 x 16 bytes that overlaps the next, and the
// product reads the windows in place. The weights are the operand in registers: rows are 64
// filters, columns PIXELS results of one row.
//
// The first of three groups of four warps loads planes and interleaves them, the others have
// every second row of the ROWS of a tile. The holes:
//
//   static void multiply(f32 (&d)[PIXELS / 2], const u32 (&a)[4], u64 b, u32 add);
//   const u32 *weights();                         pairs of [filters][taps][4 channels]
//   typedef ... Result;                           of 16 bits
//   Result value(i64 image, i64 filter, i64 y, i64 x, f32 sum);

template <int CHANNELS_, int ROWS_, int PIXELS_, int STAGES_, class W> struct StemTile {
  static constexpr int CHANNELS = CHANNELS_, ROWS = ROWS_, PIXELS = PIXELS_, STAGES = STAGES_;
  typedef typename W::Y Y;
  typedef typename W::X X;
  // Windows begin at even pixels; what that adds in front has weights of zero. Boxes begin at
  // multiples of 16 bytes, LEAD pixels before the first window.
  static constexpr int SHIFT = X::PAD % 2, STEPS = (X::EXTENT + SHIFT + 3) / 4, WIDE = 4 * STEPS;
  static constexpr int LEAD = (8 - (X::PAD + SHIFT) % 8) % 8;
  static constexpr int COLUMNS = (LEAD + 2 * PIXELS + WIDE - 2 + 7) / 8 * 8;
  static constexpr int LINES = (ROWS - 1) * Y::STRIDE + (Y::EXTENT - 1) * Y::DILATION + 1;
  static constexpr u32 PLANE_BYTES = LINES * COLUMNS * 2, RAW_BYTES = (CHANNELS * PLANE_BYTES + 127) / 128 * 128;
  static constexpr u32 PITCH = COLUMNS * 8, IN_BYTES = (LINES * PITCH + 127) / 128 * 128;
  static constexpr u32 OUT_BYTES = PIXELS * 128;
  static constexpr u32 RAW_AT = 4 * OUT_BYTES, IN_AT = RAW_AT + 2 * RAW_BYTES, BARRIERS_AT = IN_AT + STAGES * IN_BYTES;
  static constexpr u32 SHARED_BYTES = BARRIERS_AT + 8 * (2 * STAGES + 2) + 1024; // where the swizzle begins
  static_assert(ROWS >= 2 && ROWS % 2 == 0, "each group has rows of a tile");
  static_assert(X::STRIDE == 2 && X::DILATION == 1 && PIXELS % 16 == 0 && COLUMNS <= 256 && CHANNELS <= 4, "stem shape");
};

/// Windows one after another, 16 bytes apart: no swizzle.
LATHE_DEV u64 wgmmaWindows(SharedAddr first) {
  return (u64)((first & 0x3ffff) >> 4) | 1ull << 16 | 8ull << 32;
}
LATHE_DEV u32 sharedWord(SharedAddr at) {
  u32 w;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w) : "r"(at) : "memory");
  return w;
}
LATHE_DEV u32 bytePermute(u32 a, u32 b, u32 selector) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}

/// Two pixels at a time from planes to pixels of four channels.
template <class Tile> LATHE_DEV void interleavePlanes(SharedAddr planes, SharedAddr pixels) {
  constexpr int PAIRS = Tile::LINES * Tile::COLUMNS / 2;
  for (int i = threadIdx.x % 128; i < PAIRS; i += 128) {
    u32 c[4] = {0, 0, 0, 0}, w[4];
#pragma unroll
    for (int k = 0; k < Tile::CHANNELS; ++k) c[k] = sharedWord(planes + k * Tile::PLANE_BYTES + i * 4);
    w[0] = bytePermute(c[0], c[1], 0x5410);
    w[1] = bytePermute(c[2], c[3], 0x5410);
    w[2] = bytePermute(c[0], c[1], 0x7632);
    w[3] = bytePermute(c[2], c[3], 0x7632);
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};"
                 ::"r"(pixels + i * 16), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
  }
}

struct StemPlace { u32 image, row, column; };
template <class Tile> LATHE_DEV StemPlace placeOfStem(u32 id, u32 tilesY, u32 tilesX) {
  const u32 across = id % tilesX, rest = id / tilesX;
  return {rest / tilesY, rest % tilesY * Tile::ROWS, across * Tile::PIXELS};
}

/// mapX: the planes, boxes of COLUMNS x LINES x CHANNELS; mapY: the results, boxes of 64
/// channels of PIXELS. `chunks` is the number of 64 filters; the grid is a multiple of it.
template <class Tile, class H>
LATHE_DEV void convStem(const H &h, const TensorMap &mapX, const TensorMap &mapY, i64 images, const ImageSizes &out,
                        u32 filters) {
  typedef typename Tile::X X;
  typedef typename Tile::Y Y;
  constexpr int STEPS = Tile::STEPS, R = Y::EXTENT, STAGES = Tile::STAGES;
  LATHE_DYNAMIC_SHARED(shared);
  const SharedAddr base = (sharedAddr(shared) + 1023) & ~1023u;
  const SharedAddr full = base + Tile::BARRIERS_AT, empty = full + 8 * STAGES, loaded = empty + 8 * STAGES;
  const u32 group = threadIdx.x / 128, lane = threadIdx.x % 32;
  const u32 tilesY = (out.y + Tile::ROWS - 1) / Tile::ROWS, tilesX = (out.x + Tile::PIXELS - 1) / Tile::PIXELS;
  const u32 tiles = (u32)images * tilesY * tilesX, chunks = (filters + 63) / 64;
  const u32 first = blockIdx.x / chunks, step = gridDim.x / chunks, filter0 = blockIdx.x % chunks * 64;
  if (threadIdx.x == 0) {
    tensorMapPrefetch(mapX);
    tensorMapPrefetch(mapY);
    for (int s = 0; s < STAGES; ++s) {
      barrierInit(full + 8 * s, 4);
      barrierInit(empty + 8 * s, 8);
    }
    barrierInit(loaded, 1);
    barrierInit(loaded + 8, 1);
    barrierInitFence();
  }
  __syncthreads();
  dependentsMayStart();

  if (group == 0) {
    registersLower<40>();
    auto load = [&](u32 id, u32 raw) {
      const StemPlace t = placeOfStem<Tile>(id, tilesY, tilesX);
      barrierExpect(loaded + 8 * raw, Tile::CHANNELS * Tile::PLANE_BYTES);
      tensorLoad(base + Tile::RAW_AT + raw * Tile::RAW_BYTES, mapX, loaded + 8 * raw,
                 (i32)t.column * 2 - X::PAD - Tile::SHIFT - Tile::LEAD, (i32)t.row * Y::STRIDE - Y::PAD, 0, (i32)t.image);
    };
    dependenciesWait();
    if (threadIdx.x == 0 && first < tiles) load(first, 0);
    u32 raw = 0, rawParity = 0, slot = 0, parity = 1;
    for (u32 id = first; id < tiles; id += step) {
      if (threadIdx.x == 0 && id + step < tiles) load(id + step, raw ^ 1);
      barrierWait(loaded + 8 * raw, rawParity);
      barrierWait(empty + 8 * slot, parity);
      interleavePlanes<Tile>(base + Tile::RAW_AT + raw * Tile::RAW_BYTES, base + Tile::IN_AT + slot * Tile::IN_BYTES);
      asyncFence();
      __syncwarp();
      if (lane == 0) barrierArrive(full + 8 * slot);
      namedBarrierSync(3, 128); // the planes have been read: the next may be loaded there
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
      raw ^= 1;
      rawParity ^= raw == 0;
    }
  } else {
    registersRaise<232>();
    const u32 me = group - 1, warp = threadIdx.x / 32 % 4, filter = filter0 + warp * 16 + lane / 4;
    const bool leader = threadIdx.x % 128 == 0;
    // Row lane / 4 and that 8 below; columns 2 (lane % 4) and that 8 further, each with its neighbour.
    u32 a[R * STEPS][4];
#pragma unroll
    for (int k = 0; k < R * STEPS; ++k)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const i32 s = (i32)(k % STEPS * 4 + (q >> 1) * 2 + lane % 4 / 2) - Tile::SHIFT;
        const u32 f = filter + (q & 1) * 8;
        a[k][q] = s >= 0 && s < X::EXTENT && f < filters
                      ? h.weights()[((f * R + k / STEPS) * X::EXTENT + s) * 2 + lane % 2]
                      : 0;
      }
    dependenciesWait();
    u32 slot = 0, parity = 0, stored = 0;
    for (u32 id = first; id < tiles; id += step) {
      const StemPlace t = placeOfStem<Tile>(id, tilesY, tilesX);
      barrierWait(full + 8 * slot, parity);
      const SharedAddr in = base + Tile::IN_AT + slot * Tile::IN_BYTES;
#pragma unroll 1
      for (u32 row = me; row < Tile::ROWS; row += 2) {
        f32 acc[Tile::PIXELS / 2];
        wgmmaFence();
#pragma unroll
        for (int k = 0; k < R * STEPS; ++k)
          H::multiply(acc, a[k], wgmmaWindows(in + (row * Y::STRIDE + k / STEPS * Y::DILATION) * Tile::PITCH + Tile::LEAD * 8 + k % STEPS * 32),
                      (u32)(k > 0));
        wgmmaCommit();
        wgmmaWait<0>();
        if (row + 2 >= Tile::ROWS && lane == 0) barrierArrive(empty + 8 * slot);
        const SharedAddr buffer = base + (me * 2 + (stored++ & 1)) * Tile::OUT_BYTES;
        const u32 y = t.row + row, yIn = y < out.y ? y : out.y - 1;
        if (leader) storeWaitRead<1>();
        namedBarrierSync(1 + me, 128);
#pragma unroll
        for (int j = 0; j < Tile::PIXELS / 8; j += 2) {
          u32 r[4];
#pragma unroll
          for (int q = 0; q < 4; ++q) { // filters 0 and 8 of 8 pixels, then of the next 8
            const int e = 4 * (j + (q >> 1)) + 2 * (q & 1);
            const u32 f = filter + (q & 1) * 8, x = t.column + (j + (q >> 1)) * 8 + 2 * (lane % 4);
            Vec<typename H::Result, 2> pair;
#pragma unroll
            for (u32 i = 0; i < 2; ++i)
              pair.v[i] = h.value(t.image, f < filters ? f : filters - 1, yIn, x + i < out.x ? x + i : out.x - 1, acc[e + i]);
            r[q] = bitCast<u32>(pair);
          }
          const u32 pixel = (j + (lane >> 4)) * 8 + (lane & 7), piece = warp * 2 + (lane >> 3 & 1);
          storeMatrix4Transposed(buffer + pixel * 128 + ((piece ^ (pixel & 7)) << 4), r);
        }
        asyncFence();
        namedBarrierSync(1 + me, 128);
        if (leader) {
          if (y < out.y) tensorStore(mapY, buffer, (i32)filter0, (i32)t.column, (i32)y, (i32)t.image);
          storeCommit();
        }
      }
      if (++slot == STAGES) { slot = 0; parity ^= 1; }
    }
    if (leader) storeWaitAll();
  }
}

#endif // LATHE_EMULATE
#endif // LATHE_DEVICE_CONV_HOPPER
