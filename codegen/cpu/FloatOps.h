//===- FloatOps.h - arithmetic of one type of floats ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What expansions of math functions are written with: ops on scalars or vectors
// of f32 or f64, and on integers of the same width and number.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CPU_FLOATOPS_H
#define LATHE_CODEGEN_CPU_FLOATOPS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"

namespace lathe::codegen {

struct FloatOps {
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type type; ///< f32 or f64, or a vector of it

  /// The same number of elements of another type.
  mlir::Type of(mlir::Type element) const {
    auto vector = mlir::dyn_cast<mlir::VectorType>(type);
    return vector ? mlir::Type(vector.clone(element)) : element;
  }
  mlir::Type element() const { return mlir::getElementTypeOrSelf(type); }
  mlir::Type ints() const { return of(b.getIntegerType(element().getIntOrFloatBitWidth())); }
  mlir::Value constant(mlir::Type t, mlir::Attribute scalar) const {
    if (auto v = mlir::dyn_cast<mlir::VectorType>(t))
      scalar = mlir::DenseElementsAttr::get(v, scalar);
    return mlir::arith::ConstantOp::create(b, loc, t, mlir::cast<mlir::TypedAttr>(scalar));
  }
  mlir::Value f(double v) const {
    return constant(type, element().isF32() ? b.getF32FloatAttr(static_cast<float>(v)) : b.getF64FloatAttr(v));
  }
  mlir::Value i(int64_t v) const { return constant(ints(), b.getIntegerAttr(mlir::getElementTypeOrSelf(ints()), v)); }
  mlir::Value add(mlir::Value x, mlir::Value y) const { return mlir::arith::AddFOp::create(b, loc, x, y); }
  mlir::Value sub(mlir::Value x, mlir::Value y) const { return mlir::arith::SubFOp::create(b, loc, x, y); }
  mlir::Value mul(mlir::Value x, mlir::Value y) const { return mlir::arith::MulFOp::create(b, loc, x, y); }
  mlir::Value fma(mlir::Value x, mlir::Value y, mlir::Value z) const {
    return mlir::math::FmaOp::create(b, loc, x, y, z);
  }
  mlir::Value less(mlir::Value x, mlir::Value y) const {
    return mlir::arith::CmpFOp::create(b, loc, mlir::arith::CmpFPredicate::OLT, x, y);
  }
  mlir::Value select(mlir::Value c, mlir::Value x, mlir::Value y) const {
    return mlir::arith::SelectOp::create(b, loc, c, x, y);
  }
  /// x between two bounds; NaN stays.
  mlir::Value clamp(mlir::Value x, double lo, double hi) const {
    x = select(less(x, f(lo)), f(lo), x);
    return select(less(f(hi), x), f(hi), x);
  }
  mlir::Value bits(mlir::Value x) const { return mlir::arith::BitcastOp::create(b, loc, ints(), x); }
  mlir::Value fromBits(mlir::Value x) const { return mlir::arith::BitcastOp::create(b, loc, type, x); }
  mlir::Value both(mlir::Value x, mlir::Value y) const { return mlir::arith::AndIOp::create(b, loc, x, y); }
  /// |x|, of f32.
  mlir::Value size(mlir::Value x) const { return fromBits(both(bits(x), i(INT32_MAX))); }
  /// |x| with the sign of y, of f32.
  mlir::Value copySign(mlir::Value x, mlir::Value y) const {
    return fromBits(mlir::arith::OrIOp::create(b, loc, bits(size(x)), both(bits(y), i(INT32_MIN))));
  }
  /// The sum of c[i] * x^(n - i).
  mlir::Value polynomial(mlir::Value x, mlir::ArrayRef<double> c) const {
    mlir::Value p = f(c[0]);
    for (double next : c.drop_front())
      p = fma(p, x, f(next));
    return p;
  }
};

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CPU_FLOATOPS_H
