//===- GemmHoles.h - holes of the skeletons of products ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What SkeletonGemm.cpp, SkeletonGemmHopper.cpp and SkeletonGemmHeads.cpp fill together.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CUDA_GEMMHOLES_H
#define LATHE_CODEGEN_CUDA_GEMMHOLES_H

#include "Holes.h"

#include "lathe/ir/BlockScales.h"
#include "lathe/ir/StorageOperand.h"

#include <optional>
#include <vector>

namespace lathe::codegen {

/// One operand of a product: where it lies, or how it is computed.
struct GemmOperand {
  mlir::Value value;
  bool isA;
  bool transposed;                   ///< the last two dimensions are stored swapped
  const BufferArg *buffer = nullptr; ///< of a block argument
  unsigned argument = 0;
  bool plain = false; ///< may be read from memory in pieces
  bool packed = false; ///< the buffer has fragments of codes, or what is kept of a sparse matrix (Packing.h)
  std::optional<StorageOperand> stored; ///< the buffer has the codes of these elements
  int64_t codes = 1; ///< elements in one of the buffer's
  mlir::Type storage;

  /// k is contiguous in memory (or would be).
  bool alongK() const { return isA ? !transposed : transposed; }
  const char *name() const { return isA ? "A" : "B"; }
};

/// The struct of holes of one product.
struct Gemm {
  Holes holes;
  const ProductForm &form;
  const KernelRoles &roles;
  MatmulOp op;
  GemmOperand a, b;
  std::vector<DimExpr> batch; ///< of the result
  DimExpr m, n, k;
  std::optional<BlockScales> scales; ///< operands are codes, whose sums are scaled
  bool folded = false; ///< batch and M are one dimension of rows (KernelRoles::foldedRows)
  /// Slices of the halves of the columns that a gate pair is made of.
  llvm::SmallVector<SliceOp> halves[2];
  mlir::Type accumulator;

  Gemm(const KernelSource &kernel, const KernelConfig &config)
      : holes(kernel, config), form(config.form->product), roles(kernel.roles) {}
  mlir::LogicalResult build();
  void describe(GemmOperand &s, mlir::Value v, bool isA, bool transposed, mlir::Type element);
  Indices operandIndex(Evaluator &e, const GemmOperand &s, mlir::Value batchIndex, const Index &row,
                       const Index &depth);
  void operand(const GemmOperand &s, mlir::Type element);
  void dequantizing(GemmOperand &s);
  /// The elements of an operand that are multiplied.
  mlir::Type multipliedType(bool isA);
  void scalesOfBlocks();
  mlir::LogicalResult buildPacked(mlir::Type element, int64_t lanes);
  mlir::LogicalResult buildSparseFew(mlir::Type element, int64_t lanes);
  mlir::LogicalResult buildActive(mlir::Type element, int64_t lanes);
  void parametersOfGroups();
  void startAndWait();
  Indices resultIndex(Evaluator &e, mlir::Value batchIndex, mlir::Value row, const Index &column);
  void write(int64_t lanes);
  void findPairs();
  /// Two sums that lie far apart make a result.
  bool inPairs() const {
    return roles.pair == KernelRoles::Pair::Halves || roles.pair == KernelRoles::Pair::HeadHalves;
  }
  bool hasNeighbours() const { return roles.pair == KernelRoles::Pair::Neighbours; }
  bool hasHeads() const { return roles.hasHeads(); }
  /// The columns as heads: the result of the reshape that splits them.
  mlir::Value splitColumns() { return opAt(*holes.kernel.body, roles.split)->getResult(0); }
  /// Where pairs go; see bindHeads.
  struct HeadPlaces {
    int64_t half = 0; ///< from one to the other; of neighbours, which are two lanes, 0
    mlir::Value inside;
    llvm::SmallVector<Indices> places;
    llvm::SmallVector<mlir::Value> has; ///< whether the output has this head
    Index last(IndexMath &ix, int64_t h, int64_t lanes) const {
      return Index(ix.add(inside, h * half), lanes > 1 ? 1 : 0);
    }
  };
  HeadPlaces bindHeads(Evaluator &e, mlir::ValueRange p, int64_t lanes);
  void bindNeighbours(Evaluator &e, const std::vector<DimExpr> &split, Indices at,
                      mlir::Value sums);
  void storeHeads(Evaluator &e, mlir::ValueRange p, int64_t lanes);
  void writeHeads(mlir::Type stored);
  void aheadOfHeads();
  void bindHalves(Evaluator &e, const Indices &at, mlir::Value first, mlir::Value second);
  /// The map of the residual that TMA brings to the place of results; null where none is brought.
  const TensorMapArg *residualMap() const {
    return holes.kernel.spec->mapOf(TensorMapArg::Role::Residual);
  }
  void bindResidual(Evaluator &e, const Indices &at, mlir::Value residual);
  mlir::Value pairValue(Evaluator &e, const Indices &at, mlir::Value first, mlir::Value second);
  mlir::Value withResidual(Evaluator &e, const Indices &at, mlir::Value residual, mlir::Value sums,
                           bool stored = true);
  mlir::LogicalResult buildWgmma();
  mlir::LogicalResult buildMixed();
  void multiplyWidened(mlir::Type element, bool by16);
  void writeStaged(mlir::Type stored);
  void writeAmax(llvm::ArrayRef<std::string> params, mlir::Type before);
};

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDA_GEMMHOLES_H
