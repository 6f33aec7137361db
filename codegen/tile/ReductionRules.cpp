//===- ReductionRules.cpp - reduce, arg_reduce -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions become loops with accumulators. When the index that is asked for has
// lanes (a kept dimension is vectorised), each lane has its own accumulator;
// otherwise lanes run along the reduced elements.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

using namespace mlir;

namespace lathe::codegen {

int64_t flatPlace(ArrayRef<DimExpr> dims, int64_t first, int64_t last) {
  for (int64_t d = last; d >= first; --d)
    if (!(dims[d] == DimExpr(1)))
      return d;
  return last;
}

bool flatDims(Evaluator &e, Value v, int64_t first, int64_t last) {
  if (first >= last)
    return true;
  std::vector<DimExpr> dims = dimsOf(v);
  if (auto arg = dyn_cast<BlockArgument>(v)) {
    const BufferArg &buf = e.bufferArg(arg.getArgNumber());
    for (int64_t d = first + 1; d <= last; ++d)
      if (!(buf.physical[d] == dims[d]))
        return false;
    return true;
  }
  if (e.spilled.count(v.getAsOpaquePointer()))
    return false;
  Operation *op = v.getDefiningOp();
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    return dense && dense.isSplat();
  }
  auto structured = dyn_cast<StructuredOpInterface>(op);
  bool broadcast = isa<BroadcastToOp>(op);
  if (!broadcast && (!structured || structured.getOpClass() != OpClass::Pointwise))
    return false;
  int64_t rank = dims.size();
  for (Value x : op->getOperands()) {
    std::vector<DimExpr> xs = dimsOf(x);
    int64_t shift = rank - static_cast<int64_t>(xs.size());
    bool same = true, ones = true;
    for (int64_t d = first; d <= last; ++d) {
      DimExpr size = d < shift ? DimExpr(1) : xs[d - shift];
      same &= d >= shift && size == dims[d];
      ones &= size == DimExpr(1);
    }
    if (ones)
      continue;
    if (!same || !flatDims(e, x, first - shift, last - shift))
      return false;
  }
  return true;
}

SmallVector<Value> reduceOver(Evaluator &e, bool hasLanes, const DimExpr &n,
                              ArrayRef<Evaluator::Accumulator> accs,
                              llvm::function_ref<SmallVector<Value>(const Index &)> body) {
  if (!hasLanes)
    return e.reduceRow(n, accs, body);
  bool outer = e.cooperative;
  e.cooperative = false;
  // Four accumulators in turn: independent chains, and a sum whose rounding error is that of a
  // quarter of the elements.
  constexpr int64_t kChains = 4;
  std::optional<int64_t> count = n.constant();
  int64_t chains = count && *count < 2 * kChains ? 1 : kChains;
  SmallVector<Value> init;
  for (int64_t chain = 0; chain < chains; ++chain)
    for (const auto &acc : accs)
      init.push_back(e.splat(e.neutral(acc.kind, acc.type, acc.isUnsigned)));
  auto stepOf = [&](int64_t width) {
    return [&, width](Value iv, ValueRange args) {
      SmallVector<Value> next(args.begin(), args.end());
      for (int64_t chain = 0; chain < width; ++chain) {
        SmallVector<Value> values = body(Index(e.ix.add(iv, chain)));
        for (auto [i, acc] : llvm::enumerate(accs)) {
          Value &into = next[chain * accs.size() + i];
          into = e.combine(acc.kind, into, e.splat(values[i]), acc.isUnsigned);
        }
      }
      return next;
    };
  };
  Value end = e.ix.dim(n);
  Value whole = chains == 1 ? end : e.ix.mul(e.ix.div(end, e.ix.cst(chains)), chains);
  SmallVector<Value> result =
      e.loop(e.ix.cst(0), whole, e.ix.cst(chains), ValueRange(init), stepOf(chains));
  if (chains > 1 && !(count && *count % chains == 0))
    result = e.loop(whole, end, e.ix.cst(1), ValueRange(result), stepOf(1));
  for (int64_t width = chains / 2; width > 0; width /= 2)
    for (int64_t chain = 0; chain < width; ++chain)
      for (auto [i, acc] : llvm::enumerate(accs)) {
        Value &into = result[chain * accs.size() + i];
        into = e.combine(acc.kind, into, result[(chain + width) * accs.size() + i], acc.isUnsigned);
      }
  result.resize(accs.size());
  e.cooperative = outer;
  return result;
}

namespace {

/// How the elements of x that go into one result are enumerated.
struct Reduced {
  SmallVector<int64_t> axes;
  DimExpr n = 1;
  bool flat = false; ///< the axes are neighbours and may be walked as one
  Indices kept;      ///< index of x with the reduced dimensions open
};

Reduced openAxes(Evaluator &e, Value x, ArrayRef<int64_t> axes, bool keepdims, const Indices &idx) {
  Reduced out;
  out.axes.assign(axes.begin(), axes.end());
  int64_t rank = cast<RankedTensorType>(x.getType()).getRank();
  size_t next = 0;
  for (int64_t d = 0; d < rank; ++d) {
    bool reduced = llvm::is_contained(axes, d);
    if (reduced) {
      out.n = out.n * dimOf(x, d);
      out.kept.push_back(Index(e.ix.cst(0)));
      if (keepdims)
        ++next;
    } else {
      out.kept.push_back(idx[next++]);
    }
  }
  bool neighbours = !axes.empty() && axes.back() - axes.front() + 1 == static_cast<int64_t>(axes.size());
  out.flat = neighbours && flatDims(e, x, axes.front(), axes.back());
  return out;
}

Indices elementOf(Evaluator &e, const Reduced &r, Value x, const Index &at) {
  Indices idx = r.kept;
  if (r.axes.empty())
    return idx;
  if (r.flat || r.axes.size() == 1) {
    idx[flatPlace(dimsOf(x), r.axes.front(), r.axes.back())] = at;
    return idx;
  }
  SmallVector<DimExpr> dims;
  for (int64_t axis : r.axes)
    dims.push_back(dimOf(x, axis));
  Indices split = delinearize(e, at, dims);
  for (auto [axis, i] : llvm::zip(r.axes, split))
    idx[axis] = i;
  return idx;
}

Value reduceRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<ReduceOp>(r.getOwner());
  Value x = op.getX();
  Type compute = Evaluator::computeType(elementTypeOf(x));
  Reduced open = openAxes(e, x, op.getAxes(), op.getKeepdims(), idx);
  Evaluator::Accumulator acc{op.getKind(), compute, Evaluator::isUnsigned(x)};
  return reduceOver(e, !uniform(idx), open.n, acc, [&](const Index &at) {
    return SmallVector<Value>{e.eval(x, elementOf(e, open, x, at))};
  })[0];
}

/// Whether an element is the extreme of its row. One that is NaN is, and then so is the extreme: no other
/// element equals it.
Value isExtreme(Evaluator &e, Value v, Value extreme) {
  Value equal = e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, v, extreme);
  return e.make<arith::OrIOp>(equal, e.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, v, v));
}

/// The extreme value first, then the least (or, for `last`, greatest) index
/// that has it: two reductions, so lanes and threads share the work.
Value argReduceRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<ArgReduceOp>(r.getOwner());
  Value x = op.getX();
  Type compute = Evaluator::computeType(elementTypeOf(x)), i64 = e.b.getI64Type();
  int64_t axis = op.getAxis();
  Reduced open = openAxes(e, x, axis, op.getKeepdims(), idx);
  bool uns = Evaluator::isUnsigned(x), lanes = !uniform(idx);
  Evaluator::Accumulator best{op.getKind(), compute, uns};
  Value extreme = reduceOver(e, lanes, open.n, best, [&](const Index &at) {
    return SmallVector<Value>{e.eval(x, elementOf(e, open, x, at))};
  })[0];
  ReduceKind pick = op.getLast() ? ReduceKind::Max : ReduceKind::Min;
  Value never = e.neutral(pick, i64, false);
  Evaluator::Accumulator place{pick, i64, false};
  return reduceOver(e, lanes, open.n, place, [&](const Index &at) {
    Value v = e.eval(x, elementOf(e, open, x, at)), m = extreme;
    e.unify(v, m);
    Value equal = isa<FloatType>(compute)
                      ? isExtreme(e, v, m)
                      : e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, v, m);
    return SmallVector<Value>{e.select(equal, e.indexToValue(at, i64), never)};
  })[0];
}

} // namespace

void addReductionRules(RuleTable &t) {
  t["lathe.reduce"] = reduceRule;
  t["lathe.arg_reduce"] = argReduceRule;
}

} // namespace lathe::codegen
