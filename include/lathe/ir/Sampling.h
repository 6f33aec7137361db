//===- Sampling.h - read at places that values name -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// lathe.arg_pool, lathe.roi_align and lathe.tree_walk.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_SAMPLING_H
#define LATHE_IR_SAMPLING_H

#include "lathe/ir/Lathe.h"

#define GET_OP_CLASSES
#include "lathe/ir/LatheSamplingOps.h.inc"

namespace lathe {

/// Whether a kernel's body has a lathe.tree_walk: reads at places that those before have named, one after the other.
bool walksTrees(mlir::Block &body);

} // namespace lathe

#endif // LATHE_IR_SAMPLING_H
