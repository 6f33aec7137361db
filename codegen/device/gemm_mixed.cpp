//===- gemm_mixed.cpp - descriptor of gemm_mixed.cuh: mixed-input products
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>

namespace lathe {

using select::ProductChoice;
using select::specFor;

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &) {
  return std::max(c.stages * (c.tileM * 128 + c.tileN * 64), c.tileM * (c.tileN + 4) * 4) +
         16 * c.stages + 1024;
}

/// Weights of 8 bits for more rows: tiles as high as the product while threads can hold the sums, so
/// that weights are widened once, and clusters where tiles are few. Figures: test/perf/gpu/results.
static bool offer(ProductChoice &p) {
  const int64_t smCount = p.target.smCount;
  bool alone = p.sizes.batch == DimExpr(1) && p.mma && p.b.codes >= 0 && bitWidth(p.stored.dtype) == 8 && p.b.transposed &&
               !p.a.transposed && p.target.hasWgmma() && !p.desc.resultPair;
  if (!alone || !p.map(p.stored, 64, 64, 64) || !p.map(p.a, 64, 64, 128))
    return true;
  constexpr int64_t kDepth = 64, kUnknown = 4096;
  int64_t n = p.sizes.n.constant().value_or(kUnknown), k = p.sizes.k.constant().value_or(kUnknown);
  for (int64_t upTo : {int64_t(32), int64_t(64), int64_t(96), int64_t(128), DimRange::kUnbounded}) {
    if (p.rows.lo > upTo || p.covered >= upTo)
      continue;
    KernelConfig c{&kGemmMixed};
    // Tiles for several rounds of 64 rows are wider; for one round higher ones take less time.
    bool wide = upTo == 64 && n > 64 * smCount;
    c.tileM = upTo == 64 && !wide ? 96 : std::min<int64_t>(upTo, 256);
    c.tileN = wide ? 128 : 64;
    c.threads = 2 * c.tileN + 32;
    int64_t most = std::min<int64_t>({upTo, p.rows.hi, kUnknown});
    int64_t tiles = (most + c.tileM - 1) / c.tileM * ((n + c.tileN - 1) / c.tileN);
    int64_t blocks = c.tileM <= 32 ? 2 * smCount : smCount; // small ones share
    while (c.cluster < 8 && 2 * c.cluster * tiles <= blocks && 8 * c.cluster * kDepth <= k)
      c.cluster *= 2;
    c.stages = tiles > smCount ? 4 : 8; // blocks share a multiprocessor
    while (c.stages > 2 && sharedBytes(c, {}) > p.target.sharedPerBlock)
      --c.stages;
    KernelSpec spec =
        specFor(p.desc, c,
                DimExpr::ceilDiv(p.sizes.m, DimExpr(c.tileM)) *
                    DimExpr::ceilDiv(p.sizes.n, DimExpr(c.tileN)) * DimExpr(c.cluster));
    LaunchSpec &launch = spec.launches[0];
    launch.cluster[0] = c.cluster;
    launch.sharedBytes = sharedBytes(c, {});
    launch.programmaticDependent = p.b.isWeight && upTo <= 128;
    spec.tensorMaps.push_back(*p.map(p.a, kDepth, c.tileM, 128));
    spec.tensorMaps.push_back(*p.map(p.stored, kDepth, c.tileN, 64));
    if (!p.add(std::move(spec), upTo))
      return false;
  }
  return true;
}

const Skeleton kGemmMixed = {
    .family = "gemm.mixed",
    .block = "t m n s c: one tile of m x n for c blocks of a cluster, which split K; weights of 8 bits, of "
             "sm_90a",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .product = {.takesCodes = true,
                .mixedInput = true,
                .epilogueLanes = 4,
                .offer = offer,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  std::string tile =
                      "MixedTile<" + joined({c.tileM, c.tileN, c.stages, c.cluster}) + ">";
                  return Instance{{"gemm_mixed"},
                                  "gemmMixed<" + tile + ">(h, map0, map1" +
                                      sizesOf(t).substr(1) + ");",
                                  tile};
                }}};

} // namespace lathe
