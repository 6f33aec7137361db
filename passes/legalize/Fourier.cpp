//===- Fourier.cpp - discrete Fourier transforms ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// DFT and STFT, over frames that are gathered from the signal, are lathe.dft. Where only the run knows a length they are
// products with matrices of cosines and sines that are computed.
//
//===----------------------------------------------------------------------===//
#include "Formulas.h"

#include "lathe/ir/Fourier.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {
namespace {

/// [length, bins * 2] in f64: cos and -sin of 2 pi t k / length beside each other; with `rotated` what an
/// imaginary part is multiplied by, sin and cos.
Value waves(Emitter &e, const DimExpr &length, const DimExpr &bins, bool rotated) {
  Type wide = e.b.getF64Type(), index = e.b.getI64Type();
  std::optional<int64_t> size = length.constant(), count = bins.constant();
  if (size && count) {
    std::vector<double> table;
    for (int64_t t = 0; t < *size; ++t)
      for (int64_t k = 0; k < *count; ++k) {
        double angle = 2 * M_PI * double(t * k % *size) / double(*size);
        table.push_back(rotated ? std::sin(angle) : std::cos(angle));
        table.push_back(rotated ? std::cos(angle) : -std::sin(angle));
      }
    return e.floats(table, {*size, 2 * *count}, wide);
  }
  Value t = e.iota({length, 1}, 0, index), k = e.iota({1, bins}, 1, index);
  Value whole = e.dimScalar(length, index);
  Value turn = e.cast(e.infer<ModOp>(e.mul(t, k), whole), wide);
  Value angle = e.mul(e.div(turn, e.cast(whole, wide)), 2 * M_PI);
  Value cosine = e.unsqueeze(e.unary<CosOp>(angle), {2}), sine = e.unsqueeze(e.unary<SinOp>(angle), {2});
  Value both = rotated ? e.concat({sine, cosine}, 2) : e.concat({cosine, e.unary<NegOp>(sine)}, 2);
  return e.reshape(both, {length, DimExpr(2) * bins});
}

/// The transform of x along its last dimension but one; the last has real and imaginary parts. In f64: sums of waves that
/// cancel would keep the rounding of f32.
Value transformOf(Emitter &e, Value x, int64_t length, bool inverse, bool oneSided) {
  std::vector<double> roots;
  for (int64_t j = 0; j < length; ++j) {
    const double angle = 2 * M_PI * double(j) / double(length);
    roots.push_back(std::cos(angle));
    roots.push_back(-std::sin(angle));
  }
  Type wide = e.b.getF64Type();
  return e.infer<DftOp>(e.cast(x, wide), e.floats(roots, {length, 2}, wide), uint64_t(length), inverse, oneSided);
}

/// Part i of x, whose last dimension has 1 or 2, as `parts` says: that is dropped. Where only the run knows `parts`, the
/// second of one part is 0 times the first.
Value partOf(Emitter &e, Value x, const DimExpr &parts, int64_t i) {
  if (!x)
    return {};
  const int64_t last = rankOf(x) - 1;
  Dims dims = dimsOf(x);
  dims.pop_back();
  const DimExpr at = i == 0 ? DimExpr(0) : parts - DimExpr(1);
  Value part = e.reshape(e.sliceAxis(x, last, at, 1), dims);
  return i == 0 || at.isConstant() ? part : e.mul(part, e.dimScalar(at, elementTypeOf(x)));
}

/// The number of parts that the last dimension of x has, 1 or 2; what is not known the run checks. None after a report.
std::optional<DimExpr> partsOf(Node &n, Value x) {
  DimExpr parts = dimOf(x, rankOf(x) - 1);
  if (std::optional<int64_t> known = parts.constant(); known && (*known < 1 || *known > 2)) {
    (void)n.invalid("shape", "the last dimension of a signal has 1 or 2 elements, not " + llvm::Twine(*known));
    return std::nullopt;
  }
  return parts.isConstant() ? parts : n.derive("parts", parts, {1, 2});
}

/// The transform of `length` along an axis, where the run knows that or the size of the axis. The inverse is the
/// transform of the conjugate, conjugated and divided by the length; of half a spectrum, real, with what has a mirror
/// image counted twice.
Value symbolicDft(Emitter &e, Value x, int64_t axis, const DimExpr &parts, bool inverse, bool oneSided, const DimExpr &length) {
  const int64_t rank = rankOf(x);
  const bool fromHalf = inverse && oneSided;
  const DimExpr half = DimExpr::floorDiv(length, 2) + DimExpr(1), taken = fromHalf ? half : length,
                bins = oneSided && !inverse ? half : length;
  Type element = elementTypeOf(x), wide = e.b.getF64Type(), index = e.b.getI64Type();
  if (DimExpr size = dimOf(x, axis); size != taken) { // cut, or filled up with zeros
    const DimExpr used = e.minOf(size, taken);
    Dims low(rank, DimExpr(0)), high = low;
    high[axis] = taken - used;
    x = e.pad(e.sliceAxis(x, axis, 0, used), e.like(x, 0), low, high, PadMode::Constant);
  }
  if (!x)
    return {};
  Ints last, back;
  for (int64_t d = 0; d + 1 < rank; ++d)
    if (d != axis)
      last.push_back(d);
  last.push_back(axis);
  for (int64_t d = 0; d + 1 < rank; ++d)
    back.push_back(llvm::find(last, d) - last.begin());
  back.push_back(rank - 1);
  Value weights;
  if (fromHalf) {
    Value t = e.iota({taken}, 0, index);
    Value alone = e.infer<OrOp>(e.compare(t, 0.0, Predicate::Eq),
                                e.compare(e.mul(t, 2.0), e.dimScalar(length, index), Predicate::Eq));
    weights = e.select(alone, e.scalar(1, wide), e.scalar(2, wide));
  }
  auto times = [&](int64_t i) {
    Value v = e.cast(e.transpose(partOf(e, x, parts, i), last), wide);
    if (weights)
      v = e.mul(v, weights);
    Value matrix = e.sliceAxis(waves(e, length, bins, i == 1), 0, 0, taken);
    return e.matmul(v && rankOf(v) == 1 ? e.unsqueeze(v, {0}) : v, matrix);
  };
  Value y = times(0);
  if (parts != DimExpr(1))
    y = inverse ? e.sub(y, times(1)) : e.add(y, times(1));
  Dims to;
  for (int64_t d : last)
    to.push_back(d == axis ? bins : dimOf(x, d));
  to.push_back(2);
  y = e.reshape(y, to);
  if (fromHalf)
    y = e.div(e.sliceAxis(y, rank - 1, 0, 1), e.dimScalar(length, wide));
  else if (inverse)
    y = e.div(e.mul(y, e.floats({1, -1}, {2}, wide)), e.dimScalar(length, wide));
  return e.cast(e.transpose(y, back), element);
}

/// The transform along an axis that the run names. Without a length it is as long as the axis.
LogicalResult dftAlong(Node &n, Value x, const DimExpr &axis, bool inverse, bool oneSided) {
  Emitter &e = n.e;
  Dims dims = dimsOf(x);
  RunTimeAxis at = runTimeAxis(n, axis, dims, 1);
  std::optional<DimExpr> parts = partsOf(n, x);
  std::optional<DimExpr> given = n.has(1) ? n.whole(1) : std::nullopt;
  if (!parts)
    return failure();
  if (n.has(1) && !given)
    return n.unknown({1}, "a length");
  DimExpr length = given ? n.derive("length", *given, {1, DimRange::kUnbounded})
                         : inverse && oneSided ? (at.along - DimExpr(1)) * DimExpr(2) : at.along;
  Value y = symbolicDft(e, e.reshape(x, {at.before, at.along, at.after, *parts}), 1, *parts, inverse, oneSided, length);
  if (!y)
    return failure();
  for (auto [dim, named] : llvm::zip(dims, at.named))
    dim = dim + named * (dimOf(y, 1) - at.along);
  dims.back() = dimOf(y, 3);
  return n.done(e.reshape(y, dims));
}

/// Real and imaginary parts are the last dimension.
LogicalResult dft(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 2)
    return n.invalid("shape", "DFT needs rank 2 or more");
  int64_t rank = rankOf(x), given = n.opset >= 20 ? -2 : n.intAttr("axis", 1);
  if (n.opset >= 20 && n.has(2)) {
    std::optional<Ints> operand = n.ints(2);
    if (!operand)
      if (std::optional<HostValue> axis = n.bound(2, std::nullopt); axis && axis->values.size() == 1)
        return dftAlong(n, x, axis->values[0], n.intAttr("inverse", 0), n.intAttr("onesided", 0));
    if (!operand || operand->size() != 1)
      return n.unknown({2}, "an axis");
    given = (*operand)[0];
  }
  std::optional<int64_t> axis = n.axis(given, rank);
  if (!axis)
    return failure();
  if (*axis == rank - 1)
    return n.invalid("attribute", "the axis of a DFT is that of its parts, the last one");
  std::optional<DimExpr> open = partsOf(n, x);
  if (!open)
    return failure();
  std::optional<int64_t> size = dimOf(x, *axis).constant(), parts = open->constant();
  // An inverse one-sided transform gives real values from half a spectrum.
  bool inverse = n.intAttr("inverse", 0), oneSided = n.intAttr("onesided", 0),
       fromHalf = inverse && oneSided;
  DimExpr wanted = fromHalf ? (dimOf(x, *axis) - DimExpr(1)) * DimExpr(2) : dimOf(x, *axis);
  if (n.has(1)) {
    std::optional<DimExpr> operand = n.whole(1);
    if (!operand)
      return n.unknown({1}, "a length");
    wanted = operand->isConstant() ? *operand : n.derive("length", *operand, {1, DimRange::kUnbounded});
  }
  if (!size || !parts || !wanted.isConstant())
    return n.done(symbolicDft(e, x, *axis, *open, inverse, oneSided, wanted));
  const int64_t length = *wanted.constant();
  if (length < 1 || length > 4096)
    return n.fail("shape", "a length of " + llvm::Twine(length), "lengths up to 4096");
  Ints last, back; // the axis goes behind all but the parts
  for (int64_t d = 0; d + 1 < rank; ++d)
    if (d != *axis)
      last.push_back(d);
  last.insert(last.end(), {*axis, rank - 1});
  for (int64_t d = 0; d < rank; ++d)
    back.push_back(llvm::find(last, d) - last.begin());
  Value y = transformOf(e, e.transpose(x, last), length, inverse, oneSided);
  return n.done(e.cast(e.transpose(y, back), elementTypeOf(x)));
}

/// The spectrum of each frame, [batch, frames, bins, 2]. A frame is as long as the window.
LogicalResult stft(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || (rankOf(x) != 2 && rankOf(x) != 3))
    return n.invalid("shape", "a signal is [batch, length], [batch, length, 1] or [batch, length, 2]");
  Type element = elementTypeOf(x), wide = e.b.getF64Type(), index = e.b.getI64Type();
  if (!isFloat(element))
    return n.invalid("dtype", "a signal of floats is needed");
  bool oneSided = n.intAttr("onesided", 1);
  std::optional<DimExpr> parts = rankOf(x) == 3 ? partsOf(n, x) : std::optional<DimExpr>(1);
  if (!parts)
    return failure();
  if (oneSided && *parts == DimExpr(2))
    return n.invalid("attribute", "the spectrum of a complex signal has two sides (onesided = 0)");
  if (oneSided && !parts->isConstant()) {
    n.demandZero("one_part", *parts - DimExpr(1));
    parts = 1;
  }
  std::optional<DimExpr> step = n.whole(1);
  if (!step)
    return n.unknown({1}, "a frame step");
  if (step->isConstant() && *step->constant() < 1)
    return n.invalid("shape", "a frame step of " + llvm::Twine(step->str()));
  if (!step->isConstant())
    step = n.derive("frame_step", *step, {1, DimRange::kUnbounded});
  Value window = n.has(2) ? n.in(2) : Value();
  if (n.has(2) && (!window || rankOf(window) != 1))
    return n.invalid("shape", "a window has rank 1");
  DimExpr length = window ? dimOf(window, 0) : dimOf(x, 1);
  if (n.has(3)) {
    std::optional<DimExpr> given = n.whole(3);
    if (!given)
      return n.unknown({3}, "a frame length");
    if (window && given->isConstant() && length.isConstant() && *given != length)
      return n.invalid("shape", "a window of " + llvm::Twine(length.str()) + " for frames of " + given->str());
    if (window && *given != length)
      n.demandZero("window", *given - length);
    if (!window)
      length = given->isConstant() ? *given
                                   : n.derive("frame_length", *given, {1, DimRange::kUnbounded});
  }
  DimExpr room = dimOf(x, 1) - length;
  if ((length.isConstant() && *length.constant() < 1) || (room.isConstant() && *room.constant() < 0))
    return n.invalid("shape", "frames of " + llvm::Twine(length.str()) + " in a signal of " +
                                  dimOf(x, 1).str());
  if (std::optional<int64_t> size = length.constant(); size && *size > 4096)
    return n.fail("shape", "frames of " + llvm::Twine(*size), "frames up to 4096");
  // Behind the last whole frame the rest of the signal is left out.
  DimExpr frames = n.derive("frames", DimExpr::floorDiv(room, *step) + DimExpr(1), {0, DimRange::kUnbounded});
  DimExpr bins = oneSided ? DimExpr::floorDiv(length, 2) + DimExpr(1) : length;
  Value begin = e.mul(e.iota({frames, 1}, 0, index), e.dimScalar(*step, index));
  // The elements of all frames at places of a frame, [1, places], in f64, as DFT.
  auto framed = [&](int64_t i, Value places) {
    Value signal = rankOf(x) == 3 ? partOf(e, x, *parts, i) : x;
    Value elements = e.cast(e.infer<GatherOp>(signal, e.add(begin, places), uint64_t(1)), wide);
    if (window)
      elements = e.mul(elements, e.cast(e.infer<GatherOp>(window, e.reshape(places, {dimOf(places, 1)}), uint64_t(0)), wide));
    return elements;
  };
  Value y, places = e.iota({1, length}, 1, index);
  if (std::optional<int64_t> size = length.constant(), count = parts->constant(); size && count) {
    Value real = e.unsqueeze(framed(0, places), {3});
    y = transformOf(e, *count == 1 ? real : e.concat({real, e.unsqueeze(framed(1, places), {3})}, 3), *size, false, oneSided);
  } else {
    y = e.matmul(framed(0, places), waves(e, length, bins, false));
    if (*parts != DimExpr(1))
      y = e.add(y, e.matmul(framed(1, places), waves(e, length, bins, true)));
  }
  return n.done(e.cast(e.reshape(y, {dimOf(x, 0), frames, bins, DimExpr(2)}), element));
}

/// [dft_length / 2 + 1, mel bins]: each column a triangle over three neighbouring edges, which lie at
/// equal steps of the mel scale, 2595 lg(1 + Hz / 700).
LogicalResult melWeights(Node &n) {
  Emitter &e = n.e;
  std::optional<DimExpr> count = n.whole(0), length = n.whole(1);
  if (!count || !length)
    return n.unknown({0, 1}, "a number of mel bins or a DFT length");
  Type wide = e.b.getF64Type(), index = e.b.getI64Type();
  Type element = elementFor(n.op->getContext(), n.intAttr("output_datatype", 1));
  if (!element)
    return n.fail("dtype", "an output_datatype that is no number", "numbers");
  DimExpr columns = n.derive("mel_bins", *count, {0, DimRange::kUnbounded});
  DimExpr rows = DimExpr::floorDiv(n.derive("dft_length", *length, {0, DimRange::kUnbounded}), 2) + DimExpr(1);
  auto scalar = [&](unsigned i) { return e.cast(e.reshape(n.in(i), {}), wide); };
  auto mel = [&](unsigned i) {
    return e.mul(e.unary<LogOp>(e.add(e.div(scalar(i), 700.0), 1.0)), 2595.0 / std::log(10.0));
  };
  Value low = mel(3), step = e.div(e.sub(mel(4), low), e.dimScalar(columns + DimExpr(2), wide));
  Value perHertz = e.div(e.dimScalar(*length + DimExpr(1), wide), scalar(2));
  // The row of the spectrum at which edge i + more lies.
  auto edge = [&](double more) {
    Value at = e.add(e.mul(e.add(e.iota({1, columns}, 1, wide), more), step), low);
    Value hertz = e.mul(e.add(e.infer<PowOp>(e.like(at, 10), e.div(at, 2595.0)), -1.0), 700.0);
    return e.unary<FloorOp>(e.mul(hertz, perHertz));
  };
  Value j = e.cast(e.iota({rows, 1}, 0, index), wide);
  Value left = edge(0), middle = edge(1), right = edge(2);
  Value rise = e.sub(middle, left), fall = e.sub(right, middle);
  Value flat = e.compare(rise, 0.0, Predicate::Eq);
  Value up = e.select(flat, e.like(j, 1), e.div(e.sub(j, left), e.select(flat, e.like(j, 1), rise)));
  Value down = e.div(e.sub(right, j), e.max(fall, 1.0));
  Value rising = e.infer<AndOp>(e.compare(j, left, Predicate::Ge), e.compare(j, middle, Predicate::Le));
  Value falling = e.infer<AndOp>(e.compare(j, middle, Predicate::Ge), e.compare(j, right, Predicate::Lt));
  Value y = e.select(falling, down, e.select(rising, up, e.like(j, 0)));
  return n.done(e.cast(y, element));
}

} // namespace

void addFourier(Handlers &h) {
  h["DFT"] = dft;
  h["STFT"] = stft;
  h["MelWeightMatrix"] = melWeights;
}

} // namespace lathe::legal
