//===- SerialSchedules.cpp - scans and scatters -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels whose elements depend on an order. A scan walks its axis with
// accumulators; everything beside the axis runs in parallel. A scatter copies
// its operand, unless the result's memory already holds it, and then applies the
// updates: in index order, or in parallel where no two may go to one place.
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

using namespace mlir;

namespace lathe::codegen {

void scheduleScan(Evaluator &e, const KernelConfig &) {
  IndexMath &ix = e.ix;
  SmallVector<ScanOp> scans(e.kernel.body->getOps<ScanOp>());
  Operation *yield = e.kernel.body->getTerminator();
  auto reject = [&](const Twine &why) {
    yield->emitError("code generation: ") << why;
    e.failed = true;
  };
  if (scans.empty())
    return reject("the scan schedule needs a scan");
  ScanOp lead = scans[0];
  std::vector<DimExpr> dims = dimsOf(lead.getResult());
  int64_t axis = lead.getAxis(), rank = dims.size();
  for (ScanOp scan : scans)
    if (static_cast<int64_t>(scan.getAxis()) != axis || dimsOf(scan.getResult()) != dims ||
        scan.getReverse() != lead.getReverse())
      return reject("scans of one kernel must share axis, direction and sizes");
  for (Value v : yield->getOperands())
    if (dimsOf(v) != dims)
      return reject("the outputs of a scan kernel must have its sizes");

  SmallVector<int64_t> kept;
  std::vector<DimExpr> outer;
  for (int64_t d = 0; d < rank; ++d)
    if (d != axis) {
      kept.push_back(d);
      outer.push_back(dims[d]);
    }
  DimExpr inner(1);
  // Lanes run along the last dimension unless that is the one scanned.
  bool lanes = axis != rank - 1;
  if (lanes) {
    inner = outer.back();
    outer.pop_back();
  }
  overUnits(e, outer, inner, [&](const Indices &o, const Index &at) {
    Indices row = o;
    if (lanes)
      row.push_back(at);
    SmallVector<Value> init;
    for (ScanOp scan : scans) {
      Type type = Evaluator::computeType(elementTypeOf(scan.getX()));
      Value start = e.neutral(scan.getKind(), type, Evaluator::isUnsigned(scan.getX()));
      init.push_back(uniform(row) ? start : e.splat(start));
    }
    Value n = ix.dim(dims[axis]);
    e.loop(ix.cst(0), n, ix.cst(1), ValueRange(init), [&](Value i, ValueRange args) {
      Indices idx(rank);
      for (auto [d, r] : llvm::zip(kept, row))
        idx[d] = r;
      idx[axis] = Index(lead.getReverse() ? ix.sub(ix.sub(n, ix.cst(1)), i) : i);
      SmallVector<Value> next;
      for (auto [scan, acc] : llvm::zip(scans, args)) {
        Value x = e.eval(scan.getX(), idx);
        Value sum = e.combine(scan.getKind(), acc, x, Evaluator::isUnsigned(scan.getX()));
        next.push_back(sum);
        e.bind(scan.getResult(), idx, scan.getExclusive() ? acc : sum);
      }
      for (auto [o, v] : llvm::enumerate(yield->getOperands()))
        e.store(e.eval(v, idx), v, e.outputArg(o), idx);
      return next;
    });
  });
}

namespace {

/// Applies one update: plain, or combined with what is there.
void update(Evaluator &e, Value result, unsigned output, std::optional<ReduceKind> kind,
            const Indices &at, Value v) {
  if (kind) {
    Index off = e.offset(e.bufferArg(output).physical, at);
    Value old = e.load(e.buffer(output), elementTypeOf(result), off);
    v = e.combine(*kind, old, v, Evaluator::isUnsigned(result));
  }
  e.store(v, result, output, at);
}

Index checked(Evaluator &e, Value indices, const Indices &at, const DimExpr &size) {
  Value v = e.cast(e.eval(indices, at), elementTypeOf(indices), e.b.getI64Type(), false);
  return e.checkedIndex(v, e.ix.dim(size));
}

/// The first coordinates of what an update at `idx` of the indices goes to; none when code for them
/// cannot be made.
std::optional<Indices> placeOf(Evaluator &e, ScatterNdOp nd, const Indices &idx) {
  auto type = cast<RankedTensorType>(nd.getIndices().getType());
  int64_t last = type.getRank() - 1;
  if (type.isDynamicDim(last)) {
    e.fail(nd, "needs a static depth of its indices");
    return std::nullopt;
  }
  std::vector<DimExpr> dims = dimsOf(nd.getResult());
  Indices at;
  for (int64_t k = 0; k < type.getDimSize(last); ++k) {
    Indices one = idx;
    one.push_back(Index(e.ix.cst(k)));
    at.push_back(checked(e, nd.getIndices(), one, dims[k]));
  }
  return at;
}

/// The scatter that a kernel yields and nothing else; null after an error.
Operation *yieldedScatter(Evaluator &e) {
  Operation *yield = e.kernel.body->getTerminator();
  Operation *op = yield->getOperand(0).getDefiningOp();
  if (yield->getNumOperands() == 1 && op && isa<ScatterElementsOp, ScatterNdOp>(op))
    return op;
  yield->emitError("code generation: a scatter kernel yields its scatter and nothing else");
  e.failed = true;
  return nullptr;
}

} // namespace

void scheduleScatter(Evaluator &e, const KernelConfig &) {
  IndexMath &ix = e.ix;
  Operation *op = yieldedScatter(e);
  if (!op)
    return;
  Value y = op->getResult(0);
  unsigned output = e.outputArg(0);
  std::vector<DimExpr> dims = dimsOf(y);
  Value thread = e.threadId();

  // The operand first, unless the output already shares its memory.
  Value x = op->getOperand(0);
  bool inPlace = false;
  if (auto arg = dyn_cast<BlockArgument>(x))
    inPlace = e.bufferArg(output).aliases == static_cast<int>(arg.getArgNumber());
  if (!inPlace) {
    DimExpr all = lathe::product(dims);
    e.cooperative = true;
    e.overRow(all, [&](const Index &i) {
      Indices idx = delinearize(e, i, dims);
      e.store(e.eval(x, idx), y, output, idx);
    });
    e.cooperative = false;
    if (e.threads > 1)
      tile::BarrierOp::create(e.b, e.loc);
  }

  auto serial = [&] {
    if (auto elements = dyn_cast<ScatterElementsOp>(op)) {
      int64_t axis = elements.getAxis();
      std::vector<DimExpr> ud = dimsOf(elements.getUpdates());
      e.loop(ix.cst(0), ix.dim(lathe::product(ud)), ix.cst(1), [&](Value i) {
        Indices idx = delinearize(e, Index(i), ud), at = idx;
        at[axis] = checked(e, elements.getIndices(), idx, dims[axis]);
        update(e, y, output, elements.getReduction(), at, e.eval(elements.getUpdates(), idx));
      });
      return;
    }
    auto nd = cast<ScatterNdOp>(op);
    std::vector<DimExpr> id = dimsOf(nd.getIndices()), ud = dimsOf(nd.getUpdates());
    std::vector<DimExpr> od(id.begin(), id.end() - 1), sd(ud.begin() + od.size(), ud.end());
    e.loop(ix.cst(0), ix.dim(lathe::product(od)), ix.cst(1), [&](Value i) {
      Indices idx = delinearize(e, Index(i), od);
      std::optional<Indices> at = placeOf(e, nd, idx);
      if (!at)
        return;
      e.overRow(lathe::product(sd), [&](const Index &j) {
        Indices slice = delinearize(e, j, sd), from = idx, to = *at;
        from.append(slice.begin(), slice.end());
        to.append(slice.begin(), slice.end());
        update(e, y, output, nd.getReduction(), to, e.eval(nd.getUpdates(), from));
      });
    });
  };
  if (e.threads > 1)
    e.ifThen(ix.cmp(arith::CmpIPredicate::eq, thread, ix.cst(0)), serial);
  else
    serial();
}

void scheduleUnorderedScatter(Evaluator &e, const KernelConfig &) {
  Operation *op = yieldedScatter(e);
  if (!op)
    return;
  Value updates = op->getOperand(2);
  std::vector<DimExpr> outer = dimsOf(updates);
  DimExpr inner = outer.empty() ? DimExpr(1) : outer.back();
  if (!outer.empty())
    outer.pop_back();
  overUnits(e, outer, inner, [&](const Indices &row, const Index &at) {
    Indices from = row;
    if (from.size() < dimsOf(updates).size())
      from.push_back(at);
    storeUpdate(e, op, 0, from);
  });
}

void storeUpdate(Evaluator &e, Operation *scatter, unsigned output, const Indices &from) {
  Value y = scatter->getResult(0);
  std::vector<DimExpr> dims = dimsOf(y);
  Indices to = from;
  if (auto elements = dyn_cast<ScatterElementsOp>(scatter)) {
    int64_t axis = elements.getAxis();
    to[axis] = checked(e, elements.getIndices(), from, dims[axis]);
  } else {
    auto nd = cast<ScatterNdOp>(scatter);
    auto slice = from.begin() + (dimsOf(nd.getIndices()).size() - 1);
    std::optional<Indices> place = placeOf(e, nd, Indices(from.begin(), slice));
    if (!place)
      return;
    to = *place;
    to.append(slice, from.end());
  }
  e.store(e.eval(scatter->getOperand(2), from), y, e.outputArg(output), to);
}

} // namespace lathe::codegen
