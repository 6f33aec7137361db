//===- BlockExtremes.cpp - greatest elements of a product's result --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/BlockExtremes.h"

using namespace mlir;

namespace lathe {

static bool findsExtreme(ReduceOp reduce) {
  return (reduce.getKind() == ReduceKind::Max || reduce.getKind() == ReduceKind::Min) &&
         isa<FloatType>(elementTypeOf(reduce.getX()));
}

bool isExtreme(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce && findsExtreme(reduce) && !reduce.getAxes().empty() &&
         reduce.getAxes().size() == dimsOf(reduce.getX()).size();
}

ReduceOp blockExtremes(Value value) {
  auto reduce = value.getDefiningOp<ReduceOp>();
  if (!reduce || !findsExtreme(reduce) || reduce.getKeepdims() ||
      reduce.getAxes() != ArrayRef<int64_t>({1, 3}) || !reduce.getX().getDefiningOp<ReshapeOp>())
    return {};
  std::vector<DimExpr> blocks = dimsOf(reduce.getX());
  bool whole = blocks.size() == 4 && blocks[1] == DimExpr(kExtremeRows) && blocks[3] == DimExpr(kExtremeColumns) &&
               blocks[2] * blocks[3] == dimsOf(blockedValue(reduce)).back();
  return whole ? reduce : ReduceOp();
}

Value blockedValue(ReduceOp extremes) { return extremes.getX().getDefiningOp<ReshapeOp>().getX(); }

ReduceOp splitExtreme(ReduceOp extreme) {
  OpBuilder b(extreme);
  Location loc = extreme.getLoc();
  std::vector<DimExpr> dims = dimsOf(extreme.getX());
  DimExpr rows = *product({dims.begin(), dims.end() - 1}).exactDiv(DimExpr(kExtremeRows));
  DimExpr columns = *dims.back().exactDiv(DimExpr(kExtremeColumns));
  Value blocks = ReshapeOp::create(
      b, loc, tensorType(elementTypeOf(extreme.getX()), {rows, DimExpr(kExtremeRows), columns, DimExpr(kExtremeColumns)}),
      extreme.getX());
  auto parts = ReduceOp::create(b, loc, blocks, extreme.getKind(), ArrayRef<int64_t>{1, 3}, /*keepdims=*/false);
  Value whole = ReduceOp::create(b, loc, parts.getY(), extreme.getKind(), ArrayRef<int64_t>{0, 1}, /*keepdims=*/false);
  if (dimsOf(whole) != dimsOf(extreme.getY()))
    whole = ReshapeOp::create(b, loc, extreme.getY().getType(), whole);
  extreme.getY().replaceAllUsesWith(whole);
  extreme.erase();
  return parts;
}

} // namespace lathe
