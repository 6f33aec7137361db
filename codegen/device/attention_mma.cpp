//===- attention_mma.cpp - descriptor of attention_mma.cuh: tiles of 16 bits, portable
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/AttentionChoice.h"

#include <algorithm>
#include <bit>

namespace lathe {

/// Columns in memory: a power of two.
int64_t headColumns(int64_t head) { return std::max<int64_t>(16, std::bit_ceil(uint64_t(head))); }

/// All sizes that are left of operands of 16 bits, from sm_80 on.
static bool offer(select::AttentionChoice &a) {
  if (!a.half || !a.target.hasTensorCores())
    return true;
  KernelConfig c{&kAttentionMma};
  c.threads = 128;
  c.tileN = std::max(a.headQK, a.headV) <= 128 ? 64 : a.desc.plainScores ? 32 : 16;
  KernelSpec spec = a.specByHeads(c, DimExpr::ceilDiv(a.queries, DimExpr(c.threads / 2)));
  spec.launches[0].sharedBytes = a.sharedBytes(c);
  return a.add({}, std::move(spec));
}

const Skeleton kAttentionMma = {
    .family = "attention.mma",
    .block = "t n: t/2 queries of head (axis 1) and batch (axis 2), keys in tiles of n",
    .code = Skeleton::Code::Attention,
    .early = Skeleton::Early::Always,
    .sharedBytes =
        [](const KernelConfig &c, const TileFacts &f) {
          int64_t queries = c.threads / 2;
          return 2 * ((queries + c.tileN) * headColumns(f.headQK) + c.tileN * headColumns(f.headV));
        },
    .attention = {
        .tiles = true, .offer = offer, .text = [](const KernelConfig &c, const AttentionText &t) {
          std::string tile = "AttentionMmaTile<" + joined({c.threads / 32, c.tileN}) +
                             ", Holes::kHeadQK, Holes::kHeadV>";
          return Instance{{"attention_mma"},
                          "attentionMma<" + tile + ">(h, " + t.queries + ", " + t.keys + ");",
                          tile};
        }}};

} // namespace lathe
