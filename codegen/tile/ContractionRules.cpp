//===- ContractionRules.cpp - matmul and convolution by element -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The general form of contractions: a loop over the contracted elements for
// one result element, or for the lanes of one. It takes any operands, layouts
// and types; the skeletons are the fast forms of the usual cases.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

using namespace mlir;

namespace lathe::codegen {

Value widen(Evaluator &e, Value v, Type from, Type accumulator) {
  if (isa<FloatType>(accumulator) || e.scalarType(v) == accumulator)
    return v;
  Type like = e.like(v, accumulator);
  return from.isUnsignedInteger() ? e.make<arith::ExtUIOp>(like, v)
                                  : e.make<arith::ExtSIOp>(like, v);
}

namespace {

Value product(Evaluator &e, Value x, Value y) {
  e.unify(x, y);
  return isa<FloatType>(e.scalarType(x)) ? e.make<arith::MulFOp>(x, y)
                                         : e.make<arith::MulIOp>(x, y);
}

Value matmulRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<MatmulOp>(r.getOwner());
  std::vector<DimExpr> ad = dimsOf(op.getA()), bd = dimsOf(op.getB()), yd = dimsOf(r);
  auto batch = [](std::vector<DimExpr> d) {
    d.resize(d.size() - 2);
    return d;
  };
  ArrayRef<Index> outer(idx.data(), idx.size() - 2);
  Indices ab = batchIndex(e, batch(ad), batch(yd), outer);
  Indices bb = batchIndex(e, batch(bd), batch(yd), outer);
  Index m = idx[idx.size() - 2], n = idx[idx.size() - 1];
  DimExpr k = op.getTransposeA() ? ad[ad.size() - 2] : ad.back();
  Type acc = Evaluator::computeType(elementTypeOf(r));
  Evaluator::Accumulator sum{ReduceKind::Sum, acc, false};
  return reduceOver(e, !uniform(idx), k, sum, [&](const Index &at) {
    Indices ai = ab, bi = bb;
    ai.push_back(op.getTransposeA() ? at : m);
    ai.push_back(op.getTransposeA() ? m : at);
    bi.push_back(op.getTransposeB() ? n : at);
    bi.push_back(op.getTransposeB() ? at : n);
    Value x = widen(e, e.eval(op.getA(), ai), elementTypeOf(op.getA()), acc);
    Value y = widen(e, e.eval(op.getB(), bi), elementTypeOf(op.getB()), acc);
    return SmallVector<Value>{product(e, x, y)};
  })[0];
}

Value convRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<ConvOp>(r.getOwner());
  IndexMath &ix = e.ix;
  bool last = op.getLayout() == ConvLayout::ChannelsLast;
  std::vector<DimExpr> wd = dimsOf(op.getW()), yd = dimsOf(r);
  int64_t spatial = op.getStrides().size(), rank = spatial + 2;
  int64_t channelDim = last ? rank - 1 : 1, firstDim = last ? 1 : 2;
  Type acc = Evaluator::computeType(elementTypeOf(r));
  Index group(ix.cst(0));
  if (op.getGroup() != 1) {
    DimExpr perGroup = DimExpr::floorDiv(yd[channelDim], DimExpr(op.getGroup()));
    group = ix.divRem(idx[channelDim], perGroup).first;
  }
  std::vector<DimExpr> inner(wd.begin() + 2, wd.end());
  bool lanes = !uniform(idx);
  Evaluator::Accumulator sum{ReduceKind::Sum, acc, false};
  Index firstChannel = ix.mul(group, wd[1]);
  Value zero = e.constant(Evaluator::computeType(elementTypeOf(op.getX())), 0);

  auto channels = [&](const Index &at) {
    Indices tap = delinearize(e, at, inner);
    return reduceOver(e, lanes, wd[1], sum, [&](const Index &c) {
      Indices xi(rank), wi{idx[channelDim], c};
      xi[0] = idx[0];
      xi[channelDim] = ix.add(firstChannel, c);
      for (int64_t d = 0; d < spatial; ++d) {
        Index i = ix.mul(idx[firstDim + d], op.getStrides()[d]);
        i = ix.add(i, ix.mul(tap[d], op.getDilations()[d]));
        xi[firstDim + d] = ix.add(i, Index(ix.cst(-op.getPads()[d])));
        wi.push_back(tap[d]);
      }
      Value x = widen(e, evalInside(e, op.getX(), xi, zero), elementTypeOf(op.getX()), acc);
      Value w = widen(e, e.eval(op.getW(), wi), elementTypeOf(op.getW()), acc);
      return SmallVector<Value>{product(e, x, w)};
    })[0];
  };
  Value start = e.constant(acc, 0);
  if (lanes)
    start = e.splat(start);
  // Taps outside, channels inside.
  return e.loop(ix.cst(0), ix.dim(lathe::product(inner)), ix.cst(1), ValueRange{start},
                [&](Value iv, ValueRange args) {
                  return SmallVector<Value>{
                      e.combine(ReduceKind::Sum, args[0], channels(Index(iv)), false)};
                })[0];
}

} // namespace

void addContractionRules(RuleTable &t) {
  t["lathe.matmul"] = matmulRule;
  t["lathe.conv"] = convRule;
}

const Rule *findRule(Operation *op) {
  static const RuleTable table = [] {
    RuleTable t;
    addElementwiseRules(t);
    addMovementRules(t);
    addGatherRules(t);
    addReductionRules(t);
    addSamplingRules(t);
    addWindowRules(t);
    addContractionRules(t);
    addQuantizeRules(t);
    addRandomRules(t);
    addAttentionRules(t);
    return t;
  }();
  auto it = table.find(op->getName().getStringRef());
  return it == table.end() ? nullptr : &it->second;
}

} // namespace lathe::codegen
