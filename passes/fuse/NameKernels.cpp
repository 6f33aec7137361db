//===- NameKernels.cpp - equal kernels, equal names -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Appends a running number to the names that fuse gave; kernels with the same
// text share one, so that layers share code. Names are C identifiers.
//
//   kernel "matmul_add" ... twice the same      kernel "matmul_add_0", "matmul_add_0"
//   kernel "matmul_add" ... another size    =>  kernel "matmul_add_1"
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_NAMEKERNELSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct NameKernelsPass : impl::NameKernelsPassBase<NameKernelsPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      std::map<std::string, std::string> names;
      module.walk([&](KernelOp kernel) {
        auto [it, isNew] = names.try_emplace(textOf(kernel));
        if (isNew)
          it->second = (kernel.getName() + "_" + Twine(names.size() - 1)).str();
        kernel.setName(it->second);
      });
    }
  }

  /// Everything that decides the code of a kernel.
  static std::string textOf(KernelOp kernel) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    stream << kernel.getName() << stringifyRegionKind(kernel.getKind());
    if (RolesAttr roles = kernel.getRolesAttr())
      stream << roles; // some follow from what stands around the kernel
    llvm::DenseMap<Value, unsigned> numbers;
    auto number = [&](Value value) {
      return numbers.try_emplace(value, numbers.size()).first->second;
    };
    for (auto [argument, input] : llvm::zip(kernel.getBodyBlock().getArguments(), kernel.getInputs()))
      stream << "\n%" << number(argument) << " " << argument.getType()
             << (input.getDefiningOp<ConstantOp>() ? " weight" : " value");
    for (Operation &op : kernel.getBodyBlock()) {
      stream << "\n" << op.getName() << op.getAttrDictionary();
      for (Value operand : op.getOperands())
        stream << " %" << number(operand);
      for (Value result : op.getResults())
        stream << " -> %" << number(result) << " " << result.getType();
    }
    stream << "\n" << kernel.getResultTypes();
    return text;
  }
};

} // namespace

} // namespace lathe
