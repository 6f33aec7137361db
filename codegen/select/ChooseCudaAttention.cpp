//===- ChooseCudaAttention.cpp - attention on GPUs ------------------ -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Few queries: a block each, its warps take keys in turn, or with 16-bit operands
// a cluster for all that share keys. More: tiles of queries that stream over the
// keys, on the matrix units where the operands have 16 bits.
//
//===----------------------------------------------------------------------===//

#include "ChooseCuda.h"

#include <algorithm>

namespace lathe::select {
namespace {

using Kind = DimCondition::Kind;

/// Head sizes and operand types.
struct Heads {
  int64_t qk, v;
  bool half; ///< queries, keys and values of one 16-bit type
};

KernelSpec place(const KernelDesc &desc, KernelSpec spec) {
  spec.launches[0].grid[1] = desc.parallel[1];
  spec.launches[0].grid[2] = desc.parallel[0];
  return spec;
}

/// Tiles for the matrix units of sm_80 and later.
KernelSpec mma(const KernelDesc &desc, const Heads &heads) {
  KernelConfig c;
  c.family = "attention.mma";
  c.threads = 128;
  c.tileN = std::max(heads.qk, heads.v) <= 128 ? 64 : desc.plainScores ? 32 : 16;
  KernelSpec spec =
      place(desc, specFor(desc, c, DimExpr::ceilDiv(desc.parallel[2], DimExpr(c.threads / 2))));
  spec.launches[0].sharedBytes = attentionMmaSharedBytes(c, heads.qk, heads.v);
  return spec;
}

/// The map of an operand [B, H, length, head], boxes of 64 columns and `rows` rows; or of the
/// memory of its pages, boxes of one page.
TensorMapArg mapOf(const KernelDesc &desc, const ContractionOperand &operand, int64_t rows) {
  if (operand.buffer < 0) {
    TensorMapArg map;
    map.buffer = operand.pages;
    map.dims = {operand.pageStride, operand.pageRows};
    map.strides = {operand.pageStride * DimExpr(2)};
    map.box = {64, 16};
    map.swizzleBytes = 128;
    return map;
  }
  const BufferArg &buffer = desc.buffers[operand.buffer];
  TensorMapArg map;
  map.buffer = operand.buffer;
  DimExpr strides[4] = {2, 2, 2, 2}; // bytes from one index to the next
  for (size_t d = 3; d-- > 0;)
    strides[d] = strides[d + 1] * buffer.physical[d + 1];
  const size_t tokens = operand.tokensFirst ? 1 : 2, heads = 3 - tokens;
  map.dims = {buffer.dims[3], buffer.dims[tokens], buffer.dims[heads], buffer.dims[0]};
  map.strides = {strides[tokens], strides[heads], strides[0]};
  map.box = {64, rows, 1, 1};
  map.swizzleBytes = 128;
  return map;
}

/// Whether an operand lies in memory in rows of whole pieces of 16 bytes.
bool inPieces(const KernelDesc &desc, size_t operand) {
  if (desc.operands[operand].buffer < 0)
    return false;
  const BufferArg &b = desc.buffers[desc.operands[operand].buffer];
  return b.dims.size() == 4 && b.physical.size() == 4 && b.alignment % 16 == 0 &&
         b.packing.empty() && divides(8, b.physical[3]) && divides(8, b.dims[3]);
}

/// Whether an operand lies in pages of sixteen rows that a map of their memory has. What is beside
/// the columns of a head is read with them, so these are whole steps of the products.
bool inPages(const KernelDesc &desc, size_t operand, int64_t columns) {
  const ContractionOperand &o = desc.operands[operand];
  return o.sixteens && o.pages >= 0 && columns % 16 == 0 && o.pageStride.isConstant() &&
         divides(8, o.pageStride);
}

/// Whether what comes to the scores lies in memory in rows of keys, of the operands' type, so that
/// the copy engine can bring tiles of it.
bool maskInRows(const KernelDesc &desc) {
  if (desc.maskDims.empty() || desc.operands.size() < 4 || desc.operands[3].buffer < 0)
    return false;
  const BufferArg &b = desc.buffers[desc.operands[3].buffer];
  if (b.dtype != desc.operands[0].dtype || b.dims.size() < 2 || b.alignment % 16 != 0 ||
      !b.packing.empty() || !divides(8, b.physical.back()))
    return false;
  auto isOr1 = [&](size_t d) {
    return desc.maskDims[d] == DimExpr(1) || desc.maskDims[d] == desc.parallel[d];
  };
  return isOr1(0) && isOr1(1) && desc.maskDims[2] == desc.parallel[2] &&
         desc.maskDims[3] == desc.reduction[0];
}

/// The map of such a mask, boxes of 64 queries and 64 keys.
TensorMapArg maskMap(const KernelDesc &desc) {
  const BufferArg &b = desc.buffers[desc.operands[3].buffer];
  TensorMapArg map;
  map.buffer = desc.operands[3].buffer;
  DimExpr stride = 2;
  for (size_t d = 0; d < 4; ++d) {
    const bool there = d < b.dims.size();
    map.dims.push_back(there ? b.dims[b.dims.size() - 1 - d] : DimExpr(1));
    if (there)
      stride = stride * b.physical[b.dims.size() - 1 - d];
    if (d < 3)
      map.strides.push_back(stride);
  }
  map.box = {64, 64, 1, 1};
  map.swizzleBytes = 128;
  return map;
}

/// Whether the copy engine can take the operands as they lie.
bool mapsTake(const KernelDesc &desc, const Heads &heads) {
  return inPieces(desc, 0) && ((inPieces(desc, 1) && inPieces(desc, 2)) ||
                               (inPages(desc, 1, heads.qk) && inPages(desc, 2, heads.v)));
}

/// Whether exponentials take as long as products and masks leave registers: three teams of four
/// warps with 64 queries each keep both busy then, if there are tiles for all multiprocessors.
bool takesThreeTeams(const KernelDesc &desc, const Heads &heads) {
  return std::max(heads.qk, heads.v) <= 64 && desc.plainScores;
}

/// Keys of a tile: what two stages of keys and values and the registers of a team hold. 176 are 3 %
/// faster with heads of 128 and 4096 keys or more, but take 0.3 s more to compile.
int64_t keysOfTile(const KernelDesc &desc, const Heads &heads, bool keyMask) {
  int64_t widest = std::max(heads.qk, heads.v);
  const bool plain = desc.plainScores || keyMask;
  if (!plain && widest > 128) // masks need registers too
    return widest <= 192 ? 96 : 64;
  if (!plain && !desc.maskDims.empty() &&
      !divides(2, desc.reduction[0])) // and may be read one by one
    return 96;
  return widest <= 128 ? 128 : widest <= 192 ? 112 : 80;
}

/// The launch ahead that lists the tiles of keys which the mask lets through
/// (attention_blocks.cuh).
void addLists(const KernelDesc &desc, int64_t queries, int64_t keys, KernelSpec &spec) {
  DimExpr rows = DimExpr::ceilDiv(desc.parallel[2], DimExpr(queries)),
          tiles = DimExpr::ceilDiv(desc.reduction[0], DimExpr(keys));
  LaunchSpec lists = spec.launches[0];
  lists.function += "_lists";
  lists.grid[0] = rows;
  lists.grid[1] = desc.maskDims[1];
  lists.grid[2] = desc.maskDims[0];
  lists.block[0] = 512;
  lists.sharedBytes = tiles;
  spec.launches.insert(spec.launches.begin(), lists);
  BufferArg work;
  work.dtype = DType::UI8;
  work.access = BufferArg::Access::ReadWrite;
  spec.workspaceBytes =
      DimExpr(2) * desc.maskDims[0] * desc.maskDims[1] * rows * (tiles + DimExpr(1));
  work.dims = work.physical = {spec.workspaceBytes};
  spec.buffers.push_back(work);
}

KernelSpec wgmma(const KernelDesc &desc, const Target &target, const Heads &heads, bool listed,
                 int64_t teams = 2) {
  KernelConfig c;
  // Of tiles in a list most have no key that is not seen, and flags cost nothing there.
  const bool keyMask = desc.keyMask && !(listed && desc.maskFlags);
  c.family = keyMask ? "attention.wgmma.keymask" : "attention.wgmma";
  c.threads = 128 * (teams + 1);
  c.tileN = keysOfTile(desc, heads, keyMask);
  DimExpr tiles =
      DimExpr::ceilDiv(desc.parallel[2], DimExpr(64 * teams)) * desc.parallel[1] * desc.parallel[0];
  const bool mask = !keyMask && maskInRows(desc);
  // The next queries are copied ahead where blocks take several tiles of them and there is room,
  // and registers of the warps that copy.
  if (teams == 2 && heads.v <= 192 &&
      tiles.constant().value_or(target.smCount + 1) > target.smCount) {
    constexpr int64_t kSharedBytes = 227 << 10;
    c.stages = 2;
    if (attentionWgmmaSharedBytes(c, heads.qk, heads.v, mask) > kSharedBytes)
      c.stages = 0;
  }
  KernelSpec spec = specFor(desc, c, DimExpr::min(tiles, DimExpr(target.smCount)));
  spec.tensorMaps = {mapOf(desc, desc.operands[0], 64), mapOf(desc, desc.operands[1], c.tileN),
                     mapOf(desc, desc.operands[2], c.tileN)};
  if (mask)
    spec.tensorMaps.push_back(maskMap(desc));
  spec.launches[0].sharedBytes = attentionWgmmaSharedBytes(c, heads.qk, heads.v, mask);
  if (listed)
    addLists(desc, 64 * teams, c.tileN, spec);
  return spec;
}

/// Few queries on many keys: a cluster for each key head and batch, as large as it takes to have
/// all multiprocessors read. `columns` are queries times the heads of a group; `alone`: one block
/// a multiprocessor.
KernelSpec split(const KernelDesc &desc, const Heads &heads, int64_t columns, int64_t cluster,
                 bool alone) {
  KernelConfig c;
  c.family = desc.keysFromOutside ? "attention.split.early" : "attention.split";
  c.rows = cluster;
  c.tileN = columns;
  // Rings fill the shared memory of a multiprocessor, with one block or two of half as many warps:
  // as clusters, those of the next kernel are there already when the last of this one are not over
  // yet.
  bool whole = alone && cluster == 1;
  c.stages = whole ? 1 : 2;
  c.threads = whole ? 256 : 128;
  c.tileK = 1;
  constexpr int64_t kSharedBytes = 227 << 10, kPerBlock = 1 << 10;
  while (c.tileK < 8) {
    ++c.tileK;
    if (attentionSplitSharedBytes(c, heads.qk, heads.v) > kSharedBytes / c.stages - kPerBlock) {
      --c.tileK;
      break;
    }
  }
  KernelSpec spec = specFor(desc, c, DimExpr(cluster));
  LaunchSpec &launch = spec.launches[0];
  launch.grid[1] = DimExpr::floorDiv(desc.parallel[1], DimExpr(desc.headGroup));
  launch.grid[2] = desc.parallel[0];
  launch.cluster[0] = cluster;
  launch.sharedBytes = attentionSplitSharedBytes(c, heads.qk, heads.v);
  return spec;
}

/// Whether keys and values lie in whole pieces of 16 bytes, sixteen of them together; a column of
/// results has two for each block of a cluster, which tells them its sums.
bool splitTakes(const KernelDesc &desc, const Target &target, const Heads &heads) {
  auto together = [&](size_t operand) {
    return (inPieces(desc, operand) && !desc.operands[operand].tokensFirst) ||
           desc.operands[operand].sixteens;
  };
  return heads.half && target.smVersion >= 90 && heads.qk % 8 == 0 && heads.v % 8 == 0 &&
         heads.v >= 16 &&
         desc.headGroup <= 16 && together(1) && together(2);
}

/// The variants for up to 16 queries and heads of a group together; true when no others can come.
bool addSplits(const KernelDesc &desc, const Target &target, const Heads &heads,
               std::vector<KernelVariant> &out) {
  const DimExpr &queries = desc.parallel[2];
  DimRange range = rangeOf(queries, desc);
  DimExpr pairs = desc.parallel[0] * DimExpr::floorDiv(desc.parallel[1], DimExpr(desc.headGroup));
  for (int64_t columns : {8, 16}) {
    int64_t most = columns / desc.headGroup;
    bool registers = heads.v <= 128 || (columns == 8 && desc.plainScores);
    if (most < std::max<int64_t>(range.lo, 1) || !registers)
      continue;
    std::vector<DimCondition> few;
    if (range.hi > most)
      few.push_back({Kind::LessEqual, queries, DimExpr(most)});
    // The largest cluster that leaves a multiprocessor one block; beyond that (0), two of them. Few
    // steps where the batch is not known.
    std::vector<int64_t> clusters = {8, 4, 2, 1, 0};
    if (!desc.parallel[0].isConstant())
      clusters = {8, 1, 0};
    for (int64_t cluster : clusters) {
      int64_t limit = cluster > 0 ? target.smCount / cluster : 0;
      DimRange blocks = rangeOf(pairs, desc);
      if (cluster > 0 && blocks.lo > limit)
        continue;
      std::vector<DimCondition> guard = few;
      bool last = cluster == 0 || blocks.hi <= limit;
      if (!last)
        guard.push_back({Kind::LessEqual, pairs, DimExpr(limit)});
      addVariant(out, guard,
                 split(desc, heads, columns, std::max<int64_t>(cluster, 1), cluster > 0));
      if (last)
        break;
    }
    if (few.empty())
      return true;
  }
  return false;
}

} // namespace

Status attention(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() != 4 || desc.reduction.size() != 2)
    return internalError("attention needs B, H, S, E and T, D", "kernel " + desc.name);
  const DimExpr &queries = desc.parallel[2], &keys = desc.reduction[0];
  std::optional<int64_t> headV = desc.parallel[3].constant(), headQK = desc.reduction[1].constant();
  // Outside what the skeletons hold in registers: element by element.
  if (!headV || !headQK || *headV > 256 || *headQK > 256 || desc.operands[0].dtype == DType::F64) {
    KernelConfig c;
    c.family = "pointwise";
    c.threads = 128;
    addVariant(out, {},
               specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(c.threads))));
    return okStatus();
  }
  Heads heads{*headQK, *headV, isHalf(desc.operands[0].dtype)};
  for (size_t i = 1; i < 3; ++i)
    heads.half &= desc.operands[i].dtype == desc.operands[0].dtype;
  DimRange range = rangeOf(queries, desc);
  constexpr int64_t kDecode = 8;
  if (splitTakes(desc, target, heads)) {
    if (addSplits(desc, target, heads, out))
      return okStatus();
  } else if (range.lo <= kDecode) {
    KernelConfig c;
    c.family = "attention.decode";
    c.threads = 256;
    bool always = range.hi <= kDecode;
    std::vector<DimCondition> guard;
    if (!always)
      guard.push_back({Kind::LessEqual, queries, DimExpr(kDecode)});
    addVariant(out, guard, place(desc, specFor(desc, c, queries)));
    if (always)
      return okStatus();
  }
  if (heads.half && target.hasTensorCores()) {
    if (target.smVersion == 90 && target.archSpecific && mapsTake(desc, heads)) {
      // From so many keys on, only the tiles that the mask lets through.
      constexpr int64_t kListed = 1024;
      DimRange range = rangeOf(keys, desc);
      if (desc.maskHides && range.hi >= kListed) {
        KernelSpec spec = wgmma(desc, target, heads, true);
        if (range.lo < kListed) {
          addVariant(out, {{Kind::LessEqual, DimExpr(kListed), keys}}, std::move(spec));
        } else {
          addVariant(out, {}, std::move(spec));
          return okStatus();
        }
      }
      if (takesThreeTeams(desc, heads) && range.lo >= 1) {
        // Three tiles a multiprocessor, and queries enough that the last tile of a head, which they
        // may fill with a single one, is a fifth of all at most.
        constexpr int64_t kTile = 192, kQueries = 4 * kTile;
        DimExpr tiles =
            DimExpr::ceilDiv(queries, DimExpr(kTile)) * desc.parallel[1] * desc.parallel[0];
        DimExpr enough(3 * target.smCount);
        DimRange have = rangeOf(tiles, desc), asked = rangeOf(queries, desc);
        std::vector<DimCondition> guard;
        if (have.lo < 3 * target.smCount)
          guard.push_back({Kind::LessEqual, enough, tiles});
        if (asked.lo < kQueries)
          guard.push_back({Kind::LessEqual, DimExpr(kQueries), queries});
        if (have.hi >= 3 * target.smCount && asked.hi >= kQueries) {
          addVariant(out, guard, wgmma(desc, target, heads, false, 3));
          if (guard.empty())
            return okStatus();
        }
      }
      // A map has no dimension of size 0.
      bool always = range.lo >= 1;
      addVariant(out,
                 always ? std::vector<DimCondition>{}
                        : std::vector<DimCondition>{{Kind::LessEqual, DimExpr(1), keys}},
                 wgmma(desc, target, heads, false));
      if (always)
        return okStatus();
    }
    addVariant(out, {}, mma(desc, heads));
    return okStatus();
  }
  KernelConfig c;
  c.family = "attention.stream";
  c.threads = 128;
  c.rows = 4;
  KernelSpec spec =
      place(desc, specFor(desc, c, DimExpr::ceilDiv(queries, DimExpr(c.threads / 32 * c.rows))));
  spec.launches[0].sharedBytes = attentionSharedBytes(c, *headQK, *headV);
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

} // namespace lathe::select
