//===- Command.cpp - lathe-opt: run passes on text ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Command.h"

#include "lathe/codegen/FunctionKernel.h"
#include "lathe/ir/Register.h"
#include "lathe/passes/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int lathe::opt::command(int argc, char **argv) {
  mlir::DialectRegistry registry;
  lathe::registerDialects(registry);
  lathe::registerLathePasses();
  lathe::codegen::registerEmitTilePass();
  mlir::registerTransformsPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "lathe-opt: run lathe's passes on MLIR text\n", registry));
}
