//===- Quantization.cpp - integers that stand for floats ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

#include <algorithm>

namespace lathe::fuzz {
namespace {

/// A scale and a zero point, of the whole tensor or of an axis.
struct Parameters {
  Value scale, zero;
};
Parameters parameters(GraphBuilder &b, DType codes, Dims dims) {
  HostTensor scale(DType::F32, dims);
  for (int64_t i = 0, n = scale.count(); i < n; ++i)
    scale.setReal(i, b.random.of({0.0625, 0.1, 0.03, 0.25}));
  Parameters p;
  p.scale = b.constant(scale);
  if (b.random.chance(70))
    p.zero = b.integers(codes, dims, isUnsigned(codes) ? 1 : -3, isUnsigned(codes) ? 10 : 3, Source::Constant);
  return p;
}

bool makeQuantize(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return v.dtype == DType::F32 && isKnown(v); }, [&] { return b.fresh(DType::F32, b.dims(b.random.between(1, 4)), 8); });
  DType codes = b.random.of({DType::UI8, DType::I8});
  bool perAxis = x.rank() >= 1 && b.random.chance(40);
  int64_t axis = perAxis ? axisOf(b, x) : 1;
  Parameters p = parameters(b, codes, perAxis ? Dims{x.dims[size_t(positive(axis, x))]} : Dims{});
  if (!p.zero)
    codes = DType::UI8;
  Attrs attrs;
  if (perAxis)
    attrs = {{"axis", axis}};
  Value q = b.node("QuantizeLinear", {x, p.scale, p.zero}, codes, x.dims, 255, attrs, isUnsigned(codes));
  if (b.random.chance(80))
    b.node("DequantizeLinear", {q, p.scale, p.zero}, DType::F32, x.dims, 70, attrs);
  return true;
}

bool makeDynamicQuantize(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pick([](const Value &v) { return v.dtype == DType::F32 && isKnown(v) && v.count() > 0; });
  if (!x)
    return false;
  std::vector<Value> r = b.nodes("DynamicQuantizeLinear", {x}, {{"", DType::UI8, x.dims, 255, true}, {"", DType::F32, {}, 1e4, true}, {"", DType::UI8, {}, 255, true}});
  if (b.random.chance(60))
    b.node("DequantizeLinear", {r[0], r[1], r[2]}, DType::F32, x.dims, 2 * x.most + 1);
  return true;
}

bool makeMatMulInteger(GraphBuilder &b) {
  int64_t m = b.random.between(1, 9), k = b.random.between(1, 40), n = b.random.between(1, 40);
  DType left = b.random.of({DType::UI8, DType::I8}), right = b.random.of({DType::UI8, DType::I8});
  auto range = [&](DType t, Dims d, Source s) { return b.integers(t, d, isUnsigned(t) ? 0 : -128, isUnsigned(t) ? 255 : 127, s); };
  Value x = b.pickOr([&](const Value &v) { return v.dtype == left && isKnown(v) && v.rank() == 2 && v.count() > 0; }, [&] { return range(left, {m, k}, Source::Input); });
  Value w = range(right, {x.dims[1], n}, b.random.chance(70) ? Source::Constant : Source::Input);
  Value xz = b.random.chance(50) ? b.integers(left, {}, 0, 9) : Value();
  Value wz = b.random.chance(40) ? b.integers(right, b.random.chance(50) ? Dims{} : Dims{n}, 0, 5) : Value();
  if (x.dims[0] * n > kMaxElements)
    return false;
  Value sum = b.node("MatMulInteger", {x, w, xz, wz}, DType::I32, {x.dims[0], n}, 3e6);
  if (b.random.chance(70)) {
    Value real = b.node("Cast", {sum}, DType::F32, sum.dims, 3e6, {{"to", int64_t(onnxType(DType::F32))}});
    b.node("Mul", {real, b.scalar(DType::F32, 0.001)}, DType::F32, sum.dims, 3e3);
  }
  return true;
}

/// A product of quantized operands as exporters spell it: QDQ around MatMul.
bool makeQdqMatMul(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return v.dtype == DType::F32 && isKnown(v) && v.rank() == 2 && v.count() > 0; },
                     [&] { return b.fresh(DType::F32, {b.random.between(1, 9), b.random.between(1, 33)}, 4); });
  int64_t n = b.random.between(1, 33);
  if (x.dims[0] * n > kMaxElements)
    return false;
  Value xs = b.scalar(DType::F32, 0.05), xz = b.scalar(DType::UI8, 7);
  Value codes = b.node("QuantizeLinear", {x, xs, xz}, DType::UI8, x.dims, 255, {}, true);
  Value real = b.node("DequantizeLinear", {codes, xs, xz}, DType::F32, x.dims, 20);
  Value w = b.integers(DType::I8, {x.dims[1], n}, -127, 127, Source::Constant);
  bool perColumn = b.random.chance(60);
  HostTensor scales(DType::F32, perColumn ? Dims{n} : Dims{});
  for (int64_t i = 0, c = scales.count(); i < c; ++i)
    scales.setReal(i, 0.01 + 0.02 * b.random.unit());
  Value weights = b.node("DequantizeLinear", {w, b.constant(scales)}, DType::F32, w.dims, 4, perColumn ? Attrs{{"axis", int64_t(1)}} : Attrs{});
  Value y = b.node("MatMul", {real, weights}, DType::F32, {x.dims[0], n}, 80.0 * double(x.dims[1]));
  if (b.random.chance(60))
    b.node("Add", {y, b.fresh(DType::F32, {n}, 2, Source::Constant)}, DType::F32, y.dims, y.most + 2);
  return true;
}

} // namespace

void addQuantization(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"quantize", 3, makeQuantize}, {"dynamic quantize", 1, makeDynamicQuantize}, {"matmul integer", 2, makeMatMulInteger}, {"qdq matmul", 2, makeQdqMatMul}});
}

} // namespace lathe::fuzz
