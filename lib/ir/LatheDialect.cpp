//===- LatheDialect.cpp - registration of the lathe dialect ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"
#include "lathe/ir/WeightStore.h"

#include "lathe/ir/LatheDialect.cpp.inc"
#include "lathe/ir/StructuredOpInterface.cpp.inc"

namespace lathe {

// Each family's .cpp adds its own ops, so that no translation unit holds all.
void registerElementwiseOps(LatheDialect &dialect);
void registerMovementOps(LatheDialect &dialect);
void registerContractionOps(LatheDialect &dialect);
void registerQuantizeOps(LatheDialect &dialect);
void registerAttentionOps(LatheDialect &dialect);
void registerStructureOps(LatheDialect &dialect);
void registerCollectiveOps(LatheDialect &dialect);
void registerLoopOps(LatheDialect &dialect);
void registerPagedOps(LatheDialect &dialect);
void registerSamplingOps(LatheDialect &dialect);
void registerSelectionOps(LatheDialect &dialect);
void registerFourierOps(LatheDialect &dialect);

void LatheDialect::initialize() {
  weightStore = std::make_shared<WeightStore>();
  registerAttributes();
  registerElementwiseOps(*this);
  registerMovementOps(*this);
  registerContractionOps(*this);
  registerQuantizeOps(*this);
  registerAttentionOps(*this);
  registerStructureOps(*this);
  registerCollectiveOps(*this);
  registerLoopOps(*this);
  registerPagedOps(*this);
  registerSamplingOps(*this);
  registerSelectionOps(*this);
  registerFourierOps(*this);
}

WeightStore &LatheDialect::weights() { return *weightStore; }

mlir::Operation *LatheDialect::materializeConstant(mlir::OpBuilder &builder, mlir::Attribute value,
                                                   mlir::Type type, mlir::Location loc) {
  auto typed = llvm::dyn_cast<mlir::TypedAttr>(value);
  if (!typed || typed.getType() != type)
    return nullptr;
  return ConstantOp::create(builder, loc, typed);
}

} // namespace lathe
