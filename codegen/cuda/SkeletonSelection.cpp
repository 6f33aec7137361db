//===- SkeletonSelection.cpp - elements that are chosen by value ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills topk.cuh, topk_few.cuh, sort.cuh and nonzero.cuh: what is compared, and where places are stored.
//
//===----------------------------------------------------------------------===//

#include "../tile/Schedule.h"
#include "Holes.h"

#include "lathe/ir/Selection.h"

using namespace mlir;

namespace lathe::codegen {

FailureOr<std::string> topKText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  TopKOp op = anchorOf<TopKOp>(kernel);
  if (!op)
    return failure();
  std::vector<DimExpr> dims = dimsOf(op.getX());
  int64_t axis = op.getAxis();
  Type key = orderedKeyType(op.getX());
  holes.line("typedef " + Holes::typeText(key) + " Key;");
  holes.method("key", {"row", "place"}, key, 1, [&](Evaluator &e, ValueRange p) {
    return orderedKey(e, op.getX(), rowIndex(e, dims, axis, p[0], Index(p[1])), op.getSmallest());
  });
  holes.method("store", {"row", "rank", "place"}, Type(), 1, [&](Evaluator &e, ValueRange p) {
    Indices at = rowIndex(e, dimsOf(op.getY()), axis, p[0], Index(p[1]));
    Value place = e.indexToValue(Index(p[2]), e.b.getI64Type());
    e.store(place, op.getY(), e.outputArg(0), at);
    return Value();
  });
  MemoryText text{holes.dim(op.rows()), holes.dim(dims[axis]), holes.dim(op.getK().expr())};
  const std::vector<LaunchSpec> &launches = kernel.spec->launches;
  if (launches.size() > 1) {
    text.parts = holes.dim(DimExpr::floorDiv(launches[0].grid[0], DimExpr::max(op.rows(), DimExpr(1))));
    holes.line("LATHE_METHOD u8 *work() const { return (u8 *)work0; }");
  } else {
    DimExpr words =
        DimExpr::ceilDiv(op.getK().expr() * DimExpr(8 + int64_t(key.getIntOrFloatBitWidth()) / 8), DimExpr(8));
    bool spare = kernel.spec->workspaceBytes != DimExpr(0);
    holes.line("LATHE_METHOD i64 *spareOf(i64 block) const { return " +
               (spare ? "(i64 *)work0 + block * (" + holes.dim(words) + ")" : std::string("nullptr")) + "; }");
  }
  return holes.text(config.form->memory.text(config, text));
}

FailureOr<std::string> nonzeroText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  NonzeroOp op = anchorOf<NonzeroOp>(kernel);
  if (!op)
    return failure();
  Type i64 = IntegerType::get(op.getContext(), 64);
  holes.line("LATHE_METHOD u8 *work() const { return (u8 *)work0; }");
  holes.method("flag", {"place"}, IntegerType::get(op.getContext(), 1), 1, [&](Evaluator &e, ValueRange p) {
    return e.eval(op.getFlags(), {Index(p[0])});
  });
  // Either result may be of no use to anybody.
  auto put = [&](StringRef name, Value result, bool indexed) {
    holes.method(name, {"rank", "place"}, Type(), 1, [&](Evaluator &e, ValueRange p) {
      for (auto [o, v] : llvm::enumerate(kernel.body->getTerminator()->getOperands()))
        if (v == result)
          e.store(e.indexToValue(Index(p[1]), i64), v, e.outputArg(o), indexed ? Indices{Index(p[0])} : Indices());
      return Value();
    });
  };
  put("store", op.getPlaces(), true);
  put("finish", op.getCount(), false);
  return holes.text(config.form->memory.text(config, {"1", holes.dim(dimOf(op.getFlags(), 0))}));
}

} // namespace lathe::codegen
