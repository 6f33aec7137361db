//===- RepeatPatterns.cpp - gathers that repeat what they read ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A gather by constant indices that name each place of the axis so many times, one place after the other, repeats
// elements: no index needs to be read, and whoever reads the result can compute it. So a mask of blocks that is given
// for each block (BigBird's) is one of attention's operands and is never a tensor of queries x keys.
//
//   %y = gather %x, [0, 0, 1, 1, 2, 2] {axis = 0} : 3x5   =>   %r = reshape %x : 3x1x5
//                                                              %b = broadcast_to %r : 3x2x5
//                                                              %y = reshape %b : 6x5
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/WeightStore.h"

#include <cstring>

using namespace mlir;

namespace lathe {
namespace {

/// Integers of a constant of one dimension, of 32 or 64 bits.
std::optional<std::vector<int64_t>> indicesOf(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto type = cast<TensorType>(value.getType());
  if (!constant || type.getRank() != 1 || !type.hasStaticShape() || isa<JoinedAttr>(constant.getValue()))
    return std::nullopt;
  auto &weights = value.getContext()->getLoadedDialect<LatheDialect>()->weights();
  const unsigned bits = type.getElementTypeBitWidth();
  if (!isa<IntegerType>(type.getElementType()) || (bits != 32 && bits != 64))
    return std::nullopt;
  Result<std::vector<std::byte>> bytes = constantBytes(constant.getValue(), weights);
  if (!bytes)
    return std::nullopt;
  std::vector<int64_t> out(bytes->size() / (bits / 8));
  for (size_t i = 0; i < out.size(); ++i)
    if (int32_t narrow; bits == 32)
      std::memcpy(&narrow, bytes->data() + 4 * i, 4), out[i] = narrow;
    else
      std::memcpy(&out[i], bytes->data() + 8 * i, 8);
  return out;
}

struct GatherOfRepeats : OpRewritePattern<GatherOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(GatherOp op, PatternRewriter &rewriter) const override {
    std::vector<DimExpr> dims = dimsOf(op.getX());
    const auto axis = static_cast<size_t>(op.getAxis());
    auto places = dims[axis].constant(), count = dimsOf(op.getIndices()).size() == 1
                                                     ? dimsOf(op.getIndices())[0].constant()
                                                     : std::optional<int64_t>();
    if (!places || !count || *places < 1 || *count < 2 * *places || *count % *places != 0)
      return rewriter.notifyMatchFailure(op, "its indices are no multiple of the places that they name");
    const int64_t times = *count / *places;
    std::optional<std::vector<int64_t>> indices = indicesOf(op.getIndices());
    if (!indices)
      return rewriter.notifyMatchFailure(op, "its indices are no constant");
    for (int64_t i = 0; i < *count; ++i)
      if ((*indices)[i] != i / times)
        return rewriter.notifyMatchFailure(op, "its indices do not repeat each place in turn");
    Type element = elementTypeOf(op.getX());
    dims.insert(dims.begin() + axis + 1, DimExpr(1));
    Value apart = ReshapeOp::create(rewriter, op.getLoc(), tensorType(element, dims), op.getX());
    dims[axis + 1] = times;
    Value repeated = BroadcastToOp::create(rewriter, op.getLoc(), tensorType(element, dims), apart);
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getY().getType(), repeated);
    return success();
  }
};

} // namespace

void populateRepeatPatterns(RewritePatternSet &patterns) { patterns.add<GatherOfRepeats>(patterns.getContext()); }

} // namespace lathe
