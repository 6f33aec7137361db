//===- conv_group_line.cpp - descriptor of conv_group_line.cuh: groups of a line with long windows
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"
#include "Wanted.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// Channels and filters of a group at most, taps of a stage at most, stages in shared memory.
static constexpr int64_t kMostChannels = 56, kMostFilters = 64, kMostTaps = 8, kStages = 2;

/// GroupLineTile::SHARED_BYTES
static int64_t sharedBytes(const KernelDesc &desc, const KernelConfig &c, int64_t filters) {
  const int64_t columns = (c.tileN - 1) * desc.strides[0] + (desc.window[0] - 1) * desc.dilations[0] + 1;
  const int64_t pixels = columns * ((c.tileK / 8) | 1) * 16, sums = 4 * 16 * (filters + 8) * 4;
  const int64_t stage = filters * (((c.tileM * (c.tileK / 8) + 3) / 4 * 4) | 1) * 16;
  return std::max(pixels, sums) + c.stages * stage + 16;
}

static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  const std::optional<int64_t> all = desc.parallel.back().constant();
  if (desc.window.size() != 1 || desc.group < 2 || !all || !target.hasTensorCores() || !desc.channelsLast || !isHalf(x.dtype) ||
      x.dtype != w.dtype || x.buffer < 0 || w.buffer < 0 || !w.isWeight)
    return false;
  const int64_t channels = desc.groupChannels, filters = *all / desc.group;
  const BufferArg &images = desc.buffers[x.buffer];
  if (channels < 8 || channels % 8 != 0 || channels > kMostChannels || filters % 8 != 0 || filters > kMostFilters ||
      images.dtype != x.dtype || images.alignment % 16 != 0 || images.physical != images.dims)
    return false;
  KernelConfig c{&kConvGroupLine};
  c.threads = 128;
  c.tileK = channels;
  c.stages = kStages;
  for (c.tileM = kMostTaps; desc.window[0] % c.tileM != 0;)
    c.tileM /= 2;
  // Twice the results read filters half as often, which is worth many beyond the end of a line.
  Result<int64_t> width = desc.parallel[1].evaluate(desc.usual);
  c.tileN = width && *width <= 64 ? 64 : 128;
  if (sharedBytes(desc, c, filters) > target.sharedPerBlock)
    return false;
  if (Result<bool> wanted = isWanted(desc, c); !wanted || !*wanted)
    return wanted;
  KernelSpec spec = specFor(desc, c, desc.parallel[0] * DimExpr(desc.group) * DimExpr::ceilDiv(desc.parallel[1], DimExpr(c.tileN)));
  spec.launches[0].sharedBytes = sharedBytes(desc, c, filters);
  spec.buffers[w.buffer].packing = "rows8";
  addVariant(out, {}, std::move(spec));
  return true;
}

const Skeleton kConvGroupLine = {
    .family = "conv.groups.line",
    .block = "t m n k s: n results of a line of one group of k channels, m taps of its windows a stage, channels last",
    .code = Skeleton::Code::Conv,
    .conv = {.tensorCores = true, .groups = true, .offer = offer, .text = [](const KernelConfig &c, const ConvText &t) {
               std::string tile = "GroupLineTile<" + t.window + ", " +
                                  joined({c.tileN, c.tileM, c.stages, t.groupChannels, t.groupFilters}) + ">";
               return Instance{{"conv_group_line"}, "convGroupLine<" + tile + ", " + t.window + ">(h, " + t.sizes + ");", tile};
             }}};

} // namespace lathe
