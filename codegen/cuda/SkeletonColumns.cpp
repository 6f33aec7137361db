//===- SkeletonColumns.cpp - reductions alone in their kernel ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills columns.cuh and split.cuh: what is reduced is the load, everything that
// follows is computed where a result is stored.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

using namespace mlir;

namespace lathe::codegen {

namespace {

/// The dimensions of what is reduced: inner ones lie behind all that are reduced, outer ones are the others
/// that are kept.
struct ReducedDims {
  std::vector<DimExpr> outer, reduced, inner;
  SmallVector<int64_t> outerAt, innerAt;
  int64_t flat = -1; ///< the dimension that takes an index of all that is reduced as one; -1: none

  explicit ReducedDims(ReduceOp op) {
    ArrayRef<int64_t> axes = op.getAxes();
    for (auto [d, size] : llvm::enumerate(dimsOf(op.getX()))) {
      if (llvm::is_contained(axes, d)) {
        reduced.push_back(size);
        continue;
      }
      bool behind = !axes.empty() && int64_t(d) > axes.back();
      (behind ? inner : outer).push_back(size);
      (behind ? innerAt : outerAt).push_back(d);
    }
  }

  /// The index of the operand at number `o` of the outer dimensions, `row` of the reduced ones and `column`
  /// of the inner ones.
  Indices operand(Evaluator &e, ReduceOp op, Value o, const Index &row, const Index &column) const {
    Indices idx(outer.size() + reduced.size() + inner.size(), Index(e.ix.cst(0)));
    auto put = [&](const Indices &parts, ArrayRef<int64_t> at) {
      for (auto [d, i] : llvm::zip(at, parts))
        idx[d] = i;
    };
    put(delinearize(e, Index(o), outer), outerAt);
    put(delinearize(e, column, inner), innerAt);
    if (flat >= 0)
      idx[flat] = row;
    else
      put(delinearize(e, row, reduced), op.getAxes());
    return idx;
  }
  /// The same of the result.
  Indices result(Evaluator &e, ReduceOp op, Value o, Value column) const {
    Indices whole = operand(e, op, o, Index(e.ix.cst(0)), Index(column)), idx;
    for (auto [d, i] : llvm::enumerate(whole))
      if (op.getKeepdims() || !llvm::is_contained(op.getAxes(), int64_t(d)))
        idx.push_back(i);
    return idx;
  }
};

} // namespace

FailureOr<std::string> columnsText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  ReduceOp op = anchorOf<ReduceOp>(kernel);
  if (!op)
    return failure();
  const bool along = config.form->memory.alongRows, shares = kernel.spec->workspaceBytes != DimExpr(0);
  ArrayRef<int64_t> axes = op.getAxes();
  ReducedDims dims(op);
  const std::vector<DimExpr> &lined = along ? dims.reduced : dims.inner; // what lanes run along
  int64_t lanes = config.lanes;
  Type acc = Evaluator::computeType(elementTypeOf(op.getResult()));
  bool isUnsigned = Evaluator::isUnsigned(op.getX());
  if (lined.empty() || along == !dims.inner.empty() || !lined.back().exactDiv(DimExpr(lanes)) ||
      (isUnsigned && acc.isIntOrIndex()))
    return op.emitError("CUDA text: configuration '")
           << kernel.spec->config << "' needs "
           << (along ? "the last dimension to be reduced" : "reduced dimensions in front of columns");
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
                buffer->physical.back().exactDiv(DimExpr(lanes));
  holes.line("typedef " + Holes::typeText(element) + " Element;");
  // Pieces of `lanes` are counted along rows or columns.
  auto at = [&](Evaluator &e, ValueRange p, int64_t stride) {
    Index piece(e.ix.mul(p[along ? 1 : 2], lanes), stride), zero(e.ix.cst(0));
    bool neighbours = axes.back() - axes.front() + 1 == int64_t(axes.size());
    if (along && neighbours && flatDims(e, op.getX(), axes.front(), axes.back()))
      dims.flat = flatPlace(dimsOf(op.getX()), axes.front(), axes.back());
    return along ? dims.operand(e, op, p[0], piece, zero) : dims.operand(e, op, p[0], Index(p[1]), piece);
  };
  Type loaded = lanes > 1 ? Type(VectorType::get({lanes}, element)) : element;
  if (pieces)
    holes.method("offset", {"outer", "row", "piece"}, IndexType::get(op.getContext()), lanes,
                 [&](Evaluator &e, ValueRange p) { return e.offset(buffer->physical, at(e, p, 0)).base; });
  else
    holes.method("read", {"outer", "row", "piece"}, loaded, lanes,
                 [&](Evaluator &e, ValueRange p) {
                   Value v = e.eval(op.getX(), at(e, p, lanes > 1 ? 1 : 0));
                   if (lanes > 1)
                     v = e.splat(v);
                   return stored ? e.toStorage(v, elementTypeOf(op.getX())) : v;
                 });
  holes.method(
      "store", {"outer", "column", "value"}, Type(), 1,
      [&](Evaluator &e, ValueRange p) {
        dims.flat = -1;
        Indices at = dims.result(e, op, p[0], p[1]);
        e.bind(op.getResult(), at, p[2]);
        for (auto [o, v] : llvm::enumerate(kernel.body->getTerminator()->getOperands())) {
          Indices to = reshapeIndex(e, dimsOf(op.getResult()), dimsOf(v), at);
          e.store(e.eval(v, to), v, e.outputArg(o), to);
        }
        return Value();
      },
      acc);
  holes.line("LATHE_METHOD Acc neutral() const { return neutral(0); }");
  if (shares)
    holes.line("LATHE_METHOD u8 *work() const { return (u8 *)work0; }");
  std::string place = along ? "outer, row / kLanes, 0" : "outer, row, column / kLanes", body;
  if (pieces)
    body = "return loadVecStreaming<" + std::string(holes.programmatic() ? "false" : "true") +
           ", Element, kLanes>(in" + std::to_string(argument.getArgNumber()) + " + offset(" + place + "));";
  else
    body = lanes > 1 ? "return read(" + place + ");" : "return Vec<Element, 1>{{read(" + place + ")}};";
  holes.line("LATHE_METHOD Vec<Element, kLanes> load(i64 outer, i64 row, i64 column) const { " +
             body + " }");
  MemoryText sizes{holes.dim(lathe::product(dims.reduced)), holes.dim(lathe::product(dims.inner))};
  sizes.outer = holes.dim(lathe::product(dims.outer));
  return holes.text(config.form->memory.text(config, sizes));
}

} // namespace lathe::codegen
