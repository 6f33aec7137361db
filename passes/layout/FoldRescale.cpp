//===- FoldRescale.cpp - one scale behind a sum of codes ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What follows a sum of products of codes up to the next codes is scaled once. The scale of the result
// goes into the constants on the way, and quantizing is then rounding alone:
//
//   %y = add (mul (cast %i), %s), %b              %y = add (mul (cast %i), %s / 0.5), %b / 0.5
//   %q = quantize (max %y, 0) scale(0.5)     =>   %q = quantize %y scale(1)       (ui8, zero point 0)
//
// Of numbers of 16 bits as well, which kernels compute in f32: what they would be rounded to on the way is left out.
//
//===----------------------------------------------------------------------===//
#include "QuantizedConvs.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"

#include <cmath>

using namespace mlir;

namespace lathe {
namespace {

std::optional<double> numberOf(Value v) {
  auto constant = v ? v.getDefiningOp<ConstantOp>() : ConstantOp();
  if (!constant || numElements(v.getType()) != DimExpr(1))
    return std::nullopt;
  auto host = hostTensorOf(constant.getValue(), constant.getType(), v.getContext());
  if (!host.ok())
    return std::nullopt;
  return isFloat(host->dtype) ? host->real(0) : double(host->integer(0));
}

/// f32, or 16 bits that are computed in f32.
bool isComputedInF32(Value v) {
  Type type = elementTypeOf(v);
  return type.isF32() || type.isF16() || type.isBF16();
}

bool isConstant(Value v) { return v.getDefiningOp<ConstantOp>() != nullptr; }

class Rescale {
public:
  Rescale(QuantizeOp op, bool windowsAlone) : op(op), windowsAlone(windowsAlone), b(op) {}

  void run() {
    std::optional<double> scale = numberOf(op.getScale());
    Type f32 = b.getF32Type();
    if (!scale || !(*scale > 0) || !std::isnormal(float(*scale)) || !std::isnormal(float(1 / *scale)) ||
        !op.getBlock().empty() || !isComputedInF32(op.getX()) || !isComputedInF32(op.getScale()) ||
        !isa<IntegerType>(elementTypeOf(op.getY())) || !takes(op.getX(), 0))
      return;
    by = inF32(op.getScale());
    if (!dimsOf(by).empty())
      by = ReshapeOp::create(b, op.getLoc(), tensorType(f32, ArrayRef<int64_t>()), by);
    Value x = scaled(withoutBound(op.getX(), *scale));
    op.getXMutable().assign(x);
    op.getScaleMutable().assign(
        ConstantOp::create(b, op.getLoc(), DenseElementsAttr::get(RankedTensorType::get({}, f32), 1.0f)));
  }

private:
  /// Without a lower bound (ReLU) that the codes have by themselves: NaN becomes code 0 either way.
  Value withoutBound(Value v, double scale) {
    auto bounded = v.getDefiningOp<MaxOp>();
    std::optional<double> zero = op.getZero() ? numberOf(op.getZero()) : 0.0;
    if (!bounded || !zero)
      return v;
    auto code = cast<IntegerType>(elementTypeOf(op.getY()));
    const double least = code.isUnsigned() ? 0 : -std::exp2(code.getWidth() - 1.0);
    for (int side : {0, 1})
      if (std::optional<double> bound = numberOf(bounded->getOperand(side)); bound && *bound <= (least - *zero) * scale)
        return bounded->getOperand(1 - side);
    return v;
  }

  /// Whether the scale can go into the constants behind which `v` is made of sums of codes.
  bool takes(Value v, int depth) {
    constexpr int kMost = 16;
    Operation *from = v.getDefiningOp();
    if (!from || depth > kMost || !isComputedInF32(v))
      return false;
    if (isConstant(v))
      return true;
    if (auto codes = dyn_cast<DequantizeOp>(from))
      return codes.getScale() && !codes.getOuter() && !codes.getCodebook() && codes.getBlock().empty() &&
             isConstant(codes.getScale()) && isComputedInF32(codes.getScale());
    if (!v.hasOneUse())
      return false;
    if (auto rounded = dyn_cast<CastOp>(from))
      return isComputedInF32(rounded.getX()) && takes(rounded.getX(), depth + 1);
    if (isa<MulOp>(from)) {
      if (!elementTypeOf(v).isF32())
        return false;
      bool sums = false;
      for (Value operand : from->getOperands())
        if (auto cast = operand.getDefiningOp<CastOp>())
          sums |= elementTypeOf(cast.getX()).isInteger(32) && (!windowsAlone || isOfWindows(cast.getX()));
      return sums && llvm::any_of(from->getOperands(), isConstant);
    }
    return isa<AddOp, SubOp, MaxOp, MinOp>(from) &&
           llvm::all_of(from->getOperands(), [&](Value x) { return takes(x, depth + 1); });
  }

  Value inF32(Value v) {
    Type f32 = b.getF32Type();
    return elementTypeOf(v) == f32 ? v : Value(CastOp::create(b, v.getLoc(), withElementType(v.getType(), f32), v, true));
  }

  /// f32.
  Value scaled(Value v) {
    Operation *from = v.getDefiningOp();
    if (isConstant(v))
      return numberOf(v) == 0.0 ? inF32(v) : Value(DivOp::create(b, v.getLoc(), inF32(v), by));
    if (auto rounded = dyn_cast<CastOp>(from))
      return scaled(rounded.getX());
    if (auto codes = dyn_cast<DequantizeOp>(from))
      return DequantizeOp::create(b, v.getLoc(), withElementType(v.getType(), b.getF32Type()), codes.getData(), scaled(codes.getScale()),
                                  codes.getZero(), Value(), Value(), ArrayRef<int64_t>());
    bool product = isa<MulOp>(from), taken = false;
    SmallVector<Value> operands;
    for (Value operand : from->getOperands()) {
      bool here = !product || (!taken && isConstant(operand));
      taken |= here;
      operands.push_back(here ? scaled(operand) : operand);
    }
    b.setInsertionPoint(op);
    Operation *made = b.clone(*from);
    made->setOperands(operands);
    made->getResult(0).setType(withElementType(v.getType(), b.getF32Type()));
    return made->getResult(0);
  }

  /// Sums of a convolution, maybe less something.
  static bool isOfWindows(Value sums) {
    if (auto less = sums.getDefiningOp<SubOp>())
      sums = less.getA();
    return sums.getDefiningOp<ConvOp>() != nullptr;
  }

  QuantizeOp op;
  bool windowsAlone;
  OpBuilder b;
  Value by;
};

} // namespace

void foldRescales(ModuleOp module, bool windowsAlone) {
  SmallVector<QuantizeOp> all;
  module.walk([&](QuantizeOp op) { all.push_back(op); });
  for (QuantizeOp op : all)
    Rescale(op, windowsAlone).run();
}

} // namespace lathe
