//===- ProductRoles.cpp - roles around a matrix product -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   %g = slice %y [.., ..N/2]   %u = slice %y [.., N/2..]      pair = halves
//   %h = reshape %y [.., heads, size], slices of it, rotated   pair = head_halves, heads = ..
//   %q = dequantize %w scale(%s) zero(%z)                      operands = [.., codes 1 weight]
//   %a = dequantize %x scale(%t)  (blocks, as %q)              operands = [codes 0, codes 1 weight]
//   %e = reduce max (reshape %z [M/16, 16, N/64, 64])          amax = 1
//
//===----------------------------------------------------------------------===//
#include "Roles.h"

#include "lathe/ir/BlockAmax.h"
#include "lathe/ir/BlockScales.h"
#include "lathe/ir/HeadPairs.h"
#include "lathe/ir/Roles.h"
#include "lathe/ir/StorageOperand.h"

using namespace mlir;

namespace lathe::fuse {

/// Whether nothing but slices of its halves of columns reads a product.
static bool isReadInHalves(MatmulOp product) {
  DimExpr columns = dimsOf(product.getResult()).back();
  return llvm::all_of(product.getResult().getUsers(), [&](Operation *user) {
    return boxOf(user) && dimsOf(user->getResult(0)).back() * DimExpr(2) == columns;
  });
}

/// Columns that are heads, and which output has which of them.
static void assignHeads(const KernelRegion &region, HeadPairs &heads, KernelRoles &roles) {
  roles.pair = heads.neighbours ? KernelRoles::Pair::Neighbours : KernelRoles::Pair::HeadHalves;
  roles.headSize = heads.size;
  roles.heads = heads.heads;
  roles.headAxis = heads.axis;
  roles.split = positionOf(heads.split);
  for (Value output : region.outputs()) {
    std::optional<HeadPlace> place = headPlace(output, heads);
    if (!place) {
      roles.headOutputs.clear();
      return;
    }
    roles.headOutputs.push_back(
        {place->first, place->count, {place->dims.begin(), place->dims.end()}});
  }
}

/// Whether the only result is [B, heads, tokens, size] of sums [B, tokens, heads * size].
static bool isHeadsTransposed(const KernelRegion &region, const std::vector<DimExpr> &space) {
  if (region.outputs().size() != 1 || space.size() != 3)
    return false;
  Operation *transpose = region.outputs()[0].getDefiningOp();
  auto permutation = permutationOf(transpose);
  Operation *split = permutation ? transpose->getOperand(0).getDefiningOp() : nullptr;
  if (!keepsOrder(split) || dimsOf(split->getOperand(0)) != space ||
      *permutation != SmallVector<int64_t>{0, 2, 1, 3})
    return false;
  std::vector<DimExpr> dims = dimsOf(split->getResult(0));
  return dims[0] == space[0] && dims[1] == space[1];
}

/// Whether weights, their scales and zero points are all constants.
static bool isKnownChain(const KernelRegion &region, Value weights) {
  return region.madeOf(weights, [](Value source) { return bool(source.getDefiningOp<ConstantOp>()); });
}

/// The second operand: weights may be kept in fewer bits than are multiplied.
static OperandRole columnsRole(const KernelRegion &region, MatmulOp product) {
  Value operand = product.getB();
  OperandRole role = roleOf(region, operand);
  std::optional<StorageOperand> stored = storageOperand(operand);
  auto codes = stored ? dyn_cast<BlockArgument>(stored->data()) : BlockArgument();
  if (codes) {
    role.storage = OperandRole::Storage::Codes;
    role.input = codes.getArgNumber();
    role.bare = stored->isBare(product.getTransposeB() ? 1 : 0);
    // A CPU packs the codes alone.
    role.weight = isKnownChain(region, region.cuda ? operand : codes);
  } else if (!region.cuda) {
    Operation *widening = operand.getDefiningOp();
    auto argument = isConversion(widening) ? dyn_cast<BlockArgument>(widening->getOperand(0)) : BlockArgument();
    Type from = argument ? elementTypeOf(argument) : Type();
    if (argument && (from.isF16() || from.isBF16()) && elementTypeOf(operand).isF32()) {
      role = roleOf(region, argument);
      role.storage = OperandRole::Storage::Half;
    }
  }
  return role;
}

/// The first operand: codes where both have scales of blocks.
static OperandRole rowsRole(const KernelRegion &region, MatmulOp product) {
  OperandRole role = roleOf(region, product.getA());
  std::optional<BlockScales> scales = region.cuda ? blockScales(product) : std::nullopt;
  auto codes = scales ? dyn_cast<BlockArgument>(scales->a.getData()) : BlockArgument();
  if (codes) {
    role.storage = OperandRole::Storage::Codes;
    role.input = codes.getArgNumber();
  }
  return role;
}

void assignProductRoles(const KernelRegion &region, MatmulOp product, KernelRoles &roles) {
  Value result = product.getResult();
  std::vector<DimExpr> space = dimsOf(result);
  roles.operands = {rowsRole(region, product), columnsRole(region, product)};
  roles.foldedRows = space.size() > 2 && roles.operands[1].input >= 0 &&
                     dimsOf(product.getB()).size() == 2 && !product.getTransposeA();
  if (isReadInHalves(product)) {
    roles.pair = KernelRoles::Pair::Halves;
    space.back() = *space.back().exactDiv(DimExpr(2));
  }
  if (std::optional<HeadPairs> heads = headPairs(product, /*inKernel=*/true)) {
    assignHeads(region, *heads, roles);
    if (roles.pair == KernelRoles::Pair::HeadHalves)
      space.back() = DimExpr(heads->heads * heads->size / 2);
  }
  roles.residual = residualOf(region, result);
  if (region.outputs().size() == 2 && blockAmax(region.outputs()[1]))
    roles.amax = 1;
  bool pairs = roles.pair == KernelRoles::Pair::Halves || roles.pair == KernelRoles::Pair::HeadHalves;
  assignPlacement(region, result, pairs ? space : dimsOf(result), roles);
  roles.headsTransposed = !pairs && isHeadsTransposed(region, dimsOf(result));
}

} // namespace lathe::fuse
