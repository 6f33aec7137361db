//===- FunctionKernel.h - a function as a kernel region ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tests and lathe-opt write a kernel region as a func.func whose arguments are
// the inputs and whose return gives the outputs.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_FUNCTIONKERNEL_H
#define LATHE_CODEGEN_FUNCTIONKERNEL_H

#include "lathe/codegen/Codegen.h"

namespace lathe::codegen {

/// A spec for the function's body under this config: dense buffers (or those of
/// the types' layouts), all symbols of the sizes in alphabetical order, one
/// launch of `grid` blocks under the function's name. Fails (located) for
/// types that no buffer can hold.
mlir::FailureOr<KernelSpec> specOfFunction(mlir::func::FuncOp fn, llvm::StringRef config,
                                           const DimExpr &grid);

/// The roles in the function's attribute `lathe.roles` (lathe-assign-roles=functions=true); else none.
KernelRoles rolesOfFunction(mlir::func::FuncOp fn);

/// `lathe-emit-tile`: replaces every function of a module by its tile form.
/// Options: config, target, grid.
void registerEmitTilePass();
/// `lathe-translate --tile-to-llvm`: LLVM IR text of tile functions for a CPU.
void registerTileToLLVMTranslation();

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_FUNCTIONKERNEL_H
