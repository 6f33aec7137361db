//===- HopperGemm.cpp - matrix products of sm_90a ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When tensor maps can describe the operands of a product, their maps, and the
// tile. The choice of the tile is a model of waves: blocks walk over tiles one
// after another, so the time is that of the block with most of them, and never
// less than the memory's. Its constants: HopperGemmFit.h.
//
//===----------------------------------------------------------------------===//

#include "HopperGemm.h"

#include "ChooseCuda.h"
#include "HopperGemmFit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lathe::select {
namespace {

using Kind = DimCondition::Kind;

constexpr int64_t kRowBytes = 128; ///< of k in a stage: what the swizzle spans
constexpr int64_t kPairChunk = 32; ///< columns of half a head that are loaded together

int64_t bytesOf(DType type) { return bitWidth(type) / 8; }
int64_t pieceOf(DType type) { return 16 / bytesOf(type); } ///< elements in 16 bytes

/// Bytes of the operands' elements when the matrix units multiply these types; else 0.
int64_t multipliedBytes(const KernelDesc &desc) {
  DType a = desc.operands[0].dtype, b = desc.operands[1].dtype;
  auto isByte = [](DType t) { return t == DType::I8 || t == DType::UI8; };
  auto isFloat8 = [](DType t) { return t == DType::F8E4M3FN || t == DType::F8E5M2; };
  if (a == b && (a == DType::BF16 || a == DType::F16))
    return 2;
  if ((isByte(a) && isByte(b)) || (isFloat8(a) && isFloat8(b)))
    return 1;
  return a == b && a == DType::F32 && desc.allowTf32 ? 4 : 0;
}

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
      !require(b.physical.back(), pieceOf(b.dtype), conditions))
    return {};
  Matrix m;
  m.buffer = operand.buffer;
  m.columns = b.dims.back();
  m.rowBytes = b.physical.back() * DimExpr(bytesOf(b.dtype));
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

/// A buffer that has an element for each result, in their order, when the copy engine can move it.
std::optional<Matrix> matrixOfResults(const KernelDesc &desc, const GemmSizes &sizes, int buffer) {
  const BufferArg &b = desc.buffers[buffer];
  size_t rank = b.dims.size(), sumsRank = desc.parallel.size();
  int64_t bits = bitWidth(b.dtype);
  bool stageable = bits == 32 || bits == 16 || (bits == 8 && b.dtype != DType::Bool);
  if (!stageable || b.alignment % 16 != 0 || !divides(pieceOf(b.dtype), sizes.n))
    return {};
  Matrix m;
  m.buffer = buffer;
  m.columns = sizes.n;
  m.rows = sizes.m;
  m.batches = sizes.batch;
  m.batched = sizes.batch != DimExpr(1);
  bool sameShape = b.dims == desc.parallel;
  if (!sameShape && !(dense(b, 0, rank) && b.physical[0] == b.dims[0]))
    return {};
  DimExpr row = sameShape ? b.physical.back() : sizes.n;
  if (!divides(pieceOf(b.dtype), row) || (sameShape && !dense(b, 0, m.batched ? rank - 2 : rank - 1)))
    return {};
  m.rowBytes = row * DimExpr(bytesOf(b.dtype));
  m.batchBytes = (sameShape && sumsRank >= 2 ? b.physical[rank - 2] : sizes.m) * m.rowBytes;
  return m;
}

/// The result, when it can go through the copy engine.
std::optional<Matrix> resultMatrix(const KernelDesc &desc, const GemmSizes &sizes) {
  if (desc.numOutputs != 1 || !desc.resultInPlace)
    return {};
  return matrixOfResults(desc, sizes, desc.numInputs);
}

/// The result as heads of tokens, when it can go through the copy engine: box and swizzle are the
/// caller's.
std::optional<TensorMapArg> headsMap(const KernelDesc &desc, const GemmSizes &sizes) {
  if (desc.resultHeads.empty() || !(sizes.folded || sizes.batch == DimExpr(1)))
    return {};
  const BufferArg &b = desc.buffers[desc.numInputs];
  int64_t bits = bitWidth(b.dtype);
  // A piece of 64 rows belongs to one batch: stores that begin before a batch's first token have
  // been seen to fail.
  if ((bits != 16 && bits != 32) || b.alignment % 16 != 0 || !divides(64, desc.resultHeads[2]) ||
      !divides(64, desc.resultHeads[0]))
    return {};
  TensorMapArg map;
  map.buffer = desc.numInputs;
  map.dims = {b.dims[3], b.dims[2], b.dims[1], b.dims[0]};
  DimExpr stride = bits / 8;
  for (size_t d = 3; d > 0; --d)
    map.strides.push_back(stride = stride * b.physical[d]);
  return map;
}

/// The heads of each output as the copy engine stores them, 32 columns of a half of a head at a time;
/// empty where it cannot.
std::vector<TensorMapArg> headMaps(const KernelDesc &desc, const GemmSizes &sizes) {
  constexpr int64_t kRows = 64; // that are stored together, of one batch
  std::vector<TensorMapArg> maps;
  if (!desc.pairHead || !(sizes.folded || sizes.batch == DimExpr(1)))
    return {};
  for (size_t i = 0; i < desc.headResults.size(); ++i) {
    const KernelDesc::HeadResult &r = desc.headResults[i];
    TensorMapArg map;
    map.buffer = desc.numInputs + static_cast<int>(i);
    const BufferArg &b = desc.buffers[map.buffer];
    if (bitWidth(b.dtype) != 16 || b.dtype != desc.buffers[desc.numInputs].dtype || b.alignment % 16 != 0 ||
        b.physical.back() != DimExpr(desc.pairHead) ||
        !(b.dims[r.batches] == DimExpr(1) || divides(kRows, b.dims[r.tokens])))
      return {};
    map.dims = {b.dims.back()};
    for (size_t d : {r.tokens, r.heads, r.batches}) {
      map.dims.push_back(b.dims[d]);
      map.strides.push_back(DimExpr(bytesOf(b.dtype)) * product({b.physical.begin() + d + 1, b.physical.end()}));
    }
    map.box = {kPairChunk, kRows, 1, 1};
    map.swizzleBytes = static_cast<int>(kPairChunk * bytesOf(b.dtype));
    maps.push_back(std::move(map));
  }
  return maps;
}

/// What the copy engine brings to the place of each result.
std::optional<Matrix> besideMatrix(const KernelDesc &desc, const GemmSizes &sizes) {
  if (desc.beside < 0 || desc.resultPair ||
      desc.buffers[desc.beside].dtype != desc.buffers[desc.numInputs].dtype ||
      !resultMatrix(desc, sizes))
    return {};
  return matrixOfResults(desc, sizes, desc.beside);
}

bool inTurns(const KernelConfig &c) { return c.family.starts_with("gemm.pingpong"); }
bool isShared(const KernelConfig &c) { return c.family.ends_with(".shared"); }
bool isSplit(const KernelConfig &c) { return c.family.starts_with("gemm.split"); }
bool isSwapped(const KernelConfig &c) { return c.family.ends_with(".swapped"); }

/// What ranks tiles: a time in ns. fit_select.py (test/perf/gpu) has the same in Python, to fit the
/// constants.
double modelTime(const KernelConfig &c, int64_t m, int64_t n, int64_t k, int64_t batch,
                 int64_t elementBytes, bool bAlongK, bool bare, bool beside, int64_t rowAlignment,
                 const Target &target) {
  using namespace fit;
  auto over = [](int64_t a, int64_t b) { return static_cast<double>((a + b - 1) / b); };
  // Of several that run side by side the longest counts, and the others a little.
  auto blend = [](double sharp, std::initializer_list<double> parts) {
    double longest = std::max(parts), sum = 0;
    for (double part : parts)
      sum += std::pow(part / longest, sharp);
    return longest * std::pow(sum, 1 / sharp);
  };
  const double sms = static_cast<double>(target.smCount);
  double down = over(m, c.tileM), across = over(n, c.tileN);
  double blocks = down * across * static_cast<double>(batch * c.cluster);
  double rounds = std::ceil(blocks / sms), whole = std::floor(blocks / sms);
  double steps = std::ceil(over(k, c.tileK) / static_cast<double>(c.cluster));
  double rowsLoaded = static_cast<double>(c.rows > 1 ? c.rows : c.tileM);
  double columns = static_cast<double>(c.tileN), depth = static_cast<double>(k);
  double height = static_cast<double>(m), width = static_cast<double>(n);
  double results = static_cast<double>(c.tileM * c.tileN);
  // Rows that begin between the lines of the cache, or even its sectors, take more of them; all
  // multiprocessors together load less than each of them could. Rows beyond a tensor are slow.
  int at = rowAlignment >= 128 ? 0 : rowAlignment == 64 ? 1 : rowAlignment == 32 ? 2 : 3;
  double feed = std::array{kFeed, kFeedLines, kFeedSectors, kFeedBetween}[at];
  double feedAll = std::array{kAll, kAllLines, kAllSectors, kAllBetween}[at] * feed;
  double below = c.rows > 1 ? 0 : down * static_cast<double>(c.tileM) - height;
  double right = across * columns - width, mean = below / down + right / across;
  double load = rowsLoaded + columns + kOutside * (rounds == 1 ? below + right : mean);
  double loadAll = rowsLoaded + columns + kOutsideAll * mean;
  // In large products power sets the clock, and most of what is loaded is in the cache.
  constexpr double kManyProducts = 3e10;
  double products = height * width * depth * static_cast<double>(batch);
  double large = products / (products + kManyProducts), reuse = 1 + kReuse * large;
  double multiply = kMultiply / (1 + kHeat * large);
  double factor = 1;
  if (!inTurns(c) && rounds > 1)
    factor *= kCooperative + kCooperativeLarge * large;
  if (c.tileN % 64 != 0)
    factor *= 1 + kUneven * large;
  // One round of large tiles: nothing is hidden behind anything.
  if (!inTurns(c) && rounds == 1 && results > 128 * 224)
    factor *= kLarge;
  if (inTurns(c) && rounds == 1 && c.tileM == 128 && c.tileN > 64)
    factor *= kTurnAlone;
  if (c.tileM == 64 && c.rows == 1)
    factor *= kHalfRows;
  if (c.cluster > 1 && m > c.tileM)
    factor *= kSplitRows;
  if (!bAlongK && c.tileN % 64 != 0)
    factor *= kAcross; // chunks of 32 columns are read more slowly
  // Bytes are multiplied in half the time, and results take as long as ever.
  if (c.family == "gemm.cooperative" && elementBytes == 1 && rounds > 1)
    factor *= kBytesShown;
  bool promoted = c.family == "gemm.promoted" || c.family == "gemm.split.promoted";
  // A step, when so many blocks run.
  auto stepOf = [&](double active) {
    double step = factor * blend(kBlendStep, {results * 64 / multiply,
                                              load * kRowBytes / feed / reuse,
                                              loadAll * kRowBytes / feedAll / reuse * active / sms,
                                              kLatency / static_cast<double>(c.stages) / reuse});
    // Sums of 8-bit floats are taken out of the units once or twice a step.
    if (promoted)
      step = std::max(step * (c.tileN > 128 ? kPromotedWide : 1),
                      kPromotedStep + kPromotedColumn * columns);
    return step;
  };
  double left = blocks - whole * sms, step = stepOf(whole > 0 ? sms : left);
  double busy = whole * (steps * step + kRound), idle = rounds * sms / blocks;
  if (isShared(c) && left > 0) {
    busy += left * steps / sms * step + kShare;
    idle = 1;
  } else if (left > 0) {
    busy += steps * stepOf(left) + kRound;
  }
  // Ping-pong hides all epilogues but the last.
  double staged = results * (c.tileN % 32 != 0 ? kNarrow : c.tileN % 64 != 0 ? kMiddle : 1);
  double epilogue = staged * (inTurns(c) ? kEpilogue : kShown * (rounds > 1 ? rounds : 0.5));
  // What nothing hides takes as long as it is: activations much longer than stores.
  if (!inTurns(c) && !bare && !beside && rounds > 1)
    epilogue *= kActivation;
  busy += epilogue;
  // What lies beside the results may take longer than the products of the tile between.
  if (beside && inTurns(c) && rounds > 2)
    busy = std::max(busy, std::ceil(rounds / 2) * (steps * step + kRound + results / kBeside));
  if (c.cluster > 1) {
    double parts = static_cast<double>(c.cluster);
    busy += kTogether + kTogetherEach * parts +
            kTogetherSums * rowsLoaded * columns * std::sqrt(parts);
  }
  double bytes = static_cast<double>(batch * elementBytes) *
                 (height * depth + width * (depth + (beside ? 2 : 1) * height));
  // Memory is as fast as loads are under way; columns beyond the tensor are none.
  double ahead = std::min(blocks, sms) *
                 std::min(steps * rounds, static_cast<double>(c.stages)) *
                 (width / across + (rounds > 1 ? rowsLoaded : 0)) * kRowBytes;
  double moved = bytes / kMemory * (1 + kAhead / ahead) * std::pow(idle, kIdle);
  if (c.cluster > 1)
    moved += kTogetherMoved;
  if (beside && HopperGemm::sumsOf(c) > 64) {
    constexpr double kFewSteps = 8; // too few to hide what lies beside the results
    moved *= kBesideWide;
    busy *= steps <= kFewSteps ? kBesideWide : 1;
  }
  if (isSplit(c) && c.cluster == 1)
    busy += kAlone; // a lone group of warps starts later
  return blend(kBlend, {busy, moved}) + kStart;
}

/// What says whether a tile with swapped operands is better than a plain one where results are more
/// than bare sums: ns, by constants of a sweep over the products of ResNet-50, a batch of 64, on an
/// H200.
double swappedTime(const KernelConfig &c, int64_t m, int64_t n, int64_t k, int64_t batch,
                   bool beside, const Target &target) {
  constexpr double kMultiply = 3650, kFeed = 124, kLatency = 1335, kRound = 300, kStart = 1740;
  constexpr double kEpilogue = 0.07, kShown = 0.0963, kMemory = 4400, kAhead = 10400, kIdle = 0.45;
  constexpr double kFewSteps = 8; // too few to hide results behind
  const double sms = static_cast<double>(target.smCount);
  auto over = [](int64_t a, int64_t b) { return static_cast<double>((a + b - 1) / b); };
  auto blend = [](double sharp, double x, double y, double z = 0) {
    return std::pow(std::pow(x, sharp) + std::pow(y, sharp) + std::pow(z, sharp), 1 / sharp);
  };
  double blocks = over(m, c.tileM) * over(n, c.tileN) * static_cast<double>(batch);
  double rounds = std::ceil(blocks / sms), steps = over(k, c.tileK);
  double results = static_cast<double>(c.tileM * c.tileN), rows = static_cast<double>(c.tileM);
  double columns = static_cast<double>(c.tileN), depth = static_cast<double>(k);
  double height = static_cast<double>(m), width = static_cast<double>(n);
  double step = blend(6, results * 64 / kMultiply, (rows + columns) * kRowBytes / kFeed,
                      kLatency / static_cast<double>(c.stages));
  double busy = rounds * (steps * step + kRound) +
                results * (inTurns(c) ? kEpilogue : kShown * (rounds > 1 ? rounds : 0.5));
  double bytes = static_cast<double>(2 * batch) *
                 (height * depth + width * (depth + (beside ? 2 : 1) * height));
  double ahead = std::min(blocks, sms) *
                 std::min(steps * rounds, static_cast<double>(c.stages)) *
                 (rows + (rounds > 1 ? columns : 0)) * kRowBytes;
  double moved =
      bytes / kMemory * (1 + kAhead / ahead) * std::pow(rounds * sms / blocks, kIdle);
  double factor = 1;
  if (isSwapped(c)) {
    // What is made of sums by their column takes fewer instructions, which shows where there are few
    // products for each, and not where products take most of the time. Results are stored in pieces
    // of 64 rows or of fewer.
    constexpr double kMost = 0.07, kEachStep = 0.5, kOddRows = 1.05, kMostly = 0.7;
    factor = (1 - std::min(kMost, kEachStep / steps)) * (c.tileM % 64 ? kOddRows : 1);
    if (moved < kMostly * busy && !(beside && steps <= kFewSteps))
      factor *= rounds > 1 ? 1.1 : 1.05;
  } else if (beside && inTurns(c) && steps <= kFewSteps) {
    factor = 1.25; // groups that take turns wait for what lies beside their results
  }
  if (beside && HopperGemm::sumsOf(c) > 64) {
    constexpr double kBesideWide = 1.06;
    moved *= kBesideWide;
    busy *= steps <= kFewSteps ? kBesideWide : 1;
  }
  return (blend(3, busy, moved) + kStart) * factor;
}

} // namespace

bool readsInPieces(const KernelDesc &desc, const ContractionOperand &operand,
                   const GemmSizes &sizes, bool folded) {
  std::vector<DimCondition> conditions;
  return operandMatrix(desc, operand, sizes, folded, conditions) && conditions.empty();
}

std::optional<TensorMapArg> operandMap(const KernelDesc &desc, const ContractionOperand &operand,
                                       const GemmSizes &sizes, bool folded, int64_t boxColumns,
                                       int64_t boxRows, int swizzle) {
  std::vector<DimCondition> conditions;
  std::optional<Matrix> m = operandMatrix(desc, operand, sizes, folded, conditions);
  if (!m || !conditions.empty())
    return {};
  return mapOf(*m, boxColumns, boxRows, swizzle);
}

std::optional<HopperGemm> HopperGemm::of(const KernelDesc &desc, const GemmSizes &sizes,
                                         const Target &target) {
  const ContractionOperand &a = desc.operands[0], &b = desc.operands[1];
  HopperGemm g(desc, sizes, target);
  g.elementBytes = multipliedBytes(desc);
  // Only 16-bit operands may lie across k.
  if (target.smVersion != 90 || !target.archSpecific || g.elementBytes == 0 ||
      (g.elementBytes != 2 && (a.transposed || !b.transposed)))
    return {};
  g.promoted = isFloat(a.dtype) && g.elementBytes == 1 && !desc.allowReducedSums;
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
  if (resultMatrix(desc, sizes) || headsMap(desc, sizes) || !headMaps(desc, sizes).empty())
    g.resultBytes = bytesOf(desc.buffers[desc.numInputs].dtype);
  return g;
}

bool HopperGemm::allows(const KernelConfig &c) const {
  if (c.family == "gemm.pingpong.swapped" || c.family == "gemm.cooperative.swapped")
    return elementBytes == 2 && isHalf(desc.buffers[desc.numInputs].dtype) && !desc.resultPair &&
           aAlongK && resultBytes && resultMatrix(desc, sizes) && c.tileM > 0 && c.tileM <= 256 &&
           c.tileM % 16 == 0 && c.tileN > 0 && c.tileN % (inTurns(c) ? 64 : 128) == 0 &&
           c.tileN <= 256 && sumsOf(c) <= 128 && c.cluster == 1;
  int64_t columns = (desc.resultPair ? 2 : 1) * (bAlongK && !desc.pairHead ? 16 : 32);
  int64_t rows = inTurns(c) || isSplit(c) ? 64 : 128;
  constexpr std::string_view kFamilies[] = {
      "gemm.pingpong",        "gemm.cooperative",        "gemm.promoted",      "gemm.split",
      "gemm.pingpong.shared", "gemm.cooperative.shared", "gemm.split.promoted"};
  if (std::find(std::begin(kFamilies), std::end(kFamilies), c.family) == std::end(kFamilies))
    return false;
  // Sums of 8-bit floats are f32 unless the user allows less.
  if (c.family.ends_with("promoted") != promoted || (promoted && isSplit(c) && c.tileN > 128))
    return false;
  return c.tileN > 0 && c.tileN <= 256 && c.tileN % columns == 0 && c.tileM > 0 &&
         c.tileM % rows == 0 && c.tileM <= (isSplit(c) ? 64 : 128) && c.cluster >= 1 &&
         c.cluster <= 8 && (isSplit(c) || c.cluster == 1);
}

KernelConfig HopperGemm::complete(KernelConfig c) const {
  c.threads = isSplit(c) ? 160 : 384;
  c.tileK = kRowBytes / elementBytes;
  if (isSwapped(c))
    c.rows = 1;
  c.stages = 12;
  auto bytes = [&] {
    return isSplit(c) ? splitSharedBytes(c) : wgmmaSharedBytes(c, resultBytes, desc.resultPair, desc.pairHead > 0);
  };
  while (c.stages > 2 && bytes() > target.sharedPerBlock)
    --c.stages;
  return c;
}

/// What a kernel writes and reads while it runs.
static void addWorkspace(KernelSpec &spec, int64_t bytes) {
  BufferArg work;
  work.dtype = DType::UI8;
  work.access = BufferArg::Access::ReadWrite;
  work.dims = work.physical = {spec.workspaceBytes = DimExpr(bytes)};
  spec.buffers.push_back(work);
}

KernelSpec HopperGemm::spec(const KernelConfig &c, int64_t upTo) const {
  int64_t columns = desc.resultPair ? c.tileN / 2 : c.tileN; // of results
  DimExpr tiles = sizes.batch * DimExpr::ceilDiv(sizes.m, DimExpr(c.tileM)) *
                  DimExpr::ceilDiv(sizes.n, DimExpr(columns));
  DimExpr blocks = DimExpr(target.smCount);
  if (isSplit(c))
    blocks = tiles * DimExpr(c.cluster);
  else if (!isShared(c))
    blocks = DimExpr::min(tiles, blocks);
  KernelSpec spec = specFor(desc, c, blocks);
  if (isShared(c))
    addWorkspace(spec, target.smCount * (16 + c.tileM * c.tileN * 4));
  LaunchSpec &launch = spec.launches[0];
  launch.cluster[0] = c.cluster;
  launch.sharedBytes =
      isSplit(c) ? splitSharedBytes(c)
                 : wgmmaSharedBytes(c, resultBytes, desc.resultPair, desc.pairHead > 0);
  // Weights are fetched while the kernel before still runs. Where time goes by multiplying, that
  // is a loss.
  constexpr int64_t kFewRows = 128;
  constexpr double kShort = 8000, kShortSwapped = 13000; // ns
  launch.programmaticDependent =
      desc.operands[1].isWeight &&
      (upTo <= kFewRows || timeOf(c, upTo) < (isSwapped(c) ? kShortSwapped : kShort));
  std::vector<DimCondition> ignored;
  Matrix a = *operandMatrix(desc, desc.operands[0], sizes, sizes.folded, ignored);
  Matrix b = *operandMatrix(desc, desc.operands[1], sizes, false, ignored);
  int64_t rows = c.rows > 1 ? c.rows : c.tileM;
  spec.tensorMaps.push_back(mapOf(a, kRowBytes / elementBytes, aAlongK ? rows : 64, kRowBytes));
  int64_t bBytes = bAlongK || columns % 64 == 0 ? kRowBytes : kRowBytes / 2;
  spec.tensorMaps.push_back(
      mapOf(b, bBytes / elementBytes, desc.pairHead ? kPairChunk : bAlongK ? columns : 64,
            static_cast<int>(bBytes)));
  if (desc.pairHead && resultBytes && !isSplit(c)) {
    for (TensorMapArg &map : headMaps(desc, sizes))
      spec.tensorMaps.push_back(std::move(map));
    return spec;
  }
  if (resultBytes && !isSplit(c)) {
    int64_t wide = wgmmaStagedColumns(columns, resultBytes), bytes = wide * resultBytes;
    int swizzle = bytes < 32 ? 0 : static_cast<int>(bytes);
    if (!resultMatrix(desc, sizes)) {
      std::optional<TensorMapArg> heads = headsMap(desc, sizes);
      heads->box = {wide, 64, 1, 1};
      heads->swizzleBytes = swizzle;
      spec.tensorMaps.push_back(std::move(*heads));
      return spec;
    }
    int64_t high = 64; // rows of results that are stored together
    if (isSwapped(c)) {
      wide = 64;
      high = wgmmaStagedRows(c.tileM);
      swizzle = 128;
    }
    spec.tensorMaps.push_back(mapOf(*resultMatrix(desc, sizes), wide, high, swizzle));
    if (std::optional<Matrix> beside = besideMatrix(desc, sizes))
      spec.tensorMaps.push_back(mapOf(*beside, wide, high, swizzle));
  }
  return spec;
}

double HopperGemm::timeOf(const KernelConfig &c, int64_t m) const {
  constexpr int64_t kUnknown = 4096;
  int64_t n = sizes.n.constant().value_or(kUnknown), k = sizes.k.constant().value_or(kUnknown);
  int64_t batch = sizes.batch.constant().value_or(1);
  // The largest power of two that divides the rows of both operands, in bytes.
  int64_t rowAlignment = 128;
  for (const ContractionOperand *operand : {&desc.operands[0], &desc.operands[1]}) {
    int64_t row = desc.buffers[operand->buffer].physical.back().constant().value_or(kUnknown);
    rowAlignment = std::min(rowAlignment, row * elementBytes & -(row * elementBytes));
  }
  m = std::min<int64_t>(m, 1 << 20);
  bool beside = besideMatrix(desc, sizes).has_value();
  if (isSwapped(c))
    return timeBesideSwapped(c, m);
  return modelTime(c, m, desc.resultPair ? 2 * n : n, k, batch, elementBytes, bAlongK,
                   desc.resultBare, beside, rowAlignment, target);
}

int64_t HopperGemm::sumsOf(const KernelConfig &c) {
  return c.tileM * c.tileN / (inTurns(c) || isSplit(c) ? 128 : 256);
}

double HopperGemm::timeBesideSwapped(const KernelConfig &c, int64_t m) const {
  constexpr int64_t kUnknown = 4096;
  return swappedTime(c, std::min<int64_t>(m, 1 << 20), sizes.n.constant().value_or(kUnknown),
                     sizes.k.constant().value_or(kUnknown), sizes.batch.constant().value_or(1),
                     besideMatrix(desc, sizes).has_value(), target);
}

KernelConfig HopperGemm::choose(int64_t from, int64_t to, int64_t sums) const {
  constexpr int64_t kUnknown = 4096;
  int64_t n = sizes.n.constant().value_or(kUnknown), k = sizes.k.constant().value_or(kUnknown);
  int64_t batch = sizes.batch.constant().value_or(1);
  if (desc.resultPair)
    n *= 2;
  KernelConfig best;
  double bestTime = 0;
  auto consider = [&](const char *family, int64_t tileM, std::initializer_list<int64_t> columns,
                      int64_t cluster = 1) {
    for (int64_t tileN : columns) {
      KernelConfig c;
      c.family = family;
      c.tileM = tileM;
      c.tileN = tileN;
      c.cluster = cluster;
      c.rows = rowsLoaded(tileM, to);
      if (!allows(c) || sumsOf(c) >= sums)
        continue;
      c = complete(c);
      // A range is judged by four of its sizes: rounds that are full for one are not for another.
      double time = 0;
      for (int i = 0; i < 4; ++i) {
        double at = static_cast<double>(from) * std::pow(static_cast<double>(to) / from, i / 3.0);
        int64_t m = static_cast<int64_t>(at + 0.5);
        time += timeOf(c, m) / at;
      }
      if (best.family.empty() || time < bestTime) {
        best = c;
        bestTime = time;
      }
    }
  };
  // Ties go to the earlier one.
  if (promoted) {
    consider("gemm.promoted", 128, {128, 192, 176, 160, 112, 96, 64, 48, 32});
  }
  if (to > 64 && !promoted) {
    consider("gemm.pingpong", 128, {128});
    // The more sums a thread holds, the fewer registers are left for what becomes of them.
    bool few = desc.resultBare || desc.resultPair || elementBytes == 1 ||
               (desc.numInputs <= 3 && besideMatrix(desc, sizes));
    if (few)
      consider("gemm.pingpong", 128, {192});
    if (few || desc.numInputs <= 3)
      consider("gemm.pingpong", 128, {160});
    consider("gemm.pingpong", 128, {112, 96, 64});
    consider("gemm.cooperative", 128, {256, 224, 192, 128, 112, 96, 64});
    // Handing over sums takes as long as it saves where rounds are few, or results take long.
    constexpr int64_t kManyRounds = 8;
    if ((from + 127) / 128 * ((n + 127) / 128) * batch > kManyRounds * target.smCount && elementBytes == 2 && desc.resultBare)
      consider("gemm.pingpong.shared", 128, {128});
  }
  if (!promoted)
    consider("gemm.pingpong", 64, {224, 192, 128, 96, 64, 48, 32});
  // Of bytes there are half as many steps to share.
  if (elementBytes == 1 && to > 64)
    return best;
  // Blocks of a cluster lie close together: not all multiprocessors can have one of a large one.
  for (int64_t cluster : {1, 2, 4, 8}) {
    int64_t most = target.smCount * (cluster == 8 ? 96 : cluster == 4 ? 112 : 132) / 132;
    for (int64_t columns : {256, 224, 192, 128, 96, 64, 48, 32}) {
      if (promoted && columns > 128)
        continue;
      int64_t blocks = (to + 63) / 64 * ((n + columns - 1) / columns) * batch * cluster;
      if (blocks <= most && k / (kRowBytes / elementBytes) >= cluster)
        consider(promoted ? "gemm.split.promoted" : "gemm.split", 64, {columns}, cluster);
    }
  }
  return swappedInstead(best, from, to, sums);
}

KernelConfig HopperGemm::swappedInstead(const KernelConfig &plain, int64_t from, int64_t to,
                                        int64_t sums) const {
  constexpr int64_t kUnknown = 4096;
  int64_t n = sizes.n.constant().value_or(kUnknown), batch = sizes.batch.constant().value_or(1);
  // Where there is work for half of the multiprocessors, and more to do with sums than to store them.
  bool known = plain.family == "gemm.pingpong" || plain.family == "gemm.cooperative";
  if (!known || !bAlongK || desc.resultBare || to * n * batch < 128 * 128 * target.smCount / 2)
    return plain;
  bool beside = besideMatrix(desc, sizes).has_value();
  auto timeOfRange = [&](const KernelConfig &c) {
    double time = 0;
    for (int i = 0; i < 4; ++i) {
      double at = static_cast<double>(from) *
                  std::pow(static_cast<double>(to) / static_cast<double>(from), i / 3.0);
      time += timeBesideSwapped(c, static_cast<int64_t>(at + 0.5)) / at;
    }
    return time;
  };
  KernelConfig best = plain;
  double bestTime = timeOfRange(plain);
  auto consider = [&](const char *family, int64_t tileM, int64_t tileN) {
    KernelConfig c;
    c.family = family;
    c.tileM = tileM;
    c.tileN = tileN;
    if (!allows(c) || sumsOf(c) >= sums)
      return;
    c = complete(c);
    if (double time = timeOfRange(c); time < bestTime) {
      best = c;
      bestTime = time;
    }
  };
  for (int64_t tileM : {96, 128, 160, 192})
    consider("gemm.cooperative.swapped", tileM, 128);
  // Both groups shall have their part of a lone round, and no group waits for what lies beside.
  auto inTurnsToo = [&](int64_t tileM, int64_t tileN) {
    int64_t tiles = (to + tileM - 1) / tileM * ((n + tileN - 1) / tileN) * batch;
    if (!beside && tiles > target.smCount)
      consider("gemm.pingpong.swapped", tileM, tileN);
  };
  for (int64_t tileM : {96, 128})
    inTurnsToo(tileM, 128);
  for (int64_t tileM : {64, 128, 192})
    inTurnsToo(tileM, 64);
  return best;
}

} // namespace lathe::select
