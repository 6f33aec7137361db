//===- RowSchedule.cpp - reductions over rows ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A row is a set of elements that are reduced together. A block takes a row, or a
// warp or a cluster does, as the configuration says: first all reductions over it, in
// order, with lanes and threads along the row, then the outputs of the row's size.
// Values that several passes need are computed again, or stay in registers where
// the row is short and its length known.
//
// When the reduced dimensions are not the last ones, lanes run along the last
// kept dimension, and a thread walks the reduced elements one by one.
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

struct Rows {
  std::vector<DimExpr> full;   ///< sizes of what is reduced
  SmallVector<int64_t> axes;   ///< reduced, sorted
  SmallVector<int64_t> kept;
  DimExpr length = 1, count = 1;
  std::vector<DimExpr> outer;  ///< sizes of the kept dimensions
};

ArrayRef<int64_t> axesOf(Operation *op, SmallVector<int64_t> &storage) {
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return reduce.getAxes();
  storage.assign(1, cast<ArgReduceOp>(op).getAxis());
  return storage;
}
bool keeps(Operation *op) {
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return reduce.getKeepdims();
  return cast<ArgReduceOp>(op).getKeepdims();
}
bool isReduction(Operation *op) { return isa<ReduceOp, ArgReduceOp>(op); }

Rows rowsOf(Operation *op) {
  Rows rows;
  SmallVector<int64_t> storage;
  rows.full = dimsOf(op->getOperand(0));
  rows.axes.assign(axesOf(op, storage).begin(), axesOf(op, storage).end());
  for (int64_t d = 0; d < static_cast<int64_t>(rows.full.size()); ++d) {
    if (llvm::is_contained(rows.axes, d)) {
      rows.length = rows.length * rows.full[d];
    } else {
      rows.kept.push_back(d);
      rows.outer.push_back(rows.full[d]);
      rows.count = rows.count * rows.full[d];
    }
  }
  return rows;
}

struct RowEmitter {
  Evaluator &e;
  Rows rows;
  SmallVector<Operation *> reductions;
  SmallVector<unsigned> fullOutputs, rowOutputs;
  bool flat = false, packed = false;

  /// Index of the whole with the reduced part open, from that of the row.
  Indices open(const Indices &row) {
    Indices idx(rows.full.size(), Index(e.ix.cst(0)));
    for (auto [d, i] : llvm::zip(rows.kept, row))
      idx[d] = i;
    return idx;
  }
  Indices element(const Indices &row, const Index &at) {
    Indices idx = open(row);
    if (flat || rows.axes.size() == 1) {
      idx[flatPlace(rows.full, rows.axes.front(), rows.axes.back())] = at;
    } else {
      SmallVector<DimExpr> dims;
      for (int64_t axis : rows.axes)
        dims.push_back(rows.full[axis]);
      for (auto [axis, i] : llvm::zip(rows.axes, delinearize(e, at, dims)))
        idx[axis] = i;
    }
    return idx;
  }

  LogicalResult classify();
  void emitRow(const Indices &row, bool cooperative);
};

LogicalResult RowEmitter::classify() {
  for (Operation &op : *e.kernel.body) {
    if (!isReduction(&op))
      continue;
    Rows other = rowsOf(&op);
    if (reductions.empty())
      rows = other;
    else if (other.full != rows.full || other.axes != rows.axes)
      continue; // evaluated where it is needed
    reductions.push_back(&op);
  }
  Operation *yield = e.kernel.body->getTerminator();
  if (reductions.empty())
    return yield->emitError("code generation: the row schedule needs a reduction");
  DimExpr all = lathe::product(rows.full);
  for (auto [o, v] : llvm::enumerate(yield->getOperands())) {
    std::vector<DimExpr> dims = dimsOf(v);
    if (dims == rows.full)
      fullOutputs.push_back(o);
    else if (lathe::product(dims) == rows.count)
      rowOutputs.push_back(o);
    else if (lathe::product(dims) == all)
      fullOutputs.push_back(o);
    else
      return yield->emitError("code generation: output ")
             << o << " has neither the size of the data nor that of the rows";
  }
  int64_t first = rows.axes.front(), last = rows.axes.back();
  flat = last - first + 1 == static_cast<int64_t>(rows.axes.size());
  for (unsigned o : fullOutputs) {
    Value v = yield->getOperand(o);
    if (dimsOf(v) != rows.full) {
      flat = false;
      continue;
    }
    const BufferArg &out = e.bufferArg(e.outputArg(o));
    for (int64_t d = first + 1; flat && d <= last; ++d)
      flat = out.physical[d] == rows.full[d];
    flat = flat && flatDims(e, v, first, last);
  }
  return success();
}

void RowEmitter::emitRow(const Indices &row, bool cooperative) {
  e.cooperative = cooperative;
  for (Operation *op : reductions) {
    Indices at = keeps(op) ? open(row) : row;
    e.eval(op->getResult(0), at);
    if (packed)
      e.keepPacked();
  }
  auto outputs = [&](const Index &i) {
    Indices idx = element(row, i);
    for (unsigned o : fullOutputs) {
      Value v = e.outputValue(o);
      Indices at = dimsOf(v) == rows.full ? idx : reshapeIndex(e, rows.full, dimsOf(v), idx);
      e.store(e.eval(v, at), v, e.outputArg(o), at);
    }
  };
  if (!fullOutputs.empty()) {
    if (cooperative || uniform(row)) {
      e.overRow(rows.length, outputs);
    } else {
      e.loop(e.ix.cst(0), e.ix.dim(rows.length), e.ix.cst(1),
             [&](Value i) { outputs(Index(i)); });
    }
  }
  auto rowResults = [&] {
    for (unsigned o : rowOutputs) {
      Value v = e.outputValue(o);
      Indices at = reshapeIndex(e, rows.outer, dimsOf(v), row);
      e.store(e.eval(v, at), v, e.outputArg(o), at);
    }
  };
  e.cooperative = false;
  if (rowOutputs.empty())
    return;
  if (cooperative && e.threads > 1)
    e.ifThen(e.ix.cmp(arith::CmpIPredicate::eq, e.threadId(), e.ix.cst(0)),
             rowResults);
  else
    rowResults();
}

} // namespace

/// Says of loads of the data ("tile.once") that nobody reads it again, where it and the results are
/// far more than a second-level cache holds.
static void markStreams(Evaluator &e, const Rows &rows) {
  constexpr int64_t kFar = 128 << 20, kLoad = 128;
  const KernelSpec &spec = *e.kernel.spec;
  DimExpr all = lathe::product(rows.full);
  int64_t bytes = 0;
  for (const BufferArg &b : spec.buffers)
    bytes += lathe::product(b.dims).constant().value_or(0) * bitWidth(b.dtype) / 8;
  if (!e.kernel.target->hasAsyncCopy() || bytes < kFar)
    return;
  e.fn.walk([&](tile::LoadOp load) {
    auto argument = dyn_cast<BlockArgument>(load.getBuffer());
    auto vector = dyn_cast<VectorType>(load.getValue().getType());
    bool data = argument && argument.getArgNumber() < static_cast<unsigned>(spec.numInputs) &&
                lathe::product(spec.buffers[argument.getArgNumber()].dims) == all;
    if (data && vector && load.getAligned() && !load->getParentOfType<LoopLikeOpInterface>() &&
        vector.getNumElements() * vector.getElementTypeBitWidth() == kLoad)
      load->setAttr("tile.once", UnitAttr::get(load.getContext()));
  });
}

void scheduleRow(Evaluator &e, const KernelConfig &config) {
  RowEmitter emitter{e};
  emitter.packed = e.kernel.target->isCuda() && config.stages > 0;
  // 64 elements of a row, in registers of 32 bits.
  if (e.kernel.target->isCuda() && e.width > 1)
    e.unrolledChunks = std::max<int64_t>(8, 64 / e.width);
  if (failed(emitter.classify())) {
    e.failed = true;
    return;
  }
  Rows &rows = emitter.rows;
  int64_t rank = rows.full.size();
  bool trailing = rows.axes.back() == rank - 1;
  if (trailing || rows.kept.empty()) {
    auto row = [&](Value r) { emitter.emitRow(delinearize(e, Index(r), rows.outer), true); };
    if (e.groups() == 1) {
      overBlockShare(e, rows.count, row);
      return markStreams(e, rows);
    }
    // Several rows a block, a warp or some lanes of one each.
    IndexMath &ix = e.ix;
    constexpr int64_t kWarp = 32;
    const DimExpr together = gridSize(e.kernel) * DimExpr(e.groups());
    const bool once = gridSize(e.kernel) == DimExpr::ceilDiv(rows.count, DimExpr(e.groups()));
    Value end = ix.dim(rows.count);
    if (e.threads < kWarp) {
      // All lanes of a warp take part in its shuffles: those without a row compute the last one again.
      auto some = [&](Value begin) {
        Value mine = ix.add(begin, e.groupId());
        e.storeGuard = ix.cmp(arith::CmpIPredicate::slt, mine, end);
        row(ix.min(mine, ix.sub(end, ix.cst(1))));
        e.storeGuard = {};
      };
      Value begin = ix.mul(e.blockId(), e.groups());
      if (once)
        some(begin);
      else
        e.loop(begin, end, ix.dim(together), some);
      return markStreams(e, rows);
    }
    Value first = ix.add(ix.mul(e.blockId(), e.groups()), e.groupId());
    if (once)
      e.ifThen(ix.cmp(arith::CmpIPredicate::slt, first, end), [&] { row(first); });
    else
      e.loop(first, end, ix.dim(together), row);
    return markStreams(e, rows);
  }
  // Lanes along the last kept dimension.
  ArrayRef<DimExpr> outer(rows.outer);
  overUnits(e, outer.drop_back(), rows.outer.back(), [&](const Indices &o, const Index &inner) {
    Indices row = o;
    row.push_back(inner);
    emitter.emitRow(row, false);
  });
}

} // namespace lathe::codegen
