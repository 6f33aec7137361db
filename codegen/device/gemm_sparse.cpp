//===- gemm_sparse.cpp - descriptors of gemm_sparse.cuh: 2:4 sparse weights, many rows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>
#include <cmath>

namespace lathe {

using select::ProductChoice;

/// Of a tile with tileM rows and tileN columns of the weights.
static int64_t sharedBytes(const KernelConfig &c, const TileFacts &facts) {
  constexpr int64_t kRow = 128; // bytes of a row in a stage
  const int64_t weights = 64 + 16 / facts.elementBytes; // of a column
  return c.stages * (c.tileN * weights + c.tileM * kRow) + 4 * 64 * select::sparseStagedRows(c.tileM) * 2 +
         16 * c.stages + 4 * 8 + 1024;
}

static KernelConfig complete(KernelConfig c, const TileFacts &facts, const Target &target) {
  c.threads = 384;
  c.tileK = kWgmmaStepBytes / facts.elementBytes;
  c.rows = 1;
  return withStages(c, kMostStages, target.sharedPerBlock, facts);
}

/// In ns: the block with the most tiles. What bounds a step is shared memory, which TMA fills and products read, rows once
/// for each 64 columns; else the second-level cache; small tiles wait for barriers. Figures:
/// test/perf/gpu/results/sparse-h100.log.
static double timeOf(const KernelConfig &c, const ProductSizes &s) {
  constexpr double kShared = 250, kLoad = 92, kMemory = 3000;    // bytes a ns
  constexpr double kStep = 175, kStart = 3000, kStore = 0.05;    // ns; of a result
  constexpr double kBegin = 8;     ///< ns of an instruction of a step
  constexpr double kUneven = 1.06; ///< rows that are not stored by 32 or 64
  constexpr double kWide = 1.03;   ///< many sums of a thread
  constexpr double kShown = 0.1;   ///< of what runs beside what takes longer
  constexpr double kPromoted = 1.08; ///< sums of tensor cores that are added up in registers
  constexpr int64_t kSlab = 64, kSums = 128; // columns of an instruction
  auto over = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t pair = c.cluster == 2 ? 2 : 1, tiles = over(s.n, c.tileN * pair) * pair * over(s.m, c.tileM);
  const double results = double(c.tileM * c.tileN), each = double(kWgmmaStepBytes / c.tileK); // bytes of an element
  const double places = 16 / each;                              // bytes of a column
  const double written = double(c.tileN) * (64 + places) + double(c.tileM * 128);
  const double read = double(c.tileN / kSlab) * (double(128 * c.tileM + 4096) + 64 * places);
  double step = std::max((written + read) / kShared + kBegin * double(c.tileN / kSlab), written / kLoad);
  step = std::pow(std::pow(step, 4) + std::pow(kStep, 4), 0.25);
  step *= c.form->wgmma.promoted ? kPromoted : 1;
  const double tile = (double(over(s.k, c.tileK)) * step + kStore * results) * (c.tileM % 64 != 0 ? kUneven : 1) *
                      (c.tileM * c.tileN > kSums * (isPingPong(c) ? 128 : 256) ? kWide : 1);
  const double rounds = isStreamK(c) ? double(tiles) / double(s.smCount) : double(over(tiles, s.smCount));
  const double busy = rounds * tile;
  const double weights = double(s.n) * double(s.k) * (each / 2 + 1.0 / 8);
  const double memory = (weights + double(s.m) * (each * double(s.k) + 2 * double(s.n))) / kMemory;
  return std::max(busy, memory) + kShown * std::min(busy, memory) + kStart;
}

static std::optional<KernelSpec> asked(const ProductChoice &p, KernelConfig c) { return p.wgmma(c); }

/// Where weights may be left out of the product at all costs. Whether it pays is decided layer by layer, by measurement.
static bool offer(ProductChoice &p) {
  if (!p.desc.alwaysSparse || !p.b.twoOfFour || p.pairs || p.desc.resultAmax)
    return true;
  const ProductSizes known{.m = 0,
                           .n = p.sizes.n.constant().value_or(0),
                           .k = p.sizes.k.constant().value_or(0),
                           .batch = 1,
                           .smCount = p.target.smCount};
  for (int64_t upTo : {int64_t(32), int64_t(64), int64_t(128), int64_t(256), int64_t(512), DimRange::kUnbounded}) {
    if (p.rows.lo > upTo || p.covered >= upTo)
      continue;
    constexpr int64_t kMany = 4096;
    ProductSizes sizes = known;
    sizes.m = std::max<int64_t>(1, std::min({upTo, p.rows.hi, std::max(kMany, p.rows.lo)}));
    auto choose = [&](int64_t sums) { // at most so many of a thread
      KernelConfig best;
      double least = 0;
      for (const Skeleton *form : {&kGemmSparseCooperative, &kGemmSparsePingpong, &kGemmSparsePromoted})
        for (int64_t tileM : {16, 32, 48, 64, 96, 128, 160, 176, 192, 208, 224, 256})
          for (int64_t tileN : {64, 128, 192, 256}) {
            KernelConfig c{form};
            c.tileM = tileM;
            c.tileN = tileN;
            c.tileK = kWgmmaStepBytes * 8 / bitWidth(p.b.dtype);
            if (tileM * tileN / (isPingPong(c) ? 128 : 256) > sums || !p.wgmma(c))
              continue;
            if (double time = timeOf(c, sizes); !best.form || time < least)
              least = time, best = c;
          }
      return best.form ? p.wgmma(best) : std::nullopt;
    };
    // What follows from the sums needs registers, too.
    constexpr int64_t kFew = 128, kMost = 208;
    std::optional<KernelSpec> spec = choose(p.desc.resultBare ? kMost : kFew), smaller = choose(kFew / 2);
    if (!spec)
      return true;
    std::vector<KernelSpec> otherwise;
    if (smaller && smaller->config != spec->config)
      otherwise.push_back(std::move(*smaller));
    if (!p.add(std::move(*spec), upTo, p.conditions(), std::move(otherwise)))
      return false;
  }
  return true;
}

static Instance instance(const KernelConfig &c, const ProductText &t) {
  std::string tile = "SparseTile<" + joined({c.tileN, c.tileM, c.stages}) + ", " + truth(isPingPong(c)) + ", Holes";
  if (isStreamK(c))
    tile += ", true";
  else if (c.form->wgmma.promoted)
    tile += ", false, " + std::to_string(c.cluster) + ", true";
  else if (c.cluster > 1)
    tile += ", false, 2";
  tile += ">";
  return {{"gemm_sparse"},
          "gemmSparse<" + tile + ">(h, map1, map2, map0, " + resultMaps(t.tma) + ", " + t.m + ", " + t.n + ", " + t.k + ");",
          tile};
}

static constexpr ProductForm kForm = {.units = ProductForm::Units::Wgmma,
                                      .sparse = true,
                                      .epilogueLanes = 2,
                                      .time = timeOf,
                                      .asked = asked,
                                      .text = instance};

static constexpr ProductForm offering(ProductForm form) {
  form.offer = offer;
  return form;
}

static std::vector<std::string> tiles() {
  std::vector<std::string> names;
  addTiles(names, "gemm.sparse.cooperative.streamk", 256, {128});
  for (const char *more : {"", ".c2"}) {
    addTiles(names, "gemm.sparse.promoted", 128, {128}, more);
    addTiles(names, "gemm.sparse.promoted", 192, {128}, more);
    addTiles(names, "gemm.sparse.cooperative", 128, {128, 256}, more);
    addTiles(names, "gemm.sparse.cooperative", 256, {128}, more);
    addTiles(names, "gemm.sparse.pingpong", 128, {64, 128, 192}, more);
    addTiles(names, "gemm.sparse.pingpong", 64, {64, 128, 192}, more);
  }
  return names;
}

const Skeleton kGemmSparseCooperative = {
    .family = "gemm.sparse.cooperative",
    .block = "t m n k s c: every so many tiles of m rows and n columns of 2:4 sparse weights, of sm_90a, two warpgroups a "
             "tile; with c = 2 the two blocks of a cluster load rows for each other",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .complete = complete,
    .tiles = tiles,
    .product = offering(kForm),
    .wgmma = {.swapped = true}};
const Skeleton kGemmSparsePingpong = {.family = "gemm.sparse.pingpong",
                                      .block = "t m n k s c: the same, a warpgroup a tile by turns",
                                      .code = Skeleton::Code::Product,
                                      .waitsItself = true,
                                      .sharedBytes = sharedBytes,
                                      .complete = complete,
                                      .tiles = tiles,
                                      .product = kForm,
                                      .wgmma = {.pingpong = true, .swapped = true}};
const Skeleton kGemmSparsePromoted = {
    .family = "gemm.sparse.promoted",
    .block = "t m n k s c: as gemm.sparse.cooperative for 8-bit floats; sums over more than 128 of k that are not left out in "
             "f32 registers",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .complete = complete,
    .tiles = tiles,
    .product = kForm,
    .wgmma = {.swapped = true, .promoted = true}};
const Skeleton kGemmSparseStreamK = {
    .family = "gemm.sparse.cooperative.streamk",
    .block = "t m n k s: as gemm.sparse.cooperative; tiles beyond whole rounds are shared by all blocks, which add up their "
             "sums through a work buffer (stream-K)",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .complete = complete,
    .tiles = tiles,
    .product = kForm,
    .wgmma = {.streamK = true, .swapped = true}};

} // namespace lathe
