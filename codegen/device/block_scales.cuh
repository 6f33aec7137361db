//===- block_scales.cuh - scales of blocks of k in products ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// Codes of 8 bits may have scales for blocks of k, 128 or a multiple of it: those of A differ by row, those
// of B by blocks of 128 columns. Products that add up sums of 128 of k in registers (promotion) multiply
// them by both scales as they add them: an FMA instead of an addition. The holes:
//
//   static constexpr bool kBlockScales;   there are such scales, each of a step of 128 of k:
//   f32 scaleA(i64 b, i64 m, i64 step);   of a row
//   f32 scaleB(i64 b, i64 step, i64 n);   of the column n and those in its block
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_BLOCK_SCALES
#define LATHE_DEVICE_BLOCK_SCALES

/// What the sums of a step of 128 of k are multiplied by: of a thread's rows `row` and `row` + 8 in a tile of
/// COLUMNS from `first` on. Of rows, columns and steps beyond the operands it has those of the last ones.
template <int COLUMNS> struct StepScales {
  // A tile begins at a multiple of COLUMNS: how much of a block may lie before it, and how many it touches.
  static constexpr int STRIDE = COLUMNS % 128 == 0 ? 128 : COLUMNS & -COLUMNS, BEFORE = 128 - STRIDE;
  static constexpr int BLOCKS = (BEFORE + COLUMNS + 127) / 128;
  f32 a[2], b[BLOCKS];

  /// A turn ahead of the sums: a group that waits for memory between its turns leaves the tensor cores idle, as
  /// one does that computes there whether a row is inside. Multiplied where they are used, for that reason.
  template <class H>
  LATHE_METHOD void load(const H &h, u32 batch, u32 row, u32 first, u32 step, u32 M, u32 N, u32 steps) {
    const u32 at = step < steps ? step : steps - 1;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
      const u32 n = i > 0 ? (first / 128 + i) * 128 : first;
      b[i] = h.scaleB((i64)batch, (i64)at, (i64)(n < N ? n : N - 1));
    }
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
      const u32 m = row + 8 * r;
      a[r] = h.scaleA((i64)batch, (i64)(m < M ? m : M - 1), (i64)at);
    }
  }
  /// Of the thread's row `r` and column `column` of a tile whose first block ends at `edge`.
  LATHE_METHOD f32 at(int r, u32 column, u32 edge) const {
    f32 scale = a[r] * b[0];
#pragma unroll
    for (int i = 1; i < BLOCKS; ++i) scale = column < edge + 128 * (i - 1) ? scale : a[r] * b[i];
    return scale;
  }
};
/// Without scales.
struct NoScales {
  template <class H> LATHE_METHOD void load(const H &, u32, u32, u32, u32, u32, u32, u32) {}
  LATHE_METHOD f32 at(int, u32, u32) const { return 1.0f; }
};
template <bool SCALED, int COLUMNS> struct ScalesOf { typedef NoScales Type; };
template <int COLUMNS> struct ScalesOf<true, COLUMNS> { typedef StepScales<COLUMNS> Type; };

/// Adds the sums of a step of columns AT on.
template <bool SCALED, int AT, int ALL, int N, class Scales>
LATHE_DEV void promote(f32 (&sums)[ALL], const f32 (&part)[N], const Scales &scales, u32 edge) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if constexpr (SCALED) sums[AT + j] += part[j] * scales.at(j >> 1 & 1, (AT + j) / 4 * 8, edge);
    else sums[AT + j] += part[j];
  }
}

#endif // LATHE_DEVICE_BLOCK_SCALES
