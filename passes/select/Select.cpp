//===- Select.cpp - how each kernel will run ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes every kernel without MLIR and lets codegen/select choose: an
// ordered list of guarded KernelSpecs, stored as text. The only bridge from
// passes to codegen's choices.
//
//   lathe.kernel "k" gemm (...)  =>  lathe.kernel "k" gemm (...) attributes {variants =
//                                      [{guard = "M <= 1", spec = "..."}, {guard = "", spec = "..."}]}
//
//===----------------------------------------------------------------------===//
#include "Describe.h"

using namespace mlir;

namespace lathe {
namespace {

struct SelectPass : ModulePass<SelectPass> {
  static constexpr llvm::StringLiteral kName = "lathe-select";
  static constexpr llvm::StringLiteral kSummary = "Choose guarded variants for every kernel";

  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      std::map<std::string, DimRange> ranges = symbolRanges(module);
      std::map<std::string, ArrayAttr> chosen; // equal names are equal kernels
      WalkResult walked = module.walk([&](KernelOp kernel) {
        ArrayAttr &variants = chosen[kernel.getName().str()];
        if (!variants && failed(select(kernel, *target, ranges, variants)))
          return WalkResult::interrupt();
        kernel.setVariantsAttr(variants);
        return WalkResult::advance();
      });
      if (walked.wasInterrupted())
        return signalPassFailure();
    }
  }

  static LogicalResult select(KernelOp kernel, const Target &target,
                              const std::map<std::string, DimRange> &ranges, ArrayAttr &variants) {
    FailureOr<KernelDesc> desc = describe(kernel, ranges);
    if (failed(desc))
      return failure();
    auto answer = chooseVariants(*desc, target);
    if (!answer.ok())
      return kernel.emitError(answer.status().message()) << " (target " << target.name << ")";
    if (answer->empty() || !answer->back().guard.empty())
      return kernel.emitError("the choices for this kernel do not cover all sizes");
    Builder builder(kernel.getContext());
    SmallVector<Attribute> list;
    for (const KernelVariant &variant : *answer) {
      std::string guard = variant.guard.empty() ? "" : str(variant.guard);
      list.push_back(builder.getDictionaryAttr(
          {builder.getNamedAttr("guard", builder.getStringAttr(guard)),
           builder.getNamedAttr("spec", builder.getStringAttr(variant.spec.str()))}));
      passedRemark(kernel.getLoc(), "Select")
          << (kernel.getName().str() + ": " + variant.spec.config +
              (guard.empty() ? "" : " when " + guard));
    }
    variants = builder.getArrayAttr(list);
    return success();
  }
};

} // namespace

std::unique_ptr<Pass> createSelectPass() { return std::make_unique<SelectPass>(); }

} // namespace lathe
