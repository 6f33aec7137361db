//===- Describe.h - a kernel region as a KernelDesc -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SELECT_DESCRIBE_H
#define LATHE_PASSES_SELECT_DESCRIBE_H

#include "../Common.h"

#include "lathe/codegen/KernelDesc.h"

namespace lathe {

/// Everything select must know of the kernel. `ranges` bounds the module's symbols.
/// Failure is diagnosed at the kernel (an element type that no buffer can hold).
mlir::FailureOr<KernelDesc> describe(KernelOp kernel,
                                     const std::map<std::string, DimRange> &ranges);

/// Sets `aliases` of a result that may lie where one of the kernel's inputs lies.
void describeInPlace(KernelOp kernel, KernelDesc &desc);

} // namespace lathe

#endif // LATHE_PASSES_SELECT_DESCRIBE_H
