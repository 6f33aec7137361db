//===- main.cpp - lathe-lsp-server: lathe's IR in an editor ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Register.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  lathe::registerDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
