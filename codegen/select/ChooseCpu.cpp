//===- ChooseCpu.cpp - configurations on CPUs --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block is what a worker claims at once: some thousands of elements, so that
// claiming costs little and other workers make up for a slow one. Vectors are full
// registers of f32; constant weights of products are packed into panels in the
// order in which they are read.
//
//===----------------------------------------------------------------------===//

#include "ChooseCpu.h"

#include "lathe/support/Packing.h"

#include <algorithm>

namespace lathe::select {

std::optional<KernelConfig> askedFor(const KernelDesc &desc, const KernelConfig &chosen, int64_t panels) {
  if (desc.wanted.empty())
    return std::nullopt;
  Result<std::vector<KernelConfig>> wanted = wantedConfigs(desc);
  for (const KernelConfig &c : wanted ? *wanted : std::vector<KernelConfig>()) {
    KernelConfig tile = c;
    tile.rows = chosen.rows, tile.tileK = chosen.tileK, tile.stages = chosen.stages;
    bool sameKind = (c.stages > 0) == (chosen.stages > 0) && (c.tileK > 0) == (chosen.tileK > 0);
    if (tile == chosen && sameKind && c.rows >= 1 && c.tileK <= panels && std::max(c.rows, c.stages) <= kMostOfUnit)
      return c;
  }
  return std::nullopt;
}

std::optional<size_t> placeAsked(const KernelDesc &desc, const std::vector<KernelVariant> &variants) {
  Result<std::vector<KernelConfig>> wanted = wantedConfigs(desc);
  for (size_t i = 0; wanted && i < wanted->size(); ++i)
    for (const KernelVariant &v : variants)
      if (Result<KernelConfig> config = KernelConfig::parse(v.spec.config); config && *config == (*wanted)[i])
        return i;
  return std::nullopt;
}

KernelConfig productTile(const Skeleton &form, const Target &target) {
  KernelConfig c;
  c.form = &form;
  c.lanes = lanesFor(target);
  c.tileM = target.vectorRegisters >= 32 ? 8 : 6;
  c.tileN = 2 * c.lanes;
  return c;
}

void packWeight(KernelSpec &spec, const ContractionOperand &w, const std::string &recipe) {
  int buffer = w.codes >= 0 ? w.codes : w.buffer, least = w.codes >= 0 ? 4 : 8;
  if (buffer < 0 || !w.isWeight)
    return;
  BufferArg &arg = spec.buffers[buffer];
  std::vector<int64_t> dims;
  for (const DimExpr &d : arg.dims)
    dims.push_back(d.constant().value_or(0));
  if (arg.physical == arg.dims && int(bitWidth(arg.dtype)) >= least && PanelLayout::of(recipe, dims).ok())
    arg.packing = recipe;
}

int64_t residentBytes(const Target &target) { return std::min<int64_t>(256 << 10, target.l2Bytes / 2); }

int64_t unitsForCores(const Target &target, int64_t each) { return each * std::max<int64_t>(4, target.cores) / 4; }

int64_t panelsOf(int64_t columns, const KernelConfig &c) {
  return std::max<int64_t>(1, (columns + c.tileN - 1) / c.tileN);
}

int64_t panelsOfUnit(int64_t depth, int64_t columns, int64_t units, const KernelConfig &c, const Target &target) {
  int64_t panels = panelsOf(columns, c);
  int64_t fit = std::max<int64_t>(1, residentBytes(target) / std::max<int64_t>(1, depth * c.tileN * 4));
  const int64_t enough = unitsForCores(target, 64);
  int64_t share = units >= enough ? panels : std::max<int64_t>(1, panels * units / enough);
  return std::clamp<int64_t>(std::min(fit, share), 1, panels);
}

bool resultsLead(int64_t depth, int64_t results, const Target &target) {
  constexpr int64_t kShallow = 64; // so many steps of a register tile take as long as its lines from the third level
  return depth <= kShallow && results * 4 > target.l2Bytes / 2;
}

int64_t panelsForWorkers(int64_t panels, int64_t blocks, int64_t enough) {
  int64_t groups = std::min(panels, (enough + blocks - 1) / std::max<int64_t>(1, blocks));
  return std::max<int64_t>(1, groups ? (panels + groups - 1) / groups : 0);
}

int64_t rowsInScratch(int64_t depth, const KernelConfig &c, const Target &target) {
  int64_t rows = residentBytes(target) / std::max<int64_t>(1, depth * 4) / c.tileM * c.tileM;
  return std::clamp<int64_t>(rows, c.tileM, 8 * c.tileM);
}

namespace {

/// Whether a kernel transposes an input, with both sides long enough for squares of vectors.
bool isTransposed(const KernelDesc &desc, int64_t lanes) {
  if (desc.inputContiguous < 0 || bitWidth(desc.inputContiguousType) < 8 ||
      desc.inputContiguousType == DType::Bool)
    return false;
  int large = 0;
  for (int i = 0; i < desc.numInputs; ++i)
    large += std::count_if(desc.buffers[i].dims.begin(), desc.buffers[i].dims.end(),
                           [](const DimExpr &d) { return !(d == DimExpr(1)); }) > 1;
  auto size = [&](const DimExpr &d) { return d.constant().value_or(lanes); };
  DimExpr behind = 1; // the result's neighbours: what follows the input's
  for (size_t d = desc.inputContiguous + 1; d < desc.parallel.size(); ++d)
    behind = behind * desc.parallel[d];
  DimExpr before = product({desc.parallel.begin(), desc.parallel.begin() + desc.inputContiguous + 1});
  return large && size(before) >= lanes && size(behind) >= lanes;
}

/// Of elements that each wait for what they have read just before, two vectors are under way together: by itself one waits
/// for most of its time.
int64_t lanesOf(const KernelDesc &desc, const Target &target) { return lanesFor(target) * (desc.chainedReads ? 2 : 1); }

void pointwise(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  KernelConfig c;
  c.form = isTransposed(desc, lanesFor(target)) ? &kTranspose : &kPointwise;
  c.lanes = lanesOf(desc, target);
  addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(product(desc.parallel), DimExpr(kBlockElements))));
}

void reduction(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  KernelConfig c;
  c.lanes = lanesOf(desc, target);
  DimExpr outer = product(desc.parallel);
  if (desc.rowsContiguous) {
    c.form = &kRow;
    int64_t length = std::max<int64_t>(1, product(desc.reduction).constant().value_or(512));
    c.rows = std::clamp<int64_t>(kBlockElements / length, 1, 64);
    c = askedOr(desc, c);
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.rows))));
  } else {
    c.form = &kRow;
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(outer, DimExpr(c.lanes))));
  }
}

/// Whether a product is one of 8-bit integers whose right ones are packed, neighbours of K together.
bool multipliesPairs(const KernelDesc &desc, const Target &target) {
  const ContractionOperand &a = desc.operands[0], &b = desc.operands[1];
  if (!target.hasPairProducts() || !isByte(a.dtype) || !isByte(b.dtype) || b.buffer < 0 || !b.isWeight)
    return false;
  const BufferArg &weight = desc.buffers[b.buffer];
  return weight.physical == weight.dims && product(weight.dims).constant().value_or(0) > 0;
}

/// The product of multipliesPairs: rows are widened into scratch memory, once for all panels of a unit. Unsigned
/// bytes in whole groups of four are read where they lie.
void gemmPairs(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  const ContractionOperand &b = desc.operands[1];
  bool bytes = target.hasByteProducts() && b.dtype == DType::I8;
  KernelConfig c = productTile(bytes ? kCpuGemmBytes : kCpuGemmPairs, target);
  const int64_t interleave = c.form->product.interleave;
  size_t rank = desc.parallel.size();
  DimExpr m = desc.parallel[rank - 2], n = desc.parallel[rank - 1];
  DimExpr batch = product({desc.parallel.begin(), desc.parallel.end() - 2});
  const std::vector<DimExpr> &w = desc.buffers[b.buffer].dims;
  bool folded = product({w.begin(), w.end() - 2}) == DimExpr(1);
  DimExpr rows = folded ? batch * m : m, batches = folded ? DimExpr(1) : batch;
  int64_t depth = *desc.reduction[0].constant(), groups = (depth + interleave - 1) / interleave;
  std::string recipe = "panels" + std::to_string(c.tileN) + "x" + std::to_string(interleave) +
                       (b.transposed ? "t" : "");
  const ContractionOperand &a = desc.operands[0];
  const bool inPlace = interleave == 4 && a.buffer >= 0 && !a.transposed && a.dtype == DType::UI8 &&
                       depth % interleave == 0 && desc.buffers[a.buffer].physical == desc.buffers[a.buffer].dims;
  auto variant = [&](KernelConfig config, std::vector<DimCondition> guard) {
    KernelSpec spec = specFor(desc, config, batches * DimExpr::ceilDiv(rows, DimExpr(config.rows)) *
                                                DimExpr::ceilDiv(n, DimExpr(config.tileN * config.tileK)));
    if (!inPlace)
      spec.scratchBytes = spec.scratchBytes + DimExpr(groups * config.rows * 4);
    packWeight(spec, b, recipe);
    addVariant(out, std::move(guard), std::move(spec));
  };
  KernelConfig one = c;
  one.tileM = one.rows = 1;
  one.tileK = 4; // panels that share the widened row
  if (rows == DimExpr(1))
    return variant(one, {});
  if (!rows.isConstant() && rows.range(desc.symbols).lo <= 1)
    variant(one, {{DimCondition::Kind::Equal, rows, DimExpr(1)}});
  c.rows = inPlace ? 16 * c.tileM : rowsInScratch(groups, c, target);
  int64_t all = (batches * rows).constant().value_or(1), wide = n.constant().value_or(c.tileN);
  c.tileK = panelsOfUnit((depth + 3) / 4, wide, std::max<int64_t>(1, all / c.rows), c, target); // bytes, not floats
  variant(askedOr(desc, c), {});
}

Status gemm(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() < 2 || desc.operands.size() < 2 || desc.reduction.size() != 1)
    return internalError("a product needs M, N, K and two operands", "kernel " + desc.name);
  size_t rank = desc.parallel.size();
  DimExpr m = desc.parallel[rank - 2], n = desc.parallel[rank - 1], k = desc.reduction[0];
  DimExpr batch = product({desc.parallel.begin(), desc.parallel.end() - 2});
  if (multipliesPairs(desc, target)) {
    gemmPairs(desc, target, out);
    return okStatus();
  }
  if (chooseBlocks(desc, target, out) || chooseActive(desc, target, out))
    return okStatus();
  KernelConfig c = productTile(kCpuGemm, target);
  c.rows = 8 * c.tileM; // eight register tiles share a panel in cache
  c.stages = desc.batchInvariant;
  const ContractionOperand &a = desc.operands[0], &b = desc.operands[1];
  int64_t depth = k.constant().value_or(256);
  // Rows that are not read where they lie, and right operands that lie transposed,
  // go through scratch memory.
  bool rowsCopied = a.buffer < 0 || a.transposed || !isWide(a.dtype);
  bool panelsCopied = b.buffer < 0 || (b.transposed && !b.isWeight) || bitWidth(b.dtype) < 8;
  if (rowsCopied)
    c.rows = rowsInScratch(depth, c, target);
  // Without batches in the right operand the rows of all batches are one.
  bool stored = b.codes >= 0;
  bool folded = stored || (b.buffer >= 0 && product({desc.buffers[b.buffer].dims.begin(),
                                                     desc.buffers[b.buffer].dims.end() - 2}) == DimExpr(1));
  DimExpr rows = folded ? batch * m : m, batches = folded ? DimExpr(1) : batch;
  // One row dequantizes what it streams in registers; more of them share a panel of numbers.
  bool single = stored && !rowsCopied && rows == DimExpr(1);
  if (single)
    c.tileM = c.rows = 1, panelsCopied = false;
  int64_t all = (batches * rows).constant().value_or(1), wide = n.constant().value_or(c.tileN);
  int64_t units = std::max<int64_t>(1, all / c.rows);
  c.tileK = single ? 1 : panelsOfUnit(depth, wide, units, c, target);
  // Far more rows than the second-level cache holds: as many as half of it holds stay there while many panels are
  // streamed for them.
  constexpr int64_t kMostBytes = 512 << 10, kMostPanels = 24;
  if (!rowsCopied && batches == DimExpr(1) && all * depth * 4 > 2 * target.l2Bytes) {
    int64_t own = std::min(kMostBytes, target.l2Bytes / 2);
    c.rows = std::clamp(own / (depth * 4) / c.tileM * c.tileM, c.tileM, 16 * c.tileM);
    int64_t chunks = (all + c.rows - 1) / c.rows;
    c.tileK = std::min(kMostPanels, panelsForWorkers(panelsOf(wide, c), chunks, unitsForCores(target, 32)));
  }
  // Of little depth the time is that of the stores: few rows at a time, each in stretches of pages, which are fetched ahead.
  if (!single && !rowsCopied && resultsLead(depth, all * wide, target)) {
    constexpr int64_t kStretch = 2 << 10; // bytes; half as many take twice the time on Sapphire Rapids
    c.rows = std::min(c.rows, 4 * c.tileM);
    c.tileK = std::clamp(kStretch / (4 * c.tileN), c.tileK, std::max(c.tileK, panelsOf(wide, c)));
  }
  if (!single)
    c = askedOr(desc, c, panelsOf(wide, c));
  KernelSpec spec = specFor(desc, c, batches * DimExpr::ceilDiv(rows, DimExpr(c.rows)) *
                                         DimExpr::ceilDiv(n, DimExpr(c.tileN * c.tileK)));
  int64_t bytes = 4;
  for (const ContractionOperand &o : desc.operands)
    bytes = std::max<int64_t>(bytes, bitWidth(o.dtype) / 8);
  if (rowsCopied)
    spec.scratchBytes = spec.scratchBytes + k * DimExpr(c.rows * bytes);
  if (panelsCopied)
    spec.scratchBytes = spec.scratchBytes + k * DimExpr(c.tileN * bytes);
  std::string recipe = "panels" + std::to_string(c.tileN) + (b.transposed ? "t" : "");
  packWeight(spec, b, recipe);
  // One row streams the panels: a kernel of its own, with as many units as there are panels.
  if (!rowsCopied && (!panelsCopied || stored) && !rows.isConstant() &&
      rows.range(desc.symbols).lo <= 1) {
    KernelConfig one = c;
    one.tileM = one.rows = one.tileK = 1;
    KernelSpec row = specFor(desc, one, batches * DimExpr::ceilDiv(n, DimExpr(one.tileN)));
    packWeight(row, b, recipe);
    addVariant(out, {{DimCondition::Kind::Equal, rows, DimExpr(1)}}, std::move(row));
  }
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

Status attention(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() != 4)
    return internalError("attention needs B, H, S, E", "kernel " + desc.name);
  KernelConfig c = productTile(kCpuAttention, target);
  // Rows of queries that share transposed keys; their scores stay in scratch memory.
  c.rows = 4 * c.tileM;
  auto add = [&](const KernelConfig &config, std::vector<DimCondition> guard) {
    DimExpr chunks = config.tileK > 0 ? DimExpr::ceilDiv(desc.parallel[0], DimExpr(config.tileK))
                                      : desc.parallel[0] * DimExpr::ceilDiv(desc.parallel[2], DimExpr(config.rows));
    KernelSpec spec = specFor(desc, config, chunks * desc.parallel[1]);
    if (desc.reduction.size() == 2)
      spec.scratchBytes = attentionScratchBytes(config, desc.reduction[0], desc.reduction[1]);
    addVariant(out, std::move(guard), std::move(spec));
  };
  // Tokens of a prompt that lie one after another are rows of the batch with the same keys. Few tokens a unit leave
  // units for all workers where each is of another sequence, and two full tiles are enough to pay for the keys.
  auto queries = desc.parallel[2].constant();
  if (desc.sharesKeys && queries && *queries > 0 && *queries <= 2 * c.tileM) {
    c.tileK = 2 * c.tileM / *queries;
    c.rows = c.tileK * *queries;
    c.stages = 1; // what shares a tile is chance, and must not be seen in the bits
  } else {
    // Of many keys that a mask hides in part, those are left out that no query of a chunk sees. Blocks of a mask are
    // powers of two, mostly: chunks do not straddle them.
    constexpr int64_t kListed = 1024, kListedRows = 32;
    KernelConfig listed = c;
    listed.form = &kCpuAttentionListed;
    listed.rows = kListedRows;
    const DimExpr &keys = desc.reduction[0];
    const DimRange range = keys.range(desc.symbols);
    if (desc.maskHides && range.hi >= kListed) {
      std::vector<DimCondition> guard;
      if (range.lo < kListed)
        guard.push_back({DimCondition::Kind::LessEqual, DimExpr(kListed), keys});
      const bool always = guard.empty();
      add(askedOr(desc, listed), std::move(guard));
      if (always)
        return okStatus();
    }
    c = askedOr(desc, c);
  }
  add(c, {});
  return okStatus();
}

/// Rows of a batch that share the weights of a step; the steps themselves depend on each other.
Status recurrence(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  auto hidden = desc.reduction[1].constant();
  BufferArg weights = desc.buffers[desc.operands[1].buffer];
  if (!hidden || *hidden < 1)
    return internalError("a recurrence needs a known width", "kernel " + desc.name);
  KernelConfig c;
  c.form = &kCpuRecurrent;
  c.lanes = lanesFor(target);
  c.rows = target.vectorRegisters >= 32 ? 4 : 2;
  c = askedOr(desc, c);
  KernelSpec spec = specFor(desc, c, DimExpr::ceilDiv(desc.parallel[0], DimExpr(c.rows)));
  int64_t padded = (*hidden + c.lanes - 1) / c.lanes * c.lanes;
  // Where there are more threads than rows, several share the panels of a step, provided that each has at
  // least a microsecond of work in a step, and some fifty in all steps.
  constexpr int64_t kStepShare = 1 << 16, kShare = 1 << 22;
  int64_t work = 2 * *hidden * weights.dims[0].constant().value_or(0);
  int64_t members = std::min({int64_t(16), padded / c.lanes, work / kStepShare});
  DimExpr busy = DimExpr::min(members, DimExpr::floorDiv(desc.reduction[0] * DimExpr(work), kShare));
  if (members > 1 && !(busy.constant() && *busy.constant() <= 1)) {
    spec.launches[0].grid[1] = DimExpr::max(1, busy);
    spec.launches[0].cluster[1] = members;
  }
  // The hidden state before and after a step, and the cell or what is reset.
  spec.scratchBytes = DimExpr(3 * c.rows * padded * 4);
  spec.buffers[desc.operands[1].buffer].packing =
      "gates" + std::to_string(*weights.dims[0].constant() / *hidden) + "x" + std::to_string(c.lanes);
  addVariant(out, {}, std::move(spec));
  return okStatus();
}

/// Few places: the best so far are kept in order, and most elements are no better than the last of
/// them. Many: rows are sorted, long ones by digits, which costs as much for each element however long the row is; short ones,
/// for which 256 counters of digits would be many, by merging.
/// Of n elements in no order some k ln(n / k) are put among the best k, by k / 2 moves each, which is
/// less than sorting as long as k is a small part of a long row; of a row in ascending order it is all of them.
void topK(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  constexpr int64_t kFew = 48, kMost = 256, kPart = 128;
  const KernelDesc::Selection &s = *desc.selection;
  const DimExpr keyBytes = s.keyBits / 8, placeBytes = 8, slack = 64;
  auto spec = [&](const Skeleton &form, const DimExpr &entries) {
    KernelConfig c;
    c.form = &form;
    c.lanes = lanesFor(target);
    KernelSpec result = specFor(desc, c, s.rows);
    result.scratchBytes = entries * (placeBytes + keyBytes) + slack;
    return result;
  };
  DimRange count = rangeOf(s.count, desc);
  const DimExpr limit = DimExpr::max(kFew, DimExpr::min(kMost, DimExpr::floorDiv(s.length, kPart)));
  DimRange limits = rangeOf(limit, desc);
  DimCondition few{DimCondition::Kind::LessEqual, s.count, limit};
  if (count.lo <= limits.hi)
    addVariant(out, count.hi <= limits.lo ? std::vector<DimCondition>() : std::vector{few},
               spec(kCpuTopKInsert, s.count));
  if (count.hi <= limits.lo)
    return;
  // A place takes half of a word of 64 bits.
  constexpr int64_t kShort = 128, kLongest = UINT32_MAX;
  DimRange lengths = rangeOf(s.length, desc);
  if (lengths.hi >= kShort && lengths.lo <= kLongest) {
    std::vector<DimCondition> guard;
    if (lengths.lo < kShort)
      guard.push_back({DimCondition::Kind::LessEqual, kShort, s.length});
    if (lengths.hi > kLongest)
      guard.push_back({DimCondition::Kind::LessEqual, s.length, kLongest});
    KernelSpec radix = spec(kCpuTopKRadix, s.length);
    radix.scratchBytes = radixScratchBytes(s.length, s.keyBits);
    addVariant(out, std::move(guard), std::move(radix));
    if (lengths.lo >= kShort && lengths.hi <= kLongest)
      return;
  }
  addVariant(out, {}, spec(kCpuTopKMerge, s.length * DimExpr(2)));
}

void selection(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  using Kind = KernelDesc::Selection::Kind;
  if (desc.selection->kind == Kind::TopK)
    return topK(desc, target, out);
  bool nms = desc.selection->kind == Kind::Nms;
  KernelConfig c{nms ? &kNms : &kCpuNonzero};
  if (nms)
    c.lanes = lanesFor(target);
  KernelSpec spec = specFor(desc, c, nms ? desc.selection->rows : DimExpr(1));
  if (nms)
    spec.scratchBytes = nmsScratchBytes(desc.selection->length);
  addVariant(out, {}, std::move(spec));
}

} // namespace

static Status choose(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.serial) {
    KernelConfig c;
    c.form = &kScatter;
    c.lanes = lanesFor(target);
    addVariant(out, {}, specFor(desc, c, DimExpr(1)));
    return okStatus();
  }
  switch (desc.kind) {
  case KernelDesc::Kind::Reduction:
    reduction(desc, target, out);
    break;
  case KernelDesc::Kind::Scan: {
    if (desc.selection) {
      selection(desc, target, out);
      break;
    }
    if (!desc.operands.empty()) {
      LATHE_RETURN_IF_ERROR(recurrence(desc, target, out));
      break;
    }
    KernelConfig c;
    c.form = &kScan;
    c.lanes = lanesFor(target);
    DimExpr elements = product(desc.parallel) * product(desc.reduction);
    addVariant(out, {}, specFor(desc, c, DimExpr::ceilDiv(elements, DimExpr(c.lanes))));
    break;
  }
  case KernelDesc::Kind::Gemm:
    LATHE_RETURN_IF_ERROR(gemm(desc, target, out));
    break;
  case KernelDesc::Kind::Conv:
    LATHE_RETURN_IF_ERROR(chooseConv(desc, target, out));
    break;
  case KernelDesc::Kind::Attention:
    LATHE_RETURN_IF_ERROR(attention(desc, target, out));
    break;
  default:
    pointwise(desc, target, out);
    break;
  }
  return okStatus();
}

Variants chooseCpu(const KernelDesc &desc, const Target &target) {
  std::vector<KernelVariant> out;
  if (!desc.wanted.empty())
    if (Result<std::vector<KernelConfig>> wanted = wantedConfigs(desc); !wanted)
      return wanted.status();
  LATHE_RETURN_IF_ERROR(choose(desc, target, out));
  if (!desc.wanted.empty() && !placeAsked(desc, out))
    return usageError("this kernel cannot run as '" + desc.wanted + "'; by itself it runs as " + out.back().spec.config,
                      "--config, kernel " + desc.name);
  return out;
}

} // namespace lathe::select
