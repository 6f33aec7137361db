//===- QuantizeRules.cpp - codes of few bits to numbers and back -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules of quantize and dequantize: the data at the index, parameters at that of
// their block, then f32 arithmetic in the order of the definition. A skeleton that
// has scaled its sums asks for the data without that scale.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include <cmath>

using namespace mlir;

namespace lathe::codegen {

Value parameterAt(Evaluator &e, Value parameter, Value result, ArrayRef<int64_t> block,
                  const Indices &idx, Type compute) {
  Indices at = idx;
  if (block.empty()) {
    at = operandIndex(e, parameter, result, idx);
  } else {
    std::vector<DimExpr> dims = dimsOf(parameter);
    size_t skip = idx.size() - dims.size();
    at.clear();
    for (size_t d = 0; d < dims.size(); ++d)
      at.push_back(dims[d] == DimExpr(1)    ? Index(e.ix.cst(0))
                   : block[skip + d] == 1   ? idx[skip + d]
                                            : e.ix.divRem(idx[skip + d], DimExpr(block[skip + d])).first);
  }
  return e.cast(e.eval(parameter, at), elementTypeOf(parameter), compute, false);
}

namespace {

template <typename OpTy> Value combined(Evaluator &e, Value x, Value y) {
  e.unify(x, y);
  return e.make<OpTy>(x, y);
}

/// The number that a codebook has for each lane's code.
Value lookUp(Evaluator &e, DequantizeOp op, Value codes) {
  Value table = op.getCodebook();
  unsigned bits = elementTypeOf(op.getData()).getIntOrFloatBitWidth();
  Value mask = e.constantInt(e.scalarType(codes), (int64_t(1) << bits) - 1);
  if (e.isVector(codes))
    mask = e.splat(mask);
  Value index = e.toIndex(e.make<arith::AndIOp>(codes, mask), /*isUnsigned=*/true);
  return e.eval(table, {e.isVector(index) ? Index::ofLanes(index) : Index(index)});
}

Value dequantizeRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<DequantizeOp>(r.getOwner());
  return e.cast(dequantizedAt(e, op, idx, {}), dequantizedType(op), elementTypeOf(r), true);
}

/// Bytes of f32 by a known zero point, in fewer steps: clamped first, which is the same as behind (the bounds are
/// integers there, and rounding keeps the order); then a number is added whose unit in the last place is 1, so that
/// the sum's bits are those of the integer, rounded to even. A GPU converts at half the rate at which it adds, and has
/// an instruction that clamps two integers: sums above the upper bound have larger bits, so that it is left to that.
Value byteOf(Evaluator &e, Value y, int64_t zero, bool isUnsigned) {
  constexpr double kUnits = 12582912; // 1.5 x 2^23
  constexpr int64_t kBits = 0x4b400000;
  Type i32 = e.b.getI32Type(), i8 = e.b.getI8Type();
  auto all = [&](Value c) { return e.isVector(y) ? e.splat(c) : c; };
  auto number = [&](double c) { return all(e.constant(e.b.getF32Type(), c)); };
  const double low = double((isUnsigned ? 0 : -128) - zero), high = low + 255;
  using P = arith::CmpFPredicate;
  // What is not comparable becomes code 0, of integers as the general form has it.
  if (!isUnsigned)
    y = e.select(e.make<arith::CmpFOp>(P::ORD, y, y), y, number(-double(zero)));
  const bool saturates = e.kernel.target->isCuda();
  if (saturates) { // one instruction, which prefers the number
    y = e.make<arith::MaxNumFOp>(y, number(low));
  } else {
    y = e.select(e.make<arith::CmpFOp>(P::OGT, y, number(low)), y, number(low));
    y = e.select(e.make<arith::CmpFOp>(P::OLT, y, number(high)), y, number(high));
  }
  Value bits = e.make<arith::BitcastOp>(e.like(y, i32), e.make<arith::AddFOp>(y, number(kUnits)));
  bits = e.make<arith::AddIOp>(bits, all(e.constantInt(i32, zero - kBits)));
  if (saturates)
    return e.make<tile::SaturateOp>(e.like(y, i8), bits, isUnsigned);
  return e.make<arith::TruncIOp>(e.like(y, i8), bits);
}

Value quantizeRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<QuantizeOp>(r.getOwner());
  Type scaleType = elementTypeOf(op.getScale()), element = elementTypeOf(r);
  Type compute = Evaluator::computeType(scaleType);
  Value x = e.eval(op.getX(), op.getBlock().empty() ? operandIndex(e, op.getX(), r, idx) : idx);
  x = e.cast(x, elementTypeOf(op.getX()), scaleType, true);
  Value y = splatOf(op.getScale()) == 1.0
                ? x
                : combined<arith::DivFOp>(e, x, parameterAt(e, op.getScale(), r, op.getBlock(), idx, scaleType));
  if (isa<FloatType>(element))
    return e.cast(y, scaleType, element, op.getSaturate());
  std::optional<double> known = op.getZero() ? splatOf(op.getZero()) : std::optional(0.0);
  if (known && *known == std::floor(*known) && std::abs(*known) <= 255 && scaleType.isF32() &&
      element.getIntOrFloatBitWidth() == 8)
    return byteOf(e, y, int64_t(*known), element.isUnsignedInteger());
  y = e.make<math::RoundEvenOp>(y);
  if (op.getZero())
    y = combined<arith::AddFOp>(e, y, parameterAt(e, op.getZero(), r, op.getBlock(), idx, compute));
  unsigned width = element.getIntOrFloatBitWidth();
  double span = std::exp2(width - (element.isUnsignedInteger() ? 0.0 : 1.0));
  double low = element.isUnsignedInteger() ? 0 : -span, high = span - 1;
  y = bounded(e, bounded(e, y, low, /*isMax=*/true), high, /*isMax=*/false);
  // All that does not fit now is NaN, of which a GPU's own conversion makes the 0 that the rule wants.
  Type i32 = e.b.getI32Type();
  if (e.kernel.target->isCuda() && width <= 16)
    return e.cast(e.make<arith::FPToSIOp>(e.like(y, i32), y), i32, element, true);
  return e.cast(y, compute, element, true);
}

} // namespace

Type dequantizedType(DequantizeOp op) {
  Type element = elementTypeOf(op.getY());
  return isa<FloatType>(element) ? Evaluator::computeType(element) : element;
}

Value dequantizedAt(Evaluator &e, DequantizeOp op, const Indices &idx, ArrayRef<Value> without) {
  Value y = op.getY();
  Type compute = dequantizedType(op), data = elementTypeOf(op.getData());
  Value v = e.eval(op.getData(),
                   op.getBlock().empty() ? operandIndex(e, op.getData(), y, idx) : idx);
  if (op.getCodebook()) {
    v = e.cast(lookUp(e, op, v), elementTypeOf(op.getCodebook()), compute, false);
  } else {
    v = e.cast(v, data, compute, false);
    if (Value zero = op.getZero()) {
      zero = parameterAt(e, zero, y, op.getBlock(), idx, compute);
      v = isa<FloatType>(compute) ? combined<arith::SubFOp>(e, v, zero)
                                  : combined<arith::SubIOp>(e, v, zero);
    }
  }
  Value by;
  if (Value scale = op.getScale(); scale && !llvm::is_contained(without, scale))
    by = parameterAt(e, scale, y, op.getBlock(), idx, compute);
  if (Value outer = op.getOuter(); outer && !llvm::is_contained(without, outer)) {
    Indices at(dimsOf(outer).size(), Index(e.ix.cst(0)));
    Value level = e.cast(e.eval(outer, at), elementTypeOf(outer), compute, false);
    by = by ? combined<arith::MulFOp>(e, by, level) : level;
  }
  return by ? combined<arith::MulFOp>(e, v, by) : v;
}

void addQuantizeRules(RuleTable &t) {
  t["lathe.dequantize"] = dequantizeRule;
  t["lathe.quantize"] = quantizeRule;
}

} // namespace lathe::codegen
