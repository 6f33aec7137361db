//===- GemmSchedule.cpp - matrix products as register tiles -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes a matmul to the skeleton: batch dimensions fold into the rows when
// the right operand has none; rows that lie in memory in the accumulator's
// type are read there, others are computed into scratch.
//
//===----------------------------------------------------------------------===//

#include "CodeGroups.h"
#include "Product.h"

#include "lathe/ir/StorageOperand.h"

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

/// Bits of an integer's type; of other elements 0.
unsigned bitWidthOf(Value v) {
  auto integer = dyn_cast<IntegerType>(elementTypeOf(v));
  return integer ? integer.getWidth() : 0;
}

/// Writes rows whose neighbours lie side by side, by squares of vectors: `at` gives W rows' elements of one k. Neighbouring
/// squares of one k follow each other, so that each line of memory is read once.
void fillTurned(Evaluator &e, const Product &p, Value count, Value scratch,
                llvm::function_ref<Value(const Index &row, const Index &k)> at) {
  IndexMath &ix = e.ix;
  const int64_t W = e.width;
  Value depth = ix.dim(p.depth), wholeRows = ix.mul(ix.div(count, ix.cst(W)), W);
  auto place = [&](Value row, Value k) { return ix.add(ix.mul(row, depth), k); };
  auto square = [&](Value row, Value k, int64_t ks) {
    SmallVector<Value> lines;
    for (int64_t i = 0; i < ks; ++i)
      lines.push_back(at(Index(row, 1), Index(ix.add(k, i))));
    lines.resize(W, lines.front()); // nobody looks at the others
    transposeSquare(e, lines);
    Evaluator::ActiveLanes some(e, ks);
    for (int64_t i = 0; i < W; ++i)
      e.storeAt(lines[i], p.accumulator, scratch, Index(place(ix.add(row, i), k), 1));
  };
  auto squares = [&](Value k, int64_t ks) {
    e.loop(ix.cst(0), wholeRows, ix.cst(W), [&](Value row) { square(row, k, ks); });
  };
  const std::optional<int64_t> known = p.depth.constant();
  Value wholeDepth = ix.mul(ix.div(depth, ix.cst(W)), W);
  e.loop(ix.cst(0), wholeDepth, ix.cst(W), [&](Value k) { squares(k, W); });
  if (known && *known % W)
    squares(wholeDepth, *known % W);
  // What is left one by one: of a depth that the run knows, and of rows.
  auto one = [&](Value row, Value k) {
    e.storeAt(at(Index(row), Index(k)), p.accumulator, scratch, Index(place(row, k)));
  };
  if (!known)
    e.loop(ix.cst(0), wholeRows, ix.cst(1), [&](Value row) {
      e.loop(wholeDepth, depth, ix.cst(1), [&](Value k) { one(row, k); });
    });
  e.loop(wholeRows, count, ix.cst(1), [&](Value row) {
    e.loop(ix.cst(0), depth, ix.cst(1), [&](Value k) { one(row, k); });
  });
}

} // namespace

void scheduleGemm(Evaluator &e, const KernelConfig &config) {
  auto op = e.anchor<MatmulOp>();
  if (!op)
    return;
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
  p.sums = config.stages;
  const DimExpr &ofRows = ta ? ad[ad.size() - 2] : ad.back(), &ofColumns = tb ? bd.back() : bd[bd.size() - 2];
  const DimExpr depth = ofRows.isConstant() ? ofRows : ofColumns; // equal in each run
  p.interleave = config.form->product.interleave;
  p.depth = p.interleave > 1 ? DimExpr::ceilDiv(depth, DimExpr(p.interleave)) : depth;
  bool fold = lathe::product(leading(bd)) == DimExpr(1) && leading(ad) == outer;
  p.batches = fold ? DimExpr(1) : lathe::product(outer);
  // The variant for one row: its guard says that there is no other.
  bool single = config.tileM == 1 && config.rows == 1;
  p.rows = single ? DimExpr(1) : fold ? lathe::product(outer) * yd[rank - 2] : yd[rank - 2];
  bool flatRows = fold && !ta && flatDims(e, a, 0, rank - 2);
  // What is left of an unknown number of columns is evaluated at the result's indices, which A must
  // then be able to take as one row number too.
  bool flat = fold && epilogue.flat(0, rank - 2) && (flatRows || p.columns.isConstant());

  // Leading indices and the row's, of the result.
  std::vector<DimExpr> rowDims = outer;
  rowDims.push_back(yd[rank - 2]);
  auto place = [&ix, &e, fold, rowDims, outer, rank](Value batch, const Index &row, bool flat) {
    Indices idx;
    if (flat) {
      idx.assign(rank - 1, Index(ix.cst(0)));
      idx[flatPlace(rowDims, 0, rank - 2)] = row;
      return idx;
    }
    if (fold)
      return delinearize(e, row, rowDims);
    idx = delinearize(e, Index(batch), outer);
    idx.push_back(row);
    return idx;
  };
  p.resultIndex = [place, flat](Value batch, Value row, const Index &column) {
    Indices idx = place(batch, Index(row), flat);
    idx.push_back(column);
    return idx;
  };

  auto aArg = dyn_cast<BlockArgument>(a);
  p.rowElement = elementTypeOf(a);
  auto aIndex = [&e, place, ad, yd, ta, rank, flatRows](Value batch, const Index &row, const Index &k) {
    Indices y = place(batch, row, flatRows);
    Indices idx = batchIndex(e, leading(ad), leading(yd), ArrayRef<Index>(y).take_front(rank - 2));
    Index m = y.back();
    idx.push_back(ta ? k : m);
    idx.push_back(ta ? m : k);
    return idx;
  };
  bool inMemory = aArg && !ta && readsDirectly(p.rowElement) && e.bufferArg(aArg.getArgNumber()).packing.empty();
  if (inMemory) {
    const BufferArg &arg = e.bufferArg(aArg.getArgNumber());
    p.rowBuffer = e.buffer(aArg.getArgNumber());
    bool rowsTogether = fold && dense(arg);
    p.rowOffset = [&e, &ix, &arg, aIndex, rowsTogether, depth](Value batch, Value row) {
      if (rowsTogether)
        return ix.mul(row, ix.dim(depth));
      return e.offset(arg.physical, aIndex(batch, Index(row), Index(ix.cst(0)))).base;
    };
  }
  std::optional<CodeGroups> groups;
  if (p.interleave > 1)
    groups.emplace(CodeGroups{e, p.interleave, p.rowElement, {}});
  const bool bytesInPlace = groups && inMemory && groups->asTheyLie() &&
                            dense(e.bufferArg(aArg.getArgNumber())) &&
                            depth.constant().value_or(1) % p.interleave == 0;
  if (groups)
    p.ofColumnSums = groups->ofColumnSums();
  if (bytesInPlace) {
    p.rowsAreBytes = true;
    p.rowOffset = [&ix, at = p.rowOffset, each = p.interleave](Value batch, Value row) {
      return ix.div(at(batch, row), ix.cst(each));
    };
  } else if (groups) {
    Value memory = p.rowBuffer;
    p.rowBuffer = {};
    p.fillRow = [&e, &p, &groups, a, aIndex, memory, depth](Value batch, Value row, Value scratch, Value at) {
      groups->write(
          depth.constant().value_or(0), memory, memory ? p.rowOffset(batch, row) : Value(),
          [&](const Index &k) { return e.eval(a, aIndex(batch, Index(row), k)); }, scratch, at);
    };
  } else if (!inMemory) {
    p.fillRow = [&e, &ix, a, aIndex, &p](Value batch, Value row, Value scratch, Value at) {
      e.overRow(p.depth, [&](const Index &k) {
        Value v = e.eval(a, aIndex(batch, Index(row), k));
        e.storeAt(widen(e, v, elementTypeOf(a), p.accumulator), p.accumulator, scratch,
                  ix.add(Index(at), k));
      });
    };
    if (ta && e.width > 1 && p.accumulator.getIntOrFloatBitWidth() <= 32)
      p.fillRows = [&e, a, aIndex, &p](Value batch, Value first, Value count, Value scratch) {
        fillTurned(e, p, count, scratch, [&](const Index &row, const Index &k) {
          Value v = e.splat(e.eval(a, aIndex(batch, e.ix.add(Index(first), row), k)));
          return widen(e, v, elementTypeOf(a), p.accumulator);
        });
      };
  }

  Value stored = b; // 16-bit weights are widened as they are read
  std::optional<StorageOperand> codes; // packed, with their scales beside
  const OperandRole &role = e.kernel.roles.operands[1];
  if (role.storage == OperandRole::Storage::Half)
    stored = e.kernel.body->getArgument(role.input);
  if (role.storage == OperandRole::Storage::Codes && (codes = storageOperand(b)))
    stored = codes->data();
  auto bArg = dyn_cast<BlockArgument>(stored);
  p.columnElement = elementTypeOf(stored);
  auto bBatch = [&e, &ix, fold, outer, bd](Value batch) {
    std::vector<DimExpr> dims = leading(bd);
    if (fold)
      return Indices(dims.size(), Index(ix.cst(0)));
    return batchIndex(e, dims, outer, delinearize(e, Index(batch), outer));
  };
  if (bArg && (codes || p.columnElement.getIntOrFloatBitWidth() >= 8)) {
    const BufferArg &arg = e.bufferArg(bArg.getArgNumber());
    if (!arg.packing.empty()) {
      std::vector<int64_t> dims;
      for (const DimExpr &d : arg.dims)
        dims.push_back(d.constant().value_or(0));
      Result<PanelLayout> layout = PanelLayout::of(arg.packing, dims);
      if (layout && layout->panel == config.tileN && layout->interleave == p.interleave) {
        p.packed = *layout;
        p.columnBuffer = e.buffer(bArg.getArgNumber());
        if (codes)
          p.columnValue = [&e, b, stored, tb, to = p.accumulator](Value k, const Index &column,
                                                                  Value lanes) {
            Indices at{Index(k), column};
            if (tb)
              std::swap(at[0], at[1]);
            e.bind(stored, at, lanes);
            return widen(e, e.eval(b, at), elementTypeOf(b), to);
          };
        p.columnOffset = [&ix, bBatch, bd, layout = *layout](Value batch) {
          Index flat(ix.cst(0));
          for (auto [d, i] : llvm::enumerate(bBatch(batch)))
            flat = ix.add(ix.mul(flat, bd[d]), i);
          return ix.mul(flat.base, layout.paddedDepth() * layout.paddedColumns());
        };
      }
    } else if (!codes && !tb && arg.physical[arg.physical.size() - 1] == arg.dims.back()) {
      p.columnBuffer = e.buffer(bArg.getArgNumber());
      p.columnOffset = [&e, &ix, &arg, bBatch](Value batch) {
        Indices idx = bBatch(batch);
        idx.push_back(Index(ix.cst(0)));
        idx.push_back(Index(ix.cst(0)));
        return e.offset(arg.physical, idx).base;
      };
    }
  }
  if (p.inBlocks() && !(p.accumulator.isF32() && p.batches == DimExpr(1) && config.tileN % e.width == 0)) {
    e.fail(op, "no product by blocks of these types and sizes");
    return;
  }
  if (p.byList() && !(single && p.packed && !codes && p.accumulator.isF32() && p.batches == DimExpr(1) && depth.isConstant() &&
                      p.columns.isConstant())) {
    e.fail(op, "no product by the inputs that are not zero of these types and sizes");
    return;
  }
  bool bytes = bitWidthOf(a) == 8 && bitWidthOf(b) == 8 && p.accumulator.isInteger(32);
  bool signs = p.interleave != 4 || !elementTypeOf(b).isUnsignedInteger();
  if (p.interleave > 1 && !(bytes && signs && p.packed && depth.isConstant()))
    return schedulePointwise(e, config);
  if (!p.columnBuffer)
    p.columnElement = elementTypeOf(b);
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
