//===- SpreadConvs.h - convolutions of spread images ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LAYOUT_SPREADCONVS_H
#define LATHE_PASSES_LAYOUT_SPREADCONVS_H

#include "../Common.h"

namespace lathe {

/// On a convolution: its filters are equal parts, one after another, whose weights outside a box of
/// taps are zero. First and count by dimension, part after part.
inline constexpr const char *kPartsAttr = "lathe.parts";

/// Convolutions with constant filters of images that are spread out with zeros (transposed
/// convolutions with a stride) become convolutions of the images as they are, with one filter for
/// each phase of the result. Pointwise ops behind them go before the change of order of the phases
/// where they have `lanes` channels or more.
void rewriteSpreadConvs(mlir::ModuleOp module, int64_t lanes);

} // namespace lathe

#endif // LATHE_PASSES_LAYOUT_SPREADCONVS_H
