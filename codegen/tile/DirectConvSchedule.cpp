//===- DirectConvSchedule.cpp - windows read where they lie --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In a channels-last image each row of a window is one stretch of memory. A unit
// is a block of s rows of results times k panels of filters: the rows of the
// image that it reads are copied to scratch once, with zeros around them, so the
// product never meets a border and no tap is copied twice. An image without
// pads is read in place. Units of one block follow each other, so a worker
// copies it once for all panels that it takes. Of a group of channels the unit has
// all panels, and the copy holds its channels alone.
//
//===----------------------------------------------------------------------===//

#include "Product.h"

#include "lathe/codegen/DirectConv.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

struct DirectConv {
  Evaluator &e;
  IndexMath &ix;
  const KernelConfig &config;
  Epilogue &epilogue;
  ConvOp op;
  PanelLayout layout;
  Type accumulator, element;
  ConvGeometry g;
  bool dense; ///< the image's pixels lie together in memory
  Value scratch;
  Value firstChannel; ///< of the group in work; null: all channels

  int64_t rank() { return dimsOf(op.getX()).size(); }

  /// Index of an element of the image; a line is an image of one row.
  Indices pixel(const Index &image, Value row, const Index &column, const Index &channel) {
    if (rank() == 3)
      return {image, column, channel};
    return {image, Index(row), column, channel};
  }

  void put(Value from, const Index &at, const Index &to) {
    Value v = from ? widen(e, from, element, accumulator) : e.constant(accumulator, 0);
    e.storeAt(at.uniform() ? v : e.splat(v), accumulator, scratch, to);
  }

  void zeros(const DimExpr &count, Value to) {
    e.overRow(count, [&](const Index &c) { put({}, c, ix.add(Index(to), c)); });
  }

  void copyPixel(const Index &image, Value row, Value column, Value at) {
    Value place = ix.add(at, ix.mul(column, g.channels));
    e.overRow(DimExpr(g.channels), [&](const Index &c) {
      Index channel = firstChannel ? ix.add(Index(firstChannel), c) : c;
      put(e.eval(op.getX(), pixel(image, row, Index(column), channel)), c, ix.add(Index(place), c));
    });
  }

  /// Few channels that lie plane after plane: lanes run along the pixels, and shuffles bring the
  /// channels of a pixel together.
  void copyPlanes(const Index &image, Value row, Value count, Value at) {
    int64_t W = e.width, C = g.channels;
    Value whole = ix.mul(ix.div(count, ix.cst(W)), W);
    e.loop(ix.cst(0), whole, ix.cst(W), [&](Value column) {
      SmallVector<Value> planes;
      for (int64_t c = 0; c < C; ++c) {
        Value v = e.eval(op.getX(), pixel(image, row, Index(column, 1), Index(ix.cst(c))));
        planes.push_back(e.splat(widen(e, v, element, accumulator)));
      }
      Value place = ix.add(at, ix.mul(column, C));
      for (int64_t v = 0; v < C; ++v) {
        Value mixed = planes[0];
        for (int64_t c = 1; c < C; ++c) {
          SmallVector<int64_t> lanes(W);
          for (int64_t l = 0; l < W; ++l) {
            int64_t of = (v * W + l) % C, from = (v * W + l) / C;
            lanes[l] = of == c ? W + from : of == 0 && c == 1 ? from : l;
          }
          mixed = e.make<vector::ShuffleOp>(mixed, planes[c], lanes);
        }
        e.storeAt(mixed, accumulator, scratch, Index(ix.add(place, v * W), 1));
      }
    });
    e.loop(whole, count, ix.cst(1), [&](Value column) { copyPixel(image, row, column, at); });
  }

  /// Whether the image is turned into channels last on its way into the kernel.
  bool isTurned() {
    return llvm::any_of(e.kernel.body->getOps<TransposeOp>(), [&](TransposeOp t) {
      return dimsOf(t.getResult()) == dimsOf(op.getX());
    });
  }

  /// One padded row of the image to scratch.
  void copyRow(const Index &image, Value row, Value to) {
    DimExpr channels(g.channels), left(g.pad[1]);
    DimExpr real = DimExpr::min(g.size[1], g.paddedWidth() - left);
    auto inside = [&] {
      zeros(left * channels, to);
      Value at = ix.add(to, ix.dim(left * channels)), x = op.getX();
      if (dense && !firstChannel)
        e.overRow(real * channels, [&](const Index &c) {
          // All pixels of a row as one long one; of a single channel as pixels.
          Index none(ix.cst(0));
          Indices idx = g.channels == 1 ? pixel(image, row, c, none) : pixel(image, row, none, c);
          put(e.eval(x, idx), c, ix.add(Index(at), c));
        });
      else if (e.width > 1 && !firstChannel && g.channels >= 2 && g.channels <= 4 && isTurned())
        copyPlanes(image, row, ix.dim(real), at);
      else
        e.loop(ix.cst(0), ix.dim(real), ix.cst(1),
               [&](Value column) { copyPixel(image, row, column, at); });
      zeros((g.paddedWidth() - left - real) * channels, ix.add(at, ix.dim(real * channels)));
    };
    Value ok = ix.cmp(arith::CmpIPredicate::ult, row, ix.dim(g.size[0]));
    e.ifThen(ok, inside, [&] { zeros(g.paddedWidth() * channels, to); });
  }

  void copyBlock(const Index &image, Value firstRow, Value rows) {
    Value begin = ix.add(ix.mul(firstRow, g.stride[0]), -g.pad[0]);
    Value count = ix.add(ix.mul(ix.sub(rows, ix.cst(1)), g.stride[0]), g.reach(0));
    e.loop(ix.cst(0), count, ix.cst(1), [&](Value r) {
      copyRow(image, ix.add(begin, r), ix.mul(r, ix.dim(g.paddedWidth() * DimExpr(g.channels))));
    });
  }

  Product product(const DimExpr &width) {
    Product p{e, config, op.getResult(), accumulator};
    p.rows = dimOf(op.getResult(), 0) * g.out[0] * g.out[1];
    p.columns = DimExpr(layout.columns);
    p.depth = DimExpr(layout.depth);
    p.stretches = g.window[0];
    p.stretchStride = ix.mul(ix.dim(width), g.dilation[0] * g.channels);
    p.columnBuffer = e.buffer(cast<BlockArgument>(op.getW()).getArgNumber());
    p.columnElement = elementTypeOf(op.getW());
    p.packed = layout;
    p.columnOffset = [this](Value) { return ix.cst(0); };
    p.consume = [this](const Indices &idx, Value v) { epilogue.emit(idx, v); };
    p.announce = [this](const Indices &idx) { epilogue.prefetch(idx); };
    return p;
  }

  /// Offset of the window of the result at a row and column of lines `width` pixels long.
  Value windowAt(Value row, Value column, const DimExpr &width) {
    Value line = ix.mul(ix.mul(row, g.stride[0]), ix.dim(width));
    return ix.mul(ix.add(line, ix.mul(column, g.stride[1])), g.channels);
  }

  Indices resultAt(Value image, Value row, Value column, const Index &filter) {
    if (rank() == 3)
      return {Index(image), Index(column), filter};
    return {Index(image), Index(row), Index(column), filter};
  }

  bool inPlace() {
    Product p = product(g.size[1]);
    std::vector<DimExpr> pixels{dimOf(op.getResult(), 0), g.out[0], g.out[1]};
    int64_t last = rank() - 2;
    bool flat = epilogue.flat(0, last), every = g.everyPixel();
    p.rowBuffer = e.buffer(cast<BlockArgument>(op.getX()).getArgNumber());
    p.rowElement = element;
    p.rowOffset = [=, this](Value, Value row) {
      if (every)
        return ix.mul(row, g.channels);
      Indices at = delinearize(e, Index(row), pixels);
      Value image = ix.mul(ix.dim(g.size[0] * g.size[1] * DimExpr(g.channels)), at[0].base);
      return ix.add(image, windowAt(at[1].base, at[2].base, g.size[1]));
    };
    p.resultIndex = [=, this](Value, Value row, const Index &column) {
      std::vector<DimExpr> dims = dimsOf(op.getResult());
      dims.pop_back();
      if (!flat) {
        Indices at = delinearize(e, Index(row), pixels);
        return resultAt(at[0].base, at[1].base, at[2].base, column);
      }
      Indices idx(last + 1, Index(ix.cst(0)));
      idx[flatPlace(dims, 0, last)] = Index(row);
      idx.push_back(column);
      return idx;
    };
    return p.emit();
  }

  void inBlocks() {
    scratch = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, accumulator), 0);
    int64_t rows = config.stages, group = std::max<int64_t>(1, config.tileK);
    DimExpr images = dimOf(op.getResult(), 0), blocks = DimExpr::ceilDiv(g.out[0], DimExpr(rows));
    DimExpr groups((layout.panels() + group - 1) / group);
    auto [lo, hi] = blockRange(e, ix.dim(images * blocks * groups));
    Value begin = lo, one = ix.cst(1);
    e.loop(lo, hi, one, [&](Value u) {
      Indices at = delinearize(e, Index(u), {images, blocks, groups});
      Value image = at[0].base, firstRow = ix.mul(at[1].base, rows);
      Value count = ix.min(ix.sub(ix.dim(g.out[0]), firstRow), ix.cst(rows));
      using P = arith::CmpIPredicate;
      auto copy = [&] { copyBlock(at[0], firstRow, count); };
      Value first = ix.cmp(P::eq, at[2].base, ix.cst(0));
      Value isNew = e.make<arith::OrIOp>(first, ix.cmp(P::eq, u, begin));
      if (op.getGroup() != 1)
        firstChannel = ix.mul(at[2].base, g.channels);
      groups == DimExpr(1) || firstChannel ? copy() : e.ifThen(isNew, copy);

      Product p = product(g.paddedWidth());
      p.rowBuffer = scratch;
      p.rowElement = accumulator;
      auto split = [&](Value row) { return ix.divRem(Index(row), g.out[1]); };
      p.rowOffset = [&](Value, Value row) {
        auto [r, c] = split(row);
        return windowAt(r.base, c.base, g.paddedWidth());
      };
      p.resultIndex = [&](Value, Value row, const Index &column) {
        auto [r, c] = split(row);
        return resultAt(image, ix.add(firstRow, r.base), c.base, column);
      };
      auto height = g.out[0].constant(), width = g.out[1].constant();
      if (height && width)
        p.counts = {std::min(rows, *height) * *width, *height % rows * *width};
      Value pixels = ix.mul(count, ix.dim(g.out[1])), from = ix.mul(at[2].base, group);
      e.loop(from, ix.min(ix.add(from, group), ix.cst(layout.panels())), one,
             [&](Value panel) { p.emitPanel(ix.cst(0), ix.cst(0), pixels, panel); });
    });
  }
};

} // namespace

bool scheduleDirectConv(Evaluator &e, const KernelConfig &config) {
  ConvOp op = *e.kernel.body->getOps<ConvOp>().begin();
  Value y = op.getResult(), x = op.getX();
  Epilogue epilogue(e, y);
  const BufferArg &weight = e.bufferArg(cast<BlockArgument>(op.getW()).getArgNumber());
  std::vector<int64_t> dims;
  for (const DimExpr &d : weight.dims)
    dims.push_back(d.constant().value_or(0));
  PanelLayout layout = *PanelLayout::of(weight.packing, dims);
  std::vector<DimExpr> xd = dimsOf(x), yd = dimsOf(y);
  std::optional<ConvGeometry> g =
      ConvGeometry::of({xd.begin() + 1, xd.end() - 1}, {yd.begin() + 1, yd.end() - 1},
                       {dims.begin() + 2, dims.end()}, op.getStrides(), op.getPads(),
                       op.getDilations(), layout.channels);
  int64_t panels = layout.panels() / op.getGroup(); // of a group
  bool inGroups = layout.order == PanelLayout::Order::Groups;
  if (!g || !epilogue.supported() ||
      (inGroups && (layout.channels != layout.groupChannels || config.stages == 0 ||
                    config.tileK != panels || layout.panel != config.tileN)))
    return false;
  Type accumulator = Evaluator::computeType(elementTypeOf(y)), element = elementTypeOf(x);
  auto arg = dyn_cast<BlockArgument>(x);
  const BufferArg *image = arg ? &e.bufferArg(arg.getArgNumber()) : nullptr;
  bool dense = image && image->physical == image->dims;
  DirectConv direct{e, e.ix, config, epilogue, op, layout, accumulator, element, *g, dense, {}, {}};
  if (config.stages == 0)
    return dense && element == accumulator && g->unpadded() && direct.inPlace();
  DimExpr need = g->scratchElements(config.stages) *
                 DimExpr(accumulator.getIntOrFloatBitWidth() / 8);
  const DimExpr &have = e.kernel.spec->scratchBytes;
  if (!(have == need) && (have - need).range().lo < 0)
    return false;
  direct.inBlocks();
  return true;
}

} // namespace lathe::codegen
