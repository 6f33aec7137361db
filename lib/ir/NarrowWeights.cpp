//===- NarrowWeights.cpp - weights that a product widens as it reads ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/NarrowWeights.h"

using namespace mlir;

namespace lathe {

static bool isNarrow(Type t) {
  if (auto integer = dyn_cast<IntegerType>(t))
    return integer.getWidth() == 8;
  return isa<Float8E4M3FNType, Float8E5M2Type>(t);
}

/// Elements of a parameter that is known, or 0: a constant, widened, or seen in a kernel.
static int64_t knownElements(Value p) {
  while (Operation *op = p.getDefiningOp()) {
    if (!isa<CastOp, ReshapeOp, BroadcastToOp, SliceOp, TransposeOp>(op))
      break;
    p = op->getOperand(0);
  }
  bool known = isa<BlockArgument>(p) || p.getDefiningOp<ConstantOp>();
  return known ? product(dimsOf(p)).constant().value_or(0) : 0;
}

/// Whether a parameter of weights whose dimension `depth` is k is the same for the 16 elements of
/// each piece of k: of all, of a row or column, or of blocks of k.
static bool isEvenInPieces(Value p, size_t depth) {
  constexpr int64_t kPiece = 16;
  std::vector<DimExpr> dims = dimsOf(p);
  if (product(dims) == DimExpr(1))
    return true;
  size_t first = 2 - std::min<size_t>(2, dims.size()); // of the weights' dimensions that p has
  if (dims.size() <= 2 && (depth < first || dims[depth - first] == DimExpr(1)))
    return true;
  if (auto slice = p.getDefiningOp<SliceOp>()) {
    for (auto [start, step] : llvm::zip(slice.getStarts(), slice.getSteps()))
      if (cast<DimAttr>(start).expr() != DimExpr(0) || step != 1)
        return false;
    p = slice.getX();
  }
  auto joined = p.getDefiningOp<ReshapeOp>();
  auto wide = joined ? joined.getX().getDefiningOp<BroadcastToOp>() : BroadcastToOp();
  if (!wide)
    return false;
  std::vector<DimExpr> one = dimsOf(wide.getX()), blocks = dimsOf(wide.getY());
  return blocks.size() == 3 && one.size() == 3 && one[depth + 1] == DimExpr(1) &&
         blocks[depth + 1].exactDiv(DimExpr(kPiece)).has_value();
}

Value narrowOperand(Operation *op) {
  std::vector<DimExpr> dims = dimsOf(op->getResult(0));
  if (isa<CastOp>(op))
    return op->getOperand(0);
  if (!isa<SubOp, MulOp>(op))
    return {};
  // The parameter is the one with far fewer elements.
  constexpr int64_t kFewer = 16;
  std::optional<int64_t> all = product(dims).constant();
  for (unsigned side : {0, 1}) {
    Value data = op->getOperand(side), parameter = op->getOperand(1 - side);
    int64_t elements = knownElements(parameter);
    if (dimsOf(data) == dims && all && elements > 0 && elements <= *all / kFewer &&
        (side == 0 || isa<MulOp>(op)))
      return data;
  }
  return {};
}

Value narrowWeights(Value weights) {
  std::vector<DimExpr> dims = dimsOf(weights);
  Type element = elementTypeOf(weights);
  if (dims.size() != 2 || !(element.isF16() || element.isBF16()))
    return {};
  Value v = weights;
  while (v && !isNarrow(elementTypeOf(v))) {
    Operation *op = v.getDefiningOp();
    v = op && isa<CastOp, SubOp, MulOp>(op) ? narrowOperand(op) : Value();
  }
  bool stored = v && (isa<BlockArgument>(v) || v.getDefiningOp<ConstantOp>());
  return stored && dimsOf(v) == dims ? v : Value();
}

NarrowFactors narrowFactors(Value weights, bool turned) {
  NarrowFactors found;
  auto rounded = weights.getDefiningOp<CastOp>();
  found.multiplied = rounded ? rounded.getX() : weights;
  // A zero point may be anything: with it numbers stay in f16's range by their scale alone.
  auto mul = found.multiplied.getDefiningOp<MulOp>();
  Value inner = mul ? narrowOperand(mul) : Value();
  if (inner && (inner.getDefiningOp<CastOp>() || !elementTypeOf(weights).isF16())) {
    Value parameter = mul.getA() == inner ? mul.getB() : mul.getA();
    std::vector<DimExpr> dims = dimsOf(parameter);
    bool columns = turned ? dims.size() == 1 || (dims.size() == 2 && dims[0] == DimExpr(1))
                          : dims.size() == 2 && dims[1] == DimExpr(1);
    if (product(dims) == DimExpr(1) || columns) {
      found.scale = parameter;
      found.multiplied = inner;
    }
  }
  auto codes = found.multiplied.getDefiningOp<CastOp>();
  found.bare = codes && isNarrow(elementTypeOf(codes.getX()));
  return found;
}

bool takesNarrowWeights(MatmulOp op, const Target &target,
                        const std::map<std::string, DimRange> &symbols,
                        const std::map<std::string, int64_t> &optima, bool turned) {
  if (!target.isCuda() || !target.hasTensorCores())
    return false;
  constexpr int64_t kPiece = 16; // elements in 16 bytes
  if (op.getTransposeA() || (!op.getTransposeB() && !turned) ||
      elementTypeOf(op.getA()) != elementTypeOf(op.getB()) || !narrowWeights(op.getB()))
    return false;
  for (Value v = op.getB(); Operation *link = v.getDefiningOp();) {
    if (isa<ConstantOp>(link))
      break;
    v = narrowOperand(link);
    for (Value parameter : link->getOperands())
      if (parameter != v && !isEvenInPieces(parameter, op.getTransposeB() ? 1 : 0))
        return false;
  }
  std::vector<DimExpr> a = dimsOf(op.getA());
  std::optional<int64_t> depth = a.back().constant();
  a.pop_back();
  if (!depth || *depth <= 0 || *depth % kPiece != 0)
    return false;
  // With more rows a copy of 16 bits, made by a kernel of its own in each run, is faster
  // (test/perf/gpu/results): widening takes longest where more than a scale a column comes to it.
  constexpr int64_t kFew = 16;
  const int64_t most = narrowFactors(op.getB(), turned).bare ? 512 : 64;
  DimExpr rows = product(a);
  if (rows.range(symbols).hi <= kFew)
    return true;
  auto best = rows.evaluate(optima);
  return target.smVersion == 90 && target.archSpecific && best.ok() && *best <= most;
}

} // namespace lathe
