//===- skinny.cpp - descriptors of skinny.cuh: weights of 16 bits for few rows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>

namespace lathe {

using select::ProductChoice;
using select::specFor;

// Figures: test/perf/gpu/results.
constexpr int64_t kMany = 8192;

static KernelSpec specOf(const ProductChoice &p, const KernelConfig &c) {
  KernelSpec s = specFor(p.desc, c, DimExpr::ceilDiv(p.sizes.n, DimExpr(c.tileN)));
  s.launches[0].programmaticDependent = p.b.isWeight && p.target.hasProgrammaticLaunch();
  return s;
}

static int64_t over(int64_t x, int64_t y) { return (x + y - 1) / y; }

/// Whether weights through rings are better for one row, too: K is long enough for them, and columns
/// do not take many rounds of them.
static bool leavesOneRow(const ProductChoice &p) {
  constexpr int64_t kLong = 3072, kFewColumns = 32768;
  return p.aInPieces() && p.sizes.k.constant().value_or(4096) >= kLong &&
         p.sizes.n.constant().value_or(kMany) <= kFewColumns && streamTakes(p, 8);
}

/// One row, weights with contiguous k.
static bool offerRow(ProductChoice &p) {
  // Fusion has seen to it that one row takes pairs whole.
  if (!p.streamsRows() || p.rows.lo > 1 || leavesOneRow(p) || (p.pairs && p.rows.hi > 1))
    return true;
  int64_t k = p.sizes.k.constant().value_or(4096);
  const int64_t piece = 128 / bitWidth(p.stored.dtype);
  // Warps of a block take 32 pieces of each column at a time.
  KernelConfig c{&kGemvRow};
  int64_t pieces = over(k, 32 * piece), warps = 1;
  while (warps < 8 && 2 * warps <= pieces)
    warps *= 2;
  if (p.b.bareCodes)
    warps = std::min<int64_t>(warps, 4);
  c.threads = 32 * warps;
  c.tileN = p.b.bareCodes                    ? 4
            : p.b.codes >= 0                 ? 2
            : p.desc.resultPair               ? 1
            : k <= kMany || p.desc.pairHead   ? 2
                                              : 1;
  c.stages = p.b.codes >= 0 ? 1 : std::min<int64_t>(2, over(pieces, warps));
  return p.add(specOf(p, c), 1);
}

/// Up to 16 rows, the same weights.
static bool offerSkinny(ProductChoice &p) {
  if (!p.streamsRows() || !p.aInPieces() || p.rows.lo > 16 || p.covered >= 16)
    return true;
  const int64_t piece = 128 / bitWidth(p.stored.dtype);
  // Warps take four pieces of 16 columns at a time.
  // Many columns are left to tensor maps; columns for one block a multiprocessor take large ones.
  int64_t k = p.sizes.k.constant().value_or(4096), n = p.sizes.n.constant().value_or(kMany);
  int64_t steps = over(k, 4 * piece);
  constexpr int64_t kWide = 16384;
  if (p.hasTensorMaps() && n >= kWide)
    return true;
  KernelConfig c{&kGemmSkinny};
  bool one = n <= 32 * p.target.smCount;
  c.threads = 32 * std::min<int64_t>(one ? 16 : 8, steps >= 32 ? 16 : steps >= 16 ? 8 : 4);
  c.tileN = one ? 32 : 16;
  c.rows = 8;
  c.stages = 4;
  auto round = [&] { return c.threads / 8 * piece * c.stages; }; // of k
  if (p.b.codes >= 0) { // widening takes what registers more columns would
    c.tileN = 16;
    c.threads = 32 * (steps >= 32 ? 16 : steps >= 16 ? 8 : 4);
    if (k % round() != 0)
      c.stages = 2;
  }
  while (c.stages > 1 && round() > k)
    c.stages /= 2;
  if (p.covered < 8 && !p.add(specOf(p, c), 8))
    return false;
  if (p.rows.hi > 8 && p.b.codes >= 0) {
    c.rows = 16;
    if (n >= kWide) {
      c.threads = std::min<int64_t>(c.threads, 128);
      c.stages = std::min<int64_t>(c.stages, 2);
    }
    return p.add(specOf(p, c), 16);
  }
  if (p.rows.hi > 8 && !p.mayHaveTensorMaps()) { // tensor maps are faster from nine rows on
    c.threads = std::min<int64_t>(c.threads, 256);
    c.tileN = 32;
    c.rows = 16;
    c.stages = 4;
    return p.add(specOf(p, c), 16);
  }
  return true;
}

/// One row and 16-bit weights with contiguous n.
static bool offerColumns(ProductChoice &p) {
  if (p.rows.lo > 1 || p.sizes.batch != DimExpr(1) || !p.mma || p.b.transposed ||
      !p.target.paysToStreamWeights() || !p.inPieces(p.b))
    return true;
  // Few columns: the blocks of a cluster split K.
  int64_t n = p.sizes.n.constant().value_or(kMany), k = p.sizes.k.constant().value_or(4096);
  bool few = n < 128 * p.target.smCount;
  KernelConfig c{&kGemvColumns};
  c.threads = 256;
  c.tileN = 128;
  c.tileK = few ? 8 : 1;
  c.stages = few ? 8 : 16;
  while (c.tileK > 1 && k / c.tileK < 128)
    c.tileK /= 2;
  KernelSpec spec =
      specFor(p.desc, c, DimExpr::ceilDiv(p.sizes.n, DimExpr(c.tileN)) * DimExpr(c.tileK));
  spec.launches[0].cluster[0] = c.tileK;
  spec.launches[0].programmaticDependent = p.b.isWeight;
  return p.add(std::move(spec), 1);
}

const Skeleton kGemvRow = {
    .family = "gemv.row",
    .block = "t n s: n columns of C for one row, K split among the warps, s pieces a round",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .product = {.streamsWeights = true,
                .fewRows = true,
                .takesCodes = true,
                .widensToF32 = true,
                .pairs = true,
                .epilogueLanes = 1,
                .offer = offerRow,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  return Instance{{"skinny"},
                                  "gemvRow<" + joined({c.tileN, c.threads / 32, c.stages}) +
                                      ">(h, " + t.n + ", " + t.k + ");",
                                  ""};
                }}};

const Skeleton kGemvColumns = {
    .family = "gemv.columns",
    .block = "t n k s: the same for weights with contiguous n; k blocks of a cluster split K",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .product = {.streamsWeights = true,
                .acrossK = true,
                .fewRows = true,
                .takesCodes = true,
                .epilogueLanes = 1,
                .offer = offerColumns,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  return Instance{{"skinny"},
                                  "gemvColumns<" +
                                      joined({c.tileN, c.threads / 32, c.tileK, c.stages}) +
                                      ">(h, " + t.n + ", " + t.k + ");",
                                  ""};
                }}};

const Skeleton kGemmSkinny = {
    .family = "gemm.skinny",
    .block = "t n r s: n columns of C for up to r rows, K split among the warps, s pieces a round",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .product = {.streamsWeights = true,
                .piecesOfA = true,
                .takesCodes = true,
                .epilogueLanes = 2,
                .offer = offerSkinny,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  int64_t round = c.threads / 8 * (128 / t.weightBits) * c.stages; // of k
                  return Instance{{"skinny"},
                                  "gemmSkinny<" +
                                      joined({c.tileN / 16, c.rows / 8, c.threads / 32, c.stages}) +
                                      ", " + truth(t.dividesDepth(round)) + ">(" + sizesOf(t) +
                                      ");",
                                  ""};
                }}};

} // namespace lathe
