//===- Slices.cpp - slice, split, pad ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Legalizer.h"

using namespace mlir;

namespace lathe::legal {
namespace {

/// Ends beyond any tensor mean "to the end".
constexpr int64_t kFar = int64_t(1) << 31;

struct Range {
  DimExpr start, size;
};

/// Converters write such numbers, too, for "to the end" (jax2tf: 10^9).
constexpr int64_t kLarge = 1'000'000'000;

/// Limits a size without a bound to `most`: the symbol's new bound becomes a guard of the entry, so
/// that a larger tensor is refused and never cut silently.
void limitSymbol(Emitter &e, const DimExpr &size, int64_t most) {
  std::optional<std::string> name = size.symbolName();
  auto module = e.b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto symbol = name && module ? module.lookupSymbol<SymbolOp>(*name) : SymbolOp();
  if (!symbol || symbol.getMax() != uint64_t(-1))
    return;
  symbol.setMax(most);
  e.ranges[*name].hi = most;
}

/// A bound as ONNX means it: negative counts from the end, then clamped to
/// [0, size] (forwards) or [-1, size - 1] (backwards).
DimExpr clampBound(Emitter &e, const DimExpr &bound, const DimExpr &size, bool forward) {
  std::optional<int64_t> constant = bound.constant();
  DimExpr low = forward ? 0 : -1, high = forward ? size : size - 1;
  if (constant && *constant >= kFar - 1)
    return high;
  if (constant && *constant <= -kFar)
    return low;
  if (constant && forward && *constant >= kLarge)
    limitSymbol(e, size, *constant);
  // A symbolic bound that may be negative is one that went below 0 by
  // subtraction, and is clamped; only constants count from the end.
  DimExpr at = constant && *constant < 0 ? bound + size : bound;
  if (!e.provablyNonNegative(at - low))
    at = DimExpr::max(at, low);
  return e.minOf(at, high);
}

Range rangeOf(Emitter &e, const DimExpr &start, const DimExpr &end, int64_t step,
              const DimExpr &size) {
  DimExpr from = clampBound(e, start, size, step > 0), to = clampBound(e, end, size, step > 0);
  DimExpr span = step > 0 ? to - from : from - to;
  return {from, e.clampAtZero(DimExpr::ceilDiv(span, step > 0 ? step : -step))};
}

/// What a slice takes at most: x[i : i + 3] has 3 elements wherever i is, and fewer where the tensor's end cuts it.
int64_t mostOf(const DimExpr &start, const DimExpr &end, int64_t step) {
  std::optional<int64_t> span = (step > 0 ? end - start : start - end).constant();
  // A bound below 0 counts from the end: x[i : i - 2] with i = 1 is x[1 : -1], and not empty.
  if (!span || *span < 0 || *span > kFar)
    return DimRange::kUnbounded;
  const int64_t stride = std::abs(step);
  return *span / stride + (*span % stride > 0);
}

/// A bound that arrives with the run and counts from the end where it is negative.
DimExpr fromTheStart(Node &n, llvm::Twine hint, const DimExpr &bound, const DimExpr &size) {
  if (!n.legalizer.isRunTimeValue(bound))
    return bound;
  DimExpr negative = DimExpr::max(0, DimExpr::min(1, DimExpr(0) - bound));
  return bound + size * n.derive(hint, negative, {0, 1});
}

/// One dimension of a slice, of which the run tells all but the dimension: numbers below 0 count from the end,
/// and a step may go backwards.
Value sliceOfTheRun(Node &n, Value x, int64_t d, const DimExpr &start, const DimExpr &end, const DimExpr &step) {
  Emitter &e = n.e;
  const DimExpr size = dimOf(x, d);
  const DimRange any = {INT64_MIN + 1, DimRange::kUnbounded}, natural = {0, DimRange::kUnbounded};
  auto named = [&](llvm::Twine hint, const DimExpr &formula, DimRange range) {
    return n.derive(hint + llvm::Twine(d), formula, range);
  };
  auto isBelow = [&](llvm::Twine hint, const DimExpr &v) {
    return named(hint + "_below", DimExpr::max(0, DimExpr::min(1, DimExpr(0) - v)), {0, 1});
  };
  DimExpr back = isBelow("step", step), sign = DimExpr(1) - DimExpr(2) * back;
  DimExpr stride = named("stride", step * sign, {1, DimRange::kUnbounded}); // a step of 0 ends here
  auto inside = [&](llvm::Twine hint, const DimExpr &v) {
    DimExpr at = named(hint + "_at", v + size * isBelow(hint, v), any);
    return named(hint, DimExpr::max(DimExpr(0) - back, DimExpr::min(at, size - back)), {-1, DimRange::kUnbounded});
  };
  DimExpr from = inside("from", start), to = inside("to", end);
  DimExpr span = named("span", DimExpr::max(0, (to - from) * sign), natural);
  DimExpr count = named("size", DimExpr::ceilDiv(span, stride), natural);
  Type index = e.b.getI64Type();
  Value places = e.add(e.mul(e.iota({count}, 0, index), e.dimScalar(step, index)), e.dimScalar(from, index));
  return e.infer<GatherOp>(x, places, uint64_t(d));
}

/// A slice whose axes or steps arrive with the run.
LogicalResult sliceByRun(Node &n, Value x, const Dims &starts, const Dims &ends, const std::optional<Dims> &axes,
                         const std::optional<Dims> &steps) {
  const int64_t rank = rankOf(x), count = int64_t(starts.size());
  if (ends.size() != starts.size() || (axes && axes->size() != starts.size()) ||
      (steps && steps->size() != starts.size()) || count > rank)
    return n.invalid("shape", "starts, ends, axes and steps differ in number");
  Dims named;
  for (int64_t i = 0; i < count; ++i)
    named.push_back(axes ? (*axes)[i] : DimExpr(i));
  n.named(named, rank); // each is inside, and there once
  const DimRange any = {INT64_MIN + 1, DimRange::kUnbounded};
  for (int64_t d = 0; d < rank; ++d) {
    DimExpr start = 0, end = 0, step = 0, taken = 0;
    for (int64_t i = 0; i < count; ++i) {
      DimExpr here = equalDims(named[i], d) + equalDims(named[i], d - rank);
      here = n.derive("is" + llvm::Twine(i) + "_" + llvm::Twine(d), here, {0, 1});
      start = start + here * starts[i];
      end = end + here * ends[i];
      step = step + here * (steps ? (*steps)[i] : DimExpr(1));
      taken = taken + here;
    }
    if (taken == DimExpr(0))
      continue;
    end = end + (DimExpr(1) - taken) * dimOf(x, d);
    step = step + DimExpr(1) - taken;
    x = sliceOfTheRun(n, x, d, n.derive("start" + llvm::Twine(d), start, any),
                      n.derive("end" + llvm::Twine(d), end, any),
                      n.derive("step" + llvm::Twine(d), step, any));
    if (!x)
      return failure();
  }
  return n.done(x);
}

LogicalResult slice(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  auto argument = [&](unsigned i, StringRef attr) -> std::optional<Dims> {
    if (n.numInputs() > 1) {
      std::optional<HostValue> known = n.bound(i, std::nullopt);
      return known ? std::optional(known->values) : std::nullopt;
    }
    std::optional<Ints> list = n.intsAttr(attr);
    return list ? std::optional(Dims(list->begin(), list->end())) : std::nullopt;
  };
  std::optional<Dims> starts = argument(1, "starts"), ends = argument(2, "ends"),
                      named = argument(3, "axes"), stepValues = argument(4, "steps");
  if (!starts || !ends || (n.has(3) && !named) || (n.has(4) && !stepValues))
    return n.unknown({1, 2, 3, 4}, "starts, ends, axes or steps");
  auto isConstant = [](const DimExpr &v) { return v.isConstant(); };
  if ((named && !llvm::all_of(*named, isConstant)) || (stepValues && !llvm::all_of(*stepValues, isConstant)))
    return sliceByRun(n, x, *starts, *ends, named, stepValues);
  Dims sizes = dimsOf(x), begin(sizes.size(), DimExpr(0));
  Ints steps(sizes.size(), 1);
  for (size_t i = 0; i < starts->size(); ++i) {
    std::optional<int64_t> axis =
        named && i < named->size() ? (*named)[i].constant() : std::optional<int64_t>(i);
    std::optional<int64_t> step = stepValues && i < stepValues->size() ? (*stepValues)[i].constant()
                                                                       : std::optional<int64_t>(1);
    if (!axis || !step)
      return n.fail("shape", "an axis or step that is no constant", "constant axes and steps");
    std::optional<int64_t> at = n.axis(*axis, sizes.size());
    if (!at)
      return failure();
    if (*step == 0 || i >= ends->size())
      return n.invalid("attribute", "a step is 0, or starts and ends differ in length");
    DimExpr size = dimOf(x, *at);
    Range range = rangeOf(n.e, fromTheStart(n, "start" + llvm::Twine(i), (*starts)[i], size),
                          fromTheStart(n, "end" + llvm::Twine(i), (*ends)[i], size), *step, size);
    if (n.legalizer.isRunTimeValue((*starts)[i]) || n.legalizer.isRunTimeValue((*ends)[i])) {
      DimRange any = {0, DimRange::kUnbounded};
      range.size = n.derive("size" + llvm::Twine(i), range.size, {0, mostOf((*starts)[i], (*ends)[i], *step)});
      // An empty result reads nothing: its start may be anywhere.
      range.start = n.derive("from" + llvm::Twine(i), DimExpr::max(range.start, 0), any);
    }
    begin[*at] = range.start;
    sizes[*at] = range.size;
    steps[*at] = *step;
  }
  // An empty result reads nothing; its starts are put inside.
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] == DimExpr(0))
      begin[d] = 0;
  return n.done(n.e.slice(x, begin, sizes, steps));
}

LogicalResult split(Node &n) {
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  DimExpr total = dimOf(x, *axis);
  Dims sizes;
  if (n.numInputs() > 1 && n.has(1)) {
    std::optional<HostValue> given = n.bound(1, 0);
    if (!given)
      return n.unknown({1}, "sizes");
    sizes = given->values;
  } else if (std::optional<Ints> given = n.intsAttr("split")) {
    sizes.assign(given->begin(), given->end());
  } else {
    int64_t parts = n.numOutputs();
    DimExpr each = DimExpr::ceilDiv(total, parts);
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(n.e.clampAtZero(n.e.minOf(each, total - each * DimExpr(i))));
  }
  if (sizes.size() != n.numOutputs())
    return n.invalid("shape", "as many sizes as outputs are needed");
  DimExpr sum = 0;
  for (const DimExpr &size : sizes)
    sum = sum + size;
  if (sum.isConstant() && total.isConstant() && sum != total)
    return n.invalid("shape",
                     "the sizes add up to " + llvm::Twine(sum.str()) + ", not " + total.str());
  if (llvm::any_of(sizes, [&](const DimExpr &d) { return n.legalizer.isRunTimeValue(d); }))
    n.demandZero("sizes", sum - total);
  DimExpr at = 0;
  for (auto [i, size] : llvm::enumerate(sizes)) {
    if (failed(n.set(i, n.e.sliceAxis(x, *axis, at, size))))
      return failure();
    at = at + size;
  }
  return success();
}

/// An axis continued by its reflections or repetitions, as far as the run says.
Value continued(Node &n, Value x, int64_t d, const DimExpr &low, const DimExpr &high, bool reflects) {
  Emitter &e = n.e;
  Type index = e.b.getI64Type();
  DimExpr size = dimOf(x, d);
  Value at = e.sub(e.iota({low + size + high}, 0, index), e.dimScalar(low, index));
  Value whole = e.dimScalar(size, index);
  Value period = reflects ? e.max(e.mul(e.add(whole, -1.0), 2.0), 1.0) : whole;
  at = e.infer<ModOp>(at, period); // of the sign of the period
  if (reflects)
    at = e.min(at, e.sub(period, at));
  return e.infer<GatherOp>(x, at, uint64_t(d));
}

LogicalResult padWith(Node &n, Value x, const Dims &low, const Dims &high, StringRef modeName) {
  auto isOpen = [&](const DimExpr &amount) { return !amount.isConstant(); };
  if ((modeName == "reflect" || modeName == "wrap") && (llvm::any_of(low, isOpen) || llvm::any_of(high, isOpen))) {
    for (size_t d = 0; d < low.size() && x; ++d)
      if (low[d] != DimExpr(0) || high[d] != DimExpr(0))
        x = continued(n, x, int64_t(d), low[d], high[d], modeName == "reflect");
    return n.done(x);
  }
  PadMode mode = modeName == "reflect" ? PadMode::Reflect
                 : modeName == "edge"  ? PadMode::Edge
                 : modeName == "wrap"  ? PadMode::Wrap
                                       : PadMode::Constant;
  Value fill;
  if (mode == PadMode::Constant)
    fill = n.has(2) ? n.e.reshape(n.in(2), {}) : n.e.like(x, n.floatAttr("value", 0));
  if (mode == PadMode::Constant && !fill)
    return failure();
  return n.done(n.e.pad(x, fill, low, high, mode));
}

/// Amounts for axes that arrive with the run: those of the axis that names a dimension, or 0.
LogicalResult padNamed(Node &n, Value x, ArrayRef<DimExpr> amounts, ArrayRef<DimExpr> axes,
                       StringRef modeName) {
  int64_t rank = rankOf(x);
  if (amounts.size() != 2 * axes.size())
    return n.invalid("shape", "two amounts an axis are needed");
  n.named(axes, rank); // each is inside, and there once
  Dims low(rank, DimExpr(0)), high(rank, DimExpr(0));
  for (auto [i, axis] : llvm::enumerate(axes))
    for (int64_t d = 0; d < rank; ++d) {
      DimExpr here = n.derive("pad" + llvm::Twine(i) + "_" + llvm::Twine(d),
                              equalDims(axis, d) + equalDims(axis, d - rank), {0, 1});
      low[d] = low[d] + here * amounts[i];
      high[d] = high[d] + here * amounts[axes.size() + i];
    }
  for (int64_t d = 0; d < rank; ++d) {
    low[d] = n.derive("low" + llvm::Twine(d), low[d], {0, DimRange::kUnbounded});
    high[d] = n.derive("high" + llvm::Twine(d), high[d], {0, DimRange::kUnbounded});
  }
  return padWith(n, x, low, high, modeName);
}

LogicalResult pad(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  size_t rank = rankOf(x);
  std::string modeName = n.strAttr("mode", "constant");
  Dims amounts;
  if (n.numInputs() > 1) {
    std::optional<HostValue> given = n.bound(1, 0);
    if (!given)
      return n.unknown({1}, "pads");
    amounts = given->values;
  } else if (std::optional<Ints> given = n.intsAttr(n.hasAttr("pads") ? "pads" : "paddings")) {
    amounts.assign(given->begin(), given->end());
  }
  Ints axes;
  if (std::optional<HostValue> at = n.has(3) && !n.ints(3) ? n.bound(3, std::nullopt) : std::nullopt;
      at && !at->constants())
    return padNamed(n, x, amounts, at->values, modeName);
  if (n.has(3)) {
    std::optional<Ints> given = n.ints(3);
    if (!given)
      return n.unknown({3}, "axes");
    for (int64_t axis : *given) {
      std::optional<int64_t> one = n.axis(axis, rank);
      if (!one)
        return failure();
      axes.push_back(*one);
    }
  } else {
    for (size_t d = 0; d < rank; ++d)
      axes.push_back(d);
  }
  if (amounts.size() != 2 * axes.size())
    return n.invalid("shape", "two amounts an axis are needed");
  Dims low(rank, DimExpr(0)), high(rank, DimExpr(0));
  for (auto [i, axis] : llvm::enumerate(axes)) {
    low[axis] = amounts[i];
    high[axis] = amounts[axes.size() + i];
  }
  return padWith(n, x, low, high, modeName);
}

} // namespace

void addSlices(Handlers &h) {
  h["Slice"] = slice;
  h["Split"] = split;
  h["Pad"] = pad;
}

} // namespace lathe::legal
