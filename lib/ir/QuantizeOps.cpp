//===- QuantizeOps.cpp - numbers as codes of few bits ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheQuantizeOps.cpp.inc"

namespace lathe {

void registerQuantizeOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheQuantizeOps.cpp.inc"
      >();
}

/// Whether a parameter has an element a block of `data`, or one along a dimension.
static bool fitsBlocks(ArrayRef<DimExpr> parameter, ArrayRef<DimExpr> data,
                       ArrayRef<int64_t> block) {
  if (parameter.size() > data.size())
    return false;
  size_t skip = data.size() - parameter.size();
  for (auto [d, size] : llvm::enumerate(parameter))
    if (size != DimExpr(1) &&
        size != DimExpr::ceilDiv(data[skip + d], DimExpr(block[skip + d])))
      return false;
  return true;
}

/// Checks sizes; `parameters` have those that are there.
static LogicalResult verifySizes(Operation *op, StringRef name, Value data,
                                 ArrayRef<Value> parameters, ArrayRef<int64_t> block) {
  std::vector<DimExpr> dims = dimsOf(data), result = dimsOf(op->getResult(0));
  if (block.empty()) {
    std::vector<std::vector<DimExpr>> shapes{dims};
    for (Value parameter : parameters)
      shapes.push_back(dimsOf(parameter));
    if (broadcastDims(shapes) != result)
      return op->emitOpError() << name << "_c2: the operands do not broadcast to "
                               << op->getResult(0).getType();
    return success();
  }
  if (block.size() != dims.size() || llvm::any_of(block, [](int64_t b) { return b < 1; }))
    return op->emitOpError() << name << "_c1: block is not a positive number a dimension of "
                             << data.getType();
  for (Value parameter : parameters)
    if (!fitsBlocks(dimsOf(parameter), dims, block))
      return op->emitOpError() << name << "_c2: " << parameter.getType()
                               << " does not have an element a block of " << data.getType();
  if (dims != result)
    return op->emitOpError() << name << "_c2: sizes of " << data.getType() << " and "
                             << op->getResult(0).getType() << " differ";
  return success();
}

static SmallVector<Value> present(ValueRange values) {
  return llvm::to_vector(llvm::make_filter_range(values, [](Value v) { return bool(v); }));
}

LogicalResult DequantizeOp::verify() {
  if (failed(verifySizes(*this, "dequantize", getData(), present({getScale(), getZero()}),
                         getBlock())))
    return failure();
  Type data = elementTypeOf(getData()), result = elementTypeOf(getY());
  if (Value outer = getOuter();
      outer && (!getScale() || numElements(outer.getType()) != DimExpr(1) ||
                !isa<FloatType>(elementTypeOf(outer))))
    return emitOpError("dequantize_c3: the outer scale is not one float beside a scale");
  if (Value codebook = getCodebook()) {
    bool codes = isa<IntegerType>(data) && data.getIntOrFloatBitWidth() <= 8 && !getZero() &&
                 isa<FloatType>(elementTypeOf(codebook));
    std::vector<DimExpr> sizes = dimsOf(codebook);
    if (!codes || sizes.size() != 1 ||
        sizes[0] != DimExpr(int64_t(1) << data.getIntOrFloatBitWidth()))
      return emitOpError("dequantize_c4: the codebook does not have a float for each code");
  }
  if (getScale() && !(isa<FloatType>(elementTypeOf(getScale())) && isa<FloatType>(result)))
    return emitOpError("dequantize_c5: scale or result is no float");
  return success();
}

LogicalResult QuantizeOp::verify() {
  if (failed(verifySizes(*this, "quantize", getX(), present({getScale(), getZero()}), getBlock())))
    return failure();
  auto scale = dyn_cast<FloatType>(elementTypeOf(getScale()));
  if (!scale || scale.getWidth() < 16)
    return emitOpError("quantize_c3: the scale is no float of 16 bits or more");
  if (!isa<IntegerType>(elementTypeOf(getY())) &&
      !(isa<FloatType>(elementTypeOf(getY())) && !getZero()))
    return emitOpError("quantize_c4: the result is no integer, nor a float without a zero point");
  return success();
}

//===----------------------------------------------------------------------===//
// How they iterate
//===----------------------------------------------------------------------===//

/// Maps of data, of parameters in blocks, and of single numbers and tables behind them.
static SmallVector<AffineMap> codeMaps(Operation *op, ArrayRef<int64_t> block,
                                       ArrayRef<Value> whole) {
  SmallVector<AffineMap> maps = broadcastMaps(op);
  MLIRContext *context = op->getContext();
  unsigned rank = cast<TensorType>(op->getResult(0).getType()).getRank();
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    if (llvm::is_contained(whole, operand)) {
      maps[i] = AffineMap(); // a table: the place follows from data
      continue;
    }
    if (block.empty() || i == 0)
      continue;
    auto type = cast<TensorType>(operand.getType());
    SmallVector<AffineExpr> index;
    for (int64_t d = 0, skip = rank - type.getRank(); d < type.getRank(); ++d)
      index.push_back(type.getDimSize(d) == 1
                          ? getAffineConstantExpr(0, context)
                          : getAffineDimExpr(skip + d, context).floorDiv(block[skip + d]));
    maps[i] = AffineMap::get(rank, 0, index, context);
  }
  return maps;
}

/// Without blocks each result element follows from one of each operand, aligned as numpy does.
/// With blocks, or a table, the op keeps its shape: fusion expands it (DecomposeComposites) unless a
/// product reads the codes.
OpClass DequantizeOp::getOpClass() {
  return getBlock().empty() && !getCodebook() ? OpClass::Pointwise : OpClass::Composite;
}
OpClass QuantizeOp::getOpClass() {
  return getBlock().empty() ? OpClass::Pointwise : OpClass::Composite;
}
SmallVector<utils::IteratorType> DequantizeOp::getIterators() { return parallelIterators(*this); }
SmallVector<utils::IteratorType> QuantizeOp::getIterators() { return parallelIterators(*this); }
SmallVector<AffineMap> DequantizeOp::getAccessMaps() {
  return codeMaps(*this, getBlock(), present({getCodebook()}));
}
SmallVector<AffineMap> QuantizeOp::getAccessMaps() { return codeMaps(*this, getBlock(), {}); }

//===----------------------------------------------------------------------===//
// Canonical forms
//===----------------------------------------------------------------------===//

namespace {

/// Scales that are themselves codes with one scale in f32 are scales of two levels.
///
///   %s = dequantize %s8 scale(%t) : f8E4M3FN -> f32
///   %y = dequantize %q scale(%s)     =>   %y = dequantize %q scale(%s8) outer(%t)
struct ScaleOfScales : OpRewritePattern<DequantizeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DequantizeOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getScale() ? op.getScale().getDefiningOp<DequantizeOp>() : DequantizeOp();
    if (!inner || op.getOuter())
      return rewriter.notifyMatchFailure(op, "the scales are no codes, or of two levels already");
    if (!inner.getScale() || inner.getZero() || inner.getOuter() || inner.getCodebook() ||
        numElements(inner.getScale().getType()) != DimExpr(1))
      return rewriter.notifyMatchFailure(op, "the scales have more than one scale");
    if (!elementTypeOf(inner.getY()).isF32() || !isa<FloatType>(elementTypeOf(inner.getData())))
      return rewriter.notifyMatchFailure(op, "the scales are rounded, or made of integers");
    rewriter.modifyOpInPlace(op, [&] {
      op.getScaleMutable().assign(inner.getData());
      op.getOuterMutable().assign(inner.getScale());
    });
    return success();
  }
};

} // namespace

void DequantizeOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<ScaleOfScales>(context);
}

} // namespace lathe
