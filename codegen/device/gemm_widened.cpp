//===- gemm_widened.cpp - descriptor of gemm_widened.cuh: packed weights, many rows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>

namespace lathe {

using select::ProductChoice;
using select::specFor;

static constexpr int64_t kDepth = 64; ///< of a stage

/// Bytes of a stage's weights for a column, by the bits of a code.
static int64_t weightBytes(int64_t bits) { return kDepth * bits / 8; }

/// `lanes` are the bits of a code.
static int64_t sharedBytes(const KernelConfig &c, const TileFacts &) {
  return std::max(c.stages * (c.tileM * 2 * kDepth + c.tileN * weightBytes(c.lanes)), c.tileM * (c.tileN + 4) * 4) +
         16 * c.stages + 1024;
}

/// Threads of a tile: two warps for each 32 columns, and those that load.
static int64_t threadsOf(const KernelConfig &c) { return 2 * c.tileN + (c.tileN > 64 && c.tileM > 128 ? 128 : 32); }

/// The configuration with what it leaves out filled in; nothing where this product cannot run so.
static std::optional<KernelSpec> specOf(const ProductChoice &p, KernelConfig c) {
  const std::string packing = packedRecipe(p);
  const int64_t group = p.b.codeGroup;
  if (packing.empty() || !p.target.hasWgmma() || p.desc.resultPair ||
      !(group == 0 || group % kDepth == 0 || (group >= 16 && kDepth % group == 0)))
    return {};
  const int64_t most = std::min<int64_t>(p.rows.hi, 4096), n = p.sizes.n.constant().value_or(4096), k = *p.sizes.k.constant();
  c.lanes = bitWidth(p.stored.dtype);
  if (c.tileM == 0)
    c.tileM = most <= 16 ? 16 : most <= 32 ? 32 : most <= 64 ? 64 : most <= 128 ? 128 : 256;
  if (c.tileN == 0) {
    // Wide tiles where there are enough of them, or where a weight would be widened for rows of several tiles; clusters
    // where tiles are few.
    const int64_t smCount = p.target.smCount, high = (most + c.tileM - 1) / c.tileM;
    auto tilesOf = [&](int64_t columns) { return high * ((n + columns - 1) / columns); };
    c.tileN = tilesOf(128) * (c.tileM > 128 ? 3 : 1) >= smCount ? 128 : 64;
    // A step of one warpgroup is a chain of waits, so that several blocks share a multiprocessor where their stages are
    // small: two, four of 32 rows or of enough steps each (race_int4.py: 15 to 58 % of the time less). Of 128 rows two
    // in pairs (20 %), while more of a cluster cost more than they gain.
    auto blocksOfEach = [&](int64_t cluster) {
      constexpr int64_t kManySteps = 24;
      if (c.tileN > 64 || c.tileM > 128)
        return 1;
      if (c.tileM > 64)
        return cluster == 2 ? 2 : 1;
      return c.tileM <= 32 || k / kDepth / cluster >= kManySteps ? 4 : 2;
    };
    while (c.cluster < 8 && 2 * c.cluster * tilesOf(c.tileN) <= blocksOfEach(2 * c.cluster) * smCount &&
           8 * c.cluster * kDepth <= k)
      c.cluster *= 2;
    if (c.cluster * tilesOf(c.tileN) > smCount && c.tileN == 64 && c.tileM <= 128 && c.stages == 0)
      c.stages = c.tileM <= 64 ? 6 : 5;
  }
  if (c.tileM % 8 != 0 || c.tileM < 8 || c.tileM > 256 || (c.tileN != 64 && c.tileN != 128) || c.cluster < 1 || c.cluster > 8)
    return {};
  c.threads = threadsOf(c);
  const std::optional<TensorMapArg> map = p.map(p.a, kDepth, c.tileM, 128);
  if (!map)
    return {};
  if (!fitStages(c, p.target))
    return {};
  KernelSpec spec = specFor(p.desc, c, DimExpr::ceilDiv(p.sizes.m, DimExpr(c.tileM)) * DimExpr::ceilDiv(p.sizes.n, DimExpr(c.tileN)) *
                                           DimExpr(c.cluster));
  LaunchSpec &launch = spec.launches[0];
  launch.cluster[0] = c.cluster;
  launch.sharedBytes = sharedBytes(c, {});
  launch.programmaticDependent = p.target.hasProgrammaticLaunch();
  spec.tensorMaps.push_back(*map);
  // Packed weights: a row for each 16 columns, in words of 8 bytes.
  constexpr int64_t kTile = 16, kWord = 8;
  const int64_t row = k * c.lanes * kTile / 8;
  TensorMapArg weights;
  weights.buffer = p.b.codes;
  weights.dims = {DimExpr(row / kWord), DimExpr::ceilDiv(p.sizes.n, DimExpr(kTile))};
  weights.strides = {DimExpr(row)};
  weights.box = {weightBytes(c.lanes) * kTile / kWord, c.tileN / kTile};
  weights.elementBytes = kWord;
  spec.tensorMaps.push_back(std::move(weights));
  spec.buffers[p.b.codes].packing = packing;
  return spec;
}

/// Products of more rows than gemm.packed takes. Codes of 8 bits lie as they are for fewer than
/// these, and would be in the engine twice. Figures: test/perf/gpu/results/int4-sweep-h200.log.
static bool offer(ProductChoice &p) {
  constexpr int64_t kManyRows = 128;
  if (p.b.codes < 0 || (bitWidth(p.stored.dtype) == 8 && p.rows.lo <= kManyRows))
    return true;
  return p.addEach({16, 32, 64, kManyRows, DimRange::kUnbounded}, [&](int64_t upTo) {
    KernelConfig c{&kGemmWidened};
    c.tileM = std::min<int64_t>(upTo, 256);
    return specOf(p, c);
  });
}

const Skeleton kGemmWidened = {
    .family = "gemm.widened",
    .block = "t v m n s c: one tile of m x n for c blocks of a cluster, which split K; weights of v bits as fragments",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .product = {.takesCodes = true,
                .mixedInput = true,
                .packed = true,
                .epilogueLanes = 4,
                .offer = offer,
                .asked = specOf,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  if (!t.depth)
                    return Instance{};
                  std::string tile = "WidenedTile<" + joined({c.tileM, c.tileN, c.stages, c.cluster, c.lanes}) + ">";
                  return Instance{{"gemm_widened"}, "gemmWidened<" + tile + ">(h, map0, map1" + sizesOf(t).substr(1) + ");", tile};
                }}};

} // namespace lathe
