//===- ChooseCuda.cpp - configurations on GPUs -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory-bound kernels: small blocks launched once per piece, one 16-byte
// vector a thread; rows by 32 to 512 threads. Products: few rows stream the
// weights (gemv), 16-bit operands go to the matrix units, others to ordinary
// FMA tiles; the tile follows the number of rows.
//
//===----------------------------------------------------------------------===//

#include "Choose.h"

#include <algorithm>

namespace lathe::select {
namespace {

using Kind = DimCondition::Kind;

bool isHalf(DType t) { return t == DType::F16 || t == DType::BF16; }

/// Lanes of 16 bytes of the narrowest float or integer data of the kernel; the
/// wide ones then take several loads.
int64_t vectorLanes(const KernelDesc &desc) {
  int64_t bits = 64;
  for (const BufferArg &b : desc.buffers)
    if (product(b.dims).constant().value_or(2) > 1) // a scalar says nothing of the rest
      bits = std::min<int64_t>(bits, std::max<int64_t>(bitWidth(b.dtype), 16));
  return std::min<int64_t>(8, 128 / bits);
}

DimExpr lastOf(const std::vector<DimExpr> &dims) { return dims.empty() ? DimExpr(1) : dims.back(); }

/// Lanes that divide `extent`. A size that is only known at run time gets none:
/// its addresses are aligned to one element, and neighbouring threads still take
/// neighbouring elements.
int64_t lanesFor(int64_t lanes, const DimExpr &extent) {
  while (lanes > 1 && !divides(lanes, extent))
    lanes /= 2;
  return lanes;
}

/// A tile of input rows turned in shared memory, for results whose neighbours lie far apart
/// in the input.
void transpose(const KernelDesc &desc, std::vector<KernelVariant> &out) {
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

void pointwise(const KernelDesc &desc, std::vector<KernelVariant> &out) {
  if (desc.inputContiguous >= 0 && bitWidth(desc.inputContiguousType) >= 8)
    return transpose(desc, out);
  KernelConfig c;
  c.family = "pointwise";
  c.threads = 128;
  c.lanes = lanesFor(vectorLanes(desc), lastOf(desc.parallel));
  DimExpr vectors = DimExpr::ceilDiv(product(desc.parallel), DimExpr(c.lanes));
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(vectors, DimExpr(c.threads))));
}

int64_t threadsForRow(const KernelDesc &desc, int64_t lanes) {
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

void reduction(const KernelDesc &desc, std::vector<KernelVariant> &out) {
  DimExpr outer = product(desc.parallel);
  if (desc.rowsContiguous) {
    KernelConfig c;
    c.family = "row";
    c.lanes = lanesFor(vectorLanes(desc), lastOf(desc.reduction));
    c.threads = threadsForRow(desc, c.lanes);
    addVariant(out, {}, specFor(desc, c, outer));
    return;
  }
  // Neighbouring threads take neighbouring columns, each walks the reduction by itself.
  KernelConfig c;
  c.family = "row";
  c.threads = 128;
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.threads))));
}

KernelConfig mmaTile(const char *family, int64_t tile, int64_t threads, int64_t stages) {
  KernelConfig c;
  c.family = family;
  c.threads = threads;
  c.tileM = c.tileN = tile;
  c.tileK = 32;
  c.stages = stages;
  return c;
}

KernelConfig simtTile(const char *family, int64_t m, int64_t n, int64_t threads) {
  KernelConfig c;
  c.family = family;
  c.threads = threads;
  c.tileM = m;
  c.tileN = n;
  c.tileK = m == 128 ? 8 : 16;
  return c;
}

KernelSpec tiled(const KernelDesc &desc, const KernelConfig &c, const DimExpr &batch,
                 const DimExpr &m, const DimExpr &n) {
  KernelSpec spec = specFor(desc, c,
                            batch * DimExpr::ceilDiv(m, DimExpr(c.tileM)) *
                                DimExpr::ceilDiv(n, DimExpr(c.tileN)));
  if (c.stages > 0)
    spec.launches[0].sharedBytes = mmaSharedBytes(c);
  return spec;
}

Status gemm(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() < 2 || desc.reduction.size() != 1 || desc.operands.size() < 2)
    return internalError("a product needs M, N, K and two operands", "kernel " + desc.name);
  size_t rank = desc.parallel.size();
  DimExpr m = desc.parallel[rank - 2], n = desc.parallel[rank - 1];
  DimExpr batch = product({desc.parallel.begin(), desc.parallel.end() - 2});
  const ContractionOperand &b = desc.operands[1];
  // Rows of all batches are one matrix when the other operand is one matrix in memory; the
  // skeleton (codegen/cuda/SkeletonGemm.cpp) goes by the same rule.
  if (rank > 2 && b.buffer >= 0 && desc.buffers[b.buffer].dims.size() == 2 &&
      !desc.operands[0].transposed) {
    m = m * batch;
    batch = 1;
  }
  DimRange rows = rangeOf(m, desc);
  bool mma = target.hasTensorCores() && isHalf(desc.operands[0].dtype) &&
             desc.operands[0].dtype == b.dtype;

  constexpr int64_t kFewRows = 4;
  if (rows.lo <= kFewRows) {
    KernelConfig c;
    c.rows = rows.hi <= 1 ? 1 : kFewRows;
    int64_t lanes = 128 / std::max<int64_t>(8, bitWidth(b.dtype));
    KernelSpec spec;
    if (b.buffer >= 0 && b.transposed) {
      c.family = "gemv.along";
      c.threads = 128;
      spec = specFor(desc, c, batch * n);
    } else {
      c.family = "gemv.across";
      c.threads = 256;
      while (lanes > 1 && !(b.buffer >= 0 && divides(lanes, n)))
        lanes /= 2;
      // Few columns would leave multiprocessors idle: narrower vectors, more blocks.
      while (lanes > 2 && n.constant() && *n.constant() / (32 * lanes) < target.smCount)
        lanes /= 2;
      c.lanes = lanes;
      spec = specFor(desc, c, batch * DimExpr::ceilDiv(n, DimExpr(32 * lanes)));
    }
    bool always = rows.hi <= c.rows;
    std::vector<DimCondition> guard;
    if (!always)
      guard.push_back({Kind::LessEqual, m, DimExpr(c.rows)});
    addVariant(out, guard, std::move(spec));
    if (always)
      return okStatus();
  }
  KernelConfig small = mma ? mmaTile("gemm.mma", 64, 128, 4) : simtTile("gemm.simt", 64, 64, 256);
  KernelConfig large =
      mma ? mmaTile("gemm.mma", 128, 256, 4) : simtTile("gemm.simt", 128, 128, 256);
  // The large tile pays once it fills the card.
  int64_t columns = n.constant().value_or(1024);
  int64_t enough =
      std::max<int64_t>(128, target.smCount * 128 * 128 / std::max<int64_t>(columns, 1));
  // ... and not where half of its columns would be empty.
  if (columns <= 64)
    enough = DimRange::kUnbounded;
  if (rows.lo <= enough)
    addVariant(out,
               rows.hi <= enough ? std::vector<DimCondition>{}
                                 : std::vector<DimCondition>{{Kind::LessEqual, m, DimExpr(enough)}},
               tiled(desc, small, batch, m, n));
  if (rows.hi > enough)
    addVariant(out, {}, tiled(desc, large, batch, m, n));
  return okStatus();
}

Status conv(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  size_t rank = desc.parallel.size();
  if (rank < 3 || desc.operands.size() < 2)
    return internalError("a convolution needs images, pixels, channels", "kernel " + desc.name);
  DimExpr images = desc.parallel[0], filters = desc.parallel[rank - 1];
  DimExpr pixels = product({desc.parallel.begin() + 1, desc.parallel.end() - 1});
  std::optional<int64_t> filterCount = filters.constant();
  if (!filterCount || rank > 4) { // the skeletons have one or two spatial dimensions
    KernelConfig c;
    c.family = "pointwise";
    c.threads = 128;
    addVariant(out, {},
               specFor(desc, c, DimExpr::ceilDiv(images * pixels * filters, DimExpr(c.threads))));
    return okStatus();
  }
  int64_t groupFilters = *filterCount / std::max<int64_t>(desc.group, 1);
  if (groupFilters < 8 && desc.group > 1) { // depthwise and like it
    KernelConfig c;
    c.family = "conv.direct";
    c.threads = 128;
    if (desc.channelsLast)
      while (c.lanes < 4 && *filterCount % (2 * c.lanes) == 0)
        c.lanes *= 2;
    DimExpr pieces = images * pixels * filters;
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(pieces, DimExpr(c.threads * c.lanes))));
    return okStatus();
  }
  bool mma = target.hasTensorCores() && isHalf(desc.operands[0].dtype) &&
             desc.operands[0].dtype == desc.operands[1].dtype;
  KernelConfig c = mma ? mmaTile("conv.mma", 64, 128, 4) : simtTile("conv.simt", 64, 64, 256);
  DimExpr group = DimExpr(desc.group), perGroup = DimExpr(groupFilters);
  DimExpr m = desc.channelsLast ? pixels : perGroup, n = desc.channelsLast ? perGroup : pixels;
  addVariant(out, {}, tiled(desc, c, images * group, m, n));
  return okStatus();
}

Status attention(const KernelDesc &desc, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() != 4 || desc.reduction.size() != 2)
    return internalError("attention needs B, H, S, E and T, D", "kernel " + desc.name);
  const DimExpr &queries = desc.parallel[2];
  std::optional<int64_t> headV = desc.parallel[3].constant(), headQK = desc.reduction[1].constant();
  // Outside what the skeletons hold in registers: element by element.
  if (!headV || !headQK || *headV > 256 || *headQK > 256 || desc.operands[0].dtype == DType::F64) {
    KernelConfig c;
    c.family = "pointwise";
    c.threads = 128;
    addVariant(out, {},
               specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(c.threads))));
    return okStatus();
  }
  auto place = [&](KernelSpec spec) {
    spec.launches[0].grid[1] = desc.parallel[1];
    spec.launches[0].grid[2] = desc.parallel[0];
    return spec;
  };
  DimRange range = rangeOf(queries, desc);
  constexpr int64_t kDecode = 8;
  if (range.lo <= kDecode) {
    KernelConfig c;
    c.family = "attention.decode";
    c.threads = 256;
    bool always = range.hi <= kDecode;
    std::vector<DimCondition> guard;
    if (!always)
      guard.push_back({Kind::LessEqual, queries, DimExpr(kDecode)});
    addVariant(out, guard, place(specFor(desc, c, queries)));
    if (always)
      return okStatus();
  }
  KernelConfig c;
  c.family = "attention.stream";
  c.threads = 128;
  c.rows = 4;
  KernelSpec spec =
      place(specFor(desc, c, DimExpr::ceilDiv(queries, DimExpr(c.threads / 32 * c.rows))));
  spec.launches[0].sharedBytes = attentionSharedBytes(c, *headQK, *headV);
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

} // namespace

Variants chooseCuda(const KernelDesc &desc, const Target &target) {
  std::vector<KernelVariant> out;
  if (desc.serial) {
    KernelConfig c;
    c.family = "scatter";
    c.threads = 256;
    addVariant(out, {}, specFor(desc, c, DimExpr(1)));
    return out;
  }
  switch (desc.kind) {
  case KernelDesc::Kind::Reduction:
    reduction(desc, out);
    break;
  case KernelDesc::Kind::Scan: {
    KernelConfig c;
    c.family = "scan";
    c.threads = 128;
    addVariant(out, {},
               specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(c.threads))));
    break;
  }
  case KernelDesc::Kind::Gemm:
    LATHE_RETURN_IF_ERROR(gemm(desc, target, out));
    break;
  case KernelDesc::Kind::Conv:
    LATHE_RETURN_IF_ERROR(conv(desc, target, out));
    break;
  case KernelDesc::Kind::Attention:
    LATHE_RETURN_IF_ERROR(attention(desc, out));
    break;
  default:
    pointwise(desc, out);
    break;
  }
  return out;
}

} // namespace lathe::select
