//===- ScatterSizes.h - what a scatter's indices name -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_SCATTERSIZES_H
#define LATHE_IR_SCATTERSIZES_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// A scatter_elements or scatter_nd as updates of places, side by side for what the indices do not name. Of
/// scatter_elements these are all dimensions but the axis, of scatter_nd those behind the ones that a tuple names.
struct ScatterSizes {
  llvm::SmallVector<int64_t> named, beside; ///< dimensions of the operand
  std::vector<DimExpr> places;              ///< sizes of the named ones
  std::vector<DimExpr> updates;             ///< for each element beside: the axis, or the sizes of the list of tuples
  std::vector<DimExpr> columns;             ///< sizes beside that have updates: those of the operand, or less

  static ScatterSizes of(mlir::Operation *scatter);
};

} // namespace lathe

#endif // LATHE_IR_SCATTERSIZES_H
