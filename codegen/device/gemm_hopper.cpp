//===- gemm_hopper.cpp - descriptors of gemm_hopper.cuh: operands by TMA, wgmma
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>

namespace lathe {

using select::ProductChoice;

bool wgmmaStartsLate(const KernelConfig &c, int64_t k) {
  constexpr int64_t kLong = 2048;
  return c.form->wgmma.plain() && c.tileM == 128 && c.rows == 1 && k >= kLong;
}

int64_t wgmmaStagedColumns(int64_t tileN, int64_t resultBytes, bool windows) {
  if (windows && tileN == 128 && resultBytes == 1)
    return 128;
  if (tileN % 64 == 0 && resultBytes <= 2)
    return 64;
  return tileN % 32 == 0 ? 32 : 16;
}

int64_t wgmmaStagedRows(int64_t tileM) {
  for (int64_t rows : {64, 48, 32})
    if (tileM % rows == 0)
      return rows;
  return 16;
}

int64_t wgmmaSharedBytes(const KernelConfig &c, const TileFacts &facts) {
  constexpr int64_t kHeadColumns = 32;
  int64_t columns = facts.heads ? kHeadColumns * (facts.pair ? 2 : 1)
                    : isSwapped(c)
                        ? wgmmaStagedRows(c.tileM)
                        : wgmmaStagedColumns(facts.pair ? c.tileN / 2 : c.tileN, facts.resultBytes, facts.windows);
  return c.stages * (c.tileM + c.tileN) * 128 + 4 * 64 * columns * facts.resultBytes +
         16 * c.stages + 4 * 8 + 1024;
}

KernelConfig withStages(KernelConfig c, int64_t most, int64_t bytes, const TileFacts &facts) {
  constexpr int64_t kLeast = 2;
  c.stages = most;
  while (c.stages > kLeast && c.form->sharedBytes(c, facts) > bytes)
    --c.stages;
  return c;
}

KernelConfig completeWgmma(KernelConfig c, const TileFacts &facts, const Target &target) {
  c.threads = 384;
  c.tileK = kWgmmaStepBytes / facts.elementBytes;
  if (isSwapped(c))
    c.rows = 1;
  return withStages(c, kMostStages, target.sharedPerBlock, facts);
}

std::string wgmmaTileText(const KernelConfig &c) {
  int64_t high = isSwapped(c) ? c.tileN : c.tileM, wide = isSwapped(c) ? c.tileM : c.tileN;
  int64_t loaded = !isSwapped(c) && c.rows > 1 ? c.rows : high;
  return "WgmmaTile<" + joined({high, wide, c.stages, loaded}) + ", " + truth(isPingPong(c)) +
         ", Holes" + (isStreamK(c)            ? ", true"
                     : c.form->wgmma.parts ? ", false, 1, " + std::to_string(c.cluster)
                     : c.cluster > 1       ? ", false, 2"
                                           : "") + ">";
}

void addTiles(std::vector<std::string> &names, std::string_view family, int rows,
              std::initializer_list<int> columns, std::string_view more) {
  for (int n : columns)
    names.push_back(std::string(family) + ".m" + std::to_string(rows) + ".n" + std::to_string(n) +
                    std::string(more));
}

std::string resultMaps(const StoredByTma &tma) {
  const int result = tma.results.empty() ? 0 : tma.results.front();
  const int residual = tma.residual < 0 ? result : tma.residual;
  return "map" + std::to_string(result) + ", map" + std::to_string(residual);
}

static Instance instance(const KernelConfig &c, const ProductText &t) {
  std::string tile = wgmmaTileText(c), holes = "h", given;
  if (isSwapped(c))
    return {{"gemm_hopper"},
            "gemmWgmma<" + tile + ">(h, map1, map0, " + resultMaps(t.tma) + ", " + t.batch +
                ", " + t.n + ", " + t.m + ", " + t.k + ");",
            tile};
  if (t.tma.byHead) {
    holes = "pairs";
    given = "Holes pairs = h;\n";
    for (size_t n = 0; n < t.tma.results.size(); ++n)
      given += "  pairs.maps[" + std::to_string(n) + "] = &map" + std::to_string(t.tma.results[n]) + ";\n";
    given += "  ";
  }
  const bool promoted = c.form->wgmma.promoted;
  return {{promoted ? "gemm_promoted" : "gemm_hopper"},
          std::string(promoted ? "gemmPromoted<" : "gemmWgmma<") + tile + ">(" + holes +
              ", map0, map1, " + resultMaps(t.tma) + ", " + t.batch + ", " + t.m + ", " + t.n + ", " +
              t.k + ");",
          tile,
          given};
}

static std::optional<KernelSpec> asked(const ProductChoice &p, KernelConfig c) { return p.wgmma(c); }

static std::vector<std::string> tiles() {
  std::vector<std::string> names;
  addTiles(names, "gemm.pingpong", 128, {64, 96, 112, 128, 160, 192});
  addTiles(names, "gemm.cooperative", 128, {64, 96, 112, 128, 192, 224, 256});
  addTiles(names, "gemm.pingpong", 64, {32, 48, 64, 96, 128, 192, 224});
  addTiles(names, "gemm.pingpong.streamk", 128, {128, 192});
  addTiles(names, "gemm.cooperative.streamk", 128, {256});
  addTiles(names, "gemm.cooperative.swapped", 96, {128, 256});
  addTiles(names, "gemm.cooperative.swapped", 160, {128});
  addTiles(names, "gemm.cooperative.swapped", 192, {128});
  addTiles(names, "gemm.split", 64, {32, 64, 96, 128, 224});
  for (const char *cluster : {".c2", ".c4", ".c8"})
    addTiles(names, "gemm.split", 64, {32, 48, 64, 96, 128, 224}, cluster);
  return names;
}

/// Of a tile's columns 32 are stored together of a head.
static constexpr ProductForm kForm = {.units = ProductForm::Units::Wgmma,
                                      .pairs = true,
                                      .blockScales = true,
                                      .amax = true,
                                      .epilogueLanes = 2,
                                      .time = select::timeOfTile,
                                      .asked = asked,
                                      .text = instance};

static constexpr ProductForm offering(ProductForm form) {
  form.offer = [](ProductChoice &p) { return p.addWgmma(); };
  return form;
}

// The first of them chooses among all, and those of gemm_promoted.cuh and gemm_split.cuh.
const Skeleton kGemmPingpong = {
    .family = "gemm.pingpong",
    .block = "t m n k s r c: every so many tiles (m x n, r rows of A loaded) of sm_90a; with c = 2 the two "
             "blocks of a cluster load columns for each other",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = wgmmaSharedBytes,
    .complete = completeWgmma,
    .tiles = tiles,
    .product = offering(kForm),
    .wgmma = {.pingpong = true}};
const Skeleton kGemmCooperative = {.family = "gemm.cooperative",
                                   .block = "t m n k s r c: the same, two warpgroups a tile",
                                   .code = Skeleton::Code::Product,
                                   .waitsItself = true,
                                   .sharedBytes = wgmmaSharedBytes,
                                   .complete = completeWgmma,
                                   .tiles = tiles,
                                   .product = kForm};
const Skeleton kGemmCooperativeParts = {
    .family = "gemm.cooperative.parts",
    .block = "t m n k s r c: the same; sums of k in c parts as the blocks of gemm.split have them, added in their order",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = wgmmaSharedBytes,
    .complete = completeWgmma,
    .product = kForm,
    .wgmma = {.parts = true}};
const Skeleton kGemmPingpongStreamK = {
    .family = "gemm.pingpong.streamk",
    .block = "t m n k s r: the same; tiles beyond whole rounds are shared by all blocks, which add up their "
             "sums through a work buffer (stream-K)",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = wgmmaSharedBytes,
    .complete = completeWgmma,
    .tiles = tiles,
    .product = kForm,
    .wgmma = {.pingpong = true, .streamK = true}};
const Skeleton kGemmCooperativeStreamK = {.family = "gemm.cooperative.streamk",
                                         .block = "t m n k s r: the same",
                                         .code = Skeleton::Code::Product,
                                         .waitsItself = true,
                                         .sharedBytes = wgmmaSharedBytes,
                                         .complete = completeWgmma,
                                         .tiles = tiles,
                                         .product = kForm,
                                         .wgmma = {.streamK = true}};
const Skeleton kGemmPingpongSwapped = {
    .family = "gemm.pingpong.swapped",
    .block = "t m n k s: the same with the columns of B as rows of the instruction: m any multiple of 16, n "
             "of 64 or 128",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = wgmmaSharedBytes,
    .complete = completeWgmma,
    .tiles = tiles,
    .product = kForm,
    .wgmma = {.pingpong = true, .swapped = true}};
const Skeleton kGemmCooperativeSwapped = {.family = "gemm.cooperative.swapped",
                                          .block = "t m n k s: the same",
                                          .code = Skeleton::Code::Product,
                                          .waitsItself = true,
                                          .sharedBytes = wgmmaSharedBytes,
                                          .complete = completeWgmma,
                                          .tiles = tiles,
                                          .product = kForm,
                                          .wgmma = {.swapped = true}};

// gemm_promoted.cuh, with the same tiles.
const Skeleton kGemmPromoted = {
    .family = "gemm.promoted",
    .block = "t m n k s r: as gemm.cooperative for 8-bit floats; sums over more than 128 of k in f32 registers",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = wgmmaSharedBytes,
    .complete = completeWgmma,
    .tiles =
        [] {
          std::vector<std::string> names;
          addTiles(names, "gemm.promoted", 128, {32, 48, 64, 96, 112, 128, 160, 176, 192});
          return names;
        },
    .product = kForm,
    .wgmma = {.promoted = true}};

// gemm_split.cuh.

int64_t splitSharedBytes(const KernelConfig &c, const TileFacts &) {
  int64_t rows = c.rows > 1 ? c.rows : 64;
  return std::max(c.stages * (rows + c.tileN) * 128, rows * (c.tileN + 8) * 4) + 16 * c.stages +
         1024;
}

std::string splitTileText(const KernelConfig &c) {
  return "SplitTile<" + joined({c.tileN, c.stages, c.rows > 1 ? c.rows : 64, c.cluster}) + ", Holes>";
}

static KernelConfig completeSplit(KernelConfig c, const TileFacts &facts, const Target &target) {
  c.threads = 160;
  c.tileK = kWgmmaStepBytes / facts.elementBytes;
  return withStages(c, kMostStages, target.sharedPerBlock, facts);
}

static Instance splitInstance(const KernelConfig &c, const ProductText &t) {
  std::string tile = splitTileText(c);
  return {{"gemm_split"},
          "gemmSplit<" + tile + (c.form->wgmma.promoted ? ", true" : "") + ">(h, map0, map1" +
              sizesOf(t).substr(1) + ");",
          tile};
}

static constexpr ProductForm splitForm() {
  ProductForm form = kForm;
  form.amax = false;
  form.epilogueLanes = 4;
  form.text = splitInstance;
  return form;
}

const Skeleton kGemmSplit = {
    .family = "gemm.split",
    .block = "t n k s r c: one tile of 64 x n for c blocks of a cluster, which split K, of sm_90a",
    .code = Skeleton::Code::Product,
    .waitsItself = true,
    .sharedBytes = splitSharedBytes,
    .complete = completeSplit,
    .tiles = tiles,
    .product = splitForm(),
    .wgmma = {.splitK = true}};
const Skeleton kGemmSplitPromoted = {.family = "gemm.split.promoted",
                                     .block = "t n k s r c: the same as gemm.promoted has it",
                                     .code = Skeleton::Code::Product,
                                     .waitsItself = true,
                                     .sharedBytes = splitSharedBytes,
                                     .complete = completeSplit,
                                     .product = splitForm(),
                                     .wgmma = {.splitK = true, .promoted = true}};

} // namespace lathe
