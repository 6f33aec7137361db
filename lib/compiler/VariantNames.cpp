//===- VariantNames.cpp - names of kernel variants, and texts for them ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "VariantNames.h"

using namespace mlir;

namespace lathe {

std::string variantName(exec::KernelOp kernel, size_t variant) {
  std::string name = kernel.getSymName().str();
  return kernel.getVariants().size() == 1 ? name : name + "." + std::to_string(variant);
}

std::optional<NamedAttribute> replacementOf(DictionaryAttr replacements, exec::KernelOp kernel,
                                            size_t variant) {
  if (auto own = replacements.getNamed(variantName(kernel, variant)))
    return own;
  return replacements.getNamed(kernel.getSymName());
}

} // namespace lathe
