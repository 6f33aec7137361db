//===- transpose.cpp - descriptor of transpose.cuh: rows become columns in tiles
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Choice.h"
#include "lathe/codegen/TransposeTile.h"

#include <algorithm>
#include <limits>

namespace lathe {

using namespace select;

// ---- Boxes of few rows or columns ----------------------------------------------------------

std::vector<int64_t> TransposeTile::operandOrder() const {
  std::vector<int64_t> order(from.size());
  for (size_t d = 0; d < from.size(); ++d)
    order[from[d]] = d;
  return order;
}

TransposeTile TransposeTile::of(std::vector<int64_t> sizes, std::vector<int64_t> from, int64_t elementBytes,
                                int64_t elements) {
  constexpr int64_t kRunBytes = 128; // what the card moves best
  TransposeTile tile{std::move(sizes), std::move(from), {}};
  const size_t rank = tile.sizes.size();
  tile.extents.assign(rank, 1);
  std::vector<int64_t> result(rank);
  for (size_t d = 0; d < rank; ++d)
    result[d] = d;
  // A run ends in the first dimension that the box has a part of.
  std::vector<int64_t> cuts;
  for (const std::vector<int64_t> &order : {tile.operandOrder(), result}) {
    const int64_t wanted = kRunBytes / elementBytes;
    int64_t run = 1;
    for (size_t i = rank; i-- > 0 && run < wanted;) {
      int64_t &extent = tile.extents[order[i]];
      extent = std::max(extent, std::min(tile.sizes[order[i]], (wanted + run - 1) / run));
      run *= extent;
      cuts.push_back(order[i]);
      if (extent < tile.sizes[order[i]])
        break;
    }
  }
  auto count = [&] {
    int64_t n = 1;
    for (int64_t extent : tile.extents)
      n *= extent;
    return n;
  };
  for (bool grows = true; grows && count() < elements;) {
    grows = false;
    for (int64_t d : cuts)
      if (tile.extents[d] < tile.sizes[d] && count() < elements) {
        tile.extents[d] = std::min(tile.sizes[d], 2 * tile.extents[d]);
        grows = true;
      }
    // Of small dimensions all is in the box: what lies around them follows.
    for (const std::vector<int64_t> &order : {tile.operandOrder(), result})
      for (size_t i = rank; !grows && i-- > 0;)
        if (const int64_t d = order[i]; tile.extents[d] < tile.sizes[d]) {
          cuts.push_back(d);
          grows = true;
        }
  }
  // All of a dimension, where that is not much more, or equal parts of it.
  for (int64_t d : cuts) {
    const int64_t size = tile.sizes[d], parts = (size + tile.extents[d] - 1) / tile.extents[d];
    tile.extents[d] = 2 * size <= 3 * tile.extents[d] ? size : (size + parts - 1) / parts;
  }
  return tile;
}

int64_t TransposeTile::blocks() const {
  int64_t n = 1;
  for (size_t d = 0; d < sizes.size(); ++d)
    n *= (sizes[d] + extents[d] - 1) / extents[d];
  return n;
}

std::vector<int64_t> TransposeTile::sharedStrides(int64_t elementBytes) const {
  const std::vector<int64_t> order = operandOrder();
  const int64_t words = std::max<int64_t>(1, 4 / elementBytes); // elements of a word
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= extents[order[i]];
    if (i + 1 == order.size()) // an odd number of words
      stride = ((stride + words - 1) / words | 1) * words;
  }
  return strides;
}

int64_t TransposeTile::sharedElements(int64_t elementBytes) const {
  const int64_t outermost = operandOrder().front();
  return sharedStrides(elementBytes)[outermost] * extents[outermost] + 8; // of one dimension, its padding too
}

static Result<bool> offerBox(const KernelDesc &desc, const Target &, std::vector<KernelVariant> &out) {
  constexpr int64_t kElements = 4096, kShared = 40 << 10, kFew = 24;
  const int64_t rank = desc.movedSizes.size();
  if (rank < 2 || desc.movedFrom.back() == rank - 1)
    return false;
  std::vector<int64_t> sizes;
  for (const DimExpr &size : desc.movedSizes) {
    sizes.push_back(size.constant().value_or(0));
    if (sizes.back() < 2)
      return false;
  }
  // Of many rows and columns, tiles of these have long runs.
  auto few = [&](const std::vector<DimExpr> &dims, int64_t rows) {
    return rows < 0 || std::min(dims[rows].constant().value_or(0), dims.back().constant().value_or(0)) < kFew;
  };
  const int64_t rows = std::find(desc.movedFrom.begin(), desc.movedFrom.end(), rank - 1) - desc.movedFrom.begin();
  if (!few(desc.movedSizes, rows) && !few(desc.parallel, desc.inputContiguous))
    return false;
  const int64_t bytes = bitWidth(desc.buffers[0].dtype) / 8;
  const TransposeTile tile = TransposeTile::of(sizes, desc.movedFrom, bytes, kElements);
  if (tile.sharedElements(bytes) * bytes > kShared || tile.blocks() > std::numeric_limits<int32_t>::max())
    return false;
  KernelConfig c{&kTransposeBox};
  c.threads = 256;
  c.tileM = kElements;
  addVariant(out, {}, specFor(desc, c, DimExpr(tile.blocks())));
  return true;
}

const Skeleton kTransposeBox = {
    .family = "transpose.box",
    .block = "t m: a box of about m elements, whose runs in the operand and in the result are long",
    .code = Skeleton::Code::Transpose,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offerBox, .boxes = true, .text = [](const KernelConfig &c, const MemoryText &) {
                 return Instance{{"transpose_box"}, "transposeBox<" + std::to_string(c.threads) + ">(h);", ""};
               }}};

// ---- Tiles of rows and columns -------------------------------------------------------------

/// A tile of input rows transposed in shared memory, for results whose neighbours lie far apart
/// in the input.
static Result<bool> offer(const KernelDesc &desc, const Target &,
                          std::vector<KernelVariant> &out) {
  if (desc.inputContiguous < 0 || bitWidth(desc.inputContiguousType) < 8)
    return false;
  DimExpr rows = desc.parallel[desc.inputContiguous], columns = lastOf(desc.parallel);
  int64_t piece = 16 / std::max<int64_t>(1, bitWidth(desc.inputContiguousType) / 8);
  KernelConfig c{&kTranspose};
  c.threads = 256;
  c.lanes = divides(piece, rows) && divides(piece, columns) ? piece : 1;
  c.tileM = c.lanes > 1 ? 16 * c.lanes : 32;
  DimExpr outer = 1;
  for (size_t d = 0; d + 1 < desc.parallel.size(); ++d)
    if (static_cast<int64_t>(d) != desc.inputContiguous)
      outer = outer * desc.parallel[d];
  addVariant(out, {},
             specFor(desc, c,
                     outer * DimExpr::ceilDiv(rows, DimExpr(c.tileM)) *
                         DimExpr::ceilDiv(columns, DimExpr(c.tileM))));
  return true;
}

const Skeleton kTranspose = {
    .family = "transpose",
    .block = "t v m: an m x m tile of the last dimension and the one contiguous in the input; CPU: a share of "
             "its squares of v x v",
    .code = Skeleton::Code::Transpose,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"transpose", "math"},
                                 std::string(c.lanes > 1 ? "transposeBlocks" : "transposeElements") +
                                     "(h, " + t.rows + ", " + t.columns + ");",
                                 ""};
               }}};

} // namespace lathe
