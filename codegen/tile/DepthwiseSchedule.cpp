//===- DepthwiseSchedule.cpp - one filter a channel ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Depthwise convolution over channels-last images: up to eight neighbouring
// pixels of one output row times a vector of channels are in registers; taps
// above and below the image are left out by the loop's bounds. The pixels
// whose windows cross the left or right border are done one by one. A line is an
// image of one row; a unit is a part of it.
//
// Groups of a few channels work alike: a vector of results covers whole groups, one
// load brings their channels, and a shuffle gives each lane the channel it needs.
// Neighbouring pixels, and the taps of a row, share the shuffles.
//
//===----------------------------------------------------------------------===//

#include "Depthwise.h"
#include "Product.h"

#include "lathe/support/ConvGroups.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

constexpr int64_t kPixels = 8;
constexpr int64_t kPart = 32;       ///< results of a line that are a unit
constexpr int64_t kMaxUnrolled = 32; ///< taps of a row that are written out

using Consume = std::function<void(const Indices &, Value)>;

struct Depthwise {
  Evaluator &e;
  IndexMath &ix;
  Consume consume;
  ConvOp op;
  Type accumulator;
  int64_t rows, columns;   ///< of the window
  int64_t channels, filters; ///< of a group
  Value height, width;     ///< of the image

  Value image, y;          ///< of the output row in work
  Value top, firstTap, endTap;

  bool isLine() { return op.getStrides().size() == 1; }
  int64_t stride() { return op.getStrides().back(); }
  int64_t pad() { return op.getPads()[isLine() ? 0 : 1]; }
  int64_t dilation() { return op.getDilations().back(); }
  Indices pixel(const Index &row, const Index &column, const Index &c) {
    if (isLine())
      return {Index(image), column, c};
    return {Index(image), row, column, c};
  }
  Indices weight(const Index &c, int64_t j, Value tapRow, Value tap) {
    if (isLine())
      return {c, Index(ix.cst(j)), Index(tap)};
    return {c, Index(ix.cst(j)), Index(tapRow), Index(tap)};
  }

  /// Of each filter of a vector, channel `j` of its group.
  Value channel(Value row, Value column, const Index &c, int64_t j) {
    if (channels == 1 && filters == 1)
      return e.splat(e.eval(op.getX(), pixel(Index(row), Index(column), c)));
    Index first(ix.mul(ix.div(c.base, ix.cst(filters)), channels), 1);
    Evaluator::ActiveLanes some(e, e.active / filters * channels);
    Value all = e.splat(e.eval(op.getX(), pixel(Index(row), Index(column), first)));
    SmallVector<int64_t> lanes(e.width);
    for (int64_t l = 0; l < e.width; ++l)
      lanes[l] = l / filters * channels + j;
    return e.make<vector::ShuffleOp>(all, all, lanes);
  }

  /// Accumulators of `count` pixels from column `at` on, taps [k0, k1) of a row,
  /// those of a run-time range one after another.
  void pixels(int64_t count, Value at, const Index &c, Value k0, Value k1) {
    Value left = ix.add(ix.mul(at, stride()), -pad());
    int64_t step = stride(), spread = dilation();
    auto fma = [&](Value acc, Value row, Value tapRow, Value tap, int64_t i, int64_t j) {
      Value column = ix.add(ix.add(left, i * step), ix.mul(tap, spread));
      Value x = channel(row, column, c, j);
      Value w = e.splat(e.eval(op.getW(), weight(c, j, tapRow, tap)));
      return e.make<math::FmaOp>(x, w, acc);
    };
    SmallVector<Value> accs(count, e.splat(e.constant(accumulator, 0)));
    bool whole = !k0;
    accs = e.loop(firstTap, endTap, ix.cst(1), accs, [&](Value tapRow, ValueRange args) {
      SmallVector<Value> sums(args);
      Value row = isLine() ? top : ix.add(top, ix.mul(tapRow, op.getDilations()[0]));
      if (whole) {
        for (int64_t j = 0; j < channels; ++j)
          for (int64_t t = 0; t < columns; ++t)
            for (int64_t i = 0; i < count; ++i)
              sums[i] = fma(sums[i], row, tapRow, ix.cst(t), i, j);
        return sums;
      }
      return e.loop(k0, k1, ix.cst(1), sums, [&](Value tap, ValueRange args) {
        SmallVector<Value> next(args);
        for (int64_t j = 0; j < channels; ++j)
          for (int64_t i = 0; i < count; ++i)
            next[i] = fma(next[i], row, tapRow, tap, i, j);
        return next;
      });
    });
    for (int64_t i = 0; i < count; ++i)
      consume(pixel(Index(y), Index(ix.add(at, i)), c), accs[i]);
  }

  /// All vectors of filters.
  void overChannels(llvm::function_ref<void(const Index &)> body) {
    int64_t all = *dimOf(op.getW(), 0).constant(), W = e.width;
    if (all >= W)
      e.loop(ix.cst(0), ix.cst(all / W * W), ix.cst(W), [&](Value c) { body(Index(c, 1)); });
    if (all % W) {
      Evaluator::ActiveLanes some(e, all % W);
      body(Index(ix.cst(all / W * W), 1));
    }
  }

  /// ceil(a / b) for a >= 0, 0 below.
  Value ceilOrZero(Value a, int64_t b) { return ix.ceilDiv(ix.max(a, ix.cst(0)), b); }

  void border(Value from, Value to) {
    e.loop(from, to, ix.cst(1), [&](Value at) {
      Value left = ix.add(ix.mul(at, stride()), -pad());
      int64_t spread = dilation();
      Value k0 = ceilOrZero(ix.sub(ix.cst(0), left), spread);
      Value k1 = ix.min(ix.cst(columns), ceilOrZero(ix.sub(width, left), spread));
      overChannels([&](const Index &c) { pixels(1, at, c, k0, k1); });
    });
  }

  void row(Value imageIndex, Value rowIndex) {
    image = imageIndex;
    y = rowIndex;
    top = ix.add(ix.mul(y, op.getStrides()[0]), -op.getPads()[0]);
    int64_t spread = op.getDilations()[0];
    firstTap = ceilOrZero(ix.sub(ix.cst(0), top), spread);
    endTap = ix.min(ix.cst(rows), ceilOrZero(ix.sub(height, top), spread));
    results({}, {});
  }

  /// Results [from, to) of a line.
  void line(Value imageIndex, Value from, Value to) {
    image = imageIndex;
    y = top = firstTap = ix.cst(0);
    endTap = ix.cst(1);
    results(from, to);
  }

  /// Results [from, to) of the row in work; null: all.
  void results(Value from, Value to) {
    int64_t step = stride();
    Value out = ix.dim(dimOf(op.getResult(), isLine() ? 1 : 2));
    // Columns whose whole window is inside: [lo, hi).
    Value lo = ix.min(ix.ceilDiv(ix.cst(pad()), step), out);
    int64_t reach = (columns - 1) * dilation() - pad();
    Value hi = ix.min(ceilOrZero(ix.add(width, -reach), step), out);
    hi = ix.max(hi, lo);
    if (from) {
      out = ix.min(out, to);
      lo = ix.max(ix.min(lo, out), from);
      hi = ix.max(ix.min(hi, out), from);
    }
    border(from ? from : ix.cst(0), lo);
    Value strips = ix.div(ix.sub(hi, lo), ix.cst(kPixels));
    Value first, end; // of the taps, where they are a loop
    if (columns > kMaxUnrolled)
      first = ix.cst(0), end = ix.cst(columns);
    auto strip = [&](int64_t size, Value at) {
      overChannels([&](const Index &c) { pixels(size, at, c, first, end); });
    };
    e.loop(ix.cst(0), strips, ix.cst(1),
           [&](Value t) { strip(kPixels, ix.add(lo, ix.mul(t, kPixels))); });
    Value done = ix.add(lo, ix.mul(strips, kPixels));
    for (int64_t s : {4, 2, 1}) {
      Value end = ix.add(done, s), fits = ix.cmp(arith::CmpIPredicate::sle, end, hi);
      e.ifThen(fits, [&] { strip(s, done); });
      done = ix.select(fits, end, done);
    }
    border(hi, out);
  }
};

} // namespace

void scheduleDepthwise(Evaluator &e, const KernelConfig &config) {
  auto op = e.anchor<ConvOp>();
  Value y = op.getResult();
  Epilogue epilogue(e, y);
  Type accumulator = Evaluator::computeType(elementTypeOf(y));
  int64_t filters = *dimOf(op.getW(), 0).constant() / op.getGroup();
  int64_t channels = *dimOf(op.getW(), 1).constant();
  size_t rank = op.getStrides().size();
  bool fits = rank <= 2 && isa<FloatType>(accumulator) && e.width > 1 &&
              groupsFitLanes(channels, filters, e.width);
  if (!fits || !epilogue.supported())
    return schedulePointwise(e, config);
  IndexMath &ix = e.ix;
  Consume consume = [&](const Indices &at, Value v) { epilogue.emit(at, v); };
  if (rank == 1) {
    Depthwise d{e, ix, consume, op, accumulator, 1, *dimOf(op.getW(), 2).constant(),
                channels, filters, ix.cst(1), ix.dim(dimOf(op.getX(), 1))};
    std::vector<DimExpr> parts{dimOf(y, 0), DimExpr::ceilDiv(dimOf(y, 1), DimExpr(kPart))};
    overBlockShare(e, parts[0] * parts[1], [&](Value u) {
      Indices at = delinearize(e, Index(u), parts);
      Value from = ix.mul(at[1].base, kPart);
      d.line(at[0].base, from, ix.add(from, kPart));
    });
    return;
  }
  std::vector<DimExpr> outer{dimOf(y, 0), dimOf(y, 1)};
  overBlockShare(e, outer[0] * outer[1], [&](Value r) {
    Indices at = delinearize(e, Index(r), outer);
    depthwiseRow(e, op, at[0].base, at[1].base, consume);
  });
}

void depthwiseRow(Evaluator &e, ConvOp op, Value image, Value row, Consume consume) {
  IndexMath &ix = e.ix;
  auto ofWeight = [&](unsigned d) { return *dimOf(op.getW(), d).constant(); };
  Depthwise d{e, ix, std::move(consume), op, Evaluator::computeType(elementTypeOf(op.getResult())),
              ofWeight(2), ofWeight(3), ofWeight(1), ofWeight(0) / int64_t(op.getGroup()),
              ix.dim(dimOf(op.getX(), 1)), ix.dim(dimOf(op.getX(), 2))};
  d.row(image, row);
}

} // namespace lathe::codegen
