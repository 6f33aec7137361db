//===- SkeletonSelection.cpp - elements in order --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills topk.cuh, topk_few.cuh, sort.cuh, nonzero.cuh and marks.cuh: what is compared, and where places are stored; and scan.cuh:
// what is combined from element to element.
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
  // Beside the places, or instead of them, the elements that are there: what has a key at hand need not read them.
  ValueRange results = kernel.body->getTerminator()->getOperands();
  auto store = [&](Evaluator &e, ValueRange p, Value keyOfPlace) {
    const std::vector<DimExpr> wanted = dimsOf(op.getY());
    Indices at = rowIndex(e, wanted, axis, p[0], Index(p[1])), bound = at;
    for (auto [d, size] : llvm::enumerate(wanted)) // the evaluator asks so
      if (size == DimExpr(1))
        bound[d] = Index(e.ix.cst(0));
    Value place = e.indexToValue(Index(p[2]), e.b.getI64Type());
    e.bind(op.getY(), bound, place);
    for (auto [o, v] : llvm::enumerate(results)) {
      auto read = [&, v = v] { return e.eval(v, at); };
      Value element = v == op.getY() ? place
                      : keyOfPlace   ? elementOfKey(e, op.getX(), keyOfPlace, op.getSmallest(), read)
                                     : read();
      e.store(element, v, e.outputArg(o), at);
    }
    return Value();
  };
  auto isTaken = [&](Value v) { // a gather along the only dimension is one element by element
    Operation *taken = v.getDefiningOp();
    return isa_and_nonnull<GatherElementsOp, GatherOp>(taken) && taken->getOperand(0) == op.getX() &&
           taken->getOperand(1) == op.getY() && taken->getAttr("axis") == op->getAttr("axis") &&
           dimsOf(v) == dimsOf(op.getY());
  };
  for (Value v : results)
    if (v != op.getY() && !isTaken(v))
      return op.emitError("code generation: a selection yields its places, and the elements that are there");
  holes.method("store", {"row", "rank", "place"}, Type(), 1,
               [&](Evaluator &e, ValueRange p) { return store(e, p, Value()); });
  holes.method("storeKey", {"row", "rank", "place", "key"}, Type(), 1,
               [&](Evaluator &e, ValueRange p) { return store(e, p, p[3]); }, key);
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

/// Stores places and what follows from them; `count` is a result that is none of them.
static void addStore(Holes &holes, Value places, ValueRange results, Value count) {
  holes.method("store", {"rank", "place"}, Type(), 1, [&](Evaluator &e, ValueRange p) {
    Indices rank = {Index(p[0])};
    e.bind(places, rank, e.indexToValue(Index(p[1]), e.b.getI64Type()));
    for (auto [o, v] : llvm::enumerate(results))
      if (v != count)
        e.store(e.eval(v, rank), v, e.outputArg(o), rank);
    return Value();
  });
}
static void addFinish(Holes &holes, ValueRange results, Value count) {
  holes.method("finish", {"unused", "count"}, Type(), 1, [&](Evaluator &e, ValueRange p) {
    for (auto [o, v] : llvm::enumerate(results))
      if (v == count)
        e.store(e.indexToValue(Index(p[1]), e.b.getI64Type()), v, e.outputArg(o), {});
    return Value();
  });
}
static void addFlag(Holes &holes, Value flags) {
  holes.line("LATHE_METHOD u8 *work() const { return (u8 *)work0; }");
  holes.method("flag", {"place"}, elementTypeOf(flags), 1, [&](Evaluator &e, ValueRange p) { return e.eval(flags, {Index(p[0])}); });
}

static FailureOr<std::string> markText(Holes &holes, const KernelConfig &config, MarkFlagsOp op, ValueRange results) {
  addFlag(holes, op.getFlags());
  holes.method("mark", {"at", "word"}, Type(), 1, [&](Evaluator &e, ValueRange p) {
    Indices at = {Index(p[0])};
    for (auto [o, v] : llvm::enumerate(results))
      if (v == op.getMarks())
        e.store(e.indexToValue(Index(p[1]), e.b.getI64Type()), v, e.outputArg(o), at);
    return Value();
  });
  addFinish(holes, results, op.getCount());
  return holes.text(config.form->memory.text(config, MemoryText{"1", holes.dim(dimOf(op.getFlags(), 0))}));
}

static FailureOr<std::string> placesText(Holes &holes, const KernelConfig &config, MarkedPlacesOp op, ValueRange results) {
  holes.method("marked", {"at"}, elementTypeOf(op.getMarks()), 1, [&](Evaluator &e, ValueRange p) { return e.eval(op.getMarks(), {Index(p[0])}); });
  addStore(holes, op.getPlaces(), results, Value());
  MemoryText text{"1", holes.dim(op.getLength().expr())};
  text.wanted = holes.dim(dimOf(results[0], 0));
  return holes.text(config.form->memory.text(config, text));
}

FailureOr<std::string> nonzeroText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  ValueRange results = kernel.body->getTerminator()->getOperands();
  for (MarkFlagsOp op : kernel.body->getOps<MarkFlagsOp>())
    return markText(holes, config, op, results);
  for (MarkedPlacesOp op : kernel.body->getOps<MarkedPlacesOp>())
    return placesText(holes, config, op, results);
  NonzeroOp op = anchorOf<NonzeroOp>(kernel);
  if (!op)
    return failure();
  addFlag(holes, op.getFlags());
  // Either result may be of no use to anybody; and of the places those that are there may be all that is wanted.
  DimExpr wanted = 0;
  for (Value v : results)
    if (v != op.getCount())
      wanted = dimOf(v, 0);
  addStore(holes, op.getPlaces(), results, op.getCount());
  addFinish(holes, results, op.getCount());
  MemoryText text{"1", holes.dim(dimOf(op.getFlags(), 0))};
  text.wanted = holes.dim(wanted);
  return holes.text(config.form->memory.text(config, text));
}

FailureOr<std::string> scanText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  SmallVector<ScanOp> scans(kernel.body->getOps<ScanOp>());
  Operation *yield = kernel.body->getTerminator();
  if (scans.size() != 1)
    return yield->emitError("code generation: blocks that share rows need one scan");
  ScanOp op = scans[0];
  const std::vector<DimExpr> dims = dimsOf(op.getResult());
  for (Value v : yield->getOperands())
    if (dimsOf(v) != dims)
      return yield->emitError("code generation: the outputs of a scan kernel must have its sizes");
  const int64_t axis = op.getAxis();
  const bool isUnsigned = Evaluator::isUnsigned(op.getX());
  Type value = Evaluator::computeType(elementTypeOf(op.getX()));
  auto indexOf = [&](Evaluator &e, Value row, Value place) {
    IndexMath &ix = e.ix;
    Value at = op.getReverse() ? ix.sub(ix.sub(ix.dim(dims[axis]), ix.cst(1)), place) : place;
    return rowIndex(e, dims, axis, row, Index(at));
  };
  holes.line("typedef " + Holes::typeText(value) + " Acc;");
  holes.line(std::string("static constexpr bool EXCLUSIVE = ") + (op.getExclusive() ? "true;" : "false;"));
  const bool parts = kernel.spec->launches.size() > 1;
  holes.line(std::string("LATHE_METHOD u8 *work() const { return ") + (parts ? "(u8 *)work0" : "nullptr") + "; }");
  holes.method("element", {"row", "place"}, value, 1,
               [&](Evaluator &e, ValueRange p) { return e.eval(op.getX(), indexOf(e, p[0], p[1])); });
  holes.method("neutral", {}, value, 1, [&](Evaluator &e, ValueRange) { return e.neutral(op.getKind(), value, isUnsigned); });
  holes.method("combine", {"a", "b"}, value, 1,
               [&](Evaluator &e, ValueRange p) { return e.combine(op.getKind(), p[0], p[1], isUnsigned); }, value, value);
  holes.method("store", {"row", "place", "running"}, Type(), 1, [&](Evaluator &e, ValueRange p) {
    Indices at = indexOf(e, p[0], p[1]);
    e.bind(op.getResult(), at, p[2]);
    for (auto [o, v] : llvm::enumerate(yield->getOperands()))
      e.store(e.eval(v, at), v, e.outputArg(o), at);
    return Value();
  }, value);
  DimExpr rows = 1;
  for (auto [d, size] : llvm::enumerate(dims))
    if (int64_t(d) != axis)
      rows = rows * size;
  MemoryText text{"", holes.dim(dims[axis])};
  text.parts = parts ? holes.dim(DimExpr::floorDiv(kernel.spec->launches[0].grid[0], DimExpr::max(rows, DimExpr(1)))) : "1";
  return holes.text(config.form->memory.text(config, text));
}

} // namespace lathe::codegen
