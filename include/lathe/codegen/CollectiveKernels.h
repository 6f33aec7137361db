//===- CollectiveKernels.h - kernels through which GPUs exchange -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The text of an image of collective kernels, which include/lathe/engine/CollectiveAbi.h describes.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_COLLECTIVEKERNELS_H
#define LATHE_CODEGEN_COLLECTIVEKERNELS_H

#include "lathe/support/DType.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

/// For 2 to 8 ranks; `reduction` is "sum", "prod", "max" or "min"; elements are f64, f32, f16, bf16 or integers of 8 to 64
/// bits. `programmatic`: the target has launches that begin before those ahead are over. Empty for other arguments.
std::string collectiveKernelText(int64_t ranks, std::string_view reduction, DType dtype, bool programmatic);

} // namespace lathe

#endif // LATHE_CODEGEN_COLLECTIVEKERNELS_H
