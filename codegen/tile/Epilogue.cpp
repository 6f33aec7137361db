//===- Epilogue.cpp - what follows a contraction in its kernel -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An accumulator is pushed forward, through pointwise ops, reshapes, transposes and slices, to the
// places where results are stored.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace lathe::codegen {

Epilogue::Epilogue(Evaluator &e, Value root) : e(e), root(root) {
  llvm::DenseSet<Value> dependent{root};
  for (Operation &op : *e.kernel.body) {
    if (op.hasTrait<OpTrait::IsTerminator>()) {
      for (Value v : op.getOperands())
        ok &= dependent.contains(v) || isBeside(v);
      continue;
    }
    SmallVector<Value> from;
    for (Value v : op.getOperands())
      if (dependent.contains(v))
        from.push_back(v);
    if (from.empty())
      continue;
    Value r = op.getResult(0);
    auto structured = dyn_cast<StructuredOpInterface>(&op);
    if (isa<ReshapeOp, TransposeOp>(op)) {
      moves = true;
    } else if (auto slice = dyn_cast<SliceOp>(op)) {
      moves = true;
      ok &= llvm::all_of(slice.getSteps(), [](int64_t step) { return step == 1; });
    } else if (structured && structured.getOpClass() == OpClass::Pointwise &&
               op.getNumResults() == 1) {
      for (Value v : from)
        ok &= dimsOf(v) == dimsOf(r);
    } else {
      ok = false;
    }
    path.push_back(&op);
    dependent.insert(r);
  }
}

bool Epilogue::flat(int64_t first, int64_t last) const {
  if (moves || !ok)
    return false;
  for (auto [o, v] : llvm::enumerate(e.kernel.body->getTerminator()->getOperands())) {
    if (isBeside(v))
      continue;
    const BufferArg &out = e.bufferArg(e.outputArg(o));
    std::vector<DimExpr> dims = dimsOf(v);
    for (int64_t d = first + 1; d <= last; ++d)
      if (!(out.physical[d] == dims[d]))
        return false;
  }
  // Everything that the path reads beside the root must be dense there too.
  for (Operation *op : path)
    for (Value v : op->getOperands()) {
      std::vector<DimExpr> xs = dimsOf(v), ys = dimsOf(op->getResult(0));
      int64_t shift = ys.size() - xs.size();
      bool ones = true, same = true;
      for (int64_t d = first; d <= last; ++d) {
        DimExpr size = d < shift ? DimExpr(1) : xs[d - shift];
        ones &= size == DimExpr(1);
        same &= d >= shift && size == ys[d];
      }
      bool onPath = v == root || llvm::is_contained(path, v.getDefiningOp());
      if (!ones && !(same && (onPath || flatDims(e, v, first - shift, last - shift))))
        return false;
    }
  return true;
}

/// The index of an op's result that its operand's index becomes.
Indices Epilogue::moved(Operation *op, Value x, const Indices &from) {
  Indices to = from;
  if (isa<ReshapeOp>(op)) {
    std::vector<DimExpr> before = dimsOf(x), after = dimsOf(op->getResult(0));
    if (lanes != Lanes::Together || !from.back().stride || before.back() == after.back())
      return reshapeIndex(e, before, after, from);
    Indices first = from; // of lane 0; the others follow it in the last dimension
    first.back().stride = 0;
    to = reshapeIndex(e, before, after, first);
    to.back().stride = from.back().stride;
    return to;
  }
  if (auto t = dyn_cast<TransposeOp>(op))
    for (auto [d, p] : llvm::enumerate(t.getPerm()))
      to[d] = from[p];
  if (auto slice = dyn_cast<SliceOp>(op))
    for (auto [d, start] : llvm::enumerate(slice.getStarts()))
      to[d] = ix().add(from[d], Index(ix().sub(ix().cst(0), ix().dim(cast<DimAttr>(start).expr()))));
  return to;
}

/// Whether all lanes of an index of a slice are at one place in the dimensions that it cuts.
static bool uniformWhereCut(SliceOp slice, const Indices &to) {
  for (auto [d, size] : llvm::enumerate(dimsOf(slice.getY())))
    if (!to[d].uniform() && size != dimOf(slice.getX(), d))
      return false;
  return true;
}

/// Whether an index of a slice, the same for all lanes where it cuts, lies in it. Null: always.
Value Epilogue::inside(SliceOp slice, const Indices &to) {
  Value all;
  for (auto [d, size] : llvm::enumerate(dimsOf(slice.getY()))) {
    if (size == dimOf(slice.getX(), d))
      continue;
    Value ok = ix().cmp(arith::CmpIPredicate::ult, to[d].base, ix().dim(size));
    all = all ? e.make<arith::AndIOp>(all, ok) : ok;
  }
  return all;
}

void Epilogue::prefetch(const Indices &idx) {
  if (moves)
    return;
  auto fetch = [&](unsigned arg, bool isWrite) {
    const BufferArg &buffer = e.bufferArg(arg);
    if (!buffer.packing.empty() || bitWidth(buffer.dtype) < 8)
      return;
    Value at = e.offset(buffer.physical, idx).base;
    memref::PrefetchOp::create(e.b, e.loc, e.buffer(arg), ValueRange{at}, isWrite, 3, true);
  };
  for (Operation *op : path)
    for (Value v : op->getOperands())
      if (auto arg = dyn_cast<BlockArgument>(v); arg && dimsOf(v) == dimsOf(root))
        fetch(arg.getArgNumber(), false);
  for (auto [o, v] : llvm::enumerate(e.kernel.body->getTerminator()->getOperands()))
    if (!isBeside(v))
      fetch(e.outputArg(o), true);
}

/// The last dimension of what the root becomes where a reshape splits its own, whose parts vectors
/// need not keep to; 0 when there is none.
int64_t Epilogue::splitInto() {
  for (Operation *op : path) {
    auto reshape = dyn_cast<ReshapeOp>(op);
    if (!reshape)
      continue;
    auto from = dimsOf(reshape.getX()).back().constant(), to = dimsOf(reshape.getY()).back().constant();
    return from && to && *to > 1 && *to < *from && *from % *to == 0 && *to % e.width ? *to : 0;
  }
  return 0;
}

/// One lane after another from the first op on that moves them; all together before that.
void Epilogue::emitLanes(const Indices &idx, Value value) {
  Value still = root;
  for (Operation *op : llvm::reverse(path))
    if (isa<ReshapeOp, TransposeOp, SliceOp>(op))
      still = op->getOperand(0);
  e.bind(root, idx, value);
  Value all = e.eval(still, idx), end = ix().cst(e.active);
  e.loop(ix().cst(0), end, ix().cst(1), [&](Value l) {
    auto lane = [&](Value v) { return e.isVector(v) ? e.make<vector::ExtractOp>(v, l) : v; };
    Indices one;
    for (const Index &i : idx)
      one.push_back(Index(ix().add(i.base, ix().mul(l, i.stride))));
    e.bind(still, one, lane(all));
    emit(one, lane(value));
  });
}

void Epilogue::emit(const Indices &idx, Value value) {
  const Index &last = idx.back();
  if (int64_t size = lanes != Lanes::Anywhere || !last.stride ? 0 : splitInto()) {
    // Vectors that lie in one part are stored as such.
    Value end = ix().add(ix().rem(last.base, ix().cst(size)), e.active);
    auto as = [&](Lanes where) {
      return [&, where] {
        lanes = where;
        emit(idx, value);
        lanes = Lanes::Anywhere;
      };
    };
    e.ifThen(ix().cmp(arith::CmpIPredicate::sle, end, ix().cst(size)), as(Lanes::Together),
             as(Lanes::Apart));
    return;
  }
  std::map<void *, Indices> at;
  Value in; // whether the element is in all slices
  at[root.getAsOpaquePointer()] = idx;
  e.bind(root, idx, value);
  for (Operation *op : path) {
    Value r = op->getResult(0);
    Value x;
    for (Value v : op->getOperands())
      if (at.count(v.getAsOpaquePointer()))
        x = v;
    Indices from = at[x.getAsOpaquePointer()], to = moved(op, x, from);
    at[r.getAsOpaquePointer()] = to;
    auto slice = dyn_cast<SliceOp>(op);
    if (slice && !uniformWhereCut(slice, to))
      return emitLanes(idx, value); // some lie inside, some outside
    if (Value here = slice ? inside(slice, to) : Value())
      in = in ? e.make<arith::AndIOp>(in, here) : here;
    if (isa<ReshapeOp, TransposeOp, SliceOp>(op))
      e.bind(r, to, e.eval(x, from));
  }
  auto store = [&] { storeAll(at); };
  in ? e.ifThen(in, store) : store();
}

/// Stores the outputs, whose indices `at` has.
void Epilogue::storeAll(std::map<void *, Indices> &at) {
  for (auto [o, v] : llvm::enumerate(e.kernel.body->getTerminator()->getOperands())) {
    if (isBeside(v))
      continue;
    const Indices &to = at[v.getAsOpaquePointer()];
    e.store(e.eval(v, to), v, e.outputArg(o), to);
  }
}

} // namespace lathe::codegen
