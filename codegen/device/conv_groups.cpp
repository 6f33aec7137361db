//===- conv_groups.cpp - descriptor of conv_groups.cuh: convolutions of many small groups
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"
#include "Wanted.h"

#include "lathe/codegen/Choice.h"

#include <algorithm>

namespace lathe {

using namespace select;

/// Channels of a block at most, of groups that go two by two fewer, as these take more registers; pieces of eight
/// channels of a group's depth, whose products stand one by one in the text; and bytes of shared memory with which three
/// blocks share a multiprocessor.
static constexpr int64_t kMostChannels = 64, kMostOfPairs = 32, kMostPieces = 64, kShared = 72 << 10;

namespace {

/// A convolution as the tiles of GroupsTile see it; one dimension is a picture of one row.
struct Groups {
  int64_t channels, filters; ///< of a group, or of two
  bool four = false;         ///< two groups of four channels each are one
  int64_t window[2] = {1, 1}, strides[2] = {1, 1}, dilations[2] = {1, 1};

  static std::optional<Groups> of(const KernelDesc &desc) {
    const size_t spatial = desc.window.size();
    const std::optional<int64_t> all = desc.parallel.back().constant();
    if (spatial < 1 || spatial > 2 || desc.group < 2 || !all)
      return {};
    Groups g{desc.groupChannels, *all / desc.group};
    for (size_t d = 0; d < spatial; ++d) {
      const size_t axis = d + 2 - spatial;
      g.window[axis] = desc.window[d];
      g.strides[axis] = desc.strides[d];
      g.dilations[axis] = desc.dilations[d];
    }
    // Groups of four go two by two.
    g.four = g.channels == 4 && g.filters == 4 && desc.group % 2 == 0;
    if (g.four)
      g.channels = g.filters = 8;
    if (g.channels % 8 != 0 || g.channels >= kMostChannels || g.filters % 8 != 0 || g.filters > kMostChannels ||
        g.pieces() > kMostPieces)
      return {};
    return g;
  }
  int64_t pieces() const { return window[0] * window[1] * (channels / 8); }
  int64_t filterBytes(int64_t slab) const { return slab / channels * filters * (((pieces() + 3) / 4 * 4) | 1) * 16; }
  /// GroupsTile::SHARED_BYTES
  int64_t sharedBytes(const KernelConfig &c) const {
    const int64_t rows = (c.tileM - 1) * strides[0] + (window[0] - 1) * dilations[0] + 1,
                  columns = (c.tileN - 1) * strides[1] + (window[1] - 1) * dilations[1] + 1;
    const int64_t stage = 4 * 16 * (c.tileK / channels * filters + 8) * 4;
    return std::max(rows * columns * ((c.tileK / 8) | 1) * 16, stage) + filterBytes(c.tileK) + 16;
  }
};

} // namespace

static Result<bool> offer(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  const ContractionOperand &x = desc.operands[0], &w = desc.operands[1];
  std::optional<Groups> groups = Groups::of(desc);
  if (!groups || !target.hasTensorCores() || !desc.channelsLast || !isHalf(x.dtype) || x.dtype != w.dtype || x.buffer < 0 ||
      w.buffer < 0 || !w.isWeight)
    return false;
  const BufferArg &images = desc.buffers[x.buffer];
  if (images.dtype != x.dtype || images.alignment % 16 != 0 || images.physical != images.dims)
    return false;
  KernelConfig c{&kConvGroups};
  c.threads = 128;
  // The tile with the fewest results beyond the ends of an image.
  const bool line = desc.window.size() == 1;
  const DimExpr height = line ? DimExpr(1) : desc.parallel[1], width = desc.parallel[desc.parallel.size() - 2];
  auto tilesOf = [&](int64_t rows, int64_t columns) {
    return DimExpr::ceilDiv(height, DimExpr(rows)) * DimExpr::ceilDiv(width, DimExpr(columns));
  };
  // Strides need more pixels for a result: smaller tiles leave room for more blocks.
  const int64_t results = !line && groups->strides[0] * groups->strides[1] > 1 ? 64 : 128;
  int64_t least = 0;
  for (int64_t rows : {8, 16, 4, 1}) {
    if (line != (rows == 1) || (!line && rows < 4))
      continue;
    Result<int64_t> usual = tilesOf(rows, results / rows).evaluate(desc.usual);
    if (c.tileM && (!usual || *usual >= least))
      continue;
    c.tileM = rows;
    c.tileN = results / rows;
    least = usual ? *usual : 0;
  }
  // As many groups as shared memory has room for, in equal parts.
  const int64_t all = desc.group / (groups->four ? 2 : 1);
  for (int64_t count = (groups->four ? kMostOfPairs : kMostChannels) / groups->channels; count > 0 && c.tileK == 0; --count) {
    if (all % count != 0 || count * groups->filters > 2 * kMostChannels)
      continue;
    c.tileK = count * groups->channels;
    if (groups->sharedBytes(c) > (count > 1 ? kShared : target.sharedPerBlock))
      c.tileK = 0;
  }
  if (c.tileK == 0)
    return false;
  if (Result<bool> wanted = isWanted(desc, c); !wanted || !*wanted)
    return wanted;
  const DimExpr slabs(all * groups->channels / c.tileK), tiles = desc.parallel[0] * tilesOf(c.tileM, c.tileN);
  KernelSpec spec = specFor(desc, c, slabs * tiles);
  spec.launches[0].sharedBytes = groups->sharedBytes(c);
  spec.buffers[w.buffer].packing = groups->four ? "rows4" : "rows8";
  addVariant(out, {}, std::move(spec));
  return true;
}

const Skeleton kConvGroups = {
    .family = "conv.groups",
    .block = "t m n k: a tile of m x n results of neighbouring groups, k channels of the image, channels last",
    .code = Skeleton::Code::Conv,
    .conv = {.tensorCores = true, .groups = true, .offer = offer, .text = [](const KernelConfig &c, const ConvText &t) {
               std::string tile = "GroupsTile<" + t.window + ", " +
                                  joined({c.tileM, c.tileN, c.tileK, t.groupChannels, t.groupFilters}) + ">";
               return Instance{{"conv_groups"},
                               "convGroups<" + tile + ", " + t.window + ">(h, " + t.sizes + ");", tile};
             }}};

} // namespace lathe
