//===- OperandAccess.cpp - how ops read their operands --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"

using namespace mlir;

namespace lathe {

OperandAccess defaultAccess(Operation *op, unsigned operand) {
  auto structured = cast<StructuredOpInterface>(op);
  OperandAccess access;
  access.map = structured.getAccessMaps()[operand];
  OpClass kind = structured.getOpClass();
  if (access.map)
    access.kind = OperandAccess::Kind::Affine;
  else if (kind == OpClass::Gather || kind == OpClass::Scatter)
    access.kind = OperandAccess::Kind::Data;
  return access;
}

/// How a movement of one operand reads it.
static std::optional<OperandAccess> movementOf(Operation *op) {
  auto structured = dyn_cast_or_null<StructuredOpInterface>(op);
  if (!structured || structured.getOpClass() != OpClass::Movement || op->getNumOperands() != 1)
    return std::nullopt;
  return structured.getAccess(0);
}

std::optional<SmallVector<int64_t>> permutationOf(Operation *op) {
  std::optional<OperandAccess> access = movementOf(op);
  if (!access || access->kind != OperandAccess::Kind::Affine || !access->map.isPermutation() ||
      !cast<StructuredOpInterface>(op).coversOperands()) // a slice from the first element on
    return std::nullopt;
  SmallVector<int64_t> permutation(access->map.getNumResults());
  for (auto [d, expr] : llvm::enumerate(access->map.getResults()))
    permutation[cast<AffineDimExpr>(expr).getPosition()] = d;
  return permutation;
}

bool keepsLastDim(ArrayRef<int64_t> permutation) {
  return permutation.empty() || permutation.back() + 1 == int64_t(permutation.size());
}

std::optional<Box> boxOf(Operation *op) {
  std::optional<OperandAccess> access = movementOf(op);
  if (!access || access->kind != OperandAccess::Kind::Affine ||
      cast<StructuredOpInterface>(op).coversOperands())
    return std::nullopt;
  Box box;
  for (AffineExpr expr : access->map.getResults()) {
    // d * step + start, of which parts that do nothing are left out.
    int64_t start = 0, step = 1;
    if (auto sum = dyn_cast<AffineBinaryOpExpr>(expr); sum && sum.getKind() == AffineExprKind::Add) {
      start = cast<AffineConstantExpr>(sum.getRHS()).getValue();
      expr = sum.getLHS();
    }
    if (auto product = dyn_cast<AffineBinaryOpExpr>(expr)) {
      step = cast<AffineConstantExpr>(product.getRHS()).getValue();
      expr = product.getLHS();
    }
    if (!isa<AffineDimExpr>(expr))
      return std::nullopt;
    box.starts.push_back(start);
    box.steps.push_back(step);
  }
  return box;
}

bool keepsOrder(Operation *op) {
  std::optional<OperandAccess> access = movementOf(op);
  return access && access->kind == OperandAccess::Kind::InOrder;
}

bool isHostOperand(OpOperand &use) {
  auto reader = dyn_cast<HostOperandsInterface>(use.getOwner());
  return reader && reader.isHostOperand(use.getOperandNumber());
}

bool isConversion(Operation *op) {
  auto structured = dyn_cast_or_null<StructuredOpInterface>(op);
  return structured && structured.convertsElements();
}

} // namespace lathe
