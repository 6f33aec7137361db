//===- SkeletonInterpolate.cpp - weighted sums of neighbours along two axes -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills interpolate.cuh: places and weights of each tap, what they are of, and what follows the sum.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

#include "lathe/ir/Interpolation.h"

using namespace mlir;

namespace lathe::codegen {

/// "NAME(int tap, i64 at)", which calls the method of each tap; taps are constants where loops are unrolled.
static void linesOfTaps(Holes &holes, StringRef type, const std::string &name, size_t taps) {
  std::string text;
  for (size_t t = 0; t < taps; ++t)
    text += (t + 1 < taps ? "tap == " + std::to_string(t) + " ? " : std::string()) + name + std::to_string(t) + "(at)" +
            (t + 1 < taps ? " : " : "");
  holes.line("LATHE_METHOD " + Twine(type) + " " + name + "(int tap, i64 at) const { return " + text + "; }");
}

/// `size`: of what the places are in.
static void taps(Holes &holes, const WeightedNeighbours &axis, const DimExpr &size, const std::string &name) {
  MLIRContext *context = axis.places.front().getContext();
  Type i64 = IntegerType::get(context, 64), f32 = Float32Type::get(context);
  for (auto [t, both] : llvm::enumerate(llvm::zip(axis.places, axis.weights))) {
    auto [places, weights] = both;
    holes.method(name + "At" + std::to_string(t), {"at"}, i64, 1, [&, places = places](Evaluator &e, ValueRange p) {
      Value place = e.cast(e.eval(places, {Index(p[0])}), elementTypeOf(places), i64, false);
      return e.indexToValue(e.checkedIndex(place, e.ix.dim(size)), i64);
    });
    holes.method(name + "Weight" + std::to_string(t), {"at"}, f32, 1, [&, weights = weights](Evaluator &e, ValueRange p) {
      const std::vector<DimExpr> dims = dimsOf(weights);
      Indices at(dims.size(), Index(e.ix.cst(0)));
      for (auto [d, size] : llvm::enumerate(dims))
        if (size != DimExpr(1))
          at[d] = Index(p[0]);
      return e.eval(weights, at);
    });
  }
  linesOfTaps(holes, "i64", name + "At", axis.taps());
  linesOfTaps(holes, "f32", name + "Weight", axis.taps());
}

FailureOr<std::string> interpolationText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  const std::optional<Interpolation> found = interpolationOf(*kernel.body);
  if (!found)
    return mlir::emitError(kernel.body->getTerminator()->getLoc())
           << "CUDA text: configuration '" << kernel.spec->config << "' needs weighted sums along two axes";
  const std::vector<DimExpr> dims = dimsOf(found->sum), outer = found->sizesOf(found->outer), inner = found->sizesOf(found->inner);
  Type f32 = Float32Type::get(found->sum.getContext());
  auto place = [&](Evaluator &e, ValueRange p) {
    Indices at(dims.size());
    for (auto [d, i] : llvm::zip(found->outer, delinearize(e, Index(p[0]), outer)))
      at[d] = i;
    at[found->rows.axis] = Index(p[1]);
    at[found->columns.axis] = Index(p[2]);
    for (auto [d, i] : llvm::zip(found->inner, delinearize(e, Index(p[3]), inner)))
      at[d] = i;
    return at;
  };
  holes.line("static constexpr int TAPS_Y = " + Twine(found->rows.taps()) + ", TAPS_X = " + Twine(found->columns.taps()) + ";");
  taps(holes, found->rows, dimOf(found->source, found->rows.axis), "row");
  taps(holes, found->columns, dimOf(found->source, found->columns.axis), "column");
  holes.method("element", {"plane", "y", "x", "c"}, f32, 1,
               [&](Evaluator &e, ValueRange p) { return e.eval(found->source, place(e, p)); });
  holes.method("write", {"plane", "y", "x", "c", "sum"}, Type(), 1, [&](Evaluator &e, ValueRange p) {
    Holes::storeResult(e, found->sum, place(e, p), p[4]);
    return Value();
  }, f32);
  MemoryText text;
  text.outer = holes.dim(product(outer));
  text.rows = holes.dim(dims[found->rows.axis]);
  text.columns = holes.dim(dims[found->columns.axis]);
  text.wanted = holes.dim(product(inner));
  return holes.text(config.form->memory.text(config, text));
}

} // namespace lathe::codegen
