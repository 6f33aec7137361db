//===- stream.cpp - descriptor of stream.cuh: weights of 16 bits through rings
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

namespace lathe {

using select::ProductChoice;
using select::specFor;

int64_t streamDepth(const KernelConfig &c) { return c.threads / 32 * 64; }

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &) {
  constexpr int64_t kStage = 16 * 64 * 2, kSums = 4 * 33 * 4; // of a warp; of 16 x 8 sums
  return c.threads / 32 * (c.stages * kStage + 2 * (c.rows / 8) * kSums);
}

/// The configuration with threads, columns and stages filled in where they are left out; nothing
/// where this product cannot run so. What weights are multiplied with stands in registers.
static std::optional<KernelSpec> specOf(const ProductChoice &p, KernelConfig c) {
  std::optional<int64_t> k = p.sizes.k.constant();
  constexpr int64_t kSteps = 8, kLeastStages = 3; // of 64 of k and 8 rows a warp
  if (!k || !p.streamsRows() || p.b.codes >= 0 || !p.aInPieces())
    return {};
  c.rows = c.rows <= 8 ? 8 : 16;
  c.tileN = p.desc.resultPair ? 8 : 16;
  if (c.threads == 1)
    c.threads = 512;
  if (c.threads % 32 != 0 || c.threads < 128 || c.threads > 512 ||
      (*k + streamDepth(c) - 1) / streamDepth(c) * (c.rows / 8) > kSteps)
    return {};
  auto fits = [&] { return sharedBytes(c, {}) <= p.target.sharedPerBlock; };
  if (c.stages == 0)
    for (c.stages = 6; c.stages > kLeastStages && !fits();)
      --c.stages;
  if (c.stages < kLeastStages || !fits())
    return {};
  DimExpr tiles = DimExpr::ceilDiv(p.sizes.n, DimExpr(c.tileN));
  KernelSpec spec = specFor(p.desc, c, DimExpr::min(tiles, DimExpr(p.target.smCount)));
  spec.launches[0].sharedBytes = sharedBytes(c, {});
  spec.launches[0].programmaticDependent = p.b.isWeight && p.target.hasProgrammaticLaunch();
  return spec;
}

/// The spec for up to so many rows where it is the best: there are many columns. All of what weights
/// are multiplied with goes to each block, which pays where it has three columns and more for each
/// row. Figures: test/perf/gpu/results.
static std::optional<KernelSpec> best(const ProductChoice &p, int64_t upTo) {
  constexpr int64_t kLeastDepth = 1024, kColumns = 3;
  int64_t columns = p.sizes.n.constant().value_or(0) * (p.desc.resultPair ? 2 : 1);
  if (!p.target.paysToStreamWeights() || p.sizes.k.constant().value_or(0) < kLeastDepth ||
      columns < kColumns * upTo * p.target.smCount)
    return {};
  KernelConfig c{&kGemmStream};
  c.rows = upTo;
  return specOf(p, c);
}

bool select::streamTakes(const ProductChoice &p, int64_t rows) {
  return best(p, rows).has_value();
}

static bool offer(ProductChoice &p) {
  return p.addEach({8, 16}, [&](int64_t upTo) { return best(p, upTo); });
}

const Skeleton kGemmStream = {
    .family = "gemm.stream",
    .block = "t n r s: every so many tiles of n (16, of pairs 8) columns of C for up to r rows, K split "
             "among the warps, each with a ring of s stages",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .product = {.streamsWeights = true,
                .piecesOfA = true,
                .pairs = true,
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
                  int64_t warps = c.threads / 32, share = streamDepth(c);
                  int64_t steps = (*t.depth + share - 1) / share;
                  return Instance{{"stream"},
                                  "gemmStream<" + joined({warps, c.rows / 8, steps, c.stages}) +
                                      ", " + truth(*t.depth == share * steps) + ">(" + sizesOf(t) +
                                      ");",
                                  "StreamTile<" + joined({warps, c.rows / 8, c.stages}) + ">"};
                }}};

} // namespace lathe
