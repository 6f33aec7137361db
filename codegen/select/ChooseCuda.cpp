//===- ChooseCuda.cpp - configurations on GPUs -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions and what needs no choice. Memory-bound kernels are chosen in
// ChooseCudaMemory.cpp, products in ChooseCudaGemm.cpp, attention in
// ChooseCudaAttention.cpp.
//
//===----------------------------------------------------------------------===//

#include "ChooseCuda.h"
#include "HopperConv.h"

#include <algorithm>

namespace lathe::select {

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

Result<std::vector<KernelConfig>> wantedConfigs(const KernelDesc &desc) {
  std::vector<KernelConfig> configs;
  for (size_t at = 0; at <= desc.wanted.size();) {
    size_t end = std::min(desc.wanted.find(',', at), desc.wanted.size());
    Result<KernelConfig> config = KernelConfig::parse(desc.wanted.substr(at, end - at));
    if (!config)
      return config.status();
    configs.push_back(*config);
    at = end + 1;
  }
  return configs;
}

namespace {

/// Tiles for ever more pixels; neighbours that are the same are one variant.
Status hopperConv(const KernelDesc &desc, const HopperConv &conv, std::vector<KernelVariant> &out) {
  if (!desc.wanted.empty()) {
    Result<std::vector<KernelConfig>> wanted = wantedConfigs(desc);
    if (!wanted)
      return wanted.status();
    std::vector<KernelSpec> specs;
    for (const KernelConfig &c : *wanted)
      if (conv.allows(c))
        specs.push_back(conv.spec(conv.complete(c)));
    if (specs.empty())
      return usageError("this convolution cannot run as '" + desc.wanted + "'",
                        "--config, kernel " + desc.name);
    std::vector<KernelSpec> otherwise(specs.begin() + 1, specs.end());
    addVariant(out, {}, std::move(specs.front()), std::move(otherwise));
    return okStatus();
  }
  DimRange pixels = rangeOf(conv.pixels, desc);
  struct Range {
    int64_t upTo;
    KernelConfig config, smaller; ///< smaller: the next best one, if there is one
  };
  std::vector<Range> ranges;
  int64_t from = std::max<int64_t>(1, pixels.lo);
  for (int64_t upTo : {int64_t(64), int64_t(512), int64_t(4096), int64_t(16384), int64_t(65536),
                       DimRange::kUnbounded}) {
    if (from > upTo)
      continue;
    constexpr int64_t kMany = 1 << 18;
    int64_t to = std::max(from, std::min({upTo, pixels.hi, kMany}));
    KernelConfig config = conv.choose(from, to);
    KernelConfig smaller = conv.choose(from, to, HopperConv::sumsOf(config));
    if (!ranges.empty() && ranges.back().config == config)
      ranges.back().upTo = upTo;
    else
      ranges.push_back({upTo, config, {}});
    ranges.back().smaller = smaller; // one for fewer pixels may load too few
    if (pixels.hi <= upTo)
      break;
    from = upTo + 1;
  }
  for (const Range &r : ranges) {
    std::vector<DimCondition> guard;
    if (&r != &ranges.back())
      guard.push_back({DimCondition::Kind::LessEqual, conv.pixels, DimExpr(r.upTo)});
    std::vector<KernelSpec> otherwise;
    if (!r.smaller.family.empty())
      otherwise.push_back(conv.spec(r.smaller));
    addVariant(out, std::move(guard), conv.spec(r.config), std::move(otherwise));
  }
  return okStatus();
}

Status conv(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  size_t rank = desc.parallel.size();
  if (rank < 3 || desc.operands.size() < 2)
    return internalError("a convolution needs images, pixels, channels", "kernel " + desc.name);
  DimExpr images = desc.parallel[0], filters = desc.parallel[rank - 1];
  DimExpr pixels = product({desc.parallel.begin() + 1, desc.parallel.end() - 1});
  if (auto hopper = HopperConv::of(desc, target))
    return hopperConv(desc, *hopper, out);
  if (auto stem = HopperStem::of(desc, target)) {
    addVariant(out, {}, stem->spec());
    return okStatus();
  }
  std::optional<int64_t> filterCount = filters.constant();
  if (!filterCount || rank > 5) { // the skeletons have up to three spatial dimensions
    KernelConfig c;
    c.family = "pointwise";
    c.threads = 128;
    addVariant(out, {},
               specFor(desc, c, DimExpr::ceilDiv(images * pixels * filters, DimExpr(c.threads))));
    return okStatus();
  }
  if (rank == 5) { // a picture for each plane of the results
    images = images * desc.parallel[1];
    pixels = product({desc.parallel.begin() + 2, desc.parallel.end() - 1});
  }
  int64_t groupFilters = *filterCount / std::max<int64_t>(desc.group, 1);
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  int64_t lanes = 128 / std::max<int64_t>(8, bitWidth(x.dtype));
  while (lanes > 1 && *filterCount % lanes != 0)
    lanes /= 2;
  if (rank < 5 && desc.channelsLast && desc.groupChannels == 1 && groupFilters == 1 && desc.group > 1 &&
      lanes >= 2 && isFloat(x.dtype) && x.buffer >= 0 && w.buffer >= 0 && w.isWeight) {
    KernelConfig c;
    c.family = "conv.depthwise";
    c.threads = 128;
    c.lanes = lanes;
    c.rows = 4; // results of a row that a thread has
    DimExpr width = desc.parallel[rank - 2];
    DimExpr threads = images * product({desc.parallel.begin() + 1, desc.parallel.end() - 2}) *
                      DimExpr::ceilDiv(width, DimExpr(c.rows)) * DimExpr(*filterCount / lanes);
    KernelSpec spec = specFor(desc, c, DimExpr::ceilDiv(threads, DimExpr(c.threads)));
    spec.buffers[w.buffer].packing = "taps";
    addVariant(out, {}, std::move(spec));
    return okStatus();
  }
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

} // namespace

Variants chooseCuda(const KernelDesc &desc, const Target &target) {
  std::vector<KernelVariant> out;
  if (desc.serial) {
    scatter(desc, out);
    return out;
  }
  switch (desc.kind) {
  case KernelDesc::Kind::Reduction:
    reduction(desc, target, out);
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
    LATHE_RETURN_IF_ERROR(attention(desc, target, out));
    break;
  default:
    pointwise(desc, out);
    break;
  }
  return out;
}

} // namespace lathe::select
