//===- Evaluator.cpp - recursion, memo, memory, regions ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What all rules share. Memory is touched here alone: contiguous lanes become
// vector loads, equal lanes one scalar load, any other pattern scalar loads
// lane by lane.
//
//===----------------------------------------------------------------------===//

#include "Evaluator.h"

#include "lathe/support/Packing.h"

using namespace mlir;

namespace lathe::codegen {

Evaluator::Evaluator(OpBuilder &b, func::FuncOp fn, const KernelSource &kernel, int64_t width,
                     int64_t threads)
    : b(b), ix(b, fn, kernel.spec->symbols, kernel.spec->buffers.size(), width), kernel(kernel),
      fn(fn), width(width), threads(threads), loc(fn.getLoc()), active(width),
      blockThreads(kernel.spec->launches[0].block[0]) {
  memo.emplace_back();
}

//===- Recursion ------------------------------------------------------------===//

Evaluator::MemoKey Evaluator::key(Value v, const Indices &idx) {
  MemoKey k{v.getAsOpaquePointer(), {}};
  for (const Index &i : idx)
    k.idx.emplace_back(i.base.getAsOpaquePointer(), i.stride, i.lanes.getAsOpaquePointer());
  return k;
}

const Value *Evaluator::lookup(Value v, const Indices &idx) {
  MemoKey k = key(v, idx);
  for (auto scope = memo.rbegin(); scope != memo.rend(); ++scope)
    if (auto it = scope->find(k); it != scope->end())
      return &it->second;
  return nullptr;
}

/// Dimensions of size 1 have index 0 whatever way led there: equal questions look equal.
static Indices normalized(IndexMath &ix, Value v, const Indices &idx) {
  auto type = cast<RankedTensorType>(v.getType());
  Indices norm = idx;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (type.getDimSize(d) == 1)
      norm[d] = Index(ix.cst(0));
  return norm;
}

void Evaluator::bind(Value v, const Indices &idx, Value is) {
  memo.back()[key(v, normalized(ix, v, idx))] = is;
}

Value Evaluator::eval(Value v, const Indices &idx) {
  Indices norm = normalized(ix, v, idx);
  if (const Value *known = lookup(v, norm))
    return *known;
  Value result;
  if (auto it = packed.find(key(v, norm)); it != packed.end()) {
    // The printer hides from the CUDA compiler that it has seen this conversion before.
    result = make<arith::ExtFOp>(vectorOf(computeType(elementTypeOf(v))), it->second);
    result.getDefiningOp()->setAttr("tile.again", b.getI64IntegerAttr(timesPacked));
  } else if (auto it = spilled.find(v.getAsOpaquePointer()); it != spilled.end()) {
    result = load(it->second.buffer, elementTypeOf(v), it->second.offset(norm));
  } else if (auto arg = dyn_cast<BlockArgument>(v)) {
    result = loadArgument(arg, norm);
  } else {
    Operation *op = v.getDefiningOp();
    const Rule *rule = findRule(op);
    if (op == boundAlone)
      return fail(op, "is asked for where its sums are not known");
    if (!rule)
      return fail(op, "has no rule to be evaluated inside a kernel");
    result = (*rule)(*this, cast<OpResult>(v), norm);
  }
  memo.back()[key(v, norm)] = result;
  return result;
}

Value Evaluator::fail(Operation *op, const Twine &why) {
  if (!failed)
    op->emitError("code generation: ") << "'" << op->getName() << "' " << why;
  failed = true;
  Type type = op->getNumResults() ? computeType(elementTypeOf(op->getResult(0))) : b.getF32Type();
  if (!type.isIntOrFloat())
    type = b.getF32Type();
  return constant(type, 0);
}

void Evaluator::keepPacked() {
  ++timesPacked;
  std::map<MemoKey, Value> kept;
  for (auto &[k, v] : memo.back()) {
    auto wide = v.getDefiningOp<arith::ExtFOp>();
    bool loaded = (wide ? wide.getIn() : v).getDefiningOp<tile::LoadOp>() != nullptr;
    if (!isVector(v) || (loaded && !wide))
      kept[k] = v;
    else if (loaded)
      packed[k] = wide.getIn();
  }
  memo.back() = std::move(kept);
  packedScope = memo.size();
}

//===- Memory ---------------------------------------------------------------===//

/// Whether two indices are written alike where there is more than one element.
static bool sameIndices(const std::vector<DimExpr> &dims, const Indices &a, const Indices &b) {
  for (size_t d = 0; d < dims.size(); ++d)
    if (!(dims[d] == DimExpr(1)) &&
        (a[d].base != b[d].base || a[d].stride != b[d].stride || a[d].lanes != b[d].lanes))
      return false;
  return true;
}

/// Of x / size and x % size, the indices of two axes of which the inner one has that size: x, the index of both.
static std::optional<Index> joined(IndexMath &ix, const Index &outer, const Index &inner, const DimExpr &size) {
  if (!outer.uniform() || inner.lanes)
    return std::nullopt;
  auto quotient = outer.base.getDefiningOp<arith::DivUIOp>();
  auto rest = inner.base.getDefiningOp<arith::RemUIOp>();
  if (!quotient || !rest || quotient->getOperands() != rest->getOperands() || rest.getRhs() != ix.dim(size))
    return std::nullopt;
  return Index(rest.getLhs(), inner.stride);
}

Index Evaluator::offset(const std::vector<DimExpr> &physical, const Indices &idx) {
  if (dense && physical == dense->dims && sameIndices(physical, idx, dense->idx))
    return dense->at;
  Index at(ix.cst(0));
  DimExpr stride = 1;
  for (size_t d = physical.size(); d-- > 0;) {
    Index index = idx[d];
    DimExpr size = physical[d];
    // Rows that a product folded lie one after the other: nothing is divided.
    for (; d > 0; size = size * physical[--d]) {
      std::optional<Index> both = joined(ix, idx[d - 1], index, size);
      if (!both)
        break;
      index = *both;
    }
    at = ix.add(at, ix.mul(index, stride));
    stride = stride * size;
  }
  return at;
}

Value Evaluator::loadArgument(BlockArgument arg, const Indices &idx) {
  const BufferArg &buf = bufferArg(arg.getArgNumber());
  Index at = buf.packing.empty() ? offset(buf.physical, idx) : packedOffset(buf, idx);
  return load(buffer(arg.getArgNumber()), elementTypeOf(arg), at);
}

Index Evaluator::packedOffset(const BufferArg &buf, const Indices &idx) {
  std::vector<int64_t> dims;
  for (const DimExpr &d : buf.dims)
    dims.push_back(d.constant().value_or(0));
  Result<PanelLayout> layout = PanelLayout::of(buf.packing, dims);
  if (!layout) {
    if (!failed)
      mlir::emitError(loc, "code generation: ") << layout.status().str();
    failed = true;
    return Index(ix.cst(0));
  }
  using Order = PanelLayout::Order;
  if (layout->order == Order::Parts || layout->order == Order::Blocks) { // their one schedule reads panels alone
    if (!failed)
      mlir::emitError(loc, "code generation: no element of weights in parts or blocks can be read by itself");
    failed = true;
    return Index(ix.cst(0));
  }
  size_t rank = idx.size();
  Index batch(ix.cst(0)), k, n;
  if (layout->order == Order::Matrix || layout->order == Order::MatrixTransposed) {
    for (size_t d = 0; d + 2 < rank; ++d)
      batch = ix.add(ix.mul(batch, dims[d]), idx[d]);
    bool transposed = layout->order == Order::MatrixTransposed;
    k = idx[rank - (transposed ? 1 : 2)];
    n = idx[rank - (transposed ? 2 : 1)];
  } else {
    n = idx[0];
    k = Index(ix.cst(0));
    for (size_t d = 2; d < rank; ++d)
      k = ix.add(ix.mul(k, dims[d]), idx[d]);
    if (layout->order == Order::Rows) {
      Index row = ix.add(ix.mul(n, layout->taps), k);
      return ix.add(ix.mul(row, layout->paddedChannels()), idx[1]);
    }
    k = ix.add(ix.mul(k, layout->channels), idx[1]);
  }
  if (layout->order == Order::Taps)
    return ix.add(ix.mul(k, layout->columns), n);
  auto [panel, column] = ix.divRem(n, DimExpr(layout->panel));
  Index at = ix.add(ix.mul(batch, layout->paddedDepth() * layout->paddedColumns()),
                    ix.mul(panel, layout->paddedDepth() * layout->panel));
  if (int64_t each = layout->interleave; each > 1) {
    auto [rows, beside] = ix.divRem(k, DimExpr(each));
    at = ix.add(at, beside);
    k = ix.mul(rows, each);
    column = ix.mul(column, each);
  }
  Index row = ix.mul(k, layout->panel);
  if (layout->lastWidth() != layout->panel) {
    // The last panel is narrower.
    Value last = ix.cst(layout->panels() - 1);
    Index narrow = ix.mul(k, layout->lastWidth());
    Value isLast = ix.cmp(arith::CmpIPredicate::eq, panel, last);
    if (!isVector(isLast) && row.stride == 0 && !row.lanes)
      row = Index(ix.select(isLast, narrow.base, row.base));
    else
      row = Index::ofLanes(select(isLast, ix.lanesOf(narrow), ix.lanesOf(row)));
  }
  return ix.add(ix.add(at, row), column);
}

Value Evaluator::load(Value buffer, Type element, const Index &at) {
  Type stored = storageType(element);
  if (unsigned bits = bitsBelowByte(element)) {
    int64_t each = 8 / bits;
    auto one = [&](Value off) {
      Value byte = make<tile::LoadOp>(b.getI8Type(), buffer, ix.div(off, ix.cst(each)), nullptr);
      Value place = ix.mul(ix.rem(off, ix.cst(each)), bits);
      return make<arith::ShRUIOp>(byte, make<arith::IndexCastOp>(b.getI8Type(), place));
    };
    if (at.uniform())
      return fromCode(make<arith::AndIOp>(one(at.base), constantInt(b.getI8Type(), (1 << bits) - 1)), element);
    if (!at.lanes && at.stride == 1 && active == width && width % each == 0 &&
        ix.divisor(at.base) % each == 0 && !kernel.target->isCuda()) {
      // Whole bytes: each goes to the lanes of its codes, which shift it by their place.
      Value bytes = make<tile::LoadOp>(VectorType::get({width / each}, b.getI8Type()), buffer,
                                       ix.div(at.base, ix.cst(each)), nullptr);
      SmallVector<int64_t> from;
      SmallVector<int8_t> places;
      for (int64_t l = 0; l < width; ++l) {
        from.push_back(l / each);
        places.push_back(int8_t(l % each * bits));
      }
      Value spread = make<vector::ShuffleOp>(bytes, bytes, from);
      Value shifted = make<arith::ShRUIOp>(
          spread, ix.constant(DenseElementsAttr::get(cast<VectorType>(vectorOf(b.getI8Type())),
                                                     ArrayRef<int8_t>(places))));
      Value mask = splat(constantInt(b.getI8Type(), (1 << bits) - 1));
      return fromCode(make<arith::AndIOp>(shifted, mask), element);
    }
    SmallVector<Value> lanes;
    for (int64_t l = 0; l < active; ++l)
      lanes.push_back(one(ix.lane(at, l)));
    lanes.resize(width, lanes.front());
    Value mask = splat(constantInt(b.getI8Type(), (1 << bits) - 1));
    return fromCode(make<arith::AndIOp>(fromLanes(lanes), mask), element);
  }
  auto scalar = [&](Value off) { return make<tile::LoadOp>(stored, buffer, off, nullptr); };
  if (at.uniform())
    return fromStorage(scalar(at.base), element);
  if (!at.lanes && at.stride == 1 && active < width) {
    Value part = make<tile::LoadOp>(VectorType::get({active}, stored), buffer, at.base, nullptr);
    SmallVector<int64_t> lanes(width, 0);
    for (int64_t l = 0; l < active; ++l)
      lanes[l] = l;
    Value values = fromStorage(part, element);
    return make<vector::ShuffleOp>(values, values, lanes);
  }
  if (!at.lanes && at.stride == 1) {
    int64_t bytes = stored.getIntOrFloatBitWidth() / 8;
    bool aligned = ix.divisor(at.base) % width == 0 && bytes * width <= 64;
    if (auto arg = dyn_cast<BlockArgument>(buffer); arg && aligned)
      aligned = bufferArg(arg.getArgNumber()).alignment % (bytes * width) == 0;
    auto op = tile::LoadOp::create(b, loc, vectorOf(stored), buffer, at.base, nullptr);
    op.setAligned(aligned);
    return fromStorage(op, element);
  }
  // LLVM makes a vector of single bf16 by calls for which kernels have no function.
  bool widened = stored.isBF16() && !kernel.target->isCuda();
  SmallVector<Value> lanes;
  for (int64_t l = 0; l < active; ++l) {
    Value one = scalar(ix.lane(at, l));
    lanes.push_back(widened ? fromStorage(one, element) : one);
  }
  lanes.resize(width, lanes.front());
  return widened ? fromLanes(lanes) : fromStorage(fromLanes(lanes), element);
}

void Evaluator::storeAt(Value value, Type element, Value buffer, const Index &at) {
  if (bitsBelowByte(element)) {
    if (!failed)
      mlir::emitError(loc, "code generation: only pointwise kernels store elements below a byte");
    failed = true;
    return;
  }
  if (at.uniform()) {
    tile::StoreOp::create(b, loc, toStorage(lane(value, 0), element), buffer, at.base, nullptr);
    return;
  }
  if (!at.lanes && at.stride == 1 && active < width) {
    SmallVector<int64_t> lanes;
    for (int64_t l = 0; l < active; ++l)
      lanes.push_back(l);
    value = splat(value);
    Value part = toStorage(make<vector::ShuffleOp>(value, value, lanes), element);
    tile::StoreOp::create(b, loc, part, buffer, at.base, nullptr);
    return;
  }
  Value stored = toStorage(splat(value), element);
  if (!at.lanes && at.stride == 1) {
    int64_t bytes = getElementTypeOrSelf(stored).getIntOrFloatBitWidth() / 8;
    bool aligned = ix.divisor(at.base) % width == 0 && bytes * width <= 64;
    if (auto arg = dyn_cast<BlockArgument>(buffer); arg && aligned)
      aligned = bufferArg(arg.getArgNumber()).alignment % (bytes * width) == 0;
    auto op = tile::StoreOp::create(b, loc, stored, buffer, at.base, nullptr);
    op.setAligned(aligned);
    return;
  }
  for (int64_t l = 0; l < active; ++l)
    tile::StoreOp::create(b, loc, lane(stored, l), buffer, ix.lane(at, l), nullptr);
}

void Evaluator::store(Value value, Value result, unsigned output, const Indices &idx) {
  Index at = offset(bufferArg(output).physical, idx);
  auto put = [&] { storeAt(value, elementTypeOf(result), buffer(output), at); };
  if (storeGuard)
    ifThen(storeGuard, put);
  else
    put();
}

Value Evaluator::headOp(llvm::function_ref<Value()> make) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&fn.front());
  return make();
}

// Constants are made beside the ops: those of IndexMath may stand behind them.
Value Evaluator::threadId() {
  auto count = [&](int64_t n) { return make<arith::ConstantIndexOp>(n); };
  int64_t cluster = kernel.spec->launches[0].cluster[0];
  return thread ? thread : thread = headOp([&]() -> Value {
    Value id = make<tile::ThreadIdOp>();
    if (groups() > 1)
      return make<arith::RemUIOp>(id, count(threads));
    if (cluster == 1)
      return id;
    Value rank = make<arith::RemUIOp>(make<tile::BlockIdOp>(), count(cluster));
    return make<arith::AddIOp>(make<arith::MulIOp>(rank, count(blockThreads)), id);
  });
}

Value Evaluator::blockId() {
  int64_t cluster = kernel.spec->launches[0].cluster[0];
  return block ? block : block = headOp([&]() -> Value {
    Value id = make<tile::BlockIdOp>();
    return cluster == 1 ? id
                        : make<arith::DivUIOp>(id, make<arith::ConstantIndexOp>(cluster));
  });
}

Value Evaluator::firstBlock() {
  return claim ? claim : claim = headOp([&]() -> Value { return make<tile::FirstBlockOp>(); });
}

Value Evaluator::groupId() {
  return group ? group : group = headOp([&]() -> Value {
    return make<arith::DivUIOp>(make<tile::ThreadIdOp>(), make<arith::ConstantIndexOp>(threads));
  });
}

//===- Regions ---------------------------------------------------------------===//

void Evaluator::pushScope() {
  memo.emplace_back();
  ix.pushScope();
}
void Evaluator::popScope() {
  memo.pop_back();
  if (memo.size() < packedScope)
    packed.clear();
  ix.popScope();
}

SmallVector<Value> Evaluator::loop(Value lo, Value hi, Value step, ValueRange inits, Body body) {
  auto op = scf::ForOp::create(b, loc, lo, hi, step, inits);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.getBody());
  pushScope();
  SmallVector<Value> results = body(op.getInductionVar(), op.getRegionIterArgs());
  popScope();
  if (!inits.empty())
    scf::YieldOp::create(b, loc, results);
  return SmallVector<Value>(op.getResults());
}

void Evaluator::loop(Value lo, Value hi, Value step, llvm::function_ref<void(Value)> body) {
  loop(lo, hi, step, ValueRange{}, [&](Value iv, ValueRange) {
    body(iv);
    return SmallVector<Value>{};
  });
}

void Evaluator::ifThen(Value condition, llvm::function_ref<void()> then,
                       llvm::function_ref<void()> otherwise) {
  if (auto c = IndexMath::constantOf(condition)) {
    if (*c)
      then();
    else if (otherwise)
      otherwise();
    return;
  }
  auto op = scf::IfOp::create(b, loc, condition, static_cast<bool>(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.thenBlock());
  pushScope();
  then();
  popScope();
  if (otherwise) {
    b.setInsertionPointToStart(op.elseBlock());
    pushScope();
    otherwise();
    popScope();
  }
}

SmallVector<Value> Evaluator::ifElse(Value condition, TypeRange types,
                                     llvm::function_ref<SmallVector<Value>()> then,
                                     llvm::function_ref<SmallVector<Value>()> otherwise) {
  if (auto c = IndexMath::constantOf(condition))
    return *c ? then() : otherwise();
  auto op = scf::IfOp::create(b, loc, types, condition, true);
  OpBuilder::InsertionGuard guard(b);
  for (bool first : {true, false}) {
    b.setInsertionPointToStart(first ? op.thenBlock() : op.elseBlock());
    pushScope();
    SmallVector<Value> values = first ? then() : otherwise();
    for (auto [value, type] : llvm::zip(values, types))
      if (isa<VectorType>(type))
        value = splat(value);
    scf::YieldOp::create(b, loc, values);
    popScope();
  }
  return SmallVector<Value>(op.getResults());
}

Value Evaluator::ifElse(Value condition, llvm::function_ref<Value()> then,
                        llvm::function_ref<Value()> otherwise) {
  if (auto c = IndexMath::constantOf(condition))
    return *c ? then() : otherwise();
  // Both sides are made in blocks of their own first, because whether the
  // result is a vector is known only then.
  auto op = scf::IfOp::create(b, loc, TypeRange{}, condition, true);
  Value sides[2];
  {
    OpBuilder::InsertionGuard guard(b);
    for (int side : {0, 1}) {
      b.setInsertionPoint((side == 0 ? op.thenBlock() : op.elseBlock())->getTerminator());
      pushScope();
      sides[side] = side == 0 ? then() : otherwise();
      popScope();
    }
    bool vec = isVector(sides[0]) || isVector(sides[1]);
    for (int side : {0, 1}) {
      Operation *end = (side == 0 ? op.thenBlock() : op.elseBlock())->getTerminator();
      b.setInsertionPoint(end);
      if (vec)
        sides[side] = splat(sides[side]);
      scf::YieldOp::create(b, loc, sides[side]);
      end->erase();
    }
  }
  auto typed = scf::IfOp::create(b, loc, sides[0].getType(), condition, true);
  typed.getThenRegion().takeBody(op.getThenRegion());
  typed.getElseRegion().takeBody(op.getElseRegion());
  op.erase();
  return typed.getResult(0);
}

Value Evaluator::lanewise(Type scalar, const Indices &idx,
                          llvm::function_ref<Value(const Indices &)> one) {
  if (uniform(idx))
    return one(idx);
  Value start = splat(constant(scalar, 0));
  return loop(ix.cst(0), ix.cst(active), ix.cst(1), ValueRange{start},
              [&](Value l, ValueRange args) {
                Indices single;
                for (const Index &i : idx) {
                  if (i.lanes)
                    single.push_back(Index(make<vector::ExtractOp>(i.lanes, OpFoldResult(l))));
                  else
                    single.push_back(Index(ix.add(i.base, ix.mul(l, i.stride))));
                }
                Value v = lane(one(single), 0);
                return SmallVector<Value>{
                    make<vector::InsertOp>(v, args[0], OpFoldResult(l))};
              })[0];
}

//===- Rows -------------------------------------------------------------------===//

namespace {
/// How a row is cut: whole vectors up to `main`, `piece` lanes at a time up to `pieces`, single elements behind them.
struct RowCut {
  Value main, pieces, end, tid;
  bool vectors, tail;
  int64_t unrolled = 0; ///< chunks of a thread, when the row is cut at compile time
  int64_t rest = 0;     ///< lanes of a last, partial vector, when that is known
  int64_t piece = 0;    ///< lanes of the partial vectors of a row whose length the run knows; 0: none
  Value last;           ///< where the last whole vector begins, when some threads have a chunk fewer

  /// Where chunk `c` of a thread begins. Threads that have none take the last vector of the row, so
  /// that what they load needs no branch and stays in registers; `inside` says who has one.
  Value chunk(Evaluator &e, int64_t c, int64_t together, Value &inside) const {
    IndexMath &ix = e.ix;
    Value at = ix.add(ix.mul(tid, e.width), c * e.width * together);
    if (!last || c + 1 < unrolled)
      return at;
    inside = ix.cmp(arith::CmpIPredicate::sle, at, last);
    return ix.min(at, last);
  }
};
} // namespace

static constexpr int64_t kMaxUnrolledElements = 16;
/// On a CPU, where a row of a length that the run knows ends in up to `width - 1` elements, this many of them cost no
/// more than one.
static constexpr int64_t kPiece = 4;

static RowCut cutRow(Evaluator &e, const DimExpr &n) {
  IndexMath &ix = e.ix;
  RowCut cut;
  int64_t threads = e.cooperative ? e.threads : 1;
  cut.tid = threads > 1 ? e.threadId() : ix.cst(0);
  cut.end = ix.dim(n);
  const bool one = threads == 1 && !e.kernel.target->isCuda() && e.width > 1;
  if (auto c = n.constant()) {
    cut.main = ix.cst(*c / e.width * e.width);
    cut.vectors = e.width > 1 && *c >= e.width;
    cut.tail = !cut.vectors || *c % e.width != 0;
    if (one && *c % e.width > 1) {
      cut.rest = *c % e.width;
      cut.tail = false;
    }
    int64_t round = e.width * threads;
    if (threads == 1 && cut.vectors && (one || *c % e.width == 0) && *c / round <= e.unrolledChunks)
      cut.unrolled = *c / round;
    if (threads > 1 && *c > 0 && *c % e.width == 0 &&
        (*c + round - 1) / round <= (e.width > 1 ? e.unrolledChunks : kMaxUnrolledElements)) {
      cut.unrolled = (*c + round - 1) / round;
      cut.tail = false;
      if (*c % round != 0)
        cut.last = ix.cst(*c - e.width);
    }
  } else {
    cut.main = ix.mul(ix.div(cut.end, ix.cst(e.width)), e.width);
    cut.vectors = e.width > 1;
    cut.tail = true;
    if (one && e.width > kPiece && e.width % kPiece == 0)
      cut.piece = kPiece;
  }
  if (!cut.vectors)
    cut.main = ix.cst(0);
  cut.pieces = cut.piece ? ix.mul(ix.div(cut.end, ix.cst(cut.piece)), cut.piece) : cut.main;
  return cut;
}

SmallVector<Value>
Evaluator::reduceRow(const DimExpr &n, llvm::ArrayRef<Accumulator> accs,
                     llvm::function_ref<SmallVector<Value>(const Index &)> body) {
  int64_t together = cooperative ? threads : 1;
  RowCut cut = cutRow(*this, n);
  ActiveLanes all(*this, width); // these lanes run along the row
  SmallVector<Value> totals(accs.size());
  // Threads inside a loop of their own count diverge: reductions below it are serial.
  bool outer = cooperative;
  cooperative = false;
  auto accumulate = [&](ValueRange args, const Index &at, bool vec) {
    SmallVector<Value> next = body(at);
    for (auto [i, acc] : llvm::enumerate(accs)) {
      Value v = vec ? splat(next[i]) : next[i];
      next[i] = combine(acc.kind, args[i], v, acc.isUnsigned);
    }
    return next;
  };
  // The first lanes of a vector: the others keep what they had.
  auto partial = [&](ValueRange args, Value at, int64_t lanes) {
    ActiveLanes some(*this, lanes);
    SmallVector<bool> on(width, false);
    std::fill_n(on.begin(), lanes, true);
    Value mask = ix.constant(DenseElementsAttr::get(VectorType::get({width}, b.getI1Type()), on));
    SmallVector<Value> next = accumulate(args, Index(at, 1), true);
    for (auto [n, old] : llvm::zip(next, args))
      n = make<arith::SelectOp>(mask, n, old);
    return next;
  };
  auto wide = [&](Value v) { return width > 1 ? splat(v) : v; };
  if (cut.vectors || cut.unrolled) {
    // Narrow vectors take turns, so that a sum has as many parts as in vectors of 256 bits, and no larger error.
    const Target &target = *kernel.target;
    const int64_t chains =
        together == 1 && width > 1 && !target.isCuda() ? std::max<int64_t>(1, 256 / target.vectorBits) : 1;
    const size_t each = accs.size();
    SmallVector<Value> sums;
    for (int64_t chain = 0; chain < chains; ++chain)
      for (const Accumulator &acc : accs)
        sums.push_back(wide(neutral(acc.kind, acc.type, acc.isUnsigned)));
    auto replace = [&](size_t chain, ArrayRef<Value> values) {
      llvm::copy(values, sums.begin() + chain * each);
    };
    auto ofChain = [&](size_t chain) { return ArrayRef<Value>(sums).slice(chain * each, each); };
    if (cut.unrolled) {
      for (int64_t c = 0; c < cut.unrolled; ++c) {
        Value inside, from = cut.chunk(*this, c, together, inside);
        SmallVector<Value> values = body(Index(from, width > 1 ? 1 : 0));
        for (auto [i, acc] : llvm::enumerate(accs)) {
          Value v = wide(values[i]);
          if (inside)
            v = make<arith::SelectOp>(inside, v, wide(neutral(acc.kind, acc.type, acc.isUnsigned)));
          Value &sum = sums[c % chains * each + i];
          sum = c < chains ? v : combine(acc.kind, sum, v, acc.isUnsigned);
        }
      }
    } else if (chains == 1) {
      sums = loop(ix.mul(cut.tid, width), cut.main, ix.cst(width * together), sums,
                  [&](Value iv, ValueRange args) { return accumulate(args, Index(iv, 1), true); });
    } else {
      const int64_t round = width * chains;
      Value whole = ix.mul(ix.div(cut.main, ix.cst(round)), round);
      sums = loop(ix.cst(0), whole, ix.cst(round), sums, [&](Value iv, ValueRange args) {
        SmallVector<Value> next;
        for (int64_t chain = 0; chain < chains; ++chain)
          next.append(accumulate(args.slice(chain * each, each), Index(ix.add(iv, chain * width), 1), true));
        return next;
      });
      replace(0, loop(whole, cut.main, ix.cst(width), SmallVector<Value>(ofChain(0)),
                      [&](Value iv, ValueRange args) { return accumulate(args, Index(iv, 1), true); }));
    }
    if (cut.rest) {
      size_t chain = size_t(*n.constant() / width % chains);
      replace(chain, partial(SmallVector<Value>(ofChain(chain)), cut.main, cut.rest));
    }
    if (cut.piece)
      replace(0, loop(cut.main, cut.pieces, ix.cst(cut.piece), SmallVector<Value>(ofChain(0)),
                      [&](Value iv, ValueRange args) { return partial(args, iv, cut.piece); }));
    for (int64_t half = chains / 2; half > 0; half /= 2)
      for (int64_t chain = 0; chain < half; ++chain)
        for (auto [i, acc] : llvm::enumerate(accs)) {
          Value &sum = sums[chain * each + i];
          sum = combine(acc.kind, sum, sums[(chain + half) * each + i], acc.isUnsigned);
        }
    for (auto [i, acc] : llvm::enumerate(accs))
      totals[i] = horizontal(acc.kind, sums[i], acc.isUnsigned);
  } else if (cut.rest) {
    SmallVector<Value> sums;
    for (const Accumulator &acc : accs)
      sums.push_back(splat(neutral(acc.kind, acc.type, acc.isUnsigned)));
    sums = partial(sums, cut.main, cut.rest);
    for (auto [i, acc] : llvm::enumerate(accs))
      totals[i] = horizontal(acc.kind, sums[i], acc.isUnsigned);
  }
  if (cut.tail) {
    SmallVector<Value> init;
    for (auto [i, acc] : llvm::enumerate(accs))
      init.push_back(totals[i] ? totals[i] : neutral(acc.kind, acc.type, acc.isUnsigned));
    totals = loop(ix.add(cut.pieces, cut.tid), cut.end, ix.cst(together), init,
                  [&](Value iv, ValueRange args) { return accumulate(args, Index(iv), false); });
  }
  cooperative = outer;
  if (together > 1)
    for (auto [i, acc] : llvm::enumerate(accs))
      totals[i] = blockReduce(acc.kind, totals[i], acc.isUnsigned);
  return totals;
}

void Evaluator::overRow(const DimExpr &n, llvm::function_ref<void(const Index &)> body) {
  int64_t together = cooperative ? threads : 1;
  RowCut cut = cutRow(*this, n);
  ActiveLanes all(*this, width); // these lanes run along the row
  bool outer = cooperative;
  cooperative = false;
  if (cut.unrolled) {
    for (int64_t c = 0; c < cut.unrolled; ++c) {
      Value inside, from = cut.chunk(*this, c, together, inside);
      Value outside = storeGuard;
      if (inside)
        storeGuard = outside ? make<arith::AndIOp>(outside, inside) : inside;
      body(Index(from, width > 1 ? 1 : 0));
      storeGuard = outside;
    }
  } else if (cut.vectors) {
    loop(ix.mul(cut.tid, width), cut.main, ix.cst(width * together),
         [&](Value iv) { body(Index(iv, 1)); });
  }
  if (cut.rest) {
    ActiveLanes some(*this, cut.rest);
    body(Index(cut.main, 1));
  }
  if (cut.piece) {
    ActiveLanes some(*this, cut.piece);
    loop(cut.main, cut.pieces, ix.cst(cut.piece), [&](Value iv) { body(Index(iv, 1)); });
  }
  if (cut.tail)
    loop(ix.add(cut.pieces, cut.tid), cut.end, ix.cst(together), [&](Value iv) { body(Index(iv)); });
  cooperative = outer;
}

} // namespace lathe::codegen
