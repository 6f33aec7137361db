//===- ConvProducts.cpp - convolutions that are products ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For the tensor cores of sm_90a: a window of one pixel is a product of pixels
// and filters. Windows side by side (patches) become one when the pixels of a
// patch are brought together, which pays where channels are too few for TMA.
//
//   %y = conv %x, %w {1 x 1}     =>   %t = transpose {0, 2, 3, 1} %x
//                                     %m = matmul %t, reshape %w {transpose_b}
//                                     %y = transpose {0, 3, 1, 2} %m
//
//===----------------------------------------------------------------------===//
#include "ConvProducts.h"

using namespace mlir;

namespace lathe {

SmallVector<int64_t> channelsToLast(int64_t rank) {
  SmallVector<int64_t> perm = {0};
  for (int64_t d = 2; d < rank; ++d)
    perm.push_back(d);
  perm.push_back(1);
  return perm;
}

SmallVector<int64_t> inversePermutation(ArrayRef<int64_t> perm) {
  SmallVector<int64_t> result(perm.size());
  for (auto [d, source] : llvm::enumerate(perm))
    result[source] = d;
  return result;
}

namespace {

constexpr int64_t kPiece = 8;       ///< 16-bit elements that TMA moves at least
constexpr int64_t kBytePiece = 16;  ///< the same of bytes
constexpr int64_t kFewChannels = 4; ///< that the first layer's kernel takes

bool isHalf(Value value) {
  Type type = elementTypeOf(value);
  return type.isF16() || type.isBF16();
}
bool all(ArrayRef<int64_t> values, int64_t is) {
  return llvm::all_of(values, [&](int64_t v) { return v == is; });
}
/// Whether the channels are known and their number is a multiple of `of`.
bool isMultiple(const DimExpr &channels, int64_t of) {
  std::optional<int64_t> count = channels.constant();
  return count && *count > 0 && *count % of == 0;
}

/// Whether an operand is dequantized from integers of 8 bits, behind transposes.
bool isOfBytes(Value v) {
  while (auto transpose = v.getDefiningOp<TransposeOp>())
    v = transpose.getX();
  auto codes = v.getDefiningOp<DequantizeOp>();
  auto stored = codes ? dyn_cast<IntegerType>(elementTypeOf(codes.getData())) : IntegerType();
  return stored && stored.getWidth() == 8;
}

/// Whether QuantizedConvs.cpp makes a convolution of bytes of it, whose pixels TMA brings.
bool isOfCodes(ConvOp op) {
  return isOfBytes(op.getX()) && isOfBytes(op.getW()) && op.getGroup() == 1 && isMultiple(dimOf(op.getX(), 1), kBytePiece);
}

Value matmulLast(PatternRewriter &b, ConvOp op, Value x, const DimExpr &depth) {
  std::vector<DimExpr> dims = dimsOf(x);
  DimExpr filters = dimOf(op.getW(), 0);
  Type element = elementTypeOf(op.getY());
  Value w = ReshapeOp::create(b, op.getLoc(),
                              tensorType(elementTypeOf(op.getW()), {filters, depth}), op.getW());
  dims.back() = filters;
  Value y = MatmulOp::create(b, op.getLoc(), tensorType(element, dims), x, w,
                             /*transpose_a=*/false, /*transpose_b=*/true);
  return TransposeOp::create(b, op.getLoc(), y, inversePermutation(channelsToLast(dims.size())));
}

/// Channels first, one group, nothing added at the borders, windows side by side, operands that are no codes.
bool isTiling(ConvOp op) {
  ArrayRef<int64_t> strides = op.getStrides();
  for (size_t d = 0; d < strides.size(); ++d)
    if (dimOf(op.getW(), 2 + d) != DimExpr(strides[d]))
      return false;
  return op.getLayout() == ConvLayout::ChannelsFirst && op.getGroup() == 1 &&
         all(op.getPads(), 0) && isHalf(op.getX()) &&
         elementTypeOf(op.getX()) == elementTypeOf(op.getW()) && !isOfCodes(op);
}

struct PointsToMatmul : OpRewritePattern<ConvOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConvOp op, PatternRewriter &rewriter) const override {
    if (!isTiling(op) || !all(op.getStrides(), 1))
      return rewriter.notifyMatchFailure(op, "the window is not one pixel");
    int64_t rank = dimsOf(op.getX()).size();
    Value x = TransposeOp::create(rewriter, op.getLoc(), op.getX(), channelsToLast(rank));
    rewriter.replaceOp(op, matmulLast(rewriter, op, x, dimOf(op.getX(), 1)));
    return success();
  }
};

struct PatchesToMatmul : OpRewritePattern<ConvOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConvOp op, PatternRewriter &rewriter) const override {
    std::vector<DimExpr> x = dimsOf(op.getX()), y = dimsOf(op.getY());
    if (!isTiling(op) || all(op.getStrides(), 1) || !all(op.getDilations(), 1) ||
        isMultiple(x[1], kPiece))
      return rewriter.notifyMatchFailure(op, "windows of few channels do not lie side by side");
    // [n, c, (p r), (q s)] -> [n, p, q, c, r, s]
    std::vector<DimExpr> split = {x[0], x[1]}, patches = {x[0]};
    SmallVector<int64_t> perm = {0}, inside = {1};
    DimExpr depth = x[1];
    for (auto [d, stride] : llvm::enumerate(op.getStrides())) {
      if (x[2 + d] != y[2 + d] * DimExpr(stride))
        return rewriter.notifyMatchFailure(op, "pixels are left over");
      split.insert(split.end(), {y[2 + d], DimExpr(stride)});
      perm.push_back(2 + 2 * d);
      inside.push_back(3 + 2 * d);
      patches.push_back(y[2 + d]);
      depth = depth * DimExpr(stride);
    }
    perm.append(inside);
    patches.push_back(depth);
    Type element = elementTypeOf(op.getX());
    Value parts = ReshapeOp::create(rewriter, op.getLoc(), tensorType(element, split), op.getX());
    Value moved = TransposeOp::create(rewriter, op.getLoc(), parts, perm);
    Value rows = ReshapeOp::create(rewriter, op.getLoc(), tensorType(element, patches), moved);
    rewriter.replaceOp(op, matmulLast(rewriter, op, rows, depth));
    return success();
  }
};

} // namespace

void populateConvProductPatterns(RewritePatternSet &patterns) {
  patterns.add<PointsToMatmul, PatchesToMatmul>(patterns.getContext(), /*benefit=*/2);
}

/// One filter a channel, of windows that rows of a plane are read for (codegen/device/conv_planes.cpp).
static bool isDepthwise(ConvOp op) {
  constexpr int64_t kMostReach = 64, kMostStride = 4;
  const int64_t spatial = op.getStrides().size();
  const std::optional<int64_t> filters = dimOf(op.getW(), 0).constant(), width = dimOf(op.getW(), 1 + spatial).constant();
  return spatial <= 2 && filters && width && op.getGroup() > 1 && int64_t(op.getGroup()) == *filters &&
         dimOf(op.getW(), 1) == DimExpr(1) && op.getStrides().back() <= kMostStride &&
         (*width - 1) * op.getDilations().back() <= kMostReach;
}

/// Whether a depthwise convolution hangs together, by ops that are pointwise and others of its kind, with what the
/// program is given and gives alone: then nothing would share the transposes.
static bool standsAlone(ConvOp op) {
  if (!isDepthwise(op))
    return false;
  constexpr size_t kMost = 64; // ops that are looked at
  llvm::SmallSetVector<Operation *, 16> group;
  group.insert(op);
  for (size_t i = 0; i < group.size(); ++i) {
    Operation *member = group[i];
    if (group.size() > kMost)
      return false;
    auto conv = dyn_cast<ConvOp>(member);
    if (conv ? !isDepthwise(conv) || conv.getLayout() == ConvLayout::ChannelsLast : !isClass(member, OpClass::Pointwise))
      return false;
    for (Value operand : member->getOperands()) {
      Operation *source = operand.getDefiningOp();
      const bool image = conv ? operand == conv.getX() : dimsOf(operand) == dimsOf(member->getResult(0));
      if (image && source && source->getNumOperands() > 0)
        group.insert(source);
    }
    for (Value result : member->getResults())
      for (Operation *user : result.getUsers())
        if (!user->hasTrait<OpTrait::IsTerminator>())
          group.insert(user);
  }
  return true;
}

bool wantsChannelsLast(ConvOp op) {
  if (!dimOf(op.getW(), 0).isConstant())
    return false;
  if (isOfCodes(op))
    return true;
  DimExpr channels = dimOf(op.getX(), 1);
  bool few = llvm::any_of(llvm::seq<int64_t>(1, kFewChannels + 1),
                          [&](int64_t n) { return channels == DimExpr(n); });
  return isHalf(op.getX()) && (few || isMultiple(channels, kPiece)) && !standsAlone(op);
}

bool wantsChannelsLast(PoolOp op) {
  return isHalf(op.getX()) && isMultiple(dimOf(op.getX(), 1), kPiece);
}

} // namespace lathe
