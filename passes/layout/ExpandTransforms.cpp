//===- ExpandTransforms.cpp - Fourier transforms as products --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A GPU has a kernel of fast transforms (codegen/device/fourier.cuh). Everywhere else, and where a length has large prime
// factors, a transform is a product with constant matrices of cosines and sines. Real rows of an even length are folded
// in the middle first, as cosines are even and sines odd: half the products.
//
//   %y = dft %x, %roots : ..x8x1 -> ..x8x2   =>   %c = matmul (x[t] + x[-t]), cosines;  %s = matmul (x[t] - x[-t]), sines
//                                                 %y = concat %c, %s
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/codegen/Target.h"
#include "lathe/ir/Fourier.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/support/FastTransform.h"

#include <cmath>

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_EXPANDTRANSFORMSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

class Expansion {
public:
  explicit Expansion(DftOp op)
      : b(op), loc(op.getLoc()), op(op), length(op.getLength()), inverse(op.getInverse()), half(op.fromHalf()),
        element(elementTypeOf(op.getX())) {}

  Value result() {
    std::vector<DimExpr> dims = dimsOf(op.getX());
    axis = int64_t(dims.size()) - 2;
    const int64_t needed = half ? length / 2 + 1 : length;
    bins = *dimOf(op.getY(), axis).constant();
    rows = std::min(*dims[axis].constant(), needed); // of what lacks no products are made
    Value x = dims[axis] == DimExpr(rows) ? op.getX() : slice(op.getX(), axis, 0, rows);
    const bool real = dims.back() == DimExpr(1);
    if (real && rows == length && !half && length % 2 == 0 && length > 2)
      return folded(part(x, 0));
    Value re = part(x, 0), im = real ? Value() : part(x, 1);
    Value cosines = waves([](double angle) { return std::cos(angle); }), sines = waves([](double angle) { return std::sin(angle); });
    Value left = times(re, cosines);
    if (im)
      left = SubOp::create(b, loc, left, times(im, sines));
    if (half)
      return withPart(left);
    Value right = times(re, sines);
    if (im)
      right = AddOp::create(b, loc, right, times(im, cosines));
    return beside(left, right);
  }

private:
  double scale(int64_t t) const {
    const bool twice = half && t != 0 && 2 * t != length; // its mirror image
    return (inverse ? 1.0 / double(length) : 1.0) * (twice ? 2 : 1);
  }
  double angle(int64_t t, int64_t k) const { return 2 * M_PI * double(t * k % length) / double(length) * (inverse ? 1 : -1); }
  /// [rows, bins]
  Value waves(llvm::function_ref<double(double)> wave) {
    return table(rows, [&](int64_t t, int64_t k) { return wave(angle(t, k)) * scale(t); });
  }
  Value table(int64_t height, llvm::function_ref<double(int64_t, int64_t)> at) {
    const bool wide = element.isF64();
    std::vector<double> values;
    for (int64_t t = 0; t < height; ++t)
      for (int64_t k = 0; k < bins; ++k)
        values.push_back(at(t, k));
    std::vector<float> narrow(values.begin(), values.end());
    auto type = RankedTensorType::get({height, bins}, element);
    const auto bytes = wide ? std::as_bytes(std::span<const double>(values)) : std::as_bytes(std::span<const float>(narrow));
    return ConstantOp::create(b, loc, constantAttr(type, bytes, b.getContext()->getOrLoadDialect<LatheDialect>()->weights()));
  }

  /// Rows that are folded: of x[t] + x[-t] and x[t] - x[-t], t from 0 to length / 2.
  Value folded(Value x) {
    const int64_t middle = length / 2;
    SmallVector<int64_t> mirrored;
    for (int64_t t = 0; t <= middle; ++t)
      mirrored.push_back((length - t) % length);
    auto places = RankedTensorType::get({middle + 1}, b.getI64Type());
    Value there = slice(x, axis, 0, middle + 1);
    Value at = ConstantOp::create(b, loc, DenseElementsAttr::get(places, ArrayRef(mirrored)));
    Value back = GatherOp::create(b, loc, there.getType(), x, at, uint64_t(axis));
    auto alone = [&](int64_t t) { return t == 0 || t == middle; }; // twice in the sum, not at all in the difference
    Value cosines = table(middle + 1, [&](int64_t t, int64_t k) { return std::cos(angle(t, k)) * scale(t) * (alone(t) ? 0.5 : 1); });
    Value sines = table(middle + 1, [&](int64_t t, int64_t k) { return alone(t) ? 0.0 : std::sin(angle(t, k)) * scale(t); });
    return beside(times(AddOp::create(b, loc, there, back), cosines), times(SubOp::create(b, loc, there, back), sines));
  }

  Value slice(Value x, int64_t d, int64_t start, int64_t size) {
    std::vector<DimExpr> dims = dimsOf(x);
    dims[d] = size;
    SmallVector<Attribute> starts(dims.size(), DimAttr::get(b.getContext(), DimExpr(0)));
    starts[d] = DimAttr::get(b.getContext(), DimExpr(start));
    return SliceOp::create(b, loc, tensorType(element, dims), x, b.getArrayAttr(starts),
                           b.getDenseI64ArrayAttr(SmallVector<int64_t>(dims.size(), 1)));
  }
  Value reshape(Value x, const std::vector<DimExpr> &dims) { return ReshapeOp::create(b, loc, tensorType(element, dims), x); }
  /// Real or imaginary parts, without the dimension of them.
  Value part(Value x, int64_t which) {
    std::vector<DimExpr> dims = dimsOf(x);
    const bool one = dims.back() == DimExpr(1);
    dims.pop_back();
    if (auto added = x.getDefiningOp<ReshapeOp>(); one && added && dimsOf(added.getX()) == dims)
      return added.getX();
    return reshape(one ? x : slice(x, int64_t(dims.size()), which, 1), dims);
  }
  Value withPart(Value x) {
    std::vector<DimExpr> dims = dimsOf(x);
    dims.push_back(1);
    return reshape(x, dims);
  }
  Value beside(Value real, Value imaginary) {
    return ConcatOp::create(b, loc, ValueRange{withPart(real), withPart(imaginary)}, uint64_t(axis + 1));
  }
  /// Rows times a matrix: a vector is one row.
  Value times(Value x, Value matrix) {
    std::vector<DimExpr> dims = dimsOf(x);
    const bool vector = dims.size() == 1;
    if (vector)
      x = reshape(x, {DimExpr(1), dims[0]});
    Value y = MatmulOp::create(b, loc, x, matrix, false, false);
    return vector ? reshape(y, {DimExpr(bins)}) : y;
  }

  OpBuilder b;
  Location loc;
  DftOp op;
  const int64_t length;
  const bool inverse, half;
  Type element;
  int64_t axis = 0, bins = 0, rows = 0;
};

struct ExpandTransformsPass : impl::ExpandTransformsPassBase<ExpandTransformsPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      module.walk([&](DftOp op) {
        const int64_t bytes = elementTypeOf(op.getX()).getIntOrFloatBitWidth() / 8;
        if (target->isCuda() && hasFastTransform(op.getLength(), op.isComplex(), bytes, target->sharedPerBlock))
          return;
        op.getY().replaceAllUsesWith(Expansion(op).result());
        op.erase();
      });
    }
  }
};

} // namespace

} // namespace lathe
