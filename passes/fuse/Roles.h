//===- Roles.h - matchers of roles ------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What AssignRoles asks, a file for each kind of anchor: the one place where a
// kernel region is matched. Each adds what it finds to the roles.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_FUSE_ROLES_H
#define LATHE_PASSES_FUSE_ROLES_H

#include "../Common.h"

namespace lathe::fuse {

/// A kernel region and what stands around it.
struct KernelRegion {
  mlir::Block &body;
  KernelOp kernel; ///< null for a function that is a kernel by itself: nothing is known of its inputs
  bool cuda;

  mlir::OperandRange outputs() const { return body.getTerminator()->getOperands(); }
  /// What the kernel reads as an input, behind views; null without a kernel.
  mlir::Value source(mlir::BlockArgument argument) const;
  /// Whether an input is a constant: it can be packed at compile time.
  bool isWeight(mlir::BlockArgument argument) const;
  /// Whether `isFine` holds for the source of each input that a value is computed of in the kernel; false
  /// where a source is not known.
  bool madeOf(mlir::Value value, llvm::function_ref<bool(mlir::Value)> isFine) const;
};

/// An operand as it is read: an input, or computed.
OperandRole roleOf(const KernelRegion &region, mlir::Value operand);
/// Inputs of 16-bit floats, or of the type of results of 8 bits, that have an element for each of the anchor's result and
/// are read there alone: the first, or -1.
int64_t residualOf(const KernelRegion &region, mlir::Value result);
/// Placement of results: in_place, bare, heads_transposed. `space`: the sizes that the results have in
/// registers.
void assignPlacement(const KernelRegion &region, mlir::Value result,
                     const std::vector<DimExpr> &space, KernelRoles &roles);

void assignProductRoles(const KernelRegion &region, MatmulOp product, KernelRoles &roles);
void assignConvRoles(const KernelRegion &region, ConvOp conv, KernelRoles &roles);
void assignAttentionRoles(const KernelRegion &region, AttentionOp attention, KernelRoles &roles);

} // namespace lathe::fuse

#endif // LATHE_PASSES_FUSE_ROLES_H
