//===- SkeletonFourier.cpp - Fourier transforms of rows ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills fourier.cuh: the elements of rows, which producers compute where they are read (frames of a signal times a
// window), and what follows from real and imaginary parts.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

#include "lathe/ir/Fourier.h"

using namespace mlir;

namespace lathe::codegen {

FailureOr<std::string> fourierText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  DftOp op = anchorOf<DftOp>(kernel);
  if (!op)
    return failure();
  const std::vector<DimExpr> dims = dimsOf(op.getX()), results = dimsOf(op.getY());
  const std::vector<DimExpr> outer(dims.begin(), dims.end() - 2);
  const size_t axis = outer.size();
  const bool inverse = op.getInverse(), half = op.fromHalf();
  const int64_t length = op.getLength(), needed = half ? length / 2 + 1 : length, bins = *results[axis].constant();
  Type real = elementTypeOf(op.getX());
  const char *input = half ? "HALF" : op.isComplex() ? "COMPLEX" : "REAL";
  holes.line("typedef " + Holes::typeText(real) + " Real;");
  holes.line("static constexpr int LENGTH = " + Twine(length) + ", BINS = " + Twine(bins) +
             ", USED = " + Twine(std::min(*dims[axis].constant(), needed)) + ";");
  holes.line(Twine("static constexpr FourierInput INPUT = FourierInput::") + input + ";");
  holes.line(Twine("static constexpr bool INVERSE = ") + (inverse ? "true;" : "false;"));
  auto place = [&](Evaluator &e, Value row, const Index &at, const Index &part) {
    Indices idx = delinearize(e, Index(row), outer);
    idx.push_back(at);
    idx.push_back(part);
    return idx;
  };
  for (int64_t part = 0; part < *dims.back().constant(); ++part)
    holes.method(part ? "imaginaryPart" : "realPart", {"row", "t"}, real, 1, [&](Evaluator &e, ValueRange p) {
      return e.eval(op.getX(), place(e, p[0], Index(p[1]), Index(e.ix.cst(part))));
    });
  holes.line(dims.back() == DimExpr(2)
                 ? "LATHE_METHOD Real element(i64 row, i64 t, int part) const { return part ? imaginaryPart(row, t) : realPart(row, t); }"
                 : "LATHE_METHOD Real element(i64 row, i64 t, int part) const { return part ? (Real)0 : realPart(row, t); }");
  for (int64_t part : {0, 1})
    holes.method(part ? "rootSine" : "rootCosine", {"j"}, real, 1, [&](Evaluator &e, ValueRange p) {
      Value v = e.eval(op.getRoots(), {Index(p[0]), Index(e.ix.cst(part))});
      return e.cast(v, elementTypeOf(op.getRoots()), real, false);
    });
  holes.line("LATHE_METHOD Vec<Real, 2> root(i64 j) const { return {{rootCosine(j), rootSine(j)}}; }");
  // Two neighbours in memory: both parts, or two elements of a real row.
  const bool pairs = !half || length % 2 == 0;
  holes.method("write", {"row", "k", "value"}, Type(), pairs ? 2 : 1, [&](Evaluator &e, ValueRange p) {
    Index zero(e.ix.cst(0));
    Indices at = !half   ? place(e, p[0], Index(p[1]), Index(e.ix.cst(0), 1))
                 : pairs ? place(e, p[0], Index(e.ix.mul(p[1], 2), 1), zero)
                         : place(e, p[0], Index(p[1]), zero);
    Holes::storeResult(e, op.getY(), at, p[2]);
    return Value();
  }, real);
  holes.line(Twine("LATHE_METHOD void store(i64 row, i64 k, const Vec<Real, 2> &y) const { write(row, k, ") + (pairs ? "y" : "y.v[0]") + "); }");
  MemoryText text;
  text.rows = holes.dim(product(outer));
  return holes.text(config.form->memory.text(config, text));
}

} // namespace lathe::codegen
