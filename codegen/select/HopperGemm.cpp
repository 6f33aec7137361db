//===- HopperGemm.cpp - matrix products of sm_90a ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When tensor maps can describe the operands of a product, their maps, and the
// tile. The choice of the tile is a model of waves: blocks walk over tiles one
// after another, so the time is that of the block with most of them, and never
// less than the memory's. What it was fitted to: test/perf/gpu/results.
//
//===----------------------------------------------------------------------===//

#include "HopperGemm.h"

#include <algorithm>
#include <cmath>

namespace lathe::select {
namespace {

using Kind = DimCondition::Kind;

constexpr int64_t kElementBytes = 2;
constexpr int64_t kPiece = 16 / kElementBytes; ///< elements in 16 bytes

/// `e` is a multiple of `d`: known, a condition, or out of the question.
bool require(const DimExpr &e, int64_t d, std::vector<DimCondition> &conditions) {
  if (divides(d, e))
    return true;
  if (e.constant())
    return false;
  DimCondition c{Kind::Divisible, e, DimExpr(d)};
  if (std::find(conditions.begin(), conditions.end(), c) == conditions.end())
    conditions.push_back(c);
  return true;
}

/// Dimensions `from`..`to` without padding behind the first: one dimension in memory.
bool dense(const BufferArg &b, size_t from, size_t to) {
  for (size_t d = from + 1; d < to; ++d)
    if (b.physical[d] != b.dims[d])
      return false;
  return true;
}

/// Rows by columns, and batches when there are some, of a buffer whose last dimension is
/// contiguous. Boxes are set by the tile.
struct Matrix {
  int buffer = 0;
  DimExpr columns, rows, batches = 1;
  DimExpr rowBytes, batchBytes;
  bool batched = false;
};

TensorMapArg mapOf(const Matrix &m, int64_t boxColumns, int64_t boxRows, int swizzle) {
  TensorMapArg map;
  map.buffer = m.buffer;
  map.dims = {m.columns, m.rows};
  map.strides = {m.rowBytes};
  map.box = {boxColumns, boxRows};
  if (m.batched) {
    map.dims.push_back(m.batches);
    map.strides.push_back(m.batchBytes);
    map.box.push_back(1);
  }
  map.swizzleBytes = swizzle;
  return map;
}

/// An operand as a matrix; nothing where a tensor map cannot describe it.
std::optional<Matrix> operandMatrix(const KernelDesc &desc, const ContractionOperand &operand,
                                    const GemmSizes &sizes, bool fold,
                                    std::vector<DimCondition> &conditions) {
  if (operand.buffer < 0)
    return {};
  const BufferArg &b = desc.buffers[operand.buffer];
  size_t rank = b.dims.size();
  if (!b.packing.empty() || b.dtype != operand.dtype || b.alignment % 16 != 0 || rank < 2 ||
      !require(b.physical.back(), kPiece, conditions))
    return {};
  Matrix m;
  m.buffer = operand.buffer;
  m.columns = b.dims.back();
  m.rowBytes = b.physical.back() * DimExpr(kElementBytes);
  if (fold) {
    if (!dense(b, 0, rank - 1))
      return {};
    m.rows = product({b.dims.begin(), b.dims.end() - 1});
    return m;
  }
  m.rows = b.dims[rank - 2];
  m.batches = product({b.dims.begin(), b.dims.end() - 2});
  m.batchBytes = b.physical[rank - 2] * m.rowBytes;
  m.batched = m.batches != DimExpr(1);
  // One matrix for all batches, or one for each; broadcasting of some dimensions is neither.
  if (m.batched && (m.batches != sizes.batch || !dense(b, 0, rank - 2)))
    return {};
  return m;
}

/// The result, when it can go through the copy engine.
std::optional<Matrix> resultMatrix(const KernelDesc &desc, const GemmSizes &sizes) {
  if (desc.numOutputs != 1 || !desc.resultInPlace)
    return {};
  const BufferArg &b = desc.buffers[desc.numInputs];
  size_t rank = b.dims.size(), sumsRank = desc.parallel.size();
  if ((b.dtype != DType::BF16 && b.dtype != DType::F16) || b.alignment % 16 != 0 ||
      !divides(kPiece, sizes.n))
    return {};
  Matrix m;
  m.buffer = desc.numInputs;
  m.columns = sizes.n;
  m.rows = sizes.m;
  m.batches = sizes.batch;
  m.batched = sizes.batch != DimExpr(1);
  bool sameShape = b.dims == desc.parallel;
  if (!sameShape && !(dense(b, 0, rank) && b.physical[0] == b.dims[0]))
    return {};
  DimExpr row = sameShape ? b.physical.back() : sizes.n;
  if (!divides(kPiece, row) || (sameShape && !dense(b, 0, m.batched ? rank - 2 : rank - 1)))
    return {};
  m.rowBytes = row * DimExpr(kElementBytes);
  m.batchBytes = (sameShape && sumsRank >= 2 ? b.physical[rank - 2] : sizes.m) * m.rowBytes;
  return m;
}

bool inTurns(const KernelConfig &c) { return c.family == "gemm.pingpong"; }

/// What ranks tiles: a time in units of its own. The constants are a fit to sweeps on the H200
/// (over 190 cases the choice loses 0.8 % in the mean); they are no rates of the machine.
double modelTime(const KernelConfig &c, int64_t m, int64_t n, int64_t k, int64_t batch,
                 bool bAlongK, int64_t rowAlignment, const Target &target) {
  constexpr double kMultiply = 3242, kLatency = 1122, kStart = 2661, kRound = 377;
  constexpr double kEpilogue = 124, kMemory = 5228;
  // Rows that begin between the lines of the cache, or even its sectors, take more of them.
  const double feed = rowAlignment >= 64 ? 110.7 : rowAlignment == 32 ? 73 : 50;
  auto over = [](int64_t a, int64_t b) { return static_cast<double>((a + b - 1) / b); };
  double rounds = std::ceil(over(m, c.tileM) * over(n, c.tileN) * static_cast<double>(batch) /
                            target.smCount);
  double rowsLoaded = static_cast<double>(c.rows > 1 ? c.rows : c.tileM);
  double results = static_cast<double>(c.tileM * c.tileN);
  double step = std::max({results * 64 / kMultiply,
                          (rowsLoaded + static_cast<double>(c.tileN)) * 128 / feed,
                          kLatency / static_cast<double>(c.stages)});
  if (!bAlongK && c.tileN % 64 != 0)
    step *= 1.48; // chunks of 32 columns are read more slowly
  if (c.tileN % 32 != 0)
    step *= 1.066; // results are staged 16 columns at a time
  if (!inTurns(c))
    step *= 1.005;
  if (c.tileM == 64 && c.rows == 1)
    step *= 0.955;
  // Ping-pong hides all epilogues but the last.
  double busy = rounds * (over(k, 64) * step + kRound) +
                results / kEpilogue * (inTurns(c) ? 1 : rounds);
  double depth = static_cast<double>(k), height = static_cast<double>(m);
  double bytes = static_cast<double>(batch) * kElementBytes *
                 (height * depth + static_cast<double>(n) * (depth + height));
  return std::max(busy, bytes / kMemory) + kStart;
}

} // namespace

bool readsInPieces(const KernelDesc &desc, const ContractionOperand &operand,
                   const GemmSizes &sizes, bool folded) {
  std::vector<DimCondition> conditions;
  return operandMatrix(desc, operand, sizes, folded, conditions) && conditions.empty();
}

std::optional<HopperGemm> HopperGemm::of(const KernelDesc &desc, const GemmSizes &sizes,
                                         const Target &target) {
  const ContractionOperand &a = desc.operands[0], &b = desc.operands[1];
  if (target.smVersion != 90 || !target.archSpecific || a.dtype != b.dtype ||
      (a.dtype != DType::BF16 && a.dtype != DType::F16))
    return {};
  HopperGemm g(desc, sizes, target);
  auto ma = operandMatrix(desc, a, sizes, sizes.folded, g.conditions);
  auto mb = operandMatrix(desc, b, sizes, false, g.conditions);
  if (!ma || !mb)
    return {};
  // A map of nothing cannot be made; of no rows or columns there is no launch.
  if (rangeOf(sizes.k, desc).lo < 1) {
    if (sizes.k.constant())
      return {};
    g.conditions.push_back({Kind::LessEqual, DimExpr(1), sizes.k});
  }
  g.aAlongK = !a.transposed;
  g.bAlongK = b.transposed;
  g.staged = resultMatrix(desc, sizes).has_value();
  return g;
}

KernelConfig HopperGemm::complete(KernelConfig c) const {
  c.threads = 384;
  c.tileK = 64;
  c.stages = 12;
  while (c.stages > 2 && wgmmaSharedBytes(c, staged) > target.sharedPerBlock)
    --c.stages;
  return c;
}

KernelSpec HopperGemm::spec(const KernelConfig &c) const {
  DimExpr tiles = sizes.batch * DimExpr::ceilDiv(sizes.m, DimExpr(c.tileM)) *
                  DimExpr::ceilDiv(sizes.n, DimExpr(c.tileN));
  KernelSpec spec = specFor(desc, c, DimExpr::min(tiles, DimExpr(target.smCount)));
  spec.launches[0].sharedBytes = wgmmaSharedBytes(c, staged);
  // Weights are fetched while the kernel before still runs.
  spec.launches[0].programmaticDependent = desc.operands[1].isWeight;
  std::vector<DimCondition> ignored;
  Matrix a = *operandMatrix(desc, desc.operands[0], sizes, sizes.folded, ignored);
  Matrix b = *operandMatrix(desc, desc.operands[1], sizes, false, ignored);
  int64_t rows = c.rows > 1 ? c.rows : c.tileM;
  spec.tensorMaps.push_back(mapOf(a, 64, aAlongK ? rows : 64, 128));
  int64_t bWide = bAlongK || c.tileN % 64 == 0 ? 64 : 32;
  spec.tensorMaps.push_back(mapOf(b, bWide, bAlongK ? c.tileN : 64, static_cast<int>(bWide * kElementBytes)));
  if (staged) {
    int64_t wide = c.tileN % 64 == 0 ? 64 : c.tileN % 32 == 0 ? 32 : 16;
    spec.tensorMaps.push_back(
        mapOf(*resultMatrix(desc, sizes), wide, 64, static_cast<int>(wide * kElementBytes)));
  }
  return spec;
}

KernelConfig HopperGemm::choose(int64_t from, int64_t to) const {
  constexpr int64_t kUnknown = 4096;
  int64_t n = sizes.n.constant().value_or(kUnknown), k = sizes.k.constant().value_or(kUnknown);
  int64_t batch = sizes.batch.constant().value_or(1);
  KernelConfig best;
  double bestTime = 0;
  // The largest power of two that divides the rows of both operands, in bytes.
  int64_t rowAlignment = 128;
  for (const ContractionOperand *operand : {&desc.operands[0], &desc.operands[1]}) {
    int64_t row = desc.buffers[operand->buffer].physical.back().constant().value_or(kUnknown);
    rowAlignment = std::min(rowAlignment, row * kElementBytes & -(row * kElementBytes));
  }
  auto consider = [&](const char *family, int64_t tileM, std::initializer_list<int64_t> columns) {
    for (int64_t tileN : columns) {
      if (!bAlongK && tileN % 32 != 0)
        continue;
      KernelConfig c;
      c.family = family;
      c.tileM = tileM;
      c.tileN = tileN;
      if (aAlongK && to < tileM)
        c.rows = (to + 7) / 8 * 8;
      c = complete(c);
      // A range is judged by four of its sizes: rounds that are full for one are not for another.
      double time = 0;
      for (int i = 0; i < 4; ++i) {
        double at = static_cast<double>(from) * std::pow(static_cast<double>(to) / from, i / 3.0);
        int64_t m = static_cast<int64_t>(at + 0.5);
        time += modelTime(c, m, n, k, batch, bAlongK, rowAlignment, target) / at;
      }
      if (best.family.empty() || time < bestTime) {
        best = c;
        bestTime = time;
      }
    }
  };
  // Ties go to the earlier one.
  if (to > 64) {
    consider("gemm.pingpong", 128, {128});
    // The more sums a thread holds, the fewer registers are left for what becomes of them.
    if (desc.resultBare)
      consider("gemm.pingpong", 128, {192});
    if (desc.resultBare || desc.numInputs <= 3)
      consider("gemm.pingpong", 128, {160});
    consider("gemm.pingpong", 128, {112, 96, 64});
    consider("gemm.cooperative", 128, {256, 224, 192});
  }
  consider("gemm.pingpong", 64, {224, 192, 128, 96, 64, 48, 32});
  return best;
}

} // namespace lathe::select
