//===- OrderWeights.cpp - weights in the order that products read ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The last dimension of a weight is the one that the target's kernels read along: the depth on GPUs,
// the columns on CPUs. Ordered when compiling are weights that a product reads as they are stored
// (mixed-input GEMM, MixedInputProducts.h) with their scales and zero points, and f32 weights that tensor
// cores read as TF32.
//
//   %w = dequantize %q scale(%s)       : [K, N]       %w = dequantize %qt scale(%st)  : [N, K]
//   %y = matmul %x, %w                           =>   %y = matmul %x, %w {transpose_b}
//
// Codes that no product reads as they are stored are then folded like all other constants.
//
//===----------------------------------------------------------------------===//
#include "../MixedInputProducts.h"
#include "../simplify/Patterns.h"
#include "TransposeWeights.h"

#include "lathe/ir/StorageOperand.h"
#include "lathe/passes/Rewrite.h"

#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_ORDERWEIGHTSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

class Orderer {
public:
  explicit Orderer(ModuleOp module) : transposed(module) {}

  /// f32 operands, of which tensor cores read the upper 19 bits.
  void tf32(MatmulOp op);
  /// Stored weights that a product dequantizes as it reads them.
  void stored(MatmulOp op, const MixedInputProducts &mixed);
  /// Codes on both sides, whose sums are scaled by blocks.
  void blocks(MatmulOp op, const Target &target);

private:
  void relay(MatmulOp op, DequantizeOp codes);
  Value transposedParameter(OpBuilder &b, Value p);

  TransposeWeights transposed;
};

/// A scale or zero point of weights [K, N] for the same as [N, K], or the other way round.
Value Orderer::transposedParameter(OpBuilder &b, Value p) {
  if (!p)
    return p;
  std::vector<DimExpr> dims = dimsOf(p);
  Type element = elementTypeOf(p);
  if (product(dims) == DimExpr(1))
    return ReshapeOp::create(b, p.getLoc(), tensorType(element, ArrayRef<int64_t>()), p);
  if (dims.size() == 1)
    dims.insert(dims.begin(), DimExpr(1));
  std::swap(dims[0], dims[1]);
  if (dims[0] == DimExpr(1) || dims[1] == DimExpr(1))
    return ReshapeOp::create(b, p.getLoc(), tensorType(element, dims), p);
  return transposed(b, p.getLoc(), p);
}

void Orderer::stored(MatmulOp op, const MixedInputProducts &mixed) {
  auto codes = op.getB().getDefiningOp<DequantizeOp>();
  bool relay = op.getTransposeB() != mixed.wantsDepthLast();
  std::string why;
  if (!codes || !codes.getData().getDefiningOp<ConstantOp>())
    return;
  if (!mixed.takes(op, relay, &why) || (relay && !transposed.bytesOf(codes.getData()))) {
    missedRemark(op.getLoc(), "MixedInputProduct")
        << ("weights are dequantized ahead of the product: " + why);
    return;
  }
  passedRemark(op.getLoc(), "MixedInputProduct")
      << ("weights are read as they are stored: " + storageOperand(op.getB())->format->name).str();
  if (relay)
    this->relay(op, codes);
}

void Orderer::blocks(MatmulOp op, const Target &target) {
  std::string why;
  auto codes = op.getB().getDefiningOp<DequantizeOp>();
  bool takes = multipliesBlocks(op, target, /*relaid=*/true, &why);
  if (takes && !op.getTransposeB() && !transposed.bytesOf(codes.getData())) {
    why = "the right operand has contiguous columns";
    takes = false;
  }
  if (takes)
    passedRemark(op.getLoc(), "BlockScaledProduct") << "8-bit operands are multiplied as they are, and sums scaled by blocks";
  else if (!why.empty())
    missedRemark(op.getLoc(), "BlockScaledProduct") << ("8-bit operands are dequantized before the product: " + why);
  if (takes && !op.getTransposeB())
    relay(op, codes);
}

/// Gives the right operand the other order of dimensions.
void Orderer::relay(MatmulOp op, DequantizeOp codes) {
  OpBuilder builder(op);
  std::vector<DimExpr> dims = dimsOf(codes.getY());
  std::swap(dims[0], dims[1]);
  SmallVector<int64_t> block(llvm::reverse(codes.getBlock()));
  Value data = transposed(builder, codes.getLoc(), codes.getData());
  Value scale = transposedParameter(builder, codes.getScale());
  Value zero = transposedParameter(builder, codes.getZero());
  op.getBMutable().assign(DequantizeOp::create(
      builder, codes.getLoc(), tensorType(elementTypeOf(codes.getY()), dims), data, scale, zero,
      codes.getOuter(), codes.getCodebook(), block));
  op.setTransposeB(!op.getTransposeB());
}

void Orderer::tf32(MatmulOp op) {
  if (!elementTypeOf(op.getA()).isF32() || !elementTypeOf(op.getB()).isF32() || op.getTransposeB())
    return;
  if (!transposed.bytesOf(op.getB())) {
    missedRemark(op.getLoc(), "Tf32")
        << "computed in f32: the right operand is no weight and has contiguous n";
    return;
  }
  OpBuilder builder(op);
  Value w = transposed(builder, op.getLoc(), op.getB());
  op.getBMutable().assign(w);
  op.setTransposeB(true);
}

struct OrderWeightsPass : impl::OrderWeightsPassBase<OrderWeightsPass> {
  void runOnOperation() override {
    bool allowsTf32 = llvm::is_contained(optionStrings(getOperation(), "allow"), "tf32");
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      SmallVector<MatmulOp> products;
      module.walk([&](MatmulOp op) { products.push_back(op); });
      Orderer order(module);
      MixedInputProducts mixed(*target, module);
      for (MatmulOp op : products) {
        if (allowsTf32 && target->hasWgmma())
          order.tf32(op);
        order.stored(op, mixed);
        if (target->hasWgmma())
          order.blocks(op, *target);
      }
      IRRewriter rewriter(&getContext());
      (void)runRegionDCE(rewriter, module->getRegions());
    }
    RewritePatternSet patterns(&getContext());
    populateConstantPatterns(patterns, /*keepCodes=*/false, /*keepFilters=*/false);
    if (failed(rewriteToTheEnd(getOperation(), FrozenRewritePatternSet(std::move(patterns)))))
      signalPassFailure();
  }
};

} // namespace

} // namespace lathe
