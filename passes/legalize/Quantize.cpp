//===- Quantize.cpp - quantize, dequantize, integer products ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scales and zero points are operands of lathe.quantize and lathe.dequantize, so they may be
// run-time values. Integer products multiply codes less their zero points in i32.
//
//===----------------------------------------------------------------------===//
#include "Formulas.h"
#include "Windows.h"

using namespace mlir;

namespace lathe::legal {
namespace {

/// A scale or zero point as lathe.quantize and lathe.dequantize take it: one number, one a slice of
/// `axis`, or one a block of elements along it, and the sizes of blocks then (else empty).
struct Parameter {
  Value value;
  Ints block;
};

/// Converts to `element` what does not come in blocks: these are read as they are stored.
Parameter parameterFor(Node &n, Value p, Value x, Type element) {
  Emitter &e = n.e;
  int64_t block = n.intAttr("block_size", 0);
  if (!p || !x)
    return {};
  int64_t rank = rankOf(x);
  if (rankOf(p) == 0 || (rankOf(p) == 1 && dimOf(p, 0) == DimExpr(1) && block == 0))
    return {e.reshape(e.cast(p, element), {}), {}};
  std::optional<int64_t> axis = n.axis(n.intAttr("axis", 1), rank);
  if (!axis)
    return {};
  Dims dims(rank, DimExpr(1));
  if (rankOf(p) == 1 && block == 0) {
    dims[*axis] = dimOf(p, 0);
    return {e.reshape(e.cast(p, element), dims), {}};
  }
  if (rankOf(p) != rank)
    return {e.fail("scale and input differ in rank"), {}};
  if (block == 0) {
    std::optional<DimExpr> even = dimOf(x, *axis).exactDiv(dimOf(p, *axis));
    if (!even || !even->isConstant() || *even->constant() < 1)
      return {e.fail("the block size does not follow from the sizes"), {}};
    block = *even->constant();
  }
  if (block < 0)
    return {e.fail("the block size is negative"), {}};
  Ints blocks(rank, 1);
  blocks[*axis] = block;
  dims = dimsOf(x);
  dims[*axis] = DimExpr::ceilDiv(dims[*axis], DimExpr(block));
  return {e.bind(p, dims), blocks};
}

LogicalResult quantize(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1);
  if (!x || !scale)
    return failure();
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
  if (!isFloat(element) && !isInt(element))
    return n.fail("dtype", "this result type", "integers and floats of 8 bits or more");
  Parameter by = parameterFor(n, e.cast(scale, inner), x, inner), zero;
  // Sums beyond 11 bits are not exact in 16-bit floats.
  if (n.has(2) && !isFloat(element)) {
    zero = parameterFor(n, n.in(2), x, inner.isF64() ? inner : Type(e.b.getF32Type()));
    if (!zero.value)
      return failure();
  }
  return n.done(e.quantize(x, by.value, zero.value, element, n.intAttr("saturate", 1), by.block));
}

LogicalResult dequantize(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1);
  if (!x || !scale)
    return failure();
  Type element = elementTypeOf(scale);
  if (int64_t to = n.intAttr("output_dtype", 0))
    element = elementFor(n.op->getContext(), to);
  if (!element || !isFloat(element))
    return n.fail("dtype", "this result type", "floats");
  Type inner = element.getIntOrFloatBitWidth() < 32 ? Type(e.b.getF32Type()) : element;
  Parameter by = parameterFor(n, scale, x, inner), zero;
  if (n.has(2)) {
    zero = parameterFor(n, n.in(2), x, inner);
    if (!zero.value)
      return failure();
  }
  return n.done(by.value ? e.dequantize(x, by.value, zero.value, element, by.block) : Value());
}

/// (a - za)(b - zb) in i32, then rescaled to the result's scale; 8-bit floats have no zero points and are multiplied in f32.
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
  const bool areFloats = isFloat(elementTypeOf(a)) || isFloat(elementTypeOf(b));
  auto codes = [&](Value x, Value zero) {
    Value y = isFloat(elementTypeOf(x)) ? x : e.dequantize(x, {}, zero, i32);
    return areFloats ? e.cast(y, f32) : y;
  };
  Value left = codes(a, rows(e.cast(n.in(2), i32))), right = codes(b, columns(e.cast(n.in(5), i32)));
  Value product = e.cast(e.matmul(left, right), f32);
  Value scaled = e.mul(product, e.mul(rows(e.cast(n.in(1), f32)), columns(e.cast(n.in(4), f32))));
  Value zero = isFloat(elementTypeOf(target)) ? Value() : rows(e.cast(target, f32));
  return n.done(e.quantize(scaled, rows(e.cast(n.in(6), f32)), zero, elementTypeOf(target)));
}

LogicalResult qLinearConv(Node &n) { return n.done(qLinearConvOf(n)); }

} // namespace

Value qLinearConvOf(Node &n, bool last) {
  Emitter &e = n.e;
  Type i32 = e.b.getI32Type(), f32 = e.b.getF32Type();
  Value x = n.in(0), w = n.in(3), target = n.in(7);
  if (!x || !w || !target)
    return {};
  int64_t rank = rankOf(x);
  if (last)
    x = channelsFirst(e, x);
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
  Value y = convOf(n, e.dequantize(x, {}, number(2, i32), i32),
                   e.dequantize(w, {}, channels(5, i32, 0), i32));
  if (n.has(8))
    y = e.add(y, perChannel(e, n.in(8), rank));
  Value scaled = e.mul(e.cast(y, f32), e.mul(number(1, f32), channels(4, f32, 1)));
  y = e.quantize(scaled, number(6, f32), e.reshape(e.cast(target, f32), {}), elementTypeOf(target));
  return last ? channelsLast(e, y) : y;
}

DynamicCodes dynamicCodes(Emitter &e, Value x) {
  if (!x)
    return {};
  Type f32 = e.b.getF32Type(), byte = e.b.getIntegerType(8, /*isSigned=*/false);
  Ints all = axesFrom(0, rankOf(x));
  Value low = e.min(e.reduce(x, ReduceKind::Min, all, false), 0.0),
        high = e.max(e.reduce(x, ReduceKind::Max, all, false), 0.0);
  Value scale = e.div(e.sub(high, low), 255.0);
  scale = e.select(e.compare(scale, 0.0, Predicate::Eq), e.like(scale, 1), scale);
  Value zero = e.min(e.max(e.unary<RoundOp>(e.sub(e.like(scale, 0), e.div(low, scale))), 0.0), 255.0);
  return {e.quantize(x, scale, e.cast(zero, f32), byte), e.cast(scale, f32), e.cast(zero, byte)};
}

void addQuantization(Handlers &h) {
  h["QuantizeLinear"] = quantize;
  h["DequantizeLinear"] = dequantize;
  h["QLinearMatMul"] = qLinearMatmul;
  h["QLinearConv"] = qLinearConv;
}

} // namespace lathe::legal
