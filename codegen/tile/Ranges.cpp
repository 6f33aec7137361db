//===- Ranges.cpp - what a value may be over a box of indices --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One bound an op, beside the rules that evaluate it. Integers that arithmetic is done with must be small
// beside their type, so that no bound wraps: positions are, and of numbers in memory the kernel looks.
//
//===----------------------------------------------------------------------===//

#include "Ranges.h"

#include "Rules.h"

using namespace mlir;

namespace lathe::codegen {

//===- Truth values -----------------------------------------------------------------===//

Value Ranges::both(Value x, Value y) {
  auto cx = IndexMath::constantOf(x), cy = IndexMath::constantOf(y);
  if (cx || cy)
    return cx ? (*cx ? y : x) : (*cy ? x : y);
  return e.make<arith::AndIOp>(x, y);
}

Value Ranges::either(Value x, Value y) {
  auto cx = IndexMath::constantOf(x), cy = IndexMath::constantOf(y);
  if (cx || cy)
    return cx ? (*cx ? x : y) : (*cy ? y : x);
  return e.make<arith::OrIOp>(x, y);
}

Value Ranges::opposite(Value x) {
  if (auto c = IndexMath::constantOf(x))
    return truthOf(!*c);
  return e.make<arith::XOrIOp>(x, truthOf(true));
}

Box Ranges::broadcast(Value operand, ArrayRef<DimExpr> full, const Box &box) {
  Box out;
  std::vector<DimExpr> dims = dimsOf(operand);
  for (auto [d, size] : llvm::enumerate(dims)) {
    const size_t at = full.size() - dims.size() + d;
    if (size == DimExpr(1))
      out.push_back(Extent(ix.cst(0)));
    else if (size == full[at])
      out.push_back(box[at]);
    else // whether it is broadcast shows at run time
      out.push_back(whole(size));
  }
  return out;
}

Ranges::Truth Ranges::truth(Value v, const Box &box) {
  if (isInMemory(v))
    return truthByElement(v, box);
  Operation *op = v.getDefiningOp();
  if (std::optional<double> number = splatOf(v))
    return {truthOf(*number != 0), truthOf(*number != 0)};
  auto operand = [&](unsigned n) {
    return truth(op->getOperand(n), broadcast(op->getOperand(n), dimsOf(v), box));
  };
  if (auto compares = dyn_cast<CompareOp>(op))
    return compare(compares, box);
  if (isa<NotOp>(op)) {
    Truth x = operand(0);
    return {opposite(x.any), opposite(x.all)};
  }
  if (isa<AndOp, OrOp>(op)) {
    Truth x = operand(0), y = operand(1);
    return isa<AndOp>(op) ? Truth{both(x.all, y.all), both(x.any, y.any)}
                          : Truth{either(x.all, y.all), either(x.any, y.any)};
  }
  if (isa<SelectOp>(op)) {
    Truth c = operand(0), x = operand(1), y = operand(2);
    return {either(both(c.all, x.all), both(opposite(c.any), y.all)),
            either(both(c.any, x.any), both(opposite(c.all), y.any))};
  }
  if (isa<CastOp>(op) && elementTypeOf(op->getOperand(0)).isInteger(1))
    return truth(op->getOperand(0), box);
  if (std::optional<Box> from = moved(op, box))
    return truth(op->getOperand(0), *from);
  return otherTruth(v, box);
}

/// What no bound is known of is looked at element by element where that is less than key by key.
Ranges::Truth Ranges::otherTruth(Value v, const Box &box) {
  std::vector<DimExpr> dims = dimsOf(v);
  return !dims.empty() && dims.back() == keys ? unknown() : truthByElement(v, box);
}

Ranges::Truth Ranges::compare(CompareOp op, const Box &box) {
  using P = arith::CmpIPredicate;
  Value a = op.getA(), b = op.getB();
  std::vector<DimExpr> full = dimsOf(op.getResult());
  if (!isa<IntegerType>(elementTypeOf(a)) || elementTypeOf(a).isInteger(1))
    return otherTruth(op.getResult(), box);
  MaybeNumbers x = numbers(a, broadcast(a, full, box)), y = numbers(b, broadcast(b, full, box));
  if (!x || !y)
    return otherTruth(op.getResult(), box);
  auto less = [&](const Numbers &p, const Numbers &q, P than) {
    return Truth{ix.cmp(than, p.most, q.least), ix.cmp(than, p.least, q.most)};
  };
  Truth is;
  switch (op.getPredicate()) {
  case Predicate::Lt: is = less(*x, *y, P::slt); break;
  case Predicate::Le: is = less(*x, *y, P::sle); break;
  case Predicate::Gt: is = less(*y, *x, P::slt); break;
  case Predicate::Ge: is = less(*y, *x, P::sle); break;
  case Predicate::Eq: is = equal(*x, *y); break;
  case Predicate::Ne: {
    Truth same = equal(*x, *y);
    is = {opposite(same.any), opposite(same.all)};
    break;
  }
  }
  return whereWithin(is, *x, *y);
}

Ranges::Truth Ranges::whereWithin(Truth is, const Numbers &x, const Numbers &y) {
  for (const Numbers &n : {x, y})
    if (n.within)
      is = {both(is.all, n.within), either(is.any, opposite(n.within))};
  return is;
}

Ranges::Truth Ranges::equal(const Numbers &x, const Numbers &y) {
  using P = arith::CmpIPredicate;
  return {both(ix.cmp(P::eq, x.least, y.most), ix.cmp(P::eq, x.most, y.least)),
          both(ix.cmp(P::sle, x.least, y.most), ix.cmp(P::sle, y.least, x.most))};
}

Ranges::Truth Ranges::equal(Value v, const Box &box, Value w, const Box &other) {
  MaybeNumbers x = numbers(v, box), y = numbers(w, other);
  return x && y ? whereWithin(equal(*x, *y), *x, *y) : unknown();
}

//===- Integers -----------------------------------------------------------------------===//

/// For arithmetic: numbers of any magnitude become such with a bound, and a condition that it holds.
Ranges::MaybeNumbers Ranges::bounded(MaybeNumbers x, Value v) {
  if (!x || x->bound != kAnything)
    return x;
  const int64_t bound = int64_t(1) << (elementTypeOf(v).getIntOrFloatBitWidth() >= 64 ? 40 : 28);
  Value within = both(ix.cmp(arith::CmpIPredicate::sge, x->least, ix.cst(-bound)),
                      ix.cmp(arith::CmpIPredicate::sle, x->most, ix.cst(bound)));
  return Numbers{x->least, x->most, bound, x->within ? both(x->within, within) : within};
}

/// None where v's type may not hold them.
Ranges::MaybeNumbers Ranges::fitted(Numbers x, Value v) {
  auto type = dyn_cast<IntegerType>(elementTypeOf(v));
  if (!type || type.isUnsigned() || type.getWidth() < 32 || x.bound >= (int64_t(1) << (std::min(type.getWidth(), 62u) - 1)))
    return std::nullopt;
  return x;
}

Ranges::MaybeNumbers Ranges::numbers(Value v, const Box &box) {
  auto type = dyn_cast<IntegerType>(elementTypeOf(v));
  if (!type || (type.isUnsigned() && type.getWidth() >= 64))
    return std::nullopt;
  if (isInMemory(v))
    return numbersByElement(v, box);
  Operation *op = v.getDefiningOp();
  if (std::optional<double> number = splatOf(v)) {
    constexpr double kMost = int64_t(1) << 50;
    if (std::abs(*number) > kMost)
      return std::nullopt;
    Value one = ix.cst(int64_t(*number));
    return Numbers{one, one, std::abs(int64_t(*number)), {}};
  }
  if (auto counts = dyn_cast<IotaOp>(op)) {
    constexpr int64_t kMost = int64_t(1) << 40;
    const Extent &along = box[counts.getAxis()];
    const int64_t most = dimOf(counts.getResult(), counts.getAxis()).range().hi;
    return fitted({along.first, along.last, std::min(most, type.getWidth() >= 64 ? kMost : INT32_MAX / 2), {}}, v);
  }
  if (std::optional<Box> from = moved(op, box))
    return numbers(op->getOperand(0), *from);
  auto structured = dyn_cast<StructuredOpInterface>(op);
  return structured && structured.getOpClass() == OpClass::Pointwise ? arithmetic(op, box) : std::nullopt;
}

Ranges::MaybeNumbers Ranges::arithmetic(Operation *op, const Box &box) {
  Value v = op->getResult(0);
  auto operand = [&](unsigned n) {
    Value x = op->getOperand(n);
    return bounded(numbers(x, broadcast(x, dimsOf(v), box)), x);
  };
  auto constant = [](const MaybeNumbers &x) { return x->least == x->most ? IndexMath::constantOf(x->least) : std::nullopt; };
  if (isa<SelectOp>(op)) { // either of both
    MaybeNumbers x = operand(1), y = operand(2);
    if (!x || !y)
      return std::nullopt;
    Value within = x->within && y->within ? both(x->within, y->within) : x->within ? x->within : y->within;
    return Numbers{ix.min(x->least, y->least), ix.max(x->most, y->most), std::max(x->bound, y->bound), within};
  }
  if (op->getNumOperands() > 2 || !isa<IntegerType>(elementTypeOf(op->getOperand(0))) || elementTypeOf(op->getOperand(0)).isInteger(1))
    return std::nullopt;
  MaybeNumbers x = operand(0);
  if (!x)
    return std::nullopt;
  Value zero = ix.cst(0), least = x->least, most = x->most;
  if (isa<CastOp>(op))
    return fitted(*x, v);
  if (isa<NegOp>(op))
    return fitted({ix.sub(zero, most), ix.sub(zero, least), x->bound, x->within}, v);
  if (isa<AbsOp>(op)) {
    Value minus = ix.sub(zero, least);
    return fitted({ix.max(zero, ix.max(least, ix.sub(zero, most))), ix.max(most, minus), x->bound, x->within}, v);
  }
  if (op->getNumOperands() != 2)
    return std::nullopt;
  MaybeNumbers y = operand(1);
  if (!y || x->bound > kAnything / 4 || y->bound > kAnything / 4)
    return std::nullopt;
  Value within = x->within && y->within ? both(x->within, y->within) : x->within ? x->within : y->within;
  auto give = [&](Value from, Value to, int64_t bound) { return fitted({from, to, bound, within}, v); };
  if (isa<AddOp>(op))
    return give(ix.add(least, y->least), ix.add(most, y->most), x->bound + y->bound);
  if (isa<SubOp>(op))
    return give(ix.sub(least, y->most), ix.sub(most, y->least), x->bound + y->bound);
  if (isa<MaxOp>(op))
    return give(ix.max(least, y->least), ix.max(most, y->most), std::max(x->bound, y->bound));
  if (isa<MinOp>(op))
    return give(ix.min(least, y->least), ix.min(most, y->most), std::max(x->bound, y->bound));
  std::optional<int64_t> by = constant(y);
  if (isa<MulOp>(op) && !by && constant(x)) {
    std::swap(x, y);
    by = constant(y), least = x->least, most = x->most;
  }
  if (!by || *by <= 0)
    return std::nullopt;
  Value divisor = ix.cst(*by);
  if (isa<MulOp>(op) && x->bound < (int64_t(1) << 50) / *by)
    return give(ix.mul(least, divisor), ix.mul(most, divisor), x->bound * *by);
  if (isa<DivOp>(op)) // truncated: it does not shrink from a number to the next
    return give(e.make<arith::DivSIOp>(least, divisor), e.make<arith::DivSIOp>(most, divisor), x->bound);
  if (auto mod = dyn_cast<ModOp>(op); mod && !mod.getFmod()) {
    Value shift = ix.cst((x->bound / *by + 1) * *by); // so that all are positive
    Value low = ix.div(ix.add(least, shift), divisor), high = ix.div(ix.add(most, shift), divisor);
    Value same = ix.cmp(arith::CmpIPredicate::eq, low, high), base = ix.sub(ix.mul(low, divisor), shift);
    return give(ix.select(same, ix.sub(least, base), zero), ix.select(same, ix.sub(most, base), ix.cst(*by - 1)), *by);
  }
  return std::nullopt;
}

//===- Movement -----------------------------------------------------------------------===//

/// The box of operand 0 whose elements those of a box of the result are; none where the op moves nothing.
std::optional<Box> Ranges::moved(Operation *op, const Box &box) {
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    Box out(box.size());
    for (auto [d, p] : llvm::enumerate(transpose.getPerm()))
      out[p] = box[d];
    return out;
  }
  if (isa<BroadcastToOp>(op))
    return broadcast(op->getOperand(0), dimsOf(op->getResult(0)), box);
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return reshaped(reshape, box);
  if (auto gather = dyn_cast<GatherOp>(op))
    return gathered(gather, box);
  if (isa<BindDimsOp>(op) && op->getNumResults() == 1)
    return box;
  if (auto slice = dyn_cast<SliceOp>(op)) {
    Box out;
    for (auto [d, x] : llvm::enumerate(box)) {
      const int64_t step = slice.getSteps()[d];
      if (step < 0)
        return std::nullopt;
      Value start = ix.dim(cast<DimAttr>(slice.getStarts()[d]).expr());
      Value first = ix.add(start, ix.mul(x.first, step));
      out.push_back(x.one() ? Extent(first) : Extent(first, ix.add(start, ix.mul(x.last, step))));
    }
    return out;
  }
  return std::nullopt;
}

/// Dimensions that are joined or split are, together, a range of numbers of elements.
Box Ranges::reshaped(ReshapeOp op, const Box &box) {
  std::vector<DimExpr> from = dimsOf(op.getResult()), to = dimsOf(op.getX());
  Box out(to.size(), Extent(ix.cst(0)));
  overReshapedGroups(from, to, [&](size_t f0, size_t f1, size_t t0, size_t t1) {
    if (f1 - f0 == 1 && t1 - t0 == 1) {
      out[t0] = box[f0];
      return;
    }
    auto flat = [&](bool last) {
      Value at = ix.cst(0);
      for (size_t k = f0; k < f1; ++k)
        at = ix.add(ix.mul(at, ix.dim(from[k])), last ? box[k].last : box[k].first);
      return at;
    };
    ArrayRef<DimExpr> sizes = ArrayRef(to).slice(t0, t1 - t0);
    Indices first = delinearize(e, Index(flat(false)), sizes);
    if (llvm::all_of(llvm::seq(f0, f1), [&](size_t k) { return box[k].one(); })) {
      for (size_t k = t0; k < t1; ++k)
        out[k] = Extent(first[k - t0].base);
      return;
    }
    Indices last = delinearize(e, Index(flat(true)), sizes);
    Value same = truthOf(true); // in the dimensions before
    for (size_t k = t0; k < t1; ++k) {
      Value begin = first[k - t0].base, end = last[k - t0].base;
      Extent all = whole(to[k]);
      out[k] = begin == end ? Extent(begin) : Extent(ix.select(same, begin, all.first), ix.select(same, end, all.last));
      same = both(same, ix.cmp(arith::CmpIPredicate::eq, begin, end));
    }
  });
  return out;
}

Box Ranges::gathered(GatherOp op, const Box &box) {
  using P = arith::CmpIPredicate;
  const size_t axis = op.getAxis(), count = dimsOf(op.getIndices()).size();
  Box inner(box.begin() + axis, box.begin() + axis + count), out(box.begin(), box.begin() + axis);
  Extent all = whole(dimOf(op.getX(), axis));
  MaybeNumbers at = numbers(op.getIndices(), inner);
  if (!at) {
    out.push_back(all);
  } else {
    // What is negative counts from the end, what is out of range is an error elsewhere.
    Value inside = both(ix.cmp(P::sge, at->least, ix.cst(0)), ix.cmp(P::sle, at->most, all.last));
    if (at->within)
      inside = both(inside, at->within);
    out.push_back({ix.select(inside, at->least, all.first), ix.select(inside, at->most, all.last)});
  }
  out.append(box.begin() + axis + count, box.end());
  return out;
}

//===- Element by element -----------------------------------------------------------===//

/// The dimension along which elements lie one after another.
static size_t lanesAlong(Value v) {
  std::vector<DimExpr> dims = dimsOf(v);
  size_t at = dims.size();
  while (at > 1 && dims[at - 1] == DimExpr(1))
    --at;
  return at - 1;
}

/// All elements of a box, lanes of them along that dimension.
SmallVector<Value> Ranges::overBox(Value v, const Box &box, ValueRange inits,
                                   function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  std::function<SmallVector<Value>(Indices, ValueRange)> from = [&](Indices at, ValueRange args) -> SmallVector<Value> {
    if (at.size() == box.size())
      return body(e.eval(v, at), args);
    const Extent &x = box[at.size()];
    auto with = [&](const Index &i) {
      Indices next = at;
      next.push_back(i);
      return next;
    };
    if (x.one())
      return from(with(Index(x.first)), args);
    Value end = ix.add(x.last, 1), behind = x.first;
    SmallVector<Value> out(args);
    if (at.size() == lanesAlong(v)) {
      behind = ix.sub(end, ix.rem(ix.sub(end, x.first), ix.cst(e.width)));
      out = e.loop(x.first, behind, ix.cst(e.width), out, [&](Value i, ValueRange a) { return from(with(Index(i, 1)), a); });
    }
    return e.loop(behind, end, ix.cst(1), out, [&](Value i, ValueRange a) { return from(with(Index(i)), a); });
  };
  return from({}, inits);
}

Ranges::Places Ranges::keyOf(const Box &box) {
  Places key;
  for (const Extent &x : box)
    key.insert(key.end(), {x.first.getAsOpaquePointer(), x.last.getAsOpaquePointer()});
  return key;
}

/// Whether a box has at most `most` elements.
Value Ranges::isFew(const Box &box) {
  Value count = ix.cst(1);
  for (const Extent &x : box)
    if (!x.one())
      count = ix.mul(count, ix.add(ix.sub(x.last, x.first), 1));
  return ix.cmp(arith::CmpIPredicate::sle, count, ix.cst(most));
}

Ranges::Truth Ranges::truthByElement(Value v, const Box &box) {
  if (llvm::all_of(box, [](const Extent &x) { return x.one(); })) {
    Indices at;
    for (const Extent &x : box)
      at.push_back(Index(x.first));
    Value is = e.lane(e.eval(v, at), 0);
    return {is, is};
  }
  auto look = [&] {
    return overBox(v, box, {truthOf(true), truthOf(false)}, [&](Value x, ValueRange args) {
      auto joined = [&](vector::CombiningKind kind) { return e.isVector(x) ? e.make<vector::ReductionOp>(kind, x) : x; };
      return SmallVector<Value>{e.make<arith::AndIOp>(args[0], joined(vector::CombiningKind::AND)),
                                e.make<arith::OrIOp>(args[1], joined(vector::CombiningKind::OR))};
    });
  };
  Type flag = e.b.getI1Type();
  SmallVector<Value> found =
      most ? e.ifElse(isFew(box), {flag, flag}, look, [&] { return SmallVector<Value>{truthOf(false), truthOf(true)}; }) : look();
  return {found[0], found[1]};
}

Ranges::Numbers Ranges::numbersByElement(Value v, const Box &box) {
  const bool isUnsigned = Evaluator::isUnsigned(v);
  auto number = [&](Value x) { return e.toIndex(x, isUnsigned); };
  if (llvm::all_of(box, [](const Extent &x) { return x.one(); })) {
    Indices at;
    for (const Extent &x : box)
      at.push_back(Index(x.first));
    Value is = number(e.lane(e.eval(v, at), 0));
    return {is, is, kAnything, {}};
  }
  if (auto known = looked.find({v.getAsOpaquePointer(), keyOf(box)}); known != looked.end())
    return known->second;
  auto look = [&] {
    const bool lanes = !box[lanesAlong(v)].one();
    auto shaped = [&](Value x) { return lanes ? e.splat(x) : x; };
    Value least = shaped(e.constantInt(e.b.getI64Type(), INT64_MAX)), greatest = shaped(e.constantInt(e.b.getI64Type(), INT64_MIN));
    SmallVector<Value> found = overBox(v, box, {least, greatest}, [&](Value x, ValueRange args) {
      Value wide = shaped(e.cast(x, elementTypeOf(v), e.b.getI64Type(), false));
      return SmallVector<Value>{e.make<arith::MinSIOp>(args[0], wide), e.make<arith::MaxSIOp>(args[1], wide)};
    });
    auto one = [&](ReduceKind kind, Value x) { return e.toIndex(e.horizontal(kind, x, false), false); };
    return SmallVector<Value>{one(ReduceKind::Min, found[0]), one(ReduceKind::Max, found[1])};
  };
  Type index = e.b.getIndexType();
  Value few = most ? isFew(box) : Value();
  SmallVector<Value> found =
      few ? e.ifElse(few, {index, index}, look, [&] { return SmallVector<Value>{ix.cst(0), ix.cst(0)}; }) : look();
  Numbers numbers{found[0], found[1], kAnything, few};
  looked.insert({{v.getAsOpaquePointer(), keyOf(box)}, numbers});
  return numbers;
}

} // namespace lathe::codegen
