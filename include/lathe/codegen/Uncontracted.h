//===- Uncontracted.h - sums without fused multiply-adds --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_UNCONTRACTED_H
#define LATHE_CODEGEN_UNCONTRACTED_H

#include "llvm/ADT/StringRef.h"

namespace lathe::codegen {

/// A unit attribute of `arith.mulf` and `arith.addf`: the result is rounded by itself. Code generation
/// makes fused multiply-adds of all other sums of products.
inline constexpr llvm::StringLiteral kUncontracted = "tile.uncontracted";

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_UNCONTRACTED_H
