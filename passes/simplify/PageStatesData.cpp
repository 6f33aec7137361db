//===- PageStatesData.cpp - elements of caches ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where an element of what attention reads comes from: an input, or new tokens, chosen by its place. Whatever joins
// or writes them, at (row, head, key, depth) it must come to
//
//   key < P ? past[row, head, key, depth] : added[row, head, key - P, depth]
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

using namespace mlir;

namespace lathe::paging {

std::optional<SmallVector<int64_t>> orderOfRows(const Decoder &decoder, ArrayRef<DimExpr> dims,
                                                ArrayRef<DimExpr> index) {
  constexpr int64_t kNone = -1;
  if (dims.size() != 4)
    return std::nullopt;
  SmallVector<int64_t> order(4, kNone);
  SmallVector<int64_t> single; // dimensions of one element, whose index is 0 whatever they are
  const char *names[] = {kBatch, kHead, nullptr, kDepth};
  for (int64_t d = 0; d < 4; ++d) {
    int64_t which = kNone;
    for (int64_t i : {0, 1, 3})
      if (index[d].symbolName() == std::optional<std::string>(names[i]))
        which = i;
    if (which == kNone && dims[d] == decoder.tokens)
      which = 2;
    if (which == kNone && dims[d] == DimExpr(1)) {
      single.push_back(d);
      continue;
    }
    if (which == kNone || order[which] != kNone)
      return std::nullopt;
    order[which] = d;
  }
  for (int64_t d : single)
    *llvm::find(order, kNone) = d;
  if (order[2] == kNone || dims[order[2]] != decoder.tokens)
    return std::nullopt;
  return order;
}

/// x at an index whose `axis` is an element, a choice of two places maybe.
std::optional<Element> Elements::readAt(Value x, std::vector<DimExpr> at, size_t axis, const Element &place) {
  if (place.kind == Element::Kind::Choice) {
    auto yes = readAt(x, at, axis, *place.yes), no = readAt(x, at, axis, *place.no);
    return yes && no ? std::optional(choose(place.truth, *yes, *no)) : std::nullopt;
  }
  if (place.kind != Element::Kind::Integer)
    return fail(x.getDefiningOp() ? x.getDefiningOp() : static_cast<Operation *>(decoder.func),
                "the place that is read of it is no sum of sizes, query and key");
  at[axis] = place.integer;
  return of(x, at);
}

std::optional<Element> Elements::padded(PadOp op, ArrayRef<DimExpr> index) {
  if (op.getMode() != PadMode::Constant || !op.getValue())
    return fail(op, "padding by what lies inside");
  std::vector<DimExpr> dims = sizes(op.getX()), at(index.begin(), index.end());
  Condition inside;
  for (size_t d = 0; d < dims.size(); ++d) {
    DimExpr low = known(cast<DimAttr>(op.getLow()[d]).expr()), high = known(cast<DimAttr>(op.getHigh()[d]).expr());
    if (low == DimExpr(0) && high == DimExpr(0))
      continue;
    at[d] = index[d] - low;
    inside = both(inside, both(atMostZero(DimExpr(0) - at[d]), atMostZero(at[d] + DimExpr(1) - dims[d])));
  }
  auto x = of(op.getX(), at), filled = of(op.getValue(), {});
  return x && filled ? std::optional(choose(inside, *x, *filled)) : std::nullopt;
}

/// Where the places that are written are those of indices one after another from some first on, an element is one
/// of the updates where its place is among them.
std::optional<Element> Elements::scattered(Operation *op, ArrayRef<DimExpr> index) {
  Value x = op->getOperand(0), indices = op->getOperand(1), updates = op->getOperand(2);
  auto nd = dyn_cast<ScatterNdOp>(op);
  if (nd ? nd.getReduction().has_value() : cast<ScatterElementsOp>(op).getReduction().has_value())
    return fail(op, "it combines what it writes with what is there");
  const std::vector<DimExpr> dims = sizes(indices), whole = sizes(x);
  // Of each dimension that is written: the one of `indices` that counts along it, and the place of its first.
  const size_t counts = nd ? dims.size() - 1 : dims.size();
  std::vector<DimExpr> probe;
  for (size_t i = 0; i < counts; ++i)
    probe.push_back(dims[i] == DimExpr(1)          ? DimExpr(0)
                    : dims[i] == decoder.tokens    ? DimExpr::symbol(kQuery)
                    : !nd                          ? index[i]
                                                   : DimExpr::symbol("_at" + std::to_string(i)));
  std::vector<DimExpr> at(sizes(updates).size(), DimExpr(0));
  llvm::SmallBitVector covered(counts);
  Condition written;
  auto place = [&](size_t d, const Element &element) {
    if (element.kind != Element::Kind::Integer)
      return false;
    for (size_t i = 0; i < counts; ++i) {
      if (covered[i] || probe[i] == DimExpr(0))
        continue;
      DimExpr first = element.integer - probe[i];
      std::set<std::string> used;
      first.collectSymbols(used);
      if (llvm::any_of(probe, [&](const DimExpr &p) { return p.symbolName() && used.count(*p.symbolName()); }))
        continue;
      covered.set(i);
      at[i] = index[d] - first;
      written = both(written, both(atMostZero(DimExpr(0) - at[i]), atMostZero(at[i] + DimExpr(1) - dims[i])));
      return true;
    }
    // One place along this dimension, which the whole of it must be.
    return whole[d] == DimExpr(1) && element.integer == DimExpr(0);
  };
  if (nd) {
    const size_t depth = dims.back().constant().value_or(0);
    probe.push_back(DimExpr(0));
    for (size_t d = 0; d < depth; ++d) {
      probe.back() = DimExpr(int64_t(d));
      auto element = of(indices, probe);
      probe.pop_back();
      bool found = element && place(d, *element);
      probe.push_back(DimExpr(0));
      if (!found)
        return fail(op, "the places that it writes are not one after another");
    }
    for (size_t d = depth; d < whole.size(); ++d)
      at[counts + d - depth] = index[d];
  } else {
    const size_t axis = cast<ScatterElementsOp>(op).getAxis();
    auto element = of(indices, probe);
    for (size_t d = 0; d < whole.size(); ++d) {
      if (d == axis)
        continue;
      if (dims[d] != whole[d])
        return fail(op, "it writes a part of the rows or heads");
      at[d] = index[d];
      covered.set(d);
    }
    if (!element || !place(axis, *element))
      return fail(op, "the places that it writes are not one after another");
  }
  for (size_t i = 0; i < counts; ++i)
    if (!covered[i] && dims[i] != DimExpr(1))
      return fail(op, "it writes one place several times");
  auto fresh = of(updates, at), old = of(x, index);
  return fresh && old ? std::optional(choose(written, *fresh, *old)) : std::nullopt;
}

/// Running sums of what is one number everywhere, as padding is.
std::optional<Element> Elements::counted(ScanOp op, ArrayRef<DimExpr> index) {
  const size_t axis = op.getAxis();
  if (op.getKind() != ReduceKind::Sum || op.getReverse())
    return fail(op, "no rule says what it makes of positions and masks");
  std::vector<DimExpr> probe(index.begin(), index.end());
  const DimExpr size = sizes(op.getX())[axis];
  if (size != decoder.keys && size != decoder.tokens)
    return fail(op, "it sums along something else than keys");
  probe[axis] = DimExpr::symbol(size == decoder.keys ? kKey : kQuery);
  auto one = of(op.getX(), probe);
  if (!one || one->kind != Element::Kind::Integer || !one->integer.isConstant())
    return fail(op, "it sums numbers that differ");
  return Element{Element::Kind::Integer, one->integer * (index[axis] + DimExpr(op.getExclusive() ? 0 : 1))};
}
std::optional<Element> Elements::summed(ReduceOp op, ArrayRef<DimExpr> index) {
  std::vector<DimExpr> dims = sizes(op.getX()), probe;
  if (op.getAxes().size() != 1 || op.getKind() != ReduceKind::Sum)
    return fail(op, "no rule says what it makes of positions and masks");
  const int64_t axis = op.getAxes()[0];
  for (int64_t d = 0, from = 0; d < int64_t(dims.size()); ++d) {
    if (d == axis) {
      probe.push_back(DimExpr::symbol(kKey));
      from += op.getKeepdims();
    } else {
      probe.push_back(index[from++]);
    }
  }
  auto one = of(op.getX(), probe);
  if (!one || one->kind != Element::Kind::Integer || !one->integer.isConstant())
    return fail(op, "it sums numbers that differ");
  return Element{Element::Kind::Integer, one->integer * dims[axis]};
}

} // namespace lathe::paging
