//===- Sequence.cpp - ops along one axis by position ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ReverseSequence and TensorScatter pick elements by a formula of position and a
// length that comes as data; Compress by a condition that is known; DFT is a
// product with constant matrices.
//
//===----------------------------------------------------------------------===//
#include "Node.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {
namespace {

/// Values [size of batch] shaped to broadcast over x along dimension `batch`.
Value along(Emitter &e, Value v, Value x, int64_t batch) {
  if (!v || !x || rankOf(v) != 1)
    return e.fail("one value a batch is needed");
  Dims dims(rankOf(x), DimExpr(1));
  dims[batch] = dimOf(v, 0);
  return e.reshape(v, dims);
}

Value position(Emitter &e, Value x, int64_t axis) {
  Dims dims(rankOf(x), DimExpr(1));
  dims[axis] = dimOf(x, axis);
  return e.iota(dims, axis, e.b.getI64Type());
}

/// The first `length` elements turned round.
LogicalResult reverseSequence(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t batch = n.intAttr("batch_axis", 1), time = n.intAttr("time_axis", 0);
  if (!x || rankOf(x) < 2 || batch == time || batch < 0 || time < 0 || batch > 1 || time > 1)
    return n.invalid("attribute", "batch_axis and time_axis are 0 and 1, or 1 and 0");
  Value length = along(e, e.cast(n.in(1), e.b.getI64Type()), x, batch), t = position(e, x, time);
  if (!length)
    return failure();
  Value back = e.sub(e.add(length, -1.0), t);
  Value source = e.select(e.compare(t, length, Predicate::Lt), back, t);
  return n.done(e.infer<GatherElementsOp>(x, e.broadcastTo(source, dimsOf(x)), uint64_t(time)));
}

/// past with `update` written from write_indices on, one start a batch.
LogicalResult tensorScatter(Node &n) {
  Emitter &e = n.e;
  Value past = n.in(0), update = n.in(1);
  std::optional<int64_t> axis = past ? n.axis(n.intAttr("axis", -2), rankOf(past)) : std::nullopt;
  if (!axis || !update || rankOf(update) != rankOf(past))
    return failure();
  Type index = e.b.getI64Type();
  Value t = position(e, past, *axis);
  Value start = n.has(2) ? along(e, e.cast(n.in(2), index), past, 0) : e.scalar(0, index);
  Value size = e.dimScalar(dimOf(past, *axis), index),
        count = e.dimScalar(dimOf(update, *axis), index);
  // Distance behind the start; a circular buffer goes on at its beginning.
  Value behind = e.sub(t, start);
  if (n.strAttr("mode", "linear") == "circular")
    behind = e.infer<ModOp>(e.add(behind, size), size);
  Value fresh = e.infer<AndOp>(e.compare(behind, 0.0, Predicate::Ge),
                               e.compare(behind, count, Predicate::Lt));
  if (!fresh)
    return failure();
  Value source = e.broadcastTo(e.select(fresh, behind, e.like(behind, 0)), dimsOf(past));
  Value picked = e.infer<GatherElementsOp>(update, source, uint64_t(*axis));
  return n.done(e.select(fresh, picked, past));
}

LogicalResult compress(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  std::optional<Ints> keep = n.ints(1);
  if (!keep)
    return n.unknown({1}, "a condition");
  int64_t axis = 0;
  if (n.hasAttr("axis")) {
    std::optional<int64_t> one = n.axis(n.intAttr("axis", 0), rankOf(x));
    if (!one)
      return failure();
    axis = *one;
  } else {
    x = e.reshape(x, {numElements(x.getType())});
  }
  Ints indices;
  for (auto [i, flag] : llvm::enumerate(*keep))
    if (flag)
      indices.push_back(i);
  return n.done(e.infer<GatherOp>(x, e.ints(indices, {int64_t(indices.size())}, e.b.getI64Type()),
                                  uint64_t(axis)));
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
    if (!operand || operand->size() != 1)
      return n.unknown({2}, "an axis");
    given = (*operand)[0];
  }
  std::optional<int64_t> axis = n.axis(given, rank);
  if (!axis)
    return failure();
  std::optional<int64_t> size = dimOf(x, *axis).constant(), parts = dimOf(x, rank - 1).constant();
  // An inverse one-sided transform gives real values from half a spectrum.
  bool inverse = n.intAttr("inverse", 0), oneSided = n.intAttr("onesided", 0),
       fromHalf = inverse && oneSided;
  int64_t length = fromHalf ? 2 * (size.value_or(0) - 1) : size.value_or(0);
  if (n.has(1)) {
    std::optional<Ints> operand = n.ints(1);
    if (!operand || operand->size() != 1)
      return n.unknown({1}, "a length");
    length = (*operand)[0];
  }
  if (!size || !parts || *axis == rank - 1 || *parts < 1 || *parts > 2)
    return n.fail("shape", "a symbolic length, or a last dimension other than 1 and 2",
                  "constant lengths");
  if (length < 1 || length > 4096)
    return n.fail("shape", "a length of " + llvm::Twine(length), "lengths up to 4096");
  int64_t out = oneSided && !inverse ? length / 2 + 1 : length;
  int64_t used = fromHalf ? std::min(*size, length / 2 + 1) : std::min(*size, length);
  std::vector<double> cosines(size_t(used * out)), sines(size_t(used * out));
  for (int64_t t = 0; t < used; ++t)
    for (int64_t k = 0; k < out; ++k) {
      double angle = 2 * M_PI * double(t * k % length) / double(length) * (inverse ? 1 : -1);
      double scale = inverse ? 1.0 / double(length) : 1.0;
      if (fromHalf && t != 0 && 2 * t != length)
        scale *= 2; // its mirror image
      cosines[size_t(t * out + k)] = std::cos(angle) * scale;
      sines[size_t(t * out + k)] = std::sin(angle) * scale;
    }
  Type element = elementTypeOf(x);
  // In f64: sums of waves that cancel would keep the rounding of f32.
  Type wide = e.b.getF64Type();
  x = e.cast(x, wide);
  Value c = e.floats(cosines, {used, out}, wide), s = e.floats(sines, {used, out}, wide);
  x = e.sliceAxis(x, *axis, 0, used);
  // The axis goes last; the parts are taken apart.
  Ints perm, back;
  for (int64_t d = 0; d + 1 < rank; ++d)
    if (d != *axis)
      perm.push_back(d);
  perm.push_back(*axis);
  for (int64_t d = 0; d + 1 < rank; ++d)
    back.push_back(llvm::find(perm, d) - perm.begin());
  auto part = [&](int64_t i) {
    Dims dims = dimsOf(x);
    dims.pop_back();
    return e.transpose(e.reshape(e.sliceAxis(x, rank - 1, i, 1), dims), perm);
  };
  auto times = [&](Value v, Value matrix) {
    if (v && rankOf(v) == 1)
      return e.reshape(e.matmul(e.unsqueeze(v, {0}), matrix), {out});
    return e.matmul(v, matrix);
  };
  Value real = times(part(0), c), imaginary = times(part(0), s);
  if (*parts == 2) {
    Value b = part(1);
    real = e.sub(real, times(b, s));
    imaginary = e.add(imaginary, times(b, c));
  }
  auto restore = [&](Value v) { return e.unsqueeze(e.transpose(v, back), {rank - 1}); };
  Value y = fromHalf ? restore(real) : e.concat({restore(real), restore(imaginary)}, rank - 1);
  return n.done(e.cast(y, element));
}

} // namespace

void addSequence(Handlers &h) {
  h["ReverseSequence"] = reverseSequence;
  h["TensorScatter"] = tensorScatter;
  h["Compress"] = compress;
  h["DFT"] = dft;
}

} // namespace lathe::legal
