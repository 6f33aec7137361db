//===- TransposeSchedule.cpp - rows into columns on a CPU ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transposes, as between channels first and channels last: W vectors of W contiguous
// elements of the input are a square, which shuffles transpose into W vectors of W
// contiguous elements of the result. Squares are walked along the longer side, several
// at a time, so that few cache lines of input and result are in use at once.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

constexpr int64_t kSquares = 8; ///< one after another along the longer side

/// One of the two sides of the squares: neighbouring dimensions of the result as one.
struct Side {
  int64_t first, last; ///< dimensions
  DimExpr size = 1;
  std::optional<int64_t> rest; ///< behind the last whole square, when it is known
};

struct Turn {
  Evaluator &e;
  IndexMath &ix;
  Value result, transposed; ///< transposed: what squares are made of: the result, or what is transposed on the way to it
  std::vector<DimExpr> dims;
  Side down, along; ///< neighbours in the input, in the result
  SmallVector<int64_t> outer;
  Indices at; ///< of the outer dimensions in work

  Indices index(const Index &row, const Index &column) {
    Indices idx = at;
    idx[flatPlace(dims, down.first, down.last)] = row;
    idx[flatPlace(dims, along.first, along.last)] = column;
    return idx;
  }
  void store(Value v, const Indices &idx) { e.store(v, result, e.outputArg(0), idx); }

  void square(Value row, Value column, int64_t rows, int64_t columns) {
    int64_t W = e.width;
    SmallVector<Value> lines;
    for (int64_t c = 0; c < columns; ++c) {
      Evaluator::ActiveLanes some(e, rows);
      lines.push_back(e.splat(e.eval(transposed, index(Index(row, 1), Index(ix.add(column, c))))));
    }
    lines.resize(W, lines.front()); // nobody looks at the others
    transposeSquare(e, lines);
    Evaluator::ActiveLanes some(e, columns);
    for (int64_t r = 0; r < rows; ++r) {
      Indices idx = index(Index(ix.add(row, r)), Index(column, 1));
      if (transposed != result)
        e.bind(transposed, idx, lines[r]);
      store(transposed == result ? lines[r] : e.splat(e.eval(result, idx)), idx);
    }
  }

  /// What is left of a square of run-time sizes.
  void edge(Value row, Value column) {
    Value rows = ix.min(ix.dim(down.size), ix.add(row, e.width));
    Value end = ix.dim(along.size), next = ix.add(column, e.width);
    auto put = [&](Value r, const Index &c) {
      Indices idx = index(Index(r), c);
      Value v = e.eval(result, idx);
      store(c.uniform() ? v : e.splat(v), idx);
    };
    e.loop(row, rows, ix.cst(1), [&](Value r) {
      e.ifThen(
          ix.cmp(arith::CmpIPredicate::sle, next, end), [&] { put(r, Index(column, 1)); },
          [&] { e.loop(column, end, ix.cst(1), [&](Value c) { put(r, Index(c)); }); });
    });
  }

  /// Calls `body` with the number of elements of a square's side, or 0 for a number that only the
  /// run knows.
  void whole(const Side &side, Value from, llvm::function_ref<void(int64_t)> body) {
    if (side.rest == 0)
      return body(e.width);
    if (auto n = side.size.constant(); n && *n < e.width)
      return body(*n);
    Value fits = ix.cmp(arith::CmpIPredicate::sle, ix.add(from, e.width), ix.dim(side.size));
    e.ifThen(fits, [&] { body(e.width); }, [&] { body(side.rest.value_or(0)); });
  }

  void block(Value row, Value column) {
    whole(down, row, [&](int64_t rows) {
      whole(along, column, [&](int64_t columns) {
        rows &&columns ? square(row, column, rows, columns) : edge(row, column);
      });
    });
  }

  void run() {
    int64_t W = e.width;
    auto d = down.size.constant(), a = along.size.constant();
    bool downIsLong = !a || (d && *d >= *a);
    const Side &longer = downIsLong ? down : along, &shorter = downIsLong ? along : down;
    DimExpr squares = DimExpr::ceilDiv(longer.size, DimExpr(W));
    std::vector<DimExpr> units;
    for (int64_t o : outer)
      units.push_back(dims[o]);
    units.push_back(DimExpr::ceilDiv(squares, DimExpr(kSquares)));
    units.push_back(DimExpr::ceilDiv(shorter.size, DimExpr(W)));
    overBlockShare(e, lathe::product(units), [&](Value u) {
      Indices place = delinearize(e, Index(u), units);
      at.assign(dims.size(), Index(ix.cst(0)));
      for (auto [i, o] : llvm::enumerate(outer))
        at[o] = place[i];
      Value across = ix.mul(place.back().base, W);
      Value from = ix.mul(place[units.size() - 2].base, kSquares);
      Value to = ix.min(ix.add(from, kSquares), ix.dim(squares));
      e.loop(from, to, ix.cst(1), [&](Value s) {
        Value here = ix.mul(s, W);
        downIsLong ? block(here, across) : block(across, here);
      });
    });
  }
};

/// Whether a kernel has inputs of several dimensions that are not transposed: what the result is made of beside `transposed`.
bool readsBeside(Value result, Value transposed) {
  llvm::SmallPtrSet<Value, 16> seen{transposed};
  SmallVector<Value> left{result};
  while (!left.empty()) {
    Value v = left.pop_back_val();
    if (!seen.insert(v).second)
      continue;
    if (Operation *op = v.getDefiningOp())
      llvm::append_range(left, op->getOperands());
    else if (llvm::count_if(dimsOf(v), [](const DimExpr &d) { return !(d == DimExpr(1)); }) > 1)
      return true;
  }
  return false;
}

} // namespace

void scheduleTranspose(Evaluator &e, const KernelConfig &config) {
  Value result = e.outputValue(0);
  std::vector<DimExpr> dims = dimsOf(result);
  auto op = opAt<TransposeOp>(*e.kernel.body, e.kernel.roles.transpose);
  int64_t rank = dims.size();
  Type compute = Evaluator::computeType(elementTypeOf(result));
  if (!op || e.width < 2 ||
      compute.getIntOrFloatBitWidth() < 8 || Evaluator::bitsBelowByte(elementTypeOf(result)))
    return schedulePointwise(e, config);
  ArrayRef<int64_t> perm = op.getPerm();
  int64_t d = llvm::find(perm, rank - 1) - perm.begin();
  Value transposed = readsBeside(result, op.getResult()) ? op.getResult() : result;
  Turn turn{e, e.ix, result, transposed, dims, {d, d}, {rank - 1, rank - 1}, {}, {}};
  // Dimensions that follow each other on both sides are one, where nothing else looks at them.
  auto arg = dyn_cast<BlockArgument>(op.getX());
  const BufferArg &out = e.bufferArg(e.outputArg(0));
  if (arg && result == op.getResult() && out.physical == out.dims &&
      e.bufferArg(arg.getArgNumber()).physical == e.bufferArg(arg.getArgNumber()).dims) {
    auto follows = [&](int64_t i) { return perm[i] == perm[i - 1] + 1; };
    while (turn.down.first > 0 && follows(turn.down.first))
      --turn.down.first;
    while (turn.along.first - 1 > d && follows(turn.along.first))
      --turn.along.first;
  }
  for (Side *side : {&turn.down, &turn.along}) {
    for (int64_t i = side->first; i <= side->last; ++i)
      side->size = side->size * dims[i];
    if (auto n = side->size.constant())
      side->rest = *n % e.width;
  }
  for (int64_t i = 0; i < rank; ++i)
    if ((i < turn.down.first || i > turn.down.last) && i < turn.along.first)
      turn.outer.push_back(i);
  turn.run();
}

} // namespace lathe::codegen
