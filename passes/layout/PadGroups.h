//===- PadGroups.h - groups of filters that fill vectors --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LAYOUT_PADGROUPS_H
#define LATHE_PASSES_LAYOUT_PADGROUPS_H

#include "../Common.h"

namespace lathe {

/// On a CPU: convolutions with groups of several channels and constant filters, whose number in a group neither is a
/// multiple of `lanes` (32-bit elements of a vector) nor lets whole groups fill a vector, get filters of zeros behind
/// those of each group, whose results are cut off. Without them each element would be computed on its own.
void padGroups(mlir::ModuleOp module, int64_t lanes);

} // namespace lathe

#endif // LATHE_PASSES_LAYOUT_PADGROUPS_H
