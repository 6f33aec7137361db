//===- DirectConvSchedule.cpp - windows read where they lie --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In a channels-last image each row of a window is one stretch of memory. A unit
// is a block of s rows of results times k panels of filters: the rows of the
// image that it reads are copied to scratch once, with zeros around them, so that
// the product needs no border cases and no tap is copied twice. An image without
// pads is read in place. Units of one block are consecutive, so that a worker
// copies the rows once for all panels that it takes. With groups of channels a unit
// has all panels of its group, and the copy holds the group's channels only. In a
// volume a block belongs to one layer of results; the layers that its windows cover
// are copied one after another.
//
// Filters in parts (Packing.h), which the sub-pixels of a transposed convolution
// have, are multiplied with the taps of their box only: each size of boxes is
// compiled separately.
//
//===----------------------------------------------------------------------===//

#include "CodeGroups.h"
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
  std::optional<CodeGroups> codes; ///< of bytes; g.channels and scratch memory then count groups
  Value data;         ///< what is read: the operand, or the bytes that it is made of
  int64_t pixelCodes; ///< channels of `data`
  Value scratch;
  Value firstChannel; ///< of the group in work; null: all channels
  Value layer;        ///< of a volume, in work

  int64_t rank() { return dimsOf(op.getX()).size(); }
  bool isVolume() { return rank() == 5; }

  /// Index of an element of the image; a line is an image of one row.
  Indices pixel(const Index &image, Value row, const Index &column, const Index &channel) {
    if (rank() == 3)
      return {image, column, channel};
    if (isVolume())
      return {image, Index(layer), Index(row), column, channel};
    return {image, Index(row), column, channel};
  }

  void put(Value from, const Index &at, const Index &to) {
    Value v = from ? widen(e, from, element, accumulator) : e.constant(accumulator, 0);
    e.storeAt(at.uniform() ? v : e.splat(v), accumulator, scratch, to);
  }

  void zeros(const DimExpr &count, Value to) {
    if (!codes)
      return e.overRow(count, [&](const Index &c) { put({}, c, ix.add(Index(to), c)); });
    Value outside = codes->outside();
    e.overRow(count, [&](const Index &c) {
      e.storeAt(c.uniform() ? outside : e.splat(outside), accumulator, scratch, ix.add(Index(to), c));
    });
  }

  /// The groups of a pixel, or of a row of pixels that lie together.
  void copyCodes(const Index &image, Value row, const DimExpr &pixels, Value at) {
    Value first = ix.cst(0);
    auto stored = dyn_cast<BlockArgument>(data);
    auto offset = [&](const Index &column) {
      return e.offset(e.bufferArg(stored.getArgNumber()).physical, pixel(image, row, column, Index(first))).base;
    };
    if (dense && pixelCodes % codes->each == 0)
      return codes->copy(pixels * DimExpr(g.channels), e.buffer(stored.getArgNumber()), offset(Index(first)),
                         scratch, at);
    e.loop(first, ix.dim(pixels), ix.cst(1), [&](Value column) {
      auto code = [&](const Index &c) { return e.eval(data, pixel(image, row, Index(column), c)); };
      codes->write(pixelCodes, dense ? e.buffer(stored.getArgNumber()) : Value(),
                   dense ? offset(Index(column)) : Value(), code, scratch, ix.add(at, ix.mul(column, g.channels)));
    });
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

  /// Whether the image is transposed to channels last on its way into the kernel.
  bool isTransposed() {
    return llvm::any_of(e.kernel.body->getOps<TransposeOp>(), [&](TransposeOp t) {
      return dimsOf(t.getResult()) == dimsOf(op.getX());
    });
  }

  /// One padded row of the image to scratch.
  void copyRow(const Index &image, Value row, Value to) {
    // Windows may end before the image begins: then a row has nothing but zeros, fewer than there are pads.
    DimExpr channels(g.channels), left = DimExpr::min(DimExpr(g.pad[1]), g.paddedWidth());
    DimExpr real = DimExpr::min(g.size[1], g.paddedWidth() - left);
    auto inside = [&] {
      zeros(left * channels, to);
      Value at = ix.add(to, ix.dim(left * channels)), x = op.getX();
      if (codes)
        copyCodes(image, row, real, at);
      else if (dense && !firstChannel)
        e.overRow(real * channels, [&](const Index &c) {
          // All pixels of a row as one long one; of a single channel as pixels.
          Index none(ix.cst(0));
          Indices idx = g.channels == 1 ? pixel(image, row, c, none) : pixel(image, row, none, c);
          put(e.eval(x, idx), c, ix.add(Index(at), c));
        });
      else if (e.width > 1 && !firstChannel && g.channels >= 2 && g.channels <= 4 && isTransposed())
        copyPlanes(image, row, ix.dim(real), at);
      else
        e.loop(ix.cst(0), ix.dim(real), ix.cst(1),
               [&](Value column) { copyPixel(image, row, column, at); });
      zeros((g.paddedWidth() - left - real) * channels, ix.add(at, ix.dim(real * channels)));
    };
    Value ok = ix.cmp(arith::CmpIPredicate::ult, row, ix.dim(g.size[0]));
    if (isVolume())
      ok = e.make<arith::AndIOp>(
          ok, ix.cmp(arith::CmpIPredicate::ult, layer, ix.dim(g.layer.size)));
    e.ifThen(ok, inside, [&] { zeros(g.paddedWidth() * channels, to); });
  }

  void copyBlock(const Index &image, Value outLayer, Value firstRow, Value rows) {
    Value begin = ix.add(ix.mul(firstRow, g.stride[0]), -g.pad[0]);
    Value count = ix.add(ix.mul(ix.sub(rows, ix.cst(1)), g.stride[0]), g.reach(0));
    DimExpr line = g.paddedWidth() * DimExpr(g.channels);
    auto copyLayer = [&](Value to) {
      e.loop(ix.cst(0), count, ix.cst(1), [&](Value r) {
        copyRow(image, ix.add(begin, r), ix.add(ix.mul(r, ix.dim(line)), to));
      });
    };
    if (!isVolume())
      return copyLayer(ix.cst(0));
    Value first = ix.add(ix.mul(outLayer, g.layer.stride), -g.layer.pad);
    e.loop(ix.cst(0), ix.cst(g.layer.window), ix.cst(1), [&](Value l) {
      layer = ix.add(first, ix.mul(l, g.layer.dilation));
      copyLayer(ix.mul(l, layerPitch()));
    });
  }

  /// Elements of a layer of a block.
  Value layerPitch() {
    return ix.dim(g.paddedWidth() * DimExpr(g.rowsOfLayer(config.stages) * g.channels));
  }

  /// What a window has by dimension: layers, rows, columns.
  using Window = std::array<int64_t, 3>;
  Window wholeWindow() { return {g.layer.window, g.window[0], g.window[1]}; }

  /// The product with the taps of a window (or of a box in it), over lines `width` pixels long and
  /// layers `pitch` elements apart.
  Product product(const DimExpr &width, const Window &window, Value pitch) {
    Product p{e, config, op.getResult(), accumulator};
    p.rows = dimOf(op.getResult(), 0) * g.layer.out * g.out[0] * g.out[1];
    p.columns = DimExpr(layout.columns);
    p.depth = DimExpr(window[0] * window[1] * window[2] * g.channels);
    p.stretches = window[0] * window[1];
    Value line = ix.mul(ix.dim(width), g.dilation[0] * g.channels);
    p.stretchAt = [this, line, pitch, window](Value s) {
      if (window[0] == 1)
        return ix.mul(s, line);
      Value inner = ix.cst(window[1]);
      return ix.add(ix.mul(ix.div(s, inner), pitch), ix.mul(ix.rem(s, inner), line));
    };
    p.columnBuffer = e.buffer(cast<BlockArgument>(op.getW()).getArgNumber());
    p.columnElement = elementTypeOf(op.getW());
    p.packed = layout;
    p.columnOffset = [this](Value) { return ix.cst(0); };
    if (codes) {
      p.interleave = codes->each;
      p.ofColumnSums = codes->ofColumnSums();
    }
    p.consume = [this](const Indices &idx, Value v) { epilogue.emit(idx, v); };
    p.announce = [this](const Indices &idx) { epilogue.prefetch(idx); };
    return p;
  }

  /// Offset of the window of the result at a row and column of lines `width` pixels long.
  Value windowAt(Value row, Value column, const DimExpr &width) {
    Value line = ix.mul(ix.mul(row, g.stride[0]), ix.dim(width));
    return ix.mul(ix.add(line, ix.mul(column, g.stride[1])), g.channels);
  }

  Indices resultAt(Value image, Value outLayer, Value row, Value column, const Index &filter) {
    if (rank() == 3)
      return {Index(image), Index(column), filter};
    if (isVolume())
      return {Index(image), Index(outLayer), Index(row), Index(column), filter};
    return {Index(image), Index(row), Index(column), filter};
  }

  bool inPlace() {
    DimExpr layerSize = g.size[0] * g.size[1] * DimExpr(g.channels);
    Value pitch = isVolume() ? ix.mul(ix.dim(layerSize), g.layer.dilation) : Value();
    Product p = product(g.size[1], wholeWindow(), pitch);
    std::vector<DimExpr> pixels{dimOf(op.getResult(), 0), g.out[0], g.out[1]};
    if (isVolume())
      pixels.insert(pixels.begin() + 1, g.layer.out);
    int64_t last = rank() - 2;
    bool flat = epilogue.flat(0, last), every = g.everyPixel();
    p.rowBuffer = e.buffer(cast<BlockArgument>(data).getArgNumber());
    p.rowElement = element;
    p.rowsAreBytes = codes.has_value();
    p.rowOffset = [=, this](Value, Value row) {
      if (every)
        return ix.mul(row, g.channels);
      Indices at = delinearize(e, Index(row), pixels);
      Value image = ix.mul(ix.dim(g.layer.size * layerSize), at[0].base);
      if (isVolume())
        image = ix.add(image, ix.mul(ix.mul(at[1].base, g.layer.stride), ix.dim(layerSize)));
      size_t d = pixels.size() - 2;
      return ix.add(image, windowAt(at[d].base, at[d + 1].base, g.size[1]));
    };
    p.resultIndex = [=, this](Value, Value row, const Index &column) {
      std::vector<DimExpr> dims = dimsOf(op.getResult());
      dims.pop_back();
      if (!flat) {
        Indices at = delinearize(e, Index(row), pixels);
        size_t d = pixels.size() - 2;
        return resultAt(at[0].base, at[1].base, at[d].base, at[d + 1].base, column);
      }
      Indices idx(last + 1, Index(ix.cst(0)));
      idx[flatPlace(dims, 0, last)] = Index(row);
      idx.push_back(column);
      return idx;
    };
    return p.emit();
  }

  /// Blocks of rows of results, of each layer of each image.
  void inBlocks() {
    scratch = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, accumulator), 0);
    int64_t rows = config.stages, group = std::max<int64_t>(1, config.tileK);
    DimExpr images = dimOf(op.getResult(), 0), blocks = DimExpr::ceilDiv(g.out[0], DimExpr(rows));
    DimExpr groups((layout.panels() + group - 1) / group);
    std::vector<DimExpr> units{images, blocks, groups};
    if (isVolume())
      units.insert(units.begin() + 1, g.layer.out);
    auto [lo, hi] = blockRange(e, ix.dim(lathe::product(units)));
    Value begin = claimBegin(e, ix.dim(lathe::product(units))), one = ix.cst(1);
    e.loop(lo, hi, one, [&](Value u) {
      Indices at = delinearize(e, Index(u), units);
      size_t d = units.size() - 2; // of the block
      Value outLayer = at[1].base, firstRow = ix.mul(at[d].base, rows), part = at[d + 1].base;
      Value count = ix.min(ix.sub(ix.dim(g.out[0]), firstRow), ix.cst(rows));
      using P = arith::CmpIPredicate;
      auto copy = [&] { copyBlock(at[0], outLayer, firstRow, count); };
      Value first = ix.cmp(P::eq, part, ix.cst(0));
      Value isNew = e.make<arith::OrIOp>(first, ix.cmp(P::eq, u, begin));
      if (op.getGroup() != 1)
        firstChannel = ix.mul(part, g.channels);
      groups == DimExpr(1) || firstChannel ? copy() : e.ifThen(isNew, copy);

      auto split = [&](Value row) { return ix.divRem(Index(row), g.out[1]); };
      auto blockProduct = [&](const Window &window, Value from) {
        Product p = product(g.paddedWidth(), window, isVolume() ? layerPitch() : Value());
        p.rowBuffer = scratch;
        p.rowElement = accumulator;
        p.rowOffset = [&, from](Value, Value row) {
          auto [r, c] = split(row);
          Value window = windowAt(r.base, c.base, g.paddedWidth());
          return from ? ix.add(window, from) : window;
        };
        p.resultIndex = [&](Value, Value row, const Index &column) {
          auto [r, c] = split(row);
          return resultAt(at[0].base, outLayer, ix.add(firstRow, r.base), c.base, column);
        };
        auto height = g.out[0].constant(), width = g.out[1].constant();
        if (height && width)
          p.counts = {std::min(rows, *height) * *width, *height % rows * *width};
        return p;
      };
      Value pixels = ix.mul(count, ix.dim(g.out[1])), from = ix.mul(part, group);
      Value end = ix.min(ix.add(from, group), ix.cst(layout.panels()));
      if (layout.order == PanelLayout::Order::Parts)
        return e.loop(from, end, one, [&](Value panel) { partPanel(panel, pixels, blockProduct); });
      Product p = blockProduct(wholeWindow(), {});
      e.loop(from, end, one,
             [&](Value panel) { p.emitPanel(ix.cst(0), ix.cst(0), pixels, panel); });
    });
  }

  /// Neighbouring panels with one box.
  struct Run {
    int64_t first, end;
  };

  /// A panel of filters in parts against the rows of a block.
  void partPanel(Value panel, Value pixels,
                 llvm::function_ref<Product(const Window &, Value from)> blockProduct) {
    using P = arith::CmpIPredicate;
    SmallVector<std::pair<std::vector<int64_t>, SmallVector<Run>>> sizes;
    for (int64_t p = 0; p < layout.panels(); ++p) {
      const PanelLayout::Box &box = layout.boxes[p];
      auto same = llvm::find_if(sizes, [&](auto &size) { return size.first == box.count; });
      if (same == sizes.end())
        same = &sizes.emplace_back(box.count, SmallVector<Run>());
      SmallVector<Run> &runs = same->second;
      if (!runs.empty() && runs.back().end == p && layout.boxes[p - 1] == box)
        ++runs.back().end;
      else
        runs.push_back({p, p + 1});
    }
    for (auto &[count, runs] : sizes) {
      Window window{1, 1, 1};
      std::copy(count.begin(), count.end(), window.end() - count.size());
      // Where its box begins in the block, and its weights in the buffer.
      auto pick = [&](llvm::function_ref<Value(const Run &)> of) {
        Value v = of(runs.back());
        for (const Run &run : llvm::drop_begin(llvm::reverse(runs)))
          v = ix.select(ix.cmp(P::slt, panel, ix.cst(run.end)), of(run), v);
        return v;
      };
      auto emit = [&] {
        Value from = pick([&](const Run &run) { return boxAt(layout.boxes[run.first].first); });
        Product p = blockProduct(window, from);
        int64_t step = *p.depth.constant() * layout.panel;
        Value weights = pick([&](const Run &run) {
          return ix.add(ix.mul(ix.sub(panel, ix.cst(run.first)), step), layout.begins[run.first]);
        });
        p.packed->depth = *p.depth.constant();
        p.panelOffset = [weights](Value, Value) { return weights; };
        p.emitPanel(ix.cst(0), ix.cst(0), pixels, panel);
      };
      if (sizes.size() == 1) {
        emit();
        continue;
      }
      Value in;
      for (const Run &run : runs) {
        Value here = e.make<arith::AndIOp>(ix.cmp(P::sge, panel, ix.cst(run.first)),
                                           ix.cmp(P::slt, panel, ix.cst(run.end)));
        in = in ? e.make<arith::OrIOp>(in, here) : here;
      }
      e.ifThen(in, emit);
    }
  }

  /// Elements of a block from a window's first tap to a box's.
  Value boxAt(const std::vector<int64_t> &first) {
    size_t rank = first.size();
    Value at = ix.cst(first[rank - 1] * g.channels);
    if (rank > 1)
      at = ix.add(at, ix.mul(ix.dim(g.paddedWidth()), first[rank - 2] * g.dilation[0] * g.channels));
    return rank > 2 ? ix.add(at, ix.mul(layerPitch(), first[0])) : at;
  }
};

} // namespace

bool scheduleDirectConv(Evaluator &e, const KernelConfig &config) {
  auto op = e.anchor<ConvOp>();
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
                       op.getDilations(), layout.channels / layout.interleave);
  int64_t panels = layout.panels() / op.getGroup(); // of a group
  bool inGroups = layout.order == PanelLayout::Order::Groups;
  bool inParts = layout.order == PanelLayout::Order::Parts;
  if (!g || (inParts && config.stages == 0) || !epilogue.supported() ||
      (inGroups && (layout.channels != layout.groupChannels || config.stages == 0 ||
                    config.tileK != panels || layout.panel != config.tileN)))
    return false;
  Value data = x, zero;
  if (auto less = x.getDefiningOp<DequantizeOp>(); less && layout.interleave > 1) {
    data = less.getData();
    zero = less.getZero();
  }
  Type accumulator = Evaluator::computeType(elementTypeOf(y)), element = elementTypeOf(data);
  auto arg = dyn_cast<BlockArgument>(data);
  const BufferArg *image = arg ? &e.bufferArg(arg.getArgNumber()) : nullptr;
  bool dense = image && image->physical == image->dims;
  DirectConv direct{e,  e.ix, config, epilogue, op, layout, accumulator, element, *g, dense, {}, data,
                    layout.groupChannels, {}, {}, {}};
  if (layout.interleave > 1) {
    if (element.getIntOrFloatBitWidth() != 8 || !accumulator.isInteger(32) ||
        layout.interleave != config.form->product.interleave)
      return false;
    if (zero)
      zero = e.eval(zero, Indices(dimsOf(zero).size(), Index(e.ix.cst(0))));
    direct.codes.emplace(CodeGroups{e, layout.interleave, element, zero});
  }
  if (config.stages == 0) {
    bool asItLies = direct.codes ? direct.codes->asTheyLie() && direct.pixelCodes % layout.interleave == 0
                                 : element == accumulator;
    return dense && asItLies && g->unpadded() && direct.inPlace();
  }
  DimExpr need = g->scratchElements(config.stages) *
                 DimExpr(accumulator.getIntOrFloatBitWidth() / 8);
  const DimExpr &have = e.kernel.spec->scratchBytes;
  if (!(have == need) && (have - need).range().lo < 0)
    return false;
  direct.inBlocks();
  return true;
}

} // namespace lathe::codegen
