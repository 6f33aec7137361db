//===- MovementRules.cpp - values moved, not computed ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules that remap indices: transpose, reshape, slice, concat, pad and the
// sources (constants, iota, sizes).
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

using namespace mlir;

namespace lathe::codegen {

//===- Index helpers ------------------------------------------------------------===//

Indices delinearize(Evaluator &e, const Index &flat, ArrayRef<DimExpr> dims) {
  Indices out(dims.size());
  Index rest = flat;
  // The outermost dimension that is not 1 takes what is left.
  size_t first = 0;
  while (first + 1 < dims.size() && dims[first] == DimExpr(1))
    ++first;
  for (size_t d = dims.size(); d-- > first + 1;) {
    auto [q, r] = e.ix.divRem(rest, dims[d]);
    out[d] = r;
    rest = q;
  }
  for (size_t d = 0; d < first && d < dims.size(); ++d)
    out[d] = Index(e.ix.cst(0));
  if (!dims.empty())
    out[first] = rest;
  return out;
}

void overReshapedGroups(ArrayRef<DimExpr> from, ArrayRef<DimExpr> to,
                        function_ref<void(size_t, size_t, size_t, size_t)> body) {
  int64_t i = static_cast<int64_t>(to.size()) - 1, j = static_cast<int64_t>(from.size()) - 1;
  const DimExpr one(1);
  while (i >= 0 || j >= 0) {
    if (i >= 0 && to[i] == one) {
      --i;
      continue;
    }
    if (j >= 0 && from[j] == one) {
      --j;
      continue;
    }
    if (i < 0 || j < 0)
      break;
    // The smallest groups of dimensions with equal products.
    int64_t i0 = i, j0 = j;
    DimExpr pi = to[i], pj = from[j];
    while (!(pi == pj) && (i0 > 0 || j0 > 0)) {
      bool growTo = j0 == 0 || (i0 > 0 && pj.exactDiv(pi).has_value());
      bool growFrom = i0 == 0 || (j0 > 0 && pi.exactDiv(pj).has_value());
      auto ci = pi.constant(), cj = pj.constant();
      if (ci && cj && i0 > 0 && j0 > 0) {
        growTo = *ci < *cj;
        growFrom = !growTo;
      } else if (!growTo && !growFrom) {
        growTo = i0 > 0;
        growFrom = j0 > 0;
      }
      if (growTo && i0 > 0)
        pi = pi * to[--i0];
      if (growFrom && j0 > 0)
        pj = pj * from[--j0];
    }
    body(j0, j + 1, i0, i + 1);
    i = i0 - 1;
    j = j0 - 1;
  }
}

Indices reshapeIndex(Evaluator &e, const std::vector<DimExpr> &from, const std::vector<DimExpr> &to,
                     const Indices &idx) {
  Indices out(to.size(), Index(e.ix.cst(0)));
  overReshapedGroups(from, to, [&](size_t fromBegin, size_t fromEnd, size_t toBegin, size_t toEnd) {
    if (fromEnd - fromBegin == 1 && toEnd - toBegin == 1) {
      out[toBegin] = idx[fromBegin];
      return;
    }
    Index flat(e.ix.cst(0));
    DimExpr stride(1);
    for (size_t k = fromEnd; k-- > fromBegin;) {
      flat = e.ix.add(flat, e.ix.mul(idx[k], stride));
      stride = stride * from[k];
    }
    llvm::copy(delinearize(e, flat, ArrayRef<DimExpr>(to).slice(toBegin, toEnd - toBegin)), out.begin() + toBegin);
  });
  return out;
}

Value evalInside(Evaluator &e, Value x, const Indices &idx, Value otherwise) {
  IndexMath &ix = e.ix;
  std::vector<DimExpr> dims = dimsOf(x);
  using P = arith::CmpIPredicate;
  // One unsigned comparison a dimension covers both ends.
  auto inside = [&](const Indices &at) {
    Value all;
    for (size_t d = 0; d < dims.size(); ++d) {
      Value ok = ix.cmp(P::ult, at[d].base, ix.dim(dims[d]));
      all = all ? e.make<arith::AndIOp>(all, ok) : ok;
    }
    return all ? all : e.constantInt(e.b.getI1Type(), 1);
  };
  if (uniform(idx))
    return e.ifElse(
        inside(idx), [&] { return e.eval(x, idx); }, [&] { return otherwise; });
  bool regular = true;
  Indices last = idx;
  for (Index &i : last) {
    regular &= !i.lanes && i.stride >= 0;
    if (!i.lanes)
      i = Index(ix.add(i.base, ix.cst(i.stride * (e.active - 1))));
  }
  Type scalar = Evaluator::computeType(elementTypeOf(x));
  auto slow = [&] {
    return e.lanewise(scalar, idx, [&](const Indices &one) {
      return e.ifElse(
          inside(one), [&] { return e.eval(x, one); }, [&] { return otherwise; });
    });
  };
  if (!regular)
    return slow();
  Indices first = idx;
  for (Index &i : first)
    i.stride = 0;
  Value all = e.make<arith::AndIOp>(inside(first), inside(last));
  return e.ifElse(
      all, [&] { return e.splat(e.eval(x, idx)); }, slow);
}

namespace {

//===- Affine movement ------------------------------------------------------------===//

Value sameRule(Evaluator &e, OpResult r, const Indices &idx) {
  return e.eval(r.getOwner()->getOperand(0), idx);
}

Value transposeRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<TransposeOp>(r.getOwner());
  Indices at(idx.size());
  for (auto [d, p] : llvm::enumerate(op.getPerm()))
    at[p] = idx[d];
  return e.eval(op.getX(), at);
}

Value reshapeRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = r.getOwner()->getOperand(0);
  return e.eval(x, reshapeIndex(e, dimsOf(r), dimsOf(x), idx));
}

Value broadcastRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = r.getOwner()->getOperand(0);
  return e.eval(x, operandIndex(e, x, r, idx));
}

Value sliceRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<SliceOp>(r.getOwner());
  Indices at;
  for (auto [d, i] : llvm::enumerate(idx)) {
    DimExpr start = cast<DimAttr>(op.getStarts()[d]).expr();
    Index scaled = e.ix.mul(i, op.getSteps()[d]);
    at.push_back(e.ix.add(scaled, Index(e.ix.dim(start))));
  }
  return e.eval(op.getX(), at);
}

//===- Concat -----------------------------------------------------------------------===//

Value concatRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<ConcatOp>(r.getOwner());
  IndexMath &ix = e.ix;
  int64_t axis = op.getAxis();
  SmallVector<Value> pieces;
  SmallVector<DimExpr> ends;
  DimExpr end(0);
  for (Value in : op.getInputs()) {
    if (dimOf(in, axis) == DimExpr(0))
      continue;
    end = end + dimOf(in, axis);
    pieces.push_back(in);
    ends.push_back(end);
  }
  auto at = [&](const Indices &idx, size_t k) {
    Indices moved = idx;
    if (k > 0)
      moved[axis] = ix.add(idx[axis], Index(ix.sub(ix.cst(0), ix.dim(ends[k - 1]))));
    return moved;
  };
  if (pieces.empty()) // no element is ever asked for: any value will do
    return e.constant(Evaluator::computeType(elementTypeOf(r)), 0);
  std::function<Value(const Indices &, size_t)> scalarChain = [&](const Indices &idx, size_t k) {
    if (k + 1 == pieces.size())
      return e.eval(pieces[k], at(idx, k));
    return e.ifElse(
        ix.cmp(arith::CmpIPredicate::slt, idx[axis].base, ix.dim(ends[k])),
        [&] { return e.eval(pieces[k], at(idx, k)); }, [&] { return scalarChain(idx, k + 1); });
  };
  const Index &along = idx[axis];
  if (along.uniform())
    return scalarChain(idx, 0);
  Type scalar = Evaluator::computeType(elementTypeOf(r));
  auto slow = [&] {
    return e.lanewise(scalar, idx, [&](const Indices &one) { return scalarChain(one, 0); });
  };
  if (along.lanes || along.stride < 0)
    return slow();
  // Few that are stacked: which piece a lane lies in is known.
  constexpr int64_t kFew = 4;
  if (e.width <= kFew && IndexMath::constantOf(along.base) && ends.back() == DimExpr(e.width) &&
      along.stride == 1) {
    SmallVector<Value> lanes;
    for (int64_t l = 0; l < e.active; ++l) {
      Indices one;
      for (const Index &i : idx)
        one.push_back(Index(ix.lane(i, l)));
      lanes.push_back(e.lane(scalarChain(one, 0), 0));
    }
    lanes.resize(e.width, lanes.front());
    return e.fromLanes(lanes);
  }
  // A vector either lies in one piece or straddles a border.
  bool straddles = along.stride != 1 || ix.divisor(along.base) % e.width != 0;
  for (const DimExpr &border : ends)
    straddles |= !border.constant() || *border.constant() % e.width != 0;
  std::function<Value(size_t)> chain = [&](size_t k) -> Value {
    if (k == pieces.size())
      return slow();
    if (!straddles && k + 1 == pieces.size())
      return e.splat(e.eval(pieces[k], at(idx, k)));
    Value last = ix.add(along.base, ix.cst(along.stride * (e.active - 1)));
    Value below = ix.cmp(arith::CmpIPredicate::slt, last, ix.dim(ends[k]));
    if (k > 0)
      below = e.make<arith::AndIOp>(
          below, ix.cmp(arith::CmpIPredicate::sge, along.base, ix.dim(ends[k - 1])));
    return e.ifElse(
        below, [&] { return e.splat(e.eval(pieces[k], at(idx, k))); },
        [&] { return chain(k + 1); });
  };
  return chain(0);
}

//===- Pad ----------------------------------------------------------------------------===//

/// Index inside [0, n) that a border index stands for.
Value borderIndex(Evaluator &e, PadMode mode, Value i, Value n) {
  IndexMath &ix = e.ix;
  using P = arith::CmpIPredicate;
  Value last = ix.sub(n, ix.cst(1));
  auto floorMod = [&](Value x, Value m) {
    Value r = e.make<arith::RemSIOp>(x, m);
    return ix.select(ix.cmp(P::slt, r, ix.cst(0)), ix.add(r, m), r);
  };
  if (mode == PadMode::Edge)
    return ix.max(ix.min(i, last), ix.cst(0));
  if (mode == PadMode::Wrap)
    return floorMod(i, n);
  Value period = ix.max(ix.mul(last, 2), ix.cst(1));
  Value t = floorMod(i, period);
  return ix.select(ix.cmp(P::sgt, t, last), ix.sub(period, t), t);
}

Value padRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<PadOp>(r.getOwner());
  IndexMath &ix = e.ix;
  Indices at;
  SmallVector<bool> moves;
  for (auto [d, i] : llvm::enumerate(idx)) {
    DimExpr low = cast<DimAttr>(op.getLow()[d]).expr(), high = cast<DimAttr>(op.getHigh()[d]).expr();
    moves.push_back(!(low == DimExpr(0) && high == DimExpr(0)));
    at.push_back(low == DimExpr(0) ? i : ix.add(i, Index(ix.sub(ix.cst(0), ix.dim(low)))));
  }
  Type scalar = Evaluator::computeType(elementTypeOf(r));
  if (op.getMode() == PadMode::Constant) {
    Value fill = e.constant(scalar, 0);
    if (op.getValue()) {
      auto type = cast<RankedTensorType>(op.getValue().getType());
      fill = e.lane(e.eval(op.getValue(), Indices(type.getRank(), Index(ix.cst(0)))), 0);
    }
    return evalInside(e, op.getX(), at, fill);
  }
  auto moved = [&](const Indices &one) {
    Indices inside = one;
    for (auto [d, i] : llvm::enumerate(inside))
      if (moves[d])
        i = Index(borderIndex(e, op.getMode(), i.base, ix.dim(dimOf(op.getX(), d))));
    return e.eval(op.getX(), inside);
  };
  bool lanesMove = false;
  for (auto [d, i] : llvm::enumerate(at))
    lanesMove |= moves[d] && !i.uniform();
  if (!lanesMove)
    return moved(at);
  return e.lanewise(scalar, at, moved);
}

//===- Sources --------------------------------------------------------------------------===//

/// Element `flat` of a short list, by a chain of selections.
Value pick(Evaluator &e, ArrayRef<Value> elements, const Index &flat) {
  Value v = elements.back();
  for (size_t i = elements.size() - 1; i-- > 0;)
    v = e.select(e.ix.cmp(arith::CmpIPredicate::eq, flat, e.ix.cst(i)), elements[i], v);
  return v;
}

Index flatten(Evaluator &e, Value v, const Indices &idx) { return e.offset(dimsOf(v), idx); }

constexpr int64_t kMaxInlineElements = 64;

Value constantRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<ConstantOp>(r.getOwner());
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  Type element = elementTypeOf(r), compute = Evaluator::computeType(element);
  if (!dense || (!dense.isSplat() && dense.getNumElements() > kMaxInlineElements))
    return e.fail(op, "is too large a constant for a kernel's body; it must be an input");
  auto one = [&](int64_t i) -> Value {
    if (isa<FloatType>(element))
      return e.constant(compute, dense.getValues<APFloat>()[i].convertToDouble());
    if (!isa<IntegerType>(element))
      return e.fail(op, "has an element type that kernels cannot compute with");
    APInt v = dense.getValues<APInt>()[i];
    bool uns = element.isUnsignedInteger() || v.getBitWidth() == 1;
    return e.constantInt(compute, uns ? v.getZExtValue() : v.getSExtValue());
  };
  if (dense.isSplat())
    return one(0);
  SmallVector<Value> elements;
  for (int64_t i = 0; i < dense.getNumElements(); ++i)
    elements.push_back(one(i));
  return pick(e, elements, flatten(e, r, idx));
}

Value dimValueRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<DimValueOp>(r.getOwner());
  SmallVector<Value> elements;
  for (Attribute d : op.getDims())
    elements.push_back(e.indexToValue(Index(e.ix.dim(cast<DimAttr>(d).expr())),
                                      Evaluator::computeType(elementTypeOf(r))));
  return pick(e, elements, flatten(e, r, idx));
}

Value iotaRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<IotaOp>(r.getOwner());
  return e.indexToValue(idx[op.getAxis()], Evaluator::computeType(elementTypeOf(r)));
}

} // namespace

void addMovementRules(RuleTable &t) {
  t["lathe.transpose"] = transposeRule;
  t["lathe.reshape"] = reshapeRule;
  t["lathe.broadcast_to"] = broadcastRule;
  t["lathe.slice"] = sliceRule;
  t["lathe.concat"] = concatRule;
  t["lathe.pad"] = padRule;
  t["lathe.bind_dims"] = sameRule;
  t["lathe.dim_from"] = sameRule;
  t["lathe.constant"] = constantRule;
  t["lathe.dim_value"] = dimValueRule;
  t["lathe.iota"] = iotaRule;
}

} // namespace lathe::codegen
