//===- Register.h - the dialects that lathe's tools know --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_REGISTER_H
#define LATHE_IR_REGISTER_H

#include "mlir/IR/DialectRegistry.h"

namespace lathe {

/// onnx, lathe, tile, exec, and the upstream dialects that stand between them.
void registerDialects(mlir::DialectRegistry &registry);

} // namespace lathe

#endif // LATHE_IR_REGISTER_H
