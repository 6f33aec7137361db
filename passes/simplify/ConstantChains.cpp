//===- ConstantChains.cpp - what several ops make of constants ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Large values that follow from constants alone, of which the ops are computed together, so that nothing is kept of
// what lies between:
//
// - filters of convolutions, which are packed only where they are constant: those that are dequantized, transposed and
//   flipped for a transposed convolution, or normalized (weight norm, weight standardization);
// - whatever takes more to compute than to read: relative positions that are projected (DeBERTa), sines of places in an
//   image (SAM), weights with a low-rank product added.
//
//   %t = layer_norm %table, %g, %b
//   %p = matmul %t, %w                =>   %p = constant
//   %y = matmul %x, %p                     %y = matmul %x, %p
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace lathe {
namespace {

constexpr size_t kMaxOps = 32;

/// Whether one of an op's operands is made of codes.
bool takesCodes(Operation *op) {
  return llvm::any_of(op->getOperandTypes(), [](Type type) {
    Type element = getElementTypeOrSelf(type);
    return element.isIntOrFloat() && element.getIntOrFloatBitWidth() <= 8;
  });
}

/// Adds an op behind those that make its operands; no constants. False: it is none that may be computed.
bool addOps(Operation *op, bool keepCodes, llvm::SetVector<Operation *> &ops, size_t depth = 0) {
  if (!op || ops.contains(op) || isa<ConstantOp>(op))
    return op;
  if (depth == kMaxOps) // a chain that long is too many ops; most lead to an input of the graph
    return false;
  auto small = [](Value v) {
    auto type = dyn_cast<TensorType>(v.getType());
    return type && type.hasStaticShape() && type.getNumElements() <= kMostFolded;
  };
  if (!isa<StructuredOpInterface>(op) || op->getNumResults() != 1 || op->getNumRegions() ||
      (keepCodes && takesCodes(op)) || !small(op->getResult(0)) || !llvm::all_of(op->getOperands(), small))
    return false;
  for (Value operand : op->getOperands())
    if (!addOps(operand.getDefiningOp(), keepCodes, ops, depth + 1))
      return false;
  ops.insert(op);
  return ops.size() <= kMaxOps;
}

/// Whether an op follows from constants alone, however many ops lie between; also where that takes long to tell.
bool followsFromConstants(Operation *op) {
  constexpr size_t kMostLooked = 4096;
  llvm::SmallPtrSet<Operation *, 32> seen;
  SmallVector<Operation *> left = {op};
  while (!left.empty() && seen.size() < kMostLooked) {
    Operation *next = left.pop_back_val();
    if (!next || (!isa<ConstantOp>(next) && (!isa<StructuredOpInterface>(next) || next->getNumRegions())))
      return false;
    if (seen.insert(next).second)
      for (Value operand : next->getOperands())
        left.push_back(operand.getDefiningOp());
  }
  return true;
}

/// The result of the last of these ops, which stand behind those that make their operands.
Result<HostTensor> evaluate(ArrayRef<Operation *> ops) {
  llvm::DenseMap<Value, HostTensor> values;
  for (auto [at, op] : llvm::enumerate(ops)) {
    std::vector<HostTensor> inputs;
    for (Value operand : op->getOperands()) {
      if (auto constant = operand.getDefiningOp<ConstantOp>()) {
        Result<HostTensor> value = hostTensorOf(constant.getValue(), constant.getType(), op->getContext());
        if (!value.ok())
          return value.status();
        inputs.push_back(std::move(*value));
        continue;
      }
      bool last = llvm::none_of(operand.getUsers(), [&, place = at](Operation *user) {
        return llvm::is_contained(ops.drop_front(place + 1), user);
      });
      bool again = llvm::count(op->getOperands(), operand) > 1;
      inputs.push_back(last && !again ? std::move(values[operand]) : values[operand]);
    }
    Result<std::vector<HostTensor>> results = evaluateOp(op, inputs);
    if (!results.ok())
      return results.status();
    values[op->getResult(0)] = std::move(results->front());
  }
  return std::move(values[ops.back()->getResult(0)]);
}

TypedAttr attributeOf(Value value, const HostTensor &host) {
  auto &weights = value.getContext()->getLoadedDialect<LatheDialect>()->weights();
  return constantAttr(cast<TensorType>(value.getType()), host.data, weights);
}

struct FoldFilters : OpRewritePattern<ConvOp> {
  FoldFilters(MLIRContext *context, bool keepCodes) : OpRewritePattern(context), keepCodes(keepCodes) {}

  LogicalResult matchAndRewrite(ConvOp conv, PatternRewriter &rewriter) const override {
    llvm::SetVector<Operation *> ops;
    if (!addOps(conv.getW().getDefiningOp(), keepCodes, ops) || ops.empty())
      return rewriter.notifyMatchFailure(conv, "filters are constant already, or not made of constants alone");
    Result<HostTensor> value = evaluate(ops.getArrayRef());
    if (!value.ok())
      return rewriter.notifyMatchFailure(conv, value.status().message());
    Value filters = ConstantOp::create(rewriter, conv.getW().getLoc(), attributeOf(conv.getW(), *value));
    rewriter.modifyOpInPlace(conv, [&] { conv.getWMutable().assign(filters); });
    return success();
  }

  const bool keepCodes;
};

/// A value that ops with other operands read, where it is dear for its size and not much larger than what it is made of.
struct FoldDear : RewritePattern {
  explicit FoldDear(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/1, context) {}

  /// Operations by element from which on reading is cheaper, elements that a value may have whatever it is made of, and what
  /// the reference may take for one: a second or two.
  static constexpr int64_t kDear = 8, kMaxGrown = 1 << 20, kMaxFlops = 1 << 30;

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    llvm::SetVector<Operation *> ops;
    if (isa<ConstantOp>(op) || !op->getNumOperands() || !addOps(op, /*keepCodes=*/true, ops))
      return rewriter.notifyMatchFailure(op, "not made of constants alone");
    // Constants that follow from it are computed with it; a graph of nothing else would take a round for every so many ops.
    if (llvm::all_of(op->getUsers(), followsFromConstants))
      return rewriter.notifyMatchFailure(op, "no op with other operands reads it");
    int64_t flops = 0, from = 0;
    llvm::SmallPtrSet<Operation *, 16> constants;
    for (Operation *each : ops) {
      if (!each->getNumOperands() || !isMemoryEffectFree(each))
        return rewriter.notifyMatchFailure(op, "an op that makes something of nothing, or has effects");
      flops += cast<StructuredOpInterface>(each).getFlops().constant().value_or(kMaxFlops + 1);
      for (Value operand : each->getOperands())
        if (auto constant = operand.getDefiningOp<ConstantOp>(); constant && constants.insert(constant).second)
          from += cast<TensorType>(constant.getType()).getNumElements();
    }
    int64_t elements = cast<TensorType>(op->getResult(0).getType()).getNumElements();
    if (flops < kDear * elements || flops > kMaxFlops)
      return rewriter.notifyMatchFailure(op, "cheap, or too dear for the reference");
    if (elements > std::max(kMaxGrown, from))
      return rewriter.notifyMatchFailure(op, "much larger than what it is made of");
    Result<HostTensor> value = evaluate(ops.getArrayRef());
    if (!value.ok())
      return rewriter.notifyMatchFailure(op, value.status().message());
    rewriter.replaceOpWithNewOp<ConstantOp>(op, attributeOf(op->getResult(0), *value));
    return success();
  }
};

} // namespace

void populateFilterPatterns(RewritePatternSet &patterns, bool keepCodes) {
  patterns.add<FoldFilters>(patterns.getContext(), keepCodes);
}

void populateDearConstantPatterns(RewritePatternSet &patterns) { patterns.add<FoldDear>(patterns.getContext()); }

} // namespace lathe
