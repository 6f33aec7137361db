//===- Interpolation.h - weighted sums of neighbours along two axes -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_INTERPOLATION_H
#define LATHE_IR_INTERPOLATION_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// A sum over taps of weight * neighbour along one axis.
struct WeightedNeighbours {
  int64_t axis = 0;
  llvm::SmallVector<mlir::Value> places;  ///< of each tap: [n] integers, which element is taken for each of n
  llvm::SmallVector<mlir::Value> weights; ///< ... which broadcast along that axis alone

  size_t taps() const { return places.size(); }
};

/// `sum` is such a sum along two axes of `source`, which neighbour each other in memory or have others behind both.
struct Interpolation {
  mlir::Value sum, source;
  WeightedNeighbours rows, columns; ///< of the axis that comes first, and of the other
  llvm::SmallVector<int64_t> outer, inner; ///< the other dimensions: those that vary slower in memory than both, and faster

  std::vector<DimExpr> sizesOf(llvm::ArrayRef<int64_t> dims) const;
};

/// What a kernel of f32 sums is built around; none where it is another kernel, where other dimensions lie between the two,
/// or where its result has other sizes. A transpose at its end says how its result lies.
std::optional<Interpolation> interpolationOf(mlir::Block &body);

} // namespace lathe

#endif // LATHE_IR_INTERPOLATION_H
