//===- WinogradSchedule.cpp - 3 x 3 convolutions in fewer products -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A unit is a chunk of r tiles of 2 x 2 or 4 x 4 results times k panels of filters. The
// tiles' inputs are transformed into scratch, [point][tile][channel]; for s panels at
// a time every point is a product of the skeleton, and the results of all points are
// transformed back on their way to the epilogue. With one panel at a time inputs and
// products stay in cache while filters stream by; with several each point's inputs are
// read once for all of them. Units of one chunk follow each other, so a worker
// transforms a chunk once for all panels that it takes. Where tiles reach beyond the
// image, some points contribute to results outside it alone: these points are
// computed for fewer tiles, which are stored contiguously.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

#include "lathe/support/Winograd.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

using winograd::kMaxIn;

struct Winograd {
  Evaluator &e;
  IndexMath &ix;
  const KernelConfig &config;
  Epilogue &epilogue;
  ConvOp op;
  PanelLayout layout;
  winograd::Form form;
  int64_t kIn = form.in(), kOut = form.out, kPoints = form.points();
  int64_t together = std::max<int64_t>(1, config.stages); ///< panels
  Type f32;
  std::vector<DimExpr> tiles; ///< images, rows and columns of tiles
  Value scratch, transformed, products; ///< the last two: offsets in scratch
  /// Of tiles that do not reach beyond the last row or column where points are skipped for the others,
  /// else of all: their numbers.
  std::array<std::optional<int64_t>, 2> whole;
  std::vector<int64_t> possible; ///< numbers of tiles of a point, when some are skipped

  Value plus(Value x, Value y) { return e.make<arith::AddFOp>(x, y); }
  Value minus(Value x, Value y) { return e.make<arith::SubFOp>(x, y); }

  /// By whether a point is without tiles that reach beyond the last row, and the last column.
  using ByClass = std::array<std::array<Value, 2>, 2>;
  bool skips(int64_t side, int64_t i) { return whole[side] && form.isForLast(i); }
  bool skips(int64_t side) { return whole[side].has_value(); }

  /// Tiles before tile t that a class of points has.
  Value before(Value t, bool rows, bool columns) {
    if (!rows && !columns)
      return t;
    Indices at = delinearize(e, Index(t), tiles);
    int64_t all[2] = {*tiles[1].constant(), *tiles[2].constant()};
    int64_t have[2] = {rows ? *whole[0] : all[0], columns ? *whole[1] : all[1]};
    Value row = at[1].base, column = ix.min(at[2].base, ix.cst(have[1]));
    if (rows)
      column = ix.select(ix.cmp(arith::CmpIPredicate::slt, row, ix.cst(have[0])), column, ix.cst(0));
    Value rowsBefore = ix.add(ix.mul(at[0].base, have[0]), ix.min(row, ix.cst(have[0])));
    return ix.add(ix.mul(rowsBefore, have[1]), column);
  }
  ByClass byClass(llvm::function_ref<Value(bool rows, bool columns)> make) {
    ByClass all;
    for (bool rows : {false, true})
      for (bool columns : {false, true})
        all[rows][columns] = make(rows && skips(0), columns && skips(1));
    return all;
  }
  /// The one of a point that only the run knows.
  Value ofPoint(const ByClass &all, Value point) {
    auto isSkipped = [&](int64_t side) -> Value {
      uint64_t points = 0;
      for (int64_t i = 0; i < kIn; ++i)
        for (int64_t j = 0; j < kIn; ++j)
          points |= uint64_t(skips(side, side == 0 ? i : j)) << form.point(i, j);
      Value bit = e.make<arith::ShRUIOp>(ix.cst(int64_t(points)), point);
      return ix.cmp(arith::CmpIPredicate::eq, ix.rem(bit, ix.cst(2)), ix.cst(1));
    };
    auto byColumn = [&](bool rows) {
      return skips(1) ? ix.select(isSkipped(1), all[rows][1], all[rows][0]) : all[rows][0];
    };
    return skips(0) ? ix.select(isSkipped(0), byColumn(true), byColumn(false)) : byColumn(false);
  }
  Value &ofPoint(ByClass &all, int64_t i, int64_t j) { return all[skips(0, i)][skips(1, j)]; }

  Value filterOf(Value point) {
    if (form.stride == 1)
      return point;
    constexpr int64_t alone = 9, last = 15; // then two points a filter, of the last four
    Value pair = ix.add(ix.div(ix.sub(point, ix.cst(alone)), ix.cst(2)), alone);
    return ix.select(ix.cmp(arith::CmpIPredicate::slt, point, ix.cst(alone)), point,
                     ix.min(pair, ix.cst(last)));
  }

  Value rowOf(Value point, Value tile) {
    Value row = ix.add(ix.mul(point, config.rows), tile);
    return ix.add(transformed, ix.mul(row, winograd::rowStride(layout.channels)));
  }

  Value times(double c, Value x, Value y) { ///< c x + y
    Value factor = e.constant(f32, c);
    return e.make<math::FmaOp>(e.isVector(x) ? e.splat(factor) : factor, x, y);
  }

  /// B^T d for one column or row d.
  void forward(Value *d) {
    if (form.stride == 2) {
      Value a = minus(d[0], d[2]), b = d[2], c = minus(d[4], d[2]), odd = d[1], next = d[3];
      d[0] = a, d[1] = b, d[2] = c, d[3] = odd, d[4] = next;
      return;
    }
    if (kOut == 2) {
      Value a = minus(d[0], d[2]), b = plus(d[1], d[2]), c = minus(d[2], d[1]), f = minus(d[1], d[3]);
      d[0] = a, d[1] = b, d[2] = c, d[3] = f;
      return;
    }
    // The polynomials whose roots are all points but one; odd and even powers are shared.
    constexpr double p = winograd::kNear, q = winograd::kFar, pp = p * p, qq = q * q;
    Value zero = times(pp * qq, d[0], times(-pp - qq, d[2], d[4]));
    Value infinity = times(pp * qq, d[1], times(-pp - qq, d[3], d[5]));
    Value nearEven = times(-qq, d[2], d[4]), nearOdd = times(-qq, d[1], d[3]);
    Value farEven = times(-pp, d[2], d[4]), farOdd = times(-pp, d[1], d[3]);
    d[0] = zero, d[5] = infinity;
    d[1] = times(p, nearOdd, nearEven), d[2] = times(-p, nearOdd, nearEven);
    d[3] = times(q, farOdd, farEven), d[4] = times(-q, farOdd, farEven);
  }

  /// A^T m for one column or row m: a tile's results along it.
  void back(const Value *m, Value *y) {
    if (form.stride == 2) {
      y[0] = plus(plus(m[0], m[1]), m[3]);
      y[1] = plus(plus(m[1], m[2]), m[4]);
      return;
    }
    if (kOut == 2) {
      y[0] = plus(plus(m[0], m[1]), m[2]);
      y[1] = minus(minus(m[1], m[2]), m[3]);
      return;
    }
    constexpr double p = winograd::kNear, q = winograd::kFar;
    Value nearEven = plus(m[1], m[2]), nearOdd = minus(m[1], m[2]);
    Value farEven = plus(m[3], m[4]), farOdd = minus(m[3], m[4]);
    auto scaled = [&](double c, Value x) {
      return e.make<arith::MulFOp>(e.splat(e.constant(f32, c)), x);
    };
    y[0] = plus(m[0], plus(nearEven, farEven));
    y[1] = times(p, nearOdd, scaled(q, farOdd));
    y[2] = times(p * p, nearEven, scaled(q * q, farEven));
    y[3] = times(p * p * p, nearOdd, times(q * q * q, farOdd, m[5]));
  }

  /// B^T d B of the channels `c` of a tile, whose pixels `pixel` gives.
  void transformChannels(const Index &c, ByClass &place,
                         llvm::function_ref<Value(int64_t i, int64_t j)> pixel) {
    Value d[kMaxIn][kMaxIn];
    for (int64_t j = 0; j < kIn; ++j) {
      Value column[kMaxIn];
      for (int64_t i = 0; i < kIn; ++i)
        column[i] = pixel(i, j);
      forward(column);
      for (int64_t i = 0; i < kIn; ++i)
        d[i][j] = column[i];
    }
    for (int64_t i = 0; i < kIn; ++i) {
      forward(d[i]);
      for (int64_t j = 0; j < kIn; ++j)
        e.storeAt(d[i][j], f32, scratch,
                  ix.add(Index(rowOf(ix.cst(form.point(i, j)), ofPoint(place, i, j))), c));
    }
  }

  /// Where a point has no use for the tile, what it is given makes way for the next tile's.
  void transformTile(Value index, ByClass &place) {
    Indices at = delinearize(e, Index(index), tiles);
    DimExpr channels(layout.channels);
    Value x = op.getX();
    using P = arith::CmpIPredicate;
    // First row and column of the window, and whether all of it is inside.
    Value begin[2], size[2], inside;
    for (int64_t d = 0; d < 2; ++d) {
      begin[d] = ix.add(ix.mul(at[1 + d].base, kOut * form.stride), -op.getPads()[d]);
      size[d] = ix.dim(dimOf(x, 1 + d));
      Value low = ix.cmp(P::sge, begin[d], ix.cst(0));
      Value high = ix.cmp(P::sle, ix.add(begin[d], kIn), size[d]);
      Value both = e.make<arith::AndIOp>(low, high);
      inside = inside ? e.make<arith::AndIOp>(inside, both) : both;
    }
    auto whole = [&] {
      e.overRow(channels, [&](const Index &c) {
        transformChannels(c, place, [&](int64_t i, int64_t j) {
          return e.eval(x, {at[0], Index(ix.add(begin[0], i)), Index(ix.add(begin[1], j)), c});
        });
      });
    };
    // At a border pixels are read where the image is and taken as zero outside.
    auto border = [&] {
      Value pixel[2][kMaxIn], ok[2][kMaxIn];
      for (int64_t d = 0; d < 2; ++d)
        for (int64_t i = 0; i < kIn; ++i) {
          Value p = ix.add(begin[d], i);
          ok[d][i] = ix.cmp(P::ult, p, size[d]);
          pixel[d][i] = ix.max(ix.min(p, ix.sub(size[d], ix.cst(1))), ix.cst(0));
        }
      e.overRow(channels, [&](const Index &c) {
        transformChannels(c, place, [&](int64_t i, int64_t j) {
          Value v = e.eval(x, {at[0], Index(pixel[0][i]), Index(pixel[1][j]), c});
          Value zero = e.constant(f32, 0);
          Value real = e.make<arith::AndIOp>(ok[0][i], ok[1][j]);
          return e.make<arith::SelectOp>(real, v, e.isVector(v) ? e.splat(zero) : zero);
        });
      });
    };
    e.ifThen(inside, whole, border);
  }

  /// All products of the panels [from, to), into scratch.
  void multiply(Value from, Value to, const ByClass &counts, const DimExpr &all) {
    Product p{e, config, op.getResult(), f32};
    p.rows = all;
    p.counts = possible;
    if (possible.empty() && !all.isConstant() && all.exactDiv(DimExpr(config.rows)))
      p.counts = {config.rows}; // any number of whole chunks
    p.columns = DimExpr(layout.columns);
    p.depth = DimExpr(layout.channels);
    p.rowBuffer = scratch;
    p.rowElement = f32;
    p.scratch = scratch;
    p.rowOffset = [this](Value point, Value row) { return rowOf(point, row); };
    p.columnBuffer = e.buffer(cast<BlockArgument>(op.getW()).getArgNumber());
    p.columnElement = f32;
    p.packed = layout;
    p.panelOffset = [this](Value point, Value index) {
      int64_t channels = layout.channels;
      Value width = ix.cst(layout.panel);
      if (layout.lastWidth() != layout.panel)
        width = ix.select(ix.cmp(arith::CmpIPredicate::eq, index, ix.cst(layout.panels() - 1)),
                          ix.cst(layout.lastWidth()), width);
      return ix.add(ix.mul(index, layout.depth * layout.panel),
                    ix.mul(ix.mul(filterOf(point), channels), width));
    };
    // The point's next panel, the next point's first, those that come together next.
    p.nextPanel = [&](Value point, Value index) {
      using P = arith::CmpIPredicate;
      Value next = ix.add(index, 1), after = ix.add(point, 1);
      Value isLast = ix.cmp(P::eq, next, to), isEnd = ix.cmp(P::eq, after, ix.cst(kPoints));
      Value panel = ix.select(isLast, ix.select(isEnd, to, from), next);
      Value at = ix.select(isLast, ix.select(isEnd, ix.cst(0), after), point);
      return p.panelOffset(at, panel);
    };
    p.resultIndex = [](Value point, Value row, const Index &column) {
      return Indices{Index(point), Index(row), column};
    };
    Value left = ix.mul(from, config.tileN);
    p.consume = [&](const Indices &idx, Value v) {
      Evaluator::ActiveLanes all(e, e.width);
      Value at = ix.add(productOf(idx[0].base, idx[1].base), ix.sub(idx[2].base, left));
      e.storeAt(v, f32, scratch, Index(at, 1));
    };
    e.loop(ix.cst(0), ix.cst(kPoints), ix.cst(1), [&](Value point) {
      Value count = ofPoint(counts, point);
      e.loop(from, to, ix.cst(1),
             [&](Value panel) { p.emitPanel(point, ix.cst(0), count, panel); });
    });
  }

  Value productOf(Value point, Value tile) {
    Value row = ix.add(ix.mul(point, config.rows), tile);
    return ix.add(products, ix.mul(row, form.productStride(together * config.tileN)));
  }

  /// A^T m A of one vector of columns of a tile, to the epilogue.
  void transformBack(const Indices &tile, ByClass &place, Value column, Value inPanels) {
    Value half[kMaxIn][kMaxIn]; ///< [column of points][row of results]
    for (int64_t j = 0; j < kIn; ++j) {
      Evaluator::ActiveLanes all(e, e.width);
      Value m[kMaxIn];
      for (int64_t i = 0; i < kIn; ++i) {
        Value at = productOf(ix.cst(form.point(i, j)), ofPoint(place, i, j));
        m[i] = e.load(scratch, f32, Index(ix.add(at, inPanels), 1));
      }
      back(m, half[j]);
    }
    Value y = op.getResult();
    for (int64_t i = 0; i < kOut; ++i) {
      Value row[kMaxIn], results[kMaxIn];
      for (int64_t j = 0; j < kIn; ++j)
        row[j] = half[j][i];
      back(row, results);
      for (int64_t j = 0; j < kOut; ++j) {
        Value v = results[j];
        Value at[2] = {ix.add(ix.mul(tile[1].base, kOut), i),
                       ix.add(ix.mul(tile[2].base, kOut), j)};
        auto store = [&] {
          epilogue.emit({tile[0], Index(at[0]), Index(at[1]), Index(column, 1)}, v);
        };
        Value real;
        for (int64_t d = 0; d < 2; ++d) {
          DimExpr size = dimOf(y, 1 + d);
          if ((d == 0 ? i : j) == 0 || (size.constant() && *size.constant() % kOut == 0))
            continue;
          Value ok = ix.cmp(arith::CmpIPredicate::slt, at[d], ix.dim(size));
          real = real ? e.make<arith::AndIOp>(real, ok) : ok;
        }
        real ? e.ifThen(real, store) : store();
      }
    }
  }

  void results(Value from, Value to, Value first, Value count, const ByClass &firsts) {
    int64_t W = e.width, columns = layout.columns, whole = columns / W * W, rest = columns % W;
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value local) {
      Value index = ix.add(first, local);
      Indices tile = delinearize(e, Index(index), tiles);
      ByClass place = placeOf(index, firsts);
      e.loop(from, to, ix.cst(1), [&](Value panel) {
        Value left = ix.mul(panel, config.tileN), inPanels = ix.mul(ix.sub(panel, from), config.tileN);
        for (int64_t v = 0; v < config.tileN; v += W) {
          Value column = ix.add(left, v);
          auto full = [&] { transformBack(tile, place, column, ix.add(inPanels, v)); };
          if (columns % config.tileN == 0) {
            full();
            continue;
          }
          e.ifThen(ix.cmp(arith::CmpIPredicate::slt, column, ix.cst(whole)), full);
          if (rest && whole % config.tileN == v)
            e.ifThen(ix.cmp(arith::CmpIPredicate::eq, column, ix.cst(whole)), [&] {
              Evaluator::ActiveLanes some(e, rest);
              full();
            });
        }
      });
    });
  }

  /// A tile's place among those of its chunk.
  ByClass placeOf(Value index, const ByClass &firsts) {
    return byClass([&](bool rows, bool columns) {
      return ix.sub(before(index, rows, columns), firsts[rows][columns]);
    });
  }

  /// Points are skipped where that saves enough for the code of more tile sizes.
  void chooseSkips() {
    int64_t image = tiles[1].constant().value_or(0) * tiles[2].constant().value_or(0);
    std::optional<int64_t> images = tiles[0].constant();
    // Of any number of images chunks are whole ones or equal parts, or their tiles are not known.
    bool wholeImages = image && config.rows % image == 0;
    if (image == 0 || images == 0 || (!images && !wholeImages && image % config.rows != 0))
      return;
    std::array<int64_t, 2> have;
    int64_t needed = 0, pairs = kPoints * image;
    for (int64_t d = 0; d < 2; ++d)
      have[d] = *dimOf(op.getResult(), 1 + d).constant() / kOut;
    for (int64_t i = 0; i < kIn; ++i)
      for (int64_t j = 0; j < kIn; ++j)
        needed += (form.isForLast(i) ? have[0] : *tiles[1].constant()) *
                  (form.isForLast(j) ? have[1] : *tiles[2].constant());
    if (needed * 25 > pairs * 24)
      return;
    for (int64_t d = 0; d < 2; ++d)
      if (have[d] < *tiles[1 + d].constant())
        whole[d] = have[d];
    // Numbers of tiles of a point, of each chunk and class.
    auto before = [&](int64_t t, bool rows, bool columns) {
      int64_t high = *tiles[1].constant(), wide = *tiles[2].constant();
      int64_t at = t / image, row = t / wide % high, column = t % wide;
      int64_t haveRows = rows ? have[0] : high, haveColumns = columns ? have[1] : wide;
      return (at * haveRows + std::min(row, haveRows)) * haveColumns +
             (row < haveRows ? std::min(column, haveColumns) : 0);
    };
    auto add = [&](int64_t first, int64_t last) {
      for (bool rows : {false, skips(0)})
        for (bool columns : {false, skips(1)}) {
          int64_t count = before(last, rows, columns) - before(first, rows, columns);
          if (!llvm::is_contained(possible, count))
            possible.push_back(count);
        }
    };
    if (!images && wholeImages) {
      for (int64_t last = image; last <= config.rows; last += image)
        add(0, last);
      return;
    }
    int64_t all = images.value_or(1) * image;
    for (int64_t first = 0; first < all; first += config.rows)
      add(first, std::min(all, first + config.rows));
  }

  void emit() {
    scratch = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, f32), 0);
    transformed = ix.cst(0);
    products = ix.cst(kPoints * config.rows * winograd::rowStride(layout.channels));
    chooseSkips();
    DimExpr all = lathe::product(tiles), chunks = DimExpr::ceilDiv(all, DimExpr(config.rows));
    int64_t group = std::max<int64_t>(1, config.tileK);
    DimExpr groups((layout.panels() + group - 1) / group);
    Value units = ix.dim(chunks * groups);
    auto [lo, hi] = blockRange(e, units);
    Value begin = claimBegin(e, units), one = ix.cst(1);
    e.loop(lo, hi, one, [&](Value u) {
      Indices at = delinearize(e, Index(u), {chunks, groups});
      Value first = ix.mul(at[0].base, config.rows);
      Value count = ix.min(ix.sub(ix.dim(all), first), ix.cst(config.rows));
      ByClass firsts = byClass([&](bool r, bool c) { return before(first, r, c); });
      ByClass counts = placeOf(ix.add(first, count), firsts);
      auto transform = [&] {
        e.loop(ix.cst(0), count, one, [&](Value t) {
          Value index = ix.add(first, t);
          ByClass place = placeOf(index, firsts);
          transformTile(index, place);
        });
      };
      using P = arith::CmpIPredicate;
      Value isFirst = ix.cmp(P::eq, at[1].base, ix.cst(0));
      Value isNew = e.make<arith::OrIOp>(isFirst, ix.cmp(P::eq, u, begin));
      groups == DimExpr(1) ? transform() : e.ifThen(isNew, transform);
      Value from = ix.mul(at[1].base, group);
      Value end = ix.min(ix.add(from, group), ix.cst(layout.panels()));
      e.loop(from, end, ix.cst(together), [&](Value panel) {
        Value to = ix.min(ix.add(panel, together), end);
        multiply(panel, to, counts, all);
        results(panel, to, first, count, firsts);
      });
    });
  }
};

} // namespace

void scheduleWinograd(Evaluator &e, const KernelConfig &config) {
  auto op = e.anchor<ConvOp>();
  Value y = op.getResult();
  Epilogue epilogue(e, y);
  const BufferArg &weight = e.bufferArg(cast<BlockArgument>(op.getW()).getArgNumber());
  std::vector<int64_t> dims;
  for (const DimExpr &d : weight.dims)
    dims.push_back(d.constant().value_or(0));
  PanelLayout layout = *PanelLayout::of(weight.packing, dims);
  auto all = [](ArrayRef<int64_t> values, int64_t is) {
    return llvm::all_of(values, [&](int64_t v) { return v == is; });
  };
  const DimExpr &have = e.kernel.spec->scratchBytes;
  winograd::Form form{layout.tile, layout.stride};
  int64_t together = std::max<int64_t>(1, config.stages);
  DimExpr need(form.scratchBytes(config.rows, layout.channels, together * layout.panel));
  bool f32 = elementTypeOf(y).isF32() && elementTypeOf(op.getX()).isF32();
  if (!epilogue.supported() || op.getGroup() != 1 || !all(op.getStrides(), form.stride) ||
      !all(op.getDilations(), 1) || !f32 || config.tileM < 1 || layout.panel != config.tileN ||
      config.tileN % e.width || e.width < 2 || (have - need).range().lo < 0) {
    e.fail(op, "cannot run by Winograd's algorithm, for which its filters are transformed");
    return;
  }
  std::vector<DimExpr> tiles{dimOf(y, 0), DimExpr::ceilDiv(dimOf(y, 1), DimExpr(form.out)),
                             DimExpr::ceilDiv(dimOf(y, 2), DimExpr(form.out))};
  Winograd w{e, e.ix, config, epilogue, op, layout, form};
  w.f32 = e.b.getF32Type();
  w.tiles = tiles;
  w.emit();
}

} // namespace lathe::codegen
