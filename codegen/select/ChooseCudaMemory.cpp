//===- ChooseCudaMemory.cpp - memory-bound kernels on GPUs ---------- -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small blocks launched once per piece, one 16-byte vector a thread; rows by 32
// to 512 threads; transposes in tiles; columns by strips.
//
//===----------------------------------------------------------------------===//

#include "ChooseCuda.h"

#include <algorithm>

namespace lathe::select {

/// Lanes of 16 bytes of the narrowest float or integer data of the kernel; the
/// wide ones then take several loads.
static int64_t vectorLanes(const KernelDesc &desc) {
  int64_t bits = 64;
  for (const BufferArg &b : desc.buffers)
    if (product(b.dims).constant().value_or(2) > 1) // a scalar says nothing of the rest
      bits = std::min<int64_t>(bits, std::max<int64_t>(bitWidth(b.dtype), 16));
  return std::min<int64_t>(8, 128 / bits);
}

static DimExpr lastOf(const std::vector<DimExpr> &dims) {
  return dims.empty() ? DimExpr(1) : dims.back();
}

/// Lanes that divide `extent`. A size that is only known at run time gets none:
/// its addresses are aligned to one element, and neighbouring threads still take
/// neighbouring elements.
static int64_t lanesFor(int64_t lanes, const DimExpr &extent) {
  while (lanes > 1 && !divides(lanes, extent))
    lanes /= 2;
  return lanes;
}

/// A tile of input rows turned in shared memory, for results whose neighbours lie far apart
/// in the input.
static void transpose(const KernelDesc &desc, std::vector<KernelVariant> &out) {
  DimExpr rows = desc.parallel[desc.inputContiguous], columns = lastOf(desc.parallel);
  int64_t piece = 16 / std::max<int64_t>(1, bitWidth(desc.inputContiguousType) / 8);
  KernelConfig c;
  c.family = "transpose";
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
}

/// Whether results of one known shape lie densely, and what is read has their shape or is spread
/// over it: vectors may run over the ends of rows then (codegen/tile/PointwiseSchedule.cpp).
static bool runsOverRows(const KernelDesc &desc, int64_t lanes) {
  const std::vector<DimExpr> &dims = desc.buffers[desc.numInputs].dims;
  if (dims.size() < 2 || !product(dims).isConstant() || dims.back().constant().value_or(0) < lanes)
    return false;
  bool any = false;
  for (int i = 0; i < desc.numInputs + desc.numOutputs; ++i) {
    const BufferArg &b = desc.buffers[i];
    bool whole = b.dims == dims && b.physical == dims && b.packing.empty();
    if (i >= desc.numInputs && !whole)
      return false;
    any |= whole && i < desc.numInputs;
    bool spread = b.dims.size() <= dims.size();
    for (size_t d = 0; spread && d < b.dims.size(); ++d)
      spread = b.dims[d] == DimExpr(1) || b.dims[d] == dims[dims.size() - b.dims.size() + d];
    if (!spread)
      return false;
  }
  return any;
}

void pointwise(const KernelDesc &desc, std::vector<KernelVariant> &out) {
  if (desc.inputContiguous >= 0 && bitWidth(desc.inputContiguousType) >= 8)
    return transpose(desc, out);
  KernelConfig c;
  c.family = "pointwise";
  c.threads = 128;
  c.lanes = lanesFor(vectorLanes(desc), lastOf(desc.parallel));
  // Results of other sizes have blocks of their own (codegen/tile/PointwiseSchedule.cpp).
  std::vector<std::vector<DimExpr>> shapes;
  for (int i = desc.numInputs; i < desc.numInputs + desc.numOutputs; ++i)
    if (std::find(shapes.begin(), shapes.end(), desc.buffers[i].dims) == shapes.end()) {
      shapes.push_back(desc.buffers[i].dims);
      c.lanes = lanesFor(c.lanes, lastOf(shapes.back()));
    }
  // Four elements: what is spread over rows is read one by one.
  if (int64_t lanes = std::min<int64_t>(4, vectorLanes(desc));
      c.lanes < lanes && runsOverRows(desc, lanes)) {
    c.lanes = lanes;
    c.threads = 256;
  }
  DimExpr blocks = 0;
  for (const std::vector<DimExpr> &shape : shapes) {
    DimExpr vectors = DimExpr::ceilDiv(product(shape), DimExpr(c.lanes));
    blocks = blocks + DimExpr::ceilDiv(vectors, DimExpr(c.threads));
  }
  addVariant(out, {}, specFor(desc, c, blocks));
}

void scatter(const KernelDesc &desc, std::vector<KernelVariant> &out) {
  KernelConfig c;
  c.family = "scatter";
  c.threads = 256;
  if (desc.updates.empty())
    return addVariant(out, {}, specFor(desc, c, DimExpr(1)));
  c.family = "scatter.unordered";
  c.threads = 128;
  if (desc.updatesInRows)
    c.lanes = lanesFor(128 / bitWidth(desc.buffers[desc.numInputs].dtype), desc.updates.back());
  DimExpr vectors = DimExpr::ceilDiv(product(desc.updates), DimExpr(c.lanes));
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(vectors, DimExpr(c.threads))));
}

static int64_t threadsForRow(const KernelDesc &desc, int64_t lanes) {
  DimExpr length = product(desc.reduction);
  int64_t vectors = length.constant().value_or(4096) / lanes;
  // Up to eight vectors a thread; more threads when there are few rows to fill the card.
  int64_t each = rangeOf(product(desc.parallel), desc).hi <= 64 ? 2 : 8;
  int64_t threads = 32;
  while (threads < 512 && threads * each < vectors)
    threads *= 2;
  // An even share saves the last partial round: 160 threads for 5120 elements.
  for (int64_t t = threads; t > threads / 2; t -= 32)
    if (vectors % t == 0)
      return t;
  return threads;
}

/// Whether what is combined has whole words, as the blocks of a cluster read them from each other.
static bool combinesWords(const KernelDesc &desc) {
  return std::all_of(desc.buffers.begin(), desc.buffers.end(), [](const BufferArg &b) {
    return isHalf(b.dtype) || b.dtype == DType::F32 || b.dtype == DType::I32;
  });
}

/// A row of known length that one block cannot hold in registers is held by a cluster, 64 elements
/// a thread: its blocks, and the threads of each in `c`. 1: none.
static int64_t clusterForRow(const KernelDesc &desc, const Target &target, int64_t vectors,
                             KernelConfig &c) {
  constexpr int64_t kLong = 65536, kElements = 64, kMost = 8;
  if (target.smVersion < 90 || c.lanes < 4 || vectors * c.lanes < kLong || !combinesWords(desc) ||
      desc.dataIndices)
    return 1;
  for (int64_t threads : {256, 512})
    for (int64_t cluster = 2; cluster <= kMost; cluster *= 2)
      if (vectors * c.lanes == kElements * threads * cluster) {
        c.threads = threads;
        return cluster;
      }
  return 1;
}

/// Blocks that shall share a multiprocessor, so that one loads while another waits for its
/// reductions, where a thread keeps 64 elements of 16 bits; 0 leaves it to the CUDA compiler. Of two
/// inputs of the row's size a thread cannot keep so many. With large blocks of f32 that compiler would
/// save registers, by loads one after another, for blocks that do not come: told of one, it does not.
static int64_t residentBlocks(const KernelDesc &desc, int64_t vectors, int64_t cluster,
                              const KernelConfig &c) {
  constexpr int64_t kThreads = 1024, kLeast = 256;
  DimExpr all = product(desc.parallel) * product(desc.reduction);
  const int64_t usual = 8 * c.threads; // of vectors
  bool apart = vectors < usual || (vectors > usual && desc.numInputs <= 2);
  if (vectorLanes(desc) == 4 && c.lanes == 4 && c.threads >= kLeast && cluster == 1 && apart)
    return 1;
  int whole = 0;
  for (int i = 0; i < desc.numInputs; ++i)
    whole += product(desc.buffers[i].dims) == all;
  return c.lanes == 8 && whole == 1 && vectors == 8 * c.threads * cluster &&
                 (cluster > 1 || c.threads > kLeast)
             ? kThreads / c.threads
             : 0;
}

/// Down columns: a strip for each warp's width, its rows split among the warps of a block and,
/// where that leaves multiprocessors idle, among the blocks of a cluster.
static void columns(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  std::vector<DimExpr> inner(desc.parallel.end() - desc.columnDims, desc.parallel.end());
  DimExpr outer = product({desc.parallel.begin(), desc.parallel.end() - desc.columnDims});
  DimExpr width = product(inner);
  int64_t rows = product(desc.reduction).constant().value_or(1024);
  KernelConfig c;
  c.family = "columns";
  c.threads = 256;
  c.lanes = lanesFor(vectorLanes(desc), lastOf(inner));
  // Pieces of eight bytes leave enough blocks that all multiprocessors read all the time, also at
  // the end (an H200, 8192 x 8192 and 4096 x 5120).
  if (c.lanes == 8)
    c.lanes = 4;
  auto strips = [&] { return outer * DimExpr::ceilDiv(width, DimExpr(32 * c.lanes)); };
  auto blocks = [&] { return strips().constant().value_or(target.smCount) * c.rows; };
  bool clusters = target.smVersion >= 90 && combinesWords(desc);
  while (clusters && c.rows < 8 && blocks() < 2 * target.smCount && rows >= 64 * c.rows)
    c.rows *= 2;
  while (c.lanes > 2 && blocks() < target.smCount)
    c.lanes /= 2;
  KernelSpec spec = specFor(desc, c, strips() * DimExpr(c.rows));
  spec.launches[0].cluster[0] = c.rows;
  addVariant(out, {}, std::move(spec));
}

void reduction(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  DimExpr outer = product(desc.parallel);
  if (desc.rowsContiguous) {
    KernelConfig c;
    c.family = "row";
    c.lanes = lanesFor(vectorLanes(desc), lastOf(desc.reduction));
    c.threads = threadsForRow(desc, c.lanes);
    int64_t vectors = product(desc.reduction).constant().value_or(0) / c.lanes;
    int64_t cluster = clusterForRow(desc, target, vectors, c);
    c.stages = residentBlocks(desc, vectors, cluster, c);
    if (cluster > 1) {
      KernelSpec spec = specFor(desc, c, outer * DimExpr(cluster));
      spec.launches[0].cluster[0] = cluster;
      addVariant(out, {}, std::move(spec));
      return;
    }
    // Short rows: a block of one warp would be over before the next has begun.
    constexpr int64_t kShort = 96;
    if (c.threads == 32 && vectors <= kShort && rangeOf(outer, desc).hi > 16 * target.smCount) {
      c.rows = 4;
      c.threads = 32 * c.rows;
      addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.rows))));
      return;
    }
    addVariant(out, {}, specFor(desc, c, outer));
    return;
  }
  constexpr int64_t kFewColumns = 32, kFewRows = 16;
  auto atLeast = [&](const DimExpr &e, int64_t n) { return rangeOf(e, desc).hi >= n; };
  if (desc.columnDims > 0 && atLeast(product(desc.reduction), kFewRows) &&
      atLeast(product({desc.parallel.end() - desc.columnDims, desc.parallel.end()}), kFewColumns))
    return columns(desc, target, out);
  // Neighbouring threads take neighbouring columns, each walks the reduction by itself.
  KernelConfig c;
  c.family = "row";
  c.threads = 128;
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.threads))));
}

} // namespace lathe::select
