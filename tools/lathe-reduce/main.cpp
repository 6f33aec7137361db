//===- main.cpp - lathe-reduce: make a failing module small ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   lathe-reduce module.mlir --reduction-tree='traversal-mode=0 test=./interesting.sh'
//
// The script ends with 1 while the module is still interesting.
//
//===----------------------------------------------------------------------===//
#include "lathe/ir/Register.h"
#include "lathe/passes/Passes.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  lathe::registerDialects(registry);
  lathe::registerLathePasses();
  mlir::registerTransformsPasses();
  mlir::MLIRContext context(registry);
  return mlir::failed(mlir::mlirReduceMain(argc, argv, context));
}
