//===- UnitDims.h - dimensions of size 1 that come and go -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_UNITDIMS_H
#define LATHE_IR_UNITDIMS_H

#include "lathe/support/DimExpr.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace lathe {

/// Where each dimension of `to` is in `from` when only sizes of 1 come and go; -1 for a new
/// one. None when data moves.
std::optional<llvm::SmallVector<int64_t>> unitMap(llvm::ArrayRef<DimExpr> from,
                                                  llvm::ArrayRef<DimExpr> to);

} // namespace lathe

#endif // LATHE_IR_UNITDIMS_H
