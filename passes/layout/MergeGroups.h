//===- MergeGroups.h - small groups of channels side by side ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LAYOUT_MERGEGROUPS_H
#define LATHE_PASSES_LAYOUT_MERGEGROUPS_H

#include "../Common.h"

namespace lathe {

/// For sm_90a: convolutions of 16-bit floats with constant filters and groups of few channels get groups that tensor
/// cores are filled by.
void mergeGroups(mlir::ModuleOp module);

} // namespace lathe

#endif // LATHE_PASSES_LAYOUT_MERGEGROUPS_H
