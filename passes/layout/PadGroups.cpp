//===- PadGroups.cpp - groups of filters that fill vectors ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A panel of filters is a vector of results, and lies in one group or covers whole
// groups (lib/support/Packing.h). Three groups of 12 filters and vectors of 8:
//
//   %y = conv %x, %w {group = 3}       =>  %t = transpose %x to channels last
//     : 1x6x9x9 -> 1x36x9x9                %c = conv %t, %v {group = 3} : 1x9x9x48
//                                          %s = slice of 1x9x9x3x16 : 1x9x9x3x12
//                                          %y = transpose of 1x9x9x36 to channels first
//
//===----------------------------------------------------------------------===//
#include "PadGroups.h"

#include "ConvProducts.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"
#include "lathe/support/ConvGroups.h"

#include <cstring>

using namespace mlir;

namespace lathe {
namespace {

/// More filters than so many for each one would take too much memory, for what vectors of 8 and 16 results gain.
constexpr int64_t kMostPadding = 4;

/// The least number of filters in a group, `each` or more, of which panels can be made.
int64_t paddedFilters(int64_t groups, int64_t each, int64_t lanes) {
  while (!panelsFitGroups(groups, each, lanes))
    ++each;
  return each;
}

/// Filters [groups * each, ...] with zeros behind those of each group; null where their elements cannot be read.
Value padFilters(OpBuilder &b, ConvOp op, int64_t groups, int64_t each, int64_t padded) {
  auto constant = op.getW().getDefiningOp<ConstantOp>();
  auto from = hostTensorOf(constant.getValue(), constant.getType(), b.getContext());
  std::optional<DType> dtype = dtypeOf(elementTypeOf(op.getW()));
  if (!from.ok() || !dtype)
    return {};
  std::vector<int64_t> dims = from->dims;
  dims[0] = groups * padded;
  HostTensor to(*dtype, dims);
  const size_t filter = from->data.size() / (groups * each);
  for (int64_t g = 0; g < groups; ++g)
    std::memcpy(to.data.data() + g * padded * filter, from->data.data() + g * each * filter, each * filter);
  auto &weights = b.getContext()->getLoadedDialect<LatheDialect>()->weights();
  auto type = RankedTensorType::get(dims, elementTypeOf(op.getW()));
  return ConstantOp::create(b, op.getLoc(), constantAttr(type, to.data, weights));
}

void padGroupsOf(ConvOp op, int64_t lanes) {
  auto type = cast<TensorType>(op.getW().getType());
  const int64_t groups = op.getGroup();
  if (groups < 2 || op.getLayout() != ConvLayout::ChannelsFirst || !type.hasStaticShape() ||
      !isa<FloatType>(type.getElementType()) || !op.getW().getDefiningOp<ConstantOp>())
    return;
  const int64_t each = type.getDimSize(0) / groups, channels = type.getDimSize(1), padded = paddedFilters(groups, each, lanes);
  if (padded == each || padded > kMostPadding * each || channels == 1 || (type.getRank() <= 4 && groupsFitLanes(channels, each, lanes)))
    return; // groups of one channel and of few have kernels of their own
  OpBuilder b(op);
  Value filters = padFilters(b, op, groups, each, padded);
  if (!filters)
    return;
  const int64_t rank = type.getRank();
  auto reshape = [&](Value v, const std::vector<DimExpr> &dims) -> Value {
    return ReshapeOp::create(b, op.getLoc(), tensorType(elementTypeOf(v), dims), v);
  };
  Value x = TransposeOp::create(b, op.getLoc(), op.getX(), channelsToLast(rank));
  Value y = ConvOp::create(b, op.getLoc(), x, filters, op.getStrides(), op.getPads(), op.getDilations(), uint64_t(groups),
                           ConvLayout::ChannelsLast);
  std::vector<DimExpr> dims = dimsOf(y), apart(dims.begin(), dims.end() - 1);
  apart.insert(apart.end(), {DimExpr(groups), DimExpr(padded)});
  y = reshape(y, apart);
  apart.back() = DimExpr(each);
  SmallVector<Attribute> starts(apart.size(), DimAttr::get(b.getContext(), DimExpr(0)));
  y = SliceOp::create(b, op.getLoc(), tensorType(elementTypeOf(y), apart), y, b.getArrayAttr(starts),
                      SmallVector<int64_t>(apart.size(), 1));
  dims.back() = DimExpr(groups * each);
  y = TransposeOp::create(b, op.getLoc(), reshape(y, dims), inversePermutation(channelsToLast(rank)));
  passedRemark(op.getLoc(), "PadGroups") << ("groups of " + std::to_string(each) + " filters padded to " + std::to_string(padded));
  op.getY().replaceAllUsesWith(y);
  op.erase();
}

} // namespace

void padGroups(ModuleOp module, int64_t lanes) {
  SmallVector<ConvOp> convs;
  module.walk([&](ConvOp op) { convs.push_back(op); });
  for (ConvOp op : convs)
    padGroupsOf(op, lanes);
}

} // namespace lathe
