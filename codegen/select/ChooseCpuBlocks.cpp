//===- ChooseCpuBlocks.cpp - products by weights with blocks of zeros -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// gemm.bsr on CPUs: when it applies, what it takes beside the dense product, its
// tiles. The weights are packed without the blocks that are all zero, of one row
// (1 x 16) or of four (4 x 16), whichever takes less time.
//
//===----------------------------------------------------------------------===//

#include "ChooseCpu.h"

#include "lathe/support/Packing.h"
#include "lathe/support/ZeroBlocks.h"

#include <algorithm>
#include <cmath>

namespace lathe::select {

std::optional<WeightProduct> productByWeights(const KernelDesc &desc, std::string &why) {
  const ContractionOperand &a = desc.operands[0], &b = desc.operands[1];
  auto isFloat32Or16 = [](DType t) { return t == DType::F32 || isHalf(t); };
  if (b.buffer < 0 || !b.isWeight || b.codes >= 0 || !isFloat32Or16(b.dtype) || !isFloat32Or16(a.dtype)) {
    why = "its operands are no floats of 32 or 16 bits";
    return std::nullopt;
  }
  const BufferArg &weight = desc.buffers[b.buffer];
  size_t rank = desc.parallel.size();
  auto depth = desc.reduction[0].constant(), columns = desc.parallel[rank - 1].constant();
  bool one = product({weight.dims.begin(), weight.dims.end() - 2}) == DimExpr(1);
  if (!depth || !columns || !one || weight.physical != weight.dims) {
    why = "its weights are not one matrix";
    return std::nullopt;
  }
  WeightProduct sizes{product({desc.parallel.begin(), desc.parallel.end() - 1}), *depth, *columns,
                      (*columns + kBlockColumns - 1) / kBlockColumns, a.buffer < 0 || a.transposed || isHalf(a.dtype)};
  sizes.isOne = sizes.rows == DimExpr(1);
  sizes.mayBeOne = !sizes.rows.isConstant() && rangeOf(sizes.rows, desc).lo <= 1;
  return sizes;
}

namespace {

/// The tiles of rows and panels that a unit of gemm.bsr has.
KernelConfig tilesOf(const WeightProduct &sizes, double rows, int64_t each, int64_t blocks, const Target &target) {
  KernelConfig c;
  c.form = &kCpuGemmBlocks;
  c.lanes = std::min<int64_t>(target.lanes(DType::F32), kBlockColumns);
  c.tileN = kBlockColumns;
  const int64_t vectors = c.tileN / c.lanes;
  if (rows <= 1) {
    c.tileM = c.rows = 1;
    c.tileK = std::clamp<int64_t>(sizes.panels / 16, 1, 8); // panels that share the look at the row
    return c;
  }
  // One tile of rows, which stays in the first-level cache, for as many panels as the second level keeps for the tiles
  // behind it.
  c.tileM = c.rows = std::clamp<int64_t>((target.vectorRegisters - vectors - 2) / vectors, 1, 12);
  const int64_t resident = residentBytes(target), enough = unitsForCores(target, 32);
  int64_t panelBytes = std::max<int64_t>(1, blocks * each * kBlockColumns * 4 / std::max<int64_t>(1, sizes.panels));
  int64_t chunks = std::max<int64_t>(1, int64_t(rows) / c.rows);
  int64_t share = chunks >= enough ? sizes.panels : sizes.panels * chunks / enough;
  c.tileK = std::clamp<int64_t>(std::min(resident / panelBytes, share), 1, std::max<int64_t>(1, sizes.panels));
  return c;
}

/// The time of a product in shares of the dense one's, fitted to 90 problems that test/perf/sparse.py drew (seed 101).
struct BlockCosts {
  double fixed = 0.03; ///< whatever the zeros are
  double unit = 0.14;  ///< the look for infinities, once for all panels of a unit
  double panel = 4;    ///< what a panel takes by itself, in rows of it
  double row = 1;      ///< a row of blocks, of a row of a dense panel
};

BlockCosts costsOf(const WeightProduct &sizes, double rows, const Target &target, int64_t tileM) {
  BlockCosts costs;
  if (rows <= 1) {
    costs.unit = 0;
    return costs;
  }
  // The dense tile of few rows waits for its sums.
  constexpr double kTwo = 2, kFew = 4;
  costs.row = rows <= kTwo ? 0.87 : rows <= kFew ? 0.95 : 1.0;
  // Cores with two multipliers of 512 bits, which first-level caches of 48 KB tell (Ice Lake and later, Zen 5), wait for
  // the loads of a tile's rows, more so where these are not in that cache.
  constexpr int64_t kSmallCache = 32 << 10;
  if (target.vectorBits >= 512 && target.l1Bytes > kSmallCache) {
    const double tile = double(tileM * sizes.depth * 4) / double(target.l1Bytes);
    costs.row = 1.35 + 0.65 * std::clamp((tile - 1) / 2, 0.0, 1.0);
  }
  return costs;
}

/// What is worth another form of the weights.
constexpr double kLeastGain = 0.03;

/// Of the dense product's time, with so many rows, blocks of `each` rows of which `blocks` are not all zero.
double shareOfDense(const WeightProduct &sizes, double rows, int64_t each, int64_t blocks, const Target &target) {
  const double kept = double(blocks * each) / double(std::max<int64_t>(1, sizes.depth * sizes.panels));
  const KernelConfig tiles = tilesOf(sizes, rows, each, blocks, target);
  const BlockCosts costs = costsOf(sizes, rows, target, tiles.tileM);
  return costs.fixed + costs.unit / double(tiles.tileK) + costs.panel / double(std::max<int64_t>(1, sizes.depth)) + kept * costs.row;
}

/// Rows to judge by: those that are known or wanted, else many.
double usualRows(const KernelDesc &desc, const WeightProduct &sizes) {
  constexpr double kMany = 128;
  Result<int64_t> usual = sizes.rows.evaluate(desc.usual);
  return usual ? double(*usual) : kMany;
}

} // namespace
} // namespace lathe::select

namespace lathe {

std::optional<BlockGain> blockGain(const KernelDesc &desc, const Target &target) {
  const ContractionOperand *b = desc.operands.size() > 1 ? &desc.operands[1] : nullptr;
  if (desc.kind != KernelDesc::Kind::Gemm || !b || b->nonzeroBlocks1 < 0 || desc.reduction.size() != 1)
    return std::nullopt;
  BlockGain gain;
  std::optional<select::WeightProduct> sizes = select::productByWeights(desc, gain.why);
  if (!sizes)
    return gain;
  double rows = select::usualRows(desc, *sizes);
  gain.zeros = 1 - double(b->nonzeroBlocks1) / double(std::max<int64_t>(1, sizes->depth * sizes->panels));
  gain.share = select::shareOfDense(*sizes, rows, 1, b->nonzeroBlocks1, target);
  gain.blocks = b->nonzeroBlocks1;
  if (b->nonzeroBlocks4 >= 0) // with as many zeros blocks of four rows have fewer places to read
    if (double four = select::shareOfDense(*sizes, rows, 4, b->nonzeroBlocks4, target); four <= gain.share)
      gain.share = four, gain.rows = 4, gain.blocks = b->nonzeroBlocks4;
  gain.pays = gain.share <= 1 - select::kLeastGain;
  return gain;
}

} // namespace lathe

namespace lathe::select {

bool chooseBlocks(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  std::optional<BlockGain> gain = blockGain(desc, target);
  if (!gain || !(gain->pays || (desc.alwaysSparse && gain->why.empty())))
    return false;
  std::string why;
  const WeightProduct sizes = *productByWeights(desc, why);
  const ContractionOperand &b = desc.operands[1];
  // Layers of the same sizes and about as many zeros share their code: capacities are rounded up.
  int64_t all = sizes.depth / gain->rows * sizes.panels, step = std::max<int64_t>(1, all / 64);
  std::string recipe = blocksRecipe(gain->rows, std::min(all, (gain->blocks + step - 1) / step * step), b.transposed);

  auto variant = [&](KernelConfig config, std::vector<DimCondition> guard) {
    KernelSpec spec = specFor(desc, config, DimExpr::ceilDiv(sizes.rows, DimExpr(config.rows)) *
                                                DimExpr((sizes.panels + config.tileK - 1) / config.tileK));
    // A number for each row beside the rows themselves.
    spec.scratchBytes = DimExpr(4 * config.rows * (1 + (sizes.rowsCopied ? sizes.depth : 0)));
    spec.buffers[b.buffer].packing = recipe;
    addVariant(out, std::move(guard), std::move(spec));
  };
  if (sizes.isOne || sizes.mayBeOne) {
    const KernelConfig one = tilesOf(sizes, 1, gain->rows, gain->blocks, target);
    variant(one, sizes.isOne ? std::vector<DimCondition>()
                             : std::vector{DimCondition{DimCondition::Kind::Equal, sizes.rows, DimExpr(1)}});
    if (sizes.isOne)
      return true;
  }
  variant(askedOr(desc, tilesOf(sizes, std::max(2.0, usualRows(desc, sizes)), gain->rows, gain->blocks, target)), {});
  return true;
}

} // namespace lathe::select
