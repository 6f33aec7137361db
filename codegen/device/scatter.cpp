//===- scatter.cpp - descriptor of scatter.cuh: updates that are combined in their order
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// Updates of a thread in a piece: EACH of scatter.cuh.
static constexpr int64_t kEach = 8;
/// Where an element has fewer updates, a thread that goes through them is as fast (scatter.t).
static constexpr int64_t kLeastUpdates = 64;
/// Columns of a block: neighbours share the sectors that they are read in.
static constexpr int64_t kMostColumns = 8;

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
  KernelSpec spec = specFor(desc, c, DimExpr::max(DimExpr(1), DimExpr::ceilDiv(sizes.columns, DimExpr(c.tileN))));
  TileFacts facts;
  facts.elementBytes = std::max<int64_t>(4, bitWidth(desc.buffers[desc.numInputs].dtype) / 8);
  spec.launches[0].sharedBytes = sharedBytes(c, facts);
  std::vector<DimCondition> guard;
  if (places.hi > most)
    guard.push_back({DimCondition::Kind::LessEqual, sizes.places, DimExpr(most)});
  addVariant(out, guard, std::move(spec));
  return guard.empty();
}

static std::string arguments(const KernelConfig &c) { return "<" + joined({c.threads, c.tileN}); }

const Skeleton kScatterOrdered = {
    .family = "scatter.ordered",
    .block = "t n: n elements of what the indices do not name, with all their updates, 8 t of which are put in order "
             "at a time",
    .code = Skeleton::Code::OrderedScatter,
    .inPlace = Skeleton::InPlace::Always,
    .sharedBytes = sharedBytes,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 Instance made{{"scatter"},
                               "scatterOrdered" + arguments(c) + ">(h, " + t.columns + ", " + t.wanted + ", " + t.rows + ");",
                               "OrderedScatter" + arguments(c) + ", Holes>"};
                 // Without a number ptxas spills to have more of them.
                 made.minBlocks = std::max<int64_t>(1, 512 / c.threads);
                 return made;
               }}};

} // namespace lathe
