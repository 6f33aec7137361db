//===- MergedTranspose.cpp - a transpose of as few dimensions as it needs -===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/ir/MergedTranspose.h"

using namespace mlir;

namespace lathe {

MergedTranspose MergedTranspose::of(TransposeOp op) {
  MergedTranspose merged;
  const std::vector<DimExpr> dims = dimsOf(op.getResult());
  std::vector<int64_t> kept; // of the operand, in the order of the result; then its last one
  std::vector<int64_t> last;
  const std::vector<DimExpr> before = dimsOf(op.getX());
  auto follows = [&](int64_t next, int64_t d) { // nothing but single elements lies between
    for (int64_t i = d + 1; i < next; ++i)
      if (before[i] != DimExpr(1))
        return false;
    return d < next;
  };
  for (auto [size, d] : llvm::zip(dims, op.getPerm())) {
    if (size == DimExpr(1))
      continue;
    if (!kept.empty() && follows(d, last.back())) {
      merged.sizes.back() = merged.sizes.back() * size;
      last.back() = d;
      continue;
    }
    merged.sizes.push_back(size);
    kept.push_back(d);
    last.push_back(d);
  }
  for (int64_t d : kept)
    merged.from.push_back(llvm::count_if(kept, [&](int64_t other) { return other < d; }));
  return merged;
}

TransposeOp onlyTranspose(Block &body) {
  Operation *yield = body.getTerminator();
  auto op = yield->getNumOperands() == 1 ? yield->getOperand(0).getDefiningOp<TransposeOp>() : TransposeOp();
  return op && isa<BlockArgument>(op.getX()) ? op : TransposeOp();
}

} // namespace lathe
