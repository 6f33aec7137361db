//===- SelectionSchedule.cpp - elements that are chosen by value ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// lathe.topk on the CPU, a row after the other. Elements are compared as integers
// that order as they do. Few places: those found so far lie in order in scratch
// memory, and a vector of elements of which none is greater than the last of them
// is passed over. Many of a short row (RadixSchedule.cpp has long ones): it is sorted
// by merging, which keeps the order of equals, between two halves of scratch memory.
//
// lathe.nonzero on the CPU counts while it writes. lathe.nms compares a box with those that
// it has kept: on a GPU it reads them from its own result, and the threads of a block share them; on a
// CPU they lie in scratch memory, corner by corner, for vectors.
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

#include "lathe/ir/Selection.h"

using namespace mlir;

namespace lathe::codegen {

Type orderedKeyType(Value x) {
  bool wide = elementTypeOf(x).getIntOrFloatBitWidth() > 32;
  return IntegerType::get(x.getContext(), wide ? 64 : 32);
}

Value orderedKey(Evaluator &e, Value x, const Indices &idx, bool smallest) {
  Value v = e.eval(x, idx);
  Type scalar = orderedKeyType(x), type = e.like(v, scalar), compute = e.scalarType(v);
  unsigned bits = scalar.getIntOrFloatBitWidth();
  auto number = [&](Value shape, int64_t n) {
    Value c = e.constantInt(scalar, n);
    return e.isVector(shape) ? e.splat(c) : c;
  };
  const int64_t greatest = bits == 32 ? INT32_MAX : INT64_MAX, least = -greatest - 1;
  Value key;
  if (isa<FloatType>(compute)) {
    using P = arith::CmpFPredicate;
    Value zero = e.zero(v);
    if (e.isVector(v))
      zero = e.splat(zero);
    Value plain = e.select(e.make<arith::CmpFOp>(P::OEQ, v, zero), zero, v); // no -0
    key = e.make<arith::BitcastOp>(type, plain);
    // Negative numbers are larger the further they lie from 0.
    Value negative = e.make<arith::CmpIOp>(arith::CmpIPredicate::slt, key, number(v, 0));
    key = e.select(negative, e.make<arith::XOrIOp>(key, number(v, greatest)), key);
    key = e.select(e.make<arith::CmpFOp>(P::UNO, v, v), number(v, greatest), key);
  } else {
    bool isUnsigned = Evaluator::isUnsigned(x) || compute.isInteger(1);
    unsigned own = compute.getIntOrFloatBitWidth();
    key = own == bits   ? v
          : isUnsigned  ? e.make<arith::ExtUIOp>(type, v)
                        : e.make<arith::ExtSIOp>(type, v);
    if (isUnsigned && own == bits)
      key = e.make<arith::XOrIOp>(key, number(v, least));
  }
  return smallest ? e.make<arith::XOrIOp>(key, number(v, -1)) : key;
}

Value elementOfKey(Evaluator &e, Value x, Value key, bool smallest, llvm::function_ref<Value()> read) {
  Type compute = Evaluator::computeType(elementTypeOf(x)), scalar = key.getType();
  const unsigned bits = scalar.getIntOrFloatBitWidth();
  const int64_t greatest = bits == 32 ? INT32_MAX : INT64_MAX, least = -greatest - 1;
  auto number = [&](int64_t n) { return e.constantInt(scalar, n); };
  if (smallest)
    key = e.make<arith::XOrIOp>(key, number(-1));
  using P = arith::CmpIPredicate;
  if (isa<FloatType>(compute)) {
    Value shared = e.make<arith::OrIOp>(e.make<arith::CmpIOp>(P::eq, key, number(0)),
                                        e.make<arith::CmpIOp>(P::eq, key, number(greatest)));
    return e.ifElse(shared, read, [&] {
      Value negative = e.make<arith::CmpIOp>(P::slt, key, number(0));
      Value own = e.select(negative, e.make<arith::XOrIOp>(key, number(greatest)), key);
      return e.make<arith::BitcastOp>(compute, own);
    });
  }
  const unsigned own = compute.getIntOrFloatBitWidth();
  if (own < bits)
    return e.make<arith::TruncIOp>(compute, key);
  return Evaluator::isUnsigned(x) ? e.make<arith::XOrIOp>(key, number(least)) : key;
}

Indices rowIndex(Evaluator &e, ArrayRef<DimExpr> dims, int64_t axis, Value row, const Index &at) {
  std::vector<DimExpr> outer(dims.begin(), dims.end());
  outer.erase(outer.begin() + axis);
  Indices idx = delinearize(e, Index(row), outer);
  idx.insert(idx.begin() + axis, at);
  return idx;
}

namespace {

using P = arith::CmpIPredicate;

/// Scratch memory: `entries` places, then as many keys.
struct Ranking {
  Ranking(Evaluator &e, TopKOp op, const DimExpr &entries)
      : e(e), ix(e.ix), op(op), dims(dimsOf(op.getX())), axis(op.getAxis()),
        length(ix.dim(dims[axis])), count(ix.dim(op.getK().expr())), i64(e.b.getI64Type()),
        keyType(orderedKeyType(op.getX())) {
    auto memory = [&](Type type) {
      return e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, type), 0);
    };
    places = memory(i64);
    keys = memory(keyType);
    firstKey = ix.dim(entries * DimExpr(64 / int64_t(keyType.getIntOrFloatBitWidth())));
  }

  Evaluator &e;
  IndexMath &ix;
  TopKOp op;
  std::vector<DimExpr> dims;
  int64_t axis;
  Value length, count;
  Type i64, keyType;
  Value places, keys, firstKey;
  Value row; ///< in work

  Value keyOf(const Index &at) { return orderedKey(e, op.getX(), rowIndex(e, dims, axis, row, at), op.getSmallest()); }
  Value key(Value entry) { return e.load(keys, keyType, Index(ix.add(firstKey, entry))); }
  Value place(Value entry) { return e.load(places, i64, Index(entry)); }
  void set(Value entry, Value key, Value place) {
    e.storeAt(key, keyType, keys, Index(ix.add(firstKey, entry)));
    e.storeAt(place, i64, places, Index(entry));
  }
  Value atLeast(Value a, Value b) { return e.make<arith::CmpIOp>(P::sge, a, b); }
  Value greater(Value a, Value b) { return e.make<arith::CmpIOp>(P::sgt, a, b); }

  /// The first `count` entries from `first` on are the row's result.
  void finish(Value first) {
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value j) {
      std::vector<DimExpr> results = dimsOf(op.getY());
      e.store(place(ix.add(first, j)), op.getY(), e.outputArg(0), rowIndex(e, results, axis, row, Index(j)));
    });
  }

  /// Puts an element behind the entries that are no less, of `filled` ones; the last one falls out
  /// where there is no room.
  void insert(Value at, Value filled) {
    Value mine = keyOf(Index(at));
    Value to = e.loop(ix.cst(0), filled, ix.cst(1), ValueRange{ix.cst(0)}, [&](Value j, ValueRange args) {
      return SmallVector<Value>{ix.select(atLeast(key(j), mine), ix.add(args[0], 1), args[0])};
    })[0];
    Value last = ix.min(filled, ix.sub(count, ix.cst(1)));
    e.loop(ix.cst(0), ix.sub(last, to), ix.cst(1), [&](Value moved) {
      Value entry = ix.sub(last, moved), before = ix.sub(entry, ix.cst(1));
      set(entry, key(before), place(before));
    });
    set(to, mine, e.indexToValue(Index(at), i64));
  }

  void insertAll() {
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value i) { insert(i, i); });
    auto one = [&](Value i) {
      e.ifThen(greater(keyOf(Index(i)), key(ix.sub(count, ix.cst(1)))), [&] { insert(i, count); });
    };
    auto rest = [&] {
      Value from = count;
      if (e.width > 1) {
        Value chunks = ix.div(ix.sub(length, count), ix.cst(e.width));
        from = ix.add(count, ix.mul(chunks, e.width));
        e.loop(ix.cst(0), chunks, ix.cst(1), [&](Value chunk) {
          Value first = ix.add(count, ix.mul(chunk, e.width));
          Value most = e.horizontal(ReduceKind::Max, e.splat(keyOf(Index(first, 1))), false);
          e.ifThen(greater(most, key(ix.sub(count, ix.cst(1)))), [&] {
            e.loop(first, ix.add(first, e.width), ix.cst(1), one);
          });
        });
      }
      e.loop(from, length, ix.cst(1), one);
    };
    e.ifThen(ix.cmp(P::sgt, count, ix.cst(0)), rest);
    finish(ix.cst(0));
  }

  /// Runs of w entries become runs of 2 w, from one half of the memory to the other.
  void mergeRuns(Value w, Value from, Value to) {
    Value pair = ix.mul(w, 2), pairs = ix.div(ix.add(length, ix.sub(pair, ix.cst(1))), pair);
    e.loop(ix.cst(0), pairs, ix.cst(1), [&](Value number) {
      Value low = ix.mul(number, pair), middle = ix.min(ix.add(low, w), length),
            high = ix.min(ix.add(low, pair), length);
      e.loop(low, high, ix.cst(1), ValueRange{low, middle}, [&](Value out, ValueRange args) {
        Value left = args[0], right = args[1];
        // Where one run is over, the other's key is compared with whatever lies there.
        Value first = atLeast(key(ix.add(from, left)), key(ix.add(from, right)));
        Value takesLeft = e.make<arith::AndIOp>(
            ix.cmp(P::slt, left, middle),
            e.make<arith::OrIOp>(ix.cmp(P::sge, right, high), first));
        Value taken = ix.add(from, ix.select(takesLeft, left, right));
        set(ix.add(to, out), key(taken), place(taken));
        return SmallVector<Value>{ix.select(takesLeft, ix.add(left, 1), left),
                                  ix.select(takesLeft, right, ix.add(right, 1))};
      });
    });
  }

  void mergeAll() {
    e.overRow(dims[axis], [&](const Index &i) {
      Index to = ix.add(i, Index(firstKey));
      e.storeAt(keyOf(i), keyType, keys, to);
      e.storeAt(e.indexToValue(i, i64), i64, places, i);
    });
    // As often as 1 must be doubled to reach the length.
    constexpr int64_t kMostRounds = 48;
    SmallVector<Value> last =
        e.loop(ix.cst(0), ix.cst(kMostRounds), ix.cst(1), ValueRange{ix.cst(1), ix.cst(0)}, [&](Value, ValueRange args) {
          Value w = args[0], from = args[1], to = ix.sub(length, from);
          Value unsorted = ix.cmp(P::slt, w, length);
          e.ifThen(unsorted, [&] { mergeRuns(w, from, to); });
          return SmallVector<Value>{ix.select(unsorted, ix.mul(w, 2), w), ix.select(unsorted, to, from)};
        });
    finish(last[1]);
  }
};

void overRows(Evaluator &e, const DimExpr &entriesOfRow, void (Ranking::*work)()) {
  auto op = e.anchor<TopKOp>();
  if (!op)
    return;
  Ranking ranking(e, op, entriesOfRow);
  overBlockShare(e, op.rows(), [&](Value row) {
    ranking.row = row;
    (ranking.*work)();
  });
}

} // namespace

void scheduleInsertTopK(Evaluator &e, const KernelConfig &) {
  if (auto op = e.anchor<TopKOp>())
    overRows(e, op.getK().expr(), &Ranking::insertAll);
}

void scheduleMergeTopK(Evaluator &e, const KernelConfig &) {
  if (auto op = e.anchor<TopKOp>())
    overRows(e, dimOf(op.getX(), op.getAxis()) * DimExpr(2), &Ranking::mergeAll);
}

/// Which output a result of the op is; none where nobody reads it.
static std::optional<unsigned> outputOf(Evaluator &e, Value result) {
  for (auto [o, v] : llvm::enumerate(e.kernel.body->getTerminator()->getOperands()))
    if (v == result)
      return o;
  return std::nullopt;
}

void scheduleNonzero(Evaluator &e, const KernelConfig &) {
  auto op = e.anchor<NonzeroOp>();
  if (!op)
    return;
  IndexMath &ix = e.ix;
  Type i64 = e.b.getI64Type();
  std::optional<unsigned> places = outputOf(e, op.getPlaces()), count = outputOf(e, op.getCount());
  Value length = ix.dim(dimOf(op.getFlags(), 0));
  auto put = [&](Value rank, Value place) {
    if (places)
      e.store(place, op.getPlaces(), e.outputArg(*places), {Index(rank)});
  };
  Value found = e.loop(ix.cst(0), length, ix.cst(1), ValueRange{ix.cst(0)}, [&](Value i, ValueRange args) {
    Value is = e.eval(op.getFlags(), {Index(i)});
    put(args[0], e.indexToValue(Index(i), i64)); // what is none is written over
    return SmallVector<Value>{ix.select(is, ix.add(args[0], 1), args[0])};
  })[0];
  e.loop(found, length, ix.cst(1), [&](Value i) { put(i, e.constantInt(i64, 0)); });
  if (count)
    e.store(e.indexToValue(Index(found), i64), op.getCount(), e.outputArg(*count), {});
}

namespace {

struct Suppression {
  explicit Suppression(Evaluator &e, NmsOp op)
      : e(e), ix(e.ix), op(op), real(Evaluator::computeType(elementTypeOf(op.getBoxes()))),
        i64(e.b.getI64Type()), thread(e.threadId()), places(outputOf(e, op.getPlaces())),
        counts(outputOf(e, op.getCounts())) {
    if (!e.kernel.target->isCuda())
      corners = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, real), 0);
  }

  Evaluator &e;
  IndexMath &ix;
  NmsOp op;
  Type real, i64;
  Value thread;
  std::optional<unsigned> places, counts;
  Value batch, klass;
  Value corners; ///< CPU: scratch memory (nmsScratchBytes), of the boxes that are kept

  struct Box {
    Value top, left, bottom, right, area;
  };

  template <typename OpTy> Value both(Value a, Value b) {
    e.unify(a, b);
    return e.make<OpTy>(a, b);
  }
  Value sub(Value a, Value b) { return both<arith::SubFOp>(a, b); }
  Value add(Value a, Value b) { return both<arith::AddFOp>(a, b); }
  Value mul(Value a, Value b) { return both<arith::MulFOp>(a, b); }
  Value extreme(ReduceKind kind, Value a, Value b) {
    e.unify(a, b);
    return e.combine(kind, a, b, false);
  }
  Value min(Value a, Value b) { return extreme(ReduceKind::Min, a, b); }
  Value max(Value a, Value b) { return extreme(ReduceKind::Max, a, b); }

  /// A place that is inside the row whatever the operand holds.
  Value inside(Value place) {
    Value at = e.toIndex(place, false), last = ix.sub(ix.dim(dimOf(op.getBoxes(), 1)), ix.cst(1));
    return ix.max(ix.cst(0), ix.min(at, last));
  }
  Box boxAt(Value place) {
    auto part = [&](int64_t i) {
      return e.eval(op.getBoxes(), {Index(batch), Index(place), Index(ix.cst(i))});
    };
    if (op.getCenterPointBox()) {
      Value half = e.constant(real, 0.5), w = mul(part(2), half), h = mul(part(3), half);
      return withArea({sub(part(1), h), sub(part(0), w), add(part(1), h), add(part(0), w), {}});
    }
    return withArea({min(part(0), part(2)), min(part(1), part(3)), max(part(0), part(2)), max(part(1), part(3)), {}});
  }
  Box withArea(Box box) {
    box.area = mul(sub(box.bottom, box.top), sub(box.right, box.left));
    return box;
  }
  /// The kept boxes from `first` on, a lane each.
  Box keptBoxes(Value first) {
    auto part = [&](int64_t i) { return e.load(corners, real, Index(ix.add(ix.mul(ix.dim(dimOf(op.getBoxes(), 1)), i), first), 1)); };
    return {part(0), part(1), part(2), part(3), part(4)};
  }
  void keepBox(Value rank, const Box &box) {
    const Value parts[] = {box.top, box.left, box.bottom, box.right, box.area};
    for (auto [i, v] : llvm::enumerate(parts))
      e.storeAt(v, real, corners, Index(ix.add(ix.mul(ix.dim(dimOf(op.getBoxes(), 1)), int64_t(i)), rank)));
  }
  Value overlaps(const Box &a, const Box &b) {
    Value zero = e.constant(real, 0);
    Value high = sub(min(a.bottom, b.bottom), max(a.top, b.top)), wide = sub(min(a.right, b.right), max(a.left, b.left));
    Value common = mul(max(high, zero), max(wide, zero)), all = sub(add(a.area, b.area), common);
    auto greater = [&](Value x, Value y) {
      e.unify(x, y);
      return e.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, x, y);
    };
    Value part = both<arith::DivFOp>(common, all);
    return e.make<arith::AndIOp>(greater(all, zero), greater(part, e.eval(op.getOverlap(), {})));
  }

  Indices at(Value rank) { return {Index(batch), Index(klass), Index(rank)}; }
  Value keptAt(Value rank) {
    Index off = e.offset(e.bufferArg(e.outputArg(*places)).physical, at(rank));
    return e.load(e.buffer(e.outputArg(*places)), i64, off);
  }
  void keep(Value rank, Value place) {
    e.store(place, op.getPlaces(), e.outputArg(*places), at(rank));
  }
  void first(llvm::function_ref<void()> body) {
    if (e.threads > 1)
      e.ifThen(ix.cmp(P::eq, thread, ix.cst(0)), body);
    else
      body();
  }

  /// Whether one of the `before` boxes that are kept hides a box.
  Value isHidden(const Box &box, Value before) {
    Type flag = e.b.getI32Type();
    if (corners) {
      Value none = e.splat(e.constantInt(e.b.getI1Type(), 0));
      Value hits = e.loop(ix.cst(0), ix.ceilDiv(before, e.width), ix.cst(1), ValueRange{none}, [&](Value chunk, ValueRange args) {
        Value first = ix.mul(chunk, e.width);
        // Behind the last box lies what no box is made of.
        Value hit = e.make<arith::AndIOp>(overlaps(box, keptBoxes(first)), ix.cmp(P::slt, Index(first, 1), before));
        return SmallVector<Value>{e.make<arith::OrIOp>(args[0], hit)};
      })[0];
      return e.isVector(hits) ? e.make<vector::ReductionOp>(vector::CombiningKind::OR, hits) : hits;
    }
    Value hits = e.loop(thread, before, ix.cst(e.threads), ValueRange{e.constantInt(flag, 0)}, [&](Value j, ValueRange args) {
      Value hit = e.make<arith::ExtUIOp>(flag, overlaps(box, boxAt(inside(keptAt(j)))));
      return SmallVector<Value>{e.make<arith::OrIOp>(args[0], hit)};
    })[0];
    return e.make<arith::CmpIOp>(P::ne, e.blockReduce(ReduceKind::Max, hits, false), e.constantInt(flag, 0));
  }

  /// Keeps candidate `i` unless one of the `before` boxes that are kept hides it. How many are kept then.
  Value candidate(Value i, Value before) {
    Value place = inside(e.eval(op.getOrder(), at(i)));
    Box box = boxAt(place);
    Value free = e.make<arith::XOrIOp>(isHidden(box, before), e.constantInt(e.b.getI1Type(), 1));
    e.ifThen(free, [&] {
      first([&] { keep(before, e.indexToValue(Index(place), i64)); });
      if (corners)
        keepBox(before, box);
    });
    if (e.threads > 1)
      tile::BarrierOp::create(e.b, e.loc);
    return ix.select(free, ix.add(before, 1), before);
  }

  void row() {
    Value length = ix.dim(dimOf(op.getBoxes(), 1));
    Value count = ix.max(ix.cst(0), ix.min(e.toIndex(e.eval(op.getCandidates(), {Index(batch), Index(klass)}), false), length));
    Value most = e.toIndex(e.eval(op.getMost(), {}), false);
    Value kept = e.loop(ix.cst(0), count, ix.cst(1), ValueRange{ix.cst(0)}, [&](Value i, ValueRange args) {
      // All threads of a block know how many are kept.
      Value room = ix.cmp(P::slt, args[0], most);
      return e.ifElse(
          room, e.b.getIndexType(), [&] { return SmallVector<Value>{candidate(i, args[0])}; },
          [&] { return SmallVector<Value>{args[0]}; });
    })[0];
    e.loop(ix.add(kept, thread), length, ix.cst(e.threads), [&](Value j) { keep(j, e.constantInt(i64, 0)); });
    if (counts)
      first([&] {
        e.store(e.indexToValue(Index(kept), i64), op.getCounts(), e.outputArg(*counts), {Index(batch), Index(klass)});
      });
  }
};

} // namespace

void scheduleNms(Evaluator &e, const KernelConfig &) {
  auto op = e.anchor<NmsOp>();
  if (!op)
    return;
  Suppression suppression(e, op);
  if (!suppression.places) {
    e.fail(op, "needs the places that it keeps");
    return;
  }
  std::vector<DimExpr> rows = dimsOf(op.getCounts());
  overBlockShare(e, lathe::product(rows), [&](Value row) {
    Indices at = delinearize(e, Index(row), rows);
    suppression.batch = at[0].base;
    suppression.klass = at[1].base;
    suppression.row();
  });
}

} // namespace lathe::codegen
