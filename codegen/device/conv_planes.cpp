//===- conv_planes.cpp - descriptor of conv_planes.cuh: depthwise convolutions, channels first
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"
#include "Wanted.h"

#include "lathe/codegen/Choice.h"

namespace lathe {

using namespace select;

/// Elements of a row that a thread keeps in registers.
static constexpr int64_t kMostSpan = 96;

static Result<bool> offer(const KernelDesc &desc, const Target &, std::vector<KernelVariant> &out) {
  std::optional<PictureSizes> sizes = PictureSizes::of(desc);
  const ContractionOperand &x = desc.operands[0];
  const size_t rank = desc.parallel.size();
  if (!sizes || rank > 4 || desc.channelsLast || desc.groupChannels != 1 || desc.group < 2 || sizes->groupFilters != 1 ||
      (!isHalf(x.dtype) && x.dtype != DType::F32) || x.buffer < 0)
    return false;
  const BufferArg &images = desc.buffers[x.buffer];
  KernelConfig c{&kConvPlanes};
  c.threads = 128;
  c.lanes = 128 / bitWidth(x.dtype);
  const int64_t span = (c.lanes - 1) * desc.strides.back() + (desc.window.back() - 1) * desc.dilations.back() + 1;
  if (span > kMostSpan || images.dtype != x.dtype || images.alignment % 16 != 0 || images.physical != images.dims ||
      !images.packing.empty())
    return false;
  if (Result<bool> wanted = isWanted(desc, c); !wanted || !*wanted)
    return wanted;
  const DimExpr pieces = DimExpr::floorDiv(desc.parallel[rank - 2] + DimExpr(2 * c.lanes - 2), DimExpr(c.lanes));
  const DimExpr rows = product({desc.parallel.begin(), desc.parallel.end() - 2}) * desc.parallel.back();
  std::vector<DimCondition> guard;
  const int64_t most = (int64_t(1) << 32) - c.threads; // threads are counted in 32 bits
  if (rangeOf(rows * pieces, desc).lo > most)
    return false;
  if (rangeOf(rows * pieces, desc).hi > most)
    guard.push_back({DimCondition::Kind::LessEqual, rows * pieces, DimExpr(most)});
  addVariant(out, guard, specFor(desc, c, DimExpr::ceilDiv(rows * pieces, DimExpr(c.threads))));
  return guard.empty();
}

const Skeleton kConvPlanes = {
    .family = "conv.planes",
    .block = "t v: t*v neighbours of rows of results, one filter a channel, channels first",
    .code = Skeleton::Code::Conv,
    .conv = {.direct = true,
             .planes = true,
             .offer = offer,
             .text = [](const KernelConfig &c, const ConvText &t) {
               return Instance{{"conv_planes"},
                               "convPlanes<" + t.window + ", " + std::to_string(c.lanes) + ">(h, " + t.sizes + ");", ""};
             }}};

} // namespace lathe
