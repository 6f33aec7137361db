//===- ZeroBlocksAttr.h - what is known of zeros in products ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SPARSIFY_ZEROBLOCKSATTR_H
#define LATHE_PASSES_SPARSIFY_ZEROBLOCKSATTR_H

namespace lathe {

/// On a product by constant weights, an array of two i64: how many of their blocks of 1 x 16 and of 4 x 16
/// (support/ZeroBlocks.h) are not all zero; -1 where the depth has no whole blocks. Without it nothing is
/// known, or nothing but that there are hardly any.
inline constexpr const char *kNonzeroBlocksAttr = "lathe.nonzero_blocks";

/// On a product by constant weights of 16-bit floats, an array of two i64: how many blocks of 64 x 64 and how many steps
/// are multiplied (support/BlockSteps.h). Only where some block is left out.
inline constexpr const char *kBlockStepsAttr = "lathe.block_steps";

/// On a product by constant weights of 8 or 16 bits, a unit: they are 2:4 sparse along K (support/TwoOfFour.h).
inline constexpr const char *kTwoOfFourAttr = "lathe.two_of_four";

/// On a product, a unit: many elements of its left operand may be zero in a run, since a threshold or relu makes
/// them so, and its right operand is constant and finite, so that zeros add nothing.
inline constexpr const char *kInactiveInputsAttr = "lathe.inactive_inputs";

} // namespace lathe

#endif // LATHE_PASSES_SPARSIFY_ZEROBLOCKSATTR_H
