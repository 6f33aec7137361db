//===- Rules.h - the evaluator's rules by family ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each family of lathe ops has a file that adds its rules to one table; the
// helpers that several families use are declared here.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TILE_RULES_H
#define LATHE_CODEGEN_TILE_RULES_H

#include "Evaluator.h"

#include "llvm/ADT/StringMap.h"

namespace lathe::codegen {

using RuleTable = llvm::StringMap<Rule>;
void addElementwiseRules(RuleTable &);
void addMovementRules(RuleTable &);
void addGatherRules(RuleTable &);
void addReductionRules(RuleTable &);
void addSamplingRules(RuleTable &);
void addWindowRules(RuleTable &);
void addContractionRules(RuleTable &);
void addAttentionRules(RuleTable &);
void addQuantizeRules(RuleTable &);
void addRandomRules(RuleTable &);

/// What a dequantize makes of the data at an index of its result before it rounds: in
/// `dequantizedType`, without those of its scales that are left to someone else.
mlir::Value dequantizedAt(Evaluator &e, DequantizeOp op, const Indices &idx,
                          llvm::ArrayRef<mlir::Value> without);
mlir::Type dequantizedType(DequantizeOp op);
/// A parameter of a quantize or dequantize at the index of its result: of the block that it lies in.
mlir::Value parameterAt(Evaluator &e, mlir::Value parameter, mlir::Value result,
                        llvm::ArrayRef<int64_t> block, const Indices &idx, mlir::Type compute);

/// Index of an operand that broadcasts to a result (aligned at the last dimension).
Indices operandIndex(Evaluator &e, mlir::Value operand, mlir::Value result, const Indices &idx);
/// The same for the leading `count` dimensions of both, for batched ops.
Indices batchIndex(Evaluator &e, llvm::ArrayRef<DimExpr> operand, llvm::ArrayRef<DimExpr> result,
                   llvm::ArrayRef<Index> idx);
/// What is added to the score at [b, h, s, t]; null without a bias.
mlir::Value attentionBias(Evaluator &e, AttentionOp op, const Indices &at);
/// Whether the query of a score sees its key, ends of keys (attentionEnd) aside; null where all are seen.
mlir::Value attentionSeen(Evaluator &e, AttentionOp op, const Indices &at);
/// The score at `at` with both, scaled and capped before; -inf where the key is not seen.
mlir::Value biasedScore(Evaluator &e, AttentionOp op, const Indices &at, mlir::Value score);
/// Index behind the last key that query `s` may see: by lengths, causality and the window's right. It
/// does not shrink from a query to the next.
mlir::Value attentionEnd(Evaluator &e, AttentionOp op, const Index &b, mlir::Value s);
/// Index of the first key that query `s` may see: by starts and the window's left. It does not shrink from a query
/// to the next.
mlir::Value attentionBegin(Evaluator &e, AttentionOp op, const Index &b, mlir::Value s);
/// The sink of the row at [b, h, s], a score of its own in the type that scores have; null without.
mlir::Value attentionSink(Evaluator &e, AttentionOp op, const Index &b, const Index &h,
                          const Index &s);
/// Value of x where every index is inside x, else `otherwise` (scalar).
mlir::Value evalInside(Evaluator &e, mlir::Value x, const Indices &idx, mlir::Value otherwise);
/// The smallest groups of neighbouring dimensions that a reshape takes from one shape to the other: called with where each
/// begins and ends in `from` and in `to`, from the last on. Sizes of 1 between groups belong to none.
void overReshapedGroups(llvm::ArrayRef<DimExpr> from, llvm::ArrayRef<DimExpr> to,
                        llvm::function_ref<void(size_t, size_t, size_t, size_t)> body);
/// Index in a tensor of sizes `to` of what index `idx` of sizes `from` names in row-major order.
Indices reshapeIndex(Evaluator &e, const std::vector<DimExpr> &from,
                     const std::vector<DimExpr> &to, const Indices &idx);
/// Splits a flat index over sizes, innermost last.
Indices delinearize(Evaluator &e, const Index &flat, llvm::ArrayRef<DimExpr> dims);
/// Whether v may be asked at an index whose dimensions [first, last] are (0, .., flat).
bool flatDims(Evaluator &e, mlir::Value v, int64_t first, int64_t last);
/// Which of the dimensions [first, last] takes the flat index: the last that is not 1.
int64_t flatPlace(llvm::ArrayRef<DimExpr> dims, int64_t first, int64_t last);
/// Runs over [0, n): with the lanes that `idx` has, element after element; else
/// with lanes along the row (Evaluator::reduceRow).
llvm::SmallVector<mlir::Value>
reduceOver(Evaluator &e, bool hasLanes, const DimExpr &n,
           llvm::ArrayRef<Evaluator::Accumulator> accs,
           llvm::function_ref<llvm::SmallVector<mlir::Value>(const Index &)> body);
/// Integer operands of a contraction in the accumulator's type.
mlir::Value widen(Evaluator &e, mlir::Value v, mlir::Type from, mlir::Type accumulator);
/// The larger (`isMax`) or smaller of floats and a number that is none; NaN stays.
mlir::Value bounded(Evaluator &e, mlir::Value v, double bound, bool isMax);
/// Splat value of a constant, as a double.
std::optional<double> splatOf(mlir::Value v);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_TILE_RULES_H
