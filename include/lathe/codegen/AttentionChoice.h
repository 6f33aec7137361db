//===- AttentionChoice.h - choosing how attention runs ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the descriptors of attention (Skeleton.h) see of one and add their
// variants to, on GPUs.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_ATTENTIONCHOICE_H
#define LATHE_CODEGEN_ATTENTIONCHOICE_H

#include "lathe/codegen/Choice.h"

namespace lathe::select {

class AttentionChoice {
public:
  /// Nothing for heads that no skeleton holds in registers, and types that none computes.
  static std::optional<AttentionChoice> of(const KernelDesc &desc, const Target &target,
                                           std::vector<KernelVariant> &out);

  const KernelDesc &desc;
  const Target &target;
  const DimExpr &queries, &keys;
  const int64_t headQK, headV; ///< sizes of a head
  const int64_t codeBits;      ///< of keys in pages (ContractionOperand)
  const bool half;             ///< queries, keys and values of one 16-bit type
  const DimRange queryRange, keyRange;

  /// Adds a variant. Whether sizes are left to care for.
  bool add(std::vector<DimCondition> guard, KernelSpec spec);
  /// A spec whose blocks have queries on axis 0, heads on axis 1 and batches on axis 2.
  KernelSpec specByHeads(const KernelConfig &config, const DimExpr &blocks) const;
  int64_t sharedBytes(const KernelConfig &config, bool mask = false) const;
  /// Whether an operand lies in memory in rows of whole pieces of 16 bytes.
  bool inPieces(size_t operand) const;

private:
  AttentionChoice(const KernelDesc &desc, const Target &target, int64_t headQK, int64_t headV,
                  bool half, std::vector<KernelVariant> &out);

  std::vector<KernelVariant> &out;
};

/// Whether attention.split can run few queries of this (codegen/device/attention_split.cpp).
bool splitTakes(const AttentionChoice &attention);

} // namespace lathe::select

#endif // LATHE_CODEGEN_ATTENTIONCHOICE_H
