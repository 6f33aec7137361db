//===- PlaceConcats.cpp - producers write into concatenations -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel that only puts results of other kernels one after another need not run: each
// of them gets the sizes of the whole as its physical layout, and plan gives it its slice
// of the whole's memory. On the CPU; where an input is read by others too, or is no
// kernel's, the kernel stays.
//
//   %a = kernel ... -> tensor<2x3>          %a = kernel ... -> tensor<2x3, phys [2, 8]>
//   %b = kernel ... -> tensor<2x5>     =>   %b = kernel ... -> tensor<2x5, phys [2, 8]>
//   %c = kernel "concat" (%a, %b)           %c = kernel "concat" (%a, %b) {lathe.placed}
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_PLACECONCATSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct PlaceConcatsPass : impl::PlaceConcatsPassBase<PlaceConcatsPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (target->isCuda())
        continue;
      module.walk([](KernelOp kernel) {
        std::optional<int64_t> axis = onlyConcat(kernel);
        if (!axis)
          return;
        if (std::string why = reasonAgainst(kernel); !why.empty())
          missedRemark(kernel.getLoc(), "PlaceConcats") << ("concat copies: " + why);
        else
          place(kernel, *axis);
      });
    }
  }

  /// The dimension along which an op puts its operands one after another; none where it does not.
  static std::optional<int64_t> joinedDim(StructuredOpInterface op) {
    if (!op || op->getNumOperands() < 2)
      return std::nullopt;
    std::optional<int64_t> joined;
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      OperandAccess access = op.getAccess(i);
      if (access.kind != OperandAccess::Kind::Piece)
        return std::nullopt;
      for (auto [d, start] : llvm::enumerate(access.starts))
        if (start != DimExpr(0))
          joined = d;
    }
    return joined;
  }

  /// That dimension where nothing else is all a kernel does, the operands being its inputs in order.
  static std::optional<int64_t> onlyConcat(KernelOp kernel) {
    Block &body = kernel.getBodyBlock();
    Operation &concat = body.front();
    std::optional<int64_t> joined = joinedDim(dyn_cast<StructuredOpInterface>(concat));
    if (!joined || &body.back() != concat.getNextNode() || kernel.getNumResults() != 1 ||
        body.back().getOperand(0) != concat.getResult(0) ||
        concat.getNumOperands() != body.getNumArguments() ||
        physicalDimsOf(kernel.getResult(0).getType()) != dimsOf(kernel.getResult(0)))
      return std::nullopt;
    for (auto [operand, argument] : llvm::zip(concat.getOperands(), body.getArguments()))
      if (operand != argument)
        return std::nullopt;
    return joined;
  }

  /// Why an input cannot be written in its place; empty when all can.
  static std::string reasonAgainst(KernelOp kernel) {
    std::optional<DType> dtype = dtypeOf(elementTypeOf(kernel.getResult(0)));
    if (!dtype || bitWidth(*dtype) < 8)
      return "its elements are narrower than a byte";
    llvm::SmallPtrSet<Operation *, 4> producers;
    for (Value input : kernel.getInputs()) {
      auto producer = input.getDefiningOp<KernelOp>();
      if (!producer || producer.getKind() == RegionKind::Custom ||
          producer.getKind() == RegionKind::Scan || onlyConcat(producer))
        return "an input is no kernel's result";
      if (!input.hasOneUse())
        return "others read an input too";
      if (physicalDimsOf(input.getType()) != dimsOf(input))
        return "an input has a place of its own";
      if (!producers.insert(producer).second)
        return "one kernel makes two of its inputs";
    }
    return {};
  }

  static void place(KernelOp kernel, int64_t axis) {
    MLIRContext *context = kernel.getContext();
    SmallVector<DimAttr> dims;
    for (const DimExpr &dim : dimsOf(kernel.getResult(0)))
      dims.push_back(DimAttr::get(context, dim));
    for (auto [input, argument] :
         llvm::zip(kernel.getInputs(), kernel.getBodyBlock().getArguments())) {
      input.setType(tensorType(elementTypeOf(input), dimsOf(input), PhysAttr::get(context, dims)));
      argument.setType(input.getType());
    }
    kernel->setAttr(kPlacedAttr, IntegerAttr::get(IntegerType::get(context, 64), axis));
    passedRemark(kernel.getLoc(), "PlaceConcats") << "the inputs are written into their slices";
  }
};

} // namespace

} // namespace lathe
