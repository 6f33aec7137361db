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

/// Whether a value is one number.
static bool isInteger(Value v, int64_t number) {
  auto constant = v ? v.getDefiningOp<ConstantOp>() : ConstantOp();
  auto data = constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue()) : DenseIntElementsAttr();
  return data && data.isSplat() && data.getSplatValue<APInt>() == uint64_t(number);
}

/// Bytes whose low and high halves, one behind the other, are `codes`.
static Value bytesOfHalves(Value codes) {
  auto both = codes.getDefiningOp<ConcatOp>();
  if (!both || both->getNumOperands() != 2 || both.getAxis() + 1 != dimsOf(codes).size())
    return {};
  auto low = both->getOperand(0).getDefiningOp<AndOp>();
  auto high = both->getOperand(1).getDefiningOp<ShrOp>();
  if (!low || !high || low->getOperand(0) != high->getOperand(0) || !isInteger(low->getOperand(1), 15) ||
      !isInteger(high->getOperand(1), 4))
    return {};
  return low->getOperand(0);
}

std::optional<CodedRows> codedRows(Value rows) {
  auto op = rows.getDefiningOp<DequantizeOp>();
  if (!op || !op.getScale() || op.getOuter() || op.getCodebook() || !op.getBlock().empty() ||
      !elementTypeOf(op.getScale()).isF32())
    return std::nullopt;
  std::vector<DimExpr> dims = dimsOf(rows), scales = dimsOf(op.getScale());
  dims.back() = 1;
  if (dims.size() != 4 || scales != dims)
    return std::nullopt;
  Type element = elementTypeOf(op.getData());
  if (element.isSignlessInteger(8) && !op.getZero())
    return CodedRows{op.getData(), op.getScale(), 8};
  Value bytes = element.isUnsignedInteger(8) && isInteger(op.getZero(), 8) ? bytesOfHalves(op.getData()) : Value();
  if (!bytes)
    return std::nullopt;
  return CodedRows{bytes, op.getScale(), 4};
}

/// The row numbers by which elementwise ops with single numbers, and views, find a row of a table for each row of
/// the batch; null where another way leads there.
static Value rowNumbers(Value indices) {
  while (Operation *op = indices.getDefiningOp()) {
    if (auto gather = dyn_cast<GatherOp>(op)) {
      const bool rows = gather.getAxis() == 0 && dimsOf(gather.getIndices()).size() == 1 &&
                        isa<BlockArgument>(gather.getX()) && isa<BlockArgument>(gather.getIndices());
      return rows ? gather.getIndices() : Value();
    }
    if (!isa<AddOp, MulOp>(op))
      return {};
    const bool number = product(dimsOf(op->getOperand(1))) == DimExpr(1);
    if (!number && product(dimsOf(op->getOperand(0))) != DimExpr(1))
      return {};
    indices = op->getOperand(number ? 0 : 1);
  }
  return {};
}

/// The same of [B, G, T, D] that gathers whole pages of memory without a batch.
static Value pagesFoundBy(Value rows) {
  if (std::optional<CodedRows> coded = codedRows(rows))
    rows = coded->codes;
  auto merge = rows.getDefiningOp<ReshapeOp>();
  auto turn = merge ? merge.getX().getDefiningOp<TransposeOp>() : TransposeOp();
  auto gather = turn ? turn.getX().getDefiningOp<GatherOp>() : GatherOp();
  if (!gather || gather.getAxis() != 0 || dimsOf(gather.getIndices()).size() != 2)
    return {};
  // [B, pages, tokens, G, D] to [B, G, pages, tokens, D]: rows of the batch stay apart.
  std::vector<DimExpr> dims = dimsOf(rows);
  const int64_t inHeads[] = {0, 3, 1, 2, 4};
  Value memory = gather.getX();
  if (auto view = memory.getDefiningOp<ReshapeOp>())
    memory = view.getX();
  return turn.getPerm() == ArrayRef(inHeads) && dims.size() == 4 && dims[0] == dimOf(turn.getY(), 0) &&
                 isa<BlockArgument>(memory)
             ? rowNumbers(gather.getIndices())
             : Value();
}

Value keysFoundBy(AttentionOp attention) {
  Value byKeys = pagesFoundBy(attention.getK());
  return byKeys && !attention.endsPerQuery() && pagesFoundBy(attention.getV()) == byKeys ? byKeys : Value();
}

DimExpr rowsOfTable(Value numbers) {
  for (Operation *user : numbers.getUsers())
    if (auto table = dyn_cast<GatherOp>(user); table && table.getIndices() == numbers)
      return dimOf(table.getX(), 0);
  return dimOf(numbers, 0); // no more than there are numbers
}

Value tokensFirst(Value operand) {
  auto turn = operand.getDefiningOp<TransposeOp>();
  return turn && turn.getPerm() == ArrayRef<int64_t>(kTokensFirst) ? turn.getX() : Value();
}

} // namespace lathe
