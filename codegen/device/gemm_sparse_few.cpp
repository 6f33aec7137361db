//===- gemm_sparse_few.cpp - descriptor of gemm_sparse_few.cuh: 2:4 sparse weights, few rows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>
#include <limits>

namespace lathe {

using select::ProductChoice;
using select::specFor;

static constexpr int64_t kDepth = 64, kUnitBytes = 1024 + 128, kPanel = 16; ///< of a unit
static constexpr int64_t kMostRows = 16;

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &) {
  constexpr int64_t kSums = 4 * 33 * 4; // of a warp, of 16 x 8
  const int64_t warps = c.threads / 32, nt = c.rows / 8, batch = c.tileN / kPanel;
  return warps * c.stages * c.lanes * kUnitBytes + 2 * batch * warps * nt * kSums +
         (c.cluster > 1 ? 2 * batch * nt * 128 * 4 : 0) + warps * c.stages * 8;
}

/// How many units of K a warp has, in whole parts of them.
static int64_t stepsOf(const KernelConfig &c, int64_t units) {
  const int64_t warps = c.threads / 32 * c.cluster * c.lanes;
  return (units + warps - 1) / warps * c.lanes;
}
/// At most what registers hold of A: 8 words of each, of each eight rows.
static int64_t mostSteps(const KernelConfig &c) {
  const int64_t most = c.threads <= 256 ? 128 : 64;
  return most / c.rows;
}

/// Clusters that run at a time: those of more than two blocks leave some multiprocessors of a GPC idle.
static int64_t clustersOf(const Target &target, int64_t cluster) {
  constexpr int64_t kGroup = 16;
  return cluster <= 2 ? target.smCount / cluster : target.smCount / kGroup * (kGroup / cluster);
}

/// As many stages as fit in beside the sums of the tiles after which warps meet; whether there are enough.
static bool fitStages(KernelConfig &c, int64_t turns, const Target &target) {
  constexpr int64_t kMost = 12;
  c.stages = std::min(kMost, (turns + 1) * c.tileK / c.lanes);
  while (c.stages > 1 && sharedBytes(c, {}) > target.sharedPerBlock)
    --c.stages;
  return c.stages >= 2 && sharedBytes(c, {}) <= target.sharedPerBlock;
}

/// The configuration with what it leaves out filled in; nothing where this product cannot run so.
static std::optional<KernelSpec> specOf(const ProductChoice &p, KernelConfig c) {
  std::string packing = p.sparsePacking();
  if (packing.empty() || !p.mma || !p.target.hasWgmma() || !p.aInPieces() || p.rows.hi < 1)
    return {};
  const int64_t units = (*p.sizes.k.constant() + kDepth - 1) / kDepth;
  const int64_t tiles = (*p.sizes.n.constant() + kPanel - 1) / kPanel;
  c.rows = c.rows <= 8 ? 8 : kMostRows;
  auto turnsOf = [&](int64_t cluster) {
    const int64_t clusters = clustersOf(p.target, cluster);
    return (tiles + clusters - 1) / clusters;
  };
  if (c.threads == 1) {
    // In units of K that the busiest multiprocessor has, and what it costs warps and blocks to begin and to meet: clusters
    // wait for each other, and a part is a copy. Figures: test/perf/gpu/results/sparse-h100.log.
    double least = std::numeric_limits<double>::infinity();
    KernelConfig best = c;
    for (int64_t cluster : {1, 2, 4})
      for (int64_t warps : {8, 16})
        for (int64_t part : {8, 7, 4, 2}) {
          KernelConfig now = c;
          now.threads = 32 * warps;
          now.cluster = cluster;
          now.lanes = part;
          now.tileK = stepsOf(now, units);
          const int64_t turns = turnsOf(cluster), batch = std::min<int64_t>(turns, cluster > 1 ? 4 : 2);
          now.tileN = kPanel * batch;
          if (now.tileK > mostSteps(now) || (cluster * warps - 1) * now.tileK >= units || !fitStages(now, turns, p.target))
            continue;
          double time = double(turns * (now.tileK * warps + (cluster == 1 ? 1 : cluster == 2 ? 8 : 40)) + 2 * warps +
                               4 * now.tileK / part);
          if (time < least) {
            least = time;
            best = now;
          }
        }
    c = best;
  }
  if (c.threads % 32 != 0 || c.threads < 128 || c.threads > 512 || c.cluster < 1 || c.cluster > 8 || c.lanes < 1 ||
      stepsOf(c, units) > mostSteps(c))
    return {};
  c.tileK = stepsOf(c, units);
  if (c.tileN < kPanel)
    c.tileN = kPanel;
  if (c.tileN % kPanel != 0 || (c.stages < 2 && !fitStages(c, turnsOf(c.cluster), p.target)) ||
      sharedBytes(c, {}) > p.target.sharedPerBlock)
    return {};
  const int64_t clusters = clustersOf(p.target, c.cluster);
  KernelSpec spec = specFor(p.desc, c, DimExpr(std::min(tiles, clusters) * c.cluster));
  spec.launches[0].sharedBytes = sharedBytes(c, {});
  spec.launches[0].cluster[0] = c.cluster;
  spec.launches[0].programmaticDependent = p.target.hasProgrammaticLaunch();
  spec.buffers[p.b.buffer].packing = packing;
  return spec;
}

static bool offer(ProductChoice &p) {
  if (!p.desc.alwaysSparse || !p.b.twoOfFour || p.pairs || p.desc.resultAmax)
    return true;
  return p.addEach({8, kMostRows}, [&](int64_t upTo) {
    KernelConfig c{&kGemmSparseFew};
    c.rows = upTo;
    return specOf(p, c);
  });
}

const Skeleton kGemmSparseFew = {
    .family = "gemm.sparse.few",
    .block = "t n k r s c: every so many tiles of 16 columns of C, n of them before warps meet, for up to r rows, K split "
             "among the warps of c blocks of a cluster, k steps of 64 for each warp and tile, with a ring of s parts of v of "
             "them; 2:4 sparse weights",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .product = {.piecesOfA = true,
                .sparse = true,
                .epilogueLanes = 2,
                .offer = offer,
                .asked =
                    [](const ProductChoice &p, KernelConfig c) {
                      if (c.rows == 1)
                        c.rows = p.rows.hi;
                      return p.rows.hi <= kMostRows ? specOf(p, c) : std::nullopt;
                    },
                .text = [](const KernelConfig &c, const ProductText &t) {
                  if (!t.depth)
                    return Instance{};
                  const int64_t warps = c.threads / 32;
                  std::string tile =
                      joined({warps, c.rows / 8, c.tileK / c.lanes, c.lanes, c.stages, c.tileN / kPanel, c.cluster});
                  return Instance{{"gemm_sparse_few"},
                                  "gemmSparseFew<" + tile + ", " + truth(*t.depth == kDepth * c.tileK * warps * c.cluster) +
                                      ">(" + sizesOf(t) + ");",
                                  "SparseFewTile<" + tile + ">"};
                }}};

} // namespace lathe
