//===- attention_ragged.cpp - descriptor of attention_ragged.cuh: tokens of many sequences
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/AttentionChoice.h"

#include <algorithm>
#include <optional>

namespace lathe {

using select::AttentionChoice;

static constexpr int64_t kListThreads = 512;
static constexpr int64_t kRows = 64, kRowsOfOneOrder = 16;
static constexpr int64_t kPerBlock = 1 << 10; ///< bytes of shared memory that the system takes of each
static constexpr int64_t kParts = 8, kPlaces = 128; ///< RAGGED_PARTS, RAGGED_PLACES

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &f) {
  const int64_t step = c.threads / 32 * 16 * 2 * (headColumns(f.headQK) + headColumns(f.headV));
  const bool shared = c.rows > 1; // among the blocks of a cluster, whose parts stand behind the ring
  const int64_t rows = shared ? c.tileN : 16, part = rows * ((f.headV + 15) / 16 * 16 + 4) + 2 * rows;
  const int64_t parts = (shared ? c.rows : c.threads / 32) * part * 4;
  return (shared ? c.stages * step + parts : std::max(c.stages * step, parts)) + 16;
}

/// One token a sequence: of each and a key head a cluster of as many blocks as `c` has warps, which share its keys; two blocks
/// a multiprocessor, none where there is no room for them.
static std::optional<KernelSpec> aloneSpecOf(const AttentionChoice &a, KernelConfig c) {
  c.rows = c.threads / 32;
  c.threads = 32;
  for (c.stages = 8; a.sharedBytes(c) > a.target.sharedPerSm / 2 - kPerBlock;)
    if (--c.stages < 3)
      return std::nullopt;
  KernelSpec spec = select::specFor(a.desc, c, a.desc.parallel[0] * a.desc.parallel[1] * DimExpr(c.rows));
  spec.launches[0].cluster[0] = c.rows;
  spec.launches[0].sharedBytes = a.sharedBytes(c);
  return spec;
}

/// Enough blocks for the whole GPU, which take tiles as they become free.
static KernelSpec specOf(const AttentionChoice &a, const KernelConfig &c, int64_t blocks) {
  const DimExpr &batch = a.desc.parallel[0], &heads = a.desc.parallel[1];
  KernelSpec spec = select::specFor(a.desc, c, DimExpr::min(batch * heads, DimExpr(blocks * a.target.smCount)));
  spec.launches[0].sharedBytes = a.sharedBytes(c);
  LaunchSpec list = spec.launches[0];
  list.function += "_list";
  list.grid[0] = 1;
  list.block[0] = kListThreads;
  list.sharedBytes = 0;
  spec.launches.insert(spec.launches.begin(), list);
  // A RaggedList with a tile for each token, or several parts of it, and what parts of keys leave.
  if (c.tileM == kRowsOfOneOrder) {
    select::addWorkspace(spec, DimExpr(8) * batch + DimExpr(8));
  } else {
    const int64_t part = 8 + 4 * c.threads * ((a.headV + 15) / 16 * 16 / 2 + 4);
    select::addWorkspace(spec, DimExpr(8 * kParts) * batch + DimExpr(16) + DimExpr(kPlaces * part) * heads);
  }
  return spec;
}

/// Steps in which a sequence has several tokens; where each has one, attention_split.cuh reads its keys with fewer
/// launches, if it can. Pages of codes are attention_split.cuh's alone: tiles here are copied as numbers of 16 bits.
static bool offer(AttentionChoice &a) {
  const KernelDesc &desc = a.desc;
  const std::optional<int64_t> heads = a.queries.constant();
  const int64_t rows = desc.batchInvariant ? kRowsOfOneOrder : kRows;
  if (!a.half || desc.operands[1].codeBits || desc.operands[2].codeBits || !desc.sharesKeys || desc.headGroup != 1 ||
      !a.target.hasTensorCores() || !heads || *heads < 1 || *heads > rows || a.headQK % 8 != 0 || a.headV % 8 != 0 || !desc.operands[1].sixteens || !desc.operands[2].sixteens)
    return true;
  KernelConfig c{&kAttentionRagged};
  c.tileM = rows;
  c.tileN = *heads;
  // As many tiles ahead as leave room for two blocks. Tiles that are everybody's are read by a block of twice as many warps,
  // where there is room: one long sequence has a block a key head, and takes as long as that reads.
  auto most = [&](int64_t warps, int64_t blocks) {
    c.threads = 32 * warps;
    for (c.stages = 4; c.stages > 1 && a.sharedBytes(c) > std::min(a.target.sharedPerBlock, a.target.sharedPerSm / blocks - kPerBlock);)
      --c.stages;
    return c.stages > 1;
  };
  int64_t blocks = 1;
  if (!(rows == kRowsOfOneOrder && most(8, blocks)) && !most(4, blocks = 2) && !most(4, blocks = 1))
    return true;
  // Of few sequences that generate, the list would take longer to make than it saves, and few multiprocessors would read.
  if (rows == kRowsOfOneOrder && c.threads == 256 && a.target.hasClusters())
    if (std::optional<KernelSpec> alone = aloneSpecOf(a, c)) {
      const DimExpr clusters = desc.parallel[0] * desc.parallel[1];
      if (!a.add({{DimCondition::Kind::LessEqual, desc.parallel[0], desc.sequences},
                  {DimCondition::Kind::LessEqual, clusters * DimExpr(c.threads / 32), DimExpr(2 * a.target.smCount)}},
                 std::move(*alone)))
        return false;
    }
  std::vector<DimCondition> several;
  if (select::splitTakes(a) && !desc.batchInvariant)
    several.push_back({DimCondition::Kind::LessEqual, desc.sequences + DimExpr(1), desc.parallel[0]});
  return a.add(std::move(several), specOf(a, c, blocks));
}

const Skeleton kAttentionRagged = {
    .family = "attention.ragged",
    .block = "t r m n s: tiles of neighbours of one sequence, with n heads that share a key head at most m rows, off a list "
             "that the first launch makes, or of one token and without a list a cluster of r blocks; keys in tiles of 16 a warp, "
             "s - 1 of them ahead",
    .code = Skeleton::Code::Attention,
    .sharedBytes = sharedBytes,
    .attention = {
        .tiles = true, .ragged = true, .offer = offer, .text = [](const KernelConfig &c, const AttentionText &t) {
          std::string tile = "AttentionRaggedTile<" + joined({c.threads / 32, c.tileM, c.tileN, c.stages}) + ", Holes::kHeadQK, Holes::kHeadV" +
                             (c.rows > 1 ? ", " + joined({c.rows}) : "") + ">";
          if (c.rows > 1)
            return Instance{{"attention_ragged_cluster"},
                            "attentionRaggedAlone<" + tile + ", RaggedCluster<" + joined({c.rows}) + ">>(h, " + t.heads + ", " + t.keys + ");",
                            tile};
          Instance made{{"attention_ragged"},
                        "attentionRagged<" + tile + ">(h, " + t.batch + ", " + t.heads + ", " + t.keys + ", (RaggedList *)work0);",
                        tile};
          made.before = {"attentionRaggedTiles<" + tile + ", " + std::to_string(t.listThreads) + ">(h, " +
                         t.batch + ", (RaggedList *)work0);"};
          return made;
        }}};

} // namespace lathe
