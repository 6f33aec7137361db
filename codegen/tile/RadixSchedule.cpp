//===- RadixSchedule.cpp - rows that are sorted by digits --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// lathe.topk of many places on the CPU, a row after the other: a stable radix sort by digits of
// 8 bits, the lowest first. An element is a word, its key above its place, or with keys of 64 bits
// two words. Digits that all elements share cost nothing: above the highest bit in which the
// greatest key differs from the least no pass is made, below it no word is moved. Where many
// elements are equal to the last one (what a threshold has cut off, zeros of a relu), they are set
// aside first: their order is that of their places.
//
//   words of x  ->  set the last ones aside  ->  count a digit, sum up, move  ->  ...  ->  places in order
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

#include "lathe/codegen/Config.h"
#include "lathe/ir/Selection.h"

using namespace mlir;

namespace lathe::codegen {

namespace {

using P = arith::CmpIPredicate;

/// Scratch memory, in words of 64 bits: the counters of a digit, then two halves of keys (above places,
/// where they have 32 bits), then two of places, where keys have 64. radixScratchBytes() says how much that is.
struct RadixSort {
  static constexpr int64_t kDigitBits = 8, kDigits = 1 << kDigitBits, kPlaceBits = 32;

  RadixSort(Evaluator &e, TopKOp op)
      : e(e), ix(e.ix), op(op), dims(dimsOf(op.getX())), axis(op.getAxis()), length(ix.dim(dims[axis])),
        count(ix.dim(op.getK().expr())), i64(e.b.getI64Type()), keyType(orderedKeyType(op.getX())),
        packed(keyType.getIntOrFloatBitWidth() == 32),
        memory(e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, i64), 0)), firstPlace(ix.mul(length, 2)) {}

  Evaluator &e;
  IndexMath &ix;
  TopKOp op;
  std::vector<DimExpr> dims;
  int64_t axis;
  Value length, count;
  Type i64, keyType;
  bool packed;
  Value memory, firstPlace;
  Value row; ///< in work

  Value number(Value like, Type type, int64_t n) {
    Value c = e.constantInt(type, n);
    return e.isVector(like) ? e.splat(c) : c;
  }
  Value read(Value at) { return e.load(memory, i64, Index(at)); }
  void write(Value at, Value word) { e.storeAt(word, i64, memory, Index(at)); }
  Value keyAt(Value entry) { return read(ix.add(entry, kDigits)); }
  Value placeAt(Value entry) {
    if (packed)
      return e.make<arith::AndIOp>(keyAt(entry), e.constantInt(i64, UINT32_MAX));
    return read(ix.add(ix.add(entry, firstPlace), kDigits));
  }
  /// The counter of a key's digit, which begins at bit `shift` (i64).
  Value counterOf(Value key, Value shift) {
    Value digit = e.make<arith::AndIOp>(e.make<arith::ShRUIOp>(key, shift), e.constantInt(i64, kDigits - 1));
    return e.toIndex(digit, true);
  }

  /// A key as digits have it: the greatest comes first, and there is no sign.
  Value rankOf(Value key) { return e.make<arith::XOrIOp>(key, number(key, keyType, packed ? INT32_MAX : INT64_MAX)); }
  Value widened(Value rank) { return packed ? e.make<arith::ExtUIOp>(e.like(rank, i64), rank) : rank; }

  /// What `begin` knows of a row.
  struct Keys {
    Value digits; ///< so many of the lowest tell keys apart
    Value last;   ///< the rank of the last one (i64)
  };
  /// Writes the words of a row in the order of their places.
  Keys begin() {
    SmallVector<Value> ends =
        e.reduceRow(dims[axis], {{ReduceKind::Max, keyType, false}, {ReduceKind::Min, keyType, false}}, [&](const Index &i) {
          Value key = orderedKey(e, op.getX(), rowIndex(e, dims, axis, row, i), op.getSmallest());
          Value rank = widened(rankOf(key)), place = e.indexToValue(i, i64);
          Index to = ix.add(i, Index(ix.cst(kDigits)));
          if (packed) {
            Value above = e.make<arith::ShLIOp>(rank, number(rank, i64, kPlaceBits));
            e.unify(above, place);
            e.storeAt(e.make<arith::OrIOp>(above, place), i64, memory, to);
          } else {
            e.storeAt(rank, i64, memory, to);
            e.storeAt(place, i64, memory, ix.add(to, Index(firstPlace)));
          }
          return SmallVector<Value>{key, key};
        });
    Value differ = e.make<arith::XOrIOp>(ends[0], ends[1]), digits = ix.cst(0);
    for (unsigned bit = 0; bit < keyType.getIntOrFloatBitWidth(); bit += kDigitBits) {
      Value above = e.make<arith::ShRUIOp>(differ, e.constantInt(keyType, bit));
      Value more = e.make<arith::CmpIOp>(P::ne, above, e.constantInt(keyType, 0));
      digits = ix.select(more, ix.add(digits, 1), digits);
    }
    return {digits, widened(rankOf(ends[1]))};
  }

  /// Whether the element of this word is equal to the last one.
  Value isLast(Value word, Value last) {
    Value rank = packed ? e.make<arith::ShRUIOp>(word, number(word, i64, kPlaceBits)) : word;
    e.unify(rank, last);
    return e.make<arith::CmpIOp>(P::eq, rank, last);
  }
  void copyEntry(Value from, Value to) {
    write(ix.add(to, kDigits), keyAt(from));
    if (!packed)
      write(ix.add(ix.add(to, firstPlace), kDigits), placeAt(from));
  }

  /// What is left to be sorted: so many entries, the first of a half of the memory.
  struct Part {
    Value entries, from;
  };
  /// Puts those that are equal to the last one behind the others, in both halves, where they are a quarter or more.
  Part setLastAside(const Keys &keys) {
    SmallVector<Value> sum = e.reduceRow(dims[axis], {{ReduceKind::Sum, i64, false}}, [&](const Index &i) {
      Value word = e.load(memory, i64, ix.add(i, Index(ix.cst(kDigits))));
      return SmallVector<Value>{e.make<arith::ExtUIOp>(e.like(word, i64), isLast(word, keys.last))};
    });
    Value aside = e.toIndex(sum[0], true), entries = ix.sub(length, aside);
    Value many = e.make<arith::AndIOp>(ix.cmp(P::sle, length, ix.mul(aside, 4)), ix.cmp(P::sgt, keys.digits, ix.cst(1)));
    Type index = e.b.getIndexType();
    SmallVector<Value> part = e.ifElse(
        many, {index, index},
        [&] {
          e.loop(ix.cst(0), length, ix.cst(1), ValueRange{length, ix.add(length, entries)}, [&](Value i, ValueRange to) {
            Value last = isLast(keyAt(i), keys.last);
            copyEntry(i, ix.select(last, to[1], to[0]));
            return SmallVector<Value>{ix.select(last, to[0], ix.add(to[0], 1)), ix.select(last, ix.add(to[1], 1), to[1])};
          });
          e.loop(entries, length, ix.cst(1), [&](Value i) { copyEntry(ix.add(i, length), i); });
          return SmallVector<Value>{entries, length};
        },
        [&] { return SmallVector<Value>{length, ix.cst(0)}; });
    return {part[0], part[1]};
  }

  /// Counts a digit of the keys of a half of the memory.
  void countDigits(const Part &part, Value shift) {
    e.loop(ix.cst(0), ix.cst(kDigits), ix.cst(1), [&](Value d) { write(d, e.constantInt(i64, 0)); });
    e.loop(ix.cst(0), part.entries, ix.cst(1), [&](Value i) {
      Value counter = counterOf(keyAt(ix.add(part.from, i)), shift);
      write(counter, e.make<arith::AddIOp>(read(counter), e.constantInt(i64, 1)));
    });
  }

  /// Moves entries to the other half, those of lower digits first.
  void move(const Part &part, Value to, Value shift) {
    Value none = e.constantInt(i64, 0), one = e.constantInt(i64, 1);
    e.loop(ix.cst(0), ix.cst(kDigits), ix.cst(1), ValueRange{none}, [&](Value d, ValueRange before) {
      Value sum = e.make<arith::AddIOp>(before[0], read(d));
      write(d, before[0]);
      return SmallVector<Value>{sum};
    });
    e.loop(ix.cst(0), part.entries, ix.cst(1), [&](Value i) {
      Value entry = ix.add(part.from, i), key = keyAt(entry), counter = counterOf(key, shift), rank = read(counter);
      write(counter, e.make<arith::AddIOp>(rank, one));
      Value target = ix.add(ix.add(to, kDigits), e.toIndex(rank, true));
      write(target, key);
      if (!packed)
        write(ix.add(target, firstPlace), placeAt(entry));
    });
  }

  void sortRow() {
    Keys keys = begin();
    Part whole = setLastAside(keys);
    Value sorted = e.loop(ix.cst(0), keys.digits, ix.cst(1), ValueRange{whole.from}, [&](Value digit, ValueRange args) {
      Part part{whole.entries, args[0]};
      Value to = ix.sub(length, part.from), bit = ix.add(ix.mul(digit, kDigitBits), packed ? kPlaceBits : 0);
      Value shift = e.indexToValue(Index(bit), i64);
      countDigits(part, shift);
      // One that all elements share tells none of them apart.
      Value shared = ix.cmp(P::eq, e.toIndex(read(counterOf(keyAt(part.from), shift)), true), part.entries);
      e.ifThen(shared, [] {}, [&] { move(part, to, shift); });
      return SmallVector<Value>{ix.select(shared, part.from, to)};
    })[0];
    std::vector<DimExpr> results = dimsOf(op.getY());
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value j) {
      e.store(placeAt(ix.add(sorted, j)), op.getY(), e.outputArg(0), rowIndex(e, results, axis, row, Index(j)));
    });
  }
};

} // namespace

void scheduleRadixTopK(Evaluator &e, const KernelConfig &) {
  auto op = e.anchor<TopKOp>();
  if (!op)
    return;
  RadixSort sort(e, op);
  overBlockShare(e, op.rows(), [&](Value row) {
    sort.row = row;
    sort.sortRow();
  });
}

} // namespace lathe::codegen
