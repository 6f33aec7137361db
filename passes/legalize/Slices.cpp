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

/// A bound that arrives with the run and counts from the end where it is negative.
DimExpr fromTheStart(Node &n, llvm::Twine hint, const DimExpr &bound, const DimExpr &size) {
  if (!n.legalizer.isRunTimeValue(bound))
    return bound;
  DimExpr negative = DimExpr::max(0, DimExpr::min(1, DimExpr(0) - bound));
  return bound + size * n.derive(hint, negative, {0, 1});
}

LogicalResult slice(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  auto argument = [&](unsigned i, StringRef attr) -> std::optional<Dims> {
    if (n.numInputs() > 1) {
      // Axes and steps are needed now.
      std::optional<HostValue> known = i < 3 ? n.bound(i, std::nullopt) : n.host(i);
      return known ? std::optional(known->values) : std::nullopt;
    }
    std::optional<Ints> list = n.intsAttr(attr);
    return list ? std::optional(Dims(list->begin(), list->end())) : std::nullopt;
  };
  std::optional<Dims> starts = argument(1, "starts"), ends = argument(2, "ends"),
                      named = argument(3, "axes"), stepValues = argument(4, "steps");
  if (!starts || !ends || (n.has(3) && !named) || (n.has(4) && !stepValues))
    return n.unknown({1, 2, 3, 4}, "starts, ends, axes or steps");
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
      range.size = n.derive("size" + llvm::Twine(i), range.size, any);
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

LogicalResult padWith(Node &n, Value x, const Dims &low, const Dims &high, StringRef modeName) {
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
    // Where x is reflected or repeated, how far must be known.
    bool inside = modeName == "constant" || modeName == "edge";
    std::optional<HostValue> given = inside ? n.bound(1, 0) : n.host(1);
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
