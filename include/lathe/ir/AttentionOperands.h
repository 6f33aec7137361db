//===- AttentionOperands.h - what attention can read as it lies -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fusion, select and code generation must agree on about the operands of
// attention: keys and values in pages that a table names, and operands whose tokens
// lie before their heads.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_ATTENTIONOPERANDS_H
#define LATHE_IR_ATTENTIONOPERANDS_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// Rows [B, G, T, D] that are found in `memory` by views, permutations, slices and gathers alone:
/// sixteen neighbours of T, the first at a multiple of sixteen, lie at sixteen neighbouring indices
/// of its dimension `dim`, each in the last dimension as it is. Pages are gathers of a table here;
/// where a state is paged, an operand of attention with a KvLayout (lathe/engine/KvLayout.h) is to say so.
struct RowsInMemory {
  mlir::Value memory; ///< the first value on the way that none of these made
  int64_t dim = 2;
  bool gathered = false;
};
/// None when the rows do not lie so.
std::optional<RowsInMemory> rowsInMemory(mlir::Value rows);

/// Rows [B, G, T, D] as codes with a scale each, as lathe.kv_append stores them.
struct CodedRows {
  mlir::Value codes;  ///< what rowsInMemory finds: [B, G, T, D] of i8, or [B, G, T, D / 2] of ui8, two codes a byte
  mlir::Value scales; ///< [B, G, T, 1]
  int64_t bits = 8;
};
/// What rows are dequantized from; none when they are not.
std::optional<CodedRows> codedRows(mlir::Value rows);

/// The integers [B], an argument of the kernel's region, by which rows of the batch find their pages: where these are
/// equal, rows have the same keys and values. Null where keys or values depend on the row in another way too, or
/// its queries end at keys of their own.
mlir::Value keysFoundBy(AttentionOp attention);
/// How many rows the table has that such numbers choose from.
DimExpr rowsOfTable(mlir::Value numbers);

/// From [B, tokens, heads, size] to what attention takes, [B, heads, tokens, size].
inline constexpr int64_t kTokensFirst[] = {0, 2, 1, 3};
/// The value in memory whose tokens lie before its heads, where `operand` is that one transposed,
/// and nothing else; else null.
mlir::Value tokensFirst(mlir::Value operand);

} // namespace lathe

#endif // LATHE_IR_ATTENTIONOPERANDS_H
