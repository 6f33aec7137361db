//===- BlockAmax.cpp - greatest elements of a product's result --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/BlockAmax.h"

using namespace mlir;

namespace lathe {

static bool findsAmax(ReduceOp reduce) {
  return (reduce.getKind() == ReduceKind::Max || reduce.getKind() == ReduceKind::Min) &&
         isa<FloatType>(elementTypeOf(reduce.getX()));
}

bool isAmax(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce && findsAmax(reduce) && !reduce.getAxes().empty() &&
         reduce.getAxes().size() == dimsOf(reduce.getX()).size();
}

ReduceOp blockAmax(Value value) {
  auto reduce = value.getDefiningOp<ReduceOp>();
  if (!reduce || !findsAmax(reduce) || reduce.getKeepdims() ||
      reduce.getAxes() != ArrayRef<int64_t>({1, 3}) || !reduce.getX().getDefiningOp<ReshapeOp>())
    return {};
  std::vector<DimExpr> blocks = dimsOf(reduce.getX());
  bool whole = blocks.size() == 4 && blocks[1] == DimExpr(kAmaxRows) && blocks[3] == DimExpr(kAmaxColumns) &&
               blocks[2] * blocks[3] == dimsOf(blockedValue(reduce)).back();
  return whole ? reduce : ReduceOp();
}

Value blockedValue(ReduceOp amax) { return amax.getX().getDefiningOp<ReshapeOp>().getX(); }

ReduceOp splitAmax(Operation *op) {
  auto amax = cast<ReduceOp>(op);
  OpBuilder b(amax);
  Location loc = amax.getLoc();
  std::vector<DimExpr> dims = dimsOf(amax.getX());
  DimExpr rows = *product({dims.begin(), dims.end() - 1}).exactDiv(DimExpr(kAmaxRows));
  DimExpr columns = *dims.back().exactDiv(DimExpr(kAmaxColumns));
  Value blocks = ReshapeOp::create(
      b, loc, tensorType(elementTypeOf(amax.getX()), {rows, DimExpr(kAmaxRows), columns, DimExpr(kAmaxColumns)}),
      amax.getX());
  auto parts = ReduceOp::create(b, loc, blocks, amax.getKind(), ArrayRef<int64_t>{1, 3}, /*keepdims=*/false);
  Value whole = ReduceOp::create(b, loc, parts.getY(), amax.getKind(), ArrayRef<int64_t>{0, 1}, /*keepdims=*/false);
  if (dimsOf(whole) != dimsOf(amax.getY()))
    whole = ReshapeOp::create(b, loc, amax.getY().getType(), whole);
  amax.getY().replaceAllUsesWith(whole);
  amax.erase();
  return parts;
}

} // namespace lathe
