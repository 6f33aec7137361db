//===- Translate.cpp - --tile-to-llvm of lathe-translate -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM IR text of tile functions, as an engine's kernels have it before LLVM's
// optimizer. The target is the one that the first function was scheduled for.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/Codegen.h"
#include "lathe/codegen/FunctionKernel.h"
#include "lathe/ir/Register.h"
#include "lathe/ir/Tile.h"

#include "mlir/Tools/mlir-translate/Translation.h"

using namespace mlir;

namespace lathe::codegen {

void registerTileToLLVMTranslation() {
  static TranslateFromMLIRRegistration registration(
      "tile-to-llvm", "LLVM IR text of scheduled CPU kernels",
      [](Operation *op, llvm::raw_ostream &os) -> LogicalResult {
        auto module = dyn_cast<ModuleOp>(op);
        if (!module)
          return op->emitError("is no module");
        for (auto fn : module.getOps<func::FuncOp>())
          if (auto launch = fn->getAttrOfType<tile::LaunchAttr>("tile.kernel")) {
            Result<Target> target = Target::parse(launch.getTarget());
            if (!target || target->isCuda())
              return fn.emitError("is not scheduled for a CPU");
            FailureOr<std::string> text = tileToLLVMText(module, *target);
            if (failed(text))
              return failure();
            os << *text;
            return success();
          }
        return op->emitError("holds no tile function");
      },
      [](DialectRegistry &registry) { registerDialects(registry); });
}

} // namespace lathe::codegen
