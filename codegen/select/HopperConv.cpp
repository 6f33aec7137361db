//===- HopperConv.cpp - convolutions of sm_90a -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When tensor maps can turn images into the rows of a product, the maps, and
// the tile. An im2col map walks over the first pixels of all windows: from
// `lowerCorner`, where the window of the first result begins, to `upperCorner`
// before the end of the image, where that of the last one does.
//
//===----------------------------------------------------------------------===//

#include "HopperConv.h"

#include <algorithm>
#include <cmath>

namespace lathe::select {
namespace {

constexpr int64_t kElementBytes = 2;
constexpr int64_t kChannels = 64; ///< of a stage: 128 bytes, what the swizzle spans
constexpr int64_t kPiece = 16 / kElementBytes;

bool isHopper(const Target &target) { return target.smVersion == 90 && target.archSpecific; }

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
  DimExpr stride = kElementBytes;
  for (size_t d = b.dims.size(); d-- > 1;)
    strides.push_back(stride = stride * b.physical[d]);
  return strides;
}

} // namespace

std::optional<HopperConv> HopperConv::of(const KernelDesc &desc, const Target &target) {
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  size_t rank = desc.parallel.size(), spatial = rank - 2;
  if (!isHopper(target) || !desc.channelsLast || spatial < 1 || spatial > 3 || x.dtype != w.dtype ||
      (x.dtype != DType::F16 && x.dtype != DType::BF16) || x.buffer < 0 || w.buffer < 0 ||
      !w.isWeight)
    return {};
  const BufferArg &images = desc.buffers[x.buffer];
  std::optional<int64_t> filters = desc.parallel.back().constant();
  if (images.dtype != x.dtype || images.alignment % 16 != 0 || !filters ||
      !divides(kPiece, images.physical.back()) || desc.groupChannels < 1 ||
      (desc.group > 1 && desc.groupChannels % kChannels != 0))
    return {};
  // What fits into the fields of a map and of the instruction.
  const int64_t corner = spatial == 1 ? 1 << 15 : spatial == 2 ? 1 << 7 : 1 << 4;
  HopperConv c(desc, target);
  for (size_t d = 0; d < spatial; ++d) {
    int64_t reach = (desc.window[d] - 1) * desc.dilations[d];
    int64_t lower = -desc.pads[d], upper = desc.pads[spatial + d] - reach;
    if (lower < -corner || lower >= corner || upper < -corner || upper >= corner ||
        reach >= 2 * corner || desc.strides[d] > 8 || rangeOf(desc.parallel[1 + d], desc).lo < 1)
      return {};
    c.taps *= desc.window[d];
  }
  c.pixels = product({desc.parallel.begin(), desc.parallel.end() - 1});
  c.filters = *filters / desc.group;
  c.depth = c.taps * ((desc.groupChannels + kChannels - 1) / kChannels * kChannels);
  const BufferArg &results = desc.buffers[desc.numInputs];
  c.staged = desc.numOutputs == 1 && desc.resultInPlace && results.dims == desc.parallel &&
             dense(results, 1) && (results.dtype == DType::F16 || results.dtype == DType::BF16) &&
             results.alignment % 16 == 0 && c.filters % kPiece == 0;
  return c;
}

bool HopperConv::allows(const KernelConfig &c) const {
  if (c.family == "conv.pingpong.swapped" || c.family == "conv.cooperative.swapped")
    return staged && c.tileM > 0 && c.tileM <= 256 && c.tileM % 16 == 0 && c.tileN > 0 &&
           c.tileN % (inTurns(c) ? 64 : 128) == 0 && c.tileN <= 256 && sumsOf(c) <= 128;
  return c.family == "conv.pingpong" || c.family == "conv.cooperative" || c.family == "conv.split";
}

KernelConfig HopperConv::complete(KernelConfig c) const {
  c.threads = isSplit(c) ? 160 : 384;
  c.tileK = kChannels;
  c.stages = 12;
  if (isSplit(c)) {
    // No more than the steps of a block; two blocks fit into a multiprocessor.
    int64_t steps = (depth / kChannels + c.cluster - 1) / c.cluster;
    c.stages = std::clamp<int64_t>(steps, 2, c.stages);
    while (c.stages > 2 && 2 * (splitSharedBytes(c) + 1024) > target.sharedPerBlock)
      --c.stages;
    return c;
  }
  while (c.stages > 2 && wgmmaSharedBytes(c, staged ? kElementBytes : 0) > target.sharedPerBlock)
    --c.stages;
  return c;
}

TensorMapArg HopperConv::imageMap(int64_t rows) const {
  const BufferArg &images = desc.buffers[desc.operands[0].buffer];
  size_t spatial = desc.window.size();
  TensorMapArg map;
  map.buffer = desc.operands[0].buffer;
  map.dims.assign(images.dims.rbegin(), images.dims.rend());
  map.strides = stridesOf(images);
  map.box = {kChannels, rows};
  map.swizzleBytes = kChannels * kElementBytes;
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
  launch.sharedBytes =
      isSplit(c) ? splitSharedBytes(c) : wgmmaSharedBytes(c, staged ? kElementBytes : 0);
  launch.programmaticDependent = true; // weights are constants
  spec.buffers[desc.operands[1].buffer].packing = "rows" + std::to_string(kChannels);
  spec.tensorMaps.push_back(imageMap(c.rows > 1 ? c.rows : c.tileM));

  // Weights and results are matrices, one for each group.
  auto matrix = [&](int buffer, int64_t columns, DimExpr rows, int64_t rowBytes, int64_t groupBytes,
                    std::vector<int64_t> box) {
    TensorMapArg map;
    map.buffer = buffer;
    map.dims = {columns, std::move(rows)};
    map.strides = {rowBytes};
    map.box = std::move(box);
    map.swizzleBytes = static_cast<int>(map.box[0] * kElementBytes);
    if (desc.group > 1) {
      map.dims.push_back(groups);
      map.strides.push_back(groupBytes);
      map.box.push_back(1);
    }
    spec.tensorMaps.push_back(std::move(map));
  };
  matrix(desc.operands[1].buffer, depth, filters, depth * kElementBytes,
         filters * depth * kElementBytes, {kChannels, c.tileN});
  auto results = [&](int buffer) {
    std::vector<int64_t> box{wgmmaStagedColumns(c.tileN, kElementBytes), 64};
    if (isSwapped(c))
      box = {64, wgmmaStagedRows(c.tileM)};
    matrix(buffer, filters, pixels, filters * desc.group * kElementBytes, filters * kElementBytes,
           std::move(box));
  };
  if (staged && !isSplit(c)) {
    results(desc.numInputs);
    // What lies beside the results, a residual, comes while the products run.
    if (desc.beside >= 0 && desc.buffers[desc.beside].dtype == desc.buffers[desc.numInputs].dtype &&
        dense(desc.buffers[desc.beside], 1) && desc.buffers[desc.beside].alignment % 16 == 0)
      results(desc.beside);
  }
  return spec;
}

/// What ranks tiles: a time in units of its own. The constants are a fit to a sweep over the
/// windows of ResNet-50 on the H200; they are no rates of the machine.
double HopperConv::modelTime(const KernelConfig &c, double m) const {
  constexpr double kMultiply = 4222, kFeed = 126, kLatency = 1006, kStart = 1500, kRound = 308;
  constexpr double kEpilogue = 37, kMemory = 3939, kRows = 90;
  double results = static_cast<double>(c.tileM * c.tileN);
  double across = std::ceil(static_cast<double>(filters) / static_cast<double>(c.tileN));
  double blocks = std::ceil(m / static_cast<double>(c.tileM)) * across *
                  static_cast<double>(desc.group * c.cluster);
  double rounds = std::ceil(blocks / target.smCount);
  if (isSplit(c)) {
    // Windows come as fast as the copy engine makes rows; a block more costs its part of the sums.
    constexpr double kSplitStart = 2450, kStep = 105, kPart = 60;
    double steps =
        std::ceil(static_cast<double>(depth / kChannels) / static_cast<double>(c.cluster));
    return rounds * steps * kStep * std::max(1.0, static_cast<double>(64 + c.tileN) / 128) +
           kPart * static_cast<double>(c.cluster) + kSplitStart;
  }
  double step = std::max({results * 64 / kMultiply * (c.tileN % 64 && !isSwapped(c) ? 1.335 : 1),
                          static_cast<double>(c.tileM + c.tileN) * 128 / kFeed,
                          kLatency / static_cast<double>(c.stages)});
  if (!inTurns(c))
    step *= isSwapped(c) && rounds > 1 ? 1.03 : 0.985;
  if (isSwapped(c)) // results by filter take fewer instructions; odd rows are stored in small pieces
    step *= c.tileM % 64 ? 0.96 : 0.93;
  else if (c.tileM == 64)
    step = std::max(step * 0.814, kRows);
  // Ping-pong hides all epilogues but the last.
  double busy = rounds * (static_cast<double>(depth / kChannels) * step + kRound) +
                results / kEpilogue * (inTurns(c) ? 1 : rounds);
  double used = 1; // pixels of the images for one of the results
  for (size_t d = 0; d < desc.window.size(); ++d)
    used *= static_cast<double>(std::min(desc.window[d], desc.strides[d]));
  double channels = static_cast<double>(desc.groupChannels * desc.group);
  double all = static_cast<double>(filters * desc.group);
  double bytes = kElementBytes * (m * (used * channels + all) + all * static_cast<double>(depth));
  constexpr double kBusy = 0.02; // what decides among those that memory makes equal
  return std::max(busy, bytes / kMemory) + kBusy * busy + kStart;
}

int64_t HopperConv::sumsOf(const KernelConfig &c) {
  return c.tileM * c.tileN / (inTurns(c) || isSplit(c) ? 128 : 256);
}

KernelConfig HopperConv::choose(int64_t from, int64_t to, int64_t sums) const {
  KernelConfig best;
  double bestTime = 0;
  auto consider = [&](const char *family, int64_t tileM, std::initializer_list<int64_t> columns,
                      int64_t cluster = 1) {
    for (int64_t tileN : columns) {
      // A tile wider than the filters is chosen only when no narrower one holds them.
      if (tileN > 16 && tileN / 2 >= filters)
        continue;
      KernelConfig c;
      c.family = family;
      c.tileM = tileM;
      c.tileN = tileN;
      c.cluster = cluster;
      if (isSplit(c) && to < tileM)
        c.rows = (to + 7) / 8 * 8;
      if (!allows(c) || sumsOf(c) >= sums)
        continue;
      c = complete(c);
      // A range is judged by four of its sizes: rounds that are full for one are not for another.
      double time = 0;
      for (int i = 0; i < 4; ++i) {
        double at =
            std::round(static_cast<double>(from) *
                       std::pow(static_cast<double>(to) / static_cast<double>(from), i / 3.0));
        time += modelTime(c, at) / at;
      }
      if (best.family.empty() || time < bestTime) {
        best = c;
        bestTime = time;
      }
    }
  };
  // Ties go to the earlier one.
  if (to > 64) {
    consider("conv.pingpong", 128, {128, 64, 96, 48, 32, 16});
    consider("conv.pingpong", 192, {64, 32});
    consider("conv.cooperative", 128, {128, 256, 64});
    consider("conv.cooperative", 256, {128, 64});
  }
  consider("conv.pingpong", 64, {128, 64, 256, 96, 48, 32, 16});
  // Filters as rows of the instruction, where there is work for half of the multiprocessors.
  if (to * filters * desc.group >= 128 * 128 * target.smCount / 2) {
    for (int64_t tileM : {96, 128, 160, 192})
      consider("conv.cooperative.swapped", tileM, {128});
    for (int64_t tileM : {96, 128})
      consider("conv.pingpong.swapped", tileM, {128});
    for (int64_t tileM : {128, 192})
      consider("conv.pingpong.swapped", tileM, {64});
  }
  for (int64_t cluster : {2, 4, 8})
    if (depth / kChannels >= 2 * cluster)
      consider("conv.split", 64, {64, 32, 16}, cluster);
  return best;
}

// ---- The first layer -----------------------------------------------------------------------

namespace {

constexpr int64_t kFewChannels = 4, kFilters = 64; ///< of a pixel in shared memory; of a block

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
  if (!isHopper(target) || !desc.channelsLast || desc.parallel.size() != 4 || desc.group != 1 ||
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
  KernelConfig c;
  c.family = "conv.stem";
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
  auto shared = [&](int64_t stages) {
    int64_t raw = (desc.groupChannels * lines * columns * 2 + 127) / 128 * 128;
    int64_t in = (lines * columns * 8 + 127) / 128 * 128;
    return 4 * c.tileN * 128 + 2 * raw + stages * in + 8 * (2 * stages + 2) + 1024;
  };
  c.stages = 4;
  while (c.stages > 1 && shared(c.stages) > target.sharedPerBlock)
    --c.stages;
  int64_t chunks = (*desc.parallel.back().constant() + kFilters - 1) / kFilters;
  DimExpr tiles = desc.parallel[0] * DimExpr::ceilDiv(desc.parallel[1], DimExpr(c.tileM)) * across;
  KernelSpec spec =
      specFor(desc, c, DimExpr(chunks) * DimExpr::min(tiles, DimExpr(target.smCount / chunks)));
  spec.launches[0].sharedBytes = shared(c.stages);
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
  return spec;
}

} // namespace lathe::select
