//===- RowPrologues.cpp - norms inside the products that read them --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product of one row by weights reads that row in every block. What a norm
// needs of it, a sum, each block can make by itself while its weights are under
// way: the launch of the norm, and the wait for it, are gone.
//
//   %f = cast %x                              kernel gemm {
//   %s = reduce sum (mul %f, %f)                cast, mul, reduce, .., mul, cast,
//   %y = cast (mul %f, (rsqrt %s ..))     =>    matmul
//   %z = matmul %y, %w                        }
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

using namespace mlir;

namespace lathe::fuse {

/// One row of 16-bit floats by constant weights with contiguous k, of which a block takes all of k
/// at a time: `gemv.row` (codegen/select/ChooseCudaGemm.cpp).
static bool takesRow(MatmulOp matmul) {
  constexpr int64_t kMostDepth = 4096, kPiece = 8;
  Operation *weights = matmul.getB().getDefiningOp<ConstantOp>();
  if (matmul.getTransposeA() || !matmul.getTransposeB() || !weights || isNumber(weights) ||
      dimsOf(matmul.getB()).size() != 2)
    return false;
  std::vector<DimExpr> dims = dimsOf(matmul.getA());
  auto depth = dims.back().constant();
  dims.pop_back();
  Type element = elementTypeOf(matmul.getA());
  return product(dims) == DimExpr(1) && depth && *depth <= kMostDepth && *depth > 0 &&
         *depth % kPiece == 0 && (element.isF16() || element.isBF16()) &&
         elementTypeOf(matmul.getB()) == element;
}

/// The sum over whole rows of f32 that one value of the chain is.
static bool isRowSum(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  if (!reduce || reduce.getKind() != ReduceKind::Sum || !elementTypeOf(reduce.getX()).isF32())
    return false;
  ArrayRef<int64_t> axes = reduce.getAxes();
  return axes.size() == 1 && axes[0] + 1 == int64_t(dimsOf(reduce.getX()).size());
}

/// The ops behind the row that are there for `readers` alone, users first: pointwise ops and one
/// sum of the row. Empty when there is no such sum. Before the sum, values are wider than what is
/// kept in memory.
static SmallVector<Operation *> chainOf(Value row, const llvm::SetVector<Operation *> &readers) {
  llvm::SetVector<Operation *> chain;
  llvm::DenseSet<Operation *> summed; // what the sum is made of
  Operation *sum = nullptr;
  auto isInside = [&](Operation *user) { return readers.contains(user) || chain.contains(user); };
  Operation *last = row.getDefiningOp();
  if (!last)
    return {};
  // In the order of the block from the end: users are known before what they use.
  for (Operation *op = last; op && (op == last || !chain.empty()); op = op->getPrevNode()) {
    if (op != last && llvm::none_of(op->getUsers(), [&](Operation *u) { return chain.contains(u); }))
      continue;
    if (!classOf(op) || op->getNumResults() != 1 || !llvm::all_of(op->getUsers(), isInside))
      continue;
    bool before = llvm::any_of(op->getUsers(), [&](Operation *u) { return summed.contains(u); });
    Type element = elementTypeOf(op->getResult(0));
    if (isClass(op, OpClass::Reduction)) {
      if (sum || !isRowSum(op))
        return {};
      sum = op;
      before = true;
    } else if (!(isClass(op, OpClass::Pointwise) || isa<ReshapeOp>(op)) ||
               (before && !element.isF32())) {
      continue;
    }
    // A value for the row, or one for each of its elements.
    DimExpr count = product(dimsOf(op->getResult(0)));
    if (count != DimExpr(1) && count != product(dimsOf(row)))
      continue;
    chain.insert(op);
    if (before)
      summed.insert(op);
  }
  if (!sum)
    return {};
  return chain.takeVector();
}

void cloneRowPrologues(func::FuncOp func) {
  Block &block = func.getBody().front();
  llvm::MapVector<Value, llvm::SetVector<Operation *>> byRow;
  for (MatmulOp matmul : block.getOps<MatmulOp>())
    if (takesRow(matmul))
      byRow[matmul.getA()].insert(matmul);
  for (auto &[row, readers] : byRow) {
    // One launch is saved, some arithmetic of every block is not.
    constexpr size_t kMostReaders = 4;
    SmallVector<Operation *> chain = chainOf(row, readers);
    if (chain.empty() || readers.size() > kMostReaders)
      continue;
    for (Operation *reader : llvm::drop_begin(readers)) {
      OpBuilder builder(reader);
      IRMapping mapping;
      for (Operation *op : llvm::reverse(chain))
        builder.clone(*op, mapping);
      reader->setOperand(0, mapping.lookup(row));
    }
  }
}

void ownRowPrologue(FusionGraph &graph, Group &group) {
  auto matmul = dyn_cast<MatmulOp>(group.heart);
  if (!matmul || !takesRow(matmul))
    return;
  llvm::SetVector<Operation *> readers;
  readers.insert(matmul);
  SmallVector<Operation *> chain = chainOf(matmul.getA(), readers);
  for (Operation *op : chain)
    graph.own(op, group);
  if (!chain.empty())
    passedRemark(matmul.getLoc(), "RowPrologue") << "each block makes the norm of its row itself";
}

} // namespace lathe::fuse
