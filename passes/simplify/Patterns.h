//===- Patterns.h - the rewrites of simplify --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SIMPLIFY_PATTERNS_H
#define LATHE_PASSES_SIMPLIFY_PATTERNS_H

#include "../Common.h"

#include "mlir/IR/PatternMatch.h"

namespace lathe {

/// Chains of transposes, reshapes, broadcasts, slices and casts; broadcasts that
/// their readers do themselves.
void populateMovementPatterns(mlir::RewritePatternSet &patterns);
/// Masks of attention that are the same for all queries.
void populateMaskPatterns(mlir::RewritePatternSet &patterns);
/// Identities of arithmetic.
void populateAlgebraPatterns(mlir::RewritePatternSet &patterns);
/// Ops on constants alone, through the reference; constants under other sizes;
/// dim_value arithmetic. `keepNarrow`: 8-bit matrices are not widened on their way to a
/// product, which some targets take as they are.
void populateConstantPatterns(mlir::RewritePatternSet &patterns, bool keepNarrow = true);

} // namespace lathe

#endif // LATHE_PASSES_SIMPLIFY_PATTERNS_H
