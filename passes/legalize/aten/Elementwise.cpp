//===- Elementwise.cpp - one element from one of each operand ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal::aten {
namespace {

/// The operand in the type of the result, where that is a float: exp of integers is one of floats.
Value floatOperand(Node &n) {
  Type element = resultElement(n);
  Value x = n.in(0);
  return x && element && isFloat(element) ? n.e.cast(x, element) : x;
}

template <typename OpTy> LogicalResult unary(Node &n) {
  return n.done(n.e.unary<OpTy>(floatOperand(n)));
}

/// Rounding leaves integers as they are.
template <typename OpTy> LogicalResult rounding(Node &n) {
  Value x = n.in(0);
  return x && !isFloat(elementTypeOf(x)) ? n.done(x) : n.done(n.e.unary<OpTy>(x));
}

template <typename OpTy> LogicalResult binary(Node &n) {
  Type type = computeType(n);
  Value a = operand(n, 0, "self", type), b = operand(n, 1, "other", type);
  return n.done(castTo(n.e, n.e.infer<OpTy>(a, b), resultElement(n)));
}

/// a + alpha * b
template <typename OpTy, bool Reversed = false> LogicalResult sum(Node &n) {
  Type type = computeType(n);
  Value a = operand(n, 0, "self", type), b = operand(n, 1, "other", type);
  if (Reversed)
    std::swap(a, b);
  if (number(n, "alpha", 1) != 1)
    b = n.e.mul(b, scalar(n, "alpha", type));
  if (type.isInteger(1))
    return n.done(n.e.infer<OrOp>(a, b));
  return n.done(n.e.infer<OpTy>(a, b));
}

LogicalResult product(Node &n) {
  return computeType(n).isInteger(1) ? binary<AndOp>(n) : binary<MulOp>(n);
}

/// floor(a / b); of integers too, where division truncates.
Value floorDivided(Emitter &e, Value a, Value b) {
  if (a && isFloat(elementTypeOf(a)))
    return e.unary<FloorOp>(e.div(a, b));
  Value quotient = e.div(a, b), rest = e.sub(a, e.mul(quotient, b));
  if (!rest)
    return {};
  // One less where the signs of rest and divisor differ.
  Value below = e.infer<AndOp>(
      e.compare(rest, 0.0, Predicate::Ne),
      e.infer<XorOp>(e.compare(rest, 0.0, Predicate::Lt), e.compare(b, 0.0, Predicate::Lt)));
  return e.sub(quotient, e.cast(below, elementTypeOf(quotient)));
}

LogicalResult divide(Node &n) {
  std::string rounded = n.strAttr("rounding_mode", "");
  Type type = rounded.empty() ? resultElement(n) : computeType(n);
  Value a = operand(n, 0, "self", type), b = operand(n, 1, "other", type);
  if (rounded == "floor")
    return n.done(floorDivided(n.e, a, b));
  Value y = n.e.div(a, b);
  return n.done(y && rounded == "trunc" && isFloat(type) ? n.e.unary<TruncOp>(y) : y);
}

LogicalResult floorDivide(Node &n) {
  Type type = computeType(n);
  return n.done(floorDivided(n.e, operand(n, 0, "self", type), operand(n, 1, "other", type)));
}

template <bool Fmod> LogicalResult remainder(Node &n) {
  Type type = computeType(n);
  return n.done(n.e.infer<ModOp>(operand(n, 0, "self", type), operand(n, 1, "other", type), Fmod));
}

LogicalResult power(Node &n) {
  Type type = computeType(n);
  Value base = n.op->getAttr("self") ? scalar(n, "self", type) : castTo(n.e, n.in(0), type);
  // pow.Scalar has the exponent as its only tensor.
  unsigned at = n.op->getAttr("self") && n.numInputs() == 1 ? 0 : 1;
  double exponent = number(n, "exponent", 0);
  if (n.hasAttr("exponent") && exponent == 2)
    return n.done(n.e.mul(base, base));
  if (n.hasAttr("exponent") && exponent == 1)
    return n.done(base);
  if (n.hasAttr("exponent") && exponent == 0.5 && isFloat(type))
    return n.done(n.e.unary<SqrtOp>(base));
  if (n.hasAttr("exponent") && exponent == -0.5 && isFloat(type))
    return n.done(n.e.unary<RsqrtOp>(base));
  if (n.hasAttr("exponent") && exponent == 3)
    return n.done(n.e.mul(n.e.mul(base, base), base));
  return n.done(n.e.infer<PowOp>(base, operand(n, at, "exponent", type)));
}

template <Predicate P> LogicalResult compare(Node &n) {
  Type type = computeType(n);
  Value a = operand(n, 0, "self", type), b = operand(n, 1, "other", type);
  if (type.isInteger(1) && P != Predicate::Eq && P != Predicate::Ne) {
    Type byte = n.e.b.getIntegerType(8, /*isSigned=*/false);
    a = n.e.cast(a, byte);
    b = n.e.cast(b, byte);
  }
  return n.done(n.e.compare(a, b, P));
}

template <typename OpTy> LogicalResult logical(Node &n) {
  Type flags = n.e.b.getI1Type();
  return n.done(n.e.infer<OpTy>(operand(n, 0, "self", flags), operand(n, 1, "other", flags)));
}
LogicalResult logicalNot(Node &n) {
  return n.done(n.e.unary<NotOp>(castTo(n.e, n.in(0), n.e.b.getI1Type())));
}

LogicalResult isNan(Node &n) { return n.done(n.e.infer<IsNanOp>(n.in(0))); }
LogicalResult isInf(Node &n) { return n.done(n.e.infer<IsInfOp>(n.in(0), true, true)); }
LogicalResult isFinite(Node &n) {
  Value x = n.in(0);
  return n.done(
      n.e.unary<NotOp>(n.e.infer<OrOp>(n.e.infer<IsNanOp>(x), n.e.infer<IsInfOp>(x, true, true))));
}

LogicalResult where(Node &n) {
  Type type = resultElement(n);
  // where.ScalarSelf has `other` as its second tensor.
  unsigned at = n.hasAttr("self") && n.numInputs() == 2 ? 1 : 2;
  Value self = at == 1 ? scalar(n, "self", type) : operand(n, 1, "self", type);
  return n.done(n.e.select(n.in(0), self, operand(n, at, "other", type)));
}

LogicalResult maskedFill(Node &n) {
  Value x = n.in(0), mask = n.in(1);
  return x ? n.done(n.e.select(mask, operand(n, 2, "value", elementTypeOf(x)), x)) : failure();
}

/// Limits are tensors or numbers, and either may be missing.
LogicalResult clamp(Node &n) {
  Type type = resultElement(n);
  Value x = n.in(0) ? n.e.cast(n.in(0), type) : Value();
  if (n.has(1) || n.hasAttr("min"))
    x = n.e.max(x, operand(n, 1, "min", type));
  if (n.has(2) || n.hasAttr("max"))
    x = n.e.min(x, operand(n, 2, "max", type));
  return n.done(x);
}
LogicalResult clampMax(Node &n) {
  Type type = resultElement(n);
  return n.done(n.e.min(n.e.cast(n.in(0), type), operand(n, 1, "max", type)));
}
LogicalResult hardtanh(Node &n) {
  Value x = n.in(0);
  return n.done(n.e.min(n.e.max(x, number(n, "min_val", -1)), number(n, "max_val", 1)));
}
LogicalResult relu6(Node &n) { return n.done(n.e.min(n.e.max(n.in(0), 0.0), 6.0)); }
LogicalResult relu(Node &n) { return n.done(n.e.max(n.in(0), 0.0)); }

LogicalResult gelu(Node &n) {
  return n.done(geluOf(n.e, n.in(0), n.strAttr("approximate", "none") == "tanh"));
}
LogicalResult silu(Node &n) {
  Value x = n.in(0);
  return n.done(n.e.mul(x, n.e.unary<SigmoidOp>(x)));
}
LogicalResult glu(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? axisOf(n, "dim", rankOf(x), -1) : std::nullopt;
  if (!axis)
    return failure();
  DimExpr half = resultDims(n)[*axis];
  return n.done(n.e.mul(n.e.sliceAxis(x, *axis, 0, half),
                        n.e.unary<SigmoidOp>(n.e.sliceAxis(x, *axis, half, half))));
}
LogicalResult softplus(Node &n) {
  double beta = number(n, "beta", 1);
  Value x = n.in(0);
  if (beta == 1)
    return n.done(softplusOf(n.e, x));
  return n.done(n.e.div(softplusOf(n.e, n.e.mul(x, beta)), beta));
}
LogicalResult logSigmoid(Node &n) {
  return n.done(n.e.unary<NegOp>(softplusOf(n.e, n.e.unary<NegOp>(n.in(0)))));
}
LogicalResult elu(Node &n) {
  if (number(n, "scale", 1) != 1 || number(n, "input_scale", 1) != 1)
    return n.fail("attribute", "elu with a scale", "scale = input_scale = 1");
  return n.done(onnx(n, "Elu", {n.in(0)}, {real(n, "alpha", number(n, "alpha", 1))}));
}
LogicalResult leakyRelu(Node &n) {
  return n.done(
      onnx(n, "LeakyRelu", {n.in(0)}, {real(n, "alpha", number(n, "negative_slope", 0.01))}));
}
LogicalResult celu(Node &n) {
  return n.done(onnx(n, "Celu", {n.in(0)}, {real(n, "alpha", number(n, "alpha", 1))}));
}
LogicalResult hardsigmoid(Node &n) {
  Value x = n.in(0);
  return n.done(n.e.div(n.e.min(n.e.max(n.e.add(x, 3.0), 0.0), 6.0), 6.0));
}
LogicalResult hardswish(Node &n) {
  Value x = n.in(0);
  return n.done(n.e.div(n.e.mul(x, n.e.min(n.e.max(n.e.add(x, 3.0), 0.0), 6.0)), 6.0));
}
LogicalResult prelu(Node &n) {
  Value x = n.in(0), slope = n.in(1);
  if (x && slope && rankOf(slope) == 1 && rankOf(x) > 1) {
    Dims dims(rankOf(x), DimExpr(1));
    dims[1] = dimOf(slope, 0);
    slope = n.e.reshape(slope, dims);
  }
  return n.done(onnx(n, "PRelu", {x, slope}));
}
template <int Base> LogicalResult logTo(Node &n) {
  return n.done(n.e.mul(n.e.unary<LogOp>(floatOperand(n)), 1 / std::log(double(Base))));
}
LogicalResult exp2(Node &n) {
  return n.done(n.e.unary<ExpOp>(n.e.mul(floatOperand(n), std::log(2.0))));
}
LogicalResult square(Node &n) { return n.done(n.e.mul(n.in(0), n.in(0))); }
LogicalResult selu(Node &n) { return n.done(onnx(n, "Selu", {n.in(0)})); }
LogicalResult mish(Node &n) { return n.done(onnx(n, "Mish", {n.in(0)})); }

/// a + weight * (b - a)
LogicalResult lerp(Node &n) {
  Type type = resultElement(n);
  Value a = n.in(0), b = n.in(1);
  return n.done(n.e.add(a, n.e.mul(operand(n, 2, "weight", type), n.e.sub(b, a))));
}
/// a + value * b * c, or b / c
template <typename OpTy> LogicalResult addOf(Node &n) {
  Value part = n.e.infer<OpTy>(n.in(1), n.in(2));
  if (number(n, "value", 1) != 1)
    part = n.e.mul(part, number(n, "value", 1));
  return n.done(n.e.add(n.in(0), part));
}
/// atan2 by the quadrant that the signs say.
LogicalResult atan2(Node &n) {
  Emitter &e = n.e;
  Value y = n.in(0), x = n.in(1);
  Value angle = e.unary<AtanOp>(e.div(y, x));
  const double pi = 3.14159265358979323846;
  Value turn = e.select(e.compare(y, 0.0, Predicate::Ge), e.add(angle, pi), e.add(angle, -pi));
  Value right = e.select(e.compare(x, 0.0, Predicate::Ge), angle, turn);
  return n.done(
      e.select(e.infer<AndOp>(e.compare(x, 0.0, Predicate::Eq), e.compare(y, 0.0, Predicate::Eq)),
               e.like(y, 0), right));
}

} // namespace

void addElementwise(Handlers &h) {
  h["aten.abs"] = unary<AbsOp>;
  h["aten.neg"] = unary<NegOp>;
  h["aten.sign"] = h["aten.sgn"] = unary<SignOp>;
  h["aten.floor"] = rounding<FloorOp>;
  h["aten.ceil"] = rounding<CeilOp>;
  h["aten.round"] = rounding<RoundOp>;
  h["aten.trunc"] = h["aten.fix"] = rounding<TruncOp>;
  h["aten.exp"] = unary<ExpOp>;
  h["aten.expm1"] = unary<Expm1Op>;
  h["aten.exp2"] = exp2;
  h["aten.log"] = unary<LogOp>;
  h["aten.log1p"] = unary<Log1pOp>;
  h["aten.log2"] = logTo<2>;
  h["aten.log10"] = logTo<10>;
  h["aten.sqrt"] = unary<SqrtOp>;
  h["aten.rsqrt"] = unary<RsqrtOp>;
  h["aten.reciprocal"] = unary<RecipOp>;
  h["aten.sin"] = unary<SinOp>;
  h["aten.cos"] = unary<CosOp>;
  h["aten.tan"] = unary<TanOp>;
  h["aten.asin"] = unary<AsinOp>;
  h["aten.acos"] = unary<AcosOp>;
  h["aten.atan"] = unary<AtanOp>;
  h["aten.sinh"] = unary<SinhOp>;
  h["aten.cosh"] = unary<CoshOp>;
  h["aten.tanh"] = unary<TanhOp>;
  h["aten.asinh"] = unary<AsinhOp>;
  h["aten.acosh"] = unary<AcoshOp>;
  h["aten.atanh"] = unary<AtanhOp>;
  h["aten.erf"] = unary<ErfOp>;
  h["aten.sigmoid"] = unary<SigmoidOp>;
  h["aten.bitwise_not"] = unary<NotOp>;
  h["aten.logical_not"] = logicalNot;
  h["aten.isnan"] = isNan;
  h["aten.isinf"] = isInf;
  h["aten.isfinite"] = isFinite;
  h["aten.add"] = sum<AddOp>;
  h["aten.sub"] = sum<SubOp>;
  h["aten.rsub"] = sum<SubOp, true>;
  h["aten.mul"] = product;
  h["aten.div"] = h["aten.true_divide"] = divide;
  h["aten.floor_divide"] = floorDivide;
  h["aten.remainder"] = remainder<false>;
  h["aten.fmod"] = remainder<true>;
  h["aten.pow"] = power;
  h["aten.maximum"] = h["aten.max.other"] = binary<MaxOp>;
  h["aten.minimum"] = h["aten.min.other"] = binary<MinOp>;
  h["aten.atan2"] = atan2;
  h["aten.eq"] = compare<Predicate::Eq>;
  h["aten.ne"] = compare<Predicate::Ne>;
  h["aten.lt"] = compare<Predicate::Lt>;
  h["aten.le"] = compare<Predicate::Le>;
  h["aten.gt"] = compare<Predicate::Gt>;
  h["aten.ge"] = compare<Predicate::Ge>;
  h["aten.logical_and"] = logical<AndOp>;
  h["aten.logical_or"] = logical<OrOp>;
  h["aten.logical_xor"] = logical<XorOp>;
  h["aten.bitwise_and"] = h["aten.__and__"] = binary<AndOp>;
  h["aten.bitwise_or"] = h["aten.__or__"] = binary<OrOp>;
  h["aten.bitwise_xor"] = h["aten.__xor__"] = binary<XorOp>;
  h["aten.bitwise_left_shift"] = h["aten.__lshift__"] = binary<ShlOp>;
  h["aten.bitwise_right_shift"] = h["aten.__rshift__"] = binary<ShrOp>;
  h["aten.where"] = where;
  h["aten.masked_fill"] = maskedFill;
  h["aten.clamp"] = h["aten.clip"] = h["aten.clamp_min"] = clamp;
  h["aten.clamp_max"] = clampMax;
  h["aten.hardtanh"] = hardtanh;
  h["aten.relu6"] = relu6;
  h["aten.relu"] = relu;
  h["aten.gelu"] = gelu;
  h["aten.silu"] = silu;
  h["aten.glu"] = glu;
  h["aten.softplus"] = softplus;
  h["aten.log_sigmoid"] = logSigmoid;
  h["aten.elu"] = elu;
  h["aten.leaky_relu"] = leakyRelu;
  h["aten.celu"] = celu;
  h["aten.square"] = square;
  h["aten.selu"] = selu;
  h["aten.mish"] = mish;
  h["aten.hardsigmoid"] = hardsigmoid;
  h["aten.hardswish"] = hardswish;
  h["aten.prelu"] = h["aten._prelu_kernel"] = prelu;
  h["aten.lerp"] = lerp;
  h["aten.addcmul"] = addOf<MulOp>;
  h["aten.addcdiv"] = addOf<DivOp>;
}

} // namespace lathe::legal::aten
