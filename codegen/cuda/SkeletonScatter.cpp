//===- SkeletonScatter.cpp - updates that are combined in their order -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills scatter.cuh: which place an update names, and what is combined there.
//
//===----------------------------------------------------------------------===//

#include "../tile/Schedule.h"
#include "Holes.h"

#include "lathe/ir/ScatterSizes.h"

using namespace mlir;

namespace lathe::codegen {

FailureOr<std::string> scatterText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  Operation *op = yieldedScatter(kernel);
  if (!op)
    return failure();
  const ScatterSizes sizes = ScatterSizes::of(op);
  Value x = op->getOperand(0), updates = op->getOperand(2), y = op->getResult(0);
  const int64_t rank = dimsOf(y).size();
  Type element = elementTypeOf(y), value = Evaluator::computeType(element), i64 = IntegerType::get(op->getContext(), 64);
  std::optional<ReduceKind> kind;
  if (auto elements = dyn_cast<ScatterElementsOp>(op))
    kind = elements.getReduction();
  else
    kind = cast<ScatterNdOp>(op).getReduction();

  auto resultIndex = [&](Evaluator &e, Value column, Value place) {
    Indices at(rank);
    for (auto [d, i] : llvm::zip(sizes.beside, delinearize(e, Index(column), sizes.columns)))
      at[d] = i;
    for (auto [d, i] : llvm::zip(sizes.named, delinearize(e, Index(place), sizes.places)))
      at[d] = i;
    return at;
  };
  auto updateIndex = [&](Evaluator &e, Value column, Value update) {
    Indices beside = delinearize(e, Index(column), sizes.columns), at = delinearize(e, Index(update), sizes.updates);
    if (auto elements = dyn_cast<ScatterElementsOp>(op))
      beside.insert(beside.begin() + elements.getAxis(), at.front());
    else
      beside.insert(beside.begin(), at.begin(), at.end());
    return beside;
  };

  bool copies = true;
  holes.line("typedef " + Holes::typeText(value) + " Value;");
  holes.method("place", {"column", "update"}, i64, 1, [&](Evaluator &e, ValueRange p) {
    copies = !liesInOperand(e, op, e.outputArg(0));
    std::optional<Indices> named = namedBy(e, op, updateIndex(e, p[0], p[1]));
    return e.indexToValue(named ? e.offset(sizes.places, *named) : Index(e.ix.cst(0)), i64);
  });
  if (copies)
    for (auto [d, size] : llvm::zip(sizes.beside, sizes.columns))
      if (size != dimsOf(y)[d])
        return op->emitError("code generation: blocks that copy what they scatter into need updates of all columns");
  holes.method("value", {"column", "update"}, value, 1,
               [&](Evaluator &e, ValueRange p) { return e.eval(updates, updateIndex(e, p[0], p[1])); });
  holes.method("load", {"column", "place"}, value, 1, [&](Evaluator &e, ValueRange p) {
    const unsigned output = e.outputArg(0);
    return e.load(e.buffer(output), element, e.offset(e.bufferArg(output).physical, resultIndex(e, p[0], p[1])));
  });
  holes.method("combine", {"there", "update"}, value, 1, [&](Evaluator &e, ValueRange p) {
    if (!kind)
      return p[1];
    Value sum = e.combine(*kind, p[0], p[1], Evaluator::isUnsigned(y));
    return e.fromStorage(e.toStorage(sum, element), element);
  }, value, value);
  holes.method("store", {"column", "place", "combined"}, Type(), 1, [&](Evaluator &e, ValueRange p) {
    e.store(p[2], y, e.outputArg(0), resultIndex(e, p[0], p[1]));
    return Value();
  }, value);
  const bool columnsLast = llvm::is_contained(sizes.beside, rank - 1);
  holes.line(std::string("static constexpr bool COPIES = ") + (copies ? "true;" : "false;"));
  holes.line(std::string("static constexpr bool COLUMNS_LAST = ") + (columnsLast ? "true;" : "false;"));
  holes.line(std::string("LATHE_METHOD u32 *work() const { return ") + (kernel.spec->launches.size() > 1 ? "(u32 *)work0" : "nullptr") + "; }");
  holes.method("operand", {"column", "place"}, value, 1,
               [&](Evaluator &e, ValueRange p) { return e.eval(x, resultIndex(e, p[0], p[1])); });
  MemoryText text{holes.dim(product(sizes.places)), holes.dim(product(sizes.columns)), holes.dim(product(sizes.updates))};
  return holes.text(config.form->memory.text(config, text));
}

} // namespace lathe::codegen
