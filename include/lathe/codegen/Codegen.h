//===- Codegen.h - from kernel regions to code ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The entry points of codegen on MLIR. A kernel region is a block of lathe ops
// (the body of lathe.kernel or exec.kernel); a spec says how it shall run.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CODEGEN_H
#define LATHE_CODEGEN_CODEGEN_H

#include "lathe/codegen/KernelSpec.h"
#include "lathe/codegen/Target.h"
#include "lathe/ir/Roles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace lathe::codegen {

/// A kernel region with what codegen must know of it.
struct KernelSource {
  llvm::StringRef name;
  mlir::Block *body;         ///< block arguments = inputs, lathe.yield = outputs
  const KernelSpec *spec;
  const Target *target;
  int64_t stepId = 0;        ///< what status reports name
  KernelRoles roles = {};    ///< of the region, as fuse has assigned them
};

/// The op that the kernel is built around; null with an error where the roles name no such op.
template <typename OpTy> OpTy anchorOf(const KernelSource &kernel) {
  if (auto op = opAt<OpTy>(*kernel.body, kernel.roles.anchor))
    return op;
  mlir::emitError(kernel.body->getTerminator()->getLoc())
      << "configuration '" << kernel.spec->config << "' needs roles with a '"
      << OpTy::getOperationName() << "' as anchor in kernel '" << kernel.name << "'";
  return {};
}

/// Emits the scheduled form of one variant into `into` (an empty module): one
/// `func.func` with `tile.kernel` per launch. Pointwise and row schedules and
/// the CPU's contraction skeletons. Errors are located at the region's ops.
mlir::LogicalResult emitTile(const KernelSource &kernel, mlir::ModuleOp into);

/// Attribute of a function in the LLVM IR of a CPU kernel: the functions that it calls through the
/// helper table for each lane, "sin,powf". None where there is no such call.
inline constexpr const char *kLibraryCallsAttr = "lathe-library-calls";

/// CPU: LLVM IR text (deterministic) of a module of tile functions, and the
/// ELF object that LLVM makes of such text. Thread-safe on distinct contexts.
mlir::FailureOr<std::string> tileToLLVMText(mlir::ModuleOp tileModule, const Target &target);
Result<std::string> compileLLVMText(llvm::StringRef text, const Target &target);
/// Links objects into one freestanding shared image. Fails
/// when a symbol is left undefined.
Result<std::string> linkImage(llvm::ArrayRef<std::string> objects);

/// CUDA: readable CUDA C++ of one variant (tile functions printed, or a
/// skeleton instantiated with its holes), with the device library parts it uses.
mlir::FailureOr<std::string> cudaText(const KernelSource &kernel);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CODEGEN_H
