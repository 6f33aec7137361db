//===- gemm_fragments.cpp - descriptor of gemm_fragments.cuh: packed weights, up to 64 rows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>

namespace lathe {

using select::ProductChoice;
using select::specFor;

namespace {

/// A configuration as the device counts: warps of 16 `tiles` columns, `across` of them side by side and `along` K, each
/// with `unit` elements of K in a stage.
struct Shape {
  int64_t octets, tiles, across, along, unit;

  static std::optional<Shape> of(const KernelConfig &c) {
    const int64_t warps = c.threads / 32;
    Shape s{c.rows / 8, c.tileM / 16, 0, 0, 0};
    if (c.threads % 32 != 0 || warps < 1 || s.octets < 1 || s.octets > 8 || c.rows % 8 != 0 || s.tiles < 1 ||
        c.tileM % 16 != 0 || c.tileN < c.tileM || c.tileN % c.tileM != 0)
      return {};
    s.across = c.tileN / c.tileM;
    if (warps % s.across != 0)
      return {};
    s.along = warps / s.across;
    s.unit = c.tileK / s.along;
    if (c.tileK % s.along != 0 || (s.unit != 32 && s.unit != 64))
      return {};
    return s;
  }
};

} // namespace

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &) {
  const std::optional<Shape> s = Shape::of(c);
  if (!s)
    return 0;
  const int64_t stage = c.tileN / 16 * s->along * 512 + c.rows * (c.tileK * 2 + 16);
  const int64_t parameters = s->across * s->along * 4 * c.tileM * 4, sums = s->along * c.rows * (c.tileN + 4) * 4;
  return std::max(c.stages * stage + parameters, sums);
}

/// The configuration with what it leaves out filled in; nothing where this product cannot run so.
static std::optional<KernelSpec> specOf(const ProductChoice &p, KernelConfig c) {
  const std::string packing = packedRecipe(p);
  if (packing.empty() || !p.target.hasWgmma() || p.b.codeGroup % 32 != 0)
    return {};
  const int64_t unit = 256 / bitWidth(p.stored.dtype), units = *p.sizes.k.constant() / unit;
  if (c.threads == 1) {
    constexpr int64_t kAlong = 4, kAcross = 2;
    c.threads = 32 * kAlong * kAcross;
    c.tileM = 32;
    c.tileN = c.tileM * kAcross;
    c.tileK = kAlong * unit;
    c.stages = 6;
    const int64_t tiles = (p.sizes.n.constant().value_or(4096) + c.tileN - 1) / c.tileN;
    while (c.cluster < 8 && 2 * c.cluster * tiles <= p.target.smCount && 4 * c.cluster * kAlong <= units)
      c.cluster *= 2;
  }
  const std::optional<Shape> s = Shape::of(c);
  if (!s || s->unit != unit || c.cluster < 1 || c.cluster > 8 || c.cluster > units || c.threads > 512)
    return {};
  if (!fitStages(c, p.target))
    return {};
  KernelSpec spec = specFor(p.desc, c, DimExpr::ceilDiv(p.sizes.n, DimExpr(c.tileN)) * DimExpr(c.cluster));
  LaunchSpec &launch = spec.launches[0];
  launch.sharedBytes = sharedBytes(c, {});
  launch.cluster[0] = c.cluster;
  launch.programmaticDependent = p.target.hasProgrammaticLaunch();
  spec.buffers[p.b.codes].packing = packing;
  return spec;
}

/// A depth whose rows gemm.packed cannot hold in registers, of what gemm.widened does not take (pairs of results).
/// Figures: test/perf/gpu/results/int4-sweep-h200.log.
static bool offer(ProductChoice &p) {
  constexpr int64_t kMostRows = 16;
  if (p.b.codes < 0 || bitWidth(p.stored.dtype) != 4 || p.rows.lo > kMostRows || p.covered >= kMostRows)
    return true;
  KernelConfig c{&kGemmFragments};
  c.rows = kMostRows;
  std::optional<KernelSpec> spec = specOf(p, c);
  return !spec || p.add(std::move(*spec), kMostRows);
}

const Skeleton kGemmFragments = {
    .family = "gemm.fragments",
    .block = "t n m k r s c: a tile of n columns, m of them a warp, of all rows, up to r, for c blocks of a cluster, which "
             "split K; a ring of s stages of k elements; weights of 4 or 8 bits as fragments",
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
                        c.rows = (p.rows.hi + 7) / 8 * 8;
                      return p.rows.hi <= c.rows ? specOf(p, c) : std::nullopt;
                    },
                .text = [](const KernelConfig &c, const ProductText &t) {
                  const std::optional<Shape> s = Shape::of(c);
                  if (!s || !t.depth)
                    return Instance{};
                  std::string tile = "FragmentTile<" + joined({s->octets, s->tiles, s->across, s->along, c.stages, c.cluster, s->unit}) + ">";
                  return Instance{{"gemm_fragments"}, "gemmFragments<" + tile + ">(" + sizesOf(t) + ");", tile};
                }}};

} // namespace lathe
