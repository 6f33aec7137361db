//===- scatter.cpp - descriptor of scatter.cuh: updates that are combined in their order
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// Updates of a thread in a piece: EACH of scatter.cuh.
static constexpr int64_t kEach = 4;
/// Where an element has fewer updates, a thread that goes through them is as fast (scatter.t).
static constexpr int64_t kLeastUpdates = 32;
/// Columns of a block: neighbours share the sectors that they are read in.
static constexpr int64_t kMostColumns = 8;
/// Blocks that share a column at most, updates of each at least, and blocks for each multiprocessor.
static constexpr int64_t kMostParts = 8, kPartUpdates = 2048, kBlocks = 2;
/// Places and updates, of all columns, that are worth a launch ahead.
static constexpr int64_t kWorthALaunch = 1 << 16;

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &facts) {
  return c.threads * kEach * (4 + 4 + 2 + (facts.elementBytes <= 4 ? 4 : 8));
}

static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (!desc.ordered || desc.numOutputs > 1)
    return false;
  const KernelDesc::OrderedUpdates &sizes = *desc.ordered;
  const int64_t most = (int64_t(1) << 32) / kMostColumns - 1;
  DimRange places = rangeOf(sizes.places, desc);
  if (rangeOf(sizes.updates, desc).hi < kLeastUpdates || places.lo > most)
    return false;
  Result<int64_t> usual = sizes.columns.evaluate(desc.usual);
  const int64_t columns = usual ? *usual : rangeOf(sizes.columns, desc).lo;
  KernelConfig c{&kScatterOrdered};
  c.threads = 512;
  // Blocks for every multiprocessor count for more than sectors that are read whole.
  c.tileN = kMostColumns;
  while (c.tileN > 1 && (!sizes.columnsLast || columns / c.tileN < 4 * target.smCount))
    c.tileN /= 2;
  auto usualOf = [&](const DimExpr &size) {
    Result<int64_t> found = size.evaluate(desc.usual);
    return found ? *found : rangeOf(size, desc).hi;
  };
  const int64_t updates = usualOf(sizes.updates), blocks = std::max<int64_t>(1, (columns + c.tileN - 1) / c.tileN);
  // Sizes that the run tells may be any: a launch too many costs less than one too few.
  const bool known = sizes.updates.isConstant() && sizes.places.isConstant() && sizes.columns.isConstant();
  if (!known || double(columns) * (double(updates) + double(usualOf(sizes.places))) >= kWorthALaunch)
    c.tileM = std::clamp<int64_t>(std::min(kBlocks * target.smCount / blocks, updates / kPartUpdates), 1, kMostParts);
  KernelSpec spec = specFor(desc, c, DimExpr::max(DimExpr(1), DimExpr::ceilDiv(sizes.columns, DimExpr(c.tileN)) *
                                                                  DimExpr(std::max<int64_t>(1, c.tileM))));
  if (c.tileM > 0) {
    constexpr int64_t kAhead = 4; // blocks of the launch ahead for each multiprocessor
    LaunchSpec ahead = spec.launches[0];
    ahead.function += "_places";
    ahead.grid[0] = DimExpr(kAhead * target.smCount);
    spec.launches.insert(spec.launches.begin(), ahead);
    addWorkspace(spec, sizes.columns * DimExpr::ceilDiv(sizes.updates, DimExpr(4)) * DimExpr(16));
  }
  TileFacts facts;
  facts.elementBytes = std::max<int64_t>(4, bitWidth(desc.buffers[desc.numInputs].dtype) / 8);
  spec.launches.back().sharedBytes = sharedBytes(c, facts);
  std::vector<DimCondition> guard;
  if (places.hi > most)
    guard.push_back({DimCondition::Kind::LessEqual, sizes.places, DimExpr(most)});
  addVariant(out, guard, std::move(spec));
  return guard.empty();
}

static std::string arguments(const KernelConfig &c) { return "<" + joined({c.threads, c.tileN, c.tileM}); }

const Skeleton kScatterOrdered = {
    .family = "scatter.ordered",
    .block = "t m n: n elements of what the indices do not name, with all their updates, 4 t of which are put in order "
             "at a time; with m, m blocks have a part of the places each, and a launch ahead tells which update goes where",
    .code = Skeleton::Code::OrderedScatter,
    .inPlace = Skeleton::InPlace::Always,
    .sharedBytes = sharedBytes,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 const std::string sizes = "(h, " + t.columns + ", " + t.wanted + ", " + t.rows + ");";
                 Instance made{{"scatter"}, "scatterOrdered" + arguments(c) + ">" + sizes,
                               "OrderedScatter" + arguments(c) + ", Holes>"};
                 made.minBlocks = std::max<int64_t>(1, 1024 / c.threads); // each waits for memory much of the time
                 if (c.tileM > 0)
                   made.before = {"scatterPlaces" + sizes};
                 return made;
               }}};

} // namespace lathe
