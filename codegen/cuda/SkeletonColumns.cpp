//===- SkeletonColumns.cpp - reductions down columns -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills columns.cuh: what is reduced is the load, everything that follows is
// computed where a column's result is stored.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

using namespace mlir;

namespace lathe::codegen {

FailureOr<std::string> columnsText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  ReduceOp op = anchorOf<ReduceOp>(kernel);
  if (!op)
    return failure();
  ArrayRef<int64_t> axes = op.getAxes();
  std::vector<DimExpr> full = dimsOf(op.getX()), outer, reduced, inner;
  int64_t first = axes.front(), last = axes.back(), lanes = config.lanes;
  for (int64_t d = 0; d < static_cast<int64_t>(full.size()); ++d)
    (d < first ? outer : d <= last ? reduced : inner).push_back(full[d]);
  Type acc = Evaluator::computeType(elementTypeOf(op.getResult()));
  bool isUnsigned = Evaluator::isUnsigned(op.getX());
  if (last - first + 1 != static_cast<int64_t>(axes.size()) || inner.empty() ||
      !lathe::product(inner).exactDiv(DimExpr(lanes)) || (isUnsigned && acc.isIntOrIndex()))
    return op.emitError("CUDA text: configuration '")
           << kernel.spec->config << "' needs neighbouring reduced dimensions in front of columns";

  // Index in the operand; without `row`, in the result.
  auto place = [&](Evaluator &e, Value o, Value row, const Index &column) {
    Indices idx = delinearize(e, Index(o), outer);
    if (row)
      idx.append(delinearize(e, Index(row), reduced));
    else if (op.getKeepdims())
      idx.append(axes.size(), Index(e.ix.cst(0)));
    idx.append(delinearize(e, column, inner));
    return idx;
  };
  const char *kinds[] = {"SumOp", "ProdOp", "MaxOp", "MinOp"};
  std::string type = Holes::typeText(acc);
  holes.line("typedef " + type + " Acc;");
  holes.line(Twine("typedef ") + kinds[static_cast<int>(op.getKind())] + " Op;");
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  holes.method("neutral", {"unused"}, acc, 1, [&](Evaluator &e, ValueRange) {
    return e.neutral(op.getKind(), acc, isUnsigned);
  });
  // What lies in memory is kept as it is until all loads are under way; in whole pieces of 4 to
  // 16 bytes it is not kept in the first-level cache, which gains 5 %.
  auto argument = dyn_cast<BlockArgument>(op.getX());
  Type element = argument && elementTypeOf(op.getX()).getIntOrFloatBitWidth() >= 8
                     ? Evaluator::storageType(elementTypeOf(op.getX()))
                     : acc;
  bool stored = element != acc || (argument && acc.isF32());
  const BufferArg *buffer =
      argument ? &kernel.spec->buffers[argument.getArgNumber()] : nullptr;
  int64_t bits = element.getIntOrFloatBitWidth() * lanes;
  bool pieces = stored && (bits == 128 || bits == 64 || bits == 32) && lanes > 1 &&
                buffer->packing.empty() && buffer->alignment % 16 == 0 &&
                buffer->physical.back().exactDiv(DimExpr(lanes)) &&
                inner.back().exactDiv(DimExpr(lanes));
  holes.line("typedef " + Holes::typeText(element) + " Element;");
  Type loaded = lanes > 1 ? Type(VectorType::get({lanes}, element)) : element;
  if (pieces)
    holes.method("offset", {"outer", "row", "piece"}, IndexType::get(op.getContext()), lanes,
                 [&](Evaluator &e, ValueRange p) {
                   Index column(e.ix.mul(p[2], lanes));
                   return e.offset(buffer->physical, place(e, p[0], p[1], column)).base;
                 });
  else
    holes.method("read", {"outer", "row", "piece"}, loaded, lanes,
                 [&](Evaluator &e, ValueRange p) {
                   Index column(e.ix.mul(p[2], lanes), lanes > 1 ? 1 : 0);
                   Value v = e.eval(op.getX(), place(e, p[0], p[1], column));
                   if (lanes > 1)
                     v = e.splat(v);
                   return stored ? e.toStorage(v, elementTypeOf(op.getX())) : v;
                 });
  holes.method(
      "store", {"outer", "column", "value"}, Type(), 1,
      [&](Evaluator &e, ValueRange p) {
        Indices at = place(e, p[0], {}, Index(p[1]));
        e.bind(op.getResult(), at, p[2]);
        for (auto [o, v] : llvm::enumerate(kernel.body->getTerminator()->getOperands())) {
          Indices to = reshapeIndex(e, dimsOf(op.getResult()), dimsOf(v), at);
          e.store(e.eval(v, to), v, e.outputArg(o), to);
        }
        return Value();
      },
      acc);
  holes.line("LATHE_METHOD Acc neutral() const { return neutral(0); }");
  std::string body;
  if (pieces)
    body = "return loadVecStreaming<" + std::string(holes.programmatic() ? "false" : "true") +
           ", Element, kLanes>(in" + std::to_string(argument.getArgNumber()) +
           " + offset(outer, row, column / kLanes));";
  else
    body = lanes > 1 ? "return read(outer, row, column / kLanes);"
                     : "return Vec<Element, 1>{{read(outer, row, column)}};";
  holes.line("LATHE_METHOD Vec<Element, kLanes> load(i64 outer, i64 row, i64 column) const { " +
             body + " }");
  return holes.text(config.form->memory.text(
      config, {holes.dim(lathe::product(reduced)), holes.dim(lathe::product(inner))}));
}

} // namespace lathe::codegen
