//===- AttentionHoles.h - holes of the attention skeletons -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What SkeletonAttention.cpp and AttentionScores.cpp fill together.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CUDA_ATTENTIONHOLES_H
#define LATHE_CODEGEN_CUDA_ATTENTIONHOLES_H

#include "Holes.h"

namespace lathe::codegen {

/// The struct of holes of one attention.
struct Attention {
  Holes holes;
  const AttentionForm &form;
  AttentionOp op;

  Attention(const KernelSource &kernel, const KernelConfig &config)
      : holes(kernel, config), form(config.form->attention) {}
  mlir::LogicalResult build();
  mlir::LogicalResult common();
  void scalarHoles();
  mlir::LogicalResult tileHoles();
  void operandHoles(llvm::StringRef name, unsigned operand);
  void resultRows();
  void logSumExpHole();
  Index keyHead(Evaluator &e, mlir::Value head);
  /// Query heads of a key head.
  int64_t group() { return *dimOf(op.getQ(), 1).constant() / *dimOf(op.getK(), 1).constant(); }
  mlir::Value cappedScore(Evaluator &e, mlir::Value dot);
  mlir::Value score(Evaluator &e, const Indices &at, mlir::Value dot);
  mlir::Value seenAt(Evaluator &e, const Indices &at);
  mlir::Value addedAt(Evaluator &e, const Indices &at);
  mlir::Value throughAt(Evaluator &e, const Indices &at);
  void boxHole();
  void listHoles();
  void maskHoles();
  void keyMaskHole();
  /// Whether what comes to the scores is the same for all of a dimension that is so far from the last.
  bool sameAlong(size_t fromBack) { return op.scoreDims()[4 - fromBack] == DimExpr(1); }
  bool inPages(unsigned operand) { return holes.kernel.roles.operands[operand].pages >= 0; }
  void sixteenPlace(llvm::StringRef name, mlir::Value rows);
  void scaleHoles(llvm::StringRef name, mlir::Value scales);
  void sixteenHoles(llvm::StringRef name, unsigned operand);
  mlir::LogicalResult keysOfHole();
  void wgmmaHoles();
  /// Whether TMA brings tiles of the mask.
  bool hasMaskTiles() const { return holes.kernel.spec->mapOf(TensorMapArg::Role::Mask); }
  /// Whether the mask is read as a row for all queries.
  bool hasKeyMask() { return form.keyMask; }
  bool isPlain() {
    return !op.hasScoreOperands() && !op.getSoftcap() && op.getScale().convertToDouble() > 0;
  }
  /// Scores are products of keys that are seen or not.
  bool isMaskOnly() {
    return op.hidesKeysInside() && !op.getBias() && !op.getSoftcap() &&
           op.getScale().convertToDouble() > 0;
  }
};

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDA_ATTENTIONHOLES_H
