//===- InPlace.cpp - results that may lie where an input lies -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A result may take the memory of an input when the kernel reads each element of it
// for the element at the same place alone (or, in a reduction, for that row alone,
// before the row is written). This says so of the region; whether a configuration
// computes every element once and reads before it writes is codegen's knowledge
// (codegen/select, specFor).
//
//   %y = matmul %a, %w        %r may lie where %x lies, and not where %a lies:
//   %r = add %y, %x           other elements of %r still need it
//
// A scatter changes elements of an input and keeps the others: its result does lie there, plan sees
// to it.
//
//===----------------------------------------------------------------------===//
#include "Describe.h"

#include "../InPlaceUpdates.h"

#include "lathe/ir/ScatterSizes.h"

using namespace mlir;

namespace lathe {

namespace {

/// Whether the op computes each element of its result from the operand's at the same place.
bool sameElement(Operation *op, unsigned operand) {
  auto structured = dyn_cast<StructuredOpInterface>(op);
  if (!structured || structured.getOpClass() != OpClass::Pointwise || op->getNumResults() != 1 ||
      dimsOf(op->getOperand(operand)) != dimsOf(op->getResult(0)))
    return false;
  SmallVector<AffineMap> maps = structured.getAccessMaps();
  AffineMap from = maps[operand], to = maps[op->getNumOperands()];
  if (!from || !to || from.getNumResults() != to.getNumResults())
    return false;
  for (auto [size, x, y] :
       llvm::zip(dimsOf(op->getResult(0)), from.getResults(), to.getResults()))
    if (x != y && !(size == DimExpr(1))) // a size of 1 may be written as broadcast
      return false;
  return true;
}

/// Whether all reductions of the region go over the same rows of tensors of these sizes.
bool reducesRowsOf(KernelOp kernel, const std::vector<DimExpr> &dims) {
  AffineMap rows;
  for (Operation &op : kernel.getBodyBlock()) {
    if (!isClass(&op, OpClass::Reduction))
      continue;
    auto structured = cast<StructuredOpInterface>(op);
    AffineMap map = structured.getAccessMaps().front();
    if (!map || dimsOf(op.getOperand(0)) != dims || (rows && map != rows) ||
        op.getNumOperands() != 1)
      return false;
    rows = map;
  }
  return true;
}

bool mayLieIn(KernelOp kernel, BlockArgument argument) {
  Value result = kernel.getBodyBlock().getTerminator()->getOperand(0);
  std::vector<DimExpr> dims = dimsOf(result);
  SmallVector<Value> work = {argument};
  llvm::DenseSet<Value> seen;
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    for (OpOperand &use : value.getUses()) {
      Operation *op = use.getOwner();
      if (op->hasTrait<OpTrait::IsTerminator>())
        continue;
      if (isClass(op, OpClass::Reduction)) {
        if (kernel.getKind() != RegionKind::Reduction || !reducesRowsOf(kernel, dims))
          return false;
        continue; // the row's value: known before the row is written
      }
      if (!sameElement(op, use.getOperandNumber()))
        return false;
      work.push_back(op->getResult(0));
    }
  }
  return true;
}

} // namespace

/// KernelDesc::ordered. What the kernel copies it copies for elements that have updates alone.
static void describeOrder(Operation *scatter, KernelDesc &desc) {
  const ScatterSizes sizes = ScatterSizes::of(scatter);
  const std::vector<DimExpr> dims = dimsOf(scatter->getResult(0));
  for (auto [d, size] : llvm::zip(sizes.beside, sizes.columns))
    if (size != dims[d] && desc.buffers[desc.numInputs].aliases < 0)
      return;
  desc.ordered = {product(sizes.updates), product(sizes.places), product(sizes.columns),
                  !sizes.beside.empty() && sizes.beside.back() + 1 == int64_t(dims.size())};
}

/// Results that lie in the input whose elements they change. Whether there are any.
static bool describeScatters(KernelOp kernel, KernelDesc &desc) {
  bool any = false;
  for (int i = 0; i < desc.numOutputs; ++i) {
    Operation *made = kernel.getBodyBlock().getTerminator()->getOperand(i).getDefiningOp();
    any |= made && isClass(made, OpClass::Scatter);
    Operation *scatter = inPlaceUpdate(kernel, i);
    if (!scatter)
      continue;
    BufferArg &out = desc.buffers[desc.numInputs + i];
    out.aliases = cast<BlockArgument>(scatter->getOperand(0)).getArgNumber();
    out.access = BufferArg::Access::ReadWrite;
    if (!scatter->hasAttr("reduction"))
      desc.updates[i] = dimsOf(scatter->getOperand(2));
    desc.updatesInRows =
        isa<ScatterNdOp>(scatter) &&
        dimsOf(scatter->getOperand(2)).size() >= dimsOf(scatter->getOperand(1)).size();
  }
  if (desc.numOutputs == 1 && desc.updates.empty())
    if (Operation *made = kernel.getBodyBlock().getTerminator()->getOperand(0).getDefiningOp();
        made && isClass(made, OpClass::Scatter))
      describeOrder(made, desc);
  return any;
}

void describeInPlace(KernelOp kernel, KernelDesc &desc) {
  if (describeScatters(kernel, desc))
    return;
  if (desc.numOutputs != 1 || (desc.kind != KernelDesc::Kind::Pointwise &&
                               desc.kind != KernelDesc::Kind::Reduction &&
                               desc.kind != KernelDesc::Kind::Gemm &&
                               desc.kind != KernelDesc::Kind::Conv))
    return;
  BufferArg &out = desc.buffers[desc.numInputs];
  for (int i = 0; i < desc.numInputs; ++i) {
    const BufferArg &in = desc.buffers[i];
    Value input = kernel.getInputs()[i];
    if (isa_and_nonnull<ConstantOp>(input.getDefiningOp()) || in.dims != out.dims ||
        in.physical != out.physical || bitWidth(in.dtype) != bitWidth(out.dtype) ||
        bitWidth(out.dtype) < 8 || !mayLieIn(kernel, kernel.getBodyBlock().getArgument(i)))
      continue;
    // One that nobody else reads can be used up; it wins over others.
    if (out.aliases < 0 || (input.hasOneUse() && !kernel.getInputs()[out.aliases].hasOneUse()))
      out.aliases = i;
  }
}

} // namespace lathe
