//===- Elementwise.cpp - arithmetic and functions of one value --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Strings.h"

using namespace mlir;

namespace lathe::legal {
namespace {

template <typename OpTy> LogicalResult unary(Node &n) { return n.done(n.e.unary<OpTy>(n.in(0))); }

template <typename OpTy> LogicalResult binary(Node &n) {
  return n.done(n.e.infer<OpTy>(n.in(0), n.in(1)));
}

/// Max, Min, Sum: any number of operands, from the left.
template <typename OpTy> Value chain(Node &n) {
  Value result = n.in(0);
  for (unsigned i = 1; i < n.numInputs(); ++i)
    result = n.e.infer<OpTy>(result, n.in(i));
  return result;
}
template <typename OpTy> LogicalResult variadic(Node &n) { return n.done(chain<OpTy>(n)); }

LogicalResult meanOf(Node &n) { return n.done(n.e.div(chain<AddOp>(n), double(n.numInputs()))); }

/// Without fmod the result has the sign of the divisor.
LogicalResult mod(Node &n) {
  bool fmod = n.intAttr("fmod", 0);
  return n.done(n.e.infer<ModOp>(n.in(0), n.in(1), fmod));
}

LogicalResult bitShift(Node &n) {
  Value a = n.in(0), b = n.in(1);
  return n.done(n.strAttr("direction", "") == "LEFT" ? n.e.infer<ShlOp>(a, b)
                                                     : n.e.infer<ShrOp>(a, b));
}

LogicalResult reciprocal(Node &n) { return unary<RecipOp>(n); }

/// Powers of two alone: rounds on the bits of an f32, whose exponent they are.
Value toE8M0(Emitter &e, Value x, StringRef rounding, bool saturate) {
  Type i32 = e.b.getI32Type(), byte = e.b.getIntegerType(8, /*isSigned=*/false);
  x = e.cast(x, e.b.getF32Type());
  if (!x)
    return {};
  Value bits = BitcastOp::create(e.b, e.loc, withElementType(x.getType(), i32), e.unary<AbsOp>(x));
  double half = rounding == "up" ? 0x7fffff : rounding == "nearest" ? 0x400000 : 0;
  Value exponent = e.infer<ShrOp>(e.add(bits, half), e.scalar(23, i32));
  if (saturate)
    exponent = e.select(e.infer<IsNanOp>(x), exponent, e.min(exponent, 254.0));
  Value packed = e.cast(exponent, byte);
  return BitcastOp::create(
      e.b, e.loc, withElementType(x.getType(), Float8E8M0FNUType::get(e.b.getContext())), packed);
}

/// Element types narrower than a byte keep the low bits of the truncated value.
Value castTo(Node &n, Value x, Type element) {
  Emitter &e = n.e;
  if (!x)
    return {};
  bool saturate = n.intAttr("saturate", 1);
  if (isa<Float8E8M0FNUType>(element) && isFloat(elementTypeOf(x)))
    return toE8M0(e, x, n.strAttr("round_mode", "up"), saturate);
  if (isa<IntegerType>(element) && !element.isInteger(1) && element.getIntOrFloatBitWidth() < 8 &&
      isFloat(elementTypeOf(x)))
    x = e.cast(x, e.b.getI32Type());
  return e.cast(x, element, saturate);
}

LogicalResult cast(Node &n) {
  Value x = n.in(0);
  int64_t to = n.intAttr("to", 0);
  constexpr int64_t kString = 8;
  Type element = elementFor(n.op->getContext(), to);
  if (n.isStrings(0) || to == kString)
    return castStrings(n, element);
  if (!element)
    return n.fail("dtype", "a cast to ONNX element type " + llvm::Twine(to), "numbers, bool and strings");
  return n.done(castTo(n, x, element));
}

LogicalResult castLike(Node &n) {
  Value x = n.in(0), like = n.in(1);
  if (like && (n.isStrings(0) || n.isStrings(1)))
    return castStrings(n, n.isStrings(1) ? Type() : elementTypeOf(like));
  return n.done(like ? castTo(n, x, elementTypeOf(like)) : Value());
}

LogicalResult bitCast(Node &n) {
  Value x = n.in(0);
  Type element = elementFor(n.op->getContext(), n.intAttr("to", 0));
  if (!x || !element)
    return failure();
  std::optional<DType> from = dtypeOf(elementTypeOf(x)), to = dtypeOf(element);
  if (!from || !to || bitWidth(*from) != bitWidth(*to))
    return n.fail("dtype", "BitCast between widths", "element types of one width");
  return n.done(
      BitcastOp::create(n.e.b, n.e.loc, withElementType(x.getType(), element), x).getResult());
}

LogicalResult identity(Node &n) {
  if (n.tracked(0).isSequence || n.tracked(0).isEmpty || n.tracked(0).list)
    return n.setTracked(0, n.tracked(0));
  Value x = n.in(0);
  if (!x)
    return n.fail("dtype", "Identity of a value that is no tensor", "tensors");
  return n.done(x);
}

LogicalResult quickGelu(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  if (!isFloat(elementTypeOf(x)))
    return n.fail("dtype", "QuickGelu of numbers that are no floats", "floats");
  return n.done(QuickGeluOp::create(n.e.b, n.e.loc, x.getType(), x,
                                    llvm::APFloat(n.floatAttr("alpha", 1.702))));
}

} // namespace

Type elementFor(MLIRContext *context, int64_t onnxType) {
  static constexpr DType kTypes[] = {DType::String /*0: undefined*/,
                                     DType::F32,
                                     DType::UI8,
                                     DType::I8,
                                     DType::UI16,
                                     DType::I16,
                                     DType::I32,
                                     DType::I64,
                                     DType::String,
                                     DType::Bool,
                                     DType::F16,
                                     DType::F64,
                                     DType::UI32,
                                     DType::UI64,
                                     DType::C64,
                                     DType::C128,
                                     DType::BF16,
                                     DType::F8E4M3FN,
                                     DType::F8E4M3FNUZ,
                                     DType::F8E5M2,
                                     DType::F8E5M2FNUZ,
                                     DType::UI4,
                                     DType::I4,
                                     DType::F4E2M1,
                                     DType::F8E8M0,
                                     DType::UI2,
                                     DType::I2};
  if (onnxType < 0 || onnxType >= int64_t(std::size(kTypes)))
    return {};
  return typeOf(context, kTypes[onnxType]);
}

void addElementwise(Handlers &h) {
  h["Abs"] = unary<AbsOp>;
  h["Neg"] = unary<NegOp>;
  h["Sign"] = unary<SignOp>;
  h["Floor"] = unary<FloorOp>;
  h["Ceil"] = unary<CeilOp>;
  h["Round"] = unary<RoundOp>;
  h["Exp"] = unary<ExpOp>;
  h["Log"] = unary<LogOp>;
  h["Sqrt"] = unary<SqrtOp>;
  h["Reciprocal"] = reciprocal;
  h["Sin"] = unary<SinOp>;
  h["Cos"] = unary<CosOp>;
  h["Tan"] = unary<TanOp>;
  h["Asin"] = unary<AsinOp>;
  h["Acos"] = unary<AcosOp>;
  h["Atan"] = unary<AtanOp>;
  h["Sinh"] = unary<SinhOp>;
  h["Cosh"] = unary<CoshOp>;
  h["Tanh"] = unary<TanhOp>;
  h["Asinh"] = unary<AsinhOp>;
  h["Acosh"] = unary<AcoshOp>;
  h["Atanh"] = unary<AtanhOp>;
  h["Erf"] = unary<ErfOp>;
  h["Sigmoid"] = unary<SigmoidOp>;
  h["com.microsoft.QuickGelu"] = quickGelu;
  h["Add"] = binary<AddOp>;
  h["Sub"] = binary<SubOp>;
  h["Mul"] = binary<MulOp>;
  h["Div"] = binary<DivOp>;
  h["Pow"] = binary<PowOp>;
  h["Max"] = variadic<MaxOp>;
  h["Min"] = variadic<MinOp>;
  h["Sum"] = variadic<AddOp>;
  h["Mean"] = meanOf;
  h["Mod"] = mod;
  h["BitShift"] = bitShift;
  h["Cast"] = cast;
  h["CastLike"] = castLike;
  h["BitCast"] = bitCast;
  h["Identity"] = identity;
}

} // namespace lathe::legal
