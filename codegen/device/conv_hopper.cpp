//===- conv_hopper.cpp - descriptors of conv_hopper.cuh: windows by TMA
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>
#include <cmath>

namespace lathe {

/// Of what is read and written, once each.
static double timeOfMemory(const WindowSizes &sizes) {
  constexpr double kMemory = 3939;
  double channels = static_cast<double>(sizes.groupChannels * sizes.groups);
  double all = static_cast<double>(sizes.filters * sizes.groups);
  return static_cast<double>(sizes.elementBytes) *
         (sizes.pixels * (sizes.pixelsRead * channels + all) + all * static_cast<double>(sizes.depth)) / kMemory;
}

/// The constants are a fit to a sweep over the windows of ResNet-50 on the H200; they are no rates of
/// the machine.
static double timeOfTile(const KernelConfig &c, const WindowSizes &sizes) {
  constexpr double kMultiply = 4222, kFeed = 126, kLatency = 1006, kStart = 1500, kRound = 308;
  constexpr double kEpilogue = 37, kRows = 90;
  double results = static_cast<double>(c.tileM * c.tileN), m = sizes.pixels;
  double across = std::ceil(static_cast<double>(sizes.filters) / static_cast<double>(c.tileN));
  double blocks =
      std::ceil(m / static_cast<double>(c.tileM)) * across * static_cast<double>(sizes.groups);
  double rounds = std::ceil(blocks / sizes.smCount);
  double step = std::max({results * 64 / kMultiply * (c.tileN % 64 && !isSwapped(c) ? 1.335 : 1),
                          static_cast<double>(c.tileM + c.tileN) * 128 / kFeed,
                          kLatency / static_cast<double>(c.stages)});
  if (!isPingPong(c))
    step *= isSwapped(c) && rounds > 1 ? 1.03 : 0.985;
  if (isSwapped(c)) // results by filter take fewer instructions; odd rows are stored in small pieces
    step *= c.tileM % 64 ? 0.96 : 0.93;
  else if (c.tileM == 64)
    step = std::max(step * 0.814, kRows);
  // Ping-pong hides all epilogues but the last.
  double busy = rounds * (static_cast<double>(sizes.steps) * step + kRound) +
                results / kEpilogue * (isPingPong(c) ? 1 : rounds);
  constexpr double kBusy = 0.02; // what decides among those that memory makes equal
  return std::max(busy, timeOfMemory(sizes)) + kBusy * busy + kStart;
}

/// Windows come as fast as TMA makes rows; a block more costs its part of the sums.
static double timeOfSplitTile(const KernelConfig &c, const WindowSizes &sizes) {
  constexpr double kStart = 2450, kStep = 105, kPart = 60;
  double across = std::ceil(static_cast<double>(sizes.filters) / static_cast<double>(c.tileN));
  double blocks = std::ceil(sizes.pixels / static_cast<double>(c.tileM)) * across *
                  static_cast<double>(sizes.groups * c.cluster);
  double rounds = std::ceil(blocks / sizes.smCount);
  double steps = std::ceil(static_cast<double>(sizes.steps) / static_cast<double>(c.cluster));
  double feed = rounds * steps * kStep * std::max(1.0, static_cast<double>(64 + c.tileN) / 128);
  if (rounds > 1) // blocks that all run at a time wait for their first bytes, whichever there are
    feed = std::max(feed, timeOfMemory(sizes));
  return feed + kPart * static_cast<double>(c.cluster) + kStart;
}

/// No more stages than the steps of a block; two blocks fit into a multiprocessor.
static KernelConfig completeSplit(KernelConfig c, const TileFacts &facts, const Target &target) {
  constexpr int64_t kBlocks = 2, kPerBlock = 1024;
  c.threads = 160;
  c.tileK = kWgmmaStepBytes / facts.elementBytes;
  int64_t most = kMostStages;
  if (facts.steps > 0)
    most = std::clamp<int64_t>((facts.steps + c.cluster - 1) / c.cluster, 2, most);
  return withStages(c, most, target.sharedPerBlock / kBlocks - kPerBlock, facts);
}

static std::vector<std::string> tiles() {
  std::vector<std::string> names;
  addTiles(names, "conv.pingpong", 128, {32, 64, 96, 128});
  addTiles(names, "conv.pingpong", 192, {32, 64});
  addTiles(names, "conv.pingpong", 64, {32, 64, 96, 128, 256});
  addTiles(names, "conv.cooperative", 128, {64, 128, 256});
  addTiles(names, "conv.cooperative", 256, {64, 128});
  for (int rows : {96, 160, 192})
    addTiles(names, "conv.cooperative.swapped", rows, {128});
  for (const char *cluster : {".c2", ".c4", ".c8"})
    addTiles(names, "conv.split", 64, {16, 32, 64}, cluster);
  return names;
}

static Instance instance(const KernelConfig &c, const ConvText &t) {
  KernelConfig whole = c;
  whole.rows = 1; // windows are loaded for all rows
  std::string tile = wgmmaTileText(whole);
  std::string rows = isSwapped(c) ? t.filters + ", " + t.pixels : t.pixels + ", " + t.filters;
  return {{"gemm_hopper", "conv_hopper"},
          "gemmWgmma<" + tile + ">(h, " + (isSwapped(c) ? "map1, map0, " : "map0, map1, ") +
              resultMaps(t.tma) + ", " + t.groups + ", " + rows + ", " + t.depth + ");",
          tile};
}

// The first of them chooses among all.
const Skeleton kConvPingpong = {
    .family = "conv.pingpong",
    .block = "t m n k s: as gemm.pingpong; rows are pixels of all results, columns filters",
    .code = Skeleton::Code::ImageProduct,
    .waitsItself = true,
    .sharedBytes = wgmmaSharedBytes,
    .complete = completeWgmma,
    .tiles = tiles,
    .wgmma = {.pingpong = true},
    .conv = {.windows = true, .time = timeOfTile, .offer = select::offerWindows, .text = instance}};
const Skeleton kConvCooperative = {.family = "conv.cooperative",
                                   .block = "t m n k s: as gemm.cooperative, the same",
                                   .code = Skeleton::Code::ImageProduct,
                                   .waitsItself = true,
                                   .sharedBytes = wgmmaSharedBytes,
                                   .complete = completeWgmma,
                                   .tiles = tiles,
                                   .conv = {.windows = true, .time = timeOfTile, .text = instance}};
const Skeleton kConvPingpongSwapped = {.family = "conv.pingpong.swapped",
                                       .block = "t m n k s: filters as rows of the instruction",
                                       .code = Skeleton::Code::ImageProduct,
                                       .waitsItself = true,
                                       .sharedBytes = wgmmaSharedBytes,
                                       .complete = completeWgmma,
                                       .tiles = tiles,
                                       .wgmma = {.pingpong = true, .swapped = true},
                                       .conv = {.windows = true, .time = timeOfTile, .text = instance}};
const Skeleton kConvCooperativeSwapped = {.family = "conv.cooperative.swapped",
                                          .block = "t m n k s: the same",
                                          .code = Skeleton::Code::ImageProduct,
                                          .waitsItself = true,
                                          .sharedBytes = wgmmaSharedBytes,
                                          .complete = completeWgmma,
                                          .tiles = tiles,
                                          .wgmma = {.swapped = true},
                                          .conv = {.windows = true, .time = timeOfTile, .text = instance}};
const Skeleton kConvSplit = {
    .family = "conv.split",
    .block = "t n k s r c: as gemm.split",
    .code = Skeleton::Code::ImageProduct,
    .waitsItself = true,
    .sharedBytes = splitSharedBytes,
    .complete = completeSplit,
    .tiles = tiles,
    .wgmma = {.splitK = true},
    .conv = {.windows = true,
             .time = timeOfSplitTile,
             .text = [](const KernelConfig &c, const ConvText &t) {
               std::string tile = splitTileText(c);
               return Instance{{"gemm_split", "conv_hopper"},
                               "gemmSplit<" + tile + ">(h, map0, map1, " + t.pixels + ", " +
                                   t.filters + ", " + t.depth + ");",
                               tile};
             }}};

static int64_t stemSharedBytes(const KernelConfig &c, const TileFacts &f) {
  int64_t raw = (f.channels * f.lines * f.columns * 2 + 127) / 128 * 128;
  int64_t in = (f.lines * f.columns * 8 + 127) / 128 * 128;
  return 4 * c.tileN * 128 + 2 * raw + c.stages * in + 8 * (2 * c.stages + 2) + 1024;
}

const Skeleton kConvStem = {
    .family = "conv.stem",
    .block = "t m n s: every so many tiles of m rows of n results, 64 filters",
    .code = Skeleton::Code::ImageProduct,
    .waitsItself = true,
    .sharedBytes = stemSharedBytes,
    .conv = {.stem = true, .offer = select::offerStem, .text = [](const KernelConfig &c, const ConvText &t) {
               std::string tile = "StemTile<" + joined({t.channels, c.tileM, c.tileN, c.stages}) +
                                  ", " + t.window + ">";
               return Instance{{"gemm_hopper", "conv_hopper"},
                               "convStem<" + tile + ">(h, map0, map1, " + t.images + ", " +
                                   t.sizes + ", " + t.filters + ");",
                               tile};
             }}};

} // namespace lathe
