//===- Sequences.cpp - sequences and optionals of known length --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sequence is the list of its tensors and an optional its value, or nothing: both vanish. A position
// that arrives with the run chooses between tensors of equal sizes. What has no known length is in Lists.cpp.
//
//===----------------------------------------------------------------------===//
#include "Lists.h"

using namespace mlir;

namespace lathe::legal {

/// Tensors that a split or a map gives at most.
static constexpr size_t kMaxElements = 1024;

namespace {

LogicalResult empty(Node &n) { return n.setTracked(0, Tracked::sequence({})); }

LogicalResult construct(Node &n) {
  std::vector<Tracked> elements;
  for (unsigned i = 0; i < n.numInputs(); ++i)
    elements.push_back(n.tracked(i));
  return n.setTracked(0, Tracked::sequence(std::move(elements)));
}

LogicalResult length(Node &n) {
  if (n.tracked(0).list)
    return listLength(n);
  std::optional<std::vector<Tracked>> elements = n.sequence(0);
  if (!elements)
    return failure();
  return n.setHost(0, {n.e.b.getI64Type(), {}, {DimExpr(int64_t(elements->size()))}});
}

/// A position in [-count, most] of operand i, counted from the front; where it is absent, `otherwise`.
/// What arrives with the run is checked when it begins. None, without a report, for what the run computes.
std::optional<DimExpr> position(Node &n, unsigned i, int64_t count, int64_t most, int64_t otherwise) {
  if (!n.has(i))
    return DimExpr(otherwise);
  std::optional<DimExpr> at = n.whole(i);
  if (!at)
    return std::nullopt;
  if (std::optional<int64_t> known = at->constant()) {
    if (*known >= -count && *known <= most)
      return DimExpr(*known < 0 ? *known + count : *known);
    (void)n.invalid("shape", "position " + llvm::Twine(*known) + " of a sequence of " + llvm::Twine(count));
    return std::nullopt;
  }
  DimExpr checked = n.derive("position", *at, {-count, most});
  return checked + DimExpr(count) * DimExpr::max(0, DimExpr::min(1, DimExpr(0) - checked));
}

/// The elements as data, if all have one type and the same sizes.
std::optional<SmallVector<Value>> alike(Node &n, std::vector<Tracked> &elements) {
  SmallVector<Value> all;
  for (Tracked &element : elements) {
    all.push_back(n.legalizer.dataOf(element));
    if (!all.back() || all.back().getType() != all.front().getType())
      return std::nullopt;
  }
  return all;
}

LogicalResult at(Node &n) {
  Emitter &e = n.e;
  if (n.tracked(0).list)
    return listAt(n);
  std::optional<std::vector<Tracked>> elements = n.sequence(0);
  if (!elements)
    return failure();
  int64_t count = elements->size();
  if (!count)
    return n.invalid("shape", "an element of an empty sequence");
  std::optional<DimExpr> place = n.has(1) ? position(n, 1, count, count - 1, 0) : std::nullopt;
  if (!place)
    return n.reported ? failure() : listAt(n);
  if (std::optional<int64_t> known = place->constant())
    return n.setTracked(0, (*elements)[*known]);
  std::optional<SmallVector<Value>> all = alike(n, *elements);
  if (!all)
    return listAt(n);
  std::vector<Value> rows;
  for (Value element : *all)
    rows.push_back(e.unsqueeze(element, {0}));
  return n.done(e.infer<GatherOp>(e.concat(rows, 0), e.dimScalar(*place, e.b.getI64Type()), uint64_t(0)));
}

/// a where i < place, else b.
Tracked before(Emitter &e, int64_t i, Value place, Value a, Value b) {
  Tracked result;
  result.data = e.select(e.compare(e.like(place, double(i)), place, Predicate::Lt), a, b);
  return result;
}

/// Element i of the result is element i in front of the new one, and element i - 1 behind it.
LogicalResult insert(Node &n) {
  Emitter &e = n.e;
  if (n.tracked(0).list)
    return listInsert(n);
  std::optional<std::vector<Tracked>> elements = n.sequence(0);
  if (!elements)
    return failure();
  int64_t count = elements->size();
  std::optional<DimExpr> at = position(n, 2, count, count, count);
  if (!at)
    return n.reported ? failure() : listInsert(n);
  Tracked added = n.tracked(1);
  if (std::optional<int64_t> known = at->constant()) {
    elements->insert(elements->begin() + *known, added);
    return n.setTracked(0, Tracked::sequence(std::move(*elements)));
  }
  elements->push_back(added);
  std::optional<SmallVector<Value>> all = alike(n, *elements);
  if (!all)
    return listInsert(n);
  Value place = e.dimScalar(*at, e.b.getI64Type()), x = all->back();
  std::vector<Tracked> result;
  for (int64_t i = 0; i <= count; ++i) {
    Tracked later = i == 0 ? added : before(e, i - 1, place, x, (*all)[i - 1]);
    result.push_back(i == count ? later : before(e, i, place, (*all)[i], later.data ? later.data : x));
  }
  return n.setTracked(0, Tracked::sequence(std::move(result)));
}

LogicalResult erase(Node &n) {
  Emitter &e = n.e;
  if (n.tracked(0).list)
    return listErase(n);
  std::optional<std::vector<Tracked>> elements = n.sequence(0);
  if (!elements)
    return failure();
  int64_t count = elements->size();
  if (!count)
    return n.invalid("shape", "nothing to erase from an empty sequence");
  std::optional<DimExpr> at = position(n, 1, count, count - 1, count - 1);
  if (!at)
    return n.reported ? failure() : listErase(n);
  if (std::optional<int64_t> known = at->constant()) {
    elements->erase(elements->begin() + *known);
    return n.setTracked(0, Tracked::sequence(std::move(*elements)));
  }
  std::optional<SmallVector<Value>> all = alike(n, *elements);
  if (!all)
    return listErase(n);
  Value place = e.dimScalar(*at, e.b.getI64Type());
  std::vector<Tracked> result;
  for (int64_t i = 0; i + 1 < count; ++i)
    result.push_back(before(e, i, place, (*all)[i], (*all)[i + 1]));
  return n.setTracked(0, Tracked::sequence(std::move(result)));
}

/// Parts of stated sizes, or of one size each but the last; without sizes slices of one, which lose the
/// axis unless `keepdims`.
LogicalResult split(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  std::optional<int64_t> axis = x ? n.axis(n.intAttr("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  DimExpr size = dimOf(x, *axis);
  Dims parts;
  if (n.has(1) && n.rank(1) == 1) {
    std::optional<HostValue> stated = n.bound(1, 0);
    if (!stated)
      return listSplit(n, *axis);
    parts = stated->values;
    DimExpr total = 0;
    for (const DimExpr &part : parts)
      total = total + part;
    if (total.isConstant() && size.isConstant() && total != size)
      return n.invalid("shape", "parts of " + llvm::Twine(total.str()) + " in all split " + size.str());
    if (total != size)
      n.demandZero("parts", total - size);
  } else {
    std::optional<Ints> step = n.has(1) ? n.ints(1) : Ints{1};
    std::optional<int64_t> whole = size.constant();
    if (step && step->size() == 1 && (*step)[0] < 1)
      return n.invalid("shape", "parts of " + llvm::Twine((*step)[0]));
    if (!step || step->size() != 1 || !whole || *whole / (*step)[0] > int64_t(kMaxElements))
      return listSplit(n, *axis);
    for (int64_t start = 0; start < *whole; start += (*step)[0])
      parts.push_back(std::min((*step)[0], *whole - start));
  }
  bool keep = n.has(1) || n.intAttr("keepdims", 1);
  DimExpr start = 0;
  std::vector<Tracked> elements;
  for (const DimExpr &part : parts) {
    Value y = e.sliceAxis(x, *axis, start, part);
    if (!y)
      return failure();
    if (!keep) {
      Dims dims = dimsOf(y);
      dims.erase(dims.begin() + *axis);
      y = e.reshape(y, dims);
    }
    elements.emplace_back();
    elements.back().data = y;
    start = start + part;
  }
  return n.setTracked(0, Tracked::sequence(std::move(elements)));
}

LogicalResult concatenate(Node &n) {
  Emitter &e = n.e;
  if (n.tracked(0).list)
    return listConcat(n);
  std::optional<std::vector<Tracked>> elements = n.sequence(0);
  if (!elements)
    return failure();
  if (elements->empty())
    return n.invalid("shape", "an empty sequence has nothing to join");
  bool fresh = n.intAttr("new_axis", 0);
  std::vector<Value> parts;
  for (Tracked &element : *elements) {
    Value part = n.legalizer.dataOf(element);
    if (!part)
      return n.fail("dtype", "a sequence of what are no tensors", "sequences of tensors");
    parts.push_back(part);
  }
  std::optional<int64_t> axis = n.axis(n.intAttr("axis", 0), rankOf(parts[0]) + fresh);
  if (!axis)
    return failure();
  if (fresh)
    for (Value &part : parts)
      part = e.unsqueeze(part, {*axis});
  return n.done(e.concat(parts, *axis));
}

LogicalResult optional(Node &n) {
  if (n.has(0))
    return n.setTracked(0, n.tracked(0));
  Tracked nothing;
  nothing.isEmpty = true;
  return n.setTracked(0, std::move(nothing));
}

LogicalResult hasElement(Node &n) {
  if (n.has(0) && n.tracked(0).list)
    return listHasElement(n);
  return n.setHost(0, {n.e.b.getI1Type(), {}, {DimExpr(n.has(0) && !n.tracked(0).isEmpty)}});
}

LogicalResult getElement(Node &n) {
  if (!n.has(0) || n.tracked(0).isEmpty)
    return n.invalid("op", "the optional has no value");
  if (n.tracked(0).list)
    return listGetElement(n);
  return n.setTracked(0, n.tracked(0));
}

} // namespace

bool takesSequences(StringRef type) {
  return type.starts_with("Sequence") || type.starts_with("Optional") || type == "Identity" ||
         type == "ConcatFromSequence";
}

/// The body once for each element; operands that are tensors are the same each time.
bool Legalizer::mapSequence(Node &node) {
  std::optional<size_t> count;
  for (unsigned i = 0; i < node.numInputs(); ++i) {
    if (node.tracked(i).list)
      return mapList(node);
    if (!node.tracked(i).isSequence)
      continue;
    size_t size = node.tracked(i).elements.size();
    if (count && *count != size) {
      (void)node.invalid("shape", "sequences of " + llvm::Twine(*count) + " and " + llvm::Twine(size));
      return false;
    }
    count = size;
  }
  if (!count || node.op->getNumRegions() != 1) {
    (void)node.invalid("dtype", "SequenceMap wants a sequence and a body");
    return false;
  }
  if (*count > kMaxElements)
    return mapList(node);
  std::vector<std::vector<Tracked>> rows(node.numOutputs());
  for (size_t k = 0; k < *count; ++k) {
    std::vector<Tracked> arguments;
    for (unsigned i = 0; i < node.numInputs(); ++i)
      arguments.push_back(node.tracked(i).isSequence ? node.tracked(i).elements[k] : node.tracked(i));
    std::optional<std::vector<Tracked>> results =
        inlineBody(node, node.op->getRegion(0), arguments);
    node.reported |= !results;
    if (!results || results->size() != rows.size())
      return false;
    for (auto [row, result] : llvm::zip(rows, *results))
      row.push_back(result);
  }
  for (auto [i, row] : llvm::enumerate(rows))
    (void)node.setTracked(i, Tracked::sequence(std::move(row)));
  return true;
}

void addSequences(Handlers &h) {
  h["SequenceEmpty"] = empty;
  h["SequenceConstruct"] = construct;
  h["SequenceLength"] = length;
  h["SequenceAt"] = at;
  h["SequenceInsert"] = insert;
  h["SequenceErase"] = erase;
  h["SplitToSequence"] = split;
  h["ConcatFromSequence"] = concatenate;
  h["Optional"] = optional;
  h["OptionalHasElement"] = hasElement;
  h["OptionalGetElement"] = getElement;
}

} // namespace lathe::legal
