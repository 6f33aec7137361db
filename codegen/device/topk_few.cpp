//===- topk_few.cpp - descriptors of topk_few.cuh: the few greatest elements of rows, in one pass
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// Rows that a warp holds, 8 elements a lane, and what it takes of them one by one.
static constexpr int64_t kWarpRow = 256, kWarpCount = 32;
static constexpr int64_t kListThreads = 256;
/// What a block reads of a row at least that it shares with others, and how much more than what is wanted.
static constexpr int64_t kLeastPart = 4096, kPartOfCount = 4;
/// Places are words of 32 bits.
static constexpr int64_t kMostLength = (int64_t(1) << 32) - 2;

namespace {

/// Adds variants for smaller and smaller parts of all sizes.
struct Offers {
  const KernelDesc &desc;
  const KernelDesc::Selection &s;
  std::vector<KernelVariant> &out;
  /// A run that wants more of a row than it has is refused before.
  DimExpr wanted = DimExpr::min(s.count, s.length);

  /// Adds `spec` for what all of these hold for, as far as that is open. True: it is for all sizes.
  bool add(std::initializer_list<std::pair<DimExpr, DimExpr>> noMore, KernelSpec spec) {
    std::vector<DimCondition> guard;
    for (const auto &[a, b] : noMore) {
      if (rangeOf(a, desc).lo > rangeOf(b, desc).hi)
        return false; // never
      if (rangeOf(a, desc).hi > rangeOf(b, desc).lo)
        guard.push_back({DimCondition::Kind::LessEqual, a, b});
    }
    bool all = guard.empty();
    addVariant(out, std::move(guard), std::move(spec));
    return all;
  }

  bool shortRows() {
    KernelConfig c{&kTopKShort};
    c.threads = 128;
    const int64_t longest = std::min(kWarpRow, rangeOf(s.length, desc).hi);
    c.rows = 1;
    while (32 * c.rows < longest)
      c.rows *= 2;
    DimExpr blocks = DimExpr::ceilDiv(s.rows, DimExpr(c.threads / 32));
    return add({{s.length, DimExpr(kWarpRow)}, {wanted, DimExpr(kWarpCount)}}, specFor(desc, c, blocks));
  }

  /// As many blocks as run at once, four a multiprocessor, share few long rows.
  bool sharedRows(const Target &target) {
    if (s.count == s.length)
      return false; // what is wanted of a list is less than a long row
    KernelConfig c{&kTopKParts};
    c.threads = kListThreads;
    c.tileN = 2 * kListCount;
    DimExpr card = DimExpr::floorDiv(DimExpr(4 * target.smCount), DimExpr::max(s.rows, DimExpr(1)));
    DimExpr least = DimExpr::max(DimExpr(kLeastPart), s.count * DimExpr(kPartOfCount));
    DimExpr parts = DimExpr::max(DimExpr(1), DimExpr::min(card, DimExpr::floorDiv(s.length, least)));
    KernelSpec spec = specFor(desc, c, s.rows);
    LaunchSpec first = spec.launches[0];
    first.function += "_parts";
    first.grid[0] = s.rows * parts;
    spec.launches.insert(spec.launches.begin(), first);
    const int64_t entry = s.keyBits / 4; // a key, a place, and what aligns them
    select::addWorkspace(spec, s.rows * parts * s.count * DimExpr(entry));
    return add({{DimExpr(4 * kLeastPart), s.length},
                {s.rows, DimExpr(target.smCount)},
                {wanted, DimExpr(kListCount)},
                {s.length, DimExpr(kMostLength)}},
               std::move(spec));
  }

  bool wholeRows() {
    KernelConfig c{&kTopKRow};
    c.threads = kListThreads;
    c.tileN = 2 * kListCount;
    return add({{wanted, DimExpr(kListCount)}, {s.length, DimExpr(kMostLength)}}, specFor(desc, c, s.rows));
  }
};

} // namespace

/// True where these are all that is needed; else what wants more follows (topk.cpp).
static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (!desc.selection || desc.selection->kind != KernelDesc::Selection::Kind::TopK)
    return false;
  Offers offers{desc, *desc.selection, out};
  return offers.shortRows() || offers.sharedRows(target) || offers.wholeRows();
}

const Skeleton kTopKShort = {
    .family = "topk.short",
    .block = "t r: t/32 rows of up to 32 r elements",
    .code = Skeleton::Code::TopK,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"topk_few"},
                                 "topOfShortRows<" + joined({c.threads, c.rows}) + ">(h, " + t.rows + ", " + t.columns +
                                     ", " + t.wanted + ");",
                                 ""};
               }}};
const Skeleton kTopKParts = {
    .family = "topk.parts",
    .block = "t n: two launches: the greatest elements of an equal part of a row each, as many as the grid has for each "
             "row; then those of the parts. A block keeps up to n elements in shared memory",
    .code = Skeleton::Code::TopK,
    .memory = {.text = [](const KernelConfig &c, const MemoryText &t) {
                 Instance made{{"topk_few"},
                               "topOfLists<" + joined({c.threads, c.tileN}) + ">(h, " + t.rows + ", " + t.wanted + ", " +
                                   t.parts + ");",
                               ""};
                 made.before = {"topOfParts<" + joined({c.threads, c.tileN}) + ">(h, " + t.rows + ", " + t.columns + ", " +
                                t.wanted + ", " + t.parts + ");"};
                 return made;
               }}};
const Skeleton kTopKRow = {
    .family = "topk.row",
    .block = "t n: whole rows, one after another, each read once; up to n elements are kept in shared memory",
    .code = Skeleton::Code::TopK,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"topk_few"},
                                 "topOfRows<" + joined({c.threads, c.tileN}) + ">(h, " + t.rows + ", " + t.columns + ", " +
                                     t.wanted + ");",
                                 ""};
               }}};

} // namespace lathe
