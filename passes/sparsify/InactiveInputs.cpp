//===- InactiveInputs.cpp - products of inputs that are often zero --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a comparison with a threshold or relu made zero adds nothing to a product by finite weights. Such products
// are noted; select may then give one row a kernel that does not read the weights of inputs that are zero in a run.
//
//   %a = select %large, %x, 0
//   %y = matmul %a, constant    =>    %y = matmul %a, constant {lathe.inactive_inputs}
//
//===----------------------------------------------------------------------===//
#include "InactiveInputs.h"
#include "WeightBytes.h"
#include "ZeroBlocksAttr.h"

#include "../Common.h"

#include "llvm/ADT/DenseMap.h"

#include <cstring>

using namespace mlir;

namespace lathe {

namespace {

bool isZero(Value value) { return numberOf(value) == 0.0; }

/// Whether a value is zero wherever a comparison, or relu, says so.
bool isOftenZero(Value value, bool relu) {
  if (auto select = value.getDefiningOp<SelectOp>())
    return isZero(select.getA()) != isZero(select.getB());
  if (auto max = value.getDefiningOp<MaxOp>())
    return relu && isZero(max.getA()) != isZero(max.getB());
  if (auto min = value.getDefiningOp<MinOp>()) // relu with an upper end
    return numberOf(min.getA()).value_or(0) > 0   ? isOftenZero(min.getB(), relu)
           : numberOf(min.getB()).value_or(0) > 0 ? isOftenZero(min.getA(), relu)
                                                  : false;
  if (auto cast = value.getDefiningOp<CastOp>())
    return isa<FloatType>(elementTypeOf(cast.getX())) && isOftenZero(cast.getX(), relu);
  if (auto reshape = value.getDefiningOp<ReshapeOp>())
    return isOftenZero(reshape.getX(), relu);
  return false;
}

template <typename Word> bool allFinite(std::span<const std::byte> bytes, Word exponent) {
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof(Word));
    if ((word & exponent) == exponent)
      return false;
  }
  return true;
}

/// Whether all elements of a constant of f32, f16 or bf16 are finite.
bool isFinite(ConstantOp constant) {
  std::vector<std::byte> inlined;
  std::optional<std::span<const std::byte>> bytes = weightBytes(constant, inlined);
  if (!bytes)
    return false;
  Type element = elementTypeOf(constant);
  return element.isF32()    ? allFinite<uint32_t>(*bytes, 0x7f800000)
         : element.isF16()  ? allFinite<uint16_t>(*bytes, 0x7c00)
         : element.isBF16() ? allFinite<uint16_t>(*bytes, 0x7f80)
                            : false;
}

} // namespace

void noteInactiveInputs(ModuleOp module, bool relu) {
  llvm::DenseMap<Operation *, bool> finite;
  module.walk([&](MatmulOp op) {
    if (op.getTransposeA() || !isOftenZero(op.getA(), relu))
      return;
    Value b = op.getB();
    while (auto cast = b.getDefiningOp<CastOp>())
      b = cast.getX();
    auto constant = b.getDefiningOp<ConstantOp>();
    if (!constant || isNumber(constant))
      return;
    auto [known, isNew] = finite.try_emplace(constant, false);
    if (isNew)
      known->second = isFinite(constant);
    if (known->second)
      op->setAttr(kInactiveInputsAttr, UnitAttr::get(module.getContext()));
    else
      missedRemark(op.getLoc(), "InactiveInputs")
          << "many of its inputs may be zero, but its weights are no finite floats of 32 or 16 bits: all of them are read";
  });
}

} // namespace lathe
