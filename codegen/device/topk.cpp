//===- topk.cpp - descriptor of topk.cuh: the greatest elements of rows, in order
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// Elements that a block sorts in shared memory, at most: 32 KB of places and wide keys.
static constexpr int64_t kMostShared = 2048;

/// A block a row. Where more places may be wanted than fit into shared memory, each block has memory of
/// its own behind the results, and there are no more blocks than run at once.
static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (!desc.selection || desc.selection->kind != KernelDesc::Selection::Kind::TopK)
    return false;
  const KernelDesc::Selection &s = *desc.selection;
  KernelConfig c{&kTopK};
  int64_t longest = rangeOf(s.length, desc).hi, most = std::min(longest, rangeOf(s.count, desc).hi);
  c.tileN = 256;
  while (c.tileN < kMostShared && c.tileN < most)
    c.tileN *= 2;
  // Short rows are sorted whole rather than searched.
  while (c.tileN < kMostShared && c.tileN < longest)
    c.tileN *= 2;
  c.threads = c.tileN > 512 ? 512 : 256;
  if (most <= c.tileN) {
    addVariant(out, {}, specFor(desc, c, s.rows));
    return true;
  }
  DimExpr blocks = DimExpr::min(s.rows, DimExpr(2 * target.smCount));
  KernelSpec spec = specFor(desc, c, blocks);
  select::addWorkspace(spec, blocks * DimExpr::ceilDiv(s.count * DimExpr(8 + s.keyBits / 8), DimExpr(8)) * DimExpr(8));
  addVariant(out, {}, std::move(spec));
  return true;
}

const Skeleton kTopK = {
    .family = "topk",
    .block = "t n: whole rows, one after another; up to n elements are sorted in shared memory",
    .code = Skeleton::Code::TopK,
    .early = Skeleton::Early::UnlessLong,
    .memory = {.offer = offer, .text = [](const KernelConfig &c, const MemoryText &t) {
                 Instance made{{"topk"},
                               "selectTop<" + joined({c.threads, c.tileN}) + ">(h, " + t.rows + ", " +
                                   t.columns + ", " + t.wanted + ");",
                               ""};
                 // Without a number ptxas spills to have more of them.
                 made.minBlocks = std::max<int64_t>(1, 512 / c.threads);
                 return made;
               }}};

} // namespace lathe
