//===- BlockScales.cpp - products whose scales differ along the depth -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/BlockScales.h"

using namespace mlir;

namespace lathe {

/// Whether a scale is the same for each `piece` of elements along dimension `d` of what it scales.
static bool isEven(DequantizeOp op, int64_t d, int64_t piece) {
  std::vector<DimExpr> scale = dimsOf(op.getScale());
  int64_t at = d - (int64_t(dimsOf(op.getY()).size()) - int64_t(scale.size()));
  return at < 0 || scale[at] == DimExpr(1) || (!op.getBlock().empty() && op.getBlock()[d] % piece == 0);
}

std::optional<BlockScales> blockScales(MatmulOp product, std::string *why) {
  BlockScales found{product.getA().getDefiningOp<DequantizeOp>(), product.getB().getDefiningOp<DequantizeOp>()};
  if (!found.a || !found.b)
    return std::nullopt;
  auto none = [&](const Twine &reason) {
    if (why)
      *why = reason.str();
    return std::nullopt;
  };
  for (DequantizeOp op : {found.a, found.b}) {
    if (!isa<Float8E4M3FNType, Float8E5M2Type>(elementTypeOf(op.getData())))
      return none("the codes are no floats of 8 bits with infinities or NaN");
    if (!op.getScale() || op.getZero() || op.getOuter() || op.getCodebook() || dimsOf(op.getData()) != dimsOf(op.getY()))
      return none("more than a scale comes to the codes");
  }
  const int64_t last = int64_t(dimsOf(found.a.getY()).size()) - 1, depth = product.getTransposeB() ? 1 : 0;
  if (product.getTransposeA() || last < 1 || dimsOf(found.b.getY()).size() != 2)
    return none("the depth is not last in the left operand, or the right one is no matrix");
  if (elementTypeOf(product.getY()).isF64())
    return none("sums are f64");
  if (!isEven(found.a, last, BlockScales::kDepth) || !isEven(found.b, depth, BlockScales::kDepth))
    return none("scales differ within 128 elements of the depth");
  if (!isEven(found.b, 1 - depth, BlockScales::kColumns))
    return none("scales of the right operand differ within 128 columns");
  return found;
}

} // namespace lathe
