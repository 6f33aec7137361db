//===- ConvRoles.cpp - roles around a convolution -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   %t = transpose %x to channels last; %y = conv %t, %w      operands = [planes 0, ..]
//   %d = conv %x, %f {depthwise}; %y = conv %d, %w {1 x 1}    depthwise = 0
//
//===----------------------------------------------------------------------===//
#include "Roles.h"

#include "lathe/ir/Roles.h"

using namespace mlir;

namespace lathe::fuse {

/// Images: with channels first in memory they are read as channels last; codes less their zero points as bytes.
static OperandRole imagesRole(const KernelRegion &region, Value images) {
  OperandRole role = roleOf(region, images);
  if (auto codes = images.getDefiningOp<DequantizeOp>()) {
    if (auto stored = dyn_cast<BlockArgument>(codes.getData())) {
      role.storage = OperandRole::Storage::Codes;
      role.input = stored.getArgNumber();
    }
    return role;
  }
  Operation *transpose = images.getDefiningOp();
  auto permutation = permutationOf(transpose);
  auto planes = permutation ? dyn_cast<BlockArgument>(transpose->getOperand(0)) : BlockArgument();
  if (planes && permutation->back() == 1 && llvm::is_sorted(ArrayRef(*permutation).drop_back())) {
    role.storage = OperandRole::Storage::Planes;
    role.input = planes.getArgNumber();
  }
  return role;
}

void assignConvRoles(const KernelRegion &region, ConvOp conv, KernelRoles &roles) {
  for (OpOperand &operand : conv->getOpOperands())
    roles.operands.push_back(operand.getOperandNumber() == 0 ? imagesRole(region, operand.get())
                                                             : roleOf(region, operand.get()));
  for (Operation &before : region.body)
    if (isClass(&before, OpClass::Conv) && &before != conv && isa<BlockArgument>(before.getOperand(1)))
      roles.depthwise = positionOf(&before);
  roles.residual = residualOf(region, conv.getResult());
  assignPlacement(region, conv.getResult(), dimsOf(conv.getResult()), roles);
}

} // namespace lathe::fuse
