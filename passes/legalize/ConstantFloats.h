//===- ConstantFloats.h - floats that constants decide ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_CONSTANTFLOATS_H
#define LATHE_PASSES_LEGALIZE_CONSTANTFLOATS_H

#include "lathe/passes/EvaluateOp.h"

namespace lathe::legal {

/// Up to 64 elements, of any dtype, that ops compute of constants alone, at most `depth` after one another; exporters
/// write square roots and ratios of sizes so. None for anything else.
std::optional<HostTensor> constantFloats(mlir::Value value, unsigned depth = 16);

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_CONSTANTFLOATS_H
