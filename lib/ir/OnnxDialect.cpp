//===- OnnxDialect.cpp - the onnx dialect ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Onnx.h"

#include "lathe/ir/OnnxDialect.cpp.inc"

namespace lathe::onnxir {

void OnnxDialect::initialize() { allowUnknownOperations(); }

bool OnnxDialect::isOnnx(mlir::Operation *op) {
  return op->getName().getDialectNamespace() == getDialectNamespace();
}

} // namespace lathe::onnxir
