//===- Roles.h - reading the roles of a kernel region -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the numbers of `#lathe.roles` (KernelRoles.h) to ops and values of a body.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_ROLES_H
#define LATHE_IR_ROLES_H

#include "lathe/ir/Lathe.h"

namespace lathe {

/// On a function that tests write as a kernel: its roles.
inline constexpr const char *kRolesAttr = "lathe.roles";

/// The op at a position of the body; null for -1 and for positions behind its end.
mlir::Operation *opAt(mlir::Block &body, int64_t position);
template <typename OpTy> OpTy opAt(mlir::Block &body, int64_t position) {
  return llvm::dyn_cast_or_null<OpTy>(opAt(body, position));
}
/// The position of an op in its block.
int64_t positionOf(mlir::Operation *op);

/// The gate pair's slices of the product's columns: of the first half, or of the second.
llvm::SmallVector<SliceOp> slicesOfHalf(MatmulOp product, bool second);

/// Whether the roles fit the body: positions name ops of the right kind, and inputs and outputs exist.
/// A diagnostic at `at` (kernel_c4) otherwise.
mlir::LogicalResult verifyRoles(mlir::Operation *at, mlir::Block &body, const KernelRoles &roles);

} // namespace lathe

#endif // LATHE_IR_ROLES_H
