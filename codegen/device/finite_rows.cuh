//===- finite_rows.cuh - where rows have infinities and NaN -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// A kernel that runs ahead of products that leave blocks of zeros out (gemm_bsr.cuh): of each row of 16-bit floats and each
// 64 of k, a bit that says whether an element is infinite or NaN. Holes:
//
//   typedef ... Element;  const Element *baseA(i64 b) const;  i64 strideA() const;   rows of whole pieces of 16 bytes
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_FINITE_ROWS
#define LATHE_DEVICE_FINITE_ROWS

/// Words of 32 bits a row.
LATHE_DEV u32 finiteWords(i64 K) { return (u32)((K + 2047) / 2048); }

/// `bits`: [M][finiteWords(K)]. A warp has a row; K is a multiple of 8.
template <int THREADS, class H> LATHE_DEV void finiteRows(const H &h, i64 M, i64 K, u32 *bits) {
  typedef typename H::Element T;
  constexpr u32 EXPONENT = IsSame<T, bf16>::value ? 0x7f80 : 0x7c00;
  const i64 row = (i64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= M) return;
  const T *from = h.baseA(0) + row * h.strideA();
  const u32 words = finiteWords(K);
  for (u32 n = 0; n < words; ++n) {
    Bits16 pieces[8]; // eight lanes have 64 of k
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const i64 k = (i64)n * 2048 + i * 256 + lane * 8;
      pieces[i] = Bits16{};
      if (k < K) pieces[i] = loadGlobal16(from + k);
    }
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      bool bad = false;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const u32 two = pieces[i].w[e];
        bad |= (two & EXPONENT) == EXPONENT || (two >> 16 & EXPONENT) == EXPONENT;
      }
      const u32 lanes = warpBits(bad);
#pragma unroll
      for (int j = 0; j < 4; ++j) word |= (u32)((lanes >> 8 * j & 0xff) != 0) << (4 * i + j);
    }
    if (lane == 0) bits[row * words + n] = word;
  }
}

#endif // LATHE_DEVICE_FINITE_ROWS
