//===- PointwiseSchedule.cpp - every output element on its own ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The iteration space is that of the outputs, its last dimension cut into
// chunks of W lanes with single elements at its end. Trailing dimensions that
// every access walks in the same dense way are merged first, so that small
// inner dimensions cost nothing. Units (row, chunk) are dealt out to blocks in
// contiguous ranges on the CPU, to threads round-robin on CUDA.
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

using namespace mlir;

namespace lathe::codegen {

DimExpr gridSize(const KernelSource &kernel) {
  const LaunchSpec &launch = kernel.spec->launches[0];
  if (launch.cluster[1] > 1) // CPU: the second axis counts threads that take a block together
    return launch.grid[0];
  DimExpr blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
  return launch.cluster[0] == 1 ? blocks : DimExpr::floorDiv(blocks, DimExpr(launch.cluster[0]));
}

std::pair<Value, Value> blockRange(Evaluator &e, Value n) {
  IndexMath &ix = e.ix;
  DimExpr grid = gridSize(e.kernel);
  if (grid == DimExpr(1))
    return {ix.cst(0), n};
  Value id = e.blockId(), blocks = ix.dim(grid);
  return {ix.div(ix.mul(n, id), blocks), ix.div(ix.mul(n, ix.add(id, ix.cst(1))), blocks)};
}

Value claimBegin(Evaluator &e, Value n) {
  IndexMath &ix = e.ix;
  Value blocks = ix.dim(gridSize(e.kernel));
  return ix.div(ix.mul(n, e.firstBlock()), blocks);
}

void overBlockShare(Evaluator &e, const DimExpr &n, llvm::function_ref<void(Value)> body) {
  IndexMath &ix = e.ix;
  Value end = ix.dim(n);
  if (!e.kernel.target->isCuda()) {
    auto [lo, hi] = blockRange(e, end);
    e.loop(lo, hi, ix.cst(1), body);
    return;
  }
  Value id = e.blockId();
  if (gridSize(e.kernel) == n) {
    body(id);
    return;
  }
  e.loop(id, end, ix.dim(gridSize(e.kernel)), body);
}

static DimExpr unitsOf(const Evaluator &e, ArrayRef<DimExpr> outer, const DimExpr &inner) {
  return lathe::product(std::vector<DimExpr>(outer.begin(), outer.end())) *
         DimExpr::ceilDiv(inner, DimExpr(e.width));
}

/// Units of one thread on CUDA: unit u = (row, chunk). `from`: the first of the blocks that these
/// units have for themselves; without, all blocks take them in turn.
static void overThreadUnits(Evaluator &e, ArrayRef<DimExpr> outer, const DimExpr &inner,
                            llvm::function_ref<void(const Indices &, const Index &)> body,
                            std::optional<DimExpr> from = {}) {
  IndexMath &ix = e.ix;
  DimExpr chunks = DimExpr::ceilDiv(inner, DimExpr(e.width));
  DimExpr units = unitsOf(e, outer, inner);
  auto c = inner.constant();
  bool tail = !c || *c % e.width != 0;
  auto unit = [&](Value u) {
    auto [row, chunk] = ix.divRem(Index(u), chunks);
    if (outer.empty()) {
      chunk = Index(u);
      row = Index(ix.cst(0));
    }
    Indices o = delinearize(e, row, outer);
    Value at = ix.mul(chunk.base, e.width);
    auto whole = [&] { body(o, Index(at, e.width > 1 ? 1 : 0)); };
    if (!tail || e.width == 1)
      return whole();
    Value end = ix.dim(inner);
    e.ifThen(ix.cmp(arith::CmpIPredicate::sle, ix.add(at, ix.cst(e.width)), end), whole, [&] {
      e.loop(at, end, ix.cst(1), [&](Value i) { body(o, Index(i)); });
    });
  };
  Value thread = e.threadId(), block = e.blockId();
  if (from) {
    Value own = ix.sub(block, ix.dim(*from));
    Value first = ix.add(ix.mul(own, e.threads), thread);
    e.ifThen(ix.cmp(arith::CmpIPredicate::sge, own, ix.cst(0)), [&] {
      e.ifThen(ix.cmp(arith::CmpIPredicate::slt, first, ix.dim(units)), [&] { unit(first); });
    });
    return;
  }
  Value first = ix.add(ix.mul(block, e.threads), thread);
  if (gridSize(e.kernel) == DimExpr::ceilDiv(units, DimExpr(e.threads))) {
    e.ifThen(ix.cmp(arith::CmpIPredicate::slt, first, ix.dim(units)), [&] { unit(first); });
    return;
  }
  e.loop(first, ix.dim(units), ix.dim(gridSize(e.kernel) * DimExpr(e.threads)), unit);
}

void overUnits(Evaluator &e, ArrayRef<DimExpr> outer, const DimExpr &inner,
               llvm::function_ref<void(const Indices &, const Index &)> body) {
  if (e.kernel.target->isCuda())
    return overThreadUnits(e, outer, inner, body);
  IndexMath &ix = e.ix;
  using P = arith::CmpIPredicate;
  Value size = ix.dim(inner), full = ix.div(size, ix.cst(e.width));
  Value chunks = ix.dim(DimExpr::ceilDiv(inner, DimExpr(e.width)));
  auto c = inner.constant();
  bool vectors = e.width > 1 && (!c || *c >= e.width), tail = !c || *c % e.width != 0;
  auto row = [&](const Indices &o, Value from, Value to) {
    if (vectors)
      e.loop(from, ix.min(to, full), ix.cst(1),
             [&](Value chunk) { body(o, Index(ix.mul(chunk, e.width), 1)); });
    if (!tail && vectors)
      return;
    // The last, partial chunk: one vector of known lanes, or single elements.
    auto rest = [&] {
      if (c && *c % e.width > 1) {
        Evaluator::ActiveLanes some(e, *c % e.width);
        body(o, Index(ix.mul(full, e.width), 1));
        return;
      }
      e.loop(e.width > 1 ? ix.mul(full, e.width) : from, e.width > 1 ? size : to, ix.cst(1),
             [&](Value i) { body(o, Index(i)); });
    };
    if (e.width > 1)
      e.ifThen(ix.cmp(P::sgt, to, full), rest);
    else
      rest();
  };
  DimExpr rows = lathe::product(std::vector<DimExpr>(outer.begin(), outer.end()));
  if (rows == DimExpr(1)) {
    auto [u0, u1] = blockRange(e, chunks);
    row(Indices(outer.size(), Index(ix.cst(0))), u0, u1);
    return;
  }
  auto [u0, u1] = blockRange(e, ix.mul(ix.dim(rows), chunks));
  // Sizes of 0 give an empty range; the divisor must not be 0 for them.
  Value per = ix.max(chunks, ix.cst(1));
  e.loop(ix.div(u0, per), ix.div(ix.add(u1, ix.sub(per, ix.cst(1))), per), ix.cst(1),
         [&](Value r) {
           Value base = ix.mul(r, per);
           Value from = ix.max(ix.sub(u0, base), ix.cst(0));
           Value to = ix.min(ix.sub(u1, base), chunks);
           row(delinearize(e, Index(r), outer), from, to);
         });
}

/// Elements of which several share a byte: a byte is one thread's, so nobody
/// races for it.
static void storeBytes(Evaluator &e, unsigned output) {
  IndexMath &ix = e.ix;
  Value v = e.outputValue(output);
  Type element = elementTypeOf(v), i8 = e.b.getI8Type();
  std::vector<DimExpr> dims = dimsOf(v);
  int64_t bits = Evaluator::bitsBelowByte(element), each = 8 / bits;
  Value n = ix.dim(lathe::product(dims)), bytes = ix.ceilDiv(n, each);
  auto byte = [&](Value at) {
    Value code = e.constantInt(i8, 0);
    for (int64_t j = 0; j < each; ++j) {
      Value flat = ix.add(ix.mul(at, each), j);
      auto one = [&] { return e.toCode(e.lane(e.eval(v, delinearize(e, Index(flat), dims)), 0), element); };
      Value part = e.ifElse(ix.cmp(arith::CmpIPredicate::slt, flat, n), one,
                            [&] { return e.constantInt(i8, 0); });
      Value moved = e.make<arith::ShLIOp>(part, e.constantInt(i8, j * bits));
      code = e.make<arith::OrIOp>(code, moved);
    }
    tile::StoreOp::create(e.b, e.loc, code, e.buffer(e.outputArg(output)), at, nullptr);
  };
  if (!e.kernel.target->isCuda()) {
    auto [lo, hi] = blockRange(e, bytes);
    e.loop(lo, hi, ix.cst(1), byte);
    return;
  }
  Value first = ix.add(ix.mul(e.blockId(), e.threads), e.threadId());
  e.loop(first, bytes, ix.dim(gridSize(e.kernel) * DimExpr(e.threads)), byte);
}

namespace {

/// Outputs of one shape, which share a loop over dimensions up to `first` and all behind it; or the updates of a
/// scatter, which makes one output in place.
struct Shape {
  std::vector<DimExpr> dims;
  SmallVector<unsigned> outputs;
  int64_t first = 0;
  DimExpr inner = 1;
  Operation *scatter = nullptr;

  ArrayRef<DimExpr> outer() const { return ArrayRef<DimExpr>(dims).take_front(first); }
};

} // namespace

/// Merges the dimensions that every access walks densely.
static Shape mergeDims(Evaluator &e, std::vector<DimExpr> dims, SmallVector<unsigned> outputs) {
  Shape shape{std::move(dims), std::move(outputs)};
  int64_t rank = shape.dims.size();
  auto flat = [&](int64_t from) {
    for (unsigned o : shape.outputs) {
      const BufferArg &out = e.bufferArg(e.outputArg(o));
      for (int64_t d = from + 1; d < rank; ++d)
        if (!(out.physical[d] == shape.dims[d]))
          return false;
      if (!flatDims(e, e.outputValue(o), from, rank - 1))
        return false;
    }
    return true;
  };
  shape.first = rank - 1;
  while (shape.first > 0 && flat(shape.first - 1))
    --shape.first;
  shape.first = std::max<int64_t>(shape.first, 0);
  for (int64_t d = shape.first; d < rank; ++d)
    shape.inner = shape.inner * shape.dims[d];
  return shape;
}

/// Whether vectors run over the ends of rows: rows hold no whole number of vectors, and results
/// lie densely.
static bool runsOver(Evaluator &e, const Shape &shape) {
  auto inner = shape.inner.constant();
  bool all = e.kernel.target->isCuda() && !shape.scatter && e.width > 1 && shape.first > 0 && inner &&
             *inner % e.width != 0;
  for (unsigned o : shape.outputs)
    all = all && e.bufferArg(e.outputArg(o)).physical == shape.dims;
  return all;
}

/// Row and place in the row, of `inner` elements, of the lanes from element `at` on.
static std::pair<Index, Index> overRowEnds(Evaluator &e, const Index &at, int64_t inner) {
  IndexMath &ix = e.ix;
  if (inner < e.width)
    return ix.divRem(at, DimExpr(inner));
  // A vector has the end of one row at most.
  Value row = ix.div(at.base, ix.cst(inner)), column = ix.rem(at.base, ix.cst(inner));
  if (at.uniform())
    return {Index(row), Index(column)};
  Value places = ix.lanesOf(Index(column, 1)), size = ix.splat(ix.cst(inner));
  Value next = e.make<arith::CmpIOp>(arith::CmpIPredicate::sge, places, size);
  Value rows = e.make<arith::SelectOp>(next, ix.splat(ix.add(row, 1)), ix.splat(row));
  places = e.make<arith::SelectOp>(next, e.make<arith::SubIOp>(places, size), places);
  return {Index::ofLanes(rows), Index::ofLanes(places)};
}

/// The scatter that makes an output in the memory of what it changes.
static Operation *scatterOf(Evaluator &e, unsigned output) {
  Operation *op = e.outputValue(output).getDefiningOp();
  bool inPlace = e.bufferArg(e.outputArg(output)).access == BufferArg::Access::ReadWrite;
  return op && inPlace && isa<ScatterElementsOp, ScatterNdOp>(op) ? op : nullptr;
}

static Shape shapeOfUpdates(Operation *scatter, unsigned output) {
  Shape shape{dimsOf(scatter->getOperand(2)), {output}};
  shape.first = std::max<int64_t>(int64_t(shape.dims.size()) - 1, 0);
  shape.inner = shape.dims.empty() ? DimExpr(1) : shape.dims.back();
  shape.scatter = scatter;
  return shape;
}

/// Several neighbours along the last dimension but one together (KernelDesc::sharedRows): what does not depend on that
/// dimension, as the places that they are read at and their weights, is computed once for all of them.
static void scheduleRowsTogether(Evaluator &e, int64_t rows) {
  IndexMath &ix = e.ix;
  Value v = e.outputValue(0);
  const std::vector<DimExpr> dims = dimsOf(v);
  const size_t rank = dims.size();
  std::optional<int64_t> count = rank < 2 ? std::nullopt : dims[rank - 2].constant();
  if (!count || *count % rows != 0 || e.kernel.spec->numOutputs > 1 || Evaluator::bitsBelowByte(elementTypeOf(v))) {
    e.fail(e.kernel.body->getTerminator(), "has no rows that share their places");
    return;
  }
  std::vector<DimExpr> outer(dims.begin(), dims.end() - 1);
  outer.back() = *count / rows;
  overUnits(e, outer, dims.back(), [&](const Indices &unit, const Index &at) {
    for (int64_t r = 0; r < rows; ++r) {
      Indices idx = unit;
      idx.back() = Index(ix.add(ix.mul(unit.back().base, rows), r));
      idx.push_back(at);
      e.store(e.eval(v, idx), v, e.outputArg(0), idx);
    }
  });
}

void schedulePointwise(Evaluator &e, const KernelConfig &config) {
  // Of other families, which come here with what their tiles have no form for, rows are those of a tile.
  if (config.form->code == Skeleton::Code::Pointwise && config.rows > 1)
    return scheduleRowsTogether(e, config.rows);
  Operation *yield = e.kernel.body->getTerminator();
  unsigned outputs = yield->getNumOperands();
  std::vector<bool> done(outputs, false);
  SmallVector<Shape> shapes;
  for (unsigned lead = 0; lead < outputs && !e.failed; ++lead) {
    if (done[lead])
      continue;
    if (Evaluator::bitsBelowByte(elementTypeOf(yield->getOperand(lead)))) {
      storeBytes(e, lead);
      continue;
    }
    if (Operation *scatter = scatterOf(e, lead)) {
      shapes.push_back(shapeOfUpdates(scatter, lead));
      continue;
    }
    std::vector<DimExpr> dims = dimsOf(yield->getOperand(lead));
    SmallVector<unsigned> group;
    for (unsigned o = lead; o < outputs; ++o)
      if (dimsOf(yield->getOperand(o)) == dims && !scatterOf(e, o) &&
          !Evaluator::bitsBelowByte(elementTypeOf(yield->getOperand(o)))) {
        group.push_back(o);
        done[o] = true;
      }
    shapes.push_back(mergeDims(e, std::move(dims), std::move(group)));
  }
  // Where the launch has blocks for all shapes side by side, each takes its own.
  auto units = [&](const Shape &shape) {
    return runsOver(e, shape) ? unitsOf(e, {}, lathe::product(shape.dims))
                              : unitsOf(e, shape.outer(), shape.inner);
  };
  DimExpr blocks = 0;
  for (const Shape &shape : shapes)
    blocks = blocks + DimExpr::ceilDiv(units(shape), DimExpr(e.threads));
  bool apart = shapes.size() > 1 && e.kernel.target->isCuda() && gridSize(e.kernel) == blocks;
  DimExpr from = 0;
  for (const Shape &shape : shapes) {
    int64_t rank = shape.dims.size();
    bool over = runsOver(e, shape);
    auto body = [&](const Indices &outer, const Index &at) {
      Indices idx(rank, Index(e.ix.cst(0)));
      Index inner = at;
      if (over) {
        auto [row, column] = overRowEnds(e, at, *shape.inner.constant());
        Indices before = delinearize(e, row, shape.outer());
        std::copy(before.begin(), before.end(), idx.begin());
        inner = column;
      } else {
        std::copy(outer.begin(), outer.end(), idx.begin());
      }
      if (rank > 0)
        idx[flatPlace(shape.dims, shape.first, rank - 1)] = inner;
      if (shape.scatter)
        return storeUpdate(e, shape.scatter, shape.outputs.front(), idx);
      if (over && !at.uniform())
        e.dense = Evaluator::Dense{shape.dims, idx, at};
      for (unsigned o : shape.outputs) {
        Value v = yield->getOperand(o);
        e.store(e.eval(v, idx), v, e.outputArg(o), idx);
      }
      e.dense.reset();
    };
    ArrayRef<DimExpr> outer = over ? ArrayRef<DimExpr>() : shape.outer();
    DimExpr inner = over ? lathe::product(shape.dims) : shape.inner;
    if (!apart) {
      overUnits(e, outer, inner, body);
      continue;
    }
    overThreadUnits(e, outer, inner, body, from);
    from = from + DimExpr::ceilDiv(units(shape), DimExpr(e.threads));
  }
}

} // namespace lathe::codegen
