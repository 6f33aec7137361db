//===- CudaTranslation.h - kernels to CUDA text -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_CUDATRANSLATION_H
#define LATHE_CODEGEN_CUDATRANSLATION_H

namespace lathe::codegen {

/// `lathe-translate --kernel-to-cuda`: the CUDA C++ of each function of a
/// module, written as a kernel region. Options: --config, --grid, --target, and
/// --whole to have the device library in front.
void registerCudaTranslation();

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDATRANSLATION_H
