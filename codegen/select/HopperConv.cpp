//===- HopperConv.cpp - convolutions of sm_90a -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implicit GEMM by TMA's im2col maps: when they apply, the maps, and the tile.
// An im2col map walks over the first pixels of all windows: from `lowerCorner`,
// where the window of the first result begins, to `upperCorner`, counted from the
// end of the image, where the window of the last result begins.
//
//===----------------------------------------------------------------------===//

#include "HopperConv.h"

#include "ChooseCuda.h"
#include "HopperGemmTime.h"

#include "lathe/codegen/WindowStages.h"

#include <algorithm>
#include <cmath>

namespace lathe::select {
namespace {

constexpr int64_t kStageBytes = 128; ///< of a pixel's channels in a stage: what the swizzle spans

/// Without padding behind dimensions `from`..: what lies inside is one block of memory.
bool dense(const BufferArg &b, size_t from) {
  for (size_t d = from; d < b.dims.size(); ++d)
    if (b.physical[d] != b.dims[d])
      return false;
  return true;
}

/// Strides in bytes of dimensions outside the innermost, innermost first.
std::vector<DimExpr> stridesOf(const BufferArg &b) {
  std::vector<DimExpr> strides;
  DimExpr stride = bitWidth(b.dtype) / 8;
  for (size_t d = b.dims.size(); d-- > 1;)
    strides.push_back(stride = stride * b.physical[d]);
  return strides;
}

bool isByte(DType t) { return t == DType::I8 || t == DType::UI8; }

} // namespace

bool fitsImageMaps(std::span<const int64_t> window, std::span<const int64_t> strides, std::span<const int64_t> pads,
                   std::span<const int64_t> dilations) {
  constexpr int64_t kMostStride = 8;
  const size_t spatial = window.size();
  if (spatial < 1 || spatial > 3)
    return false;
  const int64_t corner = spatial == 1 ? 1 << 15 : spatial == 2 ? 1 << 7 : 1 << 4;
  for (size_t d = 0; d < spatial; ++d) {
    int64_t reach = (window[d] - 1) * dilations[d], lower = -pads[d], upper = pads[spatial + d] - reach;
    if (lower < -corner || lower >= corner || upper < -corner || upper >= corner || reach >= 2 * corner ||
        strides[d] > kMostStride)
      return false;
  }
  return true;
}

std::optional<HopperConv> HopperConv::of(const KernelDesc &desc, const Target &target) {
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  size_t rank = desc.parallel.size(), spatial = rank - 2;
  const bool halves = isHalf(x.dtype) && x.dtype == w.dtype, bytes = isByte(x.dtype) && isByte(w.dtype);
  if (!target.hasWgmma() || !desc.channelsLast || !(halves || bytes) || x.buffer < 0 || w.buffer < 0 || !w.isWeight ||
      !fitsImageMaps(desc.window, desc.strides, desc.pads, desc.dilations))
    return {};
  HopperConv c(desc, target);
  c.elementBytes = bitWidth(x.dtype) / 8;
  c.tapsOfStage = lathe::tapsOfStage(bytes, desc.group, desc.groupChannels);
  c.channels = kStageBytes / c.tapsOfStage / c.elementBytes;
  const BufferArg &images = desc.buffers[x.buffer];
  std::optional<int64_t> filters = desc.parallel.back().constant();
  if (images.dtype != x.dtype || images.alignment % 16 != 0 || !filters ||
      !divides(16 / c.elementBytes, images.physical.back()) || desc.groupChannels < 1 ||
      (desc.group > 1 && desc.groupChannels % c.channels != 0))
    return {};
  for (size_t d = 0; d < spatial; ++d) {
    if (rangeOf(desc.parallel[1 + d], desc).lo < 1)
      return {};
    c.taps *= desc.window[d];
  }
  c.pixels = product({desc.parallel.begin(), desc.parallel.end() - 1});
  c.filters = *filters / desc.group;
  c.depth = c.taps * ((desc.groupChannels + c.channels - 1) / c.channels * c.channels);
  const BufferArg &results = desc.buffers[desc.numInputs];
  if (desc.numOutputs == 1 && desc.resultInPlace && results.dims == desc.parallel && dense(results, 1) &&
      (isHalf(results.dtype) || isByte(results.dtype)) && results.alignment % 16 == 0 &&
      c.filters % (128 / bitWidth(results.dtype)) == 0)
    c.resultBytes = bitWidth(results.dtype) / 8;
  return c;
}

bool HopperConv::allows(const KernelConfig &c) const {
  if (!c.form->conv.windows || (tapsOfStage > 1 && isSplit(c)))
    return false;
  if (isSwapped(c))
    return resultBytes == 2 && elementBytes == 2 && c.tileM > 0 && c.tileM <= 256 && c.tileM % 16 == 0 && c.tileN > 0 &&
           c.tileN % (isPingPong(c) ? 64 : 128) == 0 && c.tileN <= 256 && sumsOfThread(c) <= 128;
  return true;
}

TileFacts HopperConv::facts() const {
  return {.elementBytes = elementBytes, .steps = steps(), .windows = true, .resultBytes = resultBytes};
}

KernelConfig HopperConv::complete(KernelConfig c) const {
  return c.form->complete(c, facts(), target);
}

TensorMapArg HopperConv::imageMap(int64_t rows) const {
  const BufferArg &images = desc.buffers[desc.operands[0].buffer];
  size_t spatial = desc.window.size();
  TensorMapArg map;
  map.buffer = desc.operands[0].buffer;
  map.dims.assign(images.dims.rbegin(), images.dims.rend());
  map.strides = stridesOf(images);
  map.box = {channels, rows};
  map.swizzleBytes = static_cast<int>(channels * elementBytes);
  map.im2col = true;
  map.steps.assign(spatial + 2, 1);
  for (size_t d = spatial; d-- > 0;) {
    map.lowerCorner.push_back(-desc.pads[d]);
    map.upperCorner.push_back(desc.pads[spatial + d] - (desc.window[d] - 1) * desc.dilations[d]);
    map.steps[spatial - d] = desc.strides[d];
  }
  return map;
}

KernelSpec HopperConv::spec(const KernelConfig &c) const {
  DimExpr groups(desc.group);
  DimExpr tiles = groups * DimExpr::ceilDiv(pixels, DimExpr(c.tileM)) *
                  DimExpr((filters + c.tileN - 1) / c.tileN);
  KernelSpec spec = specFor(desc, c,
                            isSplit(c) ? tiles * DimExpr(c.cluster)
                                       : DimExpr::min(tiles, DimExpr(target.smCount)));
  LaunchSpec &launch = spec.launches[0];
  launch.cluster[0] = c.cluster;
  launch.sharedBytes = c.form->sharedBytes(c, facts());
  launch.programmaticDependent = true; // weights are constants
  spec.buffers[desc.operands[1].buffer].packing = "rows" + std::to_string(channels);
  spec.tensorMaps.push_back(imageMap(c.rows > 1 ? c.rows : c.tileM));

  // Weights and results are matrices, one for each group.
  auto matrix = [&](int buffer, int64_t columns, DimExpr rows, int64_t rowBytes, int64_t groupBytes,
                    std::vector<int64_t> box) {
    TensorMapArg map;
    map.buffer = buffer;
    map.dims = {columns, std::move(rows)};
    map.strides = {rowBytes};
    map.box = std::move(box);
    int64_t wide = map.box[0] * bitWidth(desc.buffers[buffer].dtype) / 8;
    map.swizzleBytes = wide < 32 ? 0 : static_cast<int>(wide);
    if (desc.group > 1) {
      map.dims.push_back(groups);
      map.strides.push_back(groupBytes);
      map.box.push_back(1);
    }
    spec.tensorMaps.push_back(std::move(map));
  };
  matrix(desc.operands[1].buffer, depth, filters, depth * elementBytes, filters * depth * elementBytes,
         {channels, c.tileN});
  auto results = [&](int buffer, TensorMapArg::Role role) {
    std::vector<int64_t> box{wgmmaStagedColumns(c.tileN, resultBytes, /*windows=*/true), 64};
    if (isSwapped(c))
      box = {64, wgmmaStagedRows(c.tileM)};
    matrix(buffer, filters, pixels, filters * desc.group * resultBytes, filters * resultBytes, std::move(box));
    spec.tensorMaps.back().role = role;
  };
  if (resultBytes && !isSplit(c)) {
    results(desc.numInputs, TensorMapArg::Role::Result);
    // A residual comes while the products run.
    if (desc.residual >= 0 && resultBytes <= 2 && desc.buffers[desc.residual].dtype == desc.buffers[desc.numInputs].dtype &&
        dense(desc.buffers[desc.residual], 1) && desc.buffers[desc.residual].alignment % 16 == 0)
      results(desc.residual, TensorMapArg::Role::Residual);
  }
  return spec;
}

double HopperConv::timeOf(const KernelConfig &c, double pixelCount) const {
  double used = 1;
  for (size_t d = 0; d < desc.window.size(); ++d)
    used *= static_cast<double>(std::min(desc.window[d], desc.strides[d]));
  return c.form->conv.time(c, {.pixels = pixelCount,
                               .pixelsRead = used,
                               .filters = filters,
                               .groups = desc.group,
                               .groupChannels = desc.groupChannels,
                               .depth = depth,
                               .steps = steps(),
                               .elementBytes = elementBytes,
                               .smCount = target.smCount});
}

KernelConfig HopperConv::choose(int64_t from, int64_t to, int64_t sums) const {
  KernelConfig best;
  double bestTime = 0;
  auto consider = [&](const Skeleton &form, int64_t tileM, std::initializer_list<int64_t> columns,
                      int64_t cluster = 1) {
    for (int64_t tileN : columns) {
      // A tile wider than the filters is chosen only when no narrower one holds them.
      if (tileN > 16 && tileN / 2 >= filters)
        continue;
      KernelConfig c;
      c.form = &form;
      c.tileM = tileM;
      c.tileN = tileN;
      c.cluster = cluster;
      if (isSplit(c) && to < tileM)
        c.rows = (to + 7) / 8 * 8;
      if (!allows(c) || sumsOfThread(c) >= sums)
        continue;
      c = complete(c);
      // A range is judged by four of its sizes: rounds that are full for one are not for another.
      double time = 0;
      for (int i = 0; i < 4; ++i) {
        double at =
            std::round(static_cast<double>(from) *
                       std::pow(static_cast<double>(to) / static_cast<double>(from), i / 3.0));
        time += timeOf(c, at) / at;
      }
      if (!best.form || time < bestTime) {
        best = c;
        bestTime = time;
      }
    }
  };
  // Ties go to the earlier one.
  if (to > 64) {
    consider(kConvPingpong, 128, {128, 64, 96, 48, 32, 16});
    consider(kConvPingpong, 192, {64, 32});
    consider(kConvCooperative, 128, {128, 256, 64});
    consider(kConvCooperative, 256, {128, 64});
  }
  consider(kConvPingpong, 64, {128, 64, 256, 96, 48, 32, 16});
  // Filters as rows of the instruction, where there is work for half of the multiprocessors.
  if (to * filters * desc.group >= 128 * 128 * target.smCount / 2) {
    for (int64_t tileM : {96, 128, 160, 192})
      consider(kConvCooperativeSwapped, tileM, {128});
    for (int64_t tileM : {96, 128})
      consider(kConvPingpongSwapped, tileM, {128});
    for (int64_t tileM : {128, 192})
      consider(kConvPingpongSwapped, tileM, {64});
  }
  for (int64_t cluster : {2, 4, 8})
    if (steps() >= 2 * cluster)
      consider(kConvSplit, 64, {64, 32, 16}, cluster);
  return best;
}

// ---- The first layer -----------------------------------------------------------------------

namespace {

constexpr int64_t kFewChannels = 4, kFilters = 64; ///< of a pixel in shared memory; of a block
constexpr int64_t kPiece = 8;                      ///< elements of 16 bytes

/// How a window of the first layer becomes products of 16 elements (StemTile).
struct StemWindow {
  int64_t shift, steps, lead;
  explicit StemWindow(const KernelDesc &desc)
      : shift(desc.pads[1] % 2), steps((desc.window[1] + shift + 3) / 4),
        lead((8 - (desc.pads[1] + shift) % 8) % 8) {}
  /// Pixels that a row of `results` needs.
  int64_t columns(int64_t results) const {
    return (lead + 2 * results + 4 * steps - 2 + 7) / 8 * 8;
  }
};

} // namespace

std::optional<HopperStem> HopperStem::of(const KernelDesc &desc, const Target &target) {
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  if (!target.hasWgmma() || !desc.channelsLast || desc.parallel.size() != 4 || desc.group != 1 ||
      desc.groupChannels < 1 || desc.groupChannels > kFewChannels || x.planes < 0 ||
      x.dtype != w.dtype || (x.dtype != DType::F16 && x.dtype != DType::BF16) || w.buffer < 0 ||
      !w.isWeight || desc.strides[1] != 2 || desc.dilations[1] != 1 || desc.pads[1] < 0)
    return {};
  constexpr int64_t kMostSteps = 16, kMostLines = 24; // registers of weights; shared memory
  const BufferArg &planes = desc.buffers[x.planes], &results = desc.buffers[desc.numInputs];
  int64_t lines = 3 * desc.strides[0] + (desc.window[0] - 1) * desc.dilations[0] + 1;
  std::optional<int64_t> filters = desc.parallel.back().constant();
  bool fits = StemWindow(desc).steps * desc.window[0] <= kMostSteps && lines <= kMostLines;
  if (!fits || !filters || *filters % kPiece != 0 || planes.dtype != x.dtype || !dense(planes, 1) ||
      planes.alignment % 16 != 0 || !divides(kPiece, planes.dims.back()) || desc.numOutputs != 1 ||
      !desc.resultInPlace || results.dims != desc.parallel || !dense(results, 1) ||
      (results.dtype != DType::F16 && results.dtype != DType::BF16) ||
      results.alignment % 16 != 0 || rangeOf(desc.parallel[1], desc).lo < 1 ||
      rangeOf(desc.parallel[2], desc).lo < 1)
    return {};
  return HopperStem(desc, target);
}

KernelSpec HopperStem::spec() const {
  const ContractionOperand &x = desc.operands[0];
  const StemWindow window(desc);
  KernelConfig c{&kConvStem};
  c.threads = 384;
  // The box of a row has at most 256 pixels; the fewest results beyond the end of a row win.
  int64_t width = desc.parallel[2].constant().value_or(112);
  for (int64_t n = 112; n >= 16; n -= 16)
    if (window.columns(n) <= 256 &&
        (c.tileN == 0 || (width + n - 1) / n * n < (width + c.tileN - 1) / c.tileN * c.tileN))
      c.tileN = n;
  DimExpr across = DimExpr::ceilDiv(desc.parallel[2], DimExpr(c.tileN));
  DimRange rows = rangeOf(desc.parallel[0] * desc.parallel[1] * across, desc);
  c.tileM = rows.hi < 4 * 2 * target.smCount ? 2 : 4;
  int64_t columns = window.columns(c.tileN);
  int64_t lines = (c.tileM - 1) * desc.strides[0] + (desc.window[0] - 1) * desc.dilations[0] + 1;
  auto shared = [&] {
    return c.form->sharedBytes(
        c, {.channels = desc.groupChannels, .lines = lines, .columns = columns});
  };
  c.stages = 4;
  while (c.stages > 1 && shared() > target.sharedPerBlock)
    --c.stages;
  int64_t chunks = (*desc.parallel.back().constant() + kFilters - 1) / kFilters;
  DimExpr tiles = desc.parallel[0] * DimExpr::ceilDiv(desc.parallel[1], DimExpr(c.tileM)) * across;
  KernelSpec spec =
      specFor(desc, c, DimExpr(chunks) * DimExpr::min(tiles, DimExpr(target.smCount / chunks)));
  spec.launches[0].sharedBytes = shared();
  spec.launches[0].programmaticDependent = true;
  spec.buffers[desc.operands[1].buffer].packing = "rows" + std::to_string(kFewChannels);
  auto map = [&](int buffer, std::vector<int64_t> box, int swizzle) {
    const BufferArg &b = desc.buffers[buffer];
    TensorMapArg m;
    m.buffer = buffer;
    m.dims.assign(b.dims.rbegin(), b.dims.rend());
    m.strides = stridesOf(b);
    m.box = std::move(box);
    m.swizzleBytes = swizzle;
    spec.tensorMaps.push_back(std::move(m));
  };
  map(x.planes, {columns, lines, desc.groupChannels, 1}, 0);
  map(desc.numInputs, {kFilters, c.tileN, 1, 1}, 128);
  spec.tensorMaps.back().role = TensorMapArg::Role::Result;
  return spec;
}

// ---- Choosing ------------------------------------------------------------------------------

/// Tiles for ever more pixels; neighbours that are the same are one variant.
Result<bool> offerWindows(const KernelDesc &desc, const Target &target,
                          std::vector<KernelVariant> &out) {
  std::optional<HopperConv> made = HopperConv::of(desc, target);
  if (!made)
    return false;
  const HopperConv &conv = *made;
  if (!desc.wanted.empty()) {
    Result<std::vector<KernelConfig>> wanted = wantedConfigs(desc);
    if (!wanted)
      return wanted.status();
    std::vector<KernelSpec> specs;
    for (const KernelConfig &c : *wanted)
      if (conv.allows(c))
        specs.push_back(conv.spec(conv.complete(c)));
    if (specs.empty())
      return usageError("this convolution cannot run as '" + desc.wanted + "'",
                        "--config, kernel " + desc.name);
    std::vector<KernelSpec> otherwise(specs.begin() + 1, specs.end());
    addVariant(out, {}, std::move(specs.front()), std::move(otherwise));
    return true;
  }
  DimRange pixels = rangeOf(conv.pixels, desc);
  struct Range {
    int64_t upTo;
    KernelConfig config, smaller; ///< smaller: the next best one, if there is one
  };
  std::vector<Range> ranges;
  int64_t from = std::max<int64_t>(1, pixels.lo);
  for (int64_t upTo : {int64_t(64), int64_t(512), int64_t(4096), int64_t(16384), int64_t(65536),
                       DimRange::kUnbounded}) {
    if (from > upTo)
      continue;
    constexpr int64_t kMany = 1 << 18;
    int64_t to = std::max(from, std::min({upTo, pixels.hi, kMany}));
    KernelConfig config = conv.choose(from, to);
    KernelConfig smaller = conv.choose(from, to, sumsOfThread(config));
    if (!ranges.empty() && ranges.back().config == config)
      ranges.back().upTo = upTo;
    else
      ranges.push_back({upTo, config, {}});
    ranges.back().smaller = smaller; // one for fewer pixels may load too few
    if (pixels.hi <= upTo)
      break;
    from = upTo + 1;
  }
  for (const Range &r : ranges) {
    std::vector<DimCondition> guard;
    if (&r != &ranges.back())
      guard.push_back({DimCondition::Kind::LessEqual, conv.pixels, DimExpr(r.upTo)});
    std::vector<KernelSpec> otherwise;
    if (r.smaller.form)
      otherwise.push_back(conv.spec(r.smaller));
    addVariant(out, std::move(guard), conv.spec(r.config), std::move(otherwise));
  }
  return true;
}

Result<bool> offerStem(const KernelDesc &desc, const Target &target,
                       std::vector<KernelVariant> &out) {
  std::optional<HopperStem> stem = HopperStem::of(desc, target);
  if (stem)
    addVariant(out, {}, stem->spec());
  return stem.has_value();
}

} // namespace lathe::select
