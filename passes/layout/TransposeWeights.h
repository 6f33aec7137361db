//===- TransposeWeights.h - matrices of weights the other way ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LAYOUT_TRANSPOSEWEIGHTS_H
#define LATHE_PASSES_LAYOUT_TRANSPOSEWEIGHTS_H

#include "../Common.h"

#include "lathe/ir/WeightStore.h"

#include "llvm/ADT/DenseMap.h"

namespace lathe {

/// Exchanges the last two dimensions: of a weight when compiling, once for all who ask; of anything
/// else by a transpose, which costs its time in each run.
class TransposeWeights {
public:
  explicit TransposeWeights(mlir::ModuleOp module)
      : weights(module.getContext()->getLoadedDialect<LatheDialect>()->weights()) {}

  mlir::Value operator()(mlir::OpBuilder &b, mlir::Location loc, mlir::Value v);
  /// The elements of a weight; none for other values, and for numbers.
  std::optional<std::vector<std::byte>> bytesOf(mlir::Value v);

  WeightStore &weights;

private:
  llvm::DenseMap<mlir::Value, mlir::Value> done;
};

} // namespace lathe

#endif // LATHE_PASSES_LAYOUT_TRANSPOSEWEIGHTS_H
