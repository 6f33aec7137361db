//===- Wgmma.h - text of the Hopper product instruction ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// wgmma names each of its accumulators, so its text depends on its width: it is
// printed for the widths that a kernel uses instead of standing in the device
// library for all.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CUDA_WGMMA_H
#define LATHE_CODEGEN_CUDA_WGMMA_H

#include "mlir/IR/Types.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe::codegen {

/// What the product instruction calls an element type; empty: it takes none such.
llvm::StringRef multipliedName(mlir::Type element);

/// d[64 x n] = a[64 x k] b[k x n] (+ d), where a row of k has 32 bytes. d is i32 for integers,
/// else f32. Only 16-bit operands may lie across k.
struct WgmmaShape {
  int n = 0;                       ///< a multiple of 8 up to 256; of 16 from 32 on for integers
  std::string_view element;        ///< "bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8"
  bool aInRegisters = false;       ///< four words a thread; else by descriptor
  bool aAcrossK = false;           ///< by descriptor: m is contiguous, not k
  bool bAcrossK = false;           ///< n is contiguous, not k
  std::string_view elementB = {};  ///< of b where it differs: another of 8 bits
  /// Products of several steps of k, one after another in one instruction text, which is read faster
  /// than one for each: what is added to the descriptors of a and b. Empty: one product.
  std::vector<std::pair<int, int>> steps = {};
  /// a has two of each four elements of k, by descriptor, and words say which (`sparse24`, Packing.h): two products of
  /// twice the depth, 128 bytes of k along k in all; of 8 or 16 bits.
  bool sparse = false;
};

/// A method of a struct of holes:
///
///   static void NAME(f32 (&d)[n / 2], u64 a, u64 b, u32 add)
///
/// (`u64 b, const u32 (&places)[1], u32 add` where a is sparse, two words of 8-bit elements; `i32 (&d)[n / 2]` for integers;
/// `const u32 (&a)[4]` in registers, of steps `const u32 (&a)[steps][4]`).
/// Without `add` the old contents of d do not count.
std::string wgmmaMethod(std::string_view name, const WgmmaShape &shape);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDA_WGMMA_H
