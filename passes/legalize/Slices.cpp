//===- Slices.cpp - slice, split, pad ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Node.h"

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

LogicalResult slice(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  auto argument = [&](unsigned i, StringRef attr) -> std::optional<Dims> {
    if (n.numInputs() > 1) {
      std::optional<HostValue> known = n.has(i) ? n.host(i) : std::nullopt;
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
    Range range = rangeOf(n.e, (*starts)[i], (*ends)[i], *step, dimOf(x, *at));
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
    std::optional<HostValue> given = n.host(1);
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
  DimExpr at = 0;
  for (auto [i, size] : llvm::enumerate(sizes)) {
    if (failed(n.set(i, n.e.sliceAxis(x, *axis, at, size))))
      return failure();
    at = at + size;
  }
  return success();
}

LogicalResult pad(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  size_t rank = rankOf(x);
  Dims amounts;
  if (n.numInputs() > 1) {
    std::optional<HostValue> given = n.host(1);
    if (!given)
      return n.unknown({1}, "pads");
    amounts = given->values;
  } else if (std::optional<Ints> given = n.intsAttr(n.hasAttr("pads") ? "pads" : "paddings")) {
    amounts.assign(given->begin(), given->end());
  }
  Ints axes;
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
  std::string modeName = n.strAttr("mode", "constant");
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

} // namespace

void addSlices(Handlers &h) {
  h["Slice"] = slice;
  h["Split"] = split;
  h["Pad"] = pad;
}

} // namespace lathe::legal
