//===- Choose.h - shared by the choosers ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_CHOOSE_H
#define LATHE_CODEGEN_SELECT_CHOOSE_H

#include "lathe/codegen/Config.h"
#include "lathe/codegen/KernelDesc.h"

namespace lathe::select {

using Variants = Result<std::vector<KernelVariant>>;
Variants chooseCpu(const KernelDesc &desc, const Target &target);
Variants chooseCuda(const KernelDesc &desc, const Target &target);

/// A spec with the buffers, symbols and status channel of `desc` and one launch
/// with this grid on axis 0.
KernelSpec specFor(const KernelDesc &desc, const KernelConfig &config, const DimExpr &grid);

/// Adds a variant; function names get the variant's number from the second on. Of `otherwise`
/// (KernelVariant) those that need the same buffers and workspace are kept.
void addVariant(std::vector<KernelVariant> &to, std::vector<DimCondition> guard, KernelSpec spec,
                std::vector<KernelSpec> otherwise = {});

/// Whether `e` is a multiple of `d` whatever the symbols are.
bool divides(int64_t d, const DimExpr &e);
DimRange rangeOf(const DimExpr &e, const KernelDesc &desc);

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_CHOOSE_H
