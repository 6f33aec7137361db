//===- gemm_packed.cpp - descriptor of gemm_packed.cuh: packed weights, few rows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>
#include <limits>

namespace lathe {

using select::ProductChoice;
using select::specFor;

/// Elements of K in 16 bytes of each lane of a warp.
static int64_t unitOf(int64_t bits) { return 256 / bits; }

bool fitStages(KernelConfig &c, const Target &target) {
  auto fits = [&] { return c.form->sharedBytes(c, {}) <= target.sharedPerBlock; };
  if (c.stages == 0)
    for (c.stages = 8; c.stages > 2 && !fits();)
      --c.stages;
  return c.stages >= 2 && fits();
}

std::string packedRecipe(const ProductChoice &p) {
  const int64_t bits = bitWidth(p.stored.dtype);
  std::optional<int64_t> k = p.sizes.k.constant();
  const int64_t unit = unitOf(bits), group = p.b.codeGroup;
  bool takes = p.b.codes >= 0 && group >= 0 && (bits == 4 || bits == 8) && p.b.isWeight &&
               p.b.transposed && p.sizes.batch == DimExpr(1) && p.mma && p.aInPieces() && k &&
               *k % unit == 0 && (group == 0 || group % unit == 0 || (unit % group == 0 && group >= 16));
  const BufferArg *codes = takes ? &p.desc.buffers[p.b.codes] : nullptr;
  if (!codes || !codes->packing.empty() || codes->physical != codes->dims)
    return {};
  return "fragments" + std::to_string(bits);
}

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &) {
  constexpr int64_t kPiece = 512, kSums = 4 * 33 * 4; // of a warp: of a stage, of 16 x 8 sums
  const int64_t warps = c.threads / 32, nt = c.rows / 8, batch = c.tileN / 16;
  return warps * (c.stages * c.tileK * kPiece + 2 * batch * nt * kSums) +
         (c.cluster > 1 ? 2 * batch * nt * 128 * 4 : 0) + warps * c.stages * 8;
}

/// How many units of K a warp has, at most what registers hold of A.
static int64_t stepsOf(const KernelConfig &c, int64_t units) {
  const int64_t warps = c.threads / 32 * c.cluster;
  return (units + warps - 1) / warps;
}
/// Registers of A: a word for each two elements of 16, of each eight rows.
static int64_t wordsOfStep(const KernelConfig &c, int64_t bits) { return (bits == 4 ? 8 : 4) * (c.rows / 8); }
static int64_t mostSteps(const KernelConfig &c, int64_t bits) {
  return (c.threads <= 256 ? 128 : 64) / wordsOfStep(c, bits);
}

/// Clusters that run at a time: those of more than two blocks leave some multiprocessors of a GPC idle, 12 of an H200's 132.
static int64_t clustersOf(const Target &target, int64_t cluster) {
  return cluster <= 2 ? target.smCount / cluster : target.smCount * 10 / 11 / cluster;
}

/// Tiles after which the warps of a block meet, of so many in all.
static int64_t batchOf(const KernelConfig &c, int64_t tiles) {
  const int64_t most = c.rows <= 8 ? 7 : 3, times = (tiles + most - 1) / most;
  return (tiles + times - 1) / times;
}

/// The configuration with what it leaves out filled in; nothing where this product cannot run so.
static std::optional<KernelSpec> specOf(const ProductChoice &p, KernelConfig c) {
  std::string packing = packedRecipe(p);
  if (packing.empty() || !p.target.hasWgmma())
    return {};
  const int64_t bits = bitWidth(p.stored.dtype), units = *p.sizes.k.constant() / unitOf(bits);
  const int64_t tiles = (p.sizes.n.constant().value_or(4096) + 15) / 16;
  c.rows = c.rows <= 8 ? 8 : 16;
  auto tilesOf = [&](int64_t cluster) {
    const int64_t clusters = clustersOf(p.target, cluster);
    return (tiles + clusters - 1) / clusters;
  };
  if (c.threads == 1) {
    // In units of K that the busiest multiprocessor has: tiles and their ends, where warps and blocks meet, what A
    // takes to get there, warps to begin and clusters to be there and to meet. Fewer than 12 warps hide less; more
    // than 8 lack registers for much of A. Fitted to test/perf/gpu/results/int4-packed-h200.log.
    constexpr int64_t kWordsOfMany = 48;
    double least = std::numeric_limits<double>::infinity();
    KernelConfig best = c;
    for (int64_t cluster : {1, 2, 4})
      for (int64_t warps = 16; warps >= 8; --warps) {
        KernelConfig now = c;
        now.threads = 32 * warps;
        now.cluster = cluster;
        const int64_t steps = stepsOf(now, units), rows = std::min(p.rows.hi, c.rows);
        if (steps > mostSteps(now, bits) || (cluster - 1) * warps * steps >= units)
          continue;
        const int64_t turns = tilesOf(cluster), batch = batchOf(now, turns), meets = (turns + batch - 1) / batch;
        const bool slow = warps < 12 || (warps > 8 && steps * wordsOfStep(now, bits) > kWordsOfMany);
        double time = double(turns) * (double(steps * warps) * (slow ? 1.08 : 1.0) + 2) + double(meets * 10 + 6 * warps) +
                      0.25 * double(rows * steps * warps) + double(cluster > 1 ? 60 * (meets + 1) : 0);
        // Groups that do not begin with a warp's part of K cost it a scale for each unit.
        if (const int64_t group = p.b.codeGroup / unitOf(bits); group > 1 && steps % group != 0)
          time *= 1.15;
        // Where warps have more steps than K, each looks whether a step is one.
        if (steps * warps * cluster != units)
          time *= 1.05;
        if (time < least) {
          least = time;
          best = now;
        }
      }
    c = best;
  }
  if (c.threads % 32 != 0 || c.threads < 128 || c.threads > 512 || c.cluster < 1 || c.cluster > 8 ||
      stepsOf(c, units) > mostSteps(c, bits))
    return {};
  c.tileK = stepsOf(c, units);
  if (c.tileN < 16 || c.tileN % 16 != 0)
    c.tileN = 16 * batchOf(c, tilesOf(c.cluster));
  if (c.stages == 0)
    for (c.stages = 2; c.stages * c.tileK * c.threads / 32 < 128 && c.stages < tilesOf(c.cluster);)
      ++c.stages; // pieces of 512 bytes under way
  if (sharedBytes(c, {}) > p.target.sharedPerBlock)
    return {};
  const DimExpr clusters = DimExpr::min(DimExpr::ceilDiv(p.sizes.n, DimExpr(16)), DimExpr(clustersOf(p.target, c.cluster)));
  KernelSpec spec = specFor(p.desc, c, clusters * DimExpr(c.cluster));
  spec.launches[0].sharedBytes = sharedBytes(c, {});
  spec.launches[0].cluster[0] = c.cluster;
  spec.launches[0].programmaticDependent = p.target.hasProgrammaticLaunch();
  spec.buffers[p.b.codes].packing = packing;
  return spec;
}

static bool offer(ProductChoice &p) {
  if (p.b.codes < 0 || bitWidth(p.stored.dtype) != 4)
    return true;
  return p.addEach({8, 16}, [&](int64_t upTo) {
    KernelConfig c{&kGemmPacked};
    c.rows = upTo;
    return specOf(p, c);
  });
}

const Skeleton kGemmPacked = {
    .family = "gemm.packed",
    .block = "t n k r s c: every so many tiles of 16 columns of C, n of them before warps meet, for up to r rows, K "
             "split among the warps of c blocks of a cluster, k pieces of 16 bytes for each lane and tile, with a ring "
             "of s tiles; weights of 4 or 8 bits as fragments",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .product = {.takesCodes = true,
                .packed = true,
                .epilogueLanes = 2,
                .offer = offer,
                .asked =
                    [](const ProductChoice &p, KernelConfig c) {
                      if (c.rows == 1)
                        c.rows = p.rows.hi;
                      return p.rows.hi <= 16 ? specOf(p, c) : std::nullopt;
                    },
                .text = [](const KernelConfig &c, const ProductText &t) {
                  if (!t.depth)
                    return Instance{};
                  const int64_t warps = c.threads / 32, units = *t.depth / unitOf(t.weightBits);
                  const int64_t nt = c.rows / 8, batch = c.tileN / 16;
                  return Instance{{"gemm_packed"},
                                  "gemmPacked<" +
                                      joined({warps, nt, c.tileK, c.stages, batch, c.cluster}) + ", " +
                                      truth(units == c.tileK * warps * c.cluster) + ">(" + sizesOf(t) +
                                      ");",
                                  "PackedTile<" +
                                      joined({warps, nt, c.tileK, c.stages, batch, c.cluster}) + ">"};
                }}};

} // namespace lathe
