//===- ConvSchedule.cpp - convolutions as register tiles ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A convolution over channels-last images is a product of pixels and filters.
// A window of one pixel is read where it lies; other windows are copied to
// scratch, tap after tap, with zeros for what is outside the image (im2col): one
// copy serves all filters of the unit, and the product needs no border cases.
//
//===----------------------------------------------------------------------===//

#include "Depthwise.h"
#include "Product.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

/// Writes the window of output pixel `at` (image, position..) to scratch.
struct WindowCopy {
  Evaluator &e;
  ConvOp op;
  Type accumulator;
  Value scratch;
  bool together;       ///< what is copied of neighbouring pixels lies together in memory
  DimExpr channels;    ///< to copy of each pixel,
  Value firstChannel;  ///< from this one on; null: from 0

  void put(Value from, const Indices &idx, const Index &c, Value to) {
    Value v = from ? e.eval(from, idx) : e.constant(accumulator, 0);
    if (from)
      v = widen(e, v, elementTypeOf(from), accumulator);
    e.storeAt(c.uniform() ? v : e.splat(v), accumulator, scratch, e.ix.add(Index(to), c));
  }

  void run(const Indices &at, Value to) {
    IndexMath &ix = e.ix;
    using P = arith::CmpIPredicate;
    Value x = op.getX();
    int64_t spatial = op.getStrides().size(), inner = spatial - 1;
    std::vector<DimExpr> window = dimsOf(op.getW());
    window.erase(window.begin(), window.begin() + 2);
    int64_t taps = *window[inner].constant();
    std::vector<DimExpr> outer(window.begin(), window.end() - 1);
    DimExpr line = channels * DimExpr(taps);
    auto position = [&](int64_t d, Value tap) {
      Value p = ix.add(ix.mul(at[1 + d].base, op.getStrides()[d]), -op.getPads()[d]);
      return ix.add(p, ix.mul(tap, op.getDilations()[d]));
    };
    auto inside = [&](int64_t d, Value p) { return ix.cmp(P::ult, p, ix.dim(dimOf(x, 1 + d))); };

    e.loop(ix.cst(0), ix.dim(lathe::product(outer)), ix.cst(1), [&](Value t) {
      Indices tap = delinearize(e, Index(t), outer), idx(spatial + 2);
      idx[0] = at[0];
      Value rows;
      for (int64_t d = 0; d < inner; ++d) {
        Value p = position(d, tap[d].base);
        idx[1 + d] = Index(p);
        Value ok = inside(d, p);
        rows = rows ? e.make<arith::AndIOp>(rows, ok) : ok;
      }
      if (!rows)
        rows = e.constantInt(e.b.getI1Type(), 1);
      Value base = ix.add(to, ix.mul(t, ix.dim(line)));
      Value first = position(inner, ix.cst(0));
      Value last = position(inner, ix.cst(taps - 1));
      auto zeros = [&] {
        e.overRow(line, [&](const Index &c) { put({}, idx, c, base); });
      };
      auto tapByTap = [&] {
        for (int64_t k = 0; k < taps; ++k) {
          Value p = position(inner, ix.cst(k)), place = ix.add(base, ix.mul(ix.dim(channels), k));
          idx[1 + inner] = Index(p);
          auto copy = [&](bool real) {
            e.overRow(channels, [&](const Index &c) {
              idx[spatial + 1] = firstChannel ? e.ix.add(Index(firstChannel), c) : c;
              put(real ? x : Value(), idx, c, place);
            });
          };
          e.ifThen(inside(inner, p), [&] { copy(true); }, [&] { copy(false); });
        }
      };
      auto wholeLine = [&] {
        // Lanes run along the pixels where a pixel has one channel only.
        bool single = channels == DimExpr(1);
        idx[1 + inner] = Index(first);
        idx[spatial + 1] = Index(ix.cst(0));
        e.overRow(line, [&](const Index &c) {
          if (single)
            idx[1 + inner] = ix.add(Index(first), c);
          else
            idx[spatial + 1] = c;
          put(x, idx, c, base);
        });
      };
      e.ifThen(
          rows,
          [&] {
            if (!together || op.getDilations()[inner] != 1)
              return tapByTap();
            Value all = e.make<arith::AndIOp>(inside(inner, first), inside(inner, last));
            e.ifThen(all, wholeLine, tapByTap);
          },
          zeros);
    });
  }
};

bool isOnePixel(ConvOp op) {
  auto all = [](ArrayRef<int64_t> values, int64_t is) {
    return llvm::all_of(values, [&](int64_t v) { return v == is; });
  };
  const std::vector<DimExpr> filters = dimsOf(op.getW());
  for (const DimExpr &d : ArrayRef<DimExpr>(filters).drop_front(2))
    if (!(d == DimExpr(1)))
      return false;
  return all(op.getStrides(), 1) && all(op.getPads(), 0);
}

/// Groups of channels: a panel's filters belong to one group or to whole groups, whose channels
/// are its depth, with zeros for those of other groups. A product for each panel.
void scheduleGroups(Evaluator &e, const KernelConfig &config, ConvOp op, const PanelLayout &layout,
                    Epilogue &epilogue) {
  IndexMath &ix = e.ix;
  Value y = op.getResult();
  std::vector<DimExpr> yd = dimsOf(y);
  std::vector<DimExpr> pixels(yd.begin(), yd.end() - 1);
  unsigned weight = cast<BlockArgument>(op.getW()).getArgNumber();
  Product p{e, config, y, Evaluator::computeType(elementTypeOf(y))};
  p.batches = DimExpr(layout.panels());
  p.rows = lathe::product(pixels);
  p.columns = DimExpr(layout.panel);
  p.depth = DimExpr(layout.depth);
  p.columnBuffer = e.buffer(weight);
  p.columnElement = elementTypeOf(op.getW());
  p.packed = layout;
  p.packed->columns = layout.panel;
  p.columnOffset = [&](Value panel) { return ix.mul(panel, layout.depth * layout.panel); };
  p.resultIndex = [&](Value panel, Value row, const Index &column) {
    Indices idx = delinearize(e, Index(row), pixels);
    idx.push_back(ix.add(Index(ix.mul(panel, layout.panel)), column));
    return idx;
  };
  p.fillRow = [&](Value panel, Value row, Value scratch, Value at) {
    Value group = ix.div(ix.mul(panel, layout.panel), ix.cst(layout.columns / layout.groups));
    Value first = ix.mul(group, layout.groupChannels);
    WindowCopy{e, op, p.accumulator, scratch, false, DimExpr(layout.channels), first}.run(
        delinearize(e, Index(row), pixels), at);
  };
  p.consume = [&](const Indices &idx, Value v) { epilogue.emit(idx, v); };
  if (layout.panel != config.tileN || !p.emit())
    e.fail(op, "cannot run in groups, for which its filters are arranged");
}

} // namespace

void scheduleConv(Evaluator &e, const KernelConfig &config) {
  if (scheduleDepthwiseProduct(e, config))
    return;
  auto op = e.anchor<ConvOp>();
  if (!op)
    return;
  auto wArg = dyn_cast<BlockArgument>(op.getW());
  if (!wArg || op.getLayout() != ConvLayout::ChannelsLast)
    return schedulePointwise(e, config);
  Value y = op.getResult(), x = op.getX();
  Epilogue epilogue(e, y);
  if (!epilogue.supported())
    return schedulePointwise(e, config);
  const BufferArg &weight = e.bufferArg(wArg.getArgNumber());
  std::vector<int64_t> dims;
  for (const DimExpr &d : weight.dims)
    dims.push_back(d.constant().value_or(0));
  Result<PanelLayout> layout = PanelLayout::of(weight.packing, dims);
  if (!layout)
    return schedulePointwise(e, config);
  if (layout->order == PanelLayout::Order::Taps)
    return scheduleDepthwise(e, config);
  if (layout->order == PanelLayout::Order::Winograd)
    return scheduleWinograd(e, config);
  if (layout->order == PanelLayout::Order::Groups) {
    if (config.stages == 0 || !scheduleDirectConv(e, config))
      scheduleGroups(e, config, op, *layout, epilogue);
    return;
  }
  if (op.getGroup() != 1 || layout->panel != config.tileN)
    return schedulePointwise(e, config);
  if (scheduleDirectConv(e, config))
    return;
  if (layout->interleave > 1) {
    e.fail(op, "cannot be a product of integers, for which its filters are packed");
    return;
  }
  if (layout->order == PanelLayout::Order::Parts) {
    e.fail(op, "cannot run in blocks, for which its filters are arranged");
    return;
  }

  IndexMath &ix = e.ix;
  std::vector<DimExpr> yd = dimsOf(y);
  int64_t rank = yd.size();
  std::vector<DimExpr> pixels(yd.begin(), yd.end() - 1);
  Product p{e, config, y, Evaluator::computeType(elementTypeOf(y))};
  p.rows = lathe::product(pixels);
  p.columns = yd.back();
  p.depth = DimExpr(layout->depth);
  p.columnBuffer = e.buffer(wArg.getArgNumber());
  p.columnElement = elementTypeOf(op.getW());
  p.packed = *layout;
  p.columnOffset = [&ix](Value) { return ix.cst(0); };
  bool flat = epilogue.flat(0, rank - 2);
  p.resultIndex = [&e, &ix, flat, pixels, rank](Value, Value row, const Index &column) {
    Indices idx(rank - 1, Index(ix.cst(0)));
    if (flat)
      idx[flatPlace(pixels, 0, rank - 2)] = Index(row);
    else
      idx = delinearize(e, Index(row), pixels);
    idx.push_back(column);
    return idx;
  };

  auto xArg = dyn_cast<BlockArgument>(x);
  bool dense = xArg && e.bufferArg(xArg.getArgNumber()).physical == e.bufferArg(xArg.getArgNumber()).dims;
  p.rowElement = elementTypeOf(x);
  auto f = dyn_cast<FloatType>(p.rowElement);
  if (dense && isOnePixel(op) && (!f || f.getWidth() >= 32)) {
    p.rowBuffer = e.buffer(xArg.getArgNumber());
    p.rowOffset = [&ix, depth = p.depth](Value, Value row) { return ix.mul(row, ix.dim(depth)); };
  } else {
    DimExpr channels = dimsOf(x).back();
    p.fillRow = [&e, op, pixels, dense, channels, &p](Value, Value row, Value scratch, Value at) {
      WindowCopy{e, op, p.accumulator, scratch, dense, channels, {}}.run(
          delinearize(e, Index(row), pixels), at);
    };
  }
  p.consume = [&](const Indices &idx, Value v) { epilogue.emit(idx, v); };
  if (!p.emit())
    schedulePointwise(e, config);
}

} // namespace lathe::codegen
