//===- PageStatesElements.cpp - elements of masks and positions -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An element of a mask is a formula over its row of the batch, query and key, and over the sizes: integers
// are sums of those, conditions are joined from `sum <= 0`, numbers that are chosen by conditions are
// choices. What the elements of caches are is found in the same way (PageStatesData.cpp).
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

#include "lathe/passes/EvaluateOp.h"

using namespace mlir;

namespace lathe::paging {

static Element integerOf(DimExpr value) { return {Element::Kind::Integer, std::move(value), 0, {}, {}, {}, {}, {}}; }
static Element realOf(double value) { return {Element::Kind::Real, {}, value, {}, {}, {}, {}, {}}; }
static Element truthOf(Condition value) { return {Element::Kind::Truth, {}, 0, std::move(value), {}, {}, {}, {}}; }

std::optional<Element> Elements::fail(Operation *op, const std::string &why) {
  if (!stuck) {
    stuck = op;
    reason = why;
  }
  return std::nullopt;
}

std::optional<Condition> Elements::truth(const Element &element) {
  switch (element.kind) {
  case Element::Kind::Truth:
    return element.truth;
  case Element::Kind::Real:
    return element.real != 0 ? Condition{} : Condition{Condition::Kind::False, {}, {}};
  case Element::Kind::Datum:
    break;
  case Element::Kind::Integer:
    return either(atMostZero(element.integer + DimExpr(1)), atMostZero(DimExpr(1) - element.integer));
  case Element::Kind::Choice: {
    auto yes = truth(*element.yes), no = truth(*element.no);
    if (!yes || !no)
      return std::nullopt;
    return either(both(element.truth, *yes), both(negated(element.truth), *no));
  }
  }
  return std::nullopt;
}

std::optional<Element> Elements::broadcast(Value value, ArrayRef<DimExpr> to, ArrayRef<DimExpr> index) {
  std::vector<DimExpr> dims = sizes(value), at;
  for (size_t d = 0; d < dims.size(); ++d) {
    const size_t target = index.size() - dims.size() + d;
    const bool single = dims[d] == DimExpr(1);
    if (!single && dims[d] != known(to[target]))
      return fail(value.getDefiningOp() ? value.getDefiningOp() : value.getParentBlock()->getParentOp(),
                  "a size " + dims[d].str() + " is repeated to " + to[target].str() + " or not, as the run has it");
    at.push_back(single ? DimExpr(0) : index[target]);
  }
  return of(value, at);
}

std::optional<Element> Elements::of(Value value, ArrayRef<DimExpr> index) {
  const bool real = isa<FloatType>(elementTypeOf(value));
  auto input = dyn_cast<BlockArgument>(value);
  if (data && real && (input || orderOfRows(decoder, sizes(value), index)))
    return Element{Element::Kind::Datum, DimExpr(1), 0, {}, {}, {}, value, index.vec()};
  if (input)
    return argument(input, index);
  Operation *op = value.getDefiningOp();
  if (data && real)
    moves.insert(op);
  if (auto number = op->getNumResults() == 1 ? numberOf(value) : std::nullopt) {
    if (isa<FloatType>(elementTypeOf(value)))
      return realOf(*number);
    if (elementTypeOf(value).isInteger(1))
      return truthOf({*number != 0 ? Condition::Kind::True : Condition::Kind::False, {}, {}});
    return integerOf(DimExpr(int64_t(*number)));
  }
  if (auto given = dyn_cast<ConstantOp>(op))
    return constant(given, index);
  if (auto iota = dyn_cast<IotaOp>(op))
    return integerOf(index[iota.getAxis()]);
  if (auto sizes = dyn_cast<DimValueOp>(op)) {
    std::optional<int64_t> which = index.empty() ? 0 : index[0].constant();
    if (!which || *which < 0 || *which >= int64_t(sizes.getDims().size()))
      return fail(op, "which size it reads depends on the index");
    return integerOf(known(cast<DimAttr>(sizes.getDims()[*which]).expr()));
  }
  if (auto from = dyn_cast<DimFromOp>(op))
    return of(from.getX(), index);
  if (isa<GatherOp, GatherNdOp, GatherElementsOp>(op))
    return gathered(op, index);
  if (isa<ScatterNdOp, ScatterElementsOp>(op))
    return scattered(op, index);
  if (auto pad = dyn_cast<PadOp>(op))
    return padded(pad, index);
  if (auto scan = dyn_cast<ScanOp>(op))
    return counted(scan, index);
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return summed(reduce, index);
  if (isa<ReshapeOp, TransposeOp, BroadcastToOp, SliceOp, ConcatOp>(op))
    return moved(op, index);
  return computed(op, index);
}

std::optional<Element> Elements::argument(BlockArgument argument, ArrayRef<DimExpr> index) {
  Operation *at = decoder.func;
  auto is = [](const DimExpr &expr, const char *name) { return expr == DimExpr::symbol(name); };
  bool row = index.size() == 2 &&
             (is(index[0], kBatch) || (dimOf(argument, 0) == DimExpr(1) && index[0] == DimExpr(0)));
  if (decoder.isPositions(argument)) {
    // Rows are of one size: each has the positions of the first one.
    const DimExpr &place = index.back();
    bool rowOrFirst = index.size() == 1 || row || index[0] == DimExpr(0);
    if (rowOrFirst && (is(place, kQuery) || place == DimExpr(0)))
      return integerOf(decoder.past + place);
    return fail(at, "input '" + nameOf(argument) + "' is read at the place of another token");
  }
  if (decoder.isPadding(argument)) {
    if (!row || !is(index[1], kKey))
      return fail(at, "padding of row " + (index.empty() ? "none" : index[0].str()) + " and key " +
                          (index.size() < 2 ? "none" : index[1].str()) + " of input '" + nameOf(argument) +
                          "' hides key " + kKey + " of row " + kBatch);
    if (elementTypeOf(argument).isInteger(1))
      return truthOf({});
    return integerOf(DimExpr(1));
  }
  if (auto name = decoder.numberName(argument); name && (data || decoder.known.count(*name)))
    return integerOf(known(DimExpr::symbol(*name)));
  return fail(at, "it depends on input '" + nameOf(argument) + "', which is neither positions nor padding");
}

std::optional<Element> Elements::constant(ConstantOp op, ArrayRef<DimExpr> index) {
  std::vector<DimExpr> dims = dimsOf(op.getY());
  auto host = hostTensorOf(op.getValue(), op.getType(), op->getContext());
  if (!host.ok())
    return fail(op, "a constant without values");
  int64_t at = 0;
  bool known = true;
  std::optional<size_t> along; // the one dimension whose index is not known
  for (size_t d = 0; d < dims.size(); ++d) {
    auto place = index[d].constant();
    known &= place.has_value() || !along;
    if (!place)
      along = d;
    at = at * *dims[d].constant() + place.value_or(0);
  }
  const bool integers = isa<IntegerType>(elementTypeOf(op.getY()));
  if (!known)
    return fail(op, "which element of a constant is read depends on the index");
  if (!along)
    return integers ? integerOf(DimExpr(host->integer(at))) : realOf(host->real(at));
  // Numbers that grow evenly.
  int64_t stride = 1;
  for (size_t d = *along + 1; d < dims.size(); ++d)
    stride *= *dims[d].constant();
  const int64_t count = *dims[*along].constant();
  if (!integers && !data && index[*along] == DimExpr::symbol(kHead))
    return Element{Element::Kind::Datum, DimExpr(1), 0, {}, {}, {}, op.getY(), index.vec()};
  if (!integers || count < 2)
    return fail(op, "which element of a constant is read depends on the index");
  int64_t first = host->integer(at), step = host->integer(at + stride) - first;
  for (int64_t i = 0; i < count; ++i)
    if (host->integer(at + i * stride) != first + i * step)
      return fail(op, "the numbers of a constant do not grow evenly");
  return integerOf(DimExpr(first) + DimExpr(step) * index[*along]);
}

/// flat / by, where the remainder is known to be a query, key, head or row, or none.
DimExpr Elements::quotient(const DimExpr &flat, const DimExpr &by) const {
  if (auto whole = flat.exactDiv(by))
    return *whole;
  const std::pair<const char *, DimExpr> known[] = {
      {kKey, decoder.keys}, {kQuery, decoder.tokens}, {kBatch, decoder.batch}};
  for (const auto &[name, size] : known)
    if (by == size)
      if (auto whole = (flat - DimExpr::symbol(name)).exactDiv(by))
        return *whole;
  if (heads && by == *heads)
    if (auto whole = (flat - DimExpr::symbol(kHead)).exactDiv(by))
      return *whole;
  return DimExpr::floorDiv(flat, by);
}

std::optional<Element> Elements::moved(Operation *op, ArrayRef<DimExpr> index) {
  Value x = op->getOperand(0);
  std::vector<DimExpr> from = sizes(x), to = sizes(op->getResult(0)), at(from.size(), DimExpr(0));
  if (isa<BroadcastToOp>(op))
    return broadcast(x, to, index);
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (auto [d, source] : llvm::enumerate(transpose.getPerm()))
      at[source] = index[d];
    return of(x, at);
  }
  if (auto slice = dyn_cast<SliceOp>(op)) {
    for (size_t d = 0; d < from.size(); ++d)
      at[d] = known(cast<DimAttr>(slice.getStarts()[d]).expr()) + index[d] * DimExpr(slice.getSteps()[d]);
    return of(x, at);
  }
  if (auto concat = dyn_cast<ConcatOp>(op)) {
    const size_t axis = concat.getAxis();
    at.assign(index.begin(), index.end());
    if (auto place = index[axis].constant()) { // one of them, if they are of known sizes ahead of it
      int64_t begin = 0;
      for (Value input : concat.getInputs()) {
        auto size = sizes(input)[axis].constant();
        if (!size)
          break;
        if (*place < begin + *size) {
          at[axis] = DimExpr(*place - begin);
          return of(input, at);
        }
        begin += *size;
      }
    }
    std::optional<Element> joined;
    DimExpr end(0);
    SmallVector<DimExpr> ends;
    for (Value input : concat.getInputs())
      ends.push_back(end = end + sizes(input)[axis]);
    // From the last input on: an index below an end is of that input or one ahead.
    for (size_t i = concat.getInputs().size(); i-- > 0;) {
      DimExpr begin = i ? ends[i - 1] : DimExpr(0);
      Condition before = joined ? atMostZero(index[axis] + DimExpr(1) - ends[i]) : Condition{};
      if (before.kind == Condition::Kind::False)
        continue;
      at[axis] = index[axis] - begin;
      auto part = of(concat.getInputs()[i], at);
      if (!part)
        return std::nullopt;
      joined = joined ? choose(before, *part, *joined) : *part;
    }
    return joined;
  }
  // Elements in order under other sizes; those of 1 have one place.
  DimExpr flat(0);
  for (size_t d = 0; d < to.size(); ++d)
    flat = flat * to[d] + (to[d] == DimExpr(1) ? DimExpr(0) : index[d]);
  for (size_t d = from.size(); d-- > 0;) {
    if (from[d] == DimExpr(1))
      continue;
    bool last = llvm::all_of(ArrayRef(from).take_front(d), [](const DimExpr &dim) { return dim == DimExpr(1); });
    if (last) {
      at[d] = flat;
      break;
    }
    DimExpr rest = quotient(flat, from[d]);
    at[d] = flat - rest * from[d];
    flat = rest;
  }
  return of(x, at);
}

std::optional<Element> Elements::gathered(Operation *op, ArrayRef<DimExpr> index) {
  Value x = op->getOperand(0), indices = op->getOperand(1);
  if (auto gather = dyn_cast<GatherElementsOp>(op)) {
    auto element = of(indices, index);
    return element ? readAt(x, index.vec(), gather.getAxis(), *element) : std::nullopt;
  }
  const size_t rank = dimsOf(indices).size();
  std::vector<DimExpr> at, place;
  auto addPlace = [&](ArrayRef<DimExpr> where) -> bool {
    auto element = of(indices, where);
    if (!element || element->kind != Element::Kind::Integer) {
      fail(op, "the index that it reads is no sum of sizes, query and key");
      return false;
    }
    at.push_back(element->integer);
    return true;
  };
  if (auto gather = dyn_cast<GatherOp>(op)) {
    const size_t axis = gather.getAxis();
    at.assign(index.begin(), index.begin() + axis);
    if (!addPlace(index.slice(axis, rank)))
      return std::nullopt;
    at.insert(at.end(), index.begin() + axis + rank, index.end());
  } else {
    if (cast<GatherNdOp>(op).getBatchDims() != 0)
      return fail(op, "a gather of a batch");
    place.assign(index.begin(), index.begin() + rank - 1);
    place.push_back(DimExpr(0));
    for (int64_t i = 0, n = dimOf(indices, rank - 1).constant().value_or(0); i < n; ++i) {
      place.back() = DimExpr(i);
      if (!addPlace(place))
        return std::nullopt;
    }
    at.insert(at.end(), index.begin() + rank - 1, index.end());
  }
  // A single row has one place.
  for (auto [d, dim] : llvm::enumerate(sizes(x)))
    if (dim == DimExpr(1))
      at[d] = DimExpr(0);
  return of(x, at);
}

std::vector<DimExpr> Elements::sizes(Value value) const {
  std::vector<DimExpr> dims = dimsOf(value);
  for (DimExpr &dim : dims)
    dim = known(dim);
  return dims;
}

std::optional<Element> Elements::converted(CastOp op, const Element &x) {
  if (x.kind == Element::Kind::Datum)
    return fail(op, "it converts a cache");
  if (x.kind == Element::Kind::Choice) {
    auto yes = converted(op, *x.yes), no = converted(op, *x.no);
    return yes && no ? std::optional(choose(x.truth, *yes, *no)) : std::nullopt;
  }
  Type to = elementTypeOf(op.getY());
  if (to.isInteger(1)) {
    auto condition = truth(x);
    return condition ? std::optional(truthOf(*condition)) : std::nullopt;
  }
  const bool real = isa<FloatType>(to);
  if (x.kind == Element::Kind::Truth)
    return choose(x.truth, real ? realOf(1) : integerOf(DimExpr(1)), real ? realOf(0) : integerOf(DimExpr(0)));
  if (x.kind == Element::Kind::Integer) {
    if (!real)
      return x;
    if (auto number = x.integer.constant())
      return realOf(double(*number));
    // Exact up to 2^24 in f32; ALiBi and masks compute so.
    Type to32 = elementTypeOf(op.getY());
    return to32.isF32() || to32.isF64() ? std::optional(x)
                                        : fail(op, "a position becomes a number of few digits: " + x.integer.str());
  }
  return real ? std::optional(x) : fail(op, "a real number becomes an integer");
}

std::optional<Element> Elements::apply(Operation *op, const Element &a, const Element &b) {
  using Kind = Element::Kind;
  for (bool second : {false, true}) {
    const Element &side = second ? b : a;
    if (side.kind != Kind::Choice)
      continue;
    auto yes = apply(op, second ? a : *a.yes, second ? *b.yes : b), no = apply(op, second ? a : *a.no, second ? *b.no : b);
    return yes && no ? std::optional(choose(side.truth, *yes, *no)) : std::nullopt;
  }
  if (auto compare = dyn_cast<CompareOp>(op)) {
    if (a.kind == Kind::Integer && b.kind == Kind::Integer) {
      DimExpr less = a.integer - b.integer;
      Condition le = atMostZero(less), ge = atMostZero(DimExpr(0) - less);
      switch (compare.getPredicate()) {
      case Predicate::Eq:
        return truthOf(both(le, ge));
      case Predicate::Ne:
        return truthOf(either(negated(le), negated(ge)));
      case Predicate::Lt:
        return truthOf(negated(ge));
      case Predicate::Le:
        return truthOf(le);
      case Predicate::Gt:
        return truthOf(negated(le));
      case Predicate::Ge:
        return truthOf(ge);
      }
    }
    if (a.kind == Kind::Real && b.kind == Kind::Real) {
      auto say = [](bool holds) { return truthOf({holds ? Condition::Kind::True : Condition::Kind::False, {}, {}}); };
      switch (compare.getPredicate()) {
      case Predicate::Eq:
        return say(a.real == b.real);
      case Predicate::Ne:
        return say(a.real != b.real);
      case Predicate::Lt:
        return say(a.real < b.real);
      case Predicate::Le:
        return say(a.real <= b.real);
      case Predicate::Gt:
        return say(a.real > b.real);
      case Predicate::Ge:
        return say(a.real >= b.real);
      }
    }
    return fail(op, "a comparison of other than integers or numbers");
  }
  if (isa<AndOp, OrOp>(op)) {
    auto x = truth(a), y = truth(b);
    if (!x || !y)
      return std::nullopt;
    return truthOf(isa<AndOp>(op) ? both(*x, *y) : either(*x, *y));
  }
  if (a.kind == Kind::Integer && b.kind == Kind::Integer) {
    if (isa<AddOp>(op))
      return integerOf(a.integer + b.integer);
    if (isa<SubOp>(op))
      return integerOf(a.integer - b.integer);
    if (isa<MulOp>(op))
      return integerOf(a.integer * b.integer);
  } else if (a.kind == Kind::Datum || b.kind == Kind::Datum) {
    // A number of a head by a distance, with what hides keys on top of it.
    const Element &datum = a.kind == Kind::Datum ? a : b, &other = a.kind == Kind::Datum ? b : a;
    if (isa<MulOp>(op) && other.kind == Kind::Integer) {
      Element product = datum;
      product.integer = product.integer * other.integer;
      return product;
    }
    if (isa<AddOp>(op) && other.kind == Kind::Real && (other.real == 0 || other.real <= kHides))
      return other.real == 0 ? datum : other;
  } else if (a.kind == Kind::Real && b.kind == Kind::Real) {
    if (isa<AddOp>(op))
      return realOf(a.real + b.real);
    if (isa<SubOp>(op))
      return realOf(a.real - b.real);
    if (isa<MulOp>(op))
      return realOf(a.real * b.real);
    if (isa<MinOp>(op))
      return realOf(std::min(a.real, b.real));
    if (isa<MaxOp>(op))
      return realOf(std::max(a.real, b.real));
  }
  return fail(op, "no rule says what it makes of positions and masks");
}

std::optional<Element> Elements::computed(Operation *op, ArrayRef<DimExpr> index) {
  SmallVector<Element> operands;
  if (!isClass(op, OpClass::Pointwise) || op->getNumResults() != 1)
    return fail(op, "no rule says what it makes of positions and masks");
  for (Value operand : op->getOperands()) {
    auto element = broadcast(operand, sizes(op->getResult(0)), index);
    if (!element)
      return std::nullopt;
    operands.push_back(*element);
  }
  if (auto conversion = dyn_cast<CastOp>(op))
    return converted(conversion, operands[0]);
  if (isa<NotOp>(op)) {
    auto condition = truth(operands[0]);
    return condition ? std::optional(truthOf(negated(*condition))) : std::nullopt;
  }
  if (isa<NegOp>(op))
    return operands[0].kind == Element::Kind::Integer ? std::optional(integerOf(DimExpr(0) - operands[0].integer))
           : operands[0].kind == Element::Kind::Real  ? std::optional(realOf(-operands[0].real))
                                                      : fail(op, "a choice is negated");
  if (isa<SelectOp>(op)) {
    auto condition = truth(operands[0]);
    return condition ? std::optional(choose(*condition, operands[1], operands[2])) : std::nullopt;
  }
  if (operands.size() == 2)
    return apply(op, operands[0], operands[1]);
  return fail(op, "no rule says what it makes of positions and masks");
}

} // namespace lathe::paging
