//===- Patterns.h - the rewrites of simplify --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SIMPLIFY_PATTERNS_H
#define LATHE_PASSES_SIMPLIFY_PATTERNS_H

#include "../Common.h"

#include "mlir/IR/PatternMatch.h"

namespace lathe {

/// Elements of an operand, and of a result that is large, that are read or kept where constants are folded.
inline constexpr int64_t kMostFolded = 16 << 20;

/// Chains of transposes, reshapes, broadcasts, slices and casts; broadcasts that
/// their readers do themselves.
void populateMovementPatterns(mlir::RewritePatternSet &patterns);
/// Gathers that repeat what they read.
void populateRepeatPatterns(mlir::RewritePatternSet &patterns);
/// Identities of arithmetic.
void populateAlgebraPatterns(mlir::RewritePatternSet &patterns);
/// Ops on constants alone, through the reference, filters of convolutions whatever makes them;
/// constants under other sizes; dim_value arithmetic. `keepCodes`: codes of at most 8 bits are not made numbers on their way to
/// a product, which some targets read as they are stored; `keepFilters`: neither on their way to a
/// convolution.
void populateConstantPatterns(mlir::RewritePatternSet &patterns, bool keepCodes = true, bool keepFilters = true);

/// Filters of convolutions that several ops make of constants (ConstantChains.cpp).
void populateFilterPatterns(mlir::RewritePatternSet &patterns, bool keepCodes);
/// Values that take more to compute of constants than to read (ConstantChains.cpp).
void populateDearConstantPatterns(mlir::RewritePatternSet &patterns);

/// Products and elementwise ops around a softmax on rows and heads as one dimension: on both again.
void populateMergedHeadsPatterns(mlir::RewritePatternSet &patterns);

/// Whether an op reads numbers of a table of one dimension, as a codebook is.
bool isTable(GatherOp op);
/// Whether a matmul reads the value, perhaps scaled, moved, converted or looked up before.
bool reachesProduct(mlir::Value value, int depth = 0);

} // namespace lathe

#endif // LATHE_PASSES_SIMPLIFY_PATTERNS_H
