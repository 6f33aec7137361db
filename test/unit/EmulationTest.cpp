//===- EmulationTest.cpp - the device library on the host --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles codegen/device as host C++ and runs its skeletons and reductions as
// blocks and threads, against obvious loops in double precision.
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

#include "EmulatedRaces.h"

#include "../../codegen/device/base.cuh"
#include "../../codegen/device/math.cuh"
#include "../../codegen/device/reduce.cuh"
#include "../../codegen/device/mma.cuh"
#include "../../codegen/device/widen.cuh"
#include "../../codegen/device/gemm.cuh"
#include "../../codegen/device/gemv.cuh"
#include "../../codegen/device/conv.cuh"
#include "../../codegen/device/conv_hopper.cuh"
#include "../../codegen/device/attention.cuh"
#include "../../codegen/device/attention_tile.cuh"
#include "../../codegen/device/attention_mma.cuh"
#include "../../codegen/device/attention_codes.cuh"
#include "../../codegen/device/attention_split.cuh"
#include "../../codegen/device/attention_order.cuh"
#include "../../codegen/device/attention_blocks.cuh"

#include "DeviceBuffer.h"

#include <gtest/gtest.h>

namespace {

/// Launches that race are errors.
const bool racesAreFound = lathe::test::findRacesHere();

// ---- Conversions, status, barriers -------------------------------------------------

TEST(Emulation, HalfConversionsRoundTripAndRoundToEven) {
  for (unsigned b = 0; b < 0x10000; ++b) {
    float v = f16Value(static_cast<u16>(b));
    if (v == v)
      EXPECT_EQ(f16Bits(v), b);
    float w = bitsToF32(b << 16);
    if (w == w)
      EXPECT_EQ(bf16Bits(w), b);
  }
  EXPECT_EQ(f16Bits(65520.0f), 0x7c00); // the tie above the largest number is infinity
  EXPECT_EQ(f16Bits(65519.0f), 0x7bff);
  EXPECT_EQ(f16Bits(2049.0f), f16Bits(2048.0f));
  EXPECT_EQ(f16Bits(2051.0f), f16Bits(2052.0f));
  EXPECT_EQ(f16Bits(2.9802322e-8f), 0); // half of the smallest: to even
  EXPECT_EQ(bf16Bits(bitsToF32(0x3f808000)), 0x3f80);
  EXPECT_EQ(bf16Bits(bitsToF32(0x3f818000)), 0x3f82);
}

template <class T> void checkFloat8(float largest, float smallest) {
  float above = 0;
  for (unsigned b = 0; b < 256; ++b) {
    T x{static_cast<u8>(b)};
    float v = toF32(x);
    if (std::isnan(v) || std::isinf(v))
      continue;
    EXPECT_EQ(convert<T>(v).bits, b) << v;
    above = std::max(above, v);
    if (b + 1 < 128 && !std::isnan(toF32(T{static_cast<u8>(b + 1)})) && !std::isinf(toF32(T{static_cast<u8>(b + 1)}))) {
      float middle = (v + toF32(T{static_cast<u8>(b + 1)})) / 2; // exact: ties go to the even code
      EXPECT_EQ(convert<T>(middle).bits, b + (b & 1));
      EXPECT_EQ(convert<T>(std::nextafter(middle, 1e9f)).bits, b + 1);
    }
  }
  EXPECT_EQ(above, largest);
  EXPECT_EQ(toF32(T{1}), smallest);
  EXPECT_TRUE(std::isnan(toF32(convert<T>(NAN))));
  EXPECT_FALSE(std::isfinite(toF32(convert<T>(1e9f))));
}

TEST(Emulation, EightBitFloats) {
  checkFloat8<f8e4m3fn>(448, 0.001953125f);
  checkFloat8<f8e5m2>(57344, 1.52587890625e-05f);
  checkFloat8<f8e4m3fnuz>(240, 0.0009765625f);
  checkFloat8<f8e5m2fnuz>(57344, 7.62939453125e-06f);
}

void gatherKernel(const f32 *x, const i64 *index, f32 *y, i64 n, StatusWord *status) {
  y[threadIdx.x] = x[checkIndex(status, 7, index[threadIdx.x], n, true)];
}

TEST(Emulation, StatusKeepsTheFirstBadIndex) {
  float x[3] = {10, 20, 30}, y[4];
  i64 index[4] = {-1, 3, 0, -4};
  StatusWord status{};
  EXPECT_EQ(run_emulated(gatherKernel, 1, 4, 0, x, index, y, 3, &status), "");
  EXPECT_EQ(y[0], 30);
  EXPECT_EQ(y[1], 10);
  EXPECT_EQ(status.code, kStatusIndexOutOfRange);
  EXPECT_EQ(status.detail, 7ull | 3ull << 32);
}

void lateKernel(const f32 *x, f32 *y) {
  dependenciesWait();
  y[threadIdx.x] = x[threadIdx.x];
}
void earlyKernel(const f32 *x, f32 *y) {
  f32 value = x[threadIdx.x];
  dependenciesWait();
  y[threadIdx.x] = value;
}

TEST(Emulation, WhatTheKernelAheadWritesIsThereAfterTheWait) {
  float x[32] = {}, y[32];
  auto finish = [&] { std::fill_n(x, 32, 1.0f); };
  lathe_emu::finishLater(finish);
  EXPECT_EQ(run_emulated(lateKernel, 1, 32, 0, x, y), "");
  EXPECT_EQ(std::count(y, y + 32, 1.0f), 32);
  std::fill_n(x, 32, 0.0f);
  lathe_emu::finishLater(finish);
  EXPECT_EQ(run_emulated(earlyKernel, 1, 32, 0, x, y), "");
  EXPECT_EQ(std::count(y, y + 32, 0.0f), 32) << "reading before the wait is seen";
}

void divergentKernel(int *x) {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    shuffleXor32(0, 1);
  *x = 1;
}

TEST(Emulation, FindsADivergentBarrier) {
  int x = 0;
  EXPECT_NE(run_emulated(divergentKernel, 1, 32, 0, &x).find("barrier"), std::string::npos);
}

template <int THREADS> void reduceKernel(const f32 *x, f32 *y) {
  f32 v = x[blockIdx.x * THREADS + threadIdx.x];
  f32 sum = blockReduce<SumOp, THREADS>(v), most = blockReduce<MaxOp, THREADS>(v);
  Indexed<f32> best = blockArg<true, false, THREADS>(Indexed<f32>{v, (i64)threadIdx.x});
  i64 least = blockReduce<MinOp, THREADS>((i64)threadIdx.x - 5);
  if (threadIdx.x > 0)
    return;
  y[blockIdx.x * 4] = sum;
  y[blockIdx.x * 4 + 1] = most;
  y[blockIdx.x * 4 + 2] = (f32)best.index;
  y[blockIdx.x * 4 + 3] = (f32)least;
}

template <int THREADS> void checkReductions() {
  Buffer<f32> x(2 * THREADS), y(8);
  x.random(THREADS);
  x[THREADS - 3] = x[THREADS - 2] = 2.0f; // a tie: the first wins
  ASSERT_EQ(run_emulated(reduceKernel<THREADS>, 2, THREADS, 0, x.data, y.data), "");
  for (int b = 0; b < 2; ++b) {
    double sum = 0;
    float most = -9;
    int at = 0;
    for (int i = 0; i < THREADS; ++i) {
      float v = x[b * THREADS + i];
      sum += v;
      if (v > most)
        most = v, at = i;
    }
    EXPECT_NEAR(y[b * 4], sum, 1e-4);
    EXPECT_EQ(y[b * 4 + 1], most);
    EXPECT_EQ(y[b * 4 + 2], at);
    EXPECT_EQ(y[b * 4 + 3], -5);
  }
}

TEST(Emulation, Reductions) {
  checkReductions<8>();
  checkReductions<32>();
  checkReductions<160>();
  checkReductions<256>();
}

TEST(Emulation, FastFunctionsSuit16Bits) {
  for (float x = -9; x < 9; x += 0.00137f) {
    EXPECT_NEAR(fastErf(x), std::erf((double)x), 4e-6);
    EXPECT_NEAR(fastTanh(x), std::tanh((double)x), 2e-6);
    EXPECT_NEAR(scoreTanh(x), std::tanh((double)x), 3e-7);
    if (x <= 0)
      EXPECT_NEAR(polynomialExp2(x) / std::exp2((double)x), 1.0, 8e-5);
    if (std::fabs(x) > 1e-3)
      EXPECT_NEAR(fastErf(x) / std::erf((double)x), 1.0, 4e-6);
    // The negative tail keeps its relative error.
    const double gelu = 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    EXPECT_NEAR(fastGelu(x), gelu, 4e-5 * std::fabs(gelu)) << x;
    EXPECT_NEAR(fastGeluF16(x), gelu, 4e-5 * std::fabs(gelu) + 6e-10) << x; // 6e-8 is the least number
    EXPECT_NEAR(fastGeluBF16(x), gelu, 8.2e-4 * std::fabs(gelu) + 1.7e-8) << x;
  }
  EXPECT_EQ(scoreTanh(-200.0f), -1.0f);
  EXPECT_EQ(scoreTanh(200.0f), 1.0f);
  EXPECT_LT(polynomialExp2(-INFINITY), 2e-38f);
  EXPECT_EQ(fastGeluF16(INFINITY), INFINITY);
  EXPECT_NEAR(fastGeluF16(-1e30f), 0.0f, 1e-30f);
  EXPECT_TRUE(std::isnan(fastGeluF16(NAN)));
  EXPECT_EQ(fastGeluBF16(INFINITY), INFINITY);
  EXPECT_NEAR(fastGeluBF16(-1e30f), 0.0f, 1e-30f);
  EXPECT_TRUE(std::isnan(fastGeluBF16(NAN)));
  EXPECT_EQ(fastGelu(INFINITY), INFINITY);
  EXPECT_EQ(fastGelu(-1e30f), 0.0f);
  EXPECT_TRUE(std::isnan(fastGelu(NAN)));
}

// ---- Products ------------------------------------------------------------------------

template <class T, Operand KA, Operand KB, int L> struct Product {
  typedef T Element;
  typedef f32 Acc;
  static constexpr Operand kA = KA, kB = KB;
  static constexpr int kLanes = L;
  const T *a, *b;
  f32 *c;
  i64 M, N, K;
  const T *baseA(i64 batch) const { return a + batch * M * K; }
  const T *baseB(i64 batch) const { return b + batch * N * K; }
  i64 strideA() const { return KA == Operand::AlongK ? K : M; }
  i64 strideB() const { return KB == Operand::AlongK ? K : N; }
  T loadA(i64 batch, i64 m, i64 k) const {
    return KA == Operand::AcrossK ? baseA(batch)[k * M + m] : baseA(batch)[m * K + k];
  }
  T loadB(i64 batch, i64 k, i64 n) const {
    return KB == Operand::AlongK ? baseB(batch)[n * K + k] : baseB(batch)[k * N + n];
  }
  void epilogue(i64 batch, i64 m, i64 n, Vec<f32, L> sums) const {
    for (int i = 0; i < L; ++i)
      c[(batch * M + m) * N + n + i] = sums.v[i] + 1.0f;
  }
};
template <class Tile, class H> void mmaKernel(H h) { gemmMma<Tile>(h, h.M, h.N, h.K); }
template <class Tile, class H> void simtKernel(H h) { gemmSimt<Tile>(h, h.M, h.N, h.K); }
template <int ROWS, class H> void gemvAlongKernel(H h) { gemvAlongK<ROWS, 4>(h, h.M, h.N, h.K); }
template <int ROWS, int V, class H> void gemvAcrossKernel(H h) { gemvAcrossK<ROWS, 4, V>(h, h.M, h.N, h.K); }

/// Runs `kernel(holes)` on random operands and compares.
template <class H, class Run> void checkProduct(i64 batch, i64 M, i64 N, i64 K, Run run) {
  typedef typename H::Element T;
  Buffer<T> a(batch * M * K), b(batch * N * K);
  a.random(1);
  b.random(2);
  Buffer<f32> c(batch * M * N + 64);
  for (i64 i = 0; i < c.size; ++i)
    c[i] = NAN;
  H h{a.data, b.data, c.data, M, N, K};
  ASSERT_EQ(run(h), "");
  for (i64 i = 0; i < batch; ++i)
    for (i64 m = 0; m < M; ++m)
      for (i64 n = 0; n < N; ++n) {
        double sum = 1;
        for (i64 k = 0; k < K; ++k)
          sum += (double)toF32(h.loadA(i, m, k)) * toF32(h.loadB(i, k, n));
        ASSERT_NEAR(c[(i * M + m) * N + n], sum, 1e-5 * (4 + std::sqrt(K))) << i << " " << m << " " << n;
      }
  for (i64 i = batch * M * N; i < c.size; ++i)
    ASSERT_TRUE(std::isnan(c[i])) << "written past the end";
}
template <class Tile, class H> unsigned tiles(i64 batch, i64 M, i64 N) {
  return batch * ((M + Tile::BM - 1) / Tile::BM) * ((N + Tile::BN - 1) / Tile::BN);
}
template <class Tile, class T, Operand KA, Operand KB, int L>
void checkMma(i64 batch, i64 M, i64 N, i64 K) {
  typedef Product<T, KA, KB, L> H;
  checkProduct<H>(batch, M, N, K, [&](H h) {
    return run_emulated(mmaKernel<Tile, H>, (tiles<Tile, H>(batch, M, N)), Tile::THREADS, Tile::SHARED_BYTES, h);
  });
}
template <class Tile, class T, Operand KA, Operand KB, int L>
void checkSimt(i64 batch, i64 M, i64 N, i64 K) {
  typedef Product<T, KA, KB, L> H;
  checkProduct<H>(batch, M, N, K, [&](H h) {
    return run_emulated(simtKernel<Tile, H>, (tiles<Tile, H>(batch, M, N)), Tile::THREADS, 0, h);
  });
}

typedef MmaTile<64, 64, 32, 2, 2, 3> SmallMma;
typedef MmaTile<128, 128, 32, 2, 4, 4> LargeMma;
typedef SimtTile<64, 64, 16, 4, 4> SmallSimt;
typedef SimtTile<128, 128, 8, 8, 8> LargeSimt;

TEST(Emulation, GemmMma) {
  checkMma<SmallMma, bf16, Operand::AlongK, Operand::AlongK, 8>(2, 70, 72, 88);
  checkMma<SmallMma, bf16, Operand::AlongK, Operand::AcrossK, 2>(1, 65, 136, 40);
  checkMma<LargeMma, f16, Operand::AcrossK, Operand::AcrossK, 4>(1, 136, 136, 200);
  checkMma<SmallMma, bf16, Operand::ComputedAlongK, Operand::ComputedAcrossK, 1>(1, 33, 67, 35);
  checkMma<LargeMma, bf16, Operand::ComputedAcrossK, Operand::AlongK, 1>(1, 33, 67, 40);
  checkMma<SmallMma, f16, Operand::AlongK, Operand::AlongK, 1>(1, 1, 1, 8);
  checkMma<SmallMma, f16, Operand::AlongK, Operand::AlongK, 8>(1, 600, 16, 8); // more tile rows than a group
}

TEST(Emulation, GemmSimt) {
  checkSimt<SmallSimt, f32, Operand::AlongK, Operand::AcrossK, 4>(2, 70, 68, 36);
  checkSimt<LargeSimt, f32, Operand::AcrossK, Operand::AlongK, 4>(1, 132, 136, 20);
  checkSimt<SmallSimt, f32, Operand::ComputedAlongK, Operand::ComputedAcrossK, 1>(1, 33, 67, 35);
  checkSimt<SimtTile<16, 64, 16, 1, 4>, f32, Operand::AlongK, Operand::AcrossK, 4>(1, 1, 128, 100);
  checkSimt<SmallSimt, bf16, Operand::AlongK, Operand::AcrossK, 4>(1, 10, 64, 24);
}

TEST(Emulation, Gemv) {
  typedef Product<bf16, Operand::ComputedAlongK, Operand::AlongK, 1> Along;
  checkProduct<Along>(2, 1, 37, 1048, [&](Along h) {
    return run_emulated(gemvAlongKernel<1, Along>, 2 * 37, 128, 0, h);
  });
  checkProduct<Along>(1, 3, 5, 16, [&](Along h) {
    return run_emulated(gemvAlongKernel<4, Along>, 5, 128, 0, h);
  });
  typedef Product<f32, Operand::ComputedAlongK, Operand::AcrossK, 4> Across;
  checkProduct<Across>(2, 2, 136, 77, [&](Across h) {
    return run_emulated(gemvAcrossKernel<2, 4, Across>, 2 * 2, 128, 0, h);
  });
  typedef Product<f32, Operand::ComputedAlongK, Operand::ComputedAcrossK, 1> Any;
  checkProduct<Any>(1, 1, 35, 9, [&](Any h) {
    return run_emulated(gemvAcrossKernel<1, 1, Any>, 2, 128, 0, h);
  });
}

// ---- Convolution -----------------------------------------------------------------------

template <int R, int L, bool LAST> struct Convolution {
  typedef f32 Element;
  typedef f32 Acc;
  static constexpr int kLanes = L;
  static constexpr bool kPlainWeights = false;
  const f32 *weights() const { return w; }
  static constexpr bool kChannelsLast = LAST; // of the result; x is channels first here
  const f32 *x, *w;
  f32 *y;
  ConvSizes z;
  f32 loadX(i64 n, i64 c, i64 row, i64 col) const { return x[((n * z.channels + c) * z.height + row) * z.width + col]; }
  f32 loadW(i64 k, i64 c, i64 r, i64 s) const { return w[((k * (z.channels / z.groups) + c) * R + r) * R + s]; }
  void epilogue(i64 n, i64 k, i64 row, i64 col, Vec<f32, L> v) const {
    for (int i = 0; i < L; ++i)
      y[((n * z.filters + k + (LAST ? i : 0)) * z.outHeight + row) * z.outWidth + col + (LAST ? 0 : i)] = v.v[i];
  }
};
template <class Window, class H> void convGemmKernel(H h) { convSimt<SmallSimt, Window>(h, h.z); }
template <class Window, class H> void convDirectKernel(H h) { convDirect<Window>(h, h.z); }

template <int R, int STRIDE, int DILATION, int L, bool LAST = false>
void checkConv(bool direct, i64 batch, i64 channels, i64 height, i64 width, i64 filters, i64 groups, i64 pad) {
  typedef ConvWindow<R, R, STRIDE, STRIDE, DILATION, DILATION> Window;
  typedef Convolution<R, L, LAST> H;
  i64 reach = DILATION * (R - 1) + 1;
  ConvSizes z{batch, channels, height, width, filters, groups,
              (height + 2 * pad - reach) / STRIDE + 1, (width + 2 * pad - reach) / STRIDE + 1, pad, pad};
  Buffer<f32> x(batch * channels * height * width), w(filters * channels / groups * R * R);
  i64 pixels = z.outHeight * z.outWidth;
  Buffer<f32> y(batch * filters * pixels);
  x.random(3);
  w.random(4);
  H h{x.data, w.data, y.data, z};
  std::string error =
      direct ? run_emulated(convDirectKernel<Window, H>, (unsigned)((y.size / L + 63) / 64), 64, 0, h)
             : run_emulated(convGemmKernel<Window, H>,
                            LAST ? (tiles<SmallSimt, H>(batch * groups, pixels, filters / groups))
                                 : (tiles<SmallSimt, H>(batch * groups, filters / groups, pixels)),
                            SmallSimt::THREADS, 0, h);
  ASSERT_EQ(error, "");
  for (i64 n = 0; n < batch; ++n)
    for (i64 k = 0; k < filters; ++k)
      for (i64 i = 0; i < pixels; ++i) {
        double sum = 0;
        for (i64 c = 0; c < channels / groups; ++c)
          for (int r = 0; r < R; ++r)
            for (int s = 0; s < R; ++s) {
              i64 row = i / z.outWidth * STRIDE - pad + r * DILATION, col = i % z.outWidth * STRIDE - pad + s * DILATION;
              if (row >= 0 && row < height && col >= 0 && col < width)
                sum += (double)h.loadX(n, k / (filters / groups) * (channels / groups) + c, row, col) * h.loadW(k, c, r, s);
            }
        ASSERT_NEAR(y[(n * filters + k) * pixels + i], sum, 1e-4);
      }
}

TEST(Emulation, Convolutions) {
  checkConv<3, 1, 1, 1>(false, 2, 5, 9, 7, 6, 1, 1);
  checkConv<3, 2, 1, 1>(false, 1, 4, 11, 13, 6, 2, 1);
  checkConv<1, 1, 1, 4>(false, 2, 8, 4, 8, 70, 1, 0);
  checkConv<3, 2, 1, 2, true>(false, 2, 4, 11, 13, 12, 2, 1);
  checkConv<3, 1, 1, 4, true>(true, 2, 8, 5, 7, 8, 8, 1);
  checkConv<3, 1, 2, 1>(true, 2, 6, 9, 10, 6, 6, 2);
  checkConv<5, 2, 1, 2>(true, 1, 6, 9, 11, 6, 3, 2);
}

TEST(Emulation, WindowsOfAProduct) {
  typedef ImageWindow<3, 2, 64, ImageAxis<3, 1, 1, 1>, ImageAxis<2, 2, 3, 0>, ImageAxis<5, 3, 1, 2>> W;
  const ImageSizes out{4, 5, 7};
  for (u32 pixel = 0; pixel < 3 * 4 * 5 * 7; pixel += 11)
    for (u32 step = 0; step < 2 * 3 * 2 * 5; ++step) {
      WindowPlace p = placeOfWindow<W>(out, pixel, step);
      EXPECT_EQ(p.image, (i32)(pixel / 140));
      EXPECT_EQ(p.z, (i32)(pixel / 35 % 4) - 1);
      EXPECT_EQ(p.y, (i32)(pixel / 7 % 5) * 2);
      EXPECT_EQ(p.x, (i32)(pixel % 7) * 3 - 2);
      // Channels are the innermost part of the depth, then the taps of a row.
      EXPECT_EQ(((p.tapZ * 2 + p.tapY / 3) * 5 + p.tapX) * 2 + p.chunk, step);
    }
  typedef ImageWindow<1, 1, 64, ImageAxis<1, 1, 1, 0>, ImageAxis<1, 1, 1, 0>, ImageAxis<3, 2, 2, 1>> Line;
  WindowPlace p = placeOfWindow<Line>(ImageSizes{1, 1, 10}, 23, 2);
  EXPECT_EQ(p.image, 2);
  EXPECT_EQ(p.x, 5);
  EXPECT_EQ(p.tapX, 4u);
}

// ---- Attention -------------------------------------------------------------------------

template <int DQ, int DV, bool SINK = false> struct Attention {
  static constexpr bool kSink = SINK;
  f32 sink(i64 b, i64 h, i64 i) const { return 0.5f * (f32)((b + h + i) % 4); }
  static constexpr int kHeadQK = DQ, kHeadV = DV;
  static constexpr bool kZeroMasked = false;
  const f32 *q, *k, *v;
  f32 *o;
  i64 heads, group, S, T;
  bool causal;
  f32 *sums;
  i64 window = -1;        ///< keys that a query sees before its own; -1: all
  i64 *first = nullptr;   ///< least key that was read of the first query
  i64 keyBegin(i64, i64, i64 i) const { return window < 0 ? 0 : std::max<i64>(0, T - S + i - window); }
  static constexpr bool kLogSumExp = true;
  void storeLogSumExp(i64 b, i64 h, i64 i, f32 value) const { sums[(b * heads + h) * S + i] = value; }
  f32 loadQ(i64 b, i64 h, i64 i, i64 d) const { return q[((b * heads + h) * S + i) * DQ + d]; }
  f32 loadK(i64 b, i64 h, i64 i, i64 d) const {
    if (first) atomicMin(first, i);
    return k[((b * heads / group + h / group) * T + i) * DQ + d];
  }
  f32 loadV(i64 b, i64 h, i64 i, i64 d) const { return v[((b * heads / group + h / group) * T + i) * DV + d]; }
  f32 score(i64 b, i64 h, i64 i, i64 j, f32 dot) const {
    return (i + j) % 5 == 4 || j < keyBegin(b, h, i) ? -INFINITY : dot * 0.3f + (f32)((b + h + j) % 3);
  }
  i64 keyEnd(i64, i64, i64 i) const { return causal ? T - S + i + 1 : T; }
  void store(i64 b, i64 h, i64 i, i64 d, f32 value) const { o[((b * heads + h) * S + i) * DV + d] = value; }
};
typedef AttentionTile<4, 2> SmallAttention;
template <class H> void attentionKernel(H h) { attentionSimt<SmallAttention>(h, h.S, h.T); }
template <class H> void decodeKernel(H h) { attentionDecode<4>(h, h.T); }

template <int DQ, int DV, bool SINK = false> void checkAttention(bool decode, i64 batch, i64 heads, i64 group, i64 S, i64 T, bool causal, i64 window = -1) {
  typedef Attention<DQ, DV, SINK> H;
  Buffer<f32> q(batch * heads * S * DQ), k(batch * heads / group * T * DQ), v(batch * heads / group * T * DV);
  Buffer<f32> o(batch * heads * S * DV);
  q.random(5);
  k.random(6);
  v.random(7);
  Buffer<f32> sums(batch * heads * S);
  i64 first = T;
  H h{q.data, k.data, v.data, o.data, heads, group, S, T, causal, sums.data, window, &first};
  dim3 grid(decode ? S : (S + SmallAttention::QUERIES - 1) / SmallAttention::QUERIES, heads, batch);
  std::string error =
      decode ? run_emulated(decodeKernel<H>, grid, 128, 0, h)
             : run_emulated(attentionKernel<H>, grid, SmallAttention::THREADS, (AttentionShared<SmallAttention, DQ, DV>::SHARED_BYTES), h);
  ASSERT_EQ(error, "");
  if (decode && window >= 0)
    ASSERT_GT(first, h.keyBegin(0, 0, 0) - 4) << "keys before the window are read"; // four warps begin together
  for (i64 b = 0; b < batch; ++b)
    for (i64 head = 0; head < heads; ++head)
      for (i64 i = 0; i < S; ++i) {
        std::vector<double> p(T);
        double most = -INFINITY, total = 0;
        for (i64 j = 0; j < T; ++j) {
          double dot = 0;
          for (int d = 0; d < DQ; ++d)
            dot += (double)h.loadQ(b, head, i, d) * h.loadK(b, head, j, d);
          p[j] = j < h.keyEnd(b, head, i) ? h.score(b, head, i, j, (float)dot) : -INFINITY;
          most = std::max(most, p[j]);
        }
        if (SINK)
          most = std::max(most, (double)h.sink(b, head, i));
        for (double &w : p)
          total += w = std::exp(w - most);
        if (SINK)
          total += std::exp(h.sink(b, head, i) - most);
        ASSERT_NEAR(sums[(b * heads + head) * S + i], most + std::log(total), 1e-5);
        for (int d = 0; d < DV; ++d) {
          double sum = 0;
          for (i64 j = 0; j < T; ++j)
            sum += p[j] * h.loadV(b, head, j, d);
          ASSERT_NEAR(o[((b * heads + head) * S + i) * DV + d], sum / total, 1e-5);
        }
      }
}

TEST(Emulation, Attention) {
  checkAttention<16, 16>(false, 2, 4, 2, 11, 75, false);
  checkAttention<64, 40>(false, 1, 2, 1, 9, 41, true);
  checkAttention<16, 16>(false, 1, 1, 1, 1, 1, true);
  checkAttention<32, 16>(true, 2, 4, 4, 1, 70, true);
  checkAttention<80, 80>(true, 1, 2, 1, 3, 33, true);
  checkAttention<16, 16, true>(false, 1, 2, 1, 9, 7, true);
  checkAttention<32, 16, true>(true, 2, 4, 4, 1, 3, true);
  checkAttention<32, 16>(true, 1, 2, 1, 1, 70, true, 21); // a window, from 48 on
}

/// Operands of 16 bits on the tensor cores; keys and values in memory, queries by a function.
/// KEYS: the mask is the same for all queries, and scores are kept as exponents.
template <class T, int DQ, int DV, bool PLAIN, bool CAUSAL, int GROUP = 1, bool FLAGS = false, bool SINK = false, bool KEYS = false> struct AttentionTiles {
  static constexpr bool kSink = SINK, kKeyMask = KEYS;
  f32 sink(i64 b, i64 h, i64 i) const { return 0.5f * (f32)((b + h + i) % 4); }
  typedef T Element;
  static constexpr bool kPaged = GROUP % 4 == 0; // looked up by a lane each, or not
  static constexpr bool kEarly = CAUSAL;
  static constexpr int kHeadQK = DQ, kHeadV = DV, kLanes = DV % 8 ? 1 : 8, kGroup = GROUP, kCodeBits = 16;
  static constexpr bool kRowsQ = false, kRowsK = DQ % 8 == 0, kRowsV = DV % 8 == 0;
  static constexpr bool kPlainScore = PLAIN, kMaskOnly = FLAGS, kPairs = false, kWholeTiles = false, kCausal = CAUSAL, kZeroMasked = true;
  static constexpr f32 kScale = 0.3f;
  const T *q, *k, *v;
  f32 *o;
  i64 heads, group, S, T_;
  f32 *sums;
  i64 window = -1;      ///< keys that a query sees before its own; -1: all
  i64 *first = nullptr; ///< least of sixteen keys that was looked up
  i64 keyBegin(i64, i64, i64 i) const { return window < 0 ? 0 : std::max<i64>(0, T_ - S + i - window); }
  static constexpr bool kLogSumExp = !KEYS;
  void storeLogSumExp(i64 b, i64 h, i64 i, f32 value) const { sums[(b * heads + h) * S + i] = value; }
  const T *rowQ(i64, i64, i64) const { return nullptr; }
  const T *rowK(i64 b, i64 h, i64 i) const { return k + ((b * heads / group + h / group) * T_ + i) * DQ; }
  const T *rowV(i64 b, i64 h, i64 i) const { return v + ((b * heads / group + h / group) * T_ + i) * DV; }
  const T *sixteenK(i64 b, i64 h, i64 n) const {
    if (first) atomicMin(first, 16 * n);
    return rowK(b, h, 16 * n);
  }
  const T *sixteenV(i64 b, i64 h, i64 n) const { return rowV(b, h, 16 * n); }
  i64 strideK() const { return DQ; }
  i64 strideV() const { return DV; }
  T elementQ(i64 b, i64 h, i64 i, i64 d) const { return q[((b * heads + h) * S + i) * DQ + d]; }
  T elementK(i64 b, i64 h, i64 i, i64 d) const { return rowK(b, h, i)[d]; }
  T elementV(i64 b, i64 h, i64 i, i64 d) const { return rowV(b, h, i)[d]; }
  bool seen(i64, i64, i64 i, i64 j) const { return (i * 3 + j) % 7 < 4; }
  f32 keyMask(i64 b, i64, i64 j) const { return b > 0 ? -3.4028235e38f : j % 5 == 4 ? -INFINITY : (f32)(j % 3); }
  f32 score(i64 b, i64 h, i64 i, i64 j, f32 dot) const {
    if (KEYS) return fmaf(dot, kScale * kLog2e, keyExponent(keyMask(b, h, j)));
    return truth(b, h, i, j, dot);
  }
  f32 truth(i64 b, i64 h, i64 i, i64 j, f32 dot) const {
    if (j < keyBegin(b, h, i)) return -INFINITY;
    if (KEYS) return dot * kScale + keyMask(b, h, j);
    if (PLAIN) return dot * kScale;
    if (FLAGS) return seen(0, 0, i, j) ? dot * kScale : -INFINITY;
    // Keys not seen; a row of the mask that is the least bfloat16 throughout: all keys weigh alike.
    if ((i + j) % 5 == 4) return -INFINITY;
    return dot * kScale + (i % 4 == 1 ? -3.3895314e38f : (f32)((b + h + j) % 3));
  }
  i64 keyEnd(i64, i64, i64 i) const { return CAUSAL ? T_ - S + i + 1 : T_; }
  void store(i64 b, i64 h, i64 i, i64 d, const Vec<T, kLanes> &value) const {
    for (int e = 0; e < kLanes; ++e)
      o[((b * heads + h) * S + i) * DV + d + e] = toF32(value.v[e]);
  }
};
template <class Tile, class H> void tilesKernel(H h) { attentionMma<Tile>(h, h.S, h.T_); }
template <class Tile, class H> void splitKernel(H h) { attentionSplit<Tile>(h, h.S, h.T_); }

/// SPLIT: the form for few queries, whose tiles of eight columns are so many; 0: the other form.
template <class T, int DQ, int DV, bool PLAIN, bool CAUSAL, int SPLIT = 0, int GROUP = 1, bool FLAGS = false, bool SINK = false, bool KEYS = false>
void checkAttentionTiles(i64 batch, i64 heads, i64 group, i64 S, i64 keys, i64 window = -1) {
  typedef AttentionTiles<T, DQ, DV, PLAIN, CAUSAL, GROUP, FLAGS, SINK, KEYS> H;
  Buffer<T> q(batch * heads * S * DQ), k(batch * heads / group * keys * DQ), v(batch * heads / group * keys * DV);
  Buffer<f32> o(batch * heads * S * DV);
  q.random(5);
  k.random(6);
  v.random(7);
  Buffer<f32> sums(batch * heads * S);
  i64 first = keys;
  H h{q.data, k.data, v.data, o.data, heads, group, S, keys, sums.data, window, &first};
  const double tolerance = IsSame<T, bf16>::value ? 8e-3 : 1e-3;
  if constexpr (SPLIT > 0) {
    typedef AttentionSplitTile<2, 1, SPLIT, 2, DQ, DV> Tile;
    ASSERT_EQ(run_emulated(splitKernel<Tile, H>, dim3(1, heads / group, batch), 64, Tile::SHARED_BYTES, h), "");
    ASSERT_GT(first, h.keyBegin(0, 0, 0) - 16) << "keys before the window are read";
  } else {
    typedef AttentionMmaTile<2, 32, DQ, DV> Tile;
    dim3 grid((S + Tile::QUERIES - 1) / Tile::QUERIES, heads, batch);
    ASSERT_EQ(run_emulated(tilesKernel<Tile, H>, grid, Tile::THREADS, Tile::SHARED_BYTES, h), "");
  }
  for (i64 b = 0; b < batch; ++b)
    for (i64 head = 0; head < heads; ++head)
      for (i64 i = 0; i < S; ++i) {
        std::vector<double> p(keys);
        double most = -INFINITY, total = 0;
        for (i64 j = 0; j < keys; ++j) {
          double dot = 0;
          for (int d = 0; d < DQ; ++d)
            dot += (double)toF32(h.elementQ(b, head, i, d)) * toF32(h.elementK(b, head, j, d));
          p[j] = j < h.keyEnd(b, head, i) ? h.truth(b, head, i, j, (float)dot) : -INFINITY;
          most = std::max(most, p[j]);
        }
        if (SINK)
          most = std::max(most, (double)h.sink(b, head, i));
        for (double &w : p)
          total += w = most == -INFINITY ? 0 : std::exp(w - most);
        if (SINK)
          total += std::exp(h.sink(b, head, i) - most);
        const f32 logSum = sums[(b * heads + head) * S + i];
        if (KEYS) { // not asked for
        } else if (most == -INFINITY || most < -1e38) // nothing is seen, or the least bfloat16 beside it
          ASSERT_EQ(logSum, (f32)most);
        else
          ASSERT_NEAR(logSum, most + std::log(total), tolerance) << "query " << i;
        for (int d = 0; d < DV; ++d) {
          double sum = 0;
          for (i64 j = 0; j < keys; ++j)
            sum += p[j] * toF32(h.elementV(b, head, j, d));
          ASSERT_NEAR(o[((b * heads + head) * S + i) * DV + d], total == 0 ? 0 : sum / total, tolerance)
              << "query " << i << " column " << d;
        }
      }
}

/// Keys and values of BITS with a scale a row, as lathe.kv_append stores them: [b, key head, tokens, up to sixteen].
template <class T, int D, int BITS, int GROUP> struct CodedAttention : AttentionTiles<T, D, D, true, false, GROUP> {
  static constexpr int kCodeBits = BITS, ROW = D * BITS / 8;
  const u8 *codes[2]; const f32 *scales[2]; ///< of keys, of values
  i64 row(i64 b, i64 h, i64 n) const { return (b * this->heads / GROUP + h / GROUP) * ((this->T_ + 15) / 16 * 16) + n; }
  const u8 *sixteenK(i64 b, i64 h, i64 n) const { return codes[0] + row(b, h, 16 * n) * ROW; }
  const u8 *sixteenV(i64 b, i64 h, i64 n) const { return codes[1] + row(b, h, 16 * n) * ROW; }
  const f32 *scalesK(i64 b, i64 h, i64 n) const { return scales[0] + row(b, h, 16 * n); }
  const f32 *scalesV(i64 b, i64 h, i64 n) const { return scales[1] + row(b, h, 16 * n); }
  i64 strideK() const { return ROW; } i64 strideV() const { return ROW; }
  double element(int part, i64 b, i64 h, i64 i, i64 d) const {
    const u8 *at = codes[part] + row(b, h, i) * ROW;
    return (BITS == 8 ? (i8)at[d] : (at[d % (D / 2)] >> (d < D / 2 ? 0 : 4) & 15) - 8) * (double)scales[part][row(b, h, i)];
  }
};

/// `size`: of the largest scale of values; the others are down to a thousandth of it.
template <class T, int D, int BITS, int SPLIT, int GROUP> void checkCodedAttention(i64 batch, i64 S, i64 keys, f32 size) {
  typedef CodedAttention<T, D, BITS, GROUP> H;
  typedef AttentionSplitTile<2, 1, SPLIT, 2, D, D, BITS> Tile;
  const i64 heads = 2 * GROUP, pitch = (keys + 15) / 16 * 16, rows = batch * 2 * pitch;
  Buffer<T> q(batch * heads * S * D);
  Buffer<f32> o(batch * heads * S * D), sums(batch * heads * S), scales[2] = {Buffer<f32>(rows), Buffer<f32>(rows)};
  Buffer<u8> codes[2] = {Buffer<u8>(rows * H::ROW), Buffer<u8>(rows * H::ROW)};
  std::mt19937 gen(9);
  q.random(5);
  H h;
  h.q = q.data, h.k = h.v = nullptr, h.o = o.data, h.heads = heads, h.group = GROUP, h.S = S, h.T_ = keys, h.sums = sums.data;
  for (int part : {0, 1}) {
    std::generate_n(codes[part].data, rows * H::ROW, [&] { return (u8)gen(); });
    for (i64 i = 0; i < rows; ++i) // what stands behind the last key is anything
      scales[part].data[i] = i % pitch >= keys ? NAN : (part ? size : 0.03f) * (BITS == 8 ? 1 : 16) * (gen() % 3 ? 1 : 1e-3f);
    h.codes[part] = codes[part].data, h.scales[part] = scales[part].data;
  }
  ASSERT_EQ(run_emulated(splitKernel<Tile, H>, dim3(1, 2, batch), 64, Tile::SHARED_BYTES, h), "");
  const double tolerance = (IsSame<T, bf16>::value ? 1e-2 : 1.5e-3) * size * 127;
  for (i64 at = 0; at < batch * heads * S; ++at) {
    const i64 b = at / S / heads, head = at / S % heads, i = at % S;
    std::vector<double> p(keys);
    double most = -INFINITY, total = 0, sum;
    for (i64 j = 0; j < keys; ++j) {
      double dot = 0;
      for (int d = 0; d < D; ++d)
        dot += (double)toF32(h.elementQ(b, head, i, d)) * h.element(0, b, head, j, d);
      most = std::max(most, p[j] = dot * h.kScale);
    }
    for (double &w : p) total += w = std::exp(w - most);
    ASSERT_NEAR(sums[at], most + std::log(total), 1e-4 * std::max(1.0, std::abs(most)));
    for (int d = 0; d < D; ++d) {
      sum = 0;
      for (i64 j = 0; j < keys; ++j) sum += p[j] * h.element(1, b, head, j, d);
      ASSERT_NEAR(o[at * D + d], sum / total, tolerance) << "query " << i << " column " << d;
    }
  }
}

TEST(Emulation, AttentionOverCodes) {
  checkCodedAttention<bf16, 128, 8, 1, 4>(2, 1, 77, 0.02f);
  checkCodedAttention<bf16, 128, 4, 1, 4>(2, 1, 77, 0.02f);
  checkCodedAttention<f16, 128, 8, 1, 1>(1, 1, 70, 1e-5f); // values of the least f16 numbers
  checkCodedAttention<f16, 64, 4, 2, 8>(1, 1, 40, 0.1f);
  checkCodedAttention<f16, 64, 8, 1, 2>(1, 3, 33, 0.1f);
  checkCodedAttention<bf16, 32, 8, 1, 2>(1, 1, 33, 0.1f);
  checkCodedAttention<bf16, 96, 8, 1, 4>(1, 1, 2100, 0.02f); // more steps than lanes
  checkCodedAttention<bf16, 256, 4, 1, 2>(1, 1, 50, 0.02f);
}

TEST(Emulation, AttentionOnMatrixUnits) {
  checkAttentionTiles<bf16, 16, 16, true, false>(1, 2, 2, 33, 70);
  checkAttentionTiles<bf16, 24, 40, true, true>(2, 2, 1, 35, 70);
  checkAttentionTiles<f16, 20, 20, false, true>(1, 2, 1, 40, 33); // the first queries see nothing
  checkAttentionTiles<f16, 144, 136, false, false>(1, 1, 1, 5, 64);
  checkAttentionTiles<bf16, 32, 32, false, true, 0, 1, true>(1, 2, 1, 35, 70);
  checkAttentionTiles<bf16, 32, 32, true, true, 0, 1, false, true>(2, 2, 1, 35, 30); // some see the sink alone
  checkAttentionTiles<f16, 24, 32, false, false, 0, 1, false, true>(1, 2, 1, 20, 50);
  checkAttentionTiles<bf16, 32, 32, false, true, 0, 1, false, false, true>(2, 2, 1, 35, 70); // a row for all queries
  checkAttentionTiles<f16, 24, 32, false, false, 0, 1, false, true, true>(2, 2, 1, 20, 50);
}

TEST(Emulation, AttentionOfFewQueries) {
  checkAttentionTiles<bf16, 128, 128, true, false, 1, 4>(2, 8, 4, 1, 77);
  checkAttentionTiles<f16, 64, 64, false, true, 2, 3>(1, 3, 3, 5, 40);
  checkAttentionTiles<bf16, 32, 32, true, false, 1, 4>(1, 4, 4, 1, 2100); // more steps than lanes
  checkAttentionTiles<bf16, 64, 64, true, true, 1, 2>(1, 2, 2, 4, 2); // the first queries see nothing
  checkAttentionTiles<bf16, 64, 64, false, true, 1, 2, true>(1, 2, 2, 3, 50);
  checkAttentionTiles<f16, 80, 72, true, false, 1, 4>(1, 4, 4, 2, 130); // heads that no tile has
  checkAttentionTiles<bf16, 64, 192, true, false, 2, 8>(1, 8, 8, 2, 33);
  checkAttentionTiles<bf16, 64, 64, true, true, 1, 2, false, true>(2, 4, 2, 4, 75);
  checkAttentionTiles<f16, 32, 32, false, false, 1, 4, true, true>(1, 4, 4, 2, 20); // a warp without keys
  checkAttentionTiles<bf16, 96, 96, true, true, 2, 1>(2, 2, 1, 16, 100); // sixteen queries, each head by itself
  checkAttentionTiles<bf16, 256, 256, true, false, 1, 8>(1, 8, 8, 1, 45); // the largest heads
  checkAttentionTiles<bf16, 64, 64, false, true, 1, 4>(2, 8, 4, 1, 210, 40); // a window, from the eleventh sixteen on
  checkAttentionTiles<f16, 64, 64, false, true, 2, 3>(1, 3, 3, 5, 90, 21);   // of each query another
  checkAttentionTiles<bf16, 32, 32, false, true, 1, 4>(1, 4, 4, 1, 30, 100); // as long as all keys
}

/// A mask whose keys [from, to) of a query are seen. BOX: of boxes it tells what is seen where that is the same in all of it;
/// VAGUE: not of every other one of those.
template <int LANES, int BOX, bool VAGUE> struct ListedMask {
  static constexpr int kMaskLanes = LANES, kBoxLanes = BOX;
  i64 keys, shift;
  bool causal;
  u16 *lists;
  bool at(i64 b, i64 h, i64 q, i64 k) const { return k >= b * 40 + q - 30 && k < b * 40 + h * 100 + q + 20; }
  Vec<bool, LANES> through(i64 b, i64 h, i64 q, i64 piece) const {
    Vec<bool, LANES> v;
    for (int e = 0; e < LANES; ++e)
      v.v[e] = at(b, h, q, piece * LANES + e);
    return v;
  }
  i32 seenInBox(i64 b, i64 h, i64 q, i64 lastQ, i64 k, i64 lastK) const {
    u32 found = 0;
    for (i64 row = q * BOX; row <= lastQ; ++row)
      for (i64 column = k * BOX; column <= lastK; ++column)
        found |= at(b, h, row, column) ? FOUND_SEEN : FOUND_HIDDEN;
    return found == 3 || (VAGUE && (q + k) % 2) ? FOUND_UNTOLD : static_cast<i32>(found);
  }
  i64 keyEnd(i64, i64, i64 q) const { return causal ? std::max<i64>(0, std::min(keys, q + shift)) : keys; }
};
template <class H> void listsKernel(H h, i64 queries) { attentionBlocks<16, 32, 64>(h, queries, h.keys, h.lists); }

template <int LANES, int BOX, bool VAGUE> void checkLists(i64 queries, i64 keys, i64 shift, bool causal) {
  const i64 rows = (queries + 15) / 16, size = attentionListSize(keys, 32), heads = 2, batches = 3;
  Buffer<u16> lists(rows * size * heads * batches);
  ListedMask<LANES, BOX, VAGUE> h{keys, shift, causal, lists.data};
  ASSERT_EQ(run_emulated(listsKernel<decltype(h)>, dim3(rows, heads, batches), 64, (keys + 31) / 32, h, queries), "");
  for (i64 i = 0; i < rows * heads * batches; ++i) {
    const i64 row = i % rows, head = i / rows % heads, b = i / rows / heads;
    const u16 *list = lists.data + i * size;
    std::vector<int> want;
    for (i64 tile = 0; tile * 32 < keys; ++tile) {
      bool any = false, all = true;
      for (i64 q = row * 16; q < std::min(queries, row * 16 + 16); ++q)
        for (i64 k = tile * 32; k < tile * 32 + 32; ++k) {
          bool seen = k < keys && k < h.keyEnd(b, head, q) && h.at(b, head, q, k);
          any |= seen;
          all &= seen;
        }
      if (any)
        want.push_back((int)(2 * tile + !all));
    }
    if (want.empty())
      want.push_back(1); // the first stands for nothing
    EXPECT_EQ(std::vector<int>(list + 1, list + 1 + list[0]), want) << "list " << i;
    EXPECT_EQ(list[size - 1], 2 * want.size() + std::count_if(want.begin(), want.end(), [](int entry) { return entry % 2; })) << i;
  }
}

template <int BOX, bool VAGUE> void checkListsByBoxes() {
  checkLists<8, BOX, VAGUE>(70, 304, 0, false);
  checkLists<2, BOX, VAGUE>(33, 1358, 0, false); // more tiles than lanes
  checkLists<1, BOX, VAGUE>(37, 211, 5, true);
  checkLists<4, BOX, VAGUE>(16, 32, -20, true); // nothing is seen
}
TEST(Emulation, ListsOfTilesThatAMaskLetsThrough) {
  checkListsByBoxes<0, false>(); // score by score
  checkListsByBoxes<1, false>();
  checkListsByBoxes<2, false>();
  checkListsByBoxes<2, true>();
}

/// Every code of 8 bits in every place of a vector.
TEST(Emulation, CodesOfEightBitsWidenExactly) {
  for (int first = 0; first < 256; ++first) {
    Vec<i8, 16> codes;
    for (int i = 0; i < 16; ++i)
      codes.v[i] = static_cast<i8>(first + 37 * i);
    Vec<f8e4m3fn, 16> floats;
    memcpy(&floats, &codes, sizeof floats);
    auto expect = [&](const auto &got, const auto &want) {
      for (int i = 0; i < 16; ++i) {
        f32 w = static_cast<f32>(want(i)), g = toF32(got.v[i]);
        EXPECT_TRUE(g == w || (g != g && w != w)) << first << " at " << i << ": " << g << ", not " << w;
      }
    };
    auto number = [&](int i) { return codes.v[i]; };
    auto positive = [&](int i) { return static_cast<u8>(codes.v[i]); };
    auto real = [&](int i) { return toF32(floats.v[i]); };
    expect(widenCodes<bf16>(codes), number);
    expect(widenCodes<f16>(codes), number);
    expect(widenCodes<f32>(codes), number);
    expect(widenUnsigned<bf16>(codes), positive);
    expect(widenUnsigned<f16>(codes), positive);
    expect(widenUnsigned<f32>(codes), positive);
    expect(widenCodes<bf16>(floats), real);
    expect(widenCodes<f16>(floats), real);
  }
}

} // namespace
