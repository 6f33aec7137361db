//===- KernelPolicy.cpp - what kernels are for -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/KernelPolicy.h"

namespace lathe {

StoredWeightRows storedWeightRows(const Target &target, int64_t bits, bool bare) {
  if (!target.hasTensorCores())
    return {};
  // gemv.row and gemm.skinny; with wgmma, of bytes, gemm.mixed, where the operand that stands in
  // registers is what dequantizing makes.
  return {16, target.hasWgmma() && bits == 8 ? bare ? 512 : 64 : -1};
}

} // namespace lathe
