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

#endif // LATHE_IR_SAMPLING_H
