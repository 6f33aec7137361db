//===- FlagMarks.h - how lathe.mark_flags packs flags -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_SUPPORT_FLAGMARKS_H
#define LATHE_SUPPORT_FLAGMARKS_H

#include "lathe/support/DimExpr.h"

namespace lathe {

/// Flags of a share; FLAGS_OF_SHARE of codegen/device/marks.cuh.
inline constexpr int64_t kFlagsOfShare = 16384;
/// Words of 64 bits: for each share how many are set ahead of it, then one for each 64 flags.
inline DimExpr flagMarks(const DimExpr &flags) {
  return DimExpr::ceilDiv(flags, DimExpr(kFlagsOfShare)) + DimExpr::ceilDiv(flags, DimExpr(64));
}

} // namespace lathe

#endif // LATHE_SUPPORT_FLAGMARKS_H
