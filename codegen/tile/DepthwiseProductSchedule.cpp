//===- DepthwiseProductSchedule.cpp - depthwise, then every channel -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A unit is a block of rows of an image. The depthwise convolution and what
// follows it point by point go to scratch memory, where the pixels are the rows
// of a product with the filters of the second convolution: between the two,
// nothing leaves the core's own cache.
//
//===----------------------------------------------------------------------===//

#include "Depthwise.h"
#include "Product.h"

using namespace mlir;

namespace lathe::codegen {

bool scheduleDepthwiseProduct(Evaluator &e, const KernelConfig &config) {
  auto depthwise = opAt<ConvOp>(*e.kernel.body, e.kernel.roles.depthwise);
  if (!depthwise)
    return false;
  auto points = e.anchor<ConvOp>();
  Value x = points.getX(), y = points.getResult();
  auto filters = dyn_cast<BlockArgument>(points.getW());
  Epilogue epilogue(e, y);
  if (!filters || config.stages < 1 || !epilogue.supported())
    return false;
  std::vector<int64_t> dims;
  for (const DimExpr &d : e.bufferArg(filters.getArgNumber()).dims)
    dims.push_back(d.constant().value_or(0));
  Result<PanelLayout> layout = PanelLayout::of(e.bufferArg(filters.getArgNumber()).packing, dims);
  if (!layout || layout->order != PanelLayout::Order::Filters || layout->panel != config.tileN)
    return false;

  IndexMath &ix = e.ix;
  std::vector<DimExpr> yd = dimsOf(y), pixels(yd.begin(), yd.end() - 1);
  DimExpr channels = dimsOf(x).back(), width = pixels[2];
  DimExpr block(config.stages), blocks = DimExpr::ceilDiv(pixels[1], block);
  Product p{e, config, y, Evaluator::computeType(elementTypeOf(y))};
  p.rows = lathe::product(pixels);
  p.columns = yd.back();
  p.depth = channels;
  p.columnBuffer = e.buffer(filters.getArgNumber());
  p.columnElement = elementTypeOf(points.getW());
  p.packed = *layout;
  p.columnOffset = [&](Value) { return ix.cst(0); };
  bool flat = epilogue.flat(0, 2);
  p.resultIndex = [&](Value, Value row, const Index &column) {
    Indices idx(3, Index(ix.cst(0)));
    if (flat)
      idx[flatPlace(pixels, 0, 2)] = Index(row);
    else
      idx = delinearize(e, Index(row), pixels);
    idx.push_back(column);
    return idx;
  };
  p.consume = [&](const Indices &idx, Value v) { epilogue.emit(idx, v); };
  p.scratch = e.make<tile::ScratchOp>(MemRefType::get({ShapedType::kDynamic}, p.accumulator), 0);
  if (auto high = pixels[1].constant(), wide = width.constant(); high && wide)
    p.counts = {std::min(config.stages, *high) * *wide, *high % config.stages * *wide};

  auto [lo, hi] = blockRange(e, ix.dim(pixels[0] * blocks));
  e.loop(lo, hi, ix.cst(1), [&](Value u) {
    Indices at = delinearize(e, Index(u), {pixels[0], blocks});
    Value image = at[0].base, first = ix.mul(at[1].base, config.stages);
    Value rows = ix.min(ix.sub(ix.dim(pixels[1]), first), ix.cst(config.stages));
    e.loop(ix.cst(0), rows, ix.cst(1), [&](Value r) {
      depthwiseRow(e, depthwise, image, ix.add(first, r), [&](const Indices &idx, Value v) {
        e.bind(depthwise.getResult(), idx, v);
        Value pixel = ix.add(ix.mul(r, ix.dim(width)), idx[2].base);
        e.storeAt(e.eval(x, idx), p.accumulator, p.scratch,
                  ix.add(Index(ix.mul(pixel, ix.dim(channels))), idx[3]));
      });
    });
    Value line = ix.add(ix.mul(image, ix.dim(pixels[1])), first);
    p.emitChunk(ix.cst(0), ix.mul(line, ix.dim(width)), ix.mul(rows, ix.dim(width)),
                ix.dim(DimExpr::ceilDiv(p.columns, DimExpr(config.tileN))));
  });
  return true;
}

} // namespace lathe::codegen
