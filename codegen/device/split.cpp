//===- split.cpp - descriptors of split.cuh: reductions of few results and many terms
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// What a block reduces at least of a result that it shares, in bytes: less takes no longer than telling
/// the others.
static constexpr int64_t kLeastShare = 16 << 10;
/// Blocks for each multiprocessor, of 256 threads with 4 to 8 loads of 16 bytes under way.
static constexpr int64_t kBlocks = 4;

/// How many blocks share a unit, which has so many terms: as many as fill the card together.
static DimExpr blocksOf(const DimExpr &units, const DimExpr &terms, int64_t termBytes, const Target &target) {
  constexpr int64_t kMost = 1024; // each is waited for
  DimExpr card = DimExpr::floorDiv(DimExpr(std::min(kMost, kBlocks * target.smCount)), DimExpr::max(units, DimExpr(1)));
  DimExpr shares = DimExpr::ceilDiv(terms * DimExpr(termBytes), DimExpr(kLeastShare));
  return DimExpr::max(DimExpr(1), DimExpr::min(card, shares));
}

/// The word of each block, then what it has.
static void addWorkspace(KernelSpec &spec, const DimExpr &blocks, int64_t sumBytes) {
  auto whole = [](const DimExpr &bytes) { return DimExpr::ceilDiv(bytes, DimExpr(16)) * DimExpr(16); };
  select::addWorkspace(spec, whole(blocks * DimExpr(8)) + whole(blocks * DimExpr(sumBytes)));
}

/// Bytes of an accumulator at most.
static constexpr int64_t kSumBytes = 8;

/// Bytes of all inputs that have as many elements as are reduced, for each of them.
static int64_t termBytes(const KernelDesc &desc) {
  DimExpr all = product(desc.parallel) * product(desc.reduction);
  int64_t bits = 0;
  for (int i = 0; i < desc.numInputs; ++i)
    if (product(desc.buffers[i].dims) == all)
      bits += bitWidth(desc.buffers[i].dtype);
  return std::max<int64_t>(1, bits / 8);
}

/// Adds a variant for up to `mostUnits` units of at least `leastTerms` terms. True: no sizes are left.
static bool addFor(std::vector<KernelVariant> &out, const KernelDesc &desc, KernelSpec spec, const DimExpr &units,
                   int64_t mostUnits, const DimExpr &terms, int64_t leastTerms) {
  using Kind = DimCondition::Kind;
  DimRange unitRange = rangeOf(units, desc), termRange = rangeOf(terms, desc);
  std::vector<DimCondition> guard;
  if (unitRange.hi > mostUnits)
    guard.push_back({Kind::LessEqual, units, DimExpr(mostUnits)});
  if (termRange.lo < leastTerms)
    guard.push_back({Kind::LessEqual, DimExpr(leastTerms), terms});
  bool all = guard.empty();
  addVariant(out, std::move(guard), std::move(spec));
  return all;
}

/// Rows that lie together, of which there are too few for a block each to fill the card. Where the reduced
/// dimensions are no neighbours, any number of them: kernels of rows would read element by element.
static Result<bool> offerRows(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  constexpr int64_t kMany = int64_t(1) << 30;
  if (desc.kind != KernelDesc::Kind::Reduction || !desc.reducesAlone || desc.columnDims > 0 ||
      desc.reduction.empty() || desc.batchInvariant) // shares depend on how many rows there are
    return false;
  DimExpr units = product(desc.parallel), terms = product(desc.reduction);
  const int64_t bytes = termBytes(desc);
  int64_t mostUnits = desc.rowsContiguous ? kBlocks * target.smCount / 2 : kMany;
  int64_t leastTerms = desc.rowsContiguous ? 2 * kLeastShare / bytes : 256;
  if (rangeOf(units, desc).lo > mostUnits || rangeOf(terms, desc).hi < leastTerms)
    return false;
  KernelConfig c{&kSplitRows};
  c.threads = 256;
  c.lanes = lanesFor(vectorLanes(desc), lastOf(desc.reduction));
  DimExpr blocks = units * blocksOf(units, terms, bytes, target);
  KernelSpec spec = specFor(desc, c, blocks);
  addWorkspace(spec, blocks, kSumBytes);
  return addFor(out, desc, std::move(spec), units, mostUnits, terms, leastTerms);
}

/// How many columns a unit has: as many as a warp loads at once, or half of that, a quarter and so on, where that
/// leaves fewer lanes without any. Where there are several units, each has sixteen columns or more.
static int64_t columnsOfUnit(const DimExpr &width, int64_t lanes) {
  constexpr int64_t kWarp = 32, kLeast = 16;
  std::optional<int64_t> columns = width.constant();
  int64_t best = kWarp * lanes;
  auto covered = [&](int64_t unit) { return (*columns + unit - 1) / unit * unit; };
  for (int64_t unit = best; columns && unit >= lanes; unit /= 2)
    if (10 * covered(unit) < 9 * covered(best) && (unit >= kLeast || covered(unit) == unit))
      best = unit;
  return best;
}

/// Columns of which there are so few that clusters (columns.cuh) leave multiprocessors idle, or whose rows
/// are no neighbours.
static Result<bool> offerColumns(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  constexpr int64_t kMany = int64_t(1) << 30, kCluster = 8, kLeastRows = 64;
  if (desc.kind != KernelDesc::Kind::Reduction || !desc.reducesAlone || desc.columnDims == 0 || desc.batchInvariant)
    return false;
  std::vector<DimExpr> inner(desc.parallel.end() - desc.columnDims, desc.parallel.end());
  DimExpr outer = product({desc.parallel.begin(), desc.parallel.end() - desc.columnDims});
  DimExpr width = product(inner), rows = product(desc.reduction);
  KernelConfig c{&kSplitColumns};
  c.threads = 256;
  c.lanes = lanesFor(vectorLanes(desc), lastOf(inner));
  c.tileN = columnsOfUnit(width, c.lanes);
  DimExpr units = outer * DimExpr::ceilDiv(width, DimExpr(c.tileN));
  const int64_t cluster = target.hasClusters() && combinesWords(desc) ? kCluster : 1; // as columns.cuh has it
  int64_t mostUnits = desc.reducesNeighbours ? target.smCount / cluster : kMany;
  const int64_t rowBytes = c.tileN * termBytes(desc);
  int64_t leastRows = desc.reducesNeighbours ? std::max(kLeastRows, 8 * kLeastShare / rowBytes) : kLeastRows;
  if (rangeOf(units, desc).lo > mostUnits || rangeOf(rows, desc).hi < leastRows)
    return false;
  DimExpr blocks = units * blocksOf(units, rows, rowBytes, target);
  KernelSpec spec = specFor(desc, c, blocks);
  addWorkspace(spec, blocks, c.tileN * kSumBytes);
  return addFor(out, desc, std::move(spec), units, mostUnits, rows, leastRows);
}

const Skeleton kSplitRows = {
    .family = "split.rows",
    .block = "t v: a share of the terms of one result, v of which lie together; the blocks of a result, one "
             "behind the other, are so many as the grid has for each",
    .code = Skeleton::Code::Columns,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offerRows, .alongRows = true, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"split"}, "splitRows<" + joined({c.threads}) + ">(h, " + t.outer + ", " + t.rows + ");", ""};
               }}};
const Skeleton kSplitColumns = {
    .family = "split.columns",
    .block = "t v n: a share of the rows of n columns, n/v lanes a row; the blocks of these, one behind the other, are so many "
             "as the grid has for each",
    .code = Skeleton::Code::Columns,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offerColumns, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"split"},
                                 "splitColumns<" + joined({c.threads, c.tileN / c.lanes}) + ">(h, " + t.outer + ", " + t.rows + ", " +
                                     t.columns + ");",
                                 ""};
               }}};

} // namespace lathe
