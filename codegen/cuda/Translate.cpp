//===- Translate.cpp - lathe-translate --kernel-to-cuda ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For people who want to see what a region becomes, and for text tests:
//
//   lathe-translate --kernel-to-cuda --config=row.t128.v8 --grid=M softmax.mlir
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/CudaTranslation.h"

#include "lathe/codegen/Config.h"
#include "lathe/codegen/FunctionKernel.h"
#include "lathe/ir/Register.h"

#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/Support/CommandLine.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

struct Options {
  llvm::cl::opt<std::string> config{"config", llvm::cl::desc("Configuration of the kernel"),
                                    llvm::cl::init("pointwise.t128.v4")};
  llvm::cl::opt<std::string> grid{"grid",
                                  llvm::cl::desc("Number of blocks, an expression over the sizes"),
                                  llvm::cl::init("1")};
  llvm::cl::opt<std::string> target{"target", llvm::cl::desc("sm_80, sm_90a, ..."),
                                    llvm::cl::init("sm_90a")};
  llvm::cl::opt<bool> whole{"whole", llvm::cl::desc("Write the device library in front")};
};

LogicalResult translate(ModuleOp module, const Options &options, llvm::raw_ostream &os) {
  module.getContext()->loadAllAvailableDialects(); // those that code generation makes
  Result<Target> target = Target::parse(std::string_view(options.target));
  Result<DimExpr> grid = DimExpr::parse(std::string_view(options.grid));
  Result<KernelConfig> config = KernelConfig::parse(std::string_view(options.config));
  for (const Status &s : {target.status(), grid.status(), config.status()})
    if (!s.ok())
      return module.emitError(s.str());
  for (func::FuncOp fn : module.getOps<func::FuncOp>()) {
    FailureOr<KernelSpec> spec = specOfFunction(fn, StringRef(options.config), *grid);
    if (failed(spec))
      return failure();
    spec->launches[0].block[0] = config->threads;
    KernelSource source{fn.getName(), &fn.front(), &*spec, &*target, 0, rolesOfFunction(fn)};
    FailureOr<std::string> text = cudaText(source);
    if (failed(text))
      return failure();
    os << (options.whole ? *text : text->substr(text->find("\n// Kernel ") + 1));
  }
  return success();
}

} // namespace

void registerCudaTranslation() {
  static Options options;
  static TranslateFromMLIRRegistration registration(
      "kernel-to-cuda", "write the CUDA C++ of each function as a kernel",
      [](Operation *op, llvm::raw_ostream &os) {
        return translate(cast<ModuleOp>(op), options, os);
      },
      [](DialectRegistry &registry) { registerDialects(registry); });
}

} // namespace lathe::codegen
