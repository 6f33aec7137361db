//===- ChooseCpu.h - shared by the CPU's choosers ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_CHOOSECPU_H
#define LATHE_CODEGEN_SELECT_CHOOSECPU_H

#include "Choose.h"

namespace lathe::select {

constexpr int64_t kBlockElements = 4096; ///< of results that a block computes where nothing else is known

constexpr int64_t kMostOfUnit = 4096; ///< rows, panels or stages

inline int64_t lanesFor(const Target &target) { return target.lanes(DType::F32); }
inline bool isByte(DType type) { return type == DType::I8 || type == DType::UI8; }
inline bool isWide(DType type) { return !isFloat(type) || bitWidth(type) >= 32; }

/// The first configuration that was asked for which differs from the chosen one at most in what a unit of work has:
/// rows, panels, of which no unit has more than there are, and stages.
std::optional<KernelConfig> askedFor(const KernelDesc &desc, const KernelConfig &chosen, int64_t panels = kMostOfUnit);
/// The same, or the chosen one.
inline KernelConfig askedOr(const KernelDesc &desc, const KernelConfig &chosen, int64_t panels = kMostOfUnit) {
  return askedFor(desc, chosen, panels).value_or(chosen);
}
/// The place, among the configurations that were asked for, of the first that one of the variants has.
std::optional<size_t> placeAsked(const KernelDesc &desc, const std::vector<KernelVariant> &variants);

/// Register tile: rows by two registers of columns, accumulators below the
/// register count with room for operands.
KernelConfig productTile(const Skeleton &form, const Target &target);
/// Lets a constant operand be packed, or the codes that it is made of, where the recipe takes it:
/// static sizes that are not 0; numbers of whole bytes.
void packWeight(KernelSpec &spec, const ContractionOperand &w, const std::string &recipe);

/// Bytes of scratch memory and of weights that a unit of work may touch again and
/// again: a share of the second-level cache. More than that gains nothing.
int64_t residentBytes(const Target &target);
/// `each` units of work on up to four cores and in proportion on more, so that all have some and none waits long for
/// another.
int64_t unitsForCores(const Target &target, int64_t each);
/// Panels of so many columns. Without columns there is no work; a unit of it would still walk one.
int64_t panelsOf(int64_t columns, const KernelConfig &c);
/// Panels of weights that one unit walks: as many as stay in cache beside its rows,
/// but few enough that there are some units for every worker.
int64_t panelsOfUnit(int64_t depth, int64_t columns, int64_t units, const KernelConfig &c, const Target &target);
/// Panels of a unit that streams them from memory: all, as long as there are `enough` units for the workers.
int64_t panelsForWorkers(int64_t panels, int64_t blocks, int64_t enough);
/// Whether a product of f32 of this depth waits for its stores: little depth, and more results than stay in the
/// second-level cache.
bool resultsLead(int64_t depth, int64_t results, const Target &target);
/// Rows of a unit whose rows are computed into scratch memory.
int64_t rowsInScratch(int64_t depth, const KernelConfig &c, const Target &target);

/// A product by one constant matrix of floats of 32 or 16 bits.
struct WeightProduct {
  DimExpr rows;               ///< of all batches
  int64_t depth, columns;
  int64_t panels;             ///< of kBlockColumns columns
  bool rowsCopied;            ///< into scratch memory
  bool mayBeOne = false, isOne = false; ///< row
};
/// Its sizes; none, and why, where it is no such product.
std::optional<WeightProduct> productByWeights(const KernelDesc &desc, std::string &why);

/// Adds the variant of a product that always has one row by weights of which those that meet zeros are not read, where
/// zeros are expected.
bool chooseActive(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out);

/// Adds the variants of a convolution.
Status chooseConv(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out);

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_CHOOSECPU_H
