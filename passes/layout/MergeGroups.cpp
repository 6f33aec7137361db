//===- MergeGroups.cpp - small groups of channels side by side ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of sm_90a multiply 64 channels of a group at a time. Groups of fewer become parts of one group, whose
// filters are zeros where they meet the channels of others: a tensor core is faster by these zeros than the portable
// kernel is without them.
//
//   %y = conv %x, %w {group = 16}        =>   %y = conv %x, %m {group = 2}
//   %w: [128, 8, 3, 3]                        %m: [128, 64, 3, 3], of each filter 8 channels are those of %w
//
// Zeros are added to the sums, in f32, which stay what they are, as long as the image is finite: an infinity or NaN
// reaches the results of the groups it is merged with, as it reaches neighbouring pixels through Winograd's
// transformation on a CPU.
//
//===----------------------------------------------------------------------===//
#include "MergeGroups.h"

#include "ConvProducts.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"

#include <cstring>

using namespace mlir;

namespace lathe {
namespace {

constexpr int64_t kChannels = 64; ///< that a kernel reads of a group at a time
constexpr int64_t kMostGroups = 32; ///< merged into one: so many times the filters, and the work
constexpr int64_t kMostInOne = 256; ///< channels, where all groups become one that is no multiple of 64

/// How many groups of `channels` make one; 1 where none should.
int64_t groupsInOne(int64_t groups, int64_t channels) {
  if (channels < 2 || channels % kChannels == 0) // of one channel: kernels of their own
    return 1;
  for (int64_t m = 2; m <= std::min(groups, kMostGroups); ++m)
    if (groups % m == 0 && channels * m % kChannels == 0)
      return m;
  return groups <= kMostGroups && groups * channels <= kMostInOne ? groups : 1;
}

/// Filters [filters, channels, window..] with the channels of `m` groups.
Value spread(ConvOp op, int64_t m) {
  OpBuilder b(op);
  auto constant = op.getW().getDefiningOp<ConstantOp>();
  auto type = cast<RankedTensorType>(constant.getType());
  auto from = hostTensorOf(constant.getValue(), type, op.getContext());
  if (!from.ok())
    return {};
  SmallVector<int64_t> dims(type.getShape());
  const int64_t filters = dims[0], ofGroup = filters / int64_t(op.getGroup());
  const size_t bytes = filters ? from->data.size() / size_t(filters) : 0; // of a filter
  std::vector<std::byte> to(from->data.size() * size_t(m));
  for (int64_t f = 0; f < filters; ++f)
    std::memcpy(to.data() + size_t(f * m + f / ofGroup % m) * bytes, from->data.data() + size_t(f) * bytes, bytes);
  dims[1] *= m;
  auto &weights = op.getContext()->getLoadedDialect<LatheDialect>()->weights();
  return ConstantOp::create(b, constant.getLoc(),
                            constantAttr(RankedTensorType::get(dims, type.getElementType()), to, weights));
}

} // namespace

void mergeGroups(ModuleOp module) {
  module.walk([&](ConvOp op) {
    auto constant = op.getW().getDefiningOp<ConstantOp>();
    const int64_t groups = op.getGroup();
    if (groups == 1 || !constant || op.getLayout() != ConvLayout::ChannelsFirst || !wantsChannelsLast(op))
      return;
    const int64_t channels = cast<TensorType>(constant.getType()).getDimSize(1), m = groupsInOne(groups, channels);
    Value filters = m > 1 ? spread(op, m) : Value();
    if (!filters)
      return;
    op.getWMutable().assign(filters);
    op.setGroup(groups / m);
    passedRemark(op.getLoc(), "MergeGroups")
        << (std::to_string(m) + " groups of " + std::to_string(channels) + " channels are one for the tensor cores");
  });
}

} // namespace lathe
