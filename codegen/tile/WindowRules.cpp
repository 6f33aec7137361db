//===- WindowRules.cpp - pooling windows --------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pooling: the window's taps are unrolled when few, else a loop; taps outside
// the image give the neutral element. Sums of windows loop.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

constexpr int64_t kMaxUnrolledTaps = 9;

Value poolRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<PoolOp>(r.getOwner());
  IndexMath &ix = e.ix;
  Value x = op.getX();
  Type compute = Evaluator::computeType(elementTypeOf(x));
  ArrayRef<int64_t> kernel = op.getKernel();
  int64_t spatial = kernel.size();
  int64_t firstDim = op.getLayout() == ConvLayout::ChannelsLast ? 1 : 2;
  bool average = op.getKind() == PoolKind::Average, lp = op.getKind() == PoolKind::Lp;
  bool uns = Evaluator::isUnsigned(x);
  if ((average || lp) && !isa<FloatType>(compute))
    return e.fail(op, "averages floating-point values only");
  ReduceKind kind = average || lp ? ReduceKind::Sum : ReduceKind::Max;
  Value none = e.neutral(kind, compute, uns);
  int64_t taps = 1;
  SmallVector<DimExpr> window;
  for (int64_t k : kernel) {
    taps *= k;
    window.push_back(DimExpr(k));
  }
  using P = arith::CmpIPredicate;

  // Threads of a GPU read something inside for a tap outside, and drop it: with a branch around
  // each tap, each would wait for the one before it.
  bool withoutBranch = e.kernel.target->isCuda() && taps <= kMaxUnrolledTaps;
  for (int64_t d = firstDim; d < firstDim + spatial; ++d)
    withoutBranch &= idx[d].uniform() && dimOf(x, d).constant().value_or(0) > 0;
  // A maximum may take an element twice: the nearest place inside is one of the window's own where
  // windows have no holes and all touch the image.
  bool repeats = op.getKind() == PoolKind::Max;
  for (int64_t d = 0; d < spatial && withoutBranch; ++d) {
    int64_t last = dimOf(r, firstDim + d).constant().value_or(int64_t(1) << 40) - 1;
    repeats &= op.getDilations()[d] == 1 && op.getPads()[d] < kernel[d] &&
               last * op.getStrides()[d] - op.getPads()[d] < *dimOf(x, firstDim + d).constant();
  }
  auto clamped = [&](Indices in) -> Value {
    Value inside;
    for (int64_t d = firstDim; d < firstDim + spatial; ++d) {
      int64_t size = *dimOf(x, d).constant();
      if (!repeats) {
        Value ok = ix.cmp(P::ult, in[d].base, ix.cst(size));
        inside = inside ? e.make<arith::AndIOp>(inside, ok) : ok;
      }
      in[d] = Index(ix.min(ix.max(in[d].base, ix.cst(0)), ix.cst(size - 1)));
    }
    Value v = e.eval(x, in);
    if (!repeats)
      return e.select(inside, v, none);
    // Of elements of 16 bits that were only widened, two are compared at a time.
    auto wide = v.getDefiningOp<arith::ExtFOp>();
    return wide && getElementTypeOrSelf(wide.getIn().getType()).getIntOrFloatBitWidth() == 16 &&
                   e.isVector(v)
               ? wide.getIn()
               : v;
  };

  // One tap: its value, and 1 where it counts for the average's divisor.
  auto tap = [&](ArrayRef<Index> at) -> SmallVector<Value> {
    Indices in = idx;
    Value counted;
    for (int64_t d = 0; d < spatial; ++d) {
      Index i = ix.mul(idx[firstDim + d], op.getStrides()[d]);
      i = ix.add(i, ix.mul(at[d], op.getDilations()[d]));
      i = ix.add(i, Index(ix.cst(-op.getPads()[d])));
      in[firstDim + d] = i;
      if (!average)
        continue;
      Value size = ix.dim(dimOf(x, firstDim + d)), ok;
      if (op.getCountIncludePad()) {
        ok = ix.cmp(P::slt, i, ix.add(size, op.getPads()[spatial + d]));
      } else {
        // Below 0 is a large unsigned number.
        ok = ix.cmp(P::ult, i, size);
      }
      if (counted)
        e.unify(counted, ok);
      counted = counted ? e.make<arith::AndIOp>(counted, ok) : ok;
    }
    Value v = withoutBranch ? clamped(in) : evalInside(e, x, in, none);
    if (lp) {
      Value a = e.make<math::AbsFOp>(v);
      if (op.getP() == 1)
        v = a;
      else if (op.getP() == 2)
        v = e.make<arith::MulFOp>(a, a);
      else {
        Value p = e.constant(compute, static_cast<double>(op.getP()));
        v = e.make<math::PowFOp>(a, e.isVector(a) ? e.splat(p) : p);
      }
    }
    if (!average)
      return {v};
    return {v, e.select(counted, e.constant(compute, 1), e.constant(compute, 0))};
  };
  auto merge = [&](SmallVector<Value> sum, SmallVector<Value> next) {
    sum[0] = e.combine(kind, sum[0], next[0], uns);
    if (average)
      sum[1] = e.combine(ReduceKind::Sum, sum[1], next[1], false);
    return sum;
  };

  SmallVector<Value> total;
  if (taps <= kMaxUnrolledTaps) {
    for (int64_t t = 0; t < taps; ++t) {
      SmallVector<Value> next = tap(delinearize(e, Index(ix.cst(t)), window));
      total = total.empty() ? next : merge(total, next);
    }
  } else {
    bool lanes = !uniform(idx);
    total.push_back(none);
    if (average)
      total.push_back(e.constant(compute, 0));
    if (lanes)
      for (Value &v : total)
        v = e.splat(v);
    total = e.loop(ix.cst(0), ix.cst(taps), ix.cst(1), ValueRange(total),
                   [&](Value iv, ValueRange args) {
                     return merge(SmallVector<Value>(args),
                                  tap(delinearize(e, Index(iv), window)));
                   });
  }
  if (average) {
    Value sum = total[0], count = total[1];
    e.unify(sum, count);
    return e.make<arith::DivFOp>(sum, count);
  }
  if (lp && op.getP() == 2)
    return e.make<math::SqrtOp>(total[0]);
  if (lp && op.getP() != 1) {
    Value p = e.constant(compute, 1.0 / static_cast<double>(op.getP()));
    return e.make<math::PowFOp>(total[0], e.isVector(total[0]) ? e.splat(p) : p);
  }
  if (Type kept = e.scalarType(total[0]); kept != compute)
    return e.make<arith::ExtFOp>(e.like(total[0], compute), total[0]);
  return total[0];
}

/// For each tap, the place of the window that lays it over the pixel, if there is one.
Value overlapAddRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<OverlapAddOp>(r.getOwner());
  Type compute = Evaluator::computeType(elementTypeOf(r));
  if (!uniform(idx))
    return e.lanewise(compute, idx, [&](const Indices &one) { return overlapAddRule(e, r, one); });
  IndexMath &ix = e.ix;
  using P = arith::CmpIPredicate;
  ArrayRef<int64_t> window = op.getWindow(), strides = op.getStrides(), pads = op.getPads(),
                    dilations = op.getDilations();
  std::vector<DimExpr> dims = dimsOf(op.getY());
  std::vector<DimExpr> places =
      OverlapAddOp::places(ArrayRef(dims).drop_front(2), window, strides, pads, dilations);
  SmallVector<DimExpr> sizes;
  int64_t taps = 1;
  for (int64_t size : window) {
    sizes.push_back(DimExpr(size));
    taps *= size;
  }
  Value sum = e.constant(compute, 0);
  return e.loop(ix.cst(0), ix.cst(taps), ix.cst(1), ValueRange{sum}, [&](Value tap, ValueRange args) {
    Indices at = delinearize(e, Index(tap), sizes);
    Value inside = e.constantInt(e.b.getI1Type(), 1), column = ix.cst(0);
    for (size_t d = 0; d < window.size(); ++d) {
      // place * stride + tap * dilation = pixel + pad. So many strides more keep the left side from
      // being negative; a place before the first is then a large unsigned number.
      int64_t spare = (dilations[d] * (window[d] - 1) + strides[d] - 1) / strides[d];
      Value way = ix.sub(ix.add(idx[2 + d].base, pads[d] + spare * strides[d]),
                         ix.mul(at[d].base, dilations[d]));
      Value place = ix.sub(ix.div(way, ix.cst(strides[d])), ix.cst(spare));
      Value whole = ix.cmp(P::eq, ix.rem(way, ix.cst(strides[d])), ix.cst(0));
      Value count = ix.dim(places[d]);
      inside = e.make<arith::AndIOp>(inside, e.make<arith::AndIOp>(whole, ix.cmp(P::ult, place, count)));
      column = ix.add(ix.mul(column, count), place);
    }
    Value row = ix.add(ix.mul(idx[1].base, taps), tap);
    Value part = e.ifElse(
        inside, [&] { return e.eval(op.getX(), {idx[0], Index(row), Index(column)}); },
        [&] { return e.constant(compute, 0); });
    return SmallVector<Value>{e.combine(ReduceKind::Sum, args[0], part, false)};
  })[0];
}

Value windowSquaresRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<WindowSquaresOp>(r.getOwner());
  Value x = op.getX();
  int64_t axis = op.getAxis();
  Type compute = Evaluator::computeType(elementTypeOf(r));
  if (!isa<FloatType>(compute))
    return e.fail(op, "squares floating-point values only");
  if (!idx[axis].uniform())
    return e.lanewise(compute, idx, [&](const Indices &one) { return windowSquaresRule(e, r, one); });
  IndexMath &ix = e.ix;
  Value first = ix.add(idx[axis].base, -int64_t(op.getBefore()));
  Value end = ix.min(ix.add(first, int64_t(op.getSize())), ix.dim(dimOf(x, axis)));
  Value sum = e.constant(compute, 0);
  if (!uniform(idx))
    sum = e.splat(sum);
  return e.loop(ix.max(first, ix.cst(0)), end, ix.cst(1), ValueRange{sum}, [&](Value at, ValueRange args) {
    Indices in = idx;
    in[axis] = Index(at);
    Value v = e.eval(x, in);
    return SmallVector<Value>{e.combine(ReduceKind::Sum, args[0], e.make<arith::MulFOp>(v, v), false)};
  })[0];
}

} // namespace

void addWindowRules(RuleTable &t) {
  t["lathe.pool"] = poolRule;
  t["lathe.overlap_add"] = overlapAddRule;
  t["lathe.window_squares"] = windowSquaresRule;
}

} // namespace lathe::codegen
