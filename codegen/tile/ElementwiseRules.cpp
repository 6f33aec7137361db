//===- ElementwiseRules.cpp - one value from one of each operand -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules of the elementwise family: operands at the broadcast index, then
// arith and math ops in the compute type.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include <cmath>

using namespace mlir;

namespace lathe::codegen {

Indices operandIndex(Evaluator &e, Value operand, Value result, const Indices &idx) {
  return batchIndex(e, dimsOf(operand), dimsOf(result), idx);
}

Indices batchIndex(Evaluator &e, ArrayRef<DimExpr> from, ArrayRef<DimExpr> to,
                   ArrayRef<Index> idx) {
  IndexMath &ix = e.ix;
  Indices out;
  size_t skip = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    const Index &i = idx[skip + d];
    if (from[d] == DimExpr(1)) {
      out.push_back(Index(ix.cst(0)));
    } else if (from[d] == to[skip + d]) {
      out.push_back(i);
    } else {
      // Whether this dimension is broadcast shows at run time.
      Value one = ix.cmp(arith::CmpIPredicate::eq, ix.dim(from[d]), ix.cst(1));
      if (i.uniform())
        out.push_back(Index(ix.select(one, ix.cst(0), i.base)));
      else
        out.push_back(Index::ofLanes(e.select(one, ix.splat(ix.cst(0)), ix.lanesOf(i))));
    }
  }
  return out;
}

std::optional<double> splatOf(Value v) {
  auto constant = v.getDefiningOp<ConstantOp>();
  if (!constant)
    return std::nullopt;
  auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!dense || !dense.isSplat())
    return std::nullopt;
  if (isa<FloatType>(dense.getElementType()))
    return dense.getSplatValue<APFloat>().convertToDouble();
  if (auto type = dyn_cast<IntegerType>(dense.getElementType())) {
    APInt i = dense.getSplatValue<APInt>();
    bool uns = type.isUnsigned() || type.getWidth() == 1;
    return uns ? static_cast<double>(i.getZExtValue()) : static_cast<double>(i.getSExtValue());
  }
  return std::nullopt;
}

namespace {

//===- Unary ------------------------------------------------------------------===//

Value scalarLike(Evaluator &e, Value v, double c) {
  Value k = e.constant(e.scalarType(v), c);
  return e.isVector(v) ? e.splat(k) : k;
}

Value cmpf(Evaluator &e, arith::CmpFPredicate p, Value x, Value y) {
  e.unify(x, y);
  return e.make<arith::CmpFOp>(p, x, y);
}
Value cmpi(Evaluator &e, arith::CmpIPredicate p, Value x, Value y) {
  e.unify(x, y);
  return e.make<arith::CmpIOp>(p, x, y);
}

bool isFloat(Evaluator &e, Value v) { return isa<FloatType>(e.scalarType(v)); }

template <typename OpTy> Value mathRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  if (!isFloat(e, x))
    return x; // rounding of integers
  return e.make<OpTy>(x);
}

Value negRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  if (isFloat(e, x))
    return e.make<arith::NegFOp>(x);
  return e.make<arith::SubIOp>(scalarLike(e, x, 0), x);
}

Value absRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  if (isFloat(e, x))
    return e.make<math::AbsFOp>(x);
  if (Evaluator::isUnsigned(r))
    return x;
  Value zero = scalarLike(e, x, 0);
  return e.select(cmpi(e, arith::CmpIPredicate::slt, x, zero), e.make<arith::SubIOp>(zero, x), x);
}

Value signRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  Value zero = scalarLike(e, x, 0), one = scalarLike(e, x, 1);
  if (isFloat(e, x)) {
    Value minus = scalarLike(e, x, -1);
    Value low = e.select(cmpf(e, arith::CmpFPredicate::OLT, x, zero), minus, x);
    return e.select(cmpf(e, arith::CmpFPredicate::OGT, x, zero), one, low);
  }
  if (Evaluator::isUnsigned(r))
    return e.select(cmpi(e, arith::CmpIPredicate::ne, x, zero), one, zero);
  Value low = e.select(cmpi(e, arith::CmpIPredicate::slt, x, zero), scalarLike(e, x, -1), zero);
  return e.select(cmpi(e, arith::CmpIPredicate::sgt, x, zero), one, low);
}

Value rsqrtRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  return e.make<arith::DivFOp>(scalarLike(e, x, 1), e.make<math::SqrtOp>(x));
}

Value recipRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  return e.make<arith::DivFOp>(scalarLike(e, x, 1), x);
}

Value sigmoidRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  Type element = elementTypeOf(r);
  if (e.kernel.target->isCuda() && !element.isF32() && !element.isF64()) {
    // In 16 bits what is far to the left is 0 before e^-x overflows, or nearly.
    Value one = scalarLike(e, x, 1);
    Value d = e.make<arith::AddFOp>(one, e.make<math::ExpOp>(e.make<arith::NegFOp>(x)));
    return e.make<arith::DivFOp>(one, d);
  }
  // Through e^-|x|, which never overflows: far to the left the result is e^x.
  Value one = scalarLike(e, x, 1);
  Value z = e.make<math::ExpOp>(e.make<arith::NegFOp>(e.make<math::AbsFOp>(x)));
  Value top = e.select(cmpf(e, arith::CmpFPredicate::OLT, x, scalarLike(e, x, 0)), z, one);
  return e.make<arith::DivFOp>(top, e.make<arith::AddFOp>(one, z));
}

/// x e^-|t| / (1 + e^-|t|) to the left, x / (1 + e^-|t|) to the right, of t = alpha x: nothing overflows
/// on the way, so that an infinity comes out as one or as -0.
Value quickGeluRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<QuickGeluOp>(r.getOwner());
  Value x = e.eval(op.getX(), idx);
  double alpha = op.getAlpha().convertToDouble();
  Value zero = scalarLike(e, x, 0), one = scalarLike(e, x, 1);
  Value t = e.make<arith::MulFOp>(x, scalarLike(e, x, alpha));
  Value z = e.make<math::ExpOp>(e.make<arith::NegFOp>(e.make<math::AbsFOp>(t)));
  Value left = cmpf(e, arith::CmpFPredicate::OLT, t, zero);
  // Where z is 0, x may be infinite: the product of the two is left out.
  Value least = e.select(cmpf(e, arith::CmpFPredicate::OEQ, z, zero), scalarLike(e, x, -0.0),
                         e.make<arith::MulFOp>(x, z));
  Value top = e.select(left, least, x);
  return e.make<arith::DivFOp>(top, e.make<arith::AddFOp>(one, z));
}

/// With e = e^x the hyperbolic tangent of ln(1 + e) is n / (n + 2), n = e (e + 2): one exponential for three
/// functions. Of e^(x/2), since far to the left e^x is denormal before its product with x is. From 20 on the
/// tangent is 1 to f64's precision.
Value mishRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  Value two = scalarLike(e, x, 2), zero = scalarLike(e, x, 0);
  Value half = e.make<math::ExpOp>(e.make<arith::MulFOp>(x, scalarLike(e, x, 0.5)));
  Value power = e.make<arith::MulFOp>(half, half), more = e.make<arith::AddFOp>(power, two);
  Value n = e.make<arith::MulFOp>(power, more);
  Value part = e.make<arith::DivFOp>(more, e.make<arith::AddFOp>(n, two));
  Value y = e.make<arith::MulFOp>(e.make<arith::MulFOp>(e.make<arith::MulFOp>(x, half), half), part);
  y = e.select(cmpf(e, arith::CmpFPredicate::OGT, x, scalarLike(e, x, 20)), x, y);
  // An infinity there by 0 would be NaN.
  return e.select(cmpf(e, arith::CmpFPredicate::OEQ, half, zero), scalarLike(e, x, -0.0), y);
}

Value notRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  return e.make<arith::XOrIOp>(x, scalarLike(e, x, -1));
}

Value isNanRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  return cmpf(e, arith::CmpFPredicate::UNO, x, x);
}

Value isInfRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<IsInfOp>(r.getOwner());
  Value x = e.eval(op.getX(), idx);
  // What is computed here in f32 may be finite and overflow the type that it has where it is stored.
  if (Type type = elementTypeOf(op.getX()); type != Evaluator::computeType(type) && !x.getDefiningOp<arith::ExtFOp>())
    x = e.fromStorage(e.toStorage(x, type), type);
  double inf = std::numeric_limits<double>::infinity();
  if (op.getNegative() && op.getPositive())
    return cmpf(e, arith::CmpFPredicate::OEQ, e.make<math::AbsFOp>(x), scalarLike(e, x, inf));
  if (!op.getNegative() && !op.getPositive()) {
    Value never = e.constantInt(e.b.getI1Type(), 0);
    return e.isVector(x) ? e.splat(never) : never;
  }
  return cmpf(e, arith::CmpFPredicate::OEQ, x, scalarLike(e, x, op.getPositive() ? inf : -inf));
}

//===- Binary -----------------------------------------------------------------===//

std::pair<Value, Value> operands(Evaluator &e, OpResult r, const Indices &idx) {
  Operation *op = r.getOwner();
  Value x = e.eval(op->getOperand(0), operandIndex(e, op->getOperand(0), r, idx));
  Value y = e.eval(op->getOperand(1), operandIndex(e, op->getOperand(1), r, idx));
  e.unify(x, y);
  return {x, y};
}

template <typename FloatOp, typename IntOp>
Value binaryRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto [x, y] = operands(e, r, idx);
  return isFloat(e, x) ? e.make<FloatOp>(x, y) : e.make<IntOp>(x, y);
}

/// Quotient (or remainder) of integers that never traps: by 0 gives 0, and by
/// -1 is done by negation.
Value divideInts(Evaluator &e, Value x, Value y, bool uns, bool remainder) {
  Value zero = scalarLike(e, x, 0), one = scalarLike(e, x, 1);
  Value byZero = cmpi(e, arith::CmpIPredicate::eq, y, zero);
  if (uns) {
    Value safe = e.select(byZero, one, y);
    Value q = remainder ? e.make<arith::RemUIOp>(x, safe) : e.make<arith::DivUIOp>(x, safe);
    return e.select(byZero, zero, q);
  }
  Value byMinus = cmpi(e, arith::CmpIPredicate::eq, y, scalarLike(e, x, -1));
  Value safe = e.select(e.make<arith::OrIOp>(byZero, byMinus), one, y);
  Value q = remainder ? e.make<arith::RemSIOp>(x, safe) : e.make<arith::DivSIOp>(x, safe);
  Value negated = remainder ? zero : e.make<arith::SubIOp>(zero, x);
  return e.select(byZero, zero, e.select(byMinus, negated, q));
}

Value divRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto [x, y] = operands(e, r, idx);
  if (!isFloat(e, x))
    return divideInts(e, x, y, Evaluator::isUnsigned(r), false);
  auto quotient = e.make<arith::DivFOp>(x, y);
  // bf16 has the denormals of f32, which the special function unit takes for 0.
  if (elementTypeOf(r).isBF16() && !splatOf(r.getOwner()->getOperand(1)))
    quotient.getDefiningOp()->setAttr("tile.exact", e.b.getUnitAttr());
  return quotient;
}

Value modRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto [x, y] = operands(e, r, idx);
  bool sameSignAsX = cast<ModOp>(r.getOwner()).getFmod();
  Value zero = scalarLike(e, x, 0);
  if (isFloat(e, x)) {
    Value m = e.make<arith::RemFOp>(x, y);
    if (sameSignAsX)
      return m;
    // Nothing left has the sign of y, too.
    m = e.select(cmpf(e, arith::CmpFPredicate::OEQ, m, zero), e.make<math::CopySignOp>(zero, y), m);
    Value differ = e.make<arith::XOrIOp>(cmpf(e, arith::CmpFPredicate::OLT, m, zero),
                                         cmpf(e, arith::CmpFPredicate::OLT, y, zero));
    Value fix = e.make<arith::AndIOp>(differ, cmpf(e, arith::CmpFPredicate::UNE, m, zero));
    return e.select(fix, e.make<arith::AddFOp>(m, y), m);
  }
  bool uns = Evaluator::isUnsigned(r);
  Value m = divideInts(e, x, y, uns, true);
  if (uns || sameSignAsX)
    return m;
  Value differ = e.make<arith::XOrIOp>(cmpi(e, arith::CmpIPredicate::slt, m, zero),
                                       cmpi(e, arith::CmpIPredicate::slt, y, zero));
  Value fix = e.make<arith::AndIOp>(differ, cmpi(e, arith::CmpIPredicate::ne, m, zero));
  return e.select(fix, e.make<arith::AddIOp>(m, y), m);
}

/// x^1/2, which is +0 of -0 and infinity of -infinity, as no square root is.
Value rootRule(Evaluator &e, Value x) {
  double inf = std::numeric_limits<double>::infinity();
  Value root = e.make<math::SqrtOp>(e.make<arith::AddFOp>(x, scalarLike(e, x, 0)));
  Value least = cmpf(e, arith::CmpFPredicate::OEQ, x, scalarLike(e, x, -inf));
  return e.select(least, scalarLike(e, x, inf), root);
}

/// x^y of integers, bit by bit of y: exact, and wraps. 1 / x^-y where y is negative, which is 0 unless x is
/// 1 or -1.
Value integerPower(Evaluator &e, Value x, Value y, bool unsignedBase, bool unsignedExponent) {
  unsigned bits = e.scalarType(y).getIntOrFloatBitWidth();
  Value one = scalarLike(e, x, 1), odd = scalarLike(e, y, 1), none = scalarLike(e, y, 0);
  SmallVector<Value> start{one, x, y};
  Value power = e.loop(e.ix.cst(0), e.ix.cst(bits), e.ix.cst(1), ValueRange(start),
                       [&](Value, ValueRange now) {
                         Value set = cmpi(e, arith::CmpIPredicate::ne,
                                          e.make<arith::AndIOp>(now[2], odd), none);
                         Value times = e.make<arith::MulIOp>(now[0], now[1]);
                         return SmallVector<Value>{e.select(set, times, now[0]),
                                                   e.make<arith::MulIOp>(now[1], now[1]),
                                                   e.make<arith::ShRUIOp>(now[2], odd)};
                       })[0];
  if (unsignedExponent)
    return power;
  Value zero = scalarLike(e, x, 0), minus = scalarLike(e, x, unsignedBase ? 1 : -1);
  Value isOne = cmpi(e, arith::CmpIPredicate::eq, x, one);
  Value isMinus = cmpi(e, arith::CmpIPredicate::eq, x, minus);
  // The powers of -1 are what the loop gives.
  Value quotient = e.select(isOne, one, e.select(isMinus, power, zero));
  return e.select(cmpi(e, arith::CmpIPredicate::slt, y, none), quotient, power);
}

Value powRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<PowOp>(r.getOwner());
  Value x = e.eval(op.getA(), operandIndex(e, op.getA(), r, idx));
  if (auto c = splatOf(op.getB()); c && isFloat(e, x)) {
    if (*c == 1.0)
      return x;
    if (*c == 2.0)
      return e.make<arith::MulFOp>(x, x);
    if (*c == 3.0)
      return e.make<arith::MulFOp>(e.make<arith::MulFOp>(x, x), x);
    if (*c == 0.5)
      return rootRule(e, x);
    if (*c == -1.0)
      return e.make<arith::DivFOp>(scalarLike(e, x, 1), x);
    if (*c == -0.5)
      return e.make<arith::DivFOp>(scalarLike(e, x, 1), rootRule(e, x));
  }
  Value y = e.eval(op.getB(), operandIndex(e, op.getB(), r, idx));
  e.unify(x, y);
  Type ta = elementTypeOf(op.getA()), tb = elementTypeOf(op.getB());
  // An f32 has no room for every integer of 32 bits, not even for whether it is odd, nor for every f64.
  Type f64 = e.b.getF64Type(), compute = e.scalarType(x);
  bool wide = isFloat(e, x) && compute != f64 &&
              ((isa<IntegerType>(tb) && tb.getIntOrFloatBitWidth() >= 32) || tb.isF64());
  if (isFloat(e, x) && !wide)
    return e.make<math::PowFOp>(x, e.cast(y, tb, compute, false));
  if (!isFloat(e, x) && !isFloat(e, y))
    return integerPower(e, x, y, ta.isUnsignedInteger(), tb.isUnsignedInteger() || tb.isInteger(1));
  Value p = e.make<math::PowFOp>(e.cast(x, wide ? compute : ta, f64, false), e.cast(y, tb, f64, false));
  if (!isFloat(e, x)) {
    // As lib/reference has it: a library's 3^1 may be the number before 3.
    Value whole = e.make<math::RoundEvenOp>(p);
    Value off = e.make<math::AbsFOp>(e.make<arith::SubFOp>(p, whole));
    Value reach = e.make<arith::MulFOp>(e.make<math::AbsFOp>(whole), scalarLike(e, p, 0x1p-50));
    p = e.select(cmpf(e, arith::CmpFPredicate::OLE, off, reach), whole, p);
  }
  return e.cast(p, f64, wide ? compute : ta, false);
}

} // namespace

Value bounded(Evaluator &e, Value v, double bound, bool isMax) {
  Value k = e.constant(e.scalarType(v), bound);
  e.unify(v, k);
  if (e.kernel.target->isCuda())
    return e.combine(isMax ? ReduceKind::Max : ReduceKind::Min, v, k, false);
  // One x86 instruction does it: it gives its second operand when the first is not comparable, so
  // NaN comes through.
  return e.select(cmpf(e, isMax ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::OLT, k, v), k, v);
}

namespace {

template <bool isMax> Value extremeRule(Evaluator &e, OpResult r, const Indices &idx) {
  Operation *op = r.getOwner();
  auto [x, y] = operands(e, r, idx);
  if (isFloat(e, x) && !e.kernel.target->isCuda()) {
    for (int side : {0, 1})
      if (auto c = splatOf(op->getOperand(side)); c && !std::isnan(*c)) {
        return bounded(e, side == 0 ? y : x, *c, isMax);
      }
  }
  return e.combine(isMax ? ReduceKind::Max : ReduceKind::Min, x, y, Evaluator::isUnsigned(r));
}

template <bool left> Value shiftRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto [x, y] = operands(e, r, idx);
  unsigned bits = e.scalarType(x).getIntOrFloatBitWidth();
  Value width = scalarLike(e, x, bits);
  Value tooFar = cmpi(e, arith::CmpIPredicate::uge, y, width);
  // A signed value shifted out to the right leaves its sign.
  bool arithmetic = !left && !Evaluator::isUnsigned(r);
  Value safe = e.select(tooFar, scalarLike(e, x, arithmetic ? bits - 1 : 0), y);
  if (arithmetic)
    return e.make<arith::ShRSIOp>(x, safe);
  Value s = left ? e.make<arith::ShLIOp>(x, safe) : e.make<arith::ShRUIOp>(x, safe);
  return e.select(tooFar, scalarLike(e, x, 0), s);
}

Value compareRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto [x, y] = operands(e, r, idx);
  auto op = cast<CompareOp>(r.getOwner());
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  static constexpr F floats[] = {F::OEQ, F::UNE, F::OLT, F::OLE, F::OGT, F::OGE};
  static constexpr I ints[] = {I::eq, I::ne, I::slt, I::sle, I::sgt, I::sge};
  static constexpr I unsignedInts[] = {I::eq, I::ne, I::ult, I::ule, I::ugt, I::uge};
  int p = static_cast<int>(op.getPredicate());
  if (isFloat(e, x))
    return e.make<arith::CmpFOp>(floats[p], x, y);
  bool uns = Evaluator::isUnsigned(op.getA()) || e.scalarType(x).isInteger(1);
  return e.make<arith::CmpIOp>(uns ? unsignedInts[p] : ints[p], x, y);
}

Value selectRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<SelectOp>(r.getOwner());
  Value c = e.eval(op.getCondition(), operandIndex(e, op.getCondition(), r, idx));
  Value x = e.eval(op.getA(), operandIndex(e, op.getA(), r, idx));
  Value y = e.eval(op.getB(), operandIndex(e, op.getB(), r, idx));
  return e.select(c, x, y);
}

Value castRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<CastOp>(r.getOwner());
  return e.cast(e.eval(op.getX(), idx), elementTypeOf(op.getX()), elementTypeOf(r),
                op.getSaturate());
}

Value bitcastRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = r.getOwner()->getOperand(0);
  Value stored = e.toStorage(e.eval(x, idx), elementTypeOf(x));
  Type to = Evaluator::storageType(elementTypeOf(r));
  if (e.scalarType(stored) != to)
    stored = e.make<arith::BitcastOp>(e.like(stored, to), stored);
  return e.fromStorage(stored, elementTypeOf(r));
}

} // namespace

void addElementwiseRules(RuleTable &t) {
  t["lathe.neg"] = negRule;
  t["lathe.abs"] = absRule;
  t["lathe.sign"] = signRule;
  t["lathe.floor"] = mathRule<math::FloorOp>;
  t["lathe.ceil"] = mathRule<math::CeilOp>;
  t["lathe.round"] = mathRule<math::RoundEvenOp>;
  t["lathe.trunc"] = mathRule<math::TruncOp>;
  t["lathe.exp"] = mathRule<math::ExpOp>;
  t["lathe.expm1"] = mathRule<math::ExpM1Op>;
  t["lathe.log"] = mathRule<math::LogOp>;
  t["lathe.log1p"] = mathRule<math::Log1pOp>;
  t["lathe.sqrt"] = mathRule<math::SqrtOp>;
  t["lathe.rsqrt"] = rsqrtRule;
  t["lathe.recip"] = recipRule;
  t["lathe.sin"] = mathRule<math::SinOp>;
  t["lathe.cos"] = mathRule<math::CosOp>;
  t["lathe.tan"] = mathRule<math::TanOp>;
  t["lathe.asin"] = mathRule<math::AsinOp>;
  t["lathe.acos"] = mathRule<math::AcosOp>;
  t["lathe.atan"] = mathRule<math::AtanOp>;
  t["lathe.sinh"] = mathRule<math::SinhOp>;
  t["lathe.cosh"] = mathRule<math::CoshOp>;
  t["lathe.tanh"] = mathRule<math::TanhOp>;
  t["lathe.asinh"] = mathRule<math::AsinhOp>;
  t["lathe.acosh"] = mathRule<math::AcoshOp>;
  t["lathe.atanh"] = mathRule<math::AtanhOp>;
  t["lathe.erf"] = mathRule<math::ErfOp>;
  t["lathe.sigmoid"] = sigmoidRule;
  t["lathe.quick_gelu"] = quickGeluRule;
  t["lathe.mish"] = mishRule;
  t["lathe.not"] = notRule;
  t["lathe.is_nan"] = isNanRule;
  t["lathe.is_inf"] = isInfRule;
  t["lathe.add"] = binaryRule<arith::AddFOp, arith::AddIOp>;
  t["lathe.sub"] = binaryRule<arith::SubFOp, arith::SubIOp>;
  t["lathe.mul"] = binaryRule<arith::MulFOp, arith::MulIOp>;
  t["lathe.div"] = divRule;
  t["lathe.mod"] = modRule;
  t["lathe.pow"] = powRule;
  t["lathe.max"] = extremeRule<true>;
  t["lathe.min"] = extremeRule<false>;
  t["lathe.and"] = binaryRule<arith::AndIOp, arith::AndIOp>;
  t["lathe.or"] = binaryRule<arith::OrIOp, arith::OrIOp>;
  t["lathe.xor"] = binaryRule<arith::XOrIOp, arith::XOrIOp>;
  t["lathe.shl"] = shiftRule<true>;
  t["lathe.shr"] = shiftRule<false>;
  t["lathe.compare"] = compareRule;
  t["lathe.select"] = selectRule;
  t["lathe.cast"] = castRule;
  t["lathe.bitcast"] = bitcastRule;
}

} // namespace lathe::codegen
