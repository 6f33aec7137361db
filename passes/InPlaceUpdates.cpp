//===- InPlaceUpdates.cpp - results that change an input's elements -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "InPlaceUpdates.h"

using namespace mlir;

namespace lathe {

Operation *inPlaceUpdate(KernelOp kernel, unsigned result) {
  Operation *scatter = kernel.getBodyBlock().getTerminator()->getOperand(result).getDefiningOp();
  if (!scatter || !isClass(scatter, OpClass::Scatter))
    return nullptr;
  auto changed = dyn_cast<BlockArgument>(scatter->getOperand(0));
  Type type = kernel->getResult(result).getType();
  bool mayLie = changed && changed.hasOneUse() && physicalDimsOf(changed.getType()) == physicalDimsOf(type) &&
                elementTypeOf(changed).getIntOrFloatBitWidth() >= 8;
  return mayLie ? scatter : nullptr;
}

bool hasRowsOfUpdates(Operation *scatter) {
  // Those that name places element by element have as many indices as updates.
  return !scatter->hasAttr("reduction") &&
         dimsOf(scatter->getOperand(2)).size() > dimsOf(scatter->getOperand(1)).size();
}

} // namespace lathe
