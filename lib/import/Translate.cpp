//===- Translate.cpp - lathe-translate --import-onnx ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/Import.h"
#include "lathe/ir/Lathe.h"
#include "lathe/ir/Onnx.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;

namespace lathe {

void registerImportTranslation() {
  static llvm::cl::list<std::string> dims("dim",
                                          llvm::cl::desc("Bounds of a dimension: NAME=LO:OPT:HI"));
  static llvm::cl::list<std::string> shapes("shape",
                                            llvm::cl::desc("Sizes of an input: INPUT=1x3x224x224"));
  static llvm::cl::opt<bool> keepOpset("keep-opset",
                                       llvm::cl::desc("Do not convert to the newest opset"));
  static TranslateToMLIRRegistration registration(
      "import-onnx", "ONNX (protobuf or text) to the onnx dialect",
      [](llvm::SourceMgr &sources, MLIRContext *context) -> OwningOpRef<ModuleOp> {
        // External data lie beside the file, so it is read by name.
        std::string path =
            sources.getMemoryBuffer(sources.getMainFileID())->getBufferIdentifier().str();
        ImportOptions options;
        options.convert = !keepOpset;
        Status status;
        for (const std::string &dim : dims)
          if (status.ok())
            status = parseDimOption(dim, options);
        for (const std::string &shape : shapes)
          if (status.ok())
            status = parseShapeOption(shape, options);
        if (status.ok()) {
          Result<OwningOpRef<ModuleOp>> module = importOnnx(*context, path, options);
          if (module)
            return std::move(*module);
          status = module.status();
        }
        emitError(UnknownLoc::get(context)) << status.str();
        return {};
      },
      [](DialectRegistry &registry) {
        registry.insert<LatheDialect, onnxir::OnnxDialect, func::FuncDialect>();
      });
}

} // namespace lathe
