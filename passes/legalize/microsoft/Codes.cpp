//===- Codes.cpp - arithmetic on codes with scales --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The QLinear ops are the ONNX op between dequantize and quantize; each tensor of codes is followed by its
// scale and its zero point, which may be absent. Integer products multiply codes less their zero
// points in i32.
//
//===----------------------------------------------------------------------===//
#include "Families.h"

#include "../Windows.h"

using namespace mlir;

namespace lathe::legal::microsoft {
namespace {

/// A scale or zero point of one element, as rank 0.
Value single(Node &n, unsigned i) {
  Value p = n.in(i);
  if (!p)
    return {};
  if (rankOf(p) == 0)
    return p;
  n.unify(product(dimsOf(p)), 1);
  return n.e.reshape(p, {});
}

/// Operand i as floats; its scale and zero point follow it.
Value decoded(Node &n, unsigned i) {
  Emitter &e = n.e;
  Value zero = n.has(i + 2) ? e.cast(single(n, i + 2), e.b.getF32Type()) : Value();
  if (n.has(i + 2) && !zero)
    return {};
  return e.dequantize(n.in(i), e.cast(single(n, i + 1), e.b.getF32Type()), zero, e.b.getF32Type());
}

/// y as codes of `element`, by operands `scale` and, where present, `zero`.
Value encoded(Node &n, Value y, unsigned scale, unsigned zero, Type element) {
  Emitter &e = n.e;
  Value by = e.cast(single(n, scale), e.b.getF32Type());
  if (!n.has(zero))
    return e.quantize(y, by, {}, element);
  Value offset = e.cast(single(n, zero), e.b.getF32Type());
  return offset ? e.quantize(y, by, offset, element) : Value();
}

Type codeType(Node &n, unsigned i) {
  Value v = n.in(i);
  return v ? elementTypeOf(v) : Type();
}

template <typename OpTy> LogicalResult qLinearBinary(Node &n) {
  return n.done(encoded(n, n.e.infer<OpTy>(decoded(n, 0), decoded(n, 3)), 6, 7, codeType(n, 0)));
}

LogicalResult qLinearSigmoid(Node &n) {
  return n.done(encoded(n, n.e.unary<SigmoidOp>(decoded(n, 0)), 3, 4, codeType(n, 0)));
}
LogicalResult qLinearLeakyRelu(Node &n) {
  Value y = activationOf(n.e, "leakyrelu", decoded(n, 0), n.floatAttr("alpha", 0.01));
  return n.done(encoded(n, y, 3, 4, codeType(n, 0)));
}

LogicalResult qLinearAveragePool(Node &n) {
  Emitter &e = n.e;
  bool last = n.intAttr("channels_last", 0);
  Value x = decoded(n, 0);
  Value y = poolOf(n, last ? channelsFirst(e, x) : x, PoolKind::Average);
  return n.done(encoded(n, last ? channelsLast(e, y) : y, 3, 4, codeType(n, 0)));
}
LogicalResult qLinearGlobalAveragePool(Node &n) {
  Value x = decoded(n, 0);
  if (!x || rankOf(x) < 3)
    return failure();
  bool last = n.intAttr("channels_last", 0);
  Ints axes = last ? axesFrom(1, rankOf(x) - 1) : axesFrom(2, rankOf(x));
  return n.done(encoded(n, n.e.mean(x, axes), 3, 4, codeType(n, 0)));
}

LogicalResult qLinearConcat(Node &n) {
  std::vector<Value> parts;
  for (unsigned i = 2; i + 2 < n.numInputs(); i += 3)
    parts.push_back(decoded(n, i));
  if (parts.empty() || !parts[0])
    return failure();
  std::optional<int64_t> axis = n.axis(n.intAttr("axis", 0), rankOf(parts[0]));
  return axis ? n.done(encoded(n, n.e.concat(parts, *axis), 0, 1, codeType(n, 1))) : failure();
}

LogicalResult qLinearSoftmax(Node &n) {
  n.opset = n.intAttr("opset", 13);
  return n.done(
      encoded(n, softmaxOf(n, decoded(n, 0), n.intAttr("axis", -1)), 3, 4, codeType(n, 0)));
}

LogicalResult qLinearWhere(Node &n) {
  Value picked = n.e.select(n.in(0), decoded(n, 1), decoded(n, 4));
  return n.done(encoded(n, picked, 7, 8, codeType(n, 1)));
}

/// onnxruntime's form of ONNX's QLinearConv takes channels last, too.
LogicalResult qLinearConv(Node &n) {
  return n.done(qLinearConvOf(n, n.intAttr("channels_last", 0)));
}

/// A scale or zero point of a product's columns, [N] or one number, which broadcasts as it is.
Value ofColumns(Node &n, unsigned i) {
  Value p = n.in(i);
  return p && rankOf(p) == 1 && dimOf(p, 0) == DimExpr(1) ? n.e.reshape(p, {}) : p;
}

/// Codes less their zero point, where there is one, in i32.
Value centred(Node &n, Value codes, Value zero) {
  Type i32 = n.e.b.getI32Type();
  return n.e.dequantize(codes, {}, zero ? n.e.cast(zero, i32) : Value(), i32);
}

/// The product of integers as floats: by both scales, and plus operand `bias` where present.
Value scaled(Node &n, Value product, Value scales, unsigned bias) {
  Emitter &e = n.e;
  Value y = scales ? e.mul(e.cast(product, elementTypeOf(scales)), scales) : Value();
  return n.has(bias) ? e.add(y, n.in(bias)) : y;
}

LogicalResult matmulIntegerToFloat(Node &n) {
  Emitter &e = n.e;
  Value y = matmulOf(n, centred(n, n.in(0), n.has(4) ? single(n, 4) : Value()),
                     centred(n, n.in(1), n.has(5) ? ofColumns(n, 5) : Value()));
  return n.done(scaled(n, y, e.mul(single(n, 2), ofColumns(n, 3)), 6));
}

LogicalResult dynamicQuantizeMatmul(Node &n) {
  Emitter &e = n.e;
  DynamicCodes a = dynamicCodes(e, n.in(0));
  Value y = matmulOf(n, centred(n, a.codes, a.zero),
                     centred(n, n.in(1), n.has(3) ? ofColumns(n, 3) : Value()));
  return n.done(scaled(n, y, e.mul(a.scale, ofColumns(n, 2)), 4));
}

/// alpha * scales * (A B + C): the bias is of integers in the product's scale.
LogicalResult qGemm(Node &n) {
  Emitter &e = n.e;
  Value a = centred(n, n.in(0), n.has(2) ? single(n, 2) : Value()), b = n.in(3);
  if (!a || !b || rankOf(a) != 2 || rankOf(b) != 2)
    return n.invalid("shape", "QGemm needs matrices");
  bool transposeA = n.intAttr("transA", 0), transposeB = n.intAttr("transB", 0);
  auto columns = [&](unsigned i) {
    Value p = ofColumns(n, i);
    return p && rankOf(p) == 1 && transposeB ? e.unsqueeze(p, {1}) : p;
  };
  b = centred(n, b, n.has(5) ? columns(5) : Value());
  n.unify(dimOf(a, transposeA ? 0 : 1), dimOf(b, transposeB ? 1 : 0));
  Value y = e.matmul(a, b, transposeA, transposeB);
  if (n.has(6))
    y = e.add(y, n.in(6));
  Value scales = e.mul(single(n, 1), ofColumns(n, 4));
  double alpha = n.floatAttr("alpha", 1);
  if (alpha != 1)
    scales = e.mul(scales, alpha);
  y = scales ? e.mul(e.cast(y, elementTypeOf(scales)), scales) : Value();
  return n.done(n.has(7) && n.has(8) ? encoded(n, y, 7, 8, codeType(n, 8)) : y);
}

/// Codes per tensor unless an axis is stated, where ONNX's ops have one by default.

} // namespace

void addCodes(Handlers &h) {
  h["com.microsoft.DequantizeLinear"] = sameAsOnnx;
  h["com.microsoft.DynamicQuantizeMatMul"] = dynamicQuantizeMatmul;
  h["com.microsoft.MatMulIntegerToFloat"] = matmulIntegerToFloat;
  h["com.microsoft.QGemm"] = qGemm;
  h["com.microsoft.QLinearAdd"] = qLinearBinary<AddOp>;
  h["com.microsoft.QLinearAveragePool"] = qLinearAveragePool;
  h["com.microsoft.QLinearConcat"] = qLinearConcat;
  h["com.microsoft.QLinearConv"] = qLinearConv;
  h["com.microsoft.QLinearGlobalAveragePool"] = qLinearGlobalAveragePool;
  h["com.microsoft.QLinearLeakyRelu"] = qLinearLeakyRelu;
  h["com.microsoft.QLinearMul"] = qLinearBinary<MulOp>;
  h["com.microsoft.QLinearSigmoid"] = qLinearSigmoid;
  h["com.microsoft.QLinearSoftmax"] = qLinearSoftmax;
  h["com.microsoft.QLinearWhere"] = qLinearWhere;
  h["com.microsoft.QuantizeLinear"] = sameAsOnnx;
}

} // namespace lathe::legal::microsoft
