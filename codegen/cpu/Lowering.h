//===- Lowering.h - steps of the CPU lowering -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_CPU_LOWERING_H
#define LATHE_CODEGEN_CPU_LOWERING_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Support/LogicalResult.h"

namespace lathe::codegen {

/// Arguments that a kernel's body gets behind its buffers and symbols.
enum BodyArgument { kHelpers, kStatus, kScratch, kTeam, kFirstBlock, kBlock, kNumBodyArguments };

/// Replaces tile ops by LLVM dialect loads and stores; memref arguments become
/// pointers and the arguments above are appended. Functions become private,
/// named `<name>.body`.
mlir::LogicalResult lowerTileOps(mlir::ModuleOp module);
/// Math functions to polynomials (f32: exp, log, tanh, erf and those below), instructions, or
/// calls through the helper table.
mlir::LogicalResult lowerMath(mlir::ModuleOp module);
/// Patterns that write expm1 and log1p of f32 as polynomials in f64.
void addInDoubles(mlir::RewritePatternSet &patterns);
/// sin and cos of f32 to polynomials in f64. What is left of them in the module serves vectors with an angle
/// of 2^40 or more, behind a branch.
void lowerSines(mlir::ModuleOp module);
/// Conversions of 8-bit floats to and from f32 as integer arithmetic.
mlir::LogicalResult lowerSmallFloats(mlir::ModuleOp module);
/// Everything else to the LLVM dialect, and one exported function a kernel that
/// unpacks LatheCpuArgs and loops over its blocks.
mlir::LogicalResult lowerToLLVMDialect(mlir::ModuleOp module);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CPU_LOWERING_H
