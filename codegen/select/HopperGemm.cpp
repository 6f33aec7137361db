//===- HopperGemm.cpp - matrix products of sm_90a ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When tensor maps can describe the operands of a product, and their maps. The
// choice of the tile is HopperGemmChoose.cpp's.
//
//===----------------------------------------------------------------------===//

#include "HopperGemm.h"

#include "ChooseCuda.h"
#include "HopperGemmFit.h"
#include "HopperGemmTime.h"

#include "lathe/codegen/ProductChoice.h"
#include "lathe/support/Packing.h"

#include <algorithm>

namespace lathe::select {
namespace {

using Kind = DimCondition::Kind;

constexpr int64_t kRowBytes = HopperGemm::kStepBytes;
constexpr int64_t kPairChunk = 32; ///< columns of half a head that are loaded together

/// Whether tiles have both halves of heads.
bool hasHalves(const KernelDesc &desc) { return desc.pairHead && desc.resultPair; }

int64_t bytesOf(DType type) { return bitWidth(type) / 8; }
int64_t pieceOf(DType type) { return 128 / bitWidth(type); } ///< elements in 16 bytes

/// Bytes of the operands' elements when the tensor cores multiply these types; else 0.
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

/// A buffer that has an element for each result, in their order, when TMA can move it.
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

/// The result, when it can go through TMA.
std::optional<Matrix> resultMatrix(const KernelDesc &desc, const GemmSizes &sizes) {
  if (desc.numOutputs != 1 + desc.resultAmax || !desc.resultInPlace)
    return {};
  return matrixOfResults(desc, sizes, desc.numInputs);
}

/// The result as heads of tokens, when it can go through TMA: box and swizzle are the
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

/// The heads of each output as TMA stores them, 32 columns of a head (or of a half of
/// it) at a time; empty where it cannot.
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
    map.role = TensorMapArg::Role::Result;
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

/// What comes to each result at its own place, where TMA can bring it.
std::optional<Matrix> residualMatrix(const KernelDesc &desc, const GemmSizes &sizes) {
  if (desc.residual < 0 || desc.resultPair || bitWidth(desc.buffers[desc.residual].dtype) != 16 ||
      desc.buffers[desc.residual].dtype != desc.buffers[desc.numInputs].dtype ||
      !resultMatrix(desc, sizes))
    return {};
  return matrixOfResults(desc, sizes, desc.residual);
}

/// Of weights that are packed as `sparse24` the elements and, behind them, the words, of so many columns and a step of k;
/// both in eight bytes, by panel of 16 columns: elements take the room of several times as many panels as there are.
std::vector<TensorMapArg> sparseMaps(int buffer, const GemmSizes &sizes, int64_t columns, int64_t elementBytes) {
  constexpr int64_t kPanel = 16, kValues = 1024, kBytes = 8; // bytes: of a panel and a step
  const int64_t words = PanelLayout::sparseWordBytesOfStep(elementBytes);
  const DimExpr panels = DimExpr::ceilDiv(sizes.n, DimExpr(kPanel));
  const DimExpr steps = DimExpr::ceilDiv(sizes.k, DimExpr(PanelLayout::kSparseStepBytes / elementBytes));
  std::vector<TensorMapArg> maps;
  for (auto [bytes, high] : {std::pair(kValues, panels), {words, panels * DimExpr(kValues / words + 1)}}) {
    TensorMapArg map;
    map.buffer = buffer;
    map.dims = {DimExpr(bytes / kBytes), steps, high};
    map.strides = {DimExpr(bytes), steps * DimExpr(bytes)};
    map.box = {bytes / kBytes, 1, columns / kPanel};
    map.elementBytes = kBytes;
    maps.push_back(std::move(map));
  }
  return maps;
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
  if (bitWidth(operand.dtype) < 8) // rows of codes are read in pieces alone
    return {};
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
  if (!target.hasWgmma() || g.elementBytes == 0 ||
      (g.elementBytes != 2 && (a.transposed || !b.transposed)))
    return {};
  g.promoted = isFloat(a.dtype) && g.elementBytes == 1 && (!desc.allowReducedSums || desc.blockScales);
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
  constexpr int64_t kPartsSums = 96; // of a thread, beside those of the parts before
  if (c.form->product.units != ProductForm::Units::Wgmma)
    return false;
  if (desc.resultAmax && !findsAmax(c))
    return false;
  const bool blocks = c.cluster == 1 || (c.cluster == 2 && !isStreamK(c));
  if (c.form->product.packsZerosAway() && (packingOf(c).empty() || !blocks))
    return false;
  if (c.form->product.blockSparse && c.tileN != 2 * kBlockSide)
    return false;
  if (isSwapped(c)) {
    const bool sparse = c.form->product.sparse;
    // Sums of 8-bit floats are f32 unless the user allows less; those of a pair of steps beside them take registers, too.
    const int64_t mostSums = c.form->wgmma.promoted ? 104 : sparse ? 208 : 128;
    if (!(elementBytes == 2 || (elementBytes == 1 && sparse)) || c.form->wgmma.promoted != promoted || desc.blockScales)
      return false;
    return isHalf(desc.buffers[desc.numInputs].dtype) && !desc.resultPair &&
           aAlongK && resultBytes && resultMatrix(desc, sizes) && c.tileM > 0 && c.tileM <= 256 &&
           c.tileM % 16 == 0 && c.tileN > 0 && c.tileN % (isPingPong(c) ? 64 : 128) == 0 &&
           c.tileN <= 256 && sumsOf(c) <= mostSums && (c.cluster == 1 || c.form->product.packsZerosAway());
  }
  int64_t columns = (desc.resultPair ? 2 : 1) * (bAlongK && !desc.pairHead ? 16 : 32);
  int64_t rows = isPingPong(c) || isSplit(c) ? 64 : 128;
  // Sums of 8-bit floats are f32 unless the user allows less.
  if (c.form->wgmma.promoted != promoted || (promoted && isSplit(c) && c.tileN > 128))
    return false;
  // A part waits for the data of its first step.
  const bool eachPartHasSteps = sizes.k.constant() && *sizes.k.constant() / (kStepBytes / elementBytes) >= c.cluster;
  return c.tileN > 0 && c.tileN <= 256 && c.tileN % columns == 0 && c.tileM > 0 &&
         c.tileM % rows == 0 && c.tileM <= (isSplit(c) ? 64 : 128) && c.cluster >= 1 &&
         c.cluster <= 8 &&
         (isSplit(c) || c.cluster == 1 || (c.form->wgmma.parts && sumsOf(c) <= kPartsSums && eachPartHasSteps) ||
          (isPaired(c) && bAlongK && !desc.resultPair && c.form->wgmma.plain()));
}

/// Whether the weights are one matrix that tensor cores multiply as it lies, of known sizes: it can be packed without its zeros.
static bool isOneMatrix(const KernelDesc &desc, const GemmSizes &sizes) {
  const ContractionOperand &b = desc.operands[1];
  if (!b.isWeight || b.buffer < 0 || b.codes >= 0 || sizes.batch != DimExpr(1) || multipliedBytes(desc) == 0 ||
      !sizes.n.constant() || !sizes.k.constant())
    return false;
  const BufferArg &weight = desc.buffers[b.buffer];
  bool matrix = weight.dims.size() >= 2 && product({weight.dims.begin(), weight.dims.end() - 2}) == DimExpr(1);
  return matrix && weight.dtype == b.dtype && weight.packing.empty() && weight.physical == weight.dims;
}

std::string twoOfFourPacking(const KernelDesc &desc, const GemmSizes &sizes) {
  const ContractionOperand &b = desc.operands[1];
  return b.twoOfFour && b.dtype != DType::F32 && isOneMatrix(desc, sizes) ? twoOfFourRecipe(b.transposed, bitWidth(b.dtype))
                                                                          : std::string();
}

std::string bsrPacking(const KernelDesc &desc, const GemmSizes &sizes) {
  const ContractionOperand &b = desc.operands[1];
  if (b.blocks64 < 0 || !isHalf(b.dtype) || !isOneMatrix(desc, sizes))
    return {};
  // Layers of the same sizes and about as many zeros share their code: capacities are rounded up.
  constexpr int64_t kShares = 64;
  const int64_t most = BlockSteps::most(*sizes.k.constant(), *sizes.n.constant()).first;
  const int64_t step = std::max<int64_t>(1, most / kShares);
  return bsrRecipe(std::min(most, (b.blocks64 + step - 1) / step * step), b.transposed);
}

int64_t sparseStagedRows(int64_t tileM) { return tileM < 256 ? wgmmaStagedRows(tileM) : 32; }

std::string HopperGemm::packingOf(const KernelConfig &c) const {
  return c.form->product.blockSparse ? bsrPacking(desc, sizes) : twoOfFourPacking(desc, sizes);
}

/// Whether warps stage results in the blocks of lathe/ir/BlockAmax.h.
bool HopperGemm::findsAmax(const KernelConfig &c) const {
  constexpr int64_t kBlockColumns = 64;
  int64_t columns = desc.resultPair ? c.tileN / 2 : c.tileN;
  return resultBytes && !isSplit(c) && !isSwapped(c) && wgmmaStagedColumns(columns, resultBytes) == kBlockColumns;
}

TileFacts HopperGemm::facts() const {
  return {.elementBytes = elementBytes,
          .resultBytes = resultBytes,
          .pair = desc.resultPair,
          .heads = desc.pairHead > 0};
}

KernelConfig HopperGemm::complete(KernelConfig c) const {
  return c.form->complete(c, facts(), target);
}

KernelSpec HopperGemm::spec(const KernelConfig &c, int64_t upTo) const {
  int64_t columns = desc.resultPair ? c.tileN / 2 : c.tileN; // of results
  const bool sparse = c.form->product.sparse, blockSparse = c.form->product.blockSparse;
  int64_t pair = isPaired(c) ? 2 : 1; // blocks with tiles one below the other
  // Where operands are swapped, a pair has neighbouring columns.
  int64_t below = sparse ? 1 : pair, beside = sparse ? pair : 1;
  DimExpr tiles = sizes.batch * DimExpr::ceilDiv(sizes.m, DimExpr(c.tileM * below)) * DimExpr(pair) *
                  DimExpr::ceilDiv(sizes.n, DimExpr(columns * beside));
  DimExpr blocks = DimExpr(target.smCount / pair * pair);
  if (isSplit(c))
    blocks = tiles * DimExpr(c.cluster);
  else if (!isStreamK(c))
    blocks = DimExpr::min(tiles, blocks);
  KernelSpec spec = specFor(desc, c, blocks);
  if (isStreamK(c))
    addWorkspace(spec, target.smCount * (16 + c.tileM * c.tileN * 4));
  LaunchSpec &launch = spec.launches[0];
  launch.cluster[0] = c.form->wgmma.parts ? 1 : c.cluster;
  launch.sharedBytes = c.form->sharedBytes(c, facts());
  // Weights are fetched while the kernel before still runs. Where time goes by multiplying, that
  // is a loss; of several rounds of tiles the next launch is hidden behind the last.
  constexpr int64_t kFewRows = 128, kOneRound = 256;
  bool late = desc.resultBare && upTo > kOneRound && !isPaired(c) &&
              wgmmaStartsLate(c, sizes.k.constant().value_or(0));
  launch.programmaticDependent =
      late || (desc.operands[1].isWeight &&
               (upTo <= kFewRows ||
                timeOf(c, upTo) < (isSwapped(c) ? fit::kShortSwapped : fit::kShort)));
  if (c.form->product.checksRows) { // a warp a row
    constexpr int64_t kWarps = 8, kDepthOfWord = 2048;
    addWorkspace(spec, sizes.m * DimExpr::ceilDiv(sizes.k, DimExpr(kDepthOfWord)) * DimExpr(4));
    LaunchSpec finite = spec.launches[0];
    finite.function += "_finite";
    finite.grid[0] = DimExpr::ceilDiv(sizes.m, DimExpr(kWarps));
    finite.block[0] = 32 * kWarps;
    finite.sharedBytes = 0;
    finite.programmaticDependent = false;
    spec.launches.insert(spec.launches.begin(), finite);
  }
  std::vector<DimCondition> ignored;
  Matrix a = *operandMatrix(desc, desc.operands[0], sizes, sizes.folded, ignored);
  Matrix b = *operandMatrix(desc, desc.operands[1], sizes, false, ignored);
  int64_t rows = (c.rows > 1 ? c.rows : c.tileM) / beside;
  spec.tensorMaps.push_back(mapOf(a, kRowBytes / elementBytes, aAlongK ? rows : 64, kRowBytes));
  int64_t bBytes = bAlongK || columns % 64 == 0 ? kRowBytes : kRowBytes / 2;
  if (c.form->product.packsZerosAway())
    spec.buffers[desc.operands[1].buffer].packing = packingOf(c);
  if (sparse) {
    for (TensorMapArg &map : sparseMaps(desc.operands[1].buffer, sizes, c.tileN, elementBytes))
      spec.tensorMaps.push_back(std::move(map));
  } else if (!blockSparse) { // whose blocks are copied as they lie
    spec.tensorMaps.push_back(mapOf(b, bBytes / elementBytes,
                                    hasHalves(desc) ? kPairChunk
                                    : bAlongK       ? columns / pair
                                                    : 64,
                                    static_cast<int>(bBytes)));
  }
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
      heads->role = TensorMapArg::Role::Result;
      spec.tensorMaps.push_back(std::move(*heads));
      return spec;
    }
    int64_t high = 64; // rows of results that are stored together
    if (isSwapped(c)) {
      wide = 64;
      high = sparse ? sparseStagedRows(c.tileM) : wgmmaStagedRows(c.tileM);
      swizzle = 128;
    }
    auto stored = [&](const Matrix &matrix, TensorMapArg::Role role) {
      spec.tensorMaps.push_back(mapOf(matrix, wide, high, swizzle));
      spec.tensorMaps.back().role = role;
    };
    stored(*resultMatrix(desc, sizes), TensorMapArg::Role::Result);
    if (std::optional<Matrix> residual = residualMatrix(desc, sizes))
      stored(*residual, TensorMapArg::Role::Residual);
  }
  return spec;
}

bool HopperGemm::hasResidual() const { return residualMatrix(desc, sizes).has_value(); }

int64_t HopperGemm::sumsOf(const KernelConfig &c) { return sumsOfThread(c); }

} // namespace lathe::select
