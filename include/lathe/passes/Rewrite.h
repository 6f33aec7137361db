//===- Rewrite.h - patterns to the end, within a limit ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_REWRITE_H
#define LATHE_PASSES_REWRITE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Rewrite/FrozenRewritePatternSet.h"

namespace lathe {

/// Applies the patterns until nothing changes, and merges equal constants. Two rewrites that undo
/// each other would go on for ever: beyond 64 times the number of ops they are an internal error
/// at the last op, with the pattern's name.
mlir::LogicalResult rewriteToTheEnd(mlir::ModuleOp module,
                                    const mlir::FrozenRewritePatternSet &patterns,
                                    bool *changed = nullptr);

} // namespace lathe

#endif // LATHE_PASSES_REWRITE_H
