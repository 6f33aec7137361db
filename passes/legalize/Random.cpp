//===- Random.cpp - ops that draw -------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every element takes 64 bits of lathe.random_bits, a function of its place, the context's seed (or
// the node's own), the run and the node; what is made of them is elementwise. Floats that a mean or
// bounds are added to go through f64, where their products are exact, so that a fused multiply-add
// changes nothing.
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"

#include "lathe/support/Philox.h"

#include <bit>
#include <cmath>
#include <limits>

using namespace mlir;

namespace lathe::legal {

Legalizer::Draws Legalizer::draws() {
  Type word = e.b.getIntegerType(64, /*isSigned=*/false);
  if (!drawn.seed) {
    OpBuilder::InsertionGuard guard(e.b);
    auto type = RankedTensorType::get({2}, e.b.getI64Type());
    (void)func.insertArgument(
        func.getNumArguments(), type,
        e.b.getDictionaryAttr(e.b.getNamedAttr("lathe.name", e.b.getStringAttr(kDrawsInput))),
        e.loc);
    Block &entry = func.getBody().front();
    e.b.setInsertionPointToStart(&entry);
    Value words = BitcastOp::create(e.b, e.loc, RankedTensorType::get({2}, word),
                                    entry.getArguments().back());
    drawn.seed = e.reshape(e.sliceAxis(words, 0, 0, 1), {});
    drawn.run = e.reshape(e.sliceAxis(words, 0, 1, 1), {});
  }
  // An iteration of a loop is a run of its own, whose number is drawn.
  Draws now = drawn;
  for (LoopDraws &loop : loops) {
    if (!loop.run)
      loop.run = e.infer<RandomBitsOp>(e.cast(loop.counter, word), now.seed, now.run, nextStream++);
    now.run = loop.run;
  }
  return now;
}

namespace {

/// 64 bits for each element.
Value bitsFor(Node &n, const Dims &dims) {
  Emitter &e = n.e;
  Legalizer::Draws draws = n.legalizer.draws();
  Value seed = draws.seed;
  uint64_t stream = 0; // nodes of equal seeds of their own draw the same
  if (n.hasAttr("seed"))
    seed = e.scalar(std::bit_cast<uint32_t>(float(n.floatAttr("seed", 0))), elementTypeOf(seed));
  else
    stream = n.legalizer.newStream();
  Value element = e.iota({product(dims)}, 0, elementTypeOf(seed));
  return e.reshape(e.infer<RandomBitsOp>(element, seed, draws.run, stream), dims);
}

/// The bits from `first` on, as a float: whole, and exact unless it is rounded to 24 digits.
Value wholeFrom(Emitter &e, Value bits, unsigned first, Type element) {
  Value rest = e.infer<ShrOp>(bits, e.like(bits, first));
  return e.cast(e.cast(rest, element.isF64() ? e.b.getI64Type() : e.b.getI32Type()), element);
}

/// Numbers of [0, 1) with as many digits as the type has, in f64, or in f32 for all others.
Value uniform(Emitter &e, Value bits, Type element) {
  if (!bits)
    return {};
  unsigned digits = cast<FloatType>(element).getFPMantissaWidth();
  Type wide = element.isF64() ? element : Type(e.b.getF32Type());
  return e.mul(wholeFrom(e, bits, 64 - digits, wide), std::ldexp(1.0, -int(digits)));
}

/// Standard normal numbers, in f64, or in f32 for all other types: the quantile of a probability of
/// at most 1/2, to which a bit gives the side.
Value normal(Emitter &e, Value bits, Type element) {
  if (!bits)
    return {};
  Type wide = element.isF64() ? element : Type(e.b.getF32Type());
  unsigned digits = element.isF64() ? 52 : 31;
  Value middle = e.add(wholeFrom(e, bits, 64 - digits, wide), 0.5);
  Value z = e.unary<ProbitOp>(e.mul(middle, std::ldexp(1.0, -int(digits) - 1)));
  Value side = e.compare(e.infer<AndOp>(bits, e.like(bits, 1)), 0.0, Predicate::Eq);
  return e.select(side, z, e.unary<NegOp>(z));
}

/// offset + factor x in the element type.
Value placed(Emitter &e, Value x, double factor, double offset, Type element) {
  if (x && (factor != 1 || offset != 0)) {
    x = e.mul(e.cast(x, e.b.getF64Type()), factor);
    x = offset != 0 ? e.add(x, offset) : x;
  }
  return e.cast(x, element);
}

/// The greatest number of a float type below v.
double before(FloatType type, double v) {
  APFloat number(v);
  bool lost;
  number.convert(type.getFloatSemantics(), APFloat::rmTowardNegative, &lost);
  if (!lost)
    number.next(/*nextDown=*/true);
  return number.convertToDouble();
}

/// The type of results, from `dtype` or the operand; null after a report.
FloatType resultType(Node &n, Type otherwise) {
  Type type = otherwise;
  if (n.hasAttr("dtype"))
    type = elementFor(n.op->getContext(), n.intAttr("dtype", 1));
  auto element = dyn_cast_or_null<FloatType>(type);
  if (!element || element.getWidth() < 16)
    return (void)n.fail("dtype", "random numbers of a type that is no f16, bf16, f32 or f64"),
           FloatType();
  return element;
}

/// The sizes of results: of `shape`, or of the operand.
std::optional<Dims> resultDims(Node &n) {
  if (n.numInputs())
    return n.dims(0);
  std::optional<Ints> shape = n.intsAttr("shape");
  if (!shape || llvm::any_of(*shape, [](int64_t size) { return size < 0; }))
    return (void)n.invalid("attribute", "shape is missing or has a negative size"), std::nullopt;
  return Dims(shape->begin(), shape->end());
}

LogicalResult randomUniform(Node &n) {
  FloatType element = resultType(n, n.numInputs() ? n.element(0) : Type(n.e.b.getF32Type()));
  std::optional<Dims> dims = element ? resultDims(n) : std::nullopt;
  if (!dims)
    return failure();
  double low = n.floatAttr("low", 0), high = n.floatAttr("high", 1);
  if (!(low <= high) || !std::isfinite(high - low))
    return n.invalid("attribute", "low is not below high");
  Emitter &e = n.e;
  Value y = placed(e, uniform(e, bitsFor(n, *dims), element), high - low, low, element);
  if (low != 0 || high != 1) // low + (high - low) u may be rounded to high
    y = e.min(y, before(element, high));
  return n.done(y);
}

LogicalResult randomNormal(Node &n) {
  FloatType element = resultType(n, n.numInputs() ? n.element(0) : Type(n.e.b.getF32Type()));
  std::optional<Dims> dims = element ? resultDims(n) : std::nullopt;
  if (!dims)
    return failure();
  Value z = normal(n.e, bitsFor(n, *dims), element);
  return n.done(placed(n.e, z, n.floatAttr("scale", 1), n.floatAttr("mean", 0), element));
}

/// 1 with the probability that the operand says. In f32, or f64 where that has it.
LogicalResult bernoulli(Node &n) {
  Emitter &e = n.e;
  Value p = n.in(0);
  if (!p || !isa<FloatType>(elementTypeOf(p)))
    return n.invalid("dtype", "probabilities are floats");
  Type wide = elementTypeOf(p).isF64() ? elementTypeOf(p) : Type(e.b.getF32Type());
  Type result =
      n.hasAttr("dtype") ? elementFor(n.op->getContext(), n.intAttr("dtype", 1)) : elementTypeOf(p);
  if (!result)
    return n.fail("dtype", "a result of this type");
  Value u = uniform(e, bitsFor(n, dimsOf(p)), wide);
  return n.done(e.cast(e.compare(u, e.cast(p, wide), Predicate::Lt), result));
}

/// Places where the running sum of probabilities passes a random share of the whole.
LogicalResult multinomial(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t samples = n.intAttr("sample_size", 1);
  Type result = elementFor(n.op->getContext(), n.intAttr("dtype", 6));
  if (!x || rankOf(x) != 2 || !isa<FloatType>(elementTypeOf(x)) || samples < 0)
    return n.invalid("shape", "Multinomial wants logits [N, C], and samples that are not negative");
  if (!result || !isa<IntegerType>(result))
    return n.fail("dtype", "a result that is no integer");
  Type wide = elementTypeOf(x).isF64() ? elementTypeOf(x) : Type(e.b.getF32Type());
  x = e.cast(x, wide);
  Value weight = e.unary<ExpOp>(e.sub(x, e.reduce(x, ReduceKind::Max, {1})));
  Value sums = e.infer<ScanOp>(weight, ReduceKind::Sum, uint64_t(1), false, false);
  DimExpr rows = dimOf(x, 0), classes = dimOf(x, 1);
  Value whole = e.sliceAxis(sums, 1, classes - DimExpr(1), 1);
  Value share = e.mul(uniform(e, bitsFor(n, {rows, DimExpr(samples)}), wide), whole);
  Value passed = e.compare(e.reshape(sums, {rows, DimExpr(1), classes}),
                           e.reshape(share, {rows, DimExpr(samples), DimExpr(1)}), Predicate::Le);
  Type count = e.b.getI64Type();
  Value place = e.reduce(e.cast(passed, count), ReduceKind::Sum, {2}, false);
  return n.done(e.cast(e.min(place, e.dimScalar(classes - DimExpr(1), count)), result));
}

/// Where it trains each element is dropped with probability `ratio`, and what is left grows by as
/// much.
LogicalResult dropout(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<Ints> known = n.has(2) ? n.ints(2) : Ints{0};
  std::optional<double> ratio = n.has(1) ? n.number(1) : std::optional(0.5);
  bool never = known && known->size() == 1 && (!known->front() || ratio == 0.0);
  if (never || !x) {
    if (n.wants(1) && x && failed(n.set(1, e.broadcastTo(e.scalar(1, e.b.getI1Type()), dimsOf(x)))))
      return failure();
    return n.done(x);
  }
  Type f32 = e.b.getF32Type();
  Value share = n.has(1) ? e.reshape(e.cast(n.in(1), f32), {}) : e.scalar(0.5, f32);
  Value kept = e.compare(uniform(e, bitsFor(n, dimsOf(x)), f32), share, Predicate::Ge);
  Value grown =
      e.mul(x, e.cast(e.div(e.scalar(1, f32), e.sub(e.scalar(1, f32), share)), elementTypeOf(x)));
  Value y = e.select(kept, grown, e.like(x, 0));
  if (!known) {
    Value training = e.reshape(n.in(2), {});
    y = e.select(training, y, x);
    kept = e.infer<OrOp>(kept, training ? e.unary<NotOp>(training) : training);
  }
  if (n.wants(1) && failed(n.set(1, kept)))
    return failure();
  return n.done(y);
}

} // namespace

void addRandom(Handlers &h) {
  h["RandomUniform"] = randomUniform;
  h["RandomUniformLike"] = randomUniform;
  h["RandomNormal"] = randomNormal;
  h["RandomNormalLike"] = randomNormal;
  h["Bernoulli"] = bernoulli;
  h["Multinomial"] = multinomial;
  h["Dropout"] = dropout;
}

} // namespace lathe::legal
