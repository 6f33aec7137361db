//===- EmulatedFiniteTest.cpp - infinities and NaN in rows, on the host -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which bits codegen/device/finite_rows.cuh sets for products that leave blocks of zeros out.
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

#include "EmulatedRaces.h"

#include "../../codegen/device/base.cuh"
#include "../../codegen/device/finite_rows.cuh"

#include "DeviceBuffer.h"

#include <gtest/gtest.h>

namespace {

/// Launches that race are errors.
const bool racesAreFound = lathe::test::findRacesHere();

template <class T> struct Rows {
  typedef T Element;
  const T *data;
  i64 stride;
  const T *baseA(i64) const { return data; }
  i64 strideA() const { return stride; }
};

template <class T> void finiteKernel(Rows<T> h, i64 M, i64 K, u32 *bits) { finiteRows<64>(h, M, K, bits); }

template <class T> void checkRows(u32 infinity) {
  for (auto [M, K] : {std::pair<i64, i64>{1, 8}, {5, 200}, {3, 2048}, {4, 4104}}) {
    const i64 stride = K + 8, words = (K + 2047) / 2048; // what lies between rows counts for none
    Buffer<T> rows(M * stride);
    rows.random(7);
    for (i64 m = 0; m < M; ++m)
      for (i64 k = K; k < stride; ++k)
        rows[m * stride + k] = bitCast<T>(static_cast<u16>(infinity));
    std::vector<u32> want(M * words);
    auto spoil = [&](i64 m, i64 k, u32 bits) {
      rows[m * stride + k] = bitCast<T>(static_cast<u16>(bits));
      want[m * words + k / 2048] |= 1u << k / 64 % 32;
    };
    spoil(0, K - 1, infinity);
    spoil(M - 1, 0, infinity | 0x8000); // -infinity
    if (M > 2) {
      spoil(2, K / 2, infinity + 1); // NaN
      rows[stride] = bitCast<T>(static_cast<u16>(infinity - 1)); // the largest number
    }
    Buffer<u32> bits(M * words);
    const Rows<T> h{rows.data, stride};
    EXPECT_EQ(run_emulated(finiteKernel<T>, static_cast<unsigned>((M + 1) / 2), 64, 0, h, M, K, bits.data), "");
    for (i64 i = 0; i < M * words; ++i)
      EXPECT_EQ(bits[i], want[i]) << M << " x " << K << ", word " << i;
  }
}

TEST(Emulation, InfinitiesAndNaNOfRowsAreFound) {
  checkRows<bf16>(0x7f80);
  checkRows<f16>(0x7c00);
}

} // namespace
