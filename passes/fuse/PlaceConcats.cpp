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
namespace {

struct PlaceConcatsPass : ModulePass<PlaceConcatsPass> {
  static constexpr llvm::StringLiteral kName = "lathe-place-concats";
  static constexpr llvm::StringLiteral kSummary = "Let kernels write into slices of concatenations";

  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (target->isCuda())
        continue;
      module.walk([](KernelOp kernel) {
        ConcatOp concat = onlyConcat(kernel);
        if (!concat)
          return;
        if (std::string why = reasonAgainst(kernel); !why.empty())
          missedRemark(kernel.getLoc(), "PlaceConcats") << ("concat copies: " + why);
        else
          place(kernel, concat);
      });
    }
  }

  /// The concat that is all a kernel does, its operands being the kernel's inputs in order.
  static ConcatOp onlyConcat(KernelOp kernel) {
    Block &body = kernel.getBodyBlock();
    auto concat = dyn_cast<ConcatOp>(body.front());
    if (!concat || &body.back() != concat->getNextNode() || kernel.getNumResults() != 1 ||
        body.back().getOperand(0) != concat.getResult() ||
        concat.getInputs().size() != body.getNumArguments() ||
        physicalDimsOf(kernel.getResult(0).getType()) != dimsOf(kernel.getResult(0)))
      return {};
    for (auto [operand, argument] : llvm::zip(concat.getInputs(), body.getArguments()))
      if (operand != argument)
        return {};
    return concat;
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

  static void place(KernelOp kernel, ConcatOp concat) {
    MLIRContext *context = kernel.getContext();
    SmallVector<DimAttr> dims;
    for (const DimExpr &dim : dimsOf(kernel.getResult(0)))
      dims.push_back(DimAttr::get(context, dim));
    for (auto [input, argument] :
         llvm::zip(kernel.getInputs(), kernel.getBodyBlock().getArguments())) {
      input.setType(tensorType(elementTypeOf(input), dimsOf(input), PhysAttr::get(context, dims)));
      argument.setType(input.getType());
    }
    kernel->setAttr(kPlacedAttr, IntegerAttr::get(IntegerType::get(context, 64), concat.getAxis()));
    passedRemark(kernel.getLoc(), "PlaceConcats") << "the inputs are written into their slices";
  }
};

} // namespace

std::unique_ptr<Pass> createPlaceConcatsPass() { return std::make_unique<PlaceConcatsPass>(); }

} // namespace lathe
