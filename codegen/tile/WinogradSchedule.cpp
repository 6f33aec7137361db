//===- WinogradSchedule.cpp - 3 x 3 convolutions in fewer products -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A unit is a chunk of r tiles of 2 x 2 or 4 x 4 results times k panels of filters. The
// tiles' inputs are transformed into scratch, [point][tile][channel]; for each
// panel every point is a product of the skeleton, and the results of all points are
// transformed back on their way to the epilogue. Units of one chunk follow each
// other, so a worker transforms a chunk once for all panels that it takes.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

#include "lathe/codegen/Winograd.h"

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
  Type f32;
  std::vector<DimExpr> tiles; ///< images, rows and columns of tiles
  Value scratch, transformed, products; ///< the last two: offsets in scratch

  Value plus(Value x, Value y) { return e.make<arith::AddFOp>(x, y); }
  Value minus(Value x, Value y) { return e.make<arith::SubFOp>(x, y); }

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
  void transformChannels(const Index &c, Value tile,
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
        e.storeAt(d[i][j], f32, scratch, ix.add(Index(rowOf(ix.cst(i * kIn + j), tile)), c));
    }
  }

  void transformTile(Value index, Value tile) {
    Indices at = delinearize(e, Index(index), tiles);
    DimExpr channels(layout.channels);
    Value x = op.getX();
    using P = arith::CmpIPredicate;
    // First row and column of the window, and whether all of it is inside.
    Value begin[2], size[2], inside;
    for (int64_t d = 0; d < 2; ++d) {
      begin[d] = ix.add(ix.mul(at[1 + d].base, kOut), -op.getPads()[d]);
      size[d] = ix.dim(dimOf(x, 1 + d));
      Value low = ix.cmp(P::sge, begin[d], ix.cst(0));
      Value high = ix.cmp(P::sle, ix.add(begin[d], kIn), size[d]);
      Value both = e.make<arith::AndIOp>(low, high);
      inside = inside ? e.make<arith::AndIOp>(inside, both) : both;
    }
    auto whole = [&] {
      e.overRow(channels, [&](const Index &c) {
        transformChannels(c, tile, [&](int64_t i, int64_t j) {
          return e.eval(x, {at[0], Index(ix.add(begin[0], i)), Index(ix.add(begin[1], j)), c});
        });
      });
    };
    // At a border pixels are read where the image is and taken as zero outside.
    auto border = [&] {
      Value place[2][kMaxIn], ok[2][kMaxIn];
      for (int64_t d = 0; d < 2; ++d)
        for (int64_t i = 0; i < kIn; ++i) {
          Value p = ix.add(begin[d], i);
          ok[d][i] = ix.cmp(P::ult, p, size[d]);
          place[d][i] = ix.max(ix.min(p, ix.sub(size[d], ix.cst(1))), ix.cst(0));
        }
      e.overRow(channels, [&](const Index &c) {
        transformChannels(c, tile, [&](int64_t i, int64_t j) {
          Value v = e.eval(x, {at[0], Index(place[0][i]), Index(place[1][j]), c});
          Value zero = e.constant(f32, 0);
          Value real = e.make<arith::AndIOp>(ok[0][i], ok[1][j]);
          return e.make<arith::SelectOp>(real, v, e.isVector(v) ? e.splat(zero) : zero);
        });
      });
    };
    e.ifThen(inside, whole, border);
  }

  /// All products of a panel, into scratch.
  void multiply(Value panel, Value count, const DimExpr &all) {
    Product p{e, config, op.getResult(), f32};
    p.rows = all;
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
                    ix.mul(ix.mul(point, channels), width));
    };
    p.resultIndex = [](Value point, Value row, const Index &column) {
      return Indices{Index(point), Index(row), column};
    };
    Value left = ix.mul(panel, config.tileN);
    p.consume = [&](const Indices &idx, Value v) {
      Evaluator::ActiveLanes all(e, e.width);
      Value row = ix.add(ix.mul(idx[0].base, config.rows), idx[1].base);
      Value at = ix.add(ix.add(products, ix.mul(row, config.tileN)), ix.sub(idx[2].base, left));
      e.storeAt(v, f32, scratch, Index(at, 1));
    };
    e.loop(ix.cst(0), ix.cst(kPoints), ix.cst(1),
           [&](Value point) { p.emitPanel(point, ix.cst(0), count, panel); });
  }

  /// A^T m A of one vector of columns of a tile, to the epilogue.
  void transformBack(const Indices &tile, Value local, Value column, Value inPanel) {
    Value half[kMaxIn][kMaxIn]; ///< [column of points][row of results]
    for (int64_t j = 0; j < kIn; ++j) {
      Evaluator::ActiveLanes all(e, e.width);
      Value m[kMaxIn];
      for (int64_t i = 0; i < kIn; ++i) {
        Value row = ix.add(ix.cst((i * kIn + j) * config.rows), local);
        Value at = ix.add(ix.add(products, ix.mul(row, config.tileN)), inPanel);
        m[i] = e.load(scratch, f32, Index(at, 1));
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

  void results(Value panel, Value first, Value count) {
    int64_t W = e.width, columns = layout.columns, whole = columns / W * W, rest = columns % W;
    Value left = ix.mul(panel, config.tileN);
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value local) {
      Indices tile = delinearize(e, Index(ix.add(first, local)), tiles);
      for (int64_t v = 0; v < config.tileN; v += W) {
        Value column = ix.add(left, v);
        auto full = [&] { transformBack(tile, local, column, ix.cst(v)); };
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
  }

  void emit() {
    scratch = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, f32), 0);
    transformed = ix.cst(0);
    products = ix.cst(kPoints * config.rows * winograd::rowStride(layout.channels));
    DimExpr all = lathe::product(tiles), chunks = DimExpr::ceilDiv(all, DimExpr(config.rows));
    int64_t group = std::max<int64_t>(1, config.tileK);
    DimExpr groups((layout.panels() + group - 1) / group);
    auto [lo, hi] = blockRange(e, ix.dim(chunks * groups));
    Value begin = lo, one = ix.cst(1);
    e.loop(lo, hi, one, [&](Value u) {
      Indices at = delinearize(e, Index(u), {chunks, groups});
      Value first = ix.mul(at[0].base, config.rows);
      Value count = ix.min(ix.sub(ix.dim(all), first), ix.cst(config.rows));
      auto transform = [&] {
        e.loop(ix.cst(0), count, one, [&](Value t) { transformTile(ix.add(first, t), t); });
      };
      using P = arith::CmpIPredicate;
      Value isFirst = ix.cmp(P::eq, at[1].base, ix.cst(0));
      Value isNew = e.make<arith::OrIOp>(isFirst, ix.cmp(P::eq, u, begin));
      groups == DimExpr(1) ? transform() : e.ifThen(isNew, transform);
      Value from = ix.mul(at[1].base, group);
      e.loop(from, ix.min(ix.add(from, group), ix.cst(layout.panels())), one, [&](Value panel) {
        multiply(panel, count, all);
        results(panel, first, count);
      });
    });
  }
};

} // namespace

void scheduleWinograd(Evaluator &e, const KernelConfig &config) {
  ConvOp op = *e.kernel.body->getOps<ConvOp>().begin();
  Value y = op.getResult();
  Epilogue epilogue(e, y);
  const BufferArg &weight = e.bufferArg(cast<BlockArgument>(op.getW()).getArgNumber());
  std::vector<int64_t> dims;
  for (const DimExpr &d : weight.dims)
    dims.push_back(d.constant().value_or(0));
  PanelLayout layout = *PanelLayout::of(weight.packing, dims);
  auto ones = [](ArrayRef<int64_t> values) {
    return llvm::all_of(values, [](int64_t v) { return v == 1; });
  };
  const DimExpr &have = e.kernel.spec->scratchBytes;
  winograd::Form form{layout.tile};
  DimExpr need(form.scratchBytes(config.rows, layout.channels, layout.panel));
  bool f32 = elementTypeOf(y).isF32() && elementTypeOf(op.getX()).isF32();
  if (!epilogue.supported() || op.getGroup() != 1 || !ones(op.getStrides()) ||
      !ones(op.getDilations()) || !f32 || config.tileM < 1 || layout.panel != config.tileN ||
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
