//===- RowDim.cpp - steps that treat rows alike ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RowDim.h"

#include "lathe/ir/OperandAccess.h"

using namespace mlir;

namespace lathe::plan {

std::optional<int64_t> RowDim::in(Type type) const {
  int64_t found = -1;
  for (auto [d, dim] : llvm::enumerate(dimsOf(type))) {
    std::set<std::string> names;
    dim.collectSymbols(names);
    if (!names.count(name))
      continue;
    if (found >= 0 || dim != DimExpr::symbol(name))
      return std::nullopt;
    found = d;
  }
  return found;
}

std::optional<int64_t> RowDim::inMemory(Type type) const {
  std::optional<int64_t> dim = in(type);
  if (!dim || *dim < 0)
    return dim;
  const std::vector<DimExpr> dims = dimsOf(type);
  DimExpr bits = int64_t(bitWidth(*dtypeOf(cast<TensorType>(type).getElementType())));
  for (size_t d = *dim + 1; d < dims.size(); ++d)
    bits = bits * dims[d];
  const bool areFirst = std::all_of(dims.begin(), dims.begin() + *dim, [](const DimExpr &d) { return d == DimExpr(1); });
  return areFirst && physicalDimsOf(type) == dims && bits.exactDiv(DimExpr(8)) ? dim : std::nullopt;
}

bool RowDim::treatsRowsAlike(Block &region) const {
  for (Type type : region.getArgumentTypes())
    if (!in(type))
      return false;
  return llvm::all_of(region.without_terminator(), [&](Operation &op) { return treatsRowsAlike(op); });
}

bool RowDim::treatsRowsAlike(Operation &op) const {
  bool hasRows = false;
  for (TypeRange types : {TypeRange(op.getOperandTypes()), TypeRange(op.getResultTypes())})
    for (Type type : types) {
      std::optional<int64_t> dim = in(type);
      if (!dim)
        return false;
      hasRows |= *dim >= 0;
    }
  if (!hasRows)
    return true;
  if (keepsOrder(&op)) // as memory does
    return inMemory(op.getOperand(0).getType()).value_or(-1) >= 0 &&
           inMemory(op.getResult(0).getType()).value_or(-1) >= 0;
  auto structured = dyn_cast<StructuredOpInterface>(op);
  if (!structured || op.getNumRegions() || !isPure(&op))
    return false;
  switch (structured.getOpClass()) {
  case OpClass::Pointwise:
  case OpClass::Movement:
  case OpClass::Gather:
  case OpClass::Pairwise:
  case OpClass::Reduction:
  case OpClass::Gemm:
    break;
  default: // what an element is may depend on its place, or on rows around it
    return false;
  }
  // All go along their rows by one parallel iterator.
  SmallVector<AffineMap> maps = structured.getAccessMaps();
  SmallVector<utils::IteratorType> iterators = structured.getIterators();
  std::optional<unsigned> along;
  auto follows = [&](AffineMap map, int64_t dim) {
    AffineExpr expr = map ? map.getResult(dim) : AffineExpr();
    auto iterator = dyn_cast_or_null<AffineDimExpr>(expr);
    if (!iterator || (along && *along != iterator.getPosition()))
      return false;
    along = iterator.getPosition();
    return iterators[*along] == utils::IteratorType::parallel;
  };
  for (auto [i, value] : llvm::enumerate(op.getOperands()))
    if (int64_t dim = *in(value.getType()); dim >= 0 && !follows(maps[i], dim))
      return false;
  for (auto [i, value] : llvm::enumerate(op.getResults())) {
    int64_t dim = *in(value.getType());
    if (dim < 0 || !follows(maps[op.getNumOperands() + i], dim))
      return false;
  }
  return true;
}

} // namespace lathe::plan
