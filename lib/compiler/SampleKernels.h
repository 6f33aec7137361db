//===- SampleKernels.h - the kernels that draw tokens -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_LIB_COMPILER_SAMPLEKERNELS_H
#define LATHE_LIB_COMPILER_SAMPLEKERNELS_H

#include "lathe/codegen/Target.h"
#include "lathe/support/DType.h"

#include <string>

namespace lathe {

/// The image's name (include/lathe/engine/SampleAbi.h).
const char *sampleKernelName(const Target &target);
/// Its text for logits of f32, f16 or bf16; empty for others.
std::string sampleKernelText(DType logits, const Target &target);

} // namespace lathe

#endif // LATHE_LIB_COMPILER_SAMPLEKERNELS_H
