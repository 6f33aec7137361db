//===- main.cpp - lathe-translate: ONNX to MLIR, kernels to text ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/Import.h"

#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"

int main(int argc, char **argv) {
  lathe::registerImportTranslation();
  return mlir::failed(mlir::mlirTranslateMain(
      argc, argv, "lathe-translate: ONNX to MLIR, kernels to source text\n"));
}
