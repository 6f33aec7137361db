//===- LowerSmallFloats.cpp - 8-bit floats by integer arithmetic --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions between f32 and the four 8-bit formats, and of the 8-bit exponents to f32, whose
// least one is a subnormal. Widening is exact;
// narrowing rounds to nearest even. Values beyond the range become infinity
// where the format has one, else NaN (saturation happens before, by clamping).
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

#include <cmath>

using namespace mlir;

namespace lathe::codegen {
namespace {

struct Format {
  int mantissa, bias;
  bool infinities; ///< E5M2: exponent of all ones is infinity or NaN
  bool unsignedZero; ///< FNUZ: 0x80 is the only NaN
};

std::optional<Format> formatOf(Type t) {
  if (isa<Float8E4M3FNType>(t))
    return Format{3, 7, false, false};
  if (isa<Float8E5M2Type>(t))
    return Format{2, 15, true, false};
  if (isa<Float8E4M3FNUZType>(t))
    return Format{3, 8, false, true};
  if (isa<Float8E5M2FNUZType>(t))
    return Format{2, 16, false, true};
  return std::nullopt;
}

/// Builder of scalar-or-vector arithmetic in the shape of one value.
struct Arith {
  OpBuilder b;
  Location loc;
  Type shape;

  Type as(Type element) const {
    if (auto v = dyn_cast<VectorType>(shape))
      return v.clone(element);
    return element;
  }
  Type i32() { return as(b.getI32Type()); }
  Type f32() { return as(b.getF32Type()); }
  Value c(int64_t v) {
    Attribute a = b.getI32IntegerAttr(static_cast<int32_t>(v));
    if (auto t = dyn_cast<VectorType>(i32()))
      a = DenseElementsAttr::get(t, a);
    return arith::ConstantOp::create(b, loc, i32(), cast<TypedAttr>(a));
  }
  Value f(double v) {
    Attribute a = b.getF32FloatAttr(static_cast<float>(v));
    if (auto t = dyn_cast<VectorType>(f32()))
      a = DenseElementsAttr::get(t, a);
    return arith::ConstantOp::create(b, loc, f32(), cast<TypedAttr>(a));
  }
  template <typename Op, typename... Args> Value op(Args... args) {
    return Op::create(b, loc, args...);
  }
  Value eq(Value x, Value y) { return op<arith::CmpIOp>(arith::CmpIPredicate::eq, x, y); }
  Value select(Value c, Value x, Value y) { return op<arith::SelectOp>(c, x, y); }
};

Value widen(Arith &a, Value bits, const Format &m) {
  Value x = a.op<arith::ExtUIOp>(a.i32(), bits);
  Value magnitude = a.op<arith::AndIOp>(x, a.c(0x7f));
  Value sign = a.op<arith::ShLIOp>(a.op<arith::AndIOp>(x, a.c(0x80)), a.c(24));
  // Normal numbers: exponent and mantissa keep their place, the bias changes.
  Value shifted = a.op<arith::ShLIOp>(magnitude, a.c(23 - m.mantissa));
  Value normal = a.op<arith::AddIOp>(shifted, a.c(static_cast<int64_t>(127 - m.bias) << 23));
  // Below the least normal number: a multiple of the least step.
  Value steps = a.op<arith::UIToFPOp>(a.f32(), magnitude);
  Value small = a.op<arith::MulFOp>(steps, a.f(std::ldexp(1.0, 1 - m.bias - m.mantissa)));
  Value isSmall = a.op<arith::CmpIOp>(arith::CmpIPredicate::ult, magnitude, a.c(1 << m.mantissa));
  Value abs = a.select(isSmall, a.op<arith::BitcastOp>(a.i32(), small), normal);
  Value nan = a.c(0x7fc00000);
  if (m.infinities) {
    Value inf = a.c(0x7c), top = a.op<arith::CmpIOp>(arith::CmpIPredicate::uge, magnitude, inf);
    Value special = a.select(a.eq(magnitude, inf), a.c(0x7f800000), nan);
    abs = a.select(top, special, abs);
  } else if (m.unsignedZero) {
    abs = a.select(a.eq(x, a.c(0x80)), nan, abs);
  } else {
    abs = a.select(a.eq(magnitude, a.c(0x7f)), nan, abs);
  }
  return a.op<arith::BitcastOp>(a.f32(), a.op<arith::OrIOp>(abs, sign));
}

bool widensExponent(Operation *op) {
  return isa<Float8E8M0FNUType>(getElementTypeOrSelf(op->getOperand(0)));
}

/// 2^(x - 127), and NaN of 255.
Value widenExponent(Arith &a, Value bits) {
  Value x = a.op<arith::ExtUIOp>(a.i32(), bits);
  Value result = a.select(a.eq(x, a.c(0)), a.c(0x00400000), a.op<arith::ShLIOp>(x, a.c(23)));
  result = a.select(a.eq(x, a.c(0xff)), a.c(0x7fc00000), result);
  return a.op<arith::BitcastOp>(a.f32(), result);
}

Value narrow(Arith &a, Value v, const Format &m) {
  using P = arith::CmpIPredicate;
  Value x = a.op<arith::BitcastOp>(a.i32(), v);
  Value abs = a.op<arith::AndIOp>(x, a.c(0x7fffffff));
  Value sign = a.op<arith::AndIOp>(a.op<arith::ShRUIOp>(x, a.c(24)), a.c(0x80));
  int drop = 23 - m.mantissa;
  // Round to nearest even on the bits that are dropped; a carry moves the exponent.
  Value odd = a.op<arith::AndIOp>(a.op<arith::ShRUIOp>(abs, a.c(drop)), a.c(1));
  Value rounded = a.op<arith::AddIOp>(a.op<arith::AddIOp>(abs, a.c((1 << (drop - 1)) - 1)), odd);
  Value normal = a.op<arith::SubIOp>(a.op<arith::ShRUIOp>(rounded, a.c(drop)),
                                     a.c(static_cast<int64_t>(127 - m.bias) << m.mantissa));
  // Small results count steps; the count is the code, also when it reaches a normal one.
  Value scaled = a.op<arith::MulFOp>(a.op<arith::BitcastOp>(a.f32(), abs),
                                     a.f(std::ldexp(1.0, m.bias - 1 + m.mantissa)));
  Value isSmall = a.op<arith::CmpIOp>(P::ult, abs, a.c(static_cast<int64_t>(128 - m.bias) << 23));
  Value bounded = a.select(isSmall, scaled, a.f(0));
  Value steps = a.op<arith::FPToSIOp>(a.i32(), a.op<math::RoundEvenOp>(bounded));
  Value code = a.select(isSmall, steps, normal);
  Value isNan = a.op<arith::CmpIOp>(P::ugt, abs, a.c(0x7f800000));
  int64_t top = m.infinities ? 0x7b : m.unsignedZero ? 0x7f : 0x7e;
  Value over = a.op<arith::CmpIOp>(P::ugt, code, a.c(top));
  Value result;
  if (m.unsignedZero) {
    Value invalid = a.op<arith::OrIOp>(over, isNan);
    Value isZero = a.eq(code, a.c(0));
    result = a.select(isZero, a.c(0), a.op<arith::OrIOp>(code, sign));
    result = a.select(invalid, a.c(0x80), result);
  } else {
    Value limit = a.c(m.infinities ? 0x7c : 0x7f), nan = a.c(m.infinities ? 0x7e : 0x7f);
    code = a.select(isNan, nan, a.select(over, limit, code));
    result = a.op<arith::OrIOp>(code, sign);
  }
  return a.op<arith::TruncIOp>(a.as(a.b.getI8Type()), result);
}

} // namespace

LogicalResult lowerSmallFloats(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<arith::ExtFOp>(op) &&
        (formatOf(getElementTypeOrSelf(op->getOperand(0))) || widensExponent(op)))
      ops.push_back(op);
    if (isa<arith::TruncFOp>(op) && formatOf(getElementTypeOrSelf(op->getResult(0))))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    Value in = op->getOperand(0);
    Type out = op->getResult(0).getType();
    Arith a{OpBuilder(op), op->getLoc(), out};
    Value result;
    if (isa<arith::ExtFOp>(op)) {
      if (!getElementTypeOrSelf(out).isF32())
        return op->emitError("8-bit floats widen to f32 only");
      Value bits = a.op<arith::BitcastOp>(a.as(a.b.getI8Type()), in);
      result = widensExponent(op) ? widenExponent(a, bits)
                                  : widen(a, bits, *formatOf(getElementTypeOrSelf(in)));
    } else {
      if (!getElementTypeOrSelf(in).isF32())
        return op->emitError("8-bit floats narrow from f32 only");
      Value bits = narrow(a, in, *formatOf(getElementTypeOrSelf(out)));
      result = a.op<arith::BitcastOp>(out, bits);
    }
    op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  }
  return success();
}

} // namespace lathe::codegen
