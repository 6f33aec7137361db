//===- SerialSchedules.cpp - scans and scatters -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels whose elements depend on an order. A scan walks its axis with
// accumulators; everything beside the axis runs in parallel. A scatter copies
// its operand, unless the result's memory already holds it, and then applies the
// updates: in index order, or in parallel where no two may go to one place. On a GPU
// the threads of a scatter in order have the places that no index names: columns beside the
// axis, or elements of the slices that are updated, each of which goes through all indices.
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

#include "lathe/ir/ScatterSizes.h"

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

} // namespace

Operation *yieldedScatter(const KernelSource &kernel) {
  Operation *yield = kernel.body->getTerminator();
  Operation *op = yield->getOperand(0).getDefiningOp();
  if (yield->getNumOperands() == 1 && op && isa<ScatterElementsOp, ScatterNdOp>(op))
    return op;
  yield->emitError("code generation: a scatter kernel yields its scatter and nothing else");
  return nullptr;
}

bool liesInOperand(Evaluator &e, Operation *scatter, unsigned output) {
  auto arg = dyn_cast<BlockArgument>(scatter->getOperand(0));
  return arg && e.bufferArg(output).aliases == static_cast<int>(arg.getArgNumber());
}

std::optional<Indices> namedBy(Evaluator &e, Operation *scatter, const Indices &from) {
  if (auto elements = dyn_cast<ScatterElementsOp>(scatter))
    return Indices{checked(e, elements.getIndices(), from, dimsOf(elements.getResult())[elements.getAxis()])};
  auto nd = cast<ScatterNdOp>(scatter);
  return placeOf(e, nd, Indices(from.begin(), from.begin() + (dimsOf(nd.getIndices()).size() - 1)));
}

namespace {

/// A scatter in order by many threads: each goes through all indices for its part of what they do not name. False,
/// with nothing emitted, where that is too little for a warp.
bool scatterBeside(Evaluator &e, Operation *op) {
  constexpr int64_t kLeast = 32;
  const ScatterSizes sizes = ScatterSizes::of(op);
  const std::vector<DimExpr> dims = dimsOf(op->getResult(0));
  std::vector<DimExpr> outer; // what lies beside the indices
  for (int64_t d : sizes.beside)
    outer.push_back(dims[d]);
  if (!e.kernel.target->isCuda() || lathe::product(outer).constant().value_or(kLeast) < kLeast)
    return false;
  const DimExpr inner = outer.back();
  outer.pop_back();
  IndexMath &ix = e.ix;
  Value x = op->getOperand(0), y = op->getResult(0), indices = op->getOperand(1), updates = op->getOperand(2);
  const std::vector<DimExpr> ud = dimsOf(updates);
  const unsigned output = e.outputArg(0);
  overUnits(e, outer, inner, [&](const Indices &row, const Index &last) {
    Indices part = row, place(dims.size());
    part.resize(outer.size());
    part.push_back(last);
    for (auto [d, i] : llvm::zip(sizes.beside, part))
      place[d] = i;
    auto putNamed = [&](const Indices &values) {
      for (auto [d, i] : llvm::zip(sizes.named, values))
        place[d] = i;
    };
    if (!liesInOperand(e, op, output))
      e.loop(ix.cst(0), ix.dim(lathe::product(sizes.places)), ix.cst(1), [&](Value i) {
        putNamed(delinearize(e, Index(i), sizes.places));
        e.store(e.eval(x, place), y, output, place);
      });
    if (auto nd = dyn_cast<ScatterNdOp>(op)) {
      std::vector<DimExpr> id = dimsOf(indices), tuples(id.begin(), id.end() - 1);
      e.loop(ix.cst(0), ix.dim(lathe::product(tuples)), ix.cst(1), [&](Value i) {
        Indices from = delinearize(e, Index(i), tuples);
        std::optional<Indices> at = placeOf(e, nd, from);
        if (!at)
          return;
        putNamed(*at);
        from.append(part.begin(), part.end());
        update(e, y, output, nd.getReduction(), place, e.eval(updates, from));
      });
      return;
    }
    auto elements = cast<ScatterElementsOp>(op);
    const int64_t axis = elements.getAxis();
    // Updates may have fewer columns than the operand.
    Value inside;
    for (int64_t d : sizes.beside)
      if (ud[d] != dims[d]) {
        Value one = ix.cmp(arith::CmpIPredicate::slt, place[d].base, ix.dim(ud[d]));
        inside = inside ? Value(arith::AndIOp::create(e.b, e.loc, inside, one)) : one;
      }
    auto all = [&] {
      e.loop(ix.cst(0), ix.dim(ud[axis]), ix.cst(1), [&](Value i) {
        Indices from = place, to = place;
        from[axis] = Index(i);
        to[axis] = checked(e, indices, from, dims[axis]);
        update(e, y, output, elements.getReduction(), to, e.eval(updates, from));
      });
    };
    if (inside)
      e.ifThen(inside, all);
    else
      all();
  });
  return true;
}

/// Everything in order, by one block.
void scatterSerially(Evaluator &e, Operation *op) {
  IndexMath &ix = e.ix;
  Value x = op->getOperand(0), y = op->getResult(0);
  unsigned output = e.outputArg(0);
  std::vector<DimExpr> dims = dimsOf(y);
  Value thread = e.threadId();
  if (!liesInOperand(e, op, output)) {
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

} // namespace

void scheduleScatter(Evaluator &e, const KernelConfig &) {
  Operation *op = yieldedScatter(e.kernel);
  e.failed |= !op;
  if (!op || scatterBeside(e, op))
    return;
  if (gridSize(e.kernel) == DimExpr(1))
    return scatterSerially(e, op);
  e.ifThen(e.ix.cmp(arith::CmpIPredicate::eq, e.blockId(), e.ix.cst(0)), [&] { scatterSerially(e, op); });
}

/// Rows that lanes do not divide: those of a thread are far apart, so that neighbouring threads have neighbouring
/// elements and loads of several are under way. Of a known number of updates.
static void scatterApart(Evaluator &e, Operation *scatter, const std::vector<DimExpr> &updates) {
  IndexMath &ix = e.ix;
  const DimExpr all = lathe::product(updates), threads = DimExpr::ceilDiv(all, DimExpr(e.width));
  const std::optional<int64_t> apart = threads.constant();
  if (!apart) {
    e.fail(scatter, "needs updates of known sizes for lanes that do not divide their rows");
    return;
  }
  Value end = ix.cst(*all.constant()), first = ix.add(ix.mul(e.blockId(), e.threads), e.threadId());
  e.loop(first, ix.cst(*apart), ix.dim(gridSize(e.kernel) * DimExpr(e.threads)), [&](Value u) {
    auto together = [&] { storeUpdate(e, scatter, 0, delinearize(e, Index(u, *apart), updates)); };
    auto oneByOne = [&] {
      e.loop(u, end, ix.cst(*apart), [&](Value i) { storeUpdate(e, scatter, 0, delinearize(e, Index(i), updates)); });
    };
    Value last = ix.add(u, ix.cst(*apart * (e.width - 1)));
    e.ifThen(ix.cmp(arith::CmpIPredicate::slt, last, end), together, oneByOne);
  });
}

void scheduleUnorderedScatter(Evaluator &e, const KernelConfig &) {
  Operation *op = yieldedScatter(e.kernel);
  e.failed |= !op;
  if (!op)
    return;
  Value updates = op->getOperand(2);
  std::vector<DimExpr> outer = dimsOf(updates);
  DimExpr inner = outer.empty() ? DimExpr(1) : outer.back();
  if (e.width > 1 && inner.constant().value_or(0) % e.width != 0)
    return scatterApart(e, op, outer);
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
  Indices to = from;
  std::optional<Indices> named = namedBy(e, scatter, from);
  if (!named)
    return;
  if (auto elements = dyn_cast<ScatterElementsOp>(scatter)) {
    to[elements.getAxis()] = named->front();
  } else {
    to = *named;
    to.append(from.begin() + (dimsOf(scatter->getOperand(1)).size() - 1), from.end());
  }
  e.store(e.eval(scatter->getOperand(2), from), y, e.outputArg(output), to);
}

} // namespace lathe::codegen
