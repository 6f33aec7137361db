//===- ChooseCuda.h - shared by the choosers for GPUs -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_CHOOSECUDA_H
#define LATHE_CODEGEN_SELECT_CHOOSECUDA_H

#include "Choose.h"

namespace lathe::select {

/// Adds the ordered variants; false where no skeleton takes such heads.
Result<bool> attention(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out);
/// Adds the ordered variants.
Status gemm(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out);

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_CHOOSECUDA_H
