//===- attention_split.cpp - descriptors of attention_split.cuh and attention_streamk.cuh: few queries, many keys
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/AttentionChoice.h"

#include <algorithm>

namespace lathe {

using select::AttentionChoice;
using select::rangeOf;

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &f) {
  // Codes of keys and values have two times sixteen scales behind them.
  int64_t step = f.codeBits ? 2 * f.codeBits * (f.headQK + f.headV) + 128
                            : 16 * 2 * (headColumns(f.headQK) + headColumns(f.headV));
  int64_t part = 4 * c.tileN * ((f.headV + 15) / 16 * 16 + 4 + 2);
  int64_t warp = std::max(c.tileK * step, (part + 127) / 128 * 128);
  int64_t share = (c.tileN * (f.headV / 8) + c.rows - 1) / c.rows;
  int64_t sent = c.rows > 1 ? c.rows * 4 * (share * 8 + 2 * c.tileN) : 0;
  return c.threads / 32 * warp + sent;
}

/// `columns` are queries times the heads of a group; `alone`: one block a multiprocessor, else two.
static KernelConfig configOf(const AttentionChoice &a, const Skeleton &form, int64_t columns, int64_t cluster, bool alone) {
  KernelConfig c{&form};
  c.rows = cluster;
  c.tileN = columns;
  // Rings fill the shared memory of a multiprocessor, with one block, or with two of half as many warps:
  // then clusters of the next kernel can start while the last ones of this kernel still run.
  bool whole = alone && cluster == 1;
  c.stages = whole ? 1 : 2;
  // Codes take more instructions a byte: more warps, as long as each has the registers for a head.
  const bool many = a.codeBits && std::max(a.headQK, a.headV) <= 128;
  c.threads = whole || many ? 256 : 128;
  c.tileK = 1;
  constexpr int64_t kSharedBytes = 227 << 10, kPerBlock = 1 << 10;
  while (c.tileK < 8) {
    ++c.tileK;
    if (a.sharedBytes(c) > kSharedBytes / c.stages - kPerBlock) {
      --c.tileK;
      break;
    }
  }
  return c;
}

/// Few queries on many keys: a cluster for each key head and batch, as large as it takes to have
/// all multiprocessors read.
static KernelSpec specOf(const AttentionChoice &a, const Skeleton &form, int64_t columns,
                         int64_t cluster, bool alone) {
  const KernelConfig c = configOf(a, form, columns, cluster, alone);
  KernelSpec spec = select::specFor(a.desc, c, DimExpr(cluster));
  LaunchSpec &launch = spec.launches[0];
  launch.grid[1] = DimExpr::floorDiv(a.desc.parallel[1], DimExpr(a.desc.headGroup));
  launch.grid[2] = a.desc.parallel[0];
  launch.cluster[0] = cluster;
  launch.sharedBytes = a.sharedBytes(c);
  return spec;
}

/// The keys of many sequences, some of them long, in equal shares among two blocks a multiprocessor, each of which hands over
/// a part of a head at most; or a head a block, of lines of as many blocks.
static KernelSpec sharedSpecOf(const AttentionChoice &a, int64_t columns, const DimExpr &pairs) {
  const KernelConfig c = configOf(a, kAttentionStreamK, columns, /*cluster=*/1, /*alone=*/false);
  const int64_t blocks = c.stages * a.target.smCount;
  KernelSpec spec = select::specFor(a.desc, c, DimExpr(blocks));
  spec.launches[0].grid[1] = DimExpr::ceilDiv(pairs, DimExpr(blocks));
  spec.launches[0].sharedBytes = a.sharedBytes(c);
  const int64_t words = (8 * blocks + 15) / 16 * 16, part = 4 * columns * (a.headV + 2);
  select::addWorkspace(spec, DimExpr(words + blocks * part));
  return spec;
}

/// Whether each sequence has a length of its own, which the host does not know, unless --config asks for a block a head. Codes
/// take so many registers that none are left for finding a share.
static bool sharesAnyLengths(const AttentionChoice &a) {
  const KernelDesc &desc = a.desc;
  return (desc.wanted.empty() || desc.wanted == kAttentionStreamK.family) && !a.codeBits && !desc.parallel[0].isConstant() &&
         desc.operands[1].sixteens && desc.operands[2].sixteens && !desc.batchInvariant;
}

/// Keys and values lie in whole pieces of 16 bytes, sixteen of them together; a column of results has
/// two for each block of a cluster, which tells them its sums.
bool select::splitTakes(const AttentionChoice &a) {
  auto together = [&](size_t operand) {
    return (a.inPieces(operand) && !a.desc.operands[operand].tokensFirst) ||
           a.desc.operands[operand].sixteens;
  };
  for (size_t operand : {1, 2})
    if (a.desc.operands[operand].codeBits != a.codeBits)
      return false;
  return a.half && a.target.hasClusters() && a.headQK % 8 == 0 && a.headV % 8 == 0 &&
         a.headV >= 16 && a.desc.headGroup <= 16 && together(1) && together(2);
}

/// Up to 16 queries and heads of a group together.
static bool offerAs(const Skeleton &form, AttentionChoice &a) {
  using Kind = DimCondition::Kind;
  const KernelDesc &desc = a.desc;
  if (!splitTakes(a))
    return true;
  DimExpr pairs = desc.parallel[0] * DimExpr::floorDiv(desc.parallel[1], DimExpr(desc.headGroup));
  for (int64_t columns : {8, 16}) {
    int64_t most = columns / desc.headGroup;
    bool registers = a.headV <= 128 || (columns == 8 && desc.plainScores);
    if (most < std::max<int64_t>(a.queryRange.lo, 1) || !registers)
      continue;
    std::vector<DimCondition> few;
    if (a.queryRange.hi > most)
      few.push_back({Kind::LessEqual, a.queries, DimExpr(most)});
    // The largest cluster that leaves a multiprocessor one block; beyond that (0), two of them, which share the keys of
    // sequences of any lengths. Few steps where the batch is not known.
    std::vector<int64_t> clusters = {8, 4, 2, 1, 0};
    const bool shared = sharesAnyLengths(a) && !form.attention.early;
    if (shared)
      clusters = {8, 0};
    else if (!desc.parallel[0].isConstant())
      clusters = {8, 1, 0};
    for (int64_t cluster : clusters) {
      int64_t limit = cluster > 0 ? a.target.smCount / cluster : 0;
      DimRange blocks = rangeOf(pairs, desc);
      if (cluster > 0 && blocks.lo > limit)
        continue;
      std::vector<DimCondition> guard = few;
      bool last = cluster == 0 || blocks.hi <= limit;
      if (!last)
        guard.push_back({Kind::LessEqual, pairs, DimExpr(limit)});
      a.add(std::move(guard),
            shared && cluster == 0 ? sharedSpecOf(a, columns, pairs)
                                   : specOf(a, form, columns, std::max<int64_t>(cluster, 1), cluster > 0));
      if (last)
        break;
    }
    if (few.empty())
      return false;
  }
  return true;
}

static std::string tileText(const KernelConfig &c) {
  return "AttentionSplitTile<" + joined({c.threads / 32, c.rows, c.tileN / 8, c.tileK}) +
         ", Holes::kHeadQK, Holes::kHeadV, Holes::kCodeBits>";
}

static Instance streamKInstance(const KernelConfig &c, const AttentionText &t) {
  const std::string tile = tileText(c);
  Instance made{{"attention_streamk"},
                "attentionStreamK<" + tile + ">(h, " + t.batch + ", " + t.heads + ", " + t.queries + ", " + t.keys + ", (u8 *)work0);",
                tile};
  made.minBlocks = c.stages;
  return made;
}

static Instance instance(const KernelConfig &c, const AttentionText &t) {
  const std::string tile = tileText(c);
  Instance made{{"attention_split"},
                "attentionSplit<" + tile + ">(h, " + t.queries + ", " + t.keys + ");",
                tile};
  made.minBlocks = c.stages;
  return made;
}

const Skeleton kAttentionSplit = {
    .family = "attention.split",
    .block = "t n k r s: up to n queries and heads of a key head (axis 1) and batch (axis 2); keys split among "
             "the r blocks of a cluster, s of which fit into a multiprocessor; each warp copies k times 16 keys "
             "ahead",
    .code = Skeleton::Code::Attention,
    .early = Skeleton::Early::Always,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .attention = {
        .tiles = true,
        .groups = true,
        .split = true,
        .offer = [](AttentionChoice &a) { return a.desc.keysFromOutside || offerAs(kAttentionSplit, a); },
        .text = instance}};
const Skeleton kAttentionStreamK = {
    .family = "attention.streamk",
    .block = "t n k s: the keys of all key heads and sequences in equal shares, one a block, s of which fit into a "
             "multiprocessor, or a head a block where all have nearly as many keys; up to n queries and heads of a key "
             "head; each warp copies k times 16 keys ahead",
    .code = Skeleton::Code::Attention,
    .early = Skeleton::Early::Always,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .attention = {.tiles = true, .groups = true, .split = true, .text = streamKInstance}};
const Skeleton kAttentionSplitEarly = {
    .family = "attention.split.early",
    .block = "t n k r s: the same; keys and values are copied before the kernels ahead are over",
    .code = Skeleton::Code::Attention,
    .early = Skeleton::Early::Always,
    .waitsItself = true,
    .sharedBytes = sharedBytes,
    .attention = {
        .tiles = true,
        .groups = true,
        .split = true,
        .early = true,
        .offer = [](AttentionChoice &a) { return !a.desc.keysFromOutside || offerAs(kAttentionSplitEarly, a); },
        .text = instance}};

} // namespace lathe
