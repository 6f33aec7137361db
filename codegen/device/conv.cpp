//===- conv.cpp - descriptors of conv.cuh: convolutions, portable
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

namespace lathe {

using namespace select;

/// Groups of one channel and filter, channels last: neighbouring channels are a thread's lanes.
static Result<bool> offerDepthwise(const KernelDesc &desc, const Target &,
                                   std::vector<KernelVariant> &out) {
  std::optional<PictureSizes> sizes = PictureSizes::of(desc);
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  size_t rank = desc.parallel.size();
  if (!sizes || rank > 4 || !desc.channelsLast || desc.groupChannels != 1 || desc.group < 2 ||
      sizes->groupFilters != 1 || !isFloat(x.dtype) || x.buffer < 0 || w.buffer < 0 || !w.isWeight)
    return false;
  KernelConfig c{&kConvDepthwise};
  c.threads = 128;
  c.lanes = 128 / std::max<int64_t>(8, bitWidth(x.dtype));
  while (c.lanes > 1 && sizes->filters % c.lanes != 0)
    c.lanes /= 2;
  if (c.lanes < 2)
    return false;
  c.rows = 4; // results of a row that a thread has
  DimExpr lines = product({desc.parallel.begin(), desc.parallel.end() - 2});
  DimExpr threads = lines * DimExpr::ceilDiv(desc.parallel[rank - 2], DimExpr(c.rows)) *
                    DimExpr(sizes->filters / c.lanes);
  KernelSpec spec = specFor(desc, c, DimExpr::ceilDiv(threads, DimExpr(c.threads)));
  spec.buffers[w.buffer].packing = "taps";
  addVariant(out, {}, std::move(spec));
  return true;
}

/// Few filters a group: tiles would be empty.
static Result<bool> offerDirect(const KernelDesc &desc, const Target &,
                                std::vector<KernelVariant> &out) {
  std::optional<PictureSizes> sizes = PictureSizes::of(desc);
  if (!sizes || sizes->groupFilters >= 8 || desc.group < 2)
    return false;
  KernelConfig c{&kConvDirect};
  c.threads = 128;
  if (desc.channelsLast)
    while (c.lanes < 4 && sizes->filters % (2 * c.lanes) == 0)
      c.lanes *= 2;
  DimExpr pieces = sizes->images * sizes->pixels * DimExpr(sizes->filters);
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(pieces, DimExpr(c.threads * c.lanes))));
  return true;
}

static Result<bool> offerTile(const KernelDesc &desc, const KernelConfig &c,
                              std::vector<KernelVariant> &out) {
  std::optional<PictureSizes> sizes = PictureSizes::of(desc);
  if (!sizes)
    return false;
  DimExpr perGroup(sizes->groupFilters);
  DimExpr m = desc.channelsLast ? sizes->pixels : perGroup,
          n = desc.channelsLast ? perGroup : sizes->pixels;
  addVariant(out, {}, tiled(desc, c, sizes->images * DimExpr(desc.group), m, n));
  return true;
}

static Result<bool> offerMma(const KernelDesc &desc, const Target &target,
                             std::vector<KernelVariant> &out) {
  if (!target.hasTensorCores() || !isHalf(desc.operands[0].dtype) ||
      desc.operands[0].dtype != desc.operands[1].dtype)
    return false;
  return offerTile(desc, mmaTile(kConvMma, 64, 128, 4), out);
}

static Result<bool> offerSimt(const KernelDesc &desc, const Target &,
                              std::vector<KernelVariant> &out) {
  return offerTile(desc, simtTile(kConvSimt, 64, 64, 256), out);
}

static Instance instance(const std::string &function, const ConvText &t, std::string tile = "") {
  return {{"conv"}, function + ">(h, " + t.sizes + ");", std::move(tile)};
}

const Skeleton kConvMma = {
    .family = "conv.mma",
    .block = "t m n k s: one tile of (filters x pixels) or, channels last, (pixels x filters)",
    .code = Skeleton::Code::Conv,
    .sharedBytes = mmaSharedBytes,
    .conv = {.tensorCores = true,
             .offer = offerMma,
             .text = [](const KernelConfig &c, const ConvText &t) {
               std::string tile = mmaTileText(c);
               return instance("convMma<" + tile + ", " + t.window, t, tile);
             }}};
const Skeleton kConvSimt = {
    .family = "conv.simt",
    .block = "t m n k: the same without tensor cores",
    .code = Skeleton::Code::Conv,
    .conv = {.offer = offerSimt, .text = [](const KernelConfig &c, const ConvText &t) {
               return instance("convSimt<" + simtTileText(c) + ", " + t.window, t);
             }}};
const Skeleton kConvDirect = {
    .family = "conv.direct",
    .block = "t v: t*v outputs, a thread each v",
    .code = Skeleton::Code::Conv,
    .conv = {.direct = true,
             .offer = offerDirect,
             .text = [](const KernelConfig &, const ConvText &t) {
               return instance("convDirect<" + t.window, t);
             }}};
const Skeleton kConvDepthwise = {
    .family = "conv.depthwise",
    .block = "t v r: t*v*r outputs, channels last: a thread has v channels of r neighbours",
    .code = Skeleton::Code::Conv,
    .conv = {.direct = true,
             .depthwise = true,
             .offer = offerDepthwise,
             .text = [](const KernelConfig &c, const ConvText &t) {
               return instance("convDepthwise<" + t.window + ", " + std::to_string(c.rows), t);
             }}};

} // namespace lathe
