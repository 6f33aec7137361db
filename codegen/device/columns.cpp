//===- columns.cpp - descriptor of columns.cuh: reductions down columns
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

namespace lathe {

using namespace select;

/// Down columns: a strip for each warp's width, its rows split among the warps of a block and,
/// where that leaves multiprocessors idle, among the blocks of a cluster.
static Result<bool> offer(const KernelDesc &desc, const Target &target,
                          std::vector<KernelVariant> &out) {
  constexpr int64_t kFewColumns = 32, kFewRows = 16;
  auto atLeast = [&](const DimExpr &e, int64_t n) { return rangeOf(e, desc).hi >= n; };
  if (desc.kind != KernelDesc::Kind::Reduction || desc.rowsContiguous || desc.columnDims == 0 || !desc.reducesNeighbours ||
      !atLeast(product(desc.reduction), kFewRows) ||
      !atLeast(product({desc.parallel.end() - desc.columnDims, desc.parallel.end()}), kFewColumns))
    return false;
  std::vector<DimExpr> inner(desc.parallel.end() - desc.columnDims, desc.parallel.end());
  DimExpr outer = product({desc.parallel.begin(), desc.parallel.end() - desc.columnDims});
  DimExpr width = product(inner);
  int64_t rows = product(desc.reduction).constant().value_or(1024);
  KernelConfig c{&kColumns};
  c.threads = 256;
  c.lanes = lanesFor(vectorLanes(desc), lastOf(inner));
  // Pieces of eight bytes leave enough blocks that all multiprocessors read all the time, also at
  // the end (an H200, 8192 x 8192 and 4096 x 5120).
  if (c.lanes == 8)
    c.lanes = 4;
  auto strips = [&] { return outer * DimExpr::ceilDiv(width, DimExpr(32 * c.lanes)); };
  auto blocks = [&] { return strips().constant().value_or(target.smCount) * c.rows; };
  bool clusters = target.hasClusters() && combinesWords(desc);
  while (clusters && c.rows < 8 && blocks() < 2 * target.smCount && rows >= 64 * c.rows)
    c.rows *= 2;
  while (c.lanes > 2 && blocks() < target.smCount)
    c.lanes /= 2;
  KernelSpec spec = specFor(desc, c, strips() * DimExpr(c.rows));
  spec.launches[0].cluster[0] = c.rows;
  addVariant(out, {}, std::move(spec));
  return true;
}

const Skeleton kColumns = {
    .family = "columns",
    .block = "t v r: 32*v columns of the reduced rows that fall to one of r blocks of a cluster",
    .code = Skeleton::Code::Columns,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 return Instance{{"columns"},
                                 "reduceColumns<" + joined({c.threads / 32, c.rows}) + ">(h, " +
                                     t.rows + ", " + t.columns + ");",
                                 ""};
               }}};

} // namespace lathe
