//===- AttentionHoles.h - holes of the attention skeletons -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What SkeletonAttention.cpp and AttentionScores.cpp fill together.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CUDA_ATTENTIONHOLES_H
#define LATHE_CODEGEN_CUDA_ATTENTIONHOLES_H

#include "Holes.h"

#include "lathe/ir/AttentionOperands.h"

namespace lathe::codegen {

/// The struct of holes of one attention.
struct Attention {
  Holes holes;
  AttentionOp op;
  MaskParts parts;

  Attention(const KernelSource &kernel, const KernelConfig &config) : holes(kernel, config) {}
  mlir::LogicalResult build();
  mlir::LogicalResult common();
  void scalarHoles();
  mlir::LogicalResult tileHoles();
  void operandHoles(llvm::StringRef name, mlir::Value v, bool isKey);
  void resultRows();
  void logSumExpHole();
  Index keyHead(Evaluator &e, mlir::Value head);
  /// Query heads of a key head.
  int64_t group() { return *dimOf(op.getQ(), 1).constant() / *dimOf(op.getK(), 1).constant(); }
  mlir::Value cappedScore(Evaluator &e, mlir::Value dot);
  mlir::Value score(Evaluator &e, const Indices &at, mlir::Value dot);
  mlir::Value maskAt(Evaluator &e, const Indices &at);
  void listHoles();
  void maskHoles();
  void keyMaskHole();
  /// Whether the mask has one element for all of a dimension that is so far from its last.
  bool sameAlong(size_t fromBack) {
    std::vector<DimExpr> mask = dimsOf(parts.mask);
    return mask.size() < fromBack || mask[mask.size() - fromBack] == DimExpr(1);
  }
  bool inPages(mlir::Value v) {
    std::optional<RowsInMemory> rows = rowsInMemory(v);
    return rows && rows->gathered;
  }
  void sixteenHoles(llvm::StringRef name, mlir::Value v);
  void wgmmaHoles();
  /// Whether the mask is read as a row for all queries.
  bool hasKeyMask() { return llvm::StringRef(holes.config.family).ends_with(".keymask"); }
  /// Something beyond the ends of keys.
  bool hasMask() { return parts.mask && !parts.onlyEnds; }
  bool isPlain() {
    return !hasMask() && !op.getSoftcap() && op.getScale().convertToDouble() > 0;
  }
  /// Scores are products that a boolean mask lets through.
  bool isMaskOnly() {
    return hasMask() && elementTypeOf(parts.mask).isInteger(1) && !op.getSoftcap() &&
           op.getScale().convertToDouble() > 0;
  }
};

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDA_ATTENTIONHOLES_H
