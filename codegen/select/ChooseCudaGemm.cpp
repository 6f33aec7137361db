//===- ChooseCudaGemm.cpp - matrix products on GPUs --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// By the number of rows: one or few stream the weights (gemv, skinny), more
// take a tile. 16-bit operands go to the matrix units, those of sm_90a where
// tensor maps can describe the operands; everything else to ordinary FMA tiles.
//
//===----------------------------------------------------------------------===//

#include "ChooseCuda.h"
#include "HopperGemm.h"

#include <algorithm>

namespace lathe::select {
namespace {

using Kind = DimCondition::Kind;

class GemmChooser {
public:
  GemmChooser(const KernelDesc &desc, const Target &target, const GemmSizes &sizes,
              std::vector<KernelVariant> &out)
      : desc(desc), target(target), sizes(sizes), out(out), a(desc.operands[0]),
        b(desc.operands[1]), stored(b), rows(rangeOf(sizes.m, desc)),
        hopper(HopperGemm::of(desc, sizes, target)),
        mma(target.hasTensorCores() && isHalf(a.dtype) && a.dtype == b.dtype) {
    if (b.narrow >= 0) {
      stored.buffer = b.narrow;
      stored.dtype = desc.buffers[b.narrow].dtype;
    }
  }

  Status choose();

private:
  /// A variant for up to `upTo` rows, or for all. Whether sizes are left to care for.
  bool add(KernelSpec spec, int64_t upTo, std::vector<DimCondition> guard = {},
           std::vector<KernelSpec> otherwise = {});
  bool addSkinny();
  std::optional<KernelSpec> stream(KernelConfig config) const;
  bool addStreams();
  bool addWidened();
  bool addColumns();
  bool addGemv();
  bool addHopper();
  Status addWanted();
  void addTiles();

  const KernelDesc &desc;
  const Target &target;
  const GemmSizes &sizes;
  std::vector<KernelVariant> &out;
  const ContractionOperand &a, &b;
  ContractionOperand stored; ///< b, or the 8 bits that it is made of
  DimRange rows;
  std::optional<HopperGemm> hopper;
  bool mma;
  int64_t covered = 0; ///< numbers of rows up to here have a variant
};

bool GemmChooser::add(KernelSpec spec, int64_t upTo, std::vector<DimCondition> guard,
                      std::vector<KernelSpec> otherwise) {
  if (rows.lo > upTo)
    return true;
  bool conditional = !guard.empty(), all = rows.hi <= upTo;
  if (!all)
    guard.push_back({Kind::LessEqual, sizes.m, DimExpr(upTo)});
  addVariant(out, std::move(guard), std::move(spec), std::move(otherwise));
  if (!conditional)
    covered = upTo;
  return conditional || !all;
}

/// Weights with contiguous k, of 16 bits or widened from 8. Figures: test/perf/gpu/results.
bool GemmChooser::addSkinny() {
  constexpr int64_t kMany = 8192;
  bool alone = sizes.batch == DimExpr(1) && mma && b.transposed &&
               readsInPieces(desc, stored, sizes, false);
  if (!alone || rows.lo > 16)
    return true;
  int64_t k = sizes.k.constant().value_or(4096);
  const int64_t piece = 128 / bitWidth(stored.dtype);
  bool programmatic = b.isWeight && target.smVersion >= 90;
  auto spec = [&](const KernelConfig &c) {
    KernelSpec s = specFor(desc, c, DimExpr::ceilDiv(sizes.n, DimExpr(c.tileN)));
    s.launches[0].programmaticDependent = programmatic;
    return s;
  };
  auto over = [](int64_t x, int64_t y) { return (x + y - 1) / y; };
  const bool inPieces = readsInPieces(desc, a, sizes, sizes.folded) && !a.transposed;
  // Of one row, too, where K is long enough for rings and columns do not take many rounds of them.
  constexpr int64_t kLong = 3072, kFewColumns = 32768;
  if (inPieces && k >= kLong && sizes.n.constant().value_or(kMany) <= kFewColumns && !addStreams())
    return false;
  if (covered < 1) {
    // Warps of a block take 32 pieces of each column at a time.
    KernelConfig c;
    c.family = "gemv.row";
    int64_t pieces = over(k, 32 * piece), warps = 1;
    while (warps < 8 && 2 * warps <= pieces)
      warps *= 2;
    if (b.narrowBare)
      warps = std::min<int64_t>(warps, 4);
    c.threads = 32 * warps;
    c.tileN = b.narrowBare                  ? 4
              : b.narrow >= 0               ? 2
              : desc.resultPair             ? 1
              : k <= kMany || desc.pairHead ? 2
                                            : 1;
    c.stages = b.narrow >= 0 ? 1 : std::min<int64_t>(2, over(pieces, warps));
    if (!add(spec(c), 1))
      return false;
  }
  if (!inPieces)
    return true;
  if (!addStreams())
    return false;
  if (rows.lo > 16 || covered >= 16)
    return true;
  // Warps take four pieces of 16 columns at a time.
  // Many columns are left to tensor maps; columns for one block a multiprocessor take large ones.
  int64_t steps = over(k, 4 * piece), n = sizes.n.constant().value_or(kMany);
  constexpr int64_t kWide = 16384;
  if (hopper && hopper->conditions.empty() && n >= kWide)
    return true;
  KernelConfig c;
  c.family = "gemm.skinny";
  bool one = n <= 32 * target.smCount;
  c.threads = 32 * std::min<int64_t>(one ? 16 : 8, steps >= 32 ? 16 : steps >= 16 ? 8 : 4);
  c.tileN = one ? 32 : 16;
  c.rows = 8;
  c.stages = 4;
  auto round = [&] { return c.threads / 8 * piece * c.stages; }; // of k
  if (b.narrow >= 0) { // widening takes what registers more columns would
    c.tileN = 16;
    c.threads = 32 * (steps >= 32 ? 16 : steps >= 16 ? 8 : 4);
    if (k % round() != 0)
      c.stages = 2;
  }
  while (c.stages > 1 && round() > k)
    c.stages /= 2;
  if (covered < 8 && !add(spec(c), 8))
    return false;
  if (rows.hi > 8 && b.narrow >= 0) {
    c.rows = 16;
    if (n >= kWide) {
      c.threads = std::min<int64_t>(c.threads, 128);
      c.stages = std::min<int64_t>(c.stages, 2);
    }
    return add(spec(c), 16);
  }
  if (rows.hi > 8 && !hopper) { // tensor maps are faster from nine rows on
    c.threads = std::min<int64_t>(c.threads, 256);
    c.tileN = 32;
    c.rows = 16;
    c.stages = 4;
    return add(spec(c), 16);
  }
  return true;
}

/// gemm.stream as `config` has it, with threads, columns and stages filled in where they are left out;
/// nothing where this product cannot run so. What weights are multiplied with stands in registers.
std::optional<KernelSpec> GemmChooser::stream(KernelConfig c) const {
  std::optional<int64_t> k = sizes.k.constant();
  constexpr int64_t kSteps = 8, kLeastStages = 3; // of 64 of k and 8 rows a warp
  if (!k || sizes.batch != DimExpr(1) || !mma || b.narrow >= 0 || !b.transposed || a.transposed ||
      !readsInPieces(desc, b, sizes, false) || !readsInPieces(desc, a, sizes, sizes.folded))
    return {};
  c.family = "gemm.stream";
  c.rows = c.rows <= 8 ? 8 : 16;
  c.tileN = desc.resultPair ? 8 : 16;
  if (c.threads == 1)
    c.threads = 512;
  if (c.threads % 32 != 0 || c.threads < 128 || c.threads > 512 ||
      (*k + streamDepth(c) - 1) / streamDepth(c) * (c.rows / 8) > kSteps)
    return {};
  if (c.stages == 0)
    for (c.stages = 6; c.stages > kLeastStages && streamSharedBytes(c) > target.sharedPerBlock;)
      --c.stages;
  if (c.stages < kLeastStages || streamSharedBytes(c) > target.sharedPerBlock)
    return {};
  DimExpr tiles = DimExpr::ceilDiv(sizes.n, DimExpr(c.tileN));
  KernelSpec spec = specFor(desc, c, DimExpr::min(tiles, DimExpr(target.smCount)));
  spec.launches[0].sharedBytes = streamSharedBytes(c);
  spec.launches[0].programmaticDependent = b.isWeight && target.smVersion >= 90;
  return spec;
}

/// Many columns for up to 16 rows. All of what weights are multiplied with goes to each block,
/// which pays where it has three columns and more for each row. Figures: test/perf/gpu/results.
bool GemmChooser::addStreams() {
  constexpr int64_t kLeastDepth = 1024, kColumns = 3;
  int64_t columns = sizes.n.constant().value_or(0) * (desc.resultPair ? 2 : 1);
  if (target.smVersion != 90 || sizes.k.constant().value_or(0) < kLeastDepth)
    return true;
  for (int64_t upTo : {int64_t(8), int64_t(16)}) {
    if (rows.lo > upTo || covered >= upTo)
      continue;
    if (columns < kColumns * upTo * target.smCount)
      return true;
    KernelConfig c;
    c.rows = upTo;
    std::optional<KernelSpec> spec = stream(c);
    if (!spec)
      return true;
    if (!add(std::move(*spec), upTo))
      return false;
  }
  return true;
}

/// Weights of 8 bits for more rows: tiles as high as the product while threads can hold the sums, so
/// that weights are widened once, and clusters where tiles are few. Figures: test/perf/gpu/results.
bool GemmChooser::addWidened() {
  bool alone = sizes.batch == DimExpr(1) && mma && b.narrow >= 0 && b.transposed && !a.transposed &&
               target.smVersion == 90 && target.archSpecific && !desc.resultPair;
  if (!alone || !operandMap(desc, stored, sizes, false, 64, 64, 64) ||
      !operandMap(desc, a, sizes, sizes.folded, 64, 64, 128))
    return true;
  constexpr int64_t kDepth = 64, kUnknown = 4096;
  int64_t n = sizes.n.constant().value_or(kUnknown), k = sizes.k.constant().value_or(kUnknown);
  for (int64_t upTo : {int64_t(32), int64_t(64), int64_t(96), int64_t(128), DimRange::kUnbounded}) {
    if (rows.lo > upTo || covered >= upTo)
      continue;
    KernelConfig c;
    c.family = "gemm.widened";
    // Tiles for several rounds of 64 rows are wider; for one round higher ones take less time.
    bool wide = upTo == 64 && n > 64 * target.smCount;
    c.tileM = upTo == 64 && !wide ? 96 : std::min<int64_t>(upTo, 256);
    c.tileN = wide ? 128 : 64;
    c.threads = 2 * c.tileN + 32;
    int64_t most = std::min<int64_t>({upTo, rows.hi, kUnknown});
    int64_t tiles = (most + c.tileM - 1) / c.tileM * ((n + c.tileN - 1) / c.tileN);
    int64_t blocks = c.tileM <= 32 ? 2 * target.smCount : target.smCount; // small ones share
    while (c.cluster < 8 && 2 * c.cluster * tiles <= blocks && 8 * c.cluster * kDepth <= k)
      c.cluster *= 2;
    c.stages = tiles > target.smCount ? 4 : 8; // blocks share a multiprocessor
    while (c.stages > 2 && widenedSharedBytes(c) > target.sharedPerBlock)
      --c.stages;
    KernelSpec spec = specFor(desc, c,
                              DimExpr::ceilDiv(sizes.m, DimExpr(c.tileM)) *
                                  DimExpr::ceilDiv(sizes.n, DimExpr(c.tileN)) * DimExpr(c.cluster));
    LaunchSpec &launch = spec.launches[0];
    launch.cluster[0] = c.cluster;
    launch.sharedBytes = widenedSharedBytes(c);
    launch.programmaticDependent = b.isWeight && upTo <= 128;
    spec.tensorMaps.push_back(*operandMap(desc, a, sizes, sizes.folded, kDepth, c.tileM, 128));
    spec.tensorMaps.push_back(*operandMap(desc, stored, sizes, false, kDepth, c.tileN, 64));
    if (!add(std::move(spec), upTo))
      return false;
  }
  return true;
}

/// One row and 16-bit weights with contiguous n.
bool GemmChooser::addColumns() {
  if (rows.lo > 1 || sizes.batch != DimExpr(1) || !mma || b.transposed || target.smVersion != 90 ||
      !readsInPieces(desc, b, sizes, false))
    return true;
  // Few columns: the blocks of a cluster split K.
  int64_t n = sizes.n.constant().value_or(8192), k = sizes.k.constant().value_or(4096);
  bool few = n < 128 * target.smCount;
  KernelConfig c;
  c.family = "gemv.columns";
  c.threads = 256;
  c.tileN = 128;
  c.tileK = few ? 8 : 1;
  c.stages = few ? 8 : 16;
  while (c.tileK > 1 && k / c.tileK < 128)
    c.tileK /= 2;
  KernelSpec spec =
      specFor(desc, c, DimExpr::ceilDiv(sizes.n, DimExpr(c.tileN)) * DimExpr(c.tileK));
  spec.launches[0].cluster[0] = c.tileK;
  spec.launches[0].programmaticDependent = b.isWeight;
  return add(std::move(spec), 1);
}

/// Any element type and any place of the operands.
bool GemmChooser::addGemv() {
  constexpr int64_t kFewRows = 4;
  bool tiles = hopper && hopper->conditions.empty() && sizes.batch == DimExpr(1);
  if (rows.lo > kFewRows || covered >= kFewRows || tiles)
    return true;
  KernelConfig c;
  c.rows = rows.hi <= 1 ? 1 : kFewRows;
  int64_t lanes = 128 / std::max<int64_t>(8, bitWidth(b.dtype));
  const DimExpr &n = sizes.n;
  KernelSpec spec;
  if (b.buffer >= 0 && b.transposed) {
    c.family = "gemv.along";
    c.threads = 128;
    spec = specFor(desc, c, sizes.batch * n);
  } else {
    c.family = "gemv.across";
    c.threads = 256;
    while (lanes > 1 && !(b.buffer >= 0 && divides(lanes, n)))
      lanes /= 2;
    // Few columns would leave multiprocessors idle: narrower vectors, more blocks.
    while (lanes > 2 && n.constant() && *n.constant() / (32 * lanes) < target.smCount)
      lanes /= 2;
    c.lanes = lanes;
    spec = specFor(desc, c, sizes.batch * DimExpr::ceilDiv(n, DimExpr(32 * lanes)));
  }
  return add(std::move(spec), c.rows);
}

/// Tiles for ever more rows; neighbours that are the same are one variant.
bool GemmChooser::addHopper() {
  struct Range {
    int64_t upTo;
    KernelConfig config;
    std::vector<KernelConfig> smaller; ///< next best ones
  };
  std::vector<Range> ranges;
  int64_t from = std::max<int64_t>({1, rows.lo, covered + 1});
  for (int64_t upTo : {int64_t(16), int64_t(32), int64_t(64), int64_t(128), int64_t(256),
                       DimRange::kUnbounded}) {
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
      if (next.family.empty())
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
Status GemmChooser::addWanted() {
  std::vector<KernelSpec> specs;
  Result<std::vector<KernelConfig>> wanted = wantedConfigs(desc);
  if (!wanted)
    return wanted.status();
  for (KernelConfig &c : *wanted) {
    if (c.family == "gemm.stream") {
      if (c.rows == 1)
        c.rows = rows.hi;
      std::optional<KernelSpec> spec = rows.hi <= 16 ? stream(c) : std::nullopt;
      if (spec)
        specs.push_back(std::move(*spec));
      continue;
    }
    if (hopper && c.rows == 1)
      c.rows = hopper->rowsLoaded(c.tileM, rows.hi);
    if (hopper && hopper->allows(c))
      specs.push_back(hopper->spec(hopper->complete(c), rows.hi));
  }
  if (specs.empty())
    return usageError("this product cannot run as '" + desc.wanted + "'",
                      "--config, kernel " + desc.name);
  std::vector<KernelSpec> otherwise(specs.begin() + 1, specs.end());
  if (add(std::move(specs.front()), DimRange::kUnbounded,
          hopper ? hopper->conditions : std::vector<DimCondition>(), std::move(otherwise)))
    addTiles();
  return okStatus();
}

void GemmChooser::addTiles() {
  KernelConfig small = mma ? mmaTile("gemm.mma", 64, 128, 4) : simtTile("gemm.simt", 64, 64, 256);
  KernelConfig large =
      mma ? mmaTile("gemm.mma", 128, 256, 4) : simtTile("gemm.simt", 128, 128, 256);
  // The large tile pays once it fills the card.
  int64_t columns = sizes.n.constant().value_or(1024);
  int64_t enough =
      std::max<int64_t>(128, target.smCount * 128 * 128 / std::max<int64_t>(columns, 1));
  // ... and not where half of its columns would be empty.
  if (columns <= 64)
    enough = DimRange::kUnbounded;
  auto spec = [&](const KernelConfig &c) {
    return tiled(desc, c, sizes.batch, sizes.m, sizes.n);
  };
  if (rows.lo > enough || add(spec(small), enough))
    add(spec(large), DimRange::kUnbounded);
}

/// A kernel has one list of buffers: where one variant needs memory to work in, all are given it.
void giveWorkspace(std::vector<KernelVariant> &variants) {
  const KernelSpec *largest = nullptr;
  for (const KernelVariant &v : variants)
    if (v.spec.workspaceBytes != DimExpr(0) &&
        (!largest || *v.spec.workspaceBytes.constant() > *largest->workspaceBytes.constant()))
      largest = &v.spec;
  if (!largest)
    return;
  BufferArg work = largest->buffers.back();
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

Status GemmChooser::choose() {
  if (!desc.wanted.empty())
    return addWanted();
  // Fusion has seen to it that one row takes it all.
  const bool pairs = desc.resultPair || desc.pairHead;
  if (pairs && rows.hi <= 1 && b.transposed) {
    if (addSkinny())
      return internalError("no form for two products of one row",
                           "kernel " + desc.name);
    return okStatus();
  }
  if (pairs || desc.resultExtremes) {
    if (!hopper || !hopper->conditions.empty())
      return internalError("no form for two products at a time, or for extremes", "kernel " + desc.name);
    if (desc.resultExtremes || addStreams())
      addHopper();
    return okStatus();
  }
  if (addSkinny() && addWidened() && addColumns() && addGemv() && (!hopper || addHopper()))
    addTiles();
  return okStatus();
}

} // namespace

Status gemm(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() < 2 || desc.reduction.size() != 1 || desc.operands.size() < 2)
    return internalError("a product needs M, N, K and two operands", "kernel " + desc.name);
  size_t rank = desc.parallel.size();
  GemmSizes sizes{product({desc.parallel.begin(), desc.parallel.end() - 2}),
                  desc.parallel[rank - 2], desc.parallel[rank - 1], desc.reduction[0], false};
  // Rows of all batches are one matrix when the other operand is one matrix in memory; the
  // skeleton (codegen/cuda/SkeletonGemm.cpp) goes by the same rule.
  const ContractionOperand &b = desc.operands[1];
  int weights = b.narrow >= 0 ? b.narrow : b.buffer;
  if (rank > 2 && weights >= 0 && desc.buffers[weights].dims.size() == 2 &&
      !desc.operands[0].transposed) {
    sizes.m = sizes.m * sizes.batch;
    sizes.batch = 1;
    sizes.folded = true;
  }
  Status status = GemmChooser(desc, target, sizes, out).choose();
  giveWorkspace(out);
  return status;
}

} // namespace lathe::select
