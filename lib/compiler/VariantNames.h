//===- VariantNames.h - names of kernel variants, and texts for them -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_COMPILER_VARIANTNAMES_H
#define LATHE_COMPILER_VARIANTNAMES_H

#include "lathe/ir/Exec.h"

#include <optional>
#include <string>

namespace lathe {

/// Name of a kernel variant: of its cubin, its source, its functions.
std::string variantName(exec::KernelOp kernel, size_t variant);

/// Of `lathe.options`: texts that people gave for CUDA kernels, by name of a variant or, for all
/// variants, of a kernel.
inline constexpr llvm::StringLiteral kReplaceOption = "replace";
/// The entry for this variant, if there is one; its own before its kernel's.
std::optional<mlir::NamedAttribute> replacementOf(mlir::DictionaryAttr replacements,
                                                  exec::KernelOp kernel, size_t variant);

} // namespace lathe

#endif // LATHE_COMPILER_VARIANTNAMES_H
