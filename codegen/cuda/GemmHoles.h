//===- GemmHoles.h - holes of the skeletons of products ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What SkeletonGemm.cpp, SkeletonGemmHopper.cpp and SkeletonGemmHeads.cpp fill together.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CUDA_GEMMHOLES_H
#define LATHE_CODEGEN_CUDA_GEMMHOLES_H

#include "Holes.h"

#include "lathe/ir/HeadPairs.h"

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
  bool narrow = false; ///< the buffer has 8 bits of each element (lathe/ir/NarrowWeights.h)
  mlir::Type storage;

  /// k is contiguous in memory (or would be).
  bool alongK() const { return isA ? !transposed : transposed; }
  const char *name() const { return isA ? "A" : "B"; }
};

/// The struct of holes of one product.
struct Gemm {
  Holes holes;
  MatmulOp op;
  GemmOperand a, b;
  std::vector<DimExpr> batch; ///< of the result
  DimExpr m, n, k;
  bool folded = false; ///< batch and M are one dimension of rows
  /// Halves of the columns, of which results are made in pairs (KernelDesc::resultPair).
  llvm::SmallVector<SliceOp> halves[2];
  /// Or the columns as heads, whose halves or neighbours make the pairs (KernelDesc::pairHead).
  std::optional<HeadPairs> heads;
  mlir::Type accumulator;

  Gemm(const KernelSource &kernel, const KernelConfig &config) : holes(kernel, config) {}
  mlir::LogicalResult build();
  void describe(GemmOperand &s, mlir::Value v, bool isA, bool transposed, mlir::Type element);
  Indices operandIndex(Evaluator &e, const GemmOperand &s, mlir::Value batchIndex, const Index &row,
                       const Index &depth);
  void operand(const GemmOperand &s, mlir::Type element);
  void widening(const GemmOperand &s);
  Indices resultIndex(Evaluator &e, mlir::Value batchIndex, mlir::Value row, const Index &column);
  void write(int64_t lanes);
  void findHalves();
  bool inPairs() const { return heads ? !heads->neighbours : !halves[0].empty(); }
  bool hasNeighbours() const { return heads && heads->neighbours; }
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
  void bindBeside(Evaluator &e, const Indices &at, mlir::Value beside);
  mlir::Value pairValue(Evaluator &e, const Indices &at, mlir::Value first, mlir::Value second);
  mlir::Value besideValue(Evaluator &e, const Indices &at, mlir::Value beside, mlir::Value sums, bool stored = true);
  mlir::LogicalResult buildWgmma();
  mlir::LogicalResult buildWidened();
  void writeStaged(mlir::Type stored);
  void writeExtremes(ReduceOp extremes, llvm::ArrayRef<std::string> params, mlir::Type before);
};

// Families of configurations; more are in lathe/codegen/Config.h.
inline bool isStream(const KernelConfig &config) { return config.family == "gemm.stream"; }
inline bool isSkinny(const KernelConfig &config) {
  return config.family == "gemv.row" || config.family == "gemv.columns" ||
         config.family == "gemm.skinny" || isStream(config);
}
inline bool isWidened(const KernelConfig &config) { return config.family == "gemm.widened"; }
inline bool isWgmma(const KernelConfig &config) {
  return inTurns(config) || config.family.starts_with("gemm.cooperative") ||
         config.family == "gemm.promoted" || isSplit(config);
}

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDA_GEMMHOLES_H
