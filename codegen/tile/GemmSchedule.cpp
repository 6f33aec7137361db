//===- GemmSchedule.cpp - matrix products as register tiles -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes a matmul to the skeleton: batch dimensions fold into the rows when
// the right operand has none; rows that lie in memory in the accumulator's
// type are read there, others are computed into scratch.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

std::vector<DimExpr> leading(const std::vector<DimExpr> &dims) {
  return {dims.begin(), dims.end() - 2};
}

bool dense(const BufferArg &arg) { return arg.physical == arg.dims && arg.packing.empty(); }

/// Whether scalars of this type can be broadcast as they are read: conversions
/// of 16- and 8-bit floats cost too much there.
bool readsDirectly(Type element) {
  if (auto f = dyn_cast<FloatType>(element))
    return f.getWidth() >= 32;
  return element.isIntOrIndex() && element.getIntOrFloatBitWidth() >= 8;
}

} // namespace

void scheduleGemm(Evaluator &e, const KernelConfig &config) {
  MatmulOp op;
  for (auto candidate : e.kernel.body->getOps<MatmulOp>())
    if (!op)
      op = candidate;
  if (!op)
    return schedulePointwise(e, config);
  Value y = op.getResult(), a = op.getA(), b = op.getB();
  Epilogue epilogue(e, y);
  if (!epilogue.supported())
    return schedulePointwise(e, config);
  IndexMath &ix = e.ix;
  std::vector<DimExpr> ad = dimsOf(a), bd = dimsOf(b), yd = dimsOf(y);
  std::vector<DimExpr> outer = leading(yd);
  int64_t rank = yd.size();
  bool ta = op.getTransposeA(), tb = op.getTransposeB();

  Product p{e, config, y, Evaluator::computeType(elementTypeOf(y))};
  p.columns = yd.back();
  p.depth = ta ? ad[ad.size() - 2] : ad.back();
  bool fold = lathe::product(leading(bd)) == DimExpr(1) && leading(ad) == outer;
  p.batches = fold ? DimExpr(1) : lathe::product(outer);
  // The variant for one row: its guard says that there is no other.
  bool single = config.tileM == 1 && config.rows == 1;
  p.rows = single ? DimExpr(1) : fold ? lathe::product(outer) * yd[rank - 2] : yd[rank - 2];
  bool flat = fold && epilogue.flat(0, rank - 2);

  // Leading indices and the row's, of the result.
  std::vector<DimExpr> rowDims = outer;
  rowDims.push_back(yd[rank - 2]);
  auto place = [&ix, &e, fold, rowDims, outer, rank](Value batch, Value row, bool flat) {
    Indices idx;
    if (flat) {
      idx.assign(rank - 1, Index(ix.cst(0)));
      idx[flatPlace(rowDims, 0, rank - 2)] = Index(row);
      return idx;
    }
    if (fold)
      return delinearize(e, Index(row), rowDims);
    idx = delinearize(e, Index(batch), outer);
    idx.push_back(Index(row));
    return idx;
  };
  p.resultIndex = [place, flat](Value batch, Value row, const Index &column) {
    Indices idx = place(batch, row, flat);
    idx.push_back(column);
    return idx;
  };

  auto aArg = dyn_cast<BlockArgument>(a);
  p.rowElement = elementTypeOf(a);
  bool flatRows = fold && !ta && flatDims(e, a, 0, rank - 2);
  auto aIndex = [&e, place, ad, yd, ta, rank, flatRows](Value batch, Value row, const Index &k) {
    Indices y = place(batch, row, flatRows);
    Indices idx = batchIndex(e, leading(ad), leading(yd), ArrayRef<Index>(y).take_front(rank - 2));
    Index m = y.back();
    idx.push_back(ta ? k : m);
    idx.push_back(ta ? m : k);
    return idx;
  };
  if (aArg && !ta && readsDirectly(p.rowElement) && e.bufferArg(aArg.getArgNumber()).packing.empty()) {
    const BufferArg &arg = e.bufferArg(aArg.getArgNumber());
    p.rowBuffer = e.buffer(aArg.getArgNumber());
    bool rowsTogether = fold && dense(arg);
    p.rowOffset = [&e, &ix, &arg, aIndex, rowsTogether, depth = p.depth](Value batch, Value row) {
      if (rowsTogether)
        return ix.mul(row, ix.dim(depth));
      return e.offset(arg.physical, aIndex(batch, row, Index(ix.cst(0)))).base;
    };
  } else {
    p.fillRow = [&e, &ix, a, aIndex, &p](Value batch, Value row, Value scratch, Value at) {
      e.overRow(p.depth, [&](const Index &k) {
        Value v = e.eval(a, aIndex(batch, row, k));
        e.storeAt(widen(e, v, elementTypeOf(a), p.accumulator), p.accumulator, scratch,
                  ix.add(Index(at), k));
      });
    };
  }

  Value stored = b; // 16-bit weights are widened as they are read
  if (auto cast = b.getDefiningOp<CastOp>())
    if (elementTypeOf(cast.getX()).isF16() || elementTypeOf(cast.getX()).isBF16())
      if (isa<BlockArgument>(cast.getX()) && p.accumulator.isF32())
        stored = cast.getX();
  auto bArg = dyn_cast<BlockArgument>(stored);
  p.columnElement = elementTypeOf(stored);
  auto bBatch = [&e, &ix, fold, outer, bd](Value batch) {
    std::vector<DimExpr> dims = leading(bd);
    if (fold)
      return Indices(dims.size(), Index(ix.cst(0)));
    return batchIndex(e, dims, outer, delinearize(e, Index(batch), outer));
  };
  if (bArg && p.columnElement.getIntOrFloatBitWidth() >= 8) {
    const BufferArg &arg = e.bufferArg(bArg.getArgNumber());
    if (!arg.packing.empty()) {
      std::vector<int64_t> dims;
      for (const DimExpr &d : arg.dims)
        dims.push_back(d.constant().value_or(0));
      Result<PanelLayout> layout = PanelLayout::of(arg.packing, dims);
      if (layout && layout->panel == config.tileN) {
        p.packed = *layout;
        p.columnBuffer = e.buffer(bArg.getArgNumber());
        p.columnOffset = [&ix, bBatch, bd, layout = *layout](Value batch) {
          Index flat(ix.cst(0));
          for (auto [d, i] : llvm::enumerate(bBatch(batch)))
            flat = ix.add(ix.mul(flat, bd[d]), i);
          return ix.mul(flat.base, layout.depth * layout.paddedColumns());
        };
      }
    } else if (!tb && arg.physical[arg.physical.size() - 1] == arg.dims.back()) {
      p.columnBuffer = e.buffer(bArg.getArgNumber());
      p.columnOffset = [&e, &ix, &arg, bBatch](Value batch) {
        Indices idx = bBatch(batch);
        idx.push_back(Index(ix.cst(0)));
        idx.push_back(Index(ix.cst(0)));
        return e.offset(arg.physical, idx).base;
      };
    }
  }
  if (!p.columnBuffer)
    p.columnAt = [&e, b, bBatch, tb](Value batch, const Index &k, Value column) {
      Indices idx = bBatch(batch);
      idx.push_back(tb ? Index(column) : k);
      idx.push_back(tb ? k : Index(column));
      return e.eval(b, idx);
    };
  p.consume = [&](const Indices &idx, Value v) { epilogue.emit(idx, v); };
  if (!p.emit())
    schedulePointwise(e, config);
}

} // namespace lathe::codegen
