//===- AtenDialect.cpp - the aten dialect ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Aten.h"

#include "lathe/ir/AtenDialect.cpp.inc"

namespace lathe::atenir {

void AtenDialect::initialize() { allowUnknownOperations(); }

bool AtenDialect::isAten(mlir::Operation *op) {
  return op->getName().getDialectNamespace() == getDialectNamespace();
}

} // namespace lathe::atenir
