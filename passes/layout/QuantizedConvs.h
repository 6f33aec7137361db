//===- QuantizedConvs.h - convolutions of 8-bit codes -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LAYOUT_QUANTIZEDCONVS_H
#define LATHE_PASSES_LAYOUT_QUANTIZEDCONVS_H

#include "../Common.h"

namespace lathe {

/// Convolutions of the module whose images and filters are dequantized from 8 bits convolve the codes
/// where the target has a kernel that is faster; what stays as it is says why, in a remark.
void rewriteQuantizedConvs(mlir::ModuleOp module, const Target &target);

/// Scales that stand ahead of quantize ops behind sums of codes go into the constants there; quantizing is then
/// rounding. Behind the folding of constants, which leaves one scale of each sum. `windowsAlone`: of convolutions only.
void foldRescales(mlir::ModuleOp module, bool windowsAlone);

} // namespace lathe

#endif // LATHE_PASSES_LAYOUT_QUANTIZEDCONVS_H
