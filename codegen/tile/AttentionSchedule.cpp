//===- AttentionSchedule.cpp - attention on the CPU ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A unit is a chunk of r query rows of one head. Its scores against all keys
// that it may see are a product with panels of transposed keys; they stay in
// scratch memory, where each row becomes probabilities (not yet divided by
// their sum); a second product with the values gives the result, divided on
// its way out. No score leaves the cache.
//
// Of a batch whose neighbours may have the same keys (tokens of sequences in pages), a unit is k
// neighbours, and each run of them with equal keys is such a chunk. A row's bits are those that it
// has alone: what others see beyond it is added with probabilities of 0.
//
//===----------------------------------------------------------------------===//

#include "Product.h"
#include "Ranges.h"

#include "lathe/ir/AttentionOperands.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

struct Attention {
  Evaluator &e;
  IndexMath &ix;
  AttentionOp op;
  KernelConfig config;
  Epilogue &epilogue;
  Type f32;
  DimExpr head, valueHead, keys, padded;
  std::optional<unsigned> lseOutput = {}; ///< where the log-sum-exp goes, if anywhere
  bool listed = false; ///< panels of keys that no query of the chunk sees are left out
  int64_t each = 0; ///< queries of each of the batch's rows, of which a chunk takes several; 0: it takes one
  Value scratch, queries, keyPanel, scores, sums, valuePanel, list; ///< offsets in scratch

  // The unit in work.
  Index batch, query, group;
  Value firstRow, count;
  Value begin, seen; ///< keys that any row of the chunk may see: from `begin` on, a multiple of n, ahead of `seen`
  Value panels;      ///< listed: how many panels of keys the list has

  /// Where row r of the chunk is in the batch, and which query there it is.
  Index batchOf(Value r) { return each ? Index(ix.add(batch.base, ix.div(r, ix.cst(each)))) : batch; }
  Value queryOf(Value r) { return each ? ix.rem(r, ix.cst(each)) : ix.add(firstRow, r); }
  /// The row of the chunk, of an index of the result.
  Value rowAt(const Indices &at) {
    return each ? ix.add(ix.mul(ix.sub(at[0].base, batch.base), each), at[2].base) : ix.sub(at[2].base, firstRow);
  }
  Value length() { return ix.dim(keys); }
  Value row(Value place, Value r, const DimExpr &size) { return ix.add(place, ix.mul(r, ix.dim(size))); }

  void placeScratch() {
    DimExpr rows(config.rows), n(config.tileN), at(0);
    auto take = [&](const DimExpr &size) {
      Value place = ix.dim(at);
      at = at + size;
      return place;
    };
    scratch = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, f32), 0);
    scores = take(rows * padded);
    valuePanel = take(padded * n);
    queries = take(rows * head);
    keyPanel = take(head * n);
    sums = take(rows);
    list = listed ? take(DimExpr::ceilDiv(keys, n)) : Value();
  }

  /// Lists the panels of keys in which a query of the chunk may see something. False, with nothing emitted, where that
  /// cannot be told.
  bool listPanels() {
    const int64_t n = config.tileN;
    std::vector<DimExpr> space = dimsOf(op.getY());
    space[3] = keys;
    Extent rows(firstRow, ix.sub(ix.add(firstRow, count), ix.cst(1)));
    Value from = ix.div(begin, ix.cst(n)), end = ix.ceilDiv(seen, n);
    bool tells = false;
    panels = e.loop(from, end, ix.cst(1), {ix.cst(0)}, [&](Value panel, ValueRange args) {
      Value first = ix.mul(panel, n);
      Box box{Extent(batch.base), Extent(query.base), rows, Extent(first, ix.sub(ix.min(ix.add(first, n), length()), ix.cst(1)))};
      Ranges ranges(e, keys);
      Value any = ix.constant(e.b.getBoolAttr(true));
      if (op.getMask())
        any = ranges.truth(op.getMask(), ranges.broadcast(op.getMask(), space, box)).any;
      if (Value mine = op.getQueryDocuments()) {
        Value theirs = op.getKeyDocuments();
        Value same = ranges.equal(mine, ranges.broadcast(mine, {space[0], space[2]}, {box[0], box[2]}), theirs,
                                  ranges.broadcast(theirs, {space[0], space[3]}, {box[0], box[3]})).any;
        any = ranges.both(any, same);
      }
      tells = !IndexMath::constantOf(any);
      writeListed(args[0], panel);
      return SmallVector<Value>{ix.select(any, ix.add(args[0], 1), args[0])};
    })[0];
    if (!tells) {
      panels.getDefiningOp()->erase();
      return false;
    }
    listAllIfMost(from, end);
    return true;
  }
  /// Where little is left out, the copies of values cost more than that saves: of few queries less than half, of many less
  /// than a sixteenth. Then all panels are listed, and values are read where they lie.
  void listAllIfMost(Value from, Value end) {
    constexpr int64_t kFew = 8, kSixteenths = 16;
    Value all = ix.sub(end, from), few = ix.cmp(arith::CmpIPredicate::slt, count, ix.cst(kFew));
    Value enough = ix.mul(all, ix.select(few, ix.cst(kSixteenths / 2), ix.cst(kSixteenths - 1)));
    Value most = ix.cmp(arith::CmpIPredicate::sgt, ix.mul(panels, kSixteenths), enough);
    e.ifThen(most, [&] {
      e.loop(ix.cst(0), all, ix.cst(1), [&](Value place) { writeListed(place, ix.add(from, place)); });
    });
    panels = ix.select(most, all, panels);
  }
  void writeListed(Value place, Value panel) {
    Value number = e.make<arith::IndexCastUIOp>(e.b.getI32Type(), panel);
    e.storeAt(e.make<arith::BitcastOp>(f32, number), f32, scratch, Index(ix.add(list, place)));
  }
  /// The first key of the panel at a place of the list.
  Value listedKey(Value place) {
    Value bits = e.make<arith::BitcastOp>(e.b.getI32Type(), e.load(scratch, f32, Index(ix.add(list, place))));
    return ix.mul(e.make<arith::IndexCastUIOp>(e.b.getIndexType(), bits), config.tileN);
  }

  /// Scaled query rows.
  void copyQueries() {
    Value scale = e.constant(f32, op.getScale().convertToDouble());
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value r) {
      e.overRow(head, [&](const Index &d) {
        Value q = e.eval(op.getQ(), {batchOf(r), query, Index(queryOf(r)), d});
        Value s = scale;
        e.unify(q, s);
        e.storeAt(e.make<arith::MulFOp>(q, s), f32, scratch,
                  ix.add(Index(row(queries, r, head)), d));
      });
    });
  }

  /// n keys, transposed in squares of W x W. Keys beyond the last repeat it.
  void fillKeys(Value first, Value at) {
    int64_t W = e.width, D = *head.constant();
    Value last = ix.sub(length(), ix.cst(1));
    for (int64_t block = 0; block < config.tileN; block += W)
      for (int64_t d = 0; d < D; d += W) {
        Evaluator::ActiveLanes some(e, std::min(W, D - d));
        SmallVector<Value> square;
        for (int64_t i = 0; i < W; ++i) {
          Value key = ix.min(ix.add(first, block + i), last);
          square.push_back(e.splat(e.eval(op.getK(), {batch, group, Index(key), Index(ix.cst(d), 1)})));
        }
        transposeSquare(e, square);
        Evaluator::ActiveLanes all(e, W);
        for (int64_t i = 0; i < std::min(W, D - d); ++i)
          e.storeAt(square[i], f32, scratch,
                    Index(ix.add(at, (d + i) * config.tileN + block), 1));
      }
  }

  Product part(const DimExpr &columns, const DimExpr &depth) {
    Product p{e, config, op.getY(), f32};
    p.rows = dimOf(op.getY(), 2);
    if (each) { // a run has any number of them
      p.rows = dimOf(op.getY(), 0) * p.rows;
      for (int64_t n = 1; p.rows.isConstant() && n <= config.tileK; ++n)
        p.counts.push_back(n * each);
    }
    p.columns = columns;
    p.depth = depth;
    p.rowBuffer = scratch;
    p.rowElement = f32;
    p.scratch = scratch;
    p.sums = config.stages;
    return p;
  }

  void emitScores() {
    Product p = part(padded, head);
    p.rowOffset = [&](Value, Value r) { return row(queries, r, head); };
    p.columnElement = f32;
    p.panelPlace = keyPanel;
    p.padded = true;
    p.fillPanel = [&](Value, Value column, Value at) {
      fillKeys(listed ? listedKey(ix.div(column, ix.cst(config.tileN))) : column, at);
    };
    p.resultIndex = [](Value, Value r, const Index &column) { return Indices{Index(r), column}; };
    p.consume = [&](const Indices &idx, Value v) {
      e.storeAt(v, f32, scratch, ix.add(Index(row(scores, idx[0].base, padded)), idx[1]));
    };
    Value first = listed ? ix.cst(0) : ix.div(begin, ix.cst(config.tileN));
    e.loop(first, listed ? panels : ix.ceilDiv(seen, config.tileN), ix.cst(1),
           [&](Value panel) { p.emitPanel(ix.cst(0), ix.cst(0), count, panel); });
  }

  /// Soft cap, bias and what is hidden of one score (or lanes of them) of a row that sees keys up to
  /// `end`.
  Value adjust(Value v, const Index &b, const Index &s, const Index &t, Value end) {
    auto like = [&](double c) {
      Value k = e.constant(f32, c);
      return e.isVector(v) ? e.splat(k) : k;
    };
    if (op.getSoftcap()) {
      Value cap = like(op.getSoftcap()->convertToDouble());
      v = e.make<arith::MulFOp>(e.make<math::TanhOp>(e.make<arith::DivFOp>(v, cap)), cap);
    }
    v = biasedScore(e, op, {b, query, s, t}, v);
    if (op.endsPerQuery())
      v = e.select(ix.cmp(arith::CmpIPredicate::slt, t, end), v,
                   like(-std::numeric_limits<double>::infinity()));
    return v;
  }

  /// A row's scores to probabilities times their sum, which goes to `sums`.
  void softmaxRow(Value r) {
    Value base = row(scores, r, padded), lowest = e.constant(f32, -std::numeric_limits<double>::infinity());
    const Index b = batchOf(r), s(queryOf(r));
    Value rowEnd = op.endsPerQuery() ? attentionEnd(e, op, b, s.base) : seen;
    // Of several rows of the batch each has keys up to its own end.
    Value last = each ? ix.max(attentionEnd(e, op, b, s.base), begin) : seen;
    int64_t W = e.width;
    Value whole = ix.mul(ix.div(last, ix.cst(W)), W), end = ix.mul(ix.ceilDiv(last, W), W);
    // The score of key t, at a place of the row.
    auto visit = [&](const Index &place, const Index &t, Value acc) {
      Index at = ix.add(Index(base), place);
      Value v = adjust(e.load(scratch, f32, at), b, s, t, rowEnd);
      e.storeAt(v, f32, scratch, at);
      return SmallVector<Value>{e.make<arith::MaximumFOp>(acc, v)};
    };
    auto hide = [&](Value from, Value to) {
      e.loop(from, to, ix.cst(1), [&](Value t) { e.storeAt(lowest, f32, scratch, ix.add(Index(base), Index(t))); });
    };
    Value sink = attentionSink(e, op, b, query, s), before = sink ? sink : lowest, top;
    if (listed) {
      top = e.loop(ix.cst(0), panels, ix.cst(1), ValueRange{e.splat(before)}, [&](Value panel, ValueRange args) {
        Value first = listedKey(panel), place = ix.mul(panel, config.tileN), behind = ix.add(first, config.tileN);
        auto inside = [&] {
          Value lanes = args[0];
          for (int64_t c = 0; c < config.tileN; c += W)
            lanes = visit(Index(ix.add(place, c), 1), Index(ix.add(first, c), 1), lanes)[0];
          return lanes;
        };
        auto atEnd = [&] { // behind the last key nothing is seen
          Value shift = ix.sub(first, place);
          Value one = e.loop(first, last, ix.cst(1), ValueRange{lowest}, [&](Value t, ValueRange a) {
            return visit(Index(ix.sub(t, shift)), Index(t), a[0]);
          })[0];
          hide(ix.sub(last, shift), ix.add(place, config.tileN));
          return e.make<arith::MaximumFOp>(args[0], e.splat(one));
        };
        return SmallVector<Value>{e.ifElse(ix.cmp(arith::CmpIPredicate::sle, behind, last), inside, atEnd)};
      })[0];
      top = e.horizontal(ReduceKind::Max, top, false);
      end = ix.mul(panels, config.tileN);
    } else {
      Value lanes = e.loop(begin, whole, ix.cst(W), ValueRange{e.splat(before)},
                           [&](Value t, ValueRange a) { return visit(Index(t, 1), Index(t, 1), a[0]); })[0];
      top = e.horizontal(ReduceKind::Max, lanes, false);
      top = e.loop(whole, last, ix.cst(1), ValueRange{top},
                   [&](Value t, ValueRange a) { return visit(Index(t), Index(t), a[0]); })[0];
      // From here on whole vectors: what is behind the last key is never seen.
      hide(last, end);
    }
    Value none = e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, top, lowest);
    Value reference = e.splat(e.select(none, e.constant(f32, 0), top));
    Value zero = e.splat(e.constant(f32, 0));
    Value sum = e.loop(listed ? ix.cst(0) : begin, end, ix.cst(W), ValueRange{zero}, [&](Value t, ValueRange a) {
      Index at = ix.add(Index(base), Index(t, 1));
      Value p = e.make<math::ExpOp>(
          e.make<arith::SubFOp>(e.load(scratch, f32, at), reference));
      e.storeAt(p, f32, scratch, at);
      return SmallVector<Value>{e.make<arith::AddFOp>(a[0], p)};
    })[0];
    Value total = e.horizontal(ReduceKind::Sum, sum, false);
    if (sink)
      total = e.make<arith::AddFOp>(
          total, e.make<math::ExpOp>(e.make<arith::SubFOp>(
                     sink, e.select(none, e.constant(f32, 0), top))));
    if (lseOutput) { // of a row with nothing to see: -inf
      Value log = e.make<math::LogOp>(e.select(none, e.constant(f32, 1), total));
      e.store(e.make<arith::AddFOp>(top, log), op.getLse(), *lseOutput, {b, query, s});
    }
    if (op.getZeroMaskedRows())
      total = e.select(none, e.constant(f32, 1), total);
    Value inverse = e.make<arith::DivFOp>(e.constant(f32, 1), total);
    e.storeAt(inverse, f32, scratch, Index(ix.add(sums, r)));
    if (each) // what others see
      e.loop(end, seen, ix.cst(1),
             [&](Value t) { e.storeAt(e.constant(f32, 0), f32, scratch, ix.add(Index(base), Index(t))); });
  }

  /// Elements of the value of key t from `column` on, as many as a panel has, to `line` in scratch memory.
  void copyValue(Value column, Value t, Value line) {
    const bool whole = valueHead.exactDiv(DimExpr(config.tileN)).has_value();
    for (int64_t c = 0; whole && c < config.tileN; c += e.width) {
      Value x = e.splat(e.eval(op.getV(), {batch, group, Index(t), Index(ix.add(column, c), 1)}));
      e.storeAt(x, f32, scratch, Index(ix.add(line, c), 1));
    }
    if (whole)
      return;
    Value end = ix.min(ix.sub(ix.dim(valueHead), column), ix.cst(config.tileN));
    e.loop(ix.cst(0), end, ix.cst(1), [&](Value c) {
      Value x = e.eval(op.getV(), {batch, group, Index(t), Index(ix.add(column, c))});
      e.storeAt(x, f32, scratch, Index(ix.add(line, c)));
    });
  }

  /// The buffer of values that products can read as it lies; or null.
  const BufferArg *valuesInPlace() {
    auto arg = dyn_cast<BlockArgument>(op.getV());
    const BufferArg *buf = arg ? &e.bufferArg(arg.getArgNumber()) : nullptr;
    return buf && buf->packing.empty() && buf->physical[3] == buf->dims[3] ? buf : nullptr;
  }

  void emitValues() {
    if (!listed || !valuesInPlace())
      return emitValues(listed);
    Value all = ix.sub(ix.ceilDiv(seen, config.tileN), ix.div(begin, ix.cst(config.tileN)));
    e.ifThen(ix.cmp(arith::CmpIPredicate::eq, panels, all), [&] { emitValues(false); }, [&] { emitValues(true); });
  }
  /// `copied`: values of the listed panels go to scratch memory, one after another.
  void emitValues(bool copied) {
    Product p = part(valueHead, keys);
    const bool fromFirst = IndexMath::constantOf(begin) == 0;
    if (copied)
      p.depthEnd = ix.mul(panels, config.tileN);
    else if (seen != length() || !fromFirst)
      p.depthEnd = ix.sub(seen, begin);
    p.rowOffset = [&](Value, Value r) { return ix.add(row(scores, r, padded), listed ? ix.cst(0) : begin); };
    p.columnElement = elementTypeOf(op.getV());
    if (const BufferArg *buf = copied ? nullptr : valuesInPlace()) {
      p.columnBuffer = e.buffer(cast<BlockArgument>(op.getV()).getArgNumber());
      p.columnOffset = [&, buf](Value) {
        return e.offset(buf->physical, {batch, group, Index(begin), Index(ix.cst(0))}).base;
      };
    } else {
      p.panelPlace = valuePanel;
      p.fillPanel = [&, copied](Value, Value column, Value at) {
        if (!copied) {
          e.loop(begin, seen, ix.cst(1), [&](Value t) { copyValue(column, t, ix.add(at, ix.mul(ix.sub(t, begin), config.tileN))); });
          return;
        }
        e.loop(ix.cst(0), panels, ix.cst(1), [&](Value panel) {
          Value first = listedKey(panel), end = ix.min(ix.add(first, config.tileN), seen);
          Value line = ix.add(at, ix.mul(panel, config.tileN * config.tileN));
          auto lineOf = [&](Value t) { return ix.add(line, ix.mul(ix.sub(t, first), config.tileN)); };
          e.loop(first, end, ix.cst(1), [&](Value t) { copyValue(column, t, lineOf(t)); });
          e.loop(end, ix.add(first, config.tileN), ix.cst(1), [&](Value t) { // meet probabilities of 0
            for (int64_t c = 0; c < config.tileN; c += e.width)
              e.storeAt(e.splat(e.constant(f32, 0)), f32, scratch, Index(ix.add(lineOf(t), c), 1));
          });
        });
      };
    }
    p.resultIndex = [&](Value, Value r, const Index &column) {
      return Indices{batchOf(r), query, Index(queryOf(r)), column};
    };
    p.consume = [&](const Indices &idx, Value acc) {
      Value inverse = e.splat(e.load(scratch, f32, Index(ix.add(sums, rowAt(idx)))));
      epilogue.emit(idx, e.make<arith::MulFOp>(acc, inverse));
    };
    p.emitChunk(ix.cst(0), ix.cst(0), count, ix.dim(DimExpr::ceilDiv(valueHead, DimExpr(config.tileN))));
  }

  void chunk() {
    listed = listed && listPanels();
    copyQueries();
    emitScores();
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value r) { softmaxRow(r); });
    emitValues();
  }
  /// The panel of keys that one begins in, of those ahead of `seen`.
  Value panelBegin(Value key) {
    return IndexMath::constantOf(key) == 0
               ? key
               : ix.mul(ix.div(ix.min(key, seen), ix.cst(config.tileN)), config.tileN);
  }

  /// Neighbours [first, first + k) of the batch, one chunk for each run of those with equal `numbers`.
  void runs(Value chunkIndex, const Index &head, Value numbers, const DimExpr &perGroup) {
    query = head;
    group = ix.divRem(query, perGroup).first;
    firstRow = ix.cst(0);
    Value first = ix.mul(chunkIndex, config.tileK);
    Value end = ix.min(ix.add(first, config.tileK), ix.dim(dimOf(op.getQ(), 0)));
    auto same = [&](Value x, Value y) {
      return e.make<arith::CmpIOp>(arith::CmpIPredicate::eq, e.eval(numbers, {Index(x)}), e.eval(numbers, {Index(y)}));
    };
    Value yes = ix.constant(e.b.getBoolAttr(true));
    e.loop(first, end, ix.cst(1), [&](Value b) {
      Value before = ix.max(ix.sub(b, ix.cst(1)), ix.cst(0));
      Value goesOn = e.make<arith::AndIOp>(ix.cmp(arith::CmpIPredicate::sgt, b, first), same(b, before));
      e.ifThen(goesOn, [] {}, [&] {
        batch = Index(b);
        SmallVector<Value> run = e.loop(b, end, ix.cst(1), {yes, ix.cst(0), ix.cst(0), length()},
                                        [&](Value next, ValueRange args) {
          Value in = e.make<arith::AndIOp>(args[0], same(next, b));
          Value more = ix.select(in, ix.cst(1), ix.cst(0));
          Value keysEnd = attentionEnd(e, op, Index(next), firstRow);
          Value keysBegin = attentionBegin(e, op, Index(next), firstRow);
          return SmallVector<Value>{in, ix.add(args[1], more), ix.select(in, ix.max(args[2], keysEnd), args[2]),
                                    ix.select(in, ix.min(args[3], keysBegin), args[3])};
        });
        count = ix.mul(run[1], each);
        seen = run[2];
        begin = op.getStarts() ? panelBegin(run[3]) : ix.cst(0);
        chunk();
      });
    });
  }

  void unit(const Indices &at, const DimExpr &perGroup) {
    batch = at[0];
    query = at[1];
    group = ix.divRem(query, perGroup).first;
    firstRow = ix.mul(at[2].base, config.rows);
    Value rows = ix.dim(dimOf(op.getQ(), 2));
    count = ix.min(ix.sub(rows, firstRow), ix.cst(config.rows));
    // Ends grow with the row.
    seen = attentionEnd(e, op, batch, ix.sub(ix.add(firstRow, count), ix.cst(1)));
    begin = panelBegin(attentionBegin(e, op, batch, firstRow));
    chunk();
  }
};

} // namespace

void scheduleAttention(Evaluator &e, const KernelConfig &config) {
  auto op = e.anchor<AttentionOp>();
  if (!op)
    return;
  Value y = op.getY();
  Epilogue epilogue(e, y);
  DimExpr head = dimOf(op.getQ(), 3), valueHead = dimOf(op.getV(), 3), keys = dimOf(op.getK(), 2);
  DimExpr need = attentionScratchBytes(config, keys, head);
  const DimExpr &have = e.kernel.spec->scratchBytes;
  bool enough = have == need || (have - need).range().lo >= 0;
  bool square = (e.width & (e.width - 1)) == 0 && config.tileN % e.width == 0;
  Type f32 = Evaluator::computeType(elementTypeOf(y));
  if (!epilogue.supported() || !enough || !square || e.width < 2 || config.tileM < 1 ||
      config.rows < 1 || !head.isConstant() || !valueHead.isConstant() || !f32.isF32())
    return schedulePointwise(e, config);
  IndexMath &ix = e.ix;
  DimExpr n(config.tileN);
  Attention a{e, ix, op, config, epilogue, f32, head, valueHead, keys, DimExpr::ceilDiv(keys, n) * n};
  if (op.getLse())
    for (auto [n, output] : llvm::enumerate(e.kernel.body->getTerminator()->getOperands()))
      if (output == op.getLse())
        a.lseOutput = e.outputArg(n);
  a.listed = config.form->attention.listed && config.tileK == 0;
  a.placeScratch();
  std::vector<DimExpr> yd = dimsOf(y);
  DimExpr perGroup = DimExpr::floorDiv(yd[1], dimOf(op.getK(), 1));
  if (config.tileK > 0) {
    Value numbers = keysFoundBy(op);
    auto queries = yd[2].constant();
    if (!numbers || !queries || *queries * config.tileK != config.rows)
      return schedulePointwise(e, config);
    a.each = *queries;
    DimExpr neighbours = DimExpr::ceilDiv(yd[0], DimExpr(config.tileK));
    overBlockShare(e, neighbours * yd[1], [&](Value u) {
      Indices at = delinearize(e, Index(u), {neighbours, yd[1]});
      a.runs(at[0].base, at[1], numbers, perGroup);
    });
    return;
  }
  DimExpr chunks = DimExpr::ceilDiv(yd[2], DimExpr(config.rows));
  overBlockShare(e, yd[0] * yd[1] * chunks, [&](Value u) {
    a.unit(delinearize(e, Index(u), {yd[0], yd[1], chunks}), perGroup);
  });
}

} // namespace lathe::codegen
