//===- Fourier.cpp - Fourier transforms of torch ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Complex tensors are pairs of reals: their types have one more dimension, the last, of size 2
// (python-frontend/lathe/torch/_graph.py says which operators have them). Transforms are composed of
// ONNX's DFT, whose inverse divides by the length.
//
//===----------------------------------------------------------------------===//
#include "Aten.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace lathe::legal::aten {
namespace {

/// The reals, [..., 1], of which alone a complex tensor was made (`convert` of Movement.cpp); none of another.
Value realsOf(Value x) {
  auto pair = x.getDefiningOp<ConcatOp>();
  if (!pair || pair.getInputs().size() != 2 || int64_t(pair.getAxis()) != rankOf(x) - 1)
    return {};
  auto zeros = pair.getInputs()[1].getDefiningOp<BroadcastToOp>();
  return zeros && matchPattern(zeros.getX(), m_AnyZeroFloat()) ? pair.getInputs()[0] : Value();
}

/// _fft_c2c and _fft_r2c; normalization 0 divides by nothing, 1 by the root of the length, 2 by it.
template <bool FromReal> LogicalResult transform(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  if (FromReal)
    x = e.unsqueeze(x, {rankOf(x)});
  else if (Value reals = realsOf(x))
    x = reals; // half of the products
  Ints axes = integers(n, "dim");
  int64_t normalization = integer(n, "normalization").value_or(0);
  bool inverse = !FromReal && !flag(n, "forward", true), half = FromReal && flag(n, "onesided");
  Type element = elementTypeOf(x);
  DimExpr length = 1;
  // Of a real signal the last axis comes first, the one of which half is left.
  for (auto [at, given] : llvm::enumerate(llvm::reverse(axes))) {
    std::optional<int64_t> axis = n.axis(given, rankOf(x) - 1);
    if (!axis)
      return failure();
    length = length * dimOf(x, *axis);
    SmallVector<NamedAttribute> attributes = {attr(n, "inverse", inverse)};
    if (half && at == 0)
      attributes.push_back(attr(n, "onesided", 1));
    x = onnx(n, "DFT", {x, Operand::absent(), e.ints({*axis}, {}, e.b.getI64Type())}, attributes);
    if (!x)
      return failure();
  }
  Value count = e.dimScalar(length, element);
  if (normalization == 1)
    count = e.unary<SqrtOp>(count);
  if (inverse && normalization != 2)
    x = e.mul(x, count);
  if (!inverse && normalization != 0)
    x = e.div(x, count);
  return n.done(x);
}

/// Both are the pair as it lies there.
LogicalResult pair(Node &n) { return n.done(n.in(0)); }
template <int Part> LogicalResult part(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  if (rankOf(x) == int64_t(resultDims(n).size())) // of a tensor of reals
    return n.done(x);
  return n.done(n.e.reshape(n.e.sliceAxis(x, rankOf(x) - 1, Part, 1), resultDims(n)));
}

} // namespace

void addFourier(Handlers &h) {
  h["aten._fft_c2c"] = transform<false>;
  h["aten._fft_r2c"] = transform<true>;
  h["aten.view_as_real"] = h["aten.view_as_complex"] = pair;
  h["aten.real"] = part<0>;
  h["aten.imag"] = part<1>;
}

} // namespace lathe::legal::aten
