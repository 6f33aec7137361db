//===- gemm_widened.cpp - descriptor of gemm_widened.cuh: packed weights, many rows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>
#include <limits>

namespace lathe {

using select::ProductChoice;
using select::specFor;

static constexpr int64_t kDepth = 128, kHalf = 64; ///< of a step, and of what TMA brings together of a row

/// Elements of K in a stage: of many rows half a step, so that there are enough stages.
static int64_t depthOf(const KernelConfig &c) { return c.tileM > 128 ? kHalf : kDepth; }

/// Bytes of a stage's weights for a column; `lanes` are the bits of a code.
static int64_t weightBytes(const KernelConfig &c) { return c.tileK * c.lanes / 8; }

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &) {
  return std::max(c.stages * (c.tileM * 2 * c.tileK + c.tileN * weightBytes(c)), c.tileM * (c.tileN + 4) * 4) +
         16 * c.stages + 1024;
}

/// Threads of a tile: two warps for each 32 columns, and those that load.
static int64_t threadsOf(const KernelConfig &c) { return 2 * c.tileN + (c.tileN > 64 && c.tileM > 128 ? 128 : 32); }

/// Stages that one who multiplies has at a time.
static int64_t heldStages(const KernelConfig &c) { return c.tileK < kDepth ? 3 : 2; }

/// Blocks that can share a multiprocessor: as many as have registers.
static int64_t blocksOfEach(const KernelConfig &c) {
  const int64_t warpgroups = c.tileM <= 32 ? 4 : c.tileM <= 64 ? 3 : c.tileM <= 128 ? 2 : 1;
  return std::max<int64_t>(1, warpgroups * 64 / c.tileN);
}

/// Stages of a block where `blocks` share a multiprocessor and its memory, 8 at most.
static int64_t stagesOf(KernelConfig c, int64_t blocks, const Target &target) {
  constexpr int64_t kKept = 1024; // of each block, for the driver
  const int64_t bytes = (target.sharedPerBlock + kKept) / blocks - kKept;
  for (c.stages = 8; c.stages > 0 && sharedBytes(c, {}) > bytes;)
    --c.stages;
  return c.stages;
}

/// Blocks that share a multiprocessor where there are `blocks` in all: no more than there are, and so few that a stage is
/// loaded ahead of those that are held.
static int64_t sharingBlocks(const KernelConfig &c, int64_t blocks, const Target &target) {
  const int64_t sms = select::multiprocessorsOf(target, c.cluster);
  int64_t shared = std::clamp<int64_t>((blocks + sms - 1) / sms, 1, blocksOfEach(c));
  while (shared > 1 && stagesOf(c, shared, target) <= heldStages(c))
    --shared;
  return shared;
}

/// How long tiles take, in clocks. The warpgroups of a multiprocessor take turns to widen and to multiply; what a step
/// takes besides is a chain of waits. Fitted to test/perf/gpu/results/int4-tiles-h200-h100.log.
static double timeOf(const KernelConfig &c, int64_t tiles, int64_t steps, const Target &target) {
  constexpr double kWaits = 580, kWiden = 300, kMultiplyRow = 4, kEnd = 1500, kAdd = 1000; // kAdd: a block of a cluster
  const int64_t sms = select::multiprocessorsOf(target, c.cluster), most = sharingBlocks(c, tiles * c.cluster, target);
  const double turn = std::max(kWiden, kMultiplyRow * double(c.tileM)), each = double((steps + c.cluster - 1) / c.cluster);
  double time = 0;
  for (int64_t blocks = tiles * c.cluster; blocks > 0; blocks -= most * sms) {
    const int64_t shared = std::min(most, (blocks + sms - 1) / sms);
    time += each * (kWaits + turn * double(shared * c.tileN / 64)) + kEnd + (c.cluster > 1 ? kAdd * double(c.cluster) : 0);
  }
  return time;
}

/// The configuration, of at most so many rows, with what it leaves out filled in; nothing where this product cannot run so.
static std::optional<KernelSpec> specOf(const ProductChoice &p, KernelConfig c, int64_t mostRows) {
  const std::string packing = packedRecipe(p);
  const int64_t group = p.b.codeGroup;
  if (packing.empty() || !p.target.hasWgmma() || p.desc.resultPair ||
      !(group == 0 || group % kHalf == 0 || (group >= 16 && kHalf % group == 0)))
    return {};
  const int64_t most = std::min<int64_t>({p.rows.hi, mostRows, 4096}), n = p.sizes.n.constant().value_or(4096), k = *p.sizes.k.constant();
  c.lanes = bitWidth(p.stored.dtype);
  if (c.tileM == 0)
    c.tileM = most <= 16 ? 16 : most <= 32 ? 32 : most <= 64 ? 64 : most <= 128 ? 128 : 256;
  c.tileK = depthOf(c);
  const int64_t high = (most + c.tileM - 1) / c.tileM;
  auto tilesOf = [&](int64_t columns) { return high * ((n + columns - 1) / columns); };
  if (c.tileN == 0) {
    const int64_t steps = (k + kDepth - 1) / kDepth;
    double least = std::numeric_limits<double>::infinity();
    KernelConfig best = c;
    for (int64_t columns : {128, 64})
      for (int64_t cluster : {1, 2, 4, 8}) {
        KernelConfig now = c;
        now.tileN = columns;
        now.cluster = cluster;
        if (4 * cluster > steps && cluster > 1) // too few steps to hide a load
          continue;
        if (double time = timeOf(now, tilesOf(columns), steps, p.target); time < least) {
          least = time;
          best = now;
        }
      }
    c = best;
  }
  if (c.tileM % 8 != 0 || c.tileM < 8 || c.tileM > 256 || (c.tileN != 64 && c.tileN != 128) || c.cluster < 1 || c.cluster > 8)
    return {};
  if (c.stages == 0)
    c.stages = std::max(heldStages(c), stagesOf(c, sharingBlocks(c, tilesOf(c.tileN) * c.cluster, p.target), p.target));
  c.threads = threadsOf(c);
  const std::optional<TensorMapArg> map = p.map(p.a, kHalf, c.tileM, 128);
  if (!map)
    return {};
  if (c.stages < heldStages(c) || sharedBytes(c, {}) > p.target.sharedPerBlock)
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
  weights.box = {weightBytes(c) * kTile / kWord, c.tileN / kTile};
  weights.elementBytes = kWord;
  spec.tensorMaps.push_back(std::move(weights));
  spec.buffers[p.b.codes].packing = packing;
  return spec;
}

/// Products of more rows than gemm.packed takes. Codes of 8 bits lie as they are for fewer than
/// these, and would be in the engine twice. Figures: test/perf/gpu/results/int4-sweep-h200.log.
static bool offer(ProductChoice &p) {
  constexpr int64_t kFewRows = 16;
  if (p.b.codes < 0 || (bitWidth(p.stored.dtype) == 8 && p.rows.lo <= kFewRows))
    return true;
  for (int64_t upTo : {kFewRows, int64_t(32), int64_t(64), int64_t(128), DimRange::kUnbounded}) {
    if (p.rows.lo > upTo || p.covered >= upTo)
      continue;
    auto tileOf = [&](int64_t rows) {
      KernelConfig c{&kGemmWidened};
      c.tileM = std::min<int64_t>(rows, 256);
      return specOf(p, c, upTo);
    };
    std::optional<KernelSpec> spec = tileOf(upTo);
    if (!spec)
      return true;
    // Many parameters of short groups may not fit in the registers that a block has which shares its multiprocessor.
    constexpr int64_t kAlone = 128;
    std::vector<KernelSpec> otherwise;
    if (upTo < kAlone)
      otherwise.push_back(*tileOf(kAlone));
    if (!p.add(std::move(*spec), upTo, {}, std::move(otherwise)))
      return false;
  }
  return true;
}

const Skeleton kGemmWidened = {
    .family = "gemm.widened",
    .block = "t v m n k s c: one tile of m x n for c blocks of a cluster, which split K; stages of k; weights of v bits as "
             "fragments",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .product = {.takesCodes = true,
                .mixedInput = true,
                .packed = true,
                .epilogueLanes = 4,
                .offer = offer,
                .asked = [](const ProductChoice &p, KernelConfig c) { return specOf(p, c, p.rows.hi); },
                .text = [](const KernelConfig &c, const ProductText &t) {
                  if (!t.depth)
                    return Instance{};
                  std::string tile = "WidenedTile<" + joined({c.tileM, c.tileN, c.stages, c.cluster, c.lanes, c.tileK}) + ">";
                  return Instance{{"gemm_widened"}, "gemmWidened<" + tile + ">(h, map0, map1" + sizesOf(t).substr(1) + ");", tile, {},
                                  c.tileM <= 64 ? blocksOfEach(c) : 0};
                }}};

} // namespace lathe
