//===- ConvProducts.h - convolutions that are products ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LAYOUT_CONVPRODUCTS_H
#define LATHE_PASSES_LAYOUT_CONVPRODUCTS_H

#include "../Common.h"

#include "mlir/IR/PatternMatch.h"

namespace lathe {

/// The permutation from channels first to channels last, and the opposite of one.
llvm::SmallVector<int64_t> channelsToLast(int64_t rank);
llvm::SmallVector<int64_t> inversePermutation(llvm::ArrayRef<int64_t> perm);

/// Convolutions of 16-bit floats with windows of one pixel, or with windows that lie side by
/// side over images of few channels, become products with channels last.
void populateConvProductPatterns(mlir::RewritePatternSet &patterns);

/// Whether a convolution or pool of 16-bit floats runs faster on sm_90a with channels last.
bool wantsChannelsLast(ConvOp op);
bool wantsChannelsLast(PoolOp op);

} // namespace lathe

#endif // LATHE_PASSES_LAYOUT_CONVPRODUCTS_H
