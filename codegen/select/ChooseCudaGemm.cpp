//===- ChooseCudaGemm.cpp - matrix products on GPUs --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks the descriptors of products, in their order, which numbers of rows each is
// the best for: one or few rows stream the weights (gemv, stream, skinny), more
// take a tile. 16-bit operands go to the tensor cores, by TMA and wgmma where
// tensor maps can describe the operands; everything else to ordinary FMA tiles.
//
//===----------------------------------------------------------------------===//

#include "ChooseCuda.h"
#include "HopperGemm.h"

#include <algorithm>

namespace lathe::select {

using Kind = DimCondition::Kind;

ProductChoice::ProductChoice(const KernelDesc &desc, const Target &target, const GemmSizes &sizes,
                             std::vector<KernelVariant> &out)
    : desc(desc), target(target), sizes(sizes), a(desc.operands[0]), b(desc.operands[1]), stored(b),
      rows(rangeOf(sizes.m, desc)),
      mma(target.hasTensorCores() && isHalf(a.dtype) && a.dtype == b.dtype),
      pairs(desc.resultPair || desc.pairHead), out(out) {
  if (std::optional<HopperGemm> made = HopperGemm::of(desc, sizes, target))
    hopper = std::make_unique<HopperGemm>(std::move(*made));
  if (b.codes >= 0) {
    stored.buffer = b.codes;
    stored.dtype = desc.buffers[b.codes].dtype;
  }
}

ProductChoice::~ProductChoice() = default;

bool ProductChoice::add(KernelSpec spec, int64_t upTo, std::vector<DimCondition> guard,
                        std::vector<KernelSpec> otherwise) {
  if (rows.lo > upTo || upTo <= covered) // it would never run
    return true;
  bool conditional = !guard.empty(), all = rows.hi <= upTo;
  if (!all)
    guard.push_back({Kind::LessEqual, sizes.m, DimExpr(upTo)});
  addVariant(out, std::move(guard), std::move(spec), std::move(otherwise));
  if (!conditional)
    covered = upTo;
  return conditional || !all;
}

bool ProductChoice::addEach(std::initializer_list<int64_t> mostRows,
                            const std::function<std::optional<KernelSpec>(int64_t)> &specFor) {
  for (int64_t upTo : mostRows) {
    if (rows.lo > upTo || covered >= upTo)
      continue;
    std::optional<KernelSpec> spec = specFor(upTo);
    if (!spec)
      return true;
    if (!add(std::move(*spec), upTo))
      return false;
  }
  return true;
}

bool ProductChoice::inPieces(const ContractionOperand &operand) const {
  return readsInPieces(desc, operand, sizes, &operand == &a && sizes.folded);
}

std::optional<TensorMapArg> ProductChoice::map(const ContractionOperand &operand, int64_t boxColumns,
                                               int64_t boxRows, int swizzle) const {
  return operandMap(desc, operand, sizes, &operand == &a && sizes.folded, boxColumns, boxRows,
                    swizzle);
}

bool ProductChoice::hasTensorMaps() const { return hopper && hopper->conditions.empty(); }

std::vector<DimCondition> ProductChoice::conditions() const {
  return hopper ? hopper->conditions : std::vector<DimCondition>();
}

std::string ProductChoice::sparsePacking() const { return twoOfFourPacking(desc, sizes); }

std::optional<KernelSpec> ProductChoice::wgmma(KernelConfig c) const {
  if (hopper && c.rows == 1)
    c.rows = hopper->rowsLoaded(c.tileM, rows.hi);
  if (!hopper || !hopper->allows(c))
    return {};
  return hopper->spec(hopper->complete(c), rows.hi);
}

std::optional<double> ProductChoice::denseTime(int64_t m) const {
  KernelConfig best = hopper ? hopper->choose(m, m) : KernelConfig();
  return best.form ? std::optional(hopper->timeOf(best, m)) : std::nullopt;
}

int64_t ProductChoice::usualRows() const {
  constexpr int64_t kMany = 4096;
  Result<int64_t> usual = sizes.m.evaluate(desc.usual);
  return std::max<int64_t>(1, usual ? *usual : std::min(rows.hi, kMany));
}

/// Tiles for ever more rows; neighbours that are the same are one variant.
bool ProductChoice::addWgmma() {
  if (!hopper)
    return true;
  struct Range {
    int64_t upTo;
    KernelConfig config;
    std::vector<KernelConfig> smaller; ///< next best ones
  };
  std::vector<Range> ranges;
  int64_t from = std::max<int64_t>({1, rows.lo, covered + 1});
  for (int64_t upTo : {int64_t(16), int64_t(32), int64_t(64), int64_t(128), int64_t(256),
                       int64_t(512), DimRange::kUnbounded}) {
    if (from > upTo)
      continue;
    constexpr int64_t kMany = 4096;
    int64_t to = std::max<int64_t>(from, std::min({upTo, rows.hi, kMany}));
    KernelConfig config = hopper->choose(from, to);
    if (!ranges.empty() && ranges.back().config == config)
      ranges.back().upTo = upTo;
    else
      ranges.push_back({upTo, config, {}});
    std::vector<KernelConfig> &smaller = ranges.back().smaller;
    smaller.clear(); // those of fewer rows may load too few
    constexpr size_t kOthers = 2;
    while (smaller.size() < kOthers) {
      const KernelConfig &last = smaller.empty() ? config : smaller.back();
      KernelConfig next = hopper->choose(from, to, HopperGemm::sumsOf(last));
      if (!next.form)
        break;
      smaller.push_back(next);
    }
    if (rows.hi <= upTo)
      break;
    from = upTo + 1;
  }
  bool more = true;
  for (const Range &r : ranges) {
    int64_t upTo = std::min(r.upTo, rows.hi);
    std::vector<KernelSpec> otherwise;
    for (const KernelConfig &c : r.smaller)
      otherwise.push_back(hopper->spec(c, upTo));
    more = add(hopper->spec(r.config, upTo), r.upTo, hopper->conditions, std::move(otherwise));
  }
  return more;
}

/// The configuration that was asked for; of several, the first that is possible, and then those
/// behind it.
Status ProductChoice::addWanted() {
  std::vector<KernelSpec> specs;
  Result<std::vector<KernelConfig>> wanted = wantedConfigs(desc);
  if (!wanted)
    return wanted.status();
  for (const KernelConfig &c : *wanted)
    if (auto *asked = c.form->product.asked; asked && (!desc.blockScales || c.form->product.blockScales))
      if (std::optional<KernelSpec> spec = asked(*this, c))
        specs.push_back(std::move(*spec));
  if (specs.empty())
    return usageError("this product cannot run as '" + desc.wanted + "'",
                      "--config, kernel " + desc.name);
  std::vector<KernelSpec> otherwise(specs.begin() + 1, specs.end());
  if (add(std::move(specs.front()), DimRange::kUnbounded, conditions(), std::move(otherwise)))
    kGemmMma.product.offer(*this);
  return okStatus();
}

/// Variants that sum in the same order along K, with the same instruction, for any number of rows: a tile of gemm.split
/// that differs in the rows that it loads, and for many rows tiles that sum in its order; or the portable tiles, which
/// have one order whatever their size.
Status ProductChoice::addInvariant() {
  const KernelConfig tile = hopper ? hopper->chooseInvariant() : KernelConfig();
  constexpr int64_t kFew = 64, kMany = 4096;
  std::vector<std::pair<int64_t, KernelConfig>> ranges; // neighbours that are the same are one variant
  int64_t from = 1;
  if (tile.form)
    for (int64_t upTo : {int64_t(8), int64_t(16), int64_t(32), kFew, int64_t(256), DimRange::kUnbounded}) {
      KernelConfig c = upTo <= kFew ? tile : hopper->chooseInvariant(tile, from, std::min(upTo, kMany));
      c.rows = hopper->rowsLoaded(c.tileM, upTo);
      c = hopper->complete(c);
      if (!ranges.empty() && ranges.back().second == c)
        ranges.back().first = upTo;
      else
        ranges.emplace_back(upTo, c);
      from = std::min(upTo, kMany) + 1; // the last range has no end
    }
  bool more = true;
  for (const auto &[upTo, c] : ranges)
    more = more && add(hopper->spec(c, upTo), upTo, hopper->conditions);
  if (more && (pairs || desc.resultAmax))
    return unsupportedError("no form sums in one order for any number of rows (--batch-invariant)", "kernel " + desc.name);
  if (more)
    kGemmMma.product.offer(*this);
  return okStatus();
}

Status ProductChoice::choose() {
  if (desc.blockScales && pairs)
    return unsupportedError("scales of blocks of k belong to columns, of which a pair of products takes two", "kernel " + desc.name);
  if (!desc.wanted.empty())
    return addWanted();
  if (desc.batchInvariant)
    return addInvariant();
  for (const Skeleton *skeleton : skeletons()) {
    const ProductForm &form = skeleton->product;
    if (!form.offer || (pairs && !form.pairs) || (desc.resultAmax && !form.amax) || (desc.blockScales && !form.blockScales))
      continue;
    if (!form.offer(*this))
      return okStatus();
  }
  // Fusion has seen to it that a form takes them all.
  return internalError("no form for two products at a time, or for amax", "kernel " + desc.name);
}

/// A kernel has one list of buffers: where one variant needs memory to work in, all are given it.
static void giveWorkspace(std::vector<KernelVariant> &variants) {
  DimExpr most = 0;
  BufferArg work;
  for (const KernelVariant &v : variants)
    if (v.spec.workspaceBytes != DimExpr(0)) {
      most = most == DimExpr(0) ? v.spec.workspaceBytes : DimExpr::max(most, v.spec.workspaceBytes);
      work = v.spec.buffers.back();
    }
  if (most == DimExpr(0))
    return;
  work.dims = work.physical = {most};
  auto give = [&](KernelSpec &spec) {
    if (spec.workspaceBytes != DimExpr(0))
      spec.buffers.pop_back();
    spec.workspaceBytes = work.dims[0];
    spec.buffers.push_back(work);
  };
  for (KernelVariant &v : variants) {
    give(v.spec);
    for (KernelSpec &other : v.otherwise)
      give(other);
  }
}

Status gemm(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() < 2 || desc.reduction.size() != 1 || desc.operands.size() < 2)
    return internalError("a product needs M, N, K and two operands", "kernel " + desc.name);
  size_t rank = desc.parallel.size();
  GemmSizes sizes{product({desc.parallel.begin(), desc.parallel.end() - 2}),
                  desc.parallel[rank - 2], desc.parallel[rank - 1], desc.reduction[0], false};
  // Rows of all batches are one matrix when the other operand is one matrix in memory; the
  // skeleton (codegen/cuda/SkeletonGemm.cpp) goes by the same rule.
  const ContractionOperand &b = desc.operands[1];
  int weights = b.codes >= 0 ? b.codes : b.buffer;
  if (rank > 2 && weights >= 0 && desc.buffers[weights].dims.size() == 2 &&
      !desc.operands[0].transposed) {
    sizes.m = sizes.m * sizes.batch;
    sizes.batch = 1;
    sizes.folded = true;
  }
  Status status = ProductChoice(desc, target, sizes, out).choose();
  giveWorkspace(out);
  return status;
}

} // namespace lathe::select
