//===- main.cpp - lathe-translate: ONNX to MLIR, kernels to text ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/codegen/CudaTranslation.h"
#include "lathe/codegen/FunctionKernel.h"
#include "lathe/import/Import.h"

#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"

int main(int argc, char **argv) {
  lathe::registerImportTranslation();
  lathe::codegen::registerCudaTranslation();
  lathe::codegen::registerTileToLLVMTranslation();
  return mlir::failed(mlir::mlirTranslateMain(
      argc, argv, "lathe-translate: ONNX to MLIR, kernels to source text\n"));
}
