//===- ExpandBlocks.cpp - parameters of blocks for every element ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A scale or zero point that several elements share is repeated for each of them, by
// movement that fusion computes where it is read, so that quantize and dequantize are
// pointwise; a codebook becomes a gather. Codes that a product reads as they are
// stored keep their blocks.
//
//   %y = dequantize %q scale(%s)               %b = broadcast_to %s : 4x2x1 -> 4x2x16
//          {block = [1, 16]} : 4x32, 4x2   =>  %r = reshape %b : 4x2x16 -> 4x32
//                                              %y = dequantize %q scale(%r) : 4x32, 4x32
//
//===----------------------------------------------------------------------===//
#include "../MixedInputProducts.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_EXPANDBLOCKSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// A parameter with an element for each of `dims`, or 1 where it has one for all.
Value expanded(OpBuilder &b, Location loc, Value p, ArrayRef<DimExpr> dims,
               ArrayRef<int64_t> block) {
  if (!p)
    return p;
  Type element = elementTypeOf(p);
  int64_t skip = int64_t(dims.size() - dimsOf(p).size());
  for (int64_t d = skip; d < int64_t(dims.size()); ++d) {
    std::vector<DimExpr> now = dimsOf(p);
    int64_t at = d - skip;
    if (block[d] == 1 || now[at] == DimExpr(1))
      continue;
    std::vector<DimExpr> apart = now, wide, joined = now;
    apart.insert(apart.begin() + at + 1, DimExpr(1));
    wide = apart;
    wide[at + 1] = DimExpr(block[d]);
    joined[at] = now[at] * DimExpr(block[d]);
    p = ReshapeOp::create(b, loc, tensorType(element, apart), p);
    p = BroadcastToOp::create(b, loc, tensorType(element, wide), p);
    p = ReshapeOp::create(b, loc, tensorType(element, joined), p);
    if (joined[at] == dims[d])
      continue;
    joined[at] = dims[d]; // the last block is cut
    SmallVector<Attribute> starts(joined.size(), DimAttr::get(b.getContext(), DimExpr(0)));
    p = SliceOp::create(b, loc, tensorType(element, joined), p, b.getArrayAttr(starts),
                        b.getDenseI64ArrayAttr(SmallVector<int64_t>(joined.size(), 1)));
  }
  return p;
}

/// The number of each code.
Value lookedUp(OpBuilder &b, DequantizeOp op) {
  Location loc = op.getLoc();
  Value codes = op.getData();
  auto code = IntegerType::get(b.getContext(), elementTypeOf(codes).getIntOrFloatBitWidth(),
                               IntegerType::Unsigned);
  if (elementTypeOf(codes) != code)
    codes = BitcastOp::create(b, loc, withElementType(codes.getType(), code), codes);
  codes = CastOp::create(b, loc, withElementType(codes.getType(), b.getI64Type()), codes, true);
  return GatherOp::create(
      b, loc, withElementType(codes.getType(), elementTypeOf(op.getCodebook())), op.getCodebook(),
      codes, 0);
}

/// For the uses that are not `kept`.
void expand(DequantizeOp op, llvm::function_ref<bool(OpOperand &)> kept) {
  OpBuilder b(op);
  std::vector<DimExpr> dims = dimsOf(op.getData());
  Value scale = op.getScale(), zero = op.getZero();
  if (!op.getBlock().empty()) {
    scale = expanded(b, op.getLoc(), scale, dims, op.getBlock());
    zero = expanded(b, op.getLoc(), zero, dims, op.getBlock());
  }
  Value data = op.getCodebook() ? lookedUp(b, op) : op.getData();
  Value y = DequantizeOp::create(b, op.getLoc(), op.getY().getType(), data, scale, zero,
                                 op.getOuter(), Value(), ArrayRef<int64_t>());
  op.getY().replaceUsesWithIf(y, [&](OpOperand &use) { return !kept(use); });
  if (op.use_empty())
    op.erase();
}

void expand(QuantizeOp op) {
  OpBuilder b(op);
  std::vector<DimExpr> dims = dimsOf(op.getX());
  Value scale = expanded(b, op.getLoc(), op.getScale(), dims, op.getBlock());
  Value zero = expanded(b, op.getLoc(), op.getZero(), dims, op.getBlock());
  Value y = QuantizeOp::create(b, op.getLoc(), op.getY().getType(), op.getX(), scale, zero,
                               op.getSaturate(), ArrayRef<int64_t>());
  op.getY().replaceAllUsesWith(y);
  op.erase();
}

struct ExpandBlocksPass : impl::ExpandBlocksPassBase<ExpandBlocksPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      MixedInputProducts mixed(*target, module);
      SmallVector<Operation *> composite;
      module.walk([&](Operation *op) {
        if (isa<DequantizeOp, QuantizeOp>(op) && isClass(op, OpClass::Composite))
          composite.push_back(op);
      });
      for (Operation *op : composite) {
        if (auto codes = dyn_cast<DequantizeOp>(op)) {
          auto kept = [&](OpOperand &use) {
            auto product = dyn_cast<MatmulOp>(use.getOwner());
            return product && (multipliesBlocks(product, *target) || (use.getOperandNumber() == 1 && mixed.takes(product)));
          };
          if (!llvm::all_of(op->getUses(), kept))
            expand(codes, kept);
        } else {
          expand(cast<QuantizeOp>(op));
        }
      }
    }
  }
};

} // namespace

} // namespace lathe
