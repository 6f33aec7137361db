//===- Values.cpp - types, constants, conversions, combining -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scalar-or-vector algebra of the evaluator: what memory holds, what is
// computed with, and how they convert.
//
//===----------------------------------------------------------------------===//

#include "Evaluator.h"

#include <cmath>

using namespace mlir;

namespace lathe::codegen {

Type Evaluator::computeType(Type element) {
  MLIRContext *context = element.getContext();
  if (auto f = dyn_cast<FloatType>(element))
    return f.getWidth() < 32 ? Type(Float32Type::get(context)) : element; // f4 as well
  if (auto i = dyn_cast<IntegerType>(element))
    return IntegerType::get(context, i.getWidth() == 1 ? 1 : std::max(8u, i.getWidth()));
  return element;
}

unsigned Evaluator::bitsBelowByte(Type element) {
  unsigned bits = element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 8;
  return bits > 1 && bits < 8 ? bits : 0;
}

Type Evaluator::storageType(Type element) {
  if (bitsBelowByte(element) || isa<Float8E8M0FNUType>(element))
    return IntegerType::get(element.getContext(), 8);
  if (auto i = dyn_cast<IntegerType>(element))
    return IntegerType::get(element.getContext(), std::max(8u, i.getWidth()));
  return element;
}

//===- Lanes ----------------------------------------------------------------===//

Value Evaluator::splat(Value v) {
  if (isVector(v))
    return v;
  if (auto c = v.getDefiningOp<arith::ConstantOp>())
    return ix.constant(DenseElementsAttr::get(cast<VectorType>(vectorOf(v.getType())),
                                              ArrayRef<Attribute>{c.getValue()}));
  return make<vector::BroadcastOp>(vectorOf(v.getType()), v);
}

void Evaluator::unify(Value &x, Value &y) {
  if (isVector(x) != isVector(y)) {
    x = splat(x);
    y = splat(y);
  }
}

Value Evaluator::lane(Value v, int64_t l) {
  if (!isVector(v))
    return v;
  if (auto s = v.getDefiningOp<vector::BroadcastOp>(); s && !isVector(s.getSource()))
    return s.getSource();
  return make<vector::ExtractOp>(v, l);
}

Value Evaluator::fromLanes(ArrayRef<Value> lanes) {
  return make<vector::FromElementsOp>(vectorOf(lanes[0].getType()), lanes);
}

Value Evaluator::constant(Type type, double v) {
  if (isa<FloatType>(type))
    return ix.constant(b.getFloatAttr(type, v));
  return constantInt(type, static_cast<int64_t>(v));
}

Value Evaluator::constantInt(Type type, int64_t v) {
  if (auto f = dyn_cast<FloatType>(type))
    return ix.constant(b.getFloatAttr(f, static_cast<double>(v)));
  if (type.isIndex())
    return ix.cst(v);
  unsigned bits = type.getIntOrFloatBitWidth();
  return ix.constant(b.getIntegerAttr(type, APInt(64, v, true).trunc(bits)));
}

Value Evaluator::select(Value c, Value x, Value y) {
  if (x == y)
    return x;
  unify(x, y);
  if (isVector(c)) {
    x = splat(x);
    y = splat(y);
  }
  return make<arith::SelectOp>(c, x, y);
}

//===- Memory and compute types -----------------------------------------------===//

Value Evaluator::fromStorage(Value v, Type element) {
  Type stored = scalarType(v);
  if (element.isInteger(1)) {
    Value zero = ix.constant(b.getZeroAttr(v.getType()));
    return make<arith::CmpIOp>(arith::CmpIPredicate::ne, v, zero);
  }
  if (isa<Float8E8M0FNUType>(element)) {
    // The exponent of an f32; 0 is half of its least normal number, 255 no number.
    Type i32 = b.getI32Type();
    auto all = [&](int64_t k) {
      Value c = constantInt(i32, k);
      return isVector(v) ? make<vector::BroadcastOp>(like(v, i32), c) : c;
    };
    Value code = make<arith::ExtUIOp>(like(v, i32), v), bits = make<arith::ShLIOp>(code, all(23));
    auto is = [&](int64_t k) {
      return make<arith::CmpIOp>(arith::CmpIPredicate::eq, code, all(k));
    };
    bits = select(is(0), all(0x00400000), select(is(255), all(0x7fc00000), bits));
    return make<arith::BitcastOp>(like(v, b.getF32Type()), bits);
  }
  Type compute = computeType(element);
  if (compute != stored && isa<FloatType>(stored))
    return make<arith::ExtFOp>(like(v, compute), v);
  return v;
}

Value Evaluator::toStorage(Value v, Type element) {
  Type stored = storageType(element), compute = scalarType(v);
  if (compute == stored)
    return v;
  if (compute.isInteger(1))
    return make<arith::ExtUIOp>(like(v, stored), v);
  if (isa<Float8E8M0FNUType>(element))
    return toExponent(v, /*saturate=*/false);
  if (isa<FloatType>(stored)) {
    auto wide = v.getDefiningOp<arith::ExtFOp>(); // what it was made from is as good
    if (wide && getElementTypeOrSelf(wide.getIn().getType()) == stored)
      return wide.getIn();
    return make<arith::TruncFOp>(like(v, stored), v);
  }
  return v;
}

/// The exponent of the nearest power of two, of ties the larger; what is not above 0 is no number.
Value Evaluator::toExponent(Value v, bool saturate) {
  using P = arith::CmpIPredicate;
  Type i32 = b.getI32Type();
  auto all = [&](Value c) -> Value {
    return isVector(v) ? make<vector::BroadcastOp>(like(v, c.getType()), c) : c;
  };
  auto number = [&](int64_t c) { return all(constantInt(i32, c)); };
  Value bits = make<arith::BitcastOp>(like(v, i32), v);
  Value normal = make<arith::ShRUIOp>(make<arith::AddIOp>(bits, number(0x00400000)), number(23));
  // 0 is half of f32's least normal number, and 1 that one.
  Value small = make<arith::ExtUIOp>(like(v, i32), make<arith::CmpIOp>(P::sge, bits, number(0x00600000)));
  Value code = select(make<arith::CmpIOp>(P::slt, bits, number(0x00800000)), small, normal);
  code = make<arith::MinSIOp>(code, number(saturate ? 254 : 255));
  Value positive = make<arith::CmpFOp>(arith::CmpFPredicate::OGT, v, all(constant(b.getF32Type(), 0)));
  return make<arith::TruncIOp>(like(v, b.getI8Type()), select(positive, code, number(255)));
}

/// Largest finite value of an 8-bit float type.
static double maxFinite(Type type) {
  return APFloat::getLargest(cast<FloatType>(type).getFloatSemantics()).convertToDouble();
}

/// Integers.h has the rule. Said with comparisons: LLVM leaves open what does not fit, and a GPU's
/// conversion saturates.
Value Evaluator::truncate(Value v, Type to, bool isUnsigned) {
  unsigned bits = to.getIntOrFloatBitWidth();
  Type source = scalarType(v);
  auto all = [&](Value c) -> Value {
    return isVector(v) ? make<vector::BroadcastOp>(like(v, c.getType()), c) : c;
  };
  auto number = [&](double c) { return all(constant(source, c)); };
  auto integer = [&](int64_t c) { return all(constantInt(to, c)); };
  const double end = std::ldexp(1.0, bits - 1);
  const int64_t least = bits == 64 ? INT64_MIN : INT32_MIN;
  Value upper; // a u64 that an i64 has no number for: its highest bit is set
  if (isUnsigned) {
    Value above = make<arith::CmpFOp>(arith::CmpFPredicate::OGE, v, number(end));
    Value below = make<arith::CmpFOp>(arith::CmpFPredicate::OLT, v, number(2 * end));
    upper = make<arith::AndIOp>(above, below);
    v = select(upper, make<arith::SubFOp>(v, number(end)), v);
  }
  Value fits = make<arith::CmpFOp>(arith::CmpFPredicate::OLT, make<math::AbsFOp>(v), number(end));
  Value whole = select(fits, make<arith::FPToSIOp>(like(v, to), v), integer(least));
  return upper ? make<arith::XOrIOp>(whole, select(upper, integer(least), integer(0))) : whole;
}

/// Rounded to odd: what f32 does not hold gets a last bit of 1, so that it is never taken for half-way between two numbers
/// of the narrower type, as a number rounded to the nearest f32 may be.
Value Evaluator::narrowable(Value v) {
  using P = arith::CmpIPredicate;
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  auto number = [&](int64_t c) {
    Value one = constantInt(i32, c);
    return isVector(v) ? make<vector::BroadcastOp>(like(v, i32), one) : one;
  };
  Value near = make<arith::TruncFOp>(like(v, f32), v), back = make<arith::ExtFOp>(v.getType(), near);
  Value bits = make<arith::BitcastOp>(like(v, i32), near);
  Value even = make<arith::CmpIOp>(P::eq, make<arith::AndIOp>(bits, number(1)), number(0));
  Value inexact = make<arith::CmpFOp>(arith::CmpFPredicate::ONE, back, v);
  Value above = make<arith::CmpFOp>(arith::CmpFPredicate::OGT, make<math::AbsFOp>(back), make<math::AbsFOp>(v));
  Value other = make<arith::AddIOp>(bits, select(above, number(-1), number(1)));
  return make<arith::BitcastOp>(like(v, f32), select(make<arith::AndIOp>(inexact, even), other, bits));
}

/// A 64-bit integer that f64 holds and that rounds to the same narrower float: of one beyond 2^53 the last twelve bits
/// become one that says whether they were 0.
Value Evaluator::heldByF64(Value v, bool isUnsigned) {
  using P = arith::CmpIPredicate;
  auto number = [&](int64_t c) {
    Value one = constantInt(b.getI64Type(), c);
    return isVector(v) ? make<vector::BroadcastOp>(v.getType(), one) : one;
  };
  const int64_t end = int64_t(1) << 53;
  Value small = isUnsigned ? make<arith::CmpIOp>(P::ule, v, number(end))
                           : make<arith::CmpIOp>(P::ule, make<arith::AddIOp>(v, number(end)), number(2 * end));
  Value lost = make<arith::CmpIOp>(P::ne, make<arith::AndIOp>(v, number(0xfff)), number(0));
  Value marked = make<arith::OrIOp>(make<arith::AndIOp>(v, number(~int64_t(0xfff))), select(lost, number(0x800), number(0)));
  return select(small, v, marked);
}

Value Evaluator::cast(Value v, Type from, Type to, bool saturate) {
  Type source = scalarType(v), target = computeType(to);
  bool fromFloat = isa<FloatType>(source), toFloat = isa<FloatType>(target);
  bool fromUnsigned = from.isUnsignedInteger() || from.isInteger(1);
  if (to.isInteger(1)) {
    if (source.isInteger(1))
      return v;
    Value zero = isVector(v) ? splat(constant(source, 0)) : constant(source, 0);
    if (fromFloat)
      return make<arith::CmpFOp>(arith::CmpFPredicate::UNE, v, zero);
    return make<arith::CmpIOp>(arith::CmpIPredicate::ne, v, zero);
  }
  Type like = this->like(v, target);
  if (fromFloat && toFloat) {
    if (isa<Float8E8M0FNUType>(to) && source.isF64()) { // what is less than all f32 counts, too
      auto all = [&](double c) { return isVector(v) ? splat(constant(source, c)) : constant(source, c); };
      Value small = make<arith::AndIOp>(make<arith::CmpFOp>(arith::CmpFPredicate::OGT, v, all(0)),
                                        make<arith::CmpFOp>(arith::CmpFPredicate::OLT, v, all(0x1p-127)));
      v = select(small, all(0x1p-127), v);
    }
    if (source.isF64() && target != to)
      v = narrowable(v);
    else if (source != target)
      v = source.getIntOrFloatBitWidth() < target.getIntOrFloatBitWidth()
              ? make<arith::ExtFOp>(like, v)
              : make<arith::TruncFOp>(like, v);
    if (to == target || to == from)
      return v;
    // A cast rounds, even between two values that stay in registers.
    if (saturate && to.getIntOrFloatBitWidth() == 8 && !isa<Float8E8M0FNUType>(to)) {
      Value limit = constant(target, maxFinite(to)), low = constant(target, -maxFinite(to));
      if (isVector(v)) {
        limit = splat(limit);
        low = splat(low);
      }
      v = make<arith::MaximumFOp>(make<arith::MinimumFOp>(v, limit), low);
    }
    if (bitsBelowByte(to))
      return fromCode(toCode(v, to), to);
    if (isa<Float8E8M0FNUType>(to))
      return fromStorage(toExponent(v, saturate), to);
    Value rounded = make<arith::TruncFOp>(this->like(v, to), v);
    return make<arith::ExtFOp>(like, rounded);
  }
  if (toFloat) {
    // What f32 does not hold is beyond the greatest number of the other narrow types.
    if ((to.isBF16() || isa<Float8E8M0FNUType>(to)) && source.getIntOrFloatBitWidth() >= 32) {
      Type f64 = b.getF64Type();
      if (source.isInteger(64))
        v = heldByF64(v, fromUnsigned);
      v = fromUnsigned ? make<arith::UIToFPOp>(this->like(v, f64), v) : make<arith::SIToFPOp>(this->like(v, f64), v);
      return cast(v, f64, to, saturate);
    }
    v = fromUnsigned ? make<arith::UIToFPOp>(like, v) : make<arith::SIToFPOp>(like, v);
    return to == target ? v : cast(v, Float32Type::get(to.getContext()), to, saturate);
  }
  unsigned bits = target.getIntOrFloatBitWidth();
  if (fromFloat) {
    bool wide = bits == 64 || (bits == 32 && to.isUnsignedInteger());
    source = wide ? b.getI64Type() : b.getI32Type();
    v = truncate(v, source, bits == 64 && to.isUnsignedInteger());
    fromUnsigned = false;
  }
  unsigned sourceBits = source.getIntOrFloatBitWidth();
  if (sourceBits < bits)
    v = fromUnsigned ? make<arith::ExtUIOp>(like, v) : make<arith::ExtSIOp>(like, v);
  else if (sourceBits > bits)
    v = make<arith::TruncIOp>(like, v);
  if (to.getIntOrFloatBitWidth() < 8) { // 4-bit integers live in bytes
    Value shift = constantInt(target, 8 - to.getIntOrFloatBitWidth());
    if (isVector(v))
      shift = splat(shift);
    v = make<arith::ShLIOp>(v, shift);
    v = to.isUnsignedInteger() ? make<arith::ShRUIOp>(v, shift) : make<arith::ShRSIOp>(v, shift);
  }
  return v;
}

Value Evaluator::indexToValue(const Index &i, Type scalar) {
  Value v = i.uniform() ? i.base : ix.lanesOf(i);
  Type i64 = like(v, b.getI64Type());
  Value wide = make<arith::IndexCastOp>(i64, v);
  return cast(wide, b.getI64Type(), scalar, false);
}

Value Evaluator::toIndex(Value v, bool isUnsigned) {
  Type type = like(v, b.getIndexType());
  return isUnsigned ? make<arith::IndexCastUIOp>(type, v) : make<arith::IndexCastOp>(type, v);
}

Index Evaluator::checkedIndex(Value v, Value size) {
  auto one = [&](Value scalar) {
    return make<tile::CheckIndexOp>(b.getIndexType(), scalar, size);
  };
  if (!isVector(v))
    return Index(one(v));
  auto oneByOne = [&] {
    SmallVector<Value> lanes;
    for (int64_t l = 0; l < active; ++l)
      lanes.push_back(one(lane(v, l)));
    lanes.resize(width, lanes.front());
    return fromLanes(lanes);
  };
  if (kernel.target->isCuda())
    return Index::ofLanes(oneByOne());
  // All lanes at once; which of them is bad is asked where one is.
  using P = arith::CmpIPredicate;
  Type scalar = scalarType(v);
  Value sizes = splat(make<arith::IndexCastOp>(scalar, size));
  Value wrapped = make<arith::SelectOp>(make<arith::CmpIOp>(P::slt, v, splat(constantInt(scalar, 0))), make<arith::AddIOp>(v, sizes), v);
  Value good = make<vector::ReductionOp>(vector::CombiningKind::AND, make<arith::CmpIOp>(P::ult, wrapped, sizes));
  Type indices = vectorOf(b.getIndexType());
  return Index::ofLanes(ifElse(
      good, indices, [&] { return SmallVector<Value>{make<arith::IndexCastOp>(indices, wrapped)}; },
      [&] { return SmallVector<Value>{oneByOne()}; })[0]);
}

//===- Elements below a byte -----------------------------------------------------===//

/// The bits of an f4E2M1 number: how many of the midpoints between neighbours its
/// magnitude passes (ties to even), and the sign. Larger numbers saturate.
Value Evaluator::toCode(Value v, Type element) {
  Type i8 = b.getI8Type();
  auto all = [&](Value k) { return isVector(v) ? splat(k) : k; };
  if (!isa<FloatType>(element))
    return make<arith::AndIOp>(v, all(constantInt(i8, (1 << bitsBelowByte(element)) - 1)));
  Value magnitude = make<math::AbsFOp>(v), code = all(constantInt(i8, 0));
  static constexpr struct {
    double midpoint;
    bool tieGoesUp;
  } kSteps[] = {{0.25, false}, {0.75, true}, {1.25, false}, {1.75, true},
                {2.5, false},  {3.5, true},  {5.0, false}};
  for (auto [midpoint, tieGoesUp] : kSteps) {
    Value passed = make<arith::CmpFOp>(tieGoesUp ? arith::CmpFPredicate::OGE : arith::CmpFPredicate::OGT,
                                       magnitude, all(constant(b.getF32Type(), midpoint)));
    code = make<arith::AddIOp>(code, make<arith::ExtUIOp>(like(v, i8), passed));
  }
  Value bits = make<arith::BitcastOp>(like(v, b.getI32Type()), v);
  Value sign = make<arith::ShRUIOp>(bits, all(constantInt(b.getI32Type(), 31)));
  Value high = make<arith::ShLIOp>(make<arith::TruncIOp>(like(v, i8), sign), all(constantInt(i8, 3)));
  return make<arith::OrIOp>(code, high);
}

Value Evaluator::fromCode(Value code, Type element) {
  Type i8 = b.getI8Type(), i32 = b.getI32Type(), f32 = b.getF32Type();
  auto all = [&](Value k) { return isVector(code) ? splat(k) : k; };
  if (!isa<FloatType>(element)) {
    Value shift = all(constantInt(i8, 8 - bitsBelowByte(element)));
    Value high = make<arith::ShLIOp>(code, shift);
    return element.isUnsignedInteger() ? make<arith::ShRUIOp>(high, shift)
                                       : make<arith::ShRSIOp>(high, shift);
  }
  // Exponent and mantissa in f32's places; the two smallest magnitudes apart.
  Value wide = make<arith::ExtUIOp>(like(code, i32), code);
  Value magnitude = make<arith::AndIOp>(wide, all(constantInt(i32, 7)));
  Value sign = make<arith::ShLIOp>(make<arith::AndIOp>(wide, all(constantInt(i32, 8))),
                                   all(constantInt(i32, 28)));
  Value normal = make<arith::AddIOp>(make<arith::ShLIOp>(magnitude, all(constantInt(i32, 22))),
                                     all(constantInt(i32, int64_t(126) << 23)));
  Value half = make<arith::MulIOp>(magnitude, all(constantInt(i32, 0x3f000000)));
  Value small = make<arith::CmpIOp>(arith::CmpIPredicate::ult, magnitude, all(constantInt(i32, 2)));
  Value bits = make<arith::OrIOp>(select(small, half, normal), sign);
  return make<arith::BitcastOp>(like(code, f32), bits);
}

//===- Combining ---------------------------------------------------------------===//

Value Evaluator::combine(ReduceKind kind, Value x, Value y, bool isUnsigned) {
  unify(x, y);
  bool isFloat = isa<FloatType>(scalarType(x));
  switch (kind) {
  case ReduceKind::Sum:
    return isFloat ? make<arith::AddFOp>(x, y) : make<arith::AddIOp>(x, y);
  case ReduceKind::Prod:
    return isFloat ? make<arith::MulFOp>(x, y) : make<arith::MulIOp>(x, y);
  case ReduceKind::Max:
    if (scalarType(x).isInteger(1))
      return make<arith::OrIOp>(x, y);
    return isFloat ? make<arith::MaximumFOp>(x, y)
                   : isUnsigned ? make<arith::MaxUIOp>(x, y) : make<arith::MaxSIOp>(x, y);
  case ReduceKind::Min:
    if (scalarType(x).isInteger(1))
      return make<arith::AndIOp>(x, y);
    return isFloat ? make<arith::MinimumFOp>(x, y)
                   : isUnsigned ? make<arith::MinUIOp>(x, y) : make<arith::MinSIOp>(x, y);
  }
  return x;
}

Value Evaluator::neutral(ReduceKind kind, Type scalar, bool isUnsigned) {
  if (auto f = dyn_cast<FloatType>(scalar)) {
    double inf = std::numeric_limits<double>::infinity();
    switch (kind) {
    case ReduceKind::Sum: return constant(f, 0);
    case ReduceKind::Prod: return constant(f, 1);
    case ReduceKind::Max: return constant(f, -inf);
    case ReduceKind::Min: return constant(f, inf);
    }
  }
  unsigned bits = scalar.getIntOrFloatBitWidth();
  APInt v(bits, 0);
  switch (kind) {
  case ReduceKind::Sum: break;
  case ReduceKind::Prod: v = APInt(bits, 1); break;
  case ReduceKind::Max:
    v = isUnsigned || bits == 1 ? APInt(bits, 0) : APInt::getSignedMinValue(bits);
    break;
  case ReduceKind::Min:
    v = isUnsigned || bits == 1 ? APInt::getMaxValue(bits) : APInt::getSignedMaxValue(bits);
    break;
  }
  return ix.constant(b.getIntegerAttr(scalar, v));
}

Value Evaluator::horizontal(ReduceKind kind, Value vec, bool isUnsigned) {
  if (!isVector(vec))
    return vec;
  // A tree over the lanes: neighbours at distance W/2, W/4, ... On the CPU by
  // halving shuffles, on CUDA (few lanes a thread) on the lanes themselves.
  int64_t n = width;
  if (threads == 1 && !kernel.target->isCuda()) {
    while (n > 1 && n % 2 == 0) {
      SmallVector<int64_t> low, high;
      for (int64_t l = 0; l < n / 2; ++l) {
        low.push_back(l);
        high.push_back(l + n / 2);
      }
      Value x = make<vector::ShuffleOp>(vec, vec, low), y = make<vector::ShuffleOp>(vec, vec, high);
      vec = combine(kind, x, y, isUnsigned);
      n /= 2;
    }
  }
  SmallVector<Value> lanes;
  for (int64_t l = 0; l < n; ++l)
    lanes.push_back(make<vector::ExtractOp>(vec, l));
  while (lanes.size() > 1) {
    size_t half = (lanes.size() + 1) / 2;
    for (size_t l = half; l < lanes.size(); ++l)
      lanes[l - half] = combine(kind, lanes[l - half], lanes[l], isUnsigned);
    lanes.resize(half);
  }
  return lanes[0];
}

Value Evaluator::blockReduce(ReduceKind kind, Value scalar, bool isUnsigned) {
  auto op = tile::BlockReduceOp::create(b, loc, scalar,
                                        static_cast<tile::CombineKind>(static_cast<int>(kind)));
  op.setIsUnsigned(isUnsigned);
  return op;
}

} // namespace lathe::codegen
