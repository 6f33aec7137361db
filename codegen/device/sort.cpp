//===- sort.cpp - descriptor of sort.cuh: places of the elements of rows, sorted
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// Rows up to this length are sorted by one block in its shared memory (topk.cpp).
static constexpr int64_t kOneBlock = 2048;
/// What tiles tell each other leaves so many bits for a count.
static constexpr int64_t kMostLength = (int64_t(1) << 30) - 1;
static constexpr int64_t kThreads = 256, kDigits = 256;

static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (!desc.selection || desc.selection->kind != KernelDesc::Selection::Kind::TopK)
    return false;
  const KernelDesc::Selection &s = *desc.selection;
  DimRange range = rangeOf(s.length, desc);
  if (range.hi <= kOneBlock || range.lo > kMostLength || rangeOf(DimExpr::min(s.count, s.length), desc).hi <= kListCount)
    return false;
  const int64_t bytes = s.keyBits / 8, tile = kThreads * 64 / bytes; // as SortMemory has it
  KernelConfig c{&kTopKSort};
  c.threads = kThreads;
  c.stages = bytes;
  auto up = [](const DimExpr &e, int64_t to) { return DimExpr::ceilDiv(e, DimExpr(to)) * DimExpr(to); };
  DimExpr some = DimExpr::max(s.rows, DimExpr(1)), tiles = DimExpr::ceilDiv(s.length, DimExpr(tile)), all = s.rows * tiles;
  DimExpr parts = DimExpr::max(DimExpr(1), DimExpr::min(tiles, DimExpr::floorDiv(DimExpr(4 * target.smCount), some)));
  KernelSpec spec = specFor(desc, c, all);
  const LaunchSpec last = spec.launches[0];
  spec.launches.clear();
  auto ahead = [&](const std::string &what, const DimExpr &blocks) {
    LaunchSpec launch = last;
    launch.function += "_" + what;
    launch.grid[0] = blocks;
    spec.launches.push_back(launch);
  };
  ahead("count", s.rows * parts);
  ahead("start", s.rows * DimExpr(bytes));
  for (int64_t b = 0; b + 1 < bytes; ++b)
    ahead("byte" + std::to_string(b), all);
  spec.launches.push_back(last);
  DimExpr elements = s.rows * s.length;
  DimExpr words = (s.rows * parts + s.rows) * DimExpr(bytes * kDigits) + all * DimExpr(2 * kDigits);
  const DimExpr pairs = up(elements * DimExpr(bytes), 16) + up(elements * DimExpr(4), 16);
  select::addWorkspace(spec, DimExpr(2) * pairs + words * DimExpr(4));
  std::vector<DimCondition> guard;
  if (range.lo <= kOneBlock)
    guard.push_back({DimCondition::Kind::LessEqual, DimExpr(kOneBlock + 1), s.length});
  if (range.hi > kMostLength)
    guard.push_back({DimCondition::Kind::LessEqual, s.length, DimExpr(kMostLength)});
  const bool whole = guard.empty();
  addVariant(out, std::move(guard), std::move(spec));
  return whole;
}

const Skeleton kTopKSort = {
    .family = "topk.sort",
    .block = "t s: s + 2 launches: a share of a row, whose bytes are counted; the starts of a byte; then, for each of "
             "the s bytes of a key, a tile of a row",
    .code = Skeleton::Code::TopK,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 const std::string sizes = "(h, " + t.rows + ", " + t.columns + ", ", parts = t.parts + ");";
                 auto byte = [&](int64_t b) {
                   return "sortByte<" + std::to_string(b) + ">" + sizes + t.wanted + ", " + parts;
                 };
                 Instance made{{"sort"}, byte(c.stages - 1), ""};
                 made.minBlocks = 3; // as many as their shared memory lets in, nearly
                 made.before = {"countBytes" + sizes + parts, "startBytes" + sizes + parts};
                 for (int64_t b = 0; b + 1 < c.stages; ++b)
                   made.before.push_back(byte(b));
                 return made;
               }}};

} // namespace lathe
