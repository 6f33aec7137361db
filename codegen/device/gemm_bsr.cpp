//===- gemm_bsr.cpp - descriptor of gemm_bsr.cuh: weights with blocks of zeros
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"
#include "lathe/support/BlockSteps.h"

#include <algorithm>
#include <cmath>

namespace lathe {

using select::ProductChoice;

static constexpr int64_t kTileColumns = kPairedPanels * kBlockSide, kMostRows = 256;

/// Of a tile with tileM rows.
static int64_t sharedBytes(const KernelConfig &c, const TileFacts &) {
  constexpr int64_t kRow = 2 * kBlockSide; // bytes of a step
  return c.stages * (kTileColumns + c.tileM) * kRow + 4 * 64 * wgmmaStagedRows(c.tileM) * 2 + 16 * c.stages + 4 * 8 + 2 * 32 + 1024;
}

static KernelConfig complete(KernelConfig c, const TileFacts &facts, const Target &target) {
  c.threads = 384;
  c.tileK = kBlockSide;
  c.rows = 1;
  return withStages(c, kMostStages, target.sharedPerBlock, facts);
}

/// In ns: the block with the most tiles, all of which take as long as the mean one. A step takes as long as multiplying its
/// blocks or loading them and its rows, whichever takes longer, or as the barriers of a stage at least.
static double timeOf(const KernelConfig &c, const ProductSizes &s) {
  constexpr double kMultiply = 2900, kLoad = 78;       // products, bytes a ns of a multiprocessor
  constexpr double kMemory = 3000;                     // bytes a ns of all
  constexpr double kStep = 120, kStart = 3000, kStore = 0.12; // ns; of a result
  auto over = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t pairs = over(s.n, kTileColumns), tiles = pairs * over(s.m, c.tileM);
  const double rows = double(c.tileM), each = s.blocks / s.steps; // blocks of a step
  const double multiply = each * rows * kBlockSide * kBlockSide / kMultiply;
  const double load = (each * kBlockSide + rows) * 2 * kBlockSide / kLoad;
  const double step = std::max({multiply, load, kStep});
  const double tile = s.steps / double(pairs) * step + kStore * rows * kTileColumns;
  // A launch ahead reads the rows.
  constexpr double kLaunch = 2500;
  const double ahead = c.form->product.checksRows ? kLaunch + 2 * double(s.m) * double(s.k) / kMemory : 0;
  const double memory = (s.blocks * kBlockSide * kBlockSide * 2 + 2 * double(s.m) * double(s.n)) / kMemory;
  return std::max(double(over(tiles, s.smCount)) * tile, memory) + kStart + ahead;
}

static std::optional<KernelSpec> asked(const ProductChoice &p, KernelConfig c) {
  c.tileN = kTileColumns;
  return p.wgmma(c);
}

/// The fastest tile of at most so many rows, by the model.
static KernelConfig choose(const ProductChoice &p, const Skeleton &form, const ProductSizes &sizes, int64_t mostRows) {
  KernelConfig best;
  double least = 0;
  for (int64_t tileM : {16, 32, 48, 64, 96, 128, 160, 192, 224, 256}) {
    KernelConfig c{&form};
    c.tileM = tileM;
    c.tileN = kTileColumns;
    if (tileM > mostRows || !p.wgmma(c))
      continue;
    if (double time = timeOf(c, sizes); !best.form || time < least)
      least = time, best = c;
  }
  return best;
}

/// Where zeros are to be left out at all costs, or where an estimate says that it pays although rows are looked through for
/// infinities first, so that results stay what they are.
static bool offer(ProductChoice &p) {
  if (p.b.blocks64 < 0 || p.pairs || p.desc.resultAmax || !p.sizes.n.constant())
    return true;
  // Two zeros of each four are left out by other kernels, which multiply half of a dense matrix.
  constexpr double kHalf = 0.5;
  const int64_t n = *p.sizes.n.constant(), k = p.sizes.k.constant().value_or(1);
  if (p.b.twoOfFour && double(p.b.blocks64) > kHalf * double(BlockSteps::most(k, n).first))
    return true;
  ProductSizes sizes{.m = 0, .n = n, .k = k, .batch = 1, .smCount = p.target.smCount,
                     .blocks = double(p.b.blocks64), .steps = double(p.b.blockSteps)};
  const Skeleton &form = p.desc.alwaysSparse ? kGemmBsr : kGemmBsrChecked;
  if (!p.desc.alwaysSparse) {
    constexpr double kGain = 0.97; // at most, of the dense time
    // Of few rows other kernels stream weights faster, and a product has its weights in one form for all rows.
    constexpr int64_t kFewRows = 16;
    sizes.m = p.usualRows();
    KernelConfig best = choose(p, form, sizes, kMostRows);
    std::optional<double> dense = p.denseTime(sizes.m);
    if (p.rows.lo <= kFewRows || !best.form || !dense || timeOf(best, sizes) > kGain * *dense)
      return true;
  }
  for (int64_t upTo : {int64_t(16), int64_t(32), int64_t(64), int64_t(128), int64_t(256), int64_t(512), DimRange::kUnbounded}) {
    if (p.rows.lo > upTo || p.covered >= upTo)
      continue;
    constexpr int64_t kMany = 4096;
    sizes.m = std::max<int64_t>(1, std::min({upTo, p.rows.hi, std::max(kMany, p.rows.lo)}));
    // What follows from the sums needs registers, too.
    KernelConfig best = choose(p, form, sizes, kMostRows), smaller = choose(p, form, sizes, kMostRows / 2);
    if (!best.form)
      return true;
    std::optional<KernelSpec> spec = p.wgmma(best);
    std::vector<KernelSpec> otherwise;
    if (smaller != best)
      otherwise.push_back(*p.wgmma(smaller));
    if (!p.add(std::move(*spec), upTo, p.conditions(), std::move(otherwise)))
      return false;
  }
  return true;
}

static Instance instance(const KernelConfig &c, const ProductText &t) {
  std::string tile = "BsrTile<" + joined({c.tileM, c.stages, c.cluster}) + ", Holes>";
  return {{"gemm_bsr"}, "gemmBsr<" + tile + ">(h, map0, " + resultMaps(t.tma) + ", " + t.m + ", " + t.n + ", " + t.k + ");", tile};
}

static Instance checkedInstance(const KernelConfig &c, const ProductText &t) {
  Instance made = instance(c, t);
  made.before = {"finiteRows<256>(h, " + t.m + ", " + t.k + ", (u32 *)work0);"};
  return made;
}

static constexpr ProductForm kForm = {.units = ProductForm::Units::Wgmma,
                                      .blockSparse = true,
                                      .epilogueLanes = 2,
                                      .time = timeOf,
                                      .asked = asked,
                                      .text = instance};

static constexpr ProductForm offering(ProductForm form) {
  form.offer = offer;
  return form;
}

static constexpr ProductForm checking(ProductForm form) {
  form.checksRows = true;
  form.text = checkedInstance;
  return form;
}

const Skeleton kGemmBsr = {
    .family = "gemm.bsr.cooperative",
    .block = "t m n k s: every so many tiles of m rows and n columns of weights with blocks of zeros, of sm_90a, a warpgroup "
             "for each 64 of the columns; with c = 2 the two blocks of a cluster load weights for each other",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .complete = complete,
    .tiles =
        [] {
          std::vector<std::string> names;
          for (int rows : {64, 128, 192, 256})
            addTiles(names, "gemm.bsr.cooperative", rows, {128});
          return names;
        },
    .product = offering(kForm),
    .wgmma = {.swapped = true}};
const Skeleton kGemmBsrChecked = {
    .family = "gemm.bsr.cooperative.checked",
    .block = "t m n k s: the same behind a launch that finds infinities and NaN in the rows, which zeros that are left out make NaN",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .complete = complete,
    .product = checking(kForm),
    .wgmma = {.swapped = true}};

} // namespace lathe
