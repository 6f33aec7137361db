//===- AttentionOperands.cpp - what attention can read as it lies ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/AttentionOperands.h"

using namespace mlir;

namespace lathe {

static DimExpr behind(const std::vector<DimExpr> &dims, size_t d) {
  DimExpr product = 1;
  for (size_t i = d + 1; i < dims.size(); ++i)
    product = product * dims[i];
  return product;
}

std::optional<RowsInMemory> rowsInMemory(Value rows) {
  RowsInMemory found;
  Value v = rows;
  size_t dim = dimsOf(v).size() - 2;
  for (Operation *op = v.getDefiningOp(); op; op = v.getDefiningOp()) {
    std::vector<DimExpr> to = dimsOf(v);
    Value x = op->getNumOperands() > 0 ? op->getOperand(0) : Value();
    if (isa<ReshapeOp>(op)) {
      std::vector<DimExpr> from = dimsOf(x);
      if (from.size() < 2 || from.back() != to.back())
        return std::nullopt;
      // The dimension whose last part is the last part of this one.
      DimExpr after = behind(to, dim);
      std::optional<size_t> place;
      for (size_t d = 0; d + 1 < from.size(); ++d)
        if (from[d] != DimExpr(1) && behind(from, d) == after)
          place = d;
      if (!place)
        return std::nullopt;
      dim = *place;
    } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
      ArrayRef<int64_t> perm = transpose.getPerm();
      if (perm.back() != int64_t(perm.size()) - 1)
        return std::nullopt;
      dim = perm[dim];
    } else if (auto gather = dyn_cast<GatherOp>(op)) {
      size_t axis = gather.getAxis(), rank = dimsOf(gather.getIndices()).size();
      if (axis + 1 == dimsOf(x).size() || (dim >= axis && dim < axis + rank))
        return std::nullopt;
      if (dim >= axis + rank)
        dim = dim - rank + 1;
      found.gathered = true;
    } else if (auto slice = dyn_cast<SliceOp>(op)) {
      std::vector<DimExpr> from = dimsOf(x);
      if (from[dim] != to[dim] || from.back() != to.back() ||
          llvm::any_of(slice.getSteps(), [](int64_t step) { return step != 1; }))
        return std::nullopt;
    } else {
      break;
    }
    if (!dimsOf(x)[dim].exactDiv(DimExpr(16)))
      return std::nullopt;
    v = x;
  }
  found.memory = v;
  found.dim = dim;
  return found;
}

Value tokensFirst(Value operand) {
  auto turn = operand.getDefiningOp<TransposeOp>();
  return turn && turn.getPerm() == ArrayRef<int64_t>(kTokensFirst) ? turn.getX() : Value();
}

/// Numbers that are the same for all keys and do not shrink from a query to the next.
static bool growsWithQuery(Value v, int64_t rank) {
  std::vector<DimExpr> dims = dimsOf(v);
  if (dims.size() < 2 || dims[dims.size() - 2] == DimExpr(1))
    return true;
  Operation *op = v.getDefiningOp();
  if (!op)
    return false;
  if (auto iota = dyn_cast<IotaOp>(op))
    return true;
  if (isa<AddOp>(op))
    return growsWithQuery(op->getOperand(0), rank) && growsWithQuery(op->getOperand(1), rank);
  return isa<SubOp>(op) && growsWithQuery(op->getOperand(0), rank) &&
         (dimsOf(op->getOperand(1)).size() < 2 ||
          dimsOf(op->getOperand(1))[dimsOf(op->getOperand(1)).size() - 2] == DimExpr(1));
}

/// The number of the key, whatever the other indices.
static bool isKeyNumber(Value v, const DimExpr &keys) {
  std::vector<DimExpr> dims = dimsOf(v);
  if (dims.empty() || dims.back() != keys ||
      llvm::any_of(ArrayRef(dims).drop_back(), [](const DimExpr &d) { return d != DimExpr(1); }))
    return false;
  while (auto reshape = v.getDefiningOp<ReshapeOp>())
    v = reshape.getX();
  auto iota = v.getDefiningOp<IotaOp>();
  return iota && dimsOf(v)[iota.getAxis()] == keys;
}

static void collect(Value mask, const DimExpr &keys, MaskParts &parts) {
  Operation *op = mask.getDefiningOp();
  if (isa_and_nonnull<AndOp>(op)) {
    collect(op->getOperand(0), keys, parts);
    collect(op->getOperand(1), keys, parts);
    return;
  }
  auto compare = dyn_cast_or_null<CompareOp>(op);
  if (!compare) {
    parts.onlyEnds = false;
    return;
  }
  Value key = compare->getOperand(0), end = compare->getOperand(1);
  Predicate predicate = compare.getPredicate();
  if (predicate == Predicate::Gt || predicate == Predicate::Ge) {
    std::swap(key, end);
    predicate = predicate == Predicate::Gt ? Predicate::Lt : Predicate::Le;
  }
  std::vector<DimExpr> dims = dimsOf(end);
  bool lower = predicate == Predicate::Lt || predicate == Predicate::Le;
  if (!lower || !isKeyNumber(key, keys) || (!dims.empty() && dims.back() != DimExpr(1)) ||
      !elementTypeOf(end).isInteger(64) ||
      !growsWithQuery(end, dims.size())) {
    parts.onlyEnds = false;
    return;
  }
  bool perQuery = dims.size() >= 2 && dims[dims.size() - 2] != DimExpr(1);
  parts.ends.push_back({end, predicate == Predicate::Le, perQuery});
}

bool hasSink(AttentionOp op) {
  if (!op.getMask())
    return false;
  std::vector<DimExpr> dims = dimsOf(op.getMask());
  return !dims.empty() && dims.back() != DimExpr(1) &&
         dims.back() == dimOf(op.getK(), 2) + DimExpr(1);
}

static Value stripBroadcast(Value v) {
  while (auto broadcast = v.getDefiningOp<BroadcastToOp>())
    v = broadcast.getX();
  return v;
}

static bool isZero(Value v) {
  auto constant = v.getDefiningOp<ConstantOp>();
  auto dense = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : DenseFPElementsAttr();
  return dense && dense.isSplat() && dense.getSplatValue<APFloat>().isZero();
}

bool isKeyMask(AttentionOp op, const MaskParts &parts) {
  if (!parts.mask || parts.onlyEnds || parts.sinkInMask || op.getSoftcap() || op.getLse() ||
      op.getScale().convertToDouble() <= 0)
    return false;
  std::vector<DimExpr> dims = dimsOf(parts.mask);
  return dims.size() < 2 || dims[dims.size() - 2] == DimExpr(1);
}

MaskParts maskParts(AttentionOp op) {
  MaskParts parts;
  parts.mask = op.getMask();
  if (hasSink(op)) {
    auto joined = parts.mask.getDefiningOp<ConcatOp>();
    parts.sinkInMask = !joined || joined.getInputs().size() != 2 ||
                       dimsOf(joined.getInputs()[1]).back() != DimExpr(1);
    if (!parts.sinkInMask) {
      parts.sink = stripBroadcast(joined.getInputs()[1]);
      parts.mask = stripBroadcast(joined.getInputs()[0]);
      if (isZero(parts.mask))
        parts.mask = {};
    }
  }
  if (parts.mask) {
    if (elementTypeOf(parts.mask).isInteger(1))
      collect(parts.mask, dimOf(op.getK(), 2), parts);
    else
      parts.onlyEnds = false;
  }
  return parts;
}

} // namespace lathe
