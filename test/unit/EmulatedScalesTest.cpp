//===- EmulatedScalesTest.cpp - scales of blocks of k on the host -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which scale each sum of a tile gets (codegen/device/block_scales.cuh).
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

#include "../../codegen/device/base.cuh"
#include "../../codegen/device/block_scales.cuh"

#include <gtest/gtest.h>

namespace {

/// Scales of an operand of 21 rows, 3 steps and 500 columns, as different numbers; nothing else may be asked for.
struct Scales {
  static constexpr u32 kRows = 21, kSteps = 3, kColumns = 500;
  f32 scaleA(i64 b, i64 m, i64 step) const {
    EXPECT_TRUE(b == 0 && m >= 0 && m < kRows && step >= 0 && step < kSteps) << m << " " << step;
    return static_cast<f32>(m * 10 + step + 1);
  }
  f32 scaleB(i64, i64 step, i64 n) const {
    EXPECT_TRUE(step >= 0 && step < kSteps && n >= 0 && n < kColumns) << step << " " << n;
    return static_cast<f32>(1000 * (n / 128 + 1) + step);
  }
};

/// All tiles of so many columns, whichever blocks they touch, added onto sums of 1.
template <int COLUMNS> void checkPromotion() {
  constexpr int HALF = COLUMNS / 4; // sums of a thread of half of the columns
  for (u32 first = 0; first < Scales::kColumns; first += COLUMNS)
    for (u32 step = 0; step <= Scales::kSteps; ++step) // one beyond the last, which is never added
      for (u32 row : {0, 9, 14, 23}) {
        StepScales<COLUMNS> scales;
        scales.load(Scales(), 0, row, first, step, Scales::kRows, Scales::kColumns, Scales::kSteps);
        f32 part[HALF], sums[2 * HALF];
        for (int j = 0; j < HALF; ++j)
          part[j] = static_cast<f32>(j + 1);
        for (f32 &sum : sums)
          sum = 1;
        const u32 edge = 128 - first % 128;
        promote<true, 0>(sums, part, scales, edge);
        promote<true, HALF>(sums, part, scales, edge);
        for (int j = 0; j < 2 * HALF; ++j) {
          const u32 m = row + 8 * (j / 2 % 2), n = first + j / 4 * 8;
          if (m < Scales::kRows && n < Scales::kColumns && step < Scales::kSteps) { // others have any sum
            const f32 want = 1 + static_cast<f32>(j % HALF + 1) * (Scales().scaleA(0, m, step) * Scales().scaleB(0, step, n));
            EXPECT_NEAR(sums[j], want, 1e-6f * want) << COLUMNS << " at " << first << ", step " << step << ", sum " << j;
          }
        }
      }
}

TEST(Emulation, SumsOfAStepAreScaledByTheirBlocks) {
  checkPromotion<32>();
  checkPromotion<48>();
  checkPromotion<64>();
  checkPromotion<96>();
  checkPromotion<112>();
  checkPromotion<128>();
  checkPromotion<160>();
  checkPromotion<176>();
  checkPromotion<192>();
  checkPromotion<224>();
  checkPromotion<256>();
}

} // namespace
