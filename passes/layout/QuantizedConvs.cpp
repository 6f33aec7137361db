//===- QuantizedConvs.cpp - convolutions of 8-bit codes -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On a CPU that adds products of integers, and on sm_90a, filters of 8 bits are convolved as they are with images of
// 8 bits less their zero point: what pads an image is then 0. Sums are exact in i32; scales go behind:
//
//   %x = dequantize %qx scale(%sx) zero(%zx)     %c = dequantize %qx zero(%zx) : ui8 -> i32
//   %w = dequantize %qw scale(%sw)          =>   %i = conv %c, %qw : i32 x i8 -> i32
//   %y = conv %x, %w                             %y = mul (cast %i), (mul %sx, %sw)
//
// Tensor cores of sm_90a read the bytes themselves. Images with a zero point are filled up with it ahead of the
// convolution, and what each sum then has too much, the zero point times the sum of the filter, is taken away:
//
//   %p = pad %qx {value = %zx}; %y = sub (conv %p, %qw : ui8 x i8 -> i32), (mul %zx, sums of the filters)
//
// Zero points of filters are taken away when compiling. Where a vector of results covers whole groups of
// channels (depthwise convolutions) products of f32 are as fast, and what a kernel gains is that it reads
// bytes: the scale of the images goes into the filters.
//
//   %x = dequantize %qx scale(%s) zero(%z)       %c = dequantize %qx zero(%z) : ui8 -> f32
//   %y = conv %x, %w {group = 32}           =>   %y = conv %c, (mul %w, %s) {group = 32}
//
//===----------------------------------------------------------------------===//
#include "QuantizedConvs.h"

#include "TransposeWeights.h"

#include "lathe/codegen/KernelPolicy.h"
#include "lathe/passes/EvaluateOp.h"
#include "lathe/passes/Rewrite.h"

#include <cmath>

using namespace mlir;

namespace lathe {
namespace {

bool isInteger8(Type t) {
  auto integer = dyn_cast<IntegerType>(t);
  return integer && integer.getWidth() == 8;
}

/// 8-bit codes that an operand is made of, by one zero point and for filters scales of outputs.
struct Codes {
  Value data, zero, scale;          ///< zero and scale may be null
  SmallVector<TransposeOp> behind; ///< transposes of the numbers, outermost first
};

std::optional<HostTensor> numbersOf(Value v) {
  auto constant = v.getDefiningOp<ConstantOp>();
  if (!constant || !cast<TensorType>(v.getType()).hasStaticShape())
    return std::nullopt;
  auto host = hostTensorOf(constant.getValue(), constant.getType(), v.getContext());
  if (!host.ok())
    return std::nullopt;
  return std::move(*host);
}

class ConvRewriter {
public:
  ConvRewriter(ModuleOp module, const Target &target) : transposed(module), target(target) {}

  void rewrite(ConvOp op) {
    Codes x, w;
    if (!match(op.getX(), x))
      return; // none of codes
    const ConvOfCodes how = form(op);
    if (x.scale && how == ConvOfCodes::Images)
      return rewriteGroups(op, x);
    if (!match(op.getW(), w))
      return;
    std::string why = reasonToKeep(op, x, w, how);
    std::vector<int8_t> filters;
    if (why.empty())
      why = filtersOf(w, filters);
    if (!why.empty()) {
      missedRemark(op->getLoc(), "QuantizedConv") << ("8-bit operands are dequantized before the convolution: " + why);
      return;
    }
    passedRemark(op->getLoc(), "QuantizedConv") << "8-bit operands are convolved as they are";
    replace(op, x, w, filters);
  }

private:
  static bool match(Value v, Codes &found) {
    while (auto transpose = v.getDefiningOp<TransposeOp>()) {
      found.behind.push_back(transpose);
      v = transpose.getX();
    }
    auto op = v.getDefiningOp<DequantizeOp>();
    if (!op || !isInteger8(elementTypeOf(op.getData())) || !op.getBlock().empty() || op.getCodebook() ||
        op.getOuter() || dimsOf(op.getData()) != dimsOf(op.getY()))
      return false;
    found.data = op.getData();
    found.zero = op.getZero();
    found.scale = op.getScale();
    return true;
  }

  /// How the target convolves codes; of filters whose sizes are not known not at all.
  ConvOfCodes form(ConvOp op) const {
    SmallVector<int64_t> w;
    for (const DimExpr &d : dimsOf(op.getW()))
      w.push_back(d.constant().value_or(0));
    int64_t group = op.getGroup();
    if (llvm::any_of(w, [](int64_t d) { return d < 1; }) || op.getLayout() != ConvLayout::ChannelsLast)
      return ConvOfCodes::No;
    return convOfCodes(target, {ArrayRef(w).drop_front(2), op.getStrides(), op.getPads(), op.getDilations(), group, w[1],
                                w[0] / group});
  }

  void rewriteGroups(ConvOp op, const Codes &x) {
    std::string why;
    if (!elementTypeOf(op.getX()).isF32() || !elementTypeOf(x.scale).isF32())
      why = "the numbers are not f32";
    else if (!isNumber(x.scale) || !numbersOf(x.scale) || (x.zero && !isNumber(x.zero)))
      why = "scales or zero points differ within images, or are known in a run only";
    else if (!op.getW().getDefiningOp<ConstantOp>() && !op.getW().getDefiningOp<DequantizeOp>())
      why = "the filters are no weight";
    if (!why.empty()) {
      missedRemark(op->getLoc(), "QuantizedConv") << ("images are dequantized before the convolution: " + why);
      return;
    }
    OpBuilder b(op);
    Location loc = op.getLoc();
    Type f32 = b.getF32Type();
    Value codes = inOrder(b, loc, x), scale = x.scale, zero = x.zero;
    auto number = [&](Value v) -> Value {
      return dimsOf(v).empty() ? v : Value(ReshapeOp::create(b, loc, tensorType(elementTypeOf(v), ArrayRef<int64_t>()), v));
    };
    codes = DequantizeOp::create(b, loc, withElementType(codes.getType(), f32), codes, Value(),
                                 zero ? number(zero) : Value(), Value(), Value(), ArrayRef<int64_t>());
    op.getXMutable().assign(codes);
    op.getWMutable().assign(MulOp::create(b, loc, op.getW(), number(scale)));
    passedRemark(loc, "QuantizedConv") << "images are read as 8-bit codes";
  }

  /// The codes in the order of dimensions that the convolution reads.
  static Value inOrder(OpBuilder &b, Location loc, const Codes &x) {
    Value codes = x.data;
    for (TransposeOp transpose : llvm::reverse(x.behind))
      codes = TransposeOp::create(b, loc, codes, transpose.getPerm());
    return codes;
  }

  static bool isNumber(Value v) { return numElements(v.getType()) == DimExpr(1); }
  /// One number, or one an output.
  static bool isOfOutputs(Value v, Value filters) {
    if (isNumber(v))
      return true;
    std::vector<DimExpr> dims = dimsOf(v), all = dimsOf(filters);
    return dims.size() == all.size() && dims[0] == all[0] &&
           llvm::all_of(ArrayRef(dims).drop_front(), [](const DimExpr &d) { return d == DimExpr(1); });
  }

  /// Empty where the kernels of integers take the convolution and are faster than those of f32.
  std::string reasonToKeep(ConvOp op, const Codes &x, const Codes &w, ConvOfCodes how) const {
    Type result = elementTypeOf(op.getY());
    const bool real = result.isF32() || (target.isCuda() && (result.isF16() || result.isBF16()));
    if (!real && !result.isInteger(32))
      return "the result is neither a float that the target computes with nor i32";
    if (bool(x.scale) != real || bool(w.scale) != real)
      return "scales do not fit to the result";
    if (!w.behind.empty() || op.getLayout() != ConvLayout::ChannelsLast)
      return "filters or images have another order";
    if ((x.scale && !isNumber(x.scale)) || (x.zero && !isNumber(x.zero)) || (w.scale && !isOfOutputs(w.scale, w.data)) ||
        (w.zero && !isOfOutputs(w.zero, w.data)))
      return "scales or zero points differ within images, or within the filters of an output";
    if (x.zero && !elementTypeOf(x.zero).isInteger(32)) {
      auto zero = numbersOf(x.zero);
      if (!zero)
        return "the zero point of the images is known in a run only";
      double v = zero->dtype == DType::F32 ? zero->real(0) : -1;
      if (v != std::floor(v) || v < -128 || v > 255)
        return "the zero point of the images is no code";
    }
    if (op.getGroup() != 1)
      return "channels are in groups";
    if (how != ConvOfCodes::Integers && target.isCuda())
      return "the channels of a pixel are no whole pieces of 16 bytes, or the window exceeds what TMA takes";
    if (how != ConvOfCodes::Integers)
      return "filters have no known sizes, columns of the window lie apart, or there are more than three dimensions";
    std::vector<DimExpr> filters = dimsOf(w.data);
    int64_t depth = 1;
    for (const DimExpr &d : ArrayRef(filters).drop_front())
      depth *= *d.constant();
    constexpr int64_t kLargest = 255 * 128;
    if (depth > INT32_MAX / kLargest)
      return "sums over " + std::to_string(depth) + " elements might not fit into 32 bits";
    return {};
  }

  /// Codes less their zero points as signed bytes; else why they are none.
  std::string filtersOf(const Codes &w, std::vector<int8_t> &filters) {
    std::optional<std::vector<std::byte>> bytes = transposed.bytesOf(w.data);
    if (!bytes)
      return "the filters are no weight, which could be packed";
    std::optional<HostTensor> zeros;
    if (w.zero && !(zeros = numbersOf(w.zero)))
      return "the zero points of the filters are known in a run only";
    bool isUnsigned = elementTypeOf(w.data).isUnsignedInteger();
    size_t outputs = cast<TensorType>(w.data.getType()).getDimSize(0), each = bytes->size() / outputs;
    for (size_t i = 0; i < bytes->size(); ++i) {
      auto code = std::to_integer<uint8_t>((*bytes)[i]);
      double v = isUnsigned ? double(code) : double(int8_t(code));
      if (zeros) {
        int64_t at = zeros->count() > 1 ? int64_t(i / each) : 0;
        v -= isFloat(zeros->dtype) ? zeros->real(at) : double(zeros->integer(at));
      }
      if (v != std::floor(v) || v < -128 || v > 127)
        return "filters less their zero points do not fit into signed bytes";
      filters.push_back(int8_t(v));
    }
    return {};
  }

  /// Images with channels last whose padding is there, made of zero points.
  static Value filledUp(OpBuilder &b, Location loc, Value codes, Value zero, ArrayRef<int64_t> pads) {
    if (llvm::all_of(pads, [](int64_t p) { return p == 0; }))
      return codes;
    std::vector<DimExpr> dims = dimsOf(codes);
    const size_t spatial = pads.size() / 2;
    SmallVector<Attribute> low(dims.size(), DimAttr::get(b.getContext(), DimExpr(0))), high = low;
    for (size_t d = 0; d < spatial; ++d) {
      low[1 + d] = DimAttr::get(b.getContext(), DimExpr(pads[d]));
      high[1 + d] = DimAttr::get(b.getContext(), DimExpr(pads[spatial + d]));
      dims[1 + d] = dims[1 + d] + DimExpr(pads[d] + pads[spatial + d]);
    }
    Type element = elementTypeOf(codes);
    Value fill = CastOp::create(b, loc, tensorType(element, ArrayRef<int64_t>()), zero, true);
    return PadOp::create(b, loc, tensorType(element, dims), codes, fill, b.getArrayAttr(low),
                         b.getArrayAttr(high), PadMode::Constant);
  }

  /// A sum for each filter, which is i32.
  Value sumsOfFilters(OpBuilder &b, Location loc, ArrayRef<int8_t> filters, const DimExpr &outputs) {
    std::vector<int32_t> sums(*outputs.constant());
    for (size_t i = 0; i < filters.size(); ++i)
      sums[i / (filters.size() / sums.size())] += filters[i];
    return ConstantOp::create(b, loc,
                              constantAttr(tensorType(b.getI32Type(), ArrayRef(outputs)), std::as_bytes(std::span(sums)),
                                           transposed.weights));
  }

  void replace(ConvOp op, const Codes &x, const Codes &w, ArrayRef<int8_t> filters) {
    OpBuilder b(op);
    Location loc = op.getLoc();
    Type i32 = b.getI32Type(), f32 = b.getF32Type(), result = elementTypeOf(op.getY());
    SmallVector<int64_t> pads(op.getPads());
    Value codes = inOrder(b, loc, x), excess; // of each sum
    auto known = x.zero ? numbersOf(x.zero) : std::nullopt;
    bool none = known && (isFloat(known->dtype) ? known->real(0) == 0 : known->integer(0) == 0);
    if (x.zero && !none) {
      Value zero = x.zero;
      if (!elementTypeOf(zero).isInteger(32))
        zero = CastOp::create(b, loc, tensorType(i32, dimsOf(zero)), zero, true);
      if (!dimsOf(zero).empty())
        zero = ReshapeOp::create(b, loc, tensorType(i32, ArrayRef<int64_t>()), zero);
      if (target.isCuda()) {
        codes = filledUp(b, loc, codes, zero, pads);
        pads.assign(pads.size(), 0);
        excess = MulOp::create(b, loc, sumsOfFilters(b, loc, filters, dimOf(w.data, 0)), zero);
      } else {
        codes = DequantizeOp::create(b, loc, withElementType(codes.getType(), i32), codes, Value(), zero, Value(),
                                     Value(), ArrayRef<int64_t>());
      }
    }
    Type signedByte = b.getIntegerType(8);
    Value weight = w.data;
    if (w.zero || elementTypeOf(w.data) != signedByte)
      weight = ConstantOp::create(b, w.data.getLoc(),
                                  constantAttr(tensorType(signedByte, dimsOf(w.data)),
                                               std::as_bytes(std::span(filters.data(), filters.size())),
                                               transposed.weights));
    Value y = ConvOp::create(b, loc, withElementType(op.getY().getType(), i32), codes, weight, op.getStrides(),
                             pads, op.getDilations(), op.getGroup(), op.getLayout());
    if (excess)
      y = SubOp::create(b, loc, y, excess);
    if (x.scale) {
      auto one = [&](Value scale) -> Value { // a number an output, along the last dimension
        if (elementTypeOf(scale) != f32)
          scale = CastOp::create(b, loc, tensorType(f32, dimsOf(scale)), scale, true);
        std::vector<DimExpr> dims;
        if (!isNumber(scale))
          dims.push_back(dimsOf(scale)[0]);
        return dimsOf(scale) == dims ? scale : Value(ReshapeOp::create(b, loc, tensorType(f32, dims), scale));
      };
      y = CastOp::create(b, loc, withElementType(y.getType(), f32), y, true);
      y = MulOp::create(b, loc, y, MulOp::create(b, loc, one(x.scale), one(w.scale)));
      if (result != f32)
        y = CastOp::create(b, loc, withElementType(y.getType(), result), y, true);
    }
    op.getY().replaceAllUsesWith(y);
    op.erase();
  }

  TransposeWeights transposed;
  const Target &target;
};

} // namespace

void rewriteQuantizedConvs(ModuleOp module, const Target &target) {
  if (target.isCuda() ? !target.hasWgmma() : !target.hasPairProducts())
    return;
  SmallVector<ConvOp> convs;
  module.walk([&](ConvOp op) { convs.push_back(op); });
  ConvRewriter codes(module, target);
  for (ConvOp op : convs)
    codes.rewrite(op);
}

} // namespace lathe
