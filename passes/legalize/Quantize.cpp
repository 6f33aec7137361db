//===- Quantize.cpp - quantize, dequantize, integer products ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Expressed by arithmetic: (x - zero) * scale, and round(x / scale) + zero clamped
// to the type's range. Scales are operands, so they may be run-time values.
//
//===----------------------------------------------------------------------===//
#include "Windows.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {
namespace {

/// A scale or zero point shaped to broadcast with x: one number, one a slice of
/// `axis`, or one a block of `block` elements along it.
Value parameterFor(Node &n, Value p, Value x, int64_t block) {
  Emitter &e = n.e;
  if (!p || !x)
    return {};
  int64_t rank = rankOf(x);
  if (rankOf(p) == 0 || (rankOf(p) == 1 && dimOf(p, 0) == DimExpr(1) && block == 0))
    return e.reshape(p, {});
  std::optional<int64_t> axis = n.axis(n.intAttr("axis", 1), rank);
  if (!axis)
    return {};
  if (rankOf(p) == 1 && block == 0) {
    Dims dims(rank, DimExpr(1));
    dims[*axis] = dimOf(p, 0);
    return e.reshape(p, dims);
  }
  if (rankOf(p) != rank)
    return e.fail("scale and input differ in rank");
  Dims dims = dimsOf(p), apart = dims;
  if (block == 0) {
    std::optional<DimExpr> even = dimOf(x, *axis).exactDiv(dims[*axis]);
    if (!even || !even->isConstant())
      return e.fail("the block size does not follow from the sizes");
    block = *even->constant();
  }
  apart.insert(apart.begin() + *axis + 1, DimExpr(block));
  Dims joined = dims;
  joined[*axis] = dims[*axis] * DimExpr(block);
  Value wide = e.reshape(e.broadcastTo(e.unsqueeze(p, {*axis + 1}), apart), joined);
  return e.sliceAxis(wide, *axis, 0, dimOf(x, *axis));
}

/// Low and high of an integer type.
std::pair<double, double> rangeOf(Type element) {
  auto integer = cast<IntegerType>(element);
  double span = std::exp2(integer.getWidth() - (integer.isUnsigned() ? 0 : 1));
  return {integer.isUnsigned() ? 0 : -span, span - 1};
}

/// round(x) + zero, clamped and converted; x is f32, zero in the result's type.
Value roundTo(Emitter &e, Value x, Value zero, Type element) {
  Value y = e.unary<RoundOp>(x);
  if (zero)
    y = e.add(y, e.cast(zero, elementTypeOf(x)));
  auto [low, high] = rangeOf(element);
  return e.cast(e.min(e.max(y, low), high), element);
}

LogicalResult quantize(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1);
  if (!x || !scale)
    return failure();
  int64_t block = n.intAttr("block_size", 0);
  Type element = n.has(2) ? n.element(2) : Type();
  if (!element && n.intAttr("output_dtype", 0))
    element = elementFor(n.op->getContext(), n.intAttr("output_dtype", 0));
  if (!element)
    element = e.b.getIntegerType(8, /*isSigned=*/false);
  Type inner = isFloat(elementTypeOf(scale)) ? elementTypeOf(scale) : e.b.getF32Type();
  if (int64_t precision = n.intAttr("precision", 0))
    inner = elementFor(n.op->getContext(), precision);
  else if (inner.getIntOrFloatBitWidth() < 16)
    inner = e.b.getF32Type();
  if (!inner || !isFloat(inner))
    return n.fail("attribute", "this precision", "floats");
  Value ratio = e.div(e.cast(x, inner), parameterFor(n, e.cast(scale, inner), x, block));
  if (isFloat(element))
    return n.done(e.cast(ratio, element, n.intAttr("saturate", 1)));
  if (!isInt(element))
    return n.fail("dtype", "this result type", "integers and floats of 8 bits or more");
  // Sums beyond 11 bits are not exact in 16-bit floats.
  ratio = e.cast(ratio, inner.isF64() ? inner : Type(e.b.getF32Type()));
  Value zero = n.has(2) ? parameterFor(n, n.in(2), x, block) : Value();
  if (n.has(2) && !zero)
    return failure();
  return n.done(roundTo(e, ratio, zero, element));
}

LogicalResult dequantize(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1);
  if (!x || !scale)
    return failure();
  int64_t block = n.intAttr("block_size", 0);
  Type element = elementTypeOf(scale);
  if (int64_t to = n.intAttr("output_dtype", 0))
    element = elementFor(n.op->getContext(), to);
  if (!element || !isFloat(element))
    return n.fail("dtype", "this result type", "floats");
  Type inner = element.getIntOrFloatBitWidth() < 32 ? Type(e.b.getF32Type()) : element;
  Value y = e.cast(x, inner);
  if (n.has(2))
    y = e.sub(y, parameterFor(n, e.cast(n.in(2), inner), x, block));
  return n.done(e.cast(e.mul(y, parameterFor(n, e.cast(scale, inner), x, block)), element));
}

/// (a - za)(b - zb) in i32, then rescaled to the result's scale.
LogicalResult qLinearMatmul(Node &n) {
  Emitter &e = n.e;
  Type i32 = e.b.getI32Type(), f32 = e.b.getF32Type();
  Value a = n.in(0), b = n.in(3), target = n.in(7);
  if (!a || !b || !target || rankOf(a) < 2 || rankOf(b) < 2)
    return n.fail("shape", "vectors as operands", "matrices");
  auto rows = [&](Value p) {
    return p && rankOf(p) == 1 && dimOf(p, 0) != DimExpr(1)
               ? e.unsqueeze(p, {1})
               : e.reshape(p, p && rankOf(p) == 1 ? Dims()
                              : p                 ? dimsOf(p)
                                                  : Dims());
  };
  auto columns = [&](Value p) {
    return p && rankOf(p) == 1 && dimOf(p, 0) == DimExpr(1) ? e.reshape(p, {}) : p;
  };
  Value left = e.sub(e.cast(a, i32), rows(e.cast(n.in(2), i32)));
  Value right = e.sub(e.cast(b, i32), columns(e.cast(n.in(5), i32)));
  Value product = e.cast(e.matmul(left, right), f32);
  Value scaled = e.mul(product, e.mul(rows(e.cast(n.in(1), f32)), columns(e.cast(n.in(4), f32))));
  Value ratio = e.div(scaled, rows(e.cast(n.in(6), f32)));
  return n.done(roundTo(e, ratio, rows(target), elementTypeOf(target)));
}

/// The same for a convolution: x, its scale and zero point, w, its scale and zero
/// point (one a channel at most), y's scale and zero point, and a bias in i32.
LogicalResult qLinearConv(Node &n) {
  Emitter &e = n.e;
  Type i32 = e.b.getI32Type(), f32 = e.b.getF32Type();
  Value x = n.in(0), w = n.in(3), target = n.in(7);
  if (!x || !w || !target)
    return failure();
  int64_t rank = rankOf(x);
  auto number = [&](unsigned i, Type element) { return e.reshape(e.cast(n.in(i), element), {}); };
  // One value a channel of the result, along dimension `axis` of the operand.
  auto channels = [&](unsigned i, Type element, int64_t axis) -> Value {
    Value p = e.cast(n.in(i), element);
    if (!p || rankOf(p) == 0 || dimOf(p, 0) == DimExpr(1))
      return e.reshape(p, {});
    Dims dims(rank, DimExpr(1));
    dims[axis] = dimOf(p, 0);
    return e.reshape(p, dims);
  };
  Value y =
      convOf(n, e.sub(e.cast(x, i32), number(2, i32)), e.sub(e.cast(w, i32), channels(5, i32, 0)));
  if (n.has(8))
    y = e.add(y, perChannel(e, n.in(8), rank));
  Value scaled = e.mul(e.cast(y, f32), e.mul(number(1, f32), channels(4, f32, 1)));
  Value ratio = e.div(scaled, number(6, f32));
  return n.done(roundTo(e, ratio, e.reshape(target, {}), elementTypeOf(target)));
}

} // namespace

void addQuantization(Handlers &h) {
  h["QuantizeLinear"] = quantize;
  h["DequantizeLinear"] = dequantize;
  h["QLinearMatMul"] = qLinearMatmul;
  h["QLinearConv"] = qLinearConv;
}

} // namespace lathe::legal
