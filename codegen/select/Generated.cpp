//===- Generated.cpp - families that codegen/tile writes whole ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Descriptors of pointwise kernels, rows, scans and scatters, for GPUs and CPUs.
// On GPUs: small blocks launched once per piece, one 16-byte vector a thread;
// rows by 32 to 512 threads. On CPUs ChooseCpu.cpp chooses.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {
namespace select {

int64_t vectorLanes(const KernelDesc &desc) {
  int64_t bits = 64;
  for (const BufferArg &b : desc.buffers)
    if (product(b.dims).constant().value_or(2) > 1) // a scalar says nothing of the rest
      bits = std::min<int64_t>(bits, std::max<int64_t>(bitWidth(b.dtype), 16));
  return std::min<int64_t>(8, 128 / bits);
}

int64_t lanesFor(int64_t lanes, const DimExpr &extent) {
  while (lanes > 1 && !divides(lanes, extent))
    lanes /= 2;
  return lanes;
}

DimExpr lastOf(const std::vector<DimExpr> &dims) { return dims.empty() ? DimExpr(1) : dims.back(); }

bool combinesWords(const KernelDesc &desc) {
  return std::all_of(desc.buffers.begin(), desc.buffers.end(), [](const BufferArg &b) {
    return isHalf(b.dtype) || b.dtype == DType::F32 || b.dtype == DType::I32;
  });
}

} // namespace select

using namespace select;

using Code = Skeleton::Code;
using InPlace = Skeleton::InPlace;
using Early = Skeleton::Early;
using Variants = std::vector<KernelVariant>;

//===- Scatters -----------------------------------------------------------------===//

/// In order: a thread has a part of what the indices do not name, one block everything where they name all.
static Result<bool> offerScatter(const KernelDesc &desc, const Target &target, Variants &out) {
  constexpr int64_t kBlocks = 8; // for each multiprocessor
  if (!desc.serial || desc.numOutputs > 1)
    return false;
  KernelConfig c{&kScatter};
  c.threads = 128;
  DimExpr most = DimExpr::ceilDiv(product(desc.buffers[desc.numInputs].dims), DimExpr(c.threads));
  addVariant(out, {}, specFor(desc, c, DimExpr::max(DimExpr(1), DimExpr::min(DimExpr(kBlocks * target.smCount), most))));
  return true;
}

/// Updates that have no order.
static Result<bool> offerScatterUnordered(const KernelDesc &desc, const Target &, Variants &out) {
  if (!desc.serial || desc.updates.empty() || desc.numOutputs > 1)
    return false;
  const std::vector<DimExpr> &updates = desc.updates.begin()->second;
  KernelConfig c{&kScatterUnordered};
  c.threads = 128;
  constexpr int64_t kApart = 4;
  if (desc.updatesInRows)
    c.lanes = lanesFor(128 / bitWidth(desc.buffers[desc.numInputs].dtype), updates.back());
  // Of a known number of updates, elements far apart where those that lie together are few.
  if (desc.updatesInRows && updates.size() > 1 && c.lanes * bitWidth(desc.buffers[desc.numInputs].dtype) < 64 &&
      product(updates).constant().value_or(0) >= kApart)
    c.lanes = kApart;
  DimExpr vectors = DimExpr::ceilDiv(product(updates), DimExpr(c.lanes));
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(vectors, DimExpr(c.threads))));
  return true;
}

/// A block for the boxes of a class: those that are kept are compared with the next one together.
static Result<bool> offerNms(const KernelDesc &desc, const Target &, Variants &out) {
  if (!desc.selection || desc.selection->kind != KernelDesc::Selection::Kind::Nms)
    return false;
  KernelConfig c{&kNms};
  c.threads = 128;
  addVariant(out, {}, specFor(desc, c, desc.selection->rows));
  return true;
}

const Skeleton kScatterUnordered = {
    .family = "scatter.unordered",
    .block = "t v: a share of the updates, which go into the operand's memory",
    .code = Code::UnorderedScatter,
    .inPlace = InPlace::Always,
    .early = Early::UnlessLong,
    .memory = {.offer = offerScatterUnordered}};
const Skeleton kScatter = {.family = "scatter",
                           .block = "t: a share of what the indices do not name, in their order; everything where that is little",
                           .code = Code::Scatter,
                           .inPlace = InPlace::Always,
                           .memory = {.offer = offerScatter}};
const Skeleton kNms = {.family = "nms",
                       .block = "t: the boxes of one class",
                       .code = Code::Nms,
                       .memory = {.offer = offerNms}};

//===- Rows ---------------------------------------------------------------------===//

static int64_t threadsForRow(const KernelDesc &desc, int64_t lanes) {
  DimExpr length = product(desc.reduction);
  int64_t vectors = length.constant().value_or(4096) / lanes;
  // Up to eight vectors a thread; more threads when there are few rows to fill the card, usually where that is known.
  const DimExpr outer = product(desc.parallel);
  Result<int64_t> usual = outer.evaluate(desc.usual);
  int64_t each = (usual ? *usual : rangeOf(outer, desc).hi) <= 64 ? 2 : 8;
  int64_t threads = 32;
  while (threads < 512 && threads * each < vectors)
    threads *= 2;
  // An even share saves the last partial round: 160 threads for 5120 elements.
  for (int64_t t = threads; t > threads / 2; t -= 32)
    if (vectors % t == 0)
      return t;
  return threads;
}

/// A row of known length that one block cannot hold in registers is held by a cluster, 64 elements
/// a thread: its blocks, and the threads of each in `c`. 1: none.
static int64_t clusterForRow(const KernelDesc &desc, const Target &target, int64_t vectors,
                             KernelConfig &c) {
  constexpr int64_t kLong = 65536, kElements = 64, kMost = 8;
  if (!target.hasClusters() || c.lanes < 4 || vectors * c.lanes < kLong || !combinesWords(desc) ||
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

/// Bytes of a vector of so many elements, in the widest input of the data's size.
static int64_t vectorBytes(const KernelDesc &desc, int64_t lanes) {
  DimExpr all = product(desc.parallel) * product(desc.reduction);
  int64_t bytes = 1; // of inputs that are all broadcast nothing is known
  for (int i = 0; i < desc.numInputs; ++i)
    if (product(desc.buffers[i].dims) == all)
      bytes = std::max<int64_t>(bytes, lanes * bitWidth(desc.buffers[i].dtype) / 8);
  return bytes;
}

/// How many lanes of a warp, a power of two, share a short row of so many vectors: a lane has several under
/// way, more of them the shorter they are, so that a multiprocessor has enough bytes under way.
static int64_t lanesOfRow(int64_t vectors, int64_t bytes) {
  const int64_t each = bytes >= 16 ? 3 : bytes >= 8 ? 4 : bytes >= 4 ? 6 : 8;
  int64_t group = 2;
  while (group < 32 && group * each < vectors)
    group *= 2;
  return group;
}

/// The minimum of blocks a multiprocessor that the CUDA compiler is told (__launch_bounds__); 0: none.
/// Several where a thread keeps 64 elements of 16 bits, so that one block loads while another waits for
/// its reductions; not with two inputs of the row's size, of which a thread cannot keep so many. One for
/// large blocks of f32: otherwise the compiler serializes loads to save registers for blocks that cannot
/// be resident anyway.
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

/// Rows whose last dimension is reduced have a block, a cluster, a warp or some of its lanes each, a cluster where they
/// lie together; of others neighbouring threads take neighbouring columns, and each walks the reduction by itself.
static Result<bool> offerRow(const KernelDesc &desc, const Target &target, Variants &out) {
  if (desc.kind != KernelDesc::Kind::Reduction)
    return false;
  DimExpr outer = product(desc.parallel);
  KernelConfig c{&kRow};
  if (!desc.reducesLast) {
    c.threads = 128;
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.threads))));
    return true;
  }
  c.lanes = desc.rowsContiguous ? lanesFor(vectorLanes(desc), lastOf(desc.reduction)) : 1;
  c.threads = threadsForRow(desc, c.lanes);
  int64_t vectors = product(desc.reduction).constant().value_or(0) / c.lanes;
  int64_t cluster = desc.rowsContiguous ? clusterForRow(desc, target, vectors, c) : 1;
  c.stages = residentBlocks(desc, vectors, cluster, c);
  if (cluster > 1) {
    KernelSpec spec = specFor(desc, c, outer * DimExpr(cluster));
    spec.launches[0].cluster[0] = cluster;
    addVariant(out, {}, std::move(spec));
    return true;
  }
  // Short rows: a block of one warp would be over before the next has begun.
  constexpr int64_t kShort = 1536, kThreads = 128;
  const int64_t bytes = vectorBytes(desc, c.lanes);
  if (c.threads == 32 && vectors > 0 && vectors * bytes <= kShort && rangeOf(outer, desc).hi > 16 * target.smCount) {
    c.rows = kThreads / lanesOfRow(vectors, bytes);
    c.threads = kThreads;
    outer = DimExpr::ceilDiv(outer, DimExpr(c.rows));
  }
  addVariant(out, {}, specFor(desc, c, outer));
  return true;
}

const Skeleton kRow = {
    .family = "row",
    .block = "t v r s: a share of the outer indices: reductions, then what depends on them; with r, r "
             "parts of the threads with an index each; with a cluster in the launch, one index for all of it; with s, "
             "s blocks share a multiprocessor, and 16-bit elements are kept as such",
    .code = Code::Row,
    .reducesRows = true,
    .inPlace = InPlace::OneThread,
    .early = Early::UnlessLong,
    .memory = {.offer = offerRow}};

//===- Pointwise ----------------------------------------------------------------===//

/// Whether results of one known shape are dense, and inputs have their shape or are broadcast to it:
/// then vectors may cross the ends of rows (codegen/tile/PointwiseSchedule.cpp).
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

/// Whether a gather's or a transpose's results, dense and of one known shape, have rows of which a vector takes less than
/// 8 bytes: then vectors cross the ends of rows, and what an element is made of is read element by element. Not where
/// places are no integers: such elements are sums of several (roi_align, grid_sample), of which a thread computes one.
static bool readsOverRows(const KernelDesc &desc, int64_t inRows, int64_t lanes) {
  if ((!desc.dataIndices && desc.movedSizes.empty()) || desc.serial)
    return false;
  for (int i = 1; desc.kind == KernelDesc::Kind::Copy && desc.dataIndices && i < desc.numInputs; ++i)
    if (isFloat(desc.buffers[i].dtype))
      return false;
  const std::vector<DimExpr> &dims = desc.buffers[desc.numInputs].dims;
  if (dims.size() < 2 || product(dims).constant().value_or(0) < lanes)
    return false;
  bool narrow = false;
  for (int i = desc.numInputs; i < desc.numInputs + desc.numOutputs; ++i) {
    const BufferArg &b = desc.buffers[i];
    if (b.dims != dims || b.physical != dims || bitWidth(b.dtype) < 8)
      return false;
    narrow |= inRows * bitWidth(b.dtype) < 64;
  }
  return narrow && inRows < lanes;
}

/// The last that is asked: all kernels, element by element.
static Result<bool> offerPointwise(const KernelDesc &desc, const Target &, Variants &out) {
  KernelConfig c{&kPointwise};
  c.threads = 128;
  if (desc.kind == KernelDesc::Kind::Conv || desc.kind == KernelDesc::Kind::Attention) {
    addVariant(out, {},
               specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(c.threads))));
    return true;
  }
  c.lanes = lanesFor(vectorLanes(desc), lastOf(desc.parallel));
  // Results of other sizes have blocks of their own, and so have updates (codegen/tile/PointwiseSchedule.cpp).
  std::vector<std::vector<DimExpr>> shapes;
  for (int i = 0; i < desc.numOutputs; ++i) {
    auto updates = desc.updates.find(i);
    const bool written = updates != desc.updates.end();
    const std::vector<DimExpr> &dims = written ? updates->second : desc.buffers[desc.numInputs + i].dims;
    if (!written && std::find(shapes.begin(), shapes.end(), dims) != shapes.end())
      continue;
    shapes.push_back(dims);
    c.lanes = lanesFor(c.lanes, lastOf(dims));
  }
  // Four elements: what is spread over rows is read one by one.
  if (int64_t lanes = std::min<int64_t>(4, vectorLanes(desc));
      c.lanes < lanes && runsOverRows(desc, lanes)) {
    c.lanes = lanes;
    c.threads = 256;
  } else if (readsOverRows(desc, c.lanes, vectorLanes(desc))) {
    c.lanes = vectorLanes(desc);
  }
  // Channels that are read at the same places: these are asked for once for several of them.
  constexpr int64_t kTogether = 8, kLanes = 2;
  if (desc.sharedRows > 0 && desc.sharedRows % kTogether == 0 && desc.updates.empty() &&
      bitWidth(desc.buffers[desc.numInputs].dtype) >= 8) {
    c.threads = 128;
    c.rows = kTogether;
    c.lanes = lanesFor(std::min(vectorLanes(desc), kLanes), lastOf(desc.parallel));
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(c.threads * c.lanes * c.rows))));
    return true;
  }
  DimExpr blocks = 0;
  for (const std::vector<DimExpr> &shape : shapes) {
    DimExpr vectors = DimExpr::ceilDiv(product(shape), DimExpr(c.lanes));
    blocks = blocks + DimExpr::ceilDiv(vectors, DimExpr(c.threads));
  }
  addVariant(out, {}, specFor(desc, c, blocks));
  return true;
}

// Works with any number of blocks.
const Skeleton kPointwise = {
    .family = "pointwise",
    .block = "t v r: a share of the output's vectors, one a thread when the grid is that large; with r, r rows of them that "
             "gathers read at the same places",
    .code = Code::Pointwise,
    .inPlace = InPlace::Always,
    .early = Early::UnlessLong,
    .memory = {.offer = offerPointwise}};

} // namespace lathe
