//===- attention_wgmma.cpp - descriptors of attention_wgmma.cuh: operands by TMA, wgmma
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/AttentionChoice.h"

#include <algorithm>

namespace lathe {

using select::AttentionChoice;
using select::divides;
using select::rangeOf;
using Kind = DimCondition::Kind;

static int64_t sharedBytes(const KernelConfig &c, const TileFacts &f) {
  constexpr int64_t kStages = 2, kRowBytes = 128, kMost = 232448; // of a block of sm_90
  const int64_t warpgroups = c.threads / 128 - 1, queries = warpgroups * 64;
  const bool row = c.form->attention.keyMask;
  auto chunks = [](int64_t head) { return (head + 63) / 64; };
  const int64_t masks = f.mask ? warpgroups : row ? kStages : 0;
  const int64_t maskBytes = f.mask ? 64 * kRowBytes * chunks(c.tileN) : 4 * c.tileN;
  const int64_t results = queries * (2 * f.headV + 16);
  auto bytes = [&](int64_t copies) { // of the queries
    return kRowBytes * (copies * queries * chunks(f.headQK) +
                        kStages * c.tileN * (chunks(f.headQK) + chunks(f.headV))) +
           masks * maskBytes + 16 * (copies * warpgroups + masks + 2 * kStages);
  };
  const int64_t staged = bytes(1) + results <= kMost ? results : 0;
  return staged + bytes(std::max<int64_t>(c.stages, 1));
}

/// The map of an operand [B, H, length, head], boxes of 64 columns and `rows` rows; or of the
/// memory of its pages, boxes of one page.
static TensorMapArg mapOf(const KernelDesc &desc, const ContractionOperand &operand, int64_t rows) {
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

/// Whether an operand lies in pages of sixteen rows that a map of their memory has. What is beside
/// the columns of a head is read with them, so these are whole steps of the products.
static bool inPages(const KernelDesc &desc, size_t operand, int64_t columns) {
  const ContractionOperand &o = desc.operands[operand];
  return o.sixteens && o.codeBits == 0 && o.pages >= 0 && columns % 16 == 0 && o.pageStride.isConstant() &&
         divides(8, o.pageStride);
}

/// Whether TMA can take the operands as they lie.
static bool mapsTake(const AttentionChoice &a) {
  return a.inPieces(0) && ((a.inPieces(1) && a.inPieces(2)) ||
                           (inPages(a.desc, 1, a.headQK) && inPages(a.desc, 2, a.headV)));
}

/// Whether what comes to the scores lies in memory in rows of keys, of the operands' type, so that
/// TMA can bring tiles of it.
static bool maskInRows(const KernelDesc &desc) {
  if (!desc.biasAlone || desc.operands.size() < 4 || desc.operands[3].buffer < 0)
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
static TensorMapArg maskMap(const KernelDesc &desc) {
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
  map.role = TensorMapArg::Role::Mask;
  return map;
}

/// Keys of a tile: what two stages of keys and values and the registers of a warpgroup hold. 176 are 3 %
/// faster with heads of 128 and 4096 keys or more, but take 0.3 s more to compile.
static int64_t keysOfTile(const AttentionChoice &a, bool keyMask) {
  const KernelDesc &desc = a.desc;
  int64_t widest = std::max(a.headQK, a.headV);
  const bool plain = desc.plainScores || keyMask;
  if (!plain && widest > 128) // masks need registers too
    return widest <= 192 ? 96 : 64;
  if (!plain && !desc.maskDims.empty() && !divides(2, a.keys)) // and may be read one by one
    return 96;
  return widest <= 128 ? 128 : widest <= 192 ? 112 : 80;
}

constexpr int64_t kOrderThreads = 256;

/// The launches ahead that list the tiles of keys which the mask lets through (attention_blocks.cuh), and deal the tiles
/// of queries out to blocks (attention_order.cuh).
static void addLists(const KernelDesc &desc, int64_t queries, int64_t keys, int64_t smCount, KernelSpec &spec) {
  DimExpr rows = DimExpr::ceilDiv(desc.parallel[2], DimExpr(queries)),
          tiles = DimExpr::ceilDiv(desc.reduction[0], DimExpr(keys));
  LaunchSpec lists = spec.launches[0];
  lists.function += "_lists";
  lists.grid[0] = rows;
  lists.grid[1] = desc.maskDims[1];
  lists.grid[2] = desc.maskDims[0];
  lists.block[0] = 512; // bounds of what a mask lets through take registers
  lists.sharedBytes = tiles;
  LaunchSpec order = spec.launches[0];
  order.function += "_order";
  order.grid[0] = 1;
  order.block[0] = kOrderThreads;
  order.sharedBytes = 0;
  spec.launches.insert(spec.launches.begin(), {lists, order});
  select::addWorkspace(spec, attentionOrderBytes(rows * desc.parallel[1] * desc.parallel[0], smCount) +
                                 DimExpr(2) * desc.maskDims[0] * desc.maskDims[1] * rows * (tiles + DimExpr(2)));
}

static KernelSpec specOf(const AttentionChoice &a, bool listed, int64_t warpgroups = 2) {
  const KernelDesc &desc = a.desc;
  const int64_t smCount = a.target.smCount;
  // Most listed tiles are seen completely, and the list says which, at no cost.
  const bool keyMask = desc.keyMask && !(listed && desc.maskFlags);
  KernelConfig c{keyMask ? &kAttentionWgmmaKeymask : &kAttentionWgmma};
  c.threads = 128 * (warpgroups + 1);
  c.tileN = keysOfTile(a, keyMask);
  DimExpr tiles =
      DimExpr::ceilDiv(a.queries, DimExpr(64 * warpgroups)) * desc.parallel[1] * desc.parallel[0];
  const bool mask = !keyMask && maskInRows(desc);
  // The next queries are copied ahead where blocks take several tiles of them and there is room,
  // and registers of the warps that copy.
  if (warpgroups == 2 && a.headV <= 192 && tiles.constant().value_or(smCount + 1) > smCount) {
    constexpr int64_t kSharedBytes = 227 << 10;
    c.stages = 2;
    if (a.sharedBytes(c, mask) > kSharedBytes)
      c.stages = 0;
  }
  KernelSpec spec = select::specFor(desc, c, DimExpr::min(tiles, DimExpr(smCount)));
  spec.tensorMaps = {mapOf(desc, desc.operands[0], 64), mapOf(desc, desc.operands[1], c.tileN),
                     mapOf(desc, desc.operands[2], c.tileN)};
  if (mask)
    spec.tensorMaps.push_back(maskMap(desc));
  spec.launches[0].sharedBytes = a.sharedBytes(c, mask);
  if (listed)
    addLists(desc, 64 * warpgroups, c.tileN, smCount, spec);
  return spec;
}

/// Three warpgroups with 64 queries each, where exponentials take as long as products and masks leave
/// registers: they keep both busy.
static bool offerThree(AttentionChoice &a) {
  if (std::max(a.headQK, a.headV) > 64 || !a.desc.plainScores || a.keyRange.lo < 1)
    return true;
  // Three tiles a multiprocessor, and queries enough that the last tile of a head, which they
  // may fill with a single one, is a fifth of all at most.
  constexpr int64_t kTile = 192, kQueries = 4 * kTile;
  const int64_t enough = 3 * a.target.smCount;
  DimExpr tiles =
      DimExpr::ceilDiv(a.queries, DimExpr(kTile)) * a.desc.parallel[1] * a.desc.parallel[0];
  DimRange have = rangeOf(tiles, a.desc);
  if (have.hi < enough || a.queryRange.hi < kQueries)
    return true;
  std::vector<DimCondition> guard;
  if (have.lo < enough)
    guard.push_back({Kind::LessEqual, DimExpr(enough), tiles});
  if (a.queryRange.lo < kQueries)
    guard.push_back({Kind::LessEqual, DimExpr(kQueries), a.queries});
  return a.add(std::move(guard), specOf(a, false, 3));
}

/// Of both families.
static bool offer(AttentionChoice &a) {
  if (!a.half || !a.target.hasWgmma() || !mapsTake(a))
    return true;
  // From so many keys on, only the tiles that the mask lets through.
  constexpr int64_t kListed = 1024;
  if (a.desc.maskHides && a.keyRange.hi >= kListed) {
    std::vector<DimCondition> guard;
    if (a.keyRange.lo < kListed)
      guard.push_back({Kind::LessEqual, DimExpr(kListed), a.keys});
    if (!a.add(std::move(guard), specOf(a, true)))
      return false;
  }
  if (!offerThree(a))
    return false;
  // A map has no dimension of size 0.
  std::vector<DimCondition> guard;
  if (a.keyRange.lo < 1)
    guard.push_back({Kind::LessEqual, DimExpr(1), a.keys});
  return a.add(std::move(guard), specOf(a, false));
}

static Instance instance(const KernelConfig &c, const AttentionText &t) {
  const int64_t warpgroups = c.threads / 128 - 1;
  std::string mask = t.maskTiles ? ", MASK_TILES" : c.form->attention.keyMask ? ", MASK_ROW" : ", NO_MASK";
  if (c.stages > 1)
    mask += ", " + std::to_string(c.stages);
  // Two warpgroups with small heads: the special functions would be the slowest part.
  std::string tile = "AttentionWgmmaTile<" + std::to_string(c.tileN) +
                     ", Holes::kHeadQK, Holes::kHeadV, " + std::to_string(warpgroups) +
                     (warpgroups == 2 ? ", Holes::kHeadV <= 64 ? 4 : 0" : ", 0") + mask + ">";
  Instance made;
  made.call = "attentionWgmma<" + tile + ">(h, map0, map1, map2, " + (t.maskTiles ? "map3, " : "map2, ") +
              t.heads + ", " + t.batch + ", " + t.queries + ", " + t.keys + ");";
  made.tile = tile;
  if (t.maskTiles)
    made.modules.push_back("mma");
  made.modules.push_back("attention_wgmma");
  if (t.launches > 1) {
    made.modules.push_back("attention_blocks");
    made.before = {"attentionBlocks<" + joined({64 * warpgroups, c.tileN, t.listThreads}) + ">(h, " +
                       t.queries + ", " + t.keys + ", (u16 *)h.list(0, 0, 0, 0, 0, 1));",
                   "attentionOrders<" + tile + ", " + std::to_string(kOrderThreads) + ">(h, " + t.heads + ", " + t.batch + ", " +
                       t.queries + ", " + t.keys + ", " + std::to_string(t.blocks) + ", (u32 *)work0);"};
  }
  return made;
}

// The first of them offers both.
const Skeleton kAttentionWgmma = {
    .family = "attention.wgmma",
    .block = "t n s: t/2-64 queries of one head and batch, tiles after tiles, s of them in shared memory; with "
             "two launches, the first of which lists the tiles of keys that the mask lets through, only those",
    .code = Skeleton::Code::Attention,
    .early = Skeleton::Early::Always,
    .sharedBytes = sharedBytes,
    .attention = {.tiles = true, .groups = true, .maps = true, .offer = offer, .text = instance}};
const Skeleton kAttentionWgmmaKeymask = {
    .family = "attention.wgmma.keymask",
    .block = "t n s: the same; a mask that is the same for all queries is read once for a tile",
    .code = Skeleton::Code::Attention,
    .early = Skeleton::Early::Always,
    .sharedBytes = sharedBytes,
    .attention = {.tiles = true, .groups = true, .maps = true, .keyMask = true, .text = instance}};

} // namespace lathe
