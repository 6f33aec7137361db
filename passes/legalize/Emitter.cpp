//===- Emitter.cpp - short words for making lathe ops -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Emitter.h"

#include "lathe/ir/WeightStore.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;

namespace lathe::legal {

Value Emitter::fail(llvm::Twine why) {
  error = why.str();
  return {};
}

Value Emitter::finish(OperationState &state,
                      llvm::function_ref<LogicalResult(SmallVectorImpl<Type> &)> inferTypes) {
  SmallVector<Type> types;
  ScopedDiagnosticHandler capture(b.getContext(), [&](Diagnostic &d) {
    error = d.str();
    return success();
  });
  if (failed(inferTypes(types)))
    return {};
  state.types.assign(types.begin(), types.end());
  return b.create(state)->getResult(0);
}

static TypedAttr splat(RankedTensorType type, double value) {
  Type element = type.getElementType();
  if (isa<FloatType>(element))
    return DenseElementsAttr::get(type, FloatAttr::get(element, value));
  unsigned width = element.getIntOrFloatBitWidth();
  return DenseElementsAttr::get(
      type, IntegerAttr::get(element, APInt(width, uint64_t(int64_t(value)),
                                            !element.isUnsignedInteger(), true)));
}

Value Emitter::scalar(double value, Type element) {
  if (!isa<FloatType, IntegerType>(element))
    return fail("no number of this element type");
  return ConstantOp::create(b, loc, splat(RankedTensorType::get({}, element), value));
}

Value Emitter::ints(ArrayRef<int64_t> values, ArrayRef<int64_t> shape, Type element) {
  SmallVector<double> numbers(values.begin(), values.end());
  auto type = RankedTensorType::get(shape, element);
  if (isa<FloatType>(element))
    return floats(numbers, shape, element);
  SmallVector<APInt> elements;
  unsigned width = element.getIntOrFloatBitWidth();
  for (int64_t v : values)
    elements.push_back(APInt(width, uint64_t(v), true, true));
  return table(DenseElementsAttr::get(type, elements));
}

Value Emitter::floats(ArrayRef<double> values, ArrayRef<int64_t> shape, Type element) {
  auto type = RankedTensorType::get(shape, element);
  auto &semantics = llvm::cast<FloatType>(element).getFloatSemantics();
  SmallVector<APFloat> elements;
  for (double v : values) {
    APFloat number(v);
    bool lost;
    number.convert(semantics, APFloat::rmNearestTiesToEven, &lost);
    elements.push_back(number);
  }
  return table(DenseElementsAttr::get(type, elements));
}

/// A constant; long ones become weights, as those of the model do.
Value Emitter::table(DenseElementsAttr dense) {
  auto &weights = b.getContext()->getOrLoadDialect<LatheDialect>()->weights();
  auto type = llvm::cast<RankedTensorType>(dense.getType());
  if (Result<std::vector<std::byte>> bytes = constantBytes(dense, weights))
    return ConstantOp::create(b, loc, constantAttr(type, *bytes, weights));
  return ConstantOp::create(b, loc, llvm::cast<TypedAttr>(dense));
}

Value Emitter::dimScalar(const DimExpr &dim, Type element) { return dimTensor({dim}, {}, element); }

Value Emitter::dimTensor(ArrayRef<DimExpr> dims, ArrayRef<int64_t> shape, Type element) {
  Ints constants;
  for (const DimExpr &dim : dims)
    if (std::optional<int64_t> constant = dim.constant())
      constants.push_back(*constant);
  if (constants.size() == dims.size())
    return ints(constants, shape, element);
  return DimValueOp::create(b, loc, RankedTensorType::get(shape, element), dimArray(dims));
}

ArrayAttr Emitter::dimArray(const Dims &dims) {
  SmallVector<Attribute> attrs;
  for (const DimExpr &dim : dims)
    attrs.push_back(DimAttr::get(b.getContext(), dim));
  return b.getArrayAttr(attrs);
}

Value Emitter::cast(Value x, Type element, bool saturate) {
  if (!x || elementTypeOf(x) == element)
    return x;
  return CastOp::create(b, loc, withElementType(x.getType(), element), x, saturate);
}

/// The sizes of a result whose operands broadcast, those of `x` where parameters come in blocks.
static std::optional<Dims> codeDims(Value x, Value scale, Value zero, ArrayRef<int64_t> block) {
  std::vector<Dims> shapes{dimsOf(x)};
  for (Value p : {scale, zero})
    if (p && block.empty())
      shapes.push_back(dimsOf(p));
  return broadcastDims(shapes);
}

Value Emitter::dequantize(Value data, Value scale, Value zero, Type element,
                          ArrayRef<int64_t> block) {
  std::optional<Dims> dims = data ? codeDims(data, scale, zero, block) : std::nullopt;
  if (!dims)
    return data ? fail("scale or zero point do not broadcast to the data") : Value();
  return DequantizeOp::create(b, loc, tensorType(element, *dims), data, scale, zero, Value(), Value(),
                              block);
}

Value Emitter::quantize(Value x, Value scale, Value zero, Type element, bool saturate,
                        ArrayRef<int64_t> block) {
  std::optional<Dims> dims = x && scale ? codeDims(x, scale, zero, block) : std::nullopt;
  if (!dims)
    return x && scale ? fail("scale or zero point do not broadcast to the data") : Value();
  return QuantizeOp::create(b, loc, tensorType(element, *dims), x, scale, zero, saturate, block);
}

Value Emitter::reshape(Value x, const Dims &dims) {
  if (!x)
    return {};
  if (dimsOf(x) == dims)
    return x;
  DimExpr from = numElements(x.getType()), to = product(dims);
  if (from.isConstant() && to.isConstant() && from != to)
    return fail(llvm::Twine(from.str()) + " elements do not fit into " + to.str());
  return ReshapeOp::create(b, loc, tensorType(elementTypeOf(x), dims), x);
}

Value Emitter::broadcastTo(Value x, const Dims &dims) {
  if (!x)
    return {};
  Dims from = dimsOf(x);
  if (from == dims)
    return x;
  if (from.size() > dims.size())
    return fail("the rank shrinks in a broadcast");
  for (size_t i = 0; i < from.size(); ++i) {
    const DimExpr &to = dims[dims.size() - from.size() + i];
    if (from[i].isConstant() && from[i] != DimExpr(1) && to.isConstant() && from[i] != to)
      return fail(llvm::Twine("size ") + from[i].str() + " does not broadcast to " + to.str());
  }
  return BroadcastToOp::create(b, loc, tensorType(elementTypeOf(x), dims), x);
}

Value Emitter::transpose(Value x, ArrayRef<int64_t> perm) {
  if (!x)
    return {};
  bool identity = true;
  for (auto [i, p] : llvm::enumerate(perm))
    identity &= int64_t(i) == p;
  return identity && int64_t(perm.size()) == rankOf(x) ? x : infer<TransposeOp>(x, perm);
}

Value Emitter::slice(Value x, const Dims &starts, const Dims &sizes, ArrayRef<int64_t> steps) {
  if (!x)
    return {};
  bool whole = dimsOf(x) == sizes && llvm::all_of(steps, [](int64_t s) { return s == 1; }) &&
               llvm::all_of(starts, [](const DimExpr &s) { return s == DimExpr(0); });
  if (whole)
    return x;
  return SliceOp::create(b, loc, tensorType(elementTypeOf(x), sizes), x, dimArray(starts), steps);
}

Value Emitter::sliceAxis(Value x, int64_t axis, const DimExpr &start, const DimExpr &size) {
  if (!x)
    return {};
  Dims sizes = dimsOf(x), starts(sizes.size(), DimExpr(0));
  starts[axis] = start;
  sizes[axis] = size;
  return slice(x, starts, sizes, Ints(sizes.size(), 1));
}

Value Emitter::pad(Value x, Value value, const Dims &low, const Dims &high, PadMode mode) {
  if (!x)
    return {};
  Dims dims = dimsOf(x);
  bool nothing = true;
  for (size_t d = 0; d < dims.size(); ++d) {
    nothing &= low[d] == DimExpr(0) && high[d] == DimExpr(0);
    dims[d] = low[d] + dims[d] + high[d];
    if (dims[d].isConstant() && *dims[d].constant() < 0)
      return fail("more is cropped than there is");
  }
  if (nothing)
    return x;
  return PadOp::create(b, loc, tensorType(elementTypeOf(x), dims), x, value, dimArray(low),
                       dimArray(high), mode);
}

Value Emitter::concat(ArrayRef<Value> xs, int64_t axis) {
  if (xs.size() == 1)
    return xs[0];
  if (isNull(xs))
    return {};
  return infer<ConcatOp>(ValueRange(xs), uint64_t(axis));
}

Value Emitter::iota(const Dims &dims, int64_t axis, Type element) {
  return IotaOp::create(b, loc, tensorType(element, dims), uint64_t(axis));
}

Value Emitter::reduce(Value x, ReduceKind kind, ArrayRef<int64_t> axes, bool keepdims) {
  return infer<ReduceOp>(x, kind, axes, keepdims);
}

Value Emitter::mean(Value x, ArrayRef<int64_t> axes, bool keepdims) {
  if (!x)
    return {};
  if (Type element = elementTypeOf(x); isNarrow(element))
    return cast(mean(cast(x, b.getF32Type()), axes, keepdims), element);
  Dims dims = dimsOf(x);
  DimExpr count = 1;
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= int64_t(dims.size()))
      return fail("an axis is outside the rank");
    count = count * dims[axis];
  }
  return div(reduce(x, ReduceKind::Sum, axes, keepdims), dimScalar(count, elementTypeOf(x)));
}

Value Emitter::matmul(Value a, Value c, bool transposeA, bool transposeB) {
  return infer<MatmulOp>(a, c, transposeA, transposeB);
}

Value Emitter::unsqueeze(Value x, ArrayRef<int64_t> axes) {
  if (!x)
    return {};
  Dims in = dimsOf(x), dims;
  size_t next = 0, rank = in.size() + axes.size();
  for (size_t d = 0; d < rank; ++d)
    dims.push_back(llvm::is_contained(axes, int64_t(d)) || next == in.size() ? DimExpr(1)
                                                                             : in[next++]);
  return reshape(x, dims);
}

Value Emitter::bind(Value x, const Dims &dims) {
  if (!x || dimsOf(x) == dims)
    return x;
  return BindDimsOp::create(b, loc, tensorType(elementTypeOf(x), dims), x);
}

DimExpr Emitter::clampAtZero(const DimExpr &e) const {
  return provablyNonNegative(e) ? e : DimExpr::max(e, 0);
}

DimExpr Emitter::minOf(const DimExpr &a, const DimExpr &b) const {
  if (provablyNonNegative(b - a))
    return a;
  if (provablyNonNegative(a - b))
    return b;
  return DimExpr::min(a, b);
}

} // namespace lathe::legal
