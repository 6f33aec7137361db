//===- SamplingRules.cpp - reads at places that values name ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each result element by itself, in scalar loops, because which places are read is a matter of values; trees are
// walked in lanes on the CPU.
//
//===----------------------------------------------------------------------===//
#include "Rules.h"

#include "lathe/ir/Sampling.h"

#include <array>
#include <limits>
#include <numeric>

using namespace mlir;

namespace lathe::codegen {
namespace {

Value both(Evaluator &e, Value a, Value b) { return a ? e.make<arith::AndIOp>(a, b) : b; }

/// The greatest element seen so far and its place.
Value argPoolRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<ArgPoolOp>(r.getOwner());
  Type i64 = e.b.getI64Type();
  if (!uniform(idx))
    return e.lanewise(i64, idx, [&](const Indices &one) { return argPoolRule(e, r, one); });
  IndexMath &ix = e.ix;
  using P = arith::CmpIPredicate;
  Value x = op.getX();
  Type compute = Evaluator::computeType(elementTypeOf(x));
  bool uns = Evaluator::isUnsigned(x);
  int64_t taps = 1;
  SmallVector<DimExpr> window;
  std::vector<DimExpr> image = dimsOf(x);
  image.erase(image.begin(), image.begin() + 2);
  for (int64_t size : op.getKernel()) {
    taps *= size;
    window.push_back(DimExpr(size));
  }
  auto number = [&](Value index) { return e.make<arith::IndexCastOp>(i64, index); };
  Value channel = ix.add(ix.mul(idx[0].base, ix.dim(dimOf(x, 1))), idx[1].base);
  Value first = ix.mul(channel, ix.dim(product(image)));
  Value none = e.constant(compute, 0), nowhere = e.constantInt(i64, 0);
  Value found = e.constantInt(e.b.getI1Type(), 0);
  return e.loop(ix.cst(0), ix.cst(taps), ix.cst(1), ValueRange{none, nowhere, found},
                [&](Value tap, ValueRange best) {
    Indices at = delinearize(e, Index(tap), window), in = idx;
    Value inside, row = ix.cst(0), column = ix.cst(0), below = ix.cst(1);
    for (size_t d = 0; d < window.size(); ++d) {
      Value i = ix.add(ix.add(ix.mul(idx[2 + d].base, op.getStrides()[d]),
                              ix.mul(at[d].base, op.getDilations()[d])),
                       -op.getPads()[d]);
      Value size = ix.dim(image[d]);
      inside = both(e, inside, ix.cmp(P::ult, i, size)); // below 0 is a large unsigned number
      in[2 + d] = Index(i);
      row = ix.add(ix.mul(row, size), i);
      column = ix.add(column, ix.mul(i, below));
      below = ix.mul(below, size);
    }
    Value place = number(ix.add(first, op.getColumnMajor() ? column : row));
    return e.ifElse(
        inside, TypeRange{compute, i64, e.b.getI1Type()},
        [&]() -> SmallVector<Value> {
          Value v = e.eval(x, in), greater;
          if (isa<FloatType>(compute)) {
            using F = arith::CmpFPredicate;
            Value isNumber = e.make<arith::CmpFOp>(F::ORD, best[0], best[0]);
            Value above = e.make<arith::CmpFOp>(F::UGT, v, best[0]); // or one is NaN
            greater = e.make<arith::AndIOp>(isNumber, above);
          } else {
            greater = e.make<arith::CmpIOp>(uns ? P::ugt : P::sgt, v, best[0]);
          }
          Value isFirst = e.make<arith::XOrIOp>(best[2], e.constantInt(e.b.getI1Type(), 1));
          Value takes = e.make<arith::OrIOp>(isFirst, greater);
          return {e.select(takes, v, best[0]), e.select(takes, place, best[1]),
                  e.constantInt(e.b.getI1Type(), 1)};
        },
        [&]() -> SmallVector<Value> { return {best[0], best[1], best[2]}; });
  })[1];
}

/// Bins are sampled within the image alone: a region may be far larger than it. Lanes may be channels of one place.
Value roiAlignRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<RoiAlignOp>(r.getOwner());
  Value x = op.getX();
  Type compute = Evaluator::computeType(elementTypeOf(x));
  const unsigned channel = op.channelDim(), image = op.imageDim();
  const bool lanes = !uniform(idx);
  Indices placeOf = idx;
  placeOf[channel] = Index(e.ix.cst(0));
  if (lanes && !(op.getChannelsLast() && uniform(placeOf)))
    return e.lanewise(compute, idx, [&](const Indices &one) { return roiAlignRule(e, r, one); });
  IndexMath &ix = e.ix;
  using F = arith::CmpFPredicate;
  auto wide = [&](Value v) { return lanes ? e.splat(v) : v; };
  auto num = [&](double v) { return e.constant(compute, v); };
  auto add = [&](Value a, Value b) { return e.make<arith::AddFOp>(a, b); };
  auto sub = [&](Value a, Value b) { return e.make<arith::SubFOp>(a, b); };
  auto mul = [&](Value a, Value b) { return e.make<arith::MulFOp>(a, b); };
  auto div = [&](Value a, Value b) { return e.make<arith::DivFOp>(a, b); };
  auto most = [&](Value a, Value b) { return e.make<arith::MaximumFOp>(a, b); };
  auto real = [&](Value index) { return e.indexToValue(Index(index), compute); };
  Type i32 = e.b.getI32Type();
  auto whole = [&](Value v) { return e.toIndex(e.truncate(v, i32, false), false); };

  Value number = e.eval(op.getBatch(), {idx[0]});
  number = e.cast(number, elementTypeOf(op.getBatch()), e.b.getI64Type(), false);
  Index n = e.checkedIndex(number, ix.dim(dimOf(x, 0)));
  Value scale = num(op.getScale().convertToDouble()), shift = num(op.getHalfPixel() ? 0.5 : 0);
  auto corner = [&](int64_t k) {
    return sub(mul(e.eval(op.getRois(), {idx[0], Index(ix.cst(k))}), scale), shift);
  };
  /// Of one direction: the first sample, the distance of samples, how many there are, and which of
  /// them may lie in the image.
  struct Side {
    Value start, step, count, low, high, size;
  };
  auto side = [&](int64_t from, int64_t to, unsigned dim) {
    Side s;
    s.size = ix.dim(dimOf(x, dim));
    Value start = corner(from), length = sub(corner(to), start);
    if (!op.getHalfPixel())
      length = most(length, num(1));
    Value bin = div(length, real(ix.dim(dimOf(op.getY(), dim))));
    s.count = op.getSamples() ? ix.cst(op.getSamples()) : ix.max(whole(e.make<math::CeilOp>(bin)), ix.cst(0));
    s.step = div(bin, real(s.count));
    s.start = add(start, mul(real(idx[dim].base), bin));
    if (op.getSamples()) {
      s.low = ix.cst(0);
      s.high = s.count;
    } else { // with two to spare for rounding
      s.low = ix.max(ix.add(whole(div(sub(num(-1), s.start), s.step)), -2), ix.cst(0));
      s.high = ix.min(ix.add(whole(div(sub(real(s.size), s.start), s.step)), 3), s.count);
    }
    return s;
  };
  Side rows = side(1, 3, image), columns = side(0, 2, image + 1);
  /// Of one sample: whether it counts, its neighbours, and how far it is from the first.
  struct Between {
    Value inside, low, high, rest;
  };
  auto between = [&](const Side &s, Value i) {
    Between b;
    Value v = add(s.start, mul(add(real(i), num(0.5)), s.step));
    b.inside = both(e, e.make<arith::CmpFOp>(F::OGE, v, num(-1)),
                    e.make<arith::CmpFOp>(F::OLE, v, real(s.size)));
    v = most(v, num(0));
    Value last = ix.add(s.size, -1);
    b.low = ix.max(ix.min(whole(v), last), ix.cst(0));
    b.high = ix.min(ix.add(b.low, 1), last);
    Value same = ix.cmp(arith::CmpIPredicate::eq, b.low, b.high);
    b.rest = e.select(same, num(0), sub(v, real(b.low)));
    return b;
  };
  bool maximum = op.getMaximum();
  Value zero = wide(num(0)), none = maximum ? wide(num(-std::numeric_limits<double>::infinity())) : zero;
  Value total = e.loop(rows.low, rows.high, ix.cst(1), ValueRange{none}, [&](Value i, ValueRange outer) {
    Between row = between(rows, i);
    return e.loop(columns.low, columns.high, ix.cst(1), ValueRange{outer[0]}, [&](Value j, ValueRange args) {
      Between column = between(columns, j);
      Value inside = both(e, row.inside, column.inside);
      Value sample = e.ifElse(
          inside,
          [&] {
            Value up = sub(num(1), row.rest), left = sub(num(1), column.rest);
            auto part = [&](Value a, Value b, Value weight) {
              Indices at = idx;
              at[0] = n;
              at[image] = Index(a);
              at[image + 1] = Index(b);
              return mul(e.eval(x, at), wide(weight));
            };
            Value p = part(row.low, column.low, mul(up, left)),
                  q = part(row.low, column.high, mul(up, column.rest)),
                  s = part(row.high, column.low, mul(row.rest, left)),
                  t = part(row.high, column.high, mul(row.rest, column.rest));
            return maximum ? most(most(p, q), most(s, t)) : add(add(p, q), add(s, t));
          },
          [&] { return zero; });
      return SmallVector<Value>{maximum ? most(args[0], sample) : add(args[0], sample)};
    });
  })[0];
  Value count = ix.mul(rows.count, columns.count);
  if (!maximum)
    return div(total, wide(real(ix.max(count, ix.cst(1)))));
  // Samples outside that no loop came to count as 0.
  Value seen = ix.mul(ix.max(ix.add(rows.high, ix.mul(rows.low, -1)), ix.cst(0)),
                      ix.max(ix.add(columns.high, ix.mul(columns.low, -1)), ix.cst(0)));
  Value left = ix.cmp(arith::CmpIPredicate::slt, seen, count);
  Value result = e.select(left, most(total, zero), total);
  return e.select(ix.cmp(arith::CmpIPredicate::eq, count, ix.cst(0)), zero, result);
}

/// The four fields of each lane's row of a matrix of 32-bit integers that lies in memory, one vector a row, or nothing where
/// they are to be read one by one. Rows become columns by halves: each step joins two parts field by field.
std::optional<std::array<Value, 4>> fieldsOfRows(Evaluator &e, Value matrix, const Index &rows) {
  auto arg = dyn_cast<BlockArgument>(matrix);
  if (!arg || !rows.lanes || !llvm::isPowerOf2_64(e.width) || e.spilled.contains(matrix.getAsOpaquePointer()))
    return std::nullopt;
  const BufferArg &buf = e.bufferArg(arg.getArgNumber());
  if (!buf.packing.empty() || buf.physical != dimsOf(matrix) || dimOf(matrix, 1) != DimExpr(4))
    return std::nullopt;
  SmallVector<Value> parts;
  for (int64_t l = 0; l < e.active; ++l)
    parts.push_back(e.make<tile::LoadOp>(VectorType::get({4}, e.b.getI32Type()), e.buffer(arg.getArgNumber()),
                                         e.ix.mul(e.ix.lane(rows, l), 4), nullptr));
  parts.resize(e.width, parts.front());
  for (int64_t each = 1; parts.size() > 1; each *= 2) {
    SmallVector<int64_t> order;
    for (int64_t field = 0; field < 4; ++field)
      for (int64_t part : {0, 1})
        for (int64_t i = 0; i < each; ++i)
          order.push_back((part * 4 + field) * each + i);
    SmallVector<Value> joined;
    for (size_t i = 0; i < parts.size(); i += 2)
      joined.push_back(e.make<vector::ShuffleOp>(parts[i], parts[i + 1], order));
    parts = std::move(joined);
  }
  std::array<Value, 4> fields;
  for (int64_t field = 0; field < 4; ++field) {
    SmallVector<int64_t> lanes(e.width);
    std::iota(lanes.begin(), lanes.end(), field * e.width);
    fields[field] = e.make<vector::ShuffleOp>(parts[0], parts[0], lanes);
  }
  return fields;
}

/// Walks of neighbouring trees through integers on a CPU, some of them by turns in one loop: lanes of a vector would be taken apart
/// to read what they name, and steps of different walks wait for their loads together. Each lane's node.
Value walkByTurns(Evaluator &e, TreeWalkOp op, const Indices &idx) {
  constexpr int64_t kTogether = 16; // what a core has under way: more than it has registers for
  IndexMath &ix = e.ix;
  Type i32 = e.b.getI32Type();
  const Value two = e.constantInt(i32, 2);
  auto at = [&](Value v) { return Index(e.toIndex(v, true)); }; // none is below 0
  auto step = [&](const Index &row, Value node) {
    Index branch = at(node);
    auto field = [&](const Index &k) { return e.eval(op.getNodes(), {branch, k}); };
    Value v = e.eval(op.getX(), {row, at(field(Index(ix.cst(0))))});
    Value right = e.make<arith::CmpIOp>(arith::CmpIPredicate::sgt, v, field(Index(ix.cst(1))));
    return field(at(e.make<arith::AddIOp>(Value(e.make<arith::ExtUIOp>(i32, right)), two)));
  };
  auto lane = [&](const Index &x, int64_t l) { return Index(ix.lane(x, l)); };
  Value nodes = e.splat(e.constantInt(i32, 0));
  for (int64_t first = 0; first < e.active; first += kTogether) {
    SmallVector<Value> roots;
    for (int64_t l = first; l < std::min(first + kTogether, e.active); ++l)
      roots.push_back(e.eval(op.getRoots(), {lane(idx[1], l)}));
    SmallVector<Value> ends = e.loop(ix.cst(0), ix.cst(op.getDepth()), ix.cst(1), roots, [&](Value, ValueRange args) {
      SmallVector<Value> next;
      for (auto [l, node] : llvm::enumerate(args))
        next.push_back(step(lane(idx[0], first + int64_t(l)), node));
      return next;
    });
    for (auto [l, end] : llvm::enumerate(ends))
      nodes = e.make<vector::InsertOp>(end, nodes, first + int64_t(l));
  }
  return nodes;
}

/// As many steps as the deepest tree has; who is at a leaf stays.
Value treeWalkRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<TreeWalkOp>(r.getOwner());
  Type i32 = e.b.getI32Type();
  bool lanes = !uniform(idx);
  // On a GPU the threads of a warp are the lanes already.
  if (lanes && e.kernel.target->isCuda())
    return e.lanewise(i32, idx, [&](const Indices &one) { return treeWalkRule(e, r, one); });
  IndexMath &ix = e.ix;
  using F = arith::CmpFPredicate;
  const bool whole = elementTypeOf(op.getX()).isInteger(32), atNodes = op.getEndsAtNodes();
  if (lanes && whole && atNodes)
    return walkByTurns(e, op, idx);
  auto spread = [&](Value v) { return lanes && !e.isVector(v) ? e.splat(v) : v; };
  Value root = spread(e.eval(op.getRoots(), {idx[1]})), zero = spread(e.constantInt(i32, 0));
  Value minusOne = spread(e.constantInt(i32, -1));
  Value leaf = e.loop(ix.cst(0), ix.cst(op.getDepth()), ix.cst(1), ValueRange{root},
                      [&](Value, ValueRange args) {
    Value node = args[0];
    Value isNode = e.make<arith::CmpIOp>(arith::CmpIPredicate::sge, node, zero);
    // Which way a row goes is a toss: lanes select where a scalar walk branches. Those at a leaf stay there.
    Value some = lanes ? Value(e.make<vector::ReductionOp>(vector::CombiningKind::OR, isNode)) : isNode;
    Value next = e.ifElse(
        some,
        [&] {
          auto indexOf = [&](Value v) { return e.isVector(v) ? Index::ofLanes(e.toIndex(v, false)) : Index(e.toIndex(v, false)); };
          Index at = indexOf(lanes ? Value(e.make<arith::MaxSIOp>(node, zero)) : node);
          std::optional<std::array<Value, 4>> together = fieldsOfRows(e, op.getNodes(), at);
          auto field = [&](int64_t k) { return together ? (*together)[k] : e.eval(op.getNodes(), {at, Index(ix.cst(k))}); };
          Value named = field(0); // -1 - feature where NaN goes left
          Value lost = e.make<arith::CmpIOp>(arith::CmpIPredicate::slt, named, zero);
          Value feature = e.select(lost, e.make<arith::XOrIOp>(named, minusOne), named);
          Value v = e.eval(op.getX(), {idx[0], indexOf(feature)});
          auto isLeft = [&]() -> Value {
            if (whole)
              return e.make<arith::CmpIOp>(arith::CmpIPredicate::sle, v, field(1));
            Value split = op.getSplits() ? e.eval(op.getSplits(), {at})
                                         : Value(e.make<arith::BitcastOp>(e.like(named, e.b.getF32Type()), field(1)));
            Value isNan = e.make<arith::CmpFOp>(F::UNO, v, v);
            return e.make<arith::OrIOp>(e.make<arith::CmpFOp>(F::OLE, v, split), e.make<arith::AndIOp>(isNan, lost));
          };
          Value left = isLeft();
          Value child = e.select(left, field(2), field(3));
          return lanes ? e.select(isNode, child, node) : child;
        },
        [&] { return node; });
    return SmallVector<Value>{next};
  })[0];
  return atNodes ? leaf : Value(e.make<arith::SubIOp>(minusOne, leaf));
}

} // namespace

void addSamplingRules(RuleTable &t) {
  t["lathe.arg_pool"] = argPoolRule;
  t["lathe.roi_align"] = roiAlignRule;
  t["lathe.tree_walk"] = treeWalkRule;
}

} // namespace lathe::codegen
