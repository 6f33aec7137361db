//===- Winograd.h - what a Winograd kernel keeps where ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks" (2016): a tile of 2x2 results is 16 products of transformed inputs
// and filters instead of 36. In f32 its rounding error is no larger than that
// of the direct sum: the transforms only add, and halve filters.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_WINOGRAD_H
#define LATHE_CODEGEN_WINOGRAD_H

#include <cstdint>

namespace lathe::winograd {

constexpr int64_t kOut = 2, kIn = 4, kPoints = kIn * kIn;

/// Elements from one tile's transformed channels to the next one's: not a power
/// of two, so that the rows of a register tile lie in different cache sets.
inline int64_t rowStride(int64_t channels) { return (channels + 15) / 16 * 16 + 16; }

/// Scratch memory of a worker in bytes: transformed inputs [point][tile][channel]
/// and products [point][tile][column] of one panel.
inline int64_t scratchBytes(int64_t tiles, int64_t channels, int64_t panel) {
  return 4 * kPoints * tiles * (rowStride(channels) + panel);
}

} // namespace lathe::winograd

#endif // LATHE_CODEGEN_WINOGRAD_H
