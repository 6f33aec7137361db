//===- AttentionOperands.h - what attention can read as it lies -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fusion, select and code generation must agree on about the operands of
// attention: keys and values in pages that a table names, operands whose tokens
// lie before their heads, and masks that only say where a query's keys end.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_ATTENTIONOPERANDS_H
#define LATHE_IR_ATTENTIONOPERANDS_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// Rows [B, G, T, D] that are found in `memory` by views, permutations, slices and gathers alone:
/// sixteen neighbours of T, the first at a multiple of sixteen, lie at sixteen neighbouring indices
/// of its dimension `dim`, each in the last dimension as it is.
struct RowsInMemory {
  mlir::Value memory; ///< the first value on the way that none of these made
  int64_t dim = 2;
  bool gathered = false;
};
/// None when the rows do not lie so.
std::optional<RowsInMemory> rowsInMemory(mlir::Value rows);

/// From [B, tokens, heads, size] to what attention takes, [B, heads, tokens, size].
inline constexpr int64_t kTokensFirst[] = {0, 2, 1, 3};
/// The value in memory whose tokens lie before its heads, where `operand` is that one turned, and
/// nothing else; else null.
mlir::Value tokensFirst(mlir::Value operand);

/// A part of a mask that hides the keys from a number on, which may grow with the query:
/// key < `end`, or key <= end when `inclusive`. `end` broadcasts to [B, H, S, 1].
struct KeyEnd {
  mlir::Value end;
  bool inclusive = false;
  bool perQuery = false;
};
///
/// A mask of one column more than there are keys, [.., T + 1], has the sink there: a score of a key
/// that has no value, which only takes weight from the others.
struct MaskParts {
  llvm::SmallVector<KeyEnd, 2> ends;
  bool onlyEnds = true; ///< nothing else is in `mask`
  mlir::Value mask;     ///< what comes to the scores; null: nothing
  mlir::Value sink;     ///< broadcasts to [B, H, S, 1]; null: none, or the last column of `mask`
  bool sinkInMask = false;
  bool perQuery() const {
    return llvm::any_of(ends, [](const KeyEnd &e) { return e.perQuery; });
  }
};
bool hasSink(AttentionOp op);
/// The ends in the attention's boolean mask; without a mask, none.
MaskParts maskParts(AttentionOp op);
/// Whether the mask is the same for all queries (padding of keys), nothing but a scale > 0 comes to the
/// scores beside it, and no log-sum-exp is asked for.
bool isKeyMask(AttentionOp op, const MaskParts &parts);

} // namespace lathe

#endif // LATHE_IR_ATTENTIONOPERANDS_H
