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
namespace {

/// Sizes of a product that gemm.bsr takes.
struct BlockSizes {
  DimExpr rows;           ///< of all batches
  int64_t depth, columns, panels;
  bool rowsCopied;        ///< into scratch memory
  bool mayBeOne, isOne;   ///< row
};

std::optional<BlockSizes> sizesOf(const KernelDesc &desc, std::string &why) {
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
  BlockSizes sizes{product({desc.parallel.begin(), desc.parallel.end() - 1}), *depth, *columns,
                   (*columns + kBlockColumns - 1) / kBlockColumns, a.buffer < 0 || a.transposed || isHalf(a.dtype), false, false};
  sizes.isOne = sizes.rows == DimExpr(1);
  sizes.mayBeOne = !sizes.rows.isConstant() && rangeOf(sizes.rows, desc).lo <= 1;
  return sizes;
}

/// The time of a product in shares of the dense one's: what does not depend on the zeros, and what a row of blocks
/// takes beside a row of a dense panel. Measured by test/perf/sparse.py.
struct BlockCosts {
  double fixed, one, four; ///< blocks of one row, of four
  double panel;            ///< what a panel takes by itself, in rows of it
};
constexpr BlockCosts kOneRowCosts{0.05, 1.3, 1.15, 8}, kManyRowsCosts{0.05, 1.9, 1.85, 8};
/// What is worth another form of the weights.
constexpr double kLeastGain = 0.03;

/// Of the dense product's time, with so many rows, blocks of `each` rows of which `blocks` are not all zero.
double shareOfDense(const BlockSizes &sizes, double rows, int64_t each, int64_t blocks) {
  double kept = double(blocks * each) / double(std::max<int64_t>(1, sizes.depth * sizes.panels));
  const BlockCosts &costs = rows <= 1 ? kOneRowCosts : kManyRowsCosts;
  return costs.fixed + kept * (each == 1 ? costs.one : costs.four) + costs.panel / double(sizes.depth);
}

/// Rows to judge by: those that are known or wanted, else many.
double usualRows(const KernelDesc &desc, const BlockSizes &sizes) {
  constexpr double kMany = 128;
  Result<int64_t> usual = sizes.rows.evaluate(desc.usual);
  return usual ? double(*usual) : kMany;
}

} // namespace
} // namespace lathe::select

namespace lathe {

std::optional<BlockGain> blockGain(const KernelDesc &desc) {
  const ContractionOperand *b = desc.operands.size() > 1 ? &desc.operands[1] : nullptr;
  if (desc.kind != KernelDesc::Kind::Gemm || !b || b->nonzeroBlocks1 < 0 || desc.reduction.size() != 1)
    return std::nullopt;
  BlockGain gain;
  std::optional<select::BlockSizes> sizes = select::sizesOf(desc, gain.why);
  if (!sizes)
    return gain;
  double rows = select::usualRows(desc, *sizes);
  gain.zeros = 1 - double(b->nonzeroBlocks1) / double(std::max<int64_t>(1, sizes->depth * sizes->panels));
  gain.share = select::shareOfDense(*sizes, rows, 1, b->nonzeroBlocks1);
  gain.blocks = b->nonzeroBlocks1;
  if (b->nonzeroBlocks4 >= 0)
    if (double four = select::shareOfDense(*sizes, rows, 4, b->nonzeroBlocks4); four < gain.share)
      gain.share = four, gain.rows = 4, gain.blocks = b->nonzeroBlocks4;
  gain.pays = gain.share <= 1 - select::kLeastGain;
  return gain;
}

} // namespace lathe

namespace lathe::select {

bool chooseBlocks(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  std::optional<BlockGain> gain = blockGain(desc);
  if (!gain || !(gain->pays || (desc.alwaysSparse && gain->why.empty())))
    return false;
  std::string why;
  const BlockSizes sizes = *sizesOf(desc, why);
  const ContractionOperand &b = desc.operands[1];
  // Layers of the same sizes and about as many zeros share their code: capacities are rounded up.
  int64_t all = sizes.depth / gain->rows * sizes.panels, step = std::max<int64_t>(1, all / 64);
  std::string recipe = blocksRecipe(gain->rows, std::min(all, (gain->blocks + step - 1) / step * step), b.transposed);

  KernelConfig c;
  c.form = &kCpuGemmBlocks;
  c.lanes = std::min<int64_t>(target.lanes(DType::F32), kBlockColumns);
  c.tileN = kBlockColumns;
  const int64_t vectors = c.tileN / c.lanes;
  c.tileM = std::clamp<int64_t>((target.vectorRegisters - vectors - 2) / vectors, 1, 12);
  auto variant = [&](KernelConfig config, std::vector<DimCondition> guard) {
    KernelSpec spec = specFor(desc, config, DimExpr::ceilDiv(sizes.rows, DimExpr(config.rows)) *
                                                DimExpr((sizes.panels + config.tileK - 1) / config.tileK));
    // A number for each row beside the rows themselves.
    spec.scratchBytes = DimExpr(4 * config.rows * (1 + (sizes.rowsCopied ? sizes.depth : 0)));
    spec.buffers[b.buffer].packing = recipe;
    addVariant(out, std::move(guard), std::move(spec));
  };
  if (sizes.isOne || sizes.mayBeOne) {
    KernelConfig one = c;
    one.tileM = one.rows = 1;
    one.tileK = std::clamp<int64_t>(sizes.panels / 16, 1, 8); // panels that share the look at the row
    variant(one, sizes.isOne ? std::vector<DimCondition>()
                             : std::vector{DimCondition{DimCondition::Kind::Equal, sizes.rows, DimExpr(1)}});
    if (sizes.isOne)
      return true;
  }
  // One tile of rows, which stays in the first-level cache, for as many panels as the second level keeps for the tiles
  // behind it.
  const int64_t resident = residentBytes(target), enough = unitsForCores(target, 64);
  c.rows = c.tileM;
  int64_t panelBytes = std::max<int64_t>(1, gain->blocks * gain->rows * kBlockColumns * 4 / sizes.panels);
  int64_t chunks = std::max<int64_t>(1, int64_t(usualRows(desc, sizes)) / c.rows);
  int64_t share = chunks >= enough ? sizes.panels : sizes.panels * chunks / enough;
  c.tileK = std::clamp<int64_t>(std::min(resident / panelBytes, share), 1, sizes.panels);
  variant(askedOr(desc, c), {});
  return true;
}

} // namespace lathe::select
