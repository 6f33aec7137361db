//===- Values.cpp - types, constants, conversions, combining -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scalar-or-vector algebra of the evaluator: what memory holds, what is
// computed with, and how they convert.
//
//===----------------------------------------------------------------------===//

#include "Evaluator.h"

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
  if (bitsBelowByte(element))
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
  if (isa<FloatType>(stored)) {
    auto wide = v.getDefiningOp<arith::ExtFOp>(); // what it was made from is as good
    if (wide && getElementTypeOrSelf(wide.getIn().getType()) == stored)
      return wide.getIn();
    return make<arith::TruncFOp>(like(v, stored), v);
  }
  return v;
}

/// Largest finite value of an 8-bit float type.
static double maxFinite(Type type) {
  return APFloat::getLargest(cast<FloatType>(type).getFloatSemantics()).convertToDouble();
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
    if (source != target)
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
    Value rounded = make<arith::TruncFOp>(this->like(v, to), v);
    return make<arith::ExtFOp>(like, rounded);
  }
  if (toFloat) {
    v = fromUnsigned ? make<arith::UIToFPOp>(like, v) : make<arith::SIToFPOp>(like, v);
    return to == target ? v : cast(v, Float32Type::get(to.getContext()), to, saturate);
  }
  unsigned bits = target.getIntOrFloatBitWidth();
  if (fromFloat) {
    // Through a wider integer, so that what does not fit wraps as in C on this machine.
    bool wide = bits == 64 || (bits == 32 && to.isUnsignedInteger());
    if (bits == 64 && to.isUnsignedInteger())
      return make<arith::FPToUIOp>(like, v);
    Type via = wide ? b.getI64Type() : b.getI32Type();
    v = make<arith::FPToSIOp>(this->like(v, via), v);
    source = via;
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
  SmallVector<Value> lanes;
  for (int64_t l = 0; l < active; ++l)
    lanes.push_back(one(lane(v, l)));
  lanes.resize(width, lanes.front());
  return Index::ofLanes(fromLanes(lanes));
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
