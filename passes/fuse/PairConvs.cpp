//===- PairConvs.cpp - a depthwise convolution and what mixes its channels -===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On the CPU a convolution with windows of one pixel can compute the depthwise
// convolution before it itself, a block of rows at a time, which then never
// leaves the core's cache.
//
//   %d = conv %x, %f {depthwise}            kernel conv {
//   %a = max %d, 0                      =>    conv, max, conv
//   %y = conv %a, %w {1 x 1}                }
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

using namespace mlir;

namespace lathe::fuse {
namespace {

ConvOp asConv(Operation *op) {
  return isClass(op, OpClass::Conv) ? cast<ConvOp>(op) : ConvOp();
}

/// Channels last, in f32, two dimensions, constant filters.
bool isPlain(ConvOp op) {
  return op.getLayout() == ConvLayout::ChannelsLast && op.getStrides().size() == 2 &&
         elementTypeOf(op.getX()).isF32() && elementTypeOf(op.getW()).isF32() &&
         op.getW().getDefiningOp<ConstantOp>() && !isNumber(op.getW().getDefiningOp());
}

/// A filter for each of the channels, whose number is known.
bool isDepthwise(ConvOp op) {
  std::optional<int64_t> channels = dimsOf(op.getX()).back().constant();
  return isPlain(op) && channels && *channels > 1 && int64_t(op.getGroup()) == *channels &&
         dimOf(op.getW(), 0) == DimExpr(*channels);
}

bool isOnePixel(ConvOp op) {
  return isPlain(op) && op.getGroup() == 1 && dimOf(op.getW(), 2) == DimExpr(1) &&
         dimOf(op.getW(), 3) == DimExpr(1) &&
         llvm::all_of(op.getStrides(), [](int64_t s) { return s == 1; }) &&
         llvm::all_of(op.getPads(), [](int64_t p) { return p == 0; });
}

/// The ops behind a depthwise convolution, up to the convolution of pixels that alone reads them.
SmallVector<Operation *> pathToPixels(const FusionGraph &graph, ConvOp depthwise) {
  SmallVector<Operation *> path;
  for (Value v = depthwise.getY(); v.hasOneUse(); v = path.back()->getResult(0)) {
    Operation *user = *v.user_begin();
    path.push_back(user);
    if (ConvOp conv = asConv(user)) {
      if (conv.getX() == v && isOnePixel(conv))
        return path;
      break;
    }
    if (!graph.isFree(user) || !isClass(user, OpClass::Pointwise) || user->getNumResults() != 1 ||
        !hasDims(user->getResult(0), dimsOf(depthwise.getY())))
      break;
  }
  return {};
}

} // namespace

Group *pairConvs(FusionGraph &graph, Operation *op, const Target &target) {
  ConvOp depthwise = asConv(op);
  if (target.isCuda() || !depthwise || !isDepthwise(depthwise))
    return nullptr;
  SmallVector<Operation *> path = pathToPixels(graph, depthwise);
  if (path.empty())
    return nullptr;
  ConvOp pixels = asConv(path.back());
  // What stays in the second-level cache anyway gains nothing.
  constexpr double kStays = 384 << 10;
  double bytes = 4 * graph.count(dimsOf(pixels.getX()));
  if (bytes <= kStays) {
    std::string bytesText = std::to_string(int64_t(bytes));
    missedRemark(pixels.getLoc(), "PairConvs")
        << "not fused with the depthwise convolution before it: its " + bytesText +
               " bytes stay in cache";
    return nullptr;
  }
  Group &group = graph.create(pixels, RegionKind::Conv);
  path.pop_back();
  path.insert(path.begin(), op);
  for (Operation *member : llvm::reverse(path)) {
    if (!graph.mayOwn(member, group)) {
      while (group.members.size() > 1)
        graph.release(group.members.front(), group);
      return &group;
    }
    graph.own(member, group);
  }
  passedRemark(pixels.getLoc(), "PairConvs")
      << "computes the depthwise convolution before it, a block of rows at a time";
  return &group;
}

} // namespace lathe::fuse
