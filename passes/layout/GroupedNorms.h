//===- GroupedNorms.h - norms over groups of channels -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LAYOUT_GROUPEDNORMS_H
#define LATHE_PASSES_LAYOUT_GROUPEDNORMS_H

#include "../Common.h"

namespace lathe {

/// Norms over groups of channels of images, which exporters write over rows of channels and pixels merged, keep channels
/// and pixels apart, so that transposes can move through them.
void splitGroupedRows(mlir::ModuleOp module);

} // namespace lathe

#endif // LATHE_PASSES_LAYOUT_GROUPEDNORMS_H
