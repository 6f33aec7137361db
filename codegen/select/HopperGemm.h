//===- HopperGemm.h - matrix products of sm_90a -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_HOPPERGEMM_H
#define LATHE_CODEGEN_SELECT_HOPPERGEMM_H

#include "Choose.h"

#include <optional>

namespace lathe::select {

/// Whether an operand's rows can be read in pieces of 16 bytes whatever the sizes are.
bool readsInPieces(const KernelDesc &desc, const ContractionOperand &operand,
                   const GemmSizes &sizes, bool folded);

/// The map of an operand that lies in whole pieces of 16 bytes; nothing where there is none.
/// `folded`: rows of all batches are one matrix. The box is columns x rows, `swizzle` in bytes.
std::optional<TensorMapArg> operandMap(const KernelDesc &desc, const ContractionOperand &operand,
                                       const GemmSizes &sizes, bool folded, int64_t boxColumns,
                                       int64_t boxRows, int swizzle);

/// The packing of weights that are 2:4 sparse (support/Packing.h), which gemm_sparse.cuh and, of 16 bits, gemm_sparse_few.cuh
/// read; empty where they are not, or are no one matrix.
std::string twoOfFourPacking(const KernelDesc &desc, const GemmSizes &sizes);
/// The same of weights with blocks of zeros, which gemm_bsr.cuh reads.
std::string bsrPacking(const KernelDesc &desc, const GemmSizes &sizes);

/// A product that gemm_hopper.cuh can compute.
class HopperGemm {
public:
  /// Nothing where the target, the element types or the operands' places forbid it.
  static std::optional<HopperGemm> of(const KernelDesc &desc, const GemmSizes &sizes,
                                      const Target &target);

  /// What sizes must fulfil besides; empty: nothing.
  std::vector<DimCondition> conditions;
  /// The tile for numbers of rows between `from` and `to`, at least 1, whose threads hold fewer
  /// than `sums` sums; no family where there is none.
  KernelConfig choose(int64_t from, int64_t to, int64_t sums = kAnySums) const;
  static constexpr int64_t kAnySums = 1 << 20;
  /// The tile of gemm.split that is the fastest for few rows, whose order of sums any number of rows then has; no family
  /// where there is none.
  KernelConfig chooseInvariant() const;
  /// The tile with the order of sums of `few` for numbers of rows between `from` and `to`.
  KernelConfig chooseInvariant(const KernelConfig &few, int64_t from, int64_t to) const;
  static constexpr int64_t kStepBytes = 128; ///< of k in a stage: what the swizzle spans
  /// What a thread of a tile holds.
  static int64_t sumsOf(const KernelConfig &c);
  /// Threads, depth and as many stages as shared memory holds.
  KernelConfig complete(KernelConfig c) const;
  /// Whether a configuration of the families above is a tile of this product.
  bool allows(const KernelConfig &c) const;
  /// How many rows of A a tile loads when there are never more than `upTo`.
  int64_t rowsLoaded(int64_t tileM, int64_t upTo) const {
    return aAlongK && upTo < tileM ? (upTo + 7) / 8 * 8 : 1;
  }
  /// For numbers of rows up to `upTo`.
  KernelSpec spec(const KernelConfig &config, int64_t upTo) const;

  /// What the model says of a configuration for m rows: ns.
  double timeOf(const KernelConfig &config, int64_t m) const;

private:
  TileFacts facts() const;
  bool findsAmax(const KernelConfig &config) const;
  /// Of weights without zeros, in the form that a configuration reads; empty where they have none.
  std::string packingOf(const KernelConfig &config) const;
  /// The largest power of two, to 128, that divides the rows of both operands, in bytes.
  int64_t rowAlignment() const;
  /// Whether what becomes of the results leaves registers for many of them: the more sums a thread holds, the fewer are left.
  bool hasRoomForSums() const;
  /// Whether TMA brings a tensor of the results' shape.
  bool hasResidual() const;
  HopperGemm(const KernelDesc &desc, const GemmSizes &sizes, const Target &target)
      : desc(desc), sizes(sizes), target(target) {}
  const KernelDesc &desc;
  GemmSizes sizes;
  const Target &target;
  bool aAlongK = true, bAlongK = true, promoted = false;
  int64_t elementBytes = 2; ///< of the operands
  int64_t resultBytes = 0;  ///< of results that go through TMA; else 0
};

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_HOPPERGEMM_H
