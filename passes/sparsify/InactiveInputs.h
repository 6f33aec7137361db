//===- InactiveInputs.h - products of inputs that are often zero -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SPARSIFY_INACTIVEINPUTS_H
#define LATHE_PASSES_SPARSIFY_INACTIVEINPUTS_H

#include "mlir/IR/BuiltinOps.h"

namespace lathe {

/// Sets kInactiveInputsAttr (ZeroBlocksAttr.h) at the products of a module whose left operand a threshold makes zero in many
/// places, and whose weights are constant and finite. `relu`: also where relu does, of whose zeros nothing is known.
/// Remarks where only the weights are in the way.
void noteInactiveInputs(mlir::ModuleOp module, bool relu);

} // namespace lathe

#endif // LATHE_PASSES_SPARSIFY_INACTIVEINPUTS_H
