//===- gemv_active.cpp - descriptor of gemv_active.cuh: one row, of inputs that are often zero
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"
#include "lathe/support/Packing.h"

#include <algorithm>

namespace lathe {

using select::ProductChoice;
using select::specFor;

/// The configuration with what it leaves out filled in; nothing where this product cannot run so.
static std::optional<KernelSpec> specOf(const ProductChoice &p, KernelConfig c) {
  // Weights are stored once, and several rows want them otherwise.
  if (!p.desc.operands[0].inactive || p.rows.lo < 1 || p.rows.hi > 1 || p.sizes.batch != DimExpr(1) || p.pairs ||
      p.desc.resultAmax || !p.b.isWeight || p.b.buffer < 0 || p.b.codes >= 0 || !p.sizes.n.constant() || !p.sizes.k.constant())
    return {};
  const BufferArg &weight = p.desc.buffers[p.b.buffer];
  const bool taken = weight.dtype == DType::F32 || weight.dtype == DType::F16 || weight.dtype == DType::BF16;
  if (!taken || weight.dtype != p.b.dtype || p.a.dtype != p.b.dtype || weight.physical != weight.dims || !weight.packing.empty())
    return {};
  const int64_t n = *p.sizes.n.constant(), k = *p.sizes.k.constant(), piece = 128 / bitWidth(weight.dtype);
  constexpr int64_t kThreads = 256, kUnroll = 8, kMostCluster = 8, kLeastDepth = 256;
  auto over = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t wanted = p.target.smCount * 3 / 2; // blocks
  if (c.threads == 1)
    c.threads = kThreads;
  if (c.stages == 0)
    c.stages = kUnroll;
  // As wide as a warp reads at once, or half of it, so that there are enough blocks; the blocks of a cluster split K.
  const int64_t most = p.target.hasClusters() ? kMostCluster : 1;
  if (c.tileN == 0)
    c.tileN = over(n, 32 * piece) * most < wanted ? 16 * piece : 32 * piece;
  if (c.tileK == 0)
    for (c.tileK = 1; c.tileK < most && over(n, c.tileN) * c.tileK < wanted && k / (2 * c.tileK) >= kLeastDepth;)
      c.tileK *= 2;
  const bool allowed = (c.threads == 256 || c.threads == 512) && c.stages >= 1 && c.stages <= 16 &&
                       (c.tileN == 16 * piece || c.tileN == 32 * piece) && (c.tileK & (c.tileK - 1)) == 0 && c.tileK <= most;
  std::vector<int64_t> dims;
  for (const DimExpr &d : weight.dims)
    dims.push_back(d.constant().value_or(0));
  const std::string packing = "panels" + std::to_string(c.tileN) + (p.b.transposed ? "t" : "");
  constexpr int64_t kMostElements = int64_t(1) << 32; // of a panel
  if (!allowed || k * c.tileN >= kMostElements || !PanelLayout::of(packing, dims).ok())
    return {};
  KernelSpec spec = specFor(p.desc, c, DimExpr(over(n, c.tileN) * c.tileK));
  spec.buffers[p.b.buffer].packing = packing;
  spec.launches[0].cluster[0] = c.tileK;
  spec.launches[0].programmaticDependent = p.target.hasProgrammaticLaunch();
  return spec;
}

static bool offer(ProductChoice &p) {
  // With half of the inputs a kernel of fewer weights gains nothing: the list takes as long as those that are not read.
  constexpr int64_t kLeastWeights = int64_t(1) << 25;
  const int64_t weights = p.sizes.n.constant().value_or(0) * p.sizes.k.constant().value_or(0);
  if (!p.desc.alwaysSparse && weights < kLeastWeights)
    return true;
  std::optional<KernelSpec> spec = specOf(p, KernelConfig{&kGemvActive});
  return !spec || p.add(std::move(*spec), 1);
}

const Skeleton kGemvActive = {
    .family = "gemv.active",
    .block = "t n k s: n columns of C for one row, whose elements other than zero are listed first: weights that zeros meet are "
             "not read; k blocks of a cluster split K, s pieces a round",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .product = {.fewRows = true,
                .leavesOutInputs = true,
                .epilogueLanes = 1,
                .offer = offer,
                .asked = specOf,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  return Instance{{"gemv_active"},
                                  "gemvActive<" + joined({c.tileN, c.threads / 32, c.tileK, c.stages}) + ">(h, " + t.n + ", " + t.k + ");",
                                  ""};
                }}};

} // namespace lathe
