//===- InPlaceUpdates.h - results that change an input's elements -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_INPLACEUPDATES_H
#define LATHE_PASSES_INPLACEUPDATES_H

#include "Common.h"

namespace lathe {

/// The scatter that makes a result of a kernel, where it can write into the memory of the kernel's input that it
/// changes: nothing else in the kernel reads that one. Null where the result is none of a scatter, or cannot.
mlir::Operation *inPlaceUpdate(KernelOp kernel, unsigned result);

/// Whether updates have no order, and neighbours in their last dimension go side by side.
bool hasRowsOfUpdates(mlir::Operation *scatter);

} // namespace lathe

#endif // LATHE_PASSES_INPLACEUPDATES_H
