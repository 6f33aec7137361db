//===- CoupledDims.h - dimensions that are made narrower together -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_COUPLEDDIMS_H
#define LATHE_PASSES_COUPLEDDIMS_H

#include "lathe/sparsify/Coupling.h"

#include "mlir/IR/BuiltinOps.h"

namespace lathe {

/// Which elements of which dimensions go together in a module of phase legalize, by the access maps of its ops.
/// What no op promises anything of stays, with the reason. Names are those of ONNX nodes and initializers.
sparsify::Coupling coupledDims(mlir::ModuleOp module);

} // namespace lathe

#endif // LATHE_PASSES_COUPLEDDIMS_H
