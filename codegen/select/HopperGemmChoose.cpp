//===- HopperGemmChoose.cpp - tiles of products of sm_90a --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tiles that are worth a look, ranked by the time that their descriptors say (HopperGemmTime.cpp).
//
//===----------------------------------------------------------------------===//

#include "HopperGemm.h"
#include "HopperGemmFit.h"
#include "HopperGemmTime.h"

#include <algorithm>
#include <cmath>

namespace lathe::select {
namespace {

constexpr int64_t kLineBytes = 128; ///< of the cache
constexpr int64_t kUnknown = 4096; ///< what a size is taken for that only a run knows

/// The fastest tile for a range of rows, of those that are considered; ties go to the earlier one.
class Search {
public:
  Search(const HopperGemm &gemm, int64_t from, int64_t to, int64_t sums)
      : gemm(gemm), from(from), to(to), sums(sums) {}

  void consider(const Skeleton &form, int64_t tileM, std::initializer_list<int64_t> columns,
                int64_t cluster = 1);
  KernelConfig best;

private:
  const HopperGemm &gemm;
  int64_t from, to, sums;
  double bestTime = 0;
};

void Search::consider(const Skeleton &form, int64_t tileM, std::initializer_list<int64_t> columns,
                      int64_t cluster) {
  for (int64_t tileN : columns) {
    KernelConfig c;
    c.form = &form;
    c.tileM = tileM;
    c.tileN = tileN;
    c.cluster = cluster;
    c.rows = gemm.rowsLoaded(tileM, to);
    if (!gemm.allows(c) || sumsOfThread(c) >= sums)
      continue;
    c = gemm.complete(c);
    // A range is judged by four of its sizes: rounds that are full for one are not for another. Many rows are mostly whole
    // tiles, as lengths and steps of so many tokens at most are.
    constexpr double kMany = 512, kWhole = 128;
    double time = 0;
    for (int i = 0; i < 4; ++i) {
      double at = static_cast<double>(from) *
                  std::pow(static_cast<double>(to) / static_cast<double>(from), i / 3.0);
      if (from < to && at > kMany)
        at = std::round(at / kWhole) * kWhole;
      time += gemm.timeOf(c, static_cast<int64_t>(at + 0.5)) / at;
    }
    if (!best.form || time < bestTime) {
      best = c;
      bestTime = time;
    }
  }
}

} // namespace

int64_t HopperGemm::rowAlignment() const {
  int64_t bytes = kLineBytes;
  for (const ContractionOperand *operand : {&desc.operands[0], &desc.operands[1]}) {
    int64_t row = desc.buffers[operand->buffer].physical.back().constant().value_or(kUnknown);
    bytes = std::min(bytes, row * elementBytes & -(row * elementBytes));
  }
  return bytes;
}

double HopperGemm::timeOf(const KernelConfig &c, int64_t m) const {
  return c.form->product.time(c,
                              {.m = std::min<int64_t>(m, 1 << 20),
                               .n = sizes.n.constant().value_or(kUnknown) * (desc.resultPair ? 2 : 1),
                               .k = sizes.k.constant().value_or(kUnknown),
                               .batch = sizes.batch.constant().value_or(1),
                               .smCount = target.smCount,
                               .elementBytes = elementBytes,
                               .rowAlignment = rowAlignment(),
                               .bAlongK = bAlongK,
                               .bare = desc.resultBare,
                               .residual = hasResidual(),
                               .blocks = static_cast<double>(desc.operands[1].blocks64),
                               .steps = static_cast<double>(desc.operands[1].blockSteps)});
}

KernelConfig HopperGemm::chooseInvariant() const {
  const int64_t n = sizes.n.constant().value_or(kUnknown) * (desc.resultPair ? 2 : 1);
  const int64_t k = sizes.k.constant().value_or(kUnknown), batch = sizes.batch.constant().value_or(1);
  KernelConfig best;
  double bestTime = 0;
  for (int64_t cluster : {1, 2, 4})
    for (int64_t columns : {256, 224, 192, 128, 96, 64}) {
      KernelConfig c;
      c.form = promoted ? &kGemmSplitPromoted : &kGemmSplit;
      c.tileM = 64;
      c.tileN = columns;
      c.cluster = cluster;
      const int64_t blocks = (n + columns - 1) / columns * batch * cluster;
      if (!allows(c) || (cluster > 1 && (blocks > multiprocessorsOf(target, cluster) || k / (kStepBytes / elementBytes) < cluster)))
        continue;
      double time = 0;
      for (int64_t rows : {8, 32, 64}) { // steps of answers, each with the rows that its variant loads
        c.rows = rowsLoaded(c.tileM, rows);
        time += timeOf(complete(c), rows);
      }
      if (!best.form || time < bestTime) {
        best = complete(c);
        bestTime = time;
      }
    }
  return best;
}

KernelConfig HopperGemm::chooseInvariant(const KernelConfig &few, int64_t from, int64_t to) const {
  Search search(*this, from, to, kAnySums);
  search.consider(*few.form, few.tileM, {few.tileN}, few.cluster);
  // A sum along k is the same bits in a tile of any shape.
  if (promoted || !sizes.k.constant())
    return search.best;
  if (few.cluster > 1) {
    if (hasRoomForSums())
      search.consider(kGemmCooperativeParts, 128, {192}, few.cluster);
    search.consider(kGemmCooperativeParts, 128, {128, 96, 64}, few.cluster);
    return search.best;
  }
  search.consider(kGemmPingpong, 128, {128});
  if (hasRoomForSums())
    search.consider(kGemmPingpong, 128, {192});
  search.consider(kGemmCooperative, 128, {256, 224, 192, 128, 112, 96, 64});
  return search.best;
}

bool HopperGemm::hasRoomForSums() const {
  return desc.resultBare || desc.resultPair || desc.pairHead || elementBytes == 1 ||
         (desc.numInputs <= 3 && hasResidual());
}

KernelConfig HopperGemm::choose(int64_t from, int64_t to, int64_t sums) const {
  int64_t n = sizes.n.constant().value_or(kUnknown) * (desc.resultPair ? 2 : 1);
  int64_t k = sizes.k.constant().value_or(kUnknown), batch = sizes.batch.constant().value_or(1);
  auto tilesOf = [&](int64_t rows, int64_t tileM, int64_t tileN) {
    return (rows + tileM - 1) / tileM * ((n + tileN - 1) / tileN) * batch;
  };
  Search search(*this, from, to, sums);
  // Within a block of columns there is one scale a row and step: to choose between two costs more than tiles of
  // other widths gain.
  if (promoted && desc.blockScales) {
    search.consider(kGemmPromoted, 128, {128, 64, 32});
  } else if (promoted) {
    search.consider(kGemmPromoted, 128, {128, 192, 176, 160, 112, 96, 64, 48, 32});
  } else {
    if (to > 64) {
      search.consider(kGemmPingpong, 128, {128});
      const bool few = hasRoomForSums();
      if (few)
        search.consider(kGemmPingpong, 128, {192});
      if (few || desc.numInputs <= 3)
        search.consider(kGemmPingpong, 128, {160});
      search.consider(kGemmPingpong, 128, {112, 96, 64});
      search.consider(kGemmCooperative, 128, {256, 224, 192, 128, 112, 96, 64});
      // Stream-K's exchange of sums costs what it saves where rounds are few, or epilogues long.
      constexpr int64_t kManyRounds = 8;
      if (tilesOf(from, 128, 128) > kManyRounds * target.smCount && elementBytes == 2 &&
          desc.resultBare)
        search.consider(kGemmPingpongStreamK, 128, {128});
    }
    search.consider(kGemmPingpong, 64, {224, 192, 128, 96, 64, 48, 32});
    // Rows that do not begin at a cache line take twice as many requests: pairs of blocks share them.
    if (to > 128 && rowAlignment() < kLineBytes && elementBytes == 2) {
      search.consider(kGemmPingpong, 128, {128, 192}, 2);
      search.consider(kGemmCooperative, 128, {256, 224, 192, 128}, 2);
    }
  }
  // With elements of 8 bits there are half as many steps to split.
  if (elementBytes == 1 && to > 64)
    return search.best;
  for (int64_t cluster : {1, 2, 4, 8}) {
    const int64_t most = multiprocessorsOf(target, cluster);
    for (int64_t columns : {256, 224, 192, 128, 96, 64, 48, 32})
      if (!(promoted && columns > 128) && tilesOf(to, 64, columns) * cluster <= most &&
          k / (kStepBytes / elementBytes) >= cluster)
        search.consider(promoted ? kGemmSplitPromoted : kGemmSplit, 64, {columns}, cluster);
  }
  // Where there is work for half of the multiprocessors, and more to do with sums than store them.
  if (bAlongK && !desc.resultBare && to * n * batch >= 128 * 128 * target.smCount / 2) {
    for (int64_t tileM : {96, 128, 160, 192})
      search.consider(kGemmCooperativeSwapped, tileM, {128});
    // Both warpgroups shall have work, and products that hide the loads of a residual.
    constexpr int64_t kFewSteps = 8;
    bool many = !hasResidual() || k > kFewSteps * kStepBytes / elementBytes;
    for (auto [tileM, tileN] : {std::pair<int64_t, int64_t>{96, 128}, {128, 128}, {64, 64},
                                {128, 64}, {192, 64}})
      if (many && tilesOf(to, tileM, tileN) > target.smCount)
        search.consider(kGemmPingpongSwapped, tileM, {tileN});
  }
  return search.best;
}

} // namespace lathe::select
