//===- Choose.h - shared by the choosers ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_CHOOSE_H
#define LATHE_CODEGEN_SELECT_CHOOSE_H

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/ProductChoice.h"

namespace lathe::select {

using Variants = Result<std::vector<KernelVariant>>;
Variants chooseCpu(const KernelDesc &desc, const Target &target);
/// Adds the variants of a product by weights with blocks of zeros, where leaving these out pays.
bool chooseBlocks(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out);
Variants chooseCuda(const KernelDesc &desc, const Target &target);

/// The configurations that `desc.wanted`, which is not empty, names.
Result<std::vector<KernelConfig>> wantedConfigs(const KernelDesc &desc);

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_CHOOSE_H
