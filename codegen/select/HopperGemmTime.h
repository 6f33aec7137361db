//===- HopperGemmTime.h - sums of a tile's threads ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_HOPPERGEMMTIME_H
#define LATHE_CODEGEN_SELECT_HOPPERGEMMTIME_H

#include "lathe/codegen/Skeleton.h"

namespace lathe::select {

/// What a thread of a tile of gemm_hopper.cuh or gemm_split.cuh holds, for windows of images too.
int64_t sumsOfThread(const KernelConfig &c);

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_HOPPERGEMMTIME_H
