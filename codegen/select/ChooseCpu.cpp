//===- ChooseCpu.cpp - configurations on CPUs --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block is what a worker claims at once: some thousands of elements, so that
// claiming costs little and a busy neighbour is made up for. Vectors are full
// registers of f32; constant weights of products are packed into panels in the
// order in which they are read.
//
//===----------------------------------------------------------------------===//

#include "Choose.h"

#include "lathe/codegen/Packing.h"

#include <algorithm>

namespace lathe::select {
namespace {

constexpr int64_t kBlockElements = 4096;

int64_t lanesFor(const Target &target) { return target.lanes(DType::F32); }

void pointwise(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  KernelConfig c;
  c.family = "pointwise";
  c.lanes = lanesFor(target);
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(kBlockElements))));
}

void reduction(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  KernelConfig c;
  c.lanes = lanesFor(target);
  DimExpr outer = product(desc.parallel);
  if (desc.rowsContiguous) {
    c.family = "row";
    int64_t length = std::max<int64_t>(1, product(desc.reduction).constant().value_or(512));
    c.rows = std::clamp<int64_t>(kBlockElements / length, 1, 64);
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.rows))));
  } else {
    c.family = "row";
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.lanes))));
  }
}

/// Register tile: rows by two registers of columns, accumulators below the
/// register count with room for operands.
KernelConfig productTile(const char *family, const Target &target) {
  KernelConfig c;
  c.family = family;
  c.lanes = lanesFor(target);
  c.tileM = target.vectorRegisters >= 32 ? 8 : 6;
  c.tileN = 2 * c.lanes;
  return c;
}

/// Lets a constant operand be packed, where the recipe takes it: static sizes
/// that are not 0, whole bytes.
void packWeight(KernelSpec &spec, const ContractionOperand &w, const std::string &recipe) {
  if (w.buffer < 0 || !w.isWeight)
    return;
  BufferArg &arg = spec.buffers[w.buffer];
  std::vector<int64_t> dims;
  for (const DimExpr &d : arg.dims)
    dims.push_back(d.constant().value_or(0));
  if (arg.physical == arg.dims && bitWidth(arg.dtype) >= 8 && PanelLayout::of(recipe, dims).ok())
    arg.packing = recipe;
}

Status gemm(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() < 2 || desc.operands.size() < 2)
    return internalError("a product needs M, N, K and two operands", "kernel " + desc.name);
  size_t rank = desc.parallel.size();
  DimExpr m = desc.parallel[rank - 2], n = desc.parallel[rank - 1];
  DimExpr batch = product({desc.parallel.begin(), desc.parallel.end() - 2});
  KernelConfig c = productTile("gemm", target);
  c.rows = 8 * c.tileM; // rows of one claim: eight register tiles share a panel in cache
  KernelSpec spec = specFor(desc, c, batch * DimExpr::ceilDiv(n, DimExpr(c.tileN)) *
                                         DimExpr::ceilDiv(m, DimExpr(c.rows)));
  packWeight(spec, desc.operands[1],
             "panels" + std::to_string(c.tileN) + (desc.operands[1].transposed ? "t" : ""));
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

Status conv(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  size_t rank = desc.parallel.size();
  if (rank < 3 || desc.operands.size() < 2)
    return internalError("a convolution needs images, pixels, channels", "kernel " + desc.name);
  DimExpr images = desc.parallel[0], filters = desc.parallel[rank - 1];
  DimExpr pixels = product({desc.parallel.begin() + 1, desc.parallel.end() - 1});
  KernelConfig c = productTile("conv", target);
  c.rows = 8 * c.tileM;
  KernelSpec spec = specFor(desc, c, images * DimExpr::ceilDiv(filters, DimExpr(c.tileN)) *
                                         DimExpr::ceilDiv(pixels, DimExpr(c.rows)));
  if (desc.group == 1)
    packWeight(spec, desc.operands[1], "filters" + std::to_string(c.tileN));
  else if (desc.groupChannels == 1)
    packWeight(spec, desc.operands[1], "taps");
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

Status attention(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() != 4)
    return internalError("attention needs B, H, S, E", "kernel " + desc.name);
  KernelConfig c;
  c.family = "attention";
  c.lanes = lanesFor(target);
  addVariant(out, {}, specFor(desc, c, desc.parallel[0] * desc.parallel[1] *
                                           DimExpr::ceilDiv(desc.parallel[2], DimExpr(c.rows))));
  return okStatus();
}

} // namespace

Variants chooseCpu(const KernelDesc &desc, const Target &target) {
  std::vector<KernelVariant> out;
  if (desc.serial) {
    KernelConfig c;
    c.family = "scatter";
    c.lanes = lanesFor(target);
    addVariant(out, {}, specFor(desc, c, DimExpr(1)));
    return out;
  }
  switch (desc.kind) {
  case KernelDesc::Kind::Reduction:
    reduction(desc, target, out);
    break;
  case KernelDesc::Kind::Scan: {
    KernelConfig c;
    c.family = "scan";
    c.lanes = lanesFor(target);
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(c.lanes))));
    break;
  }
  case KernelDesc::Kind::Gemm:
    LATHE_RETURN_IF_ERROR(gemm(desc, target, out));
    break;
  case KernelDesc::Kind::Conv:
    LATHE_RETURN_IF_ERROR(conv(desc, target, out));
    break;
  case KernelDesc::Kind::Attention:
    LATHE_RETURN_IF_ERROR(attention(desc, target, out));
    break;
  default:
    pointwise(desc, target, out);
    break;
  }
  return out;
}

} // namespace lathe::select
