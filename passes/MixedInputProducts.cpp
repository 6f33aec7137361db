//===- MixedInputProducts.cpp - which products read stored weights -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A GPU reads codes of 8 and 4 bits in pieces of 16 bytes along the depth and multiplies
// f16 or bf16: as long as rows are few, because with more of them a copy of 16 bits, made
// by a kernel of its own in each run, is faster (test/perf/gpu/results). A CPU packs the
// codes into panels, for any number of rows.
//
//===----------------------------------------------------------------------===//
#include "MixedInputProducts.h"

#include "lathe/codegen/KernelPolicy.h"
#include "lathe/ir/BlockScales.h"
#include "lathe/ir/StorageOperand.h"

using namespace mlir;

namespace lathe {

bool multipliesBlocks(MatmulOp product, const Target &target, bool relaid, std::string *why) {
  constexpr int64_t kPiece = 16; // codes in 16 bytes
  std::optional<BlockScales> scales = target.hasWgmma() ? blockScales(product, why) : std::nullopt;
  if (!scales)
    return false;
  std::optional<int64_t> k = dimsOf(product.getA()).back().constant();
  std::string reason;
  if (!k || *k <= 0 || *k % kPiece != 0)
    reason = "rows of the depth are not whole pieces of 16 bytes";
  else if (!product.getTransposeB() && !(relaid && scales->b.getData().getDefiningOp<ConstantOp>()))
    reason = "the right operand is no weight and has contiguous columns";
  if (why)
    *why = reason;
  return reason.empty();
}

bool isMultipliedAsCodes(Operation *op, const Target &target) {
  return isa<DequantizeOp>(op) && llvm::all_of(op->getUses(), [&](OpOperand &use) {
           auto product = dyn_cast<MatmulOp>(use.getOwner());
           return product && multipliesBlocks(product, target);
         });
}

bool MixedInputProducts::takes(MatmulOp product, bool relaid, std::string *why) const {
  std::string reason;
  bool last = product.getTransposeB();
  std::optional<StorageOperand> stored = storageOperand(product.getB(), &reason);
  bool taken = false;
  if (!stored)
    ; // the reason is there
  else if (last != wantsDepthLast() && !relaid)
    reason = "the codes lie in the other order";
  else
    taken = target.isCuda() ? takesOnCuda(product, last ? 1 : 0, reason)
                            : takesOnCpu(product, reason);
  if (why)
    *why = reason;
  return taken;
}

bool MixedInputProducts::takesOnCpu(MatmulOp product, std::string &why) const {
  Value data = storageOperand(product.getB())->data();
  auto constant = data.getDefiningOp<ConstantOp>();
  auto type = cast<TensorType>(data.getType());
  if (!constant || isNumber(constant) || !type.hasStaticShape() || type.getNumElements() == 0)
    why = "the codes are no constant that could be packed";
  else if (elementTypeOf(product.getY()).isF64())
    why = "the product sums in f64";
  else
    return true;
  return false;
}

/// Whether products of any number of rows read the codes as fragments: constant integers with constant parameters whose
/// groups and units of 64 of K (32 with 8 bits) begin together.
static bool isPackable(MatmulOp product, StorageOperand &stored, int64_t depth, int64_t k) {
  constexpr int64_t kUnitBits = 256, kStep = 64;
  const int64_t group = stored.integerGroup(depth);
  auto isKnown = [](Value v) { return !v || v.getDefiningOp<ConstantOp>(); };
  return depth == 1 && group >= 0 && (group == 0 || group % kStep == 0 || kStep % group == 0) && k % (kUnitBits / stored.bits()) == 0 &&
         dimsOf(product.getB()).size() == 2 && isKnown(stored.data()) && isKnown(stored.op.getScale()) && isKnown(stored.op.getZero());
}

bool MixedInputProducts::takesOnCuda(MatmulOp product, int64_t depth, std::string &why) const {
  if (multipliesBlocks(product, target, /*relaid=*/true)) {
    why = "both operands are multiplied as codes";
    return false;
  }
  constexpr int64_t kPiece = 16, kBits = 128; // codes that share parameters; of a piece in memory
  StorageOperand stored = *storageOperand(product.getB());
  Type element = elementTypeOf(product.getB());
  std::vector<DimExpr> a = dimsOf(product.getA());
  std::optional<int64_t> k = a.back().constant();
  a.pop_back();
  if (!target.hasTensorCores() || !(element.isF16() || element.isBF16()) ||
      elementTypeOf(product.getA()) != element || product.getTransposeA()) {
    why = "the other operand is not f16 or bf16 in rows of the depth";
    return false;
  }
  if (!stored.isEvenAlong(depth, kPiece)) {
    why = "a scale or zero point differs within 16 elements of the depth";
    return false;
  }
  if (!k || *k <= 0 || *k % (kBits / stored.bits()) != 0) {
    why = "rows of the depth are not whole pieces of 16 bytes";
    return false;
  }
  StoredWeightRows most = storedWeightRows(target, stored.bits(), stored.isBare(depth), isPackable(product, stored, depth, *k));
  DimExpr rows = lathe::product(a);
  if (rows.range(symbols).hi <= most.ever)
    return true;
  auto best = rows.evaluate(optima);
  if (best.ok() && *best <= most.atOptimum)
    return true;
  why = "with so many rows numbers of 16 bits, made by a kernel of their own, are faster";
  return false;
}

} // namespace lathe
