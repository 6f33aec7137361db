//===- MergedTranspose.h - a transpose of as few dimensions as it needs -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_MERGEDTRANSPOSE_H
#define LATHE_IR_MERGEDTRANSPOSE_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// A transpose whose dimensions of one element are left out, and whose dimensions that stay neighbours are one:
/// [5, 116555, 8] to [116555, 8, 5] is a matrix of 5 x 932440.
struct MergedTranspose {
  std::vector<DimExpr> sizes; ///< of the result
  std::vector<int64_t> from;  ///< which dimension of the operand each is

  static MergedTranspose of(TransposeOp op);
};

/// The transpose of a kernel that does nothing else, element by element as its input has them; null: it is none.
TransposeOp onlyTranspose(mlir::Block &body);

} // namespace lathe

#endif // LATHE_IR_MERGEDTRANSPOSE_H
