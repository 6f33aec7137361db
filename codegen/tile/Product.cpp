//===- Product.cpp - the register-tiled product of the CPU --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A unit of work is (batch, chunk of r rows, k panels of n columns): rows that
// are not in memory go to scratch, then for each panel the chunk's rows in
// tiles of up to m. Each tile size, and the width of the last panel, is compiled
// separately, so that no masks are needed. A tile prefetches its share of the next panel.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

#include <bit>
#include <numeric>

using namespace mlir;

namespace lathe::codegen {

namespace {

constexpr int64_t kUnroll = 4, kBlock = 16; // k of a step of the inner loop, of a prefetch
constexpr int64_t kChain = 256;             // products that are summed one after another

struct TileEmitter {
  Product &p;
  Evaluator &e;
  IndexMath &ix;
  int64_t W, m, n, chunk, group;
  Value scratch;          ///< of accumulator elements; null when unused
  Value panelScratch;     ///< offset of the computed panel in scratch
  Value depth;

  explicit TileEmitter(Product &p)
      : p(p), e(p.e), ix(p.e.ix), W(p.e.width), m(p.config.tileM), n(p.config.tileN),
        chunk(std::max<int64_t>(p.config.rows, p.config.tileM)),
        group(std::max<int64_t>(1, p.config.tileK)), scratch(p.scratch),
        panelScratch(p.panelPlace), depth(p.depthEnd ? p.depthEnd : ix.dim(p.depth)) {}

  /// One panel as the inner loops see it.
  struct Panel {
    Value buffer;
    Type element;
    Value base;          ///< offset of depth 0
    Index stride;        ///< from one k to the next
    int64_t vectors, active; ///< vectors across, lanes of the last one
    bool wide = true;    ///< memory has whole vectors everywhere
    bool half = false;   ///< half of the last vector is enough
    Value next;          ///< offset where the next panel starts, to prefetch; or null
    Value column;        ///< of codes: the first one's column,
    Value depth;         ///< and the k of depth 0
    SmallVector<Value> start; ///< what the sums of each vector begin with; empty: 0
    Value first, end;    ///< with Product::inBlocks the panel's blocks
  };
  Value finite;           ///< inBlocks: whether all elements of the unit's rows are
  Value listed;           ///< byList: how many elements of the row are not zero
  /// What a group of neighbours is made of.
  Type groupType() { return e.b.getIntegerType(p.accumulator.getIntOrFloatBitWidth() / p.interleave); }
  Value numbers(const Panel &panel, Value at, Value k, int64_t v);
  Value groupOfRow(Value buffer, Value at);
  Value dot(Value acc, Value row, Value column) {
    return e.make<tile::DotOp>(acc, row, column, /*unsigned_a=*/p.interleave == 4);
  }
  SmallVector<Value> columnSums(const Panel &panel);

  SmallVector<Value> step(SmallVector<Value> accs, ArrayRef<Value> rows, Value rowBuffer,
                          Type rowElement, const Panel &panel, Value at, Value k, int64_t set);
  SmallVector<Value> stretch(SmallVector<Value> accs, ArrayRef<Value> rows, Value rowBuffer,
                             Type rowElement, const Panel &panel, Value tile, Value tiles,
                             Value before, Value all, std::optional<int64_t> K, int64_t sets);
  SmallVector<Value> accumulate(ArrayRef<Value> rows, Value rowBuffer, Type rowElement,
                                const Panel &panel, Value tile, Value tiles);
  Value word(Value at);
  Value rowOfBlock(Value block) { return word(ix.add(ix.mul(block, wordSize()), p.packed->rowsAt(elementBits()))); }
  /// Sums along K of each of so many accumulators.
  int64_t setsOf(int64_t accumulators) const {
    return p.sums ? p.sums : accumulators <= 2 ? 4 : accumulators <= 4 ? 2 : 1;
  }
  int64_t elementBits() const { return p.columnElement.getIntOrFloatBitWidth(); }
  int64_t wordSize() const { return 32 / elementBits(); }
  SmallVector<Value> accumulateBlocks(ArrayRef<Value> rows, Value rowBuffer, Type rowElement, const Panel &panel);
  void listActive(Value batch, Value row);
  void listedPanel(Value batch, Value row, Value column, const Panel &panel);
  void checkFinite(Value batch, Value firstRow, Value count);
  void addSkipped(Value batch, Value firstRow, Value count, const Panel &panel);
  Value beginOfRow(Value batch, Value row, Value localRow) {
    return p.rowBuffer ? p.rowOffset(batch, row) : ix.mul(localRow, depth);
  }
  void tile(int64_t size, Value batch, Value row, Value localRow, Value column,
            const Panel &panel, Value tile, Value tiles);
  std::vector<int64_t> rowCounts() const;
  Value passesCore(Value tiles);
  void panelRows(Value batch, Value firstRow, Value count, Value column, const Panel &panel);
  void columnsOneByOne(Value batch, Value firstRow, Value count, Value from);
  Panel makePanel(Value batch, Value index, Value column, int64_t vectors, int64_t active);
  void panel(Value batch, Value firstRow, Value count, Value index);
  void unit(Value batch, Value chunkIndex, Value groupIndex);
};

/// Vector `v` of a panel's row k, which begins at `at`, in the accumulator's type.
Value TileEmitter::numbers(const Panel &panel, Value at, Value k, int64_t v) {
  bool last = v + 1 == panel.vectors;
  if (p.interleave > 1) {
    int64_t lanes = W * p.interleave;
    Value x = e.make<tile::LoadOp>(VectorType::get({lanes}, e.b.getI8Type()), panel.buffer,
                                   ix.add(at, v * lanes), nullptr);
    return widen(e, x, panel.element, groupType());
  }
  Value x;
  {
    Evaluator::ActiveLanes some(e, panel.wide || !last ? W : panel.active);
    x = e.load(panel.buffer, panel.element, Index(ix.add(at, v * W), 1));
  }
  if (!panel.column)
    return widen(e, x, panel.element, p.accumulator);
  Evaluator::ActiveLanes some(e, last ? panel.active : W); // parameters of no more columns
  return e.splat(p.columnValue(ix.add(panel.depth, k), Index(ix.add(panel.column, v * W), 1), x));
}

/// A group of bytes of a row as they lie, in the bits of one accumulator.
Value TileEmitter::groupOfRow(Value buffer, Value at) {
  Value bytes = e.make<tile::LoadOp>(VectorType::get({p.interleave}, groupType()), buffer,
                                     ix.mul(at, p.interleave), nullptr);
  Value one = e.make<vector::BitCastOp>(VectorType::get({1}, p.accumulator), bytes);
  return e.make<vector::ExtractOp>(one, int64_t(0));
}

/// Vectors of the sums of a panel's columns, times Product::ofColumnSums.
SmallVector<Value> TileEmitter::columnSums(const Panel &panel) {
  Value one = e.constantInt(groupType(), 1), none = e.splat(e.constantInt(p.accumulator, 0));
  Value ones = e.make<vector::BroadcastOp>(VectorType::get({W * p.interleave}, groupType()), one);
  SmallVector<Value> sums(panel.vectors, none);
  sums = e.loop(ix.cst(0), depth, ix.cst(1), sums, [&](Value k, ValueRange args) {
    SmallVector<Value> next(args);
    Value at = ix.add(panel.base, ix.mul(k, panel.stride.base));
    for (int64_t v = 0; v < panel.vectors; ++v)
      next[v] = dot(next[v], ones, numbers(panel, at, k, v));
    return next;
  });
  for (Value &sum : sums)
    sum = e.make<arith::MulIOp>(sum, e.splat(p.ofColumnSums));
  return sums;
}

/// One k, whose row of the panel begins at `at`: a vector of it at a time, times each row's element.
SmallVector<Value> TileEmitter::step(SmallVector<Value> accs, ArrayRef<Value> rows, Value rowBuffer,
                                     Type rowElement, const Panel &panel, Value at, Value k, int64_t set) {
  SmallVector<Value> b;
  for (int64_t v = 0; v < panel.vectors; ++v) {
    if (panel.half && v + 1 == panel.vectors) {
      b.push_back(e.make<tile::LoadOp>(VectorType::get({W / 2}, panel.element), panel.buffer,
                                       ix.add(at, v * W), nullptr));
      continue;
    }
    b.push_back(numbers(panel, at, k, v));
  }
  bool isFloat = isa<FloatType>(p.accumulator);
  int64_t count = rows.size() * panel.vectors;
  for (auto [i, row] : llvm::enumerate(rows)) {
    Value a = p.rowsAreBytes ? groupOfRow(rowBuffer, ix.add(row, k))
                             : e.load(rowBuffer, rowElement, Index(ix.add(row, k)));
    if (!p.rowsAreBytes)
      a = widen(e, a, rowElement, p.accumulator);
    Value all = e.splat(a);
    if (p.interleave > 1)
      all = e.make<vector::BitCastOp>(VectorType::get({W * p.interleave}, groupType()), all);
    for (int64_t v = 0; v < panel.vectors; ++v) {
      Value &acc = accs[set * count + i * panel.vectors + v];
      if (p.interleave > 1) {
        acc = dot(acc, all, b[v]);
        continue;
      }
      Value x = acc.getType() == all.getType() ? all : e.make<vector::BroadcastOp>(acc.getType(), a);
      acc = isFloat ? e.make<math::FmaOp>(x, b[v], acc)
                    : e.make<arith::AddIOp>(acc, e.make<arith::MulIOp>(x, b[v]));
    }
  }
  return accs;
}

/// Adds all k of one stretch of K (or `depth`), whose panel rows begin at `panel.base`; `before`
/// counts the blocks of earlier stretches, `all` those of the whole depth.
SmallVector<Value> TileEmitter::stretch(SmallVector<Value> accs, ArrayRef<Value> rows,
                                        Value rowBuffer, Type rowElement, const Panel &panel,
                                        Value tile, Value tiles, Value before, Value all,
                                        std::optional<int64_t> K, int64_t sets) {
  // LLVM reorders the integer sums of several steps, and many would no longer fit into the registers.
  const int64_t unroll = p.interleave == 2 && rows.size() > 2 ? 1 : kUnroll;
  auto steps = [&](SmallVector<Value> accs, Value k0, int64_t count) {
    for (int64_t u = 0; u < count; ++u) {
      Value k = ix.add(k0, u);
      accs = step(accs, rows, rowBuffer, rowElement, panel, ix.add(panel.base, ix.mul(k, panel.stride.base)), k,
                  u % sets);
    }
    return accs;
  };
  auto unrolled = [&](SmallVector<Value> accs, Value from, Value to) {
    return e.loop(from, to, ix.cst(unroll), accs, [&](Value k, ValueRange args) {
      return steps(SmallVector<Value>(args), k, unroll);
    });
  };
  if (K && *K <= unroll)
    return steps(accs, ix.cst(0), *K);
  Value length = K ? ix.cst(*K) : depth;
  Value blocks = ix.div(length, ix.cst(kBlock)), done = ix.mul(blocks, kBlock);
  Value lines; // to prefetch per block, so that all tiles together cover the next panel
  int64_t bytes = std::max(8u, panel.element.getIntOrFloatBitWidth()) / 8;
  const int64_t block = kBlock * n * p.interleave; // elements
  if (panel.next)
    lines = ix.add(ix.div(ix.cst(block * bytes / 64), ix.max(tiles, ix.cst(1))), 1);
  if (!K || *K >= kBlock)
    accs = e.loop(ix.cst(0), blocks, ix.cst(1), accs, [&](Value number, ValueRange args) {
      if (panel.next) {
        // One row only streams: 4 KB ahead in the same panel.
        bool streams = rows.size() == 1;
        Value first = ix.mul(ix.add(ix.mul(tile, all), ix.add(before, number)), lines);
        Value here = ix.add(panel.base, ix.mul(number, block));
        Value start = streams ? ix.add(here, 4096 / bytes)
                              : ix.add(panel.next, ix.mul(first, 64 / bytes));
        Value count = streams ? ix.cst(block * bytes / 64) : lines;
        auto fetch = [&](int64_t locality) {
          e.loop(ix.cst(0), count, ix.cst(1), [&](Value l) {
            Value at = ix.add(start, ix.mul(l, 64 / bytes));
            memref::PrefetchOp::create(e.b, e.loc, panel.buffer, ValueRange{at}, false, locality,
                                       true);
          });
        };
        Value passes = streams ? ix.constant(e.b.getBoolAttr(false)) : passesCore(tiles);
        if (std::optional<int64_t> known = IndexMath::constantOf(passes))
          fetch(*known ? 2 : 3);
        else
          e.ifThen(passes, [&] { fetch(2); }, [&] { fetch(3); });
      }
      Value from = ix.mul(number, kBlock);
      return unrolled(SmallVector<Value>(args), from, ix.add(from, kBlock));
    });
  if (!K)
    return e.loop(done, length, ix.cst(1), accs, [&](Value k, ValueRange args) {
      return steps(SmallVector<Value>(args), k, 1);
    });
  int64_t from = *K / kBlock * kBlock, to = *K / unroll * unroll;
  if (to - from > unroll)
    accs = unrolled(accs, ix.cst(from), ix.cst(to));
  else
    accs = steps(accs, ix.cst(from), to - from);
  return steps(accs, ix.cst(to), *K - to);
}

SmallVector<Value> TileEmitter::accumulate(ArrayRef<Value> rows, Value rowBuffer, Type rowElement,
                                           const Panel &panel, Value tile, Value tiles) {
  auto K = p.depthEnd ? std::nullopt : p.depth.constant();
  // Few accumulators would wait for each other: several sums over k.
  int64_t per = rows.size() * panel.vectors;
  int64_t sets = p.interleave > 1 || (K && *K / p.stretches < 8) ? 1 : setsOf(per);
  Value zero = e.splat(e.constant(p.accumulator, 0));
  SmallVector<Value> accs(per * sets, zero);
  for (int64_t i = 0; i < per && !panel.start.empty(); ++i)
    accs[i] = panel.start[i % panel.vectors];
  if (panel.half) {
    Value less = e.constant(p.accumulator, 0);
    less = e.make<vector::BroadcastOp>(VectorType::get({W / 2}, p.accumulator), less);
    for (int64_t i = panel.vectors - 1; i < per * sets; i += panel.vectors)
      accs[i] = less;
  }
  int64_t parts = p.stretches, length = K ? *K / parts : 0;
  // A long chain of sums in f32 loses digits: sums of parts, then the sum of these.
  bool chained = parts == 1 && K && *K >= 2 * kChain && p.accumulator.isF32() && !p.panelOffset;
  if (chained)
    length = kChain, parts = *K / kChain;
  Value all = ix.div(K ? ix.cst(*K) : depth, ix.cst(kBlock));
  auto part = [&](SmallVector<Value> sums, Value k, Value before, std::optional<int64_t> count) {
    SmallVector<Value> at;
    for (Value row : rows)
      at.push_back(ix.add(row, p.stretches == 1 ? k : p.stretchAt(k)));
    Panel from = panel;
    Value depthBefore = p.stretches == 1 ? k : ix.mul(k, length);
    from.base = ix.add(panel.base, ix.mul(depthBefore, panel.stride.base));
    if (panel.column)
      from.depth = ix.add(panel.depth, depthBefore);
    return stretch(sums, at, rowBuffer, rowElement, from, tile, tiles, before, all, count, sets);
  };
  auto plus = [&](ArrayRef<Value> x, ArrayRef<Value> y) {
    SmallVector<Value> sum;
    for (auto [a, b] : llvm::zip(x, y))
      sum.push_back(e.combine(ReduceKind::Sum, a, b, false));
    return sum;
  };
  if (chained) {
    SmallVector<Value> none = accs;
    accs = e.loop(ix.cst(0), ix.cst(parts), ix.cst(1), accs, [&](Value s, ValueRange args) {
      return plus(SmallVector<Value>(args), part(none, ix.mul(s, length),
                                                 ix.mul(s, length / kBlock), length));
    });
    if (int64_t rest = *K % kChain)
      accs = plus(accs, part(none, ix.cst(*K - rest), ix.cst((*K - rest) / kBlock), rest));
  } else if (parts == 1) {
    accs = stretch(accs, rows, rowBuffer, rowElement, panel, tile, tiles, ix.cst(0), all, K, sets);
  } else {
    accs = e.loop(ix.cst(0), ix.cst(parts), ix.cst(1), accs, [&](Value s, ValueRange args) {
      return part(SmallVector<Value>(args), s, ix.mul(s, length / kBlock), length);
    });
  }
  for (int64_t s = sets / 2; s > 0; s /= 2)
    for (int64_t i = 0; i < s * per; ++i)
      accs[i] = e.combine(ReduceKind::Sum, accs[i], accs[s * per + i], false);
  accs.resize(per);
  if (panel.half) {
    SmallVector<int64_t> lanes(W, vector::ShuffleOp::kPoisonIndex); // nobody looks at the others
    std::iota(lanes.begin(), lanes.begin() + W / 2, 0);
    for (int64_t i = panel.vectors - 1; i < per; i += panel.vectors)
      accs[i] = e.make<vector::ShuffleOp>(accs[i], accs[i], lanes);
  }
  return accs;
}

/// A word of 32 bits of the packed panels, as an index; `at` counts elements.
Value TileEmitter::word(Value at) {
  Type element = Evaluator::storageType(p.columnElement);
  Value bits = e.make<tile::LoadOp>(VectorType::get({wordSize()}, element), p.columnBuffer, at, nullptr);
  Value one = e.make<vector::BitCastOp>(VectorType::get({1}, e.b.getI32Type()), bits);
  return e.make<arith::IndexCastUIOp>(e.b.getIndexType(), e.make<vector::ExtractOp>(one, int64_t(0)));
}

/// The sums of a tile over the blocks of one panel, in the order of their rows.
SmallVector<Value> TileEmitter::accumulateBlocks(ArrayRef<Value> rows, Value rowBuffer, Type rowElement,
                                                 const Panel &panel) {
  const int64_t each = p.packed->blockRows, size = each * n;
  const int64_t values = p.packed->valuesAt(elementBits());
  int64_t per = rows.size() * panel.vectors, sets = setsOf(per);
  // Few chunks of rows hardly find blocks in a near cache that others brought there: 4 KB ahead, across panels.
  constexpr int64_t kFewChunks = 4, kAheadBytes = 4096, kLineBytes = 64;
  const int64_t elementBytes = elementBits() / 8;
  const bool streams = p.rows.constant().value_or(0) <= kFewChunks * chunk;
  auto block = [&](SmallVector<Value> accs, Value number, int64_t set) {
    Value k = rowOfBlock(number), at = ix.add(ix.mul(number, size), values);
    for (int64_t line = 0; streams && line < size * elementBytes; line += kLineBytes)
      memref::PrefetchOp::create(e.b, e.loc, panel.buffer, ValueRange{ix.add(at, (kAheadBytes + line) / elementBytes)},
                                 false, 3, true);
    for (int64_t r = 0; r < each; ++r)
      accs = step(accs, rows, rowBuffer, rowElement, panel, ix.add(at, r * n), ix.add(k, r), (set + r) % sets);
    return accs;
  };
  // As many k at once as in a dense panel.
  const int64_t together = std::max<int64_t>(1, kUnroll / each);
  SmallVector<Value> none(per * sets, e.splat(e.constant(p.accumulator, 0)));
  auto part = [&](Value from, Value to) {
    Value whole = ix.sub(to, ix.rem(ix.sub(to, from), ix.cst(together)));
    SmallVector<Value> accs = e.loop(from, whole, ix.cst(together), none, [&](Value b, ValueRange args) {
      SmallVector<Value> next(args);
      for (int64_t u = 0; u < together; ++u)
        next = block(next, ix.add(b, u), u * each);
      return next;
    });
    if (together > 1)
      accs = e.loop(whole, to, ix.cst(1), accs,
                    [&](Value b, ValueRange args) { return block(SmallVector<Value>(args), b, 0); });
    for (int64_t s = sets / 2; s > 0; s /= 2)
      for (int64_t i = 0; i < s * per; ++i)
        accs[i] = e.combine(ReduceKind::Sum, accs[i], accs[s * per + i], false);
    accs.resize(per);
    return accs;
  };
  if (p.depth.constant().value_or(2 * kChain) < 2 * kChain)
    return part(panel.first, panel.end);
  // As in a dense panel: sums of parts, then the sum of these.
  const int64_t chain = kChain / each;
  return e.loop(panel.first, panel.end, ix.cst(chain), ArrayRef<Value>(none).take_front(per),
                [&](Value from, ValueRange args) {
                  SmallVector<Value> sums = part(from, ix.min(ix.add(from, chain), panel.end));
                  for (int64_t i = 0; i < per; ++i)
                    sums[i] = e.combine(ReduceKind::Sum, args[i], sums[i], false);
                  return sums;
                });
}

/// Writes the elements of the unit's row that are not zero to scratch memory and behind them, `depth` further, their k;
/// sets `listed`.
void TileEmitter::listActive(Value batch, Value row) {
  Value at = beginOfRow(batch, row, ix.cst(0)), buffer = p.rowBuffer ? p.rowBuffer : scratch;
  Value zero = e.constant(p.accumulator, 0), places = ix.add(panelScratch, depth);
  listed = e.loop(ix.cst(0), depth, ix.cst(1), {ix.cst(0)}, [&](Value k, ValueRange args) {
    Value x = e.load(buffer, p.accumulator, Index(ix.add(at, k)));
    Value place = e.make<arith::IndexCastUIOp>(e.b.getI32Type(), k);
    // Also a zero is written, and then the next element over it.
    e.storeAt(x, p.accumulator, scratch, Index(ix.add(panelScratch, args[0])));
    e.storeAt(e.make<arith::BitcastOp>(p.accumulator, place), p.accumulator, scratch, Index(ix.add(places, args[0])));
    Value isActive = e.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, x, zero);
    return SmallVector<Value>{ix.select(isActive, ix.add(args[0], 1), args[0])};
  })[0];
}

/// The row by one panel, of whose rows only those of the list are read. Sums are in scratch memory behind the list, so that a
/// panel can be as wide as a page, of which nothing is fetched where it is left out.
void TileEmitter::listedPanel(Value batch, Value row, Value column, const Panel &panel) {
  constexpr int64_t kTogether = 8;
  Value places = ix.add(panelScratch, depth), sums = ix.add(places, depth), last = ix.add(listed, -1);
  Value zero = e.splat(e.constant(p.accumulator, 0));
  auto sumAt = [&](Value v) { return Index(ix.add(sums, ix.mul(v, W)), 1); };
  auto overVectors = [&](auto body) { e.loop(ix.cst(0), ix.cst(panel.vectors), ix.cst(1), body); };
  auto placeOf = [&](Value number) {
    Value bits = e.make<arith::BitcastOp>(e.b.getI32Type(), e.load(scratch, p.accumulator, Index(ix.add(places, number))));
    return ix.add(panel.base, ix.mul(e.make<arith::IndexCastUIOp>(e.b.getIndexType(), bits), panel.stride.base));
  };
  overVectors([&](Value v) { e.storeAt(zero, p.accumulator, scratch, sumAt(v)); });
  // Adds `count` elements of the list from `from` on; meanwhile their successors' lines come.
  auto some = [&](Value from, int64_t count) {
    SmallVector<Value> factors, rows, next;
    for (int64_t i = 0; i < count; ++i) {
      factors.push_back(e.splat(e.load(scratch, p.accumulator, Index(ix.add(ix.add(panelScratch, from), i)))));
      rows.push_back(placeOf(ix.add(from, i)));
      next.push_back(placeOf(ix.min(ix.add(from, i + count), last)));
    }
    overVectors([&](Value v) {
      Value sum, at = ix.mul(v, W);
      for (int64_t i = 0; i < count; ++i) {
        memref::PrefetchOp::create(e.b, e.loc, panel.buffer, ValueRange{ix.add(next[i], at)}, false, 2, true);
        Value w = widen(e, e.load(panel.buffer, panel.element, Index(ix.add(rows[i], at), 1)), panel.element, p.accumulator);
        sum = sum ? e.make<math::FmaOp>(factors[i], w, sum) : e.make<arith::MulFOp>(factors[i], w);
      }
      Value before = e.load(scratch, p.accumulator, sumAt(v));
      e.storeAt(e.combine(ReduceKind::Sum, before, sum, false), p.accumulator, scratch, sumAt(v));
    });
  };
  Value whole = ix.sub(listed, ix.rem(listed, ix.cst(kTogether)));
  e.loop(ix.cst(0), whole, ix.cst(kTogether), [&](Value from) { some(from, kTogether); });
  e.loop(whole, listed, ix.cst(1), [&](Value from) { some(from, 1); });
  auto give = [&](Value v) {
    p.consume(p.resultIndex(batch, row, Index(ix.add(column, ix.mul(v, W)), 1)), e.load(scratch, p.accumulator, sumAt(v)));
  };
  e.loop(ix.cst(0), ix.cst(panel.vectors - (panel.active < W)), ix.cst(1), give);
  if (panel.active < W) {
    Evaluator::ActiveLanes some(e, panel.active);
    give(ix.cst(panel.vectors - 1));
  }
}

/// Sets `finite` for the rows of a unit.
void TileEmitter::checkFinite(Value batch, Value firstRow, Value count) {
  Type bits = e.b.getI32Type();
  Value buffer = p.rowBuffer ? p.rowBuffer : scratch;
  Value magnitude = e.constantInt(bits, INT32_MAX), infinity = e.constantInt(bits, 0x7f800000);
  SmallVector<Value> most =
      e.loop(ix.cst(0), count, ix.cst(1), {e.constantInt(bits, 0)}, [&](Value r, ValueRange args) {
        Value at = beginOfRow(batch, ix.add(firstRow, r), r);
        SmallVector<Value> row = e.reduceRow(p.depth, {{ReduceKind::Max, bits, true}}, [&](const Index &k) {
          Value x = e.load(buffer, p.accumulator, ix.add(Index(at), k));
          Value word = e.make<arith::BitcastOp>(e.like(x, bits), x);
          Value mask = e.isVector(word) ? e.splat(magnitude) : magnitude;
          return SmallVector<Value>{e.make<arith::AndIOp>(word, mask)};
        });
        return SmallVector<Value>{e.combine(ReduceKind::Max, args[0], row[0], true)};
      });
  finite = e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, most[0], infinity);
}

/// What zeros make of infinities and NaN: for each row the sum of its elements that meet no block of the panel,
/// times 0, into scratch memory.
void TileEmitter::addSkipped(Value batch, Value firstRow, Value count, const Panel &panel) {
  Value buffer = p.rowBuffer ? p.rowBuffer : scratch, zero = e.constant(p.accumulator, 0);
  e.loop(ix.cst(0), count, ix.cst(1), [&](Value r) {
    Value at = beginOfRow(batch, ix.add(firstRow, r), r);
    auto between = [&](Value sum, Value from, Value to) {
      return e.loop(from, to, ix.cst(1), {sum}, [&](Value k, ValueRange args) {
        Value x = e.load(buffer, p.accumulator, Index(ix.add(at, k)));
        return SmallVector<Value>{e.make<math::FmaOp>(x, zero, args[0])};
      })[0];
    };
    SmallVector<Value> done =
        e.loop(panel.first, panel.end, ix.cst(1), {zero, ix.cst(0)}, [&](Value b, ValueRange args) {
          Value k = rowOfBlock(b);
          return SmallVector<Value>{between(args[0], args[1], k), ix.add(k, p.packed->blockRows)};
        });
    e.storeAt(between(done[0], done[1], depth), p.accumulator, scratch, Index(ix.add(panelScratch, r)));
  });
}

void TileEmitter::tile(int64_t size, Value batch, Value row, Value localRow, Value column,
                       const Panel &panel, Value tileIndex, Value tiles) {
  SmallVector<Value> rows;
  for (int64_t i = 0; i < size; ++i)
    rows.push_back(beginOfRow(batch, ix.add(row, i), ix.add(localRow, i)));
  if (p.announce)
    for (int64_t i = 0; i < size; ++i)
      for (int64_t v = 0; v < panel.vectors; ++v)
        p.announce(p.resultIndex(batch, ix.add(row, i), Index(ix.add(column, v * W), 1)));
  Value rowBuffer = p.rowBuffer ? p.rowBuffer : scratch;
  Type rowElement = p.rowBuffer ? p.rowElement : p.accumulator;
  SmallVector<Value> accs = p.inBlocks() ? accumulateBlocks(rows, rowBuffer, rowElement, panel)
                                         : accumulate(rows, rowBuffer, rowElement, panel, tileIndex, tiles);
  if (p.inBlocks())
    accs = e.ifElse(finite, TypeRange(ValueRange(accs)), [&] { return accs; }, [&] {
      SmallVector<Value> sums = accs;
      for (int64_t i = 0; i < size; ++i) {
        Value at = ix.add(panelScratch, ix.add(localRow, i));
        Value skipped = e.splat(e.load(scratch, p.accumulator, Index(at)));
        for (int64_t v = 0; v < panel.vectors; ++v) {
          Value &sum = sums[i * panel.vectors + v];
          sum = e.combine(ReduceKind::Sum, sum, skipped, false);
        }
      }
      return sums;
    });
  for (int64_t i = 0; i < size; ++i)
    for (int64_t v = 0; v < panel.vectors; ++v) {
      Evaluator::ActiveLanes some(e, v + 1 == panel.vectors ? panel.active : W);
      Indices idx = p.resultIndex(batch, ix.add(row, i), Index(ix.add(column, v * W), 1));
      p.consume(idx, accs[i * panel.vectors + v]);
    }
}

/// Numbers of rows that chunks can have; empty when they are not known.
std::vector<int64_t> TileEmitter::rowCounts() const {
  if (auto R = p.rows.constant(); R && p.counts.empty())
    return {std::min(chunk, *R), *R % chunk};
  return p.counts;
}

/// Whether panels stream by faster than the first-level cache can have their lines under way,
/// beside those that the products ask for: few tiles share one, and it would not stay there. The
/// next one is then fetched into the second-level cache.
Value TileEmitter::passesCore(Value tiles) {
  constexpr int64_t kFew = 2, kStays = 16 << 10; // tiles; bytes
  std::vector<int64_t> counts = rowCounts();
  auto given = [&](bool is) { return ix.constant(e.b.getBoolAttr(is)); };
  int64_t bits = p.interleave > 1 ? 8 * p.interleave : p.accumulator.getIntOrFloatBitWidth();
  int64_t bytes = p.depth.constant().value_or(0) * n * bits / 8;
  if (bytes < kStays)
    return given(false);
  bool allMany = !counts.empty() &&
                 llvm::all_of(counts, [&](int64_t c) { return c == 0 || c > kFew * m; });
  int64_t most = counts.empty() ? 0 : *llvm::max_element(counts);
  if (allMany || most == 1)
    return given(false);
  if (most && most <= kFew * m)
    return given(true);
  return ix.cmp(arith::CmpIPredicate::sle, tiles, ix.cst(kFew));
}

/// All rows of a chunk against one panel. A known number of rows is cut into
/// ceil(count / m) tiles of nearly equal size; an unknown one into tiles of m and
/// then of the powers of two below it, because every size is code of its own.
void TileEmitter::panelRows(Value batch, Value firstRow, Value count, Value column,
                            const Panel &panel) {
  std::vector<int64_t> counts = rowCounts();
  auto emitAt = [&](int64_t s, Value local, Value t, Value tiles) {
    tile(s, batch, ix.add(firstRow, local), local, column, panel, t, tiles);
  };
  Value one = ix.cst(1), none = ix.cst(0);
  if (counts.empty()) {
    Value tiles = ix.div(count, ix.cst(m));
    e.loop(none, tiles, one, [&](Value t) { emitAt(m, ix.mul(t, m), t, tiles); });
    Value done = ix.mul(tiles, m), rest = ix.sub(count, done);
    for (auto s = int64_t(std::bit_floor(uint64_t(m - 1))); s > 0; s /= 2) {
      Value fits = ix.cmp(arith::CmpIPredicate::sge, rest, ix.cst(s));
      e.ifThen(fits, [&] { emitAt(s, done, none, one); });
      Value used = ix.select(fits, ix.cst(s), none);
      done = ix.add(done, used);
      rest = ix.sub(rest, used);
    }
    return;
  }
  // The larger tiles of a chunk, then the others. Rows are affine in the number of a tile, so that they are pointers of
  // the loop over tiles: where a minimum chose between the two, LLVM found each row again at every step of the depth.
  Value tiles = ix.ceilDiv(count, m), base = ix.div(count, ix.max(tiles, one));
  Value larger = ix.sub(count, ix.mul(tiles, base));
  /// Sizes that occur among these tiles in whole chunks and in the last one.
  auto sizes = [&](bool areLarger) {
    SmallVector<int64_t> found;
    for (int64_t c : counts)
      if (int64_t t = (c + m - 1) / m; c > 0 && (!areLarger || c % t))
        if (int64_t s = c / t + areLarger; !llvm::is_contained(found, s))
          found.push_back(s);
    llvm::sort(found);
    return found;
  };
  auto emitAll = [&](bool areLarger, Value howMany, Value before, Value start) {
    SmallVector<int64_t> cases = sizes(areLarger);
    for (int64_t s : cases) {
      auto loop = [&] {
        e.loop(none, howMany, one, [&](Value t) {
          emitAt(s, ix.add(start, ix.mul(t, s)), ix.add(before, t), tiles);
        });
      };
      Value size = areLarger ? ix.add(base, 1) : base;
      cases.size() == 1 ? loop() : e.ifThen(ix.cmp(arith::CmpIPredicate::eq, size, ix.cst(s)), loop);
    }
  };
  emitAll(true, larger, none, none);
  bool haveLarger = !sizes(true).empty();
  emitAll(false, haveLarger ? ix.sub(tiles, larger) : tiles, haveLarger ? larger : none,
          haveLarger ? ix.mul(larger, ix.add(base, 1)) : none);
}

/// What is left of a run-time number of columns: element after element.
void TileEmitter::columnsOneByOne(Value batch, Value firstRow, Value count, Value from) {
  e.loop(from, ix.dim(p.columns), ix.cst(1), [&](Value column) {
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value r) {
      Indices idx = p.resultIndex(batch, ix.add(firstRow, r), Index(column));
      p.consume(idx, e.eval(p.result, idx));
    });
  });
}

TileEmitter::Panel TileEmitter::makePanel(Value batch, Value index, Value column, int64_t vectors,
                                          int64_t active) {
  Panel panel{p.columnBuffer, p.columnElement, {}, {}, vectors, active};
  if (p.inBlocks()) {
    panel.first = word(ix.mul(index, wordSize()));
    panel.end = word(ix.mul(ix.add(index, 1), wordSize()));
  } else if (p.columnBuffer && p.packed) {
    const PanelLayout &l = *p.packed;
    Value first = p.panelOffset ? p.panelOffset(batch, index)
                                : ix.add(p.columnOffset(batch), ix.mul(index, l.paddedDepth() * l.panel));
    int64_t width = vectors * W == l.panel ? l.panel : l.lastWidth();
    panel.base = first;
    panel.stride = Index(ix.cst(width * p.interleave));
    // Where multipliers are 256 bits wide, half a register of 512 takes half the time.
    panel.half = W >= 16 && active <= W / 2 && p.accumulator.isF32() && panel.element.isF32();
    panel.next = p.nextPanel ? p.nextPanel(batch, index) : ix.add(first, ix.mul(depth, width * p.interleave));
    if (p.columnValue) {
      panel.column = column;
      panel.depth = ix.cst(0);
      panel.next = {};
    }
    if (p.columnValue && p.panelsInScratch()) {
      e.loop(ix.cst(0), depth, ix.cst(1), [&](Value k) {
        Value at = ix.add(panel.base, ix.mul(k, width)), to = ix.add(panelScratch, ix.mul(k, n));
        for (int64_t v = 0; v < vectors; ++v)
          e.storeAt(numbers(panel, at, k, v), p.accumulator, scratch, Index(ix.add(to, v * W), 1));
      });
      return {scratch, p.accumulator, panelScratch, Index(ix.cst(n)), vectors, active};
    }
  } else if (p.columnBuffer) {
    panel.base = ix.add(p.columnOffset(batch), column);
    panel.stride = Index(ix.dim(p.columns));
    panel.wide = active == W;
  } else {
    // Computed: lanes run along the depth, columns are written apart.
    panel.buffer = scratch;
    panel.element = p.accumulator;
    panel.base = panelScratch;
    panel.stride = Index(ix.cst(n));
    if (p.fillPanel) {
      p.fillPanel(batch, column, panelScratch);
      return panel;
    }
    int64_t columns = (vectors - 1) * W + active;
    auto one = [&](Value c) {
      e.overRow(p.depth, [&](const Index &k) {
        Value v = p.columnAt(batch, k, ix.add(column, c));
        e.storeAt(widen(e, v, p.columnElement, p.accumulator), p.accumulator, scratch,
                  ix.add(Index(ix.add(panelScratch, c)), ix.mul(k, n)));
      });
    };
    e.loop(ix.cst(0), ix.cst(columns), ix.cst(1), one);
  }
  return panel;
}

void TileEmitter::panel(Value batch, Value firstRow, Value count, Value index) {
  Value column = ix.mul(index, n);
  auto rows = [&](int64_t vectors, int64_t active, Value at) {
    Panel panel = makePanel(batch, index, at, vectors, active);
    if (p.ofColumnSums)
      panel.start = columnSums(panel);
    if (p.byList())
      return listedPanel(batch, firstRow, at, panel);
    if (p.inBlocks())
      e.ifThen(finite, [] {}, [&] { addSkipped(batch, firstRow, count, panel); });
    panelRows(batch, firstRow, count, at, panel);
  };
  auto N = p.columns.constant();
  if (N) {
    int64_t full = *N / n, rest = *N % n;
    auto whole = [&] { rows(n / W, W, column); };
    auto last = [&] { rows((rest + W - 1) / W, rest % W == 0 ? W : rest % W, column); };
    if (rest == 0)
      whole();
    else if (full == 0)
      last();
    else
      e.ifThen(ix.cmp(arith::CmpIPredicate::slt, index, ix.cst(full)), whole, last);
    return;
  }
  if (p.padded)
    return rows(n / W, W, column);
  Value end = ix.dim(p.columns);
  e.ifThen(ix.cmp(arith::CmpIPredicate::sle, ix.add(column, n), end),
           [&] { rows(n / W, W, column); },
           [&] {
             Value half = ix.cmp(arith::CmpIPredicate::sle, ix.add(column, W), end);
             e.ifThen(half, [&] { rows(1, W, column); });
             Value from = ix.select(half, ix.add(column, W), column);
             columnsOneByOne(batch, firstRow, count, from);
           });
}

void TileEmitter::unit(Value batch, Value chunkIndex, Value groupIndex) {
  Value firstRow = ix.mul(chunkIndex, chunk), all = ix.dim(p.rows);
  Value count = ix.min(ix.sub(all, firstRow), ix.cst(chunk));
  if (p.fillRows)
    p.fillRows(batch, firstRow, count, scratch);
  else if (!p.rowBuffer)
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value r) {
      p.fillRow(batch, ix.add(firstRow, r), scratch, ix.mul(r, depth));
    });
  if (p.inBlocks())
    checkFinite(batch, firstRow, count);
  if (p.byList())
    listActive(batch, firstRow);
  Value panels = ix.dim(DimExpr::ceilDiv(p.columns, DimExpr(n)));
  if (group == 1)
    return panel(batch, firstRow, count, groupIndex);
  Value first = ix.mul(groupIndex, group);
  e.loop(first, ix.min(ix.add(first, group), panels), ix.cst(1),
         [&](Value index) { panel(batch, firstRow, count, index); });
}

} // namespace

void Product::emitChunk(Value batch, Value firstRow, Value count, Value panels) {
  TileEmitter t(*this);
  e.loop(e.ix.cst(0), panels, e.ix.cst(1),
         [&](Value index) { t.panel(batch, firstRow, count, index); });
}

void Product::emitPanel(Value batch, Value firstRow, Value count, Value panel) {
  TileEmitter(*this).panel(batch, firstRow, count, panel);
}

void transposeSquare(Evaluator &e, MutableArrayRef<Value> rows) {
  int64_t W = rows.size();
  for (int64_t stride = 1; stride < W; stride *= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t l = 0; l < W; ++l) {
      bool second = l & stride;
      low.push_back(second ? W + l - stride : l);
      high.push_back(second ? W + l : l + stride);
    }
    for (int64_t i = 0; i < W; ++i) {
      if (i & stride)
        continue;
      Value a = rows[i], b = rows[i + stride];
      rows[i] = e.make<vector::ShuffleOp>(a, b, low);
      rows[i + stride] = e.make<vector::ShuffleOp>(a, b, high);
    }
  }
}

bool Product::emit() {
  TileEmitter t(*this);
  IndexMath &ix = e.ix;
  if (config.tileM < 1 || config.tileN < e.width || config.tileN % e.width)
    return false;
  if (!rowBuffer || panelsInScratch() || inBlocks() || byList()) {
    int64_t bytes = accumulator.getIntOrFloatBitWidth() / 8;
    DimExpr rowElements = rowBuffer ? DimExpr(0) : depth * DimExpr(t.chunk);
    DimExpr panelElements = byList()            ? depth * DimExpr(2) + DimExpr(t.n)
                            : inBlocks()        ? DimExpr(t.chunk)
                            : panelsInScratch() ? depth * DimExpr(t.n)
                                                : DimExpr(0);
    DimExpr need = (rowElements + panelElements) * DimExpr(bytes);
    const DimExpr &have = e.kernel.spec->scratchBytes;
    if (!(have == need) && (have - need).range().lo < 0)
      return false;
    t.scratch = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, accumulator), 0);
    t.panelScratch = ix.dim(rowElements);
  }
  DimExpr chunks = DimExpr::ceilDiv(rows, DimExpr(t.chunk));
  if (!rows.isConstant() && counts.empty() && rows.exactDiv(DimExpr(t.chunk)))
    counts = {t.chunk}; // any number of whole chunks
  DimExpr groups = DimExpr::ceilDiv(columns, DimExpr(t.n * t.group));
  Value units = ix.mul(ix.mul(ix.dim(batches), ix.dim(chunks)), ix.dim(groups));
  auto [lo, hi] = blockRange(e, units);
  e.loop(lo, hi, ix.cst(1), [&](Value u) {
    // Chunks of rows innermost: a panel stays in cache for all of them.
    Indices idx = delinearize(e, Index(u), {batches, groups, chunks});
    t.unit(idx[0].base, idx[2].base, idx[1].base);
  });
  return true;
}

} // namespace lathe::codegen
