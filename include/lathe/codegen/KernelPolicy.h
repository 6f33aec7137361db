//===- KernelPolicy.h - what kernels are for --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Limits within which families of kernels pay, for passes that decide ahead of
// select what a kernel shall take in. Measured: test/perf/gpu/results.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_KERNELPOLICY_H
#define LATHE_CODEGEN_KERNELPOLICY_H

#include "lathe/codegen/Target.h"

#include <span>

namespace lathe {

/// Up to how many rows a product should read stored weights as they lie and dequantize them itself:
/// beyond that a copy of 16 bits, made by a kernel of its own in each run, is faster.
struct StoredWeightRows {
  int64_t ever = -1;      ///< that sizes can be
  int64_t atOptimum = -1; ///< of the sizes that are optimised for
};
/// `bits` of a weight; `bare`: nothing but a scale a column comes to the codes, so that dequantizing is
/// a conversion; `packed`: they can be packed as fragments (Packing.h). -1 where the target has no such kernels.
StoredWeightRows storedWeightRows(const Target &target, int64_t bits, bool bare, bool packed);

/// A convolution as far as kernels of 8-bit codes depend on it.
struct CodeWindows {
  std::span<const int64_t> window, strides, pads, dilations;
  int64_t group = 1, groupChannels = 0, groupFilters = 0;
};
enum class ConvOfCodes {
  No,       ///< products of f32 are faster, or there is no kernel
  Integers, ///< products of codes
  Images,   ///< products of f32 by images that are read as codes: whole groups in a vector of results
};
ConvOfCodes convOfCodes(const Target &target, const CodeWindows &conv);

} // namespace lathe

#endif // LATHE_CODEGEN_KERNELPOLICY_H
