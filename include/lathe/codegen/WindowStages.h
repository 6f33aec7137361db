//===- WindowStages.h - taps in a stage of a convolution ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_WINDOWSTAGES_H
#define LATHE_CODEGEN_WINDOWSTAGES_H

#include <cstdint>

namespace lathe {

/// Taps of a window that a stage of codegen/device/conv_hopper.cuh has: two where the pixels of a group are codes of 8 bits
/// that fill at most half of the 128 bytes of a stage, which would be zeros otherwise.
inline int64_t tapsOfStage(bool bytes, int64_t groups, int64_t groupChannels) {
  constexpr int64_t kHalfOfStage = 64;
  return bytes && groups == 1 && groupChannels <= kHalfOfStage ? 2 : 1;
}

} // namespace lathe

#endif // LATHE_CODEGEN_WINDOWSTAGES_H
